//! Figure 15 of the paper: the table goes to a client by each mechanism, with different shares of
//! hot blocks. Measured are throughput and the processor time of the server.
//!
//! | mechanism | server | client |
//! |---|---|---|
//! | Flight | `serac_export::flight` | arrow-flight's, in a process of its own |
//! | vectorised protocol | [`vectorised`] over `scan_arrow` | makes Arrow arrays, in that process |
//! | PostgreSQL's protocol | `serac_server`'s | makes Arrow arrays of the texts, in that process |
//! | client-side RDMA | writes into the client's memory | threads of the server's process |
//! | server-side RDMA | lends frozen blocks, sends hot ones | threads of the server's process |
//! | shared memory | checkpointed; copies what has become hot since | maps the image, in the process of its own |
//!
//! The client ([`client`](super::client)) puts all rows through a linear unit. The server of all
//! mechanisms is this process: its processor time is that of the process less that of the client's
//! threads in it.
//!
//! RDMA goes over the loopback transport. It checks keys and copies as a device does, but by a
//! thread: a thread of the server if the server writes, a thread of the client if the client reads.
//! So it shows which side copies and how often, not the speed of a network card.

use super::client::{Client, Measured, Mechanism, Servers, THREADS};
use super::linear_unit::{LinearUnit, Totals};
use super::{ExportArguments, Source, by_turns, vectorised};
use crate::freeze::arrow_size;
use crate::peer::Peer;
use crate::recorder::Recorder;
use crate::report::{Report, median};
use crate::setup::{Folder, cpu_seconds, named_threads_cpu_seconds, text};
use arrow::array::RecordBatch;
use indicatif::{ProgressBar, ProgressStyle};
use serac_engine::DecimalForm;
use serac_export::flight::{FlightOptions, FlightServer};
use serac_export::rdma::transport::Transport;
use serac_export::rdma::{Loopback, RdmaOptions};
use serac_server::folder::{FolderOptions, FolderServer};
use serac_server::{PgOptions, PgServer};
use serac_storage::{Durability, StorageOptions};
use serde_json::json;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The time that a client's thread may take to leave the processor after its answer. Its processor
/// time is exact only from then on.
const SETTLING: Duration = Duration::from_millis(2);

/// The same table in a folder, checkpointed, for shared memory. The order of the fields is that in
/// which they end.
struct OnDisk {
    server: FolderServer,
    source: Source,
    folder: Folder,
}

impl OnDisk {
    fn open(arguments: &ExportArguments, folder: Folder) -> Result<Self, String> {
        std::fs::create_dir_all(&folder.0).map_err(text)?;
        let path = std::path::absolute(&folder.0).map_err(text)?;
        let options = StorageOptions {
            path: Some(path.clone()),
            durability: Durability::Off,
            serves_others: true,
            ..StorageOptions::default()
        };
        let source = Source::load(arguments, options)?;
        source.db.database().checkpoint().map_err(text)?;
        let server = FolderServer::start(source.db.clone(), &path, FolderOptions::default()).map_err(text)?;
        Ok(Self { server, source, folder })
    }
}

/// All servers, and the tables that they serve.
struct Exporter {
    /// The table in memory, for all mechanisms but shared memory.
    source: Source,
    on_disk: Option<OnDisk>,
    servers: Servers,
    loopback: Loopback,
    /// The totals that every client must find.
    totals: Totals,
    /// The bytes of the table in Arrow.
    bytes: usize,
    /// Runs the servers.
    _runtime: Runtime,
}

impl Exporter {
    fn start(arguments: &ExportArguments, folder: Option<Folder>) -> Result<Self, String> {
        let source = Source::load(arguments, StorageOptions::default())?;
        let on_disk = folder.map(|folder| OnDisk::open(arguments, folder)).transpose()?;
        let batches = source.scan(DecimalForm::Decimal64)?;
        let batches: Vec<RecordBatch> = batches.collect::<Result<_, _>>().map_err(text)?;
        let first = batches.first().ok_or("the table is empty")?;
        let weights = LinearUnit::fitting_weights(first.columns())?;
        let mut unit = LinearUnit::new(weights.clone());
        batches.iter().try_for_each(|batch| unit.add(batch.columns()))?;
        let bytes = batches.iter().flat_map(|batch| batch.columns()).map(arrow_size).sum::<Result<_, _>>()?;
        drop(batches);

        let loopback = Loopback::default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("figure-server")
            // Planning needs more than the default where nothing is optimised.
            .thread_stack_size(16 << 20)
            .enable_all()
            .build()
            .map_err(text)?;
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let (flight, postgres) = runtime.block_on(async {
            let database = source.db.database().clone();
            // A session for one-sided access outlasts the turns of the other mechanisms.
            let options = FlightOptions { lease: Duration::from_secs(3600), ..FlightOptions::default() };
            let flight = FlightServer::bind(database, any_port, options).await.map_err(text)?;
            // All of the table may be leased at a time.
            let options = RdmaOptions { max_bytes: u64::MAX, max_pieces: 1 << 16, ..RdmaOptions::default() };
            let flight = flight.with_rdma(Arc::new(loopback.clone()), options);
            let postgres = PgServer::bind(source.db.clone(), any_port, PgOptions::default()).await.map_err(text)?;
            let addresses = (flight.local_address().map_err(text)?, postgres.local_address().map_err(text)?);
            tokio::spawn(flight.run(std::future::pending()));
            tokio::spawn(postgres.run(std::future::pending()));
            Ok::<_, String>(addresses)
        })?;
        let vectorised = serve_vectorised(source.clone())?;
        let folder = on_disk.as_ref().map(|on_disk| std::path::absolute(&on_disk.folder.0));
        let servers = Servers {
            table: source.table.name().to_owned(),
            flight,
            vectorised,
            postgres,
            folder: folder.transpose().map_err(text)?,
            weights,
        };
        Ok(Self { source, on_disk, servers, loopback, totals: unit.totals(), bytes, _runtime: runtime })
    }

    /// Thaws blocks of all copies of the table; the percentage that is hot then.
    fn thaw(&self, percent: u32) -> Result<f64, String> {
        if let Some(on_disk) = &self.on_disk {
            on_disk.source.thaw(percent)?;
        }
        self.source.thaw(percent)
    }

    fn check(&self, mechanism: Mechanism, measured: &Measured) -> Result<(), String> {
        if measured.totals.agree(&self.totals) {
            return Ok(());
        }
        Err(format!("{}: the client has {:?} in place of {:?}", mechanism.name(), measured.totals, self.totals))
    }

    fn end(self) {
        if let Some(OnDisk { server, source, folder }) = self.on_disk {
            server.stop();
            drop(source);
            drop(folder);
        }
    }
}

/// Sends the table to every client that connects, as long as the process runs.
fn serve_vectorised(source: Source) -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    let address = listener.local_addr().map_err(text)?;
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let sent = socket.map_err(text).and_then(|mut socket| {
                socket.set_nodelay(true).map_err(text)?;
                vectorised::send(&mut source.scan(DecimalForm::Decimal64)?, &mut socket)
            });
            if let Err(error) = sent {
                eprintln!("vectorised protocol: {error}");
            }
        }
    });
    Ok(address)
}

/// The client as threads of this process.
struct ClientThreads {
    requests: Sender<Mechanism>,
    answers: Receiver<Result<Measured, String>>,
}

impl ClientThreads {
    fn start(servers: Servers, transport: Arc<dyn Transport>) -> Result<Self, String> {
        let ((requests, asked), (answer, answers)) = (channel(), channel());
        let work = move || {
            let cpu = || named_threads_cpu_seconds(THREADS);
            let mut client = match Client::connect(servers, Some(transport), cpu) {
                Ok(client) => client,
                Err(error) => {
                    // Nobody waits for it any more if this fails.
                    let _ = answer.send(Err(error));
                    return;
                }
            };
            for mechanism in asked {
                if answer.send(client.run(mechanism)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name(format!("{THREADS}-0")).spawn(work).map_err(text)?;
        Ok(Self { requests, answers })
    }

    fn ask(&self, mechanism: Mechanism) -> Result<Measured, String> {
        // If the thread has ended, its answer says why.
        let _ = self.requests.send(mechanism);
        self.answers.recv().map_err(text)?
    }
}

/// The clients that the mechanisms need.
struct Clients {
    process: Option<Peer>,
    threads: Option<ClientThreads>,
}

impl Clients {
    fn start(exporter: &Exporter, mechanisms: &[Mechanism]) -> Result<Self, String> {
        let mut process = None;
        if mechanisms.iter().any(|mechanism| !mechanism.is_one_sided()) {
            // With --json the program prints no table of its own at the end.
            let mut command = Command::new(std::env::current_exe().map_err(text)?);
            let (mut peer, _) = Peer::run(command.args(["export", "--client", "--json"]))?;
            peer.ask(&serde_json::to_string(&exporter.servers).map_err(text)?)?;
            process = Some(peer);
        }
        let threads = if mechanisms.iter().any(|mechanism| mechanism.is_one_sided()) {
            // This client does not use the folder.
            let servers = Servers { folder: None, ..exporter.servers.clone() };
            Some(ClientThreads::start(servers, Arc::new(exporter.loopback.clone()))?)
        } else {
            None
        };
        Ok(Self { process, threads })
    }

    /// Measures a run. Returns its figures and the seconds of processor time of the server.
    fn measure(&mut self, mechanism: Mechanism) -> Result<(Measured, f64), String> {
        let server_cpu = || cpu_seconds() - named_threads_cpu_seconds(THREADS);
        let before = server_cpu();
        let measured = if mechanism.is_one_sided() {
            self.threads.as_ref().ok_or("there is no client with one-sided access")?.ask(mechanism)?
        } else {
            let request = serde_json::to_string(&mechanism).map_err(text)?;
            let answer = self.process.as_mut().ok_or("there is no client")?.ask(&request)?;
            serde_json::from_value(answer).map_err(text)?
        };
        std::thread::sleep(SETTLING);
        Ok((measured, server_cpu() - before))
    }
}

/// The medians of one mechanism at one percentage.
struct Point {
    mechanism: Mechanism,
    hot: f64,
    megabytes_per_second: f64,
    result_ms: f64,
    server_seconds_per_gigabyte: f64,
}

pub fn run(arguments: &ExportArguments, report: &mut Report) -> Result<(), String> {
    let wanted = |mechanism: &Mechanism| mechanism.name().contains(&arguments.way);
    let mechanisms: Vec<Mechanism> = Mechanism::ALL.into_iter().filter(wanted).collect();
    if mechanisms.is_empty() {
        let names = Mechanism::ALL.map(Mechanism::name).join("; ");
        return Err(format!("no way has {:?} in its name: {names}", arguments.way));
    }
    let folder = mechanisms.contains(&Mechanism::SharedMemory).then(|| Folder::new("export"));
    let exporter = Exporter::start(arguments, folder)?;
    let mut clients = Clients::start(&exporter, &mechanisms)?;
    let mut recorder = Recorder::new("export-linear-unit", arguments, &arguments.output, report);
    let table = exporter.servers.table.clone();
    let (megabytes, rows) = (exporter.bytes as f64 / 1e6, exporter.totals.rows);
    recorder.note(format!("{table}: {rows} rows, {megabytes:.1} MB in Arrow, to which MB/s and GB refer; medians"));
    recorder.note(
        "begin: until the analysis can begin; arrival: until all rows are there; result: until all have gone through the linear unit".into(),
    );
    recorder
        .note("RDMA: by the loopback transport, whose copies a thread makes; client and server in one process".into());

    let runs = arguments.runs.max(1);
    let bar = ProgressBar::new((arguments.hot.len() * mechanisms.len() * (runs + 1)) as u64);
    bar.set_style(ProgressStyle::with_template("{msg:44} {wide_bar} {percent}%, {eta} left").map_err(text)?);
    let mut points = Vec::new();
    for &percent in &arguments.hot {
        let hot = exporter.thaw(percent)?;
        let outcomes = by_turns(&mechanisms, runs, |mechanism| {
            bar.set_message(format!("{percent} % hot, {}", mechanism.name()));
            let (measured, server_cpu) =
                clients.measure(mechanism).map_err(|error| format!("{}: {error}", mechanism.name()))?;
            exporter.check(mechanism, &measured)?;
            bar.inc(1);
            Ok((measured, server_cpu))
        })?;
        for (&mechanism, outcomes) in mechanisms.iter().zip(&outcomes) {
            let all = |of: fn(&(Measured, f64)) -> f64| outcomes.iter().map(of).collect::<Vec<f64>>();
            let arrivals = all(|(measured, _)| measured.arrival_ms);
            let arrival_ms = median(arrivals.clone());
            let result_ms = median(all(|(measured, _)| measured.result_ms));
            let megabytes_per_second = megabytes / arrival_ms * 1e3;
            let per_gigabyte = |seconds: f64| seconds / (megabytes / 1e3);
            let server_seconds_per_gigabyte = per_gigabyte(median(all(|(_, server)| *server)));
            let last = &outcomes[outcomes.len() - 1].0;
            recorder.row(&[
                ("way", json!(mechanism.name())),
                ("hot %", json!(hot)),
                ("begin, ms", json!(median(all(|(measured, _)| measured.begin_ms)))),
                ("arrival, ms", json!(arrival_ms)),
                ("least", json!(arrivals.iter().copied().fold(f64::INFINITY, f64::min))),
                ("most", json!(arrivals.iter().copied().fold(0.0, f64::max))),
                ("result, ms", json!(result_ms)),
                ("MB/s", json!(megabytes_per_second)),
                ("server CPU s/GB", json!(server_seconds_per_gigabyte)),
                ("client CPU s/GB", json!(per_gigabyte(median(all(|(measured, _)| measured.cpu_seconds))))),
                ("batches by DoGet", json!(last.fetched)),
                ("MB copied", json!(last.copied.map(|bytes| bytes as f64 / 1e6))),
            ]);
            points.push(Point { mechanism, hot, megabytes_per_second, result_ms, server_seconds_per_gigabyte });
        }
    }
    bar.finish_and_clear();

    recorder.chart(&format!("{table} to a client"), "% of blocks hot", "MB/s until all rows are there", false);
    // Under partial availability the client computes while rows arrive, so its arrival time is not
    // comparable.
    let waits = |point: &&Point| point.mechanism != Mechanism::ClientRdma { partial: true };
    for point in points.iter().filter(waits) {
        recorder.point(point.mechanism.name(), point.hot, point.megabytes_per_second);
    }
    recorder.chart(&format!("{table} through a linear unit"), "% of blocks hot", "ms from request to result", false);
    for point in &points {
        recorder.point(point.mechanism.name(), point.hot, point.result_ms);
    }
    recorder.chart(
        &format!("{table}: the server's work"),
        "% of blocks hot",
        "CPU seconds of the server per GB",
        false,
    );
    for point in &points {
        recorder.point(point.mechanism.name(), point.hot, point.server_seconds_per_gigabyte);
    }
    recorder.write()?;
    drop(clients);
    exporter.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Output;

    #[test]
    fn all_mechanisms_give_the_table_whatever_is_hot() {
        let arguments = ExportArguments {
            sf: 0.01,
            order_line: None,
            hot: Vec::new(),
            runs: 1,
            way: String::new(),
            linear_unit: true,
            output: Output { out: None, plot: false },
            client: false,
        };
        let folder = std::env::temp_dir().join(format!("serac-bench-export-{}", std::process::id()));
        let exporter = Exporter::start(&arguments, Some(Folder(folder))).unwrap();
        assert!(exporter.totals.rows > 50_000);
        let cpu = || named_threads_cpu_seconds(THREADS);
        let transport = Arc::new(exporter.loopback.clone());
        let mut client = Client::connect(exporter.servers.clone(), Some(transport), cpu).unwrap();
        let mut copied = Vec::new();
        for percent in [0, 50, 100] {
            let hot = exporter.thaw(percent).unwrap();
            assert!((hot - f64::from(percent)).abs() < 20.0, "{hot} % are hot, not {percent}");
            for mechanism in Mechanism::ALL {
                let measured = client.run(mechanism).unwrap();
                exporter.check(mechanism, &measured).unwrap();
                let Measured { begin_ms, arrival_ms, result_ms, fetched, .. } = measured;
                assert!(begin_ms <= arrival_ms && arrival_ms <= result_ms, "{mechanism:?}: {measured:?}");
                assert_eq!(fetched.is_some(), mechanism.is_one_sided());
                // The server writes hot blocks, too, and lends frozen ones only.
                let is_fetched = mechanism == Mechanism::ServerRdma && percent > 0;
                assert_eq!(fetched.unwrap_or(0) > 0, is_fetched, "{mechanism:?}, {percent} % hot: {measured:?}");
                copied.extend(measured.copied);
            }
        }
        assert!(copied[0] < copied[1] && copied[1] < copied[2], "{copied:?}");
        drop(client);
        exporter.end();
    }
}
