//! A number as digits, for patterns to place.

/// A number that is written by a pattern.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// The unscaled number and the digits behind the point.
    Decimal(i128, i8),
    /// A float, and the number of its significant digits.
    Float(f64, usize),
}

/// The sign and the digits of a number, with the wanted number of digits behind the point.
pub(super) struct Digits {
    pub(super) negative: bool,
    /// `123.45`, or `123`.
    pub(super) text: String,
    /// Digits before the point.
    pub(super) before: usize,
}

/// Rounds half away from zero: the first `keep` of the digits, which may gain a digit.
fn rounded(digits: &str, keep: usize) -> String {
    let mut kept: Vec<u8> = digits.bytes().take(keep).collect();
    if digits.as_bytes().get(keep).is_some_and(|next| *next >= b'5') {
        let nines = kept.iter().rev().take_while(|digit| **digit == b'9').count();
        let at = kept.len() - nines;
        kept[at..].fill(b'0');
        match at.checked_sub(1) {
            Some(last) => kept[last] += 1,
            None => kept.insert(0, b'1'),
        }
    }
    kept.into_iter().map(char::from).collect()
}

/// A decimal times ten to the power of `shift`, with `after` digits behind the point.
fn of_decimal(unscaled: i128, scale: i8, shift: usize, after: usize) -> (bool, String) {
    let mut digits = unscaled.unsigned_abs().to_string();
    let scale = i64::from(scale) - shift as i64;
    if unscaled != 0 {
        digits.extend(std::iter::repeat_n('0', usize::try_from(-scale).unwrap_or(0)));
    }
    let scale = usize::try_from(scale).unwrap_or(0);
    if digits.len() <= scale {
        digits.insert_str(0, &"0".repeat(scale + 1 - digits.len()));
    }
    let whole = digits.len() - scale;
    digits.extend(std::iter::repeat_n('0', after.saturating_sub(scale)));
    let kept = rounded(&digits, whole + after);
    let whole = kept.len() - after;
    let negative = unscaled < 0 && kept.bytes().any(|digit| digit != b'0');
    let text = if after > 0 { format!("{}.{}", &kept[..whole], &kept[whole..]) } else { kept };
    (negative, text)
}

impl Number {
    /// The number's digits, or the words for a number that is not finite.
    pub(super) fn digits(self, shift: usize, after: usize) -> Digits {
        let (negative, text) = match self {
            Self::Decimal(unscaled, scale) => of_decimal(unscaled, scale, shift, after),
            Self::Float(value, meaning) => {
                let value = value * 10f64.powi(i32::try_from(shift).unwrap_or(i32::MAX));
                // Digits that mean nothing are left out.
                let whole = format!("{:.0}", value.abs()).len();
                let text = match value {
                    value if value.is_infinite() => format!("{}Infinity", if value < 0.0 { "-" } else { "" }),
                    value => format!("{value:.*}", after.min(meaning.saturating_sub(whole))),
                };
                match text.strip_prefix('-') {
                    Some(digits) => (true, digits.to_owned()),
                    None => (false, text),
                }
            }
        };
        let before = text.find('.').unwrap_or(text.len());
        Digits { negative, text, before }
    }

    /// `1.25e+03`, with `after` digits behind the point, and a blank in place of a plus; `None` if
    /// it is not a finite number.
    pub(super) fn scientific(self, after: usize) -> Option<String> {
        let (negative, digits, exponent) = match self {
            Self::Decimal(0, _) => (false, "0".repeat(after + 1), 0),
            Self::Decimal(unscaled, scale) => {
                let digits = unscaled.unsigned_abs().to_string();
                let exponent = digits.len() as i64 - 1 - i64::from(scale);
                let padded = format!("{digits}{}", "0".repeat((after + 1).saturating_sub(digits.len())));
                let mut kept = rounded(&padded, after + 1);
                let carried = kept.len() - (after + 1);
                kept.truncate(after + 1);
                (unscaled < 0, kept, exponent + carried as i64)
            }
            Self::Float(value, _) if !value.is_finite() => return None,
            Self::Float(value, _) => {
                let text = format!("{:.after$e}", value.abs());
                let (digits, exponent) = text.split_once('e')?;
                (value.is_sign_negative(), digits.replace('.', ""), exponent.parse().ok()?)
            }
        };
        let point = if after > 0 { "." } else { "" };
        let (sign, plus) = (if negative { '-' } else { ' ' }, if exponent < 0 { '-' } else { '+' });
        Some(format!("{sign}{}{point}{}e{plus}{:02}", &digits[..1], &digits[1..], exponent.abs()))
    }

    /// The nearest integer; `None` if it is not a finite number.
    pub(super) fn integer(self) -> Option<i64> {
        match self {
            Self::Float(value, _) => value.is_finite().then(|| value.round_ties_even() as i64),
            Self::Decimal(..) => {
                let digits = self.digits(0, 0);
                // A number above all integers counts as the largest one.
                let number = digits.text.parse().unwrap_or(i64::MAX);
                Some(if digits.negative { -number } else { number })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_digits() {
        let text = |number: Number, shift, after| {
            let digits = number.digits(shift, after);
            (digits.negative, digits.text)
        };
        assert_eq!(text(Number::Decimal(-12_345, 2), 0, 1), (true, "123.5".into()));
        assert_eq!(text(Number::Decimal(-4, 1), 0, 0), (false, "0".into()));
        assert_eq!(text(Number::Decimal(9_996, 3), 0, 2), (false, "10.00".into()));
        assert_eq!(text(Number::Decimal(12, 0), 2, 0), (false, "1200".into()));
        assert_eq!(text(Number::Float(1.5, 15), 0, 3), (false, "1.500".into()));
        assert_eq!(text(Number::Float(f64::NAN, 15), 0, 3), (false, "NaN".into()));
        assert_eq!(Number::Decimal(-99_951, 2).scientific(2), Some("-1.00e+03".into()));
        assert_eq!(Number::Float(0.000_25, 15).scientific(1), Some(" 2.5e-04".into()));
    }
}
