//! TPC-H with refresh functions beside the queries, 98 queries to 2 refresh functions, without a
//! maintenance window.

use crate::duckdb::rows_of;
use crate::report::{Report, median};
use crate::setup::text;
use crate::tpch::{CUBIT_QUERIES, load_all, make_indexes};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};
use serac_workload::tpch::{QUERIES, RefreshStream, TABLES};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Queries for each refresh function.
const QUERIES_PER_REFRESH: usize = 49;
/// Orders of a refresh function, per unit of the scale factor.
const ORDERS: f64 = 1_500.0;
/// Orders that one transaction adds or takes away.
const ORDERS_PER_TRANSACTION: usize = 100;

#[derive(clap::Args, Debug)]
pub struct RefreshArguments {
    /// Scale factor.
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Threads of a query.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Rounds of the twelve queries: so many before all refreshes, then so many beside refreshes,
    /// with a quiet round behind each.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
}

/// The statements of one refresh function, by transaction. A transaction has one statement for each
/// table, for all of its orders.
fn refresh_function(stream: &mut RefreshStream, inserts: bool, orders: usize) -> Vec<Vec<String>> {
    const ORDER: &str = "INSERT INTO orders VALUES ";
    const LINES: &str = "INSERT INTO lineitem VALUES ";
    const OLD_ORDERS: &str = "DELETE FROM orders WHERE o_orderkey IN (";
    const OLD_LINES: &str = "DELETE FROM lineitem WHERE l_orderkey IN (";
    let mut transactions = Vec::new();
    let mut left = orders;
    while left > 0 {
        let at_once = left.min(ORDERS_PER_TRANSACTION);
        left -= at_once;
        let mut taken = 0;
        let [mut of_orders, mut of_lines, mut old_orders, mut old_lines] = [const { Vec::<String>::new() }; 4];
        for refresh in stream.by_ref().filter(|refresh| refresh.inserts == inserts) {
            taken += refresh.orders as usize;
            for statement in refresh.statements {
                let parts = [
                    (ORDER, "", &mut of_orders),
                    (LINES, "", &mut of_lines),
                    (OLD_ORDERS, ")", &mut old_orders),
                    (OLD_LINES, ")", &mut old_lines),
                ];
                for (start, end, values) in parts {
                    let middle = statement.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
                    values.extend(middle.map(str::to_owned));
                }
            }
            if taken >= at_once {
                break;
            }
        }
        transactions.push(match inserts {
            true => vec![format!("{ORDER}{}", of_orders.join(", ")), format!("{LINES}{}", of_lines.join(", "))],
            false => {
                vec![format!("{OLD_LINES}{})", old_lines.join(", ")), format!("{OLD_ORDERS}{})", old_orders.join(", "))]
            }
        });
    }
    transactions
}

/// The transactions of `functions` refresh functions: RF1 and RF2 by turns.
fn refresh_functions(sf: f64, functions: usize) -> Vec<Vec<Vec<String>>> {
    let [mut deletes, mut inserts] = [RefreshStream::new(sf, 0), RefreshStream::new(sf, 0)];
    let orders = (ORDERS * sf).ceil() as usize;
    (0..functions)
        .map(|function| match function % 2 {
            0 => refresh_function(&mut inserts, true, orders),
            _ => refresh_function(&mut deletes, false, orders),
        })
        .collect()
}

/// Runs the next refresh function for each message; notes the microseconds that RF1 and RF2 took.
async fn refresh(
    db: SqlDatabase,
    functions: Vec<Vec<Vec<String>>>,
    mut wanted: mpsc::UnboundedReceiver<()>,
    micros: Arc<[AtomicU64; 2]>,
    done: Arc<AtomicU64>,
) -> Result<u64, String> {
    let mut session = Session::new(&db);
    let mut rows = 0;
    for (number, function) in functions.into_iter().enumerate() {
        if wanted.recv().await.is_none() {
            break;
        }
        let started = Instant::now();
        for statements in function {
            session.execute("BEGIN").await.map_err(text)?;
            for statement in statements {
                let results = session.execute(&statement).await.map_err(text)?;
                if let Some(StatementResult::Command { rows: changed, .. }) = results.last() {
                    rows += changed;
                }
            }
            session.execute("COMMIT").await.map_err(text)?;
        }
        micros[number % 2].fetch_add(started.elapsed().as_micros() as u64, Ordering::Relaxed);
        done.fetch_add(1, Ordering::Release); // pairs with the wait for a quiet round
    }
    Ok(rows)
}

pub fn run(arguments: &RefreshArguments, report: &mut Report) -> Result<(), String> {
    // One thread more for the refresh functions.
    let threads = arguments.threads + 1;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().map_err(text)?;
    let options = SqlOptions { threads: Some(arguments.threads), ..SqlOptions::default() };
    let db = SqlDatabase::new(Database::in_memory().map_err(text)?, &options).map_err(text)?;
    load_all(&db, arguments.sf, &runtime)?;
    make_indexes(&db, &runtime, report)?;
    let mut session = Session::new(&db);
    // Freezes the tables now. They would freeze by themselves after ten seconds, during the
    // queries.
    for table in TABLES {
        runtime.block_on(session.execute(&format!("FREEZE TABLE {}", table.name))).map_err(text)?;
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    let (micros, done) = (Arc::new([const { AtomicU64::new(0) }; 2]), Arc::new(AtomicU64::new(0)));
    // The statements are made before the queries run, like the data.
    let refreshes = (arguments.rounds * CUBIT_QUERIES.len()).div_ceil(QUERIES_PER_REFRESH);
    let functions = refresh_functions(arguments.sf, refreshes);
    let writer = runtime.spawn(refresh(db.clone(), functions, receiver, micros.clone(), done.clone()));

    let mut execute = |sql: &str| -> Result<(Vec<StatementResult>, f64), String> {
        runtime.block_on(async {
            let started = Instant::now();
            let results = session.execute(sql).await.map_err(text)?;
            Ok((results, started.elapsed().as_secs_f64() * 1e3))
        })
    };
    // Latencies of each query: before all refreshes, beside them, and between them, with their
    // changes still in the indexes.
    let mut times = vec![[const { Vec::new() }; 3]; CUBIT_QUERIES.len()];
    let (mut asked, mut sent, mut checked) = (0, 0, 0);
    let before = (0..=arguments.rounds).map(|round| (0, round));
    let turns = (0..arguments.rounds).flat_map(|round| [(1, round), (2, round)]);
    for (phase, round) in before.chain(turns) {
        while phase == 2 && done.load(Ordering::Acquire) < sent {
            std::thread::sleep(Duration::from_millis(1));
        }
        for (i, &number) in CUBIT_QUERIES.iter().enumerate() {
            let query = QUERIES[number - 1];
            if phase == 1 {
                if asked % QUERIES_PER_REFRESH == 0 {
                    sender.send(()).map_err(text)?;
                    sent += 1;
                }
                asked += 1;
            }
            execute("BEGIN")?;
            let (results, time) = execute(query)?;
            // The first round warms up.
            if phase > 0 || round > 0 {
                times[i][phase].push(time);
            }
            // Each query is checked in every third round, by scans in its own snapshot. Quiet
            // rounds have the checks, too, because scans leave other data in the caches than the
            // queries do.
            if (round + i).is_multiple_of(3) {
                execute("SET enable_bitmap_index = off")?;
                let (scanned, _) = execute(query)?;
                execute("SET enable_bitmap_index = on")?;
                if rows_of(&scanned) != rows_of(&results) {
                    return Err(format!("Q{number} has another result than a scan of its snapshot"));
                }
                checked += 1;
            }
            execute("COMMIT")?;
        }
    }
    drop(sender);
    let rows = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), writer).await });
    let rows = rows.map_err(text)?.map_err(text)??;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let mut logs = [0.0; 3];
    let mut row = |name: &str, [before, beside, between]: [f64; 3], [_, mean_beside, mean_between]: [f64; 3]| {
        report.row(&[
            ("query", json!(name)),
            ("before ms", json!(before)),
            ("between ms", json!(between)),
            ("beside ms", json!(beside)),
            ("beside / before", json!(beside / before)),
            ("beside / between", json!(beside / between)),
            ("mean between ms", json!(mean_between)),
            ("mean beside ms", json!(mean_beside)),
        ]);
    };
    for (&number, times) in CUBIT_QUERIES.iter().zip(&times) {
        let medians = times.each_ref().map(|times| median(times.clone()));
        logs.iter_mut().zip(medians).for_each(|(log, median)| *log += median.ln());
        row(&format!("Q{number}"), medians, times.each_ref().map(|times| mean(times)));
    }
    let means = logs.map(|log: f64| (log / CUBIT_QUERIES.len() as f64).exp());
    let sums = [0, 1, 2].map(|phase| times.iter().map(|times: &[Vec<f64>; 3]| mean(&times[phase])).sum::<f64>());
    row("geometric mean / sum of means", means, sums);
    let [inserting, deleting] = [0, 1].map(|which| {
        let functions = (refreshes + 1 - which) / 2;
        micros[which].load(Ordering::Relaxed) as f64 / 1e3 / functions.max(1) as f64
    });
    report.note(format!(
        "{asked} queries beside {refreshes} refresh functions ({rows} rows in or out; RF1 took {inserting:.0} ms, RF2 {deleting:.0} ms); {checked} results equal scans of their snapshots"
    ));
    Ok(())
}
