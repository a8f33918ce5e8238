//! `count(DISTINCT x)` by group, of every type, equals a count of the rows of SELECT DISTINCT.
//!
//! `SERAC_STRESS=1` asks more queries; `SERAC_SEED=n` replays a seed.

use crate::support::{batches, run, text};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use std::collections::BTreeMap;

/// Columns, their types, and a value made of `v`, an integer.
const COLUMNS: [(&str, &str, &str); 20] = [
    ("small", "SMALLINT", "(v % 300)::SMALLINT"),
    ("i", "INTEGER", "v::INTEGER - 50"),
    ("big", "BIGINT", "v * 10000000000"),
    ("short", "TEXT", "CASE WHEN v % 9 > 0 THEN 's' || v % 1000 ELSE '' END"),
    ("long", "TEXT", "'a text that is not kept in its view ' || v"),
    ("var", "VARCHAR(40)", "'x' || repeat('y', (v % 20)::INTEGER)"),
    ("blanks", "CHAR(6)", "'c' || v % 700 || repeat(' ', (v % 2)::INTEGER)"),
    ("dec", "NUMERIC(10,2)", "v % 5000 / 4.0"),
    ("wide", "NUMERIC(30,5)", "v * 1000000000000.25"),
    ("free", "NUMERIC", "CASE v % 3 WHEN 0 THEN 1.50 WHEN 1 THEN 1.5 ELSE v / 8.0 END"),
    ("f", "DOUBLE PRECISION", "CASE v % 7 WHEN 0 THEN 'NaN' WHEN 1 THEN 0.0 WHEN 2 THEN '-0' ELSE v / 2.0 END"),
    ("r", "REAL", "CASE v % 7 WHEN 0 THEN 'NaN' WHEN 1 THEN 0.0 WHEN 2 THEN '-0' ELSE v % 900 END"),
    ("flag", "BOOLEAN", "v % 3 = 0"),
    ("day", "DATE", "DATE '2020-01-01' + (v % 3000)::INTEGER"),
    ("at", "TIMESTAMP", "TIMESTAMP '2020-01-01' + v * INTERVAL '1 minute'"),
    ("tz", "TIMESTAMPTZ", "TIMESTAMPTZ '2020-01-01 00:00:00+00' + v * INTERVAL '1 second'"),
    ("clock", "TIME", "TIME '00:00' + v * INTERVAL '1 second'"),
    ("id", "UUID", "md5(v::TEXT)::UUID"),
    ("bytes", "BYTEA", "decode(md5((v % 4000)::TEXT), 'hex')"),
    (
        "span",
        "INTERVAL",
        "CASE v % 3 WHEN 0 THEN INTERVAL '1 month' WHEN 1 THEN INTERVAL '30 days' ELSE v * INTERVAL '1 hour' END",
    ),
];

/// A table `t` of all columns and of keys that have few groups, `few`, and many, `many`.
async fn session(rng: &mut StdRng, rows: u32, memory_limit: Option<usize>) -> Session {
    let options = SqlOptions { memory_limit, threads: Some(2), ..SqlOptions::default() };
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap());
    let columns: Vec<String> = COLUMNS.iter().map(|(name, of, _)| format!("{name} {of}")).collect();
    run(&mut session, &format!("CREATE TABLE t (few INTEGER, many TEXT, n BIGINT, {})", columns.join(", "))).await;
    let (factor, offset) = (rng.random_range(0..50_000) * 2 + 1, rng.random_range(0..1000));
    let values = COLUMNS
        .iter()
        .enumerate()
        .map(|(at, (_, of, value))| format!("CASE WHEN (v + n) % {} > 0 THEN ({value})::{of} END", 5 + at * 3));
    let values: Vec<String> = values.collect();
    // Rows come once more, by another part of the table, so that both threads see their values.
    let insert = format!(
        "INSERT INTO t SELECT nullif(n % 7, 3), 'group ' || n % {}, n, {} FROM \
         (SELECT n, ((n % {}) * {factor}::BIGINT + {offset}) % 20011 AS v FROM generate_series(1, {rows}) AS s (n)) AS q",
        rows / 2,
        values.join(", "),
        rows / 2,
    );
    run(&mut session, &insert).await;
    session
}

/// Counts by group, in columns behind the key.
async fn counts(session: &mut Session, sql: &str) -> BTreeMap<String, Vec<i64>> {
    let mut counts = BTreeMap::new();
    for batch in batches(session, sql).await {
        let keys = cast(batch.column(0), &DataType::Utf8).unwrap();
        let keys = keys.as_string::<i32>();
        for row in 0..batch.num_rows() {
            let key = if keys.is_null(row) { "NULL" } else { keys.value(row) };
            let columns = batch.columns()[1..].iter();
            let of_row = columns.map(|column| column.as_primitive::<Int64Type>().value(row)).collect();
            assert!(counts.insert(key.to_owned(), of_row).is_none(), "{key} comes twice: {sql}");
        }
    }
    counts
}

/// A query with some distinct counts equals one query for each of them.
async fn check(session: &mut Session, rng: &mut StdRng, key: &str, source: &str) {
    const FILTERS: [&str; 4] = ["", "n % 3 = 0", "few > 2", "n < 0"];
    let mut chosen = Vec::new();
    for _ in 0..rng.random_range(2..5) {
        chosen.push((COLUMNS.choose(rng).unwrap().0, *FILTERS.choose(rng).unwrap()));
    }
    let call = |(column, filter): &(&str, &str)| match *filter {
        "" => format!("count(DISTINCT {column})"),
        filter => format!("count(DISTINCT {column}) FILTER (WHERE {filter})"),
    };
    let calls: Vec<String> = chosen.iter().map(call).collect();
    let sql = format!("SELECT {key}, count(*), {} FROM {source} GROUP BY {key}", calls.join(", "));
    let found = counts(session, &sql).await;
    for (at, (column, filter)) in chosen.iter().enumerate() {
        let value = match *filter {
            "" => (*column).to_owned(),
            filter => format!("CASE WHEN {filter} THEN {column} END"),
        };
        let oracle =
            format!("SELECT k, count(x) FROM (SELECT DISTINCT {key} AS k, {value} AS x FROM {source}) AS d GROUP BY k");
        let expected = counts(session, &oracle).await;
        assert_eq!(found.len(), expected.len(), "{sql}");
        for (group, of_group) in &found {
            assert_eq!(of_group[at + 1], expected[group][0], "{group}, {}: {sql}", calls[at]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distinct_values_count_as_rows_of_select_distinct() {
    let mut rng = serac_testing::rng();
    let mut session = session(&mut rng, 30_000, None).await;
    for _ in 0..if serac_testing::stress() { 300 } else { 12 } {
        let key = ["few", "many", "few % 2", "flag", "day"].choose(&mut rng).unwrap();
        let source = ["t", "(SELECT * FROM t WHERE n % 5 > 0 ORDER BY few, many) AS q"].choose(&mut rng).unwrap();
        check(&mut session, &mut rng, key, source).await;
    }
}

/// Equal values of each type count once.
#[tokio::test]
async fn equal_values_count_once() {
    let mut session = Session::new(&crate::support::in_memory());
    for (of, values, expected) in [
        ("FLOAT8", "('NaN'), ('NaN'), ('0'), ('-0'), (NULL), ('1')", 3),
        ("REAL", "('NaN'), ('0'), ('-0'), (NULL), ('1e-3')", 3),
        ("CHAR(4)", "('a'), ('a  '), ('A'), (NULL)", 2),
        ("TEXT", "('a'), ('a '), (''), (NULL), ('a')", 3),
        ("NUMERIC", "('1.0'), ('1.00'), ('NaN'), ('NaN'), (NULL)", 2),
        ("INTERVAL", "('1 month'), ('30 days'), ('1 day'), ('24 hours')", 2),
        ("BOOLEAN", "(true), (true), (NULL)", 1),
        ("TIMESTAMPTZ", "('2020-01-01 00:00+00'), ('2020-01-01 01:00+01'), ('infinity')", 2),
    ] {
        let sql = format!(
            "CREATE TEMPORARY TABLE v (x {of}); INSERT INTO v VALUES {values}; \
             SELECT 1 AS k, count(DISTINCT x), count(*), count(DISTINCT x) FILTER (WHERE x IS NULL) FROM v GROUP BY 1"
        );
        assert_eq!(counts(&mut session, &sql).await["1"][0], expected, "{of}");
        run(&mut session, "DROP TABLE v").await;
    }
}

/// Sums and averages of distinct numbers equal those of the rows of SELECT DISTINCT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distinct_numbers_are_added_as_rows_of_select_distinct() {
    let mut rng = serac_testing::rng();
    let mut session = session(&mut rng, 20_000, None).await;
    for key in ["few", "many"] {
        for number in ["small", "i", "big", "dec", "wide"] {
            let [found, expected] = [
                format!("SELECT {key} AS k, sum(DISTINCT {number}) AS s, avg(DISTINCT {number}) AS a, count(*) AS n FROM t GROUP BY 1"),
                format!("SELECT k, sum(x) AS s, avg(x) AS a, 0 AS n FROM (SELECT DISTINCT {key} AS k, {number} AS x FROM t) AS d GROUP BY k"),
            ]
            .map(|sql| format!("SELECT coalesce(k::TEXT, 'NULL') AS k, s, a FROM ({sql}) AS q ORDER BY 1"));
            assert!(text(&mut session, &found).await == text(&mut session, &expected).await, "{found}");
        }
        let [found, expected] = [
            format!("SELECT {key} AS k, sum(DISTINCT i) FILTER (WHERE n % 3 = 0) AS s, count(DISTINCT n) FROM t GROUP BY 1"),
            format!("SELECT k, sum(x) AS s FROM (SELECT DISTINCT {key} AS k, CASE WHEN n % 3 = 0 THEN i END AS x FROM t) AS d GROUP BY k"),
        ]
        .map(|sql| format!("SELECT coalesce(k::TEXT, 'NULL') AS k, s FROM ({sql}) AS q ORDER BY 1"));
        assert!(text(&mut session, &found).await == text(&mut session, &expected).await, "{found}");
    }
}

/// Many groups and little memory: states go to disk and come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_of_many_groups_spill() {
    let mut rng = serac_testing::rng();
    let rows = 200_000;
    let mut session = session(&mut rng, rows, Some(48 << 20)).await;
    let sql = "SELECT many, count(DISTINCT long), count(DISTINCT at), count(DISTINCT id), sum(n) FROM t GROUP BY many";
    let plan = text(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await;
    let spills = plan.split("spill_count=").skip(1).any(|rest| !rest.starts_with('0'));
    // The operator of many groups hands them over to those that spill.
    let spills = spills || plan.contains("handed_over=1");
    assert!(spills, "{plan}");
    let oracle = |column: &str| {
        format!(
            "SELECT 0, sum(n)::BIGINT FROM (SELECT many, count({column}) AS n FROM (SELECT DISTINCT many, {column} FROM t) AS d GROUP BY many) AS s"
        )
    };
    let total = "SELECT 0, count(*), sum(a)::BIGINT, sum(b)::BIGINT, sum(c)::BIGINT FROM (SELECT many, count(DISTINCT long) AS a, \
                 count(DISTINCT at) AS b, count(DISTINCT id) AS c, sum(n) FROM t GROUP BY many) AS q";
    let found = counts(&mut session, total).await["0"].clone();
    assert_eq!(found[0], i64::from(rows / 2));
    for (found, column) in found[1..].iter().zip(["long", "at", "id"]) {
        assert_eq!(*found, counts(&mut session, &oracle(column)).await["0"][0], "{column}");
    }
}
