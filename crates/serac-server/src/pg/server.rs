//! The listener: connections, their limits, and cancellation.

use super::connection::Stop;
use super::login::{Origin, serve};
use super::reactor::Reactor;
use super::scram::{Mock, Verifier};
use crate::port;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use serac_net::listen::Listener;
use serac_sql::SqlDatabase;
use serac_sql::activity::Activity;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tracing::info;

/// The settings of the port.
#[derive(Clone, Debug)]
pub struct PgOptions {
    /// Passwords of those who may connect, besides those of roles. If there are neither, everybody
    /// may.
    pub users: HashMap<String, Verifier>,
    /// Certificate and key; `None` for connections without TLS only.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether a client must use TLS.
    pub require_tls: bool,
    /// Connections at a time, of clients that have logged in.
    pub max_connections: usize,
    /// Longest message that a client may send, in bytes.
    pub max_message: usize,
    /// The time that a client may take from the connection's beginning until it has logged in.
    pub login_timeout: Duration,
    /// The time that statements may go on after the stop before they are cancelled.
    pub shutdown_timeout: Duration,
    /// Statements that take at least this long are logged; `None` for no log.
    pub slow_statement: Option<Duration>,
}

impl Default for PgOptions {
    fn default() -> Self {
        Self {
            users: HashMap::new(),
            tls: None,
            require_tls: false,
            max_connections: 1_024,
            max_message: 256 << 20,
            login_timeout: Duration::from_secs(60),
            shutdown_timeout: Duration::from_secs(5),
            slow_statement: None,
        }
    }
}

/// The state that all connections share.
pub(super) struct ServerState {
    pub(super) db: SqlDatabase,
    pub(super) options: PgOptions,
    pub(super) tls: Option<TlsAcceptor>,
    /// Permits of clients that have logged in.
    pub(super) seats: Arc<Semaphore>,
    /// Verifiers of unknown names.
    pub(super) mock: Mock,
    running: Mutex<HashMap<i32, (i32, Arc<Activity>)>>,
}

impl ServerState {
    /// Keeps a secret with which a connection's statements can be cancelled.
    pub(super) fn enter(self: &Arc<Self>, activity: Arc<Activity>) -> Entry {
        let mut secret = [0; 4];
        SystemRandom::new().fill(&mut secret).expect("the system has random numbers");
        let secret = i32::from_be_bytes(secret);
        self.running.lock().insert(activity.process(), (secret, activity.clone()));
        Entry { shared: self.clone(), process: activity.process(), secret }
    }

    /// Cancels a session's statement, if the secret matches.
    pub(super) fn cancel(&self, process: i32, secret: i32) {
        if let Some((_, activity)) = self.running.lock().get(&process).filter(|(own, _)| *own == secret) {
            activity.cancel();
        }
    }
}

/// A connection's secret, up to its end.
pub(super) struct Entry {
    shared: Arc<ServerState>,
    process: i32,
    pub(super) secret: i32,
}

impl Entry {
    pub(super) fn process(&self) -> i32 {
        self.process
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.running.lock().remove(&self.process);
    }
}

/// A server of PostgreSQL's protocol that listens.
pub struct PgServer {
    listeners: Vec<Listener>,
    reactors: Vec<Arc<Reactor>>,
    shared: Arc<ServerState>,
}

impl std::fmt::Debug for PgServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PgServer").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

impl PgServer {
    /// Listens on `address` (port 0: any that is free). Nothing is answered before
    /// [`run`](Self::run).
    ///
    /// # Errors
    /// When the address cannot be used.
    pub async fn bind(db: SqlDatabase, address: SocketAddr, options: PgOptions) -> io::Result<Self> {
        Self::new(db, vec![Listener::tcp(address).await?], options)
    }

    /// Answers clients of any of the listeners. On Unix sockets there is no TLS, nor need of it.
    ///
    /// # Errors
    /// When there are no threads for the connections.
    pub fn new(db: SqlDatabase, listeners: Vec<Listener>, options: PgOptions) -> io::Result<Self> {
        let tls = options.tls.clone().map(TlsAcceptor::from);
        let seats = Arc::new(Semaphore::new(options.max_connections.min(Semaphore::MAX_PERMITS)));
        let shared =
            Arc::new(ServerState { db, options, tls, seats, mock: Mock::default(), running: Mutex::default() });
        Ok(Self { listeners, reactors: Reactor::start_all()?, shared })
    }

    /// The address where it listens.
    ///
    /// # Errors
    /// When there is no listener, or the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Listener::address_of(&self.listeners)
    }

    /// Serves one client on a stream of the program's own, such as one in memory, to its end. There
    /// is no TLS on it.
    pub async fn serve_stream<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: S) {
        let origin = Origin { address: None, is_local: true };
        let place = port::admission(self.shared.options.max_connections).enter(None);
        // The server does not stop while it is asked for this.
        let (_running, stopped) = watch::channel(false);
        let reactor = Reactor::least_busy(&self.reactors);
        serve(stream, origin, self.shared.clone(), reactor, Stop(stopped), place).await;
    }

    /// Answers until `stop` is ready. Then it takes no new connections, closes idle ones, lets
    /// statements go on for the [`shutdown_timeout`](PgOptions::shutdown_timeout), and cancels the
    /// rest.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listeners, reactors, shared } = self;
        let (stopping, stopped) = watch::channel(false);
        let stopped = Stop(stopped);
        let mut connections = JoinSet::new();
        let admission = port::admission(shared.options.max_connections);
        port::take_connections(listeners, &admission, &mut connections, stop, |connections, socket, place| {
            let reactor = Reactor::least_busy(&reactors);
            if let Ok(socket) = reactor.adopt(socket) {
                let origin = Origin::of(&socket);
                connections.spawn(serve(socket, origin, shared.clone(), reactor, stopped.clone(), place));
            }
        })
        .await;
        let _ = stopping.send(true);
        let mut all_ended = async || while connections.join_next().await.is_some() {};
        if tokio::time::timeout(shared.options.shutdown_timeout, all_ended()).await.is_err() {
            let left: Vec<_> = shared.running.lock().values().map(|(_, activity)| activity.clone()).collect();
            info!(connections = left.len(), "statements are cancelled");
            left.iter().for_each(|activity| activity.terminate());
            let _ = tokio::time::timeout(port::GRACE, all_ended()).await;
        }
    }
}
