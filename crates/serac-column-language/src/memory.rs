//! The memory of variables: what all clients hold together is bounded.

use crate::error::{OperatorError, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes variables hold, and may hold.
#[derive(Debug)]
pub struct Memory {
    used: AtomicU64,
    limit: u64,
}

impl Memory {
    /// Memory of which `limit` bytes may be held.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), limit })
    }
    /// Bytes held.
    pub fn used(&self) -> u64 {
        // Relaxed, here and below: a figure, which orders nothing.
        self.used.load(Ordering::Relaxed)
    }
    /// Says whether so many bytes more may be held: for what grows, and is not held yet.
    ///
    /// # Errors
    /// [`OperatorError::OutOfMemory`].
    pub fn check(&self, bytes: u64) -> Result<()> {
        if self.used().saturating_add(bytes) > self.limit { Err(self.refuse(bytes)) } else { Ok(()) }
    }
    fn refuse(&self, wanted: u64) -> OperatorError {
        OperatorError::OutOfMemory { wanted, limit: self.limit }
    }
    /// Takes bytes, for as long as the guard lives.
    ///
    /// # Errors
    /// [`OperatorError::OutOfMemory`].
    pub fn take(self: &Arc<Self>, bytes: u64) -> Result<Taken> {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Taken { memory: self.clone(), bytes }),
            Err(_) => Err(self.refuse(bytes)),
        }
    }
}

/// Bytes that are held.
#[derive(Debug)]
pub struct Taken {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
