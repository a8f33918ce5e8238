//! CUBIT's Delta Log, merges and visibility: `serac_index::cubit` in small. Two writers insert a
//! row each (bit 0 and bit 1), so that an answer is a set of two bits; nodes, versions and anchors
//! are words. Which tasks of a plan are done is known by the real code
//! (`serac_index::cubit::progress`), with loom's atomics.
//!
//! Of: `serac-index/src/cubit/mod.rs`, `serac-index/src/cubit/log.rs`,
//! Of: `serac-index/src/cubit/merge.rs`, `serac-index/src/cubit/progress.rs`.
#![cfg(loom)]

#[path = "../../serac-index/src/cubit/progress.rs"]
mod progress;

// The progress takes its atomics from this crate, in place of `serac_sync`.
extern crate self as serac_sync;
mod atomic {
    pub use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
}

use loom::sync::Mutex;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::thread;
use progress::Progress;
use std::sync::Arc;

const OPEN: usize = usize::MAX;
/// Nodes: 0 is the one that every log begins with, `i + 1` is writer i's. The last word of a chain
/// of links is `NONE`.
const NONE: usize = 9;

/// A merged state: version at `ts` with `bits`, and the older one that it replaced (the same if no
/// snapshot needs it).
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

#[derive(Clone, Copy, Debug)]
struct Anchor {
    serial: usize,
    ts: usize,
    after: usize,
    /// Writers whose entries are carried.
    carried: usize,
}

impl Anchor {
    fn pack(self) -> usize {
        self.serial | self.ts << 4 | self.after << 8 | self.carried << 12
    }
    fn unpack(word: usize) -> Self {
        Self { serial: word & 15, ts: word >> 4 & 15, after: word >> 8 & 15, carried: word >> 12 & 15 }
    }
}

struct Index {
    /// Writers whose entries are bulk inserts: no query reads them in the log.
    bulk_writers: usize,
    /// Those in the log, or about to be.
    bulks: AtomicUsize,
    next: [AtomicUsize; 3],
    tail: AtomicUsize,
    cells: [AtomicUsize; 2],
    clock: AtomicUsize,
    commit_latch: Mutex<()>,
    /// Starts of running snapshots.
    active: Mutex<Vec<usize>>,
    chain: AtomicUsize,
    anchor: AtomicUsize,
    /// Threads that hold a guard, and the nodes given back to the allocator.
    pinned: Mutex<(usize, Vec<usize>)>,
}

impl Index {
    fn new() -> Arc<Self> {
        Self::with_bulks(0)
    }
    fn with_bulks(bulk_writers: usize) -> Arc<Self> {
        Arc::new(Self {
            bulk_writers,
            bulks: AtomicUsize::new(0),
            next: [(); 3].map(|()| AtomicUsize::new(NONE)),
            tail: AtomicUsize::new(0),
            cells: [(); 2].map(|()| AtomicUsize::new(OPEN)),
            clock: AtomicUsize::new(1),
            commit_latch: Mutex::new(()),
            active: Mutex::new(Vec::new()),
            chain: AtomicUsize::new(Chain { ts: 1, bits: 0, old_ts: 1, old_bits: 0 }.pack()),
            anchor: AtomicUsize::new(Anchor { serial: 0, ts: 1, after: 0, carried: 0 }.pack()),
            pinned: Mutex::new((0, Vec::new())),
        })
    }
    /// `DeltaLog::append`, first step.
    fn link(&self, node: usize) -> usize {
        loop {
            let tail = self.last();
            if self.next[tail].compare_exchange(NONE, node, Release, Relaxed).is_ok() {
                return tail;
            }
        }
    }
    fn is_bulk(&self, writer: usize) -> bool {
        self.bulk_writers >> writer & 1 == 1
    }
    /// `DeltaLog::append`.
    fn append(&self, node: usize) {
        if self.is_bulk(node - 1) {
            self.bulks.fetch_add(1, Relaxed);
        }
        let tail = self.link(node);
        let _ = self.tail.compare_exchange(tail, node, Release, Relaxed);
    }
    /// `DeltaLog::tail`.
    fn last(&self) -> usize {
        loop {
            let tail = self.tail.load(Acquire);
            let next = self.next[tail].load(Acquire);
            if next == NONE {
                return tail;
            }
            let _ = self.tail.compare_exchange(tail, next, Release, Relaxed);
        }
    }
    /// `Transaction::commit` with the hook that stamps the cell.
    fn commit(&self, writer: usize) -> usize {
        let _latch = self.commit_latch.lock().unwrap();
        let ts = self.clock.load(Relaxed) + 1;
        self.cells[writer].store(ts, Release);
        self.clock.store(ts, Release);
        ts
    }
    fn write(&self, writer: usize) -> usize {
        self.append(writer + 1);
        self.commit(writer)
    }
    fn begin(&self) -> usize {
        let mut active = self.active.lock().unwrap();
        let start = self.clock.load(Acquire);
        active.push(start);
        start
    }
    fn end(&self, start: usize) {
        let mut active = self.active.lock().unwrap();
        let at = active.iter().position(|s| *s == start).unwrap();
        active.remove(at);
    }
    /// `DeltaLog::walk`: the writers whose entries come up, and the last node.
    fn walk(&self, anchor: Anchor) -> (Vec<usize>, usize) {
        let mut writers: Vec<usize> = (0..2).filter(|w| anchor.carried >> w & 1 == 1).collect();
        let mut node = anchor.after;
        loop {
            match self.next[node].load(Acquire) {
                NONE => return (writers, node),
                next => node = next,
            }
            writers.push(node - 1);
        }
    }
    /// `Cubit::query`, with what `Cubit::reader` does first.
    fn query(&self, start: usize) -> usize {
        let visible = |writer: &usize| self.cells[*writer].load(Acquire) <= start;
        let anchor = loop {
            let has_bulks = self.bulks.load(Acquire) > 0;
            let anchor = Anchor::unpack(self.anchor.load(Acquire));
            let sees = |writer: usize| self.is_bulk(writer) && visible(&writer);
            if !(has_bulks && anchor.ts <= start && self.walk(anchor).0.into_iter().any(sees)) {
                break anchor;
            }
            self.merge();
        };
        let mut bits = Chain::unpack(self.chain.load(Acquire)).at(start);
        if anchor.ts <= start {
            let seen = self.walk(anchor).0.into_iter().filter(visible).filter(|writer| !self.is_bulk(*writer));
            seen.for_each(|writer| bits |= 1 << writer);
        }
        bits
    }
    /// `Cubit::merge`: a plan, its one task, its end.
    fn merge(&self) {
        let anchor = Anchor::unpack(self.anchor.load(Acquire));
        let (now, starts) = {
            let active = self.active.lock().unwrap();
            (self.clock.load(Acquire), active.clone())
        };
        let (writers, end) = self.walk(anchor);
        let (mut settled, mut carried) = (Vec::new(), 0);
        for writer in writers {
            match self.cells[writer].load(Acquire) {
                ts if ts <= now => settled.push((ts, writer)),
                _ => carried |= 1 << writer,
            }
        }
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
            let old = starts.first().copied().filter(|start| *start < now);
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
        // `DeltaLog::advance`.
        let word = self.anchor.load(Acquire);
        if Anchor::unpack(word).serial != anchor.serial {
            return;
        }
        self.last();
        let to = Anchor { serial: anchor.serial + 1, ts: now, after: end, carried };
        if self.anchor.compare_exchange(word, to.pack(), AcqRel, Relaxed).is_ok() {
            let passed = settled.iter().filter(|(_, writer)| self.is_bulk(*writer)).count();
            self.bulks.fetch_sub(passed, Release);
            let mut pinned = self.pinned.lock().unwrap();
            let mut node = anchor.after;
            while node != end {
                // Others that hold a guard keep it; the merging thread's own does not count.
                if pinned.0 == 0 {
                    pinned.1.push(node);
                }
                node = self.next[node].load(Acquire);
            }
        }
    }
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

#[test]
fn append_and_help() {
    model(|| {
        let index = Index::new();
        // The first stops between its two compare-and-swaps, for good.
        let stalled = {
            let index = index.clone();
            thread::spawn(move || index.link(1))
        };
        let other = {
            let index = index.clone();
            thread::spawn(move || index.append(2))
        };
        other.join().unwrap();
        stalled.join().unwrap();
        let (mut writers, end) = index.walk(Anchor { serial: 0, ts: 1, after: 0, carried: 0 });
        assert_eq!(index.last(), end);
        assert_eq!(index.tail.load(Acquire), end);
        writers.sort();
        assert_eq!(writers, [0, 1]);
    });
}

#[test]
fn a_commit_appears_in_all_indexes_at_one_instant() {
    model(|| {
        let (table, index) = (Index::new(), Index::new());
        let writer = {
            let (table, index) = (table.clone(), index.clone());
            thread::spawn(move || {
                index.append(1);
                table.append(1);
                // One store for both: `table` has the cell and the clock.
                table.commit(0)
            })
        };
        let reader = thread::spawn(move || {
            let start = table.begin();
            let seen = |log: &Index| {
                let (writers, _) = log.walk(Anchor { serial: 0, ts: 1, after: 0, carried: 0 });
                writers.into_iter().any(|w| table.cells[w].load(Acquire) <= start)
            };
            (start, seen(&index), seen(&table))
        });
        let commit = writer.join().unwrap();
        let (start, first, second) = reader.join().unwrap();
        assert_eq!((first, second), (start >= commit, start >= commit));
    });
}

#[test]
fn a_snapshot_is_answered_while_udis_and_merges_go_on() {
    model(|| {
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
    model(|| {
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
        assert_eq!(index.bulks.load(Relaxed), 0);
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
            // Who loses finds the bin done.
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
    model(|| {
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
        let index = Index::new();
        index.write(0);
        let merging = {
            let index = index.clone();
            thread::spawn(move || index.merge())
        };
        // Stops after the link, so that TAIL is behind.
        let stalled = {
            let index = index.clone();
            thread::spawn(move || index.link(2))
        };
        let reader = thread::spawn(move || {
            index.pinned.lock().unwrap().0 += 1;
            let tail = index.tail.load(Acquire);
            let mut node = Anchor::unpack(index.anchor.load(Acquire)).after;
            loop {
                let gone = index.pinned.lock().unwrap().1.clone();
                assert!(!gone.contains(&tail) && !gone.contains(&node), "given back: {gone:?}");
                match index.next[node].load(Acquire) {
                    NONE => break,
                    next => node = next,
                }
            }
            index.pinned.lock().unwrap().0 -= 1;
        });
        merging.join().unwrap();
        stalled.join().unwrap();
        reader.join().unwrap();
    });
}
