//! Scans that SQL clients share.
//!
//! The first part is the ceiling: k predicates tested in one pass over a table's blocks against k
//! passes. Both use the block reader and the kernels of SQL's scans, and return only a count. So
//! nothing differs but the place of a block's values, in the caches or in memory, when the next
//! predicate is tested. In the second part, clients query the same table at the same time, each
//! with predicates of its own, with `shared_scans` on and off by turns.

use crate::recorder::{Output, Recorder};
use crate::report::{Report, median};
use crate::setup::text;
use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{Int32Type, Int64Type};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::{Database, Table};
use serac_operators::select::{Comparison, select, select_views};
use serac_sql::scan::last_level_cache_bytes;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_storage::{BlockNo, ColumnId, ScanColumn, Snapshot, StorageOptions};
use serde_json::json;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;

/// The factor up to which sharing gains too little to be noticed.
const LOW_CEILING: f64 = 1.1;
/// Predicates of one pass.
const PREDICATES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Numbers are uniform from 0 up to this.
const DOMAIN: i32 = 100_000_000;
/// Words of a column of texts, each as frequent as the others.
const WORDS: usize = 128;
/// Rows of a batch that is loaded.
const BATCH_ROWS: usize = 1 << 18;

#[derive(clap::Args, Debug)]
pub struct SharedScansArguments {
    /// The part that is measured.
    #[arg(value_enum)]
    part: Part,
    /// MiB of a column that stays in the last-level cache.
    #[arg(long, default_value_t = 16)]
    inside_mib: usize,
    /// MiB of a column that does not; without it twice the cache, and 256 at the least.
    #[arg(long)]
    outside_mib: Option<usize>,
    /// Clients at the same time.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
    clients: Vec<usize>,
    /// Queries of each client in a run.
    #[arg(long, default_value_t = 2)]
    queries: usize,
    /// Threads of the ceiling; the last number is that of the clients' queries, too.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Measured runs, after one that is not; the median is shown.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy)]
enum Part {
    /// One pass with k predicates against k passes.
    Ceiling,
    /// SQL clients with sharing on and off.
    Clients,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Integer,
    BigInt,
    Text,
}

const KINDS: [Kind; 3] = [Kind::Integer, Kind::BigInt, Kind::Text];

/// A comparison of the column with a constant.
enum Predicate {
    Integer(i32),
    BigInt(i64),
    Text([String; 1]),
}

fn word(number: usize) -> String {
    format!("word {number:04}")
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Integer => "INTEGER",
            Self::BigInt => "BIGINT",
            Self::Text => "TEXT",
        }
    }

    /// Bytes of a value in a block.
    fn width(self) -> usize {
        match self {
            Self::Integer => 4,
            Self::BigInt => 8,
            Self::Text => 16,
        }
    }

    fn values(self, rows: usize, rng: &mut StdRng) -> ArrayRef {
        let numbers = (0..rows).map(|_| rng.random_range(0..DOMAIN));
        match self {
            Self::Integer => Arc::new(Int32Array::from_iter_values(numbers)),
            Self::BigInt => Arc::new(Int64Array::from_iter_values(numbers.map(i64::from))),
            Self::Text => {
                let words: Vec<String> = (0..WORDS).map(word).collect();
                Arc::new(StringViewArray::from_iter_values(numbers.map(|n| words[n as usize % WORDS].as_str())))
            }
        }
    }

    /// One of many predicates, for about a hundredth of the rows.
    fn predicate(self, number: usize) -> Predicate {
        let below = DOMAIN / 100 + (number % 10_000) as i32;
        match self {
            Self::Integer => Predicate::Integer(below),
            Self::BigInt => Predicate::BigInt(below.into()),
            Self::Text => Predicate::Text([word(number % WORDS)]),
        }
    }
}

impl Predicate {
    fn count(&self, values: &ArrayRef) -> usize {
        let nulls = values.nulls();
        match self {
            Self::Integer(v) => select(values.as_primitive::<Int32Type>().values(), nulls, Comparison::Less, *v).len(),
            Self::BigInt(v) => select(values.as_primitive::<Int64Type>().values(), nulls, Comparison::Less, *v).len(),
            Self::Text(words) => {
                let values = values.as_string_view();
                select_views(values.views(), nulls, words, |at| values.value(at).as_bytes()).len()
            }
        }
    }

    fn sql(&self) -> String {
        match self {
            Self::Integer(v) => format!("v < {v}"),
            Self::BigInt(v) => format!("v < {v}"),
            Self::Text([word]) => format!("v = '{word}'"),
        }
    }
}

/// A frozen table of one column in a database of its own.
struct Loaded {
    kind: Kind,
    mib: usize,
    rows: usize,
    db: SqlDatabase,
    table: Arc<Table>,
}

impl Loaded {
    fn new(kind: Kind, mib: usize, threads: usize, runtime: &Runtime) -> Result<Self, String> {
        let options = StorageOptions { freeze_after: None, ..StorageOptions::default() };
        let database = Database::open_with(options).map_err(text)?;
        let options = SqlOptions { threads: Some(threads), ..SqlOptions::default() };
        let db = SqlDatabase::new(database.clone(), &options).map_err(text)?;
        let create = format!("CREATE TABLE t (v {})", kind.name());
        runtime.block_on(Session::new(&db).execute(&create)).map_err(text)?;
        let (rows, mut rng) = ((mib << 20) / kind.width(), StdRng::seed_from_u64(1));
        let mut txn = database.begin();
        let table = txn.catalog().table("public", "t").map_err(text)?.clone();
        for begin in (0..rows).step_by(BATCH_ROWS) {
            let values = kind.values(BATCH_ROWS.min(rows - begin), &mut rng);
            let batch = RecordBatch::try_from_iter([("v", values)]).map_err(text)?;
            txn.insert_batch(&table, &batch).map_err(text)?;
        }
        txn.commit().map_err(text)?;
        let (frozen, blocks) = database.storage().freeze_table(&table.data, Duration::from_secs(120));
        if frozen < blocks {
            return Err(format!("{frozen} of {blocks} blocks froze"));
        }
        Ok(Self { kind, mib, rows, db, table })
    }

    /// Tests the predicates on some blocks, all of them block by block.
    fn pass(&self, snapshot: &Snapshot, blocks: std::ops::Range<u32>, predicates: &[Predicate]) -> Result<(), String> {
        let column = [ScanColumn::arrow(ColumnId(0))];
        for no in blocks.map(BlockNo) {
            for predicate in predicates {
                // A block is read for each predicate, as each query does.
                let Some(mut reader) = self.table.data.read_block(snapshot, no) else { continue };
                let visible = reader.visible().clone();
                let values = reader.columns(&column, &visible).map_err(text)?;
                black_box(predicate.count(&values[0]));
            }
        }
        Ok(())
    }

    /// Milliseconds of a pass for each of k predicates, and of one pass for all, by turns.
    fn ceiling(&self, k: usize, threads: usize, runs: usize) -> Result<(f64, f64), String> {
        let predicates: Vec<Predicate> = (0..k).map(|number| self.kind.predicate(number)).collect();
        let txn = self.db.database().begin();
        let blocks = self.table.data.block_count();
        let share = blocks.div_ceil(threads.max(1) as u32).max(1);
        let timed = |at_a_time: usize| -> Result<f64, String> {
            let begun = Instant::now();
            std::thread::scope(|scope| {
                let part = |begin: u32| {
                    let (snapshot, range) = (txn.snapshot(), begin..blocks.min(begin + share));
                    let predicates = &predicates;
                    scope.spawn(move || {
                        predicates.chunks(at_a_time).try_for_each(|some| self.pass(snapshot, range.clone(), some))
                    })
                };
                let parts: Vec<_> = (0..blocks).step_by(share as usize).map(part).collect();
                parts.into_iter().try_for_each(|part| part.join().map_err(|_| "a thread panicked".to_owned())?)
            })?;
            Ok(begun.elapsed().as_secs_f64() * 1e3)
        };
        let (mut apart, mut shared) = (Vec::new(), Vec::new());
        for run in 0..=runs.max(1) {
            let (apart_ms, shared_ms) = (timed(1)?, timed(k)?);
            // The first run warms up.
            if run > 0 {
                apart.push(apart_ms);
                shared.push(shared_ms);
            }
        }
        Ok((median(apart), median(shared)))
    }
}

type SharedRecorder<'r> = Recorder<'r, SharedScansArguments>;

impl SharedScansArguments {
    fn outside_mib(&self) -> usize {
        let cache = last_level_cache_bytes().unwrap_or_default() >> 20;
        self.outside_mib.unwrap_or((2 * cache).max(256))
    }

    fn query_threads(&self) -> usize {
        self.threads.last().copied().unwrap_or(1)
    }
}

fn ceiling(recorder: &mut SharedRecorder<'_>, runtime: &Runtime) -> Result<(), String> {
    let arguments = recorder.arguments;
    let mut low = Vec::new();
    for (place, mib) in [("inside", arguments.inside_mib), ("outside", arguments.outside_mib())] {
        let title = format!("One pass against k passes, {place} the last-level cache");
        recorder.chart(&title, "predicates", "times as fast", true);
        for kind in KINDS {
            let loaded = Loaded::new(kind, mib, arguments.query_threads(), runtime)?;
            for &threads in &arguments.threads {
                for k in PREDICATES {
                    let (apart, shared) = loaded.ceiling(k, threads, arguments.runs)?;
                    let factor = apart / shared;
                    recorder.row(&[
                        ("type", json!(kind.name())),
                        ("cache", json!(place)),
                        ("MiB", json!(mib)),
                        ("rows", json!(loaded.rows)),
                        ("threads", json!(threads)),
                        ("predicates", json!(k)),
                        ("k passes ms", json!(apart)),
                        ("one pass ms", json!(shared)),
                        ("factor", json!(factor)),
                        ("GB/s of k passes", json!((mib << 20) as f64 * k as f64 / apart / 1e6)),
                    ]);
                    recorder.point(&format!("{}, {threads} threads", kind.name()), k as f64, factor);
                    if k == 16 && factor < LOW_CEILING {
                        low.push(format!("{} {place} the cache with {threads} threads ({factor:.2})", kind.name()));
                    }
                }
            }
        }
    }
    if !low.is_empty() {
        recorder.note(format!("sharing has little to give at 16 predicates: {}", low.join(", ")));
    }
    Ok(())
}

/// A query of the clients.
struct Question {
    name: &'static str,
    kind: Kind,
    sql: fn(&Predicate) -> String,
}

const QUESTIONS: [Question; 5] = [
    Question {
        name: "count INTEGER",
        kind: Kind::Integer,
        sql: |p| format!("SELECT count(*) FROM t WHERE {}", p.sql()),
    },
    Question { name: "count BIGINT", kind: Kind::BigInt, sql: |p| format!("SELECT count(*) FROM t WHERE {}", p.sql()) },
    Question { name: "sum BIGINT", kind: Kind::BigInt, sql: |p| format!("SELECT sum(v) FROM t WHERE {}", p.sql()) },
    Question { name: "rows BIGINT", kind: Kind::BigInt, sql: |p| format!("SELECT v FROM t WHERE {}", p.sql()) },
    Question { name: "count TEXT", kind: Kind::Text, sql: |p| format!("SELECT count(*) FROM t WHERE {}", p.sql()) },
];

/// The clients' queries with a value of `shared_scans`: seconds from the first to the last.
async fn ask(
    loaded: &Loaded,
    question: &Question,
    setting: &str,
    clients: usize,
    queries: usize,
) -> Result<f64, String> {
    let barrier = Arc::new(Barrier::new(clients + 1));
    let mut tasks = Vec::new();
    for client in 0..clients {
        let mut session = Session::new(&loaded.db);
        session.execute(&format!("SET shared_scans = {setting}")).await.map_err(text)?;
        let predicates = (0..queries).map(|query| loaded.kind.predicate(client * queries + query));
        let queries: Vec<String> = predicates.map(|predicate| (question.sql)(&predicate)).collect();
        let barrier = barrier.clone();
        tasks.push(tokio::spawn(async move {
            barrier.wait().await;
            for sql in queries {
                session.execute(&sql).await.map_err(text)?;
            }
            Ok::<_, String>(())
        }));
    }
    barrier.wait().await;
    let begun = Instant::now();
    for task in tasks {
        task.await.map_err(text)??;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// The blocks that shared scans have taken because another scan had just read them, and all blocks
/// that they have taken.
fn followed(db: &SqlDatabase) -> (f64, f64) {
    let metrics = db.metrics();
    let taken = metrics.iter().find(|metric| metric.name == "serac_shared_scan_blocks_total");
    let samples = taken.map_or(&[][..], |metric| &metric.samples);
    let of = |followed: bool| {
        let is_it = |labels: String| labels.contains("followed") == followed;
        samples.iter().filter(|sample| is_it(sample.labels_text())).map(|sample| sample.value).sum::<f64>()
    };
    (of(true), of(true) + of(false))
}

fn clients(recorder: &mut SharedRecorder<'_>, runtime: &Runtime) -> Result<(), String> {
    let (arguments, threads) = (recorder.arguments, recorder.arguments.query_threads());
    let mib = arguments.outside_mib();
    recorder.chart("Clients that scan one table, shared_scans on against off", "clients", "times as fast", true);
    for kind in KINDS {
        let loaded = Loaded::new(kind, mib, threads, runtime)?;
        for &clients in &arguments.clients {
            let (apart, shared) = loaded.ceiling(clients.max(1), threads, arguments.runs)?;
            let ceiling = apart / shared;
            for question in QUESTIONS.iter().filter(|question| question.kind == kind) {
                let mut rates = [const { Vec::new() }; 2];
                let mut shares = Vec::new();
                for run in 0..=arguments.runs.max(1) {
                    for (setting, rates) in ["off", "on"].into_iter().zip(&mut rates) {
                        let before = followed(&loaded.db);
                        let ask = ask(&loaded, question, setting, clients, arguments.queries);
                        let seconds = runtime.block_on(ask)?;
                        let after = followed(&loaded.db);
                        if run > 0 {
                            rates.push((clients * arguments.queries) as f64 / seconds);
                            if setting == "on" {
                                shares.push((after.0 - before.0) / (after.1 - before.1).max(1.0));
                            }
                        }
                    }
                }
                let [off, on] = rates.map(median);
                let factor = on / off;
                recorder.row(&[
                    ("query", json!(question.name)),
                    ("clients", json!(clients)),
                    ("MiB", json!(loaded.mib)),
                    ("rows", json!(loaded.rows)),
                    ("off queries/s", json!(off)),
                    ("on queries/s", json!(on)),
                    ("on / off", json!(factor)),
                    ("ceiling", json!(ceiling)),
                    ("of the ceiling", json!(factor / ceiling)),
                    ("blocks followed", json!(median(shares))),
                ]);
                recorder.point(question.name, clients as f64, factor);
                recorder.point(&format!("ceiling {}", kind.name()), clients as f64, ceiling);
            }
        }
    }
    Ok(())
}

pub fn run(arguments: &SharedScansArguments, report: &mut Report) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(text)?;
    let name = match arguments.part {
        Part::Ceiling => "shared-ceiling",
        Part::Clients => "shared-clients",
    };
    let mut recorder = Recorder::new(name, arguments, &arguments.output, report);
    match arguments.part {
        Part::Ceiling => ceiling(&mut recorder, &runtime),
        Part::Clients => clients(&mut recorder, &runtime),
    }?;
    recorder.write()
}
