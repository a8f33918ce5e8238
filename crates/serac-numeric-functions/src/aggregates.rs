//! Aggregates: sums, averages and variances of free numbers, and the least and the greatest value
//! by a key.

use crate::values::Column;
use crate::{external, group_choices, group_sums};
use datafusion::arrow::array::{Array, ArrayRef, make_comparator};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};
use serac_numeric::Numeric;
use serac_numeric::sums::Sums;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

/// An aggregate of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    Sum,
    Average,
    Variance { is_sample: bool, is_root: bool },
}

impl Of {
    /// Whether it needs the squares of the values.
    pub(crate) fn has_squares(self) -> bool {
        matches!(self, Self::Variance { .. })
    }

    /// The result; `None` for NULL.
    pub(crate) fn result(self, sums: &Sums) -> serac_numeric::Result<Option<Numeric>> {
        match self {
            Self::Sum => sums.sum(),
            Self::Average => sums.average(),
            Self::Variance { is_sample, is_root } => sums.variance(is_sample, is_root),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Aggregate {
    of: Of,
    name: &'static str,
    signature: Signature,
}

/// The aggregate of numbers with PostgreSQL's name for it; `None` for another name.
pub fn of_numbers(name: &str) -> Option<Arc<AggregateUDF>> {
    let variance = |is_sample, is_root| Of::Variance { is_sample, is_root };
    let (name, of) = match name {
        "sum" => ("numeric_sum", Of::Sum),
        "avg" => ("numeric_avg", Of::Average),
        "var_samp" | "variance" => ("numeric_var_samp", variance(true, false)),
        "var_pop" => ("numeric_var_pop", variance(false, false)),
        "stddev_samp" | "stddev" => ("numeric_stddev_samp", variance(true, true)),
        "stddev_pop" => ("numeric_stddev_pop", variance(false, true)),
        _ => return None,
    };
    let signature = Signature::any(1, Volatility::Immutable);
    Some(Arc::new(AggregateUDF::from(Aggregate { of, name, signature })))
}

#[derive(Debug)]
struct Accumulated {
    of: Of,
    sums: Sums,
}

impl Accumulated {
    fn each(&mut self, values: &[ArrayRef], change: fn(&mut Sums, &Numeric)) -> Result<()> {
        let column = Column::new(values[0].as_ref())?;
        for row in 0..values[0].len() {
            if let Some(number) = column.number(row)? {
                change(&mut self.sums, &number);
            }
        }
        Ok(())
    }
}

impl Accumulator for Accumulated {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(values, Sums::add)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(values, Sums::remove)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.of.result(&self.sums);
        Ok(ScalarValue::LargeBinary(value.map_err(external)?.map(|number| number.to_stored())))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sums.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::LargeBinary(Some(self.sums.to_bytes()))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for bytes in crate::as_type::<datafusion::arrow::array::LargeBinaryArray>(states[0].as_ref())? {
            let sums = bytes.and_then(Sums::of_bytes);
            let sums = sums.ok_or_else(|| DataFusionError::Internal("a state of sums that is none".into()))?;
            self.sums.merge(&sums);
        }
        Ok(())
    }
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(crate::FREE)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return Err(DataFusionError::NotImplemented(format!("{}(DISTINCT …)", self.name)));
        }
        Ok(Box::new(Accumulated { of: self.of, sums: Sums::new(self.of.has_squares()) }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(group_sums::groups(self.of))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[sums]", args.name), DataType::LargeBinary, true))])
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// The rule by which a value of a group is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The first value with the least key.
    First,
    /// The last value with the least key.
    Least,
    /// The last value with the greatest key.
    Greatest,
}

impl Choice {
    /// Whether a key replaces one that came before, given their order.
    pub(crate) fn takes(self, order: Option<Ordering>) -> bool {
        match self {
            Self::First => order == Some(Ordering::Less),
            Self::Least => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Self::Greatest => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

/// A value by its key, which is the second argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ByKey {
    choice: Choice,
    signature: Signature,
}

/// The aggregate that chooses a value by its key. Values whose key is NULL do not count.
pub fn by_key(choice: Choice) -> Arc<AggregateUDF> {
    static ALL: LazyLock<[Arc<AggregateUDF>; 3]> = LazyLock::new(|| {
        [Choice::First, Choice::Least, Choice::Greatest].map(|choice| {
            let signature = Signature::any(2, Volatility::Immutable);
            Arc::new(AggregateUDF::from(ByKey { choice, signature }))
        })
    });
    ALL[choice as usize].clone()
}

#[derive(Debug)]
struct Best {
    choice: Choice,
    value: ScalarValue,
    key: ScalarValue,
}

impl Accumulator for Best {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [all, keys] = values else { return Err(DataFusionError::Internal("a value and a key".into())) };
        let compare = make_comparator(keys.as_ref(), keys.as_ref(), SortOptions::default())?;
        let mut best: Option<usize> = None;
        for row in (0..keys.len()).filter(|row| keys.is_valid(*row)) {
            if best.is_none_or(|best| self.choice.takes(Some(compare(row, best)))) {
                best = Some(row);
            }
        }
        let Some(best) = best else { return Ok(()) };
        let key = ScalarValue::try_from_array(keys, best)?;
        if self.key.is_null() || self.choice.takes(key.partial_cmp(&self.key)) {
            (self.key, self.value) = (key, ScalarValue::try_from_array(all, best)?);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size() + self.key.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), self.key.clone()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

/// The same over a frame whose start moves. It keeps the rows that no later one has beaten, the
/// best first.
#[derive(Debug)]
struct Sliding {
    choice: Choice,
    null: ScalarValue,
    rows: VecDeque<(u64, ScalarValue, ScalarValue)>,
    /// Counts of the rows that have entered the frame, and that have left it.
    come: u64,
    left: u64,
}

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [all, keys] = values else { return Err(DataFusionError::Internal("a value and a key".into())) };
        for row in 0..keys.len() {
            self.come += 1;
            if keys.is_null(row) {
                continue;
            }
            let key = ScalarValue::try_from_array(keys, row)?;
            while self.rows.back().is_some_and(|(_, _, last)| self.choice.takes(key.partial_cmp(last))) {
                self.rows.pop_back();
            }
            self.rows.push_back((self.come, ScalarValue::try_from_array(all, row)?, key));
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.left += values[0].len() as u64;
        while self.rows.front().is_some_and(|(number, ..)| *number <= self.left) {
            self.rows.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.rows.front().map_or_else(|| self.null.clone(), |(_, value, _)| value.clone()))
    }

    fn size(&self) -> usize {
        let of_row = |(_, value, key): &(u64, ScalarValue, ScalarValue)| value.size() + key.size();
        size_of_val(self) + self.rows.iter().map(of_row).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(DataFusionError::Internal("the state of a moving frame".into()))
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(DataFusionError::Internal("the state of a moving frame".into()))
    }
}

impl AggregateUDFImpl for ByKey {
    fn name(&self) -> &str {
        match self.choice {
            Choice::First => "first_by_key",
            Choice::Least => "least_by_key",
            Choice::Greatest => "greatest_by_key",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given[0].clone())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let null = |at: usize| ScalarValue::try_from(args.expr_fields[at].data_type());
        Ok(Box::new(Best { choice: self.choice, value: null(0)?, key: null(1)? }))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        group_choices::groups(self.choice, args.expr_fields[0].data_type(), args.expr_fields[1].data_type())
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let null = ScalarValue::try_from(args.expr_fields[0].data_type())?;
        Ok(Box::new(Sliding { choice: self.choice, null, rows: VecDeque::new(), come: 0, left: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let field = |at: usize, what: &str| {
            let of = args.input_fields[at].data_type().clone();
            Arc::new(Field::new(format!("{}[{what}]", args.name), of, true))
        };
        Ok(vec![field(0, "value"), field(1, "key")])
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }
}
