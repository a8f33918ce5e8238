//! `Database`: one open database, in a folder or in memory.
//!
//! **A clean end** ([`Database::close`], or the drop of the last clone) writes a checkpoint of the
//! commits since the last one, so that the next opening replays nothing. Its cost is bounded. If a
//! checkpoint would write many blocks because of a little log, that log is left to the next
//! opening, which reads it faster. A checkpoint that fails then is no harm: the log has everything.
//! Without a log (durability off) the checkpoint is the only durable copy of commits. Commits are
//! refused before it is taken, and accepted again if it fails.

use crate::catalog::catalog_changes::CatalogLocks;
use crate::catalog::definition::SequenceDefinition;
use crate::catalog::procedure::Procedures;
use crate::catalog::sequence::Mark;
use crate::catalog::{Catalog, CatalogState, MetaRecord};
use crate::error::{EngineError, Result};
use crate::salvage::violations;
use crate::security::{RoleId, Security};
use crate::table::bitmap::BitmapIndex;
use crate::transaction::Transaction;
use crate::transaction::row_follower::IndexFollower;
use serac_index::cubit::Merger;
use serac_storage::durability::checkpoint::CheckpointReport;
use serac_storage::durability::storage::StorageMetrics;
use serac_storage::version::transaction::TransactionManager;
use serac_storage::{
    Durability, RecoveryCatalog, RecoveryReport, Snapshot, Storage, StorageError, StorageOptions, TableId, Timestamp,
};
use serac_sync::Mutex;
use serac_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// At this many versions of the catalog, those that no snapshot needs are dropped.
const CATALOG_VERSIONS: usize = 64;
/// A clean end writes at most so many bytes of blocks,
const CLEAN_END_BYTES: u64 = 16 << 20;
/// or so many times the log that it makes unnecessary.
const CLEAN_END_FACTOR: u64 = 16;

/// Versions of the catalog with the timestamps from which they count, ascending.
pub(crate) type CatalogVersions = Vec<(u64, Arc<Catalog>)>;

#[derive(Debug)]
pub(crate) struct DatabaseInner {
    pub(crate) storage: Arc<Storage>,
    /// Versions with the timestamps from which they count, ascending.
    pub(crate) catalogs: Arc<Mutex<CatalogVersions>>,
    pub(crate) catalog_locks: CatalogLocks,
    /// Held from reading the newest catalog to publishing the next one. Taken before the commit
    /// latch.
    pub(crate) catalog_commits: Mutex<()>,
    pub(crate) next_id: AtomicU32,
    pub(crate) next_owner: AtomicU64,
    recovery: RecoveryReport,
    merger: Merger,
    pub(crate) procedures: Procedures,
    /// The number of connections of each role.
    pub(crate) logins: Mutex<HashMap<RoleId, u32>>,
    /// Changes with every commit that changes roles, owners or grants.
    security_version: AtomicU64,
    /// Whether a checkpoint that was begun by itself is running.
    checkpointing: AtomicBool,
    /// Held by the thread that closes the database.
    closing: Mutex<()>,
    /// Bytes of log below which no checkpoint is begun by itself: the size when one failed, plus a
    /// margin.
    no_checkpoint_before: AtomicU64,
}

/// An open database. Cheap to clone; the last clone to go closes it.
#[derive(Clone, Debug)]
pub struct Database(pub(crate) Arc<DatabaseInner>);

#[derive(Default)]
struct Recovering {
    catalog: Catalog,
    next_id: u32,
    /// Data that was made for a version of the catalog that is still to come.
    made: Vec<TableId>,
}

fn into_storage(error: crate::error::EngineError) -> StorageError {
    match error {
        crate::error::EngineError::Storage(error) => error,
        other => StorageError::InvalidInput(other.to_string()),
    }
}

impl Recovering {
    fn follow(&mut self, storage: &Storage, state: &CatalogState) -> Result<(), StorageError> {
        self.next_id = self.next_id.max(state.next_id);
        self.catalog = self.catalog.follow(state, storage).map_err(into_storage)?;
        self.drop_unused(storage);
        Ok(())
    }

    /// Drops data that was made for tables which their transaction has dropped again.
    fn drop_unused(&mut self, storage: &Storage) {
        let used: BTreeSet<TableId> = self.catalog.tables().map(|table| table.definition.id).collect();
        self.made.drain(..).filter(|id| !used.contains(id)).for_each(|id| storage.drop_table(id));
    }
}

impl RecoveryCatalog for Recovering {
    fn restore(&mut self, storage: &Storage, state: &str) -> Result<(), StorageError> {
        let state = serde_json::from_str(state)
            .map_err(|e| StorageError::InvalidInput(format!("the checkpoint's catalog cannot be read: {e}")))?;
        self.follow(storage, &state)
    }

    fn apply_meta(&mut self, storage: &Storage, payload: &[u8]) -> Result<(), StorageError> {
        match MetaRecord::from_bytes(payload).map_err(into_storage)? {
            MetaRecord::Catalog(state) => self.follow(storage, &state),
            MetaRecord::NewData(definition) => {
                storage.create_table(definition.id, &definition.name, definition.storage_schema())?;
                self.made.push(definition.id);
                Ok(())
            }
            MetaRecord::Sequence { id, reserved } => {
                if let Some(sequence) = self.catalog.sequences().find(|s| s.definition.id == id) {
                    sequence.recover_reservation(reserved);
                }
                Ok(())
            }
        }
    }
}

impl Database {
    /// An empty database in memory.
    ///
    /// # Errors
    /// No error is expected.
    pub fn in_memory() -> Result<Self> {
        Self::open_with(StorageOptions::default())
    }

    /// Opens or makes the database in the folder `path`, with full durability.
    ///
    /// # Errors
    /// When it is open in another process, or damaged, or its files cannot be used.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(StorageOptions { path: Some(path.as_ref().to_owned()), ..Default::default() })
    }

    /// Opens or makes a database.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(options: StorageOptions) -> Result<Self> {
        let mut recovering = Recovering { catalog: Catalog::initial(), next_id: 1, made: Vec::new() };
        let (storage, mut recovery) = Storage::open(options, &mut recovering)?;
        recovering.drop_unused(&storage);
        recovering.catalog.use_clock(storage.manager());
        rebuild_indexes(&recovering.catalog, &storage)?;
        if !recovery.lost.is_empty() {
            recovery.lost.extend(violations(&recovering.catalog, storage.begin().snapshot())?);
        }
        let now = storage.manager().now().0;
        let inner = Arc::new(DatabaseInner {
            storage,
            catalogs: Arc::new(Mutex::new(vec![(now, Arc::new(recovering.catalog))])),
            catalog_locks: CatalogLocks::default(),
            catalog_commits: Mutex::default(),
            next_id: AtomicU32::new(recovering.next_id),
            next_owner: AtomicU64::new(1),
            recovery,
            merger: Merger::default(),
            procedures: Procedures::default(),
            logins: Mutex::default(),
            security_version: AtomicU64::new(0),
            checkpointing: AtomicBool::new(false),
            closing: Mutex::default(),
            no_checkpoint_before: AtomicU64::new(0),
        });
        let catalog = inner.newest_catalog();
        catalog.tables().for_each(|table| table.set_current(true));
        inner.merger.watch(bitmaps(&catalog).map(|bitmap| &bitmap.entries));
        // From now on rows may move.
        inner.storage.set_follower(Arc::new(IndexFollower::new(&inner)));
        if !inner.recovery.lost.is_empty() || inner.recovery.kept_aside.is_some() {
            // The salvaged data becomes a whole database at once, so that the next opening is like
            // any other.
            inner.checkpoint()?;
        }
        Ok(Self(inner))
    }

    /// Begins a transaction: its snapshot, and the catalog as of that snapshot.
    pub fn begin(&self) -> Transaction {
        let txn = self.0.storage.begin();
        let catalog = self.0.catalog_of(txn.snapshot());
        // Relaxed: numbers need only differ.
        let owner = self.0.next_owner.fetch_add(1, Ordering::Relaxed);
        Transaction::new(self.0.clone(), txn, catalog, owner)
    }

    /// The next value of a sequence of `catalog`. Not undone by a rollback. A result that shows the
    /// value must wait for the ticket of the transaction to which `snapshot` belongs.
    ///
    /// # Errors
    /// [`crate::EngineError::Missing`], [`crate::EngineError::SequenceExhausted`],
    /// [`crate::EngineError::InUse`] while the sequence's direction is being changed, or an error
    /// of the log.
    pub fn next_value(&self, snapshot: &Snapshot, catalog: &Catalog, schema: &str, name: &str) -> Result<i64> {
        let sequence = catalog.sequence(schema, name)?;
        let (value, reserved_at) =
            sequence.next(|reserved| self.0.reserve(&sequence.definition, (schema, name), reserved))?;
        snapshot.note_read(reserved_at);
        Ok(value)
    }

    /// Makes a sequence go on after `value`, or with it if it has not been called. Not undone by a
    /// rollback. `snapshot` is as in [`next_value`](Self::next_value).
    ///
    /// # Errors
    /// [`crate::EngineError::Missing`], [`crate::EngineError::OutOfBounds`], or an error of the
    /// log.
    pub fn set_value(
        &self,
        snapshot: &Snapshot,
        catalog: &Catalog,
        schema: &str,
        name: &str,
        value: i64,
        is_called: bool,
    ) -> Result<()> {
        let sequence = catalog.sequence(schema, name)?;
        sequence.definition.check_value(value)?;
        let mark = if is_called { Mark::Last(value) } else { Mark::Next { next: value } };
        let logged_at =
            sequence.set(mark, |reserved| self.0.log_reservation(sequence.definition.id, reserved, || Ok(())))?;
        snapshot.note_read(logged_at);
        Ok(())
    }

    /// The storage below.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.0.storage
    }

    /// The current catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.newest_catalog()
    }

    /// A number that changes with every commit that changes roles, owners or grants: a privilege
    /// that was checked under another number must be checked again.
    pub fn security_version(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`, before which the new catalog is there.
        self.0.security_version.load(Ordering::Acquire)
    }

    /// The findings of opening.
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.0.recovery
    }

    /// Figures.
    pub fn metrics(&self) -> StorageMetrics {
        self.0.storage.metrics()
    }

    /// Writes a checkpoint beside running transactions and drops the log it makes unnecessary.
    ///
    /// # Errors
    /// An error when files cannot be written.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.0.checkpoint()
    }

    /// Makes a checkpoint if the log has grown long. Called after commits.
    pub(crate) fn checkpoint_if_due(inner: &Arc<DatabaseInner>) {
        let Some(log) = inner.storage.manager().log() else { return };
        let (bytes, limit) = (log.live_bytes(), inner.storage.options().checkpoint_log_bytes);
        // Relaxed: at worst a checkpoint is tried once more. Acquire: pairs with the Release at the
        // end of the last checkpoint.
        if bytes <= limit.max(inner.no_checkpoint_before.load(Ordering::Relaxed))
            || inner.checkpointing.swap(true, Ordering::Acquire)
        {
            return;
        }
        let running = CheckpointByItself(inner.clone());
        // If no thread can be started, the next commit tries again.
        let _ = serac_sync::thread::Builder::new().name("serac-checkpoint".into()).spawn(move || {
            let inner = &running.0;
            // A failed checkpoint leaves the old one and the log in place. On a full disk, a new
            // attempt with each commit would not help.
            let not_before = if inner.checkpoint().is_ok() { 0 } else { bytes + limit / 8 };
            inner.no_checkpoint_before.store(not_before, Ordering::Relaxed);
        });
    }

    /// Ends cleanly: writes a checkpoint if that is worth it, flushes the log and closes the files.
    /// Later calls do nothing.
    ///
    /// # Errors
    /// When the log cannot be flushed; with durability off, when the checkpoint cannot be written,
    /// and then the database stays open.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }
}

/// A checkpoint that was begun by itself, until it has ended, however that may be.
struct CheckpointByItself(Arc<DatabaseInner>);

impl Drop for CheckpointByItself {
    fn drop(&mut self) {
        // Release: pairs with the Acquire before the next checkpoint.
        self.0.checkpointing.store(false, Ordering::Release);
    }
}

impl Drop for DatabaseInner {
    fn drop(&mut self) {
        // A thread that panics may have left an inconsistent state; the log is consistent.
        if !std::thread::panicking() {
            let _ = self.close();
        }
    }
}

impl DatabaseInner {
    fn checkpoint(&self) -> Result<CheckpointReport> {
        Ok(self.storage.checkpoint(&|snapshot| {
            let catalog = self.catalog_at(snapshot.start());
            catalog.sequences().for_each(|sequence| sequence.give_back());
            let state = catalog.state(self.next_id.load(Ordering::SeqCst));
            let ids = catalog.tables().map(|t| t.definition.id).collect();
            (serde_json::to_string(&state).expect("a catalog is plain data"), ids)
        })?)
    }

    fn close(&self) -> Result<()> {
        let _one_at_a_time = self.closing.lock();
        if self.storage.is_closed() {
            return Ok(self.storage.close()?);
        }
        if self.storage.options().durability == Durability::Off {
            // A commit beside the checkpoint would not be in it, and so nowhere.
            self.storage.manager().refuse_commits();
            if let Err(error) = self.checkpoint() {
                self.storage.manager().accept_commits();
                return Err(error);
            }
        } else {
            let unwritten = self.storage.unwritten();
            let worth = CLEAN_END_BYTES.max(CLEAN_END_FACTOR * unwritten.log_bytes);
            if unwritten.log_bytes > 0 && unwritten.block_bytes <= worth {
                // If it fails, the log has everything.
                let _ = self.checkpoint();
            }
        }
        Ok(self.storage.close()?)
    }

    pub(crate) fn catalog_at(&self, start: Timestamp) -> Arc<Catalog> {
        self.version_at(start).1
    }

    /// The catalog in a snapshot, which counts as read. Its facts (a table exists, or has been
    /// emptied) must not be shown before they are durable.
    pub(crate) fn catalog_of(&self, snapshot: &Snapshot) -> Arc<Catalog> {
        let (timestamp, catalog) = self.version_at(snapshot.start());
        snapshot.note_read(Timestamp(timestamp));
        catalog
    }

    fn version_at(&self, start: Timestamp) -> (u64, Arc<Catalog>) {
        let catalogs = self.catalogs.lock();
        let at = catalogs.partition_point(|(ts, _)| *ts <= start.0);
        catalogs[at.max(1) - 1].clone()
    }

    /// The newest version of the catalog.
    pub(crate) fn newest_catalog(&self) -> Arc<Catalog> {
        self.catalog_at(Timestamp(u64::MAX))
    }

    pub(crate) fn publish(&self, timestamp: Timestamp, catalog: Arc<Catalog>) {
        catalog.tables().for_each(|table| table.data.set_freeze_format(table.definition.freeze_format));
        self.merger.watch(bitmaps(&catalog).map(|bitmap| &bitmap.entries));
        let mut catalogs = self.catalogs.lock();
        catalogs.last().into_iter().flat_map(|(_, last)| last.tables()).for_each(|old| old.set_current(false));
        catalog.tables().for_each(|table| table.set_current(true));
        let same_security = catalogs.last().is_some_and(|(_, last)| Arc::ptr_eq(&last.security, &catalog.security));
        if catalogs.len() >= CATALOG_VERSIONS {
            forget_unseen(&mut catalogs, self.storage.manager());
        }
        catalogs.push((timestamp.0, catalog));
        if !same_security {
            // Release: pairs with `Database::security_version`.
            self.security_version.fetch_add(1, Ordering::Release);
        }
    }

    /// The present roles, owners and grants.
    pub(crate) fn security(&self) -> Arc<Security> {
        self.newest_catalog().security.clone()
    }

    /// Reserves values for a definition of a sequence, unless the committed one goes the other way.
    /// Returns the commit's timestamp; zero without a log.
    fn reserve(
        &self,
        definition: &SequenceDefinition,
        (schema, name): (&str, &str),
        reserved: Mark,
    ) -> Result<Timestamp> {
        self.log_reservation(definition.id, reserved, || {
            let newest = self.newest_catalog();
            let committed = newest.sequence(schema, name).ok().map(|sequence| &sequence.definition);
            match committed.filter(|committed| committed.id == definition.id) {
                Some(committed) if committed.increment.signum() != definition.increment.signum() => {
                    Err(EngineError::InUse(format!("the direction of sequence \"{name}\" is being changed")))
                }
                _ => Ok(()),
            }
        })
    }

    /// Logs that values of a sequence are reserved, if `is_valid` agrees. It runs in the commit's
    /// critical section, so that no other commit comes between. Returns the commit's timestamp;
    /// zero without a log.
    fn log_reservation(&self, id: u32, reserved: Mark, is_valid: impl FnOnce() -> Result<()>) -> Result<Timestamp> {
        if self.storage.manager().log().is_none() {
            return is_valid().map(|()| Timestamp::ZERO);
        }
        let mut txn = self.storage.begin();
        txn.log_meta(&MetaRecord::Sequence { id, reserved }.to_bytes());
        Ok(txn.commit_if(|_| is_valid(), |_| {})?.commit_ts())
    }
}

/// Takes out the versions that no present or future snapshot may look for. While the latch of the
/// versions is held, at most the last one is newer than the clock.
fn forget_unseen(catalogs: &mut CatalogVersions, manager: &TransactionManager) -> CatalogVersions {
    let readers = manager.readers_of_published();
    let replaced: Vec<u64> = catalogs.iter().skip(1).map(|(made, _)| *made).collect();
    let mut replaced = replaced.into_iter().map(Timestamp);
    let mut is_unseen = |made: u64| replaced.next().is_some_and(|replaced| !readers.may_see(Timestamp(made), replaced));
    catalogs.extract_if(.., |(made, _)| is_unseen(*made)).collect()
}

/// The action of a DDL commit once no snapshot is older: the versions before it are dropped, and
/// with them the memory that only they hold.
pub(crate) fn forget_versions_later(db: &DatabaseInner) -> impl FnOnce() + Send + 'static {
    let (catalogs, manager) = (Arc::downgrade(&db.catalogs), Arc::downgrade(db.storage.manager()));
    move || {
        if let (Some(catalogs), Some(manager)) = (catalogs.upgrade(), manager.upgrade()) {
            let unseen = forget_unseen(&mut catalogs.lock(), &manager);
            // Dropped without the latch.
            drop(unseen);
        }
    }
}

fn bitmaps(catalog: &Catalog) -> impl Iterator<Item = &Arc<BitmapIndex>> {
    catalog.tables().flat_map(|table| &table.bitmaps)
}

/// Indexes are not logged: they are filled from the recovered rows, in parallel.
fn rebuild_indexes(catalog: &Catalog, storage: &Arc<Storage>) -> Result<()> {
    let snapshot = storage.begin().snapshot().clone();
    type Job<'a> = Box<dyn Fn() -> Result<()> + Sync + 'a>;
    let snapshot = &snapshot;
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for table in catalog.tables() {
        jobs.extend(table.bitmaps.iter().map(|i| Box::new(move || i.fill(&table.data, snapshot)) as Job<'_>));
        jobs.extend(table.indexes.iter().map(|i| Box::new(move || table.fill_index(i, snapshot, None)) as Job<'_>));
    }
    let next = serac_sync::atomic::AtomicUsize::new(0);
    let workers = serac_sync::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    serac_sync::thread::scope(|scope| {
        let work = || -> Result<()> {
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                job()?;
            }
            Ok(())
        };
        // This thread is one of them: a small database needs no other.
        let threads: Vec<_> = (1..workers).filter_map(|_| serac_sync::thread::spawn_helper(scope, work)).collect();
        let own = work();
        let others = threads.into_iter().map(|thread| thread.join().expect("filling an index does not panic"));
        std::iter::once(own).chain(others).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::definition::ViewDefinition;

    #[test]
    fn a_snapshot_finds_its_catalog_however_many_have_come_since() {
        let db = Database::in_memory().unwrap();
        let view = |name: String| ViewDefinition { name, query: "SELECT 1".into(), columns: Vec::new() };
        // The snapshot is taken first, and then its catalog is looked for.
        let early = db.0.storage.begin();
        for i in 0..3 * CATALOG_VERSIONS {
            let mut txn = db.begin();
            txn.create_view("public", view(format!("v{i}")), false).unwrap();
            txn.commit().unwrap();
        }
        assert!(db.0.catalog_at(early.snapshot().start()).schemas["public"].views.is_empty());
        drop(early);
        // Versions that no snapshot can look for are dropped.
        let mut txn = db.begin();
        txn.create_view("public", view("last".into()), false).unwrap();
        txn.commit().unwrap();
        assert!(db.0.catalogs.lock().len() <= CATALOG_VERSIONS);
    }
}
