//! Texts that become dates and times, as PostgreSQL reads them: `2020-1-31`, `Jan 8, 1999`,
//! `1/8/1999`, `20200131T100000.25+02`, `J2451187`, `today`, `2020-01-31 10:00 PST`.
//!
//! DataFusion's own casts take fewer of them, and apply a time zone to a type without one. Casts
//! and assignments to columns come here.
//!
//! A session's settings give the order of a date's numbers, and the zone of a time without one.
//!
//! `now`, `today` and their like mean the time at which the transaction began, which the planner
//! knows: they are read in constants alone.

use crate::error::SqlError;
use crate::time_range::{DATES, TIMES, TIMESTAMPS};
use crate::time_style::{DateOrder, TimeStyle};
use crate::time_words::{Kind, Meaning, Named, Part, Word, meaning, words};
use crate::time_zones::Zone;
use chrono::{DateTime, Days, NaiveDate};
use datafusion::arrow::array::{ArrayRef, AsArray, Date32Array, Time64MicrosecondArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Date32Type, TimeUnit};
use serac_engine::Infinity;
use std::sync::Arc;

const MICROS_PER_DAY: i64 = 86_400_000_000;
/// The Julian number of 1970-01-01.
const JULIAN_1970: i64 = 2_440_588;

/// The reason why a text is no time.
#[derive(Debug, PartialEq)]
enum Wrong {
    Syntax,
    Range,
    /// A date that might be right if month and day changed places.
    MonthOrDay,
    /// A time zone that is too far away.
    Displacement,
    /// An unknown time zone.
    Zone(String),
    /// The text depends on the time of reading.
    Relative,
}

type Step<T = ()> = std::result::Result<T, Wrong>;

/// The parts of a time that have been read, as bits.
type Parts = u16;
const YEAR: Parts = 1;
const MONTH: Parts = 2;
const DAY: Parts = 4;
const DAY_OF_YEAR: Parts = 8;
const HOUR: Parts = 16;
const MINUTE: Parts = 32;
const SECOND: Parts = 64;
const ZONE: Parts = 128;
const DAY_OF_WEEK: Parts = 256;
const DATE: Parts = YEAR | MONTH | DAY;
const TIME: Parts = HOUR | MINUTE | SECOND;

/// The content of a text: a date and a time on the clock, and its zone, if it has one.
struct Written {
    date: NaiveDate,
    micros: i64,
    zone: Option<Zone>,
}

/// The content of a text: a time or an infinite one.
enum Moment {
    Finite(Written),
    Infinite(Infinity),
}

struct Reader<'s> {
    style: &'s TimeStyle,
    filled: Parts,
    year: i64,
    month: u32,
    day: u32,
    day_of_year: u32,
    hour: u32,
    minute: u32,
    second: u32,
    micros: u32,
    zone: Option<Zone>,
    /// Whether the year has at most two digits.
    is_short_year: bool,
    has_month_name: bool,
    is_julian: bool,
    before_christ: bool,
    afternoon: Option<bool>,
    /// The part that the letters before a number have named.
    part: Option<Part>,
    /// The time at which the transaction began, in microseconds since 1970, if that is known.
    now: Option<i64>,
    /// Whether the text depends on that time.
    is_relative: bool,
}

fn number<T: std::str::FromStr>(digits: &str) -> Step<T> {
    match digits {
        "" => Err(Wrong::Syntax),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().map_err(|_| Wrong::Range),
        _ => Err(Wrong::Syntax),
    }
}

/// The digits at the beginning of a text, and the rest.
fn leading(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Microseconds of `.25`, which may be a whole second.
fn fraction(text: &str) -> Step<u32> {
    let digits = text.strip_prefix('.').ok_or(Wrong::Syntax)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Wrong::Syntax);
    }
    let value: f64 = format!("0.{digits}0").parse().map_err(|_| Wrong::Syntax)?;
    Ok((value * 1e6).round_ties_even() as u32)
}

/// `+02`, `+0200`, `+02:00`, `-03:30:15`: microseconds that clocks are ahead of UTC.
fn offset(text: &str) -> Step<i64> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').ok_or(Wrong::Syntax)?),
    };
    let (hours, rest) = leading(rest);
    let is_run_together = rest.is_empty() && hours.len() > 2;
    let (mut hours, mut minutes, mut seconds): (i64, i64, i64) = (number(hours)?, 0, 0);
    let mut rest = rest;
    if is_run_together {
        (hours, minutes) = (hours / 100, hours % 100);
    } else if let Some(behind) = rest.strip_prefix(':') {
        // No digits are 0.
        let count = |digits: &str| if digits.is_empty() { Ok(0) } else { number(digits) };
        let (digits, behind) = leading(behind);
        (minutes, rest) = (count(digits)?, behind);
        if let Some(behind) = rest.strip_prefix(':') {
            let (digits, behind) = leading(behind);
            (seconds, rest) = (count(digits)?, behind);
        }
    }
    if hours > 15 || minutes > 59 || seconds > 59 {
        return Err(Wrong::Displacement);
    }
    match rest.is_empty() {
        true => Ok(sign * ((hours * 60 + minutes) * 60 + seconds) * 1_000_000),
        false => Err(Wrong::Syntax),
    }
}

impl<'s> Reader<'s> {
    fn new(style: &'s TimeStyle, now: Option<i64>) -> Self {
        Self {
            style,
            filled: 0,
            year: 0,
            month: 0,
            day: 0,
            day_of_year: 0,
            hour: 0,
            minute: 0,
            second: 0,
            micros: 0,
            zone: None,
            is_short_year: false,
            has_month_name: false,
            is_julian: false,
            before_christ: false,
            afternoon: None,
            part: None,
            now,
            is_relative: false,
        }
    }

    fn fills(&mut self, parts: Parts) -> Step {
        if self.filled & parts != 0 {
            return Err(Wrong::Syntax);
        }
        self.filled |= parts;
        Ok(())
    }

    /// `10:00`, `10:00:00`, `10:00:00.25`.
    fn clock(&mut self, text: &str) -> Step {
        let (hours, rest) = leading(text);
        let (minutes, rest) = leading(rest.strip_prefix(':').ok_or(Wrong::Syntax)?);
        (self.hour, self.minute, self.second, self.micros) = (number(hours)?, number(minutes)?, 0, 0);
        match rest.as_bytes().first() {
            None => {}
            // A fraction is one of seconds.
            Some(b'.') => {
                self.micros = fraction(rest)?;
                (self.hour, self.minute, self.second) = (0, self.hour, self.minute);
            }
            _ => {
                let (seconds, rest) = leading(rest.strip_prefix(':').ok_or(Wrong::Syntax)?);
                self.second = number(seconds)?;
                if !rest.is_empty() {
                    self.micros = fraction(rest)?;
                }
            }
        }
        if self.minute > 59 || self.second > 60 {
            return Err(Wrong::Range);
        }
        self.fills(TIME)
    }

    /// Digits in a row that are a date, or a time, perhaps with a fraction.
    fn run_together(&mut self, text: &str, is_time: bool) -> Step {
        let (digits, rest) = leading(text);
        let has_date = is_time || self.filled & DATE == DATE;
        if rest.is_empty() && !has_date && digits.len() >= 6 {
            let (year, month_and_day) = digits.split_at(digits.len() - 4);
            self.year = number(year)?;
            (self.month, self.day) = (number(&month_and_day[..2])?, number(&month_and_day[2..])?);
            self.is_short_year = year.len() == 2;
            return self.fills(DATE);
        }
        if self.filled & TIME == TIME {
            return Err(Wrong::Syntax);
        }
        if !rest.is_empty() {
            self.micros = fraction(rest)?;
        }
        match digits.len() {
            6 => self.second = number(&digits[4..])?,
            4 => self.second = 0,
            _ => return Err(Wrong::Syntax),
        }
        (self.hour, self.minute) = (number(&digits[..2])?, number(&digits[2..4])?);
        self.fills(TIME)
    }

    /// A number that is a part of a date by its position, or a time of digits in a row.
    fn by_place(&mut self, text: &str, is_time: bool) -> Step {
        let (digits, rest) = leading(text);
        if !rest.is_empty() && digits.len() > 2 {
            return self.run_together(text, true);
        }
        let micros = if rest.is_empty() { None } else { Some(fraction(rest)?) };
        let value: u32 = number(digits)?;
        let known = if is_time { DATE } else { self.filled & DATE };
        if digits.len() == 3 && rest.is_empty() && known == YEAR && (1..=366).contains(&value) {
            self.day_of_year = value;
            return self.fills(DAY_OF_YEAR | MONTH | DAY);
        }
        let is_long = digits.len() >= 3;
        let may_be_year = is_long || self.style.order == DateOrder::Ymd;
        let part = match known {
            0 if may_be_year => YEAR,
            0 if self.style.order == DateOrder::Dmy => DAY,
            0 => MONTH,
            YEAR => MONTH,
            MONTH if self.has_month_name && may_be_year => YEAR,
            MONTH => DAY,
            // The number before the month was the day.
            part if part == YEAR | MONTH && self.has_month_name && is_long && self.is_short_year => {
                self.day = self.year as u32;
                (self.year, self.is_short_year) = (value.into(), false);
                return self.fills(DAY);
            }
            part if part == YEAR | MONTH => DAY,
            DAY => MONTH,
            part if part == MONTH | DAY => YEAR,
            DATE => return self.run_together(text, is_time),
            _ => return Err(Wrong::Syntax),
        };
        self.fills(part)?;
        self.micros = micros.unwrap_or(self.micros);
        match part {
            YEAR => (self.year, self.is_short_year) = (value.into(), digits.len() <= 2),
            MONTH => self.month = value,
            _ => self.day = value,
        }
        Ok(())
    }

    /// `2020-01-31`, `31-Jan-2020`, `1/31/2020`.
    fn date(&mut self, text: &str) -> Step {
        let is_letter = |c: char| c.is_ascii_alphabetic();
        let mut parts = Vec::new();
        for part in text.split(|c: char| !c.is_ascii_alphanumeric()) {
            let mut rest = part;
            while !rest.is_empty() {
                let letters = rest.starts_with(is_letter);
                let end = rest.find(|c: char| is_letter(c) != letters).unwrap_or(rest.len());
                parts.push(&rest[..end]);
                rest = &rest[end..];
            }
        }
        if !text.ends_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(Wrong::Syntax);
        }
        for part in parts.iter().filter(|part| part.starts_with(is_letter)) {
            match meaning(part) {
                Some(Meaning::Month(month)) => {
                    self.fills(MONTH)?;
                    (self.month, self.has_month_name) = (month, true);
                }
                Some(Meaning::Nothing) => {}
                _ => return Err(Wrong::Syntax),
            }
        }
        for part in parts.iter().filter(|part| !part.starts_with(is_letter)) {
            self.by_place(part, false)?;
        }
        match self.filled & DATE == DATE {
            true => Ok(()),
            false => Err(Wrong::Syntax),
        }
    }

    fn julian(&mut self, text: &str) -> Step {
        let (days, rest) = leading(text);
        let date = i64::from(number::<u32>(days)?) - JULIAN_1970;
        let date = i32::try_from(date).ok().and_then(Date32Type::to_naive_date_opt).ok_or(Wrong::Range)?;
        self.set_date(date);
        self.fills(DATE)?;
        self.is_julian = true;
        if !rest.is_empty() {
            let share: f64 = format!("0{rest}").parse().map_err(|_| Wrong::Syntax)?;
            let micros = (share * MICROS_PER_DAY as f64).round_ties_even() as i64;
            self.set_clock(micros);
            self.fills(TIME)?;
        }
        Ok(())
    }

    fn set_date(&mut self, date: NaiveDate) {
        use chrono::Datelike;
        (self.year, self.month, self.day) = (date.year().into(), date.month(), date.day());
        // The year is counted as chrono counts, where 1 BC is 0.
        self.is_julian = true;
    }

    fn set_clock(&mut self, micros: i64) {
        let seconds = micros / 1_000_000;
        self.hour = (seconds / 3_600) as u32;
        (self.minute, self.second) = ((seconds / 60 % 60) as u32, (seconds % 60) as u32);
        self.micros = (micros % 1_000_000) as u32;
    }

    /// A number behind letters that have named it.
    fn named_number(&mut self, part: Part, text: &str) -> Step {
        let (digits, rest) = leading(text);
        if !rest.is_empty() && !matches!(part, Part::Second | Part::Julian | Part::Time) {
            return Err(Wrong::Syntax);
        }
        match part {
            Part::Year => {
                (self.year, self.is_short_year) = (number(digits)?, false);
                self.fills(YEAR)
            }
            // Between hours and seconds, it is one of minutes.
            Part::Month if self.filled & MONTH != 0 && self.filled & HOUR != 0 => {
                self.minute = number(digits)?;
                self.fills(MINUTE)
            }
            Part::Month => {
                self.month = number(digits)?;
                self.fills(MONTH)
            }
            Part::Day => {
                self.day = number(digits)?;
                self.fills(DAY)
            }
            Part::Hour => {
                self.hour = number(digits)?;
                self.fills(HOUR)
            }
            Part::Minute => {
                self.minute = number(digits)?;
                self.fills(MINUTE)
            }
            Part::Second => {
                self.second = number(digits)?;
                if !rest.is_empty() {
                    self.micros = fraction(rest)?;
                }
                self.fills(SECOND)
            }
            Part::Julian => self.julian(text),
            Part::Time => self.run_together(text, true),
        }
    }

    fn zone(&mut self, zone: Zone) -> Step {
        self.zone = Some(zone);
        self.fills(ZONE)
    }

    /// A zone by its name.
    fn named_zone(&mut self, word: &Word) -> Step {
        let unknown = |_| Wrong::Zone(word.text.clone());
        self.zone(Zone::of_written(&word.text).map_err(unknown)?)
    }

    /// Reads letters. Returns a time such as `epoch` if the letters end the reading with it.
    fn letters(&mut self, word: &Word, next: Option<&Word>, is_time: bool) -> Step<Option<Named>> {
        if word.kind == Kind::Letters
            && !is_time
            && let Some(Meaning::Month(month)) = meaning(&word.text)
        {
            // The number before the month was the day.
            if self.filled & (MONTH | DAY) == MONTH && !self.has_month_name && (1..=31).contains(&self.month) {
                self.day = self.month;
                self.fills(DAY)?;
            } else {
                self.fills(MONTH)?;
            }
            (self.month, self.has_month_name) = (month, true);
            return Ok(None);
        }
        if let Some(offset) = Zone::of_abbreviation(&word.text) {
            self.zone(offset)?;
            return Ok(None);
        }
        match meaning(&word.text) {
            Some(Meaning::Month(_)) => Err(Wrong::Syntax),
            Some(Meaning::DayOfWeek) if !is_time => self.fills(DAY_OF_WEEK).map(|()| None),
            Some(Meaning::DayOfWeek) => Err(Wrong::Syntax),
            Some(Meaning::Afternoon(afternoon)) => {
                self.afternoon = Some(afternoon);
                Ok(None)
            }
            Some(Meaning::BeforeChrist(before)) => {
                self.before_christ = before;
                Ok(None)
            }
            Some(Meaning::Part(Part::Time)) => {
                let follows = next.is_some_and(|next| matches!(next.kind, Kind::Number | Kind::Time | Kind::Date));
                if !follows || (!is_time && self.filled & DATE != DATE) {
                    return Err(Wrong::Syntax);
                }
                self.part = Some(Part::Time);
                Ok(None)
            }
            Some(Meaning::Part(part)) => {
                self.part = Some(part);
                Ok(None)
            }
            Some(Meaning::Nothing) => Ok(None),
            Some(Meaning::Named(named)) => match named {
                Named::Now | Named::Yesterday | Named::Today | Named::Tomorrow => {
                    self.is_relative = true;
                    let now = self.now.unwrap_or(0);
                    let ahead = self.style.zone.of_utc(now);
                    let now = now.checked_add(ahead).ok_or(Wrong::Range)?;
                    let time = DateTime::from_timestamp_micros(now).ok_or(Wrong::Range)?;
                    let date = match named {
                        Named::Yesterday => time.date_naive().checked_sub_days(Days::new(1)),
                        Named::Tomorrow => time.date_naive().checked_add_days(Days::new(1)),
                        _ => Some(time.date_naive()),
                    };
                    if named != Named::Now {
                        if is_time {
                            return Err(Wrong::Syntax);
                        }
                        self.set_date(date.ok_or(Wrong::Range)?);
                        return self.fills(DATE).map(|()| None);
                    }
                    self.set_date(date.ok_or(Wrong::Range)?);
                    self.set_clock(now.rem_euclid(MICROS_PER_DAY));
                    self.zone = Some(Zone::of_micros(ahead));
                    self.fills(if is_time { TIME | ZONE } else { DATE | TIME | ZONE }).map(|()| None)
                }
                Named::Midnight => {
                    (self.hour, self.minute, self.second, self.micros) = (0, 0, 0, 0);
                    self.zone = Some(Zone::of_micros(0));
                    self.fills(TIME | ZONE).map(|()| None)
                }
                _ if is_time => Err(Wrong::Syntax),
                named => Ok(Some(named)),
            },
            None => self.named_zone(word).map(|()| None),
        }
    }

    /// The time of day, with the half that it lies in; it may be the end of the day.
    fn micros_of_day(&self) -> Step<i64> {
        let hour = match self.afternoon {
            Some(_) if self.hour > 12 => return Err(Wrong::Range),
            Some(afternoon) => self.hour % 12 + if afternoon { 12 } else { 0 },
            None => self.hour,
        };
        let seconds = (i64::from(hour) * 60 + i64::from(self.minute)) * 60 + i64::from(self.second);
        let all = seconds * 1_000_000 + i64::from(self.micros);
        let in_range = self.minute < 60 && self.second <= 60 && all <= MICROS_PER_DAY;
        in_range.then_some(all).ok_or(Wrong::Range)
    }

    fn whole_date(&self) -> Step<NaiveDate> {
        let year = match self.year {
            year if self.is_julian => year,
            year if self.before_christ && year > 0 => 1 - year,
            year if self.before_christ || (year <= 0 && !self.is_short_year) => return Err(Wrong::Range),
            year @ 0..70 if self.is_short_year => year + 2_000,
            year @ 70..100 if self.is_short_year => year + 1_900,
            year => year,
        };
        let year = i32::try_from(year).map_err(|_| Wrong::Range)?;
        if self.filled & DAY_OF_YEAR != 0 {
            let first = NaiveDate::from_ymd_opt(year, 1, 1).ok_or(Wrong::Range)?;
            return first.checked_add_days(Days::new((self.day_of_year - 1).into())).ok_or(Wrong::Range);
        }
        if !(1..=12).contains(&self.month) || !(1..=31).contains(&self.day) {
            return Err(Wrong::MonthOrDay);
        }
        NaiveDate::from_ymd_opt(year, self.month, self.day).ok_or(Wrong::Range)
    }

    fn read(&mut self, words: &[Word], is_time: bool) -> Step<Option<Named>> {
        for (at, word) in words.iter().enumerate() {
            let text = word.text.as_str();
            match word.kind {
                Kind::Date => match self.part.take() {
                    Some(Part::Julian) => {
                        // Behind it is a zone.
                        let (days, zone) = text.split_at(text.find(['+', '-']).ok_or(Wrong::Syntax)?);
                        self.julian(days)?;
                        let zone = offset(zone)?;
                        self.zone(Zone::of_micros(zone))?;
                    }
                    part => {
                        let has_day = self.filled & (MONTH | DAY) == MONTH | DAY;
                        let may_be_date = match is_time {
                            true => at == 0 && words.len() >= 2,
                            false => part.is_none() && !has_day,
                        };
                        if may_be_date {
                            self.date(text)?;
                        } else if text.starts_with(|c: char| c.is_ascii_digit()) || part.is_some() {
                            // A time of digits in a row, with a zone.
                            if part.is_some_and(|part| part != Part::Time) {
                                return Err(Wrong::Syntax);
                            }
                            let (time, zone) = text.split_at(text.find(['+', '-']).ok_or(Wrong::Syntax)?);
                            let zone = offset(zone)?;
                            self.zone(Zone::of_micros(zone))?;
                            self.run_together(time, true)?;
                        } else {
                            self.named_zone(word)?;
                        }
                    }
                },
                Kind::Time => {
                    if self.part.take().is_some_and(|part| part != Part::Time) {
                        return Err(Wrong::Syntax);
                    }
                    self.clock(text)?;
                }
                Kind::Signed => {
                    let zone = offset(text)?;
                    self.zone(Zone::of_micros(zone))?;
                }
                Kind::Number => match self.part.take() {
                    Some(part) => self.named_number(part, text)?,
                    None => {
                        let (digits, rest) = leading(text);
                        if !rest.is_empty() && !is_time && self.filled & DATE == 0 {
                            self.date(text)?;
                        } else if is_time && !rest.is_empty() && digits.len() <= 2 {
                            return Err(Wrong::Syntax);
                        } else if !rest.is_empty() && digits.len() > 2
                            || is_time && digits.len() > 4
                            || digits.len() >= 6 && (self.filled & DATE == 0 || self.filled & TIME == 0)
                        {
                            self.run_together(text, is_time)?;
                        } else {
                            self.by_place(text, is_time)?;
                        }
                    }
                },
                Kind::Letters | Kind::SignedLetters => {
                    if let Some(named) = self.letters(word, words.get(at + 1), is_time)? {
                        return match words.len() {
                            1 => Ok(Some(named)),
                            _ => Err(Wrong::Syntax),
                        };
                    }
                }
            }
        }
        if self.part.is_some() { Err(Wrong::Syntax) } else { Ok(None) }
    }
}

fn parse(text: &str, now: Option<i64>, style: &TimeStyle) -> Step<Moment> {
    let words = words(text).ok_or(Wrong::Syntax)?;
    let mut reader = Reader::new(style, now);
    match reader.read(&words, false)? {
        None => {}
        Some(Named::Epoch) => {
            let date = DateTime::UNIX_EPOCH.date_naive();
            return Ok(Moment::Finite(Written { date, micros: 0, zone: Some(Zone::of_micros(0)) }));
        }
        Some(Named::Infinity) => return Ok(Moment::Infinite(Infinity::Plus)),
        Some(Named::MinusInfinity) => return Ok(Moment::Infinite(Infinity::Minus)),
        // The other words are parts of a date or a time.
        Some(_) => return Err(Wrong::Syntax),
    }
    if reader.filled & DATE != DATE {
        return Err(Wrong::Syntax);
    }
    let date = reader.whole_date()?;
    let micros = reader.micros_of_day()?;
    if reader.is_relative && now.is_none() {
        return Err(Wrong::Relative);
    }
    Ok(Moment::Finite(Written { date, micros, zone: reader.zone }))
}

impl Written {
    /// Microseconds since 1970, as clocks show it.
    fn clock(&self) -> Step<i64> {
        let days = i64::from(Date32Type::from_naive_date(self.date));
        days.checked_mul(MICROS_PER_DAY).and_then(|all| all.checked_add(self.micros)).ok_or(Wrong::Range)
    }

    /// Microseconds since 1970 in UTC; a text without a zone is in the session's.
    fn instant(&self, session: &Zone) -> Step<i64> {
        self.zone.as_ref().unwrap_or(session).instant(self.clock()?).ok_or(Wrong::Range)
    }
}

/// A time of day, in microseconds. A date before it and a zone behind it mean nothing.
fn parse_time(text: &str, now: Option<i64>, style: &TimeStyle) -> Step<i64> {
    let words = words(text).ok_or(Wrong::Syntax)?;
    let mut reader = Reader::new(style, now);
    reader.read(&words, true)?;
    if reader.filled & TIME != TIME {
        return Err(Wrong::Syntax);
    }
    let micros = reader.micros_of_day()?;
    if reader.is_relative && now.is_none() {
        return Err(Wrong::Relative);
    }
    if TIMES.contains(&micros) { Ok(micros) } else { Err(Wrong::Range) }
}

/// The zone that an offset such as `+02:00` is, which counts eastwards; a name otherwise.
///
/// # Errors
/// 22023 for a text that is no zone.
pub fn zone_of_offset(text: &str) -> std::result::Result<Zone, SqlError> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let message = format!("invalid input syntax for type numeric time zone: \"{text}\"");
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
            .explained("Numeric time zones must have \"-\" or \"+\" as first character."));
    }
    match offset(text) {
        Ok(micros) => Ok(Zone::of_micros(micros)),
        Err(Wrong::Displacement) => {
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("numeric time zone \"{text}\" out of range")))
        }
        Err(_) => Zone::of_name(text),
    }
}

/// Whether texts become this type here: a date, a time of day, or a timestamp with or without UTC.
pub fn is_time(data_type: &DataType) -> bool {
    match data_type {
        DataType::Time64(TimeUnit::Microsecond) => true,
        DataType::Date32 | DataType::Timestamp(_, None) => true,
        DataType::Timestamp(_, Some(zone)) => matches!(&**zone, "UTC" | "+00:00"),
        _ => false,
    }
}

/// Whether the meaning of a text depends on the time of reading.
pub fn is_relative(text: &str) -> bool {
    let is_relative = |word: &Word| {
        let named = matches!(word.kind, Kind::Letters).then(|| meaning(&word.text)).flatten();
        matches!(named, Some(Meaning::Named(Named::Now | Named::Yesterday | Named::Today | Named::Tomorrow)))
    };
    words(text).is_some_and(|words| words.iter().any(is_relative))
}

/// Texts as dates or times of a type that [`is_time`]. A zone moves a time to UTC if the type has
/// one, and is ignored otherwise.
///
/// # Errors
/// 22007 for a text that is no time, 22008 for a time that does not exist, 22009 and 22023 for an
/// unknown zone.
pub fn read(texts: &ArrayRef, wanted: &DataType) -> std::result::Result<ArrayRef, SqlError> {
    read_at(texts, wanted, None, TimeStyle::usual())
}

/// The same at a time, in microseconds since 1970, and with a session's settings.
///
/// # Errors
/// As there.
pub fn read_at(
    texts: &ArrayRef,
    wanted: &DataType,
    now: Option<i64>,
    style: &TimeStyle,
) -> std::result::Result<ArrayRef, SqlError> {
    let name = match wanted {
        DataType::Date32 => "date",
        DataType::Time64(_) => "time",
        DataType::Timestamp(_, None) => "timestamp",
        _ => "timestamp with time zone",
    };
    let texts = cast(texts, &DataType::Utf8View)?;
    let error = |wrong, text: &str| match wrong {
        Wrong::Syntax => SqlError::new(
            sqlstate::INVALID_DATETIME_FORMAT,
            format!("invalid input syntax for type {name}: \"{text}\""),
        ),
        Wrong::Range => {
            SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
        }
        Wrong::MonthOrDay => {
            SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
                .explained("Perhaps you need a different \"datestyle\" setting.")
        }
        Wrong::Displacement => SqlError::new(
            sqlstate::INVALID_TIME_ZONE_DISPLACEMENT_VALUE,
            format!("time zone displacement out of range: \"{text}\""),
        ),
        Wrong::Zone(zone) if zone.contains('/') => {
            SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("time zone \"{zone}\" not recognized"))
        }
        Wrong::Zone(_) => SqlError::new(
            sqlstate::INVALID_DATETIME_FORMAT,
            format!("invalid input syntax for type {name}: \"{text}\""),
        ),
        Wrong::Relative => SqlError::unsupported(format!("the {name} \"{text}\" in what is no constant of that type")),
    };
    let texts = texts.as_string_view().iter();
    if matches!(wanted, DataType::Time64(_)) {
        let micros = texts
            .map(|text| text.map(|text| parse_time(text, now, style).map_err(|wrong| error(wrong, text))).transpose());
        return Ok(Arc::new(micros.collect::<std::result::Result<Time64MicrosecondArray, SqlError>>()?));
    }
    if *wanted == DataType::Date32 {
        let days = |text: &str| -> std::result::Result<i32, SqlError> {
            let written = match parse(text, now, style).map_err(|wrong| error(wrong, text))? {
                Moment::Finite(written) => written,
                Moment::Infinite(infinity) => return Ok(infinity.days()),
            };
            let days = Some(Date32Type::from_naive_date(written.date)).filter(|days| DATES.contains(days));
            days.ok_or_else(|| {
                SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("date out of range: \"{text}\""))
            })
        };
        let days = texts.map(|text| text.map(days).transpose());
        return Ok(Arc::new(days.collect::<std::result::Result<Date32Array, SqlError>>()?));
    }
    let DataType::Timestamp(unit, zone) = wanted else {
        return Err(SqlError::unsupported(format!("reading texts as {wanted}")));
    };
    let micros = |text: &str| -> std::result::Result<i64, SqlError> {
        let written = match parse(text, now, style).map_err(|wrong| error(wrong, text))? {
            Moment::Finite(written) => written,
            Moment::Infinite(infinity) => return Ok(infinity.micros()),
        };
        let micros = if zone.is_some() { written.instant(&style.zone) } else { written.clock() };
        let micros = micros.map_err(|wrong| error(wrong, text))?;
        let micros = Some(micros).filter(|micros| TIMESTAMPS.contains(micros));
        micros.ok_or_else(|| {
            SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{text}\""))
        })
    };
    let micros = texts.map(|text| text.map(micros).transpose());
    let micros = micros.collect::<std::result::Result<TimestampMicrosecondArray, SqlError>>()?;
    let micros: ArrayRef = Arc::new(micros.with_timezone_opt(zone.clone()));
    if *unit == TimeUnit::Microsecond {
        return Ok(micros);
    }
    let out_of_range = |_| SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
    let options = datafusion::arrow::compute::CastOptions { safe: false, ..Default::default() };
    datafusion::arrow::compute::cast_with_options(&micros, wanted, &options).map_err(out_of_range)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same in the order in which clocks show it, and seconds ahead of UTC.
    fn shown(text: &str) -> String {
        // 2020-02-03 04:05:06
        let now = Some(1_580_702_706_000_000);
        match parse(text, now, TimeStyle::usual()) {
            Ok(Moment::Infinite(infinity)) => infinity.name().into(),
            Ok(Moment::Finite(written)) => {
                let time = DateTime::from_timestamp_micros(written.clock().unwrap()).unwrap().naive_utc();
                let ahead =
                    written.zone.as_ref().map(|zone| zone.of_local(time.and_utc().timestamp_micros()) / 1_000_000);
                format!("{time} {ahead:?}")
            }
            Err(Wrong::Syntax) => "syntax".into(),
            Err(Wrong::Range) => "range".into(),
            Err(Wrong::MonthOrDay) => "month or day".into(),
            Err(Wrong::Displacement | Wrong::Zone(_)) => "zone".into(),
            Err(Wrong::Relative) => "relative".into(),
        }
    }

    #[test]
    fn texts_are_read_as_postgresql_does() {
        for (text, meaning) in [
            ("2020-1-5", "2020-01-05 00:00:00 None"),
            ("20200105", "2020-01-05 00:00:00 None"),
            (" 2020-01-31 10:00 ", "2020-01-31 10:00:00 None"),
            ("2020-01-31T10:00:00.1234567", "2020-01-31 10:00:00.123457 None"),
            ("2020-01-31 9:05:07+02", "2020-01-31 09:05:07 Some(7200)"),
            ("2020-01-31 09:05:07 -0330", "2020-01-31 09:05:07 Some(-12600)"),
            ("2020-01-31 09:05:07+02:00", "2020-01-31 09:05:07 Some(7200)"),
            ("2020-01-31T09:05:07Z", "2020-01-31 09:05:07 Some(0)"),
            ("2020-01-31 +02", "2020-01-31 00:00:00 Some(7200)"),
            ("2020-01-31 10:05 pm", "2020-01-31 22:05:00 None"),
            ("2020-01-31 12:05:06AM", "2020-01-31 00:05:06 None"),
            ("2020-01-31 13:05 PM", "range"),
            ("2020-12-31 24:00", "2021-01-01 00:00:00 None"),
            ("2020-12-31 23:59:60", "2021-01-01 00:00:00 None"),
            ("2020-01-31 10:05.5", "2020-01-31 00:10:05.500 None"),
            ("2020-01-31 100500.5", "2020-01-31 10:05:00.500 None"),
            ("20010305T040506.789-08", "2001-03-05 04:05:06.789 Some(-28800)"),
            ("Jan 8, 1999", "1999-01-08 00:00:00 None"),
            ("January 8, 1999 04:05:06 PST", "1999-01-08 04:05:06 Some(-28800)"),
            ("1999-Jan-08", "1999-01-08 00:00:00 None"),
            ("08-Jan-99", "1999-01-08 00:00:00 None"),
            ("8 Jan 1999", "1999-01-08 00:00:00 None"),
            ("1/8/1999", "1999-01-08 00:00:00 None"),
            ("1/18/03", "2003-01-18 00:00:00 None"),
            ("18/1/1999", "month or day"),
            ("1999.008", "1999-01-08 00:00:00 None"),
            ("J2451187", "1999-01-08 00:00:00 None"),
            ("99-01-08", "month or day"),
            ("Fri Jan 08 1999", "1999-01-08 00:00:00 None"),
            ("January 8, 99 BC", "-0098-01-08 00:00:00 None"),
            ("2020-07-01 10:00 America/New_York", "2020-07-01 10:00:00 Some(-14400)"),
            ("2020-07-01 10:00 america/new_york", "2020-07-01 10:00:00 Some(-14400)"),
            ("2020-07-01 10:00 Nowhere/Ever", "zone"),
            ("today", "2020-02-03 00:00:00 None"),
            ("tomorrow 10:00", "2020-02-04 10:00:00 None"),
            ("now", "2020-02-03 04:05:06 Some(0)"),
            ("epoch", "1970-01-01 00:00:00 Some(0)"),
            (" Infinity", "infinity"),
            ("-infinity", "-infinity"),
            ("infinity 10:00", "syntax"),
            ("inf", "zone"),
            ("2020-01-31 10:00+16", "zone"),
            ("2020-02-30", "range"),
            ("2020-01-31 25:00", "range"),
            ("0000-01-01", "range"),
            ("2020-01-31T", "syntax"),
            ("2020-01", "syntax"),
            ("10:00", "syntax"),
            ("today is it", "zone"),
            ("2020-01-31 10", "syntax"),
            ("", "syntax"),
        ] {
            assert_eq!(shown(text), meaning, "{text:?}");
        }
        assert_eq!(parse("today", None, TimeStyle::usual()).err(), Some(Wrong::Relative));
        assert_eq!(parse_time("infinity", None, TimeStyle::usual()), Err(Wrong::Syntax));
        assert!(is_relative("Tomorrow 10:00") && !is_relative("2020-01-31"));
    }

    #[test]
    fn times_of_day_are_read_as_postgresql_does() {
        for (text, micros) in [
            ("10:00", Some(36_000_000_000)),
            ("2026", Some(73_560_000_000)),
            ("040506", Some(14_706_000_000)),
            ("T040506", Some(14_706_000_000)),
            ("100000.5 ", Some(36_000_500_000)),
            ("10:00 PM", Some(79_200_000_000)),
            ("10:00:00+02", Some(36_000_000_000)),
            ("02:03 PST", Some(7_380_000_000)),
            ("2020-02-29 10:00", Some(36_000_000_000)),
            ("allballs", Some(0)),
            ("2020-02-29", None),
            ("24:00", None),
            ("202", None),
            ("1 day", None),
        ] {
            assert_eq!(parse_time(text, None, TimeStyle::usual()).ok(), micros, "{text}");
        }
    }
}
