//! PostgreSQL's NUMERIC: decimal numbers, each with a display scale of its own.
//!
//! | module | what |
//! |---|---|
//! | [`integer`] | whole numbers of any size, fast where they fit into 128 bits |
//! | [`text`] | text in and out |
//! | [`arithmetic`] | `+ - * / %`, rounding, comparison |
//! | [`functions`] | `sqrt`, `exp`, `ln`, `log`, `power`, `gcd`, `factorial` and their kin |
//! | [`convert`] | integers, floats and decimals of a fixed scale |
//! | [`encoding`] | stored bytes, keys whose bytes have the order of the numbers, the wire's form |
//! | [`sums`] | `sum`, `avg`, `variance` and `stddev` |
//!
//! The scale of each result is PostgreSQL's. A number has at most 131,072 digits before the point
//! and 16,383 behind it. A number with more is an error (22003).
#![warn(missing_docs)]

pub mod arithmetic;
pub mod convert;
pub mod encoding;
pub mod functions;
pub mod integer;
pub mod sums;
pub mod text;

use integer::Integer;
use std::fmt;

/// Digits behind the point that a number has at most.
pub const MOST_SCALE: u32 = 16_383;
/// Digits before the point that a number has at most.
pub const MOST_WHOLE_DIGITS: i64 = 131_072;
/// Digits behind the point that functions choose at most for a result.
pub(crate) const MOST_DISPLAY_SCALE: i64 = 1000;
/// Significant digits that a quotient has at least.
pub(crate) const LEAST_SIGNIFICANT: i64 = 16;

/// A number.
#[derive(Clone, Debug)]
pub enum Numeric {
    /// Less than all others.
    NegativeInfinity,
    /// A number with digits.
    Finite(Finite),
    /// Greater than all numbers with digits.
    Infinity,
    /// Equal to itself, and greater than all others.
    NaN,
}

/// `unscaled / 10^scale`.
#[derive(Clone, Debug)]
pub struct Finite {
    pub(crate) unscaled: Integer,
    pub(crate) scale: u32,
}

/// The error of a computation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumericError {
    /// Its SQLSTATE.
    pub sqlstate: &'static str,
    /// The message, in PostgreSQL's words.
    pub message: String,
    /// The detail.
    pub detail: Option<String>,
}

impl NumericError {
    pub(crate) fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None }
    }
    pub(crate) fn overflow() -> Self {
        Self::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
    }
    pub(crate) fn division_by_zero() -> Self {
        Self::new(sqlstate::DIVISION_BY_ZERO, "division by zero")
    }
}

impl fmt::Display for NumericError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NumericError {}

/// A result of a computation.
pub type Result<T, E = NumericError> = std::result::Result<T, E>;

impl Numeric {
    /// `unscaled / 10^scale`.
    ///
    /// # Errors
    /// 22003 if it has too many digits.
    pub fn new(unscaled: impl Into<Integer>, scale: u32) -> Result<Self> {
        Finite::new(unscaled.into(), scale).checked()
    }

    /// Zero with digits behind the point.
    pub(crate) fn zero(scale: u32) -> Self {
        Self::Finite(Finite::new(Integer::from(0i64), scale))
    }

    /// A whole number.
    pub fn from_integer(value: impl Into<i128>) -> Self {
        Self::Finite(Finite::new(Integer::from(value.into()), 0))
    }

    /// The number with its digits; `None` for NaN and the infinities.
    pub fn finite(&self) -> Option<&Finite> {
        match self {
            Self::Finite(finite) => Some(finite),
            _ => None,
        }
    }

    /// Whether it is NaN.
    pub fn is_nan(&self) -> bool {
        matches!(self, Self::NaN)
    }

    /// -1, 0 or 1; `None` for NaN.
    pub fn signum(&self) -> Option<i32> {
        match self {
            Self::NegativeInfinity => Some(-1),
            Self::Finite(finite) => Some(finite.unscaled.signum()),
            Self::Infinity => Some(1),
            Self::NaN => None,
        }
    }

    /// Digits behind the point; `None` if it has no digits.
    pub fn scale(&self) -> Option<u32> {
        self.finite().map(|finite| finite.scale)
    }
}

impl Finite {
    pub(crate) fn new(unscaled: Integer, scale: u32) -> Self {
        Self { unscaled, scale }
    }

    /// The digits without a point.
    pub fn unscaled(&self) -> &Integer {
        &self.unscaled
    }

    /// Digits behind the point.
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// The number, if it has no more digits than are allowed.
    pub(crate) fn checked(self) -> Result<Numeric> {
        let is_long = || i64::from(self.unscaled.digits()) - i64::from(self.scale) > MOST_WHOLE_DIGITS;
        if self.scale > MOST_SCALE || (self.unscaled.small().is_none() && is_long()) {
            return Err(NumericError::overflow());
        }
        Ok(Numeric::Finite(self))
    }

    /// The power of ten of the first digit; 0 for zero.
    pub(crate) fn exponent(&self) -> i64 {
        match self.unscaled.is_zero() {
            true => 0,
            false => i64::from(self.unscaled.digits()) - 1 - i64::from(self.scale),
        }
    }

    /// The power of 10,000 of the first group of digits, where groups begin at the point.
    pub(crate) fn weight(&self) -> i64 {
        self.exponent().div_euclid(4)
    }

    /// The value of the first group, and of it with the next one.
    pub(crate) fn first_groups(&self) -> (u32, u32) {
        if self.unscaled.is_zero() {
            return (0, 0);
        }
        let digits = self.unscaled.digits();
        let wanted = u32::try_from(self.exponent().rem_euclid(4) + 1).unwrap_or(1) + 4;
        let both = match digits.checked_sub(wanted) {
            Some(rest) => self.unscaled.magnitude_without(rest),
            None => self.unscaled.magnitude_without(0) * u128::from(10u32.pow(wanted - digits)),
        };
        let both = u32::try_from(both).unwrap_or(0);
        (both / 10_000, both)
    }
}
