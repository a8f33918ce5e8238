//! CUBIT: updatable bitmap indexes under the database's own snapshots (the CUBIT paper, appendix
//! §A–§C).
//!
//! One bitvector per value of a column (VB, value bitvector) says which rows have it. Updates,
//! deletes and inserts (UDIs) do not touch the vectors. A transaction collects its index changes
//! ([`Changes`]); when it commits, they become one entry (ULE), or several with bulk inserts, at
//! the end of the index's Delta Log. Queries read a version of the vectors and the log on top of
//! it. Merges move the settled part of the log into new versions: first beside the vectors, and
//! into new ones when there is enough of it.
//!
//! | module | |
//! |---|---|
//! | [`bitvector`], [`container`], `kernels` | sets of rows, one container per block, and their algebra |
//! | `leaf`, `version`, `directory` | value bitvectors of neighbouring values with their union, settled bits beside them, version chains in order of values |
//! | `delta`, `bulk`, `log` | HUDs, ULEs, bulk inserts, timestamp cells; the latch-free queue |
//! | `builder`, `build` | rows become leaves, and an index |
//! | `merge`, `merger`, `query`, `selected`, `statistics` | what is done with them |
//!
//! **The steps of a transaction.** It tells [`Changes`] of each row it writes, and passes them to
//! its own queries. To commit, it makes one [`TransactionCell`] (`TransactionCell::of`), calls
//! [`Cubit::publish`] for each index, and commits. To abort, it drops its changes.
//!
//! **Timestamps and helping (design decision 7).** In the paper an index has a clock of its own:
//! linking a ULE to the log is its commit, and the next thread to come helps to move TIMESTAMP,
//! N_ROWS and TAIL. Here the database has the clock, and the order of commits is decided in its
//! critical section, after the ULE is in the log. So a linked ULE is *open*: it points to its
//! transaction's cell. One store into that cell decides about all ULEs of the transaction in all
//! indexes. The three consequences:
//!
//! 1. *Visibility is the cell's, not the log's.* The cell is stamped before the clock is published.
//!    A snapshot that starts at or after the commit has read that clock, so it finds the ULE linked
//!    and stamped. An older one finds a timestamp beyond its start, or an open cell. Table and
//!    indexes therefore appear at one instant, whatever the order of the ULEs in the log. The index
//!    has cells of its own. An aborted version of a row gets a timestamp like a committed one (its
//!    before-image is back by then), while an aborted ULE must never be seen.
//! 2. *Log order is version order for each row*, and replaying needs no more. A transaction that
//!    updates a row must see its newest version (first updater wins), so that version's ULE was
//!    linked and stamped before. ULEs of different rows commute. Bits are absolute, so a replay
//!    over a version that has a part of them already gives the same answer: the last visible word
//!    on (value, row) decides. Bits that a version lacks (those of later commits) alternate for
//!    each value and row, because writers state a row's true old value. So merges and counts need
//!    not look a bit up to know its effect (debug builds do).
//! 3. *Helping needs nobody's fate.* At an append, TAIL is all that remains to be helped with.
//!    Merges are helped task by task (`merge`). They take the entries committed by the clock's time
//!    and carry the rest over. So an open ULE whose thread has stopped holds up neither UDIs nor
//!    merges nor queries.
//!
//! **Bounds.** UDIs that find [`Options::merge_threshold`] bits in the log wake the background
//! ([`Merger`]). Without a background thread, or with twice as many bits, they do a few tasks of a
//! merge. At four times as many they do all tasks that are not begun, at eight times also tasks
//! that are begun and not finished. So a query walks at most that many bits, those that concurrent
//! UDIs add meanwhile, and one entry per transaction that is just committing. Within an entry of a
//! large transaction it searches. Old versions are kept for running snapshots only: at most one per
//! snapshot and leaf, sharing what did not change.
//!
//! **CUBIT-lk** ([`Variant::Latched`]) is the same with a latch around appends and swings, for
//! comparison.
//!
//! Model: `serac-models/tests/cubit.rs`.

pub mod bitvector;
mod build;
mod builder;
mod bulk;
pub mod container;
mod delta;
mod directory;
mod fate;
mod kernels;
mod key;
mod leaf;
mod log;
mod merge;
mod merger;
mod progress;
mod query;
mod selected;
mod shared;
mod statistics;
#[cfg(test)]
mod tests;
mod version;

pub use bitvector::Bitvector;
pub use builder::Builder;
pub use delta::Changes;
pub use fate::TransactionCell;
pub use key::Key;
pub use merger::Merger;
pub use query::{Predicate, ReadView};
pub use selected::Selected;
pub use shared::Shared;
pub use statistics::Statistics;

use directory::{Bin, Directory};
use log::DeltaLog;
use merge::Plan;
use merger::Background;
use serac_storage::Timestamp;
use serac_storage::version::transaction::TransactionManager;
use serac_sync::Mutex;
use serac_sync::OnceLock;
use serac_sync::atomic::{AtomicU64, Ordering};
use serac_sync::epoch::Atomic;
use std::sync::Arc;

/// The synchronisation of UDIs and merges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Variant {
    /// CUBIT-lf: by helping.
    #[default]
    LatchFree,
    /// CUBIT-lk: by a latch.
    Latched,
}

/// The options of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The synchronisation of UDIs and merges.
    pub variant: Variant,
    /// Bits in the log from which on it is merged.
    pub merge_threshold: u64,
    /// Tasks of a merge (leaves) that a UDI does then.
    pub tasks_per_udi: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            variant: Variant::LatchFree,
            merge_threshold: serac_sync::limit("bits of a delta log", 512, 1),
            tasks_per_udi: 1,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    publications: AtomicU64,
    merges: AtomicU64,
    rounds: AtomicU64,
    helps: AtomicU64,
    /// Values in the newest leaves.
    values: AtomicU64,
}

/// A bitmap index. The header of this module describes its protocols.
pub struct Cubit {
    log: DeltaLog,
    directory: Directory,
    plan: Atomic<Plan>,
    /// Bins with old versions.
    listed: Mutex<Vec<Arc<Bin>>>,
    /// The oldest snapshot when these were looked at last.
    oldest: AtomicU64,
    /// Snapshots from here on can be answered; `u64::MAX` while the index is being built.
    valid_from: AtomicU64,
    /// For merges: the clock, and the running transactions.
    manager: Arc<TransactionManager>,
    options: Options,
    counters: Counters,
    background: OnceLock<Arc<Background>>,
}

impl std::fmt::Debug for Cubit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cubit").field("options", &self.options).field("statistics", &self.statistics()).finish()
    }
}

impl Cubit {
    /// An index over no rows.
    pub fn new(manager: Arc<TransactionManager>, options: Options) -> Self {
        Builder::default().finish(Timestamp::ZERO, manager, options)
    }

    /// Puts a transaction's changes of the index into the log, open until `cell` is stamped. Every
    /// transaction that shall see it must begin after that; so this comes before the commit.
    pub fn publish(&self, mut changes: Changes, cell: &Arc<TransactionCell>) {
        self.publish_all(&mut changes, cell);
    }

    /// As [`publish`](Self::publish); leaves `changes` empty, with memory for another transaction.
    pub fn publish_all(&self, changes: &mut Changes, cell: &Arc<TransactionCell>) {
        if changes.is_empty() {
            return;
        }
        let guard = serac_sync::epoch::pin();
        // Before the append, when the own entry is not yet in the way.
        let bits = self.log.length(&guard).0;
        // While the index is built, merging waits for the rows.
        if bits >= self.options.merge_threshold && !self.is_building() {
            self.merge_share(bits, &guard);
        }
        changes.drain(cell, |entry| self.log.append(entry, &guard));
        self.counters.publications.fetch_add(1, Ordering::Relaxed);
    }

    /// The oldest snapshot that the index can answer for; the largest number while it is being
    /// built.
    pub fn valid_from(&self) -> Timestamp {
        // Acquire: pairs with the Release of `load`.
        Timestamp(self.valid_from.load(Ordering::Acquire))
    }
}

impl Drop for Cubit {
    fn drop(&mut self) {
        // SAFETY: no other thread has the index any more.
        drop(unsafe { std::mem::replace(&mut self.plan, Atomic::null()).try_into_owned() });
    }
}
