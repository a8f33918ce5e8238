//! Powers, roots, logarithms and arcs, which fail where DataFusion's give NaN or infinity for
//! numbers that are neither.

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

/// The types of a function of one number.
fn of_one(given: &[DataType]) -> Option<Types> {
    let is_number = matches!(given, [given] if given.is_numeric() || matches!(given, DataType::Utf8 | DataType::Null));
    is_number.then(|| (vec![DataType::Float64], DataType::Float64))
}

/// Applies a function to each number.
fn each(args: &[ArrayRef], function: fn(f64) -> Result<f64, SqlError>) -> Result<ArrayRef, SqlError> {
    let of_row = |x| function(x).map_err(|error| ArrowError::from_external_error(error.into()));
    let results: Float64Array = args[0].as_primitive::<Float64Type>().try_unary(of_row)?;
    Ok(Arc::new(results))
}

/// # Errors
/// 2201E where there is no logarithm.
fn logarithm(x: f64, of: fn(f64) -> f64) -> Result<f64, SqlError> {
    match x {
        0.0 => Err(SqlError::new("2201E", "cannot take logarithm of zero")),
        x if x < 0.0 => Err(SqlError::new("2201E", "cannot take logarithm of a negative number")),
        x => Ok(of(x)),
    }
}

fn square_root(x: f64) -> Result<f64, SqlError> {
    match x < 0.0 {
        true => Err(SqlError::new("2201F", "cannot take square root of a negative number")),
        false => Ok(x.sqrt()),
    }
}

fn exponential(x: f64) -> Result<f64, SqlError> {
    match x.exp() {
        result if result.is_infinite() && x.is_finite() => Err(SqlError::new("22003", "value out of range: overflow")),
        0.0 if x.is_finite() => Err(SqlError::new("22003", "value out of range: underflow")),
        result => Ok(result),
    }
}

/// # Errors
/// 22003 where there is no angle.
fn angle(x: f64, of: fn(f64) -> f64) -> Result<f64, SqlError> {
    match x.abs() > 1.0 {
        true => Err(SqlError::new("22003", "input is out of range")),
        false => Ok(of(x)),
    }
}

/// log (x) to the base 10, and log (base, x).
fn logs(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let [bases, numbers] = args else { return each(args, |x| logarithm(x, f64::log10)) };
    let (bases, numbers) = (bases.as_primitive::<Float64Type>(), numbers.as_primitive::<Float64Type>());
    let log = |base, x| match (logarithm(base, f64::ln)?, logarithm(x, f64::ln)?) {
        (0.0, _) => Err(SqlError::new("22012", "division by zero")),
        _ => Ok(x.log(base)),
    };
    let of_row = |base, x| log(base, x).map_err(|error| ArrowError::from_external_error(error.into()));
    let logs: Float64Array = try_binary(bases, numbers, of_row)?;
    Ok(Arc::new(logs))
}

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition { name: "power", types, body: powers },
    Definition { name: "pow", types, body: powers },
    Definition { name: "sqrt", types: of_one, body: |args| each(args, square_root) },
    Definition { name: "acos", types: of_one, body: |args| each(args, |x| angle(x, f64::acos)) },
    Definition { name: "asin", types: of_one, body: |args| each(args, |x| angle(x, f64::asin)) },
    Definition { name: "exp", types: of_one, body: |args| each(args, exponential) },
    Definition { name: "ln", types: of_one, body: |args| each(args, |x| logarithm(x, f64::ln)) },
    Definition { name: "log10", types: of_one, body: |args| each(args, |x| logarithm(x, f64::log10)) },
    Definition { name: "log", types: |given| of_one(given).or_else(|| types(given)), body: logs },
];
