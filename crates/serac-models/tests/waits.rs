//! Transactions that wait for the end of another: nobody sleeps behind one that has ended, nobody
//! overtakes a transaction that has waited, no deadlock stays, and a transaction that gives up
//! leaves nobody behind. The queues are the real ones (`serac_storage::version::wait_queues`), with
//! loom's locks and atomics. The rows are the model's, each with the number of the transaction that
//! holds it, and so is the loop of a statement that takes one.
//!
//! It fails without either of the two SeqCst fences, when a waiter counts itself behind its look,
//! when cycles are not looked for, when a transaction that was overtaken queues behind others, and
//! when one that gives up takes others out of the queue, or does not find the queue that it was
//! moved to.
//!
//! At most 2 preemptions in an execution, or 1 where that is said.
//!
//! Of: `serac-storage/src/version/wait_queues.rs`.
#![cfg(loom)]

#[path = "../../serac-storage/src/version/wait_queues.rs"]
#[allow(dead_code, reason = "the model lists nobody")]
mod wait_queues;

use loom::sync::Notify;
use serac_sync::Mutex;
use serac_sync::atomic::AtomicUsize;
use serac_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::Arc;
use std::task::{Wake, Waker};
use wait_queues::{Queued, WaitQueues};

const TRANSACTIONS: usize = 4;
/// Added to the number of the transaction that has a row.
const RUNNING: usize = 100;

struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// Rows, each with the timestamp of its newest version, and who waits for them.
struct World {
    rows: [AtomicUsize; 2],
    queues: WaitQueues<usize>,
    bells: [Arc<Bell>; TRANSACTIONS],
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            rows: [AtomicUsize::new(0), AtomicUsize::new(0)],
            queues: WaitQueues::default(),
            bells: std::array::from_fn(|_| Arc::new(Bell(Notify::new()))),
        })
    }

    /// `DataTable::install`: the holder if there is one.
    fn take(&self, row: usize, me: usize) -> Result<(), usize> {
        loop {
            let seen = self.rows[row].load(Acquire);
            if seen >= RUNNING && seen != RUNNING + me {
                return Err(seen - RUNNING);
            }
            if self.rows[row].compare_exchange(seen, RUNNING + me, AcqRel, Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    /// `Transaction::wait_for`.
    fn queue(&self, me: usize, holder: usize, row: usize, again: bool) -> Queued {
        let holds = || self.rows[row].load(Acquire) == RUNNING + holder;
        self.queues.queue(me as u64, holder as u64, row, again, holds)
    }

    /// The end of a transaction: the stamp, and `Transaction::end_waits`.
    fn end(&self, me: usize, rows: &[usize]) {
        for &row in rows {
            self.rows[row].store(1, Release);
        }
        self.queues.ended(me as u64);
    }

    /// Until it is the transaction's turn: a `Turn` that is polled, and dropped.
    fn sleep(&self, me: usize) {
        let waker = Waker::from(self.bells[me].clone());
        while !self.queues.is_turn(me as u64, &waker) {
            self.bells[me].0.wait();
        }
        self.queues.give_up(me as u64);
    }

    /// A statement that takes a row, however long it waits; false at a deadlock.
    fn update(&self, me: usize, row: usize) -> bool {
        let mut again = false;
        while let Err(holder) = self.take(row, me) {
            match self.queue(me, holder, row, again) {
                Queued::Free => loom::thread::yield_now(),
                Queued::Waits => self.sleep(me),
                Queued::Deadlock => return false,
            }
            again = true;
        }
        true
    }

    /// At the end.
    fn assert_nobody_waits(&self) {
        assert!(self.queues.list(|waiter, _, _, _| waiter).is_empty());
    }
}

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

/// A holder that ends beside two who want its row.
#[test]
fn nobody_sleeps_behind_one_that_has_ended() {
    model(2, || {
        let world = World::new();
        world.take(0, 0).unwrap();
        let waiters = [1, 2].map(|me| {
            let world = world.clone();
            loom::thread::spawn(move || {
                assert!(world.update(me, 0));
                world.end(me, &[0]);
            })
        });
        world.end(0, &[0]);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        world.assert_nobody_waits();
    });
}

/// Two who take two rows in opposite orders: one of them fails, and both end.
#[test]
fn a_deadlock_is_found() {
    model(2, || {
        let world = World::new();
        let threads = [(1, [0, 1]), (2, [1, 0])].map(|(me, rows)| {
            let world = world.clone();
            loom::thread::spawn(move || {
                assert!(world.update(me, rows[0]), "who has nothing is in nobody's way");
                let both = world.update(me, rows[1]);
                world.end(me, if both { &rows } else { &rows[..1] });
                both
            })
        });
        let done = threads.map(|thread| thread.join().unwrap());
        assert!(done[0] || done[1], "one of the two is a victim at the most");
        world.assert_nobody_waits();
    });
}

/// Those who wait get the row in their order, whoever comes in between.
#[test]
fn who_has_waited_longer_comes_first() {
    model(1, || {
        let world = World::new();
        world.take(0, 0).unwrap();
        assert_eq!(world.queue(1, 0, 0, false), Queued::Waits);
        assert_eq!(world.queue(2, 0, 0, false), Queued::Waits);
        let order = Arc::new(Mutex::new(Vec::new()));
        let run = |me: usize, waits: bool| {
            let (world, order) = (world.clone(), order.clone());
            loom::thread::spawn(move || {
                if waits {
                    world.sleep(me);
                    while let Err(holder) = world.take(0, me) {
                        if world.queue(me, holder, 0, true) == Queued::Waits {
                            world.sleep(me);
                        }
                    }
                } else {
                    assert!(world.update(me, 0));
                }
                order.lock().push(me);
                world.end(me, &[0]);
            })
        };
        let threads = [run(1, true), run(2, true), run(3, false)];
        world.end(0, &[0]);
        for thread in threads {
            thread.join().unwrap();
        }
        let order = order.lock();
        let place = |me| order.iter().position(|other| *other == me).unwrap();
        assert!(place(1) < place(2), "{order:?}");
    });
}

/// One of two in the queue is cancelled beside the holder's end. It passes on what it was given, so
/// the other gets the row.
fn one_gives_up(cancelled: usize) {
    model(2, move || {
        let world = World::new();
        world.take(0, 0).unwrap();
        assert_eq!(world.queue(1, 0, 0, false), Queued::Waits);
        assert_eq!(world.queue(2, 0, 0, false), Queued::Waits);
        let cancels = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.queues.give_up(cancelled as u64);
                // `Transaction::pass_on`.
                world.queues.hand_over(cancelled as u64, Some(0));
            })
        };
        let waits = {
            let (world, me) = (world.clone(), 3 - cancelled);
            loom::thread::spawn(move || {
                world.sleep(me);
                assert!(world.update(me, 0));
                world.end(me, &[0]);
            })
        };
        world.end(0, &[0]);
        cancels.join().unwrap();
        waits.join().unwrap();
        world.assert_nobody_waits();
    });
}

#[test]
fn the_first_that_gives_up_leaves_nobody_behind() {
    one_gives_up(1);
}
#[test]
fn the_second_that_gives_up_leaves_nobody_behind() {
    one_gives_up(2);
}

/// A transaction that was overtaken waits again before those that have come since.
#[test]
fn who_was_overtaken_comes_first() {
    model(1, || {
        let world = World::new();
        let waker = Waker::from(world.bells[0].clone());
        world.take(0, 0).unwrap();
        assert_eq!(world.queue(1, 0, 0, false), Queued::Waits);
        world.end(0, &[0]);
        assert!(world.queues.is_turn(1, &waker));
        world.take(0, 3).unwrap();
        assert_eq!(world.queue(2, 3, 0, false), Queued::Waits);
        assert_eq!(world.queue(1, 3, 0, true), Queued::Waits);
        world.end(3, &[0]);
        assert_eq!([1, 2].map(|me| world.queues.is_turn(me, &waker)), [true, false]);
    });
}
