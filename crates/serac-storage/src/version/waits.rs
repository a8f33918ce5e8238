//! Transactions that wait. A [`Turn`] is the future of a transaction that waits for a [`Blocker`].
//! The order of turns, hand-over and deadlocks are described in `wait_queues.rs`.

use crate::error::{Result, StorageError};
use crate::ids::{RowId, TableId};
use crate::version::blocker::{Blocker, Waits};
use crate::version::transaction::{Snapshot, Transaction};
use crate::version::wait_queues::Queued;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
        Arc::new(Self { waits: snapshot.manager().waits().clone(), holder, on, holds: Box::new(holds) })
    }
}

/// A transaction's turn: ready when the holder has ended and no other waiter is before it. Dropped
/// before that, it gives the place in the queue up.
#[derive(Debug)]
#[must_use = "waits happen in futures alone"]
pub struct Turn {
    waits: Arc<Waits>,
    number: u64,
}

impl Future for Turn {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.waits.is_turn(self.number, context.waker()) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.waits.give_up(self.number);
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
        let waits = self.snapshot().manager().waits().clone();
        if !Arc::ptr_eq(&waits, &blocker.waits) {
            return Ok(None);
        }
        let again = self.promised == Some(blocker.on);
        if !again {
            self.pass_on();
        }
        self.promised = Some(blocker.on);
        let number = self.number();
        match waits.queue(number, blocker.holder, blocker.on, again, || (blocker.holds)()) {
            Queued::Waits => Ok(Some(Turn { waits, number })),
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
