//! Queries that a session runs again, as a text or as a prepared statement: their plans are kept,
//! and give what a session gives that has never run them.
//!
//! `SERAC_STRESS=1` changes more rows; `SERAC_SEED=n` replays a seed.

use crate::support::{in_memory, lines, refused, run};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serac_sql::{Session, StatementResult};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The rows of a statement, or the SQLSTATE of its error.
async fn rows(session: &mut Session, sql: &str) -> Result<Vec<String>, &'static str> {
    match session.execute(sql).await.map_err(|error| error.sqlstate)?.pop() {
        Some(StatementResult::Rows { batches, .. }) => {
            let mut rows = lines(&batches);
            rows.sort_unstable();
            Ok(rows)
        }
        other => panic!("{sql} gives {other:?}"),
    }
}

/// The only value of a statement that has been run until its plan is kept.
async fn again(session: &mut Session, sql: &str) -> String {
    let mut last = Vec::new();
    for _ in 0..4 {
        last = rows(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    last.join(";")
}

const QUERIES: &[&str] = &[
    "SELECT count(*), sum(v), min(w), max(d) FROM a",
    "SELECT k, count(*), sum(v) FROM a GROUP BY k HAVING count(*) > 1",
    "SELECT a.k, b.t FROM a JOIN b ON a.k = b.k WHERE a.v > 10 AND b.t LIKE '%1%'",
    "SELECT a.k, b.t FROM a LEFT JOIN b ON a.k = b.k AND b.k > 3",
    "SELECT a.k, b.t, c.n FROM a, b, c WHERE a.k = b.k AND b.k = c.k AND c.n IN (1, 2, 3)",
    "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.k <> 2)",
    "SELECT k FROM a WHERE k NOT IN (SELECT k FROM b WHERE k IS NOT NULL)",
    "SELECT k, (SELECT max(t) FROM b WHERE b.k = a.k) FROM a",
    "SELECT k, v FROM a WHERE v > (SELECT avg(v) FROM a)",
    "WITH s AS (SELECT k, sum(v) AS v FROM a GROUP BY k) SELECT x.k, x.v - y.v FROM s x, s y WHERE x.k = y.k + 1",
    "WITH s AS (SELECT k, sum(v) AS v FROM a GROUP BY k), r AS (SELECT s.k, t.v FROM s JOIN s AS t ON s.v = t.v) \
     SELECT * FROM r UNION ALL SELECT * FROM r WHERE k > 2",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < (SELECT count(*) FROM b)) SELECT n FROM r",
    "SELECT k, rank() OVER (PARTITION BY k ORDER BY v, w, d) FROM a",
    "SELECT DISTINCT k, w FROM a ORDER BY k, w LIMIT 5",
    "SELECT k, sum(v) FROM a GROUP BY ROLLUP (k)",
    "SELECT k FROM a INTERSECT SELECT k FROM b",
    "SELECT k FROM a EXCEPT SELECT k FROM c",
    "SELECT * FROM v WHERE k < 6",
    "SELECT x.k, y.n FROM v x JOIN v y USING (k)",
    "SELECT g, a.k FROM generate_series(1, 4) AS g LEFT JOIN a ON a.k = g",
    "SELECT count(*) FROM a WHERE d > DATE '2020-01-05' AND w = 'w1'",
    "SELECT 10 / k FROM a WHERE v >= 0",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_plans_give_what_new_ones_give() {
    let seed = std::env::var("SERAC_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("SERAC_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let db = in_memory();
    let mut session = Session::new(&db);
    run(
        &mut session,
        "CREATE TABLE a (k INTEGER, v NUMERIC(9, 2), w TEXT, d DATE); \
         CREATE TABLE b (k INTEGER PRIMARY KEY, t TEXT); \
         CREATE TABLE c (k INTEGER NOT NULL, n INTEGER); \
         CREATE VIEW v AS SELECT a.k, c.n FROM a JOIN c ON a.k = c.k",
    )
    .await;
    let rounds = if std::env::var("SERAC_STRESS").is_ok() { 200 } else { 12 };
    for round in 0..rounds {
        let k = random.random_range(0..9);
        let change = [
            format!(
                "INSERT INTO a SELECT {k}, x, 'w' || x % 3, DATE '2020-01-01' + x FROM generate_series(1, 7) AS g (x)"
            ),
            format!("INSERT INTO a VALUES (NULL, NULL, NULL, NULL), ({k}, {k}, 'w1', NULL)"),
            format!("INSERT INTO b VALUES ({k}, 't{k}') ON CONFLICT (k) DO UPDATE SET t = b.t || '1'"),
            format!("INSERT INTO c VALUES ({k}, {}), ({}, 2)", k % 4, k + 1),
            format!("UPDATE a SET v = v + 1 WHERE k = {k}"),
            format!("DELETE FROM a WHERE k = {k}"),
            format!("DELETE FROM b WHERE k = {k}"),
            "DELETE FROM c".to_owned(),
            "ALTER TABLE a ADD COLUMN z INTEGER DEFAULT 1; ALTER TABLE a DROP COLUMN z".to_owned(),
            "CREATE INDEX i ON a (k); DROP INDEX i".to_owned(),
        ];
        run(&mut session, change.choose(&mut random).unwrap()).await;
        let mut new = Session::new(&db);
        for sql in QUERIES {
            let expected = rows(&mut new, sql).await;
            for _ in 0..2 {
                assert_eq!(rows(&mut session, sql).await, expected, "round {round}: {sql}");
            }
        }
    }
}

#[tokio::test]
async fn what_a_plan_depends_on_makes_a_new_one() {
    let db = in_memory();
    let mut session = Session::new(&db);
    run(&mut session, "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1); CREATE VIEW w AS SELECT a FROM t").await;
    // A table and a view that become others, and one that a temporary table hides.
    assert_eq!(again(&mut session, "SELECT a FROM t").await, "1");
    assert_eq!(again(&mut session, "SELECT * FROM w").await, "1");
    run(&mut session, "CREATE OR REPLACE VIEW w AS SELECT a + 1 AS a FROM t").await;
    assert_eq!(again(&mut session, "SELECT * FROM w").await, "2");
    run(&mut session, "CREATE TEMPORARY TABLE t (a INTEGER); INSERT INTO t VALUES (7)").await;
    assert_eq!(again(&mut session, "SELECT a FROM t").await, "7");
    run(&mut session, "DROP TABLE pg_temp.t").await;
    assert_eq!(again(&mut session, "SELECT a FROM t").await, "1");
    run(&mut session, "CREATE SCHEMA s; CREATE TABLE s.t (a INTEGER); INSERT INTO s.t VALUES (5)").await;
    run(&mut session, "SET search_path = s, public").await;
    assert_eq!(again(&mut session, "SELECT a FROM t").await, "5");
    run(&mut session, "RESET search_path").await;
    assert_eq!(again(&mut session, "SELECT a FROM t").await, "1");
    // Settings.
    let time = "SELECT extract(hour FROM '2020-01-01 00:00+00'::timestamptz)";
    assert_eq!(again(&mut session, time).await, "0");
    run(&mut session, "SET TIME ZONE 'Asia/Tokyo'").await;
    assert_eq!(again(&mut session, time).await, "9");
    let shown = "SELECT '2020-02-01'::date::text";
    assert_eq!(again(&mut session, shown).await, "2020-02-01");
    run(&mut session, "SET datestyle = 'German'").await;
    assert_eq!(again(&mut session, shown).await, "01.02.2020");
    run(&mut session, "RESET ALL").await;
    // A transaction that is undone.
    run(&mut session, "BEGIN; ALTER TABLE t RENAME COLUMN a TO b").await;
    assert_eq!(again(&mut session, "SELECT b FROM t").await, "1");
    run(&mut session, "ROLLBACK").await;
    assert_eq!(refused(&mut session, "SELECT b FROM t").await.sqlstate, "42703");
}

#[tokio::test]
async fn each_run_has_its_own_time_and_random_numbers() {
    let db = in_memory();
    let mut session = Session::new(&db);
    run(&mut session, "CREATE SEQUENCE q; CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)").await;
    for sql in [
        "SELECT now()",
        "SELECT 'now'::timestamptz FROM t",
        "SELECT ('now' || '')::timestamp FROM t",
        "SELECT count(*), lower('NOW')::timestamptz FROM t WHERE lower('NOW')::timestamp > '2000-01-01'",
        "SELECT current_timestamp::text FROM t",
        "SELECT clock_timestamp()",
        "SELECT statement_timestamp() FROM t",
        "SELECT age('1900-01-01'::timestamptz) + (now() - 'yesterday'::timestamptz) FROM t",
        "SELECT random() FROM t",
        "SELECT gen_random_uuid()::text FROM t",
        "WITH w AS (SELECT random() AS r FROM t) SELECT x.r, y.r FROM w x, w y",
        "SELECT nextval('q') FROM t",
        "SELECT a FROM t WHERE now() IS NULL UNION ALL SELECT extract(microseconds FROM now())::integer FROM t",
    ] {
        let mut seen = Vec::new();
        for _ in 0..5 {
            let now = rows(&mut session, sql).await.unwrap();
            assert!(!seen.contains(&now), "{sql}: {now:?} again");
            seen.push(now);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn privileges_are_those_of_each_run() {
    let db = in_memory();
    let mut owner = Session::new(&db);
    run(&mut owner, "CREATE TABLE t (a INTEGER, b INTEGER); INSERT INTO t VALUES (1, 2)").await;
    run(&mut owner, "CREATE ROLE reader; GRANT SELECT ON t TO reader; CREATE ROLE nobody").await;
    let sql = "SELECT a, b FROM t";
    assert_eq!(again(&mut owner, sql).await, "1|2");
    run(&mut owner, "SET ROLE reader").await;
    assert_eq!(again(&mut owner, sql).await, "1|2");
    run(&mut owner, "SET ROLE nobody").await;
    assert_eq!(refused(&mut owner, sql).await.sqlstate, "42501");
    run(&mut owner, "RESET ROLE; REVOKE SELECT ON t FROM reader; GRANT SELECT (a) ON t TO reader; SET ROLE reader")
        .await;
    assert_eq!(refused(&mut owner, sql).await.sqlstate, "42501");
    assert_eq!(again(&mut owner, "SELECT a FROM t").await, "1");
    // Also where no row is read.
    let branch = "SELECT count(*) FROM (SELECT a, 1 AS k FROM t WHERE b <> 0 UNION ALL SELECT 1, 2) AS u WHERE k = 2";
    assert_eq!(refused(&mut owner, branch).await.sqlstate, "42501");
    run(&mut owner, "RESET ROLE").await;
    assert_eq!(again(&mut owner, branch).await, "1");
}

#[tokio::test]
async fn a_table_that_is_dropped_goes_although_plans_are_kept() {
    let db = in_memory();
    let mut session = Session::new(&db);
    run(&mut session, "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)").await;
    run(&mut session, "PREPARE p AS SELECT sum(a) FROM t; EXECUTE p; EXECUTE p").await;
    for change in ["TRUNCATE t", "DROP TABLE t"] {
        again(&mut session, "SELECT a FROM t").await;
        again(&mut session, "WITH w AS (SELECT a, count(*) FROM t GROUP BY a) SELECT * FROM w x, w y").await;
        let table = Arc::downgrade(db.database().catalog().table("public", "t").unwrap());
        run(&mut session, change).await;
        run(&mut session, "SELECT 1").await;
        let begin = Instant::now();
        while table.strong_count() > 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "{change}: a plan keeps the table");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn prepared_queries_see_what_has_changed() {
    let db = in_memory();
    let mut session = Session::new(&db);
    run(&mut session, "CREATE TABLE t (a INTEGER); PREPARE p AS SELECT count(*), sum(a) FROM t").await;
    run(&mut session, "PREPARE q (INTEGER) AS SELECT count(*) FROM t WHERE a > $1").await;
    for count in 1..6 {
        run(&mut session, &format!("INSERT INTO t VALUES ({count})")).await;
        assert_eq!(rows(&mut session, "EXECUTE p").await.unwrap(), [format!("{count}|{}", count * (count + 1) / 2)]);
        assert_eq!(rows(&mut session, "EXECUTE q (2)").await.unwrap(), [format!("{}", 0.max(count - 2))]);
        assert_eq!(rows(&mut session, "EXECUTE q (0)").await.unwrap(), [format!("{count}")]);
    }
    run(&mut session, "BEGIN; DELETE FROM t").await;
    assert_eq!(rows(&mut session, "EXECUTE p").await.unwrap(), ["0|NULL"]);
    run(&mut session, "ROLLBACK").await;
    assert_eq!(rows(&mut session, "EXECUTE p").await.unwrap(), ["5|15"]);
}
