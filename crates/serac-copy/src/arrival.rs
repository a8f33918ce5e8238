//! Input that may let its readers wait.
//!
//! A reader of rows gathers thousands of them before it hands them over. Where the next ones do not
//! come soon, it hands over those that it has, so that what is wrong with them is known at once.

use std::io::Read;
use std::time::Duration;

/// How long a reader that has rows waits for more.
pub const COPY_PATIENCE: Duration = Duration::from_millis(100);

/// What COPY FROM reads.
pub trait CopyInput: Read {
    /// Waits up to [`COPY_PATIENCE`] for bytes, or the end of the input; false if neither has come.
    /// True for input that lets nobody wait.
    fn comes_soon(&mut self) -> bool {
        true
    }
}

impl CopyInput for &[u8] {}

impl<I: CopyInput + ?Sized> CopyInput for Box<I> {
    fn comes_soon(&mut self) -> bool {
        self.as_mut().comes_soon()
    }
}

/// Input that is read as it comes: rows wait until a batch of them is full.
pub struct SteadyInput<R>(pub R);

impl<R: Read> Read for SteadyInput<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> CopyInput for SteadyInput<R> {}
