//! Errors about names carry the name, and the place where it stands in the script.

use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};

/// SQLSTATE, name, and the script with a `^` before the place.
const CASES: &[(&str, &str, &str)] = &[
    ("42703", "nope", "SELECT ^nope FROM t"),
    ("42703", "nope", "SELECT 1;\n\nSELECT id,\n       ^nope\nFROM t"),
    ("42703", "nope", "SELECT t.id FROM t JOIN u ON t.id = ^u.nope"),
    ("42703", "nope", "SELECT id FROM t ORDER BY ^nope"),
    ("42703", "Nope", "SELECT ^\"Nope\" FROM t"),
    ("42703", "w", "WITH q AS (SELECT id FROM t) SELECT ^w FROM q"),
    ("42703", "nope", "SELECT (SELECT ^nope FROM u WHERE u.id = t.id) FROM t"),
    ("42703", "nope", "EXPLAIN SELECT ^nope FROM t"),
    ("42703", "nope", "INSERT INTO t (id, ^nope) VALUES (1, 2)"),
    ("42703", "nope", "INSERT INTO t SELECT id, ^nope FROM u"),
    ("42703", "nope", "INSERT INTO t VALUES (1, 'nope') RETURNING id AS nope, ^nope"),
    ("42703", "nope", "UPDATE t SET v = ^nope WHERE id = 1"),
    ("42703", "nope", "UPDATE t SET ^nope = 1"),
    ("42703", "nope", "DELETE FROM t WHERE id = 1 AND ^nope = 1"),
    ("42703", "nope", "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET v = ^u.nope"),
    ("42703", "nope", "CREATE TABLE x (a INTEGER, CHECK (a > ^nope))"),
    ("42703", "nope", "CREATE TABLE x (a INTEGER, PRIMARY KEY (^nope))"),
    ("42703", "nope", "CREATE INDEX i ON t (id, ^nope)"),
    ("42703", "nope", "ALTER TABLE t DROP COLUMN ^nope"),
    ("42703", "nope", "ALTER TABLE t ALTER COLUMN ^nope SET NOT NULL"),
    ("42703", "nope", "COPY t (id, ^nope) FROM '/nowhere.csv'"),
    ("42702", "id", "SELECT ^id FROM t, u"),
    ("42702", "id", "SELECT w FROM u WHERE id IN (SELECT ^id FROM t, u AS z)"),
    ("42701", "id", "ALTER TABLE t ADD COLUMN ^id INTEGER"),
    ("42P01", "nowhere", "SELECT * FROM ^nowhere"),
    ("42P01", "x", "SELECT id FROM t WHERE ^x.id = 1"),
    ("42P01", "nowhere", "SELECT id AS nowhere FROM t WHERE EXISTS (SELECT 1 FROM ^nowhere)"),
    ("42P01", "other.nowhere", "SELECT * FROM ^other.nowhere"),
    ("42P01", "nowhere", "INSERT INTO ^nowhere (id) VALUES (1)"),
    ("42P01", "nowhere", "SELECT 1; UPDATE ^nowhere SET a = 1"),
    ("42P01", "nowhere", "DELETE FROM t USING ^nowhere WHERE true"),
    ("42P01", "nowhere", "DROP TABLE t2, ^nowhere"),
    ("42P01", "nowhere", "CREATE VIEW v AS SELECT * FROM ^nowhere"),
    ("42P01", "nowhere", "CREATE TABLE x (a INTEGER REFERENCES ^nowhere)"),
    ("42P01", "nowhere", "COPY ^nowhere TO '/nowhere.csv'"),
    ("42P07", "t", "CREATE TABLE ^t (a INTEGER)"),
    ("42883", "frob", "SELECT id AS frob, ^frob(id) FROM t"),
    ("42883", "frob", "UPDATE t SET v = ^frob(1)"),
    ("42883", "frob", "CREATE TABLE x (a INTEGER DEFAULT ^frob(1))"),
    ("42883", "frob", "SELECT * FROM ^frob(1)"),
    ("42883", "abs", "SELECT ^abs('x'::TEXT)"),
    ("42704", "nope", "SELECT CAST(1 AS ^nope)"),
    ("42704", "nope", "CREATE TABLE x (a ^nope)"),
    ("42704", "nope", "ALTER TABLE t DROP CONSTRAINT ^nope"),
    ("3F000", "nope", "CREATE TABLE ^nope.x (a INTEGER)"),
];

async fn session() -> Session {
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    let mut session = Session::new(&db);
    let tables =
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT NOT NULL CHECK (v <> '')); CREATE TABLE t2 (a INTEGER);
        CREATE TABLE u (id INTEGER, w INTEGER); CREATE VIEW over_u AS SELECT w FROM u";
    session.execute(tables).await.unwrap();
    session
}

#[tokio::test]
async fn unknown_names_are_shown_where_they_stand() {
    let mut session = session().await;
    for (sqlstate, name, marked) in CASES {
        let before = &marked[..marked.find('^').unwrap()];
        let line = before.matches('\n').count() as u32 + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() as u32 + 1;
        let error = session.execute(&marked.replacen('^', "", 1)).await.unwrap_err();
        assert_eq!(error.sqlstate, *sqlstate, "{marked}\n{error}");
        assert_eq!(error.name.as_deref(), Some(*name), "{marked}\n{error}");
        assert_eq!(error.position, Some((line, column)), "{marked}\n{error}");
        assert!(error.message.contains(name.rsplit('.').next().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn what_stands_in_another_text_has_no_place() {
    let mut session = session().await;
    let error = session.execute("PREPARE p AS SELECT 1 + nope FROM t").await.unwrap_err();
    assert_eq!((error.sqlstate, error.position), ("42703", Some((1, 25))), "{error}");
    let made = "CREATE TABLE x (a INTEGER, b INTEGER); PREPARE p AS SELECT b FROM x; ALTER TABLE x DROP COLUMN b";
    session.execute(made).await.unwrap();
    let error = session.execute("EXECUTE p").await.unwrap_err();
    assert_eq!((error.sqlstate, error.position), ("42703", None), "{error}");
    // A view needs it.
    let error = session.execute("ALTER TABLE u DROP COLUMN w").await.unwrap_err();
    assert_eq!((error.sqlstate, error.position), ("2BP01", None), "{error}");
}

#[tokio::test]
async fn violated_constraints_are_named() {
    let mut session = session().await;
    session.execute("INSERT INTO t VALUES (1, 'x')").await.unwrap();
    for (sql, sqlstate, name) in [
        ("INSERT INTO t VALUES (1, 'y')", "23505", "t_pkey"),
        ("INSERT INTO t VALUES (2, NULL)", "23502", "v"),
        ("INSERT INTO t VALUES (2, '')", "23514", "t_v_check"),
    ] {
        let error = session.execute(sql).await.unwrap_err();
        assert_eq!((error.sqlstate, error.name.as_deref(), error.position), (sqlstate, Some(name), None), "{error}");
    }
}

#[tokio::test]
async fn planning_errors_have_the_sqlstates_of_postgresql() {
    let mut session = session().await;
    for (sql, sqlstate) in [
        ("SELECT id FROM t GROUP BY v", "42803"),
        ("SELECT id FROM t UNION SELECT id, w FROM u", "42601"),
        ("SELECT id FROM t WHERE id", "42804"),
        ("SELECT abs(1, 2)", "42883"),
        ("SELECT sum(v) FROM t", "42883"),
        ("SELEC 1", "42601"),
        ("CREATE TABLE x (a INTEGER DEFAULT 'x')", "22P02"),
    ] {
        let error = session.execute(sql).await.unwrap_err();
        assert_eq!(error.sqlstate, sqlstate, "{sql}\n{error}");
    }
}

#[tokio::test]
async fn a_file_is_named_in_quotes() {
    let mut session = session().await;
    let wrong = [
        ("COPY t TO STDOUTT", "STDOUTT"),
        ("COPY t (id) FROM t2", "t2"),
        ("COPY (SELECT id FROM t) TO \"file\" (FORMAT csv)", "\"file\""),
    ];
    for (sql, name) in wrong {
        let error = session.execute(sql).await.unwrap_err();
        assert_eq!(error.sqlstate, "42601", "{sql}: {error}");
        assert_eq!(error.message, format!("syntax error at or near \"{name}\""));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("to.csv").display().to_string();
    session.execute(&format!("COPY (SELECT id FROM t) TO '{file}' (FORMAT csv)")).await.unwrap();
    session.execute(&format!("COPY t2 FROM '{file}' WITH (FORMAT csv)")).await.unwrap();
}
