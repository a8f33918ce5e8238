//! Pins of foreign keys: children that come beside the delete of their parent, and a collector that
//! ends the pins of commits that every snapshot sees. Whoever deletes the parent takes along the
//! children that its snapshot sees (ON DELETE CASCADE) and learns of all others from the pins. So
//! no orphan is left. The pins and the clock are the real ones
//! (`serac_engine::constraint::parent_pins`, `serac_storage::version::clock`), with loom's atomics
//! and locks; the parent's row and the collector's queue are restated.
//!
//! It fails when a pin comes behind the look for the parent.
//!
//! Of: `serac-engine/src/constraint/parent_pins.rs`, `serac-engine/src/constraint/foreign_key.rs`.
#![cfg(loom)]

#[path = "../../serac-engine/src/constraint/parent_pins.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
mod parent_pins;

#[path = "../../serac-storage/src/version/clock.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
mod clock;
#[path = "../../serac-storage/src/ids.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
mod ids;

// The pins take the row's name from this crate, in place of the storage.
extern crate self as serac_storage;
pub use ids::RowId;

use clock::Clock;
use ids::Timestamp;
use loom::thread;
use parent_pins::{ParentPins, Pinned};
use serac_sync::Mutex;
use serac_sync::atomic::AtomicUsize;
use serac_sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::Arc;

const PARENT: RowId = RowId::from_u64(7);

/// States of the parent's row, as its newest version tells them.
const THERE: usize = 0;
const BEING_DELETED: usize = 1;
const GONE: usize = 2;

struct Family {
    pins: ParentPins,
    parent: AtomicUsize,
    clock: Clock,
    /// The commits of the children that are there.
    children: Mutex<Vec<u64>>,
    /// The collector's queue: commits whose pins end once every snapshot sees them.
    deferred: Mutex<Vec<u64>>,
}

impl Family {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            pins: ParentPins::default(),
            parent: AtomicUsize::new(THERE),
            clock: Clock::new(Timestamp(1)),
            children: Mutex::default(),
            deferred: Mutex::default(),
        })
    }

    fn begin(&self) -> u64 {
        self.clock.begin().1.0
    }

    fn end(&self, start: u64) {
        self.clock.leave(Timestamp(start));
    }

    fn commit(&self, stamp: impl FnOnce(u64)) {
        self.clock.latch().publish(|at| stamp(at.0));
    }

    fn has_parent(&self) -> bool {
        self.parent.load(Acquire) == THERE
    }

    fn commit_child(&self, number: u64) {
        let mut committed = 0;
        self.commit(|at| {
            self.children.lock().push(at);
            self.pins.unpin(PARENT, number, Some(at));
            committed = at;
        });
        self.deferred.lock().push(committed);
    }

    /// A transaction that adds a child, unless the parent goes: `Transaction::check_child`.
    fn add_child(&self, number: u64) {
        let start = self.begin();
        self.pins.pin(PARENT, number);
        if self.has_parent() {
            self.commit_child(number);
        } else {
            self.pins.unpin(PARENT, number, None);
        }
        self.end(start);
    }

    /// A transaction that deletes the parent and the children that it sees, unless somebody else's
    /// are in the way: `Transaction::note_gone_parent`.
    fn delete_parent(&self, number: u64) {
        let start = self.begin();
        self.parent.compare_exchange(THERE, BEING_DELETED, AcqRel, Acquire).expect("nobody else deletes it");
        match self.pins.of(PARENT, number, start) {
            Pinned::Free => self.commit(|_| {
                self.children.lock().retain(|child| *child > start);
                self.parent.store(GONE, Release);
            }),
            Pinned::By(_) | Pinned::Since => self.parent.store(THERE, Release),
        }
        self.end(start);
    }

    /// `GarbageCollector::run_once`.
    fn collect(&self) {
        let readers = self.clock.readers();
        let watermark = readers.oldest().unwrap_or(readers.settled());
        let due = {
            let mut deferred = self.deferred.lock();
            let (due, later) = std::mem::take(&mut *deferred).into_iter().partition::<Vec<_>, _>(|at| *at <= watermark);
            *deferred = later;
            due
        };
        due.into_iter().for_each(|at| self.pins.forget(PARENT, at));
    }

    /// At the end.
    fn check(&self) {
        let children = self.children.lock().clone();
        assert!(self.has_parent() || children.is_empty(), "children of {children:?} are orphans");
        self.collect();
        assert_eq!(self.pins.len(), 0, "a pin is left");
    }
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

#[test]
fn no_orphan_is_left_by_a_child_beside_the_delete_of_its_parent() {
    loom::model(|| {
        let family = Family::new();
        let deleter = {
            let family = family.clone();
            thread::spawn(move || family.delete_parent(1))
        };
        family.add_child(2);
        deleter.join().unwrap();
        family.check();
    });
}

/// The action of the first commit comes while the second child's pin is the one that matters.
#[test]
fn the_end_of_an_older_pin_leaves_a_newer_one() {
    model(|| {
        let family = Family::new();
        family.add_child(1);
        let deleter = {
            let family = family.clone();
            thread::spawn(move || family.delete_parent(2))
        };
        let collector = {
            let family = family.clone();
            thread::spawn(move || family.collect())
        };
        family.add_child(3);
        deleter.join().unwrap();
        collector.join().unwrap();
        family.check();
    });
}

#[test]
fn two_children_pin_one_parent() {
    model(|| {
        let family = Family::new();
        let other = {
            let family = family.clone();
            thread::spawn(move || family.add_child(1))
        };
        let deleter = {
            let family = family.clone();
            thread::spawn(move || family.delete_parent(2))
        };
        family.add_child(3);
        other.join().unwrap();
        deleter.join().unwrap();
        family.check();
    });
}

/// The order that the module forbids: the model shows why.
#[test]
#[should_panic(expected = "orphans")]
fn a_pin_behind_the_look_comes_too_late() {
    loom::model(|| {
        let family = Family::new();
        let deleter = {
            let family = family.clone();
            thread::spawn(move || family.delete_parent(1))
        };
        let start = family.begin();
        if family.has_parent() {
            family.pins.pin(PARENT, 2);
            family.commit_child(2);
        }
        family.end(start);
        deleter.join().unwrap();
        family.check();
    });
}
