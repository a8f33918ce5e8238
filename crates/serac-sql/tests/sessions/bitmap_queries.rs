//! Queries give the same rows with and without bitmap indexes, in the same snapshot: on random
//! tables, filters and changes, own and others'.
//!
//! `SERAC_STRESS=1` asks more queries; `SERAC_SEED=n` replays a seed.

use crate::support::{in_memory, text};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_sql::Session;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A column, its type, and how a value of it is made of a number.
struct Column {
    name: &'static str,
    sql_type: &'static str,
    value: fn(&str) -> String,
}

const COLUMNS: [Column; 11] = [
    Column { name: "s", sql_type: "SMALLINT", value: |n| format!("({n})::SMALLINT") },
    Column { name: "i", sql_type: "INTEGER", value: |n| format!("({n} * 7)::INTEGER") },
    Column { name: "l", sql_type: "BIGINT", value: |n| format!("({n} * 3000000000)::BIGINT") },
    Column { name: "d", sql_type: "DATE", value: |n| format!("(DATE '2000-01-01' + ({n})::INTEGER)") },
    Column { name: "n", sql_type: "NUMERIC(12,2)", value: |n| format!("({n} + 0.25)::NUMERIC(12,2)") },
    Column { name: "w", sql_type: "NUMERIC(30,3)", value: |n| format!("({n} + 0.125)::NUMERIC(30,3)") },
    Column { name: "t", sql_type: "TEXT", value: |n| format!("('a word that is long enough ' || ({n})::TEXT)") },
    Column { name: "b", sql_type: "BOOLEAN", value: |n| format!("({n} % 2 = 0)") },
    Column { name: "r", sql_type: "REAL", value: |n| format!("(({n} - 3) * 0.5)::REAL") },
    Column { name: "f", sql_type: "DOUBLE PRECISION", value: |n| format!("(({n} - 1) * 0.1)::DOUBLE PRECISION") },
    Column { name: "v", sql_type: "INTERVAL", value: |n| format!("(({n})::TEXT || ' days')::INTERVAL") },
];

fn literal(column: &Column, rng: &mut StdRng, values: i64) -> String {
    (column.value)(&rng.random_range(-1..values).to_string())
}

fn filter(rng: &mut StdRng, values: i64, depth: u32) -> String {
    if depth > 0 && rng.random_bool(0.5) {
        let (a, b) = (filter(rng, values, depth - 1), filter(rng, values, depth - 1));
        return match rng.random_range(0..5) {
            0 | 1 => format!("({a} AND {b})"),
            2 | 3 => format!("({a} OR {b})"),
            _ => format!("(NOT {a})"),
        };
    }
    let column = &COLUMNS[rng.random_range(0..COLUMNS.len())];
    let name = column.name;
    match rng.random_range(0..9) {
        8 => {
            let n = rng.random_range(0..values);
            let any = [
                format!("t LIKE '%{n}%'"),
                format!("t NOT LIKE '%{n}'"),
                format!("coalesce(s, {n}) = {n}"),
                format!("i % 3 = {}", n % 3),
                format!("extract(day FROM d) < {}", n % 31),
                format!("length(t || 'x') BETWEEN 20 AND {}", 25 + n % 5),
                format!("(n * 2 > {n}) IS NOT TRUE"),
                format!("CASE WHEN b THEN s ELSE {n} END > 2"),
            ];
            any[rng.random_range(0..any.len())].clone()
        }
        0 => format!("{name} IS NULL"),
        1 => format!("{name} IS NOT NULL"),
        2 if name == "b" => "b".into(),
        2 | 3 => {
            let values: Vec<String> = (0..rng.random_range(1..6)).map(|_| literal(column, rng, values)).collect();
            format!("{name} {}IN ({})", if rng.random() { "NOT " } else { "" }, values.join(", "))
        }
        4 => {
            let (low, high) = (literal(column, rng, values), literal(column, rng, values));
            format!("{name} {}BETWEEN {low} AND {high}", if rng.random() { "NOT " } else { "" })
        }
        _ => {
            let comparison = ["=", "<>", "<", "<=", ">", ">="][rng.random_range(0..6)];
            let value = literal(column, rng, values);
            if rng.random_bool(0.2) {
                format!("{value} {comparison} {name}")
            } else {
                format!("{name} {comparison} {value}")
            }
        }
    }
}

fn row(rng: &mut StdRng, values: i64, id: usize) -> String {
    let value = |column: &Column, rng: &mut StdRng| {
        if rng.random_bool(0.1) { "NULL".into() } else { (column.value)(&rng.random_range(0..values).to_string()) }
    };
    let values: Vec<String> = COLUMNS.iter().map(|column| value(column, rng)).collect();
    format!("({id}, {})", values.join(", "))
}

fn change(rng: &mut StdRng, values: i64, id: usize) -> String {
    let filter = filter(rng, values, 1);
    match rng.random_range(0..4) {
        0 => format!("DELETE FROM t WHERE {filter} AND id % 7 = {}", id % 7),
        1 => format!("INSERT INTO t VALUES {}", row(rng, values, id)),
        _ => {
            let column = &COLUMNS[rng.random_range(0..COLUMNS.len())];
            let value = literal(column, rng, values);
            format!("UPDATE t SET {} = {value} WHERE {filter} AND id % 11 = {}", column.name, id % 11)
        }
    }
}

fn query(rng: &mut StdRng, values: i64) -> String {
    let filter = filter(rng, values, 3);
    let column = COLUMNS[rng.random_range(0..COLUMNS.len())].name;
    match rng.random_range(0..11) {
        9 => {
            let not = if rng.random() { "NOT " } else { "" };
            format!(
                "SELECT id, {column} FROM t AS x WHERE {filter} AND {not}EXISTS (SELECT 1 FROM t AS o WHERE o.{column} = x.{column} \
                 AND o.id < 30) ORDER BY id, {column}"
            )
        }
        10 => {
            let key = ["s", "i", "l", "d"][rng.random_range(0..4)];
            let not = if rng.random() { "NOT " } else { "" };
            format!(
                "SELECT count(*), sum(id) FROM t AS x WHERE {not}EXISTS (SELECT 1 FROM t AS o WHERE o.{key} = x.{key} AND o.id IN (3, 40))"
            )
        }
        0 => format!("SELECT count(*) FROM t WHERE {filter}"),
        1 => format!("SELECT {column}, count(*) FROM t WHERE {filter} GROUP BY {column} ORDER BY {column}"),
        2 => format!("SELECT {column}, count(*) FROM t GROUP BY {column} ORDER BY {column}"),
        3 => format!("SELECT DISTINCT {column} FROM t WHERE {filter} ORDER BY {column}"),
        4 => format!("SELECT sum(id), count({column}) FROM t WHERE {filter} AND id % 3 = 1"),
        5 => {
            format!("SELECT count(*) FROM t AS a JOIN t AS b ON a.{column} = b.{column} AND a.id = b.id WHERE a.i = 7")
        }
        6 => {
            let other = COLUMNS[rng.random_range(0..COLUMNS.len())].name;
            let having = if rng.random() { format!("WHERE {filter}") } else { String::new() };
            format!(
                "SELECT {column}, {other}, count(*), sum(id), min(t), avg(i * 2 + id), max(id + i) FROM t {having} \
                 GROUP BY {column}, {other} ORDER BY {column}, {other}"
            )
        }
        _ => format!("SELECT id, {column} FROM t WHERE {filter} ORDER BY id, {column}"),
    }
}

/// Asks the same with and without the indexes, in one snapshot.
async fn compare(session: &mut Session, sql: &str) {
    let with = text(session, sql).await;
    session.execute("SET enable_bitmap_index = off").await.unwrap();
    let without = text(session, sql).await;
    session.execute("SET enable_bitmap_index = on").await.unwrap();
    if with != without {
        let plan = text(session, &format!("EXPLAIN {sql}")).await;
        panic!("{sql}\nwith\n{with}\nwithout\n{without}\n{plan}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_with_indexes_give_what_scans_give() {
    let seed = serac_testing::seed();
    let queries = if serac_testing::stress() { 1_000 } else { 25 };
    for round in 0..3 {
        let mut rng = StdRng::seed_from_u64(seed + round);
        let db = in_memory();
        let mut session = Session::new(&db);
        let mut columns: Vec<String> = COLUMNS.iter().map(|c| format!("{} {}", c.name, c.sql_type)).collect();
        if round == 1 {
            // So few rows fit into a block that the threads of a query share several segments.
            columns.extend((0..300).map(|i| format!("p{i} BIGINT")));
        }
        session.execute(&format!("CREATE TABLE t (id INTEGER, {})", columns.join(", "))).await.unwrap();
        // Few values, or values that rows rarely share.
        let values = [3, 12, 5_000][round as usize];
        let made: Vec<String> = COLUMNS
            .iter()
            .map(|column| {
                let (a, b) = (rng.random_range(1..100) * 2 + 1, rng.random_range(1..100) * 2 + 1);
                let value = (column.value)(&format!("((i * {a} + i / 13) % {values})"));
                format!("CASE WHEN (i * {b}) % 9 > 0 THEN {value} END")
            })
            .collect();
        let insert = format!("INSERT INTO t SELECT i, {} FROM generate_series(1, 20000) AS g (i)", made.join(", "));
        session.execute(&insert).await.unwrap();
        // A part of the columns is left to scans.
        for column in COLUMNS.iter().filter(|_| rng.random_bool(0.8)) {
            session.execute(&format!("CREATE INDEX ON t USING bitmap ({})", column.name)).await.unwrap();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let writer = tokio::spawn({
            let (db, stop, mut rng) = (db.clone(), stop.clone(), StdRng::seed_from_u64(seed + 100 + round));
            async move {
                let mut session = Session::new(&db);
                for id in (100_000..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let sql = change(&mut rng, values, id);
                    if let Err(error) = session.execute(&sql).await {
                        assert_eq!(error.sqlstate, "40001", "{sql}: {error}");
                    }
                    tokio::task::yield_now().await;
                }
            }
        });
        for i in 0..queries {
            session.execute("BEGIN").await.unwrap();
            compare(&mut session, &query(&mut rng, values)).await;
            // Own changes are seen.
            let mut failed = false;
            for _ in 0..rng.random_range(0..3) {
                session.execute("SAVEPOINT a").await.unwrap();
                if let Err(error) = session.execute(&change(&mut rng, values, 50_000 + i)).await {
                    assert_eq!(error.sqlstate, "40001", "{error}");
                    failed = true;
                }
                if failed || rng.random_bool(0.2) {
                    session.execute("ROLLBACK TO a").await.unwrap();
                }
                failed = false;
                compare(&mut session, &query(&mut rng, values)).await;
            }
            session.execute(if rng.random() { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
            if i == queries / 2 {
                session.execute("FREEZE TABLE t").await.unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.await.unwrap();
        let txn = db.database().begin();
        txn.catalog().table("public", "t").unwrap().verify(txn.snapshot());
    }
}

#[tokio::test]
async fn plans_say_what_the_indexes_do() {
    let db = in_memory();
    let mut session = Session::new(&db);
    let create = "CREATE TABLE t (id INT, c INT, d DATE, x BIGINT);
                  INSERT INTO t SELECT i, i % 10, DATE '2020-01-01' + (i / 100)::INT, i FROM generate_series(1, 100000) AS g (i);
                  CREATE INDEX t_c ON t USING bitmap (c); CREATE INDEX t_d ON t USING bitmap (d)";
    session.execute(create).await.unwrap();
    session.execute("CREATE TABLE few (k INT); INSERT INTO few VALUES (3), (NULL), (7), (3), (99)").await.unwrap();
    for (query, expected, bitmaps) in [
        (
            "SELECT x FROM t WHERE c = 3",
            "CubitScanExec: table=t, columns=[x]",
            "t_c: 1 value, about 10000 of 100000 rows",
        ),
        (
            "SELECT x FROM t WHERE d BETWEEN '2020-01-11' AND '2020-01-20' AND c IN (1, 2) AND x % 2 = 0",
            "CubitScanExec: table=t, columns=[x]",
            "(t_d: 1 range of 10 values AND t_c: 2 values), about 200 of 100000 rows",
        ),
        (
            "SELECT x FROM t WHERE d BETWEEN '2020-01-11' AND '2022-09-20' AND c = 4",
            "CubitScanExec: table=t, columns=[x]",
            "(t_c: 1 value AND NOT (t_d: 2 ranges of 17 values + NULL))",
        ),
        (
            "SELECT count(*) FROM t WHERE c <> 3 OR d IS NULL",
            "CubitCountExec: table=t",
            "(NOT (t_c: 1 value + NULL) OR t_d: NULL)",
        ),
        (
            "SELECT x FROM t WHERE extract(month FROM d) = 2 AND c % 5 = 2",
            "CubitScanExec: table=t, columns=[x]",
            "(t_d: 3 ranges of 85 values AND t_c: 2 values)",
        ),
        (
            "SELECT c, count(*) FROM t WHERE d < '2020-01-11' GROUP BY c",
            "CubitCountExec: table=t, by=t_c",
            "t_d: 1 range",
        ),
        ("SELECT count(*) FROM t", "CubitCountExec: table=t", ""),
        ("SELECT DISTINCT c FROM t", "CubitCountExec: table=t, by=t_c", ""),
        ("SELECT x FROM t WHERE c = 3 OR x = 5", "SeracScanExec", ""),
        ("SELECT count(*) FROM t WHERE x = 5", "SeracScanExec", ""),
        ("SELECT c, sum(x * 2), avg(id) FROM t GROUP BY c", "CubitAggregateExec: by=[t_c]", ""),
        ("SELECT count(*), sum(x) FROM t WHERE c = 5", "CubitScanExec", "t_c: 1 value"),
        ("SELECT x FROM t WHERE c IN (SELECT k FROM few)", "CubitJoinExec: semi", "bitmaps=[t_c]"),
        ("SELECT x FROM t WHERE NOT EXISTS (SELECT 1 FROM few WHERE k = c)", "CubitJoinExec: anti", "bitmaps=[t_c]"),
    ] {
        let plan = text(&mut session, &format!("EXPLAIN {query}")).await;
        assert!(plan.contains(expected) && plan.contains(bitmaps), "{query}: {expected}, {bitmaps}\n{plan}");
        let analyzed = text(&mut session, &format!("EXPLAIN ANALYZE {query}")).await;
        if bitmaps == "t_c: 1 value, about 10000 of 100000 rows" {
            assert!(analyzed.contains("bitmap_rows=10.00 K") || analyzed.contains("bitmap_rows=10000"), "{analyzed}");
        }
        compare(&mut session, &format!("SELECT * FROM ({query}) AS q ORDER BY 1")).await;
        session.execute("SET enable_bitmap_index = off").await.unwrap();
        let plan = text(&mut session, &format!("EXPLAIN {query}")).await;
        assert!(!plan.contains("Cubit"), "{plan}");
        session.execute("SET enable_bitmap_index = on").await.unwrap();
    }
    assert!(text(&mut session, "SHOW enable_bitmap_index").await.contains("on"));
    assert_eq!(session.execute("SET enable_bitmap_index = maybe").await.unwrap_err().sqlstate, "22023");
    assert_eq!(
        text(&mut session, "SELECT count(*) AS n FROM t WHERE c = 3 AND d = '2020-01-02'").await.matches("10").count(),
        1
    );
}
