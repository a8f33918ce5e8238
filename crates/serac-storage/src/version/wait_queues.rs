//! Queues of transactions that wait for others: who waits for whom, and whose turn is next.
//!
//! ```text
//! waiter                                           holder, at its end
//! 1. latch; count itself                           1. stamp the cell, publish the clock
//! 2. SeqCst fence                                  2. SeqCst fence
//! 3. look whether it is held still                 3. nobody is counted: go on
//! 4. queue behind the holder; unlatch; sleep       4. latch; hand over to those in the queue
//! ```
//! One of the two fences comes first. If it is the holder's, the waiter's step 3 sees the stamp; if
//! it is the waiter's, the holder's step 3 sees the count, and its step 4 comes after the waiter's.
//! So nobody sleeps behind a transaction that has ended.
//!
//! **Hand-over.** When the holder has committed in memory, or rolled back, the first waiter for
//! each thing is woken. The other waiters for the thing wait behind it from then on, in their
//! order, as if it held the thing already. So a row that everybody wants goes from one to the next,
//! and wakes one transaction each time. If the one that was woken does not take the thing after
//! all, it [passes it on](WaitQueues::hand_over) when its statement ends. Somebody who has not
//! waited may take it meanwhile; then the one that was woken waits again, before all others.
//!
//! **Deadlocks.** A transaction waits for one other at a time, so the graph of who waits for whom
//! is a set of trees. One walk along the chain from the holder finds out whether a wait for it
//! would close a cycle. The transaction that would close it fails. A cycle may go through a
//! transaction that is yet to take what was handed over to it. Then a transaction fails that could
//! have gone on.
//!
//! Model: `serac-models/tests/waits.rs`.

use serac_sync::Mutex;
use serac_sync::atomic::{AtomicUsize, Ordering, fence};
use serac_sync::time::Instant;
use std::collections::{HashMap, VecDeque};
use std::task::Waker;

/// A transaction that waits for a `T`.
#[derive(Debug)]
struct Waiter<T> {
    holder: u64,
    on: T,
    since: Instant,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct State<T> {
    /// Transactions that wait, by their numbers.
    waiters: HashMap<u64, Waiter<T>>,
    /// By holder, those who wait for it, first come first.
    queues: HashMap<u64, VecDeque<u64>>,
}

impl<T: Copy + Eq> State<T> {
    /// Wakes the first who waits for each thing that `holder` has held (or for one of them), and
    /// lets the others wait behind it.
    fn hand_over(&mut self, holder: u64, only: Option<T>) -> Vec<Waiter<T>> {
        let Some(queue) = self.queues.remove(&holder) else { return Vec::new() };
        let mut heirs: Vec<(T, u64)> = Vec::new();
        let mut woken = Vec::new();
        for number in queue {
            let waiter = self.waiters.get_mut(&number).expect("who is in a queue waits");
            let heir = heirs.iter().find(|(on, _)| *on == waiter.on).map(|(_, heir)| *heir);
            let behind = match (heir, only) {
                (_, Some(only)) if only != waiter.on => holder,
                (Some(heir), _) => heir,
                (None, _) => {
                    heirs.push((waiter.on, number));
                    woken.extend(self.waiters.remove(&number));
                    continue;
                }
            };
            waiter.holder = behind;
            self.queues.entry(behind).or_default().push_back(number);
        }
        woken
    }
}

/// The outcome of an attempt to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queued {
    /// It waits.
    Waits,
    /// The thing is not held any more.
    Free,
    /// The holder waits for it, directly or through others.
    Deadlock,
}

/// All transactions that wait, each for a `T` that another one holds.
#[derive(Debug)]
pub(crate) struct WaitQueues<T> {
    /// Transactions that wait, and those that are about to.
    count: AtomicUsize,
    state: Mutex<State<T>>,
}

impl<T> Default for WaitQueues<T> {
    fn default() -> Self {
        let state = State { waiters: HashMap::new(), queues: HashMap::new() };
        Self { count: AtomicUsize::new(0), state: Mutex::new(state) }
    }
}

impl<T: Copy + Eq> WaitQueues<T> {
    /// A transaction has ended that may have held something: its versions carry its timestamp, and
    /// the clock is published.
    pub(crate) fn ended(&self, number: u64) {
        // SeqCst: pairs with the fence in `queue`, see the module. Relaxed: ordered by the fences.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) > 0 {
            self.hand_over(number, None);
        }
    }

    /// Hands what a transaction holds, or the one thing, to the first who waits for it.
    pub(crate) fn hand_over(&self, number: u64, only: Option<T>) {
        let woken = self.state.lock().hand_over(number, only);
        self.count.fetch_sub(woken.len(), Ordering::Relaxed);
        woken.into_iter().filter_map(|waiter| waiter.waker).for_each(Waker::wake);
    }

    /// Queues a transaction behind a holder, if that holds the thing still: `holds` says so, and
    /// must be false once the holder's versions carry its timestamp. With `again`, the transaction
    /// has waited for the thing before, and comes before others.
    pub(crate) fn queue(&self, number: u64, holder: u64, on: T, again: bool, holds: impl FnOnce() -> bool) -> Queued {
        let mut state = self.state.lock();
        // Counted first, see the module. Relaxed: ordered by the fence. SeqCst: pairs with the
        // fence in `ended`.
        self.count.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut at = holder;
        let closes_cycle = loop {
            if at == number {
                break true;
            }
            match state.waiters.get(&at) {
                Some(waiter) => at = waiter.holder,
                None => break false,
            }
        };
        let held = holds();
        if closes_cycle || !held {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return if held { Queued::Deadlock } else { Queued::Free };
        }
        let waiter = Waiter { holder, on, since: Instant::now(), waker: None };
        assert!(state.waiters.insert(number, waiter).is_none(), "a transaction waits for one other at a time");
        let queue = state.queues.entry(holder).or_default();
        if again {
            queue.push_front(number)
        } else {
            queue.push_back(number)
        }
        Queued::Waits
    }

    /// Whether it is the turn of a transaction that has queued; if not, `waker` will say when.
    pub(crate) fn is_turn(&self, number: u64, waker: &Waker) -> bool {
        match self.state.lock().waiters.get_mut(&number) {
            Some(waiter) => {
                waiter.waker = Some(waker.clone());
                false
            }
            None => true,
        }
    }

    /// Takes a waiter that will not wait any longer out of its queue, if it has not been woken.
    pub(crate) fn give_up(&self, number: u64) {
        let mut state = self.state.lock();
        let Some(waiter) = state.waiters.remove(&number) else { return };
        let queue = state.queues.get_mut(&waiter.holder).expect("who waits is in a queue");
        queue.retain(|other| *other != number);
        if queue.is_empty() {
            state.queues.remove(&waiter.holder);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Those who wait, each as `list` makes it: the waiter, the holder, what both want, since when.
    pub(crate) fn list<L>(&self, list: impl Fn(u64, u64, T, Instant) -> L) -> Vec<L> {
        let state = self.state.lock();
        state.waiters.iter().map(|(&waiter, of)| list(waiter, of.holder, of.on, of.since)).collect()
    }
}
