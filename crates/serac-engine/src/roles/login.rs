//! Who may connect, and how often at a time.

use super::{Object, Privilege, RoleId};
use crate::database::{Database, DatabaseInner};
use crate::error::{EngineError, Result};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A role that is connected: counts against the role's limit until it is dropped.
#[derive(Debug)]
pub struct Login {
    db: Arc<DatabaseInner>,
    role: RoleId,
}

impl Login {
    /// The role.
    pub fn role(&self) -> RoleId {
        self.role
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        let mut logins = self.db.logins.lock();
        if let Some(count) = logins.get_mut(&self.role) {
            *count -= 1;
            if *count == 0 {
                logins.remove(&self.role);
            }
        }
    }
}

impl Database {
    /// Connects a role. Whether whoever asks is the role (by a password, say) is the caller's to find out.
    ///
    /// # Errors
    /// [`EngineError::Login`] for a role that is not there, may not log in, or is connected often enough; [`EngineError::Denied`] without CONNECT on the
    /// database.
    pub fn log_in(&self, name: &str) -> Result<Login> {
        let security = self.0.security();
        let refused = |sqlstate, message: String| Err(EngineError::Login { sqlstate, message });
        let Ok(role) = security.role_named(name) else {
            return refused("28000", format!("role \"{name}\" does not exist"));
        };
        if !role.login {
            return refused("28000", format!("role \"{name}\" is not permitted to log in"));
        }
        if !security.may(role.id, &Object::Database, Privilege::Connect) {
            return Err(EngineError::Denied(format!("permission denied for database {}", Object::Database.name())));
        }
        let mut logins = self.0.logins.lock();
        let count = logins.entry(role.id).or_default();
        if role.connection_limit.is_some_and(|limit| *count >= limit) && !role.superuser {
            return refused("53300", format!("too many connections for role \"{name}\""));
        }
        *count += 1;
        Ok(Login { db: self.0.clone(), role: role.id })
    }

    /// What is kept of the password of a role that may log in; none if there is no such role, or its password is none or is not valid any more.
    pub fn password_verifier(&self, name: &str) -> Option<String> {
        let security = self.0.security();
        let role = security.role_named(name).ok().filter(|role| role.login)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        if role.valid_until.is_some_and(|until| until < now) {
            return None;
        }
        role.verifier.as_ref().map(|verifier| verifier.0.clone())
    }
}
