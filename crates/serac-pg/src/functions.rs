//! The functions, aggregates and window functions: the registry of functions.
//!
//! The binder resolves calls by it. `pg_proc` and `pg_aggregate` are made of it, and so are the
//! function reference (`docs/functions.md`), the shell's completion and `\df`.
//!
//! CONTRIBUTING.md says how to add one. Its implementation is a [`Definition`] under its name; if a
//! function of another name computes it, the binder's `COMPUTED_BY` names that one. For functions
//! that PostgreSQL lacks, the `Definition` decides types, NULL and volatility, and the row of facts
//! only tells them.
//!
//! Tests run the examples (`serac-sql`, `sessions::reference`). They find callable functions
//! without an entry, entries without a callable function, and functions of the program that are in
//! no table. Functions that only the binder calls are named in `facts/inner_functions.txt`.
//!
//! [`Definition`]: ../../serac_functions/struct.Definition.html

use crate::resolve::Signature;
use crate::types::TypeId;
use std::collections::HashMap;
use std::fmt::Write;
use std::ops::{Range, RangeInclusive};
use std::sync::LazyLock;

/// The kind of a function: of rows, groups or windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// One row.
    Scalar,
    /// A group of rows.
    Aggregate,
    /// A window of rows.
    Window,
    /// A function of one row that PostgreSQL's grammar has and its catalog lacks.
    Syntax,
}

/// The condition under which a function gives the same result for the same arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volatility {
    /// Always.
    Immutable,
    /// Within a statement.
    Stable,
    /// Not even within a statement.
    Volatile,
}

/// The ordered rows of an aggregate: WITHIN GROUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithinGroup {
    /// Whether its direct arguments are a hypothetical row among the others.
    pub is_hypothetical: bool,
    /// The number of its direct arguments.
    pub direct: u8,
}

/// A function, with its types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function<S = Signature> {
    /// Its name.
    pub name: &'static str,
    /// Its number in `pg_proc`; 0 if it has no row there.
    pub number: u32,
    /// Whether PostgreSQL has no such function.
    pub is_own: bool,
    /// Its kind.
    pub kind: FunctionKind,
    /// Its ordered rows, if it takes rows in an order.
    pub within_group: Option<WithinGroup>,
    /// Its volatility.
    pub volatility: Volatility,
    /// Whether it gives NULL if an argument is NULL.
    pub is_strict: bool,
    /// Whether the last argument may come several times.
    pub is_variadic: bool,
    /// The number of last arguments that may be left out.
    pub defaults: usize,
    /// Whether it gives a set of rows.
    pub returns_set: bool,
    /// Its arguments and its value.
    pub signature: S,
}

/// The names of the types of a function that cannot be called. SeracDB may lack these types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeNames {
    /// The types of its arguments.
    pub arguments: Vec<&'static str>,
    /// The type of its value.
    pub result: &'static str,
}

/// The functions of a table, and where those of each name are among them.
struct Table {
    functions: Vec<Function>,
    by_name: HashMap<&'static str, Range<usize>>,
}

impl Table {
    /// A table of rows in the order of names.
    fn new(text: &'static str, is_own: bool) -> Self {
        let functions: Vec<Function> = crate::rows(text).filter_map(|row| function(&row, is_own)).collect();
        let mut by_name: HashMap<_, Range<usize>> = HashMap::new();
        for (at, function) in functions.iter().enumerate() {
            by_name.entry(function.name).or_insert(at..at).end = at + 1;
        }
        Self { functions, by_name }
    }

    fn of_name(&self, name: &str) -> &[Function] {
        self.by_name.get(name).map_or(&[], |range| &self.functions[range.clone()])
    }
}

/// PostgreSQL's functions.
static FUNCTIONS: LazyLock<Table> = LazyLock::new(|| Table::new(include_str!("facts/functions.txt"), false));
/// Others.
static MORE: LazyLock<Table> = LazyLock::new(|| Table::new(include_str!("facts/more_functions.txt"), true));

/// A row of a table of functions, its types by their names.
fn row_of(row: &[&'static str], is_own: bool) -> Function<TypeNames> {
    let number = |word: &str| word.parse::<u32>().expect("the table has numbers");
    let (kind_name, direct) = row[2].split_once('/').unwrap_or((row[2], ""));
    let kind = match kind_name {
        "aggregate" | "ordered-set" | "hypothetical-set" => FunctionKind::Aggregate,
        "window" => FunctionKind::Window,
        "syntax" => FunctionKind::Syntax,
        _ => FunctionKind::Scalar,
    };
    let is_hypothetical = kind_name == "hypothetical-set";
    let result = row[7].strip_prefix('*');
    Function {
        name: row[0],
        number: number(row[1]),
        is_own: is_own && kind != FunctionKind::Syntax,
        kind,
        within_group: direct.parse().ok().map(|direct| WithinGroup { is_hypothetical, direct }),
        volatility: match row[3] {
            "immutable" => Volatility::Immutable,
            "stable" => Volatility::Stable,
            _ => Volatility::Volatile,
        },
        is_strict: row[4] == "strict",
        is_variadic: row[5] == "variadic",
        defaults: number(row[6]) as usize,
        returns_set: result.is_some(),
        signature: TypeNames { arguments: row[8..].to_vec(), result: result.unwrap_or(row[7]) },
    }
}

/// A row of a table of functions; `None` for a function with types that are missing here.
fn function(row: &[&'static str], is_own: bool) -> Option<Function> {
    let of = row_of(row, is_own);
    let arguments = of.signature.arguments.iter().map(|name| TypeId::by_name(name)).collect::<Option<_>>()?;
    let signature = Signature { arguments, result: TypeId::by_name(of.signature.result)? };
    Some(Function {
        signature,
        name: of.name,
        number: of.number,
        is_own: of.is_own,
        kind: of.kind,
        within_group: of.within_group,
        volatility: of.volatility,
        is_strict: of.is_strict,
        is_variadic: of.is_variadic,
        defaults: of.defaults,
        returns_set: of.returns_set,
    })
}

impl Function {
    /// The type of each argument that the last one may stand for; `None` if it stands for one.
    pub fn variadic(&self) -> Option<TypeId> {
        let last = self.signature.arguments.last().filter(|_| self.is_variadic)?;
        Some(match *last {
            TypeId::ANYARRAY => TypeId::ANYELEMENT,
            TypeId::ANYCOMPATIBLEARRAY => TypeId::ANYCOMPATIBLE,
            last => last.element().unwrap_or(last),
        })
    }

    /// Its arguments as PostgreSQL writes them: `text, VARIADIC text[]`.
    pub fn arguments_text(&self) -> String {
        let mut text = String::new();
        let direct = self.within_group.map(|within| usize::from(within.direct));
        for (at, id) in self.signature.arguments.iter().enumerate() {
            let is_last = at + 1 == self.signature.arguments.len();
            let variadic = if self.is_variadic && is_last { "VARIADIC " } else { "" };
            let separator = match at {
                0 if direct == Some(0) => "ORDER BY ",
                0 => "",
                _ if direct == Some(at) => " ORDER BY ",
                _ => ", ",
            };
            write!(text, "{separator}{variadic}{id}").expect("a text takes all");
        }
        match self.within_group {
            // Each direct argument stands for one of the sort keys of the rows.
            Some(within) if within.is_hypothetical => format!("{text} ORDER BY {text}"),
            _ => text,
        }
    }

    /// Its result as PostgreSQL writes it: `SETOF integer`.
    pub fn result_text(&self) -> String {
        let set = if self.returns_set { "SETOF " } else { "" };
        format!("{set}{}", self.signature.result)
    }
}

/// The most arguments that a function may have.
const MOST_ARGUMENTS: usize = 100;

impl Function<TypeNames> {
    /// The numbers of arguments that it takes.
    fn counts(&self) -> RangeInclusive<usize> {
        let all = self.signature.arguments.len();
        all - self.defaults..=if self.is_variadic { MOST_ARGUMENTS } else { all }
    }
}

/// The functions that the table leaves out, by their names.
static OTHERS: LazyLock<HashMap<&'static str, Vec<Function<TypeNames>>>> = LazyLock::new(|| {
    let mut others: HashMap<_, Vec<_>> = HashMap::new();
    for row in crate::rows(include_str!("facts/other_functions.txt")) {
        others.entry(row[0]).or_default().push(row_of(&row, false));
    }
    others
});

/// The names of all numbers.
static NAMES: LazyLock<HashMap<u32, &'static str>> = LazyLock::new(|| {
    let others = left_out().map(|function| (function.number, function.name));
    others.chain(all().map(|function| (function.number, function.name))).filter(|(number, _)| *number > 0).collect()
});

/// Whether PostgreSQL has a function of a name and of this number of arguments that is missing
/// here, because it uses types that are not here or is for internal use.
pub fn is_left_out(name: &str, arguments: usize) -> bool {
    OTHERS.get(name).is_some_and(|others| others.iter().any(|function| function.counts().contains(&arguments)))
}

/// The functions that PostgreSQL has and that cannot be called here.
pub fn left_out() -> impl Iterator<Item = &'static Function<TypeNames>> {
    OTHERS.values().flatten()
}

/// PostgreSQL's functions of a name.
pub fn of_name(name: &str) -> &'static [Function] {
    FUNCTIONS.of_name(name)
}

/// All functions, PostgreSQL's before others.
pub fn all() -> impl Iterator<Item = &'static Function> {
    FUNCTIONS.functions.iter().chain(&MORE.functions)
}

/// The functions with a name, of PostgreSQL and others.
pub fn named(name: &str) -> impl Iterator<Item = &'static Function> {
    FUNCTIONS.of_name(name).iter().chain(MORE.of_name(name))
}

/// The functions that can be called, with a number: the reference has their names.
pub fn callable() -> impl Iterator<Item = &'static Function> {
    all().filter(|function| function.number > 0 && crate::reference::of_function(function.name).is_some())
}

/// The function of a number, if it can be called.
pub fn of_number(number: u32) -> Option<&'static Function> {
    static NUMBERS: LazyLock<HashMap<u32, &'static Function>> =
        LazyLock::new(|| callable().map(|function| (function.number, function)).collect());
    NUMBERS.get(&number).copied()
}

/// The numbers of the functions of a name, those that are left out included.
pub fn numbers_of(name: &str) -> impl Iterator<Item = u32> {
    let here = named(name).map(|function| function.number).filter(|number| *number > 0);
    here.chain(OTHERS.get(name).into_iter().flatten().map(|function| function.number))
}

/// The name of the function with a number, including left-out functions.
pub fn name_of(number: u32) -> Option<&'static str> {
    NAMES.get(&number).copied()
}

/// Whether a function is for the binder, or returns values without a type in SQL.
pub fn is_inner(name: &str) -> bool {
    crate::rows(include_str!("facts/inner_functions.txt")).any(|row| row == [name])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_function() {
        for text in [include_str!("facts/functions.txt"), include_str!("facts/more_functions.txt")] {
            let rows: Vec<_> = crate::rows(text).collect();
            let wrong: Vec<_> = rows.iter().filter(|row| function(row, false).is_none()).collect();
            assert!(wrong.is_empty(), "{wrong:?}");
            assert!(rows.is_sorted_by_key(|row| row[0]), "the rows are not in the order of names");
            assert!(rows.len() > 100, "{}", rows.len());
        }
    }

    #[test]
    fn a_number_is_one_function_s() {
        let mut names = HashMap::new();
        for function in all().filter(|function| function.number > 0) {
            assert_eq!(names.insert(function.number, function.name), None, "{}", function.name);
            // Numbers that PostgreSQL gives are below those of objects that users make.
            assert!(function.number < 16_000 && (!function.is_own || name_of(function.number) == Some(function.name)));
        }
        assert!(MORE.functions.iter().all(|function| of_name(function.name).is_empty()), "PostgreSQL has it");
        assert_eq!((name_of(1397), name_of(42)), (Some("abs"), Some("int4in")));
        assert!(numbers_of("abs").any(|number| number == 1397) && numbers_of("int4in").eq([42]));
    }

    #[test]
    fn signatures_are_written_as_in_postgresql() {
        let text = |number| of_number(number).map(|function| (function.arguments_text(), function.result_text()));
        let of = |arguments: &str, result: &str| Some((arguments.to_owned(), result.to_owned()));
        assert_eq!(text(1397), of("integer", "integer"));
        assert_eq!(text(3058), of("VARIADIC \"any\"", "text"));
        assert_eq!(text(1067), of("integer, integer", "SETOF integer"));
        let median = of_name("percentile_disc").iter().find(|function| function.number == 3972).unwrap();
        assert_eq!(median.arguments_text(), "double precision ORDER BY anyelement");
        assert_eq!(of_name("mode")[0].arguments_text(), "ORDER BY anyelement");
        let rank = of_name("rank").iter().find(|function| function.within_group.is_some()).unwrap();
        assert_eq!(rank.arguments_text(), "VARIADIC \"any\" ORDER BY VARIADIC \"any\"");
        assert_eq!(median.within_group, Some(WithinGroup { is_hypothetical: false, direct: 1 }));
        assert_eq!(of_name("concat_ws")[0].variadic(), Some(TypeId::ANY));
        assert_eq!(of_name("json_extract_path")[0].variadic(), Some(TypeId::TEXT));
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
