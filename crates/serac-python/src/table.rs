//! Tables as Arrow: the class `Scan`, whose batches are the memory of frozen blocks, and frames
//! into tables.

use crate::arrow_io::{self, Frame, TableReader};
use crate::callback;
use crate::error::IntoPython;
use crate::parameters;
use crate::python_types::PythonTypes;
use crate::session::Core;
use arrow::array::RecordBatchReader;
use futures::{StreamExt, stream};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use serac_connection::OfProcess;
use seracdb::engine::{ArrowScan, ColumnFilter, Comparison, Table};
use seracdb::{ColumnType, IngestFiles, IngestTarget, SqlError};
use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A condition of a scan: a column, a comparison, a value.
pub type Condition<'py> = (String, String, Bound<'py, PyAny>);

/// The rows of a table at one moment, as Arrow.
#[pyclass(frozen, weakref, module = "seracdb._seracdb")]
pub struct Scan {
    scan: OfProcess<ArrowScan>,
    /// Whether columns have the form in which most blocks hold them.
    stored: bool,
}

fn comparison(symbol: &str) -> PyResult<Comparison> {
    Ok(match symbol {
        "=" | "==" => Comparison::Equal,
        "<>" | "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        other => {
            let message = format!("\"{other}\" is no comparison of a scan: there are =, <>, <, <=, > and >=");
            return Err(PyValueError::new_err(message));
        }
    })
}

fn position(table: &Table, column: &str) -> Result<usize, SqlError> {
    table.definition.column(column).ok_or_else(|| SqlError::no_column(column, table.name()))
}

impl Scan {
    /// Scans a table in the session's transaction, or as it is now.
    ///
    /// # Errors
    /// If there is no such table or column, or it may not be read, or a condition does not fit its
    /// column.
    pub fn new(
        py: Python<'_>,
        core: &Arc<Core>,
        schema: &str,
        table: &str,
        columns: Option<Vec<String>>,
        conditions: &[Condition<'_>],
        stored: bool,
    ) -> PyResult<Self> {
        // First the types of the columns, with which values are compared; then the scan. A table
        // may change in between: then the constants do not fit, and the scan says so.
        let (schema, table) = (schema.to_owned(), table.to_owned());
        let compared: Vec<String> = conditions.iter().map(|(column, _, _)| column.clone()).collect();
        let column_types: Vec<ColumnType> = {
            let (schema, table) = (schema.clone(), table.clone());
            core.run(py, move |locked, runtime| {
                runtime.block_on(locked.idle().read_snapshot(|reading| {
                    let table = reading.transaction().catalog().table(&schema, &table)?;
                    let stored = &table.data.schema().columns;
                    compared.iter().map(|column| Ok(stored[position(table, column)?].column_type)).collect()
                }))
            })?
        };
        let types = PythonTypes::get(py)?;
        let mut filter = Vec::with_capacity(conditions.len());
        for ((column, symbol, value), column_type) in conditions.iter().zip(column_types) {
            let constant = parameters::constant(types, value, column_type)?;
            let constant = arrow_io::checked(py, constant.to_array().map_err(Into::into))?;
            filter.push((column.clone(), comparison(symbol)?, constant));
        }
        let scan = core.run(py, move |locked, runtime| {
            runtime.block_on(locked.idle().read_snapshot(|reading| {
                let table = reading.transaction().catalog().table(&schema, &table)?;
                let columns = match columns {
                    Some(columns) => columns.iter().map(|column| position(table, column)).collect::<Result<_, _>>()?,
                    None => (0..table.definition.columns.len()).collect::<Vec<_>>(),
                };
                let filter = filter.into_iter().map(|(column, comparison, constant)| {
                    Ok(ColumnFilter { column: position(table, &column)?, comparison, constant })
                });
                let filter = filter.collect::<Result<Vec<_>, SqlError>>()?;
                let scan = reading.transaction().scan_arrow(table, &columns, &filter)?;
                scan.check_access(reading.access())?;
                Ok(scan)
            }))
        })?;
        Ok(Self { scan: OfProcess::new(scan), stored })
    }

    /// The scan that Arrow's interface gives.
    fn shown(&self) -> ArrowScan {
        let scan = ArrowScan::clone(&self.scan);
        if self.stored { scan.as_stored() } else { scan }
    }
}

#[pymethods]
impl Scan {
    /// The rows as a stream of Arrow. Each call begins anew, with the same rows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.scan.check().python(py)?;
        arrow_io::capsule(py, Box::new(TableReader(self.shown())), requested_schema)
    }

    /// The rows for Polars: with durations in the place of intervals, and decimals of 128 bits.
    fn _stream_of_durations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        self.scan.check().python(py)?;
        arrow_io::capsule_of_durations(py, Box::new(TableReader(ArrowScan::clone(&self.scan))))
    }

    /// The columns as a schema of Arrow.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        self.scan.check().python(py)?;
        arrow_io::schema_capsule(py, &RecordBatchReader::schema(&self.shown()))
    }
}

/// The time between two calls of a function that is told of progress.
const BETWEEN_TOLD: Duration = Duration::from_millis(100);

/// Puts the rows of files into a table, all of them or none. Returns how many there are. `progress`
/// is called with the number of rows so far, from the thread of the statement.
///
/// # Errors
/// The errors of the table, of the files, of their rows, or the exception of `progress`.
pub fn ingest(
    py: Python<'_>,
    core: &Core,
    target: IngestTarget,
    files: IngestFiles,
    progress: Option<Py<PyAny>>,
) -> PyResult<u64> {
    let id = core.session().id();
    core.run(py, move |locked, runtime| {
        locked.begin_if_needed()?;
        let mut told = Instant::now();
        let tell = |rows: u64, is_end: bool| match &progress {
            Some(progress) if is_end || told.elapsed() >= BETWEEN_TOLD => {
                told = Instant::now();
                callback::call(id, |py| {
                    let told = progress.call1(py, (rows,)).map(drop);
                    told.map_err(|exception| callback::told(py, &exception, "the function progress"))
                })
            }
            _ => Ok(()),
        };
        runtime.block_on(locked.idle().ingest_files(&target, &files, tell))
    })
}

/// Puts the rows of a frame into a table, all of them or none. Returns how many there are.
///
/// # Errors
/// The errors of the table, of the rows, or of the frame.
pub fn append(py: Python<'_>, core: &Arc<Core>, target: IngestTarget, frame: &Bound<'_, PyAny>) -> PyResult<u64> {
    core.check(py)?;
    let Frame { schema, mut batches } = arrow_io::frame(frame)?;
    let id = core.session().id();
    core.run(py, move |locked, runtime| {
        locked.begin_if_needed()?;
        // The frame may be made by Python code, as it is read.
        let batches = iter::from_fn(|| id.amid(|| batches.next()));
        let batches = stream::iter(batches).map(|batch| batch.map_err(SqlError::from));
        runtime.block_on(locked.idle().ingest(&target, &schema, batches))
    })
}
