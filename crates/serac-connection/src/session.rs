//! A session that threads share, and the rows that its last query still gives.
//!
//! **The lock.** A thread locks the session for a statement, or for the next rows of a query. While
//! it has the lock, code of the program that the statement calls is refused the same session
//! ([`crate::nested`]).
//!
//! **Streams.** The rows of a query come as they are asked for. The next statement of the session
//! first moves the rest of the rows to the result that they belong to, or closes the stream if
//! nobody has that result any more.

use crate::database::DatabaseUse;
use crate::nested::{Running, SessionId};
use crate::process::OfProcess;
use crate::rows::QueryRows;
use crate::slot::{SessionSlot, Started};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use seracdb::{
    CancelHandle, Parsed, Prepared, ScalarValue, Session, SqlError, StatementResult, StatementStream,
    TransactionStatus, acts_in_transaction,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// Rows that a statement brings along when it returns, if they come at once.
const FIRST_ROWS: usize = 1_024;
/// The time in which more rows come at once.
const FIRST_PATIENCE: Duration = Duration::from_millis(1);
/// The time between two looks at rows that another thread may move.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A session that threads share.
pub struct SharedSession {
    state: OfProcess<Mutex<Option<State>>>,
    /// The use of the database; `None` once the session is closed. Beside the state, so that code
    /// which a statement calls can open another session.
    usage: OfProcess<Mutex<Option<DatabaseUse>>>,
    id: SessionId,
    cancel: CancelHandle,
    runtime: Handle,
    /// Whether each statement is a transaction of its own, outside of those that the user begins.
    /// Relaxed: it changes under the state's lock.
    autocommit: AtomicBool,
    /// Whether the session has been closed. Relaxed: the state under the lock decides.
    closed: AtomicBool,
}

struct State {
    slot: SessionSlot,
    /// The result whose rows the open stream gives.
    streaming: Weak<QueryRows>,
}

/// The session of a thread that has locked it.
pub struct Locked<'s> {
    session: &'s Arc<SharedSession>,
    state: MappedMutexGuard<'s, State>,
    _running: Running,
}

/// The result of a statement.
#[derive(Debug)]
pub enum Outcome {
    /// It gives no rows: how many it has changed, if it is a statement that counts them.
    Changed(Option<u64>),
    /// Its rows.
    Rows(Arc<QueryRows>),
}

/// The rows that a command has changed; `None` if it counts none, as CREATE TABLE. A command that
/// counts has the number in its tag, as "UPDATE 0".
fn counted(tag: &str, rows: u64) -> Option<u64> {
    tag.ends_with(|last: char| last.is_ascii_digit()).then_some(rows)
}

fn is_closed() -> SqlError {
    SqlError::new(sqlstate::CONNECTION_FAILURE, "the connection is closed")
}

impl fmt::Debug for SharedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSession").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SharedSession {
    /// A new session of a database, and what `prepare` has made of it before its first statement.
    pub fn new<T>(
        usage: DatabaseUse,
        id: SessionId,
        autocommit: bool,
        prepare: impl FnOnce(&mut Session) -> T,
    ) -> (Arc<Self>, T) {
        let mut slot = SessionSlot::new(usage.database());
        let runtime = usage.database().runtime().clone();
        let prepared = prepare(slot.session());
        let cancel = slot.session().cancel_handle();
        let state = OfProcess::new(Mutex::new(Some(State { slot, streaming: Weak::new() })));
        let usage = OfProcess::new(Mutex::new(Some(usage)));
        let (autocommit, closed) = (AtomicBool::new(autocommit), AtomicBool::new(false));
        (Arc::new(Self { state, usage, id, cancel, runtime, autocommit, closed }), prepared)
    }

    /// The runtime of the database.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Cancels the session's statements, from any thread.
    pub fn cancel_handle(&self) -> &CancelHandle {
        &self.cancel
    }

    /// The session, for code that its statements call.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whether each statement is a transaction of its own, outside of those that the user begins.
    /// It does not change while the caller has the session.
    pub fn autocommit(&self) -> bool {
        self.autocommit.load(Ordering::Relaxed)
    }

    /// Whether the session has been closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Refuses a closed session, and one of another process.
    ///
    /// # Errors
    /// 08006 and 08P01.
    pub fn check_open(&self) -> Result<(), SqlError> {
        self.state.check()?;
        if self.is_closed() { Err(is_closed()) } else { Ok(()) }
    }

    /// Refuses, besides, code that a statement of the session calls.
    ///
    /// # Errors
    /// 08006, 08P01 and 55006.
    pub fn check(&self) -> Result<(), SqlError> {
        self.check_open()?;
        self.id.check()
    }

    fn locked<'s>(self: &'s Arc<Self>, guard: MutexGuard<'s, Option<State>>) -> Result<Locked<'s>, SqlError> {
        let state = MutexGuard::try_map(guard, Option::as_mut).map_err(|_| is_closed())?;
        Ok(Locked { session: self, state, _running: self.id.enter() })
    }

    /// Locks the session, once no other thread has it.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn lock(self: &Arc<Self>) -> Result<Locked<'_>, SqlError> {
        self.check()?;
        self.locked(self.state.lock())
    }

    /// Locks the session if no other thread has it.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn try_lock(self: &Arc<Self>) -> Result<Option<Locked<'_>>, SqlError> {
        self.check()?;
        self.state.try_lock().map(|guard| self.locked(guard)).transpose()
    }

    /// Waits until no other thread has the session, for a time.
    pub fn wait_for_lock(&self, time: Duration) {
        drop(self.state.try_lock_for(time));
    }

    /// Moves the next rows of a query to their result.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn advance(self: &Arc<Self>, rows: &QueryRows) -> Result<(), SqlError> {
        self.check()?;
        // A statement that has the session has moved all rows to their result at first. It is not
        // waited for: it may wait for the caller, who reads these rows for it.
        while !rows.has_ended() {
            if let Some(guard) = self.state.try_lock_for(BETWEEN_LOOKS) {
                self.locked(guard)?.advance(rows);
                break;
            }
        }
        Ok(())
    }

    /// Ends the stream of a result that nobody wants any more, if that takes no waiting.
    pub(crate) fn abandon(&self, rows: &QueryRows) {
        if self.state.is_ours()
            && let Some(mut state) = self.state.try_lock()
            && let Some(state) = state.as_mut()
            && std::ptr::eq(state.streaming.as_ptr(), rows)
        {
            state.close_stream();
        }
    }

    /// One more use of the database, for another session. May wait for databases that are being
    /// opened.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn another_use(&self) -> Result<DatabaseUse, SqlError> {
        self.usage.check()?;
        self.usage.lock().as_ref().map(DatabaseUse::another).ok_or_else(is_closed)
    }

    /// Closes the session: its transaction is rolled back, and the database is closed if this was
    /// the last use of it. Rows that have not been moved cannot be read any more.
    ///
    /// # Errors
    /// If the log or the last checkpoint cannot be written; 08P01 and 55006.
    pub fn close(&self) -> Result<(), SqlError> {
        self.state.check()?;
        self.id.check()?;
        self.closed.store(true, Ordering::Relaxed);
        if let Some(State { mut slot, streaming }) = self.state.lock().take() {
            if let Some(rows) = streaming.upgrade() {
                rows.end_by_closing();
            }
            slot.close_stream();
        }
        let usage = self.usage.lock().take();
        usage.map_or(Ok(()), DatabaseUse::close)
    }
}

impl State {
    fn close_stream(&mut self) {
        self.slot.close_stream();
        self.streaming = Weak::new();
    }
}

impl Locked<'_> {
    /// The session, for a new statement: the rows of the last query move to their result.
    pub fn idle(&mut self) -> &mut Session {
        let state = &mut *self.state;
        if let Some(stream) = state.slot.stream() {
            if let Some(rows) = state.streaming.upgrade() {
                rows.take_all(|| self.session.runtime.block_on(stream.next()));
            }
            state.close_stream();
        }
        state.slot.session()
    }

    /// The session, if no stream is open.
    pub fn idle_now(&mut self) -> Option<&mut Session> {
        if self.state.slot.stream().is_some() { None } else { Some(self.state.slot.session()) }
    }

    /// Sets whether each statement is a transaction of its own.
    pub fn set_autocommit(&mut self, autocommit: bool) {
        self.session.autocommit.store(autocommit, Ordering::Relaxed);
    }

    /// Begins a transaction, unless one is open or each statement is one.
    ///
    /// # Errors
    /// If it cannot begin.
    pub fn begin_if_needed(&mut self) -> Result<(), SqlError> {
        if self.session.autocommit() || self.idle().transaction_status() != TransactionStatus::Idle {
            return Ok(());
        }
        let session = self.session;
        session.runtime.block_on(self.idle().execute("BEGIN")).map(drop)
    }

    /// The same before a statement that reads or writes rows. Reads, too: what is written later may
    /// rest on them.
    ///
    /// # Errors
    /// If it cannot begin.
    pub fn begin_for(&mut self, statement: &Parsed) -> Result<(), SqlError> {
        if begins_transaction(statement) { self.begin_if_needed() } else { Ok(()) }
    }

    /// Runs one statement without parameters, and gives the rows of a query as they come.
    ///
    /// # Errors
    /// That of the statement.
    pub fn run(&mut self, statement: Parsed) -> Result<Outcome, SqlError> {
        self.begin_for(&statement)?;
        self.start(|session, runtime| runtime.block_on(session.stream_statement(statement)))
    }

    /// The same of a prepared statement, on the path for any.
    ///
    /// # Errors
    /// That of the statement.
    pub fn run_prepared(&mut self, prepared: &mut Prepared, parameters: &[ScalarValue]) -> Result<Outcome, SqlError> {
        self.begin_for(prepared.parsed())?;
        self.start(|session, runtime| runtime.block_on(session.stream_prepared(prepared, parameters)))
    }

    fn start(
        &mut self,
        run: impl for<'s> FnOnce(&'s mut Session, &Handle) -> Result<StatementStream<'s>, SqlError>,
    ) -> Result<Outcome, SqlError> {
        self.idle();
        let (state, runtime) = (&mut *self.state, &self.session.runtime);
        if let Started::Ended(tag, rows) = state.slot.start(|session| run(session, runtime))? {
            return Ok(Outcome::Changed(counted(&tag, rows)));
        }
        let stream = state.slot.stream().expect("it gives rows");
        let rows = QueryRows::streamed(self.session, stream.schema().clone());
        // The first rows come with the statement, so that most errors are the statement's, and a
        // short result ends it.
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
            None => Ok(Outcome::Rows(rows)),
        }
    }

    /// The outcome of a statement that has ended.
    pub fn outcome_of(&self, result: StatementResult) -> Outcome {
        match result {
            StatementResult::Command { tag, rows } => Outcome::Changed(counted(&tag, rows)),
            StatementResult::Rows { schema, batches, .. } => self.outcome_of_rows(schema, batches),
        }
    }

    /// The same of one whose rows have all come.
    pub fn outcome_of_rows(&self, schema: SchemaRef, batches: Vec<RecordBatch>) -> Outcome {
        Outcome::Rows(QueryRows::whole(self.session, schema, batches))
    }

    /// Moves the next rows to `rows`, if its stream is open. Another statement may have moved all
    /// of them meanwhile.
    fn advance(&mut self, rows: &QueryRows) {
        let state = &mut *self.state;
        if !std::ptr::eq(state.streaming.as_ptr(), rows) {
            return;
        }
        if let Some(stream) = state.slot.stream() {
            rows.take_one(|| self.session.runtime.block_on(stream.next()));
        }
        if rows.has_ended() {
            state.close_stream();
        }
    }
}

/// Whether a statement begins a transaction where each statement is not one.
pub fn begins_transaction(statement: &Parsed) -> bool {
    acts_in_transaction(statement) || statement.is_query_or_change()
}
