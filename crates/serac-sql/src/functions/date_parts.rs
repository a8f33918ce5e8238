//! Parts of times that have fractions, and those that DataFusion does not know: `extract (second FROM t)` is 1.25, not 1. Of a date it takes the midnight at
//! which that begins.

use super::intervals::{DAYS_PER_MONTH, INTERVAL, MICROS_PER_DAY, Parts, intervals, is_interval};
use super::times::{TIMESTAMP, with_zone};
use super::{Definition, Types};
use crate::error::SqlError;
use chrono::{DateTime, Datelike};
use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use std::sync::Arc;

const MICROS_PER_MINUTE: i64 = 60_000_000;
/// Of a year, as intervals have it.
const QUARTER_DAYS_PER_YEAR: i64 = 1_461;

const SECONDS: DataType = DataType::Decimal128(8, 6);
const MILLISECONDS: DataType = DataType::Decimal128(8, 3);
const EPOCH: DataType = DataType::Decimal128(20, 6);

/// The function for a part of times, if it is one of these. Its name may be written in the plural and be abbreviated.
pub(crate) fn function_of(part: &str) -> Option<&'static str> {
    Some(match part.to_ascii_lowercase().as_str() {
        "second" | "seconds" | "sec" | "secs" => "extract_second",
        "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => "extract_milliseconds",
        "epoch" => "extract_epoch",
        "decade" | "decades" => "extract_decade",
        "century" | "centuries" => "extract_century",
        "millennium" | "millenniums" | "millennia" => "extract_millennium",
        _ => return None,
    })
}

/// Times and intervals in the units that the functions look at.
fn types(given: &[DataType], result: DataType) -> Option<Types> {
    let argument = match given {
        [DataType::Date32] => TIMESTAMP,
        [DataType::Timestamp(_, zone)] => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        [DataType::Time32(_) | DataType::Time64(_)] => DataType::Time64(TimeUnit::Microsecond),
        [interval] if is_interval(interval) => INTERVAL,
        [DataType::Null] => with_zone(),
        _ => return None,
    };
    Some((vec![argument], result))
}

/// Applies one of the functions: `of_interval` to the parts of an interval, `of_micros` to the microseconds since 1970, or since midnight.
fn each<T>(
    args: &[ArrayRef],
    of_interval: impl Fn(Parts) -> T,
    of_micros: impl Fn(i64) -> T,
) -> Result<Vec<Option<T>>, SqlError> {
    if is_interval(args[0].data_type()) {
        return Ok(intervals(&args[0]).iter().map(|interval| interval.map(|i| of_interval(Parts::of(i)))).collect());
    }
    let micros = cast(&args[0], &DataType::Int64)?;
    Ok(micros.as_primitive::<Int64Type>().iter().map(|micros| micros.map(&of_micros)).collect())
}

fn decimals(values: Vec<Option<i64>>, data_type: &DataType) -> ArrayRef {
    let values: Decimal128Array = values.into_iter().map(|value| value.map(i128::from)).collect();
    Arc::new(values.with_data_type(data_type.clone()))
}

/// The microseconds of a minute.
fn of_minute(args: &[ArrayRef]) -> Result<Vec<Option<i64>>, SqlError> {
    each(args, |parts| parts.micros % MICROS_PER_MINUTE, |micros| micros.rem_euclid(MICROS_PER_MINUTE))
}

fn epoch(args: &[ArrayRef]) -> Result<Vec<Option<i64>>, SqlError> {
    let of_interval = |Parts { months, days, micros }: Parts| {
        let (years, months) = (i64::from(months / 12), i64::from(months % 12));
        let quarter_days = years * QUARTER_DAYS_PER_YEAR + 4 * (months * i64::from(DAYS_PER_MONTH) + i64::from(days));
        quarter_days * (MICROS_PER_DAY / 4) + micros
    };
    each(args, of_interval, |micros| micros)
}

fn year(micros: i64) -> i32 {
    DateTime::from_timestamp_micros(micros).map_or(0, |time| time.year())
}

/// Years, counted in `years`: of times from the first on, which a century (or a millennium) begins with, of intervals the whole ones.
fn periods(args: &[ArrayRef], years: i32) -> Result<ArrayRef, SqlError> {
    let of_time = |micros| {
        let year = year(micros);
        if year > 0 { (year + years - 1) / years } else { -((years - 1 - (year - 1)) / years) }
    };
    Ok(Arc::new(Int32Array::from(each(args, |parts| parts.months / 12 / years, of_time)?)))
}

fn decade(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    Ok(Arc::new(Int32Array::from(each(args, |parts| parts.months / 120, |micros| year(micros).div_euclid(10))?)))
}

/// What has years.
fn dated(given: &[DataType]) -> Option<Types> {
    types(given, DataType::Int32).filter(|(arguments, _)| !matches!(arguments[..], [DataType::Time64(_)]))
}

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "extract_second",
        types: |given| types(given, SECONDS),
        body: |args| Ok(decimals(of_minute(args)?, &SECONDS)),
    },
    Definition {
        name: "extract_milliseconds",
        types: |given| types(given, MILLISECONDS),
        body: |args| Ok(decimals(of_minute(args)?, &MILLISECONDS)),
    },
    Definition {
        name: "extract_epoch",
        types: |given| types(given, EPOCH),
        body: |args| Ok(decimals(epoch(args)?, &EPOCH)),
    },
    Definition { name: "extract_decade", types: dated, body: decade },
    Definition { name: "extract_century", types: dated, body: |args| periods(args, 100) },
    Definition { name: "extract_millennium", types: dated, body: |args| periods(args, 1_000) },
];

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::TimestampMicrosecondArray;
    use datafusion::arrow::array::types::Int32Type;

    #[test]
    fn years_are_counted_from_the_first() {
        let micros = |year: i32| {
            let date = chrono::NaiveDate::from_ymd_opt(year, 6, 1).unwrap();
            date.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_micros()
        };
        // As PostgreSQL has it: there is no century 0, yet a decade 0.
        for (year, century, millennium, of_ten) in [
            (1, 1, 1, 0),
            (100, 1, 1, 10),
            (101, 2, 1, 10),
            (2000, 20, 2, 200),
            (2001, 21, 3, 200),
            (0, -1, -1, 0),
            (-99, -1, -1, -10),
            (-100, -2, -1, -10),
        ] {
            let times: [ArrayRef; 1] = [Arc::new(TimestampMicrosecondArray::from(vec![micros(year)]))];
            let value = |array: ArrayRef| array.as_primitive::<Int32Type>().value(0);
            let found = [periods(&times, 100).unwrap(), periods(&times, 1_000).unwrap(), decade(&times).unwrap()];
            assert_eq!(found.map(value), [century, millennium, of_ten], "{year}");
        }
    }
}
