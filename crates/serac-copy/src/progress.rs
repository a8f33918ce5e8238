//! The progress of a COPY.

use std::sync::atomic::{AtomicU64, Ordering};

/// The progress of a COPY, which any thread can read.
#[derive(Debug, Default)]
pub struct CopyProgress {
    /// Rows copied.
    pub rows: AtomicU64,
    /// Bytes or rows of the input that are read.
    pub done: AtomicU64,
    /// The bytes or rows of all input; zero if unknown.
    pub total: AtomicU64,
}

impl CopyProgress {
    /// Rows copied.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// The input that is read, and all of the input (zero if unknown), in bytes or rows.
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
