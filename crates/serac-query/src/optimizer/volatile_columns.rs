//! Columns of subqueries with volatile functions, which PostgreSQL computes even if they are not
//! read: `SELECT 1 FROM (SELECT setval('s', 100)) x` sets the sequence.
//!
//! DataFusion leaves out the columns that are not read, and makes one projection of two. So an
//! operator stands above each projection, aggregation or window that has such a column below
//! another operator. It needs all columns of its input, even if its own are not read.
//!
//! ```text
//! Projection(1)                                Projection(1)
//!   Projection(setval('s', 100))   becomes       Projection(setval)
//!                                                  VolatileColumns
//!                                                    Projection(setval('s', 100))
//! ```
//!
//! Limits are brought below it, and so are filters on other columns. In the physical plan it is an
//! operator that passes rows on, so that no rule there makes one of the projections either.

use crate::shared::{Shared, planned};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Result, internal_err};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::logical_plan::Projection;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Whether an expression, or a subquery in it, has a volatile function.
pub(super) fn is_volatile(expr: &Expr) -> bool {
    let is_part = |part: &Expr| {
        let subquery = super::unnest::subquery_of(part);
        Ok(part.is_volatile_node() || subquery.is_some_and(|subquery| has_volatile(&subquery.subquery)))
    };
    expr.exists(is_part).unwrap_or(true)
}

/// Whether there is a volatile function anywhere in a plan, but in queries that are computed once.
pub fn has_volatile(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let walked = plan.apply(|plan| {
        if Shared::of(plan).is_some_and(Shared::is_certain) {
            return Ok(TreeNodeRecursion::Jump);
        }
        found |= computes_volatile(plan);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found || walked.is_err()
}

/// Whether an operator's own expressions have a volatile function.
fn computes_volatile(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let walked = plan.apply_expressions(|expr| {
        found |= is_volatile(expr);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found || walked.is_err()
}

/// Puts the operator where it is needed. Comes after correlated subqueries have become joins.
#[derive(Debug)]
pub struct VolatileColumns;

impl AnalyzerRule for VolatileColumns {
    fn name(&self) -> &str {
        "volatile_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let kept = plan.transform_up_with_subqueries(|plan| match Kept::volatile_of(&plan) {
            Some(volatile) if !volatile.is_empty() => Ok(Transformed::yes(Kept::above(plan, volatile)?)),
            _ => Ok(Transformed::no(plan)),
        });
        let kept = kept.data()?;
        // All columns of the first operator are read.
        Ok(Kept::beneath(&kept).cloned().unwrap_or(kept))
    }
}

/// A plan's rows, all columns of which are computed.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Kept {
    input: LogicalPlan,
    /// Names of the columns that have volatile functions.
    volatile: Vec<String>,
}

impl Kept {
    /// The operator above a plan, with a projection above it. DataFusion makes a join of IN from
    /// the expression that a subquery selects, for which it looks at the projection.
    fn above(input: LogicalPlan, volatile: Vec<String>) -> Result<LogicalPlan> {
        let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
        let kept = LogicalPlan::Extension(Extension { node: Arc::new(Self { input, volatile }) });
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(kept))?))
    }

    /// The plan beneath both; `None` for another plan.
    fn beneath(plan: &LogicalPlan) -> Option<&LogicalPlan> {
        let LogicalPlan::Projection(projection) = plan else { return None };
        let LogicalPlan::Extension(extension) = projection.input.as_ref() else { return None };
        extension.node.as_any().downcast_ref::<Self>().map(|kept| &kept.input)
    }

    /// The names of an operator's volatile columns; `None` if the operator computes no columns.
    fn volatile_of(plan: &LogicalPlan) -> Option<Vec<String>> {
        let (exprs, before): (Vec<&Expr>, usize) = match plan {
            LogicalPlan::Projection(projection) => (projection.expr.iter().collect(), 0),
            LogicalPlan::Aggregate(aggregate) => {
                if !computes_volatile(plan) {
                    return None;
                }
                // Grouping sets have more columns than expressions: each counts as volatile.
                let is_plain = aggregate.group_expr.len() + aggregate.aggr_expr.len() == plan.schema().fields().len();
                if !is_plain {
                    return Some(plan.schema().fields().iter().map(|field| field.name().clone()).collect());
                }
                (aggregate.group_expr.iter().chain(&aggregate.aggr_expr).collect(), 0)
            }
            LogicalPlan::Window(window) => {
                let before = window.input.schema().fields().len();
                (window.window_expr.iter().collect(), before)
            }
            _ => return None,
        };
        let fields = plan.schema().fields().iter().skip(before);
        let volatile = exprs.into_iter().zip(fields).filter(|(expr, _)| is_volatile(expr));
        Some(volatile.map(|(_, field)| field.name().clone()).collect())
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl UserDefinedLogicalNodeCore for Kept {
    fn name(&self) -> &str {
        "VolatileColumns"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.volatile.iter().cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(UserDefinedLogicalNodeCore::name(self))
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (Some(input), true) = (inputs.pop(), inputs.is_empty()) else {
            return internal_err!("it has one input");
        };
        Ok(Self { input, volatile: self.volatile.clone() })
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }
}

/// DataFusion's planner, which knows the operator.
#[derive(Debug)]
pub struct Planner;

impl Planner {
    /// The planner of physical plans.
    pub fn of_physical_plans() -> DefaultPhysicalPlanner {
        DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Self)])
    }
}

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = Self::of_physical_plans();
        match planned(plan, session).await? {
            Some(initial) => planner.optimize_physical_plan(initial, session, |_, _| {}),
            None => planner.create_physical_plan(plan, session).await,
        }
    }
}

#[async_trait]
impl ExtensionPlanner for Planner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let is_ours = node.as_any().is::<Kept>();
        Ok(inputs.first().filter(|_| is_ours).map(|rows| Arc::new(KeptExec { rows: rows.clone() }) as _))
    }
}

/// The rows below, of which no column is left out.
#[derive(Debug)]
struct KeptExec {
    rows: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for KeptExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolatileColumnsExec")
    }
}

impl ExecutionPlan for KeptExec {
    fn name(&self) -> &str {
        "VolatileColumnsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.rows.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.rows]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { rows: children[0].clone() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.rows.execute(partition, context)
    }
}
