//! `Transaction`: rows through all constraints and indexes, statements that happen wholly or not at all.
//!
//! Rows are written first and checked at the end of their batch, against the newest state of other rows, not against the snapshot:
//! so `UPDATE t SET id = id + 1` succeeds, and a duplicate that a concurrent transaction has committed is found. Index entries are added before the
//! check. Of two concurrent transactions that write the same key, at least one finds the other's entry and the other's uncommitted row behind it, and fails with a conflict.

use crate::catalog::{Catalog, MetaRecord};
use crate::database::{Database, DatabaseInner};
use crate::definition::{ColumnDefinition, TableDefinition};
use crate::error::{EngineError, Result};
use crate::foreign_key::PendingForeignKey;
use crate::lock::TableLock;
use crate::table::{Table, TableIndex};
use crate::values::{display, value_at};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringViewArray};
use serac_index::ordered::key;
use serac_storage::{ColumnId, CommitTicket, LatestState, RowBuffer, RowId, Snapshot, TableId, Value};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Batches of fewer rows are inserted row by row, into blocks that have room.
const BULK_ROWS: usize = 1_024;

/// A place to roll back to.
#[derive(Clone, Debug)]
pub struct Savepoint {
    storage: serac_storage::Savepoint,
    catalog: Arc<Catalog>,
    catalog_changed: bool,
    own_pins: HashSet<(TableId, RowId)>,
}

/// A transaction. Dropping it rolls it back.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) db: Arc<DatabaseInner>,
    pub(crate) txn: Option<serac_storage::Transaction>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) catalog_changed: bool,
    pub(crate) owner: u64,
    locks: Vec<Arc<TableLock>>,
    holds_catalog: bool,
    pub(crate) pending: Vec<PendingForeignKey>,
    /// Parent rows that this transaction has pinned.
    pub(crate) own_pins: HashSet<(TableId, RowId)>,
}

/// Checks and normalises the columns of a batch against the definition: NOT NULL, lengths, CHAR's trailing blanks.
fn check_columns(table: &TableDefinition, columns: &[usize], batch: &RecordBatch) -> Result<RecordBatch> {
    let mut arrays: Vec<ArrayRef> = batch.columns().to_vec();
    for (array, &column) in arrays.iter_mut().zip(columns) {
        let definition = &table.columns[column];
        if !definition.nullable && array.null_count() > 0 {
            return Err(EngineError::NotNull { table: table.name.clone(), column: definition.name.clone() });
        }
        if definition.sql_type.length.is_some() {
            *array = check_length(definition, array)?;
        }
    }
    Ok(RecordBatch::try_new_with_options(
        batch.schema(),
        arrays,
        &arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows())),
    )
    .map_err(serac_storage::StorageError::from)?)
}

fn check_length(definition: &ColumnDefinition, array: &ArrayRef) -> Result<ArrayRef> {
    let limit = definition.sql_type.length.expect("checked by the caller") as usize;
    let Some(strings) = array.as_string_view_opt() else { return Ok(array.clone()) };
    let trim = |s: &str| s.trim_end_matches(' ').len();
    let blanks = definition.sql_type.fixed_length && strings.iter().flatten().any(|s| trim(s) < s.len());
    let checked: StringViewArray =
        if blanks { strings.iter().map(|s| s.map(|s| &s[..trim(s)])).collect() } else { strings.clone() };
    if checked.iter().flatten().any(|s| s.len() > limit && s.chars().count() > limit) {
        return Err(EngineError::TooLong { sql_type: definition.sql_type.to_string() });
    }
    Ok(Arc::new(checked))
}

fn storage_ids(columns: &[usize]) -> Vec<ColumnId> {
    columns.iter().map(|&c| ColumnId(c as u16)).collect()
}

impl Transaction {
    pub(crate) fn new(
        db: Arc<DatabaseInner>,
        txn: serac_storage::Transaction,
        catalog: Arc<Catalog>,
        owner: u64,
    ) -> Self {
        Self {
            db,
            txn: Some(txn),
            catalog,
            catalog_changed: false,
            owner,
            locks: Vec::new(),
            holds_catalog: false,
            pending: Vec::new(),
            own_pins: HashSet::new(),
        }
    }
    pub(crate) fn storage(&mut self) -> &mut serac_storage::Transaction {
        self.txn.as_mut().expect("the transaction is running")
    }
    /// What the transaction sees.
    pub fn snapshot(&self) -> &Snapshot {
        self.txn.as_ref().expect("the transaction is running").snapshot()
    }
    /// The catalog as the transaction sees it, its own DDL included.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
    /// The database.
    pub fn database(&self) -> Database {
        Database(self.db.clone())
    }

    // ---- savepoints and the end

    /// Marks the present state.
    pub fn savepoint(&mut self) -> Savepoint {
        Savepoint {
            storage: self.storage().savepoint(),
            catalog: self.catalog.clone(),
            catalog_changed: self.catalog_changed,
            own_pins: self.own_pins.clone(),
        }
    }
    /// Undoes everything since `savepoint`.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) {
        self.storage().rollback_to(&savepoint.storage);
        self.catalog = savepoint.catalog.clone();
        self.catalog_changed = savepoint.catalog_changed;
        self.own_pins = savepoint.own_pins.clone();
        self.pending.clear();
    }

    /// Commits. Visible to transactions that begin from now on; durable when the ticket says so.
    ///
    /// # Errors
    /// When the log cannot take it; everything is rolled back then.
    pub fn commit(mut self) -> Result<CommitTicket> {
        self.check_statement_end()?;
        let mut txn = self.txn.take().expect("the transaction is running");
        if self.catalog_changed {
            let (db, catalog) = (self.db.clone(), self.catalog.clone());
            txn.on_commit(Box::new(move |timestamp| db.publish(timestamp, catalog)));
        }
        let writes = txn.has_writes();
        let ticket = txn.commit();
        self.release();
        if writes {
            Database::checkpoint_if_due(&self.db);
        }
        Ok(ticket?)
    }
    /// Rolls back.
    pub fn rollback(self) {}

    fn release(&mut self) {
        for lock in self.locks.drain(..) {
            lock.release(self.owner);
        }
        if std::mem::take(&mut self.holds_catalog) {
            self.db.catalog_lock.release(self.owner);
        }
    }

    // ---- locks

    /// Before the first write to a table: no DDL may change it under our feet, nor have changed it since our snapshot.
    pub(crate) fn lock_for_write(&mut self, table: &Arc<Table>) -> Result<()> {
        let what = || format!("relation \"{}\"", table.name());
        if table.lock.share(self.owner, &what())? {
            self.locks.push(table.lock.clone());
            if !self.catalog_changed {
                let current = self.db.catalog_at(serac_storage::Timestamp(u64::MAX));
                let same = current
                    .table(&table.definition.schema, table.name())
                    .is_ok_and(|now| now.definition == table.definition);
                if !same {
                    return Err(EngineError::Conflict(format!("{} was changed by a concurrent transaction", what())));
                }
            }
        }
        Ok(())
    }
    pub(crate) fn lock_for_ddl(&mut self, table: &Arc<Table>) -> Result<()> {
        if table.lock.exclude(self.owner, &format!("relation \"{}\"", table.name()))? {
            self.locks.push(table.lock.clone());
        }
        Ok(())
    }

    /// The catalog, to be changed: takes the catalog's lock.
    pub(crate) fn change_catalog<T>(&mut self, change: impl FnOnce(&mut Catalog) -> Result<T>) -> Result<T> {
        if !self.holds_catalog {
            self.db.catalog_lock.exclude(self.owner, "the catalog")?;
            self.holds_catalog = true;
            let current = self.db.catalog_at(serac_storage::Timestamp(u64::MAX));
            if !Arc::ptr_eq(&current, &self.catalog) {
                return Err(EngineError::Conflict("the catalog was changed by a concurrent transaction".into()));
            }
        }
        let mut changed = (*self.catalog).clone();
        let result = change(&mut changed)?;
        let state = changed.state(self.db.next_id.load(std::sync::atomic::Ordering::SeqCst));
        self.storage().log_meta(&MetaRecord::Catalog(state).to_bytes());
        self.catalog = Arc::new(changed);
        self.catalog_changed = true;
        Ok(result)
    }

    // ---- rows

    /// Inserts a row: a value for every column.
    ///
    /// # Errors
    /// Violated constraints and conflicts.
    pub fn insert_row(&mut self, table: &Arc<Table>, row: &[Value<'_>]) -> Result<RowId> {
        self.lock_for_write(table)?;
        let id = self.insert_unchecked(table, row)?;
        self.check_keys(table, id, row)?;
        Ok(id)
    }

    fn insert_unchecked(&mut self, table: &Arc<Table>, row: &[Value<'_>]) -> Result<RowId> {
        for (value, column) in row.iter().zip(&table.definition.columns) {
            if value.is_null() && !column.nullable {
                return Err(EngineError::NotNull { table: table.name().into(), column: column.name.clone() });
            }
        }
        let id = table.data.insert(self.storage(), row)?;
        self.add_entries(table, id, row);
        self.note_new_child(table, row);
        Ok(id)
    }

    /// Inserts all rows of a batch that has the table's columns. Returns row ids as ranges of their 64-bit form, in the rows' order.
    ///
    /// # Errors
    /// Violated constraints and conflicts; the caller rolls the statement back.
    pub fn insert_batch(&mut self, table: &Arc<Table>, batch: &RecordBatch) -> Result<Vec<Range<u64>>> {
        self.lock_for_write(table)?;
        let all: Vec<usize> = (0..table.definition.columns.len()).collect();
        let batch = check_columns(&table.definition, &all, batch)?;
        let row_at = |row: usize| -> Vec<Value<'_>> {
            table
                .definition
                .columns
                .iter()
                .zip(batch.columns())
                .map(|(column, array)| value_at(array, row, column.sql_type.column_type))
                .collect()
        };
        let watched = !table.indexes.is_empty() || !table.definition.foreign_keys.is_empty();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        if batch.num_rows() >= BULK_ROWS {
            ranges = table.data.append(self.storage(), &batch)?;
            if watched {
                for (row, id) in ranges.iter().cloned().flatten().enumerate() {
                    let values = row_at(row);
                    self.add_entries(table, RowId::from_u64(id), &values);
                    self.note_new_child(table, &values);
                }
            }
        } else {
            for row in 0..batch.num_rows() {
                let id = self.insert_unchecked(table, &row_at(row))?.as_u64();
                match ranges.last_mut() {
                    Some(last) if last.end == id => last.end += 1,
                    _ => ranges.push(id..id + 1),
                }
            }
        }
        if table.indexes.iter().any(|index| index.definition.unique) {
            for (row, id) in ranges.iter().cloned().flatten().enumerate() {
                self.check_keys(table, RowId::from_u64(id), &row_at(row))?;
            }
        }
        Ok(ranges)
    }

    /// Updates `columns` of the rows to the values of the batch's columns, row by row.
    ///
    /// # Errors
    /// Violated constraints and conflicts; the caller rolls the statement back.
    pub fn update_batch(
        &mut self,
        table: &Arc<Table>,
        rows: &[RowId],
        columns: &[usize],
        new: &RecordBatch,
    ) -> Result<()> {
        assert_eq!(rows.len(), new.num_rows(), "one row of values per row");
        self.lock_for_write(table)?;
        let new = check_columns(&table.definition, columns, new)?;
        let ids = storage_ids(columns);
        let touched: Vec<Arc<TableIndex>> = table
            .indexes
            .iter()
            .filter(|index| index.definition.columns.iter().any(|c| columns.contains(c)))
            .cloned()
            .collect();
        let references =
            table.definition.foreign_keys.iter().any(|key| key.columns.iter().any(|c| columns.contains(c)));
        let referenced = self.is_referenced(table);
        let all = storage_ids(&(0..table.definition.columns.len()).collect::<Vec<_>>());
        let mut old = RowBuffer::default();
        let mut written = Vec::new();
        for (i, &row) in rows.iter().enumerate() {
            let values: Vec<Value<'_>> = new
                .columns()
                .iter()
                .zip(columns)
                .map(|(array, &c)| value_at(array, i, table.definition.columns[c].sql_type.column_type))
                .collect();
            let watched = !touched.is_empty() || references;
            if watched {
                let snapshot = self.snapshot().clone();
                table.data.read(&snapshot, row, &all, &mut old);
            }
            table.data.update(self.storage(), row, &ids, &values)?;
            if !watched {
                continue;
            }
            let before = old.values();
            let mut after = before.clone();
            for (&column, value) in columns.iter().zip(&values) {
                after[column] = *value;
            }
            for index in &touched {
                let ((old_key, _), (new_key, _)) = (index.key_of(&before), index.key_of(&after));
                if old_key != new_key {
                    self.add_entry(table, index, row, new_key);
                    self.drop_entry_later(table, index, row, old_key);
                }
            }
            if references {
                self.note_new_child(table, &after);
            }
            if referenced {
                self.note_gone_parent(table, row, &before, Some(&after))?;
            }
            if touched.iter().any(|index| index.definition.unique) {
                written.push(row);
            }
        }
        for row in written {
            let snapshot = self.snapshot().clone();
            if table.data.read(&snapshot, row, &all, &mut old) {
                self.check_keys(table, row, &old.values())?;
            }
        }
        Ok(())
    }

    /// Deletes the rows.
    ///
    /// # Errors
    /// Conflicts; violated foreign keys at the statement's end.
    pub fn delete_batch(&mut self, table: &Arc<Table>, rows: &[RowId]) -> Result<()> {
        self.lock_for_write(table)?;
        let referenced = self.is_referenced(table);
        let watched = referenced || !table.indexes.is_empty();
        let all = storage_ids(&(0..table.definition.columns.len()).collect::<Vec<_>>());
        let mut old = RowBuffer::default();
        for &row in rows {
            if watched {
                let snapshot = self.snapshot().clone();
                table.data.read(&snapshot, row, &all, &mut old);
            }
            table.data.delete(self.storage(), row)?;
            if watched {
                let before = old.values();
                for index in &table.indexes {
                    self.drop_entry_later(table, index, row, index.key_of(&before).0);
                }
                if referenced {
                    self.note_gone_parent(table, row, &before, None)?;
                }
            }
        }
        Ok(())
    }

    // ---- index entries

    fn add_entries(&mut self, table: &Arc<Table>, row: RowId, values: &[Value<'_>]) {
        for index in &table.indexes {
            let (key, _) = index.key_of(values);
            self.add_entry(table, index, row, key);
        }
    }
    fn add_entry(&mut self, table: &Arc<Table>, index: &Arc<TableIndex>, row: RowId, key: Vec<u8>) {
        index.entries.insert(&key, row);
        let (table, index) = (table.clone(), index.clone());
        self.storage().on_abort(Box::new(move || remove_if_unused(&table, &index, row, &key)));
    }
    /// An older snapshot may still need the entry.
    fn drop_entry_later(&mut self, table: &Arc<Table>, index: &Arc<TableIndex>, row: RowId, key: Vec<u8>) {
        let (table, index) = (table.clone(), index.clone());
        self.storage().on_obsolete(Box::new(move || remove_if_unused(&table, &index, row, &key)));
    }

    /// Checks the unique keys of a row that was just written.
    fn check_keys(&mut self, table: &Arc<Table>, row: RowId, values: &[Value<'_>]) -> Result<()> {
        for index in table.indexes.iter().filter(|index| index.definition.unique) {
            let (wanted, has_null) = index.key_of(values);
            if has_null {
                continue;
            }
            if self.find_holder(table, index, &wanted, Some(row))?.is_some() {
                return Err(self.duplicate(table, index, values));
            }
        }
        Ok(())
    }

    pub(crate) fn duplicate(&self, table: &Table, index: &TableIndex, values: &[Value<'_>]) -> EngineError {
        let names: Vec<_> =
            index.definition.columns.iter().map(|&c| table.definition.columns[c].name.as_str()).collect();
        let shown: Vec<_> = index.definition.columns.iter().map(|&c| display(&values[c])).collect();
        EngineError::Unique {
            constraint: index.definition.name.clone(),
            detail: format!("Key ({})=({}) already exists.", names.join(", "), shown.join(", ")),
        }
    }

    /// A row other than `except` whose newest state has the key.
    fn find_holder(
        &self,
        table: &Table,
        index: &TableIndex,
        wanted: &[u8],
        except: Option<RowId>,
    ) -> Result<Option<RowId>> {
        let (columns, mut buffer) = (index.column_ids(), RowBuffer::default());
        for other in index.entries.rows(wanted).into_iter().filter(|&other| Some(other) != except) {
            match table.data.read_latest(self.snapshot(), other, &columns, &mut buffer) {
                LatestState::Absent => {}
                LatestState::Present if key::encode(&buffer.values()).0 == wanted => return Ok(Some(other)),
                LatestState::Present => {}
                LatestState::WrittenByOther => {
                    return Err(EngineError::Conflict(format!(
                        "a concurrent transaction has written the same key of \"{}\"",
                        index.definition.name
                    )));
                }
            }
        }
        Ok(None)
    }

    /// The row that a new row with `values` would collide with, in the given unique index or in any (INSERT … ON CONFLICT).
    ///
    /// # Errors
    /// A conflict, when a concurrent transaction has written such a row that this one's snapshot does not see.
    pub fn find_conflict(
        &self,
        table: &Arc<Table>,
        only: Option<&TableIndex>,
        values: &[Value<'_>],
    ) -> Result<Option<RowId>> {
        let unique = table.indexes.iter().filter(|index| index.definition.unique);
        for index in unique.filter(|index| only.is_none_or(|only| only.definition.name == index.definition.name)) {
            let (wanted, has_null) = index.key_of(values);
            if has_null {
                continue;
            }
            if let Some(row) = self.find_holder(table, index, &wanted, None)? {
                if !table.data.read(self.snapshot(), row, &[], &mut RowBuffer::default()) {
                    return Err(EngineError::Conflict(format!(
                        "a concurrent transaction has written the same key of \"{}\"",
                        index.definition.name
                    )));
                }
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// The visible rows with this key.
    pub fn lookup(&self, table: &Table, index: &TableIndex, values: &[Value<'_>]) -> Vec<RowId> {
        index.lookup(&table.data, self.snapshot(), values)
    }

    /// Reads all columns of a visible row.
    pub fn read_row(&self, table: &Table, row: RowId, out: &mut RowBuffer) -> bool {
        let all = storage_ids(&(0..table.definition.columns.len()).collect::<Vec<_>>());
        table.data.read(self.snapshot(), row, &all, out)
    }
}

/// Removes an index entry unless some reachable version of the row (again) has the key.
fn remove_if_unused(table: &Table, index: &TableIndex, row: RowId, wanted: &[u8]) {
    let used = table
        .data
        .any_version_matches(row, &index.column_ids(), &mut |version| key::encode(&version.values()).0 == wanted);
    if !used {
        index.entries.remove(wanted, row);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // Roll back before the locks go.
        self.txn.take();
        self.release();
    }
}
