//! The binder's results for queries and changes: their columns, and the places of errors.

use datafusion::arrow::datatypes::{DataType, Schema};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlError, SqlOptions, StatementResult, TransactionStatus};

fn database() -> SqlDatabase {
    let options = SqlOptions { threads: Some(2), ..Default::default() };
    SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap()
}

async fn session() -> Session {
    let mut session = Session::new(&database());
    let made = "CREATE TABLE t (a INT PRIMARY KEY, b BIGINT, s SMALLINT, c TEXT, d NUMERIC(10,2));
        INSERT INTO t VALUES (1, 10, 1, 'x', 1.5), (2, 20, NULL, 'y', 2.25)";
    session.execute(made).await.unwrap();
    session
}

fn columns(schema: &Schema) -> Vec<(String, DataType)> {
    schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
}

/// The columns and the rows of a query, the rows as texts; the description must match.
async fn given(session: &mut Session, sql: &str) -> (Vec<(String, DataType)>, Vec<String>) {
    let mut prepared = session.prepare(sql).unwrap();
    let described = session.describe(&mut prepared, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let result = session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).pop();
    let Some(StatementResult::Rows { schema, batches, .. }) = result else { panic!("{sql} gives rows") };
    assert_eq!(columns(described.schema.as_ref().unwrap()), columns(&schema), "{sql}");
    let again = session.execute_prepared(&mut prepared, &[]).await.unwrap();
    let StatementResult::Rows { schema: prepared, .. } = again else { panic!("{sql} gives rows") };
    assert_eq!(columns(&prepared), columns(&schema), "{sql}");
    let mut rows = Vec::new();
    for batch in &batches {
        assert_eq!(batch.schema().fields().len(), schema.fields().len());
        let shown =
            datafusion::arrow::util::pretty::pretty_format_batches(std::slice::from_ref(batch)).unwrap().to_string();
        let lines = shown.lines().skip(3).filter(|line| line.starts_with('|'));
        rows.extend(lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>()[1..].join("|")));
    }
    (columns(&schema), rows)
}

async fn error(session: &mut Session, sql: &str) -> SqlError {
    session.execute(sql).await.expect_err(sql)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_have_postgresql_types() {
    let mut session = session().await;
    let of = |types: &[DataType]| types.to_vec();
    for (sql, types) in [
        (
            "SELECT 1, 2147483648, 'x', NULL, true",
            of(&[DataType::Int32, DataType::Int64, DataType::Utf8View, DataType::Utf8View, DataType::Boolean]),
        ),
        (
            "SELECT a + 1, a + b, s + s, s * a, 7 / 2 FROM t",
            of(&[DataType::Int32, DataType::Int64, DataType::Int16, DataType::Int32, DataType::Int32]),
        ),
        (
            "SELECT count(*), max(a), sum(a), min(s) FROM t",
            of(&[DataType::Int64, DataType::Int32, DataType::Int64, DataType::Int16]),
        ),
        ("SELECT CASE WHEN a = 1 THEN 1 ELSE b END, coalesce(s, 5) FROM t", of(&[DataType::Int64, DataType::Int32])),
        ("VALUES (1, 'x'), (2147483648, NULL)", of(&[DataType::Int64, DataType::Utf8View])),
        ("SELECT 1 UNION ALL SELECT b FROM t", of(&[DataType::Int64])),
    ] {
        let (columns, _) = given(&mut session, sql).await;
        assert_eq!(columns.into_iter().map(|(_, data_type)| data_type).collect::<Vec<_>>(), types, "{sql}");
    }
    assert_eq!(error(&mut session, "SET serac.disabled_passes = 'bind'").await.sqlstate, "22023");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_without_names_have_their_text_or_postgresql_names() {
    let mut session = session().await;
    let sql = "SELECT a, b AS x, count(*), 1 +  1, max(c)::TEXT, \"t\".\"a\", a FROM t GROUP BY a, b";
    let names = |columns: Vec<(String, DataType)>| columns.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let (columns, rows) = given(&mut session, sql).await;
    assert_eq!(names(columns), ["a", "x", "count(*)", "1 +  1", "max(c)::TEXT", "a", "a"]);
    assert_eq!(rows.len(), 2);
    session.name_columns_as_postgresql();
    assert_eq!(names(given(&mut session, sql).await.0), ["a", "x", "count", "?column?", "max", "a", "a"]);
    assert_eq!(names(given(&mut session, "VALUES (1, 2)").await.0), ["column1", "column2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_say_where() {
    let mut session = session().await;
    for (sql, sqlstate, position) in [
        ("SELECT a,\n  nosuch FROM t", "42703", (2, 3)),
        ("SELECT 'ä', u.a FROM t", "42P01", (1, 13)),
        ("SELECT 1;\nSELECT a + 'x'::TEXT FROM t", "42883", (2, 10)),
        ("SELECT a FROM t GROUP BY b", "42803", (1, 8)),
        ("SELECT a FROM t WHERE count(*) > 1", "42803", (1, 23)),
        ("SELECT t.a FROM t, t AS u WHERE c = 'x'", "42702", (1, 33)),
    ] {
        let error = error(&mut session, sql).await;
        assert_eq!((error.sqlstate, error.position), (sqlstate, Some(position)), "{sql}: {error}");
    }
    // The type of a text is decided when the query is planned.
    assert_eq!(error(&mut session, "SELECT 'x' + 1").await.sqlstate, "22P02");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_binder_reads_what_the_session_may_read() {
    let db = database();
    let mut owner = Session::new(&db);
    let made = "CREATE ROLE r LOGIN; CREATE TABLE t (a INT, secret INT); INSERT INTO t VALUES (1, 2);
        CREATE VIEW v AS SELECT secret AS s FROM t; CREATE TABLE u (a INT);
        GRANT SELECT (a) ON t TO r; GRANT SELECT ON v TO r; CREATE SCHEMA hidden; CREATE TABLE hidden.t (a INT)";
    owner.execute(made).await.unwrap();
    let mut session = Session::new(&db);
    session.log_in("r").unwrap();
    assert_eq!(given(&mut session, "SELECT a FROM t").await.1, ["1|"]);
    assert_eq!(given(&mut session, "SELECT s FROM v").await.1, ["2|"]);
    for sql in [
        "SELECT secret FROM t",
        "SELECT * FROM t",
        "SELECT 1 FROM u",
        "SELECT a FROM t WHERE secret = 2",
        "SELECT a FROM hidden.t",
        "SELECT v.s FROM v, u",
    ] {
        assert_eq!(error(&mut session, sql).await.sqlstate, "42501", "{sql}");
    }
    // A temporary table comes first.
    session.execute("CREATE TEMPORARY TABLE u (n SMALLINT); INSERT INTO u VALUES (7)").await.unwrap();
    assert_eq!(given(&mut session, "SELECT n FROM u").await, (vec![("n".into(), DataType::Int16)], vec!["7|".into()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bound_queries_are_explained() {
    let mut session = session().await;
    let sql = "EXPLAIN (BOUND) SELECT b + 1 AS n, 'x' FROM t WHERE a > 1";
    let Some(StatementResult::Rows { batches, .. }) = session.execute(sql).await.unwrap().pop() else { panic!() };
    let shown = datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
    assert!(shown.contains("Columns: \"n\" bigint, \"?column?\" text"), "{shown}");
    assert!(shown.contains("Filter") && shown.contains("TableScan"), "{shown}");
    let refused = error(&mut session, "EXPLAIN (BOUND) SELECT B'101'").await;
    assert_eq!(refused.sqlstate, "0A000");
    assert!(refused.message.ends_with(" is not supported"), "{refused}");
    assert_eq!(error(&mut session, "EXPLAIN (BOUND) SELECT nosuch FROM t").await.sqlstate, "42703");
    for other in ["ANALYZE", "VERBOSE", "SUMMARY", "STEPS"] {
        assert_eq!(error(&mut session, &format!("EXPLAIN (BOUND, {other}) SELECT 1")).await.sqlstate, "0A000");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_binder_does_not_know_is_refused_wherever_it_stands() {
    let mut session = session().await;
    session.execute("CREATE TABLE bits (b TEXT)").await.unwrap();
    for sql in [
        "SELECT X'1F'",
        "EXPLAIN SELECT X'1F'",
        "PREPARE p AS SELECT X'1F'; EXECUTE p",
        "CREATE TABLE made AS SELECT X'1F' AS b",
        "CREATE VIEW seen AS SELECT X'1F' AS b",
        "CREATE MATERIALIZED VIEW kept AS SELECT X'1F' AS b",
        "BEGIN; DECLARE c CURSOR FOR SELECT X'1F'",
        "INSERT INTO bits SELECT X'1F'",
        "UPDATE bits SET b = X'1F'",
        "DELETE FROM bits WHERE X'1F' = X'1'",
    ] {
        let refused = error(&mut session, sql).await;
        assert_eq!(refused.sqlstate, "0A000", "{sql}: {refused}");
        if session.transaction_status() != TransactionStatus::Idle {
            session.execute("ROLLBACK").await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_statement_of_a_script_is_its_own() {
    let mut session = session().await;
    let script = "SELECT a FROM t ORDER BY a; INSERT INTO t VALUES (3); /* ; */ SELECT b FROM t WHERE a = 1 + 0;;
        SELECT ';', a FROM t WHERE a = 1 + 2";
    let results = session.execute(script).await.unwrap();
    let counts: Vec<usize> = results.iter().map(StatementResult::row_count).collect();
    assert_eq!(counts, [2, 0, 1, 1]);
    let names: Vec<_> = results
        .iter()
        .filter_map(|result| match result {
            StatementResult::Rows { schema, .. } => Some(schema.field(0).name().clone()),
            StatementResult::Command { .. } => None,
        })
        .collect();
    assert_eq!(names, ["a", "b", "';'"]);
    // A change in WITH is done, though nothing reads it.
    session.execute("WITH gone AS (DELETE FROM t RETURNING a) SELECT 1").await.unwrap();
    assert_eq!(given(&mut session, "SELECT count(*) FROM t").await.1, ["0|"]);
}

fn types(columns: &[(String, DataType)]) -> Vec<DataType> {
    columns.iter().map(|(_, data_type)| data_type.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_in_other_statements_are_bound() {
    let mut session = session().await;
    let query = "SELECT 1 AS i, 2147483648 AS l, a + a AS s, count(*), 'x' AS x FROM t GROUP BY a";
    let wanted = [DataType::Int32, DataType::Int64, DataType::Int32, DataType::Int64, DataType::Utf8View];
    for (made, relation, count) in [
        (format!("CREATE TABLE made AS {query}"), "made", 2),
        (format!("CREATE TABLE nothing AS {query} WITH NO DATA"), "nothing", 0),
        (format!("CREATE VIEW seen AS {query}"), "seen", 2),
        ("CREATE VIEW above (first) AS SELECT * FROM seen".to_owned(), "above", 2),
        (format!("CREATE MATERIALIZED VIEW kept AS {query}"), "kept", 2),
    ] {
        session.execute(&made).await.unwrap();
        let (columns, rows) = given(&mut session, &format!("SELECT * FROM {relation}")).await;
        assert_eq!(types(&columns), wanted, "{made}");
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let first = if relation == "above" { "first" } else { "i" };
        assert_eq!(names, [first, "l", "s", "count", "x"], "{made}");
        assert_eq!(rows.len(), count, "{made}");
    }
    session.execute("REFRESH MATERIALIZED VIEW kept").await.unwrap();
    session.execute(&format!("BEGIN; DECLARE c CURSOR FOR {query}")).await.unwrap();
    let fetched = session.execute("FETCH ALL FROM c; COMMIT").await.unwrap().remove(0);
    let StatementResult::Rows { schema, .. } = fetched else { panic!("it gives rows") };
    assert_eq!(types(&columns(&schema)), wanted);
    for made in ["CREATE TABLE again", "CREATE VIEW again", "CREATE MATERIALIZED VIEW again"] {
        let error = error(&mut session, &format!("{made} AS SELECT 1, 2")).await;
        assert_eq!((error.sqlstate, error.message.contains("?column?")), ("42701", true), "{made}: {error}");
        let error = self::error(&mut session, &format!("{made} AS SELECT a, nix FROM t")).await;
        assert_eq!((error.sqlstate, error.position.is_some()), ("42703", true), "{made}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_of_execute_have_the_types_of_the_parameters() {
    let mut session = session().await;
    session.execute("PREPARE p(bigint) AS SELECT $1 + 1 AS x, coalesce($2, 5) AS y, $3 AS z").await.unwrap();
    for (arguments, row) in
        [("1 + 1, NULL, 'x'", "3|5|x|"), ("' 7 ', '8', 9", "8|8|9|"), ("2147483647, -1, NULL", "2147483648|-1||")]
    {
        let sql = format!("EXECUTE p({arguments})");
        let (columns, rows) = given(&mut session, &sql).await;
        assert_eq!(types(&columns), [DataType::Int64, DataType::Int32, DataType::Utf8View], "{sql}");
        assert_eq!(rows, [row], "{sql}");
    }
    for (arguments, sqlstate) in
        [("'x', 1, 2", "22P02"), ("true, 1, 2", "42804"), ("1, 2", "42601"), ("1, 2147483648, 3", "22003")]
    {
        let sql = format!("EXECUTE p({arguments})");
        assert_eq!(error(&mut session, &sql).await.sqlstate, sqlstate, "{sql}");
    }
    session.execute("PREPARE q AS SELECT c FROM t WHERE a = $1").await.unwrap();
    assert_eq!(given(&mut session, "EXECUTE q('2')").await.1, ["y|"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_of_restricted_intervals_are_intervals() {
    use serac_storage::ColumnType::Interval;
    let mut session = session().await;
    let mut prepared = session.prepare("SELECT $1::interval(1), $2::interval DAY").unwrap();
    let described = session.describe(&mut prepared, &[]).await.unwrap();
    assert_eq!(described.parameters, [Some(Interval), Some(Interval)]);
    let (_, rows) = given(&mut session, "SELECT '1.26'::interval(1), '3'::interval DAY").await;
    session.execute("PREPARE p AS SELECT $1::interval(1), $2::interval DAY").await.unwrap();
    assert_eq!(given(&mut session, "EXECUTE p ('1.26', '3 days 5:00')").await.1, rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_type_is_of_the_column_that_it_goes_into() {
    use serac_storage::ColumnType::{Boolean, Date, Int32, Int64};
    let mut session = session().await;
    session.execute("CREATE TABLE target (d DATE, n NUMERIC(6,2), k INT)").await.unwrap();
    session.execute("INSERT INTO target SELECT '2024-01-02', '1.005', '7'").await.unwrap();
    session.execute("INSERT INTO target (k, d) SELECT a + 1, NULL FROM t").await.unwrap();
    let (_, rows) = given(&mut session, "SELECT * FROM target ORDER BY k").await;
    assert_eq!(rows, ["||2|", "||3|", "2024-01-02|1.01|7|"]);
    session.execute("INSERT INTO target VALUES ('2024-01-03', 1 + 0.005, '4'), (NULL, 2.675, 2.5 * 2)").await.unwrap();
    let (_, rows) = given(&mut session, "SELECT * FROM target WHERE k > 3 ORDER BY k").await;
    assert_eq!(rows, ["2024-01-03|1.01|4|", "|2.68|5|", "2024-01-02|1.01|7|"]);
    session
        .execute("UPDATE target SET (d, k) = ('2024-01-04', k + 1), n = t.d FROM t WHERE k = '7' AND t.a = 1")
        .await
        .unwrap();
    session.execute("DELETE FROM target USING t WHERE k = t.a + 3 OR k > 2.5 * 10").await.unwrap();
    let (_, rows) = given(&mut session, "SELECT * FROM target WHERE k > 3 ORDER BY k").await;
    assert_eq!(rows, ["2024-01-04|1.50|8|"]);
    let mut prepared = session.prepare("UPDATE target SET d = $1 FROM t WHERE k = $2 + t.b").unwrap();
    let described = session.describe(&mut prepared, &[]).await.unwrap();
    assert_eq!(described.parameters, [Some(Date), Some(Int64)]);
    let sql = "INSERT INTO target (k, d) SELECT $1, $2 WHERE $3";
    let mut prepared = session.prepare(sql).unwrap();
    let described = session.describe(&mut prepared, &[]).await.unwrap();
    assert_eq!(described.parameters, [Some(Int32), Some(Date), Some(Boolean)]);
    for (sql, sqlstate) in [
        ("INSERT INTO target SELECT 'x'", "22007"),
        ("INSERT INTO target (k) SELECT 'x' FROM t", "22P02"),
        ("INSERT INTO target (k) SELECT true", "42804"),
        ("INSERT INTO target (k) SELECT 1, 2", "42601"),
        ("UPDATE target SET k = true FROM t", "42804"),
        ("UPDATE target SET k = nix FROM t", "42703"),
        ("DELETE FROM target USING t WHERE a", "42804"),
    ] {
        assert_eq!(error(&mut session, sql).await.sqlstate, sqlstate, "{sql}");
    }
}

/// The binder's description of changes matches their execution, with and without the point path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_described_as_they_run() {
    use serac_storage::ColumnType::{Int32, Int64, Utf8};
    let mut session = session().await;
    session.execute("CREATE TABLE u (a INT, note TEXT); INSERT INTO u VALUES (1, 'one'), (2, 'two')").await.unwrap();
    let computed = [DataType::Int32, DataType::Int64, DataType::Int16, DataType::Utf8View];
    for (sql, rows) in [
        ("UPDATE t SET s = 4 WHERE a = 1 RETURNING a + 1, b / 3, s + s, 'x' AS x", vec!["2|3|8|x|"]),
        ("UPDATE t SET s = t.s FROM u WHERE u.a = t.a AND t.a = 1 RETURNING u.a, b, t.s, note", vec!["1|10|4|one|"]),
        (
            "INSERT INTO t (a, b) VALUES (1, 5) ON CONFLICT (a) DO UPDATE SET s = 7 RETURNING a, b, s, c",
            vec!["1|10|7|x|"],
        ),
        ("WITH w AS (UPDATE t SET s = 1 WHERE a = 1 RETURNING *) SELECT a, b, s, c FROM w", vec!["1|10|1|x|"]),
        ("DELETE FROM t USING u WHERE t.a = u.a AND t.a = 99 RETURNING t.a, b, s, note", vec![]),
    ] {
        let (columns, given) = given(&mut session, sql).await;
        assert_eq!(
            (types(&columns), given),
            (computed.to_vec(), rows.iter().map(|row| row.to_string()).collect()),
            "{sql}"
        );
    }
    for (sql, parameters) in [
        (
            "INSERT INTO t (a, b, c) VALUES ($1, $2 + 1, $3) ON CONFLICT (a) DO UPDATE SET b = t.b + $4 RETURNING a",
            vec![Some(Int32), Some(Int32), Some(Utf8), Some(Int64)],
        ),
        (
            "UPDATE t SET c = note || $1 FROM u WHERE t.a = u.a AND b = $2 RETURNING c || $1",
            vec![Some(Utf8), Some(Int64)],
        ),
        (
            "MERGE INTO t USING u ON t.a = u.a AND b = $1 WHEN MATCHED THEN UPDATE SET c = $2",
            vec![Some(Int64), Some(Utf8)],
        ),
        (
            "WITH w AS (DELETE FROM u WHERE a = $1 RETURNING note) SELECT note || $2 FROM w",
            vec![Some(Int32), Some(Utf8)],
        ),
    ] {
        let mut prepared = session.prepare(sql).unwrap();
        let described = session.describe(&mut prepared, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(described.parameters, parameters, "{sql}");
    }
    let place = |error: &SqlError| (error.sqlstate, error.position);
    for (sql, wanted) in [
        ("UPDATE t SET b = 1 RETURNING a,\n nix", ("42703", Some((2, 2)))),
        ("INSERT INTO t (a, nix) VALUES (1, 2)", ("42703", Some((1, 19)))),
        ("INSERT INTO t (a, b) VALUES (1, 2, 3)", ("42601", Some((1, 36)))),
        ("UPDATE t SET b = c", ("42804", Some((1, 18)))),
        ("INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = excluded.nix", ("42703", Some((1, 60)))),
        ("MERGE INTO t USING u ON t.a = u.nix WHEN MATCHED THEN DELETE", ("42703", Some((1, 31)))),
    ] {
        assert_eq!(place(&error(&mut session, sql).await), wanted, "{sql}");
    }
    let result = session.execute("EXPLAIN (BOUND) UPDATE t SET b = 1 RETURNING a, b + 1 AS n").await.unwrap().remove(0);
    let StatementResult::Rows { batches, .. } = result else { panic!("it gives rows") };
    let shown = datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
    assert!(shown.contains("Columns: \"a\" integer, \"n\" bigint"), "{shown}");
}

#[tokio::test]
async fn names_may_begin_with_the_database() {
    let db = database();
    let mut session = Session::new(&db);
    session.identify(serac_sql::Identity { database: "shop".into(), ..Default::default() });
    for sql in [
        "CREATE TABLE shop.public.t (a INT PRIMARY KEY)",
        "INSERT INTO shop.public.t VALUES (1), (2); ALTER TABLE shop.public.t ADD COLUMN b INT",
        "UPDATE shop.public.t SET a = a + 5 WHERE shop.public.t.a = 2",
        "CREATE VIEW shop.public.v AS SELECT shop.public.t.a + 0 AS x, shop.public.t.* FROM shop.public.t",
        "CREATE INDEX i ON shop.public.t (a); COMMENT ON TABLE shop.public.t IS 'x'",
        "COMMENT ON COLUMN shop.public.t.a IS 'y'",
        "DELETE FROM shop.public.t AS t WHERE t.a = 1; DROP INDEX shop.public.i",
    ] {
        session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let (_, rows) = given(&mut session, "SELECT shop.public.v.a FROM shop.public.v, serac.public.t").await;
    assert_eq!(rows, ["7|"]);
    // The same database under another name: what is kept names none.
    let mut other = Session::new(&db);
    assert_eq!(given(&mut other, "SELECT a FROM serac.public.v").await.1, ["7|"]);
    for sql in [
        "SELECT * FROM shop.public.t",
        "SELECT shop.public.t.a FROM public.t",
        "EXPLAIN SELECT shop.public.t.* FROM t",
        "DROP TABLE shop.public.t",
        "SELECT 1; PREPARE p AS INSERT INTO shop.public.t VALUES (9)",
    ] {
        // Twice: a text that is known is refused as well.
        for _ in 0..2 {
            let error = other.execute(sql).await.expect_err(sql);
            assert_eq!((error.sqlstate, error.name.as_deref()), ("0A000", Some("shop")), "{sql}: {error}");
        }
    }
    session.execute("DROP VIEW shop.public.v; DROP TABLE IF EXISTS shop.public.t").await.unwrap();
}
