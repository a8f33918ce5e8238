//! Statements that look keys up in an index instead of scanning, as EXPLAIN shows it.

use crate::support::text;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, TransactionStatus};

#[tokio::test]
async fn few_keys_of_an_index_are_looked_up() {
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    let mut session = Session::new(&db);
    session
        .execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, a INTEGER, b TEXT, n NUMERIC(10,2) UNIQUE, g INTEGER, UNIQUE (b, a));
             CREATE INDEX t_g ON t (g);
             INSERT INTO t SELECT value, value % 7, 'b' || value, value + 0, value % 10 \
               FROM generate_series(1, 20000) AS s (value);
             UPDATE t SET g = 77 WHERE id = 5",
        )
        .await
        .unwrap();
    let many: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
    let lookups = [
        ("SELECT b FROM t WHERE id = 7", "index=t_pkey, keys=1"),
        ("SELECT b FROM t WHERE 7 = id AND a > 3", "index=t_pkey, keys=1"),
        ("SELECT b FROM t WHERE id = 1 + 6", "index=t_pkey, keys=1"),
        ("SELECT b FROM t WHERE id IN (7, 8, 9, 10, 11)", "index=t_pkey, keys=5"),
        ("SELECT b FROM t WHERE id = 7 OR id = 8", "index=t_pkey, keys=2"),
        ("SELECT b FROM t WHERE a IN (1, 2, 3, 4, 5) AND b = 'b7'", "index=t_b_a_key, keys=5"),
        ("SELECT b FROM t WHERE n = 12.5", "index=t_n_key, keys=1"),
        ("SELECT b FROM t WHERE g = 77", "index=t_g, keys=1"),
        ("SELECT b FROM t WHERE id IN (1, 2, 3) AND n = 4", "index=t_n_key, keys=1"),
        ("SELECT x.b FROM t AS x WHERE x.id = 7", "index=t_pkey, keys=1"),
        ("UPDATE t SET a = a + 1 WHERE id = 7", "index=t_pkey, keys=1"),
        ("UPDATE t AS x SET a = 1 WHERE x.id IN (7, 8)", "index=t_pkey, keys=2"),
        ("DELETE FROM t WHERE b = 'b9' AND a = 2", "index=t_b_a_key, keys=1"),
        ("SELECT b FROM t WHERE b = 'b7'", "index=t_b_a_key, ranges=1"),
        ("SELECT b FROM t WHERE b IN ('b7', 'b8', 'b9', 'b10') AND a > 2", "index=t_b_a_key, ranges=4"),
        ("SELECT b FROM t WHERE b LIKE 'b777%'", "index=t_b_a_key, ranges=1"),
        ("SELECT b FROM t WHERE id > 19990", "index=t_pkey, ranges=1"),
        ("SELECT count(*) FROM t WHERE id BETWEEN 100 AND 200", "index=t_pkey, ranges=1"),
        ("SELECT b FROM t WHERE 3 > n", "index=t_n_key, ranges=1"),
        ("UPDATE t SET a = a + 1 WHERE id < 7", "index=t_pkey, ranges=1"),
    ];
    for (sql, wanted) in lookups {
        let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
        assert!(plan.contains(&format!("SeracLookupExec: table=t, {wanted},")), "{sql}\n{plan}");
        assert!(!plan.contains("SeracScanExec"), "{sql}\n{plan}");
    }
    let scans = [
        "SELECT b FROM t WHERE id > 7".to_owned(),
        "SELECT b FROM t WHERE b LIKE 'b7%'".into(),
        "SELECT b FROM t WHERE b LIKE '_777%'".into(),
        "SELECT b FROM t WHERE b NOT LIKE 'b777%'".into(),
        "SELECT b FROM t WHERE b ILIKE 'b777%'".into(),
        "SELECT b FROM t WHERE id NOT BETWEEN 100 AND 19900".into(),
        "SELECT b FROM t WHERE g = 3".into(),
        "SELECT b FROM t WHERE id NOT IN (1, 2)".into(),
        "SELECT b FROM t WHERE id = 7 OR a = 3".into(),
        "SELECT b FROM t WHERE id = a".into(),
        format!("SELECT b FROM t WHERE id IN ({})", many.join(", ")),
    ];
    for sql in scans {
        let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
        assert!(plan.contains("SeracScanExec") && !plan.contains("SeracLookupExec"), "{sql}\n{plan}");
    }
    let points = [
        ("SELECT b FROM t WHERE id = 7", "index=t_pkey, equal=1"),
        ("SELECT b FROM t WHERE id > 7 AND a = 3 ORDER BY id DESC LIMIT 2", "index=t_a, equal=1, filters=1, sorted"),
        ("SELECT b FROM t WHERE id > 7 ORDER BY id DESC LIMIT 2", "index=t_pkey, equal=0, range, backwards"),
        ("SELECT a FROM t ORDER BY a DESC LIMIT 3", "index=t_a, equal=0"),
        ("SELECT a FROM t ORDER BY a LIMIT 3", "index=t_a, equal=0, backwards"),
        ("SELECT a FROM t ORDER BY g DESC, a NULLS FIRST, id LIMIT 3", "index=t_g_a, equal=0"),
        ("SELECT a FROM t ORDER BY g, a DESC NULLS LAST, id DESC LIMIT 3", "index=t_g_a, equal=0, backwards"),
        ("SELECT a FROM t WHERE g = 1 ORDER BY a NULLS FIRST LIMIT 3", "index=t_g_a, equal=1"),
        ("SELECT a FROM t WHERE b = 'b7' AND a > 1 ORDER BY g", "index=t_b_a_key, equal=1, range, sorted"),
        ("DELETE FROM t WHERE b = 'b9' AND a = 2", "index=t_b_a_key, equal=2"),
    ];
    session
        .execute("CREATE INDEX t_a ON t (a DESC); CREATE INDEX t_g_a ON t (g DESC, a NULLS FIRST, id)")
        .await
        .unwrap();
    for (sql, wanted) in points {
        let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
        assert!(plan.contains(&format!("SeracPointExec: table=t, {wanted} ")), "{sql}\n{plan}");
    }
    for sql in ["SELECT a FROM t ORDER BY a NULLS FIRST LIMIT 3", "SELECT a FROM t ORDER BY b DESC, g LIMIT 3"] {
        let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
        assert!(!plan.contains("SeracPointExec"), "{sql}\n{plan}");
    }
    let analyzed = text(&mut session, "EXPLAIN ANALYZE SELECT b FROM t WHERE id IN (1, 2, 3, -1) AND b <> 'b2'").await;
    assert!(analyzed.contains("rows_found=3") && analyzed.contains(" rows=2"), "{analyzed}");
}

/// A constant that is compared with a column, of about the column's values or beside them.
fn constant(rng: &mut StdRng, column: &str) -> String {
    let n = rng.random_range(-5..410);
    match column {
        "id" | "g" => n.to_string(),
        "n" => format!("{}.{:02}", n, rng.random_range(0..100)),
        "b" => format!("'b{n}'"),
        "d" => format!("(DATE '2020-01-01' + {n})"),
        "u" => format!("'{:08x}-0000-4000-8000-000000000000'::UUID", n.max(0)),
        other => unreachable!("{other}"),
    }
}

/// A filter that may be for an index.
fn filter(rng: &mut StdRng) -> String {
    let column = *["id", "g", "n", "b", "d", "u"].choose(rng).unwrap();
    let filter = match rng.random_range(0..8) {
        0 => {
            let list: Vec<_> = (0..rng.random_range(1..4)).map(|_| constant(rng, column)).collect();
            format!("{column} IN ({})", list.join(", "))
        }
        1 => {
            let from = constant(rng, column);
            let op = ["=", "<", ">", "<=", ">="].choose(rng).unwrap();
            format!("{from} {op} {column}")
        }
        2 => format!("b LIKE 'b{}%'", rng.random_range(1..40)),
        3 => format!("g IS NULL AND {column} > {}", constant(rng, column)),
        4 | 5 => format!("g = {} AND {column} >= {}", rng.random_range(0..8), constant(rng, column)),
        _ => format!("{column} BETWEEN {} AND {}", constant(rng, column), constant(rng, column)),
    };
    match rng.random_range(0..3) {
        0 => format!("{filter} AND n < {}", constant(rng, "n")),
        _ => filter,
    }
}

/// Two tables with the same rows, one with indexes and one without, answer random filters alike.
/// The filters run beside updates that leave rows under several keys: in a transaction that sees
/// its own changes, in one that began before them, and after.
#[tokio::test]
async fn ranges_of_keys_find_what_scans_find() {
    let mut rng = serac_testing::rng();
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    let mut writer = Session::new(&db);
    let columns = "g INTEGER, n NUMERIC(10,2), b TEXT, d DATE, u UUID";
    let create = format!(
        "CREATE TABLE indexed (id BIGINT PRIMARY KEY, {columns}); CREATE TABLE plain (id BIGINT, {columns});
         CREATE INDEX indexed_n ON indexed (n DESC); CREATE INDEX indexed_b ON indexed (b, d DESC NULLS LAST);
         CREATE INDEX indexed_g ON indexed (g NULLS FIRST, d, u DESC); CREATE INDEX indexed_d ON indexed (d);
         CREATE INDEX indexed_u ON indexed (u)"
    );
    writer.execute(&create).await.unwrap();
    let values = "nullif(i % 9, 8), i + 0.25, 'b' || i, CASE WHEN i % 13 > 0 THEN DATE '2020-01-01' + i END,
                  (lpad(to_hex(i), 8, '0') || '-0000-4000-8000-000000000000')::UUID";
    let insert = |table: &str, from: i32, to: i32| {
        format!(
            "INSERT INTO {table} SELECT i, {values} FROM (SELECT n::INTEGER AS i FROM generate_series({from}, {to}) AS g(n))"
        )
    };
    for table in ["indexed", "plain"] {
        writer.execute(&insert(table, 1, 400)).await.unwrap();
    }
    let mut looked_up = 0;
    for _ in 0..6 {
        let mut reader = Session::new(&db);
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM plain").await.unwrap();
        writer.execute("BEGIN").await.unwrap();
        for _ in 0..4 {
            let filter = filter(&mut rng);
            let by = rng.random_range(-30..30);
            let change = match rng.random_range(0..4) {
                0 => format!("UPDATE {{t}} SET n = n + {by}, b = 'b' || ({by} + id) WHERE {filter}"),
                1 => format!("UPDATE {{t}} SET g = g + 1, d = d + ({by}) WHERE {filter}"),
                2 => format!("DELETE FROM {{t}} WHERE ({filter}) AND id % 7 = 3"),
                _ => format!("UPDATE {{t}} SET u = NULL, g = NULL WHERE ({filter}) AND id % 5 = 0"),
            };
            for table in ["indexed", "plain"] {
                let change = change.replace("{t}", table);
                writer.execute(&change).await.unwrap_or_else(|e| panic!("{change}: {e}"));
            }
        }
        for at_its_end in [None, Some("ROLLBACK"), Some("COMMIT")] {
            if let Some(end) = at_its_end.filter(|_| writer.transaction_status() != TransactionStatus::Idle) {
                if end == "ROLLBACK" && rng.random_bool(0.7) {
                    continue;
                }
                writer.execute(end).await.unwrap();
            }
            for _ in 0..12 {
                let filter = filter(&mut rng);
                let query = |table: &str| {
                    format!(
                        "SELECT count(*), sum(id) AS a, sum(n) AS b, min(b) AS c, max(d) AS d FROM {table} WHERE {filter}"
                    )
                };
                let plan = text(&mut writer, &format!("EXPLAIN {}", query("indexed"))).await;
                looked_up += usize::from(plan.contains("ranges="));
                for session in [&mut writer, &mut reader] {
                    let found = text(session, &query("indexed")).await;
                    assert_eq!(found, text(session, &query("plain")).await, "{filter}\n{plan}");
                }
            }
        }
    }
    assert!(looked_up > 40, "{looked_up} queries by ranges");
}
