//! `SeracLookupExec`: rows found by their keys in an ordered index, without looking at any other.
//!
//! A filter that fixes all columns of an index to constants (`=`, `IN`, or a few `=` joined by OR) names a handful of keys. Each is looked up
//! in the scan's snapshot, own writes included; then the whole filter is applied to the rows found, so the lookup only has to find enough.

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
use serac_engine::{ReadSet, Table, TableIndex};
use serac_storage::{ColumnId, ColumnType, RowBuffer, RowId, Snapshot, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// So many rows are looked up in any case; more only if they are less than a hundredth of the table.
const FEW_ROWS: u64 = 64;

/// Keys of one index.
#[derive(Debug, Clone)]
pub(super) struct KeyLookup {
    index: Arc<TableIndex>,
    keys: Vec<Vec<OwnedValue>>,
    /// Rows that the index has for the keys, in any snapshot.
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

/// The constant as a value of the column; none if it is not exactly that (then only the filter itself knows what it means).
pub(super) fn exact(value: &ScalarValue, column_type: ColumnType) -> Option<OwnedValue> {
    let cast = value.cast_to(&column_type.arrow()).ok()?;
    let same = cast.cast_to(&value.data_type()).is_ok_and(|back| back == *value);
    let array = cast.to_array().ok()?;
    (same && !value.is_null()).then(|| OwnedValue::from(&value_at(&array, 0, column_type)))
}

impl KeyLookup {
    /// The best lookup that the filters allow.
    pub(super) fn find(table: &Table, filters: &[Expr]) -> Option<Self> {
        if table.indexes.is_empty() {
            return None;
        }
        let columns = &table.definition.columns;
        let most = FEW_ROWS + table.data.approximate_rows() / 100;
        let mut fixed: Vec<Option<Vec<OwnedValue>>> = vec![None; columns.len()];
        for (name, values) in filters.iter().flat_map(split_conjunction).filter_map(allowed) {
            let Some(at) = columns.iter().position(|c| c.name == name) else { continue };
            let fewer = fixed[at].as_ref().is_none_or(|known| known.len() > values.len());
            if fewer && values.len() as u64 <= most {
                let column_type = columns[at].sql_type.column_type;
                let exact: Option<Vec<_>> = values.into_iter().map(|value| exact(value, column_type)).collect();
                fixed[at] = exact.or_else(|| fixed[at].take());
            }
        }
        table
            .indexes
            .iter()
            .filter_map(|index| {
                let values: Vec<&Vec<OwnedValue>> =
                    index.definition.columns.iter().map(|&c| fixed[c].as_ref()).collect::<Option<_>>()?;
                let count = values.iter().try_fold(1u64, |n, values| n.checked_mul(values.len() as u64))?;
                if count > most {
                    return None;
                }
                let keys = values.into_iter().fold(vec![Vec::new()], |keys: Vec<Vec<OwnedValue>>, values| {
                    let with =
                        |key: &Vec<OwnedValue>, value: &OwnedValue| [&key[..], std::slice::from_ref(value)].concat();
                    keys.iter().flat_map(|key| values.iter().map(move |value| with(key, value))).collect()
                });
                let candidates = if index.definition.unique {
                    keys.len()
                } else {
                    keys.iter().map(|key| index.candidates(&borrow(key))).sum()
                };
                (candidates as u64 <= most).then(|| Self { index: index.clone(), keys, candidates })
            })
            .min_by_key(|lookup| lookup.candidates)
    }

    /// Rows to look at, at the most.
    pub(super) fn candidates(&self) -> usize {
        self.candidates
    }

    /// Notes that the keys are read.
    pub(super) fn note(&self, table: &Arc<Table>, reads: &ReadSet) {
        for key in &self.keys {
            reads.note_key(table, &self.index, &borrow(key));
        }
    }

    /// The rows that have one of the keys in `snapshot`, each once.
    fn rows(&self, table: &Table, snapshot: &Snapshot) -> serac_engine::Result<Vec<RowId>> {
        let mut found = BTreeSet::new();
        for key in &self.keys {
            found.extend(self.index.lookup(&table.data, snapshot, &borrow(key))?);
        }
        Ok(found.into_iter().collect())
    }
}

fn borrow(key: &[OwnedValue]) -> Vec<Value<'_>> {
    key.iter().map(OwnedValue::as_value).collect()
}

/// Reads the rows with some keys; see the module.
#[derive(Debug, Clone)]
pub struct SeracLookupExec {
    table: Arc<Table>,
    snapshot: Snapshot,
    lookup: KeyLookup,
    /// The table's columns and, last, the row id.
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
        Ok(Self { table, snapshot, lookup, full_schema, projection, filters, limit, properties, metrics })
    }

    fn row_id(&self) -> usize {
        self.table.definition.columns.len()
    }

    /// Columns of `rows`, as positions in `full_schema`.
    fn read(&self, rows: &[RowId], columns: &[usize]) -> Result<RecordBatch> {
        let stored: Vec<usize> = columns.iter().copied().filter(|&c| c != self.row_id()).collect();
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
        let row_ids = Arc::new(UInt64Array::from(visible)) as ArrayRef;
        let arrays = columns
            .iter()
            .map(|&c| match stored.iter().position(|&s| s == c) {
                Some(at) => array_of(&values[at], self.table.definition.columns[c].sql_type.column_type),
                None => row_ids.clone(),
            })
            .collect();
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
        write!(f, ", keys={}, columns=[{}], filters=[{}]", keys.len(), names.join(", "), filters.join(" AND "))?;
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
        // Nothing is looked up before the first batch is wanted.
        let batches = std::iter::from_fn(move || {
            let _timer = baseline.elapsed_compute().timer();
            if rows.is_none() {
                match lookup.lookup.rows(&lookup.table, &lookup.snapshot) {
                    Ok(found) => {
                        rows_found.add(found.len());
                        rows = Some((found, 0));
                    }
                    Err(error) => {
                        rows = Some((Vec::new(), 0));
                        return Some(Err(DataFusionError::External(Box::new(error))));
                    }
                }
            }
            let (rows, at) = rows.as_mut().expect("just found");
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
