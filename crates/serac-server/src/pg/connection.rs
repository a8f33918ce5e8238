//! A connection whose client is known, from its first statement to its end.
//!
//! All that has arrived is worked off before the answers are sent, in one write; large results are sent as they come. While a statement waits or runs elsewhere,
//! the connection listens: a client that goes away cancels it.

use super::WireError;
use super::extended::{Portal, Prepared};
use super::message::{Body, message};
use super::report::put_error;
use super::wire::Wire;
use bytes::Bytes;
use parking_lot::Mutex;
use serac_sql::activity::Registered;
use serac_sql::{CancelHandle, Rows, Session, TransactionStatus};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

/// Says when the server stops.
#[derive(Clone)]
pub(super) struct Stop(pub(super) watch::Receiver<bool>);

impl Stop {
    async fn stopped(&mut self) {
        // The sender lives as long as the server.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}

/// A connection whose client is known.
pub(super) struct Connection<S> {
    pub(super) wire: Wire<S>,
    pub(super) session: Session,
    pub(super) cancel: CancelHandle,
    pub(super) statements: HashMap<String, Arc<Mutex<Prepared>>>,
    pub(super) portals: HashMap<String, Portal>,
    /// The rows of the point statement that has run last.
    pub(super) rows: Rows,
    /// After an error in the extended protocol, up to the next Sync.
    skipping: bool,
    /// The open transaction was not begun by the client: it has sent statements without a Sync between them.
    pub(super) implicit: bool,
    /// How others see it.
    pub(super) activity: Registered,
    /// Rows of the statement that has ended last.
    pub(super) row_count: u64,
    /// Statements that take so long are logged.
    pub(super) slow: Option<Duration>,
}

/// How long a client may take for the last that it is told.
const FAREWELL: Duration = Duration::from_secs(1);

/// The connection is ended by somebody else.
fn terminated() -> WireError {
    WireError::fatal("57P01", "terminating connection due to administrator command")
}

/// What a message leads to.
enum Next {
    Goes,
    Ends,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(mut wire: Wire<S>, session: Session, activity: Registered, slow: Option<Duration>) -> Self {
        wire.notices = session.notices();
        Self {
            wire,
            cancel: session.cancel_handle(),
            session,
            statements: HashMap::new(),
            portals: HashMap::new(),
            rows: Rows::default(),
            skipping: false,
            implicit: false,
            activity,
            row_count: 0,
            slow,
        }
    }

    /// Serves the client to its end.
    pub(super) async fn serve(mut self, stop: &mut Stop) {
        if let Err(error @ WireError::Sql { .. }) = self.work(stop).await {
            put_error(&mut self.wire.out, &error, "");
            // A client that does not read is not waited for.
            let _ = tokio::time::timeout(FAREWELL, self.wire.flush()).await;
        }
        let _ = tokio::time::timeout(FAREWELL, self.wire.close()).await;
    }

    /// Works off messages until the client goes, the server stops, or somebody ends the connection.
    async fn work(&mut self, stop: &mut Stop) -> Result<(), WireError> {
        let activity = self.activity.activity().clone();
        let mut ends = activity.ends();
        loop {
            while let Some((tag, body)) = self.wire.take()? {
                if let Next::Ends = self.handle(tag, &body).await? {
                    return self.wire.flush().await;
                }
                if activity.is_terminated() {
                    return Err(terminated());
                }
                if self.wire.is_full() {
                    self.send(&mut ends).await?;
                }
            }
            self.send(&mut ends).await?;
            let limit = self.session.idle_limit();
            let idle = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = ends.wait_for(|ends| *ends) => return Err(terminated()),
                more = self.wire.fill() => if !more? { return Ok(()) },
                () = stop.stopped() => return Err(terminated()),
                () = idle => {
                    return Err(match self.session.transaction_status() {
                        TransactionStatus::Idle => {
                            WireError::fatal("57P05", "terminating connection due to idle-session timeout")
                        }
                        _ => WireError::fatal("25P03", "terminating connection due to idle-in-transaction timeout"),
                    });
                }
            }
        }
    }

    /// Sends what has been written, unless somebody ends the connection.
    async fn send(&mut self, ends: &mut watch::Receiver<bool>) -> Result<(), WireError> {
        tokio::select! {
            biased;
            sent = self.wire.flush() => sent,
            _ = ends.wait_for(|ends| *ends) => Err(terminated()),
        }
    }

    async fn handle(&mut self, tag: u8, body: &Bytes) -> Result<Next, WireError> {
        let extended = matches!(tag, b'P' | b'B' | b'D' | b'E' | b'C' | b'H');
        if self.skipping && extended {
            return Ok(Next::Goes);
        }
        let result = match tag {
            b'Q' => {
                let sql = Body(body).string()?;
                // In a box, as all that is seldom or takes long: what a message's future holds is moved for each message.
                let result = Box::pin(self.simple(sql)).await;
                self.answer(result, sql)?;
                return self.ready().await.map(|()| Next::Goes);
            }
            b'P' => self.parse(body),
            b'B' => self.bind(body),
            b'D' => match self.describe(body) {
                Ok(Some(described)) => Box::pin(self.describe_anew(described)).await,
                described => described.map(|_| ()),
            },
            b'E' => match self.execute(body) {
                Ok(Some(execution)) => Box::pin(self.finish(execution)).await,
                executed => executed.map(|_| ()),
            },
            b'C' => self.close(body),
            b'H' => self.wire.flush().await,
            b'S' => {
                self.skipping = false;
                let result = self.sync().await;
                self.answer(result, "")?;
                return self.ready().await.map(|()| Next::Goes);
            }
            b'X' => return Ok(Next::Ends),
            // The rest of a COPY that has failed.
            b'd' | b'c' | b'f' => return Ok(Next::Goes),
            other => {
                let message = format!("invalid frontend message type {other}");
                return Err(WireError::fatal("08P01", message));
            }
        };
        self.skipping |= result.is_err();
        self.answer(result, "")?;
        Ok(Next::Goes)
    }

    /// Tells the client of an error; an error again if that ends the connection.
    fn answer(&mut self, result: Result<(), WireError>, sql: &str) -> Result<(), WireError> {
        match result {
            Err(error @ WireError::Sql { fatal: false, .. }) => {
                self.wire.put_notices();
                put_error(&mut self.wire.out, &error, sql);
                Ok(())
            }
            other => other,
        }
    }

    /// The client may go on.
    async fn ready(&mut self) -> Result<(), WireError> {
        self.activity.rests(self.session.transaction_status());
        let status = match self.session.transaction_status() {
            TransactionStatus::Idle => b'I',
            TransactionStatus::Open => b'T',
            TransactionStatus::Failed => b'E',
        };
        message(&mut self.wire.out, b'Z', |out| out.push(status));
        Ok(())
    }
}
