//! `Transaction`: statements that happen wholly or not at all, over one snapshot and one version of
//! the catalog.

pub(crate) mod read_set;
pub(crate) mod row_follower;

use crate::catalog::catalog_changes::{CatalogChanges, CatalogKey};
use crate::catalog::{Catalog, MetaRecord};
use crate::constraint::pending::{PendingAction, PendingForeignKey};
use crate::database_inner::{DatabaseInner, forget_versions_later};
use crate::error::{EngineError, Result};
use crate::security::{RoleId, Security};
use crate::table::Table;
use crate::table::bitmap::{BitmapChanges, OwnChanges};
use crate::table::entries::EntryNotes;
use crate::table::expressions::Expressions;
use crate::table::lock::{Hold, LOCK_TIMEOUT, TableLock};
use crate::transaction::read_set::ReadSet;
use crate::watch::Watch;
use serac_storage::{Blocker, CommitTicket, RowBuffer, RowId, Snapshot, TableId, Timestamp, Turn};
use serac_sync::time::Duration;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

/// A place to roll back to.
#[derive(Clone, Debug)]
pub struct Savepoint {
    storage: serac_storage::Savepoint,
    /// The catalog with the transaction's changes to it, if there were any.
    changed_catalog: Option<(Arc<Catalog>, OwnCatalog)>,
    own_pins: usize,
    bitmaps: Vec<usize>,
    entries: usize,
}

/// A transaction's changes to its catalog.
#[derive(Clone, Debug)]
pub(crate) struct OwnCatalog {
    /// The catalog of the snapshot.
    base: Arc<Catalog>,
    changes: Arc<CatalogChanges>,
}

/// A transaction. Dropping it rolls it back.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) db: Arc<DatabaseInner>,
    pub(crate) txn: Option<serac_storage::Transaction>,
    pub(crate) catalog: Arc<Catalog>,
    /// `None` for a transaction that has not changed its catalog.
    own_catalog: Option<OwnCatalog>,
    pub(crate) owner: u64,
    lock_timeout: Duration,
    /// The held locks, each with its purpose. A lock may be here for several purposes.
    locks: Vec<(Arc<TableLock>, Hold)>,
    /// Locks of catalog keys: exclusive, or shared.
    catalog_locks: Vec<(CatalogKey, Arc<TableLock>, Hold)>,
    pub(crate) pending: Vec<PendingForeignKey>,
    pub(crate) actions: Vec<PendingAction>,
    pub(crate) expressions: Option<Arc<dyn Expressions>>,
    /// Parent rows that this transaction has pinned, and how many it had pinned before each.
    pub(crate) own_pins: HashMap<(TableId, RowId), usize>,
    pub(crate) bitmaps: OwnChanges,
    pub(crate) entries: EntryNotes,
    /// For the old values of single rows.
    pub(crate) old: RowBuffer,
    /// The reads of a serializable transaction.
    reads: Option<ReadSet>,
    /// The role for which it changes the catalog.
    pub(crate) role: RoleId,
    /// The watch that may end its long work.
    pub(crate) watch: Option<Arc<dyn Watch>>,
}

thread_local! {
    /// Memory for notes, rows and changes of bitmap indexes that the thread's last transaction
    /// leaves to its next one.
    static SPARE: Cell<Option<(EntryNotes, RowBuffer, BitmapChanges)>> = const { Cell::new(None) };
}

impl Transaction {
    pub(crate) fn new(
        db: Arc<DatabaseInner>,
        txn: serac_storage::Transaction,
        catalog: Arc<Catalog>,
        owner: u64,
    ) -> Self {
        let (entries, old, bitmaps) = SPARE.take().unwrap_or_default();
        Self {
            db,
            txn: Some(txn),
            catalog,
            own_catalog: None,
            owner,
            lock_timeout: LOCK_TIMEOUT,
            locks: Vec::new(),
            catalog_locks: Vec::new(),
            pending: Vec::new(),
            actions: Vec::new(),
            expressions: None,
            own_pins: HashMap::new(),
            bitmaps: OwnChanges::with_memory(bitmaps),
            entries,
            old,
            reads: None,
            role: RoleId::BOOTSTRAP,
            watch: None,
        }
    }

    pub(crate) fn storage(&mut self) -> &mut serac_storage::Transaction {
        self.txn.as_mut().expect("the transaction is running")
    }

    /// The number of the storage's transaction; it changes with a [`restart`](Self::restart).
    pub fn number(&self) -> u64 {
        self.txn.as_ref().expect("the transaction is running").number()
    }

    /// The transaction's snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        self.txn.as_ref().expect("the transaction is running").snapshot()
    }

    /// A snapshot of the present view, without later writes: see
    /// [`serac_storage::Transaction::snapshot_until_now`]. Bitmap indexes do not know it.
    ///
    /// # Errors
    /// As there.
    pub fn snapshot_until_now(&mut self) -> Result<Snapshot> {
        Ok(self.storage().snapshot_until_now()?)
    }

    /// The transaction's changes to bitmap indexes, for its queries.
    pub fn own_bitmap_changes(&self) -> OwnChanges {
        self.bitmaps.clone()
    }

    /// The catalog as the transaction sees it, its own DDL included.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Sets the evaluator of defaults and checks for changes that are not in a statement
    /// (referential actions).
    pub fn set_expressions(&mut self, expressions: Arc<dyn Expressions>) {
        self.expressions = Some(expressions);
    }

    /// Sets how long the transaction waits for tables and other objects that concurrent ones write
    /// to or change, before it fails with [`EngineError::InUse`]. The default is two seconds.
    pub fn set_lock_timeout(&mut self, timeout: Duration) {
        self.lock_timeout = timeout;
    }

    /// How long it waits so.
    pub fn lock_timeout(&self) -> Duration {
        self.lock_timeout
    }

    /// Makes the transaction serializable, or not, before its first read. Readers for a
    /// serializable transaction note their reads in its [`reads`](Self::reads).
    pub fn set_serializable(&mut self, serializable: bool) {
        self.reads = serializable.then(ReadSet::default);
    }

    /// The read set of a serializable transaction; `None` for others.
    pub fn reads(&self) -> Option<&ReadSet> {
        self.reads.as_ref()
    }

    /// Has the transaction's long work watched.
    pub fn set_watch(&mut self, watch: Arc<dyn Watch>) {
        self.watch = Some(watch);
    }

    /// Gives the transaction a snapshot of the present, and its catalog: a statement of a READ
    /// COMMITTED transaction begins with this.
    pub fn refresh(&mut self) {
        self.storage().refresh_snapshot();
        let now = self.db.catalog_of(self.snapshot());
        match &mut self.own_catalog {
            None => self.catalog = now,
            Some(own) if Arc::ptr_eq(&own.base, &now) => {}
            Some(own) => {
                self.catalog = Arc::new(own.changes.on_top_of(&now, &self.catalog));
                own.base = now;
            }
        }
    }

    /// Gives the transaction, which has written nothing, a snapshot that starts where another one
    /// does, and the catalog of that time: see [`serac_storage::Transaction::adopt_snapshot`].
    ///
    /// # Panics
    /// If it has written, or if the snapshot is of another database.
    pub fn adopt(&mut self, snapshot: &Snapshot) {
        self.storage().adopt_snapshot(snapshot);
        self.catalog = self.db.catalog_of(snapshot);
    }

    /// Begins to wait for a transaction that was in the way of a statement, which has been undone
    /// meanwhile: see [`serac_storage::Transaction::wait_for`].
    ///
    /// # Errors
    /// An error when that transaction waits for this one.
    pub fn wait_for(&mut self, blocker: &Blocker) -> Result<Option<Turn>> {
        Ok(self.storage().wait_for(blocker)?)
    }

    /// Hands on a target that a statement has waited for and not taken. Called at its end.
    pub fn pass_on(&mut self) {
        self.storage().pass_on();
    }

    /// Runs `hook` in the commit critical section, when the commit cannot fail any more: before the
    /// commit is visible, and after the hooks of all earlier ones. It must be short.
    pub fn on_commit(&mut self, hook: impl FnOnce(Timestamp) + Send + Sync + 'static) {
        self.storage().on_commit(Box::new(hook));
    }

    // ---- savepoints and the end

    /// Marks the present state.
    pub fn savepoint(&mut self) -> Savepoint {
        Savepoint {
            storage: self.storage().savepoint(),
            // Without changes the catalog is not cloned: all threads would count in its one
            // reference count.
            changed_catalog: self.own_catalog.as_ref().map(|own| (self.catalog.clone(), own.clone())),
            own_pins: self.own_pins.len(),
            bitmaps: self.bitmaps.mark(),
            entries: self.entries.mark(),
        }
    }

    /// Whether the data of this table were there at `savepoint`; for `None`, before the
    /// transaction.
    pub fn had_data(&self, savepoint: Option<&Savepoint>, table: TableId) -> bool {
        let Some(own) = &self.own_catalog else { return true };
        let changed = savepoint.and_then(|savepoint| savepoint.changed_catalog.as_ref());
        let catalog = changed.map_or(&own.base, |(catalog, _)| catalog);
        catalog.tables().any(|known| known.definition.id == table)
    }

    /// Undoes everything since `savepoint`.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) {
        self.storage().rollback_to(&savepoint.storage);
        self.entries.roll_back(savepoint.entries);
        if let Some(now) = self.own_catalog.take() {
            match &savepoint.changed_catalog {
                None => self.catalog = now.base,
                Some((catalog, own)) => {
                    // The snapshot may have changed since.
                    self.catalog = match Arc::ptr_eq(&own.base, &now.base) {
                        true => catalog.clone(),
                        false => Arc::new(own.changes.on_top_of(&now.base, catalog)),
                    };
                    self.own_catalog = Some(OwnCatalog { base: now.base, changes: own.changes.clone() });
                }
            }
        }
        self.own_pins.retain(|_, at| *at < savepoint.own_pins);
        self.bitmaps.rollback_to(&savepoint.bitmaps);
        self.pending.clear();
        self.actions.clear();
    }

    /// Commits. Visible to transactions that begin from now on; durable when the ticket says so.
    ///
    /// # Errors
    /// An error when the log cannot take the commit, and a conflict when a read of a serializable
    /// transaction is out of date. Everything is then rolled back.
    pub fn commit(mut self) -> Result<CommitTicket> {
        self.check_statement_end()?;
        let db = self.own_catalog.is_some().then(|| self.db.clone());
        // Held until the next version of the catalog is published: no other version is made from
        // the same one.
        let latch = db.as_ref().map(|db| db.catalog_commits.lock());
        if let Some(own) = self.own_catalog.clone() {
            self.put_catalog(&own);
        }
        let mut txn = self.txn.take().expect("the transaction is running");
        let loaded = self.bitmaps.publish(&mut txn);
        if let Some(lost) = self.entries.lost_keys() {
            txn.on_obsolete(Box::new(move || lost.remove_lost()));
        }
        let writes = txn.has_writes();
        let reads = self.reads.take();
        let note_commit = |timestamp: Timestamp| {
            self.locks.iter().for_each(|(lock, hold)| lock.note_commit(timestamp.0, *hold));
        };
        let is_valid = |snapshot: &Snapshot| reads.map_or(Ok(()), |reads| reads.validate(snapshot));
        let ticket = txn.commit_if(is_valid, note_commit);
        drop(latch);
        if ticket.is_ok() {
            self.entries.clear();
        }
        self.release();
        for index in loaded {
            index.merge();
        }
        if writes {
            DatabaseInner::checkpoint_if_due(&self.db);
        }
        ticket
    }

    /// Puts the changes of the catalog on top of the newest version, logs the result, and has it
    /// published at the commit. Called under the latch of catalog commits.
    fn put_catalog(&mut self, own: &OwnCatalog) {
        let newest = self.db.newest_catalog();
        debug_assert!(own.changes.are_about_the_same(&own.base, &newest), "changed keys are locked");
        if !Arc::ptr_eq(&newest, &own.base) {
            self.catalog = Arc::new(own.changes.on_top_of(&newest, &self.catalog));
        }
        let state = self.catalog.state(self.db.next_id.load(serac_sync::atomic::Ordering::SeqCst));
        self.storage().log_meta(&MetaRecord::Catalog(state).to_bytes());
        self.log_reservations_of_new_sequences(&newest);
        let (db, catalog) = (self.db.clone(), self.catalog.clone());
        let forget = forget_versions_later(&db);
        self.storage().on_commit(Box::new(move |timestamp| db.publish(timestamp, catalog)));
        self.storage().on_obsolete(Box::new(forget));
    }

    /// Values that the transaction has drawn from its own new sequences were reserved in the log
    /// before the sequences were there: replay ignores those reservations.
    fn log_reservations_of_new_sequences(&mut self, newest: &Catalog) {
        let catalog = self.catalog.clone();
        let is_new = |id| newest.sequences().all(|known| known.definition.id != id);
        for sequence in catalog.sequences().filter(|sequence| is_new(sequence.definition.id)) {
            if let Some(reserved) = sequence.reserved() {
                let id = sequence.definition.id;
                self.storage().log_meta(&MetaRecord::Sequence { id, reserved }.to_bytes());
            }
        }
    }

    /// Rolls back.
    pub fn rollback(self) {}
    /// Rolls back all work and begins again with a new snapshot, but keeps the locks: the new
    /// snapshot has all changes that the locks exclude from now on. So DDL gets through beside
    /// writers: its first attempt may find rows that its snapshot does not see, the next one
    /// cannot. A transaction that has written nothing keeps its place among the waiters.
    pub fn restart(&mut self) {
        let kept = self.txn.take().filter(|txn| !txn.has_writes());
        self.roll_entries_back();
        self.pending.clear();
        self.actions.clear();
        self.own_pins.clear();
        self.bitmaps.lock().clear();
        self.set_serializable(self.reads.is_some());
        let txn = match kept {
            Some(mut txn) => {
                txn.refresh_snapshot();
                txn
            }
            None => self.db.storage.begin(),
        };
        self.catalog = self.db.catalog_of(txn.snapshot());
        self.own_catalog = None;
        self.txn = Some(txn);
    }

    /// Gives back the locks of tables and of the catalog, which a [`restart`](Self::restart) keeps:
    /// for a transaction that does nothing more.
    pub fn release_locks(&mut self) {
        self.release();
    }

    /// Takes index entries back, after the rows were put back.
    fn roll_entries_back(&mut self) {
        self.entries.roll_back(0);
        if let Some(kept) = self.entries.lost_keys() {
            self.db.storage.defer(Box::new(move || kept.remove_lost()));
            self.entries.clear();
        }
    }

    fn release(&mut self) {
        for (lock, _) in self.locks.drain(..) {
            lock.release(self.owner);
        }
        for (key, lock, _) in self.catalog_locks.drain(..) {
            lock.release(self.owner);
            self.db.catalog_locks.forget(&key, lock);
        }
    }

    // ---- locks

    /// Before a write to a table: no DDL may change it under our feet, nor have changed it since
    /// our snapshot. `table` must be the transaction's version of it: another version may have
    /// other indexes.
    pub(crate) fn lock_for_write(&mut self, table: &Arc<Table>) -> Result<()> {
        let held = self.holds(table, Hold::Write);
        let known = match &self.own_catalog {
            None => table.is_current(),
            Some(_) => {
                let own = self.catalog.table(&table.definition.schema, table.name());
                own.is_ok_and(|own| Arc::ptr_eq(own, table))
            }
        };
        if held && known {
            return Ok(());
        }
        let what = || format!("relation \"{}\"", table.name());
        let is_new = !held && table.lock.share(self.owner, self.lock_timeout, what)?;
        if let Err(error) = self.check_unchanged(table) {
            // A statement that tries again after a ROLLBACK TO must fail again. The lock's other
            // holds stay: children that the transaction has added keep their parents' rows in
            // place.
            if is_new {
                table.lock.unshare(self.owner);
            }
            return Err(error);
        }
        if is_new {
            self.locks.push((table.lock.clone(), Hold::Write));
        }
        Ok(())
    }

    fn holds(&self, table: &Table, hold: Hold) -> bool {
        self.locks.iter().any(|(lock, held)| *held == hold && Arc::ptr_eq(lock, &table.lock))
    }

    /// Before the first child of a table's rows: until our end, no transaction replaces the rows
    /// that we pin.
    pub(crate) fn lock_for_reference(&mut self, parent: &Arc<Table>) -> Result<()> {
        if !self.holds(parent, Hold::Reference)
            && parent.lock.refer(self.owner, self.lock_timeout, || format!("relation \"{}\"", parent.name()))?
        {
            self.locks.push((parent.lock.clone(), Hold::Reference));
        }
        Ok(())
    }

    /// Locks a table before its rows are replaced, as
    /// [`lock_rows_for_ddl`](Self::lock_rows_for_ddl) does. The snapshot must also see all children
    /// of the rows, because the new rows have no pins.
    pub(crate) fn lock_for_rewrite(&mut self, table: &Arc<Table>) -> Result<()> {
        self.lock_rows_for_ddl(table)?;
        let what = || format!("relation \"{}\"", table.name());
        table.lock.exclude_references(self.owner, self.lock_timeout, what)?;
        if table.lock.last_reference() > self.snapshot().start().0 {
            return Err(changed(table));
        }
        Ok(())
    }

    /// Before changing a table's definition: no other transaction writes to it until our end.
    pub(crate) fn lock_for_ddl(&mut self, table: &Arc<Table>) -> Result<()> {
        // Checks that are still to come know the definitions as they are now.
        self.check_statement_end()?;
        if table.lock.exclude(self.owner, self.lock_timeout, || format!("relation \"{}\"", table.name()))? {
            self.locks.push((table.lock.clone(), Hold::Exclude));
        }
        // Each time: the lock is also held after an attempt that failed here.
        self.check_unchanged(table)
    }

    /// As [`lock_for_ddl`](Self::lock_for_ddl), where the change rests on the rows: the snapshot
    /// must see all of them.
    pub(crate) fn lock_rows_for_ddl(&mut self, table: &Arc<Table>) -> Result<()> {
        self.lock_for_ddl(table)?;
        if table.lock.last_write() > self.snapshot().start().0 {
            return Err(changed(table));
        }
        Ok(())
    }

    /// Keeps other writers out of a table until the end of the transaction, which sees all of its
    /// rows. Called before a check for ALTER TABLE.
    ///
    /// # Errors
    /// [`EngineError::InUse`], and a conflict when a concurrent transaction has written to it.
    pub fn lock_table(&mut self, schema: &str, name: &str) -> Result<()> {
        self.check_owner(schema, name)?;
        let table = self.catalog.table(schema, name)?.clone();
        self.lock_rows_for_ddl(&table)
    }

    fn check_unchanged(&self, table: &Arc<Table>) -> Result<()> {
        if table.lock.last_change() > self.snapshot().start().0 {
            return Err(changed(table));
        }
        // A definition can only change under the lock that the caller holds, so the current one
        // stays. The transaction's own changes are not current yet.
        let (schema, name) = (&table.definition.schema, table.name());
        let own = self.own_catalog.as_ref();
        let catalog = if own.is_some_and(|own| own.changes.has_relation(schema, name)) {
            self.catalog.clone()
        } else if table.is_current() {
            return Ok(());
        } else {
            self.db.newest_catalog()
        };
        let is_same = catalog.table(schema, name).is_ok_and(|now| now.is_same_as(table));
        if is_same { Ok(()) } else { Err(changed(table)) }
    }

    /// Changes the catalog and locks the changed keys against other transactions
    /// ([`crate::catalog::catalog_changes`]).
    pub(crate) fn change_catalog<T>(&mut self, change: impl FnOnce(&mut Catalog) -> Result<T>) -> Result<T> {
        let mut changed = (*self.catalog).clone();
        let result = change(&mut changed)?;
        changed.forget_gone();
        let more = CatalogChanges::between(&self.catalog, &changed);
        self.lock_catalog(&more)?;
        let base = self.own_catalog.as_ref().map_or(&self.catalog, |own| &own.base);
        // Each time: the locks are also held after an attempt that failed here.
        if !more.are_about_the_same(base, &self.db.newest_catalog()) {
            return Err(EngineError::Conflict("the catalog was changed by a concurrent transaction".into()));
        }
        let before = std::mem::replace(&mut self.catalog, Arc::new(changed));
        let own = self.own_catalog.get_or_insert_with(|| OwnCatalog { base: before, changes: Arc::default() });
        Arc::make_mut(&mut own.changes).extend(more);
        Ok(result)
    }

    fn lock_catalog(&mut self, changes: &CatalogChanges) -> Result<()> {
        let exclusive = changes.keys.iter().map(|key| (key, Hold::Exclude));
        for (key, hold) in exclusive.chain(changes.shared.iter().map(|key| (key, Hold::Write))) {
            // An exclusive hold includes the shared one.
            if self.catalog_locks.iter().any(|(held, _, how)| *how >= hold && held == key) {
                continue;
            }
            let lock = self.db.catalog_locks.of(key);
            let locked = match hold {
                Hold::Exclude => lock.exclude(self.owner, self.lock_timeout, || key.to_string()),
                _ => lock.share(self.owner, self.lock_timeout, || key.to_string()),
            };
            if let Err(error) = locked {
                self.db.catalog_locks.forget(key, lock);
                return Err(error);
            }
            self.catalog_locks.push((key.clone(), lock, hold));
        }
        Ok(())
    }

    /// Roles, owners and grants of the present, with the transaction's own changes; `None` if they
    /// are those of its catalog.
    pub(crate) fn present_security(&self) -> Option<Arc<Security>> {
        let Some(own) = &self.own_catalog else {
            return Some(self.db.security()).filter(|now| !Arc::ptr_eq(now, &self.catalog.security));
        };
        let newest = self.db.newest_catalog();
        (!Arc::ptr_eq(&newest, &own.base)).then(|| own.changes.on_top_of(&newest, &self.catalog).security)
    }
}

pub(crate) fn changed(table: &Table) -> EngineError {
    EngineError::Conflict(format!("relation \"{}\" was changed by a concurrent transaction", table.name()))
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // Roll back before the locks go.
        self.txn.take();
        self.roll_entries_back();
        self.release();
        let spare = (std::mem::take(&mut self.entries), std::mem::take(&mut self.old), self.bitmaps.take_memory());
        SPARE.set(Some(spare));
    }
}
