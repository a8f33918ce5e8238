//! A table of the catalog, in a snapshot, as a DataFusion `TableProvider`.

use super::bitmap::{BitmapFilter, Indexed, Indexes};
use super::exec::{SeracScanExec, conjuncts_of, sampled_share};
use super::indexed_expression::{self, IndexedExpression};
use super::lookup::{KeyLookup, SeracLookupExec};
use super::places::{CTID_COLUMN, CTID_TYPE, Places};
use super::privileges::{check_scan, denied};
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraint, Constraints, DFSchema, Result};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr_rewriter::{unnormalize_col, unnormalize_cols};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::split_conjunction as conjuncts_of_filter;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use serac_engine::security::Columns;
use serac_engine::table::bitmap::OwnChanges;
use serac_engine::{ReadSet, Table};
use serac_storage::{ColumnId, RowId, ScanColumn, Selection, Snapshot};
use std::collections::HashMap;
use std::sync::Arc;

/// The hidden column that holds row ids, where a statement asks for them.
pub const ROW_ID_COLUMN: &str = "__serac_rowid";

/// Columns behind those that `*` stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenColumns {
    /// The row ids, in [`ROW_ID_COLUMN`].
    pub row_id: bool,
    /// The places of rows, in [`CTID_COLUMN`]. A table that has an own column of this name has
    /// none.
    pub ctid: bool,
}

impl HiddenColumns {
    /// The row ids alone.
    pub const ROW_ID: Self = Self { row_id: true, ctid: false };
}

/// A table in a snapshot.
#[derive(Debug)]
pub struct SeracTable {
    table: Arc<Table>,
    snapshot: Snapshot,
    /// The table's columns, the row id, and the place.
    full_schema: SchemaRef,
    schema: SchemaRef,
    hidden: HiddenColumns,
    constraints: Constraints,
    /// The table's bitmap indexes, as far as they may be asked.
    indexes: Indexes,
    /// The read set of a serializable transaction.
    reads: Option<ReadSet>,
    /// The columns that may be read.
    columns: Columns,
    /// The table's indexes on expressions, for filters.
    expressions: Vec<IndexedExpression>,
    /// The planning results for filters: planning asks repeatedly.
    planned: Mutex<HashMap<Vec<Expr>, Planned>>,
}

/// The planning results for one list of filters.
#[derive(Clone, Debug)]
struct Planned {
    /// Rows that an ordered index finds.
    lookup: Option<KeyLookup>,
    /// The part that bitmap indexes answer.
    bitmap: Option<Arc<BitmapFilter>>,
    /// The places that rows must have.
    places: Option<Arc<Places>>,
    /// The conjuncts that are left.
    others: Vec<Expr>,
    /// About how many rows they leave.
    rows: f64,
}

impl SeracTable {
    /// The table as `snapshot` sees it, with these hidden columns at its end. `own` has the
    /// transaction's changes of bitmap indexes; without it the indexes are not used.
    pub fn new(table: Arc<Table>, snapshot: Snapshot, own: Option<&OwnChanges>, hidden: HiddenColumns) -> Self {
        let hidden = HiddenColumns { ctid: hidden.ctid && !has_ctid(&table), ..hidden };
        let columns = table.definition.columns.iter();
        let mut fields: Vec<Field> =
            columns.map(|c| Field::new(&c.name, c.sql_type.column_type.arrow(), c.nullable)).collect();
        let mut visible = fields[..table.definition.visible_columns().len()].to_vec();
        let row_id = Field::new(ROW_ID_COLUMN, DataType::UInt64, false);
        // Names in the full schema differ.
        let name = if has_ctid(&table) { "__serac_ctid" } else { CTID_COLUMN };
        let ctid = Field::new(name, CTID_TYPE, false);
        visible.extend(hidden.row_id.then(|| row_id.clone()));
        visible.extend(hidden.ctid.then(|| ctid.clone()));
        fields.extend([row_id, ctid]);
        let full_schema = Arc::new(Schema::new(fields));
        // The primary key alone: DataFusion assumes that a unique key has no NULLs, and lets a
        // query name columns that depend on it.
        let primary = table.definition.primary_key().filter(|key| key.constraint);
        let constraints = primary.map(|key| Constraint::PrimaryKey(key.columns.clone())).into_iter().collect();
        let readers = |own: &OwnChanges| table.bitmaps.iter().filter_map(|b| own.reader(b, &snapshot)).collect();
        let indexes = own.map_or_else(|| Arc::from([]), readers);
        Self {
            table,
            snapshot,
            full_schema,
            schema: Arc::new(Schema::new(visible)),
            hidden,
            constraints: Constraints::new_unverified(constraints),
            indexes,
            reads: None,
            columns: Columns::All,
            expressions: Vec::new(),
            planned: Mutex::default(),
        }
    }
}

impl SeracTable {
    /// The same table, whose scans note their reads in `reads`.
    pub fn noting(self, reads: Option<ReadSet>) -> Self {
        Self { reads, ..self }
    }

    /// The same, whose scans are refused if they read other columns.
    pub fn allowing(self, columns: Columns) -> Self {
        Self { columns, ..self }
    }

    /// The columns that scans may read.
    pub fn allowed(&self) -> &Columns {
        &self.columns
    }

    /// The same, whose scans find rows by these expressions, too.
    pub fn knowing(self, expressions: Vec<IndexedExpression>) -> Self {
        Self { expressions, ..self }
    }

    /// The hidden columns.
    pub fn hidden(&self) -> HiddenColumns {
        self.hidden
    }

    /// The same with the places of rows as its last column.
    pub fn with_ctid(&self) -> Self {
        let hidden = HiddenColumns { ctid: !has_ctid(&self.table), ..self.hidden };
        let mut visible: Vec<Arc<Field>> = self.schema.fields().to_vec();
        if hidden.ctid && !self.hidden.ctid {
            visible.extend(self.full_schema.fields().last().cloned());
        }
        Self {
            table: self.table.clone(),
            snapshot: self.snapshot.clone(),
            full_schema: self.full_schema.clone(),
            schema: Arc::new(Schema::new(visible)),
            hidden,
            constraints: self.constraints.clone(),
            indexes: self.indexes.clone(),
            reads: self.reads.clone(),
            columns: self.columns.clone(),
            expressions: self.expressions.clone(),
            planned: Mutex::default(),
        }
    }

    /// Whether a condition is one on the places of rows.
    fn places(&self, condition: &Expr) -> Option<Places> {
        if self.hidden.ctid { Places::of(condition) } else { None }
    }

    /// The lookup that an index allows.
    fn lookup(&self, filters: &[Expr]) -> Option<KeyLookup> {
        KeyLookup::find(&self.table, &indexed_expression::with_columns_of_indexes(&self.expressions, filters))
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The conjuncts of `filters`, over the table's columns and the row id.
    fn conjuncts(
        &self,
        filters: &[Expr],
        physical: impl Fn(Expr, &DFSchema) -> Result<Arc<dyn PhysicalExpr>>,
    ) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        let schema = DFSchema::try_from(self.full_schema.clone())?;
        let mut conjuncts = Vec::new();
        for filter in unnormalize_cols(filters.iter().cloned()) {
            let filter = physical(filter, &schema)?;
            conjuncts.extend(split_conjunction(&filter).into_iter().cloned());
        }
        Ok(conjuncts)
    }

    /// About how many rows `filters` leave.
    pub fn estimated_rows(&self, filters: &[Expr]) -> f64 {
        self.planned(filters).rows
    }

    /// Whether an ordered index finds the rows; otherwise the part of `filters` that bitmap indexes
    /// answer, with the rest tried on a few blocks.
    fn planned(&self, filters: &[Expr]) -> Planned {
        let all = self.table.data.approximate_rows() as f64;
        if filters.is_empty() {
            return Planned { lookup: None, bitmap: None, places: None, others: Vec::new(), rows: all };
        }
        let filters = unnormalize_cols(filters.iter().cloned());
        if let Some(known) = self.planned.lock().get(&filters) {
            return known.clone();
        }
        let mut places: Option<Places> = None;
        let mut values = Vec::with_capacity(filters.len());
        for filter in filters.iter().flat_map(conjuncts_of_filter) {
            match self.places(filter) {
                Some(own) => places = Some(places.map_or(own.clone(), |others| others.and(&own))),
                None => values.push(filter.clone()),
            }
        }
        let places = places.map(Arc::new);
        if let Some(lookup) = self.lookup(&values) {
            let rows = lookup.candidates() as f64;
            let planned = Planned { lookup: Some(lookup), bitmap: None, places, others: values, rows };
            self.planned.lock().insert(filters, planned.clone());
            return planned;
        }
        let blocks = self.table.data.block_count();
        let of_places = places.as_ref().map_or(1.0, |places| places.share(blocks));
        let indexed = Indexed { indexes: &self.indexes, schema: &self.full_schema, blocks };
        let (bitmap, others) = match BitmapFilter::find(&indexed, &values) {
            Some((bitmap, others)) => (Some(Arc::new(bitmap)), others),
            None => (None, values),
        };
        let context = PhysicalPlanningContext::default();
        let physical =
            |filter: Expr, schema: &DFSchema| create_physical_expr(&filter, schema, &ExecutionProps::new(), &context);
        let share = self.conjuncts(&others, physical).and_then(|conjuncts| {
            if conjuncts.is_empty() {
                return Ok(1.0);
            }
            let mut conjuncts = conjuncts_of(&self.table, &self.full_schema, &conjuncts)?;
            sampled_share(&self.table, &self.snapshot, &mut conjuncts)
        });
        // A filter that cannot be tried, because it fails on a row, fails when it runs, with its
        // own message.
        let rows = bitmap.as_ref().map_or(all, |bitmap| bitmap.estimated_rows()) * of_places * share.unwrap_or(1.0);
        let planned = Planned { lookup: None, bitmap, places, others, rows };
        self.planned.lock().insert(filters, planned.clone());
        planned
    }

    /// The number of a column's distinct values among a number of rows; `None` if it is not known.
    pub fn distinct_values(&self, column: &str) -> Option<(f64, f64)> {
        let at = self.table.definition.columns.iter().position(|c| c.name == column)?;
        let rows = self.table.data.approximate_rows() as f64;
        let key = self.table.definition.keys.iter().any(|key| key.unique && key.columns == [at]);
        let distinct = if key { rows } else { self.table.statistics(&self.snapshot).distinct[at]? as f64 };
        Some((distinct.max(1.0), rows))
    }
}

#[async_trait]
impl TableProvider for SeracTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters
            .iter()
            .map(|filter| {
                let names = |name| filter.column_refs().iter().any(|c| c.name == name);
                let tests_ctid = self.hidden.ctid
                    && names(CTID_COLUMN)
                    && self.places(&unnormalize_col((*filter).clone())).is_none();
                if filter.is_volatile() || names(ROW_ID_COLUMN) || tests_ctid {
                    TableProviderFilterPushDown::Unsupported
                } else {
                    TableProviderFilterPushDown::Exact
                }
            })
            .collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut projection = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let visible = self.table.definition.visible_columns().len();
        let row_id = self.table.definition.columns.len();
        for column in projection.iter_mut().filter(|column| **column >= visible) {
            // The first hidden column is the row id, if it is there.
            *column = if self.hidden.row_id && *column == visible { row_id } else { row_id + 1 };
        }
        let Planned { lookup, bitmap, places, others, rows } = self.planned(filters);
        let reads_ctid = places.is_some() || projection.contains(&(row_id + 1));
        // A role that may read some columns alone has no right to another.
        if reads_ctid && self.columns != Columns::All {
            return Err(DataFusionError::External(Box::new(denied(self.table.name()))));
        }
        check_scan(&self.columns, self.table.name(), &self.full_schema, Some(&projection), filters)?;
        let physical = |filter: Expr, schema: &DFSchema| state.create_physical_expr(filter, schema);
        let conjuncts = self.conjuncts(&others, physical)?;
        if let Some(lookup) = lookup {
            if let Some(reads) = &self.reads {
                lookup.note(&self.table, reads);
            }
            let (table, snapshot, full_schema) = (self.table.clone(), self.snapshot.clone(), self.full_schema.clone());
            let lookup = SeracLookupExec::new(table, snapshot, lookup, full_schema, projection, conjuncts, limit)?;
            return Ok(Arc::new(lookup.within(places)));
        }
        if let Some(reads) = &self.reads {
            reads.note_table(&self.table);
        }
        Ok(Arc::new(SeracScanExec::new(
            self.table.clone(),
            self.snapshot.clone(),
            self.indexes.clone(),
            bitmap,
            places,
            self.full_schema.clone(),
            projection,
            conjuncts,
            rows,
            limit,
            state.config().target_partitions(),
        )?))
    }
}

/// Whether a table has a column that has the name of the places of rows.
fn has_ctid(table: &Table) -> bool {
    table.definition.columns.iter().any(|column| column.name == CTID_COLUMN)
}

/// All columns of the rows with these ids, which the snapshot sees, in their order.
///
/// # Errors
/// When a row is not visible.
pub fn fetch_rows(table: &Table, snapshot: &Snapshot, rows: &[RowId]) -> Result<RecordBatch> {
    let schema = table.definition.storage_schema().arrow();
    let columns: Vec<ScanColumn> = (0..schema.fields().len() as u16).map(|c| ScanColumn::arrow(ColumnId(c))).collect();
    // Block by block in slot order, then back into the order asked for.
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_unstable_by_key(|&i| rows[i]);
    let mut batches = Vec::new();
    let mut at = 0;
    while at < order.len() {
        let block = rows[order[at]].block();
        let run = order[at..].iter().take_while(|&&i| rows[i].block() == block).count();
        let slots: Vec<u32> = order[at..at + run].iter().map(|&i| rows[i].slot().0).collect();
        let mut reader = table
            .data
            .read_block(snapshot, block)
            .ok_or_else(|| DataFusionError::Internal(format!("block {} has no visible row", block.0)))?;
        let arrays = reader
            .columns(&columns, &Selection::Positions(slots))
            .map_err(|e| DataFusionError::External(Box::new(e)))?;
        let options = RecordBatchOptions::new().with_row_count(Some(run));
        batches.push(RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?);
        at += run;
    }
    let sorted = concat_batches(&schema, &batches)?;
    let mut back = vec![0u32; order.len()];
    for (sorted_at, &i) in order.iter().enumerate() {
        back[i] = sorted_at as u32;
    }
    let back = UInt32Array::from(back);
    let arrays: Vec<ArrayRef> =
        sorted.columns().iter().map(|c| take(c, &back, None)).collect::<std::result::Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
}
