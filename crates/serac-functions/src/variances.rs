//! Variances of floats: Youngs' and Cramer's sums, as PostgreSQL adds them up.
//!
//! A state has how many numbers there are, their sum, and the sum of the squares of their distances
//! from their mean. The last one grows without the mean being divided and multiplied again, so that
//! large numbers that lie close together keep their digits. It is NaN as soon as a number is
//! infinite or NaN.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, UInt64Array};
use datafusion::arrow::compute::{and, cast, is_not_null, prep_null_mask_filter};
use datafusion::arrow::datatypes::{DataType, Float64Type, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use serac_values::SqlError;
use std::sync::Arc;

/// The kind of variance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variance {
    of_population: bool,
    is_deviation: bool,
}

impl Variance {
    /// By the name of DataFusion's function; `None` for other functions.
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

    fn value(self, sums: &Sums) -> Option<f64> {
        let variance = match (sums.count, self.of_population) {
            (0, _) | (1, false) => return None,
            (count, true) => sums.squares / count as f64,
            (count, false) => sums.squares / (count - 1) as f64,
        };
        Some(if self.is_deviation { variance.sqrt() } else { variance })
    }
}

/// The sums of a set of numbers.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Sums {
    /// # Errors
    /// 22003 where finite numbers have a sum that is not finite.
    fn add(&mut self, number: f64) -> Result<()> {
        let was_finite = self.sum.is_finite() && number.is_finite();
        self.count += 1;
        self.sum += number;
        if self.count == 1 {
            self.squares = if number.is_finite() { 0.0 } else { f64::NAN };
            return Ok(());
        }
        let count = self.count as f64;
        let distance = number * count - self.sum;
        self.squares += distance * distance / (count * (count - 1.0));
        self.checked(was_finite)
    }

    /// # Errors
    /// 22003 where finite numbers have a sum that is not finite.
    fn merge(&mut self, other: &Self) -> Result<()> {
        if other.count == 0 {
            return Ok(());
        }
        if self.count == 0 {
            *self = *other;
            return Ok(());
        }
        let was_finite = self.squares.is_finite() && other.squares.is_finite();
        let (ours, theirs) = (self.count as f64, other.count as f64);
        let distance = self.sum / ours - other.sum / theirs;
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares + ours * theirs * distance * distance / self.count as f64;
        self.checked(was_finite)
    }

    fn checked(&mut self, was_finite: bool) -> Result<()> {
        if self.sum.is_infinite() || self.squares.is_infinite() {
            if was_finite {
                return Err(
                    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow").external()
                );
            }
            self.squares = f64::NAN;
        }
        Ok(())
    }
}

/// The numbers of a batch.
fn numbers(values: &[ArrayRef]) -> Result<ArrayRef> {
    Ok(cast(&values[0], &DataType::Float64)?)
}

/// The sums that a batch of states has.
fn sums_of(states: &[ArrayRef]) -> impl Iterator<Item = Sums> + '_ {
    let counts = states[0].as_primitive::<UInt64Type>().values().iter();
    let (sums, squares) = (states[1].as_primitive::<Float64Type>(), states[2].as_primitive::<Float64Type>());
    let rows = counts.zip(sums.values()).zip(squares.values());
    rows.map(|((count, sum), squares)| Sums { count: *count, sum: *sum, squares: *squares })
}

/// The variance of all rows.
#[derive(Debug)]
pub(super) struct One {
    variance: Variance,
    sums: Sums,
}

impl One {
    pub(super) fn new(variance: Variance) -> Self {
        Self { variance, sums: Sums::default() }
    }
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let numbers = numbers(values)?;
        numbers.as_primitive::<Float64Type>().iter().flatten().try_for_each(|number| self.sums.add(number))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.variance.value(&self.sums)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let Sums { count, sum, squares } = self.sums;
        Ok(vec![count.into(), sum.into(), squares.into()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        sums_of(states).try_for_each(|sums| self.sums.merge(&sums))
    }
}

/// The variances of groups.
#[derive(Debug)]
pub(super) struct Groups {
    variance: Variance,
    sums: Vec<Sums>,
}

impl Groups {
    pub(super) fn new(variance: Variance) -> Self {
        Self { variance, sums: Vec::new() }
    }
}

/// The rows that count: those that a filter lets through, and that are not NULL.
fn counted(numbers: &ArrayRef, filter: Option<&BooleanArray>) -> Result<BooleanArray> {
    let known = is_not_null(numbers)?;
    Ok(match filter {
        Some(filter) if filter.null_count() > 0 => and(&prep_null_mask_filter(filter), &known)?,
        Some(filter) => and(filter, &known)?,
        None => known,
    })
}

/// The states of sums.
fn states(sums: &[Sums]) -> Vec<ArrayRef> {
    vec![
        Arc::new(UInt64Array::from_iter_values(sums.iter().map(|sums| sums.count))),
        Arc::new(Float64Array::from_iter_values(sums.iter().map(|sums| sums.sum))),
        Arc::new(Float64Array::from_iter_values(sums.iter().map(|sums| sums.squares))),
    ]
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.sums.resize(count, Sums::default());
        let numbers = numbers(values)?;
        let counted = counted(&numbers, filter)?;
        let numbers = numbers.as_primitive::<Float64Type>().values();
        for row in counted.values().set_indices() {
            self.sums[groups[row]].add(numbers[row])?;
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        Ok(Arc::new(sums.iter().map(|sums| self.variance.value(sums)).collect::<Float64Array>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(states(&emit_to.take_needed(&mut self.sums)))
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.sums.resize(count, Sums::default());
        sums_of(states).zip(groups).try_for_each(|(sums, group)| self.sums[*group].merge(&sums))
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let numbers = numbers(values)?;
        let mut sums = vec![Sums::default(); numbers.len()];
        let counted = counted(&numbers, filter)?;
        let numbers = numbers.as_primitive::<Float64Type>().values();
        for row in counted.values().set_indices() {
            sums[row].add(numbers[row])?;
        }
        Ok(states(&sums))
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<Sums>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variance(numbers: &[f64]) -> f64 {
        let mut sums = Sums::default();
        numbers.iter().for_each(|number| sums.add(*number).unwrap());
        Variance { of_population: true, is_deviation: false }.value(&sums).unwrap()
    }

    #[test]
    fn large_numbers_keep_their_digits() {
        let close = [100000003.0, 100000004.0, 100000006.0, 100000007.0];
        assert_eq!(variance(&close), 2.5);
        let far = close.map(|number| number + 7e12);
        assert_eq!(variance(&far), 2.5);
    }

    #[test]
    fn what_is_not_finite_has_no_variance() {
        assert!(variance(&[f64::INFINITY]).is_nan());
        assert!(variance(&[1.0, f64::NAN, 2.0]).is_nan());
        assert!(variance(&[f64::NEG_INFINITY, 1.0]).is_nan());
    }

    #[test]
    fn finite_numbers_of_an_infinite_sum_are_an_error() {
        let mut sums = Sums::default();
        sums.add(f64::MAX).unwrap();
        assert!(sums.add(-f64::MAX).is_err());
    }

    #[test]
    fn parts_are_merged() {
        let numbers: Vec<f64> = (0..100).map(|number| f64::from(number * number % 37)).collect();
        for cut in [0, 1, 50, 100] {
            let mut parts = [Sums::default(); 2];
            for (at, number) in numbers.iter().enumerate() {
                parts[usize::from(at >= cut)].add(*number).unwrap();
            }
            let [mut all, rest] = parts;
            all.merge(&rest).unwrap();
            assert_eq!(all.count, 100);
            assert!((all.squares / 100.0 - variance(&numbers)).abs() < 1e-9);
        }
    }
}
