//! Vectors of numbers.
//!
//! Columns that the language makes hold integers, and so do all vectors made of them: 64 bits,
//! without NULLs. Columns that SQL has made may hold NULLs, decimals and floats. A vector of such a
//! column has the same kind of numbers.

use crate::error::{OperatorError, Result};
use crate::statement::{Aggregate, Bounds, Combination};
use crate::variable::Variable;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, Decimal128Array, Float64Array, Int64Array, UInt64Array};
use arrow_buffer::{BooleanBuffer, NullBuffer, NullBufferBuilder, ScalarBuffer};
use arrow_schema::DataType;
use serac_operators::range_words::range_bits;
use serac_operators::select::select_bits;
use serac_storage::{ColumnType, Value};

/// A vector of numbers. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Values {
    /// 64-bit integers.
    Integers(Int64Array),
    /// Decimals of one scale.
    Decimals(Decimal128Array),
    /// Floats.
    Floats(Float64Array),
}

/// The kind of the numbers of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumberKind {
    Integers,
    Decimals { scale: i8 },
    Floats,
}

impl NumberKind {
    /// The kind for a column type; `None` for a type that is no number.
    pub(crate) fn of(column_type: ColumnType) -> Option<Self> {
        match column_type {
            ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => Some(Self::Integers),
            ColumnType::Decimal { scale, .. } => Some(Self::Decimals { scale }),
            ColumnType::Float32 | ColumnType::Float64 => Some(Self::Floats),
            _ => None,
        }
    }

    /// Bytes of a number in a vector.
    pub(crate) fn width(self) -> u64 {
        if let Self::Decimals { .. } = self { 16 } else { 8 }
    }
}

const MOST_DIGITS: u8 = 38;

fn decimals(values: ScalarBuffer<i128>, nulls: Option<NullBuffer>, scale: i8) -> Decimal128Array {
    Decimal128Array::new(values, nulls).with_data_type(DataType::Decimal128(MOST_DIGITS, scale))
}

impl From<Vec<i64>> for Values {
    fn from(values: Vec<i64>) -> Self {
        Self::Integers(Int64Array::new(values.into(), None))
    }
}

impl Values {
    /// The number of numbers.
    pub fn len(&self) -> usize {
        self.array().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers as an array, whatever their kind.
    pub fn array(&self) -> &dyn Array {
        match self {
            Self::Integers(array) => array,
            Self::Decimals(array) => array,
            Self::Floats(array) => array,
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.len() * self.kind().width() as usize + self.array().nulls().map_or(0, |nulls| nulls.len().div_ceil(8))
    }

    /// The integers; `None` for another kind of numbers.
    pub fn integers(&self) -> Option<&Int64Array> {
        if let Self::Integers(array) = self { Some(array) } else { None }
    }

    fn scale(&self) -> i8 {
        match self {
            Self::Decimals(array) => array.scale(),
            _ => 0,
        }
    }

    /// The numbers at these places, in this order.
    pub(crate) fn take(&self, places: &UInt64Array) -> Result<Self> {
        let taken = arrow_select::take::take(self.array(), places, None).map_err(serac_storage::StorageError::from)?;
        Ok(match self {
            Self::Integers(_) => Self::Integers(taken.as_primitive::<Int64Type>().clone()),
            Self::Decimals(_) => Self::Decimals(taken.as_primitive::<Decimal128Type>().clone()),
            Self::Floats(_) => Self::Floats(taken.as_primitive::<Float64Type>().clone()),
        })
    }

    /// The number at a place as a variable.
    fn at(&self, place: usize) -> Variable {
        match self {
            Self::Integers(array) => Variable::Scalar(array.value(place)),
            Self::Decimals(array) => Variable::Values(Self::Decimals(array.slice(place, 1))),
            Self::Floats(array) => Variable::Values(Self::Floats(array.slice(place, 1))),
        }
    }

    /// A bit for each number: whether it lies within the bounds. NULL never does.
    pub fn qualifying(&self, bounds: Bounds) -> BooleanBuffer {
        match self {
            Self::Integers(array) => {
                let (min, max) = integer_range(bounds);
                if min > max {
                    return BooleanBuffer::new_unset(array.len());
                }
                range_bits(array.values(), array.nulls(), min, max)
            }
            Self::Decimals(array) => {
                let (min, max) = decimal_range(bounds, array.scale());
                select_bits(array.values(), array.nulls(), |v| (v >= min) & (v < max))
            }
            Self::Floats(array) => floats_within(array.values(), array.nulls(), bounds),
        }
    }

    /// `left` and `right` added, or subtracted, place by place.
    ///
    /// # Errors
    /// [`OperatorError::LengthsDiffer`], [`OperatorError::Overflow`].
    pub fn combined(&self, operation: Combination, right: &Self) -> Result<Self> {
        if self.len() != right.len() {
            return Err(OperatorError::LengthsDiffer(self.len() as u64, right.len() as u64));
        }
        let nulls = NullBuffer::union(self.array().nulls(), right.array().nulls());
        let name = if operation == Combination::Add { "add" } else { "sub" };
        if let (Self::Integers(left), Self::Integers(right)) = (self, right) {
            let (left, right) = (left.values(), right.values());
            let (values, overflows) = match operation {
                Combination::Add => combine(left, right, nulls.as_ref(), i64::overflowing_add),
                Combination::Sub => combine(left, right, nulls.as_ref(), i64::overflowing_sub),
            };
            if overflows {
                return Err(OperatorError::Overflow(name));
            }
            return Ok(Self::Integers(Int64Array::new(values.into(), nulls)));
        }
        if matches!(self, Self::Floats(_)) || matches!(right, Self::Floats(_)) {
            let (left, right) = (self.as_floats(), right.as_floats());
            let sign = if operation == Combination::Add { 1.0 } else { -1.0 };
            let values: Vec<f64> = left.iter().zip(&right).map(|(l, r)| l + sign * r).collect();
            return Ok(Self::Floats(Float64Array::new(values.into(), nulls)));
        }
        let scale = self.scale().max(right.scale());
        let overflow = || OperatorError::Overflow(name);
        let (left, right) = (self.scaled(scale).ok_or_else(overflow)?, right.scaled(scale).ok_or_else(overflow)?);
        let sum = |(l, r): (&i128, &i128)| match operation {
            Combination::Add => l.checked_add(*r),
            Combination::Sub => l.checked_sub(*r),
        };
        let values: Option<Vec<i128>> = left.iter().zip(&right).map(sum).collect();
        let values = values.filter(|values| values.iter().all(|v| v.unsigned_abs() < 10_u128.pow(38)));
        Ok(Self::Decimals(decimals(values.ok_or_else(overflow)?.into(), nulls, scale)))
    }

    /// The numbers as floats; the places of NULLs have any number.
    fn as_floats(&self) -> Vec<f64> {
        match self {
            Self::Integers(array) => array.values().iter().map(|v| *v as f64).collect(),
            Self::Decimals(array) => {
                let unit = 10_f64.powi(array.scale().into());
                array.values().iter().map(|v| *v as f64 / unit).collect()
            }
            Self::Floats(array) => array.values().to_vec(),
        }
    }

    /// Integers and decimals in a scale that is at least their own; `None` if one does not fit.
    /// NULLs become 0.
    fn scaled(&self, scale: i8) -> Option<Vec<i128>> {
        let factor = 10_i128.checked_pow((scale - self.scale()).try_into().ok()?)?;
        match self {
            Self::Integers(array) => {
                array.iter().map(|v| i128::from(v.unwrap_or_default()).checked_mul(factor)).collect()
            }
            Self::Decimals(array) => array.iter().map(|v| v.unwrap_or_default().checked_mul(factor)).collect(),
            Self::Floats(_) => None,
        }
    }

    /// The place of the smallest, or the largest, number: the first that has it. `None` if there
    /// are only NULLs.
    pub fn extreme(&self, largest: bool) -> Option<(usize, Variable)> {
        fn first<T: Copy>(values: &[T], nulls: Option<&NullBuffer>, better: impl Fn(T, T) -> bool) -> Option<usize> {
            let mut best: Option<(usize, T)> = None;
            for (place, &value) in values.iter().enumerate() {
                if nulls.is_none_or(|nulls| nulls.is_valid(place)) && best.is_none_or(|(_, best)| better(value, best)) {
                    best = Some((place, value));
                }
            }
            best.map(|(place, _)| place)
        }
        let nulls = self.array().nulls();
        let place = match (self, largest) {
            (Self::Integers(array), false) => first(array.values(), nulls, |v, best| v < best),
            (Self::Integers(array), true) => first(array.values(), nulls, |v, best| v > best),
            (Self::Decimals(array), false) => first(array.values(), nulls, |v, best| v < best),
            (Self::Decimals(array), true) => first(array.values(), nulls, |v, best| v > best),
            // By the total order: NaN is the largest.
            (Self::Floats(array), false) => first(array.values(), nulls, |v, best| v.total_cmp(&best).is_lt()),
            (Self::Floats(array), true) => first(array.values(), nulls, |v, best| v.total_cmp(&best).is_gt()),
        }?;
        Some((place, self.at(place)))
    }
}

/// The results of `f` for pairs of numbers, and whether one that is not NULL has overflowed.
fn combine(
    left: &[i64],
    right: &[i64],
    nulls: Option<&NullBuffer>,
    f: impl Fn(i64, i64) -> (i64, bool),
) -> (Vec<i64>, bool) {
    let mut any = false;
    let values = left.iter().zip(right).map(|(&l, &r)| {
        let (value, overflows) = f(l, r);
        any |= overflows;
        value
    });
    let values: Vec<i64> = values.collect();
    // The number in the place of a NULL may overflow.
    if let (true, Some(nulls)) = (any, nulls) {
        any = nulls.valid_indices().any(|place| f(left[place], right[place]).1);
    }
    (values, any)
}

/// The smallest and the largest integer within bounds. The smallest is larger if no integer lies
/// within.
pub(crate) fn integer_range(bounds: Bounds) -> (i64, i64) {
    match bounds.upper.map(|upper| upper.checked_sub(1)) {
        None => (bounds.lower.unwrap_or(i64::MIN), i64::MAX),
        Some(Some(max)) => (bounds.lower.unwrap_or(i64::MIN), max),
        Some(None) => (0, -1),
    }
}

/// The smallest unscaled decimal within bounds, and the smallest above them.
fn decimal_range(bounds: Bounds, scale: i8) -> (i128, i128) {
    let power = 10_i128.checked_pow(u32::from(scale.unsigned_abs()));
    let unscaled = |bound: i64| {
        let bound = i128::from(bound);
        let limit = if bound < 0 { i128::MIN } else { i128::MAX };
        if scale >= 0 {
            return power.and_then(|power| bound.checked_mul(power)).unwrap_or(if bound == 0 { 0 } else { limit });
        }
        // The smallest multiple that is not below the bound.
        let Some(power) = power else { return i128::from(bound > 0) };
        bound.div_euclid(power) + i128::from(bound.rem_euclid(power) > 0)
    };
    (bounds.lower.map_or(i128::MIN, unscaled), bounds.upper.map_or(i128::MAX, unscaled))
}

fn floats_within<T: Copy + Into<f64>>(values: &[T], nulls: Option<&NullBuffer>, bounds: Bounds) -> BooleanBuffer {
    match (bounds.lower.map(|v| v as f64), bounds.upper.map(|v| v as f64)) {
        (None, None) => select_bits(values, nulls, |_| true),
        (Some(min), None) => select_bits(values, nulls, |v| v.into() >= min),
        (None, Some(max)) => select_bits(values, nulls, |v| v.into() < max),
        (Some(min), Some(max)) => select_bits(values, nulls, |v| (v.into() >= min) & (v.into() < max)),
    }
}

/// A bit for each value of a column's array ([`serac_storage::ColumnForm::Arrow`]): whether it lies
/// within the bounds.
///
/// # Panics
/// When the array is not one of numbers.
pub(crate) fn qualifying(array: &ArrayRef, bounds: Bounds) -> BooleanBuffer {
    macro_rules! integers {
        ($arrow:ty, $native:ty) => {{
            let (min, max) = integer_range(bounds);
            let (least, most) = (i64::from(<$native>::MIN), i64::from(<$native>::MAX));
            if min > max || min > most || max < least {
                return BooleanBuffer::new_unset(array.len());
            }
            let (min, max) = (min.max(least) as $native, max.min(most) as $native);
            range_bits(array.as_primitive::<$arrow>().values(), array.nulls(), min, max)
        }};
    }
    match array.data_type() {
        DataType::Int16 => integers!(Int16Type, i16),
        DataType::Int32 => integers!(Int32Type, i32),
        DataType::Int64 => integers!(Int64Type, i64),
        DataType::Float32 => floats_within(array.as_primitive::<Float32Type>().values(), array.nulls(), bounds),
        DataType::Float64 => floats_within(array.as_primitive::<Float64Type>().values(), array.nulls(), bounds),
        _ => Values::Decimals(array.as_primitive::<Decimal128Type>().clone()).qualifying(bounds),
    }
}

/// A vector under construction.
#[derive(Debug)]
pub(crate) struct ValuesBuilder {
    numbers: Numbers,
    nulls: NullBufferBuilder,
}

#[derive(Debug)]
enum Numbers {
    Integers(Vec<i64>),
    Decimals(Vec<i128>, i8),
    Floats(Vec<f64>),
}

impl ValuesBuilder {
    pub(crate) fn new(kind: NumberKind, capacity: usize) -> Self {
        let numbers = match kind {
            NumberKind::Integers => Numbers::Integers(Vec::with_capacity(capacity)),
            NumberKind::Decimals { scale } => Numbers::Decimals(Vec::with_capacity(capacity), scale),
            NumberKind::Floats => Numbers::Floats(Vec::with_capacity(capacity)),
        };
        Self { numbers, nulls: NullBufferBuilder::new(capacity) }
    }

    /// Adds the values of a column's array ([`serac_storage::ColumnForm::Arrow`]).
    pub(crate) fn append(&mut self, array: &ArrayRef) {
        match (&mut self.numbers, array.data_type()) {
            (Numbers::Integers(all), DataType::Int16) => {
                all.extend(array.as_primitive::<Int16Type>().values().iter().map(|v| i64::from(*v)));
            }
            (Numbers::Integers(all), DataType::Int32) => {
                all.extend(array.as_primitive::<Int32Type>().values().iter().map(|v| i64::from(*v)));
            }
            (Numbers::Integers(all), _) => all.extend_from_slice(array.as_primitive::<Int64Type>().values()),
            (Numbers::Decimals(all, _), _) => all.extend_from_slice(array.as_primitive::<Decimal128Type>().values()),
            (Numbers::Floats(all), DataType::Float32) => {
                all.extend(array.as_primitive::<Float32Type>().values().iter().map(|v| f64::from(*v)));
            }
            (Numbers::Floats(all), _) => all.extend_from_slice(array.as_primitive::<Float64Type>().values()),
        }
        match array.nulls() {
            Some(nulls) => self.nulls.append_buffer(nulls),
            None => self.nulls.append_n_non_nulls(array.len()),
        }
    }

    /// Adds a single value of a column.
    pub(crate) fn push(&mut self, value: Value<'_>) {
        let integer = match value {
            Value::Int128(wide) => wide,
            other => other.integer().unwrap_or_default().into(),
        };
        match &mut self.numbers {
            // An integer column has no wider values.
            Numbers::Integers(all) => all.push(integer as i64),
            Numbers::Decimals(all, _) => all.push(integer),
            Numbers::Floats(all) => all.push(match value {
                Value::Float32(v) => v.into(),
                Value::Float64(v) => v,
                _ => 0.0,
            }),
        }
        self.nulls.append(!value.is_null());
    }
    pub(crate) fn finish(mut self) -> Values {
        let nulls = self.nulls.finish().filter(|nulls| nulls.null_count() > 0);
        match self.numbers {
            Numbers::Integers(all) => Values::Integers(Int64Array::new(all.into(), nulls)),
            Numbers::Decimals(all, scale) => Values::Decimals(decimals(all.into(), nulls, scale)),
            Numbers::Floats(all) => Values::Floats(Float64Array::new(all.into(), nulls)),
        }
    }
}

/// Count, sum, smallest and largest of the numbers met so far.
#[derive(Clone, Debug)]
pub(crate) struct Aggregation {
    kind: NumberKind,
    count: u64,
    /// Of integers and decimals.
    sum: i128,
    overflows: bool,
    float_sum: f64,
    /// Of integers and decimals.
    range: Option<(i128, i128)>,
    float_range: Option<(f64, f64)>,
}

impl Aggregation {
    pub(crate) fn new(kind: NumberKind) -> Self {
        let (sum, float_sum) = (0, 0.0);
        Self { kind, count: 0, sum, overflows: false, float_sum, range: None, float_range: None }
    }

    /// Notes the values of a column's array ([`serac_storage::ColumnForm::Arrow`]), or of a vector.
    pub(crate) fn note(&mut self, array: &dyn Array) {
        self.count += (array.len() - array.null_count()) as u64;
        match array.data_type() {
            DataType::Int16 => {
                let array = array.as_primitive::<Int16Type>();
                self.note_integers(array.values(), array.nulls());
            }
            DataType::Int32 => {
                let array = array.as_primitive::<Int32Type>();
                self.note_integers(array.values(), array.nulls());
            }
            DataType::Int64 => {
                let array = array.as_primitive::<Int64Type>();
                self.note_integers(array.values(), array.nulls());
            }
            DataType::Decimal128(..) => array.as_primitive::<Decimal128Type>().iter().flatten().for_each(|value| {
                self.add(value);
                self.widen(value, value);
            }),
            DataType::Float32 => {
                array.as_primitive::<Float32Type>().iter().flatten().for_each(|value| self.note_float(value.into()));
            }
            _ => array.as_primitive::<Float64Type>().iter().flatten().for_each(|value| self.note_float(value)),
        }
    }

    fn note_integers<T: Copy + Ord + Into<i64>>(&mut self, values: &[T], nulls: Option<&NullBuffer>) {
        if let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) {
            for place in nulls.valid_indices() {
                let value = i128::from(values[place].into());
                self.add(value);
                self.widen(value, value);
            }
            return;
        }
        const RUN: usize = 1 << 16;
        for run in values.chunks(RUN) {
            let (Some(&min), Some(&max)) = (run.iter().min(), run.iter().max()) else { continue };
            let (min, max): (i64, i64) = (min.into(), max.into());
            // The sum of a run of numbers between these fits 64 bits.
            const MOST: i64 = i64::MAX / RUN as i64;
            let sum = if (-MOST..=MOST).contains(&min) && (-MOST..=MOST).contains(&max) {
                run.iter().map(|v| (*v).into()).sum::<i64>().into()
            } else {
                run.iter().map(|v| i128::from((*v).into())).sum()
            };
            self.add(sum);
            self.widen(min.into(), max.into());
        }
    }

    fn add(&mut self, value: i128) {
        let (sum, overflows) = self.sum.overflowing_add(value);
        self.sum = sum;
        self.overflows |= overflows;
    }

    fn widen(&mut self, min: i128, max: i128) {
        let (least, most) = self.range.unwrap_or((min, max));
        self.range = Some((least.min(min), most.max(max)));
    }

    fn note_float(&mut self, value: f64) {
        self.float_sum += value;
        let (min, max) = self.float_range.unwrap_or((value, value));
        let smaller = if value.total_cmp(&min).is_lt() { value } else { min };
        let larger = if value.total_cmp(&max).is_gt() { value } else { max };
        self.float_range = Some((smaller, larger));
    }

    /// The aggregate of the noted numbers; 0 if none was noted.
    ///
    /// # Errors
    /// [`OperatorError::Overflow`].
    pub(crate) fn result(&self, aggregate: Aggregate) -> Result<Variable> {
        let overflow = || OperatorError::Overflow("sum");
        let range = self.range.unwrap_or_default();
        let float_range = self.float_range.unwrap_or_default();
        let (integer, float) = match aggregate {
            Aggregate::Min => (range.0, float_range.0),
            Aggregate::Max => (range.1, float_range.1),
            Aggregate::Sum => (self.sum, self.float_sum),
            Aggregate::Avg => {
                if self.overflows {
                    return Err(overflow());
                }
                let sum = match self.kind {
                    NumberKind::Integers => self.sum as f64,
                    NumberKind::Decimals { scale } => self.sum as f64 / 10_f64.powi(scale.into()),
                    NumberKind::Floats => self.float_sum,
                };
                return Ok(Variable::Decimal(if self.count == 0 { 0.0 } else { sum / self.count as f64 }));
            }
        };
        if aggregate == Aggregate::Sum && self.overflows {
            return Err(overflow());
        }
        Ok(match self.kind {
            NumberKind::Integers => Variable::Scalar(integer.try_into().map_err(|_| overflow())?),
            NumberKind::Decimals { scale } => {
                if integer.unsigned_abs() >= 10_u128.pow(38) {
                    return Err(overflow());
                }
                Variable::Values(Values::Decimals(decimals(vec![integer].into(), None, scale)))
            }
            NumberKind::Floats => Variable::Values(Values::Floats(Float64Array::new(vec![float].into(), None))),
        })
    }
}

impl Values {
    pub(crate) fn kind(&self) -> NumberKind {
        match self {
            Self::Integers(_) => NumberKind::Integers,
            Self::Decimals(array) => NumberKind::Decimals { scale: array.scale() },
            Self::Floats(_) => NumberKind::Floats,
        }
    }

    /// An aggregate of the numbers.
    ///
    /// # Errors
    /// [`OperatorError::Overflow`].
    pub fn aggregate(&self, aggregate: Aggregate) -> Result<Variable> {
        self.aggregation().result(aggregate)
    }

    /// The numbers from which all aggregates of the vector follow.
    pub(crate) fn aggregation(&self) -> Aggregation {
        let mut all = Aggregation::new(self.kind());
        all.note(self.array());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(lower: Option<i64>, upper: Option<i64>) -> Bounds {
        Bounds { lower, upper }
    }

    fn picked(values: &Values, lower: Option<i64>, upper: Option<i64>) -> Vec<usize> {
        values.qualifying(bounds(lower, upper)).set_indices().collect()
    }

    #[test]
    fn bounds_mean_the_same_for_all_kinds() {
        let integers =
            Values::Integers(Int64Array::from(vec![Some(i64::MIN), None, Some(-1), Some(0), Some(i64::MAX)]));
        assert_eq!(picked(&integers, None, None), [0, 2, 3, 4]);
        assert_eq!(picked(&integers, Some(-1), Some(i64::MAX)), [2, 3]);
        assert_eq!(picked(&integers, Some(0), None), [3, 4]);
        assert_eq!(picked(&integers, None, Some(i64::MIN)), [0; 0]);
        assert_eq!(picked(&integers, Some(3), Some(3)), [0; 0]);
        let cents = Values::Decimals(decimals(vec![149, 150, 151, 200, -1].into(), None, 2));
        assert_eq!(picked(&cents, Some(1), Some(2)), [0, 1, 2]);
        assert_eq!(picked(&cents, Some(0), None), [0, 1, 2, 3]);
        let hundreds = Values::Decimals(decimals(vec![1, 2, -1].into(), None, -2));
        assert_eq!(picked(&hundreds, Some(100), Some(101)), [0]);
        assert_eq!(picked(&hundreds, Some(101), None), [1]);
        assert_eq!(picked(&hundreds, Some(-100), Some(0)), [2]);
        let floats = Values::Floats(Float64Array::from(vec![Some(1.5), None, Some(f64::NAN), Some(2.0)]));
        assert_eq!(picked(&floats, Some(1), Some(2)), [0]);
        assert_eq!(picked(&floats, None, None), [0, 2, 3]);
        for (lower, upper) in [(None, None), (Some(-5), Some(40_000)), (Some(40_000), None), (None, Some(-40_000))] {
            let short: ArrayRef = std::sync::Arc::new(arrow_array::Int16Array::from(vec![i16::MIN, -5, 7, i16::MAX]));
            let wide = Values::from(vec![i64::from(i16::MIN), -5, 7, i64::from(i16::MAX)]);
            assert_eq!(qualifying(&short, bounds(lower, upper)), wide.qualifying(bounds(lower, upper)));
        }
    }

    #[test]
    fn what_does_not_fit_is_an_overflow() {
        let most = Values::from(vec![i64::MAX]);
        let one = Values::from(vec![1]);
        assert!(matches!(most.combined(Combination::Add, &one), Err(OperatorError::Overflow("add"))));
        assert!(matches!(
            Values::from(vec![i64::MIN]).combined(Combination::Sub, &one),
            Err(OperatorError::Overflow(_))
        ));
        assert!(matches!(Values::from(vec![i64::MAX, 1]).aggregate(Aggregate::Sum), Err(OperatorError::Overflow(_))));
        let sum = Values::from(vec![i64::MAX, 1, -1]).aggregate(Aggregate::Sum).unwrap();
        assert!(matches!(sum, Variable::Scalar(i64::MAX)));
        assert!(matches!(
            most.combined(Combination::Add, &Values::from(vec![])),
            Err(OperatorError::LengthsDiffer(1, 0))
        ));
        // What stands for a NULL does not overflow.
        let null = Values::Integers(Int64Array::new(vec![i64::MAX].into(), Some(NullBuffer::new_null(1))));
        assert_eq!(null.combined(Combination::Add, &one).unwrap().array().null_count(), 1);
    }

    #[test]
    fn kinds_of_numbers_mix() {
        let cents = Values::Decimals(decimals(vec![150].into(), None, 2));
        let Values::Decimals(sum) = cents.combined(Combination::Sub, &Values::from(vec![2])).unwrap() else { panic!() };
        assert_eq!((sum.value(0), sum.scale()), (-50, 2));
        let half = Values::Floats(Float64Array::from(vec![0.5]));
        let Values::Floats(sum) = half.combined(Combination::Add, &cents).unwrap() else { panic!() };
        assert_eq!(sum.value(0), 2.0);
    }
}
