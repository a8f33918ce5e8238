//! Time zones: names, abbreviations, and offsets such as `-02`, which count westwards (as POSIX has
//! it), or intervals.

use crate::error::{Result, SqlError};
use crate::intervals::Parts;
use chrono::{LocalResult, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use std::collections::HashMap;
use std::sync::LazyLock;

/// By how much clocks are ahead of UTC.
pub enum Zone {
    /// As a named zone has it.
    Named(Tz),
    /// Always by so many microseconds.
    Micros(i64),
}

/// Abbreviations of zones, as PostgreSQL knows them: what they stand for, which is a number of seconds or a zone's name.
static ABBREVIATIONS: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let rows = include_str!("zone_abbreviations.txt").lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| row.split_once(' ')).collect()
});

impl Zone {
    /// So many microseconds ahead of UTC.
    pub fn of_micros(micros: i64) -> Self {
        Self::Micros(micros)
    }
    /// The zone of an abbreviation; none if it is unknown.
    pub fn of_abbreviation(name: &str) -> Option<Self> {
        let meaning = ABBREVIATIONS.get(name.to_ascii_lowercase().as_str())?;
        match meaning.parse::<i64>() {
            Ok(seconds) => Some(Self::Micros(seconds * 1_000_000)),
            Err(_) => meaning.parse().ok().map(Self::Named),
        }
    }
    /// The zone of a name that is written within a time.
    pub fn of_written(name: &str) -> Result<Self> {
        let is_offset = name.starts_with(|c: char| !c.is_ascii_alphabetic());
        if is_offset {
            Err(SqlError::new("22023", format!("time zone \"{name}\" not recognized")))
        } else {
            Self::of_name(name)
        }
    }
    /// The zone of a name, an abbreviation, or an offset.
    ///
    /// # Errors
    /// 22023 for a zone that is unknown.
    pub fn of_name(name: &str) -> Result<Self> {
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
    /// The zone that is ahead of UTC by an interval.
    ///
    /// # Errors
    /// 22023 for an interval with months or days.
    pub fn of_interval(parts: Parts) -> Result<Self> {
        if parts.months != 0 || parts.days != 0 {
            return Err(SqlError::new("22023", "an interval that is a time zone must not have months or days"));
        }
        Ok(Self::Micros(parts.micros))
    }
    /// Microseconds by which its clocks are ahead at a time of UTC.
    pub fn of_utc(&self, utc: NaiveDateTime) -> i64 {
        match self {
            Self::Named(zone) => micros(zone.offset_from_utc_datetime(&utc)),
            Self::Micros(micros) => *micros,
        }
    }
    /// The same at a time that clocks show. Where they show it twice, standard time; where never,
    /// as before they were put forward.
    pub fn of_local(&self, local: NaiveDateTime) -> i64 {
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
