//! `Transaction`: statements that happen wholly or not at all, over one snapshot and one version of the catalog.

use crate::bitmap::OwnChanges;
use crate::catalog::{Catalog, MetaRecord};
use crate::database::{Database, DatabaseInner};
use crate::entries::EntryNotes;
use crate::error::{EngineError, Result};
use crate::expressions::Expressions;
use crate::foreign_key::PendingForeignKey;
use crate::lock::{Hold, LOCK_TIMEOUT, TableLock};
use crate::read_set::ReadSet;
use crate::referential_action::PendingAction;
use crate::roles::RoleId;
use crate::table::Table;
use serac_storage::{Blocker, CommitTicket, RowBuffer, RowId, Snapshot, TableId, Timestamp, Turn};
use serac_sync::time::Duration;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

/// A place to roll back to.
#[derive(Clone, Debug)]
pub struct Savepoint {
    storage: serac_storage::Savepoint,
    /// The catalog, if the transaction had changed it.
    changed_catalog: Option<Arc<Catalog>>,
    own_pins: usize,
    bitmaps: Vec<usize>,
    entries: usize,
}

/// A transaction. Dropping it rolls it back.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) db: Arc<DatabaseInner>,
    pub(crate) txn: Option<serac_storage::Transaction>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) catalog_changed: bool,
    /// What the catalog was before it was changed.
    unchanged_catalog: Option<Arc<Catalog>>,
    pub(crate) owner: u64,
    lock_timeout: Duration,
    /// Locks held, and what for. One may be here for several reasons.
    locks: Vec<(Arc<TableLock>, Hold)>,
    holds_catalog: bool,
    pub(crate) pending: Vec<PendingForeignKey>,
    pub(crate) actions: Vec<PendingAction>,
    pub(crate) expressions: Option<Arc<dyn Expressions>>,
    /// Parent rows that this transaction has pinned, and how many it had pinned before each.
    pub(crate) own_pins: HashMap<(TableId, RowId), usize>,
    pub(crate) bitmaps: OwnChanges,
    pub(crate) entries: EntryNotes,
    /// For the old values of single rows.
    pub(crate) old: RowBuffer,
    /// Of a serializable transaction.
    reads: Option<ReadSet>,
    /// For whom it changes the catalog.
    pub(crate) role: RoleId,
}

thread_local! {
    /// What the thread's last transaction leaves to its next one: memory for notes and rows.
    static SPARE: Cell<Option<(EntryNotes, RowBuffer)>> = const { Cell::new(None) };
}

impl Transaction {
    pub(crate) fn new(
        db: Arc<DatabaseInner>,
        txn: serac_storage::Transaction,
        catalog: Arc<Catalog>,
        owner: u64,
    ) -> Self {
        let (entries, old) = SPARE.take().unwrap_or_default();
        Self {
            db,
            txn: Some(txn),
            catalog,
            catalog_changed: false,
            unchanged_catalog: None,
            owner,
            lock_timeout: LOCK_TIMEOUT,
            locks: Vec::new(),
            holds_catalog: false,
            pending: Vec::new(),
            actions: Vec::new(),
            expressions: None,
            own_pins: HashMap::new(),
            bitmaps: OwnChanges::default(),
            entries,
            old,
            reads: None,
            role: RoleId::BOOTSTRAP,
        }
    }
    pub(crate) fn storage(&mut self) -> &mut serac_storage::Transaction {
        self.txn.as_mut().expect("the transaction is running")
    }
    /// The number of the storage's transaction; another one after a [`restart`](Self::restart).
    pub fn number(&self) -> u64 {
        self.txn.as_ref().expect("the transaction is running").number()
    }
    /// What the transaction sees.
    pub fn snapshot(&self) -> &Snapshot {
        self.txn.as_ref().expect("the transaction is running").snapshot()
    }
    /// What the transaction has changed in bitmap indexes, for its queries.
    pub fn own_bitmap_changes(&self) -> OwnChanges {
        self.bitmaps.clone()
    }
    /// The catalog as the transaction sees it, its own DDL included.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
    /// The database.
    pub fn database(&self) -> Database {
        Database(self.db.clone())
    }

    /// Gives the transaction what evaluates defaults and checks in changes that no statement spells out (referential actions).
    pub fn set_expressions(&mut self, expressions: Arc<dyn Expressions>) {
        self.expressions = Some(expressions);
    }

    /// How long the transaction waits for tables and other objects that concurrent ones write to or change, before it fails with [`EngineError::InUse`]; two
    /// seconds if nothing is said.
    pub fn set_lock_timeout(&mut self, timeout: Duration) {
        self.lock_timeout = timeout;
    }

    /// Makes the transaction serializable, or not, before its first read: whoever reads for a serializable one notes that in its [`reads`](Self::reads).
    pub fn set_serializable(&mut self, serializable: bool) {
        self.reads = serializable.then(ReadSet::default);
    }
    /// Where reads of a serializable transaction are to be noted; none for others.
    pub fn reads(&self) -> Option<&ReadSet> {
        self.reads.as_ref()
    }
    /// Gives the transaction a snapshot of the present, and its catalog: what a statement of a READ COMMITTED transaction begins with.
    pub fn refresh(&mut self) {
        self.storage().refresh_snapshot();
        if !self.catalog_changed {
            self.catalog = self.db.catalog_at(self.snapshot().start());
        }
    }

    /// Begins to wait for a transaction that was in the way of a statement, which has been undone meanwhile: see [`serac_storage::Transaction::wait_for`].
    ///
    /// # Errors
    /// When that transaction waits for this one.
    pub fn wait_for(&mut self, blocker: &Blocker) -> Result<Option<Turn>> {
        Ok(self.storage().wait_for(blocker)?)
    }
    /// Hands on what a statement has waited for and not taken. At its end.
    pub fn pass_on(&mut self) {
        self.storage().pass_on();
    }

    // ---- savepoints and the end

    /// Marks the present state.
    pub fn savepoint(&mut self) -> Savepoint {
        Savepoint {
            storage: self.storage().savepoint(),
            // No count in a catalog that all share.
            changed_catalog: self.catalog_changed.then(|| self.catalog.clone()),
            own_pins: self.own_pins.len(),
            bitmaps: self.bitmaps.mark(),
            entries: self.entries.mark(),
        }
    }
    /// Undoes everything since `savepoint`.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) {
        self.storage().rollback_to(&savepoint.storage);
        self.entries.roll_back(savepoint.entries);
        match (&savepoint.changed_catalog, &self.unchanged_catalog) {
            (Some(changed), _) => self.catalog = changed.clone(),
            (None, Some(unchanged)) if self.catalog_changed => {
                self.catalog = unchanged.clone();
                self.catalog_changed = false;
            }
            _ => {}
        }
        self.own_pins.retain(|_, at| *at < savepoint.own_pins);
        self.bitmaps.lock().rollback_to(&savepoint.bitmaps);
        self.pending.clear();
        self.actions.clear();
    }

    /// Commits. Visible to transactions that begin from now on; durable when the ticket says so.
    ///
    /// # Errors
    /// When the log cannot take it, and a conflict when what a serializable transaction has read is not so any more; everything is rolled back then.
    pub fn commit(mut self) -> Result<CommitTicket> {
        self.check_statement_end()?;
        self.log_reservations_of_new_sequences();
        let mut txn = self.txn.take().expect("the transaction is running");
        if self.catalog_changed {
            let (db, catalog) = (self.db.clone(), self.catalog.clone());
            txn.on_commit(Box::new(move |timestamp| db.publish(timestamp, catalog)));
        }
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
        if ticket.is_ok() {
            self.entries.clear();
        }
        self.release();
        for index in loaded {
            index.merge();
        }
        if writes {
            Database::checkpoint_if_due(&self.db);
        }
        ticket
    }
    /// What the transaction has drawn from sequences that it has made itself was reserved in the log before the sequences were there: replay ignores that.
    fn log_reservations_of_new_sequences(&mut self) {
        if !self.catalog_changed {
            return;
        }
        // Current to the end, because the catalog's lock is held.
        let current = self.db.catalog_at(Timestamp(u64::MAX));
        let catalog = self.catalog.clone();
        let is_new = |id| current.sequences().all(|known| known.definition.id != id);
        for sequence in catalog.sequences().filter(|sequence| is_new(sequence.definition.id)) {
            if let Some(reserved) = sequence.reserved() {
                let id = sequence.definition.id;
                self.storage().log_meta(&MetaRecord::Sequence { id, reserved }.to_bytes());
            }
        }
    }

    /// Rolls back.
    pub fn rollback(self) {}
    /// Rolls back what has been done and begins again with a new snapshot, but keeps the locks: what they keep others from doing from now on, the new
    /// snapshot has. So DDL gets through beside writers: its first attempt may find rows that its snapshot does not see, the next one cannot.
    /// One that has written nothing keeps its place among those who wait.
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
        self.catalog = self.db.catalog_at(txn.snapshot().start());
        self.catalog_changed = false;
        self.txn = Some(txn);
    }

    /// After the rows.
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
        if std::mem::take(&mut self.holds_catalog) {
            self.db.catalog_lock.release(self.owner);
        }
    }

    // ---- locks

    /// Before the first write to a table: no DDL may change it under our feet, nor have changed it since our snapshot.
    pub(crate) fn lock_for_write(&mut self, table: &Arc<Table>) -> Result<()> {
        if self.holds(table, Hold::Write) {
            return Ok(());
        }
        if table.lock.share(self.owner, self.lock_timeout, || format!("relation \"{}\"", table.name()))? {
            if let Err(error) = self.check_unchanged(table) {
                // Who tries again after a ROLLBACK TO is to fail again.
                self.locks.retain(|(lock, _)| !Arc::ptr_eq(lock, &table.lock));
                table.lock.release(self.owner);
                return Err(error);
            }
            self.locks.push((table.lock.clone(), Hold::Write));
        }
        Ok(())
    }
    fn holds(&self, table: &Table, hold: Hold) -> bool {
        self.locks.iter().any(|(lock, held)| *held == hold && Arc::ptr_eq(lock, &table.lock))
    }
    /// Before the first child of a table's rows: until our end, nobody puts other rows in the place of those that we pin.
    pub(crate) fn lock_for_reference(&mut self, parent: &Arc<Table>) -> Result<()> {
        if !self.holds(parent, Hold::Reference)
            && parent.lock.refer(self.owner, self.lock_timeout, || format!("relation \"{}\"", parent.name()))?
        {
            self.locks.push((parent.lock.clone(), Hold::Reference));
        }
        Ok(())
    }
    /// Before putting other rows in the place of a table's: as [`lock_rows_for_ddl`](Self::lock_rows_for_ddl), and the snapshot must see all children of the
    /// rows, because the new ones have no pins.
    pub(crate) fn lock_for_rewrite(&mut self, table: &Arc<Table>) -> Result<()> {
        self.lock_rows_for_ddl(table)?;
        let what = || format!("relation \"{}\"", table.name());
        table.lock.exclude_references(self.owner, self.lock_timeout, what)?;
        if table.lock.last_reference() > self.snapshot().start().0 {
            return Err(changed(table));
        }
        Ok(())
    }
    /// Before changing a table's definition: nobody writes to it until our end.
    pub(crate) fn lock_for_ddl(&mut self, table: &Arc<Table>) -> Result<()> {
        // Checks that are still to come know the definitions as they are now.
        self.check_statement_end()?;
        if table.lock.exclude(self.owner, self.lock_timeout, || format!("relation \"{}\"", table.name()))? {
            self.locks.push((table.lock.clone(), Hold::Exclude));
        }
        // Each time: the lock is also held after an attempt that failed here.
        self.check_unchanged(table)
    }
    /// As [`lock_for_ddl`](Self::lock_for_ddl), where the change rests on the rows: the snapshot must see all of them.
    pub(crate) fn lock_rows_for_ddl(&mut self, table: &Arc<Table>) -> Result<()> {
        self.lock_for_ddl(table)?;
        if table.lock.last_write() > self.snapshot().start().0 {
            return Err(changed(table));
        }
        Ok(())
    }
    /// Keeps others from writing to a table until the end of the transaction, which sees all of its rows: before checking what ALTER TABLE
    /// rests on.
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
        // A definition can only change under the lock that the caller holds: what is current now stays so.
        if !self.catalog_changed && !table.is_current() {
            let current = self.db.catalog_at(Timestamp(u64::MAX));
            let now = current.table(&table.definition.schema, table.name());
            if !now.is_ok_and(|now| Arc::ptr_eq(now, table) || now.definition == table.definition) {
                return Err(changed(table));
            }
        }
        Ok(())
    }

    /// The catalog, to be changed: takes the catalog's lock.
    pub(crate) fn change_catalog<T>(&mut self, change: impl FnOnce(&mut Catalog) -> Result<T>) -> Result<T> {
        if !self.holds_catalog {
            self.db.catalog_lock.exclude(self.owner, self.lock_timeout, || "the catalog".into())?;
            self.holds_catalog = true;
        }
        // Until the first change, each time: the lock is also held after an attempt that failed here.
        if !self.catalog_changed {
            let current = self.db.catalog_at(Timestamp(u64::MAX));
            if !Arc::ptr_eq(&current, &self.catalog) {
                return Err(EngineError::Conflict("the catalog was changed by a concurrent transaction".into()));
            }
        }
        let mut changed = (*self.catalog).clone();
        let result = change(&mut changed)?;
        if changed.security.outlives(&changed) {
            let mut security = changed.security.as_ref().clone();
            security.forget_gone(&changed);
            changed.security = Arc::new(security);
        }
        changed.forget_comments();
        let state = changed.state(self.db.next_id.load(serac_sync::atomic::Ordering::SeqCst));
        self.storage().log_meta(&MetaRecord::Catalog(state).to_bytes());
        let before = std::mem::replace(&mut self.catalog, Arc::new(changed));
        if !std::mem::replace(&mut self.catalog_changed, true) {
            self.unchanged_catalog = Some(before);
        }
        Ok(result)
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
        SPARE.set(Some((std::mem::take(&mut self.entries), std::mem::take(&mut self.old))));
    }
}
