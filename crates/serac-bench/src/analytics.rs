//! Analytical workloads beside DuckDB: both engines get the same generated rows and run in turn,
//! and their answers are compared. Or the bytes that a row takes in both, in memory and on the
//! disk.
//!
//! All blocks are frozen before the first query, as those of tables at rest are.

use crate::duckdb::{self, ask, compare, rows_of};
use crate::peer::Peer;
use crate::report::{Report, median};
use crate::setup::{Folder, freeze, resident_bytes, text};
use indicatif::ProgressBar;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};
use serac_storage::{Durability, StorageOptions};
use serac_workload::analytics::{Answer, Query, Workload};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The Star Schema Benchmark: 13 queries on lines of orders and four dimensions.
    Ssb,
    /// Ten aggregations, by keys of few and of many values.
    Groups,
    /// Five joins, with a small, a medium and a large table.
    Joins,
    /// 43 queries on a wide table of page views.
    Web,
}

#[derive(clap::Args, Debug)]
pub struct AnalyticsArguments {
    /// The workload.
    #[arg(value_enum)]
    workload: Kind,
    /// Scale factor of ssb.
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Rows of the others' largest table: by default 10 million, and 5 million for web.
    #[arg(long)]
    rows: Option<u64>,
    /// Threads of a query.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Measured runs of each query, after one warm-up.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Only these queries, as numbers from 1 on.
    #[arg(long, value_delimiter = ',')]
    queries: Vec<usize>,
    /// Compare with DuckDB ("duckdb").
    #[arg(long)]
    peer: Option<String>,
    /// Megabytes that the queries of each engine may take; beyond them they spill or fail. DuckDB's
    /// tables are in a file then, whose pages it may let go.
    #[arg(long)]
    memory_limit: Option<usize>,
    /// Bytes of a row in memory and on the disk in place of timings.
    #[arg(long)]
    space: bool,
    /// Print the plans in place of timings, with metrics, each after as many runs.
    #[arg(long, conflicts_with = "space")]
    explain: bool,
}

impl AnalyticsArguments {
    fn workload(&self) -> Workload {
        match self.workload {
            Kind::Ssb => Workload::ssb(self.sf),
            Kind::Groups => Workload::groups(self.rows.unwrap_or(10_000_000)),
            Kind::Joins => Workload::joins(self.rows.unwrap_or(10_000_000)),
            Kind::Web => Workload::web(self.rows.unwrap_or(5_000_000)),
        }
    }

    /// The workload's name, and its size.
    fn name(&self, workload: &Workload) -> String {
        let kind = format!("{:?}", self.workload).to_lowercase();
        format!("{kind}-{}", workload.tables.iter().map(|table| table.rows).max().unwrap_or(0))
    }

    /// DuckDB with the data, if it is asked for.
    fn start_peer(&self, workload: &Workload) -> Result<Option<Peer>, String> {
        let names: Vec<&str> = workload.tables.iter().map(|table| table.name).collect();
        let start = |peer: &String| {
            if peer != "duckdb" {
                return Err("the only peer is duckdb".to_owned());
            }
            let files = workload.tables.iter().map(|table| (table.name, || table.batches()));
            duckdb::start(self.threads, &duckdb::parquet_files(&self.name(workload), files)?, &names)
        };
        self.peer.as_ref().map(start).transpose()
    }

    /// An answer and its time; of a query that fails within the limit of memory, no number.
    fn within_limit<T>(&self, query: &Query, asked: Result<(T, f64), String>) -> Result<(Option<T>, f64), String> {
        match asked {
            Ok((answer, time)) => Ok((Some(answer), time)),
            Err(error) if self.memory_limit.is_some() => {
                eprintln!("{}: {error}", query.name);
                Ok((None, f64::NAN))
            }
            Err(error) => Err(error),
        }
    }

    fn runtime(&self) -> Result<Runtime, String> {
        tokio::runtime::Builder::new_multi_thread().worker_threads(self.threads).enable_all().build().map_err(text)
    }

    /// A database with the tables, frozen.
    fn load(&self, workload: &Workload, path: Option<&Path>, runtime: &Runtime) -> Result<SqlDatabase, String> {
        let options = StorageOptions {
            path: path.map(Path::to_owned),
            durability: if path.is_some() { Durability::Off } else { StorageOptions::default().durability },
            ..StorageOptions::default()
        };
        let database = Database::open_with(options).map_err(text)?;
        let memory_limit = self.memory_limit.map(|megabytes| megabytes << 20);
        let options = SqlOptions { threads: Some(self.threads), memory_limit, ..SqlOptions::default() };
        let db = SqlDatabase::new(database.clone(), &options).map_err(text)?;
        let bar = ProgressBar::new(workload.tables.iter().map(|table| table.rows).sum());
        for table in &workload.tables {
            runtime.block_on(Session::new(&db).execute(&table.create_sql())).map_err(text)?;
            let mut txn = database.begin();
            let target = txn.catalog().table("public", table.name).map_err(text)?.clone();
            for batch in table.batches() {
                txn.insert_batch(&target, &batch).map_err(text)?;
                bar.inc(batch.num_rows() as u64);
            }
            txn.commit().map_err(text)?;
            freeze(&database, &target)?;
        }
        bar.finish_and_clear();
        Ok(db)
    }
}

/// A session, and the runtime on whose threads its statements run, as a server would run them.
struct Ours<'a> {
    session: Session,
    runtime: &'a Runtime,
}

impl Ours<'_> {
    /// The result of a statement, and its milliseconds.
    fn execute(&mut self, sql: &str) -> Result<(Vec<StatementResult>, f64), String> {
        self.runtime.block_on(async {
            let started = Instant::now();
            let results = self.session.execute(sql).await.map_err(|error| format!("{sql}: {error}"))?;
            Ok((results, started.elapsed().as_secs_f64() * 1e3))
        })
    }

    /// The rows of a query or, if there are too many or any of them may come, their number.
    fn ask(&mut self, query: &Query) -> Result<(Vec<Vec<String>>, f64), String> {
        let (results, time) = self.execute(&query.sql)?;
        let rows = match (query.answer, results.last()) {
            (Answer::Rows, _) => rows_of(&results),
            (_, Some(StatementResult::Rows { batches, .. })) => {
                let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
                vec![vec![rows.to_string()]]
            }
            _ => Vec::new(),
        };
        Ok((rows, time))
    }
}

/// Puts the peer's tables into a file, and limits its memory.
fn limit(peer: &mut Peer, folder: &Path, megabytes: usize) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(text)?;
    let (file, spilled) = (folder.join("peer.duckdb"), folder.join("spilled"));
    for statement in [
        format!("ATTACH '{}' AS disk", file.display()),
        "COPY FROM DATABASE memory TO disk".to_owned(),
        "USE disk".to_owned(),
        "DETACH memory".to_owned(),
        format!("SET temp_directory = '{}'", spilled.display()),
        format!("SET memory_limit = '{megabytes}MiB'"),
    ] {
        peer.ask(&format!("control {statement}"))?;
    }
    Ok(())
}

/// The same of the peer.
fn ask_peer(peer: &mut Peer, query: &Query) -> Result<(Value, f64), String> {
    match query.answer {
        Answer::Rows => ask(peer, &query.sql),
        _ => ask(peer, &format!("count {}", query.sql)),
    }
}

pub fn run(arguments: &AnalyticsArguments, report: &mut Report) -> Result<(), String> {
    let workload = arguments.workload();
    if arguments.space {
        return space(arguments, &workload, report);
    }
    let runtime = arguments.runtime()?;
    let mut peer = if arguments.explain { None } else { arguments.start_peer(&workload)? };
    let folder = Folder::new("analytics");
    if let (Some(peer), Some(megabytes)) = (&mut peer, arguments.memory_limit) {
        limit(peer, &folder.0, megabytes)?;
    }
    let db = arguments.load(&workload, None, &runtime)?;
    let mut ours = Ours { session: Session::new(&db), runtime: &runtime };
    let (mut logs, mut count, mut differences) = ((0.0, 0.0), 0, Vec::new());
    let is_wanted = |number: &usize| arguments.queries.is_empty() || arguments.queries.contains(number);
    for (_, query) in (1..).zip(&workload.queries).filter(|(number, _)| is_wanted(number)) {
        if arguments.explain {
            for _ in 0..arguments.runs {
                ours.execute(&query.sql)?;
            }
            let (results, _) = ours.execute(&format!("EXPLAIN ANALYZE {}", query.sql))?;
            println!("{}: {}", query.name, query.sql);
            rows_of(&results).iter().for_each(|row| println!("{}", row.join("\n")));
            continue;
        }
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for run in 0..=arguments.runs {
            let (rows, time) = arguments.within_limit(query, ours.ask(query))?;
            here.push(time);
            let Some(peer) = &mut peer else { continue };
            let (answer, time) = arguments.within_limit(query, ask_peer(peer, query))?;
            there.push(time);
            if let (0, Some(rows), Some(answer)) = (run, rows, answer) {
                let mut compared = compare(&query.name, &rows, &answer);
                if let Some(sums) = query.sums() {
                    let (results, _) = ours.execute(&sums)?;
                    compared = compared.and(compare(&query.name, &rows_of(&results), &ask(peer, &sums)?.0));
                }
                differences.extend(compared.err());
            }
        }
        let here = median(here.split_off(1));
        let mut figures = vec![("query", json!(query.name)), ("serac ms", json!(here))];
        let mut of_both = here;
        if peer.is_some() {
            let there = median(there.split_off(1));
            figures.extend([("duckdb ms", json!(there)), ("ratio", json!(here / there))]);
            of_both += there;
            if of_both.is_finite() {
                logs.1 += there.ln();
            }
        }
        if of_both.is_finite() {
            logs.0 += here.ln();
            count += 1;
        }
        report.row(&figures);
    }
    if count > 0 {
        let mean = |log: f64| (log / f64::from(count)).exp();
        let mut figures = vec![("query", json!("geometric mean")), ("serac ms", json!(mean(logs.0)))];
        if peer.is_some() {
            figures.extend([("duckdb ms", json!(mean(logs.1))), ("ratio", json!(mean(logs.0 - logs.1)))]);
            report.note(match differences.len() {
                0 => "all results equal DuckDB's".into(),
                n => format!("{n} results differ:\n{}", differences.join("\n")),
            });
        }
        report.row(&figures);
    }
    Ok(())
}

/// Bytes of a row, over all tables: what the process grows by as they are loaded, and what the
/// files have.
fn space(arguments: &AnalyticsArguments, workload: &Workload, report: &mut Report) -> Result<(), String> {
    let rows = workload.tables.iter().map(|table| table.rows).sum::<u64>();
    let mut row = |engine: &str, memory: f64, disk: f64| {
        report.row(&[
            ("workload", json!(format!("{:?}", arguments.workload).to_lowercase())),
            ("engine", json!(engine)),
            ("rows", json!(rows)),
            ("memory bytes per row", json!(memory / rows as f64)),
            ("disk bytes per row", json!(disk / rows as f64)),
        ]);
    };
    let folder = Folder::new("analytics");
    let runtime = arguments.runtime()?;
    let before = resident_bytes();
    let db = arguments.load(workload, None, &runtime)?;
    // The allocator gives memory back after a while.
    std::thread::sleep(Duration::from_secs(1));
    db.database().storage().run_gc();
    let memory = resident_bytes() - before;
    drop(db);
    let db = arguments.load(workload, Some(&folder.0), &runtime)?;
    db.database().checkpoint().map_err(text)?;
    db.database().close().map_err(text)?;
    row("SeracDB", memory, bytes_of(&folder.0)? as f64);
    drop(db);
    if let Some(mut peer) = arguments.start_peer(workload)? {
        std::fs::create_dir_all(&folder.0).map_err(text)?;
        let mut bytes = |question: &str| peer.ask(question).map(|answer| answer["bytes"].as_f64().unwrap_or(f64::NAN));
        let memory = bytes("memory")?;
        row("DuckDB", memory, bytes(&format!("disk {}", folder.0.join("peer.duckdb").display()))?);
    }
    Ok(())
}

/// Bytes that the files of a folder take.
fn bytes_of(folder: &Path) -> Result<u64, String> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).map_err(text)? {
        let entry = entry.map_err(text)?;
        let of = entry.metadata().map_err(text)?;
        bytes += if of.is_dir() { bytes_of(&entry.path())? } else { blocks(&of) };
    }
    Ok(bytes)
}

/// The disk's blocks count: files of the log are made longer than what they hold.
fn blocks(of: &std::fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    of.blocks() * 512
}
