//! In place of `serac_storage::block`, for the models of its heap: a block of one slot and one
//! column of variable length. The heap is the real one; the view in the slot is two of loom's
//! words, where a block has raw memory.

#[path = "../../serac-storage/src/block/atomic_copy.rs"]
pub mod atomic_copy;
#[path = "../../serac-storage/src/block/heap.rs"]
pub mod heap;
#[path = "../../serac-storage/src/block/view.rs"]
pub mod view;

use crate::ids::{ColumnId, Slot};
use crate::version::chain::{VersionHead, VersionedSlots};
use crate::version::undo::UndoRecord;
use heap::BlockHeap;
use serac_sync::atomic::Ordering::Relaxed;
use serac_sync::atomic::{AtomicPtr, AtomicU64};
use std::ptr;
use std::sync::Arc;
use view::ArrowView;

/// See `serac_storage::block::Cell`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    pub null: bool,
    pub bits: u128,
}

/// See `serac_storage::block::Block`.
pub struct Block(pub HotBlock);

impl Block {
    pub fn hot(&self) -> Option<&HotBlock> {
        Some(&self.0)
    }
}

/// See `serac_storage::block::layout::BlockLayout`.
pub struct Layout;

impl Layout {
    pub fn column_ids(&self) -> impl Iterator<Item = ColumnId> {
        std::iter::once(ColumnId(0))
    }
}

/// See `serac_storage::block::HotBlock`.
pub struct HotBlock {
    heap: Arc<BlockHeap>,
    pub head: VersionHead,
    pub versioned: VersionedSlots,
    halves: [AtomicU64; 2],
    append_marker: AtomicPtr<UndoRecord>,
}

impl HotBlock {
    pub fn new() -> Self {
        Self {
            heap: BlockHeap::new(1),
            head: VersionHead::default(),
            versioned: VersionedSlots::default(),
            halves: [AtomicU64::new(0), AtomicU64::new(0)],
            append_marker: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub fn heap(&self) -> &Arc<BlockHeap> {
        &self.heap
    }

    pub fn append_marker(&self) -> &AtomicPtr<UndoRecord> {
        &self.append_marker
    }

    pub fn layout(&self) -> Layout {
        Layout
    }

    pub fn is_view(&self, _: ColumnId) -> bool {
        true
    }

    pub fn slot_limit(&self) -> u32 {
        1
    }

    pub fn is_freezing(&self) -> bool {
        false
    }

    pub fn version_head(&self, _: Slot) -> &VersionHead {
        &self.head
    }

    pub fn view(&self, _: ColumnId, _: Slot) -> Option<ArrowView> {
        let [low, high] = self.halves.each_ref().map(|half| half.load(Relaxed));
        Some(u128::from(low) | u128::from(high) << 64)
    }

    pub fn redirect(&self, _: ColumnId, _: Slot, view: ArrowView) {
        heap::redirect(&self.halves[1], view);
    }

    /// `HotBlock::write_cell`.
    pub fn write_view(&self, view: ArrowView) {
        self.halves[0].store(view as u64, Relaxed);
        self.halves[1].store((view >> 64) as u64, Relaxed);
    }

    /// `HotBlock::copy_out`. It copies byte by byte, so chunk and offset are looked at apart.
    pub fn copy_view(&self) -> ArrowView {
        let low = self.halves[0].load(Relaxed);
        let (chunk, offset) = (self.halves[1].load(Relaxed), self.halves[1].load(Relaxed));
        let high = chunk & u64::from(u32::MAX) | offset & !u64::from(u32::MAX);
        u128::from(low) | u128::from(high) << 64
    }
}
