//! Accumulators of groups that keep values share this: the rows that count, and states that are
//! lists with the values of a group.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::filter;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::error::{DataFusionError, Result};
use std::iter::repeat_n;
use std::sync::Arc;

/// The rows whose value is not NULL and whose filter is true; `None` if all are.
pub(super) fn selected(values: &ArrayRef, of_rows: Option<&BooleanArray>) -> Option<BooleanBuffer> {
    let valid = values.logical_nulls().filter(|nulls| nulls.null_count() > 0).map(NullBuffer::into_inner);
    let filtered = of_rows.map(|rows| match rows.nulls() {
        Some(nulls) => rows.values() & nulls.inner(),
        None => rows.values().clone(),
    });
    match (valid, filtered) {
        (Some(valid), Some(filtered)) => Some(&valid & &filtered),
        (valid, filtered) => valid.or(filtered),
    }
}

/// The error of more groups or values than their numbers can count.
pub(super) fn too_many(what: &str) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!("too many {what} of an aggregate at a time"))
}

/// The places where the values of groups begin that have these numbers of values, and the total.
pub(super) fn starts(counts: impl Iterator<Item = usize>) -> (Vec<usize>, usize) {
    let mut total = 0_usize;
    let starts = counts.map(|count| {
        let start = total;
        total += count;
        start
    });
    (starts.collect(), total)
}

/// The state of groups whose values begin at `starts`.
pub(super) fn lists(value: &FieldRef, starts: &[usize], values: ArrayRef) -> Result<ArrayRef> {
    let ends = starts.iter().copied().chain([values.len()]);
    let offsets = ends.map(|end| i32::try_from(end).map_err(|_| too_many("values"))).collect::<Result<Vec<_>>>()?;
    list(value, offsets, values)
}

fn list(value: &FieldRef, offsets: Vec<i32>, values: ArrayRef) -> Result<ArrayRef> {
    Ok(Arc::new(ListArray::try_new(value.clone(), OffsetBuffer::new(offsets.into()), values, None)?))
}

/// A state for each row: a list of its value, or an empty list for a row that does not count.
pub(super) fn lists_of_rows(value: &FieldRef, values: &ArrayRef, of_rows: Option<&BooleanArray>) -> Result<ArrayRef> {
    let rows = i32::try_from(values.len()).map_err(|_| too_many("rows"))?;
    let Some(selected) = selected(values, of_rows) else {
        return list(value, (0..=rows).collect(), values.clone());
    };
    let mut offsets = Vec::with_capacity(values.len() + 1);
    offsets.push(0_i32);
    let mut before = 0;
    for is_selected in &selected {
        before += i32::from(is_selected);
        offsets.push(before);
    }
    list(value, offsets, filter(values, &BooleanArray::new(selected, None))?)
}

/// The values of states, and for each its group.
pub(super) fn spread(states: &ArrayRef, groups: &[usize]) -> (ArrayRef, Vec<usize>) {
    let lists = states.as_list::<i32>();
    let offsets = lists.offsets();
    let (first, last) = (offsets[0] as usize, offsets[lists.len()] as usize);
    let mut of_values = Vec::with_capacity(last - first);
    for (group, length) in groups.iter().zip(offsets.lengths()) {
        of_values.extend(repeat_n(*group, length));
    }
    (lists.values().slice(first, last - first), of_values)
}
