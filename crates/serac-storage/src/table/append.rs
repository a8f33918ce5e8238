//! Filling block columns from Arrow arrays: the bulk load path.
//!
//! Besides a column's own Arrow type, forms that convert without loss are taken. They are strings
//! and binaries with offsets or as views, dictionaries of strings with 32-bit keys, and decimals of
//! 64 or 128 bits and the same scale. [`accepts`] has the list.

use crate::block::HotBlock;
use crate::block::view::{ArrowView, INLINE_BYTES, check_len, view_len};
use crate::error::{Result, StorageError};
use crate::ids::ColumnId;
use crate::types::{ColumnType, PhysicalType, TableSchema};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal64Type, Decimal128Type, Int32Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::BooleanBuffer;
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
        ColumnType::Json | ColumnType::JsonText => matches!(data_type, DataType::Utf8 | DataType::Utf8View),
        ColumnType::Binary => matches!(data_type, DataType::Binary | DataType::LargeBinary),
        ColumnType::Numeric => matches!(data_type, DataType::Binary | DataType::BinaryView),
        ColumnType::Decimal { scale, .. } => {
            matches!(data_type, DataType::Decimal128(_, s) | DataType::Decimal64(_, s) if *s == scale)
        }
        _ => false,
    }
}

/// Checks that `batch` has the columns of `schema` and that its values fit them, before any change.
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
        if let ColumnType::Decimal { precision, .. } = column.column_type {
            check_decimals(precision, array)?;
        }
        check_len(longest(array))?;
    }
    Ok(())
}

fn check_decimals(precision: u8, array: &ArrayRef) -> Result<()> {
    let limit = 10u128.pow(u32::from(precision));
    // The value in a NULL slot does not matter.
    let is_too_long = |(i, value): (usize, i128)| value.unsigned_abs() >= limit && array.is_valid(i);
    let any_is = match array.as_primitive_opt::<Decimal128Type>() {
        Some(values) => values.values().iter().copied().enumerate().any(is_too_long),
        None => decimals64(array).enumerate().any(is_too_long),
    };
    if any_is {
        return Err(StorageError::InvalidInput(format!("a decimal has more than {precision} digits")));
    }
    Ok(())
}
fn decimals64(array: &ArrayRef) -> impl Iterator<Item = i128> {
    array.as_primitive::<Decimal64Type>().values().iter().map(|&value| value.into())
}

/// The length of the longest text or binary value in an array, or more if NULL slots have bytes.
fn longest(array: &ArrayRef) -> usize {
    fn by_offsets<T: Copy + Into<i64>>(offsets: &[T]) -> usize {
        offsets.array_windows().map(|[from, to]| ((*to).into() - (*from).into()) as usize).max().unwrap_or(0)
    }
    let by_views = |views: &[ArrowView]| views.iter().map(|&view| view_len(view)).max().unwrap_or(0);
    match array.data_type() {
        DataType::Utf8 => by_offsets(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => by_offsets(array.as_string::<i64>().value_offsets()),
        DataType::Utf8View => by_views(array.as_string_view().views()),
        DataType::Binary => by_offsets(array.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => by_offsets(array.as_binary::<i64>().value_offsets()),
        DataType::BinaryView => by_views(array.as_binary_view().views()),
        DataType::Dictionary(..) => longest(array.as_dictionary::<Int32Type>().values()),
        _ => 0,
    }
}

/// Fills the slots from `from` on with the rows of `batch` (checked by [`check_batch`]) and sets
/// their allocation bits. Slots that had rows before hold nothing of them afterwards.
///
/// # Safety
/// No other thread may access the values of these slots while the call lasts. Bitmaps are written
/// by atomic stores: their words have the bits of other slots, too.
pub(crate) unsafe fn fill(block: &HotBlock, schema: &TableSchema, from: u32, batch: &RecordBatch) {
    assert!(from as usize + batch.num_rows() <= block.layout().slot_count() as usize, "the rows fit the block");
    for (i, array) in batch.columns().iter().enumerate() {
        // SAFETY: by the caller's promise.
        unsafe { fill_column(block, ColumnId(i as u16), schema.columns[i].column_type, from, array) };
    }
    // Last: a reader that finds a row finds its values.
    block.set_present_range(from, batch.num_rows() as u32);
}

/// The bits of `bits`, 64 at a time from a given number on; bits behind the last have no meaning.
fn words(bits: &BooleanBuffer) -> impl Fn(u32) -> u64 {
    let (bytes, offset) = (bits.values(), bits.offset());
    move |from| {
        let at = offset + from as usize;
        let mut word = [0; 16];
        // 64 bits that do not begin with a byte lie in nine.
        let there = &bytes[at / 8..bytes.len().min(at / 8 + 9)];
        word[..there.len()].copy_from_slice(there);
        (u128::from_le_bytes(word) >> (at % 8)) as u64
    }
}

unsafe fn fill_column(block: &HotBlock, id: ColumnId, column_type: ColumnType, first: u32, array: &ArrayRef) {
    let column = *block.layout().column(id);
    let (from, rows) = (first as usize, array.len());
    match array.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => {
            block.note_null(id);
            block.write_bits(column.validity_offset, first, rows as u32, words(nulls.inner()));
        }
        // All validity bits of a column without NULLs are set.
        None if block.may_have_nulls(id) => block.write_bits(column.validity_offset, first, rows as u32, |_| u64::MAX),
        None => {}
    }
    match column.physical {
        PhysicalType::Bit => {
            block.write_bits(column.value_offset, first, rows as u32, words(array.as_boolean().values()));
        }
        PhysicalType::Fixed(width) => {
            let width = width as usize;
            // SAFETY: by the caller's promise; the range is the column's own.
            let target = unsafe { block.exclusive(column.value_offset + from * width, rows * width) };
            match column_type {
                ColumnType::Decimal { .. } => fill_decimals(target, width, array),
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
            }
        }
    }
}

/// The value bytes of a fixed-size binary array, restricted to a slice.
trait ValueDataRange {
    fn value_data_range(&self) -> &[u8];
}
impl ValueDataRange for arrow_array::FixedSizeBinaryArray {
    fn value_data_range(&self) -> &[u8] {
        let width = self.value_length() as usize;
        &self.value_data()[..self.len() * width]
    }
}

fn fill_decimals(target: &mut [u8], width: usize, array: &ArrayRef) {
    let put = |(target, value): (&mut [u8], i128)| target.copy_from_slice(&value.to_le_bytes()[..width]);
    let targets = target.chunks_exact_mut(width);
    match array.as_primitive_opt::<Decimal128Type>() {
        Some(values) => targets.zip(values.values().iter().copied()).for_each(put),
        None => targets.zip(decimals64(array)).for_each(put),
    }
}

fn fill_views<T: AsRef<[u8]>>(
    block: &HotBlock,
    column: ColumnId,
    target: &mut [u8],
    values: impl Iterator<Item = Option<T>>,
) {
    let values: Vec<Option<T>> = values.collect();
    let values = || values.iter().map(|value| value.as_ref().map(AsRef::as_ref));
    let heap_bytes = values().flatten().map(<[u8]>::len).filter(|len| *len > INLINE_BYTES).sum();
    let mut views = target.chunks_exact_mut(16);
    block.heap().append_all(column, heap_bytes, values(), |view: Option<ArrowView>| {
        views.next().expect("a view for every value").copy_from_slice(&view.unwrap_or(0).to_le_bytes());
    });
}

#[cfg(test)]
mod tests {
    use crate::block::HotBlock;
    use crate::block::layout::BlockLayout;
    use crate::durability::storage::{RecoveryCatalog, Storage, StorageOptions};
    use crate::types::{ColumnSchema, ColumnType, TableSchema};
    use crate::version::transaction::TransactionManager;
    use crate::{BlockNo, ColumnId, DataTable, RowBuffer, RowId, Slot, StorageError, TableId, Timestamp, Value};
    use arrow_array::{ArrayRef, BooleanArray, Decimal128Array, RecordBatch};
    use std::sync::Arc;

    fn table(column_type: ColumnType) -> Arc<DataTable> {
        let column = ColumnSchema { name: "c".into(), column_type, nullable: true };
        DataTable::new(TableId(1), "t", TableSchema { columns: vec![column] }).unwrap()
    }

    fn batch(array: impl arrow_array::Array + 'static) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable([("c", Arc::new(array) as ArrayRef, true)]).unwrap()
    }

    /// A block number that was recycled: recovery fills slots that held other rows.
    #[test]
    fn recovery_leaves_nothing_of_the_rows_that_a_slot_held_before() {
        let (table, manager) = (table(ColumnType::Boolean), TransactionManager::new(Timestamp(0), None));
        let row = |slot: u32| RowId::new(BlockNo(0), Slot(slot));
        // Appended at places that begin and end within words, and within the arrays' bytes.
        let append = |from: u32, values: Vec<Option<bool>>| {
            let array = BooleanArray::from([vec![None; 3], values].concat());
            table.recover_append(row(from), &batch(array.slice(3, array.len() - 3))).unwrap();
        };
        append(5, vec![Some(true); 500]);
        (5..505).for_each(|slot| table.recover_delete(row(slot)).unwrap());
        let third = |slot: u32| (!slot.is_multiple_of(3)).then_some(slot.is_multiple_of(5));
        append(70, (70..300).map(third).collect());
        append(300, vec![Some(false); 100]);
        let (txn, mut read) = (manager.begin(), RowBuffer::default());
        for slot in 0..600 {
            let there = table.read(txn.snapshot(), row(slot), &[ColumnId(0)], &mut read).unwrap();
            assert_eq!(there, (70..400).contains(&slot), "slot {slot}");
            let expected = if slot < 300 { third(slot) } else { Some(false) };
            assert!(!there || read.value(0) == expected.map_or(Value::Null, Value::Bool), "slot {slot}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_before_there_is_a_block_for_it() {
        let decimal = ColumnType::Decimal { precision: 38, scale: 2 };
        let (table, manager) = (table(decimal), TransactionManager::new(Timestamp(0), None));
        let values = |last: i128| {
            let array = Decimal128Array::from(vec![Some(5), None, Some(last)]);
            batch(array.with_precision_and_scale(38, 2).unwrap())
        };
        for too_long in [i128::MIN, -10i128.pow(38), 10i128.pow(38), i128::MAX] {
            let mut txn = manager.begin();
            let refused = table.append(&mut txn, &values(too_long));
            assert!(matches!(refused, Err(StorageError::InvalidInput(_))), "{too_long}: {refused:?}");
            txn.commit().unwrap();
            assert_eq!(table.block_count(), 0, "{too_long}");
        }
        let mut txn = manager.begin();
        table.append(&mut txn, &values(1 - 10i128.pow(38))).unwrap();
        txn.commit().unwrap();
        table.verify();
    }

    /// Its record in the log would be too long.
    #[test]
    fn a_block_that_was_made_for_refused_rows_is_recycled() {
        struct NoCatalog;
        impl RecoveryCatalog for NoCatalog {
            fn restore(&mut self, _: &Storage, _: &str) -> crate::Result<()> {
                Ok(())
            }

            fn apply_meta(&mut self, _: &Storage, _: &[u8]) -> crate::Result<()> {
                Ok(())
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().to_owned());
        let options = StorageOptions { path, gc_threads: 0, freeze_after: None, ..Default::default() };
        let (storage, _) = Storage::open(options, &mut NoCatalog).unwrap();
        let schema = table(ColumnType::Utf8).schema().clone();
        let table = storage.create_table(TableId(1), "t", schema).unwrap();
        let long = |rows: usize| batch(arrow_array::StringArray::from_iter_values(vec!["x".repeat(10_000); rows]));
        for commits in [true, false] {
            let mut txn = storage.begin();
            // Other rows are in a block of their own.
            table.append(&mut txn, &long(3)).unwrap();
            txn.savepoint();
            assert!(matches!(table.append(&mut txn, &long(200)), Err(StorageError::Limit(_))));
            if commits {
                txn.commit().unwrap().wait().unwrap();
            } else {
                txn.abort();
            }
            table.verify();
            let (frozen, blocks) = storage.freeze_table(&table, std::time::Duration::from_secs(2));
            assert_eq!((frozen, blocks), (1, 1), "the transaction commits: {commits}");
        }
        storage.close().unwrap();
    }

    /// For Miri: the words with the bits of slots that are filled have bits that others read.
    #[test]
    fn neighbours_are_read_while_slots_are_filled() {
        let schema = table(ColumnType::Boolean).schema().clone();
        let block = HotBlock::new(Arc::new(BlockLayout::new(&schema).unwrap()), BlockNo(0));
        let rows = |count: usize| batch(BooleanArray::from([vec![Some(true); count], vec![None]].concat()));
        // SAFETY: no other thread has the block.
        unsafe { super::fill(&block, &schema, 0, &rows(2)) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20 {
                    let cells = [0, 1, 2].map(|slot| block.read_cell(ColumnId(0), Slot(slot)));
                    assert!(cells.map(|cell| (cell.null, cell.bits)).starts_with(&[(false, 1), (false, 1)]));
                    assert!(cells[2].null && block.is_present(Slot(2)));
                    std::thread::yield_now();
                }
            });
            // SAFETY: the other thread looks at other slots.
            (0..5).for_each(|i| unsafe { super::fill(&block, &schema, 3 + 10 * i, &rows(9)) });
        });
        assert!((0..53).all(|slot| block.is_present(Slot(slot))) && !block.is_present(Slot(53)));
    }
}
