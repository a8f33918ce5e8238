//! Texts that become dates and times, as PostgreSQL reads them in ISO style: `2020-1-31`, `2020-01-31 10:00`, `2020-01-31T10:00:00.25+02`.
//!
//! DataFusion's own casts take fewer of them, and a time zone as part of the value where the type has none. Casts come here ([`super::casts`]), and what
//! is assigned to columns.

use crate::error::SqlError;
use crate::types::TIMES;
use chrono::{NaiveDate, NaiveDateTime, NaiveTime, TimeDelta};
use datafusion::arrow::array::{ArrayRef, AsArray, Date32Array, Time64MicrosecondArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Date32Type, TimeUnit};
use std::sync::Arc;

/// What a text says: a time on the clock, and by how many seconds that is ahead of UTC, if it says so.
struct Written {
    time: NaiveDateTime,
    offset: Option<i64>,
}

/// Why a text is no time.
enum Wrong {
    Syntax,
    Range,
    Zone,
}

/// A text of which the first characters have been read.
struct Reader<'t>(&'t str);

impl<'t> Reader<'t> {
    /// The digits that come next, `least` to `most` of them.
    fn digits(&mut self, least: usize, most: usize) -> std::result::Result<&'t str, Wrong> {
        let count = self.0.bytes().take_while(u8::is_ascii_digit).count();
        if count < least || count > most {
            return Err(Wrong::Syntax);
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(digits)
    }
    fn number(&mut self, least: usize, most: usize) -> std::result::Result<u32, Wrong> {
        self.digits(least, most)?.parse().map_err(|_| Wrong::Range)
    }
    fn takes(&mut self, wanted: char) -> bool {
        let rest = self.0.strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
    fn wants(&mut self, wanted: char) -> std::result::Result<(), Wrong> {
        self.takes(wanted).then_some(()).ok_or(Wrong::Syntax)
    }

    /// `2020-1-31`, or `20200131`.
    fn date(&mut self) -> std::result::Result<NaiveDate, Wrong> {
        let first = self.digits(3, 8)?;
        let number = |digits: &str| digits.parse::<u32>().map_err(|_| Wrong::Range);
        let (year, month, day) = match (first.len(), self.takes('-')) {
            (8, false) => (number(&first[..4])?, number(&first[4..6])?, number(&first[6..])?),
            (3..=6, true) => {
                let month = self.number(1, 2)?;
                self.wants('-')?;
                (number(first)?, month, self.number(1, 2)?)
            }
            _ => return Err(Wrong::Syntax),
        };
        // There is no year 0.
        NaiveDate::from_ymd_opt(year as i32, month, day).filter(|_| year > 0).ok_or(Wrong::Range)
    }

    /// `10:00`, `10:00:00`, `10:00:00.25`, `10:00 PM` or `100000`, in microseconds.
    fn time(&mut self) -> std::result::Result<i64, Wrong> {
        let first = self.digits(1, 6)?;
        let number = |digits: &str| digits.parse::<u32>().map_err(|_| Wrong::Range);
        let has_colons = self.takes(':');
        let (hour, minute, second) = match (first.len(), has_colons) {
            (1 | 2, true) => {
                let (first, then) = (number(first)?, self.number(1, 2)?);
                match self.takes(':') {
                    true => (first, then, self.number(1, 2)?),
                    // A fraction is one of seconds.
                    false if self.0.starts_with('.') => (0, first, then),
                    false => (first, then, 0),
                }
            }
            (6, false) => (number(&first[..2])?, number(&first[2..4])?, number(&first[4..])?),
            (4, false) => (number(&first[..2])?, number(&first[2..])?, 0),
            _ => return Err(Wrong::Syntax),
        };
        let mut micros = 0.0;
        if self.takes('.') {
            let fraction = self.digits(usize::from(!has_colons), 100)?;
            micros = format!("0.{fraction}0").parse::<f64>().map_err(|_| Wrong::Syntax)? * 1e6;
        } else if !has_colons && self.0.starts_with('-') && self.0.contains(':') {
            return Err(Wrong::Syntax);
        }
        let rest = self.0.trim_start();
        let half = rest.get(..2).filter(|half| half.eq_ignore_ascii_case("AM") || half.eq_ignore_ascii_case("PM"));
        let hour = match half {
            Some(_) if hour > 12 => return Err(Wrong::Range),
            Some(half) => {
                self.0 = &rest[2..];
                hour % 12 + if half.eq_ignore_ascii_case("PM") { 12 } else { 0 }
            }
            None => hour,
        };
        let seconds = (hour * 60 + minute) * 60 + second;
        let all = i64::from(seconds) * 1_000_000 + micros.round_ties_even() as i64;
        // 24:00 and 60 seconds belong to the next day and minute.
        let in_range = minute < 60 && second <= 60 && all <= 86_400_000_000;
        in_range.then_some(all).ok_or(Wrong::Range)
    }

    /// `Z`, `UTC`, `+02`, `+0200`, `+02:00`, `-03:30:15`: seconds.
    fn zone(&mut self) -> std::result::Result<i64, Wrong> {
        for name in ["UTC", "GMT", "ZULU", "Z"] {
            if self.0.eq_ignore_ascii_case(name) {
                self.0 = "";
                return Ok(0);
            }
        }
        let negative = self.0.starts_with('-');
        if !negative && !self.0.starts_with('+') {
            return Err(Wrong::Syntax);
        }
        self.0 = &self.0[1..];
        let first = self.digits(1, 6)?;
        let number = |digits: &str| digits.parse::<i64>().map_err(|_| Wrong::Range);
        let (hours, minutes, seconds) = match first.len() {
            1 | 2 => {
                let minutes = if self.takes(':') { self.number(2, 2)? } else { 0 };
                let seconds = if self.takes(':') { self.number(2, 2)? } else { 0 };
                (number(first)?, minutes.into(), seconds.into())
            }
            3 | 4 => (number(&first[..first.len() - 2])?, number(&first[first.len() - 2..])?, 0),
            6 => (number(&first[..2])?, number(&first[2..4])?, number(&first[4..])?),
            _ => return Err(Wrong::Syntax),
        };
        if hours > 15 || minutes > 59 || seconds > 59 {
            return Err(Wrong::Zone);
        }
        let offset = (hours * 60 + minutes) * 60 + seconds;
        Ok(if negative { -offset } else { offset })
    }
}

fn parse(text: &str) -> std::result::Result<Written, Wrong> {
    let mut reader = Reader(text.trim());
    let date = reader.date()?;
    let (mut micros, mut offset) = (0, None);
    let separated = reader.0.trim_start();
    let is_separated = separated.len() < reader.0.len();
    let marked = reader.0.strip_prefix(['T', 't']).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if let Some(rest) = marked.or_else(|| Some(separated).filter(|_| is_separated)) {
        reader.0 = rest;
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            micros = reader.time()?;
            reader.0 = reader.0.trim_start();
        }
        if !reader.0.is_empty() {
            offset = Some(reader.zone()?);
        }
    } else if !reader.0.is_empty() && !reader.0.starts_with('-') {
        offset = Some(reader.zone()?);
    }
    if !reader.0.is_empty() {
        return Err(Wrong::Syntax);
    }
    let time = date.and_time(NaiveTime::MIN).checked_add_signed(TimeDelta::microseconds(micros)).ok_or(Wrong::Range)?;
    Ok(Written { time, offset })
}

/// A time of day, in microseconds. A date before it and a zone behind it mean nothing.
fn parse_time(text: &str) -> std::result::Result<i64, Wrong> {
    let mut reader = Reader(text.trim());
    let mut behind_date = Reader(reader.0);
    if reader.0.contains('-') && behind_date.date().is_ok() {
        let rest = behind_date.0.strip_prefix(['T', 't', ' ']);
        reader.0 = rest.ok_or(Wrong::Syntax)?.trim_start();
    }
    let micros = reader.time()?;
    reader.0 = reader.0.trim_start();
    if !reader.0.is_empty() {
        reader.zone()?;
    }
    match reader.0.is_empty() {
        true if TIMES.contains(&micros) => Ok(micros),
        true => Err(Wrong::Range),
        false => Err(Wrong::Syntax),
    }
}

/// Whether texts become this type here: a date, or a time of day, or one with or without UTC.
pub(super) fn is_time(data_type: &DataType) -> bool {
    match data_type {
        DataType::Time64(TimeUnit::Microsecond) => true,
        DataType::Date32 | DataType::Timestamp(_, None) => true,
        DataType::Timestamp(_, Some(zone)) => matches!(&**zone, "UTC" | "+00:00"),
        _ => false,
    }
}

/// Texts as dates or times of a type that [`is_time`]. A zone moves a time to UTC if the type has one, and means nothing otherwise.
///
/// # Errors
/// 22007 for what is no time, 22008 for one that does not exist, 22009 for a zone that does not.
pub(crate) fn read(texts: &ArrayRef, wanted: &DataType) -> std::result::Result<ArrayRef, SqlError> {
    let name = match wanted {
        DataType::Date32 => "date",
        DataType::Time64(_) => "time",
        DataType::Timestamp(_, None) => "timestamp",
        _ => "timestamp with time zone",
    };
    let texts = cast(texts, &DataType::Utf8View)?;
    let error = |wrong, text: &str| match wrong {
        Wrong::Syntax => SqlError::new("22007", format!("invalid input syntax for type {name}: \"{text}\"")),
        Wrong::Range => SqlError::new("22008", format!("date/time field value out of range: \"{text}\"")),
        Wrong::Zone => SqlError::new("22009", format!("time zone displacement out of range: \"{text}\"")),
    };
    let texts = texts.as_string_view().iter();
    if matches!(wanted, DataType::Time64(_)) {
        let micros =
            texts.map(|text| text.map(|text| parse_time(text).map_err(|wrong| error(wrong, text))).transpose());
        return Ok(Arc::new(micros.collect::<std::result::Result<Time64MicrosecondArray, SqlError>>()?));
    }
    let written = texts.map(|text| text.map(|text| parse(text).map_err(|wrong| error(wrong, text))).transpose());
    if *wanted == DataType::Date32 {
        let days = written.map(|written| Ok(written?.map(|at| Date32Type::from_naive_date(at.time.date()))));
        return Ok(Arc::new(days.collect::<std::result::Result<Date32Array, SqlError>>()?));
    }
    let DataType::Timestamp(unit, zone) = wanted else {
        return Err(SqlError::unsupported(format!("reading texts as {wanted}")));
    };
    let micros = written.map(|written| {
        Ok(written?.map(|at| {
            let offset = at.offset.filter(|_| zone.is_some()).unwrap_or(0);
            at.time.and_utc().timestamp_micros() - offset * 1_000_000
        }))
    });
    let micros = micros.collect::<std::result::Result<TimestampMicrosecondArray, SqlError>>()?;
    let micros: ArrayRef = Arc::new(micros.with_timezone_opt(zone.clone()));
    if *unit == TimeUnit::Microsecond {
        return Ok(micros);
    }
    let out_of_range = |_| SqlError::new("22008", "timestamp out of range");
    let options = datafusion::arrow::compute::CastOptions { safe: false, ..Default::default() };
    datafusion::arrow::compute::cast_with_options(&micros, wanted, &options).map_err(out_of_range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_postgresql_does() {
        let shown = |text: &str| match parse(text) {
            Ok(written) => format!("{} {:?}", written.time, written.offset),
            Err(Wrong::Syntax) => "syntax".into(),
            Err(Wrong::Range) => "range".into(),
            Err(Wrong::Zone) => "zone".into(),
        };
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
            ("2020-01-31Z", "2020-01-31 00:00:00 Some(0)"),
            ("2020-01-31 10:00+16", "zone"),
            ("2020-01-31-02", "syntax"),
            ("2020-02-30", "range"),
            ("2020-01-31 25:00", "range"),
            ("0000-01-01", "range"),
            ("2020-01-31T", "syntax"),
            ("2020-01", "syntax"),
            ("today is it", "syntax"),
            ("2020-01-31 10", "syntax"),
            ("", "syntax"),
        ] {
            assert_eq!(shown(text), meaning, "{text:?}");
        }
    }

    #[test]
    fn times_of_day_are_read_as_postgresql_does() {
        for (text, micros) in [
            ("10:00", Some(36_000_000_000)),
            ("2026", Some(73_560_000_000)),
            ("100000.5 ", Some(36_000_500_000)),
            ("10:00 PM", Some(79_200_000_000)),
            ("10:00:00+02", Some(36_000_000_000)),
            ("2020-02-29 10:00", Some(36_000_000_000)),
            ("2020-02-29", None),
            ("24:00", None),
            ("202", None),
            ("1 day", None),
        ] {
            assert_eq!(parse_time(text).ok(), micros, "{text}");
        }
    }
}
