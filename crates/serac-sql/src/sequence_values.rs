//! The values that a session has got from sequences.

use std::collections::HashMap;

/// The values that a session has got from sequences.
#[derive(Default)]
pub(crate) struct SequenceValues {
    pub(crate) by_name: HashMap<String, i64>,
    /// The name of the sequence used last.
    pub(crate) last: Option<String>,
}
