//! Which functions, aggregates and window functions there are.

use crate::resolve::Signature;
use crate::types::TypeId;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// What a function is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// One row.
    Scalar,
    /// A group of rows.
    Aggregate,
    /// A window of rows.
    Window,
}

/// When a function gives the same for the same arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volatility {
    /// Always.
    Immutable,
    /// Within a statement.
    Stable,
    /// Not even there.
    Volatile,
}

/// A function of PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// What it is applied to.
    pub kind: FunctionKind,
    /// When it gives the same.
    pub volatility: Volatility,
    /// It gives NULL if an argument is NULL.
    pub is_strict: bool,
    /// The last argument may come several times.
    pub is_variadic: bool,
    /// How many of the last arguments may be left out.
    pub defaults: usize,
    /// It gives a set of rows.
    pub returns_set: bool,
    /// Its arguments and its value.
    pub signature: Signature,
}

static FUNCTIONS: LazyLock<HashMap<&'static str, Vec<Function>>> = LazyLock::new(|| {
    let mut functions: HashMap<_, Vec<_>> = HashMap::new();
    for row in crate::rows(include_str!("facts/functions.txt")) {
        if let Some(function) = function(&row) {
            functions.entry(row[0]).or_default().push(function);
        }
    }
    functions
});

/// A row of the table; none for one with types that are not among the types here.
fn function(row: &[&str]) -> Option<Function> {
    let result = row[6].strip_prefix('*');
    Some(Function {
        kind: match row[1] {
            "aggregate" => FunctionKind::Aggregate,
            "window" => FunctionKind::Window,
            _ => FunctionKind::Scalar,
        },
        volatility: match row[2] {
            "immutable" => Volatility::Immutable,
            "stable" => Volatility::Stable,
            _ => Volatility::Volatile,
        },
        is_strict: row[3] == "strict",
        is_variadic: row[4] == "variadic",
        defaults: row[5].parse().ok()?,
        returns_set: result.is_some(),
        signature: Signature {
            arguments: row[7..].iter().map(|name| TypeId::by_name(name)).collect::<Option<_>>()?,
            result: TypeId::by_name(result.unwrap_or(row[6]))?,
        },
    })
}

/// How many arguments functions take that the table leaves out, by their names.
static OTHERS: LazyLock<HashMap<&'static str, Vec<RangeInclusive<usize>>>> = LazyLock::new(|| {
    let mut others: HashMap<_, Vec<_>> = HashMap::new();
    let number = |word: &str| word.parse().expect("the table has numbers");
    for row in crate::rows(include_str!("facts/other_functions.txt")) {
        others.entry(row[0]).or_default().push(number(row[1])..=number(row[2]));
    }
    others
});

/// Whether PostgreSQL has a function of a name and of so many arguments that is not among those here:
/// it is one of types that are not here, or one for internal use.
pub fn is_left_out(name: &str, arguments: usize) -> bool {
    OTHERS.get(name).is_some_and(|counts| counts.iter().any(|count| count.contains(&arguments)))
}

/// The names of all functions that PostgreSQL has, each once or more.
pub fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.keys().chain(OTHERS.keys()).copied()
}

/// The functions of a name.
pub fn of_name(name: &str) -> &'static [Function] {
    FUNCTIONS.get(name).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_function() {
        let rows: Vec<_> = crate::rows(include_str!("facts/functions.txt")).collect();
        let wrong: Vec<_> = rows.iter().filter(|row| function(row).is_none()).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        assert!(rows.len() > 400, "{}", rows.len());
    }

    #[test]
    fn others_are_left_out() {
        assert!(is_left_out("area", 1) && is_left_out("length", 1) && is_left_out("xmlagg", 1));
        assert!(!is_left_out("area", 2) && !is_left_out("strpos", 2) && !is_left_out("no such function", 0));
    }

    #[test]
    fn sums_are_of_wider_types() {
        let sums = of_name("sum").iter();
        let of = |argument| sums.clone().find(|sum| sum.signature.arguments == [argument]).unwrap().signature.result;
        assert_eq!(of(TypeId::INT4), TypeId::INT8);
        assert_eq!(of(TypeId::INT8), TypeId::NUMERIC);
        assert_eq!(of(TypeId::FLOAT4), TypeId::FLOAT4);
    }
}
