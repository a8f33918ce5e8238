//! The ordered index: a concurrent ordered set of (key, row id).
//!
//! Keys are memory-comparable bytes ([`key`]), so one byte-ordered structure serves every mix of columns. An entry says that *some*
//! version of the row has the key; whoever reads it verifies the key against the version its snapshot sees. Entries are added when a
//! version is written and removed when no version of the row that a snapshot can reach has the key any more.

pub mod key;

use crossbeam_skiplist::SkipSet;
use parking_lot::Mutex;
use serac_storage::RowId;
use std::ops::{Bound, ControlFlow};

const ROW_LATCHES: usize = 64;

/// A concurrent ordered multimap from keys to row ids.
#[derive(Debug)]
pub struct OrderedIndex {
    entries: SkipSet<Box<[u8]>>,
    /// By row: whoever adds an entry of the row, or finds out that one is not needed and removes it.
    row_latches: [Mutex<()>; ROW_LATCHES],
}

impl Default for OrderedIndex {
    fn default() -> Self {
        Self { entries: SkipSet::default(), row_latches: [const { Mutex::new(()) }; ROW_LATCHES] }
    }
}

fn entry(key: &[u8], row: RowId) -> Box<[u8]> {
    let mut entry = Vec::with_capacity(key.len() + 8);
    entry.extend_from_slice(key);
    entry.extend_from_slice(&row.as_u64().to_be_bytes());
    entry.into_boxed_slice()
}

fn row_of(entry: &[u8]) -> RowId {
    let (_, row) = entry.split_last_chunk::<8>().expect("an entry ends with a row id");
    RowId::from_u64(u64::from_be_bytes(*row))
}

/// A place between keys: before or after all keys that begin with some columns' encoded values.
#[derive(Clone, Copy, Debug)]
pub struct Limit<'k> {
    /// The encoded values; none for all keys.
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
    fn bytes(self) -> Vec<u8> {
        let mut bytes = self.prefix.to_vec();
        if self.after {
            bytes.extend_from_slice(&[0xFF; 9]);
        }
        bytes
    }
}

/// The key of an entry that a scan has come to.
#[derive(Clone, Copy, Debug)]
pub struct EntryKey<'e>(&'e [u8]);

impl EntryKey<'_> {
    /// Whether it is this key.
    #[inline]
    pub fn is(&self, key: &[u8]) -> bool {
        self.0 == key
    }
}

impl OrderedIndex {
    /// Visits the entries between two limits in key order, or against it, until `visit` breaks. Entries that are added or removed meanwhile may be visited or not.
    pub fn scan<B>(
        &self,
        from: Limit<'_>,
        to: Limit<'_>,
        reverse: bool,
        mut visit: impl FnMut(EntryKey<'_>, RowId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let (from, to) = (from.bytes(), to.bytes());
        if from >= to {
            return ControlFlow::Continue(());
        }
        let mut range = self.entries.range::<[u8], _>((Bound::Included(&from[..]), Bound::Excluded(&to[..])));
        while let Some(found) = if reverse { range.next_back() } else { range.next() } {
            let bytes = found.value();
            visit(EntryKey(&bytes[..bytes.len() - 8]), row_of(bytes))?;
        }
        ControlFlow::Continue(())
    }
    fn row_latch(&self, row: RowId) -> &Mutex<()> {
        let mixed = row.as_u64().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.row_latches[mixed as usize % ROW_LATCHES]
    }
    /// Adds an entry of a version that is written already; adding it twice is adding it once.
    pub fn insert(&self, key: &[u8], row: RowId) {
        let _latch = self.row_latch(row).lock();
        self.entries.insert(entry(key, row));
    }
    /// Removes an entry if it is there.
    pub fn remove(&self, key: &[u8], row: RowId) {
        self.entries.remove(&entry(key, row)[..]);
    }
    /// Removes an entry unless it `is_used`. Of somebody who writes a version with the key meanwhile, either the question finds the version, or the entry is
    /// added after the removal.
    pub fn remove_unless(&self, key: &[u8], row: RowId, is_used: impl FnOnce() -> bool) {
        let _latch = self.row_latch(row).lock();
        if !is_used() {
            self.remove(key, row);
        }
    }
    /// The rows with exactly this key, ascending.
    pub fn rows(&self, key: &[u8]) -> Vec<RowId> {
        let (first, last) = (entry(key, RowId::from_u64(0)), entry(key, RowId::from_u64(u64::MAX)));
        let range = (Bound::Included(&first[..]), Bound::Included(&last[..]));
        // Keys are prefix-free, so everything in between has this key.
        self.entries.range::<[u8], _>(range).map(|e| row_of(e.value())).collect()
    }
    /// The rows whose keys lie between `from` and `to` (both as key prefixes, both included), in key order.
    pub fn range(&self, from: &[u8], to: &[u8]) -> Vec<RowId> {
        let mut last = to.to_vec();
        last.extend_from_slice(&[0xFF; 16]);
        let range = (Bound::Included(from), Bound::Included(&last[..]));
        self.entries.range::<[u8], _>(range).map(|e| row_of(e.value())).collect()
    }
    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(operations in prop::collection::vec((any::<bool>(), 0u8..8, 0u64..6), 0..200)) {
            let (index, mut oracle) = (OrderedIndex::default(), BTreeSet::new());
            for (insert, key, row) in operations {
                if insert {
                    index.insert(&[key], RowId::from_u64(row));
                    oracle.insert((key, row));
                } else {
                    index.remove(&[key], RowId::from_u64(row));
                    oracle.remove(&(key, row));
                }
            }
            prop_assert_eq!(index.len(), oracle.len());
            for key in 0..8 {
                let expected: Vec<u64> = oracle.range((key, 0)..=(key, u64::MAX)).map(|e| e.1).collect();
                let rows: Vec<u64> = index.rows(&[key]).into_iter().map(RowId::as_u64).collect();
                prop_assert_eq!(rows, expected);
            }
            let between: Vec<u64> = index.range(&[2], &[5]).into_iter().map(RowId::as_u64).collect();
            let expected: Vec<u64> = oracle.range((2, 0)..=(5, u64::MAX)).map(|e| e.1).collect();
            prop_assert_eq!(between, expected);
        }
    }
}
