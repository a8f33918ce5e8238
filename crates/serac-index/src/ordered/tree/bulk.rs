//! Filling an empty tree with many entries at once.
//!
//! The entries are sorted, and nodes are made of them from the leaves upwards, in a tree beside.
//! Then its root takes the place of the empty leaf that was the root, under the locks of that leaf
//! and of the anchor. A thread that was on the way to the leaf begins again. Nodes are filled to
//! seven eighths, so that the first inserts find room.

use super::super::RowId;
use super::super::sync::{self, CAPACITY, spin};
use super::Tree;
use super::entry::{Probe, Tail, Words};
use super::node::NodePtr;
use crate::sorting;
use std::cmp::Ordering as Order;

/// The most entries of a leaf, and separators of an inner node, that a bulk build puts there.
const FILLED: usize = if CAPACITY >= 8 { CAPACITY * 7 / 8 } else { CAPACITY };

/// Entries for a tree, in any order.
#[derive(Debug)]
pub struct Entries {
    words: Vec<Words>,
    long: bool,
    tail_bytes: usize,
}

impl Entries {
    /// Bytes of so many entries, beside the ends of long keys.
    pub const fn bytes_of(entries: usize) -> u64 {
        (entries * size_of::<Words>()) as u64
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        Self::bytes_of(self.words.capacity()) + self.tail_bytes as u64
    }

    /// Adds an entry.
    #[inline]
    pub fn push(&mut self, key: &[u8], row: RowId) {
        let probe = Probe::entry(key, row, self.long);
        let mut words = probe.words;
        if self.long {
            words[2] = Tail::allocate(probe.tail);
            self.tail_bytes += size_of::<usize>() + probe.tail.len();
        }
        self.words.push(words);
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        if self.long {
            // SAFETY: the tails that no tree has taken are ours, each once.
            self.words.iter().for_each(|words| unsafe { Tail::free(words[2]) });
        }
    }
}

/// A node, and the last entry below it.
type Below = (NodePtr, Words);

impl Tree {
    /// An empty list of entries, with room for so many.
    pub fn entries(&self, capacity: usize) -> Entries {
        Entries { words: Vec::with_capacity(capacity), long: self.long, tail_bytes: 0 }
    }

    /// Puts entries in order ahead of [`fill`](Self::fill), which then finds them so: in parts,
    /// between which `go_on` may end it.
    ///
    /// # Errors
    /// The errors of `go_on`.
    pub fn sort<E>(&self, entries: &mut Entries, go_on: impl FnMut() -> Result<(), E>) -> Result<(), E> {
        assert_eq!(entries.long, self.long, "the entries were made for the tree");
        // SAFETY: the tails are the list's, which has them still.
        sorting::sort(&mut entries.words, |one, other| unsafe { self.order_of(*one, *other) }, go_on)
    }

    /// Adds the entries. Fast in a tree that is empty.
    pub fn fill(&self, mut entries: Entries) {
        assert_eq!(entries.long, self.long, "the entries were made for the tree");
        if self.long {
            // SAFETY: the tails are the list's, which has them still.
            entries.words.sort_unstable_by(|one, other| unsafe { self.order_of(*one, *other) });
            let mut dropped = Vec::new();
            entries.words.dedup_by(|later, first| {
                // SAFETY: as above.
                let same = unsafe { self.order_of(*later, *first) } == Order::Equal;
                dropped.extend(same.then_some(later[2]));
                same
            });
            // SAFETY: they are in the list no more.
            dropped.into_iter().for_each(|tail| unsafe { Tail::free(tail) });
        } else {
            entries.words.sort_unstable();
            entries.words.dedup();
        }
        if entries.words.is_empty() {
            return;
        }
        // The nodes have the tails from now on.
        let built = self.build(std::mem::take(&mut entries.words));
        if !self.take_root(&built) {
            built.insert_into(self);
        }
    }

    /// A tree of sorted entries.
    fn build(&self, words: Vec<Words>) -> Self {
        let mut level: Vec<Below> = Vec::with_capacity(words.len() / FILLED + 1);
        for part in even_parts(&words, FILLED) {
            let leaf = NodePtr::new(0);
            part.iter().enumerate().for_each(|(i, words)| leaf.set_words(i, *words));
            leaf.set_count(part.len());
            level.push((leaf, *part.last().expect("no part is empty")));
        }
        drop(words);
        let mut height = 0;
        while level.len() > 1 {
            height += 1;
            let mut above = Vec::with_capacity(level.len() / FILLED + 1);
            for part in even_parts(&level, FILLED + 1) {
                let node = NodePtr::new(height);
                for (i, (child, last)) in part.iter().enumerate() {
                    node.set_child(i, *child);
                    if i + 1 < part.len() {
                        node.set_words(i, self.separator(*last));
                    }
                }
                node.set_count(part.len() - 1);
                above.push((node, part.last().expect("no part is empty").1));
            }
            level = above;
        }
        let anchor = NodePtr::new(u32::MAX);
        anchor.set_child(0, level[0].0);
        Self { anchor, long: self.long }
    }

    /// A separator that is as large as an entry, which it may outlive.
    fn separator(&self, mut entry: Words) -> Words {
        if self.long {
            // SAFETY: the entry is in a leaf that is not shared yet.
            entry[2] = Tail::allocate(unsafe { Tail::bytes(entry[2]) });
        }
        entry
    }

    /// Makes the root of `built`, which is not shared, the tree's own, and leaves an empty root in
    /// `built`; false if the tree is not empty.
    fn take_root(&self, built: &Self) -> bool {
        let guard = sync::pin();
        self.anchor.lock_below();
        let root = self.anchor.child(0);
        root.lock_below();
        let is_empty = root.level() == 0 && root.count() == 0;
        if is_empty {
            self.anchor.set_child(0, built.anchor.child(0));
            built.anchor.set_child(0, NodePtr::new(0));
            root.unlock_obsolete();
            // SAFETY: nothing leads to the leaf any more; threads that have seen it are pinned.
            unsafe { guard.defer_unchecked(move || { root }.free()) };
        } else {
            root.unlock();
        }
        self.anchor.unlock();
        is_empty
    }

    /// Adds all entries of the tree, which is not shared, to another one.
    fn insert_into(&self, other: &Self) {
        let _guard = sync::pin();
        let mut nodes = vec![self.anchor];
        while let Some(node) = nodes.pop() {
            if node.level() > 0 {
                nodes.extend((0..=node.count()).map(|i| node.child(i)));
                continue;
            }
            for words in (0..node.count()).map(|i| node.words(i)) {
                // SAFETY: the entry is in this tree, and stays.
                let probe = unsafe { Probe::at(words, self.long) };
                let mut spins = 0;
                while other.try_insert(&probe).is_err() {
                    spin(&mut spins);
                }
            }
        }
    }
}

/// Parts of at most `most`, of about equal size.
fn even_parts<T>(all: &[T], most: usize) -> impl Iterator<Item = &[T]> {
    let parts = all.len().div_ceil(most);
    (0..parts).map(move |i| &all[i * all.len() / parts..(i + 1) * all.len() / parts])
}
