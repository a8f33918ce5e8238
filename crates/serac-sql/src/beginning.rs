//! A session's state before its first statement, to tell whether it has
//! [state of its own](crate::session_state).

use crate::session_roles::SessionRoles;

/// A session's state before its client's first statement.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// See `Session::settings_version`.
    pub(crate) version: u64,
    pub(crate) values: Vec<Option<String>>,
    pub(crate) roles: SessionRoles,
}
