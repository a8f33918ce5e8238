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

/// The operands of operators that the table leaves out, by their symbols; none for a type that is not
/// here.
static OTHERS: LazyLock<HashMap<&'static str, Vec<Vec<Option<TypeId>>>>> = LazyLock::new(|| {
    let mut others: HashMap<_, Vec<_>> = HashMap::new();
    for row in crate::rows(include_str!("facts/other_operators.txt")) {
        let operands = row[1..].iter().filter(|name| **name != "-").map(|name| TypeId::by_name(name)).collect();
        others.entry(row[0]).or_default().push(operands);
    }
    others
});

/// Whether PostgreSQL has an operator for such operands that is not among those here, since one of its
/// types is not: a constant without a type may be of that.
pub fn is_left_out(symbol: &str, operands: &[TypeId]) -> bool {
    let may_be = |wanted: &Vec<Option<TypeId>>| {
        let is_of =
            |(wanted, given): (&Option<TypeId>, &TypeId)| *wanted.as_ref().unwrap_or(&TypeId::UNKNOWN) == *given;
        wanted.len() == operands.len() && wanted.iter().zip(operands).all(is_of)
    };
    OTHERS.get(symbol).is_some_and(|others| others.iter().any(may_be))
}

/// The operators of a symbol with so many operands, one or two.
pub fn of_symbol(symbol: &str, operands: usize) -> impl Iterator<Item = &'static Signature> {
    let all = OPERATORS.get(symbol).map_or(&[][..], Vec::as_slice);
    all.iter().filter(move |operator| operator.arguments.len() == operands)
}

/// Whether any type has an operator of this symbol.
pub fn is_known(symbol: &str) -> bool {
    OPERATORS.contains_key(symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_left_out() {
        assert!(is_left_out("@?", &[TypeId::JSONB, TypeId::UNKNOWN]));
        assert!(is_left_out("@@", &[TypeId::TEXT, TypeId::UNKNOWN]));
        assert!(!is_left_out("@?", &[TypeId::INT4, TypeId::UNKNOWN]));
        assert!(!is_left_out("@?", &[TypeId::JSONB, TypeId::TEXT]));
        assert!(!is_left_out("<<<", &[TypeId::INT4, TypeId::INT4]));
    }
}
