//! Roles: who may do what.
//!
//! A version of the [`Catalog`](crate::Catalog) has one [`Security`]: the roles, who owns which object, and who was granted what on it. It changes with the catalog, so
//! CREATE ROLE and GRANT are transactional, logged and recovered as other DDL. Who owns an object that nobody is noted for is the bootstrap role
//! `serac`, a superuser: so a database from before there were roles belongs to it.
//!
//! ```text
//! statement ──▶ Access (role, the catalog's Security, the present Security) ──▶ allowed, or 42501
//! ```
//! What a statement needs, [`Access`] must find in the snapshot's catalog *and* in the present one: so a REVOKE is felt at the next statement, also
//! of a transaction with an old snapshot. DDL is checked here, in the engine; rows are checked by whoever plans queries and changes. A transaction acts
//! for the bootstrap role unless it is told otherwise ([`Transaction::set_role`](crate::Transaction::set_role)).
//!
//! | module | |
//! |---|---|
//! | `privilege` | privileges, objects, grants |
//! | `security` | all that is known, and what follows from it |
//! | `access` | what one role may do |
//! | `ddl` | CREATE ROLE, GRANT, OWNER TO and their like |
//! | `login` | who may connect, and how often |

mod access;
mod ddl;
mod login;
mod privilege;
mod security;

pub use access::{Access, Columns};
pub use ddl::{RoleOptions, Terms};
pub use login::Login;
pub use privilege::{DefaultGrant, Grant, Object, ObjectKind, Privilege, Privileges};
pub use security::Security;

use serde::{Deserialize, Serialize};
use std::fmt;

/// Names a role; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RoleId(pub u32);

impl RoleId {
    /// The superuser that each database has from the beginning.
    pub const BOOTSTRAP: Self = Self(10);
    /// Everybody, as a grantee. No role has it.
    pub const PUBLIC: Self = Self(0);
    /// Roles that are made later have numbers from here on.
    pub(crate) const FIRST: u32 = 16_384;
}

/// The name of the bootstrap role.
pub const BOOTSTRAP_ROLE: &str = "serac";

/// What is kept of a password, in PostgreSQL's form: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`. It is not printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordVerifier(pub String);

impl fmt::Debug for PasswordVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordVerifier(…)")
    }
}

/// That a role is a member of another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Membership {
    /// The other.
    pub role: RoleId,
    /// Whether the member may make others members.
    pub admin: bool,
    /// Who made it one.
    pub grantor: RoleId,
}

/// A role: a user, or a group of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Role {
    /// Number.
    pub id: RoleId,
    /// Name.
    pub name: String,
    /// May do everything.
    pub superuser: bool,
    /// Has the privileges of the roles that it is a member of without SET ROLE.
    pub inherit: bool,
    /// May make, change and drop roles that are not superusers.
    pub create_role: bool,
    /// Of databases there is one: noted for clients that ask.
    pub create_db: bool,
    /// May connect.
    pub login: bool,
    /// Connections at a time; none for any number.
    pub connection_limit: Option<u32>,
    /// None: it has no password.
    pub verifier: Option<PasswordVerifier>,
    /// Until when the password is good, in microseconds since 1970 (UTC); none for ever.
    pub valid_until: Option<i64>,
    /// The roles that it is a member of.
    pub member_of: Vec<Membership>,
}

impl Role {
    pub(crate) fn new(id: RoleId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            superuser: false,
            inherit: true,
            create_role: false,
            create_db: false,
            login: false,
            connection_limit: None,
            verifier: None,
            valid_until: None,
            member_of: Vec::new(),
        }
    }
    fn bootstrap() -> Self {
        let role = Self::new(RoleId::BOOTSTRAP, BOOTSTRAP_ROLE);
        Self { superuser: true, create_role: true, create_db: true, login: true, ..role }
    }
}
