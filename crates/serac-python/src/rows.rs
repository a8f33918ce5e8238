//! The rows of a query: a queue that the session's stream fills, batch by batch, as they are asked
//! for.

use crate::error::{self, IntoPython};
use crate::session::Core;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use pyo3::prelude::*;
use seracdb::SqlError;
use std::collections::VecDeque;
use std::sync::Arc;

/// Whether more rows come.
#[derive(Clone)]
enum Rest {
    /// The session's stream gives them.
    Stream,
    /// All have come.
    Nothing,
    /// The query has failed.
    Failed(SqlError),
    /// The connection was closed before all had come.
    Closed,
}

struct Queue {
    batches: VecDeque<RecordBatch>,
    rest: Rest,
}

/// The error of a query, once it has failed. It outlives the query's rows.
pub type Failure = Arc<Mutex<Option<SqlError>>>;

/// The rows of a query, as the database has them.
pub struct QueryRows {
    core: Arc<Core>,
    schema: SchemaRef,
    queue: Mutex<Queue>,
    failure: Failure,
}

impl QueryRows {
    /// Rows that a stream of the session gives.
    pub fn new(core: &Arc<Core>, schema: SchemaRef) -> Self {
        let queue = Mutex::new(Queue { batches: VecDeque::new(), rest: Rest::Stream });
        Self { core: core.clone(), schema, queue, failure: Failure::default() }
    }

    /// Rows that have all come.
    pub fn whole(core: &Arc<Core>, schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        let queue = Mutex::new(Queue { batches: batches.into(), rest: Rest::Nothing });
        Self { core: core.clone(), schema, queue, failure: Failure::default() }
    }

    /// Their columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether the stream gives no more.
    pub fn has_ended(&self) -> bool {
        !matches!(self.queue.lock().rest, Rest::Stream)
    }

    /// How many rows there are, if all have come and none was read.
    pub fn known_count(&self) -> Option<u64> {
        let queue = self.queue.lock();
        let rows = || queue.batches.iter().map(|batch| batch.num_rows() as u64).sum();
        matches!(queue.rest, Rest::Nothing).then(rows)
    }

    /// Whether no rows wait to be read.
    pub fn is_empty(&self) -> bool {
        self.queue.lock().batches.iter().all(|batch| batch.num_rows() == 0)
    }

    /// Where the error of the query stands, if it has failed.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Takes the next batch from the stream. Returns its rows; `None` if no more come.
    pub fn take_one(&self, next: impl FnOnce() -> Result<Option<RecordBatch>, SqlError>) -> Option<usize> {
        if self.has_ended() {
            return None;
        }
        // Without the lock: it may take long, and others look at the queue with Python's lock held.
        let next = next();
        let mut queue = self.queue.lock();
        match next {
            Ok(Some(batch)) => {
                let rows = batch.num_rows();
                queue.batches.push_back(batch);
                return Some(rows);
            }
            Ok(None) => queue.rest = Rest::Nothing,
            Err(error) => {
                *self.failure.lock() = Some(error.clone());
                queue.rest = Rest::Failed(error);
            }
        }
        None
    }

    /// Takes all rows from the stream.
    pub fn take_all(&self, mut next: impl FnMut() -> Result<Option<RecordBatch>, SqlError>) {
        while self.take_one(&mut next).is_some() {}
    }

    /// Notes that the connection is closed.
    pub fn end_by_closing(&self) {
        self.queue.lock().rest = Rest::Closed;
    }

    /// The next batch with rows; `None` after the last.
    ///
    /// # Errors
    /// The error of the query, and the exception that a signal's handler raised.
    pub fn next(self: &Arc<Self>, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        loop {
            let rest = {
                let mut queue = self.queue.lock();
                match queue.batches.pop_front() {
                    Some(batch) if batch.num_rows() == 0 => continue,
                    Some(batch) => return Ok(Some(batch)),
                    None => queue.rest.clone(),
                }
            };
            match rest {
                Rest::Nothing => return Ok(None),
                Rest::Failed(error) => return Err(error).python(py),
                Rest::Closed => return Err(error::interface("the connection was closed before all rows were read")),
                Rest::Stream => self.core.advance(py, self)?,
            }
        }
    }
}

impl Drop for QueryRows {
    fn drop(&mut self) {
        if matches!(self.queue.get_mut().rest, Rest::Stream) {
            self.core.abandon(self);
        }
    }
}
