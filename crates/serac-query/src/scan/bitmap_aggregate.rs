//! `CubitAggregateExec`: GROUP BY on indexed columns with few values (the CUBIT paper, §F).
//!
//! For aggregates that [`super::block_aggregate`] does not have. The groups' columns are neither
//! read nor hashed. The bitvectors of the columns' values say to which group a row belongs. Block
//! by block they are written into an array of group numbers by slot, and DataFusion's accumulators
//! take the arguments with the group numbers of their rows. Below stands the scan with the columns
//! that the arguments need and the row ids.
//!
//! [`BitmapAggregation`] puts it in the place of an aggregation's first (or only) step, where the
//! rows are not so few that reading is cheaper.

use super::exec::SeracScanExec;
use super::group_columns::{BlockGroups, GroupColumn, indexes_of};
use super::plan::{properties, replace_nodes};
use super::provider::ROW_ID_COLUMN;
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::{EmissionType, apply_expression_roots};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::TryStreamExt;
use serac_engine::table::bitmap::BitmapReader;
use serac_storage::RowId;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Combinations of values at the most.
const MOST_GROUPS: u64 = 1_024;
/// Group numbers are written for whole blocks: at least one row in this many must be wanted.
const MOST_ROWS_PER_WANTED: f64 = 8.0;

/// Aggregates by groups of indexed columns; see the module.
#[derive(Debug)]
pub struct CubitAggregateExec {
    /// Gives the columns of the arguments and, last, the row ids.
    input: Arc<dyn ExecutionPlan>,
    groups: Vec<BitmapReader>,
    aggregates: Vec<Arc<AggregateFunctionExpr>>,
    /// Each aggregate's arguments, over the input's columns.
    arguments: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    /// Whether another step follows, which takes states.
    partial: bool,
    /// One snapshot has one answer: the partitions share it.
    columns: Arc<OnceLock<Vec<GroupColumn>>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// The state of one partition.
struct Aggregating {
    columns: Arc<OnceLock<Vec<GroupColumn>>>,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    arguments: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    block: BlockGroups,
    /// The place of each combination of values among those met; [`NOT_MET`] for others.
    places: Vec<u32>,
    /// Combinations that have rows, in the order in which they were met. Accumulators expect rows
    /// in every group that they are told of.
    met: Vec<usize>,
    /// The place of each row's group in a batch.
    groups: Vec<usize>,
}

const NOT_MET: u32 = u32::MAX;

impl Aggregating {
    fn columns(&self) -> &[GroupColumn] {
        self.columns.get().expect("made before the first batch")
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let ids = batch.column(batch.num_columns() - 1).as_primitive::<UInt64Type>();
        let columns = self.columns.get().expect("made before the first batch");
        self.groups.clear();
        for &id in ids.values() {
            let row = RowId::from_u64(id);
            self.block.load(row.block(), columns);
            let combination = self.block.number(row.slot()) as usize;
            let place = &mut self.places[combination];
            if *place == NOT_MET {
                *place = self.met.len() as u32;
                self.met.push(combination);
            }
            self.groups.push(*place as usize);
        }
        for (accumulator, arguments) in self.accumulators.iter_mut().zip(&self.arguments) {
            let values = arguments.iter().map(|argument| argument.evaluate(batch)?.into_array(batch.num_rows()));
            let values: Vec<ArrayRef> = values.collect::<Result<_>>()?;
            accumulator.update_batch(&values, &self.groups, None, self.met.len())?;
        }
        Ok(())
    }

    fn finish(mut self, schema: SchemaRef, partial: bool) -> Result<RecordBatch> {
        if self.met.is_empty() {
            return Ok(RecordBatch::new_empty(schema));
        }
        let mut arrays = GroupColumn::values(self.columns(), &self.met);
        for accumulator in &mut self.accumulators {
            if partial {
                arrays.extend(accumulator.state(EmitTo::All)?);
            } else {
                arrays.push(accumulator.evaluate(EmitTo::All)?);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.met.len()));
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
    }
}

impl DisplayAs for CubitAggregateExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<_> = self.groups.iter().map(|group| group.index().definition.name.as_str()).collect();
        let aggregates: Vec<_> = self.aggregates.iter().map(|aggregate| aggregate.name()).collect();
        write!(f, "CubitAggregateExec: by=[{}], aggregates=[{}]", groups.join(", "), aggregates.join(", "))
    }
}

impl ExecutionPlan for CubitAggregateExec {
    fn name(&self) -> &str {
        "CubitAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(self.arguments.iter().flatten(), f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children[0].clone();
        let partitions = input.output_partitioning().partition_count();
        Ok(Arc::new(Self {
            properties: properties(self.schema(), partitions, EmissionType::Final),
            input,
            groups: self.groups.clone(),
            aggregates: self.aggregates.clone(),
            arguments: self.arguments.clone(),
            partial: self.partial,
            columns: self.columns.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let accumulators = self.aggregates.iter().map(|aggregate| aggregate.create_groups_accumulator());
        let mut aggregating = Aggregating {
            columns: self.columns.clone(),
            accumulators: accumulators.collect::<Result<_>>()?,
            arguments: self.arguments.clone(),
            block: BlockGroups::default(),
            places: Vec::new(),
            met: Vec::new(),
            groups: Vec::new(),
        };
        let (groups, partial, schema) = (self.groups.clone(), self.partial, self.schema());
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let mut input = self.input.execute(partition, context)?;
        let of_batch = schema.clone();
        let batch = futures::stream::once(async move {
            let columns = aggregating.columns.get_or_init(|| groups.iter().map(GroupColumn::new).collect());
            aggregating.places = vec![NOT_MET; GroupColumn::combinations(columns)];
            while let Some(batch) = input.try_next().await? {
                let _timer = baseline.elapsed_compute().timer();
                aggregating.add(&batch)?;
            }
            let _timer = baseline.elapsed_compute().timer();
            let batch = aggregating.finish(of_batch, partial)?;
            baseline.record_output(batch.num_rows());
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batch)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Lets bitmap indexes group rows; see the module.
#[derive(Debug, Default)]
pub struct BitmapAggregation;

impl PhysicalOptimizerRule for BitmapAggregation {
    fn name(&self) -> &str {
        "bitmap_aggregation"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        replace_nodes(plan, |aggregate| Ok(aggregated(aggregate)?.map(|aggregate| Arc::new(aggregate) as _)))
    }
}

/// The expression with its columns, which stand among `columns`, numbered by their places there.
fn renumbered(expr: &Arc<dyn PhysicalExpr>, columns: &[usize]) -> Result<Arc<dyn PhysicalExpr>> {
    let renumber = |e: Arc<dyn PhysicalExpr>| {
        Ok(match e.downcast_ref::<Column>() {
            Some(column) => {
                let at = columns.binary_search(&column.index()).expect("it was collected");
                Transformed::yes(Arc::new(Column::new(column.name(), at)) as Arc<dyn PhysicalExpr>)
            }
            None => Transformed::no(e),
        })
    };
    expr.clone().transform(renumber).data()
}

/// The numbers of the columns that the expressions name, ascending.
fn columns_of<'e>(exprs: impl Iterator<Item = &'e Arc<dyn PhysicalExpr>>) -> Vec<usize> {
    let mut columns: Vec<usize> =
        exprs.flat_map(|expr| collect_columns(expr).iter().map(Column::index).collect::<Vec<_>>()).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

fn aggregated(aggregate: &AggregateExec) -> Result<Option<CubitAggregateExec>> {
    let partial = match aggregate.mode() {
        AggregateMode::Partial => true,
        AggregateMode::Single => false,
        _ => return Ok(None),
    };
    let projection = aggregate.input().downcast_ref::<ProjectionExec>();
    let below = projection.map_or(aggregate.input(), |projection| projection.input());
    let Some(scan) = SeracScanExec::find(below) else { return Ok(None) };
    let by = aggregate.group_expr();
    let plain = |aggregate: &Arc<AggregateFunctionExpr>| {
        aggregate.groups_accumulator_supported() && !aggregate.is_distinct() && aggregate.order_bys().is_empty()
    };
    if scan.indexes().is_empty()
        || scan.fetch().is_some()
        || by.is_empty()
        || by.has_grouping_set()
        || aggregate.limit_options().is_some()
        || aggregate.filter_expr().iter().any(Option::is_some)
        || aggregate.aggr_expr().is_empty()
        || !aggregate.aggr_expr().iter().all(plain)
    {
        return Ok(None);
    }
    let Some(groups) = indexes_of(by, projection, scan) else { return Ok(None) };
    let combinations = groups.iter().map(|group| group.index().entries.value_count().max(1));
    let combinations = combinations.fold(1u64, u64::saturating_mul);
    if combinations > MOST_GROUPS || scan.estimated_rows() * MOST_ROWS_PER_WANTED < groups[0].row_count() as f64 {
        return Ok(None);
    }

    let arguments: Vec<Vec<Arc<dyn PhysicalExpr>>> =
        aggregate.aggr_expr().iter().map(|aggregate| aggregate.expressions()).collect();
    let wanted = columns_of(arguments.iter().flatten());
    let input: Arc<dyn ExecutionPlan> = match projection {
        None => Arc::new(scan.with_row_ids(&wanted)?),
        Some(projection) => {
            let exprs: Vec<&ProjectionExpr> = wanted.iter().map(|&at| &projection.expr()[at]).collect();
            let read = columns_of(exprs.iter().map(|expr| &expr.expr));
            let mut outputs = Vec::new();
            for ProjectionExpr { expr, alias } in exprs {
                outputs.push(ProjectionExpr { expr: renumbered(expr, &read)?, alias: alias.clone() });
            }
            let ids = Arc::new(Column::new(ROW_ID_COLUMN, read.len()));
            outputs.push(ProjectionExpr { expr: ids, alias: ROW_ID_COLUMN.into() });
            Arc::new(ProjectionExec::try_new(outputs, Arc::new(scan.with_row_ids(&read)?))?)
        }
    };
    let renumber = |exprs: &Vec<Arc<dyn PhysicalExpr>>| exprs.iter().map(|expr| renumbered(expr, &wanted)).collect();
    Ok(Some(CubitAggregateExec {
        properties: properties(aggregate.schema(), input.output_partitioning().partition_count(), EmissionType::Final),
        input,
        groups,
        aggregates: aggregate.aggr_expr().to_vec(),
        arguments: arguments.iter().map(renumber).collect::<Result<_>>()?,
        partial,
        columns: Arc::default(),
        metrics: ExecutionPlanMetricsSet::new(),
    }))
}
