//! age, now, isfinite, make_timestamp, make_timestamptz and make_time; date_after (date, days), the
//! date this many days later, days_between (date, date), the first less the second one, and
//! frame_time, which refuses infinite times.

use super::definition::{Definition, no_function};
use super::intervals::ages;
use crate::sql_result::SqlResult;
use chrono::NaiveDate;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Int64Array, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::{cast, try_binary};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Float64Type, Int32Type, Int64Type, IntervalMonthDayNano, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serac_engine::Infinity;
use serac_values::SqlError;
use serac_values::intervals::{INTERVAL, MICROS_PER_DAY, Parts, intervals, is_interval};
use serac_values::text_types::is_text_or_null;
use serac_values::texts_as_times::zone_of_offset;
use serac_values::time_range::{DATES, time_out_of_range};
use serac_values::time_zones::Zone;
use std::sync::{Arc, LazyLock};

pub(super) const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The type of times with UTC.
pub fn with_zone() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The parts of a time of day as microseconds since midnight; `None` if they are out of range.
fn micros_of_day(hour: i32, minute: i32, second: f64) -> Option<i64> {
    if !(0.0..=60.0).contains(&second) || !(0..=24).contains(&hour) || !(0..60).contains(&minute) {
        return None;
    }
    let micros = (second * 1e6).round_ties_even() as i64;
    let all = (i64::from(hour) * 60 + i64::from(minute)) * 60_000_000 + micros;
    (all <= 86_400_000_000).then_some(all)
}

fn micros_of(parts: [i32; 5], second: f64) -> SqlResult<i64> {
    let [year, month, day, hour, minute] = parts;
    // There is no year 0: the one before 1 is -1.
    let in_range = if year < 0 { Some(year + 1) } else { Some(year).filter(|year| *year > 0) };
    let date = in_range.and_then(|year| {
        let (month, day) = (u32::try_from(month).ok()?, u32::try_from(day).ok()?);
        NaiveDate::from_ymd_opt(year, month, day)
    });
    let date = date.ok_or_else(|| {
        SqlError::new(
            sqlstate::DATETIME_FIELD_OVERFLOW,
            format!("date field value out of range: {year}-{month:02}-{day:02}"),
        )
    })?;
    let time = micros_of_day(hour, minute, second).ok_or_else(|| {
        SqlError::new(
            sqlstate::DATETIME_FIELD_OVERFLOW,
            format!("time field value out of range: {hour}:{minute:02}:{second}"),
        )
    })?;
    let midnight = date.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_micros();
    midnight.checked_add(time).ok_or_else(|| SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range"))
}

/// The numbers of rows that have no NULL: those of all but the last argument, and the last.
fn rows<const N: usize, T>(
    args: &[ArrayRef],
    f: impl Fn([i32; N], f64) -> SqlResult<T>,
) -> impl Iterator<Item = SqlResult<Option<T>>> {
    let numbers: Vec<_> = args[..N].iter().map(|array| array.as_primitive::<Int32Type>()).collect();
    let last = args[N].as_primitive::<Float64Type>();
    (0..last.len()).map(move |row| {
        let valid = args.iter().all(|array| array.is_valid(row));
        valid.then(|| f(std::array::from_fn(|i| numbers[i].value(row)), last.value(row))).transpose()
    })
}

/// Integers and, at last, a number of seconds.
fn parts_types(given: &[DataType], integers: usize, result: DataType) -> Option<(Vec<DataType>, DataType)> {
    let all = given.iter().all(|argument| argument.is_numeric() || argument.is_null());
    let mut types = vec![DataType::Int32; integers];
    types.push(DataType::Float64);
    (all && given.len() == types.len()).then_some((types, result))
}

/// An error of a kernel of Arrow.
fn failed(error: SqlError) -> ArrowError {
    ArrowError::from_external_error(error.into())
}

fn make_date(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let parts: Vec<_> = args.iter().map(|array| array.as_primitive::<Int32Type>()).collect();
    let day = |row: usize| -> SqlResult<Option<i32>> {
        if args.iter().any(|array| array.is_null(row)) {
            return Ok(None);
        }
        let [year, month, day] = std::array::from_fn(|part| parts[part].value(row));
        let micros = micros_of([year, month, day, 0, 0], 0.0)?;
        Ok(Some(micros.div_euclid(86_400_000_000) as i32))
    };
    Ok(Arc::new((0..args[0].len()).map(day).collect::<SqlResult<Date32Array>>()?))
}

fn make_timestamp(args: &[ArrayRef]) -> SqlResult<TimestampMicrosecondArray> {
    rows(args, micros_of).collect()
}

/// Times of microseconds, rounded to a number of digits of a second. A tie is rounded away from
/// 2000, from which PostgreSQL counts, or from midnight.
fn time_rounded(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    const MICROS_TO_2000: i64 = 946_684_800_000_000;
    let is_of_timestamps = matches!(args[0].data_type(), DataType::Timestamp(..));
    let epoch = if is_of_timestamps { MICROS_TO_2000 } else { 0 };
    let digits = args[1].as_primitive::<Int64Type>();
    let micros = cast(&args[0], &DataType::Int64)?;
    let rounded = micros.as_primitive::<Int64Type>().iter().zip(digits).map(|(micros, digits)| {
        let (micros, digits) = micros.zip(digits)?;
        if is_of_timestamps && Infinity::of_micros(micros).is_some() {
            return Some(micros);
        }
        let unit = 10i64.pow(6 - digits.clamp(0, 6) as u32);
        let since = micros.checked_sub(epoch)?;
        let half = if since < 0 { -unit / 2 } else { unit / 2 };
        (since.saturating_add(half) / unit * unit).checked_add(epoch)
    });
    Ok(cast(&(Arc::new(rounded.collect::<Int64Array>()) as ArrayRef), args[0].data_type())?)
}

/// The beginning of the bin, of a width counted from an origin, that each time is in.
fn date_bin(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let wrong = |message: &'static str| SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, message);
    let bin = |width: IntervalMonthDayNano, time: i64, origin: i64| {
        if Infinity::of_micros(time).is_some() {
            return Ok(time);
        }
        if Infinity::of_micros(origin).is_some() {
            return Err(wrong("origin out of range"));
        }
        let Parts { months, days, micros } = Parts::of(width);
        if months != 0 {
            let message = "timestamps cannot be binned into intervals containing months or years";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        let width = i64::from(days).checked_mul(MICROS_PER_DAY).and_then(|days| days.checked_add(micros));
        let width = width.ok_or_else(|| wrong("interval out of range"))?;
        if width <= 0 {
            return Err(wrong("stride must be greater than zero"));
        }
        let distance = time.checked_sub(origin).ok_or_else(|| wrong("interval out of range"))?;
        time.checked_sub(distance.rem_euclid(width)).ok_or_else(|| wrong("timestamp out of range"))
    };
    let micros = |array| Ok::<_, SqlError>(cast(array, &DataType::Int64)?);
    let (times, origins) = (micros(&args[1])?, micros(&args[2])?);
    let (times, origins) = (times.as_primitive::<Int64Type>(), origins.as_primitive::<Int64Type>());
    let bins = intervals(&args[0]).iter().zip(times).zip(origins).map(|((width, time), origin)| {
        let Some(((width, time), origin)) = width.zip(time).zip(origin) else { return Ok(None) };
        bin(width, time, origin).map(Some)
    });
    Ok(cast(&(Arc::new(bins.collect::<SqlResult<Int64Array>>()?) as ArrayRef), args[1].data_type())?)
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "date_bin",
        types: |given| match given {
            [width, time @ DataType::Timestamp(..), DataType::Timestamp(..)] if is_interval(width) => {
                Some((vec![INTERVAL, time.clone(), time.clone()], time.clone()))
            }
            _ => None,
        },
        body: date_bin,
    },
    Definition {
        name: "date_after",
        types: |given| match given {
            [DataType::Date32, DataType::Int64] => Some((given.to_vec(), DataType::Date32)),
            _ => None,
        },
        body: |args| {
            let later = |date: i32, days: i64| {
                if Infinity::of_days(date).is_some() {
                    return Ok(date);
                }
                let later = i64::from(date).checked_add(days).and_then(|days| i32::try_from(days).ok());
                later.filter(|days| DATES.contains(days)).ok_or_else(|| failed(time_out_of_range("date")))
            };
            let (dates, days) = (args[0].as_primitive::<Date32Type>(), args[1].as_primitive::<Int64Type>());
            Ok(Arc::new(try_binary::<_, _, _, Date32Type>(dates, days, later)?))
        },
    },
    Definition {
        name: "days_between",
        types: |given| match given {
            [DataType::Date32, DataType::Date32] => Some((given.to_vec(), DataType::Int32)),
            _ => None,
        },
        body: |args| {
            let days = |date: i32, other: i32| match (Infinity::of_days(date), Infinity::of_days(other)) {
                (None, None) => Ok(date.wrapping_sub(other)),
                _ => Err(failed(SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite dates"))),
            };
            let [dates, others] = [&args[0], &args[1]].map(|dates| dates.as_primitive::<Date32Type>());
            Ok(Arc::new(try_binary::<_, _, _, Int32Type>(dates, others, days)?))
        },
    },
    Definition {
        // The keys of a frame's bounds are sums of intervals and times, which are finite.
        name: "frame_time",
        types: |given| matches!(given, [DataType::Timestamp(..)]).then(|| (given.to_vec(), given[0].clone())),
        body: |args| {
            let times = args[0].as_primitive::<TimestampMicrosecondType>();
            match times.iter().flatten().any(|micros| Infinity::of_micros(micros).is_some()) {
                true => Err(SqlError::unsupported("an infinite time in a frame of RANGE with an offset")),
                false => Ok(args[0].clone()),
            }
        },
    },
    Definition {
        name: "make_timestamp",
        types: |given| parts_types(given, 5, TIMESTAMP),
        body: |args| Ok(Arc::new(make_timestamp(args)?)),
    },
    Definition {
        name: "make_date",
        types: |given| {
            let all =
                given.iter().all(|argument| argument.is_integer() || argument.is_null() || *argument == DataType::Utf8);
            (given.len() == 3 && all).then(|| (vec![DataType::Int32; 3], DataType::Date32))
        },
        body: make_date,
    },
    Definition {
        name: "make_timestamptz",
        types: |given| match given {
            [parts @ .., zone] if parts.len() == 6 && is_text_or_null(zone) => {
                let (mut types, result) = parts_types(parts, 5, with_zone())?;
                types.push(DataType::Utf8View);
                Some((types, result))
            }
            parts => parts_types(parts, 5, with_zone()),
        },
        body: |args| {
            let local = make_timestamp(&args[..6])?;
            let Some(zones) = args.get(6) else { return Ok(Arc::new(local.with_timezone("UTC"))) };
            let out_of_range = || SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
            let instant = |(local, zone): (Option<i64>, Option<&str>)| -> SqlResult<Option<i64>> {
                let Some((local, zone)) = local.zip(zone) else { return Ok(None) };
                zone_of_offset(zone)?.instant(local).map(Some).ok_or_else(out_of_range)
            };
            let instants = local.iter().zip(zones.as_string_view()).map(instant);
            Ok(Arc::new(instants.collect::<SqlResult<TimestampMicrosecondArray>>()?.with_timezone("UTC")))
        },
    },
    Definition {
        name: "make_time",
        types: |given| parts_types(given, 2, DataType::Time64(TimeUnit::Microsecond)),
        body: |args| {
            let time = |[hour, minute]: [i32; 2], second| {
                let out_of_range = || {
                    let message = format!("time field value out of range: {hour}:{minute:02}:{second}");
                    SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, message)
                };
                micros_of_day(hour, minute, second).ok_or_else(out_of_range)
            };
            Ok(Arc::new(rows(args, time).collect::<SqlResult<Time64MicrosecondArray>>()?))
        },
    },
    Definition {
        // Rounds to this many digits of a second.
        name: "time_rounded",
        types: |given| match given {
            [time @ (DataType::Timestamp(..) | DataType::Time64(_)), digits] if digits.is_integer() => {
                Some((vec![time.clone(), DataType::Int64], time.clone()))
            }
            _ => None,
        },
        body: time_rounded,
    },
    Definition {
        // No interval is infinite here.
        name: "isfinite",
        types: |given| {
            let of_time = |t: &DataType| is_interval(t) || matches!(t, DataType::Date32 | DataType::Timestamp(..));
            matches!(given, [t] if of_time(t)).then(|| (given.to_vec(), DataType::Boolean))
        },
        body: |args| {
            Ok(Arc::new(match args[0].data_type() {
                DataType::Date32 => {
                    let dates = args[0].as_primitive::<Date32Type>();
                    BooleanArray::from_unary(dates, |days| Infinity::of_days(days).is_none())
                }
                DataType::Timestamp(TimeUnit::Microsecond, _) => {
                    let times = args[0].as_primitive::<TimestampMicrosecondType>();
                    BooleanArray::from_unary(times, |micros| Infinity::of_micros(micros).is_none())
                }
                _ => (0..args[0].len()).map(|row| args[0].is_valid(row).then_some(true)).collect(),
            }))
        },
    },
];

/// now (), current_timestamp, current_time: the beginning of the transaction, in microseconds.
/// DataFusion's are of nanoseconds, which only hold the years 1677 to 2262, and limit the compared
/// values to these.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Now {
    of_day: bool,
    signature: Signature,
}

/// The functions of the clock that are the same in every session.
pub(super) fn clocks() -> [ScalarUDF; 2] {
    [false, true].map(|of_day| ScalarUDF::from(Now { of_day, signature: Signature::nullary(Volatility::Stable) }))
}

impl ScalarUDFImpl for Now {
    fn name(&self) -> &str {
        if self.of_day { "current_time" } else { "now" }
    }

    fn aliases(&self) -> &[String] {
        static ALIASES: LazyLock<[String; 1]> = LazyLock::new(|| ["current_timestamp".into()]);
        if self.of_day { &[] } else { &*ALIASES }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.of_day { DataType::Time64(TimeUnit::Microsecond) } else { with_zone() })
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(now) = info.query_execution_start_time() else { return Ok(ExprSimplifyResult::Original(args)) };
        let micros = now.timestamp_micros();
        let value = match self.of_day {
            true => ScalarValue::Time64Microsecond(Some(micros.rem_euclid(86_400_000_000))),
            false => ScalarValue::TimestampMicrosecond(Some(micros), Some("UTC".into())),
        };
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(value, None)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(SqlError::new(sqlstate::INTERNAL_ERROR, "the time is known when a statement is planned").external())
    }
}

/// The function age.
pub(super) fn age() -> ScalarUDF {
    age_in(Zone::utc())
}

/// The function age in a session of a time zone.
pub(super) fn age_in(zone: Zone) -> ScalarUDF {
    ScalarUDF::from(Age { zone, signature: Signature::user_defined(Volatility::Stable) })
}

/// age (later, earlier), age (earlier): from then to the midnight with which today began.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Age {
    /// The zone whose clocks count years, months and days.
    zone: Zone,
    signature: Signature,
}

/// Times as the clocks of a zone show them.
pub(super) fn on_clocks(times: &ArrayRef, zone: &Zone) -> SqlResult<ArrayRef> {
    let micros = cast(times, &with_zone())?;
    let micros = micros.as_primitive::<TimestampMicrosecondType>();
    let out_of_range = || SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
    let shown = micros.try_unary::<_, TimestampMicrosecondType, SqlError>(|time| match Infinity::of_micros(time) {
        Some(_) => Ok(time),
        None => zone.local(time).ok_or_else(out_of_range),
    });
    Ok(Arc::new(shown?))
}

impl ScalarUDFImpl for Age {
    fn name(&self) -> &str {
        "age"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let taken = |given: &DataType| {
            given.is_null()
                || serac_values::text_types::is_text(given)
                || matches!(given, DataType::Date32 | DataType::Timestamp(..))
        };
        if given.is_empty() || given.len() > 2 || !given.iter().all(taken) {
            return Err(no_function(self.name(), given));
        }
        let is_on_clocks = |given: &DataType| !self.zone.is_utc() && matches!(given, DataType::Timestamp(_, Some(_)));
        Ok(given.iter().map(|given| if is_on_clocks(given) { with_zone() } else { TIMESTAMP }).collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn simplify(&self, mut args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match info.query_execution_start_time() {
            Some(now) if args.len() == 1 => {
                let now = now.timestamp_micros() + self.zone.of_utc(now.timestamp_micros());
                let midnight = now - now.rem_euclid(MICROS_PER_DAY);
                let midnight = ScalarValue::TimestampMicrosecond(Some(midnight), None);
                args.insert(0, Expr::Literal(midnight, None));
                let call = age_in(self.zone.clone()).call(args);
                Ok(ExprSimplifyResult::Simplified(call))
            }
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let apply = |arrays: &[ArrayRef]| {
            let [later, earlier] = arrays else {
                return Err(SqlError::new(sqlstate::INTERNAL_ERROR, "the present day is not known").external());
            };
            let local = |array: &ArrayRef| match array.data_type() {
                DataType::Timestamp(_, Some(_)) => on_clocks(array, &self.zone),
                _ => Ok(array.clone()),
            };
            let (later, earlier) =
                (local(later).map_err(SqlError::external)?, local(earlier).map_err(SqlError::external)?);
            ages(later.as_primitive(), earlier.as_primitive()).map_err(SqlError::external)
        };
        make_scalar_function(apply, Vec::new())(&args.args)
    }
}
