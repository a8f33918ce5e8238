//! Powers, roots, logarithms and arcs, which fail where DataFusion's give NaN or infinity for
//! numbers that are neither.

use super::definition::{Definition, Types};
use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array};
use datafusion::arrow::compute::try_binary;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::arrow::error::ArrowError;
use serac_values::SqlError;
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
        return error(sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION, "zero raised to a negative power is undefined");
    }
    // Infinite exponents are even numbers, as large floats are.
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        return error(
            sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
            "a negative number raised to a non-integer power yields a complex result",
        );
    }
    let power = base.powf(exponent);
    if power.is_infinite() && base.is_finite() && exponent.is_finite() {
        return error(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow");
    }
    if power == 0.0 && base != 0.0 && base.is_finite() && exponent.is_finite() {
        return error(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow");
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
        0.0 => Err(SqlError::new(sqlstate::INVALID_ARGUMENT_FOR_LOGARITHM, "cannot take logarithm of zero")),
        x if x < 0.0 => {
            Err(SqlError::new(sqlstate::INVALID_ARGUMENT_FOR_LOGARITHM, "cannot take logarithm of a negative number"))
        }
        x => Ok(of(x)),
    }
}

fn square_root(x: f64) -> Result<f64, SqlError> {
    match x < 0.0 {
        true => Err(SqlError::new(
            sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
            "cannot take square root of a negative number",
        )),
        false => Ok(x.sqrt()),
    }
}

fn exponential(x: f64) -> Result<f64, SqlError> {
    match x.exp() {
        result if result.is_infinite() && x.is_finite() => {
            Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"))
        }
        0.0 if x.is_finite() => {
            Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow"))
        }
        result => Ok(result),
    }
}

/// # Errors
/// 22003 where there is no angle.
fn angle(x: f64, of: fn(f64) -> f64) -> Result<f64, SqlError> {
    match x.abs() > 1.0 {
        true => Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")),
        false => Ok(of(x)),
    }
}

/// log (x) to the base 10, and log (base, x).
fn logs(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let [bases, numbers] = args else { return each(args, |x| logarithm(x, f64::log10)) };
    let (bases, numbers) = (bases.as_primitive::<Float64Type>(), numbers.as_primitive::<Float64Type>());
    let log = |base, x| match (logarithm(base, f64::ln)?, logarithm(x, f64::ln)?) {
        (0.0, _) => Err(SqlError::new(sqlstate::DIVISION_BY_ZERO, "division by zero")),
        _ => Ok(x.log(base)),
    };
    let of_row = |base, x| log(base, x).map_err(|error| ArrowError::from_external_error(error.into()));
    let logs: Float64Array = try_binary(bases, numbers, of_row)?;
    Ok(Arc::new(logs))
}

/// # Errors
/// 22003 where the angle is infinite.
fn of_angle(x: f64, of: fn(f64) -> f64) -> Result<f64, SqlError> {
    match x.is_infinite() {
        true => Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")),
        false => Ok(of(x)),
    }
}

/// # Errors
/// 22003 for an overflow or an underflow.
fn in_range(x: f64, of: fn(f64) -> f64) -> Result<f64, SqlError> {
    match of(x) {
        result if result.is_infinite() && x.is_finite() => {
            Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"))
        }
        0.0 if x != 0.0 => Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow")),
        result => Ok(result),
    }
}

fn area_cosine(x: f64) -> Result<f64, SqlError> {
    match x < 1.0 {
        true => Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")),
        false => Ok(x.acosh()),
    }
}

/// Functions of angles in degrees, which are exact if their results are. As in PostgreSQL, the
/// functions of radians are divided by their values for 30, 45 and 60 degrees.
mod degrees {
    use std::sync::LazyLock;

    struct Known {
        sin_30: f64,
        one_minus_cos_60: f64,
        asin_half: f64,
        acos_half: f64,
        atan_1: f64,
        tan_45: f64,
        cot_45: f64,
    }

    // As they are computed at run time, not as the compiler would.
    static KNOWN: LazyLock<Known> = LazyLock::new(|| {
        let of = std::hint::black_box::<f64>;
        let mut known = Known {
            sin_30: of(30.0).to_radians().sin(),
            one_minus_cos_60: 1.0 - of(60.0).to_radians().cos(),
            asin_half: of(0.5).asin(),
            acos_half: of(0.5).acos(),
            atan_1: of(1.0).atan(),
            tan_45: 1.0,
            cot_45: 1.0,
        };
        known.tan_45 = known.sin(45.0) / known.cos(45.0);
        known.cot_45 = known.cos(45.0) / known.sin(45.0);
        known
    });

    impl Known {
        fn small_sin(&self, x: f64) -> f64 {
            x.to_radians().sin() / self.sin_30 / 2.0
        }

        fn small_cos(&self, x: f64) -> f64 {
            1.0 - (1.0 - x.to_radians().cos()) / self.one_minus_cos_60 / 2.0
        }

        /// Up to 90 degrees.
        fn sin(&self, x: f64) -> f64 {
            if x <= 30.0 { self.small_sin(x) } else { self.small_cos(90.0 - x) }
        }

        fn cos(&self, x: f64) -> f64 {
            if x <= 60.0 { self.small_cos(x) } else { self.small_sin(90.0 - x) }
        }
    }

    /// An angle between 0 and 90, and the signs that the sine, the cosine and the tangent have of
    /// the one that it stands for.
    fn first_quadrant(x: f64) -> (f64, f64, f64, f64) {
        let (mut angle, mut sine, mut cosine) = (x % 360.0, 1.0, 1.0);
        if angle < 0.0 {
            (angle, sine) = (-angle, -sine);
        }
        if angle > 180.0 {
            (angle, sine) = (360.0 - angle, -sine);
        }
        if angle > 90.0 {
            (angle, cosine) = (180.0 - angle, -cosine);
        }
        (angle, sine, cosine, sine * cosine)
    }

    pub(super) fn sin(x: f64) -> f64 {
        let (angle, sign, ..) = first_quadrant(x);
        sign * KNOWN.sin(angle)
    }

    pub(super) fn cos(x: f64) -> f64 {
        let (angle, _, sign, _) = first_quadrant(x);
        sign * KNOWN.cos(angle)
    }

    /// Without the sign of a zero.
    fn plain(x: f64) -> f64 {
        if x == 0.0 { 0.0 } else { x }
    }

    pub(super) fn tan(x: f64) -> f64 {
        let (angle, _, _, sign) = first_quadrant(x);
        plain(sign * (KNOWN.sin(angle) / KNOWN.cos(angle) / KNOWN.tan_45))
    }

    pub(super) fn cot(x: f64) -> f64 {
        let (angle, _, _, sign) = first_quadrant(x);
        plain(sign * (KNOWN.cos(angle) / KNOWN.sin(angle) / KNOWN.cot_45))
    }

    fn positive_asin(x: f64) -> f64 {
        if x <= 0.5 { x.asin() / KNOWN.asin_half * 30.0 } else { 90.0 - x.acos() / KNOWN.acos_half * 60.0 }
    }

    pub(super) fn asin(x: f64) -> f64 {
        if x >= 0.0 { positive_asin(x) } else { -positive_asin(-x) }
    }

    pub(super) fn acos(x: f64) -> f64 {
        let positive = |x: f64| match x <= 0.5 {
            true => 90.0 - x.asin() / KNOWN.asin_half * 30.0,
            false => x.acos() / KNOWN.acos_half * 60.0,
        };
        if x >= 0.0 { positive(x) } else { 90.0 + positive_asin(-x) }
    }

    pub(super) fn atan(x: f64) -> f64 {
        x.atan() / KNOWN.atan_1 * 45.0
    }

    pub(super) fn atan2(y: f64, x: f64) -> f64 {
        y.atan2(x) / KNOWN.atan_1 * 45.0
    }
}

fn arc_of_two(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let (ys, xs) = (args[0].as_primitive::<Float64Type>(), args[1].as_primitive::<Float64Type>());
    let angles: Float64Array = datafusion::arrow::compute::binary(ys, xs, degrees::atan2)?;
    Ok(Arc::new(angles))
}

/// 1, -1, or 0 of a zero and of NaN.
fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        0.0
    }
}

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition { name: "power", types, body: powers },
    Definition { name: "pow", types, body: powers },
    Definition { name: "sqrt", types: of_one, body: |args| each(args, square_root) },
    Definition { name: "acos", types: of_one, body: |args| each(args, |x| angle(x, f64::acos)) },
    Definition { name: "asin", types: of_one, body: |args| each(args, |x| angle(x, f64::asin)) },
    Definition { name: "sign", types: of_one, body: |args| each(args, |x| Ok(sign(x))) },
    Definition { name: "exp", types: of_one, body: |args| each(args, exponential) },
    Definition { name: "ln", types: of_one, body: |args| each(args, |x| logarithm(x, f64::ln)) },
    Definition { name: "log10", types: of_one, body: |args| each(args, |x| logarithm(x, f64::log10)) },
    Definition { name: "sin", types: of_one, body: |args| each(args, |x| of_angle(x, f64::sin)) },
    Definition { name: "cos", types: of_one, body: |args| each(args, |x| of_angle(x, f64::cos)) },
    Definition { name: "tan", types: of_one, body: |args| each(args, |x| of_angle(x, f64::tan)) },
    Definition { name: "cot", types: of_one, body: |args| each(args, |x| of_angle(x, |x| 1.0 / x.tan())) },
    Definition { name: "acosh", types: of_one, body: |args| each(args, area_cosine) },
    Definition { name: "atanh", types: of_one, body: |args| each(args, |x| angle(x, f64::atanh)) },
    Definition { name: "degrees", types: of_one, body: |args| each(args, |x| in_range(x, f64::to_degrees)) },
    Definition { name: "radians", types: of_one, body: |args| each(args, |x| in_range(x, f64::to_radians)) },
    Definition { name: "sind", types: of_one, body: |args| each(args, |x| of_angle(x, degrees::sin)) },
    Definition { name: "cosd", types: of_one, body: |args| each(args, |x| of_angle(x, degrees::cos)) },
    Definition { name: "tand", types: of_one, body: |args| each(args, |x| of_angle(x, degrees::tan)) },
    Definition { name: "cotd", types: of_one, body: |args| each(args, |x| of_angle(x, degrees::cot)) },
    Definition { name: "asind", types: of_one, body: |args| each(args, |x| angle(x, degrees::asin)) },
    Definition { name: "acosd", types: of_one, body: |args| each(args, |x| angle(x, degrees::acos)) },
    Definition { name: "atand", types: of_one, body: |args| each(args, |x| Ok(degrees::atan(x))) },
    Definition { name: "atan2d", types, body: arc_of_two },
    Definition { name: "log", types: |given| of_one(given).or_else(|| types(given)), body: logs },
];
