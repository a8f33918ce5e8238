//! Random sorts by packed keys give the order that DataFusion's sort gives.

use crate::support::{batches, in_memory, run, text};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use rand::Rng;
use rand::seq::IndexedRandom;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};

const KEYS: [&str; 13] = ["i", "s", "b", "f", "r", "n", "m", "d", "t", "u", "i > 3", "i % 3 + s", "id / 8192"];

/// The rows as they come.
async fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches(session, sql).await {
        let columns: Vec<_> = batch.columns().iter().map(|column| cast(column, &DataType::Utf8).unwrap()).collect();
        let value = |column: &dyn Array, row| match column.is_null(row) {
            true => "NULL".to_owned(),
            false => column.as_string::<i32>().value(row).to_owned(),
        };
        rows.extend(
            (0..batch.num_rows())
                .map(|row| columns.iter().map(|column| value(column, row)).collect::<Vec<_>>().join("|")),
        );
    }
    rows
}

async fn session(options: &SqlOptions, rows: u32) -> Session {
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), options).unwrap());
    run(
        &mut session,
        &format!(
            "CREATE TABLE k (id BIGINT PRIMARY KEY, i INTEGER, s SMALLINT, b BIGINT, f DOUBLE PRECISION, r REAL,
                n NUMERIC(10,2), m NUMERIC(38,0), d DATE, t TIME, u TIMESTAMP, x TEXT);
            INSERT INTO k SELECT g, nullif(g * 7919 % 101, 7), g % 5, (g::BIGINT * 48271 % 65537) * 140737488355327,
                CASE g % 13 WHEN 0 THEN 'NaN' WHEN 1 THEN NULL WHEN 2 THEN '-0' WHEN 3 THEN 0
                    WHEN 4 THEN 'Infinity' ELSE (g * 5 % 17) / 4.0 - 2 END,
                (g % 8) / 2.0, nullif(g * 37 % 1013, 5) / 4.0 - 100,
                (g % 7 - 3) * 9876543210987654321098765432109876543::NUMERIC,
                DATE '2024-01-01' + (g * 3 % 29)::INTEGER, TIME '00:00' + (g * 17 % 1440) * INTERVAL '1 minute',
                TIMESTAMP '2024-01-01' + (g * 11 % 97) * INTERVAL '1 hour', nullif('T' || g % 7, 'T0')
            FROM generate_series(1, {rows}) AS s (g); ANALYZE"
        ),
    )
    .await;
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packed_keys_give_the_same_order() {
    let mut rng = serac_testing::rng();
    let times = if serac_testing::stress() { 30 } else { 1 };
    let mut packed = 0;
    for (count, statements) in [(0, 2), (1, 3), (300, 40), (30_000, 12)] {
        let mut session = session(&SqlOptions::default(), count).await;
        for _ in 0..statements * times {
            let key_count = rng.random_range(0..4);
            let chosen: Vec<&str> = KEYS.choose_multiple(&mut rng, key_count).copied().chain(["id"]).collect();
            let keys: Vec<String> = chosen
                .iter()
                .map(|key| {
                    let (direction, nulls) = (rng.random_range(0..3), rng.random_range(0..3));
                    format!("{key}{}{}", ["", " ASC", " DESC"][direction], ["", " NULLS FIRST", " NULLS LAST"][nulls])
                })
                .collect();
            let limit = ["", "", " OFFSET 5"][rng.random_range(0..3)];
            let sql = format!("SELECT id, x, f FROM k ORDER BY {}{limit}", keys.join(", "));
            let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
            packed += usize::from(plan.contains("PackedSortExec"));
            let found = rows(&mut session, &sql).await;
            run(&mut session, "SET serac.disabled_passes = 'packed_sort'").await;
            let expected = rows(&mut session, &sql).await;
            run(&mut session, "RESET serac.disabled_passes").await;
            assert_eq!(found.len(), expected.len(), "{sql}");
            if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
                panic!("{sql}: row {at} is {}, not {}\n{plan}", found[at], expected[at]);
            }
        }
    }
    assert!(packed > 40 * times, "{packed} sorts are packed");
}

/// Rows that do not fit into memory go to disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_do_not_fit_are_sorted_on_disk() {
    let options = SqlOptions { memory_limit: Some(24 << 20), threads: Some(2), ..SqlOptions::default() };
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap());
    let sql = "SELECT count(*), sum(CASE WHEN x >= y THEN 0 ELSE 1 END) FROM (
        SELECT x, lag(x) OVER (ORDER BY x ROWS UNBOUNDED PRECEDING) AS y FROM (
            SELECT g::BIGINT * 48271 % 1048573 AS x FROM generate_series(1, 1000000) AS s (g)) AS q) AS q";
    run(&mut session, "SET serac.disabled_passes = 'window_chunks'").await;
    assert!(text(&mut session, &format!("EXPLAIN {sql}")).await.contains("PackedSortExec"));
    assert_eq!(rows(&mut session, sql).await, ["1000000|1"]);
}

/// Keys of more than 128 bits are DataFusion's, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_keys_are_sorted() {
    let mut session = Session::new(&in_memory());
    let sql = "SELECT a FROM (SELECT a, a * -1 AS b, a::NUMERIC(38,0) * 10000000000000000000 AS c FROM (
        SELECT (x::BIGINT * 48271 % 65537 - 30000) * 140737488355327 AS a FROM generate_series(1, 1000) AS g (x)) AS q) AS q
        ORDER BY c, b, a";
    let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
    assert!(plan.contains("PackedSortExec"), "{plan}");
    let found = rows(&mut session, sql).await;
    assert_eq!(found.len(), 1000);
    assert!(found.is_sorted_by_key(|value| value.parse::<i64>().unwrap()));
}
