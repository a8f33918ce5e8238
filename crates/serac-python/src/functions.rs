//! Python functions in SQL: of rows, of groups, and in FROM.
//!
//! A function is called from the threads of queries, with Python's lock, once for each batch. Its
//! object stands in a dict of the connection ([`Functions`]), which Python's collector sees: a
//! function may refer to its connection.

use crate::arrow_io::{self, ArrowBatch};
use crate::callback;
use crate::frames::Rows;
use crate::objects::BatchRows;
use crate::python_types::PythonTypes;
use crate::values::{self, Failure};
use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyTuple};
use serac_connection::SessionId;
use seracdb::{AggregateBody, FrameRows, GroupState, ScalarBody, ScalarValue, SqlError, Still, TableBody, wire};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rows between two looks at whether the statement still runs.
const BETWEEN_CHECKS: usize = 64;
/// Rows of a batch that an iterator fills, at most. The first batch has one row, and each next one
/// twice as many: a statement that wants few rows has no more computed than twice these.
const BATCH_ROWS: usize = 1_024;
/// The time after which a batch is given that is not full.
const PATIENCE: Duration = Duration::from_millis(20);

/// Whether a statement still runs.
type Check<'c> = &'c dyn Fn() -> Result<(), SqlError>;

/// The objects of a connection's functions, by numbers.
pub struct Functions {
    session: SessionId,
    objects: Py<PyDict>,
    last: AtomicU64,
    /// Those of functions that are no more. A plan's last use of a function may end where a lock is
    /// held, so it does not wait for Python's: the next who has that takes the objects off.
    forgotten: Mutex<Vec<u64>>,
}

impl Functions {
    /// No functions.
    pub fn new(py: Python<'_>, session: SessionId) -> Arc<Self> {
        let objects = PyDict::new(py).unbind();
        Arc::new(Self { session, objects, last: AtomicU64::new(0), forgotten: Mutex::default() })
    }

    /// The objects.
    pub fn objects(&self) -> &Py<PyDict> {
        &self.objects
    }

    /// Takes the objects off whose functions are no more.
    pub fn forget(&self, py: Python<'_>) {
        let forgotten = std::mem::take(&mut *self.forgotten.lock());
        for number in forgotten {
            // Where the dict has been cleared, it is gone already.
            let _ = self.objects.bind(py).del_item(number);
        }
    }

    /// Keeps an object for as long as its function is there.
    ///
    /// # Errors
    /// Python's, without memory.
    pub fn keep(self: &Arc<Self>, name: &str, object: &Bound<'_, PyAny>, is_arrow: bool) -> PyResult<Code> {
        self.forget(object.py());
        // Relaxed: nothing but the number itself is shared.
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        self.objects.bind(object.py()).set_item(number, object)?;
        Ok(Code { functions: self.clone(), number, name: name.to_owned(), is_arrow })
    }
}

/// The code of a function.
pub struct Code {
    functions: Arc<Functions>,
    number: u64,
    name: String,
    /// Whether it takes and gives columns of Arrow, and not the values of single rows.
    is_arrow: bool,
}

impl Drop for Code {
    fn drop(&mut self) {
        self.functions.forgotten.lock().push(self.number);
    }
}

impl Code {
    fn what(&self) -> String {
        format!("function {}", self.name)
    }

    /// Calls the object of the function, with Python's lock.
    fn call<T>(&self, call: impl FnOnce(&Bound<'_, PyAny>, &PythonTypes) -> Result<T, Failure>) -> Result<T, SqlError> {
        let called = callback::call(self.functions.session, |py| {
            let called = || {
                let object = self.functions.objects.bind(py).get_item(self.number)?;
                let is_closed = || SqlError::new(sqlstate::CONNECTION_FAILURE, "the connection is closed");
                call(&object.ok_or_else(is_closed)?, PythonTypes::get(py)?)
            };
            called().map_err(|failure| match failure {
                Failure::Wrong(error) => error,
                Failure::Exception(exception) => callback::told(py, &exception, &self.what()),
            })
        });
        called.map_err(|error| error.named(&self.name))
    }
}

/// Columns of arguments as a batch.
fn batch_of(arguments: &[ArrayRef], rows: usize) -> Result<RecordBatch, SqlError> {
    let fields = arguments.iter().enumerate();
    let fields = fields.map(|(at, column)| Field::new(format!("{}", at + 1), column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, arguments.to_vec(), &options)?)
}

/// Columns of arguments as pyarrow's arrays, in a tuple.
fn columns_of<'py>(py: Python<'py>, types: &PythonTypes, batch: RecordBatch) -> Result<Bound<'py, PyTuple>, Failure> {
    let batch = Bound::new(py, ArrowBatch::new(wire::shown(batch)?))?;
    Ok(types.arrow_columns.bind(py).call1((batch,))?.cast_into::<PyTuple>().map_err(PyErr::from)?)
}

impl ScalarBody for Code {
    fn call(
        &self,
        arguments: &[ArrayRef],
        rows: usize,
        returns: &DataType,
        check: Check<'_>,
    ) -> Result<ArrayRef, SqlError> {
        let batch = batch_of(arguments, rows)?;
        Code::call(self, |function, types| {
            let py = function.py();
            if self.is_arrow {
                let result = function.call1(columns_of(py, types, batch)?)?;
                let result = types.arrow_array.bind(py).call1((result,))?;
                return Ok(arrow_io::column(&result)?);
            }
            let arguments = BatchRows::new(py, &batch)?;
            let mut objects = Vec::with_capacity(rows);
            for row in 0..rows {
                if row % BETWEEN_CHECKS == 0 {
                    check()?;
                }
                objects.push(function.call1(arguments.row(py, types, row)?)?);
            }
            values::column(types, &objects, returns, &self.what())
        })
    }
}

/// The code of an aggregate: a class whose objects are the states of groups.
pub struct Aggregate {
    code: Code,
    merges: bool,
}

impl Aggregate {
    /// The aggregate of a class.
    pub fn new(code: Code, merges: bool) -> Self {
        Self { code, merges }
    }
}

/// The object of a state.
fn object_of<'py>(py: Python<'py>, state: &GroupState) -> Result<Bound<'py, PyAny>, Failure> {
    match state.downcast_ref::<Py<PyAny>>() {
        Some(object) => Ok(object.bind(py).clone()),
        None => Err(SqlError::new(sqlstate::INTERNAL_ERROR, "the state of an aggregate is no object").into()),
    }
}

/// The object of a group, a new one if it has none.
fn state_of<'py>(class: &Bound<'py, PyAny>, state: &mut Option<GroupState>) -> Result<Bound<'py, PyAny>, Failure> {
    if let Some(state) = state {
        return object_of(class.py(), state);
    }
    let object = class.call0()?;
    *state = Some(Box::new(object.clone().unbind()));
    Ok(object)
}

impl AggregateBody for Aggregate {
    fn merges(&self) -> bool {
        self.merges
    }

    fn step(
        &self,
        states: &mut [Option<GroupState>],
        groups: &[usize],
        arguments: &[ArrayRef],
        check: Check<'_>,
    ) -> Result<(), SqlError> {
        if self.code.is_arrow {
            let mut of_groups: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
            for (row, group) in groups.iter().enumerate() {
                of_groups.entry(*group).or_default().push(row as u32);
            }
            return self.code.call(|class, types| {
                for (group, rows) in of_groups {
                    check()?;
                    let count = rows.len();
                    let columns = match count == groups.len() {
                        true => arguments.to_vec(),
                        false => {
                            let rows = UInt32Array::from(rows);
                            let own = arguments.iter().map(|column| Ok(take(column, &rows, None)?));
                            own.collect::<Result<_, SqlError>>()?
                        }
                    };
                    let columns = columns_of(class.py(), types, batch_of(&columns, count)?)?;
                    state_of(class, &mut states[group])?.call_method1(intern!(class.py(), "step"), columns)?;
                }
                Ok(())
            });
        }
        let batch = batch_of(arguments, groups.len())?;
        self.code.call(|class, types| {
            let py = class.py();
            let arguments = BatchRows::new(py, &batch)?;
            for (row, group) in groups.iter().enumerate() {
                if row % BETWEEN_CHECKS == 0 {
                    check()?;
                }
                let arguments = arguments.row(py, types, row)?;
                state_of(class, &mut states[*group])?.call_method1(intern!(py, "step"), arguments)?;
            }
            Ok(())
        })
    }

    fn merge(
        &self,
        states: &mut [Option<GroupState>],
        groups: &[usize],
        others: Vec<Option<GroupState>>,
        check: Check<'_>,
    ) -> Result<(), SqlError> {
        self.code.call(|class, _| {
            for (number, (other, group)) in others.into_iter().zip(groups).enumerate() {
                if number % BETWEEN_CHECKS == 0 {
                    check()?;
                }
                match (&states[*group], other) {
                    (_, None) => {}
                    (None, other) => states[*group] = other,
                    (Some(state), Some(other)) => {
                        let other = object_of(class.py(), &other)?;
                        object_of(class.py(), state)?.call_method1(intern!(class.py(), "merge"), (other,))?;
                    }
                }
            }
            Ok(())
        })
    }

    fn finish(
        &self,
        states: &mut [Option<GroupState>],
        returns: &DataType,
        check: Check<'_>,
    ) -> Result<ArrayRef, SqlError> {
        self.code.call(|class, types| {
            let mut objects = Vec::with_capacity(states.len());
            for (number, state) in states.iter_mut().enumerate() {
                if number % BETWEEN_CHECKS == 0 {
                    check()?;
                }
                objects.push(state_of(class, state)?.call_method0(intern!(class.py(), "finish"))?);
            }
            values::column(types, &objects, returns, &format!("aggregate {}", self.code.name))
        })
    }
}

/// The code of a function in FROM.
pub struct Table(Arc<Code>);

impl Table {
    /// The rows that a function gives.
    pub fn new(code: Code) -> Self {
        Self(Arc::new(code))
    }
}

impl TableBody for Table {
    fn rows(&self, arguments: &[ScalarValue], columns: &SchemaRef, still: &Still) -> Result<FrameRows, SqlError> {
        let arguments = arguments.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>, _>>()?;
        let batch = batch_of(&arguments, 1)?;
        self.0.call(|function, types| {
            let py = function.py();
            let arguments = BatchRows::new(py, &batch)?.row(py, types, 0)?;
            let result = function.call1(arguments)?;
            let lent = types.lent_frame.bind(py).call1((&self.0.name, &result))?;
            if !lent.is_none() {
                let frame = arrow_io::frame(&lent.call_method0("take")?)?;
                let session = self.0.functions.session;
                return Ok(Box::new(Rows::new(session, self.0.what(), &self.0.name, frame.batches)) as FrameRows);
            }
            let (code, rows) = (self.0.clone(), Some(result.try_iter()?.unbind()));
            let rows = RowsOf { code, rows, columns: columns.clone(), most: 1, still: still.clone() };
            Ok(Box::new(rows) as FrameRows)
        })
    }
}

/// The rows that a function gives one by one.
struct RowsOf {
    code: Arc<Code>,
    /// The iterator; `None` behind the end.
    rows: Option<Py<PyIterator>>,
    columns: SchemaRef,
    /// Rows of the next batch, at most.
    most: usize,
    still: Still,
}

impl RowsOf {
    fn batch(&self, rows: &Py<PyIterator>) -> Result<(RecordBatch, bool), SqlError> {
        let names: Vec<&str> = self.columns.fields().iter().map(|field| field.name().as_str()).collect();
        let what = self.code.what();
        self.code.call(|function, types| {
            let mut columns: Vec<Vec<Bound<'_, PyAny>>> = names.iter().map(|_| Vec::new()).collect();
            let (mut count, mut is_end, began) = (0, true, Instant::now());
            for row in rows.bind(function.py()).clone() {
                (self.still)()?;
                let fields = values::fields(&row?, &names, &what)?;
                columns.iter_mut().zip(fields).for_each(|(column, field)| column.push(field));
                count += 1;
                if count == self.most || began.elapsed() > PATIENCE {
                    is_end = false;
                    break;
                }
            }
            let arrays = columns.iter().zip(self.columns.fields());
            let arrays = arrays.map(|(objects, field)| values::column(types, objects, field.data_type(), &what));
            Ok((batch_of(&arrays.collect::<Result<Vec<_>, _>>()?, count)?, is_end))
        })
    }
}

impl Iterator for RowsOf {
    type Item = Result<RecordBatch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows = self.rows.as_ref()?;
        let batch = self.batch(rows);
        if !matches!(&batch, Ok((_, false))) {
            self.rows = None;
        }
        self.most = BATCH_ROWS.min(2 * self.most);
        Some(batch.map(|(batch, _)| batch))
    }
}
