//! The scan of a remote table: a leaf of a physical plan, one partition for each range of blocks.
//!
//! Conditions that are known at planning are part of the request at planning and of every ticket.
//! Filters of joins become known while the query runs: a stream takes them when it begins, sends
//! those that are conditions, and applies the rest to the batches that come.
//!
//! In the place of rows, a scan may give the states of aggregates, or the first rows of each
//! partition: see the module `summary`.

use crate::error::RemoteError;
use crate::filter::{Conditions, is_dynamic};
use crate::snapshot::Snapshot;
use crate::stream::{PartitionReader, batches};
use crate::summary::{Aggregated, is_exact};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, apply_expression_roots};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use serac_client::flight::{
    Condition, Decimals, FlightEstimates, MOST_KEYS, MOST_TOP_ROWS, ScanRequest, SortKey, Ticket, Top, What,
};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The part of rows that is taken to fulfil conditions, as DataFusion takes it of a filter.
const FILTERED_PART: usize = 5;

/// A table of a server in a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) schema: String,
    pub(crate) table: String,
}

/// A range of blocks of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Partition {
    /// The number of its source.
    pub(crate) source: usize,
    pub(crate) blocks: Range<u32>,
    /// An estimate of the rows in the blocks.
    pub(crate) rows: u64,
    /// The locations at which it is read, before the server's addresses.
    pub(crate) places: Vec<usize>,
}

/// Reads a table over Flight.
#[derive(Clone, Debug)]
pub struct RemoteScanExec {
    pub(crate) sources: Vec<Source>,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) schema: SchemaRef,
    /// The conditions that the server tests.
    pub(crate) filter: Vec<Condition>,
    /// Filters that may change until a stream begins.
    pub(crate) dynamic: Vec<Arc<dyn PhysicalExpr>>,
    /// The most rows of a partition.
    pub(crate) limit: Option<usize>,
    /// The groups that the scan gives in the place of rows. The schema has their columns.
    pub(crate) aggregated: Option<Aggregated>,
    /// The rows of a partition that it gives; all if not said.
    pub(crate) top: Option<Top>,
    /// Whether all servers have aggregates and first rows.
    summarizes: bool,
    /// Different values of each column, where that is known.
    pub(crate) distinct: Vec<Option<u64>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

fn properties(schema: SchemaRef, partitions: usize) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

impl RemoteScanExec {
    /// A scan of no source yet.
    pub(crate) fn new(schema: SchemaRef, filter: Vec<Condition>, limit: Option<usize>) -> Self {
        Self {
            sources: Vec::new(),
            partitions: Vec::new(),
            filter,
            dynamic: Vec::new(),
            limit,
            aggregated: None,
            top: None,
            summarizes: true,
            distinct: vec![None; schema.fields().len()],
            properties: properties(schema.clone(), 0),
            metrics: ExecutionPlanMetricsSet::new(),
            schema,
        }
    }

    /// Reads a source, too.
    pub(crate) fn add(&mut self, source: Source, partitions: Vec<Partition>, estimates: &FlightEstimates) {
        let number = self.sources.len();
        self.sources.push(source);
        self.partitions.extend(partitions.into_iter().map(|partition| Partition { source: number, ..partition }));
        for (known, more) in self.distinct.iter_mut().zip(&estimates.distinct) {
            // Shards may have the same values: the most of one of them is a lower bound.
            *known = (*known).max(*more);
        }
        self.summarizes &= estimates.summaries;
        self.properties = properties(self.schema.clone(), self.partitions.len());
    }

    /// The snapshots that the scan reads, one for each server.
    pub fn snapshots(&self) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.sources.iter().map(|source| &source.snapshot)
    }

    /// Blocks of each partition.
    pub fn blocks(&self) -> impl Iterator<Item = Range<u32>> {
        self.partitions.iter().map(|partition| partition.blocks.clone())
    }

    /// The scan in parts for `tasks` tasks that run it together: each partition is in one part. All
    /// parts have the same number of partitions, some of which may be empty.
    pub fn split(&self, tasks: usize) -> Vec<Self> {
        let tasks = tasks.max(1);
        let of_part = self.partitions.len().div_ceil(tasks);
        let part = |number: usize| {
            let mut partitions: Vec<_> = self.partitions.iter().skip(number).step_by(tasks).cloned().collect();
            // In the order of sources, as all partitions are.
            let source = partitions.last().map_or(0, |last| last.source);
            partitions.resize(of_part, Partition { source, blocks: 0..0, rows: 0, places: Vec::new() });
            let properties = properties(self.schema.clone(), of_part);
            Self { partitions, properties, metrics: ExecutionPlanMetricsSet::new(), ..self.clone() }
        };
        (0..tasks).map(part).collect()
    }

    /// The request of a partition, without conditions that become known later.
    pub(crate) fn ticket(&self, partition: &Partition, filter: Vec<Condition>) -> Ticket {
        let source = &self.sources[partition.source];
        let columns = || self.schema.fields().iter().map(|field| field.name().clone()).collect();
        let request = ScanRequest {
            columns: self.aggregated.is_none().then(columns),
            filter,
            limit: self.limit.map(|limit| limit as u64),
            // Half the bytes, which the server does not copy. They are widened here.
            decimals: if self.is_summary() { Decimals::Decimal128 } else { Decimals::Decimal64 },
            aggregate: self.aggregated.as_ref().map(|aggregated| aggregated.request.clone()),
            top: self.top.clone(),
            ..source.snapshot.request(&source.schema, &source.table)
        };
        Ticket { what: What::Request(Box::new(request)), blocks: Some(partition.blocks.clone()) }
    }

    /// Whether servers can make a summary of its rows.
    pub(crate) fn can_summarize(&self) -> bool {
        self.summarizes && !self.sources.is_empty() && self.limit.is_none() && !self.is_summary()
    }

    fn is_summary(&self) -> bool {
        self.aggregated.is_some() || self.top.is_some()
    }

    /// The same partitions, of which the servers compute this.
    pub(crate) fn with_aggregated(
        &self,
        aggregated: Aggregated,
        schema: SchemaRef,
        dynamic: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Self {
        Self {
            aggregated: Some(aggregated),
            dynamic,
            distinct: vec![None; schema.fields().len()],
            properties: properties(schema.clone(), self.partitions.len()),
            metrics: ExecutionPlanMetricsSet::new(),
            schema,
            ..self.clone()
        }
    }

    /// The same scan of the first rows of each partition alone: by columns, in these orders. `None`
    /// if the servers do not have it, or order a column otherwise.
    pub fn first_rows(&self, by: &[(usize, SortOptions)], rows: usize) -> Option<Self> {
        let rows = u64::try_from(rows).ok().filter(|rows| (1..=MOST_TOP_ROWS).contains(rows))?;
        let is_known = (1..=MOST_KEYS).contains(&by.len()) && by.iter().all(|&(at, _)| is_exact(self.schema.field(at)));
        if !self.can_summarize() || !is_known {
            return None;
        }
        let key = |&(at, options): &(usize, SortOptions)| SortKey {
            column: self.schema.field(at).name().clone(),
            descending: options.descending,
            nulls_first: options.nulls_first,
        };
        let top = Some(Top { by: by.iter().map(key).collect(), rows });
        // A filter that comes later would be tested on the first rows alone.
        Some(Self { top, dynamic: Vec::new(), metrics: ExecutionPlanMetricsSet::new(), ..self.clone() })
    }

    /// Rows of all partitions that pass the conditions.
    pub(crate) fn estimated_rows(&self) -> u64 {
        let rows = self.partitions.iter().map(|partition| partition.rows).fold(0, u64::saturating_add);
        if self.filter.is_empty() { rows } else { rows.div_ceil(FILTERED_PART as u64) }
    }

    /// The columns that filters may name, which become known while the query runs.
    pub(crate) fn filterable(&self) -> &SchemaRef {
        self.aggregated.as_ref().map_or(&self.schema, |aggregated| &aggregated.groups)
    }

    fn statistics(&self, partition: Option<usize>) -> Result<Statistics> {
        let rows = match partition {
            Some(number) => match self.partitions.get(number) {
                Some(partition) => partition.rows,
                None => return internal_err!("the scan has no partition {number}"),
            },
            None => self.partitions.iter().map(|partition| partition.rows).fold(0, u64::saturating_add),
        };
        let mut rows = usize::try_from(rows).unwrap_or(usize::MAX);
        if !self.filter.is_empty() {
            rows = rows.div_ceil(FILTERED_PART);
        }
        let partitions = if partition.is_some() { 1 } else { self.partitions.len() };
        let top = self.top.as_ref().map(|top| usize::try_from(top.rows).unwrap_or(usize::MAX));
        if let Some(limit) = self.limit.or(top) {
            rows = rows.min(limit.saturating_mul(partitions));
        }
        if self.aggregated.as_ref().is_some_and(|aggregated| aggregated.request.groups.is_empty()) {
            rows = partitions;
        }
        let widths = self.schema.fields().iter().map(|field| field.data_type().primitive_width().unwrap_or(24));
        let columns = self.distinct.iter().map(|distinct| ColumnStatistics {
            distinct_count: match distinct {
                Some(distinct) => Precision::Inexact(usize::try_from(*distinct).unwrap_or(usize::MAX).min(rows)),
                None => Precision::Absent,
            },
            ..ColumnStatistics::new_unknown()
        });
        Ok(Statistics {
            num_rows: Precision::Inexact(rows),
            total_byte_size: Precision::Inexact(rows.saturating_mul(widths.sum())),
            column_statistics: columns.collect(),
        })
    }
}

/// A condition as EXPLAIN shows it.
fn shown(Condition(column, operator, constant): &Condition) -> String {
    format!("{column} {operator} {constant}")
}

/// A sort key as EXPLAIN shows it.
fn shown_key(SortKey { column, descending, nulls_first }: &SortKey) -> String {
    let direction = if *descending { "DESC" } else { "ASC" };
    format!("{column} {direction} NULLS {}", if *nulls_first { "FIRST" } else { "LAST" })
}

impl DisplayAs for RemoteScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(", ");
        let sources = names(&mut self.sources.iter().map(|source| format!("{}.{}", source.schema, source.table)));
        let columns = names(&mut self.schema.fields().iter().map(|field| field.name().clone()));
        match &self.aggregated {
            Some(aggregated) => write!(f, "{}: table=[{sources}], aggregate=[{}]", self.name(), aggregated.shown())?,
            None => write!(f, "{}: table=[{sources}], columns=[{columns}]", self.name())?,
        }
        if !self.filter.is_empty() {
            write!(f, ", filter=[{}]", self.filter.iter().map(shown).collect::<Vec<_>>().join(" AND "))?;
        }
        if !self.dynamic.is_empty() {
            write!(f, ", dynamic=[{}]", names(&mut self.dynamic.iter().map(ToString::to_string)))?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        if let Some(Top { by, rows }) = &self.top {
            write!(f, ", top=[{}], rows={rows}", names(&mut by.iter().map(shown_key)))?;
        }
        write!(f, ", partitions={}", self.partitions.len())
    }
}

impl ExecutionPlan for RemoteScanExec {
    fn name(&self) -> &str {
        "RemoteScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(&self.dynamic, f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a remote scan has no children") }
    }

    /// Without filters of earlier rounds, which would drop rows that the next round needs.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { dynamic: Vec::new(), metrics: ExecutionPlanMetricsSet::new(), ..(*self).clone() }))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(read) = self.partitions.get(partition) else {
            return internal_err!("the scan has no partition {partition}");
        };
        let reader = PartitionReader::new(self.clone(), read.clone(), partition, &self.metrics);
        Ok(batches(self.schema.clone(), reader))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        self.statistics(args.partition()).map(Arc::new)
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        // Filters that come later would be tested on the limited rows.
        let can_limit = self.dynamic.is_empty() && !self.is_summary();
        can_limit.then(|| Arc::new(Self { limit, ..self.clone() }) as _)
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let mut columns = Vec::with_capacity(projection.expr().len());
        for item in projection.expr() {
            match item.expr.downcast_ref::<Column>() {
                Some(column) if column.name() == item.alias => columns.push(column.index()),
                _ => return Ok(None),
            }
        }
        // Filters that come later name columns by their places. First rows are sorted by columns.
        if !self.dynamic.is_empty() || self.is_summary() {
            return Ok(None);
        }
        let schema = Arc::new(self.schema.project(&columns)?);
        Ok(Some(Arc::new(Self {
            distinct: columns.iter().map(|&column| self.distinct[column]).collect(),
            properties: properties(schema.clone(), self.partitions.len()),
            schema,
            ..self.clone()
        })))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        // A filter above a limit, or above aggregates, does not hold below it.
        if self.limit.is_some() || self.is_summary() {
            return Ok(FilterPushdownPropagation::all_unsupported(pushed));
        }
        let mut scan = self.clone();
        let mut filter = Conditions::new(std::mem::take(&mut scan.filter));
        let mut answers = Vec::with_capacity(pushed.parent_filters.len());
        for parent in pushed.parent_filters {
            if is_dynamic(&parent.filter) {
                // What a stream takes of it holds for that stream, but not what comes later.
                scan.dynamic.push(parent.filter);
                answers.push(PushedDown::No);
            } else if filter.add(&parent.filter, &self.schema) {
                answers.push(PushedDown::Yes);
            } else {
                answers.push(PushedDown::No);
            }
        }
        scan.filter = filter.all;
        Ok(FilterPushdownPropagation::with_parent_pushdown_result(answers).with_updated_node(Arc::new(scan)))
    }
}

impl RemoteScanExec {
    /// The error of a batch that does not have the plan's columns.
    pub(crate) fn unexpected(&self, partition: &Partition, detail: impl fmt::Display) -> RemoteError {
        self.sources[partition.source].snapshot.remote().unreadable(detail)
    }
}
