//! Values of SQL as Python's objects.
//!
//! | SQL | Python |
//! |---|---|
//! | NULL | `None` |
//! | BOOLEAN | `bool` |
//! | SMALLINT, INTEGER, BIGINT, OID | `int` |
//! | REAL, DOUBLE PRECISION | `float` |
//! | NUMERIC | `decimal.Decimal` |
//! | TEXT, VARCHAR, CHAR | `str` |
//! | BYTEA | `bytes` |
//! | DATE, TIME, TIMESTAMP | `datetime.date`, `time`, `datetime` |
//! | TIMESTAMP WITH TIME ZONE | `datetime.datetime` in UTC |
//! | INTERVAL | `datetime.timedelta`, or `seracdb.Interval` if it has months or is longer |
//! | UUID | `uuid.UUID` |
//! | JSON, JSONB | what `json.loads` makes of it |
//! | arrays | `list` |
//! | rows | `tuple` |

use crate::error::IntoPython;
use crate::python_types::PythonTypes;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};
use seracdb::engine::values::{display, value_at};
use seracdb::{ColumnType, SqlError, Value, wire};
use std::borrow::Cow;

/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;
/// Days of the longest `timedelta`, of either sign.
const MOST_DAYS: i64 = 999_999_999;

/// A column of a batch, ready for reading single values.
enum Column {
    /// Values in the storage's form.
    Values { array: ArrayRef, column_type: ColumnType },
    /// Arrays: where the elements of each begin and end.
    List { array: ArrayRef, elements: Box<Column>, bounds: Vec<(usize, usize)> },
    /// Rows.
    Row { array: ArrayRef, fields: Vec<Column> },
}

impl Column {
    fn new(array: &ArrayRef) -> Result<Self, SqlError> {
        let list = |elements: &ArrayRef, bounds: Vec<(usize, usize)>| -> Result<Self, SqlError> {
            Ok(Self::List { array: array.clone(), elements: Box::new(Self::new(elements)?), bounds })
        };
        let bounds = |offsets: &[i32]| offsets.windows(2).map(|pair| (pair[0] as usize, pair[1] as usize)).collect();
        match array.data_type() {
            DataType::List(_) => {
                let lists = array.as_list::<i32>();
                list(lists.values(), bounds(lists.value_offsets()))
            }
            DataType::LargeList(element) | DataType::FixedSizeList(element, _) | DataType::ListView(element) => {
                let lists = cast(array, &DataType::List(element.clone()))?;
                let lists = lists.as_list::<i32>();
                list(lists.values(), bounds(lists.value_offsets()))
            }
            DataType::Struct(_) => {
                let fields = array.as_struct().columns().iter().map(Self::new).collect::<Result<_, _>>()?;
                Ok(Self::Row { array: array.clone(), fields })
            }
            data_type => {
                let column_type = wire::wire_type(data_type);
                Ok(Self::Values { array: wire::to_wire(array)?, column_type })
            }
        }
    }

    fn object<'py>(&self, py: Python<'py>, types: &PythonTypes, row: usize) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Values { array, column_type } => object(py, types, value_at(array, row, *column_type), *column_type),
            Self::List { array, .. } | Self::Row { array, .. } if array.is_null(row) => Ok(py.None().into_bound(py)),
            Self::List { elements, bounds, .. } => {
                let (start, end) = bounds[row];
                let list = PyList::empty(py);
                for at in start..end {
                    list.append(elements.object(py, types, at)?)?;
                }
                Ok(list.into_any())
            }
            Self::Row { fields, .. } => {
                let fields = fields.iter().map(|field| field.object(py, types, row)).collect::<PyResult<Vec<_>>>()?;
                Ok(PyTuple::new(py, fields)?.into_any())
            }
        }
    }
}

/// A batch, ready for reading rows.
pub struct BatchRows {
    columns: Vec<Column>,
    rows: usize,
}

impl BatchRows {
    /// The rows of a batch as the database has it: its `LargeBinary` holds numbers.
    ///
    /// # Errors
    /// If a value does not fit its type.
    pub fn new(py: Python<'_>, batch: &RecordBatch) -> PyResult<Self> {
        let columns = batch.columns().iter().map(Column::new).collect::<Result<_, _>>().python(py)?;
        Ok(Self { columns, rows: batch.num_rows() })
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// A row.
    ///
    /// # Errors
    /// If a value has no object in Python.
    pub fn row<'py>(&self, py: Python<'py>, types: &PythonTypes, row: usize) -> PyResult<Bound<'py, PyTuple>> {
        let values = self.columns.iter().map(|column| column.object(py, types, row));
        PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)
    }
}

fn unrepresentable(value: Value<'_>, column_type: ColumnType) -> SqlError {
    let shown = display(&value, column_type);
    let message = format!("\"{shown}\" is out of the range of Python's datetime: cast it to text");
    SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, message)
}

/// Refuses a value that has no object in Python: a date before the year 1, `infinity`, the time
/// 24:00.
///
/// # Errors
/// 22008.
pub fn check(value: Value<'_>, column_type: ColumnType) -> Result<(), SqlError> {
    let is_there = match (value, column_type) {
        (Value::Int32(days), ColumnType::Date) => date_of(days).is_some(),
        (Value::Int64(micros), ColumnType::Time) => time_of(micros).is_some(),
        (Value::Int64(micros), ColumnType::Timestamp { .. }) => moment_of(micros).is_some(),
        _ => true,
    };
    if is_there { Ok(()) } else { Err(unrepresentable(value, column_type)) }
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The text of a number with `scale` digits after the point.
fn decimal_text(unscaled: i128, scale: i8) -> String {
    match u32::try_from(scale) {
        Ok(0) => unscaled.to_string(),
        Ok(scale) => {
            let width = scale as usize + 1;
            let digits = format!("{:0>width$}", unscaled.unsigned_abs());
            let (whole, fraction) = digits.split_at(digits.len() - scale as usize);
            let sign = if unscaled < 0 { "-" } else { "" };
            format!("{sign}{whole}.{fraction}")
        }
        Err(_) => format!("{unscaled}E{}", -i32::from(scale)),
    }
}

/// Whether Python has dates of the year.
fn is_known(date: &impl Datelike) -> bool {
    (1..=9_999).contains(&date.year())
}

fn moment_of(micros: i64) -> Option<NaiveDateTime> {
    DateTime::from_timestamp_micros(micros).map(|moment| moment.naive_utc()).filter(is_known)
}

fn date_of(days: i32) -> Option<NaiveDate> {
    let epoch = NaiveDate::from_ymd_opt(1970, 1, 1)?;
    epoch.checked_add_signed(TimeDelta::days(days.into())).filter(is_known)
}

/// 24:00 is a time of SQL, and none of Python.
fn time_of(micros: i64) -> Option<NaiveTime> {
    let seconds = u32::try_from(micros / 1_000_000).ok().filter(|_| micros >= 0)?;
    NaiveTime::from_num_seconds_from_midnight_opt(seconds, 0)
}

fn datetime<'py>(py: Python<'py>, types: &PythonTypes, micros: i64, utc: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(moment) = moment_of(micros) else { return Ok(None) };
    let (date, time) = (moment.date(), moment.time());
    let micro = time.nanosecond() / 1_000;
    let class = types.datetime.bind(py);
    let parts = (date.year(), date.month(), date.day(), time.hour(), time.minute(), time.second(), micro);
    let (year, month, day, hour, minute, second, micro) = parts;
    let object = if utc {
        class.call1((year, month, day, hour, minute, second, micro, &types.utc))
    } else {
        class.call1((year, month, day, hour, minute, second, micro))
    };
    object.map(Some)
}

fn date<'py>(py: Python<'py>, types: &PythonTypes, days: i32) -> PyResult<Option<Bound<'py, PyAny>>> {
    match date_of(days) {
        Some(date) => types.date.bind(py).call1((date.year(), date.month(), date.day())).map(Some),
        None => Ok(None),
    }
}

fn time<'py>(py: Python<'py>, types: &PythonTypes, micros: i64) -> PyResult<Option<Bound<'py, PyAny>>> {
    match time_of(micros) {
        Some(time) => {
            let micro = micros % 1_000_000;
            types.time.bind(py).call1((time.hour(), time.minute(), time.second(), micro)).map(Some)
        }
        None => Ok(None),
    }
}

/// The parts of an interval in the storage's form: months, days, nanoseconds.
fn interval_parts(bits: i128) -> (i32, i32, i64) {
    let bits = bits as u128;
    (bits as i32, (bits >> 32) as i32, (bits >> 64) as i64)
}

fn interval<'py>(py: Python<'py>, types: &PythonTypes, bits: i128) -> PyResult<Bound<'py, PyAny>> {
    let (months, days, nanos) = interval_parts(bits);
    let micros = nanos / 1_000;
    let whole_days = i64::from(days) + micros.div_euclid(DAY);
    if months != 0 || whole_days.abs() > MOST_DAYS {
        return types.interval.bind(py).call1((months, days, micros));
    }
    let rest = micros.rem_euclid(DAY);
    types.timedelta.bind(py).call1((whole_days, rest / 1_000_000, rest % 1_000_000))
}

/// A value in the storage's form as an object.
///
/// # Errors
/// If Python has no such object: a date before the year 1, `infinity`, the time 24:00.
pub fn object<'py>(
    py: Python<'py>,
    types: &PythonTypes,
    value: Value<'_>,
    column_type: ColumnType,
) -> PyResult<Bound<'py, PyAny>> {
    let int = |number: i64| Ok(PyInt::new(py, number).into_any());
    let decimal = |text: &str| types.decimal.bind(py).call1((text,));
    let or_unrepresentable =
        |object: Option<Bound<'py, PyAny>>| object.ok_or_else(|| unrepresentable(value, column_type)).python(py);
    match (value, column_type) {
        (Value::Null, _) => Ok(py.None().into_bound(py)),
        (Value::Bool(bit), _) => Ok(PyBool::new(py, bit).to_owned().into_any()),
        (Value::Int16(number), _) => int(number.into()),
        (Value::Int32(days), ColumnType::Date) => or_unrepresentable(date(py, types, days)?),
        (Value::Int32(number), _) => int(number.into()),
        (Value::Int64(unscaled), ColumnType::Decimal { scale, .. }) => decimal(&decimal_text(unscaled.into(), scale)),
        (Value::Int64(micros), ColumnType::Time) => or_unrepresentable(time(py, types, micros)?),
        (Value::Int64(micros), ColumnType::Timestamp { utc }) => or_unrepresentable(datetime(py, types, micros, utc)?),
        (Value::Int64(number), _) => int(number),
        (Value::Int128(unscaled), ColumnType::Decimal { scale, .. }) => decimal(&decimal_text(unscaled, scale)),
        (Value::Int128(bits), ColumnType::Interval) => interval(py, types, bits),
        (Value::Int128(bits), _) => {
            // UUID.
            let number = u128::from_be_bytes(bits.to_le_bytes());
            let none = py.None();
            types.uuid.bind(py).call1((&none, &none, &none, &none, number))
        }
        (Value::Float32(number), _) => Ok(PyFloat::new(py, number.into()).into_any()),
        (Value::Float64(number), _) => Ok(PyFloat::new(py, number).into_any()),
        (Value::Bytes(bytes), ColumnType::Binary) => Ok(PyBytes::new(py, bytes).into_any()),
        (Value::Bytes(_), ColumnType::Numeric) => decimal(&display(&value, column_type)),
        (Value::Bytes(bytes), ColumnType::Json | ColumnType::JsonText) => {
            types.json_loads.bind(py).call1((text(bytes),))
        }
        (Value::Bytes(bytes), _) => Ok(PyString::new(py, &text(bytes)).into_any()),
    }
}
