//! The account that is charged for the memory of a job, and the amount.
//!
//! Files in memory (inputs, and outputs of stages) are charged while they are referenced. A
//! program's other memory (its own, sockets, files in its `/tmp`) is charged while it runs. The
//! charge follows at each look that is taken at the program.

use super::error::Result;
use std::fmt;
use std::sync::Arc;

/// An account that memory is charged to.
pub trait Account: Send + Sync {
    /// Charges for `bytes` more bytes.
    ///
    /// # Errors
    /// [`ComputeError::Refused`](super::ComputeError::Refused) if there is no room for them.
    fn grow(&self, bytes: u64) -> Result<()>;
    /// Ends the charge for `bytes` bytes.
    fn shrink(&self, bytes: u64);
}

/// The account of a job whose memory is not counted, such as a job of a user's own shell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Account for Unlimited {
    fn grow(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn shrink(&self, _bytes: u64) {}
}

/// Bytes that are charged to an account until it is dropped.
pub(super) struct Charge {
    account: Arc<dyn Account>,
    bytes: u64,
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Charge {
    /// A charge of no bytes yet.
    pub(super) fn new(account: &Arc<dyn Account>) -> Self {
        Self { account: account.clone(), bytes: 0 }
    }

    pub(super) fn grow(&mut self, bytes: u64) -> Result<()> {
        self.account.grow(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Charges for `bytes` bytes in all.
    pub(super) fn set(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.bytes {
            return self.grow(bytes - self.bytes);
        }
        self.account.shrink(self.bytes - bytes);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.shrink(self.bytes);
    }
}
