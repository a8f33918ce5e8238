//! Results that come row by row.

use crate::error::Result;
use crate::limits::Limits;
use crate::result::StatementResult;
use crate::session::Session;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use std::time::Duration;

/// A statement's output, with rows as they come.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a statement has one, which lives on the stack")]
pub enum StatementStream<'s> {
    /// Rows.
    Rows(RowStream<'s>),
    /// A command's tag, as PostgreSQL writes it: "INSERT 0 3".
    Command {
        /// The tag.
        tag: String,
        /// Rows that it changed.
        rows: u64,
    },
}

impl<'s> StatementStream<'s> {
    /// The stream of a statement that has ended.
    pub(crate) fn done(session: &'s mut Session, result: StatementResult) -> Self {
        match result {
            StatementResult::Command { tag, rows } => Self::Command { tag, rows },
            StatementResult::Rows { tag, schema, batches } => {
                Self::Rows(RowStream { session, tag, schema, rest: Rest::Batches(batches.into_iter()) })
            }
        }
    }
}

enum Rest {
    /// A query; `read` is what the stream has given, and was not taken.
    Query {
        stream: SendableRecordBatchStream,
        limits: Limits,
        read: Option<Result<Option<RecordBatch>>>,
    },
    Batches(std::vec::IntoIter<RecordBatch>),
    Nothing,
}

/// The rows of a statement. The session is free again when it is dropped.
pub struct RowStream<'s> {
    session: &'s mut Session,
    tag: &'static str,
    schema: SchemaRef,
    rest: Rest,
}

impl std::fmt::Debug for RowStream<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowStream").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl<'s> RowStream<'s> {
    pub(crate) fn new(
        session: &'s mut Session,
        tag: &'static str,
        schema: SchemaRef,
        stream: SendableRecordBatchStream,
        limits: Limits,
    ) -> Self {
        Self { session, tag, schema, rest: Rest::Query { stream, limits, read: None } }
    }

    /// The tag's word, as PostgreSQL writes it before the number of rows.
    pub fn tag(&self) -> &'static str {
        self.tag
    }

    /// The rows' columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next rows; `None` after the last, when the statement has ended.
    ///
    /// # Errors
    /// The error of the query, which has then ended.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let next = match &mut self.rest {
            Rest::Nothing => return Ok(None),
            Rest::Batches(batches) => return Ok(batches.next()),
            Rest::Query { stream, limits, read } => {
                let session = &*self.session;
                let next = async {
                    let batch = match read.take() {
                        Some(read) => read?,
                        None => stream.next().await.transpose()?,
                    };
                    session.reads_are_durable().await?;
                    Ok(batch)
                };
                limits.keep(next).await
            }
        };
        if let Ok(Some(batch)) = next {
            return Ok(Some(batch));
        }
        self.end(next).await?;
        Ok(None)
    }

    /// Waits until [`next`](Self::next) need not wait for the query any more, but no longer than
    /// `patience`. Returns whether that is so.
    pub async fn is_ready(&mut self, patience: Duration) -> bool {
        let Rest::Query { stream, limits, read } = &mut self.rest else { return true };
        if read.is_none() {
            // If the time is over, the stream has given nothing: a batch is kept at once.
            let next = async { Ok(stream.next().await.transpose()?) };
            *read = tokio::time::timeout(patience, limits.keep(next)).await.ok();
        }
        read.is_some()
    }

    /// Runs work that belongs to the statement, for example sending its rows, under its limits.
    ///
    /// # Errors
    /// When a limit is reached: the statement has ended then.
    pub async fn keep<T>(&mut self, part: impl Future<Output = T>) -> Result<T> {
        let Rest::Query { limits, .. } = &mut self.rest else { return Ok(part.await) };
        match limits.keep(async { Ok(part.await) }).await {
            Ok(done) => Ok(done),
            Err(error) => Err(self.end::<()>(Err(error)).await.expect_err("it has failed")),
        }
    }

    /// Ends the statement.
    async fn end<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match std::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::Query { stream, .. } => {
                drop(stream);
                self.session.finish_statement(result).await.map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl Drop for RowStream<'_> {
    fn drop(&mut self) {
        if let Rest::Query { .. } = std::mem::replace(&mut self.rest, Rest::Nothing) {
            self.session.abandon_query();
        }
    }
}
