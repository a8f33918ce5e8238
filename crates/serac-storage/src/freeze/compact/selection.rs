//! The choice of blocks for a compaction group: filled, partly filled or emptied (§4.3).
//!
//! A group has t rows in blocks of s slots. ⌊t/s⌋ blocks are filled (F), one holds the other t mod
//! s rows in its first slots (p), and the rest (E) are emptied. Every gap in F and in the first t
//! mod s slots of p takes one row from E or from the later slots of p. The number of moves is the
//! number of gaps, whichever rows move. The *approximate* selection orders the blocks by emptiness
//! and takes the fullest as F and the next one as p. The *optimal* one tries every block as p.

use crate::block::Block;
use crate::ids::{BlockNo, RowId, Slot};
use std::cmp::Reverse;
use std::collections::HashSet;

/// The slots of a block that hold rows.
#[derive(Clone, Debug)]
pub struct Occupancy {
    no: BlockNo,
    slots: u32,
    rows: u32,
    words: Vec<u64>,
}

impl Occupancy {
    /// The occupancy of a block of `slots` slots, from the bits of its first slots; missing bits
    /// are 0.
    pub fn new(no: BlockNo, slots: u32, mut words: Vec<u64>) -> Self {
        words.resize((slots as usize).div_ceil(64), 0);
        let rows = words.iter().map(|word| word.count_ones()).sum();
        Self { no, slots, rows, words }
    }

    /// The occupancy of a block as it is now.
    pub fn of(no: BlockNo, slots: u32, block: &Block) -> Self {
        let words = match block {
            Block::Hot(block) => block.presence_words(),
            Block::Frozen(block) => {
                let mut words = vec![0; (slots as usize).div_ceil(64)];
                let mut set = |slot: usize| words[slot / 64] |= 1 << (slot % 64);
                match block.presence() {
                    Some(presence) => presence.set_indices().for_each(&mut set),
                    None => (0..block.slot_limit() as usize).for_each(&mut set),
                }
                words
            }
        };
        Self::new(no, slots, words)
    }

    /// The block.
    pub fn block_no(&self) -> BlockNo {
        self.no
    }

    /// Rows.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Empty slots.
    pub fn gaps(&self) -> u32 {
        self.slots - self.rows
    }

    /// Whether an empty slot lies before a row.
    pub fn has_holes(&self) -> bool {
        self.rows_before(self.rows) < self.rows
    }

    fn holds(&self, slot: u32) -> bool {
        self.words[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    fn rows_before(&self, end: u32) -> u32 {
        let (whole, rest) = (end as usize / 64, end % 64);
        let last = if rest == 0 { 0 } else { (self.words[whole] & ((1 << rest) - 1)).count_ones() };
        self.words[..whole].iter().map(|word| word.count_ones()).sum::<u32>() + last
    }

    fn places(&self, slots: std::ops::Range<u32>, full: bool) -> impl Iterator<Item = RowId> {
        slots.filter(move |&slot| self.holds(slot) == full).map(|slot| RowId::new(self.no, Slot(slot)))
    }
}

/// The choice of p.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// The fullest block that is not filled: at most t mod s moves more than the optimum.
    Approximate,
    /// The best of all.
    Optimal,
}

/// F, p and E, as positions in the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockSelection {
    /// F: filled.
    pub filled: Vec<usize>,
    /// p, and the rows it will hold; `None` if the rows fill whole blocks.
    pub partial: Option<(usize, u32)>,
    /// E: emptied.
    pub emptied: Vec<usize>,
}

impl BlockSelection {
    /// Selects among `group`, blocks of the same number of slots.
    pub fn new(group: &[Occupancy], variant: Variant) -> Self {
        let Some(slots) = group.first().map(|block| block.slots) else {
            return Self { filled: Vec::new(), partial: None, emptied: Vec::new() };
        };
        let rows: u64 = group.iter().map(|block| u64::from(block.rows)).sum();
        let full = (rows / u64::from(slots)) as usize;
        let rest = (rows % u64::from(slots)) as u32;
        let mut order: Vec<usize> = (0..group.len()).collect();
        order.sort_by_key(|&i| (group[i].gaps(), group[i].no));
        if rest > 0 {
            // The cost of p at a position of the order: its own gaps, and one more block of the
            // order in F if p was in it.
            let cost = |at: usize| {
                let gaps_at = |at: usize| i64::from(group[order[at]].gaps());
                let in_its_place = if at < full { gaps_at(full) - gaps_at(at) } else { 0 };
                i64::from(rest - group[order[at]].rows_before(rest)) + in_its_place
            };
            let best = match variant {
                Variant::Approximate => full,
                Variant::Optimal => (0..order.len()).min_by_key(|&at| cost(at)).expect("there are rows"),
            };
            let partial = order.remove(best);
            order.insert(full, partial);
        }
        let emptied = order.split_off(full + usize::from(rest > 0));
        let partial = (rest > 0).then(|| (order.pop().expect("p was put there"), rest));
        Self { filled: order, partial, emptied }
    }

    /// The moves that make the selection true, as pairs of old and new row ids. Neighbours go to
    /// neighbours, and slots of one block are filled in order.
    pub fn moves(&self, group: &[Occupancy]) -> Vec<(RowId, RowId)> {
        let mut from: Vec<RowId> =
            self.emptied.iter().flat_map(|&i| group[i].places(0..group[i].slots, true)).collect();
        let mut to: Vec<RowId> = self.filled.iter().flat_map(|&i| group[i].places(0..group[i].slots, false)).collect();
        if let Some((i, rest)) = self.partial {
            from.extend(group[i].places(rest..group[i].slots, true));
            to.extend(group[i].places(0..rest, false));
        }
        from.sort_unstable();
        to.sort_unstable();
        assert_eq!(from.len(), to.len(), "every gap takes a row, and every row finds a gap");
        from.into_iter().zip(to).collect()
    }
}

/// The grouping of blocks for compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CompactionGroups {
    /// No compaction.
    Off,
    /// The emptiest blocks with as many of the fullest as take their rows. A group grows until few
    /// gaps are left over, but its write set stays within the rows of a few blocks.
    #[default]
    Adaptive,
    /// This many blocks at a time, in the order of their numbers.
    Fixed(usize),
}

/// A block that may be compacted.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The block's number.
    pub no: BlockNo,
    /// Its rows, fewer than its slots.
    pub rows: u32,
    /// Whether it is hot and has an empty slot before a row: worth closing before it freezes.
    pub closes_holes: bool,
}

/// Blocks' worth of rows that an adaptive group moves at the most, unless a single block cannot be
/// freed with less.
const WRITE_SET_BLOCKS: u64 = 2;
/// Blocks of an adaptive group at the most, and how many of them are emptied.
const LARGEST_GROUP: usize = 512;
const MOST_EMPTIED: usize = 64;
/// Blocks whose emptiness differs by less than one part in this number count as equally empty, so
/// that neighbours stay together.
const EMPTINESS_CLASSES: u64 = 16;

impl CompactionGroups {
    /// The groups that are worth compacting: those that free a block, and blocks with holes that
    /// are about to freeze.
    pub fn form(self, slots: u32, candidates: &[Candidate]) -> Vec<Vec<BlockNo>> {
        let slots = u64::from(slots);
        let numbers = |group: &[Candidate]| group.iter().map(|block| block.no).collect::<Vec<_>>();
        match self {
            Self::Off => Vec::new(),
            Self::Fixed(size) => {
                let frees = |group: &&[Candidate]| {
                    group.iter().map(|block| slots - u64::from(block.rows)).sum::<u64>() >= slots
                        || group.iter().any(|block| block.closes_holes)
                };
                candidates.chunks(size.max(1)).filter(frees).map(numbers).collect()
            }
            Self::Adaptive => {
                let class = |block: &Candidate| (slots - u64::from(block.rows)) * EMPTINESS_CLASSES / slots;
                let mut emptiest = candidates.to_vec();
                emptiest.sort_by_key(|block| (Reverse(class(block)), block.no));
                let mut fullest = candidates.to_vec();
                fullest.sort_by_key(|block| (class(block), block.no));
                let (mut emptiest, mut fullest) = (&emptiest[..], &fullest[..]);
                let (mut groups, mut grouped) = (Vec::new(), HashSet::new());
                while let Some(group) = emptied_and_filled(slots, emptiest, fullest, &grouped) {
                    grouped.extend(group.iter().map(|block| block.no));
                    groups.push(numbers(&group));
                    for rest in [&mut emptiest, &mut fullest] {
                        *rest = &rest[rest.iter().take_while(|block| grouped.contains(&block.no)).count()..];
                    }
                }
                // No more blocks can be freed: holes are closed within groups of about a block's
                // worth of gaps.
                let mut group: Vec<Candidate> = Vec::new();
                let mut gaps = 0;
                for block in emptiest.iter().filter(|block| block.closes_holes && !grouped.contains(&block.no)) {
                    if gaps >= slots || group.len() == LARGEST_GROUP {
                        groups.push(numbers(&std::mem::take(&mut group)));
                        gaps = 0;
                    }
                    gaps += slots - u64::from(block.rows);
                    group.push(*block);
                }
                if !group.is_empty() {
                    groups.push(numbers(&group));
                }
                groups
            }
        }
    }
}

/// A group of the first of the `emptiest` blocks, which are emptied, and the first of the
/// `fullest`, which take their rows. Blocks that are in a group already are skipped. The group is
/// the one that leaves the fewest gaps for each freed block. `None` if no block can be freed.
fn emptied_and_filled(
    slots: u64,
    emptiest: &[Candidate],
    fullest: &[Candidate],
    grouped: &HashSet<BlockNo>,
) -> Option<Vec<Candidate>> {
    let mut sources: Vec<Candidate> = Vec::new();
    let (mut best, mut least, mut rows) = (None, f64::INFINITY, 0);
    for source in emptiest.iter().filter(|block| !grouped.contains(&block.no)).take(MOST_EMPTIED) {
        sources.push(*source);
        rows += u64::from(source.rows);
        if best.is_some() && rows > WRITE_SET_BLOCKS * slots {
            break;
        }
        let free =
            |block: &&Candidate| !grouped.contains(&block.no) && sources.iter().all(|source| source.no != block.no);
        let (mut targets, mut room) = (Vec::new(), 0);
        for block in fullest.iter().filter(free).take(LARGEST_GROUP - sources.len()) {
            targets.push(*block);
            room += slots - u64::from(block.rows);
            if room >= rows {
                break;
            }
        }
        if room < rows {
            break;
        }
        let left = (room - rows) as f64 / sources.len() as f64;
        if left < least {
            least = left;
            targets.extend_from_slice(&sources);
            best = Some(targets);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(blocks: &[Vec<bool>]) -> Vec<Occupancy> {
        let words = |block: &Vec<bool>| {
            let mut words = vec![0u64; block.len().div_ceil(64)];
            block.iter().enumerate().filter(|(_, full)| **full).for_each(|(i, _)| words[i / 64] |= 1 << (i % 64));
            words
        };
        let occupancy =
            |(i, block): (usize, &Vec<bool>)| Occupancy::new(BlockNo(i as u32), block.len() as u32, words(block));
        blocks.iter().enumerate().map(occupancy).collect()
    }

    /// Blocks of one number of slots, each with a density of its own.
    fn blocks() -> impl Strategy<Value = Vec<Vec<bool>>> {
        (1usize..150, 1usize..8).prop_flat_map(|(slots, blocks)| {
            prop::collection::vec(
                (0.0..=1.0).prop_flat_map(move |full| prop::collection::vec(prop::bool::weighted(full), slots)),
                blocks,
            )
        })
    }

    /// The fewest moves of any choice of F and p.
    fn fewest_moves(blocks: &[Vec<bool>]) -> usize {
        let slots = blocks[0].len();
        let rows = |block: &[bool]| block.iter().filter(|full| **full).count();
        let all: usize = blocks.iter().map(|block| rows(block)).sum();
        let (full, rest) = (all / slots, all % slots);
        (0..1u32 << blocks.len())
            .filter(|filled| filled.count_ones() as usize == full)
            .flat_map(|filled| {
                let gaps: usize =
                    (0..blocks.len()).filter(|i| filled >> i & 1 == 1).map(|i| slots - rows(&blocks[i])).sum();
                let others = (0..blocks.len()).filter(move |i| filled >> i & 1 == 0);
                let of_partial = others.map(move |p| gaps + rest - rows(&blocks[p][..rest]));
                of_partial.collect::<Vec<_>>().into_iter().chain((rest == 0).then_some(gaps))
            })
            .min()
            .unwrap()
    }

    proptest! {
        #[test]
        fn moves_make_the_rows_contiguous_and_the_optimum_is_one(mut blocks in blocks()) {
            let slots = blocks[0].len();
            let group = group(&blocks);
            let rows: usize = blocks.iter().flatten().filter(|full| **full).count();
            let [approximate, optimal] = [Variant::Approximate, Variant::Optimal].map(|v| BlockSelection::new(&group, v));
            for selection in [&approximate, &optimal] {
                prop_assert_eq!(selection.filled.len(), rows / slots);
                prop_assert_eq!(selection.partial.map_or(0, |(_, rest)| rest as usize), rows % slots);
                let p = usize::from(selection.partial.is_some());
                prop_assert_eq!(selection.filled.len() + p + selection.emptied.len(), blocks.len());
            }
            let (moves, fewest) = (approximate.moves(&group), fewest_moves(&blocks));
            prop_assert_eq!(optimal.moves(&group).len(), fewest);
            prop_assert!(moves.len() <= fewest + rows % slots);
            // Each row once, from a row's slot to an empty one.
            for (from, to) in moves {
                let (from, to) = ([from, to]).map(|row| (row.block().0 as usize, row.slot().0 as usize)).into();
                let (from, to): ((usize, usize), (usize, usize)) = (from, to);
                prop_assert!(std::mem::replace(&mut blocks[from.0][from.1], false));
                prop_assert!(!std::mem::replace(&mut blocks[to.0][to.1], true));
            }
            for (i, block) in blocks.iter().enumerate() {
                let wanted = if approximate.filled.contains(&i) { slots } else {
                    approximate.partial.filter(|(p, _)| *p == i).map_or(0, |(_, rest)| rest as usize)
                };
                prop_assert_eq!(block.iter().take_while(|full| **full).count(), wanted);
                prop_assert_eq!(block.iter().filter(|full| **full).count(), wanted);
            }
        }

        #[test]
        fn adaptive_groups_free_what_they_promise(rows in prop::collection::vec((0u32..100, any::<bool>()), 0..60)) {
            let candidates: Vec<Candidate> = rows
                .iter()
                .enumerate()
                .map(|(i, &(rows, closes_holes))| Candidate { no: BlockNo(i as u32), rows: rows + 1, closes_holes })
                .filter(|block| block.rows < 100)
                .collect();
            let groups = CompactionGroups::Adaptive.form(100, &candidates);
            let mut seen = std::collections::BTreeSet::new();
            for group in &groups {
                let blocks: Vec<&Candidate> = candidates.iter().filter(|block| group.contains(&block.no)).collect();
                prop_assert!(blocks.len() == group.len() && group.iter().all(|no| seen.insert(*no)), "each block once");
                let empty: u32 = blocks.iter().map(|block| 100 - block.rows).sum();
                prop_assert!(empty >= 100 || blocks.iter().all(|block| block.closes_holes));
            }
            // The blocks left over have no holes, and emptying them would free no block.
            let left: Vec<&Candidate> = candidates.iter().filter(|block| !seen.contains(&block.no)).collect();
            prop_assert!(left.iter().map(|block| 100 - block.rows).sum::<u32>() < 100);
            prop_assert!(left.iter().all(|block| !block.closes_holes));
        }
    }
}
