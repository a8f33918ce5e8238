//! Errors of subqueries that give one value, which count where the value is asked for.
//!
//! DataFusion runs such subqueries before the rows that read their values, and an error ends the
//! statement. PostgreSQL runs one when its value is asked for first: a branch of CASE that no row
//! takes, the arguments of COALESCE behind a value, and operands of AND and OR that are decided
//! already raise no error. Here the error of a value is kept, and its slot stays empty. An
//! expression that reads an empty slot fails with an internal error, for which the kept one stands.
//!
//! A value takes its bytes from the session's memory until the statement ends. The columns of
//! DataFusion's projections that read values are wrapped, for two reasons. A projection writes down
//! its expressions when it begins, the values with them: a large array would become a text. And if
//! a value is a column, each row of a batch gets a copy, which counts.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, ScalarValue, Statistics};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::physical_planning_context::ScalarSubqueryResults;
use datafusion::logical_expr::sort_properties::ExprProperties;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::{ScalarSubqueryExec, ScalarSubqueryLink};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    SendableRecordBatchStream, execute_stream,
};
use futures::TryStreamExt;
use serac_functions::{bytes_of, for_rows};
use serac_values::SqlError;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The message of an expression that reads an empty slot.
const IS_EMPTY: &str = "ScalarSubqueryExpr evaluated before the subquery was executed";

/// Lets subqueries fail where their values are read. Comes after all rules that look at subqueries.
#[derive(Debug)]
pub struct SubqueryErrors(pub Arc<dyn MemoryPool>);

impl PhysicalOptimizerRule for SubqueryErrors {
    fn name(&self) -> &str {
        "subquery_errors"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let replaced = plan.transform_up(|plan| {
            if plan.is::<ScalarSubqueryExec>() {
                return Ok(Transformed::yes(Arc::new(LateErrorsExec::new(plan)) as _));
            }
            match plan.downcast_ref::<ProjectionExec>() {
                Some(projection) => wrapped(projection, &self.0)?.map_data(|new| Ok(new.unwrap_or(plan))),
                None => Ok(Transformed::no(plan)),
            }
        });
        Ok(replaced?.data)
    }
}

/// The projection with its subqueries wrapped, if it has any.
fn wrapped(
    projection: &ProjectionExec,
    memory: &Arc<dyn MemoryPool>,
) -> Result<Transformed<Option<Arc<dyn ExecutionPlan>>>> {
    let mut is_wrapped = false;
    let columns = projection.expr().iter().map(|column| {
        let expr = column.expr.clone().transform_up(|expr| match expr.is::<ScalarSubqueryExpr>() {
            true => Ok(Transformed::yes(Arc::new(SubqueryValue(expr)) as _)),
            false => Ok(Transformed::no(expr)),
        })?;
        is_wrapped |= expr.transformed;
        let expr: Arc<dyn PhysicalExpr> = match expr.transformed {
            true => Arc::new(CountedColumn { expr: expr.data, memory: memory.clone() }),
            false => expr.data,
        };
        Ok(ProjectionExpr { expr, alias: column.alias.clone() })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    match is_wrapped {
        true => {
            let projection = ProjectionExec::try_new(columns, projection.input().clone())?;
            Ok(Transformed::yes(Some(Arc::new(projection))))
        }
        false => Ok(Transformed::no(None)),
    }
}

/// A column that may be the value of a subquery.
#[derive(Debug)]
struct CountedColumn {
    expr: Arc<dyn PhysicalExpr>,
    memory: Arc<dyn MemoryPool>,
}

impl PartialEq for CountedColumn {
    fn eq(&self, other: &Self) -> bool {
        self.expr.as_ref() == other.expr.as_ref()
    }
}

impl Eq for CountedColumn {}

impl Hash for CountedColumn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expr.hash(state);
    }
}

impl fmt::Display for CountedColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expr.fmt(f)
    }
}

impl PhysicalExpr for CountedColumn {
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.expr.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        match self.expr.evaluate(batch)? {
            ColumnarValue::Scalar(value) => for_rows(value, batch.num_rows(), &self.memory),
            array => Ok(array),
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expr]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let expr = children.into_iter().next().unwrap_or_else(|| self.expr.clone());
        Ok(Arc::new(Self { expr, memory: self.memory.clone() }))
    }

    fn get_properties(&self, children: &[ExprProperties]) -> Result<ExprProperties> {
        Ok(children.first().cloned().unwrap_or_else(ExprProperties::new_unknown))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expr.fmt_sql(f)
    }
}

/// The value of a subquery, which is not written down.
#[derive(Debug)]
struct SubqueryValue(Arc<dyn PhysicalExpr>);

impl Eq for SubqueryValue {}

impl Hash for SubqueryValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for SubqueryValue {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref() == other.0.as_ref()
    }
}

impl fmt::Display for SubqueryValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("scalar_subquery(…)")
    }
}

impl PhysicalExpr for SubqueryValue {
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.0.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.0.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        Vec::new()
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(self)
    }

    fn get_properties(&self, children: &[ExprProperties]) -> Result<ExprProperties> {
        self.0.get_properties(children)
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(f)
    }
}

/// The subqueries have run.
#[derive(Debug)]
struct Ran {
    /// The error of the first that failed, if the statement may go on without it.
    kept: Option<Arc<DataFusionError>>,
    /// The bytes of the values.
    _values: MemoryReservation,
}

/// The end of the subqueries, or the error that ends the statement.
type Outcome = Result<Arc<Ran>, Arc<DataFusionError>>;

/// A [`ScalarSubqueryExec`] that keeps the errors of its subqueries.
#[derive(Debug)]
struct LateErrorsExec {
    /// DataFusion's operator, which has the children and the slots, and is never run.
    inner: Arc<dyn ExecutionPlan>,
    /// The subqueries have run, once for all partitions.
    outcome: Arc<OnceCell<Outcome>>,
}

impl LateErrorsExec {
    fn new(inner: Arc<dyn ExecutionPlan>) -> Self {
        Self { inner, outcome: Arc::default() }
    }

    fn subqueries(&self) -> Result<&ScalarSubqueryExec> {
        let inner = self.inner.downcast_ref::<ScalarSubqueryExec>();
        inner.ok_or_else(|| DataFusionError::Internal("the operator has lost its subqueries".into()))
    }
}

/// Whether the statement may go on without the value: it is an error of values, of their number, or
/// of a function of the program.
fn is_of_values(error: &DataFusionError) -> bool {
    let sqlstate = SqlError::from(error).sqlstate;
    ["22", "38", "39"].iter().any(|class| sqlstate.starts_with(class)) || sqlstate == sqlstate::CARDINALITY_VIOLATION
}

/// The value of a subquery: NULL without a row.
async fn value(subquery: &ScalarSubqueryLink, context: Arc<TaskContext>) -> Result<ScalarValue> {
    let mut batches = execute_stream(subquery.plan.clone(), context)?;
    let mut value = None;
    while let Some(batch) = batches.try_next().await? {
        match batch.num_rows() {
            0 => {}
            1 if value.is_none() => value = Some(ScalarValue::try_from_array(batch.column(0), 0)?),
            _ => {
                let message = "more than one row returned by a subquery used as an expression";
                return Err(SqlError::new(sqlstate::CARDINALITY_VIOLATION, message).external());
            }
        }
    }
    match value {
        Some(value) => Ok(value),
        None => ScalarValue::try_from(subquery.plan.schema().field(0).data_type()),
    }
}

/// Runs all subqueries.
async fn run(
    subqueries: Vec<ScalarSubqueryLink>,
    results: ScalarSubqueryResults,
    context: Arc<TaskContext>,
) -> Outcome {
    let mut kept = None;
    let reservation = MemoryConsumer::new("the values of subqueries").register(context.memory_pool());
    let values = subqueries.iter().map(|subquery| value(subquery, context.clone()));
    for (subquery, value) in subqueries.iter().zip(futures::future::join_all(values).await) {
        match value {
            Ok(value) => {
                let bytes = match &value {
                    ScalarValue::List(list) => bytes_of(list.as_ref()),
                    value => value.size(),
                };
                reservation.try_grow(bytes).and_then(|()| results.set(subquery.index, value)).map_err(Arc::new)?;
            }
            Err(error) if is_of_values(&error) => {
                kept.get_or_insert_with(|| Arc::new(error));
            }
            Err(error) => return Err(Arc::new(error)),
        }
    }
    Ok(Arc::new(Ran { kept, _values: reservation }))
}

impl DisplayAs for LateErrorsExec {
    fn fmt_as(&self, form: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_as(form, f)
    }
}

impl ExecutionPlan for LateErrorsExec {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner.maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.inner.benefits_from_input_partitioning()
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Arc::new(Self::new(self.inner.clone().replace_children(children, options)?)))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(self.inner.clone().reset_state()?)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let inner = self.subqueries()?;
        let (input, subqueries, results) =
            (inner.input().clone(), inner.subqueries().to_vec(), inner.results().clone());
        let outcome = self.outcome.clone();
        let batches = async move {
            let outcome = outcome.get_or_init(|| run(subqueries, results, context.clone())).await.clone();
            let kept = outcome.map_err(DataFusionError::Shared)?.kept.clone();
            let batches = input.execute(partition, context)?;
            let Some(kept) = kept else { return Ok::<_, DataFusionError>(batches) };
            let schema = batches.schema();
            let with_kept = batches.map_err(move |error| match SqlError::from(&error).message.contains(IS_EMPTY) {
                true => DataFusionError::Shared(kept.clone()),
                false => error,
            });
            Ok(Box::pin(RecordBatchStreamAdapter::new(schema, with_kept)) as SendableRecordBatchStream)
        };
        let batches = futures::stream::once(batches).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.inner.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.inner.statistics_from_inputs(input_stats, args)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.inner.cardinality_effect()
    }
}
