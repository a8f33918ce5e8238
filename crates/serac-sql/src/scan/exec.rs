//! `SeracScanExec`: reads the blocks of a table in a snapshot.
//!
//! Partitions share one cursor over the block numbers, so that threads balance by themselves. With a [`BitmapFilter`] it is the CUBIT scan: it looks
//! only at rows that the filter names.

use super::bitmap::{BitmapFilter, Indexes, Rows, most_keys};
use super::conjunct::Conjunct;
use super::key_filter::KeyFilter;
use super::plan::properties;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::{BatchCoalescer, take};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{ColumnStatistics, Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::execution_plan::{EmissionType, apply_expression_roots};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use serac_engine::Table;
use serac_engine::bitmap::BitmapReader;
use serac_engine::statistics::TableStatistics;
use serac_index::cubit::{Key, Predicate};
use serac_storage::{
    BlockNo, BlockReadStats, BlockReader, ColumnForm, ColumnId, ScanColumn, Selection, Snapshot, Value,
};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// Blocks looked at without output before the task gives way to others.
const BLOCKS_PER_TURN: usize = 16;
/// Blocks after which the conjuncts are put in order anew.
const BLOCKS_PER_ORDER: u32 = 8;
/// Rows named by bitmap indexes for which another partition is worth its while.
const ROWS_PER_PARTITION: usize = 16_384;
/// Blocks sampled at planning to estimate how many rows the filters leave.
const SAMPLED_BLOCKS: u64 = 3;

/// Reads a table's blocks; see the module.
#[derive(Debug, Clone)]
pub struct SeracScanExec {
    table: Arc<Table>,
    snapshot: Snapshot,
    /// The table's bitmap indexes.
    indexes: Indexes,
    bitmap: Option<Arc<BitmapFilter>>,
    /// The table's columns and, last, the row id.
    full_schema: SchemaRef,
    /// Output columns, as positions in `full_schema`.
    projection: Vec<usize>,
    /// Conjuncts over `full_schema`.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Columns whose values must be among the keys of a join.
    key_filters: Vec<(usize, Arc<KeyFilter>)>,
    /// The rows that have keys of joins, once they are known and where indexes have looked them up.
    joined: Arc<OnceLock<Rows>>,
    limit: Option<usize>,
    estimated_rows: usize,
    statistics: Arc<TableStatistics>,
    next_block: Arc<AtomicU32>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SeracScanExec {
    /// A scan of `projection`, as positions in the table's columns (the row id stands behind the last).
    #[expect(clippy::too_many_arguments, reason = "what DataFusion gives, and what the table knows")]
    pub(super) fn new(
        table: Arc<Table>,
        snapshot: Snapshot,
        indexes: Indexes,
        bitmap: Option<Arc<BitmapFilter>>,
        full_schema: SchemaRef,
        projection: Vec<usize>,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        estimated_rows: f64,
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<Self> {
        let blocks = table.data.block_count() as usize;
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
            full_schema,
            projection,
            filters,
            key_filters: Vec::new(),
            joined: Arc::default(),
            limit,
            next_block: Arc::default(),
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
    /// What bitmap indexes answer of the filter.
    pub(super) fn bitmap(&self) -> Option<&Arc<BitmapFilter>> {
        self.bitmap.as_ref()
    }
    /// Whether no row is looked at but those that bitmap indexes name.
    pub fn is_selective(&self) -> bool {
        self.bitmap.is_some()
    }
    /// Whether the scan gives all rows that bitmap indexes name, or all that there are.
    pub(super) fn tests_nothing(&self) -> bool {
        self.filters.is_empty() && self.key_filters.is_empty() && self.limit.is_none()
    }
    pub(super) fn estimated_rows(&self) -> f64 {
        self.estimated_rows as f64
    }
    /// The scan that gives these of its output columns, and then the row ids.
    pub(super) fn with_row_ids(&self, outputs: &[usize]) -> Result<Self> {
        let row_id = self.table.definition.columns.len();
        let projection: Vec<usize> = outputs.iter().map(|&output| self.projection[output]).chain([row_id]).collect();
        let partitions = self.properties.partitioning.partition_count();
        let properties = projected(&self.full_schema, &projection, partitions)?;
        Ok(Self { projection, properties, ..self.clone() })
    }
    /// The table's column behind an output column; none for the row id.
    pub(super) fn column_of(&self, output: usize) -> Option<usize> {
        self.projection.get(output).copied().filter(|&column| !self.is_row_id(column))
    }
    pub(super) fn filters(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.filters
    }
    pub(super) fn full_schema(&self) -> &SchemaRef {
        &self.full_schema
    }
    /// The scan with key filters on some columns in place of the dynamic filter `id`.
    pub(super) fn with_key_filters(
        &self,
        id: u64,
        key_filters: impl IntoIterator<Item = (usize, Arc<KeyFilter>)>,
    ) -> Self {
        let mut scan = self.clone();
        scan.filters.retain(|filter| filter.expression_id() != Some(id));
        let rows = scan.bitmap.as_ref().map_or(table_rows(&scan.table), |bitmap| bitmap.estimated_rows());
        for (column, filter) in key_filters {
            if scan.index_on(column).is_some() {
                filter.list_keys(most_keys(rows));
            }
            scan.key_filters.push((column, filter));
        }
        scan
    }
    fn index_on(&self, column: usize) -> Option<&BitmapReader> {
        self.indexes.iter().find(|index| index.index().definition.column == column)
    }
    /// The rows with the keys of joins, if indexes have been worth asking for them and the keys are known by now.
    fn joined(&self) -> Option<&Rows> {
        if let Some(rows) = self.joined.get() {
            return Some(rows);
        }
        let listed = self.key_filters.iter().filter_map(|(c, filter)| Some((self.index_on(*c)?, filter.listed()?)));
        let (index, keys) = listed.min_by_key(|(_, keys)| keys.len())?;
        Some(self.joined.get_or_init(|| {
            let value = |&key: &i64| match self.full_schema.field(index.index().definition.column).data_type() {
                DataType::Int16 => Value::Int16(key as i16),
                DataType::Int32 | DataType::Date32 => Value::Int32(key as i32),
                _ => Value::Int64(key),
            };
            let keys: Vec<Key> = keys.iter().map(|key| index.index().key(value(key))).collect();
            Rows::Only(index.query(Predicate::In(&keys)))
        }))
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

    fn is_row_id(&self, column: usize) -> bool {
        column == self.table.definition.columns.len()
    }
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

/// The share of rows that the conjuncts leave, from a few blocks.
pub(super) fn sampled_share(table: &Table, snapshot: &Snapshot, conjuncts: &mut [Conjunct]) -> Result<f64> {
    let blocks = u64::from(table.data.block_count());
    let sampled = blocks.min(SAMPLED_BLOCKS);
    let (mut seen, mut left) = (0usize, 0usize);
    for i in 0..sampled {
        let no = BlockNo(((2 * i + 1) * blocks / (2 * sampled)) as u32);
        let Some(mut reader) = table.data.read_block(snapshot, no) else { continue };
        seen += reader.visible().len();
        let visible = reader.visible().clone();
        left += filter_block(&mut reader, visible, conjuncts)?.0.len();
    }
    // That no row of the sample is left does not mean that none is.
    Ok(if seen == 0 { 1.0 } else { (left as f64).max(0.5) / seen as f64 })
}

/// Columns already read, for the rows of the current selection.
type Loaded = Vec<((usize, ColumnForm), ArrayRef)>;

fn load(reader: &mut BlockReader<'_>, column: (usize, ColumnForm), selection: &Selection) -> Result<ArrayRef> {
    let column = ScanColumn { id: ColumnId(column.0 as u16), form: column.1 };
    let mut arrays = reader.columns(&[column], selection).map_err(|e| DataFusionError::External(Box::new(e)))?;
    Ok(arrays.remove(0))
}

/// Columns, from those that are loaded already if they are there.
fn load_all(
    reader: &mut BlockReader<'_>,
    columns: &[(usize, ColumnForm)],
    selection: &Selection,
    loaded: &mut Loaded,
) -> Result<Vec<ArrayRef>> {
    let mut arrays = Vec::with_capacity(columns.len());
    for &column in columns {
        let array = match loaded.iter().find(|(known, _)| *known == column) {
            Some((_, array)) => array.clone(),
            None => {
                let array = load(reader, column, selection)?;
                loaded.push((column, array.clone()));
                array
            }
        };
        arrays.push(array);
    }
    Ok(arrays)
}

/// The rows of the block that all conjuncts leave of `selection`, and the columns that were read on the way.
fn filter_block(
    reader: &mut BlockReader<'_>,
    mut selection: Selection,
    conjuncts: &mut [Conjunct],
) -> Result<(Selection, Loaded)> {
    let mut loaded: Loaded = Vec::new();
    for conjunct in conjuncts.iter_mut().filter(|conjunct| !conjunct.is_idle()) {
        let positions = match conjunct.select_by_words(reader, &selection) {
            Some(positions) => positions,
            None => {
                let arrays = load_all(reader, &conjunct.columns, &selection, &mut loaded)?;
                conjunct.select(arrays, selection.len())?
            }
        };
        let Some(positions) = positions else { continue };
        if positions.is_empty() {
            return Ok((Selection::All(0), Vec::new()));
        }
        let indices = UInt32Array::from(positions);
        for (_, array) in &mut loaded {
            *array = take(array, &indices, None)?;
        }
        selection = selection.narrow(indices.values());
    }
    Ok((selection, loaded))
}

struct ScanStream {
    scan: SeracScanExec,
    conjuncts: Vec<Conjunct>,
    schema: SchemaRef,
    coalescer: BatchCoalescer,
    /// Batches of so many rows are not copied into others.
    uncopied_rows: usize,
    remaining: usize,
    finished: bool,
    blocks_read: u32,
    baseline: BaselineMetrics,
    blocks_skipped: Count,
    blocks_frozen: Count,
    blocks_bulk: Count,
    blocks_patched: Count,
    rows_patched: Count,
    bitmap_rows: Count,
    joined_rows: Count,
}

impl ScanStream {
    /// The rows of one block.
    fn read(&mut self, no: BlockNo) -> Result<Option<RecordBatch>> {
        let scan = &self.scan;
        let named = scan.bitmap.as_ref().map(|bitmap| bitmap.rows());
        let joined = scan.joined();
        if [named, joined].into_iter().flatten().any(|rows| rows.skips(no)) {
            self.blocks_skipped.add(1);
            return Ok(None);
        }
        let Some(mut reader) = scan.table.data.read_block(&scan.snapshot, no) else { return Ok(None) };
        let excludes =
            |conjunct: &Conjunct| conjunct.excludes(|column| reader.zone(column)) || conjunct.finds_no_word(&reader);
        if self.conjuncts.iter().any(excludes) {
            self.blocks_skipped.add(1);
            return Ok(None);
        }
        let mut selection = reader.visible().clone();
        if let Some(rows) = named {
            selection = rows.select(no, &selection);
            self.bitmap_rows.add(selection.len());
        }
        if let Some(rows) = joined {
            selection = match &selection {
                Selection::Positions(slots) if named.is_some() => rows.narrow(no, slots),
                // All that is visible: no slot has to be looked up.
                all => rows.select(no, all),
            };
            self.joined_rows.add(selection.len());
        }
        if selection.is_empty() {
            return Ok(None);
        }
        let (selection, loaded) = filter_block(&mut reader, selection, &mut self.conjuncts)?;
        let mut batch = None;
        if !selection.is_empty() {
            let missing: Vec<usize> = scan
                .projection
                .iter()
                .copied()
                .filter(|&c| !scan.is_row_id(c) && loaded.iter().all(|(known, _)| *known != (c, ColumnForm::Arrow)))
                .collect();
            let wanted: Vec<ScanColumn> = missing.iter().map(|&c| ScanColumn::arrow(ColumnId(c as u16))).collect();
            let arrays = reader.columns(&wanted, &selection).map_err(|e| DataFusionError::External(Box::new(e)))?;
            let columns = scan
                .projection
                .iter()
                .map(|&c| {
                    if scan.is_row_id(c) {
                        return Arc::new(reader.row_ids(&selection)) as ArrayRef;
                    }
                    match missing.iter().position(|&m| m == c) {
                        Some(at) => arrays[at].clone(),
                        None => {
                            let known = loaded.iter().find(|(known, _)| *known == (c, ColumnForm::Arrow));
                            known.expect("not missing").1.clone()
                        }
                    }
                })
                .collect();
            let options = RecordBatchOptions::new().with_row_count(Some(selection.len()));
            batch = Some(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?);
        }
        let stats = reader.stats();
        match stats {
            BlockReadStats { frozen: true, .. } => &self.blocks_frozen,
            BlockReadStats { bulk: true, .. } => &self.blocks_bulk,
            _ => &self.blocks_patched,
        }
        .add(1);
        self.rows_patched.add(stats.rows_patched as usize);
        Ok(batch)
    }

    /// The next batch of output, if there is one within this turn.
    fn turn(&mut self) -> Result<Option<RecordBatch>> {
        for _ in 0..BLOCKS_PER_TURN {
            if let Some(batch) = self.coalescer.next_completed_batch() {
                return Ok(Some(batch));
            }
            if self.finished {
                return Ok(None);
            }
            // Relaxed: block numbers need only be handed out once.
            let no = self.scan.next_block.fetch_add(1, Ordering::Relaxed);
            if no >= self.scan.table.data.block_count() || self.remaining == 0 {
                self.finished = true;
                self.coalescer.finish_buffered_batch()?;
                continue;
            }
            self.blocks_read += 1;
            if self.blocks_read.is_multiple_of(BLOCKS_PER_ORDER) {
                // What is cheap and leaves few rows goes first. A stable sort: equals stay in the order of the plan.
                self.conjuncts.sort_by(|a, b| a.rank().total_cmp(&b.rank()));
            }
            if let Some(mut batch) = self.read(BlockNo(no))? {
                if batch.num_rows() > self.remaining {
                    batch = batch.slice(0, self.remaining);
                }
                self.remaining -= batch.num_rows();
                // Large batches go out as they are: those of frozen blocks are the blocks' own buffers.
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
        Ok(())
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
        fresh.next_block = Arc::default();
        fresh.joined = Arc::default();
        fresh.metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(fresh))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let counter = |name: &'static str| MetricBuilder::new(&self.metrics).counter(name, partition);
        let stream = ScanStream {
            conjuncts: self.conjuncts()?,
            schema: schema.clone(),
            coalescer: BatchCoalescer::new(schema.clone(), context.session_config().batch_size()),
            uncopied_rows: context.session_config().batch_size() / 8,
            remaining: self.limit.unwrap_or(usize::MAX),
            finished: false,
            blocks_read: 0,
            baseline: BaselineMetrics::new(&self.metrics, partition),
            blocks_skipped: counter("blocks_skipped"),
            blocks_frozen: counter("blocks_frozen"),
            blocks_bulk: counter("blocks_bulk"),
            blocks_patched: counter("blocks_patched"),
            rows_patched: counter("rows_patched"),
            bitmap_rows: counter("bitmap_rows"),
            joined_rows: counter("joined_rows"),
            scan: self.clone(),
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
                            only_columns &= !self.is_row_id(full);
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
