//! A connection whose client is known, from its first statement to its end.
//!
//! All that has arrived is worked off before the answers are sent together; large results are sent
//! as they come, and what is written is sent before a wait. While a statement waits or runs
//! elsewhere, the connection listens: a client that goes away cancels it.

use super::WireError;
use super::extended::{Described, Execution, Portal, Prepared};
use super::message::{Body, message, parameter_status};
use super::names::Names;
use super::reactor::Reactor;
use super::report::{put_error, put_notification};
use super::simple::{KnownText, is_control};
use super::wire::Wire;
use bytes::Bytes;
use parking_lot::Mutex;
use serac_sql::activity::Registered;
use serac_sql::{CancelHandle, Notifications, Reported, Rows, Session, TransactionStatus};
use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

/// Says when the server stops.
#[derive(Clone)]
pub(super) struct Stop(pub(super) watch::Receiver<bool>);

impl Stop {
    pub(super) async fn stopped(&mut self) {
        // The sender lives as long as the server.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}

/// A connection whose client is known.
pub(super) struct Connection<S> {
    pub(super) wire: Wire<S>,
    pub(super) session: Session,
    pub(super) cancel: CancelHandle,
    pub(super) statements: Names<Arc<Mutex<Prepared>>>,
    pub(super) portals: Names<Portal>,
    /// The rows of the point statement that has run last.
    pub(super) rows: Rows,
    /// After an error in the extended protocol, up to the next Sync.
    skipping: bool,
    /// The notifications of other sessions to this one.
    notifications: Notifications,
    /// Its entry in the list of connections.
    pub(super) activity: Registered,
    /// Rows of the statement that has ended last.
    pub(super) row_count: u64,
    /// The arrival of the first message of a group, or of the one behind the last statement.
    asked: Option<Instant>,
    /// The loop's count at its last turn.
    turn: u64,
    /// Statements that take at least this long are logged.
    pub(super) slow: Option<Duration>,
    /// The settings that the client knows, and the session's count of their changes at that time.
    reported: (u64, Reported),
}

/// The time that a client may take for its last message.
const FAREWELL: Duration = Duration::from_secs(1);

/// The error of a connection that was terminated by another session.
pub(super) fn terminated() -> WireError {
    WireError::fatal(sqlstate::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

/// Messages up to this length are read where connections wait.
const SHORT_MESSAGE: usize = 8 << 10;

/// The step after a message.
enum Next {
    Goes,
    Ends,
    Takes(Work),
}

/// From this number of busy connections on, each lets the others go first before it sends.
const MANY: u64 = 6;

thread_local! {
    /// The number of times that connections of this thread's loop were busy.
    static TURNS: Cell<u64> = const { Cell::new(0) };
}

/// Lets the other busy connections of the loop go first. Their output is then sent at once, and a
/// client of several connections is woken once for all: a wake-up for each costs more than a
/// statement.
async fn after_others() {
    poll_fn(|context| {
        context.waker().wake_by_ref();
        Poll::Ready(())
    })
    .await;
    futures::pending!();
}

/// Work that may take long.
enum Work {
    /// A Parse message.
    Text(Bytes),
    /// A Query message, and when it began.
    Script(Bytes, Instant),
    Description(Described),
    /// A Bind message, and its statement.
    Binding(Described, Bytes),
    Execution(Execution),
}

/// The outcome of the messages that have arrived.
enum Outcome {
    /// There are no more.
    Waits,
    /// The client, or the server, ends the connection.
    Ends,
    /// Work for another thread.
    Takes(Work),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(mut wire: Wire<S>, session: Session, activity: Registered, slow: Option<Duration>) -> Self {
        wire.notices = session.notices();
        Self {
            reported: (session.reported_version(), session.reported()),
            wire,
            cancel: session.cancel_handle(),
            notifications: session.notifications(),
            session,
            statements: Names::default(),
            portals: Names::default(),
            rows: Rows::default(),
            skipping: false,
            activity,
            row_count: 0,
            asked: None,
            turn: 0,
            slow,
        }
    }

    /// Serves the client to its end. It waits in the reactor, and does short work there; the caller
    /// does the rest.
    pub(super) async fn serve(mut self: Box<Self>, mut stop: Stop, reactor: &Reactor)
    where
        S: Send + 'static,
    {
        let mut ends = self.activity.activity().ends();
        let ended = loop {
            let ran = reactor.run(async move {
                let outcome = self.wait(&mut stop).await;
                (self, stop, outcome)
            });
            // After a panic the client cannot be told.
            let Some((connection, its_stop, outcome)) = ran.await else { return };
            (self, stop) = (connection, its_stop);
            let outcome = match outcome {
                Ok(Outcome::Takes(work)) => self.work_off(Some(work), true, &mut ends).await,
                outcome => outcome,
            };
            match outcome {
                Ok(Outcome::Waits) => {}
                Ok(Outcome::Takes(_)) => unreachable!("it is elsewhere already"),
                Ok(Outcome::Ends) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error @ WireError::Sql { .. }) = ended {
            put_error(&mut self.wire.out, &error, "");
            // A client that does not read is not waited for.
            let _ = tokio::time::timeout(FAREWELL, self.wire.flush()).await;
        }
        let _ = tokio::time::timeout(FAREWELL, self.wire.close()).await;
    }

    /// Processes messages until the client goes, the server stops, the connection is terminated, or
    /// a message needs long work.
    async fn wait(&mut self, stop: &mut Stop) -> Result<Outcome, WireError> {
        let (mut ends, mut over) = (self.activity.activity().ends(), self.activity.activity().ends());
        // These wait from one message to the next: to begin to wait costs more than to go on.
        let over = over.wait_for(|ends| *ends);
        let stopped = stop.stopped();
        let notifications = self.notifications.clone();
        let arrived = notifications.arrived();
        tokio::pin!(over, stopped, arrived);
        loop {
            match self.work_off(None, false, &mut ends).await? {
                Outcome::Waits => {}
                outcome => return Ok(outcome),
            }
            let limit = self.session.idle_limit();
            let idle = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = &mut over => return Err(terminated()),
                more = self.wire.fill() => if !more? { return Ok(Outcome::Ends) },
                () = &mut stopped => return Err(terminated()),
                () = &mut arrived, if self.may_tell() => {
                    arrived.set(notifications.arrived());
                    self.tell();
                }
                () = idle => {
                    return Err(match self.session.transaction_status() {
                        TransactionStatus::Idle => {
                            WireError::fatal(sqlstate::IDLE_SESSION_TIMEOUT, "terminating connection due to idle-session timeout")
                        }
                        _ => WireError::fatal(sqlstate::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, "terminating connection due to idle-in-transaction timeout"),
                    });
                }
            }
        }
    }

    /// Whether the client is told of notifications: outside of transactions.
    fn may_tell(&self) -> bool {
        self.notifications.listens() && self.session.transaction_status() == TransactionStatus::Idle
    }

    /// Writes the notifications that have arrived.
    fn tell(&mut self) {
        for notification in self.notifications.take() {
            put_notification(&mut self.wire.out, &notification);
        }
    }

    /// Processes the given work, and all messages that have arrived, and sends the answers.
    async fn work_off(
        &mut self,
        mut work: Option<Work>,
        is_elsewhere: bool,
        ends: &mut watch::Receiver<bool>,
    ) -> Result<Outcome, WireError> {
        loop {
            let next = match work.take() {
                Some(work) if is_elsewhere => {
                    Box::pin(self.work(work)).await?;
                    Next::Goes
                }
                Some(work) => return Ok(Outcome::Takes(work)),
                None => match self.wire.take()? {
                    Some((tag, body)) => self.handle(tag, &body).await?,
                    None => {
                        if !is_elsewhere && !self.wire.out.is_empty() && self.is_one_of_many() {
                            after_others().await;
                        }
                        self.send(ends).await?;
                        return Ok(Outcome::Waits);
                    }
                },
            };
            match next {
                Next::Goes => {}
                Next::Ends => return self.wire.flush().await.map(|()| Outcome::Ends),
                Next::Takes(taken) => work = Some(taken),
            }
            if self.activity.activity().is_terminated() && !self.has_committed_before_sync() {
                return Err(terminated());
            }
            if self.wire.is_full() {
                self.send(ends).await?;
            }
        }
    }

    /// Whether the messages before a Sync have no transaction that this would commit: what they
    /// have changed is committed, and so they are answered to their end. A transaction that waits
    /// for its Sync ends with the connection, as in PostgreSQL.
    fn has_committed_before_sync(&self) -> bool {
        self.wire.has_sync() && !self.session.is_implicit()
    }

    /// Does long work.
    async fn work(&mut self, work: Work) -> Result<(), WireError> {
        let result = match work {
            Work::Text(body) => self.parse(&body).await,
            Work::Script(body, began) => {
                let sql = Body(&body).string()?;
                let result = self.simple(sql, began).await;
                self.answer_error(result, sql).await?;
                return self.ready().await;
            }
            Work::Description(described) => self.describe_anew(described).await,
            Work::Binding(described, body) => self.bind_described(described, &body).await,
            Work::Execution(execution) => self.finish(execution, true).await.map(|_| ()),
        };
        self.skipping |= result.is_err();
        self.answer_error(result, "").await
    }

    /// Takes a turn in the loop; whether many others have had one since the last.
    fn is_one_of_many(&mut self) -> bool {
        let turn = TURNS.get() + 1;
        TURNS.set(turn);
        turn.saturating_sub(std::mem::replace(&mut self.turn, turn)) >= MANY
    }

    /// Sends the written bytes, unless the connection is terminated.
    async fn send(&mut self, ends: &mut watch::Receiver<bool>) -> Result<(), WireError> {
        tokio::select! {
            biased;
            sent = self.wire.flush() => sent,
            _ = ends.wait_for(|ends| *ends) => Err(terminated()),
        }
    }

    async fn handle(&mut self, tag: u8, body: &Bytes) -> Result<Next, WireError> {
        // Queries of the simple protocol, too, as in PostgreSQL.
        if self.skipping && !matches!(tag, b'S' | b'X') {
            return Ok(Next::Goes);
        }
        let result = match tag {
            b'Q' => {
                let sql = match Body(body).string() {
                    Ok(sql) => sql,
                    Err(error) => {
                        self.answer_error(Err(error), "").await?;
                        return self.ready().await.map(|()| Next::Goes);
                    }
                };
                // Boxed, like all rare or long work: the content of a message's future is moved for
                // each message.
                let known = match Box::pin(self.run_if_known(sql)).await {
                    Ok(KnownText::Ran) => Ok(()),
                    Ok(KnownText::No(began)) if is_control(sql) => Box::pin(self.simple(sql, began)).await,
                    Ok(KnownText::No(began)) => return Ok(Next::Takes(Work::Script(body.clone(), began))),
                    Err(error) => Err(error),
                };
                self.answer_error(known, sql).await?;
                return self.ready().await.map(|()| Next::Goes);
            }
            b'P' | b'B' | b'D' | b'E' if self.is_late() => {
                Err(WireError::error(sqlstate::QUERY_CANCELED, "canceling statement due to statement timeout"))
            }
            // A statement with a name is bound at once.
            b'P' if body.len() > SHORT_MESSAGE || body.first() != Some(&0) => {
                return Ok(Next::Takes(Work::Text(body.clone())));
            }
            b'P' => Box::pin(self.parse(body)).await,
            b'B' => match self.bind(body) {
                Ok(Some(described)) => return Ok(Next::Takes(Work::Binding(described, body.clone()))),
                bound => bound.map(|_| ()),
            },
            b'D' => match self.describe(body) {
                Ok(Some(described)) => return Ok(Next::Takes(Work::Description(described))),
                described => described.map(|_| ()),
            },
            b'E' => match self.execute_in_its_time(body) {
                Ok(Some(execution)) => match Box::pin(self.finish(execution, false)).await {
                    Ok(Some(execution)) => return Ok(Next::Takes(Work::Execution(execution))),
                    finished => finished.map(|_| ()),
                },
                executed => executed.map(|_| ()),
            },
            b'C' => self.close(body),
            b'H' => self.wire.flush().await,
            b'S' => {
                (self.skipping, self.asked) = (false, None);
                let result = self.sync().await;
                self.answer_error(result, "").await?;
                return self.ready().await.map(|()| Next::Goes);
            }
            b'X' => return Ok(Next::Ends),
            b'F' => {
                let error = WireError::error(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "function calls of the protocol are not supported",
                );
                self.answer_error(Err(error), "").await?;
                return self.ready().await.map(|()| Next::Goes);
            }
            // The rest of a COPY that has failed.
            b'd' | b'c' | b'f' => return Ok(Next::Goes),
            other => {
                let message = format!("invalid frontend message type {other}");
                return Err(WireError::fatal(sqlstate::PROTOCOL_VIOLATION, message));
            }
        };
        self.skipping |= result.is_err();
        self.answer_error(result, "").await?;
        Ok(Next::Goes)
    }

    /// Whether the client has taken longer to ask for a statement than that may take.
    fn is_late(&mut self) -> bool {
        let Some(limit) = self.session.statement_limit() else { return false };
        self.asked.get_or_insert_with(Instant::now).elapsed() > limit
    }

    /// Execute, which has as much time as any statement.
    fn execute_in_its_time(&mut self, body: &Bytes) -> Result<Option<Execution>, WireError> {
        self.asked = None;
        self.execute(body)
    }

    /// Tells the client of an error, which ends or fails its transaction; an error again if that
    /// ends the connection.
    async fn answer_error(&mut self, result: Result<(), WireError>, sql: &str) -> Result<(), WireError> {
        match result {
            // Its statement has been cancelled.
            Err(WireError::Sql { fatal: false, .. }) if self.activity.activity().is_terminated() => Err(terminated()),
            Err(WireError::Sql { mut error, fatal: false }) => {
                // The session knows of its own errors already, but not of those of the protocol.
                self.session.fail_transaction();
                self.activity.failed(self.session.transaction_status(), error.sqlstate);
                if let Err(log) = self.session.error_is_durable().await {
                    error = log;
                }
                self.wire.put_notices();
                put_error(&mut self.wire.out, &error.into(), sql);
                Ok(())
            }
            other => other,
        }
    }

    /// The client may go on. It is told so although the connection is to end: the statement has
    /// been committed, and clients take an error in place of this for its own.
    async fn ready(&mut self) -> Result<(), WireError> {
        self.activity.rests(self.session.transaction_status());
        let status = match self.session.transaction_status() {
            TransactionStatus::Idle => b'I',
            TransactionStatus::Open => b'T',
            TransactionStatus::Failed => b'E',
        };
        if status == b'I' && !self.session.is_implicit() {
            self.close_portals();
        }
        if self.may_tell() {
            self.tell();
        }
        let version = self.session.reported_version();
        if version != self.reported.0 {
            let settings = self.session.reported();
            for ((name, value), (_, known)) in settings.iter().zip(&self.reported.1) {
                if value != known {
                    parameter_status(&mut self.wire.out, name, value);
                }
            }
            self.reported = (version, settings);
        }
        message(&mut self.wire.out, b'Z', |out| out.push(status));
        Ok(())
    }
}
