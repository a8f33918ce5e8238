//! Checks of a whole tree that nobody changes.

use super::super::sync::{self, Ordering};
use super::entry::{Tail, Words};
use super::node::{LOCKED, OBSOLETE};
use super::{Fences, Tree};
use std::cmp::Ordering as Order;

impl Tree {
    /// Walks everything and checks what must hold while nobody writes. Returns the number of entries.
    ///
    /// # Panics
    /// When something does not hold.
    pub fn verify(&self) -> usize {
        let _guard = sync::pin();
        let compare = |words: Words, other: Words| {
            let order = words[..2].cmp(&other[..2]);
            let third = if self.long {
                // SAFETY: both are in the tree.
                unsafe { Tail::bytes(words[2]).cmp(Tail::bytes(other[2])) }
            } else {
                words[2].cmp(&other[2])
            };
            order.then(third).then(words[3].cmp(&other[3]))
        };
        let mut entries = 0;
        let mut nodes = vec![(self.anchor.child(0), Fences::default())];
        while let Some((node, fences)) = nodes.pop() {
            let count = node.count();
            assert_eq!(node.node().version.load(Ordering::Acquire) & (LOCKED | OBSOLETE), 0);
            for i in 0..count {
                let words = node.words(i);
                let low = i.checked_sub(1).map(|before| node.words(before)).or(fences.low);
                assert!(low.is_none_or(|low| compare(low, words) == Order::Less), "entries ascend");
                assert!(
                    fences.high.is_none_or(|high| compare(words, high) != Order::Greater),
                    "entries are below the fence"
                );
            }
            if node.level() == 0 {
                entries += count;
                continue;
            }
            for i in 0..=count {
                let child = node.child(i);
                assert_eq!(child.level() + 1, node.level());
                let low = i.checked_sub(1).map(|before| node.words(before)).or(fences.low);
                let high = (i < count).then(|| node.words(i)).or(fences.high);
                nodes.push((child, Fences { low, high }));
            }
        }
        entries
    }

    /// Nodes, for checks of what is given back.
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
