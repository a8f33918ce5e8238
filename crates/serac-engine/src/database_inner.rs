//! The state that all handles of an open database share: its storage, the versions of its catalog,
//! its checkpoints and its end.
//!
//! **A clean end** ([`Database::close`](crate::Database::close), or the drop of the last handle)
//! writes a checkpoint of the commits since the last one, so that the next opening replays nothing.
//! Its cost is bounded. If a checkpoint would write many blocks because of a little log, that log
//! is left to the next opening, which reads it faster. A checkpoint that fails then is no harm: the
//! log has everything. Without a log (durability off) the checkpoint is the only durable copy of
//! commits. Commits are refused before it is taken, and accepted again if it fails.

use crate::catalog::catalog_changes::CatalogLocks;
use crate::catalog::definition::SequenceDefinition;
use crate::catalog::procedure::Procedures;
use crate::catalog::sequence::Mark;
use crate::catalog::{Catalog, MetaRecord};
use crate::error::{EngineError, Result};
use crate::security::{RoleId, Security};
use crate::table::bitmap::BitmapIndex;
use serac_index::cubit::Merger;
use serac_storage::durability::checkpoint::CheckpointReport;
use serac_storage::version::transaction::TransactionManager;
use serac_storage::{Durability, RecoveryReport, Snapshot, Storage, TableId, Timestamp};
use serac_sync::Mutex;
use serac_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// At this many versions of the catalog, those that no snapshot needs are dropped.
const CATALOG_VERSIONS: usize = 64;
/// A clean end writes at most so many bytes of blocks,
const CLEAN_END_BYTES: u64 = 16 << 20;
/// or so many times the log that it makes unnecessary.
const CLEAN_END_FACTOR: u64 = 16;

/// Versions of the catalog with the timestamps from which they count, ascending.
type CatalogVersions = Vec<(u64, Arc<Catalog>)>;

#[derive(Debug)]
pub(crate) struct DatabaseInner {
    pub(crate) storage: Arc<Storage>,
    catalogs: Arc<Mutex<CatalogVersions>>,
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
    /// A database with a recovered storage and catalog, whose indexes are filled.
    pub(crate) fn new(storage: Arc<Storage>, catalog: Catalog, next_id: u32, recovery: RecoveryReport) -> Self {
        let (now, catalog) = (storage.manager().now().0, Arc::new(catalog));
        catalog.tables().for_each(|table| table.set_current(true));
        let merger = Merger::default();
        merger.watch(bitmaps(&catalog).map(|bitmap| &bitmap.entries));
        Self {
            storage,
            catalogs: Arc::new(Mutex::new(vec![(now, catalog)])),
            catalog_locks: CatalogLocks::default(),
            catalog_commits: Mutex::default(),
            next_id: AtomicU32::new(next_id),
            next_owner: AtomicU64::new(1),
            recovery,
            merger,
            procedures: Procedures::default(),
            logins: Mutex::default(),
            security_version: AtomicU64::new(0),
            checkpointing: AtomicBool::new(false),
            closing: Mutex::default(),
            no_checkpoint_before: AtomicU64::new(0),
        }
    }

    /// The findings of opening.
    pub(crate) fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// See [`Database::security_version`](crate::Database::security_version).
    pub(crate) fn security_version(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`, before which the new catalog is there.
        self.security_version.load(Ordering::Acquire)
    }

    /// Makes a checkpoint if the log has grown long. Called after commits.
    pub(crate) fn checkpoint_if_due(inner: &Arc<Self>) {
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

    pub(crate) fn checkpoint(&self) -> Result<CheckpointReport> {
        Ok(self.storage.checkpoint(&|snapshot| self.state_in(snapshot))?)
    }

    pub(crate) fn backup(&self, target: &Path, stop: &(dyn Fn() -> bool + Sync)) -> Result<CheckpointReport> {
        Ok(self.storage.backup(target, &|snapshot| self.state_in(snapshot), stop)?)
    }

    /// The catalog as a checkpoint keeps it, and its tables.
    fn state_in(&self, snapshot: &Snapshot) -> (String, Vec<TableId>) {
        let catalog = self.catalog_at(snapshot.start());
        catalog.sequences().for_each(|sequence| sequence.give_back());
        let state = catalog.state(self.next_id.load(Ordering::SeqCst));
        let ids = catalog.tables().map(|t| t.definition.id).collect();
        (serde_json::to_string(&state).expect("a catalog is plain data"), ids)
    }

    pub(crate) fn close(&self) -> Result<()> {
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

    fn catalog_at(&self, start: Timestamp) -> Arc<Catalog> {
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
            // Release: pairs with `security_version`.
            self.security_version.fetch_add(1, Ordering::Release);
        }
    }

    /// The present roles, owners and grants.
    pub(crate) fn security(&self) -> Arc<Security> {
        self.newest_catalog().security.clone()
    }

    /// Reserves values for a definition of a sequence, unless the committed one goes the other way.
    /// Returns the commit's timestamp; zero without a log.
    pub(crate) fn reserve(
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
    pub(crate) fn log_reservation(
        &self,
        id: u32,
        reserved: Mark,
        is_valid: impl FnOnce() -> Result<()>,
    ) -> Result<Timestamp> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;
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
