//! `serac serve`: a database for clients on the network.

use serac_export::flight::{FlightOptions, FlightServer};
use serac_sql::SqlDatabase;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

#[derive(clap::Args, Debug, Clone)]
pub struct ServeArguments {
    /// Where the Arrow Flight service listens, such as 127.0.0.1:8815 (port 0: any that is free).
    #[arg(long, value_name = "ADDRESS")]
    flight: SocketAddr,
    /// Listens also on addresses that other machines reach. Nobody is asked who they are, and nothing is encrypted: everybody who can connect
    /// can read everything.
    #[arg(long)]
    allow_remote: bool,
    /// Seconds for which a flight's snapshot is held for its tickets.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    lease: u64,
}

impl ServeArguments {
    /// Whether what is asked for is allowed.
    pub fn check(&self) -> Result<(), String> {
        if self.flight.ip().is_loopback() || self.allow_remote {
            return Ok(());
        }
        Err(format!(
            "{} can be reached by other machines, and there is no authentication: use 127.0.0.1, or say --allow-remote if everybody who can connect may read everything",
            self.flight.ip()
        ))
    }
}

/// Serves until SIGINT or SIGTERM; then lets streams end, and writes a checkpoint if the database has a folder.
pub async fn run(db: &SqlDatabase, path: Option<&Path>, arguments: &ServeArguments) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(text)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(text)?;
    let options = FlightOptions { lease: Duration::from_secs(arguments.lease), ..FlightOptions::default() };
    let server = FlightServer::bind(db.database().clone(), arguments.flight, options)
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
