//! to_date and to_timestamp: from text to a time.

use super::pattern::{Field, Piece};
use super::write::{DAYS, JULIAN_DAYS_BEFORE, MONTHS, ROMAN_MONTHS};
use chrono::{NaiveDate, NaiveDateTime, NaiveTime, TimeDelta};
use serac_values::{Result, SqlError};

/// What a text has said so far.
#[derive(Default)]
struct Parts {
    year: Option<i32>,
    month: Option<u32>,
    day: Option<u32>,
    day_of_year: Option<u32>,
    julian_day: Option<i32>,
    hour: u32,
    is_12_hours: bool,
    afternoon: Option<bool>,
    minute: u32,
    second: u32,
    micros: u32,
    second_of_day: Option<u32>,
    before_christ: bool,
}

/// The text, of which the first characters have been read.
struct Reader<'t> {
    whole: &'t str,
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn skip(&mut self, what: impl Fn(char) -> bool) {
        self.rest = self.rest.trim_start_matches(what);
    }
    fn wrong(&self, name: &str) -> SqlError {
        let rest: String = self.rest.chars().take(20).collect();
        SqlError::new("22007", format!("invalid value \"{rest}\" for \"{name}\""))
    }
    /// A number of at most so many digits.
    fn number(&mut self, most: usize, name: &str) -> Result<(u32, usize)> {
        self.skip(char::is_whitespace);
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        let number = self.rest[..digits].parse().map_err(|_| self.wrong(name))?;
        self.rest = &self.rest[digits..];
        Ok((number, digits))
    }
    /// Which of the words, of whose first `letters` (or all) it is, stands here.
    fn word(&mut self, words: &[&str], letters: usize, name: &str) -> Result<usize> {
        self.skip(char::is_whitespace);
        let of = |word: &'_ str| letters.min(word.len());
        let is_here =
            |word: &&str| self.rest.get(..of(word)).is_some_and(|start| start.eq_ignore_ascii_case(&word[..of(word)]));
        let at = words.iter().position(is_here).ok_or_else(|| self.wrong(name))?;
        self.rest = &self.rest[of(words[at])..];
        Ok(at)
    }
    /// Text of the pattern: what separates fields there is any separator, and none, here.
    fn literal(&mut self, text: &str) {
        for wanted in text.chars() {
            let mut rest = self.rest.chars();
            if rest.next().is_some_and(|found| wanted.is_alphanumeric() || !found.is_alphanumeric()) {
                self.rest = rest.as_str();
            }
        }
    }

    fn field(&mut self, field: Field, before_digits: bool, parts: &mut Parts) -> Result<()> {
        match field {
            Field::Year { iso: true, .. }
            | Field::DayOfYear { iso: true }
            | Field::WeekOfYear { .. }
            | Field::WeekOfMonth
            | Field::Century => {
                return Err(SqlError::unsupported("reading dates by weeks or centuries"));
            }
            Field::Zone | Field::ZoneOffset | Field::ZoneHours | Field::ZoneMinutes => {
                return Err(SqlError::unsupported("reading time zones by a format"));
            }
            Field::Year { digits, .. } => {
                let most = if digits == 4 && !before_digits { 6 } else { digits.into() };
                let year = self.number(most, "YYYY")?.0 as i32;
                // The last digits of a year are of the one nearest to 2020.
                let century = match year {
                    _ if digits == 4 => 0,
                    ..70 | 100..520 => 2_000,
                    70..100 => 1_900,
                    _ => 1_000,
                };
                parts.year = Some(year + century);
            }
            Field::YearWithComma => {
                let thousands = self.number(3, "Y,YYY")?.0;
                self.literal(",");
                parts.year = Some((thousands * 1_000 + self.number(3, "Y,YYY")?.0) as i32);
            }
            Field::Quarter => drop(self.number(1, "Q")?),
            Field::DayOfWeek { .. } => drop(self.number(1, "D")?),
            Field::DayName => drop(self.word(&DAYS, usize::MAX, "Day")?),
            Field::DayAbbreviated => drop(self.word(&DAYS, 3, "Dy")?),
            Field::Month => parts.month = Some(self.number(2, "MM")?.0),
            Field::MonthName => parts.month = Some(self.word(&MONTHS, usize::MAX, "Month")? as u32 + 1),
            Field::MonthAbbreviated => parts.month = Some(self.word(&MONTHS, 3, "Mon")? as u32 + 1),
            Field::RomanMonth => parts.month = Some(12 - self.word(&ROMAN_MONTHS, usize::MAX, "RM")? as u32),
            Field::DayOfMonth => parts.day = Some(self.number(2, "DD")?.0),
            Field::DayOfYear { iso: false } => parts.day_of_year = Some(self.number(3, "DDD")?.0),
            Field::JulianDay => parts.julian_day = Some(self.number(8, "J")?.0 as i32),
            Field::Hour => (parts.hour, parts.is_12_hours) = (self.number(2, "HH24")?.0, false),
            Field::Hour12 => (parts.hour, parts.is_12_hours) = (self.number(2, "HH12")?.0, true),
            Field::Minute => parts.minute = self.number(2, "MI")?.0,
            Field::Second => parts.second = self.number(2, "SS")?.0,
            Field::Fraction(most) => {
                let (number, digits) = self.number(most.into(), "fraction")?;
                parts.micros = number * 10u32.pow(6 - digits as u32);
            }
            Field::SecondOfDay => parts.second_of_day = Some(self.number(5, "SSSS")?.0),
            Field::HalfDay { dots } => {
                let words = if dots { ["A.M.", "P.M."] } else { ["AM", "PM"] };
                parts.afternoon = Some(self.word(&words, usize::MAX, words[0])? == 1);
            }
            Field::Era { dots } => {
                let words = if dots { ["A.D.", "B.C."] } else { ["AD", "BC"] };
                parts.before_christ = self.word(&words, usize::MAX, words[0])? == 1;
            }
        }
        Ok(())
    }
}

impl Parts {
    fn time(&self, text: &str) -> Result<NaiveDateTime> {
        let range = || SqlError::new("22008", format!("date/time field value out of range: \"{text}\""));
        let year = self.year.unwrap_or(1);
        let year = if self.before_christ { 1 - year } else { year };
        let date = match (self.julian_day, self.day_of_year) {
            (Some(day), _) => NaiveDate::from_num_days_from_ce_opt(day - JULIAN_DAYS_BEFORE),
            (None, Some(day)) => NaiveDate::from_yo_opt(year, day),
            (None, None) => NaiveDate::from_ymd_opt(year, self.month.unwrap_or(1), self.day.unwrap_or(1)),
        };
        let date = date.ok_or_else(range)?;
        if let Some(second) = self.second_of_day {
            let time = NaiveTime::from_num_seconds_from_midnight_opt(second, self.micros * 1_000).ok_or_else(range)?;
            return Ok(date.and_time(time));
        }
        let hour = match self.afternoon {
            _ if self.is_12_hours && !(1..=12).contains(&self.hour) => {
                let message = format!("hour \"{}\" is invalid for the 12-hour clock", self.hour);
                return Err(SqlError::new("22007", message));
            }
            Some(true) => self.hour % 12 + 12,
            Some(false) => self.hour % 12,
            None if self.is_12_hours => self.hour % 12,
            None => self.hour,
        };
        // 24:00 and 60 seconds belong to the next day and minute.
        let in_range = hour <= 24 && self.minute < 60 && self.second <= 60;
        let seconds = i64::from(hour * 3_600 + self.minute * 60 + self.second);
        if !in_range || seconds > 86_400 {
            return Err(range());
        }
        let since = TimeDelta::seconds(seconds) + TimeDelta::microseconds(self.micros.into());
        date.and_time(NaiveTime::MIN).checked_add_signed(since).ok_or_else(range)
    }
}

/// The time that a text says in the words of a pattern.
pub(super) fn read(pieces: &[Piece], text: &str) -> Result<NaiveDateTime> {
    let (mut reader, mut parts) = (Reader { whole: text, rest: text }, Parts::default());
    for (i, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Text(text) => reader.literal(text),
            Piece::Field { field, ordinal, .. } => {
                let before_digits = matches!(pieces.get(i + 1), Some(Piece::Field { .. }));
                reader.field(*field, before_digits, &mut parts)?;
                if ordinal.is_some() {
                    reader.literal("th");
                }
                reader.skip(char::is_whitespace);
            }
        }
    }
    parts.time(reader.whole)
}
