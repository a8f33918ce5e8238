//! `date_trunc` for all times that exist. DataFusion's counts nanoseconds in 64 bits, which reach
//! from 1677 to 2262. As PostgreSQL's, it also knows decades, centuries and millennia.

use super::definition::{Definition, Types};
use super::times::{TIMESTAMP, with_zone};
use chrono::{DateTime, Datelike, Days, NaiveDate};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, IntervalMonthDayNanoArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNano, TimeUnit};
use serac_engine::Infinity;
use serac_values::SqlError;
use serac_values::intervals::{INTERVAL, MICROS_PER_DAY, Parts, intervals};
use serac_values::text_types::{is_text, is_text_or_null};
use serac_values::time_range::time_out_of_range;
use serac_values::time_zones::Zone;
use std::sync::Arc;

/// A part of times, to whose beginning they are truncated.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    /// A number of microseconds: a day or a part of it.
    Micros(i64),
    Week,
    Months(u32),
    /// A number of years, counted from the year 1 if there are a hundred or more.
    Years(i32),
}

impl Part {
    /// By PostgreSQL's names.
    fn of(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => Self::Micros(1),
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => Self::Micros(1_000),
            "second" | "seconds" | "s" | "sec" | "secs" => Self::Micros(1_000_000),
            "minute" | "minutes" | "m" | "min" | "mins" => Self::Micros(60_000_000),
            "hour" | "hours" | "h" | "hr" | "hrs" => Self::Micros(3_600_000_000),
            "day" | "days" | "d" => Self::Micros(MICROS_PER_DAY),
            "week" | "weeks" | "w" => Self::Week,
            "month" | "months" | "mon" | "mons" => Self::Months(1),
            "quarter" | "qtr" => Self::Months(3),
            "year" | "years" | "y" | "yr" | "yrs" => Self::Years(1),
            "decade" | "decades" | "dec" | "decs" => Self::Years(10),
            "century" | "centuries" | "cent" | "c" => Self::Years(100),
            "millennium" | "millennia" | "mil" | "mils" => Self::Years(1_000),
            _ => return None,
        })
    }

    /// The beginning of the part in which a time lies, both in microseconds since 1970; `None` if
    /// it is out of range.
    fn begin(self, micros: i64) -> Option<i64> {
        if let Self::Micros(unit) = self {
            return micros.checked_sub(micros.rem_euclid(unit));
        }
        let date = DateTime::from_timestamp_micros(micros)?.date_naive();
        let begin = match self {
            Self::Micros(_) => date,
            Self::Week => date.checked_sub_days(Days::new(date.weekday().num_days_from_monday().into()))?,
            Self::Months(months) => NaiveDate::from_ymd_opt(date.year(), date.month0() / months * months + 1, 1)?,
            Self::Years(years) => {
                let first = i32::from(years >= 100);
                NaiveDate::from_ymd_opt((date.year() - first).div_euclid(years) * years + first, 1, 1)?
            }
        };
        begin.and_hms_opt(0, 0, 0)?.and_utc().timestamp_micros().into()
    }
}

/// The beginning of the part in which a time lies, as clocks of a zone show it. Within a day, these
/// are not put forward or back.
fn begin_in(zone: &Zone, part: Part, micros: i64) -> Option<i64> {
    let ahead = zone.of_utc(micros);
    let begin = part.begin(micros.checked_add(ahead)?)?;
    match part {
        Part::Micros(..MICROS_PER_DAY) => begin.checked_sub(ahead),
        _ => zone.instant(begin),
    }
}

fn types(given: &[DataType]) -> Option<Types> {
    if let [part, DataType::Timestamp(_, Some(_)), zone] = given {
        let are_texts = is_text_or_null(part) && is_text_or_null(zone);
        return are_texts.then(|| (vec![DataType::Utf8View, with_zone(), DataType::Utf8View], with_zone()));
    }
    let [part, time] = given else { return None };
    let time = match time {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        // As in PostgreSQL, which takes the preferred of the types that a date becomes.
        DataType::Date32 => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Null => TIMESTAMP,
        text if is_text(text) => TIMESTAMP,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Interval(_) => INTERVAL,
        _ => return None,
    };
    is_text_or_null(part).then(|| (vec![DataType::Utf8View, time.clone()], time))
}

/// Intervals truncated to a part.
fn truncated_intervals(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let names = args[0].as_string_view();
    let one = |(name, interval): (Option<&str>, Option<IntervalMonthDayNano>)| {
        let Some((name, interval)) = name.zip(interval) else { return Ok(None) };
        let mut parts = Parts::of(interval);
        match Part::of(name) {
            Some(Part::Micros(unit @ 1..MICROS_PER_DAY)) => parts.micros -= parts.micros % unit,
            Some(Part::Micros(_)) => parts.micros = 0,
            Some(Part::Months(months)) => {
                (parts.months, parts.days, parts.micros) = (parts.months - parts.months % months as i32, 0, 0);
            }
            Some(Part::Years(years)) => {
                (parts.months, parts.days, parts.micros) = (parts.months - parts.months % (years * 12), 0, 0);
            }
            Some(Part::Week) => {
                return Err(SqlError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "unit \"week\" not supported for type interval",
                )
                .explained("Months usually have fractional weeks."));
            }
            None => {
                return Err(SqlError::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("unit \"{name}\" not recognized for type interval"),
                ));
            }
        }
        parts.interval().map(Some)
    };
    let all =
        names.iter().zip(intervals(&args[1])).map(one).collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?;
    Ok(Arc::new(all))
}

fn truncated(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    truncated_in(args, None)
}

/// The same of times with a zone, which are cut off as clocks show them there.
pub(super) fn truncated_in(args: &[ArrayRef], zone: Option<&Zone>) -> Result<ArrayRef, SqlError> {
    let zone = zone.filter(|_| matches!(args[1].data_type(), DataType::Timestamp(_, Some(_))));
    let zones = args.get(2).map(|zones| zones.as_string_view());
    let mut last_zone: Option<(&str, Zone)> = None;
    if *args[1].data_type() == INTERVAL {
        return truncated_intervals(args);
    }
    let (names, micros) = (args[0].as_string_view(), cast(&args[1], &DataType::Int64)?);
    let is_of_day = matches!(args[1].data_type(), DataType::Time64(_));
    let micros = micros.as_primitive::<Int64Type>();
    // Most often it is one part for all rows.
    let mut last: Option<(&str, Part)> = None;
    let mut begins = Vec::with_capacity(micros.len());
    for (row, (name, time)) in names.iter().zip(micros).enumerate() {
        if !is_of_day && time.is_some_and(|time| Infinity::of_micros(time).is_some()) {
            let is_known = name.is_some() && zones.is_none_or(|zones| zones.is_valid(row));
            begins.push(time.filter(|_| is_known));
            continue;
        }
        let zone_name = zones.map(|zones| zones.is_valid(row).then(|| zones.value(row)));
        let (Some(name), Some(time), false) = (name, time, zone_name == Some(None)) else {
            begins.push(None);
            continue;
        };
        if let Some(Some(name)) = zone_name
            && last_zone.as_ref().is_none_or(|(known, _)| *known != name)
        {
            last_zone = Some((name, Zone::of_name(name)?));
        }
        let zone = last_zone.as_ref().map(|(_, zone)| zone).or(zone);
        let part = match last {
            Some((known, part)) if known == name => part,
            _ => {
                let part = Part::of(name).filter(|part| !is_of_day || matches!(part, Part::Micros(1..MICROS_PER_DAY)));
                let unknown = || {
                    SqlError::new(
                        sqlstate::INVALID_PARAMETER_VALUE,
                        format!("unit \"{name}\" not recognized for this type"),
                    )
                };
                part.ok_or_else(unknown)?
            }
        };
        last = Some((name, part));
        let begin = match zone {
            None => part.begin(time),
            Some(zone) => begin_in(zone, part, time),
        };
        begins.push(Some(begin.ok_or_else(|| time_out_of_range("timestamp"))?));
    }
    let begins: ArrayRef = Arc::new(Int64Array::from(begins));
    Ok(cast(&begins, args[1].data_type())?)
}

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition { name: "date_trunc", types, body: truncated },
    Definition { name: "datetrunc", types, body: truncated },
];
