//! Rows divided by a hash of their join keys, in files.

use super::BUCKETS;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::interleave_record_batch;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::common::{NullEquality, Result};
use datafusion::execution::SpillFile;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::spill::SpillManager;
use std::sync::Arc;

/// Bytes of rows that are divided at a time.
const MOST_BYTES: usize = 8 << 20;
/// Rows of a batch in a file, at the most.
const BATCH_ROWS: usize = 8192;
/// The hash of the first division; those of DataFusion's join and of its partitions have others.
const FIRST_SEED: u64 = 0x5e7a_c0de;

/// A bucket's rows.
#[derive(Clone, Default)]
pub(super) struct BucketFile {
    pub(super) parts: Vec<Arc<dyn SpillFile>>,
    pub(super) rows: usize,
}

/// The rows of a side, or of a partition of it.
#[derive(Clone, Default)]
pub(super) struct Buckets {
    /// The file of each bucket; the list is empty if there are no rows.
    files: Vec<BucketFile>,
}

impl Buckets {
    pub(super) fn of(&self, number: usize) -> BucketFile {
        self.files.get(number).cloned().unwrap_or_default()
    }

    pub(super) fn rows(&self) -> usize {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// Adds the rows of another partition.
    pub(super) fn append(&mut self, other: Self) {
        if self.files.is_empty() {
            *self = other;
            return;
        }
        for (file, other) in self.files.iter_mut().zip(other.files) {
            file.parts.extend(other.parts);
            file.rows += other.rows;
        }
    }
}

/// A file that is written: appends rows, or ends for none. DataFusion does not name its type.
type InProgressFile = Box<dyn FnMut(Option<&RecordBatch>) -> Result<Option<Arc<dyn SpillFile>>> + Send>;

fn begun(manager: &SpillManager) -> Result<InProgressFile> {
    let mut file = manager.create_in_progress_file("a join's rows")?;
    Ok(Box::new(move |rows| match rows {
        Some(rows) => file.append_batch(rows).map(|_| None),
        None => file.finish(),
    }))
}

/// Divides rows.
pub(super) struct BucketWriter {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Whether rows with a NULL among their keys have no partner, so that any bucket will do.
    nulls_are_alone: bool,
    state: RandomState,
    manager: SpillManager,
    memory: MemoryReservation,
    counter: RecordBatchMemoryCounter,
    /// Rows that are not in files yet.
    batches: Vec<RecordBatch>,
    /// The places of each bucket's rows in `batches`.
    places: Vec<Vec<(usize, usize)>>,
    files: Vec<Option<InProgressFile>>,
    rows: Vec<usize>,
    hashes: Vec<u64>,
}

impl BucketWriter {
    /// Divides by `keys`. `divisions`: how often that has been done with these rows.
    pub(super) fn new(
        keys: Vec<Arc<dyn PhysicalExpr>>,
        nulls: NullEquality,
        divisions: u32,
        manager: SpillManager,
        pool: &Arc<dyn MemoryPool>,
    ) -> Self {
        Self {
            keys,
            nulls_are_alone: nulls == NullEquality::NullEqualsNothing,
            state: RandomState::with_seed(FIRST_SEED + u64::from(divisions)),
            manager,
            memory: MemoryConsumer::new("rows of a join on their way to files").register(pool),
            counter: RecordBatchMemoryCounter::new(),
            batches: Vec::new(),
            places: vec![Vec::new(); BUCKETS],
            files: std::iter::repeat_with(|| None).take(BUCKETS).collect(),
            rows: vec![0; BUCKETS],
            hashes: Vec::new(),
        }
    }

    /// Adds rows; counts their memory.
    pub(super) async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let before = self.counter.memory_usage();
        let mut bytes = self.counter.count_batch(&batch);
        if self.memory.try_grow(bytes).is_err() {
            if before > 0 {
                self.write().await?;
                bytes = self.counter.count_batch(&batch);
            }
            // One batch is there in any case.
            self.memory.grow(bytes);
        }
        self.add(batch).await
    }

    /// Adds rows whose memory is counted elsewhere.
    pub(super) async fn push_counted(&mut self, batch: RecordBatch) -> Result<()> {
        self.counter.count_batch(&batch);
        self.add(batch).await
    }

    async fn add(&mut self, batch: RecordBatch) -> Result<()> {
        let rows = batch.num_rows();
        let keys = self.keys.iter().map(|key| key.evaluate(&batch)?.into_array(rows));
        let keys = keys.collect::<Result<Vec<ArrayRef>>>()?;
        self.hashes.clear();
        self.hashes.resize(rows, 0);
        create_hashes(&keys, &self.state, &mut self.hashes)?;
        let alone = match self.nulls_are_alone {
            true => {
                keys.iter().fold(None, |nulls, key| NullBuffer::union(nulls.as_ref(), key.logical_nulls().as_ref()))
            }
            false => None,
        };
        let number = self.batches.len();
        for (row, hash) in self.hashes.iter().enumerate() {
            let bucket = match &alone {
                Some(nulls) if nulls.is_null(row) => (number + row) % BUCKETS,
                // The highest bits of the product depend on all bits.
                _ => (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BUCKETS.ilog2())) as usize,
            };
            self.places[bucket].push((number, row));
            self.rows[bucket] += 1;
        }
        self.batches.push(batch);
        if self.counter.memory_usage() >= MOST_BYTES { self.write().await } else { Ok(()) }
    }

    /// Writes the rows that are not in files yet.
    pub(super) async fn write(&mut self) -> Result<()> {
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        for (places, file) in self.places.iter_mut().zip(&mut self.files) {
            for places in places.chunks(BATCH_ROWS) {
                let file = match &mut *file {
                    Some(file) => file,
                    file => file.insert(begun(&self.manager)?),
                };
                file(Some(&interleave_record_batch(&batches, places)?))?;
            }
            places.clear();
        }
        self.batches.clear();
        self.memory.free();
        self.counter = RecordBatchMemoryCounter::new();
        // A statement may be cancelled here.
        tokio::task::yield_now().await;
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<Buckets> {
        self.write().await?;
        let file = |(file, rows): (Option<InProgressFile>, usize)| -> Result<BucketFile> {
            let part = file.map(|mut file| file(None)).transpose()?.flatten();
            Ok(BucketFile { parts: part.into_iter().collect(), rows })
        };
        let files = self.files.into_iter().zip(self.rows).map(file).collect::<Result<_>>()?;
        Ok(Buckets { files })
    }
}
