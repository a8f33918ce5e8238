//! `time AT TIME ZONE zone`, the function timezone (zone, time): of a TIMESTAMPTZ what clocks show in a zone, of a TIMESTAMP when clocks there show it.
//! A zone is a name, an offset such as `-02`, which counts westwards (as POSIX has it), or an interval.

use super::intervals::{INTERVAL, Parts, intervals, is_interval};
use super::times::{TIMESTAMP, with_zone};
use super::{Definition, Types};
use crate::error::SqlError;
use crate::types::{is_text, is_text_or_null};
use chrono::{DateTime, LocalResult, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimestampMicrosecondType};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

type Outcome<T> = Result<T, SqlError>;

/// By how much clocks are ahead of UTC.
pub(super) enum Zone {
    Named(Tz),
    Micros(i64),
}

/// Abbreviations of zones, as PostgreSQL knows them: what they stand for, which is a number of seconds or a zone's name.
static ABBREVIATIONS: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let rows = include_str!("facts/zone_abbreviations.txt").lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| row.split_once(' ')).collect()
});

impl Zone {
    /// So many microseconds ahead of UTC.
    pub(super) fn of_micros(micros: i64) -> Self {
        Self::Micros(micros)
    }
    /// The zone of an abbreviation; none if it is unknown.
    pub(super) fn of_abbreviation(name: &str) -> Option<Self> {
        let meaning = ABBREVIATIONS.get(name.to_ascii_lowercase().as_str())?;
        match meaning.parse::<i64>() {
            Ok(seconds) => Some(Self::Micros(seconds * 1_000_000)),
            Err(_) => meaning.parse().ok().map(Self::Named),
        }
    }
    /// The zone of a name that is written within a time.
    pub(super) fn of_written(name: &str) -> Outcome<Self> {
        let is_offset = name.starts_with(|c: char| !c.is_ascii_alphabetic());
        if is_offset {
            Err(SqlError::new("22023", format!("time zone \"{name}\" not recognized")))
        } else {
            Self::of_name(name)
        }
    }
    fn of_name(name: &str) -> Outcome<Self> {
        let unknown = || SqlError::new("22023", format!("time zone \"{name}\" not recognized"));
        if let Some(zone) = Self::of_abbreviation(name) {
            return Ok(zone);
        }
        // Names are written in any case.
        let capital = |part: &str| part[..1].to_ascii_uppercase() + &part[1..].to_ascii_lowercase();
        let words = name.split_inclusive(['/', '_', '-']).filter(|part| !part.is_empty() && part.is_ascii());
        let spellings = [name.to_owned(), words.map(capital).collect(), name.to_ascii_uppercase()];
        let zone: Tz = spellings.iter().find_map(|name| name.parse().ok()).ok_or_else(unknown)?;
        let is_offset = name.starts_with(['+', '-']);
        Ok(if is_offset {
            Self::Micros(-Self::Named(zone).of_utc(NaiveDateTime::default()))
        } else {
            Self::Named(zone)
        })
    }
    fn of_interval(parts: Parts) -> Outcome<Self> {
        if parts.months != 0 || parts.days != 0 {
            return Err(SqlError::new("22023", "an interval that is a time zone must not have months or days"));
        }
        Ok(Self::Micros(parts.micros))
    }
    fn of_utc(&self, utc: NaiveDateTime) -> i64 {
        match self {
            Self::Named(zone) => micros(zone.offset_from_utc_datetime(&utc)),
            Self::Micros(micros) => *micros,
        }
    }
    /// At a time that clocks show. Where they show it twice, standard time; where never, as before they were put forward.
    pub(super) fn of_local(&self, local: NaiveDateTime) -> i64 {
        let Self::Named(zone) = self else { return self.of_utc(local) };
        match zone.offset_from_local_datetime(&local) {
            LocalResult::Single(offset) => micros(offset),
            LocalResult::Ambiguous(a, b) => micros(a).min(micros(b)),
            LocalResult::None => self.of_utc(local - TimeDelta::days(1)),
        }
    }
}

fn micros(offset: impl Offset) -> i64 {
    i64::from(offset.fix().local_minus_utc()) * 1_000_000
}

fn types(given: &[DataType]) -> Option<Types> {
    let [zone, time] = given else { return None };
    let zone = if is_interval(zone) { INTERVAL } else { Some(DataType::Utf8).filter(|_| is_text_or_null(zone))? };
    // What is no time yet is one with a zone, as everywhere in PostgreSQL.
    let (time, result) = match time {
        DataType::Timestamp(_, None) => (TIMESTAMP, with_zone()),
        DataType::Timestamp(_, Some(_)) | DataType::Date32 | DataType::Null => (with_zone(), TIMESTAMP),
        text if is_text(text) => (with_zone(), TIMESTAMP),
        _ => return None,
    };
    Some((vec![zone, time], result))
}

fn body(args: &[ArrayRef]) -> Outcome<ArrayRef> {
    let (zones, times) = (&args[0], args[1].as_primitive::<TimestampMicrosecondType>());
    let is_local = times.timezone().is_none();
    let names = (!is_interval(zones.data_type())).then(|| cast(zones, &DataType::Utf8)).transpose()?;
    let names: Option<&StringArray> = names.as_ref().map(|names| names.as_string());
    // Most often it is one zone for all.
    let mut last: Option<(usize, Zone)> = None;
    let converted = |row: usize| -> Outcome<Option<i64>> {
        if zones.is_null(row) || times.is_null(row) {
            return Ok(None);
        }
        let is_last = |at: usize| names.is_some_and(|names| names.value(at) == names.value(row));
        if !last.as_ref().is_some_and(|(at, _)| is_last(*at)) {
            let zone = match names {
                Some(names) => Zone::of_name(names.value(row))?,
                None => Zone::of_interval(Parts::of(intervals(zones).value(row)))?,
            };
            last = Some((row, zone));
        }
        let zone = &last.as_ref().expect("set above").1;
        let out_of_range = || SqlError::new("22008", "timestamp out of range");
        let time = times.value(row);
        let clock = DateTime::from_timestamp_micros(time).ok_or_else(out_of_range)?.naive_utc();
        let moved =
            if is_local { time.checked_sub(zone.of_local(clock)) } else { time.checked_add(zone.of_utc(clock)) };
        Ok(Some(moved.ok_or_else(out_of_range)?))
    };
    let moved: TimestampMicrosecondArray = (0..times.len()).map(converted).collect::<Outcome<Vec<_>>>()?.into();
    Ok(if is_local { Arc::new(moved.with_timezone("UTC")) } else { Arc::new(moved) })
}

pub(super) const DEFINITIONS: &[Definition] = &[Definition { name: "timezone", types, body }];
