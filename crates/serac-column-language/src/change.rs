//! Statements that change the database. Each is one transaction, whose commit is durable when the
//! statement returns.
//!
//! Tables with rules that are SQL's to keep (CHECK, generated columns, cascades) are not changed
//! here.

use crate::column::rows_of;
use crate::error::{OperatorError, Result};
use crate::rights::Rights;
use crate::snapshot::{Snapshot, find_table};
use crate::statement::{ColumnName, TableName};
use crate::values::NumberKind;
use crate::variable::Positions;
use serac_engine::catalog::definition::{
    ColumnDefinition, ColumnOrder, IndexForm, IndexStructure, KeyDefinition, ReferentialAction, TableDefinition,
};
use serac_engine::security::Privilege;
use serac_engine::{Catalog, ColumnUpdate, EngineError, Table, Transaction};
use serac_operators::row_order::sort_rows;
use serac_storage::{ColumnType, RowBuffer, RowId, Value};
use std::sync::Arc;

/// Rows between two checks for cancellation.
const ROWS_BETWEEN_CHECKS: usize = 4_096;

/// Commits, and waits until the commit is durable.
pub(crate) fn commit(txn: Transaction) -> Result<()> {
    txn.commit()?.wait()?;
    Ok(())
}

/// The language's error for an object that exists already, made of the engine's error.
fn exists(kind: &'static str, name: impl Into<String>) -> impl FnOnce(EngineError) -> OperatorError {
    let name = name.into();
    move |error| match error {
        EngineError::Exists { .. } => OperatorError::Exists(kind, name),
        other => other.into(),
    }
}

/// `create(db,…)`
pub(crate) fn create_database(mut txn: Transaction, name: &str) -> Result<()> {
    if name.starts_with("pg_") || name == "information_schema" {
        return Err(OperatorError::BadName(name.into(), "it is reserved for the system".into()));
    }
    txn.create_schema(name).map_err(exists("database", name))?;
    commit(txn)
}

/// `create(tbl,…)`
pub(crate) fn create_table(mut txn: Transaction, name: &TableName, columns: u32) -> Result<()> {
    if txn.catalog().schema(&name.database).is_err() {
        return Err(OperatorError::UnknownDatabase(name.database.clone()));
    }
    let mut definition = TableDefinition::new(&name.database, &name.table, Vec::new());
    definition.unnamed_columns = columns;
    definition.ordered = true;
    txn.create_table(definition).map_err(exists("table", name.to_string()))?;
    commit(txn)
}

/// `create(col,…)`
pub(crate) fn create_column(mut txn: Transaction, rights: &Rights, name: &ColumnName, sorted: bool) -> Result<()> {
    // Checked first, before an error tells more about the table.
    rights.check_owner(&name.table)?;
    let table = find_table(txn.catalog(), &name.table)?;
    if table.definition.column(&name.column).is_some() {
        return Err(OperatorError::Exists("column", name.to_string()));
    }
    if table.definition.unnamed_columns == 0 {
        return Err(OperatorError::TableFull(name.table.to_string()));
    }
    let column = ColumnDefinition { nullable: false, ..ColumnDefinition::new(name.column.clone(), ColumnType::Int32) };
    txn.define_column(&name.table.database, &name.table.table, column)?;
    if sorted {
        put_index(&mut txn, name, IndexStructure { form: IndexForm::Sorted, clustered: true })?;
    }
    commit(txn)
}

/// `create(idx,…)`
pub(crate) fn create_index(
    mut txn: Transaction,
    rights: &Rights,
    column: &ColumnName,
    form: IndexForm,
    clustered: bool,
) -> Result<()> {
    rights.check_owner(&column.table)?;
    put_index(&mut txn, column, IndexStructure { form, clustered })?;
    commit(txn)
}

/// Adds an index. The first clustered one puts the rows in its order. A further one is an ordered
/// index like others: the engine keeps one copy of the rows.
fn put_index(txn: &mut Transaction, name: &ColumnName, structure: IndexStructure) -> Result<()> {
    let TableName { database, table } = &name.table;
    let found = find_table(txn.catalog(), &name.table)?.clone();
    let Some(at) = found.definition.column(&name.column) else {
        return Err(OperatorError::UnknownColumn(name.to_string()));
    };
    let sql_type = found.definition.columns[at].sql_type;
    if NumberKind::of(sql_type.column_type).is_none() {
        let (what, found) = (format!("\"{name}\""), format!("of type {sql_type}"));
        return Err(OperatorError::WrongKind { what, found, expected: "a column of numbers".into() });
    }
    let is_same = |key: &KeyDefinition| key.columns == [at] && key.structure == Some(structure);
    let form = if structure.form == IndexForm::Btree { "btree" } else { "sorted" };
    let kind = if structure.clustered { "clustered" } else { "unclustered" };
    if found.definition.keys.iter().any(is_same) {
        return Err(OperatorError::Exists("index", format!("{name} {form} {kind}")));
    }
    if found.definition.materialized.is_some() {
        return Err(OperatorError::Refused(name.table.to_string(), "it is a materialized view"));
    }
    if structure.clustered && found.definition.cluster.is_empty() {
        txn.cluster(database, table, vec![(at, ColumnOrder::default())])?;
    }
    let schema = txn.catalog().schema(database)?;
    let base = format!("{table}_{}_{form}_{kind}", name.column);
    let mut index_name = base.clone();
    for number in 1.. {
        if index_name.len() <= crate::parse::MOST_NAME_BYTES && schema.is_free(&index_name) {
            break;
        }
        // Names are ASCII, so they can be cut anywhere.
        let suffix = format!("_{number}");
        index_name = format!("{}{suffix}", &base[..base.len().min(crate::parse::MOST_NAME_BYTES - suffix.len())]);
    }
    let key =
        KeyDefinition { name: index_name, columns: vec![at], structure: Some(structure), ..KeyDefinition::default() };
    Ok(txn.create_index(database, table, key)?)
}

/// Checks that rows of a table may be written here: that it has all its columns, and no rules that
/// are SQL's to keep.
pub(crate) fn check_writable(table: &Table, name: &TableName) -> Result<()> {
    let definition = &table.definition;
    if definition.unnamed_columns > 0 {
        return Err(OperatorError::TableIncomplete { table: name.to_string(), missing: definition.unnamed_columns });
    }
    let refused = |why| Err(OperatorError::Refused(name.to_string(), why));
    if definition.materialized.is_some() {
        return refused("it is a materialized view");
    }
    if !definition.checks.is_empty() {
        return refused("it has CHECK constraints");
    }
    if definition.columns.iter().any(|column| column.is_generated() || column.hidden) {
        return refused("it has generated columns or indexes on expressions");
    }
    Ok(())
}

/// Checks that a change of a table's rows, or of one of its columns, changes no rows of other
/// tables by foreign keys: these may have rules that are SQL's to keep.
fn check_alone(catalog: &Catalog, table: &Table, name: &TableName, changed: Option<usize>) -> Result<()> {
    let acts = |action| !matches!(action, ReferentialAction::NoAction | ReferentialAction::Restrict);
    let follows = catalog.children_of(&table.definition).any(|(child, key)| {
        let key = &child.definition.foreign_keys[key];
        match changed {
            None => acts(key.on_delete),
            Some(column) => key.parent_columns.contains(&column) && acts(key.on_update),
        }
    });
    let why = "rows of other tables would change with it";
    if follows { Err(OperatorError::Refused(name.to_string(), why)) } else { Ok(()) }
}

/// A number as a value of a column.
pub(crate) fn value_for(column: &ColumnDefinition, number: i64) -> Result<Value<'static>> {
    let out_of_range = || {
        let place = format!("column \"{}\" of type {}", column.name, column.sql_type);
        OperatorError::OutOfRange(number.to_string(), place)
    };
    Ok(match column.sql_type.column_type {
        ColumnType::Int16 => Value::Int16(number.try_into().map_err(|_| out_of_range())?),
        ColumnType::Int32 => Value::Int32(number.try_into().map_err(|_| out_of_range())?),
        ColumnType::Int64 => Value::Int64(number),
        ColumnType::Float32 => Value::Float32(number as f32),
        ColumnType::Float64 => Value::Float64(number as f64),
        ColumnType::Decimal { precision, scale } if scale >= 0 => {
            let factor = 10_i128.checked_pow(u32::from(scale.unsigned_abs()));
            let unscaled = factor.and_then(|factor| i128::from(number).checked_mul(factor));
            let fits = |unscaled: &i128| unscaled.unsigned_abs() < 10_u128.pow(precision.into());
            let unscaled = unscaled.filter(fits).ok_or_else(out_of_range)?;
            // With up to 18 digits it fits 64 bits.
            if precision <= 18 { Value::Int64(unscaled as i64) } else { Value::Int128(unscaled) }
        }
        _ => {
            let (what, found) = (format!("column \"{}\"", column.name), format!("of type {}", column.sql_type));
            return Err(OperatorError::WrongKind { what, found, expected: "a column of numbers".into() });
        }
    })
}

/// `relational_insert(…)`
pub(crate) fn insert(mut txn: Transaction, rights: &Rights, name: &TableName, values: &[i64]) -> Result<()> {
    rights.check_usage(&name.database)?;
    let table = find_table(txn.catalog(), name)?.clone();
    rights.check_insert(&table)?;
    check_writable(&table, name)?;
    let columns = &table.definition.columns;
    if columns.len() != values.len() {
        return Err(OperatorError::WrongArgumentCount {
            command: "relational_insert".into(),
            expected: format!("a table and {} values", columns.len()),
            found: values.len() + 1,
        });
    }
    let row: Vec<Value<'_>> =
        columns.iter().zip(values).map(|(column, number)| value_for(column, *number)).collect::<Result<_>>()?;
    txn.insert(&table, &row)?;
    commit(txn)
}

/// The rows of a table at positions, ascending, each once.
fn distinct_rows(snapshot: &Snapshot, name: &TableName, positions: &Positions) -> Result<Vec<u64>> {
    let (_, rows) = snapshot.table(name)?;
    let selection = rows_of(snapshot, rows, positions)?;
    // The list of rows, and as much again while it is sorted.
    let _taken = snapshot.memory().take(selection.len().saturating_mul(16))?;
    let mut list = selection.to_list();
    sort_rows(&mut list);
    Ok(list)
}

/// Calls `f` with each row, after a check that the row is there.
fn for_each_row(
    snapshot: &Snapshot,
    table: &Table,
    rows: &[u64],
    mut f: impl FnMut(RowId) -> Result<()>,
) -> Result<()> {
    let mut buffer = RowBuffer::default();
    for part in rows.chunks(ROWS_BETWEEN_CHECKS) {
        snapshot.check()?;
        for &row in part {
            let row = RowId::from_u64(row);
            // Reads no column, as a table of SQL may have none.
            if !table.data.read(snapshot.storage(), row, &[], &mut buffer)? {
                return Err(OperatorError::RowDeleted);
            }
            f(row)?;
        }
    }
    Ok(())
}

/// `relational_delete(…)`
pub(crate) fn delete(snapshot: &Snapshot, mut txn: Transaction, name: &TableName, positions: &Positions) -> Result<()> {
    let table: Arc<Table> = snapshot.table(name)?.0.clone();
    snapshot.rights().check_columns(&table, Privilege::Delete, &[])?;
    if table.definition.materialized.is_some() {
        return Err(OperatorError::Refused(name.to_string(), "it is a materialized view"));
    }
    check_alone(snapshot.catalog(), &table, name, None)?;
    let rows = distinct_rows(snapshot, name, positions)?;
    for_each_row(snapshot, &table, &rows, |row| Ok(txn.delete_batch(&table, &[row])?))?;
    commit(txn)
}

/// `relational_update(…)`
pub(crate) fn update(
    snapshot: &Snapshot,
    mut txn: Transaction,
    name: &ColumnName,
    positions: &Positions,
    number: i64,
) -> Result<()> {
    let table: Arc<Table> = snapshot.table(&name.table)?.0.clone();
    let Some(at) = table.definition.column(&name.column) else {
        return Err(OperatorError::UnknownColumn(name.to_string()));
    };
    snapshot.rights().check_columns(&table, Privilege::Update, &[at])?;
    check_writable(&table, &name.table)?;
    check_alone(snapshot.catalog(), &table, &name.table, Some(at))?;
    let value = value_for(&table.definition.columns[at], number)?;
    let rows = distinct_rows(snapshot, &name.table, positions)?;
    let plan = ColumnUpdate::new(txn.catalog(), &table, &[at]);
    let mut update = txn.start_update(&plan)?;
    for_each_row(snapshot, &table, &rows, |row| Ok(txn.update_row(&mut update, row, &[value])?))?;
    txn.finish_update(update)?;
    commit(txn)
}
