//! Slices of columns whose memory is counted as what they are.
//!
//! A slice of Arrow keeps the buffers of the whole, and operators count the capacity of these: the
//! slices of a frame together would count as its square. The buffer of a narrow column ends where
//! its values end, and keeps the whole alive.

use datafusion::arrow::array::types::ByteViewType;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, GenericByteViewArray, make_array};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::DataType;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::Arc;

/// A part of a buffer that counts as its own bytes, without a copy. `bytes` is not 0.
fn part(whole: &Buffer, from: usize, bytes: usize) -> Buffer {
    let part = whole.slice_with_length(from, bytes);
    let start = NonNull::new(part.as_ptr().cast_mut()).expect("the part has bytes");
    // SAFETY: `part` has `bytes` bytes from `start` on, which nobody changes, and the new buffer
    // keeps it.
    unsafe { Buffer::from_custom_allocation(start, bytes, Arc::new(part)) }
}

fn bits(of: &BooleanBuffer) -> BooleanBuffer {
    BooleanBuffer::collect_bool(of.len(), |at| of.value(at))
}

fn nulls(of: &dyn Array) -> Option<NullBuffer> {
    of.nulls().map(|nulls| NullBuffer::new(bits(nulls.inner())))
}

/// A column of views, and the bytes to which they point, which are copied if there are far more.
fn views<T: ByteViewType>(column: &GenericByteViewArray<T>) -> GenericByteViewArray<T> {
    let bytes: usize = column.data_buffers().iter().map(Buffer::capacity).sum();
    if bytes > 2 * column.total_buffer_bytes_used() {
        // The views are made anew, too.
        return column.gc();
    }
    let views = part(column.views().inner(), 0, column.len() * size_of::<u128>());
    let views = ScalarBuffer::new(views, 0, column.len());
    // SAFETY: the views and the bytes are those of the column.
    unsafe { GenericByteViewArray::new_unchecked(views, column.data_buffers().to_vec(), nulls(column)) }
}

/// The same column, with buffers that count as what it needs of them. Values of a fixed length are
/// not copied. Columns of nested types stay as they are.
pub(crate) fn narrow(column: &ArrayRef) -> ArrayRef {
    if column.is_empty() {
        return column.clone();
    }
    match column.data_type() {
        DataType::Boolean => Arc::new(BooleanArray::new(bits(column.as_boolean().values()), nulls(column))),
        DataType::Utf8View => Arc::new(views(column.as_string_view())),
        DataType::BinaryView => Arc::new(views(column.as_binary_view())),
        other => match other.primitive_width() {
            Some(width) => {
                let data = column.to_data();
                let values = part(&data.buffers()[0], data.offset() * width, data.len() * width);
                let narrow = data.into_builder().offset(0).buffers(vec![values]).nulls(nulls(column));
                make_array(narrow.build().expect("the values are the column's"))
            }
            None => column.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int64Array, StringViewArray, TimestampMicrosecondArray};

    /// Slices of a column are the same narrow, and count together as about the column.
    fn check(column: ArrayRef) {
        let (length, mut counted) = (column.len(), 0);
        for from in (0..length).step_by(1_000) {
            let slice = column.slice(from, 1_000.min(length - from));
            let narrow = narrow(&slice);
            assert_eq!(&narrow, &slice);
            narrow.to_data().validate_full().unwrap();
            counted += narrow.get_array_memory_size();
        }
        let whole = column.get_array_memory_size();
        assert!(counted < 2 * whole + 1_000, "{counted} bytes of {whole}: {}", column.data_type());
    }

    #[test]
    fn slices_count_as_what_they_are() {
        let numbers = |row: i64| (row % 7 != 0).then_some(row);
        check(Arc::new((0..50_500).map(numbers).collect::<Int64Array>()));
        check(Arc::new((3..50_500).map(numbers).collect::<Int64Array>().slice(3, 50_003)));
        check(Arc::new((0..50_500).map(numbers).collect::<TimestampMicrosecondArray>().with_timezone("UTC")));
        check(Arc::new((0..50_500).map(|row| numbers(row).map(|row| row % 2 == 0)).collect::<BooleanArray>()));
        let texts = (0..50_500).map(|row| numbers(row).map(|row| format!("a text of more than a view: {row}")));
        check(Arc::new(texts.collect::<StringViewArray>()));
        check(Arc::new((0..50_500).map(|row| Some(row.to_string())).collect::<StringViewArray>()));
    }

    #[test]
    fn numbers_are_not_copied() {
        let column = Int64Array::from_iter_values(0..5_000);
        let slice: ArrayRef = Arc::new(column.slice(1_000, 500));
        drop(column);
        let narrow = narrow(&slice);
        assert_eq!(narrow.to_data().buffers()[0].as_ptr(), slice.to_data().buffers()[0].as_ptr());
        drop(slice);
        assert_eq!(narrow.as_primitive::<datafusion::arrow::datatypes::Int64Type>().value(499), 1_499);
    }
}
