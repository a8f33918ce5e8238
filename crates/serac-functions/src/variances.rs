//! Variances of a single infinite number, or NaN: NaN where DataFusion's are 0. They are computed of DataFusion's states: how many numbers there are, their
//! mean, and the sum of the squares of their distances from it.

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array};
use datafusion::arrow::datatypes::{Float64Type, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use std::sync::Arc;

/// Which of the variances it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variance {
    of_population: bool,
    is_deviation: bool,
}

impl Variance {
    /// By the name of DataFusion's function; none for other functions.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let (of_population, is_deviation) = match name {
            "var_pop" => (true, false),
            "var" | "var_samp" => (false, false),
            "stddev_pop" => (true, true),
            "stddev" | "stddev_samp" => (false, true),
            _ => return None,
        };
        Some(Self { of_population, is_deviation })
    }
    fn value(self, count: u64, mean: f64, squares: f64) -> Option<f64> {
        let variance = match (count, self.of_population) {
            (0, _) | (1, false) => return None,
            (1, true) => {
                if mean.is_finite() {
                    0.0
                } else {
                    f64::NAN
                }
            }
            (count, true) => squares / count as f64,
            (count, false) => squares / (count - 1) as f64,
        };
        Some(if self.is_deviation { variance.sqrt() } else { variance })
    }
    fn values(self, state: &[ArrayRef]) -> Float64Array {
        let counts = state[0].as_primitive::<UInt64Type>().iter();
        let (means, squares) = (state[1].as_primitive::<Float64Type>(), state[2].as_primitive::<Float64Type>());
        let known = counts.zip(means).zip(squares);
        known.map(|((count, mean), squares)| self.value(count?, mean?, squares?)).collect()
    }
}

#[derive(Debug)]
pub(super) struct One(pub(super) Box<dyn Accumulator>, pub(super) Variance);

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }
    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.0.state()?.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
        ScalarValue::try_from_array(&self.1.values(&state), 0)
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }
}

pub(super) struct Groups(pub(super) Box<dyn GroupsAccumulator>, pub(super) Variance);

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.0.update_batch(values, groups, filter, count)
    }
    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(Arc::new(self.1.values(&self.0.state(emit_to)?)))
    }
    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }
    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.0.merge_batch(states, groups, count)
    }
    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }
    fn size(&self) -> usize {
        self.0.size()
    }
}
