//! A version of a bin: a leaf, and the settled bits that are not in it yet.
//!
//! A new leaf costs much even for one bit: the containers, chunks and the union that a bit lies in
//! are copied. So merges move bits from the log to the versions' *pending* lists, in order of value
//! and row. They make a leaf when a list is long. Every pending bit differs from the leaf's. So a
//! value's row count is its vector's count plus the balance of its bits, and queries change the
//! leaf's vectors by the bits.
//!
//! A long list goes into the leaf by ranges of blocks, round robin; as a whole it would make one
//! UDI in hundreds wait for a thousand containers. Bits of neighbouring blocks share chunks and the
//! union's containers, so no more is copied in total.
//!
//! All bits of a row go together. If a row goes from one value to another, and only the set bit
//! settled, the union would have the row, and the bit that still clears it would be the newer one.

use super::key::Key;
use super::leaf::{Leaf, Vector};
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

/// A list may have one bit for this many rows of the leaf, so that the bits cost a query little
/// beside the rows,
const ROWS_PER_PENDING_BIT: u64 = 128;
/// or the lower bound, independently of the leaf's rows, and never more than the upper bound, so
/// that a merge of one bin takes a bounded time.
const PENDING_BITS: Range<u64> = 64..1024;
/// When a list is too long, the surplus goes into the leaf, with one part in this many of the
/// allowed number: each value that changes costs a copy of its chunks, however few its bits are, …
const SETTLED_SHARE: u64 = 4;
/// … and at least one bit for so many rows of values without bitvectors, whose lists are copied.
const LISTED_ROWS_PER_SETTLED_BIT: u64 = 512;

/// A row has a value from then on, or has it no more.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Bit {
    pub(crate) key: Key,
    row_and_bit: u64,
}

impl Bit {
    /// The row is in compact form.
    pub(crate) fn new(key: Key, row: u64, bit: bool) -> Self {
        Self { key, row_and_bit: row << 1 | u64::from(bit) }
    }

    #[inline]
    pub(crate) fn row(&self) -> u64 {
        self.row_and_bit >> 1
    }

    #[inline]
    pub(crate) fn bit(&self) -> bool {
        self.row_and_bit & 1 == 1
    }

    fn place(&self) -> (&Key, u64) {
        (&self.key, self.row())
    }
}

/// A committed bit on its way from the log into a version.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) bit: Bit,
    /// Commit timestamp.
    pub(crate) ts: u64,
}

impl Change {
    /// Orders changes by value and row; a stable sort leaves those of one row in the order of the
    /// log.
    pub(crate) fn place(&self) -> (&Key, u64) {
        self.bit.place()
    }
}

/// The content of a bin from `ts` on, until the next version.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) ts: u64,
    /// The newest commit that is in it: answers from it must not leave before that one is durable.
    pub(crate) newest_commit: u64,
    pub(crate) leaf: Arc<Leaf>,
    /// By value and row; each differs from the leaf's.
    pending: Arc<Vec<Bit>>,
    /// Rows that the pending bits add to the leaf's.
    balance: i64,
    /// The block from which on bits go into the leaf next.
    next_block: u64,
}

/// The bits of a range of blocks, the other bits, and the block behind the range. The range begins
/// at `first`, wraps around after the last block, and has at least `count` bits and at most a
/// block's more.
fn cut_blocks(bits: Vec<Bit>, first: u64, count: usize) -> (Vec<Bit>, Vec<Bit>, u64) {
    let distance = |bit: &Bit| (bit.row() >> 16).wrapping_sub(first);
    let mut distances: Vec<u64> = bits.iter().map(distance).collect();
    let at = count.clamp(1, bits.len()) - 1;
    let last = *distances.select_nth_unstable(at).1;
    let (cut, others) = bits.into_iter().partition(|bit| distance(bit) <= last);
    (cut, others, first.wrapping_add(last) + 1)
}

/// Rows that bits add.
pub(crate) fn balance(bits: &[Bit]) -> i64 {
    bits.iter().map(|bit| if bit.bit() { 1 } else { -1 }).sum()
}

impl Version {
    /// All that is known at `ts`, which is a commit, too.
    pub(crate) fn new(ts: u64, leaf: Leaf) -> Self {
        Self { ts, newest_commit: ts, leaf: Arc::new(leaf), pending: Arc::default(), balance: 0, next_block: 0 }
    }

    pub(crate) fn pending(&self) -> &[Bit] {
        &self.pending
    }

    /// The pending bits of one value.
    #[inline]
    pub(crate) fn pending_of(&self, key: &Key) -> &[Bit] {
        let from = &self.pending[self.pending.partition_point(|bit| bit.key < *key)..];
        &from[..from.partition_point(|bit| bit.key == *key)]
    }

    /// The pending bits of the values between two bounds.
    pub(crate) fn pending_within(&self, low: Bound<&Key>, high: Bound<&Key>) -> &[Bit] {
        let (from, to) = ((low, Bound::<&Key>::Unbounded), (Bound::<&Key>::Unbounded, high));
        let bits = &self.pending[self.pending.partition_point(|bit| !from.contains(&bit.key))..];
        &bits[..bits.partition_point(|bit| to.contains(&bit.key))]
    }

    pub(crate) fn row_count(&self) -> u64 {
        self.leaf.row_count().strict_add_signed(self.balance)
    }

    /// Rows of a value, whose pending bits are given.
    pub(crate) fn cardinality(&self, key: &Key, pending: &[Bit]) -> u64 {
        self.leaf.get(key).map_or(0, |vector| vector.cardinality()).strict_add_signed(balance(pending))
    }

    /// Values that have rows.
    pub(crate) fn value_count(&self) -> u64 {
        let mut count = self.leaf.len() as u64;
        for group in self.pending.chunk_by(|a, b| a.key == b.key) {
            let (before, after) = (self.leaf.find(&group[0].key).is_ok(), self.cardinality(&group[0].key, group) > 0);
            count = count + u64::from(after) - u64::from(before);
        }
        count
    }

    /// Whether the row, in compact form, has the value.
    pub(crate) fn contains(&self, key: &Key, row: u64) -> bool {
        let pending = self.pending_of(key);
        match pending.binary_search_by_key(&row, Bit::row) {
            Ok(at) => pending[at].bit(),
            Err(_) => self.leaf.get(key).is_some_and(|vector| vector.contains(row)),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.leaf.bytes() + size_of_val(&self.pending[..])
    }

    /// The version at `ts`, after `changes` (by value and row, in log order for each).
    pub(crate) fn after(&self, changes: &[&Change], ts: u64) -> Self {
        let Some(newest_commit) = changes.iter().map(|change| change.ts).max() else {
            return Self { ts, ..self.clone() };
        };
        let mut pending = Vec::with_capacity(self.pending.len() + changes.len());
        let mut old = &self.pending[..];
        for group in changes.chunk_by(|a, b| a.place() == b.place()) {
            let bit = &group[group.len() - 1].bit;
            let before = old.partition_point(|old| old.place() < bit.place());
            pending.extend_from_slice(&old[..before]);
            old = &old[before..];
            // A transaction that changes a row states its true old value, so the bits of a row and
            // value alternate.
            let in_leaf = match old.split_first() {
                Some((first, others)) if first.place() == bit.place() => {
                    old = others;
                    !first.bit()
                }
                _ => !group[0].bit.bit(),
            };
            debug_assert_eq!(in_leaf, self.leaf.get(&bit.key).is_some_and(|vector| vector.contains(bit.row())));
            if in_leaf != bit.bit() {
                pending.push(bit.clone());
            }
        }
        pending.extend_from_slice(old);
        let (mut leaf, mut next_block) = (self.leaf.clone(), self.next_block);
        let most = (leaf.row_count() / ROWS_PER_PENDING_BIT).clamp(PENDING_BITS.start, PENDING_BITS.end);
        if let Some(too_many) = (pending.len() as u64).checked_sub(most + 1) {
            let count = (1 + too_many + most / SETTLED_SHARE).max(leaf.listed_rows() / LISTED_ROWS_PER_SETTLED_BIT);
            let settled;
            (settled, pending, next_block) = cut_blocks(pending, next_block, count as usize);
            leaf = Arc::new(leaf.apply(&settled));
        }
        Self { ts, newest_commit, leaf, balance: balance(&pending), pending: Arc::new(pending), next_block }
    }

    /// The version after a bulk insert at `ts`, by ascending values.
    pub(crate) fn with_rows<'a>(&self, rows: impl Iterator<Item = (Key, Vector<'a>)>, ts: u64) -> Self {
        let settled =
            if self.pending.is_empty() { self.leaf.clone() } else { Arc::new(self.leaf.apply(&self.pending)) };
        Self { newest_commit: self.newest_commit.max(ts), ..Self::new(ts, settled.with_rows(rows)) }
    }

    /// The parts that begin at the ascending `keys`, and the part before them.
    pub(crate) fn cut(&self, keys: &[Key]) -> Vec<Self> {
        let mut rest = &self.pending[..];
        let leaves = self.leaf.cut(keys).into_iter();
        let ends = keys.iter().map(Some).chain([None]);
        leaves
            .zip(ends)
            .map(|(leaf, end)| {
                let pending;
                (pending, rest) = rest.split_at(rest.partition_point(|bit| end.is_none_or(|end| bit.key < *end)));
                let (leaf, balance) = (Arc::new(leaf), balance(pending));
                Self { leaf, balance, pending: Arc::new(pending.to_vec()), ..*self }
            })
            .collect()
    }
}
