//! The ordered directory of values: bins, each with the version chain of one leaf.
//!
//! A bin covers the values from its `low` up to its chain's `high`, where the bin to the `right`
//! begins (a B-link list). A chain is one immutable object, swung by one compare-and-swap: the
//! versions, newest first, and the right end. So a merge that splits its leaf puts the upper part
//! into a bin of its own and publishes both with the same swing. The bin's entry in the directory
//! only shortens the way; a thread that walks to the right adds it.

use super::bulk::Bulk;
use super::key::Key;
use super::leaf::Leaf;
use super::version::{Change, Version};
use crossbeam_skiplist::base::SkipList;
use serac_storage::Timestamp;
use serac_storage::version::transaction::Readers;
use serac_sync::atomic::{AtomicBool, Ordering};
use serac_sync::epoch::{Atomic, Guard, Owned, Shared};
use std::ops::Bound;
use std::sync::Arc;

/// The immutable object to which a bin points.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Newest first; never empty.
    pub(crate) versions: Box<[Version]>,
    pub(crate) high: Option<Key>,
    pub(crate) right: Option<Arc<Bin>>,
}

/// Drops the versions that no snapshot needs.
fn drop_unneeded(versions: &mut Vec<Version>, readers: &Readers) {
    let mut newer = u64::MAX;
    versions.retain(|version| {
        let needed = readers.may_see(Timestamp(version.ts), Timestamp(newer));
        newer = version.ts;
        needed
    });
}

/// A place for one leaf.
#[derive(Debug)]
pub(crate) struct Bin {
    pub(crate) low: Option<Key>,
    chain: Atomic<Chain>,
    /// Whether the bin is in the list of those with old versions.
    pub(crate) listed: AtomicBool,
}

impl Chain {
    #[inline]
    pub(crate) fn covers(&self, key: &Key) -> bool {
        self.high.as_ref().is_none_or(|high| key < high)
    }

    /// The newest version that is not newer than the snapshot.
    #[inline]
    pub(crate) fn at(&self, start: u64) -> &Version {
        self.versions.iter().find(|version| version.ts <= start).expect("a running snapshot has its version")
    }

    pub(crate) fn newest(&self) -> &Version {
        &self.versions[0]
    }

    /// The chain after a merge, and the bins that are split off on its right. Merged are `changes`
    /// (by value and row, in log order for each) and the rows of the `bulks` (by commit timestamp)
    /// between `low` and the chain's end, up to the timestamp that is settled for the readers.
    pub(crate) fn merged(
        &self,
        changes: &[Change],
        bulks: &[(u64, Arc<Bulk>)],
        low: &Key,
        readers: &Readers,
    ) -> (Self, Vec<Arc<Bin>>) {
        let (newest, ts) = (self.newest(), readers.settled());
        let mut versions = vec![newest.clone()];
        // A version for each snapshot between the newest version and `ts`, then the one at `ts`.
        let snapshots = &readers.starts()[readers.before(newest.ts)..readers.before(ts)];
        let mut before = newest.ts;
        for &until in snapshots.iter().chain([&ts]) {
            let part = |from: u64, until: u64| -> Vec<&Change> {
                changes.iter().filter(|change| from < change.ts && change.ts <= until).collect()
            };
            let mut version = versions[versions.len() - 1].clone();
            let (mut from, mut has_rows) = (before, false);
            for (commit, bulk) in bulks.iter().filter(|(commit, _)| before < *commit && *commit <= until) {
                let mut rows = bulk.range(low, self.high.as_ref()).peekable();
                if rows.peek().is_some() {
                    version = version.after(&part(from, commit - 1), commit - 1).with_rows(rows, *commit);
                    (from, has_rows) = (commit - 1, true);
                }
            }
            let part = part(from, until);
            if part.is_empty() && !has_rows && until != ts {
                continue;
            }
            versions.push(version.after(&part, until));
            before = until;
        }
        versions.reverse();
        versions.extend_from_slice(&self.versions[1..]);
        drop_unneeded(&mut versions, readers);
        self.split(versions)
    }

    /// The chain without the versions that no snapshot needs, if there are any.
    pub(crate) fn pruned(&self, readers: &Readers) -> Option<Self> {
        let mut versions = self.versions.to_vec();
        drop_unneeded(&mut versions, readers);
        let fewer = versions.len() < self.versions.len();
        fewer.then(|| Self { versions: versions.into(), high: self.high.clone(), right: self.right.clone() })
    }

    fn split(&self, versions: Vec<Version>) -> (Self, Vec<Arc<Bin>>) {
        let (mut high, mut right, mut bins) = (self.high.clone(), self.right.clone(), Vec::new());
        let keys = versions[0].leaf.split_keys();
        if keys.is_empty() {
            return (Self { versions: versions.into(), high, right }, bins);
        }
        let mut parts: Vec<Vec<Version>> = versions.iter().map(|version| version.cut(&keys)).collect();
        let mut take_part = || -> Box<[Version]> {
            parts.iter_mut().map(|parts| parts.pop().expect("one part more than keys")).collect()
        };
        for key in keys.into_iter().rev() {
            let chain = Self { versions: take_part(), high: high.take(), right: right.take() };
            let bin = Arc::new(Bin::new(Some(key.clone()), chain));
            bins.push(bin.clone());
            (high, right) = (Some(key), Some(bin));
        }
        (Self { versions: take_part(), high, right }, bins)
    }
}

impl Bin {
    fn new(low: Option<Key>, chain: Chain) -> Self {
        Self { low, chain: Atomic::new(chain), listed: AtomicBool::new(false) }
    }

    pub(crate) fn load<'g>(&self, guard: &'g Guard) -> (Shared<'g, Chain>, &'g Chain) {
        // Acquire: pairs with `swing`.
        let chain = self.chain.load(Ordering::Acquire, guard);
        // SAFETY: never null; freed an epoch after it was replaced.
        (chain, unsafe { chain.deref() })
    }

    /// Replaces the chain; false if it is not the expected one any more.
    pub(crate) fn swing(&self, from: Shared<'_, Chain>, to: Chain, guard: &Guard) -> bool {
        // Release: pairs with `load`. The address is not used again while the guard is held, so
        // there is no A-B-A.
        let swung = self.chain.compare_exchange(from, Owned::new(to), Ordering::Release, Ordering::Relaxed, guard);
        if swung.is_ok() {
            // SAFETY: no thread can load it any more.
            unsafe { guard.defer_destroy(from) };
        }
        swung.is_ok()
    }
}

impl Bin {
    fn take_right(&mut self) -> Option<Arc<Bin>> {
        let chain = std::mem::replace(&mut self.chain, Atomic::null());
        // SAFETY: no other thread has the bin any more.
        unsafe { chain.try_into_owned() }.and_then(|chain| chain.into_box().right)
    }
}

impl Drop for Bin {
    fn drop(&mut self) {
        // A loop: a long row of bins that only their left neighbours reference must not become a
        // deep recursion.
        let mut right = self.take_right();
        while let Some(mut bin) = right.and_then(Arc::into_inner) {
            right = bin.take_right();
        }
    }
}

fn chain(leaf: Leaf, ts: u64, high: Option<Key>, right: Option<Arc<Bin>>) -> Chain {
    Chain { versions: [Version::new(ts, leaf)].into(), high, right }
}

/// All bins, by their lowest value.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Covers the lowest values; it is not in `bins`.
    first: Arc<Bin>,
    bins: SkipList<Key, Arc<Bin>>,
}

impl Directory {
    /// One bin, without values.
    pub(crate) fn new() -> Self {
        let bins = SkipList::new(serac_sync::epoch::default_collector().clone());
        Self { first: Arc::new(Bin::new(None, chain(Leaf::default(), 0, None, None))), bins }
    }

    /// Puts ascending leaves, as they are at `ts`, in the place of the one bin.
    pub(crate) fn load(&self, leaves: Vec<(Key, Leaf)>, ts: u64, guard: &Guard) {
        let (mut high, mut right) = (None, None);
        let mut leaves = leaves.into_iter();
        let first = leaves.next().map(|(_, leaf)| leaf).unwrap_or_default();
        for (low, leaf) in leaves.rev() {
            let bin = Arc::new(Bin::new(Some(low.clone()), chain(leaf, ts, high.take(), right.take())));
            self.add(&bin, guard);
            (high, right) = (Some(low), Some(bin));
        }
        let (empty, _) = self.first.load(guard);
        let loaded = self.first.swing(empty, chain(first, ts, high, right), guard);
        assert!(loaded, "merges come after the load of the index");
    }

    /// Bins besides the first.
    pub(crate) fn len(&self) -> usize {
        self.bins.len()
    }

    pub(crate) fn add(&self, bin: &Arc<Bin>, guard: &Guard) {
        if let Some(low) = &bin.low {
            self.bins.get_or_insert_with(low.clone(), || bin.clone(), guard).release(guard);
        }
    }

    /// The bin that covers `key`, with its chain.
    pub(crate) fn locate<'g>(&'g self, key: &Key, guard: &'g Guard) -> (&'g Arc<Bin>, Shared<'g, Chain>, &'g Chain) {
        let mut bin = self.bins.upper_bound(Bound::Included(key), guard).map_or(&self.first, |entry| entry.value());
        loop {
            let (shared, chain) = bin.load(guard);
            if chain.covers(key) {
                return (bin, shared, chain);
            }
            bin = chain.right.as_ref().expect("a chain that ends has a right neighbour");
            self.add(bin, guard);
        }
    }

    /// The chains from the one on that `low` is in (the first if there is no bound).
    pub(crate) fn chains_from<'g>(&'g self, low: Option<&Key>, guard: &'g Guard) -> impl Iterator<Item = &'g Chain> {
        let first = match low {
            Some(key) => self.locate(key, guard).2,
            None => self.first.load(guard).1,
        };
        std::iter::successors(Some(first), |chain| chain.right.as_ref().map(|right| right.load(guard).1))
    }

    /// Bytes of the directory's own (an estimate: nodes of a skip list have two links on average).
    pub(crate) fn bytes(&self, guard: &Guard) -> usize {
        self.bins.iter(guard).map(|e| size_of::<Bin>() + 16 + 80 + 2 * e.key().heap_bytes()).sum()
    }
}
