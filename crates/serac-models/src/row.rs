//! A table of one row, for the models of versions: its values are loom's words, where a block has
//! raw memory.

use crate::block::Cell;
use crate::ids::{BlockNo, ColumnId, RowId, Slot, Timestamp};
use crate::table::data_table::DataTable;
use crate::version::chain::{VersionHead, VersionedSlots, Walked, end_copy, may_replace};
use crate::version::clock::Clock;
use crate::version::pruning::{Gone, Horizon};
use crate::version::undo::{BeforeCell, ContextPtr, OwnedContext, UndoKind, UndoPool, UndoRecord};
use serac_sync::Mutex;
use serac_sync::atomic::AtomicU64;
use serac_sync::atomic::Ordering::Relaxed;
use std::ptr;
use std::sync::Arc;

/// The row's only column.
const COLUMN: ColumnId = ColumnId(0);

/// A reader's result: the two halves of the value, if there is a row.
pub type Found = Option<(u64, u64)>;

/// A transaction that writes.
pub struct Writer {
    pub start: Timestamp,
    own: Timestamp,
    undo: OwnedContext,
}

/// A slot of a block, with all the state that decides which value a reader sees.
pub struct Row {
    table: Arc<DataTable>,
    clock: Clock,
    pool: UndoPool,
    head: VersionHead,
    pub versioned: VersionedSlots,
    /// The value's halves, as a view has them, and the allocation bit.
    low: AtomicU64,
    high: AtomicU64,
    present: AtomicU64,
    /// The row's pruning latch, and the contexts that the collector has.
    collected: Mutex<Vec<ContextPtr>>,
}

impl Row {
    /// A row with a value, or a free slot. Something was committed at 1.
    pub fn new(value: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            table: Arc::new(DataTable),
            clock: Clock::new(Timestamp(1)),
            pool: UndoPool::default(),
            head: VersionHead::default(),
            versioned: VersionedSlots::default(),
            low: AtomicU64::new(value.unwrap_or(0)),
            high: AtomicU64::new(value.unwrap_or(0)),
            present: AtomicU64::new(value.is_some().into()),
            collected: Mutex::default(),
        })
    }

    /// A snapshot.
    pub fn begin(&self) -> Timestamp {
        self.clock.begin().1
    }

    pub fn end(&self, start: Timestamp) {
        self.clock.leave(start);
    }

    pub fn writer(&self) -> Writer {
        let (number, start) = self.clock.begin();
        Writer { start, own: Timestamp::uncommitted(number), undo: OwnedContext::new(&self.pool, number) }
    }

    fn push(
        &self,
        writer: &mut Writer,
        kind: UndoKind,
        seen: *mut UndoRecord,
        before: Option<Cell>,
    ) -> *mut UndoRecord {
        let row = RowId::new(BlockNo(0), Slot(0));
        let before = before.map(|cell| BeforeCell::new(COLUMN, cell)).into_iter();
        writer.undo.push(&self.pool, &self.table, row, (kind, 0), seen, before)
    }

    fn put(&self, value: u64) {
        self.low.store(value, Relaxed);
        self.high.store(value, Relaxed);
    }

    /// `DataTable::update`; false at a conflict.
    pub fn update(&self, writer: &mut Writer, value: u64) -> bool {
        loop {
            let seen = self.head.newest();
            let sees = |timestamp: Timestamp| timestamp.visible_at(writer.start) || timestamp == writer.own;
            // SAFETY: contexts live until the end of the execution.
            if unsafe { may_replace(seen.as_ref(), sees) }.is_err() {
                return false;
            }
            let (low, high) = (self.low.load(Relaxed), self.high.load(Relaxed));
            let before = Cell { null: false, bits: u128::from(low) | u128::from(high) << 64 };
            let record = self.push(writer, UndoKind::Update, seen, Some(before));
            if self.head.install(&self.versioned, seen, record) {
                self.put(value);
                return true;
            }
            writer.undo.pop_last(record);
        }
    }

    /// `DataTable::insert_into`; false if the slot is not free.
    pub fn insert(&self, writer: &mut Writer, value: u64) -> bool {
        let record = self.push(writer, UndoKind::Insert, ptr::null_mut(), None);
        if !self.head.install(&self.versioned, ptr::null_mut(), record) {
            writer.undo.pop_last(record);
            return false;
        }
        self.put(value);
        self.present.store(1, Relaxed);
        true
    }

    /// `DataTable::insert_copy`.
    pub fn insert_copy(&self, writer: &mut Writer, value: u64) -> bool {
        self.head.newest().is_null() && self.present.load(Relaxed) == 0 && self.insert(writer, value)
    }

    /// `Transaction::commit`.
    pub fn commit(&self, writer: Writer) -> Timestamp {
        let timestamp = self.clock.latch().publish(|timestamp| writer.undo.stamp(timestamp));
        self.leave(writer);
        timestamp
    }

    /// `Transaction::abort`, with `DataTable::restore`.
    pub fn abort(&self, mut writer: Writer) {
        writer.undo.undo_since(Default::default(), |record| match record.before() {
            [before] => {
                let bits = before.cell().bits;
                self.low.store(bits as u64, Relaxed);
                self.high.store((bits >> 64) as u64, Relaxed);
            }
            _ => self.present.store(0, Relaxed),
        });
        self.clock.latch().publish(|timestamp| writer.undo.stamp_aborted(timestamp));
        self.leave(writer);
    }

    fn leave(&self, writer: Writer) {
        self.collected.lock().push(writer.undo.submit());
        self.clock.leave(writer.start);
    }

    fn copy(&self) -> (u64, u64, bool) {
        let copy = (self.low.load(Relaxed), self.high.load(Relaxed), self.present.load(Relaxed) == 1);
        end_copy();
        copy
    }

    fn see(&self, start: Timestamp, (mut low, mut high, present): (u64, u64, bool)) -> Found {
        let sees = |record: &UndoRecord| record.timestamp().visible_at(start);
        let apply = |before: &BeforeCell| {
            let bits = before.cell().bits;
            (low, high) = (bits as u64, (bits >> 64) as u64);
        };
        // SAFETY: contexts live until the end of the execution.
        let (Walked::Decided(present) | Walked::Ended(present)) = unsafe { self.head.walk(present, sees, apply) };
        present.then_some((low, high))
    }

    /// `DataTable::read`.
    pub fn read(&self, start: Timestamp) -> Found {
        self.see(start, self.copy())
    }

    /// A bulk scan: the block's counter decides whether the version column is looked at at all.
    pub fn scan(&self, start: Timestamp) -> Found {
        let copy = self.copy();
        if self.versioned.are_none_behind_copy() {
            return copy.2.then_some((copy.0, copy.1));
        }
        self.see(start, copy)
    }

    /// `GarbageCollector::run_once`. Contexts that nothing links any more are not used again before
    /// the end.
    pub fn collect(&self) {
        let horizon = Horizon::of(self.clock.readers());
        let collected = self.collected.lock();
        let mut gone = Gone::new();
        let mut is_empty = false;
        horizon.prune_chain(&self.head, &mut gone, || is_empty = true);
        if is_empty {
            self.versioned.lower(1);
        }
        for record in gone {
            let _ = record.mark_unlinked();
        }
        drop(collected);
    }

    /// At the end, when nobody runs: checks that all collected memory is free.
    pub fn assert_clean(&self) {
        self.collect();
        assert!(self.head.newest().is_null(), "everything is collected in the end");
        assert_eq!(self.versioned.get(), 0);
        let contexts = std::mem::take(&mut *self.collected.lock());
        for context in &contexts {
            // SAFETY: alive until it has expired.
            assert!(unsafe { &*context.0 }.is_unreachable(), "no record is linked");
        }
        // SAFETY: no chain reaches a record, and nobody is left who has a reference to one.
        unsafe { self.pool.expire(contexts) };
        self.pool.recycle_expired();
        assert_eq!(self.pool.outstanding_bytes(), 0);
    }
}
