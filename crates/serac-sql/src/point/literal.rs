//! Constants of a statement's text as parameters of its plan, or as rows to insert. Only a constant
//! that is exactly a value of the type is taken, so that the statement keeps the meaning of its
//! text.

use super::expression::{number, of_number, scale_of};
use crate::table_schema::nullable_schema;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::common::ScalarValue;
use serac_binder::{type_of_arrow, value_of_text};
use serac_engine::Table;
use serac_engine::json::normalized;
use serac_engine::json_text::check;
use serac_engine::values::{OwnedValue, array_of, value_at};
use serac_numeric::Numeric;
use serac_parser::tree::{Expr, ExprKind, Insert, Literal, Operator, Query, QueryBody, TypeName};
use serac_pg::TypeId;
use serac_storage::{ColumnType, Value};
use serac_values::free_numbers::of_parameter;
use std::sync::Arc;

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Constant<'t> {
    Null,
    Boolean(bool),
    /// Its text, and whether a minus stands before it.
    Number(&'t str, bool),
    Text(&'t str),
    /// The text of a date or a time, and which of them it says to be.
    Typed(&'t str, ColumnType),
}

/// The constant that an expression is.
pub(super) fn constant(expr: &Expr) -> Option<Constant<'_>> {
    match &expr.kind {
        ExprKind::Prefix(operators, operand) => match (&operators[..], constant(operand)?) {
            ([Operator { schema: None, symbol, .. }], Constant::Number(text, false)) if symbol == "-" => {
                Some(Constant::Number(text, true))
            }
            _ => None,
        },
        ExprKind::Literal(literal) => match literal {
            Literal::Null => Some(Constant::Null),
            Literal::Boolean(truth) => Some(Constant::Boolean(*truth)),
            Literal::Integer(text) | Literal::Numeric(text) => Some(Constant::Number(text, false)),
            Literal::String(text) => Some(Constant::Text(text)),
            Literal::Bits(_) | Literal::HexBits(_) => None,
        },
        ExprKind::Cast { operand, to } => match constant(operand)? {
            Constant::Text(text) => Some(Constant::Typed(text, type_of_time(to)?)),
            _ => None,
        },
        _ => None,
    }
}

/// The type of dates or times, without a time zone and all with their microseconds, that is named.
fn type_of_time(written: &TypeName) -> Option<ColumnType> {
    let is_plain = written.modifiers.is_empty() && written.dimensions == 0 && !written.is_set && !written.of_column;
    match &written.name.parts[..] {
        [name] if is_plain => match name.name.as_str() {
            "date" => Some(ColumnType::Date),
            "time" => Some(ColumnType::Time),
            "timestamp" => Some(ColumnType::Timestamp { utc: false }),
            _ => None,
        },
        _ => None,
    }
}

/// The rows of an INSERT that says nothing but constants.
pub(crate) fn constants_of(insert: &Insert) -> Option<&[Vec<Expr>]> {
    let Insert { with: None, overriding_system: None, source: Some(source), on_conflict: None, returning, .. } = insert
    else {
        return None;
    };
    let Query { with: None, order_by_all: None, limit: None, offset: None, body, order_by, locks, .. } =
        source.as_ref()
    else {
        return None;
    };
    match body {
        QueryBody::Values(rows) if returning.is_empty() && order_by.is_empty() && locks.is_empty() => {
            rows.iter().flatten().all(|value| constant(value).is_some()).then_some(rows)
        }
        _ => None,
    }
}

/// Rows of constants for `targets` of a table, if these are exactly values of their columns. Then
/// planning is not needed, which for thousands of constants takes far longer than to store them.
pub(crate) fn constant_rows(table: &Table, targets: &[usize], values: &[Vec<Expr>]) -> Option<RecordBatch> {
    let given = values.first()?.len();
    if given > targets.len() || values.iter().any(|row| row.len() != given) {
        return None;
    }
    let column = |at: usize| -> Option<ArrayRef> {
        let column_type = table.definition.columns[targets[at]].sql_type.column_type;
        let values = values.iter().map(|row| constant(&row[at])?.value_of(column_type));
        Some(array_of(&values.collect::<Option<Vec<_>>>()?, column_type))
    };
    let columns = (0..given).map(column).collect::<Option<_>>()?;
    let schema = nullable_schema(table).project(&targets[..given]).ok()?;
    let options = RecordBatchOptions::new().with_row_count(Some(values.len()));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).ok()
}

/// Digits and, perhaps, a point: the unscaled number and its scale.
fn parse_number(text: &str, negative: bool) -> Option<(i128, i8)> {
    if !text.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (mut all, mut scale, mut point) = (0i128, 0i8, false);
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' => {
                all = all.checked_mul(10)?.checked_add((byte - b'0').into())?;
                scale = scale.checked_add(i8::from(point))?;
            }
            b'.' if !point => point = true,
            _ => return None,
        }
    }
    Some((if negative { -all } else { all }, scale))
}

impl Constant<'_> {
    /// The constant as a value of a type; `None` if it is not exactly one.
    pub(super) fn value_of(&self, column_type: ColumnType) -> Option<OwnedValue> {
        match (self, column_type) {
            (Self::Null, _) => Some(OwnedValue::Fixed(Value::Null)),
            (Self::Boolean(truth), ColumnType::Boolean) => Some(OwnedValue::Fixed(Value::Bool(*truth))),
            (Self::Text(text), ColumnType::Utf8) => Some(OwnedValue::Bytes(text.as_bytes().into())),
            (Self::Text(text), ColumnType::Json) => of_text(text),
            (Self::Text(text), ColumnType::JsonText) => {
                check(text).ok().map(|()| OwnedValue::Bytes(text.as_bytes().into()))
            }
            (Self::Text(text), _) => of_quoted(text, column_type),
            (Self::Number(text, negative), ColumnType::Numeric) => {
                let number: Numeric = if *negative { format!("-{text}").parse().ok()? } else { text.parse().ok()? };
                Some(OwnedValue::Bytes(number.to_stored().into()))
            }
            (Self::Typed(text, own), _) if *own == column_type => Constant::Text(text).value_of(column_type),
            (Self::Number(text, negative), _) => {
                let (number, scale) = parse_number(text, *negative)?;
                match column_type {
                    // Both the digits and the power of ten are floats, so their quotient is the
                    // float nearest to the constant, on either path.
                    ColumnType::Float64 if number.unsigned_abs() < 1 << 53 && scale <= 22 => {
                        Some(OwnedValue::Fixed(Value::Float64(number as f64 / 10f64.powi(scale.into()))))
                    }
                    _ => {
                        let target = scale_of(column_type)?;
                        let factor = 10i128.checked_pow(target.abs_diff(scale).into())?;
                        let number = if target >= scale {
                            number.checked_mul(factor)?
                        } else if number % factor == 0 {
                            number / factor
                        } else {
                            return None;
                        };
                        of_number(number, column_type).map(OwnedValue::Fixed)
                    }
                }
            }
            _ => None,
        }
    }
}

/// The document that a text is, if it is a document.
fn of_text(text: &str) -> Option<OwnedValue> {
    Some(OwnedValue::Bytes(normalized(text).ok()?.as_bytes().into()))
}

/// A quoted constant's value of a type; `None` if the type has no value for it.
fn of_quoted(text: &str, column_type: ColumnType) -> Option<OwnedValue> {
    let id = type_of_arrow(&column_type.arrow()).filter(|id| *id != TypeId::NUMERIC)?;
    // Settings decide to which parts a sign belongs.
    if id == TypeId::INTERVAL && text.contains('-') {
        return None;
    }
    let array = value_of_text(text, id).ok()??.to_array().ok()?;
    let is_such = *array.data_type() == column_type.arrow();
    is_such.then(|| OwnedValue::from(&value_at(&array, 0, column_type)))
}

/// A scalar as a value of a type; `None` if it is not exactly one.
pub(super) fn of_scalar(scalar: &ScalarValue, column_type: ColumnType) -> Option<OwnedValue> {
    if scalar.is_null() {
        return Some(OwnedValue::Fixed(Value::Null));
    }
    if column_type == ColumnType::Numeric {
        return match of_parameter(scalar).ok()?? {
            ScalarValue::LargeBinary(Some(stored)) => Some(OwnedValue::Bytes(stored.into())),
            _ => None,
        };
    }
    if let Some(text) = scalar.try_as_str().flatten() {
        return match (column_type, text.strip_prefix('-')) {
            (ColumnType::Decimal { .. }, Some(digits)) => Constant::Number(digits, true).value_of(column_type),
            (ColumnType::Decimal { .. }, None) => Constant::Number(text, false).value_of(column_type),
            _ => Constant::Text(text).value_of(column_type),
        };
    }
    let cast = scalar.cast_to(&column_type.arrow()).ok()?;
    let same = cast.cast_to(&scalar.data_type()).is_ok_and(|back| back == *scalar);
    let array = cast.to_array().ok()?;
    (same && !cast.is_null()).then(|| OwnedValue::from(&value_at(&array, 0, column_type)))
}

/// Whether a value has the physical form of a type.
pub(super) fn is_of(value: &Value<'_>, column_type: ColumnType) -> bool {
    match (value, column_type) {
        (Value::Null, _) | (Value::Bool(_), ColumnType::Boolean) => true,
        (Value::Int16(_), ColumnType::Int16) | (Value::Int32(_), ColumnType::Int32) => true,
        (Value::Int64(_), ColumnType::Int64) => true,
        (Value::Float32(_), ColumnType::Float32) | (Value::Float64(_), ColumnType::Float64) => true,
        (Value::Int32(_), ColumnType::Date) => true,
        (Value::Int64(_), ColumnType::Time | ColumnType::Timestamp { .. }) => true,
        (Value::Int128(_), ColumnType::Interval | ColumnType::Uuid) => true,
        (Value::Bytes(bytes), ColumnType::Utf8 | ColumnType::Json | ColumnType::JsonText) => {
            std::str::from_utf8(bytes).is_ok()
        }
        (Value::Bytes(_), ColumnType::Binary) => true,
        (Value::Bytes(stored), ColumnType::Numeric) => Numeric::of_stored(stored).is_ok(),
        (value, ColumnType::Decimal { .. }) => {
            number(*value).and_then(|number| of_number(number, column_type)).is_some_and(|own| own == *value)
        }
        _ => false,
    }
}
