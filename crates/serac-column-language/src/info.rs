//! `info()`: the catalog as text.

use crate::context::Output;
use crate::error::Result;
use serac_engine::Database;
use serac_engine::definition::IndexForm;
use std::fmt::Write;

/// Writes a line for each database, table and index.
pub(crate) fn info(database: &Database, output: &mut dyn Output) -> Result<()> {
    let txn = database.begin();
    txn.snapshot().ticket().wait()?;
    for (name, schema) in &txn.catalog().schemas {
        let mut text = format!("database {name}\n");
        for (table_name, table) in &schema.tables {
            let definition = &table.definition;
            let columns = definition.visible_columns().iter().map(|c| format!("{} {}", c.name, c.sql_type));
            let columns: Vec<String> = columns.collect();
            // Writing to a string does not fail.
            let _ = write!(text, "table {name}.{table_name} ({})", columns.join(", "));
            if definition.unnamed_columns > 0 {
                let _ = write!(text, ", {} columns to be named", definition.unnamed_columns);
            }
            let _ = writeln!(text, ", about {} rows", table.data.approximate_rows());
            for key in &definition.keys {
                let columns: Vec<&str> = (0..key.columns.len()).map(|i| key.shown(i, definition)).collect();
                let structure = match key.structure {
                    Some(structure) => format!(
                        "{} {}",
                        if structure.form == IndexForm::Btree { "btree" } else { "sorted" },
                        if structure.clustered { "clustered" } else { "unclustered" }
                    ),
                    None => "of SQL".into(),
                };
                let _ = writeln!(text, "index {name}.{table_name} ({}) {structure}", columns.join(", "));
            }
        }
        output.write(&text)?;
    }
    Ok(())
}
