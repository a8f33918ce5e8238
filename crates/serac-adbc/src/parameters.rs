//! Rows of parameters, in the columns in which they came until a row is executed.

use crate::error::Result;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, TimeUnit};
use arrow::error::ArrowError;
use serac_connection::validated;
use seracdb::ScalarValue;

/// The type in which a parameter is given for one that SQL does not have. In the engine
/// `LargeBinary` holds numbers.
fn of_sql(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Dictionary(_, values) => of_sql(values).unwrap_or_else(|| values.as_ref().clone()),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(TimeUnit::Nanosecond) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(unit, zone) if *unit != TimeUnit::Microsecond => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        _ => return None,
    })
}

fn column(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    match of_sql(array.data_type()) {
        Some(wanted) => cast_with_options(array, &wanted, &options),
        None => Ok(array.clone()),
    }
}

/// The rows that a caller has bound.
pub struct BoundRows {
    reader: Box<dyn RecordBatchReader + Send>,
    columns: Vec<ArrayRef>,
    rows: usize,
    at: usize,
}

impl BoundRows {
    /// The rows of a reader.
    pub fn new(reader: Box<dyn RecordBatchReader + Send>) -> Self {
        Self { reader, columns: Vec::new(), rows: 0, at: 0 }
    }

    /// The next row.
    ///
    /// # Errors
    /// The error of the reader, or of a value that is none or that SQL does not have.
    pub fn next(&mut self) -> Result<Option<Vec<ScalarValue>>, ArrowError> {
        while self.at == self.rows {
            let Some(batch) = self.reader.next().transpose()? else { return Ok(None) };
            let batch = validated(batch)?;
            self.columns = batch.columns().iter().map(column).collect::<Result<_, _>>()?;
            (self.rows, self.at) = (RecordBatch::num_rows(&batch), 0);
        }
        let row = self.columns.iter().map(|column| ScalarValue::try_from_array(column, self.at));
        let row = row.collect::<Result<_, _>>().map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
        self.at += 1;
        Ok(Some(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{DictionaryArray, Int32Array, RecordBatchIterator, StringViewArray};
    use arrow::datatypes::Int8Type;
    use std::sync::Arc;

    #[test]
    fn rows_come_in_order_in_types_of_sql() {
        let names: DictionaryArray<Int8Type> = ["a", "b", "a"].into_iter().collect();
        let batch = |from: usize, rows: usize| {
            let columns: [(&str, ArrayRef); 3] = [
                ("number", Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]))),
                ("name", Arc::new(names.clone())),
                ("text", Arc::new(StringViewArray::from(vec!["x", "y", "z"]))),
            ];
            RecordBatch::try_from_iter(columns).unwrap().slice(from, rows)
        };
        let batches = [batch(0, 2), batch(0, 0), batch(2, 1)];
        let schema = batches[0].schema();
        let mut bound = BoundRows::new(Box::new(RecordBatchIterator::new(batches.map(Ok), schema)));
        let mut rows = Vec::new();
        while let Some(row) = bound.next().unwrap() {
            rows.push(row);
        }
        let text = |text: &str| ScalarValue::Utf8(Some(text.into()));
        let row = |number, name, value| vec![ScalarValue::Int32(number), text(name), text(value)];
        assert_eq!(rows, [row(Some(1), "a", "x"), row(None, "b", "y"), row(Some(3), "a", "z")]);
        assert!(bound.next().unwrap().is_none());
    }
}
