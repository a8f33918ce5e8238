//! Materialized views: tables that have the rows of a query, and get new ones by REFRESH alone.
//!
//! CREATE runs the query once, as CREATE TABLE AS does. REFRESH runs it with the rights of the owner, in the statement's snapshot, and puts its rows in the
//! place of the others, as TRUNCATE and INSERT in one transaction do: whoever reads meanwhile sees the old rows, so that CONCURRENTLY asks for nothing more.

use super::{SchemaWriter, done, text_of};
use crate::catalog::planned_for_owner;
use crate::dialect::parser;
use crate::error::{Result, SqlError};
use crate::identifiers::{TEMPORARY_SCHEMA, fold};
use crate::maintenance::{arguments_of_call, call};
use crate::parsed::Source;
use crate::query::with_types;
use crate::session::{Session, StatementResult};
use crate::visits::visit_mut;
use crate::visits::visit_relations;
use datafusion::arrow::array::RecordBatch;
use datafusion::prelude::DataFrame;
use datafusion::sql::sqlparser::ast::{CreateTableOptions, CreateView, Statement};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use serac_engine::Table;
use serac_engine::definition::{Materialized, TableDefinition};
use serac_engine::roles::Object;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What the parser gives REFRESH as: a function that no user has.
const REFRESH: &str = "serac refresh";

/// WITH [NO] DATA, if it comes next; whether there are to be rows.
fn with_data(parser: &mut Parser<'_>) -> std::result::Result<bool, ParserError> {
    if parser.parse_keywords(&[Keyword::WITH, Keyword::NO, Keyword::DATA]) {
        return Ok(false);
    }
    let _ = parser.parse_keywords(&[Keyword::WITH, Keyword::DATA]);
    Ok(true)
}

/// REFRESH MATERIALIZED VIEW, or ALTER MATERIALIZED VIEW, which is an ALTER TABLE, if it comes next.
pub(crate) fn statement(parser: &mut Parser<'_>) -> std::result::Result<Option<Statement>, ParserError> {
    if parser.parse_keywords(&[Keyword::ALTER, Keyword::MATERIALIZED, Keyword::VIEW]) {
        return parser.parse_alter_table(false).map(Some);
    }
    if !parser.parse_keywords(&[Keyword::REFRESH, Keyword::MATERIALIZED, Keyword::VIEW]) {
        return Ok(None);
    }
    let _ = parser.parse_keyword(Keyword::CONCURRENTLY);
    let name = parser.parse_object_name(false)?.to_string();
    let data = if with_data(parser)? { "data" } else { "" };
    call(REFRESH, &[&name, data]).map(Some)
}

/// WITH [NO] DATA after CREATE MATERIALIZED VIEW or CREATE TABLE AS, of which the parser does not know.
pub(crate) fn clause(parser: &mut Parser<'_>, statement: &mut Statement) -> std::result::Result<(), ParserError> {
    match statement {
        // Another database's flag, which stands for NO DATA here.
        Statement::CreateView(view) if view.materialized => view.with_no_schema_binding = !with_data(parser)?,
        // The binder's tree tells it of a table.
        Statement::CreateTable(create) if create.query.is_some() => _ = with_data(parser)?,
        _ => {}
    }
    Ok(())
}

impl Session {
    pub(super) async fn create_materialized(
        &mut self,
        mut view: CreateView,
        source: Option<&Source>,
    ) -> Result<StatementResult> {
        let (schema, name) = self.locate_new(&view.name)?;
        if view.if_not_exists && self.txn()?.catalog().table(&schema, &name).is_ok() {
            self.say_exists("42P07", &format!("relation \"{name}\""));
            return done("CREATE MATERIALIZED VIEW");
        }
        self.refuse_temporary(&view, &schema)?;
        let populated = !view.with_no_schema_binding;
        let (frame, told) = self.frame_of_relation(text_of(source)?).await?;
        let (columns, rows) = self.collect_with_schema(frame).await?;
        let columns = with_types(&told, &columns);
        let names: Vec<String> = view.columns.iter().map(|column| fold(&column.name)).collect();
        if names.len() > columns.fields().len() {
            return Err(SqlError::new("42601", "too many column names were specified"));
        }
        let mut definition =
            TableDefinition::new(schema.clone(), name, super::columns_of_rows(&columns, &rows, false)?);
        for (column, name) in definition.columns.iter_mut().zip(names) {
            column.name = name;
        }
        if let CreateTableOptions::With(options) = &view.options {
            definition.freeze_format = super::freeze_format(options)?.unwrap_or_default();
        }
        let seen = self.shared.view().expect("a statement is running");
        let mut writer = SchemaWriter { seen: &seen, expressions: HashSet::new() };
        let _ = visit_mut(&mut view.query, &mut writer);
        definition.materialized = Some(Materialized { query: view.query.to_string(), populated });
        let table = self.txn()?.create_table(definition)?;
        let rows = self.fill(&table, &rows)?;
        let tag = if populated { format!("SELECT {rows}") } else { "CREATE MATERIALIZED VIEW".into() };
        Ok(StatementResult::Command { tag, rows })
    }

    /// Refuses a view in the schema of temporary tables, and one of such tables.
    pub(super) fn refuse_temporary(&self, view: &CreateView, schema: &str) -> Result<()> {
        let temporary = visit_relations(&view.query, |relation| match self.locate(relation) {
            Ok((schema, _)) if schema == TEMPORARY_SCHEMA => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        if temporary.is_break() || schema == TEMPORARY_SCHEMA {
            return Err(SqlError::unsupported("a view of temporary tables"));
        }
        Ok(())
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

    /// Runs REFRESH; none if the statement is another.
    pub(super) async fn refresh(&mut self, statement: &Statement) -> Result<Option<StatementResult>> {
        let Some(arguments) = arguments_of_call(statement, REFRESH) else { return Ok(None) };
        let [name, data] = &arguments[..] else { return Ok(None) };
        let name = parser(name)?.parse_object_name(false)?;
        let (schema, name) = self.locate(&name)?;
        let definition = self.txn_for(&schema)?.catalog().table(&schema, &name)?.definition.clone();
        let Some(materialized) = &definition.materialized else {
            return Err(SqlError::new("42809", format!("\"{name}\" is not a materialized view")).named(name));
        };
        // Who may not refresh it is told so before its query runs.
        let populated = !data.is_empty();
        let table = self.txn()?.empty_materialized(&schema, &name, populated)?;
        if populated {
            let (shared, view) = (self.shared.clone(), Object::relation(&schema, &name));
            let query = materialized.query.clone();
            let plan = self.planning(async move { planned_for_owner(&shared, &view, &query).await }).await?.plan;
            let (found, wanted) = (plan.schema().fields().len(), definition.visible_columns().len());
            if found != wanted {
                let message = format!("the query of materialized view \"{name}\" has {found} columns, not {wanted}");
                return Err(SqlError::new("42P16", message).named(name));
            }
            let rows = self.collect(DataFrame::new(self.state(), plan)).await?;
            self.fill(&table, &rows)?;
        }
        Ok(Some(StatementResult::command("REFRESH MATERIALIZED VIEW")))
    }
}
