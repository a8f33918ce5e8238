//! The groups of all partitions, in buckets, and their way out.

use super::keys::Packed;
use super::plan::AggregatePlan;
use super::table::{Table, Taken};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Memory is reserved for this many times the bytes that groups and rows take: for the columns that
/// are made of them, and for DataFusion's operators, if they have to take over.
pub(super) const RESERVED: usize = 2;

/// A bucket.
pub(super) struct Bucket<P, const TEXT: bool> {
    pub(super) table: Table<P, TEXT>,
    pub(super) reservation: MemoryReservation,
}

impl<P: Packed, const TEXT: bool> Bucket<P, TEXT> {
    /// The groups as a batch, and the memory given back. The table is empty then.
    pub(super) fn take(&mut self, plan: &AggregatePlan, taken: Taken) -> Result<RecordBatch> {
        let (mut columns, others) = self.table.take(&plan.layout, taken)?;
        columns.extend(others);
        self.reservation.free();
        let schema = match taken {
            Taken::States => &plan.state_schema,
            Taken::Results => &plan.schema,
        };
        Ok(RecordBatch::try_new(schema.clone(), columns)?)
    }
}

/// The groups of all partitions.
pub(super) struct Groups<P, const TEXT: bool> {
    pub(super) plan: Arc<AggregatePlan>,
    pub(super) buckets: Vec<Mutex<Bucket<P, TEXT>>>,
    /// The bytes of all tables. Relaxed, as the other: a size that is a little old does no harm.
    pub(super) bytes: AtomicUsize,
    /// Whether memory is short: all workers stop.
    pub(super) is_short: AtomicBool,
}

impl<P: Packed, const TEXT: bool> Groups<P, TEXT> {
    pub(super) fn new(plan: Arc<AggregatePlan>, reservation: &MemoryReservation) -> Result<Self> {
        let bucket = |_| -> Result<_> {
            Ok(Mutex::new(Bucket { table: Table::new(&plan)?, reservation: reservation.new_empty() }))
        };
        let buckets = (0..plan.bucket_count()).map(bucket).collect::<Result<_>>()?;
        Ok(Self { plan, buckets, bytes: AtomicUsize::new(0), is_short: AtomicBool::new(false) })
    }

    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }
}

/// A batch in pieces of some rows.
pub(super) fn sliced(batch: &RecordBatch, rows: usize) -> impl Iterator<Item = RecordBatch> + '_ {
    (0..batch.num_rows()).step_by(rows).map(move |from| batch.slice(from, rows.min(batch.num_rows() - from)))
}

/// The groups of a partition: those of its buckets.
pub(super) trait Partitions: Send + Sync {
    fn stream(
        self: Arc<Self>,
        partition: usize,
        batch_rows: usize,
        metrics: BaselineMetrics,
    ) -> SendableRecordBatchStream;
}

impl<P: Packed, const TEXT: bool> Partitions for Groups<P, TEXT> {
    fn stream(
        self: Arc<Self>,
        partition: usize,
        batch_rows: usize,
        metrics: BaselineMetrics,
    ) -> SendableRecordBatchStream {
        let schema = self.plan.schema.clone();
        let bits = self.plan.bucket_bits;
        let output = Output {
            next: partition << bits,
            end: (partition + 1) << bits,
            groups: self,
            batch_rows,
            ready: VecDeque::new(),
            metrics,
        };
        let batches = stream::try_unfold(output, |mut output| async move {
            Ok::<_, DataFusionError>(output.next()?.map(|batch| (batch, output)))
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }
}

struct Output<P, const TEXT: bool> {
    groups: Arc<Groups<P, TEXT>>,
    next: usize,
    end: usize,
    batch_rows: usize,
    ready: VecDeque<RecordBatch>,
    metrics: BaselineMetrics,
}

impl<P: Packed, const TEXT: bool> Output<P, TEXT> {
    /// The next groups: those of several buckets if they are few.
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.ready.is_empty() {
            let _timer = self.metrics.elapsed_compute().timer();
            let (mut batches, mut rows) = (Vec::new(), 0);
            while self.next < self.end && rows < self.batch_rows {
                let batch = self.groups.buckets[self.next].lock().take(&self.groups.plan, Taken::Results)?;
                self.next += 1;
                rows += batch.num_rows();
                if batch.num_rows() > 0 {
                    batches.push(batch);
                }
            }
            let batch = match batches.len() {
                0 => return Ok(None),
                1 => batches.remove(0),
                _ => concat_batches(&self.groups.plan.schema, &batches)?,
            };
            self.ready.extend(sliced(&batch, self.batch_rows));
        }
        let batch = self.ready.pop_front();
        if let Some(batch) = &batch {
            self.metrics.output_rows().add(batch.num_rows());
        }
        Ok(batch)
    }
}
