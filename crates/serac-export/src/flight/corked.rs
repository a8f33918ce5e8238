//! A socket that sends the large frames of a stream together.
//!
//! HTTP/2 writes frame by frame, and most clients take frames of 16 KiB. Sent singly, each would be
//! a segment of its own, with an acknowledgement and a wake-up of the client. The kernel is told
//! that more follows a large frame (`MSG_MORE`), and joins them in segments of up to 64 KiB.
//! Nothing is copied for that.
//!
//! HTTP/2 flushes after each frame, too. So the first flush after a large frame only asks for the
//! connection's task to run again, which happens when no other output is ready. The flush at that
//! time, with no frame in between, is the real one, and sends the rest.

use serac_net::listen::Socket;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A write of so many bytes is part of a longer stream.
const LARGE: usize = 16 << 10;

#[derive(Debug, PartialEq)]
enum Rest {
    /// The kernel sends all that it has.
    Sent,
    /// The kernel may hold back the end.
    Held,
    /// A flush was asked for since.
    Asked,
}

/// A writer that holds back small frames until more output follows.
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
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, bytes));
        // A write without the mark "more follows" takes the held-back bytes along.
        self.rest = Rest::Sent;
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if slices.iter().map(|slice| slice.len()).sum::<usize>() < LARGE {
            let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, slices));
            self.rest = Rest::Sent;
            return Poll::Ready(written);
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::task::noop_waker_ref;
    use serac_net::listen::Listener;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn the_second_flush_without_a_frame_between_sends_the_rest() {
        let listeners = [Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap()];
        let mut client = TcpStream::connect(Listener::address_of(&listeners).unwrap()).await.unwrap();
        let mut corked = Corked::new(Listener::accept(&listeners).await.unwrap());
        // The socket's readiness is known once it was asked for.
        corked.write_all(b"head").await.unwrap();
        let mut cx = Context::from_waker(noop_waker_ref());
        let frame = vec![7; LARGE];
        for _ in 0..2 {
            let written = Pin::new(&mut corked).poll_write_vectored(&mut cx, &[IoSlice::new(&frame)]);
            assert!(matches!(written, Poll::Ready(Ok(LARGE))), "{written:?}");
            assert_eq!(corked.rest, Rest::Held);
            assert!(matches!(Pin::new(&mut corked).poll_flush(&mut cx), Poll::Ready(Ok(()))));
            assert_eq!(corked.rest, Rest::Asked);
        }
        assert!(matches!(Pin::new(&mut corked).poll_flush(&mut cx), Poll::Ready(Ok(()))));
        assert_eq!(corked.rest, Rest::Sent);
        let mut read = vec![0; 4 + 2 * LARGE];
        client.read_exact(&mut read).await.unwrap();
        assert_eq!((&read[..4], read[4..].iter().all(|byte| *byte == 7)), (&b"head"[..], true));
        // A small write takes the held-back bytes along.
        let written = Pin::new(&mut corked).poll_write_vectored(&mut cx, &[IoSlice::new(&frame)]);
        assert!(matches!(written, Poll::Ready(Ok(LARGE))), "{written:?}");
        corked.write_all(b"end").await.unwrap();
        assert_eq!(corked.rest, Rest::Sent);
        client.read_exact(&mut read[..LARGE + 3]).await.unwrap();
        assert_eq!(&read[LARGE..LARGE + 3], b"end");
    }
}
