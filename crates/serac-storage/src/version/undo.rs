//! Undo records: before-images in segments that never move (§3.1).
//!
//! A transaction's undo records lie one behind the other in segments drawn from a pool. Version
//! chains point right into them, so a segment never moves and lives until no chain and no reader
//! can reach it. A record does not carry its timestamp. It points to the *timestamp cell* of its
//! transaction, so a commit stamps a million versions with one store. The cell lives in the
//! [`UndoContext`], together with the segments.
//!
//! **Ownership.** The running [`Transaction`](crate::version::transaction::Transaction) has the
//! context as its own ([`OwnedContext`]), and alone touches the buffer of records in it. Readers
//! get at the timestamp cell through records, at any time, so no thread ever has the whole context
//! exclusively. At the end the context is handed to the garbage collector; from then on the buffer
//! does not change, and collectors read it.
//!
//! **Lifetime.** `linked` counts the records that a version chain still reaches, plus one while a
//! thread works through the context. The thread that lowers it to zero retires the context. An
//! epoch later, when no reader can be in the middle of one of its records, it has *expired*. A
//! collector then puts it back into the pool with its first segment, and the other segments on
//! their own. Contexts expire in batches: the epoch's garbage may fall to a committing thread,
//! which must not find much to do.
//!
//! **Undoing** goes from the newest record to the one behind a mark. Records that are undone stay
//! in the buffer and on their chains, where they say nothing new. The buffer remembers which they
//! are, so that going back costs as much as what was done since, however much was done before or
//! has been undone already.
//!
//! Model: `serac-models/tests/protocols.rs`.

use crate::ids::{ColumnId, RowId, Timestamp};
use crate::table::data_table::DataTable;
use serac_sync::Mutex;
use serac_sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::alloc;
use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Bytes of the first segment of a transaction: small, because under a long-running reader one
/// record can keep it.
const FIRST_SEGMENT_BYTES: usize = 512;
/// Bytes of every later segment (the paper's size).
const SEGMENT_BYTES: usize = 4096;
/// Later segments that the pool keeps at the most.
const POOLED_SEGMENTS: usize = 4096;
/// Contexts, each with its first segment, that the pool keeps at the most.
const POOLED_CONTEXTS: usize = 16_384;

/// The kind of change that a record undoes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum UndoKind {
    /// The row did not exist before.
    Insert,
    /// The listed columns had the listed values.
    Update,
    /// The row existed before.
    Delete,
    /// All rows of the block did not exist before (bulk append).
    Append,
}

/// One column of a before-image.
#[derive(Debug)]
#[repr(C)]
pub struct BeforeCell {
    low: u64,
    /// The part of a view that says where its bytes lie: a vacuum may move them.
    high: AtomicU64,
    /// The column.
    pub column: ColumnId,
    /// Whether the value was NULL.
    pub null: bool,
}

impl BeforeCell {
    /// A before-image of one cell.
    pub fn new(column: ColumnId, cell: crate::block::Cell) -> Self {
        Self { low: cell.bits as u64, high: AtomicU64::new((cell.bits >> 64) as u64), column, null: cell.null }
    }

    /// The cell as it was.
    #[inline]
    pub fn cell(&self) -> crate::block::Cell {
        // Old or new, it names the same value. Acquire: pairs with `redirect`, so that the value is
        // there (see `HotBlock::redirect`).
        let high = self.high.load(Ordering::Acquire);
        crate::block::Cell { null: self.null, bits: self.low as u128 | (high as u128) << 64 }
    }

    /// Points to a copy of the bytes. Under the row's pruning latch and the heap's.
    pub(crate) fn redirect(&self, view: crate::block::view::ArrowView) {
        // Release: pairs with `cell`.
        self.high.store((view >> 64) as u64, Ordering::Release);
    }
}

/// A delta record: the values that one change of one row replaced, linked newest to oldest. Its
/// before-image follows it in memory.
#[derive(Debug)]
#[repr(C)]
pub struct UndoRecord {
    /// The next older record of the same row.
    next: AtomicPtr<UndoRecord>,
    context: *const UndoContext,
    table: *const DataTable,
    row: RowId,
    /// The commit timestamp once a collector has met it: spares others the way to the context. Zero
    /// until then.
    settled: AtomicU64,
    kind: UndoKind,
    /// Whether the collector has taken the record off its chain. Touched under the row's pruning
    /// latch.
    unlinked: AtomicBool,
    column_count: u16,
    stage: u32,
}

impl UndoRecord {
    const fn bytes(columns: usize) -> usize {
        size_of::<UndoRecord>() + columns * size_of::<BeforeCell>()
    }

    /// The timestamp of the transaction that made the record.
    #[inline]
    pub fn timestamp(&self) -> Timestamp {
        // Acquire: pairs with the Release in `settle`, which comes after the commit.
        match self.settled.load(Ordering::Acquire) {
            // SAFETY: the context outlives its records.
            // Acquire: pairs with the Release of commit and abort on the cell.
            0 => Timestamp(unsafe { &*self.context }.cell.load(Ordering::Acquire)),
            settled => Timestamp(settled),
        }
    }

    /// As [`timestamp`](Self::timestamp); keeps it in the record if it is final.
    #[inline]
    pub(crate) fn settle(&self) -> Timestamp {
        let timestamp = self.timestamp();
        if timestamp.is_committed() && self.settled.load(Ordering::Relaxed) == 0 {
            // Release: pairs with the Acquire in `timestamp`.
            self.settled.store(timestamp.0, Ordering::Release);
        }
        timestamp
    }

    /// Whether the transaction that made the record, whose timestamp the caller has found to be
    /// final, was rolled back.
    pub(crate) fn is_aborted(&self) -> bool {
        // SAFETY: the context outlives its records. Relaxed: set before the stamp, which the caller
        // has seen.
        unsafe { &*self.context }.aborted.load(Ordering::Relaxed)
    }

    /// The kind of change that the record undoes.
    #[inline]
    pub fn kind(&self) -> UndoKind {
        self.kind
    }

    /// The stage of its transaction in which it was made: see
    /// [`snapshot_until_now`](crate::version::transaction::Transaction::snapshot_until_now).
    #[inline]
    pub(crate) fn stage(&self) -> u32 {
        self.stage
    }

    /// The row it belongs to.
    pub fn row(&self) -> RowId {
        self.row
    }

    /// The table it belongs to.
    pub fn table(&self) -> &DataTable {
        // SAFETY: the context holds a reference to every table it has records of.
        unsafe { &*self.table }
    }

    /// The next older record.
    #[inline]
    pub fn next(&self) -> *mut UndoRecord {
        // Acquire: pairs with the Release that linked the older record.
        self.next.load(Ordering::Acquire)
    }

    /// Points to an older record. Before the record is installed by its owner, afterwards only by
    /// the collector.
    #[inline]
    pub(crate) fn set_next(&self, next: *mut UndoRecord) {
        // Release: pairs with the Acquire in `next`.
        self.next.store(next, Ordering::Release);
    }

    /// The before-image.
    #[inline]
    pub fn before(&self) -> &[BeforeCell] {
        // SAFETY: `OwnedContext::push` wrote `column_count` cells right behind the record; later
        // writes are atomic.
        unsafe {
            std::slice::from_raw_parts(ptr::from_ref(self).add(1).cast::<BeforeCell>(), self.column_count as usize)
        }
    }

    pub(crate) fn is_unlinked(&self) -> bool {
        self.unlinked.load(Ordering::Relaxed)
    }

    /// Notes that no chain reaches the record any more; returns its context if that was the
    /// context's last linked record.
    pub(crate) fn mark_unlinked(&self) -> Option<*const UndoContext> {
        // Relaxed: the row's pruning latch orders the flag.
        assert!(!self.unlinked.swap(true, Ordering::Relaxed), "a record is unlinked once");
        // SAFETY: the context lives: its count includes this record.
        unsafe { &*self.context }.release().then_some(self.context)
    }
}

#[derive(Debug)]
struct Segment {
    memory: NonNull<u8>,
    capacity: usize,
    used: usize,
}

// SAFETY: a segment is plain memory; its records are shared under the rules of this module.
unsafe impl Send for Segment {}

impl Segment {
    fn layout(capacity: usize) -> alloc::Layout {
        alloc::Layout::from_size_align(capacity, 16).expect("segment sizes are small")
    }

    fn new(capacity: usize) -> Self {
        let layout = Self::layout(capacity);
        // SAFETY: the capacity is not zero.
        let memory = unsafe { alloc::alloc(layout) };
        let memory = NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        Self { memory, capacity, used: 0 }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { alloc::dealloc(self.memory.as_ptr(), Self::layout(self.capacity)) }
    }
}

/// A context in the hands of the collectors, which work through it side by side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContextPtr(pub(crate) *const UndoContext);
// SAFETY: contexts are Send and Sync; they get an exclusive owner again in
// `UndoPool::recycle_expired` alone.
unsafe impl Send for ContextPtr {}

/// Undo contexts, each with its first segment, and later segments that wait to be used again.
#[derive(Debug, Default)]
pub struct UndoPool {
    contexts: Mutex<Vec<OwnedContext>>,
    /// Batches of contexts that nothing can reach any more.
    expired: Mutex<Vec<Vec<ContextPtr>>>,
    segments: Mutex<Vec<Segment>>,
    outstanding_bytes: AtomicUsize,
}

impl UndoPool {
    fn take(&self, at_least: usize) -> Segment {
        let segment = if at_least > SEGMENT_BYTES {
            Segment::new(at_least)
        } else {
            self.segments.lock().pop().unwrap_or_else(|| Segment::new(SEGMENT_BYTES))
        };
        self.outstanding_bytes.fetch_add(segment.capacity, Ordering::Relaxed);
        segment
    }

    fn give_back(&self, mut segment: Segment) {
        self.outstanding_bytes.fetch_sub(segment.capacity, Ordering::Relaxed);
        if segment.capacity == SEGMENT_BYTES {
            segment.used = 0;
            let mut segments = self.segments.lock();
            if segments.len() < POOLED_SEGMENTS {
                segments.push(segment);
            }
        }
    }

    /// Takes a batch of contexts that nothing can reach any more.
    ///
    /// # Safety
    /// They were [submitted](OwnedContext::submit), each is given once, and there is and will be no
    /// reference to one or to one of its records.
    pub(crate) unsafe fn expire(&self, batch: Vec<ContextPtr>) {
        self.expired.lock().push(batch);
    }

    /// Makes expired contexts ready to be used again.
    pub(crate) fn recycle_expired(&self) {
        let batches = std::mem::take(&mut *self.expired.lock());
        for batch in batches {
            self.outstanding_bytes.fetch_sub(batch.len() * FIRST_SEGMENT_BYTES, Ordering::Relaxed);
            // SAFETY: as `expire` was promised.
            let mut batch: Vec<_> =
                batch.into_iter().map(|context| unsafe { OwnedContext::take_back(context) }).collect();
            for context in &mut batch {
                let buffer = context.buffer_mut();
                buffer.segments.drain(1..).for_each(|segment| self.give_back(segment));
                buffer.tables.clear();
            }
            let mut contexts = self.contexts.lock();
            let room = POOLED_CONTEXTS.saturating_sub(contexts.len());
            contexts.extend(batch.into_iter().take(room));
        }
    }

    /// Bytes of undo segments in use.
    pub fn outstanding_bytes(&self) -> usize {
        self.outstanding_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for UndoPool {
    fn drop(&mut self) {
        self.recycle_expired();
    }
}

/// A place in a transaction's undo buffer. Later places are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct UndoMark {
    segment: usize,
    /// Bytes into the segment.
    offset: usize,
}

/// The records of one transaction, and the memory that keeps them readable.
#[derive(Debug, Default)]
struct UndoBuffer {
    /// The first is there from the beginning.
    segments: Vec<Segment>,
    tables: Vec<Arc<DataTable>>,
    /// The ranges of records that are undone already: ascending, and disjoint.
    undone: Vec<(UndoMark, UndoMark)>,
    /// Whether the access observer ignores the transaction: it changes the places of rows, not
    /// their values.
    unobserved: bool,
}

impl UndoBuffer {
    fn end(&self) -> UndoMark {
        let last = self.segments.len() - 1;
        UndoMark { segment: last, offset: self.segments[last].used }
    }

    /// The records between two places, oldest first.
    fn records(&self, from: UndoMark, to: UndoMark) -> impl Iterator<Item = &UndoRecord> {
        (from.segment..=to.segment).flat_map(move |no| {
            let segment = &self.segments[no];
            let mut at = if no == from.segment { from.offset } else { 0 };
            let end = if no == to.segment { to.offset } else { segment.used };
            std::iter::from_fn(move || {
                (at < end).then(|| {
                    // SAFETY: `push` laid records one behind the other from the start of the
                    // segment up to `used`, and marks lie between them.
                    let record = unsafe { &*segment.memory.as_ptr().add(at).cast::<UndoRecord>() };
                    at += UndoRecord::bytes(record.column_count as usize);
                    record
                })
            })
        })
    }
}

/// The state that all records of one transaction share: its timestamp cell, and the buffer in which
/// they lie.
#[derive(Debug)]
pub struct UndoContext {
    cell: AtomicU64,
    linked: AtomicUsize,
    retired: AtomicBool,
    /// Whether the transaction was rolled back. Set before the stamp.
    aborted: AtomicBool,
    /// The header of this module says which thread may touch it.
    buffer: UnsafeCell<UndoBuffer>,
}

// SAFETY: records hold raw pointers into the context itself and to tables that it keeps alive.
unsafe impl Send for UndoContext {}
// SAFETY: shared parts are atomic; the buffer is changed by the context's owner alone, and no other
// thread looks at it while there is an owner.
unsafe impl Sync for UndoContext {}

/// The context of a running transaction, or one that waits for the next. The holder of this handle
/// owns the buffer; every reader of a record shares the other fields. So it is no box, which would
/// claim all of the context.
#[derive(Debug)]
pub struct OwnedContext(NonNull<UndoContext>);

// SAFETY: as contexts.
unsafe impl Send for OwnedContext {}
// SAFETY: as contexts.
unsafe impl Sync for OwnedContext {}

impl std::ops::Deref for OwnedContext {
    type Target = UndoContext;
    #[inline]
    fn deref(&self) -> &UndoContext {
        // SAFETY: alive until this goes or is submitted.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for OwnedContext {
    fn drop(&mut self) {
        // SAFETY: made from a box in `new`. No record is linked: contexts are submitted, or were
        // never written to, or have expired.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl OwnedContext {
    /// An empty context for the running transaction numbered `txn_no`.
    pub fn new(pool: &UndoPool, txn_no: u64) -> Self {
        pool.outstanding_bytes.fetch_add(FIRST_SEGMENT_BYTES, Ordering::Relaxed);
        let pooled = pool.contexts.lock().pop();
        let mut context = pooled.unwrap_or_else(|| {
            let segments = vec![Segment::new(FIRST_SEGMENT_BYTES)];
            Self(NonNull::from(Box::leak(Box::new(UndoContext {
                cell: AtomicU64::new(0),
                linked: AtomicUsize::new(0),
                retired: AtomicBool::new(false),
                aborted: AtomicBool::new(false),
                buffer: UnsafeCell::new(UndoBuffer { segments, ..UndoBuffer::default() }),
            }))))
        });
        // Relaxed: a reader of a record has acquired its head.
        context.cell.store(Timestamp::uncommitted(txn_no).0, Ordering::Relaxed);
        context.linked.store(1, Ordering::Relaxed);
        context.retired.store(false, Ordering::Relaxed);
        context.aborted.store(false, Ordering::Relaxed);
        let buffer = context.buffer_mut();
        buffer.segments[0].used = 0;
        buffer.undone.clear();
        buffer.unobserved = false;
        context
    }

    #[inline]
    fn buffer(&self) -> &UndoBuffer {
        // SAFETY: the buffer is the owner's, and changed through `buffer_mut` only.
        unsafe { &*self.buffer.get() }
    }

    #[inline]
    fn buffer_mut(&mut self) -> &mut UndoBuffer {
        // SAFETY: as in `buffer`.
        unsafe { &mut *self.buffer.get() }
    }

    /// Hands the context over to the collectors, with the count that the owner had.
    pub(crate) fn submit(self) -> ContextPtr {
        let context = ContextPtr(self.0.as_ptr());
        std::mem::forget(self);
        context
    }

    /// # Safety
    /// The context was submitted, and no other thread has it or can get it.
    unsafe fn take_back(context: ContextPtr) -> Self {
        Self(NonNull::new(context.0.cast_mut()).expect("a context's own address"))
    }

    /// Makes the access observer overlook the transaction.
    pub(crate) fn set_unobserved(&mut self) {
        self.buffer_mut().unobserved = true;
    }

    /// As [`stamp`](Self::stamp), of a transaction that was rolled back.
    pub(crate) fn stamp_aborted(&self, timestamp: Timestamp) {
        // Relaxed: ordered by the stamp.
        self.aborted.store(true, Ordering::Relaxed);
        self.stamp(timestamp);
    }

    /// Stamps all versions of the transaction at once.
    pub(crate) fn stamp(&self, timestamp: Timestamp) {
        // Release: pairs with the Acquire in `UndoRecord::timestamp`.
        self.cell.store(timestamp.0, Ordering::Release);
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.buffer().segments.iter().all(|segment| segment.used == 0)
    }

    /// The end of the buffer as it is now.
    pub(crate) fn mark(&self) -> UndoMark {
        self.buffer().end()
    }

    /// Appends a record that no chain reaches yet, with later segments from `pool`. Counted as
    /// linked: the caller installs it or calls [`pop_last`](Self::pop_last).
    pub(crate) fn push(
        &mut self,
        pool: &UndoPool,
        table: &Arc<DataTable>,
        row: RowId,
        (kind, stage): (UndoKind, u32),
        next: *mut UndoRecord,
        before: impl ExactSizeIterator<Item = BeforeCell>,
    ) -> *mut UndoRecord {
        let context = self.0.as_ptr().cast_const();
        let buffer = self.buffer_mut();
        if !buffer.tables.last().is_some_and(|last| Arc::ptr_eq(last, table))
            && !buffer.tables.iter().any(|known| Arc::ptr_eq(known, table))
        {
            buffer.tables.push(table.clone());
        }
        let columns = before.len();
        let bytes = UndoRecord::bytes(columns);
        if buffer.segments.last().is_none_or(|s| s.capacity - s.used < bytes) {
            buffer.segments.push(pool.take(bytes));
        }
        let segment = buffer.segments.last_mut().expect("one was just made sure of");
        // SAFETY: `bytes` more bytes fit the segment; records and cells are multiples of 8 bytes,
        // the segment is 16-byte aligned.
        let record = unsafe {
            let record = segment.memory.as_ptr().add(segment.used).cast::<UndoRecord>();
            record.write(UndoRecord {
                next: AtomicPtr::new(next),
                context,
                table: Arc::as_ptr(table),
                row,
                settled: AtomicU64::new(0),
                kind,
                unlinked: AtomicBool::new(false),
                column_count: columns as u16,
                stage,
            });
            let cells = record.add(1).cast::<BeforeCell>();
            for (i, cell) in before.enumerate() {
                cells.add(i).write(cell);
            }
            record
        };
        segment.used += bytes;
        // Relaxed: only the owner counts up, before the record can be reached.
        self.linked.fetch_add(1, Ordering::Relaxed);
        record
    }

    /// Takes back the last record, which was never installed.
    pub(crate) fn pop_last(&mut self, record: *mut UndoRecord) {
        // SAFETY: the record is the last one pushed and still ours alone.
        let bytes = UndoRecord::bytes(unsafe { &*record }.column_count as usize);
        self.buffer_mut().segments.last_mut().expect("it holds the record").used -= bytes;
        self.linked.fetch_sub(1, Ordering::Relaxed);
    }

    /// Hands the records since `from` that are not undone yet to `restore`, newest first: they are
    /// undone now.
    pub(crate) fn undo_since(&mut self, from: UndoMark, restore: impl FnMut(&UndoRecord)) {
        let buffer = self.buffer_mut();
        let (end, mut to, mut begin) = (buffer.end(), buffer.end(), from);
        let mut records = Vec::new();
        while let Some((undone_from, undone_to)) = buffer.undone.pop_if(|(_, undone_to)| *undone_to >= from) {
            records.push((undone_to, to));
            (to, begin) = (undone_from, from.min(undone_from));
        }
        records.push((from, to));
        buffer.undone.extend((begin < end).then_some((begin, end)));
        let buffer = self.buffer();
        let newest_first = |(from, to): &(UndoMark, UndoMark)| {
            let mut records: Vec<_> = if from < to { buffer.records(*from, *to).collect() } else { Vec::new() };
            records.reverse();
            records
        };
        records.iter().flat_map(newest_first).for_each(restore);
    }
}

impl UndoContext {
    pub(crate) fn timestamp(&self) -> Timestamp {
        // Acquire: pairs with `stamp`.
        Timestamp(self.cell.load(Ordering::Acquire))
    }

    fn submitted_buffer(&self) -> &UndoBuffer {
        // SAFETY: called for contexts that were submitted: the buffer has no owner then. Other
        // threads reach contexts only through records, whose methods do not lend their fields.
        unsafe { &*self.buffer.get() }
    }

    /// Whether the access observer overlooks the transaction. For collectors.
    pub(crate) fn is_unobserved(&self) -> bool {
        self.submitted_buffer().unobserved
    }

    /// All records, oldest first. For collectors.
    pub(crate) fn records(&self) -> impl Iterator<Item = &UndoRecord> {
        let buffer = self.submitted_buffer();
        buffer.records(UndoMark::default(), buffer.end())
    }

    /// Counts up, for a collector that is about to work through the context.
    pub(crate) fn acquire(&self) {
        // Relaxed: done under the collector's latch.
        self.linked.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the caller must retire the context: the count is zero and no other thread retires
    /// it.
    pub(crate) fn claim_retirement(&self) -> bool {
        // Acquire: pairs with `release`. The flag is Relaxed: called under the collector's latch.
        self.linked.load(Ordering::Acquire) == 0 && !self.retired.swap(true, Ordering::Relaxed)
    }

    /// Whether nothing but the caller's own count is left.
    pub(crate) fn is_unreachable(&self) -> bool {
        // Acquire: pairs with `release`.
        self.linked.load(Ordering::Acquire) == 1
    }

    /// Gives up one count; true if it was the last and the caller must retire the context.
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        // AcqRel: the last one out must see everything that the others did to the records.
        self.linked.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::{ColumnSchema, ColumnType, TableSchema};
    use crate::{BlockNo, Slot, TableId};

    #[test]
    fn records_are_undone_once_newest_first_from_the_mark_on() {
        let column = ColumnSchema { name: "a".into(), column_type: ColumnType::Int64, nullable: true };
        let table = DataTable::new(TableId(1), "t", TableSchema { columns: vec![column] }).unwrap();
        let pool = UndoPool::default();
        let mut undo = OwnedContext::new(&pool, 1);
        let push = |undo: &mut OwnedContext, slots: std::ops::Range<u32>| {
            for slot in slots {
                let row = RowId::new(BlockNo(0), Slot(slot));
                // Records of several sizes, over many segments; a part is rolled back.
                let before = |count| (0..count).map(|_| BeforeCell::new(ColumnId(0), crate::block::Cell::NULL));
                undo.push(&pool, &table, row, (UndoKind::Update, 0), ptr::null_mut(), before(slot as usize % 7));
                let taken_back = undo.push(&pool, &table, row, (UndoKind::Update, 0), ptr::null_mut(), before(40));
                undo.pop_last(taken_back);
            }
        };
        let undone = |undo: &mut OwnedContext, mark| {
            let mut slots = Vec::new();
            undo.undo_since(mark, |record| slots.push(record.row().slot().0));
            slots
        };
        let newest_first = |slots: std::ops::Range<u32>| slots.rev().collect::<Vec<_>>();
        assert!(undo.is_empty() && undone(&mut undo, UndoMark::default()).is_empty());
        push(&mut undo, 0..1000);
        let outer = undo.mark();
        push(&mut undo, 1000..1100);
        let inner = undo.mark();
        push(&mut undo, 1100..1200);
        for again in 1200..1210 {
            assert_eq!(
                undone(&mut undo, inner),
                newest_first(if again == 1200 { 1100..1200 } else { again - 1..again })
            );
            assert!(undone(&mut undo, inner).is_empty());
            push(&mut undo, again..again + 1);
        }
        assert_eq!(undone(&mut undo, outer), [vec![1209], newest_first(1000..1100)].concat());
        push(&mut undo, 1210..1212);
        let late = undo.mark();
        push(&mut undo, 1212..1214);
        assert_eq!(undone(&mut undo, late), [1213, 1212]);
        assert_eq!(undone(&mut undo, UndoMark::default()), [newest_first(1210..1212), newest_first(0..1000)].concat());
        assert!(undone(&mut undo, UndoMark::default()).is_empty());
    }

    /// For Miri: the owner never claims the fields that readers look at.
    #[test]
    fn readers_follow_a_record_while_the_owner_goes_on() {
        let column = ColumnSchema { name: "a".into(), column_type: ColumnType::Int64, nullable: true };
        let table = DataTable::new(TableId(1), "t", TableSchema { columns: vec![column] }).unwrap();
        let pool = UndoPool::default();
        let mut undo = OwnedContext::new(&pool, 1);
        let push = |undo: &mut OwnedContext| {
            let row = RowId::new(BlockNo(0), Slot(0));
            undo.push(&pool, &table, row, (UndoKind::Delete, 0), ptr::null_mut(), std::iter::empty())
        };
        let head = AtomicPtr::new(push(&mut undo));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // SAFETY: the context lives until the scope has ended.
                let record = unsafe { &*head.load(Ordering::Acquire) };
                while !record.timestamp().is_committed() {
                    std::thread::yield_now();
                }
                record.timestamp()
            });
            for _ in 0..20 {
                push(&mut undo);
                std::thread::yield_now();
            }
            undo.undo_since(UndoMark::default(), |_| {});
            undo.stamp(Timestamp(5));
            assert_eq!(reader.join().unwrap(), Timestamp(5));
        });
    }
}
