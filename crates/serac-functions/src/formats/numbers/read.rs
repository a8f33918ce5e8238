//! to_number: from text to a number.

use super::pattern::{NumberPattern, SignPlace, Token};
use serac_values::{Result, SqlError};

/// The text, of which the first characters have been read, and the number that they make.
struct Reader<'t> {
    pattern: &'t NumberPattern,
    rest: &'t str,
    sign: Option<char>,
    digits: String,
    /// Digits behind the point, once that has come.
    after: Option<usize>,
}

impl Reader<'_> {
    fn next(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip(&mut self) {
        let mut letters = self.rest.chars();
        letters.next();
        self.rest = letters.as_str();
    }

    /// Skips as many characters as the pattern has, except those of a number.
    fn skip_text(&mut self, count: usize) {
        for _ in 0..count {
            if self.next().is_some_and(|next| !matches!(next, '0'..='9' | '.' | ',' | '+' | '-')) {
                self.skip();
            }
        }
    }

    /// The sign that stands here.
    fn take_sign(&mut self) {
        if let Some(sign @ ('-' | '+')) = self.next() {
            self.sign = Some(sign);
            self.skip();
        }
    }

    /// A place for a digit, or for the point. The character at it is always read.
    fn place(&mut self, token: &Token) {
        if self.next() == Some(' ') {
            self.skip();
        }
        if self.sign.is_none() && *token != Token::Point && self.digits.trim_matches('.').is_empty() {
            match (self.pattern.sign, self.next()) {
                (Some(SignPlace::Before(_)), _) => self.take_sign(),
                (_, Some('<')) if self.pattern.brackets => {
                    self.sign = Some('-');
                    self.skip();
                }
                _ => self.take_sign(),
            }
        }
        let mut is_read = false;
        match self.next() {
            None => return,
            Some(digit @ '0'..='9') => {
                if self.after == Some(self.pattern.after) {
                    self.skip();
                    return;
                }
                self.digits.push(digit);
                self.after = self.after.map(|after| after + 1);
                is_read = true;
            }
            Some('.') if self.pattern.has_point && self.after.is_none() => {
                self.digits.push('.');
                self.after = Some(0);
                is_read = true;
            }
            Some(_) => {}
        }
        let has_digits = self.digits.bytes().any(|digit| digit != b'.');
        if self.sign.is_none() && has_digits {
            let rest = &self.rest[self.next().map_or(0, char::len_utf8)..];
            if self.pattern.sign.is_some() && is_read {
                // The sign behind the last digit.
                if let Some(sign @ ('-' | '+')) = rest.chars().next() {
                    self.sign = Some(sign);
                    self.skip();
                }
            } else if !is_read && self.pattern.sign.is_none() && (self.pattern.has_plus || self.pattern.has_minus) {
                self.sign = self.next().filter(|next| matches!(next, '-' | '+'));
            }
        }
        self.skip();
    }
}

/// The number that a text says in the form of a pattern: unscaled, with its digits behind the
/// point.
///
/// # Errors
/// 22P02 if there are no digits, 22003 if there are too many of them.
pub fn read(pattern: &NumberPattern, text: &str) -> Result<(i128, usize)> {
    if pattern.roman {
        return Err(SqlError::unsupported("reading Roman numerals (\"RN\")"));
    }
    if pattern.exponent {
        return Err(SqlError::unsupported("reading numbers by \"EEEE\""));
    }
    let mut reader = Reader { pattern, rest: text, sign: None, digits: String::new(), after: None };
    for token in &pattern.tokens {
        if reader.rest.is_empty() {
            break;
        }
        match token {
            Token::Digit | Token::Zero | Token::Point => reader.place(token),
            Token::Comma { .. } if pattern.bare => {}
            Token::Comma { .. } if reader.next() == Some(',') => reader.skip(),
            Token::Comma { .. } | Token::Roman { .. } => {}
            Token::Currency => reader.skip_text(1),
            Token::Ordinal { .. } if pattern.has_point || reader.sign == Some('-') => {}
            Token::Ordinal { .. } => reader.skip_text(2),
            Token::Minus | Token::Plus | Token::Sign => match (reader.next(), token) {
                (Some(sign @ '-'), Token::Minus | Token::Sign) | (Some(sign @ '+'), Token::Plus | Token::Sign) => {
                    reader.sign = Some(sign);
                    reader.skip();
                }
                _ => reader.skip_text(1),
            },
            Token::Text(_) => reader.skip(),
        }
    }
    let after = reader.after.unwrap_or(0);
    let digits: String = reader.digits.chars().filter(char::is_ascii_digit).collect();
    if digits.is_empty() {
        let message = format!("invalid input syntax for type numeric: \"{}\"", reader.sign.unwrap_or(' '));
        return Err(SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message));
    }
    let overflow = || SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow");
    let before = digits.trim_start_matches('0').len().saturating_sub(after);
    if before > pattern.before + pattern.shift {
        return Err(overflow());
    }
    let number: i128 = digits.parse().map_err(|_| overflow())?;
    Ok((if reader.sign == Some('-') { -number } else { number }, after + pattern.shift))
}
