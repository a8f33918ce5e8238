//! TPC-H, beside DuckDB: both engines get the same generated data and run in turn, and their
//! results are compared.

use crate::duckdb::{self, ask, compare, rows_of};
use crate::peer::Peer;
use crate::report::{Report, median};
use crate::setup::{freeze, resident_bytes, text};
use arrow::array::RecordBatch;
use indicatif::ProgressBar;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};
use serac_workload::tpch::{QUERIES, TABLES};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

#[derive(clap::Args, Debug)]
pub struct TpchArguments {
    /// Scale factor.
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Threads of a query.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Measured runs of each query, after one warm-up.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Only these queries, as numbers.
    #[arg(long, value_delimiter = ',')]
    queries: Vec<usize>,
    /// Compare with DuckDB ("duckdb").
    #[arg(long)]
    peer: Option<String>,
    /// The peer runs first, and ends before anything is loaded here: for data that does not fit
    /// into the memory twice.
    #[arg(long, requires = "peer")]
    peer_first: bool,
    /// Make bitmap indexes, and run each query with and without them in turn; by default only the
    /// twelve queries of the CUBIT paper.
    #[arg(long)]
    bitmap_indexes: bool,
    /// Print the plans in place of timings, with metrics, each after as many runs.
    #[arg(long)]
    explain: bool,
}

pub fn load_all(db: &SqlDatabase, sf: f64, runtime: &tokio::runtime::Runtime) -> Result<(), String> {
    let mut session = Session::new(db);
    let bar = ProgressBar::new(TABLES.iter().map(|t| t.rows(sf)).sum());
    for table in TABLES {
        runtime.block_on(session.execute(&table.create_sql(false))).map_err(text)?;
        let mut txn = db.database().begin();
        let target = txn.catalog().table("public", table.name).map_err(text)?.clone();
        for batch in table.generate(sf, 8_192) {
            txn.insert_batch(&target, &batch).map_err(text)?;
            bar.inc(batch.num_rows() as u64);
        }
        txn.commit().map_err(text)?;
    }
    bar.finish_and_clear();
    db.database().storage().run_gc();
    Ok(())
}

/// The columns on which `--bitmap-indexes` makes indexes, by table.
const BITMAP_COLUMNS: [(&str, &[&str]); 4] = [
    (
        "lineitem",
        &[
            "l_orderkey",
            "l_partkey",
            "l_shipdate",
            "l_receiptdate",
            "l_returnflag",
            "l_linestatus",
            "l_discount",
            "l_quantity",
            "l_shipmode",
            "l_shipinstruct",
        ],
    ),
    ("orders", &["o_orderkey", "o_orderdate", "o_custkey"]),
    ("part", &["p_brand", "p_container", "p_type"]),
    ("customer", &["c_mktsegment"]),
];
/// The queries of the CUBIT paper.
pub const CUBIT_QUERIES: [usize; 12] = [1, 3, 4, 5, 6, 10, 12, 14, 15, 17, 18, 19];
/// DuckDB's time by that of the index, in the paper, for each of these queries: the goals.
const CUBIT_GOALS: [f64; 12] = [2.7, 1.2, 1.4, 1.3, 1.8, 1.4, 1.13, 2.1, 1.4, 1.5, 2.7, 1.5];
/// The same for the geometric mean.
const CUBIT_MEAN_GOAL: f64 = 1.6;

pub fn make_indexes(db: &SqlDatabase, runtime: &tokio::runtime::Runtime, report: &mut Report) -> Result<(), String> {
    let mut session = Session::new(db);
    let catalog = db.database().catalog();
    for (table, columns) in BITMAP_COLUMNS {
        let rows = catalog.table("public", table).map_err(text)?.data.approximate_rows();
        for column in columns {
            let started = Instant::now();
            let create = format!("CREATE INDEX {column}_bitmap ON {table} USING bitmap ({column})");
            runtime.block_on(session.execute(&create)).map_err(text)?;
            let seconds = started.elapsed().as_secs_f64();
            let table = db.database().catalog().table("public", table).map_err(text)?.clone();
            let figures = table.bitmaps.last().ok_or("no index")?.entries.statistics();
            report.note(format!(
                "{column}: {} values, {:.1} MB, {:.2} bytes per row, built in {:.2} s, {:.1} million rows per second",
                figures.values,
                figures.bytes as f64 / 1e6,
                figures.bytes as f64 / rows as f64,
                seconds,
                rows as f64 / seconds / 1e6
            ));
        }
    }
    Ok(())
}

impl TpchArguments {
    /// The queries to run, with their numbers.
    fn queries(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let of_paper = self.bitmap_indexes && self.queries.is_empty();
        let wanted = move |number: &usize| match of_paper {
            true => CUBIT_QUERIES.contains(number),
            false => self.queries.is_empty() || self.queries.contains(number),
        };
        (1..).zip(QUERIES).filter(move |(number, _)| wanted(number))
    }

    /// DuckDB with the data, if it is asked for.
    fn start_peer(&self) -> Result<Option<Peer>, String> {
        let names: Vec<&str> = TABLES.iter().map(|t| t.name).collect();
        let start = |_: &String| {
            let files = TABLES.iter().map(|table| (table.name, || table.generate(self.sf, 65_536)));
            duckdb::start(self.threads, &duckdb::parquet_files(&format!("tpch-{}", self.sf), files)?, &names)
        };
        self.peer.as_ref().map(start).transpose()
    }
}

pub fn run(arguments: &TpchArguments, report: &mut Report) -> Result<(), String> {
    if arguments.peer.as_deref().is_some_and(|peer| peer != "duckdb") {
        return Err("the only peer is duckdb".into());
    }
    // All results and times of each query, if the peer goes first.
    let mut earlier = BTreeMap::new();
    if arguments.peer_first {
        let mut peer = arguments.start_peer()?.ok_or("no peer")?;
        for (number, query) in arguments.queries() {
            let asked = (0..=arguments.runs).map(|_| ask(&mut peer, query)).collect::<Result<Vec<_>, _>>()?;
            earlier.insert(number, asked.into_iter());
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.threads)
        .enable_all()
        .build()
        .map_err(text)?;
    let database = Database::in_memory().map_err(text)?;
    let options = SqlOptions { threads: Some(arguments.threads), ..SqlOptions::default() };
    let db = SqlDatabase::new(database, &options).map_err(text)?;
    load_all(&db, arguments.sf, &runtime)?;
    for table in TABLES {
        let loaded = db.database().catalog().table("public", table.name).map_err(text)?.clone();
        freeze(db.database(), &loaded)?;
    }
    let mut peer = if arguments.peer_first { None } else { arguments.start_peer()? };
    if arguments.bitmap_indexes {
        make_indexes(&db, &runtime, report)?;
    }
    let mut session = Session::new(&db);
    // On a worker thread, as any server would run it.
    let mut execute = |sql: String| -> Result<(Vec<StatementResult>, f64), String> {
        runtime.block_on(async {
            let started = Instant::now();
            let results = session.execute(&sql).await.map_err(text)?;
            Ok((results, started.elapsed().as_secs_f64() * 1e3))
        })
    };
    let (mut logs, mut log_without, mut differences) = ((0.0, 0.0, 0), 0.0, Vec::new());
    for (number, query) in arguments.queries() {
        if arguments.explain {
            for _ in 0..arguments.runs {
                execute(query.to_owned())?;
            }
            let (results, _) = execute(format!("EXPLAIN ANALYZE {query}"))?;
            println!("Q{number}");
            rows_of(&results).iter().for_each(|row| println!("{}", row.join("\n")));
            continue;
        }
        let (mut ours, mut theirs, mut without) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..=arguments.runs {
            let (results, time) = execute(query.to_owned())?;
            let answer = match &mut peer {
                Some(peer) => Some(ask(peer, query)?),
                None => earlier.get_mut(&number).and_then(Iterator::next),
            };
            if let Some((answer, time)) = answer {
                if run == 0
                    && let Err(difference) = compare(&format!("Q{number}"), &rows_of(&results), &answer)
                {
                    differences.push(difference);
                }
                theirs.push(time);
            }
            ours.push(time);
            if arguments.bitmap_indexes {
                execute("SET enable_bitmap_index = off".into())?;
                let (scanned, time) = execute(query.to_owned())?;
                execute("SET enable_bitmap_index = on".into())?;
                if rows_of(&scanned) != rows_of(&results) {
                    return Err(format!("Q{number} has another result with bitmap indexes"));
                }
                without.push(time);
            }
        }
        let ours = median(ours.split_off(1));
        let mut figures = vec![("query", json!(format!("Q{number}"))), ("serac ms", json!(ours))];
        if !without.is_empty() {
            let without = median(without.split_off(1));
            figures.extend([("without indexes ms", json!(without)), ("gain", json!(without / ours))]);
            log_without += without.ln();
        }
        if !theirs.is_empty() {
            let theirs = median(theirs.split_off(1));
            figures.extend([("duckdb ms", json!(theirs)), ("ratio", json!(ours / theirs))]);
            if arguments.bitmap_indexes {
                let goal = CUBIT_QUERIES.iter().position(|of| *of == number).map(|at| CUBIT_GOALS[at]);
                figures.extend([("DuckDB / SeracDB", json!(theirs / ours)), ("target", json!(goal))]);
            }
            logs.1 += theirs.ln();
        }
        logs.0 += ours.ln();
        logs.2 += 1;
        report.row(&figures);
    }
    if logs.2 > 0 {
        let mean = |log: f64| (log / f64::from(logs.2)).exp();
        let mut figures = vec![("query", json!("geometric mean")), ("serac ms", json!(mean(logs.0)))];
        if arguments.bitmap_indexes {
            let without = mean(log_without);
            figures.extend([("without indexes ms", json!(without)), ("gain", json!(without / mean(logs.0)))]);
        }
        if arguments.peer.is_some() {
            let (ours, theirs) = (mean(logs.0), mean(logs.1));
            figures.extend([("duckdb ms", json!(theirs)), ("ratio", json!(ours / theirs))]);
            if arguments.bitmap_indexes {
                let goal = (logs.2 as usize == CUBIT_QUERIES.len()).then_some(CUBIT_MEAN_GOAL);
                figures.extend([("DuckDB / SeracDB", json!(theirs / ours)), ("target", json!(goal))]);
            }
        }
        report.row(&figures);
    }
    if arguments.peer.is_some() && !arguments.explain {
        report.note(match differences.len() {
            0 => "all results equal DuckDB's".into(),
            n => format!("{n} results differ:\n{}", differences.join("\n")),
        });
    }
    Ok(())
}

pub fn load(sf: f64, peer: bool, report: &mut Report) -> Result<(), String> {
    let table = TABLES.iter().find(|t| t.name == "lineitem").expect("a table of TPC-H");
    let bar = ProgressBar::new(table.rows(sf));
    let batches: Vec<RecordBatch> = table.generate(sf, 65_536).inspect(|b| bar.inc(b.num_rows() as u64)).collect();
    bar.finish_and_clear();
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let arrow_bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
    let runtime = tokio::runtime::Runtime::new().map_err(text)?;
    let mut times = Vec::new();
    let mut resident = 0.0;
    for run in 0..3 {
        let db = SqlDatabase::new(Database::in_memory().map_err(text)?, &SqlOptions::default()).map_err(text)?;
        runtime.block_on(Session::new(&db).execute(&table.create_sql(false))).map_err(text)?;
        let before = resident_bytes();
        let started = Instant::now();
        let mut txn = db.database().begin();
        let target = txn.catalog().table("public", table.name).map_err(text)?.clone();
        for batch in &batches {
            txn.insert_batch(&target, batch).map_err(text)?;
        }
        txn.commit().map_err(text)?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        if run == 0 {
            resident = resident_bytes() - before;
        }
    }
    let ours = median(times);
    report.row(&[
        ("engine", json!("SeracDB")),
        ("rows", json!(rows)),
        ("ms", json!(ours)),
        ("resident / Arrow", json!(resident / arrow_bytes as f64)),
        ("ratio", json!(null)),
    ]);
    if peer {
        let path = std::env::current_dir().map_err(text)?.join("target/bench-data/lineitem.arrow");
        std::fs::create_dir_all("target/bench-data").map_err(text)?;
        let file = std::fs::File::create(&path).map_err(text)?;
        let mut writer = arrow::ipc::writer::FileWriter::try_new_buffered(file, &batches[0].schema()).map_err(text)?;
        for batch in &batches {
            writer.write(batch).map_err(text)?;
        }
        writer.finish().map_err(text)?;
        drop(writer);
        let mut duck = duckdb::start(2, Path::new("."), &[])?;
        let times = (0..3)
            .map(|_| duck.ask(&format!("load {}", path.display())).map(|a| a["ms"].as_f64().unwrap_or(f64::NAN)))
            .collect::<Result<Vec<_>, _>>()?;
        let theirs = median(times);
        report.row(&[
            ("engine", json!("DuckDB")),
            ("rows", json!(rows)),
            ("ms", json!(theirs)),
            ("resident / Arrow", json!(null)),
            ("ratio", json!(ours / theirs)),
        ]);
    }
    Ok(())
}
