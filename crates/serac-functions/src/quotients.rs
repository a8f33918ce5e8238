//! Quotients of decimals have 16 digits behind the point, if there is room. Arrow adds four to the
//! dividend's: `1 / 3.0` would be 0.3333.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ExprSchemable, cast};

/// Digits behind the point that quotients have.
const SCALE: i16 = 16;
/// The digits that Arrow adds to the dividend's.
const ADDED_SCALE: i16 = 4;
const MOST_DIGITS: i16 = 38;

/// The digits of numbers, and those behind the point.
fn digits(data_type: &DataType) -> Option<(i16, i16)> {
    Some(match data_type {
        DataType::Int16 => (5, 0),
        DataType::Int32 => (10, 0),
        DataType::Int64 => (20, 0),
        DataType::Decimal128(precision, scale) => (i16::from(*precision), i16::from(*scale)),
        _ => return None,
    })
}

/// The type of a dividend with enough digits; `None` if it has them, or if it is no quotient of
/// decimals.
fn wider(dividend: &DataType, divisor: &DataType) -> Option<DataType> {
    if dividend.is_integer() && divisor.is_integer() {
        return None;
    }
    let ((precision, scale), (_, divisor_scale)) = (digits(dividend)?, digits(divisor)?);
    // Arrow multiplies the dividend by as much as the quotient's scale takes.
    let room = MOST_DIGITS - precision - divisor_scale - ADDED_SCALE;
    let more = (SCALE - ADDED_SCALE - scale).min(room);
    (more > 0).then(|| DataType::Decimal128((precision + more) as u8, (scale + more) as i8))
}

/// The dividend with as many more digits as the quotient needs.
pub(super) fn dividend(dividend: Expr, divisor: &Expr, schema: &DFSchema) -> Expr {
    let of_type = |expr: &Expr| expr.get_type(schema).ok();
    match of_type(&dividend).zip(of_type(divisor)).and_then(|(dividend, divisor)| wider(&dividend, &divisor)) {
        Some(wider) => cast(dividend, wider),
        None => dividend,
    }
}
