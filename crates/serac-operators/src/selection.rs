//! Selections of rows in four representations: position list, bitvector, range and inverse.
//!
//! A row is a number. [`Runs`] are rows in ascending order as ranges: all rows of a table that a
//! snapshot sees, or a part of them that lies together. A [`Selection`] hides its representation.
//! Every operator takes its input as a sequence of ranges ([`Selection::for_each_range`]), which a
//! bitvector, a range and an inverse selection give without a list of their rows. Only an operator
//! that needs a row by its place makes a list of it ([`Selection::to_list`], rematerialisation).
//!
//! | representation | made by | bytes |
//! |---|---|---|
//! | list | selects with few rows, joins; any order, with repeats | 8 a selected row |
//! | bits | selects | 1 bit a row of the base |
//! | range | selects on a clustered column | 24 a run |
//! | inverse | selects with nearly all rows | 8 a row that is *not* selected |

use arrow_buffer::BooleanBuffer;
use std::ops::Range;
use std::sync::Arc;

/// Rows in ascending order, as ranges that do not touch. The *rank* of a row is the number of rows
/// before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    ranges: Vec<Range<u64>>,
    /// The rank of each range's first row.
    ranks: Vec<u64>,
    len: u64,
}

impl Runs {
    /// Adds the rows of a range behind all others.
    ///
    /// # Panics
    /// When it does not lie behind them.
    pub fn push(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let added = range.end - range.start;
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            last => {
                assert!(last.is_none_or(|last| last.end < range.start), "runs ascend");
                self.ranks.push(self.len);
                self.ranges.push(range);
            }
        }
        self.len += added;
    }

    /// The number of rows.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ranges.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// The rank of a row, if it is here.
    pub fn rank(&self, row: u64) -> Option<u64> {
        let at = self.ranges.partition_point(|range| range.end <= row);
        let range = self.ranges.get(at).filter(|range| range.start <= row)?;
        Some(self.ranks[at] + row - range.start)
    }

    /// The row of this rank.
    pub fn row(&self, rank: u64) -> Option<u64> {
        if rank >= self.len {
            return None;
        }
        let at = self.ranks.partition_point(|first| *first <= rank) - 1;
        Some(self.ranges[at].start + rank - self.ranks[at])
    }

    /// The rows with these ranks; those that are not here are left out.
    pub fn slice(&self, ranks: Range<u64>) -> Self {
        let mut slice = Self::default();
        let first = self.ranks.partition_point(|first| *first <= ranks.start).saturating_sub(1);
        for (range, &rank) in self.ranges.iter().zip(&self.ranks).skip(first) {
            if rank >= ranks.end {
                break;
            }
            let from = range.start + ranks.start.saturating_sub(rank);
            let to = range.end.min(range.start + (ranks.end - rank));
            slice.push(from..to.max(from));
        }
        slice
    }

    /// The parts of ranges in which rows with these ranks lie: the ranks of each part, and its
    /// first row.
    pub fn parts(&self, ranks: Range<u64>) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
        let first = self.ranks.partition_point(|first| *first <= ranks.start).saturating_sub(1);
        self.ranges.iter().zip(&self.ranks).skip(first).take_while(move |(_, rank)| **rank < ranks.end).filter_map(
            move |(range, &rank)| {
                let from = rank.max(ranks.start);
                let to = (rank + (range.end - range.start)).min(ranks.end);
                (from < to).then(|| (from..to, range.start + (from - rank)))
            },
        )
    }

    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranges.iter().cloned().flatten()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.ranges.len() * (size_of::<Range<u64>>() + size_of::<u64>())
    }
}

/// Rows, in any order.
#[derive(Clone, Debug)]
pub enum Selection {
    /// In this order, perhaps with repeats.
    List(Vec<u64>),
    /// The rows of the base whose bits, by rank, are set.
    Bits {
        /// All rows.
        base: Arc<Runs>,
        /// A bit for each.
        bits: BooleanBuffer,
        /// The number of set bits.
        count: u64,
    },
    /// These.
    Range(Runs),
    /// All rows of the base but these, ascending.
    Inverse {
        /// All rows.
        base: Arc<Runs>,
        /// A part of them.
        except: Vec<u64>,
    },
}

impl Selection {
    /// The rows of the base whose bits are set.
    ///
    /// # Panics
    /// When there is not one bit for each.
    pub fn bits(base: Arc<Runs>, bits: BooleanBuffer) -> Self {
        assert_eq!(base.len(), bits.len() as u64, "one bit for each row");
        let count = bits.count_set_bits() as u64;
        Self::Bits { base, bits, count }
    }

    /// The number of rows.
    pub fn len(&self) -> u64 {
        match self {
            Self::List(rows) => rows.len() as u64,
            Self::Bits { count, .. } => *count,
            Self::Range(runs) => runs.len(),
            Self::Inverse { base, except } => base.len() - except.len() as u64,
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The representation's name.
    pub fn representation(&self) -> &'static str {
        match self {
            Self::List(_) => "list",
            Self::Bits { .. } => "bits",
            Self::Range(_) => "range",
            Self::Inverse { .. } => "inverse",
        }
    }

    /// Bytes in memory. A base is shared by many selections, and is not counted.
    pub fn bytes(&self) -> usize {
        match self {
            Self::List(rows) => rows.len() * 8,
            Self::Bits { bits, .. } => bits.len().div_ceil(8),
            Self::Range(runs) => runs.bytes(),
            Self::Inverse { except, .. } => except.len() * 8,
        }
    }

    /// Whether the rows ascend, each once. All but lists do.
    pub fn ascends(&self) -> bool {
        match self {
            Self::List(rows) => rows.is_sorted_by(|a, b| a < b),
            _ => true,
        }
    }

    /// Calls `f` with the rows as ranges, in their order, until it fails. Rows of a list that
    /// follow each other come together.
    ///
    /// # Errors
    /// The errors of `f`.
    pub fn for_each_range<E>(&self, mut f: impl FnMut(Range<u64>) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::List(rows) => rows
                .chunk_by(|a, b| a.checked_add(1) == Some(*b))
                .try_for_each(|run| f(run[0]..run[0] + run.len() as u64)),
            Self::Range(runs) => runs.ranges().iter().cloned().try_for_each(f),
            Self::Bits { base, bits, .. } => {
                for (range, &rank) in base.ranges.iter().zip(&base.ranks) {
                    let part = bits.slice(rank as usize, (range.end - range.start) as usize);
                    for (from, to) in part.set_slices() {
                        f(range.start + from as u64..range.start + to as u64)?;
                    }
                }
                Ok(())
            }
            Self::Inverse { base, except } => {
                let mut left = except.as_slice();
                for range in base.ranges() {
                    let mut from = range.start;
                    while let [first, rest @ ..] = left
                        && *first < range.end
                    {
                        if from < *first {
                            f(from..*first)?;
                        }
                        from = *first + 1;
                        left = rest;
                    }
                    if from < range.end {
                        f(from..range.end)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// The rows as a list.
    pub fn to_list(&self) -> Vec<u64> {
        if let Self::List(rows) = self {
            return rows.clone();
        }
        let mut rows = Vec::with_capacity(self.len() as usize);
        let filled: Result<(), std::convert::Infallible> = self.for_each_range(|range| {
            rows.extend(range);
            Ok(())
        });
        let Ok(()) = filled;
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn runs(rows: &BTreeSet<u64>) -> Runs {
        let mut runs = Runs::default();
        rows.iter().for_each(|&row| runs.push(row..row + 1));
        runs
    }

    proptest! {
        #[test]
        fn all_representations_have_the_same_rows(
            all in prop::collection::btree_set(0u64..400, 0..300),
            picked in prop::collection::vec(any::<bool>(), 300),
            (from, to) in (0u64..320, 0u64..320),
        ) {
            let base = Arc::new(runs(&all));
            prop_assert_eq!(base.iter().collect::<Vec<_>>(), all.iter().copied().collect::<Vec<_>>());
            for (rank, &row) in all.iter().enumerate() {
                prop_assert_eq!(base.rank(row), Some(rank as u64));
                prop_assert_eq!(base.row(rank as u64), Some(row));
            }
            prop_assert_eq!(base.row(all.len() as u64), None);
            prop_assert!((0..400).all(|row| base.rank(row).is_some() == all.contains(&row)));
            let slice = base.slice(from..to);
            let parts: Vec<u64> =
                base.parts(from..to).flat_map(|(ranks, first)| first..first + (ranks.end - ranks.start)).collect();
            prop_assert_eq!(slice.iter().collect::<Vec<_>>(), parts);
            let expected: Vec<u64> = all.iter().copied().take(to as usize).skip(from as usize).collect();
            prop_assert_eq!(slice.iter().collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(Selection::Range(slice).to_list(), expected);

            let bits: BooleanBuffer = picked.iter().copied().take(all.len()).collect();
            let (mut selected, mut except) = (Vec::new(), Vec::new());
            for (&row, &picked) in all.iter().zip(&picked) {
                if picked { selected.push(row) } else { except.push(row) }
            }
            for selection in [
                Selection::bits(base.clone(), bits),
                Selection::Inverse { base: base.clone(), except },
                Selection::List(selected.clone()),
            ] {
                prop_assert_eq!(selection.len() as usize, selected.len());
                prop_assert_eq!(selection.to_list(), selected.clone(), "{}", selection.representation());
                let mut ranges = Vec::new();
                selection.for_each_range(|range| { ranges.extend(range); Ok::<_, ()>(()) }).unwrap();
                prop_assert_eq!(&ranges, &selected);
                prop_assert!(selection.ascends());
            }
        }
    }
}
