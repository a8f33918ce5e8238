//! Patterns of numbers.

use serac_values::{Result, SqlError};

/// A part of a pattern that is written or read at its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// `9`.
    Digit,
    /// `0`.
    Zero,
    /// `.` or `D`.
    Point,
    /// `,` or `G`.
    Comma { of_locale: bool },
    /// `L`.
    Currency,
    /// `MI`.
    Minus,
    /// `PL`.
    Plus,
    /// `SG`.
    Sign,
    /// `TH` or `th`.
    Ordinal { upper: bool },
    /// `RN` or `rn`.
    Roman { upper: bool },
    /// Anything else.
    Text(char),
}

/// The place of the sign of `S`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SignPlace {
    /// Before the digits. This many of them come before the `S`.
    Before(usize),
    After,
}

/// A pattern, and the combined facts of its parts.
#[derive(Clone, Debug, Default)]
pub struct NumberPattern {
    pub(super) tokens: Vec<Token>,
    /// Digits before the decimal point, and behind it.
    pub(super) before: usize,
    pub(super) after: usize,
    /// The number of digits behind `V`: the value is multiplied by ten to this power.
    pub(super) shift: usize,
    pub(super) has_shift: bool,
    pub(super) has_point: bool,
    /// The position, from 1, of the first `0` before the point, and of the last one.
    pub(super) first_zero: Option<usize>,
    pub(super) last_zero: usize,
    pub(super) sign: Option<SignPlace>,
    /// Without blanks and zeros (`FM`).
    pub(super) bare: bool,
    pub(super) has_minus: bool,
    pub(super) has_plus: bool,
    /// Negative numbers in angle brackets (`PR`).
    pub(super) brackets: bool,
    pub(super) roman: bool,
    /// `EEEE`.
    pub(super) exponent: bool,
    blank: bool,
}

/// A word of a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Comma,
    Point,
    Zero,
    Digit,
    Blank,
    Exponent,
    Bare,
    Group,
    Currency,
    Minus,
    Plus,
    Brackets,
    Roman,
    Sign,
    SignHere,
    Ordinal,
    Shift,
    /// A word that PostgreSQL accepts and ignores.
    Nothing,
}

/// If one word is a prefix of another, the longer one comes first. A word is in upper case or in
/// lower case as a whole.
const WORDS: [(&str, Word); 20] = [
    (",", Word::Comma),
    (".", Word::Point),
    ("0", Word::Zero),
    ("9", Word::Digit),
    ("B", Word::Blank),
    ("C", Word::Nothing),
    ("D", Word::Point),
    ("EEEE", Word::Exponent),
    ("FM", Word::Bare),
    ("G", Word::Group),
    ("L", Word::Currency),
    ("MI", Word::Minus),
    ("PL", Word::Plus),
    ("PR", Word::Brackets),
    ("RN", Word::Roman),
    ("SG", Word::Sign),
    ("SP", Word::Nothing),
    ("S", Word::SignHere),
    ("TH", Word::Ordinal),
    ("V", Word::Shift),
];

/// The word that a text begins with, its length, and whether it is in upper case.
fn word_of(text: &str) -> Option<(Word, usize, bool)> {
    WORDS.iter().find_map(|(word, meaning)| {
        let start = text.get(..word.len())?;
        let upper = start == *word;
        (upper || start == word.to_lowercase()).then_some((*meaning, word.len(), upper))
    })
}

fn wrong(message: &str) -> SqlError {
    SqlError::new(sqlstate::SYNTAX_ERROR, message)
}

impl NumberPattern {
    /// The parts of a pattern.
    ///
    /// # Errors
    /// 42601 for parts that do not go together.
    pub fn parse(pattern: &str) -> Result<Self> {
        let mut parsed = Self::default();
        let mut rest = pattern;
        while let Some(first) = rest.chars().next() {
            if let Some((word, length, upper)) = word_of(rest) {
                parsed.add(word, upper)?;
                rest = &rest[length..];
                continue;
            }
            rest = &rest[first.len_utf8()..];
            match first {
                '"' => {
                    let mut letters = rest.chars();
                    while let Some(letter) = letters.next().filter(|letter| *letter != '"') {
                        let quoted = if letter == '\\' { letters.clone().next() } else { None };
                        parsed.tokens.push(Token::Text(quoted.unwrap_or(letter)));
                        if quoted.is_some() {
                            letters.next();
                        }
                    }
                    rest = letters.as_str();
                }
                '\\' if rest.starts_with('"') => {
                    parsed.tokens.push(Token::Text('"'));
                    rest = &rest[1..];
                }
                other => parsed.tokens.push(Token::Text(other)),
            }
        }
        Ok(parsed)
    }

    fn add(&mut self, word: Word, upper: bool) -> Result<()> {
        if self.exponent && word != Word::Exponent {
            return Err(wrong("\"EEEE\" must be the last pattern used"));
        }
        let signed = self.sign.is_some();
        let token = match word {
            Word::Digit | Word::Zero => {
                let name = if word == Word::Digit { "9" } else { "0" };
                if self.brackets {
                    return Err(wrong(&format!("\"{name}\" must be ahead of \"PR\"")));
                }
                if word == Word::Digit && self.has_shift {
                    self.shift += 1;
                } else if word == Word::Digit || self.has_point {
                    *if self.has_point { &mut self.after } else { &mut self.before } += 1;
                } else {
                    self.first_zero.get_or_insert(self.before + 1);
                    self.before += 1;
                }
                if word == Word::Zero {
                    self.last_zero = self.before + self.after;
                }
                if word == Word::Digit { Token::Digit } else { Token::Zero }
            }
            Word::Point => {
                if self.has_point {
                    return Err(wrong("multiple decimal points"));
                }
                if self.has_shift {
                    return Err(wrong("cannot use \"V\" and decimal point together"));
                }
                self.has_point = true;
                Token::Point
            }
            Word::SignHere => {
                if signed {
                    return Err(wrong("cannot use \"S\" twice"));
                }
                if self.has_plus || self.has_minus || self.brackets {
                    return Err(wrong("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
                }
                self.sign = Some(if self.has_point { SignPlace::After } else { SignPlace::Before(self.before) });
                return Ok(());
            }
            Word::Minus | Word::Plus | Word::Sign => {
                if signed {
                    let name = match word {
                        Word::Minus => "MI",
                        Word::Plus => "PL",
                        _ => "SG",
                    };
                    return Err(wrong(&format!("cannot use \"S\" and \"{name}\" together")));
                }
                self.has_minus |= word != Word::Plus;
                self.has_plus |= word != Word::Minus;
                match word {
                    Word::Minus => Token::Minus,
                    Word::Plus => Token::Plus,
                    _ => Token::Sign,
                }
            }
            Word::Brackets => {
                if signed || self.has_plus || self.has_minus {
                    return Err(wrong("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
                }
                self.brackets = true;
                return Ok(());
            }
            Word::Shift => {
                if self.has_point {
                    return Err(wrong("cannot use \"V\" and decimal point together"));
                }
                self.has_shift = true;
                return Ok(());
            }
            Word::Exponent => {
                if self.exponent {
                    return Err(wrong("cannot use \"EEEE\" twice"));
                }
                let signs = signed || self.brackets || self.has_minus || self.has_plus;
                if signs || self.blank || self.bare || self.roman || self.has_shift {
                    let detail = "\"EEEE\" may only be used together with digit and decimal point patterns.";
                    let error = wrong("\"EEEE\" is incompatible with other formats");
                    return Err(SqlError { detail: Some(detail.into()), ..error });
                }
                self.exponent = true;
                return Ok(());
            }
            Word::Bare => {
                self.bare = true;
                return Ok(());
            }
            Word::Blank => {
                self.blank |= self.before == 0 && self.after == 0 && self.first_zero.is_none();
                return Ok(());
            }
            Word::Nothing => return Ok(()),
            Word::Comma => Token::Comma { of_locale: false },
            Word::Group => Token::Comma { of_locale: true },
            Word::Currency => Token::Currency,
            Word::Ordinal => Token::Ordinal { upper },
            Word::Roman => {
                self.roman = true;
                Token::Roman { upper }
            }
        };
        self.tokens.push(token);
        Ok(())
    }

    /// By how many digits a number is shifted (`V`).
    pub fn shift(&self) -> usize {
        self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted() {
        let pattern = NumberPattern::parse("S9,990.00").unwrap();
        assert_eq!((pattern.before, pattern.after, pattern.first_zero, pattern.last_zero), (4, 2, Some(4), 6));
        assert_eq!(pattern.sign, Some(SignPlace::Before(0)));
        assert_eq!(NumberPattern::parse("99V9").unwrap().shift, 1);
        let quoted = NumberPattern::parse("\"9\\\"\"\\\"é").unwrap().tokens;
        assert_eq!(quoted, ['9', '"', '"', 'é'].map(Token::Text));
    }

    #[test]
    fn what_does_not_go_together_is_an_error() {
        for pattern in ["9.9.9", "9.9V9", "S9S", "S9MI", "9PR9", "9EEEE9", "FM9EEEE", "9VD", "SGPR"] {
            assert_eq!(NumberPattern::parse(pattern).unwrap_err().sqlstate, sqlstate::SYNTAX_ERROR, "{pattern}");
        }
    }
}
