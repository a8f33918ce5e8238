//! The fate of transactions, as their entries in Delta Logs know it: one cell for each transaction,
//! to which all its entries point, of every index. So one store decides about all of them, inside
//! the commit's critical section: a snapshot that starts at the commit's timestamp or later finds
//! that timestamp in the cell.
//!
//! Model: `serac-models/tests/cubit.rs`.

use serac_storage::Timestamp;
use serac_sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

const OPEN: u64 = Timestamp::UNCOMMITTED_BIT;
const ABORTED: u64 = u64::MAX;

/// The fate of one transaction: open, committed at a timestamp, or aborted.
#[derive(Debug)]
pub struct TransactionCell(AtomicU64);

impl Default for TransactionCell {
    fn default() -> Self {
        Self(AtomicU64::new(OPEN))
    }
}

impl TransactionCell {
    /// Commits everything that points here. To be called before any snapshot of `ts` or later can
    /// begin.
    pub fn commit(&self, ts: Timestamp) {
        // Release: pairs with the Acquire in `get`; the clock's own Release follows it.
        self.0.store(ts.0, Ordering::Release);
    }

    /// Makes sure that nobody ever sees what points here.
    pub fn abort(&self) {
        // Release: as in `commit`.
        self.0.store(ABORTED, Ordering::Release);
    }

    fn get(&self) -> u64 {
        // Acquire: pairs with `commit`. A snapshot that could see the transaction began after the
        // clock had moved past the stamp, so it finds it.
        self.0.load(Ordering::Acquire)
    }
}

/// The fate of an entry's transaction, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Open,
    Committed(u64),
    Aborted,
}

/// An entry's way to its fate.
#[derive(Debug)]
pub(crate) struct EntryFate {
    cell: Arc<TransactionCell>,
    /// The content of the cell, once it is decided: spares readers the way to the cell.
    decided: AtomicU64,
}

impl Clone for EntryFate {
    fn clone(&self) -> Self {
        // Relaxed: as in `get`.
        Self { cell: self.cell.clone(), decided: AtomicU64::new(self.decided.load(Ordering::Relaxed)) }
    }
}

impl EntryFate {
    /// The fate of the transaction with the cell.
    pub(crate) fn of(cell: Arc<TransactionCell>) -> Self {
        Self { cell, decided: AtomicU64::new(OPEN) }
    }

    /// The fate of an entry that nobody ever sees.
    pub(crate) fn aborted() -> Self {
        Self { cell: Arc::default(), decided: AtomicU64::new(ABORTED) }
    }

    #[inline]
    pub(crate) fn get(&self) -> Fate {
        // Relaxed: the value is all that is read, and it was decided when it was copied here.
        let mut fate = self.decided.load(Ordering::Relaxed);
        if fate == OPEN {
            fate = self.cell.get();
            if fate != OPEN {
                self.decided.store(fate, Ordering::Relaxed);
            }
        }
        match fate {
            OPEN => Fate::Open,
            ABORTED => Fate::Aborted,
            ts => Fate::Committed(ts),
        }
    }
}
