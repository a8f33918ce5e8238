//! Arrow Flight SQL: SQL for clients that want Arrow (ADBC, its drivers for pandas and Polars,
//! JDBC).
//!
//! It is an [`Extension`](serac_export::flight::Extension) of the Flight server, on the same
//! address as the tables' flights. Its results leave in the same way: a batch that is a frozen
//! block's own buffers goes to the socket without a copy.
//!
//! A query is planned at GetFlightInfo, for its schema, and runs at DoGet. Any other statement runs
//! at GetFlightInfo, once, and its ticket, if it has rows, names the result. Statements run in
//! sessions ([`session_lease`]): that of their transaction, that of the client if it keeps the
//! server's cookie, or one of their own.
//!
//! | module | |
//! |---|---|
//! | [`service`] | which call goes where |
//! | [`login`] | who calls |
//! | [`expiring_map`] | what is kept for clients, for a time |
//! | [`session_lease`] | sessions, and who has them |
//! | [`stream`] | results as they are read |
//! | [`summary`] | aggregates and first rows of flights of tables |
//! | [`statement`], [`parameters`] | statements, prepared or not |
//! | [`transaction`] | transactions and savepoints |
//! | [`form`], [`result_dictionary`] | columns as the client wants them; dictionaries |
//! | [`status`] | errors as gRPC has them |
//! | [`ingest`] | rows that come as batches |
//! | [`metadata`], [`info`] | what there is |

mod expiring_map;
mod form;
mod info;
mod ingest;
mod login;
mod metadata;
mod parameters;
mod result_dictionary;
mod service;
mod session_lease;
mod statement;
mod status;
mod stream;
mod summary;
mod transaction;

use crate::passwords::Passwords;
use crate::pg::Verifier;
use expiring_map::ExpiringMap;
use login::Login;
use serac_export::flight::Token;
use serac_sql::SqlDatabase;
use session_lease::SessionLease;
use statement::{Finished, PreparedStatement};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::Duration;
use stream::Running;
use transaction::OpenTransaction;

/// The settings of Flight SQL.
#[derive(Clone, Debug)]
pub struct FlightSqlOptions {
    /// A secret that lets its bearer in as `role`.
    pub token: Option<Token>,
    /// The role of callers with the token, or of all callers on an open server; by default the
    /// bootstrap role.
    pub role: Option<String>,
    /// Passwords of those who may connect, besides those of roles. If there are neither, and no
    /// token, everybody may.
    pub users: HashMap<String, Verifier>,
    /// The time that a user's token is valid from its last use on.
    pub login: Duration,
    /// The time that a user's token is valid from the login on, however often it is used.
    pub longest_login: Duration,
    /// The time that an open transaction may be unused; then it is rolled back.
    pub transaction_timeout: Duration,
    /// The time that an unused session or prepared statement is kept.
    pub session_timeout: Duration,
    /// The time that a client may read nothing of a result before the result is given up.
    pub stall: Duration,
    /// The limit of transactions, of sessions and of prepared statements at a time, for each kind.
    /// One user has half of them at the most: see `expiring_map`.
    pub max_sessions: usize,
}

impl Default for FlightSqlOptions {
    fn default() -> Self {
        Self {
            token: None,
            role: None,
            users: HashMap::new(),
            login: Duration::from_secs(3_600),
            longest_login: Duration::from_secs(24 * 3_600),
            transaction_timeout: Duration::from_secs(300),
            session_timeout: Duration::from_secs(1_800),
            stall: Duration::from_secs(60),
            max_sessions: 1_024,
        }
    }
}

/// Flight SQL on a database. The header of this module describes it.
pub struct FlightSql {
    db: SqlDatabase,
    options: FlightSqlOptions,
    passwords: Passwords,
    /// Users by the tokens that they got for their passwords.
    logins: ExpiringMap<Login>,
    /// Sessions of clients that keep the server's cookie.
    clients: ExpiringMap<Arc<SessionLease>>,
    transactions: ExpiringMap<OpenTransaction>,
    /// By connection, the session of its last transaction.
    spare: ExpiringMap<Arc<SessionLease>>,
    prepared: ExpiringMap<Arc<PreparedStatement>>,
    results: ExpiringMap<Arc<Finished>>,
    /// Statements whose rows are being read, by the marks of their tickets.
    running: Running,
    sessions: AtomicI32,
}

impl std::fmt::Debug for FlightSql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlightSql").field("options", &self.options).finish_non_exhaustive()
    }
}

impl FlightSql {
    /// Flight SQL on `db`.
    pub fn new(db: SqlDatabase, options: FlightSqlOptions) -> Self {
        let (sessions, limit) = (options.session_timeout, options.max_sessions);
        Self {
            passwords: Passwords::default(),
            logins: ExpiringMap::new("token", options.login, 1 << 16),
            clients: ExpiringMap::new("session", sessions, limit),
            transactions: ExpiringMap::new("transaction", options.transaction_timeout, limit),
            spare: ExpiringMap::new("session", options.transaction_timeout, limit),
            prepared: ExpiringMap::new("prepared statement", sessions, limit),
            results: ExpiringMap::new("result", options.stall, limit),
            running: Arc::default(),
            // Other numbers than those of clients of PostgreSQL.
            sessions: AtomicI32::new(1 << 30),
            db,
            options,
        }
    }
}
