//! Transactions that wait. A [`Blocker`] is what a running transaction holds and another one wants,
//! mostly a row whose newest version is the holder's. A [`Turn`] is the future of the transaction
//! that waits for it. The order of turns, hand-over and deadlocks are described in
//! `wait_queues.rs`.

use crate::error::{Result, StorageError};
use crate::ids::{RowId, TableId};
use crate::version::transaction::{Snapshot, Transaction, TransactionManager};
use crate::version::wait_queues::{Queued, WaitQueues};
use serac_sync::time::Instant;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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

/// All who wait.
pub(crate) type Waits = WaitQueues<Target>;

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

impl Waits {
    /// All who wait, longest first.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let mut list = self.list(|waiter, holder, on, since| Waiting { waiter, holder, on, since });
        list.sort_by_key(|waiting| waiting.since);
        list
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
        if self.manager.waits().is_turn(self.number, context.waker()) { Poll::Ready(()) } else { Poll::Pending }
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
        match manager.waits().queue(number, blocker.holder, blocker.on, again, || (blocker.holds)()) {
            Queued::Waits => Ok(Some(Turn { manager, number })),
            Queued::Free => Ok(None),
            Queued::Deadlock => Err(StorageError::Deadlock),
        }
    }

    /// Hands a target that the transaction has waited for, and then not taken, to the next waiter.
    /// Called at the end of each statement that has waited.
    pub fn pass_on(&mut self) {
        if let Some(promised) = self.promised.take() {
            self.snapshot().manager().waits().hand_over(self.number(), Some(promised));
        }
    }
}
