//! Reading and writing numbers as text.

use crate::integer::Integer;
use crate::{Finite, MOST_SCALE, MOST_WHOLE_DIGITS, Numeric, NumericError, Result};
use std::fmt;

fn invalid(text: &str) -> NumericError {
    NumericError::new(
        sqlstate::INVALID_TEXT_REPRESENTATION,
        format!("invalid input syntax for type numeric: \"{text}\""),
    )
}

/// White space as C has it.
fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

fn without_spaces(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && is_space(first)
    {
        bytes = rest;
    }
    bytes
}

/// The names of numbers without digits. A longer name stands before a name that it begins with.
const NAMED: [(&[u8], Numeric); 7] = [
    (b"nan", Numeric::NaN),
    (b"infinity", Numeric::Infinity),
    (b"+infinity", Numeric::Infinity),
    (b"-infinity", Numeric::NegativeInfinity),
    (b"inf", Numeric::Infinity),
    (b"+inf", Numeric::Infinity),
    (b"-inf", Numeric::NegativeInfinity),
];

impl std::str::FromStr for Numeric {
    type Err = NumericError;
    /// The number in a text.
    ///
    /// # Errors
    /// 22P02 if the text is no number, 22003 if the number has too many digits.
    fn from_str(text: &str) -> Result<Self> {
        let start = without_spaces(text.as_bytes());
        for (name, value) in NAMED {
            if start.get(..name.len()).is_some_and(|own| own.eq_ignore_ascii_case(name)) {
                let is_end = without_spaces(&start[name.len()..]).is_empty();
                return if is_end { Ok(value) } else { Err(invalid(text)) };
            }
        }
        let (is_negative, unsigned) = match start {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, start),
        };
        let digits_of = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (whole, mut rest) = unsigned.split_at(digits_of(unsigned));
        let mut fraction = &[][..];
        if let [b'.', behind @ ..] = rest {
            (fraction, rest) = behind.split_at(digits_of(behind));
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid(text));
        }
        let mut exponent = 0i64;
        if let [b'e' | b'E', behind @ ..] = rest {
            let behind = without_spaces(behind);
            let (sign, behind) = match behind {
                [b'-', digits @ ..] => (-1, digits),
                [b'+', digits @ ..] => (1, digits),
                _ => (1, behind),
            };
            let (digits, end) = behind.split_at(digits_of(behind));
            if digits.is_empty() {
                return Err(invalid(text));
            }
            let add = |sum: i64, digit: &u8| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
            exponent = sign * digits.iter().fold(0, add);
            rest = end;
            if exponent.abs() >= i64::from(i32::MAX / 2) {
                return Err(NumericError::overflow());
            }
        }
        if !without_spaces(rest).is_empty() {
            return Err(invalid(text));
        }
        let scale = i64::try_from(fraction.len()).map_err(|_| NumericError::overflow())?.saturating_sub(exponent);
        let digits: Vec<u8> = whole.iter().chain(fraction).copied().skip_while(|digit| *digit == b'0').collect();
        let shown = u32::try_from(scale.max(0)).map_err(|_| NumericError::overflow())?;
        if shown > MOST_SCALE {
            return Err(NumericError::overflow());
        }
        if digits.is_empty() {
            return Ok(Self::zero(shown));
        }
        let length = i64::try_from(digits.len()).map_err(|_| NumericError::overflow())?;
        if length.saturating_sub(scale) > MOST_WHOLE_DIGITS {
            return Err(NumericError::overflow());
        }
        let unscaled = Integer::of_digits(&digits, is_negative).ok_or_else(|| invalid(text))?;
        let zeros = u32::try_from((-scale).max(0)).map_err(|_| NumericError::overflow())?;
        Finite::new(unscaled.shifted(zeros), shown).checked()
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NaN => f.write_str("NaN"),
            Self::Infinity => f.write_str("Infinity"),
            Self::NegativeInfinity => f.write_str("-Infinity"),
            Self::Finite(finite) => finite.fmt(f),
        }
    }
}

impl fmt::Display for Finite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unscaled.signum() < 0 {
            f.write_str("-")?;
        }
        let digits = self.unscaled.to_digits();
        let scale = usize::try_from(self.scale).map_err(|_| fmt::Error)?;
        if scale == 0 {
            return f.write_str(&digits);
        }
        match digits.len().checked_sub(scale).filter(|whole| *whole > 0) {
            Some(whole) => write!(f, "{}.{}", &digits[..whole], &digits[whole..]),
            None => write!(f, "0.{digits:0>scale$}"),
        }
    }
}
