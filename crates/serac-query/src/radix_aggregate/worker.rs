//! The work of a thread: it reads the rows of a partition of the input.
//!
//! At first it groups them in a small table of its own, near its cache. Few groups stay there
//! until the rows end. If they become too many, their states go to the buckets. If rows were not
//! many times the groups, all others go to the buckets as they are: they are dealt out by their
//! hashes, and wait.
//!
//! Waiting rows are added to the tables of the buckets when they take many bytes, bucket by bucket.
//! So the table of a bucket is read into the cache once for many rows. A worker that finds a bucket
//! in the hands of another turns to the next.

use super::groups::{Bucket, Groups, RESERVED, sliced};
use super::keys::{KeyRows, MOST_TEXT_BYTES, NULL_VIEW, Packed};
use super::plan::Kind;
use super::table::{Table, Taken, Waiting};
use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{TakeOptions, take};
use datafusion::common::{DataFusionError, Result, resources_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::{Count, Time};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use serac_functions::bytes_of;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Groups of a worker's own table.
const MOST_LOCAL_GROUPS: usize = 1 << 16;
/// The bytes of their texts.
const MOST_LOCAL_BYTES: usize = 4 << 20;
/// The least rows of a group, on the average, with which the own table is worth its time.
const LEAST_ROWS_PER_GROUP: usize = 4;
/// Rows that are added at a time: memory is looked at after them. A scan's batches may be blocks.
const MOST_ROWS: usize = 8192;
/// Bytes that wait before they are added to the tables, at the least unless memory is limited, …
const LEAST_WAITING: usize = 64 << 20;
/// … and at the most.
const MOST_WAITING: usize = 1 << 30;
/// The part of all tables' bytes that may wait.
const TABLES_PER_WAITING: usize = 4;

/// The counts that EXPLAIN ANALYZE shows.
#[derive(Clone)]
pub(super) struct WorkerMetrics {
    pub(super) time: Time,
    /// Rows that were grouped in a worker's own table.
    pub(super) local_rows: Count,
    /// Rows and states that were dealt out.
    pub(super) dealt_rows: Count,
}

/// A worker.
pub(super) struct Worker<P, const TEXT: bool> {
    number: usize,
    groups: Arc<Groups<P, TEXT>>,
    /// The own table, until it is not worth it any more.
    local: Option<Table<P, TEXT>>,
    local_rows: usize,
    /// Rows and states that wait for each bucket.
    waiting: Vec<[Waiting<P>; 2]>,
    waiting_bytes: usize,
    /// The bytes that may wait if memory is limited.
    most_waiting: usize,
    reservation: MemoryReservation,
    metrics: WorkerMetrics,
    hashed: Hashed<P>,
}

/// The keys of a batch.
#[derive(Default)]
struct Hashed<P> {
    numbers: Vec<P>,
    views: Vec<u128>,
    /// DataFusion's hashes, unless they are not needed.
    full: Vec<u64>,
    /// Those within a bucket.
    hashes: Vec<u32>,
    buckets: Vec<u32>,
}

impl<P: Packed, const TEXT: bool> Worker<P, TEXT> {
    /// A worker; `memory` is that of all queries, if it is limited.
    pub(super) fn new(
        number: usize,
        groups: Arc<Groups<P, TEXT>>,
        reservation: MemoryReservation,
        memory: Option<usize>,
        metrics: WorkerMetrics,
    ) -> Result<Self> {
        let local = Some(Table::new(&groups.plan)?);
        let count = |kind| groups.plan.column_count(kind);
        let of_kind = |kind| Waiting { pieces: vec![Vec::new(); count(kind)], ..Waiting::default() };
        let waiting = groups.buckets.iter().map(|_| [of_kind(Kind::Rows), of_kind(Kind::States)]).collect();
        Ok(Self {
            number,
            groups,
            local,
            local_rows: 0,
            waiting,
            waiting_bytes: 0,
            most_waiting: memory.map_or(MOST_WAITING, |memory| memory / 32),
            reservation,
            metrics,
            hashed: Hashed::default(),
        })
    }

    /// Reads all rows. Returns what is left if memory is short.
    pub(super) async fn run(mut self, mut input: SendableRecordBatchStream) -> Result<Left<P, TEXT>> {
        while let Some(batch) = input.next().await.transpose()? {
            let mut pieces: VecDeque<RecordBatch> = sliced(&batch, MOST_ROWS).collect();
            drop(batch);
            while let Some(piece) = pieces.pop_front() {
                self.add(&piece)?;
                let tables = self.groups.bytes.load(Ordering::Relaxed);
                let most = (tables / TABLES_PER_WAITING).clamp(LEAST_WAITING, MOST_WAITING).min(self.most_waiting);
                if self.waiting_bytes > most {
                    self.merge().await?;
                }
                self.account();
                if self.groups.is_short() {
                    let schema = input.schema();
                    let unread = stream::iter(pieces.into_iter().map(Ok)).chain(input);
                    let input = Box::pin(RecordBatchStreamAdapter::new(schema, unread));
                    return Ok(Left { worker: self, input: Some(input) });
                }
            }
        }
        drop(input);
        self.deal_out_local()?;
        self.account();
        if !self.groups.is_short() {
            self.merge().await?;
        }
        Ok(Left { worker: self, input: None })
    }

    /// Reserves memory for what the worker has; notes if there is none.
    fn account(&self) {
        let bytes = self.waiting_bytes + self.local.as_ref().map_or(0, Table::size);
        if self.reservation.try_resize(RESERVED * bytes).is_err() {
            self.reservation.resize(bytes);
            self.groups.is_short.store(true, Ordering::Relaxed);
        }
    }

    /// Adds a batch.
    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let time = self.metrics.time.clone();
        let _timer = time.timer();
        let (keys, columns) = self.groups.plan.evaluate(batch)?;
        if self.local.is_none() {
            return self.deal_out(Kind::Rows, &keys, &columns, batch.num_rows());
        }
        let heaps = self.hashed.read(&self.groups, &keys, batch.num_rows(), false)?;
        let rows = self.hashed.rows(&heaps);
        if let Some(local) = &mut self.local {
            local.add(&self.groups.plan, Kind::Rows, rows, &self.hashed.hashes, &columns)?;
            self.local_rows += batch.num_rows();
            self.metrics.local_rows.add(batch.num_rows());
            if local.len() > MOST_LOCAL_GROUPS || local.heap_bytes() > MOST_LOCAL_BYTES {
                let is_worth = self.local_rows >= LEAST_ROWS_PER_GROUP * local.len();
                self.deal_out_local()?;
                if !is_worth {
                    self.local = None;
                }
            }
        }
        Ok(())
    }

    /// Deals out the states of the own table, which is empty then.
    fn deal_out_local(&mut self) -> Result<()> {
        self.local_rows = 0;
        let Some(local) = self.local.as_mut().filter(|local| local.len() > 0) else { return Ok(()) };
        let groups = local.len();
        let (keys, states) = local.take(&self.groups.plan.layout, Taken::States)?;
        self.deal_out(Kind::States, &keys, &states, groups)
    }

    /// Deals out rows or states to buckets.
    fn deal_out(&mut self, kind: Kind, keys: &[ArrayRef], columns: &[ArrayRef], count: usize) -> Result<()> {
        let heaps = self.hashed.read(&self.groups, keys, count, true)?;
        let rows = self.hashed.rows(&heaps);
        let Hashed { buckets, hashes, .. } = &self.hashed;
        self.metrics.dealt_rows.add(count);
        let mut far = 0;
        if TEXT {
            let lengths = rows.views.iter().filter(|view| **view != NULL_VIEW).map(|view| *view as u32 as usize);
            far = lengths.filter(|length| *length > 12).sum();
            if far > MOST_TEXT_BYTES {
                return resources_err!("the texts of a batch take too many bytes");
            }
        }
        let at = kind as usize;
        for (row, (bucket, hash)) in buckets.iter().zip(hashes).enumerate() {
            let waiting = &mut self.waiting[*bucket as usize][at];
            waiting.keys.push::<TEXT>(rows, row);
            waiting.hashes.push(*hash);
        }
        let row_bytes = size_of::<P>() + size_of::<u32>() + if TEXT { size_of::<u128>() } else { 0 };
        self.waiting_bytes += count * row_bytes + far;
        if columns.is_empty() {
            return Ok(());
        }
        // The rows of each bucket together.
        let mut ends = vec![0_u32; self.waiting.len()];
        buckets.iter().for_each(|bucket| ends[*bucket as usize] += 1);
        let mut before = 0;
        for end in &mut ends {
            before += std::mem::replace(end, before);
        }
        let mut order = vec![0_u32; count];
        for (row, bucket) in buckets.iter().enumerate() {
            let place = &mut ends[*bucket as usize];
            order[*place as usize] = row as u32;
            *place += 1;
        }
        let order = UInt32Array::from(order);
        for (column, array) in columns.iter().enumerate() {
            let dealt = take(array, &order, Some(TakeOptions { check_bounds: false }))?;
            self.waiting_bytes += bytes_of(&dealt);
            let mut from = 0;
            for (waiting, end) in self.waiting.iter_mut().zip(&ends) {
                let rows = *end as usize - from;
                if rows > 0 {
                    waiting[at].pieces[column].push(dealt.slice(from, rows));
                }
                from = *end as usize;
            }
        }
        Ok(())
    }

    /// Adds what waits to the tables of the buckets.
    async fn merge(&mut self) -> Result<()> {
        let count = self.waiting.len();
        // Workers begin at different buckets.
        let first = self.number * count / self.groups.plan.partitions.max(self.number + 1);
        let all = (first..count).chain(0..first);
        let mut rest: Vec<usize> =
            all.filter(|bucket| self.waiting[*bucket].iter().any(|some| !some.is_empty())).collect();
        while !rest.is_empty() {
            let mut busy = Vec::new();
            for bucket in rest {
                if !self.merge_into(bucket)? {
                    busy.push(bucket);
                }
                tokio::task::yield_now().await;
            }
            rest = busy;
        }
        self.waiting_bytes = 0;
        Ok(())
    }

    /// Adds what waits for a bucket, if no other worker has it.
    fn merge_into(&mut self, at: usize) -> Result<bool> {
        let Some(mut bucket) = self.groups.buckets[at].try_lock() else { return Ok(false) };
        let _timer = self.metrics.time.timer();
        let Bucket { table, reservation } = &mut *bucket;
        let before = table.size();
        let [rows, states] = &mut self.waiting[at];
        rows.merge(table, &self.groups.plan, Kind::Rows)?;
        states.merge(table, &self.groups.plan, Kind::States)?;
        let bytes = table.size();
        self.groups.bytes.fetch_add(bytes.saturating_sub(before), Ordering::Relaxed);
        if reservation.try_resize(RESERVED * bytes).is_err() {
            reservation.resize(bytes);
            self.groups.is_short.store(true, Ordering::Relaxed);
        }
        Ok(true)
    }
}

impl<P: Packed> Hashed<P> {
    /// Reads the keys of a batch, with the buckets if they are dealt out. Returns the buffers of
    /// texts.
    fn read<'a, const TEXT: bool>(
        &mut self,
        groups: &Groups<P, TEXT>,
        keys: &'a [ArrayRef],
        rows: usize,
        has_buckets: bool,
    ) -> Result<Vec<&'a [u8]>> {
        let plan = &groups.plan;
        plan.layout.pack(keys, rows, &mut self.numbers)?;
        if TEXT || has_buckets {
            plan.hash(keys, rows, &mut self.full)?;
        }
        if has_buckets {
            plan.buckets(&self.full, &mut self.buckets);
        }
        self.hashes.clear();
        match TEXT {
            true => self.hashes.extend(self.full.iter().map(|hash| plan.within_bucket(*hash))),
            false => self.hashes.extend(self.numbers.iter().map(|number| number.hash())),
        }
        Ok(plan.layout.texts(keys, &mut self.views))
    }

    fn rows<'a>(&'a self, heaps: &'a [&'a [u8]]) -> KeyRows<'a, P> {
        KeyRows { numbers: &self.numbers, views: &self.views, heaps }
    }
}

/// The rest of a worker that stops: nothing, or states and rows if memory is short.
pub(super) struct Left<P, const TEXT: bool> {
    worker: Worker<P, TEXT>,
    /// The rows that it has not read.
    pub(super) input: Option<SendableRecordBatchStream>,
}

impl<P: Packed, const TEXT: bool> Left<P, TEXT> {
    /// The groups so far, as states: those that wait, and the buckets whose turn it is if there
    /// are `workers`. Memory is given back as they go out.
    pub(super) fn states(self, workers: usize, batch_rows: usize) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let worker = self.worker;
        worker
            .reservation
            .resize(worker.reservation.size().min(worker.waiting_bytes + worker.local.as_ref().map_or(0, Table::size)));
        let batches = stream::try_unfold((worker, 0), move |(mut worker, step)| async move {
            let batch = worker.left(step, workers)?;
            tokio::task::yield_now().await;
            Ok::<_, DataFusionError>(batch.map(|batch| (batch, (worker, step + 1))))
        });
        let sliced =
            move |batch| stream::iter(sliced(&batch, batch_rows).map(Ok::<_, DataFusionError>).collect::<Vec<_>>());
        batches.map_ok(sliced).try_flatten()
    }
}

impl<P: Packed, const TEXT: bool> Worker<P, TEXT> {
    /// The states of a step: the own table, what waits for a bucket, or a bucket; `None` at the
    /// end.
    fn left(&mut self, step: usize, workers: usize) -> Result<Option<RecordBatch>> {
        let plan = self.groups.plan.clone();
        let count = self.waiting.len();
        let table = match step {
            0 => match self.local.take() {
                Some(local) => local,
                None => Table::new(&plan)?,
            },
            step if step <= count => {
                let mut table = Table::new(&plan)?;
                let [mut rows, mut states] = std::mem::take(&mut self.waiting[step - 1]);
                rows.merge(&mut table, &plan, Kind::Rows)?;
                states.merge(&mut table, &plan, Kind::States)?;
                table
            }
            step => {
                if step == count + 1 {
                    self.reservation.free();
                }
                let at = (step - count - 1) * workers + self.number;
                let Some(bucket) = self.groups.buckets.get(at) else { return Ok(None) };
                return Ok(Some(bucket.lock().take(&plan, Taken::States)?));
            }
        };
        let mut own = Bucket { table, reservation: self.reservation.new_empty() };
        Ok(Some(own.take(&plan, Taken::States)?))
    }
}
