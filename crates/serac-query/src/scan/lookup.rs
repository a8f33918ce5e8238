//! `SeracLookupExec`: rows found by their keys in an ordered index, without looking at any other.
//!
//! A filter names keys or ranges of keys if it fixes the first columns of an index to constants
//! (`=`, `IN`, or a few `=` joined by OR), or bounds the one behind them. The index's entries for
//! them are read in the scan's snapshot, own writes included. The whole filter is applied to the
//! rows, so the lookup only has to find enough.

use super::places::{Places, places_of};
use super::plan::properties;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, ScalarValue, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::{collect_columns, conjunction, reassign_expr_columns};
use datafusion::physical_plan::execution_plan::{EmissionType, apply_expression_roots};
use datafusion::physical_plan::filter::batch_filter;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use serac_engine::values::{OwnedValue, array_of, value_at};
use serac_engine::{KeyRange, ReadSet, Table, TableIndex};
use serac_numeric::Numeric;
use serac_storage::{ColumnId, ColumnType, RowBuffer, RowId, Snapshot, Value};
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// This many rows are always looked up. Lookups by whole keys may add a hundredth of the table's
/// rows. Others may add a [`RANGE_SHARE`]th of them, up to [`MOST_IN_RANGES`].
const FEW_ROWS: u64 = 64;
/// A row is read by itself in about the time in which a scan passes this many.
const RANGE_SHARE: u64 = 256;
/// Rows of ranges are counted before they are looked up, which must take no noticeable time.
const MOST_IN_RANGES: u64 = 1 << 14;

type Bounds<T> = (Bound<T>, Bound<T>);

/// Keys of one index, or ranges of them.
#[derive(Debug, Clone)]
pub(super) struct KeyLookup {
    index: Arc<TableIndex>,
    /// Values of the index's first columns.
    keys: Vec<Vec<OwnedValue>>,
    /// The bounds of the column behind them.
    bounds: Bounds<OwnedValue>,
    /// Rows that the index has for them, in any snapshot.
    candidates: usize,
}

/// The values that a conjunct allows for a column: the column, and constants.
fn allowed(conjunct: &Expr) -> Option<(&str, Vec<&ScalarValue>)> {
    match conjunct {
        Expr::BinaryExpr(binary) if binary.op == Operator::Eq => match (binary.left.as_ref(), binary.right.as_ref()) {
            (Expr::Column(column), Expr::Literal(value, _)) | (Expr::Literal(value, _), Expr::Column(column)) => {
                Some((&column.name, vec![value]))
            }
            _ => None,
        },
        // Short IN lists arrive as equalities.
        Expr::BinaryExpr(binary) if binary.op == Operator::Or => {
            let (left, right) = (allowed(&binary.left)?, allowed(&binary.right)?);
            (left.0 == right.0).then(|| (left.0, [left.1, right.1].concat()))
        }
        Expr::InList(list) if !list.negated => {
            let Expr::Column(column) = list.expr.as_ref() else { return None };
            let values = list.list.iter().map(|value| match value {
                Expr::Literal(value, _) => Some(value),
                _ => None,
            });
            Some((&column.name, values.collect::<Option<_>>()?))
        }
        _ => None,
    }
}

/// The bounds that a conjunct gives a column.
fn bounds(conjunct: &Expr) -> Option<(&str, Bounds<ScalarValue>)> {
    match conjunct {
        Expr::BinaryExpr(binary) => {
            let (column, op, value) = match (binary.left.as_ref(), binary.right.as_ref()) {
                (Expr::Column(column), Expr::Literal(value, _)) => (column, binary.op, value),
                (Expr::Literal(value, _), Expr::Column(column)) => (column, binary.op.swap()?, value),
                _ => return None,
            };
            let value = value.clone();
            let bounds = match op {
                Operator::Gt => (Bound::Excluded(value), Bound::Unbounded),
                Operator::GtEq => (Bound::Included(value), Bound::Unbounded),
                Operator::Lt => (Bound::Unbounded, Bound::Excluded(value)),
                Operator::LtEq => (Bound::Unbounded, Bound::Included(value)),
                _ => return None,
            };
            Some((&column.name, bounds))
        }
        Expr::Between(between) if !between.negated => {
            match (between.expr.as_ref(), between.low.as_ref(), between.high.as_ref()) {
                (Expr::Column(column), Expr::Literal(low, _), Expr::Literal(high, _)) => {
                    Some((&column.name, (Bound::Included(low.clone()), Bound::Included(high.clone()))))
                }
                _ => None,
            }
        }
        Expr::Like(like) if !like.negated && !like.case_insensitive && like.escape_char.is_none() => {
            match (like.expr.as_ref(), like.pattern.as_ref()) {
                (Expr::Column(column), Expr::Literal(pattern, _)) => Some((&column.name, prefix_bounds(pattern)?)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The bounds of texts that begin as a pattern of LIKE does.
fn prefix_bounds(pattern: &ScalarValue) -> Option<Bounds<ScalarValue>> {
    let pattern = pattern.try_as_str()??;
    let prefix = pattern.split(['%', '_', '\\']).next().filter(|prefix| !prefix.is_empty())?;
    let text = |text: &str| ScalarValue::Utf8(Some(text.to_owned()));
    // Texts are ordered by their characters' numbers.
    let (at, last) = prefix.char_indices().next_back()?;
    let after = match char::from_u32(u32::from(last) + 1) {
        Some(next) => Bound::Excluded(text(&format!("{}{next}", &prefix[..at]))),
        None => Bound::Unbounded,
    };
    Some((Bound::Included(text(prefix)), after))
}

/// Whether an index orders the values of a column as filters compare them.
fn is_ordered_alike(column_type: ColumnType) -> bool {
    use ColumnType::{Float32, Float64, Interval, Json};
    !matches!(column_type, Float32 | Float64 | Interval | Json)
}

/// The constant as a value of the column; `None` if it is not exactly one (then only the filter
/// itself knows its meaning).
pub(super) fn exact(value: &ScalarValue, column_type: ColumnType) -> Option<OwnedValue> {
    // Filters have such numbers as keys.
    if column_type == ColumnType::Numeric {
        let ScalarValue::Binary(Some(key)) = value else { return None };
        return Some(OwnedValue::Bytes(Numeric::of_key(key).ok()?.to_stored().into()));
    }
    let cast = value.cast_to(&column_type.arrow()).ok()?;
    let same = cast.cast_to(&value.data_type()).is_ok_and(|back| back == *value);
    let array = cast.to_array().ok()?;
    (same && !value.is_null()).then(|| OwnedValue::from(&value_at(&array, 0, column_type)))
}

/// As [`exact`]; no bound where the constant is no value of the column.
fn exact_bound(bound: Bound<ScalarValue>, column_type: ColumnType) -> Bound<OwnedValue> {
    match bound.map(|value| exact(&value, column_type)) {
        Bound::Included(Some(value)) => Bound::Included(value),
        Bound::Excluded(Some(value)) => Bound::Excluded(value),
        _ => Bound::Unbounded,
    }
}

impl KeyLookup {
    /// The best lookup that the filters allow.
    pub(super) fn find(table: &Table, filters: &[Expr]) -> Option<Self> {
        if table.indexes.is_empty() {
            return None;
        }
        let columns = &table.definition.columns;
        let known = |name: &str| columns.iter().position(|c| c.name == name);
        let most = FEW_ROWS + table.data.approximate_rows() / 100;
        let mut fixed: Vec<Option<Vec<OwnedValue>>> = vec![None; columns.len()];
        let mut bounded: Vec<Bounds<OwnedValue>> = vec![(Bound::Unbounded, Bound::Unbounded); columns.len()];
        for conjunct in filters.iter().flat_map(split_conjunction) {
            if let Some((name, values)) = allowed(conjunct)
                && let Some(at) = known(name)
            {
                let fewer = fixed[at].as_ref().is_none_or(|known| known.len() > values.len());
                if fewer && values.len() as u64 <= most {
                    let column_type = columns[at].sql_type.column_type;
                    let exact: Option<Vec<_>> = values.into_iter().map(|value| exact(value, column_type)).collect();
                    fixed[at] = exact.or_else(|| fixed[at].take());
                }
            }
            if let Some((name, (lower, upper))) = bounds(conjunct)
                && let Some(at) = known(name)
                && is_ordered_alike(columns[at].sql_type.column_type)
            {
                let (known_lower, known_upper) = &mut bounded[at];
                for (known, bound) in [(known_lower, lower), (known_upper, upper)] {
                    // The first bound of a column; the filter tests the others.
                    if *known == Bound::Unbounded {
                        *known = exact_bound(bound, columns[at].sql_type.column_type);
                    }
                }
            }
        }
        table
            .indexes
            .iter()
            .filter_map(|index| Self::with(table, index, &fixed, &bounded, most))
            .min_by_key(|lookup| lookup.candidates)
    }

    /// The lookup in an index, where the values of columns are `fixed` or `bounded`.
    fn with(
        table: &Table,
        index: &Arc<TableIndex>,
        fixed: &[Option<Vec<OwnedValue>>],
        bounded: &[Bounds<OwnedValue>],
        most: u64,
    ) -> Option<Self> {
        let columns = &index.definition.columns;
        let values: Vec<&Vec<OwnedValue>> = columns.iter().map_while(|&c| fixed[c].as_ref()).collect();
        let unbounded = (Bound::Unbounded, Bound::Unbounded);
        let bounds = columns.get(values.len()).map_or(unbounded.clone(), |&next| bounded[next].clone());
        if values.is_empty() && bounds == unbounded {
            return None;
        }
        let whole = values.len() == columns.len();
        let count = values.iter().try_fold(1u64, |n, values| n.checked_mul(values.len() as u64))?;
        let most = match whole {
            true => most,
            false => FEW_ROWS + (table.data.approximate_rows() / RANGE_SHARE).min(MOST_IN_RANGES),
        };
        if count > most {
            return None;
        }
        let keys = values.into_iter().fold(vec![Vec::new()], |keys: Vec<Vec<OwnedValue>>, values| {
            let with = |key: &Vec<OwnedValue>, value: &OwnedValue| [&key[..], std::slice::from_ref(value)].concat();
            keys.iter().flat_map(|key| values.iter().map(move |value| with(key, value))).collect()
        });
        let mut lookup = Self { index: index.clone(), candidates: keys.len(), keys, bounds };
        if !(whole && index.definition.unique) {
            lookup.candidates = lookup.count(most)?;
        }
        Some(lookup)
    }

    /// Rows to look at, at the most.
    pub(super) fn candidates(&self) -> usize {
        self.candidates
    }

    /// Calls `f` with the ranges of keys.
    fn ranges(&self, mut f: impl FnMut(&KeyRange<'_>)) {
        let (lower, upper) = (self.bounds.0.as_ref(), self.bounds.1.as_ref());
        let (lower, upper) = (lower.map(OwnedValue::as_value), upper.map(OwnedValue::as_value));
        for key in &self.keys {
            let equal: Vec<Value<'_>> = key.iter().map(OwnedValue::as_value).collect();
            f(&KeyRange::prefix(&equal).from(lower).to(upper));
        }
    }

    /// Notes that the keys are read.
    pub(super) fn note(&self, table: &Arc<Table>, reads: &ReadSet) {
        self.ranges(|range| reads.note_keys(table, &self.index, range));
    }

    /// The number of rows that the index has for the keys; `None` if they are more than `most`.
    fn count(&self, most: u64) -> Option<usize> {
        let mut count = 0;
        self.ranges(|range| {
            self.index.candidates(range, |_| {
                count += 1;
                if count > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        });
        (count <= most).then_some(count as usize)
    }

    /// The rows that have one of the keys in any snapshot, each once.
    fn rows(&self) -> Vec<RowId> {
        let mut found = Vec::with_capacity(self.candidates);
        self.ranges(|range| {
            self.index.candidates(range, |row| {
                found.push(row);
                ControlFlow::Continue(())
            });
        });
        // An update may have left a row under two keys.
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Reads the rows with given keys; see the module's header.
#[derive(Debug, Clone)]
pub struct SeracLookupExec {
    table: Arc<Table>,
    snapshot: Snapshot,
    lookup: KeyLookup,
    /// The places that rows must have.
    places: Option<Arc<Places>>,
    /// The table's columns and, last, the row id and the place.
    full_schema: SchemaRef,
    /// Output columns, as positions in `full_schema`.
    projection: Vec<usize>,
    /// Conjuncts over `full_schema`.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SeracLookupExec {
    pub(super) fn new(
        table: Arc<Table>,
        snapshot: Snapshot,
        lookup: KeyLookup,
        full_schema: SchemaRef,
        projection: Vec<usize>,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        limit: Option<usize>,
    ) -> Result<Self> {
        let schema = Arc::new(full_schema.project(&projection)?);
        let properties = properties(schema, 1, EmissionType::Incremental);
        let metrics = ExecutionPlanMetricsSet::new();
        let places = None;
        Ok(Self { table, snapshot, lookup, places, full_schema, projection, filters, limit, properties, metrics })
    }

    /// Reads no rows elsewhere than in these places, if any are given.
    pub(super) fn within(self, places: Option<Arc<Places>>) -> Self {
        Self { places, ..self }
    }

    fn row_id(&self) -> usize {
        self.table.definition.columns.len()
    }

    /// Columns of `rows`, as positions in `full_schema`.
    fn read(&self, rows: &[RowId], columns: &[usize]) -> Result<RecordBatch> {
        let stored: Vec<usize> = columns.iter().copied().filter(|&c| c < self.row_id()).collect();
        let ids: Vec<ColumnId> = stored.iter().map(|&c| ColumnId(c as u16)).collect();
        let mut values: Vec<Vec<OwnedValue>> = vec![Vec::with_capacity(rows.len()); stored.len()];
        let mut visible = Vec::with_capacity(rows.len());
        let mut buffer = RowBuffer::default();
        for &row in rows {
            let found = self.table.data.read(&self.snapshot, row, &ids, &mut buffer);
            if found.map_err(|e| DataFusionError::External(Box::new(e)))? {
                visible.push(row.as_u64());
                for (i, values) in values.iter_mut().enumerate() {
                    values.push(OwnedValue::from(&buffer.value(i)));
                }
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(visible.len()));
        let arrays = columns.iter().map(|&c| match stored.iter().position(|&s| s == c) {
            Some(at) => Ok(array_of(&values[at], self.table.definition.columns[c].sql_type.column_type)),
            None if c == self.row_id() => Ok(Arc::new(UInt64Array::from(visible.clone())) as ArrayRef),
            None => places_of(&visible),
        });
        let arrays = arrays.collect::<Result<_>>()?;
        Ok(RecordBatch::try_new_with_options(Arc::new(self.full_schema.project(columns)?), arrays, &options)?)
    }

    /// The rows of `rows` that pass the filter, in the output's columns.
    fn read_filtered(&self, rows: &[RowId]) -> Result<RecordBatch> {
        let mut columns = self.projection.clone();
        let filter = conjunction(self.filters.iter().cloned());
        let mut others: Vec<usize> = collect_columns(&filter).iter().map(|c| c.index()).collect();
        others.retain(|c| !columns.contains(c));
        others.sort_unstable();
        columns.extend(others);
        let batch = self.read(rows, &columns)?;
        let filter = reassign_expr_columns(filter, &batch.schema())?;
        let left = batch_filter(&batch, &filter)?;
        let output: Vec<usize> = (0..self.projection.len()).collect();
        Ok(left.project(&output)?)
    }
}

impl DisplayAs for SeracLookupExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.projection.iter().map(|&c| self.full_schema.field(c).name().as_str()).collect();
        let filters: Vec<_> = self.filters.iter().map(ToString::to_string).collect();
        let KeyLookup { index, keys, .. } = &self.lookup;
        write!(f, "SeracLookupExec: table={}, index={}", self.table.name(), index.definition.name)?;
        let what = if keys[0].len() == index.definition.columns.len() { "keys" } else { "ranges" };
        write!(f, ", {what}={}, columns=[{}], filters=[{}]", keys.len(), names.join(", "), filters.join(" AND "))?;
        if let Some(places) = &self.places {
            write!(f, ", places=[{places}]")?;
        }
        match self.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for SeracLookupExec {
    fn name(&self) -> &str {
        "SeracLookupExec"
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
        Ok(Arc::new(Self { metrics: ExecutionPlanMetricsSet::new(), ..(*self).clone() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let rows_found = MetricBuilder::new(&self.metrics).counter("rows_found", partition);
        let (lookup, batch_size) = (self.clone(), context.session_config().batch_size());
        let mut left = self.limit.unwrap_or(usize::MAX);
        let mut rows = None;
        // No row is looked up before the first batch is wanted.
        let batches = std::iter::from_fn(move || {
            let _timer = baseline.elapsed_compute().timer();
            let (rows, at) = rows.get_or_insert_with(|| {
                let mut found = lookup.lookup.rows();
                if let Some(places) = &lookup.places {
                    found.retain(|row| places.has(*row));
                }
                rows_found.add(found.len());
                (found, 0)
            });
            if left == 0 || *at == rows.len() {
                return None;
            }
            let end = rows.len().min(*at + batch_size);
            let batch = lookup.read_filtered(&rows[*at..end]);
            *at = end;
            Some(batch.map(|batch| {
                let batch = batch.slice(0, batch.num_rows().min(left));
                left -= batch.num_rows();
                baseline.record_output(batch.num_rows());
                batch
            }))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        let rows = self.lookup.candidates.min(self.limit.unwrap_or(usize::MAX));
        Ok(Arc::new(Statistics { num_rows: Precision::Inexact(rows), ..Statistics::new_unknown(&self.schema()) }))
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Self { limit, ..self.clone() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }
}
