//! `serac serve`: a database for clients on the network, from its start to its end.

use crate::settings::{Flags, Settings};
use serac_engine::Database;
use serac_export::flight::{FlightOptions, FlightServer, Token};
use serac_export::rdma::RdmaOptions;
use serac_export::rdma::transport::Transport;
use serac_net::listen::Listener;
use serac_server::folder::{
    FolderOptions, FolderServer, SharedMemory, SharedMemoryOptions, open_to_serve, shared_memory,
};
use serac_server::operators::{Farewell, OperatorsOptions, OperatorsServer};
use serac_server::{
    FlightSql, FlightSqlOptions, HttpAccess, HttpServer, LocalPrograms, PgOptions, PgServer, Readiness, Services,
    TlsConfig, Verifier, tls_config,
};
use serac_sql::{Programs, SessionDefaults, SqlDatabase, SqlOptions};
use serac_storage::{Durability, StorageOptions};
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};
use tracing_subscriber::filter::LevelFilter;

#[derive(clap::Args, Debug, Clone)]
pub struct ServeArguments {
    /// Folder of the database; without it, or with `:memory:`, the database is in memory.
    path: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

/// The time that a process that has the folder open may take to hand it over.
const PATIENCE: Duration = Duration::from_secs(60);
/// The port in the name of a Unix socket, unless a TCP port is given.
const PG_PORT: u16 = 5432;

/// An address or socket at which a server listens.
enum Place {
    Address(SocketAddr),
    /// A Unix socket.
    Path(PathBuf),
}

/// The addresses for clients of the operator language. A text with a slash or without a colon is a
/// path.
fn places(settings: &Settings) -> Result<Vec<Place>, String> {
    let text = settings.text("operators").unwrap_or_default();
    let place = |word: &str| match word.parse() {
        Ok(address) => Ok(Place::Address(address)),
        Err(_) if word.contains('/') || !word.contains(':') => Ok(Place::Path(word.into())),
        Err(_) => Err(format!("--operators: \"{word}\" is neither an IP address with a port nor a path")),
    };
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(place).collect()
}

fn operators_options(settings: &Settings) -> Result<OperatorsOptions, String> {
    let usual = OperatorsOptions::default();
    Ok(OperatorsOptions {
        users: users(settings)?,
        tls: tls(settings)?,
        max_connections: settings.number("max_connections")?.unwrap_or(usual.max_connections),
        login_timeout: login_timeout(settings)?,
        shutdown_timeout: settings.duration("shutdown_timeout")?.unwrap_or_default(),
        statement_timeout: settings.duration("statement_timeout")?,
        idle_timeout: settings.duration("idle_session_timeout")?,
        slow_statement: settings.parsed("slow_query_ms")?.map(Duration::from_millis),
        memory_limit: settings.bytes("operators_memory")?.map(|bytes| bytes as u64),
        ..usual
    })
}

fn folder_options(settings: &Settings) -> Result<FolderOptions, String> {
    let usual = FolderOptions::default();
    let images = SharedMemoryOptions::default();
    let most_copied_bytes = settings.bytes("images_memory")?.map_or(images.most_copied_bytes, |bytes| bytes as u64);
    let images = SharedMemory::new(SharedMemoryOptions { most_copied_bytes, ..images });
    Ok(FolderOptions {
        images: Some(shared_memory(images)),
        max_connections: settings.number("max_connections")?.unwrap_or(usual.max_connections),
        login_timeout: login_timeout(settings)?,
        shutdown_timeout: settings.duration("shutdown_timeout")?.unwrap_or_default(),
        slow_statement: settings.parsed("slow_query_ms")?.map(Duration::from_millis),
        ..usual
    })
}

/// The runner of jobs' programs.
fn programs(settings: &Settings) -> Result<Arc<dyn Programs>, String> {
    let most_bytes = settings.bytes("programs_memory")?.map_or(LocalPrograms::MOST_BYTES, |bytes| bytes as u64);
    Ok(Arc::new(LocalPrograms::new(most_bytes)))
}

/// The parsed settings, read before any action.
struct Plan {
    pg: Option<SocketAddr>,
    pg_socket: Option<PathBuf>,
    flight: Option<SocketAddr>,
    flight_socket: Option<PathBuf>,
    operators: Vec<Place>,
    metrics: Option<SocketAddr>,
    pg_options: PgOptions,
    flight_options: FlightOptions,
    rdma: Option<Arc<dyn Transport>>,
    flight_sql_options: FlightSqlOptions,
    operators_options: OperatorsOptions,
    folder_options: FolderOptions,
    storage: StorageOptions,
    sql: SqlOptions,
    checkpoint_at_shutdown: bool,
}

impl Plan {
    fn new(path: Option<&Path>, settings: &Settings) -> Result<Self, String> {
        let plan = Self {
            pg: settings.parsed("pg")?,
            pg_socket: settings.parsed("pg_socket")?,
            flight: settings.parsed("flight")?,
            flight_socket: settings.parsed("flight_socket")?,
            operators: places(settings)?,
            metrics: settings.parsed("metrics")?,
            pg_options: pg_options(settings)?,
            flight_options: flight_options(settings)?,
            rdma: settings.text("flight_rdma").map(|device| open_rdma(&device)).transpose()?,
            flight_sql_options: flight_sql_options(settings)?,
            operators_options: operators_options(settings)?,
            folder_options: folder_options(settings)?,
            storage: storage_options(path, settings)?,
            sql: SqlOptions {
                memory_limit: settings.bytes_or_half("memory_limit")?,
                threads: settings.number("threads")?,
                session: session_defaults(settings)?,
                programs: Some(programs(settings)?),
            },
            checkpoint_at_shutdown: settings.switch("checkpoint_at_shutdown")?,
        };
        let has_socket = plan.pg_socket.is_some() || plan.flight_socket.is_some() || !plan.operators.is_empty();
        if plan.pg.is_none() && plan.flight.is_none() && !has_socket {
            return Err("say where to listen: --pg, --flight or --operators (or --pg-socket, --flight-socket), or pg, flight or operators in the file that --config names".into());
        }
        plan.check_addresses(settings.switch("allow_remote")?)?;
        Ok(plan)
    }

    /// Refuses addresses at which other machines could reach the data without a password, or read
    /// the traffic, unless `allow_remote` permits it.
    fn check_addresses(&self, allow_remote: bool) -> Result<(), String> {
        let remote = |address: &Option<SocketAddr>| {
            address.map(|address| address.ip()).filter(|ip| !ip.is_loopback() && !allow_remote)
        };
        if let Some(ip) = remote(&self.flight)
            && (self.flight_options.tls.is_none()
                || (self.flight_sql_options.users.is_empty() && self.flight_sql_options.token.is_none()))
        {
            return Err(format!(
                "{ip} can be reached by other machines: say --tls-cert and --tls-key, and --passwords or --token, use 127.0.0.1, or say --allow-remote"
            ));
        }
        if let Some(ip) = remote(&self.pg)
            && (self.pg_options.users.is_empty() || self.pg_options.tls.is_none())
        {
            return Err(format!(
                "{ip} can be reached by other machines: say --passwords, --tls-cert and --tls-key, use 127.0.0.1, or say --allow-remote"
            ));
        }
        for place in &self.operators {
            if let Place::Address(address) = place
                && let Some(ip) = remote(&Some(*address))
                && (self.operators_options.users.is_empty() || self.operators_options.tls.is_none())
            {
                return Err(format!(
                    "{ip} can be reached by other machines: say --passwords, --tls-cert and --tls-key, use 127.0.0.1, or say --allow-remote"
                ));
            }
        }
        if let Some(ip) = remote(&self.metrics) {
            return Err(format!(
                "{ip} can be reached by other machines, and the metrics name the tables: use 127.0.0.1, or say --allow-remote"
            ));
        }
        Ok(())
    }
}

fn storage_options(path: Option<&Path>, settings: &Settings) -> Result<StorageOptions, String> {
    path.map_or(Ok(()), crate::check_folder)?;
    let usual = StorageOptions::default();
    let levels = [("full", Durability::Full), ("relaxed", Durability::Relaxed), ("off", Durability::Off)];
    Ok(StorageOptions {
        path: path.map(Path::to_owned),
        durability: settings.word("durability", &levels)?,
        salvage: settings.switch("salvage")?,
        serves_others: path.is_some() && !settings.switch("standalone")?,
        freeze_after: settings.duration("freeze_after")?,
        gc_threads: settings.number("gc_threads")?.unwrap_or(usual.gc_threads),
        log_segment_bytes: settings.bytes("log_segment")?.map_or(usual.log_segment_bytes, |bytes| bytes as u64),
        ..usual
    })
}

fn session_defaults(settings: &Settings) -> Result<SessionDefaults, String> {
    Ok(SessionDefaults {
        statement_timeout: settings.duration("statement_timeout")?,
        idle_in_transaction_session_timeout: settings.duration("idle_in_transaction_session_timeout")?,
        idle_session_timeout: settings.duration("idle_session_timeout")?,
        work_mem: settings.bytes("work_mem")?,
        max_work_mem: settings.bytes("max_work_mem")?,
        max_connections: settings.number("max_connections")?.unwrap_or_default(),
    })
}

fn tls(settings: &Settings) -> Result<Option<TlsConfig>, String> {
    let file = |name| settings.parsed::<PathBuf>(name);
    match (file("tls_cert")?, file("tls_key")?) {
        (Some(certificate), Some(key)) => tls_config(&certificate, &key).map(Some),
        (None, None) => Ok(None),
        (Some(_), None) => Err("--tls-cert wants --tls-key beside it".into()),
        (None, Some(_)) => Err("--tls-key wants --tls-cert beside it".into()),
    }
}

/// The users in the file with passwords.
fn users(settings: &Settings) -> Result<HashMap<String, Verifier>, String> {
    settings.parsed::<PathBuf>("passwords")?.map_or_else(|| Ok(HashMap::new()), |path| read_passwords(&path))
}

fn pg_options(settings: &Settings) -> Result<PgOptions, String> {
    let usual = PgOptions::default();
    let tls = tls(settings)?;
    Ok(PgOptions {
        users: users(settings)?,
        require_tls: tls.is_some(),
        tls,
        max_connections: settings.number("max_connections")?.unwrap_or(usual.max_connections),
        max_message: settings.bytes("max_message")?.unwrap_or(usual.max_message),
        login_timeout: login_timeout(settings)?,
        shutdown_timeout: settings.duration("shutdown_timeout")?.unwrap_or_default(),
        slow_statement: settings.parsed("slow_query_ms")?.map(Duration::from_millis),
    })
}

/// A file with a line "user:password" each.
fn read_passwords(path: &Path) -> Result<HashMap<String, Verifier>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut users = HashMap::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (user, password) = line
            .split_once(':')
            .filter(|(user, password)| !user.is_empty() && !password.is_empty())
            .ok_or_else(|| format!("{}, line {}: not of the form user:password", path.display(), i + 1))?;
        users.insert(user.into(), Verifier::new(password));
    }
    if users.is_empty() { Err(format!("{} names no user", path.display())) } else { Ok(users) }
}

/// The time that a client may take to log in.
fn login_timeout(settings: &Settings) -> Result<Duration, String> {
    let ever = Duration::from_secs(u32::MAX.into());
    Ok(settings.duration("login_timeout")?.unwrap_or(ever))
}

fn flight_options(settings: &Settings) -> Result<FlightOptions, String> {
    let usual = FlightOptions::default();
    Ok(FlightOptions {
        tls: tls(settings)?,
        lease: settings.duration("lease")?.unwrap_or(usual.lease),
        max_connections: settings.number("max_connections")?.unwrap_or(usual.max_connections),
        login_timeout: login_timeout(settings)?,
        max_streams: settings.number("max_streams")?.unwrap_or(usual.max_streams),
        locations: flight_locations(settings)?,
        ..usual
    })
}

/// The most locations of an endpoint.
const MOST_LOCATIONS: usize = 16;
/// The location that stands for the connection over which a client has asked.
const REUSED_CONNECTION: &str = "arrow-flight-reuse-connection://?";

/// Where clients of Flight are told to read tables.
fn flight_locations(settings: &Settings) -> Result<Vec<String>, String> {
    let Some(given) = settings.text("flight_location") else { return Ok(Vec::new()) };
    let locations: Vec<_> = given.split(',').map(|location| location.trim().to_owned()).collect();
    if locations.len() > MOST_LOCATIONS {
        return Err(format!("flight_location: {} addresses, and there may be {MOST_LOCATIONS}", locations.len()));
    }
    match locations.iter().find(|location| *location != REUSED_CONNECTION && !is_flight_address(location)) {
        Some(invalid) => {
            Err(format!("flight_location: \"{invalid}\" is not of the form grpc://host:port or grpc+tls://host:port"))
        }
        None => Ok(locations),
    }
}

fn is_flight_address(text: &str) -> bool {
    let Some(("grpc" | "grpc+tcp" | "grpc+tls", rest)) = text.split_once("://") else { return false };
    let Some((host, port)) = rest.rsplit_once(':') else { return false };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(is_plain),
    };
    is_host && port.parse::<NonZeroU16>().is_ok()
}

/// An RDMA device by its name.
#[cfg(feature = "rdma")]
fn open_rdma(device: &str) -> Result<Arc<dyn Transport>, String> {
    let name = Some(device).filter(|device| *device != "any");
    let verbs = serac_export::rdma::Verbs::open_device(name);
    verbs.map(|verbs| Arc::new(verbs) as Arc<dyn Transport>).map_err(|error| format!("flight_rdma: {error}"))
}
#[cfg(not(feature = "rdma"))]
fn open_rdma(_: &str) -> Result<Arc<dyn Transport>, String> {
    Err("flight_rdma: this program was built without RDMA (cargo build --features serac-cli/rdma)".into())
}

fn flight_sql_options(settings: &Settings) -> Result<FlightSqlOptions, String> {
    let usual = FlightSqlOptions::default();
    let token = settings
        .text("token")
        .map(|token| Token::new(token).ok_or("a token consists of visible ASCII characters, and of one at least"));
    Ok(FlightSqlOptions {
        token: token.transpose()?,
        role: settings.text("flight_role"),
        users: users(settings)?,
        transaction_timeout: settings.duration("flight_transaction_timeout")?.unwrap_or(usual.transaction_timeout),
        ..usual
    })
}

/// Sends the server's log to standard error.
fn start_log(settings: &Settings) -> Result<(), String> {
    let levels = [
        ("info", LevelFilter::INFO),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    let level = settings.word("log_level", &levels)?;
    let is_json = settings.word("log_format", &[("human", false), ("json", true)])?;
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    let started = if is_json {
        log.json().flatten_event(true).try_init()
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).try_init()
    };
    started.map_err(|error| error.to_string())
}

/// Opens the database, and prints the findings.
fn open(plan: &Plan) -> Result<SqlDatabase, String> {
    let began = Instant::now();
    let tell =
        |holder: Option<u32>| info!(holder, "another process has the database open; waiting until it hands it over");
    let database = match plan.storage.path {
        Some(_) => open_to_serve(&plan.storage, PATIENCE, tell).map_err(|error| error.to_string())?,
        None => Database::open_with(plan.storage.clone()).map_err(|error| error.to_string())?,
    };
    let report = database.recovery_report();
    report.lost.iter().for_each(|lost| warn!(what = %lost, "damaged, and left out"));
    if let Some(cut) = &report.cut {
        warn!(what = %cut, "the log had an unfinished end, never acknowledged");
    }
    if let Some(folder) = &report.kept_aside {
        warn!(folder = %folder.display(), "the parts that were left out are kept");
    }
    let name = plan.storage.path.as_ref().map_or_else(|| "in memory".into(), |path| path.display().to_string());
    info!(
        database = name,
        seconds = began.elapsed().as_secs_f64(),
        transactions_replayed = report.transactions_replayed,
        log_bytes = report.log_bytes,
        "opened"
    );
    match plan.sql.memory_limit {
        Some(bytes) => info!(bytes, "memory for queries (memory_limit)"),
        None => info!("no limit of memory for queries (memory_limit)"),
    }
    SqlDatabase::new(database, &plan.sql).map_err(|error| error.to_string())
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// Serves until SIGINT or SIGTERM, or until a client of the operator language says `shutdown`. Then
/// lets statements and streams end, and writes a checkpoint if the database has a folder. A second
/// signal ends all that.
pub fn run(runtime: &tokio::runtime::Runtime, arguments: &ServeArguments) -> Result<(), String> {
    let settings = Settings::new(&arguments.flags, |name| std::env::var(name).ok())?;
    let plan = Plan::new(crate::folder(&arguments.path).as_deref(), &settings);
    if settings.print {
        print!("{}", settings.shown());
        return plan.map(|_| ());
    }
    let plan = plan?;
    start_log(&settings)?;
    info!(version = env!("CARGO_PKG_VERSION"), process = std::process::id(), "starting");
    let served = open(&plan).and_then(|db| match runtime.block_on(serve(&db, plan))? {
        Served::Ended { result, farewell } => {
            let result = result.and_then(|()| db.database().close().map_err(|error| error.to_string()));
            if let Some(farewell) = farewell {
                runtime.block_on(farewell.say(result.clone()));
            }
            result
        }
        Served::CutShort => {
            // Acknowledged commits under full durability are in the log already; here the rest of
            // the log follows.
            let flushed = db.database().storage().manager().log().map_or(Ok(()), |log| log.flush());
            flushed.map_err(|error| error.to_string())?;
            warn!("stopped at once, at a second signal");
            std::process::exit(1);
        }
    });
    match served {
        Ok(()) => {
            info!("stopped");
            Ok(())
        }
        Err(message) => {
            error!(message, "stopped by an error");
            // The error has been logged.
            Err(String::new())
        }
    }
}

fn cannot_listen(at: impl std::fmt::Display, error: &std::io::Error) -> String {
    format!("cannot listen on {at}: {error}")
}

/// Listens on an address and at a Unix socket, if given, and prints the places. `file` makes the
/// socket's path of the setting and of the address.
async fn listen(
    address: Option<SocketAddr>,
    scheme: &str,
    socket: Option<&Path>,
    file: impl Fn(&Path, Option<SocketAddr>) -> PathBuf,
) -> Result<(Vec<Listener>, String), String> {
    let (mut listeners, mut places, mut bound) = (Vec::new(), Vec::new(), None);
    if let Some(address) = address {
        listeners.push(Listener::tcp(address).await.map_err(|error| cannot_listen(address, &error))?);
        let address = Listener::address_of(&listeners).map_err(|error| error.to_string())?;
        places.push(format!("{scheme}://{address}"));
        bound = Some(address);
    }
    if let Some(socket) = socket {
        let path = std::path::absolute(file(socket, bound)).map_err(|error| error.to_string())?;
        listeners.push(Listener::unix(&path).map_err(|error| cannot_listen(path.display(), &error))?);
        places.push(path.display().to_string());
    }
    Ok((listeners, places.join(" and ")))
}

/// The end of serving.
enum Served {
    /// The server ended in order: nothing runs any more. `result`: whether the checkpoint could be
    /// written.
    Ended { result: Result<(), String>, farewell: Option<Farewell> },
    /// A second signal ended the server.
    CutShort,
}

/// Listens at the addresses for clients of the operator language, and returns a text that names
/// them.
async fn listen_for_operators(at: &[Place], tls: bool) -> Result<(Vec<Listener>, String), String> {
    let (mut listeners, mut places) = (Vec::new(), Vec::new());
    for place in at {
        let (address, socket) = match place {
            Place::Address(address) => (Some(*address), None),
            Place::Path(path) => (None, Some(path.as_path())),
        };
        let scheme = if tls { "operators+tls" } else { "operators" };
        let (more, place) = listen(address, scheme, socket, |path, _| path.to_owned()).await?;
        listeners.extend(more);
        places.push(place);
    }
    Ok((listeners, places.join(" and ")))
}

async fn serve(db: &SqlDatabase, plan: Plan) -> Result<Served, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut signals = Signals::new().map_err(text)?;
    let mut impatient = Signals::new().map_err(text)?;
    let name =
        plan.storage.path.as_ref().map_or_else(|| "a database in memory".into(), |path| path.display().to_string());
    let readiness = Readiness::default();
    let mut lines = Vec::new();
    let (listeners, places) = listen(plan.pg, "postgresql", plan.pg_socket.as_deref(), |folder, address| {
        folder.join(format!(".s.PGSQL.{}", address.map_or(PG_PORT, |address| address.port())))
    })
    .await?;
    let pg = if listeners.is_empty() {
        None
    } else {
        info!(at = places, tls = plan.pg_options.tls.is_some(), "listening for clients of PostgreSQL");
        lines.push(format!("serving {name} to clients of PostgreSQL at {places} (Ctrl-C ends it)"));
        Some(PgServer::new(db.clone(), listeners, plan.pg_options.clone()).map_err(text)?)
    };
    let scheme = if plan.flight_options.tls.is_some() { "grpc+tls" } else { "grpc" };
    let (listeners, places) =
        listen(plan.flight, scheme, plan.flight_socket.as_deref(), |path, _| path.to_owned()).await?;
    let flight = (!listeners.is_empty()).then(|| {
        info!(at = places, tls = plan.flight_options.tls.is_some(), "listening for Arrow Flight and Flight SQL");
        lines.push(format!("serving {name} over Arrow Flight at {places} (Ctrl-C ends it)"));
        let extension = Arc::new(FlightSql::new(db.clone(), plan.flight_sql_options.clone()));
        let server = FlightServer::new(db.database().clone(), listeners, plan.flight_options.clone());
        let server = server.with_extension(extension);
        match &plan.rdma {
            Some(transport) => server.with_rdma(transport.clone(), RdmaOptions::default()),
            None => server,
        }
    });
    let tls = plan.operators_options.tls.is_some();
    let (listeners, places) = listen_for_operators(&plan.operators, tls).await?;
    let operators = (!listeners.is_empty()).then(|| {
        info!(at = places, tls, "listening for clients of the operator language");
        lines.push(format!("serving {name} to clients of the operator language at {places} (Ctrl-C ends it)"));
        OperatorsServer::new(db.clone(), listeners, plan.operators_options.clone())
    });
    let folder = plan.storage.path.as_deref().filter(|_| plan.storage.serves_others);
    let folder = folder.map(|folder| FolderServer::start(db.clone(), folder, plan.folder_options.clone()));
    let folder = folder.transpose().map_err(|error| format!("processes of this machine cannot be served: {error}"))?;
    let http = match plan.metrics {
        Some(address) => {
            let server = HttpServer::bind(db.clone(), address, readiness.clone()).await;
            let mut server = server.map_err(|error| cannot_listen(address, &error))?;
            if !address.ip().is_loopback() {
                let FlightSqlOptions { token, users, .. } = plan.flight_sql_options.clone();
                server = server.with_access(HttpAccess { token, users });
            }
            let address = server.local_address().map_err(text)?;
            info!(%address, "listening for /metrics, /ready and /live");
            lines.push(format!("metrics at http://{address}/metrics"));
            Some(server)
        }
        None => None,
    };
    say(&lines);
    readiness.set(true);
    info!("ready");

    let shutdown_asked = operators.as_ref().map(OperatorsServer::shutdown_asked);
    let services = Services { pg, flight, operators, folder };
    let orderly = async {
        let stop = async {
            let asked = async {
                match shutdown_asked {
                    Some(asked) => asked.await,
                    None => std::future::pending().await,
                }
            };
            let cause = tokio::select! {
                signal = signals.next() => signal,
                () = asked => "shutdown",
            };
            info!(cause, connections = db.connections().rows().len(), "stopping");
            readiness.set(false);
        };
        let farewell = services.run(stop).await;
        let mut result = Ok(());
        if plan.storage.path.is_some() && plan.checkpoint_at_shutdown {
            let (began, database) = (Instant::now(), db.database().clone());
            let checkpoint = tokio::task::spawn_blocking(move || database.checkpoint()).await;
            result = match checkpoint {
                Ok(Ok(_)) => {
                    info!(seconds = began.elapsed().as_secs_f64(), "checkpoint written");
                    Ok(())
                }
                Ok(Err(error)) => Err(format!("the checkpoint failed: {error}")),
                Err(error) => Err(error.to_string()),
            };
        }
        Ok(Served::Ended { result, farewell })
    };
    // The HTTP server answers until all other servers have ended.
    let http = async {
        match http {
            Some(server) => server.run(std::future::pending()).await,
            None => std::future::pending().await,
        }
    };
    let second_signal = async {
        impatient.next().await;
        impatient.next().await;
    };
    tokio::select! {
        result = orderly => result,
        () = second_signal => Ok(Served::CutShort),
        () = http => unreachable!("nothing stops it"),
    }
}

/// Prints the places where the server listens. A closed output does not stop the server.
fn say(lines: &[String]) {
    let mut out = std::io::stdout().lock();
    lines.iter().for_each(|line| _ = writeln!(out, "{line}"));
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_of_flight_are_addresses() {
        for good in ["grpc://db.example:8815", "grpc+tls://10.0.0.1:1", "grpc+tcp://[::1]:65535", "grpc://a_b-c:80"] {
            assert!(is_flight_address(good), "{good}");
        }
        for bad in [
            "",
            "db.example:8815",
            "grpc://db.example",
            "grpc://:1",
            "grpc://a:0",
            "grpc://a:65536",
            "grpc://u@a:1",
            "grpc://a:1/path",
            "grpc://a b:1",
            "grpc://[::1:1",
            "grpc://::1:1",
            "http://a:1",
            "grpc+unix://a:1",
        ] {
            assert!(!is_flight_address(bad), "{bad}");
        }
    }
}
