//! The snapshot of a statement or a batch.
//!
//! The rows of every table that it names are pinned **before** the storage snapshot is taken (see
//! `serac_storage`'s row pins), so that positions found in it can be kept. A table may be dropped
//! or rewritten between the two: then it begins again.

use crate::access::AccessPaths;
use crate::error::{OperatorError, Result};
use crate::memory::{Cancel, Memory};
use crate::operators::Operators;
use crate::rights::Rights;
use crate::settings::Settings;
use crate::statement::{ColumnName, TableName};
use crate::values::NumberKind;
use crate::variable::TableRows;
use serac_engine::security::{Privilege, RoleId};
use serac_engine::{Catalog, Table, Transaction};
use serac_operators::selection::Runs;
use serac_storage::{BlockNo, BlockReader, ColumnId, ColumnType, DataTable, RowId, ScanColumn, Slot, TableId};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of times that tables may be rewritten while a snapshot is being taken.
const MOST_ATTEMPTS: usize = 100;

/// The catalog, the rows and the settings that a statement or a batch sees. Threads share it.
#[derive(Debug)]
pub struct Snapshot {
    storage: serac_storage::Snapshot,
    catalog: Arc<Catalog>,
    rights: Rights,
    /// The tables that are named and are there.
    tables: HashMap<TableName, OpenTable>,
    /// The visible rows of tables, once they were asked for.
    visible: Mutex<HashMap<TableId, Arc<Runs>>>,
    settings: Settings,
    cancel: Cancel,
    memory: Arc<Memory>,
    paths: Arc<AccessPaths>,
}

#[derive(Debug)]
struct OpenTable {
    table: Arc<Table>,
    rows: Arc<TableRows>,
}

/// A column of numbers of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column<'s> {
    /// The table.
    pub table: &'s Arc<Table>,
    /// Its rows, pinned.
    pub rows: &'s Arc<TableRows>,
    /// The column's place in the table's definition.
    pub at: usize,
    /// Its type.
    pub column_type: ColumnType,
    pub(crate) kind: NumberKind,
}

impl<'s> Column<'s> {
    /// The rows of the column's table.
    pub fn data(&self) -> &'s Arc<DataTable> {
        &self.table.data
    }

    /// The column as the storage numbers it.
    pub fn id(&self) -> ColumnId {
        ColumnId(self.at as u16)
    }

    /// The column for a block reader.
    pub fn scanned(&self) -> ScanColumn {
        ScanColumn::arrow(self.id())
    }

    /// Whether it may hold NULL.
    pub fn is_nullable(&self) -> bool {
        self.table.definition.columns[self.at].nullable
    }
}

/// A table of the catalog.
pub(crate) fn find_table<'c>(catalog: &'c Catalog, name: &TableName) -> Result<&'c Arc<Table>> {
    let Ok(schema) = catalog.schema(&name.database) else {
        return Err(OperatorError::UnknownDatabase(name.database.clone()));
    };
    schema.tables.get(&name.table).ok_or_else(|| OperatorError::UnknownTable(name.to_string()))
}

impl Snapshot {
    /// A snapshot for statements of a role that name these tables, and its transaction. A caller
    /// that only reads drops the transaction.
    ///
    /// # Errors
    /// [`OperatorError::Conflict`] when the tables are rewritten all the time.
    pub fn open<'n>(
        operators: &Operators,
        role: RoleId,
        names: impl Iterator<Item = &'n TableName> + Clone,
        settings: &Settings,
        cancel: &Cancel,
    ) -> Result<(Self, Transaction)> {
        let database = operators.database();
        for _ in 0..MOST_ATTEMPTS {
            let now = database.catalog();
            let mut tables: HashMap<TableName, OpenTable> = HashMap::new();
            for name in names.clone() {
                if let Ok(table) = find_table(&now, name)
                    && !tables.contains_key(name)
                {
                    let (table, rows) = (table.clone(), TableRows::new(&table.data, name.to_string()));
                    tables.insert(name.clone(), OpenTable { table, rows });
                }
            }
            let mut txn = database.begin();
            txn.set_role(role);
            let catalog = txn.catalog().clone();
            let is_same = names.clone().all(|name| {
                let found = find_table(&catalog, name).ok();
                match (found, tables.get_mut(name)) {
                    (None, None) => true,
                    (Some(table), Some(open)) if table.data.id() == open.rows.id() => {
                        open.table = table.clone();
                        true
                    }
                    _ => false,
                }
            });
            if is_same {
                let snapshot = Self {
                    storage: txn.snapshot().clone(),
                    rights: Rights::of(&txn, role),
                    catalog,
                    tables,
                    visible: Mutex::default(),
                    settings: settings.clone(),
                    cancel: cancel.clone(),
                    memory: operators.memory().clone(),
                    paths: operators.paths().clone(),
                };
                return Ok((snapshot, txn));
            }
        }
        Err(OperatorError::Conflict("the tables are being rewritten".into()))
    }

    /// The storage's snapshot.
    pub fn storage(&self) -> &serac_storage::Snapshot {
        &self.storage
    }

    /// The catalog.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The rights of the client's role.
    pub(crate) fn rights(&self) -> &Rights {
        &self.rights
    }

    /// The client's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The memory of variables.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The known access paths.
    pub(crate) fn paths(&self) -> &AccessPaths {
        &self.paths
    }

    /// Checks for cancellation. Every loop over blocks calls it.
    ///
    /// # Errors
    /// [`OperatorError::Cancelled`].
    pub fn check(&self) -> Result<()> {
        // Relaxed: whoever sets it waits for nothing that was done before.
        if self.cancel.load(Ordering::Relaxed) { Err(OperatorError::Cancelled) } else { Ok(()) }
    }

    /// Waits until everything that was read is durable. Called before any result leaves.
    ///
    /// # Errors
    /// When the log has failed.
    pub fn settle(&self) -> Result<()> {
        if let Some(ticket) = self.storage.unacknowledged_reads() {
            ticket.wait()?;
        }
        Ok(())
    }

    /// A table that the statement names.
    ///
    /// # Errors
    /// [`OperatorError::UnknownDatabase`], [`OperatorError::UnknownTable`], a role without USAGE.
    pub fn table(&self, name: &TableName) -> Result<(&Arc<Table>, &Arc<TableRows>)> {
        self.rights.check_usage(&name.database)?;
        if let Some(open) = self.tables.get(name) {
            return Ok((&open.table, &open.rows));
        }
        find_table(&self.catalog, name)?;
        Err(OperatorError::UnknownTable(name.to_string()))
    }

    /// A column of numbers that the statement names, and that the client's role may read. No
    /// statement reads a column in another way, so the SELECT privilege is checked here.
    ///
    /// # Errors
    /// The column does not exist, may not or cannot be read, or has no numbers.
    pub fn column(&self, name: &ColumnName) -> Result<Column<'_>> {
        let (table, rows) = self.table(&name.table)?;
        let Some(at) = table.definition.column(&name.column) else {
            return Err(OperatorError::UnknownColumn(name.to_string()));
        };
        self.rights.check_columns(table, Privilege::Select, &[at])?;
        if table.definition.materialized.as_ref().is_some_and(|view| !view.populated) {
            return Err(OperatorError::Refused(name.table.to_string(), "the view was not filled yet"));
        }
        let sql_type = table.definition.columns[at].sql_type;
        let Some(kind) = NumberKind::of(sql_type.column_type) else {
            let (what, found) = (format!("\"{name}\""), format!("of type {sql_type}"));
            return Err(OperatorError::WrongKind { what, found, expected: "a column of numbers".into() });
        };
        Ok(Column { table, rows, at, column_type: sql_type.column_type, kind })
    }

    /// Checks that the rows to which positions belong are those of a table.
    ///
    /// # Errors
    /// [`OperatorError::RowsGone`].
    pub fn check_there(&self, rows: &TableRows) -> Result<()> {
        let id = rows.id();
        let is_there =
            self.tables.values().any(|open| open.rows.id() == id) || self.catalog.tables().any(|t| t.data.id() == id);
        if is_there { Ok(()) } else { Err(OperatorError::RowsGone(rows.name.clone())) }
    }

    /// Calls `f` with a reader of each block of which the snapshot sees rows, in ascending order.
    ///
    /// # Errors
    /// [`OperatorError::Cancelled`], and those of `f`.
    pub fn for_each_block(&self, data: &DataTable, mut f: impl FnMut(BlockReader<'_>) -> Result<()>) -> Result<()> {
        for no in 0..data.block_count() {
            self.check()?;
            if let Some(reader) = data.read_block(&self.storage, BlockNo(no)) {
                f(reader)?;
            }
        }
        Ok(())
    }

    /// The rows of a table that the snapshot sees.
    ///
    /// # Errors
    /// [`OperatorError::Cancelled`], [`OperatorError::OutOfMemory`], [`OperatorError::RowsGone`].
    pub fn visible(&self, rows: &TableRows) -> Result<Arc<Runs>> {
        let known = |cache: &HashMap<TableId, Arc<Runs>>| cache.get(&rows.id()).cloned();
        if let Some(known) = known(&self.visible.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(known);
        }
        let mut runs = Runs::default();
        self.for_each_block(&*rows.data()?, |reader| {
            push_visible(&mut runs, &reader);
            self.memory.check(runs.bytes() as u64)
        })?;
        let runs = Arc::new(runs);
        let mut cache = self.visible.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(cache.entry(rows.id()).or_insert(runs).clone())
    }

    /// Keeps the visible rows that a scan has found on its way.
    pub(crate) fn note_visible(&self, rows: &TableRows, runs: &Arc<Runs>) {
        let mut cache = self.visible.lock().unwrap_or_else(PoisonError::into_inner);
        cache.entry(rows.id()).or_insert_with(|| runs.clone());
    }
}

/// Adds the visible rows of a block.
pub(crate) fn push_visible(runs: &mut Runs, reader: &BlockReader<'_>) {
    let first = RowId::new(reader.block_no(), Slot(0)).as_u64();
    match reader.visible() {
        serac_storage::Selection::All(n) => runs.push(first..first + u64::from(*n)),
        serac_storage::Selection::Positions(slots) => {
            for run in slots.chunk_by(|a, b| a + 1 == *b) {
                let from = first + u64::from(run[0]);
                runs.push(from..from + run.len() as u64);
            }
        }
    }
}
