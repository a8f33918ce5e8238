//! Nested or long statements: every production of the grammar, up to 10,000 levels. A statement
//! ends in a result or with an error of its own, soon, and never takes the process with it. Each
//! set runs in a process of its own, whose threads have the stacks that they have by default.

use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_testing::{ran, this_test};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Far above the time of any of the statements.
const SOON: Duration = Duration::from_secs(100);
/// Names the file with the statements that a child runs, one a line, behind its name and a tab.
const STATEMENTS: &str = "SERAC_NESTED_STATEMENTS";
const DEPTHS: [usize; 3] = [40, 1_000, 10_000];

/// The work of a child: it reports the outcome of each statement.
#[test]
#[ignore = "a part of the others"]
fn child() {
    let Ok(path) = std::env::var(STATEMENTS) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let statements = std::fs::read_to_string(path).unwrap();
    let run = async move {
        let db =
            SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions { threads: Some(2), ..SqlOptions::default() })
                .unwrap();
        let mut session = Session::new(&db);
        session.as_for_postgresql();
        let tables = "CREATE TABLE t (a INT, b TEXT, d JSONB); INSERT INTO t VALUES (1, 'x', '{}'), (2, 'y', '{}'); SET statement_timeout = 5000";
        session.execute(tables).await.unwrap();
        for line in statements.lines() {
            let (name, sql) = line.split_once('\t').unwrap();
            let started = Instant::now();
            let outcome = match session.execute(sql).await {
                Ok(_) => "00000".to_owned(),
                Err(error) => format!("{} {}", error.sqlstate, error.message.chars().take(100).collect::<String>()),
            };
            println!("== {name}\t{}\t{outcome}", started.elapsed().as_millis());
            if session.transaction_status() != serac_sql::TransactionStatus::Idle {
                session.execute("ROLLBACK").await.unwrap();
            }
        }
        println!("== end\t0\t00000");
    };
    // On a thread of the runtime, as a server does it.
    runtime.block_on(runtime.spawn(run)).unwrap();
}

/// The outcomes of statements: milliseconds, SQLSTATE and message.
fn run(statements: &[(String, String)]) -> Vec<(String, u128, String)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("statements");
    let mut text = String::new();
    for (name, sql) in statements {
        writeln!(text, "{name}\t{sql}").unwrap();
    }
    std::fs::write(&path, text).unwrap();
    let (out, err, _) = ran(this_test("nesting::child").env(STATEMENTS, &path).env_remove("RUST_MIN_STACK"));
    let mut outcomes: Vec<_> = out
        .lines()
        .filter_map(|line| {
            let mut parts = line.strip_prefix("== ")?.split('\t');
            let (name, milliseconds) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
            Some((name, milliseconds, parts.next()?.to_owned()))
        })
        .collect();
    let last = outcomes.pop().map(|(name, ..)| name);
    let at = statements.get(outcomes.len()).map(|(name, _)| name);
    assert_eq!(last.as_deref(), Some("end"), "the process ended at {at:?}: {err}");
    outcomes
}

/// That each ends with a result, or an error that is not the program's own, and soon.
fn check(statements: &[(String, String)]) -> Vec<(String, u128, String)> {
    let outcomes = run(statements);
    let mut wrong = Vec::new();
    for (name, milliseconds, outcome) in &outcomes {
        println!("{name}: {milliseconds} ms: {outcome}");
        if outcome.starts_with("XX") || *milliseconds >= SOON.as_millis() {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}: {outcomes:?}");
    outcomes
}

fn nested(open: &str, inner: &str, close: &str, depth: usize) -> String {
    format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
}

/// One statement for each production, `depth` levels deep.
fn productions(depth: usize) -> Vec<(String, String)> {
    let n = |open: &str, inner: &str, close: &str| nested(open, inner, close, depth);
    let expressions = [
        ("parentheses", n("(", "1", ")")),
        ("sums in parentheses", n("(1+", "1", ")")),
        ("sum", format!("1{}", "+1".repeat(depth))),
        ("sum of columns", format!("a{}", "+a".repeat(depth))),
        ("differences", format!("a{}", "-a".repeat(depth))),
        ("products", format!("1{}", "*1".repeat(depth))),
        ("concatenation", format!("b{}", "||b".repeat(depth))),
        ("or", format!("a=0{}", " OR a=1".repeat(depth))),
        ("and", format!("a>0{}", " AND a>0".repeat(depth))),
        ("and, or", n("(a=1 OR a=2 AND ", "true", ")")),
        ("not", format!("{}true", "NOT ".repeat(depth))),
        ("minus", format!("{}1", "- ".repeat(depth))),
        ("tilde", format!("{}1", "~ ".repeat(depth))),
        ("casts", format!("1{}", "::int".repeat(depth))),
        ("cast", n("CAST(", "1", " AS int)")),
        ("is null", format!("1{}", " IS NULL".repeat(depth))),
        ("is true", format!("true{}", " IS TRUE".repeat(depth))),
        ("is distinct from", format!("true{}", " IS DISTINCT FROM true".repeat(depth))),
        ("comparison", n("(1=", "1", ")::int")),
        ("abs", n("abs(", "1", ")")),
        ("coalesce", n("coalesce(1, ", "1", ")")),
        ("coalesce first", n("coalesce(", "a", ", 2)")),
        ("coalesce of sums", n("coalesce(1 + ", "a", ", 2)")),
        ("between of casts", n("CAST(", "a", " BETWEEN 0 AND 1 AS INT)")),
        ("replace", n("replace(", "b", ", 'x', 'y')")),
        ("least", n("least(1, ", "2", ", 3)")),
        ("nullif", n("nullif(", "1", ", 2)")),
        ("case", n("CASE WHEN a=1 THEN ", "1", " ELSE 2 END")),
        ("case else", n("CASE WHEN a=1 THEN 1 ELSE ", "1", " END")),
        ("case of", n("CASE ", "1", " WHEN 1 THEN 1 END")),
        ("array", n("ARRAY[", "1", "]")),
        ("row", n("ROW(1, ", "1", ")")),
        ("record", n("(1, ", "1", ")")),
        ("subquery", n("(SELECT ", "1", ")")),
        ("exists", n("EXISTS (SELECT 1 WHERE ", "true", ")")),
        ("in subquery", n("1 IN (SELECT 1 WHERE ", "true", ")")),
        ("any", n("1 = ANY (SELECT 1 WHERE ", "true", ")")),
        ("array subquery", n("ARRAY(SELECT ", "1", ")")),
        ("in", format!("a IN (0{})", ",1".repeat(depth))),
        ("in in", n("true IN (", "true", ")")),
        ("between", n("1 BETWEEN 0 AND (", "1", ")")),
        ("like", n("b LIKE (", "b", ")::text")),
        ("like chain", format!("b{}", " LIKE b".repeat(depth))),
        ("arrow", format!("d{}", "->'a'".repeat(depth))),
        ("path", format!("d{}", "#>'{a}'".repeat(depth))),
        ("subscript", format!("(ARRAY[1]){}", "[1]".repeat(depth))),
        ("array type", format!("NULL::int{}", "[]".repeat(depth))),
        ("interval", format!("now(){}", " + interval '1 day'".repeat(depth))),
        ("at time zone", format!("now(){}", " AT TIME ZONE 'UTC'".repeat(depth))),
        ("collate", format!("b{}", " COLLATE \"C\"".repeat(depth))),
        ("extract", n("extract(epoch FROM to_timestamp(", "1", "))")),
        ("substring", n("substring(", "b", " FROM 1 FOR 2)")),
        ("position", n("position('a' IN (", "b", ")::text)")),
        ("trim", n("trim(both ' ' FROM ", "b", ")")),
        ("overlay", n("overlay(", "b", " placing 'x' from 1)")),
        ("operator", format!("1{}", " OPERATOR(pg_catalog.+) 1".repeat(depth))),
        ("power", format!("1{}", "^1".repeat(depth))),
        ("xor", format!("1{}", "#1".repeat(depth))),
        ("filter", n("(SELECT count(*) FILTER (WHERE ", "true", ") > 0)")),
        ("window", n("(SELECT count(*) OVER (ORDER BY ", "1", "))")),
        ("jsonb", n("jsonb_build_object('a', ", "1", ")")),
        ("named", n("f(a => ", "1", ")")),
        ("fields", format!("a{}", ".a".repeat(depth))),
        ("broken casts", n("CAST(", "1", "")),
        ("broken case", n("CASE WHEN (", "1", "")),
        ("broken functions", n("extract(year FROM ", "1", "")),
        ("broken arrays", n("ARRAY[", "1", ")")),
        ("broken intervals", n("interval(", "1", "")),
    ];
    let mut all: Vec<(String, String)> =
        expressions.iter().map(|(name, expr)| (format!("{name} {depth}"), format!("SELECT {expr} FROM t"))).collect();
    let chained = |first: &str, next: &dyn Fn(usize) -> String| {
        (1..depth).fold(first.to_owned(), |mut text, i| {
            text.push_str(&next(i));
            text
        })
    };
    let statements = [
        ("union all", format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(depth))),
        ("union", format!("SELECT 1{}", " UNION SELECT 1".repeat(depth))),
        ("except", format!("SELECT 1{}", " EXCEPT SELECT 2".repeat(depth))),
        ("intersect all", format!("SELECT 1{}", " INTERSECT ALL SELECT 1".repeat(depth))),
        ("mixed sets", format!("SELECT 1{}", " UNION ALL SELECT 1 EXCEPT SELECT 2".repeat(depth))),
        ("sets in parentheses", n("(SELECT 1 UNION ", "SELECT 1", ")")),
        ("queries in parentheses", n("(", "SELECT 1", ")")),
        ("from", format!("SELECT * FROM {}", n("(SELECT * FROM ", "t", ") AS x"))),
        ("lateral", format!("SELECT 1 FROM {}", n("t, LATERAL (SELECT 1 FROM ", "t", ") AS x"))),
        (
            "lateral chain",
            format!(
                "SELECT 1 FROM t AS t0{}",
                chained("", &|i| format!(", LATERAL (SELECT t{}.a AS a) AS t{i}", i - 1))
            ),
        ),
        ("natural joins", format!("SELECT 1 FROM t{}", chained("", &|i| format!(" NATURAL JOIN t AS t{i}")))),
        ("using", format!("SELECT a FROM t{}", chained("", &|i| format!(" FULL JOIN t AS t{i} USING (a)")))),
        ("joins", format!("SELECT 1 FROM t{}", chained("", &|i| format!(" JOIN t AS t{i} ON true")))),
        ("joins in parentheses", format!("SELECT 1 FROM {}", n("(t CROSS JOIN ", "t", ")"))),
        ("derived joins", format!("SELECT 1 FROM {}", n("(", "SELECT 1", ") AS x"))),
        ("with", n("WITH x AS (", "SELECT 1", ") SELECT * FROM x")),
        (
            "chained with",
            format!(
                "WITH x0 AS (SELECT 1 AS a){} SELECT 1",
                chained("", &|i| { format!(", x{i} AS (SELECT * FROM x{})", i - 1) })
            ),
        ),
        (
            "doubled with",
            format!(
                "WITH x0 AS (SELECT a FROM t){} SELECT 1 FROM x{}",
                chained("", &|i| format!(", x{i} AS (SELECT u.a FROM x{} u, x{} v)", i - 1, i - 1)),
                depth - 1
            ),
        ),
        (
            "recursive",
            format!(
                "WITH RECURSIVE r AS (SELECT 1 AS a{} UNION ALL SELECT a + 1 FROM r WHERE a < 5) SELECT count(*) FROM r",
                " UNION ALL SELECT 2".repeat(depth.min(100))
            ),
        ),
        ("array of", format!("PREPARE ao{depth} AS SELECT NULL::{}; EXECUTE ao{depth}", n("ARRAY<", "int ", " > "))),
        ("table of", format!("PREPARE to{depth} AS SELECT NULL::{}; EXECUTE to{depth}", n("TABLE(a ", "int", ")"))),
        (
            "json table",
            format!(
                "PREPARE jt{depth} AS SELECT * FROM JSON_TABLE('{{}}', '$' COLUMNS({})); EXECUTE jt{depth}",
                n("NESTED PATH '$' COLUMNS(", "a int path '$'", ")")
            ),
        ),
        ("values", format!("VALUES (1){}", ", (1)".repeat(depth))),
        ("select list", format!("SELECT 1{}", ", 1".repeat(depth))),
        ("group by", format!("SELECT 1 FROM t GROUP BY a{}", ", a".repeat(depth))),
        ("order by", format!("SELECT 1 FROM t ORDER BY a{}", ", a".repeat(depth))),
        ("cube", format!("SELECT count(*) FROM t GROUP BY CUBE (a{})", chained("", &|i| format!(", a + {i}")))),
        ("rollup", format!("SELECT count(*) FROM t GROUP BY ROLLUP (a{})", chained("", &|i| format!(", a + {i}")))),
        ("grouping sets", format!("SELECT count(*) FROM t GROUP BY GROUPING SETS ((a){})", ", (a)".repeat(depth))),
        ("explain", format!("{}SELECT 1", "EXPLAIN ".repeat(depth))),
        ("prepare", format!("{}SELECT 1", "PREPARE p AS ".repeat(depth))),
        ("cursor", format!("BEGIN; DECLARE c CURSOR FOR SELECT {}; CLOSE c; COMMIT", n("abs(", "1", ")"))),
        ("default", format!("CREATE TABLE d{depth} (a INT DEFAULT {})", n("abs(", "1", ")"))),
        ("check", format!("CREATE TABLE c{depth} (a INT CHECK ({}))", n("(a=1 OR ", "true", ")"))),
        (
            "generated",
            format!(
                "CREATE TABLE g{depth} (a INT, b INT GENERATED ALWAYS AS ({}) STORED); INSERT INTO g{depth} VALUES (1)",
                n("(1+", "a", ")")
            ),
        ),
        ("column type", format!("CREATE TABLE y{depth} (a INT{})", "[]".repeat(depth))),
        ("columns", format!("CREATE TABLE k{depth} (a INT{})", chained("", &|i| format!(", a{i} INT")))),
        ("index", format!("CREATE INDEX i{depth} ON t (({}))", n("abs(", "a", ")"))),
        ("view", format!("CREATE VIEW v{depth} AS SELECT {} AS a; SELECT * FROM v{depth}", n("abs(", "1", ")"))),
        ("insert", format!("INSERT INTO t (a) VALUES ({})", n("abs(", "1", ")"))),
        ("insert select", format!("INSERT INTO t (a) SELECT 1{}", " UNION ALL SELECT 1".repeat(depth))),
        ("update", format!("UPDATE t SET a = {}", n("abs(", "1", ")"))),
        ("update where", format!("UPDATE t SET a = 1 WHERE a=1{}", " OR a=1".repeat(depth))),
        ("delete", format!("DELETE FROM t WHERE {}", n("(a=5 AND ", "true", ")"))),
        ("merge", format!("MERGE INTO t USING t AS s ON {} WHEN MATCHED THEN DO NOTHING", n("(", "true", ")"))),
        ("returning", format!("INSERT INTO t (a) VALUES (1) RETURNING {}", n("abs(", "a", ")"))),
        ("copy", format!("COPY (SELECT {}) TO '/dev/null'", n("abs(", "1", ")"))),
        ("copy options", format!("COPY t TO '/dev/null' WITH ({}FORMAT csv)", "HEADER, ".repeat(depth))),
        ("execute", format!("PREPARE e{depth} AS SELECT {}; EXECUTE e{depth}", n("abs(", "1", ")"))),
        ("argument", format!("PREPARE x{depth} (INT) AS SELECT $1; EXECUTE x{depth} ({})", n("abs(", "1", ")"))),
        ("call", format!("CALL p({})", n("abs(", "1", ")"))),
        ("set", format!("SET search_path = a{}", ", a".repeat(depth))),
        ("statements", "SELECT 1; ".repeat(depth.min(300))),
    ];
    all.extend(statements.into_iter().map(|(name, sql)| (format!("{name} {depth}"), sql)));
    all
}

#[test]
fn whatever_is_nested_ends_in_a_result_or_an_error_of_its_own() {
    for depth in DEPTHS {
        check(&productions(depth));
    }
}

#[tokio::test]
async fn what_is_long_means_what_it_means_in_short() {
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)").await.unwrap();
    let mut ask = async |sql: &str| {
        let outcome = session.execute(sql).await;
        match outcome.map(|mut results| results.pop()) {
            Ok(Some(serac_sql::StatementResult::Rows { batches, .. })) => {
                let shown = datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
                shown.lines().nth(3).unwrap_or_default().trim_matches(['|', ' ']).to_owned()
            }
            Ok(other) => panic!("{sql} gave {other:?}"),
            Err(error) => error.sqlstate.to_owned(),
        }
    };
    // A recursive query has the same rounds, however long its first part is.
    let recursive = format!(
        "WITH RECURSIVE r AS (SELECT 1 AS a{} UNION ALL SELECT a + 1 FROM r WHERE a < 5) SELECT count(*) FROM r",
        " UNION ALL SELECT 2".repeat(20)
    );
    assert_eq!(ask(&recursive).await, "85");
    // Branches of several types, whose columns have no common name.
    for count in [10, 100, 200, 2_000] {
        for (branch, sum) in [("2", 2 * count), ("'2'", 2 * count), ("NULL", 0)] {
            let branches = format!(" UNION ALL SELECT {branch}").repeat(count);
            let mixed = format!("SELECT sum(x) FROM (SELECT 1 AS x{branches} UNION ALL SELECT 2.5) q");
            assert_eq!(ask(&mixed).await, format!("{}.5", sum + 3), "{count} times {branch}");
        }
        let distinct = format!(
            "SELECT sum(x) FROM (SELECT 1 AS x{} UNION SELECT 2.0 UNION SELECT 2.5) q",
            " UNION SELECT 2".repeat(count)
        );
        assert_eq!(ask(&distinct).await, "5.5", "{count}");
    }
    // Joins on keys, more of them than are put in order, and orders above joins that are not.
    let keys = |join: &str, count: usize| {
        let joins: String = (1..count).map(|i| format!(" {join} t t{i} ON t{i}.a = t{}.a", i - 1)).collect();
        format!("t t0{joins}")
    };
    for count in [10, 70, 150] {
        assert_eq!(ask(&format!("SELECT count(*) FROM {}", keys("JOIN", count))).await, "1", "{count}");
        let above =
            format!("SELECT count(*) FROM {} JOIN t x ON x.a = t0.a JOIN t y ON y.a = x.a", keys("LEFT JOIN", count));
        assert_eq!(ask(&above).await, "1", "{count}");
    }
    // Texts as PostgreSQL writes them: of `2`, `2020-01-01 00:00:00` and `1 day`.
    for (operand, length) in [("2::float8", 1), ("'2020-01-01'::timestamp", 19), ("interval '1 day'", 5)] {
        let long = format!("SELECT length('x'{})", format!(" || {operand}").repeat(120));
        assert_eq!(ask(&long).await, (1 + 120 * length).to_string(), "{operand}");
    }
    // These constants are not joined.
    for operators in [" || '\\x41'::bytea", " + 1.5"] {
        assert_eq!(ask(&format!("SELECT '1'{}", operators.repeat(120))).await, "0A000", "{operators}");
    }
    assert_eq!(ask(&format!("SELECT 1::bigint{}", " + 2 - 1".repeat(1_000))).await, "1001");
    assert_eq!(ask(&format!("SELECT 2147483646{}", " + 1 - 1".repeat(100))).await, "2147483646");
    assert_eq!(ask(&format!("SELECT 2147483647{}", " + 1 - 1".repeat(100))).await, "22003");
    assert_eq!(ask(&format!("SELECT length('x'{})", " || 1 || 'ab'".repeat(120))).await, "361");
    // The circle behind a name that only a part of the query has.
    session.execute("CREATE VIEW v AS SELECT a FROM t").await.unwrap();
    for circle in [
        "WITH v AS (SELECT a FROM v) SELECT a FROM v",
        "SELECT x.a FROM (WITH v AS (SELECT 2::int AS a) SELECT a FROM v) x, v",
    ] {
        let refused = session.execute(&format!("CREATE OR REPLACE VIEW v AS {circle}")).await.unwrap_err();
        assert_eq!(refused.sqlstate, "42P17", "{circle}");
    }
}
