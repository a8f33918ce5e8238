//! Variances of floats: Youngs' and Cramer's sums, as PostgreSQL adds them up.
//!
//! A state has how many numbers there are, their sum, and the sum of the squares of their distances
//! from their mean. The last one grows without the mean being divided and multiplied again, so that
//! large numbers that lie close together keep their digits. It is NaN as soon as a number is
//! infinite or NaN.

use super::float_states::{self, FloatState};
use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array, UInt64Array};
use datafusion::arrow::datatypes::{Float64Type, UInt64Type};
use datafusion::error::Result;
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
pub(super) struct Sums {
    count: u64,
    sum: f64,
    squares: f64,
}

impl FloatState for Sums {
    type Aggregate = Variance;

    fn add(&mut self, [number, _]: [f64; 2]) -> Result<()> {
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

    fn columns(states: &[Self]) -> Vec<ArrayRef> {
        vec![
            Arc::new(UInt64Array::from_iter_values(states.iter().map(|sums| sums.count))),
            Arc::new(Float64Array::from_iter_values(states.iter().map(|sums| sums.sum))),
            Arc::new(Float64Array::from_iter_values(states.iter().map(|sums| sums.squares))),
        ]
    }

    fn of_columns(columns: &[ArrayRef]) -> impl Iterator<Item = Self> + '_ {
        let counts = columns[0].as_primitive::<UInt64Type>().values().iter();
        let (sums, squares) = (columns[1].as_primitive::<Float64Type>(), columns[2].as_primitive::<Float64Type>());
        let rows = counts.zip(sums.values()).zip(squares.values());
        rows.map(|((count, sum), squares)| Self { count: *count, sum: *sum, squares: *squares })
    }

    fn results(variance: Variance, states: &[Self]) -> ArrayRef {
        Arc::new(states.iter().map(|sums| variance.value(sums)).collect::<Float64Array>())
    }
}

impl Sums {
    /// Sums that are infinite: an error of finite numbers, and NaN of others.
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

/// The accumulator of all rows.
pub(super) type OfRows = float_states::OfRows<Sums>;
/// The accumulator of groups.
pub(super) type OfGroups = float_states::OfGroups<Sums>;

#[cfg(test)]
mod tests {
    use super::*;

    fn variance(numbers: &[f64]) -> f64 {
        let mut sums = Sums::default();
        numbers.iter().for_each(|number| sums.add([*number; 2]).unwrap());
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
        sums.add([f64::MAX; 2]).unwrap();
        assert!(sums.add([-f64::MAX; 2]).is_err());
    }

    #[test]
    fn parts_are_merged() {
        let numbers: Vec<f64> = (0..100).map(|number| f64::from(number * number % 37)).collect();
        for cut in [0, 1, 50, 100] {
            let mut parts = [Sums::default(); 2];
            for (at, number) in numbers.iter().enumerate() {
                parts[usize::from(at >= cut)].add([*number; 2]).unwrap();
            }
            let [mut all, rest] = parts;
            all.merge(&rest).unwrap();
            assert_eq!(all.count, 100);
            assert!((all.squares / 100.0 - variance(&numbers)).abs() < 1e-9);
        }
    }
}
