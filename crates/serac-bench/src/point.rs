//! Statements on single rows by key, one transaction each, in process: prepared, as text, and
//! without the point path, beside SQLite and DuckDB.

use crate::peer::Peer;
use crate::report::Report;
use crate::setup::{Folder, text, thread_cpu_seconds};
use clap::{Args, ValueEnum};
use rusqlite::Connection;
use serac_engine::Database;
use serac_sql::{Prepared, Rows, Session, SqlDatabase, SqlOptions};
use serac_storage::{Durability, StorageOptions, Value};
use serde_json::json;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub struct PointArguments {
    /// Rows of the table.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Seconds per measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Without a log, with a relaxed one, or durable.
    #[arg(long, value_enum, default_value_t = Log::Memory)]
    log: Log,
    /// Only the prepared statements of SeracDB.
    #[arg(long)]
    alone: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Log {
    Memory,
    Relaxed,
    Full,
}

const KINDS: [(&str, &str); 4] = [
    ("select", "SELECT a, s FROM t WHERE id = $1"),
    ("update", "UPDATE t SET a = a + 1 WHERE id = $1"),
    ("insert", "INSERT INTO t VALUES ($1, 1, 2, 'inserted text')"),
    ("delete", "DELETE FROM t WHERE id = $1"),
];
const CREATE: &str = "CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT NOT NULL, b BIGINT, s VARCHAR(20))";

/// Keys for a kind of statement: of existing rows, or new ones, or the new ones again.
struct Keys {
    rows: u64,
    state: u64,
    next: u64,
}

impl Keys {
    fn next(&mut self, kind: &str) -> i64 {
        match kind {
            "insert" | "delete" => {
                self.next += 1;
                // Scattered, so that SeracDB's and SQLite's trees do not profit from ascending
                // keys.
                (self.rows + self.next.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (1 << 40)) as i64
            }
            _ => {
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                (self.state % self.rows) as i64
            }
        }
    }
}

/// The number of runs of a statement, and the time that they took.
struct Measured {
    count: usize,
    seconds: f64,
    cpu_seconds: f64,
    /// Nanoseconds of each run, ascending.
    latencies: Vec<u32>,
}

impl Measured {
    fn percentile(&self, share: f64) -> f64 {
        let at = (self.latencies.len() as f64 * share) as usize;
        f64::from(self.latencies[at.min(self.latencies.len() - 1)]) / 1e3
    }
}

/// Runs `statement` with one key after the other, for some time, or `most` times.
fn measure(
    kind: &str,
    keys: &mut Keys,
    seconds: f64,
    most: usize,
    mut statement: impl FnMut(i64) -> Result<(), String>,
) -> Result<Measured, String> {
    let mut latencies = Vec::with_capacity(1 << 22);
    let cpu = thread_cpu_seconds();
    let (started, time) = (Instant::now(), Duration::from_secs_f64(seconds));
    let mut before = started;
    while latencies.len() < most && before - started < time {
        statement(keys.next(kind))?;
        let now = Instant::now();
        latencies.push((now - before).as_nanos().min(u32::MAX.into()) as u32);
        before = now;
    }
    let (seconds, cpu_seconds) = (started.elapsed().as_secs_f64(), thread_cpu_seconds() - cpu);
    latencies.sort_unstable();
    Ok(Measured { count: latencies.len(), seconds, cpu_seconds, latencies })
}

/// Measures all kinds. As many rows as were inserted are deleted again.
fn measure_all(
    name: &str,
    arguments: &PointArguments,
    report: &mut Report,
    mut statement: impl FnMut(usize, i64) -> Result<(), String>,
) -> Result<(), String> {
    eprintln!("{name} …");
    let mut keys = Keys { rows: arguments.rows, state: 88_172_645_463_325_252, next: 0 };
    let mut inserted = usize::MAX;
    for (i, (kind, _)) in KINDS.iter().enumerate() {
        let (seconds, most) = match *kind {
            "delete" => {
                keys.next = 0;
                (3_600.0, inserted)
            }
            _ => (arguments.seconds, usize::MAX),
        };
        let measured = measure(kind, &mut keys, seconds, most, |key| statement(i, key))?;
        inserted = measured.count;
        report.row(&[
            ("path", json!(name)),
            ("statement", json!(kind)),
            ("per second", json!(measured.count as f64 / measured.seconds)),
            ("per second of its core", json!(measured.count as f64 / measured.cpu_seconds)),
            ("p50 µs", json!(measured.percentile(0.5))),
            ("p99 µs", json!(measured.percentile(0.99))),
            ("p99.9 µs", json!(measured.percentile(0.999))),
        ]);
    }
    Ok(())
}

fn database(arguments: &PointArguments, folder: &Folder) -> Result<SqlDatabase, String> {
    let (path, durability) = match arguments.log {
        Log::Memory => (None, Durability::Off),
        Log::Relaxed => (Some(folder.0.clone()), Durability::Relaxed),
        Log::Full => (Some(folder.0.clone()), Durability::Full),
    };
    let options = StorageOptions { path, durability, ..Default::default() };
    SqlDatabase::new(Database::open_with(options).map_err(text)?, &SqlOptions::default()).map_err(text)
}

fn serac(arguments: &PointArguments, report: &mut Report) -> Result<(), String> {
    let folder = Folder::new("point");
    let db = database(arguments, &folder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(text)?;
    let mut session = Session::new(&db);
    let fill = format!(
        "{CREATE}; INSERT INTO t SELECT value, value, value % 100, 'text of row ' || value FROM generate_series(0, {}) AS s (value)",
        arguments.rows - 1
    );
    runtime.block_on(session.execute(&fill)).map_err(text)?;
    let mut prepared: Vec<Prepared> =
        KINDS.iter().map(|(_, sql)| session.prepare(sql)).collect::<Result<_, _>>().map_err(text)?;
    let mut rows = Rows::default();
    measure_all("prepared", arguments, report, |kind, key| {
        let ran = session.run_prepared(&mut prepared[kind], &[Value::Int64(key)], &mut rows).map_err(text)?;
        if ran == Some(1) { Ok(()) } else { Err(format!("{ran:?} rows")) }
    })?;
    if !arguments.alone {
        let with_text = |session: &mut Session, kind: usize, key: i64| {
            let sql = KINDS[kind].1.replace("$1", &key.to_string());
            runtime.block_on(session.execute(&sql)).map(|_| ()).map_err(text)
        };
        measure_all("text", arguments, report, |kind, key| with_text(&mut session, kind, key))?;
        runtime.block_on(session.execute("SET enable_point_path = off")).map_err(text)?;
        measure_all("text, no point path", arguments, report, |kind, key| with_text(&mut session, kind, key))?;
    }
    db.database().close().map_err(text)
}

fn sqlite(arguments: &PointArguments, report: &mut Report) -> Result<(), String> {
    let folder = Folder::new("point-sqlite");
    let connection = match arguments.log {
        Log::Memory => Connection::open_in_memory().map_err(text)?,
        log => {
            std::fs::create_dir_all(&folder.0).map_err(text)?;
            let connection = Connection::open(folder.0.join("db")).map_err(text)?;
            let synchronous = if log == Log::Full { "FULL" } else { "NORMAL" };
            connection.pragma_update(None, "journal_mode", "WAL").map_err(text)?;
            connection.pragma_update(None, "synchronous", synchronous).map_err(text)?;
            connection
        }
    };
    connection
        .execute_batch(&format!(
            "{CREATE}; WITH RECURSIVE s (value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM s WHERE value < {}) \
             INSERT INTO t SELECT value, value, value % 100, 'text of row ' || value FROM s",
            arguments.rows - 1
        ))
        .map_err(text)?;
    let mut statements = KINDS
        .iter()
        .map(|(_, sql)| connection.prepare(&sql.replace("$1", "?1")).map_err(text))
        .collect::<Result<Vec<_>, _>>()?;
    let name = format!("SQLite {}", rusqlite::version());
    measure_all(&name, arguments, report, |kind, key| match KINDS[kind].0 {
        "select" => statements[kind]
            .query_row([key], |row| {
                let (_, _): (i64, String) = (row.get(0)?, row.get(1)?);
                Ok(())
            })
            .map_err(text),
        _ => statements[kind].execute([key]).map(|_| ()).map_err(text),
    })
}

/// DuckDB through its Python module, in memory. A statement that does nothing measures the cost of
/// the loop there.
fn duckdb(arguments: &PointArguments, report: &mut Report) -> Result<(), String> {
    let (mut peer, version) = Peer::start("duckdb_peer.py", ["1", "."])?;
    peer.ask(CREATE)?;
    let rows = arguments.rows;
    peer.ask(&format!("INSERT INTO t SELECT i, i, i % 100, 'text of row ' || i FROM range(0, {rows}) AS s (i)"))?;
    for (kind, sql) in KINDS {
        // New keys begin behind the old ones, and are deleted from there.
        let (first, count) = if matches!(kind, "insert" | "delete") { (rows, 2_000) } else { (0, 5_000) };
        let answer = peer.ask(&format!("repeat {count} {first} {}", sql))?;
        let micros = |name: &str| answer[name].as_f64().unwrap_or_default() * 1e3;
        report.row(&[
            ("path", json!(format!("DuckDB {version}, Python"))),
            ("statement", json!(kind)),
            ("per second", json!(count as f64 / (answer["ms"].as_f64().unwrap_or(f64::NAN) / 1e3))),
            ("per second of its core", json!(null)),
            ("p50 µs", json!(micros("p50"))),
            ("p99 µs", json!(micros("p99"))),
            ("p99.9 µs", json!(micros("p999"))),
        ]);
    }
    Ok(())
}

pub fn run(arguments: &PointArguments, report: &mut Report) -> Result<(), String> {
    serac(arguments, report)?;
    if !arguments.alone {
        sqlite(arguments, report)?;
        if arguments.log == Log::Memory {
            duckdb(arguments, report)?;
        }
    }
    report.note(format!(
        "{} rows; {:?}; one thread, each statement a transaction of its own",
        arguments.rows, arguments.log
    ));
    Ok(())
}
