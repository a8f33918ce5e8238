//! Bulk inserts: many rows of one transaction, as the vectors of their values.
//!
//! A bulk load does not note its index changes row by row. It hands over leaves, which go into the
//! Delta Log as one entry and from there into the bins, vector by vector. They cost as much as rows
//! in an index (4 bytes each or less), not the 60 bytes of a change. Queries do not read such
//! entries. A query that must see a committed bulk entry merges the log first
//! (`Cubit::reader`), and a transaction that has committed one merges at once. The counter of the
//! log's bulk entries spares all other queries the look.
//!
//! The rows are new. If a slot was recycled by compaction, its former row ended with an earlier
//! commit. So bits of earlier commits are merged before the bulk, and bits of the same transaction
//! or of later commits after it.

use super::builder::Builder;
use super::key::Key;
use super::leaf::{Leaf, Vector};
use std::ops::Bound;

/// Ascending leaves, each with its first value.
#[derive(Debug)]
pub(crate) struct Bulk(Vec<(Key, Leaf)>);

impl Bulk {
    pub(crate) fn new(rows: Builder) -> Self {
        Self(rows.into_leaves())
    }

    /// The first leaf that may have `low` or values above.
    fn leaf_of(&self, low: &Key) -> usize {
        self.0.partition_point(|(first, _)| first <= low).saturating_sub(1)
    }

    /// The lowest value from `low` on.
    pub(crate) fn first_from(&self, low: Option<&Key>) -> Option<Key> {
        let Some(low) = low else { return Some(self.0.first()?.0.clone()) };
        let at = self.leaf_of(low);
        let leaf = &self.0.get(at)?.1;
        let place = leaf.find(low).unwrap_or_else(|place| place);
        if place < leaf.len() { Some(leaf.key(place)) } else { Some(self.0.get(at + 1)?.0.clone()) }
    }

    /// The values from `low` up to before `high`, with their rows.
    pub(crate) fn range<'a>(&'a self, low: &'a Key, high: Option<&'a Key>) -> impl Iterator<Item = (Key, Vector<'a>)> {
        let leaves =
            self.0[self.leaf_of(low)..].iter().take_while(move |(first, _)| high.is_none_or(|high| first < high));
        leaves.flat_map(move |(_, leaf)| {
            let places = leaf.places(Bound::Included(low), high.map_or(Bound::Unbounded, Bound::Excluded));
            places.map(move |place| (leaf.key(place), leaf.vector(place)))
        })
    }
}
