//! The catalog as DataFusion sees it: always the running transaction's.

use crate::column_types::{QueryView, RelationPlan};
use crate::error::SqlError;
use crate::expressions::indexed_expressions;
use crate::foreign::table::ForeignRelation;
use crate::identifiers::{CATALOG_SCHEMA, INFORMATION_SCHEMA, SEARCH_PATH, TEMPORARY_SCHEMA, is_system_schema};
use crate::parsed::Source;
use crate::pg_catalog::sequence_relation::SequenceRelation;
use crate::pg_catalog::system_table;
use crate::serac_views::{SYSTEM_VIEWS, system_view};
use crate::session_env::{PlannedFor, SessionEnv, owner_planned_for};
use crate::session_roles::readable;
use crate::session_roles::target_columns;
use crate::statement_snapshot::StatementSnapshot;
use async_trait::async_trait;
use datafusion::arrow::datatypes::Schema as ArrowSchema;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlanBuilder, col};
use futures::FutureExt;
use serac_engine::DEFAULT_SCHEMA;
use serac_engine::Table;
use serac_engine::security::{Columns, Object, Privilege};
use serac_query::optimizer::has_volatile;
use serac_query::scan::{HiddenColumns, SeracTable, denied};
use serac_query::shared::{self, Sharing, volatile_queries};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

impl SessionEnv {
    /// A table as the running statement sees it, with these hidden columns.
    pub(crate) fn provider(&self, view: &StatementSnapshot, table: &Arc<Table>, hidden: HiddenColumns) -> SeracTable {
        let schema = &table.definition.schema;
        let before = view.before(schema);
        // Relaxed: the session's own statements change it.
        let uses_bitmaps = before.is_none() && self.bitmap_indexes.load(Ordering::Relaxed);
        let own = uses_bitmaps.then(|| view.own(schema));
        let reads = view.reads.clone().filter(|_| schema != TEMPORARY_SCHEMA);
        let columns = match hidden.row_id {
            true => target_columns(&view.access, table),
            false => readable(&self.access(view), table),
        };
        let has_expressions = table.definition.columns.last().is_some_and(|column| column.hidden);
        let state = self.state.get().and_then(Weak::upgrade).filter(|_| has_expressions);
        let expressions = state.map_or_else(Vec::new, |state| indexed_expressions(&state.read(), &table.definition));
        let snapshot = before.unwrap_or(view.of(schema).1).clone();
        let provider = SeracTable::new(table.clone(), snapshot, own, hidden);
        provider.noting(reads).allowing(columns).knowing(expressions)
    }
}

#[derive(Debug)]
pub(crate) struct TransactionCatalog(pub(crate) Arc<SessionEnv>);

impl CatalogProvider for TransactionCatalog {
    fn schema_names(&self) -> Vec<String> {
        let Some(view) = self.0.view() else { return Vec::new() };
        let temporary = view.temporary.is_some().then(|| TEMPORARY_SCHEMA.to_owned());
        let system = [CATALOG_SCHEMA, INFORMATION_SCHEMA].map(str::to_owned);
        let shown = |name: &&String| view.access.check_usage(name).is_ok();
        view.catalog.schemas.keys().filter(shown).cloned().chain(temporary).chain(system).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let system = is_system_schema(name);
        let known = system || name == SEARCH_PATH || self.0.view().is_some_and(|view| view.schema(name).is_some());
        known.then(|| Arc::new(TransactionSchema { shared: self.0.clone(), name: name.into() }) as _)
    }
}

#[derive(Debug)]
struct TransactionSchema {
    shared: Arc<SessionEnv>,
    name: String,
}

#[async_trait]
impl SchemaProvider for TransactionSchema {
    fn table_names(&self) -> Vec<String> {
        if is_system_schema(&self.name) {
            return system_table::table_names(&self.name);
        }
        let Some(view) = self.shared.view() else { return Vec::new() };
        let Some(schema) = view.schema(&self.name) else { return Vec::new() };
        let tables = schema.tables.values().filter(|table| readable(&view.access, table) != Columns::None);
        let may_read = |name: &&String| view.access.may(&Object::relation(&self.name, name), Privilege::Select);
        let others = schema.views.keys().chain(schema.foreign_tables.keys()).filter(may_read).cloned();
        tables.map(|table| table.name().to_owned()).chain(others).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        table_of(&self.shared, &self.name, name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        if is_system_schema(&self.name) {
            return system_table::is_table(&self.name, name);
        }
        let Some(view) = self.shared.view() else { return false };
        let schema = if self.name == SEARCH_PATH { view.schema_of(name) } else { &self.name };
        SYSTEM_VIEWS.contains(&name)
            || (self.name == SEARCH_PATH && system_table::is_table(CATALOG_SCHEMA, name))
            || view.schema(schema).is_some_and(|schema| schema.is_relation(name))
    }
}

/// A relation of the running statement.
pub(crate) async fn table_of(
    shared: &Arc<SessionEnv>,
    schema: &str,
    name: &str,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let in_path = schema == SEARCH_PATH;
    let Some(view) = shared.view() else { return Ok(None) };
    if name == "pg_stat_activity" && (in_path || schema == CATALOG_SCHEMA) {
        return system_view(name, &view, &shared.sql);
    }
    if is_system_schema(schema) {
        return system_table::table(shared, schema, name).await;
    }
    let schema_name = match in_path {
        // In a view's query, an unqualified name means the default schema: when the view was made,
        // names of other schemas were written out.
        true if owner_planned_for().is_some() => DEFAULT_SCHEMA,
        true => view.schema_of(name),
        false => schema,
    };
    // System tables come before those of users, as in PostgreSQL, but behind temporary ones.
    if in_path && schema_name != TEMPORARY_SCHEMA && system_table::is_table(CATALOG_SCHEMA, name) {
        return system_table::table(shared, CATALOG_SCHEMA, name).await;
    }
    let Some(schema) = view.schema(schema_name) else { return Ok(None) };
    let access = shared.access(&view);
    let refused = |error: SqlError| DataFusionError::External(Box::new(error));
    let known = schema.is_relation(name);
    if schema_name != TEMPORARY_SCHEMA && (known || !SYSTEM_VIEWS.contains(&name)) {
        access.check_usage(schema_name).map_err(|error| refused(error.into()))?;
    }
    if let Some(table) = schema.tables.get(name) {
        // A view of a table that its owner may not read any more can be described, and not scanned.
        if readable(&access, table) == Columns::None && owner_planned_for().is_none() {
            return Err(refused(denied(name)));
        }
        if table.definition.materialized.as_ref().is_some_and(|materialized| !materialized.populated) {
            let message = format!("materialized view \"{name}\" has not been populated");
            return Err(refused(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message).named(name)));
        }
        return Ok(Some(Arc::new(shared.provider(&view, table, HiddenColumns::default()))));
    }
    let object = Object::relation(schema_name, name);
    if let Some(sequence) = schema.sequences.get(name) {
        // Those of temporary tables are the session's own.
        if schema_name != TEMPORARY_SCHEMA {
            access.check(&object, Privilege::Select).map_err(|error| refused(error.into()))?;
        }
        return Ok(Some(Arc::new(SequenceRelation::new(sequence.clone()))));
    }
    if let Some(table) = schema.foreign_tables.get(name) {
        if access.columns(&table.definition, Privilege::Select) == Columns::None && owner_planned_for().is_none() {
            return Err(refused(denied(name)));
        }
        return Ok(Some(Arc::new(ForeignRelation::new(shared, &view, table).map_err(refused)?)));
    }
    let Some(definition) = schema.views.get(name).cloned() else {
        return system_view(name, &view, &shared.sql);
    };
    access.check(&object, Privilege::Select).map_err(|error| refused(error.into()))?;
    let mut query = planned_for_owner(shared, &object, &definition.query).await.map_err(refused)?;
    if !definition.columns.is_empty() {
        let columns = query.plan.schema().columns();
        // Columns behind the last that the view names keep their own names.
        let names = definition.columns.iter().map(Some).chain(std::iter::repeat(None));
        let renamed = columns.into_iter().zip(names.clone()).map(|(column, name)| match name {
            Some(name) => col(column).alias(name),
            None => col(column),
        });
        query.plan = LogicalPlanBuilder::from(query.plan).project(renamed.collect::<Vec<_>>())?.build()?;
        let fields = query.columns.fields().iter().zip(names).map(|(field, name)| match name {
            Some(name) => Arc::new(field.as_ref().clone().with_name(name)),
            None => field.clone(),
        });
        query.columns = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
    }
    // Each place that names a volatile view computes it for itself, as in PostgreSQL.
    if !has_volatile(&query.plan) && volatile_queries(&query.plan)?.is_empty() {
        query.plan = shared::shared(name, query.plan, Sharing::Worthwhile);
    }
    Ok(Some(Arc::new(QueryView::new(query, definition.query.clone()))))
}

/// The plan of a view's query, with the rights of the view's owner.
pub(crate) async fn planned_for_owner(
    shared: &Arc<SessionEnv>,
    object: &Object,
    query: &str,
) -> Result<RelationPlan, SqlError> {
    let view = shared.view().ok_or_else(|| SqlError::new(sqlstate::INTERNAL_ERROR, "no statement is running"))?;
    let _for_owner = PlannedFor::new(object, view.access.security().owner(object))?;
    let state = shared.state.get().and_then(Weak::upgrade);
    let state = state.ok_or_else(|| SqlError::new(sqlstate::INTERNAL_ERROR, "the session has ended"))?;
    let state = state.read().clone();
    view_plan(&state, query).await.map_err(SqlError::unplaced)
}

async fn view_plan(state: &SessionState, query: &str) -> Result<RelationPlan, SqlError> {
    let source = Source::of_query(query)?;
    // Boxed, so that the futures around it need not know of the trees.
    async move { crate::binding::of_relation(state, &source).await }.boxed().await
}
