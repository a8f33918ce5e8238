//! Timestamps, snapshots and the life of a transaction (§3.1).
//!
//! **One counter.** `clock` is the newest published commit timestamp. A transaction starts at the
//! clock's value and sees a version iff `commit_ts <= start_ts`, or if the version is its own.
//! While it runs, its versions carry its number with the sign bit set, which no snapshot reaches.
//!
//! **Begin** reads the clock and enters the start timestamp into the table of active transactions
//! under one small latch; the collector computes its watermark under the same latch, so it can
//! never pass a transaction that is just beginning.
//!
//! **Commit**, in the critical section of the commit latch:
//! 1. ask whether the transaction is valid, where it wants to be asked (serializable ones); reserve
//!    log space, and keep the log latched; this may fail (disk full, broken log, closed database),
//!    and then the transaction aborts with nothing ever visible;
//! 2. take `commit_ts = clock + 1`; run the commit hooks (catalog, indexes);
//! 3. store it into the timestamp cell, which all undo records of the transaction point to: every
//!    version is stamped at once, whatever their number (the paper's loop over the records has the
//!    same effect);
//! 4. hand the redo buffer to the log manager, so that the log is in commit order;
//! 5. publish the clock. Only now can a snapshot start that sees the transaction, and it sees all
//!    of it.
//!
//! **Abort** puts the before-images back, newest first, and only then stamps the cell, with a
//! *fresh* timestamp taken like a commit's. A reader that copied an aborted value started before
//! that timestamp, finds the record invisible and applies its before-image; a reader that starts
//! later finds the values put back. (Flipping the sign bit, as the text has it, would leave the
//! start timestamp, which a reader that started after the aborting transaction would take for
//! visible.) The records stay on their chains until the collector takes them off: unlinking them
//! here would let a reader that had copied the dirty value find no record and believe it.
//!
//! **Durability.** A commit is acknowledged by [`CommitTicket::wait`], once its log is durable. A
//! read-only transaction waits only for the newest commit it actually read from a version chain:
//! the collector never unlinks what may not be acknowledged yet, so for rows without versions there
//! is nothing to wait for. A result that a transaction shows before it ends waits for
//! [`Snapshot::unacknowledged_reads`].
//!
//! **A waiter for a commit** ([`crate::version::waits`]) goes on once the clock is published, not
//! when the log is durable. Its own commit comes later in the log and is acknowledged later.
//!
//! The timestamps are taken and published by `clock.rs`, which has the model.

use crate::durability::redo::{RedoBuffer, RedoMark};
use crate::durability::wal::{Durability, LogManager};
use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, RowId, TableId, Timestamp};
use crate::table::data_table::DataTable;
use crate::version::blocker::{Target, Waits};
use crate::version::clock::Clock;
pub use crate::version::clock::Readers;
use crate::version::gc::{CoolingRound, GarbageCollector};
use crate::version::undo::{BeforeCell, OwnedContext, UndoKind, UndoMark, UndoPool, UndoRecord};
use serac_sync::atomic::{AtomicU64, Ordering};
use smallvec::SmallVec;
use std::sync::Arc;

/// Runs inside the commit critical section, with the commit timestamp, before the transaction is
/// visible.
pub type CommitHook = Box<dyn FnOnce(Timestamp) + Send + Sync>;
/// Runs at an abort, or when no snapshot can see the past that it cares for. While it runs, changes
/// that are rolled back stay on their version chains, as for a transaction.
pub type Action = Box<dyn FnOnce() + Send + Sync>;

/// What is told of a transaction's end: as a [`CommitHook`] with an [`Action`] for the abort, but
/// shared, and without memory of its own in the transaction.
pub trait FateObserver: Send + Sync {
    /// The transaction commits at `timestamp`, inside the commit critical section: before it is
    /// visible.
    fn committed(&self, timestamp: Timestamp);
    /// The transaction, or its part since a savepoint, was rolled back.
    fn aborted(&self);
}

/// Hands out timestamps and knows who is running.
#[derive(Debug)]
pub struct TransactionManager {
    clock: Clock,
    log: Option<Arc<LogManager>>,
    gc: GarbageCollector,
    waits: Arc<Waits>,
}

impl TransactionManager {
    /// A manager whose history continues after `last`, which recovery found. It has a log unless
    /// the database has none.
    pub fn new(last: Timestamp, log: Option<Arc<LogManager>>) -> Arc<Self> {
        Arc::new(Self { clock: Clock::new(last), log, gc: GarbageCollector::default(), waits: Arc::default() })
    }

    /// Begins a transaction.
    pub fn begin(self: &Arc<Self>) -> Transaction {
        let (txn_no, start) = self.clock.begin();
        Transaction {
            snapshot: Snapshot(Arc::new(SnapshotInner {
                start,
                own: Timestamp::uncommitted(txn_no),
                until: u32::MAX,
                whole: None,
                newest_read: AtomicU64::new(0),
                manager: self.clone(),
            })),
            txn_no,
            stage: 0,
            undo: None,
            redo: RedoBuffer::new(self.log.is_some()),
            hooks: SmallVec::new(),
            append_head: None,
            promised: None,
            finished: false,
        }
    }

    /// The newest published timestamp.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the clock on by one and returns the new time: every snapshot that starts from now on
    /// is at least as new.
    pub fn tick(&self) -> Timestamp {
        self.clock.latch().publish(|ts| {
            if let Some(log) = &self.log {
                log.skip(ts);
            }
        })
    }

    /// The running transactions, with the newest acknowledged timestamp: readers must find the
    /// timestamps of commits that are newer.
    pub fn readers(&self) -> Readers {
        // Read first: everything up to it was published before, so the clock is not older.
        let acknowledged = self.acknowledged();
        self.readers_of_published().settled_until(acknowledged)
    }

    /// As [`readers`](Self::readers), for versions whose waits are known from themselves: up to the
    /// clock, no reader needs more than it sees.
    pub fn readers_of_published(&self) -> Readers {
        self.clock.readers()
    }

    /// Makes the collectors keep, until the guard goes, the versions that a snapshot of now would
    /// need: for a reader without a snapshot.
    pub(crate) fn hold(&self) -> Hold<'_> {
        // Changes whose rollback has a timestamp up to this start have been put back before.
        Hold { start: self.clock.enter(), manager: self }
    }

    /// The newest timestamp up to which commits may be acknowledged: a reader must wait for newer
    /// ones.
    pub fn acknowledged(&self) -> Timestamp {
        match &self.log {
            Some(log) if log.durability() == Durability::Full => log.durable_ts(),
            _ => self.now(),
        }
    }

    /// The log, if the database has one.
    pub fn log(&self) -> Option<&Arc<LogManager>> {
        self.log.as_ref()
    }

    /// The collector.
    pub fn gc(&self) -> &GarbageCollector {
        &self.gc
    }

    /// The waits between transactions.
    pub(crate) fn waits(&self) -> &Arc<Waits> {
        &self.waits
    }

    /// Undo segments.
    pub fn undo_pool(&self) -> &UndoPool {
        self.gc.undo_pool()
    }

    /// Transactions committed and aborted so far.
    pub fn counts(&self) -> (u64, u64) {
        let latch = self.clock.latch();
        (latch.ended.commits, latch.ended.aborts)
    }

    /// From now on no transaction with changes commits: once this returns, the committed state does
    /// not change any more.
    pub fn refuse_commits(&self) {
        self.clock.latch().ended.closed = true;
    }

    /// Takes [`refuse_commits`](Self::refuse_commits) back.
    pub fn accept_commits(&self) {
        self.clock.latch().ended.closed = false;
    }

    /// Running transactions and held snapshots.
    pub fn active_count(&self) -> usize {
        self.clock.active_count()
    }

    /// Freezes the blocks of `round`, which has just begun, once every transaction that is alive
    /// now has ended.
    pub(crate) fn freeze(&self, round: CoolingRound) {
        let ts = self.tick();
        self.gc.freeze(ts, round);
    }

    /// Runs `action` once every snapshot that is alive now has ended (§4.4).
    pub fn defer(&self, action: Action) {
        let ts = self.tick();
        self.gc.defer(ts, action);
    }
}

/// See [`TransactionManager::hold`].
#[must_use = "the present is held for as long as this lives"]
pub(crate) struct Hold<'m> {
    manager: &'m TransactionManager,
    start: Timestamp,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.manager.clock.leave(self.start);
    }
}

#[derive(Debug)]
struct SnapshotInner {
    start: Timestamp,
    own: Timestamp,
    /// The transaction's own writes in stages below this one are seen.
    until: u32,
    /// The transaction's own snapshot, if this one does not see all of its writes. It keeps the
    /// versions that both see.
    whole: Option<Snapshot>,
    newest_read: AtomicU64,
    manager: Arc<TransactionManager>,
}

impl Drop for SnapshotInner {
    fn drop(&mut self) {
        if self.whole.is_none() {
            self.manager.clock.leave(self.start);
        }
    }
}

/// A consistent view of the database. Cheap to clone; while any clone lives, the versions that it
/// sees are kept.
///
/// The snapshot of a transaction sees that transaction's own writes for as long as it runs. A
/// snapshot that is [taken in between](Transaction::snapshot_until_now) sees the earlier writes
/// alone.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<SnapshotInner>);

impl Snapshot {
    /// The start timestamp.
    #[inline]
    pub fn start(&self) -> Timestamp {
        self.0.start
    }

    /// The running transactions, the snapshot's own among them.
    pub fn readers(&self) -> Readers {
        self.0.manager.readers()
    }
    pub(crate) fn manager(&self) -> &Arc<TransactionManager> {
        &self.0.manager
    }

    /// Whether a version with this timestamp is seen.
    #[inline]
    pub fn sees(&self, timestamp: Timestamp) -> bool {
        timestamp.visible_at(self.0.start) || timestamp == self.0.own
    }

    /// Whether the version that a record has made, which has this timestamp, is seen.
    #[inline]
    pub(crate) fn sees_record(&self, record: &UndoRecord, timestamp: Timestamp) -> bool {
        timestamp.visible_at(self.0.start) || timestamp == self.0.own && record.stage() < self.0.until
    }

    /// Whether a version with this timestamp was made by the snapshot's own transaction.
    #[inline]
    pub fn owns(&self, timestamp: Timestamp) -> bool {
        timestamp == self.0.own
    }

    /// Notes that a version committed at `timestamp` was read from a chain: results that show it
    /// must wait until it is durable.
    #[inline]
    pub fn note_read(&self, timestamp: Timestamp) {
        if timestamp.is_committed() && timestamp.0 > self.0.newest_read.load(Ordering::Relaxed) {
            self.0.newest_read.fetch_max(timestamp.0, Ordering::Relaxed);
            if let Some(whole) = &self.0.whole {
                whole.note_read(timestamp);
            }
        }
    }

    /// The promise that all that the snapshot sees is durable, for results that leave the process
    /// before their transaction ends.
    pub fn ticket(&self) -> CommitTicket {
        CommitTicket { timestamp: self.0.start, log: self.0.manager.log.clone() }
    }

    /// The promise that all reads so far are durable, for results of a statement in a transaction
    /// that goes on; `None` if it is kept already. Cheaper than [`ticket`](Self::ticket): commits
    /// that were not read are not waited for.
    pub fn unacknowledged_reads(&self) -> Option<CommitTicket> {
        let newest_read = Timestamp(self.0.newest_read.load(Ordering::Relaxed));
        (newest_read > self.0.manager.acknowledged())
            .then(|| CommitTicket { timestamp: newest_read, log: self.0.manager.log.clone() })
    }
}

enum Hook {
    /// `None` once it has run.
    Commit(Option<CommitHook>),
    Observed(Arc<dyn FateObserver>),
    Abort(Action),
    Obsolete(Action),
}

impl Hook {
    fn run_at_abort(self) {
        match self {
            Self::Abort(action) => action(),
            Self::Observed(observer) => observer.aborted(),
            Self::Commit(_) | Self::Obsolete(_) => {}
        }
    }
}

/// A place in a transaction to which it can be rolled back.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    undo: UndoMark,
    redo: RedoMark,
    hooks: usize,
}

/// A running transaction. Dropping it aborts it.
pub struct Transaction {
    snapshot: Snapshot,
    txn_no: u64,
    /// Counts the snapshots that see the earlier writes alone.
    stage: u32,
    undo: Option<OwnedContext>,
    redo: RedoBuffer,
    hooks: SmallVec<[Hook; 2]>,
    /// The block that this transaction's bulk append is filling.
    append_head: Option<(TableId, BlockNo)>,
    /// The target that the transaction has waited for last, until it has taken it or passed it on.
    pub(crate) promised: Option<Target>,
    finished: bool,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("txn_no", &self.txn_no).field("start", &self.snapshot.start()).finish()
    }
}

impl Transaction {
    /// Its number.
    pub fn number(&self) -> u64 {
        self.txn_no
    }

    /// The transaction's snapshot.
    #[inline]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Gives the transaction a snapshot of the present, in which it also sees its own writes. To be
    /// called between its statements: row ids that it found before may name other rows by then,
    /// except those of rows that it has written. Snapshots that were handed out stay as they are.
    pub fn refresh_snapshot(&mut self) {
        let start = self.snapshot.0.manager.clock.enter();
        self.start_at(start);
    }

    /// Gives the transaction, which has written nothing, a snapshot that starts where another one
    /// does. It does not see what the other one's transaction has written.
    ///
    /// # Panics
    /// If it has written, or if the snapshot is of another database.
    pub fn adopt_snapshot(&mut self, other: &Snapshot) {
        assert!(!self.has_writes(), "a transaction adopts a snapshot before it writes");
        assert!(Arc::ptr_eq(&other.0.manager, &self.snapshot.0.manager), "snapshots are of one database");
        // `other` is held meanwhile, so that its versions are there.
        self.snapshot.0.manager.clock.join(other.start());
        self.start_at(other.start());
    }

    /// A snapshot that starts at `start`, which has been entered for it.
    fn start_at(&mut self, start: Timestamp) {
        let old = &self.snapshot.0;
        let manager = old.manager.clone();
        let newest_read = AtomicU64::new(old.newest_read.load(Ordering::Relaxed));
        let (until, whole) = (u32::MAX, None);
        let inner = SnapshotInner { start, own: old.own, until, whole, newest_read, manager };
        self.snapshot = Snapshot(Arc::new(inner));
    }

    /// A snapshot of the transaction's present view, without its writes from now on.
    ///
    /// # Errors
    /// [`StorageError::Limit`] after four billion of them.
    pub fn snapshot_until_now(&mut self) -> Result<Snapshot> {
        // The snapshot of a transaction sees all stages below the greatest number.
        let next = self.stage.checked_add(1).filter(|next| *next < u32::MAX);
        self.stage = next.ok_or_else(|| {
            StorageError::Limit("a transaction can have at most 4294967294 snapshots of its own writes".into())
        })?;
        // A block has one record for all that is appended to it.
        self.forget_append_head();
        let now = &self.snapshot.0;
        let inner = SnapshotInner {
            start: now.start,
            own: now.own,
            until: self.stage,
            whole: Some(self.snapshot.clone()),
            newest_read: AtomicU64::new(now.newest_read.load(Ordering::Relaxed)),
            manager: now.manager.clone(),
        };
        Ok(Snapshot(Arc::new(inner)))
    }

    #[inline]
    pub(crate) fn undo(&mut self) -> &mut OwnedContext {
        self.pool_and_undo().1
    }

    #[inline]
    fn pool_and_undo(&mut self) -> (&UndoPool, &mut OwnedContext) {
        let (pool, txn_no) = (self.snapshot.0.manager.undo_pool(), self.txn_no);
        (pool, self.undo.get_or_insert_with(|| OwnedContext::new(pool, txn_no)))
    }

    /// Makes an undo record, see [`OwnedContext::push`].
    #[inline]
    pub(crate) fn push_undo(
        &mut self,
        table: &Arc<DataTable>,
        row: RowId,
        kind: UndoKind,
        next: *mut UndoRecord,
        before: impl ExactSizeIterator<Item = BeforeCell>,
    ) -> *mut UndoRecord {
        let stage = self.stage;
        let (pool, undo) = self.pool_and_undo();
        undo.push(pool, table, row, (kind, stage), next, before)
    }

    #[inline]
    pub(crate) fn redo(&mut self) -> &mut RedoBuffer {
        &mut self.redo
    }

    /// Hands long redo buffers to the log before the commit (§3.4).
    pub(crate) fn spill_redo(&mut self) -> Result<()> {
        match &self.snapshot.0.manager.log {
            Some(log) if self.redo.pending_bytes() > log.spill_bytes() => log.append_parts(self.txn_no, &mut self.redo),
            _ => Ok(()),
        }
    }

    /// Whether the transaction has changes.
    pub fn has_writes(&self) -> bool {
        self.undo.as_ref().is_some_and(|u| !u.is_empty()) || !self.redo.is_empty() || !self.hooks.is_empty()
    }

    /// Logs a record that the storage does not understand (the catalog's).
    pub fn log_meta(&mut self, payload: &[u8]) {
        self.redo.meta(payload);
    }

    /// See [`CommitHook`].
    pub fn on_commit(&mut self, hook: CommitHook) {
        self.hooks.push(Hook::Commit(Some(hook)));
    }

    /// See [`FateObserver`].
    pub fn observe(&mut self, observer: Arc<dyn FateObserver>) {
        self.hooks.push(Hook::Observed(observer));
    }

    /// `action` runs when the transaction, or the part of it after a savepoint, is rolled back;
    /// newest first.
    pub fn on_abort(&mut self, action: Action) {
        self.hooks.push(Hook::Abort(action));
    }

    /// `action` runs after the commit, once no snapshot sees the state before it.
    pub fn on_obsolete(&mut self, action: Action) {
        self.hooks.push(Hook::Obsolete(action));
    }

    pub(crate) fn append_head(&self, table: &DataTable) -> Option<BlockNo> {
        self.append_head.filter(|(id, _)| *id == table.id()).map(|(_, no)| no)
    }
    pub(crate) fn set_append_head(&mut self, table: &DataTable, no: BlockNo) {
        self.append_head = Some((table.id(), no));
    }
    pub(crate) fn forget_append_head(&mut self) {
        self.append_head = None;
    }

    /// Marks the present state.
    pub fn savepoint(&mut self) -> Savepoint {
        // Blocks are undone whole, so later appends go to a block of their own.
        self.forget_append_head();
        Savepoint {
            undo: self.undo.as_ref().map_or(UndoMark::default(), OwnedContext::mark),
            redo: self.redo.mark(),
            hooks: self.hooks.len(),
        }
    }

    /// Undoes everything since `savepoint`, which stays valid. Takes time in proportion to the work
    /// since then, not to the transaction's earlier work.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) {
        self.forget_append_head();
        self.undo_since(savepoint.undo);
        self.redo.truncate(savepoint.redo);
        self.hooks.drain(savepoint.hooks..).rev().for_each(Hook::run_at_abort);
    }

    fn undo_since(&mut self, mark: UndoMark) {
        if let Some(undo) = &mut self.undo {
            undo.undo_since(mark, |record| record.table().restore(record));
        }
    }

    /// Commits. The changes are visible to transactions that begin from now on; they are durable
    /// once the ticket says so.
    ///
    /// # Errors
    /// An error when the log cannot take the transaction; it is then rolled back.
    pub fn commit(self) -> Result<CommitTicket> {
        self.commit_if(|_| Ok(()), |_| {})
    }

    /// Commits if `is_valid` agrees. It runs inside the commit critical section: every committed
    /// transaction is wholly visible, and no other can commit until this one has. `at_commit` runs
    /// there, too, as a [`CommitHook`] does. Neither runs for a transaction without changes.
    ///
    /// # Errors
    /// The errors of `is_valid` and of [`commit`](Self::commit); the transaction is then rolled
    /// back.
    pub fn commit_if<E: From<StorageError>>(
        mut self,
        is_valid: impl FnOnce(&Snapshot) -> Result<(), E>,
        at_commit: impl FnOnce(Timestamp),
    ) -> Result<CommitTicket, E> {
        let log = self.snapshot.0.manager.log.clone();
        if !self.has_writes() {
            self.finished = true;
            self.end_waits(false);
            let newest_read = Timestamp(self.snapshot.0.newest_read.load(Ordering::Relaxed));
            return Ok(CommitTicket { timestamp: newest_read, log });
        }
        // The redo since the last change of a row may be long, too.
        if let Err(error) = self.spill_redo() {
            self.rollback();
            return Err(error.into());
        }
        let manager = &*self.snapshot.0.manager;
        let timestamp = {
            let mut latch = manager.clock.latch();
            let open = if latch.ended.closed { Err(StorageError::Closed.into()) } else { Ok(()) };
            let reserved = open
                .and_then(|()| is_valid(&self.snapshot))
                .and_then(|()| Ok(log.as_ref().map(|log| log.reserve(self.redo.pending_bytes())).transpose()?));
            let reservation = match reserved {
                Ok(reservation) => reservation,
                Err(error) => {
                    drop(latch);
                    self.rollback();
                    return Err(error);
                }
            };
            let timestamp = latch.publish(|timestamp| {
                at_commit(timestamp);
                // If one panics, the transaction is rolled back, so the others stay where they are.
                for hook in &mut self.hooks {
                    match hook {
                        Hook::Commit(hook) => hook.take().into_iter().for_each(|hook| hook(timestamp)),
                        Hook::Observed(observer) => observer.committed(timestamp),
                        Hook::Abort(_) | Hook::Obsolete(_) => {}
                    }
                }
                if let Some(undo) = &self.undo {
                    undo.stamp(timestamp);
                }
                if let Some(reservation) = reservation {
                    reservation.enqueue(self.txn_no, timestamp, self.redo.pending());
                }
            });
            latch.ended.commits += 1;
            timestamp
        };
        self.finished = true;
        self.end_waits(self.undo.is_some());
        if let Some(undo) = self.undo.take() {
            manager.gc.submit(undo);
        }
        // After the records, as the collector relies on.
        for hook in self.hooks.drain(..) {
            if let Hook::Obsolete(action) = hook {
                manager.gc.defer(timestamp, action);
            }
        }
        if manager.gc.is_overrun(manager) {
            manager.gc.lend_a_hand(manager);
        }
        Ok(CommitTicket { timestamp, log })
    }

    /// Rolls everything back.
    pub fn abort(mut self) {
        self.rollback();
    }

    fn rollback(&mut self) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        self.undo_since(UndoMark::default());
        if self.redo.has_parts()
            && let Some(log) = &self.snapshot.0.manager.log
        {
            log.forget_parts(self.txn_no);
        }
        let wrote = self.undo.is_some();
        if let Some(undo) = self.undo.take() {
            let manager = &*self.snapshot.0.manager;
            {
                let mut latch = manager.clock.latch();
                latch.publish(|timestamp| {
                    undo.stamp_aborted(timestamp);
                    if let Some(log) = &manager.log {
                        log.skip(timestamp);
                    }
                });
                latch.ended.aborts += 1;
            }
            manager.gc.submit(undo);
        }
        self.hooks.drain(..).rev().for_each(Hook::run_at_abort);
        self.end_waits(wrote);
    }

    /// The transaction has ended: its waiters go on. `wrote`: it may have held rows or keys.
    fn end_waits(&self, wrote: bool) {
        if wrote || self.promised.is_some() {
            self.snapshot.0.manager.waits.ended(self.txn_no);
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.rollback();
    }
}

/// The promise of a commit: redeemed when the log is durable.
#[derive(Clone, Debug)]
pub struct CommitTicket {
    timestamp: Timestamp,
    log: Option<Arc<LogManager>>,
}

impl CommitTicket {
    /// The commit timestamp (of a read-only transaction: the newest commit it read from a version
    /// chain).
    pub fn commit_ts(&self) -> Timestamp {
        self.timestamp
    }

    /// Whether [`wait`](Self::wait) would return at once. False when the log has failed.
    pub fn is_acknowledged(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.is_acknowledged(self.timestamp))
    }

    /// Waits until the commit is durable at the database's durability level.
    ///
    /// # Errors
    /// An error when the log has failed: the commit is not acknowledged.
    pub fn wait(self) -> Result<Timestamp> {
        match &self.log {
            Some(log) => log.wait_acknowledged(self.timestamp).map(|()| self.timestamp),
            None => Ok(self.timestamp),
        }
    }

    /// Calls `callback` when [`wait`](Self::wait) would return, on the log's thread or at once.
    /// Everybody waits for it: it must not commit, wait for the log, or drop the last handle of the
    /// database.
    pub fn on_durable(self, callback: Box<dyn FnOnce(Result<Timestamp>) + Send>) {
        let timestamp = self.timestamp;
        match self.log {
            Some(log) => log.on_acknowledged(timestamp, Box::new(move |r| callback(r.map(|()| timestamp)))),
            None => callback(Ok(timestamp)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ColumnSchema, ColumnType, TableSchema};
    use crate::{ColumnId, RowBuffer, Value};
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};

    #[test]
    fn a_version_counts_for_who_started_between_its_beginning_and_its_end_or_may_have_to_wait() {
        let readers = Readers::new(vec![5, 9], 12);
        let may_see = |made, replaced| readers.may_see(Timestamp(made), Timestamp(replaced));
        assert_eq!([may_see(3, 5), may_see(3, 6), may_see(5, 6)], [false, true, true]);
        assert_eq!([may_see(6, 9), may_see(6, 10), may_see(10, 12)], [false, true, false]);
        // Not acknowledged yet, but no reader has it between two changes of one transaction.
        assert_eq!([may_see(10, 13), may_see(13, 13)], [true, false]);
        assert!(readers.may_see(Timestamp(10), Timestamp::uncommitted(7)));
        assert!(readers.may_see(Timestamp::uncommitted(7), Timestamp::uncommitted(7)));
    }

    #[test]
    fn a_snapshot_until_now_sees_the_own_writes_before_it_alone() {
        let column = ColumnSchema { name: "a".into(), column_type: ColumnType::Int64, nullable: true };
        let table = DataTable::new(TableId(1), "t", TableSchema { columns: vec![column] }).unwrap();
        let manager = TransactionManager::new(Timestamp(0), None);
        let a = [ColumnId(0)];
        let append = |txn: &mut Transaction, value: i64| {
            let array: ArrayRef = Arc::new(Int64Array::from(vec![value]));
            let batch = RecordBatch::try_from_iter_with_nullable([("a", array, true)]).unwrap();
            RowId::from_u64(table.append(txn, &batch).unwrap()[0].start)
        };
        let mut txn = manager.begin();
        let [kept, changed, gone] = [1, 2, 3].map(|value| table.insert(&mut txn, &[Value::Int64(value)]).unwrap());
        txn.commit().unwrap();
        let mut txn = manager.begin();
        table.update(&mut txn, changed, &a, &[Value::Int64(20)]).unwrap();
        let [appended, inserted] = [append(&mut txn, 4), table.insert(&mut txn, &[Value::Int64(5)]).unwrap()];
        let before = txn.snapshot_until_now().unwrap();
        table.update(&mut txn, changed, &a, &[Value::Int64(200)]).unwrap();
        table.update(&mut txn, appended, &a, &[Value::Int64(40)]).unwrap();
        table.delete(&mut txn, gone).unwrap();
        table.delete(&mut txn, inserted).unwrap();
        let later = [append(&mut txn, 6), table.insert(&mut txn, &[Value::Int64(7)]).unwrap()];
        let between = txn.snapshot_until_now().unwrap();
        table.update(&mut txn, later[0], &a, &[Value::Int64(60)]).unwrap();
        table.delete(&mut txn, kept).unwrap();
        let seen = |snapshot: &Snapshot| {
            let mut read = RowBuffer::default();
            [kept, changed, gone, appended, inserted, later[0], later[1]].map(|row| {
                let is_there = table.read(snapshot, row, &a, &mut read).unwrap();
                is_there.then(|| read.value(0).integer().unwrap())
            })
        };
        assert_eq!(seen(&before), [Some(1), Some(20), Some(3), Some(4), Some(5), None, None]);
        assert_eq!(seen(&between), [Some(1), Some(200), None, Some(40), None, Some(6), Some(7)]);
        assert_eq!(seen(txn.snapshot()), [None, Some(200), None, Some(40), None, Some(60), Some(7)]);
        // It keeps its versions by the transaction's own snapshot.
        assert_eq!(manager.active_count(), 1);
        drop((before, between));
        txn.commit().unwrap();
        assert_eq!(manager.active_count(), 0);
    }
}
