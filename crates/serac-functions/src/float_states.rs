//! Aggregates of floats whose state is a few sums: the accumulators of one group and of many, for
//! [`super::variances`] and [`super::regressions`].
//!
//! Rows are added in the order in which they come, so that both accumulators give the same bits.

use super::group_lists::selected;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use std::fmt::Debug;

/// The sums of a set of rows.
pub(super) trait FloatState: Clone + Copy + Debug + Default + Send + Sync + 'static {
    /// The aggregates that are computed of the sums.
    type Aggregate: Clone + Copy + Debug + Send + Sync + 'static;

    /// A row as an aggregate needs it: one that only counts rows has no sum that may overflow.
    fn needed(aggregate: Self::Aggregate, row: [f64; 2]) -> [f64; 2] {
        let _ = aggregate;
        row
    }

    /// Adds a row: the arguments in their order. The second repeats the first if there is one only.
    ///
    /// # Errors
    /// 22003 where finite numbers have a sum that is not finite.
    fn add(&mut self, row: [f64; 2]) -> Result<()>;

    /// Adds the rows of another state.
    ///
    /// # Errors
    /// As [`Self::add`].
    fn merge(&mut self, other: &Self) -> Result<()>;

    /// The columns of states.
    fn columns(states: &[Self]) -> Vec<ArrayRef>;

    /// The states that columns have.
    fn of_columns(columns: &[ArrayRef]) -> impl Iterator<Item = Self> + '_;

    /// The results of an aggregate.
    fn results(aggregate: Self::Aggregate, states: &[Self]) -> ArrayRef;
}

/// The rows of a batch.
struct Rows {
    first: Float64Array,
    second: Float64Array,
    /// Those that count; `None` for all.
    counted: Option<BooleanBuffer>,
}

impl Rows {
    fn new(values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Self> {
        let numbers = |at: usize| cast(&values[at], &DataType::Float64);
        let first = numbers(0)?;
        let second = if values.len() > 1 { numbers(1)? } else { first.clone() };
        let counted = selected(&first, filter);
        let of_second = second.nulls().filter(|nulls| values.len() > 1 && nulls.null_count() > 0);
        let counted = match (counted, of_second.map(NullBuffer::inner)) {
            (Some(counted), Some(known)) => Some(&counted & known),
            (counted, known) => counted.or(known.cloned()),
        };
        let floats = |array: ArrayRef| array.as_primitive::<Float64Type>().clone();
        Ok(Self { first: floats(first), second: floats(second), counted })
    }

    fn each(&self, mut add: impl FnMut(usize, [f64; 2]) -> Result<()>) -> Result<()> {
        let (first, second) = (self.first.values(), self.second.values());
        match &self.counted {
            None => {
                let rows = first.iter().zip(second).enumerate();
                rows.map(|(at, (first, second))| (at, [*first, *second])).try_for_each(|(at, row)| add(at, row))
            }
            Some(counted) => counted.set_indices().try_for_each(|at| add(at, [first[at], second[at]])),
        }
    }
}

/// The aggregate of all rows.
#[derive(Debug)]
pub(super) struct OfRows<S: FloatState> {
    aggregate: S::Aggregate,
    state: S,
}

impl<S: FloatState> OfRows<S> {
    pub(super) fn new(aggregate: S::Aggregate) -> Self {
        Self { aggregate, state: S::default() }
    }
}

impl<S: FloatState> Accumulator for OfRows<S> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        Rows::new(values, None)?.each(|_, row| self.state.add(S::needed(self.aggregate, row)))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&S::results(self.aggregate, &[self.state]), 0)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        S::columns(&[self.state]).iter().map(|column| ScalarValue::try_from_array(column, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        S::of_columns(states).try_for_each(|state| self.state.merge(&state))
    }
}

/// The aggregate of groups.
#[derive(Debug)]
pub(super) struct OfGroups<S: FloatState> {
    aggregate: S::Aggregate,
    states: Vec<S>,
}

impl<S: FloatState> OfGroups<S> {
    pub(super) fn new(aggregate: S::Aggregate) -> Self {
        Self { aggregate, states: Vec::new() }
    }
}

impl<S: FloatState> GroupsAccumulator for OfGroups<S> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.states.resize(total, S::default());
        Rows::new(values, filter)?.each(|at, row| self.states[groups[at]].add(S::needed(self.aggregate, row)))
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(S::results(self.aggregate, &emit_to.take_needed(&mut self.states)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(S::columns(&emit_to.take_needed(&mut self.states)))
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.states.resize(total, S::default());
        S::of_columns(states).zip(groups).try_for_each(|(state, group)| self.states[*group].merge(&state))
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut states = vec![S::default(); values[0].len()];
        Rows::new(values, filter)?.each(|at, row| states[at].add(S::needed(self.aggregate, row)))?;
        Ok(S::columns(&states))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.states.capacity() * size_of::<S>()
    }
}
