//! The analysis that the client of figure 15 runs: a dense layer with one output.
//!
//! The output of a row is the sum over its columns of weight × value. A text's value is the sum of
//! its bytes, so that every byte is read; a NULL's is 0.

use crate::setup::text;
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::compute::{cast, sum};
use arrow::datatypes::{DataType, Date32Type, Decimal64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType};
use serde::{Deserialize, Serialize};

/// The sums over all rows that have gone through a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    pub rows: usize,
    /// The sum of the first column, which is of integers.
    pub keys: i64,
    /// The sum of the outputs.
    pub output: f64,
}

impl Totals {
    /// Whether two totals are equal, except for the rounding of sums in another order.
    pub fn agree(&self, other: &Self) -> bool {
        const PRECISION: f64 = 1e-9;
        let is_close = (self.output - other.output).abs() <= PRECISION * self.output.abs().max(other.output.abs());
        is_close && (self.rows, self.keys) == (other.rows, other.keys)
    }
}

/// A dense layer with one output.
#[derive(Clone, Debug)]
pub struct LinearUnit {
    weights: Vec<f64>,
    outputs: Vec<f64>,
    totals: Totals,
}

impl LinearUnit {
    /// A unit with a weight for each column.
    pub fn new(weights: Vec<f64>) -> Self {
        Self { weights, outputs: Vec::new(), totals: Totals::default() }
    }

    /// Weights with which each of these columns contributes about 1 to a row's output. With them a
    /// wrong value in any column shows in the sum of the outputs.
    pub fn fitting_weights(columns: &[ArrayRef]) -> Result<Vec<f64>, String> {
        let weight = |column: &ArrayRef| {
            let mut values = vec![0.0; column.len()];
            accumulate(column, 1.0, &mut values)?;
            let mean = values.iter().map(|value| value.abs()).sum::<f64>() / values.len().max(1) as f64;
            Ok(if mean > 0.0 { 1.0 / mean } else { 1.0 })
        };
        columns.iter().map(weight).collect()
    }

    /// Puts rows through the unit.
    pub fn add(&mut self, columns: &[ArrayRef]) -> Result<(), String> {
        let [keys, ..] = columns else { return Ok(()) };
        if columns.len() != self.weights.len() {
            return Err(format!("there are {} columns for {} weights", columns.len(), self.weights.len()));
        }
        self.outputs.clear();
        self.outputs.resize(keys.len(), 0.0);
        for (column, weight) in columns.iter().zip(&self.weights) {
            accumulate(column, *weight, &mut self.outputs)?;
        }
        let integers = cast(keys, &DataType::Int64).map_err(text)?;
        self.totals.rows += keys.len();
        self.totals.keys += sum(integers.as_primitive::<Int64Type>()).unwrap_or(0);
        self.totals.output += self.outputs.iter().sum::<f64>();
        Ok(())
    }

    /// The totals so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }
}

/// Adds weight × value to the output of each row.
fn accumulate(column: &ArrayRef, weight: f64, outputs: &mut [f64]) -> Result<(), String> {
    match column.data_type() {
        DataType::Int32 => numbers::<Int32Type>(column, weight, outputs, f64::from),
        DataType::Date32 => numbers::<Date32Type>(column, weight, outputs, f64::from),
        DataType::Int64 => numbers::<Int64Type>(column, weight, outputs, |value| value as f64),
        DataType::Decimal64(..) => numbers::<Decimal64Type>(column, weight, outputs, |value| value as f64),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            numbers::<TimestampMicrosecondType>(column, weight, outputs, |value| value as f64);
        }
        DataType::Utf8 => texts(column.as_string::<i32>().iter(), weight, outputs),
        DataType::Utf8View => texts(column.as_string_view().iter(), weight, outputs),
        other => return Err(format!("the linear unit takes no {other}")),
    }
    Ok(())
}

fn numbers<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    weight: f64,
    outputs: &mut [f64],
    number: impl Fn(T::Native) -> f64,
) {
    let array = column.as_primitive::<T>();
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => {
            for (output, value) in outputs.iter_mut().zip(array.values()) {
                *output += weight * number(*value);
            }
        }
        Some(nulls) => {
            for ((output, value), is_valid) in outputs.iter_mut().zip(array.values()).zip(nulls) {
                if is_valid {
                    *output += weight * number(*value);
                }
            }
        }
    }
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>, weight: f64, outputs: &mut [f64]) {
    for (output, value) in outputs.iter_mut().zip(values) {
        let bytes: u64 = value.unwrap_or("").bytes().map(u64::from).sum();
        *output += weight * bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Date32Array, Decimal64Array, Int32Array, StringArray, StringViewArray};
    use std::sync::Arc;

    #[test]
    fn the_output_is_the_weighted_sum() {
        let texts = [Some("ab"), None, Some("")];
        let columns = |texts: ArrayRef| -> Vec<ArrayRef> {
            let prices = Decimal64Array::from(vec![Some(100), Some(7), None]);
            vec![
                Arc::new(Int32Array::from(vec![1, 2, 3])),
                Arc::new(prices.with_precision_and_scale(6, 2).unwrap()),
                Arc::new(Date32Array::from(vec![10, 20, 30])),
                texts,
            ]
        };
        for texts in [Arc::new(StringArray::from_iter(texts)) as ArrayRef, Arc::new(StringViewArray::from_iter(texts))]
        {
            let columns = columns(texts);
            let mut unit = LinearUnit::new(vec![1.0, 0.5, 2.0, 1.0]);
            unit.add(&columns).unwrap();
            let output = 6.0 + 53.5 + 120.0 + f64::from(b'a' + b'b');
            assert_eq!(unit.totals(), Totals { rows: 3, keys: 6, output });
            unit.add(&columns).unwrap();
            assert_eq!(unit.totals(), Totals { rows: 6, keys: 12, output: 2.0 * output });
            assert!(unit.add(&columns[1..]).is_err());
            // The mean of the three dates is 20.
            assert_eq!(LinearUnit::fitting_weights(&columns).unwrap()[2], 0.05);
        }
    }
}
