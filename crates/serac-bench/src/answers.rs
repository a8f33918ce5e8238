//! Random queries to `serac serve` and to PostgreSQL, and the differences of their answers.
//!
//! `peers/random_queries.py` makes the tables and the queries from a seed, and compares the rows;
//! `peers/random_values.py` does so with scripts about casts, assignments, decimals, times and
//! transactions. With `--registry`, `peers/random_functions.py` does so with all functions,
//! operators, casts and aggregates that both have. A statement that SeracDB refuses as not
//! supported (0A000) is counted; any other difference is an error of this run.

use crate::peer::Peer;
use crate::postgres::{Cluster, Installation, PostgresArguments};
use crate::report::Report;
use crate::serac::{Serac, free_address};
use crate::setup::{Folder, text};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

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
    let _postgres = cluster.start_at(theirs, &[])?;
    let _serac = Serac::start(arguments.serac.as_deref(), &folder.0.join("serac"), ours, cluster.sockets())?;
    let (queries, client) = Peer::start("random_queries.py", [""; 0])?;
    let mut peers = vec![queries, Peer::start("random_values.py", [""; 0])?.0];
    if arguments.registry {
        peers.push(Peer::start("random_functions.py", [""; 0])?.0);
    }
    let dsn = |port: u16| {
        let sockets = cluster.sockets().display();
        format!("host={sockets} port={port} user=serac dbname=postgres")
    };
    let bar = ProgressBar::new(arguments.seeds);
    bar.set_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} seeds, {eta} left").map_err(text)?);
    let mut counts = [0; KINDS.len()];
    let mut differences = 0;
    for seed in arguments.seed..arguments.seed + arguments.seeds {
        let request = json!({ "postgres": dsn(theirs.port()), "serac": dsn(ours.port()), "seed": seed, "queries": arguments.queries });
        for peer in &mut peers {
            let answer = peer.ask(&request.to_string()).map_err(|error| format!("seed {seed}: {error}"))?;
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
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut row: Vec<(&str, Json)> = KINDS.iter().zip(counts).map(|((_, name), count)| (*name, json!(count))).collect();
    row.push(("different", json!(differences)));
    report.row(&row);
    report.note(format!(
        "{}, {client}, seeds {} to {}",
        cluster.version(),
        arguments.seed,
        arguments.seed + arguments.seeds - 1
    ));
    if differences > 0 { Err(format!("{differences} answers differ")) } else { Ok(()) }
}
