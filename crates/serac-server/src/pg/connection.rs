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
    idle_timeout: Option<Duration>,
}

/// What a message leads to.
enum Next {
    Goes,
    Ends,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(wire: Wire<S>, session: Session, idle_timeout: Option<Duration>) -> Self {
        Self {
            wire,
            cancel: session.cancel_handle(),
            session,
            statements: HashMap::new(),
            portals: HashMap::new(),
            rows: Rows::default(),
            skipping: false,
            implicit: false,
            idle_timeout,
        }
    }

    /// Serves the client to its end.
    pub(super) async fn serve(mut self, stop: &mut Stop) {
        if let Err(error @ WireError::Sql { .. }) = self.work(stop).await {
            put_error(&mut self.wire.out, &error, "");
            let _ = self.wire.flush().await;
        }
        self.wire.close().await;
    }

    /// Works off messages until the client goes, or the server stops.
    async fn work(&mut self, stop: &mut Stop) -> Result<(), WireError> {
        loop {
            while let Some((tag, body)) = self.wire.take()? {
                match self.handle(tag, &body).await? {
                    Next::Goes => self.wire.send_some().await?,
                    Next::Ends => return self.wire.flush().await,
                }
            }
            self.wire.flush().await?;
            let limit = self.idle_timeout.filter(|_| self.session.transaction_status() != TransactionStatus::Idle);
            let idle = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                more = self.wire.fill() => if !more? { return Ok(()) },
                () = stop.stopped() => {
                    let message = "terminating connection due to administrator command";
                    return Err(WireError::fatal("57P01", message));
                }
                () = idle => {
                    let message = "terminating connection due to idle-in-transaction timeout";
                    return Err(WireError::fatal("25P03", message));
                }
            }
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
            b'D' => self.describe(body).await,
            b'E' => self.execute(body).await,
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
                put_error(&mut self.wire.out, &error, sql);
                Ok(())
            }
            other => other,
        }
    }

    /// The client may go on.
    async fn ready(&mut self) -> Result<(), WireError> {
        let status = match self.session.transaction_status() {
            TransactionStatus::Idle => b'I',
            TransactionStatus::Open => b'T',
            TransactionStatus::Failed => b'E',
        };
        message(&mut self.wire.out, b'Z', |out| out.push(status));
        Ok(())
    }
}
