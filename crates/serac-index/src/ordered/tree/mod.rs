//! A concurrent B+ tree of fixed-width entries with optimistic lock coupling (Leis et al., "The ART
//! of Practical Synchronization").
//!
//! An entry is four words: three of the key, most significant first, and the row id. Keys of at
//! most 24 bytes lie in the words wholly, zero-padded (keys are prefix-free, so no two become
//! equal). In a tree of long keys the third word points to the bytes behind the first sixteen, or
//! is null without such bytes. An inner node's separator *i* is not smaller than any entry below
//! child *i* and smaller than any below child *i* + 1.
//!
//! **Reading** takes no latch. Each node has a version: a counter, with bits for *locked* and
//! *obsolete*.
//! ```text
//! reader                                     writer
//! 1. load the version (Acquire); wait        1. lock: compare-and-swap the version it has read (Acquire)
//!    while it is locked                      2. Release fence
//! 2. read words (relaxed)                    3. change words (relaxed)
//! 3. Acquire fence                           4. unlock: store the version, counted up (Release)
//! 4. load the version; restart unless it
//!    is the same
//! ```
//! If a reader's step 2 meets a word of step 3, the fences make its step 4 see the writer's step 1.
//! A pointer is followed only after such a check. Then it was in the node while the reader was
//! pinned, and its target is freed an epoch after it was taken out.
//!
//! **Coupling.** On the way down, a child's version is loaded before its parent's is checked again,
//! so the child was the right one when its version was loaded. From then on its range changes with
//! its own version alone, except that it may grow when an empty neighbour is removed. So a writer
//! needs to lock only the leaf.
//!
//! **Full nodes** are split on the way down, under the locks of the node and its parent, both taken
//! by try-lock. The descent begins again afterwards. A leaf that fills in order splits at the
//! insertion point: ascending keys leave full leaves behind, also when there are many such ends in
//! one tree.
//!
//! **Empty leaves** are removed with the inner nodes that have nothing else, under locks taken from
//! the root downwards and kept from the lowest node on that has another child. Nodes that are
//! merely sparse stay.
//!
//! Atomics, pinning and the size of nodes come from [`super::sync`], so that the models run this
//! code with nodes of two entries.
//!
//! **An empty tree** is filled with many entries at once by a tree that is built beside it
//! ([`bulk`]).
//!
//! **Scans** copy a leaf, check its version, and go on from the separator that bounded it: leaves
//! need no links.
//!
//! Model: `serac-models/tests/tree.rs`.

mod ahead;
mod bulk;
mod entry;
mod node;
mod remove;
mod scan;
mod verify;

use super::RowId;
use super::sync::{self, CAPACITY, Ordering, STRIDE, spin};
pub use bulk::Entries;
pub use entry::{EntryKey, Probe};
use entry::{SHORT_BYTES, Tail, Words};
use node::{Attempt, NodePtr, Restart};
use std::cmp::Ordering as Order;

/// The separators that bound a leaf, where there are any.
#[derive(Clone, Copy, Default)]
struct Fences {
    low: Option<Words>,
    high: Option<Words>,
}

/// A leaf that a descent has led to, and its version.
struct Found {
    leaf: NodePtr,
    version: u64,
    fences: Fences,
    parent: NodePtr,
    parent_version: u64,
    /// The leaf's position among the parent's children.
    child: usize,
}

/// The neighbours that an insert has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Neighbours {
    /// No other entry has the key.
    OthersOnly,
    /// Another entry may have the key.
    PerhapsSame,
}

/// The tree.
pub struct Tree {
    /// An inner node without separators, whose only child is the root.
    anchor: NodePtr,
    long: bool,
}

// SAFETY: nodes are shared by the protocol of the module.
unsafe impl Send for Tree {}
// SAFETY: as above.
unsafe impl Sync for Tree {}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("long", &self.long).finish_non_exhaustive()
    }
}

/// The beginning of the stride, of `count` entries, that holds the first entry not before the
/// probe. The ends of all strides were prefetched together.
#[inline]
fn stride(count: usize, is_before: impl Fn(usize) -> Attempt<bool>) -> Attempt<usize> {
    let mut low = 0;
    while low + STRIDE < count && is_before(low + STRIDE - 1)? {
        low += STRIDE;
    }
    Ok(low)
}

impl Tree {
    /// An empty tree, for keys of any length or for [short](SHORT_BYTES) ones.
    pub fn new(most_key_bytes: Option<usize>) -> Self {
        let anchor = NodePtr::new(u32::MAX);
        anchor.set_child(0, NodePtr::new(0));
        Self { anchor, long: most_key_bytes.is_none_or(|bytes| bytes > SHORT_BYTES) }
    }

    pub fn is_long(&self) -> bool {
        self.long
    }

    /// An entry against the probe. Without a version the node is locked.
    #[inline]
    fn compare(&self, node: NodePtr, version: Option<u64>, i: usize, probe: &Probe<'_>) -> Attempt<Order> {
        for word in 0..2 {
            match node.word(i, word).cmp(&probe.words[word]) {
                Order::Equal => {}
                order => return Ok(order),
            }
        }
        let third = node.word(i, 2);
        let rest = if self.long {
            version.map_or(Ok(()), |version| node.check(version))?;
            // SAFETY: the version was checked, or the node is locked: the tail is the entry's, and
            // we are pinned.
            probe.compare_tail(unsafe { Tail::bytes(third) })
        } else {
            third.cmp(&probe.words[2])
        };
        Ok(rest.then_with(|| node.word(i, 3).cmp(&probe.words[3])))
    }

    /// The first of `count` entries of the node that is not smaller than the probe (`beyond`: that
    /// is greater). Without a version the node is locked.
    #[inline]
    fn position(
        &self,
        node: NodePtr,
        version: Option<u64>,
        count: usize,
        probe: &Probe<'_>,
        beyond: bool,
    ) -> Attempt<usize> {
        let is_before = |i: usize| {
            let order = self.compare(node, version, i, probe)?;
            Ok(order == Order::Less || (beyond && order == Order::Equal))
        };
        let mut low = stride(count, is_before)?;
        let mut high = (low + STRIDE).min(count);
        while low < high {
            let middle = (low + high) / 2;
            if is_before(middle)? { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Goes down to the leaf for the probe; with `split`, full inner nodes on the way are split.
    fn descend(&self, probe: &Probe<'_>, beyond: bool, split: bool) -> Attempt<Found> {
        let (mut parent, mut child) = (self.anchor, 0);
        let mut parent_version = parent.read()?;
        let mut node = parent.child(0);
        parent.check(parent_version)?;
        let mut fences = Fences::default();
        loop {
            let version = node.read()?;
            parent.check(parent_version)?;
            if node.level() == 0 {
                return Ok(Found { leaf: node, version, fences, parent, parent_version, child });
            }
            let count = node.count();
            if split && count == CAPACITY {
                Self::lock_both(parent, parent_version, node, version)?;
                self.split_inner(parent, child, node);
                return Err(Restart);
            }
            let at = self.position(node, Some(version), count, probe, beyond)?;
            if at > 0 {
                fences.low = Some(node.words(at - 1));
            }
            if at < count {
                fences.high = Some(node.words(at));
            }
            let below = node.child(at);
            node.check(version)?;
            below.prefetch();
            (parent, parent_version, node, child) = (node, version, below, at);
        }
    }

    fn lock_both(parent: NodePtr, parent_version: u64, node: NodePtr, version: u64) -> Attempt<()> {
        parent.lock(parent_version)?;
        node.lock(version).inspect_err(|_| parent.unlock())
    }

    /// Moves the upper separators of a full inner node to a new one. Both are locked, and unlocked
    /// afterwards.
    fn split_inner(&self, parent: NodePtr, child: usize, node: NodePtr) {
        let (right, half) = (NodePtr::new(node.level()), CAPACITY / 2);
        (half + 1..CAPACITY).for_each(|i| right.set_words(i - half - 1, node.words(i)));
        (half + 1..=CAPACITY).for_each(|i| right.set_child(i - half - 1, node.child(i)));
        right.set_count(CAPACITY - half - 1);
        node.set_count(half);
        self.add_child(parent, child, node, node.words(half), right);
        node.unlock();
        parent.unlock();
    }

    /// Moves the entries from `at` on to a new leaf.
    fn split_leaf(&self, parent: NodePtr, child: usize, leaf: NodePtr, at: usize, mut separator: Words) {
        let right = NodePtr::new(0);
        (at..CAPACITY).for_each(|i| right.set_words(i - at, leaf.words(i)));
        right.set_count(CAPACITY - at);
        leaf.set_count(at);
        if self.long {
            // SAFETY: the entry is in the leaf, which is locked. A separator outlives the entry, so
            // it has a copy.
            separator[2] = Tail::allocate(unsafe { Tail::bytes(separator[2]) });
        }
        self.add_child(parent, child, leaf, separator, right);
        leaf.unlock();
        parent.unlock();
    }

    /// Puts `right` behind child number `at`, which is `left`. The parent, which is locked, has
    /// room.
    fn add_child(&self, parent: NodePtr, at: usize, left: NodePtr, separator: Words, right: NodePtr) {
        if parent == self.anchor {
            let root = NodePtr::new(left.level() + 1);
            root.set_words(0, separator);
            root.set_child(0, left);
            root.set_child(1, right);
            root.set_count(1);
            parent.set_child(0, root);
            return;
        }
        let count = parent.count();
        parent.open_gap(at, count);
        (at + 1..=count).rev().for_each(|i| parent.set_child(i + 1, parent.child(i)));
        parent.set_words(at, separator);
        parent.set_child(at + 1, right);
        parent.set_count(count + 1);
    }

    /// Adds an entry; adding it twice is adding it once.
    pub fn insert(&self, key: &[u8], row: RowId) -> Neighbours {
        let _guard = sync::pin();
        let probe = Probe::entry(key, row, self.long);
        let mut spins = 0;
        loop {
            if let Ok(neighbours) = self.try_insert(&probe) {
                return neighbours;
            }
            spin(&mut spins);
        }
    }

    fn try_insert(&self, probe: &Probe<'_>) -> Attempt<Neighbours> {
        let found = self.descend(probe, false, true)?;
        let leaf = found.leaf;
        let count = leaf.count();
        let at = self.position(leaf, Some(found.version), count, probe, false)?;
        if count == CAPACITY {
            Self::lock_both(found.parent, found.parent_version, leaf, found.version)?;
            let after = leaf.words(at.min(CAPACITY - 1));
            let (split, separator) = if at == CAPACITY {
                (CAPACITY, leaf.words(CAPACITY - 1))
            } else if at > 0 && leaf.node().next.load(Ordering::Relaxed) as usize == at && after[3] > 0 {
                // As far up as possible, so that later keys in order stay on the left.
                (at, [after[0], after[1], after[2], after[3] - 1])
            } else {
                (CAPACITY / 2, leaf.words(CAPACITY / 2 - 1))
            };
            self.split_leaf(found.parent, found.child, leaf, split, separator);
            return Err(Restart);
        }
        leaf.lock(found.version)?;
        let same_key = |words: &Words| {
            // For long keys, the heads decide, and equal heads prove nothing.
            words[..2] == probe.words[..2] && (self.long || words[2] == probe.words[2])
        };
        let neighbour =
            |inside: Option<Words>, fence: Option<Words>| inside.or(fence).is_some_and(|words| same_key(&words));
        let right = (at < count).then(|| leaf.words(at));
        let is_there = right.is_some_and(|words| same_key(&words) && words[3] == probe.words[3])
            && self.position(leaf, None, count, probe, true).is_ok_and(|beyond| beyond > at);
        let same = neighbour(at.checked_sub(1).map(|left| leaf.words(left)), found.fences.low)
            || neighbour(right, found.fences.high);
        if !is_there {
            let mut words = probe.words;
            if self.long {
                words[2] = Tail::allocate(probe.tail);
            }
            leaf.open_gap(at, count);
            leaf.set_words(at, words);
            leaf.set_count(count + 1);
            leaf.node().next.store(at as u32 + 1, Ordering::Relaxed);
        }
        leaf.unlock();
        Ok(if same { Neighbours::PerhapsSame } else { Neighbours::OthersOnly })
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let mut nodes = vec![self.anchor];
        while let Some(node) = nodes.pop() {
            if node.level() > 0 {
                nodes.extend((0..=node.count()).map(|i| node.child(i)));
            }
            // SAFETY: no other thread has the tree any more; each node and each tail is reached
            // once.
            unsafe {
                if self.long {
                    (0..node.count()).for_each(|i| Tail::free(node.word(i, 2)));
                }
                node.free();
            }
        }
    }
}
