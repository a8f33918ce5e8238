//! The two directions of a connection: what has arrived, message by message, and what is to be sent.

use super::WireError;
use super::message::message_length;
use bytes::{Buf, Bytes, BytesMut};
use serac_sql::CancelHandle;
use std::future::Future;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Answers of this size are sent before there are more.
pub(super) const SEND_BYTES: usize = 64 << 10;
/// What is read ahead while a statement runs.
const READ_AHEAD: usize = 64 << 10;
/// Room for what is read at a time: a statement's messages shall come together.
const READ_BYTES: usize = 8 << 10;
/// Largest message of a client that has not said who it is.
const MAX_LOGIN_MESSAGE: usize = 8 << 10;

/// The two directions of a connection.
pub(super) struct Wire<S> {
    io: S,
    pub(super) input: BytesMut,
    pub(super) out: Vec<u8>,
    /// The client is gone.
    closed: bool,
    /// The longest message that is taken.
    pub(super) limit: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(io: S) -> Self {
        Self { io, input: BytesMut::new(), out: Vec::new(), closed: false, limit: MAX_LOGIN_MESSAGE }
    }

    pub(super) fn into_io(self) -> S {
        self.io
    }
    /// Says goodbye.
    pub(super) async fn close(&mut self) {
        let _ = self.io.shutdown().await;
    }

    /// Sends what has been written.
    pub(super) async fn flush(&mut self) -> Result<(), WireError> {
        if !self.out.is_empty() {
            let sent = self.io.write_all(&self.out).await;
            self.out.clear();
            // A large result shall not be kept in mind for ever.
            self.out.shrink_to(2 * SEND_BYTES);
            sent?;
            self.io.flush().await?;
        }
        Ok(())
    }
    /// Sends what has been written if it is much.
    pub(super) async fn send_some(&mut self) -> Result<(), WireError> {
        if self.out.len() >= SEND_BYTES { self.flush().await } else { Ok(()) }
    }
    /// Reads more; false if there is no more.
    pub(super) async fn fill(&mut self) -> Result<bool, WireError> {
        self.input.reserve(READ_BYTES);
        self.closed = self.closed || self.io.read_buf(&mut self.input).await? == 0;
        Ok(!self.closed)
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
                // So much as is there already again, not what the client promises.
                self.input.reserve((length - self.input.len()).min(self.input.len().max(4_096)));
                Ok(None)
            }
            None => Ok(None),
        }
    }
    /// The next message; none if the client has gone.
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

    /// Runs a part of a statement, and cancels it if the client goes away meanwhile.
    pub(super) async fn attend<T>(&mut self, cancel: &CancelHandle, part: impl Future<Output = T>) -> T {
        tokio::pin!(part);
        loop {
            self.input.reserve(READ_BYTES);
            tokio::select! {
                biased;
                result = &mut part => return result,
                read = self.io.read_buf(&mut self.input), if !self.closed && self.input.len() < READ_AHEAD => {
                    if !matches!(read, Ok(1..)) {
                        self.closed = true;
                        cancel.cancel();
                    }
                }
            }
        }
    }
}
