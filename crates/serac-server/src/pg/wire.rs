//! The two directions of a connection: the received messages, and the bytes to send.

use super::WireError;
use super::message::{command_complete, message_length};
use super::report::put_notice;
use bytes::{Buf, Bytes, BytesMut};
use serac_sql::activity::{Activity, Wait};
use serac_sql::{CancelHandle, Notices};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Answers of this size are sent before there are more.
pub(super) const SEND_BYTES: usize = 64 << 10;
/// The time that a statement may take if its client sends no more.
const LAST_WORD: Duration = Duration::from_secs(1);
/// Bytes that are read ahead while a statement runs.
const READ_AHEAD: usize = 64 << 10;
/// Room for a read: a statement's messages should come together.
const READ_BYTES: usize = 8 << 10;
/// Largest message of a client that is not identified yet.
const MAX_LOGIN_MESSAGE: usize = 8 << 10;

/// The two directions of a connection.
pub(super) struct Wire<S> {
    io: S,
    pub(super) input: BytesMut,
    pub(super) out: Vec<u8>,
    /// The part of `out` that is sent.
    sent: usize,
    /// The client is gone.
    closed: bool,
    /// The longest message that is taken.
    limit: usize,
    /// Counts bytes and waits, once the activity is known.
    activity: Option<Arc<Activity>>,
    /// The notices of the session's statements.
    pub(super) notices: Notices,
    /// The client's address.
    pub(super) address: Option<SocketAddr>,
}

/// Writes the bytes after `sent`.
async fn write_out<S: AsyncWrite + Unpin>(io: &mut S, out: &[u8], sent: &mut usize) -> io::Result<()> {
    while *sent < out.len() {
        match io.write(&out[*sent..]).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => *sent += count,
        }
    }
    io.flush().await
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(io: S, address: Option<SocketAddr>) -> Self {
        let (input, out) = (BytesMut::new(), Vec::new());
        Self {
            io,
            input,
            out,
            sent: 0,
            closed: false,
            limit: MAX_LOGIN_MESSAGE,
            activity: None,
            notices: Notices::default(),
            address,
        }
    }

    pub(super) fn into_io(self) -> S {
        self.io
    }

    /// The client is known: its messages may be long from now on.
    pub(super) fn admit(&mut self, limit: usize, activity: Arc<Activity>) {
        self.limit = limit;
        self.activity = Some(activity);
    }

    /// Says goodbye.
    pub(super) async fn close(&mut self) {
        let _ = self.io.shutdown().await;
    }

    /// Writes a statement's notices, before its result or error.
    pub(super) fn put_notices(&mut self) {
        for notice in self.notices.take() {
            put_notice(&mut self.out, &notice);
        }
    }

    /// Writes the end of a statement.
    pub(super) fn complete(&mut self, tag: &str) {
        self.put_notices();
        command_complete(&mut self.out, tag);
    }

    /// Sends the written bytes. A cancelled call is continued by the next one.
    pub(super) async fn flush(&mut self) -> Result<(), WireError> {
        if self.out.is_empty() {
            return Ok(());
        }
        let Self { io, out, sent, activity, .. } = self;
        let result = {
            let write = write_out(io, out, sent);
            tokio::pin!(write);
            match futures::poll!(write.as_mut()) {
                Poll::Ready(result) => result,
                Poll::Pending => {
                    // The client does not read.
                    if let Some(activity) = activity {
                        activity.waits(Wait::ClientWrite);
                    }
                    let result = write.await;
                    if let Some(activity) = activity {
                        activity.waits(Wait::Nothing);
                    }
                    result
                }
            }
        };
        if let Some(activity) = activity {
            activity.sent(out.len());
        }
        (self.sent, self.closed) = (0, self.closed || result.is_err());
        self.out.clear();
        // The memory of a large result is not kept for ever.
        self.out.shrink_to(2 * SEND_BYTES);
        Ok(result?)
    }

    /// Whether the written bytes are so many that they are to be sent.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= SEND_BYTES
    }

    /// Sends the written bytes if they are many.
    pub(super) async fn send_some(&mut self) -> Result<(), WireError> {
        if self.is_full() { self.flush().await } else { Ok(()) }
    }

    /// Reads more; false if there is no more.
    pub(super) async fn fill(&mut self) -> Result<bool, WireError> {
        self.input.reserve(READ_BYTES);
        if !self.closed {
            let count = self.io.read_buf(&mut self.input).await?;
            self.received(count);
            self.closed = count == 0;
        }
        Ok(!self.closed)
    }

    fn received(&self, bytes: usize) {
        if let Some(activity) = &self.activity {
            activity.received(bytes);
        }
    }

    /// Whether the next message is a Sync that has arrived whole.
    pub(super) fn has_sync(&self) -> bool {
        self.input.starts_with(b"S\0\0\0\x04")
    }

    /// A message that has arrived.
    pub(super) fn take(&mut self) -> Result<Option<(u8, Bytes)>, WireError> {
        match message_length(&self.input, self.limit)? {
            Some(length) if self.input.len() >= length => {
                let mut message = self.input.split_to(length).freeze();
                let tag = message[0];
                message.advance(5);
                Ok(Some((tag, message)))
            }
            Some(length) => {
                // At most doubles the buffer: the length is only the client's claim.
                self.input.reserve((length - self.input.len()).min(self.input.len().max(4_096)));
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// The next message; `None` if the client has gone.
    pub(super) async fn next(&mut self) -> Result<Option<(u8, Bytes)>, WireError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            self.flush().await?;
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Runs a part of a statement, and cancels it if the client goes away meanwhile. A client that
    /// has stopped sending may still read: a statement that takes no longer than [`LAST_WORD`] is
    /// answered.
    pub(super) async fn attend<T>(&mut self, cancel: &CancelHandle, part: impl Future<Output = T>) -> T {
        tokio::pin!(part);
        if let Poll::Ready(result) = futures::poll!(part.as_mut()) {
            return result;
        }
        // It listens from now on; an earlier cancellation is not lost.
        if self.activity.as_ref().is_some_and(|activity| activity.take_cancelled()) {
            cancel.cancel();
        }
        while !self.closed {
            self.input.reserve(READ_BYTES);
            tokio::select! {
                biased;
                result = &mut part => return result,
                read = self.io.read_buf(&mut self.input), if self.input.len() < READ_AHEAD => {
                    match read {
                        Ok(count @ 1..) => self.received(count),
                        Ok(0) => self.closed = true,
                        Err(_) => {
                            self.closed = true;
                            cancel.cancel();
                        }
                    }
                }
            }
        }
        match tokio::time::timeout(LAST_WORD, part.as_mut()).await {
            Ok(result) => result,
            Err(_) => {
                cancel.cancel();
                part.await
            }
        }
    }
}
