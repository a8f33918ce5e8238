//! Who may carry out a statement: what SQL would ask for. Reading a column needs SELECT on it, `relational_insert` and
//! `load` need INSERT on the table, `relational_update` UPDATE on the column, `relational_delete` DELETE on the table. The
//! engine itself checks who may make tables, columns and indexes, by the role of the transaction. Positions and values in
//! variables were read by their owner, who keeps them.

use crate::error::Result;
use crate::statement::{Statement, TableName};
use serac_engine::roles::{Access, Object, Privilege};

/// Refuses a statement that lacks a privilege. Tables and columns that are not there have errors of their own.
///
/// # Errors
/// [`EngineError::Denied`](serac_engine::EngineError::Denied).
pub(crate) fn check(access: &Access, statement: &Statement, catalog: &serac_engine::Catalog) -> Result<()> {
    if access.is_superuser() {
        return Ok(());
    }
    let on_column = |name: &crate::statement::ColumnName, privilege: Privilege| {
        access.check_usage(&name.table.database)?;
        if let Ok(table) = crate::snapshot::find_table(catalog, &name.table)
            && let Some(at) = table.definition.column(&name.column)
        {
            access.check_columns(&table.definition, privilege, &[at])?;
        }
        Ok(())
    };
    match statement {
        Statement::Insert { table, .. } => check_table(access, table, Privilege::Insert),
        Statement::Delete { table, .. } => check_table(access, table, Privilege::Delete),
        Statement::Update { column, .. } => on_column(column, Privilege::Update),
        Statement::Shutdown => Ok(access.check_superuser("shut down the server")?),
        reading => reading.columns().into_iter().try_for_each(|column| on_column(column, Privilege::Select)),
    }
}

/// Refuses who lacks a privilege on a table.
///
/// # Errors
/// As above.
pub(crate) fn check_table(access: &Access, table: &TableName, privilege: Privilege) -> Result<()> {
    Ok(access.check(&Object::relation(&table.database, &table.table), privilege)?)
}
