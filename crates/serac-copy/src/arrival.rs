//! Input whose readers may have to wait.
//!
//! A reader of rows collects thousands of them before it hands them over. If the next ones do not
//! come soon, it hands over those that it has. So their errors are known at once.

use std::io::Read;
use std::time::Duration;

/// The time that a reader that has rows waits for more.
pub const COPY_PATIENCE: Duration = Duration::from_millis(100);

/// The input of COPY FROM.
pub trait CopyInput: Read {
    /// Waits up to [`COPY_PATIENCE`] for bytes, or the end of the input; false if neither has come.
    /// True for input whose readers never wait.
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
