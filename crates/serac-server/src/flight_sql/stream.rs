//! Results as they are read. A task runs the statement and hands over one batch after the other, a
//! few ahead of the client.
//!
//! ```text
//! task, with the session: rows ──▶ ahead ──channel of few──▶ the answer's body ──HTTP/2──▶ client
//! ```
//! A client that reads slowly so keeps back the query itself. If another call waits for the session
//! meanwhile, the rest is computed into `ahead`, up to [`AHEAD_BYTES`], and the session is given
//! back. A client that goes away, or stalls for too long, ends the statement.

use super::parameters::Parameters;
use super::session_lease::{LeasedSession, SessionLease};
use super::status::{error, status_of};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use parking_lot::Mutex;
use serac_engine::DecimalForm;
use serac_export::flight::Batches;
use serac_sql::{Parsed, Prepared, RowStream, Session, SqlError, StatementResult, StatementStream};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::coop::consume_budget;
use tonic::Status;

/// Batches that are computed while the client takes those before: they go in one message if they
/// are small.
pub(super) const BATCHES_AHEAD: usize = 4;
/// Bytes that are computed ahead of a client while another call waits for the session.
const AHEAD_BYTES: usize = 256 << 20;

/// The work of a task.
pub(super) enum Work {
    Statement(Box<Parsed>),
    /// A prepared statement, once for each row of parameters.
    Prepared(Prepared, Arc<Parameters>),
}

/// The cancellation signals of running statements, by the marks of their tickets.
pub(super) type Running = Arc<Mutex<HashMap<Vec<u8>, Arc<Notify>>>>;

/// A statement that can be cancelled by the mark of its ticket. A cancellation that comes before
/// the statement begins is kept.
pub(super) struct Cancellable {
    running: Running,
    mark: Vec<u8>,
    cancelled: Arc<Notify>,
}

impl Cancellable {
    pub(super) fn new(running: &Running, mark: &[u8]) -> Self {
        let cancelled = Arc::new(Notify::new());
        running.lock().insert(mark.to_vec(), cancelled.clone());
        Self { running: running.clone(), mark: mark.to_vec(), cancelled }
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        self.running.lock().remove(&self.mark);
    }
}

/// The sink of the rows.
struct Outlet {
    seat: Arc<SessionLease>,
    schema: Option<SchemaRef>,
    begun: Option<oneshot::Sender<SchemaRef>>,
    sender: mpsc::Sender<RecordBatch>,
    stall: Duration,
    ahead: VecDeque<RecordBatch>,
    ahead_bytes: usize,
    /// Whether the rows are not wanted any more.
    is_cancelled: Arc<AtomicBool>,
}

/// The reason why no more rows are sent.
enum End {
    /// The client has gone.
    Gone,
    Failed(Status),
}

impl From<SqlError> for End {
    fn from(error: SqlError) -> Self {
        Self::Failed(status_of(&error))
    }
}

/// The error for rows of parameters whose results cannot be in one stream.
pub(super) const DIFFERENT_TYPES: &str = "the rows of parameters have different types, and so have their results";

pub(super) fn types_of(schema: &SchemaRef) -> impl Iterator<Item = &DataType> {
    schema.fields().iter().map(|field| field.data_type())
}

impl Outlet {
    fn begin(&mut self, schema: &SchemaRef) -> Result<(), End> {
        match &self.schema {
            None => {
                self.schema = Some(schema.clone());
                let begun = self.begun.take().expect("it has not begun");
                begun.send(schema.clone()).map_err(|_| End::Gone)
            }
            // Their names may differ: those of the first hold.
            Some(first) if types_of(first).eq(types_of(schema)) => Ok(()),
            Some(_) => Err(End::Failed(error(sqlstate::DATATYPE_MISMATCH, DIFFERENT_TYPES))),
        }
    }

    fn push(&mut self, batch: RecordBatch) {
        self.ahead_bytes += batch.get_array_memory_size();
        self.ahead.push_back(batch);
    }

    /// Hands over the ready batches. It ends early if another call waits for the session and there
    /// is room for more.
    async fn hand_over(&mut self, hurries: bool) -> Result<(), End> {
        while let Some(batch) = self.ahead.front() {
            let bytes = batch.get_array_memory_size();
            tokio::select! {
                biased;
                permit = tokio::time::timeout(self.stall, self.sender.reserve()) => match permit {
                    Ok(Ok(permit)) => {
                        self.ahead_bytes -= bytes;
                        permit.send(self.ahead.pop_front().expect("there is one"));
                    }
                    Ok(Err(_)) => return Err(End::Gone),
                    Err(_) => {
                        let message = "the client read nothing for too long: the result was given up";
                        return Err(End::Failed(Status::deadline_exceeded(message)));
                    }
                },
                () = self.seat.wanted(), if hurries && self.ahead_bytes < AHEAD_BYTES => return Ok(()),
            }
        }
        Ok(())
    }

    async fn send_rows(&mut self, mut rows: RowStream<'_>) -> Result<(), End> {
        self.begin(rows.schema())?;
        loop {
            let next = tokio::select! {
                biased;
                next = rows.next() => next?,
                () = self.sender.closed() => return Err(End::Gone),
            };
            let Some(batch) = next else { return Ok(()) };
            self.push(batch);
            self.hand_over(true).await?;
        }
    }

    fn send_result(&mut self, result: StatementResult) -> Result<(), End> {
        match result {
            StatementResult::Rows { schema, batches, .. } => {
                self.begin(&schema)?;
                batches.into_iter().for_each(|batch| self.push(batch));
                Ok(())
            }
            StatementResult::Command { .. } => {
                Err(End::Failed(error(sqlstate::WRONG_OBJECT_TYPE, "the statement gives no rows")))
            }
        }
    }

    /// A part of the statement that must not be left alone: it is cancelled if the client goes.
    async fn attend<T>(&self, part: impl Future<Output = T>) -> T {
        tokio::pin!(part);
        tokio::select! {
            biased;
            result = &mut part => return result,
            () = self.sender.closed() => self.seat.cancel.cancel(),
        }
        part.await
    }

    async fn run(&mut self, session: &mut Session, work: Work, decimals: DecimalForm) -> Result<(), End> {
        // Several rows of parameters might be planned differently: the form of all must be the
        // same.
        let are_several = matches!(&work, Work::Prepared(_, parameters) if parameters.len() > 1);
        session.set_next_decimals(if are_several { DecimalForm::default() } else { decimals });
        match work {
            Work::Statement(statement) => match self.attend(session.stream_statement(*statement)).await? {
                StatementStream::Rows(rows) => self.send_rows(rows).await,
                StatementStream::Command { .. } => {
                    Err(End::Failed(error(sqlstate::WRONG_OBJECT_TYPE, "the statement gives no rows")))
                }
            },
            Work::Prepared(mut prepared, parameters) => {
                for row in parameters.rows() {
                    // Between two executions no statement runs that could be cancelled, and an
                    // execution may yield to no other task.
                    consume_budget().await;
                    // Relaxed: a late read executes once more. Pairs with the store in `rows`.
                    if self.is_cancelled.load(Ordering::Relaxed) {
                        return Err(End::Failed(error(
                            sqlstate::QUERY_CANCELED,
                            "canceling statement due to user request",
                        )));
                    }
                    if self.sender.is_closed() {
                        return Err(End::Gone);
                    }
                    let parameters = row?;
                    if prepared.is_point() {
                        let result = self.attend(session.execute_prepared(&mut prepared, &parameters)).await?;
                        self.send_result(result)?;
                        self.hand_over(true).await?;
                        continue;
                    }
                    match self.attend(session.stream_prepared(&mut prepared, &parameters)).await? {
                        StatementStream::Rows(rows) => self.send_rows(rows).await?,
                        StatementStream::Command { .. } => {
                            return Err(End::Failed(error(sqlstate::WRONG_OBJECT_TYPE, "the statement gives no rows")));
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

/// Begins to run a statement with rows.
pub(super) async fn rows(
    seat: Arc<SessionLease>,
    mut session: LeasedSession,
    work: Work,
    decimals: DecimalForm,
    stall: Duration,
    cancellable: Option<Cancellable>,
) -> Result<(SchemaRef, Batches), Status> {
    let (begun, has_begun) = oneshot::channel();
    let (sender, mut receiver) = mpsc::channel(BATCHES_AHEAD);
    let outcome = Arc::new(Mutex::new(None));
    let failed = outcome.clone();
    tokio::spawn(async move {
        let cancel = seat.cancel.clone();
        let (ahead, is_cancelled) = (VecDeque::new(), Arc::<AtomicBool>::default());
        let mut outlet = Outlet {
            seat,
            schema: None,
            begun: Some(begun),
            sender,
            stall,
            ahead,
            ahead_bytes: 0,
            is_cancelled: is_cancelled.clone(),
        };
        let cancelled = async {
            match &cancellable {
                Some(cancellable) => cancellable.cancelled.notified().await,
                None => std::future::pending().await,
            }
        };
        let mut result = {
            let run = outlet.run(&mut session, work, decimals);
            tokio::pin!(run);
            tokio::select! {
                // First: work that has not begun cannot be cancelled.
                biased;
                result = &mut run => result,
                () = cancelled => {
                    // Relaxed: pairs with the load between two executions.
                    is_cancelled.store(true, Ordering::Relaxed);
                    cancel.cancel();
                    run.await
                }
            }
        };
        drop(session);
        if result.is_ok() {
            result = outlet.hand_over(false).await;
        }
        if let Err(End::Failed(status)) = result {
            *failed.lock() = Some(status);
        }
        // The channel ends here; the reason is known before.
    });
    let Ok(schema) = has_begun.await else {
        let status = outcome.lock().take();
        return Err(
            status.unwrap_or_else(|| error(sqlstate::INTERNAL_ERROR, "the statement has ended without a result"))
        );
    };
    let batches = futures::stream::poll_fn(move |cx| {
        receiver.poll_recv(cx).map(|batch| match batch {
            Some(batch) => Some(Ok(batch)),
            None => outcome.lock().take().map(Err),
        })
    });
    Ok((schema, Box::pin(batches)))
}
