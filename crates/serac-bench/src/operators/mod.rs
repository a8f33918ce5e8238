//! The column operators: the figures of the column-store report with our sizes, and what shared scans, joins and hash tables can do.
//!
//! Each figure is a subcommand. `--out` takes a directory for the results as JSON, with the command that made them, and `--plot` adds charts as SVG. The report's
//! counts of cache misses (figures 2, 6 and 8, right) need counters that virtual machines rarely have, and are left out.

mod hash_tables;
mod joins;
mod scans;
mod tables;

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
    /// Chunks of a column and selects of a task, by selectivity (figure 6).
    Chunks,
    /// Four hash tables: insert into a presized and into a growing table, get, remove (figure 9).
    Tables,
    /// Growing Robin Hood tables with maximum loads of 20, 50 and 90 % (figure 10).
    MaximumLoad,
    /// 100 selects as one multiselect and one by one, by selectivity.
    Selects,
    /// What sharing can give: k predicates in one pass against k passes, inside and outside the last-level cache.
    Ceiling,
    /// Comparing each value with k predicates against classifying it once.
    Classify,
    /// Joins by method, sizes and repeats.
    Join,
}

type Recorder<'r> = crate::recorder::Recorder<'r, OperatorsArguments>;

/// Numbers of a column are uniform in this range.
const DOMAIN: i32 = 100_000_000;

fn uniform(rows: usize, seed: u64) -> Vec<i32> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..rows).map(|_| rng.random_range(0..DOMAIN)).collect()
}

pub fn run(arguments: &OperatorsArguments, report: &mut Report) -> Result<(), String> {
    let name = match arguments.figure {
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
