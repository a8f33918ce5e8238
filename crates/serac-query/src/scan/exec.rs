//! `SeracScanExec`: reads the blocks of a table in a snapshot.
//!
//! Partitions take segments of blocks, and at the end blocks of other partitions' segments
//! ([`super::segments`]), so that threads balance by themselves. Or they take the blocks that other
//! scans of the table have just read ([`super::circular`]). With a [`BitmapFilter`] it is the CUBIT
//! scan: it looks only at rows that the filter names.

mod blocks;

pub(super) use blocks::{BlockRows, BlockScan, SessionScans};

use super::bitmap::{BitmapFilter, Indexes, most_keys};
use super::circular::{Member, Reading, ScanSharing};
use super::conjunct::Conjunct;
use super::join_keys::KeyFilter;
use super::places::Places;
use super::plan::properties;
use super::rows::KeyRows;
use super::segments::BlockQueue;
use blocks::filter_block;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::{DECIMAL64_MAX_PRECISION, DataType, Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{ColumnStatistics, Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::execution_plan::{EmissionType, apply_expression_roots};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use serac_engine::Table;
use serac_engine::table::bitmap::BitmapReader;
use serac_engine::table::statistics::TableStatistics;
use serac_storage::{BlockNo, ColumnId, Snapshot};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Blocks looked at without output before the task gives way to others.
const BLOCKS_PER_TURN: usize = 16;
/// Rows named by bitmap indexes for which another partition is worth its while.
const ROWS_PER_PARTITION: usize = 16_384;
/// The blocks of a table that one thread reads where the order of rows is seen.
const BLOCKS_IN_ORDER: usize = 4;
/// The rows of a LIMIT that one thread reads.
const FIRST_ROWS: usize = 8_192;
/// Blocks sampled at planning to estimate how many rows the filters leave.
const SAMPLED_BLOCKS: usize = 24;
/// Rows sampled of them together.
const SAMPLED_ROWS: usize = 96 << 10;
/// Blocks whose zone maps are compared with a filter for an estimate.
const MAPPED_BLOCKS: usize = 64;

/// The order in which a scan's partitions get its blocks.
#[derive(Debug)]
enum BlockOrder {
    Alone(BlockQueue),
    Shared(Arc<Member>),
}

/// Reads a table's blocks; see the module.
#[derive(Debug, Clone)]
pub struct SeracScanExec {
    table: Arc<Table>,
    snapshot: Snapshot,
    /// The table's bitmap indexes.
    indexes: Indexes,
    bitmap: Option<Arc<BitmapFilter>>,
    /// The places that rows must have.
    places: Option<Arc<Places>>,
    /// The table's columns and, last, the row id and the place.
    full_schema: SchemaRef,
    /// Output columns, as positions in `full_schema`.
    projection: Vec<usize>,
    /// Conjuncts over `full_schema`.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Columns whose values must be among the keys of a join.
    key_filters: Vec<(usize, Arc<KeyFilter>)>,
    /// The rows that have keys of joins, once they are known and where indexes have looked them up.
    joined: Arc<OnceLock<KeyRows>>,
    limit: Option<usize>,
    estimated_rows: usize,
    statistics: Arc<TableStatistics>,
    blocks: Arc<OnceLock<BlockOrder>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SeracScanExec {
    /// A scan of `projection`, as positions in the table's columns (the row id and the place stand
    /// behind the last).
    #[expect(clippy::too_many_arguments, reason = "what DataFusion gives, and what the table knows")]
    pub(super) fn new(
        table: Arc<Table>,
        snapshot: Snapshot,
        indexes: Indexes,
        bitmap: Option<Arc<BitmapFilter>>,
        places: Option<Arc<Places>>,
        full_schema: SchemaRef,
        projection: Vec<usize>,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        estimated_rows: f64,
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<Self> {
        let blocks = blocks_of(&table, places.as_deref()).len();
        let share =
            bitmap.as_ref().map_or(usize::MAX, |bitmap| bitmap.estimated_rows() as usize / ROWS_PER_PARTITION + 1);
        let properties = projected(&full_schema, &projection, partitions.min(blocks).min(share).max(1))?;
        Ok(Self {
            estimated_rows: estimated_rows.ceil() as usize,
            statistics: table.statistics(&snapshot),
            table,
            snapshot,
            indexes,
            bitmap,
            places,
            full_schema,
            projection,
            filters,
            key_filters: Vec::new(),
            joined: Arc::default(),
            limit,
            blocks: Arc::default(),
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    fn conjuncts(&self) -> Result<Vec<Conjunct>> {
        let mut conjuncts = conjuncts_of(&self.table, &self.full_schema, &self.filters)?;
        conjuncts.extend(self.key_filters.iter().map(|(column, filter)| Conjunct::keys(*column, filter.clone())));
        Ok(conjuncts)
    }

    /// The scan that `plan` is, or that it deals out to more partitions.
    pub(super) fn find(plan: &Arc<dyn ExecutionPlan>) -> Option<&Self> {
        match plan.downcast_ref::<RepartitionExec>() {
            Some(dealt) if matches!(dealt.partitioning(), Partitioning::RoundRobinBatch(_)) => {
                Self::find(dealt.input())
            }
            _ => plan.downcast_ref(),
        }
    }

    pub(super) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub(super) fn indexes(&self) -> &Indexes {
        &self.indexes
    }

    /// The part of the filter that bitmap indexes answer.
    pub(super) fn bitmap(&self) -> Option<&Arc<BitmapFilter>> {
        self.bitmap.as_ref()
    }

    /// Whether no row is looked at but those that bitmap indexes name.
    pub fn is_selective(&self) -> bool {
        self.bitmap.is_some()
    }

    /// Whether the scan gives all rows that bitmap indexes name, or all that there are.
    pub(super) fn tests_nothing(&self) -> bool {
        self.filters.is_empty() && self.key_filters.is_empty() && self.limit.is_none() && self.places.is_none()
    }

    pub(super) fn estimated_rows(&self) -> f64 {
        self.estimated_rows as f64
    }

    /// Whether another scan finds the same rows, apart from filters of joins.
    pub(super) fn finds_the_same(&self, other: &Self) -> bool {
        let same_bitmap = match (&self.bitmap, &other.bitmap) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        let fixed = |scan: &Self| {
            let dynamic = |filter: &Arc<dyn PhysicalExpr>| filter.downcast_ref::<DynamicFilterPhysicalExpr>().is_some();
            scan.key_filters.is_empty() && scan.limit.is_none() && !scan.filters.iter().any(dynamic)
        };
        Arc::ptr_eq(&self.table, &other.table)
            && self.snapshot.start() == other.snapshot.start()
            && same_bitmap
            && self.places == other.places
            && fixed(self)
            && fixed(other)
            && self.filters == other.filters
    }

    /// The scan that gives these of its output columns, and then the row ids.
    pub(super) fn with_row_ids(&self, outputs: &[usize]) -> Result<Self> {
        let row_id = self.table.definition.columns.len();
        let projection: Vec<usize> = outputs.iter().map(|&output| self.projection[output]).chain([row_id]).collect();
        let partitions = self.properties.partitioning.partition_count();
        let properties = projected(&self.full_schema, &projection, partitions)?;
        Ok(Self { projection, properties, ..self.clone() })
    }

    /// The scan that gives decimals of up to 18 digits as Arrow's Decimal64, which is how they are
    /// stored.
    pub fn with_short_decimals(&self) -> Self {
        let schema = self.schema();
        let fields = schema.fields().iter().map(|field| match *field.data_type() {
            DataType::Decimal128(digits @ ..=DECIMAL64_MAX_PRECISION, scale) => {
                Arc::new(field.as_ref().clone().with_data_type(DataType::Decimal64(digits, scale)))
            }
            _ => field.clone(),
        });
        let schema = Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone());
        let properties = properties(schema.into(), self.partitions(), EmissionType::Incremental);
        Self { properties, ..self.clone() }
    }

    /// The table's column behind an output column; `None` for the row id and the place.
    pub(super) fn column_of(&self, output: usize) -> Option<usize> {
        self.projection.get(output).copied().filter(|&column| !self.is_hidden(column))
    }

    /// The number of threads to which blocks are dealt out.
    pub(super) fn partitions(&self) -> usize {
        self.properties.partitioning.partition_count()
    }

    /// The scan by one thread, which gives the rows in the order in which they are stored, if one
    /// thread is enough: the table has few blocks, or the first rows that come are taken.
    pub(crate) fn in_stored_order(&self) -> Option<Self> {
        let takes_first = self.filters.is_empty() && self.limit.is_some_and(|limit| limit <= FIRST_ROWS);
        let is_small = self.block_range().len() <= BLOCKS_IN_ORDER;
        (self.partitions() > 1 && (is_small || takes_first)).then(|| {
            let properties = properties(self.schema(), 1, EmissionType::Incremental);
            Self { properties, ..self.clone() }
        })
    }

    /// Whether rows without a partner in a join are left out.
    pub(super) fn has_key_filters(&self) -> bool {
        !self.key_filters.is_empty()
    }

    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub(super) fn filters(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.filters
    }

    pub(super) fn full_schema(&self) -> &SchemaRef {
        &self.full_schema
    }

    /// The scan with key filters on columns in place of the dynamic filter `id`.
    pub(super) fn with_key_filters(
        &self,
        id: u64,
        key_filters: impl IntoIterator<Item = (usize, Arc<KeyFilter>)>,
    ) -> Self {
        let mut scan = self.clone();
        scan.filters.retain(|filter| filter.expression_id() != Some(id));
        let rows = scan.looked_at();
        for (column, filter) in key_filters {
            if scan.index_on(column).is_some() {
                filter.list_keys(most_keys(rows));
            }
            scan.key_filters.push((column, filter));
        }
        scan
    }

    /// The table column behind an output column. `None` for a row id or a place, or if a LIMIT
    /// leaves rows out.
    pub(super) fn table_column(&self, output: usize) -> Option<usize> {
        if self.limit.is_some() { None } else { self.column_of(output) }
    }

    /// Whether a key filter tests a column already.
    pub(super) fn has_key_filter(&self, column: usize, filter: &Arc<KeyFilter>) -> bool {
        self.key_filters.iter().any(|(known, by)| *known == column && Arc::ptr_eq(by, filter))
    }

    /// The scan without the dynamic filter `id`.
    pub(super) fn without_filter(&self, id: Option<u64>) -> Self {
        let mut scan = self.clone();
        scan.filters.retain(|filter| id.is_none() || filter.expression_id() != id);
        scan
    }

    /// Rows that it looks at to find those that it gives.
    pub(super) fn looked_at(&self) -> f64 {
        self.bitmap.as_ref().map_or(table_rows(&self.table), |bitmap| bitmap.estimated_rows())
    }

    /// The bitmap index on a column of the table.
    pub(super) fn index_on(&self, column: usize) -> Option<&BitmapReader> {
        self.indexes.iter().find(|index| index.index().definition.column == column)
    }

    /// The rows with the keys of joins, if indexes have been worth asking for them and the keys are
    /// known by now.
    fn joined(&self) -> Option<&KeyRows> {
        if let Some(rows) = self.joined.get() {
            return Some(rows);
        }
        let listed = self.key_filters.iter().filter_map(|(c, filter)| Some((self.index_on(*c)?, filter.listed()?)));
        let (index, keys) = listed.min_by_key(|(_, keys)| keys.len())?;
        Some(self.joined.get_or_init(|| self.rows_with(index, keys, false)))
    }

    fn rows_with(&self, index: &BitmapReader, keys: Arc<Vec<i64>>, anti: bool) -> KeyRows {
        KeyRows::new(index.clone(), keys, anti, self.table.data.block_count())
    }

    /// Lets the scan, and all that share its state, begin with the rows that have one of the
    /// ascending `keys` in an indexed column of integers or dates; with `anti`, with the rows that
    /// have none.
    pub(super) fn join(&self, column: usize, keys: Vec<i64>, anti: bool) -> Result<()> {
        let index = self.index_on(column);
        let index = index.ok_or_else(|| DataFusionError::Internal("the join has lost its index".into()))?;
        let _ = self.joined.set(self.rows_with(index, Arc::new(keys), anti));
        Ok(())
    }

    /// The order of the blocks: with other scans, unless the plan relies on the table's order.
    fn new_order(&self, sharing: Option<&ScanSharing>) -> BlockOrder {
        let range = self.block_range();
        let blocks = range.len() as u32;
        let reading = Reading { blocks, bytes_per_block: self.bytes_per_block(), is_selective: self.bitmap.is_some() };
        // Scans of a part do not meet others.
        let is_free = self.places.is_none() && self.properties.output_ordering().is_none();
        let sharing = sharing.filter(|_| is_free);
        match sharing.and_then(|sharing| sharing.attach(&self.table.data, reading)) {
            Some(member) => BlockOrder::Shared(member),
            None => BlockOrder::Alone(BlockQueue::new(range)),
        }
    }

    /// The blocks that may have rows for it.
    fn block_range(&self) -> Range<u32> {
        blocks_of(&self.table, self.places.as_deref())
    }

    /// Bytes of a block's columns that filters or the output name. A text counts only with its part
    /// in the block itself.
    fn bytes_per_block(&self) -> usize {
        let filtered = self.filters.iter().flat_map(collect_columns).map(|column| column.index());
        let keys = self.key_filters.iter().map(|(column, _)| *column);
        let columns: BTreeSet<usize> = filtered.chain(keys).chain(self.projection.iter().copied()).collect();
        let columns = columns.into_iter().filter(|&column| !self.is_hidden(column));
        columns.map(|column| self.table.data.layout().value_bytes(ColumnId(column as u16))).sum()
    }

    fn column_statistics(&self, column: usize, rows: usize) -> ColumnStatistics {
        let mut statistics = ColumnStatistics::new_unknown();
        let distinct = self.statistics.distinct.get(column).copied().flatten();
        let key = self.table.definition.keys.iter().any(|key| key.unique && key.columns == [column]);
        if let Some(distinct) = if key { Some(rows as u64) } else { distinct } {
            statistics.distinct_count = Precision::Inexact((distinct as usize).min(rows));
        }
        statistics
    }

    /// Whether a column is the row id or the place.
    fn is_hidden(&self, column: usize) -> bool {
        column >= self.table.definition.columns.len()
    }
}

/// The blocks that may have rows in certain places, or in any.
fn blocks_of(table: &Table, places: Option<&Places>) -> Range<u32> {
    let blocks = table.data.block_count();
    places.map_or(0..blocks, |places| places.blocks(blocks))
}

fn table_rows(table: &Table) -> f64 {
    table.data.approximate_rows() as f64
}

fn projected(full_schema: &SchemaRef, projection: &[usize], partitions: usize) -> Result<Arc<PlanProperties>> {
    Ok(properties(Arc::new(full_schema.project(projection)?), partitions, EmissionType::Incremental))
}

/// The conjuncts for expressions over a table's columns.
pub(super) fn conjuncts_of(
    table: &Table,
    full_schema: &SchemaRef,
    filters: &[Arc<dyn PhysicalExpr>],
) -> Result<Vec<Conjunct>> {
    filters.iter().map(|filter| Conjunct::new(table.data.schema(), full_schema, filter)).collect()
}

/// The share of rows that the conjuncts leave: of the blocks that zone maps do not exclude, from a
/// few of them.
pub(super) fn sampled_share(table: &Table, snapshot: &Snapshot, conjuncts: &mut [Conjunct]) -> Result<f64> {
    let blocks = table.data.block_count();
    let spread = |of: usize, most: usize| {
        let taken = of.min(most);
        (0..taken).map(move |i| (2 * i + 1) * of / (2 * taken))
    };
    let (mut possible, mut excluded, mut excluded_rows) = (Vec::new(), 0usize, 0usize);
    for at in spread(blocks as usize, MAPPED_BLOCKS) {
        let Some(reader) = table.data.read_block(snapshot, BlockNo(at as u32)) else { continue };
        if conjuncts.iter().any(|conjunct| conjunct.excludes(&reader)) {
            excluded += 1;
            excluded_rows += reader.visible().len();
        } else {
            possible.push(BlockNo(at as u32));
        }
    }
    let (mut seen, mut left) = (0usize, 0usize);
    let most = SAMPLED_ROWS / possible.len().clamp(1, SAMPLED_BLOCKS);
    for at in spread(possible.len(), SAMPLED_BLOCKS) {
        let Some(mut reader) = table.data.read_block(snapshot, possible[at]) else { continue };
        let mut sample = reader.visible().clone();
        if sample.len() > most {
            let places: Vec<u32> = spread(sample.len(), most).map(|place| place as u32).collect();
            sample = sample.narrow(&places);
        }
        seen += sample.len();
        left += filter_block(&mut reader, sample, conjuncts)?.0.len();
    }
    // A sample without remaining rows does not mean that no row is left.
    Ok(match seen {
        0 if excluded_rows == 0 => 1.0,
        0 => 0.5 / excluded_rows as f64,
        _ => (left as f64).max(0.5) / seen as f64 * possible.len() as f64 / (possible.len() + excluded) as f64,
    })
}

struct ScanStream {
    blocks: BlockScan,
    schema: SchemaRef,
    coalescer: BatchCoalescer,
    /// Batches of at least this many rows are not copied into others.
    uncopied_rows: usize,
    remaining: usize,
    finished: bool,
    baseline: BaselineMetrics,
}

impl ScanStream {
    /// The next batch of output, if there is one within this turn.
    fn turn(&mut self) -> Result<Option<RecordBatch>> {
        for _ in 0..BLOCKS_PER_TURN {
            if let Some(batch) = self.coalescer.next_completed_batch() {
                return Ok(Some(batch));
            }
            if self.finished {
                return Ok(None);
            }
            if self.blocks.gives_way() {
                return Ok(None);
            }
            let next = if self.remaining == 0 { None } else { self.blocks.next() };
            let Some(no) = next else {
                self.finished = true;
                self.coalescer.finish_buffered_batch()?;
                continue;
            };
            if let Some(mut batch) = self.blocks.batch(no, &self.schema)? {
                if batch.num_rows() > self.remaining {
                    batch = batch.slice(0, self.remaining);
                }
                self.remaining -= batch.num_rows();
                // Large batches go out as they are: those of frozen blocks are the blocks' own
                // buffers.
                if batch.num_columns() == 0 || batch.num_rows() >= self.uncopied_rows {
                    return Ok(Some(batch));
                }
                self.coalescer.push_batch(batch)?;
            }
        }
        Ok(self.coalescer.next_completed_batch())
    }
}

impl DisplayAs for SeracScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.projection.iter().map(|&c| self.full_schema.field(c).name().as_str()).collect();
        write!(f, "{}: table={}, columns=[{}]", self.name(), self.table.name(), names.join(", "))?;
        if let Some(bitmap) = &self.bitmap {
            write!(f, ", bitmaps=[{bitmap}]")?;
        }
        if let Some(places) = &self.places {
            write!(f, ", places=[{places}]")?;
        }
        if !self.filters.is_empty() {
            let filters: Vec<_> = self.filters.iter().map(ToString::to_string).collect();
            write!(f, ", filters=[{}]", filters.join(" AND "))?;
        }
        if !self.key_filters.is_empty() {
            let names: Vec<_> =
                self.key_filters.iter().map(|(c, _)| self.full_schema.field(*c).name().as_str()).collect();
            write!(f, ", key_filters=[{}]", names.join(", "))?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        write!(f, ", estimated_rows={}", self.estimated_rows)
    }
}

impl ExecutionPlan for SeracScanExec {
    fn name(&self) -> &str {
        if self.bitmap.is_some() { "CubitScanExec" } else { "SeracScanExec" }
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
        apply_expression_roots(&self.filters, f)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut fresh = (*self).clone();
        fresh.blocks = Arc::default();
        fresh.joined = Arc::default();
        fresh.metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(fresh))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let stream = ScanStream {
            blocks: BlockScan::new(self, partition, SessionScans::of(&context))?,
            schema: schema.clone(),
            coalescer: BatchCoalescer::new(schema.clone(), context.session_config().batch_size()),
            uncopied_rows: context.session_config().batch_size() / 8,
            remaining: self.limit.unwrap_or(usize::MAX),
            finished: false,
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        let batches = futures::stream::try_unfold(stream, |mut stream| async move {
            loop {
                let batch = {
                    let timer = stream.baseline.elapsed_compute().clone();
                    let _timer = timer.timer();
                    stream.turn()?
                };
                match batch {
                    Some(batch) => {
                        stream.baseline.record_output(batch.num_rows());
                        return Ok(Some((batch, stream)));
                    }
                    None if stream.finished => return Ok(None),
                    None => tokio::task::yield_now().await,
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let schema = self.schema();
        let rows = match partition {
            Some(_) => self.estimated_rows.div_ceil(self.properties.partitioning.partition_count()),
            None => self.estimated_rows,
        };
        let rows = self.limit.map_or(rows, |limit| rows.min(limit));
        let row_bytes: usize = schema.fields().iter().map(|f| f.data_type().primitive_width().unwrap_or(24)).sum();
        Ok(Arc::new(Statistics {
            num_rows: Precision::Inexact(rows),
            total_byte_size: Precision::Inexact(rows * row_bytes),
            column_statistics: self.projection.iter().map(|&c| self.column_statistics(c, rows)).collect(),
        }))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Self { limit, ..self.clone() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let mut columns = Vec::new();
        for item in projection.expr() {
            match item.expr.downcast_ref::<Column>() {
                Some(column) if column.name() == item.alias => columns.push(self.projection[column.index()]),
                _ => return Ok(None),
            }
        }
        let partitions = self.properties.partitioning.partition_count();
        let properties = projected(&self.full_schema, &columns, partitions)?;
        Ok(Some(Arc::new(Self { projection: columns, properties, ..self.clone() })))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        if self.limit.is_some() {
            return Ok(FilterPushdownPropagation::all_unsupported(pushed));
        }
        // Filters name our output columns; inside the scan they name the table's.
        let mut filters = self.filters.clone();
        let mut answers = Vec::with_capacity(pushed.parent_filters.len());
        for parent in pushed.parent_filters {
            let mut only_columns = true;
            let filter = parent
                .filter
                .transform(|e| {
                    Ok(match e.downcast_ref::<Column>() {
                        Some(column) => {
                            let full = self.projection[column.index()];
                            only_columns &= !self.is_hidden(full);
                            Transformed::yes(Arc::new(Column::new(self.full_schema.field(full).name(), full)) as _)
                        }
                        None => Transformed::no(e),
                    })
                })?
                .data;
            if only_columns {
                filters.push(filter);
            }
            answers.push(if only_columns { PushedDown::Yes } else { PushedDown::No });
        }
        let scan = Self { filters, ..self.clone() };
        Ok(FilterPushdownPropagation::with_parent_pushdown_result(answers).with_updated_node(Arc::new(scan)))
    }
}
