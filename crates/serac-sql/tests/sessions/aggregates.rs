//! Aggregations on blocks equal DataFusion's, on random tables, keys and expressions, while other
//! sessions write.
//!
//! A LIMIT that is never reached keeps the same aggregation from blocks: that is the oracle.
//! `SERAC_STRESS=1` asks more queries; `SERAC_SEED=n` replays a seed.

use crate::support::{in_memory, text};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serac_sql::Session;

const CREATE: &str =
    "CREATE TABLE t (id BIGINT NOT NULL, k INTEGER, small SMALLINT, day DATE, at TIMESTAMP, far BIGINT, flag TEXT,
    a DECIMAL(15,2) NOT NULL, b DECIMAL(4,3), c DECIMAL(18,0), big DECIMAL(30,5))";

fn number(rng: &mut StdRng, digits: u32, scale: u32) -> String {
    // Large numbers are rare, so that a few blocks lack them.
    let limit = if rng.random_bool(0.001) { 10i64.pow(digits) } else { 10i64.pow(digits.min(6)) };
    let value = rng.random_range(-limit + 1..limit);
    let (sign, value) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    let unit = 10u64.pow(scale);
    match scale {
        0 => format!("{sign}{value}"),
        _ => format!("{sign}{}.{:0width$}", value / unit, value % unit, width = scale as usize),
    }
}

fn row(rng: &mut StdRng, id: i64) -> String {
    let mut or_null = |share: f64, value: String| if rng.random_bool(share) { "NULL".to_owned() } else { value };
    let seed = id.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64);
    let mut own = StdRng::seed_from_u64(seed as u64);
    let k = or_null(0.05, (own.random_range(-200..200)).to_string());
    let small = or_null(0.1, own.random_range(-5..6).to_string());
    let day = or_null(0.1, format!("DATE '2024-01-01' + {}", id / 97 % 400));
    let at = or_null(0.1, format!("TIMESTAMP '2024-01-01 00:00:00' + INTERVAL '{} minutes'", id % 5_000));
    let far = or_null(
        0.02,
        if own.random_bool(0.01) { (own.random::<i64>() / 2).to_string() } else { (1_000_000 + id / 3).to_string() },
    );
    let flag = or_null(0.2, format!("'{}'", ["A", "N", "R"][own.random_range(0..3)]));
    let (a, b, c) = (number(&mut own, 15, 2), number(&mut own, 4, 3), number(&mut own, 18, 0));
    let (b, c) = (or_null(0.1, b), or_null(0.1, c));
    format!("({id}, {k}, {small}, {day}, {at}, {far}, {flag}, {a}, {b}, {c}, {id}.5)")
}

async fn insert(session: &mut Session, rng: &mut StdRng, ids: std::ops::Range<i64>) {
    let rows: Vec<String> = ids.map(|id| row(rng, id)).collect();
    session.execute(&format!("INSERT INTO t VALUES {}", rows.join(", "))).await.unwrap();
}

fn query(rng: &mut StdRng) -> (String, String) {
    const AGGREGATES: [&str; 26] = [
        "avg(k)",
        "avg(small)",
        "count(*)",
        "count(b)",
        "count(id)",
        "count(flag)",
        "sum(a)",
        "sum(b)",
        "sum(c)",
        "sum(id)",
        "sum(k)",
        "sum(small)",
        "avg(a)",
        "avg(b)",
        "avg(c)",
        "min(a)",
        "max(c)",
        "min(day)",
        "max(at)",
        "min(small)",
        "max(k)",
        "sum(a * (1 - b))",
        "sum(a * (1 - b) * (1 + b))",
        "sum(b + c)",
        "sum(c * b - a)",
        "avg(a * b)",
    ];
    const GROUPS: [&str; 11] =
        ["", "", "flag", "small", "k", "day", "far", "id", "flag, small", "k, flag", "day, small"];
    const FILTERS: [&str; 8] = [
        "",
        "",
        "WHERE k > 0",
        "WHERE flag = 'A'",
        "WHERE flag <> 'N' AND small > -3",
        "WHERE id % 7 = 3",
        "WHERE day BETWEEN '2024-02-01' AND '2024-02-20'",
        "WHERE id < 0",
    ];
    let group = *GROUPS.choose(rng).unwrap();
    let aggregates: Vec<&str> = AGGREGATES.choose_multiple(rng, 4).copied().collect();
    // Not in blocks, with the others beside it.
    let with_big = if rng.random_bool(0.1) { ", sum(big)" } else { "" };
    let filter = FILTERS.choose(rng).unwrap();
    let having = if group.is_empty() || rng.random_bool(0.6) { "" } else { "HAVING sum(a) > 100" };
    let (columns, by) = match group {
        "" => (String::new(), String::new()),
        group => (format!("{group}, "), format!("GROUP BY {group} {having} ORDER BY {group}")),
    };
    let of = |table: &str| format!("SELECT {columns}{}{with_big} FROM {table} {filter} {by}", aggregates.join(", "));
    (of("t"), of("(SELECT * FROM t LIMIT 1000000000) AS t"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregations_on_blocks_give_what_others_give() {
    let mut rng = serac_testing::rng();
    let queries = if serac_testing::stress() { 500 } else { 60 };
    let db = in_memory();
    let mut session = Session::new(&db);
    session.execute(CREATE).await.unwrap();
    for from in 0..20 {
        insert(&mut session, &mut rng, from * 1_000..(from + 1) * 1_000).await;
    }
    session.execute("CREATE INDEX ON t USING bitmap (flag); CREATE INDEX ON t USING bitmap (small)").await.unwrap();
    let mut on_blocks = 0;
    for i in 0..queries {
        session.execute("BEGIN").await.unwrap();
        let (sql, oracle) = query(&mut rng);
        let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
        on_blocks += usize::from(plan.contains("BlockAggregateExec") || plan.contains("CubitAggregateExec"));
        assert!(!text(&mut session, &format!("EXPLAIN {oracle}")).await.contains("BlockAggregateExec"));
        // Products of large numbers may exceed 38 digits: then both fail.
        let (found, expected) = (session.execute(&sql).await, session.execute(&oracle).await);
        match (found, expected) {
            (Ok(_), Ok(_)) => {
                let (found, expected) = (text(&mut session, &sql).await, text(&mut session, &oracle).await);
                assert_eq!(found, expected, "{sql}\n{plan}");
                session.execute("COMMIT").await.unwrap();
            }
            (Err(found), Err(expected)) => {
                assert_eq!(found.sqlstate, expected.sqlstate, "{sql}");
                session.execute("ROLLBACK").await.unwrap();
            }
            (found, expected) => panic!("{sql}: {:?}, {:?}\n{plan}", found.err(), expected.err()),
        }
        let id = 1_000_000 + i64::from(i);
        insert(&mut session, &mut rng, id..id + 1).await;
        session.execute(&format!("DELETE FROM t WHERE id % 1000 = {i}")).await.unwrap();
        session.execute(&format!("UPDATE t SET a = a + 1, flag = 'R' WHERE id % 900 = {i}")).await.unwrap();
        if i == queries / 2 {
            session.execute("FREEZE TABLE t").await.unwrap();
        }
    }
    assert!(on_blocks * 4 > queries as usize, "{on_blocks} of {queries} on blocks");
}

#[tokio::test]
async fn sums_beyond_64_bits_and_keys_beyond_the_sample() {
    let db = in_memory();
    let mut session = Session::new(&db);
    let create = "CREATE TABLE t (id INTEGER, k BIGINT, n DECIMAL(18,0), i BIGINT);
        INSERT INTO t SELECT g, g % 3, 999999999999999999, 9223372036854775807 FROM generate_series(1, 600000) AS g (g)";
    session.execute(create).await.unwrap();
    let sql = "SELECT k, sum(n), count(n), min(i), avg(n) FROM t GROUP BY k ORDER BY k";
    // Values that are not in the blocks that planning looks at.
    session.execute("BEGIN").await.unwrap();
    let mut on_blocks = false;
    for id in (15_000..600_000).step_by(15_000) {
        let update = format!(
            "SAVEPOINT a; UPDATE t SET k = 9223372036854775807, n = -1, i = 5 WHERE id = {id};
             UPDATE t SET k = -9223372036854775808, n = NULL, i = 6 WHERE id = {id} + 1;
             UPDATE t SET k = NULL, n = 7, i = NULL WHERE id = {id} + 2"
        );
        session.execute(&update).await.unwrap();
        on_blocks = text(&mut session, &format!("EXPLAIN {sql}")).await.contains("BlockAggregateExec: by=[k");
        if on_blocks {
            break;
        }
        session.execute("ROLLBACK TO a").await.unwrap();
    }
    assert!(on_blocks);
    let found = text(&mut session, sql).await;
    for expected in [
        "| -9223372036854775808 |                          | 0 ",
        "| 0                    | 199998999999999999800001 | 199999 ",
        "| 1                    | 199998999999999999800001 | 199999 ",
        "| 9223372036854775807  | -1                       | 1 ",
        "|                      | 7                        | 1 ",
    ] {
        assert!(found.contains(expected), "{expected}\n{found}");
    }
    let found = text(&mut session, "SELECT sum(n), count(*), max(i) FROM t WHERE k = 77").await;
    assert!(found.contains("|        | 0        |        |"), "{found}");
    let found = text(&mut session, "SELECT sum(i) FROM t WHERE k = 0").await;
    assert!(found.contains("| 1844665183998918306624193 |"), "{found}");
}

#[tokio::test]
async fn what_a_query_computes_twice_is_computed_once() {
    let db = in_memory();
    let mut session = Session::new(&db);
    let create = "CREATE TABLE t (k INTEGER, n DECIMAL(12,2), x INTEGER);
        INSERT INTO t SELECT g % 100, g, g % 7 FROM generate_series(1, 10000) AS g (g)";
    session.execute(create).await.unwrap();
    let sql = "WITH s AS (SELECT k, sum(n) AS total FROM t WHERE x < 5 GROUP BY k) \
               SELECT k, total FROM s WHERE total = (SELECT max(total) FROM s)";
    let plan = text(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await;
    // One of the two scans reads blocks, the other does not.
    let scans = plan.lines().zip(plan.lines().skip(1)).filter(|(line, _)| line.contains("SeracScanExec"));
    assert_eq!(scans.filter(|(_, measured)| measured.contains("blocks_bulk=1")).count(), 1, "{plan}");
    let found = text(&mut session, sql).await;
    let oracle = sql.replace("FROM t WHERE", "FROM (SELECT * FROM t LIMIT 1000000) AS t WHERE");
    assert_eq!(found, text(&mut session, &oracle).await);
}
