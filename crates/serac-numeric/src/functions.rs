//! Functions of numbers.
//!
//! Roots, logarithms and exponentials are computed in binary fixed point: a whole number, some of
//! whose bits stand behind the point. Their number is chosen so that the result is exact to some 10
//! digits more than it shows. PostgreSQL's estimates choose the digits that a result shows. They
//! are kept as they are, with their roundings of floats.

use crate::integer::{Integer, power_of_ten};
use crate::{Finite, LEAST_SIGNIFICANT, MOST_DISPLAY_SCALE, MOST_WHOLE_DIGITS, Numeric, NumericError, Result};
use num_bigint::BigInt;
use num_traits::{One, Signed, Zero};
use std::cmp::Ordering;

/// Digits that are computed and not shown.
const GUARD_DIGITS: i64 = 12;
/// Bits of a decimal digit, a little more.
const BITS_OF_DIGIT: f64 = 3.322;
/// PostgreSQL's limit of exponents: larger ones are an overflow, those below its negative give 0.
const MOST_EXPONENT: f64 = 6000.0;
/// PostgreSQL's value, so that estimates are rounded alike.
#[allow(clippy::approx_constant)]
const LOG10_E: f64 = 0.434_294_481_903_252;

/// The scale of a result, within its limits.
fn display_scale(scale: i64) -> u32 {
    u32::try_from(scale.clamp(0, MOST_DISPLAY_SCALE)).unwrap_or(0)
}

/// The number of bits of this many decimal digits.
fn bits_of(digits: i64) -> u64 {
    (digits.max(1) as f64 * BITS_OF_DIGIT).ceil() as u64
}

/// A number as a fixed point one with this many bits behind the point.
fn fixed(number: &Finite, bits: u64) -> BigInt {
    (number.unscaled.to_big() << bits) / power_of_ten(number.scale)
}

/// A fixed point number with `scale` decimal digits, halves away from zero.
fn decimal(fixed: &BigInt, bits: u64, scale: u32) -> Finite {
    let scaled = fixed.abs() * power_of_ten(scale);
    let half = BigInt::one() << (bits - 1);
    let rounded: BigInt = (scaled + half) >> bits;
    Finite::new(Integer::from(if fixed.is_negative() { -rounded } else { rounded }), scale)
}

/// `atanh(above / below)` in fixed point, for quotients of at most a third.
fn inverse_tangent(above: &BigInt, below: &BigInt, bits: u64) -> BigInt {
    let quotient: BigInt = (above << bits) / below;
    let square: BigInt = (&quotient * &quotient) >> bits;
    let (mut sum, mut power) = (quotient.clone(), quotient);
    let mut divisor = 1u64;
    loop {
        power = (power * &square) >> bits;
        divisor += 2;
        let term = &power / divisor;
        if term.is_zero() || term == -BigInt::one() {
            return sum;
        }
        sum += term;
    }
}

/// The natural logarithm of a number greater than 0, with `scale` digits behind the point.
fn logarithm(number: &Finite, scale: i64) -> Finite {
    // number = mantissa * 2^power, the mantissa about 1.
    let (above, below) = (number.unscaled.to_big(), power_of_ten(number.scale));
    let mut power = i64::try_from(above.bits()).unwrap_or(0) - i64::try_from(below.bits()).unwrap_or(0);
    let shift = |power: i64| match u64::try_from(power) {
        Ok(power) => (above.clone(), &below << power),
        Err(_) => (&above << power.unsigned_abs(), below.clone()),
    };
    let (mut above_one, mut below_one) = shift(power);
    // Within 3/4 to 3/2; then its logarithm is 2 atanh((m - 1) / (m + 1)).
    if &above_one * 4 < &below_one * 3 {
        power -= 1;
        (above_one, below_one) = shift(power);
    } else if &above_one * 2 > &below_one * 3 {
        power += 1;
        (above_one, below_one) = shift(power);
    }
    let bits = bits_of(scale.max(0) + GUARD_DIGITS) + 32;
    let mut sum = inverse_tangent(&(&above_one - &below_one), &(&above_one + &below_one), bits) << 1;
    if power != 0 {
        let two = inverse_tangent(&BigInt::one(), &BigInt::from(3), bits) << 1;
        sum += two * power;
    }
    decimal(&sum, bits, u32::try_from(scale.max(0)).unwrap_or(0))
}

/// The power of ten of the first digit of a number's natural logarithm, about.
fn logarithm_exponent(number: &Finite) -> i64 {
    if number.unscaled.signum() <= 0 {
        return 0;
    }
    let tenths = |tenths: i128| Finite::new(Integer::from(tenths), 1);
    if number.compare(&tenths(9)) != Ordering::Less && number.compare(&tenths(11)) != Ordering::Greater {
        let rest = number.minus(&tenths(10));
        return rest.exponent();
    }
    let groups = f64::from(number.first_groups().1);
    let logarithm = groups.ln() + ((number.weight() - 1) * 4) as f64 * std::f64::consts::LN_10;
    logarithm.abs().log10() as i64
}

/// A number as a float, infinite if it is too large.
fn approximate(number: &Finite) -> f64 {
    number.to_string().parse().unwrap_or(0.0)
}

/// e to the power of a number, with `scale` digits behind the point.
fn exponential(number: &Finite, scale: u32) -> Result<Finite> {
    let value = approximate(number);
    if value.abs() >= MOST_EXPONENT {
        return match value > 0.0 {
            true => Err(NumericError::overflow()),
            false => Ok(Finite::new(Integer::from(0i64), scale)),
        };
    }
    // e^x = (e^(x / 2^halvings))^(2^halvings), the exponent of the inner one small.
    let halvings = if value.abs() > 0.01 { (value.abs() / 0.01).log2().ceil() as u32 } else { 0 };
    let whole_digits = (value * LOG10_E).max(0.0) as i64 + 1;
    let digits = i64::from(scale) + whole_digits + i64::from(halvings) + GUARD_DIGITS;
    let bits = bits_of(digits);
    let small = fixed(number, bits) >> halvings;
    let one = BigInt::one() << bits;
    let (mut sum, mut term) = (&one + &small, small.clone());
    let mut divisor = 1u64;
    loop {
        divisor += 1;
        term = ((term * &small) >> bits) / divisor;
        if term.is_zero() || term == -BigInt::one() {
            break;
        }
        sum += &term;
    }
    for _ in 0..halvings {
        sum = (&sum * &sum) >> bits;
    }
    Ok(decimal(&sum, bits, scale))
}

/// A whole number that fits into 32 bits; `None` for another number.
fn as_i32(number: &Finite) -> Option<i32> {
    if !number.is_whole() {
        return None;
    }
    i32::try_from(number.truncated(0).unscaled.small()?).ok()
}

fn of_negative() -> NumericError {
    NumericError::new(sqlstate::INVALID_ARGUMENT_FOR_LOGARITHM, "cannot take logarithm of a negative number")
}

fn of_zero() -> NumericError {
    NumericError::new(sqlstate::INVALID_ARGUMENT_FOR_LOGARITHM, "cannot take logarithm of zero")
}

/// Checks that a number has a logarithm.
fn has_logarithm(number: &Finite) -> Result<()> {
    match number.unscaled.signum() {
        0 => Err(of_zero()),
        1.. => Ok(()),
        _ => Err(of_negative()),
    }
}

/// `base ^ exponent`, where the exponent is whole.
fn whole_power(base: &Finite, exponent: i32) -> Result<Finite> {
    let scale = display_scale(LEAST_SIGNIFICANT.max(i64::from(base.scale)));
    let one = Finite::new(Integer::from(1i64), 0);
    match exponent {
        0 => return Ok(one.rounded(i64::from(scale))),
        1 => return Ok(base.rounded(i64::from(scale))),
        2 => return Ok(base.times(base).rounded(i64::from(scale))),
        _ => {}
    }
    if base.unscaled.is_zero() {
        return match exponent < 0 {
            true => Err(NumericError::division_by_zero()),
            false => Ok(Finite::new(Integer::from(0i64), scale)),
        };
    }
    if exponent == -1 {
        return Ok(one.divided(base, scale, true));
    }
    // The power of ten of the result, about.
    let dropped = base.unscaled.digits().saturating_sub(16);
    let first = base.unscaled.magnitude_without(dropped) as f64;
    let exponent_of_result = f64::from(exponent) * (first.log10() + f64::from(dropped) - f64::from(base.scale));
    if exponent_of_result > 3.0 * MOST_WHOLE_DIGITS as f64 {
        return Err(NumericError::overflow());
    }
    if exponent_of_result + 1.0 < -f64::from(scale) {
        return Ok(Finite::new(Integer::from(0i64), scale));
    }
    // The digits of the result, those that the products' errors may reach, and some more.
    let significant = 1 + i64::from(scale) + exponent_of_result as i64 + f64::from(exponent).abs().ln() as i64 + 8;
    let product = |left: &Finite, right: &Finite| {
        let exact = left.times(right);
        let places = significant - (left.weight() + right.weight()) * 4;
        exact.rounded(places.min(i64::from(exact.scale)).max(0))
    };
    let mut rest = exponent.unsigned_abs();
    let mut square = base.clone();
    let mut result = if rest & 1 == 1 { base.clone() } else { one.clone() };
    rest >>= 1;
    while rest > 0 {
        square = product(&square, &square);
        if rest & 1 == 1 {
            result = product(&square, &result);
        }
        rest >>= 1;
        if square.exponent() >= MOST_WHOLE_DIGITS || result.exponent() >= MOST_WHOLE_DIGITS {
            return match exponent < 0 {
                true => Ok(Finite::new(Integer::from(0i64), scale)),
                false => Err(NumericError::overflow()),
            };
        }
    }
    Ok(match exponent < 0 {
        true if result.unscaled.is_zero() => return Err(NumericError::overflow()),
        true => one.divided(&result, scale, true),
        false => result.rounded(i64::from(scale)),
    })
}

/// `base ^ exponent`.
fn power(base: &Finite, exponent: &Finite) -> Result<Finite> {
    if let Some(whole) = as_i32(exponent) {
        return whole_power(base, whole);
    }
    if base.unscaled.is_zero() {
        return Ok(Finite::new(Integer::from(0i64), display_scale(LEAST_SIGNIFICANT)));
    }
    let is_negative = base.unscaled.signum() < 0;
    if is_negative && !exponent.is_whole() {
        return Err(complex());
    }
    let is_odd = exponent.truncated(0).unscaled.is_odd();
    let base = Finite::new(base.unscaled.absolute(), base.scale);
    let exponent_of_logarithm = logarithm_exponent(&base);
    let times = |scale: i64| logarithm(&base, scale).times(exponent).rounded(scale);
    let mut value = approximate(&times((8 - exponent_of_logarithm).max(0)));
    if value.abs() > MOST_EXPONENT + 20.0 {
        return match value > 0.0 {
            true => Err(NumericError::overflow()),
            false => Ok(Finite::new(Integer::from(0i64), display_scale(MOST_DISPLAY_SCALE))),
        };
    }
    value *= LOG10_E;
    let chosen = LEAST_SIGNIFICANT - value as i64;
    let scale = display_scale(chosen.max(i64::from(base.scale)).max(i64::from(exponent.scale)));
    let significant = (i64::from(scale) + value as i64).max(0);
    let result = exponential(&times((significant - exponent_of_logarithm + 8).max(0)), scale)?;
    Ok(if is_negative && is_odd { Finite::new(result.unscaled.negated(), scale) } else { result })
}

fn complex() -> NumericError {
    NumericError::new(
        sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
        "a negative number raised to a non-integer power yields a complex result",
    )
}

fn one() -> Numeric {
    Numeric::from_integer(1)
}

impl Numeric {
    /// `sqrt(self)`.
    ///
    /// # Errors
    /// 2201F if it is negative.
    pub fn square_root(&self) -> Result<Self> {
        match self {
            Self::NaN | Self::Infinity => Ok(self.clone()),
            Self::Finite(finite) if finite.unscaled.signum() >= 0 => {
                let chosen = LEAST_SIGNIFICANT - (finite.weight() * 2 + 1);
                let scale = display_scale(chosen.max(i64::from(finite.scale)));
                finite.square_root(scale).checked()
            }
            _ => Err(NumericError::new(
                sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
                "cannot take square root of a negative number",
            )),
        }
    }

    /// `exp(self)`.
    ///
    /// # Errors
    /// 22003 if the result is too large.
    pub fn exponential(&self) -> Result<Self> {
        match self {
            Self::NegativeInfinity => Ok(Self::zero(0)),
            Self::Finite(finite) => {
                let most = (MOST_DISPLAY_SCALE * 2) as f64;
                let value = (approximate(finite) * LOG10_E).clamp(-most, most);
                let scale = display_scale((LEAST_SIGNIFICANT - value as i64).max(i64::from(finite.scale)));
                exponential(finite, scale)?.checked()
            }
            _ => Ok(self.clone()),
        }
    }

    /// `ln(self)`.
    ///
    /// # Errors
    /// 2201E if it is not greater than 0.
    pub fn logarithm(&self) -> Result<Self> {
        match self {
            Self::NaN | Self::Infinity => Ok(self.clone()),
            Self::NegativeInfinity => Err(of_negative()),
            Self::Finite(finite) => {
                has_logarithm(finite)?;
                let chosen = LEAST_SIGNIFICANT - logarithm_exponent(finite);
                let scale = display_scale(chosen.max(i64::from(finite.scale)));
                logarithm(finite, i64::from(scale)).checked()
            }
        }
    }

    /// `log(base, self)`.
    ///
    /// # Errors
    /// 2201E if one is not greater than 0, 22012 if the base is 1.
    pub fn logarithm_of_base(&self, base: &Self) -> Result<Self> {
        let (Self::Finite(base), Self::Finite(number)) = (base, self) else {
            let (Some(left), Some(right)) = (base.signum(), self.signum()) else { return Ok(Self::NaN) };
            return match (left, right) {
                (-1, _) | (_, -1) => Err(of_negative()),
                (0, _) | (_, 0) => Err(of_zero()),
                _ => Ok(match (base, self) {
                    (Self::Infinity, Self::Infinity) => Self::NaN,
                    (Self::Infinity, _) => Self::zero(0),
                    _ => Self::Infinity,
                }),
            };
        };
        let (of_base, of_number) = (logarithm_exponent(base), logarithm_exponent(number));
        let of_result = of_number - of_base;
        let chosen = (LEAST_SIGNIFICANT - of_result).max(i64::from(base.scale)).max(i64::from(number.scale));
        let scale = display_scale(chosen);
        let scale_of = |exponent: i64| (i64::from(scale) + of_result - exponent + 8).max(0);
        has_logarithm(base)?;
        let base = logarithm(base, scale_of(of_base));
        has_logarithm(number)?;
        let number = logarithm(number, scale_of(of_number));
        if base.unscaled.is_zero() {
            return Err(NumericError::division_by_zero());
        }
        number.divided(&base, scale, true).checked()
    }

    /// `power(self, exponent)`.
    ///
    /// # Errors
    /// 2201F if there is no real result, 22003 if it is too large.
    pub fn power(&self, exponent: &Self) -> Result<Self> {
        let undefined = || {
            NumericError::new(
                sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
                "zero raised to a negative power is undefined",
            )
        };
        if let (Self::Finite(base), Self::Finite(exponent)) = (self, exponent) {
            if base.unscaled.is_zero() && exponent.unscaled.signum() < 0 {
                return Err(undefined());
            }
            return power(base, exponent)?.checked();
        }
        let (Some(sign), Some(exponent_sign)) = (self.signum(), exponent.signum()) else {
            let is_one = exponent.signum() == Some(0) || *self == one();
            return Ok(if is_one { one() } else { Self::NaN });
        };
        if sign == 0 && exponent_sign < 0 {
            return Err(undefined());
        }
        if sign < 0 && exponent.finite().is_some_and(|finite| !finite.is_whole()) {
            return Err(complex());
        }
        if *self == one() || exponent_sign == 0 {
            return Ok(one());
        }
        if sign == 0 {
            return Ok(Self::zero(0));
        }
        let Self::Finite(exponent) = exponent else {
            let magnitude = self.absolute();
            return Ok(match magnitude.cmp(&one()) {
                Ordering::Equal => one(),
                order if (order == Ordering::Greater) == (exponent_sign > 0) => Self::Infinity,
                _ => Self::zero(0),
            });
        };
        Ok(match (self, exponent_sign > 0) {
            (_, false) => Self::zero(0),
            (Self::NegativeInfinity, _) if exponent.is_whole() && exponent.truncated(0).unscaled.is_odd() => {
                Self::NegativeInfinity
            }
            _ => Self::Infinity,
        })
    }

    /// `gcd(self, other)`.
    ///
    /// # Errors
    /// 22003 if it is too long.
    pub fn greatest_common_divisor(&self, other: &Self) -> Result<Self> {
        let (Self::Finite(left), Self::Finite(right)) = (self, other) else { return Ok(Self::NaN) };
        left.greatest_common_divisor(right).checked()
    }

    /// `lcm(self, other)`.
    ///
    /// # Errors
    /// 22003 if it is too long.
    pub fn least_common_multiple(&self, other: &Self) -> Result<Self> {
        let (Self::Finite(left), Self::Finite(right)) = (self, other) else { return Ok(Self::NaN) };
        let scale = left.scale.max(right.scale);
        if left.unscaled.is_zero() || right.unscaled.is_zero() {
            return Ok(Self::zero(scale));
        }
        let divisor = left.greatest_common_divisor(right);
        let multiple = left.divided(&divisor, 0, false).times(right);
        Finite::new(multiple.unscaled.absolute(), multiple.scale).rounded(i64::from(scale)).checked()
    }

    /// `factorial(of)`.
    ///
    /// # Errors
    /// 22003 if `of` is negative, or the factorial is too large.
    pub fn factorial(of: i64) -> Result<Self> {
        if of < 0 {
            return Err(NumericError::new(
                sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
                "factorial of a negative number is undefined",
            ));
        }
        if of > 32_177 {
            return Err(NumericError::overflow());
        }
        /// The product of whole numbers from `low` to `high`, by halves, so that factors are alike.
        fn product(low: u64, high: u64) -> BigInt {
            match high.saturating_sub(low) {
                0 => BigInt::from(high),
                distance if distance < 16 => (low..=high).product(),
                distance => {
                    let middle = low + distance / 2;
                    product(low, middle) * product(middle + 1, high)
                }
            }
        }
        let of = u64::try_from(of).unwrap_or(0);
        Finite::new(Integer::from(if of < 2 { BigInt::one() } else { product(1, of) }), 0).checked()
    }

    /// `width_bucket(self, low, high, count)`.
    ///
    /// # Errors
    /// 2201G for bounds and counts that make no buckets; 22003 if the result does not fit.
    pub fn width_bucket(&self, low: &Self, high: &Self, count: i32) -> Result<i32> {
        let wrong = |message| NumericError::new(sqlstate::INVALID_ARGUMENT_FOR_WIDTH_BUCKET_FUNCTION, message);
        let too_large = || NumericError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range");
        if count <= 0 {
            return Err(wrong("count must be greater than zero"));
        }
        if self.is_nan() || low.is_nan() || high.is_nan() {
            return Err(wrong("operand, lower bound, and upper bound cannot be NaN"));
        }
        let (Self::Finite(from), Self::Finite(to)) = (low, high) else {
            return Err(wrong("lower and upper bounds must be finite"));
        };
        let order = low.cmp(high);
        if order == Ordering::Equal {
            return Err(wrong("lower bound cannot equal upper bound"));
        }
        if self.cmp(low) == order {
            return Ok(0);
        }
        if self.cmp(high) != order {
            return count.checked_add(1).ok_or_else(too_large);
        }
        let Self::Finite(operand) = self else { return Ok(0) };
        let (distance, width) = (operand.minus(from), to.minus(from));
        let all = Finite::new(Integer::from(i128::from(count)), 0);
        let above = distance.times(&all);
        let quotient = above.divided(&width, above.quotient_scale(&width), true);
        let bucket = quotient.truncated(0).unscaled.small().and_then(|bucket| i32::try_from(bucket).ok());
        bucket.and_then(|bucket| bucket.checked_add(1)).ok_or_else(too_large)
    }
}

impl Finite {
    /// The square root of a number that is not negative, with `scale` digits behind the point.
    pub(crate) fn square_root(&self, scale: u32) -> Self {
        // One digit more decides how the last one is rounded.
        let wanted = 2 * (scale + 1);
        let square = match wanted.checked_sub(self.scale) {
            Some(zeros) => self.unscaled.shifted(zeros),
            None => self.unscaled.truncated(self.scale - wanted),
        };
        Self::new(square.square_root().rounded(1), scale)
    }

    fn greatest_common_divisor(&self, other: &Self) -> Self {
        let scale = self.scale.max(other.scale);
        let (left, right) = (self.rounded(i64::from(scale)), other.rounded(i64::from(scale)));
        Self::new(left.unscaled.greatest_common_divisor(&right.unscaled), scale)
    }
}
