//! A socket that sends the large frames of a stream together.
//!
//! HTTP/2 writes frame by frame, and most clients take frames of 16 KiB. Sent one at a time, each would be a segment of its own, with an acknowledgement and
//! a client that is woken for it. The kernel is told that more follows a large frame (`MSG_MORE`), and joins them in segments of up to 64 KiB. Nothing is copied for that.
//!
//! HTTP/2 flushes after each frame, too. So the first flush after a large frame only asks for the connection's task to run again, which it does when
//! nothing else is ready to be written; the flush at that time, with no frame in between, is the one that is meant, and sends the rest.

use crate::listen::Socket;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A write of so many bytes is part of a longer stream.
const LARGE: usize = 16 << 10;

#[derive(Debug, PartialEq)]
enum Rest {
    /// The kernel sends all that it has.
    Sent,
    /// It may hold back the end.
    Held,
    /// A flush was asked for since.
    Asked,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Corked {
    socket: Socket,
    rest: Rest,
}

impl Corked {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, rest: Rest::Sent }
    }
}

impl AsyncRead for Corked {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, out)
    }
}

impl AsyncWrite for Corked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // A segment that does not say that more follows takes along what was held back.
        self.rest = Rest::Sent;
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if slices.iter().map(|slice| slice.len()).sum::<usize>() < LARGE {
            self.rest = Rest::Sent;
            return Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        }
        self.rest = Rest::Held;
        self.socket.poll_write_more(cx, slices)
    }
    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.rest {
            Rest::Sent => {}
            Rest::Held => {
                self.rest = Rest::Asked;
                cx.waker().wake_by_ref();
            }
            Rest::Asked => {
                self.rest = Rest::Sent;
                self.socket.push()?;
            }
        }
        Pin::new(&mut self.socket).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
