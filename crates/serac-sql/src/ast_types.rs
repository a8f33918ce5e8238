//! The engine's types for the types that statements name.

use crate::error::{Result, SqlError};
use serac_binder::{BindError, type_with_modifiers};
use serac_engine::catalog::definition::SqlType;
use serac_parser::tree::TypeName;
use serac_pg::TypeId;
use serac_storage::ColumnType;

/// The engine's type for a type in a statement.
///
/// # Errors
/// 42704 for a type that does not exist, 0A000 for one that no column has, and the errors of its
/// modifiers.
pub(crate) fn sql_type(to: &TypeName) -> Result<SqlType> {
    let named = |error: SqlError| error.named(to.name.to_string());
    let (id, modifiers) = type_with_modifiers(to).map_err(|error| match error {
        BindError::Statement(error) => named(SqlError::new(error.sqlstate, error.message)),
        BindError::Plan(error) => error.into(),
    })?;
    let first = modifiers.first().copied();
    Ok(match id {
        TypeId::BOOL => ColumnType::Boolean.into(),
        TypeId::INT2 => ColumnType::Int16.into(),
        TypeId::INT4 => ColumnType::Int32.into(),
        TypeId::INT8 => ColumnType::Int64.into(),
        TypeId::FLOAT4 => ColumnType::Float32.into(),
        TypeId::FLOAT8 => ColumnType::Float64.into(),
        TypeId::NUMERIC => numeric(&modifiers)?,
        TypeId::DATE => ColumnType::Date.into(),
        TypeId::TIME => time(ColumnType::Time, first),
        TypeId::TIMESTAMP => time(ColumnType::Timestamp { utc: false }, first),
        TypeId::TIMESTAMPTZ => time(ColumnType::Timestamp { utc: true }, first),
        TypeId::INTERVAL if to.fields.is_some() => {
            return Err(SqlError::unsupported("an interval of certain fields as the type of a column"));
        }
        TypeId::INTERVAL => time(ColumnType::Interval, first),
        TypeId::TEXT => ColumnType::Utf8.into(),
        TypeId::VARCHAR | TypeId::BPCHAR => {
            let (length, fixed_length) = (first.and_then(|length| u32::try_from(length).ok()), id == TypeId::BPCHAR);
            let without_modifier = length.is_none() && !fixed_length;
            SqlType { column_type: ColumnType::Utf8, length, fixed_length, without_modifier }
        }
        TypeId::NAME => SqlType::NAME,
        TypeId::BYTEA => ColumnType::Binary.into(),
        TypeId::UUID => ColumnType::Uuid.into(),
        TypeId::JSON => ColumnType::JsonText.into(),
        TypeId::JSONB => ColumnType::Json.into(),
        other => return Err(named(SqlError::unsupported(format!("a column of type {other}")))),
    })
}

/// The type of columns that a text names, as "numeric(10, 2)".
///
/// # Errors
/// 42601 for a text that is no type of columns, and as for other types in statements.
pub fn type_named(text: &str) -> Result<SqlType> {
    let wrong = || SqlError::new(sqlstate::SYNTAX_ERROR, format!("\"{text}\" is no type of columns"));
    let named = serac_parser::parse_type(text).map_err(|_| wrong())?;
    if named.is_set || named.of_column || named.dimensions > 0 { Err(wrong()) } else { sql_type(&named) }
}

/// NUMERIC with as many digits as are told.
fn numeric(modifiers: &[i32]) -> Result<SqlType> {
    let (precision, scale) = match *modifiers {
        [] => return Ok(ColumnType::Numeric.into()),
        [precision, scale, ..] => (precision, scale),
        [precision] => (precision, 0),
    };
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(precision @ 1..=38), Ok(scale @ 0..)) if scale.unsigned_abs() <= precision => {
            Ok(ColumnType::Decimal { precision, scale }.into())
        }
        _ => {
            let message = format!("NUMERIC({precision},{scale}) is not between NUMERIC(1,0) and NUMERIC(38,38)");
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// A type of times with this many digits of a second, six at the most.
fn time(column_type: ColumnType, digits: Option<i32>) -> SqlType {
    let length = digits.and_then(|digits| u32::try_from(digits).ok()).filter(|digits| *digits < 6);
    SqlType { length, ..column_type.into() }
}

/// The integer behind SERIAL, which only a new column may have as its type.
pub(crate) fn serial_type(of: &TypeName) -> Option<ColumnType> {
    let [name] = &of.name.parts[..] else { return None };
    let integer = match name.name.as_str() {
        "serial" | "serial4" => ColumnType::Int32,
        "bigserial" | "serial8" => ColumnType::Int64,
        "smallserial" | "serial2" => ColumnType::Int16,
        _ => return None,
    };
    (of.dimensions == 0 && of.modifiers.is_empty() && !of.is_set).then_some(integer)
}
