//! Texts that become intervals: `1 day 02:03:04`, `1.5 weeks ago`, `1-2`, and `P1Y2DT3H`.
//!
//! A type may name the fields that its values have, as in `INTERVAL HOUR TO MINUTE`. They give the
//! unit of a number without one, and smaller fields are cut off. It may have a number of digits
//! behind the point of seconds, to which values are rounded.

use crate::error::SqlError;
use crate::intervals::{DAYS_PER_MONTH, MICROS_PER_DAY, Parts, out_of_range};
use crate::time_style::IntervalStyle;
use crate::time_words::{Kind, Unit, Word, words};
use datafusion::arrow::datatypes::IntervalMonthDayNano;

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// The reason why a text is no interval.
#[derive(Debug, PartialEq)]
enum Wrong {
    Syntax,
    /// A field is too large.
    Field,
}

type Step<T = ()> = Result<T, Wrong>;

/// The fields of a type of intervals, from the largest to the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    first: Unit,
    last: Unit,
}

impl Fields {
    /// Fields as SQL writes them; `None` for others.
    pub fn of(text: &str) -> Option<Self> {
        let unit = |name: &str| {
            Some(match name.trim().to_ascii_uppercase().as_str() {
                "YEAR" => Unit::Year,
                "MONTH" => Unit::Month,
                "DAY" => Unit::Day,
                "HOUR" => Unit::Hour,
                "MINUTE" => Unit::Minute,
                "SECOND" => Unit::Second,
                _ => return None,
            })
        };
        let (first, last) = text.split_once(" TO ").unwrap_or((text, text));
        Some(Self { first: unit(first)?, last: unit(last)? })
    }

    /// The interval without the cut-off fields.
    pub fn cut(self, mut parts: Parts) -> Parts {
        match self.last {
            Unit::Year => (parts.months, parts.days, parts.micros) = (parts.months / 12 * 12, 0, 0),
            Unit::Month => (parts.days, parts.micros) = (0, 0),
            Unit::Day => parts.micros = 0,
            Unit::Hour => parts.micros -= parts.micros % HOUR,
            Unit::Minute => parts.micros -= parts.micros % MINUTE,
            _ => {}
        }
        parts
    }
}

/// The parts of an interval that have been read.
#[derive(Default)]
struct Sum {
    years: i32,
    months: i32,
    days: i32,
    micros: i64,
}

impl Sum {
    /// A fraction of a unit of `scale` microseconds.
    fn fraction(&mut self, fraction: f64, scale: i64) -> Step {
        let all = fraction * scale as f64;
        let whole = all.trunc();
        let up = match all - whole {
            rest if rest > 0.5 => 1,
            rest if rest < -0.5 => -1,
            _ => 0,
        };
        self.micros = self.micros.checked_add(whole as i64 + up).ok_or(Wrong::Field)?;
        Ok(())
    }

    fn times(&mut self, whole: i64, fraction: f64, scale: i64) -> Step {
        let micros = whole.checked_mul(scale).and_then(|micros| self.micros.checked_add(micros));
        self.micros = micros.ok_or(Wrong::Field)?;
        self.fraction(fraction, scale)
    }

    fn whole_days(&mut self, whole: i64, scale: i32) -> Step {
        let days = i32::try_from(whole).ok().and_then(|whole| whole.checked_mul(scale));
        self.days = days.and_then(|days| self.days.checked_add(days)).ok_or(Wrong::Field)?;
        Ok(())
    }

    /// A fraction of a unit of `scale` days.
    fn fraction_of_days(&mut self, fraction: f64, scale: i32) -> Step {
        let days = fraction * f64::from(scale);
        self.days = self.days.checked_add(days.trunc() as i32).ok_or(Wrong::Field)?;
        self.fraction(days.fract(), MICROS_PER_DAY)
    }

    fn months(&mut self, whole: i64, fraction: f64) -> Step {
        let months = i32::try_from(whole).ok().and_then(|whole| self.months.checked_add(whole));
        self.months = months.ok_or(Wrong::Field)?;
        self.fraction_of_days(fraction, DAYS_PER_MONTH)
    }

    fn years(&mut self, whole: i64, fraction: f64, scale: i32) -> Step {
        let years = i32::try_from(whole).ok().and_then(|whole| whole.checked_mul(scale));
        self.years = years.and_then(|years| self.years.checked_add(years)).ok_or(Wrong::Field)?;
        let months = (fraction * f64::from(scale) * 12.0).round_ties_even();
        self.months = self.months.checked_add(months as i32).ok_or(Wrong::Field)?;
        Ok(())
    }

    fn add(&mut self, whole: i64, fraction: f64, unit: Unit) -> Step {
        match unit {
            Unit::Microsecond => self.times(whole, fraction, 1),
            Unit::Millisecond => self.times(whole, fraction, 1_000),
            Unit::Second => self.times(whole, fraction, SECOND),
            Unit::Minute => self.times(whole, fraction, MINUTE),
            Unit::Hour => self.times(whole, fraction, HOUR),
            Unit::Day => {
                self.whole_days(whole, 1)?;
                self.fraction(fraction, MICROS_PER_DAY)
            }
            Unit::Week => {
                self.whole_days(whole, 7)?;
                self.fraction_of_days(fraction, 7)
            }
            Unit::Month => self.months(whole, fraction),
            Unit::Year => self.years(whole, fraction, 1),
            Unit::Decade => self.years(whole, fraction, 10),
            Unit::Century => self.years(whole, fraction, 100),
            Unit::Millennium => self.years(whole, fraction, 1_000),
        }
    }

    fn negated(self) -> Step<Self> {
        let negated = || {
            Some(Self {
                years: self.years.checked_neg()?,
                months: self.months.checked_neg()?,
                days: self.days.checked_neg()?,
                micros: self.micros.checked_neg()?,
            })
        };
        negated().ok_or(Wrong::Field)
    }
}

/// The digits at the beginning of a text as a number, with its sign, and the rest.
fn leading(text: &str) -> Step<(i64, &str)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(text.len() - unsigned.len() + digits);
    // No digits are 0, as in `.5`.
    let number = if digits == 0 { 0 } else { number.parse().map_err(|_| Wrong::Field)? };
    Ok((number, rest))
}

/// `.25` as a number.
fn fraction(text: &str) -> Step<f64> {
    match text {
        "." => Ok(0.0),
        text if text[1..].bytes().all(|byte| byte.is_ascii_digit()) => text.parse().map_err(|_| Wrong::Syntax),
        _ => Err(Wrong::Syntax),
    }
}

/// `1:02`, `1:02:03.5`, `2:03.5` as microseconds.
fn time(text: &str, fields: Option<Fields>) -> Step<i64> {
    let (mut hours, rest) = leading(text)?;
    let rest = rest.strip_prefix(':').ok_or(Wrong::Syntax)?;
    let small = |number: i64| i32::try_from(number).map_err(|_| Wrong::Field);
    let (minutes, rest) = leading(rest)?;
    let (mut minutes, mut seconds, mut micros) = (small(minutes)?, 0, 0.0);
    let of_minutes = Fields { first: Unit::Minute, last: Unit::Second };
    let is_short = match rest.as_bytes().first() {
        None => fields == Some(of_minutes),
        Some(b'.') => {
            micros = fraction(rest)?;
            true
        }
        Some(b':') => {
            let (number, rest) = leading(&rest[1..])?;
            seconds = small(number)?;
            if rest.starts_with('.') {
                micros = fraction(rest)?;
            } else if !rest.is_empty() {
                return Err(Wrong::Syntax);
            }
            false
        }
        _ => return Err(Wrong::Syntax),
    };
    if is_short {
        (hours, minutes, seconds) = (0, small(hours)?, minutes);
    }
    if hours < 0 || !(0..60).contains(&minutes) || !(0..=60).contains(&seconds) {
        return Err(Wrong::Field);
    }
    let all = hours.checked_mul(HOUR).and_then(|all| all.checked_add(i64::from(minutes) * MINUTE));
    let all = all.and_then(|all| all.checked_add(i64::from(seconds) * SECOND));
    all.and_then(|all| all.checked_add((micros * 1e6).round_ties_even() as i64)).ok_or(Wrong::Field)
}

/// Adds a number, with or without a unit, to the sum; returns the fields that it fills.
fn number(word: &str, unit: &mut Option<Unit>, fields: Option<Fields>, sum: &mut Sum) -> Step<u16> {
    let (mut whole, rest) = leading(word)?;
    let is_negative = word.starts_with('-');
    let mut of_unit = unit.unwrap_or_else(|| fields.map_or(Unit::Second, |fields| fields.last));
    let mut behind_point = 0.0;
    if let Some(months) = rest.strip_prefix('-') {
        // Years and months.
        let (months, rest) = leading(months)?;
        if !(0..12).contains(&months) {
            return Err(Wrong::Field);
        }
        if !rest.is_empty() {
            return Err(Wrong::Syntax);
        }
        let months = if is_negative { -months } else { months };
        whole = whole.checked_mul(12).and_then(|all| all.checked_add(months)).ok_or(Wrong::Field)?;
        of_unit = Unit::Month;
    } else if rest.starts_with('.') {
        let fraction = fraction(rest)?;
        behind_point = if is_negative { -fraction } else { fraction };
    } else if !rest.is_empty() {
        return Err(Wrong::Syntax);
    }
    sum.add(whole, behind_point, of_unit)?;
    // A number before hours is days.
    *unit = Some(if of_unit == Unit::Hour { Unit::Day } else { of_unit });
    // Seconds with a fraction are microseconds, too.
    let also = if of_unit == Unit::Second && behind_point != 0.0 {
        mask(Unit::Millisecond) | mask(Unit::Microsecond)
    } else {
        0
    };
    Ok(mask(of_unit) | also)
}

fn mask(unit: Unit) -> u16 {
    1 << unit as u16
}

/// PostgreSQL's own way of writing. Units stand behind their numbers, so it is read from its end.
fn traditional(words: &[Word], fields: Option<Fields>) -> Step<Sum> {
    let (mut sum, mut unit, mut filled, mut is_ago) = (Sum::default(), None, 0, false);
    let of_seconds = mask(Unit::Second) | mask(Unit::Millisecond) | mask(Unit::Microsecond);
    let of_time = mask(Unit::Hour) | mask(Unit::Minute) | of_seconds;
    for word in words.iter().rev() {
        let fills = match word.kind {
            Kind::Time => {
                sum.micros = time(&word.text, fields)?;
                unit = Some(Unit::Day);
                of_time
            }
            Kind::Signed if word.text.contains(':') && time(&word.text[1..], fields).is_ok() => {
                let micros = time(&word.text[1..], fields)?;
                sum.micros = if word.text.starts_with('-') { -micros } else { micros };
                unit = Some(Unit::Day);
                of_time
            }
            Kind::Signed | Kind::Date | Kind::Number => number(&word.text, &mut unit, fields, &mut sum)?,
            Kind::Letters | Kind::SignedLetters if word.text == "ago" => {
                is_ago = true;
                unit = None;
                0
            }
            Kind::Letters | Kind::SignedLetters => {
                unit = Some(Unit::of_name(&word.text).ok_or(Wrong::Syntax)?);
                0
            }
        };
        if fills & filled != 0 {
            return Err(Wrong::Syntax);
        }
        filled |= fills;
    }
    if filled == 0 {
        return Err(Wrong::Syntax);
    }
    if is_ago { sum.negated() } else { Ok(sum) }
}

/// Whether a minus stands at the front of a text, and no other sign behind it.
fn has_one_sign(words: &[Word]) -> bool {
    let mut words = words.iter().map(|word| word.text.as_str());
    words.next().is_some_and(|first| first.starts_with('-')) && !words.any(|word| word.starts_with(['+', '-']))
}

/// A text of ISO 8601 of which the beginning has been read.
struct Iso<'t>(&'t str);

impl Iso<'_> {
    /// A number, and how many digits it begins with.
    fn number(&mut self) -> Step<(i64, f64, usize)> {
        let is_exponent = |at: usize| matches!(self.0.as_bytes().get(at.wrapping_sub(1)), Some(b'e' | b'E'));
        let is_part = |(at, byte): (usize, u8)| match byte {
            b'0'..=b'9' | b'.' => true,
            b'-' | b'+' => at == 0 || is_exponent(at),
            b'e' | b'E' => at > 0,
            _ => false,
        };
        let length = self.0.bytes().enumerate().take_while(|part| is_part(*part)).count();
        let (number, rest) = self.0.split_at(length);
        if !number.starts_with(['-', '.']) && !number.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Wrong::Syntax);
        }
        let value: f64 = number.parse().map_err(|_| Wrong::Syntax)?;
        if !(-9.2e18..9.2e18).contains(&value) {
            return Err(Wrong::Field);
        }
        let digits = number.trim_start_matches('-').bytes().take_while(u8::is_ascii_digit).count();
        self.0 = rest;
        Ok((value.trunc() as i64, value.fract(), digits))
    }

    fn letter(&mut self) -> Option<char> {
        let letter = self.0.chars().next();
        self.0 = &self.0[letter.map_or(0, char::len_utf8)..];
        letter
    }
}

/// `P1Y2M3DT4H5M6S`, `P0001-02-03T04:05:06`, `P00010203T040506`.
fn iso(text: &str) -> Step<Sum> {
    let mut rest = Iso(text.strip_prefix('P').filter(|rest| !rest.is_empty()).ok_or(Wrong::Syntax)?);
    let (mut sum, mut is_time, mut has_field) = (Sum::default(), false, false);
    while !rest.0.is_empty() {
        if let Some(time) = rest.0.strip_prefix('T') {
            (rest.0, is_time, has_field) = (time, true, false);
            continue;
        }
        let (whole, fraction, digits) = rest.number()?;
        let letter = rest.letter();
        let is_end = matches!(letter, None | Some('T'));
        let unit = match (is_time, letter) {
            (false, Some('Y')) => Some(Unit::Year),
            (false, Some('M')) => Some(Unit::Month),
            (false, Some('W')) => Some(Unit::Week),
            (false, Some('D')) => Some(Unit::Day),
            (true, Some('H')) => Some(Unit::Hour),
            (true, Some('M')) => Some(Unit::Minute),
            (true, Some('S')) => Some(Unit::Second),
            _ => None,
        };
        if let Some(unit) = unit {
            sum.add(whole, fraction, unit)?;
            has_field = true;
            continue;
        }
        if has_field {
            return Err(Wrong::Syntax);
        }
        let units =
            if is_time { [Unit::Hour, Unit::Minute, Unit::Second] } else { [Unit::Year, Unit::Month, Unit::Day] };
        let (mark, run_together) = if is_time { (':', 6) } else { ('-', 8) };
        match letter {
            // All digits in a row.
            _ if is_end && digits == run_together && (letter.is_none() || !is_time) => {
                sum.add(whole / 10i64.pow(4), 0.0, units[0])?;
                sum.add(whole / 100 % 100, 0.0, units[1])?;
                sum.add(whole % 100, fraction, units[2])?;
            }
            None => sum.add(whole, fraction, units[0])?,
            Some('T') if !is_time => sum.add(whole, fraction, units[0])?,
            Some(found) if found == mark => {
                sum.add(whole, fraction, units[0])?;
                for (at, unit) in units[1..].iter().enumerate() {
                    let (whole, fraction, _) = rest.number()?;
                    sum.add(whole, fraction, *unit)?;
                    let is_last = at == 1;
                    match rest.0.chars().next() {
                        None => break,
                        Some('T') if !is_time => break,
                        Some(found) if found == mark && !is_last => rest.0 = &rest.0[1..],
                        _ => return Err(Wrong::Syntax),
                    }
                }
            }
            _ => return Err(Wrong::Syntax),
        }
        if letter == Some('T') {
            (is_time, has_field) = (true, false);
        } else {
            has_field = true;
        }
    }
    Ok(sum)
}

/// A text as an interval, whose type may be restricted to fields.
///
/// # Errors
/// The errors of [`interval`].
pub fn parse(text: &str, fields: Option<Fields>) -> Result<Parts, SqlError> {
    parse_styled(text, fields, IntervalStyle::Postgres)
}

/// The same in a style.
///
/// # Errors
/// The errors of [`interval`].
pub fn parse_styled(text: &str, fields: Option<Fields>, style: IntervalStyle) -> Result<Parts, SqlError> {
    let read = |mut words: Vec<Word>| {
        if style == IntervalStyle::SqlStandard && has_one_sign(&words) {
            words[1..].iter_mut().for_each(Word::negate);
        }
        traditional(&words, fields)
    };
    let sum = match words(text).ok_or(Wrong::Syntax).and_then(read) {
        Err(Wrong::Syntax) => iso(text),
        read => read,
    };
    let sum = sum.map_err(|wrong| match wrong {
        Wrong::Syntax => SqlError::new(
            sqlstate::INVALID_DATETIME_FORMAT,
            format!("invalid input syntax for type interval: \"{text}\""),
        ),
        Wrong::Field => {
            SqlError::new(sqlstate::INTERVAL_FIELD_OVERFLOW, format!("interval field value out of range: \"{text}\""))
        }
    })?;
    let months = sum.years.checked_mul(12).and_then(|months| months.checked_add(sum.months));
    Ok(Parts { months: months.ok_or_else(out_of_range)?, days: sum.days, micros: sum.micros })
}

/// A text as an interval.
///
/// # Errors
/// 22007 for a text that is no interval, 22015 for a field that is too large, 22008 for an interval
/// that is.
pub fn interval(text: &str) -> Result<IntervalMonthDayNano, SqlError> {
    parse(text, None)?.interval()
}

/// An interval with this many digits behind the point of seconds.
///
/// # Errors
/// 22008 where it would be out of range.
pub fn rounded(mut parts: Parts, digits: i64) -> Result<Parts, SqlError> {
    let unit = 10i64.pow(6 - digits.clamp(0, 6) as u32);
    let half = if parts.micros < 0 { -unit / 2 } else { unit / 2 };
    parts.micros = parts.micros.checked_add(half).ok_or_else(out_of_range)? / unit * unit;
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, fields: &str) -> String {
        match parse(text, Fields::of(fields)) {
            Ok(Parts { months, days, micros }) => format!("{months} {days} {micros}"),
            Err(error) => error.sqlstate.into(),
        }
    }

    #[test]
    fn intervals_are_read_as_postgresql_does() {
        for (text, wanted) in [
            ("1 day 02:03:04", "0 1 7384000000"),
            ("5", "0 0 5000000"),
            ("31.5", "0 0 31500000"),
            ("1.5 weeks", "0 10 43200000000"),
            ("1.5 months", "1 15 0"),
            ("@ 1 minute", "0 0 60000000"),
            ("-1-2", "-14 0 0"),
            ("1-2", "14 0 0"),
            ("1 -2:03", "0 1 -7380000000"),
            ("- 1 day", "0 -1 0"),
            ("6 years ago", "-72 0 0"),
            ("1 days 2 hours 3 minutes ago", "0 -1 -7380000000"),
            ("2 decades 3 centuries", "3840 0 0"),
            ("1 millisecond 1 us", "0 0 1001"),
            ("P1Y2M3DT4H5M6.5S", "14 3 14706500000"),
            ("P0001-02-03T04:05:06", "14 3 14706000000"),
            ("P00010203T040506", "14 3 14706000000"),
            ("P1W", "0 7 0"),
            ("PT1.5H", "0 0 5400000000"),
            ("P-1Y", "-12 0 0"),
            ("1000000000 days", "0 1000000000 0"),
            ("10000000000 days", sqlstate::INTERVAL_FIELD_OVERFLOW),
            ("1:70", sqlstate::INTERVAL_FIELD_OVERFLOW),
            ("200000000 years", sqlstate::DATETIME_FIELD_OVERFLOW),
            ("1 day 1 day", sqlstate::INVALID_DATETIME_FORMAT),
            ("1:20:05 5 microseconds", sqlstate::INVALID_DATETIME_FORMAT),
            ("", sqlstate::INVALID_DATETIME_FORMAT),
            ("badly", sqlstate::INVALID_DATETIME_FORMAT),
            ("1 fortnight", sqlstate::INVALID_DATETIME_FORMAT),
        ] {
            assert_eq!(read(text, ""), wanted, "{text:?}");
        }
        let standard = |text: &str| parse_styled(text, None, IntervalStyle::SqlStandard).unwrap();
        assert_eq!(standard("-1 day 2:03"), Parts { months: 0, days: -1, micros: -7_380_000_000 });
        assert_eq!(standard("-1 day +2:03"), Parts { months: 0, days: -1, micros: 7_380_000_000 });
        assert_eq!(standard("-23 hours 45 min 12.34 sec"), Parts { months: 0, days: 0, micros: -85_512_340_000 });
        assert_eq!(standard("1 day -2:03"), Parts { months: 0, days: 1, micros: -7_380_000_000 });
        assert_eq!(read("1", "YEAR"), "12 0 0");
        assert_eq!(read("1:2", "MINUTE TO SECOND"), "0 0 62000000");
        assert_eq!(read("1 2:03", "DAY TO MINUTE"), "0 1 7380000000");
        assert_eq!(read("1 2", "DAY TO HOUR"), "0 1 7200000000");
    }
}
