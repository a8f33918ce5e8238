//! `CLUSTER t [USING i]`, and `CREATE TABLE … CLUSTER BY (…)`, which is SeracDB's.

use crate::ddl::clauses::done;
use crate::error::{Result, SqlError};
use crate::result::StatementResult;
use crate::session::Session;
use datafusion::arrow::array::RecordBatch;
use serac_engine::catalog::definition::{ColumnOrder, TableDefinition};
use serac_engine::{EngineError, Table};
use serac_parser::tree::{Cluster, CommandOption, Ident};

/// The key of CLUSTER BY.
pub(super) fn cluster_key(definition: &TableDefinition, by: &[Ident]) -> Result<Vec<(usize, ColumnOrder)>> {
    let column = |Ident { name, .. }: &Ident| {
        let missing =
            || SqlError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")).named(name);
        Ok((definition.column(name).ok_or_else(missing)?, ColumnOrder::default()))
    };
    by.iter().map(column).collect()
}

impl Session {
    /// CLUSTER.
    pub(super) fn cluster(&mut self, cluster: &Cluster) -> Result<StatementResult> {
        let Cluster { options, table, index } = cluster;
        // VERBOSE says more and does nothing else.
        if let Some(CommandOption { name, .. }) = options.iter().find(|option| option.name.name != "verbose") {
            return Err(SqlError::new(
                sqlstate::SYNTAX_ERROR,
                format!("unrecognized CLUSTER option \"{}\"", name.name),
            ));
        }
        let Some(table) = table else { return Err(SqlError::unsupported("CLUSTER of all tables")) };
        let (schema, name) = self.locate(table)?;
        let definition = self.txn_for(&schema)?.catalog().table(&schema, &name)?.definition.clone();
        let key = match index {
            None => definition.cluster.clone(),
            Some(Ident { name: index, .. }) => {
                let missing = || EngineError::Missing { kind: "index", name: index.clone() };
                let key = definition.keys.iter().find(|key| key.name == *index).ok_or_else(missing)?;
                key.columns.iter().enumerate().map(|(i, &column)| (column, key.order(i))).collect()
            }
        };
        if key.is_empty() {
            let message = format!("there is no previously clustered index for table \"{name}\"");
            return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message).named(name));
        }
        self.txn_for(&schema)?.cluster(&schema, &name, key)?;
        done("CLUSTER")
    }

    /// Rows that are to be inserted, in the order of the table's key, if it has one.
    pub(crate) fn clustered(&self, table: &Table, rows: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
        match &table.definition.cluster[..] {
            [] => Ok(rows),
            key => Ok(serac_engine::sorted(&rows, key, None)?.collect::<serac_engine::Result<_>>()?),
        }
    }
}
