//! Constants of a statement's text as parameters of its plan: only where the constant is exactly a value of the parameter's type, so that the
//! statement means what its text says.

use super::expression::{number, of_number, scale_of};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{Expr as AstExpr, UnaryOperator, Value as AstValue};
use serac_engine::values::{OwnedValue, value_at};
use serac_storage::{ColumnType, Value};

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Constant<'t> {
    Null,
    Boolean(bool),
    /// Its text, and whether a minus stands before it.
    Number(&'t str, bool),
    Text(&'t str),
}

/// The constant that an expression is.
pub(super) fn constant(expr: &AstExpr) -> Option<Constant<'_>> {
    match expr {
        AstExpr::Nested(inner) => constant(inner),
        AstExpr::UnaryOp { op: UnaryOperator::Minus, expr } => match constant(expr)? {
            Constant::Number(text, false) => Some(Constant::Number(text, true)),
            _ => None,
        },
        AstExpr::Value(value) => match &value.value {
            AstValue::Null => Some(Constant::Null),
            AstValue::Boolean(truth) => Some(Constant::Boolean(*truth)),
            AstValue::Number(text, _) => Some(Constant::Number(text, false)),
            AstValue::SingleQuotedString(text) => Some(Constant::Text(text)),
            _ => None,
        },
        _ => None,
    }
}

/// Digits and, perhaps, a point: the unscaled number and its scale.
fn parse_number(text: &str, negative: bool) -> Option<(i128, i8)> {
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
    /// The constant as a value of a type; none if it is not exactly one.
    pub(super) fn value_of(&self, column_type: ColumnType) -> Option<OwnedValue> {
        match (self, column_type) {
            (Self::Null, _) => Some(OwnedValue::Fixed(Value::Null)),
            (Self::Boolean(truth), ColumnType::Boolean) => Some(OwnedValue::Fixed(Value::Bool(*truth))),
            (Self::Text(text), ColumnType::Utf8) => Some(OwnedValue::Bytes(text.as_bytes().into())),
            (Self::Text(text), ColumnType::Date | ColumnType::Time | ColumnType::Timestamp { .. }) => {
                of_scalar(&ScalarValue::Utf8(Some((*text).into())), column_type)
            }
            (Self::Number(text, negative), _) => {
                let (number, scale) = parse_number(text, *negative)?;
                match column_type {
                    // Both the digits and the power of ten are floats, so their quotient is the float nearest to the constant, on either path.
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

/// A scalar as a value of a type; none if it is not exactly one.
pub(super) fn of_scalar(scalar: &ScalarValue, column_type: ColumnType) -> Option<OwnedValue> {
    if scalar.is_null() {
        return Some(OwnedValue::Fixed(Value::Null));
    }
    let cast = scalar.cast_to(&column_type.arrow()).ok()?;
    let from_text = matches!(scalar, ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) | ScalarValue::LargeUtf8(_));
    let same = from_text || cast.cast_to(&scalar.data_type()).is_ok_and(|back| back == *scalar);
    let array = cast.to_array().ok()?;
    (same && !cast.is_null()).then(|| OwnedValue::from(&value_at(&array, 0, column_type)))
}

/// Whether a value has the physical form of a type.
pub(super) fn is_of(value: &Value<'_>, column_type: ColumnType) -> bool {
    match (value, column_type) {
        (Value::Null, _) | (Value::Bool(_), ColumnType::Boolean) => true,
        (Value::Float32(_), ColumnType::Float32) | (Value::Float64(_), ColumnType::Float64) => true,
        (Value::Int32(_), ColumnType::Date) => true,
        (Value::Int64(_), ColumnType::Time | ColumnType::Timestamp { .. }) => true,
        (Value::Int128(_), ColumnType::Interval | ColumnType::Uuid) => true,
        (Value::Bytes(bytes), ColumnType::Utf8) => std::str::from_utf8(bytes).is_ok(),
        (Value::Bytes(_), ColumnType::Binary) => true,
        (value, ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 | ColumnType::Decimal { .. }) => {
            number(*value).and_then(|number| of_number(number, column_type)).is_some_and(|own| own == *value)
        }
        _ => false,
    }
}
