//! Groups by columns of few values, and lists of constants in filters, give what plans without
//! them give.
//!
//! `SERAC_STRESS=1` asks more queries; `SERAC_SEED=n` replays a seed.

use crate::support::{run, sorted_lines, text};
use rand::Rng;
use rand::seq::IndexedRandom;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};

const KEYS: [&str; 13] = ["short", "long", "code", "i", "s", "b", "dec", "flag", "day", "at", "tz", "clock", "bytes"];
const AGGREGATES: [&str; 9] = [
    "count(*)",
    "count(n)",
    "sum(n)",
    "sum(price * (1 - dec))",
    "avg(price)",
    "min(n)",
    "max(day)",
    "avg(n)",
    "sum(price * n)",
];
const LISTS: [&str; 8] = [
    "i IN (1, 4, NULL)",
    "n IN (5, 900, 123456, -7)",
    "n = 17 OR n = 18 OR n IN (19, 400000)",
    "dec IN (0.25, 1.00, 7)",
    "day IN ('2024-01-03', '2024-01-05', '2030-01-01')",
    "s IN (3, 0)",
    "b IN (9000000000000000000, -9000000000000000000, 3)",
    "i IN (NULL, NULL)",
];

async fn table(rows: u32, format: &str) -> Session {
    let options = SqlOptions { threads: Some(2), ..SqlOptions::default() };
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap());
    run(
        &mut session,
        &format!(
            "CREATE TABLE f (n BIGINT, price NUMERIC(12,2) NOT NULL, short TEXT, long TEXT NOT NULL, code CHAR(14), i INTEGER,
                s SMALLINT NOT NULL, b BIGINT, dec NUMERIC(4,2), flag BOOLEAN, day DATE, at TIMESTAMP,
                tz TIMESTAMPTZ, clock TIME, bytes BYTEA) WITH (freeze_format = {format});
            INSERT INTO f SELECT nullif(x, 50), x % 10007 / 4.0, nullif(substr('NRAF', (x % 4 + 1)::INTEGER, 1), 'F'),
                'a text of more than twelve bytes ' || x % 3, CASE WHEN x % 5 > 0 THEN 'c' || x % 5 * 10000000000 END,
                nullif(x % 6, 2), x % 7, (x % 3 - 1) * 9000000000000000000, nullif(x % 9, 8) / 4.0, nullif(x % 3, 1) = 0,
                DATE '2024-01-01' + (x % 8)::INTEGER, TIMESTAMP '2024-01-01' + x % 4 * INTERVAL '1 hour',
                TIMESTAMPTZ '2024-01-01 00:00:00+00' + x % 3 * INTERVAL '1 second', TIME '00:00' + x % 5 * INTERVAL '1 minute',
                decode(md5((x % 6)::TEXT), 'hex')
            FROM generate_series(1::BIGINT, {rows}) AS g (x)"
        ),
    )
    .await;
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_few_values_are_those_of_hashing() {
    let mut rng = serac_testing::rng();
    let queries = if serac_testing::stress() { 300 } else { 25 };
    let mut on_blocks = 0;
    for (format, change) in [
        ("view", "SELECT 1"),
        ("view", "FREEZE TABLE f"),
        ("dictionary", "FREEZE TABLE f"),
        ("compact", "FREEZE TABLE f"),
        ("compact", "DELETE FROM f WHERE n % 1000 = 3; FREEZE TABLE f; UPDATE f SET short = NULL WHERE n % 5000 = 1"),
        ("utf8", "DELETE FROM f WHERE n % 1000 = 3; FREEZE TABLE f; UPDATE f SET short = NULL WHERE n % 5000 = 1"),
    ] {
        let mut session = table(60_000, format).await;
        for statement in change.split("; ") {
            run(&mut session, statement).await;
        }
        for _ in 0..queries {
            let count = rng.random_range(1..4);
            let keys: Vec<&str> = (0..count).map(|_| *KEYS.choose(&mut rng).unwrap()).collect();
            let count = rng.random_range(1..4);
            let aggregates: Vec<&str> = (0..count).map(|_| *AGGREGATES.choose(&mut rng).unwrap()).collect();
            let filter = match rng.random_range(0..5) {
                0 => "n < 30000".to_owned(),
                1 => format!("n % {} > 0", rng.random_range(2..20)),
                2 => (*LISTS.choose(&mut rng).unwrap()).to_owned(),
                3 => format!("NOT (n BETWEEN 100 AND {})", rng.random_range(100..60_000)),
                _ => "TRUE".to_owned(),
            };
            let sql = |filter: &str| {
                let (keys, aggregates) = (keys.join(", "), aggregates.join(", "));
                format!("SELECT {keys}, {aggregates} FROM f WHERE {filter} GROUP BY {keys}")
            };
            let plan = text(&mut session, &format!("EXPLAIN {}", sql(&filter))).await;
            on_blocks += usize::from(plan.contains("BlockAggregateExec: by=["));
            let found = sorted_lines(&mut session, &sql(&filter)).await;
            run(&mut session, "SET serac.disabled_passes = 'block_aggregation'").await;
            let expected = sorted_lines(&mut session, &sql(&format!("coalesce({filter}, FALSE)"))).await;
            run(&mut session, "RESET serac.disabled_passes").await;
            assert_eq!(found, expected, "{format}, {change}: {}", sql(&filter));
        }
    }
    assert!(on_blocks > queries, "{on_blocks} aggregations ran on blocks");
}

/// Values that the sample has not met, and more of them than have numbers of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_values_than_were_expected_are_all_there() {
    let options = SqlOptions { threads: Some(2), ..SqlOptions::default() };
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap());
    run(
        &mut session,
        "CREATE TABLE many (k TEXT, v BIGINT);
        INSERT INTO many SELECT CASE WHEN x / 10000 BETWEEN 13 AND 19 OR x / 10000 BETWEEN 30 AND 39 THEN 'rare ' || x / 2 ELSE 'k' || x % 10 END, x
            FROM generate_series(0::BIGINT, 699999) AS g (x)",
    )
    .await;
    let sql = "SELECT count(*), sum(v), sum(n), min(k), max(k), sum(length(k)) \
               FROM (SELECT k, sum(v) AS v, count(*) AS n FROM many GROUP BY k) AS q";
    let grouped = "SELECT k, sum(v) AS v, count(*) AS n FROM many GROUP BY k";
    let plan = text(&mut session, &format!("EXPLAIN {grouped}")).await;
    assert!(plan.contains("BlockAggregateExec: by=[k]"), "the sample has few values: {plan}");
    let found = sorted_lines(&mut session, sql).await;
    run(&mut session, "SET serac.disabled_passes = 'block_aggregation'").await;
    assert_eq!(found, sorted_lines(&mut session, sql).await);
    assert_eq!(found[0].split('|').next(), Some("85010"));
}
