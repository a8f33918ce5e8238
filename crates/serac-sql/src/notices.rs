//! Notices: messages of a statement beside its result.
//!
//! They are kept until they are taken: the server sends them before the result, the shell prints
//! them.

use parking_lot::Mutex;
use std::sync::Arc;

/// The most notices that are kept for a client that does not take them.
const MOST: usize = 100;

/// The severity of a notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The requested change is not needed.
    Notice,
    /// The request makes no sense here, and does no harm.
    Warning,
}

impl Severity {
    /// As PostgreSQL writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Notice => "NOTICE",
            Self::Warning => "WARNING",
        }
    }
}

/// A message of a statement beside its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Its severity.
    pub severity: Severity,
    /// PostgreSQL's code for it.
    pub sqlstate: &'static str,
    /// The text.
    pub message: String,
}

/// The notices of a session's statements.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Mutex<Vec<Notice>>>);

impl Notices {
    /// The notices since the last call, in order.
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Keeps a notice, if there is room.
    pub(crate) fn push(&self, notice: Notice) {
        let mut notices = self.0.lock();
        if notices.len() < MOST {
            notices.push(notice);
        }
    }
}
