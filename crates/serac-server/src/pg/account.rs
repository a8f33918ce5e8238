//! The role of a client's name, and the password that it must show.
//!
//! Passwords are those of the roles, and those that the server was started with (for names without
//! one in the database). Once there is a password, every client must show one; before that, no
//! client need. A name without a role of its own is the bootstrap role in two cases: if the server
//! was started with a password for it, or if there are no other roles at all. In the second case
//! all names are the same.
//!
//! A login is good for a role and its verifier, not for a name. A login that outlives a call (a
//! token) or takes time (an exchange of messages) is compared with the present account
//! ([`Account::is`]).

use super::scram::Verifier;
use serac_engine::Database;
use serac_engine::security::RoleId;
use serac_sql::{Session, SqlError};
use std::collections::HashMap;

/// The account behind a client's name.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) wants_password: bool,
    /// `None` for a name that cannot get in with any password.
    pub(crate) verifier: Option<Verifier>,
    role: Option<RoleId>,
    /// Whether the name is another than the role's own.
    is_alias: bool,
}

impl Account {
    /// The account of a client's name. `users`: the passwords that the server was started with.
    pub(crate) fn of(user: &str, users: &HashMap<String, Verifier>, database: &Database) -> Self {
        let catalog = database.catalog();
        let security = &catalog.security;
        let role = security.role_named(user).ok();
        let of_role = database.password_verifier(user).and_then(|text| Verifier::of_text(&text));
        let has_own = role.is_some_and(|role| role.verifier.is_some());
        let is_alias = role.is_none() && (users.contains_key(user) || !security.has_own_roles());
        Self {
            wants_password: !users.is_empty() || security.has_passwords(),
            verifier: of_role.or_else(|| users.get(user).filter(|_| !has_own).cloned()),
            role: if is_alias { Some(RoleId::BOOTSTRAP) } else { role.map(|role| role.id) },
            is_alias,
        }
    }

    /// Whether this is still the account that it was, with the same password.
    pub(crate) fn is(&self, before: &Self) -> bool {
        (self.role, self.is_alias, &self.verifier) == (before.role, before.is_alias, &before.verifier)
            && (!self.wants_password || self.verifier.is_some())
    }

    /// The role.
    ///
    /// # Errors
    /// SQLSTATE 28000 for an unknown name.
    pub(crate) fn role(&self, user: &str) -> Result<RoleId, SqlError> {
        self.role.ok_or_else(|| {
            SqlError::new(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, format!("role \"{user}\" does not exist"))
        })
    }

    /// Makes a session that of the role.
    pub(crate) fn enter(&self, session: &mut Session, user: &str) -> Result<(), SqlError> {
        session.log_in_as(self.role(user)?, self.is_alias.then_some(user))
    }
}
