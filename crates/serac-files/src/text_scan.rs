//! The operator that reads CSV, JSON and Arrow IPC, by the readers of COPY.
//!
//! Each file is read by a thread of its own, which is a few batches ahead and ends when nobody
//! takes them ([`serac_copy::Source`]). Texts become values where they are wanted: on the threads
//! that run queries. Files are shared out among as many streams as there are such threads.

use crate::found::{Found, FoundFile};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringViewArray, new_null_array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use serac_copy::{CopyProgress, Input, Rows, Source, at_place, first_failing, in_file};
use serac_values::SqlError;
use std::fmt;
use std::sync::Arc;

/// Files in an EXPLAIN.
const SHOWN: usize = 3;

/// Reads files of CSV, JSON or Arrow IPC.
#[derive(Debug)]
pub(crate) struct FileScanExec {
    found: Arc<Found>,
    projection: Arc<[usize]>,
    /// The number of streams. Stream `i` reads the files `i`, `i + streams` and so on.
    streams: usize,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FileScanExec {
    /// Reads some columns, in up to `threads` streams. `limit`: rows that are enough.
    pub(crate) fn new(found: Arc<Found>, projection: &[usize], threads: usize, limit: Option<usize>) -> Result<Self> {
        let streams = threads.min(found.files.len()).max(1);
        let schema = Arc::new(found.schema.project(projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(streams),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Self { found, projection: projection.into(), streams, limit, properties, metrics })
    }
}

impl DisplayAs for FileScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = &self.found.files;
        let mut shown: Vec<&str> = files.iter().take(SHOWN).map(|file| file.known.path()).collect();
        if files.len() > SHOWN {
            shown.push("…");
        }
        let names: Vec<&str> = self.projection.iter().map(|at| self.found.columns[*at].name.as_str()).collect();
        let format = format!("{:?}", self.found.format()).to_lowercase();
        write!(f, "FileScanExec: format={format}, files={} [{}]", files.len(), shown.join(", "))?;
        write!(f, ", columns=[{}]", names.join(", "))?;
        match self.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

/// Columns of a file's rows as the plan has them.
fn values(
    found: &Found,
    file: &FoundFile,
    projection: &[usize],
    rows: &RecordBatch,
) -> Result<Vec<ArrayRef>, SqlError> {
    let column = |at: &usize| {
        let column = &found.columns[*at];
        if column.is_file_name {
            let names = StringViewArray::from_iter_values(std::iter::repeat_n(file.known.path(), rows.num_rows()));
            return Ok(Arc::new(names) as ArrayRef);
        }
        match file.places[*at] {
            Some(place) => column.values(rows.column(place), &found.assign),
            None => Ok(new_null_array(&column.value_type.arrow(), rows.num_rows())),
        }
    };
    projection.iter().map(column).collect()
}

/// One of the streams.
struct FileStream {
    found: Arc<Found>,
    projection: Arc<[usize]>,
    schema: SchemaRef,
    /// The next file, and by how much the one behind it is farther.
    next: usize,
    step: usize,
    /// The reader of a file, the file, and the rows that it has given.
    open: Option<(Source, usize, u64)>,
    /// Rows that are wanted.
    left: usize,
    metrics: BaselineMetrics,
}

impl FileStream {
    fn open(&self, at: usize) -> Result<Source, SqlError> {
        let file = &self.found.files[at];
        let options = self.found.options(file, &self.projection);
        let types = self.found.types_in(file);
        Source::start(Input::Known(file.known.clone()), options, types, Arc::<CopyProgress>::default())
    }

    /// Rows as the plan has them; an error says where it is.
    fn batch(&self, rows: &Rows, file: &FoundFile, before: u64) -> Result<RecordBatch, SqlError> {
        let arrays = values(&self.found, file, &self.projection, &rows.batch).map_err(|error| {
            let run = |from: usize, count: usize| {
                values(&self.found, file, &self.projection, &rows.batch.slice(from, count)).map(|_| ())
            };
            let (first, error) = first_failing(rows.batch.num_rows(), error, run);
            match rows.lines.get(first) {
                Some(line) => at_place(error, &format!("line {line}")),
                None => at_place(error, &format!("row {}", before + first as u64 + 1)),
            }
        })?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        while self.left > 0 {
            if self.open.is_none() {
                if self.next >= self.found.files.len() {
                    return Ok(None);
                }
                self.open = Some((self.open(self.next)?, self.next, 0));
                self.next += self.step;
            }
            let Some((source, at, before)) = &mut self.open else { continue };
            let (at, given) = (*at, *before);
            let path = || self.found.files[at].known.path();
            let Some(rows) = source.next().await.map_err(|error| in_file(error, path()))? else {
                self.open = None;
                continue;
            };
            *before += rows.batch.num_rows() as u64;
            let timer = self.metrics.elapsed_compute().timer();
            let batch = self.batch(&rows, &self.found.files[at], given).map_err(|error| in_file(error, path()))?;
            timer.done();
            if batch.num_rows() == 0 {
                continue;
            }
            let batch = batch.slice(0, batch.num_rows().min(self.left));
            self.left -= batch.num_rows();
            self.metrics.record_output(batch.num_rows());
            return Ok(Some(batch));
        }
        Ok(None)
    }
}

impl ExecutionPlan for FileScanExec {
    fn name(&self) -> &'static str {
        "FileScanExec"
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
        let stream = FileStream {
            found: self.found.clone(),
            projection: self.projection.clone(),
            schema: self.schema(),
            next: partition,
            step: self.streams,
            open: None,
            left: self.limit.unwrap_or(usize::MAX),
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        let batches = futures::stream::try_unfold(stream, |mut stream| async move {
            let batch = stream.next().await.map_err(SqlError::external)?;
            Ok(batch.map(|batch| (batch, stream)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
