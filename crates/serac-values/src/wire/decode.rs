//! Parameters as clients send them: text or binary, of a type that the client has named or of the
//! one that the statement needs.

use super::encode::{EPOCH_DAYS, EPOCH_MICROS, JSONB_VERSION};
use super::types::{CHAR, OID, TEXT, TID, VOID, of_oid};
use crate::assignment::{assign, is_lost_float, parse_bool};
use crate::error::{Result, SqlError};
use crate::time_range::{TIMES, is_date, is_timestamp, time_out_of_range};
use crate::type_names::element_type;
use datafusion::arrow::array::{ArrayRef, StringViewArray};
use datafusion::common::ScalarValue;
use serac_engine::json_text::check;
use serac_engine::values::{OwnedValue, array_of, value_at};
use serac_engine::{EngineError, Infinity};
use serac_numeric::Numeric;
use serac_pg::char_text::char_of_text;
use serac_pg::tid_text::{tid_of_bytes, tid_of_text};
use serac_storage::{ColumnType, Value};
use std::sync::Arc;

/// A parameter on the wire.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// `None` for NULL.
    pub bytes: Option<&'a [u8]>,
    /// Whether the bytes are the value's binary form.
    pub binary: bool,
    /// The number of the type that the client has named; 0 for an unnamed one.
    pub oid: u32,
}

fn invalid(bytes: &[u8], column_type: ColumnType) -> SqlError {
    let text = String::from_utf8_lossy(bytes);
    let message = format!("invalid input syntax for type {}: \"{text}\"", name(column_type));
    SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message)
}
fn malformed(column_type: ColumnType) -> SqlError {
    SqlError::new(
        sqlstate::INVALID_BINARY_REPRESENTATION,
        format!("incorrect binary data format for type {}", name(column_type)),
    )
}

fn name(column_type: ColumnType) -> String {
    serac_engine::catalog::definition::SqlType::from(column_type).to_string()
}

/// The bytes as text.
///
/// # Errors
/// 22021 if they are no UTF-8, or have a NUL, which no text of SQL has. The message says which
/// bytes are wrong.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    let wrong = match std::str::from_utf8(bytes) {
        Ok(text) if !bytes.contains(&0) => return Ok(text),
        Ok(_) => &[0][..],
        Err(error) => {
            let rest = &bytes[error.valid_up_to()..];
            let length = match rest[0] {
                0xC0..=0xDF => 2,
                0xE0..=0xEF => 3,
                0xF0..=0xF7 => 4,
                _ => 1,
            };
            &rest[..rest.len().min(length)]
        }
    };
    let shown: Vec<String> = wrong.iter().map(|byte| format!("0x{byte:02x}")).collect();
    Err(SqlError::new(
        sqlstate::CHARACTER_NOT_IN_REPERTOIRE,
        format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
    ))
}

/// The parameter as a value of `wanted`, for a statement of the point path. `None` if there is no
/// conversion to the type here: the other path has more.
///
/// # Errors
/// SQLSTATE of class 22 for bytes that are no value of the type.
pub fn value(given: Given<'_>, wanted: ColumnType) -> Result<Option<OwnedValue>> {
    let Some(bytes) = given.bytes else { return Ok(Some(OwnedValue::Fixed(Value::Null))) };
    let named = if given.oid == 0 || (given.oid == TEXT && !given.binary) { None } else { of_oid(given.oid) };
    let from = named.unwrap_or(wanted);
    if let (ColumnType::Decimal { .. } | ColumnType::Numeric, ColumnType::Numeric) = (from, wanted) {
        return Ok(Some(OwnedValue::Bytes(number(bytes, given.binary)?.to_stored().into())));
    }
    if let (ColumnType::Decimal { .. } | ColumnType::Numeric, ColumnType::Decimal { precision, scale }) = (from, wanted)
    {
        // The column cannot hold the value exactly. The other path compares it with the column, and
        // rounds it in assignments.
        let number = number(bytes, given.binary).ok();
        return Ok(number.as_ref().and_then(decimal).and_then(|number| number.of_type(precision, scale)));
    }
    let exact = match (from, wanted) {
        _ if from == wanted => wanted,
        (
            ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64,
            ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64,
        ) => from,
        _ => return Ok(None),
    };
    let read = match (named, given.oid, given.binary) {
        (Some(_), OID, binary) => OwnedValue::Fixed(Value::Int64(object_number(bytes, binary)?.into())),
        (.., true) => of_binary(bytes, exact)?,
        (.., false) => of_text(bytes, exact)?,
    };
    let number = match read.as_value() {
        Value::Int16(v) => i64::from(v),
        Value::Int32(v) => i64::from(v),
        Value::Int64(v) => v,
        _ => return Ok(Some(read)),
    };
    let value = match wanted {
        ColumnType::Int16 => i16::try_from(number).ok().map(Value::Int16),
        ColumnType::Int32 => i32::try_from(number).ok().map(Value::Int32),
        ColumnType::Int64 => Some(Value::Int64(number)),
        _ => return Ok(Some(read)),
    };
    Ok(value.map(OwnedValue::Fixed))
}

/// A decimal, of at most 38 digits, as a client has written it.
struct Digits {
    unscaled: i128,
    scale: i8,
}

/// Digits that a decimal has at the most.
const MOST_DIGITS: u8 = 38;

impl Digits {
    /// As a value of a decimal type; `None` if it is not exactly one.
    fn of_type(&self, precision: u8, scale: i8) -> Option<OwnedValue> {
        let factor = 10i128.checked_pow(scale.abs_diff(self.scale).into())?;
        let number = match scale >= self.scale {
            true => self.unscaled.checked_mul(factor)?,
            false => (self.unscaled % factor == 0).then(|| self.unscaled / factor)?,
        };
        let fits = number.unsigned_abs() < 10u128.pow(precision.into());
        let value = if precision <= 18 { Value::Int64(number as i64) } else { Value::Int128(number) };
        fits.then_some(OwnedValue::Fixed(value))
    }

    fn scalar(&self) -> ScalarValue {
        let digits = self.unscaled.unsigned_abs().checked_ilog10().map_or(1, |last| last + 1);
        let precision = (digits as u8).max(self.scale as u8).max(1);
        ScalarValue::Decimal128(Some(self.unscaled), precision, self.scale)
    }
}

/// The number in a parameter.
///
/// # Errors
/// 22P02 or 22P03 for invalid bytes.
fn number(bytes: &[u8], binary: bool) -> Result<Numeric> {
    Ok(if binary { Numeric::of_wire(bytes)? } else { utf8(bytes)?.parse()? })
}

/// A number as a decimal; `None` if it has more digits, or is not finite.
fn decimal(number: &Numeric) -> Option<Digits> {
    let finite = number.finite()?;
    let (unscaled, scale) = (finite.unscaled().small()?, i8::try_from(finite.scale()).ok()?);
    let fits = unscaled.unsigned_abs() < 10u128.pow(MOST_DIGITS.into()) && scale <= MOST_DIGITS as i8;
    fits.then_some(Digits { unscaled, scale })
}

/// Elements of an array of numbers.
///
/// # Errors
/// 22P02 or 22P03 for an element that is no number.
pub(super) fn numbers(elements: &[Option<&[u8]>], binary: bool) -> Result<Vec<ScalarValue>> {
    let stored = |bytes: &[u8]| number(bytes, binary).map(|number| number.to_stored());
    elements.iter().map(|bytes| Ok(ScalarValue::LargeBinary(bytes.map(stored).transpose()?))).collect()
}

/// Whether a parameter is a text of times or intervals: its meaning depends on the session's
/// settings.
pub fn is_text_of_time(given: Given<'_>, inferred: Option<ColumnType>) -> bool {
    let element = element_type(given.oid).and_then(of_oid);
    let column_type = element.or(of_oid(given.oid)).filter(|known| *known != ColumnType::Utf8).or(inferred);
    let is_time = matches!(
        column_type,
        Some(ColumnType::Date | ColumnType::Time | ColumnType::Timestamp { .. } | ColumnType::Interval)
    );
    is_time && !given.binary && given.bytes.is_some()
}

/// A parameter as its text, which the planner converts.
///
/// # Errors
/// 22021 for an invalid text.
pub fn text(given: Given<'_>) -> Result<ScalarValue> {
    Ok(ScalarValue::Utf8(given.bytes.map(|bytes| utf8(bytes).map(str::to_owned)).transpose()?))
}

/// The parameter for a statement of the other path: a value of the named type, or a text that the
/// planner converts.
///
/// # Errors
/// SQLSTATE of class 22 for bytes that are no value of the type.
pub fn scalar(given: Given<'_>, inferred: Option<ColumnType>) -> Result<ScalarValue> {
    if let Some(array) = super::array::parameter(given)? {
        return Ok(array);
    }
    if given.oid == VOID {
        return Ok(ScalarValue::Utf8View(given.bytes.map(|_| String::new())));
    }
    if given.oid == TID {
        let bytes = given.bytes.map(|bytes| tid(bytes, given.binary)).transpose()?;
        return Ok(ScalarValue::FixedSizeBinary(6, bytes));
    }
    let Some(column_type) = of_oid(given.oid).or(inferred) else {
        return match given.bytes {
            None => Ok(ScalarValue::Null),
            Some(_) if given.binary => {
                let message = format!("binary values of the type with the number {} are not supported", given.oid);
                Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
            }
            Some(bytes) => Ok(ScalarValue::Utf8(Some(utf8(bytes)?.into()))),
        };
    };
    if given.oid == CHAR {
        let byte = given.bytes.map(|bytes| char_byte(bytes, given.binary)).transpose()?;
        return Ok(ScalarValue::FixedSizeBinary(1, byte.map(|byte| vec![byte])));
    }
    if given.oid == OID {
        let number = given.bytes.map(|bytes| object_number(bytes, given.binary)).transpose()?;
        return Ok(ScalarValue::UInt32(number));
    }
    // A number has the digits that the client has given it.
    if let (ColumnType::Decimal { .. } | ColumnType::Numeric, Some(bytes)) = (column_type, given.bytes) {
        let number = number(bytes, given.binary)?;
        let free = || ScalarValue::LargeBinary(Some(number.to_stored()));
        return Ok(decimal(&number).map_or_else(free, |number| number.scalar()));
    }
    let value = match given.bytes {
        None => OwnedValue::Fixed(Value::Null),
        Some(bytes) if given.binary => of_binary(bytes, column_type)?,
        Some(bytes) => of_text(bytes, column_type)?,
    };
    ScalarValue::try_from_array(&array_of(&[value], column_type), 0)
        .map_err(|error| SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, error.to_string()))
}

/// The byte of a `"char"`.
fn char_byte(bytes: &[u8], binary: bool) -> Result<u8> {
    match (binary, bytes) {
        (false, text) => Ok(char_of_text(utf8(text)?)),
        (true, [byte]) => Ok(*byte),
        (true, _) => Err(SqlError::new(
            sqlstate::INVALID_BINARY_REPRESENTATION,
            "incorrect binary data format for type \"char\"",
        )),
    }
}

/// The six bytes of a place.
fn tid(bytes: &[u8], binary: bool) -> Result<Vec<u8>> {
    if binary {
        let wrong =
            || SqlError::new(sqlstate::INVALID_BINARY_REPRESENTATION, "incorrect binary data format for type tid");
        return tid_of_bytes(bytes).map(|_| bytes.to_vec()).ok_or_else(wrong);
    }
    place_of_text(utf8(bytes)?).map(Vec::from)
}

/// The bytes of the place that a text names.
///
/// # Errors
/// 22P02.
pub fn place_of_text(text: &str) -> Result<[u8; 6]> {
    let message = || format!("invalid input syntax for type tid: \"{text}\"");
    tid_of_text(text).ok_or_else(|| SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message()))
}

/// The number of an object: 32 bits without a sign, of which a text may write the upper half as
/// negative numbers.
fn object_number(bytes: &[u8], binary: bool) -> Result<u32> {
    if binary {
        let bytes = bytes.try_into();
        return bytes.map(u32::from_be_bytes).map_err(|_| {
            SqlError::new(sqlstate::INVALID_BINARY_REPRESENTATION, "incorrect binary data format for type oid")
        });
    }
    object_number_of_text(utf8(bytes)?)
}

/// The number of an object that a text stands for.
///
/// # Errors
/// 22P02 for a text that is no number, 22003 for one of more than 32 bits.
pub fn object_number_of_text(text: &str) -> Result<u32> {
    let number = without_blanks(text).parse::<i64>().map_err(|error| match error.kind() {
        std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => object_out_of_range(text),
        _ => SqlError::new(
            sqlstate::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type oid: \"{text}\""),
        ),
    })?;
    let signed = || i32::try_from(number).map(i32::cast_unsigned);
    u32::try_from(number).or_else(|_| signed()).map_err(|_| object_out_of_range(text))
}

fn object_out_of_range(text: &str) -> SqlError {
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, format!("value \"{text}\" is out of range for type oid"))
}

/// The text without the blanks around it that PostgreSQL skips: those of ASCII alone.
fn without_blanks(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r'])
}

/// The value that a text stands for.
fn of_text(bytes: &[u8], column_type: ColumnType) -> Result<OwnedValue> {
    let text = utf8(bytes)?;
    let mut trimmed = without_blanks(text);
    // A date may have a time zone, which means nothing.
    if column_type == ColumnType::Date
        && let Some((date, zone)) = trimmed.split_once(' ')
        && zone.starts_with(['+', '-'])
    {
        trimmed = date;
    }
    let wrong = || invalid(bytes, column_type);
    let number = || {
        trimmed.parse::<i64>().map_err(|error| match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                out_of_range(trimmed, column_type)
            }
            _ => wrong(),
        })
    };
    Ok(OwnedValue::Fixed(match column_type {
        ColumnType::Utf8 => return Ok(OwnedValue::Bytes(bytes.into())),
        ColumnType::JsonText => {
            check(text).map_err(EngineError::from)?;
            return Ok(OwnedValue::Bytes(bytes.into()));
        }
        ColumnType::Boolean => Value::Bool(parse_bool(trimmed).ok_or_else(wrong)?),
        ColumnType::Int64 => Value::Int64(number()?),
        ColumnType::Int32 => Value::Int32(i32::try_from(number()?).map_err(|_| out_of_range(trimmed, column_type))?),
        ColumnType::Int16 => Value::Int16(i16::try_from(number()?).map_err(|_| out_of_range(trimmed, column_type))?),
        ColumnType::Float64 => match trimmed.parse().map_err(|_| wrong())? {
            float if is_lost_float(trimmed, float) => return Err(out_of_range(trimmed, column_type)),
            float => Value::Float64(float),
        },
        ColumnType::Float32 => match trimmed.parse().map_err(|_| wrong())? {
            float if is_lost_float(trimmed, f64::from(float)) => return Err(out_of_range(trimmed, column_type)),
            float => Value::Float32(float),
        },
        _ => {
            // Blanks are bytes, too.
            let read = if column_type == ColumnType::Binary { text } else { trimmed };
            let texts: ArrayRef = Arc::new(StringViewArray::from(vec![read]));
            let values = assign(&texts, column_type.into(), "?")?;
            return Ok(OwnedValue::from(&value_at(&values, 0, column_type)));
        }
    }))
}

fn out_of_range(text: &str, column_type: ColumnType) -> SqlError {
    SqlError::new(
        sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("value \"{text}\" is out of range for type {}", name(column_type)),
    )
}

/// The value with this binary form.
pub fn of_binary(bytes: &[u8], column_type: ColumnType) -> Result<OwnedValue> {
    fn exactly<const N: usize>(bytes: &[u8], column_type: ColumnType) -> Result<[u8; N]> {
        bytes.try_into().map_err(|_| malformed(column_type))
    }
    Ok(OwnedValue::Fixed(match column_type {
        ColumnType::Utf8 => {
            utf8(bytes)?;
            return Ok(OwnedValue::Bytes(bytes.into()));
        }
        ColumnType::Json => {
            let cut = || SqlError::new(sqlstate::PROTOCOL_VIOLATION, "insufficient data left in message");
            let (version, text) = bytes.split_first().ok_or_else(cut)?;
            if *version != JSONB_VERSION {
                let message = format!("unsupported jsonb version number {version}");
                return Err(SqlError::new(sqlstate::INTERNAL_ERROR, message));
            }
            return of_text(text, column_type);
        }
        ColumnType::JsonText => return of_text(bytes, column_type),
        ColumnType::Binary => return Ok(OwnedValue::Bytes(bytes.into())),
        ColumnType::Boolean => Value::Bool(exactly::<1>(bytes, column_type)?[0] != 0),
        ColumnType::Int16 => Value::Int16(i16::from_be_bytes(exactly(bytes, column_type)?)),
        ColumnType::Int32 => Value::Int32(i32::from_be_bytes(exactly(bytes, column_type)?)),
        ColumnType::Int64 => Value::Int64(i64::from_be_bytes(exactly(bytes, column_type)?)),
        ColumnType::Float32 => Value::Float32(f32::from_be_bytes(exactly(bytes, column_type)?)),
        ColumnType::Float64 => Value::Float64(f64::from_be_bytes(exactly(bytes, column_type)?)),
        ColumnType::Date => {
            let days = i32::from_be_bytes(exactly(bytes, column_type)?);
            let days = if Infinity::of_days(days).is_some() { Some(days) } else { days.checked_add(EPOCH_DAYS) };
            let days = days.filter(|days| is_date(*days));
            Value::Int32(days.ok_or_else(|| time_out_of_range("date"))?)
        }
        ColumnType::Time => {
            let micros = Some(i64::from_be_bytes(exactly(bytes, column_type)?)).filter(|micros| TIMES.contains(micros));
            Value::Int64(micros.ok_or_else(|| time_out_of_range("time"))?)
        }
        ColumnType::Timestamp { .. } => {
            let micros = i64::from_be_bytes(exactly(bytes, column_type)?);
            let is_infinite = Infinity::of_micros(micros).is_some();
            let micros = if is_infinite { Some(micros) } else { micros.checked_add(EPOCH_MICROS) };
            let micros = micros.filter(|micros| is_timestamp(*micros));
            Value::Int64(micros.ok_or_else(|| time_out_of_range("timestamp"))?)
        }
        ColumnType::Interval => {
            let bytes: [u8; 16] = exactly(bytes, column_type)?;
            let micros = i64::from_be_bytes(bytes[..8].try_into().expect("8 bytes"));
            let days = i32::from_be_bytes(bytes[8..12].try_into().expect("4 bytes"));
            let months = i32::from_be_bytes(bytes[12..].try_into().expect("4 bytes"));
            let nanos = micros.checked_mul(1_000).ok_or_else(|| time_out_of_range("interval"))?;
            Value::Int128(i128::from(nanos) << 64 | i128::from(days as u32) << 32 | i128::from(months as u32))
        }
        ColumnType::Uuid => Value::Int128(i128::from_le_bytes(exactly(bytes, column_type)?)),
        ColumnType::Decimal { precision, scale } => numeric(bytes, precision, scale, column_type)?,
        ColumnType::Numeric => return Ok(OwnedValue::Bytes(number(bytes, true)?.to_stored().into())),
    }))
}

/// A number in groups of four digits, rounded to `scale` digits behind the point.
fn numeric(bytes: &[u8], precision: u8, scale: i8, column_type: ColumnType) -> Result<Value<'static>> {
    let mut fields = bytes.chunks_exact(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]]));
    let mut field = || fields.next().ok_or_else(|| malformed(column_type));
    let (groups, weight, sign, _) = (field()?, field()?, field()? as u16, field()?);
    if groups < 0 || bytes.len() != 8 + 2 * groups as usize || !matches!(sign, 0 | 0x4000) {
        let not_a_number = matches!(sign, 0xC000 | 0xD000 | 0xF000);
        let unsupported =
            || SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "NaN and infinity are not supported in numeric values");
        return Err(if not_a_number { unsupported() } else { malformed(column_type) });
    }
    let overflow = || SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow");
    let (mut unscaled, mut rounds_up) = (0i128, false);
    for (i, group) in fields.enumerate() {
        if !(0..10_000).contains(&group) {
            return Err(malformed(column_type));
        }
        let exponent = (i32::from(weight) - i as i32) * 4 + i32::from(scale);
        let shifted = match (group, u32::try_from(exponent)) {
            // Zero at any place is zero.
            (0, _) => Some(0),
            (_, Ok(exponent)) => 10i128.checked_pow(exponent).and_then(|unit| unit.checked_mul(group.into())),
            // The group has the last digit that is kept, or the first that is not.
            (_, Err(_)) if exponent >= -4 => {
                let unit = 10i16.pow(exponent.unsigned_abs() - 1);
                rounds_up = group / unit % 10 >= 5;
                Some(i128::from(group / unit / 10))
            }
            (_, Err(_)) => Some(0),
        };
        unscaled = shifted.and_then(|shifted| unscaled.checked_add(shifted)).ok_or_else(overflow)?;
    }
    let rounded = unscaled + i128::from(rounds_up);
    if rounded >= 10i128.pow(precision.into()) {
        return Err(overflow());
    }
    let signed = if sign == 0 { rounded } else { -rounded };
    Ok(if precision <= 18 { Value::Int64(signed as i64) } else { Value::Int128(signed) })
}

#[cfg(test)]
mod tests {
    use super::super::encode::{write_binary, write_text};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_that_are_none_are_refused_with_their_bytes() {
        let refused = |bytes: &[u8]| utf8(bytes).unwrap_err().message.rsplit_once(": ").unwrap().1.to_owned();
        assert_eq!(utf8("aü".as_bytes()).unwrap(), "aü");
        assert_eq!(refused(b"a\xff"), "0xff");
        assert_eq!(refused(b"\xe2\x82a"), "0xe2 0x82 0x61");
        assert_eq!(refused(b"\xe2"), "0xe2");
        assert_eq!(refused(b"a\0b"), "0x00");
    }

    const TYPES: [ColumnType; 18] = [
        ColumnType::Boolean,
        ColumnType::Int16,
        ColumnType::Int32,
        ColumnType::Int64,
        ColumnType::Float32,
        ColumnType::Float64,
        ColumnType::Decimal { precision: 12, scale: 2 },
        ColumnType::Decimal { precision: 38, scale: 9 },
        ColumnType::Date,
        ColumnType::Time,
        ColumnType::Timestamp { utc: false },
        ColumnType::Timestamp { utc: true },
        ColumnType::Interval,
        ColumnType::Utf8,
        ColumnType::Binary,
        ColumnType::Uuid,
        ColumnType::Json,
        ColumnType::JsonText,
    ];

    #[test]
    fn blanks_around_a_value_are_skipped_unless_they_belong_to_it() {
        let of = |written: &str, column_type| of_text(written.as_bytes(), column_type);
        let bytes = |value: &[u8]| OwnedValue::Bytes(value.into());
        for kept in [" 1 ", "\t\n", "a\u{a0}", "\\x31"] {
            let wanted = if kept == "\\x31" { "1" } else { kept };
            assert_eq!(of(kept, ColumnType::Binary).unwrap(), bytes(wanted.as_bytes()), "{kept:?}");
            assert_eq!(of(kept, ColumnType::Utf8).unwrap(), bytes(kept.as_bytes()), "{kept:?}");
        }
        assert_eq!(of(" \t\n\x0b\x0c\r7 ", ColumnType::Int32).unwrap(), OwnedValue::Fixed(Value::Int32(7)));
        assert_eq!(of(" t ", ColumnType::Boolean).unwrap(), OwnedValue::Fixed(Value::Bool(true)));
        for other in [ColumnType::Int32, ColumnType::Boolean, ColumnType::Float64, ColumnType::Interval] {
            assert!(of("1\u{a0}", other).is_err(), "{other:?}");
        }
        assert!(object_number_of_text("1\u{a0}").is_err());
    }

    #[test]
    fn decimals_keep_their_digits() {
        let text = |text: &'static str| Given { bytes: Some(text.as_bytes()), binary: false, oid: 0 };
        let two_digits = ColumnType::Decimal { precision: 10, scale: 2 };
        let of = |written| value(text(written), two_digits).unwrap();
        assert_eq!(of("1.5"), Some(OwnedValue::Fixed(Value::Int64(150))));
        assert_eq!(of("-1.500"), Some(OwnedValue::Fixed(Value::Int64(-150))));
        // The column does not hold them.
        assert_eq!(of("1.005"), None);
        assert_eq!(of("123456789012.5"), None);
        let planned = |written| scalar(text(written), Some(two_digits)).unwrap();
        assert_eq!(planned("1.005"), ScalarValue::Decimal128(Some(1005), 4, 3));
        assert_eq!(planned("0.005"), ScalarValue::Decimal128(Some(5), 3, 3));
        assert_eq!(planned("123456789012"), ScalarValue::Decimal128(Some(123_456_789_012), 12, 0));
        // 12.005: two groups, of weight 0.
        let fields: [i16; 6] = [2, 0, 0, 3, 12, 50];
        let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_be_bytes()).collect();
        let binary = Given { bytes: Some(&bytes), binary: true, oid: 1700 };
        assert_eq!(value(binary, two_digits).unwrap(), None);
        assert_eq!(scalar(binary, None).unwrap(), ScalarValue::Decimal128(Some(12_005), 5, 3));
        // The zeros that the display scale tells are digits, too: 0.00, and 99990000.0000.
        for (fields, wanted) in [
            (vec![0, 0, 0, 2], ScalarValue::Decimal128(Some(0), 2, 2)),
            (vec![1, 1, 0, 4, 9_999], ScalarValue::Decimal128(Some(999_900_000_000), 12, 4)),
        ] {
            let bytes: Vec<u8> = fields.iter().flat_map(|field: &i16| field.to_be_bytes()).collect();
            assert_eq!(scalar(Given { bytes: Some(&bytes), ..binary }, None).unwrap(), wanted);
        }
        assert!(value(text("x"), two_digits).unwrap().is_none());
        assert_eq!(scalar(text("x"), Some(two_digits)).unwrap_err().sqlstate, sqlstate::INVALID_TEXT_REPRESENTATION);
    }

    /// A value of the type, made of its bits.
    fn value_of(column_type: ColumnType, bits: u128) -> OwnedValue {
        let signed = bits as i128;
        OwnedValue::Fixed(match column_type {
            ColumnType::Boolean => Value::Bool(bits & 1 > 0),
            ColumnType::Int16 => Value::Int16(bits as i16),
            ColumnType::Int32 => Value::Int32(bits as i32),
            ColumnType::Int64 => Value::Int64(bits as i64),
            ColumnType::Float32 => Value::Float32((bits as i32) as f32 / 1_024.0),
            ColumnType::Float64 => Value::Float64((bits as i64) as f64 / 1_048_576.0),
            ColumnType::Decimal { precision: precision @ ..=18, .. } => {
                Value::Int64((signed % 10i128.pow(precision.into())) as i64)
            }
            ColumnType::Decimal { precision, .. } => Value::Int128(signed % 10i128.pow(precision.into())),
            // The years 1 to 5000 or so.
            ColumnType::Date => Value::Int32((bits % 1_800_000) as i32 - 700_000),
            ColumnType::Time => Value::Int64((bits % 86_400_000_000) as i64),
            ColumnType::Timestamp { .. } => {
                Value::Int64((bits % 100_000_000_000_000_000) as i64 - 50_000_000_000_000_000)
            }
            ColumnType::Interval => {
                let (months, days) = (bits as i16 as i32, (bits >> 16) as i16 as i32);
                let nanos = i64::from((bits >> 32) as i32) * 1_000;
                Value::Int128(i128::from(nanos) << 64 | i128::from(days as u32) << 32 | i128::from(months as u32))
            }
            ColumnType::Uuid => Value::Int128(signed),
            ColumnType::Utf8 => return OwnedValue::Bytes(format!("ü{bits}").into_bytes().into()),
            ColumnType::Json => return OwnedValue::Bytes(format!("{{\"ü\": {bits}}}").into_bytes().into()),
            ColumnType::JsonText => return OwnedValue::Bytes(format!(" {{\"ü\" :{bits} }}").into_bytes().into()),
            ColumnType::Binary => return OwnedValue::Bytes(bits.to_be_bytes().into()),
            ColumnType::Numeric => {
                let number = Numeric::of_decimal(signed >> 2, (bits % 38) as i8);
                return OwnedValue::Bytes(number.to_stored().into());
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(which in 0..TYPES.len(), bits in any::<u128>(), binary in any::<bool>()) {
            let column_type = TYPES[which];
            let original = value_of(column_type, bits);
            let mut bytes = Vec::new();
            let write = if binary { write_binary } else { write_text };
            write(&mut bytes, original.as_value(), column_type);
            let given = Given { bytes: Some(&bytes), binary, oid: 0 };
            let read = value(given, column_type).unwrap().unwrap();
            prop_assert_eq!(read, original, "{}", String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40), binary in any::<bool>()) {
            for column_type in TYPES {
                let _ = value(Given { bytes: Some(&bytes), binary, oid: 0 }, column_type);
                let _ = scalar(Given { bytes: Some(&bytes), binary, oid: super::super::types::oid(column_type) }, None);
            }
        }
    }

    #[test]
    fn binary_numerics_that_a_column_does_not_hold_are_for_the_other_path() {
        let two = ColumnType::Decimal { precision: 12, scale: 2 };
        let cases = [(12_345, 3, None), (-12_340, 3, Some(-1_234)), (4_999_999, 9, None), (99, 0, Some(9_900))];
        for (digits, scale, wanted) in cases {
            let mut bytes = Vec::new();
            write_binary(&mut bytes, Value::Int128(digits), ColumnType::Decimal { precision: 38, scale });
            let read = value(Given { bytes: Some(&bytes), binary: true, oid: 0 }, two).unwrap();
            let wanted = wanted.map(|wanted| OwnedValue::Fixed(Value::Int64(wanted)));
            assert_eq!(read, wanted, "{digits} of scale {scale}");
        }
    }

    #[test]
    fn integers_become_those_that_the_statement_needs() {
        let given = |bytes: &'static [u8], oid: u32| Given { bytes: Some(bytes), binary: true, oid };
        let seven = value(given(&[0, 0, 0, 7], 23), ColumnType::Int64).unwrap();
        assert_eq!(seven, Some(OwnedValue::Fixed(Value::Int64(7))));
        assert_eq!(value(given(&[0, 1, 0, 0], 23), ColumnType::Int16).unwrap(), None);
        assert_eq!(value(given(&[0; 8], 701), ColumnType::Int64).unwrap(), None);
        assert!(value(given(&[0; 3], 23), ColumnType::Int64).is_err());
        let text = Given { bytes: Some(b"99999999999"), binary: false, oid: 0 };
        assert_eq!(value(text, ColumnType::Int32).unwrap_err().sqlstate, sqlstate::NUMERIC_VALUE_OUT_OF_RANGE);
    }
}
