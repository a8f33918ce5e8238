//! The work of [`GroupingLevelsExec`](super::GroupingLevelsExec) in a partition: from states of the
//! finest level to those of all sets.
//!
//! A round reads states of the finest level and keeps them, up to its [`RoundLimits`] or what
//! memory there is. Then it goes through the sets, those of most keys first. The states of a set
//! are merged from those of its parent, which is the level with the fewest rows of those that have
//! all keys of the set. DataFusion's aggregation merges them (`PartialReduce`) and counts its
//! memory. The states of a set go out, and are kept while they may be a parent's, if there is
//! memory. Those of the finest level are always kept.
//!
//! The kept states leave as much memory free as they take, for merges and the step above. A merge
//! that has too little memory fails before it has given a row, as it may not spill: its states
//! might have gone out in part. The parent's states are then handed on for the set, without the
//! keys that the set leaves out. The step above merges them, and may spill.
//!
//! If the finest level has few rows, what it takes to begin a merge is more than the merge. Then a
//! round merges the rows of several sets at once, each row once for each set.
//!
//! Several rounds give a group several times, as several partitions do: the step above merges them.
//! So a round may be as small as it has to. If a set of a round had nearly as many groups as its
//! parent, later rounds hand on the parent's states for it, without the keys that the set leaves
//! out. So keys that are nearly unique are hashed by the step above alone.

use super::levels::{Levels, columns_of, one_row};
use crate::runtimes::without_files;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use futures::stream::{self, BoxStream, Fuse};
use futures::{StreamExt, TryStreamExt};
use serac_functions::bytes_of;
use std::sync::Arc;

/// A set does not reduce its parent's rows if more than this share of them are left.
const MOST_LEFT: f64 = 0.8;

/// Rows of sets that are merged together, …
const ROWS_TOGETHER: usize = 1 << 14;
/// … and their bytes. One set may have more of either.
const BYTES_TOGETHER: usize = 1 << 22;

/// How much a round reads.
#[derive(Clone, Copy, Debug)]
pub struct RoundLimits {
    /// Rows of the first round, which shows whether sets have fewer groups than their parents.
    pub first_rows: usize,
    /// Rows of later rounds.
    pub rows: usize,
    /// Bytes of any round.
    pub bytes: usize,
    /// The least rows of a parent that show whether a set has fewer groups.
    pub least_seen: usize,
    /// Rows of the finest level with which sets are merged together.
    pub few_rows: usize,
}

impl Default for RoundLimits {
    fn default() -> Self {
        Self { first_rows: 1 << 17, rows: 1 << 20, bytes: 64 << 20, least_seen: 1 << 15, few_rows: 512 }
    }
}

/// States of groups: columns of keys, and then of states.
#[derive(Clone)]
struct States {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl States {
    fn new(schema: SchemaRef) -> Self {
        Self { schema, batches: Vec::new(), rows: 0, bytes: 0 }
    }

    fn push(&mut self, batch: RecordBatch, bytes: usize) {
        self.rows += batch.num_rows();
        self.bytes += bytes;
        self.batches.push(batch);
    }

    /// Forgets the states.
    fn clear(&mut self) {
        (self.batches, self.rows, self.bytes) = (Vec::new(), 0, 0);
    }
}

/// The columns of states.
#[derive(Clone, Copy)]
enum Layout {
    /// The keys of the finest level, and the states.
    Finest,
    /// The keys of a level, and the states.
    Level(usize),
    /// All keys, the number of the set, and the states.
    Whole,
}

/// The levels that a round is at.
struct Current {
    states: BoxStream<'static, Result<RecordBatch>>,
    layout: Layout,
    /// The number of levels; 1 unless the layout is whole.
    levels: usize,
    /// Rows of states that are merged; `None` if that does not show whether they become fewer.
    merges: Option<usize>,
    /// Rows that came.
    rows: usize,
    /// The states that came, unless nobody needs them or they do not fit.
    kept: Option<States>,
    /// The states that are merged, which are handed on if there is no memory for it.
    unmerged: Option<(Vec<RecordBatch>, Layout)>,
}

impl Current {
    fn new(states: BoxStream<'static, Result<RecordBatch>>, layout: Layout, levels: usize) -> Self {
        Self { states, layout, levels, merges: None, rows: 0, kept: None, unmerged: None }
    }
}

/// The work of a partition.
pub(super) struct Rounds {
    levels: Arc<Levels>,
    /// For merges: without files.
    context: Arc<TaskContext>,
    input: Fuse<SendableRecordBatchStream>,
    reservation: MemoryReservation,
    /// The states of the finest level of this round.
    finest: States,
    /// The states of levels that are kept.
    kept: Vec<Option<States>>,
    /// The levels that had fewer groups than their parents when that was seen.
    reduces: Vec<bool>,
    limits: RoundLimits,
    /// Rows of the next round.
    next_rows: usize,
    /// Whether no states have come yet.
    is_empty: bool,
    /// The next level of this round.
    next: usize,
    current: Option<Current>,
    baseline: BaselineMetrics,
    /// Rows of states that were merged into coarser ones.
    merged_rows: Count,
    /// Rows of states that were handed on for a coarser level as they were.
    passed_rows: Count,
    rounds: Count,
}

impl Rounds {
    /// From the states of the finest level, `finest`, of a partition.
    pub(super) fn new(
        levels: Arc<Levels>,
        finest: SendableRecordBatchStream,
        limits: RoundLimits,
        (metrics, partition): (&ExecutionPlanMetricsSet, usize),
        context: &TaskContext,
    ) -> Result<Self> {
        let count = |name| MetricBuilder::new(metrics).counter(name, partition);
        Ok(Self {
            finest: States::new(finest.schema()),
            input: finest.fuse(),
            reservation: MemoryConsumer::new(format!("GroupingLevelsExec[{partition}]"))
                .with_can_spill(true)
                .register(context.memory_pool()),
            kept: levels.all.iter().map(|_| None).collect(),
            reduces: vec![true; levels.all.len()],
            levels,
            context: without_files(context)?,
            limits,
            next_rows: limits.first_rows,
            is_empty: true,
            next: 0,
            current: None,
            baseline: BaselineMetrics::new(metrics, partition),
            merged_rows: count("merged_rows"),
            passed_rows: count("passed_rows"),
            rounds: count("rounds"),
        })
    }

    /// The next states of any set, with its number.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(mut current) = self.current.take() {
                let time = self.baseline.elapsed_compute().clone();
                let _timer = time.timer();
                match current.states.try_next().await {
                    Ok(Some(batch)) => {
                        let shaped = self.shaped(&batch, current.layout)?;
                        self.keep(&mut current, batch);
                        self.current = Some(current);
                        self.baseline.record_output(shaped.num_rows());
                        return Ok(Some(shaped));
                    }
                    Ok(None) => self.end_level(current),
                    Err(error) => self.current = Some(self.unmerged(current, error)?),
                }
            } else if self.finest.rows > 0 && self.next < self.levels.all.len() {
                let is_few = self.finest.rows <= self.limits.few_rows && self.finest.bytes <= BYTES_TOGETHER;
                self.current = Some(if is_few { self.begin_levels()? } else { self.begin_level()? });
            } else if !self.begin_round().await? {
                return Ok(None);
            }
        }
    }

    /// Reads the states of a round; false if there are none any more.
    async fn begin_round(&mut self) -> Result<bool> {
        self.finest.clear();
        self.kept.iter_mut().for_each(|kept| *kept = None);
        self.reservation.free();
        self.next = 0;
        while self.finest.rows < self.next_rows && self.finest.bytes < self.limits.bytes {
            let Some(batch) = self.input.try_next().await? else { break };
            if batch.num_rows() == 0 {
                continue;
            }
            let bytes = bytes_of_batch(&batch);
            let fits = self.takes(bytes);
            if !fits {
                // The states are there already: this round is the last chance to let them go.
                self.reservation.grow(bytes);
            }
            self.finest.push(batch, bytes);
            if !fits {
                break;
            }
        }
        self.next_rows = self.limits.rows;
        if self.finest.rows > 0 {
            self.is_empty = false;
            self.rounds.add(1);
            return Ok(true);
        }
        if !std::mem::replace(&mut self.is_empty, false) {
            return Ok(false);
        }
        // No rows at all: as the step that this replaces answers it, with all columns.
        let states = self.levels.of_no_rows.execute(0, self.context.clone())?;
        self.current = Some(Current::new(states.boxed(), Layout::Whole, self.levels.all.len()));
        Ok(true)
    }

    /// The states of the next level from those of its parent.
    fn begin_level(&mut self) -> Result<Current> {
        let levels = self.levels.clone();
        let level = &levels.all[self.next];
        let (mut parent, mut rows) = (None, self.finest.rows);
        for &at in &level.parents {
            if let Some(kept) = self.kept[at].as_ref().filter(|kept| kept.rows < rows) {
                (parent, rows) = (Some(at), kept.rows);
            }
        }
        let states = parent.and_then(|parent: usize| self.kept[parent].as_ref()).unwrap_or(&self.finest);
        let keys = parent.map_or(&levels.finest_keys, |parent| &levels.all[parent].keys);
        let is_same = keys.len() == level.keys.len();
        let layout = parent.map_or(Layout::Finest, Layout::Level);
        if is_same || !self.reduces[self.next] {
            self.passed_rows.add(if is_same { 0 } else { rows });
            let states = stream::iter(states.batches.clone()).map(Ok);
            return Ok(Current::new(states.boxed(), layout, 1));
        }
        self.merged_rows.add(rows);
        if states.schema.fields().len() == keys.len() && level.keys.is_empty() {
            // Neither keys nor states: a row that says that there is a group.
            return Ok(Current::new(stream::iter([one_row()]).boxed(), Layout::Level(self.next), 1));
        }
        let merge = levels.merge_of_level(level, &self.finest.schema)?;
        let kept = (level.last_child > self.next).then(|| States::new(merge.schema()));
        let columns = columns_of(keys, states.schema.fields().len(), &level.keys);
        let merged = self.merged(merge, states.batches.clone(), states.schema.clone(), Some(columns))?;
        let unmerged = Some((states.batches.clone(), layout));
        Ok(Current { merges: Some(rows), kept, unmerged, ..Current::new(merged, Layout::Level(self.next), 1) })
    }

    /// The states of several next levels, from few of the finest.
    fn begin_levels(&mut self) -> Result<Current> {
        let levels = self.levels.clone();
        let count = (ROWS_TOGETHER / self.finest.rows).min(BYTES_TOGETHER / self.finest.bytes.max(1));
        let next = &levels.all[self.next..];
        let next = &next[..count.clamp(1, next.len())];
        let mut rows = Vec::with_capacity(next.len() * self.finest.batches.len());
        for level in next {
            for batch in &self.finest.batches {
                rows.push(levels.shaped(batch, &levels.finest_keys, level)?);
            }
        }
        let rows = concat_batches(&levels.schema, &rows)?;
        self.merged_rows.add(rows.num_rows());
        let merged = self.merged(levels.merge_of_all()?, vec![rows.clone()], levels.schema.clone(), None)?;
        let unmerged = Some((vec![rows], Layout::Whole));
        Ok(Current { unmerged, ..Current::new(merged, Layout::Whole, next.len()) })
    }

    /// The merged rows of some columns of states.
    fn merged(
        &self,
        merge: Arc<AggregateExec>,
        states: Vec<RecordBatch>,
        schema: SchemaRef,
        columns: Option<Vec<usize>>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let input = MemorySourceConfig::try_new_exec(&[states], schema, columns)?;
        let as_before = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        Ok(merge.replace_children(vec![input], as_before)?.execute(0, self.context.clone())?.boxed())
    }

    /// The states that a merge was to merge, in its place. It has failed.
    ///
    /// # Errors
    /// The error of the merge, if it is another than too little memory.
    fn unmerged(&self, merge: Current, error: DataFusionError) -> Result<Current> {
        let is_memory = matches!(error.find_root(), DataFusionError::ResourcesExhausted(_));
        let Some((batches, layout)) = merge.unmerged.filter(|_| is_memory && merge.rows == 0) else {
            return Err(error);
        };
        self.passed_rows.add(batches.iter().map(RecordBatch::num_rows).sum());
        Ok(Current::new(stream::iter(batches).map(Ok).boxed(), layout, merge.levels))
    }

    /// Takes memory, if as much as the operator then has is left.
    fn takes(&self, bytes: usize) -> bool {
        let pool = self.context.memory_pool();
        let left = match pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit.saturating_sub(pool.reserved()),
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        left >= self.reservation.size().saturating_add(bytes.saturating_mul(2))
            && self.reservation.try_grow(bytes).is_ok()
    }

    /// Keeps states for coarser levels, if there is memory for all of their level.
    fn keep(&mut self, current: &mut Current, batch: RecordBatch) {
        current.rows += batch.num_rows();
        let Some(kept) = &mut current.kept else { return };
        let bytes = bytes_of_batch(&batch);
        match self.takes(bytes) {
            true => kept.push(batch, bytes),
            false => {
                self.reservation.shrink(kept.bytes);
                current.kept = None;
            }
        }
    }

    fn end_level(&mut self, current: Current) {
        if let Some(rows) = current.merges
            && rows >= self.limits.least_seen
            && current.rows as f64 > MOST_LEFT * rows as f64
        {
            self.reduces[self.next] = false;
        }
        self.kept[self.next] = current.kept;
        for (kept, level) in self.kept.iter_mut().zip(&self.levels.all) {
            if level.last_child <= self.next
                && let Some(states) = kept.take()
            {
                self.reservation.shrink(states.bytes);
            }
        }
        self.next += current.levels;
    }

    /// States as the step above reads them.
    fn shaped(&self, batch: &RecordBatch, layout: Layout) -> Result<RecordBatch> {
        let given = match layout {
            Layout::Whole => return Ok(RecordBatch::try_new(self.levels.schema.clone(), batch.columns().to_vec())?),
            Layout::Finest => &self.levels.finest_keys,
            Layout::Level(at) => &self.levels.all[at].keys,
        };
        self.levels.shaped(batch, given, &self.levels.all[self.next])
    }
}

/// The bytes of the rows of a batch, which may be a piece of a larger one.
fn bytes_of_batch(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| bytes_of(column)).sum()
}
