//! A table's block table: block number → block in one load.
//!
//! A flat array of atomic pointers that never moves, so a lookup needs neither a latch nor a hash.
//! It is reserved at full size as zeroed virtual memory: 8 MiB of addresses, touched page by page
//! as the table grows. Each entry owns one reference to its block. A block may be replaced by its
//! other form (frozen or thawed), or removed when it has become empty. The old block's reference is
//! given up an epoch later, so a pinned reader keeps the block that it has found.

use crate::block::Block;
use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, MAX_BLOCKS_PER_TABLE};
use serac_sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use serac_sync::epoch::{self, Guard};
use std::alloc;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// The blocks of one table.
#[derive(Debug)]
pub struct BlockTable {
    entries: NonNull<AtomicPtr<Block>>,
    len: AtomicU32,
    grow: serac_sync::Mutex<()>,
}

// SAFETY: entries are atomic; blocks are Send and Sync.
unsafe impl Send for BlockTable {}
// SAFETY: as above.
unsafe impl Sync for BlockTable {}

impl Default for BlockTable {
    fn default() -> Self {
        let layout = Self::memory_layout();
        // SAFETY: the size is not zero; all-zero bytes are null pointers.
        let entries = unsafe { alloc::alloc_zeroed(layout) };
        Self {
            entries: NonNull::new(entries.cast()).unwrap_or_else(|| alloc::handle_alloc_error(layout)),
            len: AtomicU32::new(0),
            grow: serac_sync::Mutex::new(()),
        }
    }
}

impl BlockTable {
    fn memory_layout() -> alloc::Layout {
        alloc::Layout::array::<AtomicPtr<Block>>(MAX_BLOCKS_PER_TABLE as usize).expect("a constant size")
    }

    #[inline]
    fn entry(&self, no: BlockNo) -> &AtomicPtr<Block> {
        assert!(no.0 < MAX_BLOCKS_PER_TABLE, "block number {} is outside every table", no.0);
        // SAFETY: in bounds by the assertion; zeroed memory is a valid null AtomicPtr.
        unsafe { &*self.entries.as_ptr().add(no.0 as usize) }
    }

    /// The largest block number so far plus one. Numbers below it may have no block: recycled, or
    /// left out by recovery.
    pub fn len(&self) -> u32 {
        // Acquire: pairs with the Release in `put`, so that every block that was put below the
        // length is found.
        self.len.load(Ordering::Acquire)
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The block with this number, if it exists.
    #[inline]
    pub fn get<'g>(&'g self, no: BlockNo, _guard: &'g Guard) -> Option<&'g Block> {
        // Acquire: pairs with the Release in `put` and `replace`.
        let block = self.entry(no).load(Ordering::Acquire);
        // SAFETY: an entry owns a reference, which is given up an epoch after the block was
        // replaced at the earliest: the caller is pinned.
        unsafe { block.as_ref() }
    }

    /// A reference of the caller's own to the block with this number.
    pub fn get_arc(&self, no: BlockNo) -> Option<Arc<Block>> {
        self.get(no, &epoch::pin()).map(|block| {
            // SAFETY: the pointer came from `Arc::into_raw`, and the entry's reference keeps the
            // count above zero.
            unsafe {
                Arc::increment_strong_count(block);
                Arc::from_raw(block)
            }
        })
    }

    /// Puts a block at a number without one.
    ///
    /// # Errors
    /// [`StorageError::Limit`] when the table is full.
    pub fn insert(&self, no: BlockNo, block: Arc<Block>) -> Result<()> {
        let _grow = self.grow.lock();
        if no.0 >= MAX_BLOCKS_PER_TABLE {
            return Err(StorageError::Limit(format!("a table can have at most {MAX_BLOCKS_PER_TABLE} blocks")));
        }
        self.put(no, block);
        Ok(())
    }

    /// The block with this number, made if it is missing: recovery puts rows where they were.
    pub fn get_or_insert_with<'g>(
        &'g self,
        no: BlockNo,
        guard: &'g Guard,
        make: impl FnOnce() -> Arc<Block>,
    ) -> &'g Block {
        if let Some(block) = self.get(no, guard) {
            return block;
        }
        let _grow = self.grow.lock();
        if self.get(no, guard).is_none() {
            self.put(no, make());
        }
        self.get(no, guard).expect("it was just put")
    }

    /// Puts `new` in the place of `old`, if that is still there.
    pub fn replace(&self, no: BlockNo, old: &Block, new: Arc<Block>) -> bool {
        let new = Arc::into_raw(new).cast_mut();
        let replaced = self.exchange(no, old, new);
        if !replaced {
            // SAFETY: just taken out of its Arc, and not shared yet.
            drop(unsafe { Arc::from_raw(new) });
        }
        replaced
    }

    /// Leaves nothing in the place of `old`, if that is still there.
    pub fn remove(&self, no: BlockNo, old: &Block) -> bool {
        self.exchange(no, old, ptr::null_mut())
    }

    fn exchange(&self, no: BlockNo, old: &Block, new: *mut Block) -> bool {
        let old = ptr::from_ref(old).cast_mut();
        // AcqRel: publishes the new block's content; pairs with the Acquire in `get`.
        if self.entry(no).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        let old = SharedBlock(old);
        let guard = epoch::pin();
        // SAFETY: the entry's own reference to the old block, given up once: a reader that found
        // the block in the entry was pinned.
        unsafe { guard.defer_unchecked(move || drop(Arc::from_raw({ old }.0))) };
        // A block is too large to wait in this thread's bag until that is full.
        guard.flush();
        true
    }

    fn put(&self, no: BlockNo, block: Arc<Block>) {
        // Release: pairs with the Acquire in `get`.
        let old = self.entry(no).swap(Arc::into_raw(block).cast_mut(), Ordering::Release);
        assert!(old.is_null(), "block {} was there already", no.0);
        // Release: pairs with the Acquire in `len`. Only growers write, under the latch.
        self.len.store(self.len.load(Ordering::Relaxed).max(no.0 + 1), Ordering::Release);
    }
}

/// A pointer to a block on its way to another thread.
struct SharedBlock(*mut Block);
// SAFETY: blocks are Send and Sync.
unsafe impl Send for SharedBlock {}

impl Drop for BlockTable {
    fn drop(&mut self) {
        for no in 0..self.len() {
            let block = self.entry(BlockNo(no)).load(Ordering::Relaxed);
            if !block.is_null() {
                // SAFETY: the entry's own reference, given up once.
                drop(unsafe { Arc::from_raw(block) });
            }
        }
        // SAFETY: allocated in `default` with the same layout.
        unsafe { alloc::dealloc(self.entries.as_ptr().cast(), Self::memory_layout()) }
    }
}
