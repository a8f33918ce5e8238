//! Hash joins that go on when their build side does not fit into the memory for queries.
//!
//! DataFusion's hash join keeps its build side, the left one, in memory, and fails where that is
//! not enough. Here the build side is read first, within a *claim* of memory ([`claim`]):
//!
//! - It fits: DataFusion's join runs over the rows that were read, with the claim as its memory, so
//!   that it cannot fail for want of it. Nothing else differs from DataFusion's join.
//! - It does not fit: this is a Grace join. The rows of both sides are divided by a hash of their
//!   keys into files of [`BUCKETS`] buckets ([`buckets`]). Rows with equal keys are in buckets of
//!   the same number; those with NULL among their keys have no partner and are in all of them. So
//!   each pair of buckets is a join of its own, of any type. Its build side is a fraction of the
//!   whole; where that does not fit, either, it is divided again by another hash.
//! - Rows with one key stay together however often they are divided. A bucket that division does
//!   not make smaller is joined in *chunks*: as many rows of the build side as fit, with all rows
//!   of the other side, and so on. That is exact where each row of the output belongs to a row of
//!   the build side. Joins that keep rows of the other side are turned round. A full join keeps
//!   rows of both: it fails with 53200.
//!
//! All partitions of one join do the same: the partitions of DataFusion's join wait for each other
//! before they tell the scans which keys they have. So the build sides of all partitions are read,
//! by a task each, before any of them is joined. The rows of a join that has spilled are in another
//! order. If the join has promised an order, they are sorted.
//!
//! NOT IN with NULLs is not divided: whether the other side has a NULL decides about all rows.

mod buckets;
mod claim;
mod sources;
#[cfg(test)]
mod tests;

use buckets::{BucketFile, BucketWriter, Buckets};
use claim::{Claim, Claimed, table_bytes};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::common::{DataFusionError, JoinType, Result, resources_datafusion_err};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, SpillMetrics};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};
use sources::{Kept, Probe, Replay, SpilledRows, StreamOnce};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Files into which a side is divided at a time.
const BUCKETS: usize = 16;

/// How often rows are divided: into 4,096 files.
const MOST_DIVISIONS: u32 = 3;

/// A bucket with more than this part of the rows that were divided is not divided again.
const SKEWED: f64 = 0.9;

/// A future whose result several partitions await.
type Awaited<T> = Shared<BoxFuture<'static, Result<Arc<T>, Arc<DataFusionError>>>>;

fn awaited<T: Send + Sync + 'static>(future: impl Future<Output = Result<T>> + Send + 'static) -> Awaited<T> {
    future.map(|result| result.map(Arc::new).map_err(Arc::new)).boxed().shared()
}

async fn result_of<T>(awaited: Awaited<T>) -> Result<Arc<T>> {
    awaited.await.map_err(DataFusionError::Shared)
}

/// The way in which a join does without memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Both sides are divided; so often they have been before.
    Divides(u32),
    /// The build side is joined in chunks.
    InChunks,
}

/// The build side after it was read.
enum Build {
    /// In memory, within this claim. [`Given`] has the rows.
    InMemory(Arc<Claimed>),
    /// In files; a list of buckets for each partition.
    Spilled(Vec<Buckets>),
}

/// The inputs that a join gets before it runs. The future that reads the build side has a copy of
/// them: with the execution, which holds the future, it would keep itself.
#[derive(Clone, Default)]
struct Given {
    /// The rows of the build side, by partition, until the join takes them.
    kept: Arc<Kept>,
    /// The context of the operators below: that of the join has other memory.
    outer: Arc<OnceLock<Arc<TaskContext>>>,
    /// Told once the join has built all its tables.
    claimed: Arc<OnceLock<Arc<Claimed>>>,
}

impl Given {
    /// Gives the join its build side, by partition, and the memory for it.
    fn build(&self, rows: Vec<Vec<RecordBatch>>, claim: Arc<Claim>, context: &Arc<TaskContext>) -> Arc<Claimed> {
        self.outer.get_or_init(|| context.clone());
        self.kept.put(rows);
        self.claimed.get_or_init(|| Arc::new(Claimed::new(claim))).clone()
    }
}

/// The state of one execution.
struct Execution {
    /// DataFusion's join, over what was read of the build side.
    join: HashJoinExec,
    given: Given,
    build: OnceLock<Awaited<Build>>,
    /// The other side in files, where its partitions are joined with one build side.
    probe: OnceLock<Awaited<Buckets>>,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").finish_non_exhaustive()
    }
}

impl Execution {
    fn new(join: &HashJoinExec) -> Result<Self> {
        let given = Given::default();
        let left = Replay::new(join.left().clone(), given.kept.clone());
        let right = Probe::new(
            join.right().clone(),
            given.outer.clone(),
            given.claimed.clone(),
            join.left().output_partitioning().partition_count(),
        );
        let join = join.builder().with_new_children(vec![Arc::new(left), Arc::new(right)])?.build()?;
        Ok(Self { join, given, build: OnceLock::new(), probe: OnceLock::new() })
    }
}

/// A hash join that spills. It shows as the join.
#[derive(Debug)]
struct SpillingJoinExec {
    /// DataFusion's join over its inputs.
    join: Arc<HashJoinExec>,
    way: Way,
    /// Counts what this join spills; that of a pair of buckets counts where the whole does.
    spill: Option<SpillMetrics>,
    execution: Arc<Execution>,
    metrics: ExecutionPlanMetricsSet,
}

/// A join that spills instead of `join`; `None` for a join that must keep its build side.
///
/// # Errors
/// Those of DataFusion for a join over other inputs.
pub(crate) fn spilling(join: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(hash_join) = join.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    if hash_join.null_aware || *hash_join.partition_mode() == PartitionMode::Auto {
        return Ok(None);
    }
    let join = hash_join.builder().build()?;
    Ok(Some(Arc::new(SpillingJoinExec::new(join, Way::Divides(0), None)?)))
}

impl SpillingJoinExec {
    fn new(join: HashJoinExec, way: Way, spill: Option<SpillMetrics>) -> Result<Self> {
        let execution = Arc::new(Execution::new(&join)?);
        Ok(Self { join: Arc::new(join), way, spill, execution, metrics: ExecutionPlanMetricsSet::new() })
    }

    fn run(&self, partition: usize, context: &Arc<TaskContext>) -> Run {
        let spill = self.spill.clone().unwrap_or_else(|| SpillMetrics::new(&self.metrics, partition));
        Run { join: self.join.clone(), way: self.way, context: context.clone(), spill }
    }
}

impl DisplayAs for SpillingJoinExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.join.fmt_as(format, f)
    }
}

impl ExecutionPlan for SpillingJoinExec {
    fn name(&self) -> &str {
        self.join.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.join.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.join.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.join.apply_expressions(f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let join = self.join.builder().with_new_children(children)?.build()?;
        Ok(Arc::new(Self::new(join, self.way, self.spill.clone())?))
    }

    /// A recursive query executes a plan again.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let join = self.join.builder().reset_state().build()?;
        Ok(Arc::new(Self::new(join, self.way, self.spill.clone())?))
    }

    /// Those of the join, and of the rows that were spilled.
    fn metrics(&self) -> Option<MetricsSet> {
        let mut all = self.join.metrics().unwrap_or_default();
        for metric in self.metrics.clone_inner().iter() {
            all.push(metric.clone());
        }
        Some(all)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (run, execution, schema) = (self.run(partition, &context), self.execution.clone(), self.schema());
        if self.way == Way::InChunks {
            return run.in_chunks();
        }
        let build =
            execution.build.get_or_init(|| awaited(self.run(partition, &context).build(execution.given.clone())));
        let build = result_of(build.clone());
        // The metrics of a join that does not spill are DataFusion's.
        let metrics = self.metrics.clone();
        let rows = async move {
            match build.await?.as_ref() {
                Build::InMemory(claimed) => execution.join.execute(partition, claimed.within(&context)),
                Build::Spilled(sides) => {
                    let rows = run.in_order(run.joined(partition, sides, &execution))?;
                    let counted = BaselineMetrics::new(&metrics, partition);
                    let rows = first_rows(rows, run.join.fetch());
                    let rows = rows.inspect_ok(move |batch| counted.record_output(batch.num_rows()));
                    Ok(Box::pin(RecordBatchStreamAdapter::new(run.join.schema(), rows)) as SendableRecordBatchStream)
                }
            }
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows.try_flatten_stream())))
    }
}

/// The parts of an execution's work on a partition.
#[derive(Clone)]
struct Run {
    join: Arc<HashJoinExec>,
    way: Way,
    context: Arc<TaskContext>,
    spill: SpillMetrics,
}

/// A side of a join.
#[derive(Debug, Clone, Copy)]
enum Side {
    Left,
    Right,
}

impl Run {
    fn runtime(&self) -> Arc<RuntimeEnv> {
        self.context.runtime_env()
    }

    fn divisions(&self) -> u32 {
        match self.way {
            Way::Divides(divisions) => divisions,
            Way::InChunks => MOST_DIVISIONS,
        }
    }

    /// The files of a side's rows with the schema of that side.
    fn manager(&self, schema: SchemaRef) -> SpillManager {
        let compression = self.context.session_config().spill_compression();
        SpillManager::new(self.runtime(), self.spill.clone(), schema).with_compression_type(compression)
    }

    fn writer(&self, side: Side) -> BucketWriter {
        let on = self.join.on().iter();
        let (input, keys) = match side {
            Side::Left => (self.join.left(), on.map(|(left, _)| left.clone()).collect()),
            Side::Right => (self.join.right(), on.map(|(_, right)| right.clone()).collect()),
        };
        let nulls = self.join.null_equality();
        BucketWriter::new(keys, nulls, self.divisions(), self.manager(input.schema()), self.context.memory_pool())
    }

    /// Bytes of the table over so many rows of the build side.
    fn table_bytes(&self, rows: usize) -> usize {
        table_bytes(rows, self.context.session_config().options())
    }

    /// Reads the build side of all partitions.
    async fn build(self, given: Given) -> Result<Build> {
        let claim = Arc::new(Claim::new(self.context.memory_pool(), self.divisions() > 0));
        let (spills, left) = (Arc::new(AtomicBool::new(false)), self.join.left());
        let partitions = left.output_partitioning().partition_count();
        let read = |partition| -> Result<_> {
            let rows = left.execute(partition, self.context.clone())?;
            Ok(self.clone().read(rows, claim.clone(), spills.clone()))
        };
        let mut sides = Vec::with_capacity(partitions);
        if partitions == 1 {
            sides.push(read(0)?.await?);
        } else {
            let tasks = (0..partitions).map(|partition| Ok(SpawnedTask::spawn(read(partition)?)));
            for task in tasks.collect::<Result<Vec<_>>>()? {
                sides.push(joined_task(task).await?);
            }
        }
        if !spills.load(Ordering::Relaxed) {
            let rows = sides.into_iter().map(|side| match side {
                Read::Kept(rows) => rows,
                Read::Spilled(_) => unreachable!("the first side that spills says so"),
            });
            return Ok(Build::InMemory(given.build(rows.collect(), claim, &self.context)));
        }
        let mut buckets = Vec::with_capacity(partitions);
        for side in sides {
            buckets.push(match side {
                Read::Spilled(buckets) => buckets,
                Read::Kept(rows) => {
                    let mut writer = self.writer(Side::Left);
                    for batch in rows {
                        writer.push_counted(batch).await?;
                    }
                    writer.finish().await?
                }
            });
        }
        Ok(Build::Spilled(buckets))
    }

    /// Reads a partition of the build side, into memory as long as there is some.
    async fn read(
        self,
        mut rows: SendableRecordBatchStream,
        claim: Arc<Claim>,
        spills: Arc<AtomicBool>,
    ) -> Result<Read> {
        let (mut kept, mut counter) = (Vec::new(), RecordBatchMemoryCounter::new());
        let (mut claimed, mut count, mut next) = (0, 0, None);
        // Relaxed: the others only end earlier for it.
        let may_keep = || !spills.load(Ordering::Relaxed);
        while let Some(batch) = rows.try_next().await? {
            let bytes = counter.count_batch(&batch);
            if !may_keep() || !claim.try_grow(bytes) {
                next = Some(batch);
                break;
            }
            (claimed, count) = (claimed + bytes, count + batch.num_rows());
            kept.push(batch);
        }
        if next.is_none() && may_keep() && claim.try_grow(self.table_bytes(count)) {
            return Ok(Read::Kept(kept));
        }
        spills.store(true, Ordering::Relaxed);
        let mut writer = self.writer(Side::Left);
        for batch in kept {
            writer.push_counted(batch).await?;
        }
        writer.write().await?;
        claim.shrink(claimed);
        if let Some(batch) = next {
            writer.push(batch).await?;
        }
        while let Some(batch) = rows.try_next().await? {
            writer.push(batch).await?;
        }
        writer.finish().await.map(Read::Spilled)
    }

    /// Divides a partition of the other side.
    async fn divide_probe(self, partition: usize) -> Result<Buckets> {
        let mut rows = self.join.right().execute(partition, self.context.clone())?;
        let mut writer = self.writer(Side::Right);
        while let Some(batch) = rows.try_next().await? {
            writer.push(batch).await?;
        }
        writer.finish().await
    }

    /// Divides all partitions of the other side, into the same buckets.
    async fn divide_all_probes(self) -> Result<Buckets> {
        let partitions = self.join.right().output_partitioning().partition_count();
        let tasks = (0..partitions).map(|partition| SpawnedTask::spawn(self.clone().divide_probe(partition)));
        let mut all = Buckets::default();
        for task in tasks.collect::<Vec<_>>() {
            all.append(joined_task(task).await?);
        }
        Ok(all)
    }

    /// The rows of an output partition: one pair of buckets after the other.
    fn joined(&self, partition: usize, builds: &[Buckets], execution: &Execution) -> SendableRecordBatchStream {
        let partitions = self.join.right().output_partitioning().partition_count();
        let is_shared = *self.join.partition_mode() == PartitionMode::CollectLeft;
        let (build, first, step) = match is_shared {
            true => (builds[0].clone(), partition, partitions),
            false => (builds[partition].clone(), 0, 1),
        };
        let probe = match is_shared {
            true => execution.probe.get_or_init(|| awaited(self.clone().divide_all_probes())).clone(),
            false => awaited(self.clone().divide_probe(partition)),
        };
        let run = self.clone();
        let rows = result_of(probe).map_ok(move |probe| {
            let numbers = stream::iter((first..BUCKETS).step_by(step));
            let pairs = numbers.map(move |number| (build.of(number), build.rows(), probe.of(number)));
            pairs.then(move |(left, all, right)| futures::future::ready(run.join_pair(left, all, right))).try_flatten()
        });
        Box::pin(RecordBatchStreamAdapter::new(self.join.schema(), rows.try_flatten_stream()))
    }

    /// The rows in the order that the join has promised.
    fn in_order(&self, rows: SendableRecordBatchStream) -> Result<SendableRecordBatchStream> {
        match self.join.properties().output_ordering() {
            Some(order) => {
                SortExec::new(order.clone(), Arc::new(StreamOnce::new(rows))).execute(0, self.context.clone())
            }
            None => Ok(rows),
        }
    }

    /// Joins a pair of buckets; `all`: the rows of which `left` is a part.
    fn join_pair(&self, left: BucketFile, all: usize, right: BucketFile) -> Result<SendableRecordBatchStream> {
        let is_skewed = left.rows as f64 > SKEWED * all as f64;
        let way = match self.divisions() + 1 {
            divisions if divisions < MOST_DIVISIONS && !is_skewed => Way::Divides(divisions),
            _ => Way::InChunks,
        };
        if left.rows == 0 && right.rows == 0 {
            return Ok(Box::pin(RecordBatchStreamAdapter::new(self.join.schema(), stream::empty())));
        }
        let left = SpilledRows::new(left, self.manager(self.join.left().schema()));
        let right = SpilledRows::new(right, self.manager(self.join.right().schema()));
        let join = self.join.builder().reset_state().with_fetch(None);
        let join = join.with_partition_mode(PartitionMode::CollectLeft).recompute_properties();
        let join = join.with_new_children(vec![Arc::new(left), Arc::new(right)])?.build()?;
        self.join_of(join, way)?.execute(0, self.context.clone())
    }

    /// A join of spilled rows.
    fn join_of(&self, join: HashJoinExec, way: Way) -> Result<Arc<dyn ExecutionPlan>> {
        if way != Way::InChunks {
            return Ok(Arc::new(SpillingJoinExec::new(join, way, Some(self.spill.clone()))?));
        }
        // Each row of the output must belong to one of the build side.
        let plan = match join.join_type() {
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                join.swap_inputs(PartitionMode::CollectLeft)?
            }
            _ => Arc::new(join),
        };
        let plan = plan.transform_up(|node| match node.downcast_ref::<HashJoinExec>() {
            Some(join) => {
                let join = SpillingJoinExec::new(join.builder().build()?, way, Some(self.spill.clone()))?;
                Ok(Transformed::yes(Arc::new(join) as _))
            }
            None => Ok(Transformed::no(node)),
        })?;
        Ok(plan.data)
    }

    /// Joins as many rows of the build side as fit with all others, and so on.
    fn in_chunks(self) -> Result<SendableRecordBatchStream> {
        let schema = self.join.schema();
        let rows = self.join.left().execute(0, self.context.clone())?;
        let chunks = Chunks { run: self, rows, next: None, are_joined: false };
        let rows = stream::try_unfold(chunks, |mut chunks| async {
            Ok::<_, DataFusionError>(chunks.next().await?.map(|rows| (rows, chunks)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows.try_flatten())))
    }

    /// Joins rows that are in memory.
    fn join_chunk(&self, rows: Vec<RecordBatch>, claim: Claim) -> Result<SendableRecordBatchStream> {
        let execution = Execution::new(&self.join.builder().reset_state().build()?)?;
        let claimed = execution.given.build(vec![rows], Arc::new(claim), &self.context);
        execution.join.execute(0, claimed.within(&self.context))
    }
}

/// The rows of a build side in chunks.
struct Chunks {
    run: Run,
    rows: SendableRecordBatchStream,
    /// The row group that did not fit into the last chunk.
    next: Option<RecordBatch>,
    are_joined: bool,
}

impl Chunks {
    /// The rows of the next chunk's join.
    async fn next(&mut self) -> Result<Option<SendableRecordBatchStream>> {
        let claim = Claim::new(self.run.context.memory_pool(), true);
        let (mut kept, mut counter, mut count) = (Vec::new(), RecordBatchMemoryCounter::new(), 0);
        let mut table = self.run.table_bytes(0);
        claim.grow(table);
        let is_full = *self.run.join.join_type() == JoinType::Full;
        loop {
            let batch = match self.next.take() {
                Some(batch) => batch,
                None => match self.rows.try_next().await? {
                    Some(batch) => batch,
                    None => break,
                },
            };
            count += batch.num_rows();
            let grown = self.run.table_bytes(count);
            let bytes = counter.count_batch(&batch) + grown.saturating_sub(table);
            if kept.is_empty() {
                claim.grow(bytes);
            } else if !claim.try_grow(bytes) {
                self.next = Some(batch);
                break;
            }
            table = table.max(grown);
            kept.push(batch);
        }
        // A full join has rows of the other side also where the build side has none, once.
        let is_whole = self.next.is_none() && !self.are_joined;
        if is_full && !is_whole && !(kept.is_empty() && self.are_joined) {
            return Err(resources_datafusion_err!(
                "a full join has more rows with equal keys than the memory for queries holds"
            ));
        }
        if kept.is_empty() && !(is_full && is_whole) {
            return Ok(None);
        }
        self.are_joined = true;
        self.run.join_chunk(kept, claim).map(Some)
    }
}

/// No more than `fetch` rows.
fn first_rows(
    rows: SendableRecordBatchStream,
    fetch: Option<usize>,
) -> impl futures::Stream<Item = Result<RecordBatch>> + Send {
    let mut left = fetch.unwrap_or(usize::MAX);
    rows.map_ok(move |batch| {
        let count = batch.num_rows().min(left);
        left -= count;
        (batch.slice(0, count), left == 0)
    })
    // The last batch ends the stream.
    .scan(false, |is_over, batch| {
        let is_last = matches!(batch, Ok((_, true)));
        let was_over = std::mem::replace(is_over, is_last);
        futures::future::ready((!was_over).then(|| batch.map(|(batch, _)| batch)))
    })
}

async fn joined_task<T: Send + 'static>(task: SpawnedTask<Result<T>>) -> Result<T> {
    task.join_unwind().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
}

/// A side of a partition that has been read.
enum Read {
    Kept(Vec<RecordBatch>),
    Spilled(Buckets),
}
