//! The operator in the place of DataFusion's sort.

use super::keys::{KeyRange, is_packed};
use super::sorted::{Number, Rows, Sorted};
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use serac_functions::bytes_of;
use std::fmt;
use std::sync::Arc;

/// Rows in order; see the module.
#[derive(Debug)]
pub struct PackedSortExec {
    /// DataFusion's sort, a [`SortExec`]. It says which rows this one needs, and which it gives.
    replaced: Arc<dyn ExecutionPlan>,
    order: LexOrdering,
    metrics: ExecutionPlanMetricsSet,
}

impl PackedSortExec {
    /// In the place of a sort whose keys become numbers.
    pub(super) fn in_place_of(replaced: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        let Some(sort) = replaced.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_none()) else {
            return Ok(None);
        };
        if replaced.boundedness().is_unbounded() {
            return Ok(None);
        }
        let schema = sort.input().schema();
        for key in sort.expr() {
            if !is_packed(&key.expr.data_type(&schema)?) || is_volatile(&key.expr) {
                return Ok(None);
            }
        }
        let (order, metrics) = (sort.expr().clone(), ExecutionPlanMetricsSet::new());
        Ok(Some(Self { replaced: replaced.clone(), order, metrics }))
    }
}

impl DisplayAs for PackedSortExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "PackedSortExec: expr=[{}]", self.order)
            }
            DisplayFormatType::TreeRender => writeln!(f, "{}", self.order),
        }
    }
}

impl ExecutionPlan for PackedSortExec {
    fn name(&self) -> &str {
        "PackedSortExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.replaced.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.replaced.children()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.replaced.input_distribution_requirements().into_per_child()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.replaced.input_distribution_requirements()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.replaced.benefits_from_input_partitioning()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.replaced.apply_expressions(f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let replaced = self
            .replaced
            .clone()
            .replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))?;
        match Self::in_place_of(&replaced)? {
            Some(sort) => Ok(Arc::new(sort)),
            None => internal_err!("the keys of {} are not packed any more", self.name()),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.children()[0].execute(partition, context.clone())?;
        let consumer = MemoryConsumer::new(format!("PackedSortExec[{partition}]"));
        let sort = Sort {
            schema: self.schema(),
            order: self.order.clone(),
            reservation: consumer.register(context.memory_pool()),
            batch_rows: context.session_config().batch_size().max(1),
            metrics: BaselineMetrics::new(&self.metrics, partition),
            context,
        };
        let rows = stream::once(sort.run(input)).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.replaced.child_stats_requests(partition)
    }

    fn statistics_from_inputs(&self, given: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        self.replaced.statistics_from_inputs(given, args)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn gather_filters_for_pushdown(
        &self,
        phase: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        self.replaced.gather_filters_for_pushdown(phase, filters, config)
    }
}

/// The sort of a partition of the plan.
struct Sort {
    schema: SchemaRef,
    order: LexOrdering,
    reservation: MemoryReservation,
    batch_rows: usize,
    metrics: BaselineMetrics,
    context: Arc<TaskContext>,
}

impl Sort {
    async fn run(self, input: SendableRecordBatchStream) -> Result<SendableRecordBatchStream> {
        // What spills asks the input again after its end.
        let schema = input.schema();
        let mut input: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(schema, input.fuse()));
        let ranges = self.order.iter().map(|key| KeyRange::new(key.options)).collect();
        let mut rows = Rows { schema: self.schema.clone(), batches: Vec::new(), keys: Vec::new(), ranges };
        while let Some(batch) = input.next().await.transpose()? {
            if batch.num_rows() == 0 {
                continue;
            }
            let timer = self.metrics.elapsed_compute().timer();
            let evaluated = self.order.iter().map(|key| key.expr.evaluate(&batch)?.into_array(batch.num_rows()));
            let keys: Vec<ArrayRef> = evaluated.collect::<Result<_>>()?;
            for (range, column) in rows.ranges.iter_mut().zip(&keys) {
                range.add(column)?;
            }
            let columns = batch.columns().iter().map(|column| bytes_of(column));
            let computed = self.order.iter().zip(&keys).filter(|(key, _)| !key.expr.is::<Column>());
            let bytes = columns.chain(computed.map(|(_, column)| bytes_of(column))).sum();
            rows.batches.push(batch);
            rows.keys.push(keys);
            timer.done();
            if self.reservation.try_grow(bytes).is_err() {
                return self.spilling(rows, input);
            }
        }
        match rows.bits() {
            ..=64 => self.sorted::<u64>(rows, input).await,
            65..=128 => self.sorted::<u128>(rows, input).await,
            _ => self.spilling(rows, input),
        }
    }

    /// All rows in order.
    async fn sorted<N: Number + Send + 'static>(
        self,
        rows: Rows,
        input: SendableRecordBatchStream,
    ) -> Result<SendableRecordBatchStream> {
        let count: usize = rows.batches.iter().map(RecordBatch::num_rows).sum();
        let bytes = count * size_of::<N>();
        // The numbers are there twice while they are divided.
        if self.reservation.try_grow(2 * bytes).is_err() {
            return self.spilling(rows, input);
        }
        let sorted = {
            let _timer = self.metrics.elapsed_compute().timer();
            Sorted::<N>::new(rows).await?
        };
        self.reservation.shrink(bytes);
        let schema = self.schema.clone();
        let batches = stream::try_unfold((self, sorted), |(sort, mut sorted)| async move {
            let batch = {
                let _timer = sort.metrics.elapsed_compute().timer();
                sorted.next(sort.batch_rows)?
            };
            if let Some(batch) = &batch {
                sort.metrics.output_rows().add(batch.num_rows());
            }
            Ok(batch.map(|batch| (batch, (sort, sorted))))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    /// DataFusion's sort of the rows that are there, and those that come.
    fn spilling(self, rows: Rows, input: SendableRecordBatchStream) -> Result<SendableRecordBatchStream> {
        let schema = input.schema();
        self.reservation.free();
        let all = stream::iter(rows.batches.into_iter().map(Ok)).chain(input);
        let all: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(schema.clone(), all));
        let all: Arc<dyn PartitionStream> = Arc::new(Given::new(all));
        let all = StreamingTableExec::try_new(schema, vec![all], None, [], false, None)?;
        let sorted = SortExec::new(self.order.clone(), Arc::new(all)).execute(0, self.context.clone())?;
        let schema = self.schema.clone();
        let counted = sorted.inspect_ok(move |batch| self.metrics.output_rows().add(batch.num_rows()));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, counted)))
    }
}

/// Rows that are read once.
pub(crate) struct Given {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl Given {
    pub(crate) fn new(rows: SendableRecordBatchStream) -> Self {
        Self { schema: rows.schema(), rows: Mutex::new(Some(rows)) }
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given")
    }
}

impl PartitionStream for Given {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.rows.lock().take();
        rows.unwrap_or_else(|| {
            let none = stream::once(async { internal_err!("rows are read once") });
            Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), none))
        })
    }
}
