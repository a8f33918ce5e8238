//! The memory of variables, and of statements while they run. The bytes of all clients together are
//! bounded.

use crate::error::{OperatorError, Result};
use serac_engine::{EngineError, Watch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of bytes that variables hold, and may hold.
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

    /// Checks whether `bytes` more may be held, for memory that grows and is not taken yet.
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
        self.add(bytes)?;
        Ok(Taken { memory: self.clone(), bytes })
    }

    fn add(&self, bytes: u64) -> Result<()> {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        let added = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        added.map(drop).map_err(|_| self.refuse(bytes))
    }
}

/// Bytes that are held.
#[derive(Debug)]
pub struct Taken {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Taken {
    /// Grows to `bytes`, if that is more than before.
    ///
    /// # Errors
    /// [`OperatorError::OutOfMemory`].
    fn grow_to(&mut self, bytes: u64) -> Result<()> {
        self.memory.add(bytes.saturating_sub(self.bytes))?;
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Ends the running statement with an error once it is set. All long work checks it.
pub type Cancel = Arc<AtomicBool>;

/// Ends the engine's long work for a statement that is cancelled, or for which there is no memory.
/// The bytes that the work holds count until its transaction ends.
#[derive(Debug)]
pub(crate) struct StatementWatch {
    cancel: Cancel,
    taken: Mutex<Taken>,
}

impl StatementWatch {
    pub(crate) fn new(cancel: &Cancel, memory: &Arc<Memory>) -> Arc<Self> {
        let taken = Taken { memory: memory.clone(), bytes: 0 };
        Arc::new(Self { cancel: cancel.clone(), taken: Mutex::new(taken) })
    }
}

impl Watch for StatementWatch {
    fn go_on(&self, bytes: u64) -> Result<(), EngineError> {
        // Relaxed: whoever sets it waits for nothing that was done before.
        if self.cancel.load(Ordering::Relaxed) {
            return Err(EngineError::Cancelled);
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = taken.memory.limit;
        let wanted = bytes.saturating_sub(taken.bytes);
        taken.grow_to(bytes).map_err(|_| EngineError::OutOfMemory { wanted, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_long_work_holds_counts_until_it_ends() {
        let (cancel, memory) = (Cancel::default(), Memory::new(1_000));
        let variable = memory.take(300).unwrap();
        let watch = StatementWatch::new(&cancel, &memory);
        for (bytes, used) in [(0, 300), (400, 700), (100, 700), (700, 1_000)] {
            watch.go_on(bytes).unwrap();
            assert_eq!(memory.used(), used);
        }
        let refused = watch.go_on(701);
        assert!(matches!(refused, Err(EngineError::OutOfMemory { wanted: 1, limit: 1_000 })), "{refused:?}");
        assert_eq!(memory.used(), 1_000);
        cancel.store(true, Ordering::Relaxed);
        assert!(matches!(watch.go_on(0), Err(EngineError::Cancelled)));
        drop((watch, variable));
        assert_eq!(memory.used(), 0);
    }
}
