//! Parquet: DataFusion's operator reads it, which leaves out row groups and pages by their
//! statistics; its bytes come from files that must not have changed; and an operator above gives
//! the values SQL types.
//!
//! ```text
//! FileValuesExec: values of SQL types, errors with the file's name
//!   DataSourceExec: batches as the file has them, some left out by the filters
//!     PinnedReader: bytes of a known file
//! ```
//! A filter goes down if its columns have the same form in the file as in the plan. It only leaves
//! out what it cannot hold for: rows are filtered above. Statistics say nothing about NaN, which is
//! greater than all numbers: of columns with floats, only filters that do not hold for it go down.

use crate::found::{FILE_NAME, FileColumn, Form, Found};
use crate::request::Assign;
use bytes::Bytes;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::Session;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, DFSchema, Result, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfigBuilder, ParquetFileReaderFactory, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Operator};
use datafusion::parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use serac_copy::{KnownFile, in_file};
use serac_values::SqlError;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Bytes that one column of one row group may have: what a reader asks for at once.
const MOST_AT_ONCE: u64 = 1 << 32;

fn invalid(error: &ParquetError) -> SqlError {
    match error {
        ParquetError::External(error) if error.is::<SqlError>() => {
            error.downcast_ref::<SqlError>().expect("it is one").clone()
        }
        ParquetError::NYI(what) => SqlError::unsupported(format!("Parquet with {what}")),
        error => unreadable(&error.to_string()),
    }
}

/// The error of a file whose parts contradict each other so that its reader has panicked: the
/// reader trusts some of them.
fn damaged() -> SqlError {
    unreadable("its parts contradict each other")
}

fn unreadable(message: &str) -> SqlError {
    SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, format!("the file cannot be read as Parquet: {message}"))
}

/// The type in which a column is read: texts and bytes as views, which the reader makes without a
/// copy.
fn read_as(field: &Field) -> Field {
    let data_type = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        other => other.clone(),
    };
    Field::new(field.name(), data_type, field.is_nullable())
}

/// The columns of a file, and what stands at its end.
///
/// # Errors
/// 22P04.
pub(crate) fn columns_of_parquet(file: File) -> Result<(SchemaRef, Arc<ParquetMetaData>), SqlError> {
    let read = || {
        let metadata = Arc::new(ParquetMetaDataReader::new().parse_and_finish(&file)?);
        ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new())
    };
    let read = catch_unwind(AssertUnwindSafe(read)).map_err(|_| damaged())?;
    let read = read.map_err(|error| invalid(&error))?;
    let fields = read.schema().fields().iter().map(|field| read_as(field));
    Ok((Arc::new(Schema::new(fields.collect::<Vec<_>>())), read.metadata().clone()))
}

/// A file that a query has found, and what is known of it.
#[derive(Clone, Debug)]
struct PinnedFile {
    known: KnownFile,
    metadata: Option<Arc<ParquetMetaData>>,
}

/// Makes readers of files that must not have changed. Each comes with its [`PinnedFile`]: locations
/// of DataFusion do not tell an absolute name from a relative one.
#[derive(Debug)]
struct PinnedFiles;

impl ParquetFileReaderFactory for PinnedFiles {
    fn create_reader(
        &self,
        _: usize,
        file: PartitionedFile,
        _: Option<usize>,
        _: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let pinned = file.extension::<PinnedFile>().cloned();
        let missing = || SqlError::new(sqlstate::INTERNAL_ERROR, "a file is read that was not found").external();
        Ok(Box::new(PinnedReader { pinned: pinned.ok_or_else(missing)?, open: None }))
    }
}

/// Reads a file that must not have changed. It is asked before each part is given.
struct PinnedReader {
    pinned: PinnedFile,
    open: Option<Arc<File>>,
}

fn external(error: SqlError) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl PinnedReader {
    /// Runs `read`, which may wait for a disk, where waiting is allowed.
    async fn reading<T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&PinnedFile, &File) -> Result<T, ParquetError> + Send + 'static,
    ) -> Result<T, ParquetError> {
        let (pinned, open) = (self.pinned.clone(), self.open.clone());
        let work = move || {
            let file = match open {
                Some(file) => file,
                None => Arc::new(pinned.known.open().map_err(external)?),
            };
            let read = read(&pinned, &file);
            // Bytes of a file that changes are no error of its format.
            pinned.known.check(&file).map_err(external)?;
            Ok::<_, ParquetError>((read?, file))
        };
        let done = tokio::task::spawn_blocking(work).await;
        let (read, file) = done.map_err(|panic| ParquetError::General(panic.to_string()))??;
        self.open = Some(file);
        Ok(read)
    }
}

fn bytes_of(pinned: &PinnedFile, file: &File, range: &Range<u64>) -> Result<Bytes, ParquetError> {
    if range.start > range.end || range.end > pinned.known.length() || range.end - range.start > MOST_AT_ONCE {
        return Err(ParquetError::General(format!("there are no bytes {} to {}", range.start, range.end)));
    }
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes.into())
}

impl AsyncFileReader for PinnedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        self.reading(move |pinned, file| bytes_of(pinned, file, &range)).boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        self.reading(move |pinned, file| ranges.iter().map(|range| bytes_of(pinned, file, range)).collect()).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        let read = |pinned: &PinnedFile, file: &File| match &pinned.metadata {
            Some(metadata) => Ok(metadata.clone()),
            None => Ok(Arc::new(ParquetMetaDataReader::new().parse_and_finish(file)?)),
        };
        self.reading(read).boxed()
    }
}

/// Whether a filter that reads a column of floats can do without NaN: it compares the column with a
/// number, and does not hold for NaN.
fn is_false_for_nan(filter: &Expr) -> bool {
    let Expr::BinaryExpr(comparison) = filter else { return false };
    let (operator, constant) = match (&*comparison.left, &*comparison.right) {
        (Expr::Column(_), Expr::Literal(constant, _)) => (Some(comparison.op), constant),
        (Expr::Literal(constant, _), Expr::Column(_)) => (comparison.op.swap(), constant),
        _ => return false,
    };
    let is_number = match constant {
        ScalarValue::Float64(Some(number)) => !number.is_nan(),
        ScalarValue::Float32(Some(number)) => !number.is_nan(),
        _ => false,
    };
    is_number && matches!(operator, Some(Operator::Lt | Operator::LtEq | Operator::Eq))
}

/// The filters that mean the same for values as they are in the files, and for which statistics
/// tell all.
fn filters_below(found: &Found, raw: &Schema, filters: &[Expr]) -> Vec<Expr> {
    let is_same = |name: &str| {
        let column = found.columns.iter().find(|column| column.name == name);
        let field = raw.field_with_name(name).ok();
        let types = column.zip(field).map(|(column, field)| column.value_type.arrow() == *field.data_type());
        types.unwrap_or_default()
    };
    let is_float = |name: &str| raw.field_with_name(name).is_ok_and(|field| field.data_type().is_floating());
    let is_below = |filter: &&Expr| {
        let columns = filter.column_refs();
        columns.iter().all(|column| is_same(&column.name))
            && (is_false_for_nan(filter) || !columns.iter().any(|column| is_float(&column.name)))
    };
    filters.iter().filter(is_below).cloned().map(without_qualifiers).collect()
}

/// A filter over columns of the relation alone.
fn without_qualifiers(filter: Expr) -> Expr {
    use datafusion::common::tree_node::{Transformed, TreeNode};
    let plain = filter.clone().transform(|expr| {
        Ok(match expr {
            Expr::Column(column) => Transformed::yes(Expr::Column(Column::new_unqualified(column.name))),
            other => Transformed::no(other),
        })
    });
    plain.map_or(filter, |plain| plain.data)
}

/// The plan that reads some columns of the files.
pub(crate) fn plan(
    found: &Arc<Found>,
    state: &dyn Session,
    projection: &[usize],
    filters: &[Expr],
    limit: Option<usize>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Form::Parquet { schema: raw } = &found.form else {
        return Err(SqlError::new(sqlstate::INTERNAL_ERROR, "the files are no Parquet").external());
    };
    let tells_file = found.columns.iter().any(|column| column.is_file_name);
    let of_file = tells_file.then(|| Arc::new(Field::new(FILE_NAME, DataType::Utf8View, false)));
    let columns =
        TableSchema::builder(raw.clone()).with_table_partition_cols(of_file.into_iter().collect::<Vec<_>>()).build();
    let mut group = Vec::with_capacity(found.files.len());
    for file in &found.files {
        let pinned = PinnedFile { known: file.known.clone(), metadata: file.metadata.clone() };
        let mut part = PartitionedFile::new(file.known.path(), file.known.length()).with_extension(pinned);
        if tells_file {
            part = part.with_partition_values(vec![ScalarValue::Utf8View(Some(file.known.path().to_owned()))]);
        }
        group.push(part);
    }
    let full = columns.table_schema().clone();
    let mut source = ParquetSource::new(columns)
        .with_table_parquet_options(state.table_options().parquet.clone())
        .with_pushdown_filters(false)
        .with_parquet_file_reader_factory(Arc::new(PinnedFiles));
    if let Some(filter) = conjunction(filters_below(found, &full, filters)) {
        let over = DFSchema::try_from(full.clone())?;
        source = source.with_predicate(state.create_physical_expr(filter, &over)?);
    }
    let rows: Option<usize> = found.files.iter().map(|file| file.rows).sum();
    let statistics =
        Statistics { num_rows: rows.map_or(Precision::Absent, Precision::Exact), ..Statistics::new_unknown(&full) };
    let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source))
        .with_file_group(FileGroup::new(group))
        .with_projection_indices(Some(projection.to_vec()))?
        .with_statistics(statistics)
        .with_limit(limit.filter(|_| filters.is_empty()))
        .build();
    let scan: Arc<dyn ExecutionPlan> = DataSourceExec::from_data_source(config);
    let threads = state.config().target_partitions();
    let scan = scan.repartitioned(threads, state.config_options())?.unwrap_or(scan);
    Ok(Arc::new(FileValuesExec::new(found.clone(), projection.to_vec(), scan)?))
}

/// Gives values of files SQL types.
#[derive(Debug)]
pub(crate) struct FileValuesExec {
    found: Arc<Found>,
    projection: Vec<usize>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FileValuesExec {
    fn new(found: Arc<Found>, projection: Vec<usize>, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let schema = Arc::new(found.schema.project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            datafusion::physical_plan::Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Self { found, projection, input, properties, metrics })
    }
}

impl DisplayAs for FileValuesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.projection.iter().map(|at| self.found.columns[*at].name.as_str()).collect();
        write!(f, "FileValuesExec: format=parquet, files={}, columns=[{}]", self.found.files.len(), names.join(", "))
    }
}

/// The error behind an error of DataFusion's.
fn told(error: &DataFusionError) -> SqlError {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(here) = next {
        if let Some(told) = here.downcast_ref::<SqlError>() {
            return told.clone();
        }
        if let Some(error) = here.downcast_ref::<ParquetError>() {
            return invalid(error);
        }
        if let Some(ArrowError::ParquetError(message)) = here.downcast_ref::<ArrowError>() {
            return unreadable(message);
        }
        next = here.source();
    }
    SqlError::from(error)
}

/// The error of some files: that of a change, if one of them has changed. With its name if it is
/// the only one.
fn of_files(found: &Found, error: &DataFusionError) -> DataFusionError {
    let is_change = |error: &SqlError| error.sqlstate == sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE;
    let changed = || found.files.iter().find_map(|file| file.known.open().err().filter(is_change));
    let error = told(error);
    match &found.files[..] {
        _ if matches!(error.sqlstate, sqlstate::QUERY_CANCELED | sqlstate::OUT_OF_MEMORY) => error.external(),
        [file] => in_file(changed().unwrap_or(error), file.known.path()).external(),
        _ => changed().unwrap_or(error).external(),
    }
}

/// Columns as the plan has them.
fn values(batch: &RecordBatch, columns: &[FileColumn], schema: &SchemaRef, assign: &Assign) -> Result<RecordBatch> {
    let column = |(column, came)| FileColumn::values(column, came, assign).map_err(SqlError::external);
    let arrays = columns.iter().zip(batch.columns()).map(column).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?)
}

impl ExecutionPlan for FileValuesExec {
    fn name(&self) -> &'static str {
        "FileValuesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| self.input.clone());
        Ok(Arc::new(Self::new(self.found.clone(), self.projection.clone(), input)?))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, below: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let num_rows = below.first().map_or(Precision::Absent, |below| below.num_rows);
        Ok(Arc::new(Statistics { num_rows, ..Statistics::new_unknown(&self.schema()) }))
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn repartitioned(&self, threads: usize, config: &ConfigOptions) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(input) = self.input.repartitioned(threads, config)? else { return Ok(None) };
        Ok(Some(Arc::new(Self::new(self.found.clone(), self.projection.clone(), input)?)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, context)?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (found, schema) = (self.found.clone(), self.schema());
        let columns: Vec<FileColumn> = self.projection.iter().map(|at| found.columns[*at].clone()).collect();
        let given = schema.clone();
        let rows = AssertUnwindSafe(rows).catch_unwind();
        let stream = rows.map(move |batch| {
            let batch = batch.unwrap_or_else(|_| Err(damaged().external()));
            let timer = metrics.elapsed_compute().timer();
            let batch = batch.and_then(|batch| values(&batch, &columns, &given, &found.assign));
            timer.done();
            match batch {
                Ok(batch) => {
                    metrics.record_output(batch.num_rows());
                    Ok(batch)
                }
                Err(error) => Err(of_files(&found, &error)),
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
