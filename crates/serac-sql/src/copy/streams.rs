//! STDIN and STDOUT of COPY in a session.

use parking_lot::Mutex;
use serac_copy::{CopyInput, CopyProgress, Format};
use std::io::Write;
use std::sync::Arc;

/// STDIN and STDOUT of a session.
pub(crate) struct CopyStreams {
    /// The format of streams, if a COPY does not name one.
    pub(crate) format: Format,
    pub(super) input: Mutex<Option<Box<dyn CopyInput + Send>>>,
    pub(super) output: Mutex<Option<Box<dyn Write + Send>>>,
    pub(super) progress: Arc<CopyProgress>,
}

impl Default for CopyStreams {
    fn default() -> Self {
        Self { format: Format::Csv, input: Mutex::default(), output: Mutex::default(), progress: Arc::default() }
    }
}
