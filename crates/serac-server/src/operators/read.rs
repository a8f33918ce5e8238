//! Frames from a stream.

use serac_column_language::frames::{self, FrameError, HEADER_BYTES, Sender};
use std::fmt;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Room that a body gets before its bytes are there.
const FIRST_BYTES: usize = 64 << 10;

/// A frame as it has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its kind.
    pub kind: u8,
    /// Its body.
    pub body: Vec<u8>,
}

/// Why there is no frame.
#[derive(Debug)]
pub enum ReadError {
    /// The stream has failed, or ended inside a frame.
    Io(io::Error),
    /// What has come is no frame of the sender's.
    Frame(FrameError),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Frame(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The next frame; none at the stream's end. Memory grows with the bytes that have come, not with the length that the
/// frame says. A call that is broken off loses what it has read.
///
/// # Errors
/// See [`ReadError`].
pub async fn read_frame<R: AsyncRead + Unpin>(reader: &mut R, sender: Sender) -> Result<Option<Frame>, ReadError> {
    let (mut header, mut have) = ([0; HEADER_BYTES], 0);
    while have < HEADER_BYTES {
        match reader.read(&mut header[have..]).await? {
            0 if have == 0 => return Ok(None),
            0 => return Err(ReadError::Io(io::ErrorKind::UnexpectedEof.into())),
            count => have += count,
        }
    }
    let (kind, length) = frames::header(header, sender).map_err(ReadError::Frame)?;
    let mut body = Vec::with_capacity(length.min(FIRST_BYTES));
    reader.take(length as u64).read_to_end(&mut body).await?;
    if body.len() < length {
        return Err(ReadError::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(Some(Frame { kind, body }))
}
