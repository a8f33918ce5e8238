//! The answer to a DoGet: the body of an HTTP/2 response. It reads a block, or asks for a batch,
//! when the client has room for it.
//!
//! Nothing is read ahead beyond one message. HTTP/2 asks for the next message when the client's
//! window is open and the previous one is sent. So a client that reads slowly costs the memory of
//! its blocks. A client that does not read at all keeps its snapshot until the sweeper takes the
//! scan away ([`super::lease`]). A later read of the stream then gets an error.

use super::extension::Batches;
use super::lease::Source;
use super::message::Messages;
use crate::body::Pieces;
use arrow_schema::ArrowError;
use http::HeaderMap;
use http_body::Frame;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

/// Blocks looked at before other streams get their turn, where no row qualifies.
const BLOCKS_PER_TURN: u32 = 16;
/// The time after which a turn ends with the block that is being looked at: a request may have many
/// conditions.
const TURN: Duration = Duration::from_millis(5);

/// The messages of a table's blocks.
pub(super) struct BlockStream {
    source: Arc<Mutex<Source>>,
    outgoing: Outgoing,
    _permit: OwnedSemaphorePermit,
}

/// The messages to be sent.
struct Outgoing {
    messages: Messages,
    /// The status behind the messages.
    end: Option<Status>,
    ended: bool,
}

impl Outgoing {
    fn new(messages: Messages) -> Self {
        Self { messages, end: None, ended: false }
    }

    fn end(&mut self, status: Status) {
        (self.end, self.ended) = (Some(status), true);
    }

    /// The next frame, or the end of frames; `None` if there is more to read first.
    fn next(&mut self) -> Option<Option<Frame<Pieces>>> {
        if let Some(message) = self.messages.next() {
            return Some(Some(Frame::data(message)));
        }
        self.ended.then(|| self.end.take().map(|status| trailers(&status)))
    }
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
    pub(super) fn new(messages: Messages, source: Arc<Mutex<Source>>, permit: OwnedSemaphorePermit) -> Self {
        Self { source, outgoing: Outgoing::new(messages), _permit: permit }
    }

    /// Reads on until there is a message or all is read, for one turn at most.
    fn read(&mut self) -> Result<(), Status> {
        let Outgoing { messages, .. } = &mut self.outgoing;
        let mut source = self.source.lock();
        let begun = Instant::now();
        source.progress = begun;
        let Some(scan) = &mut source.scan else {
            return Err(Status::deadline_exceeded(
                "the client read nothing for too long: the stream's snapshot was given up",
            ));
        };
        for _ in 0..BLOCKS_PER_TURN {
            let Some(block) = scan.next_block() else {
                source.scan = None;
                messages.join().map_err(internal)?;
                self.outgoing.end(Status::ok(""));
                return Ok(());
            };
            if let Some(batch) = block.map_err(internal)? {
                messages.add(batch).map_err(internal)?;
            }
            if messages.are_ready() {
                return Ok(());
            }
            if begun.elapsed() >= TURN {
                break;
            }
        }
        messages.join().map_err(internal)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Pieces>>> {
        if let Some(next) = self.outgoing.next() {
            return Poll::Ready(next);
        }
        if let Err(status) = self.read() {
            self.source.lock().scan = None;
            self.outgoing.end(status);
        }
        match self.outgoing.next() {
            Some(next) => Poll::Ready(next),
            None => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

/// The batches of an extension.
pub(super) struct BatchStream {
    batches: Batches,
    outgoing: Outgoing,
    _permit: OwnedSemaphorePermit,
}

impl BatchStream {
    pub(super) fn new(messages: Messages, batches: Batches, permit: OwnedSemaphorePermit) -> Self {
        Self { batches, outgoing: Outgoing::new(messages), _permit: permit }
    }

    /// Takes the batches that are ready, until a message is ready, no batch is, or the batches end.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        let Outgoing { messages, .. } = &mut self.outgoing;
        while !messages.are_ready() {
            match self.batches.as_mut().poll_next(cx) {
                Poll::Ready(Some(batch)) => messages.add(batch?).map_err(internal)?,
                Poll::Ready(None) => {
                    messages.join().map_err(internal)?;
                    self.outgoing.end(Status::ok(""));
                    return Ok(());
                }
                Poll::Pending => return messages.join().map_err(internal),
            }
        }
        Ok(())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Pieces>>> {
        if let Some(next) = self.outgoing.next() {
            return Poll::Ready(next);
        }
        if let Err(status) = self.read(cx) {
            self.outgoing.end(status);
        }
        if self.outgoing.ended {
            self.batches = Box::pin(futures::stream::empty());
        }
        self.outgoing.next().map_or(Poll::Pending, Poll::Ready)
    }
}

/// The body of any answer.
pub(super) enum Body {
    /// The body of a DoGet of a table.
    Blocks(BlockStream),
    /// The body of a DoGet of the extension's.
    Batches(BatchStream),
    /// The body of every other call.
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
            Self::Blocks(stream) => stream.poll(cx).map(|next| next.map(Ok)),
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
