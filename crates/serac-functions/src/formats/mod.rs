//! to_char, to_date, to_timestamp and to_number with PostgreSQL's patterns for dates, times and
//! numbers (its manual, "Data Type Formatting Functions"). DataFusion's own take patterns of
//! strftime and would copy `YYYY` to the output.

mod numbers;
mod pattern;
mod read;
mod write;

use crate::times::on_clocks;
use chrono::NaiveDateTime;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Float64Array, LargeBinaryArray, StringArray, StringViewArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::compute::kernels::cmp::eq;
use datafusion::arrow::compute::{cast, nullif};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use numbers::{Number, NumberPattern};
use pattern::{Piece, parse};
use serac_engine::Infinity;
use serac_numeric::Numeric;
use serac_values::SqlError;
use serac_values::intervals::{INTERVAL, Parts, intervals, is_interval};
use serac_values::text_types::is_text_or_null;
use serac_values::time_zones::Zone;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Char,
    Date,
    Timestamp,
    Number,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FormatFunction {
    kind: Kind,
    /// A time with a time zone, or without one.
    zone: Zone,
    signature: Signature,
}

pub(super) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [Kind::Char, Kind::Date, Kind::Timestamp, Kind::Number].into_iter().map(|kind| kind.function(Zone::utc()))
}

/// to_char and to_timestamp in a session with a time zone; `None` for another name.
pub(super) fn function_in(name: &str, zone: Zone) -> Option<ScalarUDF> {
    let kind = [Kind::Char, Kind::Timestamp].into_iter().find(|kind| kind.name() == name)?;
    Some(kind.function(zone))
}

impl Kind {
    fn function(self, zone: Zone) -> ScalarUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(FormatFunction { kind: self, zone, signature })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Char => "to_char",
            Self::Date => "to_date",
            Self::Timestamp => "to_timestamp",
            Self::Number => "to_number",
        }
    }
}

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

fn with_zone() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Calls `f` with the result of `parse` for the pattern and with the row's number, for rows where
/// both arguments have a value.
fn each<P, T>(
    given: &ArrayRef,
    patterns: &StringViewArray,
    parse: impl Fn(&str) -> std::result::Result<P, SqlError>,
    mut f: impl FnMut(&P, usize) -> std::result::Result<T, SqlError>,
) -> Result<Vec<Option<T>>> {
    // Most often it is one pattern for all rows.
    let mut last: Option<(&str, P)> = None;
    let each = (0..given.len()).map(|row| {
        if given.is_null(row) || patterns.is_null(row) {
            return Ok(None);
        }
        let pattern = patterns.value(row);
        let parsed = match &mut last {
            Some((known, parsed)) if *known == pattern => &*parsed,
            other => &other.insert((pattern, parse(pattern)?)).1,
        };
        f(parsed, row).map(Some)
    });
    each.collect::<std::result::Result<_, SqlError>>().map_err(SqlError::external)
}

fn pieces(pattern: &str) -> std::result::Result<Vec<Piece>, SqlError> {
    Ok(parse(pattern))
}

/// Numbers in the forms of patterns.
fn numbers_as_texts(given: &ArrayRef, patterns: &StringViewArray) -> Result<ArrayRef> {
    let number = |row: usize| -> std::result::Result<Number, SqlError> {
        Ok(match given.data_type() {
            DataType::Float32 => {
                Number::Float(given.as_primitive::<Float32Type>().value(row).into(), f32::DIGITS as usize)
            }
            DataType::Float64 => Number::Float(given.as_primitive::<Float64Type>().value(row), f64::DIGITS as usize),
            DataType::Decimal128(_, scale) => {
                Number::Decimal(given.as_primitive::<Decimal128Type>().value(row), *scale)
            }
            DataType::LargeBinary => of_own_digits(given.as_binary::<i64>().value(row))?,
            _ => Number::Decimal(given.as_primitive::<Int64Type>().value(row).into(), 0),
        })
    };
    let texts = each(given, patterns, NumberPattern::parse, |pattern, row| numbers::write(pattern, number(row)?))?;
    Ok(Arc::new(texts.into_iter().collect::<StringArray>()))
}

/// A number with digits of its own.
///
/// # Errors
/// 0A000 if it has more than 38.
fn of_own_digits(stored: &[u8]) -> std::result::Result<Number, SqlError> {
    let number = Numeric::of_stored(stored)?;
    let Some(finite) = number.finite() else { return Ok(Number::Float(number.to_f64()?, f64::DIGITS as usize)) };
    match (finite.unscaled().small(), i8::try_from(finite.scale())) {
        (Some(unscaled), Ok(scale)) => Ok(Number::Decimal(unscaled, scale)),
        _ => Err(SqlError::unsupported("to_char of a number with so many digits")),
    }
}

/// Digits behind the point of a quotient by a power of ten (`V`).
const DIVIDED: i32 = 16;

/// The number that a text says in the form of a pattern, with as many digits behind the point as
/// the text has.
fn number_of(pattern: &NumberPattern, text: &str) -> std::result::Result<Numeric, SqlError> {
    let overflow = || SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow");
    let (number, after) = numbers::read(pattern, text)?;
    let number = Numeric::of_decimal(number, i8::try_from(after).map_err(|_| overflow())?);
    match i32::try_from(pattern.shift()) {
        Ok(0) => Ok(number),
        _ => Ok(number.rounded(DIVIDED.max(i32::try_from(after).map_err(|_| overflow())?))?),
    }
}

/// The numbers that texts say in the forms of patterns.
fn texts_as_numbers(given: &ArrayRef, patterns: &StringViewArray) -> Result<ArrayRef> {
    let texts = given.as_string_view();
    let number = |pattern: &NumberPattern, row: usize| Ok(number_of(pattern, texts.value(row))?.to_stored());
    let numbers = each(given, patterns, NumberPattern::parse, number)?;
    Ok(Arc::new(numbers.into_iter().collect::<LargeBinaryArray>()))
}

fn time_at(times: &TimestampMicrosecondArray, row: usize) -> std::result::Result<NaiveDateTime, SqlError> {
    times
        .value_as_datetime(row)
        .ok_or_else(|| SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range"))
}

impl FormatFunction {
    fn apply(&self, args: &[ArrayRef]) -> Result<ArrayRef> {
        let patterns = match args.get(1) {
            Some(patterns) => cast(patterns, &DataType::Utf8View)?,
            // to_timestamp (seconds since 1970)
            None if *args[0].data_type() == DataType::Float64 => {
                let seconds = args[0].as_primitive::<Float64Type>();
                return Ok(Arc::new(from_seconds(seconds).map_err(SqlError::external)?.with_timezone("UTC")));
            }
            None => return Ok(cast(&args[0], &with_zone())?),
        };
        let patterns = patterns.as_string_view();
        let is_time = args[0].data_type().is_temporal() || is_interval(args[0].data_type());
        // An empty pattern gives no text of a time.
        let filled = nullif(patterns, &eq(patterns, &StringViewArray::new_scalar(""))?)?;
        let patterns = if self.kind == Kind::Char && is_time { filled.as_string_view() } else { patterns };
        if self.kind == Kind::Number {
            return texts_as_numbers(&cast(&args[0], &DataType::Utf8View)?, patterns);
        }
        if self.kind == Kind::Char
            && (args[0].data_type().is_numeric() || *args[0].data_type() == DataType::LargeBinary)
        {
            return numbers_as_texts(&args[0], patterns);
        }
        if self.kind == Kind::Char && is_interval(args[0].data_type()) {
            let values = intervals(&args[0]);
            let write = |parts: &Vec<Piece>, row| write::write_interval(parts, Parts::of(values.value(row)));
            let texts = each(&args[0], patterns, pieces, write)?;
            return Ok(Arc::new(texts.into_iter().collect::<StringArray>()));
        }
        if self.kind == Kind::Char {
            let has_zone = matches!(args[0].data_type(), DataType::Timestamp(_, Some(_)));
            let given = match has_zone && !self.zone.is_utc() {
                true => on_clocks(&args[0], &self.zone).map_err(SqlError::external)?,
                false => cast(&args[0], &TIMESTAMP)?,
            };
            let times = given.as_primitive::<TimestampMicrosecondType>();
            let instants = cast(&args[0], &DataType::Int64)?;
            let instants = instants.as_primitive::<Int64Type>();
            let text = |parts: &Vec<Piece>, row: usize| {
                let reading = || has_zone.then(|| self.zone.reading(instants.value(row)));
                Ok(write::write(parts, time_at(times, row)?, &reading))
            };
            // An infinite time has no text in a pattern.
            let finite = times.unary_opt::<_, TimestampMicrosecondType>(|time| match Infinity::of_micros(time) {
                Some(_) => None,
                None => Some(time),
            });
            let texts = each(&(Arc::new(finite) as ArrayRef), patterns, pieces, text)?;
            return Ok(Arc::new(texts.into_iter().collect::<StringArray>()));
        }
        let given = cast(&args[0], &DataType::Utf8View)?;
        let texts = given.as_string_view();
        let times = each(&given, patterns, pieces, |parts, row| read::read(parts, texts.value(row)))?;
        Ok(match self.kind {
            Kind::Date => {
                let days = times.into_iter().map(|time| time.map(|read| Date32Type::from_naive_date(read.time.date())));
                Arc::new(days.collect::<Date32Array>())
            }
            _ => {
                let out_of_range =
                    || SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range").external();
                let micros = times
                    .into_iter()
                    .map(|time| time.map(|read| read.micros(&self.zone).ok_or_else(out_of_range)).transpose());
                Arc::new(micros.collect::<Result<TimestampMicrosecondArray>>()?.with_timezone("UTC"))
            }
        })
    }
}

fn from_seconds(seconds: &Float64Array) -> std::result::Result<TimestampMicrosecondArray, SqlError> {
    let wrong = |message| Err(SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, message));
    let micros = seconds.iter().map(|seconds| match seconds {
        None => Ok(None),
        Some(f64::INFINITY) => Ok(Some(Infinity::Plus.micros())),
        Some(f64::NEG_INFINITY) => Ok(Some(Infinity::Minus.micros())),
        Some(seconds) if seconds.is_nan() => wrong("timestamp cannot be NaN"),
        Some(seconds) => match (seconds * 1e6).round() {
            micros if micros.abs() < 9e18 => Ok(Some(micros as i64)),
            _ => wrong("timestamp out of range"),
        },
    });
    micros.collect()
}

impl ScalarUDFImpl for FormatFunction {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let shown = given.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let message = format!("function {}({shown}) does not exist", self.name());
        let unknown = || SqlError::new(sqlstate::UNDEFINED_FUNCTION, message.clone()).external();
        match (self.kind, given) {
            (Kind::Char, [time, pattern]) if is_text_or_null(pattern) => {
                let time = match time {
                    DataType::Timestamp(_, Some(_)) => with_zone(),
                    DataType::Timestamp(_, None) | DataType::Date32 | DataType::Null => TIMESTAMP,
                    DataType::Float16 | DataType::Float32 => DataType::Float32,
                    DataType::Float64 => DataType::Float64,
                    interval if is_interval(interval) => INTERVAL,
                    DataType::LargeBinary => DataType::LargeBinary,
                    DataType::UInt64 => DataType::Decimal128(20, 0),
                    DataType::Decimal32(precision, scale)
                    | DataType::Decimal64(precision, scale)
                    | DataType::Decimal128(precision, scale) => DataType::Decimal128(*precision, *scale),
                    integer if integer.is_integer() => DataType::Int64,
                    _ => return Err(unknown()),
                };
                Ok(vec![time, DataType::Utf8View])
            }
            (Kind::Date | Kind::Timestamp | Kind::Number, [text, pattern])
                if is_text_or_null(text) && is_text_or_null(pattern) =>
            {
                Ok(vec![DataType::Utf8View; 2])
            }
            (Kind::Timestamp, [seconds]) if seconds.is_numeric() => Ok(vec![DataType::Float64]),
            (Kind::Timestamp, [DataType::Timestamp(..) | DataType::Date32]) => Ok(vec![with_zone()]),
            (Kind::Timestamp, [text]) if is_text_or_null(text) => Ok(vec![DataType::Utf8View]),
            _ => Err(unknown()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::Char => DataType::Utf8,
            Kind::Date => DataType::Date32,
            Kind::Timestamp => with_zone(),
            Kind::Number => DataType::LargeBinary,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        make_scalar_function(|arrays| self.apply(arrays), Vec::new())(&args.args)
    }
}
