//! A session together with the rows that its last query still gives, which borrow it.

use seracdb::{RowStream, Session, SqlDatabase, SqlError, StatementStream};
use std::ptr::NonNull;

/// The state of a statement that has been started.
pub enum Started {
    /// It has ended: its tag, and the rows that it changed or found.
    Ended(String, u64),
    /// It gives rows: the slot streams them.
    Rows,
}

/// A session, and the open stream of its query's rows, if there is one.
pub struct SessionSlot {
    /// Borrows the session behind `session`.
    stream: Option<RowStream<'static>>,
    /// Made by `Box::into_raw`, owned by the slot. Reached through `stream` alone while there is
    /// one.
    session: NonNull<Session>,
}

/// What the slot consists of may move between threads.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Session>();
    is_send::<RowStream<'static>>();
};

// SAFETY: the pointer is the slot's own, so the slot moves between threads as a session does.
unsafe impl Send for SessionSlot {}

impl SessionSlot {
    /// A new session.
    pub fn new(database: &SqlDatabase) -> Self {
        let session = Box::into_raw(Box::new(Session::new(database)));
        Self { stream: None, session: NonNull::new(session).expect("a box has an address") }
    }

    /// The session.
    ///
    /// # Panics
    /// If a stream is open.
    pub fn session(&mut self) -> &mut Session {
        self.check_idle();
        // SAFETY: the slot owns the session, and no stream borrows it.
        unsafe { self.session.as_mut() }
    }

    fn check_idle(&self) {
        assert!(self.stream.is_none(), "the stream of the session's last query is open");
    }

    /// Runs a statement. The slot keeps the stream of its rows.
    ///
    /// # Errors
    /// That of the statement.
    ///
    /// # Panics
    /// If a stream is open.
    pub fn start(
        &mut self,
        run: impl for<'s> FnOnce(&'s mut Session) -> Result<StatementStream<'s>, SqlError>,
    ) -> Result<Started, SqlError> {
        self.check_idle();
        // SAFETY: the slot owns the session, and no stream borrows it. `run` cannot keep the
        // reference but in the stream that it returns, because it takes one of any lifetime. The
        // session lives at its address until the slot is dropped. `drop` drops the stream before
        // it, and until then `check_idle` refuses a second reference.
        let session: &'static mut Session = unsafe { self.session.as_mut() };
        match run(session)? {
            StatementStream::Command { tag, rows } => Ok(Started::Ended(tag, rows)),
            StatementStream::Rows(rows) => {
                self.stream = Some(rows);
                Ok(Started::Rows)
            }
        }
    }

    /// The open stream.
    pub fn stream(&mut self) -> Option<&mut RowStream<'static>> {
        self.stream.as_mut()
    }

    /// Closes the stream, which ends its statement.
    pub fn close_stream(&mut self) {
        self.stream = None;
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.stream = None;
        // SAFETY: it was made by `Box::into_raw`, and nothing borrows it any more.
        drop(unsafe { Box::from_raw(self.session.as_ptr()) });
    }
}
