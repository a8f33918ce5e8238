//! A block that cools, freezes and thaws several times: writers, the freezer, collectors and a
//! reader. No write is lost, whether the writer comes before cooling, pre-empts it, waits for the
//! gather, or thaws; and what a frozen block was lent never changes. The frozen form shares the
//! block's memory: once the form is there, neither a collector nor a vacuum writes to that memory
//! any more. The temperature, the clock and the count of versioned slots are the real ones, with
//! loom's atomics and locks; the block table, the queue of rounds and the gather are restated.
//!
//! It fails when a round freezes a block that cools in another one. The word's orderings are not
//! needed here: a freezer and the writers that it may not overlook are ordered by the latch of the
//! active transactions, and a gather by its own.
//!
//! At most 3 preemptions in an execution of one writer, 2 of several rounds, any number beside the
//! block's memory.
//!
//! Of: `serac-storage/src/freeze/mod.rs`, `serac-storage/src/freeze/temperature.rs`.
#![cfg(loom)]
#![allow(dead_code, reason = "the real modules have more than the model uses")]

#[path = "../src/block.rs"]
mod block;
#[path = "../../serac-storage/src/ids.rs"]
mod ids;
#[path = "../src/table.rs"]
mod table;
#[path = "../../serac-storage/src/freeze/temperature.rs"]
mod temperature;
#[path = "../src/version.rs"]
mod version;

use ids::Timestamp;
use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::thread;
use serac_sync::atomic::AtomicUsize;
use serac_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::collections::BTreeMap;
use std::sync::Arc;
use temperature::{Temperature, TemperatureWord};
use version::chain::VersionedSlots;
use version::clock::Clock;

/// How often the block can freeze. The entry of the block table goes on with every publication: 2 n
/// is the n-th hot block, 2 n + 1 its frozen form.
const FREEZES: usize = 2;

struct HotBlock {
    temperature: TemperatureWord,
    /// A bit for each write.
    value: AtomicUsize,
    /// What the frozen form was lent, if there is one.
    lent: AtomicUsize,
}

struct Table {
    entry: AtomicUsize,
    hot: [HotBlock; FREEZES + 1],
    clock: Clock,
    /// Held for a gather. A writer that finds a block freezing waits for it, where the real code
    /// looks again and again.
    gathering: Mutex<()>,
    /// Rounds by the time at which they began.
    cooling: Mutex<BTreeMap<Timestamp, u64>>,
}

impl Table {
    fn new() -> Arc<Self> {
        let hot =
            || HotBlock { temperature: TemperatureWord::hot(), value: AtomicUsize::new(0), lent: AtomicUsize::new(0) };
        Arc::new(Self {
            entry: AtomicUsize::new(0),
            hot: [hot(), hot(), hot()],
            clock: Clock::new(Timestamp(1)),
            gathering: Mutex::new(()),
            cooling: Mutex::new(BTreeMap::new()),
        })
    }

    /// A commit, and `TransactionManager::tick`.
    fn tick(&self) -> Timestamp {
        self.clock.latch().publish(|_| {})
    }

    /// `DataTable::writable`, then the write. The copy that a thaw makes is there already.
    fn write(&self, bit: usize) {
        loop {
            let entry = self.entry.load(Acquire);
            let (no, is_frozen) = (entry / 2, entry % 2 == 1);
            let hot = &self.hot[no];
            if is_frozen {
                let _ = self.entry.compare_exchange(entry, entry + 1, AcqRel, Acquire);
            } else if hot.temperature.admit_writer() {
                hot.value.fetch_or(bit, Relaxed);
                return;
            } else {
                assert_eq!(hot.temperature.get(), Temperature::Freezing);
                drop(self.gathering.lock().unwrap());
            }
        }
    }

    /// A transaction that writes once.
    fn transaction(&self, bit: usize) -> Timestamp {
        let (_, start) = self.clock.begin();
        self.write(bit);
        let committed = self.tick();
        self.clock.leave(start);
        committed
    }

    /// `DataTable::cool`, and `TransactionManager::freeze`.
    fn cool(&self, round: u64) {
        let entry = self.entry.load(Acquire);
        if entry.is_multiple_of(2) && entry / 2 < FREEZES && self.hot[entry / 2].temperature.cool(round) {
            let ts = self.tick();
            self.cooling.lock().unwrap().insert(ts, round);
        }
    }

    /// `GarbageCollector::freeze_cooled`.
    fn collect(&self) {
        let readers = self.clock.readers();
        let watermark = Timestamp(readers.oldest().unwrap_or(readers.settled()));
        loop {
            let due = {
                let mut cooling = self.cooling.lock().unwrap();
                cooling.first_entry().filter(|first| *first.key() <= watermark).map(|first| first.remove())
            };
            let Some(round) = due else { return };
            self.freeze_cooled(round);
        }
    }

    /// `DataTable::freeze_cooled`.
    fn freeze_cooled(&self, round: u64) {
        let entry = self.entry.load(Acquire);
        let hot = &self.hot[entry / 2];
        let _gathering = self.gathering.lock().unwrap();
        if entry.is_multiple_of(2) && hot.temperature.freeze(round) {
            let value = hot.value.load(Relaxed);
            hot.lent.store(value, Relaxed);
            self.hot[entry / 2 + 1].value.store(value, Relaxed);
            let published = self.entry.compare_exchange(entry, entry + 1, AcqRel, Acquire);
            published.expect("nobody replaces a block that is freezing");
        }
    }

    fn read(&self) -> usize {
        let entry = self.entry.load(Acquire);
        let hot = &self.hot[entry / 2];
        if entry % 2 == 1 { hot.lent.load(Relaxed) } else { hot.value.load(Relaxed) }
    }

    /// At the end: all writes are there, and what was lent is as it was.
    fn check(&self, writes: usize) {
        assert_eq!(self.read(), writes, "no write is lost");
        let frozen = self.entry.load(Acquire).div_ceil(2);
        for hot in &self.hot[..frozen] {
            assert_eq!(hot.lent.load(Relaxed), hot.value.load(Relaxed), "nobody writes to what was lent");
        }
    }
}

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(f);
}

#[test]
fn no_write_is_lost_to_freezing() {
    model(3, || {
        let table = Table::new();
        let writer = {
            let table = table.clone();
            thread::spawn(move || table.transaction(1))
        };
        let freezer = {
            let table = table.clone();
            thread::spawn(move || {
                table.cool(0);
                table.collect();
            })
        };
        let (_, start) = table.clock.begin();
        let seen = table.read();
        table.clock.leave(start);
        let committed = writer.join().unwrap();
        // The first to start after the commit sees it. (A value that is too new is the version
        // chains' business.)
        assert!(start < committed || seen == 1, "started at {start:?}, committed at {committed:?}");
        freezer.join().unwrap();
        table.check(1);
    });
}

/// A writer that pre-empts a round, one that finds the block hot and stops, and an entry of the
/// first round that is due while the block cools in the next.
#[test]
fn no_write_is_lost_to_an_earlier_round() {
    model(2, || {
        let table = Table::new();
        let writers = [1, 2].map(|bit| {
            let table = table.clone();
            thread::spawn(move || table.transaction(bit))
        });
        for round in 0..2 {
            table.cool(round);
        }
        table.collect();
        writers.into_iter().for_each(|writer| _ = writer.join().unwrap());
        table.collect();
        table.check(3);
    });
}

/// A collector has taken an entry from the queue and stops, while the block freezes, is thawed and
/// cools again.
#[test]
fn no_write_is_lost_to_a_collector_that_stopped() {
    model(2, || {
        let table = Table::new();
        table.cool(0);
        let writer = {
            let table = table.clone();
            thread::spawn(move || table.transaction(1))
        };
        let stopped = {
            let table = table.clone();
            thread::spawn(move || table.collect())
        };
        for round in 1..3 {
            table.collect();
            table.cool(round);
        }
        writer.join().unwrap();
        stopped.join().unwrap();
        table.collect();
        table.check(1);
    });
}

/// The memory of a block with one slot, whose row was deleted: one version, and a value in the
/// heap.
struct Memory {
    temperature: TemperatureWord,
    versioned: VersionedSlots,
    latch: Mutex<()>,
    /// The view in the slot: written under the latch, and read like any memory by a reader of the
    /// frozen block.
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
        self.versioned.lower(1);
    }

    /// A step of `vacuum::run`.
    fn vacuum(&self) {
        let _latch = self.latch.lock().unwrap();
        if self.temperature.get() != Temperature::Freezing {
            // SAFETY: checked by loom.
            self.view.with_mut(|view| unsafe { *view += 1 });
        }
    }

    /// `DataTable::freeze_cooled`, and a reader of the frozen block.
    fn freeze(&self) {
        assert!(self.temperature.cool(0) && self.temperature.freeze(0), "no writer is about");
        drop(self.latch.lock().unwrap());
        if !self.versioned.are_none() {
            self.temperature.give_up();
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
            temperature: TemperatureWord::hot(),
            versioned: VersionedSlots::default(),
            latch: Mutex::new(()),
            view: UnsafeCell::new(5),
        });
        memory.versioned.raise();
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
