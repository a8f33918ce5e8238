//! Connections: a session that any thread may use, one statement at a time.
//!
//! **Futures.** A statement runs in the thread that calls. The calls block, so they may not be made
//! in a task of an asynchronous runtime.

use crate::database::DatabaseUse;
use crate::nested::SessionId;
use crate::session::{Locked, Outcome, SharedSession};
use arrow::array::{Array, RecordBatch, RecordBatchReader};
use arrow::error::ArrowError;
use futures::{StreamExt, stream};
use seracdb::{CancelHandle, IngestTarget, Session, SqlError, StatementResult, TransactionStatus, located};
use std::fmt;
use std::sync::Arc;
use tokio::runtime::Handle;

/// A connection. Clones are the same connection.
#[derive(Clone)]
pub struct Connection {
    session: Arc<SharedSession>,
}

/// A batch whose texts are UTF-8, and whose offsets and keys stay within their columns. Arrow's C
/// interface promises it, and the engine relies on it.
///
/// # Errors
/// 22P03 if it is not so.
pub fn validated(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let valid = batch.columns().iter().try_for_each(|column| column.to_data().validate_full());
    valid.map_err(|error| {
        let error =
            SqlError::new(sqlstate::INVALID_BINARY_REPRESENTATION, format!("the rows are no valid Arrow: {error}"));
        ArrowError::ExternalError(Box::new(error))
    })?;
    Ok(batch)
}

/// The work of a COMMIT: an error if the transaction was rolled back, as one of its statements had
/// failed.
///
/// # Errors
/// 25P02.
pub fn check_committed(results: &[StatementResult]) -> Result<(), SqlError> {
    let is_rolled_back =
        |result: &StatementResult| matches!(result, StatementResult::Command { tag, .. } if tag == "ROLLBACK");
    if results.iter().any(is_rolled_back) {
        let message = "a statement of the transaction has failed, so it was rolled back";
        return Err(SqlError::new(sqlstate::IN_FAILED_SQL_TRANSACTION, message));
    }
    Ok(())
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// A new session of a database, in which each statement is a transaction.
    pub fn new(usage: DatabaseUse) -> Self {
        Self { session: SharedSession::new(usage, SessionId::new(), true, |_| {}).0 }
    }

    /// Cancels the session's statements, from any thread.
    pub fn cancel_handle(&self) -> &CancelHandle {
        self.session.cancel_handle()
    }

    /// The runtime of the database.
    pub(crate) fn runtime(&self) -> &Handle {
        self.session.runtime()
    }

    /// Locks the session, once no other thread has it.
    pub(crate) fn lock(&self) -> Result<Locked<'_>, SqlError> {
        self.session.lock()
    }

    /// Runs work with the session. It blocks where the session waits: `Handle::block_on` runs
    /// futures.
    ///
    /// # Errors
    /// The error of the work; 08006 if the connection is closed, 08P01 in a child of its process,
    /// 55006 in work of the same connection.
    pub fn with_session<T>(
        &self,
        work: impl FnOnce(&mut Session, &Handle) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        work(self.lock()?.idle(), self.session.runtime())
    }

    /// Runs a text: one statement, or a script, of which the last result counts.
    ///
    /// # Errors
    /// The error of the first statement that fails, with its position.
    pub fn execute(&self, text: &str) -> Result<Outcome, SqlError> {
        let runtime = self.session.runtime();
        let mut locked = self.lock()?;
        // Whether it needs a transaction is known when it is parsed.
        if self.session.autocommit() || locked.idle().transaction_status() != TransactionStatus::Idle {
            let known = runtime.block_on(locked.idle().execute_known(text))?;
            if let Some(result) = known {
                return Ok(locked.outcome_of(result));
            }
        }
        let statements = runtime.block_on(locked.idle().parse_elsewhere(text))?;
        let mut outcome = Outcome::Changed(None);
        for (at, statement) in statements.into_iter().enumerate() {
            // The rows before are not wanted.
            drop(std::mem::replace(&mut outcome, Outcome::Changed(None)));
            outcome = locked.run(statement).map_err(|error| located(error, text, at))?;
        }
        Ok(outcome)
    }

    /// Puts the rows of a reader into a table, all of them or none. Returns how many there are.
    ///
    /// # Errors
    /// The errors of the table, of the rows, or of the reader.
    pub fn ingest(&self, target: &IngestTarget, mut rows: impl RecordBatchReader + Send) -> Result<u64, SqlError> {
        let mut locked = self.lock()?;
        locked.begin_if_needed()?;
        let (schema, id) = (rows.schema(), self.session.id());
        // The rows may come from another connection, for which the thread waits.
        let next = move || id.amid(|| rows.next());
        let rows = stream::iter(std::iter::from_fn(next)).map(|batch| Ok(validated(batch?)?));
        self.session.runtime().block_on(locked.idle().ingest(target, &schema, rows))
    }

    /// The state of the transaction.
    ///
    /// # Errors
    /// As for [`with_session`](Self::with_session).
    pub fn transaction_status(&self) -> Result<TransactionStatus, SqlError> {
        self.with_session(|session, _| Ok(session.transaction_status()))
    }

    /// Whether each statement outside of transactions that the user begins is one.
    ///
    /// # Errors
    /// If the connection is closed, or of another process.
    pub fn autocommit(&self) -> Result<bool, SqlError> {
        self.session.check_open()?;
        Ok(self.session.autocommit())
    }

    /// Sets whether each statement is a transaction. An open transaction is committed first if it
    /// is to be so.
    ///
    /// # Errors
    /// The error of the commit.
    pub fn set_autocommit(&self, autocommit: bool) -> Result<(), SqlError> {
        if autocommit && !self.autocommit()? {
            self.commit()?;
        }
        self.lock()?.set_autocommit(autocommit);
        Ok(())
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// 25001 in a transaction.
    pub fn begin(&self) -> Result<(), SqlError> {
        self.with_session(|session, runtime| {
            if session.transaction_status() != TransactionStatus::Idle {
                let message = "there is already a transaction in progress";
                return Err(SqlError::new(sqlstate::ACTIVE_SQL_TRANSACTION, message));
            }
            runtime.block_on(session.execute("BEGIN")).map(drop)
        })
    }

    /// Commits the open transaction; without one, does nothing.
    ///
    /// # Errors
    /// The error of the commit; 25P02 if a statement of the transaction has failed, so that it was
    /// rolled back.
    pub fn commit(&self) -> Result<(), SqlError> {
        check_committed(&self.end("COMMIT")?)
    }

    /// Rolls back the open transaction; without one, does nothing.
    ///
    /// # Errors
    /// As for [`with_session`](Self::with_session).
    pub fn rollback(&self) -> Result<(), SqlError> {
        self.end("ROLLBACK").map(drop)
    }

    fn end(&self, statement: &str) -> Result<Vec<StatementResult>, SqlError> {
        self.with_session(|session, runtime| match session.transaction_status() {
            TransactionStatus::Idle => Ok(Vec::new()),
            _ => runtime.block_on(session.execute(statement)),
        })
    }

    /// One more use of the database, for another connection.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn another_use(&self) -> Result<DatabaseUse, SqlError> {
        self.session.another_use()
    }

    /// Closes the connection: its transaction is rolled back, and the database is closed if this
    /// was the last use of it. Rows that have not been read cannot be read any more.
    ///
    /// # Errors
    /// If the log or the last checkpoint cannot be written.
    pub fn close(&self) -> Result<(), SqlError> {
        self.session.close()
    }
}
