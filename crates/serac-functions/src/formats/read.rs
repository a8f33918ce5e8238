//! to_date and to_timestamp: from text to a time, by the rules of PostgreSQL 15 (its manual, "Data
//! Type Formatting Functions", and what it answers).
//!
//! Each part of the pattern takes its part of the text. A number before another number has as many
//! digits as its field. Before any other part it takes all digits that are there, and a sign.
//! Blanks before and behind fields do not count, and a separator of the pattern takes a blank or a
//! separator of the text, or nothing. After `FX` each character of the pattern takes one of the
//! text.

use super::pattern::{Field, Piece, is_separator};
use super::write::{DAYS, JULIAN_DAYS_BEFORE, MONTHS, ROMAN_MONTHS};
use chrono::{Datelike, Days, NaiveDate, NaiveDateTime, TimeDelta};
use serac_values::time_zones::Zone;
use serac_values::{Result, SqlError};

/// Midnight of 2000-01-01 in microseconds since 1970, from which digits of a second are rounded.
const YEAR_2000: i64 = 946_684_800_000_000;

/// A time that a text says.
pub(super) struct Read {
    pub(super) time: NaiveDateTime,
    /// Seconds by which its zone is ahead of UTC.
    pub(super) offset: Option<i32>,
    /// Digits of a second that the pattern asks for.
    digits: Option<u8>,
}

impl Read {
    /// Microseconds since 1970 in UTC, where a text without a zone is taken for one of `zone`;
    /// `None` if they are out of range.
    pub(super) fn micros(&self, zone: &Zone) -> Option<i64> {
        let local = self.time.and_utc().timestamp_micros();
        let micros = match self.offset {
            Some(seconds) => local.checked_sub(i64::from(seconds) * 1_000_000)?,
            None => zone.instant(local)?,
        };
        let Some(digits) = self.digits else { return Some(micros) };
        let unit = 10_i64.pow(6 - u32::from(digits));
        let distance = micros - YEAR_2000;
        Some((distance + unit / 2 * distance.signum()) / unit * unit + YEAR_2000)
    }
}

/// The calendars whose fields do not mix.
#[derive(Clone, Copy, PartialEq)]
enum Calendar {
    Gregorian,
    IsoWeeks,
}

/// A number that a text has said, once or more often.
type Said = Option<i32>;

/// The parts that have been read so far. A number that is 0 counts as absent.
#[derive(Default)]
struct Parts {
    calendar: Option<Calendar>,
    year: Said,
    /// Digits of the year's field.
    year_digits: u8,
    century: Said,
    before_christ: Said,
    month: Said,
    day: Said,
    day_of_year: Said,
    /// Sunday is 1.
    day_of_week: Said,
    week: Said,
    week_of_month: Said,
    julian_day: Said,
    hour: Said,
    is_12_hours: bool,
    afternoon: Said,
    minute: Said,
    second: Said,
    second_of_day: Said,
    millis: Said,
    micros: Said,
    fraction_digits: Option<u8>,
    zone_sign: Said,
    zone_hours: Said,
    zone_minutes: Said,
}

/// A field of the pattern at its place.
struct Place<'p> {
    field: Field,
    word: &'p str,
    /// A number there has as many digits as there are.
    is_open: bool,
}

/// The text, of which the first characters have been read.
struct Reader<'t> {
    rest: &'t str,
    is_exact: bool,
    /// Characters that have been skipped beyond those that the pattern has.
    skipped: i32,
    /// The last character that was skipped.
    last_skipped: Option<char>,
}

fn conflicting(word: &str) -> SqlError {
    let message = format!("conflicting values for \"{word}\" field in formatting string");
    SqlError::new(sqlstate::INVALID_DATETIME_FORMAT, message)
        .explained("This value contradicts a previous setting for the same field type.")
}

/// Notes a number, which must equal an earlier one.
fn note(said: &mut Said, number: i32, word: &str) -> Result<()> {
    match *said {
        Some(before) if before != 0 && before != number => Err(conflicting(word)),
        _ => {
            *said = Some(number);
            Ok(())
        }
    }
}

impl Reader<'_> {
    fn next(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self) {
        self.last_skipped = self.next();
        let mut letters = self.rest.chars();
        letters.next();
        self.rest = letters.as_str();
    }

    /// Skips blanks and returns their number.
    fn skip_blanks(&mut self) -> i32 {
        let mut count = 0;
        while self.next().is_some_and(|next| next.is_ascii_whitespace()) {
            self.take();
            count += 1;
        }
        count
    }

    fn separators(&mut self, text: &str) {
        for _ in text.chars() {
            if self.is_exact {
                self.take();
                continue;
            }
            self.skipped += self.skip_blanks() - 1;
            if self.next().is_some_and(|next| next.is_ascii_whitespace() || is_separator(next)) {
                self.take();
                self.skipped += 1;
            }
        }
    }

    fn text(&mut self, text: &str) {
        for _ in text.chars() {
            // Skipped characters may be part of a field.
            match !self.is_exact && self.skipped > 0 {
                true => self.skipped -= 1,
                false => self.take(),
            }
        }
    }

    /// A number of `digits` digits, or of any count if the place is open, and its length.
    fn number(&mut self, digits: usize, place: &Place<'_>) -> Result<(i32, usize)> {
        let word = place.word;
        let before = self.rest.len();
        let invalid = |given: &str, detail: String, hint: Option<&str>| {
            let message = format!("invalid value \"{given}\" for \"{word}\"");
            let error = SqlError::new(sqlstate::INVALID_DATETIME_FORMAT, message).explained(detail);
            hint.into_iter().fold(error, SqlError::hinted)
        };
        const HINT: &str = "If your source string is not fixed-width, try using the \"FM\" modifier.";
        self.skip_blanks();
        let given: String = self.rest.chars().take(digits).collect();
        let (text, least) = match place.is_open {
            true => (self.rest, 0),
            false => (given.as_str(), digits),
        };
        if text.chars().count() < least {
            let message = format!("source string too short for \"{word}\" formatting field");
            let count = text.chars().count();
            let detail = format!("Field requires {least} characters, but only {count} remain.");
            return Err(SqlError::new(sqlstate::INVALID_DATETIME_FORMAT, message).explained(detail).hinted(HINT));
        }
        // As strtol reads it.
        let blanks = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_whitespace()).len();
        let sign = usize::from(text[blanks..].starts_with(['+', '-']));
        let count = text[blanks + sign..].bytes().take_while(u8::is_ascii_digit).count();
        let used = if count > 0 { blanks + sign + count } else { 0 };
        if used > 0 && used < least {
            let detail = format!("Field requires {least} characters, but only {used} could be parsed.");
            return Err(invalid(&given, detail, Some(HINT)));
        }
        let number = text[blanks..used.max(blanks)].parse::<i32>();
        self.rest = &self.rest[used..];
        if used == 0 {
            return Err(invalid(&given, "Value must be an integer.".into(), None));
        }
        let number = number.map_err(|_| {
            let message = format!("value for \"{word}\" in source string is out of range");
            let detail = format!("Value must be in the range {} to {}.", i32::MIN, i32::MAX);
            SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, message).explained(detail)
        })?;
        Ok((number, before - self.rest.len()))
    }

    /// The word that stands here, recognised by its first `letters` (or all).
    fn word(&mut self, words: &[&str], letters: usize, place: &Place<'_>) -> Result<i32> {
        let of = |word: &'_ str| letters.min(word.len());
        let is_here =
            |word: &&str| self.rest.get(..of(word)).is_some_and(|start| start.eq_ignore_ascii_case(&word[..of(word)]));
        let Some(at) = words.iter().position(is_here) else {
            let given: String = self.rest.chars().take_while(|letter| !letter.is_ascii_whitespace()).collect();
            let message = format!("invalid value \"{given}\" for \"{}\"", place.word);
            let detail = "The given value did not match any of the allowed values for this field.";
            return Err(SqlError::new(sqlstate::INVALID_DATETIME_FORMAT, message).explained(detail));
        };
        self.rest = &self.rest[of(words[at])..];
        Ok(at as i32)
    }

    /// Reads a number, notes it and returns the number of its characters.
    fn noted(&mut self, said: &mut Said, digits: usize, place: &Place<'_>) -> Result<usize> {
        let (number, used) = self.number(digits, place)?;
        note(said, number, place.word)?;
        Ok(used)
    }

    fn field(&mut self, place: &Place<'_>, parts: &mut Parts) -> Result<()> {
        let calendar = match place.field {
            Field::Year { iso, .. }
            | Field::DayOfYear { iso }
            | Field::DayOfWeek { iso }
            | Field::WeekOfYear { iso } => Some(if iso { Calendar::IsoWeeks } else { Calendar::Gregorian }),
            Field::YearWithComma
            | Field::DayOfMonth
            | Field::Month
            | Field::MonthName
            | Field::MonthAbbreviated
            | Field::RomanMonth
            | Field::WeekOfMonth => Some(Calendar::Gregorian),
            _ => None,
        };
        if let Some(calendar) = calendar
            && *parts.calendar.get_or_insert(calendar) != calendar
        {
            let hint = "Do not mix Gregorian and ISO week date conventions in a formatting template.";
            let message = "invalid combination of date conventions";
            return Err(SqlError::new(sqlstate::INVALID_DATETIME_FORMAT, message).hinted(hint));
        }
        match place.field {
            Field::Zone | Field::ZoneOffset => {
                let message = format!("formatting field \"{}\" is only supported in to_char", place.word);
                return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
            }
            Field::ZoneHours => {
                let sign = match self.next() {
                    Some(sign @ ('+' | '-' | ' ')) => {
                        self.take();
                        sign
                    }
                    // It may have been taken for a separator.
                    _ if self.skipped > 0 => self.last_skipped.unwrap_or('+'),
                    _ => '+',
                };
                parts.zone_sign = Some(if sign == '-' { -1 } else { 1 });
                self.noted(&mut parts.zone_hours, 2, place)?;
            }
            Field::ZoneMinutes => {
                parts.zone_sign = parts.zone_sign.or(Some(1));
                self.noted(&mut parts.zone_minutes, 2, place)?;
            }
            Field::Year { digits, .. } => {
                let (year, used) = self.number(digits.into(), place)?;
                let year = match year {
                    year if digits == 4 || used >= 4 => year,
                    ..70 | 100..520 => year + 2_000,
                    70..100 => year + 1_900,
                    520..1_000 => year + 1_000,
                    _ => year,
                };
                note(&mut parts.year, year, place.word)?;
                parts.year_digits = digits;
            }
            Field::YearWithComma => {
                let all = |reader: &mut Self, most: usize| {
                    let count = reader.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
                    let number = reader.rest[..count].parse::<i32>().ok()?;
                    reader.rest = &reader.rest[count..];
                    Some(number)
                };
                self.skip_blanks();
                let is_negative = self.rest.starts_with('-');
                if is_negative {
                    self.take();
                }
                let thousands = all(self, 6);
                let has_comma = self.rest.starts_with(',');
                if has_comma {
                    self.take();
                }
                let (Some(thousands), true, Some(years)) = (thousands, has_comma, all(self, 3)) else {
                    return Err(SqlError::new(sqlstate::INVALID_DATETIME_FORMAT, "invalid input string for \"Y,YYY\""));
                };
                let thousands = if is_negative { -thousands } else { thousands };
                note(&mut parts.year, thousands * 1_000 + years, place.word)?;
                parts.year_digits = 4;
            }
            Field::Century => drop(self.noted(&mut parts.century, 2, place)?),
            // It does not say which day of the quarter is meant.
            Field::Quarter => drop(self.number(1, place)?),
            Field::DayName | Field::DayAbbreviated => {
                let letters = if place.field == Field::DayName { usize::MAX } else { 3 };
                let day = self.word(&DAYS, letters, place)?;
                note(&mut parts.day_of_week, day + 1, place.word)?;
            }
            Field::DayOfWeek { iso: false } => drop(self.noted(&mut parts.day_of_week, 1, place)?),
            Field::DayOfWeek { iso: true } => {
                let (day, _) = self.number(1, place)?;
                note(&mut parts.day_of_week, if day >= 7 { 1 } else { day + 1 }, place.word)?;
            }
            Field::WeekOfYear { .. } => drop(self.noted(&mut parts.week, 2, place)?),
            Field::WeekOfMonth => drop(self.noted(&mut parts.week_of_month, 1, place)?),
            Field::Month => drop(self.noted(&mut parts.month, 2, place)?),
            Field::MonthName | Field::MonthAbbreviated => {
                let letters = if place.field == Field::MonthName { usize::MAX } else { 3 };
                let month = self.word(&MONTHS, letters, place)?;
                note(&mut parts.month, month + 1, place.word)?;
            }
            Field::RomanMonth => {
                let month = 12 - self.word(&ROMAN_MONTHS, usize::MAX, place)?;
                note(&mut parts.month, month, place.word)?;
            }
            Field::DayOfMonth => drop(self.noted(&mut parts.day, 2, place)?),
            Field::DayOfYear { .. } => drop(self.noted(&mut parts.day_of_year, 3, place)?),
            Field::JulianDay => drop(self.noted(&mut parts.julian_day, 1, place)?),
            Field::Hour => drop(self.noted(&mut parts.hour, 2, place)?),
            Field::Hour12 => {
                self.noted(&mut parts.hour, 2, place)?;
                parts.is_12_hours = true;
            }
            Field::Minute => drop(self.noted(&mut parts.minute, 2, place)?),
            Field::Second => drop(self.noted(&mut parts.second, 2, place)?),
            Field::Fraction(digits) => {
                let (number, used) = self.number(digits.into(), place)?;
                let is_millis = place.word.eq_ignore_ascii_case("MS");
                let scale = (if is_millis { 3 } else { 6usize }).saturating_sub(used);
                let number = number.saturating_mul(10_i32.pow(scale as u32));
                let said = if is_millis { &mut parts.millis } else { &mut parts.micros };
                note(said, number, place.word)?;
                if !is_millis && !place.word.eq_ignore_ascii_case("US") {
                    parts.fraction_digits = Some(digits);
                }
            }
            Field::SecondOfDay => drop(self.noted(&mut parts.second_of_day, place.word.len(), place)?),
            Field::HalfDay { dots } => {
                let half = self.word(if dots { &["A.M.", "P.M."] } else { &["AM", "PM"] }, usize::MAX, place)?;
                note(&mut parts.afternoon, half, place.word)?;
                parts.is_12_hours = true;
            }
            Field::Era { dots } => {
                let era = self.word(if dots { &["A.D.", "B.C."] } else { &["AD", "BC"] }, usize::MAX, place)?;
                note(&mut parts.before_christ, era, place.word)?;
            }
        }
        Ok(())
    }
}

/// A number that was said, and is not 0.
fn known(said: Said) -> Option<i32> {
    said.filter(|number| *number != 0)
}

/// The Monday of the first ISO week of a year.
fn first_monday(year: i32) -> Option<NaiveDate> {
    let fourth = NaiveDate::from_ymd_opt(year, 1, 4)?;
    fourth.checked_sub_days(Days::new(fourth.weekday().num_days_from_monday().into()))
}

fn days_after(date: NaiveDate, days: i64) -> Option<NaiveDate> {
    date.checked_add_signed(TimeDelta::try_days(days)?)
}

impl Parts {
    /// The year, as chrono counts them: 0 is 1 BC. `None` if the text has no year.
    fn year(&self) -> Option<i32> {
        let before_christ = known(self.before_christ).is_some();
        let century = known(self.century).map(|century| if before_christ { -century } else { century });
        match (known(self.year), century) {
            // The last two digits, in a century of which the last year ends with 00.
            (Some(year), Some(century)) if self.year_digits <= 2 => Some(match (year % 100, century >= 0) {
                (0, true) => century * 100,
                (0, false) => century * 100 + 1,
                (year, true) => year + (century - 1) * 100,
                (year, false) => (century + 1) * 100 - year + 1,
            }),
            (Some(year), _) => {
                let year = if before_christ { -year } else { year };
                Some(if year < 0 { year + 1 } else { year })
            }
            (None, Some(century)) => Some(if century >= 0 { (century - 1) * 100 + 1 } else { century * 100 + 1 }),
            (None, None) => None,
        }
    }

    /// The date; `None` if it does not exist.
    fn date(&self) -> Result<Option<NaiveDate>> {
        let given_year = self.year();
        let mut date = (given_year.unwrap_or(0), 1, 1);
        // Whether the year, the month and the day have been said.
        let mut said = (given_year.is_some(), false, false);
        let civil = |date: NaiveDate| (date.year(), date.month() as i32, date.day() as i32);
        let whole = |found: NaiveDate| (civil(found), (true, true, true));
        if let Some(day) = known(self.julian_day) {
            let Some(found) = NaiveDate::from_num_days_from_ce_opt(day.saturating_sub(JULIAN_DAYS_BEFORE)) else {
                return Ok(None);
            };
            (date, said) = whole(found);
        }
        let in_weeks = self.calendar == Some(Calendar::IsoWeeks);
        let mut day_of_year = known(self.day_of_year);
        if let Some(week) = known(self.week) {
            if in_weeks {
                // Monday, if no day is said.
                let day = known(self.day_of_week).map_or(0, |day| if day > 1 { day - 2 } else { 6 });
                let days = (i64::from(week) - 1) * 7 + i64::from(day);
                let Some(found) = first_monday(date.0).and_then(|monday| days_after(monday, days)) else {
                    return Ok(None);
                };
                (date, said) = whole(found);
            } else {
                day_of_year = Some(week.saturating_sub(1).saturating_mul(7).saturating_add(1));
            }
        }
        let of_week = known(self.week_of_month).map(|week| week.saturating_sub(1).saturating_mul(7).saturating_add(1));
        if let Some(day) = of_week.or(known(self.day)) {
            (date.2, said.2) = (day, true);
        }
        if let Some(month) = known(self.month) {
            (date.1, said.1) = (month, true);
        }
        if let Some(day) = day_of_year.filter(|day| *day != 0)
            && (date.1 <= 1 || date.2 <= 1)
        {
            if date.0 == 0 && known(self.before_christ).is_none() {
                return Err(SqlError::new(
                    sqlstate::INVALID_DATETIME_FORMAT,
                    "cannot calculate day of year without year information",
                ));
            }
            if in_weeks {
                let Some(found) = first_monday(date.0).and_then(|monday| days_after(monday, i64::from(day) - 1)) else {
                    return Ok(None);
                };
                (date, said) = whole(found);
            } else {
                let Some(first) = NaiveDate::from_ymd_opt(date.0, 1, 1) else { return Ok(None) };
                let of_year = days_after(first, i64::from(day) - 1).filter(|date| date.year() == first.year());
                let Some(of_year) = of_year else { return Ok(None) };
                let (_, month, of_month) = civil(of_year);
                date = (date.0, if date.1 <= 1 { month } else { date.1 }, if date.2 <= 1 { of_month } else { date.2 });
                said = (said.0, true, true);
            }
        }
        let (year, month, day) = date;
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Ok(None);
        }
        // A day that the month does not have is one of the next month, where no year is said.
        let all_said = said == (true, true, true);
        let exact = NaiveDate::from_ymd_opt(year, month as u32, day as u32);
        let first = NaiveDate::from_ymd_opt(year, month as u32, 1);
        Ok(exact.or_else(|| first.filter(|_| !all_said).and_then(|first| days_after(first, i64::from(day) - 1))))
    }

    fn read(&self, text: &str) -> Result<Read> {
        let range = || {
            SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
        };
        let of_day = known(self.second_of_day).unwrap_or(0);
        let mut hour = known(self.hour).unwrap_or(of_day / 3_600);
        let minute = known(self.minute).unwrap_or(of_day % 3_600 / 60);
        let second = known(self.second).unwrap_or(of_day % 60);
        if self.is_12_hours {
            if !(1..=12).contains(&hour) {
                let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                let hint = "Use the 24-hour clock, or give an hour between 1 and 12.";
                return Err(SqlError::new(sqlstate::INVALID_DATETIME_FORMAT, message).hinted(hint));
            }
            match known(self.afternoon) {
                Some(_) if hour < 12 => hour += 12,
                None if hour == 12 => hour = 0,
                _ => {}
            }
        }
        let date = self.date()?.ok_or_else(range)?;
        let millis = i64::from(self.millis.unwrap_or(0)) * 1_000;
        let micros = millis + i64::from(self.micros.unwrap_or(0));
        let in_range = (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second)
            && (0..1_000_000).contains(&micros);
        if !in_range {
            return Err(range());
        }
        let seconds = i64::from(hour * 3_600 + minute * 60 + second);
        let since = TimeDelta::seconds(seconds) + TimeDelta::microseconds(micros);
        let time = date.and_hms_opt(0, 0, 0).and_then(|midnight| midnight.checked_add_signed(since));
        let offset = match self.zone_sign {
            None => None,
            Some(sign) => {
                let (hours, minutes) = (self.zone_hours.unwrap_or(0), self.zone_minutes.unwrap_or(0));
                if !(0..=15).contains(&hours) || !(0..60).contains(&minutes) {
                    let message = format!("time zone displacement out of range: \"{text}\"");
                    return Err(SqlError::new(sqlstate::INVALID_TIME_ZONE_DISPLACEMENT_VALUE, message));
                }
                Some(sign * (hours * 3_600 + minutes * 60))
            }
        };
        Ok(Read { time: time.ok_or_else(range)?, offset, digits: self.fraction_digits })
    }
}

/// Whether a number of the text ends where the piece begins: at all but digits.
fn ends_numbers(piece: Option<&Piece>) -> bool {
    match piece {
        Some(Piece::Text(text)) => !text.starts_with(|letter: char| letter.is_ascii_digit()),
        Some(Piece::Field { field, .. }) => matches!(
            field,
            Field::MonthName
                | Field::MonthAbbreviated
                | Field::RomanMonth
                | Field::DayName
                | Field::DayAbbreviated
                | Field::HalfDay { .. }
                | Field::Era { .. }
                | Field::Zone
                | Field::ZoneOffset
                | Field::ZoneHours
        ),
        Some(Piece::Separator(_) | Piece::Exact) | None => true,
    }
}

/// The time that a text says in the words of a pattern.
///
/// # Errors
/// 22007 if the text does not match the pattern, 22008 if it is no time, 0A000 for fields that can
/// only be written.
pub(super) fn read(pieces: &[Piece], text: &str) -> Result<Read> {
    let mut reader = Reader { rest: text, is_exact: false, skipped: 0, last_skipped: None };
    let mut parts = Parts::default();
    for (i, piece) in pieces.iter().enumerate() {
        if reader.rest.is_empty() {
            break;
        }
        if !reader.is_exact && (i == 0 || matches!(piece, Piece::Field { .. } | Piece::Exact)) {
            reader.skipped += reader.skip_blanks();
        }
        match piece {
            Piece::Exact => reader.is_exact = true,
            Piece::Text(text) => reader.text(text),
            Piece::Separator(text) => reader.separators(text),
            Piece::Field { .. } if reader.rest.is_empty() => break,
            Piece::Field { field, word, bare, ordinal, case: _ } => {
                let is_open = *bare || ordinal.is_some() || ends_numbers(pieces.get(i + 1));
                reader.field(&Place { field: *field, word, is_open }, &mut parts)?;
                if ordinal.is_some() {
                    reader.take();
                    reader.take();
                }
                if !reader.is_exact {
                    reader.skipped = reader.skip_blanks();
                }
            }
        }
    }
    parts.read(text)
}
