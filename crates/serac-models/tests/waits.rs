//! Transactions that wait for the end of another (`serac_storage::version::waits`): nobody sleeps
//! behind one that has ended, nobody overtakes who has waited, no deadlock stays.
//!
//! Of: `serac-storage/src/version/waits.rs`.
#![cfg(loom)]

use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicUsize, fence};
use loom::sync::{Mutex, Notify};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const TRANSACTIONS: usize = 4;
/// Added to the number of the transaction that has a row.
const RUNNING: usize = 100;

#[derive(Default)]
struct State {
    /// Who waits, for whom.
    waiters: BTreeMap<usize, usize>,
    queues: BTreeMap<usize, VecDeque<usize>>,
}

/// Rows, each with the timestamp of its newest version, and who waits for them. All who wait for
/// one transaction want the same row here.
struct World {
    rows: [AtomicUsize; 2],
    count: AtomicUsize,
    state: Mutex<State>,
    wakers: [Notify; TRANSACTIONS],
}

enum Turn {
    Now,
    Sleep,
    Deadlock,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            rows: [AtomicUsize::new(0), AtomicUsize::new(0)],
            count: AtomicUsize::new(0),
            state: Mutex::new(State::default()),
            wakers: std::array::from_fn(|_| Notify::new()),
        })
    }
    /// `DataTable::install`: the holder if there is one.
    fn take(&self, row: usize, me: usize) -> Result<(), usize> {
        loop {
            let seen = self.rows[row].load(Acquire);
            if seen >= RUNNING && seen != RUNNING + me {
                return Err(seen - RUNNING);
            }
            if self.rows[row].compare_exchange(seen, RUNNING + me, SeqCst, Relaxed).is_ok() {
                return Ok(());
            }
        }
    }
    /// `Waits::queue`.
    fn queue(&self, me: usize, holder: usize, row: usize, again: bool) -> Turn {
        let mut state = self.state.lock().unwrap();
        self.count.fetch_add(1, Relaxed);
        fence(SeqCst);
        let mut at = holder;
        let closes_cycle = loop {
            if at == me {
                break true;
            }
            match state.waiters.get(&at) {
                Some(next) => at = *next,
                None => break false,
            }
        };
        let held = self.rows[row].load(Acquire) == RUNNING + holder;
        if closes_cycle || !held {
            self.count.fetch_sub(1, Relaxed);
            return if held { Turn::Deadlock } else { Turn::Now };
        }
        state.waiters.insert(me, holder);
        let queue = state.queues.entry(holder).or_default();
        if again {
            queue.push_front(me)
        } else {
            queue.push_back(me)
        }
        Turn::Sleep
    }
    /// `Waits::hand_over`.
    fn hand_over(&self, me: usize) {
        let mut state = self.state.lock().unwrap();
        let Some(mut queue) = state.queues.remove(&me) else { return };
        let heir = queue.pop_front().unwrap();
        state.waiters.remove(&heir);
        for waiter in &queue {
            state.waiters.insert(*waiter, heir);
        }
        if !queue.is_empty() {
            let mut rest = state.queues.remove(&heir).unwrap_or_default();
            rest.extend(queue);
            state.queues.insert(heir, rest);
        }
        drop(state);
        self.count.fetch_sub(1, Relaxed);
        self.wakers[heir].notify();
    }
    /// The end of a transaction: the stamp, and `Waits::ended`.
    fn end(&self, me: usize, rows: &[usize]) {
        for &row in rows {
            self.rows[row].store(1, Release);
        }
        fence(SeqCst);
        if self.count.load(Relaxed) > 0 {
            self.hand_over(me);
        }
    }
    /// Until it is the transaction's turn. A wake may be an old one.
    fn sleep(&self, me: usize) {
        while self.state.lock().unwrap().waiters.contains_key(&me) {
            self.wakers[me].wait();
        }
    }
    /// A statement that takes a row, however long it waits; false at a deadlock.
    fn update(&self, me: usize, row: usize) -> bool {
        let mut again = false;
        while let Err(holder) = self.take(row, me) {
            match self.queue(me, holder, row, again) {
                Turn::Now => loom::thread::yield_now(),
                Turn::Sleep => self.sleep(me),
                Turn::Deadlock => return false,
            }
            again = true;
        }
        true
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
        assert!(world.state.lock().unwrap().waiters.is_empty());
        assert_eq!(world.count.load(Acquire), 0);
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
        assert!(world.state.lock().unwrap().waiters.is_empty());
    });
}

/// Those who wait get the row in their order, whoever comes in between.
#[test]
fn who_has_waited_longer_comes_first() {
    model(2, || {
        let world = World::new();
        world.take(0, 0).unwrap();
        assert!(matches!(world.queue(1, 0, 0, false), Turn::Sleep));
        assert!(matches!(world.queue(2, 0, 0, false), Turn::Sleep));
        let order = Arc::new(Mutex::new(Vec::new()));
        let run = |me: usize, waits: bool| {
            let (world, order) = (world.clone(), order.clone());
            loom::thread::spawn(move || {
                if waits {
                    world.sleep(me);
                    while let Err(holder) = world.take(0, me) {
                        if let Turn::Sleep = world.queue(me, holder, 0, true) {
                            world.sleep(me);
                        }
                    }
                } else {
                    assert!(world.update(me, 0));
                }
                order.lock().unwrap().push(me);
                world.end(me, &[0]);
            })
        };
        let threads = [run(1, true), run(2, true), run(3, false)];
        world.end(0, &[0]);
        for thread in threads {
            thread.join().unwrap();
        }
        let order = order.lock().unwrap();
        let place = |me| order.iter().position(|other| *other == me).unwrap();
        assert!(place(1) < place(2), "{order:?}");
    });
}
