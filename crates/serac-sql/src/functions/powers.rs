//! `power`, which fails where DataFusion's gives NaN or infinity for numbers that are neither.

use super::{Definition, Types};
use crate::error::SqlError;
use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array};
use datafusion::arrow::compute::try_binary;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::arrow::error::ArrowError;
use std::sync::Arc;

fn types(given: &[DataType]) -> Option<Types> {
    // A literal in quotes has the type of no column of texts.
    let is_number =
        |data_type: &DataType| data_type.is_numeric() || matches!(data_type, DataType::Utf8 | DataType::Null);
    (given.len() == 2 && given.iter().all(is_number)).then(|| (vec![DataType::Float64; 2], DataType::Float64))
}

/// # Errors
/// 2201F where the result is no real number, 22003 where it is too large.
fn power(base: f64, exponent: f64) -> Result<f64, SqlError> {
    let error = |sqlstate, message: &str| Err(SqlError::new(sqlstate, message));
    if base == 0.0 && exponent < 0.0 {
        return error("2201F", "zero raised to a negative power is undefined");
    }
    // Infinite exponents are even numbers, as large floats are.
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        return error("2201F", "a negative number raised to a non-integer power yields a complex result");
    }
    let power = base.powf(exponent);
    if power.is_infinite() && base.is_finite() && exponent.is_finite() {
        return error("22003", "value out of range: overflow");
    }
    Ok(power)
}

fn powers(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let (bases, exponents) = (args[0].as_primitive::<Float64Type>(), args[1].as_primitive::<Float64Type>());
    let of_row = |base, exponent| power(base, exponent).map_err(|error| ArrowError::from_external_error(error.into()));
    let powers: Float64Array = try_binary(bases, exponents, of_row)?;
    Ok(Arc::new(powers))
}

pub(super) const DEFINITIONS: &[Definition] =
    &[Definition { name: "power", types, body: powers }, Definition { name: "pow", types, body: powers }];
