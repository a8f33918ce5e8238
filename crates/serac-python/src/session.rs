//! What the objects of a connection share: its session, one statement at a time.
//!
//! **The lock.** A thread locks the session for a statement, or for the next rows of a query. No
//! thread waits for it while it has Python's lock: [`Core::lock`] lets Python's lock go before it
//! waits. So a thread that has locked the session may take Python's lock, to look at signals or to
//! read rows that Python code makes. If that code uses the same connection, its thread would wait
//! for itself: it gets an error (55006).
//!
//! **Streams.** The rows of a query come as they are asked for. The next statement of the
//! connection needs the session: it first moves the rest of the rows to the result that they belong
//! to, or closes the stream if nobody has that result any more.

use crate::database::DatabaseUse;
use crate::error::{self, IntoPython};
use crate::process::OfProcess;
use crate::rows::QueryRows;
use crate::slot::{SessionSlot, Started};
use crate::wait;
use crate::work::Work;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use pyo3::prelude::*;
use seracdb::{
    CancelHandle, Parsed, Prepared, ScalarValue, Session, SqlError, StatementStream, TransactionStatus,
    acts_in_transaction,
};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// Rows that a statement brings along when it returns, if they come at once.
const FIRST_ROWS: usize = 1_024;
/// The time in which more rows come at once.
const FIRST_PATIENCE: Duration = Duration::from_millis(1);

/// A connection's shared part.
pub struct Core {
    state: OfProcess<Mutex<Option<State>>>,
    /// The thread that has locked the state, as [`this_thread`] tells it; 0 for none. Relaxed: a
    /// thread compares it with what it has written itself.
    holder: AtomicUsize,
    /// `None` once the connection is closed.
    usage: OfProcess<Mutex<Option<DatabaseUse>>>,
    cancel: CancelHandle,
    runtime: Handle,
    work: Work,
    /// Whether each statement is a transaction of its own, outside of those that the user begins.
    /// Relaxed: it changes under the state's lock.
    autocommit: AtomicBool,
    /// Whether the connection has been closed. Relaxed: the state under the lock decides.
    closed: AtomicBool,
}

/// A session and what belongs to it.
pub struct State {
    slot: SessionSlot,
    /// The result whose rows the open stream gives.
    streaming: Weak<QueryRows>,
}

/// The state, locked.
pub struct Locked<'c> {
    state: MappedMutexGuard<'c, State>,
    holder: &'c AtomicUsize,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Before the lock goes, with the field.
        self.holder.store(0, Ordering::Relaxed);
    }
}

/// A number of the thread, which no other thread that lives has.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// The result of a statement.
pub enum Outcome {
    /// It gives no rows: how many it has changed, if it is a statement that counts them.
    Changed(Option<u64>),
    /// Its rows.
    Rows(Arc<QueryRows>),
}

fn is_closed() -> PyErr {
    error::interface("the connection is closed")
}

impl Core {
    /// A new session. One that is `read_only` stays so.
    pub fn new(usage: DatabaseUse, autocommit: bool, read_only: bool) -> Arc<Self> {
        let mut slot = SessionSlot::new(usage.database());
        let runtime = usage.database().runtime().clone();
        if read_only {
            slot.session().only_read();
        }
        let (cancel, work) = (slot.session().cancel_handle(), Work::of(slot.session()));
        let state = State { slot, streaming: Weak::new() };
        let (state, usage) = (OfProcess::new(Mutex::new(Some(state))), OfProcess::new(Mutex::new(Some(usage))));
        let (autocommit, closed) = (AtomicBool::new(autocommit), AtomicBool::new(false));
        Arc::new(Self { state, holder: AtomicUsize::new(0), usage, cancel, runtime, work, autocommit, closed })
    }

    /// The runtime of the database.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Cancels the session's statements.
    pub fn cancel_handle(&self) -> &CancelHandle {
        &self.cancel
    }

    /// What the session's statements are doing.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Whether each statement is a transaction of its own, outside of those that the user begins.
    /// It does not change while the caller has the session.
    pub fn autocommit(&self) -> bool {
        self.autocommit.load(Ordering::Relaxed)
    }

    /// Sets that, for a caller who has the session.
    pub fn set_autocommit(&self, autocommit: bool) {
        self.autocommit.store(autocommit, Ordering::Relaxed);
    }

    /// Whether the connection has been closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Refuses a closed connection, and one of another process.
    pub fn check(&self) -> PyResult<()> {
        self.state.check()?;
        if self.is_closed() { Err(is_closed()) } else { Ok(()) }
    }

    /// Refuses to wait in the thread that has the session.
    fn check_holder(&self) -> Result<(), SqlError> {
        if self.holder.load(Ordering::Relaxed) != this_thread() {
            return Ok(());
        }
        let message = "a statement of the connection is running, and waits for the code that uses it";
        let error = SqlError::new(sqlstate::OBJECT_IN_USE, message);
        Err(error.explained("Handlers of signals, and iterators that a statement reads, need another connection."))
    }

    /// The state under its lock; `None` of a closed connection.
    fn locked<'c>(&'c self, guard: MutexGuard<'c, Option<State>>) -> Option<Locked<'c>> {
        let state = MutexGuard::try_map(guard, Option::as_mut).ok()?;
        self.holder.store(this_thread(), Ordering::Relaxed);
        Some(Locked { state, holder: &self.holder })
    }

    /// The session, for what does not wait. Lets go of Python's lock if another thread has it.
    pub fn lock(&self, py: Python<'_>) -> PyResult<Locked<'_>> {
        self.state.check()?;
        self.check_holder().python(py)?;
        loop {
            if let Some(guard) = self.state.try_lock() {
                return self.locked(guard).ok_or_else(is_closed);
            }
            let state = &*self.state;
            py.detach(|| drop(state.try_lock_for(wait::BETWEEN_LOOKS)));
            // Ctrl-C ends the wait for another thread's statement.
            py.check_signals()?;
        }
    }

    /// Does the work of a statement.
    ///
    /// # Errors
    /// The error of the work, or the exception that a signal's handler raised.
    pub fn run<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        work: impl FnOnce(&mut State, &Handle) -> Result<T, SqlError> + Send + 'static,
    ) -> PyResult<T> {
        self.work.begins();
        self.check()?;
        self.check_holder().python(py)?;
        let _computing = self.work.computes();
        let core = self.clone();
        let done = wait::elsewhere(py, &self.runtime, &self.cancel, move || {
            // Closed by another thread meanwhile.
            let Some(mut state) = core.locked(core.state.lock()) else { return Ok(None) };
            work(&mut state, &core.runtime).map(Some)
        })?;
        done.ok_or_else(is_closed)
    }

    /// Moves the next rows of a query to their result.
    ///
    /// # Errors
    /// The exception that a signal's handler raised.
    pub fn advance(self: &Arc<Self>, py: Python<'_>, rows: &Arc<QueryRows>) -> PyResult<()> {
        self.check()?;
        self.check_holder().python(py)?;
        let _computing = self.work.computes();
        let (core, rows) = (self.clone(), rows.clone());
        wait::elsewhere(py, &self.runtime, &self.cancel, move || {
            // A statement that has the session has moved all rows to their result at first. It is
            // not waited for: it may wait for the caller, who reads these rows for it.
            while !rows.has_ended() {
                let Some(guard) = core.state.try_lock_for(wait::BETWEEN_LOOKS) else { continue };
                if let Some(mut state) = core.locked(guard) {
                    state.advance(&rows, &core.runtime);
                }
                break;
            }
            Ok(())
        })
    }

    /// One more use of the database, for another connection. Waits for databases that are being
    /// opened, so it is called without Python's lock.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn another_use(&self) -> Result<DatabaseUse, SqlError> {
        match &*self.usage.lock() {
            Some(usage) => Ok(usage.another()),
            None => Err(SqlError::new(sqlstate::CONNECTION_FAILURE, "the connection is closed")),
        }
    }

    /// Closes the connection: its transaction is rolled back, and the database is closed if this
    /// was the last connection to its folder.
    ///
    /// # Errors
    /// If the log or the last checkpoint cannot be written.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.state.check()?;
        self.check_holder().python(py)?;
        self.closed.store(true, Ordering::Relaxed);
        let (state, usage) = (&*self.state, &*self.usage);
        let closed = py.detach(|| {
            if let Some(State { mut slot, streaming, .. }) = state.lock().take() {
                if let Some(result) = streaming.upgrade() {
                    result.end_by_closing();
                }
                slot.close_stream();
            }
            let usage = usage.lock().take();
            usage.map_or(Ok(()), DatabaseUse::close)
        });
        closed.python(py)
    }

    /// Ends the stream of a result that nobody wants any more, if that takes no waiting.
    pub fn abandon(&self, result: &QueryRows) {
        if self.state.is_ours()
            && let Some(mut state) = self.state.try_lock()
            && let Some(state) = state.as_mut()
            && std::ptr::eq(state.streaming.as_ptr(), result)
        {
            state.slot.close_stream();
            state.streaming = Weak::new();
        }
    }
}

impl State {
    /// Whether a query's rows still come.
    pub fn is_streaming(&mut self) -> bool {
        self.slot.stream().is_some()
    }

    /// The session, for a new statement: the rows of the last query move to their result.
    pub fn idle(&mut self, runtime: &Handle) -> &mut Session {
        if let Some(stream) = self.slot.stream() {
            if let Some(result) = self.streaming.upgrade() {
                result.take_all(|| runtime.block_on(stream.next()));
            }
            self.slot.close_stream();
            self.streaming = Weak::new();
        }
        self.slot.session()
    }

    /// The session without a stream, if no stream is open.
    pub fn idle_now(&mut self) -> Option<&mut Session> {
        if self.is_streaming() { None } else { Some(self.slot.session()) }
    }

    /// Begins a transaction before a statement that a rollback would undo, unless one is open or
    /// each statement is one.
    ///
    /// # Errors
    /// If it cannot begin.
    pub fn begin_for(&mut self, core: &Core, statement: &Parsed) -> Result<(), SqlError> {
        if !core.autocommit() && acts_in_transaction(statement) { self.begin(&core.runtime) } else { Ok(()) }
    }

    /// Begins a transaction, unless one is open.
    ///
    /// # Errors
    /// If it cannot begin.
    pub fn begin(&mut self, runtime: &Handle) -> Result<(), SqlError> {
        let session = self.idle(runtime);
        if session.transaction_status() != TransactionStatus::Idle {
            return Ok(());
        }
        runtime.block_on(session.execute("BEGIN")).map(|_| ())
    }

    /// Runs a statement, and gives the rows of a query as they come.
    fn start(
        &mut self,
        core: &Arc<Core>,
        run: impl for<'s> FnOnce(&'s mut Session) -> Result<StatementStream<'s>, SqlError>,
    ) -> Result<Outcome, SqlError> {
        self.idle(&core.runtime);
        match self.slot.start(run)? {
            Started::Ended(changed) => Ok(Outcome::Changed(changed)),
            Started::Rows => {
                let stream = self.slot.stream().expect("it gives rows");
                let rows = Arc::new(QueryRows::new(core, stream.schema().clone()));
                self.streaming = Arc::downgrade(&rows);
                // The first rows come with the statement, so that a short result needs no second
                // turn.
                let mut taken = rows.take_one(|| core.runtime.block_on(stream.next()));
                let mut all = 0;
                while let Some(more) = taken
                    && all + more < FIRST_ROWS
                    && core.runtime.block_on(stream.is_ready(FIRST_PATIENCE))
                {
                    all += more;
                    taken = rows.take_one(|| core.runtime.block_on(stream.next()));
                }
                if rows.has_ended() {
                    self.slot.close_stream();
                    self.streaming = Weak::new();
                }
                let failure = rows.failure().lock().clone();
                match failure {
                    // It has failed before it gave a row.
                    Some(failure) if rows.is_empty() => Err(failure),
                    _ => Ok(Outcome::Rows(rows)),
                }
            }
        }
    }

    /// Runs one statement without parameters.
    ///
    /// # Errors
    /// That of the statement.
    pub fn run_statement(&mut self, core: &Arc<Core>, statement: Parsed) -> Result<Outcome, SqlError> {
        self.begin_for(core, &statement)?;
        let runtime = core.runtime.clone();
        self.start(core, |session| runtime.block_on(session.stream_statement(statement)))
    }

    /// Runs a prepared statement on the path for any.
    ///
    /// # Errors
    /// That of the statement.
    pub fn run_prepared(
        &mut self,
        core: &Arc<Core>,
        prepared: &mut Prepared,
        parameters: &[ScalarValue],
    ) -> Result<Outcome, SqlError> {
        self.begin_for(core, prepared.parsed())?;
        let runtime = core.runtime.clone();
        self.start(core, |session| runtime.block_on(session.stream_prepared(prepared, parameters)))
    }

    /// Moves the next rows to `result`, if its stream is open.
    pub fn advance(&mut self, result: &QueryRows, runtime: &Handle) {
        if !std::ptr::eq(self.streaming.as_ptr(), result) {
            // Another statement has taken all of them meanwhile.
            return;
        }
        if let Some(stream) = self.slot.stream() {
            result.take_one(|| runtime.block_on(stream.next()));
        }
        if result.has_ended() {
            self.slot.close_stream();
            self.streaming = Weak::new();
        }
    }
}
