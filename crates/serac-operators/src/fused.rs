//! Operators in one pass over what they share: several fetches or aggregates through one selection, a select with fetches of its result, and several aggregates over
//! one vector (column-store report, §2.5).

use crate::multiselect::{BlockSource, Bounds};
use crate::range_words::{self, RangeValue};

/// What all aggregates of a vector follow from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// How many values.
    pub count: u64,
    /// Their sum.
    pub sum: i128,
    /// The smallest; the largest number if there is none.
    pub min: i64,
    /// The largest; the smallest number if there is none.
    pub max: i64,
}

impl Default for Summary {
    fn default() -> Self {
        Self { count: 0, sum: 0, min: i64::MAX, max: i64::MIN }
    }
}

/// So many values have halves whose sums fit 64 bits.
const HALVES: usize = 1 << 30;

impl Summary {
    /// Of these values. A loop without branches, which the compiler vectorises: lower and upper halves are added apart.
    pub fn of<T: RangeValue>(values: &[T]) -> Self {
        let mut summary = Self::default();
        for values in values.chunks(HALVES) {
            let (mut low, mut high, mut min, mut max) = (0u64, 0i64, i64::MAX, i64::MIN);
            for &value in values {
                let value: i64 = value.into();
                low += value.cast_unsigned() & u64::from(u32::MAX);
                high += value >> 32;
                min = min.min(value);
                max = max.max(value);
            }
            summary.merge(Self {
                count: values.len() as u64,
                sum: (i128::from(high) << 32) + i128::from(low),
                min,
                max,
            });
        }
        summary
    }
    /// Of these values and those of another summary.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
    /// Of values with one more.
    pub fn add(&mut self, value: i64) {
        self.merge(Self { count: 1, sum: value.into(), min: value, max: value });
    }
    /// The mean, rounded once; none of no value.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

/// Rows that qualify, and values of theirs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selected<V> {
    /// The ranks of the rows, ascending.
    pub ranks: Vec<u64>,
    /// By fetched column, the values in the order of the ranks; none for a NULL.
    pub values: Vec<Vec<Option<V>>>,
}

/// Selects on one column, and fetches others at the rows that qualify, block by block: no block is looked at a second time. All columns have the same blocks.
///
/// # Errors
/// When a block cannot be read, and those of `go_on`, which is asked before each block with the number of rows so far.
pub fn select_fetch<T: RangeValue, V: RangeValue, E>(
    column: &impl BlockSource<T, E>,
    fetched: &[&dyn BlockSource<V, E>],
    bounds: Bounds,
    go_on: &mut dyn FnMut(usize) -> Result<(), E>,
) -> Result<Selected<V>, E> {
    let mut selected = Selected { ranks: Vec::new(), values: vec![Vec::new(); fetched.len()] };
    let mut first_rank = 0;
    for block in 0..column.blocks() {
        go_on(selected.ranks.len())?;
        let places = select_places(column, block, bounds)?;
        for (source, out) in fetched.iter().zip(&mut selected.values) {
            if places.is_empty() {
                continue;
            }
            source.read(block, &mut |values, nulls| match nulls.filter(|nulls| nulls.null_count() > 0) {
                None => out.extend(places.iter().map(|&at| Some(values[at as usize]))),
                Some(nulls) => {
                    let value = |at: usize| nulls.is_valid(at).then(|| values[at]);
                    out.extend(places.iter().map(|&at| value(at as usize)));
                }
            })?;
        }
        selected.ranks.extend(places.iter().map(|&at| first_rank + u64::from(at)));
        first_rank += column.rows(block) as u64;
    }
    Ok(selected)
}

/// Selects on one column, and aggregates others at the rows that qualify, without lists of rows or values. NULLs are passed over.
///
/// # Errors
/// As of [`select_fetch`].
pub fn select_aggregate<T: RangeValue, V: RangeValue, E>(
    column: &impl BlockSource<T, E>,
    aggregated: &[&dyn BlockSource<V, E>],
    bounds: Bounds,
    go_on: &mut dyn FnMut(usize) -> Result<(), E>,
) -> Result<Vec<Summary>, E> {
    let mut summaries = vec![Summary::default(); aggregated.len()];
    let mut rows = 0;
    let mut gathered: Vec<V> = Vec::new();
    for block in 0..column.blocks() {
        go_on(rows)?;
        let places = select_places(column, block, bounds)?;
        rows += places.len();
        for (source, summary) in aggregated.iter().zip(&mut summaries) {
            if places.is_empty() {
                continue;
            }
            source.read(block, &mut |values, nulls| {
                let valid = |at: usize| nulls.is_none_or(|nulls| nulls.is_valid(at));
                gathered.clear();
                match nulls.filter(|nulls| nulls.null_count() > 0) {
                    None => gathered.extend(places.iter().map(|&at| values[at as usize])),
                    Some(_) => {
                        let of_valid = places.iter().filter(|at| valid(**at as usize));
                        gathered.extend(of_valid.map(|&at| values[at as usize]));
                    }
                }
                summary.merge(Summary::of(&gathered));
            })?;
        }
    }
    Ok(summaries)
}

/// The places of a block's rows that qualify.
fn select_places<T: RangeValue, E>(
    column: &impl BlockSource<T, E>,
    block: usize,
    bounds: Bounds,
) -> Result<Vec<u32>, E> {
    let mut places = Vec::new();
    let Some((low, high)) = bounds.within(T::MIN, T::MAX) else { return Ok(places) };
    if column.zone(block).is_some_and(|zone| high < *zone.start() || low > *zone.end()) {
        return Ok(places);
    }
    column.read(block, &mut |values, nulls| {
        let mut words = vec![0; values.len().div_ceil(64)];
        T::range_words(values, T::of(low), T::of(high), &mut words);
        if let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) {
            words.iter_mut().zip(nulls.inner().bit_chunks().iter_padded()).for_each(|(word, valid)| *word &= valid);
        }
        places = range_words::places(&words, range_words::count(&words));
    })?;
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiselect::Slices;
    use arrow_buffer::NullBuffer;
    use proptest::prelude::*;

    fn any_number() -> impl Strategy<Value = i64> {
        prop_oneof![4 => -40i64..40, 1 => Just(i64::MIN), 1 => Just(i64::MAX), 1 => any::<i64>()]
    }

    proptest! {
        #[test]
        fn a_summary_is_that_of_a_plain_loop(values in prop::collection::vec(any_number(), 0..300), at in 0usize..300) {
            let mut expected = Summary::default();
            values.iter().for_each(|&value| expected.add(value));
            prop_assert_eq!(Summary::of(&values), expected);
            prop_assert_eq!(expected.sum, values.iter().map(|v| i128::from(*v)).sum::<i128>());
            prop_assert_eq!(expected.min, values.iter().copied().min().unwrap_or(i64::MAX));
            prop_assert_eq!(expected.max, values.iter().copied().max().unwrap_or(i64::MIN));
            let (left, right) = values.split_at(at.min(values.len()));
            let mut merged = Summary::of(left);
            merged.merge(Summary::of(right));
            prop_assert_eq!(merged, expected);
        }

        #[test]
        fn fused_operators_agree_with_a_plain_loop(
            rows in prop::collection::vec((-40i32..40, prop::bool::weighted(0.9), any_number(), prop::bool::weighted(0.9)), 0..400),
            block in 1usize..150, low in prop::option::of(-50i64..50), high in prop::option::of(-50i64..50),
        ) {
            type Column<T> = Vec<(Vec<T>, NullBuffer)>;
            let keys: Column<i32> =
                rows.chunks(block).map(|b| (b.iter().map(|r| r.0).collect(), b.iter().map(|r| r.1).collect())).collect();
            let values: Column<i64> =
                rows.chunks(block).map(|b| (b.iter().map(|r| r.2).collect(), b.iter().map(|r| r.3).collect())).collect();
            let keys = Slices(keys.iter().map(|(v, n)| (v.as_slice(), Some(n))).collect());
            let fetched = Slices(values.iter().map(|(v, n)| (v.as_slice(), Some(n))).collect());
            let all = Slices(values.iter().map(|(v, _)| (v.as_slice(), None)).collect());
            let qualifies = |v: i64| low.is_none_or(|low| v >= low) && high.is_none_or(|high| v < high);
            let expected: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].1 && qualifies(rows[i].0.into())).collect();
            let bounds = Bounds { low, high };
            let fetch: [&dyn BlockSource<i64, ()>; 2] = [&fetched, &all];
            let selected = select_fetch(&keys, &fetch, bounds, &mut |_| Ok(())).unwrap();
            prop_assert_eq!(&selected.ranks, &expected.iter().map(|&i| i as u64).collect::<Vec<_>>());
            prop_assert_eq!(&selected.values[0], &expected.iter().map(|&i| rows[i].3.then_some(rows[i].2)).collect::<Vec<_>>());
            prop_assert_eq!(&selected.values[1], &expected.iter().map(|&i| Some(rows[i].2)).collect::<Vec<_>>());
            let summaries = select_aggregate(&keys, &fetch, bounds, &mut |_| Ok(())).unwrap();
            for (summary, values) in summaries.iter().zip(&selected.values) {
                prop_assert_eq!(*summary, Summary::of(&values.iter().copied().flatten().collect::<Vec<_>>()));
            }
            prop_assert_eq!(select_fetch(&keys, &fetch, bounds, &mut |_| Err(())).is_err(), !rows.is_empty());
        }
    }
}
