//! The data of a COPY between a connection's task and the session that runs it.

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use serac_sql::{COPY_PATIENCE, CopyInput};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;
use tokio::sync::mpsc;

/// The client's data, for the thread that reads it.
pub(crate) struct Input {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
    /// The piece after it; an inner `None` for the end of the pieces.
    next: Option<Option<io::Result<Bytes>>>,
}

/// Wakes a thread that waits for a piece.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Input {
    /// An error among the pieces is one of the COPY. The end of the pieces is that of the data.
    pub(crate) fn new(pieces: mpsc::Receiver<io::Result<Bytes>>) -> Self {
        Self { pieces, current: Bytes::new(), next: None }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.next.take().unwrap_or_else(|| self.pieces.blocking_recv()) {
                Some(piece) => self.current = piece?,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

impl CopyInput for Input {
    fn comes_soon(&mut self) -> bool {
        let until = Instant::now() + COPY_PATIENCE;
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        while self.current.is_empty() && self.next.is_none() {
            match self.pieces.poll_recv(&mut context) {
                Poll::Ready(piece) => self.next = Some(piece),
                Poll::Pending => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    std::thread::park_timeout(left);
                }
            }
        }
        true
    }
}

/// Data on its way to the client, in the pieces in which it was written.
#[derive(Clone, Default)]
pub(crate) struct Output(Arc<Mutex<Pieces>>);

/// Bytes, and where each piece of them ends.
#[derive(Default)]
pub(crate) struct Pieces {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: Vec<usize>,
}

impl Output {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().bytes.len()
    }

    /// Takes the waiting pieces.
    pub(crate) fn take(&self) -> Pieces {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut pieces = self.0.lock();
        pieces.bytes.extend_from_slice(bytes);
        let end = pieces.bytes.len();
        pieces.ends.push(end);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
