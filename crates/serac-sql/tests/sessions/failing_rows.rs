//! Errors of NOT NULL and of CHECK tell of the row that they refuse, as PostgreSQL tells of it, on
//! the compiled path and on the other.

use crate::support::{refused, run};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use std::io::Cursor;

const A_UMLAUTS: &str = "ääääääääääääääääääääääääääääääää";

fn database() -> SqlDatabase {
    SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions { threads: Some(1), ..Default::default() }).unwrap()
}

/// The SQLSTATE, the name of the column or constraint, and the detail.
async fn told(session: &mut Session, sql: &str) -> (&'static str, String, String) {
    let error = refused(session, sql).await;
    assert!(error.table.is_some(), "{sql}: {error}");
    (error.sqlstate, error.name.unwrap_or_default(), error.detail.unwrap_or_default())
}

async fn world(session: &mut Session) {
    run(
        session,
        "CREATE TABLE f (a INT NOT NULL, b CHAR(4), c TEXT, d DATE, e DOUBLE PRECISION,
             g INT GENERATED ALWAYS AS (a * 2) STORED, n NUMERIC(6,2), CHECK (a < 10));
         INSERT INTO f (a, b, c, d, e, n) VALUES (1, 'ab', repeat('ä', 40), '2020-01-02', 0.1, 1.5)",
    )
    .await;
}

#[tokio::test]
async fn rows_are_told_on_both_paths() {
    let db = database();
    let mut session = Session::new(&db);
    world(&mut session).await;
    let row =
        |a: &str, g: &str| format!("Failing row contains ({a}, ab  , {A_UMLAUTS}..., 2020-01-02, 0.1, {g}, 1.50).");
    let umlauts = "ä".repeat(40);
    let values = |a: &str| format!("{a}, 'ab', '{umlauts}', '2020-01-02', 0.1, 1.5");
    let all = "INSERT INTO f (a, b, c, d, e, n)";
    for (statements, expected) in [
        (
            // A query's rows are inserted by the general path.
            [format!("{all} VALUES ({})", values("NULL")), format!("{all} SELECT {}", values("NULL"))],
            ("23502", "a", row("null", "null")),
        ),
        (
            [format!("{all} VALUES ({})", values("11")), format!("{all} SELECT {}", values("11"))],
            ("23514", "f_a_check", row("11", "22")),
        ),
        (
            ["UPDATE f SET a = NULL".into(), "UPDATE f SET a = (SELECT NULL::int)".into()],
            ("23502", "a", row("null", "null")),
        ),
        (
            ["UPDATE f SET a = 12".into(), "UPDATE f SET a = (SELECT max(v) FROM (VALUES (12)) w (v))".into()],
            ("23514", "f_a_check", row("12", "24")),
        ),
        (
            // The first row that is refused, not the first value.
            [
                "INSERT INTO f (a, b) VALUES (8, 'x'), (9, 'x'), (10, 'x'), (11, 'x')".into(),
                "INSERT INTO f (a, b) SELECT v, 'x' FROM generate_series(8, 12) w (v)".into(),
            ],
            ("23514", "f_a_check", "Failing row contains (10, x   , null, null, null, 20, null).".into()),
        ),
    ] {
        for statement in statements {
            let (sqlstate, name, detail) = told(&mut session, &statement).await;
            assert_eq!((sqlstate, name.as_str(), &detail), (expected.0, expected.1, &expected.2), "{statement}");
        }
    }
    // What is too long is found before NULL.
    for statement in [
        "INSERT INTO f (a, b) VALUES (NULL, 'abcde')",
        "INSERT INTO f (a, b) SELECT NULL, 'abcde'",
        "MERGE INTO f USING (VALUES ('abcde')) w (v) ON a = 0 WHEN NOT MATCHED THEN INSERT (a, b) VALUES (NULL, v)",
    ] {
        let error = refused(&mut session, statement).await;
        assert_eq!(error.sqlstate, "22001", "{statement}: {error}");
    }
}

#[tokio::test]
async fn rows_are_told_in_the_style_of_the_session() {
    let db = database();
    let mut session = Session::new(&db);
    run(
        &mut session,
        "CREATE TEMP TABLE t (a INT CHECK (a > 0), d DATE, z TIMESTAMPTZ, i INTERVAL, x BYTEA, y BOOLEAN)",
    )
    .await;
    let statement =
        "INSERT INTO t VALUES (0, '2020-01-02', '2020-01-01 10:00+02', '1 day 02:00', '\\x01ff'::bytea, true)";
    for (settings, told_as) in [
        ("SET datestyle = 'ISO'", "0, 2020-01-02, 2020-01-01 08:00:00+00, 1 day 02:00:00, \\x01ff, t"),
        ("SET datestyle = 'German'", "0, 02.01.2020, 01.01.2020 08:00:00 UTC, 1 day 02:00:00, \\x01ff, t"),
    ] {
        run(&mut session, "SET timezone = 'UTC'").await;
        run(&mut session, settings).await;
        let (_, _, detail) = told(&mut session, statement).await;
        assert_eq!(detail, format!("Failing row contains ({told_as})."), "{settings}");
    }
}

#[tokio::test]
async fn referential_actions_tell_of_the_child() {
    let db = database();
    let mut session = Session::new(&db);
    run(
        &mut session,
        "CREATE TABLE p (k INT PRIMARY KEY);
         CREATE TABLE c (id INT, k INT DEFAULT 0 REFERENCES p ON UPDATE SET DEFAULT, CONSTRAINT above CHECK (k > 0));
         CREATE TABLE n (id INT, k INT NOT NULL REFERENCES p ON DELETE SET NULL);
         INSERT INTO p VALUES (0), (1), (2); INSERT INTO c VALUES (7, 1); INSERT INTO n VALUES (8, 2)",
    )
    .await;
    for (statement, sqlstate, table, name, row) in [
        ("UPDATE p SET k = 5 WHERE k = 1", "23514", "c", "above", "(7, 0)"),
        ("DELETE FROM p WHERE k = 2", "23502", "n", "k", "(8, null)"),
        (
            "MERGE INTO c USING (VALUES (9)) v (x) ON c.id = v.x WHEN NOT MATCHED THEN INSERT VALUES (x, -1)",
            "23514",
            "c",
            "above",
            "(9, -1)",
        ),
    ] {
        let error = refused(&mut session, statement).await;
        let of = error.table.as_ref().unwrap_or_else(|| panic!("{statement}: {error}"));
        assert_eq!((of.schema.as_str(), of.name.as_str()), ("public", table), "{statement}");
        assert_eq!((error.sqlstate, error.name.as_deref()), (sqlstate, Some(name)), "{statement}");
        assert_eq!(error.detail, Some(format!("Failing row contains {row}.")), "{statement}");
    }
}

#[tokio::test]
async fn copies_tell_of_the_row_and_its_line() {
    let db = database();
    let mut session = Session::new(&db);
    world(&mut session).await;
    for (rows, sqlstate, row) in [
        ("3\tx\n\\N\ty\n", "23502", "(null, y   , null, null, null, null, null)"),
        ("3\tx\n30\ty\n", "23514", "(30, y   , null, null, null, 60, null)"),
    ] {
        session.set_copy_input(Box::new(Cursor::new(rows.as_bytes().to_vec())));
        let error = refused(&mut session, "COPY f (a, b) FROM STDIN (FORMAT text)").await;
        assert_eq!(error.sqlstate, sqlstate, "{error}");
        let detail = error.detail.unwrap_or_default();
        assert!(detail.ends_with(&format!("line 2; Failing row contains {row}.")), "{detail}");
    }
}

#[tokio::test]
async fn rows_are_told_as_far_as_they_may_be_read() {
    let db = database();
    let (mut owner, mut session) = (Session::new(&db), Session::new(&db));
    world(&mut owner).await;
    run(&mut owner, "CREATE ROLE r; GRANT INSERT ON f TO r").await;
    run(&mut session, "SET ROLE r").await;
    for statement in ["INSERT INTO f (a, b) VALUES (11, 'q')", "INSERT INTO f (a, b) SELECT 11, 'q'"] {
        for (grant, row) in [
            ("REVOKE SELECT ON f FROM r", None),
            ("GRANT SELECT (b, c) ON f TO r", Some("(b, c) = (q   , null)")),
            ("GRANT SELECT ON f TO r", Some("(11, q   , null, null, null, 22, null)")),
        ] {
            run(&mut owner, grant).await;
            let error = refused(&mut session, statement).await;
            assert_eq!(error.sqlstate, "23514", "{statement}");
            let detail = row.map(|row| format!("Failing row contains {row}."));
            assert_eq!(error.detail, detail, "{grant}: {statement}");
        }
        run(&mut owner, "REVOKE SELECT ON f FROM r; REVOKE SELECT (b, c) ON f FROM r").await;
    }
}
