//! Arrow's C interface in capsules (`__arrow_c_stream__`, `__arrow_c_array__`): rows out, frames
//! in.

use crate::error::{self, IntoPython};
use crate::rows::QueryRows;
use crate::wait;
use arrow::array::{RecordBatch, RecordBatchIterator, RecordBatchReader, StructArray};
use arrow::compute::{can_cast_types, cast};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use seracdb::engine::ArrowScan;
use seracdb::wire;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::sync::Arc;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// An error without the zero bytes that a text of C cannot have.
fn plain(error: impl ToString) -> ArrowError {
    ArrowError::ExternalError(error.to_string().replace('\0', " ").into())
}

/// The rows of a query as a reader, for a consumer that may be any thread.
pub struct QueryReader {
    /// Those that the cursor has taken from `rows` and not given.
    first: Option<RecordBatch>,
    rows: Arc<QueryRows>,
    schema: SchemaRef,
}

impl QueryReader {
    /// A reader of `first` and of the rest of `rows`.
    pub fn new(first: Option<RecordBatch>, rows: Arc<QueryRows>) -> Self {
        let schema = wire::shown_schema(rows.schema());
        Self { first, rows, schema }
    }

    fn read(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let next = match self.first.take() {
            Some(first) => Some(first),
            None => {
                let next = Python::try_attach(|py| {
                    self.rows.next(py).map_err(|exception| {
                        if !exception.is_instance_of::<PyException>(py) {
                            // Ctrl-C has cancelled the query. The consumer will raise an error of
                            // its own; Python raises this one then.
                            let interrupt =
                                py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main"));
                            interrupt.map_or_else(|failed| failed.write_unraisable(py, None), drop);
                        }
                        plain(exception.value(py))
                    })
                });
                next.unwrap_or_else(|| Err(plain("Python is ending")))?
            }
        };
        next.map(wire::shown).transpose().map_err(|error| plain(error.message))
    }
}

impl Iterator for QueryReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl RecordBatchReader for QueryReader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// A batch that is there already.
pub fn whole(batch: RecordBatch) -> Result<impl RecordBatchReader + Send, ArrowError> {
    let batch = wire::shown(batch).map_err(|error| plain(error.message))?;
    let schema = batch.schema();
    Ok(RecordBatchIterator::new([Ok(batch)], schema))
}

/// A scan of a table, which reads blocks with Python's lock released.
pub struct TableReader(pub ArrowScan);

impl Iterator for TableReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        wait::released(|| self.0.next()).map(|batch| batch.map_err(plain))
    }
}

impl RecordBatchReader for TableReader {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}

/// The columns of a reader in other types, as a consumer has asked for.
struct Converted<R> {
    reader: R,
    schema: SchemaRef,
}

impl<R: RecordBatchReader> Iterator for Converted<R> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let convert = |batch: RecordBatch| {
            let columns = batch.columns().iter().zip(self.schema.fields());
            let columns = columns.map(|(column, field)| cast(column, field.data_type())).collect::<Result<_, _>>()?;
            RecordBatch::try_new(self.schema.clone(), columns)
        };
        self.reader.next().map(|batch| batch.and_then(convert).map_err(plain))
    }
}

impl<R: RecordBatchReader> RecordBatchReader for Converted<R> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// The schema that a consumer asks for, if it is one of the same columns in other types. A wish
/// that cannot be fulfilled is ignored, as the interface wants it.
fn wished(requested: Option<&Bound<'_, PyAny>>, own: &Schema) -> PyResult<Option<SchemaRef>> {
    let Some(requested) = requested.filter(|requested| !requested.is_none()) else { return Ok(None) };
    let pointer = requested.cast::<PyCapsule>()?.pointer_checked(Some(SCHEMA))?;
    // SAFETY: a capsule of this name holds this struct, which is only looked at, and the capsule
    // lives until the end of the call.
    let requested = Schema::try_from(unsafe { pointer.cast::<FFI_ArrowSchema>().as_ref() })
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let can = |(own, wanted): (&Arc<Field>, &Arc<Field>)| {
        own.name() == wanted.name() && can_cast_types(own.data_type(), wanted.data_type())
    };
    let fits = own.fields().len() == requested.fields().len() && own.fields().iter().zip(requested.fields()).all(can);
    Ok((fits && own.fields() != requested.fields()).then(|| Arc::new(requested)))
}

/// A capsule of a stream.
///
/// # Errors
/// If `requested` is no capsule of a schema.
pub fn capsule<'py>(
    py: Python<'py>,
    reader: impl RecordBatchReader + Send + 'static,
    requested: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let stream = match wished(requested, &reader.schema())? {
        Some(schema) => FFI_ArrowArrayStream::new(Box::new(Converted { reader, schema })),
        None => FFI_ArrowArrayStream::new(Box::new(reader)),
    };
    PyCapsule::new_with_value(py, stream, STREAM)
}

/// A capsule of a schema.
///
/// # Errors
/// If Arrow's C interface has no such type.
pub fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(|error| PyValueError::new_err(error.to_string()))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// Rows that come from outside.
pub struct Frame {
    /// Their columns.
    pub schema: SchemaRef,
    /// The batches.
    pub batches: Batches,
}

/// The batches of a frame.
pub enum Batches {
    /// As they come.
    Stream(ArrowArrayStreamReader),
    /// All of them.
    Whole(VecDeque<RecordBatch>),
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Stream(reader) => reader.next(),
            Self::Whole(batches) => batches.pop_front().map(Ok),
        }
    }
}

fn of_stream(capsule: &Bound<'_, PyAny>) -> PyResult<Frame> {
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(STREAM))?;
    // SAFETY: a capsule of this name holds this struct. It is moved out, and the capsule left with
    // an empty one, which has nothing to release.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) };
    let reader = ArrowArrayStreamReader::try_new(stream).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(Frame { schema: reader.schema(), batches: Batches::Stream(reader) })
}

fn of_array(capsules: &Bound<'_, PyAny>) -> PyResult<Frame> {
    let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) = capsules.cast::<PyTuple>()?.extract()?;
    let schema = schema.cast::<PyCapsule>()?.pointer_checked(Some(SCHEMA))?;
    let array = array.cast::<PyCapsule>()?.pointer_checked(Some(ARRAY))?;
    // SAFETY: a capsule of this name holds this struct. It is moved out, and the capsule left with
    // an empty one, which has nothing to release.
    let array = unsafe { FFI_ArrowArray::from_raw(array.cast().as_ptr()) };
    // SAFETY: a capsule of this name holds this struct, which is only looked at; the array is of
    // this schema, as the interface promises.
    let data = unsafe { from_ffi(array, schema.cast::<FFI_ArrowSchema>().as_ref()) };
    let data = data.map_err(|error| PyValueError::new_err(error.to_string()))?;
    if !matches!(data.data_type(), DataType::Struct(_)) {
        let message = format!("an array of {} has no columns: give a frame or a record batch", data.data_type());
        return Err(PyTypeError::new_err(message));
    }
    let batch = RecordBatch::from(StructArray::from(data));
    Ok(Frame { schema: batch.schema(), batches: Batches::Whole([batch].into()) })
}

/// The rows of an object that speaks Arrow's C interface.
///
/// # Errors
/// `TypeError` for an object that does not.
pub fn frame(object: &Bound<'_, PyAny>) -> PyResult<Frame> {
    let py = object.py();
    if let Some(stream) = object.getattr_opt(intern!(py, "__arrow_c_stream__"))? {
        return of_stream(&stream.call0()?);
    }
    if let Some(array) = object.getattr_opt(intern!(py, "__arrow_c_array__"))? {
        return of_array(&array.call0()?);
    }
    let class = object.get_type();
    Err(PyTypeError::new_err(format!(
        "an object of type {} is no frame: it has neither __arrow_c_stream__ nor __arrow_c_array__",
        class.fully_qualified_name()?
    )))
}

/// An error of Arrow as an exception.
///
/// # Errors
/// The exception.
pub fn checked<T>(py: Python<'_>, result: Result<T, ArrowError>) -> PyResult<T> {
    result.map_err(seracdb::SqlError::from).python(py)
}

/// Refuses a second use of what can be read once.
pub fn consumed() -> PyErr {
    error::interface("the rows of this statement have been read: execute it again")
}
