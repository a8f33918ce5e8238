//! Covariances, correlations and regressions: Youngs' and Cramer's sums of pairs of floats, as
//! PostgreSQL adds them up.
//!
//! A state has the number of pairs, the sums of both numbers, the sums of the squared distances
//! from their means, and the sum of the products of these distances. The last three are NaN as soon
//! as a number that they depend on is infinite or NaN.

use super::float_states::{self, FloatState};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::error::Result;
use serac_values::SqlError;
use std::sync::Arc;

/// The aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Regression {
    Average { of_x: bool },
    Correlation,
    Count,
    Covariance { of_population: bool },
    Determination,
    Intercept,
    Products,
    Slope,
    Squares { of_x: bool },
}

impl Regression {
    /// By the name of DataFusion's function; `None` for other functions.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "corr" => Self::Correlation,
            "covar_pop" => Self::Covariance { of_population: true },
            "covar_samp" => Self::Covariance { of_population: false },
            "regr_avgx" => Self::Average { of_x: true },
            "regr_avgy" => Self::Average { of_x: false },
            "regr_count" => Self::Count,
            "regr_intercept" => Self::Intercept,
            "regr_r2" => Self::Determination,
            "regr_slope" => Self::Slope,
            "regr_sxx" => Self::Squares { of_x: true },
            "regr_sxy" => Self::Products,
            "regr_syy" => Self::Squares { of_x: false },
            _ => return None,
        })
    }

    fn value(self, sums: &Sums) -> Option<f64> {
        let Sums { count, x, y, products } = *sums;
        if count < 1.0 {
            return None;
        }
        match self {
            Self::Average { of_x: true } => Some(x.sum / count),
            Self::Average { of_x: false } => Some(y.sum / count),
            // It is not a float, and is counted by itself.
            Self::Count => Some(count),
            Self::Covariance { of_population: true } => Some(products / count),
            Self::Covariance { of_population: false } => (count >= 2.0).then(|| products / (count - 1.0)),
            Self::Squares { of_x: true } => Some(x.squares),
            Self::Squares { of_x: false } => Some(y.squares),
            Self::Products => Some(products),
            Self::Correlation if x.squares == 0.0 || y.squares == 0.0 => None,
            Self::Correlation => Some(products / (x.squares * y.squares).sqrt()),
            // All x are equal.
            _ if x.squares == 0.0 => None,
            Self::Determination if y.squares == 0.0 => Some(1.0),
            Self::Determination => Some((products * products) / (x.squares * y.squares)),
            Self::Slope => Some(products / x.squares),
            Self::Intercept => Some((y.sum - x.sum * products / x.squares) / count),
        }
    }
}

/// The sums of one side of the pairs.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    sum: f64,
    squares: f64,
}

impl Side {
    fn is_infinite(&self) -> bool {
        self.sum.is_infinite() || self.squares.is_infinite()
    }
}

/// The sums of a set of pairs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    /// The number of pairs.
    count: f64,
    x: Side,
    y: Side,
    products: f64,
}

impl FloatState for Sums {
    type Aggregate = Regression;

    fn needed(aggregate: Regression, row: [f64; 2]) -> [f64; 2] {
        if aggregate == Regression::Count { [0.0; 2] } else { row }
    }

    /// The first argument is y.
    fn add(&mut self, [y, x]: [f64; 2]) -> Result<()> {
        let before = *self;
        self.count += 1.0;
        self.x.sum += x;
        self.y.sum += y;
        if before.count == 0.0 {
            let unknown = |number: f64| if number.is_finite() { 0.0 } else { f64::NAN };
            (self.x.squares, self.y.squares) = (unknown(x), unknown(y));
            self.products = unknown(x) + unknown(y);
            return Ok(());
        }
        let (of_x, of_y) = (x * self.count - self.x.sum, y * self.count - self.y.sum);
        let scale = 1.0 / (self.count * before.count);
        self.x.squares += of_x * of_x * scale;
        self.y.squares += of_y * of_y * scale;
        self.products += of_x * of_y * scale;
        let were_finite = |sum: f64, number: f64| !sum.is_infinite() && !number.is_infinite();
        self.checked(were_finite(before.x.sum, x), were_finite(before.y.sum, y))
    }

    fn merge(&mut self, other: &Self) -> Result<()> {
        if other.count == 0.0 {
            return Ok(());
        }
        if self.count == 0.0 {
            *self = *other;
            return Ok(());
        }
        let (ours, theirs) = (*self, *other);
        self.count += theirs.count;
        let (of_x, of_y) = (
            ours.x.sum / ours.count - theirs.x.sum / theirs.count,
            ours.y.sum / ours.count - theirs.y.sum / theirs.count,
        );
        let scale = ours.count * theirs.count;
        self.x.sum += theirs.x.sum;
        self.y.sum += theirs.y.sum;
        self.x.squares += theirs.x.squares + scale * of_x * of_x / self.count;
        self.y.squares += theirs.y.squares + scale * of_y * of_y / self.count;
        self.products += theirs.products + scale * of_x * of_y / self.count;
        let were_finite = |one: Side, other: Side| !one.is_infinite() && !other.is_infinite();
        self.checked(were_finite(ours.x, theirs.x), were_finite(ours.y, theirs.y))
    }

    fn columns(states: &[Self]) -> Vec<ArrayRef> {
        let column = |at: usize| Float64Array::from_iter_values(states.iter().map(|sums| sums.parts()[at]));
        (0..PARTS.len()).map(|at| Arc::new(column(at)) as ArrayRef).collect()
    }

    fn of_columns(columns: &[ArrayRef]) -> impl Iterator<Item = Self> + '_ {
        (0..columns[0].len()).map(move |row| {
            let mut parts = [0.0; PARTS.len()];
            for (part, column) in parts.iter_mut().zip(columns) {
                *part = column.as_primitive::<Float64Type>().value(row);
            }
            Self::of_parts(parts)
        })
    }

    fn results(regression: Regression, states: &[Self]) -> ArrayRef {
        match regression {
            Regression::Count => Arc::new(UInt64Array::from_iter_values(states.iter().map(|sums| sums.count as u64))),
            other => Arc::new(states.iter().map(|sums| other.value(sums)).collect::<Float64Array>()),
        }
    }
}

impl Sums {
    /// Sums that are infinite: an error of finite numbers, and NaN of others.
    fn checked(&mut self, x_was_finite: bool, y_was_finite: bool) -> Result<()> {
        let is_error = self.x.is_infinite() && x_was_finite
            || self.y.is_infinite() && y_was_finite
            || self.products.is_infinite() && x_was_finite && y_was_finite;
        if is_error {
            return Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow").external());
        }
        for sum in [&mut self.x.squares, &mut self.y.squares, &mut self.products] {
            if sum.is_infinite() {
                *sum = f64::NAN;
            }
        }
        Ok(())
    }

    fn parts(&self) -> [f64; PARTS.len()] {
        [self.count, self.x.sum, self.x.squares, self.y.sum, self.y.squares, self.products]
    }

    fn of_parts([count, sum_x, squares_x, sum_y, squares_y, products]: [f64; PARTS.len()]) -> Self {
        let (x, y) = (Side { sum: sum_x, squares: squares_x }, Side { sum: sum_y, squares: squares_y });
        Self { count, x, y, products }
    }
}

/// The names of the parts of a state.
const PARTS: [&str; 6] = ["count", "sum_x", "squares_x", "sum_y", "squares_y", "products"];

/// The fields of a state.
pub(super) fn state_fields(name: &str) -> Vec<FieldRef> {
    let field = |part| Arc::new(Field::new(format!("{name}[{part}]"), DataType::Float64, false));
    PARTS.into_iter().map(field).collect()
}

/// The accumulator of all rows.
pub(super) type OfRows = float_states::OfRows<Sums>;
/// The accumulator of groups.
pub(super) type OfGroups = float_states::OfGroups<Sums>;

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(pairs: &[(f64, f64)]) -> Result<Sums> {
        let mut sums = Sums::default();
        pairs.iter().try_for_each(|(x, y)| sums.add([*y, *x])).map(|()| sums)
    }

    #[test]
    fn lines_are_found() {
        let line = sums(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)]).unwrap();
        let value = |regression: Regression| regression.value(&line).unwrap();
        assert_eq!((value(Regression::Slope), value(Regression::Intercept)), (2.0, 1.0));
        assert_eq!((value(Regression::Determination), value(Regression::Correlation)), (1.0, 1.0));
        assert_eq!(Regression::Slope.value(&sums(&[(1.0, 1.0), (1.0, 2.0)]).unwrap()), None);
        assert_eq!(Regression::Covariance { of_population: false }.value(&sums(&[(1.0, 1.0)]).unwrap()), None);
    }

    #[test]
    fn what_is_too_large_is_an_error() {
        assert!(sums(&[(1e300, 1.0), (-1e300, 1.0)]).is_err());
        assert!(sums(&[(1.0, f64::MAX), (1.0, f64::MAX)]).is_err());
        let unknown = sums(&[(1.0, 1.0), (f64::INFINITY, 2.0)]).unwrap();
        assert!(unknown.x.squares.is_nan() && unknown.products.is_nan() && unknown.y.squares == 0.5);
    }

    #[test]
    fn parts_are_merged() {
        let pairs: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(i * i % 17), f64::from(i * 7 % 23))).collect();
        let all = sums(&pairs).unwrap();
        for cut in [0, 1, 20, 40] {
            let (mut one, other) = (sums(&pairs[..cut]).unwrap(), sums(&pairs[cut..]).unwrap());
            one.merge(&other).unwrap();
            for (merged, whole) in one.parts().into_iter().zip(all.parts()) {
                assert!((merged - whole).abs() < 1e-6, "{merged} {whole}");
            }
        }
    }
}
