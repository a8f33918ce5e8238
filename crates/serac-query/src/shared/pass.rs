//! The passes over shared queries: which of them are computed once, and scans in their places.

use super::node::{Shared, Sharing, counts, unmarked};
use super::plan::{Reader, Readers, add_readers};
use super::table::{SharedQuery, SharedTable, with_sort_keys};
use crate::optimizer::{Optimizing, has_volatile, is_repeatable, subquery_of};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue, TableReference};
use datafusion::logical_expr::logical_plan::TableScanBuilder;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::optimizer::{AnalyzerRule, Optimizer, OptimizerConfig, OptimizerRule};
use serac_functions::has_part;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// Decides which queries that are named several times are computed once, before passes ask whether
/// rows are the same when they are computed again.
#[derive(Debug)]
pub struct SharedQueries;

impl AnalyzerRule for SharedQueries {
    fn name(&self) -> &str {
        "shared_queries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let counts = counts(&plan)?;
        if counts.is_empty() {
            return Ok(plan);
        }
        let mut chosen = HashSet::new();
        plan.apply_with_subqueries(|plan| {
            if let Some(node) = Shared::of(plan) {
                let count = counts.get(&node.number).copied().unwrap_or(0);
                if count > 1 && !chosen.contains(&node.number) && !is_cheap(&node.input, count) {
                    chosen.insert(node.number);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let marked = plan.transform_up_with_subqueries(|plan| match Shared::of(&plan) {
            Some(node) if chosen.contains(&node.number) => {
                Ok(Transformed::yes(Shared { is_chosen: true, ..node.clone() }.into_plan()))
            }
            _ => Ok(Transformed::no(plan)),
        });
        Ok(marked?.data)
    }
}

/// Whether a query takes no longer than reading rows that have been kept, and gives the same rows
/// each time: it reads a table, and filters columns of it. A join of tables that two readers name
/// may be run twice, because the filters and the keys of each reader get into it.
fn is_cheap(plan: &LogicalPlan, readers: usize) -> bool {
    let has_subquery = |plan: &LogicalPlan| has_part(plan, |part| subquery_of(part).is_some());
    match plan {
        LogicalPlan::TableScan(_) | LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => !has_subquery(plan),
        LogicalPlan::Join(_) if readers > 2 || reads_shared(plan) => false,
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Join(_) => {
            !has_subquery(plan) && plan.inputs().into_iter().all(|input| is_cheap(input, readers))
        }
        plan => Shared::of(plan).is_some(),
    }
}

/// Whether a plan reads a query that has a mark. Such a query is not run once more for each reader:
/// with each level, the runs would double.
fn reads_shared(plan: &LogicalPlan) -> bool {
    plan.exists(|plan| Ok(Shared::of(plan).is_some())).unwrap_or(true)
}

/// The optimizer's rules, which are made after the pass.
pub type LogicalRules = Arc<OnceLock<Vec<Optimizing>>>;

/// Puts scans into the places of the queries that are computed once.
#[derive(Debug)]
pub struct WithQueries {
    rules: LogicalRules,
}

impl WithQueries {
    /// The pass; `rules` gets the optimizer's other rules.
    pub fn new(rules: LogicalRules) -> Self {
        Self { rules }
    }
}

impl OptimizerRule for WithQueries {
    fn name(&self) -> &str {
        "with_queries"
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let counts = counts(&plan)?;
        if counts.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let is_kept = |node: &Shared| match node.sharing {
            Sharing::Worthwhile => node.is_chosen,
            Sharing::Always => true,
        };
        let plan = unmarked(plan, &is_kept)?;
        let rules = self.rules.get().cloned().unwrap_or_default();
        let apart = read_apart(&plan, &rules, config)?;
        let plan = match apart.is_empty() {
            true => plan,
            false => unmarked(plan, &|node| !apart.contains(&node.number))?,
        };
        Ok(Transformed::yes(Scans::new(rules, config).put(plan)?))
    }
}

/// The queries of which no two readers read the same rows: for each two of them, the filters want
/// other values of a column. To run such a query for each reader takes no more rows than to run it
/// once, and the keys of the joins above get into it.
fn read_apart(plan: &LogicalPlan, rules: &[Optimizing], config: &dyn OptimizerConfig) -> Result<HashSet<u64>> {
    let mut scans = Scans::new(Vec::new(), config);
    let plan = scans.put(plan.clone())?;
    let is_needed = |rule: &&Optimizing| ["simplify_expressions", "push_down_filter"].contains(&rule.name());
    let pushing = Optimizer::with_rules(rules.iter().filter(is_needed).cloned().collect());
    let mut readers = Readers::new();
    // Those that read others: see `reads_shared`.
    let mut nested = HashSet::new();
    for table in scans.tables.values() {
        let before = reader_count(&readers);
        add_readers(&pushing.optimize(table.0.analyzed.clone(), config, |_, _| {})?, &mut readers)?;
        if reader_count(&readers) > before {
            nested.insert(table.0.number);
        }
    }
    add_readers(&pushing.optimize(plan, config, |_, _| {})?, &mut readers)?;
    // Passes may have relied on it that the rows are the same for all readers.
    let may_run_again = |query: &SharedQuery| query.takes_filters && is_repeatable(&query.analyzed, None);
    let apart = readers
        .into_iter()
        .filter(|(number, (query, readers))| are_apart(readers) && !nested.contains(number) && may_run_again(query));
    Ok(apart.map(|(number, _)| number).collect())
}

fn reader_count(readers: &Readers) -> usize {
    readers.values().map(|(_, own)| own.len()).sum()
}

fn are_apart(readers: &[Reader]) -> bool {
    let wanted: Vec<HashMap<&Column, &ScalarValue>> = readers.iter().map(Reader::wanted_values).collect();
    let differ = |a: &HashMap<&Column, &ScalarValue>, b: &HashMap<&Column, &ScalarValue>| {
        a.iter().any(|(column, value)| b.get(column).is_some_and(|other| other != value))
    };
    wanted.len() > 1 && wanted.iter().enumerate().all(|(at, a)| wanted[at + 1..].iter().all(|b| differ(a, b)))
}

/// The scans of a statement.
struct Scans<'c> {
    optimizer: Optimizer,
    config: &'c dyn OptimizerConfig,
    tables: HashMap<u64, Arc<SharedTable>>,
    names: HashSet<String>,
}

impl<'c> Scans<'c> {
    fn new(rules: Vec<Optimizing>, config: &'c dyn OptimizerConfig) -> Self {
        let optimizer = Optimizer::with_rules(rules);
        Self { optimizer, config, tables: HashMap::new(), names: HashSet::new() }
    }

    /// The plan with scans in the places of marks.
    fn put(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let put = plan.transform_down_with_subqueries(|plan| match Shared::of(&plan) {
            Some(node) => Ok(Transformed::new(self.scan(node)?, true, TreeNodeRecursion::Jump)),
            None => Ok(Transformed::no(plan)),
        })?;
        match put.transformed {
            // Nothing is known of how the columns of a scan depend on each other.
            true => put
                .data
                .transform_up_with_subqueries(|plan| Ok(Transformed::yes(plan.recompute_schema()?)))
                .map(|plan| plan.data),
            false => Ok(put.data),
        }
    }

    /// A scan under the names that the query's columns have.
    fn scan(&mut self, node: &Shared) -> Result<LogicalPlan> {
        let table = self.table(node)?;
        let name = TableReference::bare(format!("#{}", table.0.name));
        let columns = node.input.schema().columns().into_iter().zip(table.0.schema.fields());
        let columns = columns.map(|(own, field)| {
            Expr::Column(Column::new(Some(name.clone()), field.name())).alias_qualified(own.relation, own.name)
        });
        let columns = columns.collect();
        let scan = TableScanBuilder::new(name, provider_as_source(table)).build()?;
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(LogicalPlan::TableScan(scan)))?))
    }

    fn table(&mut self, node: &Shared) -> Result<Arc<SharedTable>> {
        if let Some(table) = self.tables.get(&node.number) {
            return Ok(table.clone());
        }
        let mut analyzed = self.put(node.input.as_ref().clone())?;
        let mut order = Vec::new();
        if let Some((plan, keys)) = with_sort_keys(&analyzed)? {
            order = keys.iter().filter_map(|key| plan.schema().maybe_index_of_column(key)).collect();
            analyzed = plan;
        }
        let optimized = self.optimizer.optimize(analyzed.clone(), self.config, |_, _| {})?;
        let mut name = node.name.to_string();
        let mut again = 1;
        while !self.names.insert(name.clone()) {
            again += 1;
            name = format!("{}_{again}", node.name);
        }
        let query = SharedQuery {
            number: node.number,
            name,
            schema: SharedQuery::schema_of(&analyzed),
            takes_filters: node.sharing == Sharing::Worthwhile,
            has_all_columns: has_volatile(&analyzed),
            order,
            analyzed,
            optimized,
        };
        let table = Arc::new(SharedTable(Arc::new(query)));
        self.tables.insert(node.number, table.clone());
        Ok(table)
    }
}
