//! Types of columns from samples of their values.
//!
//! Each value says which types it may have, and a column has the first type in [`Shape`]'s order
//! that all of its values may have. A value behind the sample that has another type is an error of
//! the query ([`keeps`]), not a reason for another type: a file's columns do not depend on how much
//! is read. A type with which a value would lose digits is none of its types.

use serac_storage::ColumnType;

/// The types that are guessed, the most special first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Boolean,
    Integer,
    Numeric,
    Float,
    Date,
    Timestamp,
    TimestampWithZone,
    Time,
    Uuid,
    Text,
    Document,
}

const SHAPES: [Shape; 11] = [
    Shape::Boolean,
    Shape::Integer,
    Shape::Numeric,
    Shape::Float,
    Shape::Date,
    Shape::Timestamp,
    Shape::TimestampWithZone,
    Shape::Time,
    Shape::Uuid,
    Shape::Text,
    Shape::Document,
];

impl Shape {
    const fn bit(self) -> u16 {
        1 << self as u16
    }

    fn column_type(self) -> ColumnType {
        match self {
            Self::Boolean => ColumnType::Boolean,
            Self::Integer => ColumnType::Int64,
            Self::Numeric => ColumnType::Numeric,
            Self::Float => ColumnType::Float64,
            Self::Date => ColumnType::Date,
            Self::Timestamp => ColumnType::Timestamp { utc: false },
            Self::TimestampWithZone => ColumnType::Timestamp { utc: true },
            Self::Time => ColumnType::Time,
            Self::Uuid => ColumnType::Uuid,
            Self::Text => ColumnType::Utf8,
            Self::Document => ColumnType::Json,
        }
    }
}

/// Significant digits that a double precision number can show.
const FLOAT_DIGITS: usize = 17;
/// Integers up to this are doubles, each another one.
const FLOAT_INTEGERS: u64 = 1 << 53;

/// The bit of [`Shape::Float`] for a number that loses no digits as one.
fn of_float(number: &str) -> u16 {
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let keeps_digits = if mantissa.len() == number.len() && !mantissa.contains('.') {
        number.parse::<i64>().is_ok_and(|integer| integer.unsigned_abs() <= FLOAT_INTEGERS)
    } else {
        let digits = mantissa.trim_start_matches(['-', '0', '.']).trim_end_matches(['0', '.']);
        let count = digits.bytes().filter(u8::is_ascii_digit).count();
        // What is too large is infinite, and what is too small is zero.
        let is_in_range = |float: f64| float.is_finite() && (float != 0.0 || count == 0);
        count <= FLOAT_DIGITS && number.parse().is_ok_and(is_in_range)
    };
    if keeps_digits { Shape::Float.bit() } else { 0 }
}

/// The number that ASCII digits write, up to so many of them, and what stands behind.
fn digits(text: &str, count: usize) -> Option<(u32, &str)> {
    let (number, rest) = text.split_at_checked(count)?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some((number.parse().ok()?, rest))
}

/// What stands behind a date, `2024-02-29`.
fn after_date(text: &str) -> Option<&str> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    (year > 0 && (1..=days).contains(&day)).then_some(rest)
}

/// What stands behind a time of day, `12:30`, `12:30:15.5`.
fn after_time(text: &str, needs_seconds: bool) -> Option<&str> {
    let (hours, rest) = digits(text, 2)?;
    let (minutes, rest) = digits(rest.strip_prefix(':')?, 2)?;
    if hours > 23 || minutes > 59 {
        return None;
    }
    let Some(rest) = rest.strip_prefix(':') else { return (!needs_seconds).then_some(rest) };
    let (seconds, rest) = digits(rest, 2).filter(|(seconds, _)| *seconds < 60)?;
    let _ = seconds;
    let Some(fraction) = rest.strip_prefix('.') else { return Some(rest) };
    let behind = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    (behind.len() < fraction.len()).then_some(behind)
}

/// Whether it is a time zone: `Z`, `+02`, `-05:30`.
fn is_zone(text: &str) -> bool {
    if text == "Z" || text == "z" {
        return true;
    }
    let Some((hours, rest)) = text.strip_prefix(['+', '-']).and_then(|rest| digits(rest, 2)) else { return false };
    let minutes = rest.strip_prefix(':').unwrap_or(rest);
    hours < 16 && (rest.is_empty() || digits(minutes, 2).is_some_and(|(minutes, rest)| minutes < 60 && rest.is_empty()))
}

fn of_times(text: &str) -> u16 {
    let Some(rest) = after_date(text) else {
        return if after_time(text, true) == Some("") { Shape::Time.bit() } else { 0 };
    };
    if rest.is_empty() {
        return Shape::Date.bit() | Shape::Timestamp.bit();
    }
    match rest.strip_prefix([' ', 'T']).and_then(|rest| after_time(rest, false)) {
        Some("") => Shape::Timestamp.bit(),
        Some(zone) if is_zone(zone.strip_prefix(' ').unwrap_or(zone)) => Shape::TimestampWithZone.bit(),
        _ => 0,
    }
}

fn of_number(text: &str) -> u16 {
    let number = text.strip_prefix('-').unwrap_or(text);
    let whole = number.trim_start_matches(|c: char| c.is_ascii_digit());
    let count = number.len() - whole.len();
    // A number with zeros before it is a code.
    if count > 1 && number.starts_with('0') {
        return 0;
    }
    if whole.is_empty() && count > 0 {
        let integer = if text.parse::<i64>().is_ok() { Shape::Integer.bit() } else { 0 };
        return integer | Shape::Numeric.bit() | of_float(text);
    }
    let (rest, fraction) = match whole.strip_prefix('.') {
        Some(fraction) => {
            let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            (rest, fraction.len() - rest.len())
        }
        None => (whole, 0),
    };
    let exponent = rest.strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
    match exponent {
        _ if count + fraction == 0 => 0,
        None if rest.is_empty() => Shape::Numeric.bit() | of_float(text),
        Some(exponent) if digits(exponent, exponent.len()).is_some() => of_float(text),
        _ => 0,
    }
}

fn is_uuid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Whether a value, as a text, would have let a column keep the type that was guessed for it.
pub(crate) fn keeps(column_type: ColumnType, text: &str) -> bool {
    let guessed = SHAPES.into_iter().find(|shape| shape.column_type() == column_type);
    let wanted = match guessed {
        None | Some(Shape::Text | Shape::Document) => return true,
        // It has all digits of a number with an exponent, too.
        Some(Shape::Numeric) => Shape::Numeric.bit() | Shape::Float.bit(),
        Some(shape) => shape.bit(),
    };
    of_text(text) & wanted != 0
}

/// The types that a text may have in a file where all values are texts.
fn of_text(text: &str) -> u16 {
    let special = match text {
        _ if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") => Shape::Boolean.bit(),
        "NaN" | "Infinity" | "-Infinity" => Shape::Float.bit(),
        _ if is_uuid(text) => Shape::Uuid.bit(),
        _ => of_times(text) | of_number(text),
    };
    special | Shape::Text.bit()
}

/// The types that a value of JSON may have, as it is written. A string is no number.
fn of_json(value: &str) -> u16 {
    match value.as_bytes().first() {
        Some(b't' | b'f') => Shape::Boolean.bit() | Shape::Document.bit(),
        Some(b'"') => {
            let text = value.trim_matches('"');
            let is_uuid = if is_uuid(text) { Shape::Uuid.bit() } else { 0 };
            of_times(text) | is_uuid | Shape::Text.bit() | Shape::Document.bit()
        }
        Some(b'{' | b'[') => Shape::Document.bit(),
        _ => of_number(value) | Shape::Document.bit(),
    }
}

/// The types that all values of a column so far may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Guess(u16);

impl Default for Guess {
    fn default() -> Self {
        Self(u16::MAX)
    }
}

impl Guess {
    /// Goes past a text.
    pub(crate) fn see_text(&mut self, text: &str) {
        self.0 &= of_text(text);
    }

    /// Goes past all values of another sample.
    pub(crate) fn and(&mut self, other: Self) {
        self.0 &= other.0;
    }

    /// Goes past a value of JSON other than `null`.
    pub(crate) fn see_json(&mut self, value: &str) {
        self.0 &= of_json(value);
    }

    /// Whether a text may be a value of the column as it is now, which has another type than text.
    pub(crate) fn refuses(self, text: &str) -> bool {
        self.column_type() != ColumnType::Utf8 && self.0 & of_text(text) & !Shape::Text.bit() == 0
    }

    /// The type. Text, if there was no value.
    pub(crate) fn column_type(self) -> ColumnType {
        match self.0 {
            u16::MAX => ColumnType::Utf8,
            may_be => {
                let first = SHAPES.into_iter().find(|shape| may_be & shape.bit() != 0);
                first.unwrap_or(Shape::Text).column_type()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_texts(texts: &[&str]) -> ColumnType {
        let mut guess = Guess::default();
        texts.iter().for_each(|text| guess.see_text(text));
        guess.column_type()
    }

    fn of_values(values: &[&str]) -> ColumnType {
        let mut guess = Guess::default();
        values.iter().for_each(|value| guess.see_json(value));
        guess.column_type()
    }

    #[test]
    fn texts_have_the_most_special_type_of_all() {
        let (timestamp, with_zone) = (ColumnType::Timestamp { utc: false }, ColumnType::Timestamp { utc: true });
        for (texts, wanted) in [
            (&["true", "FALSE"][..], ColumnType::Boolean),
            (&["t", "f"], ColumnType::Utf8),
            (&["0", "-17", "9223372036854775807"], ColumnType::Int64),
            (&["1", "9223372036854775808"], ColumnType::Numeric),
            (&["1", "1.50", "-.5", "3."], ColumnType::Numeric),
            (&["1", "1.5e3", "NaN"], ColumnType::Float64),
            (&["9007199254740992", "0.30000000000000004", "0e5", "1.50e-300"], ColumnType::Float64),
            (&["9007199254740993", "NaN"], ColumnType::Utf8),
            (&["0.123456789012345678", "1e5"], ColumnType::Utf8),
            (&["1e400"], ColumnType::Utf8),
            (&["1e-400"], ColumnType::Utf8),
            (&["1", "007"], ColumnType::Utf8),
            (&["-", "."], ColumnType::Utf8),
            (&["1e", "1e+"], ColumnType::Utf8),
            (&["1", "true"], ColumnType::Utf8),
            (&["2024-02-29"], ColumnType::Date),
            (&["2023-02-29"], ColumnType::Utf8),
            (&["2024-13-01"], ColumnType::Utf8),
            (&["0000-01-01"], ColumnType::Utf8),
            (&["2024-01-01", "2024-01-01 12:30"], timestamp),
            (&["2024-01-01T12:30:00.123456"], timestamp),
            (&["2024-01-01T12:30:00Z", "2024-01-01 12:30:00+05:30", "2024-01-01 12:30 -08"], with_zone),
            (&["2024-01-01 25:00"], ColumnType::Utf8),
            (&["12:30:00", "00:00:59.5"], ColumnType::Time),
            (&["12:30"], ColumnType::Utf8),
            (&["f81d4fae-7dec-11d0-a765-00a0c91e6bf6"], ColumnType::Uuid),
            (&["ä", "€"], ColumnType::Utf8),
            (&[], ColumnType::Utf8),
        ] {
            assert_eq!(of_texts(texts), wanted, "{texts:?}");
        }
    }

    #[test]
    fn values_of_json_keep_their_kind() {
        for (values, wanted) in [
            (&["1", "2"][..], ColumnType::Int64),
            (&["1", "2.5"], ColumnType::Numeric),
            (&["1", "2e5"], ColumnType::Float64),
            (&["\"1\"", "\"2\""], ColumnType::Utf8),
            (&["\"2024-01-01\""], ColumnType::Date),
            (&["\"2024-01-01\"", "\"x\""], ColumnType::Utf8),
            (&["true", "false"], ColumnType::Boolean),
            (&["1", "\"a\""], ColumnType::Json),
            (&["{}", "[1]"], ColumnType::Json),
            (&["1", "[1]"], ColumnType::Json),
        ] {
            assert_eq!(of_values(values), wanted, "{values:?}");
        }
    }

    #[test]
    fn later_values_keep_a_type_or_do_not() {
        for (column_type, text, is_kept) in [
            (ColumnType::Int64, "-7", true),
            (ColumnType::Int64, "007", false),
            (ColumnType::Numeric, "1e-05", true),
            (ColumnType::Numeric, "+49", false),
            (ColumnType::Float64, "9007199254740993", false),
            (ColumnType::Date, "2024-01-01 12:00", false),
            (ColumnType::Timestamp { utc: false }, "2024-01-01", true),
            (ColumnType::Timestamp { utc: false }, "2024-01-01 12:00+02", false),
            (ColumnType::Utf8, "007", true),
            (ColumnType::Json, "[1]", true),
        ] {
            assert_eq!(keeps(column_type, text), is_kept, "{text}");
        }
    }

    #[test]
    fn a_column_of_numbers_refuses_its_name() {
        let mut guess = Guess::default();
        guess.see_text("1");
        assert!(guess.refuses("id") && !guess.refuses("2") && !Guess::default().refuses("id"));
    }
}
