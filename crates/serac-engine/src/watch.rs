//! The interface that may end a transaction's long work before its time.

use crate::error::Result;
use std::fmt::Debug;

/// Asked now and then by work that takes long: an index that is built, rows that are written anew
/// in another order.
pub trait Watch: Debug + Send + Sync {
    /// Says whether to go on. The work holds so many bytes now, beside the table and its indexes.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`](crate::EngineError::Cancelled) and
    /// [`EngineError::OutOfMemory`](crate::EngineError::OutOfMemory), which end the work.
    fn go_on(&self, bytes: u64) -> Result<()>;
}

/// Asks the watch, if there is one.
pub(crate) fn go_on(watch: Option<&dyn Watch>, bytes: u64) -> Result<()> {
    watch.map_or(Ok(()), |watch| watch.go_on(bytes))
}
