//! A cluster on this machine: servers of SeracDB with TPC-H, and the processes of an engine.

use crate::answer::Answer;
use crate::distributed::Workers;
use crate::layout::Layout;
use crate::processes::{Network, Process};
use crate::tables::{PARTITIONS_OF_WORKER, Sessions, Tables};
use crate::{Result, ServerArguments, measure, refresh};
use serac_workload::tpch::TABLES;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long nothing may hold a snapshot after the last query.
const RELEASE: Duration = Duration::from_secs(20);

/// A server of SeracDB.
pub struct Server {
    pub process: Process,
    pub flight: SocketAddr,
    pub pg: SocketAddr,
    metrics: SocketAddr,
}

/// A cluster's engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum EngineKind {
    /// datafusion-distributed.
    Distributed,
    /// Ballista.
    Ballista,
}

/// The processes of an engine, and the sessions that run on them.
pub struct Engine {
    pub sessions: Sessions,
    pub workers: Vec<Process>,
    scheduler: Option<(Process, SocketAddr)>,
    addresses: Vec<SocketAddr>,
}

/// Servers with TPC-H.
pub struct Cluster {
    pub tables: Tables,
    pub servers: Vec<Server>,
    arguments: ServerArguments,
    network: Arc<Network>,
    folder: PathBuf,
}

impl Cluster {
    /// Writes the data, loads it and starts the servers. Everything lies in `folder`.
    pub async fn start(layout: Layout, serac: &Path, folder: &Path, network: Arc<Network>) -> Result<Self> {
        let data = folder.join("parquet");
        layout.write(&data)?;
        if layout.servers > 1 {
            // Whole tables, to compare with.
            Layout { servers: 1, ..layout }.write(&folder.join("whole"))?;
        }
        // Its keys are random.
        let token = format!("{:016x}", RandomState::new().hash_one(folder));
        let mut servers = Vec::new();
        for number in 0..layout.servers {
            let database = folder.join(format!("database-{number}"));
            load(serac, &layout, number, &database, &data)?;
            let mut place = network.place()?;
            let (flight, pg, metrics) = (place.port()?, place.port()?, place.port()?);
            let mut arguments = vec!["serve".to_owned(), database.display().to_string(), "--allow-remote".into()];
            let ports = [("--flight", flight), ("--pg", pg), ("--metrics", metrics)];
            arguments.extend(ports.into_iter().flat_map(|(flag, at)| [flag.to_owned(), at.to_string()]));
            // Nobody waits for the disk: what is measured is reads.
            arguments.extend(["--durability", "relaxed", "--lease", "10s"].map(str::to_owned));
            let name = format!("server-{number}");
            let process = Process::new(name, serac, arguments, place, folder).with_variable("SERAC_TOKEN", &token);
            servers.push(Server { process, flight, pg, metrics });
        }
        for server in &servers {
            server.process.start()?;
            server.wait(&token).await?;
        }
        let server = |(number, server): (usize, &Server)| format!("server-{number}=grpc://{}", server.flight);
        let arguments = ServerArguments {
            server: servers.iter().enumerate().map(server).collect(),
            token: Some(token),
            partitions: 12,
        };
        let tables = Tables::new(layout, arguments.clone())?;
        Ok(Self { tables, servers, arguments, network, folder: folder.into() })
    }

    /// The folder of all tables' Parquet files.
    pub fn parquet(&self) -> PathBuf {
        self.folder.join(if self.servers.len() > 1 { "whole/0" } else { "parquet/0" })
    }

    /// Starts the processes of an engine with so many workers.
    pub async fn engine(&self, kind: EngineKind, workers: usize) -> Result<Engine> {
        let (mut engine_workers, mut addresses, mut scheduler) = (Vec::new(), Vec::new(), None);
        let program = std::env::current_exe()?;
        let process = |name: String, mut arguments: Vec<String>, place| {
            arguments.extend(self.arguments.server.iter().flat_map(|server| ["--server".to_owned(), server.clone()]));
            arguments.extend(["--partitions".to_owned(), self.arguments.partitions.to_string()]);
            let token = self.arguments.token.as_deref().unwrap_or_default();
            Process::new(name, &program, arguments, place, &self.folder).with_variable("SERAC_TOKEN", token)
        };
        if kind == EngineKind::Ballista {
            let mut place = self.network.place()?;
            let address = place.port()?;
            let arguments = ["scheduler", "--listen", &address.to_string(), "--executors", &workers.to_string()];
            let process = process("scheduler".into(), arguments.map(str::to_owned).into(), place);
            process.start()?;
            process.until_listening(address).await?;
            scheduler = Some((process, address));
        }
        for number in 0..workers {
            let mut place = self.network.place()?;
            let address = place.port()?;
            let (name, mut arguments) = match &scheduler {
                Some((_, scheduler)) => {
                    let (control, scheduler) = (place.port()?.port().to_string(), scheduler.to_string());
                    let folder = self.folder.join(format!("shuffle-{number}")).display().to_string();
                    let cores = PARTITIONS_OF_WORKER.to_string();
                    let arguments = ["executor", "--control", &control, "--scheduler", &scheduler, "--cores", &cores];
                    let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
                    arguments.extend(["--folder".to_owned(), folder]);
                    (format!("executor-{number}"), arguments)
                }
                None => (format!("worker-{number}"), vec!["worker".to_owned()]),
            };
            arguments.extend(["--listen".to_owned(), address.to_string()]);
            engine_workers.push(process(name, arguments, place));
            addresses.push(address);
        }
        let sessions = match &scheduler {
            Some((_, scheduler)) => {
                Sessions::Ballista { scheduler: *scheduler, partitions: workers * PARTITIONS_OF_WORKER }
            }
            None => Sessions::Distributed(Workers::new(addresses.clone())),
        };
        let engine = Engine { sessions, workers: engine_workers, scheduler, addresses };
        for number in 0..workers {
            engine.start_worker(number).await?;
        }
        engine.until_ready().await?;
        Ok(engine)
    }

    /// Runs a query by the PostgreSQL port of the only server.
    pub async fn sql(&self, sql: &str) -> Result<Answer> {
        let [server] = self.servers.as_slice() else { return Err("SQL is that of one server".into()) };
        Ok(Answer::of_sql(&refresh::connect(server.pg).await?.simple_query(sql).await?))
    }

    /// Kills a server, and starts it again.
    pub async fn restart(&self, number: usize) -> Result<()> {
        let server = &self.servers[number];
        server.process.start()?;
        server.wait(self.arguments.token.as_deref().unwrap_or_default()).await
    }

    /// Bytes that the servers have sent, if they have interfaces of their own.
    pub fn sent_bytes(&self) -> Option<u64> {
        self.servers.iter().map(|server| server.process.place.sent_bytes()).sum()
    }

    pub fn server_cpu_seconds(&self) -> f64 {
        self.servers.iter().map(|server| server.process.cpu_seconds()).sum()
    }

    /// The most memory that servers and workers have had, each since its last start.
    pub fn peak_memory(&self, engine: &Engine) -> String {
        let of = |process: &Process| measure::peak_megabytes(process.pid());
        let servers: Vec<_> = self.servers.iter().map(|server| of(&server.process)).collect();
        let workers: Vec<_> = engine.workers.iter().map(of).collect();
        format!("servers have used up to {servers:?} MB of memory, workers {workers:?}")
    }

    /// Waits until no server holds a snapshot.
    ///
    /// # Errors
    /// When one still does: then a lease has leaked.
    pub async fn nothing_is_held(&self) -> Result<()> {
        let end = Instant::now() + RELEASE;
        loop {
            let mut held = Vec::new();
            for server in &self.servers {
                held.push(measure::snapshots(server.metrics, self.arguments.token.as_deref()).await?);
            }
            if held.iter().all(|&held| held == 0) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("servers still hold snapshots: {held:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Makes a server's tables and loads them.
fn load(serac: &Path, layout: &Layout, server: usize, database: &Path, data: &Path) -> Result<()> {
    let run = |arguments: Vec<String>, input: Option<String>| -> Result<()> {
        let mut command = Command::new(serac);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        child.stdin.take().ok_or("no input")?.write_all(input.unwrap_or_default().as_bytes())?;
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("loading: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
    };
    let tables: Vec<_> = TABLES.into_iter().filter(|table| layout.has(server, table)).collect();
    let sql: Vec<_> = tables.iter().map(|table| table.create_sql(true) + ";\n").collect();
    let database = database.display().to_string();
    run(vec!["--standalone".into(), database.clone()], Some(sql.concat()))?;
    for table in tables {
        let file = data.join(server.to_string()).join(format!("{}.parquet", table.name)).display().to_string();
        run(["load", "--durability", "off", "--table", table.name, &database, &file].map(str::to_owned).into(), None)?;
    }
    Ok(())
}

impl Server {
    async fn wait(&self, token: &str) -> Result<()> {
        let metrics = self.metrics;
        self.process.until(async || measure::get(metrics, "/ready", Some(token)).await.is_ok()).await
    }
}

impl Engine {
    /// Starts a worker, also once more after its end.
    pub async fn start_worker(&self, number: usize) -> Result<()> {
        self.workers[number].start()?;
        self.workers[number].until_listening(self.addresses[number]).await
    }

    /// Waits until all workers take tasks.
    pub async fn until_ready(&self) -> Result<()> {
        match (&self.scheduler, &self.sessions) {
            (Some((process, address)), _) => {
                process.until(async || measure::get(*address, "/readyz", None).await.is_ok()).await
            }
            (None, Sessions::Distributed(workers)) => {
                workers.look().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub fn cpu_seconds(&self) -> f64 {
        let scheduler = self.scheduler.as_ref().map_or(0.0, |(process, _)| process.cpu_seconds());
        scheduler + self.workers.iter().map(Process::cpu_seconds).sum::<f64>()
    }
}
