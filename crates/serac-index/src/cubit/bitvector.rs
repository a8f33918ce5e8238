//! Bitvectors: sets of rows, as one [`Container`] per block (Roaring, with a block as the unit).
//!
//! Containers are grouped in chunks of 16 blocks that versions of a bitvector share. A changed copy
//! costs one chunk and the containers that the changes touch. Every level carries its cardinality:
//! counting reads one number.

use super::container::{Container, Words};
use serac_storage::{BlockNo, RowId, Slot};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

const BLOCKS_PER_CHUNK: usize = 16;
/// Up to this many slots of a block are ordered by sorting. More are set in words, all of which are
/// then looked at.
const SLOTS_TO_SORT: usize = 32;

/// A row as `block << 16 | slot`: bitvectors know no gap between the slots of neighbouring blocks.
pub(crate) fn compact(row: RowId) -> u64 {
    (row.block().0 as u64) << 16 | row.slot().0 as u64
}
#[cfg(test)]
pub(crate) fn expand(row: u64) -> RowId {
    RowId::new(BlockNo((row >> 16) as u32), Slot((row & 0xFFFF) as u32))
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    cardinality: u32,
    /// Bit i: block i of the chunk has a container.
    present: u16,
    /// The containers, in block order.
    containers: Vec<Container>,
}

impl Chunk {
    fn position(&self, block: usize) -> Result<usize, usize> {
        let before = (self.present & ((1 << block) - 1)).count_ones() as usize;
        if self.present >> block & 1 == 1 { Ok(before) } else { Err(before) }
    }

    fn get(&self, block: usize) -> Option<&Container> {
        self.position(block).ok().map(|at| &self.containers[at])
    }

    fn set(&mut self, block: usize, container: Option<Container>) {
        let old = match (self.position(block), container) {
            (Ok(at), Some(container)) => {
                self.cardinality += container.cardinality();
                std::mem::replace(&mut self.containers[at], container).cardinality()
            }
            (Ok(at), None) => {
                self.present &= !(1 << block);
                self.containers.remove(at).cardinality()
            }
            (Err(at), Some(container)) => {
                self.cardinality += container.cardinality();
                self.present |= 1 << block;
                self.containers.insert(at, container);
                0
            }
            (Err(_), None) => 0,
        };
        self.cardinality -= old;
    }

    fn blocks(&self) -> impl Iterator<Item = (usize, &Container)> {
        let mut left = self.present;
        self.containers.iter().map(move |container| {
            let block = left.trailing_zeros() as usize;
            left &= left - 1;
            (block, container)
        })
    }
}

/// A set of rows.
#[derive(Clone, Debug, Default)]
pub struct Bitvector {
    cardinality: u64,
    chunks: Vec<Option<Arc<Chunk>>>,
}

impl Bitvector {
    /// The bitvector of ascending, different rows.
    pub fn from_sorted(rows: impl IntoIterator<Item = RowId>) -> Self {
        Self::from_sorted_compact(rows.into_iter().map(compact))
    }

    pub(crate) fn from_sorted_compact(rows: impl IntoIterator<Item = u64>) -> Self {
        let (mut result, mut block, mut slots) = (Self::default(), 0, Vec::new());
        for row in rows {
            if row >> 16 != block {
                result.set_container(block as usize, Container::from_sorted(&slots));
                slots.clear();
                block = row >> 16;
            }
            slots.push(row as u16);
        }
        result.set_container(block as usize, Container::from_sorted(&slots));
        result
    }

    /// The rows of all lists, in any order; all are in or after the block `first`. A row may come
    /// more than once.
    pub(crate) fn from_lists(lists: &[Cow<'_, [u32]>], first: usize) -> Self {
        if let [list] = lists
            && list.is_sorted_by(|a, b| a < b)
        {
            return Self::from_sorted_compact(list.iter().copied().map(u64::from));
        }
        let rows: usize = lists.iter().map(|list| list.len()).sum();
        let Some(last) = lists.iter().filter_map(|list| list.iter().max()).max() else { return Self::default() };
        let blocks = (last >> 16) as usize + 1 - first;
        if rows < blocks {
            let mut all = Vec::with_capacity(rows);
            lists.iter().for_each(|list| all.extend_from_slice(list));
            all.sort_unstable();
            all.dedup();
            return Self::from_sorted_compact(all.into_iter().map(u64::from));
        }
        // Dealt out by block: first where each block's slots begin, then, as they come in, where
        // they end.
        let block_of = |row: u32| (row >> 16) as usize - first;
        let each = || lists.iter().flat_map(|list| list.iter().copied());
        let mut ends = vec![0; blocks + 1];
        each().for_each(|row| ends[block_of(row) + 1] += 1);
        let mut before = 0;
        for end in &mut ends {
            before += *end;
            *end = before;
        }
        let mut slots = vec![0; rows];
        each().for_each(|row| {
            let end = &mut ends[block_of(row)];
            slots[*end] = row as u16;
            *end += 1;
        });
        let (mut result, mut begin, mut words, mut few) = (Self::default(), 0, Words::default(), Vec::new());
        for (block, &end) in ends[..blocks].iter().enumerate() {
            let slots = &slots[begin..end];
            if slots.len() > SLOTS_TO_SORT {
                slots.iter().for_each(|&slot| words.set(slot));
                result.set_container(first + block, words.take());
            } else if !slots.is_empty() {
                few.clear();
                few.extend_from_slice(slots);
                few.sort_unstable();
                few.dedup();
                result.set_container(first + block, Container::from_sorted(&few));
            }
            begin = end;
        }
        result
    }

    fn set_container(&mut self, block: usize, container: Option<Container>) {
        let at = block / BLOCKS_PER_CHUNK;
        if at >= self.chunks.len() {
            if container.is_none() {
                return;
            }
            self.chunks.resize(at + 1, None);
        }
        let chunk = Arc::make_mut(self.chunks[at].get_or_insert_default());
        self.cardinality -= chunk.cardinality as u64;
        chunk.set(block % BLOCKS_PER_CHUNK, container);
        self.cardinality += chunk.cardinality as u64;
        if chunk.present == 0 {
            self.chunks[at] = None;
        }
    }

    /// Rows.
    pub fn cardinality(&self) -> u64 {
        self.cardinality
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.cardinality == 0
    }

    /// Blocks that have rows.
    pub(crate) fn block_count(&self) -> usize {
        self.chunks.iter().flatten().map(|chunk| chunk.containers.len()).sum()
    }

    /// Bytes in memory; containers that versions share are counted in each.
    pub fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().flatten();
        size_of_val(&self.chunks[..])
            + chunks
                .map(|c| {
                    16 + size_of::<Chunk>()
                        + size_of_val(&c.containers[..])
                        + c.containers.iter().map(Container::bytes).sum::<usize>()
                })
                .sum::<usize>()
    }

    /// The rows of one block, if any.
    pub fn block(&self, block: BlockNo) -> Option<&Container> {
        let block = block.0 as usize;
        self.chunks.get(block / BLOCKS_PER_CHUNK)?.as_ref()?.get(block % BLOCKS_PER_CHUNK)
    }

    /// The blocks that have rows, ascending, with these.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockNo, &Container)> {
        self.chunks.iter().enumerate().filter_map(|(i, chunk)| Some((i, chunk.as_ref()?))).flat_map(|(i, chunk)| {
            chunk.blocks().map(move |(block, container)| (BlockNo((i * BLOCKS_PER_CHUNK + block) as u32), container))
        })
    }

    /// Whether the row is in the set.
    pub fn contains(&self, row: RowId) -> bool {
        self.contains_compact(compact(row))
    }

    pub(crate) fn contains_compact(&self, row: u64) -> bool {
        self.block(BlockNo((row >> 16) as u32)).is_some_and(|container| container.contains(row as u16))
    }

    /// All rows, ascending.
    pub fn rows(&self) -> Vec<RowId> {
        let mut rows = Vec::with_capacity(self.cardinality as usize);
        for (block, container) in self.blocks() {
            container.for_each(|slot| rows.push(RowId::new(block, Slot(slot as u32))));
        }
        rows
    }

    /// Gives one row its bit.
    pub fn set(&mut self, row: RowId, bit: bool) {
        self.apply(&[(compact(row), bit)], &mut Words::default());
    }

    /// Gives each of the ascending compact rows its bit.
    pub(crate) fn apply(&mut self, changes: &[(u64, bool)], scratch: &mut Words) {
        let mut slots: Vec<(u16, bool)> = Vec::new();
        for changes in changes.chunk_by(|a, b| a.0 >> 16 == b.0 >> 16) {
            let block = changes[0].0 >> 16;
            slots.clear();
            slots.extend(changes.iter().map(|&(row, bit)| (row as u16, bit)));
            let after = Container::with_changes(self.block(BlockNo(block as u32)), &slots, scratch);
            self.set_container(block as usize, after);
        }
    }

    fn combine(&self, other: &Self, f: impl Fn(&Container, &Container, &mut Words) -> Option<Container>) -> Self {
        let (mut result, mut scratch) = (Self::default(), Words::default());
        result.chunks.resize(self.chunks.len(), None);
        for (at, (a, b)) in self.chunks.iter().zip(&other.chunks).enumerate() {
            let (Some(a), Some(b)) = (a, b) else { continue };
            let mut chunk = Chunk::default();
            for (block, container) in a.blocks() {
                if let Some(other) = b.get(block) {
                    chunk.set(block, f(container, other, &mut scratch));
                }
            }
            result.put_chunk(at, chunk);
        }
        result
    }

    fn put_chunk(&mut self, at: usize, chunk: Chunk) {
        if chunk.present != 0 {
            self.cardinality += chunk.cardinality as u64;
            self.chunks[at] = Some(Arc::new(chunk));
        }
    }

    /// Rows in both.
    pub fn and(&self, other: &Self) -> Self {
        self.combine(other, Container::and)
    }

    /// The number of rows that are in both.
    pub fn and_cardinality(&self, other: &Self) -> u64 {
        let mut scratch = Words::default();
        let pairs = self.chunks.iter().zip(&other.chunks).filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?)));
        pairs
            .flat_map(|(a, b)| a.blocks().filter_map(|(block, container)| Some((container, b.get(block)?))))
            .map(|(a, b)| a.and_cardinality(b, &mut scratch) as u64)
            .sum()
    }

    /// Rows in `self` that are not in `other`.
    pub fn and_not(&self, other: &Self) -> Self {
        let (mut result, mut scratch) = (self.clone(), Words::default());
        for (at, chunk) in self.chunks.iter().enumerate() {
            let (Some(a), Some(Some(b))) = (chunk, other.chunks.get(at)) else { continue };
            let mut left = Chunk::default();
            for (block, container) in a.blocks() {
                let container = match b.get(block) {
                    Some(other) => container.and_not(other, &mut scratch),
                    None => Some(container.clone()),
                };
                left.set(block, container);
            }
            result.cardinality -= a.cardinality as u64;
            result.chunks[at] = None;
            result.put_chunk(at, left);
        }
        result
    }

    /// Rows in either.
    pub fn or(&self, other: &Self) -> Self {
        Self::or_many(&[self, other])
    }

    /// Rows in any.
    pub fn or_many(vectors: &[&Self]) -> Self {
        Self::or_within(vectors, 0..u32::MAX)
    }

    /// Rows in any, in a range of blocks.
    pub fn or_within(vectors: &[&Self], blocks: Range<u32>) -> Self {
        let terms: Vec<Term<'_>> = vectors.iter().map(|vector| Term::new(vector, &[])).collect();
        Self::unite(&terms, &[], blocks)
    }

    /// The rows of all terms in a range of blocks, and then each row of the ascending `changes`
    /// with its bit. Each block is put together in a bitmap that stays in the first-level cache.
    pub(crate) fn unite(terms: &[Term<'_>], changes: &[(u64, bool)], blocks: Range<u32>) -> Self {
        let (mut result, mut scratch, mut slots) = (Self::default(), Words::default(), Vec::new());
        let mut rest = Words::default();
        let changed_chunks = changes.last().map_or(0, |last| (last.0 >> 16) as usize / BLOCKS_PER_CHUNK + 1);
        let end = terms.iter().map(|term| term.vector.chunks.len()).max().unwrap_or(0).max(changed_chunks);
        result.chunks.resize(end.min((blocks.end as usize).div_ceil(BLOCKS_PER_CHUNK)), None);
        /// A term in a chunk.
        struct Part<'a> {
            chunk: &'a Arc<Chunk>,
            without: &'a [u64],
            except: &'a [&'a Bitvector],
        }
        let mut parts: Vec<Part<'_>> = Vec::with_capacity(terms.len());
        for at in blocks.start as usize / BLOCKS_PER_CHUNK..result.chunks.len() {
            let first = at * BLOCKS_PER_CHUNK;
            let rows = (first as u64) << 16..((first + BLOCKS_PER_CHUNK) as u64) << 16;
            parts.clear();
            parts.extend(terms.iter().filter_map(|term| {
                let chunk = term.vector.chunks.get(at)?.as_ref()?;
                Some(Part { chunk, without: within(term.without, &rows, |row| *row), except: &term.except })
            }));
            let changes = within(changes, &rows, |change| change.0);
            let whole = blocks.start as usize <= first && first + BLOCKS_PER_CHUNK <= blocks.end as usize;
            if let ([Part { chunk, without: [], except: [] }], [], true) = (&parts[..], changes, whole) {
                result.cardinality += chunk.cardinality as u64;
                result.chunks[at] = Some((*chunk).clone());
                continue;
            }
            let mut chunk = Chunk::default();
            let mut present = parts.iter().fold(0, |all, part| all | part.chunk.present);
            changes.iter().for_each(|(row, _)| present |= 1 << ((row >> 16) as usize % BLOCKS_PER_CHUNK));
            while present != 0 {
                let block = present.trailing_zeros() as usize;
                present &= present - 1;
                if !blocks.contains(&((first + block) as u32)) {
                    continue;
                }
                let rows = ((first + block) as u64) << 16..((first + block + 1) as u64) << 16;
                slots.clear();
                slots.extend(within(changes, &rows, |change| change.0).iter().map(|(row, bit)| (*row as u16, *bit)));
                let mut containers = parts.iter().filter_map(|part| {
                    Some((part.chunk.get(block)?, within(part.without, &rows, |row| *row), part.except))
                });
                let container = match (containers.next(), containers.next()) {
                    (None, _) => Container::with_changes(None, &slots, &mut scratch),
                    (Some((only, [], [])), None) if slots.is_empty() => Some(only.clone()),
                    (Some((only, [], [])), None) => Container::with_changes(Some(only), &slots, &mut scratch),
                    (first, second) => {
                        for (container, without, except) in first.into_iter().chain(second).chain(containers) {
                            let gone = without.iter().map(|row| *row as u16).filter(|slot| !scratch.has(*slot));
                            let gone: Vec<u16> = gone.collect();
                            if except.is_empty() {
                                container.or_into(&mut scratch);
                            } else {
                                container.or_into(&mut rest);
                                let except = except
                                    .iter()
                                    .filter_map(|except| except.block(BlockNo((at * BLOCKS_PER_CHUNK + block) as u32)));
                                except.for_each(|container| container.and_not_into(&mut rest));
                                scratch.take_from(&mut rest);
                            }
                            gone.into_iter().for_each(|slot| scratch.clear(slot));
                        }
                        for &(slot, bit) in &slots {
                            if bit { scratch.set(slot) } else { scratch.clear(slot) }
                        }
                        scratch.take()
                    }
                };
                chunk.set(block, container);
            }
            result.put_chunk(at, chunk);
        }
        result
    }
}

/// An operand of [`Bitvector::unite`]: the rows of a vector, minus the rows of other vectors, minus
/// the rows of `without`, which are ascending and in compact form.
#[derive(Debug)]
pub(crate) struct Term<'a> {
    vector: &'a Bitvector,
    except: Vec<&'a Bitvector>,
    without: &'a [u64],
}

impl<'a> Term<'a> {
    pub(crate) fn new(vector: &'a Bitvector, without: &'a [u64]) -> Self {
        Self { vector, except: Vec::new(), without }
    }

    pub(crate) fn except(self, except: Vec<&'a Bitvector>) -> Self {
        Self { except, ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.vector.is_empty()
    }
}

/// The part of an ascending list whose rows are in a range.
pub(crate) fn within<'a, T>(list: &'a [T], rows: &Range<u64>, row: impl Fn(&T) -> u64) -> &'a [T] {
    match (list.first(), list.last()) {
        (Some(first), Some(last)) if rows.start > row(first) || row(last) >= rows.end => {}
        _ => return list,
    }
    let from = &list[position(list, rows.start, &row)..];
    &from[..position(from, rows.end, &row)]
}

/// The number of rows in an ascending list before `target`. Rows of a value mostly lie evenly, so
/// the search begins at the position that even spacing predicts: a long list is read at few places.
fn position<T>(list: &[T], target: u64, row: &impl Fn(&T) -> u64) -> usize {
    let (Some(first), Some(last)) = (list.first().map(row), list.last().map(row)) else { return 0 };
    if target <= first {
        return 0;
    }
    if target > last {
        return list.len();
    }
    // The first is before the target, the last is not.
    let mut high = list.len() - 1;
    let guess = (u128::from(target - first) * high as u128 / u128::from(last - first)) as usize;
    let mut step = 1;
    let low = if row(&list[guess]) < target {
        let mut low = guess;
        while low + step < high && row(&list[low + step]) < target {
            low += step;
            step *= 2;
        }
        high = high.min(low + step);
        low
    } else {
        high = guess;
        while step < high && row(&list[high - step]) >= target {
            high -= step;
            step *= 2;
        }
        high.saturating_sub(step)
    };
    low + list[low..=high].partition_point(|item| row(item) < target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Sets with stretches, so that every form of container comes up.
    fn rows() -> impl Strategy<Value = BTreeSet<u64>> {
        let stretch = (0u64..130, 0u64..65_536, 1u64..3000, 1u64..40).prop_map(|(block, slot, length, step)| {
            let slots = (slot..65_536).step_by(step as usize).take(length as usize);
            slots.map(|slot| block << 16 | slot).collect::<Vec<_>>()
        });
        prop::collection::vec(stretch, 0..6).prop_map(|stretches| stretches.into_iter().flatten().collect())
    }

    fn vector(rows: &BTreeSet<u64>) -> Bitvector {
        Bitvector::from_sorted_compact(rows.iter().copied())
    }

    #[track_caller]
    fn check(vector: &Bitvector, expected: &BTreeSet<u64>) {
        let rows: Vec<u64> = vector.rows().into_iter().map(compact).collect();
        assert_eq!(rows, expected.iter().copied().collect::<Vec<_>>());
        assert_eq!(vector.cardinality(), expected.len() as u64);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn agrees_with_sets(a in rows(), b in rows(), c in rows()) {
            let (x, y, z) = (vector(&a), vector(&b), vector(&c));
            check(&x, &a);
            check(&x.and(&y), &(&a & &b));
            check(&x.and_not(&y), &(&a - &b));
            check(&x.or(&y), &(&a | &b));
            check(&Bitvector::or_many(&[&x, &y, &z]), &(&(&a | &b) | &c));
            prop_assert_eq!(x.and_cardinality(&y), (&a & &b).len() as u64);
            let first = a.iter().chain(&b).chain(&c).min().map_or(0, |row| (row >> 16) as usize);
            let list = |rows: &BTreeSet<u64>| Cow::Owned(rows.iter().map(|row| *row as u32).collect());
            check(&Bitvector::from_lists(&[list(&a), list(&b), list(&c)], first), &(&(&a | &b) | &c));
            let falling = Cow::Owned(c.iter().rev().map(|row| *row as u32).collect());
            check(&Bitvector::from_lists(&[list(&c), falling], first), &c);
            // (a without a third of its rows, and b) in a range of blocks, with changes on top.
            let without: Vec<u64> = a.iter().copied().step_by(3).collect();
            let terms = [Term::new(&x, &without), Term::new(&y, &[])];
            let every = x.or(&y);
            check(&Bitvector::unite(&[Term::new(&every, &without).except(vec![&y])], &[], 0..u32::MAX), &a.iter().copied().filter(|row| !b.contains(row) && without.binary_search(row).is_err()).collect());
            check(&Bitvector::unite(&[Term::new(&z, &[]), Term::new(&every, &[]).except(vec![&x, &z])], &[], 0..u32::MAX), &(&c | &(&b - &a)));
            let changes: BTreeMap<u64, bool> = c.iter().map(|row| (*row, row % 3 > 0)).chain(b.iter().step_by(7).map(|row| (*row, false))).collect();
            for (terms, more) in [(&terms[..1], &BTreeSet::new()), (&terms[..], &b)] {
                let mut expected: BTreeSet<u64> = a.iter().copied().filter(|row| without.binary_search(row).is_err()).chain(more.iter().copied()).collect();
                check(&Bitvector::unite(terms, &[], 0..u32::MAX), &expected);
                for (row, bit) in &changes {
                    if *bit { expected.insert(*row) } else { expected.remove(row) };
                }
                expected.retain(|row| (3..70).contains(&(row >> 16)));
                check(&Bitvector::unite(terms, &changes.clone().into_iter().collect::<Vec<_>>(), 3..70), &expected);
            }
            let list: Vec<u64> = a.iter().copied().collect();
            for (start, end) in [(3 << 16, 70 << 16), (0, 1), (a.len() as u64, 1 << 20), (5, 5)] {
                let rows = start..end;
                let expected: Vec<u64> = list.iter().copied().filter(|row| rows.contains(row)).collect();
                prop_assert_eq!(within(&list, &rows, |row| *row), &expected);
            }
            for &row in a.iter().take(50).chain(b.iter().take(50)) {
                prop_assert_eq!(x.contains_compact(row), a.contains(&row));
            }
        }

        #[test]
        fn changes_apply_to_every_form(a in rows(), b in rows(), dropped in rows()) {
            let mut changes: Vec<(u64, bool)> = b.iter().map(|&row| (row, true)).collect();
            changes.extend(dropped.iter().chain(a.iter().step_by(3)).filter(|row| !b.contains(row)).map(|&row| (row, false)));
            changes.sort_unstable();
            changes.dedup();
            let before = vector(&a);
            let mut after = before.clone();
            after.apply(&changes, &mut Words::default());
            let mut expected = a.clone();
            for (row, bit) in changes {
                if bit { expected.insert(row) } else { expected.remove(&row) };
            }
            check(&after, &expected);
            check(&before, &a);
        }
    }
}
