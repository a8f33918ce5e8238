//! Notices: what a statement has to say besides its result.
//!
//! They are kept until somebody takes them: the server sends them before the result, the shell
//! prints them.

use parking_lot::Mutex;
use std::sync::Arc;

/// So many are kept for who does not take them.
const MOST: usize = 100;

/// How much a notice matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// What was asked for need not be done.
    Notice,
    /// What was asked for makes no sense here, and does no harm.
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

/// Something that a statement says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// How much it matters.
    pub severity: Severity,
    /// PostgreSQL's code for it.
    pub sqlstate: &'static str,
    /// The text.
    pub message: String,
}

/// What a session's statements have said.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Mutex<Vec<Notice>>>);

impl Notices {
    /// What has been said since somebody has asked last, in order.
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.0.lock())
    }
    /// Keeps one more, if there is room.
    pub(crate) fn push(&self, notice: Notice) {
        let mut notices = self.0.lock();
        if notices.len() < MOST {
            notices.push(notice);
        }
    }
}
