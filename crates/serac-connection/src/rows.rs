//! The rows of a query: a queue that the session's stream fills, batch by batch, as they are asked
//! for.

use crate::session::SharedSession;
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

/// The error of a query, once it has failed. It outlives the query's rows.
pub type Failure = Arc<Mutex<Option<SqlError>>>;

/// The state of a queue of rows at a moment.
pub enum Next {
    /// A batch with rows.
    Batch(RecordBatch),
    /// No more rows.
    End,
    /// Nothing yet: the session's stream has more ([`SharedSession::advance`]).
    Later,
}

/// The rows of a query, as the database has them. Any thread may read them, also while the session
/// runs other statements: the first of these moves the rest of the rows here. They keep their
/// session.
pub struct QueryRows {
    session: Arc<SharedSession>,
    schema: SchemaRef,
    queue: Mutex<Queue>,
    failure: Failure,
}

impl fmt::Debug for QueryRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryRows").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl QueryRows {
    fn with(session: &Arc<SharedSession>, schema: SchemaRef, batches: VecDeque<RecordBatch>, rest: Rest) -> Arc<Self> {
        let queue = Mutex::new(Queue { batches, rest });
        Arc::new(Self { session: session.clone(), schema, queue, failure: Failure::default() })
    }

    /// Rows that a stream of the session gives.
    pub(crate) fn streamed(session: &Arc<SharedSession>, schema: SchemaRef) -> Arc<Self> {
        Self::with(session, schema, VecDeque::new(), Rest::Stream)
    }

    /// Rows that have all come.
    pub fn whole(session: &Arc<SharedSession>, schema: SchemaRef, batches: Vec<RecordBatch>) -> Arc<Self> {
        Self::with(session, schema, batches.into(), Rest::Nothing)
    }

    /// Their columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether the stream gives no more.
    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.queue.lock().rest, Rest::Stream)
    }

    /// How many rows there are, if all have come and none was read.
    pub fn known_count(&self) -> Option<u64> {
        let queue = self.queue.lock();
        let rows = || queue.batches.iter().map(|batch| batch.num_rows() as u64).sum();
        matches!(queue.rest, Rest::Nothing).then(rows)
    }

    /// Where the error of the query stands, if it has failed.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// The error of a query that has failed before it gave a row.
    pub(crate) fn early_error(&self) -> Option<SqlError> {
        match &*self.queue.lock() {
            Queue { batches, rest: Rest::Failed(error) } if batches.iter().all(|batch| batch.num_rows() == 0) => {
                Some(error.clone())
            }
            _ => None,
        }
    }

    /// Takes the next batch from the stream. Returns its rows; `None` if no more come.
    pub(crate) fn take_one(&self, next: impl FnOnce() -> Result<Option<RecordBatch>, SqlError>) -> Option<usize> {
        if self.has_ended() {
            return None;
        }
        // Without the lock: it may take long, and others look at the queue meanwhile.
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
    pub(crate) fn take_all(&self, mut next: impl FnMut() -> Result<Option<RecordBatch>, SqlError>) {
        while self.take_one(&mut next).is_some() {}
    }

    /// Notes that the connection is closed.
    pub(crate) fn end_by_closing(&self) {
        self.queue.lock().rest = Rest::Closed;
    }

    /// The next batch, or why there is none now.
    ///
    /// # Errors
    /// The error of the query; 08006 if the connection was closed before all rows were read.
    pub fn now(&self) -> Result<Next, SqlError> {
        let mut queue = self.queue.lock();
        while let Some(batch) = queue.batches.pop_front() {
            if batch.num_rows() > 0 {
                return Ok(Next::Batch(batch));
            }
        }
        match &queue.rest {
            Rest::Stream => Ok(Next::Later),
            Rest::Nothing => Ok(Next::End),
            Rest::Failed(error) => Err(error.clone()),
            Rest::Closed => {
                let message = "the connection was closed before all rows were read";
                Err(SqlError::new(sqlstate::CONNECTION_FAILURE, message))
            }
        }
    }
}

impl Drop for QueryRows {
    fn drop(&mut self) {
        if matches!(self.queue.get_mut().rest, Rest::Stream) {
            self.session.abandon(self);
        }
    }
}

/// A reader of the rows of a query. It waits for them in the thread that reads.
#[derive(Debug)]
pub struct RowReader {
    rows: Arc<QueryRows>,
    /// The columns as they leave.
    shown: SchemaRef,
}

impl RowReader {
    /// A reader of the rows that are left.
    pub fn new(rows: Arc<QueryRows>) -> Self {
        Self { shown: wire::shown_schema(rows.schema()), rows }
    }

    /// The columns as the database has them: its `LargeBinary` holds numbers.
    pub fn stored_schema(&self) -> &SchemaRef {
        self.rows.schema()
    }

    /// The next batch with rows, as the database has it; `None` after the last.
    ///
    /// # Errors
    /// The error of the query; 08006 if the connection was closed before all rows were read.
    pub fn next_stored(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        loop {
            match self.rows.now()? {
                Next::Batch(batch) => return Ok(Some(batch)),
                Next::End => return Ok(None),
                Next::Later => self.rows.session.advance(&self.rows)?,
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
