//! Waits between transactions: one wants a row or a key that a running one holds, mostly a row
//! whose newest version is the holder's.
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
//! So no waiter sleeps behind a transaction that has ended.
//!
//! **Hand-over.** Of the waiters for the same target, the first to come is woken when the holder
//! has committed in memory, or rolled back. The others wait behind it from then on, in their order,
//! as if it held the target already. So a row that everybody wants goes from one to the next, and
//! wakes one transaction each time. If the woken transaction does not take the target after all, it
//! [passes it on](Transaction::pass_on) when its statement ends. A transaction that has not waited
//! may take it meanwhile; then the woken one waits again, before all others.
//!
//! **Deadlocks.** A transaction waits for one other at a time, so the wait graph is a set of trees.
//! One walk along the chain from the holder says whether to wait for it would close a cycle. The
//! transaction that would close the cycle fails. A cycle may go through a transaction that has not
//! taken its target yet, and so fail a transaction that could have gone on.
//!
//! Model: `serac-models/tests/waits.rs`.

use crate::error::{Result, StorageError};
use crate::ids::{RowId, TableId};
use crate::version::transaction::{Snapshot, Transaction, TransactionManager};
use serac_sync::Mutex;
use serac_sync::atomic::{AtomicUsize, Ordering, fence};
use serac_sync::time::Instant;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The target of a wait: a row, or the end of the transactions that refer to it.
pub(crate) type Target = (TableId, RowId);

/// A transaction in the way of another, and the target of both.
pub struct Blocker {
    manager: Arc<TransactionManager>,
    /// Its number.
    holder: u64,
    on: Target,
    /// Whether it holds that still: false at the latest when it has ended.
    holds: Box<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocker").field("holder", &self.holder).field("on", &self.on).finish_non_exhaustive()
    }
}

impl PartialEq for Blocker {
    fn eq(&self, other: &Self) -> bool {
        (self.holder, self.on) == (other.holder, other.on)
    }
}
impl Eq for Blocker {}

impl Blocker {
    /// The running transaction numbered `holder` is in the way of the snapshot's, at a row. `holds`
    /// says whether it is still; it must be false once that transaction's versions carry its
    /// timestamp.
    pub fn new(
        snapshot: &Snapshot,
        holder: u64,
        on: (TableId, RowId),
        holds: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { manager: snapshot.manager().clone(), holder, on, holds: Box::new(holds) })
    }
}

#[derive(Debug)]
struct Waiter {
    holder: u64,
    on: Target,
    since: Instant,
    waker: Option<Waker>,
}

/// A transaction that waits, as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Its number.
    pub waiter: u64,
    /// The number of the transaction whose end it waits for: the holder's, or that of the waiter
    /// before it.
    pub holder: u64,
    /// The table, and the row, that both want.
    pub on: (TableId, RowId),
    /// Since when.
    pub since: Instant,
}

#[derive(Debug, Default)]
struct State {
    /// Transactions that wait, by their numbers.
    waiters: HashMap<u64, Waiter>,
    /// The waiters of each holder, first come first.
    queues: HashMap<u64, VecDeque<u64>>,
}

impl State {
    /// Wakes the first waiter for each target of `holder` (or for one of them), and lets the others
    /// wait behind it.
    fn hand_over(&mut self, holder: u64, only: Option<Target>) -> Vec<Waiter> {
        let Some(queue) = self.queues.remove(&holder) else { return Vec::new() };
        let mut heirs: Vec<(Target, u64)> = Vec::new();
        let mut woken = Vec::new();
        for number in queue {
            let waiter = self.waiters.get_mut(&number).expect("a queued transaction waits");
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

/// All waits.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// The number of waiters, including those that are about to wait.
    count: AtomicUsize,
    state: Mutex<State>,
}

impl Waits {
    /// A transaction that may have held targets has ended: its versions carry its timestamp, and
    /// the clock is published.
    pub(crate) fn ended(&self, number: u64) {
        // SeqCst: pairs with the fence in `wait`, see the module. Relaxed: ordered by the fences.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) > 0 {
            self.hand_over(number, None);
        }
    }

    /// All waiters, longest first.
    pub(crate) fn list(&self) -> Vec<Waiting> {
        let state = self.state.lock();
        let waiting =
            |(&waiter, of): (&u64, &Waiter)| Waiting { waiter, holder: of.holder, on: of.on, since: of.since };
        let mut list: Vec<Waiting> = state.waiters.iter().map(waiting).collect();
        list.sort_by_key(|waiting| waiting.since);
        list
    }

    fn hand_over(&self, number: u64, only: Option<Target>) {
        let woken = self.state.lock().hand_over(number, only);
        self.count.fetch_sub(woken.len(), Ordering::Relaxed);
        woken.into_iter().filter_map(|waiter| waiter.waker).for_each(Waker::wake);
    }

    /// Queues a transaction behind a holder; false if the holder has released the target. A
    /// transaction that has waited for it before comes before others.
    fn queue(&self, number: u64, blocker: &Blocker, again: bool) -> Result<bool> {
        let mut state = self.state.lock();
        // Counted first, see the module. Relaxed: ordered by the fence.
        self.count.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut at = blocker.holder;
        let closes_cycle = loop {
            if at == number {
                break true;
            }
            match state.waiters.get(&at) {
                Some(waiter) => at = waiter.holder,
                None => break false,
            }
        };
        let held = (blocker.holds)();
        if closes_cycle || !held {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return if held { Err(StorageError::Deadlock) } else { Ok(false) };
        }
        let waiter = Waiter { holder: blocker.holder, on: blocker.on, since: Instant::now(), waker: None };
        assert!(state.waiters.insert(number, waiter).is_none(), "a transaction waits for one other at a time");
        let queue = state.queues.entry(blocker.holder).or_default();
        if again {
            queue.push_front(number)
        } else {
            queue.push_back(number)
        }
        Ok(true)
    }

    /// Takes a waiter that will not wait any longer out of its queue, if it has not been woken.
    fn give_up(&self, number: u64) {
        let mut state = self.state.lock();
        let Some(waiter) = state.waiters.remove(&number) else { return };
        let queue = state.queues.get_mut(&waiter.holder).expect("a waiting transaction is queued");
        queue.retain(|other| *other != number);
        if queue.is_empty() {
            state.queues.remove(&waiter.holder);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A transaction's turn: ready when the holder has ended and no other waiter is before it. Dropped
/// before that, it gives the place in the queue up.
#[derive(Debug)]
#[must_use = "waits happen in futures alone"]
pub struct Turn {
    manager: Arc<TransactionManager>,
    number: u64,
}

impl Future for Turn {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.manager.waits().state.lock().waiters.get_mut(&self.number) {
            Some(waiter) => {
                waiter.waker = Some(context.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.manager.waits().give_up(self.number);
    }
}

impl Transaction {
    /// Begins to wait for a target of another transaction; `None` if that is not necessary any
    /// more. The statement that has met the conflict must have been undone. It begins again at its
    /// turn, on a new snapshot if it is to see the holder's changes.
    ///
    /// # Errors
    /// [`StorageError::Deadlock`] when the holder waits for this transaction.
    pub fn wait_for(&mut self, blocker: &Blocker) -> Result<Option<Turn>> {
        let manager = self.snapshot().manager().clone();
        if !Arc::ptr_eq(&manager, &blocker.manager) {
            return Ok(None);
        }
        let again = self.promised == Some(blocker.on);
        if !again {
            self.pass_on();
        }
        self.promised = Some(blocker.on);
        let number = self.number();
        let waits = manager.waits().queue(number, blocker, again)?;
        Ok(waits.then_some(Turn { manager, number }))
    }

    /// Hands a target that the transaction has waited for, and then not taken, to the next waiter.
    /// Called at the end of each statement that has waited.
    pub fn pass_on(&mut self) {
        if let Some(promised) = self.promised.take() {
            self.snapshot().manager().waits().hand_over(self.number(), Some(promised));
        }
    }
}
