//! A query's result before a bitvector is made of it. One thread or several make it, for each range
//! of blocks (segment) by itself.

use super::bitvector::{Bitvector, Term, within};
use super::leaf::{Leaf, Vector};
use super::shared::Shared;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// A list from so many rows on is worth looking into for each segment.
const LONG_LIST: usize = 1024;
/// This many operands with short lists are united at once, …
const LISTS_PER_PART: usize = 8192;
/// … or more, so that there are no more parts than these.
const MOST_PARTS: usize = 16;

/// A snapshot's view of the values that a predicate selects: whole vectors, and the changes to
/// them. It owns the leaves, independently of the index.
#[derive(Debug)]
pub struct Selected {
    leaves: Vec<Arc<Leaf>>,
    /// Operands that can be evaluated for any range of blocks.
    operands: Vec<Operand>,
    /// Values with few rows, and their union.
    short: Vec<Operand>,
    united: Shared<Bitvector>,
    /// Ascending rows, each with the bit that it gets at last.
    changes: Vec<(u64, bool)>,
}

#[derive(Debug)]
struct Operand {
    /// Among the leaves.
    leaf: usize,
    /// The values: a single one if it has a bitvector, or a long list; `None`: the union of all, …
    places: Option<Range<usize>>,
    /// … but for these, which have bitvectors.
    except: Vec<usize>,
    /// Ascending rows that are not taken.
    without: Vec<u64>,
}

impl Selected {
    pub(crate) fn new() -> Self {
        let (leaves, operands, short, changes) = Default::default();
        Self { leaves, operands, short, united: Shared::new(0), changes }
    }

    fn leaf(&mut self, leaf: &Arc<Leaf>) -> usize {
        if !self.leaves.last().is_some_and(|last| Arc::ptr_eq(last, leaf)) {
            self.leaves.push(leaf.clone());
        }
        self.leaves.len() - 1
    }

    /// Adds the union of a leaf that has one, minus values with bitvectors and minus ascending
    /// rows.
    pub(crate) fn push_union(&mut self, leaf: &Arc<Leaf>, except: Vec<usize>, without: Vec<u64>) {
        let leaf = self.leaf(leaf);
        self.operands.push(Operand { leaf, places: None, except, without });
    }

    /// Adds a value of a leaf, but for some ascending rows.
    pub(crate) fn push_value(&mut self, leaf: &Arc<Leaf>, place: usize, without: Vec<u64>) {
        let is_short = matches!(leaf.vector(place), Vector::Sparse(list) if list.len() < LONG_LIST);
        let leaf = self.leaf(leaf);
        if !is_short {
            self.operands.push(Operand { leaf, places: Some(place..place + 1), except: Vec::new(), without });
            return;
        }
        if let Some(Operand { leaf: of, places: Some(places), without: none, .. }) = self.short.last_mut()
            && (*of, places.end, none.is_empty(), without.is_empty()) == (leaf, place, true, true)
        {
            places.end += 1;
            return;
        }
        self.short.push(Operand { leaf, places: Some(place..place + 1), except: Vec::new(), without });
    }

    /// The operands so far, and the ascending rows with the bits that they get at last.
    pub(crate) fn finish(self, changes: Vec<(u64, bool)>) -> Self {
        let parts = self.short.len().div_ceil(LISTS_PER_PART).min(MOST_PARTS);
        Self { united: Shared::new(parts), changes, ..self }
    }

    fn unite_short(&self, part: usize) -> Bitvector {
        let parts = self.short.len().div_ceil(LISTS_PER_PART).min(MOST_PARTS);
        let cut = |part: usize| self.short.len() * part / parts;
        let lists =
            self.short[cut(part)..cut(part + 1)].iter().filter_map(|Operand { leaf, places, without, .. }| {
                Some(taken(self.leaves[*leaf].listed(places.clone()?), without))
            });
        Bitvector::from_lists(&lists.collect::<Vec<_>>(), 0)
    }

    /// The selected rows in a range of blocks.
    pub fn rows(&self, blocks: Range<u32>) -> Bitvector {
        let rows = u64::from(blocks.start) << 16..u64::from(blocks.end) << 16;
        let (mut terms, mut long): (Vec<Term<'_>>, Vec<Cow<'_, [u32]>>) = (Vec::new(), Vec::new());
        for Operand { leaf, places, except, without } in &self.operands {
            let leaf = &self.leaves[*leaf];
            match places.as_ref().map(|places| leaf.vector(places.start)) {
                None => {
                    let except = except.iter().filter_map(|&place| leaf.dense(place)).collect();
                    terms.extend(leaf.union().map(|union| Term::new(&union.vector, without).except(except)));
                }
                Some(Vector::Dense(vector)) => terms.push(Term::new(vector, without)),
                Some(Vector::Sparse(list)) => long.push(taken(within(list, &rows, |row| u64::from(*row)), without)),
            }
        }
        // A row stands twice where one of two leaves has been merged further than the other: the
        // log decides.
        let long = Bitvector::from_lists(&long, blocks.start as usize);
        let others = self.united.all(|part| self.unite_short(part)).chain([&long]);
        terms.extend(others.map(|vector| Term::new(vector, &[])));
        terms.retain(|term| !term.is_empty());
        Bitvector::unite(&terms, within(&self.changes, &rows, |change| change.0), blocks)
    }
}

/// The rows of a list that are not in another.
fn taken<'l>(list: &'l [u32], without: &[u64]) -> Cow<'l, [u32]> {
    if without.is_empty() {
        return Cow::Borrowed(list);
    }
    list.iter().copied().filter(|row| without.binary_search(&u64::from(*row)).is_err()).collect()
}
