//! `CubitJoinExec`: semi- and anti-joins of rows whose key has a bitmap index (the CUBIT join of
//! the CUBIT paper, §F).
//!
//! The keys of the other side become the union of their bitvectors, and the scan begins with these
//! rows; for an anti-join, with all other rows, NULLs among them. No hash table is built and no row
//! is tested. [`BitmapJoin`] replaces a hash join by it if few keys are expected.

use super::bitmap::most_keys;
use super::exec::SeracScanExec;
use super::join_keys::{is_key_type, note_keys};
use super::plan::{properties, replace_nodes};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinType, NullEquality, Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{EmissionType, apply_expression_roots};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::TryStreamExt;
use futures::future::{BoxFuture, FutureExt, Shared};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Done when the scan knows its rows.
type Found = Shared<BoxFuture<'static, Result<(), Arc<DataFusionError>>>>;

/// Gives the rows of a scan whose key is, or is not, among other rows' keys; see the module's
/// header.
#[derive(Debug)]
pub struct CubitJoinExec {
    /// One partition.
    keys: Arc<dyn ExecutionPlan>,
    /// Over the columns of `keys`.
    key: Arc<dyn PhysicalExpr>,
    scan: Arc<dyn ExecutionPlan>,
    /// The scan's key, as a column of the table.
    column: usize,
    anti: bool,
    found: Arc<OnceLock<Found>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl CubitJoinExec {
    fn new(
        keys: Arc<dyn ExecutionPlan>,
        key: Arc<dyn PhysicalExpr>,
        scan: Arc<dyn ExecutionPlan>,
        column: usize,
        anti: bool,
    ) -> Self {
        let properties =
            properties(scan.schema(), scan.output_partitioning().partition_count(), EmissionType::Incremental);
        let (found, metrics) = Default::default();
        Self { keys, key, scan, column, anti, found, properties, metrics }
    }

    fn scan(&self) -> Result<&SeracScanExec> {
        let scan = self.scan.downcast_ref::<SeracScanExec>();
        scan.ok_or_else(|| DataFusionError::Internal("the join has lost its scan".into()))
    }

    fn find(&self, context: Arc<TaskContext>) -> Result<Found> {
        let (scan, key, column, anti) = (self.scan()?.clone(), self.key.clone(), self.column, self.anti);
        let reservation = MemoryConsumer::new("CubitJoin").register(context.memory_pool());
        let mut batches = self.keys.execute(0, context)?;
        let counted = MetricBuilder::new(&self.metrics).counter("keys", 0);
        let find = async move {
            let mut keys = Vec::new();
            while let Some(batch) = batches.try_next().await? {
                // The keys themselves, and the sorted list of them.
                reservation.try_grow(4 * 8 * batch.num_rows())?;
                note_keys(&key.evaluate(&batch)?.into_array(batch.num_rows())?, &mut keys);
            }
            keys.sort_unstable();
            keys.dedup();
            counted.add(keys.len());
            scan.join(column, keys, anti)
        };
        Ok(find.map(|outcome: Result<()>| outcome.map_err(Arc::new)).boxed().shared())
    }
}

impl DisplayAs for CubitJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.anti { "anti" } else { "semi" };
        let index = self.scan().ok().and_then(|scan| scan.index_on(self.column));
        let index = index.map_or("", |index| &index.index().definition.name);
        write!(f, "CubitJoinExec: {kind}, keys={}, bitmaps=[{index}]", self.key)
    }
}

impl ExecutionPlan for CubitJoinExec {
    fn name(&self) -> &str {
        "CubitJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.keys, &self.scan]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots([&self.key], f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let (keys, scan) = (children[0].clone(), children[1].clone());
        Ok(Arc::new(Self::new(keys, self.key.clone(), scan, self.column, self.anti)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let found = match self.found.get() {
            Some(found) => found.clone(),
            None => {
                let found = self.find(context.clone())?;
                self.found.get_or_init(|| found).clone()
            }
        };
        let scan = self.scan.clone();
        let rows = futures::stream::once(async move {
            found.await.map_err(DataFusionError::Shared)?;
            scan.execute(partition, context)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows.try_flatten())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::new_unknown(&self.schema())))
    }
}

/// Joins by bitvectors; see the module.
#[derive(Debug, Default)]
pub struct BitmapJoin;

impl PhysicalOptimizerRule for BitmapJoin {
    fn name(&self) -> &str {
        "bitmap_join"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        replace_nodes(plan, joined)
    }
}

/// The plan below the operators that distribute and collect rows.
fn undealt(mut plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    while plan.downcast_ref::<RepartitionExec>().is_some()
        || plan.downcast_ref::<CoalescePartitionsExec>().is_some()
        || plan.downcast_ref::<CooperativeExec>().is_some()
    {
        plan = plan.children()[0];
    }
    plan
}

fn joined(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (anti, of_left) = match join.join_type() {
        JoinType::RightSemi => (false, false),
        JoinType::RightAnti => (true, false),
        JoinType::LeftSemi => (false, true),
        JoinType::LeftAnti => (true, true),
        _ => return Ok(None),
    };
    let [(left, right)] = join.on() else { return Ok(None) };
    let (rows, keys) = if of_left { (join.left(), join.right()) } else { (join.right(), join.left()) };
    let (row_key, key) = if of_left { (left, right) } else { (right, left) };
    let keys = undealt(keys);
    let Some(scan) = undealt(rows).downcast_ref::<SeracScanExec>() else { return Ok(None) };
    let Some(column) = row_key.downcast_ref::<Column>().and_then(|column| scan.column_of(column.index())) else {
        return Ok(None);
    };
    let key_type = key.data_type(&keys.schema())?;
    if join.filter().is_some()
        || join.null_aware
        || join.null_equality() != NullEquality::NullEqualsNothing
        || scan.fetch().is_some()
        || scan.index_on(column).is_none()
        || !is_key_type(&key_type)
        || scan.full_schema().field(column).data_type() != &key_type
    {
        return Ok(None);
    }
    let statistics = StatisticsContext::new().compute(keys.as_ref(), &StatisticsArgs::new())?;
    let few = statistics.num_rows.get_value().is_some_and(|&n| n <= most_keys(scan.looked_at()));
    if !few {
        return Ok(None);
    }
    let id = join.dynamic_expressions_produced().first().and_then(|filter| filter.expression_id());
    let scan: Arc<dyn ExecutionPlan> = Arc::new(scan.without_filter(id));
    let keys: Arc<dyn ExecutionPlan> = match keys.output_partitioning().partition_count() {
        1 => keys.clone(),
        _ => Arc::new(CoalescePartitionsExec::new(keys.clone())),
    };
    let mut plan: Arc<dyn ExecutionPlan> = Arc::new(CubitJoinExec::new(keys, key.clone(), scan, column, anti));
    if plan.schema() != join.schema() {
        let Some(kept) = join.projection.as_ref() else { return Ok(None) };
        let schema = plan.schema();
        let output = |&at: &usize| {
            let name = schema.field(at).name();
            ProjectionExpr { expr: Arc::new(Column::new(name, at)), alias: name.clone() }
        };
        plan = Arc::new(ProjectionExec::try_new(kept.iter().map(output).collect::<Vec<_>>(), plan)?);
    }
    // The rows are dealt out as before, because operators above rely on that.
    Ok(Some(match join.properties().output_partitioning() {
        dealt @ Partitioning::Hash(_, n) if *n > 1 => Arc::new(RepartitionExec::try_new(plan, dealt.clone())?),
        dealt if dealt.partition_count() == plan.output_partitioning().partition_count() => plan,
        dealt if dealt.partition_count() == 1 => Arc::new(CoalescePartitionsExec::new(plan)),
        dealt => Arc::new(RepartitionExec::try_new(plan, Partitioning::RoundRobinBatch(dealt.partition_count()))?),
    }))
}
