//! The values of groups that are chosen by their keys: the accumulator of
//! [`crate::aggregates::by_key`] for GROUP BY.
//!
//! Rows of a batch are compared with each other first, so that no more than one of a group is
//! compared with the best row that the group has had.

use crate::aggregates::Choice;
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, make_comparator, new_empty_array};
use datafusion::arrow::compute::{SortOptions, nullif};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

/// The accumulator of values and keys of some types.
///
/// # Errors
/// If a type has no NULL.
pub(crate) fn groups(choice: Choice, value: &DataType, key: &DataType) -> Result<Box<dyn GroupsAccumulator>> {
    let none = (ScalarValue::try_from(value)?, ScalarValue::try_from(key)?);
    Ok(Box::new(Groups { choice, none, best: Vec::new(), bytes: 0, rows: Vec::new() }))
}

struct Groups {
    choice: Choice,
    /// The value and the key of a group without rows: both NULL.
    none: (ScalarValue, ScalarValue),
    /// The value and the key of the best row of each group.
    best: Vec<(ScalarValue, ScalarValue)>,
    /// The bytes of these beside the list.
    bytes: usize,
    /// The best row of each group in a batch, between batches [`NO_ROW`].
    rows: Vec<usize>,
}

const NO_ROW: usize = usize::MAX;

fn bytes_of((value, key): &(ScalarValue, ScalarValue)) -> usize {
    (value.size() + key.size()).saturating_sub(2 * size_of::<ScalarValue>())
}

/// The values of groups as an array of a type.
fn array<'v>(values: impl ExactSizeIterator<Item = &'v ScalarValue>, of: &DataType) -> Result<ArrayRef> {
    match values.len() {
        0 => Ok(new_empty_array(of)),
        _ => ScalarValue::iter_to_array(values.cloned()),
    }
}

impl Groups {
    fn take(&mut self, emit_to: EmitTo) -> Vec<(ScalarValue, ScalarValue)> {
        let taken = emit_to.take_needed(&mut self.best);
        self.bytes = self.bytes.saturating_sub(taken.iter().map(bytes_of).sum());
        self.rows = Vec::new();
        taken
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
        let [all, keys] = values else { return Err(DataFusionError::Internal("a value and a key".into())) };
        self.best.resize(total, self.none.clone());
        self.rows.resize(total, NO_ROW);
        let passes = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let compare = make_comparator(keys.as_ref(), keys.as_ref(), SortOptions::default())?;
        let mut touched = Vec::new();
        for row in (0..keys.len()).filter(|row| keys.is_valid(*row) && passes(*row)) {
            let best = &mut self.rows[groups[row]];
            if *best == NO_ROW {
                touched.push(groups[row]);
                *best = row;
            } else if self.choice.takes(Some(compare(row, *best))) {
                *best = row;
            }
        }
        for group in touched {
            let row = std::mem::replace(&mut self.rows[group], NO_ROW);
            let key = ScalarValue::try_from_array(keys, row)?;
            let best = &mut self.best[group];
            if best.1.is_null() || self.choice.takes(key.partial_cmp(&best.1)) {
                let before = bytes_of(best);
                *best = (ScalarValue::try_from_array(all, row)?, key);
                self.bytes = (self.bytes + bytes_of(best)).saturating_sub(before);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        array(self.take(emit_to).iter().map(|best| &best.0), &self.none.0.data_type())
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let best = self.take(emit_to);
        Ok(vec![
            array(best.iter().map(|best| &best.0), &self.none.0.data_type())?,
            array(best.iter().map(|best| &best.1), &self.none.1.data_type())?,
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.update_batch(states, groups, None, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let Some(filter) = filter else { return Ok(values.to_vec()) };
        // A row that the filter drops has no key.
        let drops = filter.iter().map(|passes| Some(passes != Some(true))).collect::<BooleanArray>();
        Ok(vec![values[0].clone(), nullif(&values[1], &drops)?])
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.best.capacity() * size_of::<(ScalarValue, ScalarValue)>()
            + self.bytes
            + self.rows.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregates::by_key;
    use datafusion::arrow::array::{BinaryArray, Int64Array};
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::Accumulator;
    use datafusion::logical_expr::function::AccumulatorArgs;
    use std::sync::Arc;

    const GROUPS: usize = 4;

    fn with_args<R>(make: impl FnOnce(AccumulatorArgs<'_>) -> R) -> R {
        let value = Arc::new(Field::new("value", DataType::Int64, true));
        let key = Arc::new(Field::new("key", DataType::Binary, true));
        make(AccumulatorArgs {
            return_field: value.clone(),
            schema: &Schema::empty(),
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: "n",
            is_distinct: false,
            exprs: &[],
            expr_fields: &[value, key],
        })
    }

    #[test]
    fn groups_choose_as_one_by_one() {
        // Numbers in no order, of a fixed sequence.
        let mut seed = 11_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for choice in [Choice::First, Choice::Least, Choice::Greatest].repeat(20) {
            let rows = next(40) as usize;
            // Each row has a value of its own, so that equal keys are told apart.
            let values: ArrayRef = Arc::new((0..rows as i64).map(|n| (n % 7 > 0).then_some(n)).collect::<Int64Array>());
            let keys: Vec<_> = (0..rows).map(|_| (next(6) > 0).then(|| vec![next(5) as u8; 20])).collect();
            let keys: ArrayRef = Arc::new(BinaryArray::from_iter(keys));
            let groups: Vec<usize> = (0..rows).map(|_| next(GROUPS as u64 - 1) as usize).collect();
            let filter: BooleanArray =
                (0..rows).map(|_| [Some(true), Some(true), Some(false), None][next(4) as usize]).collect();
            let function = by_key(choice);
            let mut ones: Vec<Box<dyn Accumulator>> =
                (0..GROUPS).map(|_| with_args(|args| function.accumulator(args)).unwrap()).collect();
            for row in 0..rows {
                if filter.is_valid(row) && filter.value(row) {
                    ones[groups[row]].update_batch(&[values.slice(row, 1), keys.slice(row, 1)]).unwrap();
                }
            }
            let expected: Vec<_> = ones.iter_mut().map(|one| one.evaluate().unwrap()).collect();
            let scalars = |array: &ArrayRef| -> Vec<_> {
                (0..array.len()).map(|row| ScalarValue::try_from_array(array, row).unwrap()).collect()
            };
            let make = || with_args(|args| function.create_groups_accumulator(args)).unwrap();
            let (mut direct, mut of_states, half) = (make(), make(), rows / 2);
            for (from, length) in [(0, half), (half, rows - half)] {
                let (groups, filter) = (&groups[from..from + length], filter.slice(from, length));
                let values = [values.slice(from, length), keys.slice(from, length)];
                direct.update_batch(&values, groups, Some(&filter), GROUPS).unwrap();
                let states = direct.convert_to_state(&values, Some(&filter)).unwrap();
                of_states.merge_batch(&states, groups, GROUPS).unwrap();
            }
            let states = of_states.state(EmitTo::All).unwrap();
            of_states.merge_batch(&states, &[0, 1, 2, 3], GROUPS).unwrap();
            assert_eq!(scalars(&of_states.evaluate(EmitTo::All).unwrap()), expected, "{choice:?}");
            assert!(rows < 9 || direct.size() > 20, "{} bytes", direct.size());
            let first = direct.evaluate(EmitTo::First(1)).unwrap();
            let rest = direct.evaluate(EmitTo::All).unwrap();
            assert_eq!([scalars(&first), scalars(&rest)].concat(), expected, "{choice:?}");
            assert_eq!(direct.size(), make().size());
            assert_eq!(direct.evaluate(EmitTo::All).unwrap().data_type(), &DataType::Int64);
        }
    }
}
