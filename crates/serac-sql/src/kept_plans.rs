//! Plans of a statement for its next executions: of a prepared one, and of a text that the session
//! sees again.
//!
//! A statement is bound once for each list of types of its parameters. The bound form holds until
//! the catalog, roles and grants, or a setting that plans depend on change, as the plans of the
//! point path do. Values are put into it for each execution before it is optimized, so that indexes
//! and statistics are used as with constants.
//!
//! A query without parameters is also kept as the optimizer has left it. That form holds until the
//! number of a table's rows has changed by more than a fifth, because the order of joins depends on
//! it. The optimizer computes stable functions, such as `now()`, and reads texts as times, such as
//! `today`: it works anew for queries with one.
//!
//! A kept plan names tables in no snapshot; an execution puts them in as it sees them. The catalog
//! alone keeps tables: a plan of a table that has been dropped keeps none of its rows in memory.
//! Statements that read other relations (system tables, functions of rows of the session), or have
//! changes in their WITH, are not kept. Nor are statements that read a table through a view whose
//! owner may read other columns of the table than the user.

use crate::error::{Result, SqlError};
use crate::rows_to_come::RowsToCome;
use crate::session_env::SessionEnv;
use crate::statement_snapshot::StatementSnapshot;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session as PlanningSession, TableProvider};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::DataFusionError;
use datafusion::functions_table::generate_series::GenerateSeriesTable;
use datafusion::logical_expr::{Expr, LogicalPlan, TableSource, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use serac_binder::{BoundBody, BoundStatement};
use serac_engine::{Catalog, Table};
use serac_functions::{has_part_anywhere, is_of_statement};
use serac_pg::TypeId;
use serac_query::scan::{HiddenColumns, Readable, SeracTable};
use serac_query::shared::with_sources;
use std::sync::{Arc, Weak};

/// For how many lists of types a statement is kept.
const MOST_KEPT: usize = 4;

/// A version of a catalog that a plan depends on. It does not keep the catalog, nor its tables.
#[derive(Clone, Debug)]
pub(crate) struct CatalogVersion(Weak<Catalog>);

impl CatalogVersion {
    pub(crate) fn of(catalog: &Arc<Catalog>) -> Self {
        Self(Arc::downgrade(catalog))
    }

    /// Whether it is that of a catalog. Without a count in the catalog, which all sessions share.
    pub(crate) fn is(&self, catalog: &Arc<Catalog>) -> bool {
        self.0.as_ptr() == Arc::as_ptr(catalog)
    }
}

impl PartialEq for CatalogVersion {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.0, &other.0)
    }
}

/// The state under which a bound statement holds.
struct PlanDependencies {
    session: Weak<SessionEnv>,
    catalog: CatalogVersion,
    /// The catalog of the session's temporary tables.
    temporary: Option<CatalogVersion>,
    /// The version of roles, owners and grants.
    security: u64,
    settings: u64,
}

impl PlanDependencies {
    fn now(shared: &Arc<SessionEnv>, view: &StatementSnapshot) -> Self {
        Self {
            session: Arc::downgrade(shared),
            catalog: CatalogVersion::of(&view.catalog),
            temporary: view.temporary.as_ref().map(|(catalog, ..)| CatalogVersion::of(catalog)),
            security: shared.database.security_version(),
            settings: shared.settings(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.session, &other.session)
            && self.catalog == other.catalog
            && self.temporary == other.temporary
            && (self.security, self.settings) == (other.security, other.settings)
    }
}

/// A bound statement, and its dependencies.
struct KeptPlan {
    under: PlanDependencies,
    types: Vec<TypeId>,
    bound: BoundStatement,
    optimized: Option<OptimizedQuery>,
}

/// A query as the optimizer has left it.
struct OptimizedQuery {
    plan: LogicalPlan,
    /// The columns of its result, with the names that are shown.
    names: SchemaRef,
    /// Whether these are PostgreSQL's.
    postgresql_names: bool,
    /// Its tables, and how many rows these had.
    tables: Vec<(Weak<Table>, u64)>,
}

impl OptimizedQuery {
    /// Whether the optimizer would find tables of about the same size.
    fn holds(&self) -> bool {
        self.tables.iter().all(|(table, before)| {
            let rows = table.upgrade().map(|table| table.data.approximate_rows());
            rows.is_some_and(|rows| rows.abs_diff(*before).saturating_mul(5) <= rows)
        })
    }
}

/// The plans of a statement.
#[derive(Default)]
pub(crate) struct KeptPlans(Mutex<Vec<KeptPlan>>);

/// A table of a kept plan.
#[derive(Debug)]
struct KeptTable {
    table: Weak<Table>,
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
        *plan = with_sources(std::mem::take(plan), other)?;
    }
    if let BoundBody::Change(change) = &mut bound.body {
        let target = &mut change.target_mut().relation;
        if let Some(source) = other(&target.source)? {
            target.source = source;
        }
    }
    Ok(())
}

/// Puts tables into a kept plan as the running statement sees them.
fn in_snapshot(
    shared: &Arc<SessionEnv>,
    view: &StatementSnapshot,
    source: &Source,
) -> Result<Option<Source>, DataFusionError> {
    let provider = source_as_provider(source)?;
    let Some(KeptTable { table, hidden, .. }) = provider.downcast_ref() else { return Ok(None) };
    let gone = || SqlError::new(sqlstate::INTERNAL_ERROR, "the catalog has lost a table of a kept plan").external();
    let table = table.upgrade().ok_or_else(gone)?;
    Ok(Some(provider_as_source(Arc::new(shared.provider(view, &table, *hidden)))))
}

/// Takes the snapshot out of the tables of a plan that is to be kept.
struct Keeping<'s> {
    shared: &'s Arc<SessionEnv>,
    view: &'s StatementSnapshot,
    /// Whether all of its relations so far can be kept.
    is_possible: bool,
    /// Its tables, and how many rows these have.
    tables: Vec<(Weak<Table>, u64)>,
}

impl<'s> Keeping<'s> {
    fn new(shared: &'s Arc<SessionEnv>, view: &'s StatementSnapshot) -> Self {
        Self { shared, view, is_possible: true, tables: Vec::new() }
    }

    fn source(&mut self, source: &Source) -> Option<Source> {
        let Ok(provider) = source_as_provider(source) else {
            self.is_possible = false;
            return None;
        };
        let Some(read) = provider.downcast_ref::<SeracTable>() else {
            self.is_possible &= is_of_all_times(&provider);
            return None;
        };
        let (table, hidden) = (read.table(), read.hidden());
        self.is_possible &= self.shared.provider(self.view, table, hidden).allowed() == read.allowed();
        let rows = table.data.approximate_rows();
        let table = Arc::downgrade(table);
        self.tables.push((table.clone(), rows));
        Some(provider_as_source(Arc::new(KeptTable { table, hidden, schema: provider.schema() })))
    }
}

impl KeptPlans {
    /// Asks `wanted` for a part of the plan that is kept for parameters of these types. Gives it
    /// with the view of the running statement.
    fn of_types<T>(
        &self,
        shared: &Arc<SessionEnv>,
        types: &[TypeId],
        wanted: impl FnOnce(&mut KeptPlan) -> Option<T>,
    ) -> Option<(T, StatementSnapshot)> {
        let view = shared.view()?;
        let now = PlanDependencies::now(shared, &view);
        let mut kept = self.0.lock();
        kept.retain(|kept| kept.under.is_same(&now));
        let found = kept.iter_mut().find(|kept| kept.types == types).and_then(wanted)?;
        Some((found, view))
    }

    /// The statement for parameters of these types, as the running statement sees its tables;
    /// `None` if it is not kept.
    ///
    /// # Errors
    /// DataFusion's.
    pub(crate) fn find(&self, shared: &Arc<SessionEnv>, types: &[TypeId]) -> Result<Option<BoundStatement>> {
        let found = self.of_types(shared, types, |kept| Some(kept.bound.clone()));
        let Some((mut bound, view)) = found else { return Ok(None) };
        put_sources(&mut bound, &mut |source| in_snapshot(shared, &view, source))?;
        Ok(Some(bound))
    }

    /// The optimized plan of a query without parameters, as the running statement sees its tables,
    /// and the columns of its result; `None` if it is not kept, or holds no longer.
    ///
    /// # Errors
    /// DataFusion's.
    pub(crate) fn find_optimized(
        &self,
        shared: &Arc<SessionEnv>,
        types: &[TypeId],
        postgresql_names: bool,
    ) -> Result<Option<(LogicalPlan, SchemaRef)>> {
        let found = self.of_types(shared, types, |kept| {
            kept.optimized.take_if(|optimized| !optimized.holds());
            let optimized = kept.optimized.as_ref().filter(|kept| kept.postgresql_names == postgresql_names)?;
            Some((optimized.plan.clone(), optimized.names.clone()))
        });
        let Some(((plan, names), view)) = found else { return Ok(None) };
        Ok(Some((with_sources(plan, &mut |source| in_snapshot(shared, &view, source))?, names)))
    }

    /// Whether an optimized plan holds.
    #[cfg(test)]
    pub(crate) fn has_optimized(&self) -> bool {
        self.0.lock().iter().any(|kept| kept.optimized.as_ref().is_some_and(OptimizedQuery::holds))
    }

    /// Keeps the statement for parameters of these types, if it can be kept.
    ///
    /// # Errors
    /// DataFusion's.
    pub(crate) fn keep(&self, shared: &Arc<SessionEnv>, types: Vec<TypeId>, bound: &BoundStatement) -> Result<()> {
        let Some(view) = shared.view().filter(|_| bound.parts.is_empty()) else { return Ok(()) };
        let mut bound = bound.clone();
        let mut keeping = Keeping::new(shared, &view);
        put_sources(&mut bound, &mut |source| Ok(keeping.source(source)))?;
        if keeping.is_possible {
            let mut kept = self.0.lock();
            if kept.len() >= MOST_KEPT {
                kept.remove(0);
            }
            let under = PlanDependencies::now(shared, &view);
            kept.push(KeptPlan { under, types, bound, optimized: None });
        }
        Ok(())
    }

    /// Keeps the optimized plan of a query without parameters, if its bound form is kept. It shows
    /// columns of `names`, which are PostgreSQL's or not. The optimizer has made it of `analyzed`.
    ///
    /// # Errors
    /// DataFusion's.
    pub(crate) fn keep_optimized(
        &self,
        shared: &Arc<SessionEnv>,
        types: &[TypeId],
        analyzed: &LogicalPlan,
        plan: &LogicalPlan,
        (names, postgresql_names): (&SchemaRef, bool),
    ) -> Result<()> {
        if has_part_anywhere(analyzed, is_of_statement)? {
            return Ok(());
        }
        let Some((_, view)) = self.of_types(shared, types, |_| Some(())) else { return Ok(()) };
        let mut keeping = Keeping::new(shared, &view);
        let plan = with_sources(plan.clone(), &mut |source| Ok(keeping.source(source)))?;
        if let Keeping { is_possible: true, tables, .. } = keeping {
            let optimized = OptimizedQuery { plan, names: names.clone(), postgresql_names, tables };
            self.of_types(shared, types, |kept| {
                kept.optimized = Some(optimized);
                Some(())
            });
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
