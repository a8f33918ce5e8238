//! The Data Table API: single rows under multi-version concurrency control (§3.1).
//!
//! # Writing
//! ```text
//! 1. copy the before-image of the columns into an undo record of the transaction
//! 2. install: compare-and-swap the slot's version head from what was seen to the record   -- first updater wins
//! 3. Release fence
//! 4. change the values, validity and allocation bits in place (relaxed atomic stores)
//! ```
//! A writer may install over a head only if its snapshot sees it (or if there is none): a head that
//! is uncommitted or was committed after the snapshot began is a write-write conflict. A
//! rolled-back head is no conflict: the next older one decides. Before the install the block's
//! counter of versioned slots is raised.
//!
//! # Reading
//! ```text
//! 1. copy the values (relaxed), and the allocation bit
//! 2. Acquire fence
//! 3. load the version head; walk the chain, newest to oldest, applying before-images, until a version the snapshot sees
//! ```
//! Copy first, head second: if the copy holds any byte of a writer's step 4, the fences make its
//! step 2 happen before the reader's step 3, so the reader meets the record and puts the
//! before-image in place of the dirty (or torn) copy. In the other order a writer could slip in
//! between. Three ways in which the record could be missing are closed elsewhere. The collector
//! does not unlink a record that a running transaction's snapshot does not see. So a reader that
//! saw dirty bytes finds the record for as long as it runs (a torn copy implies a writer that
//! commits after the reader began). An abort leaves its records linked, under a timestamp newer
//! than every reader that could hold a dirty copy. An address is not reused for a new record while
//! a reader or writer that has seen it is pinned. A head does not come back while a thread that has
//! seen it runs: the collector takes the newest record off a chain only together with all older
//! ones, once everybody sees it. So a compare-and-swap that succeeds, and a head found unchanged
//! after copying, mean that nothing happened in between (no A-B-A).
//!
//! # Bulk append
//! A block filled by one bulk append carries one record for all its rows, the block's *append
//! marker*. A row whose chain ends before a version the snapshot sees is judged by the marker. No
//! reader touches the values of a marked block before seeing its marker, so the appending
//! transaction fills the values with plain stores.
//!
//! # Slots and block numbers that are used again
//! A slot without a row and without a version chain is free: every snapshot, present and future,
//! agrees that nothing is there. Inserts take slots of their insertion head in turn; compaction
//! ([`crate::freeze::compact`]) takes free slots anywhere. Both install by compare-and-swap from
//! null, so a slot that was handed out to a thread which then stalled goes to one of the two. A
//! stalled inserter cannot mistake a later chain for an empty one: compaction's record is newer
//! than its snapshot and stays until its transaction has ended. The number of a block that was
//! recycled goes to a later block. A row id that is kept beyond the snapshot in which it was found
//! may name another row.
//!
//! The steps of a chain's head are those of [`crate::version::chain`], which has the models.

use crate::block::block_table::BlockTable;
use crate::block::heap::count_live;
use crate::block::layout::BlockLayout;
use crate::block::{Block, HotBlock};
use crate::error::{Result, StorageError};
use crate::freeze::frozen::{FreezeFormat, FrozenBlock};
use crate::ids::{BlockNo, ColumnId, RowId, Slot, TableId, Timestamp};
use crate::table::row_buffer::RowBuffer;
use crate::table::row_pins::RowPins;
use crate::types::TableSchema;
use crate::value::Value;
use crate::version::blocker::Blocker;
use crate::version::chain::{Walked, end_copy, may_replace};
use crate::version::transaction::{Readers, Snapshot, Transaction};
use crate::version::undo::{BeforeCell, UndoKind, UndoRecord};
use arrow_array::RecordBatch;
use crossbeam_utils::CachePadded;
use serac_sync::Mutex;
use serac_sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use serac_sync::epoch::{self, Guard};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

/// Blocks that take inserts at the same time, each for a part of the threads.
const INSERTION_HEADS: usize = 4;
const NO_BLOCK: u32 = u32::MAX;

/// The newest state of a row, by any writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LatestState {
    /// There is no row.
    Absent,
    /// There is a row, committed or written by the asking transaction; the buffer holds it.
    Present,
    /// Another running transaction, with this number, has written the row: its fate is open.
    WrittenByOther(u64),
}

/// Figures of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableMetrics {
    /// Blocks.
    pub blocks: u32,
    /// Blocks with a versioned row.
    pub versioned_blocks: u32,
    /// Rows, as inserts less deletes so far (uncommitted ones included).
    pub rows: i64,
    /// Bytes of hot blocks' heap chunks.
    pub heap_bytes: usize,
    /// Written bytes in them that no row and no version needs.
    pub garbage_bytes: usize,
    /// Frozen blocks.
    pub frozen_blocks: u32,
    /// Bytes of all blocks.
    pub bytes: usize,
    /// Bytes of blocks in mapped files: the operating system reads them when they are touched and
    /// forgets them when memory is short.
    pub mapped_bytes: usize,
}

/// A table's blocks.
#[derive(Debug)]
pub struct DataTable {
    id: TableId,
    name: String,
    schema: TableSchema,
    layout: Arc<BlockLayout>,
    blocks: BlockTable,
    heads: [AtomicU32; INSERTION_HEADS],
    /// Numbers below the block table's length that have no block. A thread that adds or recycles a
    /// block holds the latch.
    free_numbers: Mutex<BTreeSet<BlockNo>>,
    compaction_latch: Mutex<()>,
    /// See [`moves`](Self::moves).
    moves: AtomicU64,
    /// The number of the next round of cooling.
    cooling_rounds: AtomicU64,
    rows: RowCount,
    /// A [`FreezeFormat`].
    freeze_format: AtomicU8,
    row_pins: RowPins,
    /// Whether new rows go behind all others.
    ordered: AtomicBool,
    /// Deletes that were not rolled back.
    deletes: AtomicI64,
}

fn thread_head() -> usize {
    serac_sync::thread::ordinal() % INSERTION_HEADS
}

/// Inserts less deletes so far, in a place for each insertion head: threads that count in one place
/// wait for each other.
#[derive(Debug, Default)]
struct RowCount([CachePadded<AtomicI64>; INSERTION_HEADS]);

impl RowCount {
    fn add(&self, rows: i64) {
        // Relaxed, here and below: a figure, which orders nothing.
        self.0[thread_head()].fetch_add(rows, Ordering::Relaxed);
    }

    fn get(&self) -> i64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl DataTable {
    /// An empty table.
    ///
    /// # Errors
    /// [`StorageError::Limit`] for too many columns.
    pub fn new(id: TableId, name: impl Into<String>, schema: TableSchema) -> Result<Arc<Self>> {
        let layout = Arc::new(BlockLayout::new(&schema)?);
        Ok(Arc::new(Self {
            id,
            name: name.into(),
            schema,
            layout,
            blocks: BlockTable::default(),
            heads: [const { AtomicU32::new(NO_BLOCK) }; INSERTION_HEADS],
            free_numbers: Mutex::default(),
            compaction_latch: Mutex::new(()),
            moves: AtomicU64::new(0),
            cooling_rounds: AtomicU64::new(0),
            rows: RowCount::default(),
            freeze_format: AtomicU8::new(FreezeFormat::default() as u8),
            row_pins: RowPins::default(),
            ordered: AtomicBool::new(false),
            deletes: AtomicI64::new(0),
        }))
    }

    /// Number.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Name at creation, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Columns.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// Layout of the blocks.
    pub fn layout(&self) -> &Arc<BlockLayout> {
        &self.layout
    }

    /// The format in which blocks freeze from now on.
    pub fn freeze_format(&self) -> FreezeFormat {
        // Relaxed: a setting, which orders nothing.
        FreezeFormat::from_number(self.freeze_format.load(Ordering::Relaxed))
    }

    /// Sets the format in which blocks freeze from now on. Blocks that are frozen stay as they are,
    /// until they freeze again or [`Storage::freeze_table`](crate::Storage::freeze_table) comes by.
    pub fn set_freeze_format(&self, format: FreezeFormat) {
        self.freeze_format.store(format as u8, Ordering::Relaxed);
    }

    /// Whether rows lie in the order in which they were inserted.
    pub fn is_ordered(&self) -> bool {
        // Relaxed, here and below: a setting, which orders nothing.
        self.ordered.load(Ordering::Relaxed)
    }

    /// Whether row ids ascend from now on in the order of successive inserts. Then all inserts go
    /// to one block, new blocks get numbers above all others, and no row moves before one was
    /// deleted.
    pub fn set_ordered(&self, ordered: bool) {
        self.ordered.store(ordered, Ordering::Relaxed);
    }

    /// Whether compaction may put rows elsewhere, as far as their order is concerned.
    pub(crate) fn may_reorder(&self) -> bool {
        !self.is_ordered() || self.deletes.load(Ordering::Relaxed) > 0
    }
    pub(crate) fn row_pins(&self) -> &RowPins {
        &self.row_pins
    }

    /// The insertion head of the calling thread.
    fn head(&self) -> &AtomicU32 {
        &self.heads[if self.is_ordered() { 0 } else { thread_head() }]
    }

    /// One more than the largest block number so far; numbers below it may have no block.
    pub fn block_count(&self) -> u32 {
        self.blocks.len()
    }

    /// A block, in the form that it has now.
    pub fn block(&self, no: BlockNo) -> Option<Arc<Block>> {
        self.blocks.get_arc(no)
    }

    /// The format in which most of the frozen blocks give a column of variable length; `None` if no
    /// block is frozen.
    pub fn prevalent_format(&self, column: ColumnId) -> Option<FreezeFormat> {
        const FORMATS: [FreezeFormat; 3] = [FreezeFormat::View, FreezeFormat::Utf8, FreezeFormat::Dictionary];
        let mut counts = [0u32; FORMATS.len()];
        for block in (0..self.block_count()).filter_map(|no| self.block(BlockNo(no))) {
            let given = block.frozen().and_then(|block| block.column(column).given_format());
            let formats = FORMATS.iter().zip(&mut counts);
            formats.filter(|(format, _)| given == Some(**format)).for_each(|(_, count)| *count += 1);
        }
        let (format, count) = FORMATS.into_iter().zip(counts).rev().max_by_key(|(_, count)| *count)?;
        (count > 0).then_some(format)
    }
    pub(crate) fn blocks(&self) -> &BlockTable {
        &self.blocks
    }

    /// Makes inserts go on in new blocks, so that those they went to can freeze.
    pub(crate) fn close_insertion_heads(&self) {
        let _growing = self.free_numbers.lock();
        for head in &self.heads {
            let no = head.load(Ordering::Acquire);
            let guard = epoch::pin();
            let used = (no != NO_BLOCK).then(|| self.blocks.get(BlockNo(no), &guard).map_or(0, Block::slot_limit));
            if used.is_some_and(|used| used > 0) {
                head.store(NO_BLOCK, Ordering::Release);
            }
        }
    }

    /// Held while rows of the table are moved: one at a time.
    pub(crate) fn compaction_latch(&self) -> &Mutex<()> {
        &self.compaction_latch
    }

    /// Counts how often rows have begun to leave their places. A reader that finds a place empty
    /// because its row has moved finds another count afterwards than before.
    pub fn moves(&self) -> u64 {
        // Acquire: pairs with `note_moves`, and comes before the next look.
        self.moves.load(Ordering::Acquire)
    }

    /// Copies of rows are in their new places, and the rows are about to leave the old ones.
    pub(crate) fn note_moves(&self) {
        // Release: pairs with `moves`. A reader that does not see a copy yet does not see this
        // count either. A reader that sees that a row is gone sees this count through the record of
        // its deletion.
        self.moves.fetch_add(1, Ordering::Release);
    }

    /// A number that no round of cooling has had.
    pub(crate) fn next_cooling_round(&self) -> u64 {
        // Relaxed: a thread that cools a block puts the number into its temperature, and other
        // threads find it there.
        self.cooling_rounds.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a block under a free number.
    fn add_block(&self, free: &mut BTreeSet<BlockNo>, make: impl FnOnce(BlockNo) -> HotBlock) -> Result<BlockNo> {
        let next = BlockNo(self.blocks.len());
        // Numbers come again in an ordered table, too, when there are no others.
        let reuses = !self.is_ordered() || next.0 >= crate::ids::MAX_BLOCKS_PER_TABLE;
        let no = free.first().copied().filter(|_| reuses).unwrap_or(next);
        self.blocks.insert(no, Arc::new(Block::Hot(make(no))))?;
        free.remove(&no);
        Ok(no)
    }

    /// Gives up a block in which no snapshot sees a row and to which no thread writes.
    pub(crate) fn recycle(&self, no: BlockNo, block: &Block) {
        let mut free = self.free_numbers.lock();
        let removed = self.blocks.remove(no, block);
        assert!(removed, "nobody replaces a block that is freezing");
        free.insert(no);
    }

    /// Whether inserts go to the block.
    pub(crate) fn takes_inserts(&self, no: BlockNo) -> bool {
        self.heads.iter().any(|head| head.load(Ordering::Acquire) == no.0)
    }

    /// Inserts less deletes so far, uncommitted ones included: an estimate for planning.
    pub fn approximate_rows(&self) -> u64 {
        self.rows.get().max(0) as u64
    }

    /// Figures; walks the blocks.
    pub fn metrics(&self) -> TableMetrics {
        let mut metrics = TableMetrics { rows: self.rows.get(), ..Default::default() };
        for block in (0..self.block_count()).filter_map(|no| self.block(BlockNo(no))) {
            metrics.blocks += 1;
            match &*block {
                Block::Hot(block) => {
                    metrics.bytes += block.bytes();
                    metrics.heap_bytes += block.heap().bytes();
                    metrics.garbage_bytes += block.heap().garbage_bytes();
                    metrics.versioned_blocks += u32::from(block.versioned().get() > 0);
                }
                Block::Frozen(block) => {
                    metrics.frozen_blocks += 1;
                    metrics.bytes += block.bytes();
                    metrics.mapped_bytes += if block.is_mapped() { block.bytes() } else { 0 };
                }
            }
        }
        metrics
    }

    fn conflict(self: &Arc<Self>, row: RowId, snapshot: &Snapshot, theirs: Timestamp) -> StorageError {
        let blocker = theirs.running().map(|holder| self.blocker(snapshot, row, holder));
        StorageError::WriteConflict { table: self.name.clone(), row, blocker }
    }

    /// The transaction to wait for when another running transaction has written `row`.
    pub fn blocker(self: &Arc<Self>, snapshot: &Snapshot, row: RowId, holder: u64) -> Arc<Blocker> {
        let table = self.clone();
        Blocker::new(snapshot, holder, (self.id, row), move || table.writer(row) == Some(holder))
    }

    /// The number of the running transaction that has written the newest version of `row`; `None`
    /// if there is none.
    pub fn writer(&self, row: RowId) -> Option<u64> {
        let guard = epoch::pin();
        let block = self.locate(row, &guard)?.hot()?;
        // SAFETY: pinned. Acquire: pairs with the Release that set the marker.
        unsafe { block.version_head(row.slot()).newest().as_ref() }
            .or_else(|| unsafe { block.append_marker().load(Ordering::Acquire).as_ref() })?
            .timestamp()
            .running()
    }

    /// The block of a row, for reading.
    #[inline]
    fn locate<'g>(&'g self, row: RowId, guard: &'g Guard) -> Option<&'g Block> {
        self.blocks.get(row.block(), guard).filter(|block| row.slot().0 < block.slot_limit())
    }

    /// The block of a row, for the calling transaction to change the row.
    #[inline]
    fn locate_for_write<'g>(&'g self, row: RowId, guard: &'g Guard) -> Result<&'g HotBlock> {
        self.writable(row.block(), guard)?
            .filter(|block| row.slot().0 < block.slot_limit())
            .ok_or_else(|| StorageError::InvalidInput(format!("{row:?} is not a row of table \"{}\"", self.name)))
    }

    /// A slot of the calling thread's insertion head.
    fn allocate(&self) -> Result<RowId> {
        let head = self.head();
        loop {
            // Acquire: pairs with the Release below; the block is in the block table by then.
            let no = head.load(Ordering::Acquire);
            if no != NO_BLOCK {
                let guard = epoch::pin();
                match self.blocks.get(BlockNo(no), &guard) {
                    Some(Block::Hot(block)) => {
                        // Release: pairs with `slot_limit`.
                        let slot = block.insert_cursor().fetch_add(1, Ordering::Release);
                        if slot < self.layout.slot_count() {
                            return Ok(RowId::new(BlockNo(no), Slot(slot)));
                        }
                    }
                    // Recovery offers blocks as the checkpoint's file has them.
                    Some(Block::Frozen(block))
                        if block.is_mapped() && block.slot_limit() < self.layout.slot_count() =>
                    {
                        self.writable(BlockNo(no), &guard)?;
                        continue;
                    }
                    // Frozen or recycled meanwhile, by force: it takes no more.
                    _ => {}
                }
            }
            let mut free = self.free_numbers.lock();
            if head.load(Ordering::Acquire) == no {
                let new = self.add_block(&mut free, |no| HotBlock::new(self.layout.clone(), no))?;
                head.store(new.0, Ordering::Release);
            }
        }
    }

    fn check_row(&self, row: &[Value<'_>]) -> Result<()> {
        if row.len() != self.schema.columns.len() {
            return Err(StorageError::InvalidInput(format!(
                "table \"{}\" has {} columns, but {} values were given",
                self.name,
                self.schema.columns.len(),
                row.len()
            )));
        }
        Ok(())
    }

    /// Checks that `values` fit `columns`, before any change.
    #[inline]
    fn check_values(&self, columns: impl Iterator<Item = ColumnId>, values: &[Value<'_>]) -> Result<()> {
        columns.zip(values).try_for_each(|(column, value)| self.layout.check_value(column, value))
    }

    /// A column of variable length can be changed once at a time: its record and its slot each name
    /// one value.
    fn check_distinct_views(&self, block: &HotBlock, columns: &[ColumnId]) -> Result<()> {
        let twice = |i: usize| columns[..i].contains(&columns[i]) && block.is_view(columns[i]);
        match (1..columns.len()).find(|&i| twice(i)) {
            None => Ok(()),
            Some(i) => {
                let column = &self.schema.columns[columns[i].0 as usize].name;
                Err(StorageError::InvalidInput(format!("column \"{column}\" is given twice")))
            }
        }
    }

    /// Inserts a row: one value per column.
    ///
    /// # Errors
    /// [`StorageError::InvalidInput`] for values that do not fit the columns,
    /// [`StorageError::Limit`] when the table is full or a value too long; an error when the log
    /// cannot take the changes.
    pub fn insert(self: &Arc<Self>, txn: &mut Transaction, row: &[Value<'_>]) -> Result<RowId> {
        self.check_row(row)?;
        self.check_values((0..).map(ColumnId), row)?;
        let id = loop {
            let id = self.allocate()?;
            if self.insert_into(txn, id, row)? {
                break id;
            }
        };
        txn.spill_redo()?;
        Ok(id)
    }

    /// Inserts a row, which fits the columns, into a slot that was handed out; false if the slot is
    /// not free any more.
    fn insert_into(self: &Arc<Self>, txn: &mut Transaction, id: RowId, row: &[Value<'_>]) -> Result<bool> {
        // A block that was frozen and thawed since may have forgotten the slot.
        let guard = epoch::pin();
        let Some(block) = self.writable(id.block(), &guard)?.filter(|block| id.slot().0 < block.slot_limit()) else {
            return Ok(false);
        };
        let record = txn.push_undo(self, id, UndoKind::Insert, ptr::null_mut(), std::iter::empty());
        // If the slot is free, an older row of it is wholly gone.
        if !block.version_head(id.slot()).install(block.versioned(), ptr::null_mut(), record) {
            txn.undo().pop_last(record);
            return Ok(false);
        }
        debug_assert!(!block.is_freezing(), "a block does not freeze under a writer");
        let mut latch = block.latch_heap(self.layout.column_ids());
        for (column, value) in self.layout.column_ids().zip(row) {
            block.release_view(column, id.slot(), &mut latch);
            block.write_value(column, id.slot(), value, &mut latch);
        }
        drop(latch);
        block.set_present(id.slot(), true);
        self.rows.add(1);
        txn.redo().insert(self.id, id, row);
        Ok(true)
    }

    /// Inserts a copy of a row of this table into the free slot `id`; false if the slot is not free
    /// (any more).
    pub(crate) fn insert_copy(self: &Arc<Self>, txn: &mut Transaction, id: RowId, row: &[Value<'_>]) -> Result<bool> {
        let guard = epoch::pin();
        let Some(block) = self.writable(id.block(), &guard)? else { return Ok(false) };
        let (slot, cursor) = (id.slot().0, block.insert_cursor());
        // Behind the limit slots are handed out in turn. Release: as in `allocate`.
        let handed_out = slot < block.slot_limit()
            || cursor.compare_exchange(slot, slot + 1, Ordering::Release, Ordering::Relaxed).is_ok();
        // In this order: where the chain is gone, the allocation bit is that of its last row.
        let free = block.version_head(id.slot()).newest().is_null() && !block.is_present(id.slot());
        let inserted = handed_out && free && self.insert_into(txn, id, row)?;
        drop(guard);
        txn.spill_redo()?;
        Ok(inserted)
    }

    /// Installs a record over the newest version of `row` (steps 1 to 3). The caller is pinned.
    fn install(
        self: &Arc<Self>,
        txn: &mut Transaction,
        block: &HotBlock,
        row: RowId,
        kind: UndoKind,
        columns: &[ColumnId],
    ) -> Result<()> {
        let head = block.version_head(row.slot());
        loop {
            let seen = head.newest();
            // SAFETY: pinned since before the load. Acquire: pairs with the Release that set the
            // marker.
            let newest =
                unsafe { seen.as_ref() }.or_else(|| unsafe { block.append_marker().load(Ordering::Acquire).as_ref() });
            // SAFETY: as above.
            match unsafe { may_replace(newest, |timestamp| txn.snapshot().sees(timestamp)) } {
                Ok(Some(timestamp)) => txn.snapshot().note_read(timestamp),
                Ok(None) => {}
                Err(timestamp) => return Err(self.conflict(row, txn.snapshot(), timestamp)),
            }
            if !block.is_present(row.slot()) {
                // Acquire: pairs with a deleter's Release fence: if the bit is its doing, its
                // record is at the head by now.
                end_copy();
                if head.newest() != seen {
                    continue; // a concurrent delete: a conflict, as the newer head will tell
                }
                return Err(StorageError::InvalidInput(format!("{row:?} of table \"{}\" was deleted", self.name)));
            }
            let before = columns.iter().map(|&column| BeforeCell::new(column, block.read_cell(column, row.slot())));
            let record = txn.push_undo(self, row, kind, seen, before);
            if head.install(block.versioned(), seen, record) {
                debug_assert!(!block.is_freezing(), "a block does not freeze under a writer");
                if txn.promised == Some((self.id, row)) {
                    txn.promised = None;
                }
                return Ok(());
            }
            txn.undo().pop_last(record);
        }
    }

    /// Updates `columns` of `row` to `values`.
    ///
    /// # Errors
    /// [`StorageError::WriteConflict`] when a concurrent transaction changed the row first;
    /// [`StorageError::InvalidInput`] for a row that is not there or values that do not fit;
    /// [`StorageError::Limit`] for a value that is too long; [`StorageError::Corrupt`] when the row
    /// lies in a damaged file.
    pub fn update(
        self: &Arc<Self>,
        txn: &mut Transaction,
        row: RowId,
        columns: &[ColumnId],
        values: &[Value<'_>],
    ) -> Result<()> {
        self.update_from(txn, row, columns, values, None)
    }

    /// As [`update`](Self::update); `old` gets the values that the columns had.
    ///
    /// # Errors
    /// As there.
    pub fn update_from(
        self: &Arc<Self>,
        txn: &mut Transaction,
        row: RowId,
        columns: &[ColumnId],
        values: &[Value<'_>],
        old: Option<&mut RowBuffer>,
    ) -> Result<()> {
        assert_eq!(columns.len(), values.len(), "one value per column");
        self.check_values(columns.iter().copied(), values)?;
        let guard = epoch::pin();
        let block = self.locate_for_write(row, &guard)?;
        columns.iter().for_each(|&column| block.prefetch_cell(column, row.slot()));
        // From before the before-image is read: the record takes over the slot's name of the bytes.
        let mut latch = block.latch_heap(columns.iter().copied());
        if latch.is_some() {
            self.check_distinct_views(block, columns)?;
        }
        self.install(txn, block, row, UndoKind::Update, columns)?;
        if let Some(old) = old {
            // The row is this transaction's now: what it holds is the version that the snapshot
            // sees.
            old.cells.clear();
            old.cells.extend(columns.iter().map(|&column| block.read_cell(column, row.slot())));
            // SAFETY: pinned; the cells are the newest version's.
            unsafe { old.resolve_hot(block, &self.layout, columns) };
        }
        for (&column, value) in columns.iter().zip(values) {
            block.write_value(column, row.slot(), value, &mut latch);
        }
        drop(latch);
        drop(guard);
        txn.redo().update(self.id, row, columns, values);
        txn.spill_redo()
    }

    /// Deletes `row`.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn delete(self: &Arc<Self>, txn: &mut Transaction, row: RowId) -> Result<()> {
        let guard = epoch::pin();
        let block = self.locate_for_write(row, &guard)?;
        self.install(txn, block, row, UndoKind::Delete, &[])?;
        block.set_present(row.slot(), false);
        drop(guard);
        self.rows.add(-1);
        // Relaxed: a figure, which orders nothing.
        self.deletes.fetch_add(1, Ordering::Relaxed);
        txn.redo().delete(self.id, row);
        txn.spill_redo()
    }

    /// Claims `row` without changing it: a concurrent transaction that writes it conflicts.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn lock_row(self: &Arc<Self>, txn: &mut Transaction, row: RowId) -> Result<()> {
        let guard = epoch::pin();
        let block = self.locate_for_write(row, &guard)?;
        self.install(txn, block, row, UndoKind::Update, &[])
    }

    /// Puts back the values that `record` replaced (abort, ROLLBACK TO). Once for each record,
    /// newest first.
    pub(crate) fn restore(&self, record: &UndoRecord) {
        let row = record.row();
        let guard = epoch::pin();
        let block = self.blocks.get(row.block(), &guard).and_then(Block::hot).expect("a block with versions stays hot");
        match record.kind() {
            UndoKind::Update => {
                let mut latch = block.latch_heap(record.before().iter().map(|before| before.column));
                for before in record.before() {
                    block.release_view(before.column, row.slot(), &mut latch);
                    let cell = before.cell();
                    if let Some(latch) = &mut latch
                        && block.is_view(before.column)
                        && !cell.null
                    {
                        latch.retain(before.column, cell.bits);
                    }
                    block.write_cell(before.column, row.slot(), cell);
                }
            }
            UndoKind::Insert => {
                block.set_present(row.slot(), false);
                self.rows.add(-1);
            }
            UndoKind::Delete => {
                block.set_present(row.slot(), true);
                self.rows.add(1);
                self.deletes.fetch_sub(1, Ordering::Relaxed);
            }
            UndoKind::Append => {
                // Only this transaction had seen the appended rows, so their values go at once.
                // Collectors need not tell these slots from those of rows that are being deleted.
                let mut latch = block.latch_heap(self.layout.column_ids());
                for slot in (0..block.slot_limit()).map(Slot) {
                    if block.is_present(slot) {
                        block.set_present(slot, false);
                        latch.iter_mut().for_each(|latch| block.release_cells(slot, latch));
                        self.rows.add(-1);
                    }
                }
            }
        }
    }

    /// Reads `columns` of `row` as `snapshot` sees them into `out`; false if it sees no row.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when the row lies in a damaged file.
    pub fn read(&self, snapshot: &Snapshot, row: RowId, columns: &[ColumnId], out: &mut RowBuffer) -> Result<bool> {
        self.read_pinned(snapshot, row, columns, out, &epoch::pin())
    }

    /// As [`read`](Self::read), for a caller that is [pinned](crate::pin).
    ///
    /// # Errors
    /// As there.
    pub fn read_pinned(
        &self,
        snapshot: &Snapshot,
        row: RowId,
        columns: &[ColumnId],
        out: &mut RowBuffer,
        guard: &epoch::Guard,
    ) -> Result<bool> {
        let Some(block) = self.locate(row, guard) else { return Ok(false) };
        block.prefetch_row(row.slot(), columns);
        block.prefetch_version(row.slot());
        block.check(columns)?;
        block.read_cells(columns, row.slot(), &mut out.cells);
        let mut present = block.is_present(row.slot());
        end_copy();
        // SAFETY: pinned.
        unsafe {
            if let Some(block) = block.hot() {
                present = apply_chain(block, row.slot(), snapshot, present, |before| {
                    // A column may be asked for twice.
                    for (cell, _) in out.cells.iter_mut().zip(columns).filter(|(_, column)| **column == before.column) {
                        *cell = before.cell();
                    }
                });
            }
        }
        if present {
            // SAFETY: pinned.
            unsafe { out.resolve(block, &self.layout, columns) };
        }
        Ok(present)
    }

    /// Has the memory bring the cells of a row that will be read.
    #[inline]
    pub fn prefetch_row(&self, row: RowId, columns: &[ColumnId], guard: &Guard) {
        if let Some(block) = self.locate(row, guard) {
            block.prefetch_row(row.slot(), columns);
        }
    }

    /// Prefetches the memory that [`read`](Self::read)ing columns of these rows touches, for all
    /// rows together, where `read` waits for one after the other. Changes nothing.
    pub fn look_ahead(&self, rows: &[RowId], columns: &[ColumnId]) {
        let guard = epoch::pin();
        let located = || rows.iter().filter_map(|row| Some((row.slot(), self.locate(*row, &guard)?)));
        located().for_each(|(slot, block)| block.prefetch_row(slot, columns));
        for (slot, block) in located() {
            block.prefetch_version(slot);
            block.prefetch_texts(columns, slot);
        }
    }

    /// Reads the newest state of `row`, by any writer: for checks that must not depend on a
    /// snapshot (uniqueness).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_latest(
        &self,
        snapshot: &Snapshot,
        row: RowId,
        columns: &[ColumnId],
        out: &mut RowBuffer,
    ) -> Result<LatestState> {
        let guard = epoch::pin();
        loop {
            // Looked up anew each time: the block may have been thawed.
            let Some(block) = self.locate(row, &guard) else { return Ok(LatestState::Absent) };
            block.check(columns)?;
            let seen = block.newest_version(row.slot());
            let marker = block.append_record();
            // SAFETY: pinned.
            let newest = unsafe { seen.as_ref() }.or(unsafe { marker.as_ref() });
            if let Some(record) = newest {
                let timestamp = record.timestamp();
                if let Some(other) = timestamp.running().filter(|_| !snapshot.owns(timestamp)) {
                    return Ok(LatestState::WrittenByOther(other));
                }
                snapshot.note_read(timestamp);
            }
            block.read_cells(columns, row.slot(), &mut out.cells);
            let present = block.is_present(row.slot());
            end_copy();
            if block.newest_version(row.slot()) != seen
                || !self.blocks.get(row.block(), &guard).is_some_and(|now| ptr::eq(now, block))
            {
                continue; // somebody wrote meanwhile: the head never comes back to `seen` (see the module)
            }
            if !present {
                return Ok(LatestState::Absent);
            }
            // SAFETY: pinned.
            unsafe { out.resolve(block, &self.layout, columns) };
            return Ok(LatestState::Present);
        }
    }

    /// Whether a transaction that has committed since `snapshot` began has written `row`. A row
    /// that was rolled back or moved counts, too.
    pub fn is_changed_since(&self, snapshot: &Snapshot, row: RowId) -> bool {
        let guard = epoch::pin();
        // A block that is gone had nothing in it that any snapshot sees.
        let Some(block) = self.locate(row, &guard) else { return false };
        let marker = block.append_record();
        let mut current = block.newest_version(row.slot());
        // SAFETY: pinned.
        while let Some(record) = unsafe { current.as_ref() } {
            let timestamp = record.timestamp();
            if timestamp.is_committed() {
                return !snapshot.sees(timestamp);
            }
            // Uncommitted records stand above committed ones.
            current = record.next();
        }
        // SAFETY: pinned.
        unsafe { marker.as_ref() }.is_some_and(|marker| {
            let timestamp = marker.timestamp();
            timestamp.is_committed() && !snapshot.sees(timestamp)
        })
    }

    /// Whether `matches` accepts the newest state of `row`, committed or not, or any older state
    /// that a version chain still reaches. With `readers`, only older states that one of them may
    /// read count. The caller has a snapshot, or is an
    /// [`Action`](crate::version::transaction::Action): otherwise a change that is rolled back
    /// meanwhile may be taken for the newest state.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn any_version_matches(
        &self,
        row: RowId,
        columns: &[ColumnId],
        readers: Option<&Readers>,
        matches: &mut dyn FnMut(&RowBuffer) -> bool,
    ) -> Result<bool> {
        let guard = epoch::pin();
        let Some(block) = self.locate(row, &guard) else { return Ok(false) };
        block.check(columns)?;
        let (head, mut out) = (|| block.newest_version(row.slot()), RowBuffer::default());
        // From the newest record on, each with its timestamp.
        let mut chain = SmallVec::<[(&UndoRecord, Timestamp); 4]>::new();
        let mut present = loop {
            // The whole chain is noted before the values are copied. Later, a running transaction
            // whose change is in the copy may roll it back, and a collector may take that record
            // off the chain. Then no record would be left with the row's true state.
            let newest = head();
            chain.clear();
            let mut current = newest;
            // SAFETY: pinned.
            while let Some(record) = unsafe { current.as_ref() } {
                chain.push((record, record.timestamp()));
                current = record.next();
            }
            // The newest state is taken as it is, without a version that would repair it: no thread
            // changes views while we hold the latch.
            let latch = block.hot().and_then(|block| block.latch_heap(columns.iter().copied()));
            block.read_cells(columns, row.slot(), &mut out.cells);
            drop(latch);
            let present = block.is_present(row.slot());
            end_copy();
            serac_sync::linger();
            if head() == newest {
                break present; // the copy has no change whose record was not noted
            }
        };
        serac_sync::probe("a record went off a chain that was being walked", || {
            chain.windows(2).any(|pair| !std::ptr::eq(pair[0].0.next(), pair[1].0))
        });
        // The time at which the state was replaced.
        let mut replaced = None;
        for older in chain.iter().map(Some).chain([None]) {
            // The record that made the oldest state may have been taken off the chain: it counts as
            // old.
            let made = older.map_or(Timestamp::ZERO, |(_, timestamp)| *timestamp);
            let counts = match (readers, replaced) {
                (Some(readers), Some(replaced)) => readers.may_see(made, replaced),
                _ => true,
            };
            if present && counts {
                // SAFETY: pinned.
                unsafe { out.resolve(block, &self.layout, columns) };
                if matches(&out) {
                    return Ok(true);
                }
            }
            let Some((record, _)) = older else { break };
            replaced = Some(made);
            for before in record.before() {
                for (cell, _) in out.cells.iter_mut().zip(columns).filter(|(_, column)| **column == before.column) {
                    *cell = before.cell();
                }
            }
            match record.kind() {
                UndoKind::Delete => present = true,
                UndoKind::Insert | UndoKind::Append => present = false,
                UndoKind::Update => {}
            }
        }
        Ok(false)
    }

    /// Appends all rows of `batch`, filling blocks column by column; they become visible together
    /// at the commit. Returns the row ids as ranges of their 64-bit form, in the order of the rows.
    ///
    /// # Errors
    /// [`StorageError::InvalidInput`] when the batch's columns do not fit the table's,
    /// [`StorageError::Limit`] when the table is full or a value too long; an error when the log
    /// cannot take the rows.
    pub fn append(self: &Arc<Self>, txn: &mut Transaction, batch: &RecordBatch) -> Result<Vec<Range<u64>>> {
        crate::table::append::check_batch(&self.schema, batch)?;
        let mut ranges = Vec::new();
        let mut done = 0;
        while done < batch.num_rows() {
            let head = match txn.append_head(self) {
                Some(no) => no,
                None => self.new_append_block(txn)?,
            };
            let guard = epoch::pin();
            let block = self.writable(head, &guard)?.expect("an append head is a block of the table");
            let from = block.insert_cursor().load(Ordering::Relaxed);
            let rows = ((self.layout.slot_count() - from) as usize).min(batch.num_rows() - done);
            if rows == 0 {
                txn.forget_append_head();
                continue;
            }
            let part = batch.slice(done, rows);
            let first = RowId::new(head, Slot(from)).as_u64();
            // Before the rows are there: rows that the log cannot take must not be.
            let logged = txn.redo().append(self.id, RowId::from_u64(first), &part);
            if logged.is_err() && from == 0 {
                // No other thread fills the block, which was made for these rows. It is recycled
                // like a block full of empty slots.
                txn.forget_append_head();
                block.insert_cursor().store(self.layout.slot_count(), Ordering::Release);
            }
            logged?;
            // SAFETY: the block is marked as this transaction's and no other thread looks behind a
            // marker that it does not see.
            unsafe { crate::table::append::fill(block, &self.schema, from, &part) };
            // Release: pairs with `slot_limit`.
            block.insert_cursor().store(from + rows as u32, Ordering::Release);
            drop(guard);
            self.rows.add(rows as i64);
            txn.spill_redo()?;
            ranges.push(first..first + rows as u64);
            done += rows;
        }
        Ok(ranges)
    }

    fn new_append_block(self: &Arc<Self>, txn: &mut Transaction) -> Result<BlockNo> {
        let mut free = self.free_numbers.lock();
        let mut made = ptr::null_mut();
        let added = self.add_block(&mut free, |no| {
            // Marked before another thread can reach it; the record's row names the block.
            let block = HotBlock::new(self.layout.clone(), no);
            made = txn.push_undo(self, RowId::new(no, Slot(0)), UndoKind::Append, ptr::null_mut(), std::iter::empty());
            // Release: pairs with the readers' Acquire.
            block.append_marker().store(made, Ordering::Release);
            block
        });
        drop(free);
        let no = added.inspect_err(|_| txn.undo().pop_last(made))?;
        let table = self.clone();
        // The free slots of the load's last block go to inserts.
        txn.on_commit(Box::new(move |_| table.offer_insertion_head(no)));
        txn.set_append_head(self, no);
        Ok(no)
    }

    fn offer_insertion_head(&self, no: BlockNo) {
        let guard = epoch::pin();
        let Some(block) = self.blocks.get(no, &guard) else { return };
        if self.is_ordered() {
            // Full or not: later inserts come behind it.
            let _growing = self.free_numbers.lock();
            let head = &self.heads[0];
            let now = head.load(Ordering::Acquire);
            if now == NO_BLOCK || now < no.0 {
                // Release: pairs with `allocate`.
                head.store(no.0, Ordering::Release);
            }
            return;
        }
        if block.slot_limit() < self.layout.slot_count() {
            for head in &self.heads {
                // Release: pairs with `allocate`. One head is enough; a head that is in use is left
                // alone.
                if head.compare_exchange(NO_BLOCK, no.0, Ordering::Release, Ordering::Relaxed).is_ok() {
                    return;
                }
            }
        }
    }

    // ---- recovery: single rows put where they were, no versions, nobody else there

    pub(crate) fn recover_block<'g>(&'g self, no: BlockNo, guard: &'g Guard) -> Result<&'g HotBlock> {
        let make = || Arc::new(Block::Hot(HotBlock::new(self.layout.clone(), no)));
        self.blocks.get_or_insert_with(no, guard, make);
        Ok(self.writable(no, guard)?.expect("it was just made sure of"))
    }

    fn recover_slot<'g>(&'g self, row: RowId, guard: &'g Guard) -> Result<&'g HotBlock> {
        if row.slot().0 >= self.layout.slot_count() || row.block().0 >= crate::ids::MAX_BLOCKS_PER_TABLE {
            return Err(StorageError::InvalidInput(format!("{row:?} is outside table \"{}\"", self.name)));
        }
        let block = self.recover_block(row.block(), guard)?;
        block.insert_cursor().fetch_max(row.slot().0 + 1, Ordering::Release);
        Ok(block)
    }
    pub(crate) fn recover_insert(&self, row: RowId, values: &[Value<'_>]) -> Result<()> {
        self.check_row(values)?;
        let columns: Vec<ColumnId> = (0..values.len() as u16).map(ColumnId).collect();
        let guard = epoch::pin();
        let block = self.recover_slot(row, &guard)?;
        if !block.is_present(row.slot()) {
            self.rows.add(1);
        }
        block.set_present(row.slot(), true);
        self.recover_update(row, &columns, values)
    }
    pub(crate) fn recover_update(&self, row: RowId, columns: &[ColumnId], values: &[Value<'_>]) -> Result<()> {
        self.check_values(columns.iter().copied(), values)?;
        let guard = epoch::pin();
        let block = self.recover_slot(row, &guard)?;
        let mut latch = block.latch_heap(columns.iter().copied());
        for (&column, value) in columns.iter().zip(values) {
            block.release_view(column, row.slot(), &mut latch);
            block.write_value(column, row.slot(), value, &mut latch);
        }
        Ok(())
    }
    pub(crate) fn recover_delete(&self, row: RowId) -> Result<()> {
        let guard = epoch::pin();
        let block = self.recover_slot(row, &guard)?;
        if block.is_present(row.slot()) {
            self.rows.add(-1);
        }
        block.set_present(row.slot(), false);
        block.release_row(row.slot());
        Ok(())
    }

    /// Puts the rows of `batch` at `first` and the slots after it.
    pub(crate) fn recover_append(&self, first: RowId, batch: &RecordBatch) -> Result<()> {
        crate::table::append::check_batch(&self.schema, batch)?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let last = RowId::new(first.block(), Slot(first.slot().0 + batch.num_rows() as u32 - 1));
        let guard = epoch::pin();
        let block = self.recover_slot(last, &guard)?;
        // SAFETY: recovery gives each block to one thread, before the database is open.
        unsafe { crate::table::append::fill(block, &self.schema, first.slot().0, batch) };
        self.rows.add(batch.num_rows() as i64);
        Ok(())
    }

    /// Puts a block of a checkpoint's file where it was.
    pub(crate) fn recover_frozen(&self, no: BlockNo, block: FrozenBlock) -> Result<()> {
        let (rows, guard) = (block.rows(), epoch::pin());
        let mut block = Some(block);
        self.blocks
            .get_or_insert_with(no, &guard, || Arc::new(Block::Frozen(block.take().expect("a block is made once"))));
        if block.is_some() {
            return Err(StorageError::InvalidInput(format!(
                "block {} of table \"{}\" is there twice",
                no.0, self.name
            )));
        }
        self.rows.add(rows.into());
        Ok(())
    }

    /// Recycles blocks without rows, and makes the insertion heads go on in the newest blocks that
    /// have room.
    pub(crate) fn recover_finish(&self) {
        let guard = epoch::pin();
        for no in (0..self.block_count()).map(BlockNo) {
            match self.blocks.get(no, &guard) {
                None => {
                    self.free_numbers.lock().insert(no);
                }
                Some(block) if block.rows() == 0 => self.recycle(no, block),
                Some(_) => {}
            }
        }
        drop(guard);
        if self.is_ordered() {
            // Also where the last number has no block: then a new one is made.
            if let Some(last) = self.block_count().checked_sub(1) {
                self.heads[0].store(last, Ordering::Release);
            }
            return;
        }
        for no in (0..self.block_count()).rev().take(INSERTION_HEADS) {
            self.offer_insertion_head(BlockNo(no));
        }
    }

    /// Walks the whole table and checks its invariants when no transaction is running.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn verify(&self) {
        let mut rows = 0;
        for no in 0..self.block_count() {
            let Some(block) = self.block(BlockNo(no)) else { continue };
            let block = match &*block {
                Block::Hot(block) => block,
                Block::Frozen(block) => {
                    rows += i64::from(block.rows());
                    continue;
                }
            };
            let mut versioned = 0;
            for slot in 0..self.layout.slot_count() {
                let head = block.version_head(Slot(slot)).newest();
                versioned += u32::from(!head.is_null());
                if slot >= block.slot_limit() {
                    assert!(head.is_null() && !block.is_present(Slot(slot)), "slot {slot} was never handed out");
                }
                rows += i64::from(block.is_present(Slot(slot)));
            }
            assert_eq!(block.versioned().get(), versioned, "versioned slots of block {no}");
            if versioned == 0 {
                self.verify_heap(block);
            }
        }
        assert_eq!(rows, self.rows.get(), "rows of table {}", self.name);
    }

    /// Without versions, slots alone name the live bytes of the heap.
    fn verify_heap(&self, block: &HotBlock) {
        let latch = block.heap().latch();
        for column in self.layout.column_ids().filter(|&column| block.is_view(column)) {
            let live = latch.live_of(column);
            let mut named = vec![0; live.len()];
            for slot in (0..block.slot_limit()).map(Slot) {
                if let Some(view) = block.view(column, slot) {
                    assert!(block.is_present(slot) || view == 0, "an empty slot holds no value");
                    count_live(view, &mut named);
                }
            }
            assert_eq!(live, named, "live bytes by chunk");
        }
    }
}

/// Walks the version chain of a slot from its head and hands the before-images that the snapshot
/// needs to `apply`. Returns whether the snapshot sees the row; `present` is its copied state. Step
/// 3 of reading.
///
/// # Safety
/// The caller has pinned an epoch.
#[inline]
pub(crate) unsafe fn apply_chain(
    block: &HotBlock,
    slot: Slot,
    snapshot: &Snapshot,
    present: bool,
    apply: impl FnMut(&BeforeCell),
) -> bool {
    let sees = |record: &UndoRecord| {
        let timestamp = record.timestamp();
        let sees = snapshot.sees_record(record, timestamp);
        if sees {
            snapshot.note_read(timestamp);
        }
        sees
    };
    // SAFETY: the caller is pinned.
    match unsafe { block.version_head(slot).walk(present, sees, apply) } {
        Walked::Decided(present) => present,
        // SAFETY: as above.
        Walked::Ended(present) => present && unsafe { sees_append(block, snapshot) },
    }
}

/// Whether `snapshot` sees the rows of the block's bulk append, if it had one.
///
/// # Safety
/// The caller has pinned an epoch.
#[inline]
pub(crate) unsafe fn sees_append(block: &HotBlock, snapshot: &Snapshot) -> bool {
    // Acquire: pairs with the Release that set the marker.
    // SAFETY: the caller is pinned.
    match unsafe { block.append_marker().load(Ordering::Acquire).as_ref() } {
        None => true,
        Some(record) => {
            let timestamp = record.timestamp();
            let sees = snapshot.sees_record(record, timestamp);
            if sees {
                snapshot.note_read(timestamp);
            }
            sees
        }
    }
}
