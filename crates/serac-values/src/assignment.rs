//! Assignment of values to columns.

use crate::error::{Result, SqlError};
use crate::free_numbers::as_numbers;
use crate::hex::bytes_of_digits;
use crate::text_types::{is_text, is_text_or_null};
use crate::texts_as_intervals::interval as read_interval;
use crate::texts_as_times::read as read_times;
use crate::time_range::{is_conversion_of_times, times_as};
use crate::type_names::name_of;
use crate::wire::as_told;
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, FixedSizeBinaryBuilder, IntervalMonthDayNanoArray,
    PrimitiveArray, StringViewArray,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType as ArrowType, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimeUnit,
};
use datafusion::arrow::util::display::FormatOptions;
use serac_engine::EngineError;
use serac_engine::catalog::definition::SqlType;
use serac_engine::json::normal_documents;
use serac_engine::json_text::check_documents;
use serac_pg::uuid_text::uuid_of_text;
use serac_storage::ColumnType;
use std::sync::Arc;

/// Bytes in texts: `\x00ff`, or letters with backslashes, each before another backslash or three
/// octal digits.
///
/// # Errors
/// 22023 for characters that are no hexadecimal digits, 22P02 for a wrong escape after a backslash.
fn parse_bytea(text: &str) -> Result<Vec<u8>> {
    let Some(hex) = text.strip_prefix("\\x") else {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let [first, behind @ ..] = rest {
            let (byte, behind) = match (first, behind) {
                (b'\\', [b'\\', behind @ ..]) => (b'\\', behind),
                (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                    ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), behind)
                }
                (b'\\', _) => {
                    return Err(SqlError::new(
                        sqlstate::INVALID_TEXT_REPRESENTATION,
                        "invalid input syntax for type bytea",
                    ));
                }
                (first, behind) => (*first, behind),
            };
            bytes.push(byte);
            rest = behind;
        }
        return Ok(bytes);
    };
    bytes_of_digits(hex)
}

/// A truth value as texts have it.
pub fn parse_bool(text: &str) -> Option<bool> {
    let word = text.trim_matches(|c: char| c.is_ascii_whitespace()).to_ascii_lowercase();
    let begins = |whole: &str, least: usize| word.len() >= least && whole.starts_with(&word);
    match word.as_str() {
        "1" => Some(true),
        "0" => Some(false),
        _ if begins("true", 1) || begins("yes", 1) || word == "on" => Some(true),
        _ if begins("false", 1) || begins("no", 1) || begins("off", 2) => Some(false),
        _ => None,
    }
}

/// Texts as integers of a type.
///
/// # Errors
/// 22P02 for a text that is no integer, 22003 for an integer out of the type's range.
fn integers<T: ArrowPrimitiveType<Native: std::str::FromStr>>(
    texts: &StringViewArray,
    sql_type: SqlType,
) -> Result<ArrayRef> {
    let name = sql_type.to_string().to_lowercase();
    let one = |text: &str| {
        let word = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(SqlError::new(
                sqlstate::INVALID_TEXT_REPRESENTATION,
                format!("invalid input syntax for type {name}: \"{text}\""),
            ));
        }
        let out_of_range = || {
            SqlError::new(
                sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
                format!("value \"{text}\" is out of range for type {name}"),
            )
        };
        word.parse().map_err(|_| out_of_range())
    };
    let values = texts.iter().map(|text| text.map(one).transpose());
    Ok(Arc::new(values.collect::<Result<PrimitiveArray<T>>>()?))
}

/// Texts as truth values.
///
/// # Errors
/// 22P02.
fn booleans(texts: &StringViewArray) -> Result<ArrayRef> {
    let invalid = |text: &str| {
        SqlError::new(
            sqlstate::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type boolean: \"{text}\""),
        )
    };
    let one = |text: &str| parse_bool(text).ok_or_else(|| invalid(text));
    let values = texts.iter().map(|text| text.map(one).transpose());
    Ok(Arc::new(values.collect::<Result<BooleanArray>>()?))
}

/// Texts as intervals.
///
/// # Errors
/// The error of a text.
fn intervals(texts: &StringViewArray) -> Result<ArrayRef> {
    let values = texts.iter().map(|text| text.map(read_interval).transpose());
    Ok(Arc::new(values.collect::<Result<IntervalMonthDayNanoArray>>()?))
}

/// Texts as documents: those of JSONB in normal form.
fn documents(array: &ArrayRef, sql_type: SqlType, column: &str) -> Result<ArrayRef> {
    if !is_text_or_null(array.data_type()) {
        let given = name_of(array.data_type());
        let message = format!("column \"{column}\" is of type {sql_type} but expression is of type {given}");
        return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message));
    }
    let texts = cast_with_options(array, &ArrowType::LargeUtf8, &CastOptions::default())?;
    if sql_type.column_type == ColumnType::JsonText {
        check_documents(&texts).map_err(EngineError::from)?;
        return Ok(texts);
    }
    Ok(normal_documents(&texts).map_err(EngineError::from)?)
}

/// Refuses to assign values of a type to a column of another if PostgreSQL has no cast of
/// assignment (`pg_cast.castcontext` `a` or `i`, and from every type to text).
///
/// # Errors
/// 42804.
pub fn check_assignment(given: &ArrowType, sql_type: SqlType, column: &str) -> Result<()> {
    use ColumnType::{
        Binary, Boolean, Date, Decimal, Float32, Float64, Int16, Int32, Int64, Interval, Json, JsonText, Numeric,
    };
    use ColumnType::{Time, Timestamp, Utf8, Uuid};
    let is_assigned = match sql_type.column_type {
        // Everything is written as a text.
        Utf8 => true,
        _ if given.is_null() => true,
        Int16 | Int32 | Int64 | Float32 | Float64 | Decimal { .. } | Numeric => {
            given.is_numeric() || *given == ArrowType::LargeBinary
        }
        Boolean => *given == ArrowType::Boolean,
        Date => matches!(given, ArrowType::Date32 | ArrowType::Date64 | ArrowType::Timestamp(..)),
        Timestamp { .. } => matches!(given, ArrowType::Date32 | ArrowType::Date64 | ArrowType::Timestamp(..)),
        Time => matches!(
            given,
            ArrowType::Time32(_) | ArrowType::Time64(_) | ArrowType::Timestamp(..) | ArrowType::Interval(_)
        ),
        Interval => matches!(
            given,
            ArrowType::Interval(_) | ArrowType::Duration(_) | ArrowType::Time32(_) | ArrowType::Time64(_)
        ),
        Binary => matches!(given, ArrowType::Binary | ArrowType::BinaryView | ArrowType::FixedSizeBinary(_)),
        Uuid => matches!(given, ArrowType::FixedSizeBinary(16)),
        Json | JsonText => *given == ArrowType::LargeUtf8,
    };
    if is_assigned {
        return Ok(());
    }
    let given = name_of(given);
    let wanted = match sql_type.column_type {
        JsonText => sql_type.to_string(),
        other => name_of(&other.arrow()),
    };
    let message = format!("column \"{column}\" is of type {wanted} but expression is of type {given}");
    Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message).named(column))
}

/// The column type in which values of an Arrow type are stored (CREATE TABLE AS, and record batches
/// for a new table). Large texts, which are documents only in results, are stored as texts.
///
/// # Errors
/// 0A000 for values that no column has.
pub fn stored_type(data_type: &ArrowType) -> Result<SqlType> {
    use ArrowType as Arrow;
    let column_type = match data_type {
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Null => ColumnType::Utf8,
        Arrow::Binary | Arrow::LargeBinary | Arrow::FixedSizeBinary(0..=15 | 17..) => ColumnType::Binary,
        Arrow::Int8 | Arrow::UInt8 => ColumnType::Int16,
        Arrow::UInt16 => ColumnType::Int32,
        Arrow::UInt32 => ColumnType::Int64,
        Arrow::UInt64 => ColumnType::Decimal { precision: 20, scale: 0 },
        Arrow::Float16 => ColumnType::Float32,
        Arrow::Decimal32(precision, scale)
        | Arrow::Decimal64(precision, scale)
        | Arrow::Decimal128(precision, scale)
        | Arrow::Decimal256(precision, scale) => stored_decimal(*precision, *scale),
        Arrow::Date64 | Arrow::Timestamp(_, None) => ColumnType::Timestamp { utc: false },
        Arrow::Timestamp(_, Some(_)) => ColumnType::Timestamp { utc: true },
        Arrow::Time32(_) | Arrow::Time64(_) => ColumnType::Time,
        Arrow::Interval(_) | Arrow::Duration(_) => ColumnType::Interval,
        Arrow::Dictionary(_, value) => return stored_type(value),
        Arrow::RunEndEncoded(_, value) => return stored_type(value.data_type()),
        other => ColumnType::from_arrow(other)
            .ok_or_else(|| SqlError::unsupported(format!("storing values of the Arrow type {other}")))?,
    };
    Ok(column_type.into())
}

/// The type of a column for Arrow's decimals, whose scale may be below 0, and which may have more
/// digits than a column of decimals, or none where the type comes from elsewhere.
fn stored_decimal(precision: u8, scale: i8) -> ColumnType {
    let whole_digits = i16::from(precision) - i16::from(scale);
    let scale = scale.max(0);
    match u8::try_from(whole_digits.max(0) + i16::from(scale)) {
        Ok(precision @ 1..=DECIMAL128_MAX_PRECISION) => ColumnType::Decimal { precision, scale },
        _ => ColumnType::Numeric,
    }
}

/// The type, of those that numbers are read from, that has all values of one of Arrow's numbers.
fn number_type(given: &ArrowType) -> ArrowType {
    match given {
        ArrowType::Int8 | ArrowType::UInt8 | ArrowType::UInt16 | ArrowType::UInt32 => ArrowType::Int64,
        ArrowType::UInt64 => ArrowType::Decimal128(20, 0),
        ArrowType::Float16 => ArrowType::Float32,
        ArrowType::Decimal32(precision, scale) | ArrowType::Decimal64(precision, scale) => {
            ArrowType::Decimal128(*precision, *scale)
        }
        ArrowType::Decimal256(..) => ArrowType::Utf8View,
        ArrowType::Dictionary(_, values) => number_type(values),
        same => same.clone(),
    }
}

/// Converts an array to what a column of `sql_type` holds; values that do not fit are errors.
pub fn assign(array: &ArrayRef, sql_type: SqlType, column: &str) -> Result<ArrayRef> {
    let target = sql_type.column_type.arrow();
    if sql_type.column_type.is_document() {
        return documents(array, sql_type, column);
    }
    if *array.data_type() == target {
        return Ok(array.clone());
    }
    if let Some(values) = crate::free_numbers::assigned(array, sql_type)? {
        return Ok(values);
    }
    let is_cast_to_text = || {
        let given = array.data_type();
        is_text_or_null(given) || matches!(given, ArrowType::Boolean | ArrowType::Dictionary(..))
    };
    if sql_type.column_type == ColumnType::Utf8 && !is_cast_to_text() {
        // As results are written, which is not Arrow's way.
        return as_told(array, &ArrowType::Utf8View);
    }
    let is_text = is_text(array.data_type());
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    let invalid = |text: &str| {
        SqlError::new(
            sqlstate::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type {sql_type}: \"{text}\""),
        )
    };
    if is_text && matches!(sql_type.column_type, ColumnType::Uuid | ColumnType::Binary) {
        let strings = cast_with_options(array, &ArrowType::Utf8View, &options)?;
        let strings: &StringViewArray = strings.as_string_view();
        if sql_type.column_type == ColumnType::Uuid {
            let mut uuids = FixedSizeBinaryBuilder::with_capacity(strings.len(), 16);
            for text in strings {
                match text {
                    Some(text) => uuids.append_value(uuid_of_text(text).ok_or_else(|| invalid(text))?)?,
                    None => uuids.append_null(),
                }
            }
            return Ok(Arc::new(uuids.finish()));
        }
        let mut bytes = datafusion::arrow::array::BinaryViewBuilder::new();
        for text in strings {
            match text {
                Some(text) => bytes.append_value(parse_bytea(text)?),
                None => bytes.append_null(),
            }
        }
        return Ok(Arc::new(bytes.finish()));
    }
    if sql_type.column_type == ColumnType::Uuid
        && matches!(array.data_type(), ArrowType::Binary | ArrowType::BinaryView)
    {
        // Frames whose package has no bytes of a fixed length.
        let bytes = cast_with_options(array, &ArrowType::BinaryView, &options)?;
        let mut uuids = FixedSizeBinaryBuilder::with_capacity(bytes.len(), 16);
        for bytes in bytes.as_binary_view() {
            match bytes.map(<[u8; 16]>::try_from) {
                Some(Ok(bytes)) => uuids.append_value(bytes)?,
                Some(Err(_)) => {
                    let message = format!("a value of column \"{column}\" of type uuid does not have 16 bytes");
                    return Err(SqlError::new(sqlstate::INVALID_BINARY_REPRESENTATION, message));
                }
                None => uuids.append_null(),
            }
        }
        return Ok(Arc::new(uuids.finish()));
    }
    let of_column = |error: SqlError| {
        let detail = error.detail.or_else(|| Some(format!("column \"{column}\" is of type {sql_type}")));
        SqlError { detail, ..error }
    };
    if sql_type.column_type == ColumnType::Numeric {
        if !is_text {
            check_assignment(array.data_type(), sql_type, column)?;
        }
        let known = number_type(array.data_type());
        let values =
            if known == *array.data_type() { array.clone() } else { cast_with_options(array, &known, &options)? };
        return as_numbers(&values).map_err(of_column);
    }
    if is_text && matches!(sql_type.column_type, ColumnType::Decimal { .. }) {
        // Arrow's cast is faster, but does not take all that numbers may be written as.
        if let Ok(values) = cast_with_options(array, &target, &options) {
            return Ok(values);
        }
        let texts = cast_with_options(array, &ArrowType::Utf8View, &options)?;
        return as_numbers(&texts).and_then(|numbers| assign(&numbers, sql_type, column)).map_err(of_column);
    }
    if array.data_type().is_floating() && matches!(sql_type.column_type, ColumnType::Decimal { .. }) {
        // The digits that a float shows are rounded, and not the binary fraction behind them.
        let floats = cast_with_options(array, &number_type(array.data_type()), &options)?;
        return as_numbers(&floats).and_then(|numbers| assign(&numbers, sql_type, column)).map_err(of_column);
    }
    if is_text {
        let texts = cast_with_options(array, &ArrowType::Utf8View, &options)?;
        let texts = texts.as_string_view();
        let values = match sql_type.column_type {
            ColumnType::Int16 => Some(integers::<Int16Type>(texts, sql_type)),
            ColumnType::Int32 => Some(integers::<Int32Type>(texts, sql_type)),
            ColumnType::Int64 => Some(integers::<Int64Type>(texts, sql_type)),
            ColumnType::Boolean => Some(booleans(texts)),
            ColumnType::Interval => Some(intervals(texts)),
            ColumnType::Date | ColumnType::Time | ColumnType::Timestamp { .. } => Some(read_times(array, &target)),
            _ => None,
        };
        if let Some(values) = values {
            return values.map_err(of_column);
        }
    }
    if let (ArrowType::Interval(_), ColumnType::Time) = (array.data_type(), sql_type.column_type) {
        // The time of day that it leads to from midnight.
        const NANOS_PER_DAY: i64 = 86_400_000_000_000;
        let intervals = array.as_primitive::<IntervalMonthDayNanoType>();
        let time = |interval: IntervalMonthDayNano| interval.nanoseconds.rem_euclid(NANOS_PER_DAY) / 1_000;
        return Ok(Arc::new(intervals.unary::<_, Time64MicrosecondType>(time)));
    }
    if let (ArrowType::Time64(TimeUnit::Microsecond), ColumnType::Interval) = (array.data_type(), sql_type.column_type)
    {
        let interval = |micros: i64| IntervalMonthDayNano::new(0, 0, micros * 1_000);
        let times = array.as_primitive::<Time64MicrosecondType>();
        return Ok(Arc::new(times.unary::<_, IntervalMonthDayNanoType>(interval)));
    }
    if is_conversion_of_times(array.data_type(), &target) {
        return times_as(array, &target).map_err(of_column);
    }
    // Fractions are rounded, not cut, on their way into integers.
    let rounded;
    let source = match (array.data_type(), sql_type.column_type) {
        (ArrowType::Float32 | ArrowType::Float64, ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64) => {
            let floats = cast_with_options(array, &ArrowType::Float64, &options)?;
            let floats = floats.as_primitive::<Float64Type>();
            rounded = Arc::new(floats.unary::<_, Float64Type>(f64::round_ties_even)) as ArrayRef;
            &rounded
        }
        (ArrowType::Decimal128(p, s), ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64) if *s > 0 => {
            rounded = cast_with_options(array, &ArrowType::Decimal128(*p, 0), &options)?;
            &rounded
        }
        _ => array,
    };
    let values = cast_with_options(source, &target, &options).map_err(|error| {
        let mut error = SqlError::from(error);
        if error.sqlstate == sqlstate::INTERNAL_ERROR {
            error.sqlstate = sqlstate::DATATYPE_MISMATCH;
        }
        if matches!(error.sqlstate, sqlstate::INVALID_TEXT_REPRESENTATION | sqlstate::NUMERIC_VALUE_OUT_OF_RANGE)
            && source.data_type().is_numeric()
        {
            error = SqlError::out_of_range(sql_type.column_type);
        }
        of_column(error)
    })?;
    if target.is_floating() {
        check_floats(array, &values, sql_type)?;
    }
    Ok(values)
}

/// Whether the number in a text has become infinity, or 0, because it is too large, or too small,
/// for a float.
pub fn is_lost_float(text: &str, float: f64) -> bool {
    // The word Infinity has no digits.
    let has_digits = || text.split(['e', 'E']).next().is_some_and(|digits| digits.contains(|c| matches!(c, '1'..='9')));
    (float == 0.0 || float.is_infinite()) && has_digits()
}

/// Checks that no number of `given`, texts or floats, has been lost in the floats that they became.
///
/// # Errors
/// 22003 for the first that has.
fn check_floats(given: &ArrayRef, floats: &ArrayRef, sql_type: SqlType) -> Result<()> {
    let floats = cast_with_options(floats, &ArrowType::Float64, &CastOptions::default())?;
    let floats = floats.as_primitive::<Float64Type>();
    let mut rows = (0..floats.len()).filter(|&row| floats.is_valid(row));
    if is_text(given.data_type()) {
        let texts = cast_with_options(given, &ArrowType::Utf8View, &CastOptions::default())?;
        let texts: &StringViewArray = texts.as_string_view();
        return match rows.find(|&row| is_lost_float(texts.value(row), floats.value(row))) {
            None => Ok(()),
            Some(row) => {
                let type_name = sql_type.to_string().to_lowercase();
                let message = format!("\"{}\" is out of range for type {type_name}", texts.value(row));
                Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, message))
            }
        };
    }
    let Some(given) = given.as_primitive_opt::<Float64Type>() else { return Ok(()) };
    let errors = |row: usize| match (given.value(row), floats.value(row)) {
        (given, float) if given.is_finite() && float.is_infinite() => Some("overflow"),
        (given, 0.0) if given != 0.0 => Some("underflow"),
        _ => None,
    };
    match rows.find_map(errors) {
        None => Ok(()),
        Some(error) => Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, format!("value out of range: {error}"))),
    }
}
