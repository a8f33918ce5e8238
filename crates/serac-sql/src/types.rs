//! SQL types: from the parser's to the engine's, and assignment of values to columns.

use crate::error::{Result, SqlError};
use crate::functions::{read_interval, read_times};
use crate::wire::as_told;
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, FixedSizeBinaryBuilder, IntervalMonthDayNanoArray,
    PrimitiveArray, StringViewArray,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType as ArrowType, Date32Type, Date64Type, Decimal128Type, DecimalType, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampSecondType,
};
use datafusion::arrow::util::display::FormatOptions;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{CharacterLength, DataType, ExactNumberInfo, Expr, TimezoneInfo};
use serac_engine::EngineError;
use serac_engine::definition::SqlType;
use serac_engine::json::normal_documents;
use serac_engine::values::format_uuid;
use serac_storage::ColumnType;
use std::ops::{Range, RangeBounds, RangeInclusive};
use std::sync::Arc;
use std::time::SystemTime;

/// Whether values of an Arrow type are texts. Documents are: they are texts in normal form.
pub(crate) fn is_text(data_type: &ArrowType) -> bool {
    matches!(data_type, ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View)
}

/// Whether values of an Arrow type are texts, or NULL of no type.
pub(crate) fn is_text_or_null(data_type: &ArrowType) -> bool {
    data_type.is_null() || is_text(data_type)
}

/// NUMERIC without precision and scale.
const DEFAULT_DECIMAL: (u8, i8) = (38, 10);

fn decimal(info: &ExactNumberInfo) -> Result<SqlType> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => DEFAULT_DECIMAL,
        ExactNumberInfo::Precision(p) => (u8::try_from(p).unwrap_or(u8::MAX), 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => {
            (u8::try_from(p).unwrap_or(u8::MAX), i8::try_from(s).unwrap_or(i8::MAX))
        }
    };
    if precision == 0 || precision > 38 || scale < 0 || scale as u8 > precision {
        return Err(SqlError::new(
            "22023",
            format!("NUMERIC({precision},{scale}) is not between NUMERIC(1,0) and NUMERIC(38,38)"),
        ));
    }
    Ok(ColumnType::Decimal { precision, scale }.into())
}

fn text(length: &Option<CharacterLength>, fixed_length: bool) -> Result<SqlType> {
    let length = match length {
        None => fixed_length.then_some(1),
        Some(CharacterLength::IntegerLength { length, .. }) => {
            Some(u32::try_from(*length).map_err(|_| SqlError::new("22023", "the length is too large"))?)
        }
        Some(CharacterLength::Max) => None,
    };
    Ok(SqlType { column_type: ColumnType::Utf8, length, fixed_length })
}

/// A type of times with so many digits of a second; six are kept of all.
fn time(column_type: ColumnType, digits: Option<u64>) -> SqlType {
    let length = digits.and_then(|digits| u32::try_from(digits).ok()).filter(|digits| *digits < 6);
    SqlType { length, ..column_type.into() }
}

/// The engine's type for a type in a statement; SERIAL types are their integers.
pub(crate) fn sql_type(data_type: &DataType) -> Result<SqlType> {
    Ok(match data_type {
        DataType::Boolean | DataType::Bool => ColumnType::Boolean.into(),
        DataType::SmallInt(_) | DataType::Int2(_) => ColumnType::Int16.into(),
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => ColumnType::Int32.into(),
        DataType::BigInt(_) | DataType::Int8(_) => ColumnType::Int64.into(),
        DataType::Real | DataType::Float4 => ColumnType::Float32.into(),
        DataType::Float(ExactNumberInfo::Precision(digits)) => match digits {
            0 => return Err(SqlError::new("22023", "precision for type float must be at least 1 bit")),
            1..=24 => ColumnType::Float32.into(),
            25..=53 => ColumnType::Float64.into(),
            _ => return Err(SqlError::new("22023", "precision for type float must be less than 54 bits")),
        },
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 | DataType::Float(_) => {
            ColumnType::Float64.into()
        }
        DataType::Decimal(info) | DataType::Numeric(info) | DataType::Dec(info) => decimal(info)?,
        DataType::Date => ColumnType::Date.into(),
        DataType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => time(ColumnType::Time, *digits),
        DataType::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            time(ColumnType::Timestamp { utc: false }, *digits)
        }
        DataType::Timestamp(digits, _) => time(ColumnType::Timestamp { utc: true }, *digits),
        DataType::Interval { .. } => ColumnType::Interval.into(),
        DataType::Varchar(n) | DataType::CharVarying(n) | DataType::CharacterVarying(n) => text(n, false)?,
        DataType::Text | DataType::String(_) => ColumnType::Utf8.into(),
        DataType::Char(n) | DataType::Character(n) => text(n, true)?,
        DataType::Bytea | DataType::Blob(_) | DataType::Varbinary(_) => ColumnType::Binary.into(),
        DataType::Uuid => ColumnType::Uuid.into(),
        DataType::JSON | DataType::JSONB => ColumnType::Json.into(),
        DataType::Custom(name, _) => match serial_type(name.to_string().to_lowercase().as_str()) {
            Some(column_type) => column_type.into(),
            None => {
                return Err(SqlError::new("42704", format!("type \"{name}\" does not exist")).named(name.to_string()));
            }
        },
        other => return Err(SqlError::new("42704", format!("type {other} is not supported"))),
    })
}

/// The integer behind SERIAL.
pub(crate) fn serial_type(name: &str) -> Option<ColumnType> {
    match name {
        "serial" | "serial4" => Some(ColumnType::Int32),
        "bigserial" | "serial8" => Some(ColumnType::Int64),
        "smallserial" | "serial2" => Some(ColumnType::Int16),
        _ => None,
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text
        .trim_matches(['{', '}'])
        .bytes()
        .filter(|b| *b != b'-')
        .map(|b| (b as char).to_digit(16).map(|d| d as u8))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, |all, d| all << 4 | d)).collect();
    (digits.len() == 32).then(|| bytes.try_into().expect("32 digits are 16 bytes"))
}

/// Bytes as texts have them: `\x00ff`, or letters among which a backslash stands before another one, or before
/// three octal digits.
///
/// # Errors
/// 22023 for what are no hexadecimal digits, 22P02 for a backslash before something else.
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
                (b'\\', _) => return Err(SqlError::new("22P02", "invalid input syntax for type bytea")),
                (first, behind) => (*first, behind),
            };
            bytes.push(byte);
            rest = behind;
        }
        return Ok(bytes);
    };
    crate::functions::bytes_of_digits(hex)
}

/// A truth value as texts have it.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
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
/// 22P02 for what is no integer, 22003 for one that the type does not have.
fn integers<T: ArrowPrimitiveType<Native: std::str::FromStr>>(
    texts: &StringViewArray,
    sql_type: SqlType,
) -> Result<ArrayRef> {
    let name = sql_type.to_string().to_lowercase();
    let one = |text: &str| {
        let word = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(SqlError::new("22P02", format!("invalid input syntax for type {name}: \"{text}\"")));
        }
        let out_of_range = || SqlError::new("22003", format!("value \"{text}\" is out of range for type {name}"));
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
    let invalid = |text: &str| SqlError::new("22P02", format!("invalid input syntax for type boolean: \"{text}\""));
    let one = |text: &str| parse_bool(text).ok_or_else(|| invalid(text));
    let values = texts.iter().map(|text| text.map(one).transpose());
    Ok(Arc::new(values.collect::<Result<BooleanArray>>()?))
}

/// Texts as intervals.
///
/// # Errors
/// What is wrong with one.
fn intervals(texts: &StringViewArray) -> Result<ArrayRef> {
    let values = texts.iter().map(|text| text.map(read_interval).transpose());
    Ok(Arc::new(values.collect::<Result<IntervalMonthDayNanoArray>>()?))
}

/// Texts as documents in normal form.
fn documents(array: &ArrayRef, column: &str) -> Result<ArrayRef> {
    if !is_text_or_null(array.data_type()) {
        let given = crate::pg_catalog::type_name(array.data_type());
        let message = format!("column \"{column}\" is of type jsonb but expression is of type {given}");
        return Err(SqlError::new("42804", message));
    }
    let texts = cast_with_options(array, &ArrowType::LargeUtf8, &CastOptions::default())?;
    Ok(normal_documents(&texts).map_err(EngineError::from)?)
}

/// Refuses to put values of a type into a column of another where PostgreSQL has no cast of
/// assignment (`pg_cast.castcontext` `a` or `i`, and from everything to text).
///
/// # Errors
/// 42804.
pub(crate) fn check_assignment(given: &ArrowType, sql_type: SqlType, column: &str) -> Result<()> {
    use ColumnType::{Binary, Boolean, Date, Decimal, Float32, Float64, Int16, Int32, Int64, Interval, Json, Time};
    use ColumnType::{Timestamp, Utf8, Uuid};
    let is_assigned = match sql_type.column_type {
        // Everything is written as a text.
        Utf8 => true,
        _ if given.is_null() => true,
        Int16 | Int32 | Int64 | Float32 | Float64 | Decimal { .. } => given.is_numeric(),
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
        Binary => matches!(
            given,
            ArrowType::Binary | ArrowType::LargeBinary | ArrowType::BinaryView | ArrowType::FixedSizeBinary(_)
        ),
        Uuid => matches!(given, ArrowType::FixedSizeBinary(16)),
        Json => *given == ArrowType::LargeUtf8,
    };
    if is_assigned {
        return Ok(());
    }
    let name = crate::pg_catalog::type_name;
    let (wanted, given) = (name(&sql_type.column_type.arrow()), name(given));
    let message = format!("column \"{column}\" is of type {wanted} but expression is of type {given}");
    Err(SqlError::new("42804", message).named(column))
}

/// Days from 1970 that a DATE may be: from 4714-11-24 BC, as in PostgreSQL, to 262142-12-31, the last that can be shown.
pub(crate) const DATES: RangeInclusive<i32> = -2_440_588..=95_026_236;
const DAY_MICROS: i64 = 86_400_000_000;
/// Microseconds that a TIME may be.
pub(crate) const TIMES: Range<i64> = 0..DAY_MICROS;
/// Microseconds from 1970 that a TIMESTAMP may be: those of the days above.
pub(crate) const TIMESTAMPS: Range<i64> = *DATES.start() as i64 * DAY_MICROS..(*DATES.end() as i64 + 1) * DAY_MICROS;

/// The error of a date or time that there is not.
pub(crate) fn time_out_of_range(what: &str) -> SqlError {
    SqlError::new("22008", format!("{what} out of range"))
}

/// Refuses dates and times of Arrow that there are not: whoever reads them would fail.
pub(crate) fn check_times(array: &ArrayRef) -> Result<()> {
    fn all<T: ArrowPrimitiveType>(array: &ArrayRef, range: impl RangeBounds<T::Native>) -> bool
    where
        T::Native: PartialOrd,
    {
        let array = array.as_primitive::<T>();
        match array.null_count() {
            0 => array.values().iter().all(|value| range.contains(value)),
            _ => array.iter().flatten().all(|value| range.contains(&value)),
        }
    }
    // A unit of which a second has so many.
    let times = |per_second: i64| TIMES.start * per_second / 1_000_000..TIMES.end / 1_000_000 * per_second;
    let stamps = |per_second: i64| {
        let seconds = TIMESTAMPS.start / 1_000_000..TIMESTAMPS.end / 1_000_000;
        seconds.start.saturating_mul(per_second)..seconds.end.saturating_mul(per_second)
    };
    let (what, good) = match array.data_type() {
        ArrowType::Date32 => ("date", all::<Date32Type>(array, DATES)),
        ArrowType::Date64 => ("date", all::<Date64Type>(array, stamps(1_000))),
        ArrowType::Time32(TimeUnit::Second) => ("time", all::<Time32SecondType>(array, 0..86_400)),
        ArrowType::Time32(_) => ("time", all::<Time32MillisecondType>(array, 0..86_400_000)),
        ArrowType::Time64(TimeUnit::Nanosecond) => ("time", all::<Time64NanosecondType>(array, times(1_000_000_000))),
        ArrowType::Time64(_) => ("time", all::<Time64MicrosecondType>(array, TIMES)),
        ArrowType::Timestamp(unit, _) => (
            "timestamp",
            match unit {
                TimeUnit::Second => all::<TimestampSecondType>(array, stamps(1)),
                TimeUnit::Millisecond => all::<TimestampMillisecondType>(array, stamps(1_000)),
                TimeUnit::Microsecond => all::<TimestampMicrosecondType>(array, TIMESTAMPS),
                // All of them are years from 1677 to 2262.
                TimeUnit::Nanosecond => true,
            },
        ),
        _ => return Ok(()),
    };
    if good { Ok(()) } else { Err(time_out_of_range(what)) }
}

/// Converts an array to what a column of `sql_type` holds; values that do not fit are errors.
pub(crate) fn assign(array: &ArrayRef, sql_type: SqlType, column: &str) -> Result<ArrayRef> {
    let target = sql_type.column_type.arrow();
    if sql_type.column_type == ColumnType::Json {
        return documents(array, column);
    }
    if *array.data_type() == target {
        return Ok(array.clone());
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
    let invalid = |text: &str| SqlError::new("22P02", format!("invalid input syntax for type {sql_type}: \"{text}\""));
    if is_text && matches!(sql_type.column_type, ColumnType::Uuid | ColumnType::Binary) {
        let strings = cast_with_options(array, &ArrowType::Utf8View, &options)?;
        let strings: &StringViewArray = strings.as_string_view();
        if sql_type.column_type == ColumnType::Uuid {
            let mut uuids = FixedSizeBinaryBuilder::with_capacity(strings.len(), 16);
            for text in strings {
                match text {
                    Some(text) => uuids.append_value(parse_uuid(text).ok_or_else(|| invalid(text))?)?,
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
    let of_column = |error: SqlError| {
        let detail = error.detail.or_else(|| Some(format!("column \"{column}\" is of type {sql_type}")));
        SqlError { detail, ..error }
    };
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
        if error.sqlstate == "XX000" {
            error.sqlstate = "42804";
        }
        if matches!(error.sqlstate, "22P02" | "22003") && source.data_type().is_numeric() {
            error = SqlError::out_of_range(sql_type.column_type);
        }
        of_column(error)
    })?;
    if target.is_floating() {
        check_floats(array, &values, sql_type)?;
    }
    Ok(values)
}

/// Whether the number that a text says has become infinity, or 0, because it is too large, or too
/// small, for a float.
pub(crate) fn is_lost_float(text: &str, float: f64) -> bool {
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
                Err(SqlError::new("22003", message))
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
        Some(error) => Err(SqlError::new("22003", format!("value out of range: {error}"))),
    }
}

/// A scalar as it is written in SQL.
pub(crate) fn literal(value: &ScalarValue) -> Result<Expr> {
    use ScalarValue::{Binary, BinaryView, Boolean, Date32, Decimal128, FixedSizeBinary, Float32, Float64};
    use ScalarValue::{
        Int8, Int16, Int32, Int64, IntervalMonthDayNano, LargeUtf8, Time64Microsecond, TimestampMicrosecond, UInt8,
        UInt16, UInt32, UInt64, Utf8, Utf8View,
    };
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let text = match value {
        value if value.is_null() => "NULL".into(),
        Boolean(_) | Int8(_) | Int16(_) | Int32(_) | Int64(_) | UInt8(_) | UInt16(_) | UInt32(_) | UInt64(_) => {
            value.to_string()
        }
        Utf8(Some(text)) | Utf8View(Some(text)) => quoted(text),
        LargeUtf8(Some(text)) => format!("CAST({} AS JSONB)", quoted(text)),
        Float32(_) => format!("CAST('{value}' AS REAL)"),
        Float64(_) => format!("CAST('{value}' AS DOUBLE PRECISION)"),
        Decimal128(Some(number), precision, scale) => {
            let digits = Decimal128Type::format_decimal(*number, *precision, *scale);
            format!("CAST('{digits}' AS NUMERIC({precision},{scale}))")
        }
        Date32(_) => format!("CAST('{value}' AS DATE)"),
        TimestampMicrosecond(_, zone) => {
            let text = value.cast_to(&ArrowType::Utf8)?.to_string();
            format!("CAST('{text}' AS TIMESTAMP{})", if zone.is_some() { "TZ" } else { "" })
        }
        Time64Microsecond(_) => format!("CAST('{}' AS TIME)", value.cast_to(&ArrowType::Utf8)?),
        IntervalMonthDayNano(Some(parts)) => {
            let micros = parts.nanoseconds / 1_000;
            format!("CAST('{} months {} days {micros} microseconds' AS INTERVAL)", parts.months, parts.days)
        }
        FixedSizeBinary(16, Some(bytes)) => format!("uuid_in('{}')", format_uuid(bytes)),
        ScalarValue::List(list) => {
            let elements = list.value(0);
            let element = |i| literal(&ScalarValue::try_from_array(&elements, i)?);
            let elem = (0..elements.len()).map(element).collect::<Result<_>>()?;
            return Ok(Expr::Array(datafusion::sql::sqlparser::ast::Array { elem, named: true }));
        }
        Binary(Some(bytes)) | BinaryView(Some(bytes)) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            format!("X'{hex}'")
        }
        other => return Err(SqlError::unsupported(format!("a parameter of type {}", other.data_type()))),
    };
    crate::ddl::parse_expression(&text)
}

/// A time as TIMESTAMPTZ has it: microseconds since 1970 (UTC).
pub(crate) fn micros(time: SystemTime) -> i64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}
