//! TPC-H over SeracDB's tables on a cluster of datafusion-distributed or of Ballista.
//!
//! One binary is a scheduler, an executor, a worker, and what starts them all and runs queries.
//! `docs/book/src/guides/cluster.md` explains it.

mod answer;
mod ballista;
mod check;
mod cluster;
mod distributed;
mod executors;
mod figures;
mod layout;
mod logging;
mod measure;
mod processes;
mod refresh;
mod sliced;
mod tables;

use crate::ballista::ClusterCodec;
use crate::cluster::EngineKind;
use clap::{Args, Parser, Subcommand};
use serac_remote::{Remote, RemoteCodec, RemoteOptions};
use serac_workload::tpch::TABLES;
use std::net::SocketAddr;
use std::path::PathBuf;

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

/// The servers that a process may read.
#[derive(Args, Clone)]
pub struct ServerArguments {
    /// A server: NAME=ADDRESS, or several addresses of one server with commas between them
    #[arg(long, required = true)]
    pub server: Vec<String>,
    /// The token of all servers, which is that of the variable SERAC_TOKEN: others see arguments
    #[arg(skip = std::env::var("SERAC_TOKEN").ok())]
    pub token: Option<String>,
    /// Partitions of a scan
    #[arg(long, default_value_t = 12)]
    pub partitions: u32,
}

impl ServerArguments {
    pub fn remotes(&self) -> Result<Vec<Remote>> {
        let remote = |server: &String| {
            let (name, addresses) = server.split_once('=').ok_or("a server is NAME=ADDRESS")?;
            let options = RemoteOptions::new(addresses.split(',')).named(name).with_partitions(self.partitions);
            let options = match &self.token {
                Some(token) => options.with_token(token),
                None => options,
            };
            Ok(Remote::new(options)?)
        };
        self.server.iter().map(remote).collect()
    }

    pub fn codec(&self) -> Result<RemoteCodec> {
        Ok(RemoteCodec::new(self.remotes()?))
    }
}

#[derive(Parser)]
#[command(about = "TPC-H over SeracDB's tables on a cluster")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a worker of datafusion-distributed
    Worker {
        /// Where it listens
        #[arg(long)]
        listen: SocketAddr,
        #[command(flatten)]
        servers: ServerArguments,
    },
    /// Runs a scheduler of Ballista
    Scheduler {
        /// Where it listens
        #[arg(long)]
        listen: SocketAddr,
        /// Executors without which it is not ready
        #[arg(long, default_value_t = 1)]
        executors: usize,
        #[command(flatten)]
        servers: ServerArguments,
    },
    /// Runs an executor of Ballista
    Executor {
        /// Where other executors and clients fetch results
        #[arg(long)]
        listen: SocketAddr,
        /// The port on which the scheduler calls it
        #[arg(long)]
        control: u16,
        /// The scheduler
        #[arg(long)]
        scheduler: SocketAddr,
        /// Tasks at a time
        #[arg(long, default_value_t = 2)]
        cores: usize,
        /// Folder for results of tasks
        #[arg(long)]
        folder: PathBuf,
        #[command(flatten)]
        servers: ServerArguments,
    },
    /// Writes TPC-H as Parquet: FOLDER/SERVER/TABLE.parquet
    Data {
        /// Scale factor
        #[arg(long, default_value_t = 0.1)]
        scale: f64,
        /// Servers over which the tables are spread
        #[arg(long, default_value_t = 1)]
        shards: usize,
        folder: PathBuf,
    },
    /// Prints the tables' definitions as SQL
    Schema,
    /// Runs the 22 queries on a cluster that runs, and compares the answers with DataFusion's here
    Queries {
        /// The engine
        #[arg(long, value_enum, default_value_t = EngineKind::Distributed)]
        engine: EngineKind,
        /// Workers of datafusion-distributed, with commas between them
        #[arg(long, value_delimiter = ',')]
        workers: Vec<SocketAddr>,
        /// Ballista's scheduler
        #[arg(long)]
        scheduler: Option<SocketAddr>,
        /// Scale factor of the data
        #[arg(long, default_value_t = 0.1)]
        scale: f64,
        #[command(flatten)]
        servers: ServerArguments,
    },
    /// Starts servers and clusters on this machine, runs queries beside refresh transactions, kills
    /// workers and a server, and compares all answers
    Check(check::CheckArguments),
    /// Starts servers and clusters on this machine, and measures the 22 queries; prints JSON
    Figures(figures::FigureArguments),
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let command = Arguments::parse().command;
    if matches!(command, Command::Worker { .. } | Command::Scheduler { .. } | Command::Executor { .. }) {
        logging::begin();
    }
    let work = async {
        match command {
            Command::Worker { listen, servers } => distributed::worker(listen, servers.codec()?).await,
            Command::Scheduler { listen, executors, servers } => {
                ballista::scheduler(listen, executors, ClusterCodec::new(servers.codec()?)).await
            }
            Command::Executor { listen, control, scheduler, cores, folder, servers } => {
                let codec = ClusterCodec::new(servers.codec()?);
                ballista::executor(listen, control, scheduler, cores, &folder, codec).await
            }
            Command::Data { scale, shards, folder } => layout::Layout { servers: shards, scale }.write(&folder),
            Command::Schema => {
                TABLES.iter().for_each(|table| println!("{};", table.create_sql(true)));
                Ok(())
            }
            Command::Queries { engine, workers, scheduler, scale, servers } => {
                check::queries(engine, workers, scheduler, scale, servers).await
            }
            Command::Check(arguments) => check::check(arguments).await,
            Command::Figures(arguments) => figures::figures(arguments).await,
        }
    };
    let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("a runtime");
    // Dropping the work ends all processes that it has started.
    let outcome = tokio::select! {
        outcome = work => outcome,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        _ = ended.recv() => Err("ended by a signal".into()),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serac-cluster: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
