//! The column operators: the figures of the column-store report with sizes of one's own choice, and
//! measurements of shared scans, joins and hash tables.
//!
//! Each figure is a subcommand. `--out` takes a directory for the results as JSON, with the command
//! that made them, and `--plot` adds charts as SVG. The report's counts of cache misses (figures 2,
//! 6 and 8, right) need counters that virtual machines rarely have, and are left out.

mod access;
mod batches;
mod hash_tables;
mod joins;
mod language;
mod loads;
mod scans;
mod tables;

use crate::peer::Peer;
use crate::recorder::{Output, milliseconds};
use crate::report::Report;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

#[derive(clap::Args, Debug)]
pub struct OperatorsArguments {
    #[command(subcommand)]
    figure: Figure,
    /// Rows of a column, or entries of a table.
    #[arg(long, global = true, default_value_t = 10_000_000)]
    rows: usize,
    /// Measured runs, after one that is not; the median is shown.
    #[arg(long, global = true, default_value_t = 3)]
    runs: usize,
    /// Threads.
    #[arg(long, global = true, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Subcommand, Debug, Clone, Copy)]
enum Figure {
    /// Loads beside a loop without checks and DuckDB (figure 2).
    Load,
    /// 20 selects, and a graph of five levels, by threads (figure 4).
    Breadth,
    /// The time of a batch by the number of its queries (figure 5).
    Queries,
    /// Ten selects by their mean selectivity and the heuristic (figure 7).
    Heuristics,
    /// A scan against an unclustered B+ tree (figure 8).
    Crossover,
    /// Selects by each kind of index, scans, and the chosen path.
    Access,
    /// 100 selects as a batch, one by one, and in DuckDB.
    Batch,
    /// Chunks of a column and selects of a task, by selectivity (figure 6).
    Chunks,
    /// Hash tables: insert into a presized and into a growing table, get, remove (figure 9).
    Tables,
    /// Growing Robin Hood tables with maximum loads of 20, 50 and 90 %, and one that falls (figure
    /// 10).
    MaximumLoad,
    /// 100 selects as one multiselect and one by one, by selectivity.
    Selects,
    /// The most that sharing can gain: k predicates in one pass against k passes, inside and
    /// outside the last-level cache.
    Ceiling,
    /// Comparing each value with k predicates against encoding it once, and against handing out
    /// rows.
    Classify,
    /// Joins by method, sizes and repeats.
    Join,
}

type Recorder<'r> = crate::recorder::Recorder<'r, OperatorsArguments>;

/// DuckDB with `threads` threads; `None`, with a note, if it cannot be started.
fn duckdb(recorder: &mut Recorder<'_>, threads: usize) -> Option<Peer> {
    match Peer::start("duckdb_peer.py", [threads.to_string().as_str(), "."]) {
        Ok((peer, version)) => {
            recorder.note(format!("DuckDB {version}, {threads} threads"));
            Some(peer)
        }
        Err(error) => {
            recorder.note(format!("DuckDB is left out: {error}"));
            None
        }
    }
}

/// Numbers of a column are uniform in this range.
const DOMAIN: i32 = 100_000_000;

fn uniform(rows: usize, seed: u64) -> Vec<i32> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..rows).map(|_| rng.random_range(0..DOMAIN)).collect()
}

pub fn run(arguments: &OperatorsArguments, report: &mut Report) -> Result<(), String> {
    let name = match arguments.figure {
        Figure::Load => "load",
        Figure::Breadth => "breadth",
        Figure::Queries => "queries",
        Figure::Heuristics => "heuristics",
        Figure::Crossover => "crossover",
        Figure::Access => "access",
        Figure::Batch => "batch",
        Figure::Chunks => "chunks",
        Figure::Tables => "tables",
        Figure::MaximumLoad => "maximum-load",
        Figure::Selects => "selects",
        Figure::Ceiling => "ceiling",
        Figure::Classify => "classify",
        Figure::Join => "join",
    };
    let mut recorder = Recorder::new(name, arguments, &arguments.output, report);
    match arguments.figure {
        Figure::Load => loads::run(&mut recorder),
        Figure::Breadth => batches::breadth(&mut recorder),
        Figure::Queries => batches::queries(&mut recorder),
        Figure::Heuristics => batches::heuristics(&mut recorder),
        Figure::Crossover => access::crossover(&mut recorder),
        Figure::Access => access::kinds(&mut recorder),
        Figure::Batch => batches::hundred(&mut recorder),
        Figure::Chunks => scans::chunks(&mut recorder),
        Figure::Tables => tables::operations(&mut recorder),
        Figure::MaximumLoad => tables::maximum_load(&mut recorder),
        Figure::Selects => scans::selects(&mut recorder),
        Figure::Ceiling => scans::ceiling(&mut recorder),
        Figure::Classify => scans::classify(&mut recorder),
        Figure::Join => joins::run(&mut recorder),
    }?;
    recorder.write()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value as Json;
    use std::path::PathBuf;

    #[test]
    fn every_figure_runs_and_is_written() {
        let figures = [
            Figure::Load,
            Figure::Breadth,
            Figure::Queries,
            Figure::Heuristics,
            Figure::Crossover,
            Figure::Access,
            Figure::Batch,
            Figure::Chunks,
            Figure::Tables,
            Figure::MaximumLoad,
            Figure::Selects,
            Figure::Ceiling,
            Figure::Classify,
            Figure::Join,
        ];
        let folder = std::env::temp_dir().join(format!("serac-operators-{}", std::process::id()));
        for (at, figure) in figures.into_iter().enumerate() {
            let out = folder.join(at.to_string());
            let (rows, runs, threads) = (3_000, 1, vec![1, 2]);
            let output = Output { out: Some(out.clone()), plot: true };
            let arguments = OperatorsArguments { figure, rows, runs, threads, output };
            run(&arguments, &mut Report::new(true)).unwrap();
            let files: Vec<PathBuf> = std::fs::read_dir(&out).unwrap().map(|file| file.unwrap().path()).collect();
            let ends = |end: &str| files.iter().filter(|file| file.extension().is_some_and(|e| e == end)).count();
            assert!(ends("json") == 1 && ends("svg") >= 1, "{figure:?}: {files:?}");
            let json = files.iter().find(|file| file.extension().is_some_and(|e| e == "json")).unwrap();
            let result: Json = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
            assert!(!result["rows"].as_array().unwrap().is_empty(), "{figure:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
