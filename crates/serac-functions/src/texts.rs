//! concat and concat_ws, which write values in the form of results. encode and decode, and bits and
//! bytes of BYTEA. abs, which fails if the least number has no positive counterpart.

use super::definition::{Definition, Types};
use crate::sql_result::SqlResult;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BinaryViewBuilder, Int32Array, Int64Array, StringArray, StringViewArray,
    StringViewBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
};
use serac_storage::ColumnType;
use serac_values::SqlError;
use serac_values::assignment::assign;
use serac_values::hex::bytes_of_digits;
use serac_values::text_types::is_text_or_null;
use serac_values::wire::{as_told, wire_type};
use std::sync::Arc;

/// Values as texts; `None` for NULL of no type.
fn told(array: &ArrayRef) -> SqlResult<Option<ArrayRef>> {
    if array.data_type().is_null() {
        return Ok(None);
    }
    let texts = as_told(array, &DataType::Utf8View)?;
    Ok(Some(cast(&texts, &DataType::Utf8View)?))
}

/// Any arguments, as they are.
fn any(given: &[DataType], least: usize) -> Option<Types> {
    (given.len() >= least).then(|| (given.to_vec(), DataType::Utf8View))
}

/// Concatenates the values that are not NULL.
fn concat(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let texts = args.iter().map(told).collect::<SqlResult<Vec<_>>>()?;
    let (mut all, mut text) = (StringViewBuilder::new(), String::new());
    for row in 0..args.first().map_or(1, Array::len) {
        text.clear();
        for part in texts.iter().flatten().filter(|part| part.is_valid(row)) {
            text.push_str(part.as_string_view().value(row));
        }
        all.append_value(&text);
    }
    Ok(Arc::new(all.finish()))
}

/// The same with the first argument between each two.
fn concat_ws(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let separators = told(&args[0])?;
    let texts = args[1..].iter().map(told).collect::<SqlResult<Vec<_>>>()?;
    let (mut all, mut text) = (StringViewBuilder::new(), String::new());
    for row in 0..args[0].len() {
        let Some(separators) = separators.as_ref().filter(|separators| separators.is_valid(row)) else {
            all.append_null();
            continue;
        };
        let separator = separators.as_string_view().value(row);
        text.clear();
        for (at, part) in texts.iter().flatten().filter(|part| part.is_valid(row)).enumerate() {
            text.push_str(if at > 0 { separator } else { "" });
            text.push_str(part.as_string_view().value(row));
        }
        all.append_value(&text);
    }
    Ok(Arc::new(all.finish()))
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
}

/// The format of encode and decode.
#[derive(Clone, Copy)]
enum Format {
    Hex,
    Base64,
    Escape,
}

impl Format {
    fn of_name(name: &str) -> SqlResult<Self> {
        match name.to_ascii_lowercase().as_str() {
            "hex" => Ok(Self::Hex),
            "base64" => Ok(Self::Base64),
            "escape" => Ok(Self::Escape),
            _ => Err(invalid(format!("unrecognized encoding: \"{name}\""))),
        }
    }

    fn encode(self, bytes: &[u8]) -> String {
        /// Characters of a line of base 64.
        const LINE: usize = 76;
        match self {
            Self::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            Self::Base64 => {
                let all = STANDARD.encode(bytes);
                let lines: Vec<&str> =
                    (0..all.len()).step_by(LINE).map(|at| &all[at..all.len().min(at + LINE)]).collect();
                lines.join("\n")
            }
            Self::Escape => {
                let mut text = String::with_capacity(bytes.len());
                for byte in bytes {
                    match byte {
                        b'\\' => text.push_str("\\\\"),
                        0 | 0x80.. => text.push_str(&format!("\\{byte:03o}")),
                        other => text.push(char::from(*other)),
                    }
                }
                text
            }
        }
    }

    fn decode(self, text: &str) -> SqlResult<Vec<u8>> {
        match self {
            Self::Hex => bytes_of_digits(text),
            Self::Base64 => base64_decoded(text),
            Self::Escape => {
                let bytes = match text.strip_prefix("\\x") {
                    // The character does not belong to this format.
                    Some(_) => {
                        return Err(SqlError::new(
                            sqlstate::INVALID_TEXT_REPRESENTATION,
                            "invalid input syntax for type bytea",
                        ));
                    }
                    None => as_bytes(&(Arc::new(StringArray::from(vec![text])) as ArrayRef))?,
                };
                Ok(bytes.value(0).to_vec())
            }
        }
    }
}

/// The bytes of a base 64 text, which may have blanks between its characters.
fn base64_decoded(text: &str) -> SqlResult<Vec<u8>> {
    let (mut bytes, mut bits, mut position, mut end) = (Vec::with_capacity(text.len() / 4 * 3), 0u32, 0, 0);
    for character in text.chars() {
        let value = match character {
            ' ' | '\t' | '\n' | '\r' => continue,
            '=' => {
                // The end comes behind two or three characters of four.
                if end == 0 {
                    end = match position {
                        2 => 1,
                        3 => 2,
                        _ => return Err(invalid("unexpected \"=\" while decoding base64 sequence")),
                    };
                }
                0
            }
            'A'..='Z' => character as u32 - 'A' as u32,
            'a'..='z' => character as u32 - 'a' as u32 + 26,
            '0'..='9' => character as u32 - '0' as u32 + 52,
            '+' => 62,
            '/' => 63,
            other => {
                return Err(invalid(format!("invalid symbol \"{other}\" found while decoding base64 sequence")));
            }
        };
        bits = bits << 6 | value;
        position += 1;
        if position == 4 {
            bytes.push((bits >> 16) as u8);
            if end == 0 || end > 1 {
                bytes.push((bits >> 8) as u8);
            }
            if end == 0 || end > 2 {
                bytes.push(bits as u8);
            }
            (bits, position) = (0, 0);
        }
    }
    match position {
        0 => Ok(bytes),
        _ => {
            Err(invalid("invalid base64 end sequence")
                .explained("The input misses padding, or it is cut off or damaged."))
        }
    }
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// The type for bytes, or for a constant in quotes.
fn bytes_type(given: &DataType) -> Option<DataType> {
    match given {
        given if is_bytes(given) => Some(DataType::BinaryView),
        given if is_text_or_null(given) => Some(DataType::Utf8View),
        _ => None,
    }
}

fn as_bytes(array: &ArrayRef) -> SqlResult<BinaryViewArray> {
    let bytes = assign(array, ColumnType::Binary.into(), "?").map_err(|error| SqlError { detail: None, ..error })?;
    Ok(cast(&bytes, &DataType::BinaryView)?.as_binary_view().clone())
}

fn encode(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let (bytes, formats) = (as_bytes(&args[0])?, args[1].as_string_view());
    let rows = bytes.iter().zip(formats).map(|(bytes, format)| match (bytes, format) {
        (Some(bytes), Some(format)) => Ok(Some(Format::of_name(format)?.encode(bytes))),
        _ => Ok(None),
    });
    Ok(Arc::new(rows.collect::<SqlResult<StringArray>>()?))
}

fn decode(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let mut all = BinaryViewBuilder::new();
    for (text, format) in args[0].as_string_view().iter().zip(args[1].as_string_view()) {
        match (text, format) {
            (Some(text), Some(format)) => all.append_value(Format::of_name(format)?.decode(text)?),
            _ => all.append_null(),
        }
    }
    Ok(Arc::new(all.finish()))
}

/// The place of a byte or a bit, which must be one of `count`.
fn place(number: i64, count: usize) -> SqlResult<usize> {
    let place = usize::try_from(number).ok().filter(|place| *place < count);
    let out_of_range = || {
        SqlError::new(
            sqlstate::ARRAY_SUBSCRIPT_ERROR,
            format!("index {number} out of valid range, 0..{}", count as i64 - 1),
        )
    };
    place.ok_or_else(out_of_range)
}

/// Applies `f` to bytes and a number.
fn with_number(args: &[ArrayRef], f: impl Fn(&[u8], i64) -> SqlResult<i32>) -> SqlResult<ArrayRef> {
    let (bytes, numbers) = (as_bytes(&args[0])?, args[1].as_primitive::<Int64Type>());
    let rows = bytes.iter().zip(numbers).map(|(bytes, number)| bytes.zip(number).map(|(b, n)| f(b, n)).transpose());
    Ok(Arc::new(rows.collect::<SqlResult<Int32Array>>()?))
}

/// Applies `f` to bytes, a position and a new value.
fn with_change(args: &[ArrayRef], f: impl Fn(&mut [u8], i64, i32) -> SqlResult<()>) -> SqlResult<ArrayRef> {
    let bytes = as_bytes(&args[0])?;
    let (numbers, values) = (args[1].as_primitive::<Int64Type>(), args[2].as_primitive::<Int32Type>());
    let mut all = BinaryViewBuilder::new();
    for row in 0..bytes.len() {
        if bytes.is_null(row) || numbers.is_null(row) || values.is_null(row) {
            all.append_null();
            continue;
        }
        let mut changed = bytes.value(row).to_vec();
        f(&mut changed, numbers.value(row), values.value(row))?;
        all.append_value(changed);
    }
    Ok(Arc::new(all.finish()))
}

fn number_types(given: &[DataType]) -> Option<Types> {
    let [bytes, number] = given else { return None };
    let is_number = number.is_integer() || number.is_null();
    Some((vec![bytes_type(bytes).filter(|_| is_number)?, DataType::Int64], DataType::Int32))
}
fn change_types(given: &[DataType]) -> Option<Types> {
    let [bytes, number, value] = given else { return None };
    let are_numbers = [number, value].into_iter().all(|t| t.is_integer() || t.is_null());
    let bytes = bytes_type(bytes).filter(|_| are_numbers)?;
    Some((vec![bytes, DataType::Int64, DataType::Int32], DataType::BinaryView))
}

/// The letter of a number.
///
/// # Errors
/// 22023 and 54000 for a number without a character.
fn chr(number: i32) -> SqlResult<String> {
    match u32::try_from(number) {
        Ok(0) => Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "null character not permitted")),
        Ok(number) => match char::from_u32(number) {
            Some(letter) => Ok(letter.to_string()),
            None if number > u32::from(char::MAX) => Err(SqlError::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!("requested character too large for encoding: {number}"),
            )),
            None => Err(SqlError::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!("requested character not valid for encoding: {number}"),
            )),
        },
        Err(_) => Err(invalid("character number must be positive")),
    }
}

/// The types of the functions that count bytes.
fn lengths(given: &[DataType]) -> Option<Types> {
    match given {
        [bytes] if is_bytes(bytes) => Some((vec![DataType::BinaryView], DataType::Int32)),
        [text] if is_text_or_null(text) => Some((vec![DataType::Utf8View], DataType::Int32)),
        _ => None,
    }
}
/// The bytes of each value, times a number.
fn length(args: &[ArrayRef], factor: usize) -> SqlResult<ArrayRef> {
    let count = |bytes: usize| (bytes * factor) as i32;
    let lengths: Int32Array = match args[0].as_string_view_opt() {
        Some(texts) => texts.iter().map(|text| text.map(|text| count(text.len()))).collect(),
        None => args[0].as_binary_view().iter().map(|bytes| bytes.map(|bytes| count(bytes.len()))).collect(),
    };
    Ok(Arc::new(lengths))
}

fn abs_types(given: &[DataType]) -> Option<Types> {
    let [number] = given else { return None };
    let number = match number {
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        number if number.is_numeric() => number.clone(),
        // A constant in quotes has the type of no column of texts.
        DataType::Utf8 | DataType::Null => DataType::Float64,
        _ => return None,
    };
    Some((vec![number.clone()], number))
}

fn abs(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let number = &args[0];
    let out_of_range = || SqlError::out_of_range(wire_type(number.data_type()));
    Ok(match number.data_type() {
        DataType::Int16 => {
            let numbers = number.as_primitive::<Int16Type>();
            Arc::new(numbers.try_unary::<_, Int16Type, _>(|n| n.checked_abs().ok_or_else(out_of_range))?)
        }
        DataType::Int32 => {
            let numbers = number.as_primitive::<Int32Type>();
            Arc::new(numbers.try_unary::<_, Int32Type, _>(|n| n.checked_abs().ok_or_else(out_of_range))?)
        }
        DataType::Int64 => {
            let numbers = number.as_primitive::<Int64Type>();
            Arc::new(numbers.try_unary::<_, Int64Type, _>(|n| n.checked_abs().ok_or_else(out_of_range))?)
        }
        DataType::Float32 => Arc::new(number.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::abs)),
        DataType::Float64 => Arc::new(number.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::abs)),
        _ => {
            let numbers = number.as_primitive::<Decimal128Type>().unary::<_, Decimal128Type>(i128::abs);
            Arc::new(numbers.with_data_type(number.data_type().clone()))
        }
    })
}

/// overlay (text, new, from, length): the text with a part replaced, which is as long as `new` if
/// its length is not told.
///
/// # Errors
/// 22011 for a part before the text, 22003 for one whose end exceeds INTEGER.
fn overlay(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let (texts, news) = (args[0].as_string_view(), args[1].as_string_view());
    let number = |at: usize, row| args.get(at).map(|numbers| numbers.as_primitive::<Int32Type>().value(row));
    let mut all = StringViewBuilder::new();
    for row in 0..texts.len() {
        if args.iter().any(|argument| argument.is_null(row)) {
            all.append_null();
            continue;
        }
        let (text, new, from) = (texts.value(row), news.value(row), number(2, row).unwrap_or(1));
        if from <= 0 {
            return Err(SqlError::new(sqlstate::SUBSTRING_ERROR, "negative substring length not allowed"));
        }
        let length = number(3, row).unwrap_or_else(|| new.chars().count() as i32);
        let rest = from
            .checked_add(length)
            .ok_or_else(|| SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range"))?;
        // Characters, counted from one, begin at these bytes.
        let place = |character: i32| {
            let before = usize::try_from(character - 1).unwrap_or(0);
            text.char_indices().nth(before).map_or(text.len(), |(at, _)| at)
        };
        all.append_value([&text[..place(from)], new, &text[place(rest.max(1))..]].concat());
    }
    Ok(Arc::new(all.finish()))
}

fn overlay_types(given: &[DataType]) -> Option<Types> {
    let [text, new, numbers @ ..] = given else { return None };
    let is_number = |of: &DataType| of.is_integer() || of.is_null();
    let fits = is_text_or_null(text) && is_text_or_null(new) && matches!(numbers.len(), 1 | 2);
    (fits && numbers.iter().all(is_number)).then(|| {
        let all = [vec![DataType::Utf8View; 2], vec![DataType::Int32; numbers.len()]].concat();
        (all, DataType::Utf8View)
    })
}

/// The last `count` characters; all but the first of them if it is negative. PostgreSQL leaves no
/// character out for the least INTEGER.
fn last_characters(text: &str, count: i32) -> &str {
    let start = match usize::try_from(count) {
        Ok(0) => text.len(),
        Ok(count) => text.char_indices().rev().nth(count - 1).map_or(0, |(at, _)| at),
        Err(_) => {
            let without = count.checked_neg().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            text.char_indices().nth(without).map_or(text.len(), |(at, _)| at)
        }
    };
    &text[start..]
}

fn right(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let rows = args[0].as_string_view().iter().zip(args[1].as_primitive::<Int32Type>());
    let ends = rows.map(|(text, count)| text.zip(count).map(|(text, count)| last_characters(text, count)));
    Ok(Arc::new(ends.collect::<StringViewArray>()))
}

fn right_types(given: &[DataType]) -> Option<Types> {
    let fits = matches!(given, [text, n] if is_text_or_null(text) && (n.is_integer() || n.is_null()));
    fits.then(|| (vec![DataType::Utf8View, DataType::Int32], DataType::Utf8View))
}

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition { name: "right", types: right_types, body: right },
    Definition { name: "overlay", types: overlay_types, body: overlay },
    Definition { name: "concat", types: |given| any(given, 1), body: concat },
    Definition {
        name: "concat_ws",
        types: |given| any(given, 2).filter(|_| is_text_or_null(&given[0])),
        body: concat_ws,
    },
    Definition { name: "abs", types: abs_types, body: abs },
    Definition {
        name: "chr",
        types: |given| match given {
            [number] if number.is_integer() || number.is_null() || *number == DataType::Utf8 => {
                Some((vec![DataType::Int32], DataType::Utf8))
            }
            _ => None,
        },
        body: |args| {
            let letters = args[0].as_primitive::<Int32Type>().iter().map(|number| number.map(chr).transpose());
            Ok(Arc::new(letters.collect::<SqlResult<StringArray>>()?))
        },
    },
    Definition {
        name: "to_hex",
        types: |given| match given {
            [DataType::Int64] => Some((vec![DataType::Int64], DataType::Utf8)),
            [number] if number.is_integer() || number.is_null() => Some((vec![DataType::Int32], DataType::Utf8)),
            _ => None,
        },
        body: |args| {
            let digits: StringArray = match args[0].as_primitive_opt::<Int64Type>() {
                Some(numbers) => numbers.iter().map(|number| number.map(|number| format!("{number:x}"))).collect(),
                None => {
                    let numbers = args[0].as_primitive::<Int32Type>().iter();
                    numbers.map(|number| number.map(|number| format!("{number:x}"))).collect()
                }
            };
            Ok(Arc::new(digits))
        },
    },
    Definition { name: "octet_length", types: |given| lengths(given), body: |args| length(args, 1) },
    Definition { name: "bit_length", types: |given| lengths(given), body: |args| length(args, 8) },
    Definition {
        name: "encode",
        types: |given| match given {
            [bytes, format] if is_text_or_null(format) => {
                Some((vec![bytes_type(bytes)?, DataType::Utf8View], DataType::Utf8))
            }
            _ => None,
        },
        body: encode,
    },
    Definition {
        name: "decode",
        types: |given| {
            let all = given.len() == 2 && given.iter().all(is_text_or_null);
            all.then(|| (vec![DataType::Utf8View; 2], DataType::BinaryView))
        },
        body: decode,
    },
    Definition {
        name: "byteacat",
        types: |given| match given {
            [one, other] => Some((vec![bytes_type(one)?, bytes_type(other)?], DataType::BinaryView)),
            _ => None,
        },
        body: |args| {
            let (one, other) = (as_bytes(&args[0])?, as_bytes(&args[1])?);
            let pairs = one.iter().zip(&other).map(|(one, other)| Some([one?, other?].concat()));
            Ok(Arc::new(pairs.collect::<BinaryViewArray>()))
        },
    },
    Definition {
        name: "get_byte",
        types: number_types,
        body: |args| with_number(args, |bytes, number| Ok(bytes[place(number, bytes.len())?].into())),
    },
    Definition {
        name: "get_bit",
        types: number_types,
        body: |args| {
            with_number(args, |bytes, number| {
                let place = place(number, bytes.len() * 8)?;
                Ok((bytes[place / 8] >> (place % 8) & 1).into())
            })
        },
    },
    Definition {
        name: "set_byte",
        types: change_types,
        body: |args| {
            with_change(args, |bytes, number, value| {
                let place = place(number, bytes.len())?;
                bytes[place] = value as u8;
                Ok(())
            })
        },
    },
    Definition {
        name: "set_bit",
        types: change_types,
        body: |args| {
            with_change(args, |bytes, number, value| {
                let place = place(number, bytes.len() * 8)?;
                if !matches!(value, 0 | 1) {
                    return Err(invalid("new bit must be 0 or 1"));
                }
                let bit = 1 << (place % 8);
                let byte = &mut bytes[place / 8];
                *byte = if value == 1 { *byte | bit } else { *byte & !bit };
                Ok(())
            })
        },
    },
    Definition {
        name: "bit_count",
        types: |given| match given {
            [bytes] => Some((vec![bytes_type(bytes)?], DataType::Int64)),
            _ => None,
        },
        body: |args| {
            let bytes = as_bytes(&args[0])?;
            let count = |bytes: &[u8]| bytes.iter().map(|byte| i64::from(byte.count_ones())).sum::<i64>();
            Ok(Arc::new(bytes.iter().map(|bytes| bytes.map(count)).collect::<Int64Array>()))
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_written_and_read() {
        let long: Vec<u8> = (0..60).collect();
        let base64 = Format::Base64.encode(&long);
        assert_eq!(base64.lines().map(str::len).collect::<Vec<_>>(), [76, 4]);
        assert_eq!(Format::Base64.decode(&base64).unwrap(), long);
        assert_eq!(Format::Base64.decode("AA==").unwrap(), [0]);
        assert_eq!(Format::Base64.decode("AAE=").unwrap(), [0, 1]);
        assert_eq!(Format::Escape.encode(b"a\x00\\\xff"), "a\\000\\\\\\377");
        assert_eq!(Format::Escape.decode("a\\000\\\\\\377").unwrap(), b"a\x00\\\xff");
        assert_eq!(Format::Hex.decode("00 ff").unwrap(), [0, 255]);
        let state = |format: Format, text: &str| format.decode(text).unwrap_err().sqlstate;
        assert_eq!(state(Format::Hex, "0"), sqlstate::INVALID_PARAMETER_VALUE);
        assert_eq!(state(Format::Hex, "0g"), sqlstate::INVALID_PARAMETER_VALUE);
        assert_eq!(state(Format::Base64, "="), sqlstate::INVALID_PARAMETER_VALUE);
        assert_eq!(state(Format::Base64, "AAA"), sqlstate::INVALID_PARAMETER_VALUE);
        assert_eq!(state(Format::Escape, "\\9"), sqlstate::INVALID_TEXT_REPRESENTATION);
    }
}
