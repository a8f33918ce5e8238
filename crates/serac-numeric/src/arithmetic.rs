//! `+ - * / %`, rounding and comparison.

use crate::integer::Integer;
use crate::{Finite, LEAST_SIGNIFICANT, MOST_DISPLAY_SCALE, MOST_SCALE, Numeric, NumericError, Result};
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;

/// Places that numbers are rounded to: as many behind the point as a number may have, and as many
/// before it, and one more, with which no digit is left.
const ROUNDED: RangeInclusive<i32> = -131_073..=16_383;

impl Finite {
    /// Both numbers as integers without a point, with the same number of digits behind its place.
    fn aligned(&self, other: &Self) -> (Integer, Integer, u32) {
        let scale = self.scale.max(other.scale);
        (self.unscaled.shifted(scale - self.scale), other.unscaled.shifted(scale - other.scale), scale)
    }
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let (left, right, scale) = self.aligned(other);
        Self::new(left.plus(&right), scale)
    }
    pub(crate) fn minus(&self, other: &Self) -> Self {
        let (left, right, scale) = self.aligned(other);
        Self::new(left.minus(&right), scale)
    }
    pub(crate) fn times(&self, other: &Self) -> Self {
        Self::new(self.unscaled.times(&other.unscaled), self.scale + other.scale)
    }

    /// The quotient with `scale` digits behind the point. `other` is not 0.
    pub(crate) fn divided(&self, other: &Self, scale: u32, is_rounded: bool) -> Self {
        let (above, below) = (scale + other.scale, self.scale);
        let left = self.unscaled.shifted(above.saturating_sub(below));
        let right = other.unscaled.shifted(below.saturating_sub(above));
        Self::new(if is_rounded { left.divided_rounded(&right) } else { left.divided(&right).0 }, scale)
    }

    /// The number rounded to `places` digits behind the point; negative ones are places before it.
    /// Zeros are added.
    pub(crate) fn rounded(&self, places: i64) -> Self {
        self.cut(places, Integer::rounded)
    }
    pub(crate) fn truncated(&self, places: i64) -> Self {
        self.cut(places, Integer::truncated)
    }

    fn cut(&self, places: i64, cut: fn(&Integer, u32) -> Integer) -> Self {
        let scale = u32::try_from(places.max(0)).unwrap_or(0);
        let surplus = i64::from(self.scale) - places;
        let Ok(surplus) = u32::try_from(surplus) else {
            return Self::new(self.unscaled.shifted(scale - self.scale), scale);
        };
        // All digits are dropped, and a zero before them, so nothing is rounded up.
        if surplus > self.unscaled.digits() {
            return Self::new(Integer::from(0i64), scale);
        }
        let zeros = u32::try_from((-places).max(0)).unwrap_or(0);
        Self::new(cut(&self.unscaled, surplus).shifted(zeros), scale)
    }

    /// The number of digits behind the point of a quotient: enough for 16 significant ones, no
    /// fewer than either number has, and at most 1,000.
    pub(crate) fn quotient_scale(&self, other: &Self) -> u32 {
        let (first, other_first) = (self.first_groups().0, other.first_groups().0);
        let weight = self.weight() - other.weight() - i64::from(first <= other_first);
        let scale = LEAST_SIGNIFICANT - weight * 4;
        let scale = scale.max(i64::from(self.scale)).max(i64::from(other.scale)).clamp(0, MOST_DISPLAY_SCALE);
        u32::try_from(scale).unwrap_or(0)
    }
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        if self.scale == other.scale {
            return self.unscaled.compare(&other.unscaled);
        }
        let signs = (self.unscaled.signum(), other.unscaled.signum());
        if signs.0 != signs.1 {
            return signs.0.cmp(&signs.1);
        }
        let exponents = self.exponent().cmp(&other.exponent());
        match (exponents, signs.0) {
            (_, 0) => Ordering::Equal,
            (Ordering::Equal, _) => {
                let (left, right, _) = self.aligned(other);
                left.compare(&right)
            }
            (exponents, 1) => exponents,
            (exponents, _) => exponents.reverse(),
        }
    }
    pub(crate) fn is_whole(&self) -> bool {
        self.unscaled.zeros_at_end(self.scale) == self.scale
    }

    /// The number of digits behind the point without zeros at the end.
    pub(crate) fn least_scale(&self) -> u32 {
        self.scale - self.unscaled.zeros_at_end(self.scale)
    }
}

impl Numeric {
    /// `self + other`.
    ///
    /// # Errors
    /// 22003 if the sum has too many digits.
    pub fn plus(&self, other: &Self) -> Result<Self> {
        match (self, other) {
            (Self::Finite(left), Self::Finite(right)) => left.plus(right).checked(),
            (Self::NaN, _) | (_, Self::NaN) => Ok(Self::NaN),
            (Self::Infinity, Self::NegativeInfinity) | (Self::NegativeInfinity, Self::Infinity) => Ok(Self::NaN),
            (Self::Finite(_), infinite) | (infinite, _) => Ok(infinite.clone()),
        }
    }

    /// `self - other`.
    ///
    /// # Errors
    /// 22003 if the difference has too many digits.
    pub fn minus(&self, other: &Self) -> Result<Self> {
        match (self, other) {
            (Self::Finite(left), Self::Finite(right)) => left.minus(right).checked(),
            _ => self.plus(&other.negated()),
        }
    }

    /// `self * other`.
    ///
    /// # Errors
    /// 22003 if the product has too many digits before the point. Those behind are rounded.
    pub fn times(&self, other: &Self) -> Result<Self> {
        match (self, other) {
            (Self::Finite(left), Self::Finite(right)) => {
                let product = left.times(right);
                let is_long = product.scale > MOST_SCALE;
                if is_long { product.rounded(i64::from(MOST_SCALE)).checked() } else { product.checked() }
            }
            _ => Ok(match (self.signum(), other.signum()) {
                (Some(left), Some(right)) => Self::infinite(left * right),
                _ => Self::NaN,
            }),
        }
    }

    /// An infinity of a sign; NaN for 0.
    fn infinite(sign: i32) -> Self {
        match sign {
            0 => Self::NaN,
            1.. => Self::Infinity,
            _ => Self::NegativeInfinity,
        }
    }

    /// `self / other`, with PostgreSQL's digits behind the point.
    ///
    /// # Errors
    /// 22012 if `other` is 0.
    pub fn divided(&self, other: &Self) -> Result<Self> {
        match self.special_quotient(other)? {
            Err((left, right)) => left.divided(right, left.quotient_scale(right), true).checked(),
            Ok(special) => Ok(special),
        }
    }

    /// `div(self, other)`: the quotient without digits behind the point.
    ///
    /// # Errors
    /// 22012 if `other` is 0.
    pub fn divided_whole(&self, other: &Self) -> Result<Self> {
        match self.special_quotient(other)? {
            Err((left, right)) => left.divided(right, 0, false).checked(),
            Ok(special) => Ok(special),
        }
    }

    /// The quotient if a number is infinite or NaN; otherwise both as finite numbers.
    #[allow(clippy::type_complexity)]
    fn special_quotient<'n>(&'n self, other: &'n Self) -> Result<Result<Self, (&'n Finite, &'n Finite)>> {
        match (self, other) {
            (Self::NaN, _) | (_, Self::NaN) => Ok(Ok(Self::NaN)),
            (_, Self::Finite(right)) if right.unscaled.is_zero() => Err(NumericError::division_by_zero()),
            (Self::Finite(left), Self::Finite(right)) => Ok(Err((left, right))),
            (Self::Finite(_), _) => Ok(Ok(Self::zero(0))),
            (_, Self::Finite(right)) => Ok(Ok(Self::infinite(self.signum().unwrap_or(0) * right.unscaled.signum()))),
            _ => Ok(Ok(Self::NaN)),
        }
    }

    /// `self % other`, which has the sign of `self`.
    ///
    /// # Errors
    /// 22012 if `other` is 0.
    pub fn remainder(&self, other: &Self) -> Result<Self> {
        match (self, other) {
            (Self::NaN, _) | (_, Self::NaN) => Ok(Self::NaN),
            (_, Self::Finite(right)) if right.unscaled.is_zero() => Err(NumericError::division_by_zero()),
            (Self::Finite(left), Self::Finite(right)) => {
                let (left, right, scale) = left.aligned(right);
                Finite::new(left.divided(&right).1, scale).checked()
            }
            (Self::Finite(_), _) => Ok(self.clone()),
            _ => Ok(Self::NaN),
        }
    }

    /// `-self`.
    #[must_use]
    pub fn negated(&self) -> Self {
        match self {
            Self::Finite(finite) => Self::Finite(Finite::new(finite.unscaled.negated(), finite.scale)),
            Self::Infinity => Self::NegativeInfinity,
            Self::NegativeInfinity => Self::Infinity,
            Self::NaN => Self::NaN,
        }
    }

    /// `abs(self)`.
    #[must_use]
    pub fn absolute(&self) -> Self {
        if self.signum() == Some(-1) { self.negated() } else { self.clone() }
    }

    /// `sign(self)`.
    #[must_use]
    pub fn sign(&self) -> Self {
        self.signum().map_or(Self::NaN, Self::from_integer)
    }

    /// `round(self, places)`, halves away from zero.
    ///
    /// # Errors
    /// 22003 if rounding up makes it too long.
    pub fn rounded(&self, places: i32) -> Result<Self> {
        match self {
            Self::Finite(finite) => finite.rounded(i64::from(places.clamp(*ROUNDED.start(), *ROUNDED.end()))).checked(),
            _ => Ok(self.clone()),
        }
    }

    /// `trunc(self, places)`.
    #[must_use]
    pub fn truncated(&self, places: i32) -> Self {
        match self {
            Self::Finite(finite) => {
                Self::Finite(finite.truncated(i64::from(places.clamp(*ROUNDED.start(), *ROUNDED.end()))))
            }
            _ => self.clone(),
        }
    }

    /// `ceil(self)`.
    ///
    /// # Errors
    /// 22003 if it is too long.
    pub fn ceiling(&self) -> Result<Self> {
        self.towards(1)
    }

    /// `floor(self)`.
    ///
    /// # Errors
    /// 22003 if it is too long.
    pub fn floor(&self) -> Result<Self> {
        self.towards(-1)
    }

    fn towards(&self, sign: i32) -> Result<Self> {
        let Self::Finite(finite) = self else { return Ok(self.clone()) };
        let whole = finite.truncated(0);
        match finite.unscaled.signum() == sign && !finite.is_whole() {
            true => Finite::new(whole.unscaled.plus(&Integer::from(i128::from(sign))), 0).checked(),
            false => Ok(Self::Finite(whole)),
        }
    }

    /// The number as one of `NUMERIC(precision, scale)`.
    ///
    /// # Errors
    /// 22003 if it does not fit.
    pub fn with_digits(&self, precision: i32, scale: i32) -> Result<Self> {
        let overflow = |rest: &str| {
            let detail = format!("A field with precision {precision}, scale {scale} {rest}");
            NumericError {
                detail: Some(detail),
                ..NumericError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
            }
        };
        match self {
            Self::NaN => Ok(Self::NaN),
            Self::Infinity | Self::NegativeInfinity => Err(overflow("cannot hold an infinite value.")),
            Self::Finite(finite) => {
                let rounded = finite.rounded(i64::from(scale));
                let whole = i64::from(precision) - i64::from(scale);
                if !rounded.unscaled.is_zero() && rounded.exponent() >= whole {
                    let limit = if whole == 0 { "1".to_owned() } else { format!("10^{whole}") };
                    return Err(overflow(&format!("must round to an absolute value less than {limit}.")));
                }
                rounded.checked()
            }
        }
    }

    /// `min_scale(self)`; `None` if it has no digits.
    pub fn least_scale(&self) -> Option<u32> {
        self.finite().map(Finite::least_scale)
    }

    /// `trim_scale(self)`.
    #[must_use]
    pub fn trimmed(&self) -> Self {
        match self {
            Self::Finite(finite) => Self::Finite(finite.rounded(i64::from(finite.least_scale()))),
            _ => self.clone(),
        }
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Numeric {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |number: &Self| match number {
            Self::NegativeInfinity => 0,
            Self::Finite(_) => 1,
            Self::Infinity => 2,
            Self::NaN => 3,
        };
        match (self, other) {
            (Self::Finite(left), Self::Finite(right)) => left.compare(right),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl Hash for Numeric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Finite(finite) => {
                let zeros = finite.unscaled.zeros_at_end(u32::MAX);
                match finite.unscaled.is_zero() {
                    true => (1u8, 0i64).hash(state),
                    false => {
                        (1u8, i64::from(finite.scale) - i64::from(zeros)).hash(state);
                        finite.unscaled.truncated(zeros).hash(state);
                    }
                }
            }
            Self::NegativeInfinity => 0u8.hash(state),
            Self::Infinity => 2u8.hash(state),
            Self::NaN => 3u8.hash(state),
        }
    }
}
