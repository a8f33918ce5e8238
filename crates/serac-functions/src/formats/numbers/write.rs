//! to_char: from a number to text.

use super::digits::Number;
use super::pattern::{NumberPattern, SignPlace, Token};
use serac_values::{Result, SqlError};

const ROMAN: [(i64, &str); 13] = [
    (1_000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
];
/// Characters of the longest of them: 3888.
const ROMAN_WIDTH: usize = 15;

fn roman(number: Option<i64>) -> String {
    let Some(mut left) = number.filter(|number| (1..4_000).contains(number)) else { return "#".repeat(ROMAN_WIDTH) };
    let mut out = String::new();
    for (value, letters) in ROMAN {
        while left >= value {
            out += letters;
            left -= value;
        }
    }
    out
}

/// The number whose digits are placed.
struct Writer<'p> {
    pattern: &'p NumberPattern,
    sign: Option<SignPlace>,
    negative: bool,
    brackets: bool,
    /// Its digits with a point, or `###.##`.
    number: &'p [u8],
    /// The number of these that are written.
    at: usize,
    /// Places before the first digit.
    blanks: usize,
    /// Places that have been passed, and the one with which the number ends.
    place: usize,
    last_place: usize,
    /// With `FM`, where the number ends that has no zeros at its end.
    last: Option<usize>,
    sign_written: bool,
    /// Whether the place before has a digit.
    in_digits: bool,
    out: String,
}

impl Writer<'_> {
    fn has_zero(&self) -> bool {
        self.pattern.first_zero.is_some()
    }

    /// A zero before the point that is not shown where the pattern has digits behind it.
    fn is_unwanted_zero(&self) -> bool {
        !self.has_zero() && self.at == 0 && self.number.first() == Some(&b'0') && self.pattern.after > 0
    }

    /// Whether nothing is left behind the point.
    fn ends_with_point(&self) -> bool {
        self.last.is_some_and(|last| self.number[last] == b'.')
    }

    fn write_sign(&mut self) {
        let starts = self.place >= self.blanks || self.pattern.first_zero == Some(self.place + 1);
        if self.sign_written || !starts || (self.is_unwanted_zero() && !self.ends_with_point()) {
            return;
        }
        match self.sign {
            Some(SignPlace::Before(_)) => self.out.push(if self.negative { '-' } else { '+' }),
            // It comes behind the number.
            Some(SignPlace::After) => return,
            None if self.brackets => self.out.push(if self.negative { '<' } else { ' ' }),
            None if self.negative => self.out.push('-'),
            None if !self.pattern.bare => self.out.push(' '),
            None => {}
        }
        self.sign_written = true;
    }

    /// A place for a digit, or for the point.
    fn place(&mut self, token: &Token) {
        self.in_digits = false;
        self.write_sign();
        let zero_from_here = self.pattern.first_zero.is_some_and(|first| first <= self.place + 1);
        if self.place < self.blanks && !zero_from_here {
            if !self.pattern.bare {
                self.out.push(' ');
            }
        } else if self.place < self.blanks {
            self.out.push('0');
            self.in_digits = true;
        } else {
            match self.number.get(self.at) {
                Some(b'.') => {
                    if !self.ends_with_point() || self.pattern.bare {
                        self.out.push('.');
                    }
                }
                _ if self.last.is_some_and(|last| self.at > last) && *token != Token::Zero => {}
                _ if self.is_unwanted_zero() => {
                    if !self.pattern.bare {
                        self.out.push(' ');
                    } else if self.ends_with_point() {
                        self.out.push('0');
                    }
                }
                digit => {
                    // With fewer digits than places, the text ends here.
                    self.out.push(digit.map_or('\0', |digit| char::from(*digit)));
                    self.in_digits = true;
                }
            }
            self.at = (self.at + 1).min(self.number.len());
        }
        let end = if self.last == Some(self.at) { self.place } else { self.last_place };
        if self.place + 1 == end {
            if self.sign_written && self.brackets {
                self.out.push(if self.negative { '>' } else { ' ' });
            } else if self.sign == Some(SignPlace::After) {
                self.out.push(if self.negative { '-' } else { '+' });
            }
        }
        self.place += 1;
    }
}

/// The beginning of the zeros at the end of a number with a point that `FM` leaves out; zeros for
/// which the pattern has a `0` stay.
fn last_wanted(pattern: &NumberPattern, number: &[u8], blanks: usize) -> Option<usize> {
    let point = number.iter().position(|byte| *byte == b'.').filter(|_| pattern.bare && pattern.has_point)?;
    let digits = number[point + 1..].iter().rposition(|digit| *digit != b'0');
    let last = digits.map_or(point, |digit| point + 1 + digit);
    let kept = pattern.last_zero.checked_sub(blanks).filter(|kept| *kept > 0).map(|kept| kept.min(number.len() - 1));
    Some(kept.map_or(last, |kept| kept.max(last)))
}

/// The letters behind a number: -st, -nd, -rd or -th.
fn ordinal(number: &[u8], upper: bool) -> Result<&'static str> {
    if !number.last().is_some_and(u8::is_ascii_digit) {
        let message = format!("\"{}\" is not a number", String::from_utf8_lossy(number));
        return Err(SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message));
    }
    let digits: Vec<u8> = number.iter().copied().filter(u8::is_ascii_digit).collect();
    let letters = match digits[digits.len().saturating_sub(2)..] {
        [b'1', _] => ["TH", "th"],
        [.., b'1'] => ["ST", "st"],
        [.., b'2'] => ["ND", "nd"],
        [.., b'3'] => ["RD", "rd"],
        _ => ["TH", "th"],
    };
    Ok(if upper { letters[0] } else { letters[1] })
}

/// A number in the form of a pattern.
///
/// # Errors
/// 22P02 for the letters of an ordinal number without a number before them.
pub fn write(pattern: &NumberPattern, number: Number) -> Result<String> {
    if pattern.roman {
        return Ok(write_roman(pattern, number));
    }
    let overflowed = |after: usize| format!("{}.{}", "#".repeat(pattern.before + pattern.shift), "#".repeat(after));
    if pattern.exponent {
        let hashes = || format!(" {}.{}", "#".repeat(pattern.before), "#".repeat(pattern.after + 4));
        return Ok(number.scientific(pattern.after).unwrap_or_else(hashes));
    }
    let before = pattern.before + pattern.shift;
    let digits = number.digits(pattern.shift, pattern.after);
    let after = digits.text.len().saturating_sub(digits.before + 1);
    let (text, blanks) = match before.checked_sub(digits.before) {
        Some(blanks) => (digits.text, blanks),
        None => (overflowed(after), 0),
    };
    let bytes = text.as_bytes();
    let apart = pattern.has_minus || pattern.has_plus;
    let sign = match pattern.sign {
        // Behind all digits, it is at the end.
        Some(SignPlace::Before(digits)) if digits == before && !apart => Some(SignPlace::After),
        sign => sign,
    };
    let sign_written = match apart {
        true => pattern.has_minus,
        false => !digits.negative && pattern.bare && sign.is_none(),
    };
    let more = [!sign_written && blanks == 0, blanks > 0, pattern.has_point].into_iter().filter(|more| *more).count();
    let mut writer = Writer {
        pattern,
        sign,
        negative: digits.negative,
        brackets: pattern.brackets && (digits.negative || !pattern.bare || apart),
        number: bytes,
        at: 0,
        blanks,
        place: 0,
        last_place: (after + before + more).saturating_sub(1),
        last: last_wanted(pattern, bytes, blanks),
        sign_written,
        in_digits: false,
        out: String::new(),
    };
    for token in &pattern.tokens {
        let sign_or_blank = |wanted: bool, sign: char| match wanted {
            true => Some(sign),
            false => (!pattern.bare).then_some(' '),
        };
        match token {
            Token::Digit | Token::Zero | Token::Point => writer.place(token),
            Token::Comma { .. } if writer.in_digits => writer.out.push(','),
            Token::Comma { .. } if pattern.bare => {}
            Token::Comma { .. } | Token::Currency => writer.out.push(' '),
            Token::Minus => writer.out.extend(sign_or_blank(digits.negative, '-')),
            Token::Plus => writer.out.extend(sign_or_blank(!digits.negative, '+')),
            Token::Sign => writer.out.push(if digits.negative { '-' } else { '+' }),
            Token::Ordinal { upper } => {
                if bytes.first() != Some(&b'#') && !digits.negative && !pattern.has_point {
                    writer.out += ordinal(bytes, *upper)?;
                }
            }
            Token::Roman { .. } => {}
            Token::Text(letter) => writer.out.push(*letter),
        }
    }
    let mut out = writer.out;
    out.truncate(out.find('\0').unwrap_or(out.len()));
    Ok(out)
}

/// Parts of the pattern that are digits do not count.
fn write_roman(pattern: &NumberPattern, number: Number) -> String {
    let numeral = roman(number.integer());
    let mut out = String::new();
    for token in &pattern.tokens {
        match token {
            Token::Roman { upper } => {
                let numeral = if *upper { numeral.clone() } else { numeral.to_lowercase() };
                if pattern.bare {
                    out += &numeral;
                } else {
                    out += &format!("{numeral:>ROMAN_WIDTH$}");
                }
            }
            Token::Comma { .. } | Token::Minus | Token::Plus if pattern.bare => {}
            Token::Comma { .. } | Token::Minus | Token::Plus | Token::Currency => out.push(' '),
            Token::Text(letter) => out.push(*letter),
            Token::Digit | Token::Zero | Token::Point | Token::Sign | Token::Ordinal { .. } => {}
        }
    }
    out
}
