//! jsonb_cmp (a, b): -1, 0 or 1, as PostgreSQL orders documents.
//!
//! Types come in the order null, string, number, truth value, array, object. Of arrays and of
//! objects the shorter one is the lesser one; of those of one length, the first elements, or keys
//! with their values, that differ decide. An array comes behind a document that is none, unless it
//! is empty. jsonb_key (a): one document for all that are equal.

use super::{JSON, changed, document, documents, is_document, of_document};
use crate::definition::Definition;
use datafusion::arrow::array::{ArrayRef, Int32Array};
use datafusion::arrow::datatypes::DataType;
use serac_engine::json::Json;
use serac_values::SqlError;
use std::cmp::Ordering;
use std::sync::Arc;

/// Numbers as documents write them, without exponents.
fn numbers(one: &str, other: &str) -> Ordering {
    let parts = |number: &str| {
        let (is_negative, digits) = match number.strip_prefix('-') {
            Some(digits) => (true, digits.to_owned()),
            None => (false, number.to_owned()),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
        let (whole, fraction) = (whole.trim_start_matches('0').to_owned(), fraction.trim_end_matches('0').to_owned());
        (is_negative && !(whole.is_empty() && fraction.is_empty()), whole, fraction)
    };
    let ((minus, whole, fraction), (other_minus, other_whole, other_fraction)) = (parts(one), parts(other));
    let by_size = whole.len().cmp(&other_whole.len()).then(whole.cmp(&other_whole)).then(fraction.cmp(&other_fraction));
    match (minus, other_minus) {
        (false, false) => by_size,
        (true, true) => by_size.reverse(),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    }
}

fn rank(json: &Json) -> u8 {
    match json {
        Json::Null => 0,
        Json::String(_) => 1,
        Json::Number(_) => 2,
        Json::Bool(_) => 3,
        Json::Array(_) => 4,
        Json::Object(_) => 5,
    }
}

/// Parts of documents.
fn compare(one: &Json, other: &Json) -> Ordering {
    fn first(orders: impl Iterator<Item = Ordering>) -> Ordering {
        let mut orders = orders;
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
    match (one, other) {
        (Json::String(one), Json::String(other)) => one.cmp(other),
        (Json::Number(one), Json::Number(other)) => numbers(one, other),
        (Json::Bool(one), Json::Bool(other)) => one.cmp(other),
        (Json::Array(one), Json::Array(other)) => {
            let length = one.len().cmp(&other.len());
            length.then_with(|| first(one.iter().zip(other).map(|(one, other)| compare(one, other))))
        }
        (Json::Object(one), Json::Object(other)) => {
            let length = one.len().cmp(&other.len());
            let pair = |((key, value), (other_key, other_value)): (&(String, Json), &(String, Json))| {
                key.cmp(other_key).then_with(|| compare(value, other_value))
            };
            length.then_with(|| first(one.iter().zip(other).map(pair)))
        }
        (one, other) => rank(one).cmp(&rank(other)),
    }
}

/// A document of which all that are equal have the same text.
fn keyed(json: Json) -> Json {
    match json {
        Json::Number(digits) => {
            let shortest = match digits.contains('.') {
                true => digits.trim_end_matches('0').trim_end_matches('.'),
                false => &digits,
            };
            Json::Number(if shortest == "-0" { "0" } else { shortest }.to_owned())
        }
        Json::Array(elements) => Json::Array(elements.into_iter().map(keyed).collect()),
        Json::Object(members) => Json::Object(members.into_iter().map(|(key, value)| (key, keyed(value))).collect()),
        other => other,
    }
}

/// Whole documents.
fn order(one: &Json, other: &Json) -> Ordering {
    // One that is neither an array nor an object counts as an array with one element.
    let length = |json: &Json| match json {
        Json::Array(elements) => elements.len(),
        _ => 1,
    };
    match (one, other) {
        (Json::Array(_), Json::Array(_)) | (Json::Object(_), _) | (_, Json::Object(_)) => compare(one, other),
        (Json::Array(_), _) => length(one).cmp(&1).then(Ordering::Greater),
        (_, Json::Array(_)) => 1.cmp(&length(other)).then(Ordering::Less),
        _ => compare(one, other),
    }
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "jsonb_cmp",
        types: |given| match given {
            [one, other] if is_document(one) && is_document(other) => Some((vec![JSON; 2], DataType::Int32)),
            _ => None,
        },
        body: |args: &[ArrayRef]| {
            let pairs = documents(&args[0]).iter().zip(documents(&args[1]));
            let orders = pairs.map(|pair| match pair {
                (Some(one), Some(other)) if one == other => Ok(Some(0)),
                (Some(one), Some(other)) => Ok(Some(order(&document(one)?, &document(other)?) as i32)),
                _ => Ok(None),
            });
            Ok(Arc::new(orders.collect::<Result<Int32Array, SqlError>>()?))
        },
    },
    Definition {
        name: "jsonb_key",
        types: |given| of_document(given, JSON),
        body: |args: &[ArrayRef]| changed(&args[0], |document, _| Ok(Some(keyed(document)))),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// In PostgreSQL's order.
    #[test]
    fn documents_are_ordered_as_in_postgresql() {
        let sorted = [
            "[]",
            "null",
            "\"\"",
            "\"a\"",
            "\"b\"",
            "-1.5",
            "-1",
            "0",
            "0.10",
            "2",
            "10",
            "false",
            "true",
            "[null]",
            "[1]",
            "[[]]",
            "[{}]",
            "[1, 1]",
            "[1, 2]",
            "{}",
            "{\"b\": 1}",
            "{\"b\": 2}",
            "{\"c\": 0}",
            "{\"a\": 1, \"b\": 1}",
        ];
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                let found = order(&document(one).unwrap(), &document(other).unwrap());
                assert_eq!(found, at.cmp(&other_at), "{one} {other}");
            }
        }
        assert_eq!(order(&document("[1.0]").unwrap(), &document("[1.00]").unwrap()), Ordering::Equal);
        assert_eq!(order(&document("-0").unwrap(), &document("0.0").unwrap()), Ordering::Equal);
        let key = |text| keyed(document(text).unwrap()).to_string();
        assert_eq!(key("[1.50, 10, {\"a\": -0.0}]"), key("[1.5, 10.0, {\"a\": 0}]"));
    }
}
