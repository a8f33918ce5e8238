//! The names as a model has them: loom's, for the modules that models run. A thread of a model is a
//! coroutine, each atomic operation and each lock is a place where loom tries every other thread,
//! and a load may be given any value that its ordering allows.
//!
//! A model gets the sources of single modules, not crates: loom's atomics are larger than real ones
//! and cannot lie over raw memory, and there can be none outside an execution. So what is static in
//! production has no place here, and there are only the names that the models need.

pub mod atomic;
pub mod epoch;
mod lock;
mod once;

pub use lock::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use once::OnceLock;

/// Threads.
pub mod thread {
    pub use loom::thread::{JoinHandle, spawn, yield_now};
}

/// Clocks. They pass beside the model: nothing that threads do may follow from them.
pub mod time {
    pub use std::time::{Duration, Instant};
}

/// See production's: every place counts for loom.
#[inline(always)]
pub fn point() {}
/// See production's: loom stays everywhere.
#[inline(always)]
pub fn linger() {}
/// See production's: loom reaches every case.
#[inline(always)]
pub fn probe(name: &'static str, happens: impl FnOnce() -> bool) {
    let _ = (name, happens);
}
/// See production's: models are small, so it is `least`.
#[inline(always)]
pub const fn limit(name: &'static str, usual: u64, least: u64) -> u64 {
    let _ = (name, usual);
    least
}
