//! The evaluation of the CUBIT paper (appendix §D, §I): throughput, query latency and UDI latency
//! of bitmap indexes under updates.

mod peers;
mod sizes;
mod wah;

use crate::report::Report;
use clap::Args;
use peers::{InPlace, InPlaceRoaring, Index, Ours, Ucb, UpBit};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_index::cubit::{Options, Variant};
use serde_json::json;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use sizes::sizes;

#[derive(Args, Debug)]
pub struct CubitArguments {
    /// Rows.
    #[arg(long, default_value_t = 10_000_000)]
    rows: usize,
    /// Values.
    #[arg(long, default_value_t = 100)]
    cardinality: usize,
    /// Exponent of a Zipf distribution of the values, of rows, updates and queries; uniform
    /// without.
    #[arg(long)]
    zipf: Option<f64>,
    /// Threads, each a run.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Per cent of the operations that are UDIs: a third each of updates, deletes and inserts.
    #[arg(long, default_value_t = 10.0)]
    udis: f64,
    /// Seconds per run.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Which: lf, lk, upbit, ucb, in-place, in-place-roaring.
    #[arg(long, value_delimiter = ',', default_value = "lf,lk,upbit,ucb,in-place,in-place-roaring")]
    indexes: Vec<String>,
    /// The answer of queries: count, or rows (a list of row ids).
    #[arg(long, default_value = "count")]
    answer: Answer,
    /// CUBIT merges in the background, too, with one thread more.
    #[arg(long)]
    background: bool,
    /// Bits in CUBIT's log from which on merges begin.
    #[arg(long, default_value_t = Options::default().merge_threshold)]
    merge_threshold: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum Answer {
    Count,
    Rows,
}

/// Values by the distribution, from a table of cumulative weights.
#[derive(Clone)]
struct Values(Vec<f64>);

impl Values {
    fn new(cardinality: usize, zipf: Option<f64>) -> Self {
        let mut sum = 0.0;
        let weights = (1..=cardinality).map(|rank| (rank as f64).powf(-zipf.unwrap_or(0.0)));
        Self(
            weights
                .map(|weight| {
                    sum += weight;
                    sum
                })
                .collect(),
        )
    }

    fn draw(&self, rng: &mut StdRng) -> usize {
        let at = rng.random_range(0.0..self.0[self.0.len() - 1]);
        self.0.partition_point(|sum| *sum <= at)
    }
}

/// The entries of the table that are not values: the row does not exist, or a thread is changing
/// it.
const GONE: u16 = u16::MAX;
const BUSY: u16 = u16::MAX - 1;

#[derive(Default)]
struct Latencies {
    queries: Vec<u32>,
    udis: Vec<u32>,
}

fn work(
    index: &dyn Index,
    table: &[AtomicU16],
    end: &AtomicUsize,
    values: &Values,
    arguments: &CubitArguments,
    until: Instant,
    seed: u64,
) -> Latencies {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut latencies = Latencies::default();
    let mut kind = seed;
    let mut now = Instant::now();
    while now < until {
        let is_udi = rng.random_bool(arguments.udis / 100.0);
        let value = values.draw(&mut rng);
        if !is_udi {
            let started = Instant::now();
            match arguments.answer {
                Answer::Count => drop(std::hint::black_box(index.count(value))),
                Answer::Rows => drop(std::hint::black_box(index.rows(value))),
            }
            now = Instant::now();
            latencies.queries.push((now - started).as_nanos() as u32);
            continue;
        }
        kind += 1;
        let insert = kind % 3 == 2;
        let row =
            if insert { end.fetch_add(1, Ordering::Relaxed) } else { rng.random_range(0..end.load(Ordering::Relaxed)) };
        let Some(cell) = table.get(row) else { continue };
        // The table's first-updater-wins rule: the thread that takes the row changes it.
        let old = cell.swap(BUSY, Ordering::Acquire);
        if old == BUSY {
            continue;
        }
        if old == GONE && !insert {
            cell.store(GONE, Ordering::Release);
            continue;
        }
        let new = (kind % 3 != 1).then_some(value);
        let started = Instant::now();
        index.change(row as u64, (old != GONE).then_some(old as usize), new);
        now = Instant::now();
        latencies.udis.push((now - started).as_nanos() as u32);
        cell.store(new.map_or(GONE, |value| value as u16), Ordering::Release);
    }
    latencies
}

fn percentile(sorted: &[u32], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).map_or(0.0, |ns| *ns as f64 / 1e3)
}
fn mean(all: &[u32]) -> f64 {
    all.iter().map(|ns| *ns as f64).sum::<f64>() / all.len().max(1) as f64 / 1e3
}

/// An index as the papers call it.
fn title(name: &str) -> &str {
    match name {
        "lf" => "CUBIT-lf",
        "lk" => "CUBIT-lk",
        "upbit" => "UpBit+",
        "ucb" => "UCB+",
        "in-place" => "In-place+",
        other => other,
    }
}

pub fn run(arguments: &CubitArguments, report: &mut Report) -> Result<(), String> {
    let values = Values::new(arguments.cardinality, arguments.zipf);
    let mut rng = StdRng::seed_from_u64(7);
    let column: Vec<u16> = (0..arguments.rows).map(|_| values.draw(&mut rng) as u16).collect();
    let room = arguments.rows + arguments.rows / 2;
    let of_values = arguments.zipf.map_or_else(|| "uniform".into(), |exponent| format!("Zipf {exponent}"));
    for &threads in &arguments.threads {
        let mut latch_free = None;
        for name in &arguments.indexes {
            let cardinality = arguments.cardinality;
            let ours = |variant| {
                let options = Options { variant, merge_threshold: arguments.merge_threshold, ..Options::default() };
                Box::new(Ours::new(&column, cardinality, options, arguments.background))
            };
            let index: Box<dyn Index> = match name.as_str() {
                "lf" => ours(Variant::LatchFree),
                "lk" => ours(Variant::Latched),
                "upbit" => Box::new(UpBit::new(&column, cardinality)),
                "ucb" => Box::new(Ucb::new(&column, cardinality, room)),
                "in-place" => Box::new(InPlace::new(&column, cardinality)),
                "in-place-roaring" => Box::new(InPlaceRoaring::new(&column, cardinality)),
                other => return Err(format!("no index is called {other}")),
            };
            let mut table: Vec<AtomicU16> = column.iter().map(|value| AtomicU16::new(*value)).collect();
            table.resize_with(room, || AtomicU16::new(GONE));
            let end = AtomicUsize::new(arguments.rows);
            let started = Instant::now();
            let until = started + Duration::from_secs_f64(arguments.seconds);
            let all: Vec<Latencies> = std::thread::scope(|scope| {
                let (index, table, end, values) = (&*index, &table[..], &end, &values);
                let run = |seed| move || work(index, table, end, values, arguments, until, seed);
                let handles: Vec<_> = (0..threads as u64).map(|seed| scope.spawn(run(seed))).collect();
                handles.into_iter().map(|handle| handle.join().expect("a worker ends")).collect()
            });
            let seconds = started.elapsed().as_secs_f64();
            // The expected answers, counted in the table.
            let mut expected = vec![0u64; cardinality];
            table
                .iter()
                .map(|cell| cell.load(Ordering::Relaxed))
                .filter(|v| *v < BUSY)
                .for_each(|v| expected[v as usize] += 1);
            for (value, expected) in expected.iter().enumerate() {
                let found = index.count(value);
                if found != *expected {
                    return Err(format!("{name}: value {value} has {expected} rows, the index says {found}"));
                }
            }
            let (mut queries, mut udis) = (Vec::new(), Vec::new());
            for latencies in all {
                queries.extend(latencies.queries);
                udis.extend(latencies.udis);
            }
            queries.sort_unstable();
            udis.sort_unstable();
            let statistics = index.statistics();
            let rate = (queries.len() + udis.len()) as f64 / seconds / 1e3;
            if name == "lf" {
                latch_free = Some(rate);
            }
            report.row(&[
                ("values", json!(of_values)),
                ("threads", json!(threads)),
                ("index", json!(title(name))),
                ("kop/s", json!(rate)),
                ("CUBIT-lf / this", json!(latch_free.map(|latch_free| latch_free / rate))),
                ("query mean µs", json!(mean(&queries))),
                ("query P99", json!(percentile(&queries, 0.99))),
                ("UDIs", json!(udis.len())),
                ("UDI mean µs", json!(mean(&udis))),
                ("P50", json!(percentile(&udis, 0.5))),
                ("P99", json!(percentile(&udis, 0.99))),
                ("P99.9", json!(percentile(&udis, 0.999))),
                ("P99.99", json!(percentile(&udis, 0.9999))),
                ("P99.999", if udis.len() < 100_000 { json!("–") } else { json!(percentile(&udis, 0.99999)) }),
                ("max", json!(percentile(&udis, 1.0))),
            ]);
            if let Some(s) = statistics {
                report.note(format!(
                    "{name}, {threads} threads: {} merges of the log, {} of leaves, {} helps; {} bits in the log, {} pending; HUDs of 0, 1, 2, 3+ ones: {:?}; {:.1} MB",
                    s.rounds, s.merges, s.helps, s.log_bits, s.pending_bits, s.hud_sizes, s.bytes as f64 / 1e6
                ));
            }
        }
    }
    report.note("Every index ended with the counts that the table has.".into());
    Ok(())
}
