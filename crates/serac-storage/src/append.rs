//! Filling block columns from Arrow arrays: the bulk load path.
//!
//! Besides a column's own Arrow type, forms that convert without loss are taken: plain and large strings and binaries, dictionaries of
//! strings, and 64-bit decimals of the same scale.

use crate::block::HotBlock;
use crate::error::{Result, StorageError};
use crate::heap::{INLINE_BYTES, View};
use crate::ids::ColumnId;
use crate::layout::BlockLayout;
use crate::types::{ColumnType, PhysicalType, TableSchema};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal64Type, Decimal128Type, Int32Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::bit_mask::set_bits;
use arrow_schema::DataType;

/// Whether an array of `data_type` can fill a column of `column_type`.
pub fn accepts(column_type: ColumnType, data_type: &DataType) -> bool {
    if column_type.arrow() == *data_type {
        return true;
    }
    match column_type {
        ColumnType::Utf8 => match data_type {
            DataType::Utf8 | DataType::LargeUtf8 => true,
            DataType::Dictionary(key, value) => {
                **key == DataType::Int32 && matches!(**value, DataType::Utf8 | DataType::Utf8View)
            }
            _ => false,
        },
        ColumnType::Json => matches!(data_type, DataType::Utf8 | DataType::Utf8View),
        ColumnType::Binary => matches!(data_type, DataType::Binary | DataType::LargeBinary),
        ColumnType::Decimal { scale, .. } => {
            matches!(data_type, DataType::Decimal128(_, s) | DataType::Decimal64(_, s) if *s == scale)
        }
        _ => false,
    }
}

/// Checks that `batch` has the columns of `schema`.
pub(crate) fn check_batch(schema: &TableSchema, batch: &RecordBatch) -> Result<()> {
    if batch.num_columns() != schema.columns.len() {
        return Err(StorageError::InvalidInput(format!(
            "{} columns were given for a table of {}",
            batch.num_columns(),
            schema.columns.len()
        )));
    }
    for (column, array) in schema.columns.iter().zip(batch.columns()) {
        if !accepts(column.column_type, array.data_type()) {
            return Err(StorageError::InvalidInput(format!(
                "column \"{}\" holds {}, but {} was given",
                column.name,
                column.column_type.arrow(),
                array.data_type()
            )));
        }
    }
    Ok(())
}

/// Fills the slots from `from` on with the rows of `batch` (checked by [`check_batch`]) and sets their allocation bits.
///
/// # Safety
/// Nobody else may access these slots, nor the bitmap words that hold their bits, while the call lasts.
pub(crate) unsafe fn fill(block: &HotBlock, schema: &TableSchema, from: u32, batch: &RecordBatch) -> Result<()> {
    let layout = block.layout().clone();
    assert!(from as usize + batch.num_rows() <= layout.slot_count() as usize, "the rows fit the block");
    for (i, array) in batch.columns().iter().enumerate() {
        // SAFETY: by the caller's promise.
        unsafe { fill_column(block, &layout, i, schema.columns[i].column_type, from as usize, array)? };
    }
    // Last, so that a failure above leaves no row.
    block.set_present_range(from, batch.num_rows() as u32);
    Ok(())
}

#[allow(clippy::mut_from_ref)] // as `HotBlock::exclusive`
unsafe fn bitmap<'a>(block: &'a HotBlock, layout: &BlockLayout, offset: usize) -> &'a mut [u8] {
    // SAFETY: by the caller's promise.
    unsafe { block.exclusive(offset, layout.bitmap_bytes()) }
}

fn fill_range(bits: &mut [u8], from: usize, len: usize, value: bool) {
    let (mut at, end) = (from, from + len);
    while at < end {
        if at % 8 == 0 && end - at >= 8 {
            let whole = (end - at) / 8;
            bits[at / 8..at / 8 + whole].fill(if value { u8::MAX } else { 0 });
            at += whole * 8;
        } else {
            let mask = 1 << (at % 8);
            bits[at / 8] = if value { bits[at / 8] | mask } else { bits[at / 8] & !mask };
            at += 1;
        }
    }
}

unsafe fn fill_column(
    block: &HotBlock,
    layout: &BlockLayout,
    index: usize,
    column_type: ColumnType,
    from: usize,
    array: &ArrayRef,
) -> Result<()> {
    let (column, id) = (&layout.columns()[index], ColumnId(index as u16));
    let rows = array.len();
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    if nulls.is_some() {
        block.note_null(id);
    }
    // SAFETY: by the caller's promise; the range is the column's own.
    let validity = unsafe { bitmap(block, layout, column.validity_offset) };
    match nulls {
        None => fill_range(validity, from, rows, true),
        Some(nulls) => {
            // `set_bits` only ever sets.
            fill_range(validity, from, rows, false);
            set_bits(validity, nulls.buffer().as_slice(), from, nulls.offset(), rows);
        }
    }
    match column.physical {
        PhysicalType::Bit => {
            let bits = array.as_boolean().values();
            // SAFETY: by the caller's promise; the range is the column's own.
            let target = unsafe { bitmap(block, layout, column.value_offset) };
            set_bits(target, bits.inner().as_slice(), from, bits.offset(), rows);
        }
        PhysicalType::Fixed(width) => {
            let width = width as usize;
            // SAFETY: by the caller's promise; the range is the column's own.
            let target = unsafe { block.exclusive(column.value_offset + from * width, rows * width) };
            match column_type {
                ColumnType::Decimal { precision, .. } => fill_decimals(target, width, precision, array)?,
                ColumnType::Uuid => target.copy_from_slice(array.as_fixed_size_binary().value_data_range()),
                _ => {
                    let data = array.to_data();
                    let bytes = &data.buffers()[0].as_slice()[data.offset() * width..][..rows * width];
                    target.copy_from_slice(bytes);
                }
            }
        }
        PhysicalType::View => {
            // SAFETY: by the caller's promise; the range is the column's own.
            let target = unsafe { block.exclusive(column.value_offset + from * 16, rows * 16) };
            match array.data_type() {
                DataType::Utf8 => fill_views(block, id, target, array.as_string::<i32>().iter()),
                DataType::LargeUtf8 => fill_views(block, id, target, array.as_string::<i64>().iter()),
                DataType::Utf8View => fill_views(block, id, target, array.as_string_view().iter()),
                DataType::Binary => fill_views(block, id, target, array.as_binary::<i32>().iter()),
                DataType::LargeBinary => fill_views(block, id, target, array.as_binary::<i64>().iter()),
                DataType::BinaryView => fill_views(block, id, target, array.as_binary_view().iter()),
                DataType::Dictionary(_, value) if **value == DataType::Utf8 => {
                    let strings = array.as_dictionary::<Int32Type>();
                    let strings = strings.downcast_dict::<arrow_array::StringArray>().expect("checked");
                    fill_views(block, id, target, strings.into_iter())
                }
                _ => {
                    let strings = array.as_dictionary::<Int32Type>();
                    let strings = strings.downcast_dict::<arrow_array::StringViewArray>().expect("checked");
                    fill_views(block, id, target, strings.into_iter())
                }
            }?;
        }
    }
    Ok(())
}

/// The value bytes of a fixed-size binary array, without what a slice leaves out.
trait ValueDataRange {
    fn value_data_range(&self) -> &[u8];
}
impl ValueDataRange for arrow_array::FixedSizeBinaryArray {
    fn value_data_range(&self) -> &[u8] {
        let width = self.value_length() as usize;
        &self.value_data()[..self.len() * width]
    }
}

fn fill_decimals(target: &mut [u8], width: usize, precision: u8, array: &ArrayRef) -> Result<()> {
    let limit = 10i128.pow(u32::from(precision));
    let put = |i: usize, value: i128, target: &mut [u8]| {
        if value.abs() >= limit {
            // What a NULL slot holds does not matter.
            if array.is_valid(i) {
                return Err(StorageError::InvalidInput(format!("a decimal has more than {precision} digits")));
            }
            return Ok(());
        }
        target[i * width..(i + 1) * width].copy_from_slice(&value.to_le_bytes()[..width]);
        Ok(())
    };
    if let Some(values) = array.as_primitive_opt::<Decimal128Type>() {
        values.values().iter().enumerate().try_for_each(|(i, &value)| put(i, value, target))
    } else {
        let values = array.as_primitive::<Decimal64Type>().values();
        values.iter().enumerate().try_for_each(|(i, &value)| put(i, value.into(), target))
    }
}

fn fill_views<T: AsRef<[u8]>>(
    block: &HotBlock,
    column: ColumnId,
    target: &mut [u8],
    values: impl Iterator<Item = Option<T>>,
) -> Result<()> {
    let values: Vec<Option<T>> = values.collect();
    let values = || values.iter().map(|value| value.as_ref().map(AsRef::as_ref));
    let heap_bytes = values().flatten().map(<[u8]>::len).filter(|len| *len > INLINE_BYTES).sum();
    let mut views = target.chunks_exact_mut(16);
    block.heap().append_all(column, heap_bytes, values(), |view: Option<View>| {
        views.next().expect("a view for every value").copy_from_slice(&view.unwrap_or(0).to_le_bytes());
    })
}
