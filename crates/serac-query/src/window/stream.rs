//! The work of [`WindowExec`](super::WindowExec) in a partition of the plan.
//!
//! Batches come in and are held as pieces until their rows can be computed. That is at once if all
//! functions look back only; at the next row that is no peer; when the rows near them are there; or
//! once the partition has ended and there are enough rows. Columns of the input go out as they
//! came, and are copied only to join small pieces.

use super::chunk::{Chunk, LastRow, Piece};
use super::extremes::{LastExtreme, extremes};
use super::groups::{of_partitions, partition_numbers};
use super::plan::{Computed, Function, Needs, WindowPlan};
use super::positions::{LastNth, nth_values, shifted};
use super::ranks::{LastPlace, cumulative_shares, percent_ranks, ranks, row_numbers, tiles};
use super::sums::{LastSum, counted, exact_sums, float_sums};
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use futures::StreamExt;
use serac_functions::bytes_of;
use std::collections::VecDeque;
use std::sync::Arc;

/// Batches that are copied to make one, at the most.
const JOINED: usize = 4;

/// What a function knows of the last partition, for a chunk with more of its rows.
#[derive(Default)]
struct State {
    place: LastPlace,
    sum: LastSum,
    extreme: LastExtreme,
    nth: LastNth,
}

/// Rows with the columns of window functions.
pub(super) struct Windows {
    plan: Arc<WindowPlan>,
    schema: SchemaRef,
    input: SendableRecordBatchStream,
    last_row: LastRow,
    /// Rows that have gone out, and that functions need for the next rows of their partition.
    passed: Vec<Piece>,
    held: Vec<Piece>,
    held_rows: usize,
    /// The first of the held rows that can be computed.
    complete: usize,
    /// The last of the held rows that begins a partition, or 0.
    last_start: usize,
    states: Vec<State>,
    ready: VecDeque<RecordBatch>,
    has_ended: bool,
    /// Rows of a batch.
    batch_rows: usize,
    reservation: MemoryReservation,
    metrics: BaselineMetrics,
}

impl Windows {
    pub(super) fn new(
        plan: Arc<WindowPlan>,
        schema: SchemaRef,
        input: SendableRecordBatchStream,
        (metrics, partition): (&ExecutionPlanMetricsSet, usize),
        context: &TaskContext,
    ) -> Self {
        let consumer = MemoryConsumer::new(format!("WindowExec[{partition}]"));
        Self {
            states: plan.functions.iter().map(|_| State::default()).collect(),
            plan,
            schema,
            input,
            last_row: LastRow::default(),
            passed: Vec::new(),
            held: Vec::new(),
            held_rows: 0,
            complete: 0,
            last_start: 0,
            ready: VecDeque::new(),
            has_ended: false,
            batch_rows: context.session_config().batch_size().max(1),
            reservation: consumer.register(context.memory_pool()),
            metrics: BaselineMetrics::new(metrics, partition),
        }
    }

    /// The next rows; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                self.metrics.output_rows().add(batch.num_rows());
                return Ok(Some(batch));
            }
            if self.has_ended {
                self.reservation.free();
                return Ok(None);
            }
            match self.input.next().await.transpose()? {
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => {
                    self.hold(batch)?;
                    let wanted = if self.plan.needs_partitions { self.batch_rows } else { 1 };
                    if self.complete >= wanted {
                        self.compute(self.complete).await?;
                    }
                }
                None => {
                    self.has_ended = true;
                    if self.held_rows > 0 {
                        self.compute(self.held_rows).await?;
                    }
                }
            }
        }
    }

    /// The bytes of a piece, without those of values that are columns of its batch.
    fn bytes(&self, piece: &Piece) -> usize {
        let columns = piece.batch.columns().iter().map(|column| bytes_of(column)).sum::<usize>();
        let values = self.plan.expressions.iter().zip(&piece.values).filter(|(expr, _)| !expr.is::<Column>());
        let starts = (piece.partitions.capacity() + piece.peers.capacity()) * size_of::<u32>();
        columns + values.map(|(_, values)| bytes_of(values)).sum::<usize>() + starts
    }

    fn hold(&mut self, batch: RecordBatch) -> Result<()> {
        let elapsed = self.metrics.elapsed_compute().clone();
        let timer = elapsed.timer();
        let piece = Piece::new(&self.plan, batch, &mut self.last_row)?;
        let first = self.held_rows;
        self.held_rows += piece.rows();
        // Places of rows have 32 bits.
        if u32::try_from(self.held_rows + self.plan.near.0 + 1).is_err() {
            let message = "a partition of a window function has more than 4294967295 rows";
            return Err(DataFusionError::ResourcesExhausted(message.to_owned()));
        }
        if let Some(row) = piece.partitions.last() {
            self.last_start = first + *row as usize;
        }
        let mut complete = self.held_rows;
        if self.plan.needs_all_peers {
            complete = piece.peers.last().map_or(self.complete, |row| first + *row as usize);
        }
        if self.plan.near.1 > 0 {
            complete = complete.min(self.held_rows.saturating_sub(self.plan.near.1).max(self.last_start));
        }
        self.complete = if self.plan.needs_partitions { self.last_start } else { complete };
        self.reservation.try_grow(self.bytes(&piece))?;
        self.held.push(piece);
        timer.done();
        Ok(())
    }

    /// Takes the first of the held rows.
    fn take(&mut self, rows: usize) -> Vec<Piece> {
        let mut taken = Vec::new();
        let (mut left, mut rest) = (rows, Vec::new());
        for piece in self.held.drain(..) {
            match piece.rows() {
                _ if left == 0 => rest.push(piece),
                all if all <= left => {
                    left -= all;
                    taken.push(piece);
                }
                _ => {
                    let (first, other) = piece.split(left);
                    left = 0;
                    taken.push(first);
                    rest.push(other);
                }
            }
        }
        self.held = rest;
        self.held_rows -= rows;
        self.complete = 0;
        self.last_start = self.last_start.saturating_sub(rows);
        taken
    }

    /// Keeps the last rows that have gone out.
    fn keep(&mut self, mut pieces: Vec<Piece>) {
        let mut wanted = self.plan.near.0;
        let mut kept = Vec::new();
        while wanted > 0
            && let Some(piece) = pieces.pop()
        {
            // Rows of the present partition, up to what is wanted.
            let start = piece.partitions.last().copied();
            let from = piece.rows().saturating_sub(wanted).max(start.unwrap_or(0) as usize);
            wanted = if start.is_some() { 0 } else { wanted - (piece.rows() - from) };
            kept.push(if from == 0 { piece } else { piece.split(from).1 });
        }
        kept.reverse();
        self.passed = kept;
    }

    /// Computes the first of the held rows, which become ready.
    async fn compute(&mut self, rows: usize) -> Result<()> {
        let plan = self.plan.clone();
        let elapsed = self.metrics.elapsed_compute().clone();
        let mut timer = elapsed.timer();
        let pieces = self.take(rows);
        let (passed, earlier) = (std::mem::take(&mut self.passed), plan.near.0 > 0);
        let of_values = match &pieces[..] {
            [_] => 0,
            _ => pieces.iter().flat_map(|piece| &piece.values).map(|values| bytes_of(values)).sum(),
        };
        // Bounds of frames, numbers of partitions, and for each function its results, most of them
        // of up to 16 bytes, and what it takes to find them.
        let of_rows = rows * (8 * plan.frames.len() + 8 + 32 * plan.functions.len());
        self.reservation.try_grow(of_values + of_rows)?;
        let own: Vec<&Piece> = pieces.iter().collect();
        let is_near = |computed: &Computed| matches!(computed.needs, Needs::Near { .. });
        let chunk = Chunk::new(&plan, &own, |computed| !is_near(computed))?;
        // Some functions see rows before and after as well, and keep no state.
        let mut near: Option<Chunk> = None;
        let rows_before: usize = passed.iter().map(Piece::rows).sum();
        if plan.functions.iter().any(is_near) {
            let mut all: Vec<&Piece> = passed.iter().chain(&pieces).collect();
            let mut after = 0;
            for piece in &self.held {
                if after >= plan.near.1 {
                    break;
                }
                after += piece.rows();
                all.push(piece);
            }
            near = Some(Chunk::new(&plan, &all, is_near)?);
        }
        let needs_numbers = |computed: &Computed| matches!(computed.function, Function::OfPartition { .. });
        let numbers = match plan.functions.iter().any(needs_numbers) {
            true => partition_numbers(&chunk),
            false => Vec::new(),
        };
        let mut columns = Vec::with_capacity(plan.functions.len());
        for (computed, state) in plan.functions.iter().zip(&mut self.states) {
            let column = match near.as_ref().filter(|_| is_near(computed)) {
                Some(near) => {
                    column(&plan, near, &computed.function, &numbers, &mut State::default())?.slice(rows_before, rows)
                }
                None => column(&plan, &chunk, &computed.function, &numbers, state)?,
            };
            columns.push(match column.data_type() == &computed.data_type {
                true => column,
                false => cast(&column, &computed.data_type)?,
            });
            // A statement is cancelled between two functions.
            if rows > JOINED * self.batch_rows {
                timer.done();
                tokio::task::yield_now().await;
                timer = elapsed.timer();
            }
        }
        let batches: Vec<RecordBatch> = pieces.iter().map(|piece| piece.batch.clone()).collect();
        if earlier {
            self.keep(passed.into_iter().chain(pieces).collect());
        }
        self.ready = self.batches(batches, &columns)?;
        // What is held, and what is ready: both go out before more is computed.
        let held: usize = self.passed.iter().chain(&self.held).map(|piece| self.bytes(piece)).sum();
        let ready = self.ready.iter().flat_map(RecordBatch::columns).map(|column| bytes_of(column)).sum::<usize>();
        self.reservation.resize(held + ready);
        timer.done();
        Ok(())
    }

    /// Rows with further columns.
    fn batches(&self, mut batches: Vec<RecordBatch>, columns: &[ArrayRef]) -> Result<VecDeque<RecordBatch>> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if batches.len() > 1 && rows <= JOINED * self.batch_rows {
            batches = vec![concat_batches(&self.input.schema(), &batches)?];
        }
        let mut ready = VecDeque::new();
        let mut before = 0;
        for batch in batches {
            let count = batch.num_rows().div_ceil(self.batch_rows);
            let size = batch.num_rows().div_ceil(count.max(1)).max(1);
            for from in (0..batch.num_rows()).step_by(size) {
                let rows = size.min(batch.num_rows() - from);
                let given = batch.columns().iter().map(|column| column.slice(from, rows));
                let added = columns.iter().map(|column| column.slice(before + from, rows));
                ready.push_back(RecordBatch::try_new(self.schema.clone(), given.chain(added).collect())?);
            }
            before += batch.num_rows();
        }
        Ok(ready)
    }
}

/// The values of a function.
fn column(
    plan: &WindowPlan,
    chunk: &Chunk,
    function: &Function,
    partition_numbers: &[usize],
    state: &mut State,
) -> Result<ArrayRef> {
    let numbers = |numbers: Vec<i64>| Arc::new(Int64Array::from(numbers)) as ArrayRef;
    let shares = |shares: Vec<f64>| Arc::new(Float64Array::from(shares)) as ArrayRef;
    let (place, sum) = (&mut state.place, &mut state.sum);
    Ok(match function {
        Function::RowNumber => numbers(row_numbers(chunk, place)),
        Function::Rank => numbers(ranks(chunk, place, false)),
        Function::DenseRank => numbers(ranks(chunk, place, true)),
        Function::PercentRank => shares(percent_ranks(chunk)),
        Function::CumeDist => shares(cumulative_shares(chunk)),
        Function::Ntile(count) => numbers(tiles(chunk, *count)),
        Function::Shift { value, distance, default } => shifted(chunk, &chunk.values[*value], *distance, default)?,
        Function::Nth { value, frame, nth } => {
            nth_values(chunk, &chunk.values[*value], &chunk.frames[*frame], *nth, &mut state.nth)?
        }
        Function::Count { value, frame } => {
            counted(chunk, value.map(|value| &chunk.values[value]), &chunk.frames[*frame], sum)
        }
        Function::ExactSum { value, frame, data_type } => {
            exact_sums(chunk, &chunk.values[*value], &chunk.frames[*frame], sum, data_type)?
        }
        Function::FloatSum { value, frame, averages } => {
            float_sums(chunk, &chunk.values[*value], &chunk.frames[*frame], sum, *averages)?
        }
        Function::Extreme { value, frame, is_greatest } => {
            let (values, bounds) = (&chunk.values[*value], &chunk.frames[*frame]);
            extremes(chunk, values, plan.frames[*frame], bounds, *is_greatest, &mut state.extreme)?
        }
        Function::OfPartition { aggregate, values } => {
            let values: Vec<&ArrayRef> = values.iter().map(|value| &chunk.values[*value]).collect();
            of_partitions(chunk, partition_numbers, aggregate, &values)?
        }
    })
}
