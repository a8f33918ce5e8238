//! Random queries to `serac serve` and to PostgreSQL, and the differences of their answers.
//!
//! `peers/random_queries.py` makes the tables and the queries from a seed, and compares the rows;
//! `peers/random_values.py` does so with scripts about casts, assignments, decimals, times and
//! transactions. With `--registry`, `peers/random_functions.py` does so with all functions,
//! operators, casts and aggregates that both have. A statement that SeracDB refuses as not
//! supported (0A000) is counted; any other difference is an error of this run.
//!
//! Several workers take seeds. Each has scripts of its own, and a schema in both servers.

use crate::peer::Peer;
use crate::postgres::{Cluster, Installation, PostgresArguments};
use crate::report::Report;
use crate::serac::{Serac, free_address};
use crate::setup::{Folder, text};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

#[derive(Args, Debug)]
pub struct AnswersArguments {
    /// Seed of the first tables and their queries.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of seeds. Each has tables, queries and scripts of its own.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Queries, and scripts, for each seed.
    #[arg(long, default_value_t = 100)]
    queries: u64,
    /// Statements of the functions, operators, casts and aggregates of the registry, too.
    #[arg(long)]
    registry: bool,
    /// Workers that take seeds; by default one more than there are processors.
    #[arg(long)]
    workers: Option<usize>,
    #[command(flatten)]
    postgres: PostgresArguments,
    /// The `serac` binary; by default the one beside this one.
    #[arg(long)]
    serac: Option<PathBuf>,
}

const KINDS: [(&str, &str); 5] = [
    ("same", "same rows"),
    ("refused", "not supported here"),
    ("undecided", "one meets an error in a value"),
    ("both", "both refuse"),
    ("lenient", "PostgreSQL refuses"),
];

/// Runs the comparison.
pub fn run(arguments: &AnswersArguments, report: &mut Report) -> Result<(), String> {
    let installation = Installation::find(arguments.postgres.major)?;
    // Not in the project's folder: PostgreSQL runs as a user of its own, which may not be able to
    // enter it.
    let folder = Folder(std::env::temp_dir().join(format!("serac-answers-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).map_err(text)?;
    let cluster = Cluster::create(installation, &folder.0)?;
    let (ours, theirs) = (free_address()?, free_address()?);
    // Nothing here outlives the run.
    let _postgres = cluster.start_at(theirs, &["fsync=off", "synchronous_commit=off"])?;
    let _serac = Serac::start(arguments.serac.as_deref(), Path::new(":memory:"), ours, cluster.sockets())?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = arguments
        .workers
        .unwrap_or(processors + 1)
        .clamp(1, usize::try_from(arguments.seeds.max(1)).unwrap_or(usize::MAX));
    let dsn = |address: SocketAddr| {
        let sockets = cluster.sockets().display();
        format!("host={sockets} port={} user=serac dbname=postgres", address.port())
    };
    let work = Work {
        dsns: [dsn(theirs), dsn(ours)],
        next: AtomicU64::new(arguments.seed),
        end: arguments.seed + arguments.seeds,
        queries: arguments.queries,
        registry: arguments.registry,
    };
    let bar = ProgressBar::new(arguments.seeds);
    bar.set_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} seeds, {eta} left").map_err(text)?);
    let started = Instant::now();
    let mut counts = [0; KINDS.len()];
    let mut differences: u64 = 0;
    let client = std::thread::scope(|scope| {
        let (found, answers) = channel();
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                let (work, found) = (&work, found.clone());
                scope.spawn(move || work.run(worker, &found))
            })
            .collect();
        drop(found);
        for Answer { seed, answer, is_last } in answers {
            let of_kind = |key| answer[key].as_u64().unwrap_or_default();
            counts.iter_mut().zip(KINDS).for_each(|(count, (key, _))| *count += of_kind(key));
            for difference in answer["differences"].as_array().into_iter().flatten() {
                differences += 1;
                let said = |name: &str| difference[name].as_str().unwrap_or_default().to_owned();
                let lines = format!(
                    "seed {seed}: {};\n    PostgreSQL: {}\n    SeracDB:    {}",
                    said("query"),
                    said("postgres"),
                    said("serac")
                );
                bar.suspend(|| eprintln!("{lines}"));
            }
            bar.inc(u64::from(is_last));
        }
        let mut client = String::new();
        for thread in threads {
            client = thread.join().map_err(|_| "a worker has panicked".to_owned())??;
        }
        Ok::<_, String>(client)
    })?;
    bar.finish_and_clear();
    let mut row: Vec<(&str, Json)> = KINDS.iter().zip(counts).map(|((_, name), count)| (*name, json!(count))).collect();
    row.push(("different", json!(differences)));
    let statements = counts.iter().sum::<u64>() + differences;
    row.push(("statements/s", json!((statements as f64 / started.elapsed().as_secs_f64()).round())));
    report.row(&row);
    report.note(format!(
        "{}, {client}, seeds {} to {}",
        cluster.version(),
        arguments.seed,
        arguments.seed + arguments.seeds - 1
    ));
    if differences > 0 { Err(format!("{differences} answers differ")) } else { Ok(()) }
}

/// The findings of a script with one seed.
struct Answer {
    seed: u64,
    answer: Json,
    /// It is the seed's last script.
    is_last: bool,
}

/// The seeds that are left, and what is done with each.
struct Work {
    /// Where PostgreSQL is, and where SeracDB.
    dsns: [String; 2],
    next: AtomicU64,
    end: u64,
    queries: u64,
    registry: bool,
}

impl Work {
    /// Takes seeds until none is left, or a script fails. Returns the version of the client.
    fn run(&self, worker: usize, found: &Sender<Answer>) -> Result<String, String> {
        let (queries, client) = Peer::start("random_queries.py", [""; 0])?;
        let mut peers = vec![queries, Peer::start("random_values.py", [""; 0])?.0];
        if self.registry {
            peers.push(Peer::start("random_functions.py", [""; 0])?.0);
        }
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.end {
                return Ok(client);
            }
            let [postgres, serac] = &self.dsns;
            let request = json!({
                "postgres": postgres, "serac": serac, "schema": format!("worker_{worker}"), "seed": seed,
                "queries": self.queries,
            });
            let count = peers.len();
            for (at, peer) in peers.iter_mut().enumerate() {
                let answer = peer.ask(&request.to_string()).map_err(|error| {
                    // The others need not go on.
                    self.next.store(self.end, Ordering::Relaxed);
                    format!("seed {seed}: {error}")
                })?;
                // The receiver stays until it has all answers.
                let _ = found.send(Answer { seed, answer, is_last: at + 1 == count });
            }
        }
    }
}
