//! TPC-C as stored procedures: throughput beside the transformation of cold blocks (figure 10 of
//! the paper), under contention, at each durability.

mod database;
mod procedures;
mod queries;
mod workers;

use crate::report::{Report, median};
use crate::setup::{Folder, text};
use indicatif::ProgressBar;
use procedures::StockLevel;
use serac_storage::{Durability, FreezeFormat};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::time::Duration;
use workers::Outcome;

#[derive(clap::Args, Debug)]
pub struct TpccArguments {
    /// Numbers of worker threads, each with a warehouse of its own unless there are fewer
    /// warehouses.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Warehouses; as many as threads if it is not given.
    #[arg(long)]
    warehouses: Option<i32>,
    /// When commits are acknowledged: off, relaxed, full.
    #[arg(long, value_delimiter = ',', default_value = "relaxed", value_parser = durability)]
    durability: Vec<Durability>,
    /// Transactions that each thread has under way at a time: its clients wait for the log while
    /// the thread works for others. Matters with full durability.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Transformation of the blocks of orders, order_line, history and item: off, or the format
    /// they freeze in (view: gather; dictionary).
    #[arg(long, value_delimiter = ',', default_value = "off", value_parser = transformation)]
    transformation: Vec<FreezeFormat>,
    /// Milliseconds without a change after which a block is cold.
    #[arg(long, default_value_t = 10)]
    threshold: u64,
    /// How Stock-Level finds items of which there are few.
    #[arg(long, value_delimiter = ',', default_value = "ordered")]
    stock_level: Vec<StockLevel>,
    /// Whether there is a bitmap index on S_QUANTITY even where nothing uses it.
    #[arg(long)]
    bitmap: bool,
    /// Whether a thread asks queries of the CH-benCHmark meanwhile.
    #[arg(long, value_delimiter = ',', default_value = "false", action = clap::ArgAction::Set)]
    queries: Vec<bool>,
    /// Gives each worker thread a processor of its own; everything else (log, collector, queries)
    /// runs on the others.
    #[arg(long)]
    pin: bool,
    /// Seconds of each run.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Runs of each kind, in turn.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Leaves the consistency conditions unchecked.
    #[arg(long)]
    no_check: bool,
    /// Where the database is made, to be kept; by default a folder that goes away.
    #[arg(long)]
    path: Option<PathBuf>,
    /// Opens the database at the path, prints the next order number of each district, and checks
    /// the consistency conditions.
    #[arg(long, requires = "path")]
    check_only: bool,
    /// Prints each new order once it is durable.
    #[arg(long)]
    print_orders: bool,
}

fn durability(name: &str) -> Result<Durability, String> {
    match name {
        "off" => Ok(Durability::Off),
        "relaxed" => Ok(Durability::Relaxed),
        "full" => Ok(Durability::Full),
        _ => Err("off, relaxed or full".into()),
    }
}

fn transformation(name: &str) -> Result<FreezeFormat, String> {
    if name == "off" { Ok(FreezeFormat::Never) } else { name.parse().map_err(text) }
}

/// The settings that are compared.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Kind {
    durability: Durability,
    format: FreezeFormat,
    stock_level: StockLevel,
    queries: bool,
}

pub fn run(arguments: &TpccArguments, report: &mut Report) -> Result<(), String> {
    if let (true, Some(path)) = (arguments.check_only, &arguments.path) {
        return database::check_only(path);
    }
    let mut kinds = Vec::new();
    for &durability in &arguments.durability {
        for &stock_level in &arguments.stock_level {
            for &format in &arguments.transformation {
                kinds.extend(arguments.queries.iter().map(|&queries| Kind {
                    durability,
                    format,
                    stock_level,
                    queries,
                }));
            }
        }
    }
    let bar = ProgressBar::new((arguments.threads.len() * arguments.rounds * kinds.len()) as u64);
    for &threads in &arguments.threads {
        let mut outcomes: Vec<Vec<Outcome>> = kinds.iter().map(|_| Vec::new()).collect();
        for round in 0..arguments.rounds {
            // The kinds take turns at being the first of a round, so that the state of the machine
            // affects all alike.
            for kind in (0..kinds.len()).map(|i| (i + round) % kinds.len()) {
                outcomes[kind].push(measure(arguments, threads, kinds[kind])?);
                bar.inc(1);
            }
        }
        for (kind, of_kind) in kinds.iter().zip(&outcomes) {
            let ratios: Vec<f64> =
                of_kind.iter().zip(&outcomes[0]).map(|(a, b)| a.per_second() / b.per_second()).collect();
            show(report, arguments, threads, *kind, of_kind, median(ratios));
        }
    }
    bar.finish_and_clear();
    report.note(
        "of first: the median over the rounds of the ratio to the first kind's throughput in the same round".into(),
    );
    if !arguments.no_check {
        report.note("the twelve consistency conditions held at the end of every run".into());
    }
    Ok(())
}

fn show(
    report: &mut Report,
    arguments: &TpccArguments,
    threads: usize,
    kind: Kind,
    outcomes: &[Outcome],
    of_first: f64,
) {
    let each = |figure: &dyn Fn(&Outcome) -> f64| median(outcomes.iter().map(figure).collect());
    let mut row: Vec<(String, Json)> = vec![
        ("threads".into(), json!(threads)),
        ("warehouses".into(), json!(warehouses(arguments, threads))),
        ("durability".into(), json!(format!("{:?}", kind.durability).to_lowercase())),
        ("transformation".into(), json!(if kind.format == FreezeFormat::Never { "off" } else { kind.format.name() })),
        ("stock level".into(), json!(format!("{:?}", kind.stock_level).to_lowercase())),
        ("transactions/s".into(), json!(each(&|o| o.per_second()))),
        ("per thread".into(), json!(each(&|o| o.per_second() / threads as f64))),
        ("of first".into(), json!(of_first)),
        ("new orders/min".into(), json!(each(&|o| o.new_orders as f64 / o.seconds * 60.0))),
        ("retried %".into(), json!(each(&|o| 100.0 * o.retries as f64 / o.transactions as f64))),
        ("worker CPU µs".into(), json!(each(&|o| o.worker_cpu))),
        ("all CPU µs".into(), json!(each(&|o| o.all_cpu))),
    ];
    for (i, percentile) in [(0, "p50 µs"), (1, "p99 µs"), (2, "p99.9 µs")] {
        row.push((percentile.into(), json!(each(&|o| o.latencies[i]))));
    }
    row.push(("stock level p50 µs".into(), json!(each(&|o| o.stock_level_median))));
    if arguments.queries.contains(&true) {
        row.push(("queries/s".into(), json!(each(&|o| o.queries_per_second))));
        row.push(("query p50 ms".into(), json!(each(&|o| o.query_median))));
    }
    if kind.format != FreezeFormat::Never {
        for (i, table) in database::COLD_TABLES.iter().enumerate() {
            row.push((
                format!("{table} cooling/frozen %"),
                json!(format!("{:.0}/{:.0}", each(&|o| 100.0 * o.shares[i].0), each(&|o| 100.0 * o.shares[i].1))),
            ));
        }
    }
    let row: Vec<(&str, Json)> = row.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    report.row(&row);
}

fn warehouses(arguments: &TpccArguments, threads: usize) -> i32 {
    arguments.warehouses.unwrap_or(threads as i32).max(1)
}

fn measure(arguments: &TpccArguments, threads: usize, kind: Kind) -> Result<Outcome, String> {
    let own = Folder::new("tpcc");
    let path = arguments.path.clone().unwrap_or_else(|| own.0.clone());
    let bitmap = arguments.bitmap || kind.stock_level == StockLevel::Bitmap;
    let loaded = database::load(
        &path,
        kind.durability,
        (kind.format, Duration::from_millis(arguments.threshold)),
        warehouses(arguments, threads),
        bitmap,
    )?;
    let run = workers::Run {
        threads,
        warehouses: warehouses(arguments, threads),
        clients: if kind.durability == Durability::Full { arguments.clients.max(1) } else { 1 },
        time: Duration::from_secs_f64(arguments.seconds),
        stock_level: kind.stock_level,
        print_orders: arguments.print_orders,
        queries: kind.queries,
        pin: arguments.pin,
    };
    let outcome = workers::run(&loaded, &run)?;
    if !arguments.no_check {
        database::check(&loaded)?;
    }
    loaded.database.close().map_err(text)?;
    Ok(outcome)
}
