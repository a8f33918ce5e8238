//! The names as production has them.

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::OnceLock;

/// Atomics.
pub mod atomic {
    pub use std::sync::atomic::*;
}

/// Deferred reclamation by epochs.
pub mod epoch {
    pub use crossbeam_epoch::*;
}

/// Threads.
pub mod thread {
    use std::sync::atomic::{AtomicUsize, Ordering};
    pub use std::thread::*;

    /// A number that the calling thread has alone: from zero, in the order in which threads first
    /// ask.
    pub fn ordinal() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: the numbers need only differ.
        std::thread_local!(static ORDINAL: usize = NEXT.fetch_add(1, Ordering::Relaxed));
        ORDINAL.with(|ordinal| *ordinal)
    }

    /// Starts a thread of `scope` that helps with the caller's work. If no thread can be started,
    /// the caller is alone, and must be able to do all of the work. A simulation refuses one of
    /// eight requests.
    pub fn spawn_helper<'scope, T: Send + 'scope>(
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> Option<ScopedJoinHandle<'scope, T>> {
        Builder::new().spawn_scoped(scope, work).ok()
    }
}

/// Clocks.
pub mod time {
    pub use std::time::{Duration, Instant};

    /// Time since the first call.
    pub fn uptime() -> Duration {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        START.elapsed()
    }
}

/// A place where a simulation may let another task go on; nothing in production. For steps that no
/// atomic operation marks: an operation of a file system, the middle of a copy out of memory that
/// others write to.
#[inline(always)]
pub fn point() {}

/// A place where a thread that loses its processor does the most harm: between a look and the steps
/// that depend on it. A simulation often lets the task stay here for long; nothing in production.
#[inline(always)]
pub fn linger() {}

/// A rare case for which a protocol has a step of its own. A simulation counts how often `happens`
/// returns true, so that its user sees which rare cases it reaches. In production `happens` is not
/// called.
#[inline(always)]
pub fn probe(name: &'static str, happens: impl FnOnce() -> bool) {
    let _ = (name, happens);
}

/// A limit or a threshold: `usual`. A simulation chooses a value for each execution, down to
/// `least`, so that the limit is often reached. `name` is the key of the choice.
#[inline(always)]
pub const fn limit(name: &'static str, usual: u64, least: u64) -> u64 {
    let _ = (name, least);
    usual
}

/// A hasher that outsiders cannot predict.
pub fn random_state() -> ahash::RandomState {
    ahash::RandomState::new()
}
