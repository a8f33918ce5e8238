//! Frames: rows of Arrow that the program around the database lends to a query.
//!
//! A [`Frame`] says its columns and reads its rows as often as a plan scans it. Columns whose Arrow
//! type is that of their SQL type go into the plan as they are, without a copy; others are
//! converted batch by batch, and only those that the query wants. Filters, and all else, are the
//! plan's.
//!
//! Reading may wait for the program, for Python's lock perhaps. So each batch is read on a thread
//! that may wait, and a query that nobody wants any more does not wait for it.

use crate::narrow::narrow;
use crate::request::Assign;
use crate::value_type::ValueType;
use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, TryStreamExt};
use serac_storage::ColumnType;
use serac_values::SqlError;
use std::fmt;
use std::sync::Arc;

/// The batches of a frame, each with all of its columns.
pub type FrameRows = Box<dyn Iterator<Item = Result<RecordBatch, SqlError>> + Send>;

/// Rows that the program lends.
pub trait Frame: Send + Sync {
    /// Its columns, as Arrow has them.
    fn schema(&self) -> SchemaRef;

    /// How many rows it has, if that is known.
    fn row_count(&self) -> Option<usize> {
        None
    }

    /// Its rows from the first one on: once for each place at which a plan reads it.
    ///
    /// # Errors
    /// If they cannot be read, or not again.
    fn read(&self) -> Result<FrameRows, SqlError>;
}

/// Finds the program's frames by name.
pub trait FrameProvider: Send + Sync {
    /// The frame of a name; `None` if there is none. Called without locks.
    ///
    /// # Errors
    /// If something has the name but is no frame that can be read.
    fn frame(&self, name: &str) -> Result<Option<Arc<dyn Frame>>, SqlError>;
}

/// A frame as a relation.
pub struct FrameTable {
    name: String,
    frame: Arc<dyn Frame>,
    /// The SQL types of its columns.
    types: Arc<[ValueType]>,
    schema: SchemaRef,
    assign: Assign,
}

impl fmt::Debug for FrameTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameTable").field("name", &self.name).field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// The type of a frame's column. Documents are told by their mark: Arrow has no type for them.
fn type_of(field: &Field) -> ValueType {
    match field.extension_type_name() {
        Some("arrow.json") => ValueType::Plain(ColumnType::Json.into()),
        _ => ValueType::of_arrow(field.data_type()),
    }
}

impl FrameTable {
    /// A frame under a name, with the types that its columns say.
    pub fn new(name: &str, frame: Arc<dyn Frame>, assign: Assign) -> Self {
        let types = frame.schema().fields().iter().map(|field| type_of(field)).collect();
        Self::of_types(name, frame, types, assign)
    }

    /// A frame whose columns, in their order, get these types.
    pub fn of_types(name: &str, frame: Arc<dyn Frame>, types: Arc<[ValueType]>, assign: Assign) -> Self {
        let given = frame.schema();
        let fields = given.fields().iter().zip(&*types).map(|(field, of)| of.field(field.name()));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Self { name: name.to_owned(), frame, types, schema, assign }
    }
}

#[async_trait]
impl TableProvider for FrameTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = projection.cloned().unwrap_or_else(|| (0..self.types.len()).collect());
        for &at in &projection {
            self.types[at].check(self.schema.field(at).name()).map_err(SqlError::external)?;
        }
        let schema = Arc::new(self.schema.project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Arc::new(FrameScanExec {
            name: self.name.clone(),
            frame: self.frame.clone(),
            width: self.types.len(),
            types: projection.iter().map(|at| self.types[*at].clone()).collect(),
            projection: projection.into(),
            assign: self.assign.clone(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }
}

/// Whether an operator reads a frame. Its rows come from the program, which may take its time.
pub fn is_frame_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<FrameScanExec>()
}

/// Reads a frame.
struct FrameScanExec {
    name: String,
    frame: Arc<dyn Frame>,
    /// The number of the frame's columns.
    width: usize,
    /// Those that are read, and their types.
    projection: Arc<[usize]>,
    types: Arc<[ValueType]>,
    assign: Assign,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl fmt::Debug for FrameScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameScanExec").field("name", &self.name).finish_non_exhaustive()
    }
}

impl DisplayAs for FrameScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "FrameScanExec: frame={}, columns=[{}]", self.name, names.join(", "))
    }
}

/// The columns of a batch that a scan wants, as the plan has them.
struct Wanted {
    name: String,
    width: usize,
    projection: Arc<[usize]>,
    types: Arc<[ValueType]>,
    schema: SchemaRef,
    assign: Assign,
}

impl Wanted {
    fn of(&self, batch: &RecordBatch) -> Result<RecordBatch, SqlError> {
        if batch.num_columns() != self.width {
            let message =
                format!("a batch of \"{}\" has {} columns instead of {}", self.name, batch.num_columns(), self.width);
            return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message).named(&self.name));
        }
        let columns = self.projection.iter().zip(&*self.types).zip(self.schema.fields());
        let column = |((at, of), field): ((&usize, &ValueType), &Arc<Field>)| {
            Ok::<_, SqlError>(narrow(&of.values(batch.column(*at), field.name(), &self.assign)?))
        };
        let columns = columns.map(column).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

/// A batch in slices of at most `most` rows, which share its memory ([`narrow`] counts it).
fn slices(batch: RecordBatch, most: usize) -> impl Iterator<Item = RecordBatch> {
    let rows = batch.num_rows();
    (0..rows).step_by(most.max(1)).map(move |from| batch.slice(from, most.min(rows - from)))
}

impl ExecutionPlan for FrameScanExec {
    fn name(&self) -> &'static str {
        "FrameScanExec"
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

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        // Not exact: the program may have changed the frame since it was asked.
        let num_rows = self.frame.row_count().map_or(Precision::Absent, Precision::Inexact);
        Ok(Arc::new(Statistics { num_rows, ..Statistics::new_unknown(&self.schema()) }))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, 0);
        let schema = self.schema();
        let wanted = Wanted {
            name: self.name.clone(),
            width: self.width,
            projection: self.projection.clone(),
            types: self.types.clone(),
            schema: schema.clone(),
            assign: self.assign.clone(),
        };
        let most = context.session_config().batch_size();
        let frame = self.frame.clone();
        let elsewhere = |work: Box<dyn FnOnce() -> Read + Send>| async move {
            match tokio::task::spawn_blocking(work).await {
                Ok(read) => read,
                Err(panic) => Err(SqlError::new(sqlstate::INTERNAL_ERROR, format!("internal error: {panic}"))),
            }
        };
        let batches = futures::stream::try_unfold(None, move |rows: Option<FrameRows>| {
            let frame = frame.clone();
            elsewhere(Box::new(move || -> Read {
                let mut rows = match rows {
                    Some(rows) => rows,
                    None => frame.read()?,
                };
                Ok(rows.next().transpose()?.map(|batch| (batch, Some(rows))))
            }))
        });
        let parts = batches.map_ok(move |batch| futures::stream::iter(slices(batch, most).map(Ok::<_, SqlError>)));
        let stream = parts.try_flatten().map(move |batch| {
            let timer = metrics.elapsed_compute().timer();
            let batch = batch.and_then(|batch| wanted.of(&batch)).map_err(SqlError::external);
            timer.done();
            if let Ok(batch) = &batch {
                metrics.record_output(batch.num_rows());
            }
            batch
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The result of one turn of reading: a batch and the rest of the rows; `None` at the end.
type Read = Result<Option<(RecordBatch, Option<FrameRows>)>, SqlError>;

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
    use datafusion::arrow::datatypes::{DataType, Int64Type};
    use datafusion::prelude::SessionContext;

    struct Numbers(RecordBatch);

    impl Frame for Numbers {
        fn schema(&self) -> SchemaRef {
            self.0.schema()
        }

        fn row_count(&self) -> Option<usize> {
            Some(self.0.num_rows())
        }

        fn read(&self) -> Result<FrameRows, SqlError> {
            Ok(Box::new([Ok(self.0.clone())].into_iter()))
        }
    }

    fn table(rows: i64) -> (FrameTable, ArrayRef) {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|row| row.to_string())));
        let batch = RecordBatch::try_from_iter([("n", numbers.clone()), ("t", texts)]).unwrap();
        let assign: Assign = Arc::new(serac_values::assignment::assign);
        (FrameTable::new("f", Arc::new(Numbers(batch)), assign), numbers)
    }

    #[tokio::test]
    async fn columns_of_their_type_are_not_copied() {
        let (table, numbers) = table(20_000);
        let context = SessionContext::new();
        let plan = table.scan(&context.state(), Some(&vec![0]), &[], None).await.unwrap();
        let batches: Vec<_> = plan.execute(0, context.task_ctx()).unwrap().try_collect().await.unwrap();
        let all: &Int64Array = numbers.as_primitive::<Int64Type>();
        let mut at = 0;
        for batch in &batches {
            let own = batch.column(0).as_primitive::<Int64Type>();
            assert_eq!(own.values().as_ptr(), all.values()[at..].as_ptr());
            at += own.len();
        }
        assert_eq!((at, batches.len()), (20_000, 3));
    }

    #[tokio::test]
    async fn texts_get_the_type_of_texts() {
        let (table, _) = table(20_000);
        assert_eq!(*table.schema().field(1).data_type(), DataType::Utf8View);
        let context = SessionContext::new();
        let plan = table.scan(&context.state(), Some(&vec![1]), &[], None).await.unwrap();
        let batches: Vec<_> = plan.execute(0, context.task_ctx()).unwrap().try_collect().await.unwrap();
        assert_eq!(batches[0].column(0).as_string_view().value(9), "9");
    }
}
