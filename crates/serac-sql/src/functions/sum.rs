//! sum (): of integers, exact while they are added, and an error (22003) where the result is not a BIGINT; DataFusion's wraps around. Of other types it is
//! DataFusion's.

use crate::error::SqlError;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::Sum as OfAnyType;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
};
use serac_storage::ColumnType;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Sum {
    of_any_type: OfAnyType,
}

fn is_integer(data_type: &DataType) -> bool {
    *data_type == DataType::Int64
}

fn in_range(sum: i128) -> Result<i64> {
    i64::try_from(sum).map_err(|_| SqlError::out_of_range(ColumnType::Int64).external())
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        "sum"
    }
    fn signature(&self) -> &Signature {
        self.of_any_type.signature()
    }
    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.of_any_type.return_type(given)
    }
    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if !is_integer(args.return_type()) || args.is_distinct {
            return self.of_any_type.state_fields(args);
        }
        let field = |part| Arc::new(Field::new(format!("{}[{part}]", args.name), DataType::Int64, true));
        Ok(vec![field("sum"), field("carry")])
    }
    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match (is_integer(args.return_type()), args.is_distinct) {
            (false, _) => self.of_any_type.accumulator(args),
            (true, false) => Ok(Box::<OfIntegers>::default()),
            (true, true) => Ok(Box::<OfDistinct>::default()),
        }
    }
    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if is_integer(args.return_type()) {
            self.accumulator(args)
        } else {
            self.of_any_type.create_sliding_accumulator(args)
        }
    }
    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }
    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if is_integer(args.return_type()) {
            Ok(Box::<OfGroups>::default())
        } else {
            self.of_any_type.create_groups_accumulator(args)
        }
    }
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.of_any_type.set_monotonicity(data_type)
    }
}

/// A sum as its low 64 bits and how often 2⁶⁴ is to be added to them.
fn parts(sum: i128) -> (i64, i64) {
    let low = sum as i64;
    (low, ((sum - i128::from(low)) >> 64) as i64)
}
fn whole(low: i64, carry: i64) -> i128 {
    i128::from(low) + (i128::from(carry) << 64)
}

fn add(array: &ArrayRef) -> i128 {
    array.as_primitive::<Int64Type>().iter().flatten().map(i128::from).sum()
}

/// The sum of all rows, or of those of a window's frame.
#[derive(Debug, Default)]
struct OfIntegers {
    sum: i128,
    /// Values that are not NULL.
    count: u64,
}

impl Accumulator for OfIntegers {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sum += add(&values[0]);
        self.count += (values[0].len() - values[0].null_count()) as u64;
        Ok(())
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sum -= add(&values[0]);
        self.count -= (values[0].len() - values[0].null_count()) as u64;
        Ok(())
    }
    fn supports_retract_batch(&self) -> bool {
        true
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.sum += add(&states[0]) + (add(&states[1]) << 64);
        self.count += (states[0].len() - states[0].null_count()) as u64;
        Ok(())
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let (low, carry) = parts(self.sum);
        Ok([low, carry].map(|part| ScalarValue::Int64((self.count > 0).then_some(part))).to_vec())
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = (self.count > 0).then(|| in_range(self.sum)).transpose()?;
        Ok(ScalarValue::Int64(sum))
    }
    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sum of the different values.
#[derive(Debug, Default)]
struct OfDistinct {
    /// How often each is there: a window's frame leaves rows behind.
    values: HashMap<i64, u64>,
}

impl Accumulator for OfDistinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Int64Type>().iter().flatten() {
            *self.values.entry(value).or_default() += 1;
        }
        Ok(())
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Int64Type>().iter().flatten() {
            let count = self.values.get_mut(&value).expect("what leaves the frame had entered it");
            *count -= 1;
            if *count == 0 {
                self.values.remove(&value);
            }
        }
        Ok(())
    }
    fn supports_retract_batch(&self) -> bool {
        true
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states[0].as_list::<i32>().iter().flatten().try_for_each(|values| self.update_batch(&[values]))
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Int64Array = self.values.keys().copied().map(Some).collect();
        Ok(vec![SingleRowListArrayBuilder::new(Arc::new(values)).build_list_scalar()])
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.values.keys().copied().map(i128::from).sum();
        let sum = (!self.values.is_empty()).then(|| in_range(sum)).transpose()?;
        Ok(ScalarValue::Int64(sum))
    }
    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<(i64, u64)>()
    }
}

fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

/// The sums of groups.
#[derive(Debug, Default)]
struct OfGroups {
    sums: Vec<i64>,
    /// Whether the group has a value that is not NULL.
    met: Vec<bool>,
    /// Empty as long as all sums fit into 64 bits.
    carries: Vec<i64>,
}

impl OfGroups {
    fn grow(&mut self, groups: usize) {
        self.sums.resize(groups, 0);
        self.met.resize(groups, false);
        if !self.carries.is_empty() {
            self.carries.resize(groups, 0);
        }
    }
    #[inline]
    fn add(&mut self, group: usize, value: i64) {
        let (sum, overflows) = self.sums[group].overflowing_add(value);
        self.sums[group] = sum;
        self.met[group] = true;
        if overflows {
            self.carry(group, if value < 0 { -1 } else { 1 });
        }
    }
    #[cold]
    fn carry(&mut self, group: usize, carry: i64) {
        self.carries.resize(self.sums.len(), 0);
        self.carries[group] += carry;
    }
    /// The sums, what they carried over (empty for nothing), and which of them are of values.
    fn take(&mut self, emit_to: EmitTo) -> (Vec<i64>, Vec<i64>, Vec<bool>) {
        let carries = if self.carries.is_empty() { Vec::new() } else { emit_to.take_needed(&mut self.carries) };
        (emit_to.take_needed(&mut self.sums), carries, emit_to.take_needed(&mut self.met))
    }
}

impl GroupsAccumulator for OfGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let values = values[0].as_primitive::<Int64Type>();
        if values.null_count() == 0 && opt_filter.is_none() {
            group_indices.iter().zip(values.values()).for_each(|(&group, &value)| self.add(group, value));
            return Ok(());
        }
        for (row, (&group, value)) in group_indices.iter().zip(values).enumerate() {
            if let Some(value) = value.filter(|_| passes(opt_filter, row)) {
                self.add(group, value);
            }
        }
        Ok(())
    }
    fn merge_batch(&mut self, states: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.update_batch(&states[..1], group_indices, None, total_num_groups)?;
        let carries = states[1].as_primitive::<Int64Type>();
        for (&group, carry) in group_indices.iter().zip(carries) {
            if let Some(carry) = carry.filter(|&carry| carry != 0) {
                self.carry(group, carry);
            }
        }
        Ok(())
    }
    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, carries, met) = self.take(emit_to);
        for (&sum, carry) in sums.iter().zip(carries) {
            in_range(whole(sum, carry))?;
        }
        Ok(Arc::new(Int64Array::new(sums.into(), Some(met.into()))))
    }
    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, mut carries, met) = self.take(emit_to);
        carries.resize(sums.len(), 0);
        Ok(vec![Arc::new(Int64Array::new(sums.into(), Some(met.into()))), Arc::new(Int64Array::from(carries))])
    }
    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Int64Type>();
        let counts = |row| values.is_valid(row) && passes(opt_filter, row);
        let valid = BooleanBuffer::collect_bool(values.len(), counts);
        let sums = Int64Array::new(values.values().clone(), Some(valid.into()));
        Ok(vec![Arc::new(sums), Arc::new(Int64Array::from(vec![0; values.len()]))])
    }
    fn size(&self) -> usize {
        (self.sums.capacity() + self.carries.capacity()) * size_of::<i64>() + self.met.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_number() -> impl Strategy<Value = Option<i64>> {
        prop_oneof![Just(None), (-1000i64..1000).prop_map(Some), any::<i64>().prop_map(Some), Just(Some(i64::MIN))]
    }

    fn array(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    fn result(sum: Option<i128>) -> Option<Option<i64>> {
        sum.map(|sum| i64::try_from(sum).ok())
    }

    proptest! {
        /// In parts that are merged, and in whatever order, sums are those of wider numbers.
        #[test]
        fn sums_are_exact(parts in prop::collection::vec(prop::collection::vec((0usize..4, any_number(), any::<bool>()), 0..12), 1..4), first in 0usize..5) {
            let mut expected = [None::<i128>; 4];
            let mut all = OfGroups::default();
            let mut alone = OfIntegers::default();
            for part in &parts {
                let groups: Vec<usize> = part.iter().map(|row| row.0).collect();
                let values: Vec<Option<i64>> = part.iter().map(|row| row.1).collect();
                let filter = BooleanArray::from(part.iter().map(|row| row.2).collect::<Vec<_>>());
                let mut own = OfGroups::default();
                own.update_batch(&[array(&values)], &groups, Some(&filter), 4).unwrap();
                for (group, value, _) in part.iter().filter(|row| row.2) {
                    if let Some(value) = value {
                        *expected[*group].get_or_insert(0) += i128::from(*value);
                    }
                }
                // Some groups leave before the others.
                let early = own.state(EmitTo::First(first.min(4))).unwrap();
                let late = own.state(EmitTo::All).unwrap();
                all.merge_batch(&early, &(0..first.min(4)).collect::<Vec<_>>(), 4).unwrap();
                all.merge_batch(&late, &(first.min(4)..4).collect::<Vec<_>>(), 4).unwrap();
                // Rows as states of their own come to the same as the rows.
                let rows = own.convert_to_state(&[array(&values)], Some(&filter)).unwrap();
                let mut converted = OfIntegers::default();
                converted.merge_batch(&rows).unwrap();
                let state: Vec<ArrayRef> = converted.state().unwrap().iter().map(|part| part.to_array().unwrap()).collect();
                alone.merge_batch(&state).unwrap();
            }
            let total = expected.iter().flatten().copied().reduce(|a, b| a + b);
            match result(total) {
                Some(None) => prop_assert!(alone.evaluate().is_err()),
                sum => prop_assert_eq!(alone.evaluate().unwrap(), ScalarValue::Int64(sum.flatten())),
            }
            if expected.iter().any(|&sum| result(sum) == Some(None)) {
                prop_assert!(all.evaluate(EmitTo::All).is_err());
            } else {
                let expected: Vec<Option<i64>> = expected.iter().map(|&sum| result(sum).flatten()).collect();
                prop_assert_eq!(&all.evaluate(EmitTo::All).unwrap(), &array(&expected));
            }
        }

        /// What leaves a window's frame is not in its sum, once it is not there at all.
        #[test]
        fn frames_slide(values in prop::collection::vec(prop_oneof![Just(None), (-3i64..3).prop_map(Some)], 1..30), width in 1usize..6) {
            let (mut sum, mut distinct) = (OfIntegers::default(), OfDistinct::default());
            for end in 1..=values.len() {
                let entered = [array(&values[end - 1..end])];
                sum.update_batch(&entered).unwrap();
                distinct.update_batch(&entered).unwrap();
                if end > width {
                    let left = [array(&values[end - width - 1..end - width])];
                    sum.retract_batch(&left).unwrap();
                    distinct.retract_batch(&left).unwrap();
                }
                let mut frame: Vec<i64> = values[end.saturating_sub(width)..end].iter().flatten().copied().collect();
                let expected = |frame: &[i64]| ScalarValue::Int64((!frame.is_empty()).then(|| frame.iter().sum()));
                prop_assert_eq!(sum.evaluate().unwrap(), expected(&frame));
                frame.sort_unstable();
                frame.dedup();
                prop_assert_eq!(distinct.evaluate().unwrap(), expected(&frame));
            }
        }
    }
}
