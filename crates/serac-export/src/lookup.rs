//! Common parts of all requests: tables and columns by name, and snapshots that may leave the
//! process.

use serac_engine::{Catalog, Database, EngineError, Table, Transaction};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A table, and the positions of the columns that a request names, each once: a client that asks a
/// thousand times for one would get a thousand times the bytes of each block. Without names, all
/// columns.
pub(crate) fn table_and_columns(
    catalog: &Catalog,
    schema: &str,
    table: &str,
    columns: Option<&[String]>,
) -> Result<(Arc<Table>, Vec<usize>), EngineError> {
    let table = catalog.table(schema, table)?;
    let columns = match columns {
        Some(names) => {
            let mut named = vec![false; table.definition.columns.len()];
            let once = |name: &String| {
                let position = column(table, name)?;
                match std::mem::replace(&mut named[position], true) {
                    true => Err(EngineError::InvalidDefinition(format!("column \"{name}\" is named twice"))),
                    false => Ok(position),
                }
            };
            names.iter().map(once).collect::<Result<_, _>>()?
        }
        None => (0..table.definition.visible_columns().len()).collect(),
    };
    Ok((table.clone(), columns))
}

/// The position of a column that a request names.
pub(crate) fn column(table: &Table, name: &str) -> Result<usize, EngineError> {
    table.definition.column(name).ok_or_else(|| EngineError::Missing { kind: "column", name: name.into() })
}

/// A transaction whose snapshot is durable: before that, no data may leave the process.
///
/// # Errors
/// The failure of the log.
pub(crate) async fn begin_durable(database: &Database) -> Result<Transaction, String> {
    let txn = database.begin();
    let (durable, wait) = oneshot::channel();
    let notify = move |outcome| {
        let _ = durable.send(outcome);
    };
    txn.snapshot().ticket().on_durable(Box::new(notify));
    wait.await.map_err(|_| "it is closed".to_owned())?.map_err(|error| error.to_string())?;
    Ok(txn)
}
