//! Looking ahead: down to the leaves of many keys at once, so that the processor waits for the
//! nodes of all of them together.

use super::super::RowId;
use super::super::sync;
use super::entry::Probe;
use super::node::NodePtr;
use super::{Tree, stride};
use std::cmp::Ordering as Order;

/// This many keys go down together: their prefetched nodes should stay in the nearest cache.
const TOGETHER: usize = 32;

impl Tree {
    /// Calls `found` with the row of the first entry from each probe on, in any order. A probe
    /// whose path other threads change may be skipped: the result tells which memory will be read,
    /// not which entries exist.
    pub fn look_ahead(&self, probes: &[Probe<'_>], mut found: impl FnMut(RowId)) {
        let _guard = sync::pin();
        for probes in probes.chunks(TOGETHER) {
            let root = || {
                let version = self.anchor.read().ok()?;
                let root = self.anchor.child(0);
                self.anchor.check(version).ok().map(|()| root)
            };
            let mut nodes = [const { None::<NodePtr> }; TOGETHER];
            nodes[..probes.len()].fill(root());
            while nodes.iter().any(Option::is_some) {
                // First the strides in which the probes lie, then the places in them.
                for (node, probe) in nodes.iter().zip(probes) {
                    let Some(node) = *node else { continue };
                    let Ok(version) = node.read() else { continue };
                    let is_before = |i| Ok(self.compare(node, Some(version), i, probe)? == Order::Less);
                    if let Ok(low) = stride(node.count(), is_before) {
                        node.prefetch_stride(low);
                    }
                }
                for (node, probe) in nodes.iter_mut().zip(probes) {
                    *node = node.and_then(|node| self.step(node, probe, &mut found));
                }
            }
        }
    }

    /// The child of the node in which the probe lies, with its lines prefetched; `None` for a leaf,
    /// whose row is `found`.
    fn step(&self, node: NodePtr, probe: &Probe<'_>, found: &mut impl FnMut(RowId)) -> Option<NodePtr> {
        let version = node.read().ok()?;
        let count = node.count();
        let at = self.position(node, Some(version), count, probe, false).ok()?;
        if node.level() == 0 {
            let row = (at < count).then(|| node.word(at, 3));
            node.check(version).ok()?;
            row.map(RowId::from_u64).into_iter().for_each(found);
            return None;
        }
        let below = node.child(at);
        // The code below looks at the child only once it is known to have been the node's while we
        // were pinned.
        node.check(version).ok()?;
        below.prefetch();
        Some(below)
    }
}
