//! Time zones: names of the zone database, abbreviations, zones as POSIX writes them (`PST8PDT`,
//! `<+02>-02`, `-02`), which count westwards, and intervals.
//!
//! The zone database is compiled in, so that a database means the same on every machine. It knows
//! the years up to 9999. As a calendar is the same again after 400 years, later times are looked up
//! in an earlier year.

use crate::error::{Result, SqlError};
use crate::intervals::Parts;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

const SECOND: i64 = 1_000_000;
/// Seconds of 400 years, after which the calendar is the same again.
const CYCLE: i64 = 146_097 * 86_400;
/// Seconds since 1970 of times that the zone database knows: from the year -9000 to 9000.
const KNOWN: std::ops::RangeInclusive<i64> = -346_000_000_000..=221_000_000_000;
/// The dates on which clocks are put forward and back in a POSIX zone that does not state them.
const USUAL_RULE: &str = ",M3.2.0,M11.1.0";
/// Hours that a zone may be away from UTC: a week.
const MOST_HOURS: i64 = 167;

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A zone by its name.
#[derive(Debug)]
pub struct NamedZone {
    name: String,
    clocks: Clocks,
}

#[derive(Debug)]
enum Clocks {
    /// Always ahead of UTC by this many seconds, under this abbreviation.
    Fixed(i64, String),
    Varying(TimeZone),
}

impl PartialEq for NamedZone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl Eq for NamedZone {}
impl Hash for NamedZone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The amount by which clocks are ahead of UTC.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Zone {
    /// As in a named zone.
    Named(Arc<NamedZone>),
    /// As in a zone while its time has this abbreviation.
    Abbreviated(Arc<NamedZone>, &'static str),
    /// Always by this many microseconds.
    Micros(i64),
}

/// An abbreviation of a zone, as PostgreSQL knows them.
#[derive(Debug, Clone, Copy)]
pub struct Abbreviation {
    /// In lower case.
    pub name: &'static str,
    /// Seconds by which clocks are ahead of UTC, and whether they are put forward then; `None` if
    /// they are those of `zone`.
    pub fixed: Option<(i64, bool)>,
    /// The name of the zone; empty if the abbreviation stands for seconds.
    pub zone: &'static str,
}

/// All abbreviations, in the order of their names.
pub static ABBREVIATIONS: LazyLock<Vec<Abbreviation>> = LazyLock::new(|| {
    let rows = include_str!("zone_abbreviations.txt").lines().filter(|line| !line.starts_with('#'));
    let abbreviation = |row: &'static str| {
        let mut words = row.split(' ');
        let (name, meaning) = (words.next()?, words.next()?);
        let is_put_forward = words.next().is_some();
        Some(match meaning.parse() {
            Ok(seconds) => Abbreviation { name, fixed: Some((seconds, is_put_forward)), zone: "" },
            Err(_) => Abbreviation { name, fixed: None, zone: meaning },
        })
    };
    rows.filter_map(abbreviation).collect()
});

static BY_ABBREVIATION: LazyLock<HashMap<&'static str, Abbreviation>> =
    LazyLock::new(|| ABBREVIATIONS.iter().map(|abbreviation| (abbreviation.name, *abbreviation)).collect());

/// The clocks of a zone at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Seconds by which they are ahead of UTC.
    pub seconds: i64,
    /// The zone's name for its time then.
    pub abbreviation: String,
    /// Whether they have been put forward.
    pub is_put_forward: bool,
}

/// A time in seconds since 1970, or one of another year with the same calendar.
fn known_time(seconds: i64) -> Timestamp {
    let seconds = if KNOWN.contains(&seconds) {
        seconds
    } else if seconds > 0 {
        (seconds - KNOWN.end()).rem_euclid(CYCLE) + KNOWN.end() - CYCLE
    } else {
        (seconds - KNOWN.start()).rem_euclid(CYCLE) + KNOWN.start()
    };
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The clocks of UTC.
fn civil(seconds: i64) -> DateTime {
    Offset::UTC.to_datetime(known_time(seconds))
}

/// The name of a zone that is always ahead of UTC by `seconds`: `<-08>+08`.
fn fixed_name(seconds: i64) -> (String, String) {
    let away = seconds.abs();
    let mut digits = format!("{:02}", away / 3_600);
    if away % 3_600 != 0 {
        digits.push_str(&format!(":{:02}", away / 60 % 60));
    }
    if away % 60 != 0 {
        digits.push_str(&format!(":{:02}", away % 60));
    }
    let (sign, other) = if seconds < 0 { ('-', '+') } else { ('+', '-') };
    (format!("<{sign}{digits}>{other}{digits}"), format!("{sign}{digits}"))
}

/// The name at the beginning of a zone of POSIX, and the rest.
fn posix_name(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix('<') {
        return rest.split_once('>');
    }
    let end = text.find(|c: char| c.is_ascii_digit() || matches!(c, ',' | '+' | '-')).unwrap_or(text.len());
    Some(text.split_at(end))
}

/// The hours, minutes and seconds at the beginning of a text as seconds, and the rest.
fn posix_offset(text: &str) -> Option<(i64, &str)> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut seconds = 0;
    for (unit, most) in [(3_600, MOST_HOURS), (60, 59), (1, 60)] {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: i64 = rest[..digits].parse().ok().filter(|number| *number <= most)?;
        seconds += number * unit;
        match rest[digits..].strip_prefix(':').filter(|_| unit > 1) {
            Some(behind) => rest = behind,
            None => return Some((sign * seconds, &rest[digits..])),
        }
    }
    None
}

impl NamedZone {
    /// A zone of the database.
    fn of_database(name: &str) -> Option<Self> {
        let zone = DATABASE.get(name).ok()?;
        let name = zone.iana_name()?.to_owned();
        let clocks = match zone.to_fixed_offset() {
            Ok(offset) => {
                let abbreviation = zone.to_offset_info(Timestamp::UNIX_EPOCH).abbreviation().to_owned();
                Clocks::Fixed(offset.seconds().into(), abbreviation)
            }
            Err(_) => Clocks::Varying(zone),
        };
        Some(Self { name, clocks })
    }

    /// A zone as POSIX writes it.
    fn of_posix(text: &str) -> Option<Self> {
        let name = text.to_ascii_uppercase();
        let (standard, rest) = posix_name(&name)?;
        let (west, rest) = posix_offset(rest)?;
        if rest.is_empty() {
            let abbreviation = standard.to_owned();
            return Some(Self { clocks: Clocks::Fixed(-west, abbreviation), name });
        }
        let has_rule = rest.contains(',');
        let whole = if has_rule { name.clone() } else { format!("{name}{USUAL_RULE}") };
        let zone = TimeZone::posix(&whole).ok()?;
        Some(Self { name, clocks: Clocks::Varying(zone) })
    }

    fn of_seconds(seconds: i64) -> Self {
        let (name, abbreviation) = fixed_name(seconds);
        Self { name, clocks: Clocks::Fixed(seconds, abbreviation) }
    }

    fn of_utc(&self, seconds: i64) -> i64 {
        match &self.clocks {
            Clocks::Fixed(ahead, _) => *ahead,
            Clocks::Varying(zone) => zone.to_offset(known_time(seconds)).seconds().into(),
        }
    }

    fn of_local(&self, seconds: i64) -> i64 {
        match &self.clocks {
            Clocks::Fixed(ahead, _) => *ahead,
            Clocks::Varying(zone) => {
                let offset = match zone.to_ambiguous_timestamp(civil(seconds)).offset() {
                    AmbiguousOffset::Unambiguous { offset } => offset,
                    AmbiguousOffset::Gap { before, .. } => before,
                    AmbiguousOffset::Fold { after, .. } => after,
                };
                offset.seconds().into()
            }
        }
    }

    fn reading(&self, seconds: i64) -> Reading {
        match &self.clocks {
            Clocks::Fixed(seconds, abbreviation) => {
                Reading { seconds: *seconds, abbreviation: abbreviation.clone(), is_put_forward: false }
            }
            Clocks::Varying(zone) => {
                let info = zone.to_offset_info(known_time(seconds));
                Reading {
                    seconds: info.offset().seconds().into(),
                    abbreviation: info.abbreviation().to_owned(),
                    is_put_forward: info.dst().is_dst(),
                }
            }
        }
    }

    /// The seconds by which clocks are ahead, and whether they are put forward, while the zone's
    /// time has an abbreviation. It is the last such period before a time, or else the first one
    /// after it.
    fn while_called(&self, abbreviation: &str, seconds: i64) -> Option<(i64, bool)> {
        let Clocks::Varying(zone) = &self.clocks else { return None };
        let now = self.reading(seconds);
        let is_called = |name: &str| name.eq_ignore_ascii_case(abbreviation);
        if is_called(&now.abbreviation) {
            return Some((now.seconds, now.is_put_forward));
        }
        // Rules go on without end.
        const MOST_CHANGES: usize = 1_000;
        let (at, mut changes) = (known_time(seconds), 0);
        let mut before = zone.preceding(at).skip(1).take(MOST_CHANGES);
        let mut after = zone.following(at).take_while(|_| {
            changes += 1;
            changes < MOST_CHANGES
        });
        let found = before.find(|change| is_called(change.abbreviation()));
        found
            .or_else(|| after.find(|change| is_called(change.abbreviation())))
            .map(|change| (change.offset().seconds().into(), change.dst().is_dst()))
    }
}

impl Zone {
    /// UTC.
    pub fn utc() -> Self {
        static UTC: LazyLock<Zone> = LazyLock::new(|| {
            let clocks = Clocks::Fixed(0, "UTC".into());
            Zone::Named(Arc::new(NamedZone { name: "UTC".into(), clocks }))
        });
        UTC.clone()
    }

    /// A zone this many microseconds ahead of UTC.
    pub fn of_micros(micros: i64) -> Self {
        Self::Micros(micros)
    }

    /// The zone of an abbreviation; `None` if it is unknown.
    pub fn of_abbreviation(name: &str) -> Option<Self> {
        let Abbreviation { name, fixed, zone } = *BY_ABBREVIATION.get(name.to_ascii_lowercase().as_str())?;
        match fixed {
            Some((seconds, _)) => Some(Self::Micros(seconds * SECOND)),
            None => Some(Self::Abbreviated(Arc::new(NamedZone::of_database(zone)?), name)),
        }
    }

    /// The zone of a name that is written within a time.
    pub fn of_written(name: &str) -> Result<Self> {
        let is_offset = name.starts_with(|c: char| !c.is_ascii_alphabetic());
        if is_offset { Err(unknown(name)) } else { Self::of_name(name) }
    }

    /// The zone of a name, an abbreviation, or one as POSIX writes it.
    ///
    /// # Errors
    /// 22023 for a zone that is unknown.
    pub fn of_name(name: &str) -> Result<Self> {
        Self::of_abbreviation(name).or_else(|| Self::of_full_name(name)).ok_or_else(|| unknown(name))
    }

    /// The zone of a name that is no abbreviation; `None` if it is unknown.
    pub fn of_full_name(name: &str) -> Option<Self> {
        let zone = NamedZone::of_database(name).or_else(|| NamedZone::of_posix(name))?;
        Some(Self::Named(Arc::new(zone)))
    }

    /// The zone that is ahead of UTC by this many seconds, with a name; `None` if it is too far
    /// away.
    pub fn of_seconds(seconds: i64) -> Option<Self> {
        let is_near = seconds.abs() / 3_600 <= MOST_HOURS;
        is_near.then(|| Self::Named(Arc::new(NamedZone::of_seconds(seconds))))
    }

    /// The zone that is ahead of UTC by an interval.
    ///
    /// # Errors
    /// 22023 for an interval with months or days.
    pub fn of_interval(parts: Parts) -> Result<Self> {
        if parts.months != 0 || parts.days != 0 {
            return Err(SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "an interval that is a time zone must not have months or days",
            ));
        }
        Ok(Self::Micros(parts.micros))
    }

    /// Its name; empty without one.
    pub fn name(&self) -> &str {
        match self {
            Self::Named(zone) | Self::Abbreviated(zone, _) => &zone.name,
            Self::Micros(_) => "",
        }
    }

    /// Whether its clocks show UTC at all times.
    pub fn is_utc(&self) -> bool {
        match self {
            Self::Named(zone) => matches!(zone.clocks, Clocks::Fixed(0, _)),
            Self::Abbreviated(..) => false,
            Self::Micros(micros) => *micros == 0,
        }
    }

    /// Whether its time is called UTC, too.
    pub fn is_called_utc(&self) -> bool {
        matches!(self, Self::Named(zone) if matches!(&zone.clocks, Clocks::Fixed(0, name) if name == "UTC"))
    }

    /// Microseconds by which its clocks are ahead at a time, in microseconds since 1970.
    pub fn of_utc(&self, micros: i64) -> i64 {
        match self {
            Self::Named(zone) => zone.of_utc(micros.div_euclid(SECOND)) * SECOND,
            Self::Abbreviated(zone, abbreviation) => {
                let seconds = micros.div_euclid(SECOND);
                let called = zone.while_called(abbreviation, seconds);
                called.map_or_else(|| zone.of_utc(seconds), |(ahead, _)| ahead) * SECOND
            }
            Self::Micros(ahead) => *ahead,
        }
    }

    /// The same at a time that clocks show. A time that they show twice is the second one; a time
    /// that they never show is read with the offset before clocks were put forward.
    pub fn of_local(&self, micros: i64) -> i64 {
        match self {
            Self::Named(zone) => zone.of_local(micros.div_euclid(SECOND)) * SECOND,
            Self::Abbreviated(zone, abbreviation) => {
                let seconds = micros.div_euclid(SECOND);
                let usual = zone.of_local(seconds);
                zone.while_called(abbreviation, seconds - usual).map_or(usual, |(ahead, _)| ahead) * SECOND
            }
            Self::Micros(ahead) => *ahead,
        }
    }

    /// The time on its clocks, in microseconds since 1970; `None` if that is out of range.
    pub fn local(&self, micros: i64) -> Option<i64> {
        micros.checked_add(self.of_utc(micros))
    }

    /// The instant at which its clocks show a local time; `None` if that is out of range.
    pub fn instant(&self, local: i64) -> Option<i64> {
        local.checked_sub(self.of_local(local))
    }

    /// Whether its clocks are put forward at a time, in microseconds since 1970.
    pub fn is_put_forward(&self, micros: i64) -> bool {
        let seconds = micros.div_euclid(SECOND);
        match self {
            Self::Named(zone) => zone.reading(seconds).is_put_forward,
            Self::Abbreviated(zone, abbreviation) => {
                let called = zone.while_called(abbreviation, seconds);
                called.map_or_else(|| zone.reading(seconds).is_put_forward, |(_, is_put_forward)| is_put_forward)
            }
            Self::Micros(_) => false,
        }
    }

    /// The state of its clocks at a time, in microseconds since 1970.
    pub fn reading(&self, micros: i64) -> Reading {
        match self {
            Self::Named(zone) | Self::Abbreviated(zone, _) => zone.reading(micros.div_euclid(SECOND)),
            Self::Micros(ahead) => NamedZone::of_seconds(ahead / SECOND).reading(0),
        }
    }
}

fn unknown(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"))
}

/// The names of all zones of the database, in their order.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = DATABASE.available().map(|name| name.as_str().to_owned()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_known_by_several_names() {
        for (name, canonical, summer, winter) in [
            ("utc", "UTC", 0, 0),
            ("America/new_york", "America/New_York", -4, -5),
            ("pst8pdt", "PST8PDT", -7, -8),
            ("foo8bar", "FOO8BAR", -7, -8),
            ("EST5EDT4,M3.2.0,M11.1.0", "EST5EDT4,M3.2.0,M11.1.0", -4, -5),
            ("<abc>3", "<ABC>3", -3, -3),
            ("gmt+8", "GMT+8", -8, -8),
            ("-02", "-02", 2, 2),
            ("<+02>-02", "<+02>-02", 2, 2),
        ] {
            let zone = Zone::of_full_name(name).expect(name);
            assert_eq!(zone.name(), canonical);
            // 2020-07-01 and 2020-01-01, and 400 times as many years later.
            for later in [0, 690 * CYCLE] {
                assert_eq!(zone.of_utc((1_593_561_600 + later) * SECOND), summer * 3_600 * SECOND, "{name}");
                assert_eq!(zone.of_utc((1_577_836_800 + later) * SECOND), winter * 3_600 * SECOND, "{name}");
            }
        }
        for wrong in ["PST", "abc", "a200", "", " UTC", "ab:cd", "Nowhere/Ever"] {
            assert!(Zone::of_full_name(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn clocks_skip_and_repeat_hours() {
        let zone = Zone::of_full_name("America/New_York").unwrap();
        let ahead = |seconds: i64| zone.of_local(seconds * SECOND) / 3_600 / SECOND;
        // 2020-03-08 02:30 is not shown, 2020-11-01 01:30 is shown twice.
        assert_eq!((ahead(1_583_634_600), ahead(1_604_194_200)), (-5, -5));
        assert_eq!((ahead(1_583_627_400), ahead(1_604_187_000)), (-5, -4));
    }

    #[test]
    fn seconds_make_names() {
        assert_eq!(Zone::of_seconds(-28_800).unwrap().name(), "<-08>+08");
        assert_eq!(Zone::of_seconds(27_900).unwrap().name(), "<+07:45>-07:45");
        assert!(Zone::of_seconds(720_000).is_none());
    }

    #[test]
    fn an_abbreviation_is_what_it_was_when_it_was_used() {
        let zone = Zone::of_abbreviation("MSK").unwrap();
        let ahead = |seconds: i64| zone.of_local(seconds * SECOND) / 3_600 / SECOND;
        // 2005-07-01, when Moscow had summer time, 2012-07-01 and 2020-07-01.
        assert_eq!([1_120_176_000, 1_341_100_800, 1_593_561_600].map(ahead), [3, 4, 3]);
        assert_eq!(Zone::of_abbreviation("pdt").map(|zone| zone.of_utc(0)), Some(-7 * 3_600 * SECOND));
    }
}
