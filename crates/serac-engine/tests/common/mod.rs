//! Small definitions for the tables of the tests.

#![allow(dead_code, reason = "each test uses some of them")]

use serac_engine::catalog::definition::{ColumnDefinition, ForeignKeyDefinition, KeyDefinition, SequenceDefinition};
use serac_engine::{Table, Transaction};
use serac_storage::{BlockNo, ColumnType, RowId};
use std::sync::Arc;

/// The schema of the tables.
pub const SCHEMA: &str = "public";

/// A nullable column.
pub fn column(name: &str, column_type: ColumnType) -> ColumnDefinition {
    ColumnDefinition::new(name, column_type)
}

/// A nullable column of numbers.
pub fn int_column(name: &str) -> ColumnDefinition {
    column(name, ColumnType::Int64)
}

/// The definition of an index. A primary key is a constraint, too.
pub fn key(name: &str, columns: &[usize], unique: bool, primary: bool) -> KeyDefinition {
    KeyDefinition {
        name: name.into(),
        columns: columns.into(),
        unique,
        primary,
        constraint: primary,
        ..Default::default()
    }
}

/// A foreign key to the first column of `parent`.
pub fn references(name: &str, column: usize, parent: &str) -> ForeignKeyDefinition {
    ForeignKeyDefinition {
        name: name.into(),
        columns: vec![column],
        parent_schema: SCHEMA.into(),
        parent_table: parent.into(),
        parent_columns: vec![0],
        on_delete: Default::default(),
        on_update: Default::default(),
    }
}

/// A sequence of all positive numbers.
pub fn sequence(name: &str) -> SequenceDefinition {
    SequenceDefinition { id: 0, name: name.into(), start: 1, increment: 1, min: 1, max: i64::MAX, owner: None }
}

/// A table, as the transaction sees it.
pub fn table(txn: &Transaction, name: &str) -> Arc<Table> {
    txn.catalog().table(SCHEMA, name).unwrap().clone()
}

/// The ids of the rows that a transaction sees.
pub fn row_ids(txn: &Transaction, table: &Table) -> Vec<RowId> {
    let blocks = (0..table.data.block_count()).filter_map(|no| table.data.read_block(txn.snapshot(), BlockNo(no)));
    blocks.flat_map(|block| block.row_ids(block.visible()).values().to_vec()).map(RowId::from_u64).collect()
}
