//! Roles in SQL: the roles of a session, its rights, and the statements that change them.
//!
//! A session has three roles. It has connected as one, its session user is that role unless SET
//! SESSION AUTHORIZATION has changed it, and its current user is the session user unless SET ROLE
//! has changed it. A session without a login, that of a program with an embedded database, is the
//! bootstrap role `serac`, a superuser.
//!
//! | what | where it is checked |
//! |---|---|
//! | tables and views in queries | when their names are resolved (`resolver`); queries of views as the view's owner |
//! | single columns in queries | when a scan is planned, which names the columns that are read (`serac-query`, `scan/privileges`) |
//! | INSERT, UPDATE, DELETE, MERGE, COPY, FOR UPDATE | before they are planned ([`Session::check_privilege`]) |
//! | statements of the point path | when they are compiled; a plan holds for one version of the privileges and one role (`point`) |
//! | sequences | when they are asked (`session_functions/sequences`) |
//! | DDL, GRANT | in the engine (`serac_engine::security`) |

mod password;
mod run;

use crate::error::{Result, SqlError};
use crate::identifiers::TEMPORARY_SCHEMA;
use crate::session::Session;
use crate::session_roles::{SessionRoles, readable};
pub use password::MAX_ITERATIONS;
use serac_engine::Table;
use serac_engine::security::{Access, Columns, Login, Privilege, RoleId};
use std::sync::Arc;

impl Session {
    /// Makes this the session of a role, as after a login; the caller must check the identity of
    /// the client.
    ///
    /// # Errors
    /// SQLSTATE 28000 for a role that does not exist or may not log in. 53300 if it has reached its
    /// connection limit, 42501 without CONNECT on the database.
    pub fn log_in(&mut self, role: &str) -> Result<()> {
        let login = self.database().log_in(role)?;
        self.become_login(login, None);
        Ok(())
    }

    /// As [`log_in`](Self::log_in), for a role that is known by its number; `alias`: the name under
    /// which it has connected, where that is not its own.
    ///
    /// # Errors
    /// As there.
    pub fn log_in_as(&mut self, role: RoleId, alias: Option<&str>) -> Result<()> {
        let login = self.database().log_in_as(role)?;
        self.become_login(login, alias.map(str::to_owned));
        Ok(())
    }

    fn become_login(&mut self, login: Login, alias: Option<String>) {
        let role = login.role();
        *self.shared.roles.write() =
            SessionRoles { login: role, session: role, current: role, is_set: false, initial: None, alias };
        self.login = Some(login);
        self.shared.note_setting();
    }

    /// Whether the current user may do everything.
    pub fn is_superuser(&self) -> bool {
        self.access_now().is_superuser()
    }

    /// The current user's role.
    pub fn current_role(&self) -> RoleId {
        self.shared.roles.read().current
    }

    /// The privileges of the current user. They come from the running statement's snapshot; without
    /// a statement, from the transaction's, or the newest state.
    pub(crate) fn access(&self) -> Access {
        match (self.shared.view(), &self.running) {
            (Some(view), _) => view.access,
            (None, Some(running)) => running.txn.access(self.current_role()),
            (None, None) => self.access_now(),
        }
    }

    /// The present privileges of the current user, outside of any transaction.
    pub(crate) fn access_now(&self) -> Access {
        self.database().begin().access(self.current_role())
    }

    /// Refuses a privilege that the current user does not have on these columns of a table; without
    /// columns, on any of them.
    pub(crate) fn check_privilege(&self, table: &Table, privilege: Privilege, columns: &[usize]) -> Result<()> {
        if table.definition.materialized.is_some() && privilege != Privilege::Select {
            let message = format!("cannot change materialized view \"{}\"", table.name());
            return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message).named(table.name()));
        }
        if table.definition.schema == TEMPORARY_SCHEMA {
            return Ok(());
        }
        Ok(self.access().check_columns(&table.definition, privilege, columns)?)
    }

    /// Whether the current user has these privileges on all columns of a table: the point path asks
    /// before it compiles.
    pub(crate) fn may_with_all(&self, table: &Table, privileges: &[Privilege]) -> bool {
        let access = self.access();
        if table.definition.materialized.is_some() && privileges != [Privilege::Select] {
            return false;
        }
        table.definition.schema == TEMPORARY_SCHEMA
            || access.check_usage(&table.definition.schema).is_ok()
                && privileges.iter().all(|p| access.columns(&table.definition, *p) == Columns::All)
    }

    /// An error without the values that it tells of, where they may be of rows that the current
    /// user must not read.
    pub(crate) fn without_secrets(&self, error: SqlError) -> SqlError {
        if error.detail.is_none()
            || ![sqlstate::UNIQUE_VIOLATION, sqlstate::FOREIGN_KEY_VIOLATION].contains(&error.sqlstate)
        {
            return error;
        }
        let Some(running) = &self.running else { return error };
        let (access, catalog) = (running.txn.access(self.current_role()), running.txn.catalog());
        if access.is_superuser() {
            return error;
        }
        let constraint = error.name.as_deref().unwrap_or_default();
        let concerns = |table: &&Arc<Table>| {
            let definition = &table.definition;
            let key = definition.keys.iter().any(|key| key.name == constraint);
            key || definition.foreign_keys.iter().any(|key| key.name == constraint)
        };
        let parents = |table: &Arc<Table>| {
            let keys = table.definition.foreign_keys.iter().filter(|key| key.name == constraint);
            let parents = keys.filter_map(|key| catalog.table(&key.parent_schema, &key.parent_table).ok());
            parents.cloned().collect::<Vec<_>>()
        };
        let tables: Vec<Arc<Table>> = catalog.tables().filter(concerns).cloned().collect();
        let mut all = tables.iter().cloned().chain(tables.iter().flat_map(parents));
        let may_read = all.all(|table| readable(&access, &table) == Columns::All);
        SqlError { detail: error.detail.filter(|_| may_read), ..error }
    }
}
