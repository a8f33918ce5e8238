//! `info()`: the catalog as text.

use crate::error::Result;
use crate::operators::Operators;
use crate::output::Output;
use crate::rights::Rights;
use serac_engine::catalog::definition::IndexForm;
use serac_engine::security::{Privilege, RoleId};
use std::fmt::Write;

/// Writes a line for each database, table and index, as far as a role may see them: databases with
/// USAGE, tables and columns with any privilege, indexes with all their columns. Statistics of an
/// index's values need SELECT.
pub(crate) fn info(operators: &Operators, role: RoleId, output: &mut dyn Output) -> Result<()> {
    let txn = operators.database().begin();
    let rights = Rights::of(&txn, role);
    txn.snapshot().ticket().wait()?;
    for (name, schema) in txn.catalog().schemas.iter().filter(|(name, _)| rights.sees_database(name)) {
        let mut text = format!("database {name}\n");
        for (table_name, table) in &schema.tables {
            let Some(seen) = rights.seen_columns(table) else { continue };
            let definition = &table.definition;
            let columns = definition.visible_columns().iter().zip(&seen).filter(|(_, seen)| **seen);
            let columns: Vec<String> = columns.map(|(c, _)| format!("{} {}", c.name, c.sql_type)).collect();
            // Writing to a string does not fail.
            let _ = write!(text, "table {name}.{table_name} ({})", columns.join(", "));
            if definition.unnamed_columns > 0 {
                let _ = write!(text, ", {} columns to be named", definition.unnamed_columns);
            }
            let _ = writeln!(text, ", about {} rows", table.data.approximate_rows());
            let clustered = definition.cluster.first().map(|(at, _)| *at);
            for key in definition.keys.iter().filter(|key| key.columns.iter().all(|at| seen[*at])) {
                let columns: Vec<&str> = (0..key.columns.len()).map(|i| key.shown(i, definition)).collect();
                let structure = match key.structure {
                    Some(structure) => format!(
                        "{} {}",
                        if structure.form == IndexForm::Btree { "btree" } else { "sorted" },
                        match structure.clustered {
                            false => "unclustered",
                            true if clustered == key.columns.first().copied() => "clustered",
                            true => "clustered, kept as unclustered: the rows follow another index",
                        }
                    ),
                    None => "of SQL".into(),
                };
                let _ = write!(text, "index {name}.{table_name} ({}) {structure}", columns.join(", "));
                if let [column] = key.columns[..]
                    && rights.check_columns(table, Privilege::Select, &[column]).is_ok()
                    && let Some(known) = operators.paths().known(&table.data, column)
                {
                    let _ = write!(text, ", {known}");
                    if clustered == Some(column) {
                        text.push_str(" where rows do not lie in order");
                    }
                }
                text.push('\n');
            }
        }
        output.write(&text)?;
    }
    Ok(())
}
