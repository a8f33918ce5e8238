//! The clock: start and commit timestamps, and the start timestamps of running transactions.
//!
//! The clock is the newest published commit timestamp. A transaction starts at the clock's value,
//! and enters the table of active transactions. A collector [reads](Clock::readers) that table
//! under the same latch, so no watermark passes a transaction that is beginning. A commit, and an
//! abort that has written, takes the next timestamp under the commit latch, stamps its versions
//! with it, and only then [publishes](CommitLatch::publish) it. So a snapshot that starts at a
//! timestamp finds every version stamped that carries it or an older one.
//!
//! Model: `serac-models/tests/protocols.rs`.

use crate::ids::Timestamp;
use serac_sync::atomic::{AtomicU64, Ordering};
use serac_sync::{Mutex, MutexGuard};
use std::collections::VecDeque;

/// Running transactions and held snapshots.
#[derive(Debug, Default)]
struct ActiveTransactions {
    /// The start timestamps, oldest first, with how many share each.
    starts: VecDeque<(u64, u32)>,
    /// Transactions begun so far.
    begun: u64,
}

impl ActiveTransactions {
    fn enter(&mut self, start: u64) {
        match self.starts.back_mut() {
            Some((last, count)) if *last == start => *count += 1,
            _ => self.starts.push_back((start, 1)),
        }
    }

    fn leave(&mut self, start: u64) {
        let at = self.starts.binary_search_by_key(&start, |entry| entry.0).expect("a running transaction is entered");
        self.starts[at].1 -= 1;
        if self.starts[at].1 == 0 {
            self.starts.remove(at);
        }
    }
}

/// Transactions ended so far.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) commits: u64,
    pub(crate) aborts: u64,
    /// The database is closed, or is about to be: nothing commits any more.
    pub(crate) closed: bool,
}

/// The newest published timestamp, the table of active transactions, and the commit latch.
#[derive(Debug)]
pub(crate) struct Clock {
    now: AtomicU64,
    active: Mutex<ActiveTransactions>,
    commit_latch: Mutex<Ended>,
}

/// The commit latch, held: nobody else commits or aborts.
#[derive(Debug)]
pub(crate) struct CommitLatch<'c> {
    now: &'c AtomicU64,
    pub(crate) ended: MutexGuard<'c, Ended>,
}

impl Clock {
    /// A clock whose history goes on after `last`.
    pub(crate) fn new(last: Timestamp) -> Self {
        Self { now: AtomicU64::new(last.0), active: Mutex::default(), commit_latch: Mutex::default() }
    }

    /// The newest published timestamp.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        // Acquire: pairs with the Release of `publish`; every commit up to it is wholly seen.
        Timestamp(self.now.load(Ordering::Acquire))
    }

    /// Begins a transaction: its number, and its start. It runs until it [leaves](Self::leave).
    pub(crate) fn begin(&self) -> (u64, Timestamp) {
        let mut active = self.active.lock();
        active.begun += 1;
        // Under the latch: see the module.
        let start = self.now();
        active.enter(start.0);
        (active.begun, start)
    }

    /// Enters a snapshot of now, until it [leaves](Self::leave).
    pub(crate) fn enter(&self) -> Timestamp {
        let mut active = self.active.lock();
        // Under the latch, as in `begin`.
        let start = self.now();
        active.enter(start.0);
        start
    }

    /// Enters another snapshot that starts at `start`, as one does that has not left yet.
    pub(crate) fn join(&self, start: Timestamp) {
        let mut active = self.active.lock();
        let at = active.starts.binary_search_by_key(&start.0, |entry| entry.0).expect("a held snapshot is entered");
        active.starts[at].1 += 1;
    }

    /// Ends one of the transactions and snapshots that started at `start`.
    pub(crate) fn leave(&self, start: Timestamp) {
        self.active.lock().leave(start.0);
    }

    /// The running transactions and held snapshots. No other reader needs a version that was
    /// replaced up to the clock.
    pub(crate) fn readers(&self) -> Readers {
        let active = self.active.lock();
        let starts = active.starts.iter().map(|entry| entry.0).collect();
        // Under the latch: a transaction that begins later does not start earlier.
        Readers { starts, settled: self.now().0 }
    }

    /// Counts the running transactions and held snapshots.
    pub(crate) fn active_count(&self) -> usize {
        self.active.lock().starts.iter().map(|entry| entry.1 as usize).sum()
    }

    /// Takes the commit latch.
    pub(crate) fn latch(&self) -> CommitLatch<'_> {
        CommitLatch { ended: self.commit_latch.lock(), now: &self.now }
    }
}

impl CommitLatch<'_> {
    /// Takes the next timestamp, calls `stamp` with it, and publishes it.
    #[inline]
    pub(crate) fn publish(&mut self, stamp: impl FnOnce(Timestamp)) -> Timestamp {
        // Relaxed: changed under the latch only.
        let next = Timestamp(self.now.load(Ordering::Relaxed) + 1);
        stamp(next);
        // Release: pairs with the Acquire of `now`.
        self.now.store(next.0, Ordering::Release);
        next
    }
}

/// The transactions that were running at a moment. They decide which versions of a row somebody may
/// still read.
#[derive(Clone, Debug)]
pub struct Readers {
    /// Start timestamps, ascending.
    starts: Vec<u64>,
    /// Commits up to here are published, and nobody has to wait for them.
    settled: u64,
}

impl Readers {
    pub(crate) fn new(starts: Vec<u64>, settled: u64) -> Self {
        Self { starts, settled }
    }

    /// The same readers, where readers of commits newer than `acknowledged` have to wait for them.
    pub(crate) fn settled_until(self, acknowledged: Timestamp) -> Self {
        Self { settled: self.settled.min(acknowledged.0), ..self }
    }

    /// The start timestamps, ascending.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// The oldest start; `None` if nobody was running.
    pub fn oldest(&self) -> Option<u64> {
        self.starts.first().copied()
    }

    /// The newest timestamp that was published and that nobody had to wait for.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// How many started before `timestamp`: equal for two records iff the same readers undo both.
    pub fn before(&self, timestamp: u64) -> usize {
        self.starts.partition_point(|&start| start < timestamp)
    }

    /// Whether somebody may read a version that was made at the one timestamp and replaced at the
    /// other. A transaction that has begun since sees a settled replacement. A replacement that is
    /// not settled keeps the version, because a reader of the replacement may have to wait for it.
    pub fn may_see(&self, made: Timestamp, replaced: Timestamp) -> bool {
        // A part of a running transaction that is rolled back brings back what it has replaced.
        !replaced.is_committed()
            || made < replaced && (replaced.0 > self.settled || self.before(made.0) < self.before(replaced.0))
    }
}
