//! jsonb_key (a): bytes in PostgreSQL's order of documents, equal for equal ones.
//!
//! Types come in the order null, string, number, truth value, array, object. The shorter one of two
//! arrays or objects is the lesser one. If the lengths are equal, the first elements, or keys with
//! their values, that differ decide. An array comes behind a document of another type, unless the
//! array is empty.
//!
//! | part | its bytes |
//! |---|---|
//! | any | its type's place in the order |
//! | string | its own, with 255 behind each zero byte, and two zero bytes at the end |
//! | number | 0 below zero, 1 for zero, 2 above it; the count of whole digits, the digits, those of the fraction without zeros behind them, a zero byte; all but the first are inverted below zero |
//! | truth value | 0 or 1 |
//! | array, object | the count of parts, and these |

use super::documents::{document, documents, of_document};
use crate::definition::Definition;
use datafusion::arrow::array::{ArrayRef, BinaryBuilder};
use datafusion::arrow::datatypes::DataType;
use serac_engine::json::Json;
use std::sync::Arc;

fn string_key(string: &str, key: &mut Vec<u8>) {
    for byte in string.bytes() {
        key.push(byte);
        if byte == 0 {
            key.push(u8::MAX);
        }
    }
    key.extend([0, 0]);
}

/// The key of a number by its digits, which have no exponent.
fn number_key(number: &str, key: &mut Vec<u8>) {
    let (is_negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    if whole.is_empty() && fraction.is_empty() {
        return key.push(1);
    }
    key.push(if is_negative { 0 } else { 2 });
    let start = key.len();
    count_key(whole.len(), key);
    key.extend(whole.bytes().chain(fraction.bytes()));
    key.push(0);
    if is_negative {
        key[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

fn count_key(count: usize, key: &mut Vec<u8>) {
    key.extend((count as u64).to_be_bytes());
}

/// The key of a part of a document.
fn part_key(part: &Json, key: &mut Vec<u8>) {
    match part {
        Json::Null => key.push(1),
        Json::String(string) => {
            key.push(2);
            string_key(string, key);
        }
        Json::Number(number) => {
            key.push(3);
            number_key(number, key);
        }
        Json::Bool(truth) => key.extend([4, u8::from(*truth)]),
        Json::Array(elements) => {
            key.push(5);
            count_key(elements.len(), key);
            elements.iter().for_each(|element| part_key(element, key));
        }
        Json::Object(members) => {
            key.push(6);
            count_key(members.len(), key);
            for (name, value) in members {
                string_key(name, key);
                part_key(value, key);
            }
        }
    }
}

/// The key of a whole document.
pub(crate) fn whole_key(document: &Json, key: &mut Vec<u8>) {
    match document {
        Json::Array(elements) if elements.is_empty() => key.push(0),
        other => part_key(other, key),
    }
}

pub(super) static DEFINITIONS: &[Definition] = &[Definition {
    name: "jsonb_key",
    types: |given| of_document(given, DataType::Binary),
    body: |args: &[ArrayRef]| {
        let (mut keys, mut key) = (BinaryBuilder::new(), Vec::new());
        for text in documents(&args[0]).iter() {
            let Some(text) = text else {
                keys.append_null();
                continue;
            };
            key.clear();
            whole_key(&document(text)?, &mut key);
            keys.append_value(&key);
        }
        Ok(Arc::new(keys.finish()))
    },
}];

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
            "\"ab\"",
            "\"b\"",
            "-10",
            "-1.5",
            "-1.25",
            "-1",
            "-0.5",
            "0",
            "0.10",
            "0.11",
            "1.5",
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
        let key = |text: &str| {
            let mut key = Vec::new();
            whole_key(&document(text).unwrap(), &mut key);
            key
        };
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                assert_eq!(key(one).cmp(&key(other)), at.cmp(&other_at), "{one} {other}");
            }
        }
        assert_eq!(key("[1.0]"), key("[1.00]"));
        assert_eq!(key("-0"), key("0.0"));
        assert_eq!(key("[1.50, 10, {\"a\": -0.0}]"), key("[1.5, 10.0, {\"a\": 0}]"));
    }
}
