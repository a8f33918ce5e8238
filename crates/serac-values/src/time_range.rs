//! The dates and times that exist.

use crate::error::{Result, SqlError};
use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Date64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampSecondType,
};
use std::ops::{Range, RangeBounds, RangeInclusive};

/// Days from 1970 that a DATE may be: from 4714-11-24 BC, as in PostgreSQL, to 262142-12-31, the
/// last that can be shown.
pub const DATES: RangeInclusive<i32> = -2_440_588..=95_026_236;
const DAY_MICROS: i64 = 86_400_000_000;
/// Microseconds that a TIME may be.
pub const TIMES: Range<i64> = 0..DAY_MICROS;
/// Microseconds from 1970 that a TIMESTAMP may be: those of the days above.
pub const TIMESTAMPS: Range<i64> = *DATES.start() as i64 * DAY_MICROS..(*DATES.end() as i64 + 1) * DAY_MICROS;

/// The error of a date or time that does not exist.
pub fn time_out_of_range(what: &str) -> SqlError {
    SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("{what} out of range"))
}

/// Refuses dates and times of Arrow that do not exist: their readers would fail.
pub fn check_times(array: &ArrayRef) -> Result<()> {
    fn all<T: ArrowPrimitiveType>(array: &ArrayRef, range: impl RangeBounds<T::Native>) -> bool
    where
        T::Native: PartialOrd,
    {
        let array = array.as_primitive::<T>();
        match array.null_count() {
            0 => array.values().iter().all(|value| range.contains(value)),
            _ => array.iter().flatten().all(|value| range.contains(&value)),
        }
    }
    // A unit of which a second has `per_second`.
    let times = |per_second: i64| TIMES.start * per_second / 1_000_000..TIMES.end / 1_000_000 * per_second;
    let stamps = |per_second: i64| {
        let seconds = TIMESTAMPS.start / 1_000_000..TIMESTAMPS.end / 1_000_000;
        seconds.start.saturating_mul(per_second)..seconds.end.saturating_mul(per_second)
    };
    let (what, good) = match array.data_type() {
        DataType::Date32 => ("date", all::<Date32Type>(array, DATES)),
        DataType::Date64 => ("date", all::<Date64Type>(array, stamps(1_000))),
        DataType::Time32(TimeUnit::Second) => ("time", all::<Time32SecondType>(array, 0..86_400)),
        DataType::Time32(_) => ("time", all::<Time32MillisecondType>(array, 0..86_400_000)),
        DataType::Time64(TimeUnit::Nanosecond) => ("time", all::<Time64NanosecondType>(array, times(1_000_000_000))),
        DataType::Time64(_) => ("time", all::<Time64MicrosecondType>(array, TIMES)),
        DataType::Timestamp(unit, _) => (
            "timestamp",
            match unit {
                TimeUnit::Second => all::<TimestampSecondType>(array, stamps(1)),
                TimeUnit::Millisecond => all::<TimestampMillisecondType>(array, stamps(1_000)),
                TimeUnit::Microsecond => all::<TimestampMicrosecondType>(array, TIMESTAMPS),
                // All of them are years from 1677 to 2262.
                TimeUnit::Nanosecond => true,
            },
        ),
        _ => return Ok(()),
    };
    if good { Ok(()) } else { Err(time_out_of_range(what)) }
}
