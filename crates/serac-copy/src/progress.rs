//! How far a COPY is.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far a COPY is, to be read from any thread.
#[derive(Debug, Default)]
pub struct CopyProgress {
    /// Rows copied.
    pub rows: AtomicU64,
    /// Bytes or rows of the input that are read.
    pub done: AtomicU64,
    /// How many there are; zero if that is unknown.
    pub total: AtomicU64,
}

impl CopyProgress {
    /// Rows copied.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
    /// How much of the input is read, and how much there is (zero if unknown), in bytes or rows.
    pub fn input(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
    /// Begins anew.
    pub fn restart(&self) {
        for figure in [&self.rows, &self.done, &self.total] {
            figure.store(0, Ordering::Relaxed);
        }
    }
}
