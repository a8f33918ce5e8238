//! Aggregates and first rows of tables, for clients that ask for a flight of them. A task of the
//! query threads computes them, a few batches ahead of the client. A client that goes away, or
//! reads nothing for too long, ends it.

use super::FlightSql;
use super::status::status_of;
use super::stream::BATCHES_AHEAD;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::StreamExt;
use serac_client::flight::Summary;
use serac_engine::ArrowScan;
use serac_export::flight::Batches;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::Status;

/// A task that ends with whoever waits for it.
struct Awaited(JoinHandle<()>);

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl FlightSql {
    pub(super) fn summary(&self, rows: ArrowScan, summary: &Summary) -> Result<(SchemaRef, Batches), Status> {
        let (schema, batches) = self.db.summarize(rows, summary).map_err(|error| status_of(&error))?;
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let stall = self.options.stall;
        let task = self.db.runtime().spawn(async move {
            let mut batches = std::pin::pin!(batches);
            while let Some(batch) = batches.next().await {
                let next = batch.map(Some).map_err(|error| status_of(&error));
                // A client that has gone wants no more. One that stalls finds no end.
                match tokio::time::timeout(stall, sender.send(next)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return,
                }
            }
            let _ = sender.send(Ok(None)).await;
        });
        // The task runs as long as somebody asks for its batches.
        let running = Some((receiver, Awaited(task)));
        let batches = futures::stream::unfold(running, |running| async move {
            let (mut receiver, task) = running?;
            let next: Option<Result<Option<RecordBatch>, Status>> = receiver.recv().await;
            match next {
                Some(Ok(batch)) => batch.map(|batch| (Ok(batch), Some((receiver, task)))),
                Some(Err(status)) => Some((Err(status), None)),
                None => {
                    let message = "the client read nothing for too long, or the server ends";
                    Some((Err(Status::deadline_exceeded(message)), None))
                }
            }
        });
        Ok((schema, batches.boxed()))
    }
}
