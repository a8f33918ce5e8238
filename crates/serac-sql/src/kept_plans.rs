//! Bound forms of a prepared statement, for its next executions.
//!
//! A statement is bound once for each list of types of its parameters. The bound form holds until
//! the catalog, roles and grants, or a setting that plans depend on change, as the plans of the
//! point path do. Values are put into it for each execution before it is optimized, so that indexes
//! and statistics are used as with constants.
//!
//! A kept plan names tables in no snapshot; an execution puts them in as it sees them. Statements
//! that read other relations (system tables, functions of rows of the session), or have changes in
//! their WITH, are not kept. Nor are statements that read a table through a view whose owner may
//! read other columns of the table than the user.

use crate::error::{Result, SqlError};
use crate::rows_to_come::RowsToCome;
use crate::session_env::SessionEnv;
use crate::statement_snapshot::StatementSnapshot;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session as PlanningSession, TableProvider};
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::DataFusionError;
use datafusion::functions_table::generate_series::GenerateSeriesTable;
use datafusion::logical_expr::{Expr, LogicalPlan, TableSource, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use serac_binder::{BoundBody, BoundStatement};
use serac_engine::{Catalog, Table};
use serac_pg::TypeId;
use serac_query::scan::{HiddenColumns, Readable, SeracTable};
use std::sync::{Arc, Weak};

/// For how many lists of types a statement is kept.
const MOST_KEPT: usize = 4;

/// The state under which a bound statement holds.
struct PlanDependencies {
    session: Weak<SessionEnv>,
    catalog: Arc<Catalog>,
    /// The catalog of the session's temporary tables.
    temporary: Option<Arc<Catalog>>,
    /// The version of roles, owners and grants.
    security: u64,
    settings: u64,
}

impl PlanDependencies {
    fn now(shared: &Arc<SessionEnv>, view: &StatementSnapshot) -> Self {
        Self {
            session: Arc::downgrade(shared),
            catalog: view.catalog.clone(),
            temporary: view.temporary.as_ref().map(|(catalog, ..)| catalog.clone()),
            security: shared.database.security_version(),
            settings: shared.settings(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_same_temporary = match (&self.temporary, &other.temporary) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        Weak::ptr_eq(&self.session, &other.session)
            && Arc::ptr_eq(&self.catalog, &other.catalog)
            && is_same_temporary
            && (self.security, self.settings) == (other.security, other.settings)
    }
}

/// A bound statement, and its dependencies.
struct KeptPlan {
    under: PlanDependencies,
    types: Vec<TypeId>,
    bound: BoundStatement,
}

/// The bound forms of a statement.
#[derive(Default)]
pub(crate) struct KeptPlans(Mutex<Vec<KeptPlan>>);

/// A table of a kept plan.
#[derive(Debug)]
struct KeptTable {
    table: Arc<Table>,
    hidden: HiddenColumns,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for KeptTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn PlanningSession,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Err(SqlError::new(sqlstate::INTERNAL_ERROR, "a kept plan is read in no snapshot").external())
    }
}

type Source = Arc<dyn TableSource>;

/// Replaces the sources of a statement for which `other` gives a replacement.
fn put_sources(
    bound: &mut BoundStatement,
    other: &mut dyn FnMut(&Source) -> Result<Option<Source>, DataFusionError>,
) -> Result<()> {
    for plan in bound.plans_mut() {
        let whole = std::mem::take(plan);
        let put = whole.transform_down_with_subqueries(|plan| {
            let LogicalPlan::TableScan(mut scan) = plan else { return Ok(Transformed::no(plan)) };
            let Some(source) = other(&scan.source)? else { return Ok(Transformed::no(LogicalPlan::TableScan(scan))) };
            scan.source = source;
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        });
        *plan = put?.data;
    }
    if let BoundBody::Change(change) = &mut bound.body {
        let target = &mut change.target_mut().relation;
        if let Some(source) = other(&target.source)? {
            target.source = source;
        }
    }
    Ok(())
}

impl KeptPlans {
    /// The statement for parameters of these types, as the running statement sees its tables;
    /// `None` if it is not kept.
    ///
    /// # Errors
    /// DataFusion's.
    pub(crate) fn find(&self, shared: &Arc<SessionEnv>, types: &[TypeId]) -> Result<Option<BoundStatement>> {
        let Some(view) = shared.view() else { return Ok(None) };
        let now = PlanDependencies::now(shared, &view);
        let mut bound = {
            let mut kept = self.0.lock();
            kept.retain(|kept| kept.under.is_same(&now));
            match kept.iter().find(|kept| kept.types == types) {
                Some(kept) => kept.bound.clone(),
                None => return Ok(None),
            }
        };
        put_sources(&mut bound, &mut |source| {
            let provider = source_as_provider(source)?;
            let kept = provider.downcast_ref::<KeptTable>();
            let seen = |kept: &KeptTable| shared.provider(&view, &kept.table, kept.hidden);
            Ok(kept.map(|kept| provider_as_source(Arc::new(seen(kept)))))
        })?;
        Ok(Some(bound))
    }

    /// Keeps the statement for parameters of these types, if it can be kept.
    ///
    /// # Errors
    /// DataFusion's.
    pub(crate) fn keep(&self, shared: &Arc<SessionEnv>, types: Vec<TypeId>, bound: &BoundStatement) -> Result<()> {
        let Some(view) = shared.view().filter(|_| bound.parts.is_empty()) else { return Ok(()) };
        let mut bound = bound.clone();
        let mut can_be_kept = true;
        put_sources(&mut bound, &mut |source| {
            let Ok(provider) = source_as_provider(source) else {
                can_be_kept = false;
                return Ok(None);
            };
            let Some(table) = provider.downcast_ref::<SeracTable>() else {
                can_be_kept &= is_of_all_times(&provider);
                return Ok(None);
            };
            let schema = provider.schema();
            let hidden = table.hidden();
            let own = shared.provider(&view, table.table(), hidden);
            can_be_kept &= own.allowed() == table.allowed();
            let kept = KeptTable { table: table.table().clone(), hidden, schema };
            Ok(Some(provider_as_source(Arc::new(kept))))
        })?;
        if can_be_kept {
            let mut kept = self.0.lock();
            if kept.len() >= MOST_KEPT {
                kept.remove(0);
            }
            kept.push(KeptPlan { under: PlanDependencies::now(shared, &view), types, bound });
        }
        Ok(())
    }
}

/// Whether a relation is the same for all executions, or gets its rows from each.
fn is_of_all_times(provider: &Arc<dyn TableProvider>) -> bool {
    let rows = provider.downcast_ref::<Readable>().map(|readable| &readable.rows);
    let provider = rows.unwrap_or(provider);
    provider.is::<RowsToCome>() || provider.is::<GenerateSeriesTable>()
}
