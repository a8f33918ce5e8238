//! The rows of a query: a queue that the session's stream fills, batch by batch, as they are asked
//! for.

use crate::connection::Connection;
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use parking_lot::Mutex;
use seracdb::{SqlError, wire};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

/// The rows of a query, as its connection has them.
pub(crate) struct QueryRows(Mutex<Queue>);

impl QueryRows {
    /// Rows that a stream of the session gives.
    pub fn new() -> Self {
        Self(Mutex::new(Queue { batches: VecDeque::new(), rest: Rest::Stream }))
    }

    /// Whether the stream gives no more.
    pub fn has_ended(&self) -> bool {
        !matches!(self.0.lock().rest, Rest::Stream)
    }

    /// The error of a query that has failed before it gave a row.
    pub fn early_error(&self) -> Option<SqlError> {
        match &*self.0.lock() {
            Queue { batches, rest: Rest::Failed(error) } if batches.iter().all(|batch| batch.num_rows() == 0) => {
                Some(error.clone())
            }
            _ => None,
        }
    }

    /// Takes the next batch from the stream. Returns its rows; `None` if no more come.
    pub fn take_one(&self, next: impl FnOnce() -> Result<Option<RecordBatch>, SqlError>) -> Option<usize> {
        if self.has_ended() {
            return None;
        }
        // Without the lock: it may take long.
        let next = next();
        let mut queue = self.0.lock();
        match next {
            Ok(Some(batch)) => {
                let rows = batch.num_rows();
                queue.batches.push_back(batch);
                return Some(rows);
            }
            Ok(None) => queue.rest = Rest::Nothing,
            Err(error) => queue.rest = Rest::Failed(error),
        }
        None
    }

    /// Takes all rows from the stream.
    pub fn take_all(&self, mut next: impl FnMut() -> Result<Option<RecordBatch>, SqlError>) {
        while self.take_one(&mut next).is_some() {}
    }

    /// Notes that the connection is closed.
    pub fn end_by_closing(&self) {
        self.0.lock().rest = Rest::Closed;
    }

    /// The next batch with rows, or what comes instead of one.
    fn pop(&self) -> Result<RecordBatch, Rest> {
        let mut queue = self.0.lock();
        while let Some(batch) = queue.batches.pop_front() {
            if batch.num_rows() > 0 {
                return Ok(batch);
            }
        }
        Err(queue.rest.clone())
    }
}

/// Where the rows of a reader come from.
enum Source {
    Query { rows: Arc<QueryRows>, connection: Connection },
    Whole(VecDeque<RecordBatch>),
}

/// The rows of a statement. Any thread may read them, also while the connection runs other
/// statements: the first of these moves the rest of the rows to the reader's memory. The reader
/// keeps its session.
pub struct RowReader {
    /// The columns as the database has them.
    schema: SchemaRef,
    /// The columns as they leave.
    shown: SchemaRef,
    source: Source,
}

impl fmt::Debug for RowReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowReader").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl RowReader {
    fn new(schema: SchemaRef, source: Source) -> Self {
        Self { shown: wire::shown_schema(&schema), schema, source }
    }

    pub(crate) fn of_query(schema: SchemaRef, rows: Arc<QueryRows>, connection: Connection) -> Self {
        Self::new(schema, Source::Query { rows, connection })
    }

    /// Rows that have all come.
    pub fn whole(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self::new(schema, Source::Whole(batches.into()))
    }

    /// The columns as the database has them: its `LargeBinary` holds numbers.
    pub fn stored_schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch with rows, as the database has it; `None` after the last.
    ///
    /// # Errors
    /// The error of the query; 08006 if the connection was closed before all rows were read.
    pub fn next_stored(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        let (rows, connection) = match &mut self.source {
            Source::Whole(batches) => return Ok(batches.pop_front()),
            Source::Query { rows, connection } => (rows, connection),
        };
        loop {
            match rows.pop() {
                Ok(batch) => return Ok(Some(batch)),
                Err(Rest::Nothing) => return Ok(None),
                Err(Rest::Failed(error)) => return Err(error),
                Err(Rest::Closed) => {
                    let message = "the connection was closed before all rows were read";
                    return Err(SqlError::new(sqlstate::CONNECTION_FAILURE, message));
                }
                Err(Rest::Stream) => connection.advance(rows)?,
            }
        }
    }

    /// All rows that are left, as they leave.
    ///
    /// # Errors
    /// As for [`next_stored`](Self::next_stored).
    pub fn collect_all(mut self) -> Result<Vec<RecordBatch>, SqlError> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_stored()? {
            batches.push(wire::shown(batch)?);
        }
        Ok(batches)
    }
}

impl Iterator for RowReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = || self.next_stored().and_then(|batch| batch.map(wire::shown).transpose());
        // A consumer in C does not know panics.
        let next = catch_unwind(AssertUnwindSafe(next)).unwrap_or_else(|panic| Err(SqlError::of_panic(&*panic)));
        // Arrow's C interface has texts of C, without zero bytes.
        let external = |error: SqlError| {
            ArrowError::ExternalError(Box::new(SqlError { message: error.message.replace('\0', " "), ..error }))
        };
        next.map_err(external).transpose()
    }
}

impl RecordBatchReader for RowReader {
    fn schema(&self) -> SchemaRef {
        self.shown.clone()
    }
}

impl Drop for RowReader {
    fn drop(&mut self) {
        if let Source::Query { rows, connection } = &self.source {
            connection.abandon(rows);
        }
    }
}
