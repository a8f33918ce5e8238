//! A frozen block: canonical Arrow, immutable, without a version column (§4).
//!
//! Every slot up to the limit has a value in every column. The presence bitmap says whether the
//! slot holds a row; it is absent if all slots do. Values of a fixed width are Arrow's physical
//! types, 64-byte aligned (DECIMAL of up to 18 digits as scaled 64-bit integers, which Arrow calls
//! Decimal64). Values of variable length have the encoding that the table's [`FreezeFormat`] asks
//! for (see `column`), without garbage, or with very little. All buffers are reference-counted: a
//! lent buffer lives as long as anyone holds it, whether or not the block exists.
//!
//! **Compact blocks.** A block in `compact` format keeps the values of a fixed width bit-packed
//! (see `packed`) where that saves an eighth of their bytes or more. Values of variable length are
//! a dictionary with bit-packed codes if that pays, else strings with offsets. Arrays that leave
//! such a block are decoded copies of canonical Arrow. Filters need no copy: they are answered by
//! the packed values ([`BlockReader::select`](crate::table::scan::BlockReader::select)).
//!
//! **The memory.** A gathered block keeps the hot block's memory, where the values lie already, and
//! the heap chunks. Pages that the hot block alone needs, such as views that became offsets, are
//! given back when its last reader is gone (`crate::block::block_memory`).
//!
//! **When a dictionary pays.** A column of a table in `dictionary` format keeps its views in a
//! block if its values occur less than twice on the average. It also keeps them if codes and
//! dictionary would take no less memory than the views. So a block may hold columns of both kinds,
//! and neighbouring blocks may differ; readers ask the column.
//!
//! A block that a checkpoint has written lies in its data file ([`crate::durability::data_file`]).
//! Its buffers are a mapping's, which the operating system reads when they are touched and forgets
//! when memory is short. A block in a file has a `BlockSource`, and a column is checked
//! ([`FrozenBlock::check`]) before its first use.

mod column;
mod format;
mod gather;
mod packed;
mod strings;
mod zone;

use crate::block::block_memory::{BlockMemory, SPARE_PART, SparePages};
use crate::block::column_orders::ColumnOrders;
use crate::block::layout::{BlockLayout, bitmap_bytes};
use crate::block::view::ArrowView;
use crate::block::{Cell, HotBlock};
use crate::durability::data_file::DataFile;
use crate::error::{Result, StorageError};
use crate::ids::{BLOCK_BYTES, BlockNo, ColumnId, Slot};
use crate::types::{PhysicalType, TableSchema};
use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use column::Encoding;
pub(crate) use column::{FrozenColumn, is_form};
pub use format::FreezeFormat;
pub use packed::Comparison;
use serac_sync::atomic::{AtomicBool, Ordering};
use std::ops::Range;
use std::sync::Arc;
pub use strings::{ColumnDictionary, with_offsets};
pub use zone::Zone;
use zone::zone_of;

/// A frozen block: immutable columns of canonical Arrow.
#[derive(Debug)]
pub struct FrozenBlock {
    /// The format for which the block was frozen; single columns may differ.
    format: FreezeFormat,
    limit: u32,
    presence: Option<BooleanBuffer>,
    columns: Vec<FrozenColumn>,
    /// The number of times that the block has been thawed.
    thaws: u32,
    /// The block's file, if it lies in one.
    source: Option<BlockSource>,
    /// The hot block's memory, if values lie there.
    kept: Option<KeptMemory>,
    /// The known orders of the columns' values.
    orders: ColumnOrders,
}

/// The part of the hot block's memory that a frozen block keeps. The buffers of its columns hold
/// it.
#[derive(Debug, Clone)]
pub(crate) struct KeptMemory {
    memory: Arc<BlockMemory>,
    /// Bytes that are held, but hold no values.
    slack: usize,
}

impl KeptMemory {
    /// Memory of which `value_bytes` hold values and the `spare` pages are given back.
    fn new(memory: Arc<BlockMemory>, value_bytes: usize, spare: &SparePages) -> Self {
        Self { memory, slack: BLOCK_BYTES - value_bytes - spare.bytes() }
    }

    /// Bytes of the columns' values that lie in the memory.
    fn values_of(&self, columns: &[FrozenColumn]) -> usize {
        let start = self.memory.start().as_ptr() as usize;
        let lies_there = |values: &&Buffer| (start..start + BLOCK_BYTES).contains(&(values.as_ptr() as usize));
        columns.iter().filter_map(FrozenColumn::values_buffer).filter(lies_there).map(Buffer::len).sum()
    }

    /// The memory that is kept when `new` columns take the place of the `old` ones; `None` if
    /// keeping it is not worth it.
    fn after(&self, old: &[FrozenColumn], new: &[FrozenColumn]) -> Option<Self> {
        let slack = self.slack + self.values_of(old) - self.values_of(new);
        (slack <= BLOCK_BYTES / SPARE_PART || slack == self.slack).then(|| Self { memory: self.memory.clone(), slack })
    }
}

/// A block's data file, and its batch in that file.
#[derive(Debug)]
pub(crate) struct BlockSource {
    file: Arc<DataFile>,
    batch: u32,
    /// The columns whose bytes have been verified.
    checked: Vec<AtomicBool>,
}

impl BlockSource {
    pub(crate) fn new(file: Arc<DataFile>, batch: u32, columns: usize) -> Self {
        Self { file, batch, checked: (0..columns).map(|_| AtomicBool::new(false)).collect() }
    }

    /// The file, and the number of the batch.
    pub(crate) fn place(&self) -> (&Arc<DataFile>, u32) {
        (&self.file, self.batch)
    }
}

impl FrozenBlock {
    /// The block whose columns [`arrays`](Self::arrays) gave; nothing is copied. `presence` has the
    /// slots that hold rows (`None` if all do), and `zones` has an entry per column.
    ///
    /// # Errors
    /// [`StorageError::InvalidInput`] when an array is no form of its column, or lengths differ.
    pub fn from_arrays(
        schema: &TableSchema,
        format: FreezeFormat,
        limit: u32,
        presence: Option<BooleanBuffer>,
        arrays: &[ArrayRef],
        zones: &[Option<Zone>],
        thaws: u32,
    ) -> Result<Self> {
        let bases = vec![None; zones.len()];
        Self::from_file_arrays(schema, format, limit, presence, arrays, (zones, &bases), thaws)
    }

    /// The block whose columns [`file_arrays`](Self::file_arrays) gave, with their zones and
    /// [`bases`](Self::bases).
    ///
    /// # Errors
    /// As [`from_arrays`](Self::from_arrays).
    pub(crate) fn from_file_arrays(
        schema: &TableSchema,
        format: FreezeFormat,
        limit: u32,
        presence: Option<BooleanBuffer>,
        arrays: &[ArrayRef],
        (zones, bases): (&[Option<Zone>], &[Option<i64>]),
        thaws: u32,
    ) -> Result<Self> {
        if arrays.len() != schema.columns.len() || arrays.len() != zones.len() {
            let (given, wanted) = (arrays.len(), schema.columns.len());
            return Err(StorageError::InvalidInput(format!("{given} arrays for {wanted} columns")));
        }
        let mut lengths = arrays.iter().map(|array| array.len()).chain(presence.iter().map(BooleanBuffer::len));
        if let Some(len) = lengths.find(|&len| len != limit as usize) {
            return Err(StorageError::InvalidInput(format!("{len} values or bits for {limit} slots")));
        }
        // A file without packed columns has no bases.
        let bases = bases.iter().copied().chain(std::iter::repeat(None));
        let columns = schema.columns.iter().zip(arrays).zip(zones).zip(bases);
        let columns =
            columns.map(|(((c, array), zone), base)| FrozenColumn::from_array(c.column_type, array, *zone, base));
        Ok(Self {
            format,
            limit,
            presence,
            columns: columns.collect::<Result<_>>()?,
            thaws,
            source: None,
            kept: None,
            orders: ColumnOrders::default(),
        })
    }

    /// The block, as one that lies in a file.
    pub(crate) fn with_source(self, source: BlockSource) -> Self {
        Self { source: Some(source), ..self }
    }

    /// The block with the smallest and largest values that its columns hold.
    pub(crate) fn with_zones(mut self, schema: &TableSchema) -> Self {
        for (column, schema) in self.columns.iter_mut().zip(&schema.columns) {
            if let Encoding::Plain(values) = &column.encoding {
                column.zone =
                    zone_of(schema.column_type, values, held(self.presence.as_ref(), column.nulls.as_ref()).as_ref());
            }
        }
        self
    }

    /// Every column's [`zone`](Self::zone).
    pub(crate) fn zones(&self) -> Vec<Option<Zone>> {
        self.columns.iter().map(|column| column.zone).collect()
    }

    /// The block's file, if it lies in one.
    pub(crate) fn source(&self) -> Option<&BlockSource> {
        self.source.as_ref()
    }

    /// Whether the block's buffers are a mapped file's: memory that the operating system can take
    /// back.
    pub fn is_mapped(&self) -> bool {
        self.source.is_some()
    }

    /// Makes sure, once, that the bytes of a column that lies in a file are those that were
    /// written. Comes before every use of the column's values.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`].
    #[inline]
    pub fn check(&self, column: ColumnId) -> Result<()> {
        match &self.source {
            // Relaxed: the bytes do not change; at worst they are checked twice.
            Some(source) if !source.checked[column.0 as usize].load(Ordering::Relaxed) => {
                self.column(column).buffers().into_iter().try_for_each(|buffer| source.file.verify(buffer))?;
                source.checked[column.0 as usize].store(true, Ordering::Relaxed);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// [`check`](Self::check)s every column.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`].
    pub fn check_all(&self) -> Result<()> {
        (0..self.columns.len() as u16).try_for_each(|column| self.check(ColumnId(column)))
    }

    /// The columns as Arrow arrays over the block's own buffers, with a value for every slot below
    /// the limit. They have the encodings of the block (short decimals are Decimal64). The value in
    /// a slot without a row has no meaning. The columns have been [`check`](Self::check)ed.
    pub fn arrays(&self, schema: &TableSchema) -> Vec<ArrayRef> {
        let columns = self.columns.iter().zip(&schema.columns);
        columns.map(|(column, schema)| column.array(schema.column_type, self.limit as usize)).collect()
    }

    /// The columns as a data file has them: as [`arrays`](Self::arrays), but for packed values.
    pub(crate) fn file_arrays(&self, schema: &TableSchema) -> Vec<ArrayRef> {
        let columns = self.columns.iter().zip(&schema.columns);
        columns.map(|(column, schema)| column.file_array(schema.column_type, self.limit as usize)).collect()
    }

    /// The bases of packed columns; empty if no column is packed.
    pub(crate) fn bases(&self) -> Vec<Option<i64>> {
        let bases: Vec<_> = self.columns.iter().map(FrozenColumn::base).collect();
        if bases.iter().all(Option::is_none) { Vec::new() } else { bases }
    }

    /// A new hot block with the same rows, to become number `no` of its table. The columns have
    /// been [`check`](Self::check)ed.
    pub(crate) fn thaw(&self, layout: &Arc<BlockLayout>, no: BlockNo) -> HotBlock {
        let block = HotBlock::thawed(layout.clone(), no, self.thaws + 1);
        let layout = block.layout();
        let rows = self.limit as usize;
        for ((id, place), column) in layout.column_ids().zip(layout.columns()).zip(&self.columns) {
            let values = column.physical(rows).values;
            // SAFETY: the block is new: no other thread has it.
            let target = unsafe { block.exclusive(place.value_offset, values.len()) };
            target.copy_from_slice(&values);
            if let Some(nulls) = &column.nulls {
                block.note_null(id);
                let bits = nulls.inner().sliced();
                let bits = &bits[..bitmap_bytes(rows).min(bits.len())];
                // SAFETY: as above; another range.
                unsafe { block.exclusive(place.validity_offset, bits.len()).copy_from_slice(bits) };
            }
            if place.physical == PhysicalType::View {
                self.thaw_heap(&block, id, target.as_chunks_mut().0);
            }
        }
        match &self.presence {
            None => block.set_present_range(0, self.limit),
            Some(presence) => presence.set_indices().for_each(|slot| block.set_present(Slot(slot as u32), true)),
        }
        // Release: pairs with `slot_limit`.
        block.insert_cursor().store(self.limit, serac_sync::atomic::Ordering::Release);
        block
    }

    /// Makes the new block's heap hold the bytes that a column's views name: the same memory, or a
    /// copy if the block lies in a file.
    fn thaw_heap(&self, block: &HotBlock, id: ColumnId, views: &mut [[u8; 16]]) {
        let column = self.column(id);
        if let Some(held) = held(self.presence.as_ref(), column.nulls.as_ref()) {
            let empty = !&held;
            empty.set_indices().for_each(|slot| views[slot] = [0; 16]);
        }
        let copied = |buffer: &Buffer| match self.source {
            None => buffer.clone(),
            Some(_) => Buffer::from_slice_ref(buffer.as_slice()),
        };
        let heap: Vec<Buffer> = column.heap().iter().map(copied).collect();
        block.heap().latch().adopt(id, &heap, views);
    }

    /// Slots below which rows lie.
    pub fn slot_limit(&self) -> u32 {
        self.limit
    }

    /// The slots that hold rows; `None` if all do.
    pub fn presence(&self) -> Option<&BooleanBuffer> {
        self.presence.as_ref()
    }

    /// Rows.
    pub fn rows(&self) -> u32 {
        self.presence.as_ref().map_or(self.limit, |presence| presence.count_set_bits() as u32)
    }

    /// Whether the slot holds a row.
    #[inline]
    pub fn is_present(&self, slot: Slot) -> bool {
        slot.0 < self.limit && self.presence.as_ref().is_none_or(|presence| presence.value(slot.0 as usize))
    }

    /// The smallest and largest value of a column; `None` if they are not known (or there is no
    /// value).
    pub fn zone(&self, column: ColumnId) -> Option<Zone> {
        self.columns[column.0 as usize].zone
    }

    /// The known orders of the columns' values.
    pub(crate) fn orders(&self) -> &ColumnOrders {
        &self.orders
    }

    /// The format that the block was frozen for.
    pub fn format(&self) -> FreezeFormat {
        self.format
    }

    /// The number of times that the block had been thawed before it froze.
    pub fn thaws(&self) -> u32 {
        self.thaws
    }

    /// Bytes of the heaps, and of dictionaries' words.
    pub fn heap_bytes(&self) -> usize {
        self.columns.iter().map(FrozenColumn::heap_bytes).sum()
    }

    /// Bytes of all buffers, and of the memory held with them.
    pub fn bytes(&self) -> usize {
        let presence = self.presence.as_ref().map_or(0, |presence| presence.inner().len());
        let slack = self.kept.as_ref().map_or(0, |kept| kept.slack);
        self.columns.iter().map(FrozenColumn::bytes).sum::<usize>() + presence + slack
    }

    /// The addresses of the columns' buffers.
    pub fn addresses(&self) -> impl Iterator<Item = Range<usize>> {
        self.columns.iter().flat_map(FrozenColumn::buffers).map(|buffer| {
            let start = buffer.as_ptr() as usize;
            start..start + buffer.len()
        })
    }

    /// Bytes of a column's buffers.
    pub fn column_bytes(&self, column: ColumnId) -> usize {
        self.column(column).bytes()
    }

    /// Reads a cell; the slot must lie below the limit.
    #[inline]
    pub fn read_cell(&self, column: ColumnId, slot: Slot) -> Cell {
        self.column(column).read_cell(slot.0 as usize)
    }

    /// Asks for the cells of a slot below the limit.
    #[inline]
    pub(crate) fn prefetch_row(&self, slot: Slot, columns: &[ColumnId]) {
        columns.iter().for_each(|&column| self.column(column).prefetch(slot.0 as usize));
    }

    /// Prefetches the bytes that a row's views name. Bytes in a file are left out: their pages
    /// would have to be read and checked.
    pub(crate) fn prefetch_texts(&self, columns: &[ColumnId], slot: Slot) {
        for &column in columns.iter().filter(|_| !self.is_mapped()) {
            self.column(column).prefetch_text(slot.0 as usize);
        }
    }

    /// Appends the bytes that the views of a row name, in the given columns.
    pub(crate) fn read_views(&self, views: impl Iterator<Item = (ColumnId, ArrowView)> + Clone, out: &mut Vec<u8>) {
        if !self.is_mapped() {
            views.clone().for_each(|(column, view)| self.column(column).prefetch_view(view));
        }
        views.for_each(|(column, view)| self.read_view(column, view, out));
    }

    /// The bytes that a view of `column` names.
    pub fn read_view(&self, column: ColumnId, view: ArrowView, out: &mut Vec<u8>) {
        self.column(column).read_view(view, out);
    }

    /// A column.
    #[inline]
    pub(crate) fn column(&self, column: ColumnId) -> &FrozenColumn {
        &self.columns[column.0 as usize]
    }
}

/// The slots that have a value; `None` if all do.
fn held(presence: Option<&BooleanBuffer>, nulls: Option<&NullBuffer>) -> Option<BooleanBuffer> {
    match (presence, nulls) {
        (Some(presence), Some(nulls)) => Some(presence & nulls.inner()),
        (Some(presence), None) => Some(presence.clone()),
        (None, nulls) => nulls.map(|nulls| nulls.inner().clone()),
    }
}
