//! One free slot, which was handed out to an inserter that may stall: compaction wants it too, and
//! the collector unlinks what everybody sees. One of the two gets it, the other knows, and a reader
//! sees nothing but rows of transactions that it may see.
//!
//! Of: `serac-storage/src/table/data_table.rs`, `serac-storage/src/freeze/compact/mod.rs`.
#![cfg(loom)]

use loom::sync::Mutex;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicUsize, fence};
use loom::thread;
use std::collections::BTreeMap;
use std::sync::Arc;

const UNCOMMITTED: usize = usize::MAX;

struct Slot {
    /// 0: no version; otherwise the writer's number, whose insert record it is.
    head: AtomicUsize,
    /// 0: no row; otherwise the writer's number, as value and allocation bit.
    row: AtomicUsize,
    /// The timestamp cells of the two writers.
    cells: [AtomicUsize; 3],
    clock: AtomicUsize,
    commit_latch: Mutex<()>,
    active: Mutex<BTreeMap<usize, usize>>,
}

impl Slot {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            head: AtomicUsize::new(0),
            row: AtomicUsize::new(0),
            cells: [0, 1, 2].map(|_| AtomicUsize::new(UNCOMMITTED)),
            clock: AtomicUsize::new(1),
            commit_latch: Mutex::new(()),
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
    /// `DataTable::insert_into`, then the commit; whether the writer got the slot.
    fn insert(&self, writer: usize) -> bool {
        if self.head.compare_exchange(0, writer, AcqRel, Relaxed).is_err() {
            return false;
        }
        fence(Release);
        self.row.store(writer, Relaxed);
        let _latch = self.commit_latch.lock().unwrap();
        let now = self.clock.load(Relaxed) + 1;
        self.cells[writer].store(now, Release);
        self.clock.store(now, Release);
        true
    }
    /// `DataTable::insert_copy`.
    fn insert_copy(&self, writer: usize) -> bool {
        self.head.load(Acquire) == 0 && self.row.load(Relaxed) == 0 && self.insert(writer)
    }
    /// `DataTable::read`.
    fn read(&self, start: usize) -> usize {
        let copy = self.row.load(Relaxed);
        fence(Acquire);
        match self.head.load(Acquire) {
            0 => copy,
            writer if self.cells[writer].load(Acquire) <= start => copy,
            _ => 0,
        }
    }
    /// `GarbageCollector::run_once` for this slot.
    fn collect(&self) {
        let watermark = {
            let active = self.active.lock().unwrap();
            active.keys().next().copied().unwrap_or(self.clock.load(Acquire))
        };
        let head = self.head.load(Acquire);
        if head != 0 && self.cells[head].load(Acquire) <= watermark {
            let _ = self.head.compare_exchange(head, 0, AcqRel, Acquire);
        }
    }
}

#[test]
fn one_of_two_gets_a_free_slot() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let slot = Slot::new();
        // The inserter's transaction runs since before its slot was handed out.
        let start = slot.begin();
        let inserter = thread::spawn({
            let slot = slot.clone();
            move || {
                let got = slot.insert(1);
                slot.end(start);
                got
            }
        });
        let compactor = thread::spawn({
            let slot = slot.clone();
            move || {
                let start = slot.begin();
                let got = slot.insert_copy(2);
                slot.end(start);
                slot.collect();
                got
            }
        });
        let before = slot.begin();
        let seen = slot.read(before);
        assert!(seen == 0 || slot.cells[seen].load(Acquire) <= before, "{seen} is seen too early");
        slot.end(before);
        let (inserted, copied) = (inserter.join().unwrap(), compactor.join().unwrap());
        let winner = match (inserted, copied) {
            (true, false) => 1,
            (false, true) => 2,
            both => panic!("{both:?}"),
        };
        slot.collect();
        let after = slot.begin();
        assert_eq!(slot.read(after), winner);
    });
}
