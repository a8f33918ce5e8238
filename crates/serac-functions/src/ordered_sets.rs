//! mode, percentile_disc and percentile_cont: the accumulators of many groups, which
//! [`super::aggregates`](mod@super::aggregates) uses for one group, too.
//!
//! The values of a group are put in order only as far as the result asks for: a value at a place is
//! selected, and the most frequent one needs a sort. A state is the list of the values of a group.

use super::group_lists::{lists, lists_of_rows, selected, spread, starts, too_many};
use super::kept_values::{Arrays, Kept, Numbers, Order};
use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use std::sync::Arc;

/// The rule that picks the result among the ordered values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pick {
    /// The first of those that are there most often.
    MostFrequent,
    /// The first with at least this share of all values up to it; an inner `None` for NULL.
    Fraction(Option<f64>),
    /// The value between the two around this share; `None` for NULL.
    Between(Option<f64>),
}

impl Pick {
    /// The result for values, at least one, which are put in another order.
    fn of<V: Copy, O: Order<V>>(self, values: &mut [V], order: &O, is_descending: bool) -> Option<V> {
        let last = values.len() - 1;
        let place = |at: usize| if is_descending { last - at } else { at };
        match self {
            Self::Fraction(None) | Self::Between(None) => None,
            Self::Fraction(Some(fraction)) => {
                let at = ((fraction * values.len() as f64).ceil() as usize).max(1) - 1;
                let (_, found, _) = values.select_nth_unstable_by(place(at.min(last)), |a, b| order.compare(a, b));
                Some(*found)
            }
            Self::Between(Some(fraction)) => {
                let at = fraction * last as f64;
                let (first, second) = (place(at.floor() as usize), place(at.ceil() as usize));
                let (_, lesser, above) = values.select_nth_unstable_by(first.min(second), |a, b| order.compare(a, b));
                let lesser = *lesser;
                // The next place has the least of the values above, if it is another one.
                let greater = match first == second {
                    true => lesser,
                    false => above.iter().copied().min_by(|a, b| order.compare(a, b)).unwrap_or(lesser),
                };
                let (first, second) = if is_descending { (greater, lesser) } else { (lesser, greater) };
                Some(order.between(first, second, at - at.floor()))
            }
            Self::MostFrequent => {
                values.sort_unstable_by(|a, b| order.compare(a, b));
                let mut longest: Option<&[V]> = None;
                for run in values.chunk_by(|a, b| order.are_equal(a, b)) {
                    let is_longer = |than: &[V]| match is_descending {
                        true => run.len() >= than.len(),
                        false => run.len() > than.len(),
                    };
                    if longest.is_none_or(is_longer) {
                        longest = Some(run);
                    }
                }
                longest.and_then(|run| if is_descending { run.last() } else { run.first() }).copied()
            }
        }
    }
}

/// Rows that are appended at a time.
const ROWS: usize = 1 << 13;

/// The result for values, at least one and none of them NULL.
pub(super) fn of_all(values: &ArrayRef, pick: Pick, is_descending: bool) -> Result<ScalarValue> {
    let mut all = groups(values.data_type(), pick, is_descending, None);
    let of_rows = vec![0; ROWS.min(values.len())];
    for from in (0..values.len()).step_by(ROWS) {
        let values = values.slice(from, ROWS.min(values.len() - from));
        let of_rows = &of_rows[..values.len()];
        all.update_batch(&[values], of_rows, None, 1)?;
    }
    ScalarValue::try_from_array(&all.evaluate(EmitTo::All)?, 0)
}

/// The accumulator of groups of values of a type. `error` is raised for the first rows.
pub(super) fn groups(
    of: &DataType,
    pick: Pick,
    is_descending: bool,
    error: Option<DataFusionError>,
) -> Box<dyn GroupsAccumulator> {
    fn of_kept(kept: impl Kept, of: &DataType, shape: Shape) -> Box<dyn GroupsAccumulator> {
        let value = Arc::new(Field::new_list_field(of.clone(), true));
        Box::new(Groups { kept, counts: Vec::new(), shape, value, numbers: Vec::new() })
    }
    let shape = Shape { pick, is_descending, error };
    match of {
        DataType::Int16 => of_kept(Numbers::<Int16Type>::new(of), of, shape),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => of_kept(Numbers::<Int32Type>::new(of), of, shape),
        DataType::Int64 | DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(..) | DataType::Duration(_) => {
            of_kept(Numbers::<Int64Type>::new(of), of, shape)
        }
        DataType::Float32 => of_kept(Numbers::<Float32Type>::new(of), of, shape),
        DataType::Float64 => of_kept(Numbers::<Float64Type>::new(of), of, shape),
        DataType::Decimal128(..) => of_kept(Numbers::<Decimal128Type>::new(of), of, shape),
        _ => of_kept(Arrays::new(of), of, shape),
    }
}

/// The place that an aggregate picks, and the order in which it puts the values.
struct Shape {
    pick: Pick,
    is_descending: bool,
    /// An error that groups of no rows do not raise.
    error: Option<DataFusionError>,
}

struct Groups<K> {
    kept: K,
    /// The number of values of each group.
    counts: Vec<u64>,
    shape: Shape,
    /// The field of the values in a state.
    value: FieldRef,
    /// The groups of the rows of a batch.
    numbers: Vec<u32>,
}

impl<K: Kept> Groups<K> {
    fn append(
        &mut self,
        values: &ArrayRef,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        if let Some(error) = self.shape.error.take() {
            return Err(error);
        }
        if u32::try_from(total).is_err() {
            return Err(too_many("groups"));
        }
        self.counts.resize(total, 0);
        let selected = selected(values, filter);
        match &selected {
            None => groups.iter().for_each(|group| self.counts[*group] += 1),
            Some(rows) => rows.set_indices().for_each(|row| self.counts[groups[row]] += 1),
        }
        self.numbers.clear();
        // They are less than `total`.
        self.numbers.extend(groups.iter().map(|group| *group as u32));
        self.kept.append(values, &self.numbers, selected.as_ref())
    }

    /// Takes the values of groups, and the place where those of each begin.
    fn take(&mut self, emit_to: EmitTo) -> Result<(Vec<usize>, usize, K::Taken)> {
        let counts = emit_to.take_needed(&mut self.counts);
        let (starts, total) = starts(counts.iter().map(|count| *count as usize));
        let values = self.kept.take(counts.len(), starts.clone(), total)?;
        Ok((starts, total, values))
    }
}

impl<K: Kept> GroupsAccumulator for Groups<K> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.append(&values[0], groups, filter, total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (starts, total, values) = self.take(emit_to)?;
        let Shape { pick, is_descending, .. } = self.shape;
        self.kept.chosen(values, |mut values, order| {
            let ends = starts.iter().skip(1).copied().chain([total]);
            let lengths = starts.iter().zip(ends).map(|(start, end)| end - start);
            let of_group = |length| {
                let rest = std::mem::take(&mut values);
                let (of_group, rest) = rest.split_at_mut(length);
                values = rest;
                if of_group.is_empty() { None } else { pick.of(of_group, order, is_descending) }
            };
            lengths.map(of_group).collect()
        })
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (starts, _, values) = self.take(emit_to)?;
        Ok(vec![lists(&self.value, &starts, self.kept.array(values)?)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        let (values, groups) = spread(&states[0], groups);
        self.append(&values, &groups, None, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        Ok(vec![lists_of_rows(&self.value, &values[0], filter)?])
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.kept.size()
            + self.counts.capacity() * size_of::<u64>()
            + self.numbers.capacity() * size_of::<u32>()
    }
}
