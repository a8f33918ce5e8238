//! The class `Cursor`: a statement's result, row by row or as Arrow.

use crate::arrow_io::{self, QueryReader, Reader};
use crate::batches::Batches;
use crate::compiled::Compiled;
use crate::connection::Connection;
use crate::error::{self, IntoPython};
use crate::execution::{self, Execution};
use crate::objects::{self, BatchRows};
use crate::python_types::PythonTypes;
use crate::rows::ResultRows;
use crate::session::Core;
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use parking_lot::Mutex;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyTuple};
use serac_connection::{Failure, Outcome};
use seracdb::{ColumnType, Prepared, Rows, wire};
use std::sync::Arc;

/// What PostgreSQL adds to the sizes in a type's modifier.
const MODIFIER_HEADER: i32 = 4;

/// A result of which rows are left.
enum ResultSet {
    /// Rows of the point path.
    Point { rows: Rows, types: Vec<ColumnType>, prepared: Box<Prepared>, at: usize },
    /// Rows of a query.
    Query { rows: ResultRows, batch: Option<Batch> },
}

/// The batch that is being read.
struct Batch {
    whole: RecordBatch,
    rows: BatchRows,
    at: usize,
}

impl ResultSet {
    fn next<'py>(&mut self, py: Python<'py>, types: &PythonTypes) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match self {
            Self::Point { rows, types: column_types, at, .. } => {
                if *at == rows.len() {
                    return Ok(None);
                }
                let row = point_row(py, types, rows, column_types, *at)?;
                *at += 1;
                Ok(Some(row))
            }
            Self::Query { rows, batch } => loop {
                if let Some(batch) = batch
                    && batch.at < batch.rows.len()
                {
                    let row = batch.rows.row(py, types, batch.at)?;
                    batch.at += 1;
                    return Ok(Some(row));
                }
                match rows.next(py)? {
                    Some(whole) => *batch = Some(Batch { rows: BatchRows::new(py, &whole)?, whole, at: 0 }),
                    None => {
                        *batch = None;
                        return Ok(None);
                    }
                }
            },
        }
    }
}

/// A row of the point path.
///
/// # Errors
/// If a value has no object in Python.
pub fn point_row<'py>(
    py: Python<'py>,
    types: &PythonTypes,
    rows: &Rows,
    column_types: &[ColumnType],
    row: usize,
) -> PyResult<Bound<'py, PyTuple>> {
    let values = rows.row(row).zip(column_types);
    let values = values.map(|(value, column_type)| objects::object(py, types, value, *column_type));
    PyTuple::new(py, values.collect::<PyResult<smallvec::SmallVec<[_; 8]>>>()?)
}

/// Whether the result is there.
enum Held {
    /// The last statement gave no rows, or none was run.
    Nothing,
    /// A thread reads it.
    InUse,
    /// It is there.
    Result(Box<ResultSet>),
    /// It was handed out as Arrow.
    HandedOut,
}

/// Locked for short moments alone, in which no code of Python runs: a thread that waits for this
/// lock has Python's.
struct State {
    held: Held,
    /// The number of the statement: a thread that has read gives the result back only if no other
    /// statement was run meanwhile.
    statement: u64,
    description: Option<Py<PyAny>>,
    rowcount: i64,
    rows_read: i64,
    arraysize: usize,
    /// Where the error of the query stands, whose rows may have been handed out. Not the rows: the
    /// cursor must not keep them from ending when nobody else has them.
    failure: Option<Failure>,
    is_closed: bool,
}

/// A cursor, without what Python code does in `seracdb/_cursor.py`.
#[pyclass(frozen, subclass, weakref, module = "seracdb._seracdb")]
pub struct Cursor {
    connection: Py<Connection>,
    core: Arc<Core>,
    state: Mutex<State>,
}

/// The 7-tuples of DB-API.
fn description(py: Python<'_>, schema: &Schema) -> PyResult<Py<PyAny>> {
    let columns = schema.fields().iter().map(|field| {
        let column = wire::field_type(field);
        let size = (column.size >= 0).then_some(column.size);
        let body = column.modifier - MODIFIER_HEADER;
        let is_number = column.oid == wire::NUMERIC && body >= 0;
        let (precision, scale) = (is_number.then_some(body >> 16), is_number.then_some(body & 0xffff));
        (field.name(), column.oid, None::<i32>, size, precision, scale, field.is_nullable()).into_pyobject(py)
    });
    let columns = columns.collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, columns)?.into_any().unbind())
}

impl Cursor {
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.core.check(py)?;
        if self.state.lock().is_closed { Err(error::interface("the cursor is closed")) } else { Ok(()) }
    }

    /// Forgets the last result.
    fn reset(&self, py: Python<'_>) -> PyResult<u64> {
        self.check(py)?;
        let mut state = self.state.lock();
        let old = (std::mem::replace(&mut state.held, Held::Nothing), state.description.take());
        state.failure = None;
        state.rowcount = -1;
        state.rows_read = 0;
        state.statement += 1;
        let statement = state.statement;
        // Objects of Python may run code of the user's when they go.
        drop(state);
        drop(old);
        Ok(statement)
    }

    /// Takes over the result of the statement.
    fn take_over(&self, py: Python<'_>, statement: u64, outcome: Outcome) -> PyResult<()> {
        let (held, description, rowcount, failure) = match outcome {
            Outcome::Changed(rows) => (Held::Nothing, None, rows.map_or(-1, count), None),
            Outcome::Rows(rows) => {
                let rows = ResultRows::new(&self.core, rows);
                let description = description(py, rows.schema())?;
                let failure = Some(rows.failure().clone());
                // The rows that are known to be all.
                let known = rows.known_count().map_or(-1, count);
                (Held::Result(Box::new(ResultSet::Query { rows, batch: None })), Some(description), known, failure)
            }
        };
        let mut state = self.state.lock();
        if state.statement == statement {
            state.held = held;
            state.description = description;
            state.rowcount = rowcount;
            state.failure = failure;
        }
        Ok(())
    }

    fn run_compiled(&self, py: Python<'_>, compiled: &Arc<Compiled>, parameters: &Bound<'_, PyAny>) -> PyResult<()> {
        let statement = self.reset(py)?;
        let given = compiled.bind(parameters)?;
        let mut rows = Rows::default();
        match execution::run(py, &self.core, compiled, &given, &mut rows)? {
            Execution::Other(outcome) => self.take_over(py, statement, outcome),
            Execution::Point(affected) => {
                let prepared = compiled.prepared.lock().clone();
                let description = prepared.schema().map(|schema| description(py, schema)).transpose()?;
                let mut state = self.state.lock();
                if state.statement == statement {
                    state.rowcount = count(affected);
                    state.description = description;
                    if prepared.schema().is_some() {
                        let types = prepared.column_types().to_vec();
                        let prepared = Box::new(prepared);
                        state.held = Held::Result(Box::new(ResultSet::Point { rows, types, prepared, at: 0 }));
                    }
                }
                Ok(())
            }
        }
    }

    /// Reads from the result. It is out of the cursor meanwhile, so that code which Python runs in
    /// between, or another thread, cannot wait for it for ever.
    fn read<T>(&self, py: Python<'_>, read: impl FnOnce(&mut ResultSet, &PythonTypes) -> PyResult<T>) -> PyResult<T> {
        self.check(py)?;
        let types = PythonTypes::get(py)?;
        let mut state = self.state.lock();
        let mut result = match std::mem::replace(&mut state.held, Held::InUse) {
            Held::Result(result) => result,
            other => {
                let is_in_use = matches!(other, Held::InUse);
                let was_handed_out = matches!(other, Held::HandedOut) || state.description.is_some();
                state.held = other;
                // Making an exception runs Python code, and another thread may come here meanwhile.
                drop(state);
                return Err(if is_in_use {
                    error::interface("another thread reads from the cursor")
                } else if was_handed_out {
                    arrow_io::consumed()
                } else {
                    error::programming(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "the last statement gave no rows")
                });
            }
        };
        let statement = state.statement;
        drop(state);
        let read = read(&mut result, types);
        let mut state = self.state.lock();
        let superfluous = if state.statement == statement && matches!(state.held, Held::InUse) {
            state.held = Held::Result(result);
            None
        } else {
            Some(result)
        };
        drop(state);
        drop(superfluous);
        read
    }

    /// Notes rows that were read; at the end of a query, how many there were.
    fn note_read(&self, rows: usize, is_end: bool) {
        let mut state = self.state.lock();
        state.rows_read += count(rows as u64);
        if is_end && state.rowcount < 0 {
            state.rowcount = state.rows_read;
        }
    }

    fn fetch<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let is_end = self.read(py, |result, types| {
            while list.len() < most {
                match result.next(py, types)? {
                    Some(row) => list.append(row)?,
                    None => return Ok(true),
                }
            }
            Ok(false)
        })?;
        self.note_read(list.len(), is_end);
        Ok(list)
    }
}

impl Cursor {
    /// Hands the rows that are left out: the cursor gives them no more.
    fn hand_out<T>(&self, py: Python<'_>, take: impl FnOnce(&mut ResultSet) -> PyResult<T>) -> PyResult<T> {
        let taken = self.read(py, |result, _| take(result))?;
        let mut state = self.state.lock();
        let old = std::mem::replace(&mut state.held, Held::HandedOut);
        drop(state);
        drop(old);
        Ok(taken)
    }

    /// The rows that are left as a stream of Arrow.
    fn stream<'py>(
        &self,
        py: Python<'py>,
        capsule: impl FnOnce(Reader) -> PyResult<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.hand_out(py, |result| match result {
            ResultSet::Point { rows, prepared, at, .. } => {
                let batch = prepared.batch(rows).python(py)?;
                let rest = batch.slice(*at, batch.num_rows() - *at);
                capsule(Box::new(arrow_io::checked(py, arrow_io::whole(rest))?))
            }
            ResultSet::Query { rows, batch } => {
                let rest = batch.take().filter(|batch| batch.at < batch.rows.len());
                let rest = rest.map(|batch| batch.whole.slice(batch.at, batch.rows.len() - batch.at));
                capsule(Box::new(QueryReader::new(rest, rows.clone())))
            }
        })
    }
}

fn count(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

#[pymethods]
impl Cursor {
    #[new]
    fn new(connection: &Bound<'_, Connection>) -> PyResult<Self> {
        let core = connection.get().core().clone();
        core.check(connection.py())?;
        let state = State {
            held: Held::Nothing,
            statement: 0,
            description: None,
            rowcount: -1,
            rows_read: 0,
            arraysize: 1,
            failure: None,
            is_closed: false,
        };
        Ok(Self { connection: connection.clone().unbind(), core, state: Mutex::new(state) })
    }

    /// The connection of the cursor.
    #[getter]
    fn connection(&self, py: Python<'_>) -> Py<Connection> {
        self.connection.clone_ref(py)
    }

    /// The columns of the result: (name, type code, None, bytes or None, precision, scale, may be
    /// NULL); None for a statement without rows.
    #[getter]
    fn description(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state.lock().description.as_ref().map(|description| description.clone_ref(py))
    }

    /// Rows that the last statement found or changed; -1 while that is not known.
    #[getter]
    fn rowcount(&self) -> i64 {
        self.state.lock().rowcount
    }

    /// Rows read so far; None without a result.
    #[getter]
    fn rownumber(&self) -> Option<i64> {
        let state = self.state.lock();
        state.description.is_some().then_some(state.rows_read)
    }

    /// Rows that fetchmany() gives.
    #[getter]
    fn get_arraysize(&self) -> usize {
        self.state.lock().arraysize
    }

    #[setter]
    fn set_arraysize(&self, rows: usize) {
        self.state.lock().arraysize = rows;
    }

    /// Runs a statement, without parameters a script of several.
    #[pyo3(signature = (operation, parameters=None))]
    fn _execute(&self, py: Python<'_>, operation: &str, parameters: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(parameters) = parameters.filter(|parameters| !parameters.is_none()) else {
            let statement = self.reset(py)?;
            let outcome = execution::run_text(py, &self.core, operation)?;
            return self.take_over(py, statement, outcome);
        };
        self.check(py)?;
        match self.connection.get().statements().get(py, &self.core, operation)? {
            Some(compiled) => self.run_compiled(py, &compiled, parameters),
            None => self.reset(py).map(drop),
        }
    }

    /// Runs a statement for each parameters of a sequence, as a whole or not at all.
    fn _execute_many(&self, py: Python<'_>, operation: &str, parameters: &Bound<'_, PyAny>) -> PyResult<()> {
        let statement = self.reset(py)?;
        let Some(compiled) = self.connection.get().statements().get(py, &self.core, operation)? else { return Ok(()) };
        let mut rows = Rows::default();
        let mut changed = Some(0);
        for parameters in parameters.try_iter()? {
            let given = compiled.bind(&parameters?)?;
            let affected = match execution::run(py, &self.core, &compiled, &given, &mut rows)? {
                Execution::Point(affected) => Some(affected),
                Execution::Other(Outcome::Changed(affected)) => affected,
                Execution::Other(Outcome::Rows(rows)) => {
                    // DB-API gives no results of many statements.
                    let (rows, mut found) = (ResultRows::new(&self.core, rows), 0);
                    while let Some(batch) = rows.next(py)? {
                        found += batch.num_rows() as u64;
                    }
                    Some(found)
                }
            };
            changed = changed.zip(affected).map(|(changed, affected): (u64, u64)| changed + affected);
        }
        self.take_over(py, statement, Outcome::Changed(changed))
    }

    /// The next row; None after the last.
    fn fetchone<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let row = self.read(py, |result, types| result.next(py, types))?;
        self.note_read(usize::from(row.is_some()), row.is_none());
        Ok(row)
    }

    /// The next `size` rows, by default `arraysize`.
    #[pyo3(signature = (size=None))]
    fn fetchmany<'py>(&self, py: Python<'py>, size: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let size = size.unwrap_or_else(|| self.state.lock().arraysize);
        self.fetch(py, size)
    }

    /// All rows that are left.
    fn fetchall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.fetch(py, usize::MAX)
    }

    fn __iter__(cursor: Py<Self>) -> Py<Self> {
        cursor
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.fetchone(py)
    }

    /// The rows that are left as a stream of Arrow. They come as the consumer asks for them, and
    /// the cursor gives them no more.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.stream(py, |reader| arrow_io::capsule(py, reader, requested_schema))
    }

    /// The same, with durations in the place of intervals.
    fn _stream_of_durations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        self.stream(py, |reader| arrow_io::capsule_of_durations(py, reader))
    }

    /// The columns of the rows as a schema of Arrow.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        self.read(py, |result, _| {
            let schema = match result {
                ResultSet::Point { prepared, .. } => {
                    prepared.schema().cloned().unwrap_or_else(|| Schema::empty().into())
                }
                ResultSet::Query { rows, .. } => rows.schema().clone(),
            };
            arrow_io::schema_capsule(py, &wire::shown_schema(&schema))
        })
    }

    /// The rows that are left, which can then be read again and again. The cursor gives them no
    /// more.
    fn _batches(&self, py: Python<'_>) -> PyResult<Batches> {
        self.hand_out(py, |result| match result {
            ResultSet::Point { rows, prepared, at, .. } => {
                let batch = prepared.batch(rows).python(py)?;
                let rest = batch.slice(*at, batch.num_rows() - *at);
                Ok(Batches::new(rest.schema(), vec![rest]))
            }
            ResultSet::Query { rows, batch } => {
                let rest = batch.take().filter(|batch| batch.at < batch.rows.len());
                let rest = rest.map(|batch| batch.whole.slice(batch.at, batch.rows.len() - batch.at));
                let mut batches: Vec<RecordBatch> = rest.into_iter().collect();
                while let Some(batch) = rows.next(py)? {
                    batches.push(batch);
                }
                Ok(Batches::new(rows.schema().clone(), batches))
            }
        })
    }

    /// Raises the error of the query whose rows were handed out, if it has failed.
    fn _raise_failure(&self, py: Python<'_>) -> PyResult<()> {
        let failure = self.state.lock().failure.clone();
        match failure.and_then(|failure| failure.lock().clone()) {
            Some(failure) => Err(failure).python(py),
            None => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)
    }

    /// Frees the result. The cursor cannot be used any more.
    fn close(&self) -> PyResult<()> {
        let mut state = self.state.lock();
        state.is_closed = true;
        let old = std::mem::replace(&mut state.held, Held::Nothing);
        state.statement += 1;
        drop(state);
        drop(old);
        Ok(())
    }

    /// Whether the cursor or its connection is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.core.session().is_closed() || self.state.lock().is_closed
    }
}
