//! Figures of the 22 queries: each engine over SeracDB and over Parquet files, with several numbers
//! of workers, beside SeracDB's own SQL. A row of JSON for each, and one for all of them together.

use crate::Result;
use crate::answer::Answer;
use crate::cluster::{Cluster, Engine, EngineKind};
use crate::layout::Layout;
use crate::measure;
use crate::processes::Network;
use crate::tables::{Sessions, Source, run};
use serac_workload::tpch::QUERIES;
use std::path::PathBuf;
use std::time::Instant;

/// What engines read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum SourceKind {
    Seracdb,
    Parquet,
}

#[derive(clap::Args)]
pub struct FigureArguments {
    /// The program `serac`
    #[arg(long)]
    serac: PathBuf,
    /// Folder for data and logs, which is made
    #[arg(long)]
    folder: PathBuf,
    /// Scale factor of TPC-H
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Servers over which the tables are spread
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// Numbers of workers, with commas between them
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4])]
    workers: Vec<usize>,
    /// Engines, with commas between them
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [EngineKind::Distributed, EngineKind::Ballista])]
    engine: Vec<EngineKind>,
    /// What they read, with commas between them
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [SourceKind::Seracdb, SourceKind::Parquet])]
    source: Vec<SourceKind>,
    /// Queries, with commas between them; all if none is said
    #[arg(long, value_delimiter = ',')]
    queries: Vec<usize>,
    /// Runs of each query, of which the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Uses the loopback interface, not network namespaces: bytes are not counted then
    #[arg(long)]
    loopback: bool,
}

/// One run, or several together.
#[derive(Default)]
struct Run {
    seconds: f64,
    bytes: Option<u64>,
    server_cpu: f64,
    engine_cpu: f64,
    driver_cpu: f64,
}

/// Measures `run`, whose engine may have processes.
async fn measured(
    cluster: &Cluster,
    engine: Option<&Engine>,
    run: impl Future<Output = Result<Answer>>,
) -> Result<(Run, Answer)> {
    let driver = std::process::id();
    let cpu = || {
        let of_engine = engine.map_or(0.0, Engine::cpu_seconds);
        [cluster.server_cpu_seconds(), of_engine, measure::cpu_seconds(driver)]
    };
    let (begun, bytes, before) = (Instant::now(), cluster.sent_bytes(), cpu());
    let answer = run.await?;
    let (seconds, after) = (begun.elapsed().as_secs_f64(), cpu());
    let bytes = cluster.sent_bytes().zip(bytes).map(|(after, before)| after.saturating_sub(before));
    let [server_cpu, engine_cpu, driver_cpu] = std::array::from_fn(|of| after[of] - before[of]);
    Ok((Run { seconds, bytes, server_cpu, engine_cpu, driver_cpu }, answer))
}

/// Seconds to a tenth of a millisecond.
fn shown(seconds: f64) -> serde_json::Value {
    ((seconds * 1e4).round() / 1e4).into()
}

impl Run {
    fn put_into(&self, row: &mut serde_json::Value) {
        row["seconds"] = shown(self.seconds);
        row["server_bytes"] = self.bytes.into();
        row["server_cpu_seconds"] = shown(self.server_cpu);
        row["engine_cpu_seconds"] = shown(self.engine_cpu);
        row["driver_cpu_seconds"] = shown(self.driver_cpu);
    }
}

/// The rows of one engine with one number of workers over one source.
struct Rows<'a> {
    arguments: &'a FigureArguments,
    labels: serde_json::Value,
    are_equal: bool,
    medians: Vec<Run>,
}

impl<'a> Rows<'a> {
    fn new(arguments: &'a FigureArguments, mut labels: serde_json::Value) -> Self {
        labels["scale"] = arguments.scale.into();
        labels["servers"] = arguments.shards.max(1).into();
        Self { arguments, labels, are_equal: true, medians: Vec::new() }
    }

    /// Runs a query several times and prints its row.
    async fn add(
        &mut self,
        query: usize,
        wanted: &Answer,
        is_same: fn(&Answer, &Answer) -> bool,
        run: impl AsyncFn() -> Result<(Run, Answer)>,
    ) {
        let (mut runs, mut is_equal, mut error) = (Vec::new(), true, None);
        for _ in 0..self.arguments.repeat.max(1) {
            match run().await {
                Ok((run, answer)) => {
                    is_equal &= is_same(wanted, &answer);
                    runs.push(run);
                }
                Err(failed) => error = Some(failed.to_string().chars().take(300).collect::<String>()),
            }
        }
        runs.sort_by(|one, two| one.seconds.total_cmp(&two.seconds));
        let mut row = self.labels.clone();
        row["query"] = query.to_string().into();
        row["rows"] = wanted.rows().into();
        row["equal"] = (is_equal && error.is_none()).into();
        self.are_equal &= is_equal && error.is_none();
        if let Some(error) = &error {
            row["error"] = error.as_str().into();
        }
        if !runs.is_empty() {
            let median = runs.swap_remove(runs.len() / 2);
            median.put_into(&mut row);
            self.medians.push(median);
        }
        println!("{row}");
    }

    /// Prints the row of all queries: their sums, and the geometric mean of their times.
    fn end(self) -> bool {
        let mut all = Run { bytes: Some(0), ..Run::default() };
        let mut logarithms = 0.0;
        for Run { seconds, bytes, server_cpu, engine_cpu, driver_cpu } in &self.medians {
            logarithms += seconds.ln();
            all.seconds += seconds;
            all.bytes = all.bytes.zip(*bytes).map(|(all, of)| all + of);
            all.server_cpu += server_cpu;
            all.engine_cpu += engine_cpu;
            all.driver_cpu += driver_cpu;
        }
        let mut row = self.labels;
        row["query"] = "all".into();
        row["equal"] = self.are_equal.into();
        all.put_into(&mut row);
        row["mean_seconds"] = shown((logarithms / self.medians.len() as f64).exp());
        println!("{row}");
        self.are_equal
    }
}

/// Starts the servers, and measures each engine with each number of workers.
pub async fn figures(arguments: FigureArguments) -> Result<()> {
    std::fs::create_dir_all(&arguments.folder)?;
    let layout = Layout { servers: arguments.shards.max(1), scale: arguments.scale };
    let network = Network::new(!arguments.loopback)?;
    let cluster = Cluster::start(layout, &arguments.serac, &arguments.folder, network).await?;
    let tables = &cluster.tables;
    // Nobody writes, so one snapshot is as good as another.
    let snapshots = tables.snapshots().await?;
    let numbers: Vec<usize> = match arguments.queries.as_slice() {
        [] => (1..=QUERIES.len()).collect(),
        queries => queries.to_vec(),
    };
    if numbers.iter().any(|number| !(1..=QUERIES.len()).contains(number)) {
        return Err("queries have the numbers 1 to 22".into());
    }
    let local = tables.prepare(&Sessions::Local, &snapshots).await?;
    let mut answers = Vec::new();
    for &number in &numbers {
        answers.push((number, run(&Sessions::Local, &local, QUERIES[number - 1]).await?));
    }
    let mut rows = Rows::new(&arguments, serde_json::json!({"engine": "local", "source": "seracdb"}));
    for (number, answer) in &answers {
        let attempt = async || measured(&cluster, None, run(&Sessions::Local, &local, QUERIES[number - 1])).await;
        rows.add(*number, answer, Answer::eq, attempt).await;
    }
    let mut are_equal = rows.end();
    if layout.servers == 1 {
        let mut rows = Rows::new(&arguments, serde_json::json!({"engine": "sql", "source": "seracdb"}));
        for (number, answer) in &answers {
            let attempt = async || measured(&cluster, None, cluster.sql(QUERIES[number - 1])).await;
            rows.add(*number, answer, Answer::is_close, attempt).await;
        }
        are_equal &= rows.end();
    }
    for &kind in &arguments.engine {
        for &workers in &arguments.workers {
            let engine = cluster.engine(kind, workers).await?;
            for &of in &arguments.source {
                let source = match of {
                    SourceKind::Seracdb => snapshots.clone(),
                    SourceKind::Parquet => Source::Parquet(cluster.parquet()),
                };
                let ctx = tables.prepare(&engine.sessions, &source).await?;
                let labels = serde_json::json!({
                    "engine": format!("{kind:?}").to_lowercase(),
                    "source": format!("{of:?}").to_lowercase(),
                    "workers": workers,
                });
                let mut rows = Rows::new(&arguments, labels);
                for (number, answer) in &answers {
                    let sql = QUERIES[number - 1];
                    let attempt = async || measured(&cluster, Some(&engine), run(&engine.sessions, &ctx, sql)).await;
                    rows.add(*number, answer, Answer::eq, attempt).await;
                }
                are_equal &= rows.end();
            }
        }
    }
    // With it, its tables let their snapshots go.
    drop((local, snapshots));
    cluster.nothing_is_held().await?;
    if are_equal { Ok(()) } else { Err("some answers differ, or failed".into()) }
}
