//! The distribution of a query's blocks over threads, and their common results.
//!
//! A *segment* is a range of blocks. A partition of a scan takes one segment after the other. When
//! there are no more, it takes blocks of segments that others have begun, so no partition idles.
//! The partition that comes first to a segment combines the bitmap indexes' answers for it
//! ([`BySegment`]): bitvectors of 32 blocks stay in the caches of the core that reads the blocks
//! next. Work that is divided otherwise (the keys of a join, the values of a group) is
//! [`Shared`](serac_index::cubit::Shared) among the partitions that need the whole.

use serac_storage::BlockNo;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Blocks of a segment: chunks of bitvectors (16 blocks) are not cut.
const SEGMENT_BLOCKS: u32 = 32;

/// The segments of a table with this many blocks, at least one. The last one also has all later
/// blocks.
fn segments(blocks: u32) -> u32 {
    blocks.div_ceil(SEGMENT_BLOCKS).max(1)
}

/// Deals the numbers of blocks out to partitions, each once.
#[derive(Debug)]
pub(super) struct BlockQueue {
    /// The segments from here on are free.
    segment: AtomicU32,
    /// The next block of each.
    next: Box<[AtomicU32]>,
    /// Behind the last.
    blocks: u32,
}

impl BlockQueue {
    /// The numbers of a range.
    pub(super) fn new(blocks: Range<u32>) -> Self {
        // A segment before the range begins at its end: it has no block.
        let first = |segment: u32| blocks.start.clamp(segment * SEGMENT_BLOCKS, (segment + 1) * SEGMENT_BLOCKS);
        let next = (0..segments(blocks.end)).map(|segment| AtomicU32::new(first(segment))).collect();
        Self { segment: AtomicU32::new(blocks.start / SEGMENT_BLOCKS), next, blocks: blocks.end }
    }

    fn take(&self, segment: u32) -> Option<BlockNo> {
        let end = self.blocks.min((segment + 1) * SEGMENT_BLOCKS);
        // Relaxed, here and below: numbers need only be handed out once.
        let no = self.next[segment as usize].fetch_add(1, Ordering::Relaxed);
        (no < end).then_some(BlockNo(no))
    }

    /// The next block for a partition that had one of the segment `current`.
    pub(super) fn next(&self, current: &mut Option<u32>) -> Option<BlockNo> {
        let count = self.next.len() as u32;
        if let Some(no) = current.and_then(|segment| self.take(segment)) {
            return Some(no);
        }
        let unbegun = std::iter::from_fn(|| {
            let left = self.segment.load(Ordering::Relaxed) < count;
            left.then(|| self.segment.fetch_add(1, Ordering::Relaxed)).filter(|segment| *segment < count)
        });
        // Segments begun last have most blocks left.
        unbegun.chain((0..count).rev()).find_map(|segment| {
            let no = self.take(segment)?;
            *current = Some(segment);
            Some(no)
        })
    }
}

/// A value for each segment of a table.
#[derive(Debug)]
pub(super) struct BySegment<T>(Box<[OnceLock<T>]>);

impl<T> BySegment<T> {
    /// A value for each segment of a table that has this many blocks.
    pub(super) fn new(blocks: u32) -> Self {
        Self((0..segments(blocks)).map(|_| OnceLock::new()).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The segment's value; the first caller makes it for the segment's blocks.
    pub(super) fn get(&self, segment: usize, make: impl FnOnce(Range<u32>) -> T) -> &T {
        let first = segment as u32 * SEGMENT_BLOCKS;
        let end = if segment + 1 == self.len() { u32::MAX } else { first + SEGMENT_BLOCKS };
        self.0[segment].get_or_init(|| make(first..end))
    }

    /// The segment of a block.
    pub(super) fn of(&self, no: BlockNo) -> usize {
        ((no.0 / SEGMENT_BLOCKS) as usize).min(self.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_handed_out_once() {
        for blocks in [0..0, 0..1, 0..31, 0..32, 0..33, 0..1_000, 5..5, 7..40, 32..33, 400..1_000] {
            let queue = BlockQueue::new(blocks.clone());
            let take = |most: usize| -> Vec<u32> {
                let mut current = None;
                std::iter::from_fn(|| queue.next(&mut current)).map(|no| no.0).take(most).collect()
            };
            let taken = std::thread::scope(|scope| {
                let take = &take;
                // One gives up early: others take the rest of its segment.
                let handles = [5, 2_000, 2_000].map(|most| scope.spawn(move || take(most)));
                handles.map(|handle| handle.join().unwrap())
            });
            assert!(taken.iter().all(|taken| taken.len() == 5 || taken.len() < 2_000));
            let mut all = taken.concat();
            all.sort_unstable();
            assert_eq!(all, blocks.collect::<Vec<_>>());
        }
    }

    #[test]
    fn segments_meet_without_gaps() {
        for blocks in [0, 31, 32, 33, 1_000] {
            let segments = BySegment::new(blocks);
            let ranges: Vec<_> = (0..segments.len()).map(|at| segments.get(at, |range| range).clone()).collect();
            assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, u32::MAX));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!((0..blocks + 100).all(|no| ranges[segments.of(BlockNo(no))].contains(&no)));
        }
    }
}
