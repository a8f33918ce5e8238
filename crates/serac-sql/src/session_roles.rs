//! The roles as which a session acts, and the columns that they may read.

use crate::error::{Result, SqlError};
use crate::identifiers::TEMPORARY_SCHEMA;
use serac_engine::Table;
use serac_engine::security::{Access, Columns, Privilege, RoleId, Security};

/// The roles of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SessionRoles {
    /// The role that has connected.
    pub(crate) login: RoleId,
    /// The session user.
    pub(crate) session: RoleId,
    /// The current user.
    pub(crate) current: RoleId,
    /// Whether SET ROLE has set it.
    pub(crate) is_set: bool,
    /// Whom RESET ROLE makes the current user, where the client has named a role when it connected.
    pub(crate) initial: Option<RoleId>,
    /// The name under which the session user has connected, where the role has another.
    pub(crate) alias: Option<String>,
}

impl Default for SessionRoles {
    fn default() -> Self {
        let role = RoleId::BOOTSTRAP;
        Self { login: role, session: role, current: role, is_set: false, initial: None, alias: None }
    }
}

impl SessionRoles {
    /// The name of the current user or the session user.
    pub(crate) fn name(&self, role: RoleId, security: &Security) -> String {
        match &self.alias {
            Some(alias) if role == self.login => alias.clone(),
            _ => security.name_of(role).to_owned(),
        }
    }
}

/// That a role may read files of the server, or write them; `what` says in the error what it may
/// not.
///
/// # Errors
/// 42501.
pub(crate) fn check_server_files(access: &Access, of_files: RoleId, what: &str) -> Result<()> {
    if access.has_privileges_of(of_files) {
        return Ok(());
    }
    let role = if of_files == RoleId::READ_SERVER_FILES { "pg_read_server_files" } else { "pg_write_server_files" };
    let detail = format!("Only superusers, and members of {role}, may {what} on the server.");
    Err(SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, format!("permission denied to {what}")).explained(detail))
}

/// The columns of a table that may be read; of those that the session has made for itself, all.
pub(crate) fn readable(access: &Access, table: &Table) -> Columns {
    match table.definition.schema == TEMPORARY_SCHEMA {
        true => Columns::All,
        false => access.columns(&table.definition, Privilege::Select),
    }
}

/// [`Columns::None`] as a list of unreadable columns, so that the columns behind them can be read.
pub(crate) fn some_or_none(columns: Columns, table: &Table) -> Columns {
    match columns {
        Columns::None => Columns::Some(vec![false; table.definition.columns.len()].into()),
        columns => columns,
    }
}

/// The columns of a table that is the target of a change: without a filter, its columns need not be
/// readable.
pub(crate) fn target_columns(access: &Access, table: &Table) -> Columns {
    some_or_none(readable(access, table), table)
}
