//! The operators of shared queries.

use super::buffer::{Buffer, Next};
use super::table::SharedQuery;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_datafusion_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexOrdering, OrderingRequirements, Partitioning, PhysicalExpr,
    PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, CardinalityEffect, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::stream::poll_fn;
use futures::{StreamExt, ready};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

/// The queries of a running statement, by number.
struct Runs(HashMap<u64, Arc<Run>>);

/// The queries of the statement that runs, in the context of its operators. Those hold the context,
/// and the queries run such operators.
struct RunsOfStatement(Weak<Runs>);

/// A query that runs once.
struct Run {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    buffer: Arc<Buffer>,
    /// The tasks that compute its rows, which end with it; `None` before the first reader asks.
    tasks: Mutex<Option<Vec<SpawnedTask<()>>>>,
}

impl Run {
    /// Begins to compute rows, if that has not begun.
    fn begin(&self) {
        let mut tasks = self.tasks.lock();
        if tasks.is_some() {
            return;
        }
        let mut begun = Vec::new();
        for partition in 0..self.plan.output_partitioning().partition_count() {
            match self.plan.execute(partition, self.context.clone()) {
                Ok(rows) => {
                    let producer = Producer { buffer: self.buffer.clone(), is_done: false };
                    begun.push(SpawnedTask::spawn(compute(rows, producer)));
                }
                Err(error) => {
                    self.buffer.fail(error);
                    break;
                }
            }
        }
        *tasks = Some(begun);
    }
}

/// A task that computes rows. If it ends before its last row, the query fails, so that no reader
/// takes some of the rows for all.
struct Producer {
    buffer: Arc<Buffer>,
    is_done: bool,
}

impl Drop for Producer {
    fn drop(&mut self) {
        if !self.is_done {
            self.buffer.fail(internal_datafusion_err!("a query of WITH has ended early"));
        }
        self.buffer.finish();
    }
}

async fn compute(mut rows: SendableRecordBatchStream, mut producer: Producer) {
    while let Some(batch) = rows.next().await {
        if let Err(error) = batch.and_then(|batch| producer.buffer.push(batch)) {
            producer.buffer.fail(error);
            break;
        }
    }
    producer.is_done = true;
}

/// A statement above the queries that it reads several times. It lets nothing but its first input
/// pass; the readers of the queries find the others in their context.
#[derive(Debug)]
pub(crate) struct WithExec {
    rows: Arc<dyn ExecutionPlan>,
    queries: Vec<Query>,
    properties: Arc<PlanProperties>,
}

/// A query of the statement.
#[derive(Clone, Debug)]
struct Query {
    number: u64,
    name: Arc<str>,
    plan: Arc<dyn ExecutionPlan>,
    /// The order that its readers rely on.
    order: Option<LexOrdering>,
    lanes: usize,
    metrics: ExecutionPlanMetricsSet,
}

impl WithExec {
    pub(super) fn new(rows: Arc<dyn ExecutionPlan>, queries: Vec<(Arc<SharedQueryExec>, usize)>) -> Self {
        let queries = queries.into_iter().map(|(query, lanes)| Query {
            number: query.number,
            name: query.name.clone(),
            order: query.order(),
            lanes,
            metrics: query.metrics.clone(),
            plan: query,
        });
        Self::over(rows, queries.collect())
    }

    fn over(rows: Arc<dyn ExecutionPlan>, queries: Vec<Query>) -> Self {
        let properties = PlanProperties::new(
            rows.equivalence_properties().clone(),
            rows.output_partitioning().clone(),
            rows.pipeline_behavior(),
            rows.boundedness(),
        );
        Self { rows, queries, properties: Arc::new(properties) }
    }

    /// The queries of a run. The context of their operators, and of those above, names them.
    fn runs(&self, context: &TaskContext) -> (Arc<Runs>, Arc<TaskContext>) {
        let mut own = None;
        let runs = Arc::new_cyclic(|runs: &Weak<Runs>| {
            let context = within(context, RunsOfStatement(runs.clone()));
            own = Some(context.clone());
            Runs(self.queries.iter().map(|query| (query.number, Arc::new(query.run(context.clone())))).collect())
        });
        let context = own.unwrap_or_else(|| within(context, RunsOfStatement(Arc::downgrade(&runs))));
        (runs, context)
    }
}

/// The context of the operators of a statement with queries.
fn within(context: &TaskContext, runs: RunsOfStatement) -> Arc<TaskContext> {
    // A plan that runs looks no functions up.
    let none = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        context.session_config().clone().with_extension(Arc::new(runs)),
        none.0,
        none.1,
        none.2,
        none.3,
        context.runtime_env(),
    ))
}

impl Query {
    fn run(&self, context: Arc<TaskContext>) -> Run {
        let spill = SpillMetrics::new(&self.metrics, 0);
        let compression = context.session_config().spill_compression();
        let files = SpillManager::new(context.runtime_env(), spill, self.plan.schema());
        let files = files.with_compression_type(compression);
        let producers = self.plan.output_partitioning().partition_count();
        let buffer = Buffer::new(&self.name, self.lanes, producers, files, context.memory_pool());
        Run { plan: self.plan.clone(), context, buffer: Arc::new(buffer), tasks: Mutex::new(None) }
    }
}

impl DisplayAs for WithExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.queries.iter().map(|query| query.name.as_ref()).collect();
        write!(f, "WithExec: queries=[{}]", names.join(", "))
    }
}

impl ExecutionPlan for WithExec {
    fn name(&self) -> &str {
        "WithExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        std::iter::once(&self.rows).chain(self.queries.iter().map(|query| &query.plan)).collect()
    }

    /// One partition: a run has one state.
    fn required_input_distribution(&self) -> Vec<Distribution> {
        let of_query = |query: &Query| match query.order {
            Some(_) => Distribution::SinglePartition,
            None => Distribution::UnspecifiedDistribution,
        };
        std::iter::once(Distribution::SinglePartition).chain(self.queries.iter().map(of_query)).collect()
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let of_query = |query: &Query| query.order.clone().map(OrderingRequirements::from);
        std::iter::once(None).chain(self.queries.iter().map(of_query)).collect()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        std::iter::once(true).chain(self.queries.iter().map(|_| false)).collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.queries.len() + 1]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut children = children.into_iter();
        let rows = children.next().ok_or_else(|| internal_datafusion_err!("a statement without rows"))?;
        let queries = self.queries.iter().cloned().zip(children).map(|(query, plan)| Query { plan, ..query });
        Ok(Arc::new(Self::over(rows, queries.collect())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition > 0 || self.rows.output_partitioning().partition_count() > 1 {
            return internal_err!("the rows of a statement with WITH come in one partition");
        }
        let (runs, context) = self.runs(&context);
        let rows = self.rows.execute(partition, context)?.inspect(move |_| {
            let _ = &runs;
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        let mut requests = vec![ChildStats::Skip; 1 + self.queries.len()];
        requests[0] = ChildStats::At(partition);
        requests
    }

    fn statistics_from_inputs(&self, input_stats: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(input_stats[0].clone())
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}

/// The rows of a query as they are computed.
#[derive(Debug)]
pub(crate) struct SharedQueryExec {
    number: u64,
    name: Arc<str>,
    is_sorted: bool,
    rows: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl SharedQueryExec {
    pub(super) fn new(query: &SharedQuery, rows: Arc<dyn ExecutionPlan>) -> Self {
        let (number, name) = (query.number, query.name.as_str().into());
        Self { number, name, is_sorted: !query.order.is_empty(), rows, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The order of its rows, if they come one after the other.
    fn order(&self) -> Option<LexOrdering> {
        let is_in_order = self.is_sorted && self.rows.output_partitioning().partition_count() == 1;
        self.rows.output_ordering().filter(|_| is_in_order).cloned()
    }
}

impl DisplayAs for SharedQueryExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedQueryExec: {}", self.name)
    }
}

impl ExecutionPlan for SharedQueryExec {
    fn name(&self) -> &str {
        "SharedQueryExec"
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

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let (number, name, metrics) = (self.number, self.name.clone(), self.metrics.clone());
        Ok(Arc::new(Self { number, name, is_sorted: self.is_sorted, rows: children[0].clone(), metrics }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows = self.rows.execute(partition, context)?.inspect(move |batch| {
            if let Ok(batch) = batch {
                metrics.record_output(batch.num_rows());
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, input_stats: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(input_stats[0].clone())
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}

/// Whether each relation that a plan reads gives a single stream of rows.
fn is_single_stream(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match &plan.children()[..] {
        [] => plan.output_partitioning().partition_count() == 1,
        inputs => inputs.iter().all(|input| is_single_stream(input)),
    }
}

/// Reads the rows of a query.
#[derive(Clone, Debug)]
pub struct SharedScanExec {
    number: u64,
    name: Arc<str>,
    /// The columns of the query that it reads.
    columns: Vec<usize>,
    schema: SchemaRef,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SharedScanExec {
    /// Reads all columns of a query, under the names of `schema`, in so many partitions if its rows
    /// have no order, and do not come from a single stream each, whose order is kept.
    pub(super) fn new(query: &SharedQueryExec, schema: SchemaRef, partitions: usize) -> Result<Self> {
        let statistics = StatisticsContext::new().compute(query.rows.as_ref(), &StatisticsArgs::new())?;
        let statistics = Arc::new(statistics.as_ref().clone().to_inexact());
        let order = query.order();
        let partitions = if order.is_some() || is_single_stream(&query.rows) { 1 } else { partitions.max(1) };
        let columns: Vec<usize> = (0..schema.fields().len()).collect();
        let order: Vec<PhysicalSortExpr> = order.into_iter().flatten().collect();
        let properties = Arc::new(properties(&schema, &columns, &order, partitions));
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { number: query.number, name: query.name.clone(), columns, schema, statistics, properties, metrics })
    }

    /// The number of its partitions.
    pub(super) fn partitions(&self) -> usize {
        self.properties.output_partitioning().partition_count()
    }

    /// The same with columns at these places.
    pub(super) fn projected(&self, places: &[usize]) -> Result<Self> {
        let schema = Arc::new(self.schema.project(places)?);
        let order: Vec<PhysicalSortExpr> =
            self.properties.output_ordering().into_iter().flat_map(|order| order.iter().cloned()).collect();
        let properties = Arc::new(properties(&schema, places, &order, self.partitions()));
        Ok(Self {
            columns: places.iter().map(|at| self.columns[*at]).collect(),
            statistics: Arc::new(self.statistics.as_ref().clone().project(Some(&places))),
            schema,
            properties,
            name: self.name.clone(),
            number: self.number,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

/// The properties of columns at some places of rows in an order.
fn properties(schema: &SchemaRef, places: &[usize], order: &[PhysicalSortExpr], partitions: usize) -> PlanProperties {
    let key = |key: &PhysicalSortExpr| {
        let column = key.expr.downcast_ref::<Column>()?;
        let at = places.iter().position(|place| *place == column.index())?;
        let expr = Arc::new(Column::new(schema.field(at).name(), at));
        Some(PhysicalSortExpr { expr, options: key.options })
    };
    let keys: Vec<PhysicalSortExpr> = order.iter().map_while(key).collect();
    let equivalences = match keys.is_empty() {
        true => EquivalenceProperties::new(schema.clone()),
        false => EquivalenceProperties::new_with_orderings(schema.clone(), [keys]),
    };
    PlanProperties::new(
        equivalences,
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    )
}

impl DisplayAs for SharedScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "SharedScanExec: {}, columns=[{}]", self.name, names.join(", "))
    }
}

impl ExecutionPlan for SharedScanExec {
    fn name(&self) -> &str {
        "SharedScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let runs = context.session_config().get_extension::<RunsOfStatement>().and_then(|runs| runs.0.upgrade());
        let run = runs.and_then(|runs| runs.0.get(&self.number).cloned());
        let run = run.ok_or_else(|| internal_datafusion_err!("the query \"{}\" does not run", self.name))?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut reader = Reader {
            run,
            lane: partition,
            row: 0,
            file: None,
            columns: self.columns.clone(),
            schema: self.schema.clone(),
            has_begun: false,
        };
        let rows = poll_fn(move |context| {
            let next = reader.poll_next(context);
            metrics.record_poll(next)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        match args.partition() {
            None => Ok(self.statistics.clone()),
            Some(_) => Ok(Arc::new(Statistics::new_unknown(&self.schema))),
        }
    }
}

/// A partition of a reader.
struct Reader {
    run: Arc<Run>,
    lane: usize,
    /// The next row of the lane.
    row: usize,
    /// A file that is read, and the number of its next row.
    file: Option<(SendableRecordBatchStream, usize)>,
    columns: Vec<usize>,
    schema: SchemaRef,
    has_begun: bool,
}

impl Reader {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.run.begin();
        }
        let batch = match ready!(self.poll_rows(context)) {
            Ok(Some(batch)) => batch,
            Ok(None) => return Poll::Ready(None),
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        self.row += batch.num_rows();
        let columns = self.columns.iter().map(|at| batch.column(*at).clone()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
        Poll::Ready(Some(batch.map_err(DataFusionError::from)))
    }

    /// The next rows with all columns of the query.
    fn poll_rows(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<RecordBatch>>> {
        loop {
            if let Some((rows, at)) = &mut self.file {
                match ready!(rows.poll_next_unpin(context)).transpose()? {
                    None => self.file = None,
                    Some(batch) => {
                        let count = batch.num_rows();
                        let skipped = self.row.saturating_sub(*at).min(count);
                        *at += count;
                        if skipped < count {
                            return Poll::Ready(Ok(Some(batch.slice(skipped, count - skipped))));
                        }
                    }
                }
                continue;
            }
            match ready!(self.run.buffer.poll_next(self.lane, self.row, context))? {
                Next::Batch(batch) => return Poll::Ready(Ok(Some(batch))),
                Next::End => return Poll::Ready(Ok(None)),
                Next::File(file, first) => {
                    self.file = Some((self.run.buffer.files.read_spill_as_stream(file, None)?, first));
                }
            }
        }
    }
}
