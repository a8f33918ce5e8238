//! Whole numbers of any size. Numbers that fit into 128 bits are computed in 128 bits.

use num_bigint::{BigInt, BigUint, Sign};
use num_integer::Integer as _;
use num_traits::{Signed, ToPrimitive, Zero};
use std::cmp::Ordering;

/// Powers of ten that fit into 128 bits.
const SMALL_POWERS: usize = 39;

const POWERS: [i128; SMALL_POWERS] = {
    let mut powers = [1i128; SMALL_POWERS];
    let mut at = 1;
    while at < SMALL_POWERS {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// A whole number. A big one does not fit into 128 bits, so that equal numbers are of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Small(i128),
    Big(Box<BigInt>),
}

/// A whole number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Integer(Kind);

impl From<i128> for Integer {
    fn from(value: i128) -> Self {
        Self(Kind::Small(value))
    }
}

impl From<i64> for Integer {
    fn from(value: i64) -> Self {
        Self(Kind::Small(i128::from(value)))
    }
}

impl From<BigInt> for Integer {
    fn from(value: BigInt) -> Self {
        match value.to_i128() {
            Some(small) => Self(Kind::Small(small)),
            None => Self(Kind::Big(Box::new(value))),
        }
    }
}

/// `10^exponent`, if it fits into 128 bits.
pub(crate) fn small_power(exponent: u32) -> Option<i128> {
    POWERS.get(usize::try_from(exponent).ok()?).copied()
}

/// `10^exponent`.
pub(crate) fn power_of_ten(exponent: u32) -> BigInt {
    match small_power(exponent) {
        Some(small) => BigInt::from(small),
        None => BigInt::from(BigUint::from(10u32).pow(exponent)),
    }
}

impl Integer {
    /// The number, if it fits into 128 bits.
    pub fn small(&self) -> Option<i128> {
        match self.0 {
            Kind::Small(small) => Some(small),
            Kind::Big(_) => None,
        }
    }
    pub(crate) fn of_unsigned(value: u128) -> Self {
        i128::try_from(value).map_or_else(|_| Self::from(BigInt::from(value)), Self::from)
    }

    pub(crate) fn to_big(&self) -> BigInt {
        match &self.0 {
            Kind::Small(small) => BigInt::from(*small),
            Kind::Big(big) => (**big).clone(),
        }
    }

    /// Whether it is 0.
    pub fn is_zero(&self) -> bool {
        self.0 == Kind::Small(0)
    }
    pub(crate) fn signum(&self) -> i32 {
        match &self.0 {
            Kind::Small(small) => i32::from(*small > 0) - i32::from(*small < 0),
            Kind::Big(big) => i32::from(big.is_positive()) - i32::from(big.is_negative()),
        }
    }

    /// The number of decimal digits; 1 for zero.
    pub(crate) fn digits(&self) -> u32 {
        match &self.0 {
            Kind::Small(small) => match u64::try_from(small.unsigned_abs()) {
                Ok(short) => short.checked_ilog10().map_or(1, |log| log + 1),
                Err(_) => small.unsigned_abs().ilog10() + 1,
            },
            Kind::Big(big) => {
                // The number is between two powers of two. It is compared with a power of ten only
                // if that lies between them, too.
                let bits = big.bits() as f64;
                let (low, high) = ((bits - 1.0) * std::f64::consts::LOG10_2, bits * std::f64::consts::LOG10_2);
                let (low, high) = (low.floor() as u32, high.floor() as u32);
                match low == high || big.magnitude() < power_of_ten(high).magnitude() {
                    true => low + 1,
                    false => high + 1,
                }
            }
        }
    }

    /// The magnitude without `digits` digits at the end. The rest must fit into 128 bits.
    pub(crate) fn magnitude_without(&self, digits: u32) -> u128 {
        match &self.0 {
            Kind::Small(small) => {
                let power = small_power(digits).map_or(u128::MAX, i128::unsigned_abs);
                match (u64::try_from(small.unsigned_abs()), u64::try_from(power)) {
                    (Ok(short), Ok(power)) => (short / power).into(),
                    _ => small.unsigned_abs() / power,
                }
            }
            Kind::Big(big) => (big.magnitude() / power_of_ten(digits).magnitude()).to_u128().unwrap_or(u128::MAX),
        }
    }
    pub(crate) fn negated(&self) -> Self {
        match &self.0 {
            Kind::Small(small) if *small != i128::MIN => Self::from(-small),
            _ => Self::from(-self.to_big()),
        }
    }
    pub(crate) fn absolute(&self) -> Self {
        if self.signum() < 0 { self.negated() } else { self.clone() }
    }
    pub(crate) fn plus(&self, other: &Self) -> Self {
        match (self.small(), other.small()) {
            (Some(left), Some(right)) => match left.checked_add(right) {
                Some(sum) => Self::from(sum),
                None => Self::from(BigInt::from(left) + right),
            },
            _ => Self::from(self.to_big() + other.to_big()),
        }
    }
    pub(crate) fn minus(&self, other: &Self) -> Self {
        match (self.small(), other.small()) {
            (Some(left), Some(right)) if left.checked_sub(right).is_some() => Self::from(left - right),
            _ => Self::from(self.to_big() - other.to_big()),
        }
    }
    pub(crate) fn times(&self, other: &Self) -> Self {
        match (self.small(), other.small()) {
            (Some(left), Some(right)) => match left.checked_mul(right) {
                Some(product) => Self::from(product),
                None => Self::from(BigInt::from(left) * right),
            },
            _ => Self::from(self.to_big() * other.to_big()),
        }
    }

    /// The number with this many zeros behind it.
    pub(crate) fn shifted(&self, zeros: u32) -> Self {
        if zeros == 0 || self.is_zero() {
            return self.clone();
        }
        if let (Some(small), Some(power)) = (self.small(), small_power(zeros))
            && let Some(product) = small.checked_mul(power)
        {
            return Self::from(product);
        }
        Self::from(self.to_big() * power_of_ten(zeros))
    }

    /// The quotient, towards zero, and the remainder, which has the sign of `self`. `other` is not
    /// 0.
    pub(crate) fn divided(&self, other: &Self) -> (Self, Self) {
        match (self.small(), other.small()) {
            (Some(left), Some(right)) if left != i128::MIN => {
                let (quotient, remainder) = divided_small(left, right);
                (Self::from(quotient), Self::from(remainder))
            }
            _ => {
                let (quotient, remainder) = self.to_big().div_rem(&other.to_big());
                (Self::from(quotient), Self::from(remainder))
            }
        }
    }

    /// The quotient, halves away from zero. `other` is not 0.
    pub(crate) fn divided_rounded(&self, other: &Self) -> Self {
        if let (Some(left), Some(right)) = (self.small(), other.small())
            && left != i128::MIN
        {
            let (quotient, remainder) = divided_small(left, right);
            let is_up = remainder.unsigned_abs() >= right.unsigned_abs() - remainder.unsigned_abs();
            // There is a remainder, so the quotient is at most half of the greatest number.
            return Self::from(if is_up { quotient + left.signum() * right.signum() } else { quotient });
        }
        let (quotient, remainder) = self.divided(other);
        let twice = remainder.absolute().times(&Self::from(2i128));
        if twice.compare(&other.absolute()) == Ordering::Less {
            return quotient;
        }
        quotient.plus(&Self::from(i128::from(self.signum() * other.signum())))
    }

    /// The number without `digits` digits at the end, halves away from zero.
    pub(crate) fn rounded(&self, digits: u32) -> Self {
        if digits == 0 { self.clone() } else { self.divided_rounded(&Self::power_of_ten(digits)) }
    }

    /// The number without `digits` digits at the end.
    pub(crate) fn truncated(&self, digits: u32) -> Self {
        if digits == 0 { self.clone() } else { self.divided(&Self::power_of_ten(digits)).0 }
    }
    pub(crate) fn power_of_ten(exponent: u32) -> Self {
        match small_power(exponent) {
            Some(small) => Self::from(small),
            None => Self::from(power_of_ten(exponent)),
        }
    }
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Kind::Small(left), Kind::Small(right)) => left.cmp(right),
            (Kind::Big(left), Kind::Big(right)) => left.cmp(right),
            // A big number is farther from zero than a small one.
            (Kind::Small(_), Kind::Big(right)) => 0.cmp(&sign(right)),
            (Kind::Big(left), Kind::Small(_)) => sign(left).cmp(&0),
        }
    }
    pub(crate) fn is_odd(&self) -> bool {
        match &self.0 {
            Kind::Small(small) => small % 2 != 0,
            Kind::Big(big) => big.is_odd(),
        }
    }
    pub(crate) fn greatest_common_divisor(&self, other: &Self) -> Self {
        match (self.small(), other.small()) {
            (Some(left), Some(right)) if left != i128::MIN && right != i128::MIN => Self::from(left.gcd(&right)),
            _ => Self::from(self.to_big().gcd(&other.to_big())),
        }
    }

    /// The square root of a number that is not negative, towards zero.
    pub(crate) fn square_root(&self) -> Self {
        match &self.0 {
            Kind::Small(small) => Self::of_unsigned(small.unsigned_abs().isqrt()),
            Kind::Big(big) => match square_root_of_256_bits(big.magnitude()) {
                Some(root) => Self::of_unsigned(root),
                None => Self::from(big.sqrt()),
            },
        }
    }

    /// The number of zeros at the end, up to `most`; `most` for zero.
    pub(crate) fn zeros_at_end(&self, most: u32) -> u32 {
        match &self.0 {
            Kind::Small(0) => most,
            Kind::Small(small) => {
                let (mut rest, mut zeros) = (*small, 0);
                while zeros < most && rest % 10 == 0 {
                    rest /= 10;
                    zeros += 1;
                }
                zeros
            }
            Kind::Big(big) => {
                let text = big.magnitude().to_str_radix(10);
                let zeros = text.len() - text.trim_end_matches('0').len();
                u32::try_from(zeros).unwrap_or(most).min(most)
            }
        }
    }

    /// The digits of the magnitude.
    pub(crate) fn to_digits(&self) -> String {
        match &self.0 {
            Kind::Small(small) => small.unsigned_abs().to_string(),
            Kind::Big(big) => big.magnitude().to_str_radix(10),
        }
    }

    /// The number with these decimal digits, which have no sign. There is at least one.
    pub(crate) fn of_digits(digits: &[u8], is_negative: bool) -> Option<Self> {
        let magnitude = match digits.len() < SMALL_POWERS {
            true => Self::from(std::str::from_utf8(digits).ok()?.parse::<i128>().ok()?),
            false => Self::from(BigInt::parse_bytes(digits, 10)?),
        };
        Some(if is_negative { magnitude.negated() } else { magnitude })
    }

    /// Two's complement, the lowest byte first, without needless bytes.
    pub(crate) fn write_bytes(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Kind::Small(small) => {
                let bits = 129 - if *small < 0 { (!small).leading_zeros() } else { small.leading_zeros() };
                let bytes = usize::try_from(bits.div_ceil(8)).unwrap_or(16);
                out.extend_from_slice(&small.to_le_bytes()[..bytes]);
            }
            Kind::Big(big) => out.extend_from_slice(&big.to_signed_bytes_le()),
        }
    }
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let fill = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
        let mut small = [fill; 16];
        match small.get_mut(..bytes.len()) {
            Some(low) => {
                low.copy_from_slice(bytes);
                Self::from(i128::from_le_bytes(small))
            }
            None => Self::from(BigInt::from_signed_bytes_le(bytes)),
        }
    }

    /// The number of a magnitude, the lowest byte first.
    pub(crate) fn of_magnitude(magnitude: BigUint, is_negative: bool) -> Self {
        let sign = match (magnitude.is_zero(), is_negative) {
            (true, _) => Sign::NoSign,
            (false, true) => Sign::Minus,
            (false, false) => Sign::Plus,
        };
        Self::from(BigInt::from_biguint(sign, magnitude))
    }
}

/// The quotient, towards zero, and the remainder. `left` is not the least number, and `right` is
/// not 0.
fn divided_small(left: i128, right: i128) -> (i128, i128) {
    // Division of 128 bits takes several times as long.
    let quotient = match (i64::try_from(left), i64::try_from(right)) {
        (Ok(left), Ok(right)) if left != i64::MIN => (left / right).into(),
        _ => left / right,
    };
    (quotient, left - quotient * right)
}

/// The square root, towards zero, of a number of 129 to 256 bits: a step of P. Zimmermann's
/// "Karatsuba Square Root" (INRIA RR-3805).
fn square_root_of_256_bits(number: &BigUint) -> Option<u128> {
    if !(129..=256).contains(&number.bits()) {
        return None;
    }
    let mut digits = number.iter_u64_digits();
    let mut next = || u128::from(digits.next().unwrap_or(0));
    let (mut low, mut high) = (next() | next() << 64, next() | next() << 64);
    // The step needs one of the two highest bits.
    let shift = high.leading_zeros() / 2 * 2;
    if shift > 0 {
        high = high << shift | low >> (128 - shift);
        low <<= shift;
    }
    let root = high.isqrt();
    let rest = high - root * root;
    // (rest * 2^64 + the upper half of `low`) / (2 * root), where the dividend has 129 bits.
    let half = (rest << 63) + (low >> 65);
    let (quotient, rest) = (half / root, half % root * 2 + (low >> 64 & 1));
    // Negative if rest * 2^64 + the lower half of `low` is less than the quotient's square.
    let is_over = rest >> 64 == 0
        && quotient.checked_mul(quotient).is_none_or(|square| rest << 64 | low & u128::from(u64::MAX) < square);
    let root = (root << 64).wrapping_add(quotient).wrapping_sub(is_over.into());
    Some(root >> (shift / 2))
}

fn sign(big: &BigInt) -> i32 {
    if big.is_negative() { -1 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_traits::One;

    /// Squares, their neighbours and others, with up to 260 bits.
    #[test]
    fn square_roots_are_those_of_big_numbers() {
        let mut state = 1u64;
        for bits in 1..=130u32 {
            for round in 0..200 {
                let mut word = || {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    BigUint::from(state >> 32)
                };
                let any = (0..5).fold(BigUint::one(), |number, _| (number << 32u32) + word());
                let root = match round {
                    0 => (BigUint::one() << bits) - 1u32,
                    1 => BigUint::one() << (bits - 1),
                    _ => (any >> (161 - bits)) | (BigUint::one() << (bits - 1)),
                };
                let square = &root * &root;
                let between = &square + ((&root * word()) >> 31u32);
                for number in [&square - 1u32, square.clone(), &square + 2u32 * &root, between] {
                    let found = Integer::from(BigInt::from(number.clone())).square_root();
                    assert_eq!(found, Integer::from(BigInt::from(number.sqrt())), "of {number}");
                }
            }
        }
    }
}
