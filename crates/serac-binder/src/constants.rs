//! Quoted constants as values of a type, by PostgreSQL's input forms.
//!
//! Whole numbers, truth values and bytes are read here, with PostgreSQL's errors. Dates and times
//! are read in the forms of ISO 8601 alone, and intervals as quantities with units or as
//! `hours:minutes:seconds`. The environment reads the other forms when the statement runs.

use crate::error::{BindError, Result};
use datafusion::arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::ScalarValue;
use serac_parser::tree::Span;
use serac_pg::TypeId;
use serac_pg::char_text::char_of_text;
use serac_pg::tid_text::tid_of_text;
use serac_pg::uuid_text::uuid_of_text;

/// A text as a value of a type that Arrow has; `None` if it is not read here.
pub(crate) fn read(text: &str, to: TypeId, span: Span) -> Result<Option<ScalarValue>> {
    let word = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let invalid = || {
        let message = format!("invalid input syntax for type {to}: \"{text}\"");
        BindError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message, span)
    };
    Ok(match to {
        TypeId::INT2 | TypeId::INT4 | TypeId::INT8 => {
            let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(invalid());
            }
            let value = match to {
                TypeId::INT2 => word.parse().ok().map(|number| ScalarValue::Int16(Some(number))),
                TypeId::INT4 => word.parse().ok().map(|number| ScalarValue::Int32(Some(number))),
                _ => word.parse().ok().map(|number| ScalarValue::Int64(Some(number))),
            };
            let is_too_large = || {
                BindError::new(
                    sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
                    format!("value \"{text}\" is out of range for type {to}"),
                    span,
                )
            };
            Some(value.ok_or_else(is_too_large)?)
        }
        TypeId::BOOL => Some(ScalarValue::Boolean(Some(truth(&word.to_ascii_lowercase()).ok_or_else(invalid)?))),
        TypeId::FLOAT8 | TypeId::FLOAT4 if is_no_number(text) => return Err(invalid()),
        TypeId::FLOAT8 => {
            let number = float(word).filter(|number: &f64| number.is_normal() || *number == 0.0);
            number.map(|number| ScalarValue::Float64(Some(number)))
        }
        TypeId::FLOAT4 => {
            let number = float(word).filter(|number: &f32| number.is_normal() || *number == 0.0);
            number.map(|number| ScalarValue::Float32(Some(number)))
        }
        TypeId::DATE => date(word).map(|days| ScalarValue::Date32(Some(days))),
        TypeId::TIME => time(word).map(|time| ScalarValue::Time64Microsecond(Some(time))),
        TypeId::TIMESTAMP => timestamp(word).map(|value| ScalarValue::TimestampMicrosecond(Some(value), None)),
        TypeId::TIMESTAMPTZ => {
            let value = with_zone(word).and_then(|(local, offset)| Some(timestamp(local)? - offset));
            value.map(|value| ScalarValue::TimestampMicrosecond(Some(value), Some("UTC".into())))
        }
        TypeId::INTERVAL => interval(word).map(|value| ScalarValue::IntervalMonthDayNano(Some(value))),
        TypeId::UUID => uuid_of_text(word).map(|bytes| ScalarValue::FixedSizeBinary(16, Some(bytes.to_vec()))),
        TypeId::CHAR => Some(ScalarValue::FixedSizeBinary(1, Some(vec![char_of_text(text)]))),
        TypeId::TID => {
            let bytes = tid_of_text(text).ok_or_else(invalid)?;
            Some(ScalarValue::FixedSizeBinary(6, Some(bytes.to_vec())))
        }
        TypeId::BYTEA => Some(ScalarValue::BinaryView(Some(bytes(text, span)?))),
        _ => match to.element() {
            Some(element) => crate::array_texts::read(text, element, to, span)?,
            None => None,
        },
    })
}

/// Whether a text is neither a number nor one of the words that are numbers.
pub(crate) fn is_no_number(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_digit() || c.is_ascii_whitespace() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    let is_word = |word: &str| text.to_ascii_lowercase().contains(word);
    !text.contains(|c: char| c.is_ascii_digit()) && !is_word("nan") && !is_word("inf")
        || !text.chars().all(is_part) && !is_word("nan") && !is_word("inf") && !is_word("x") && !is_word("_")
}

fn truth(word: &str) -> Option<bool> {
    let begins = |whole: &str, least: usize| word.len() >= least && whole.starts_with(word);
    match word {
        "1" => Some(true),
        "0" => Some(false),
        _ if begins("true", 1) || begins("yes", 1) || word == "on" => Some(true),
        _ if begins("false", 1) || begins("no", 1) || begins("off", 2) => Some(false),
        _ => None,
    }
}

/// Digits, perhaps with a point and an exponent. A number that the type has as zero must be zero.
fn float<T: std::str::FromStr + Default + PartialEq>(word: &str) -> Option<T> {
    let is_number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    let value: T = word.bytes().all(is_number).then(|| word.parse().ok()).flatten()?;
    let mantissa = word.split(['e', 'E']).next().unwrap_or(word);
    let is_zero = mantissa.bytes().all(|byte| !byte.is_ascii_digit() || byte == b'0');
    (is_zero || value != T::default()).then_some(value)
}

/// A number of `count` digits.
fn digits(text: &str, count: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let is_digits = count.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

/// Days since 1970 of `2024-02-29`.
fn date(word: &str) -> Option<i32> {
    let mut parts = word.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let (year, month, day) = (digits(year, 4..=4)?, digits(month, 1..=2)?, digits(day, 1..=2)?);
    if parts.next().is_some() || year == 0 || !(1..=12).contains(&month) {
        return None;
    }
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=longest).contains(&day) {
        return None;
    }
    // Years from March on, so that the day of a leap year is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    i32::try_from(days - 719_468).ok()
}

/// Microseconds of `12:34:56.789`.
fn time(word: &str) -> Option<i64> {
    let mut parts = word.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next().unwrap_or("00"));
    if parts.next().is_some() {
        return None;
    }
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let (hours, minutes, whole) = (digits(hours, 1..=2)?, digits(minutes, 2..=2)?, digits(whole, 2..=2)?);
    if hours > 23 || minutes > 59 || whole > 59 {
        return None;
    }
    let micros = digits(fraction, 1..=6)? * 10i64.pow(6 - u32::try_from(fraction.len()).ok()?);
    Some(((hours * 60 + minutes) * 60 + whole) * 1_000_000 + micros)
}

/// Microseconds since 1970 of `2024-02-29 12:34:56`; the time may be left out.
fn timestamp(word: &str) -> Option<i64> {
    let (day, clock) = word.split_once([' ', 'T']).unwrap_or((word, "00:00:00"));
    let clock = time(clock.trim_start_matches(' '))?;
    Some(i64::from(date(day)?) * 86_400_000_000 + clock)
}

/// The text before a zone, and the zone's microseconds east of Greenwich.
fn with_zone(word: &str) -> Option<(&str, i64)> {
    if let Some(local) = word.strip_suffix(['Z', 'z']) {
        return Some((local, 0));
    }
    let (_, clock) = word.split_once([' ', 'T'])?;
    let at = word.len() - clock.len() + clock.find(['+', '-'])?;
    let (local, zone) = word.split_at(at);
    let (sign, zone) = match zone.strip_prefix('-') {
        Some(west) => (-1, west),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = zone.split_once(':').unwrap_or((zone, "00"));
    let (hours, minutes) = (digits(hours, 1..=2)?, digits(minutes, 2..=2)?);
    if hours > 15 || minutes > 59 {
        return None;
    }
    Some((local.trim_end_matches(' '), sign * (hours * 60 + minutes) * 60_000_000))
}

/// `1 year 2 months`, `3 days 04:05:06`, `-1 hour`, `90 minutes ago`.
fn interval(word: &str) -> Option<IntervalMonthDayNano> {
    const SECOND: i64 = 1_000_000_000;
    let lower = word.to_ascii_lowercase();
    let mut words: Vec<&str> = lower.split_ascii_whitespace().collect();
    let is_ago = words.last() == Some(&"ago");
    if is_ago {
        words.pop();
    }
    let (mut months, mut days, mut nanos) = (0i64, 0i64, 0i64);
    let mut seen = Vec::new();
    let mut rest = words.into_iter();
    while let Some(quantity) = rest.next() {
        let (sign, unsigned) = match quantity.strip_prefix('-') {
            Some(unsigned) => (-1, unsigned),
            None => (1, quantity.strip_prefix('+').unwrap_or(quantity)),
        };
        if quantity.contains(':') {
            // A sign before a time is its own, but a sign before days carries over: these forms are
            // not read.
            if sign < 0 || seen.contains(&"time") || days < 0 || months < 0 {
                return None;
            }
            seen.push("time");
            nanos = nanos.checked_add(time(unsigned)?.checked_mul(1000)?)?;
            continue;
        }
        let number = sign * digits(unsigned, 1..=9)?;
        let unit = rest.next()?;
        let unit = match unit {
            "mon" | "mons" | "month" | "months" => "month",
            "year" | "years" | "y" | "yr" | "yrs" => "year",
            "week" | "weeks" | "w" => "week",
            "day" | "days" | "d" => "day",
            "hour" | "hours" | "h" | "hr" | "hrs" => "hour",
            "minute" | "minutes" | "min" | "mins" => "minute",
            "second" | "seconds" | "sec" | "secs" | "s" => "second",
            "millisecond" | "milliseconds" => "millisecond",
            "microsecond" | "microseconds" => "microsecond",
            _ => return None,
        };
        if seen.contains(&unit) || seen.contains(&"time") {
            return None;
        }
        seen.push(unit);
        match unit {
            "year" => months = months.checked_add(number.checked_mul(12)?)?,
            "month" => months = months.checked_add(number)?,
            "week" => days = days.checked_add(number.checked_mul(7)?)?,
            "day" => days = days.checked_add(number)?,
            "hour" => nanos = nanos.checked_add(number.checked_mul(3600 * SECOND)?)?,
            "minute" => nanos = nanos.checked_add(number.checked_mul(60 * SECOND)?)?,
            "second" => nanos = nanos.checked_add(number.checked_mul(SECOND)?)?,
            "millisecond" => nanos = nanos.checked_add(number.checked_mul(SECOND / 1_000)?)?,
            _ => nanos = nanos.checked_add(number.checked_mul(SECOND / 1_000_000)?)?,
        }
    }
    if seen.is_empty() {
        return None;
    }
    let sign = if is_ago { -1 } else { 1 };
    let (months, days) = (i32::try_from(sign * months).ok()?, i32::try_from(sign * days).ok()?);
    Some(IntervalMonthDayNano::new(months, days, sign * nanos))
}

/// `\x00ff`, or letters with backslashes, each before another backslash or three octal digits.
fn bytes(text: &str, span: Span) -> Result<Vec<u8>> {
    let wrong = |sqlstate, message: String| BindError::new(sqlstate, message, span);
    let mut bytes = Vec::with_capacity(text.len());
    if let Some(hex) = text.strip_prefix("\\x") {
        let digit = |letter: char| {
            let digit = letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            digit.ok_or_else(|| {
                wrong(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid hexadecimal digit: \"{letter}\""))
            })
        };
        let mut letters = hex.chars();
        while let Some(first) = letters.next() {
            if matches!(first, ' ' | '\n' | '\t' | '\r') {
                continue;
            }
            let first = digit(first)?;
            let odd =
                || wrong(sqlstate::INVALID_PARAMETER_VALUE, "invalid hexadecimal data: odd number of digits".into());
            bytes.push(first << 4 | digit(letters.next().ok_or_else(odd)?)?);
        }
        return Ok(bytes);
    }
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let (byte, behind) = match (first, behind) {
            (b'\\', [b'\\', behind @ ..]) => (b'\\', behind),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), behind)
            }
            (b'\\', _) => {
                return Err(wrong(sqlstate::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type bytea".into()));
            }
            (first, behind) => (*first, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days() {
        assert_eq!(date("1970-01-01"), Some(0));
        assert_eq!(date("2000-03-01"), Some(11_017));
        assert_eq!(date("2024-02-29"), Some(19_782));
        assert_eq!(date("1969-12-31"), Some(-1));
        assert_eq!(date("0001-01-01"), Some(-719_162));
        for wrong in ["2023-02-29", "2024-13-01", "2024-00-01", "2024-01-32", "24-01-01", "infinity", "2024-01-01 BC"] {
            assert_eq!(date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_microseconds() {
        assert_eq!(time("00:00"), Some(0));
        assert_eq!(time("01:02:03.5"), Some(3_723_500_000));
        assert_eq!(time("24:00:00"), None);
        assert_eq!(timestamp("1970-01-02 00:00:01"), Some(86_401_000_000));
        assert_eq!(with_zone("2024-01-01 00:00:00+02"), Some(("2024-01-01 00:00:00", 7_200_000_000)));
        assert_eq!(with_zone("2024-01-01 00:00:00"), None);
    }

    #[test]
    fn intervals_have_three_parts() {
        let parts = |text| interval(text).map(|value| (value.months, value.days, value.nanoseconds / 1_000_000));
        assert_eq!(parts("1 year 2 months 3 days"), Some((14, 3, 0)));
        assert_eq!(parts("1 day 02:03:04"), Some((0, 1, 7_384_000)));
        assert_eq!(parts("-2 hours"), Some((0, 0, -7_200_000)));
        assert_eq!(parts("2 weeks ago"), Some((0, -14, 0)));
        assert_eq!(parts("1.5 days"), None);
        assert_eq!(parts("P1D"), None);
        assert_eq!(parts("-1 day 02:00:00"), None);
    }

    #[test]
    fn words_are_truth_values() {
        assert_eq!(["t", "tru", "yes", "on", "1"].map(truth), [Some(true); 5]);
        assert_eq!(["f", "n", "of", "off", "0"].map(truth), [Some(false); 5]);
        assert_eq!(["o", "2", "", "truely"].map(truth), [None; 4]);
    }

    #[test]
    fn floats_neither_overflow_nor_vanish() {
        assert_eq!(float::<f64>("1e400").map(f64::is_infinite), Some(true));
        assert_eq!(float::<f64>("1e-400"), None);
        assert_eq!(float::<f64>("1e-60"), Some(1e-60));
        assert_eq!(float::<f32>("1e-60"), None);
        assert_eq!(float::<f32>("0.0"), Some(0.0));
        assert_eq!(float::<f64>("0x10"), None);
    }
}
