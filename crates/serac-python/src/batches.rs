//! The class `Batches`: rows in memory, which can be read again and again.

use crate::arrow_io::{self, Reader};
use crate::error::IntoPython;
use crate::objects::BatchRows;
use crate::python_types::PythonTypes;
use arrow::array::{RecordBatch, RecordBatchIterator};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use serac_connection::OfProcess;
use seracdb::{SqlError, wire};

/// Rows of a query that have all come.
#[pyclass(frozen, weakref, module = "seracdb._seracdb")]
pub struct Batches {
    schema: SchemaRef,
    batches: OfProcess<Vec<RecordBatch>>,
}

impl Batches {
    /// All rows of a query, as the database has them.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches: OfProcess::new(batches) }
    }

    fn reader(&self, py: Python<'_>) -> PyResult<Reader> {
        self.batches.check().python(py)?;
        let shown =
            |batch: RecordBatch| wire::shown(batch).map_err(|error: SqlError| ArrowError::CastError(error.message));
        let batches = Vec::clone(&self.batches);
        let schema = wire::shown_schema(&self.schema);
        Ok(Box::new(RecordBatchIterator::new(batches.into_iter().map(shown), schema)))
    }
}

#[pymethods]
impl Batches {
    /// The first rows, as tuples: at most `most`.
    fn rows<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyList>> {
        self.batches.check().python(py)?;
        let (types, list) = (PythonTypes::get(py)?, PyList::empty(py));
        for batch in self.batches.iter() {
            let rows = BatchRows::new(py, batch)?;
            for row in 0..rows.len().min(most - list.len()) {
                list.append(rows.row(py, types, row)?)?;
            }
        }
        Ok(list)
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The rows as a stream of Arrow.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        arrow_io::capsule(py, self.reader(py)?, requested_schema)
    }

    /// The same, with durations in the place of intervals.
    fn _stream_of_durations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow_io::capsule_of_durations(py, self.reader(py)?)
    }

    /// The columns as a schema of Arrow.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow_io::schema_capsule(py, &wire::shown_schema(&self.schema))
    }
}
