//! Which role a client's name is, and what it must show to be that.
//!
//! Passwords are those of the roles, and those that the server was started with (for names that have none in the database). As soon as there is one password,
//! everybody must show one; as long as there is none, nobody need. A name without a role of its own is the bootstrap role if the server was
//! started with a password for it, or if there are no other roles at all: then all names are the same.

use super::scram::Verifier;
use serac_engine::roles::RoleId;
use serac_engine::{Catalog, Database};
use serac_sql::{Session, SqlError};
use std::collections::HashMap;

/// See the module.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) wants_password: bool,
    /// None for a name that cannot get in with any password.
    pub(crate) verifier: Option<Verifier>,
    is_bootstrap: bool,
}

impl Account {
    /// Of a client's name. `users`: the passwords that the server was started with.
    pub(crate) fn of(user: &str, users: &HashMap<String, Verifier>, database: &Database) -> Self {
        let security = database.catalog().security.clone();
        let role = security.role_named(user).ok();
        let of_role = database.password_verifier(user).and_then(|text| Verifier::of_text(&text));
        let has_own = role.is_some_and(|role| role.verifier.is_some());
        Self {
            wants_password: !users.is_empty() || security.has_passwords(),
            verifier: of_role.or_else(|| users.get(user).filter(|_| !has_own).cloned()),
            is_bootstrap: role.is_none() && (users.contains_key(user) || !security.has_own_roles()),
        }
    }
    /// The role.
    pub(crate) fn role(&self, user: &str, catalog: &Catalog) -> Result<RoleId, SqlError> {
        if self.is_bootstrap { Ok(RoleId::BOOTSTRAP) } else { Ok(catalog.security.role_named(user)?.id) }
    }
    /// Makes a session that of the role.
    pub(crate) fn enter(&self, session: &mut Session, user: &str) -> Result<(), SqlError> {
        if self.is_bootstrap { session.log_in_as_bootstrap(user) } else { session.log_in(user) }
    }
}
