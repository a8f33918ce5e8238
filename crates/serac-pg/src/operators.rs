//! The operators.

use crate::resolve::Signature;
use crate::types::TypeId;
use std::collections::HashMap;
use std::sync::LazyLock;

/// An operator, with its facts from `pg_operator`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Its symbol.
    pub symbol: &'static str,
    /// Its number.
    pub number: u32,
    /// Its operands, one or two, and its value.
    pub signature: Signature,
    /// The number of PostgreSQL's function that computes it.
    pub function: u32,
    /// The number of the operator with exchanged operands; 0 if there is no such operator.
    pub commutator: u32,
    /// The number of the operator with the opposite result; 0 if there is no such operator.
    pub negator: u32,
    /// Whether rows can be joined by it in the order of its operands.
    pub merges: bool,
    /// Whether rows can be joined by it, by their hashes.
    pub hashes: bool,
    /// PostgreSQL's names of the functions that estimate how many rows it keeps in a filter, and in
    /// a join.
    pub estimators: [&'static str; 2],
}

struct Operators {
    all: Vec<Operator>,
    signatures: HashMap<&'static str, Vec<Signature>>,
}

static OPERATORS: LazyLock<Operators> = LazyLock::new(|| {
    let all: Vec<Operator> = crate::rows(include_str!("facts/operators.txt")).map(operator).collect();
    let mut signatures: HashMap<_, Vec<_>> = HashMap::new();
    for operator in &all {
        signatures.entry(operator.symbol).or_default().push(operator.signature.clone());
    }
    Operators { all, signatures }
});

/// The operands of operators that the table leaves out, by their symbols; `None` for a type that is
/// missing here.
static OTHERS: LazyLock<HashMap<&'static str, Vec<Vec<Option<TypeId>>>>> = LazyLock::new(|| {
    let mut others: HashMap<_, Vec<_>> = HashMap::new();
    for row in crate::rows(include_str!("facts/other_operators.txt")) {
        let operands = row[1..].iter().filter(|name| **name != "-").map(|name| TypeId::by_name(name)).collect();
        others.entry(row[0]).or_default().push(operands);
    }
    others
});

/// Whether PostgreSQL has an operator for these operands that is missing here, because one of its
/// types is missing. A constant without a type may have that type.
pub fn is_left_out(symbol: &str, operands: &[TypeId]) -> bool {
    let may_be = |wanted: &Vec<Option<TypeId>>| {
        let is_of =
            |(wanted, given): (&Option<TypeId>, &TypeId)| *wanted.as_ref().unwrap_or(&TypeId::UNKNOWN) == *given;
        wanted.len() == operands.len() && wanted.iter().zip(operands).all(is_of)
    };
    OTHERS.get(symbol).is_some_and(|others| others.iter().any(may_be))
}

/// A row of the table.
fn operator(row: Vec<&'static str>) -> Operator {
    let named = |name| TypeId::by_name(name).expect("the tables agree");
    let number = |word: &str| word.parse().expect("the table has numbers");
    let arguments = row[2..4].iter().filter(|name| **name != "-").map(|name| named(name)).collect();
    Operator {
        symbol: row[0],
        number: number(row[1]),
        signature: Signature { arguments, result: named(row[4]) },
        function: number(row[5]),
        commutator: number(row[6]),
        negator: number(row[7]),
        merges: row[8].contains("merge"),
        hashes: row[8].contains("hash"),
        estimators: [row[9], row[10]],
    }
}

/// All operators.
pub fn all() -> &'static [Operator] {
    &OPERATORS.all
}

/// The operators that can be applied: the reference has their symbols.
pub fn callable() -> impl Iterator<Item = &'static Operator> {
    all().iter().filter(|operator| crate::reference::of_operator(operator).is_some())
}

/// The operators of a symbol with this number of operands, one or two.
pub fn of_symbol(symbol: &str, operands: usize) -> impl Iterator<Item = &'static Signature> {
    let all = OPERATORS.signatures.get(symbol).map_or(&[][..], Vec::as_slice);
    all.iter().filter(move |operator| operator.arguments.len() == operands)
}

/// Whether any type has an operator of this symbol.
pub fn is_known(symbol: &str) -> bool {
    OPERATORS.signatures.contains_key(symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_have_their_opposites() {
        let numbers: HashMap<u32, &Operator> = all().iter().map(|operator| (operator.number, operator)).collect();
        assert_eq!(numbers.len(), all().len(), "two operators have one number");
        let of = |number: u32| (number > 0).then(|| numbers[&number]);
        for operator in all() {
            assert!(of(operator.negator).is_none_or(|other| other.negator == operator.number), "{operator:?}");
            assert!(crate::functions::name_of(operator.function).is_some(), "{operator:?}");
            let exchanged = of(operator.commutator).map(|other| other.signature.arguments.iter().rev());
            assert!(exchanged.is_none_or(|other| other.eq(&operator.signature.arguments)), "{operator:?}");
        }
        let equal = numbers[&96];
        assert_eq!((equal.symbol, equal.function, equal.merges, equal.hashes), ("=", 65, true, true));
    }

    #[test]
    fn others_are_left_out() {
        assert!(is_left_out("@?", &[TypeId::JSONB, TypeId::UNKNOWN]));
        assert!(is_left_out("@@", &[TypeId::TEXT, TypeId::UNKNOWN]));
        assert!(!is_left_out("@?", &[TypeId::INT4, TypeId::UNKNOWN]));
        assert!(!is_left_out("@?", &[TypeId::JSONB, TypeId::TEXT]));
        assert!(!is_left_out("<<<", &[TypeId::INT4, TypeId::INT4]));
    }
}
