//! What STDIN and STDOUT of COPY are in a session.

use parking_lot::Mutex;
use serac_copy::{CopyInput, CopyProgress, Format};
use std::io::Write;
use std::sync::Arc;

/// What STDIN and STDOUT mean in a session.
pub(crate) struct CopyStreams {
    /// Of what goes through streams, where a COPY does not say.
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
