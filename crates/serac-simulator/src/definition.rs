//! The two tables: parents, and children that reference them.

use crate::model::{CHILD, Datum, PARENT};
use crate::plan::Plan;
use arrow_array::{ArrayRef, RecordBatch};
use serac_engine::catalog::definition::{
    BitmapDefinition, ColumnDefinition, ForeignKeyDefinition, KeyDefinition, TableDefinition,
};
use serac_engine::values::{OwnedValue, array_of};
use serac_engine::{Expressions, Result, Table, Transaction};
use serac_storage::{ColumnType, RowId, Snapshot};
use std::sync::Arc;

pub const SCHEMA: &str = "public";

pub fn column(name: &str, column_type: ColumnType) -> ColumnDefinition {
    ColumnDefinition::new(name, column_type)
}

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

/// Columns that both tables begin with: key, reference or number, unique value, truth value, text,
/// long number.
pub fn columns() -> Vec<ColumnDefinition> {
    vec![
        column("id", ColumnType::Int64),
        column("parent", ColumnType::Int64),
        column("code", ColumnType::Utf8),
        column("flag", ColumnType::Boolean),
        column("note", ColumnType::Utf8),
        column("amount", ColumnType::Decimal { precision: 30, scale: 2 }),
    ]
}

/// The columns by name.
pub const ID: usize = 0;
pub const REFERENCE: usize = 1;
pub const CODE: usize = 2;
pub const FLAG: usize = 3;
pub const NOTE: usize = 4;
pub const WIDTH: usize = 6;
/// A column before these, until it is dropped.
pub const EARLY: &str = "early";
/// The default of the children's reference.
pub const DEFAULT_PARENT: i64 = 0;

/// The evaluator of the only default that there is.
#[derive(Debug)]
pub struct Defaults;

impl Expressions for Defaults {
    fn default_value(&self, _: &ColumnDefinition) -> Result<ArrayRef> {
        Ok(array(&[Datum::Int(DEFAULT_PARENT)], REFERENCE))
    }

    fn generated_values(
        &self,
        _: &Table,
        _: &Snapshot,
        _: &[RowId],
        _: &[usize],
    ) -> Result<Option<(Vec<usize>, RecordBatch)>> {
        Ok(None)
    }

    fn new_rows(&self, _: &Table, _: &[usize], _: &RecordBatch) -> Result<RecordBatch> {
        unreachable!("the simulator inserts whole rows")
    }

    fn check_rows(&self, _: &Table, _: &Snapshot, _: &[RowId]) -> Result<()> {
        Ok(())
    }
}

/// The position of the first of the columns in a table.
pub fn first(table: &TableDefinition) -> usize {
    usize::from(table.columns[0].name == EARLY)
}

pub fn create(txn: &mut Transaction, plan: &Plan) -> Result<()> {
    for name in [PARENT, CHILD] {
        let mut columns = columns();
        if name == CHILD {
            columns[REFERENCE].default = Some(DEFAULT_PARENT.to_string());
        }
        if plan.early_column {
            columns.insert(0, column(EARLY, ColumnType::Int64));
        }
        let mut table = TableDefinition::new(SCHEMA, name, columns);
        let first = first(&table);
        table.freeze_format = plan.format;
        table.keys.push(key(&format!("{name}_pkey"), &[first + ID], true, true));
        table.keys.push(key(&format!("{name}_code"), &[first + CODE], true, false));
        table.bitmaps.push(BitmapDefinition { name: format!("{name}_flag"), column: first + FLAG });
        for (_, on_delete, on_update) in plan.relations().into_iter().filter(|(of, ..)| *of == name) {
            table.foreign_keys.push(ForeignKeyDefinition {
                name: format!("{name}_parent"),
                columns: vec![first + REFERENCE],
                parent_schema: SCHEMA.into(),
                parent_table: PARENT.into(),
                parent_columns: vec![first + ID],
                on_delete,
                on_update,
            });
        }
        txn.create_table(table)?;
    }
    Ok(())
}

/// A table as the transaction's catalog has it.
pub fn table(txn: &Transaction, name: &str) -> Arc<Table> {
    txn.catalog().table(SCHEMA, name).expect("the table is there").clone()
}

/// Values of one of the tables' first columns.
pub fn array(values: &[Datum], column: usize) -> ArrayRef {
    array_as(values, columns()[column].sql_type.column_type)
}

/// Values of a type.
pub fn array_as(values: &[Datum], column_type: ColumnType) -> ArrayRef {
    let owned: Vec<_> = values.iter().map(|datum| OwnedValue::from(&datum.value())).collect();
    array_of(&owned, column_type)
}
