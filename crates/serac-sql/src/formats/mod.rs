//! to_char, to_date and to_timestamp with PostgreSQL's patterns for dates and times (its manual, "Data Type Formatting Functions"), where DataFusion's own
//! take those of strftime and would give `YYYY` back as it stands.

mod pattern;
mod read;
mod write;

use crate::error::SqlError;
use crate::uuids;
use chrono::NaiveDateTime;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Float64Array, StringArray, StringViewArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Date32Type, Float64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use pattern::{Piece, parse};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Char,
    Date,
    Timestamp,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FormatFunction {
    kind: Kind,
    signature: Signature,
}

pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [Kind::Char, Kind::Date, Kind::Timestamp].into_iter().map(|kind| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(FormatFunction { kind, signature })
    })
}

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

fn with_zone() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Whether it is a text, or NULL of no type.
fn is_text(data_type: &DataType) -> bool {
    data_type.is_null() || uuids::is_text(data_type)
}

/// Calls `f` with the patterns' parts and the row's number, for rows where both arguments have a value.
fn each<T>(
    given: &ArrayRef,
    patterns: &StringViewArray,
    mut f: impl FnMut(&[Piece], usize) -> std::result::Result<T, SqlError>,
) -> Result<Vec<Option<T>>> {
    // Most often it is one pattern for all rows.
    let (mut last, mut pieces) = (None, Vec::new());
    let each = (0..given.len()).map(|row| {
        if given.is_null(row) || patterns.is_null(row) {
            return Ok(None);
        }
        let pattern = patterns.value(row);
        if last != Some(pattern) {
            (last, pieces) = (Some(pattern), parse(pattern));
        }
        f(&pieces, row).map(Some)
    });
    each.collect::<std::result::Result<_, SqlError>>().map_err(SqlError::external)
}

fn time_at(times: &TimestampMicrosecondArray, row: usize) -> std::result::Result<NaiveDateTime, SqlError> {
    times.value_as_datetime(row).ok_or_else(|| SqlError::new("22008", "timestamp out of range"))
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
        if self.kind == Kind::Char {
            let utc = matches!(args[0].data_type(), DataType::Timestamp(_, Some(_)));
            let given = cast(&args[0], &TIMESTAMP)?;
            let times = given.as_primitive::<TimestampMicrosecondType>();
            let texts = each(&given, patterns, |pieces, row| Ok(write::write(pieces, time_at(times, row)?, utc)))?;
            return Ok(Arc::new(texts.into_iter().collect::<StringArray>()));
        }
        let given = cast(&args[0], &DataType::Utf8View)?;
        let texts = given.as_string_view();
        let times = each(&given, patterns, |pieces, row| read::read(pieces, texts.value(row)))?;
        Ok(match self.kind {
            Kind::Date => {
                let days = times.into_iter().map(|time| time.map(|time| Date32Type::from_naive_date(time.date())));
                Arc::new(days.collect::<Date32Array>())
            }
            _ => {
                let micros = times.into_iter().map(|time| time.map(|time| time.and_utc().timestamp_micros()));
                Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
            }
        })
    }
}

fn from_seconds(seconds: &Float64Array) -> std::result::Result<TimestampMicrosecondArray, SqlError> {
    let micros = seconds.iter().map(|seconds| match seconds.map(|seconds| (seconds * 1e6).round()) {
        Some(micros) if micros.abs() < 9e18 => Ok(Some(micros as i64)),
        Some(_) => Err(SqlError::new("22008", "timestamp out of range")),
        None => Ok(None),
    });
    micros.collect()
}

impl ScalarUDFImpl for FormatFunction {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Char => "to_char",
            Kind::Date => "to_date",
            Kind::Timestamp => "to_timestamp",
        }
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let shown = given.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let message = format!("function {}({shown}) does not exist", self.name());
        let unknown = || SqlError::new("42883", message.clone()).external();
        match (self.kind, given) {
            (Kind::Char, [time, pattern]) if is_text(pattern) => {
                let time = match time {
                    DataType::Timestamp(_, Some(_)) => with_zone(),
                    DataType::Timestamp(_, None) | DataType::Date32 | DataType::Null => TIMESTAMP,
                    _ => return Err(unknown()),
                };
                Ok(vec![time, DataType::Utf8View])
            }
            (Kind::Date | Kind::Timestamp, [text, pattern]) if is_text(text) && is_text(pattern) => {
                Ok(vec![DataType::Utf8View; 2])
            }
            (Kind::Timestamp, [seconds]) if seconds.is_numeric() => Ok(vec![DataType::Float64]),
            (Kind::Timestamp, [DataType::Timestamp(..) | DataType::Date32]) => Ok(vec![with_zone()]),
            (Kind::Timestamp, [text]) if is_text(text) => Ok(vec![DataType::Utf8View]),
            _ => Err(unknown()),
        }
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::Char => DataType::Utf8,
            Kind::Date => DataType::Date32,
            Kind::Timestamp => with_zone(),
        })
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        make_scalar_function(|arrays| self.apply(arrays), Vec::new())(&args.args)
    }
}
