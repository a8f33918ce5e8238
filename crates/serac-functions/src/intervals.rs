//! Functions of intervals: justify_days, justify_hours and justify_interval, make_interval, age of
//! two times.

use super::definition::{Definition, Types};
use crate::sql_result::SqlResult;
use chrono::{Datelike, NaiveDateTime, Timelike};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, IntervalMonthDayNanoArray, PrimitiveArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, TimestampMicrosecondType,
};
use serac_engine::Infinity;
use serac_values::SqlError;
use serac_values::intervals::{INTERVAL, MICROS_PER_DAY, Parts, intervals, is_interval, out_of_range};
use std::sync::Arc;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// Applies `f` to each interval.
fn each(array: &ArrayRef, f: impl Fn(Parts) -> Option<Parts>) -> SqlResult<ArrayRef> {
    let result = intervals(array).try_unary::<_, IntervalMonthDayNanoType, SqlError>(|interval| {
        f(Parts::of(interval)).ok_or_else(out_of_range)?.interval()
    });
    Ok(Arc::new(result?))
}

pub(super) fn one_interval(given: &[DataType]) -> Option<Types> {
    match given {
        [interval] if is_interval(interval) || serac_values::text_types::is_text_or_null(interval) => {
            Some((vec![INTERVAL], INTERVAL))
        }
        _ => None,
    }
}
pub(super) static DEFINITIONS: &[Definition] = &[
    Definition { name: "justify_days", types: one_interval, body: |args| each(&args[0], Parts::justify_days) },
    Definition { name: "justify_hours", types: one_interval, body: |args| each(&args[0], Parts::justify_hours) },
    Definition { name: "justify_interval", types: one_interval, body: |args| each(&args[0], Parts::justify_interval) },
    Definition {
        name: "make_interval",
        types: |given| {
            let all = given.iter().all(|argument| argument.is_numeric() || argument.is_null());
            let mut types = vec![DataType::Int32; 6];
            types.push(DataType::Float64);
            (given.len() == PARTS.len() && all).then_some((types, INTERVAL))
        },
        body: make_interval,
    },
];

/// The arguments of make_interval, which may be named.
const PARTS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

fn make_interval(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let numbers: Vec<_> = args[..6].iter().map(|array| array.as_primitive::<Int32Type>()).collect();
    let seconds = args[6].as_primitive::<Float64Type>();
    let one = |row: usize| -> SqlResult<IntervalMonthDayNano> {
        let [years, months, weeks, days, hours, minutes] = std::array::from_fn(|i| numbers[i].value(row));
        let parts = || {
            let months = years.checked_mul(12)?.checked_add(months)?;
            let days = weeks.checked_mul(7)?.checked_add(days)?;
            let seconds = (seconds.value(row) * 1e6).round_ties_even();
            let seconds = (seconds.is_finite() && seconds.abs() < 9.2e18).then_some(seconds as i64)?;
            let minutes = i64::from(hours) * 60 + i64::from(minutes);
            let micros = minutes.checked_mul(60 * MICROS_PER_SECOND)?.checked_add(seconds)?;
            Some(Parts { months, days, micros })
        };
        parts().ok_or_else(out_of_range)?.interval()
    };
    let rows = 0..seconds.len();
    let result: SqlResult<IntervalMonthDayNanoArray> =
        rows.map(|row| args.iter().all(|a| a.is_valid(row)).then(|| one(row)).transpose()).collect();
    Ok(Arc::new(result?))
}

fn days_of_month(year: i32, month: i32) -> i32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// From `earlier` to `later` in years, months, days and time, counted on a calendar.
fn age(later: NaiveDateTime, earlier: NaiveDateTime) -> Parts {
    let negative = later < earlier;
    // Counted from the earlier to the later; the month whose days are borrowed is that of the
    // second argument.
    let (to, from) = if negative { (earlier, later) } else { (later, earlier) };
    let of_day = |time: NaiveDateTime| {
        i64::from(time.num_seconds_from_midnight()) * MICROS_PER_SECOND + i64::from(time.nanosecond() / 1_000)
    };
    let mut micros = of_day(to) - of_day(from);
    let mut days = to.day() as i32 - from.day() as i32;
    let mut months = (to.year() - from.year()) * 12 + to.month() as i32 - from.month() as i32;
    if micros < 0 {
        micros += MICROS_PER_DAY;
        days -= 1;
    }
    // The month of the earlier time has always enough days.
    while days < 0 {
        days += days_of_month(from.year(), from.month() as i32);
        months -= 1;
    }
    let parts = Parts { months, days, micros };
    if negative { Parts { months: -months, days: -days, micros: -micros } } else { parts }
}

/// The ages of times, as intervals.
pub(super) fn ages(later: &TimestampMicrosecondArray, earlier: &TimestampMicrosecondArray) -> SqlResult<ArrayRef> {
    let time = |array: &PrimitiveArray<TimestampMicrosecondType>, row| {
        array
            .value_as_datetime(row)
            .ok_or_else(|| SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range"))
    };
    let is_infinite = |array: &TimestampMicrosecondArray, row| Infinity::of_micros(array.value(row)).is_some();
    let one = |row: usize| match later.is_valid(row) && earlier.is_valid(row) {
        true if is_infinite(later, row) || is_infinite(earlier, row) => Err(out_of_range()),
        true => age(time(later, row)?, time(earlier, row)?).interval().map(Some),
        false => Ok(None),
    };
    let result: SqlResult<IntervalMonthDayNanoArray> = (0..later.len()).map(one).collect();
    Ok(Arc::new(result?))
}
