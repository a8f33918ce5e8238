//! Columns of objects that Python code has given, as Arrow.
//!
//! The objects must be of the type that the code has said: a text is no number. The database checks
//! the rest, as the range of an integer, when it assigns the values.

use crate::parameters;
use crate::python_types::PythonTypes;
use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray, StringArray, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyInt, PyList, PyString, PyTuple};
use seracdb::{ScalarValue, SqlError};
use std::sync::Arc;

/// Why a column could not be made.
pub enum Failure {
    /// The exception of an object that fails to tell its value.
    Exception(PyErr),
    /// An object of another type, or out of range.
    Wrong(SqlError),
}

impl From<PyErr> for Failure {
    fn from(exception: PyErr) -> Self {
        Self::Exception(exception)
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Wrong(error)
    }
}

/// Objects of a type, which code has given.
struct Objects<'a, 'py> {
    types: &'a PythonTypes,
    objects: &'a [Bound<'py, PyAny>],
    /// The name of the code that has given them, for messages.
    what: &'a str,
    wanted: &'a DataType,
}

/// Objects as a column that SQL can assign to the Arrow type `wanted`.
///
/// # Errors
/// 42804 for an object of another type, 22003 for a number that is too large, and the exception of
/// an object that fails to tell its value.
pub fn column(
    types: &PythonTypes,
    objects: &[Bound<'_, PyAny>],
    wanted: &DataType,
    what: &str,
) -> Result<ArrayRef, Failure> {
    Objects { types, objects, what, wanted }.column()
}

impl<'py> Objects<'_, 'py> {
    fn mismatch(&self, object: &Bound<'py, PyAny>) -> Failure {
        let shown = object.repr().map(|shown| shown.to_string()).unwrap_or_default();
        let shown: String = shown.chars().take(100).collect();
        let class = object.get_type().qualname().map(|name| name.to_string()).unwrap_or_default();
        let wanted = match self.wanted {
            DataType::LargeBinary => "numeric".to_owned(),
            DataType::LargeUtf8 => "json".to_owned(),
            wanted => wanted.to_string(),
        };
        let message = format!("{} gave {shown} of type {class} for a value of the type {wanted}", self.what);
        Failure::Wrong(SqlError::new(sqlstate::DATATYPE_MISMATCH, message))
    }

    /// The values, by a function that gives `None` for an object of another type.
    fn each<T>(&self, value: impl Fn(&Bound<'py, PyAny>) -> PyResult<Option<T>>) -> Result<Vec<Option<T>>, Failure> {
        let one = |object: &Bound<'py, PyAny>| match object.is_none() {
            true => Ok(None),
            false => value(object)?.ok_or_else(|| self.mismatch(object)).map(Some),
        };
        self.objects.iter().map(one).collect()
    }

    fn column(&self) -> Result<ArrayRef, Failure> {
        Ok(match self.wanted {
            DataType::Boolean => Arc::new(BooleanArray::from(self.each(truth)?)),
            DataType::Int16 | DataType::Int32 | DataType::Int64 => Arc::new(Int64Array::from(self.integers()?)),
            DataType::Float32 | DataType::Float64 => Arc::new(Float64Array::from(self.each(float)?)),
            // Numbers with their own digits are told by their texts.
            DataType::LargeBinary | DataType::Decimal128(..) => Arc::new(StringArray::from(self.each(number)?)),
            DataType::Utf8 | DataType::Utf8View => Arc::new(StringArray::from(self.each(text)?)),
            DataType::LargeUtf8 => Arc::new(StringArray::from(self.each(|object| self.document(object))?)),
            DataType::Binary | DataType::BinaryView => {
                let bytes = self.each(bytes)?;
                Arc::new(BinaryArray::from_iter(bytes))
            }
            DataType::List(element) => self.lists(element.data_type())?,
            _ => self.others()?,
        })
    }

    fn integers(&self) -> Result<Vec<Option<i64>>, Failure> {
        let integer = |object: &Bound<'py, PyAny>| {
            if object.is_instance_of::<PyBool>() {
                return Ok(None);
            }
            match object.extract::<i64>() {
                Ok(number) => Ok(Some(number)),
                Err(exception) if exception.is_instance_of::<PyOverflowError>(object.py()) => Err(exception),
                Err(_) => Ok(None),
            }
        };
        self.each(integer).map_err(|failure| match failure {
            Failure::Exception(_) => {
                let message = format!("{} gave a number that is out of range", self.what);
                Failure::Wrong(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, message))
            }
            wrong => wrong,
        })
    }

    fn document(&self, object: &Bound<'py, PyAny>) -> PyResult<Option<String>> {
        let json = self.types.json.bind(object.py());
        let object = if object.is_instance(json)? { object.getattr("value")? } else { object.clone() };
        self.types.json_dumps.bind(object.py()).call1((object,))?.extract().map(Some)
    }

    /// Lists, of which the elements are a column of their own.
    fn lists(&self, element: &DataType) -> Result<ArrayRef, Failure> {
        let (mut elements, mut lengths, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for object in self.objects {
            let before = elements.len();
            if !object.is_none() {
                if let Ok(list) = object.cast::<PyList>() {
                    elements.extend(list.iter());
                } else if let Ok(tuple) = object.cast::<PyTuple>() {
                    elements.extend(tuple.iter());
                } else if object.hasattr("tolist")? && object.hasattr("dtype")? {
                    let list = object.call_method0("tolist")?;
                    elements.extend(list.cast::<PyList>().map_err(|_| self.mismatch(object))?.iter());
                } else {
                    return Err(self.mismatch(object));
                }
            }
            lengths.push(elements.len() - before);
            known.push(!object.is_none());
        }
        let values = Objects { objects: &elements, wanted: element, ..*self }.column()?;
        let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let lists =
            ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), values, Some(NullBuffer::from(known)));
        Ok(Arc::new(lists.map_err(SqlError::from)?))
    }

    /// Values of the types that have one class each: dates, times, intervals, UUIDs.
    fn others(&self) -> Result<ArrayRef, Failure> {
        if self.objects.is_empty() {
            return Ok(new_null_array(self.wanted, 0));
        }
        let null = ScalarValue::try_from(self.wanted).map_err(SqlError::from)?;
        let value = |object: &Bound<'py, PyAny>| {
            let value = parameters::scalar(self.types, object)?;
            Ok((value.data_type() == *self.wanted).then_some(value))
        };
        let values = self.each(value)?.into_iter().map(|value| value.unwrap_or_else(|| null.clone()));
        Ok(ScalarValue::iter_to_array(values).map_err(SqlError::from)?)
    }
}

fn truth(object: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    if object.is_instance_of::<PyBool>() {
        return object.is_truthy().map(Some);
    }
    let class = object.get_type();
    let is_numpy = class.module()?.to_str()? == "numpy" && class.name()?.to_str()?.starts_with("bool");
    if is_numpy { object.is_truthy().map(Some) } else { Ok(None) }
}

fn float(object: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    Ok(if object.is_instance_of::<PyBool>() { None } else { object.extract().ok() })
}

fn number(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if !object.is_exact_instance_of::<PyInt>() && float(object)?.is_none() {
        return Ok(None);
    }
    object.str()?.extract().map(Some)
}

fn text(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    object.cast::<PyString>().ok().map(|text| Ok(text.to_str()?.to_owned())).transpose()
}

fn bytes(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes().to_vec()));
    }
    Ok(object.cast::<PyByteArray>().ok().map(|bytes| bytes.to_vec()))
}

/// The fields of a row that code has given: a tuple, a list, a dict by the names of the columns, or
/// the value of the only column.
///
/// # Errors
/// 42804 for another number of fields, or a key that is no column.
pub fn fields<'py>(row: &Bound<'py, PyAny>, names: &[&str], what: &str) -> Result<Vec<Bound<'py, PyAny>>, Failure> {
    let wrong = |message: String| Failure::Wrong(SqlError::new(sqlstate::DATATYPE_MISMATCH, message));
    let fields: Vec<Bound<'py, PyAny>> = if let Ok(tuple) = row.cast::<PyTuple>() {
        tuple.iter().collect()
    } else if let Ok(dict) = row.cast::<PyDict>() {
        for key in dict.keys() {
            let key: String = key.str()?.extract()?;
            if !names.contains(&key.as_str()) {
                return Err(wrong(format!("{what} gave a row with the key \"{key}\", which is no column")));
            }
        }
        let none = row.py().None().into_bound(row.py());
        let field = |name: &&str| Ok::<_, PyErr>(dict.get_item(*name)?.unwrap_or_else(|| none.clone()));
        names.iter().map(field).collect::<PyResult<_>>()?
    } else if names.len() == 1 {
        vec![row.clone()]
    } else if let Ok(list) = row.cast::<PyList>() {
        list.iter().collect()
    } else {
        let class = row.get_type().qualname()?;
        return Err(wrong(format!("{what} gave an object of type {class} as a row")));
    };
    if fields.len() != names.len() {
        let message = format!("{what} gave a row of {} values instead of {}", fields.len(), names.len());
        return Err(wrong(message));
    }
    Ok(fields)
}
