//! Integers, floats, and decimals of a fixed scale.

use crate::integer::{Integer, small_power};
use crate::{Finite, Numeric, NumericError, Result};

/// A type of whole numbers.
pub trait Whole: TryFrom<i128> {
    /// Its name in errors.
    const NAME: &'static str;
}

impl Whole for i16 {
    const NAME: &'static str = "smallint";
}

impl Whole for i32 {
    const NAME: &'static str = "integer";
}

impl Whole for i64 {
    const NAME: &'static str = "bigint";
}

impl Numeric {
    /// The nearest whole number, halves away from zero.
    ///
    /// # Errors
    /// 22003 if it does not fit, 0A000 for NaN and the infinities.
    pub fn to_whole<T: Whole>(&self) -> Result<T> {
        let none =
            |what| NumericError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("cannot convert {what} to {}", T::NAME));
        match self {
            Self::NaN => Err(none("NaN")),
            Self::Infinity | Self::NegativeInfinity => Err(none("infinity")),
            Self::Finite(finite) => {
                let whole = finite.rounded(0).unscaled.small().and_then(|whole| T::try_from(whole).ok());
                whole.ok_or_else(|| {
                    NumericError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, format!("{} out of range", T::NAME))
                })
            }
        }
    }

    /// The nearest float.
    ///
    /// # Errors
    /// 22003 if it is too large, or so small that it would be 0.
    pub fn to_f64(&self) -> Result<f64> {
        match self {
            Self::NaN => Ok(f64::NAN),
            Self::Infinity => Ok(f64::INFINITY),
            Self::NegativeInfinity => Ok(f64::NEG_INFINITY),
            Self::Finite(finite) => {
                let text = finite.to_string();
                let value: f64 = text.parse().unwrap_or(f64::NAN);
                match !value.is_finite() || (value == 0.0 && !finite.unscaled.is_zero()) {
                    true => Err(out_of_range(&text, "double precision")),
                    false => Ok(value),
                }
            }
        }
    }

    /// The nearest float of 32 bits.
    ///
    /// # Errors
    /// As for [`Self::to_f64`].
    pub fn to_f32(&self) -> Result<f32> {
        match self {
            Self::NaN => Ok(f32::NAN),
            Self::Infinity => Ok(f32::INFINITY),
            Self::NegativeInfinity => Ok(f32::NEG_INFINITY),
            Self::Finite(finite) => {
                let text = finite.to_string();
                let value: f32 = text.parse().unwrap_or(f32::NAN);
                match !value.is_finite() || (value == 0.0 && !finite.unscaled.is_zero()) {
                    true => Err(out_of_range(&text, "real")),
                    false => Ok(value),
                }
            }
        }
    }

    /// The number of a float's first 15 digits.
    pub fn of_f64(value: f64) -> Self {
        Self::of_float(value, 15, f64::is_nan(value))
    }

    /// The number of a float's first 6 digits.
    pub fn of_f32(value: f32) -> Self {
        // C's printf also writes such a float as a double.
        Self::of_float(f64::from(value), 6, value.is_nan())
    }

    fn of_float(value: f64, digits: usize, is_nan: bool) -> Self {
        if is_nan {
            return Self::NaN;
        }
        if value.is_infinite() {
            return if value > 0.0 { Self::Infinity } else { Self::NegativeInfinity };
        }
        // The form of printf's %g leaves zeros at the end out.
        let text = format!("{value:.*e}", digits - 1);
        let number = text.parse::<Self>().unwrap_or(Self::NaN);
        number.trimmed()
    }

    /// `unscaled / 10^scale` of a decimal of a fixed scale, which may be negative.
    pub fn of_decimal(unscaled: i128, scale: i8) -> Self {
        match u32::try_from(scale) {
            Ok(scale) => Self::Finite(Finite::new(Integer::from(unscaled), scale)),
            Err(_) => {
                let zeros = u32::from(scale.unsigned_abs());
                Self::Finite(Finite::new(Integer::from(unscaled).shifted(zeros), 0))
            }
        }
    }

    /// The nearest decimal of a fixed precision and scale, without a point.
    ///
    /// # Errors
    /// 22003 if it does not fit, or has no digits.
    pub fn to_decimal(&self, precision: u8, scale: i8) -> Result<i128> {
        let (wanted, places) = (i32::from(precision), i32::from(scale));
        if self.is_nan() {
            let detail = format!("A field with precision {precision}, scale {scale} cannot hold NaN here.");
            return Err(NumericError {
                detail: Some(detail),
                ..NumericError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
            });
        }
        let fitting = self.with_digits(wanted, places)?;
        let overflow = || NumericError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow");
        let finite = fitting.finite().ok_or_else(overflow)?;
        let dropped = u32::try_from(-places).unwrap_or(0);
        let unscaled = finite.unscaled.truncated(dropped).small();
        let fits = |value: &i128| small_power(u32::from(precision)).is_none_or(|limit| value.abs() < limit);
        unscaled.filter(fits).ok_or_else(overflow)
    }
}

fn out_of_range(text: &str, name: &str) -> NumericError {
    NumericError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, format!("\"{text}\" is out of range for type {name}"))
}
