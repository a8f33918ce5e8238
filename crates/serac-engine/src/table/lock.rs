//! Table locks: writers share, DDL excludes. Readers take no lock: they keep the table they found
//! and their snapshot.
//!
//! Transactions that add children of the table's rows ([`crate::constraint::foreign_key`]) hold a
//! shared lock of their own kind. Only DDL that replaces the table's rows excludes them, too.

use crate::error::{EngineError, Result};
use serac_sync::atomic::{AtomicU64, Ordering};
use serac_sync::time::{Duration, Instant};
use serac_sync::{Condvar, Mutex, MutexGuard};

/// The time that DDL waits for writers, and writers for DDL, before giving up, unless a transaction
/// says otherwise.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct Holders {
    /// Few at a time.
    writers: Vec<u64>,
    /// The transactions that add children of the table's rows.
    referencing: Vec<u64>,
    exclusive: Option<u64>,
    /// Whether the exclusive holder excludes transactions that add children, too.
    rewriting: bool,
    /// The number of transactions that wait to exclude others. A new writer waits behind them:
    /// otherwise writers that overlap would keep them waiting for ever.
    excluding: u32,
    /// The number of transactions that wait to exclude those that add children.
    starting_to_rewrite: u32,
}

fn leave(owners: &mut Vec<u64>, owner: u64) {
    if let Some(at) = owners.iter().position(|other| *other == owner) {
        owners.swap_remove(at);
    }
}

/// The lock of one table (or of one key of the catalog). Held by transactions, by number, to their
/// end.
///
/// It remembers when its holders committed, because a lock alone does not tell a transaction that
/// the table has become another since its snapshot.
#[derive(Debug, Default)]
pub struct TableLock {
    holders: Mutex<Holders>,
    released: Condvar,
    last_reference: AtomicU64,
    last_write: AtomicU64,
    last_change: AtomicU64,
}

/// The purpose for which a transaction holds a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Hold {
    /// It adds children of the table's rows. Shared.
    Reference,
    /// It writes rows. Shared.
    Write,
    /// It changes the definition. No other writes.
    Exclude,
}

impl TableLock {
    fn wait_for(
        &self,
        holders: &mut MutexGuard<'_, Holders>,
        timeout: Duration,
        what: impl Fn() -> String,
        free: impl Fn(&Holders) -> bool,
    ) -> Result<()> {
        if free(holders) {
            return Ok(());
        }
        let deadline = Instant::now() + timeout;
        while !free(holders) {
            if self.released.wait_until(holders, deadline).timed_out() && !free(holders) {
                return Err(EngineError::InUse(format!("{} is being used by a concurrent transaction", what())));
            }
        }
        Ok(())
    }

    /// For writing rows. True if the transaction did not hold it before.
    ///
    /// # Errors
    /// [`EngineError::InUse`] when another transaction excludes writers for longer than `timeout`.
    pub fn share(&self, owner: u64, timeout: Duration, what: impl Fn() -> String) -> Result<bool> {
        let mut holders = self.holders.lock();
        self.wait_for(&mut holders, timeout, what, |h| match h.exclusive {
            Some(holder) => holder == owner,
            None => h.excluding == 0 || h.writers.contains(&owner),
        })?;
        let is_new = !holders.writers.contains(&owner);
        if is_new {
            holders.writers.push(owner);
        }
        Ok(is_new)
    }

    /// Takes back a [`share`](Self::share) that said true. The transaction's other holds of the
    /// lock stay.
    pub(crate) fn unshare(&self, owner: u64) {
        let mut holders = self.holders.lock();
        leave(&mut holders.writers, owner);
        drop(holders);
        self.released.notify_all();
    }

    /// As [`share`](Self::share), but gives way to an exclusive holder or waiter. For an owner that
    /// does not hold the lock yet.
    pub(crate) fn try_share(&self, owner: u64) -> bool {
        let mut holders = self.holders.lock();
        let free = holders.exclusive.is_none() && holders.excluding == 0;
        if free {
            holders.writers.push(owner);
        }
        free
    }

    /// For changing the definition. True if the transaction did not hold it before.
    ///
    /// # Errors
    /// [`EngineError::InUse`] when others hold the lock for longer than `timeout`.
    pub fn exclude(&self, owner: u64, timeout: Duration, what: impl Fn() -> String) -> Result<bool> {
        let mut holders = self.holders.lock();
        holders.excluding += 1;
        let result = self.wait_for(&mut holders, timeout, what, |h| {
            h.exclusive.is_none_or(|e| e == owner) && h.writers.iter().all(|w| *w == owner)
        });
        holders.excluding -= 1;
        if result.is_err() {
            self.released.notify_all();
        }
        result.map(|()| holders.exclusive.replace(owner).is_none())
    }

    /// For adding children of the table's rows. True if the transaction did not hold it for that
    /// before.
    ///
    /// # Errors
    /// [`EngineError::InUse`] when another transaction puts other rows in the place of the table's
    /// for longer than `timeout`.
    pub(crate) fn refer(&self, owner: u64, timeout: Duration, what: impl Fn() -> String) -> Result<bool> {
        let mut holders = self.holders.lock();
        self.wait_for(&mut holders, timeout, what, |h| match h.exclusive {
            Some(holder) if h.rewriting => holder == owner,
            _ => h.starting_to_rewrite == 0 || h.referencing.contains(&owner) || h.exclusive == Some(owner),
        })?;
        let is_new = !holders.referencing.contains(&owner);
        if is_new {
            holders.referencing.push(owner);
        }
        Ok(is_new)
    }

    /// For replacing the table's rows. The caller holds the lock exclusively, and does so to the
    /// end.
    ///
    /// # Errors
    /// [`EngineError::InUse`] when others add children for longer than `timeout`.
    pub(crate) fn exclude_references(&self, owner: u64, timeout: Duration, what: impl Fn() -> String) -> Result<()> {
        let mut holders = self.holders.lock();
        holders.starting_to_rewrite += 1;
        let result = self.wait_for(&mut holders, timeout, what, |h| h.referencing.iter().all(|r| *r == owner));
        holders.starting_to_rewrite -= 1;
        match result {
            Ok(()) => holders.rewriting = true,
            Err(_) => _ = self.released.notify_all(),
        }
        result
    }

    /// Notes that a holder commits at `timestamp`, before it releases the lock.
    pub(crate) fn note_commit(&self, timestamp: u64, hold: Hold) {
        let last = match hold {
            Hold::Reference => &self.last_reference,
            Hold::Write => &self.last_write,
            Hold::Exclude => &self.last_change,
        };
        // AcqRel: pairs with the Acquire of a reader without the lock. Later holders are ordered by
        // the latch under which this one releases the lock.
        last.fetch_max(timestamp, Ordering::AcqRel);
    }

    /// The newest commit of a transaction that added children of the table's rows. For exclusive
    /// holders of the lock.
    pub(crate) fn last_reference(&self) -> u64 {
        self.last_reference.load(Ordering::Relaxed)
    }

    /// The newest commit of a transaction that wrote rows. For holders of the lock, and in the
    /// commit critical section, in which it is noted.
    pub(crate) fn last_write(&self) -> u64 {
        self.last_write.load(Ordering::Relaxed)
    }

    /// The newest commit of a transaction that held the lock exclusively.
    pub(crate) fn last_change(&self) -> u64 {
        // Acquire: pairs with `note_commit`.
        self.last_change.load(Ordering::Acquire)
    }

    /// Releases all holds of the transaction.
    pub fn release(&self, owner: u64) {
        let mut holders = self.holders.lock();
        leave(&mut holders.writers, owner);
        leave(&mut holders.referencing, owner);
        let excluded = holders.exclusive == Some(owner);
        if excluded {
            holders.exclusive = None;
            holders.rewriting = false;
        }
        // A sharing transaction waits for one that excludes it, or wants to; an excluding one waits
        // for the sharing ones.
        let somebody_waits = excluded || holders.excluding > 0 || holders.starting_to_rewrite > 0;
        drop(holders);
        if somebody_waits {
            self.released.notify_all();
        }
    }
}
