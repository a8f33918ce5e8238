//! Joins that end when their rows are not wanted any more.
//!
//! DataFusion's operators give their thread back with the rows that they find. A join that compares
//! every pair of many rows, and finds no match, keeps the thread until it has compared them all,
//! even if its statement was cancelled long ago. So its condition fails once the result has been
//! dropped.
//!
//! A join whose rows an aggregation or a sort takes always has another batch ready while one batch
//! of its input lasts: billions of rows of a product. Tokio ends a task only where it yields its
//! thread, which each join here does after a number of batches ([`Yielding`]).

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;
use futures::stream::poll_fn;
use serac_numeric_functions::wanted::IsWanted;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::task::Poll;

/// Held by the reader of a query's rows.
pub struct Wanted(pub IsWanted);

impl Wanted {
    /// The query's rows, which are wanted until they are dropped.
    pub fn until_dropped(self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let rows = rows.inspect(move |_| {
            let _ = &self;
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A join's condition for as long as it is wanted.
#[derive(Debug)]
struct WantedExpr {
    expr: Arc<dyn PhysicalExpr>,
    wanted: IsWanted,
}

impl fmt::Display for WantedExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expr.fmt(f)
    }
}
impl PartialEq for WantedExpr {
    fn eq(&self, other: &Self) -> bool {
        self.expr.eq(&other.expr) && self.wanted.is(&other.wanted)
    }
}
impl Eq for WantedExpr {}
impl Hash for WantedExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expr.hash(state);
    }
}

impl PhysicalExpr for WantedExpr {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.expr.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expr.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.wanted.check()?;
        self.expr.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expr]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self { expr: children[0].clone(), wanted: self.wanted.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expr.fmt_sql(f)
    }
}

/// Batches that a join gives before it gives its thread back.
const BATCHES_IN_A_TURN: usize = 32;

/// The rows of a join, which yields its thread after a number of batches. It counts its own
/// batches. DataFusion's `make_cooperative` asks for a share of Tokio's budget before each batch; a
/// chain of more joins than the budget has units would spend it before one of them gives a row.
fn in_turns(mut rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let (schema, mut given) = (rows.schema(), 0);
    let rows = poll_fn(move |context| {
        if given == BATCHES_IN_A_TURN {
            given = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = rows.poll_next_unpin(context);
        given = if next.is_ready() { given + 1 } else { 0 };
        next
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// A join that yields its thread after a number of batches. It shows as the join.
#[derive(Debug)]
struct Yielding(Arc<dyn ExecutionPlan>);

impl DisplayAs for Yielding {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as(format, f)
    }
}

impl ExecutionPlan for Yielding {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.0.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.0.apply_expressions(f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self(replace_children_if_necessary(self.0.clone(), children)?)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.0.metrics()
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Ok(in_turns(self.0.execute(partition, context)?))
    }
}

/// The plan, with joins that give their threads back, and ask whether they are wanted.
pub fn while_wanted(plan: Arc<dyn ExecutionPlan>, wanted: &IsWanted) -> Result<Arc<dyn ExecutionPlan>> {
    let transformed = plan.transform_up(|node| {
        let join = node.downcast_ref::<NestedLoopJoinExec>();
        let Some((join, filter)) = join.and_then(|join| Some((join, join.filter()?))) else {
            let is_join = join.is_some()
                || node.is::<CrossJoinExec>()
                || node.is::<HashJoinExec>()
                || node.is::<SortMergeJoinExec>();
            return Ok(match is_join {
                true => Transformed::yes(Arc::new(Yielding(node)) as Arc<dyn ExecutionPlan>),
                false => Transformed::no(node),
            });
        };
        let expr = WantedExpr { expr: filter.expression().clone(), wanted: wanted.clone() };
        let filter = JoinFilter::new(Arc::new(expr), filter.column_indices().to_vec(), filter.schema().clone());
        let projection = join.projection().as_ref().map(|projection| projection.to_vec());
        let (left, right) = (join.left().clone(), join.right().clone());
        let join = NestedLoopJoinExec::try_new(left, right, Some(filter), join.join_type(), projection)?;
        Ok(Transformed::yes(Arc::new(Yielding(Arc::new(join))) as Arc<dyn ExecutionPlan>))
    })?;
    Ok(transformed.data)
}
