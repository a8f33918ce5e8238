//! Overflowing sums of floats: an error (22003), where DataFusion's accumulators give infinity. An
//! infinite input also gives infinity, so the values are checked for it.

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use serac_values::SqlError;

/// An accumulator of DataFusion's, of all rows or of groups.
#[derive(Debug)]
pub(super) struct Finite<A> {
    inner: A,
    /// Whether a value may have been infinite.
    has_infinite: bool,
}

impl<A> Finite<A> {
    pub(super) fn new(inner: A) -> Self {
        Self { inner, has_infinite: false }
    }

    fn note(&mut self, values: &[ArrayRef]) -> Result<()> {
        for values in values {
            self.has_infinite = self.has_infinite || is_infinite(values)?;
        }
        Ok(())
    }

    /// # Errors
    /// 22003 where a sum is infinite and no value was.
    fn check(&self, sums: &[ArrayRef]) -> Result<()> {
        for sums in sums {
            if !self.has_infinite && is_infinite(sums)? {
                return Err(sum_of_floats_overflows());
            }
        }
        Ok(())
    }
}

/// The error of an infinite sum of finite values (22003).
pub fn sum_of_floats_overflows() -> DataFusionError {
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow").external()
}

/// Whether one of the values is an infinite float.
fn is_infinite(values: &ArrayRef) -> Result<bool> {
    // The states of DISTINCT are lists.
    if let Some(lists) = values.as_list_opt::<i32>() {
        return is_infinite(lists.values());
    }
    if !values.data_type().is_floating() {
        return Ok(false);
    }
    let floats = cast(values, &DataType::Float64)?;
    Ok(floats.as_primitive::<Float64Type>().iter().flatten().any(f64::is_infinite))
}

impl Accumulator for Finite<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.note(values)?;
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.inner.evaluate()?;
        self.check(&[sum.to_array()?])?;
        Ok(sum)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = self.inner.state()?;
        for part in state.iter().filter(|part| part.data_type().is_floating()) {
            self.check(&[part.to_array()?])?;
        }
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.note(states)?;
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

impl GroupsAccumulator for Finite<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.note(values)?;
        self.inner.update_batch(values, groups, filter, total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = self.inner.evaluate(emit_to)?;
        self.check(std::slice::from_ref(&sums))?;
        Ok(sums)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let state = self.inner.state(emit_to)?;
        self.check(&state)?;
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.note(states)?;
        self.inner.merge_batch(states, groups, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
