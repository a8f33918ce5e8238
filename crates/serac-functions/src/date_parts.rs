//! Parts of times that have fractions, and those that DataFusion does not know:
//! `extract (second FROM t)` is 1.25, not 1. A date counts as its midnight.
//!
//! An infinite time has no parts of a year or of a day: they are NULL. Its years, and what else
//! goes on with time, are infinite: so `date_part` has them. EXTRACT gives decimals, which are
//! never infinite, and fails.

use super::definition::{Definition, Types, no_function, strict_results};
use super::interval_operators::as_intervals;
use super::times::{TIMESTAMP, with_zone};
use chrono::{DateTime, Datelike};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int32Array};
use datafusion::arrow::compute::{DatePart as Kernel, cast, date_part};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, FieldRef, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::ScalarValue;
use datafusion::error::Result as PlanResult;
use datafusion::functions::datetime;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serac_engine::Infinity;
use serac_values::SqlError;
use serac_values::Unit;
use serac_values::intervals::{DAYS_PER_MONTH, INTERVAL, MICROS_PER_DAY, Parts, intervals, is_interval};
use serac_values::text_types::{is_text, is_text_or_null};
use serac_values::time_range::has_infinite;
use std::sync::Arc;

const MICROS_PER_MINUTE: i64 = 60_000_000;
/// The quarter days of a year, as intervals have it.
const QUARTER_DAYS_PER_YEAR: i64 = 1_461;

const SECONDS: DataType = DataType::Decimal128(8, 6);
const MILLISECONDS: DataType = DataType::Decimal128(8, 3);
/// For intervals of any length.
const EPOCH: DataType = DataType::Decimal128(28, 6);
const WHOLE_EPOCH: DataType = DataType::Decimal128(22, 0);
const JULIAN: DataType = DataType::Decimal128(38, 20);
/// The Julian number of 1970-01-01.
const JULIAN_1970: i128 = 2_440_588;

/// The first name of a part, which may be written in the plural and be abbreviated; `None` if it is
/// unknown.
fn part_of(name: &str) -> Option<&'static str> {
    let name = name.trim_matches(['\'', '"']).to_ascii_lowercase();
    Some(match name.as_str() {
        "quarter" | "qtr" => "quarter",
        "dow" => "dow",
        "isodow" => "isodow",
        "doy" => "doy",
        "isoyear" => "isoyear",
        "epoch" => "epoch",
        "julian" | "jd" | "j" => "julian",
        "timezone" => "timezone",
        "timezone_h" | "timezone_hour" => "timezone_hour",
        "timezone_m" | "timezone_minute" => "timezone_minute",
        name => match Unit::of_name(name)? {
            Unit::Microsecond => "microseconds",
            Unit::Millisecond => "milliseconds",
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Week => "week",
            Unit::Month => "month",
            Unit::Year => "year",
            Unit::Decade => "decade",
            Unit::Century => "century",
            Unit::Millennium => "millennium",
        },
    })
}

/// The function for a part of times, and whether the part is an argument of it. EXTRACT, in
/// contrast to date_part, does not take a date for a time.
pub fn function_of(name: &str, of_extract: bool) -> (&'static str, Option<String>) {
    let function = match (part_of(name), of_extract) {
        (Some("second"), true) => "extract_second",
        (Some("second"), false) => "date_part_second",
        (Some("milliseconds"), true) => "extract_milliseconds",
        (Some("milliseconds"), false) => "date_part_milliseconds",
        (Some("microseconds"), true) => "extract_microseconds",
        (Some("microseconds"), false) => "date_part_microseconds",
        (Some("epoch"), _) => "extract_epoch",
        (Some("decade"), _) => "extract_decade",
        (Some("century"), _) => "extract_century",
        (Some("millennium"), _) => "extract_millennium",
        (Some("julian"), _) => "extract_julian",
        (part, _) => {
            let name = part.map_or_else(|| name.trim_matches('\'').to_lowercase(), str::to_owned);
            return (if of_extract { EXTRACT } else { DATE_PART }, Some(name));
        }
    };
    (function, None)
}

/// Whether `date_part` of a part is infinite for infinite times.
pub fn is_endless_part(part: &str) -> bool {
    part_of(part).is_some_and(is_endless)
}

/// Functions for parts that are the same on all clocks.
pub(super) const EXTRACT_PARTS_OF_INSTANTS: [&str; 1] = ["extract_epoch"];

/// The error of a part that a type does not have.
fn unsupported(part: &str, data_type: &DataType) -> SqlError {
    let name = match data_type {
        DataType::Date32 => "date",
        DataType::Timestamp(_, None) => "timestamp without time zone",
        DataType::Timestamp(..) => "timestamp with time zone",
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone",
        _ => "interval",
    };
    match part_of(part) {
        Some(_) => {
            SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("unit \"{part}\" not supported for type {name}"))
        }
        None => {
            SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("unit \"{part}\" not recognized for type {name}"))
        }
    }
}

/// Times and intervals in the units that the functions look at.
fn types(given: &[DataType], result: DataType) -> Option<Types> {
    let argument = match given {
        [DataType::Date32] => DataType::Date32,
        [DataType::Timestamp(_, zone)] => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        [DataType::Time32(_) | DataType::Time64(_)] => DataType::Time64(TimeUnit::Microsecond),
        [interval] if is_interval(interval) => INTERVAL,
        [DataType::Null] => with_zone(),
        [text] if is_text(text) => TIMESTAMP,
        _ => return None,
    };
    Some((vec![argument], result))
}

/// Applies one of the functions: `of_interval` to the parts of an interval, `of_micros` to the
/// microseconds since 1970, or since midnight. Infinite times have no results.
fn each<T>(
    args: &[ArrayRef],
    of_interval: impl Fn(Parts) -> T,
    of_micros: impl Fn(i64) -> T,
) -> Result<Vec<Option<T>>, SqlError> {
    if is_interval(args[0].data_type()) {
        return Ok(intervals(&args[0]).iter().map(|interval| interval.map(|i| of_interval(Parts::of(i)))).collect());
    }
    if *args[0].data_type() == DataType::Date32 {
        let days = args[0].as_primitive::<Date32Type>().iter();
        let finite = |days: &i32| Infinity::of_days(*days).is_none();
        let of_day = |days: i32| of_micros(i64::from(days) * MICROS_PER_DAY);
        return Ok(days.map(|days| days.filter(finite).map(of_day)).collect());
    }
    // A time of day is never the end of its type.
    let finite = |micros: &i64| Infinity::of_micros(*micros).is_none();
    let micros = cast(&args[0], &DataType::Int64)?;
    Ok(micros.as_primitive::<Int64Type>().iter().map(|micros| micros.filter(finite).map(&of_micros)).collect())
}

/// Whether a part goes on with time and does not begin again with each year or day.
fn is_endless(part: &str) -> bool {
    matches!(part, "year" | "isoyear" | "decade" | "century" | "millennium" | "epoch" | "julian")
}

/// Refuses an endless part of infinite times.
fn check_finite(times: &ArrayRef, part: &str) -> Result<(), SqlError> {
    match finite(times).null_count() > times.null_count() {
        false => Ok(()),
        true => Err(SqlError::unsupported(format!("EXTRACT of the {part} of an infinite time, which date_part has"))),
    }
}

/// The times, with NULL in the place of infinite ones.
fn finite(times: &ArrayRef) -> ArrayRef {
    match times.data_type() {
        _ if !has_infinite(times) => times.clone(),
        DataType::Date32 => {
            let days = times.as_primitive::<Date32Type>();
            let finite = |days: i32| Some(days).filter(|days| Infinity::of_days(*days).is_none());
            Arc::new(days.unary_opt::<_, Date32Type>(finite))
        }
        _ => {
            let micros = times.as_primitive::<TimestampMicrosecondType>();
            let finite = |micros: i64| Some(micros).filter(|micros| Infinity::of_micros(*micros).is_none());
            let all = micros.unary_opt::<_, TimestampMicrosecondType>(finite);
            Arc::new(all.with_timezone_opt(micros.timezone().map(Arc::from)))
        }
    }
}

/// Endless parts of times, with infinite ones of infinite times.
fn or_infinity(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let (parts, times) = (&args[0], &args[1]);
    if !has_infinite(times) {
        return Ok(parts.clone());
    }
    let infinity = |row: usize| match times.data_type() {
        _ if times.is_null(row) => None,
        DataType::Date32 => Infinity::of_days(times.as_primitive::<Date32Type>().value(row)),
        _ => Infinity::of_micros(times.as_primitive::<TimestampMicrosecondType>().value(row)),
    };
    let parts = parts.as_primitive::<Float64Type>().iter().enumerate();
    let all = parts.map(|(row, part)| infinity(row).map(Infinity::number).or(part));
    Ok(Arc::new(all.collect::<Float64Array>()))
}

fn is_finite_or_not(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Timestamp(TimeUnit::Microsecond, _))
}

fn decimals<T: Into<i128>>(values: Vec<Option<T>>, data_type: &DataType) -> ArrayRef {
    let values: Decimal128Array = values.into_iter().map(|value| value.map(Into::into)).collect();
    Arc::new(values.with_data_type(data_type.clone()))
}

/// The microseconds of a minute.
fn of_minute(args: &[ArrayRef]) -> Result<Vec<Option<i64>>, SqlError> {
    each(args, |parts| parts.micros % MICROS_PER_MINUTE, |micros| micros.rem_euclid(MICROS_PER_MINUTE))
}
/// The same for EXTRACT of a part.
fn of_minute_of_time(args: &[ArrayRef], part: &str) -> Result<Vec<Option<i64>>, SqlError> {
    match args[0].data_type() {
        DataType::Date32 => Err(unsupported(part, args[0].data_type())),
        _ => of_minute(args),
    }
}
fn integers(values: Vec<Option<i64>>) -> ArrayRef {
    Arc::new(values.into_iter().map(|value| value.map(|value| value as i32)).collect::<Int32Array>())
}

fn epoch(args: &[ArrayRef]) -> Result<Vec<Option<i128>>, SqlError> {
    check_finite(&args[0], "epoch")?;
    let of_interval = |Parts { months, days, micros }: Parts| {
        let (years, months) = (i64::from(months / 12), i64::from(months % 12));
        let quarter_days = years * QUARTER_DAYS_PER_YEAR + 4 * (months * i64::from(DAYS_PER_MONTH) + i64::from(days));
        i128::from(quarter_days) * i128::from(MICROS_PER_DAY / 4) + i128::from(micros)
    };
    each(args, of_interval, i128::from)
}

/// Days since 4714-11-24 BC, with the share of the day that has passed.
fn julian(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    if !matches!(args[0].data_type(), DataType::Date32 | DataType::Timestamp(..)) {
        return Err(unsupported("julian", args[0].data_type()));
    }
    check_finite(&args[0], "julian")?;
    let number = |micros: i64| {
        let (days, rest) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
        let unit = 10i128.pow(20);
        (i128::from(days) + JULIAN_1970) * unit
            + (i128::from(rest) * unit + i128::from(MICROS_PER_DAY) / 2) / i128::from(MICROS_PER_DAY)
    };
    let numbers = decimals(each(args, |_| 0, number)?, &JULIAN);
    Ok(match args[0].data_type() {
        DataType::Date32 => cast(&numbers, &DataType::Int32)?,
        _ => numbers,
    })
}

fn year(micros: i64) -> i32 {
    DateTime::from_timestamp_micros(micros).map_or(0, |time| time.year())
}

/// Checks that the argument has years: a time of day has none, and an infinite time has no number
/// of them.
fn check_years(args: &[ArrayRef], part: &str) -> Result<(), SqlError> {
    match args[0].data_type() {
        time @ DataType::Time64(_) => Err(unsupported(part, time)),
        _ => check_finite(&args[0], part),
    }
}

/// Periods of `years` years: for times, begun periods; for intervals, whole ones.
fn periods(args: &[ArrayRef], years: i32) -> Result<ArrayRef, SqlError> {
    check_years(args, if years == 100 { "century" } else { "millennium" })?;
    let of_time = |micros| {
        let year = year(micros);
        if year > 0 { (year + years - 1) / years } else { -((years - 1 - (year - 1)) / years) }
    };
    Ok(Arc::new(Int32Array::from(each(args, |parts| parts.months / 12 / years, of_time)?)))
}

fn decade(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    check_years(args, "decade")?;
    Ok(Arc::new(Int32Array::from(each(args, |parts| parts.months / 120, |micros| year(micros).div_euclid(10))?)))
}

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "finite_time",
        types: |given| match given {
            [time] if is_finite_or_not(time) => Some((given.to_vec(), time.clone())),
            _ => None,
        },
        body: |args| Ok(finite(&args[0])),
    },
    Definition {
        name: "part_or_infinity",
        types: |given| match given {
            [DataType::Float64, time] if is_finite_or_not(time) => Some((given.to_vec(), DataType::Float64)),
            _ => None,
        },
        body: or_infinity,
    },
    Definition {
        name: "extract_second",
        types: |given| types(given, SECONDS),
        body: |args| Ok(decimals(of_minute_of_time(args, "second")?, &SECONDS)),
    },
    Definition {
        name: "date_part_second",
        types: |given| types(given, SECONDS),
        body: |args| Ok(decimals(of_minute(args)?, &SECONDS)),
    },
    Definition {
        name: "extract_milliseconds",
        types: |given| types(given, MILLISECONDS),
        body: |args| Ok(decimals(of_minute_of_time(args, "milliseconds")?, &MILLISECONDS)),
    },
    Definition {
        name: "date_part_milliseconds",
        types: |given| types(given, MILLISECONDS),
        body: |args| Ok(decimals(of_minute(args)?, &MILLISECONDS)),
    },
    Definition {
        name: "extract_microseconds",
        types: |given| types(given, DataType::Int32),
        body: |args| Ok(integers(of_minute_of_time(args, "microseconds")?)),
    },
    Definition {
        name: "date_part_microseconds",
        types: |given| types(given, DataType::Int32),
        body: |args| Ok(integers(of_minute(args)?)),
    },
    Definition {
        name: "extract_epoch",
        types: |given| types(given, if *given == [DataType::Date32] { WHOLE_EPOCH } else { EPOCH }),
        body: |args| {
            let numbers = decimals(epoch(args)?, &EPOCH);
            Ok(match args[0].data_type() {
                // Days have whole seconds.
                DataType::Date32 => cast(&numbers, &WHOLE_EPOCH)?,
                _ => numbers,
            })
        },
    },
    Definition {
        name: "extract_julian",
        types: |given| {
            let result = if *given == [DataType::Date32] { DataType::Int32 } else { JULIAN };
            types(given, result)
        },
        body: julian,
    },
    Definition { name: "extract_decade", types: |given| types(given, DataType::Int32), body: decade },
    Definition {
        name: "extract_century",
        types: |given| types(given, DataType::Int32),
        body: |args| periods(args, 100),
    },
    Definition {
        name: "extract_millennium",
        types: |given| types(given, DataType::Int32),
        body: |args| periods(args, 1_000),
    },
];

const DATE_PART: &str = "date_part";
const EXTRACT: &str = "extract";

/// date_part (part, time), and EXTRACT (part FROM time) under this name: whole numbers, of which
/// DataFusion's has those of dates and timestamps.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart {
    inner: Arc<ScalarUDF>,
    of_extract: bool,
    signature: Signature,
}

/// The functions.
pub(super) fn functions() -> [ScalarUDF; 2] {
    [false, true].map(|of_extract| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(DatePart { inner: datetime::date_part(), of_extract, signature })
    })
}

/// A part of intervals that is a whole number.
fn of_intervals(part: &str, array: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let number: fn(Parts) -> i64 = match part {
        "year" => |parts| (parts.months / 12).into(),
        "quarter" => |parts| (parts.months % 12 / 3 + 1).into(),
        "month" => |parts| (parts.months % 12).into(),
        "day" => |parts| parts.days.into(),
        "hour" => |parts| parts.micros / (60 * MICROS_PER_MINUTE),
        "minute" => |parts| parts.micros / MICROS_PER_MINUTE % 60,
        _ => return Err(unsupported(part, &INTERVAL)),
    };
    let numbers = intervals(array).iter().map(|interval| interval.map(|interval| number(Parts::of(interval)) as i32));
    Ok(Arc::new(numbers.collect::<Int32Array>()))
}

/// A part of dates or times that is a whole number.
fn of_times(part: &str, array: &ArrayRef, of_extract: bool) -> Result<ArrayRef, SqlError> {
    use DataType::{Date32, Time64, Timestamp};
    let given = array.data_type();
    let is_date = *given == Date32;
    let kernel = match (part, given) {
        ("hour", _) if !(is_date && of_extract) => Kernel::Hour,
        ("minute", _) if !(is_date && of_extract) => Kernel::Minute,
        ("timezone" | "timezone_hour" | "timezone_minute", Timestamp(_, Some(_))) => {
            let array = finite(array);
            let of_utc = (0..array.len()).map(|row| array.is_valid(row).then_some(0));
            return Ok(Arc::new(of_utc.collect::<Int32Array>()));
        }
        (_, Time64(_)) => return Err(unsupported(part, given)),
        ("year", _) => Kernel::Year,
        ("isoyear", _) => Kernel::YearISO,
        ("quarter", _) => Kernel::Quarter,
        ("month", _) => Kernel::Month,
        ("week", _) => Kernel::Week,
        ("day", _) => Kernel::Day,
        ("doy", _) => Kernel::DayOfYear,
        ("dow", _) => Kernel::DayOfWeekSunday0,
        ("isodow", _) => Kernel::DayOfWeekMonday1,
        _ => return Err(unsupported(part, given)),
    };
    if is_endless(part) {
        check_finite(array, part)?;
    }
    let numbers = date_part(finite(array).as_ref(), kernel)?;
    if !matches!(kernel, Kernel::Year | Kernel::YearISO) {
        return Ok(numbers);
    }
    // There is no year 0: the one before 1 is -1.
    let years = numbers.as_primitive::<Int32Type>();
    Ok(match years.values().iter().all(|year| *year > 0) {
        true => numbers.clone(),
        false => Arc::new(years.unary::<_, Int32Type>(|year| if year > 0 { year } else { year - 1 })),
    })
}

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &str {
        if self.of_extract { EXTRACT } else { DATE_PART }
    }

    fn aliases(&self) -> &[String] {
        if self.of_extract { &[] } else { self.inner.aliases() }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> PlanResult<Vec<DataType>> {
        let known = match given {
            [part, time] if is_text_or_null(part) => types(std::slice::from_ref(time), DataType::Int32),
            _ => None,
        };
        let (mut time, _) = known.ok_or_else(|| no_function(self.name(), given))?;
        // The difference of two times has days, which Arrow's cast would not make.
        if let Some(duration @ DataType::Duration(_)) = given.get(1) {
            time = vec![duration.clone()];
        }
        Ok([vec![DataType::Utf8], time].concat())
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Int32)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        let is_known = args.scalar_arguments.first().copied().flatten().is_some();
        if !is_known {
            return Err(SqlError::unsupported(format!("{} of a part that is not constant", self.name())).external());
        }
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(datafusion::arrow::datatypes::Field::new(self.name(), DataType::Int32, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let part = match args.args.first() {
            Some(ColumnarValue::Scalar(part)) => part.try_as_str().flatten().map(str::to_owned),
            _ => None,
        };
        let Some(part) = part else { return Ok(ColumnarValue::Scalar(ScalarValue::Int32(None))) };
        let part = part_of(&part).map_or(part, str::to_owned);
        let numbers = |arrays: &[ArrayRef]| match arrays[0].data_type() {
            DataType::Duration(_) => as_intervals(&arrays[0]).and_then(|array| of_intervals(&part, &array)),
            DataType::Interval(_) => of_intervals(&part, &arrays[0]),
            _ => of_times(&part, &arrays[0], self.of_extract),
        };
        let apply = |arrays: &[ArrayRef]| strict_results(arrays, numbers).map_err(SqlError::external);
        make_scalar_function(apply, Vec::new())(&args.args[1..])
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> PlanResult<PreimageResult> {
        match literal.as_literal() {
            Some(ScalarValue::Int32(Some(1..))) => self.inner.preimage(args, literal, info),
            _ => Ok(PreimageResult::None),
        }
    }
}

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
