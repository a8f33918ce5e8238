//! SQL types and constants in sqlparser's tree: from its types to the engine's, and from values to
//! its expressions.

use crate::ddl::parse_expression;
use crate::error::{Result, SqlError};
use datafusion::arrow::datatypes::{DataType as ArrowType, Decimal128Type, DecimalType};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{CharacterLength, DataType, ExactNumberInfo, Expr, TimezoneInfo};
use serac_engine::definition::SqlType;
use serac_engine::values::format_uuid;
use serac_numeric::Numeric;
use serac_storage::ColumnType;
use serac_values::free_numbers::DEFAULT_NUMERIC;

fn decimal(info: &ExactNumberInfo) -> Result<SqlType> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => return Ok(SqlType { without_modifier: true, ..DEFAULT_NUMERIC.into() }),
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

/// Characters that a VARCHAR(n) or CHAR(n) has at most.
const MOST_CHARACTERS: u32 = 10_485_760;

fn text(length: &Option<CharacterLength>, fixed_length: bool) -> Result<SqlType> {
    let length = match length {
        None => fixed_length.then_some(1),
        Some(CharacterLength::IntegerLength { length, .. }) => {
            let wrong = |limit: String| {
                let name = if fixed_length { "char" } else { "varchar" };
                SqlError::new("22023", format!("length for type {name} {limit}"))
            };
            match u32::try_from(*length) {
                Ok(0) => return Err(wrong("must be at least 1".into())),
                Ok(length @ ..=MOST_CHARACTERS) => Some(length),
                _ => return Err(wrong(format!("cannot exceed {MOST_CHARACTERS}"))),
            }
        }
        Some(CharacterLength::Max) => None,
    };
    let without_modifier = length.is_none() && !fixed_length;
    Ok(SqlType { column_type: ColumnType::Utf8, length, fixed_length, without_modifier })
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
            None if name.to_string() == "\"char\"" => return Err(SqlError::unsupported("the type \"char\"")),
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

/// A scalar as it is written in SQL.
pub(crate) fn literal(value: &ScalarValue) -> Result<Expr> {
    use ScalarValue::{
        Binary, BinaryView, Boolean, Date32, Decimal128, FixedSizeBinary, Float32, Float64, LargeBinary,
    };
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
        LargeBinary(Some(bytes)) => {
            let number = Numeric::of_stored(bytes)?;
            match number.finite() {
                Some(_) => number.to_string(),
                None => format!("CAST('{number}' AS NUMERIC)"),
            }
        }
        Binary(Some(bytes)) | BinaryView(Some(bytes)) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            format!("X'{hex}'")
        }
        other => return Err(SqlError::unsupported(format!("a parameter of type {}", other.data_type()))),
    };
    parse_expression(&text)
}
