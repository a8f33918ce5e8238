//! Advisory locks: `pg_advisory_lock` and its family (PostgreSQL 15, section 13.3.5). A lock is a
//! number, or two, that applications agree upon.
//!
//! A session may hold a lock several times, for itself and for its transaction. An exclusive lock
//! excludes the other sessions; a shared one excludes their exclusive ones. A transaction's locks
//! are released once it has ended, or has failed without a savepoint. After a commit, the lock's
//! next holder sees the transaction's changes. A savepoint that is rolled back to takes no lock
//! with it. A session that would wait for a session that waits for it gets an error (40P01). Waits
//! for rows and other objects are not part of this check.

use crate::error::SqlError;
use datafusion::error::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

/// A lock's key: one number of 64 bits, or two of 32 bits; the two kinds are distinct.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) number: i64,
    pub(crate) of_two: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// The number of times that a session has a lock.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    owner: u64,
    /// The number of the session's connection.
    pub(crate) process: i32,
    pub(crate) mode: Mode,
    of_transaction: bool,
    count: u32,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Key, Vec<Hold>>,
    /// The locks that sessions wait for.
    waiting: HashMap<u64, (Key, Mode)>,
}

impl State {
    /// The sessions that block another one's request for a lock.
    fn in_the_way(&self, owner: u64, key: Key, mode: Mode) -> impl Iterator<Item = u64> {
        let conflicts =
            move |hold: &&Hold| hold.owner != owner && (mode == Mode::Exclusive || hold.mode == Mode::Exclusive);
        self.held.get(&key).into_iter().flatten().filter(conflicts).map(|hold| hold.owner)
    }

    /// Whether a session that waits for a lock waits, through others, for itself.
    fn is_deadlock(&self, owner: u64, key: Key, mode: Mode) -> bool {
        let (mut seen, mut next) = (Vec::new(), self.in_the_way(owner, key, mode).collect::<Vec<_>>());
        while let Some(other) = next.pop() {
            if other == owner {
                return true;
            }
            if let Some(&(key, mode)) = self.waiting.get(&other).filter(|_| !seen.contains(&other)) {
                next.extend(self.in_the_way(other, key, mode));
            }
            seen.push(other);
        }
        false
    }

    fn take(&mut self, wanted: &Hold, key: Key) -> bool {
        if self.in_the_way(wanted.owner, key, wanted.mode).next().is_some() {
            return false;
        }
        let holds = self.held.entry(key).or_default();
        match holds.iter_mut().find(|hold| hold.is_like(wanted)) {
            Some(hold) => hold.count += 1,
            None => holds.push(wanted.clone()),
        }
        true
    }

    /// Releases a session's holds that `which` selects; returns whether there was one.
    fn release(&mut self, owner: u64, which: impl Fn(&Hold) -> bool) -> bool {
        let mut released = false;
        self.held.retain(|_, holds| {
            holds.retain(|hold| {
                let goes = hold.owner == owner && which(hold);
                released |= goes;
                !goes
            });
            !holds.is_empty()
        });
        released
    }
}

impl Hold {
    fn is_like(&self, other: &Self) -> bool {
        (self.owner, self.mode, self.of_transaction) == (other.owner, other.mode, other.of_transaction)
    }
}

/// The advisory locks of a database.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdvisoryLocks(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    /// Told of every release.
    released: Notify,
    sessions: AtomicU64,
}

impl AdvisoryLocks {
    /// All that are held.
    pub(crate) fn held(&self) -> Vec<(Key, Hold)> {
        let state = self.0.state.lock();
        state.held.iter().flat_map(|(key, holds)| holds.iter().map(|hold| (*key, hold.clone()))).collect()
    }
}

/// The locks of a session, which go with it.
#[derive(Debug)]
pub(crate) struct SessionLocks {
    locks: AdvisoryLocks,
    owner: u64,
    /// Whether the running transaction has locks.
    of_transaction: AtomicBool,
    /// Whether the session has ever had a lock for itself.
    of_session: AtomicBool,
}

/// The locks of a committing transaction, released when this is dropped.
pub(crate) struct CommittingLocks(Arc<SessionLocks>);

impl Drop for CommittingLocks {
    fn drop(&mut self) {
        self.0.release(|hold| hold.of_transaction);
    }
}

impl Drop for SessionLocks {
    fn drop(&mut self) {
        self.release(|_| true);
    }
}

/// Says of a session that it waits, until this goes.
struct Waits<'s>(&'s SessionLocks);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.locks.0.state.lock().waiting.remove(&self.0.owner);
    }
}

impl SessionLocks {
    pub(crate) fn new(locks: &AdvisoryLocks) -> Self {
        // Relaxed: only the numbers count, and each is given out once.
        let owner = locks.0.sessions.fetch_add(1, Ordering::Relaxed);
        Self { locks: locks.clone(), owner, of_transaction: false.into(), of_session: false.into() }
    }

    fn release(&self, which: impl Fn(&Hold) -> bool) {
        if self.locks.0.state.lock().release(self.owner, which) {
            self.locks.0.released.notify_waiters();
        }
    }

    /// Takes over the locks of the running transaction; returns whether it had any.
    fn takes_transaction(&self) -> bool {
        // Relaxed: only the session's own statements write it, in turn.
        let any = self.of_transaction.load(Ordering::Relaxed);
        if any {
            self.of_transaction.store(false, Ordering::Relaxed);
        }
        any
    }

    /// Releases the locks of the running transaction.
    pub(crate) fn end_transaction(&self) {
        if self.takes_transaction() {
            self.release(|hold| hold.of_transaction);
        }
    }

    /// Keeps the locks of the running transaction until the guard goes, though the transaction has
    /// ended for the session.
    pub(crate) fn until_committed(self: &Arc<Self>) -> Option<CommittingLocks> {
        self.takes_transaction().then(|| CommittingLocks(self.clone()))
    }

    /// Whether the session has a lock for itself.
    pub(crate) fn has_of_session(&self) -> bool {
        // Relaxed: as in `takes_transaction`.
        self.of_session.load(Ordering::Relaxed) && {
            let state = self.locks.0.state.lock();
            state.held.values().flatten().any(|hold| hold.owner == self.owner && !hold.of_transaction)
        }
    }

    /// Releases the session's own locks.
    pub(crate) fn release_session(&self) {
        self.release(|hold| !hold.of_transaction);
    }

    pub(crate) fn unlock(&self, key: Key, mode: Mode) -> bool {
        let mut state = self.locks.0.state.lock();
        let holds = state.held.get_mut(&key).into_iter().flatten();
        let mut own = holds.filter(|hold| hold.owner == self.owner && hold.mode == mode && !hold.of_transaction);
        let Some(hold) = own.next() else { return false };
        hold.count -= 1;
        if hold.count == 0 {
            state.release(self.owner, |hold| hold.count == 0);
            drop(state);
            self.locks.0.released.notify_waiters();
        }
        true
    }

    pub(crate) fn wanted(&self, mode: Mode, of_transaction: bool, process: i32) -> Hold {
        Hold { owner: self.owner, process, mode, of_transaction, count: 1 }
    }

    pub(crate) fn try_lock(&self, key: Key, wanted: &Hold) -> bool {
        let taken = self.locks.0.state.lock().take(wanted, key);
        if taken && wanted.of_transaction {
            // Relaxed: as in `takes_transaction`.
            self.of_transaction.store(true, Ordering::Relaxed);
        } else if taken {
            self.of_session.store(true, Ordering::Relaxed);
        }
        taken
    }

    pub(crate) async fn lock(&self, key: Key, wanted: &Hold) -> Result<(), SqlError> {
        if self.try_lock(key, wanted) {
            return Ok(());
        }
        let _waits = Waits(self);
        loop {
            // Before the look, so that no release is missed.
            let released = self.locks.0.released.notified();
            if self.try_lock(key, wanted) {
                return Ok(());
            }
            {
                let mut state = self.locks.0.state.lock();
                state.waiting.insert(self.owner, (key, wanted.mode));
                if state.is_deadlock(self.owner, key, wanted.mode) {
                    return Err(SqlError::new(sqlstate::DEADLOCK_DETECTED, "deadlock detected"));
                }
            }
            released.await;
        }
    }
}
