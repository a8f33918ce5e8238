//! Roles and their rights.
//!
//! A version of the [`Catalog`](crate::Catalog) has one [`Security`]: the roles, the owners of
//! objects, and the grants on them. It changes with the catalog, so CREATE ROLE and GRANT are
//! transactional, logged and recovered as other DDL. An object without a noted owner belongs to the
//! bootstrap role `serac`, a superuser. So a database from before there were roles belongs to it.
//!
//! ```text
//! statement ──▶ Access (role, the catalog's Security, the present Security) ──▶ allowed, or 42501
//! ```
//! [`Access`] must find a statement's privileges in the snapshot's catalog *and* in the present
//! one. So a REVOKE takes effect at the next statement, also of a transaction with an old snapshot.
//! DDL is checked here, in the engine; the planner of queries and changes checks rows. A
//! transaction acts for the bootstrap role unless it is told otherwise
//! ([`Transaction::set_role`](crate::Transaction::set_role)).
//!
//! | module | |
//! |---|---|
//! | `privilege` | privileges, objects, grants |
//! | `grants` | all that is known, and what follows from it |
//! | `access` | what one role may do |
//! | `ddl` | CREATE ROLE, GRANT, OWNER TO and their like |
//! | `login` | who may connect, and how often |

mod access;
mod ddl;
mod grants;
mod login;
mod privilege;

pub use access::{Access, Columns};
pub use ddl::{RoleOptions, Terms};
pub use grants::Security;
pub use login::Login;
pub use privilege::{DefaultGrant, Grant, Object, ObjectKind, Privilege, Privileges};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

/// The number of a role. It is never given to another role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RoleId(pub u32);

impl RoleId {
    /// The superuser that each database has from the beginning.
    pub const BOOTSTRAP: Self = Self(10);
    /// Everybody, as a grantee. No role has this number.
    pub const PUBLIC: Self = Self(0);
    /// `pg_signal_backend`: may end statements and connections of other roles.
    pub const SIGNAL_BACKEND: Self = Self(4200);
    /// `pg_read_all_stats`: may see the statements of all connections.
    pub const READ_ALL_STATS: Self = Self(3375);
    /// `pg_read_server_files`: may COPY from files of the server.
    pub const READ_SERVER_FILES: Self = Self(4569);
    /// `pg_write_server_files`: may COPY to files of the server.
    pub const WRITE_SERVER_FILES: Self = Self(4570);
    /// `pg_checkpoint`: may run CHECKPOINT.
    pub const CHECKPOINT: Self = Self(4544);
    /// `pg_database_owner`: the owner of the database is its only member.
    pub const DATABASE_OWNER: Self = Self(6171);
    /// `pg_read_all_data`: may read all relations, in all schemas.
    pub const READ_ALL_DATA: Self = Self(6181);
    /// `pg_write_all_data`: may change the rows of all tables, in all schemas.
    pub const WRITE_ALL_DATA: Self = Self(6182);
    /// Roles that are made later have numbers from here on.
    pub(crate) const FIRST: u32 = 16_384;
    /// Whether every database has the role, as in PostgreSQL (`PREDEFINED`).
    pub fn is_predefined(self) -> bool {
        PREDEFINED.contains_key(&self)
    }
}

/// The name of the bootstrap role.
pub const BOOTSTRAP_ROLE: &str = "serac";

/// The roles that every database has besides the bootstrap role, under PostgreSQL's names and
/// numbers. They cannot log in. A predefined role without changes is in no catalog.
pub(crate) static PREDEFINED: LazyLock<BTreeMap<RoleId, Role>> = LazyLock::new(|| {
    const MONITOR: u32 = 3373;
    const MONITORED: [u32; 3] = [3374, RoleId::READ_ALL_STATS.0, 3377];
    let names = [
        (MONITOR, "pg_monitor"),
        (MONITORED[0], "pg_read_all_settings"),
        (MONITORED[1], "pg_read_all_stats"),
        (MONITORED[2], "pg_stat_scan_tables"),
        (RoleId::SIGNAL_BACKEND.0, "pg_signal_backend"),
        (RoleId::CHECKPOINT.0, "pg_checkpoint"),
        (RoleId::READ_SERVER_FILES.0, "pg_read_server_files"),
        (RoleId::WRITE_SERVER_FILES.0, "pg_write_server_files"),
        (4571, "pg_execute_server_program"),
        (RoleId::DATABASE_OWNER.0, "pg_database_owner"),
        (RoleId::READ_ALL_DATA.0, "pg_read_all_data"),
        (RoleId::WRITE_ALL_DATA.0, "pg_write_all_data"),
    ];
    let membership = |role| Membership { role: RoleId(role), admin: false, grantor: RoleId::BOOTSTRAP };
    let role = |(id, name): (u32, &str)| {
        let member_of = if id == MONITOR { MONITORED.map(membership).to_vec() } else { Vec::new() };
        (RoleId(id), Role { member_of, ..Role::new(RoleId(id), name) })
    };
    names.into_iter().map(role).collect()
});

/// A password's verifier, in PostgreSQL's form:
/// `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`. It is not printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordVerifier(pub String);

impl fmt::Debug for PasswordVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordVerifier(…)")
    }
}

/// The membership of a role in another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Membership {
    /// The other role.
    pub role: RoleId,
    /// Whether the member may make others members.
    pub admin: bool,
    /// The role that granted the membership.
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
    /// There is one database: the option is noted for clients that ask.
    pub create_db: bool,
    /// May connect.
    pub login: bool,
    /// Connections at a time; `None` for any number.
    pub connection_limit: Option<u32>,
    /// `None`: the role has no password.
    pub verifier: Option<PasswordVerifier>,
    /// The end of the password's validity, in microseconds since 1970 (UTC); `None` for no end.
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
