//! The class `Statement`: a prepared statement, called as a function.

use crate::compiled::Compiled;
use crate::cursor::point_row;
use crate::error;
use crate::execution::{self, Execution};
use crate::objects::BatchRows;
use crate::python_types::PythonTypes;
use crate::rows::ResultRows;
use crate::session::Core;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple};
use serac_connection::Outcome;
use seracdb::{ColumnType, Rows};
use smallvec::SmallVec;
use std::sync::Arc;

/// A prepared statement. On keys it runs in the calling thread, without planning.
#[pyclass(frozen, weakref, module = "seracdb")]
pub struct Statement {
    core: Arc<Core>,
    compiled: Arc<Compiled>,
    /// The memory of the last result of the point path, while no thread uses it.
    rows: Mutex<Rows>,
}

/// The result of a statement, as objects.
enum Given<'py> {
    Changed(u64),
    Rows(Bound<'py, PyList>),
}

impl Statement {
    /// Prepares a statement.
    ///
    /// # Errors
    /// If the text is not one statement.
    pub fn new(py: Python<'_>, core: &Arc<Core>, text: &str) -> PyResult<Self> {
        let compiled = Compiled::new(py, core, text)?;
        let none = || error::programming(sqlstate::SYNTAX_ERROR, "there is no statement to prepare");
        Ok(Self { core: core.clone(), compiled: compiled.ok_or_else(none)?, rows: Mutex::default() })
    }

    fn run<'py>(
        &self,
        py: Python<'py>,
        in_order: &Bound<'py, PyTuple>,
        by_names: Option<&Bound<'py, PyDict>>,
        most: usize,
    ) -> PyResult<Given<'py>> {
        let given = self.compiled.bind_call(in_order, by_names)?;
        let mut rows = std::mem::take(&mut *self.rows.lock());
        let result = match execution::run(py, &self.core, &self.compiled, &given, &mut rows) {
            Err(exception) => Err(exception),
            Ok(Execution::Point(affected)) => self.point(py, affected, &rows, most),
            Ok(Execution::Other(outcome)) => self.other(py, outcome, most),
        };
        *self.rows.lock() = rows;
        result
    }

    /// The result of the point path.
    fn point<'py>(&self, py: Python<'py>, affected: u64, rows: &Rows, most: usize) -> PyResult<Given<'py>> {
        // Copied: making objects may run code of Python, during which nothing may be locked.
        let column_types: SmallVec<[ColumnType; 8]> = {
            let prepared = self.compiled.prepared.lock();
            if prepared.schema().is_none() {
                return Ok(Given::Changed(affected));
            }
            prepared.column_types().into()
        };
        let types = PythonTypes::get(py)?;
        let list = PyList::empty(py);
        for row in 0..rows.len().min(most) {
            list.append(point_row(py, types, rows, &column_types, row)?)?;
        }
        Ok(Given::Rows(list))
    }

    /// The result of the path for any statement.
    fn other<'py>(&self, py: Python<'py>, outcome: Outcome, most: usize) -> PyResult<Given<'py>> {
        let rows = match outcome {
            Outcome::Changed(changed) => return Ok(Given::Changed(changed.unwrap_or(0))),
            Outcome::Rows(rows) => ResultRows::new(&self.core, rows),
        };
        let types = PythonTypes::get(py)?;
        let list = PyList::empty(py);
        while list.len() < most
            && let Some(batch) = rows.next(py)?
        {
            let batch = BatchRows::new(py, &batch)?;
            for row in 0..batch.len().min(most - list.len()) {
                list.append(batch.row(py, types, row)?)?;
            }
        }
        Ok(Given::Rows(list))
    }
}

#[pymethods]
impl Statement {
    /// Runs the statement: a list of rows, or how many rows it has changed if it gives none.
    #[pyo3(signature = (*parameters, **names))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        parameters: &Bound<'py, PyTuple>,
        names: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self.run(py, parameters, names, usize::MAX)? {
            Given::Changed(rows) => PyInt::new(py, rows).into_any(),
            Given::Rows(rows) => rows.into_any(),
        })
    }

    /// Runs the statement: its first row, or None if there is none.
    #[pyo3(signature = (*parameters, **names))]
    fn one<'py>(
        &self,
        py: Python<'py>,
        parameters: &Bound<'py, PyTuple>,
        names: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.run(py, parameters, names, 1)? {
            Given::Changed(_) => {
                Err(error::programming(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "the statement gives no rows"))
            }
            Given::Rows(rows) if rows.is_empty() => Ok(None),
            Given::Rows(rows) => rows.get_item(0).map(Some),
        }
    }

    /// The text of the statement.
    #[getter]
    fn sql(&self) -> &str {
        &self.compiled.text
    }

    /// Whether the statement is compiled to direct calls of the storage.
    #[getter]
    fn is_point(&self) -> bool {
        self.compiled.prepared.lock().is_point()
    }

    fn __repr__(&self) -> String {
        format!("<seracdb.Statement {:?}>", self.compiled.text)
    }
}
