//! The rows of one partition, from one location after the other.
//!
//! The server gives the rows of a ticket every time in the same order: those of a snapshot, by
//! block and slot, and those that it makes of them, sorted. So a stream that breaks goes on
//! elsewhere with the same ticket, and drops as many rows as it has given already. A stream ends
//! when the server says so, by a status, not when the connection does.
//!
//! ```text
//! ticket ─▶ begin ──batch──▶ batch … ──status──▶ end
//!             ▲                │
//!             └─ the next location, rows given are dropped ◀── the connection breaks
//! ```

use crate::error::{is_passing, status_of};
use crate::filter::{Conditions, is_true};
use crate::remote::StreamLocation;
use crate::scan::{Partition, RemoteScanExec};
use arrow_flight::Ticket as FlightTicket;
use arrow_flight::decode::FlightRecordBatchStream;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Decimal64Type, Decimal128Type, Field, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::utils::{conjunction, split_conjunction};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use datafusion::physical_plan::filter::batch_filter;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{FutureExt, StreamExt};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tonic::Status;

/// What a stream asks for, fixed when it begins.
struct Request {
    ticket: Vec<u8>,
    /// Filters that the server does not evaluate.
    rest: Option<Arc<dyn PhysicalExpr>>,
}

/// Reads a partition.
pub(crate) struct PartitionReader {
    scan: RemoteScanExec,
    partition: Partition,
    /// The partition's number: partitions begin at different locations.
    number: usize,
    request: Option<Request>,
    stream: Option<(FlightRecordBatchStream, StreamLocation)>,
    /// Rows of the ticket that have come.
    given: usize,
    /// Rows that come once more and are dropped.
    repeated: usize,
    /// Attempts since the last new row.
    attempts: usize,
    /// Rows that may still be given.
    remaining: usize,
    baseline: BaselineMetrics,
    retries: Count,
    /// Rows that came from the server.
    received: Count,
}

impl PartitionReader {
    pub(crate) fn new(
        scan: RemoteScanExec,
        partition: Partition,
        number: usize,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Self {
        Self {
            number,
            request: None,
            stream: None,
            given: 0,
            repeated: 0,
            attempts: 0,
            // No row is in no block.
            remaining: if partition.blocks.is_empty() { 0 } else { scan.limit.unwrap_or(usize::MAX) },
            baseline: BaselineMetrics::new(metrics, number),
            retries: MetricBuilder::new(metrics).counter("retries", number),
            received: MetricBuilder::new(metrics).counter("rows_received", number),
            scan,
            partition,
        }
    }

    /// What is asked for now: the filters of joins have become known.
    fn request(&self) -> Result<Request> {
        let mut filter = Conditions::new(self.scan.filter.clone());
        let mut rest: Vec<PhysicalExprRef> = Vec::new();
        for dynamic in &self.scan.dynamic {
            let known = snapshot_physical_expr(dynamic.clone())?;
            for conjunct in split_conjunction(&known) {
                if !filter.add(conjunct, self.scan.filterable()) && !is_true(conjunct) {
                    rest.push(conjunct.clone());
                }
            }
        }
        let ticket = self.scan.ticket(&self.partition, filter.all).to_bytes();
        Ok(Request { ticket, rest: (!rest.is_empty()).then(|| conjunction(rest)) })
    }

    /// The next batch; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let snapshot = self.scan.sources[self.partition.source].snapshot.clone();
        if self.request.is_none() && self.remaining > 0 {
            snapshot.keep();
            self.request = Some(self.request()?);
        }
        while self.remaining > 0 {
            let status = match self.receive().await {
                Ok(None) if self.repeated == 0 => break,
                Ok(None) => {
                    let detail = format!("a stream has {} rows less than before", self.repeated);
                    return Err(self.scan.unexpected(&self.partition, detail).into());
                }
                Ok(Some(batch)) => match self.take(batch)? {
                    Some(batch) => return Ok(Some(batch)),
                    None => continue,
                },
                Err(status) => status,
            };
            self.attempts += 1;
            // After an error a stream is not read on.
            let broken = self.stream.take();
            if !is_passing(&status) || self.attempts >= snapshot.remote().attempts(&self.partition.places) {
                return Err(snapshot.error(status).await.into());
            }
            if let Some((_, location)) = broken {
                location.has_failed();
            }
            self.repeated = self.given;
            self.retries.add(1);
            snapshot.remote().pause(self.attempts, &self.partition.places).await;
        }
        self.stream = None;
        Ok(None)
    }

    /// A batch of the stream, which begins if there is none; `None` at its end.
    async fn receive(&mut self) -> std::result::Result<Option<RecordBatch>, Status> {
        let request = self.request.as_ref().expect("it is made first");
        if self.stream.is_none() {
            let remote = self.scan.sources[self.partition.source].snapshot.remote();
            let begun = remote.begin(self.number, &self.partition.places, |mut client| {
                let ticket = FlightTicket::new(request.ticket.clone());
                async move { client.do_get(ticket).await }
            });
            self.stream = Some(begun.await?);
        }
        let Some((stream, location)) = &mut self.stream else { unreachable!("a stream has begun") };
        // Arrow's reader panics where a message says that its buffers lie outside of it.
        match AssertUnwindSafe(stream.next()).catch_unwind().await {
            Ok(Some(Ok(batch))) => Ok(Some(batch)),
            Ok(Some(Err(error))) => Err(location.judged(status_of(error))),
            // With the status OK: an end without a status is an error.
            Ok(None) => Ok(None),
            Err(_) => Err(location.judged(Status::data_loss("a message of the stream is damaged"))),
        }
    }

    /// The rows of a batch that are new and that qualify, if there are any.
    fn take(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        let compute = self.baseline.elapsed_compute().clone();
        let _timer = compute.timer();
        let again = self.repeated.min(batch.num_rows());
        self.repeated -= again;
        let batch = batch.slice(again, batch.num_rows() - again);
        if batch.num_rows() == 0 {
            return Ok(None);
        }
        self.attempts = 0;
        self.given += batch.num_rows();
        self.received.add(batch.num_rows());
        let batch = match &self.scan.aggregated {
            Some(aggregated) => aggregated.states(&batch, &self.scan.schema),
            None => {
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = batch.columns().iter().enumerate();
                let columns = columns.map(|(at, column)| widened(column, self.scan.schema.fields().get(at)));
                RecordBatch::try_new_with_options(self.scan.schema.clone(), columns.collect(), &options)
            }
        };
        let mut batch = match batch {
            Ok(batch) => batch,
            Err(error @ ArrowError::ArithmeticOverflow(_)) => return Err(error.into()),
            Err(error) => return Err(self.scan.unexpected(&self.partition, error).into()),
        };
        if let Some(rest) = self.request.as_ref().and_then(|request| request.rest.as_ref()) {
            batch = batch_filter(&batch, rest)?;
        }
        if batch.num_rows() > self.remaining {
            batch = batch.slice(0, self.remaining);
        }
        self.remaining -= batch.num_rows();
        self.baseline.record_output(batch.num_rows());
        Ok((batch.num_rows() > 0).then_some(batch))
    }
}

/// A column as the plan has it: short decimals come with 64 bits.
fn widened(column: &ArrayRef, field: Option<&Arc<Field>>) -> ArrayRef {
    match (column.data_type(), field.map(|field| field.data_type())) {
        (DataType::Decimal64(precision, scale), Some(wanted))
            if *wanted == DataType::Decimal128(*precision, *scale) =>
        {
            let wide = column.as_primitive::<Decimal64Type>().unary::<_, Decimal128Type>(i128::from);
            Arc::new(wide.with_data_type(wanted.clone()))
        }
        _ => column.clone(),
    }
}

/// The batches that a reader gives. Nothing is sent before the first one is asked for.
pub(crate) fn batches(schema: SchemaRef, reader: PartitionReader) -> SendableRecordBatchStream {
    let batches = futures::stream::try_unfold(reader, |mut reader| async move {
        Ok(reader.next().await?.map(|batch| (batch, reader)))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}
