//! Random aggregations by many groups give the rows that DataFusion's plan gives, also where memory
//! is short.

use crate::support::{in_memory, refused, run, sorted_lines, text};
use rand::Rng;
use rand::seq::IndexedRandom;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use std::time::{Duration, Instant};

/// Keys of all types: many and few values, texts of all lengths, and expressions.
const KEYS: [&str; 18] = [
    "i",
    "s",
    "b",
    "o",
    "d",
    "u",
    "h",
    "n",
    "m",
    "t",
    "l",
    "w",
    "id",
    "c",
    "i % 5",
    "b + 1",
    "coalesce(s, 0)",
    "CASE WHEN i > 300 THEN l END",
];

const AGGREGATES: [&str; 22] = [
    "count(*)",
    "count(i)",
    "count(l)",
    "sum(i)",
    "sum(b)",
    "sum(n)",
    "sum(m)",
    "avg(i)",
    "avg(n)",
    "min(l)",
    "max(t)",
    "min(d)",
    "max(u)",
    "min(b)",
    "bool_and(o)",
    "bit_xor(i)",
    "count(DISTINCT s)",
    "count(DISTINCT t)",
    "sum(DISTINCT i)",
    "min(f)",
    "sum(i + s)",
    "round(stddev_pop(i), 3)",
];

const FILTERS: [&str; 4] = ["i > 300", "l IS NOT NULL", "o", "false"];

async fn session(options: &SqlOptions, rows: u32) -> Session {
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), options).unwrap());
    run(
        &mut session,
        &format!(
            "CREATE TABLE k (id BIGINT NOT NULL, i INTEGER, s SMALLINT, b BIGINT, o BOOLEAN, d DATE, u TIMESTAMP, h TIME,
                n NUMERIC(10,2), m NUMERIC(38,0), t TEXT, l TEXT, w TEXT NOT NULL, c CHAR(4), f DOUBLE PRECISION);
            INSERT INTO k SELECT g, nullif(g::BIGINT * 7919 % 20011, 7), nullif(g % 301, 5), nullif((g::BIGINT * 48271 % 65537), 6) * 140737488355327,
                nullif(g % 3, 1) = 0, DATE '2024-01-01' + nullif(g * 3 % 2901, 7)::INTEGER,
                TIMESTAMP '2024-01-01' + (g::BIGINT * 11 % 40009) * INTERVAL '1 second',
                TIME '00:00' + nullif(g * 17 % 1440, 3) * INTERVAL '1 minute',
                nullif(g::BIGINT * 37 % 10103, 5) / 4.0 - 100, (g::BIGINT * 31 % 30011 - 3) * 98765432109876543210987654::NUMERIC,
                nullif('T' || g::BIGINT * 13 % 30011, 'T0'),
                nullif('a text that is longer than a view: ' || g::BIGINT * 29 % 25013, 'a text that is longer than a view: 5'),
                repeat('w', (g % 17)::INTEGER) || g::BIGINT * 7 % 9973, 'c' || g % 97, g / 8.0
            FROM generate_series(1, {rows}) AS s (g)"
        ),
    )
    .await;
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_groups_are_those_of_the_other_plan() {
    let mut rng = serac_testing::rng();
    let times = if serac_testing::stress() { 30 } else { 1 };
    let mut found_plans = 0;
    let mut session = session(&SqlOptions { threads: Some(2), ..SqlOptions::default() }, 70_000).await;
    for at in 0..24 * times {
        let key_count = rng.random_range(1..4);
        let keys: Vec<&str> = KEYS.choose_multiple(&mut rng, key_count).copied().collect();
        let aggregates: Vec<String> = (0..rng.random_range(0..4))
            .map(|_| {
                let aggregate = *AGGREGATES.choose(&mut rng).unwrap();
                match rng.random_bool(0.2) && !aggregate.starts_with("round(") {
                    true => format!("{aggregate} FILTER (WHERE {})", FILTERS.choose(&mut rng).unwrap()),
                    false => aggregate.to_owned(),
                }
            })
            .collect();
        let items: Vec<&str> = keys.iter().copied().chain(aggregates.iter().map(String::as_str)).collect();
        let condition = ["", "", "", " WHERE false", " WHERE id % 3 > 0"].choose(&mut rng).unwrap();
        let sql = format!("SELECT {} FROM k{condition} GROUP BY {}", items.join(", "), keys.join(", "));
        let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
        found_plans += usize::from(plan.contains("RadixAggregateExec"));
        let found = sorted_lines(&mut session, &sql).await;
        run(&mut session, "SET serac.disabled_passes = 'radix_aggregation'").await;
        let expected = sorted_lines(&mut session, &sql).await;
        run(&mut session, "RESET serac.disabled_passes").await;
        assert_eq!(found.len(), expected.len(), "{at}: {sql}");
        if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
            panic!("{sql}: row {at} is {}, not {}\n{plan}", found[at], expected[at]);
        }
    }
    assert!(found_plans > 4 * times, "{found_plans} plans have the operator");
}

/// Joins above rely on the partitions of the groups.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_those_that_joins_rely_on() {
    let mut session = session(&SqlOptions { threads: Some(2), ..SqlOptions::default() }, 70_000).await;
    let sql = "SELECT count(*), sum(a.n), sum(b.x) FROM (SELECT t, i, count(*) AS n FROM k GROUP BY t, i) AS a
        JOIN (SELECT t, i, max(id) AS x FROM k GROUP BY t, i) AS b ON a.t = b.t AND a.i = b.i";
    let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
    assert!(plan.contains("RadixAggregateExec"), "{plan}");
    let found = sorted_lines(&mut session, sql).await;
    run(&mut session, "SET serac.disabled_passes = 'radix_aggregation'").await;
    assert_eq!(found, sorted_lines(&mut session, sql).await);
}

/// Groups that do not fit into memory go to disk, and none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_do_not_fit_are_handed_over() {
    let options = SqlOptions { memory_limit: Some(16 << 20), threads: Some(2), ..SqlOptions::default() };
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap());
    for (keys, all) in [
        ("x % 300007", "300007|600000|180000300000"),
        ("'a text that is longer than a view: ' || x", "600000|600000|180000300000"),
        ("'text ' || x % 300007, x % 2", "600000|600000|180000300000"),
    ] {
        let sql = format!(
            "SELECT count(*), sum(n), sum(s) FROM (SELECT count(*) AS n, sum(x) AS s
                FROM generate_series(1, 600000) AS g (x) GROUP BY {keys}) AS q"
        );
        let plan = text(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await;
        assert!(plan.contains("RadixAggregateExec") && plan.contains("handed_over=1"), "{plan}");
        assert_eq!(sorted_lines(&mut session, &sql).await, [all], "{keys}");
    }
}

/// The operators that take over have memory left, though a block's rows come at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_of_long_texts_leave_memory_for_others() {
    let options = SqlOptions { memory_limit: Some(8 << 20), threads: Some(2), ..SqlOptions::default() };
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap());
    run(
        &mut session,
        "CREATE TABLE l (id INTEGER, t TEXT); INSERT INTO l SELECT x, 'a text that is longer than a view: ' || x::BIGINT * 7919 % 1000003
            FROM generate_series(1, 300000) AS g (x); ANALYZE",
    )
    .await;
    let sql = "SELECT count(*), sum(c) FROM (SELECT t, count(*) AS c, sum(id) AS s FROM l GROUP BY t) AS q";
    let plan = text(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await;
    assert!(plan.contains("RadixAggregateExec") && plan.contains("handed_over=1"), "{plan}");
    assert_eq!(sorted_lines(&mut session, sql).await, ["300000|300000"]);
}

/// Batches of an aggregation's result are slices of the same memory. Rows that are kept count it
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_kept_rows_is_counted_once() {
    let options = SqlOptions { memory_limit: Some(60_000_000), threads: Some(2), ..SqlOptions::default() };
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap());
    run(
        &mut session,
        "CREATE TABLE h AS SELECT x AS id, 10000000 + x * 3 AS k, 't' || x % 7 AS n FROM generate_series(0, 199999) AS g (x);
         SET serac.disabled_passes = 'block_aggregation, radix_aggregation'",
    )
    .await;
    for step in [
        "BEGIN; DECLARE c CURSOR FOR SELECT k, n, max(id) FROM h GROUP BY k, n; MOVE ALL c; ROLLBACK",
        "INSERT INTO h SELECT max(id), k, n FROM h GROUP BY k, n",
    ] {
        run(&mut session, step).await;
    }
    assert_eq!(sorted_lines(&mut session, "SELECT count(*), count(DISTINCT k) FROM h").await, ["400000|200000"]);
}

/// Groups are made for a long time without any row that comes out of the query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_can_be_cancelled() {
    let mut session = Session::new(&in_memory());
    let sql =
        "SELECT count(*) FROM (SELECT 1 FROM generate_series(1, 1000000000000) AS g (x) GROUP BY x % 10000000) AS q";
    assert!(text(&mut session, &format!("EXPLAIN {sql}")).await.contains("RadixAggregateExec"));
    let handle = session.cancel_handle();
    let canceller = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        handle.cancel();
    });
    let began = Instant::now();
    assert_eq!(refused(&mut session, sql).await.sqlstate, "57014");
    assert!(began.elapsed() < Duration::from_secs(20), "cancelled after {:?}", began.elapsed());
    canceller.await.unwrap();
}

/// Errors of keys, arguments and sums end the query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_end_the_query() {
    let mut session = Session::new(&in_memory());
    for (sql, sqlstate) in [
        ("SELECT 1 / (x - 90000), count(*) FROM generate_series(1, 100000) AS g (x) GROUP BY 1", "22012"),
        ("SELECT x, sum(1 / (x - 90000)) FROM generate_series(1, 100000) AS g (x) GROUP BY x", "22012"),
    ] {
        assert_eq!(refused(&mut session, sql).await.sqlstate, sqlstate, "{sql}");
    }
    assert_eq!(sorted_lines(&mut session, "SELECT 1").await, ["1"]);
}
