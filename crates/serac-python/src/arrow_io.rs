//! Arrow's C interface in capsules (`__arrow_c_stream__`, `__arrow_c_array__`): rows out, frames
//! in.

use crate::ending::Inside;
use crate::error::{self, IntoPython};
use crate::rows::ResultRows;
use crate::wait;
use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, ListArray, RecordBatch, RecordBatchIterator, RecordBatchOptions,
    RecordBatchReader, StructArray, make_array,
};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{
    DataType, DurationMicrosecondType, Field, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, Schema,
    SchemaRef, TimeUnit,
};
use arrow::error::ArrowError;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use serac_connection::validated;
use seracdb::engine::ArrowScan;
use seracdb::{SqlError, wire};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;

/// An error without the zero bytes that a text of C cannot have.
fn plain(error: impl ToString) -> ArrowError {
    ArrowError::ExternalError(error.to_string().replace('\0', " ").into())
}

/// The rows of a query as a reader, for a consumer that may be any thread.
pub struct QueryReader {
    /// Those that the cursor has taken from `rows` and not given.
    first: Option<RecordBatch>,
    rows: ResultRows,
    schema: SchemaRef,
}

impl QueryReader {
    /// A reader of `first` and of the rest of `rows`.
    pub fn new(first: Option<RecordBatch>, rows: ResultRows) -> Self {
        let schema = wire::shown_schema(rows.schema());
        Self { first, rows, schema }
    }

    fn read(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let next = match self.first.take() {
            Some(first) => Some(first),
            None => {
                let next = Inside::attach(|py| {
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

/// A reader for C: it gives columns in the types that a consumer has asked for, and an error where
/// it would panic, which C does not know.
struct Exported {
    reader: Reader,
    /// The schema that was asked for; `None` for the reader's own.
    wanted: Option<SchemaRef>,
}

/// A batch of columns; of as many rows if there are none.
fn of_columns(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_new_with_options(schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(rows)))
}

fn converted(batch: &RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    // A value that the type does not have is an error, and not NULL.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = batch.columns().iter().zip(wanted.fields());
    let columns = columns.map(|(column, field)| cast_with_options(column, field.data_type(), &options));
    of_columns(wanted, columns.collect::<Result<_, _>>()?, batch.num_rows())
}

impl Iterator for Exported {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = || {
            let batch = self.reader.next()?;
            Some(match &self.wanted {
                Some(wanted) => batch.and_then(|batch| converted(&batch, wanted)).map_err(plain),
                None => batch,
            })
        };
        catch_unwind(AssertUnwindSafe(next)).unwrap_or_else(|_| Some(Err(plain("reading the rows has panicked"))))
    }
}

impl RecordBatchReader for Exported {
    fn schema(&self) -> SchemaRef {
        self.wanted.clone().unwrap_or_else(|| self.reader.schema())
    }
}

/// Whether the values of one type are the same values in another, or none of it: then converting
/// them is an error. A number with digits behind the point is no integer, nor a time a date.
fn keeps_values(own: &DataType, wanted: &DataType) -> bool {
    use DataType::*;
    let is_text = |of: &DataType| matches!(of, Utf8 | LargeUtf8 | Utf8View);
    let is_bytes = |of: &DataType| matches!(of, Binary | LargeBinary | BinaryView | FixedSizeBinary(_));
    let digits = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    match (own, wanted) {
        _ if own == wanted || (is_text(own) && is_text(wanted)) || (is_bytes(own) && is_bytes(wanted)) => true,
        (Null, _) => true,
        (Dictionary(_, values), _) => keeps_values(values, wanted),
        (_, Dictionary(_, values)) => keeps_values(own, values),
        (own, wanted) if own.is_integer() && wanted.is_integer() => true,
        (Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32, Float64) | (Float16 | Float32, Float64) => true,
        (own, Decimal128(..) | Decimal256(..)) if own.is_integer() => true,
        (
            Decimal32(_, own) | Decimal64(_, own) | Decimal128(_, own) | Decimal256(_, own),
            Decimal32(_, wanted) | Decimal64(_, wanted) | Decimal128(_, wanted) | Decimal256(_, wanted),
        ) => wanted >= own,
        (Date32, Date64 | Timestamp(_, None)) => true,
        (Timestamp(own, zone), Timestamp(wanted, other)) => {
            zone.is_some() == other.is_some() && digits(wanted) >= digits(own)
        }
        (Time32(own) | Time64(own), Time32(wanted) | Time64(wanted)) => digits(wanted) >= digits(own),
        (
            List(own) | LargeList(own) | ListView(own) | LargeListView(own) | FixedSizeList(own, _),
            List(wanted) | LargeList(wanted) | ListView(wanted) | LargeListView(wanted),
        ) => keeps_values(own.data_type(), wanted.data_type()),
        _ => false,
    }
}

/// A reader whose intervals are durations, for packages that have no intervals.
struct Durations {
    reader: Reader,
    schema: SchemaRef,
}

/// The type that has durations in the place of intervals.
fn duration_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Interval(IntervalUnit::MonthDayNano) => DataType::Duration(TimeUnit::Microsecond),
        DataType::List(element) => {
            let own = duration_type(element.data_type());
            DataType::List(Arc::new(element.as_ref().clone().with_data_type(own)))
        }
        other => other.clone(),
    }
}

/// An array with durations in the place of intervals: a day has 24 hours, and a month no length.
fn with_durations(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let micros = |interval: IntervalMonthDayNano| {
                if interval.months != 0 {
                    let message = "an interval of months has no length: cast it to text";
                    return Err(ArrowError::InvalidArgumentError(message.into()));
                }
                let days = i64::from(interval.days).checked_mul(DAY_MICROS);
                let micros = days.and_then(|days| days.checked_add(interval.nanoseconds / 1_000));
                let too_long = || ArrowError::ArithmeticOverflow("the interval is too long for a duration".into());
                micros.ok_or_else(too_long)
            };
            let intervals = array.as_primitive::<IntervalMonthDayNanoType>();
            Ok(Arc::new(intervals.try_unary::<_, DurationMicrosecondType, _>(micros)?))
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let DataType::List(element) = duration_type(array.data_type()) else { unreachable!("a list stays one") };
            let values = with_durations(lists.values())?;
            Ok(Arc::new(ListArray::try_new(element, lists.offsets().clone(), values, lists.nulls().cloned())?))
        }
        _ => Ok(array.clone()),
    }
}

impl Durations {
    fn new(reader: Reader) -> Self {
        let own = reader.schema();
        let field = |field: &Arc<Field>| field.as_ref().clone().with_data_type(duration_type(field.data_type()));
        let fields: Vec<Field> = own.fields().iter().map(field).collect();
        Self { reader, schema: Arc::new(Schema::new_with_metadata(fields, own.metadata().clone())) }
    }
}

impl Iterator for Durations {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let convert = |batch: RecordBatch| {
            let columns = batch.columns().iter().map(with_durations).collect::<Result<_, _>>()?;
            of_columns(&self.schema, columns, batch.num_rows())
        };
        self.reader.next().map(|batch| batch.and_then(convert))
    }
}

impl RecordBatchReader for Durations {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// The schema behind a capsule.
fn schema_in(capsule: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(SCHEMA))?;
    // SAFETY: a capsule of this name holds this struct, which is only looked at, and the capsule
    // lives until the end of the call.
    Schema::try_from(unsafe { pointer.cast::<FFI_ArrowSchema>().as_ref() })
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The columns that an object with `__arrow_c_schema__` tells.
///
/// # Errors
/// If it tells none.
pub fn schema_of(object: &Bound<'_, PyAny>) -> PyResult<Schema> {
    schema_in(&object.call_method0(intern!(object.py(), "__arrow_c_schema__"))?)
}

/// The schema that a consumer asks for, if it is one of the same columns in other types. A wish
/// that cannot be fulfilled is ignored, as the interface wants it.
fn wished(requested: Option<&Bound<'_, PyAny>>, own: &Schema) -> PyResult<Option<SchemaRef>> {
    let Some(requested) = requested.filter(|requested| !requested.is_none()) else { return Ok(None) };
    let requested = schema_in(requested)?;
    let can = |(own, wanted): (&Arc<Field>, &Arc<Field>)| {
        let (from, to) = (own.data_type(), wanted.data_type());
        own.name() == wanted.name() && keeps_values(from, to) && can_cast_types(from, to)
    };
    let fits = own.fields().len() == requested.fields().len() && own.fields().iter().zip(requested.fields()).all(can);
    Ok((fits && own.fields() != requested.fields()).then(|| Arc::new(requested)))
}

/// Any reader.
pub type Reader = Box<dyn RecordBatchReader + Send>;

fn exported(py: Python<'_>, reader: Exported) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
}

/// A capsule of a stream.
///
/// # Errors
/// If `requested` is no capsule of a schema.
pub fn capsule<'py>(
    py: Python<'py>,
    reader: Reader,
    requested: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let wanted = wished(requested, &reader.schema())?;
    exported(py, Exported { reader, wanted })
}

/// A capsule of a stream, with durations in the place of intervals.
///
/// # Errors
/// If Python has no memory.
pub fn capsule_of_durations(py: Python<'_>, reader: Reader) -> PyResult<Bound<'_, PyCapsule>> {
    exported(py, Exported { reader: Box::new(Durations::new(reader)), wanted: None })
}

/// A capsule of a schema.
///
/// # Errors
/// If Arrow's C interface has no such type.
pub fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(|error| PyValueError::new_err(error.to_string()))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// A batch that is lent to Python code.
#[pyclass(frozen, module = "seracdb._seracdb")]
pub struct ArrowBatch(RecordBatch);

impl ArrowBatch {
    /// The batch.
    pub fn new(batch: RecordBatch) -> Self {
        Self(batch)
    }
}

#[pymethods]
impl ArrowBatch {
    /// The columns as an array of rows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A wish that cannot be fulfilled is ignored, as the interface wants it.
        let _ = requested_schema;
        let rows = StructArray::from(self.0.clone()).into_data();
        let (array, schema) = to_ffi(&rows).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok((PyCapsule::new_with_value(py, schema, SCHEMA)?, PyCapsule::new_with_value(py, array, ARRAY)?))
    }
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
            Self::Stream(reader) => {
                let next = imported(|| reader.next().transpose()).transpose();
                next.map(|batch| batch.and_then(validated))
            }
            Self::Whole(batches) => batches.pop_front().map(Ok),
        }
    }
}

/// Imports from Arrow's C interface. Structs that cannot be are an error, where `arrow` panics.
fn imported<T>(import: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    catch_unwind(AssertUnwindSafe(import)).unwrap_or_else(|_| {
        let message = "the rows are no valid Arrow: their structs do not fit each other";
        let error = SqlError::new(sqlstate::INVALID_BINARY_REPRESENTATION, message);
        Err(ArrowError::ExternalError(Box::new(error)))
    })
}

fn no_import(error: ArrowError) -> PyErr {
    PyValueError::new_err(SqlError::from(error).message)
}

fn of_stream(capsule: &Bound<'_, PyAny>) -> PyResult<Frame> {
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(STREAM))?;
    // SAFETY: a capsule of this name holds this struct. It is moved out, and the capsule left with
    // an empty one, which has nothing to release.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) };
    let reader = imported(|| ArrowArrayStreamReader::try_new(stream)).map_err(no_import)?;
    Ok(Frame { schema: reader.schema(), batches: Batches::Stream(reader) })
}

/// The array behind a pair of capsules, in which texts are UTF-8, and offsets and keys stay within
/// their columns.
fn array_in(capsules: &Bound<'_, PyAny>) -> PyResult<ArrayData> {
    let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) = capsules.cast::<PyTuple>()?.extract()?;
    let schema = schema.cast::<PyCapsule>()?.pointer_checked(Some(SCHEMA))?;
    let array = array.cast::<PyCapsule>()?.pointer_checked(Some(ARRAY))?;
    // SAFETY: a capsule of this name holds this struct. It is moved out, and the capsule left with
    // an empty one, which has nothing to release.
    let array = unsafe { FFI_ArrowArray::from_raw(array.cast().as_ptr()) };
    if array.is_released() {
        return Err(PyValueError::new_err("the array has been taken out of its capsule already"));
    }
    imported(|| {
        // SAFETY: a capsule of this name holds this struct, which is only looked at; the array is
        // of this schema, as the interface promises.
        let mut data = unsafe { from_ffi(array, schema.cast::<FFI_ArrowSchema>().as_ref()) }?;
        data.align_buffers();
        data.validate_full()?;
        Ok(data)
    })
    .map_err(no_import)
}

/// A column that an object with `__arrow_c_array__` gives.
///
/// # Errors
/// If it gives none.
pub fn column(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let capsules = object.call_method0(intern!(object.py(), "__arrow_c_array__"))?;
    Ok(make_array(array_in(&capsules)?))
}

fn of_array(capsules: &Bound<'_, PyAny>) -> PyResult<Frame> {
    let data = array_in(capsules)?;
    if !matches!(data.data_type(), DataType::Struct(_)) {
        let message = format!("an array of {} has no columns: give a frame or a record batch", data.data_type());
        return Err(PyTypeError::new_err(message));
    }
    let rows = StructArray::from(data);
    if rows.null_count() > 0 {
        return Err(PyValueError::new_err("a row of a frame is no NULL: its values may be"));
    }
    let batch = RecordBatch::from(rows);
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
    result.map_err(SqlError::from).python(py)
}

/// Refuses a second use of what can be read once.
pub fn consumed() -> PyErr {
    error::interface("the rows of this statement have been read: execute it again")
}
