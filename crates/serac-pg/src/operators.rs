//! Which operators there are.

use crate::resolve::Signature;
use crate::types::TypeId;
use std::collections::HashMap;
use std::sync::LazyLock;

static OPERATORS: LazyLock<HashMap<&'static str, Vec<Signature>>> = LazyLock::new(|| {
    let mut operators: HashMap<_, Vec<_>> = HashMap::new();
    for row in crate::rows(include_str!("facts/operators.txt")) {
        let named = |name| TypeId::by_name(name).expect("the tables agree");
        let arguments = row[1..3].iter().filter(|name| **name != "-").map(|name| named(name)).collect();
        operators.entry(row[0]).or_default().push(Signature { arguments, result: named(row[3]) });
    }
    operators
});

/// The operators of a symbol with so many operands, one or two.
pub fn of_symbol(symbol: &str, operands: usize) -> impl Iterator<Item = &'static Signature> {
    let all = OPERATORS.get(symbol).map_or(&[][..], Vec::as_slice);
    all.iter().filter(move |operator| operator.arguments.len() == operands)
}

/// Whether any type has an operator of this symbol.
pub fn is_known(symbol: &str) -> bool {
    OPERATORS.contains_key(symbol)
}
