//! Planning past one machine: how fast many workers would scan a table over Flight.
//!
//! | part | what |
//! |---|---|
//! | `measure` | service times of this machine, from the real server and the real client, as a file |
//! | `predict` | throughput by workers, servers and size, what limits it, and what then |
//! | `check` | runs real workers on this machine and compares them with the prediction |
//!
//! | module | concept |
//! |---|---|
//! | `queueing` | discrete events |
//! | `cluster` | the model of a scan, and its closed forms |
//! | `costs` | the file of service times |
//! | `worker` | a server and real workers |
//! | `measure` | the measurements |

mod cluster;
mod costs;
mod measure;
mod queueing;
mod worker;

use crate::recorder::{Output, Recorder};
use crate::report::{Report, median};
use cluster::{Cluster, Limit, Links, Outcome, Scan, bound, simulate, version_bytes};
use costs::Costs;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;
use worker::{Read, Reading, Server, Worker};

#[derive(clap::Args, Debug)]
pub struct ScaleOutArguments {
    #[command(subcommand)]
    part: Part,
    /// The file of service times.
    #[arg(long, global = true, default_value = "target/scale-out.json")]
    costs: PathBuf,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Subcommand, Debug)]
enum Part {
    /// Measures service times on this machine, and writes them to the file.
    Measure {
        /// Scale factor of lineitem.
        #[arg(long, default_value_t = 1.0)]
        sf: f64,
        /// Measured runs, of which the median counts.
        #[arg(long, default_value_t = 5)]
        runs: usize,
    },
    /// Simulates scans from the service times in the file.
    Predict(PredictArguments),
    /// Runs workers on this machine, and compares them with the model.
    Check(CheckArguments),
}

#[derive(clap::Args, Debug)]
struct PredictArguments {
    /// Workers.
    #[arg(long, value_delimiter = ',', default_value = "1,2,5,10,20,50,100")]
    workers: Vec<usize>,
    /// Sizes of the table as Arrow, in TB.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100")]
    table_tb: Vec<f64>,
    /// Servers that have a part of the table each.
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    servers: Vec<usize>,
    /// The part of the bytes that the server's filter leaves; 1 for no filter.
    #[arg(long, default_value_t = 1.0)]
    selectivity: f64,
    /// Cores of a server.
    #[arg(long, default_value_t = 32)]
    server_cores: usize,
    /// Cores of a worker.
    #[arg(long, default_value_t = 8)]
    worker_cores: usize,
    /// The network of a server, in Gbit/s.
    #[arg(long, default_value_t = 25.0)]
    server_gbits: f64,
    /// The network of a worker, in Gbit/s.
    #[arg(long, default_value_t = 10.0)]
    worker_gbits: f64,
    /// Microseconds to the other end and back.
    #[arg(long, default_value_t = 100.0)]
    round_trip_us: f64,
    /// Streams that a worker reads at a time.
    #[arg(long, default_value_t = 8)]
    streams: usize,
    /// Streams that a server sends at a time (--max-streams).
    #[arg(long, default_value_t = 256)]
    max_streams: usize,
    /// Rows that transactions change per second, all servers together.
    #[arg(long, default_value_t = 10_000.0)]
    writes: f64,
    /// Seconds for which the server holds a snapshot (--lease).
    #[arg(long, default_value_t = 60.0)]
    lease: f64,
    /// Memory for versions, all servers together, in GB.
    #[arg(long, default_value_t = 64.0)]
    version_gb: f64,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args, Debug)]
struct CheckArguments {
    /// Scale factor of lineitem.
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Workers, each with connections and threads of its own.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    workers: Vec<usize>,
    /// Streams that a worker reads at a time.
    #[arg(long, default_value_t = 2)]
    streams: usize,
    /// Measured runs, after one that is not counted; the median is shown.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// The seed of the simulation.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Partitions for each stream that a worker reads at a time.
const PARTITIONS_OF_STREAM: usize = 4;
/// How much the sizes of messages differ.
const VARIATION: f64 = 0.1;
/// The most machines, cores and streams of a simulation.
const MOST: usize = 10_000;

pub fn run(arguments: &ScaleOutArguments, report: &mut Report) -> Result<(), String> {
    match &arguments.part {
        Part::Measure { sf, runs } => {
            let costs = measure::measure(*sf, *runs)?;
            costs.write(&arguments.costs)?;
            for (what, figure, unit) in measure::shown(&costs) {
                report.row(&[("what", json!(what)), ("figure", json!(figure)), ("unit", json!(unit))]);
            }
            report.note(format!("written to {}", arguments.costs.display()));
            Ok(())
        }
        Part::Predict(predict) => predictions(&Costs::read(&arguments.costs)?, arguments, predict, report),
        Part::Check(check) => checks(&Costs::read(&arguments.costs)?, arguments, check, report),
    }
}

/// Refuses numbers that no cluster has.
fn check_numbers(counts: &[(&str, usize)], amounts: &[(&str, f64)]) -> Result<(), String> {
    if let Some((name, count)) = counts.iter().find(|(_, count)| !(1..=MOST).contains(count)) {
        return Err(format!("{count} {name}: 1 to {MOST} can be simulated"));
    }
    match amounts.iter().find(|(_, amount)| !(0.0..=1e12).contains(amount)) {
        Some((name, amount)) => Err(format!("{name} is {amount}")),
        None => Ok(()),
    }
}

fn predictions(
    costs: &Costs,
    arguments: &ScaleOutArguments,
    predict: &PredictArguments,
    report: &mut Report,
) -> Result<(), String> {
    let all = |name, counts: &[usize]| counts.iter().map(|&count| (name, count)).collect::<Vec<_>>();
    let own = [
        ("cores of a server", predict.server_cores),
        ("cores of a worker", predict.worker_cores),
        ("streams", predict.streams),
        ("streams of a server", predict.max_streams),
    ];
    let counts = [all("workers", &predict.workers), all("servers", &predict.servers), own.to_vec()].concat();
    let amounts = [
        ("the network of a server", predict.server_gbits),
        ("the network of a worker", predict.worker_gbits),
        ("the round trip", predict.round_trip_us),
        ("the number of writes", predict.writes),
        ("the lease", predict.lease),
    ];
    check_numbers(&counts, &amounts)?;
    if !(0.0..=1.0).contains(&predict.selectivity) || predict.server_gbits <= 0.0 || predict.worker_gbits <= 0.0 {
        return Err("the selectivity is from 0 to 1, and each machine has some network".into());
    }
    if let Some(tb) = predict.table_tb.iter().find(|tb| !(1e-6..=1e6).contains(*tb)) {
        return Err(format!("a table of {tb} TB: 0.000001 to 1000000 can be simulated"));
    }
    if let Some(most) = predict.workers.iter().map(|workers| workers * predict.streams).find(|all| *all > MOST) {
        return Err(format!("{most} streams at a time: up to {MOST} can be simulated"));
    }
    let mut figure = Recorder::new("scale-out", arguments, &arguments.output, report);
    let mut predicted = Vec::new();
    for (&tb, &servers) in predict.table_tb.iter().flat_map(|tb| predict.servers.iter().map(move |of| (tb, of))) {
        for &workers in &predict.workers {
            let links = Links {
                of_server: predict.server_gbits * 1e9 / 8.0,
                of_worker: predict.worker_gbits * 1e9 / 8.0,
                round_trip: predict.round_trip_us * 1e-6,
            };
            let cluster = Cluster {
                servers,
                server_cores: predict.server_cores,
                workers,
                worker_cores: predict.worker_cores,
                links: Some(links),
                streams: predict.streams,
                max_streams: predict.max_streams,
            };
            let scan = Scan {
                table_bytes: (tb * 1e12) as u64,
                selectivity: predict.selectivity,
                partitions_of_stream: PARTITIONS_OF_STREAM,
                variation: VARIATION,
            };
            let (_, highest) = bound(costs, &cluster, &scan);
            let Outcome { seconds, rate, limit, busy, waiting, .. } = simulate(costs, &cluster, &scan, predict.seed);
            let versions = version_bytes(costs, predict.writes, predict.lease, seconds) / 1e9;
            let limit = if versions > predict.version_gb { Limit::Snapshot } else { limit };
            let busy = |limit: Limit| busy.iter().find(|(of, _)| *of == limit).map(|(_, part)| part * 100.0);
            figure.row(&[
                ("table TB", json!(tb)),
                ("servers", json!(servers)),
                ("workers", json!(workers)),
                ("GB/s", json!(rate / 1e9)),
                ("at most", json!(highest / 1e9)),
                ("minutes", json!(seconds / 60.0)),
                ("limit", json!(limit.name())),
                ("server CPU %", json!(busy(Limit::ServerCpu))),
                ("network %", json!(busy(Limit::ServerLink))),
                ("worker CPU %", json!(busy(Limit::WorkerCpu))),
                ("waiting ms", json!(waiting * 1e3)),
                ("versions GB", json!(versions)),
                ("then", json!(limit.remedy())),
            ]);
            predicted.push((tb, servers, workers, rate / 1e9, versions));
        }
    }
    figure.chart("Scans of a table by many workers", "workers", "GB of the table per second", false);
    let first = predict.table_tb.first().copied().unwrap_or_default();
    for (_, servers, workers, rate, _) in predicted.iter().filter(|(tb, ..)| *tb == first) {
        figure.point(&format!("servers: {servers}"), *workers as f64, *rate);
    }
    figure.chart("Versions that the snapshot of a scan keeps", "workers", "GB of versions", false);
    for (tb, servers, workers, _, versions) in &predicted {
        figure.point(&format!("{tb} TB, servers: {servers}"), *workers as f64, *versions);
    }
    figure.note(format!("service times of {}: {}", costs.machine, costs.command));
    figure.write()
}

fn checks(
    costs: &Costs,
    arguments: &ScaleOutArguments,
    check: &CheckArguments,
    report: &mut Report,
) -> Result<(), String> {
    let counts: Vec<_> = check.workers.iter().map(|&count| ("workers", count)).collect();
    check_numbers(&[counts, vec![("streams", check.streams)]].concat(), &[])?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let server = Server::start(check.sf)?;
    let mut figure = Recorder::new("scale-out-check", arguments, &arguments.output, report);
    for is_filtered in [false, true] {
        let mut all = None;
        for &workers in &check.workers {
            let reading = Reading { is_filtered, streams: check.streams, partitions_of_stream: PARTITIONS_OF_STREAM };
            let (read, seconds) = real(&server, reading, workers, check.runs)?;
            // The same rows, however many read them.
            let expected = *all.get_or_insert((read.rows, read.sum));
            if expected != (read.rows, read.sum) {
                return Err(format!("{workers} workers have read {} rows, others {}", read.rows, expected.0));
            }
            let rows = server.table.data.metrics().rows as f64;
            let scan = Scan {
                table_bytes: (rows * costs.row_bytes) as u64,
                selectivity: read.rows as f64 / rows,
                partitions_of_stream: PARTITIONS_OF_STREAM,
                variation: VARIATION,
            };
            let cluster = Cluster {
                servers: 1,
                server_cores: cores,
                workers,
                worker_cores: cores,
                links: None,
                streams: check.streams,
                max_streams: 256,
            };
            let outcome = simulate(costs, &cluster, &scan, check.seed);
            let measured = scan.table_bytes as f64 / seconds;
            figure.row(&[
                ("filter", json!(if is_filtered { "yes" } else { "no" })),
                ("workers", json!(workers)),
                ("measured GB/s", json!(measured / 1e9)),
                ("predicted GB/s", json!(outcome.rate / 1e9)),
                ("error %", json!((outcome.rate / measured - 1.0) * 100.0)),
                ("limit", json!(outcome.limit.name())),
            ]);
        }
    }
    figure.note(format!("{cores} cores for the server and all workers"));
    figure.write()
}

/// Lets workers read the table on this machine. Returns the amount that they read together, and the
/// median of the seconds that this takes.
fn real(server: &Server, reading: Reading, workers: usize, runs: usize) -> Result<(Read, f64), String> {
    let connect = |number| Worker::connect(server.address, "lineitem", reading, number, workers);
    let all: Vec<_> = (0..workers).map(connect).collect::<Result<_, _>>()?;
    let (mut total, mut seconds) = (Read::default(), Vec::new());
    for run in 0..runs.max(1) + 1 {
        let begun = Instant::now();
        total = std::thread::scope(|scope| {
            let threads: Vec<_> = all.iter().map(|worker| scope.spawn(|| worker.read())).collect();
            let read = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("a worker does not panic");
            threads
                .into_iter()
                .map(read)
                .try_fold(Read::default(), |one, other: Result<Read, String>| Ok::<_, String>(one + other?))
        })?;
        if run > 0 {
            seconds.push(begun.elapsed().as_secs_f64());
        }
    }
    Ok((total, median(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_can_be_simulated_and_is_what_workers_read() {
        let costs = measure::measure(0.005, 1).unwrap();
        assert!(costs.rows > 20_000 && costs.row_bytes > 50.0, "{costs:?}");
        assert!((0.03..0.1).contains(&costs.selectivity), "3 of 50 quantities: {costs:?}");
        assert!(costs.request_us > 0.0 && costs.loopback_bytes_per_second > 1e6 && costs.version_bytes > 8.0);
        let server = Server::start(0.005).unwrap();
        let mut expected = None;
        for workers in [1, 3] {
            let reading = Reading { is_filtered: false, streams: 2, partitions_of_stream: 2 };
            let (read, seconds) = real(&server, reading, workers, 1).unwrap();
            assert_eq!(read.rows, costs.rows);
            assert_eq!(*expected.get_or_insert(read.sum), read.sum);
            assert!(seconds > 0.0);
        }
        let cluster = Cluster {
            servers: 1,
            server_cores: 2,
            workers: 2,
            worker_cores: 2,
            links: None,
            streams: 2,
            max_streams: 256,
        };
        let table_bytes = (costs.rows as f64 * costs.row_bytes) as u64;
        let scan = Scan { table_bytes, selectivity: 1.0, partitions_of_stream: 2, variation: 0.0 };
        let outcome = simulate(&costs, &cluster, &scan, 1);
        assert!(outcome.rate > 0.0 && outcome.seconds > 0.0, "{outcome:?}");
    }
}
