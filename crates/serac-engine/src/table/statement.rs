//! Statements of one row: insert, update and delete without Arrow batches, for stored procedures
//! and compiled statements.
//!
//! Each is a statement of its own: constraints and foreign keys are checked at its end. A statement
//! that fails leaves nothing behind, so that a procedure may go on. CHECK constraints are SQL and
//! the business of the callers, or of [`given`](super::given).
//!
//! Each pins an epoch once for all of its operations. After a transaction's first write to a table,
//! no write changes a counter of the catalog or the table, where threads would wait for each other.

use crate::catalog::{Catalog, DEFAULT_SCHEMA};
use crate::error::Result;
use crate::table::Table;
use crate::table::access::positions;
use crate::table::bitmap::BitmapIndex;
use crate::table::fit::check_values;
use crate::transaction::Transaction;
use serac_storage::{ColumnId, RowBuffer, RowId, Value, pin};
use std::sync::Arc;

/// An update of certain columns of a table, with its index and generated columns: made once and
/// used for many rows.
#[derive(Clone, Debug)]
pub struct ColumnUpdate {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) table: Arc<Table>,
    pub(crate) columns: Vec<usize>,
    pub(crate) ids: Vec<ColumnId>,
    /// Positions of the indexes over a changed column.
    pub(crate) touched: Vec<usize>,
    /// Bitmap indexes of changed columns, each with the column's place among these.
    pub(crate) touched_bitmaps: Vec<(Arc<BitmapIndex>, usize)>,
    /// Whether a changed column is part of a foreign key.
    pub(crate) references: bool,
    /// Whether other rows may reference the table's, in the plan's catalog.
    pub(crate) referenced: bool,
}

impl ColumnUpdate {
    /// An update of `columns` (positions, each once) of a table of the catalog.
    pub fn new(catalog: &Arc<Catalog>, table: &Arc<Table>, columns: &[usize]) -> Self {
        let is_touched = |key: &[usize]| key.iter().any(|c| columns.contains(c));
        let place = |bitmap: &BitmapIndex| columns.iter().position(|c| *c == bitmap.definition.column);
        let touched: Vec<usize> =
            (0..table.indexes.len()).filter(|&i| is_touched(&table.indexes[i].definition.columns)).collect();
        Self {
            touched,
            touched_bitmaps: table.bitmaps.iter().filter_map(|b| Some((b.clone(), place(b)?))).collect(),
            references: table.definition.foreign_keys.iter().any(|key| is_touched(&key.columns)),
            referenced: catalog.children_of(&table.definition).next().is_some(),
            catalog: catalog.clone(),
            table: table.clone(),
            ids: columns.iter().map(|&c| ColumnId(c as u16)).collect(),
            columns: columns.into(),
        }
    }

    /// An update of columns of a table in the default schema, all by name.
    ///
    /// # Errors
    /// [`EngineError::Missing`](crate::EngineError::Missing).
    pub fn named(catalog: &Arc<Catalog>, table: &str, columns: &[&str]) -> Result<Self> {
        let table = catalog.table(DEFAULT_SCHEMA, table)?;
        Ok(Self::new(catalog, table, &positions(table, columns)?))
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

/// An update of several rows under way.
#[derive(Debug)]
pub struct RowsUpdate<'p> {
    pub(crate) plan: &'p ColumnUpdate,
    pub(crate) old: RowBuffer,
    /// Rows whose unique keys are to be checked.
    pub(crate) written: Vec<RowId>,
}

impl<'p> RowsUpdate<'p> {
    /// The buffer is empty, possibly with memory.
    pub(crate) fn new(plan: &'p ColumnUpdate, old: RowBuffer) -> Self {
        Self { plan, old, written: Vec::new() }
    }
}

impl Transaction {
    /// Runs one statement, and leaves nothing of it behind if it fails.
    pub(super) fn statement<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let savepoint = self.savepoint();
        let result = run(self).and_then(|value| self.check_statement_end().map(|()| value));
        if result.is_err() {
            self.rollback_to(&savepoint);
        }
        result
    }

    /// Inserts a row: a value for every column.
    ///
    /// # Errors
    /// Values that do not fit, violated constraints, and conflicts; the row is not there then.
    pub fn insert(&mut self, table: &Arc<Table>, row: &[Value<'_>]) -> Result<RowId> {
        self.lock_for_write(table)?;
        let row =
            check_values(table, table.definition.columns.iter(), row).map_err(|error| error.of_row(table, row))?;
        if !table.has_unique_key && table.definition.foreign_keys.is_empty() {
            return Ok(self.insert_unchecked(table, &row)?.0);
        }
        self.statement(|txn| {
            let (id, check) = txn.insert_unchecked(table, &row)?;
            if check {
                txn.check_keys(table, id, &row)?;
            }
            Ok(id)
        })
    }

    /// Updates a row: a value for every column of the plan.
    ///
    /// # Errors
    /// Values that do not fit, violated constraints, and conflicts; the row is as it was then.
    pub fn update(&mut self, plan: &ColumnUpdate, row: RowId, values: &[Value<'_>]) -> Result<()> {
        self.check_current(&plan.catalog, &plan.table)?;
        self.lock_for_write(&plan.table)?;
        let columns = plan.columns.iter().map(|&c| &plan.table.definition.columns[c]);
        let values = check_values(&plan.table, columns, values)
            .map_err(|error| self.of_changed_row(error, &plan.table, row, &plan.columns, values))?;
        if plan.touched.is_empty() && plan.touched_bitmaps.is_empty() {
            let _pinned = pin();
            return Ok(plan.table.data.update(self.storage(), row, &plan.ids, &values)?);
        }
        let mut old = std::mem::take(&mut self.old);
        let result = self.statement(|txn| {
            if txn.update_unchecked(plan, &mut old, row, &values)? {
                txn.check_written_keys(&plan.table, row, &mut old)?;
            }
            Ok(())
        });
        self.old = old;
        result
    }

    /// Deletes a row.
    ///
    /// # Errors
    /// Violated foreign keys and conflicts; the row is still there then.
    pub fn delete(&mut self, table: &Arc<Table>, row: RowId) -> Result<()> {
        self.lock_for_write(table)?;
        let mut old = std::mem::take(&mut self.old);
        let result = if self.is_referenced(table) {
            self.statement(|txn| txn.delete_row(table, true, row, &mut old))
        } else {
            self.delete_row(table, false, row, &mut old)
        };
        self.old = old;
        result
    }
}
