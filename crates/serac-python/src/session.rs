//! What the objects of a connection share: its session, one statement at a time.
//!
//! **The lock.** No thread waits for the session while it has Python's lock: [`Core::lock`] lets
//! that go before it waits. So a thread that has locked the session may take Python's lock, to look
//! at signals or to read rows that Python code makes. If that code uses the same connection, it
//! gets an error ([`SessionId`](serac_connection::SessionId)).

use crate::ending;
use crate::error::IntoPython;
use crate::frames::Frames;
use crate::functions::Functions;
use crate::wait;
use crate::work::Work;
use pyo3::prelude::*;
use serac_connection::{DatabaseUse, Locked, QueryRows, SessionId, SharedSession};
use seracdb::SqlError;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The frames and functions that a program lends the statements of a session.
pub struct Lent {
    id: SessionId,
    /// The frames that they find.
    pub frames: Arc<Frames>,
    /// The objects of the functions that they call.
    pub functions: Arc<Functions>,
}

impl Lent {
    /// Nothing, for a new session. `scans_variables`: whether its statements find the variables of
    /// the code that runs them.
    pub fn new(py: Python<'_>, scans_variables: bool) -> Self {
        let id = SessionId::new();
        Self { id, frames: Frames::new(py, id, scans_variables), functions: Functions::new(py, id) }
    }
}

/// A connection's shared part.
pub struct Core {
    session: Arc<SharedSession>,
    lent: Lent,
    work: Work,
}

impl Core {
    /// A new session. One that is `read_only` stays so.
    pub fn new(usage: DatabaseUse, lent: Lent, autocommit: bool, read_only: bool) -> Arc<Self> {
        let (session, work) = SharedSession::new(usage, lent.id, autocommit, |session| {
            session.lend_frames(lent.frames.clone());
            if read_only {
                session.only_read();
            }
            Work::of(session)
        });
        ending::note(&session);
        Arc::new(Self { session, lent, work })
    }

    /// The session.
    pub fn session(&self) -> &Arc<SharedSession> {
        &self.session
    }

    /// The frames and functions that the program lends the session's statements.
    pub fn lent(&self) -> &Lent {
        &self.lent
    }

    /// What the session's statements are doing.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Refuses a closed connection, and one of another process.
    pub fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.session.check_open().python(py)
    }

    /// The session, for work that does not wait. Lets go of Python's lock if another thread has it.
    pub fn lock(&self, py: Python<'_>) -> PyResult<Locked<'_>> {
        loop {
            if let Some(locked) = self.session.try_lock().python(py)? {
                return Ok(locked);
            }
            ending::released(py, || self.session.wait_for_lock(wait::BETWEEN_LOOKS));
            // Ctrl-C ends the wait for another thread's statement.
            py.check_signals()?;
        }
    }

    /// Does the work of a statement.
    ///
    /// # Errors
    /// The error of the work, or the exception that a signal's handler raised.
    pub fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Locked<'_>, &Handle) -> Result<T, SqlError> + Send + 'static,
    ) -> PyResult<T> {
        self.work.begins();
        // Before another thread does the work, which is not the statement's.
        self.session.check().python(py)?;
        let _computing = self.work.computes();
        let session = self.session.clone();
        wait::elsewhere(py, &self.session, move || work(&mut session.lock()?, session.runtime()))
    }

    /// Does the work of a statement that may find variables of the code that runs it.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn run_for_caller<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Locked<'_>, &Handle) -> Result<T, SqlError> + Send + 'static,
    ) -> PyResult<T> {
        let Some(caller) = self.lent.frames.caller(py)? else { return self.run(py, work) };
        let (frames, of_statement) = (self.lent.frames.clone(), caller.clone());
        let done = self.run(py, move |locked, runtime| {
            let _statement = frames.begin(of_statement);
            work(locked, runtime)
        });
        caller.end(py);
        done
    }

    /// Moves the next rows of a query to their result.
    ///
    /// # Errors
    /// The exception that a signal's handler raised.
    pub fn advance(&self, py: Python<'_>, rows: &Arc<QueryRows>) -> PyResult<()> {
        self.session.check().python(py)?;
        let _computing = self.work.computes();
        let (session, rows) = (self.session.clone(), rows.clone());
        wait::elsewhere(py, &self.session, move || session.advance(&rows))
    }

    /// Closes the connection: its transaction is rolled back, and the database is closed if this
    /// was the last connection to its folder.
    ///
    /// # Errors
    /// If the log or the last checkpoint cannot be written.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        ending::released(py, || self.session.close()).python(py)
    }
}
