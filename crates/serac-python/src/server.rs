//! The class `Server`: a database served from this process to clients on the network.
//!
//! A server has threads and a use of the database of its own, so it outlives the connection that
//! has started it. It ends by `stop()`, or with the process ([`stop_all`]).

use crate::ending;
use crate::error::IntoPython;
use crate::session::Core;
use crate::wait;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serac_connection::{DatabaseUse, OfProcess};
use serac_server::{
    FlightOptions, FlightServer, FlightSql, FlightSqlOptions, HttpAccess, HttpServer, Listener, PgOptions, PgServer,
    Readiness, Services, TlsConfig, Token, Verifier, tls_config,
};
use seracdb::SqlError;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Threads of a server besides those that wait for clients of PostgreSQL: one for each processor.
const THREADS: usize = 2;
/// Bytes of a thread's stack: procedures in Python run on it.
const STACK: usize = 16 << 20;
/// The time that tasks without an end of their own have when all services have ended.
const GRACE: Duration = Duration::from_secs(1);

/// The arguments of `Connection.serve`.
#[derive(Default)]
pub struct ServeOptions {
    /// Where clients of PostgreSQL connect.
    pub pg: Option<SocketAddr>,
    /// Where clients of Arrow Flight and Flight SQL connect.
    pub flight: Option<SocketAddr>,
    /// Where `/metrics`, `/ready` and `/live` are answered.
    pub metrics: Option<SocketAddr>,
    /// Passwords besides those of roles.
    pub users: HashMap<String, String>,
    /// A token for clients of Flight, and of `/metrics` on an address that other machines reach.
    pub token: Option<String>,
    /// Certificate and key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whether an address may be reached by other machines although somebody there could read
    /// without a password, or what passes between.
    pub allow_remote: bool,
    /// Connections at a time, for each service.
    pub max_connections: Option<usize>,
    /// The time that statements may go on after `stop()` before they are cancelled.
    pub shutdown_timeout: Option<Duration>,
}

/// An address "host:port"; port 0 for any that is free.
///
/// # Errors
/// `ValueError` for anything else.
pub fn address(name: &str, text: &str) -> PyResult<SocketAddr> {
    let wrong =
        || PyValueError::new_err(format!("{name} is an IP address with a port, as \"127.0.0.1:0\", not \"{text}\""));
    match text.strip_prefix("localhost:") {
        Some(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port.parse().map_err(|_| wrong())?))),
        None => text.parse().map_err(|_| wrong()),
    }
}

/// The options, checked and read.
struct Plan {
    options: ServeOptions,
    users: HashMap<String, Verifier>,
    token: Option<Token>,
    tls: Option<TlsConfig>,
}

impl Plan {
    fn new(options: ServeOptions) -> PyResult<Self> {
        let ServeOptions { pg, flight, metrics, .. } = &options;
        if [pg, flight, metrics].into_iter().all(Option::is_none) {
            return Err(PyValueError::new_err("say what to serve: pg, flight or metrics"));
        }
        let token = options.token.as_deref().map(|token| {
            let wrong = || PyValueError::new_err("a token consists of visible ASCII characters, and of one at least");
            Token::new(token).ok_or_else(wrong)
        });
        let tls = options.tls.as_ref().map(|(certificate, key)| tls_config(certificate, key));
        let tls = tls.transpose().map_err(PyValueError::new_err)?;
        let users = options.users.iter().map(|(user, password)| (user.clone(), Verifier::new(password))).collect();
        let plan = Self { users, token: token.transpose()?, tls, options };
        plan.check_addresses()?;
        Ok(plan)
    }

    /// Refuses addresses at which other machines could read without a password, or what passes.
    fn check_addresses(&self) -> PyResult<()> {
        let ServeOptions { pg, flight, metrics, allow_remote, .. } = &self.options;
        let has_secret = !self.users.is_empty();
        let services = [
            (pg, self.tls.is_some() && has_secret, "give users, tls_cert and tls_key"),
            (
                flight,
                self.tls.is_some() && (has_secret || self.token.is_some()),
                "give users or a token, tls_cert and tls_key",
            ),
            (metrics, false, "metrics name the tables"),
        ];
        for (address, is_guarded, what) in services {
            if let Some(address) = address.filter(|address| !address.ip().is_loopback())
                && !is_guarded
                && !allow_remote
            {
                return Err(PyValueError::new_err(format!(
                    "other machines can reach {}: {what}, use 127.0.0.1, or say allow_remote=True",
                    address.ip()
                )));
            }
        }
        Ok(())
    }

    fn pg_options(&self) -> PgOptions {
        let usual = PgOptions::default();
        PgOptions {
            users: self.users.clone(),
            tls: self.tls.clone(),
            require_tls: self.tls.is_some(),
            max_connections: self.options.max_connections.unwrap_or(usual.max_connections),
            shutdown_timeout: self.options.shutdown_timeout.unwrap_or(usual.shutdown_timeout),
            ..usual
        }
    }

    fn flight_options(&self) -> FlightOptions {
        let usual = FlightOptions::default();
        let max_connections = self.options.max_connections.unwrap_or(usual.max_connections);
        FlightOptions { tls: self.tls.clone(), max_connections, ..usual }
    }

    fn flight_sql_options(&self) -> FlightSqlOptions {
        let (users, token) = (self.users.clone(), self.token.clone());
        FlightSqlOptions { users, token, ..FlightSqlOptions::default() }
    }
}

/// Where the services of a server listen.
#[derive(Clone, Copy, Default)]
struct Addresses {
    pg: Option<SocketAddr>,
    flight: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

/// Services that listen, and where.
struct Listening {
    services: Services,
    http: Option<HttpServer>,
    readiness: Readiness,
    addresses: Addresses,
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> SqlError {
    let sqlstate = match error.kind() {
        io::ErrorKind::AddrInUse => sqlstate::OBJECT_IN_USE,
        io::ErrorKind::PermissionDenied => sqlstate::INSUFFICIENT_PRIVILEGE,
        _ => sqlstate::IO_ERROR,
    };
    SqlError::new(sqlstate, format!("cannot listen on {address}: {error}"))
}

/// Listens at the addresses of the plan. Nobody is answered yet.
async fn bind(plan: &Plan, usage: &DatabaseUse) -> Result<Listening, SqlError> {
    let db = usage.database();
    let listen = async |address| Listener::tcp(address).await.map_err(|error| cannot_listen(address, &error));
    let failed = |error: io::Error| SqlError::new(sqlstate::IO_ERROR, error.to_string());
    let (mut services, mut addresses) = (Services::default(), Addresses::default());
    let readiness = Readiness::default();
    if let Some(address) = plan.options.pg {
        let listeners = vec![listen(address).await?];
        addresses.pg = Some(Listener::address_of(&listeners).map_err(failed)?);
        services.pg = Some(PgServer::new(db.clone(), listeners, plan.pg_options()).map_err(failed)?);
    }
    if let Some(address) = plan.options.flight {
        let listeners = vec![listen(address).await?];
        addresses.flight = Some(Listener::address_of(&listeners).map_err(failed)?);
        let extension = Arc::new(FlightSql::new(db.clone(), plan.flight_sql_options()));
        let server = FlightServer::new(db.database().clone(), listeners, plan.flight_options());
        services.flight = Some(server.with_extension(extension));
    }
    let http = match plan.options.metrics {
        None => None,
        Some(address) => {
            let server = HttpServer::bind(db.clone(), address, readiness.clone()).await;
            let mut server = server.map_err(|error| cannot_listen(address, &error))?;
            if !address.ip().is_loopback() {
                server = server.with_access(HttpAccess { token: plan.token.clone(), users: plan.users.clone() });
            }
            addresses.metrics = Some(server.local_address().map_err(failed)?);
            Some(server)
        }
    };
    Ok(Listening { services, http, readiness, addresses })
}

/// Answers until `stop` is ready or dropped, and ends all services.
async fn serve(bound: Listening, stop: oneshot::Receiver<()>) {
    let Listening { services, http, readiness, .. } = bound;
    readiness.set(true);
    let http = async {
        match http {
            Some(server) => server.run(std::future::pending()).await,
            None => std::future::pending().await,
        }
    };
    let stop = async {
        let _ = stop.await;
        readiness.set(false);
    };
    tokio::select! {
        _ = services.run(stop) => {}
        () = http => unreachable!("nothing stops it"),
    }
}

/// The thread of a server, from its start to its end.
fn run(
    plan: &Plan,
    usage: DatabaseUse,
    told: &SyncSender<Result<Addresses, SqlError>>,
    stop: oneshot::Receiver<()>,
) -> Result<(), SqlError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("serac-server")
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .map_err(|error| SqlError::new(sqlstate::IO_ERROR, format!("a server cannot start: {error}")));
    let bound = runtime.and_then(|runtime: Runtime| Ok((runtime.block_on(bind(plan, &usage))?, runtime)));
    match bound {
        Ok((bound, runtime)) => {
            let _ = told.send(Ok(bound.addresses));
            runtime.block_on(serve(bound, stop));
            runtime.shutdown_timeout(GRACE);
        }
        Err(error) => {
            let _ = told.send(Err(error));
        }
    }
    // The last user of the database closes it.
    usage.close()
}

/// The thread of a server that runs.
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), SqlError>>,
}

/// A server's state, shared with the list of all.
struct Shared {
    addresses: Addresses,
    has_tls: bool,
    running: Mutex<Option<Running>>,
}

impl Shared {
    /// Ends the server and waits for its threads. Of several callers, the later ones wait for the
    /// first.
    fn stop(&self) -> Result<(), SqlError> {
        let mut running = self.running.lock();
        let Some(Running { stop, thread }) = running.take() else { return Ok(()) };
        let _ = stop.send(());
        let ended = thread.join();
        ended.unwrap_or_else(|panic| Err(SqlError::of_panic(&*panic)))
    }
}

/// The servers that a process has started.
type Servers = OfProcess<Mutex<Vec<Weak<Shared>>>>;

/// The servers that this process has started. A child of a fork has its own.
static SERVERS: Mutex<Option<Servers>> = Mutex::new(None);

fn note(shared: &Arc<Shared>) {
    let mut servers = SERVERS.lock();
    if !servers.as_ref().is_some_and(OfProcess::is_ours) {
        *servers = Some(OfProcess::new(Mutex::default()));
    }
    let mut servers = servers.as_ref().expect("just made sure of").lock();
    servers.retain(|server| server.strong_count() > 0);
    servers.push(Arc::downgrade(shared));
}

/// Ends all servers, at the end of the process.
///
/// # Errors
/// The first error of closing a database.
pub fn stop_all() -> Result<(), SqlError> {
    let servers = match &*SERVERS.lock() {
        Some(servers) if servers.is_ours() => std::mem::take(&mut *servers.lock()),
        _ => Vec::new(),
    };
    let running = servers.iter().filter_map(Weak::upgrade);
    running.map(|server| server.stop()).fold(Ok(()), Result::and)
}

/// A database that is served from this process. It ends with the process, or by `stop()`.
#[pyclass(frozen, weakref, module = "seracdb")]
pub struct Server {
    shared: OfProcess<Arc<Shared>>,
}

impl Server {
    /// Starts a server of the database of a connection.
    ///
    /// # Errors
    /// `ValueError` for wrong options; `OperationalError` if an address cannot be used.
    pub fn start(py: Python<'_>, core: &Arc<Core>, options: ServeOptions) -> PyResult<Self> {
        core.check(py)?;
        let plan = Plan::new(options)?;
        let has_tls = plan.tls.is_some();
        let (core, (told, addresses), (stop, stopped)) = (core.clone(), sync_channel(1), oneshot::channel());
        let started = ending::released(py, move || {
            let usage = core.session().another_use()?;
            let thread = std::thread::Builder::new().name("serac-server".into());
            let thread = thread.spawn(move || run(&plan, usage, &told, stopped));
            let thread = thread.map_err(|error| SqlError::new(sqlstate::IO_ERROR, error.to_string()))?;
            match addresses.recv() {
                Ok(Ok(addresses)) => {
                    let running = Mutex::new(Some(Running { stop, thread }));
                    let shared = Arc::new(Shared { addresses, has_tls, running });
                    note(&shared);
                    Ok(shared)
                }
                Ok(Err(error)) => thread.join().unwrap_or(Ok(())).and(Err(error)),
                // It has told of nothing, so it has panicked.
                Err(_) => match thread.join() {
                    Err(panic) => Err(SqlError::of_panic(&*panic)),
                    Ok(ended) => ended.and(Err(SqlError::new(sqlstate::INTERNAL_ERROR, "the server has not started"))),
                },
            }
        });
        Ok(Self { shared: OfProcess::new(started.python(py)?) })
    }

    fn url(&self, scheme: &str, address: Option<SocketAddr>) -> Option<String> {
        address.map(|address| format!("{scheme}://{address}"))
    }
}

#[pymethods]
impl Server {
    /// Where clients of PostgreSQL connect, as "postgresql://127.0.0.1:5432".
    #[getter]
    fn pg(&self) -> Option<String> {
        self.url("postgresql", self.shared.addresses.pg)
    }

    /// Where clients of Arrow Flight SQL connect, as "grpc://127.0.0.1:8815".
    #[getter]
    fn flight(&self) -> Option<String> {
        self.url(if self.shared.has_tls { "grpc+tls" } else { "grpc" }, self.shared.addresses.flight)
    }

    /// Where monitors ask, as "http://127.0.0.1:9090/metrics".
    #[getter]
    fn metrics(&self) -> Option<String> {
        self.url("http", self.shared.addresses.metrics).map(|url| url + "/metrics")
    }

    /// The services with their hosts and ports: {"pg": ("127.0.0.1", 5432)}.
    #[getter]
    fn addresses(&self) -> HashMap<&'static str, (String, u16)> {
        let Addresses { pg, flight, metrics } = self.shared.addresses;
        let all = [("pg", pg), ("flight", flight), ("metrics", metrics)];
        all.into_iter().filter_map(|(name, at)| at.map(|at| (name, (at.ip().to_string(), at.port())))).collect()
    }

    /// Whether the server answers.
    #[getter]
    fn running(&self) -> bool {
        // While another thread stops it, the lock is taken.
        self.shared.is_ours() && self.shared.running.try_lock().is_some_and(|running| running.is_some())
    }

    /// Ends the server: takes no new clients, lets statements go on for the shutdown timeout,
    /// cancels the rest, and waits for the server's threads. Later calls do nothing.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.check().python(py)?;
        let shared = Arc::clone(&self.shared);
        ending::released(py, move || shared.stop()).python(py)
    }

    /// Waits until another thread stops the server, or until Ctrl-C, which stops it.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.check().python(py)?;
        while self.running() {
            ending::released(py, || std::thread::sleep(wait::BETWEEN_LOOKS));
            if let Err(interrupt) = py.check_signals() {
                self.stop(py)?;
                return Err(interrupt);
            }
        }
        Ok(())
    }

    fn __enter__(server: Py<Self>) -> Py<Self> {
        server
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.stop(py)
    }

    fn __repr__(&self) -> String {
        let places: Vec<String> = [self.pg(), self.flight(), self.metrics()].into_iter().flatten().collect();
        let state = if self.running() { "" } else { " stopped" };
        format!("<seracdb.Server {}{state}>", places.join(" "))
    }
}
