//! `serac demo`: TPC-H queries and refresh transactions on one database at the same time.

use crate::output::progress_bar;
use comfy_table::{CellAlignment, Table, presets};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlError, SqlOptions, StatementResult};
use serac_workload::tpch::{QUERIES, RefreshStream, TABLES};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(clap::Args, Debug)]
pub struct DemoArguments {
    /// TPC-H scale factor: 1 is about 8.7 million rows.
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Keeps the database in this folder instead of in memory.
    #[arg(long)]
    keep: Option<std::path::PathBuf>,
}

/// The figures of the refresh thread.
#[derive(Default)]
struct Refreshed {
    transactions: AtomicU64,
    inserted: AtomicU64,
    deleted: AtomicU64,
    conflicts: AtomicU64,
}

/// Counts the orders without lines and the lines without orders. The count must be 0 in every
/// snapshot.
const INVARIANT: &str = "SELECT (SELECT count(*) FROM orders WHERE NOT EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey)) \
    + (SELECT count(*) FROM lineitem WHERE NOT EXISTS (SELECT 1 FROM orders WHERE l_orderkey = o_orderkey)) AS orphans";

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn load(db: &SqlDatabase, scale: f64) -> Result<(u64, Duration), String> {
    let started = Instant::now();
    let total: u64 = TABLES.iter().map(|t| t.rows(scale)).sum();
    let bar = progress_bar(total, "loading");
    let mut rows = 0;
    for table in TABLES {
        bar.set_message(table.name);
        let mut txn = db.database().begin();
        let target = txn.catalog().table("public", table.name).map_err(text)?.clone();
        for batch in table.generate(scale, 8_192) {
            txn.insert_batch(&target, &batch).map_err(text)?;
            rows += batch.num_rows() as u64;
            bar.inc(batch.num_rows() as u64);
        }
        txn.commit().map_err(text)?.wait().map_err(text)?;
    }
    bar.finish_and_clear();
    Ok((rows, started.elapsed()))
}

async fn refresh(db: SqlDatabase, scale: f64, stop: Arc<AtomicBool>, done: Arc<Refreshed>) -> Result<(), SqlError> {
    let mut session = Session::new(&db);
    for refresh in RefreshStream::new(scale, 0) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        session.execute("BEGIN").await?;
        let mut outcome = Ok(0);
        for statement in &refresh.statements {
            outcome = session.execute(statement).await.map(|results| match results.last() {
                Some(StatementResult::Command { rows, .. }) => outcome.unwrap_or(0) + rows,
                _ => 0,
            });
            if outcome.is_err() {
                break;
            }
        }
        match outcome {
            Ok(rows) => {
                session.execute("COMMIT").await?;
                done.transactions.fetch_add(1, Ordering::Relaxed);
                let counter = if refresh.inserts { &done.inserted } else { &done.deleted };
                counter.fetch_add(rows, Ordering::Relaxed);
            }
            Err(error) if error.sqlstate == sqlstate::SERIALIZATION_FAILURE => {
                session.execute("ROLLBACK").await?;
                done.conflicts.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

fn count(results: &[StatementResult]) -> i64 {
    use arrow::array::AsArray;
    match results.last() {
        Some(StatementResult::Rows { batches, .. }) if !batches.is_empty() => {
            batches[0].column(0).as_primitive::<arrow::datatypes::Int64Type>().value(0)
        }
        _ => 0,
    }
}

pub async fn run(arguments: &DemoArguments) -> Result<(), String> {
    let started = Instant::now();
    let scale = arguments.sf;
    if !(scale > 0.0 && scale <= 100.0) {
        return Err("the scale factor must lie between 0 and 100".into());
    }
    let options = serac_storage::StorageOptions { path: arguments.keep.clone(), ..Default::default() };
    let database = Database::open_with(options).map_err(text)?;
    let db = SqlDatabase::new(database, &SqlOptions::default()).map_err(text)?;
    let mut session = Session::new(&db);
    for table in TABLES {
        session.execute(&table.create_sql(false)).await.map_err(text)?;
    }
    println!("SeracDB: TPC-H at scale factor {scale}, queries and transactions at the same time\n");
    let (rows, time) = load(&db, scale)?;
    println!(
        "generated and loaded {rows} rows in {:.1} s ({:.1} million rows a second)\n",
        time.as_secs_f64(),
        rows as f64 / 1e6 / time.as_secs_f64()
    );

    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Refreshed::default()));
    let writer = tokio::spawn(refresh(db.clone(), scale, stop.clone(), done.clone()));
    let bar = progress_bar(QUERIES.len() as u64, "querying");
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["query", "rows", "time (ms)", "transactions meanwhile", "rows in", "rows out", "orphans seen"]);
    for i in 1..7 {
        table.column_mut(i).expect("seven columns").set_cell_alignment(CellAlignment::Right);
    }
    let mut total = Duration::ZERO;
    let figures = |done: &Refreshed| {
        [&done.transactions, &done.inserted, &done.deleted].map(|counter| counter.load(Ordering::Relaxed))
    };
    let mut inconsistent = 0;
    for (i, query) in QUERIES.iter().enumerate() {
        bar.set_message(format!("Q{}", i + 1));
        let before = figures(&done);
        let started = Instant::now();
        // One snapshot for the query and for the check: orders and their lines come and go
        // together, or not at all.
        session.execute("BEGIN").await.map_err(text)?;
        let results = session.execute(query).await.map_err(|e| format!("Q{}: {e}", i + 1))?;
        let time = started.elapsed();
        let orphans = count(&session.execute(INVARIANT).await.map_err(text)?);
        session.execute("COMMIT").await.map_err(text)?;
        inconsistent += orphans;
        total += time;
        let after = figures(&done);
        let rows = results.last().map_or(0, StatementResult::row_count);
        table.add_row([
            format!("Q{}", i + 1),
            rows.to_string(),
            format!("{:.1}", time.as_secs_f64() * 1e3),
            (after[0] - before[0]).to_string(),
            format!("+{}", after[1] - before[1]),
            format!("-{}", after[2] - before[2]),
            orphans.to_string(),
        ]);
        bar.inc(1);
    }
    bar.finish_and_clear();
    stop.store(true, Ordering::Relaxed);
    writer.await.map_err(text)?.map_err(text)?;
    println!("{table}");
    let [transactions, inserted, deleted] = figures(&done);
    println!(
        "\n22 queries in {:.2} s; meanwhile {transactions} refresh transactions put in {inserted} rows and took out {deleted}, \
         with {} conflicts.\nEvery query saw one snapshot: {inconsistent} orders without lines or lines without orders.",
        total.as_secs_f64(),
        done.conflicts.load(Ordering::Relaxed)
    );
    drop(session);
    while db.database().storage().run_gc().waiting > 0 {}
    let metrics = db.database().metrics();
    let blocks: u32 = metrics.tables.iter().map(|(_, _, t)| t.blocks).sum();
    let versioned: u32 = metrics.tables.iter().map(|(_, _, t)| t.versioned_blocks).sum();
    println!(
        "Storage: {blocks} blocks of 1 MiB, {versioned} with versions left; {} versions collected; {:.1} MB of log.",
        metrics.gc_unlinked,
        metrics.log_bytes_written as f64 / 1e6
    );
    let tables = crate::blocks::tables_named(db.database(), "")?;
    let large = tables.into_iter().filter(|table| table.blocks() > 8).collect::<Vec<_>>();
    if !large.is_empty() {
        println!("The larger tables' blocks by state:\n{}", crate::blocks::Canvas::stdout().lines(2).draw(&large));
    }
    println!("All of it took {:.1} s.", started.elapsed().as_secs_f64());
    db.database().close().map_err(text)?;
    if inconsistent > 0 {
        return Err("the snapshots were inconsistent".into());
    }
    Ok(())
}
