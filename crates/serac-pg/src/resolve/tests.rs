//! Compares the rules with PostgreSQL's answers.

use super::*;
use std::collections::HashMap;

/// The answers of PostgreSQL 15, by symbol, left and right operand: the result's type, or `?` for
/// several operators.
fn answers() -> HashMap<(&'static str, &'static str, &'static str), &'static str> {
    let mut answers = HashMap::new();
    for row in crate::rows(include_str!("../facts/resolutions.txt")) {
        for of_result in &row[2..] {
            let (result, rights) = of_result.split_once(':').expect("each result has operands");
            answers.extend(rights.split(',').map(|right| ((row[0], row[1], right), result)));
        }
    }
    answers
}

const TYPES: [&str; 24] = [
    "bool",
    "bytea",
    "name",
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "text",
    "varchar",
    "bpchar",
    "date",
    "time",
    "timetz",
    "timestamp",
    "timestamptz",
    "interval",
    "uuid",
    "json",
    "jsonb",
    "oid",
    "unknown",
    ".",
];

#[test]
fn operators_are_those_that_postgresql_takes() {
    let answers = answers();
    let symbols: std::collections::BTreeSet<&str> = answers.keys().map(|(symbol, ..)| *symbol).collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    for symbol in symbols {
        for left in TYPES {
            for right in TYPES.into_iter().filter(|right| *right != ".") {
                let operands: Vec<TypeId> = [left, right].into_iter().filter_map(TypeId::by_name).collect();
                let ours = match operator(symbol, &operands) {
                    Resolved::One(signature) => polymorphic(signature, &operands).unwrap().result.name(),
                    Resolved::Several => "?",
                    Resolved::None => "-",
                };
                let theirs = answers.get(&(symbol, left, right)).copied().unwrap_or("-");
                // PostgreSQL has these for ranges, geometry and jsonpath, too, which are not among
                // the types.
                let is_other = matches!(symbol, "&&" | "<@" | "@>" | "@@") || (symbol == "#" && left == ".");
                if is_other && [left, right].contains(&"unknown") {
                    continue;
                }
                count += 1;
                if ours != theirs {
                    wrong.push(format!("{left} {symbol} {right}: {ours}, in PostgreSQL {theirs}"));
                }
            }
        }
    }
    assert!(count > 15_000, "{count}");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn common_types_are_those_that_postgresql_finds() {
    use TypeId as T;
    let found = |types: &[TypeId]| common(types);
    assert_eq!(found(&[T::UNKNOWN, T::UNKNOWN]), Ok(T::TEXT));
    assert_eq!(found(&[T::INT4, T::UNKNOWN, T::INT8]), Ok(T::INT8));
    assert_eq!(found(&[T::INT8, T::NUMERIC, T::INT2]), Ok(T::NUMERIC));
    assert_eq!(found(&[T::NUMERIC, T::FLOAT4]), Ok(T::FLOAT4));
    assert_eq!(found(&[T::FLOAT4, T::NUMERIC, T::FLOAT8]), Ok(T::FLOAT8));
    assert_eq!(found(&[T::VARCHAR, T::TEXT]), Ok(T::VARCHAR));
    assert_eq!(found(&[T::TEXT, T::VARCHAR]), Ok(T::TEXT));
    assert_eq!(found(&[T::DATE, T::TIMESTAMP, T::TIMESTAMPTZ]), Ok(T::TIMESTAMPTZ));
    assert_eq!(found(&[T::INT4, T::TEXT]), Err((T::INT4, T::TEXT)));
    assert_eq!(found(&[T::DATE, T::INTERVAL]), Err((T::DATE, T::INTERVAL)));
    assert_eq!(found(&[T::DATE, T::TIME]), Err((T::TIME, T::DATE)));
}

#[test]
fn a_function_is_found_by_its_arguments() {
    use TypeId as T;
    let of = |arguments: &[TypeId], result| Signature { arguments: arguments.to_vec(), result };
    let round = [of(&[T::FLOAT8], T::FLOAT8), of(&[T::NUMERIC], T::NUMERIC)];
    let choose = |given| match function(round.iter().collect(), &[given]) {
        Resolved::One(signature) => Some(signature.result),
        _ => None,
    };
    assert_eq!(choose(T::INT4), Some(T::FLOAT8));
    assert_eq!(choose(T::NUMERIC), Some(T::NUMERIC));
    assert_eq!(choose(T::UNKNOWN), Some(T::FLOAT8));
    assert_eq!(choose(T::TEXT), None);
    let greatest = of(&[T::ANYELEMENT, T::ANYELEMENT], T::ANYELEMENT);
    assert_eq!(function(vec![&greatest], &[T::INT4, T::TEXT]), Resolved::None);
    let chosen = polymorphic(&greatest, &[T::UNKNOWN, T::INT4]).unwrap();
    assert_eq!(chosen, of(&[T::INT4, T::INT4], T::INT4));
}

#[test]
fn arrays_are_of_one_type_with_their_elements() {
    let array = TypeId::INT4.array().unwrap();
    let found = |symbol, operands: &[TypeId]| match operator(symbol, operands) {
        Resolved::One(signature) => polymorphic(signature, operands).map(|real| (real.arguments, real.result)),
        _ => None,
    };
    let wide = TypeId::INT8.array().unwrap();
    assert_eq!(found("||", &[array, TypeId::UNKNOWN]), Some((vec![array, array], array)));
    assert_eq!(found("||", &[array, TypeId::INT8]), Some((vec![wide, TypeId::INT8], wide)));
    assert_eq!(found("||", &[TypeId::INT4, array]), Some((vec![TypeId::INT4, array], array)));
    assert_eq!(found("||", &[array, wide]), Some((vec![wide, wide], wide)));
    assert_eq!(found("=", &[array, TypeId::UNKNOWN]), Some((vec![array, array], TypeId::BOOL)));
    assert_eq!(found("=", &[array, wide]), None);
    assert_eq!(found("||", &[TypeId::TEXT, TypeId::INT4]).unwrap().1, TypeId::TEXT);
}
