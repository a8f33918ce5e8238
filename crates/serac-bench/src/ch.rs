//! CH-benCHmark's Q1 and Q6 on ORDER-LINE, with the selectivities of the CUBIT paper's appendix
//! (§G), beside the part of TPC-C that writes the table.
//!
//! Delivery dates are uniform over the years 1983 to 2022, one line in ten is not delivered yet,
//! and quantities are uniform in [1, 25000). Beside the queries, one session makes new orders of 5
//! to 15 lines and delivers old ones, each in a transaction.

use crate::duckdb::rows_of;
use crate::report::{Report, median};
use crate::setup::text;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CREATE: &str =
    "CREATE TABLE order_line (ol_o_id INTEGER NOT NULL, ol_d_id SMALLINT NOT NULL, ol_w_id INTEGER NOT NULL,
    ol_number SMALLINT NOT NULL, ol_i_id INTEGER NOT NULL, ol_supply_w_id INTEGER NOT NULL, ol_delivery_d TIMESTAMP,
    ol_quantity INTEGER NOT NULL, ol_amount DECIMAL(6,2) NOT NULL, ol_dist_info CHAR(24) NOT NULL)";
const INDEXES: [&str; 4] = [
    "CREATE INDEX order_line_key ON order_line (ol_w_id, ol_d_id, ol_o_id)",
    "CREATE INDEX ol_number ON order_line USING bitmap (ol_number)",
    "CREATE INDEX ol_delivery_d ON order_line USING bitmap (ol_delivery_d)",
    "CREATE INDEX ol_quantity ON order_line USING bitmap (ol_quantity)",
];
/// Algorithms 6 and 7 of the appendix.
const QUERIES: [(&str, &str); 2] = [
    (
        "Q1",
        "SELECT ol_number, sum(ol_quantity) AS sum_qty, sum(ol_amount) AS sum_amount, avg(ol_quantity) AS avg_qty,
             avg(ol_amount) AS avg_amount, count(*) AS count_order
         FROM order_line WHERE ol_delivery_d > '2007-01-02 00:00:00.000000' GROUP BY ol_number ORDER BY ol_number",
    ),
    (
        "Q6",
        "SELECT sum(ol_amount) AS revenue FROM order_line
         WHERE ol_delivery_d >= '1999-01-01 00:00:00.000000' AND ol_delivery_d < '2020-01-01 00:00:00.000000'
             AND ol_quantity BETWEEN 1 AND 1000",
    ),
];
/// Days from 1983 to the end of 2022.
const DAYS: i64 = 14_610;
const ORDERS_PER_DISTRICT: i64 = 3_000;

#[derive(clap::Args, Debug)]
pub struct ChArguments {
    /// Warehouses, of some 300,000 lines.
    #[arg(long, default_value_t = 10)]
    warehouses: i64,
    /// Threads of a query.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Measured runs of each query in each setting.
    #[arg(long, default_value_t = 15)]
    runs: usize,
    /// Transactions per second beside the queries.
    #[arg(long, default_value_t = 200)]
    rate: u64,
}

fn new_order(rng: &mut StdRng, warehouse: i64, district: i64, order: i64) -> String {
    let line = |number: i64, rng: &mut StdRng| {
        format!(
            "({order}, {district}, {warehouse}, {number}, {}, {warehouse}, NULL, {}, {}.{:02}, 'info of the district..')",
            rng.random_range(1..=100_000),
            rng.random_range(1..25_000),
            rng.random_range(0..10_000),
            rng.random_range(0..100),
        )
    };
    let lines: Vec<String> = (1..=rng.random_range(5..=15)).map(|number| line(number, rng)).collect();
    format!("INSERT INTO order_line VALUES {}", lines.join(", "))
}

/// New orders and deliveries in turn, at a steady rate.
async fn write(
    db: SqlDatabase,
    arguments: (i64, u64),
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
) -> Result<(), String> {
    let (warehouses, rate) = arguments;
    let mut session = Session::new(&db);
    let mut rng = StdRng::seed_from_u64(7);
    let mut pace = tokio::time::interval(Duration::from_nanos(1_000_000_000 / rate.max(1)));
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    for n in 0.. {
        pace.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // The districts take turns. Each gets a new order, and then its oldest undelivered order is
        // delivered.
        let at = n / 2;
        let (warehouse, district) = (1 + at / 10 % warehouses, 1 + at % 10);
        let made = at / (10 * warehouses);
        let sql = if n % 2 == 0 {
            new_order(&mut rng, warehouse, district, ORDERS_PER_DISTRICT + 1 + made)
        } else {
            format!(
                "UPDATE order_line SET ol_delivery_d = TIMESTAMP '1983-01-01 00:00:00' + INTERVAL '{} days'
                 WHERE ol_w_id = {warehouse} AND ol_d_id = {district} AND ol_o_id = {}",
                rng.random_range(0..DAYS),
                ORDERS_PER_DISTRICT * 9 / 10 + 1 + made
            )
        };
        session.execute(&sql).await.map_err(text)?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

pub fn run(arguments: &ChArguments, report: &mut Report) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.threads + 1)
        .enable_all()
        .build()
        .map_err(text)?;
    let options = SqlOptions { threads: Some(arguments.threads), ..SqlOptions::default() };
    let db = SqlDatabase::new(Database::in_memory().map_err(text)?, &options).map_err(text)?;
    let mut session = Session::new(&db);
    let mut execute = |sql: &str| -> Result<(Vec<StatementResult>, f64), String> {
        runtime.block_on(async {
            let started = Instant::now();
            let results = session.execute(sql).await.map_err(|e| format!("{sql}: {e}"))?;
            Ok((results, started.elapsed().as_secs_f64() * 1e3))
        })
    };
    execute(CREATE)?;
    // Every loaded order has ten lines. The last tenth of a district's orders is not delivered.
    let load = format!(
        "INSERT INTO order_line
         SELECT o, d::SMALLINT, w, n::SMALLINT, (o * 7919 + n * 104729) % 100000 + 1, w,
             CASE WHEN o <= {} THEN (DATE '1983-01-01' + (random() * {DAYS})::INTEGER)::TIMESTAMP END,
             1 + floor(random() * 24999)::INTEGER, (random() * 9999.99)::DECIMAL(6,2), 'info of the district..'
         FROM (SELECT g % {ORDERS_PER_DISTRICT} + 1 AS o, g / {ORDERS_PER_DISTRICT} % 10 + 1 AS d, g / {} + 1 AS w
               FROM generate_series(0, {}) AS s (g)) AS orders, generate_series(1, 10) AS l (n)",
        ORDERS_PER_DISTRICT * 9 / 10,
        ORDERS_PER_DISTRICT * 10,
        arguments.warehouses * 10 * ORDERS_PER_DISTRICT - 1
    );
    execute(&load)?;
    for index in INDEXES {
        execute(index)?;
    }
    db.database().storage().run_gc();
    let (lines, _) = execute("SELECT count(*) FROM order_line")?;
    report.note(format!("{} lines", rows_of(&lines)[0][0]));

    // The medians of each query: quiet and busy, with and without the indexes.
    let mut medians = vec![Vec::new(); QUERIES.len()];
    let mut transactions = 0.0;
    for busy in [false, true] {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writes = (arguments.warehouses, arguments.rate);
        let writer = busy.then(|| runtime.spawn(write(db.clone(), writes, stop.clone(), done.clone())));
        let started = Instant::now();
        for ((_, query), medians) in QUERIES.iter().zip(&mut medians) {
            let mut times = [Vec::new(), Vec::new()];
            for run in 0..=arguments.runs {
                execute("BEGIN")?;
                let (results, time) = execute(query)?;
                execute("SET enable_bitmap_index = off")?;
                let (scanned, scan_time) = execute(query)?;
                execute("SET enable_bitmap_index = on")?;
                execute("COMMIT")?;
                if rows_of(&results) != rows_of(&scanned) {
                    return Err(format!("{query}: another result than a scan of the same snapshot"));
                }
                if run > 0 {
                    times[0].push(time);
                    times[1].push(scan_time);
                }
            }
            medians.extend(times.map(median));
        }
        stop.store(true, Ordering::Relaxed);
        if let Some(writer) = writer {
            runtime.block_on(writer).map_err(text)??;
            transactions = done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
        }
    }
    for ((name, _), medians) in QUERIES.iter().zip(&medians) {
        report.row(&[
            ("query", json!(name)),
            ("quiet ms", json!(medians[0])),
            ("quiet, no bitmaps ms", json!(medians[1])),
            ("beside transactions ms", json!(medians[2])),
            ("beside transactions, no bitmaps ms", json!(medians[3])),
            ("gain, quiet", json!(medians[1] / medians[0])),
            ("gain, beside transactions", json!(medians[3] / medians[2])),
        ]);
    }
    report.note(format!(
        "{transactions:.0} transactions per second beside the queries; all results equal scans of their snapshots"
    ));
    Ok(())
}
