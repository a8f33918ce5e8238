//! Transactions beside workers of other machines that read by Arrow Flight.
//!
//! A server, which is a process of its own, has pgbench's tables and lineitem. Clients run
//! pgbench's TPC-B-like transactions over PostgreSQL's protocol. Workers scan lineitem over Flight
//! and compute sums, each query in a new snapshot. Phases without and with workers take turns.
//!
//! The clients run on the first processor, and the workers on the others. The server's threads are
//! placed in several ways ([`Placement`]).
//!
//! Every snapshot is judged ([`freshness`]): it has each transaction that was acknowledged before
//! it was asked for, and its tables are of one moment.
//!
//! | module | concept |
//! |---|---|
//! | `transactions` | the tables of the transactions, and the clients |
//! | `readers` | the workers |
//! | `freshness` | the promises of snapshots |

mod freshness;
mod readers;
mod transactions;

use crate::affinity::{pin_threads, processor_count};
use crate::report::{Report, median};
use crate::serac::{Serac, free_address};
use crate::setup::{Folder, lineitem, text, threads_cpu_seconds};
use clap::ValueEnum;
use freshness::{Clients, Freshness};
use readers::{Expected, Reader, Reads};
use serac_sql::Session;
use serac_storage::{Durability, StorageOptions};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use transactions::{Terminal, Work, settling, tables, work};

#[derive(clap::Args, Debug)]
pub struct RemoteReadsArguments {
    /// Scale factor of lineitem.
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Branches of the transactions' tables, each with 10 tellers and 100,000 accounts.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    scale: u32,
    /// Clients that run transactions.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    clients: u16,
    /// Workers that read lineitem. One more only looks at snapshots.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    readers: u16,
    /// Streams that a worker reads at a time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    streams: u16,
    /// Seconds of a phase.
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Turns: phases without workers, each with one beside workers after it.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    turns: u16,
    /// Where the server's threads run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Placement::value_variants().to_vec())]
    placements: Vec<Placement>,
    /// The server's durability.
    #[arg(long, default_value = "full", value_parser = ["full", "relaxed", "off"])]
    durability: String,
    /// The `serac` binary; by default the one beside this one.
    #[arg(long)]
    serac: Option<PathBuf>,
}

/// The processors of the server's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Placement {
    /// Threads that send streams are on the workers' processors, all others on the clients'.
    Apart,
    /// All threads are on the clients' processor.
    Together,
    /// All threads are on all processors.
    Free,
}

/// The name of the server's threads that send streams, as far as the system keeps it.
const STREAM_THREADS: &str = "tokio-rt-worker";
/// The longest phase, in seconds.
const LONGEST: f64 = 3_600.0;
/// The longest warm-up, in seconds.
const WARM_UP: f64 = 3.0;

impl Placement {
    fn name(self) -> &'static str {
        match self {
            Self::Apart => "streams on the workers' processor",
            Self::Together => "on the clients' processor",
            Self::Free => "on all processors",
        }
    }

    /// Puts the threads of a server there, of `all` processors.
    fn put(self, server: u32, all: usize) -> Result<(), String> {
        let has_streams = std::cell::Cell::new(false);
        pin_threads(server, |name| {
            let sends = name == STREAM_THREADS;
            has_streams.set(has_streams.get() || sends);
            match self {
                Self::Apart if sends => 1..all,
                Self::Apart | Self::Together => 0..1,
                Self::Free => 0..all,
            }
        })?;
        if has_streams.get() {
            Ok(())
        } else {
            Err(format!("the server has no threads with the name {STREAM_THREADS}"))
        }
    }
}

/// Makes the database: lineitem, frozen, and the transactions' tables.
fn prepare(arguments: &RemoteReadsArguments, path: &Path) -> Result<(), String> {
    let path = Some(path.to_owned());
    let options = StorageOptions { path, durability: Durability::Relaxed, freeze_after: None, ..Default::default() };
    let (db, _) = lineitem(arguments.sf, options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(text)?;
    let mut session = Session::new(&db);
    for sql in tables(arguments.scale, arguments.clients.into()) {
        runtime.block_on(session.execute(&sql)).map_err(text)?;
    }
    runtime.block_on(session.execute("FREEZE TABLE lineitem")).map_err(text)?;
    drop(session);
    db.database().checkpoint().map_err(text)?;
    db.database().close().map_err(text)
}

/// The server, its clients and its workers. The server ends last.
struct Bench {
    terminals: Vec<Terminal>,
    clients: Arc<Clients>,
    readers: Vec<Reader>,
    /// The worker that only looks at snapshots.
    watcher: Reader,
    expected: Expected,
    processors: usize,
    server: Serac,
}

/// The transactions of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Phase {
    per_second: f64,
    p50_micros: f64,
    p99_micros: f64,
    /// Processor time of a transaction: the client's, and the server's without threads that send
    /// streams.
    cpu_micros: f64,
    retries: usize,
}

/// A phase alone, the one beside workers that followed it, and what the workers read a second.
#[derive(Clone, Copy, Debug)]
struct Turn {
    alone: Phase,
    beside: Phase,
    rows_per_second: f64,
}

/// The value below which a share of sorted values lies.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    sorted.get((sorted.len() as f64 * share) as usize).or(sorted.last()).copied()
}

impl Phase {
    /// The figures of work that has taken some seconds, and so many seconds of the server's
    /// processor time.
    fn new(work: Work, seconds: f64, server_cpu: f64) -> Result<Self, String> {
        let Work { transactions, cpu_seconds, mut latencies, retries } = work;
        latencies.sort_by(f64::total_cmp);
        let at = |share| percentile(&latencies, share).ok_or("no transaction has ended in a phase");
        let (p50_micros, p99_micros) = (at(0.5)?, at(0.99)?);
        let cpu_micros = (cpu_seconds + server_cpu) * 1e6 / transactions as f64;
        Ok(Self { per_second: latencies.len() as f64 / seconds, p50_micros, p99_micros, cpu_micros, retries })
    }
}

impl Bench {
    fn new(arguments: &RemoteReadsArguments, path: &Path, processors: usize) -> Result<Self, String> {
        let (pg, flight) = (free_address()?, free_address()?);
        let [pg_text, flight_text] = [pg, flight].map(|address| address.to_string());
        let options = ["--pg", &pg_text, "--flight", &flight_text, "--durability", &arguments.durability];
        let server = Serac::start_with(arguments.serac.as_deref(), path, &[pg, flight], &options.map(AsRef::as_ref))?;
        let terminals =
            (0..arguments.clients.into()).map(|number| Terminal::connect(&pg_text, number, arguments.scale));
        let terminals: Vec<_> = terminals.collect::<Result<_, _>>()?;
        let reader = || Reader::new(&flight_text, 1..processors, arguments.streams.into());
        let readers: Vec<_> = (0..arguments.readers).map(|_| reader()).collect::<Result<_, _>>()?;
        let watcher = reader()?;
        let expected = watcher.expected()?;
        let clients = Arc::new(Clients::new(terminals.len()));
        Ok(Self { terminals, clients, readers, watcher, expected, processors, server })
    }

    /// Lets the clients work for some seconds, after a time in which all settle; beside workers if
    /// there is a place for what they read.
    fn phase(&mut self, placement: Placement, seconds: f64, reads: Option<&mut Reads>) -> Result<Phase, String> {
        placement.put(self.server.id(), self.processors)?;
        let from = Instant::now() + settling(seconds);
        let end = from + Duration::from_secs_f64(seconds);
        let Self { terminals, clients, readers, watcher, expected, server, .. } = self;
        let (clients, expected) = (&*clients, &*expected);
        let server_cpu = || threads_cpu_seconds(server.id(), |name| name != STREAM_THREADS);
        let cpu_begun = server_cpu();
        let done = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            if reads.is_some() {
                threads.extend(readers.iter().map(|reader| scope.spawn(|| reader.read(clients, Some(expected), end))));
                threads.push(scope.spawn(|| watcher.read(clients, None, end)));
            }
            let done = work(terminals, clients, from, end).map(|work| (work, server_cpu() - cpu_begun));
            let results = threads.into_iter().map(|thread| thread.join().expect("a reader does not panic"));
            let results: Vec<_> = results.collect::<Result<_, _>>()?;
            if let Some(reads) = reads {
                results.into_iter().for_each(|one| reads.add(one));
            }
            done
        });
        let (work, server_cpu) = done?;
        Phase::new(work, seconds, server_cpu)
    }

    fn turn(&mut self, placement: Placement, seconds: f64, all: &mut Reads) -> Result<Turn, String> {
        let mut reads = Reads::default();
        let alone = self.phase(placement, seconds, None)?;
        let beside = self.phase(placement, seconds, Some(&mut reads))?;
        if reads.rows == 0 || reads.freshness.ages.is_empty() {
            return Err("the workers have read nothing in a phase: make it longer (--seconds)".into());
        }
        let rows_per_second = reads.rows as f64 / (seconds + settling(seconds).as_secs_f64());
        all.add(reads);
        Ok(Turn { alone, beside, rows_per_second })
    }

    /// Measures a placement, and adds its row.
    fn measure(
        &mut self,
        placement: Placement,
        arguments: &RemoteReadsArguments,
        report: &mut Report,
    ) -> Result<(), String> {
        let seconds = arguments.seconds;
        eprintln!("server {} …", placement.name());
        let mut warm_up = Reads::default();
        self.phase(placement, seconds.min(WARM_UP), Some(&mut warm_up))?;
        warm_up.freshness.check()?;
        let (mut reads, mut turns) = (Reads::default(), Vec::new());
        for number in 1..=arguments.turns {
            let turn = self.turn(placement, seconds, &mut reads)?;
            let Turn { alone, beside, .. } = &turn;
            eprintln!("  turn {number}: {:.0} a second alone, {:.0} beside", alone.per_second, beside.per_second);
            turns.push(turn);
        }
        let Reads { queries, freshness, .. } = reads;
        let outcome = freshness.check();
        let Freshness { snapshots, mut ages, requests, violations } = freshness;
        ages.sort_by(f64::total_cmp);
        let figures = Figures::new(&turns);
        report.row(&[
            ("server", json!(placement.name())),
            ("durability", json!(arguments.durability)),
            ("alone/s", json!(figures.alone.per_second)),
            ("beside/s", json!(figures.beside.per_second)),
            ("beside / alone", json!(figures.ratio)),
            ("least", json!(figures.least)),
            ("most", json!(figures.most)),
            ("p50 µs alone", json!(figures.alone.p50_micros)),
            ("p50 µs beside", json!(figures.beside.p50_micros)),
            ("p99 µs alone", json!(figures.alone.p99_micros)),
            ("p99 µs beside", json!(figures.beside.p99_micros)),
            ("CPU µs alone", json!(figures.alone.cpu_micros)),
            ("CPU µs beside", json!(figures.beside.cpu_micros)),
            ("retries", json!(figures.alone.retries + figures.beside.retries)),
            ("queries", json!(queries)),
            ("Mrows/s", json!(figures.rows_per_second / 1e6)),
            ("MB/s", json!(figures.rows_per_second * self.expected.row_bytes() / 1e6)),
            ("snapshots", json!(snapshots)),
            ("age p50 ms", json!(percentile(&ages, 0.5))),
            ("age p99 ms", json!(percentile(&ages, 0.99))),
            ("age max ms", json!(ages.last())),
            ("request p50 ms", json!(median(requests))),
            ("violations", json!(violations.len())),
        ]);
        outcome
    }
}

/// The figures of all turns.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// Medians, and the sum of retries.
    alone: Phase,
    beside: Phase,
    /// The median of the turns' rates beside workers in proportion to those alone, and the bounds.
    ratio: f64,
    least: f64,
    most: f64,
    /// The median.
    rows_per_second: f64,
}

impl Figures {
    fn new(turns: &[Turn]) -> Self {
        let middle = |of: &dyn Fn(&Turn) -> f64| median(turns.iter().map(of).collect());
        let phase = |of: fn(&Turn) -> Phase| Phase {
            per_second: middle(&|turn| of(turn).per_second),
            p50_micros: middle(&|turn| of(turn).p50_micros),
            p99_micros: middle(&|turn| of(turn).p99_micros),
            cpu_micros: middle(&|turn| of(turn).cpu_micros),
            retries: turns.iter().map(|turn| of(turn).retries).sum(),
        };
        let ratios: Vec<f64> = turns.iter().map(|turn| turn.beside.per_second / turn.alone.per_second).collect();
        Self {
            alone: phase(|turn| turn.alone),
            beside: phase(|turn| turn.beside),
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            most: ratios.iter().copied().fold(0.0, f64::max),
            ratio: median(ratios),
            rows_per_second: middle(&|turn| turn.rows_per_second),
        }
    }
}

pub fn run(arguments: &RemoteReadsArguments, report: &mut Report) -> Result<(), String> {
    let processors = processor_count();
    if processors < 2 {
        return Err("clients and workers need two processors".into());
    }
    if !(arguments.seconds > 0.0 && arguments.seconds <= LONGEST) {
        return Err(format!("a phase has up to {LONGEST} seconds, and not {}", arguments.seconds));
    }
    let folder = Folder::new("remote-reads");
    std::fs::create_dir_all(&folder.0).map_err(text)?;
    let path = folder.0.join("serac");
    eprintln!("lineitem of scale factor {}, {} branches …", arguments.sf, arguments.scale);
    prepare(arguments, &path)?;
    let mut bench = Bench::new(arguments, &path, processors)?;
    for placement in &arguments.placements {
        bench.measure(*placement, arguments, report)?;
    }
    bench.watcher.last(&bench.clients)?.check()?;
    report.note(format!(
        "{} clients of TPC-B-like transactions on {} branches (durability {}) on the first processor; {} workers with {} \
         streams each on the others, and one that only looks at snapshots; {} turns of {} s and {} s",
        arguments.clients,
        arguments.scale,
        arguments.durability,
        arguments.readers,
        arguments.streams,
        arguments.turns,
        arguments.seconds,
        arguments.seconds
    ));
    report.note(
        "a transaction's CPU time is the client's and that of the server's threads that do not send streams; a snapshot's age is the time from its newest transaction to the moment when the worker has the snapshot"
            .into(),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(per_second: f64) -> Phase {
        let micros = 1e6 / per_second;
        Phase { per_second, p50_micros: micros, p99_micros: micros * 4.0, cpu_micros: micros / 2.0, retries: 1 }
    }

    #[test]
    fn a_phase_has_the_rate_and_the_waits_of_its_transactions() {
        let latencies = (1..=200).rev().map(f64::from).collect();
        let work = Work { transactions: 250, cpu_seconds: 1.0, latencies, retries: 3 };
        let phase = Phase::new(work, 4.0, 1.5).unwrap();
        let (p50_micros, p99_micros, cpu_micros) = (101.0, 199.0, 10_000.0);
        assert_eq!(phase, Phase { per_second: 50.0, p50_micros, p99_micros, cpu_micros, retries: 3 });
        assert!(Phase::new(Work::default(), 4.0, 0.0).is_err());
    }

    #[test]
    fn the_ratio_is_that_of_turns() {
        // The machine slows down: the ratio of the medians would be 1.
        let rates = [(1_000.0, 900.0), (500.0, 500.0), (400.0, 320.0)];
        let turn = |(alone, beside)| Turn { alone: phase(alone), beside: phase(beside), rows_per_second: alone * 2.0 };
        let figures = Figures::new(&rates.map(turn));
        assert_eq!((figures.ratio, figures.least, figures.most), (0.9, 0.8, 1.0));
        assert_eq!((figures.alone.per_second, figures.beside.per_second), (500.0, 500.0));
        assert_eq!((figures.alone.p50_micros, figures.beside.p99_micros), (2_000.0, 8_000.0));
        assert_eq!(figures.beside.cpu_micros, 1_000.0);
        assert_eq!((figures.alone.retries, figures.rows_per_second), (3, 1_000.0));
    }
}
