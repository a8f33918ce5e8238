//! Scans: a leaf at a time, copied and checked before it is shown.

use super::super::RowId;
use super::super::sync::{self, CAPACITY, spin};
use super::Tree;
use super::entry::{EntryKey, Probe, Tail, Words};
use super::node::{Attempt, NodePtr};
use std::cmp::Ordering as Order;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;

/// A scan announces rows this many entries ahead.
const AHEAD: usize = 3;

impl Tree {
    /// As [`position`](Self::position), from the entry `from` on. The next two entries are looked
    /// at first, because most keys have one entry or none.
    #[inline]
    fn end(&self, leaf: NodePtr, version: Option<u64>, from: usize, count: usize, to: &Probe<'_>) -> Attempt<usize> {
        for i in from..count.min(from + 2) {
            if self.compare(leaf, version, i, to)? != Order::Less {
                return Ok(i);
            }
        }
        Ok(self.position(leaf, version, count, to, false)?.max(from))
    }

    /// Visits the entries from `from` up to, not including, `to` in order, or in reverse. Tells
    /// which rows are `coming` a few entries ahead.
    pub fn scan<B>(
        &self,
        from: &Probe<'_>,
        to: &Probe<'_>,
        reverse: bool,
        mut coming: impl FnMut(RowId),
        mut visit: impl FnMut(EntryKey<'_>, RowId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let _guard = sync::pin();
        let mut copies = [const { MaybeUninit::<Words>::uninit() }; CAPACITY];
        let mut at = if reverse { *to } else { *from };
        // Whether the place is behind an entry that is equal to it.
        let mut beyond = false;
        let mut spins = 0;
        loop {
            let copy = |copies: &mut [MaybeUninit<Words>; CAPACITY]| -> Attempt<(usize, usize, Option<Words>)> {
                let found = self.descend(&at, beyond && !reverse, false)?;
                let (leaf, version) = (found.leaf, Some(found.version));
                let count = leaf.count();
                let here = self.position(leaf, version, count, &at, beyond)?;
                let (first, last, end) = if reverse {
                    let first = self.position(leaf, version, count, from, false)?;
                    (first, here.max(first), if first > 0 { None } else { found.fences.low })
                } else {
                    let last = self.end(leaf, version, here, count, to)?;
                    (here.min(last), last, if last < count { None } else { found.fences.high })
                };
                for (i, copy) in copies[..last].iter_mut().enumerate().skip(first) {
                    copy.write(leaf.words(i));
                }
                leaf.check(found.version)?;
                Ok((first, last, end))
            };
            let Ok((first, last, next)) = copy(&mut copies) else {
                spin(&mut spins);
                continue;
            };
            // SAFETY: those between the first and the last were written.
            let entry = |i: usize| unsafe { copies[if reverse { first + last - 1 - i } else { i }].assume_init() };
            (first + 1..last.min(first + AHEAD)).for_each(|i| coming(RowId::from_u64(entry(i)[3])));
            for i in first..last {
                if i + AHEAD < last {
                    coming(RowId::from_u64(entry(i + AHEAD)[3]));
                }
                let words = entry(i);
                // SAFETY: the entry was in the tree while we were pinned, as we still are.
                let tail = self.long.then(|| unsafe { Tail::bytes(words[2]) });
                visit(EntryKey { words: [words[0], words[1], words[2]], tail }, RowId::from_u64(words[3]))?;
            }
            let Some(next) = next else { return ControlFlow::Continue(()) };
            // SAFETY: a separator that was in the tree while we were pinned.
            (at, beyond) = (unsafe { Probe::at(next, self.long) }, true);
        }
    }
}
