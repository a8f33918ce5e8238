//! Bulk build: the rows of a table, block by block, become leaves at once.
//!
//! To build beside running transactions: make the index with [`Cubit::building`], so that writers
//! can publish. Let the transactions end that do not know of it. Take a snapshot, and
//! [`load`](Cubit::load) its rows as of its start. A change that was published meanwhile and is
//! also in the snapshot does no harm (bits are absolute). Nothing is merged before the load.

use super::builder::Builder;
use super::directory::Directory;
use super::log::DeltaLog;
use super::{Cubit, Options, Variant};
use serac_storage::Timestamp;
use serac_storage::version::transaction::TransactionManager;
use serac_sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

impl Builder {
    /// An index over these rows, as of `ts`, without any published change.
    pub fn finish(self, ts: Timestamp, manager: Arc<TransactionManager>, options: Options) -> Cubit {
        let index = Cubit::building(manager, options);
        index.load(self, ts);
        index
    }
}

impl Cubit {
    /// An index that takes published changes and answers no query until it is loaded.
    pub fn building(manager: Arc<TransactionManager>, options: Options) -> Self {
        Self {
            log: DeltaLog::new(0, options.variant == Variant::Latched),
            directory: Directory::new(),
            plan: Default::default(),
            listed: Default::default(),
            oldest: Default::default(),
            valid_from: AtomicU64::new(u64::MAX),
            manager,
            options,
            counters: Default::default(),
            background: Default::default(),
        }
    }

    /// Gives an index that is being built its rows: all that a snapshot which started at `ts` sees.
    /// Snapshots from `ts` on can be answered then.
    ///
    /// # Panics
    /// If the index has been loaded before.
    pub fn load(&self, rows: Builder, ts: Timestamp) {
        assert!(self.is_building(), "an index is loaded once");
        let leaves = rows.into_leaves();
        // Relaxed: an estimate.
        self.counters.values.store(leaves.iter().map(|(_, leaf)| leaf.len() as u64).sum(), Ordering::Relaxed);
        self.directory.load(leaves, ts.0, &serac_sync::epoch::pin());
        // Release: pairs with the Acquire in `valid_from`; a thread that may query or merge sees
        // the leaves.
        self.valid_from.store(ts.0, Ordering::Release);
    }

    pub(crate) fn is_building(&self) -> bool {
        self.valid_from().0 == u64::MAX
    }
}
