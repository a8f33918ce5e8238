//! The rows of a query for code that has Python's lock: whoever waits for them lets it go.

use crate::error::IntoPython;
use crate::session::Core;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pyo3::prelude::*;
use serac_connection::{Failure, Next, QueryRows};
use std::sync::Arc;

/// The rows of a query of a connection.
#[derive(Clone)]
pub struct ResultRows {
    core: Arc<Core>,
    rows: Arc<QueryRows>,
}

impl ResultRows {
    /// Rows of a query of the connection.
    pub fn new(core: &Arc<Core>, rows: Arc<QueryRows>) -> Self {
        Self { core: core.clone(), rows }
    }

    /// Their columns.
    pub fn schema(&self) -> &SchemaRef {
        self.rows.schema()
    }

    /// How many rows there are, if all have come and none was read.
    pub fn known_count(&self) -> Option<u64> {
        self.rows.known_count()
    }

    /// Where the error of the query stands, if it has failed.
    pub fn failure(&self) -> &Failure {
        self.rows.failure()
    }

    /// The next batch with rows; `None` after the last.
    ///
    /// # Errors
    /// The error of the query, and the exception that a signal's handler raised.
    pub fn next(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        loop {
            match self.rows.now().python(py)? {
                Next::Batch(batch) => return Ok(Some(batch)),
                Next::End => return Ok(None),
                Next::Later => self.core.advance(py, &self.rows)?,
            }
        }
    }
}
