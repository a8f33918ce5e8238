//! Results of operations on floats that are errors: overflow, underflow, and division by zero.

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, Operator};
use serac_values::SqlError;

/// The error of the result of an operation on floats, if it is an error.
pub fn float_error(operator: Operator, left: f64, right: f64, result: f64) -> Option<SqlError> {
    let is_division = operator == Operator::Divide;
    let is_product = is_division || operator == Operator::Multiply;
    if is_division && right == 0.0 && !left.is_nan() {
        return Some(SqlError::new(sqlstate::DIVISION_BY_ZERO, "division by zero"));
    }
    if result.is_infinite() && left.is_finite() && right.is_finite() {
        return Some(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
    }
    // A quotient by infinity is 0.
    if is_product && result == 0.0 && left != 0.0 && right != 0.0 && !(is_division && right.is_infinite()) {
        return Some(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow"));
    }
    None
}

/// Checks the results of an operation on floats.
///
/// # Errors
/// The first [`float_error`] of the rows.
pub fn check_floats(operator: Operator, operands: &[ColumnarValue], result: &ColumnarValue) -> Result<()> {
    let floats =
        |value: &ColumnarValue, rows| Ok::<_, DataFusionError>(cast(&value.to_array(rows)?, &DataType::Float64)?);
    let rows = if let ColumnarValue::Array(result) = result { result.len() } else { 1 };
    let results = floats(result, rows)?;
    let results = results.as_primitive::<Float64Type>();
    if results.values().iter().all(|result| result.is_finite() && *result != 0.0) {
        return Ok(());
    }
    let (left, right) = (floats(&operands[0], rows)?, floats(&operands[1], rows)?);
    let (left, right) = (left.as_primitive::<Float64Type>(), right.as_primitive::<Float64Type>());
    let errors = (0..rows).filter(|&row| results.is_valid(row));
    let mut errors =
        errors.filter_map(|row| float_error(operator, left.value(row), right.value(row), results.value(row)));
    errors.next().map_or(Ok(()), |error| Err(error.external()))
}
