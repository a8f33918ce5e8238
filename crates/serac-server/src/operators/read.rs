//! Frames from a stream.

use crate::frame_stream;
use serac_column_language::frames::{self, FrameError, Sender};
use std::fmt;
use std::io;
use tokio::io::AsyncRead;

/// A frame as it has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its kind.
    pub kind: u8,
    /// Its body.
    pub body: Vec<u8>,
}

/// The reason why there is no frame.
#[derive(Debug)]
pub enum ReadError {
    /// The stream has failed, or ended inside a frame.
    Io(io::Error),
    /// The bytes are no frame of the sender's.
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

/// The next frame; `None` at the stream's end. Memory grows with the bytes that have come, not with
/// the length that the frame says. A cancelled call loses the bytes that it has read.
///
/// # Errors
/// See [`ReadError`].
pub async fn read_frame<R: AsyncRead + Unpin>(reader: &mut R, sender: Sender) -> Result<Option<Frame>, ReadError> {
    match frame_stream::read_frame(reader, |header| frames::header(header, sender)).await {
        Ok(frame) => Ok(frame.map(|(kind, body)| Frame { kind, body })),
        Err(frame_stream::ReadError::Io(error)) => Err(ReadError::Io(error)),
        Err(frame_stream::ReadError::Frame(error)) => Err(ReadError::Frame(error)),
    }
}
