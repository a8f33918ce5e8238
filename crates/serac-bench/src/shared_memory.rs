//! Lineitem in shared memory: the time from a request to record batches in another process, and how
//! long writers wait beside readers.
//!
//! | state of lineitem | where its bytes come from |
//! |---|---|
//! | hot | a copy |
//! | frozen | a copy |
//! | checkpointed | data files |
//! | opened again | data files, whose checksums the first reader pays for |
//!
//! Readers are processes of their own: this program with `--reader`. They count the rows and sum up
//! a column of every image, outside of the time.
//!
//! Beside the writer, readers ask for images of lineitem and of the table that is written to, one
//! after the other. Readers take processors from the writer, too, where there are fewer processors
//! than processes. So the writer is also measured beside as many processes that read one image over
//! and over and ask for nothing. If its updates take no longer beside readers of new images than
//! beside readers of one image, the writer waits for processors, not for images.

use crate::report::{Report, median};
use crate::setup::{Folder, text};
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::sum;
use arrow::datatypes::Int64Type;
use rand::Rng;
use serac_client::client::{Client, Options};
use serac_client::image::SnapshotRequest;
use serac_engine::Database;
use serac_server::folder::{FolderOptions, FolderServer};
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_storage::{Durability, StorageOptions};
use serac_workload::tpch::TABLES;
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Rows of the table that is written to.
const ACCOUNTS: u32 = 100_000;

#[derive(clap::Args, Debug)]
pub struct SharedMemoryArguments {
    /// Scale factor.
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Images of each state, of which the first is shown by itself and the median of the others.
    #[arg(long, default_value_t = 11)]
    runs: usize,
    /// Seconds for which a writer is measured, without readers and with them.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Measurements of the writer beside each kind of readers, by turns; the medians are shown.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Processes that read beside the writer.
    #[arg(long, default_value_t = 8)]
    readers: usize,
    /// Reads the folder of another process: for the readers that this program starts.
    #[arg(long, hide = true)]
    reader: Option<PathBuf>,
    /// The work of such a reader.
    #[arg(long, hide = true, value_enum, default_value_t = Reads::Lineitem)]
    reads: Reads,
}

/// The work of a reader.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// Asks for images of lineitem, `--runs` of them.
    Lineitem,
    /// Asks for images of lineitem and of the table that is written to, until it is killed.
    WrittenTo,
    /// Asks for one image of lineitem, and reads it until it is killed.
    OneImage,
}

impl Reads {
    /// The value of the option.
    fn option(self) -> &'static str {
        match self {
            Self::Lineitem => "lineitem",
            Self::WrittenTo => "written-to",
            Self::OneImage => "one-image",
        }
    }
}

/// A process that reads. It is ended when this is dropped.
struct Reader {
    process: Child,
    output: Option<BufReader<ChildStdout>>,
}

impl Reader {
    fn start(folder: &Path, reads: Reads, runs: usize) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(text)?;
        // With --json the program prints no table at its end.
        let mut command = Command::new(program);
        command.args(["shared-memory", "--json", "--reader"]).arg(folder);
        command.args(["--reads", reads.option(), "--runs", &runs.to_string()]);
        // The reader reports errors on standard output.
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(text)?;
        let output = process.stdout.take().map(BufReader::new);
        Ok(Self { process, output })
    }

    /// The lines of its output. They can be taken once.
    fn lines(&mut self) -> Result<Lines<BufReader<ChildStdout>>, String> {
        Ok(self.output.take().ok_or("the reader says nothing")?.lines())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Holder {
    db: SqlDatabase,
    server: FolderServer,
}

impl Holder {
    fn open(folder: &Path) -> Result<Self, String> {
        let options = StorageOptions {
            path: Some(folder.to_owned()),
            durability: Durability::Off,
            freeze_after: None,
            serves_others: true,
            ..StorageOptions::default()
        };
        let database = Database::open_with(options).map_err(text)?;
        let db = SqlDatabase::new(database, &SqlOptions::default()).map_err(text)?;
        let server = FolderServer::start(db.clone(), folder, FolderOptions::default()).map_err(text)?;
        Ok(Self { db, server })
    }

    fn close(self) -> Result<(), String> {
        self.server.stop();
        self.db.database().close().map_err(text)
    }
}

/// The figures in a line of a reader.
fn figures(line: std::io::Result<String>) -> Result<Json, String> {
    let figures: Json = serde_json::from_str(&line.map_err(text)?).map_err(text)?;
    match figures["error"].as_str() {
        Some(error) => Err(format!("a reader says: {error}")),
        None => Ok(figures),
    }
}

/// The number of rows, and the sum of the first column.
fn totals(batches: &[RecordBatch]) -> (usize, i64) {
    let keys = batches.iter().map(|batch| sum(batch.column(0).as_primitive::<Int64Type>()).unwrap_or(0));
    (batches.iter().map(RecordBatch::num_rows).sum(), keys.sum())
}

/// The reader: a line of figures for each image, or for each time that it has read its only one.
fn read(folder: &Path, reads: Reads, runs: usize) -> Result<(), String> {
    let mut client = Client::connect(folder, &Options::default()).map_err(text)?;
    let tables = [("public", "lineitem"), ("public", "account")];
    let request = SnapshotRequest::new(tables[..if reads == Reads::WrittenTo { 2 } else { 1 }].iter().copied());
    let say = |figures: Json| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{figures}").and_then(|()| out.flush()).map_err(text)
    };
    if reads == Reads::OneImage {
        let snapshot = client.snapshot(&request).map_err(text)?;
        loop {
            let (rows, total) = totals(&snapshot.tables[0].batches);
            say(json!({ "rows": rows, "sum": total }))?;
        }
    }
    for _ in 0..runs {
        let begun = Instant::now();
        let snapshot = client.snapshot(&request).map_err(text)?;
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        let (rows, total) = totals(&snapshot.tables[0].batches);
        let (copied, shared) = (snapshot.copied_bytes, snapshot.shared_bytes);
        client.end_lease(snapshot.lease).map_err(text)?;
        say(json!({ "ms": ms, "rows": rows, "sum": total, "copied": copied, "shared": shared }))?;
    }
    Ok(())
}

/// Updates rows by key for `seconds` seconds. Returns the waits in milliseconds.
fn write(db: &SqlDatabase, seconds: f64) -> Result<Vec<f64>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let (mut session, mut waits) = (Session::new(db), Vec::new());
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < until {
        let account = rand::rng().random_range(1..=ACCOUNTS);
        let sql = format!("UPDATE account SET balance = balance + 1 WHERE id = {account}");
        let begun = Instant::now();
        runtime.block_on(session.execute(&sql)).map_err(text)?;
        waits.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    waits.sort_by(f64::total_cmp);
    Ok(waits)
}

pub fn run(arguments: &SharedMemoryArguments, report: &mut Report) -> Result<(), String> {
    if let Some(folder) = &arguments.reader {
        let result = read(folder, arguments.reads, arguments.runs);
        return result.inspect_err(|error| println!("{}", json!({ "error": error })));
    }
    let runs = arguments.runs.max(1);
    let folder = Folder::new("shared-memory");
    std::fs::create_dir_all(&folder.0).map_err(text)?;
    let folder_path = std::path::absolute(&folder.0).map_err(text)?;
    let mut holder = Holder::open(&folder_path)?;
    let workload = TABLES.iter().find(|t| t.name == "lineitem").expect("a table of TPC-H");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let execute = |db: &SqlDatabase, sql: &str| runtime.block_on(Session::new(db).execute(sql)).map(drop).map_err(text);
    execute(&holder.db, &workload.create_sql(false))?;
    execute(&holder.db, "CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT)")?;
    let fill = format!("INSERT INTO account SELECT i, 0 FROM generate_series(1, {ACCOUNTS}) AS s (i)");
    execute(&holder.db, &fill)?;
    let table = holder.db.database().catalog().table("public", workload.name).map_err(text)?.clone();
    let (mut txn, mut rows, mut total) = (holder.db.database().begin(), 0, 0);
    for batch in workload.generate(arguments.sf, 65_536) {
        rows += batch.num_rows();
        total += sum(batch.column(0).as_primitive::<Int64Type>()).unwrap_or(0);
        txn.insert_batch(&table, &batch).map_err(text)?;
    }
    txn.commit().map_err(text)?;
    drop(table);
    holder.db.database().storage().run_gc();

    for state in ["hot", "frozen", "checkpointed", "opened again"] {
        match state {
            "frozen" => {
                let table = holder.db.database().catalog().table("public", workload.name).map_err(text)?.clone();
                let storage = holder.db.database().storage();
                let (frozen, blocks) = storage.freeze_table(&table.data, Duration::from_secs(60));
                if frozen < blocks {
                    return Err(format!("{frozen} of {blocks} blocks froze"));
                }
            }
            "checkpointed" => drop(holder.db.database().checkpoint().map_err(text)?),
            "opened again" => {
                holder.close()?;
                holder = Holder::open(&folder_path)?;
            }
            _ => {}
        }
        let mut reader = Reader::start(&folder_path, Reads::Lineitem, runs)?;
        let lines: Vec<Json> = reader.lines()?.map(figures).collect::<Result<_, _>>()?;
        if lines.len() != runs || lines.iter().any(|line| line["rows"] != rows || line["sum"] != total) {
            return Err(format!("{state}: images are missing, or have other rows"));
        }
        let ms: Vec<f64> = lines.iter().filter_map(|line| line["ms"].as_f64()).collect();
        let later = if ms.len() > 1 { ms[1..].to_vec() } else { ms.clone() };
        report.row(&row(
            &format!("image of lineitem, {state}"),
            &[
                ("first ms", ms[0]),
                ("next ms", median(later)),
                ("MB copied", lines[0]["copied"].as_f64().unwrap_or(0.0) / 1e6),
                ("MB shared", lines[0]["shared"].as_f64().unwrap_or(0.0) / 1e6),
            ],
        ));
    }

    let readers = arguments.readers;
    let kinds = [(0, Reads::Lineitem), (readers, Reads::OneImage), (readers, Reads::WrittenTo)];
    let mut measured: [Vec<Writer>; 3] = Default::default();
    for _ in 0..arguments.rounds.max(1) {
        for ((readers, reads), measured) in kinds.into_iter().zip(&mut measured) {
            measured.push(beside(&holder.db, &folder_path, readers, reads, arguments.seconds)?);
        }
    }
    for ((readers, reads), measured) in kinds.into_iter().zip(&measured) {
        let what = match reads {
            Reads::Lineitem => "writer alone".to_owned(),
            Reads::OneImage => format!("writer beside {readers} readers of one image each"),
            Reads::WrittenTo => format!("writer beside {readers} readers of new images"),
        };
        let middle = |of: fn(&Writer) -> f64| median(measured.iter().map(of).collect());
        let images = middle(|writer| writer.images);
        report.row(&row(
            &what,
            &[
                ("images/s", if reads == Reads::WrittenTo { images } else { f64::NAN }),
                ("updates/s", middle(|writer| writer.updates)),
                ("median µs", middle(|writer| writer.median)),
                ("p99 µs", middle(|writer| writer.p99)),
                ("p99.9 µs", middle(|writer| writer.p999)),
            ],
        ));
    }
    holder.close()
}

/// A row of the report. All rows have the same columns, most of which are empty in this one.
fn row(what: &str, figures: &[(&'static str, f64)]) -> Vec<(&'static str, Json)> {
    const COLUMNS: [&str; 9] =
        ["first ms", "next ms", "MB copied", "MB shared", "images/s", "updates/s", "median µs", "p99 µs", "p99.9 µs"];
    let figure = |column: &str| figures.iter().find(|(name, _)| *name == column).map(|(_, figure)| *figure);
    // NaN becomes null.
    let columns = COLUMNS.into_iter().map(|column| (column, json!(figure(column))));
    [("what", json!(what))].into_iter().chain(columns).collect()
}

/// The rates of a writer and of the readers per second, and the waits of its updates in
/// microseconds.
struct Writer {
    images: f64,
    updates: f64,
    median: f64,
    p99: f64,
    p999: f64,
}

/// Measures a writer beside `readers` readers.
fn beside(db: &SqlDatabase, folder: &Path, readers: usize, reads: Reads, seconds: f64) -> Result<Writer, String> {
    let mut children: Vec<Reader> =
        (0..readers).map(|_| Reader::start(folder, reads, usize::MAX >> 1)).collect::<Result<_, _>>()?;
    // Each reader has read once before the writer is measured. Later lines are only counted.
    let said = Arc::new(AtomicUsize::new(0));
    let mut listeners = Vec::new();
    for child in &mut children {
        let mut lines = child.lines()?;
        figures(lines.next().ok_or("a reader has ended")?)?;
        let said = said.clone();
        listeners.push(std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|_| {
                // Relaxed: a count.
                said.fetch_add(1, Ordering::Relaxed);
            });
        }));
    }
    let before = said.load(Ordering::Relaxed);
    let waits = write(db, seconds)?;
    let images = said.load(Ordering::Relaxed) - before;
    drop(children);
    for listener in listeners {
        listener.join().map_err(|_| "a listener has panicked")?;
    }
    let at = |part: f64| waits.get((waits.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN) * 1e3;
    Ok(Writer {
        images: images as f64 / seconds,
        updates: waits.len() as f64 / seconds,
        median: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
    })
}
