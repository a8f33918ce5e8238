//! The system tables as DataFusion scans them.

use crate::error::SqlError;
use crate::identifiers::{CATALOG_SCHEMA, INFORMATION_SCHEMA};
use crate::pg_catalog::layout::{LAYOUTS, Layout, Rows, find};
use crate::pg_catalog::scope::Scope;
use crate::pg_catalog::{fixed, information_schema};
use crate::session_env::SessionEnv;
use crate::statement_snapshot::StatementSnapshot;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{MemoryCatalogProviderList, SchemaProvider, Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use serac_engine::security::RoleId;
use serac_parser::tree::Name;
use std::sync::Arc;

/// Names of the tables of a system schema.
pub(crate) fn table_names(schema: &str) -> Vec<String> {
    LAYOUTS.iter().filter(|layout| layout.schema == schema).map(|layout| layout.name.to_owned()).collect()
}

pub(crate) fn is_table(schema: &str, name: &str) -> bool {
    find(schema, name).is_some()
}

/// Whether a name is that of a system table.
pub(crate) fn is_named(name: &Name) -> bool {
    match &name.parts[..] {
        [table] => is_table(CATALOG_SCHEMA, &table.name),
        [schema, table] => is_table(&schema.name, &table.name),
        _ => false,
    }
}

/// The role whose members alone read a system table, besides superusers; `None` for a table that
/// everybody reads.
pub(super) fn guard(name: &str) -> Option<RoleId> {
    matches!(name, "pg_backend_memory_contexts" | "pg_shmem_allocations").then_some(RoleId::READ_ALL_STATS)
}

/// A system table of the running statement.
pub(crate) async fn table(
    shared: &Arc<SessionEnv>,
    schema: &str,
    name: &str,
) -> Result<Option<Arc<dyn TableProvider>>> {
    if schema == INFORMATION_SCHEMA && name == "df_settings" {
        // The settings of DataFusion, which SHOW reads.
        let provider = InformationSchemaProvider::new(Arc::new(MemoryCatalogProviderList::new()));
        return provider.table(name).await;
    }
    let Some(layout) = find(schema, name) else { return Ok(None) };
    if let (Some(view), Some(guard)) = (shared.view(), guard(name))
        && !view.access.has_privileges_of(guard)
    {
        let error = SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, format!("permission denied for view {name}"));
        return Err(DataFusionError::External(Box::new(error)));
    }
    Ok(shared.view().map(|view| Arc::new(SystemTable { layout, shared: shared.clone(), view }) as _))
}

/// A system table: its rows are made when a scan is planned.
#[derive(Debug)]
pub(crate) struct SystemTable {
    layout: &'static Layout,
    shared: Arc<SessionEnv>,
    view: StatementSnapshot,
}

#[async_trait]
impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        self.layout.arrow()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut rows = Rows::new(self.layout);
        let scope = Scope::new(&self.shared, &self.view);
        match self.layout.schema {
            INFORMATION_SCHEMA => information_schema::fill(&scope, self.layout.name, &mut rows),
            _ => fixed::fill(&scope, self.layout.name, &mut rows),
        }
        let batch = rows.batch()?;
        Ok(MemorySourceConfig::try_new_exec(&[vec![batch]], self.schema(), projection.cloned())?)
    }
}
