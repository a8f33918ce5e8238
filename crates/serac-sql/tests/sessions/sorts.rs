//! Random sorts by packed keys give the order that DataFusion's sort gives.

use crate::support::{batches, in_memory, lines, run, text};
use rand::Rng;
use rand::seq::IndexedRandom;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};

const KEYS: [&str; 13] = ["i", "s", "b", "f", "r", "n", "m", "d", "t", "u", "i > 3", "i % 3 + s", "id / 8192"];

async fn session(options: &SqlOptions, rows: u32) -> Session {
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), options).unwrap());
    run(
        &mut session,
        &format!(
            "CREATE TABLE k (id BIGINT PRIMARY KEY, i INTEGER, s SMALLINT, b BIGINT, f DOUBLE PRECISION, r REAL,
                n NUMERIC(10,2), m NUMERIC(38,0), d DATE, t TIME, u TIMESTAMP, x TEXT, z BIGINT);
            INSERT INTO k SELECT g, nullif(g * 7919 % 101, 7), g % 5, (g::BIGINT * 48271 % 65537) * 140737488355327,
                CASE g % 13 WHEN 0 THEN 'NaN' WHEN 1 THEN NULL WHEN 2 THEN '-0' WHEN 3 THEN 0
                    WHEN 4 THEN 'Infinity' ELSE (g * 5 % 17) / 4.0 - 2 END,
                (g % 8) / 2.0, nullif(g * 37 % 1013, 5) / 4.0 - 100,
                (g % 7 - 3) * 9876543210987654321098765432109876543::NUMERIC,
                DATE '2024-01-01' + (g * 3 % 29)::INTEGER, TIME '00:00' + (g * 17 % 1440) * INTERVAL '1 minute',
                TIMESTAMP '2024-01-01' + (g * 11 % 97) * INTERVAL '1 hour', nullif('T' || g % 7, 'T0'), g
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
            let found = lines(&batches(&mut session, &sql).await);
            run(&mut session, "SET serac.disabled_passes = 'packed_sort'").await;
            let expected = lines(&batches(&mut session, &sql).await);
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
    assert_eq!(lines(&batches(&mut session, sql).await), ["1000000|1"]);
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
    let found = lines(&batches(&mut session, sql).await);
    assert_eq!(found.len(), 1000);
    assert!(found.is_sorted_by_key(|value| value.parse::<i64>().unwrap()));
}

/// The bound that a top-k finds leaves out no row that belongs to the first ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_rows_are_those_of_the_whole_order() {
    let mut rng = serac_testing::rng();
    let times = if serac_testing::stress() { 30 } else { 1 };
    let mut session = session(&SqlOptions { threads: Some(2), ..SqlOptions::default() }, 60_000).await;
    for change in [
        "SELECT 1",
        "FREEZE TABLE k",
        "UPDATE k SET u = NULL, i = -1 WHERE id % 4999 = 0; DELETE FROM k WHERE id % 7 = 1",
    ] {
        run(&mut session, change).await;
        for _ in 0..8 * times {
            let key_count = rng.random_range(1..3);
            let keys: Vec<String> = KEYS
                .choose_multiple(&mut rng, key_count)
                .map(|key| {
                    let (direction, nulls) = (rng.random_range(0..3), rng.random_range(0..3));
                    format!("{key}{}{}", ["", " ASC", " DESC"][direction], ["", " NULLS FIRST", " NULLS LAST"][nulls])
                })
                .chain(["id".to_owned()])
                .collect();
            let condition =
                ["", "", " WHERE x <> 'T3'", " WHERE u > '2024-01-02 10:00'", " WHERE t BETWEEN '01:00' AND '02:00'"];
            let condition = condition.choose(&mut rng).unwrap();
            let limit = rng.random_range(1..60);
            let sql = format!("SELECT * FROM k{condition} ORDER BY {}", keys.join(", "));
            let mut expected = lines(&batches(&mut session, &sql).await);
            expected.truncate(limit);
            assert_eq!(lines(&batches(&mut session, &format!("{sql} LIMIT {limit}")).await), expected, "{sql}");
        }
    }
    // Zone maps say that other blocks have none of the first rows.
    run(&mut session, "FREEZE TABLE k").await;
    let plan = text(&mut session, "EXPLAIN ANALYZE SELECT * FROM k ORDER BY z LIMIT 10").await;
    assert!(!plan.contains("blocks_skipped=0"), "{plan}");
}
