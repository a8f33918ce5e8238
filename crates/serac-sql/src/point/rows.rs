//! The rows of a point statement, value by value.

use crate::error::Result;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::SchemaRef;
use serac_engine::values::{OwnedValue, array_of};
use serac_storage::{ColumnType, Value};
use std::ops::Range;

#[derive(Clone, Debug)]
enum Stored {
    Fixed(Value<'static>),
    Bytes(Range<usize>),
}

/// Rows of some columns, in the storage's physical form ([`Value`]). Used again from statement to statement, it allocates nothing in the long run.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    width: usize,
    count: usize,
    values: Vec<Stored>,
    bytes: Vec<u8>,
}

impl Rows {
    /// Rows.
    pub fn len(&self) -> usize {
        self.count
    }
    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// Columns of each row.
    pub fn width(&self) -> usize {
        self.width
    }
    /// The value in a row and a column.
    ///
    /// # Panics
    /// When there is no such row or column.
    pub fn value(&self, row: usize, column: usize) -> Value<'_> {
        assert!(column < self.width, "column {column} of {}", self.width);
        match &self.values[row * self.width + column] {
            Stored::Fixed(value) => *value,
            Stored::Bytes(range) => Value::Bytes(&self.bytes[range.clone()]),
        }
    }
    /// The values of a row.
    pub fn row(&self, row: usize) -> impl ExactSizeIterator<Item = Value<'_>> {
        (0..self.width).map(move |column| self.value(row, column))
    }

    pub(super) fn clear(&mut self, width: usize) {
        self.width = width;
        self.count = 0;
        self.values.clear();
        self.bytes.clear();
    }
    /// Adds a value to the row that is being built.
    pub(super) fn push(&mut self, value: Value<'_>) {
        self.values.push(match value {
            Value::Bytes(bytes) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                Stored::Bytes(start..self.bytes.len())
            }
            Value::Null => Stored::Fixed(Value::Null),
            Value::Bool(v) => Stored::Fixed(Value::Bool(v)),
            Value::Int16(v) => Stored::Fixed(Value::Int16(v)),
            Value::Int32(v) => Stored::Fixed(Value::Int32(v)),
            Value::Int64(v) => Stored::Fixed(Value::Int64(v)),
            Value::Int128(v) => Stored::Fixed(Value::Int128(v)),
            Value::Float32(v) => Stored::Fixed(Value::Float32(v)),
            Value::Float64(v) => Stored::Fixed(Value::Float64(v)),
        });
    }
    /// Ends a row.
    pub(super) fn end_row(&mut self) {
        self.count += 1;
        debug_assert_eq!(self.values.len(), self.count * self.width, "a value for each column");
    }
    /// Brings the rows into the order of `order`, and leaves out those that are not in it.
    pub(super) fn reorder(&mut self, order: &[usize]) {
        let width = self.width;
        self.values = order.iter().flat_map(|&row| self.values[row * width..(row + 1) * width].to_vec()).collect();
        self.count = order.len();
    }
    /// Leaves the first `width` columns.
    pub(super) fn narrow(&mut self, width: usize) {
        if width < self.width {
            let old = self.width;
            let mut at = 0;
            self.values.retain(|_| {
                at += 1;
                (at - 1) % old < width
            });
            self.width = width;
        }
    }

    /// The rows as a batch of `schema`, whose columns have these types in the storage.
    pub(super) fn batch(&self, schema: &SchemaRef, types: &[ColumnType]) -> Result<RecordBatch> {
        let column = |(i, column_type): (usize, &ColumnType)| -> Result<ArrayRef> {
            let values: Vec<OwnedValue> = (0..self.count).map(|row| OwnedValue::from(&self.value(row, i))).collect();
            let array = array_of(&values, *column_type);
            let wanted = schema.field(i).data_type();
            Ok(if array.data_type() == wanted { array } else { cast(&array, wanted)? })
        };
        let columns = types.iter().enumerate().map(column).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
    }
}
