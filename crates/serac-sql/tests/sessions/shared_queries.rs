//! Queries of WITH that are computed once and read several times: the same rows as where each place
//! computes them, volatile functions, errors, readers that stop early or wait for each other,
//! little memory, cancellation, and statements that run several times.
//!
//! `SERAC_STRESS=1` asks more queries; `SERAC_SEED=n` replays a seed.

use crate::support::{batches, in_memory, lines, refused, run, text};
use datafusion::arrow::array::AsArray;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};
use std::time::{Duration, Instant};

/// Rows as texts, in one order; or the SQLSTATE of an error.
async fn rows(session: &mut Session, sql: &str) -> Result<Vec<String>, &'static str> {
    let results = session.execute(sql).await.map_err(|error| {
        println!("{sql}: {error}");
        error.sqlstate
    })?;
    let Some(StatementResult::Rows { batches, .. }) = results.into_iter().next_back() else {
        panic!("{sql} gives rows")
    };
    let mut rows = lines(&batches);
    rows.sort_unstable();
    Ok(rows)
}

/// The one value of a statement, as a text.
async fn value(session: &mut Session, sql: &str) -> String {
    rows(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).join(";")
}

async fn plan(session: &mut Session, sql: &str) -> String {
    let mut lines = Vec::new();
    for batch in batches(session, &format!("EXPLAIN {sql}")).await {
        lines.extend(batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned));
    }
    lines.join("\n")
}

async fn made() -> (SqlDatabase, Session) {
    let db = in_memory();
    let mut session = Session::new(&db);
    let tables = "CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER, c TEXT, d NUMERIC(10,2), f FLOAT8);
        CREATE TABLE u (id INTEGER, a INTEGER, e TEXT);
        INSERT INTO t SELECT g, CASE WHEN g % 7 > 0 THEN g % 7 END, g % 13, CASE WHEN g % 5 > 0 THEN 'text ' || g % 5 END,
            g % 100 / 4.0, CASE g % 4 WHEN 0 THEN -0.0 WHEN 1 THEN 0.0 WHEN 2 THEN 'NaN' ELSE g % 3 END
            FROM generate_series(1, 300) AS g (g);
        INSERT INTO u SELECT g % 40, CASE WHEN g % 6 > 0 THEN g % 6 END, 'e' || g % 9 FROM generate_series(1, 120) AS g (g);
        CREATE SEQUENCE s; ANALYZE";
    run(&mut session, tables).await;
    (db, session)
}

/// Queries with the columns k (a number), v (a number) and w (a text), of whose rows each is the
/// same however it is computed.
const QUERIES: [&str; 14] = [
    "SELECT a AS k, count(*) AS v, min(c) AS w FROM t GROUP BY a",
    "SELECT b AS k, sum(a) AS v, max(c) AS w FROM t WHERE id % 3 > 0 GROUP BY b",
    "SELECT t.a AS k, u.id AS v, u.e AS w FROM t JOIN u ON u.a = t.a AND t.id < 12",
    "SELECT DISTINCT a AS k, b AS v, c AS w FROM t",
    "SELECT a AS k, b AS v, c AS w FROM t WHERE id > 20",
    "SELECT a AS k, row_number() OVER (PARTITION BY a ORDER BY id) AS v, c AS w FROM t",
    "SELECT id AS k, b AS v, c AS w FROM t ORDER BY d DESC, id LIMIT 40",
    "SELECT a AS k, 1 AS v, 'one' AS w FROM t GROUP BY a UNION ALL SELECT a, 2, 'two' FROM u GROUP BY a",
    "SELECT a AS k, b AS v, c AS w FROM t EXCEPT SELECT a, id, 'text 1' FROM u",
    "SELECT t.id AS k, u.a AS v, u.e AS w FROM t LEFT JOIN u ON u.id = t.id AND u.a > 2",
    "SELECT a AS k, b AS v, count(*)::text AS w FROM t GROUP BY ROLLUP (a, b)",
    "SELECT n AS k, n % 4 AS v, 'r' || n AS w FROM (WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 25) SELECT * FROM r) x",
    "SELECT id AS k, (SELECT max(u.id) FROM u WHERE u.a = t.a) AS v, c AS w FROM t WHERE b IN (SELECT a FROM u)",
    "SELECT NULL::integer AS k, 1 AS v, NULL::text AS w FROM t WHERE false GROUP BY 1",
];

fn condition(rng: &mut StdRng, of: &str) -> String {
    let n = rng.random_range(0..12);
    match rng.random_range(0..10) {
        0 => format!("{of}.k = {n}"),
        1 => format!("{of}.k IN (1, 3, {n})"),
        2 => format!("{of}.v > {n}"),
        3 => format!("{of}.w LIKE 'text%'"),
        4 => format!("{of}.k IS NULL"),
        5 => format!("{of}.w IS NOT NULL AND {of}.k < {n}"),
        6 => format!("({of}.k = {n} OR {of}.v = 1)"),
        7 => format!("{of}.k + {of}.v > {n}"),
        8 => format!("100 / ({of}.v + 1000) < {n}"),
        _ => format!("{of}.v BETWEEN 1 AND {n}"),
    }
}

fn filters(rng: &mut StdRng, of: &str) -> String {
    let count = rng.random_range(0..3);
    let all: Vec<String> = (0..count).map(|_| condition(rng, of)).collect();
    if all.is_empty() { "true".into() } else { all.join(" AND ") }
}

/// A query over one that reads x or y several times.
fn body(rng: &mut StdRng) -> String {
    let x = |rng: &mut StdRng| *["x", "x", "y"].choose(rng).unwrap();
    let (one, other) = (x(rng), x(rng));
    let (f, g) = (filters(rng, "p"), filters(rng, "q"));
    match rng.random_range(0..11) {
        0 => format!("SELECT p.*, q.v FROM {one} p JOIN {other} q ON p.k = q.k WHERE {f} AND {g}"),
        1 => format!("SELECT p.k, q.w FROM {one} p LEFT JOIN {other} q ON p.v = q.k AND {g} WHERE {f}"),
        2 => format!("SELECT k, w FROM {one} p WHERE {f} UNION ALL SELECT k, w FROM {other} q WHERE {g}"),
        3 => format!("SELECT * FROM {one} p WHERE p.v > (SELECT avg(v) FROM {other} q WHERE {g}) AND {f}"),
        4 => format!("SELECT * FROM {one} p WHERE {f} AND EXISTS (SELECT 1 FROM {other} q WHERE q.k = p.v AND {g})"),
        5 => format!("SELECT p.k, (SELECT count(*) FROM {other} q WHERE q.k = p.k AND {g}) FROM {one} p WHERE {f}"),
        6 => format!(
            "SELECT p.k FROM {one} p WHERE {f} AND p.k NOT IN (SELECT v FROM {other} q WHERE v IS NOT NULL AND {g})"
        ),
        7 => format!("SELECT count(*), (SELECT count(*) FROM {other} q WHERE {g}) FROM {one} p WHERE {f}"),
        8 => format!(
            "SELECT v, count(*), sum(k) FROM (SELECT k, v FROM {one} p WHERE {f} INTERSECT SELECT k, v FROM {other} q WHERE {g}) z GROUP BY v"
        ),
        9 => format!(
            "SELECT p.k, l.v FROM {one} p, LATERAL (SELECT v FROM {other} q WHERE q.k = p.k AND {g} ORDER BY v, w LIMIT 2) l WHERE {f}"
        ),
        _ => format!(
            "SELECT p.w, q.w FROM {one} p FULL JOIN {other} q ON p.k = q.v AND p.w = q.w WHERE coalesce(p.k, 0) < 9"
        ),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharing_does_not_change_random_queries() {
    let seed = std::env::var("SERAC_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("SERAC_SEED={seed}");
    let rng = &mut StdRng::seed_from_u64(seed);
    let count = if std::env::var_os("SERAC_STRESS").is_some() { 3_000 } else { 60 };
    let (db, mut session) = made().await;
    let mut without = Session::new(&db);
    run(&mut without, "SET serac.disabled_passes = 'shared_queries'").await;
    let (mut shared, mut refused) = (0, 0);
    for _ in 0..count {
        let x = QUERIES.choose(rng).unwrap();
        let y = match rng.random_bool(0.6) {
            true => {
                let f = filters(rng, "z");
                match rng.random_range(0..3) {
                    0 => format!("SELECT z.k, sum(z.v) AS v, min(z.w) AS w FROM x z WHERE {f} GROUP BY z.k"),
                    1 => format!("SELECT DISTINCT z.* FROM x z JOIN x ON z.k = x.v WHERE {f} AND z.v < 9"),
                    _ => format!("SELECT z.* FROM x z WHERE {f}"),
                }
            }
            false => QUERIES.choose(rng).unwrap().to_string(),
        };
        let body = body(rng);
        let of = |how: &str| format!("WITH x AS {how} ({x}), y AS {how} ({y}) {body}");
        let expected = rows(&mut without, &of("NOT MATERIALIZED")).await;
        if expected.as_ref().is_err_and(|error| *error == "0A000") {
            // A correlated subquery over rows that must be there once.
            refused += 1;
            continue;
        }
        if expected.is_ok() {
            assert!(!plan(&mut without, &of("")).await.contains("SharedScanExec"), "{}", of(""));
            shared += usize::from(plan(&mut session, &of("")).await.contains("SharedScanExec"));
        }
        for (is_on, how) in [(true, ""), (false, ""), (false, "MATERIALIZED")] {
            let found = rows(if is_on { &mut session } else { &mut without }, &of(how)).await;
            assert_eq!(found, expected, "SERAC_SEED={seed}: {}", of(how));
        }
    }
    assert!(shared > count / 4 && refused < count / 4, "{shared} of {count} are shared, {refused} refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volatile_queries_give_all_places_the_same_rows() {
    let (_db, mut session) = made().await;
    let same = "WITH x AS (SELECT g, random() AS r FROM generate_series(1, 5000) AS g (g)) \
        SELECT count(*), count(*) FILTER (WHERE p.r = q.r) FROM x p JOIN x q ON p.g = q.g";
    assert_eq!(value(&mut session, same).await, "5000|5000");
    let same = "WITH x AS (SELECT random() AS r) SELECT p.r = q.r, p.r = (SELECT r FROM x), \
        (SELECT count(*) FROM x WHERE r = p.r) FROM x p, x q";
    assert_eq!(value(&mut session, same).await, "true|true|1");
    // Filters do not reach them: all rows are computed, once.
    let few = "WITH x AS (SELECT nextval('s') AS n, g FROM generate_series(1, 100) AS g (g)) \
        SELECT count(*) FROM (SELECT * FROM x WHERE g < 10 UNION ALL SELECT * FROM x WHERE g < 5) z";
    assert_eq!(value(&mut session, few).await, "13");
    assert_eq!(value(&mut session, "SELECT last_value FROM s").await, "100");
    // Nor do they lose columns that nobody reads.
    let few = "WITH x AS (SELECT setval('s', 7) AS n, 1 AS g) SELECT p.g, q.g FROM x p, x q";
    assert_eq!(value(&mut session, few).await, "1|1");
    assert_eq!(value(&mut session, "SELECT last_value FROM s").await, "7");
    for how in ["", "NOT MATERIALIZED", "MATERIALIZED"] {
        let nested = format!(
            "WITH x AS {how} (SELECT random() AS r), y AS {how} (SELECT p.r + q.r AS r FROM x p, x q) \
             SELECT 2 * x.r = y.r, z.r = y.r FROM x, y, y AS z"
        );
        assert_eq!(value(&mut session, &nested).await, "true|true", "{how}");
    }
    // A query that refers to another one around it cannot be shared.
    let error =
        refused(&mut session, "SELECT (WITH x AS (SELECT random() + t.a AS r) SELECT p.r - q.r FROM x p, x q) FROM t");
    assert_eq!(error.await.sqlstate, "0A000");
    run(&mut session, "CREATE TABLE w (r FLOAT8); INSERT INTO w VALUES (0)").await;
    let divided = "WITH x AS (SELECT random() AS r) UPDATE w SET r = x.r FROM x RETURNING (SELECT r FROM x) = w.r";
    assert_eq!(refused(&mut session, divided).await.sqlstate, "0A000");
    run(&mut session, "WITH x AS (SELECT random() AS r) INSERT INTO w SELECT p.r - q.r FROM x p, x q").await;
    assert_eq!(value(&mut session, "SELECT r FROM w").await, "0.0;0.0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_a_shared_query_are_those_of_the_statement() {
    let (_db, mut session) = made().await;
    for how in ["", "NOT MATERIALIZED", "MATERIALIZED"] {
        let failing = format!(
            "WITH x AS {how} (SELECT b, sum(1 / (id - 250)) AS v FROM t GROUP BY b) SELECT sum(p.v) FROM x p JOIN x q ON p.b = q.b"
        );
        assert_eq!(refused(&mut session, &failing).await.sqlstate, "22012", "{how}");
        let failing = format!(
            "WITH x AS {how} (SELECT b, sum(1 / (id - 250)) AS v FROM t GROUP BY b) SELECT b FROM x UNION ALL SELECT b FROM x WHERE v > 0"
        );
        assert_eq!(refused(&mut session, &failing).await.sqlstate, "22012", "{how}");
        // Where nobody reads it, nothing fails.
        let unread = format!(
            "WITH x AS {how} (SELECT sum(1 / (id - 250)) AS v FROM t) SELECT CASE WHEN a > 100 THEN (SELECT v FROM x) + (SELECT v FROM x) END FROM t WHERE id = 1"
        );
        assert_eq!(value(&mut session, &unread).await, "NULL", "{how}");
    }
    assert_eq!(value(&mut session, "SELECT count(*) FROM t").await, "300");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_stop_early_and_wait_for_each_other() {
    let (_db, mut session) = made().await;
    let big = "WITH x AS (SELECT g % 50000 AS k, count(*) AS n FROM generate_series(1, 200000) AS g (g) GROUP BY 1)";
    for (body, expected) in [
        ("SELECT count(*) FROM (SELECT * FROM x LIMIT 5) p, (SELECT * FROM x LIMIT 7) q", "35"),
        ("SELECT count(*) FROM x p JOIN x q ON p.k = q.k", "50000"),
        ("SELECT count(*) FROM x p JOIN x q ON p.k = q.k JOIN x r ON r.k = q.k + 1", "49999"),
        ("SELECT count(*) FROM (SELECT * FROM x p JOIN (SELECT k AS l FROM x LIMIT 10) q ON p.k = q.l LIMIT 3) z", "3"),
        ("SELECT count(*) FROM x p WHERE EXISTS (SELECT 1 FROM x q WHERE q.k = p.k + 49990)", "10"),
        ("SELECT count(*) FROM x p FULL JOIN x q ON p.k = q.k + 1", "50001"),
        (
            "SELECT count(*) FROM (SELECT k FROM x ORDER BY k) p, (SELECT k FROM x ORDER BY n DESC, k LIMIT 1) q",
            "50000",
        ),
        ("SELECT (SELECT max(k) FROM x) - (SELECT min(k) FROM x)", "49999"),
        (
            "SELECT count(*) FROM x p WHERE k > (SELECT avg(k) FROM x) AND k NOT IN (SELECT k FROM x WHERE k % 2 = 0)",
            "12500",
        ),
        (
            "SELECT count(*), max(m) FROM (SELECT k, max(n) OVER (ORDER BY k) AS m FROM x UNION ALL SELECT k, n FROM x) z",
            "100000|4",
        ),
    ] {
        let sql = format!("{big} {body}");
        assert_eq!(value(&mut session, &sql).await, expected, "{sql}");
        assert_eq!(plan(&mut session, &sql).await.matches("SharedQueryExec").count(), 1, "{sql}");
    }
    // One whose rows have no end is read as far as they are wanted.
    let endless = "WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) \
        SELECT p.n FROM (SELECT n FROM x LIMIT 3) p JOIN (SELECT n FROM x LIMIT 5) q ON p.n = q.n";
    assert_eq!(value(&mut session, endless).await, "1;2;3");
    // Each run of a recursive query's term reads it from its beginning.
    let again = "WITH RECURSIVE x AS (SELECT a, max(b) AS b FROM t GROUP BY a), \
        r (n, a) AS (SELECT 0, 1 UNION ALL SELECT n + 1, x.a FROM r JOIN x ON x.a = r.a % 6 + 1 WHERE n < 8) \
        SELECT count(*), sum(r.a), count(DISTINCT x.b) FROM r JOIN x ON x.a = r.a";
    assert_eq!(value(&mut session, again).await, "9|27|1");
    // A row claims nothing that it may not.
    let names = "WITH x AS (SELECT a FROM t GROUP BY a) \
        SELECT count(*) FROM x, (WITH x AS (SELECT a FROM x GROUP BY a) SELECT p.a FROM x p, x q) y";
    assert_eq!(value(&mut session, names).await, "343");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_a_query_is_that_of_its_readers() {
    let (_db, mut session) = made().await;
    for how in ["", "MATERIALIZED"] {
        let ordered = format!(
            "WITH x AS {how} (SELECT id, b FROM t WHERE id <= 100 ORDER BY b DESC, id) \
             SELECT (SELECT string_agg(id::text, ',') FROM x WHERE b > 10), (SELECT id FROM x LIMIT 1)"
        );
        assert_eq!(value(&mut session, &ordered).await, "12,25,38,51,64,77,90,11,24,37,50,63,76,89|12", "{how}");
        let limited = format!(
            "WITH x AS {how} (SELECT id, b FROM t ORDER BY b DESC, id LIMIT 4) SELECT p.id FROM x p, (SELECT count(*) FROM x) q"
        );
        let found = text(&mut session, &limited).await;
        let numbers: Vec<&str> = found.split('|').map(str::trim).filter(|part| part.parse::<u32>().is_ok()).collect();
        assert_eq!(numbers, ["12", "25", "38", "51"], "{how}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_go_to_files_where_memory_is_short() {
    let limited = |memory_limit| {
        let options = SqlOptions { memory_limit, threads: Some(2), ..SqlOptions::default() };
        SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap()
    };
    let (large, small) = (limited(None), limited(Some(16 << 20)));
    let (mut large, mut small) = (Session::new(&large), Session::new(&small));
    let with = "WITH x AS MATERIALIZED (SELECT g AS k, md5(g::text) AS w, md5((g + 1)::text) AS v FROM generate_series(1, 200000) AS g (g))";
    for body in [
        "SELECT count(*), min(p.w), max(q.w), max(p.v) FROM x p JOIN (SELECT * FROM x WHERE k % 1000 = 7) q ON p.k = q.k + 1",
        "SELECT sum(k), max(w), min(v) FROM (SELECT k, w, v FROM x UNION ALL SELECT -k, w, v FROM x WHERE k > 5) z",
        "SELECT (SELECT sum(k) FROM x), (SELECT sum(length(w)) FROM x), (SELECT max(v) FROM x)",
    ] {
        let sql = format!("{with} {body}");
        let expected = rows(&mut large, &sql).await.unwrap();
        assert_eq!(rows(&mut small, &sql).await, Ok(expected), "{sql}");
        let measured = plan(&mut small, &format!("ANALYZE {sql}")).await;
        assert!(measured.contains("spill_count="), "{measured}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_query_can_be_cancelled() {
    let (_db, mut session) = made().await;
    for body in
        ["SELECT count(*) FROM x p JOIN x q ON p.k = q.k", "SELECT (SELECT count(*) FROM x), (SELECT max(k) FROM x)"]
    {
        let handle = session.cancel_handle();
        let canceller = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            handle.cancel();
        });
        let began = Instant::now();
        let endless = format!(
            "WITH x AS (SELECT a.x % 1000 AS k, count(*) FROM generate_series(1, 1000) AS a (x), \
             generate_series(1, 1000000000000) AS b (y) WHERE (x + y) % 1000003 = 7 GROUP BY 1) {body}"
        );
        assert_eq!(refused(&mut session, &endless).await.sqlstate, "57014");
        assert!(began.elapsed() < Duration::from_secs(20), "cancelled after {:?}", began.elapsed());
        canceller.await.unwrap();
    }
    assert_eq!(value(&mut session, "SELECT count(*) FROM t").await, "300");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_compute_it_each_time() {
    let (_db, mut session) = made().await;
    let prepared = "PREPARE p (integer, integer) AS WITH x AS (SELECT b, count(*) AS n FROM t WHERE id > $1 GROUP BY b) \
        SELECT sum(p.n), count(*) FROM x p JOIN x q ON p.b = q.b WHERE p.b < $2";
    run(&mut session, prepared).await;
    for _ in 0..3 {
        assert_eq!(value(&mut session, "EXECUTE p (0, 100)").await, "300|13");
        assert_eq!(value(&mut session, "EXECUTE p (290, 5)").await, "2|2");
    }
    run(&mut session, "INSERT INTO t (id, b) VALUES (1000, 3), (1001, 50)").await;
    assert_eq!(value(&mut session, "EXECUTE p (290, 100)").await, "12|12");
    run(&mut session, "PREPARE r AS WITH x AS (SELECT nextval('s') AS n) SELECT p.n, q.n FROM x p, x q").await;
    for n in 1..=3 {
        assert_eq!(value(&mut session, "EXECUTE r").await, format!("{n}|{n}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_columns_and_rows_that_are_read_are_computed() {
    let (_db, mut session) = made().await;
    let sql = "WITH x AS (SELECT a, b, sum(d) AS d, max(c) AS c FROM t GROUP BY a, b) \
        SELECT p.d, q.d FROM x p JOIN x q ON p.b = q.b WHERE p.a > 4 AND q.a < 2";
    let shown = plan(&mut session, sql).await;
    assert!(shown.contains("filters=[a > 4 OR a < 2") && !shown.contains("max("), "{shown}");
    // Places that want other rows compute them for themselves, unless float sums would differ.
    for (sum, places, is_shared) in [
        ("sum(d)", "p.a = 1 AND q.a = 2", false),
        ("sum(d)", "p.a = 1 AND 3 = q.a AND p.b > 2", false),
        ("sum(d)", "p.a = 1 AND q.b = 2", true),
        ("sum(d)", "p.a = 1 AND q.a = 1", true),
        ("sum(f)", "p.a = 1 AND q.a = 2", true),
    ] {
        let sql = format!(
            "WITH x AS (SELECT a, b, {sum} AS d FROM t GROUP BY a, b) SELECT p.d, q.d FROM x p JOIN x q ON p.b = q.b WHERE {places}"
        );
        let shown = plan(&mut session, &sql).await;
        assert_eq!(shown.contains("SharedScanExec"), is_shared, "{sql}\n{shown}");
    }
    // AS MATERIALIZED keeps filters out, and is computed once even where it is named once.
    let shown = plan(&mut session, "WITH x AS MATERIALIZED (SELECT * FROM t) SELECT c FROM x WHERE a = 1").await;
    assert!(shown.contains("SharedScanExec: x, columns=[a, c]") && !shown.contains("filters="), "{shown}");
    // A query that only filters a table is run at each place.
    let shown =
        plan(&mut session, "WITH x AS (SELECT * FROM t WHERE b > 3) SELECT p.c FROM x p JOIN x q ON p.a = q.id").await;
    assert!(!shown.contains("SharedScanExec"), "{shown}");
}
