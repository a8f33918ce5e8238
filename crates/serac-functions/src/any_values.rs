//! any_value of many groups: the first value of each that is not NULL. A state has the value, and
//! whether there is one, as DataFusion's accumulator of one group has it.

use super::array_aggregate::Texts;
use super::group_lists::{selected, too_many};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array, new_empty_array};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use std::sync::Arc;

/// The accumulator of values of a type.
pub(super) fn groups(of: &DataType) -> Box<dyn GroupsAccumulator> {
    Box::new(Groups { of: of.clone(), values: Kept::default(), places: Vec::new() })
}

/// Values that are kept.
#[derive(Default)]
struct Kept {
    arrays: Vec<ArrayRef>,
    count: u32,
    /// The bytes of the arrays, without texts.
    bytes: usize,
    texts: Texts,
}

impl Kept {
    fn push(&mut self, array: ArrayRef) {
        self.texts.add(&array);
        self.bytes += array.to_data().get_slice_memory_size().unwrap_or_default();
        self.arrays.push(array);
    }
}

struct Groups {
    of: DataType,
    values: Kept,
    /// For each group the place of its value among those that are kept.
    places: Vec<Option<u32>>,
}

impl Groups {
    /// Takes the values of groups, NULL where there is none.
    fn take(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let places = emit_to.take_needed(&mut self.places);
        let kept = std::mem::take(&mut self.values);
        let arrays: Vec<&dyn Array> = kept.arrays.iter().map(AsRef::as_ref).collect();
        let all = if arrays.is_empty() { new_empty_array(&self.of) } else { concat(&arrays)? };
        let rest: UInt32Array = self.places.iter().flatten().copied().map(Some).collect();
        if !rest.is_empty() {
            // There are no more of them than before.
            self.values.count = rest.len() as u32;
            self.values.push(take(&all, &rest, None)?);
            self.places.iter_mut().flatten().zip(0..).for_each(|(place, new)| *place = new);
        }
        Ok(take(&all, &UInt32Array::from(places), None)?)
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.places.resize(total, None);
        let mut rows: Vec<u32> = Vec::new();
        let mut offer = |row: usize| -> Result<()> {
            let place = &mut self.places[groups[row]];
            if place.is_none() {
                *place = Some(self.values.count);
                self.values.count = self.values.count.checked_add(1).ok_or_else(|| too_many("groups"))?;
                rows.push(u32::try_from(row).map_err(|_| too_many("rows"))?);
            }
            Ok(())
        };
        match selected(&values[0], filter) {
            None => (0..groups.len()).try_for_each(&mut offer)?,
            Some(selected) => selected.set_indices().try_for_each(&mut offer)?,
        }
        if !rows.is_empty() {
            self.values.push(take(&values[0], &UInt32Array::from(rows), None)?);
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.take(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let values = self.take(emit_to)?;
        let are_set = match values.logical_nulls() {
            Some(nulls) => nulls.into_inner(),
            None => BooleanBuffer::new_set(values.len()),
        };
        Ok(vec![values, Arc::new(BooleanArray::new(are_set, None))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.update_batch(&states[..1], groups, Some(states[1].as_boolean()), total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let are_set = selected(&values[0], filter).unwrap_or_else(|| BooleanBuffer::new_set(values[0].len()));
        Ok(vec![values[0].clone(), Arc::new(BooleanArray::new(are_set, None))])
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.places.capacity() * size_of::<Option<u32>>()
            + self.values.arrays.capacity() * size_of::<ArrayRef>()
            + self.values.bytes
            + self.values.texts.bytes()
    }
}
