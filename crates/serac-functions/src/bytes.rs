//! Functions of BYTEA that share their names with those of texts in PostgreSQL: position, substr,
//! overlay and the trimming ones. Also convert_to and convert_from, between texts and bytes.

use super::definition::{Definition, Types};
use crate::sql_result::SqlResult;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BinaryViewBuilder, Int32Array, StringViewArray,
};
use datafusion::arrow::datatypes::{DataType, Int32Type};
use serac_values::SqlError;
use serac_values::text_types::is_text_or_null;
use serac_values::wire::utf8;
use std::sync::Arc;

const BYTES: DataType = DataType::BinaryView;

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::BinaryView) || data_type.is_null()
}

/// Bytes, others, and numbers: `bbn`, of which the last may be left out down to `least`.
fn types(given: &[DataType], letters: &str, least: usize, result: DataType) -> Option<Types> {
    let is_such = |(of, letter): (&DataType, u8)| match letter {
        b'b' => is_bytes(of),
        b't' => is_text_or_null(of),
        _ => of.is_integer() || of.is_null(),
    };
    let wanted = |letter: u8| match letter {
        b'b' => BYTES,
        b't' => DataType::Utf8View,
        _ => DataType::Int32,
    };
    let fits = (least..=letters.len()).contains(&given.len()) && given.iter().zip(letters.bytes()).all(is_such);
    fits.then(|| (letters.bytes().take(given.len()).map(wanted).collect(), result))
}

/// Whether all arguments have a value in a row.
fn is_there(args: &[ArrayRef], row: usize) -> bool {
    args.iter().all(|argument| argument.is_valid(row))
}

fn bytes(args: &[ArrayRef], at: usize, row: usize) -> &[u8] {
    args[at].as_binary_view().value(row)
}

fn number(args: &[ArrayRef], at: usize, row: usize) -> Option<i64> {
    args.get(at).map(|numbers| numbers.as_primitive::<Int32Type>().value(row).into())
}

/// Bytes for each row without a NULL argument.
fn each(args: &[ArrayRef], of: impl Fn(usize) -> SqlResult<Vec<u8>>) -> SqlResult<ArrayRef> {
    let mut all = BinaryViewBuilder::new();
    for row in 0..args[0].len() {
        match is_there(args, row) {
            true => all.append_value(of(row)?),
            false => all.append_null(),
        }
    }
    Ok(Arc::new(all.finish()))
}

/// The bytes from a position on, counted from one, with a length; without a length, all behind it.
fn part(of: &[u8], from: i64, length: Option<i64>) -> SqlResult<&[u8]> {
    if length.is_some_and(|length| length < 0) {
        return Err(SqlError::new(sqlstate::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let most = of.len() as i64;
    let end = length.map_or(most, |length| (from - 1).saturating_add(length).clamp(0, most));
    let start = (from - 1).clamp(0, end);
    Ok(&of[start as usize..end as usize])
}

fn overlaid(of: &[u8], new: &[u8], from: i64, length: i64) -> SqlResult<Vec<u8>> {
    if from <= 0 {
        return Err(SqlError::new(sqlstate::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let rest = from.saturating_add(length);
    if i32::try_from(rest).is_err() {
        return Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range"));
    }
    Ok([part(of, 1, Some(from - 1))?, new, part(of, rest, None)?].concat())
}

/// The position of the first byte of a part, from one; zero if it is not there.
fn position(of: &[u8], part: &[u8]) -> i32 {
    match part.len() {
        0 => 1,
        length => of.windows(length).position(|window| window == part).map_or(0, |at| at as i32 + 1),
    }
}

fn trimmed<'b>(mut of: &'b [u8], set: &[u8], (start, end): (bool, bool)) -> &'b [u8] {
    while let ([first, rest @ ..], true) = (of, start)
        && set.contains(first)
    {
        of = rest;
    }
    while let ([rest @ .., last], true) = (of, end)
        && set.contains(last)
    {
        of = rest;
    }
    of
}

fn trim(args: &[ArrayRef], sides: (bool, bool)) -> SqlResult<ArrayRef> {
    each(args, |row| Ok(trimmed(bytes(args, 0, row), bytes(args, 1, row), sides).to_vec()))
}

/// Checks that `name` is a name of UTF-8, the only encoding of SeracDB.
fn check_encoding(name: &str) -> SqlResult<()> {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    match letters.to_ascii_lowercase().as_str() {
        "utf8" | "unicode" => Ok(()),
        _ => Err(SqlError::unsupported(format!("the encoding \"{name}\""))),
    }
}

fn convert_from(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let (values, encodings): (&BinaryViewArray, &StringViewArray) =
        (args[0].as_binary_view(), args[1].as_string_view());
    let text = |(value, encoding): (Option<&[u8]>, Option<&str>)| match (value, encoding) {
        (Some(value), Some(encoding)) => {
            check_encoding(encoding)?;
            Ok(Some(utf8(value)?.to_owned()))
        }
        _ => Ok(None),
    };
    Ok(Arc::new(values.iter().zip(encodings).map(text).collect::<SqlResult<StringViewArray>>()?))
}

fn convert_to(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let (texts, encodings) = (args[0].as_string_view(), args[1].as_string_view());
    each(args, |row| {
        check_encoding(encodings.value(row))?;
        Ok(texts.value(row).as_bytes().to_vec())
    })
}

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "bytea_position",
        types: |given| types(given, "bb", 2, DataType::Int32),
        body: |args| {
            let one = |row| is_there(args, row).then(|| position(bytes(args, 0, row), bytes(args, 1, row)));
            Ok(Arc::new((0..args[0].len()).map(one).collect::<Int32Array>()))
        },
    },
    Definition {
        name: "bytea_substr",
        types: |given| types(given, "bnn", 2, BYTES),
        body: |args| {
            let from = |row| number(args, 1, row).unwrap_or(1);
            each(args, |row| Ok(part(bytes(args, 0, row), from(row), number(args, 2, row))?.to_vec()))
        },
    },
    Definition {
        name: "bytea_overlay",
        types: |given| types(given, "bbnn", 3, BYTES),
        body: |args| {
            each(args, |row| {
                let new = bytes(args, 1, row);
                let length = number(args, 3, row).unwrap_or(new.len() as i64);
                overlaid(bytes(args, 0, row), new, number(args, 2, row).unwrap_or(1), length)
            })
        },
    },
    Definition {
        name: "bytea_btrim",
        types: |given| types(given, "bb", 2, BYTES),
        body: |args| trim(args, (true, true)),
    },
    Definition {
        name: "bytea_ltrim",
        types: |given| types(given, "bb", 2, BYTES),
        body: |args| trim(args, (true, false)),
    },
    Definition {
        name: "bytea_rtrim",
        types: |given| types(given, "bb", 2, BYTES),
        body: |args| trim(args, (false, true)),
    },
    Definition { name: "convert_from", types: |given| types(given, "bt", 2, DataType::Utf8View), body: convert_from },
    Definition { name: "convert_to", types: |given| types(given, "tt", 2, BYTES), body: convert_to },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_from_one() {
        let text = |part: SqlResult<&[u8]>| String::from_utf8(part.unwrap().to_vec()).unwrap();
        assert_eq!(text(part(b"abcdef", 2, Some(3))), "bcd");
        assert_eq!(text(part(b"abcdef", -1, Some(3))), "a");
        assert_eq!(text(part(b"abcdef", 7, None)), "");
        assert_eq!(text(part(b"abcdef", 5, Some(i64::from(i32::MAX)))), "ef");
        assert!(part(b"abcdef", 1, Some(-1)).is_err());
        assert_eq!(overlaid(b"abcdef", b"XY", 3, 2).unwrap(), b"abXYef");
        assert_eq!(overlaid(b"abcdef", b"XY", 3, 0).unwrap(), b"abXYcdef");
        assert_eq!((position(b"abcabc", b"ca"), position(b"abc", b""), position(b"abc", b"x")), (3, 1, 0));
        assert_eq!(trimmed(b"xxaxx", b"x", (true, false)), b"axx");
    }
}
