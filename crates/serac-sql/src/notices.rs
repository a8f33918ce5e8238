//! Notices: what a statement has to say besides its result.
//!
//! They are kept until somebody takes them: the server sends them before the result, the shell prints them.

use crate::session::Session;
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
}

impl Session {
    /// Where the session's statements say what they have to say.
    pub fn notices(&self) -> Notices {
        self.notices.clone()
    }
    /// Says something, unless `client_min_messages` wants it unsaid.
    pub(crate) fn say(&self, severity: Severity, sqlstate: &'static str, message: impl Into<String>) {
        let wanted = self.setting("client_min_messages").unwrap_or_default().to_lowercase();
        let unsaid = match wanted.as_str() {
            "warning" => severity == Severity::Notice,
            "error" => true,
            _ => false,
        };
        let mut notices = self.notices.0.lock();
        if !unsaid && notices.len() < MOST {
            notices.push(Notice { severity, sqlstate, message: message.into() });
        }
    }
    /// Says that something that was to be made is there.
    pub(crate) fn say_exists(&self, sqlstate: &'static str, what: &str) {
        self.say(Severity::Notice, sqlstate, format!("{what} already exists, skipping"));
    }
    /// Says that something that was to be changed or dropped is not there.
    pub(crate) fn say_missing(&self, what: &str) {
        self.say(Severity::Notice, "00000", format!("{what} does not exist, skipping"));
    }
}
