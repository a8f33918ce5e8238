//! The process in which a value was made. A child of `fork` has the memory of its parent, but none
//! of its threads: a database in it would wait for ever, and closing it there would write to the
//! parent's files. So such a value is refused in the child, and is not even dropped there.

use seracdb::SqlError;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of forks between the first process and this one. Relaxed: a child begins with one
/// thread, which has counted before it runs anything else.
static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Begins to count forks. Called before the first database is opened.
pub fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the function is there as long as the process: a library with threads of its own
        // is never unloaded. It does nothing that is not allowed in a child of a process with
        // threads.
        let result = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        assert_eq!(result, 0, "there is memory for a hook");
    });
}

/// A value that belongs to the process that has made it.
#[derive(Debug)]
pub struct OfProcess<T> {
    value: ManuallyDrop<T>,
    forks: u64,
}

impl<T> OfProcess<T> {
    /// The value, as one of this process.
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), forks: FORKS.load(Ordering::Relaxed) }
    }

    /// Whether this process has made it.
    pub fn is_ours(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// Refuses it in a child of the process that has made it.
    ///
    /// # Errors
    /// 08P01 in a child.
    pub fn check(&self) -> Result<(), SqlError> {
        if self.is_ours() {
            return Ok(());
        }
        Err(SqlError::new(
            sqlstate::PROTOCOL_VIOLATION,
            "this connection was opened before the process was forked: open a new one in the child process",
        ))
    }
}

impl<T> Deref for OfProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: it is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
