//! The listener: connections, their limits, and who may cancel what.

use super::connection::Stop;
use super::login::serve;
use super::scram::Verifier;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use serac_sql::{CancelHandle, SqlDatabase};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// How long statements may go on after the stop.
const GRACE: Duration = Duration::from_secs(5);
/// Wait after a failed accept (no file descriptors left, for example).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How connections are taken.
#[derive(Clone, Debug)]
pub struct PgOptions {
    /// Passwords of those who may connect, besides those of roles. If there are neither, everybody may.
    pub users: HashMap<String, Verifier>,
    /// Certificate and key; none for connections without TLS only.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether a client must use TLS.
    pub require_tls: bool,
    /// Connections at a time.
    pub max_connections: usize,
    /// Longest message that a client may send, in bytes.
    pub max_message: usize,
    /// How long a client may take to say who it is.
    pub login_timeout: Duration,
    /// How long a connection may stay idle with a transaction open; none for ever.
    pub idle_in_transaction_timeout: Option<Duration>,
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
            idle_in_transaction_timeout: None,
        }
    }
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) db: SqlDatabase,
    pub(super) options: PgOptions,
    pub(super) tls: Option<TlsAcceptor>,
    running: Mutex<HashMap<i32, (i32, CancelHandle)>>,
    processes: AtomicI32,
}

impl Shared {
    /// Registers a session under a number and a secret with which its statements can be cancelled.
    pub(super) fn enter(self: &Arc<Self>, cancel: CancelHandle) -> Entry {
        // Relaxed: numbers need only differ.
        let process = self.processes.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let mut secret = [0; 4];
        SystemRandom::new().fill(&mut secret).expect("the system has random numbers");
        let secret = i32::from_be_bytes(secret);
        self.running.lock().insert(process, (secret, cancel));
        Entry { shared: self.clone(), process, secret }
    }
    /// Cancels what a session runs, if the secret is its.
    pub(super) fn cancel(&self, process: i32, secret: i32) {
        if let Some((_, cancel)) = self.running.lock().get(&process).filter(|(own, _)| *own == secret) {
            cancel.cancel();
        }
    }
}

/// A registered session.
pub(super) struct Entry {
    shared: Arc<Shared>,
    pub(super) process: i32,
    pub(super) secret: i32,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.running.lock().remove(&self.process);
    }
}

/// A server of PostgreSQL's protocol that listens.
pub struct PgServer {
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for PgServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PgServer").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl PgServer {
    /// Listens on `address` (port 0: any that is free). Nothing is answered before [`run`](Self::run).
    ///
    /// # Errors
    /// When the address cannot be used.
    pub async fn bind(db: SqlDatabase, address: SocketAddr, options: PgOptions) -> io::Result<Self> {
        let tls = options.tls.clone().map(TlsAcceptor::from);
        let shared = Shared { db, options, tls, running: Mutex::default(), processes: AtomicI32::new(1) };
        Ok(Self { listener: TcpListener::bind(address).await?, shared: Arc::new(shared) })
    }
    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` is ready. Then it takes no new connections, closes idle ones, lets statements go on for a few seconds, and cancels what is
    /// left.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let stopped = Stop(stopped);
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, _)) => {
                        // Small answers shall not wait for more.
                        let _ = socket.set_nodelay(true);
                        let is_full = connections.len() >= self.shared.options.max_connections;
                        connections.spawn(serve(socket, self.shared.clone(), stopped.clone(), is_full));
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        let _ = stopping.send(true);
        let mut all_ended = async || while connections.join_next().await.is_some() {};
        if tokio::time::timeout(GRACE, all_ended()).await.is_err() {
            self.shared.running.lock().values().for_each(|(_, cancel)| cancel.cancel());
            let _ = tokio::time::timeout(GRACE, all_ended()).await;
        }
    }
}
