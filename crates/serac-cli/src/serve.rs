//! `serac serve`: a database for clients on the network.

use serac_export::flight::{FlightOptions, FlightServer, Token};
use serac_sql::SqlDatabase;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

const TOKEN_VARIABLE: &str = "SERAC_TOKEN";

#[derive(clap::Args, Debug, Clone)]
pub struct ServeArguments {
    /// Where the Arrow Flight service listens, such as 127.0.0.1:8815 (port 0: any that is free).
    #[arg(long, value_name = "ADDRESS")]
    flight: SocketAddr,
    /// Listens also on addresses that other machines reach. Nothing is encrypted, not even the token.
    #[arg(long)]
    allow_remote: bool,
    /// Seconds for which a flight's snapshot is held for its tickets.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    lease: u64,
    /// A token without which nobody is answered: clients send the header "authorization: Bearer TOKEN". Other users of this machine can see the
    /// arguments of a process; the environment variable SERAC_TOKEN says the same and is seen by nobody else.
    #[arg(long)]
    token: Option<String>,
    /// Connections at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 1024)]
    max_connections: usize,
    /// Streams at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 256)]
    max_streams: usize,
}

impl ServeArguments {
    /// Whether what is asked for is allowed.
    pub fn check(&self) -> Result<(), String> {
        if self.flight.ip().is_loopback() || self.allow_remote {
            return Ok(());
        }
        Err(format!(
            "{} can be reached by other machines, and nothing is encrypted: use 127.0.0.1, or say --allow-remote, and --token unless everybody who can connect may read everything",
            self.flight.ip()
        ))
    }

    fn options(&self) -> Result<FlightOptions, String> {
        let token = self.token.clone().or_else(|| std::env::var(TOKEN_VARIABLE).ok());
        let token = token
            .map(|token| Token::new(token).ok_or("a token consists of visible ASCII characters, and of one at least"));
        Ok(FlightOptions {
            token: token.transpose()?,
            lease: Duration::from_secs(self.lease),
            max_connections: self.max_connections,
            max_streams: self.max_streams,
            ..FlightOptions::default()
        })
    }
}

/// Serves until SIGINT or SIGTERM; then lets streams end, and writes a checkpoint if the database has a folder.
pub async fn run(db: &SqlDatabase, path: Option<&Path>, arguments: &ServeArguments) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(text)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(text)?;
    let server = FlightServer::bind(db.database().clone(), arguments.flight, arguments.options()?)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", arguments.flight))?;
    let address = server.local_address().map_err(text)?;
    let name = path.map_or_else(|| "a database in memory".into(), |path| path.display().to_string());
    println!("serving {name} over Arrow Flight at grpc://{address} (Ctrl-C ends it)");
    std::io::stdout().flush().map_err(text)?;
    server
        .run(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            eprintln!("stopping");
        })
        .await;
    if path.is_some() {
        db.database().checkpoint().map_err(|error| format!("the checkpoint failed: {error}"))?;
    }
    Ok(())
}
