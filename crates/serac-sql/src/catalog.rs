//! The catalog as DataFusion sees it: always the running transaction's.

use crate::scan::SeracTable;
use async_trait::async_trait;
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlanBuilder, col};
use parking_lot::RwLock;
use serac_engine::{Catalog, Database};
use serac_storage::Snapshot;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

/// Name of the one catalog.
pub(crate) const CATALOG: &str = "serac";

/// What statements of a session see.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) snapshot: Snapshot,
}

/// The parts of a session that DataFusion reaches back to.
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) view: RwLock<Option<View>>,
    /// Tables of the running statement, by names that no user has.
    pub(crate) temporary: RwLock<HashMap<String, Arc<dyn TableProvider>>>,
    pub(crate) state: OnceLock<Weak<RwLock<SessionState>>>,
    /// Values that this session got from sequences.
    pub(crate) sequence_values: RwLock<HashMap<String, i64>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    pub(crate) fn view(&self) -> Option<View> {
        self.view.read().clone()
    }
}

#[derive(Debug)]
pub(crate) struct TransactionCatalog(pub(crate) Arc<Shared>);

impl CatalogProvider for TransactionCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.0.view().map(|v| v.catalog.schemas.keys().cloned().collect()).unwrap_or_default()
    }
    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let known = self.0.view().is_some_and(|v| v.catalog.schemas.contains_key(name));
        known.then(|| Arc::new(TransactionSchema { shared: self.0.clone(), name: name.into() }) as _)
    }
}

#[derive(Debug)]
struct TransactionSchema {
    shared: Arc<Shared>,
    name: String,
}

#[async_trait]
impl SchemaProvider for TransactionSchema {
    fn table_names(&self) -> Vec<String> {
        let Some(view) = self.shared.view() else { return Vec::new() };
        let Ok(schema) = view.catalog.schema(&self.name) else { return Vec::new() };
        schema.tables.keys().chain(schema.views.keys()).cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(temporary) = self.shared.temporary.read().get(name) {
            return Ok(Some(temporary.clone()));
        }
        let Some(view) = self.shared.view() else { return Ok(None) };
        let Ok(schema) = view.catalog.schema(&self.name) else { return Ok(None) };
        if let Some(table) = schema.tables.get(name) {
            return Ok(Some(Arc::new(SeracTable::new(table.clone(), view.snapshot, false))));
        }
        let Some(definition) = schema.views.get(name).cloned() else { return Ok(None) };
        let state = self.shared.state.get().and_then(Weak::upgrade);
        let state = state.ok_or_else(|| DataFusionError::Internal("the session has ended".into()))?;
        let state = state.read().clone();
        let mut plan = state.create_logical_plan(&definition.query).await?;
        if !definition.columns.is_empty() {
            let columns = plan.schema().columns();
            let renamed = columns.into_iter().zip(&definition.columns).map(|(c, name)| col(c).alias(name));
            plan = LogicalPlanBuilder::from(plan).project(renamed.collect::<Vec<_>>())?.build()?;
        }
        Ok(Some(Arc::new(ViewTable::new(plan, Some(definition.query.clone())))))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.shared.temporary.read().contains_key(name) || self.table_names().iter().any(|n| n == name)
    }
}
