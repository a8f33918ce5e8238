//! One block: a writer, the freezer and a reader. No write is lost, whether the writer comes before cooling, pre-empts it, waits for the gather, or thaws.
//! And the block's memory, which its frozen form shares: when that is there, neither a collector nor a vacuum writes to it any more.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::thread;
use std::collections::BTreeMap;
use std::sync::Arc;

const OLD: usize = 10;
const NEW: usize = 20;
const HOT: usize = 0;
const COOLING: usize = 1;
const FREEZING: usize = 2;

/// What the entry of the block table may be.
const FIRST: usize = 0;
const FROZEN: usize = 1;
const THAWED: usize = 2;

struct HotBlock {
    temperature: AtomicUsize,
    value: AtomicUsize,
}

struct Table {
    entry: AtomicUsize,
    first: HotBlock,
    thawed: HotBlock,
    frozen: AtomicUsize,
    clock: AtomicUsize,
    commit_latch: Mutex<()>,
    active: Mutex<BTreeMap<usize, usize>>,
}

impl Table {
    fn new() -> Arc<Self> {
        let hot = |value| HotBlock { temperature: AtomicUsize::new(HOT), value: AtomicUsize::new(value) };
        Arc::new(Self {
            entry: AtomicUsize::new(FIRST),
            first: hot(OLD),
            thawed: hot(0),
            frozen: AtomicUsize::new(0),
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
    /// A commit, and `TransactionManager::tick`.
    fn tick(&self) -> usize {
        let _latch = self.commit_latch.lock().unwrap();
        let now = self.clock.load(Relaxed) + 1;
        self.clock.store(now, Release);
        now
    }
    /// `DataTable::writable`, then the write. The frozen block is thawed by copying it.
    fn write(&self) {
        loop {
            let hot = match self.entry.load(Acquire) {
                FIRST => &self.first,
                THAWED => &self.thawed,
                _ => {
                    self.thawed.value.store(self.frozen.load(Relaxed), Relaxed);
                    let _ = self.entry.compare_exchange(FROZEN, THAWED, AcqRel, Acquire);
                    continue;
                }
            };
            match hot.temperature.load(Acquire) {
                HOT => {
                    hot.value.store(NEW, Relaxed);
                    return;
                }
                COOLING => {
                    let _ = hot.temperature.compare_exchange(COOLING, HOT, AcqRel, Acquire);
                }
                _ => thread::yield_now(),
            }
        }
    }
    /// `DataTable::cool`, and the deferred action if the collector comes by now.
    fn freeze(&self) {
        if self.first.temperature.compare_exchange(HOT, COOLING, AcqRel, Acquire).is_err() {
            return;
        }
        let cooled_at = self.tick();
        let watermark = {
            let active = self.active.lock().unwrap();
            active.keys().next().copied().unwrap_or_else(|| self.clock.load(Acquire))
        };
        if watermark < cooled_at || self.first.temperature.compare_exchange(COOLING, FREEZING, AcqRel, Acquire).is_err()
        {
            return;
        }
        self.frozen.store(self.first.value.load(Relaxed), Relaxed);
        self.entry.compare_exchange(FIRST, FROZEN, AcqRel, Acquire).expect("nobody replaces a block that is freezing");
    }
    fn read(&self) -> usize {
        match self.entry.load(Acquire) {
            FIRST => self.first.value.load(Relaxed),
            FROZEN => self.frozen.load(Relaxed),
            _ => self.thawed.value.load(Relaxed),
        }
    }
}

#[test]
fn no_write_is_lost_to_freezing() {
    loom::model(|| {
        let table = Table::new();
        let writer = {
            let table = table.clone();
            thread::spawn(move || {
                let start = table.begin();
                table.write();
                let committed = table.tick();
                table.end(start);
                committed
            })
        };
        let freezer = {
            let table = table.clone();
            thread::spawn(move || table.freeze())
        };
        let start = table.begin();
        let seen = table.read();
        table.end(start);
        let committed = writer.join().unwrap();
        // The first to start after the commit sees it. (A value that is too new is the version chains' business.)
        assert!(start < committed || seen == NEW, "started at {start}, committed at {committed}");
        freezer.join().unwrap();
        assert_eq!(table.read(), NEW);
    });
}

/// The memory of a block with one slot, whose row was deleted: one version, and a value in the heap.
struct Memory {
    temperature: AtomicUsize,
    versioned: AtomicUsize,
    latch: Mutex<()>,
    /// The view in the slot: written under the latch; who has the frozen block reads it like any memory.
    view: UnsafeCell<usize>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Memory {}

impl Memory {
    /// `GarbageCollector::prune`: the version has been taken off the chain.
    fn collect(&self) {
        {
            let _latch = self.latch.lock().unwrap();
            // SAFETY: checked by loom.
            self.view.with_mut(|view| unsafe { *view = 0 });
        }
        self.versioned.fetch_sub(1, Release);
    }
    /// A step of `vacuum::run`.
    fn vacuum(&self) {
        let _latch = self.latch.lock().unwrap();
        if self.temperature.load(Acquire) != FREEZING {
            // SAFETY: checked by loom.
            self.view.with_mut(|view| unsafe { *view += 1 });
        }
    }
    /// `DataTable::freeze_cooled`, and a reader of the frozen block.
    fn freeze(&self) {
        self.temperature.compare_exchange(HOT, FREEZING, AcqRel, Acquire).expect("no writer is about");
        drop(self.latch.lock().unwrap());
        if self.versioned.load(Acquire) > 0 {
            self.temperature.compare_exchange(FREEZING, HOT, AcqRel, Acquire).expect("nobody else changes it");
            return;
        }
        // SAFETY: checked by loom.
        let first = self.view.with(|view| unsafe { *view });
        thread::yield_now();
        // SAFETY: checked by loom.
        assert_eq!(first, self.view.with(|view| unsafe { *view }));
    }
}

#[test]
fn nobody_writes_to_the_memory_of_a_block_that_froze_in_place() {
    loom::model(|| {
        let memory = Arc::new(Memory {
            temperature: AtomicUsize::new(HOT),
            versioned: AtomicUsize::new(1),
            latch: Mutex::new(()),
            view: UnsafeCell::new(5),
        });
        let collector = {
            let memory = memory.clone();
            thread::spawn(move || memory.collect())
        };
        let vacuum = {
            let memory = memory.clone();
            thread::spawn(move || memory.vacuum())
        };
        memory.freeze();
        collector.join().unwrap();
        vacuum.join().unwrap();
    });
}
