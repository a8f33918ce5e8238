//! The memory of blocks.
//!
//! A table's first blocks take ordinary pages, so that a small table occupies what it uses. The others come in pairs, each pair a *huge page* of
//! the machine where the system has them: a tenth of the page faults while loading, and far fewer misses in the translation of addresses when
//! rows are read or written here and there.

use crate::ids::BLOCK_BYTES;
use parking_lot::Mutex;
use std::alloc;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Blocks of a table that take ordinary pages.
pub const SMALL_TABLE_BLOCKS: u32 = 4;

/// Alignment of a block's memory on ordinary pages.
const PAGE_BYTES: usize = 4096;
const HUGE_PAGE_BYTES: usize = 2 << 20;
const _: () = assert!(HUGE_PAGE_BYTES == 2 * BLOCK_BYTES, "a huge page holds a pair of blocks");

/// Bytes of all regions of this process, and of the blocks in them that are in use. Relaxed: figures.
static REGION_BYTES: AtomicUsize = AtomicUsize::new(0);
static USED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of hot blocks' memory in this process: what is in use, and what is held but idle, as the half of a huge page whose other half is in use.
pub fn block_memory_bytes() -> (usize, usize) {
    let used = USED_BYTES.load(Ordering::Relaxed);
    (used, REGION_BYTES.load(Ordering::Relaxed).saturating_sub(used))
}

/// Zeroed memory, for one block or for a pair.
#[derive(Debug)]
struct Region {
    memory: NonNull<u8>,
    kind: RegionKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum RegionKind {
    /// One block, from the allocator.
    Single,
    /// A pair of blocks, mapped by ourselves.
    HugePage,
}

// SAFETY: plain memory; who may touch which part of it is decided by the block.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

fn single_layout() -> alloc::Layout {
    alloc::Layout::from_size_align(BLOCK_BYTES, PAGE_BYTES).expect("constants are valid")
}

impl Region {
    fn single() -> Self {
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc::alloc_zeroed(single_layout()) };
        let memory = NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(single_layout()));
        REGION_BYTES.fetch_add(BLOCK_BYTES, Ordering::Relaxed);
        Self { memory, kind: RegionKind::Single }
    }

    #[cfg(target_os = "linux")]
    fn huge_page() -> Option<Self> {
        let bytes = 2 * HUGE_PAGE_BYTES;
        // SAFETY: a fresh private mapping of which the ends that are not aligned are given back at once. That the advice may be refused does not
        // matter: then the pages are ordinary ones.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let start = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
            if start == libc::MAP_FAILED {
                return None;
            }
            let head = start.cast::<u8>().align_offset(HUGE_PAGE_BYTES);
            let memory = start.cast::<u8>().add(head);
            if head > 0 {
                libc::munmap(start, head);
            }
            libc::munmap(memory.add(HUGE_PAGE_BYTES).cast(), bytes - head - HUGE_PAGE_BYTES);
            libc::madvise(memory.cast(), HUGE_PAGE_BYTES, libc::MADV_HUGEPAGE);
            REGION_BYTES.fetch_add(HUGE_PAGE_BYTES, Ordering::Relaxed);
            Some(Self { memory: NonNull::new(memory)?, kind: RegionKind::HugePage })
        }
    }
    #[cfg(not(target_os = "linux"))]
    fn huge_page() -> Option<Self> {
        None
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let bytes = if self.kind == RegionKind::Single { BLOCK_BYTES } else { HUGE_PAGE_BYTES };
        REGION_BYTES.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: made in `single` or `huge_page`; the last block in it is gone.
        unsafe {
            match self.kind {
                RegionKind::Single => alloc::dealloc(self.memory.as_ptr(), single_layout()),
                #[cfg(target_os = "linux")]
                RegionKind::HugePage => {
                    libc::munmap(self.memory.as_ptr().cast(), HUGE_PAGE_BYTES);
                }
                #[cfg(not(target_os = "linux"))]
                RegionKind::HugePage => unreachable!("there are no huge pages here"),
            }
        }
    }
}

/// The zeroed memory of one block.
#[derive(Debug)]
pub struct BlockMemory {
    start: NonNull<u8>,
    /// Keeps the memory alive.
    _region: Arc<Region>,
}

// SAFETY: as for regions.
unsafe impl Send for BlockMemory {}
// SAFETY: as for regions.
unsafe impl Sync for BlockMemory {}

/// The second halves of huge pages whose first half was given out.
static SPARE_HALVES: Mutex<Vec<BlockMemory>> = Mutex::new(Vec::new());

impl BlockMemory {
    /// Memory for the block numbered `no` of its table.
    pub fn new(no: u32) -> Self {
        USED_BYTES.fetch_add(BLOCK_BYTES, Ordering::Relaxed);
        Self::take(no)
    }

    fn take(no: u32) -> Self {
        if no >= SMALL_TABLE_BLOCKS {
            let mut spares = SPARE_HALVES.lock();
            if let Some(spare) = spares.pop() {
                return spare;
            }
            if let Some(region) = Region::huge_page() {
                let region = Arc::new(region);
                // SAFETY: the region holds two blocks.
                let second = unsafe { region.memory.add(BLOCK_BYTES) };
                spares.push(Self { start: second, _region: region.clone() });
                return Self { start: region.memory, _region: region };
            }
        }
        let region = Arc::new(Region::single());
        Self { start: region.memory, _region: region }
    }

    /// The first byte: 4096-byte aligned, with `BLOCK_BYTES` behind it.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for BlockMemory {
    fn drop(&mut self) {
        USED_BYTES.fetch_sub(BLOCK_BYTES, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_apart() {
        let blocks: Vec<BlockMemory> = (0..16).map(BlockMemory::new).collect();
        for (i, block) in blocks.iter().enumerate() {
            assert_eq!(block.start().as_ptr() as usize % PAGE_BYTES, 0);
            // SAFETY: the block's own memory.
            let bytes = unsafe { std::slice::from_raw_parts_mut(block.start().as_ptr(), BLOCK_BYTES) };
            assert!(bytes.iter().all(|byte| *byte == 0), "block {i}");
            bytes.fill(i as u8 + 1);
        }
        for (i, block) in blocks.iter().enumerate() {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(block.start().as_ptr(), BLOCK_BYTES) };
            assert!(bytes.iter().all(|byte| *byte == i as u8 + 1), "block {i}");
        }
    }
}
