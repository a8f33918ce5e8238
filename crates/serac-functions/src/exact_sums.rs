//! Sums of integers and decimals, exact while they are added; the final step makes a sum or an
//! average ([`Finish`]). [`super::sum`] and [`super::average`] define the types.
//!
//! A sum is kept in the bits of its type (64 for a BIGINT, 128 for a decimal), beside a count of
//! overflows. The range of the result is checked once, at the end, so that it does not depend on
//! the order of rows, partitions and windows.

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Int64Array, PrimitiveArray, UInt64Array,
};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type, i256};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use serac_storage::ColumnType;
use serac_values::SqlError;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

/// A type whose values are added here.
pub(super) trait Summed: ArrowPrimitiveType<Native: Hash + Eq + Default + Into<i128>> + Debug {
    /// The sum in the bits of the type, and whether it overflows.
    fn add(a: Self::Native, b: Self::Native) -> (Self::Native, bool);
    /// The difference in the bits of the type, and whether it overflows.
    fn subtract(a: Self::Native, b: Self::Native) -> (Self::Native, bool);
    /// A number that is one of the type.
    fn native(number: i128) -> Self::Native;
    /// As a number of at most 256 bits.
    fn whole(total: Total<Self>) -> i256 {
        let bits = 8 * size_of::<Self::Native>() as u8;
        i256::from_i128(total.low.into()).wrapping_add(i256::from_i128(total.carry.into()) << bits)
    }
}

impl Summed for Int64Type {
    fn add(a: i64, b: i64) -> (i64, bool) {
        a.overflowing_add(b)
    }

    fn subtract(a: i64, b: i64) -> (i64, bool) {
        a.overflowing_sub(b)
    }

    fn native(number: i128) -> i64 {
        number as i64
    }
}
impl Summed for Decimal128Type {
    fn add(a: i128, b: i128) -> (i128, bool) {
        a.overflowing_add(b)
    }

    fn subtract(a: i128, b: i128) -> (i128, bool) {
        a.overflowing_sub(b)
    }

    fn native(number: i128) -> i128 {
        number
    }
}

/// A sum: the bits of the type, and the number of carries beyond these.
pub(super) struct Total<T: Summed + ?Sized> {
    low: T::Native,
    carry: i64,
}

impl<T: Summed> Clone for Total<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Summed> Copy for Total<T> {}
impl<T: Summed> Default for Total<T> {
    fn default() -> Self {
        Self { low: T::Native::default(), carry: 0 }
    }
}
impl<T: Summed> Debug for Total<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} + {} overflows", self.low, self.carry)
    }
}

impl<T: Summed> Total<T> {
    fn add(&mut self, value: T::Native) {
        let (low, overflows) = T::add(self.low, value);
        self.low = low;
        if overflows {
            self.carry += if value < T::Native::default() { -1 } else { 1 };
        }
    }

    fn subtract(&mut self, value: T::Native) {
        let (low, overflows) = T::subtract(self.low, value);
        self.low = low;
        if overflows {
            self.carry += if value < T::Native::default() { 1 } else { -1 };
        }
    }
}

/// The final step of a sum.
#[derive(Clone, Debug)]
pub(super) enum Finish {
    /// It is the result, of this type.
    Sum(DataType),
    /// Divides by the number of values. The result has this decimal type, whose scale exceeds that
    /// of the values by this many digits.
    Average(DataType, u8),
}

impl Finish {
    fn averages(&self) -> bool {
        matches!(self, Self::Average(..))
    }

    fn data_type(&self) -> &DataType {
        let (Self::Sum(data_type) | Self::Average(data_type, _)) = self;
        data_type
    }

    /// The result of a sum of `count` values, at least one.
    fn result<T: Summed>(&self, total: Total<T>, count: u64) -> Result<i128> {
        let result = match self {
            Self::Sum(_) if total.carry == 0 => Some(total.low.into()),
            Self::Sum(_) => None,
            Self::Average(_, digits) => {
                // 2⁶⁴ rows of 128 bits, and the digits of a decimal, are far from 256 bits.
                let ten = i256::from_i128(10i128.pow((*digits).into()));
                rounded_quotient(T::whole(total).wrapping_mul(ten), i256::from_i128(count.into())).to_i128()
            }
        };
        checked_sum(result, self.data_type())
    }
}

/// A sum that is a value of its type, BIGINT or a decimal; `None` for one of more than 128 bits.
///
/// # Errors
/// 22003.
#[inline]
pub fn checked_sum(sum: Option<i128>, data_type: &DataType) -> Result<i128> {
    let most = match data_type {
        DataType::Decimal128(precision, _) => 10i128.pow((*precision).into()) - 1,
        _ => i64::MAX.into(),
    };
    // A BIGINT that has not overflowed may also be one less than that.
    let least = if matches!(data_type, DataType::Int64) { i64::MIN.into() } else { -most };
    sum.filter(|sum| (least..=most).contains(sum)).ok_or_else(|| out_of_range(data_type))
}

#[cold]
fn out_of_range(data_type: &DataType) -> DataFusionError {
    let column_type = match data_type {
        DataType::Decimal128(precision, scale) => ColumnType::Decimal { precision: *precision, scale: *scale },
        _ => ColumnType::Int64,
    };
    SqlError::out_of_range(column_type).external()
}

/// The quotient nearest to the exact one; a tie rounds away from 0, as in PostgreSQL.
fn rounded_quotient(dividend: i256, divisor: i256) -> i256 {
    let two = i256::from_i128(2);
    let half = if dividend < i256::ZERO { divisor.wrapping_neg() } else { divisor };
    (dividend.wrapping_mul(two).wrapping_add(half)).wrapping_div(divisor.wrapping_mul(two))
}

/// The columns of a state: for an average the number of values first, then the bits of the sum and
/// its carries.
pub(super) fn state_fields(name: &str, sum: DataType, averages: bool) -> Vec<FieldRef> {
    let field = |part, data_type| Arc::new(Field::new(format!("{name}[{part}]"), data_type, true));
    let count = averages.then(|| field("count", DataType::UInt64));
    count.into_iter().chain([field("sum", sum), field("carry", DataType::Int64)]).collect()
}

fn scalar<T: Summed>(value: Option<T::Native>, data_type: &DataType) -> Result<ScalarValue> {
    ScalarValue::new_primitive::<T>(value, data_type)
}

/// The sum of all rows, or of those of a window's frame.
#[derive(Debug)]
pub(super) struct OfRows<T: Summed> {
    total: Total<T>,
    /// Values that are not NULL.
    count: u64,
    /// The type of the sums in states.
    data_type: DataType,
    finish: Finish,
}

impl<T: Summed> OfRows<T> {
    /// The sum of values of a type.
    pub(super) fn new(data_type: DataType, finish: Finish) -> Self {
        Self { total: Total::default(), count: 0, data_type, finish }
    }
}

fn count_of(array: &ArrayRef) -> u64 {
    (array.len() - array.null_count()) as u64
}

impl<T: Summed> Accumulator for OfRows<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values[0].as_primitive::<T>().iter().flatten().for_each(|value| self.total.add(value));
        self.count += count_of(&values[0]);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values[0].as_primitive::<T>().iter().flatten().for_each(|value| self.total.subtract(value));
        self.count -= count_of(&values[0]);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let at = usize::from(self.finish.averages());
        states[at].as_primitive::<T>().iter().flatten().for_each(|low| self.total.add(low));
        self.total.carry += states[at + 1].as_primitive::<Int64Type>().iter().flatten().sum::<i64>();
        self.count += match self.finish.averages() {
            true => states[0].as_primitive::<UInt64Type>().iter().flatten().sum(),
            false => count_of(&states[0]),
        };
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let is_there = self.count > 0;
        let low = scalar::<T>(is_there.then_some(self.total.low), &self.data_type)?;
        let carry = ScalarValue::Int64(is_there.then_some(self.total.carry));
        let count = self.finish.averages().then_some(ScalarValue::UInt64(Some(self.count)));
        Ok(count.into_iter().chain([low, carry]).collect())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let result = (self.count > 0).then(|| self.finish.result(self.total, self.count)).transpose()?;
        scalar::<T>(result.map(T::native), self.finish.data_type())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sum of the different values.
#[derive(Debug)]
pub(super) struct OfDistinct<T: Summed> {
    /// The number of times that each value is there: a window's frame leaves rows behind.
    values: HashMap<T::Native, u64>,
    /// The type of the values.
    data_type: DataType,
    finish: Finish,
}

impl<T: Summed> OfDistinct<T> {
    /// The sum of values of a type.
    pub(super) fn new(data_type: DataType, finish: Finish) -> Self {
        Self { values: HashMap::new(), data_type, finish }
    }

    /// The column of its state: a list of the values.
    pub(super) fn state_field(name: &str, data_type: DataType) -> FieldRef {
        Arc::new(Field::new_list(format!("{name}[values]"), Field::new_list_field(data_type, true), true))
    }
}

impl<T: Summed> Accumulator for OfDistinct<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<T>().iter().flatten() {
            *self.values.entry(value).or_default() += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<T>().iter().flatten() {
            let count = self.values.get_mut(&value).expect("a value that leaves the frame had entered it");
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
        let values: PrimitiveArray<T> = PrimitiveArray::from_iter_values(self.values.keys().copied());
        let values = values.with_data_type(self.data_type.clone());
        Ok(vec![SingleRowListArrayBuilder::new(Arc::new(values)).build_list_scalar()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut total = Total::<T>::default();
        self.values.keys().for_each(|value| total.add(*value));
        let count = self.values.len() as u64;
        let result = (count > 0).then(|| self.finish.result(total, count)).transpose()?;
        scalar::<T>(result.map(T::native), self.finish.data_type())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<(T::Native, u64)>()
    }
}

fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

/// The sums of groups.
#[derive(Debug)]
pub(super) struct OfGroups<T: Summed> {
    sums: Vec<T::Native>,
    /// Whether the group has a value that is not NULL.
    met: Vec<bool>,
    /// Empty as long as no sum has overflowed.
    carries: Vec<i64>,
    /// Values that are not NULL, for averages; otherwise empty.
    counts: Vec<u64>,
    /// The type of the sums in states.
    data_type: DataType,
    finish: Finish,
}

/// The groups that leave an accumulator, column by column as there.
struct Taken<T: Summed> {
    sums: Vec<T::Native>,
    met: Vec<bool>,
    carries: Vec<i64>,
    counts: Vec<u64>,
}

impl<T: Summed> OfGroups<T> {
    /// The sum of values of a type.
    pub(super) fn new(data_type: DataType, finish: Finish) -> Self {
        let (sums, met, carries, counts) = Default::default();
        Self { sums, met, carries, counts, data_type, finish }
    }

    fn grow(&mut self, groups: usize) {
        self.sums.resize(groups, T::Native::default());
        self.met.resize(groups, false);
        if self.finish.averages() {
            self.counts.resize(groups, 0);
        }
        if !self.carries.is_empty() {
            self.carries.resize(groups, 0);
        }
    }

    #[inline]
    fn add(&mut self, group: usize, value: T::Native) {
        let (sum, overflows) = T::add(self.sums[group], value);
        self.sums[group] = sum;
        self.met[group] = true;
        if overflows {
            self.carry(group, if value < T::Native::default() { -1 } else { 1 });
        }
    }

    #[cold]
    fn carry(&mut self, group: usize, carry: i64) {
        self.carries.resize(self.sums.len(), 0);
        self.carries[group] += carry;
    }

    fn count(&mut self, group: usize, count: u64) {
        if let Some(counted) = self.counts.get_mut(group) {
            *counted += count;
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> Taken<T> {
        fn of<V>(emit_to: &EmitTo, values: &mut Vec<V>) -> Vec<V> {
            if values.is_empty() { Vec::new() } else { emit_to.take_needed(values) }
        }
        Taken {
            sums: of(&emit_to, &mut self.sums),
            met: of(&emit_to, &mut self.met),
            carries: of(&emit_to, &mut self.carries),
            counts: of(&emit_to, &mut self.counts),
        }
    }

    fn array(&self, values: Vec<T::Native>, met: Vec<bool>, data_type: &DataType) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::new(values.into(), Some(met.into())).with_data_type(data_type.clone()))
    }
}

impl<T: Summed> GroupsAccumulator for OfGroups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let values = values[0].as_primitive::<T>();
        if values.null_count() == 0 && opt_filter.is_none() {
            group_indices.iter().zip(values.values()).for_each(|(&group, &value)| self.add(group, value));
            if self.finish.averages() {
                group_indices.iter().for_each(|&group| self.counts[group] += 1);
            }
            return Ok(());
        }
        for (row, (&group, value)) in group_indices.iter().zip(values).enumerate() {
            if let Some(value) = value.filter(|_| passes(opt_filter, row)) {
                self.add(group, value);
                self.count(group, 1);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.grow(total_num_groups);
        let at = usize::from(self.finish.averages());
        for (&group, low) in group_indices.iter().zip(states[at].as_primitive::<T>()) {
            if let Some(low) = low {
                self.add(group, low);
            }
        }
        for (&group, carry) in group_indices.iter().zip(states[at + 1].as_primitive::<Int64Type>()) {
            if let Some(carry) = carry.filter(|&carry| carry != 0) {
                self.carry(group, carry);
            }
        }
        if self.finish.averages() {
            for (&group, count) in group_indices.iter().zip(states[0].as_primitive::<UInt64Type>()) {
                self.count(group, count.unwrap_or(0));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let Taken { sums, met, carries, counts } = self.take(emit_to);
        let mut results = sums;
        for (group, result) in results.iter_mut().enumerate().filter(|(group, _)| met[*group]) {
            let carry = carries.get(group).copied().unwrap_or(0);
            let count = counts.get(group).copied().unwrap_or(1);
            *result = T::native(self.finish.result(Total::<T> { low: *result, carry }, count)?);
        }
        Ok(self.array(results, met, self.finish.data_type()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let Taken { sums, met, mut carries, counts } = self.take(emit_to);
        carries.resize(sums.len(), 0);
        let count: Option<ArrayRef> = self.finish.averages().then(|| Arc::new(UInt64Array::from(counts)) as ArrayRef);
        let carries: ArrayRef = Arc::new(Int64Array::from(carries));
        let sums = self.array(sums, met, &self.data_type);
        Ok(count.into_iter().chain([sums, carries]).collect())
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<T>();
        let counts = |row| values.is_valid(row) && passes(opt_filter, row);
        let valid = BooleanBuffer::collect_bool(values.len(), counts);
        let count: Option<ArrayRef> = self
            .finish
            .averages()
            .then(|| Arc::new(UInt64Array::from_iter_values(valid.iter().map(u64::from))) as ArrayRef);
        let sums = PrimitiveArray::<T>::new(values.values().clone(), Some(valid.into()));
        let sums: ArrayRef = Arc::new(sums.with_data_type(self.data_type.clone()));
        let carries: ArrayRef = Arc::new(Int64Array::from(vec![0; values.len()]));
        Ok(count.into_iter().chain([sums, carries]).collect())
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<T::Native>()
            + (self.carries.capacity() + self.counts.capacity()) * size_of::<i64>()
            + self.met.capacity()
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

    fn of_rows() -> OfRows<Int64Type> {
        OfRows::new(DataType::Int64, Finish::Sum(DataType::Int64))
    }

    fn of_groups() -> OfGroups<Int64Type> {
        OfGroups::new(DataType::Int64, Finish::Sum(DataType::Int64))
    }

    fn result(sum: Option<i128>) -> Option<Option<i64>> {
        sum.map(|sum| i64::try_from(sum).ok())
    }

    proptest! {
        /// In merged parts, in any order, sums equal those of wider numbers.
        #[test]
        fn sums_are_exact(parts in prop::collection::vec(prop::collection::vec((0usize..4, any_number(), any::<bool>()), 0..12), 1..4), first in 0usize..5) {
            let mut expected = [None::<i128>; 4];
            let mut all = of_groups();
            let mut alone = of_rows();
            for part in &parts {
                let groups: Vec<usize> = part.iter().map(|row| row.0).collect();
                let values: Vec<Option<i64>> = part.iter().map(|row| row.1).collect();
                let filter = BooleanArray::from(part.iter().map(|row| row.2).collect::<Vec<_>>());
                let mut own = of_groups();
                own.update_batch(&[array(&values)], &groups, Some(&filter), 4).unwrap();
                for (group, value, _) in part.iter().filter(|row| row.2) {
                    if let Some(value) = value {
                        *expected[*group].get_or_insert(0) += i128::from(*value);
                    }
                }
                // A part of the groups leaves before the others.
                let early = own.state(EmitTo::First(first.min(4))).unwrap();
                let late = own.state(EmitTo::All).unwrap();
                all.merge_batch(&early, &(0..first.min(4)).collect::<Vec<_>>(), 4).unwrap();
                all.merge_batch(&late, &(first.min(4)..4).collect::<Vec<_>>(), 4).unwrap();
                // Rows as states of their own come to the same as the rows.
                let rows = own.convert_to_state(&[array(&values)], Some(&filter)).unwrap();
                let mut converted = of_rows();
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

        /// Values that leave a window's frame leave its sum, and the sum is NULL once no value is
        /// left.
        #[test]
        fn frames_slide(values in prop::collection::vec(prop_oneof![Just(None), (-3i64..3).prop_map(Some)], 1..30), width in 1usize..6) {
            let mut sum = of_rows();
            let mut distinct = OfDistinct::<Int64Type>::new(DataType::Int64, Finish::Sum(DataType::Int64));
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

    const DECIMAL: DataType = DataType::Decimal128(38, 0);

    fn decimals(values: &[i128]) -> ArrayRef {
        Arc::new(PrimitiveArray::<Decimal128Type>::from_iter_values(values.iter().copied()).with_data_type(DECIMAL))
    }

    #[test]
    fn sums_of_decimals_are_right_or_an_error() {
        let huge = 1i128 << 126;
        let sum = |values: &[i128]| {
            let mut rows = OfRows::<Decimal128Type>::new(DECIMAL, Finish::Sum(DECIMAL));
            rows.update_batch(&[decimals(values)]).unwrap();
            rows.evaluate()
        };
        assert!(sum(&[huge; 4]).is_err());
        assert!(sum(&[huge; 2]).is_err(), "more than 38 digits");
        let back = [huge, huge, huge, huge, -huge, -huge, -huge];
        assert_eq!(sum(&back).unwrap(), ScalarValue::Decimal128(Some(huge), 38, 0));
        let mut groups = OfGroups::<Decimal128Type>::new(DECIMAL, Finish::Sum(DECIMAL));
        groups.update_batch(&[decimals(&back)], &[0; 7], None, 1).unwrap();
        let state = groups.state(EmitTo::All).unwrap();
        groups.merge_batch(&state, &[0], 1).unwrap();
        groups.update_batch(&[decimals(&[-huge])], &[0], None, 1).unwrap();
        assert_eq!(&groups.evaluate(EmitTo::All).unwrap(), &decimals(&[0]));
    }

    #[test]
    fn averages_round_away_from_zero() {
        let average = |values: &[i128]| {
            let result = DataType::Decimal128(38, 1);
            let mut rows = OfRows::<Decimal128Type>::new(DECIMAL, Finish::Average(result, 1));
            rows.update_batch(&[decimals(values)]).unwrap();
            let state: Vec<ArrayRef> = rows.state().unwrap().iter().map(|part| part.to_array().unwrap()).collect();
            let mut merged = OfRows::<Decimal128Type>::new(DECIMAL, Finish::Average(DataType::Decimal128(38, 1), 1));
            merged.merge_batch(&state).unwrap();
            match merged.evaluate() {
                Ok(ScalarValue::Decimal128(average, ..)) => Ok(average),
                other => Err(other),
            }
        };
        assert_eq!(average(&[1, 2, 2]).unwrap(), Some(17));
        assert_eq!(average(&[0, 0, 0, 1]).unwrap(), Some(3));
        assert_eq!(average(&[0, 0, 0, -1]).unwrap(), Some(-3));
        assert_eq!(average(&[]).unwrap(), None);
        assert!(average(&[1 << 126; 4]).is_err());
        assert_eq!(average(&[10i128.pow(36); 400]).unwrap(), Some(10i128.pow(37)));
    }
}
