//! The memory of blocks.
//!
//! A table's first blocks take ordinary pages, so that a small table occupies only the memory that
//! it uses. The others come in pairs, each pair a *huge page* of the machine where the system has
//! them. Loading then takes a tenth of the page faults, and random accesses to rows miss the TLB
//! far less often.
//!
//! A freezing block lends parts of its memory to its frozen form, and they outlive the block
//! ([`crate::freeze::frozen`]). The whole pages between those parts are given back to the system
//! when the hot block is gone. The system also gets back the memory of a block whose other half of
//! a huge page is in use. From then on the system is told to leave that huge page split: it would
//! fill it up again.
//!
//! The system clears a page when it is touched for the first time, which for a huge page takes as
//! long as many transactions. While tables grow, collectors keep a few huge pages
//! [ready](keep_ready), so that an inserting thread need not wait.

use crate::ids::BLOCK_BYTES;
use crate::uptime::now_ms;
use serac_sync::Mutex;
use serac_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::alloc;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// Blocks of a table that take ordinary pages.
pub const SMALL_TABLE_BLOCKS: u32 = 4;

/// A block's memory is kept whole if at most one part in this many of it could be given back: it
/// can stay in a huge page then.
pub const SPARE_PART: usize = 16;
/// Bytes of an ordinary page, to which a block's memory is aligned.
const PAGE_BYTES: usize = 4096;
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
const _: () = assert!(HUGE_PAGE_BYTES == 2 * BLOCK_BYTES, "a huge page holds a pair of blocks");

/// Bytes of all regions of this process, and those of them that blocks or version columns use.
/// Relaxed: figures.
static REGION_BYTES: AtomicUsize = AtomicUsize::new(0);
static USED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of blocks' memory in this process: (used, idle). Hot blocks, version columns in huge
/// pages, and the parts that frozen blocks keep are used. Unused second halves and pieces of huge
/// pages, and ready huge pages, are idle.
pub fn block_memory_bytes() -> (usize, usize) {
    let used = USED_BYTES.load(Ordering::Relaxed);
    (used, REGION_BYTES.load(Ordering::Relaxed).saturating_sub(used))
}

/// Notes that so many bytes of a region are in use; or, for a difference below zero, no longer.
pub(crate) fn note_used(difference: isize) {
    // Wraps around for differences below zero, as it should. Relaxed: figures.
    USED_BYTES.fetch_add(difference as usize, Ordering::Relaxed);
}

/// Zeroed memory, for one block, for a pair of blocks, or for version columns.
#[derive(Debug)]
pub(crate) struct Region {
    memory: NonNull<u8>,
    kind: RegionKind,
    /// Bytes given back to the system. Relaxed: figures.
    returned: AtomicUsize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum RegionKind {
    /// One block, from the allocator.
    Single,
    /// A pair of blocks, or version columns, mapped by ourselves.
    #[cfg_attr(miri, allow(dead_code, reason = "Miri has no huge pages"))]
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
        Self { memory, kind: RegionKind::Single, returned: AtomicUsize::new(0) }
    }

    /// A huge page, a ready one first; `None` if the system maps none. The pages of the mapping are
    /// ordinary ones if the system refuses huge pages.
    pub fn huge_page() -> Option<Self> {
        // Relaxed: a hint.
        LAST_ASKED.store(now_ms(), Ordering::Relaxed);
        let ready = READY.lock().pop();
        ready.or_else(Self::map_huge_page)
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    fn map_huge_page() -> Option<Self> {
        let bytes = 2 * HUGE_PAGE_BYTES;
        // SAFETY: a fresh private mapping, whose ends outside of the aligned part are given back at
        // once. The advice may be refused: then the pages are ordinary ones.
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
            Some(Self { memory: NonNull::new(memory)?, kind: RegionKind::HugePage, returned: AtomicUsize::new(0) })
        }
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn map_huge_page() -> Option<Self> {
        None
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.memory
    }

    /// Gives whole pages back to the system; true if it took them. They read as zeros from now on.
    ///
    /// # Safety
    /// The pages lie in the region, and their content is not used any more.
    #[cfg(all(target_os = "linux", not(miri)))]
    unsafe fn give_back(&self, pages: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: by the caller's promise; the advice about the huge page concerns the whole of a
        // region that we have mapped.
        let taken = unsafe {
            if self.kind == RegionKind::HugePage && self.returned.load(Ordering::Relaxed) == 0 {
                libc::madvise(self.memory.as_ptr().cast(), HUGE_PAGE_BYTES, libc::MADV_NOHUGEPAGE);
            }
            libc::madvise(pages.as_ptr().cast(), bytes, libc::MADV_DONTNEED) == 0
        };
        if taken {
            self.returned.fetch_add(bytes, Ordering::Relaxed);
            REGION_BYTES.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    unsafe fn give_back(&self, _: NonNull<u8>, _: usize) -> bool {
        false
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let bytes = if self.kind == RegionKind::Single { BLOCK_BYTES } else { HUGE_PAGE_BYTES };
        REGION_BYTES.fetch_sub(bytes - *self.returned.get_mut(), Ordering::Relaxed);
        // SAFETY: made in `single` or `map_huge_page`; its last owner is gone.
        unsafe {
            match self.kind {
                RegionKind::Single => alloc::dealloc(self.memory.as_ptr(), single_layout()),
                #[cfg(all(target_os = "linux", not(miri)))]
                RegionKind::HugePage => {
                    libc::munmap(self.memory.as_ptr().cast(), HUGE_PAGE_BYTES);
                }
                #[cfg(not(all(target_os = "linux", not(miri))))]
                RegionKind::HugePage => unreachable!("there are no huge pages here"),
            }
        }
    }
}

/// Huge pages that the system has cleared already.
static READY: Mutex<Vec<Region>> = Mutex::new(Vec::new());
const READY_PAGES: usize = 3;
/// The time of the last request for a huge page, in milliseconds.
static LAST_ASKED: AtomicU64 = AtomicU64::new(0);
/// Ready pages that are unused for this long go back to the system.
const READY_MS: u64 = 1_000;

/// Makes huge pages ready if there were requests lately, and gives them back if not.
pub(crate) fn keep_ready() {
    let asked = LAST_ASKED.load(Ordering::Relaxed);
    let is_growing = asked > 0 && now_ms().saturating_sub(asked) < READY_MS;
    if !is_growing {
        return drop(std::mem::take(&mut *READY.lock()));
    }
    while READY.lock().len() < READY_PAGES {
        let Some(region) = Region::map_huge_page() else { return };
        for page in (0..HUGE_PAGE_BYTES).step_by(PAGE_BYTES) {
            // SAFETY: the region's own memory, which is not shared yet.
            unsafe { region.memory.add(page).write_volatile(0) };
        }
        READY.lock().push(region);
    }
}

/// The memory of one block, zeroed at first.
#[derive(Debug)]
pub struct BlockMemory {
    start: NonNull<u8>,
    /// Keeps the memory alive.
    region: Arc<Region>,
    /// Bytes given back to the system.
    returned: AtomicUsize,
}

// SAFETY: as for regions.
unsafe impl Send for BlockMemory {}
// SAFETY: as for regions.
unsafe impl Sync for BlockMemory {}
impl std::panic::RefUnwindSafe for BlockMemory {}

/// The free second halves of huge pages whose first half is in use.
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
                spares.push(Self::part(second, region.clone()));
                return Self::part(region.memory, region);
            }
        }
        let region = Arc::new(Region::single());
        Self::part(region.memory, region)
    }

    fn part(start: NonNull<u8>, region: Arc<Region>) -> Self {
        Self { start, region, returned: AtomicUsize::new(0) }
    }

    /// The first byte: 4096-byte aligned, with `BLOCK_BYTES` behind it.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Gives pages back to the system.
    ///
    /// # Safety
    /// The content of `pages` is not used any more, and they were not given back before.
    pub unsafe fn give_back(&self, pages: &SparePages) {
        for range in &pages.ranges {
            // SAFETY: whole pages of this block's, by the construction of `SparePages`; unused by
            // the caller's promise.
            if unsafe { self.region.give_back(self.start.add(range.start), range.len()) } {
                self.returned.fetch_add(range.len(), Ordering::Relaxed);
                USED_BYTES.fetch_sub(range.len(), Ordering::Relaxed);
            }
        }
    }
}

impl Drop for BlockMemory {
    fn drop(&mut self) {
        let held = BLOCK_BYTES - *self.returned.get_mut();
        USED_BYTES.fetch_sub(held, Ordering::Relaxed);
        if Arc::strong_count(&self.region) > 1 {
            // SAFETY: the block's own half of the region, to which no reference is left.
            if unsafe { self.region.give_back(self.start, BLOCK_BYTES) } {
                // Pages that had been given back before count once.
                let twice = BLOCK_BYTES - held;
                self.region.returned.fetch_sub(twice, Ordering::Relaxed);
                REGION_BYTES.fetch_add(twice, Ordering::Relaxed);
            }
        }
    }
}

/// The whole pages of a block's memory between the parts of it that are kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SparePages {
    ranges: Vec<Range<usize>>,
}

impl SparePages {
    /// The pages that no range of `kept` (offsets from the block's start) touches; no pages if they
    /// are too few to be worth it.
    pub fn between(mut kept: Vec<Range<usize>>) -> Self {
        kept.sort_unstable_by_key(|range| range.start);
        kept.push(BLOCK_BYTES..BLOCK_BYTES);
        let (mut end, mut ranges) = (0usize, Vec::new());
        for range in kept {
            let pages = end.next_multiple_of(PAGE_BYTES)..range.start / PAGE_BYTES * PAGE_BYTES;
            end = end.max(range.end);
            ranges.extend((!pages.is_empty()).then_some(pages));
        }
        let spare = Self { ranges };
        if spare.bytes() <= BLOCK_BYTES / SPARE_PART { Self::default() } else { spare }
    }

    /// Bytes of the pages.
    pub fn bytes(&self) -> usize {
        self.ranges.iter().map(Range::len).sum()
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

    #[test]
    fn huge_pages_are_ready_while_they_are_wanted() {
        let ready = || READY.lock().len();
        for _ in 0..3 {
            let Some(region) = Region::huge_page() else { return };
            // SAFETY: the region's own memory.
            let bytes = unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr(), HUGE_PAGE_BYTES) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(1);
            keep_ready();
            // Other tests of this process take huge pages, too.
            let deadline = serac_sync::time::Instant::now() + std::time::Duration::from_secs(60);
            while ready() == 0 {
                assert!(serac_sync::time::Instant::now() < deadline, "none becomes ready");
                keep_ready();
            }
        }
    }

    #[test]
    fn spare_pages_lie_between_what_is_kept() {
        let pages = |kept: &[(usize, usize)]| {
            let spare = SparePages::between(kept.iter().map(|&(from, to)| from..to).collect());
            spare.ranges.into_iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        assert_eq!(pages(&[]), [(0, BLOCK_BYTES)]);
        assert_eq!(pages(&[(300_000, 300_001), (10, 20)]), [(4096, 299_008), (303_104, BLOCK_BYTES)]);
        assert_eq!(pages(&[(0, 4096), (4096, 8193)]), [(12_288, BLOCK_BYTES)]);
        // A sixteenth is not worth it.
        let sixteenth = BLOCK_BYTES / 16;
        assert_eq!(pages(&[(sixteenth, BLOCK_BYTES)]), []);
        assert_eq!(pages(&[(sixteenth + 4096, BLOCK_BYTES)]), [(0, sixteenth + 4096)]);
    }

    #[test]
    fn pages_that_are_given_back_leave_the_others_as_they_are() {
        for no in [0, SMALL_TABLE_BLOCKS] {
            let block = BlockMemory::new(no);
            // SAFETY: the block's own memory.
            let bytes = unsafe { std::slice::from_raw_parts_mut(block.start().as_ptr(), BLOCK_BYTES) };
            bytes.fill(7);
            let kept = [100..5_000, 700_000..800_000];
            // SAFETY: no other reference to the memory exists.
            unsafe { block.give_back(&SparePages::between(kept.to_vec())) };
            assert!(kept.into_iter().all(|range| bytes[range].iter().all(|byte| *byte == 7)));
            if cfg!(target_os = "linux") {
                assert!(bytes[8_192..696_320].iter().chain(&bytes[802_816..]).all(|byte| *byte == 0));
            }
        }
    }
}
