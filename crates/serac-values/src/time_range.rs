//! The dates and times that exist, and their conversion into each other.

use crate::error::{Result, SqlError};
use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Date64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampSecondType,
};
use serac_engine::Infinity;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Days from 1970 that a DATE may be: from 4714-11-24 BC, as in PostgreSQL, to 262142-12-31, the
/// last that can be shown.
pub const DATES: RangeInclusive<i32> = -2_440_588..=95_026_236;
const DAY_MICROS: i64 = 86_400_000_000;
/// Microseconds that a TIME may be.
pub const TIMES: Range<i64> = 0..DAY_MICROS;
/// Microseconds from 1970 that a TIMESTAMP may be: those of the days above.
pub const TIMESTAMPS: Range<i64> = *DATES.start() as i64 * DAY_MICROS..(*DATES.end() as i64 + 1) * DAY_MICROS;

/// Whether it is a DATE, in days from 1970: a finite or an infinite one.
pub fn is_date(days: i32) -> bool {
    DATES.contains(&days) || Infinity::of_days(days).is_some()
}

/// Whether it is a TIMESTAMP, in microseconds from 1970: a finite or an infinite one.
pub fn is_timestamp(micros: i64) -> bool {
    TIMESTAMPS.contains(&micros) || Infinity::of_micros(micros).is_some()
}

/// Whether one of the dates, or of the timestamps of microseconds, is infinite. Values behind a
/// NULL may count.
pub fn has_infinite(times: &ArrayRef) -> bool {
    match times.data_type() {
        DataType::Date32 => {
            let days = times.as_primitive::<Date32Type>().values();
            days.iter().fold(false, |found, days| found | Infinity::of_days(*days).is_some())
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let micros = times.as_primitive::<TimestampMicrosecondType>().values();
            micros.iter().fold(false, |found, micros| found | Infinity::of_micros(*micros).is_some())
        }
        _ => false,
    }
}

/// Whether [`times_as`] converts values of one type into those of another.
pub fn is_conversion_of_times(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Time64, Timestamp};
    match (from, to) {
        (Date32, Timestamp(TimeUnit::Microsecond, _)) => true,
        (Timestamp(TimeUnit::Microsecond, _), Date32 | Time64(TimeUnit::Microsecond)) => true,
        (Timestamp(TimeUnit::Microsecond, from), Timestamp(TimeUnit::Microsecond, to)) => from != to,
        _ => false,
    }
}

/// Dates as timestamps, and timestamps as dates or times of day, in UTC. An infinite time stays
/// infinite, and has no time of day.
///
/// # Errors
/// 22008 for a time that does not exist; that of Arrow's cast for types that
/// [`is_conversion_of_times`] does not tell.
pub fn times_as(times: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    if !has_infinite(times) {
        return Ok(cast_with_options(times, to, &options)?);
    }
    let out_of_range = || time_out_of_range("timestamp");
    Ok(match (times.data_type(), to) {
        (DataType::Date32, DataType::Timestamp(_, zone)) => {
            let micros = |days: i32| match Infinity::of_days(days) {
                Some(infinity) => Ok(infinity.micros()),
                None => i64::from(days).checked_mul(DAY_MICROS).ok_or_else(out_of_range),
            };
            let days = times.as_primitive::<Date32Type>();
            let micros = days.try_unary::<_, TimestampMicrosecondType, SqlError>(micros)?;
            Arc::new(micros.with_timezone_opt(zone.clone()))
        }
        (DataType::Timestamp(..), DataType::Date32) => {
            let days = |micros: i64| match Infinity::of_micros(micros) {
                Some(infinity) => Ok(infinity.days()),
                None => i32::try_from(micros.div_euclid(DAY_MICROS)).map_err(|_| out_of_range()),
            };
            let micros = times.as_primitive::<TimestampMicrosecondType>();
            Arc::new(micros.try_unary::<_, Date32Type, SqlError>(days)?)
        }
        (DataType::Timestamp(..), DataType::Time64(_)) => {
            let of_day = |micros: i64| match Infinity::of_micros(micros) {
                Some(_) => None,
                None => Some(micros.rem_euclid(DAY_MICROS)),
            };
            Arc::new(times.as_primitive::<TimestampMicrosecondType>().unary_opt::<_, Time64MicrosecondType>(of_day))
        }
        (DataType::Timestamp(..), DataType::Timestamp(_, zone)) => {
            let micros: &PrimitiveArray<TimestampMicrosecondType> = times.as_primitive();
            Arc::new(micros.clone().with_timezone_opt(zone.clone()))
        }
        _ => cast_with_options(times, to, &options)?,
    })
}

/// The error of a date or time that does not exist.
pub fn time_out_of_range(what: &str) -> SqlError {
    SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("{what} out of range"))
}

/// Refuses dates and times of Arrow that do not exist: their readers would fail.
pub fn check_times(array: &ArrayRef) -> Result<()> {
    fn all<T: ArrowPrimitiveType>(array: &ArrayRef, exists: impl Fn(T::Native) -> bool) -> bool {
        let array = array.as_primitive::<T>();
        match array.null_count() {
            0 => array.values().iter().all(|value| exists(*value)),
            _ => array.iter().flatten().all(exists),
        }
    }
    // A unit of which a second has `per_second`.
    let times = |per_second: i64| {
        let range = TIMES.start * per_second / 1_000_000..TIMES.end / 1_000_000 * per_second;
        move |time: i64| range.contains(&time)
    };
    let stamps = |per_second: i64| {
        let seconds = TIMESTAMPS.start / 1_000_000..TIMESTAMPS.end / 1_000_000;
        let range = seconds.start.saturating_mul(per_second)..seconds.end.saturating_mul(per_second);
        move |time: i64| range.contains(&time)
    };
    let (what, good) = match array.data_type() {
        DataType::Date32 => ("date", all::<Date32Type>(array, is_date)),
        DataType::Date64 => ("date", all::<Date64Type>(array, stamps(1_000))),
        DataType::Time32(TimeUnit::Second) => {
            ("time", all::<Time32SecondType>(array, |time| (0..86_400).contains(&time)))
        }
        DataType::Time32(_) => ("time", all::<Time32MillisecondType>(array, |time| (0..86_400_000).contains(&time))),
        DataType::Time64(TimeUnit::Nanosecond) => ("time", all::<Time64NanosecondType>(array, times(1_000_000_000))),
        DataType::Time64(_) => ("time", all::<Time64MicrosecondType>(array, times(1_000_000))),
        DataType::Timestamp(unit, _) => (
            "timestamp",
            match unit {
                TimeUnit::Second => all::<TimestampSecondType>(array, stamps(1)),
                TimeUnit::Millisecond => all::<TimestampMillisecondType>(array, stamps(1_000)),
                TimeUnit::Microsecond => all::<TimestampMicrosecondType>(array, is_timestamp),
                // All of them are years from 1677 to 2262.
                TimeUnit::Nanosecond => true,
            },
        ),
        _ => return Ok(()),
    };
    if good { Ok(()) } else { Err(time_out_of_range(what)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Date32Array, TimestampMicrosecondArray};

    #[test]
    fn infinite_times_stay_infinite() {
        let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        let dates: ArrayRef = Arc::new(Date32Array::from(vec![Some(i32::MIN), Some(1), None, Some(i32::MAX)]));
        let times: ArrayRef =
            Arc::new(TimestampMicrosecondArray::from(vec![Some(i64::MIN), Some(DAY_MICROS), None, Some(i64::MAX)]));
        let with_zone = times_as(&dates, &micros(Some("UTC"))).unwrap();
        assert_eq!(&times_as(&with_zone, &micros(None)).unwrap(), &times);
        assert_eq!(&times_as(&times, &DataType::Date32).unwrap(), &dates);
        let of_day = times_as(&times, &DataType::Time64(TimeUnit::Microsecond)).unwrap();
        assert_eq!((of_day.null_count(), of_day.as_primitive::<Time64MicrosecondType>().value(1)), (3, 0));
        assert!(check_times(&dates).is_ok() && check_times(&times).is_ok());
        let beyond: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX - 1]));
        assert_eq!(check_times(&beyond).unwrap_err().sqlstate, sqlstate::DATETIME_FIELD_OVERFLOW);
    }
}
