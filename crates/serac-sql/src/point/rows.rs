//! The rows of a point statement, value by value.

use crate::error::Result;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::SchemaRef;
use serac_engine::values::{OwnedValue, array_of};
use serac_storage::{ColumnType, Value};

#[derive(Clone, Copy, Debug)]
enum Kind {
    Null,
    Bool,
    Int16,
    Int32,
    Int64,
    Int128,
    Float32,
    Float64,
    /// From where to where in the bytes.
    Bytes,
}

/// A value in two words, read as they are written: a processor stalls when it must forward a store
/// of other pieces.
#[derive(Clone, Copy, Debug)]
struct Stored {
    kind: Kind,
    low: u64,
    high: u64,
}

/// Bytes that are kept for the next statement.
const MOST_KEPT: usize = 1 << 20;

/// Rows of a list of columns, in the storage's physical form ([`Value`]). Used again from statement
/// to statement, it allocates nothing in the long run.
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
    /// If the row or column does not exist.
    #[inline]
    pub fn value(&self, row: usize, column: usize) -> Value<'_> {
        assert!(column < self.width, "column {column} of {}", self.width);
        let Stored { kind, low, high } = self.values[row * self.width + column];
        match kind {
            Kind::Null => Value::Null,
            Kind::Bool => Value::Bool(low != 0),
            Kind::Int16 => Value::Int16(low as i16),
            Kind::Int32 => Value::Int32(low as i32),
            Kind::Int64 => Value::Int64(low as i64),
            Kind::Int128 => Value::Int128((u128::from(high) << 64 | u128::from(low)) as i128),
            Kind::Float32 => Value::Float32(f32::from_bits(low as u32)),
            Kind::Float64 => Value::Float64(f64::from_bits(low)),
            Kind::Bytes => Value::Bytes(&self.bytes[low as usize..high as usize]),
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
        self.bytes.shrink_to(MOST_KEPT);
    }

    /// Leaves no rows, and gives the memory of large ones back.
    pub fn give_back(&mut self) {
        self.clear(0);
    }

    /// Adds a value to the row that is being built.
    #[inline]
    pub(super) fn push(&mut self, value: Value<'_>) {
        let (kind, low, high) = match value {
            Value::Null => (Kind::Null, 0, 0),
            Value::Bool(v) => (Kind::Bool, v.into(), 0),
            Value::Int16(v) => (Kind::Int16, v as u64, 0),
            Value::Int32(v) => (Kind::Int32, v as u64, 0),
            Value::Int64(v) => (Kind::Int64, v as u64, 0),
            Value::Int128(v) => (Kind::Int128, v as u64, (v >> 64) as u64),
            Value::Float32(v) => (Kind::Float32, v.to_bits().into(), 0),
            Value::Float64(v) => (Kind::Float64, v.to_bits(), 0),
            Value::Bytes(bytes) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                (Kind::Bytes, start as u64, self.bytes.len() as u64)
            }
        };
        self.values.push(Stored { kind, low, high });
    }

    /// Leaves the first `len` bytes of a value in a row and a column.
    pub(super) fn cut(&mut self, row: usize, column: usize, len: usize) {
        let Stored { low, high, .. } = &mut self.values[row * self.width + column];
        *high = *low + len as u64;
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

    /// The rows as a batch of `schema`, whose columns have `types` in the storage.
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
