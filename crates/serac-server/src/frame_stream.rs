//! Frames from a stream, independently of their meaning: a kind and the length of the body in five
//! bytes, and the body.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes in front of the body.
const HEADER_BYTES: usize = 5;
/// Room that a body gets before its bytes are there.
const FIRST_BYTES: usize = 64 << 10;

/// The reason why there is no frame.
#[derive(Debug)]
pub(crate) enum ReadError<E> {
    /// The stream has failed, or ended inside a frame.
    Io(io::Error),
    /// The bytes are no frame of the sender's.
    Frame(E),
}

/// The kind and the body of the next frame; `None` at the stream's end. `check` reads the header.
/// Memory grows with the bytes that have come, not with the length that the frame says. A cancelled
/// call loses the bytes that it has read.
pub(crate) async fn read_frame<R: AsyncRead + Unpin, E>(
    reader: &mut R,
    check: impl FnOnce([u8; HEADER_BYTES]) -> Result<(u8, usize), E>,
) -> Result<Option<(u8, Vec<u8>)>, ReadError<E>> {
    let (mut header, mut have) = ([0; HEADER_BYTES], 0);
    while have < HEADER_BYTES {
        match reader.read(&mut header[have..]).await.map_err(ReadError::Io)? {
            0 if have == 0 => return Ok(None),
            0 => return Err(ReadError::Io(io::ErrorKind::UnexpectedEof.into())),
            count => have += count,
        }
    }
    let (kind, length) = check(header).map_err(ReadError::Frame)?;
    let mut body = Vec::with_capacity(length.min(FIRST_BYTES));
    reader.take(length as u64).read_to_end(&mut body).await.map_err(ReadError::Io)?;
    if body.len() < length {
        return Err(ReadError::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(Some((kind, body)))
}
