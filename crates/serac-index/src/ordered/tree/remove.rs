//! Removing entries, and leaves that are empty.

use super::super::RowId;
use super::super::sync::{self, Guard, Ordering, spin};
use super::Tree;
use super::entry::{Probe, Tail, Words};
use super::node::{Attempt, NodePtr};

impl Tree {
    /// Removes an entry; false if it was not there.
    pub fn remove(&self, key: &[u8], row: RowId) -> bool {
        let guard = sync::pin();
        let probe = Probe::entry(key, row, self.long);
        let mut spins = 0;
        loop {
            if let Ok(removed) = self.try_remove(&probe, &guard) {
                return removed;
            }
            spin(&mut spins);
        }
    }

    fn try_remove(&self, probe: &Probe<'_>, guard: &Guard) -> Attempt<bool> {
        let found = self.descend(probe, false, false)?;
        let leaf = found.leaf;
        let count = leaf.count();
        let at = self.position(leaf, Some(found.version), count, probe, false)?;
        let is_there = self.position(leaf, Some(found.version), count, probe, true)? > at;
        if !is_there {
            leaf.check(found.version)?;
            return Ok(false);
        }
        leaf.lock(found.version)?;
        self.retire_tail(leaf.words(at), guard);
        leaf.close_gap(at, count);
        leaf.set_count(count - 1);
        leaf.node().next.store(u32::MAX, Ordering::Relaxed);
        leaf.unlock();
        if count == 1 {
            self.remove_empty_leaf(probe, guard);
        }
        Ok(true)
    }

    fn retire_tail(&self, words: Words, guard: &Guard) {
        if self.long && words[2] != 0 {
            // SAFETY: the entry or separator is being taken out, once; threads that have seen it
            // are pinned.
            unsafe { guard.defer_unchecked(move || Tail::free(words[2])) };
        }
    }

    /// Removes the leaf for the probe, if it is empty still, and the inner nodes that have no other
    /// child.
    fn remove_empty_leaf(&self, probe: &Probe<'_>, guard: &Guard) {
        self.anchor.lock_below();
        // Locked from the lowest node on that keeps a child; all below it have one child.
        let (mut locked, mut at) = (vec![self.anchor], 0);
        let mut child = 0;
        loop {
            let node = locked.last().expect("the anchor at least").child(child);
            node.lock_below();
            let count = node.count();
            if node.level() == 0 {
                if count > 0 {
                    node.unlock();
                    locked.drain(..).for_each(NodePtr::unlock);
                    return;
                }
                locked.push(node);
                break;
            }
            let next = self.position(node, None, count, probe, false).unwrap_or(0);
            if count > 0 {
                locked.drain(..).for_each(NodePtr::unlock);
                at = next;
            }
            locked.push(node);
            child = next;
        }
        let top = locked[0];
        let leaf = locked[locked.len() - 1];
        if top == self.anchor {
            // No child is left: the leaf becomes the root.
            top.set_child(0, leaf);
            locked.pop();
            leaf.unlock();
        } else {
            let count = top.count();
            let separator = at.min(count - 1);
            self.retire_tail(top.words(separator), guard);
            top.close_gap(separator, count);
            (at + 1..=count).for_each(|i| top.set_child(i - 1, top.child(i)));
            top.set_count(count - 1);
        }
        for &node in &locked[1..] {
            node.unlock_obsolete();
            // SAFETY: nothing leads to the node any more; threads that have seen it are pinned.
            unsafe { guard.defer_unchecked(move || { node }.free()) };
        }
        top.unlock();
    }
}
