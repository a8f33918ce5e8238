//! Code of the program that a statement calls in its middle: a reader of rows, a function, a
//! handler of a signal.
//!
//! The thread that runs such code belongs to the statement. If the code uses the statement's own
//! session, it would wait for itself: it gets an error ([`SessionId::check`]). It may use any other
//! session. The calls of that one block the thread, so the code runs where a thread of a runtime
//! may block ([`SessionId::amid`]).

use seracdb::SqlError;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// The sessions whose statements run on this thread, each within the one before.
    static RUNNING: RefCell<Vec<SessionId>> = const { RefCell::new(Vec::new()) };
}

/// A session of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionId(u64);

/// A statement of a session runs on this thread until this is dropped.
#[derive(Debug)]
pub struct Running {
    session: SessionId,
    /// It stays in its thread.
    _thread: PhantomData<*const ()>,
}

impl SessionId {
    /// A number that no other session has.
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: nothing but the number itself is shared.
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }

    /// Refuses to wait for the session in code that its own statement calls.
    ///
    /// # Errors
    /// 55006.
    pub fn check(self) -> Result<(), SqlError> {
        if !RUNNING.with_borrow(|running| running.contains(&self)) {
            return Ok(());
        }
        let message = "a statement of the connection is running, and waits for the code that uses it";
        let error = SqlError::new(sqlstate::OBJECT_IN_USE, message);
        Err(error.explained("Code that a statement calls, and whose rows it reads, needs another connection."))
    }

    /// Notes that a statement of the session runs on this thread.
    pub fn enter(self) -> Running {
        RUNNING.with_borrow_mut(|running| running.push(self));
        Running { session: self, _thread: PhantomData }
    }

    /// Runs code of the program in the middle of a statement of the session.
    pub fn amid<T>(self, code: impl FnOnce() -> T) -> T {
        let _running = self.enter();
        tokio::task::block_in_place(code)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(|running| {
            let own = running.iter().rposition(|session| *session == self.session);
            running.remove(own.expect("it was put there, and no other drop takes it"));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_refused_its_own_statement_alone() {
        let (one, other) = (SessionId::new(), SessionId::new());
        let running = one.enter();
        assert_eq!(one.check().unwrap_err().sqlstate, sqlstate::OBJECT_IN_USE);
        other.check().unwrap();
        other.amid(|| {
            assert!(one.check().is_err() && other.check().is_err());
            std::thread::spawn(move || one.check().unwrap()).join().unwrap();
        });
        other.check().unwrap();
        drop(running);
        one.check().unwrap();
    }

    #[test]
    fn a_panic_of_the_code_ends_it() {
        let session = SessionId::new();
        let panicked = std::panic::catch_unwind(|| session.amid(|| panic!("on purpose")));
        assert!(panicked.is_err());
        session.check().unwrap();
    }
}
