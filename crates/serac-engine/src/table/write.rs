//! Writing rows through all constraints and indexes.
//!
//! Rows are written first and checked at the end of their batch, against the newest state of other
//! rows, not against the snapshot. So `UPDATE t SET id = id + 1` succeeds, and a duplicate that a
//! concurrent transaction has committed is found. A key that the snapshot sees and the newest state
//! does not is not free either: the transaction would see two rows with it. Index entries are added
//! before the check. If two concurrent transactions write the same key, at least one finds the
//! other's entry and uncommitted row, and fails with a conflict.

use crate::error::{EngineError, Result};
use crate::table::index::NewestHolder;
use crate::table::statement::{ColumnUpdate, RowsUpdate};
use crate::table::{Table, TableIndex};
use crate::transaction::Transaction;
use crate::values::{display, value_at};
use arrow_array::RecordBatch;
use serac_index::cubit::Builder;
use serac_index::ordered::{Limit, Neighbours};
use serac_storage::{ColumnId, LatestState, RowBuffer, RowId, Value, pin};
use std::ops::Range;
use std::sync::Arc;

/// Batches of fewer rows are inserted row by row, into blocks that have room.
const BULK_ROWS: u64 = 1_024;

/// A row of a table that is incomplete would have no value for the columns that are still to come.
fn check_complete(table: &Table) -> Result<()> {
    match table.definition.unnamed_columns {
        0 => Ok(()),
        missing => Err(EngineError::Incomplete { table: table.name().into(), missing }),
    }
}

fn all_columns(table: &Table) -> Vec<ColumnId> {
    (0..table.definition.columns.len() as u16).map(ColumnId).collect()
}

impl Transaction {
    /// Inserts a row, a value for every column, as part of a statement. Foreign keys are checked at
    /// the statement's end. The caller has checked lengths, and rolls the row back if it fails.
    /// [`insert`](Self::insert) is a statement of its own.
    ///
    /// # Errors
    /// Violated constraints and conflicts.
    pub fn insert_row(&mut self, table: &Arc<Table>, row: &[Value<'_>]) -> Result<RowId> {
        self.insert_row_unless(table, row, |_| false)
    }

    /// As [`insert_row`](Self::insert_row), for INSERT … ON CONFLICT, once
    /// [`find_conflict`](Self::find_conflict) with the same `only` has found no row. A row that has
    /// got one of the keys since is a conflict, not a duplicate: the statement begins again and
    /// finds it.
    ///
    /// # Errors
    /// Violated constraints and conflicts.
    pub fn insert_free_row(
        &mut self,
        table: &Arc<Table>,
        only: Option<&TableIndex>,
        row: &[Value<'_>],
    ) -> Result<RowId> {
        self.insert_row_unless(table, row, |index| index.is_arbiter(only))
    }

    fn insert_row_unless(
        &mut self,
        table: &Arc<Table>,
        row: &[Value<'_>],
        is_arbiter: impl Fn(&TableIndex) -> bool,
    ) -> Result<RowId> {
        self.lock_for_write(table)?;
        let (id, check) = self.insert_unchecked(table, row)?;
        if check {
            self.check_keys_unless(table, id, row, is_arbiter)?;
        }
        Ok(id)
    }

    /// Inserts a row and its entries; says whether its unique keys are to be checked.
    pub(crate) fn insert_unchecked(&mut self, table: &Arc<Table>, row: &[Value<'_>]) -> Result<(RowId, bool)> {
        check_complete(table)?;
        for (value, column) in row.iter().zip(&table.definition.columns) {
            if value.is_null() && !column.nullable {
                return Err(table.null_in(&column.name).of_row(table, row));
            }
        }
        let _pinned = pin();
        let id = table.data.insert(self.storage(), row)?;
        let check = self.add_entries(table, id, row);
        if !table.bitmaps.is_empty() {
            let mut bitmaps = self.bitmaps.lock();
            for index in &table.bitmaps {
                bitmaps.of(index).insert(id, index.key_of(row));
            }
        }
        self.note_new_child(table, row);
        Ok((id, check))
    }

    /// Inserts all rows of a batch that has the table's columns. Returns row ids as ranges of their
    /// 64-bit form, in the rows' order.
    ///
    /// # Errors
    /// Violated constraints and conflicts; the caller rolls the statement back.
    pub fn insert_batch(&mut self, table: &Arc<Table>, batch: &RecordBatch) -> Result<Vec<Range<u64>>> {
        let bulk = batch.num_rows() as u64 >= serac_sync::limit("rows of a bulk append", BULK_ROWS, 2);
        self.insert_rows(table, batch, bulk)
    }

    /// As [`insert_batch`](Self::insert_batch), into blocks of the transaction's own however few
    /// rows there are: the rows of all its appends lie behind each other.
    ///
    /// # Errors
    /// As there.
    pub fn append_batch(&mut self, table: &Arc<Table>, batch: &RecordBatch) -> Result<Vec<Range<u64>>> {
        self.insert_rows(table, batch, true)
    }

    fn insert_rows(&mut self, table: &Arc<Table>, batch: &RecordBatch, bulk: bool) -> Result<Vec<Range<u64>>> {
        self.lock_for_write(table)?;
        check_complete(table)?;
        let all: Vec<usize> = (0..table.definition.columns.len()).collect();
        let batch = table.fit(&all, batch)?;
        let row_at = |row: usize| table.row_of(&batch, row);
        let watched = !table.indexes.is_empty() || !table.definition.foreign_keys.is_empty();
        let (mut ranges, mut to_check): (Vec<Range<u64>>, Vec<(usize, RowId)>) = Default::default();
        if bulk {
            ranges = table.data.append(self.storage(), &batch)?;
            if watched {
                for (row, id) in ranges.iter().cloned().flatten().enumerate() {
                    let (values, id) = (row_at(row), RowId::from_u64(id));
                    if self.add_entries(table, id, &values) {
                        to_check.push((row, id));
                    }
                    self.note_new_child(table, &values);
                }
            }
            for index in &table.bitmaps {
                let column = index.definition.column;
                let (values, column_type) =
                    (batch.column(column), table.definition.columns[column].sql_type.column_type);
                let mut rows = Builder::default();
                for (row, id) in ranges.iter().cloned().flatten().enumerate() {
                    rows.push(&index.key(value_at(values, row, column_type)), RowId::from_u64(id));
                }
                self.bitmaps.lock().of(index).insert_bulk(rows);
            }
        } else {
            for row in 0..batch.num_rows() {
                let (id, check) = self.insert_unchecked(table, &row_at(row))?;
                if check {
                    to_check.push((row, id));
                }
                let id = id.as_u64();
                match ranges.last_mut() {
                    Some(last) if last.end == id => last.end += 1,
                    _ => ranges.push(id..id + 1),
                }
            }
        }
        for (row, id) in to_check {
            self.check_keys(table, id, &row_at(row))?;
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
        let new = table.fit_values(columns, new)?;
        if let Err(error) = table.check_not_null(columns, &new) {
            let Some((at, _)) = table.first_null(columns, &new) else { return Err(error) };
            return Err(self.of_changed_row(error, table, rows[at], columns, &table.values_of(columns, &new, at)));
        }
        let plan = ColumnUpdate::new(&self.catalog, table, columns);
        let mut update = self.start_update(&plan)?;
        for (i, &row) in rows.iter().enumerate() {
            self.update_row(&mut update, row, &table.values_of(columns, &new, i))?;
        }
        self.finish_update(update)
    }

    /// Adds a row that the snapshot sees, with new values of some columns, to an error of NOT NULL
    /// or of a CHECK. Other errors stay as they are.
    #[must_use]
    pub fn of_changed_row(
        &self,
        error: EngineError,
        table: &Table,
        row: RowId,
        columns: &[usize],
        new: &[Value<'_>],
    ) -> EngineError {
        if !matches!(error, EngineError::NotNull { .. } | EngineError::Check { .. }) {
            return error;
        }
        let mut buffer = RowBuffer::default();
        let Ok(true) = table.data.read(self.snapshot(), row, &all_columns(table), &mut buffer) else { return error };
        let mut values: Vec<Value<'_>> = (0..buffer.len()).map(|i| buffer.value(i)).collect();
        columns.iter().zip(new).for_each(|(&column, &value)| values[column] = value);
        error.of_row(table, &values)
    }

    /// Begins an update of several rows as part of a statement, which
    /// [`finish_update`](Self::finish_update) ends.
    ///
    /// # Errors
    /// An error when DDL is changing the table.
    pub fn start_update<'p>(&mut self, plan: &'p ColumnUpdate) -> Result<RowsUpdate<'p>> {
        self.lock_for_write(&plan.table)?;
        Ok(RowsUpdate::new(plan, std::mem::take(&mut self.old)))
    }

    /// Updates one row. The values fit their columns ([`Table::fit_value`]).
    ///
    /// # Errors
    /// Conflicts.
    pub fn update_row(&mut self, update: &mut RowsUpdate<'_>, row: RowId, values: &[Value<'_>]) -> Result<()> {
        if self.update_unchecked(update.plan, &mut update.old, row, values)? {
            update.written.push(row);
        }
        Ok(())
    }

    /// Checks unique keys once all rows have their new values.
    ///
    /// # Errors
    /// Violated constraints and conflicts; the caller rolls the statement back.
    pub fn finish_update(&mut self, mut update: RowsUpdate<'_>) -> Result<()> {
        let checked = update
            .written
            .iter()
            .try_for_each(|&row| self.check_written_keys(&update.plan.table, row, &mut update.old));
        self.old = update.old;
        checked
    }

    /// Updates a row and its entries; says whether its unique keys are to be checked.
    pub(crate) fn update_unchecked(
        &mut self,
        plan: &ColumnUpdate,
        old: &mut RowBuffer,
        row: RowId,
        values: &[Value<'_>],
    ) -> Result<bool> {
        let _pinned = pin();
        let table = &plan.table;
        // Children that have come since do not change the parent's table.
        let referenced = plan.referenced || !Arc::ptr_eq(&plan.catalog, &self.catalog) && self.is_referenced(table);
        let watched = !plan.touched.is_empty() || plan.references;
        if watched {
            table.data.read(self.snapshot(), row, &table.key_columns, old)?;
        }
        // Without indexes and references, bitmaps need the changed columns only.
        let changed = (!watched && !plan.touched_bitmaps.is_empty()).then_some(&mut *old);
        table.data.update_from(self.storage(), row, &plan.ids, values, changed)?;
        let before = watched.then(|| table.spread(old));
        if !plan.touched_bitmaps.is_empty() {
            let mut bitmaps = self.bitmaps.lock();
            for (index, at) in &plan.touched_bitmaps {
                let before = before.as_ref().map_or_else(|| old.value(*at), |row| row[index.definition.column]);
                let after = values[*at];
                if before != after {
                    bitmaps.of(index).update(row, index.key(before), index.key(after));
                }
            }
        }
        let Some(before) = before else { return Ok(false) };
        let mut after = before.clone();
        for (&column, value) in plan.columns.iter().zip(values) {
            after[column] = *value;
        }
        let mut check = false;
        for &index in &plan.touched {
            let definition = &table.indexes[index].definition;
            if definition.columns.iter().any(|&c| before[c] != after[c]) {
                check |= self.add_entry(table, index, row, &after);
                self.entries.lost(table, index, row, &before);
            }
        }
        if plan.references {
            self.note_new_child(table, &after);
        }
        if referenced {
            self.note_gone_parent(table, row, &before, Some(&after))?;
        }
        Ok(check)
    }

    /// Checks the unique keys of a row that was updated, if it is still there.
    pub(crate) fn check_written_keys(&mut self, table: &Arc<Table>, row: RowId, buffer: &mut RowBuffer) -> Result<()> {
        if table.data.read(self.snapshot(), row, &table.key_columns, buffer)? {
            self.check_keys(table, row, &table.spread(buffer))?;
        }
        Ok(())
    }

    /// Deletes the rows.
    ///
    /// # Errors
    /// Conflicts; violated foreign keys at the statement's end.
    pub fn delete_batch(&mut self, table: &Arc<Table>, rows: &[RowId]) -> Result<()> {
        self.lock_for_write(table)?;
        let (referenced, mut old) = (self.is_referenced(table), RowBuffer::default());
        rows.iter().try_for_each(|&row| self.delete_row(table, referenced, row, &mut old))
    }

    pub(crate) fn delete_row(
        &mut self,
        table: &Arc<Table>,
        referenced: bool,
        row: RowId,
        old: &mut RowBuffer,
    ) -> Result<()> {
        let _pinned = pin();
        let watched = referenced || !table.key_columns.is_empty();
        if watched {
            table.data.read(self.snapshot(), row, &table.key_columns, old)?;
        }
        table.data.delete(self.storage(), row)?;
        if watched {
            let before = table.spread(old);
            for index in 0..table.indexes.len() {
                self.entries.lost(table, index, row, &before);
            }
            for index in &table.bitmaps {
                self.bitmaps.lock().of(index).delete(row, index.key_of(&before));
            }
            if referenced {
                self.note_gone_parent(table, row, &before, None)?;
            }
        }
        Ok(())
    }

    /// Claims a row until the end of the transaction, as if it were updated: concurrent
    /// transactions that write it conflict (SELECT … FOR UPDATE).
    ///
    /// # Errors
    /// Conflicts.
    pub fn lock_row(&mut self, table: &Arc<Table>, row: RowId) -> Result<()> {
        self.lock_for_write(table)?;
        Ok(table.data.lock_row(self.storage(), row)?)
    }

    /// Whether another running transaction has written or claimed a row.
    pub fn is_held_by_other(&self, table: &Table, row: RowId) -> bool {
        table.data.writer(row).is_some_and(|writer| writer != self.number())
    }

    // ---- index entries

    /// Returns whether the row's unique keys are to be checked: whether another row has or had one.
    fn add_entries(&mut self, table: &Arc<Table>, row: RowId, values: &[Value<'_>]) -> bool {
        let mut check = false;
        for index in 0..table.indexes.len() {
            check |= self.add_entry(table, index, row, values);
        }
        check
    }

    fn add_entry(&mut self, table: &Arc<Table>, at: usize, row: RowId, values: &[Value<'_>]) -> bool {
        let index = &table.indexes[at];
        let (key, complete) = self.entries.added(table, at, row, values);
        let neighbours = index.entries.insert(key, row);
        complete && index.definition.unique && neighbours == Neighbours::PerhapsSame
    }

    /// Checks the unique keys of a row that was just written.
    pub(crate) fn check_keys(&mut self, table: &Arc<Table>, row: RowId, values: &[Value<'_>]) -> Result<()> {
        self.check_keys_unless(table, row, values, |_| false)
    }

    /// As [`check_keys`](Self::check_keys); a key that another row has is a conflict if the index
    /// `is_arbiter`.
    fn check_keys_unless(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        values: &[Value<'_>],
        is_arbiter: impl Fn(&TableIndex) -> bool,
    ) -> Result<()> {
        for index in table.indexes.iter().filter(|index| index.definition.unique) {
            let (wanted, has_null) = index.key_of(values);
            if has_null {
                continue;
            }
            if self.find_holder(table, index, &wanted, Some(row))?.is_some() {
                return Err(match is_arbiter(index) {
                    true => index.written_by_other(),
                    false => self.duplicate(table, index, values),
                });
            }
        }
        Ok(())
    }

    pub(crate) fn duplicate(&self, table: &Table, index: &TableIndex, values: &[Value<'_>]) -> EngineError {
        let (definition, key) = (&table.definition, &index.definition);
        let names: Vec<_> = (0..key.columns.len()).map(|i| key.shown(i, definition)).collect();
        let shown = key.columns.iter().map(|&c| display(&values[c], definition.columns[c].sql_type.column_type));
        let shown: Vec<_> = shown.collect();
        EngineError::Unique {
            schema: definition.schema.clone(),
            table: definition.name.clone(),
            constraint: key.name.clone(),
            detail: format!("Key ({})=({}) already exists.", names.join(", "), shown.join(", ")),
        }
    }

    /// A row other than `except` whose newest state has the key. A key that is free in the newest
    /// state is in conflict if the snapshot still sees a row with it. With the caller's row, the
    /// snapshot would see two.
    fn find_holder(
        &self,
        table: &Table,
        index: &TableIndex,
        wanted: &[u8],
        except: Option<RowId>,
    ) -> Result<Option<RowId>> {
        match index.newest_holder(&table.data, self.snapshot(), wanted, except)? {
            // The snapshot sees the result of an own delete or update.
            NewestHolder::Nobody { had: true }
                if index.lookup_key(&table.data, self.snapshot(), wanted)?.iter().any(|&row| Some(row) != except) =>
            {
                let name = &index.definition.name;
                let message = format!("a concurrent transaction has freed a key of \"{name}\" that is seen here");
                Err(EngineError::Conflict(message))
            }
            NewestHolder::Nobody { .. } => Ok(None),
            NewestHolder::Row(row) => Ok(Some(row)),
            NewestHolder::Open(blocker) => Err(EngineError::Blocked(index.message_of_same_key(), blocker)),
        }
    }

    /// The row that a new row with `values` would collide with, in the given unique index or in any
    /// (INSERT … ON CONFLICT).
    ///
    /// # Errors
    /// A conflict, when a concurrent transaction has written a row with one of the keys that this
    /// one's snapshot does not see.
    pub fn find_conflict(
        &self,
        table: &Arc<Table>,
        only: Option<&TableIndex>,
        values: &[Value<'_>],
    ) -> Result<Option<RowId>> {
        for index in table.indexes.iter().filter(|index| index.is_arbiter(only)) {
            let (wanted, has_null) = index.key_of(values);
            if has_null {
                continue;
            }
            if let Some(reads) = self.reads() {
                reads.note_range(table, index, Limit::before(&wanted), Limit::after(&wanted));
            }
            if let Some(row) = self.find_holder(table, index, &wanted, None)? {
                if !table.data.read(self.snapshot(), row, &[], &mut RowBuffer::default())? {
                    return Err(index.written_by_other());
                }
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// Checks that no concurrent transaction has changed a row that the snapshot sees. INSERT … ON
    /// CONFLICT DO NOTHING looks at the newest state. With this check it decides on the state that
    /// the transaction sees.
    ///
    /// # Errors
    /// A conflict if another transaction has, and an error when the row lies in a damaged file.
    pub fn check_newest(&self, table: &Table, row: RowId) -> Result<()> {
        // Also true for rows that were only claimed, moved or rolled back.
        if !table.data.is_changed_since(self.snapshot(), row) {
            return Ok(());
        }
        let (all, mut seen, mut newest) = (all_columns(table), RowBuffer::default(), RowBuffer::default());
        let is_there = table.data.read(self.snapshot(), row, &all, &mut seen)?;
        let state = table.data.read_latest(self.snapshot(), row, &all, &mut newest)?;
        if is_there && matches!(state, LatestState::Present) && seen.values() == newest.values() {
            return Ok(());
        }
        Err(EngineError::Conflict(format!("a concurrent transaction has changed a row of \"{}\"", table.name())))
    }

    /// The visible rows with this key.
    ///
    /// # Errors
    /// An error when a row lies in a damaged file.
    pub fn lookup(&self, table: &Table, index: &TableIndex, values: &[Value<'_>]) -> Result<Vec<RowId>> {
        index.lookup(&table.data, self.snapshot(), values)
    }

    /// Reads all columns of a visible row.
    ///
    /// # Errors
    /// An error when the row lies in a damaged file.
    pub fn read_row(&self, table: &Table, row: RowId, out: &mut RowBuffer) -> Result<bool> {
        let all = all_columns(table);
        Ok(table.data.read(self.snapshot(), row, &all, out)?)
    }
}

impl TableIndex {
    /// Whether it is an arbiter of INSERT … ON CONFLICT: the named unique index, or any one without
    /// a name.
    fn is_arbiter(&self, only: Option<&Self>) -> bool {
        self.definition.unique && only.is_none_or(|only| only.definition.name == self.definition.name)
    }

    fn message_of_same_key(&self) -> String {
        format!("a concurrent transaction has written the same key of \"{}\"", self.definition.name)
    }

    fn written_by_other(&self) -> EngineError {
        EngineError::Conflict(self.message_of_same_key())
    }
}
