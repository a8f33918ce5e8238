//! The inputs of joins whose rows have been read before.

use super::buckets::BucketFile;
use super::claim::Claimed;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The rows of a build side, by partition, until they are taken.
#[derive(Default)]
pub(super) struct Kept(Mutex<Vec<Vec<RecordBatch>>>);

impl Kept {
    pub(super) fn put(&self, rows: Vec<Vec<RecordBatch>>) {
        *self.0.lock() = rows;
    }

    fn take(&self, partition: usize) -> Vec<RecordBatch> {
        self.0.lock().get_mut(partition).map(std::mem::take).unwrap_or_default()
    }
}

/// The operators here have no expressions of their own, and show as what they are.
macro_rules! operator {
    ($name:ident, $shown:literal) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($shown)
            }
        }
        impl DisplayAs for $name {
            fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($shown)
            }
        }
    };
}

/// A build side that has been read.
pub(super) struct Replay {
    input: Arc<dyn ExecutionPlan>,
    kept: Arc<Kept>,
}

operator!(Replay, "Replay");

impl Replay {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, kept: Arc<Kept>) -> Self {
        Self { input, kept }
    }
}

impl ExecutionPlan for Replay {
    fn name(&self) -> &str {
        "Replay"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
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

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { input: children[0].clone(), kept: self.kept.clone() }))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = stream::iter(self.kept.take(partition)).map(Ok);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// The other side, below a join whose context has the memory of its claim. A join asks for rows of
/// this side when it has built its table.
pub(super) struct Probe {
    input: Arc<dyn ExecutionPlan>,
    outer: Arc<OnceLock<Arc<TaskContext>>>,
    claimed: Arc<OnceLock<Arc<Claimed>>>,
    /// Tables that the join builds.
    tables: usize,
    asked: Arc<AtomicUsize>,
}

operator!(Probe, "Probe");

impl Probe {
    pub(super) fn new(
        input: Arc<dyn ExecutionPlan>,
        outer: Arc<OnceLock<Arc<TaskContext>>>,
        claimed: Arc<OnceLock<Arc<Claimed>>>,
        tables: usize,
    ) -> Self {
        Self { input, outer, claimed, tables, asked: Arc::default() }
    }
}

impl ExecutionPlan for Probe {
    fn name(&self) -> &str {
        "Probe"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
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

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(children[0].clone(), self.outer.clone(), self.claimed.clone(), self.tables)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut rows = self.input.execute(partition, self.outer.get().cloned().unwrap_or(context))?;
        let (claimed, asked, tables) = (self.claimed.clone(), self.asked.clone(), self.tables);
        let mut is_first = true;
        let rows = stream::poll_fn(move |context| {
            // Relaxed: the claim has a lock.
            if std::mem::take(&mut is_first) && asked.fetch_add(1, Ordering::Relaxed) + 1 == tables {
                claimed.get().into_iter().for_each(|claimed| claimed.is_built());
            }
            rows.poll_next_unpin(context)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// Properties of one partition of rows in any order.
fn plain(schema: SchemaRef) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(1),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

/// A bucket's rows, which can be read again and again.
pub(super) struct SpilledRows {
    file: BucketFile,
    manager: SpillManager,
    properties: Arc<PlanProperties>,
}

operator!(SpilledRows, "SpilledRows");

impl SpilledRows {
    pub(super) fn new(file: BucketFile, manager: SpillManager) -> Self {
        let properties = plain(manager.schema().clone());
        Self { file, manager, properties }
    }
}

impl ExecutionPlan for SpilledRows {
    fn name(&self) -> &str {
        "SpilledRows"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
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

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (parts, manager) = (self.file.parts.clone(), self.manager.clone());
        let parts = stream::iter(parts).map(move |part| manager.read_spill_as_stream(part, None));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), parts.try_flatten())))
    }
}

/// Rows that come once.
pub(super) struct StreamOnce {
    rows: Mutex<Option<SendableRecordBatchStream>>,
    properties: Arc<PlanProperties>,
}

operator!(StreamOnce, "StreamOnce");

impl StreamOnce {
    pub(super) fn new(rows: SendableRecordBatchStream) -> Self {
        let properties = plain(rows.schema());
        Self { rows: Mutex::new(Some(rows)), properties }
    }
}

impl ExecutionPlan for StreamOnce {
    fn name(&self) -> &str {
        "StreamOnce"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
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

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.rows.lock().take().ok_or_else(|| internal_datafusion_err!("these rows have been read"))
    }
}
