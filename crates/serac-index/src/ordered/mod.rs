//! The ordered index: a concurrent ordered set of (key, row id).
//!
//! Keys are memory-comparable bytes ([`key`]), so one byte-ordered structure (`tree`) serves every
//! mix of columns. An entry says that a version of the row has the key. A reader verifies the key
//! against the version that its snapshot sees. Entries are added when a version is written. They
//! are removed when no version of the row that a snapshot can reach has the key any more. Lookups
//! of whole unique keys remember where they found them (`hints`).

mod hints;
pub mod key;
mod sync;
#[cfg(test)]
mod tests;
mod tree;

use hints::Hints;
use serac_storage::RowId;
use serac_sync::Mutex;
use serac_sync::epoch::{self, Guard};
use std::ops::ControlFlow;
pub use tree::{Entries, EntryKey, Neighbours};
use tree::{Probe, Tree};

const ROW_LATCHES: usize = 64;

/// A concurrent ordered multimap from keys to row ids.
#[derive(Debug)]
pub struct OrderedIndex {
    entries: Tree,
    hints: Hints,
    /// Latches by row, for a thread that adds an entry of the row, or that removes an unneeded one.
    row_latches: [Mutex<()>; ROW_LATCHES],
}

impl Default for OrderedIndex {
    fn default() -> Self {
        Self::new(None)
    }
}

/// A place between keys: before or behind all keys that begin with given encoded values.
#[derive(Clone, Copy, Debug)]
pub struct Limit<'k> {
    /// The encoded values; empty for all keys.
    pub prefix: &'k [u8],
    /// Whether the place is behind these keys.
    pub after: bool,
}

impl<'k> Limit<'k> {
    /// Before all keys that begin with `prefix`.
    pub fn before(prefix: &'k [u8]) -> Self {
        Self { prefix, after: false }
    }

    /// Behind all keys that begin with `prefix`.
    pub fn after(prefix: &'k [u8]) -> Self {
        Self { prefix, after: true }
    }
}

impl OrderedIndex {
    /// An empty index for keys of at most so many bytes, or of any length. Entries of short keys
    /// need no memory of their own.
    pub fn new(most_key_bytes: Option<usize>) -> Self {
        let row_latches = [const { Mutex::new(()) }; ROW_LATCHES];
        Self { entries: Tree::new(most_key_bytes), hints: Hints::default(), row_latches }
    }

    fn row_latch(&self, row: RowId) -> &Mutex<()> {
        let mixed = row.as_u64().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.row_latches[mixed as usize % ROW_LATCHES]
    }

    /// Adds an entry of a version that is written already; adding it twice is adding it once.
    /// Returns whether another entry may have the same key: of two threads that add entries with
    /// one key at once, at least one is told so.
    pub fn insert(&self, key: &[u8], row: RowId) -> Neighbours {
        let _latch = self.row_latch(row).lock();
        self.entries.insert(key, row)
    }

    /// An empty list of entries for [`fill`](Self::fill), with room for so many.
    pub fn entries(&self, capacity: usize) -> Entries {
        self.entries.entries(capacity)
    }

    /// Puts entries in order ahead of [`fill`](Self::fill), so that it need not. `go_on` is asked
    /// time and again, and ends that by failing.
    ///
    /// # Errors
    /// The errors of `go_on`.
    pub fn sort<E>(&self, entries: &mut Entries, go_on: impl FnMut() -> Result<(), E>) -> Result<(), E> {
        self.entries.sort(entries, go_on)
    }

    /// Adds many entries of versions that are written already; fast where the index is empty. No
    /// entries of the same rows may be removed meanwhile.
    pub fn fill(&self, entries: Entries) {
        self.entries.fill(entries);
    }

    /// Removes an entry if it is there.
    pub fn remove(&self, key: &[u8], row: RowId) {
        self.entries.remove(key, row);
    }

    /// Removes an entry unless it `is_used`. If another thread writes a version with the key
    /// meanwhile, either the question finds the version, or the entry is added after the removal.
    pub fn remove_unless(&self, key: &[u8], row: RowId, is_used: impl FnOnce() -> bool) {
        let _latch = self.row_latch(row).lock();
        if !is_used() {
            self.remove(key, row);
        }
    }

    /// Visits the entries between two limits in key order, or against it, until `visit` breaks.
    /// Entries that are added or removed meanwhile may be visited or not.
    pub fn scan<B>(
        &self,
        from: Limit<'_>,
        to: Limit<'_>,
        reverse: bool,
        visit: impl FnMut(EntryKey<'_>, RowId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.scan_ahead(from, to, reverse, |_| {}, visit)
    }

    /// As [`scan`](Self::scan), and announces rows that will be visited if `visit` does not break,
    /// slightly before they are: for prefetching them.
    pub fn scan_ahead<B>(
        &self,
        from: Limit<'_>,
        to: Limit<'_>,
        reverse: bool,
        coming: impl FnMut(RowId),
        visit: impl FnMut(EntryKey<'_>, RowId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let long = self.entries.is_long();
        self.entries.scan(&from.probe(long), &to.probe(long), reverse, coming, visit)
    }

    /// The row at which a lookup of this whole key found it last, if that is remembered. It may not
    /// have the key (any more): the caller reads it and compares.
    pub fn hint(&self, key: &[u8], guard: &Guard) -> Option<RowId> {
        self.hints.row(self.hints.hash(key), guard)
    }

    /// Remembers where a whole key was found, for [`hint`](Self::hint). `rows` says how many rows
    /// there are, about: at most as many hints are kept.
    pub fn remember(&self, key: &[u8], row: RowId, rows: impl FnOnce() -> u64) {
        self.hints.note(self.hints.hash(key), row, rows);
    }

    /// Calls `found` with the rows that lookups of these whole keys will look at first, in any
    /// order, and prefetches the index's memory for these lookups. Beside changes to the index,
    /// rows may be left out.
    pub fn look_ahead<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, mut found: impl FnMut(RowId)) {
        let guard = epoch::pin();
        let keys: Vec<_> = keys.map(|key| (key, self.hints.hash(key))).collect();
        keys.iter().for_each(|(_, hash)| self.hints.prefetch(*hash, &guard));
        let long = self.entries.is_long();
        let mut unknown = Vec::new();
        for (key, hash) in keys {
            match self.hints.row(hash, &guard) {
                Some(row) => found(row),
                None => unknown.push(Limit::before(key).probe(long)),
            }
        }
        self.entries.look_ahead(&unknown, found);
    }

    /// The rows with exactly this key, ascending.
    pub fn rows(&self, key: &[u8]) -> Vec<RowId> {
        let mut rows = Vec::new();
        // Keys are prefix-free, so everything that begins with this key has it.
        let _ = self.scan(Limit::before(key), Limit::after(key), false, |_, row| -> ControlFlow<()> {
            rows.push(row);
            ControlFlow::Continue(())
        });
        rows
    }

    /// Entries; counts them.
    pub fn len(&self) -> usize {
        let mut entries = 0;
        let _ = self.scan(Limit::before(&[]), Limit::after(&[]), false, |_, _| -> ControlFlow<()> {
            entries += 1;
            ControlFlow::Continue(())
        });
        entries
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        let visit = |_: EntryKey<'_>, _| ControlFlow::Break(());
        self.scan(Limit::before(&[]), Limit::after(&[]), false, visit).is_continue()
    }

    /// Checks the structure while there is no writer, and counts the entries.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn verify(&self) -> usize {
        self.entries.verify()
    }
}

impl<'k> Limit<'k> {
    fn probe(self, long: bool) -> Probe<'k> {
        Probe::limit(self.prefix, self.after, long)
    }
}
