//! Heap vacuum of hot blocks: chunks that are garbage for the most part are emptied, while
//! transactions go on.
//!
//! A block that is written all the time never freezes, so its heap is never gathered, and the
//! garbage of updates would pile up. A chunk is dropped once no view names its bytes (see
//! [`crate::block::heap`]), but a single value that is never updated keeps a whole chunk. When a
//! block's heap has more garbage than live bytes, the collector that notices it *condemns* the
//! chunks that are less than half live. It copies the values in them that slots and before-images
//! name to the heap's tail, and redirects those views to the copies. A condemned chunk is then
//! named by nothing and goes. The work is in proportion to the garbage. So a heap takes about twice
//! its live bytes, also under steady writes and with readers that keep versions for long.
//!
//! **Against writers.** A view in a slot changes under the heap's latch only, and a writer holds
//! the latch from before it reads the before-image until the slot has its new views. The vacuum
//! goes through the slots in steps, each under the latch. New values go to the tail, which is not
//! condemned; so once a slot and its chain were looked at, they never name a condemned chunk again:
//! also an abort only puts back what the chain holds.
//!
//! **Against collectors.** The chain of a row is walked under its pruning latch (taken before the
//! heap's), so no record of it is unlinked, and its values let go of, meanwhile.
//!
//! **Against readers.** A redirected view names the same bytes as before, and only the half of it
//! that says where they lie changes, in one store. The store is a Release, because a reader of a
//! row takes no latch, and must find the copy when it has the new view. A reader that has copied
//! the old view finds the old chunk: it fetches chunks under the pin under which it copied, and a
//! chunk is dropped an epoch after it was emptied. A view is redirected before the old value is
//! released, because readers that pin later are not waited for. Since no version tells of the
//! change, bulk copies, which may be torn, are checked against the heap's count of redirections.
//!
//! **Against freezing.** A step looks at the temperature and gives up on a freezing block; the
//! freezer takes the latch once before it gathers, so that no step is under way. The gather
//! redirects views in the same way ([`crate::freeze::frozen`]).
//!
//! Model: `serac-models/tests/vacuum.rs`.

use crate::block::heap::{BlockHeap, HeapLatch};
use crate::block::{Block, HotBlock};
use crate::ids::{BlockNo, ColumnId, RowId, Slot};
use serac_sync::MutexGuard;
use serac_sync::atomic::Ordering;
use serac_sync::epoch;
use std::sync::Arc;

/// Garbage that a heap may have, independently of its live bytes: a vacuum looks at every slot of
/// the block.
const GARBAGE_FLOOR: u64 = 256 << 10;

/// The garbage that a heap may have, or less in a simulation.
pub(crate) fn garbage_floor() -> usize {
    serac_sync::limit("garbage of a heap", GARBAGE_FLOOR, 64) as usize
}
/// Slots that are looked at under one latch.
const STEP: u64 = 256;

/// Empties the condemned chunks of `block`, number `no` of its table: those that are mostly
/// garbage, if there is enough of that, or `all`. `latch_row` takes a row's pruning latch.
pub(crate) fn vacuum<'l>(block: &Block, no: BlockNo, all: bool, latch_row: impl Fn(RowId) -> MutexGuard<'l, ()>) {
    let Some(block) = block.hot() else { return };
    // Acquire: pairs with the Release below; one vacuum at a time.
    if block.heap().vacuuming().swap(true, Ordering::Acquire) {
        return;
    }
    run(block, no, all, latch_row);
    block.heap().vacuuming().store(false, Ordering::Release);
}

fn run<'l>(block: &HotBlock, no: BlockNo, all: bool, latch_row: impl Fn(RowId) -> MutexGuard<'l, ()>) {
    // A bulk append fills its block without the latch until everybody sees the block.
    if !block.append_marker().load(Ordering::Acquire).is_null() {
        return;
    }
    {
        let mut latch = block.heap().latch();
        if !(all || block.heap().wants_vacuum(garbage_floor())) || !latch.condemn(all) {
            return;
        }
    }
    let views: Vec<ColumnId> = block.layout().column_ids().filter(|&column| block.is_view(column)).collect();
    let (mut from, limit) = (0, block.slot_limit());
    let mut versioned = Vec::new();
    while from < limit {
        let to = (from + serac_sync::limit("slots of a vacuum's step", STEP, 1) as u32).min(limit);
        let _guard = epoch::pin();
        {
            let mut step = Step::new(block.heap());
            if block.is_freezing() {
                break;
            }
            for slot in (from..to).map(Slot) {
                // A chain with views begins under the latch only.
                if block.version_head(slot).newest().is_null() {
                    step.slot(block, &views, slot);
                } else {
                    versioned.push(slot);
                }
            }
        }
        for slot in versioned.drain(..) {
            let _row = latch_row(RowId::new(no, slot));
            let mut step = Step::new(block.heap());
            // A row with versions keeps its block from freezing, but by now it may have lost them.
            if block.is_freezing() {
                break;
            }
            step.slot(block, &views, slot);
            step.chain(block, slot);
        }
        from = to;
    }
    // A record that a collector has unlinked but not released may still name the chunk: then the
    // chunk goes when it does.
    block.heap().latch().pardon();
}

/// The latch, while views are redirected.
pub(crate) struct Step<'h> {
    heap: &'h BlockHeap,
    pub(crate) latch: HeapLatch<'h>,
}

impl<'h> Step<'h> {
    pub(crate) fn new(heap: &'h Arc<BlockHeap>) -> Self {
        let latch = heap.latch();
        heap.redirections().begin();
        Self { heap, latch }
    }

    fn slot(&mut self, block: &HotBlock, views: &[ColumnId], slot: Slot) {
        for &column in views {
            if let Some(view) = block.view(column, slot)
                && self.latch.is_condemned(column, view)
            {
                self.latch.relocate(column, view, |copy| block.redirect(column, slot, copy));
            }
        }
    }

    /// The before-images of a row. The caller holds its pruning latch and has pinned.
    fn chain(&mut self, block: &HotBlock, slot: Slot) {
        let mut current = block.version_head(slot).newest();
        // SAFETY: linked records are alive, and the pruning latch keeps them linked.
        while let Some(record) = unsafe { current.as_ref() } {
            for before in record.before().iter().filter(|before| block.is_view(before.column)) {
                let cell = before.cell();
                if !cell.null && self.latch.is_condemned(before.column, cell.bits) {
                    self.latch.relocate(before.column, cell.bits, |copy| before.redirect(copy));
                }
            }
            current = record.next();
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.heap.redirections().end();
    }
}
