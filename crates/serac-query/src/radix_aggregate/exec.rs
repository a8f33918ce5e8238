//! The operator.

use super::groups::{Groups, Partitions};
use super::keys::Packed;
use super::plan::AggregatePlan;
use super::worker::{Left, Worker, WorkerMetrics};
use crate::packed_sort::Given;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, InputOrderMode, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use futures::future::{BoxFuture, Shared, try_join_all};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// Fewer rows than this are DataFusion's. …
const LEAST_ROWS: usize = 1 << 16;
/// … So are fewer groups, if it is known.
const LEAST_GROUPS: usize = 1 << 13;
/// The groups of a bucket that are aimed at.
const GROUPS_OF_BUCKET: usize = 1 << 14;
/// Buckets of all partitions, as powers of two.
const LEAST_BUCKET_BITS: u32 = 5;
const MOST_BUCKET_BITS: u32 = 8;

/// Groups of rows; see the module.
#[derive(Debug)]
pub struct RadixAggregateExec {
    /// DataFusion's last step of the aggregation, with the steps below it.
    replaced: Arc<dyn ExecutionPlan>,
    /// The input of the first step.
    input: Arc<dyn ExecutionPlan>,
    plan: Arc<AggregatePlan>,
    execution: Mutex<Execution>,
    metrics: ExecutionPlanMetricsSet,
}

/// The groups, or DataFusion's operators that make them, once the workers have stopped.
#[derive(Clone)]
enum Outcome {
    Grouped(Arc<dyn Partitions>),
    HandedOver(Arc<dyn ExecutionPlan>),
}

type Outcomes = BoxFuture<'static, std::result::Result<Outcome, Arc<DataFusionError>>>;

/// The work that the partitions wait for. When all have asked for it, they alone hold it. So it
/// ends with them, and the plan may be executed anew.
#[derive(Default)]
struct Execution {
    asked: usize,
    outcome: Option<Shared<Outcomes>>,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").field("asked", &self.asked).finish()
    }
}

/// The steps of an aggregation.
struct Steps<'a> {
    last: &'a AggregateExec,
    repartition: &'a RepartitionExec,
    first: &'a AggregateExec,
    partitions: usize,
}

impl<'a> Steps<'a> {
    fn of(plan: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        let last: &AggregateExec = plan.downcast_ref()?;
        let repartition: &RepartitionExec = last.input().downcast_ref()?;
        let first: &AggregateExec = repartition.input().downcast_ref()?;
        let Partitioning::Hash(keys, partitions) = repartition.partitioning() else { return None };
        let is_plain = |aggregate: &AggregateExec| {
            aggregate.limit_options().is_none()
                && aggregate.group_expr().is_single()
                && *aggregate.input_order_mode() == InputOrderMode::Linear
        };
        // Rows are distributed by all keys in their order.
        let count = first.group_expr().expr().len();
        let in_order = |(at, key): (usize, &Arc<dyn PhysicalExpr>)| {
            key.downcast_ref::<Column>().is_some_and(|column| column.index() == at)
        };
        let known = *last.mode() == AggregateMode::FinalPartitioned
            && *first.mode() == AggregateMode::Partial
            && is_plain(first)
            && is_plain(last)
            && count > 0
            && keys.len() == count
            && keys.iter().enumerate().all(in_order)
            && !repartition.preserve_order()
            && last.properties().output_ordering().is_none()
            && first.input().properties().output_partitioning().partition_count() >= *partitions;
        known.then_some(Self { last, repartition, first, partitions: *partitions })
    }

    /// The rows that come and the groups that there may be, as far as it is known.
    fn estimate(&self) -> Result<(Option<usize>, Option<usize>)> {
        let statistics = StatisticsContext::new();
        let rows = |plan: &dyn ExecutionPlan| -> Result<Option<usize>> {
            Ok(statistics.compute(plan, &StatisticsArgs::new())?.num_rows.get_value().copied())
        };
        Ok((rows(self.first.input().as_ref())?, rows(self.first)?))
    }
}

impl RadixAggregateExec {
    /// In the place of an aggregation in two steps that is expected to have many groups.
    pub(super) fn in_place_of(replaced: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        let Some(steps) = Steps::of(replaced) else { return Ok(None) };
        let (rows, groups) = steps.estimate()?;
        if rows.is_some_and(|rows| rows < LEAST_ROWS) || groups.is_some_and(|groups| groups < LEAST_GROUPS) {
            return Ok(None);
        }
        Self::new(replaced, &steps, groups)
    }

    fn new(replaced: &Arc<dyn ExecutionPlan>, steps: &Steps<'_>, groups: Option<usize>) -> Result<Option<Self>> {
        let buckets = groups.unwrap_or(1 << 20) / GROUPS_OF_BUCKET;
        let bits = buckets.max(1).next_power_of_two().trailing_zeros().clamp(LEAST_BUCKET_BITS, MOST_BUCKET_BITS);
        let bits = bits.saturating_sub(steps.partitions.next_power_of_two().trailing_zeros());
        let Some(plan) = AggregatePlan::new(steps.first, steps.last, steps.partitions, bits)? else { return Ok(None) };
        Ok(Some(Self {
            replaced: replaced.clone(),
            input: steps.first.input().clone(),
            plan: Arc::new(plan),
            execution: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    /// The work, which begins when it is first waited for.
    fn begin(&self, context: &Arc<TaskContext>) -> Outcomes {
        let layout = &self.plan.layout;
        let work = Work {
            replaced: self.replaced.clone(),
            input: self.input.clone(),
            plan: self.plan.clone(),
            metrics: self.metrics.clone(),
            context: context.clone(),
        };
        match (layout.bits, layout.has_text) {
            (0, true) => work.run::<(), true>().boxed(),
            (..=64, true) => work.run::<u64, true>().boxed(),
            (_, true) => work.run::<u128, true>().boxed(),
            (..=64, false) => work.run::<u64, false>().boxed(),
            (_, false) => work.run::<u128, false>().boxed(),
        }
    }

    /// The outcome of the work, which all partitions share.
    fn outcome(&self, context: &Arc<TaskContext>) -> Shared<Outcomes> {
        let mut execution = self.execution.lock();
        let known = execution.outcome.clone();
        let outcome = known.unwrap_or_else(|| self.begin(context).shared());
        execution.asked += 1;
        match execution.asked < self.plan.partitions {
            true => execution.outcome = Some(outcome.clone()),
            false => *execution = Execution::default(),
        }
        outcome
    }
}

/// The work that all partitions share.
struct Work {
    replaced: Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
    plan: Arc<AggregatePlan>,
    metrics: ExecutionPlanMetricsSet,
    context: Arc<TaskContext>,
}

impl Work {
    async fn run<P: Packed, const TEXT: bool>(self) -> std::result::Result<Outcome, Arc<DataFusionError>> {
        self.grouped::<P, TEXT>().await.map_err(Arc::new)
    }

    async fn grouped<P: Packed, const TEXT: bool>(self) -> Result<Outcome> {
        let pool = self.context.memory_pool();
        let memory = match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => Some(bytes),
            _ => None,
        };
        let reservation = MemoryConsumer::new("RadixAggregateExec").register(pool);
        let groups: Arc<Groups<P, TEXT>> = Arc::new(Groups::new(self.plan.clone(), &reservation)?);
        let workers = self.input.output_partitioning().partition_count();
        let mut tasks = Vec::with_capacity(workers);
        for number in 0..workers {
            let metrics = WorkerMetrics {
                time: MetricBuilder::new(&self.metrics).elapsed_compute(number),
                local_rows: MetricBuilder::new(&self.metrics).counter("local_rows", number),
                dealt_rows: MetricBuilder::new(&self.metrics).counter("dealt_rows", number),
            };
            let worker = Worker::new(number, groups.clone(), reservation.new_empty(), memory, metrics)?;
            let input = self.input.execute(number, self.context.clone())?;
            let task = SpawnedTask::spawn(worker.run(input));
            tasks.push(async move {
                task.join_unwind().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
            });
        }
        let left = try_join_all(tasks).await?;
        if !groups.is_short() {
            return Ok(Outcome::Grouped(groups));
        }
        let handed_over: Count = MetricBuilder::new(&self.metrics).global_counter("handed_over");
        handed_over.add(1);
        // Half of the memory is for the operators that take over.
        for bucket in &groups.buckets {
            let bucket = bucket.lock();
            bucket.reservation.resize(bucket.reservation.size().min(bucket.table.size()));
        }
        Ok(Outcome::HandedOver(self.handed_over(left)?))
    }

    /// DataFusion's operators over what was grouped so far, and the rows that were not read.
    fn handed_over<P: Packed, const TEXT: bool>(&self, left: Vec<Left<P, TEXT>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(Steps { last, repartition, first, .. }) = Steps::of(&self.replaced) else {
            return internal_err!("the steps of an aggregation are not known any more");
        };
        let (workers, batch_rows) = (left.len(), self.context.session_config().batch_size().max(1));
        let with_input = |plan: Arc<dyn ExecutionPlan>, input: Arc<dyn ExecutionPlan>| {
            plan.replace_children(vec![input], ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
        };
        let mut left = left;
        let unread = left.iter_mut().map(|left| {
            left.input
                .take()
                .unwrap_or_else(|| Box::pin(RecordBatchStreamAdapter::new(self.input.schema(), stream::empty())))
        });
        let unread = given(self.input.schema(), unread.collect())?;
        let unread = with_input(Arc::new(first.clone()), unread)?;
        let mut states: Vec<SendableRecordBatchStream> = Vec::with_capacity(workers);
        for (number, left) in left.into_iter().enumerate() {
            let grouped = left.states(workers, batch_rows);
            let all = grouped.chain(unread.execute(number, self.context.clone())?);
            states.push(Box::pin(RecordBatchStreamAdapter::new(first.schema(), all)));
        }
        let states = given(first.schema(), states)?;
        let dealt = RepartitionExec::try_new(states, repartition.partitioning().clone())?;
        with_input(Arc::new(last.clone()), Arc::new(dealt))
    }
}

/// A plan of rows that are read once.
fn given(
    schema: datafusion::arrow::datatypes::SchemaRef,
    rows: Vec<SendableRecordBatchStream>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let partitions = rows.into_iter().map(|rows| Arc::new(Given::new(rows)) as Arc<dyn PartitionStream>).collect();
    Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], false, None)?))
}

impl DisplayAs for RadixAggregateExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Steps { first, .. }) = Steps::of(&self.replaced) else { return Ok(()) };
        let keys = first.group_expr().expr().iter().map(|(key, name)| match key.to_string() {
            key if key.split('@').next() == Some(name) => name.clone(),
            key => format!("{key} as {name}"),
        });
        let keys: Vec<String> = keys.collect();
        let aggregates: Vec<&str> = first.aggr_expr().iter().map(|aggregate| aggregate.name()).collect();
        let (keys, aggregates) = (keys.join(", "), aggregates.join(", "));
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "RadixAggregateExec: gby=[{keys}], aggr=[{aggregates}]")
            }
            DisplayFormatType::TreeRender => writeln!(f, "gby={keys}\naggr={aggregates}"),
        }
    }
}

impl ExecutionPlan for RadixAggregateExec {
    fn name(&self) -> &str {
        "RadixAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.replaced.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::UnspecifiedDistribution]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::UnspecifiedDistribution])
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        match Steps::of(&self.replaced) {
            Some(steps) => steps.first.apply_expressions(f),
            None => Ok(TreeNodeRecursion::Continue),
        }
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut below = children.swap_remove(0);
        let first = self.replaced.children()[0].children()[0].clone();
        for step in [first, self.replaced.children()[0].clone(), self.replaced.clone()] {
            below =
                step.replace_children(vec![below], ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))?;
        }
        let Some(steps) = Steps::of(&below) else { return Ok(below) };
        let groups = steps.estimate()?.1;
        Ok(match Self::new(&below, &steps, groups)? {
            Some(aggregate) => Arc::new(aggregate),
            None => below,
        })
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let outcome = self.outcome(&context);
        let batch_rows = context.session_config().batch_size().max(1);
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let groups = async move {
            match outcome.await.map_err(DataFusionError::Shared)? {
                Outcome::Grouped(groups) => Ok::<_, DataFusionError>(groups.stream(partition, batch_rows, metrics)),
                Outcome::HandedOver(plan) => {
                    let groups = plan.execute(partition, context)?;
                    let schema = groups.schema();
                    let counted = groups.inspect_ok(move |batch| metrics.output_rows().add(batch.num_rows()));
                    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, counted)) as SendableRecordBatchStream)
                }
            }
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream::once(groups).try_flatten())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        match Steps::of(&self.replaced) {
            Some(steps) => steps.first.child_stats_requests(partition),
            None => vec![ChildStats::Skip],
        }
    }

    fn statistics_from_inputs(&self, given: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        match Steps::of(&self.replaced) {
            Some(steps) => {
                let states = steps.first.statistics_from_inputs(given, args)?;
                steps.last.statistics_from_inputs(&[states], args)
            }
            None => Ok(Arc::new(Statistics::new_unknown(&self.schema()))),
        }
    }
}
