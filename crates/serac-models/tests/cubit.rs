//! CUBIT's Delta Log, merges and visibility. Two writers insert a row each (bit 0 and bit 1), so
//! that an answer is a set of two bits. The log with its anchor, the fate of entries, which tasks
//! of a plan are done (`serac_index::cubit::{log, fate, progress}`) and the clock
//! (`serac_storage::version::clock`) are the real ones, with loom's atomics and locks. Restated is
//! the bin that merges swing: its two versions are one word here, where leaves and bitvectors are
//! behind a pointer that is swung in the same way; and so are the steps of a merge and of a query.
//!
//! It fails when a node is linked without Release or followed without Acquire, when the anchor is
//! swung or loaded without its ordering, when TAIL is not moved before nodes are given back, when
//! bulk inserts are not counted before they are linked, or the count is lowered without Release or
//! read without Acquire, and when tasks are done without Release or found done without Acquire.
//!
//! At most 3 preemptions in an execution, or 1 or 2 where that is said.
//!
//! Of: `serac-index/src/cubit/mod.rs`, `serac-index/src/cubit/log.rs`,
//! Of: `serac-index/src/cubit/fate.rs`, `serac-index/src/cubit/merge.rs`,
//! Of: `serac-index/src/cubit/progress.rs`.
#![cfg(loom)]
#![allow(dead_code, reason = "the real modules have more than the model uses")]

#[path = "../../serac-storage/src/version/clock.rs"]
mod clock;
#[path = "../../serac-index/src/cubit/fate.rs"]
mod fate;
#[path = "../../serac-storage/src/ids.rs"]
mod ids;
#[path = "../../serac-index/src/cubit/log.rs"]
mod log;
#[path = "../../serac-index/src/cubit/progress.rs"]
mod progress;

// The cells take timestamps from this crate, in place of the storage.
extern crate self as serac_storage;
pub use ids::Timestamp;

/// In place of `serac_index::cubit::delta`.
mod delta {
    use super::fate::{EntryFate, Fate};

    /// The entry of a writer, which sets its bit; perhaps a bulk insert.
    #[derive(Clone, Debug)]
    pub(crate) struct Ule {
        pub(crate) writer: usize,
        pub(crate) fate: EntryFate,
        pub(crate) is_bulk: bool,
    }

    impl Ule {
        pub(crate) fn empty() -> Self {
            Self { writer: usize::MAX, fate: EntryFate::aborted(), is_bulk: false }
        }
        pub(crate) fn bulk(&self) -> Option<()> {
            self.is_bulk.then_some(())
        }
        pub(crate) fn len(&self) -> usize {
            1
        }
        pub(crate) fn fate(&self) -> Fate {
            self.fate.get()
        }
    }
}

use clock::Clock;
use delta::Ule;
use fate::{EntryFate, Fate, TransactionCell};
use log::{Anchor, DeltaLog};
use loom::thread;
use progress::Progress;
use serac_sync::atomic::AtomicUsize;
use serac_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use serac_sync::epoch;
use std::sync::Arc;

/// A bin: version at `ts` with `bits`, and the older one that it replaced (the same if no snapshot
/// needs it).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Chain {
    ts: usize,
    bits: usize,
    old_ts: usize,
    old_bits: usize,
}

impl Chain {
    fn pack(self) -> usize {
        self.ts | self.bits << 4 | self.old_ts << 8 | self.old_bits << 12
    }

    fn unpack(word: usize) -> Self {
        Self { ts: word & 15, bits: word >> 4 & 15, old_ts: word >> 8 & 15, old_bits: word >> 12 & 15 }
    }

    fn at(self, start: usize) -> usize {
        if self.ts <= start { self.bits } else { self.old_bits }
    }
}

struct Index {
    /// Writers whose entries are bulk inserts: no query reads them in the log.
    bulk_writers: usize,
    log: DeltaLog,
    cells: [Arc<TransactionCell>; 2],
    clock: Clock,
    chain: AtomicUsize,
}

impl Index {
    fn new() -> Arc<Self> {
        Self::with_bulks(0)
    }

    fn with_bulks(bulk_writers: usize) -> Arc<Self> {
        Arc::new(Self {
            bulk_writers,
            log: DeltaLog::new(1, false),
            cells: [(); 2].map(|()| Arc::default()),
            clock: Clock::new(Timestamp(1)),
            chain: AtomicUsize::new(Chain { ts: 1, bits: 0, old_ts: 1, old_bits: 0 }.pack()),
        })
    }

    fn entry(&self, writer: usize) -> Ule {
        let fate = EntryFate::of(self.cells[writer].clone());
        Ule { writer, fate, is_bulk: self.bulk_writers >> writer & 1 == 1 }
    }

    /// `Cubit::publish`.
    fn append(&self, writer: usize) {
        self.log.append(self.entry(writer), &epoch::pin());
    }

    /// `Transaction::commit` with the hook that stamps the cell.
    fn commit(&self, writer: usize) -> usize {
        self.clock.latch().publish(|ts| self.cells[writer].commit(ts)).0 as usize
    }

    fn write(&self, writer: usize) -> usize {
        self.append(writer);
        self.commit(writer)
    }

    fn begin(&self) -> usize {
        self.clock.begin().1.0 as usize
    }

    fn end(&self, start: usize) {
        self.clock.leave(Timestamp(start as u64));
    }

    /// The writers whose entries a reader of the present anchor meets, and which of them the
    /// snapshot sees.
    fn meet(&self, start: usize) -> (Vec<usize>, Vec<usize>) {
        let guard = epoch::pin();
        // SAFETY: never null; alive while the guard is held.
        let anchor = unsafe { self.log.anchor(&guard).deref() };
        let (mut met, mut seen) = (Vec::new(), Vec::new());
        self.log.walk(anchor, &guard, |ule| {
            met.push(ule.writer);
            if let Fate::Committed(ts) = ule.fate()
                && ts as usize <= start
            {
                seen.push(ule.writer);
            }
        });
        (met, seen)
    }

    /// `Cubit::query`, with what `Cubit::reader` does first.
    fn query(&self, start: usize) -> usize {
        loop {
            let has_bulks = self.log.has_bulks();
            let guard = epoch::pin();
            // SAFETY: never null; alive while the guard is held.
            let anchor = unsafe { self.log.anchor(&guard).deref() };
            let reads_log = anchor.ts as usize <= start;
            let (mut bits, mut sees_bulk) = (Chain::unpack(self.chain.load(Acquire)).at(start), false);
            if reads_log {
                self.log.walk(anchor, &guard, |ule| match ule.fate() {
                    Fate::Committed(ts) if ts as usize <= start && ule.is_bulk => sees_bulk = true,
                    Fate::Committed(ts) if ts as usize <= start => bits |= 1 << ule.writer,
                    _ => {}
                });
            }
            if !(has_bulks && sees_bulk) {
                return bits;
            }
            drop(guard);
            self.merge();
        }
    }

    /// `Cubit::merge`: a plan, its one task, its end.
    fn merge(&self) {
        let guard = epoch::pin();
        // SAFETY: never null; alive while the guard is held.
        let anchor = unsafe { self.log.anchor(&guard).deref() };
        let readers = self.clock.readers();
        let now = readers.settled() as usize;
        let (mut settled, mut carried, mut bulks_passed) = (Vec::new(), Vec::new(), 0);
        let end = self.log.walk(anchor, &guard, |ule| {
            match ule.fate() {
                Fate::Committed(ts) if ts as usize <= now => settled.push((ts as usize, ule.writer)),
                Fate::Aborted => {}
                _ => return carried.push(ule.clone()),
            }
            bulks_passed += u64::from(ule.is_bulk);
        });
        loop {
            let word = self.chain.load(Acquire);
            let chain = Chain::unpack(word);
            if chain.ts >= now {
                break;
            }
            let until = |ts: usize| {
                let part = settled.iter().filter(|(commit, _)| chain.ts < *commit && *commit <= ts);
                part.fold(chain.bits, |bits, (_, writer)| bits | 1 << writer)
            };
            // The models have one running snapshot at the most.
            let old = readers.oldest().map(|start| start as usize).filter(|start| *start < now);
            let (old_ts, old_bits) = match old {
                Some(start) if start >= chain.ts => (start, until(start)),
                Some(_) => (chain.old_ts, chain.old_bits),
                None => (now, until(now)),
            };
            let merged = Chain { ts: now, bits: until(now), old_ts, old_bits };
            if self.chain.compare_exchange(word, merged.pack(), AcqRel, Relaxed).is_ok() {
                break;
            }
        }
        let to = Anchor { ts: now as u64, serial: anchor.serial + 1, after: end, carried: carried.into() };
        self.log.advance(to, bulks_passed, &guard);
    }
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    bounded(3, f);
}
fn bounded(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        f();
        epoch::free_all();
    });
}

/// One of two who append may stop anywhere: the other one helps.
#[test]
fn append_and_help() {
    model(|| {
        let index = Index::new();
        let other = {
            let index = index.clone();
            thread::spawn(move || {
                index.append(1);
                assert!(index.meet(0).0.contains(&1), "it was linked");
            })
        };
        index.append(0);
        other.join().unwrap();
        let (mut writers, _) = index.meet(0);
        writers.sort();
        assert_eq!(writers, [0, 1]);
        // TAIL is at the last node: nobody has to help any more.
        let helps = index.log.helps.load(Relaxed);
        assert_eq!(index.log.length(&epoch::pin()), (2, 2));
        assert_eq!(index.log.helps.load(Relaxed), helps);
    });
}

#[test]
fn a_commit_appears_in_all_indexes_at_one_instant() {
    model(|| {
        let (table, index) = (Index::new(), DeltaLog::new(1, false));
        let index = Arc::new(index);
        let writer = {
            let (table, index) = (table.clone(), index.clone());
            thread::spawn(move || {
                index.append(table.entry(0), &epoch::pin());
                table.append(0);
                // One store for both: `table` has the cell and the clock.
                table.commit(0)
            })
        };
        // The last to have them is this thread, who joins the others.
        let (read_table, read_index) = (table.clone(), index.clone());
        let reader = thread::spawn(move || {
            let (table, index) = (read_table, read_index);
            let start = table.begin();
            let guard = epoch::pin();
            let mut first = false;
            // SAFETY: never null; alive while the guard is held.
            let anchor = unsafe { index.anchor(&guard).deref() };
            index.walk(anchor, &guard, |ule| {
                first |= matches!(ule.fate(), Fate::Committed(ts) if ts as usize <= start);
            });
            (start, first, !table.meet(start).1.is_empty())
        });
        let commit = writer.join().unwrap();
        let (start, first, second) = reader.join().unwrap();
        assert_eq!((first, second), (start >= commit, start >= commit));
    });
}

#[test]
fn a_snapshot_is_answered_while_udis_and_merges_go_on() {
    bounded(1, || {
        let index = Index::new();
        let first = index.write(0);
        let merging = {
            let index = index.clone();
            thread::spawn(move || index.merge())
        };
        let writer = {
            let index = index.clone();
            thread::spawn(move || {
                let second = index.write(1);
                index.merge();
                second
            })
        };
        let start = index.begin();
        let (answer, again) = (index.query(start), index.query(start));
        merging.join().unwrap();
        let second = writer.join().unwrap();
        let expected = usize::from(first <= start) | usize::from(second <= start) << 1;
        assert_eq!((answer, again), (expected, expected));
        index.merge();
        assert_eq!(index.query(start), expected, "from the version that was kept");
        index.end(start);
        let start = index.begin();
        assert_eq!(index.query(start), 3);
    });
}

#[test]
fn a_bulk_insert_is_merged_before_it_is_read() {
    bounded(2, || {
        let index = Index::with_bulks(2);
        index.write(0);
        let writer = {
            let index = index.clone();
            thread::spawn(move || index.write(1))
        };
        let merging = {
            let index = index.clone();
            thread::spawn(move || index.merge())
        };
        let start = index.begin();
        let answer = index.query(start);
        let commit = writer.join().unwrap();
        merging.join().unwrap();
        assert_eq!(answer, 1 | usize::from(commit <= start) << 1);
        index.end(start);
        assert_eq!(index.query(index.begin()), 3);
        assert!(!index.log.has_bulks());
    });
}

/// `Cubit::help` and `Cubit::carry_out`: two tasks, each a bin; the anchor follows when all are
/// done.
struct Plan {
    bins: [AtomicUsize; 2],
    progress: Progress,
    anchor: AtomicUsize,
}

impl Plan {
    fn new() -> Arc<Self> {
        let new = || AtomicUsize::new(0);
        Arc::new(Self { bins: [new(), new()], progress: Progress::new(2), anchor: new() })
    }

    fn carry_out(&self, task: usize) {
        if self.bins[task].load(Acquire) == 0 {
            // A thread that loses finds the bin done.
            let swung = self.bins[task].compare_exchange(0, 1, Release, Relaxed).is_ok();
            assert!(swung || self.bins[task].load(Acquire) == 1);
        }
        self.progress.finish(task);
    }

    fn help(&self, is_late: bool) {
        if let Some(task) = self.progress.take() {
            self.carry_out(task);
        }
        if is_late {
            self.progress.open().for_each(|task| self.carry_out(task));
        }
        if self.progress.is_complete() {
            assert!(self.bins.iter().all(|bin| bin.load(Relaxed) == 1), "who finds all done sees it");
            self.anchor.store(1, Release);
        }
    }
}

#[test]
fn the_anchor_follows_the_last_task() {
    for late in [[false, true], [false, false]] {
        model(move || {
            let plan = Plan::new();
            let helpers = late.map(|is_late| {
                let plan = plan.clone();
                thread::spawn(move || plan.help(is_late))
            });
            if plan.anchor.load(Acquire) == 1 {
                assert!(plan.bins.iter().all(|bin| bin.load(Acquire) == 1));
            }
            helpers.into_iter().for_each(|helper| helper.join().unwrap());
            assert_eq!(plan.anchor.load(Acquire), 1);
        });
    }
}

/// A helper that stops anywhere, also right behind its task, keeps no plan from ending.
#[test]
fn a_helper_that_stops_is_not_waited_for() {
    model(|| {
        let plan = Plan::new();
        let stops = {
            let plan = plan.clone();
            thread::spawn(move || {
                let task = plan.progress.take();
                task.into_iter().for_each(|task| plan.carry_out(task));
            })
        };
        plan.help(true);
        assert_eq!(plan.anchor.load(Acquire), 1);
        stops.join().unwrap();
    });
}

#[test]
fn two_merges_do_no_more_than_one() {
    bounded(2, || {
        let index = Index::new();
        index.write(0);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let index = index.clone();
                thread::spawn(move || index.merge())
            })
            .collect();
        index.write(1);
        threads.into_iter().for_each(|t| t.join().unwrap());
        index.merge();
        let start = index.begin();
        assert_eq!(index.query(start), 3);
        assert_eq!(Chain::unpack(index.chain.load(Acquire)).bits, 3);
    });
}

#[test]
fn nothing_that_can_be_reached_is_given_back() {
    model(|| {
        epoch::free_early();
        let index = Index::new();
        index.write(0);
        let merging = {
            let index = index.clone();
            thread::spawn(move || index.merge())
        };
        // Stops after the link, so that TAIL is behind.
        let appending = {
            let index = index.clone();
            thread::spawn(move || index.append(1))
        };
        index.meet(9);
        index.log.length(&epoch::pin());
        merging.join().unwrap();
        appending.join().unwrap();
        assert_eq!(index.meet(9).0, [1]);
    });
}
