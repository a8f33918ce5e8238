//! Python's objects as parameters of statements.
//!
//! A statement of the point path takes values in the storage's form, of exactly the types of its
//! plan ([`Exact`]). Any other statement takes values with types of their own ([`scalar`]), which
//! it converts by SQL's rules. An `int` has the smallest of INTEGER, BIGINT and NUMERIC that holds
//! it, as a constant in a text has. A `str` is of any type that its place needs.

use crate::error;
use crate::python_types::PythonTypes;
use arrow::array::{Array, ArrowPrimitiveType, ListArray, new_empty_array};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNanoType};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use seracdb::engine::values::{display, value_at};
use seracdb::{ColumnType, ScalarValue, Value, wire};
use std::sync::Arc;

/// Days from the first of the year 1, which is day 1 of Python's ordinals, to 1970-01-01.
const EPOCH_ORDINAL: i32 = 719_163;
/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;
/// Levels of lists in lists.
const MOST_DIMENSIONS: usize = 6;

/// An interval as Arrow has it.
type IntervalValue = <IntervalMonthDayNanoType as ArrowPrimitiveType>::Native;

/// A parameter in the storage's form. Texts and bytes are those of the object.
pub enum Exact<'a> {
    /// A value of fixed width, or one that the object holds.
    Value(Value<'a>),
    /// A value that was made.
    Owned(Vec<u8>),
}

impl Exact<'_> {
    /// The value.
    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Value(value) => *value,
            Self::Owned(bytes) => Value::Bytes(bytes),
        }
    }
}

fn is_a(object: &Bound<'_, PyAny>, class: &Py<PyAny>) -> PyResult<bool> {
    object.is_instance(class.bind(object.py()))
}

/// Whether it is one of the objects that pandas has for a missing value.
fn is_missing(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = object.get_type().name()?;
    Ok(matches!(name.to_str()?, "NaTType" | "NAType"))
}

/// Days of a `timedelta`, of any sign, and the microseconds behind them, which are less than a day.
fn parts_of_delta(delta: &Bound<'_, PyAny>) -> PyResult<(i32, i64)> {
    let part = |name: &str| delta.getattr(name)?.extract::<i64>();
    Ok((delta.getattr("days")?.extract()?, part("seconds")? * 1_000_000 + part("microseconds")?))
}

/// The text of a string. SQL's texts have no zero bytes.
fn text<'a>(string: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    let text = string.to_str()?;
    if text.as_bytes().contains(&0) {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        return Err(error::data(sqlstate::CHARACTER_NOT_IN_REPERTOIRE, message));
    }
    Ok(text)
}

fn days(date: &Bound<'_, PyAny>) -> PyResult<i32> {
    Ok(date.call_method0("toordinal")?.extract::<i32>()? - EPOCH_ORDINAL)
}

/// Microseconds since midnight.
fn micros_of_time(time: &Bound<'_, PyAny>) -> PyResult<i64> {
    if !time.getattr("tzinfo")?.is_none() {
        return Err(error::data(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "a time with a time zone has no type in SeracDB: use a datetime",
        ));
    }
    let part = |name: &str| time.getattr(name)?.extract::<i64>();
    let seconds = (part("hour")? * 60 + part("minute")?) * 60 + part("second")?;
    Ok(seconds * 1_000_000 + part("microsecond")?)
}

/// Microseconds since 1970, and whether it is an absolute instant.
fn micros_of_datetime(types: &PythonTypes, datetime: &Bound<'_, PyAny>) -> PyResult<(i64, bool)> {
    let utc = !datetime.getattr("tzinfo")?.is_none();
    let epoch = if utc { &types.epoch_utc } else { &types.epoch };
    let (days, micros) = parts_of_delta(&datetime.sub(epoch.bind(datetime.py()))?)?;
    Ok((i64::from(days) * DAY + micros, utc))
}

fn interval(types: &PythonTypes, object: &Bound<'_, PyAny>) -> PyResult<Option<IntervalValue>> {
    let (months, days, micros): (i32, i32, i64) = if is_a(object, &types.interval)? {
        object.extract()?
    } else if is_a(object, &types.timedelta)? {
        let (days, micros) = parts_of_delta(object)?;
        (0, days, micros)
    } else {
        return Ok(None);
    };
    let nanos = micros.checked_mul(1_000).ok_or_else(|| PyOverflowError::new_err("the interval is too long"))?;
    Ok(Some(IntervalMonthDayNanoType::make_value(months, days, nanos)))
}

/// The bits of a UUID in the storage's form.
fn uuid(object: &Bound<'_, PyAny>) -> PyResult<[u8; 16]> {
    object.getattr("bytes")?.extract()
}

/// The digits of a number as an integer with `scale` digits after the point, if it has no others
/// and has at most `precision` in all.
fn scaled(number: &str, precision: u8, scale: i8) -> Option<i128> {
    let (mantissa, exponent) = match number.split_once(['E', 'e']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let shift = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?.checked_add(scale.into())?;
    let power = 10i128.checked_pow(shift.unsigned_abs())?;
    let scaled =
        if shift >= 0 { digits.checked_mul(power)? } else { (digits % power == 0).then_some(digits / power)? };
    (scaled.unsigned_abs() < 10u128.pow(precision.into())).then_some(scaled)
}

/// The object as a value of exactly a type; `None` if it is none, and the statement must convert
/// it.
///
/// # Errors
/// The exception of an object that fails to tell its value.
pub fn exact<'a>(
    types: &PythonTypes,
    object: &'a Bound<'_, PyAny>,
    column_type: ColumnType,
) -> PyResult<Option<Exact<'a>>> {
    let value = |value: Value<'a>| Ok(Some(Exact::Value(value)));
    if object.is_none() {
        return value(Value::Null);
    }
    match column_type {
        ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => {
            if !object.is_exact_instance_of::<PyInt>() {
                return Ok(None);
            }
            // An int of more bits takes the way on which SQL says that it is out of range.
            let Ok(number) = object.extract::<i64>() else { return Ok(None) };
            Ok(match column_type {
                ColumnType::Int16 => i16::try_from(number).ok().map(Value::Int16),
                ColumnType::Int32 => i32::try_from(number).ok().map(Value::Int32),
                _ => Some(Value::Int64(number)),
            }
            .map(Exact::Value))
        }
        ColumnType::Utf8 => match object.cast_exact::<PyString>() {
            Ok(string) => value(Value::Bytes(text(string)?.as_bytes())),
            Err(_) => Ok(None),
        },
        ColumnType::Float64 if object.is_exact_instance_of::<PyFloat>() => value(Value::Float64(object.extract()?)),
        ColumnType::Boolean if object.is_exact_instance_of::<PyBool>() => value(Value::Bool(object.extract()?)),
        ColumnType::Binary => match object.cast_exact::<PyBytes>() {
            Ok(bytes) => value(Value::Bytes(bytes.as_bytes())),
            Err(_) => Ok(None),
        },
        ColumnType::Decimal { precision, scale } => {
            if !object.is_exact_instance_of::<PyInt>() && !is_a(object, &types.decimal)? {
                return Ok(None);
            }
            Ok(scaled(&digits(types, object)?, precision, scale).map(|unscaled| {
                // A number of 18 digits has 60 bits.
                Exact::Value(if precision <= 18 { Value::Int64(unscaled as i64) } else { Value::Int128(unscaled) })
            }))
        }
        ColumnType::Numeric => {
            if !object.is_exact_instance_of::<PyInt>() && !is_a(object, &types.decimal)? {
                return Ok(None);
            }
            match wire::number_of(&ScalarValue::Utf8(Some(digits(types, object)?))) {
                Ok(Some(ScalarValue::LargeBinary(Some(stored)))) => Ok(Some(Exact::Owned(stored))),
                _ => Ok(None),
            }
        }
        ColumnType::Timestamp { utc } if is_a(object, &types.datetime)? && !is_missing(object)? => {
            let (micros, is_utc) = micros_of_datetime(types, object)?;
            Ok((utc == is_utc).then_some(Exact::Value(Value::Int64(micros))))
        }
        ColumnType::Date if is_a(object, &types.date)? && !is_a(object, &types.datetime)? => {
            value(Value::Int32(days(object)?))
        }
        ColumnType::Time if is_a(object, &types.time)? => value(Value::Int64(micros_of_time(object)?)),
        ColumnType::Uuid if is_a(object, &types.uuid)? => value(Value::Int128(i128::from_le_bytes(uuid(object)?))),
        // Documents get their normal form on the other path.
        _ => Ok(None),
    }
}

/// The text of an `int` or a `Decimal`.
fn digits(types: &PythonTypes, object: &Bound<'_, PyAny>) -> PyResult<String> {
    if !object.is_instance_of::<PyInt>() {
        return Ok(object.str()?.to_str()?.to_owned());
    }
    if let Ok(short) = object.extract::<i64>() {
        return Ok(short.to_string());
    }
    // By `Decimal`: Python does not write an `int` of more than 4,300 digits, and a subclass may
    // write it in another way.
    Ok(types.decimal.bind(object.py()).call1((object,))?.str()?.to_str()?.to_owned())
}

/// A number with its own digits.
fn number(types: &PythonTypes, object: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    match wire::number_of(&ScalarValue::Utf8(Some(digits(types, object)?))) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(error::data(sqlstate::INVALID_TEXT_REPRESENTATION, "this is no number")),
        Err(error) => Err(crate::error::of_sql(object.py(), &error)),
    }
}

fn json(types: &PythonTypes, object: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    let text: String = types.json_dumps.bind(object.py()).call1((object,))?.extract()?;
    Ok(ScalarValue::LargeUtf8(Some(text)))
}

fn micros_scalar(micros: i64, utc: bool) -> ScalarValue {
    ScalarValue::TimestampMicrosecond(Some(micros), utc.then(|| "UTC".into()))
}

/// The object as a value with a type of its own.
///
/// # Errors
/// `TypeError` for an object that is no value of SQL, and the exception of an object that fails to
/// tell its value.
pub fn scalar(types: &PythonTypes, object: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    nested(types, object, 0)
}

fn nested(types: &PythonTypes, object: &Bound<'_, PyAny>, depth: usize) -> PyResult<ScalarValue> {
    if object.is_none() {
        return Ok(ScalarValue::Null);
    }
    if object.is_instance_of::<PyBool>() {
        return Ok(ScalarValue::Boolean(Some(object.is_truthy()?)));
    }
    if object.is_instance_of::<PyInt>() {
        return match object.extract::<i64>() {
            Ok(whole) => Ok(match i32::try_from(whole) {
                Ok(short) => ScalarValue::Int32(Some(short)),
                Err(_) => ScalarValue::Int64(Some(whole)),
            }),
            Err(_) => number(types, object),
        };
    }
    if let Ok(string) = object.cast::<PyString>() {
        return Ok(ScalarValue::Utf8(Some(text(string)?.to_owned())));
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(ScalarValue::Float64(Some(object.extract()?)));
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(ScalarValue::Binary(Some(bytes.as_bytes().to_vec())));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(ScalarValue::Binary(Some(bytes.to_vec())));
    }
    if let Ok(list) = object.cast::<PyList>() {
        return array(types, list.iter(), depth);
    }
    if is_missing(object)? {
        return Ok(ScalarValue::Null);
    }
    if is_a(object, &types.datetime)? {
        let (micros, utc) = micros_of_datetime(types, object)?;
        return Ok(micros_scalar(micros, utc));
    }
    if is_a(object, &types.date)? {
        return Ok(ScalarValue::Date32(Some(days(object)?)));
    }
    if is_a(object, &types.time)? {
        return Ok(ScalarValue::Time64Microsecond(Some(micros_of_time(object)?)));
    }
    if is_a(object, &types.decimal)? {
        return number(types, object);
    }
    if let Some(interval) = interval(types, object)? {
        return Ok(ScalarValue::IntervalMonthDayNano(Some(interval)));
    }
    if is_a(object, &types.uuid)? {
        return Ok(ScalarValue::FixedSizeBinary(16, Some(uuid(object)?.to_vec())));
    }
    if is_a(object, &types.json)? {
        return json(types, &object.getattr("value")?);
    }
    if object.is_instance_of::<PyDict>() {
        return json(types, object);
    }
    // A tuple that is no interval.
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return array(types, tuple.iter(), depth);
    }
    other(types, object, depth)
}

/// NumPy's times in microseconds where their unit is smaller: Python has no object for these, so
/// NumPy would tell a bare number. So it does for lengths of time without a fixed length.
fn in_micros<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let data_type = object.getattr("dtype")?.getattr("str")?.extract::<String>()?;
    match data_type.trim_start_matches(['<', '>', '=']) {
        "M8[ns]" | "M8[ps]" | "M8[fs]" | "M8[as]" => object.call_method1("astype", ("M8[us]",)),
        "m8[ns]" | "m8[ps]" | "m8[fs]" | "m8[as]" => object.call_method1("astype", ("m8[us]",)),
        "m8" | "m8[M]" | "m8[Y]" => Err(PyTypeError::new_err(format!("NumPy's {data_type} has no fixed length"))),
        _ => Ok(object.clone()),
    }
}

/// Objects of other packages: those of NumPy tell their value as one of Python's.
fn other(types: &PythonTypes, object: &Bound<'_, PyAny>, depth: usize) -> PyResult<ScalarValue> {
    let class = object.get_type();
    let module = class.module()?;
    let is_numpy = module.to_str()?.split('.').next() == Some("numpy");
    if is_numpy && depth <= MOST_DIMENSIONS {
        let value = in_micros(object)?.call_method0("tolist")?;
        if !value.get_type().is(&class) {
            return nested(types, &value, depth + 1);
        }
    }
    if module.to_str()? == "builtins" && class.name()?.to_str()? == "memoryview" {
        return nested(types, &object.call_method0("tobytes")?, depth + 1);
    }
    Err(PyTypeError::new_err(format!("an object of type {} is no value of SQL", class.fully_qualified_name()?)))
}

/// The rank of a number's type among those of an array's elements.
fn rank(data_type: &DataType) -> Option<usize> {
    [DataType::Int32, DataType::Int64, DataType::LargeBinary, DataType::Float64].iter().position(|own| own == data_type)
}

/// The type of an array whose elements have both types.
fn common(one: DataType, other: DataType) -> PyResult<DataType> {
    match (&one, &other) {
        _ if one == other => Ok(one),
        (DataType::Null, _) => Ok(other),
        (_, DataType::Null) => Ok(one),
        (DataType::List(a), DataType::List(b)) => {
            Ok(DataType::new_list(common(a.data_type().clone(), b.data_type().clone())?, true))
        }
        _ => match (rank(&one), rank(&other)) {
            (Some(a), Some(b)) => Ok(if a > b { one } else { other }),
            _ => Err(PyTypeError::new_err("the elements of an array must be of one type")),
        },
    }
}

/// An element as one of a wider type.
fn widened(value: ScalarValue, data_type: &DataType) -> PyResult<ScalarValue> {
    if value.data_type() == *data_type {
        return Ok(value);
    }
    let failed = |error: String| PyTypeError::new_err(format!("an array has no element like this: {error}"));
    if *data_type == DataType::LargeBinary && !value.is_null() {
        let number = wire::number_of(&value).map_err(|error| failed(error.message))?;
        return number.ok_or_else(|| failed("no number".into()));
    }
    match (&value, data_type) {
        (ScalarValue::List(list), DataType::List(element)) if list.is_valid(0) => {
            let elements = list.value(0);
            let elements = (0..elements.len()).map(|at| {
                let own = ScalarValue::try_from_array(&elements, at).map_err(|error| failed(error.to_string()))?;
                widened(own, element.data_type())
            });
            list_of(elements.collect::<PyResult<Vec<_>>>()?, element.data_type())
        }
        _ => value.cast_to(data_type).map_err(|error| failed(error.to_string())),
    }
}

fn list_of(elements: Vec<ScalarValue>, data_type: &DataType) -> PyResult<ScalarValue> {
    let failed = |error: String| PyTypeError::new_err(format!("this is no array: {error}"));
    let values = match elements.is_empty() {
        true => new_empty_array(data_type),
        false => ScalarValue::iter_to_array(elements).map_err(|error| failed(error.to_string()))?,
    };
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![
        0,
        i32::try_from(values.len()).map_err(|error| failed(error.to_string()))?,
    ]));
    let field = Arc::new(Field::new_list_field(data_type.clone(), true));
    let list = ListArray::try_new(field, offsets, values, None);
    list.map(|list| ScalarValue::List(Arc::new(list))).map_err(|error| failed(error.to_string()))
}

fn array<'py>(
    types: &PythonTypes,
    elements: impl Iterator<Item = Bound<'py, PyAny>>,
    depth: usize,
) -> PyResult<ScalarValue> {
    if depth >= MOST_DIMENSIONS {
        return Err(PyTypeError::new_err(format!("an array has at most {MOST_DIMENSIONS} dimensions")));
    }
    let elements = elements.map(|element| nested(types, &element, depth + 1)).collect::<PyResult<Vec<_>>>()?;
    let data_type = elements.iter().map(ScalarValue::data_type).try_fold(DataType::Null, common)?;
    if data_type == DataType::Null {
        // Its type is that of its place.
        let texts: Vec<&str> = elements.iter().map(|_| "NULL").collect();
        return Ok(ScalarValue::Utf8(Some(format!("{{{}}}", texts.join(",")))));
    }
    let elements = elements.into_iter().map(|element| widened(element, &data_type)).collect::<PyResult<Vec<_>>>()?;
    let list = list_of(elements, &data_type)?;
    if depth == 0 && matches!(data_type, DataType::List(_)) {
        // An array of several dimensions is written as its text, which is of the type of its place:
        // to the planner a parameter has one dimension.
        let mut text = String::new();
        write_array(&list, &mut text)?;
        return Ok(ScalarValue::Utf8(Some(text)));
    }
    Ok(list)
}

/// Writes an array as SQL writes it: in braces, its values in quotes.
fn write_array(value: &ScalarValue, out: &mut String) -> PyResult<()> {
    let failed = |error: String| PyTypeError::new_err(format!("this is no array: {error}"));
    if value.is_null() {
        out.push_str("NULL");
        return Ok(());
    }
    if let ScalarValue::List(list) = value {
        let elements = list.value(0);
        out.push('{');
        for at in 0..elements.len() {
            if at > 0 {
                out.push(',');
            }
            let element = ScalarValue::try_from_array(&elements, at).map_err(|error| failed(error.to_string()))?;
            write_array(&element, out)?;
        }
        out.push('}');
        return Ok(());
    }
    let array = value.to_array().map_err(|error| failed(error.to_string()))?;
    let array = wire::to_wire(&array).map_err(|error| failed(error.to_string()))?;
    let column_type = wire::wire_type(&value.data_type());
    let shown = display(&value_at(&array, 0, column_type), column_type);
    out.push('"');
    out.push_str(&shown.replace('\\', "\\\\").replace('"', "\\\""));
    out.push('"');
    Ok(())
}

/// The object as a constant that a column of `data_type` is compared with.
///
/// # Errors
/// `TypeError` if it is none.
pub fn constant(types: &PythonTypes, object: &Bound<'_, PyAny>, column_type: ColumnType) -> PyResult<ScalarValue> {
    let wanted = column_type.arrow();
    let given = scalar(types, object)?;
    if given.is_null() {
        return ScalarValue::try_from(&wanted).map_err(|error| PyTypeError::new_err(error.to_string()));
    }
    let cast = |value: &ScalarValue| value.cast_to(&wanted).ok().filter(|cast| !cast.is_null());
    let given = match (&given, column_type) {
        (_, ColumnType::Numeric) => wire::number_of(&given).ok().flatten(),
        (ScalarValue::LargeBinary(_) | ScalarValue::Utf8(_), ColumnType::Decimal { precision, scale }) => {
            let unscaled = scaled(&digits(types, object)?, precision, scale);
            unscaled.map(|unscaled| ScalarValue::Decimal128(Some(unscaled), precision, scale))
        }
        // A number with its own digits: by its text.
        (ScalarValue::LargeBinary(_), _) if wanted.is_numeric() => {
            cast(&ScalarValue::Utf8(Some(digits(types, object)?)))
        }
        (ScalarValue::LargeBinary(_), _) => None,
        // Any number may be compared with the nearest REAL.
        (ScalarValue::Utf8(_), _) | (_, ColumnType::Float32) => cast(&given),
        // The same value: 1.5 is no integer, and a time of day is no date.
        _ => cast(&given).filter(|cast| cast.cast_to(&given.data_type()).is_ok_and(|back| back == given)),
    };
    given.ok_or_else(|| {
        let shown = object.repr().map(|shown| shown.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!("{shown} is no value of a column of the type {wanted}"))
    })
}
