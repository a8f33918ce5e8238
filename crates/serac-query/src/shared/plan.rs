//! The physical plan of a statement with shared queries.

use super::exec::{SharedQueryExec, SharedScanExec, WithExec};
use super::table::{SharedQuery, SharedTable};
use crate::optimizer::Planner;
use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue, internal_datafusion_err};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::utils::{conjunction, disjunction, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::PhysicalPlanner;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A place that reads a query.
pub(super) struct Reader {
    /// The columns that it reads.
    columns: Vec<usize>,
    /// Its filters, over the columns of the query.
    filters: Vec<Expr>,
}

impl Reader {
    /// The columns that must have a value, with it, as far as filters say so directly.
    pub(super) fn wanted_values(&self) -> HashMap<&Column, &ScalarValue> {
        fn bare(expr: &Expr) -> &Expr {
            match expr {
                Expr::Cast(cast) => bare(&cast.expr),
                Expr::Alias(alias) => bare(&alias.expr),
                expr => expr,
            }
        }
        fn value(filter: &Expr) -> Option<(&Column, &ScalarValue)> {
            let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = filter else { return None };
            match (bare(left), bare(right)) {
                (Expr::Column(column), Expr::Literal(value, _)) | (Expr::Literal(value, _), Expr::Column(column)) => {
                    Some((column, value))
                }
                _ => None,
            }
        }
        self.filters.iter().filter_map(value).collect()
    }
}

/// The readers of queries, by number.
pub(super) type Readers = BTreeMap<u64, (Arc<SharedQuery>, Vec<Reader>)>;

/// A query with the columns that are read.
struct Reduced {
    query: Arc<SharedQuery>,
    columns: Vec<usize>,
    plan: LogicalPlan,
}

/// The plan of a statement that reads shared queries, to be optimized; `None` if it reads none.
///
/// # Errors
/// DataFusion's.
pub(crate) async fn planned(plan: &LogicalPlan, session: &dyn Session) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut readers = Readers::new();
    add_readers(plan, &mut readers)?;
    if readers.is_empty() {
        return Ok(None);
    }
    let state = session.as_any().downcast_ref::<SessionState>();
    let state = state.ok_or_else(|| internal_datafusion_err!("a plan of WITH needs the state of its session"))?;
    // Those with greater numbers read those with lower ones, and not the other way round.
    let mut reduced = Vec::new();
    while let Some((_, (query, own))) = readers.pop_last() {
        let query = reduced_to(query, &own, state)?;
        add_readers(&query.plan, &mut readers)?;
        reduced.push(query);
    }
    // Without rules: they work on the whole plan.
    let bare = SessionStateBuilder::new_from_existing(state.clone()).with_physical_optimizer_rules(Vec::new()).build();
    let planner = Planner::of_physical_plans();
    let (mut tables, mut queries) = (BTreeMap::new(), Vec::new());
    for Reduced { query, columns, plan } in reduced.into_iter().rev() {
        let rows = planner.create_physical_plan(&with_tables(plan, &tables)?, &bare).await?;
        let schema = Arc::new(query.schema.project(&columns)?);
        let exec = Arc::new(SharedQueryExec::new(&query, rows));
        let scan = SharedScanExec::new(&exec, schema, session.config().target_partitions())?;
        let table = PlannedTable { schema: query.schema.clone(), columns, scan };
        queries.push((exec, table.scan.partitions()));
        tables.insert(query.number, Arc::new(table));
    }
    let rows = planner.create_physical_plan(&with_tables(plan.clone(), &tables)?, &bare).await?;
    Ok(Some(Arc::new(WithExec::new(rows, queries))))
}

/// The shared query whose rows a scan reads.
pub(super) fn shared_table(scan: &TableScan) -> Option<Arc<SharedQuery>> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<SharedTable>().map(|table| table.0.clone())
}

pub(super) fn add_readers(plan: &LogicalPlan, readers: &mut Readers) -> Result<()> {
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::TableScan(scan) = plan
            && let Some(query) = shared_table(scan)
        {
            let all = || (0..query.schema.fields().len()).collect();
            let columns = scan.projection.clone().unwrap_or_else(all);
            let filters = scan.filters.iter().flat_map(split_conjunction).cloned().collect();
            let number = query.number;
            let (_, own) = readers.entry(number).or_insert_with(|| (query, Vec::new()));
            own.push(Reader { columns, filters });
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The query with the columns and the rows that its readers need.
fn reduced_to(query: Arc<SharedQuery>, readers: &[Reader], state: &SessionState) -> Result<Reduced> {
    let all = query.schema.fields().len();
    let mut columns: BTreeSet<usize> = readers.iter().flat_map(|reader| reader.columns.iter().copied()).collect();
    columns.extend(&query.order);
    if query.has_all_columns {
        columns.extend(0..all);
    }
    if columns.is_empty() && all > 0 {
        // A file has no rows without columns.
        let is_short = |at: &usize| {
            query.schema.field(*at).data_type().primitive_width().is_some()
                || *query.schema.field(*at).data_type() == DataType::Boolean
        };
        columns.insert((0..all).find(is_short).unwrap_or(0));
    }
    let columns: Vec<usize> = columns.into_iter().collect();
    let filters = common_filters(&query, readers)?;
    if columns.len() == all && filters.is_empty() {
        let plan = query.optimized.clone();
        return Ok(Reduced { query, columns, plan });
    }
    let mut plan = LogicalPlanBuilder::from(query.analyzed.clone());
    if let Some(filter) = conjunction(filters) {
        plan = plan.filter(filter)?;
    }
    let schema = query.analyzed.schema();
    let read = columns.iter().map(|at| Expr::Column(Column::from(schema.qualified_field(*at))));
    let plan = plan.project(read.collect::<Vec<_>>())?.build()?;
    let plan = state.optimizer().optimize(plan, state, |_, _| {})?;
    Ok(Reduced { query, columns, plan })
}

/// Conditions that hold for all rows that any of the readers keeps, over the columns of the query's
/// plan.
fn common_filters(query: &SharedQuery, readers: &[Reader]) -> Result<Vec<Expr>> {
    if readers.iter().any(|reader| reader.filters.is_empty()) {
        return Ok(Vec::new());
    }
    let mut alternatives: Vec<Vec<Expr>> = Vec::new();
    for reader in readers {
        let filters = reader.filters.iter().map(|filter| over_plan(query, filter)).collect::<Result<Vec<_>>>()?;
        if !alternatives.contains(&filters) {
            alternatives.push(filters);
        }
    }
    let any_of = |alternatives: Vec<Option<Expr>>| -> Option<Expr> {
        let mut differing: Vec<Expr> = Vec::new();
        for alternative in alternatives {
            let alternative = alternative?;
            if !differing.contains(&alternative) {
                differing.push(alternative);
            }
        }
        disjunction(differing)
    };
    let mut common = Vec::new();
    // Conditions on one column may get further than all of them together: below an aggregation if
    // it is one of its keys.
    let columns: BTreeSet<&Column> = alternatives.iter().flatten().flat_map(Expr::column_refs).collect();
    for column in columns {
        let is_own = |filter: &&Expr| filter.column_refs() == HashSet::from([column]);
        let of_column = |filters: &Vec<Expr>| conjunction(filters.iter().filter(is_own).cloned());
        common.extend(any_of(alternatives.iter().map(of_column).collect()));
    }
    let is_more = alternatives.len() > 1 || alternatives.iter().flatten().any(|filter| filter.column_refs().len() != 1);
    if is_more {
        common.extend(any_of(alternatives.into_iter().map(conjunction).collect()));
    }
    Ok(common)
}

/// A filter over the columns of a scan as one over those of the query's plan.
fn over_plan(query: &SharedQuery, filter: &Expr) -> Result<Expr> {
    let schema = query.analyzed.schema();
    let over = filter.clone().transform_up(|part| match part {
        Expr::Column(column) => {
            let at = query.schema.index_of(&column.name)?;
            Ok(Transformed::yes(Expr::Column(Column::from(schema.qualified_field(at)))))
        }
        other => Ok(Transformed::no(other)),
    });
    over.data()
}

/// The plan with tables that can be scanned.
fn with_tables(plan: LogicalPlan, tables: &BTreeMap<u64, Arc<PlannedTable>>) -> Result<LogicalPlan> {
    plan.transform_down_with_subqueries(|plan| {
        let LogicalPlan::TableScan(mut scan) = plan else { return Ok(Transformed::no(plan)) };
        let Some(query) = shared_table(&scan) else { return Ok(Transformed::no(LogicalPlan::TableScan(scan))) };
        let table = tables.get(&query.number).cloned();
        scan.source = provider_as_source(table.ok_or_else(|| internal_datafusion_err!("a query of WITH is missing"))?);
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })
    .data()
}

/// A shared query that has a physical plan.
#[derive(Debug)]
struct PlannedTable {
    schema: SchemaRef,
    /// The columns that are computed.
    columns: Vec<usize>,
    /// Reads all of them.
    scan: SharedScanExec,
}

#[async_trait]
impl TableProvider for PlannedTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(projection) = projection else { return Ok(Arc::new(self.scan.clone())) };
        let place = |column: &usize| {
            let at = self.columns.iter().position(|own| own == column);
            at.ok_or_else(|| internal_datafusion_err!("a column of WITH is missing"))
        };
        let places = projection.iter().map(place).collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(self.scan.projected(&places)?))
    }
}
