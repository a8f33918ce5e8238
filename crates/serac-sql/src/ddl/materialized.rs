//! Materialized views: tables that have the rows of a query. Only REFRESH replaces the rows.
//!
//! CREATE runs the query once, as CREATE TABLE AS does. REFRESH runs it with the rights of the
//! owner, in the statement's snapshot, and replaces the old rows, as TRUNCATE and INSERT in one
//! transaction do. A concurrent reader sees the old rows, so CONCURRENTLY has no further effect.

use super::builder::names;
use super::clauses::freeze_format_of;
use super::columns_of_rows;
use crate::ddl::clauses::done;
use crate::error::{Result, SqlError};
use crate::frames::refuse_lent;
use crate::parsed::Source;
use crate::query::with_types;
use crate::resolver::planned_for_owner;
use crate::result::StatementResult;
use crate::session::Session;
use datafusion::arrow::array::RecordBatch;
use datafusion::prelude::DataFrame;
use serac_engine::Table;
use serac_engine::catalog::definition::{Materialized, TableDefinition};
use serac_engine::security::Object;
use serac_parser::tree::{CreateMaterializedView, Persistence, RefreshMaterializedView};
use std::sync::Arc;

impl Session {
    /// CREATE MATERIALIZED VIEW.
    pub(super) async fn create_materialized(
        &mut self,
        source: &Source,
        create: &CreateMaterializedView,
    ) -> Result<StatementResult> {
        let CreateMaterializedView { persistence, if_not_exists, name, columns: named, storage, query, with_data } =
            create;
        if *persistence != Persistence::Permanent {
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "materialized views cannot be unlogged"));
        }
        let freeze_format = freeze_format_of(storage, *persistence)?;
        let (schema, name) = self.locate_new(name)?;
        if *if_not_exists && self.txn()?.catalog().table(&schema, &name).is_ok() {
            self.say_exists(sqlstate::DUPLICATE_TABLE, &format!("relation \"{name}\""));
            return done("CREATE MATERIALIZED VIEW");
        }
        let text = self.view_text(source, query, &schema).await?;
        let (frame, told) = self.frame_of_relation(source).await?;
        refuse_lent(frame.logical_plan(), "a materialized view")?;
        let (columns, rows) = self.collect_with_schema(frame).await?;
        let columns = with_types(&told, &columns);
        if named.len() > columns.fields().len() {
            return Err(SqlError::new(sqlstate::SYNTAX_ERROR, "too many column names were specified"));
        }
        let mut definition = TableDefinition::new(schema, name, columns_of_rows(&columns)?);
        for (column, name) in definition.columns.iter_mut().zip(names(named)) {
            column.name = name;
        }
        definition.freeze_format = freeze_format;
        definition.materialized = Some(Materialized { query: text, populated: *with_data });
        let table = self.txn()?.create_table(definition)?;
        let rows = self.fill(&table, &rows)?;
        let tag = if *with_data { format!("SELECT {rows}") } else { "CREATE MATERIALIZED VIEW".into() };
        Ok(StatementResult::Command { tag, rows })
    }

    /// Puts the rows of a query into a table that it has just filled the columns of; how many.
    pub(super) fn fill(&mut self, table: &Arc<Table>, batches: &[RecordBatch]) -> Result<u64> {
        let targets: Vec<usize> = (0..table.definition.visible_columns().len()).collect();
        let complete = batches.iter().map(|batch| self.complete_rows(table, &targets, batch));
        let complete = complete.collect::<Result<Vec<_>>>()?;
        let mut rows = 0;
        for batch in self.clustered(table, complete)? {
            self.txn_of(table)?.insert_batch(table, &batch)?;
            rows += batch.num_rows() as u64;
        }
        Ok(rows)
    }

    /// REFRESH MATERIALIZED VIEW.
    pub(super) async fn refresh(&mut self, refresh: &RefreshMaterializedView) -> Result<StatementResult> {
        let RefreshMaterializedView { concurrently, name, with_data: populated } = refresh;
        if *concurrently && !populated {
            let message = "CONCURRENTLY and WITH NO DATA options cannot be used together";
            return Err(SqlError::new(sqlstate::SYNTAX_ERROR, message));
        }
        let (schema, name) = self.locate(name)?;
        let definition = self.txn_for(&schema)?.catalog().table(&schema, &name)?.definition.clone();
        let Some(materialized) = &definition.materialized else {
            return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a materialized view"))
                .named(name));
        };
        // A role that may not refresh it gets the error before the query runs.
        let table = self.txn()?.empty_materialized(&schema, &name, *populated)?;
        if *populated {
            let (shared, view) = (self.shared.clone(), Object::relation(&schema, &name));
            let query = materialized.query.clone();
            let plan = self.planning(async move { planned_for_owner(&shared, &view, &query).await }).await?.plan;
            let (found, wanted) = (plan.schema().fields().len(), definition.visible_columns().len());
            if found != wanted {
                let message = format!("the query of materialized view \"{name}\" has {found} columns, not {wanted}");
                return Err(SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, message).named(name));
            }
            let rows = self.collect(DataFrame::new(self.state(), plan)).await?;
            self.fill(&table, &rows)?;
        }
        done("REFRESH MATERIALIZED VIEW")
    }
}
