//! Checks of a whole tree.

use super::super::sync::{self, spin};
use super::entry::{Tail, Words};
use super::node::{Attempt, NodePtr, Restart};
use super::{Fences, Tree};
use std::cmp::Ordering as Order;

impl Tree {
    /// Walks the whole tree and checks its invariants. Returns the number of entries.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn verify(&self) -> usize {
        let mut spins = 0;
        loop {
            match self.walk() {
                Ok(entries) => return entries,
                Err(Restart) => spin(&mut spins),
            }
        }
    }

    /// A walk that restarts where other threads write meanwhile (entries of deleted rows are
    /// removed in the background). A node counts as it was at one version, and a fault counts if
    /// all visited nodes are still unchanged.
    fn walk(&self) -> Attempt<usize> {
        let _guard = sync::pin();
        let mut entries = 0;
        let version = self.anchor.read()?;
        let mut seen = vec![(self.anchor, version)];
        let mut nodes = vec![(self.anchor.child(0), Fences::default())];
        self.anchor.check(version)?;
        let unchanged = |seen: &[(NodePtr, u64)]| seen.iter().try_for_each(|(node, version)| node.check(*version));
        while let Some((node, fences)) = nodes.pop() {
            let version = node.read()?;
            let words: Vec<Words> = (0..node.count()).map(|i| node.words(i)).collect();
            let is_leaf = node.level() == 0;
            let children = if is_leaf { 0..0 } else { 0..words.len() + 1 };
            let children: Vec<NodePtr> = children.map(|i| node.child(i)).collect();
            node.check(version)?;
            seen.push((node, version));
            // SAFETY: both are in the tree at a version that has been checked, and the walk is
            // pinned.
            let order_of = |words, other| unsafe { self.order_of(words, other) };
            let ascend = |pair: &[Words]| order_of(pair[0], pair[1]) == Order::Less;
            let around: Vec<Words> = fences.low.into_iter().chain(words.iter().copied()).collect();
            let is_above = |(high, last): (Words, Words)| order_of(last, high) == Order::Greater;
            let faults = [
                (!around.windows(2).all(ascend), "entries do not ascend"),
                (fences.high.zip(words.last().copied()).is_some_and(is_above), "an entry is above the fence"),
                (children.iter().any(|child| child.level() + 1 != node.level()), "a child is not a level below"),
            ];
            if let Some((_, fault)) = faults.into_iter().find(|(found, _)| *found) {
                unchanged(&seen)?;
                panic!("{fault}");
            }
            if is_leaf {
                entries += words.len();
            }
            for (i, child) in children.into_iter().enumerate() {
                let low = i.checked_sub(1).map(|before| words[before]).or(fences.low);
                nodes.push((child, Fences { low, high: words.get(i).copied().or(fences.high) }));
            }
        }
        unchanged(&seen)?;
        Ok(entries)
    }

    /// # Safety
    /// Tails of both have not been freed.
    pub(super) unsafe fn order_of(&self, words: Words, other: Words) -> Order {
        let order = words[..2].cmp(&other[..2]);
        let third = if self.long {
            // SAFETY: as the caller promises.
            unsafe { Tail::bytes(words[2]).cmp(Tail::bytes(other[2])) }
        } else {
            words[2].cmp(&other[2])
        };
        order.then(third).then(words[3].cmp(&other[3]))
    }

    /// The number of nodes, for checks of freed memory.
    #[cfg(test)]
    pub fn node_count(&self) -> usize {
        let (mut count, mut nodes) = (0, vec![self.anchor.child(0)]);
        while let Some(node) = nodes.pop() {
            count += 1;
            if node.level() > 0 {
                nodes.extend((0..=node.count()).map(|i| node.child(i)));
            }
        }
        count
    }
}
