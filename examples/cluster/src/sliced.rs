//! A remote scan that Ballista cuts into tasks.
//!
//! Ballista 55 gives each task some partitions of a stage. It cuts the leaves that it knows (files,
//! tables in memory, its own shuffles) to these partitions, and a task runs all that is left. It
//! leaves a leaf that it does not know as it is, so each task would read the whole table, and the
//! query would get each row once for each task.
//!
//! So the leaf that Ballista sees is a table in memory: a row for each partition of the scan, with
//! its number. A [`SlicedScanExec`] above it reads those partitions of the remote scan whose
//! numbers come. Ballista cuts the table of numbers, and with it the scan.
//!
//! ```text
//! SlicedScanExec: partition i reads the partitions of the scan that row i of its input names
//!   DataSourceExec: [0], [1], [2], …     cut by Ballista to [1], for example
//! ```

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use datafusion::arrow::datatypes::{SchemaRef, UInt32Type};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, TryStreamExt};
use serac_remote::{RemoteScanExec, RemoteTable};
use std::fmt;
use std::sync::Arc;

/// A table of servers whose scans Ballista can cut.
#[derive(Debug)]
pub struct SlicedTable(pub RemoteTable);

#[async_trait]
impl TableProvider for SlicedTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        self.0.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.0.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let scan = self.0.scan(session, projection, filters, limit).await?;
        if scan.is::<RemoteScanExec>() { Ok(Arc::new(SlicedScanExec::new(scan)?)) } else { Ok(scan) }
    }
}

/// Reads the partitions of a remote scan whose numbers its input gives.
#[derive(Debug)]
pub struct SlicedScanExec {
    scan: Arc<dyn ExecutionPlan>,
    numbers: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl SlicedScanExec {
    /// Reads all partitions.
    fn new(scan: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let batch = |number| {
            let numbers: ArrayRef = Arc::new(UInt32Array::from(vec![number]));
            RecordBatch::try_from_iter([("partition", numbers)])
        };
        let schema = batch(0)?.schema();
        let partitions = scan.properties().partitioning.partition_count() as u32;
        let batches = (0..partitions).map(|number| Ok(vec![batch(number)?])).collect::<Result<Vec<_>>>()?;
        Ok(Self::of(scan, MemorySourceConfig::try_new_exec(&batches, schema, None)?))
    }

    /// Reads the partitions that `numbers` gives.
    pub fn of(scan: Arc<dyn ExecutionPlan>, numbers: Arc<dyn ExecutionPlan>) -> Self {
        let of_scan = scan.properties();
        let partitions = numbers.properties().partitioning.partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(scan.schema()),
            Partitioning::UnknownPartitioning(partitions),
            of_scan.emission_type,
            of_scan.boundedness,
        );
        Self { scan, numbers, properties: Arc::new(properties) }
    }

    /// The remote scan.
    pub fn scan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.scan
    }
}

impl DisplayAs for SlicedScanExec {
    fn fmt_as(&self, form: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of ", self.name())?;
        match self.scan.downcast_ref::<RemoteScanExec>() {
            Some(scan) => scan.fmt_as(form, f),
            None => write!(f, "{}", self.scan.name()),
        }
    }
}

impl ExecutionPlan for SlicedScanExec {
    fn name(&self) -> &str {
        "SlicedScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.numbers]
    }

    /// A number that moves to another partition would be read there.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(numbers), true) => Ok(Arc::new(Self::of(self.scan.clone(), numbers))),
            _ => internal_err!("a sliced scan has one input"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let numbers = self.numbers.execute(partition, context.clone())?;
        let scan = self.scan.clone();
        let read = move |numbers: Result<RecordBatch>| {
            let numbers = numbers?;
            let numbers = numbers.column(0).as_primitive::<UInt32Type>().values();
            let streams = numbers.iter().map(|&number| scan.execute(number as usize, context.clone()));
            // Nothing is sent for a stream before its first batch is asked for.
            Ok::<_, DataFusionError>(futures::stream::iter(streams.collect::<Vec<_>>()).try_flatten())
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.scan.schema(), numbers.map(read).try_flatten())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.scan.metrics()
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        match args.partition() {
            None => self.scan.statistics_from_inputs(&[], args),
            Some(_) => Ok(Arc::new(Statistics::new_unknown(&self.scan.schema()))),
        }
    }
}
