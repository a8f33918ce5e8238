//! div, gcd, lcm and width_bucket.

use super::definition::{Definition, Types};
use crate::sql_result::SqlResult;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int32Array, Int64Array};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, DecimalType, Float64Type, Int32Type, Int64Type, i256};
use serac_values::SqlError;
use std::sync::Arc;

const DIGITS: u8 = 38;

fn out_of_range(what: &str) -> SqlError {
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, format!("{what} out of range"))
}

/// The decimal type of integers and decimals alike; `None` for other types. NULL is of any type.
fn decimal(given: &[DataType]) -> Option<DataType> {
    let mut most = 0;
    for argument in given {
        match argument {
            DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => {
                most = most.max(*scale);
            }
            _ if argument.is_integer() || argument.is_null() => {}
            _ => return None,
        }
    }
    Some(DataType::Decimal128(DIGITS, most))
}

fn two_integers_or_decimals(given: &[DataType]) -> Option<Types> {
    if given.len() != 2 {
        return None;
    }
    let is_short = |t: &DataType| matches!(t, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8);
    let common = match given {
        _ if given.iter().all(|t| is_short(t) || t.is_null()) && given.iter().any(is_short) => DataType::Int32,
        _ if given.iter().all(|t| t.is_integer() || t.is_null()) => DataType::Int64,
        _ => decimal(given)?,
    };
    Some((vec![common.clone(); 2], common))
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b > 0 {
        (a, b) = (b, a % b);
    }
    // The arguments are decimals of 38 digits at the most.
    a as i128
}
fn lcm(a: i128, b: i128) -> Option<i128> {
    if a == 0 || b == 0 { Some(0) } else { (a / gcd(a, b)).checked_mul(b)?.checked_abs() }
}

/// Applies `f` to two integers or decimals of one scale. If `f` returns `None`, the value is out of
/// range.
fn whole(args: &[ArrayRef], f: impl Fn(i128, i128) -> Option<i128>) -> SqlResult<ArrayRef> {
    let (left, right) = (&args[0], &args[1]);
    Ok(match left.data_type() {
        DataType::Int32 => {
            let pairs = left.as_primitive::<Int32Type>().iter().zip(right.as_primitive::<Int32Type>());
            let one = |a: i32, b: i32| f(a.into(), b.into()).and_then(|v| i32::try_from(v).ok());
            let results =
                pairs.map(|(a, b)| a.zip(b).map(|(a, b)| one(a, b).ok_or(out_of_range("integer"))).transpose());
            Arc::new(results.collect::<SqlResult<Int32Array>>()?)
        }
        DataType::Int64 => {
            let pairs = left.as_primitive::<Int64Type>().iter().zip(right.as_primitive::<Int64Type>());
            let one = |a: i64, b: i64| f(a.into(), b.into()).and_then(|v| i64::try_from(v).ok());
            let results =
                pairs.map(|(a, b)| a.zip(b).map(|(a, b)| one(a, b).ok_or(out_of_range("bigint"))).transpose());
            Arc::new(results.collect::<SqlResult<Int64Array>>()?)
        }
        _ => {
            let pairs = left.as_primitive::<Decimal128Type>().iter().zip(right.as_primitive::<Decimal128Type>());
            let fits = |v: &i128| Decimal128Type::is_valid_decimal_precision(*v, DIGITS);
            let one = |a, b| f(a, b).filter(fits).ok_or(out_of_range("numeric"));
            let results = pairs.map(|(a, b)| a.zip(b).map(|(a, b)| one(a, b)).transpose());
            let numbers = results.collect::<SqlResult<Decimal128Array>>()?;
            Arc::new(numbers.with_data_type(left.data_type().clone()))
        }
    })
}

fn div(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let [left, right] = [&args[0], &args[1]].map(|array| array.as_primitive::<Decimal128Type>());
    let one = |(a, b): (Option<i128>, Option<i128>)| match (a, b) {
        (Some(_), Some(0)) => Err(SqlError::new(sqlstate::DIVISION_BY_ZERO, "division by zero")),
        (Some(a), Some(b)) => Ok(Some(a / b)),
        _ => Ok(None),
    };
    let quotients: SqlResult<Decimal128Array> = left.iter().zip(right).map(one).collect();
    Ok(Arc::new(quotients?.with_data_type(DataType::Decimal128(DIGITS, 0))))
}

fn bucket_types(given: &[DataType]) -> Option<Types> {
    let [value, low, high, count] = given else { return None };
    if !count.is_integer() && !count.is_null() {
        return None;
    }
    let bounds = [value.clone(), low.clone(), high.clone()];
    let common = match decimal(&bounds) {
        Some(common) => common,
        None if bounds.iter().all(|t| t.is_numeric() || t.is_null()) => DataType::Float64,
        None => return None,
    };
    Some((vec![common.clone(), common.clone(), common, DataType::Int32], DataType::Int32))
}

fn invalid(message: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_ARGUMENT_FOR_WIDTH_BUCKET_FUNCTION, message)
}

fn float_bucket([value, low, high]: [f64; 3], count: i32) -> SqlResult<i64> {
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return Err(invalid("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(invalid("lower and upper bounds must be finite"));
    }
    // Downwards it is upwards with all signs changed.
    let (value, low, high) = if low > high { (-value, -low, -high) } else { (value, low, high) };
    let count = i64::from(count);
    Ok(match value {
        _ if low == high => return Err(invalid("lower bound cannot equal upper bound")),
        value if value < low => 0,
        value if value >= high => count + 1,
        value => {
            let share = match high - low {
                width if width.is_finite() => (value - low) / width,
                _ => (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0),
            };
            // The quotient may be rounded to 1.
            ((share * count as f64) as i64).min(count - 1) + 1
        }
    })
}

fn decimal_bucket([value, low, high]: [i128; 3], count: i32) -> SqlResult<i64> {
    let (value, low, high) = if low > high { (-value, -low, -high) } else { (value, low, high) };
    Ok(match value {
        _ if low == high => return Err(invalid("lower bound cannot equal upper bound")),
        value if value < low => 0,
        value if value >= high => i64::from(count) + 1,
        value => {
            let wide = i256::from_i128;
            let share = (wide(value) - wide(low)) * wide(count.into()) / (wide(high) - wide(low));
            share.to_i128().and_then(|share| i64::try_from(share).ok()).ok_or(out_of_range("integer"))? + 1
        }
    })
}

fn width_bucket(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let counts = args[3].as_primitive::<Int32Type>();
    let is_float = *args[0].data_type() == DataType::Float64;
    let one = |row: usize| -> SqlResult<i32> {
        let count = counts.value(row);
        if count <= 0 {
            return Err(invalid("count must be greater than zero"));
        }
        let bucket = match is_float {
            true => float_bucket(std::array::from_fn(|i| args[i].as_primitive::<Float64Type>().value(row)), count)?,
            false => {
                decimal_bucket(std::array::from_fn(|i| args[i].as_primitive::<Decimal128Type>().value(row)), count)?
            }
        };
        i32::try_from(bucket).map_err(|_| out_of_range("integer"))
    };
    let results = (0..counts.len()).map(|row| args.iter().all(|a| a.is_valid(row)).then(|| one(row)).transpose());
    Ok(Arc::new(results.collect::<SqlResult<Int32Array>>()?))
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "div",
        types: |given| {
            let common = decimal(given).filter(|_| given.len() == 2)?;
            Some((vec![common; 2], DataType::Decimal128(DIGITS, 0)))
        },
        body: div,
    },
    Definition { name: "gcd", types: two_integers_or_decimals, body: |args| whole(args, |a, b| Some(gcd(a, b))) },
    Definition { name: "lcm", types: two_integers_or_decimals, body: |args| whole(args, lcm) },
    Definition { name: "width_bucket", types: bucket_types, body: width_bucket },
];
