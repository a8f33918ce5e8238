//! Sort keys as numbers.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampNanosecondType,
};
use datafusion::common::{Result, internal_err};

/// Whether values of a type become numbers.
pub(super) fn is_packed(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(
        data_type,
        T::Boolean
            | T::Int8
            | T::Int16
            | T::Int32
            | T::Int64
            | T::Float32
            | T::Float64
            | T::Decimal64(..)
            | T::Decimal128(..)
            | T::Date32
            | T::Time64(TimeUnit::Microsecond)
            | T::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, _)
    )
}

/// Calls `take` with each value's row and number, in which values have the order of their type.
fn each_number(column: &ArrayRef, take: &mut impl FnMut(usize, u128)) -> Result<()> {
    fn each<T: ArrowPrimitiveType>(
        column: &ArrayRef,
        take: &mut impl FnMut(usize, u128),
        number: impl Fn(T::Native) -> i128,
    ) {
        let column: &PrimitiveArray<T> = column.as_primitive();
        // The sign bit is turned: the least number is 0.
        let mut take = |row, value| take(row, number(value) as u128 ^ 1 << 127);
        match column.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => column.values().iter().enumerate().for_each(|(row, value)| take(row, *value)),
            Some(nulls) => nulls.valid_indices().for_each(|row| take(row, column.values()[row])),
        }
    }
    // The bits of floats, with the order that arrow's total comparison has.
    let of_double = |value: f64| {
        let bits = value.to_bits() as i64;
        i128::from(bits ^ (((bits >> 63) as u64) >> 1) as i64)
    };
    let of_float = |value: f32| {
        let bits = value.to_bits() as i32;
        i128::from(bits ^ (((bits >> 31) as u32) >> 1) as i32)
    };
    match column.data_type() {
        DataType::Boolean => {
            let values = column.as_boolean();
            (0..values.len()).filter(|row| values.is_valid(*row)).for_each(|row| take(row, values.value(row).into()));
        }
        DataType::Int8 => each::<Int8Type>(column, take, i128::from),
        DataType::Int16 => each::<Int16Type>(column, take, i128::from),
        DataType::Int32 => each::<Int32Type>(column, take, i128::from),
        DataType::Int64 => each::<Int64Type>(column, take, i128::from),
        DataType::Float32 => each::<Float32Type>(column, take, of_float),
        DataType::Float64 => each::<Float64Type>(column, take, of_double),
        DataType::Decimal64(..) => each::<Decimal64Type>(column, take, i128::from),
        DataType::Decimal128(..) => each::<Decimal128Type>(column, take, |value| value),
        DataType::Date32 => each::<Date32Type>(column, take, i128::from),
        DataType::Time64(TimeUnit::Microsecond) => each::<Time64MicrosecondType>(column, take, i128::from),
        DataType::Timestamp(TimeUnit::Microsecond, _) => each::<TimestampMicrosecondType>(column, take, i128::from),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => each::<TimestampNanosecondType>(column, take, i128::from),
        other => return internal_err!("a sort key of {other} as a number"),
    }
    Ok(())
}

/// The bits that numbers up to `most` take.
pub(super) fn bits_of(most: u128) -> u32 {
    128 - most.leading_zeros()
}

/// The values of a sort key so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRange {
    options: SortOptions,
    least: u128,
    most: u128,
    has_nulls: bool,
}

impl KeyRange {
    pub(super) fn new(options: SortOptions) -> Self {
        Self { options, least: u128::MAX, most: 0, has_nulls: false }
    }

    pub(super) fn add(&mut self, column: &ArrayRef) -> Result<()> {
        self.has_nulls |= column.null_count() > 0;
        let (mut least, mut most) = (self.least, self.most);
        each_number(column, &mut |_, number| {
            least = least.min(number);
            most = most.max(number);
        })?;
        (self.least, self.most) = (least, most);
        Ok(())
    }

    fn width(&self) -> u128 {
        self.most.saturating_sub(self.least)
    }

    /// The bits of a value, without that of NULL.
    fn value_bits(&self) -> u32 {
        bits_of(self.width())
    }

    /// The bits of the key.
    pub(super) fn bits(&self) -> u32 {
        self.value_bits() + u32::from(self.has_nulls)
    }

    /// Puts the key of each row below the bits that its number has.
    pub(super) fn pack(&self, column: &ArrayRef, numbers: &mut [u128]) -> Result<()> {
        let bits = self.bits();
        if bits > 0 {
            numbers.iter_mut().for_each(|number| *number = number.checked_shl(bits).unwrap_or(0));
        }
        let flag = 1_u128.checked_shl(self.value_bits()).unwrap_or(0);
        let of_null = if self.has_nulls && !self.options.nulls_first { flag } else { 0 };
        let of_value = if self.has_nulls && self.options.nulls_first { flag } else { 0 };
        let Self { least, most, .. } = *self;
        let descending = self.options.descending;
        if of_null > 0
            && let Some(nulls) = column.nulls()
        {
            nulls
                .iter()
                .zip(&mut *numbers)
                .filter(|(is_valid, _)| !is_valid)
                .for_each(|(_, number)| *number |= of_null);
        }
        each_number(column, &mut |row, number| {
            numbers[row] |= of_value | if descending { most - number } else { number - least };
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Float64Array, Int64Array};
    use datafusion::arrow::compute::sort_to_indices;
    use rand::Rng;
    use std::sync::Arc;

    /// Numbers have the order that arrow gives the values.
    #[test]
    fn numbers_are_ordered_as_values_are() {
        let mut rng = serac_testing::rng();
        for _ in 0..200 {
            let rows = rng.random_range(1..60);
            let floats =
                [f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1.5, -1.5, f64::MIN_POSITIVE];
            let column: ArrayRef = match rng.random_bool(0.5) {
                true => {
                    let wide = rng.random_bool(0.3);
                    let value = |rng: &mut rand::rngs::StdRng| match wide {
                        true => [i64::MIN, i64::MAX, 0, -1][rng.random_range(0..4)],
                        false => rng.random_range(-3..3),
                    };
                    Arc::new((0..rows).map(|_| rng.random_bool(0.8).then(|| value(&mut rng))).collect::<Int64Array>())
                }
                false => Arc::new(
                    (0..rows)
                        .map(|_| rng.random_bool(0.8).then(|| floats[rng.random_range(0..floats.len())]))
                        .collect::<Float64Array>(),
                ),
            };
            let options = SortOptions { descending: rng.random_bool(0.5), nulls_first: rng.random_bool(0.5) };
            let mut range = KeyRange::new(options);
            range.add(&column).unwrap();
            let mut numbers = vec![0; rows];
            range.pack(&column, &mut numbers).unwrap();
            assert!(numbers.iter().all(|number| bits_of(*number) <= range.bits()));
            let order = sort_to_indices(&column, Some(options), None).unwrap();
            let sorted: Vec<u128> = order.values().iter().map(|row| numbers[*row as usize]).collect();
            assert!(sorted.is_sorted(), "{options:?} {column:?}");
            let equal = |a: usize, b: usize| match (column.is_null(a), column.is_null(b)) {
                (false, false) => match column.as_primitive_opt::<Int64Type>() {
                    Some(column) => column.value(a) == column.value(b),
                    None => {
                        let column = column.as_primitive::<Float64Type>();
                        column.value(a).to_bits() == column.value(b).to_bits()
                    }
                },
                (a, b) => a == b,
            };
            for (a, b) in (0..rows).zip(1..rows) {
                assert_eq!(numbers[a] == numbers[b], equal(a, b), "{options:?} {column:?}");
            }
        }
    }
}
