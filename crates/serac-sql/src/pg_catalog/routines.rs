//! The rows of `pg_proc`, `pg_operator`, `pg_cast` and `pg_aggregate` about the objects of every
//! database, from the registry (`serac_pg`).

use super::image::{CATALOG_NAMESPACE, PG_OPERATOR, PG_PROC};
use super::layout::{Cell, Rows};
use crate::identifiers::{CATALOG_SCHEMA, quote_ident};
use crate::pg_catalog::scope::SUPERUSER;
use serac_pg::functions::{Function, FunctionKind, TypeNames, Volatility};
use serac_pg::{CastContext, CastMethod, casts, functions, operators, reference};
use serac_values::type_names;
use std::collections::HashSet;
use std::sync::LazyLock;

/// The functions of access methods and of arrays.
const OF_METHODS: [&str; 6] =
    ["heap_tableam_handler", "bthandler", "array_in", "array_out", "array_recv", "array_send"];

/// PostgreSQL's estimate of the rows that a set-returning function gives.
const ROWS_OF_SETS: f32 = 1_000.0;

/// The numbers of the types of a function.
struct Types {
    arguments: Vec<u32>,
    result: u32,
    /// The type of each of the arguments that the last stands for; 0 if there is one of it.
    variadic: u32,
}

/// A row of `pg_proc`.
fn add<S>(rows: &mut Rows, function: &Function<S>, types: Types) {
    let kind = match function.kind {
        FunctionKind::Aggregate => "a",
        FunctionKind::Window => "w",
        FunctionKind::Scalar | FunctionKind::Syntax => "f",
    };
    let volatility = match function.volatility {
        Volatility::Immutable => "i",
        Volatility::Stable => "s",
        Volatility::Volatile => "v",
    };
    rows.add([
        ("oid", function.number.into()),
        ("proname", function.name.into()),
        ("pronamespace", CATALOG_NAMESPACE.into()),
        ("proowner", SUPERUSER.into()),
        ("prolang", 12.into()),
        ("procost", Cell::Float(1.0)),
        ("prorows", Cell::Float(if function.returns_set { ROWS_OF_SETS } else { 0.0 })),
        ("provariadic", types.variadic.into()),
        ("prokind", kind.into()),
        ("proisstrict", function.is_strict.into()),
        ("proretset", function.returns_set.into()),
        ("provolatile", volatility.into()),
        ("proparallel", "s".into()),
        ("pronargs", types.arguments.len().into()),
        ("pronargdefaults", function.defaults.into()),
        ("prorettype", types.result.into()),
        ("proargtypes", types.arguments.into()),
        ("prosrc", function.name.into()),
    ]);
}

/// The functions that can be called, and those that types, operators and casts are made of.
pub(super) fn functions(rows: &mut Rows) {
    for function in functions::callable() {
        let arguments = function.signature.arguments.iter().map(|id| id.0).collect();
        let variadic = function.variadic().map_or(0, |id| id.0);
        add(rows, function, Types { arguments, result: function.signature.result.0, variadic });
    }
    for function in PARTS.iter() {
        let number = |name: &str| match name.strip_prefix('_') {
            Some(element) => type_names::named(&format!("{element}[]")),
            None => type_names::named(name),
        };
        let arguments = function.signature.arguments.iter().map(|name| number(name)).collect();
        add(rows, function, Types { arguments, result: number(function.signature.result), variadic: 0 });
    }
}

/// Functions that only the rows of other system tables call.
static PARTS: LazyLock<Vec<&'static Function<TypeNames>>> = LazyLock::new(|| {
    let types = type_names::TYPES.iter();
    let of_types = types.flat_map(|t| [t.input, t.output, t.receive, t.send, t.modifier_input, t.modifier_output]);
    let estimators = operators::callable().flat_map(|operator| operator.estimators);
    let named: HashSet<&str> = of_types.chain(estimators).chain(OF_METHODS).collect();
    let numbers =
        operators::callable().map(|operator| operator.function).chain(casts::callable().map(|cast| cast.function));
    let numbers: HashSet<u32> = numbers.filter(|number| functions::of_number(*number).is_none()).collect();
    let is_part = |f: &&Function<TypeNames>| numbers.contains(&f.number) || named.contains(f.name);
    let mut parts: Vec<_> = functions::left_out().filter(is_part).collect();
    parts.sort_unstable_by_key(|function| function.number);
    parts
});

/// The row of an aggregate beside the one in `pg_proc`: there are no functions for its single
/// steps.
pub(super) fn aggregates(rows: &mut Rows) {
    for function in functions::callable().filter(|function| function.kind == FunctionKind::Aggregate) {
        let kind = match function.within_group {
            None => "n",
            Some(within) if within.is_hypothetical => "h",
            Some(_) => "o",
        };
        rows.add([
            ("aggfnoid", function.number.into()),
            ("aggkind", kind.into()),
            ("aggnumdirectargs", function.within_group.map_or(0, |within| i16::from(within.direct)).into()),
            ("aggfinalmodify", "r".into()),
            ("aggmfinalmodify", "r".into()),
        ]);
    }
}

pub(super) fn operators(rows: &mut Rows) {
    for operator in operators::callable() {
        let (left, right) = match operator.signature.arguments[..] {
            [left, right] => (left.0, right.0),
            [right] => (0, right.0),
            _ => continue,
        };
        let [restriction, join] = operator.estimators;
        rows.add([
            ("oid", operator.number.into()),
            ("oprname", operator.symbol.into()),
            ("oprnamespace", CATALOG_NAMESPACE.into()),
            ("oprowner", SUPERUSER.into()),
            ("oprkind", if left == 0 { "l" } else { "b" }.into()),
            ("oprcanmerge", operator.merges.into()),
            ("oprcanhash", operator.hashes.into()),
            ("oprleft", left.into()),
            ("oprright", right.into()),
            ("oprresult", operator.signature.result.0.into()),
            ("oprcom", operator.commutator.into()),
            ("oprnegate", operator.negator.into()),
            ("oprcode", operator.function.into()),
            ("oprrest", restriction.into()),
            ("oprjoin", join.into()),
        ]);
    }
}

pub(super) fn casts(rows: &mut Rows) {
    for cast in casts::callable() {
        let context = match cast.context {
            CastContext::Implicit => "i",
            CastContext::Assignment => "a",
            CastContext::Explicit => "e",
        };
        let method = match cast.method {
            CastMethod::Relabel => "b",
            CastMethod::Function => "f",
            CastMethod::Text => "i",
        };
        rows.add([
            ("oid", cast.number.into()),
            ("castsource", cast.from.0.into()),
            ("casttarget", cast.to.0.into()),
            ("castfunc", cast.function.into()),
            ("castcontext", context.into()),
            ("castmethod", method.into()),
        ]);
    }
}

/// The number of the only function of PostgreSQL's with a name, or of the first one; 0 without one.
pub(super) fn number_of(name: &str) -> u32 {
    functions::numbers_of(name).next().unwrap_or(0)
}

/// The name of a function of a number, with its schema if other functions have it, too.
pub(super) fn name_of(number: u32) -> Option<String> {
    let name = functions::name_of(number)?;
    let is_alone = functions::numbers_of(name).all(|other| other == number);
    let quoted = quote_ident(name);
    Some(if is_alone { quoted } else { format!("{CATALOG_SCHEMA}.{quoted}") })
}

/// The registry's descriptions of functions and operators, as comments on them.
pub(super) fn descriptions(rows: &mut Rows) {
    let mut add = |class: u32, number: u32, entry: Option<&reference::Entry>| {
        if let Some(entry) = entry {
            let text = entry.text.into();
            rows.add([("objoid", number.into()), ("classoid", class.into()), ("description", text)]);
        }
    };
    functions::callable().for_each(|function| add(PG_PROC, function.number, reference::of_function(function.name)));
    operators::callable().for_each(|operator| add(PG_OPERATOR, operator.number, reference::of_operator(operator)));
}

/// The description of the function or the operator with a number, by the system table that it is
/// in.
pub(super) fn description(class: &str, number: u32) -> Option<&'static str> {
    let entry = match class {
        "pg_proc" => functions::of_number(number).and_then(|function| reference::of_function(function.name)),
        "pg_operator" => operators::all().iter().find(|of| of.number == number).and_then(reference::of_operator),
        _ => None,
    };
    entry.map(|entry| entry.text)
}
