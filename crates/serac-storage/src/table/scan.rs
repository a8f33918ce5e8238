//! Scanning a block: bulk copies, patched where rows have versions (§3.1, §4.1).
//!
//! A [`BlockReader`] gives the rows of one block that a snapshot sees, as Arrow arrays. It follows
//! the order of the read protocol (see [`crate::table::data_table`]) for whole columns: copy the
//! columns, Acquire fence, load the block's count of versioned slots. If it is zero, no row has a
//! version, and the copy is the truth: nothing is done per row. Otherwise the version column is
//! searched and the chains of the versioned rows alone are applied to the copy. Columns may be
//! asked for in several steps (filter columns first, the others for the survivors): each step
//! rebuilds the same snapshot.

use crate::block::layout::{ALLOCATION_OFFSET, bitmap_bytes};
use crate::block::{Block, Cell, HotBlock};
use crate::error::Result;
use crate::freeze::frozen::{ColumnDictionary, Comparison, FrozenBlock, FrozenColumn, Zone};
use crate::ids::{BlockNo, ColumnId, RowId, Slot};
use crate::table::column_form::{ColumnForm, ScanColumn, Selection};
use crate::table::column_values::{ColumnValues, gather_bits};
use crate::table::data_table::{DataTable, apply_chain, sees_append};
use crate::types::{ColumnType, PhysicalType, TableSchema};
use crate::version::chain::end_copy;
use crate::version::transaction::Snapshot;
use arrow_array::{ArrayRef, UInt64Array};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer};
use serac_sync::epoch;
use std::sync::Arc;

/// Figures of the reading of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockReadStats {
    /// Whether the block had no versioned row at any step.
    pub bulk: bool,
    /// Whether the block was frozen.
    pub frozen: bool,
    /// Versioned rows whose chains were applied, counted once per step.
    pub rows_patched: u32,
}

/// Reads one block as a snapshot sees it.
#[derive(Debug)]
pub struct BlockReader<'s> {
    schema: &'s TableSchema,
    block: Arc<Block>,
    no: BlockNo,
    snapshot: &'s Snapshot,
    limit: u32,
    visible: Selection,
    stats: BlockReadStats,
}

impl DataTable {
    /// A reader of one block as `snapshot` sees it; `None` if the block does not exist or no row in
    /// it is visible.
    pub fn read_block<'s>(&'s self, snapshot: &'s Snapshot, no: BlockNo) -> Option<BlockReader<'s>> {
        BlockReader::new(self.schema(), self.block(no)?, no, snapshot)
    }
}

impl<'s> BlockReader<'s> {
    pub(crate) fn new(schema: &'s TableSchema, block: Arc<Block>, no: BlockNo, snapshot: &'s Snapshot) -> Option<Self> {
        let limit = block.slot_limit();
        let block_is_frozen = block.frozen().is_some();
        let mut reader = Self {
            schema,
            block,
            no,
            snapshot,
            limit,
            visible: Selection::All(0),
            stats: BlockReadStats { bulk: true, frozen: block_is_frozen, rows_patched: 0 },
        };
        let block = reader.block.clone();
        reader.visible = match &*block {
            Block::Hot(block) => reader.find_visible(block)?,
            Block::Frozen(block) => match block.presence() {
                None if limit == 0 => return None,
                None => Selection::All(limit),
                Some(presence) if presence.count_set_bits() == 0 => return None,
                Some(presence) => Selection::Positions(presence.set_indices_u32().collect()),
            },
        };
        Some(reader)
    }

    /// Copies the allocation bitmap and corrects it for the snapshot; `None` if no row is visible.
    fn find_visible(&mut self, block: &HotBlock) -> Option<Selection> {
        let guard = epoch::pin();
        // A row of a marked block may have been inserted later than the bulk append. So an unseen
        // marker hides the block only if its chains do not say otherwise; the values of a block
        // that is still being filled are not touched. SAFETY: pinned by `guard`.
        let sees_append = unsafe { sees_append(block, self.snapshot) };
        let mut copied = vec![0u64; (self.limit as usize).div_ceil(64)];
        copy_words(block, ALLOCATION_OFFSET, &mut copied);
        clear_from(&mut copied, self.limit as usize);
        end_copy();
        let (mut words, unseen) = if sees_append { (copied, None) } else { (vec![0; copied.len()], Some(copied)) };
        self.for_each_versioned(block, &Selection::All(self.limit), |reader, _, slot| {
            let (word, bit) = (slot.0 as usize / 64, 1u64 << (slot.0 % 64));
            let present = unseen.as_ref().map_or(words[word], |copied| copied[word]) & bit != 0;
            // SAFETY: pinned by `guard`.
            let present = unsafe { apply_chain(block, slot, reader.snapshot, present, |_| {}) };
            words[word] = if present { words[word] | bit } else { words[word] & !bit };
        });
        drop(guard);
        let count: u32 = words.iter().map(|word| word.count_ones()).sum();
        match count {
            0 => None,
            all if all == self.limit => Some(Selection::All(all)),
            _ => Some(Selection::Positions(positions_of(&words, count as usize))),
        }
    }

    /// Calls `f` with the index in `selection` and the slot of every selected slot that has
    /// versions. The caller is pinned and has [ended](end_copy) its copies.
    fn for_each_versioned(&mut self, block: &HotBlock, selection: &Selection, mut f: impl FnMut(&Self, usize, Slot)) {
        if block.versioned().are_none_behind_copy() {
            return;
        }
        self.stats.bulk = false;
        let mut patched = 0;
        match selection {
            Selection::All(n) => {
                for slot in (0..*n).map(Slot) {
                    if !block.version_head(slot).glance().is_null() {
                        f(self, slot.0 as usize, slot);
                        patched += 1;
                    }
                }
            }
            Selection::Positions(positions) => {
                for (i, &slot) in positions.iter().enumerate() {
                    if !block.version_head(Slot(slot)).glance().is_null() {
                        f(self, i, Slot(slot));
                        patched += 1;
                    }
                }
            }
        }
        self.stats.rows_patched += patched;
    }

    /// The rows that the snapshot sees.
    pub fn visible(&self) -> &Selection {
        &self.visible
    }

    /// The block's number.
    pub fn block_no(&self) -> BlockNo {
        self.no
    }

    /// Figures of the reading so far.
    pub fn stats(&self) -> BlockReadStats {
        self.stats
    }

    /// The row ids of the selected slots.
    pub fn row_ids(&self, selection: &Selection) -> UInt64Array {
        let first = RowId::new(self.no, Slot(0)).as_u64();
        match selection {
            Selection::All(n) => (0..u64::from(*n)).map(|slot| first + slot).collect::<Vec<_>>().into(),
            Selection::Positions(positions) => {
                positions.iter().map(|&slot| first + u64::from(slot)).collect::<Vec<_>>().into()
            }
        }
    }

    /// The smallest and largest value of a column in the block, over all rows; `None` if they are
    /// not known.
    pub fn zone(&self, column: ColumnId) -> Option<Zone> {
        self.block.frozen().and_then(|block| block.zone(column))
    }

    /// Whether a column may be NULL in the block: false if it is known not to be, in any row.
    pub fn may_have_nulls(&self, column: ColumnId) -> bool {
        // Damage is reported to a reader of the values.
        let block = self.block.frozen().filter(|block| block.check(column).is_ok());
        block.is_none_or(|block| block.column(column).has_nulls())
    }

    /// A column's codes and words, in a frozen block that keeps it as a dictionary.
    pub fn dictionary(&self, column: ColumnId) -> Option<ColumnDictionary> {
        let column_type = self.schema.columns[column.0 as usize].column_type;
        // Damage is reported to a reader of the values.
        let block = self.block.frozen().filter(|block| block.check(column).is_ok());
        block.and_then(|block| block.column(column).dictionary(column_type))
    }

    /// The selected slots in which a column compares with `constant` as asked, without those in
    /// which it is NULL. `constant` is an integer in the column's physical form: days,
    /// microseconds, the unscaled number of a decimal. `None` unless a frozen block has the column
    /// bit-packed; the values themselves must be compared then.
    pub fn select(
        &self,
        column: ColumnId,
        comparison: Comparison,
        constant: i64,
        selection: &Selection,
    ) -> Option<Selection> {
        let is_integer = matches!(
            self.schema.columns[column.0 as usize].column_type,
            ColumnType::Int16
                | ColumnType::Int32
                | ColumnType::Int64
                | ColumnType::Date
                | ColumnType::Time
                | ColumnType::Timestamp { .. }
                | ColumnType::Decimal { .. }
        );
        self.packed_column(column).filter(|_| is_integer)?.select(comparison, constant, selection)
    }

    /// As [`select`](Self::select), of a text or binary column that a frozen block has as a
    /// dictionary with bit-packed codes. Values compare by their bytes.
    pub fn select_bytes(
        &self,
        column: ColumnId,
        comparison: Comparison,
        constant: &[u8],
        selection: &Selection,
    ) -> Option<Selection> {
        let column_type = self.schema.columns[column.0 as usize].column_type;
        let has_bytes = matches!(column_type, ColumnType::Utf8 | ColumnType::Binary);
        self.packed_column(column).filter(|_| has_bytes)?.select_bytes(comparison, constant, selection)
    }

    /// A column of a frozen block; damage is reported to a reader of the values.
    fn packed_column(&self, column: ColumnId) -> Option<&FrozenColumn> {
        let block = self.block.frozen().filter(|block| block.check(column).is_ok())?;
        Some(block.column(column))
    }

    /// The columns' values in the selected slots, which must be among the
    /// [`visible`](Self::visible) ones. All slots of a frozen block come without a copy: the arrays
    /// are the block's own buffers. [`ColumnForm::Arrow`] has exceptions that
    /// [`ColumnForm::Stored`] does not have. Short decimals are widened. Documents and numbers
    /// without precision are copied to 64-bit offsets. Other columns with offsets or a dictionary
    /// become views over the block's own bytes.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`](crate::StorageError::Corrupt) when the block lies in a damaged
    /// file.
    pub fn columns(&mut self, columns: &[ScanColumn], selection: &Selection) -> Result<Vec<ArrayRef>> {
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let block = self.block.clone();
        match &*block {
            Block::Hot(block) => Ok(self.hot_columns(block, columns, selection)),
            Block::Frozen(block) => {
                columns.iter().try_for_each(|column| block.check(column.id))?;
                Ok(self.frozen_columns(block, columns, selection))
            }
        }
    }

    fn frozen_columns(&self, block: &FrozenBlock, columns: &[ScanColumn], selection: &Selection) -> Vec<ArrayRef> {
        let column_of = |column: &ScanColumn| {
            let column_type = self.schema.columns[column.id.0 as usize].column_type;
            let frozen = block.column(column.id);
            if column.form == ColumnForm::Stored {
                return frozen.array_at(column_type, block.slot_limit() as usize, selection);
            }
            let picked = match selection {
                Selection::All(n) => frozen.physical(*n as usize),
                Selection::Positions(positions) => frozen.physical_at(block.slot_limit() as usize, positions),
            };
            picked.into_array(column_type, column.form, || frozen.heap().to_vec())
        };
        columns.iter().map(column_of).collect()
    }

    fn hot_columns(&mut self, block: &HotBlock, columns: &[ScanColumn], selection: &Selection) -> Vec<ArrayRef> {
        // From one selected slot in eight on, every cache line is touched anyway: copy the whole
        // column.
        let dense = Selection::All(self.limit);
        let copied = match selection {
            Selection::Positions(positions) if positions.len() * 8 < self.limit as usize => selection,
            _ => &dense,
        };
        let guard = epoch::pin();
        let mut raw: Vec<RawColumn> = columns.iter().map(|column| RawColumn::copy(block, column.id, copied)).collect();
        end_copy();
        self.for_each_versioned(block, copied, |reader, i, slot| {
            // SAFETY: pinned by `guard`.
            unsafe {
                apply_chain(block, slot, reader.snapshot, true, |before| {
                    for column in raw.iter_mut().filter(|column| column.id == before.column) {
                        column.put(i, before.cell());
                    }
                });
            }
        });
        // Under the pin under which the views were copied.
        let heap_of = |column: &RawColumn| match column.physical {
            PhysicalType::View => block.heap().buffers(column.id),
            _ => Vec::new(),
        };
        let heaps: Vec<_> = raw.iter().map(heap_of).collect();
        drop(guard);
        let array_of = |((column, raw), heap): ((&ScanColumn, RawColumn), Vec<Buffer>)| {
            let values = raw.finish();
            let picked = match (selection, copied) {
                (Selection::Positions(positions), Selection::All(_)) => values.select(positions),
                _ => values.truncate(selection.len()),
            };
            let column_type = self.schema.columns[column.id.0 as usize].column_type;
            picked.into_array(column_type, column.form, || heap)
        };
        columns.iter().zip(raw).zip(heaps).map(array_of).collect()
    }
}

fn copy_words(block: &HotBlock, offset: usize, words: &mut [u64]) {
    // SAFETY: plain words may be written byte by byte.
    let bytes = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) };
    block.copy_out(offset, bytes);
}

/// Clears the bits from `from` on.
fn clear_from(words: &mut [u64], from: usize) {
    if !from.is_multiple_of(64) {
        words[from / 64] &= (1 << (from % 64)) - 1;
    }
}

/// The numbers of the set bits.
fn positions_of(words: &[u64], count: usize) -> Vec<u32> {
    let mut positions = Vec::with_capacity(count);
    for (i, &word) in words.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            positions.push(i as u32 * 64 + rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
    positions
}

/// A column's copied values in their physical form.
struct RawColumn {
    id: ColumnId,
    physical: PhysicalType,
    len: usize,
    /// `len` values (of a `Bit` column, whole words of bits).
    values: MutableBuffer,
    /// Whole words of bits; `None`: all are valid.
    validity: Option<MutableBuffer>,
}

fn put_bit(bits: &mut [u8], i: usize, value: bool) {
    let mask = 1 << (i % 8);
    bits[i / 8] = if value { bits[i / 8] | mask } else { bits[i / 8] & !mask };
}

fn copy_buffer(block: &HotBlock, offset: usize, len: usize) -> MutableBuffer {
    let mut buffer = MutableBuffer::with_capacity(len);
    // SAFETY: the capacity was just reserved.
    let target = unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast(), len) };
    block.copy_out(offset, target);
    // SAFETY: `copy_out` has written `len` bytes.
    unsafe { buffer.set_len(len) };
    buffer
}

/// Whether one of the first `len` bits is not set.
fn has_nulls(validity: &MutableBuffer, len: usize) -> bool {
    let words = validity.typed_data::<u64>();
    let whole = len / 64;
    words[..whole].iter().fold(u64::MAX, |all, word| all & word) != u64::MAX
        || (!len.is_multiple_of(64) && words[whole] | u64::MAX << (len % 64) != u64::MAX)
}

impl RawColumn {
    fn value_bytes(physical: PhysicalType, len: usize) -> usize {
        crate::block::layout::value_bytes(physical, len)
    }

    fn copy(block: &HotBlock, id: ColumnId, selection: &Selection) -> Self {
        let layout = block.layout().column(id);
        let len = selection.len();
        let validity = block.may_have_nulls(id).then(|| {
            let slots = match selection {
                Selection::All(_) => len,
                Selection::Positions(_) => block.slot_limit() as usize,
            };
            copy_buffer(block, layout.validity_offset, bitmap_bytes(slots))
        });
        let (values, validity) = match selection {
            Selection::All(_) => {
                let copy = || copy_buffer(block, layout.value_offset, Self::value_bytes(layout.physical, len));
                let values =
                    if layout.physical == PhysicalType::View { block.heap().copy_untorn(copy) } else { copy() };
                (values, validity)
            }
            Selection::Positions(positions) => {
                let mut values = MutableBuffer::with_capacity(Self::value_bytes(layout.physical, len));
                if layout.physical == PhysicalType::Bit {
                    values.resize(bitmap_bytes(len), 0);
                    for (i, &slot) in positions.iter().enumerate() {
                        put_bit(&mut values, i, block.read_cell(id, Slot(slot)).bits != 0);
                    }
                } else {
                    block.gather(id, positions, &mut values);
                }
                (values, validity.map(|validity| gather_bits(&validity, positions)))
            }
        };
        Self { id, physical: layout.physical, len, values, validity }
    }

    #[inline]
    fn put(&mut self, i: usize, cell: Cell) {
        if cell.null || self.validity.is_some() {
            let bytes = bitmap_bytes(self.len);
            let validity = self.validity.get_or_insert_with(|| {
                let mut all = MutableBuffer::with_capacity(bytes);
                all.resize(bytes, u8::MAX);
                all
            });
            put_bit(validity, i, !cell.null);
        }
        match self.physical {
            PhysicalType::Bit => put_bit(&mut self.values, i, cell.bits != 0),
            PhysicalType::Fixed(width) => {
                let width = width as usize;
                self.values[i * width..(i + 1) * width].copy_from_slice(&cell.bits.to_le_bytes()[..width]);
            }
            PhysicalType::View => self.values[i * 16..(i + 1) * 16].copy_from_slice(&cell.bits.to_le_bytes()),
        }
    }

    fn finish(self) -> ColumnValues {
        let validity = self.validity.filter(|validity| has_nulls(validity, self.len));
        let nulls = validity.map(|validity| NullBuffer::new(BooleanBuffer::new(validity.into(), 0, self.len)));
        ColumnValues { physical: self.physical, len: self.len, values: self.values.into(), nulls }
    }
}
