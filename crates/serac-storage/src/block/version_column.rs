//! The version column of a hot block: the heads of its slots' version chains (§3.1).
//!
//! It lies apart from the block's values, which stay where they are when the block freezes, while
//! the version column goes. The columns of a table's first blocks take ordinary pages, as the
//! blocks do ([`crate::block::block_memory`]); the others share huge pages. No version column is
//! touched before a row has a version. A huge page without version columns goes back to the system.

use crate::block::block_memory::{HUGE_PAGE_BYTES, Region, SMALL_TABLE_BLOCKS, note_used};
use crate::version::chain::VersionHead;
use serac_sync::Mutex;
use serac_sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

/// Pieces of huge pages that no block has, by their slots. All their heads are null.
static FREE: Mutex<BTreeMap<usize, Vec<Piece>>> = Mutex::new(BTreeMap::new());

/// Room for one version column in a huge page.
#[derive(Debug)]
struct Piece {
    start: NonNull<VersionHead>,
    /// Keeps the memory alive; each of its pieces has it once.
    region: Arc<Region>,
}

// SAFETY: plain memory, reached through atomic accesses only.
unsafe impl Send for Piece {}

impl Piece {
    /// The pieces of a fresh huge page; `None` if the system maps none.
    fn of_huge_page(slots: usize) -> Option<Vec<Self>> {
        let region = Arc::new(Region::huge_page()?);
        let bytes = size_of::<VersionHead>() * slots;
        let starts = (0..HUGE_PAGE_BYTES / bytes).map(|i| {
            // SAFETY: the piece lies in the region.
            unsafe { region.start().add(i * bytes) }.cast()
        });
        Some(starts.map(|start| Self { start, region: region.clone() }).collect())
    }

    fn take(slots: usize) -> Option<Self> {
        let mut free = FREE.lock();
        let free = free.entry(slots).or_default();
        if free.is_empty() {
            *free = Self::of_huge_page(slots)?;
            // The pieces that are taken first lie first.
            free.reverse();
        }
        free.pop()
    }

    /// Puts the piece back, or gives the huge page back if this was the last.
    fn give_back(self, slots: usize) {
        let mut free = FREE.lock();
        let of_size = free.entry(slots).or_default();
        let region = self.region.clone();
        of_size.push(self);
        let same = |piece: &Piece| Arc::ptr_eq(&piece.region, &region);
        // All pieces of the region, and this function.
        if of_size.iter().filter(|piece| same(piece)).count() + 1 == Arc::strong_count(&region) {
            of_size.retain(|piece| !same(piece));
        }
        if of_size.is_empty() {
            free.remove(&slots);
        }
    }
}

/// One block's version column: a head pointer for each slot.
#[derive(Debug)]
pub(crate) struct VersionColumn {
    start: NonNull<VersionHead>,
    slots: usize,
    /// The heads' place in a huge page; `None` if they have memory of their own, from the
    /// allocator.
    piece: Option<Piece>,
}

impl VersionColumn {
    /// Heads that are all null, for block number `no` of its table, which has `slots` slots.
    pub fn new(no: u32, slots: usize) -> Self {
        if no >= SMALL_TABLE_BLOCKS
            && let Some(piece) = Piece::take(slots)
        {
            note_used((size_of::<VersionHead>() * slots) as isize);
            return Self { start: piece.start, slots, piece: Some(piece) };
        }
        // SAFETY: zeros are null heads.
        let heads = unsafe { Box::<[VersionHead]>::new_zeroed_slice(slots).assume_init() };
        Self { start: NonNull::from(Box::leak(heads)).cast(), slots, piece: None }
    }

    /// The heads, by slot.
    #[inline]
    pub fn heads(&self) -> &[VersionHead] {
        // SAFETY: `slots` heads, zeroed at first, that live as long as the column and are reached
        // through atomic accesses only.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.slots) }
    }
}

impl Drop for VersionColumn {
    fn drop(&mut self) {
        let Some(piece) = self.piece.take() else {
            let heads = NonNull::slice_from_raw_parts(self.start, self.slots);
            // SAFETY: leaked in `new`, and no reference to the column is left.
            return drop(unsafe { Box::from_raw(heads.as_ptr()) });
        };
        // The block of a table that was dropped may have versions. Relaxed: nobody else has the
        // column, and the lock orders its next owner.
        for head in self.heads().iter().filter(|head| !head.glance().is_null()) {
            head.as_atomic().store(std::ptr::null_mut(), Ordering::Relaxed);
        }
        note_used(-(size_of_val(self.heads()) as isize));
        piece.give_back(self.slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_null_apart_and_used_again() {
        // A number of slots that no other test has.
        let slots = 12_347;
        for _ in 0..3 {
            let columns: Vec<_> = (0..60).map(|no| VersionColumn::new(no, slots)).collect();
            for (no, column) in columns.iter().enumerate() {
                assert_eq!(column.heads().len(), slots);
                for head in column.heads() {
                    let mark = std::ptr::without_provenance_mut(8 * (no + 1));
                    assert!(
                        head.as_atomic().swap(mark, Ordering::Relaxed).is_null(),
                        "column {no} is not its own, or was used"
                    );
                }
            }
            let kept = columns.into_iter().nth(20);
            let free = |slots| FREE.lock().get(&slots).map_or(0, Vec::len);
            if cfg!(target_os = "linux") {
                let pieces = HUGE_PAGE_BYTES / (size_of::<VersionHead>() * slots);
                assert_eq!(free(slots), pieces - 1, "what shares a huge page with the kept column");
            }
            drop(kept);
            assert_eq!(free(slots), 0, "the last huge page went back");
        }
    }
}
