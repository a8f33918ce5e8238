//! `CubitCountExec`: COUNT(*), COUNT(*) per value of an indexed column and its different values,
//! from bitmap indexes alone.
//!
//! [`BitmapCounts`] replaces an aggregation's first (or only) step and the scan below it. It does
//! so if bitmap indexes answer the whole filter and no other column is needed.

use super::bitmap::{BitmapFilter, least};
use super::exec::SeracScanExec;
use super::group_columns::GroupColumn;
use super::plan::{properties, replace_nodes};
use super::rows::Rows;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use serac_engine::table::bitmap::BitmapReader;
use serac_engine::values::array_of;
use serac_index::cubit::{Key, Predicate, Shared};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Costs: counting by hashing takes this long per row. Counting a value's rows in a filter's
/// bitvector takes this long per value and block.
const HASH_NS: f64 = 10.0;
const AND_NS: f64 = 100.0;

const EVERYTHING: Predicate<'static> = Predicate::Range(Bound::Unbounded, Bound::Unbounded);

/// The counted columns and their indexes.
#[derive(Clone, Debug)]
struct Counting {
    /// The index on the column that rows are grouped by.
    group: Option<BitmapReader>,
    filter: Option<Arc<BitmapFilter>>,
    /// Any index of the table: all know how many rows there are.
    any: BitmapReader,
}

/// A filter's bitvectors, by segments of the table, which threads share.
struct Counts {
    filter: Arc<BitmapFilter>,
    group: Option<GroupColumn>,
    /// The rows of each group, or all.
    by_segment: Shared<Vec<u64>>,
}

impl Counts {
    fn by_segment(&self) -> impl Iterator<Item = &Vec<u64>> {
        self.by_segment.all(|segment| {
            let (Rows::Only(rows) | Rows::Except(rows)) = self.filter.segment(segment);
            match &self.group {
                None => vec![rows.cardinality()],
                Some(group) => group.vectors().map(|of_value| rows.and_cardinality(of_value)).collect(),
            }
        })
    }
}

impl Counting {
    /// The values that have rows, with their counts, or the number of all rows. `None` if that is
    /// not known without a filter's bitvectors.
    fn known(&self) -> Option<Vec<(Key, u64)>> {
        match (&self.group, &self.filter) {
            (None, None) => Some(vec![(Key::null(), self.any.row_count())]),
            (None, Some(filter)) => Some(vec![(Key::null(), filter.count()?)]),
            (Some(group), None) => Some(group.counts(EVERYTHING)),
            (Some(group), Some(filter)) => {
                let mut counts = Vec::new();
                filter.values_of(group)?.for_each_predicate(|predicate| counts.extend(group.counts(predicate)));
                Some(counts)
            }
        }
    }

    /// The same from the bitvectors of `filter`, by this many threads.
    fn counted(&self, filter: &Arc<BitmapFilter>, threads: usize) -> Vec<(Key, u64)> {
        let (group, by_segment) = (self.group.as_ref().map(GroupColumn::new), Shared::new(filter.segments()));
        let counts = Arc::new(Counts { filter: filter.clone(), group, by_segment });
        // The helpers are not waited for: parts that they have not begun are done here.
        let help = |_| {
            let counts = counts.clone();
            SpawnedTask::spawn(async move { counts.by_segment().for_each(drop) })
        };
        let _helpers: Vec<SpawnedTask<()>> = (1..threads).map(help).collect();
        let all = match &self.group {
            None => vec![(Key::null(), filter.total())],
            Some(group) => group.counts(EVERYTHING),
        };
        let mut found = vec![0; all.len()];
        for segment in counts.by_segment() {
            found.iter_mut().zip(segment).for_each(|(sum, n)| *sum += n);
        }
        let except = matches!(filter.segment(0), Rows::Except(_));
        let of_value = |((key, all), found)| (key, if except { all - found } else { found });
        let counts = all.into_iter().zip(found).map(of_value);
        counts.filter(|(_, count)| self.group.is_none() || *count > 0).collect()
    }

    fn batch(&self, counts: &[(Key, u64)], schema: &SchemaRef) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = Vec::new();
        if let Some(group) = &self.group {
            let values: Vec<_> = counts.iter().map(|(key, _)| group.index().value(key)).collect();
            columns.push(array_of(&values, group.index().column_type));
        }
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(counts.iter().map(|(_, count)| *count as i64)));
        columns.resize(schema.fields().len(), numbers);
        let options = RecordBatchOptions::new().with_row_count(Some(counts.len()));
        Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
    }
}

/// Counts rows; see the module.
#[derive(Debug)]
pub struct CubitCountExec {
    counting: Counting,
    /// The number of threads that share the work if there is much.
    threads: usize,
    table: String,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl DisplayAs for CubitCountExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CubitCountExec: table={}", self.table)?;
        if let Some(group) = &self.counting.group {
            write!(f, ", by={}", group.index().definition.name)?;
        }
        match &self.counting.filter {
            Some(filter) => write!(f, ", bitmaps=[{filter}]"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for CubitCountExec {
    fn name(&self) -> &str {
        "CubitCountExec"
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

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (schema, counting, threads) = (self.schema(), self.counting.clone(), self.threads);
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let of_batch = schema.clone();
        let batch = futures::stream::once(async move {
            let _timer = baseline.elapsed_compute().timer();
            let counts = match (counting.known(), &counting.filter) {
                (Some(known), _) => known,
                (None, Some(filter)) => counting.counted(filter, threads),
                (None, None) => Vec::new(),
            };
            let batch = counting.batch(&counts, &of_batch)?;
            baseline.record_output(batch.num_rows());
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batch)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        let rows = match &self.counting.group {
            None => Precision::Exact(1),
            Some(group) => Precision::Inexact(group.index().entries.value_count() as usize),
        };
        Ok(Arc::new(Statistics { num_rows: rows, ..Statistics::new_unknown(&self.schema()) }))
    }
}

/// Lets bitmap indexes count; see the module.
#[derive(Debug, Default)]
pub struct BitmapCounts;

impl PhysicalOptimizerRule for BitmapCounts {
    fn name(&self) -> &str {
        "bitmap_counts"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        replace_nodes(plan, |aggregate| Ok(counted(aggregate).map(|count| Arc::new(count) as _)))
    }
}

/// Whether the aggregate counts all rows.
fn counts_rows(aggregate: &AggregateFunctionExpr, schema: &SchemaRef) -> bool {
    let counts = |expr: &Arc<dyn PhysicalExpr>| match expr.downcast_ref::<Literal>() {
        Some(literal) => !literal.value().is_null(),
        None => expr.downcast_ref::<Column>().is_some_and(|column| !schema.field(column.index()).is_nullable()),
    };
    let one = aggregate.expressions();
    aggregate.fun().name() == "count"
        && !aggregate.is_distinct()
        && aggregate.field().data_type() == &DataType::Int64
        && one.len() == 1
        && one.iter().all(counts)
}

fn counted(aggregate: &AggregateExec) -> Option<CubitCountExec> {
    let first = matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::Single);
    let scan = SeracScanExec::find(aggregate.input())?;
    let any = least(scan.indexes())?.clone();
    let plain = aggregate.filter_expr().iter().all(Option::is_none) && aggregate.limit_options().is_none();
    let counts = aggregate.aggr_expr().iter().all(|aggregate| counts_rows(aggregate, &scan.schema()));
    let by = aggregate.group_expr();
    if !first || !plain || !counts || by.has_grouping_set() || !scan.tests_nothing() {
        return None;
    }
    let group = match by.expr() {
        [] => None,
        [(expr, _)] => {
            let column = scan.column_of(expr.downcast_ref::<Column>()?.index())?;
            Some(scan.indexes().iter().find(|index| index.index().definition.column == column)?.clone())
        }
        _ => return None,
    };
    let filter = scan.bitmap().cloned();
    if let (Some(group), Some(filter)) = (&group, &filter)
        && filter.values_of(group).is_none()
    {
        let blocks = f64::from(scan.table().data.block_count());
        let work = group.index().entries.value_count() as f64 * blocks * AND_NS;
        if work > filter.estimated_rows() * HASH_NS {
            return None;
        }
    }
    let properties = properties(aggregate.schema(), 1, EmissionType::Final);
    let counting = Counting { group, filter, any };
    let (table, metrics) = (scan.table().name().to_owned(), ExecutionPlanMetricsSet::new());
    Some(CubitCountExec { counting, threads: scan.partitions(), table, properties, metrics })
}
