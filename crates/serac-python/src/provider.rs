//! Tables for datafusion-python, by DataFusion's interface between libraries.

use crate::ending::Inside;
use crate::error;
use crate::session::Core;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use serac_datafusion::{FFI_LogicalExtensionCodec, MAJOR_VERSION, TableScans, table_provider};
use seracdb::SqlError;
use seracdb::engine::{ArrowScan, ColumnFilter};
use std::error::Error;
use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;

const PROVIDER: &CStr = c"datafusion_table_provider";
const CODEC: &CStr = c"datafusion_logical_extension_codec";

/// The scans of a table, each in the connection's transaction, or of the table as it is then.
struct ConnectionScans {
    core: Arc<Core>,
    schema: String,
    table: String,
}

impl fmt::Debug for ConnectionScans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

impl ConnectionScans {
    /// A scan of some columns, by their positions, or of all; and about how many rows there are.
    fn scan_in(
        &self,
        py: Python<'_>,
        columns: Option<Vec<usize>>,
        filter: Vec<ColumnFilter>,
    ) -> PyResult<(ArrowScan, usize)> {
        let (schema, table) = (self.schema.clone(), self.table.clone());
        self.core.run(py, move |locked, runtime| {
            runtime.block_on(locked.idle().read_snapshot(|reading| {
                let table = reading.transaction().catalog().table(&schema, &table)?;
                let columns = columns.unwrap_or_else(|| (0..table.definition.columns.len()).collect());
                let scan = reading.transaction().scan_arrow(table, &columns, &filter)?;
                scan.check_access(reading.access())?;
                Ok::<_, SqlError>((scan, table.data.approximate_rows() as usize))
            }))
        })
    }
}

impl TableScans for ConnectionScans {
    fn scan(&self, columns: &[usize], filter: &[ColumnFilter]) -> Result<ArrowScan, Box<dyn Error + Send + Sync>> {
        // DataFusion plans and runs without Python's lock.
        let scan = Inside::attach(|py| self.scan_in(py, Some(columns.to_vec()), filter.to_vec()));
        match scan {
            Some(Ok((scan, _))) => Ok(scan),
            Some(Err(exception)) => Err(Box::new(exception)),
            None => Err("Python is ending".into()),
        }
    }
}

/// The capsule of a table for a session of datafusion-python.
///
/// # Errors
/// If the session is of another major version, or there is no such table, or it may not be read.
pub fn capsule<'py>(
    py: Python<'py>,
    core: &Arc<Core>,
    schema: String,
    table: String,
    session: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyCapsule>> {
    core.check(py)?;
    let version: String = py.import("datafusion")?.getattr("__version__")?.extract()?;
    if version.split('.').next() != Some(MAJOR_VERSION) {
        let message = format!("datafusion {version} cannot read tables of SeracDB: version {MAJOR_VERSION} can");
        return Err(error::interface(&message));
    }
    let codec = session.call_method0("__datafusion_logical_extension_codec__")?;
    let codec = codec.cast::<PyCapsule>()?.pointer_checked(Some(CODEC))?;
    // SAFETY: a capsule of this name, of this major version of DataFusion, holds this struct; the
    // capsule lives until the end of the call.
    let codec = unsafe { codec.cast::<FFI_LogicalExtensionCodec>().as_ref() }.clone();
    let scans = ConnectionScans { core: core.clone(), schema, table };
    let (scan, rows) = scans.scan_in(py, None, Vec::new())?;
    let schema = arrow::array::RecordBatchReader::schema(&scan);
    let provider = table_provider(schema, rows, scans, core.session().runtime().clone(), codec);
    PyCapsule::new_with_value(py, provider, PROVIDER)
}
