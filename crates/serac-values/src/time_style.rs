//! A session's settings of times: its time zone, the order of a date's parts and the form of dates
//! (`DateStyle`), and the form of intervals (`IntervalStyle`).

use crate::error::{Result, SqlError};
use crate::intervals::Parts;
use crate::texts_as_intervals::{self, Fields};
use crate::time_zones::Zone;
use std::sync::{Arc, LazyLock};

/// The format of dates and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DateFormat {
    /// `2020-12-31 10:00:00+00`.
    #[default]
    Iso,
    /// `12/31/2020 10:00:00 UTC`.
    Sql,
    /// `Thu Dec 31 10:00:00 2020 UTC`, and `12-31-2020` of a date.
    Postgres,
    /// `31.12.2020 10:00:00 UTC`.
    German,
}

/// The order of a date's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DateOrder {
    /// Month, day, year.
    #[default]
    Mdy,
    /// Day, month, year.
    Dmy,
    /// Year, month, day.
    Ymd,
}

/// The format of intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IntervalStyle {
    /// `1 year 2 mons 3 days 04:05:06`.
    #[default]
    Postgres,
    /// `@ 1 year 2 mons 3 days 4 hours 5 mins 6 secs`.
    PostgresVerbose,
    /// `+1-2 +3 +4:05:06`. In input, a sign at the front applies to all parts.
    SqlStandard,
    /// `P1Y2M3DT4H5M6S`.
    Iso8601,
}

/// The settings of times.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TimeStyle {
    /// The time zone.
    pub zone: Zone,
    /// The format of dates and times.
    pub format: DateFormat,
    /// The order of a date's numbers.
    pub order: DateOrder,
    /// The format of intervals.
    pub intervals: IntervalStyle,
}

impl Default for TimeStyle {
    fn default() -> Self {
        Self {
            zone: Zone::utc(),
            format: DateFormat::default(),
            order: DateOrder::default(),
            intervals: IntervalStyle::default(),
        }
    }
}

static USUAL: LazyLock<Arc<TimeStyle>> = LazyLock::new(Arc::default);

impl TimeStyle {
    /// The default settings, which are also those of texts in stored definitions.
    pub fn usual() -> &'static Arc<Self> {
        &USUAL
    }

    /// The settings as a text, of which [`of_told`](Self::of_told) makes them again.
    pub fn told(&self) -> String {
        let Self { zone, format, order, intervals } = self;
        format!("{}\n{}\n{}", zone.name(), shown_date_style(*format, *order), intervals.name())
    }

    /// The settings in a text; `None` for another text.
    pub fn of_told(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        let (zone, style, intervals) = (lines.next()?, lines.next()?, lines.next()?);
        let words = style.split(", ").map(str::to_owned).collect();
        let (format, order) = date_style(style, Some(words), Default::default()).ok()?;
        let zone = Zone::of_full_name(zone)?;
        Some(Self { zone, format, order, intervals: IntervalStyle::of_name(intervals).ok()? })
    }

    /// Whether values are read and written as without settings.
    pub fn is_usual(&self) -> bool {
        let Self { zone, format, order, intervals } = self;
        let is_default = (*format, *order, *intervals) == Default::default();
        is_default && zone.is_called_utc()
    }
}

/// Words that name a format or an order.
enum Word {
    Format(DateFormat),
    Order(DateOrder),
    Default,
}

fn word(text: &str) -> Option<Word> {
    let text = text.to_ascii_lowercase();
    Some(match text.as_str() {
        "iso" => Word::Format(DateFormat::Iso),
        "sql" => Word::Format(DateFormat::Sql),
        "german" => Word::Format(DateFormat::German),
        text if text.starts_with("postgres") => Word::Format(DateFormat::Postgres),
        "ymd" => Word::Order(DateOrder::Ymd),
        "dmy" => Word::Order(DateOrder::Dmy),
        text if text.starts_with("euro") => Word::Order(DateOrder::Dmy),
        "mdy" | "us" => Word::Order(DateOrder::Mdy),
        text if text.starts_with("noneuro") => Word::Order(DateOrder::Mdy),
        "default" => Word::Default,
        _ => return None,
    })
}

/// The new value of `DateStyle`, whose old value is `before`. `words` is `None` if the text is no
/// list.
///
/// # Errors
/// 22023 for unknown words, or contradicting ones.
pub fn date_style(
    written: &str,
    words: Option<Vec<String>>,
    before: (DateFormat, DateOrder),
) -> Result<(DateFormat, DateOrder)> {
    let wrong = |detail: String| {
        SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"DateStyle\": \"{written}\""),
        )
        .explained(detail)
    };
    let words = words.ok_or_else(|| wrong("List syntax is invalid.".into()))?;
    let (mut format, mut order) = (None, None);
    for text in words {
        let (one, other) = match word(&text).ok_or_else(|| wrong(format!("Unrecognized key word: \"{text}\".")))? {
            // A German date begins with the day, if nothing else is said.
            Word::Format(DateFormat::German) => {
                order = order.or(Some(DateOrder::Dmy));
                (Some(DateFormat::German), None)
            }
            Word::Format(format) => (Some(format), None),
            Word::Order(order) => (None, Some(order)),
            Word::Default => {
                let usual = TimeStyle::usual();
                format = format.or(Some(usual.format));
                order = order.or(Some(usual.order));
                continue;
            }
        };
        let conflicts = |known: bool| match known {
            true => Err(wrong("Conflicting \"datestyle\" specifications.".into())),
            false => Ok(()),
        };
        if one.is_some() {
            conflicts(format.is_some() && format != one)?;
            format = one;
        }
        if other.is_some() {
            conflicts(order.is_some() && order != other && format != Some(DateFormat::German))?;
            order = other;
        }
    }
    Ok((format.unwrap_or(before.0), order.unwrap_or(before.1)))
}

/// `DateStyle` as SHOW gives it.
pub fn shown_date_style(format: DateFormat, order: DateOrder) -> String {
    let format = match format {
        DateFormat::Iso => "ISO",
        DateFormat::Sql => "SQL",
        DateFormat::Postgres => "Postgres",
        DateFormat::German => "German",
    };
    let order = match order {
        DateOrder::Mdy => "MDY",
        DateOrder::Dmy => "DMY",
        DateOrder::Ymd => "YMD",
    };
    format!("{format}, {order}")
}

/// The values of `IntervalStyle`.
pub const INTERVAL_STYLES: [(&str, IntervalStyle); 4] = [
    ("postgres", IntervalStyle::Postgres),
    ("postgres_verbose", IntervalStyle::PostgresVerbose),
    ("sql_standard", IntervalStyle::SqlStandard),
    ("iso_8601", IntervalStyle::Iso8601),
];

impl IntervalStyle {
    /// Its name.
    pub fn name(self) -> &'static str {
        INTERVAL_STYLES[self as usize].0
    }

    /// The style of a name.
    ///
    /// # Errors
    /// 22023 for an unknown name.
    pub fn of_name(name: &str) -> Result<Self> {
        let found = INTERVAL_STYLES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, style)| *style).ok_or_else(|| {
            let known: Vec<&str> = INTERVAL_STYLES.iter().map(|(name, _)| *name).collect();
            SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"intervalstyle\": \"{name}\""),
            )
            .explained(format!("Available values: {}.", known.join(", ")))
        })
    }
}

/// The zone of a session that sets `TimeZone`: a name, hours east of Greenwich, or `interval '…'`.
///
/// # Errors
/// 22023 for an unknown zone.
pub fn session_zone(written: &str) -> Result<Zone> {
    let wrong = || {
        SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"TimeZone\": \"{written}\""),
        )
    };
    let too_far = || wrong().explained("UTC timezone offset is out of range.");
    if let Some(start) = written.get(..8)
        && start.eq_ignore_ascii_case("interval")
    {
        let quoted = written[8..].trim().strip_prefix('\'').and_then(|text| text.rsplit_once('\''));
        let (text, fields) = quoted.ok_or_else(wrong)?;
        let fields = match fields.trim() {
            "" => None,
            fields => Some(Fields::of(fields).ok_or_else(wrong)?),
        };
        let parts = texts_as_intervals::parse(text, fields)?;
        let Parts { months, days, micros } = fields.map_or(parts, |fields| fields.cut(parts));
        if months != 0 {
            return Err(wrong().explained("Cannot specify months in time zone interval."));
        }
        if days != 0 {
            return Err(wrong().explained("Cannot specify days in time zone interval."));
        }
        return Zone::of_seconds(micros / 1_000_000).ok_or_else(too_far);
    }
    let is_number = written.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.'));
    if let Some(hours) = Some(written).filter(|_| is_number).and_then(|written| written.parse::<f64>().ok()) {
        let seconds = hours * 3_600.0;
        return Some(seconds)
            .filter(|all| all.abs() < 1e9)
            .and_then(|all| Zone::of_seconds(all as i64))
            .ok_or_else(too_far);
    }
    Zone::of_full_name(written).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_styles_are_lists_of_words() {
        let set = |written: &str, before| {
            let words = written.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty());
            let style = date_style(written, Some(words.collect()), before);
            style.map(|(format, order)| shown_date_style(format, order)).map_err(|error| error.detail.unwrap())
        };
        let usual = (DateFormat::Iso, DateOrder::Mdy);
        let dmy = (DateFormat::Sql, DateOrder::Dmy);
        assert_eq!(set("german", usual).unwrap(), "German, DMY");
        assert_eq!(set("SQL, European", usual).unwrap(), "SQL, DMY");
        assert_eq!(set("postgres,us", dmy).unwrap(), "Postgres, MDY");
        assert_eq!(set("iso", dmy).unwrap(), "ISO, DMY");
        assert_eq!(set("", dmy).unwrap(), "SQL, DMY");
        assert_eq!(set("default", dmy).unwrap(), "ISO, MDY");
        assert_eq!(set("iso,sql", usual).unwrap_err(), "Conflicting \"datestyle\" specifications.");
        assert_eq!(set("foo", usual).unwrap_err(), "Unrecognized key word: \"foo\".");
        assert_eq!(date_style("a b", None, usual).unwrap_err().detail.unwrap(), "List syntax is invalid.");
    }

    #[test]
    fn settings_are_told() {
        let style = TimeStyle {
            zone: session_zone("-8").unwrap(),
            format: DateFormat::German,
            order: DateOrder::Dmy,
            intervals: IntervalStyle::Iso8601,
        };
        assert_eq!(TimeStyle::of_told(&style.told()), Some(style));
        assert_eq!(TimeStyle::of_told("UTC"), None);
    }

    #[test]
    fn zones_of_sessions_may_be_numbers() {
        let name = |written: &str| session_zone(written).map(|zone| zone.name().to_owned());
        assert_eq!(name("-8").unwrap(), "<-08>+08");
        assert_eq!(name("3.5").unwrap(), "<+03:30>-03:30");
        assert_eq!(name("INTERVAL '-08:30'").unwrap(), "<-08:30>+08:30");
        assert_eq!(name("INTERVAL '5' HOUR").unwrap(), "<+05>-05");
        assert_eq!(name("pst8pdt").unwrap(), "PST8PDT");
        assert_eq!(name("PST").unwrap_err().sqlstate, sqlstate::INVALID_PARAMETER_VALUE);
        assert_eq!(name("200").unwrap_err().detail.unwrap(), "UTC timezone offset is out of range.");
        assert_eq!(name("interval '1 day'").unwrap_err().detail.unwrap(), "Cannot specify days in time zone interval.");
    }
}
