//! Blocks whose values ascend: a range of values is found in them by binary search.
//!
//! The rows of a clustered table are written in the order of a column, and later changes put rows
//! elsewhere. So order is a property of a block, not of a table. A reader of a range of values
//! finds out, for each block, whether the values ascend, and the block keeps the answer:
//! ```text
//! 1. take the block's count of settlements; the block must be calm   -- see `HotBlock::settlements`
//! 2. read the values, and note whether they ascend, the smallest and the largest one
//! 3. the count must be the same, and the block calm
//! ```
//! A block is *calm* to a snapshot if none of its slots has a version and the snapshot sees the
//! bulk append that filled the block, if that is still marked. Then the snapshot sees the values in
//! place.
//!
//! **The answer holds while the count and the limit of the slots are the same and the block is
//! calm**: nobody has written meanwhile. A later search therefore reads single cells in place,
//! without versions, and looks at the count once more behind an Acquire fence. If the search has
//! read a byte of a writer, the fence pairs with the writer's Release fence. Then the writer's
//! raised count of versioned slots is seen, and the search gives no answer. A frozen block never
//! changes, and its count is always 0.

use crate::block::Block;
use crate::block::column_orders::{ColumnOrder, ColumnOrders};
use crate::error::Result;
use crate::ids::{BlockNo, ColumnId, Slot};
use crate::table::column_form::{ScanColumn, Selection};
use crate::table::data_table::{DataTable, sees_append};
use crate::table::scan::BlockReader;
use crate::types::ColumnType;
use crate::version::transaction::Snapshot;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use serac_sync::atomic::{Ordering, fence};
use serac_sync::epoch;
use std::ops::{Range, RangeInclusive};

impl Block {
    fn orders(&self) -> &ColumnOrders {
        match self {
            Self::Hot(block) => block.orders(),
            Self::Frozen(block) => block.orders(),
        }
    }

    /// The count of settlements of a block that is calm to a snapshot.
    fn settlements(&self, snapshot: &Snapshot) -> Option<u64> {
        match self {
            Self::Hot(block) => {
                let _pinned = epoch::pin();
                // SAFETY: pinned. A commit that is seen before it is durable is noted there.
                block.settlements_if(|| unsafe { sees_append(block, snapshot) })
            }
            Self::Frozen(_) => Some(0),
        }
    }

    /// An integer in a slot. If the block is hot, the caller makes sure that it has no writer.
    fn integer(&self, column: ColumnId, column_type: ColumnType, slot: u32) -> i64 {
        let bits = match self {
            Self::Hot(block) => block.read_cell(column, Slot(slot)),
            Self::Frozen(block) => block.read_cell(column, Slot(slot)),
        }
        .bits;
        match column_type {
            ColumnType::Int16 => i64::from(bits as i16),
            ColumnType::Int32 => i64::from(bits as i32),
            _ => bits as i64,
        }
    }
}

/// The smallest and the largest value, and whether they ascend.
fn order_of(array: &ArrayRef, column_type: ColumnType) -> (Option<(i64, i64)>, bool) {
    fn of<T: ArrowPrimitiveType<Native: Ord + Into<i64>>>(array: &ArrayRef) -> (Option<(i64, i64)>, bool) {
        let array = array.as_primitive::<T>();
        if array.null_count() == 0 {
            let values = &array.values()[..];
            let zone = values.iter().min().copied().zip(values.iter().max().copied());
            return (zone.map(|(min, max)| (min.into(), max.into())), values.is_sorted());
        }
        let fold = |zone: Option<(i64, i64)>, value: T::Native| {
            let value: i64 = value.into();
            Some(zone.map_or((value, value), |(min, max)| (min.min(value), max.max(value))))
        };
        (array.iter().flatten().fold(None, fold), false)
    }
    match column_type {
        ColumnType::Int16 => of::<Int16Type>(array),
        ColumnType::Int32 => of::<Int32Type>(array),
        _ => of::<Int64Type>(array),
    }
}

/// The positions, among ascending slots, of the values within the range; `value` gives the value of
/// the n-th.
fn places(count: usize, wanted: &RangeInclusive<i64>, value: impl Fn(usize) -> i64) -> Range<usize> {
    let first = |from: usize, is_before: &dyn Fn(i64) -> bool| {
        let (mut low, mut high) = (from, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(value(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    };
    let from = first(0, &|value| value < *wanted.start());
    from..first(from, &|value| value <= *wanted.end())
}

/// Adds the slots as ranges.
fn push_ranges(slots: &[u32], found: &mut Vec<Range<u32>>) {
    found.extend(slots.chunk_by(|one, other| one + 1 == *other).map(|run| run[0]..run[0] + run.len() as u32));
}

impl DataTable {
    /// Finds the rows of a block with values in a range without reading the block: adds ranges of
    /// their slots, ascending, to `found`. The rows are those that the snapshot sees.
    ///
    /// False, and nothing is added, if the range is not known: the values do not ascend and are
    /// partly within the range; the block is being written, or has versions; or the column does not
    /// hold integers. Then the block has to be read. The first question about a block reads it
    /// once.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`](crate::StorageError::Corrupt) when the block lies in a damaged
    /// file.
    pub fn find_in_order(
        &self,
        snapshot: &Snapshot,
        no: BlockNo,
        column: ColumnId,
        wanted: &RangeInclusive<i64>,
        found: &mut Vec<Range<u32>>,
    ) -> Result<bool> {
        let column_type = self.schema().columns[column.0 as usize].column_type;
        if !matches!(column_type, ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64) {
            return Ok(false);
        }
        let Some(block) = self.block(no) else { return Ok(true) };
        let Some(settlements) = block.settlements(snapshot) else { return Ok(false) };
        let read = || BlockReader::new(self.schema(), block.clone(), no, snapshot);
        let limit = block.slot_limit();
        let order = match block.orders().get(column, settlements) {
            Some(order) if order.limit == limit => order,
            _ => {
                let mut order = ColumnOrder {
                    column,
                    settlements,
                    limit,
                    is_full: limit == 0,
                    zone: None,
                    has_nulls: false,
                    ascends: true,
                };
                if let Some(mut reader) = read() {
                    let visible = reader.visible().clone();
                    let array = &reader.columns(&[ScanColumn::arrow(column)], &visible)?[0];
                    order.is_full = visible == Selection::All(limit);
                    order.has_nulls = array.null_count() > 0;
                    (order.zone, order.ascends) = order_of(array, column_type);
                }
                // Acquire: pairs with the writers' Release fence; see the module.
                fence(Ordering::Acquire);
                if block.settlements(snapshot) != Some(settlements) {
                    return Ok(false);
                }
                block.orders().put(order);
                order
            }
        };
        let Some((min, max)) = order.zone else { return Ok(true) };
        if max < *wanted.start() || min > *wanted.end() {
            return Ok(true);
        }
        let has_all = !order.has_nulls && min >= *wanted.start() && max <= *wanted.end();
        if !has_all && !order.ascends {
            return Ok(false);
        }
        if let Block::Frozen(block) = &*block {
            block.check(column)?;
        }
        let value = |slot: u32| block.integer(column, column_type, slot);
        let before = found.len();
        if order.is_full {
            let count = order.limit as usize;
            let places = if has_all { 0..count } else { places(count, wanted, |at| value(at as u32)) };
            if !places.is_empty() {
                found.push(places.start as u32..places.end as u32);
            }
        } else if let Some(reader) = read() {
            // The snapshot still sees the old state: the block was calm when its order was known.
            match reader.visible() {
                Selection::Positions(slots) => {
                    let all = 0..slots.len();
                    let places = if has_all { all } else { places(slots.len(), wanted, |at| value(slots[at])) };
                    push_ranges(&slots[places], found);
                }
                // Slots were handed out while the order was being found out, and taken since.
                Selection::All(_) => return Ok(false),
            }
        }
        // Acquire: as above.
        fence(Ordering::Acquire);
        if block.settlements(snapshot) != Some(settlements) {
            found.truncate(before);
            return Ok(false);
        }
        Ok(true)
    }
}
