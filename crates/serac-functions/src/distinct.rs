//! Variances and regressions of distinct rows: `var_pop(DISTINCT x)`, `corr(DISTINCT y, x)`.
//!
//! The rows are kept as the bits of their numbers, in a set. The aggregate is computed once all are
//! there, over the rows in ascending order, as PostgreSQL does.

use super::regressions::{self, Regression};
use super::variances::{self, Variance};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

/// The aggregate of distinct rows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    Variance(Variance),
    Regression(Regression),
}

impl Of {
    /// The aggregate with a name, if it is one of these.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let regression = || Regression::of_name(name).map(Self::Regression);
        Variance::of_name(name).map(Self::Variance).or_else(regression)
    }

    /// The numbers of a row.
    fn arguments(self) -> usize {
        match self {
            Self::Variance(_) => 1,
            Self::Regression(_) => 2,
        }
    }

    fn of_all_rows(self) -> Box<dyn Accumulator> {
        match self {
            Self::Variance(variance) => Box::new(variances::OfRows::new(variance)),
            Self::Regression(regression) => Box::new(regressions::OfRows::new(regression)),
        }
    }

    /// The fields of a state: for each argument the list of its values.
    pub(super) fn state_fields(self, name: &str) -> Vec<FieldRef> {
        let values = || Field::new_list_field(DataType::Float64, true);
        let field = |at| Arc::new(Field::new_list(format!("{name}[values {at}]"), values(), true));
        (0..self.arguments()).map(field).collect()
    }
}

/// The numbers of a row, as bits; the second is 0 where there is one number only.
type Row = [u64; 2];

/// The bits of a number, the same for equal ones: for both zeros, and for every NaN.
fn bits(number: f64) -> u64 {
    let number = if number.is_nan() { f64::NAN } else { number };
    (number + 0.0).to_bits()
}

/// The distinct rows of an aggregate, without those with NULL.
#[derive(Debug)]
pub(super) struct Distinct {
    of: Of,
    rows: HashSet<Row>,
}

impl Distinct {
    pub(super) fn new(of: Of) -> Self {
        Self { of, rows: HashSet::new() }
    }

    /// The rows in ascending order, a column for each argument. NaN is the greatest.
    fn columns(&self) -> Vec<ArrayRef> {
        let mut rows: Vec<[f64; 2]> = self.rows.iter().map(|row| row.map(f64::from_bits)).collect();
        let order = |a: &f64, b: &f64| a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
        rows.sort_unstable_by(|a, b| a.iter().zip(b).map(|(a, b)| order(a, b)).fold(Ordering::Equal, Ordering::then));
        let column = |at| Arc::new(rows.iter().map(|row: &[f64; 2]| row[at]).collect::<Float64Array>()) as ArrayRef;
        (0..self.of.arguments()).map(column).collect()
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let numbers = values.iter().map(|column| cast(column, &DataType::Float64)).collect::<Result<Vec<_>, _>>()?;
        for at in 0..numbers[0].len() {
            if numbers.iter().all(|column| column.is_valid(at)) {
                let mut row = Row::default();
                for (number, column) in row.iter_mut().zip(&numbers) {
                    *number = bits(column.as_primitive::<Float64Type>().value(at));
                }
                self.rows.insert(row);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut of_all_rows = self.of.of_all_rows();
        of_all_rows.update_batch(&self.columns())?;
        of_all_rows.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let list = |column| SingleRowListArrayBuilder::new(column).build_list_scalar();
        Ok(self.columns().into_iter().map(list).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for state in 0..states[0].len() {
            let columns = states.iter().map(|column| column.as_list::<i32>().value(state)).collect::<Vec<_>>();
            self.update_batch(&columns)?;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.rows.capacity() * size_of::<Row>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(numbers: &[Option<f64>]) -> ArrayRef {
        Arc::new(Float64Array::from(numbers.to_vec()))
    }

    #[test]
    fn rows_count_once_also_across_states() {
        let of = Of::of_name("regr_count").unwrap();
        let (mut first, mut second) = (Distinct::new(of), Distinct::new(of));
        let (y, x) = (column(&[Some(0.0), Some(-0.0), Some(1.0)]), column(&[Some(1.0), Some(1.0), None]));
        first.update_batch(&[y, x]).unwrap();
        let (y, x) = (column(&[Some(0.0), Some(f64::NAN), Some(-f64::NAN)]), column(&[Some(1.0); 3]));
        second.update_batch(&[y, x]).unwrap();
        let states = second.state().unwrap();
        let states = states.iter().map(|state| state.to_array().unwrap()).collect::<Vec<_>>();
        first.merge_batch(&states).unwrap();
        assert_eq!(first.evaluate().unwrap(), ScalarValue::UInt64(Some(2)));
    }

    #[test]
    fn one_infinite_number_has_no_variance() {
        let mut distinct = Distinct::new(Of::of_name("var_pop").unwrap());
        distinct.update_batch(&[column(&[Some(f64::INFINITY); 2])]).unwrap();
        let ScalarValue::Float64(Some(variance)) = distinct.evaluate().unwrap() else { panic!("a float") };
        assert!(variance.is_nan());
    }
}
