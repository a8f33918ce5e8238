//! Joins, and calls of functions, that end when their rows are not wanted any more.
//!
//! DataFusion's operators give their thread back with the rows that they find. A join may compare
//! many pairs of rows and find no pair for which its condition holds. Such a join keeps its thread
//! until it has compared all pairs, even if its statement was cancelled long ago. So the condition
//! fails once the result has been dropped. Some joins without a condition give their rows only at
//! their end, as joins for NOT EXISTS do. They compare all pairs as well, so the input that they
//! read meanwhile fails, too.
//!
//! If an aggregation or a sort takes a join's rows, the join always has another batch ready while
//! one batch of its input lasts. That may be billions of rows of a product. Tokio ends a task only
//! where the task gives its thread back. So each join here, and the input that it reads, gives its
//! thread back after some time (`InTurns`).
//!
//! An operator calls functions for all rows of a batch. One call may take milliseconds, so the rows
//! come to such an operator in pieces, few at first.

use crate::optimizer::operator_of;
use crate::runtimes::{in_runtime, without_files};
use crate::spilling_join::spilling;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, MutableArrayData, RecordBatch, RecordBatchOptions, make_array,
};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;
use futures::stream::poll_fn;
use parking_lot::Mutex;
use serac_numeric_functions::wanted::IsWanted;
use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

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

/// The time that a task keeps its thread. It is no number of batches, as the costs of batches
/// differ widely: the batches of a product are ready at once, and those above it may take seconds.
const TURN: Duration = Duration::from_millis(50);

/// Rows of a batch that an operator takes at a time, at the least.
const LEAST_ROWS: usize = 64;

/// Rows of the first piece for which functions are called. Rows that are inserted into a table are
/// appended in such batches, and results of so many rows show what a statement will need.
const FIRST_ROWS: usize = 1_024;

/// The time since a task got its thread; `None` before it has done anything.
#[derive(Default)]
struct Turn(Option<Instant>);

impl Turn {
    /// Whether the task has kept its thread for long enough. The next turn begins later, then.
    fn is_over(&mut self) -> bool {
        let is_over = self.0.get_or_insert_with(Instant::now).elapsed() >= TURN;
        if is_over {
            self.0 = None;
        }
        is_over
    }
}

/// The rows for as long as they are wanted. The stream gives its thread back between turns.
/// DataFusion's `make_cooperative` does not serve here: it takes a unit of Tokio's budget before
/// each batch. A chain of more joins than the budget has units would spend it before one of them
/// gives a row.
fn in_turns(mut rows: SendableRecordBatchStream, wanted: IsWanted) -> SendableRecordBatchStream {
    let (schema, mut turn) = (rows.schema(), Turn::default());
    let rows = poll_fn(move |context| {
        if let Err(error) = wanted.check() {
            return Poll::Ready(Some(Err(error)));
        }
        if turn.is_over() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = rows.poll_next_unpin(context);
        if next.is_pending() {
            turn = Turn::default();
        }
        next
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// The rows in pieces of batches. The time that the reader spent on a piece sets the size of the
/// next one, so that a piece keeps the reader for less than a turn; the first has `most` rows. A
/// join that only asks which rows have partners compares all pairs of a batch before it asks for
/// the next.
fn in_pieces(mut rows: SendableRecordBatchStream, mut most: usize) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let (mut rest, mut given): (Option<RecordBatch>, Option<(usize, Instant)>) = (None, None);
    let rows = poll_fn(move |context| {
        if let Some((count, since)) = given.take() {
            most = match since.elapsed() {
                little if little < TURN / 16 => most.saturating_mul(16),
                some if some < TURN => most.saturating_mul(2),
                _ => (count / 8).max(LEAST_ROWS),
            };
        }
        let batch = match rest.take() {
            Some(batch) => batch,
            None => match rows.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(batch))) => batch,
                other => return other,
            },
        };
        let all = batch.num_rows();
        let count = all.min(most);
        given = Some((count, Instant::now()));
        if count == all {
            return Poll::Ready(Some(Ok(batch)));
        }
        rest = Some(batch.slice(count, all - count));
        let piece = batch.slice(0, count);
        Poll::Ready(Some(if 2 * count > all { Ok(piece) } else { compact(&piece) }))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// The rows with memory of their own. An operator that keeps slices of a batch would count the
/// memory of the whole batch for each of them.
fn compact(rows: &RecordBatch) -> Result<RecordBatch> {
    let column = |column: &ArrayRef| -> Result<ArrayRef> {
        Ok(match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => {
                let data = column.to_data();
                let mut copy = MutableArrayData::new(vec![&data], false, data.len());
                copy.try_extend(0, 0, data.len())?;
                make_array(copy.freeze())
            }
        })
    };
    let columns = rows.columns().iter().map(column).collect::<Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(rows.schema(), columns, &options)?)
}

/// A plan whose rows end once nobody wants them, and which gives its thread back. It shows as the
/// plan.
#[derive(Debug)]
struct InTurns {
    plan: Arc<dyn ExecutionPlan>,
    wanted: IsWanted,
    /// Rows of the first piece in which batches come; `None` for whole batches.
    first_piece: Option<usize>,
    files: Option<Files>,
}

/// The temporary files of a join of loops. DataFusion's join reads its inputs again when it spills,
/// and gives rows twice. So it has no files, but its inputs have those of the query.
#[derive(Clone, Debug)]
enum Files {
    Withheld(Runtime),
    GivenBack(Runtime),
}

/// The runtime of the query, once the join runs.
type Runtime = Arc<Mutex<Option<Arc<RuntimeEnv>>>>;

impl Files {
    fn context(&self, context: Arc<TaskContext>) -> Result<Arc<TaskContext>> {
        match self {
            Self::Withheld(runtime) => {
                *runtime.lock() = Some(context.runtime_env());
                without_files(&context)
            }
            Self::GivenBack(runtime) => Ok(match runtime.lock().clone() {
                Some(runtime) => in_runtime(&context, runtime),
                None => context,
            }),
        }
    }
}

impl InTurns {
    /// The same of another plan.
    fn of(&self, plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self { plan, wanted: self.wanted.clone(), first_piece: self.first_piece, files: self.files.clone() })
    }
}

impl DisplayAs for InTurns {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt_as(format, f)
    }
}

impl ExecutionPlan for InTurns {
    fn name(&self) -> &str {
        self.plan.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.plan.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.plan.apply_expressions(f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.of(replace_children_if_necessary(self.plan.clone(), children)?))
    }

    /// A recursive query executes a plan again, and a hash join keeps the table that it has built.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.of(self.plan.clone().reset_state()?))
    }

    /// A recursive query gives its table to those that read it.
    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        self.plan.with_new_state(state).map(|plan| self.of(plan))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.plan.metrics()
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let context = match &self.files {
            Some(files) => files.context(context)?,
            None => context,
        };
        let rows = self.plan.execute(partition, context)?;
        let rows = match self.first_piece {
            Some(most) => in_pieces(rows, most),
            None => rows,
        };
        Ok(in_turns(rows, self.wanted.clone()))
    }
}

/// A join's condition that fails once nobody wants its rows.
fn wanted_filter(filter: &JoinFilter, wanted: &IsWanted) -> JoinFilter {
    let expr = WantedExpr { expr: filter.expression().clone(), wanted: wanted.clone() };
    JoinFilter::new(Arc::new(expr), filter.column_indices().to_vec(), filter.schema().clone())
}

/// A join whose condition, if it has one, fails once nobody wants its rows. `None` if the plan is
/// no join.
fn with_wanted_filter(plan: &Arc<dyn ExecutionPlan>, wanted: &IsWanted) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let Some(filter) = join.filter() else { return Ok(Some(plan.clone())) };
        let projection = join.projection().as_ref().map(|projection| projection.to_vec());
        let (left, right) = (join.left().clone(), join.right().clone());
        let filter = wanted_filter(filter, wanted);
        let join = NestedLoopJoinExec::try_new(left, right, Some(filter), join.join_type(), projection)?;
        return Ok(Some(Arc::new(join)));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let Some(filter) = join.filter() else { return Ok(Some(plan.clone())) };
        let filter = wanted_filter(filter, wanted);
        return Ok(Some(join.builder().with_filter(Some(filter)).build_exec()?));
    }
    if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        let Some(filter) = join.filter() else { return Ok(Some(plan.clone())) };
        let (left, right, on) = (join.left().clone(), join.right().clone(), join.on().to_vec());
        let (filter, options) = (wanted_filter(filter, wanted), join.sort_options().to_vec());
        let equality = join.null_equality();
        let join = SortMergeJoinExec::try_new(left, right, on, Some(filter), join.join_type(), options, equality)?;
        return Ok(Some(Arc::new(join)));
    }
    Ok(plan.is::<CrossJoinExec>().then(|| plan.clone()))
}

/// A join that takes turns. The rows that it compares with those that it keeps also come in turns:
/// the join may take many of them before it gives one.
fn abandonable(join: Arc<dyn ExecutionPlan>, wanted: &IsWanted) -> Result<Arc<dyn ExecutionPlan>> {
    let runtime = join.is::<NestedLoopJoinExec>().then(Runtime::default);
    let files = runtime.clone().map(Files::GivenBack);
    let of = |plan, first_piece, files| in_turns_of(plan, wanted, first_piece, files);
    // The first input is the one that is kept; a merge keeps rows of both, and counts their bytes.
    let (is_hashed, is_merged) = (join.is::<HashJoinExec>(), join.is::<SortMergeJoinExec>());
    let input = |(at, input): (usize, &Arc<dyn ExecutionPlan>)| match at == 1 || is_merged || files.is_some() {
        true => of(input.clone(), is_hashed.then_some(usize::MAX), files.clone()),
        false => input.clone(),
    };
    let inputs = join.children().into_iter().enumerate().map(input).collect::<Vec<_>>();
    let join = replace_children_if_necessary(join, inputs)?;
    Ok(of(spilling(&join)?.unwrap_or(join), None, runtime.map(Files::Withheld)))
}

fn in_turns_of(
    plan: Arc<dyn ExecutionPlan>,
    wanted: &IsWanted,
    first_piece: Option<usize>,
    files: Option<Files>,
) -> Arc<dyn ExecutionPlan> {
    Arc::new(InTurns { plan, wanted: wanted.clone(), first_piece, files })
}

/// Whether an operator itself calls functions.
fn has_calls(node: &Arc<dyn ExecutionPlan>) -> bool {
    let mut found = false;
    let _ = node.apply_expressions(&mut |expr| {
        found = found || expr.exists(|part| Ok(part.is::<ScalarFunctionExpr>())).unwrap_or(true);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

/// How many calls of functions a plan has, without arithmetic, which takes no time.
pub fn count_calls(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let mut count = 0;
    let _ = plan.apply_expressions(&mut |expr| {
        expr.apply(|part| {
            let call = part.downcast_ref::<ScalarFunctionExpr>();
            count += usize::from(call.is_some_and(|call| operator_of(call.fun()).is_none()));
            Ok(TreeNodeRecursion::Continue)
        })
    });
    count + plan.children().into_iter().map(count_calls).sum::<usize>()
}

/// The plan, with joins and calls of functions that give their threads back, and ask whether they
/// are wanted.
pub fn while_wanted(plan: Arc<dyn ExecutionPlan>, wanted: &IsWanted) -> Result<Arc<dyn ExecutionPlan>> {
    let transformed = plan.transform_up(|node| {
        Ok(match with_wanted_filter(&node, wanted)? {
            Some(join) => Transformed::yes(abandonable(join, wanted)?),
            None if has_calls(&node) && !node.children().is_empty() => {
                let inputs = node.children().into_iter();
                let inputs = inputs.map(|input| in_turns_of(input.clone(), wanted, Some(FIRST_ROWS), None)).collect();
                Transformed::yes(replace_children_if_necessary(node, inputs)?)
            }
            None => Transformed::no(node),
        })
    })?;
    Ok(transformed.data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int32Array, StringViewArray};
    use datafusion::arrow::compute::concat_batches;
    use futures::{TryStreamExt, stream};

    /// Pieces of a batch together have the memory of the batch, wherever they are kept.
    #[tokio::test]
    async fn pieces_have_the_memory_of_their_rows() {
        let numbers = Arc::new(Int32Array::from_iter_values(0..8192)) as ArrayRef;
        let texts = StringViewArray::from_iter_values((0..8192).map(|n| format!("{n:0500}")));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("t", Arc::new(texts) as _)]).unwrap();
        let rows = RecordBatchStreamAdapter::new(batch.schema(), stream::iter([Ok(batch.clone())]));
        let pieces: Vec<RecordBatch> = in_pieces(Box::pin(rows), LEAST_ROWS).try_collect().await.unwrap();
        assert!(pieces.len() > 2);
        let memory: usize = pieces[..pieces.len() - 1].iter().map(RecordBatch::get_array_memory_size).sum();
        assert!(memory < batch.get_array_memory_size(), "{memory} bytes of {}", batch.get_array_memory_size());
        assert_eq!(concat_batches(&batch.schema(), &pieces).unwrap(), batch);
    }
}
