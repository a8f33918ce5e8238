//! The process in which a value was made. A child of `fork` has the memory of its parent, but none
//! of its threads: a database in it would wait for ever, and closing it there would write to the
//! parent's files. So such a value is refused in the child, and is not even dropped there.

use seracdb::SqlError;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

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

/// A static value of which each process has its own: in a child of a fork, locks of its parent's
/// may be held by threads that the child does not have.
#[derive(Debug)]
pub struct PerProcess<T>(AtomicPtr<OfProcess<T>>);

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    /// A value that is made when it is first wanted.
    #[expect(clippy::new_without_default, reason = "for statics alone")]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// The value of this process.
    pub fn get(&'static self) -> &'static T {
        loop {
            // Acquire: pairs with the Release below.
            let known = self.0.load(Ordering::Acquire);
            // SAFETY: what the pointer has ever pointed to is never freed.
            if let Some(value) = unsafe { known.as_ref() }
                && value.is_ours()
            {
                return value;
            }
            let own = Box::into_raw(Box::new(OfProcess::new(T::default())));
            // Release: pairs with the Acquire above.
            if self.0.compare_exchange(known, own, Ordering::Release, Ordering::Relaxed).is_err() {
                // SAFETY: it was just made, and no other thread has seen it.
                drop(unsafe { Box::from_raw(own) });
            }
        }
    }
}
