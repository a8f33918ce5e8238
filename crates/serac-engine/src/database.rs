//! `Database`: a handle of one open database, in a folder or in memory, and how it is opened.
//!
//! [`crate::database_inner`] has the state that all handles share.

use crate::catalog::sequence::Mark;
use crate::catalog::{Catalog, CatalogState, MetaRecord};
use crate::database_inner::DatabaseInner;
use crate::error::Result;
use crate::salvage::violations;
use crate::transaction::Transaction;
use crate::transaction::row_follower::IndexFollower;
use serac_storage::durability::checkpoint::CheckpointReport;
use serac_storage::durability::storage::StorageMetrics;
use serac_storage::{RecoveryCatalog, RecoveryReport, Snapshot, Storage, StorageError, StorageOptions, TableId};
use serac_sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

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
        let inner = Arc::new(DatabaseInner::new(storage, recovering.catalog, recovering.next_id, recovery));
        // From now on rows may move.
        inner.storage.set_follower(Arc::new(IndexFollower::new(&inner)));
        if !inner.recovery().lost.is_empty() || inner.recovery().kept_aside.is_some() {
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
        self.0.security_version()
    }

    /// The findings of opening.
    pub fn recovery_report(&self) -> &RecoveryReport {
        self.0.recovery()
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

    /// Writes a copy of the database, as it is now, into the folder `target`, which must not exist,
    /// or be empty. It can be opened as any database. Transactions go on meanwhile; checkpoints
    /// wait. When `stop` returns true, the copy ends with an error.
    ///
    /// The report counts as written the blocks that lay in no file, and as kept those whose files
    /// were copied. Its bytes are all of the copy's data.
    ///
    /// # Errors
    /// When the folder is not empty, or files cannot be written, or the database is closed. What
    /// was written is removed then, but for the folder.
    pub fn backup(&self, target: impl AsRef<Path>, stop: impl Fn() -> bool + Sync) -> Result<CheckpointReport> {
        self.0.backup(target.as_ref(), &stop)
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

impl Transaction {
    /// The database.
    pub fn database(&self) -> Database {
        Database(self.db.clone())
    }
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
