//! `serac serve`: a database for clients on the network.

use serac_export::flight::{FlightOptions, FlightServer, Token};
use serac_server::{FlightSql, FlightSqlOptions, PgOptions, PgServer, TlsConfig, Verifier, tls_config};
use serac_sql::SqlDatabase;
use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

const TOKEN_VARIABLE: &str = "SERAC_TOKEN";

#[derive(clap::Args, Debug, Clone)]
pub struct ServeArguments {
    /// Where clients of PostgreSQL connect, such as 127.0.0.1:5432 (port 0: any that is free).
    #[arg(long, value_name = "ADDRESS", required_unless_present = "flight")]
    pg: Option<SocketAddr>,
    /// Where clients of Arrow Flight and Flight SQL connect, such as 127.0.0.1:8815 (port 0: any that is free).
    #[arg(long, value_name = "ADDRESS")]
    flight: Option<SocketAddr>,
    /// Listens also on addresses that other machines reach, although somebody there could read without a password, or what passes between.
    #[arg(long)]
    allow_remote: bool,
    /// Passwords besides those of roles: a file with a line "user:password" for each. Without any password, everybody may connect.
    #[arg(long, value_name = "FILE")]
    passwords: Option<PathBuf>,
    /// A certificate (PEM) with which connections are encrypted; from then on clients must use TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Seconds for which a flight's snapshot is held for its tickets.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    lease: u64,
    /// A token without which nobody is answered by --flight, unless as one of --passwords: clients send the header "authorization: Bearer TOKEN". Other users of this machine can see the
    /// arguments of a process; the environment variable SERAC_TOKEN says the same and is seen by nobody else.
    #[arg(long)]
    token: Option<String>,
    /// The role as which clients of Flight read; without it, the bootstrap role, which may read everything.
    #[arg(long, value_name = "ROLE")]
    flight_role: Option<String>,
    /// Connections at a time, for each service.
    #[arg(long, value_name = "NUMBER", default_value_t = 1024)]
    max_connections: usize,
    /// Streams of --flight at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 256)]
    max_streams: usize,
    /// Seconds after which a transaction of Flight SQL is rolled back of which nothing is heard.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    flight_transaction_timeout: u64,
}

impl ServeArguments {
    /// Whether what is asked for is allowed.
    pub fn check(&self) -> Result<(), String> {
        let remote = |address: &Option<SocketAddr>| {
            address.map(|address| address.ip()).filter(|ip| !ip.is_loopback() && !self.allow_remote)
        };
        if let Some(ip) = remote(&self.flight)
            && (self.tls_cert.is_none() || (self.passwords.is_none() && self.token().is_none()))
        {
            return Err(format!(
                "{ip} can be reached by other machines: say --tls-cert and --tls-key, and --passwords or --token, use 127.0.0.1, or say --allow-remote"
            ));
        }
        if let Some(ip) = remote(&self.pg)
            && (self.passwords.is_none() || self.tls_cert.is_none())
        {
            return Err(format!(
                "{ip} can be reached by other machines: say --passwords, --tls-cert and --tls-key, use 127.0.0.1, or say --allow-remote"
            ));
        }
        Ok(())
    }

    fn users(&self) -> Result<HashMap<String, Verifier>, String> {
        let mut users = HashMap::new();
        if let Some(path) = &self.passwords {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let (user, password) = line
                    .split_once(':')
                    .filter(|(user, password)| !user.is_empty() && !password.is_empty())
                    .ok_or_else(|| format!("{}, line {}: not of the form user:password", path.display(), i + 1))?;
                users.insert(user.into(), Verifier::new(password));
            }
            if users.is_empty() {
                return Err(format!("{} names nobody", path.display()));
            }
        }
        Ok(users)
    }
    fn tls(&self) -> Result<Option<TlsConfig>, String> {
        let files = self.tls_cert.as_ref().zip(self.tls_key.as_ref());
        files.map(|(certificate, key)| tls_config(certificate, key)).transpose()
    }
    fn token(&self) -> Option<String> {
        self.token.clone().or_else(|| std::env::var(TOKEN_VARIABLE).ok())
    }

    fn pg_options(&self) -> Result<PgOptions, String> {
        let tls = self.tls()?;
        Ok(PgOptions {
            users: self.users()?,
            require_tls: tls.is_some(),
            tls,
            max_connections: self.max_connections,
            ..PgOptions::default()
        })
    }

    fn flight_sql_options(&self) -> Result<FlightSqlOptions, String> {
        let token = self
            .token()
            .map(|token| Token::new(token).ok_or("a token consists of visible ASCII characters, and of one at least"));
        Ok(FlightSqlOptions {
            token: token.transpose()?,
            role: self.flight_role.clone(),
            users: self.users()?,
            transaction_timeout: Duration::from_secs(self.flight_transaction_timeout),
            ..FlightSqlOptions::default()
        })
    }
    fn flight_options(&self) -> Result<FlightOptions, String> {
        Ok(FlightOptions {
            tls: self.tls()?,
            lease: Duration::from_secs(self.lease),
            max_connections: self.max_connections,
            max_streams: self.max_streams,
            ..FlightOptions::default()
        })
    }
}

/// Serves until SIGINT or SIGTERM; then lets statements and streams end, and writes a checkpoint if the database has a folder.
pub async fn run(db: &SqlDatabase, path: Option<&Path>, arguments: &ServeArguments) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(text)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(text)?;
    let listens = |address: SocketAddr| move |error: std::io::Error| format!("cannot listen on {address}: {error}");
    let name = path.map_or_else(|| "a database in memory".into(), |path| path.display().to_string());
    let mut lines = Vec::new();
    let pg = match arguments.pg {
        Some(address) => {
            let server =
                PgServer::bind(db.clone(), address, arguments.pg_options()?).await.map_err(listens(address))?;
            let address = server.local_address().map_err(text)?;
            lines.push(format!("serving {name} to clients of PostgreSQL at postgresql://{address} (Ctrl-C ends it)"));
            Some(server)
        }
        None => None,
    };
    let flight = match arguments.flight {
        Some(address) => {
            let (database, options) = (db.database().clone(), arguments.flight_options()?);
            let scheme = if options.tls.is_some() { "grpc+tls" } else { "grpc" };
            let extension = Arc::new(FlightSql::new(db.clone(), arguments.flight_sql_options()?));
            let server = FlightServer::bind(database, address, options).await.map_err(listens(address))?;
            let server = server.with_extension(extension);
            let address = server.local_address().map_err(text)?;
            lines.push(format!("serving {name} over Arrow Flight at {scheme}://{address} (Ctrl-C ends it)"));
            Some(server)
        }
        None => None,
    };
    lines.iter().for_each(|line| println!("{line}"));
    std::io::stdout().flush().map_err(text)?;
    let (stopping, stopped) = watch::channel(false);
    let stop = || {
        let mut stopped = stopped.clone();
        async move {
            // The sender lives until both have stopped.
            let _ = stopped.wait_for(|stopping| *stopping).await;
        }
    };
    let signals = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        eprintln!("stopping");
        let _ = stopping.send(true);
    };
    let pg = async {
        if let Some(server) = pg {
            server.run(stop()).await;
        }
    };
    let flight = async {
        if let Some(server) = flight {
            server.run(stop()).await;
        }
    };
    tokio::join!(signals, pg, flight);
    if path.is_some() {
        db.database().checkpoint().map_err(|error| format!("the checkpoint failed: {error}"))?;
    }
    Ok(())
}
