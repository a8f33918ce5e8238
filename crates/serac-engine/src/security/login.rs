//! Logins: the roles that may connect, and their connection limits.

use super::{Object, Privilege, Role, RoleId, Security};
use crate::database::Database;
use crate::database_inner::DatabaseInner;
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

fn refused<T>(sqlstate: &'static str, message: String) -> Result<T> {
    Err(EngineError::Login { sqlstate, message })
}

fn may_log_in(security: &Security, role: RoleId) -> Result<&Role> {
    let Some(role) = security.role(role) else {
        return refused(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, "the role does not exist any more".into());
    };
    if !role.login {
        return refused(
            sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
            format!("role \"{}\" is not permitted to log in", role.name),
        );
    }
    if !security.may(role.id, &Object::Database, Privilege::Connect) {
        return Err(EngineError::Denied(format!("permission denied for database {}", Object::Database.name())));
    }
    Ok(role)
}

impl Database {
    /// Connects a role. The caller must check (by a password, say) that the client is the role.
    ///
    /// # Errors
    /// [`EngineError::Login`] for a role that is not there, may not log in, or is connected often
    /// enough; [`EngineError::Denied`] without CONNECT on the database.
    pub fn log_in(&self, name: &str) -> Result<Login> {
        match self.0.security().role_named(name) {
            Ok(role) => self.log_in_as(role.id),
            Err(_) => refused(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, format!("role \"{name}\" does not exist")),
        }
    }

    /// As [`log_in`](Self::log_in), for a role that is known by its number, which no other role
    /// ever has.
    ///
    /// # Errors
    /// As there.
    pub fn log_in_as(&self, role: RoleId) -> Result<Login> {
        let security = self.0.security();
        let role = may_log_in(&security, role)?;
        let mut logins = self.0.logins.lock();
        let count = logins.entry(role.id).or_default();
        if role.connection_limit.is_some_and(|limit| *count >= limit) && !role.superuser {
            return refused(sqlstate::TOO_MANY_CONNECTIONS, format!("too many connections for role \"{}\"", role.name));
        }
        *count += 1;
        Ok(Login { db: self.0.clone(), role: role.id })
    }

    /// Refuses a role that is gone, or may not connect any more.
    ///
    /// # Errors
    /// As for [`log_in`](Self::log_in), but for the number of connections.
    pub fn check_login(&self, role: RoleId) -> Result<()> {
        may_log_in(&self.0.security(), role).map(|_| ())
    }

    /// The password verifier of a role that may log in. `None` if there is no such role, or its
    /// password is absent or has expired.
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
