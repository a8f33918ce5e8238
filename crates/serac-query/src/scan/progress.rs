//! How far the scans of a session's statement are, for progress bars.

use datafusion::execution::TaskContext;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The blocks that the scans of a statement read. All accesses are relaxed: they are figures.
#[derive(Debug, Default)]
pub struct ScanProgress {
    begun: AtomicU64,
    all: AtomicU64,
}

impl ScanProgress {
    /// The progress of the query's session.
    pub(super) fn of(context: &TaskContext) -> Option<Arc<Self>> {
        context.session_config().get_extension()
    }

    /// Blocks that were begun, and blocks of all scans that have begun. Later scans of the
    /// statement may add to both.
    pub fn blocks(&self) -> (u64, u64) {
        (self.begun.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed))
    }

    /// Forgets the last statement.
    pub fn restart(&self) {
        self.begun.store(0, Ordering::Relaxed);
        self.all.store(0, Ordering::Relaxed);
    }

    /// Notes a scan of so many blocks.
    pub(super) fn scan_begins(&self, blocks: u32) {
        self.all.fetch_add(blocks.into(), Ordering::Relaxed);
    }

    /// Notes that a block is begun.
    pub(super) fn block_begins(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }
}
