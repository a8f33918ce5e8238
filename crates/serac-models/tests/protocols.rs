//! One row, one slot: install, read, commit, abort, begin, unlink.
//!
//! Of: `serac-storage/src/table/data_table.rs`, `serac-storage/src/version/transaction.rs`,
//! Of: `serac-storage/src/version/gc.rs`.
#![cfg(loom)]

use loom::sync::Mutex;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicUsize, fence};
use std::collections::BTreeMap;
use std::sync::Arc;

const UNCOMMITTED: usize = usize::MAX;
const OLD: usize = 10;
const NEW: usize = 20;

/// A slot of a block with two words of value (a view, say), and a place for one undo record with
/// its timestamp cell.
struct Row {
    low: AtomicUsize,
    high: AtomicUsize,
    /// 0: no version; 1: the record.
    head: AtomicUsize,
    versioned: AtomicUsize,
    cell: AtomicUsize,
    clock: AtomicUsize,
    active: Mutex<BTreeMap<usize, usize>>,
}

impl Row {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            low: AtomicUsize::new(OLD),
            high: AtomicUsize::new(OLD),
            head: AtomicUsize::new(0),
            versioned: AtomicUsize::new(0),
            cell: AtomicUsize::new(UNCOMMITTED),
            clock: AtomicUsize::new(1),
            active: Mutex::new(BTreeMap::new()),
        })
    }
    /// `TransactionManager::begin`.
    fn begin(&self) -> usize {
        let mut active = self.active.lock().unwrap();
        let start = self.clock.load(Acquire);
        *active.entry(start).or_insert(0) += 1;
        start
    }
    fn end(&self, start: usize) {
        let mut active = self.active.lock().unwrap();
        let count = active.get_mut(&start).unwrap();
        *count -= 1;
        if *count == 0 {
            active.remove(&start);
        }
    }
    /// `DataTable::update`, steps 2 to 4.
    fn write(&self) {
        self.versioned.fetch_add(1, AcqRel);
        self.head.compare_exchange(0, 1, AcqRel, Relaxed).expect("the only writer");
        fence(Release);
        self.low.store(NEW, Relaxed);
        self.high.store(NEW, Relaxed);
    }
    /// The end of the critical section of commit and abort.
    fn stamp(&self, timestamp: usize) {
        self.cell.store(timestamp, Release);
        self.clock.store(timestamp, Release);
    }
    fn commit(&self) {
        self.stamp(2);
    }
    fn abort(&self) {
        self.low.store(OLD, Relaxed);
        self.high.store(OLD, Relaxed);
        self.stamp(2);
    }
    /// `DataTable::read`.
    fn read(&self, start: usize) -> (usize, usize) {
        let copy = (self.low.load(Relaxed), self.high.load(Relaxed));
        fence(Acquire);
        if self.head.load(Acquire) == 1 && self.cell.load(Acquire) > start { (OLD, OLD) } else { copy }
    }
    /// A bulk scan: the block's counter decides whether the version column is looked at at all.
    fn scan(&self, start: usize) -> (usize, usize) {
        let copy = (self.low.load(Relaxed), self.high.load(Relaxed));
        fence(Acquire);
        if self.versioned.load(Relaxed) == 0 {
            return copy;
        }
        if self.head.load(Acquire) == 1 && self.cell.load(Acquire) > start { (OLD, OLD) } else { copy }
    }
    /// `GarbageCollector::run_once` for this one record.
    fn collect(&self) {
        let watermark = {
            let active = self.active.lock().unwrap();
            active.keys().next().copied().unwrap_or_else(|| self.clock.load(Acquire))
        };
        if self.head.load(Acquire) == 1
            && self.cell.load(Acquire) <= watermark
            && self.head.compare_exchange(1, 0, AcqRel, Acquire).is_ok()
        {
            self.versioned.fetch_sub(1, Release);
        }
    }
}

fn expected(start: usize, commits: bool) -> (usize, usize) {
    if commits && start >= 2 { (NEW, NEW) } else { (OLD, OLD) }
}

/// A reader beside a writer that commits or aborts and a collector: never a torn, dirty or too new
/// value, and the same one twice.
fn reader_beside(commits: bool, bulk: bool) {
    loom::model(move || {
        let row = Row::new();
        let writer = {
            let row = row.clone();
            loom::thread::spawn(move || {
                row.write();
                if commits {
                    row.commit()
                } else {
                    row.abort()
                }
                row.collect();
            })
        };
        let start = row.begin();
        let read = |row: &Row| if bulk { row.scan(start) } else { row.read(start) };
        assert_eq!(read(&row), expected(start, commits));
        assert_eq!(read(&row), expected(start, commits), "repeatable");
        row.end(start);
        writer.join().unwrap();
        let start = row.begin();
        assert_eq!(read_at(&row, start, bulk), expected(2, commits), "a later reader");
        row.end(start);
    });
}

fn read_at(row: &Row, start: usize, bulk: bool) -> (usize, usize) {
    if bulk { row.scan(start) } else { row.read(start) }
}

#[test]
fn a_reader_beside_a_commit() {
    reader_beside(true, false);
}
#[test]
fn a_reader_beside_an_abort() {
    reader_beside(false, false);
}
#[test]
fn a_bulk_scan_beside_a_commit() {
    reader_beside(true, true);
}
#[test]
fn a_bulk_scan_beside_an_abort() {
    reader_beside(false, true);
}

/// The collector's watermark never passes a transaction that is beginning: what it still needs is
/// not unlinked.
#[test]
fn begin_beside_commit_and_collection() {
    loom::model(|| {
        let row = Row::new();
        let reader = {
            let row = row.clone();
            loom::thread::spawn(move || {
                let start = row.begin();
                let value = row.scan(start);
                assert_eq!(value, expected(start, true));
                row.end(start);
            })
        };
        row.write();
        row.commit();
        row.collect();
        reader.join().unwrap();
        row.collect();
        assert_eq!((row.head.load(Relaxed), row.versioned.load(Relaxed)), (0, 0), "everything is collected in the end");
    });
}

/// Of two writers that install at once, exactly one wins.
#[test]
fn first_updater_wins() {
    loom::model(|| {
        let head = Arc::new(AtomicUsize::new(0));
        let other = {
            let head = head.clone();
            loom::thread::spawn(move || head.compare_exchange(0, 2, AcqRel, Relaxed).is_ok())
        };
        let mine = head.compare_exchange(0, 1, AcqRel, Relaxed).is_ok();
        assert_ne!(mine, other.join().unwrap());
    });
}
