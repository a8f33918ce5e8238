//! The answer to a DoGet: the body of an HTTP/2 response that reads a block, or asks for a batch, when the client has room for it.
//!
//! Nothing is read ahead. HTTP/2 asks for the next message when the client's window is open and what was given is sent, so a client that reads
//! slowly costs the memory of one block. One that does not read at all keeps its snapshot until the sweeper takes the scan away
//! ([`super::lease`]); the stream ends with an error then, if it is ever read on.

use super::extension::Batches;
use super::lease::Source;
use super::message::{Pieces, batch_messages, schema_message};
use arrow_array::RecordBatchReader;
use arrow_schema::{ArrowError, Schema};
use http::HeaderMap;
use http_body::Frame;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

/// Blocks looked at before other streams get their turn, where no row qualifies.
const BLOCKS_PER_TURN: u32 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct BlockStream {
    source: Arc<Mutex<Source>>,
    messages: VecDeque<Pieces>,
    message_bytes: usize,
    finished: bool,
    _permit: OwnedSemaphorePermit,
}

fn internal(error: ArrowError) -> Status {
    Status::internal(error.to_string())
}

/// The end of a stream.
fn trailers(status: &Status) -> Frame<Pieces> {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // The message cannot stand in a header: the code alone.
        trailers.clear();
        let _ = Status::new(status.code(), "").add_header(&mut trailers);
    }
    Frame::trailers(trailers)
}

impl BlockStream {
    pub(super) fn new(source: Arc<Mutex<Source>>, message_bytes: usize, permit: OwnedSemaphorePermit) -> Self {
        let schema = source.lock().scan.as_ref().map(|scan| schema_message(&scan.schema()));
        Self { source, messages: schema.into_iter().collect(), message_bytes, finished: false, _permit: permit }
    }

    /// Reads on until there is a message or all is read; whether it got there within its turn.
    fn read(&mut self) -> Result<bool, Status> {
        let mut source = self.source.lock();
        source.progress = Instant::now();
        let Some(scan) = &mut source.scan else {
            return Err(Status::deadline_exceeded(
                "the client read nothing for too long: the stream's snapshot was given up",
            ));
        };
        for _ in 0..BLOCKS_PER_TURN {
            let Some(block) = scan.next_block() else {
                source.scan = None;
                self.finished = true;
                return Ok(true);
            };
            if let Some(batch) = block.map_err(internal)? {
                batch_messages(batch, self.message_bytes, &mut self.messages).map_err(internal)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Pieces>, Infallible>>> {
        loop {
            if let Some(message) = self.messages.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(message))));
            }
            if self.finished {
                return Poll::Ready(None);
            }
            let status = match self.read() {
                Ok(true) if self.finished => Status::ok(""),
                Ok(true) => continue,
                Ok(false) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(status) => status,
            };
            self.finished = true;
            self.source.lock().scan = None;
            return Poll::Ready(Some(Ok(trailers(&status))));
        }
    }
}

/// The batches of an extension.
pub(super) struct BatchStream {
    batches: Batches,
    messages: VecDeque<Pieces>,
    message_bytes: usize,
    finished: bool,
    _permit: OwnedSemaphorePermit,
}

impl std::fmt::Debug for BatchStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchStream").finish_non_exhaustive()
    }
}

impl BatchStream {
    pub(super) fn new(schema: &Schema, batches: Batches, message_bytes: usize, permit: OwnedSemaphorePermit) -> Self {
        Self { batches, messages: [schema_message(schema)].into(), message_bytes, finished: false, _permit: permit }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Pieces>>> {
        loop {
            if let Some(message) = self.messages.pop_front() {
                return Poll::Ready(Some(Frame::data(message)));
            }
            if self.finished {
                return Poll::Ready(None);
            }
            let status = match ready!(self.batches.as_mut().poll_next(cx)) {
                Some(Ok(batch)) => match batch_messages(batch, self.message_bytes, &mut self.messages) {
                    Ok(()) => continue,
                    Err(error) => internal(error),
                },
                Some(Err(status)) => status,
                None => Status::ok(""),
            };
            self.finished = true;
            self.batches = Box::pin(futures::stream::empty());
            return Poll::Ready(Some(trailers(&status)));
        }
    }
}

/// The body of any answer.
#[derive(Debug)]
pub(super) enum Body {
    /// Of a DoGet of a table.
    Blocks(BlockStream),
    /// Of a DoGet of anything else.
    Batches(BatchStream),
    /// Of every other call.
    Other(tonic::body::Body),
}

impl Default for Body {
    fn default() -> Self {
        Self::Other(tonic::body::Body::empty())
    }
}

impl http_body::Body for Body {
    type Data = Pieces;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match &mut *self {
            Self::Blocks(stream) => stream.poll(cx).map(|next| next.map(|frame| frame.map_err(|never| match never {}))),
            Self::Batches(stream) => stream.poll(cx).map(|next| next.map(Ok)),
            Self::Other(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|next| next.map(|frame| frame.map(|frame| frame.map_data(Pieces::from)))),
        }
    }
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Blocks(_) | Self::Batches(_) => false,
            Self::Other(body) => body.is_end_stream(),
        }
    }
}
