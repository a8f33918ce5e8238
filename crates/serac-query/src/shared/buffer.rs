//! The rows of a shared query while its statement runs.
//!
//! Batches are dealt out to lanes, of which each partition of a reader reads one from its
//! beginning. A lane keeps batches in memory. Where all of them together would take more than half
//! of what other operators leave free, the batches of all lanes go to files, one for each lane. So
//! a lane has rows in files, and behind them rows in memory. A reader's place is the number of a
//! row, which stays the same when that row goes to a file.

use datafusion::arrow::array::RecordBatch;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SpillFile;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::physical_plan::spill::SpillManager;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Bytes that are kept in memory in any case, so that files have more than a few rows.
const LEAST_BYTES: usize = 1 << 20;

/// Rows of a lane in a file.
struct SpilledRows {
    first: usize,
    rows: usize,
    file: Arc<dyn SpillFile>,
}

#[derive(Default)]
struct Lane {
    spilled: Vec<SpilledRows>,
    /// The number of each batch's first row.
    kept: Vec<(usize, RecordBatch)>,
    rows: usize,
}

struct State {
    lanes: Vec<Lane>,
    next_lane: usize,
    /// Tasks that may still add rows.
    producers: usize,
    error: Option<Arc<DataFusionError>>,
    counter: RecordBatchMemoryCounter,
    memory: MemoryReservation,
    waiting: Vec<Waker>,
}

/// The next rows of a lane.
pub(super) enum Next {
    Batch(RecordBatch),
    /// A file with the row in it, and the number of the file's first row.
    File(Arc<dyn SpillFile>, usize),
    End,
}

/// The rows of a shared query, in memory and in files.
pub(super) struct Buffer {
    state: Mutex<State>,
    pool: Arc<dyn MemoryPool>,
    pub(super) files: SpillManager,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Buffer")
    }
}

impl Buffer {
    /// An empty one, to which as many tasks add rows.
    pub(super) fn new(
        name: &str,
        lanes: usize,
        producers: usize,
        files: SpillManager,
        pool: &Arc<dyn MemoryPool>,
    ) -> Self {
        let memory = MemoryConsumer::new(format!("the query \"{name}\" of WITH")).with_can_spill(true).register(pool);
        let state = State {
            lanes: std::iter::repeat_with(Lane::default).take(lanes).collect(),
            next_lane: 0,
            producers,
            error: None,
            counter: RecordBatchMemoryCounter::new(),
            memory,
            waiting: Vec::new(),
        };
        Self { state: Mutex::new(state), pool: pool.clone(), files }
    }

    /// Adds rows.
    ///
    /// # Errors
    /// Those of files, and those of other tasks of the query.
    pub(super) fn push(&self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let mut state = self.state.lock();
        if let Some(error) = &state.error {
            return Err(DataFusionError::Shared(error.clone()));
        }
        let before = state.counter.memory_usage();
        let mut bytes = state.counter.count_batch(&batch);
        if !self.try_grow(&state.memory, bytes) {
            if before >= LEAST_BYTES {
                self.spill(&mut state)?;
                bytes = state.counter.count_batch(&batch);
            }
            state.memory.grow(bytes);
        }
        let number = state.next_lane;
        state.next_lane = (number + 1) % state.lanes.len();
        let lane = &mut state.lanes[number];
        let first = lane.rows;
        lane.rows += batch.num_rows();
        lane.kept.push((first, batch));
        wake(&mut state);
        Ok(())
    }

    /// Whether there is memory for more. Half of it is left to other operators.
    fn try_grow(&self, memory: &MemoryReservation, bytes: usize) -> bool {
        if let MemoryLimit::Finite(limit) = self.pool.memory_limit() {
            let own = memory.size();
            let free = limit.saturating_sub(self.pool.reserved().saturating_sub(own));
            if own.saturating_add(bytes) > free / 2 {
                return false;
            }
        }
        memory.try_grow(bytes).is_ok()
    }

    /// Writes all rows that are in memory to files.
    fn spill(&self, state: &mut State) -> Result<()> {
        for lane in &mut state.lanes {
            let Some((first, _)) = lane.kept.first() else { continue };
            let (first, rows) = (*first, lane.rows - first);
            let mut file = self.files.create_in_progress_file("rows of WITH")?;
            for (_, batch) in &lane.kept {
                file.append_batch(batch)?;
            }
            if let Some(file) = file.finish()? {
                lane.spilled.push(SpilledRows { first, rows, file });
            }
            lane.kept.clear();
        }
        state.memory.free();
        state.counter = RecordBatchMemoryCounter::new();
        Ok(())
    }

    /// Notes that a task has added its last row.
    pub(super) fn finish(&self) {
        let mut state = self.state.lock();
        state.producers = state.producers.saturating_sub(1);
        wake(&mut state);
    }

    /// Ends the query by an error, which all readers get.
    pub(super) fn fail(&self, error: DataFusionError) {
        let mut state = self.state.lock();
        state.error.get_or_insert_with(|| Arc::new(error));
        wake(&mut state);
    }

    /// The rows of a lane from this row on.
    pub(super) fn poll_next(&self, lane: usize, row: usize, context: &mut Context<'_>) -> Poll<Result<Next>> {
        let mut state = self.state.lock();
        let own = &state.lanes[lane];
        if row < own.rows {
            let at = own.spilled.partition_point(|part| part.first + part.rows <= row);
            if let Some(part) = own.spilled.get(at) {
                return Poll::Ready(Ok(Next::File(part.file.clone(), part.first)));
            }
            let at = own.kept.partition_point(|(first, batch)| first + batch.num_rows() <= row);
            if let Some((first, batch)) = own.kept.get(at) {
                let skipped = row - first;
                return Poll::Ready(Ok(Next::Batch(batch.slice(skipped, batch.num_rows() - skipped))));
            }
        }
        if let Some(error) = &state.error {
            return Poll::Ready(Err(DataFusionError::Shared(error.clone())));
        }
        if state.producers == 0 {
            return Poll::Ready(Ok(Next::End));
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

fn wake(state: &mut State) {
    state.waiting.drain(..).for_each(Waker::wake);
}
