//! Random window functions give what they give without the operator that computes many partitions
//! at once.

use crate::support::{in_memory, refused, run, sorted_lines, text};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use std::time::{Duration, Instant};

const PARTITIONS: [&str; 9] = ["", "p", "p, q", "t", "f", "d, p", "b % 5", "id / 8192", "id"];

/// Orders with equal rows.
const ORDERS: [&str; 8] = ["o", "o DESC NULLS LAST", "f", "t DESC", "n, o", "d NULLS FIRST", "lower(t), q", "b"];

/// Functions that give equal rows the same, whatever the frame.
const OF_PEERS: [&str; 6] =
    ["rank()", "dense_rank()", "percent_rank()", "cume_dist()", "rank() + dense_rank()", "dense_rank() * 2"];

/// Functions that depend on the order of all rows.
const OF_ROWS: [&str; 14] = [
    "row_number()",
    "ntile(1)",
    "ntile(3)",
    "ntile(1000)",
    "lag(o)",
    "lead(o)",
    "lag(t, 3)",
    "lead(n, 2, 7)",
    "lag(f, 1, 0)",
    "lag(o, 1, q)",
    "lead(d, 100000)",
    "lag(b, -2)",
    "lead(t, 1, 'none')",
    "lag(o * 2 + q, 2)",
];

/// Aggregates and functions over frames.
const OF_FRAMES: [&str; 29] = [
    "count(*)",
    "count(o)",
    "count(t)",
    "sum(o)",
    "sum(b)",
    "sum(n)",
    "sum(f)",
    "avg(o)",
    "avg(n)",
    "avg(f)",
    "min(o)",
    "max(o)",
    "min(f)",
    "max(f)",
    "min(t)",
    "max(t)",
    "max(d)",
    "min(n)",
    "max(b)",
    "min(s)",
    "sum(o * 1.25)",
    "first_value(o)",
    "last_value(t)",
    "nth_value(o, 1)",
    "nth_value(n, 3)",
    "first_value(f)",
    "last_value(o + q)",
    "max(o) FILTER (WHERE q > 1)",
    "sum(n) - min(n)",
];

/// Aggregates of whole partitions.
const OF_PARTITIONS: [&str; 8] = [
    "bool_and(q > 0)",
    "bool_or(q > 2)",
    "bit_xor(o)",
    "round(var_pop(o)::numeric, 3)",
    "round(stddev_samp(n), 3)",
    "round(corr(n, q)::numeric, 3)",
    "round(regr_slope(n, q)::numeric, 3)",
    "avg(r)",
];

/// A frame, and whether it depends on the order of equal rows.
fn frame(rng: &mut StdRng) -> (String, bool) {
    let near = [0, 1, 2, 3, 7, 40, 5000];
    let mut number = || *near.choose(rng).unwrap();
    let (one, other) = (number(), number());
    let (less, more) = (one.min(other), one.max(other));
    match rng.random_range(0..13) {
        0..3 => (String::new(), false),
        3 => ("RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING".to_owned(), false),
        4 => ("RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING".to_owned(), false),
        5 => ("GROUPS BETWEEN CURRENT ROW AND CURRENT ROW".to_owned(), false),
        6 => ("ROWS UNBOUNDED PRECEDING".to_owned(), true),
        7 => (format!("ROWS {one} PRECEDING"), true),
        8 => (format!("ROWS BETWEEN {one} PRECEDING AND {other} FOLLOWING"), true),
        9 => (format!("ROWS BETWEEN {one} FOLLOWING AND UNBOUNDED FOLLOWING"), true),
        10 => (format!("ROWS BETWEEN {more} PRECEDING AND {less} PRECEDING"), true),
        11 => (format!("ROWS BETWEEN {less} FOLLOWING AND {more} FOLLOWING"), true),
        _ => (format!("ROWS BETWEEN UNBOUNDED PRECEDING AND {one} FOLLOWING"), true),
    }
}

/// A call over a window.
fn call(rng: &mut StdRng, partition: &str) -> String {
    let order = ORDERS.choose(rng).unwrap();
    let by = if partition.is_empty() { String::new() } else { format!("PARTITION BY {partition} ") };
    let (function, order, frame) = match rng.random_range(0..10) {
        0..2 => (*OF_PEERS.choose(rng).unwrap(), format!("ORDER BY {order}"), String::new()),
        2..4 => (*OF_ROWS.choose(rng).unwrap(), format!("ORDER BY {order}, id"), String::new()),
        4 => (*OF_PARTITIONS.choose(rng).unwrap(), String::new(), String::new()),
        5 => (OF_FRAMES[rng.random_range(0..21)], String::new(), String::new()),
        _ => {
            let (frame, is_of_rows) = frame(rng);
            // The first and the last of equal rows are not the same everywhere.
            let function = OF_FRAMES.choose(rng).unwrap();
            let is_of_rows = is_of_rows || function.contains("_value");
            (*function, format!("ORDER BY {order}{}", if is_of_rows { ", id" } else { "" }), frame)
        }
    };
    // An expression of two functions has the window at each.
    let over = format!(" OVER ({by}{order} {frame})");
    let parts: Vec<&str> = function.split(" FILTER ").collect();
    match parts[..] {
        [function, filter] => format!("{function} FILTER {filter}{over}"),
        _ => {
            let mut written = String::new();
            let is_nested = function.starts_with("round(");
            let function = if is_nested { &function["round(".len()..] } else { function };
            let mut depth = 0;
            for letter in function.chars() {
                written.push(letter);
                depth += i32::from(letter == '(') - i32::from(letter == ')');
                // The last parenthesis of a nested function is below 0.
                if letter == ')' && depth == 0 {
                    written.push_str(&over);
                }
            }
            if is_nested { format!("round({written}") } else { written }
        }
    }
}

async fn session(rows: u32) -> Session {
    let mut session = Session::new(&in_memory());
    run(
        &mut session,
        &format!(
            "CREATE TABLE w (id BIGINT PRIMARY KEY, p INTEGER, q SMALLINT, o INTEGER, f DOUBLE PRECISION, r REAL,
                n NUMERIC(10,2), b BIGINT, t TEXT, d DATE, s TIMESTAMP);
            INSERT INTO w SELECT x, nullif(x * 7919 % (1 + {rows} / 9), 3), x % 4, nullif(x * 31 % 101, 7),
                CASE x % 13 WHEN 0 THEN 'NaN' WHEN 1 THEN NULL WHEN 2 THEN '-0' WHEN 3 THEN 0
                    ELSE (x * 5 % 17) / 4.0 - 2 END,
                (x % 8) / 2.0, nullif(x * 37 % 1013, 5) / 4.0, x::BIGINT * 100000007 % 1000000 - 500000,
                nullif('T' || x * 5 % 7, 'T0'), DATE '2024-01-01' + (x * 3 % 29)::INTEGER,
                TIMESTAMP '2024-01-01' + (x * 11 % 97) * INTERVAL '1 hour'
            FROM generate_series(1, {rows}) AS s (x); ANALYZE"
        ),
    )
    .await;
    session
}

async fn compare(rng: &mut StdRng, rows_of_table: u32, statements: usize) -> usize {
    let mut session = session(rows_of_table).await;
    // DataFusion's planner asserts in debug builds that windows have the same keys, also where they
    // differ by the name alone that this pass gives one of them.
    let disabled = "SET serac.disabled_passes = 'common_sub_expression_eliminate'";
    let mut in_chunks = 0;
    for _ in 0..statements {
        let partition = PARTITIONS.choose(rng).unwrap();
        let mut calls: Vec<String> = (0..rng.random_range(1..=4)).map(|_| call(rng, partition)).collect();
        if rng.random_bool(0.5) {
            let other = PARTITIONS.choose(rng).unwrap();
            calls.push(call(rng, other));
        }
        let filter = ["", " WHERE p < 5", " WHERE false"][rng.random_range(0..12usize).saturating_sub(9)];
        let sql = format!("SELECT id, t, {} FROM w{filter}", calls.join(", "));
        run(&mut session, disabled).await;
        let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
        in_chunks += usize::from(plan.contains("WindowExec: "));
        let found = sorted_lines(&mut session, &sql).await;
        run(&mut session, &format!("{}, window_chunks'", disabled.trim_end_matches('\''))).await;
        let expected = sorted_lines(&mut session, &sql).await;
        assert_eq!(found.len(), expected.len(), "{sql}");
        if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
            panic!("{sql}: {}, not {}\n{plan}", found[at], expected[at]);
        }
    }
    in_chunks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_give_what_partitions_give() {
    let mut rng = serac_testing::rng();
    let times = if serac_testing::stress() { 30 } else { 1 };
    let mut in_chunks = 0;
    for (rows, statements) in [(0, 3), (1, 5), (40, 40), (700, 40), (20_000, 20)] {
        in_chunks += compare(&mut rng, rows, statements * times).await;
    }
    assert!(in_chunks > 70 * times, "{in_chunks} plans compute chunks");
}

/// A partition that does not fit is refused; functions that look back only do not hold it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_takes_no_more_memory_than_there_is() {
    let options = SqlOptions { memory_limit: Some(24 << 20), threads: Some(2), ..SqlOptions::default() };
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap());
    let sql = |function: &str| {
        format!("SELECT max(v), count(*) FROM (SELECT {function} AS v FROM generate_series(1, 3000000) AS g (x)) AS q")
    };
    for function in ["sum(x) OVER ()", "ntile(7) OVER ()", "lead(x, 100000) OVER ()"] {
        let plan = text(&mut session, &format!("EXPLAIN {}", sql(function))).await;
        assert!(plan.contains("WindowExec: "), "{plan}");
        assert_eq!(refused(&mut session, &sql(function)).await.sqlstate, "53200", "{function}");
    }
    for (function, greatest) in [
        ("row_number() OVER ()", "3000000|3000000"),
        ("lead(x, 3) OVER ()", "3000000|3000000"),
        ("first_value(x) OVER (ROWS UNBOUNDED PRECEDING)", "1|3000000"),
        ("max(x) OVER (ROWS BETWEEN 5 PRECEDING AND 7 FOLLOWING)", "3000000|3000000"),
        ("count(x) OVER (ROWS UNBOUNDED PRECEDING)", "3000000|3000000"),
        ("max(x % 1000) OVER (ROWS UNBOUNDED PRECEDING)", "999|3000000"),
        ("sum(x) OVER (PARTITION BY 1 ROWS UNBOUNDED PRECEDING)", "4500001500000|3000000"),
    ] {
        let plan = text(&mut session, &format!("EXPLAIN {}", sql(function))).await;
        assert!(plan.contains("WindowExec: "), "{plan}");
        assert_eq!(sorted_lines(&mut session, &sql(function)).await, [greatest], "{function}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_that_do_not_fit_are_errors() {
    let mut session = Session::new(&in_memory());
    run(
        &mut session,
        "CREATE TABLE s (id INTEGER, n NUMERIC(38,0), f DOUBLE PRECISION);
        INSERT INTO s SELECT x, CASE WHEN x < 3 THEN 9 ELSE -9 END * 10000000000000000000000000000000000000::NUMERIC,
            1e308 FROM generate_series(1, 4) AS g (x)",
    )
    .await;
    for off in ["", "window_chunks"] {
        run(&mut session, &format!("SET serac.disabled_passes = '{off}'")).await;
        for call in [
            "sum(n) OVER (ORDER BY id)",
            "sum(n) OVER (ORDER BY id ROWS 1 PRECEDING)",
            "sum(n) OVER (PARTITION BY id / 3)",
            "sum(f) OVER (ORDER BY id)",
            "avg(f) OVER (ORDER BY id ROWS 1 PRECEDING)",
        ] {
            let error = refused(&mut session, &format!("SELECT {call} FROM s")).await;
            assert_eq!(error.sqlstate, "22003", "{call}: {error:?}");
        }
        // The sums between do not fit, and the results do.
        let sum = sorted_lines(&mut session, "SELECT sum(n) OVER (ORDER BY id / 10) FROM s").await;
        assert_eq!(sum, ["0"; 4]);
        let sum = sorted_lines(
            &mut session,
            "SELECT sum(n) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) FROM s WHERE id < 4",
        )
        .await;
        assert_eq!(sum.iter().filter(|sum| *sum == "NULL").count(), 1, "{sum:?}");
    }
}

/// Rows come for a long time, and one partition has all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_can_be_cancelled() {
    let mut session = Session::new(&in_memory());
    for call in ["row_number() OVER ()", "sum(x) OVER (PARTITION BY x % 2 ORDER BY x)"] {
        let sql =
            format!("SELECT max(v) FROM (SELECT {call} AS v FROM generate_series(1, 1000000000000) AS g (x)) AS q");
        let handle = session.cancel_handle();
        let canceller = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            handle.cancel();
        });
        let began = Instant::now();
        assert_eq!(refused(&mut session, &sql).await.sqlstate, "57014");
        assert!(began.elapsed() < Duration::from_secs(20), "cancelled after {:?}", began.elapsed());
        canceller.await.unwrap();
    }
}
