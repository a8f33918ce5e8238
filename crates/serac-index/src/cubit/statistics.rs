//! The columns of the `serac_indexes` view for an index.

use super::Cubit;
use super::fate::Fate;
use serac_sync::atomic::Ordering;
use std::collections::BTreeMap;

/// Figures of one index. The counts are of one moment each, not of one together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Values that have rows in the newest vectors.
    pub values: u64,
    /// Rows in the newest vectors.
    pub rows: u64,
    /// Bytes of the newest vectors and the directory.
    pub bytes: u64,
    /// Leaves.
    pub leaves: u64,
    /// Entries in the log.
    pub log_entries: u64,
    /// Bits in the log.
    pub log_bits: u64,
    /// Settled bits beside the newest vectors.
    pub pending_bits: u64,
    /// Publications so far: one for each transaction that has changed the index.
    pub publications: u64,
    /// Merge tasks done: one leaf each is merged, or freed of old versions.
    pub merges: u64,
    /// Merges of the whole log.
    pub rounds: u64,
    /// Merge tasks done by another thread than the one that planned them, and appends that found
    /// TAIL behind.
    pub helps: u64,
    /// The longest version chain.
    pub longest_chain: u64,
    /// Versions in all chains.
    pub versions: u64,
    /// The numbers of rows in the log or among the pending bits whose HUD has 0, 1, 2, 3 and more
    /// set bits: values whose bit differs from the newest vector (§C).
    pub hud_sizes: [u64; 4],
}

impl Cubit {
    /// Values that have rows in the newest vectors. Costs nothing, as
    /// [`leaf_count`](Self::leaf_count): planners ask again and again.
    pub fn value_count(&self) -> u64 {
        self.counters.values.load(Ordering::Relaxed)
    }

    /// About how many leaves there are, through which a question about all rows goes.
    pub fn leaf_count(&self) -> usize {
        self.directory.len() + 1
    }

    /// Figures of the index; walks it.
    pub fn statistics(&self) -> Statistics {
        let guard = &serac_sync::epoch::pin();
        // SAFETY: never null; alive while the guard is held.
        let anchor = unsafe { self.log.anchor(guard).deref() };
        let (log_bits, log_entries) = self.log.length(guard);
        let mut statistics = Statistics {
            bytes: self.directory.bytes(guard) as u64,
            log_entries: u64::from(log_entries),
            log_bits,
            publications: self.counters.publications.load(Ordering::Relaxed),
            merges: self.counters.merges.load(Ordering::Relaxed),
            rounds: self.counters.rounds.load(Ordering::Relaxed),
            helps: self.counters.helps.load(Ordering::Relaxed) + self.log.helps.load(Ordering::Relaxed),
            ..Statistics::default()
        };
        let mut last = BTreeMap::new();
        for chain in self.directory.chains_from(None, guard) {
            let newest = chain.newest();
            statistics.leaves += 1;
            statistics.values += newest.value_count();
            statistics.rows += newest.row_count();
            statistics.bytes += newest.bytes() as u64 + (size_of_val(chain) + size_of_val(&chain.versions[..])) as u64;
            statistics.versions += chain.versions.len() as u64;
            statistics.longest_chain = statistics.longest_chain.max(chain.versions.len() as u64);
            statistics.pending_bits += newest.pending().len() as u64;
            last.extend(newest.pending().iter().map(|bit| ((bit.row(), bit.key.clone()), bit.bit())));
        }
        self.log.walk(anchor, guard, |ule| {
            if let Fate::Committed(_) = ule.fate() {
                ule.for_each(|key, row, bit| {
                    last.insert((row, key.clone()), bit);
                });
            }
        });
        let mut huds: BTreeMap<u64, usize> = BTreeMap::new();
        for ((row, key), bit) in last {
            let newest = self.directory.locate(&key, guard).2.newest();
            let was = newest.leaf.get(&key).is_some_and(|vector| vector.contains(row));
            *huds.entry(row).or_default() += usize::from(was != bit);
        }
        huds.into_values().for_each(|ones| statistics.hud_sizes[ones.min(3)] += 1);
        statistics
    }
}
