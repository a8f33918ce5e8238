//! The listener: connections, their limits, and the end of all of them.

use super::connection::{left_first, serve};
use crate::passwords::Passwords;
use crate::pg::Verifier;
use crate::port::{self, Phase};
use serac_column_language::Operators;
use serac_net::listen::{Listener, Socket};
use serac_net::tls::TlsConfig;
use serac_sql::SqlDatabase;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::info;

/// The time that the last answers may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// The settings of the port.
#[derive(Clone, Debug)]
pub struct OperatorsOptions {
    /// Passwords of those who may connect, besides those of roles. If there are neither, everybody
    /// may.
    pub users: HashMap<String, Verifier>,
    /// Certificate and key. With them, clients over TCP must use TLS.
    pub tls: Option<TlsConfig>,
    /// Connections at a time, of clients that have logged in.
    pub max_connections: usize,
    /// The time that a client may take from the connection's beginning until it has logged in.
    pub login_timeout: Duration,
    /// The time that a client may stop reading an answer.
    pub write_timeout: Duration,
    /// The time that statements may go on after the stop before they are cancelled. After a
    /// client's `shutdown` there is no limit, except for loads whose client sends no data for this
    /// time.
    pub shutdown_timeout: Duration,
    /// The time that a statement may take; `None` for no limit.
    pub statement_timeout: Option<Duration>,
    /// The time that a connection may be idle; `None` for no limit.
    pub idle_timeout: Option<Duration>,
    /// Statements that take at least this long are logged; `None` for no log.
    pub slow_statement: Option<Duration>,
    /// Bytes that the variables of all clients may hold; `None` for the language's own limit.
    pub memory_limit: Option<u64>,
}

impl Default for OperatorsOptions {
    fn default() -> Self {
        Self {
            users: HashMap::new(),
            tls: None,
            max_connections: 1_024,
            login_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(300),
            shutdown_timeout: Duration::from_secs(5),
            statement_timeout: None,
            idle_timeout: None,
            slow_statement: None,
            memory_limit: None,
        }
    }
}

impl OperatorsOptions {
    /// Time between two looks at the clock that notice the end of the shortest limit.
    pub(super) fn tick(&self) -> Duration {
        let limits = [self.statement_timeout, self.idle_timeout, Some(self.shutdown_timeout)];
        limits.into_iter().flatten().min().unwrap_or_default() / 4
    }
}

/// The state that all connections share.
pub(super) struct OperatorServerState {
    pub(super) db: SqlDatabase,
    pub(super) operators: Operators,
    pub(super) options: OperatorsOptions,
    pub(super) tls: Option<TlsAcceptor>,
    /// Permits of clients that have logged in.
    pub(super) seats: Arc<Semaphore>,
    pub(super) passwords: Passwords,
    pub(super) phase: watch::Sender<Phase>,
    /// Whether a client has asked for the server's end.
    pub(super) asked: watch::Sender<bool>,
    /// The outcome of the server's end, for clients that have asked for it.
    pub(super) ended: watch::Sender<Option<Result<(), String>>>,
}

impl OperatorServerState {
    /// Ready when the server ends.
    pub(super) async fn stopped(&self) {
        left_first(self.phase.subscribe()).await;
    }
}

/// A server of the operator language that listens.
pub struct OperatorsServer {
    listeners: Vec<Listener>,
    adopted: Vec<Socket>,
    shared: Arc<OperatorServerState>,
}

impl std::fmt::Debug for OperatorsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperatorsServer").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

impl OperatorsServer {
    /// Answers clients of any of the listeners, once it [runs](Self::run). On Unix sockets there is
    /// no TLS, nor need of it.
    pub fn new(db: SqlDatabase, listeners: Vec<Listener>, options: OperatorsOptions) -> Self {
        let database = Arc::new(db.database().clone());
        let operators = match options.memory_limit {
            Some(limit) => Operators::with(database, limit, serac_column_language::Settings::default()),
            None => Operators::new(database),
        };
        let shared = OperatorServerState {
            operators,
            tls: options.tls.clone().map(TlsAcceptor::from),
            seats: Arc::new(Semaphore::new(options.max_connections.min(Semaphore::MAX_PERMITS))),
            passwords: Passwords::default(),
            phase: watch::Sender::new(Phase::Serving),
            asked: watch::Sender::new(false),
            ended: watch::Sender::new(None),
            db,
            options,
        };
        Self { listeners, adopted: Vec::new(), shared: Arc::new(shared) }
    }

    /// Serves a client that is there already, too.
    pub fn adopt(&mut self, client: Socket) {
        self.adopted.push(client);
    }

    /// The address where it listens.
    ///
    /// # Errors
    /// When there is no listener, or the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Listener::address_of(&self.listeners)
    }

    /// Ready when a client has asked for the server's end, which is the caller's to bring about.
    pub fn shutdown_asked(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut asked = self.shared.asked.subscribe();
        async move {
            if asked.wait_for(|asked| *asked).await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Answers until `stop` is ready. Then it takes no new connections, and begins no statements.
    /// Running statements may go on for the
    /// [`shutdown_timeout`](OperatorsOptions::shutdown_timeout), and are then cancelled. If a
    /// client has asked for the end, they have no limit. No statement runs any more when it
    /// returns.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Farewell {
        let Self { listeners, adopted, shared } = self;
        let (busy, mut all_ended) = mpsc::channel(1);
        let mut connections = JoinSet::new();
        let admission = port::admission(shared.options.max_connections);
        for socket in adopted {
            connections.spawn(serve(socket, shared.clone(), admission.enter(None), busy.clone()));
        }
        port::take_connections(listeners, &admission, &mut connections, stop, |connections, socket, place| {
            connections.spawn(serve(socket, shared.clone(), place, busy.clone()));
        })
        .await;
        drop(busy);
        shared.phase.send_replace(Phase::Stopping);
        let timeout = if *shared.asked.borrow() { Duration::MAX } else { shared.options.shutdown_timeout };
        if tokio::time::timeout(timeout, all_ended.recv()).await.is_err() {
            info!("statements of operators are cancelled");
            shared.phase.send_replace(Phase::Cancelling);
            let _ = tokio::time::timeout(port::GRACE, all_ended.recv()).await;
        }
        Farewell { shared, connections }
    }
}

/// Clients that have asked for the server's end, and wait for it.
#[must_use]
pub struct Farewell {
    shared: Arc<OperatorServerState>,
    connections: JoinSet<()>,
}

impl std::fmt::Debug for Farewell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Farewell").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}

impl Farewell {
    /// Answers them: the database is closed, or could not be, for this reason.
    pub async fn say(mut self, result: Result<(), String>) {
        self.shared.ended.send_replace(Some(result));
        let _ = tokio::time::timeout(FAREWELL, async { while self.connections.join_next().await.is_some() {} }).await;
    }
}
