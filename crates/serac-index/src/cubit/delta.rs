//! The changes of transactions: a list while the transaction runs, and the update log entry (ULE)
//! that carries the changes into the Delta Log.
//!
//! The horizontal update delta (HUD) of a row is kept as the bits that it changes: the bit of the
//! old value and the bit of the new value. They are absolute, not toggles: applying a ULE to a
//! vector that has it already changes nothing. So readers and merges need not know exactly where a
//! version of a vector stands in the log, and a merge may be done twice.

use super::bitvector::compact;
use super::builder::Builder;
use super::bulk::Bulk;
use super::fate::{EntryFate, Fate, TransactionCell};
use super::key::Key;
use serac_storage::version::transaction::{FateObserver, Transaction};
use serac_storage::{RowId, Timestamp};
use smallvec::{SmallVec, smallvec};
use std::ops::Bound;
use std::sync::Arc;

/// Changes of a transaction whose memory is kept for the next one.
const KEPT_CHANGES: usize = 64;

impl TransactionCell {
    /// A cell that follows the fate of `transaction`: stamped inside the commit's critical section,
    /// before the clock moves.
    pub fn of(transaction: &mut Transaction) -> Arc<Self> {
        let cell = Arc::new(Self::default());
        transaction.observe(cell.clone());
        cell
    }
}

impl FateObserver for TransactionCell {
    fn committed(&self, ts: Timestamp) {
        self.commit(ts);
    }

    fn aborted(&self) {
        self.abort();
    }
}

/// One row changes its value; the row is in compact form.
#[derive(Clone, Debug)]
struct RowChange {
    row: u64,
    old: Option<Key>,
    new: Option<Key>,
}

/// The uncommitted changes of one transaction in one index, which no other transaction sees.
/// Dropping the list forgets them. The old values must be those that the rows had.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Bulk inserts, each with the changes before it.
    bulks: Vec<(Vec<RowChange>, Arc<Bulk>)>,
    list: Vec<RowChange>,
}

impl Changes {
    /// The row is there from now on, with the value.
    pub fn insert(&mut self, row: RowId, value: Key) {
        self.list.push(RowChange { row: compact(row), old: None, new: Some(value) });
    }

    /// The row, which had the value, is gone.
    pub fn delete(&mut self, row: RowId, value: Key) {
        self.list.push(RowChange { row: compact(row), old: Some(value), new: None });
    }

    /// The row's value changes.
    pub fn update(&mut self, row: RowId, old: Key, new: Key) {
        if old != new {
            self.list.push(RowChange { row: compact(row), old: Some(old), new: Some(new) });
        }
    }

    /// A row with the value moves.
    pub fn move_row(&mut self, from: RowId, to: RowId, value: Key) {
        self.delete(from, value.clone());
        self.insert(to, value);
    }

    /// New rows that come together, with their values.
    pub fn insert_bulk(&mut self, rows: Builder) {
        self.bulks.push((std::mem::take(&mut self.list), Arc::new(Bulk::new(rows))));
    }

    /// Whether there are bulk inserts. Queries do not look into them: they cannot be asked with
    /// such changes.
    pub fn has_bulk(&self) -> bool {
        !self.bulks.is_empty()
    }

    /// Changes so far, a bulk insert being one: a savepoint.
    pub fn len(&self) -> usize {
        self.bulks.iter().map(|(before, _)| before.len() + 1).sum::<usize>() + self.list.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets everything since the savepoint at which there were `length` changes.
    pub fn rollback_to(&mut self, length: usize) {
        while self.len() - self.list.len() > length {
            self.list = self.bulks.pop().expect("a list that is too long by a bulk has one").0;
        }
        self.list.truncate(length - (self.len() - self.list.len()));
    }

    /// Passes the entries for the log to `f`, in order. Leaves the list empty, with memory for the
    /// next transaction's.
    pub(crate) fn drain(&mut self, cell: &Arc<TransactionCell>, mut f: impl FnMut(Ule)) {
        for (mut before, bulk) in self.bulks.drain(..) {
            Ule::new(&mut before, cell).into_iter().for_each(&mut f);
            f(Ule::of_bulk(bulk, cell.clone()));
        }
        Ule::new(&mut self.list, cell).into_iter().for_each(f);
        self.list.shrink_to(KEPT_CHANGES);
    }

    /// Forgets everything, but keeps some memory.
    pub fn clear(&mut self) {
        self.bulks.clear();
        self.list.clear();
        self.list.shrink_to(KEPT_CHANGES);
    }

    /// Bits that change, in order: (value, row, bit).
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Key, u64, bool)) {
        for change in &self.list {
            if let Some(old) = &change.old {
                f(old, change.row, false);
            }
            if let Some(new) = &change.new {
                f(new, change.row, true);
            }
        }
    }
}

/// The bits of an entry. Most transactions change one row of an index: their bits lie in the entry.
type Bits = SmallVec<[Bit; 2]>;

/// Bits with the same effect: first those to clear, whose number is returned, and then those to
/// set. Each part is ordered by value and row. The list is left empty.
fn take_net(list: &mut Vec<RowChange>) -> (Bits, usize) {
    if list.len() <= 1 {
        // A single change is a net one.
        let Some(RowChange { row, old, new }) = list.pop() else { return (Bits::new(), 0) };
        return match (old, new) {
            (Some(old), Some(new)) if old == new => (Bits::new(), 0),
            (Some(old), Some(new)) => (Bits::from([Bit { key: old, row }, Bit { key: new, row }]), 1),
            (Some(old), None) => (smallvec![Bit { key: old, row }], 1),
            (None, Some(new)) => (smallvec![Bit { key: new, row }], 0),
            (None, None) => (Bits::new(), 0),
        };
    }
    list.sort_by_key(|change| change.row);
    list.dedup_by(|later, first| {
        let same = later.row == first.row;
        if same {
            first.new = later.new.take();
        }
        same
    });
    list.retain(|change| change.old != change.new);
    let count = |change: &RowChange| usize::from(change.old.is_some()) + usize::from(change.new.is_some());
    let mut bits = Bits::with_capacity(list.iter().map(count).sum());
    bits.extend(list.iter_mut().filter_map(|change| Some(Bit { key: change.old.take()?, row: change.row })));
    let clears = bits.len();
    bits.extend(list.drain(..).filter_map(|change| Some(Bit { key: change.new?, row: change.row })));
    let (first, second) = bits.split_at_mut(clears);
    for part in [first, second] {
        part.sort_unstable_by(|a, b| (&a.key, a.row).cmp(&(&b.key, b.row)));
    }
    (bits, clears)
}

#[derive(Clone, Debug)]
struct Bit {
    key: Key,
    row: u64,
}

/// Update log entry: the changes of one transaction to the index, or a part of them.
#[derive(Clone, Debug)]
pub(crate) struct Ule {
    fate: EntryFate,
    /// Bits to clear, then bits to set; each part by value and row.
    bits: Bits,
    /// The values that may occur ([`Key::mask`]): most entries need no closer look.
    mask: u64,
    clears: u32,
    /// In place of bits.
    bulk: Option<Arc<Bulk>>,
}

impl Ule {
    /// `None` if the changes cancel out.
    fn new(changes: &mut Vec<RowChange>, cell: &Arc<TransactionCell>) -> Option<Self> {
        let (bits, clears) = take_net(changes);
        let clears = u32::try_from(clears).expect("a table has fewer rows than that");
        let mask = bits.iter().fold(0, |mask, bit| mask | bit.key.mask());
        (!bits.is_empty()).then(|| Self { fate: EntryFate::of(cell.clone()), bits, mask, clears, bulk: None })
    }

    fn of_bulk(bulk: Arc<Bulk>, cell: Arc<TransactionCell>) -> Self {
        Self { fate: EntryFate::of(cell), bulk: Some(bulk), ..Self::empty() }
    }

    /// An entry without content, for the node that every log begins with.
    pub(crate) fn empty() -> Self {
        Self { fate: EntryFate::aborted(), bits: Bits::new(), mask: 0, clears: 0, bulk: None }
    }

    /// Bits.
    pub(crate) fn len(&self) -> usize {
        self.bits.len()
    }

    /// The rows of a bulk insert, if the entry is for a bulk insert.
    pub(crate) fn bulk(&self) -> Option<&Arc<Bulk>> {
        self.bulk.as_ref()
    }

    /// Whether a value with this mask may come up.
    #[inline]
    pub(crate) fn may_have(&self, mask: u64) -> bool {
        self.mask & mask != 0
    }

    #[inline]
    pub(crate) fn fate(&self) -> Fate {
        self.fate.get()
    }

    fn parts(&self) -> [(&[Bit], bool); 2] {
        let (clears, sets) = self.bits.split_at(self.clears as usize);
        [(clears, false), (sets, true)]
    }

    /// All bits: clears first, so that the last word on a row is the value that it gets.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Key, u64, bool)) {
        for (part, bit) in self.parts() {
            part.iter().for_each(|b| f(&b.key, b.row, bit));
        }
    }

    /// The bits of one value.
    #[inline]
    pub(crate) fn for_key(&self, key: &Key, mut f: impl FnMut(u64, bool)) {
        if self.bits.len() <= 8 {
            for (i, b) in self.bits.iter().enumerate() {
                if b.key == *key {
                    f(b.row, i >= self.clears as usize);
                }
            }
            return;
        }
        for (part, bit) in self.parts() {
            let start = part.partition_point(|b| b.key < *key);
            part[start..].iter().take_while(|b| b.key == *key).for_each(|b| f(b.row, bit));
        }
    }

    /// The bits of ascending values.
    pub(crate) fn for_keys(&self, keys: &[Key], mut f: impl FnMut(&Key, u64, bool)) {
        for (part, bit) in self.parts() {
            if part.len() <= keys.len() {
                part.iter().filter(|b| keys.binary_search(&b.key).is_ok()).for_each(|b| f(&b.key, b.row, bit));
                continue;
            }
            for key in keys {
                let start = part.partition_point(|b| b.key < *key);
                part[start..].iter().take_while(|b| b.key == *key).for_each(|b| f(key, b.row, bit));
            }
        }
    }

    /// The bits of a range of values.
    pub(crate) fn for_range(&self, low: Bound<&Key>, high: Bound<&Key>, mut f: impl FnMut(&Key, u64, bool)) {
        let before = |key: &Key| match low {
            Bound::Unbounded => false,
            Bound::Included(low) => key < low,
            Bound::Excluded(low) => key <= low,
        };
        let within = |key: &Key| match high {
            Bound::Unbounded => true,
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
        };
        for (part, bit) in self.parts() {
            let start = part.partition_point(|b| before(&b.key));
            part[start..].iter().take_while(|b| within(&b.key)).for_each(|b| f(&b.key, b.row, bit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::new(&[1, byte])
    }

    fn row(number: u64) -> RowId {
        RowId::from_u64(number)
    }

    fn bits(mut changes: Changes) -> Vec<(Key, u64, bool)> {
        let mut bits = Vec::new();
        changes.drain(&Arc::default(), |ule| ule.for_each(|key, row, bit| bits.push((key.clone(), row, bit))));
        assert!(changes.is_empty());
        bits
    }

    #[test]
    fn a_ule_has_the_net_effect() {
        let mut changes = Changes::default();
        changes.insert(row(1), key(1));
        changes.update(row(1), key(1), key(2));
        changes.update(row(2), key(5), key(6));
        changes.update(row(2), key(6), key(5));
        changes.insert(row(3), key(1));
        changes.delete(row(3), key(1));
        changes.update(row(4), key(9), key(0));
        let savepoint = changes.len();
        changes.move_row(row(4), row(5), key(0));
        changes.rollback_to(savepoint);
        assert_eq!(bits(changes), [(key(9), 4, false), (key(0), 4, true), (key(2), 1, true)]);
        assert_eq!(bits(Changes::default()), []);
        // Single changes.
        let single = |change: fn(&mut Changes)| {
            let mut changes = Changes::default();
            change(&mut changes);
            bits(changes)
        };
        assert_eq!(single(|changes| changes.insert(row(1), key(1))), [(key(1), 1, true)]);
        assert_eq!(single(|changes| changes.delete(row(1), key(1))), [(key(1), 1, false)]);
        assert_eq!(single(|changes| changes.update(row(1), key(1), key(2))), [(key(1), 1, false), (key(2), 1, true)]);
        assert_eq!(single(|changes| changes.update(row(1), key(1), key(1))), []);
    }
}
