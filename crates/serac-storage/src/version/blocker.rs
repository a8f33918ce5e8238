//! Blockers: what a running transaction holds and another one wants, mostly a row whose newest
//! version is the holder's.

use crate::ids::{RowId, TableId};
use crate::version::wait_queues::WaitQueues;
use serac_sync::time::Instant;
use std::fmt;
use std::sync::Arc;

/// The target of a wait: a row, or the end of the transactions that refer to it.
pub(crate) type Target = (TableId, RowId);

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

/// A transaction in the way of another, and the target of both.
pub struct Blocker {
    /// Where it is waited for.
    pub(super) waits: Arc<Waits>,
    /// Its number.
    pub(super) holder: u64,
    pub(super) on: Target,
    /// Whether it holds that still: false at the latest when it has ended.
    pub(super) holds: Box<dyn Fn() -> bool + Send + Sync>,
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
