//! Connections: a session that any thread may use, one statement at a time.
//!
//! **Streams.** The rows of a query come as they are asked for. The next statement of the
//! connection needs the session: it first moves the rest of the rows to the result that they belong
//! to, or closes the stream if nobody has that result any more.
//!
//! **Futures.** A statement runs in the thread that calls. The calls block, so they may not be made
//! in a task of an asynchronous runtime.

use crate::database::DatabaseUse;
use crate::process::OfProcess;
use crate::rows::{QueryRows, RowReader};
use crate::slot::{SessionSlot, Started};
use arrow::array::{Array, RecordBatch, RecordBatchReader};
use arrow::error::ArrowError;
use futures::{StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use seracdb::{
    CancelHandle, IngestTarget, Parsed, Session, SqlError, StatementResult, StatementStream, TransactionStatus,
    acts_in_transaction, located,
};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// Rows that a statement brings along when it returns, if they come at once.
const FIRST_ROWS: usize = 1_024;
/// The time in which more rows come at once.
const FIRST_PATIENCE: Duration = Duration::from_millis(1);
/// The time between two looks at rows that another thread may move.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A connection. Clones are the same connection.
#[derive(Clone)]
pub struct Connection {
    core: Arc<Core>,
}

struct Core {
    state: OfProcess<Mutex<Option<State>>>,
    /// The thread that runs a statement, as [`this_thread`] names it; 0 if none does. Relaxed: a
    /// thread looks only for itself.
    running: AtomicUsize,
    cancel: CancelHandle,
    runtime: Handle,
}

/// A session and what belongs to it. The fields are dropped in this order.
struct State {
    slot: SessionSlot,
    /// The result whose rows the open stream gives.
    streaming: Weak<QueryRows>,
    /// Whether each statement is a transaction of its own, outside of those that the user begins.
    autocommit: bool,
    usage: DatabaseUse,
}

/// The result of a statement.
#[derive(Debug)]
pub enum Outcome {
    /// It gives no rows: how many it has changed.
    Changed(u64),
    /// Its rows.
    Rows(RowReader),
}

impl Outcome {
    /// The outcome of a statement that has ended.
    pub(crate) fn of_result(result: StatementResult) -> Self {
        match result {
            StatementResult::Command { rows, .. } => Self::Changed(rows),
            StatementResult::Rows { schema, batches, .. } => Self::Rows(RowReader::whole(schema, batches)),
        }
    }
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

/// A number that no other running thread has.
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

fn is_closed() -> SqlError {
    SqlError::new(sqlstate::CONNECTION_FAILURE, "the connection is closed")
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// A new session of a database, in which each statement is a transaction.
    pub fn new(usage: DatabaseUse) -> Self {
        let mut slot = SessionSlot::new(usage.database());
        let (runtime, cancel) = (usage.database().runtime().clone(), slot.session().cancel_handle());
        let state = OfProcess::new(Mutex::new(Some(State { slot, streaming: Weak::new(), autocommit: true, usage })));
        Self { core: Arc::new(Core { state, running: AtomicUsize::new(0), cancel, runtime }) }
    }

    /// Cancels the session's statements, from any thread.
    pub fn cancel_handle(&self) -> &CancelHandle {
        &self.core.cancel
    }

    /// The runtime of the database.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.core.runtime
    }

    /// Refuses a child of the process, and to wait in the thread that has the session.
    fn check(&self) -> Result<(), SqlError> {
        self.core.state.check()?;
        if self.core.running.load(Ordering::Relaxed) != this_thread() {
            return Ok(());
        }
        let message = "a statement of the connection is running, and waits for the code that uses it";
        let error = SqlError::new(sqlstate::OBJECT_IN_USE, message);
        Err(error.explained("The rows that a statement reads need another connection."))
    }

    /// Runs work with the session's state, once no other thread does.
    fn run<T>(&self, work: impl FnOnce(&mut State, &Handle) -> Result<T, SqlError>) -> Result<T, SqlError> {
        self.check()?;
        self.run_locked(self.core.state.lock(), work)
    }

    fn run_locked<T>(
        &self,
        mut state: MutexGuard<'_, Option<State>>,
        work: impl FnOnce(&mut State, &Handle) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        /// Notes that the thread runs no statement any more, also after a panic.
        struct Running<'a>(&'a AtomicUsize);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                self.0.store(0, Ordering::Relaxed);
            }
        }
        let state = state.as_mut().ok_or_else(is_closed)?;
        self.core.running.store(this_thread(), Ordering::Relaxed);
        let _running = Running(&self.core.running);
        work(state, &self.core.runtime)
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
        self.run(|state, runtime| work(state.idle(runtime), runtime))
    }

    /// The same, in a transaction if each statement is not one.
    pub(crate) fn with_session_for<T>(
        &self,
        statement: &Parsed,
        work: impl FnOnce(&mut Session, &Handle) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        self.run(|state, runtime| {
            state.begin_for(statement, runtime)?;
            work(state.idle(runtime), runtime)
        })
    }

    /// Runs a text: one statement, or a script, of which the last result counts.
    ///
    /// # Errors
    /// The error of the first statement that fails, with its position.
    pub fn execute(&self, text: &str) -> Result<Outcome, SqlError> {
        let known = self.run(|state, runtime| {
            // Whether it needs a transaction is known when it is parsed.
            if !state.autocommit && state.idle(runtime).transaction_status() == TransactionStatus::Idle {
                return Ok(None);
            }
            runtime.block_on(state.idle(runtime).execute_known(text))
        })?;
        if let Some(result) = known {
            return Ok(Outcome::of_result(result));
        }
        let statements = self.with_session(|session, runtime| runtime.block_on(session.parse_elsewhere(text)))?;
        let mut outcome = Outcome::Changed(0);
        for (at, statement) in statements.into_iter().enumerate() {
            // The rows before are not wanted.
            drop(std::mem::replace(&mut outcome, Outcome::Changed(0)));
            let runtime = self.runtime();
            let started =
                self.start(&statement, |session| runtime.block_on(session.stream_statement(statement.clone())));
            outcome = started.map_err(|error| located(error, text, at))?;
        }
        Ok(outcome)
    }

    /// Runs a statement, and gives the rows of a query as they come.
    pub(crate) fn start(
        &self,
        statement: &Parsed,
        run: impl for<'s> FnOnce(&'s mut Session) -> Result<StatementStream<'s>, SqlError>,
    ) -> Result<Outcome, SqlError> {
        self.run(|state, runtime| {
            state.begin_for(statement, runtime)?;
            state.idle(runtime);
            if let Started::Ended(changed) = state.slot.start(run)? {
                return Ok(Outcome::Changed(changed));
            }
            let stream = state.slot.stream().expect("it gives rows");
            let schema = stream.schema().clone();
            let rows = Arc::new(QueryRows::new());
            // The first rows come with the statement, so that most errors are the statement's, and
            // a short result ends it.
            let mut taken = rows.take_one(|| runtime.block_on(stream.next()));
            let mut all = 0;
            while let Some(more) = taken
                && all + more < FIRST_ROWS
                && runtime.block_on(stream.is_ready(FIRST_PATIENCE))
            {
                all += more;
                taken = rows.take_one(|| runtime.block_on(stream.next()));
            }
            match rows.has_ended() {
                true => state.close_stream(),
                false => state.streaming = Arc::downgrade(&rows),
            }
            match rows.early_error() {
                Some(error) => Err(error),
                None => Ok(Outcome::Rows(RowReader::of_query(schema, rows, self.clone()))),
            }
        })
    }

    /// Moves the next rows to a result, if its stream is open.
    pub(crate) fn advance(&self, rows: &Arc<QueryRows>) -> Result<(), SqlError> {
        self.check()?;
        // A statement that has the session has moved all rows to their result at first. It is not
        // waited for: it may wait for whoever reads these rows.
        while !rows.has_ended() {
            let Some(state) = self.core.state.try_lock_for(BETWEEN_LOOKS) else { continue };
            return self.run_locked(state, |state, runtime| {
                if !std::ptr::eq(state.streaming.as_ptr(), Arc::as_ptr(rows)) {
                    // Another statement has moved all of them meanwhile.
                    return Ok(());
                }
                if let Some(stream) = state.slot.stream() {
                    rows.take_one(|| runtime.block_on(stream.next()));
                }
                if rows.has_ended() {
                    state.close_stream();
                }
                Ok(())
            });
        }
        Ok(())
    }

    /// Ends the stream of a result that nobody wants any more, if that takes no waiting.
    pub(crate) fn abandon(&self, rows: &Arc<QueryRows>) {
        let state = &self.core.state;
        if state.is_ours()
            && let Some(mut state) = state.try_lock()
            && let Some(state) = state.as_mut()
            && std::ptr::eq(state.streaming.as_ptr(), Arc::as_ptr(rows))
        {
            state.close_stream();
        }
    }

    /// Puts the rows of a reader into a table, all of them or none. Returns how many there are.
    ///
    /// # Errors
    /// The errors of the table, of the rows, or of the reader.
    pub fn ingest(&self, target: &IngestTarget, mut rows: impl RecordBatchReader + Send) -> Result<u64, SqlError> {
        self.run(|state, runtime| {
            if !state.autocommit {
                state.begin(runtime)?;
            }
            let schema = rows.schema();
            // The rows may come from another connection, for which the thread waits.
            let next = move || tokio::task::block_in_place(|| rows.next());
            let rows = stream::iter(std::iter::from_fn(next)).map(|batch| Ok(validated(batch?)?));
            runtime.block_on(state.idle(runtime).ingest(target, &schema, rows))
        })
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
    /// As for [`with_session`](Self::with_session).
    pub fn autocommit(&self) -> Result<bool, SqlError> {
        self.run(|state, _| Ok(state.autocommit))
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
        self.run(|state, _| {
            state.autocommit = autocommit;
            Ok(())
        })
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// 25001 in a transaction.
    pub fn begin(&self) -> Result<(), SqlError> {
        self.run(|state, runtime| {
            if state.idle(runtime).transaction_status() != TransactionStatus::Idle {
                let message = "there is already a transaction in progress";
                return Err(SqlError::new(sqlstate::ACTIVE_SQL_TRANSACTION, message));
            }
            state.begin(runtime)
        })
    }

    /// Commits the open transaction; without one, does nothing.
    ///
    /// # Errors
    /// The error of the commit; 25P02 if a statement of the transaction has failed, so that it was
    /// rolled back.
    pub fn commit(&self) -> Result<(), SqlError> {
        let is_rolled_back =
            |result: &StatementResult| matches!(result, StatementResult::Command { tag, .. } if tag == "ROLLBACK");
        if self.end("COMMIT")?.iter().any(is_rolled_back) {
            let message = "a statement of the transaction has failed, so it was rolled back";
            return Err(SqlError::new(sqlstate::IN_FAILED_SQL_TRANSACTION, message));
        }
        Ok(())
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
        self.run(|state, _| Ok(state.usage.another()))
    }

    /// Closes the connection: its transaction is rolled back, and the database is closed if this
    /// was the last use of it. Rows that have not been read cannot be read any more.
    ///
    /// # Errors
    /// If the log or the last checkpoint cannot be written.
    pub fn close(&self) -> Result<(), SqlError> {
        self.check()?;
        let Some(State { mut slot, streaming, usage, .. }) = self.core.state.lock().take() else { return Ok(()) };
        if let Some(rows) = streaming.upgrade() {
            rows.end_by_closing();
        }
        slot.close_stream();
        drop(slot);
        usage.close()
    }
}

impl State {
    fn close_stream(&mut self) {
        self.slot.close_stream();
        self.streaming = Weak::new();
    }

    /// The session, for a new statement: the rows of the last query move to their result.
    fn idle(&mut self, runtime: &Handle) -> &mut Session {
        if let Some(stream) = self.slot.stream() {
            if let Some(rows) = self.streaming.upgrade() {
                rows.take_all(|| runtime.block_on(stream.next()));
            }
            self.close_stream();
        }
        self.slot.session()
    }

    /// Begins a transaction before a statement that reads or writes rows, unless one is open or
    /// each statement is one. Reads, too: what is written later may rest on them.
    fn begin_for(&mut self, statement: &Parsed, runtime: &Handle) -> Result<(), SqlError> {
        let needs_transaction = || acts_in_transaction(statement) || statement.is_query_or_change();
        if !self.autocommit && needs_transaction() { self.begin(runtime) } else { Ok(()) }
    }

    /// Begins a transaction, unless one is open.
    fn begin(&mut self, runtime: &Handle) -> Result<(), SqlError> {
        let session = self.idle(runtime);
        if session.transaction_status() != TransactionStatus::Idle {
            return Ok(());
        }
        runtime.block_on(session.execute("BEGIN")).map(|_| ())
    }
}
