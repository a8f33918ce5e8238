//! The places of columns and bitmaps inside a block (§3.2).
//!
//! A block is PAX: all columns of its rows lie within one 1 MiB piece of memory. The layout is
//! computed once per table:
//!
//! ```text
//! | allocation bitmap | column 0: validity, values | column 1: validity, values | …
//! ```
//!
//! The paper has the version column in the block; here it lies outside ([`crate::block`]). A frozen
//! block has no version column, so nearly all of the memory that it keeps is values, and huge pages
//! stay whole.
//!
//! Every region starts at a multiple of 64 bytes, and bitmaps are whole 64-bit words: each can be
//! lent out as an Arrow buffer.

use crate::error::{Result, StorageError};
use crate::ids::{BLOCK_BYTES, ColumnId, MAX_SLOTS_PER_BLOCK};
use crate::types::{ColumnType, PhysicalType, TableSchema};
use crate::value::Value;

/// Regions start at multiples of this many bytes (Arrow's recommended alignment).
pub const REGION_ALIGNMENT: usize = 64;
/// The offset of a block's allocation bitmap.
pub const ALLOCATION_OFFSET: usize = 0;
/// A table has at most this many columns.
pub const MAX_COLUMNS: usize = 1_600;

/// The kind of [`Value`] that a column has, with the width in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Bool,
    Int(u8),
    Float(u8),
    Bytes,
}

impl ValueKind {
    pub fn of(column_type: ColumnType) -> Self {
        match (column_type.physical(), column_type) {
            (PhysicalType::Bit, _) => Self::Bool,
            (PhysicalType::Fixed(width), ColumnType::Float32 | ColumnType::Float64) => Self::Float(width),
            (PhysicalType::Fixed(width), _) => Self::Int(width),
            (PhysicalType::View, _) => Self::Bytes,
        }
    }
}

/// A column's offsets in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnLayout {
    /// Physical form.
    pub physical: PhysicalType,
    /// The kind of [`Value`] that a read of the column returns.
    pub(crate) kind: ValueKind,
    /// Byte offset of the validity bitmap from the head of the block.
    pub validity_offset: usize,
    /// Byte offset of the values from the head of the block.
    pub value_offset: usize,
}

/// The layout that all blocks of one table share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockLayout {
    slot_count: u32,
    columns: Vec<ColumnLayout>,
    used_bytes: usize,
    /// The position of the last column of variable length plus one; 0 if there is no such column.
    heap_columns: usize,
}

const fn align(bytes: usize) -> usize {
    bytes.div_ceil(REGION_ALIGNMENT) * REGION_ALIGNMENT
}

/// Bytes of a bitmap of `slots` bits, in whole 64-bit words.
pub(crate) const fn bitmap_bytes(slots: usize) -> usize {
    slots.div_ceil(64) * 8
}

/// Bytes of the values of `slots` slots.
pub(crate) const fn value_bytes(physical: PhysicalType, slots: usize) -> usize {
    match physical {
        PhysicalType::Bit => bitmap_bytes(slots),
        PhysicalType::Fixed(width) => width as usize * slots,
        PhysicalType::View => 16 * slots,
    }
}

impl BlockLayout {
    /// The layout with as many slots as fit.
    ///
    /// # Errors
    /// [`StorageError::Limit`] when the table has more than [`MAX_COLUMNS`] columns.
    pub fn new(schema: &TableSchema) -> Result<Self> {
        let types: Vec<_> = schema.columns.iter().map(|c| c.column_type).collect();
        if types.len() > MAX_COLUMNS {
            return Err(StorageError::Limit(format!("a table can have at most {MAX_COLUMNS} columns")));
        }
        // The size grows with the slots, so the largest count that fits can be searched for by
        // halving.
        let most = serac_sync::limit("slots of a block", u64::from(MAX_SLOTS_PER_BLOCK), 16) as usize;
        let (mut fits, mut too_many) = (0, most + 1);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if Self::with_slots(&types, middle).used_bytes <= BLOCK_BYTES {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        debug_assert!(fits >= 1, "{MAX_COLUMNS} columns of 16 bytes fit at least once");
        Ok(Self::with_slots(&types, fits))
    }

    fn with_slots(types: &[ColumnType], slots: usize) -> Self {
        let mut end = align(bitmap_bytes(slots));
        let columns: Vec<_> = types
            .iter()
            .map(|&column_type| {
                let physical = column_type.physical();
                let validity_offset = end;
                let value_offset = align(validity_offset + bitmap_bytes(slots));
                end = align(value_offset + value_bytes(physical, slots));
                ColumnLayout { physical, kind: ValueKind::of(column_type), validity_offset, value_offset }
            })
            .collect();
        let is_view = |column: &ColumnLayout| column.physical == PhysicalType::View;
        let heap_columns = columns.iter().rposition(is_view).map_or(0, |last| last + 1);
        Self { slot_count: slots as u32, columns, used_bytes: end, heap_columns }
    }

    /// Slots of a block.
    pub fn slot_count(&self) -> u32 {
        self.slot_count
    }

    /// Bytes of a bitmap with a bit for every slot.
    pub fn bitmap_bytes(&self) -> usize {
        bitmap_bytes(self.slot_count as usize)
    }

    /// Bytes of the block that the layout uses.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Whether there is a column of variable length.
    #[inline]
    pub fn has_views(&self) -> bool {
        self.heap_columns > 0
    }

    /// The columns up to the last one of variable length: so many may have values in a heap.
    pub(crate) fn heap_columns(&self) -> usize {
        self.heap_columns
    }

    /// The columns, by column id.
    pub fn columns(&self) -> &[ColumnLayout] {
        &self.columns
    }

    /// The columns' ids.
    pub fn column_ids(&self) -> impl Iterator<Item = ColumnId> + use<> {
        (0..self.columns.len() as u16).map(ColumnId)
    }

    /// One column.
    #[inline]
    pub fn column(&self, column: ColumnId) -> &ColumnLayout {
        &self.columns[column.0 as usize]
    }

    /// Bytes of a column's values in a block, without its heap.
    pub fn value_bytes(&self, column: ColumnId) -> usize {
        value_bytes(self.column(column).physical, self.slot_count as usize)
    }

    /// Checks that `value` can be stored in `column`.
    ///
    /// # Errors
    /// [`StorageError::InvalidInput`] for a variant that does not fit the physical type,
    /// [`StorageError::Limit`] for too many bytes.
    #[inline]
    pub fn check_value(&self, column: ColumnId, value: &Value<'_>) -> Result<()> {
        let physical = self.column(column).physical;
        match (physical, value) {
            (_, Value::Null)
            | (PhysicalType::Bit, Value::Bool(_))
            | (PhysicalType::Fixed(2), Value::Int16(_))
            | (PhysicalType::Fixed(4), Value::Int32(_) | Value::Float32(_))
            | (PhysicalType::Fixed(8), Value::Int64(_) | Value::Float64(_))
            | (PhysicalType::Fixed(16), Value::Int128(_)) => Ok(()),
            (PhysicalType::View, Value::Bytes(bytes)) => crate::block::view::check_len(bytes.len()),
            _ => Err(StorageError::InvalidInput(format!(
                "{value:?} does not fit column {} of physical type {physical:?}",
                column.0
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ColumnSchema, ColumnType};
    use proptest::prelude::*;

    fn any_type() -> impl Strategy<Value = ColumnType> {
        prop_oneof![
            Just(ColumnType::Boolean),
            Just(ColumnType::Int16),
            Just(ColumnType::Int32),
            Just(ColumnType::Float64),
            (1u8..=38).prop_map(|precision| ColumnType::Decimal { precision, scale: 0 }),
            Just(ColumnType::Interval),
            Just(ColumnType::Utf8),
        ]
    }

    fn schema(types: &[ColumnType]) -> TableSchema {
        TableSchema {
            columns: types
                .iter()
                .enumerate()
                .map(|(i, &column_type)| ColumnSchema { name: format!("c{i}"), column_type, nullable: true })
                .collect(),
        }
    }

    proptest! {
        #[test]
        fn regions_fit_are_aligned_and_do_not_overlap(types in prop::collection::vec(any_type(), 0..80)) {
            let layout = BlockLayout::new(&schema(&types)).unwrap();
            let slots = layout.slot_count() as usize;
            prop_assert!(slots >= 1 && slots <= MAX_SLOTS_PER_BLOCK as usize);
            let mut regions = vec![(ALLOCATION_OFFSET, bitmap_bytes(slots))];
            for column in layout.columns() {
                regions.push((column.validity_offset, bitmap_bytes(slots)));
                regions.push((column.value_offset, value_bytes(column.physical, slots)));
            }
            for pair in regions.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?} overlap");
            }
            prop_assert!(regions.iter().all(|r| r.0 % REGION_ALIGNMENT == 0));
            let last = regions.last().unwrap();
            prop_assert!(last.0 + last.1 <= BLOCK_BYTES);
            // One more slot would not fit.
            prop_assert!(slots == MAX_SLOTS_PER_BLOCK as usize
                || BlockLayout::with_slots(&types, slots + 1).used_bytes > BLOCK_BYTES);
        }
    }

    #[test]
    fn the_widest_table_has_rows_and_a_wider_one_is_refused() {
        let widest = BlockLayout::new(&schema(&vec![ColumnType::Interval; MAX_COLUMNS])).unwrap();
        assert!(widest.slot_count() >= 1);
        assert!(matches!(
            BlockLayout::new(&schema(&vec![ColumnType::Int16; MAX_COLUMNS + 1])),
            Err(StorageError::Limit(_))
        ));
    }
}
