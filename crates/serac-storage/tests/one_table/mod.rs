//! A database that has one table, number 1, named `t`.
#![allow(dead_code, reason = "each test uses some of it")]

use serac_storage::durability::checkpoint::CheckpointReport;
use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The catalog: the columns of the table.
pub struct OneTable(pub TableSchema);

impl OneTable {
    fn create(&self, storage: &Storage) -> Result<Arc<DataTable>> {
        storage.create_table(TableId(1), "t", self.0.clone())
    }
}

impl RecoveryCatalog for OneTable {
    fn restore(&mut self, storage: &Storage, _: &str) -> Result<()> {
        self.create(storage).map(|_| ())
    }

    fn apply_meta(&mut self, storage: &Storage, _: &[u8]) -> Result<()> {
        self.create(storage).map(|_| ())
    }
}

/// Opens the database, and makes the table if it is new.
pub fn open_table(
    options: StorageOptions,
    schema: TableSchema,
) -> Result<(Arc<Storage>, Arc<DataTable>, RecoveryReport)> {
    let mut catalog = OneTable(schema);
    let (storage, report) = Storage::open(options, &mut catalog)?;
    let table = match storage.table(TableId(1)) {
        Some(table) => table,
        None => {
            let mut txn = storage.begin();
            txn.log_meta(b"table");
            let table = catalog.create(&storage)?;
            txn.commit()?.wait()?;
            table
        }
    };
    Ok((storage, table, report))
}

/// A column that may hold NULL.
pub fn column(name: &str, column_type: ColumnType) -> ColumnSchema {
    ColumnSchema { name: name.into(), column_type, nullable: true }
}

/// A column that may not hold NULL.
pub fn required(name: &str, column_type: ColumnType) -> ColumnSchema {
    ColumnSchema { nullable: false, ..column(name, column_type) }
}

/// Writes a checkpoint of the table.
pub fn checkpoint(storage: &Storage) -> Result<CheckpointReport> {
    storage.checkpoint(&|_| (String::new(), vec![TableId(1)]))
}

/// The segments of the log of the database in a folder, in order.
pub fn log_segments(path: &Path) -> Vec<PathBuf> {
    let mut segments: Vec<_> = std::fs::read_dir(path.join("log")).unwrap().map(|e| e.unwrap().path()).collect();
    segments.sort();
    segments
}
