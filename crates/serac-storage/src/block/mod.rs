//! A block: 1 MiB of relaxed Arrow memory, its version column and its heap (§3.2, §4.1).
//!
//! The block is shared by writers that change it in place and readers that copy from it, all at
//! once. Every access to its memory is therefore atomic (or a `racy_copy`), at most 8 bytes wide.
//! A 16-byte view or decimal is read and written as two halves and may be seen torn. The version
//! column decides which values a snapshot sees (see [`crate::table::data_table`]); this module only
//! promises that no access is undefined.

pub(crate) mod atomic_copy;
pub(crate) mod block_memory;
pub mod block_table;
mod cell;
pub(crate) mod column_orders;
pub mod heap;
pub mod layout;
pub(crate) mod version_column;
pub mod view;

use crate::block::atomic_copy::{prefetch, racy_copy};
use crate::block::block_memory::{BlockMemory, SparePages};
pub use crate::block::cell::Cell;
use crate::block::column_orders::ColumnOrders;
use crate::block::heap::{BlockHeap, HeapLatch};
use crate::block::layout::{ALLOCATION_OFFSET, BlockLayout};
use crate::block::version_column::VersionColumn;
use crate::block::view::ArrowView;
use crate::durability::data_file::DataFile;
use crate::error::Result;
use crate::freeze::frozen::FrozenBlock;
pub use crate::freeze::temperature::Temperature;
use crate::freeze::temperature::TemperatureWord;
use crate::ids::{BLOCK_BYTES, BlockNo, ColumnId, Slot};
use crate::types::PhysicalType;
use crate::uptime::now_ms;
use crate::value::Value;
use crate::version::chain::{VersionHead, VersionedSlots, end_copy};
use crate::version::undo::UndoRecord;
use arrow_buffer::{ArrowNativeType, Buffer, MutableBuffer};
use crossbeam_utils::CachePadded;
use serac_sync::Mutex;
use serac_sync::OnceLock;
use serac_sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::ptr::NonNull;
use std::sync::Arc;

/// Gathering prefetches the memory of values this many positions ahead.
const GATHERED_AHEAD: usize = 16;

/// A block of a table, in one of its two forms.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "blocks lie behind pointers, and a table's are mostly of one form")]
pub enum Block {
    /// Can be changed in place; also while it is cooling or freezing.
    Hot(HotBlock),
    /// Immutable Arrow.
    Frozen(FrozenBlock),
}

impl Block {
    /// The block, if it is hot.
    #[inline]
    pub fn hot(&self) -> Option<&HotBlock> {
        match self {
            Self::Hot(block) => Some(block),
            Self::Frozen(_) => None,
        }
    }

    /// The block, if it is frozen.
    pub fn frozen(&self) -> Option<&FrozenBlock> {
        match self {
            Self::Hot(_) => None,
            Self::Frozen(block) => Some(block),
        }
    }

    /// Slots below which rows lie.
    pub fn slot_limit(&self) -> u32 {
        match self {
            Self::Hot(block) => block.slot_limit(),
            Self::Frozen(block) => block.slot_limit(),
        }
    }

    /// Reads the cells of a slot in the given columns; for a hot block see the header of this
    /// module.
    #[inline]
    pub fn read_cells(&self, columns: &[ColumnId], slot: Slot, out: &mut Vec<Cell>) {
        out.clear();
        match self {
            Self::Hot(block) => out.extend(columns.iter().map(|&column| block.read_cell(column, slot))),
            Self::Frozen(block) => out.extend(columns.iter().map(|&column| block.read_cell(column, slot))),
        }
    }

    /// Prefetches a row's cells and its version head.
    #[inline]
    pub(crate) fn prefetch_row(&self, slot: Slot, columns: &[ColumnId]) {
        match self {
            Self::Hot(block) => block.prefetch_row(slot, columns),
            Self::Frozen(block) => block.prefetch_row(slot, columns),
        }
    }

    /// Asks for the newest version of a row.
    #[inline]
    pub(crate) fn prefetch_version(&self, slot: Slot) {
        if let Self::Hot(block) = self {
            // Relaxed: not followed.
            prefetch(block.version_head(slot).glance());
        }
    }

    /// Asks for the bytes that a row's views name.
    pub(crate) fn prefetch_texts(&self, columns: &[ColumnId], slot: Slot) {
        match self {
            Self::Hot(block) => block.prefetch_texts(columns, slot),
            Self::Frozen(block) => block.prefetch_texts(columns, slot),
        }
    }

    /// Makes sure that the columns, if they lie in a file, are as they were written.
    #[inline]
    pub(crate) fn check(&self, columns: &[ColumnId]) -> Result<()> {
        match self {
            Self::Hot(_) => Ok(()),
            Self::Frozen(block) => columns.iter().try_for_each(|&column| block.check(column)),
        }
    }

    /// Slots that hold rows, in their newest states; an estimate while writers are active.
    pub fn rows(&self) -> u32 {
        match self {
            Self::Hot(block) => block.rows(),
            Self::Frozen(block) => block.rows(),
        }
    }

    /// Whether the slot holds a row, in its newest (perhaps uncommitted) state.
    #[inline]
    pub fn is_present(&self, slot: Slot) -> bool {
        match self {
            Self::Hot(block) => block.is_present(slot),
            Self::Frozen(block) => block.is_present(slot),
        }
    }

    /// The record of the bulk append that some snapshot may not see, or null.
    pub(crate) fn append_record(&self) -> *mut UndoRecord {
        // Acquire: pairs with the Release that set the marker.
        self.hot().map_or(std::ptr::null_mut(), |block| block.append_marker().load(Ordering::Acquire))
    }

    /// The newest version of a slot, or null.
    pub(crate) fn newest_version(&self, slot: Slot) -> *mut UndoRecord {
        self.hot().map_or(std::ptr::null_mut(), |block| block.version_head(slot).newest())
    }
}

/// A hot block in a data file. The file holds its rows while its count of settlements is the same
/// and no slot has a version.
#[derive(Clone, Debug)]
pub(crate) struct FiledBlock {
    pub(crate) file: Arc<DataFile>,
    pub(crate) batch: u32,
    pub(crate) settlements: u64,
}

/// Fields that collectors change, in a cache line of their own: a reader of the block's other
/// fields must not wait for these.
#[derive(Debug)]
struct Collected {
    /// Slots whose version head is not null.
    versioned: VersionedSlots,
    /// How often the collector has taken the last versions of slots, or the marker of a bulk
    /// append. A thread that finds the same count, and no version, knows that nothing was written
    /// meanwhile.
    settlements: AtomicU64,
    /// When the collector last met a change of the block, in milliseconds: the access observer of
    /// the Mainlining paper (§4.2).
    last_touched: AtomicU64,
}

/// A block that can be changed.
#[derive(Debug)]
pub struct HotBlock {
    /// Shared with the frozen form that the block has got, if it has.
    memory: Arc<BlockMemory>,
    /// The start of the memory.
    start: NonNull<u8>,
    /// The pages that the frozen form does not share.
    spare: OnceLock<SparePages>,
    layout: Arc<BlockLayout>,
    /// The heads of the slots' version chains.
    versions: VersionColumn,
    heap: Arc<BlockHeap>,
    /// Columns in which a NULL has been written, by bit; the last bit stands for all columns from
    /// its own on. For other columns no validity bitmap is read or written; all bits in it are set.
    /// Raised before the first NULL is written, never lowered. A reader that loads it too early
    /// takes the NULL for a value, as with the validity bit itself, and then finds a version.
    nulls: AtomicU64,
    collected: CachePadded<Collected>,
    /// The block's place in a checkpoint's file.
    filed: Mutex<Option<FiledBlock>>,
    /// The known orders of the columns' values.
    orders: ColumnOrders,
    /// Slots handed out to inserts; may run past the slot count when the block is full.
    insert_cursor: AtomicU32,
    /// Set while the block was filled by a bulk append that a snapshot may not see.
    append_marker: AtomicPtr<UndoRecord>,
    temperature: TemperatureWord,
    /// The number of times that the block has been thawed.
    thaws: u32,
}

// SAFETY: the memory is reached only through atomic accesses and racy copies.
unsafe impl Send for HotBlock {}
// SAFETY: as above.
unsafe impl Sync for HotBlock {}

impl Drop for HotBlock {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.get()
            && Arc::strong_count(&self.memory) > 1
        {
            // SAFETY: readers of the hot block are gone, and the frozen one uses other pages. Done
            // once, as a block is dropped once.
            unsafe { self.memory.give_back(spare) };
        }
    }
}

impl HotBlock {
    /// An empty block, to become number `no` of its table. All values count as valid until a NULL
    /// is written, so that rows without NULLs never touch a validity bitmap.
    pub fn new(layout: Arc<BlockLayout>, no: BlockNo) -> Self {
        Self::thawed(layout, no, 0)
    }

    /// An empty block for a thaw; `thaws` counts those of its predecessors.
    pub(crate) fn thawed(layout: Arc<BlockLayout>, no: BlockNo, thaws: u32) -> Self {
        let memory = BlockMemory::new(no.0);
        for column in layout.columns() {
            // SAFETY: the layout's regions fit the block, which is not shared yet.
            unsafe { memory.start().as_ptr().add(column.validity_offset).write_bytes(u8::MAX, layout.bitmap_bytes()) };
        }
        Self {
            start: memory.start(),
            memory: Arc::new(memory),
            spare: OnceLock::new(),
            versions: VersionColumn::new(no.0, layout.slot_count() as usize),
            heap: BlockHeap::new(layout.heap_columns()),
            layout,
            nulls: AtomicU64::new(0),
            collected: CachePadded::new(Collected {
                versioned: VersionedSlots::default(),
                settlements: AtomicU64::new(0),
                last_touched: AtomicU64::new(now_ms()),
            }),
            filed: Mutex::default(),
            orders: ColumnOrders::default(),
            insert_cursor: AtomicU32::new(0),
            append_marker: AtomicPtr::new(std::ptr::null_mut()),
            temperature: TemperatureWord::hot(),
            thaws,
        }
    }

    /// The block's temperature.
    #[inline]
    pub fn temperature(&self) -> Temperature {
        self.temperature.get()
    }

    /// Whether the block is being gathered, or was.
    #[inline]
    pub(crate) fn is_freezing(&self) -> bool {
        self.temperature() == Temperature::Freezing
    }

    #[inline]
    pub(crate) fn temperature_word(&self) -> &TemperatureWord {
        &self.temperature
    }

    /// The access observer's note.
    pub(crate) fn last_touched(&self) -> &AtomicU64 {
        &self.collected.last_touched
    }

    /// The time since the collector last met a change of the block, or since the block was made.
    pub fn idle(&self) -> std::time::Duration {
        let touched = self.collected.last_touched.load(Ordering::Relaxed);
        std::time::Duration::from_millis(now_ms().saturating_sub(touched))
    }

    /// The number of times that the block has been thawed.
    pub(crate) fn thaws(&self) -> u32 {
        self.thaws
    }

    /// Undoes the effect of a thaw on the block's temperature: moving cold rows does not make it
    /// warmer.
    pub(crate) fn keep_cold(&mut self) {
        self.thaws = self.thaws.saturating_sub(1);
        *self.collected.last_touched.get_mut() = 0;
    }

    /// The layout, shared by all blocks of the table.
    pub fn layout(&self) -> &Arc<BlockLayout> {
        &self.layout
    }

    /// The block's heap.
    pub fn heap(&self) -> &Arc<BlockHeap> {
        &self.heap
    }

    /// Slots whose version head is not null (never too low).
    pub fn versioned(&self) -> &VersionedSlots {
        &self.collected.versioned
    }

    /// Notes that the collector keeps only the newest state of slots, or of a bulk append. Called
    /// before the count of versioned slots is lowered or the marker is cleared.
    pub(crate) fn note_settled(&self) {
        // Relaxed: ordered by the later stores.
        self.collected.settlements.fetch_add(1, Ordering::Relaxed);
    }

    /// The count of [settlements](Self::note_settled), if every snapshot, present and future, sees
    /// the same rows until the next write. The count differs once rows were written and have
    /// settled again.
    pub(crate) fn settlements(&self) -> Option<u64> {
        self.settlements_if(|| self.append_marker.load(Ordering::Acquire).is_null())
    }

    /// As [`settlements`](Self::settlements), where `is_settled` answers for the bulk append that
    /// filled the block.
    pub(crate) fn settlements_if(&self, is_settled: impl FnOnce() -> bool) -> Option<u64> {
        // The collector has counted before it lowers the number of versioned slots, or clears the
        // marker.
        let calm = self.collected.versioned.are_none() && is_settled();
        calm.then(|| self.collected.settlements.load(Ordering::Relaxed))
    }

    /// Notes the file that holds the block as it was at that count of settlements, or, with `None`,
    /// that no manifest will name that file any more.
    pub(crate) fn file(&self, filed: Option<FiledBlock>) {
        *self.filed.lock() = filed;
    }

    /// The block's place in a file, if it is unchanged since; `None` if it has changed or is
    /// changing.
    pub(crate) fn filed(&self) -> Option<FiledBlock> {
        let filed = self.filed.lock().clone()?;
        (self.settlements() == Some(filed.settlements)).then_some(filed)
    }

    /// The known orders of the columns' values.
    pub(crate) fn orders(&self) -> &ColumnOrders {
        &self.orders
    }

    /// Slots handed out so far; may exceed the slot count.
    pub fn insert_cursor(&self) -> &AtomicU32 {
        &self.insert_cursor
    }

    /// The record of the bulk append that filled the block, while a snapshot may not see it.
    pub fn append_marker(&self) -> &AtomicPtr<UndoRecord> {
        &self.append_marker
    }

    /// Slots that have been handed out: rows lie below this.
    pub fn slot_limit(&self) -> u32 {
        // Acquire: pairs with the Release of the thread that advanced the cursor, so that a scan
        // that starts after a commit sees its slots.
        self.insert_cursor.load(Ordering::Acquire).min(self.layout.slot_count())
    }

    /// The allocation bits of the slots below the limit, as 64-bit words.
    pub(crate) fn presence_words(&self) -> Vec<u64> {
        let limit = self.slot_limit();
        let mut words: Vec<u64> = (0..limit)
            .step_by(64)
            // Relaxed: as in `bit`.
            .map(|slot| self.bit_word(ALLOCATION_OFFSET, Slot(slot)).load(Ordering::Relaxed))
            .collect();
        if let Some(last) = words.last_mut().filter(|_| !limit.is_multiple_of(64)) {
            *last &= (1 << (limit % 64)) - 1;
        }
        words
    }

    #[inline]
    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < BLOCK_BYTES);
        // SAFETY: offsets come from the layout, which fits the block.
        unsafe { self.start.as_ptr().add(offset) }
    }

    #[inline]
    fn check(&self, slot: Slot) {
        assert!(slot.0 < self.layout.slot_count(), "slot {} is outside the block", slot.0);
    }

    /// The head of a slot's version chain.
    #[inline]
    pub fn version_head(&self, slot: Slot) -> &VersionHead {
        &self.versions.heads()[slot.0 as usize]
    }

    /// Bytes that the block takes, with its heap's.
    pub fn bytes(&self) -> usize {
        BLOCK_BYTES + size_of_val(self.versions.heads()) + self.heap.bytes()
    }

    #[inline]
    fn bit_word(&self, offset: usize, slot: Slot) -> &AtomicU64 {
        self.check(slot);
        // SAFETY: bitmaps are 64-byte aligned whole words with a bit for every slot.
        unsafe { &*self.at(offset + (slot.0 as usize / 64) * 8).cast::<AtomicU64>() }
    }

    #[inline]
    fn bit(&self, offset: usize, slot: Slot) -> bool {
        // Relaxed: values are ordered by the fences of the read and write protocols, not by
        // themselves.
        self.bit_word(offset, slot).load(Ordering::Relaxed) >> (slot.0 % 64) & 1 == 1
    }

    #[inline]
    fn set_bit(&self, offset: usize, slot: Slot, value: bool) {
        let word = self.bit_word(offset, slot);
        let mask = 1 << (slot.0 % 64);
        // No other thread changes the bit. Mostly it has its value already, and a locked
        // instruction would stall the writes around it.
        if (word.load(Ordering::Relaxed) & mask != 0) == value {
            return;
        }
        // Relaxed: as in `bit`; read-modify-write because neighbouring slots belong to other
        // writers.
        if value {
            word.fetch_or(mask, Ordering::Relaxed);
        } else {
            word.fetch_and(!mask, Ordering::Relaxed);
        }
    }

    /// Whether the slot holds a row, in its newest (perhaps uncommitted) state.
    #[inline]
    pub fn is_present(&self, slot: Slot) -> bool {
        self.bit(ALLOCATION_OFFSET, slot)
    }

    /// Slots that hold rows, in their newest states; an estimate while writers are active.
    pub fn rows(&self) -> u32 {
        self.presence_words().iter().map(|word| word.count_ones()).sum()
    }

    /// Sets the allocation bit.
    #[inline]
    pub fn set_present(&self, slot: Slot, present: bool) {
        self.set_bit(ALLOCATION_OFFSET, slot, present);
    }

    /// Sets the allocation bits of `len` slots.
    pub(crate) fn set_present_range(&self, from: u32, len: u32) {
        self.write_bits(ALLOCATION_OFFSET, from, len, |_| u64::MAX);
    }

    /// Sets `len` bits of the bitmap at `offset`, from slot `from` on. `word_from(n)` gives at
    /// least 64 bits from the n-th on, or all that are left.
    pub(crate) fn write_bits(&self, offset: usize, from: u32, len: u32, word_from: impl Fn(u32) -> u64) {
        let (mut at, end) = (from, from + len);
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            let set = word_from(at - from) << (at % 64) & mask;
            let word = self.bit_word(offset, Slot(at));
            // Relaxed: as in `set_bit`, also in that neighbouring slots belong to others.
            if mask == u64::MAX {
                word.store(set, Ordering::Relaxed);
            } else {
                word.fetch_or(set, Ordering::Relaxed);
                word.fetch_and(set | !mask, Ordering::Relaxed);
            }
            at += bits;
        }
    }

    fn null_bit(column: ColumnId) -> u64 {
        1 << column.0.min(63)
    }

    /// Whether the column may have a NULL.
    #[inline]
    pub(crate) fn may_have_nulls(&self, column: ColumnId) -> bool {
        // Relaxed: ordered as the values are.
        self.nulls.load(Ordering::Relaxed) & Self::null_bit(column) != 0
    }

    /// Says that the column is about to have a NULL.
    #[inline]
    pub(crate) fn note_null(&self, column: ColumnId) {
        if !self.may_have_nulls(column) {
            // Relaxed: ordered as the values are.
            self.nulls.fetch_or(Self::null_bit(column), Ordering::Relaxed);
        }
    }

    /// Prefetches a row's version head and its cells.
    #[inline]
    pub(crate) fn prefetch_row(&self, slot: Slot, columns: &[ColumnId]) {
        prefetch(self.version_head(slot));
        prefetch(self.bit_word(ALLOCATION_OFFSET, slot));
        columns.iter().for_each(|&column| self.prefetch_cell(column, slot));
    }

    /// Asks for the bytes that a row's views name.
    pub(crate) fn prefetch_texts(&self, columns: &[ColumnId], slot: Slot) {
        for &column in columns.iter().filter(|&&column| self.is_view(column)) {
            self.heap.prefetch(column, self.read_cell(column, slot).bits);
        }
    }

    /// Prefetches a cell's memory: a row's columns lie far apart, and their cache misses should
    /// overlap.
    #[inline]
    pub fn prefetch_cell(&self, column: ColumnId, slot: Slot) {
        let layout = self.layout.column(column);
        let width = match layout.physical {
            PhysicalType::Bit => 0,
            PhysicalType::Fixed(width) => usize::from(width),
            PhysicalType::View => 16,
        };
        prefetch(self.at(layout.value_offset + width * slot.0 as usize));
    }

    /// Reads a cell; the header of this module says which values are possible.
    // Always inlined: a cell that comes back through memory is written in halves and read as a
    // whole, for which the processor waits.
    #[inline(always)]
    pub fn read_cell(&self, column: ColumnId, slot: Slot) -> Cell {
        let layout = *self.layout.column(column);
        let null = self.may_have_nulls(column) && !self.bit(layout.validity_offset, slot);
        self.check(slot);
        let index = slot.0 as usize;
        // SAFETY: in every arm the column has an aligned value for every slot, and the slot was
        // checked. Relaxed: see `bit`.
        let bits = unsafe {
            match layout.physical {
                PhysicalType::Bit => self.bit(layout.value_offset, slot) as u128,
                PhysicalType::Fixed(2) => {
                    (*self.at(layout.value_offset + 2 * index).cast::<AtomicU16>()).load(Ordering::Relaxed) as u128
                }
                PhysicalType::Fixed(4) => {
                    (*self.at(layout.value_offset + 4 * index).cast::<AtomicU32>()).load(Ordering::Relaxed) as u128
                }
                PhysicalType::Fixed(8) => {
                    (*self.at(layout.value_offset + 8 * index).cast::<AtomicU64>()).load(Ordering::Relaxed) as u128
                }
                _ => {
                    let halves = self.at(layout.value_offset + 16 * index).cast::<AtomicU64>();
                    let low = (*halves).load(Ordering::Relaxed) as u128;
                    low | ((*halves.add(1)).load(Ordering::Relaxed) as u128) << 64
                }
            }
        };
        Cell { null, bits }
    }

    /// Appends the raw values of a fixed-width `column` (or the views of a variable-length one) in
    /// `slots` to `out`; see the header of this module.
    pub(crate) fn gather(&self, column: ColumnId, slots: &[u32], out: &mut MutableBuffer) {
        let layout = *self.layout.column(column);
        slots.iter().max().into_iter().for_each(|&slot| self.check(Slot(slot)));
        let values = self.at(layout.value_offset);
        // Scattered values lie in lines of their own: more of them are asked for at a time than the
        // processor would by itself.
        #[inline]
        fn run<T: ArrowNativeType>(
            slots: &[u32],
            out: &mut MutableBuffer,
            values: *const u8,
            load: impl Fn(usize) -> T,
        ) {
            out.extend(slots.iter().enumerate().map(|(i, &slot)| {
                if let Some(&ahead) = slots.get(i + GATHERED_AHEAD) {
                    prefetch(values.wrapping_add(ahead as usize * size_of::<T>()));
                }
                load(slot as usize)
            }));
        }
        // SAFETY: the column has an aligned value for every slot, and the greatest slot was
        // checked. Relaxed: see `bit`.
        unsafe {
            match layout.physical {
                PhysicalType::Bit => unreachable!("bits are gathered one by one"),
                PhysicalType::Fixed(2) => {
                    run(slots, out, values, |i| (*values.cast::<AtomicU16>().add(i)).load(Ordering::Relaxed));
                }
                PhysicalType::Fixed(4) => {
                    run(slots, out, values, |i| (*values.cast::<AtomicU32>().add(i)).load(Ordering::Relaxed));
                }
                PhysicalType::Fixed(8) => {
                    run(slots, out, values, |i| (*values.cast::<AtomicU64>().add(i)).load(Ordering::Relaxed));
                }
                PhysicalType::Fixed(_) | PhysicalType::View => run(slots, out, values, |i| {
                    let halves = values.cast::<AtomicU64>().add(2 * i);
                    let low = (*halves).load(Ordering::Relaxed) as u128;
                    (low | ((*halves.add(1)).load(Ordering::Relaxed) as u128) << 64) as i128
                }),
            }
        }
    }

    /// Writes a cell in place. The caller has installed a version (or owns the slot alone).
    #[inline]
    pub fn write_cell(&self, column: ColumnId, slot: Slot, cell: Cell) {
        let layout = *self.layout.column(column);
        if cell.null {
            self.note_null(column);
        }
        if self.may_have_nulls(column) {
            self.set_bit(layout.validity_offset, slot, !cell.null);
        }
        self.check(slot);
        let index = slot.0 as usize;
        // SAFETY: in every arm as in `read_cell`. Relaxed: the install protocol's Release fence
        // precedes.
        unsafe {
            match layout.physical {
                PhysicalType::Bit => self.set_bit(layout.value_offset, slot, cell.bits != 0),
                PhysicalType::Fixed(2) => (*self.at(layout.value_offset + 2 * index).cast::<AtomicU16>())
                    .store(cell.bits as u16, Ordering::Relaxed),
                PhysicalType::Fixed(4) => (*self.at(layout.value_offset + 4 * index).cast::<AtomicU32>())
                    .store(cell.bits as u32, Ordering::Relaxed),
                PhysicalType::Fixed(8) => (*self.at(layout.value_offset + 8 * index).cast::<AtomicU64>())
                    .store(cell.bits as u64, Ordering::Relaxed),
                _ => {
                    let halves = self.at(layout.value_offset + 16 * index).cast::<AtomicU64>();
                    (*halves).store(cell.bits as u64, Ordering::Relaxed);
                    (*halves.add(1)).store((cell.bits >> 64) as u64, Ordering::Relaxed);
                }
            }
        }
    }

    /// The heap's latch, if one of `columns` is of variable length: held from before a row's cells
    /// are looked at until they are changed.
    #[inline]
    pub(crate) fn latch_heap(&self, mut columns: impl Iterator<Item = ColumnId>) -> Option<HeapLatch<'_>> {
        (self.layout.has_views() && columns.any(|column| self.is_view(column))).then(|| self.heap.latch())
    }

    /// Whether the column is of variable length.
    #[inline]
    pub(crate) fn is_view(&self, column: ColumnId) -> bool {
        self.layout.column(column).physical == PhysicalType::View
    }

    /// The view in a slot of a variable-length column; `None` if that is NULL.
    #[inline]
    pub(crate) fn view(&self, column: ColumnId, slot: Slot) -> Option<ArrowView> {
        let cell = self.read_cell(column, slot);
        (!cell.null).then_some(cell.bits)
    }

    /// Writes `value` in place, as [`write_cell`](Self::write_cell); long bytes are appended to the
    /// heap, whose `latch` the caller holds if the column is of variable length.
    ///
    /// # Panics
    /// If the value does not fit the column: [`BlockLayout::check_value`] comes first.
    #[inline]
    pub(crate) fn write_value(
        &self,
        column: ColumnId,
        slot: Slot,
        value: &Value<'_>,
        latch: &mut Option<HeapLatch<'_>>,
    ) {
        debug_assert!(self.layout.check_value(column, value).is_ok());
        let bits = match *value {
            Value::Null => return self.write_cell(column, slot, Cell::NULL),
            Value::Bool(v) => v as u128,
            Value::Int16(v) => v as u16 as u128,
            Value::Int32(v) => v as u32 as u128,
            Value::Float32(v) => v.to_bits() as u128,
            Value::Int64(v) => v as u64 as u128,
            Value::Float64(v) => v.to_bits() as u128,
            Value::Int128(v) => v as u128,
            Value::Bytes(v) => {
                latch
                    .as_mut()
                    .expect("the caller has latched the heap")
                    .append_expecting(column, v, |grown| grown.to_fill(self.rows(), self.layout.slot_count()))
            }
        };
        self.write_cell(column, slot, Cell { null: false, bits });
    }

    /// Releases the value of a variable-length cell, before the cell gets an unrelated one.
    #[inline]
    pub(crate) fn release_view(&self, column: ColumnId, slot: Slot, latch: &mut Option<HeapLatch<'_>>) {
        if let Some(latch) = latch
            && self.is_view(column)
            && let Some(view) = self.view(column, slot)
        {
            latch.release(column, view);
        }
    }

    /// Lets go of the values of a row that is gone for everybody: its slot is empty and has no
    /// version. Called under the row's pruning latch, or in recovery. Otherwise, between the checks
    /// of bit and version, another thread could delete the row and roll back, and a collector could
    /// unlink the record.
    pub(crate) fn release_row(&self, slot: Slot) {
        let Some(mut latch) = self.latch_heap(self.layout.column_ids()) else { return };
        if self.is_present(slot) {
            return;
        }
        // If the bit is a deleter's doing, its record is at the head by now.
        end_copy();
        // A slot that is being filled again has a head from before its cells change.
        if self.version_head(slot).newest().is_null() {
            self.release_cells(slot, &mut latch);
        }
    }

    /// Lets go of the values that a slot has.
    pub(crate) fn release_cells(&self, slot: Slot, latch: &mut HeapLatch<'_>) {
        for column in self.layout.column_ids().filter(|&column| self.is_view(column)) {
            if let Some(view) = self.view(column, slot) {
                latch.release(column, view);
                self.write_cell(column, slot, Cell { null: false, bits: 0 });
            }
        }
    }

    /// Points a variable-length cell to a copy of its value: the half with length and prefix stays
    /// as it is. The caller holds the heap's latch.
    pub(crate) fn redirect(&self, column: ColumnId, slot: Slot, view: ArrowView) {
        assert!(self.is_view(column), "only views are redirected");
        self.check(slot);
        let halves = self.at(self.layout.column(column).value_offset + 16 * slot.0 as usize).cast::<AtomicU64>();
        // SAFETY: the column has an aligned view for every slot, and the slot was checked.
        heap::redirect(unsafe { &*halves.add(1) }, view);
    }

    /// Copies `dst.len()` bytes that start `offset` bytes into the block; they may be torn.
    #[inline]
    pub(crate) fn copy_out(&self, offset: usize, dst: &mut [std::mem::MaybeUninit<u8>]) {
        assert!(offset + dst.len() <= BLOCK_BYTES);
        // SAFETY: the source is inside the block, the target is the caller's own; all writers store
        // atomically.
        unsafe { racy_copy(self.at(offset), dst.as_mut_ptr().cast(), dst.len()) }
    }

    /// The memory at `offset`, of a block without writers.
    ///
    /// # Safety
    /// No other thread may write to the range while the slice lives.
    pub(crate) unsafe fn settled(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= BLOCK_BYTES);
        // SAFETY: in bounds; unchanged by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at(offset), len) }
    }

    /// The memory at `offset`, of a block without further writers, as a buffer of its own. It
    /// outlives the block.
    ///
    /// # Safety
    /// There are no writes to the range from now on.
    pub(crate) unsafe fn lend(&self, offset: usize, len: usize) -> Buffer {
        assert!(offset + len <= BLOCK_BYTES);
        // SAFETY: in bounds, and alive as long as the buffer, which holds the memory; unchanged by
        // the caller's promise.
        unsafe { Buffer::from_custom_allocation(self.start.add(offset), len, self.memory.clone()) }
    }

    /// The block's memory.
    pub(crate) fn memory(&self) -> &Arc<BlockMemory> {
        &self.memory
    }

    /// Notes, once, the pages that are free when the block is gone.
    pub(crate) fn leave(&self, spare: SparePages) {
        self.spare.set(spare).expect("a block freezes once");
    }

    /// The memory at `offset`, for filling a block that is not shared yet.
    ///
    /// # Safety
    /// No other thread may access the range while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn exclusive(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset + len <= BLOCK_BYTES);
        // SAFETY: in bounds; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ColumnSchema, ColumnType, TableSchema};

    #[test]
    fn cells_of_every_physical_type_come_back() {
        let types = [
            ColumnType::Boolean,
            ColumnType::Int16,
            ColumnType::Int32,
            ColumnType::Int64,
            ColumnType::Interval,
            ColumnType::Utf8,
            ColumnType::Float32,
            ColumnType::Float64,
        ];
        let schema = TableSchema {
            columns: types
                .iter()
                .map(|&column_type| ColumnSchema { name: "c".into(), column_type, nullable: true })
                .collect(),
        };
        let block = HotBlock::new(Arc::new(BlockLayout::new(&schema).unwrap()), BlockNo(0));
        let last = Slot(block.layout().slot_count() - 1);
        for slot in [Slot(0), Slot(1), Slot(63), Slot(64), last] {
            let values = [
                Value::Bool(true),
                Value::Int16(-2),
                Value::Int32(i32::MIN),
                Value::Int64(-1),
                Value::Int128(i128::MIN + slot.0 as i128),
                Value::Bytes(b"a value that needs the heap"),
                Value::Float32(-0.5),
                Value::Float64(f64::MAX),
            ];
            for (i, value) in values.iter().enumerate() {
                let column = ColumnId(i as u16);
                block.write_value(column, slot, value, &mut block.latch_heap(std::iter::once(column)));
                let cell = block.read_cell(column, slot);
                match value {
                    Value::Bytes(bytes) => {
                        let mut read = Vec::new();
                        // SAFETY: no other thread has the block.
                        unsafe { block.heap().read(std::iter::once((column, cell.bits)), &mut read) };
                        assert_eq!(read, *bytes);
                    }
                    Value::Int128(v) => assert_eq!(cell.bits, *v as u128),
                    Value::Int64(v) => assert_eq!(cell.bits, u128::from(*v as u64)),
                    _ => assert!(!cell.null),
                }
                block.write_cell(column, slot, Cell::NULL);
                assert!(block.read_cell(column, slot).null);
                block.write_cell(column, slot, cell);
            }
        }
        assert!(block.layout().check_value(ColumnId(0), &Value::Int32(1)).is_err());
        assert!(!block.is_present(last));
        block.set_present(last, true);
        assert!(block.is_present(last) && !block.is_present(Slot(last.0 - 1)));
    }
}
