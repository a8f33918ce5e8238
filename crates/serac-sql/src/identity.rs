//! The identity of a session.

/// The identity of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user's name.
    pub user: String,
    /// The client's name for the database.
    pub database: String,
    /// The session's number.
    pub process: i32,
}

impl Default for Identity {
    fn default() -> Self {
        Self { user: "serac".into(), database: "serac".into(), process: 0 }
    }
}
