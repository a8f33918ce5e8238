//! Transaction control: the effect of an error on a transaction, and the results that may be shown
//! of one that is not durable.

use crate::support::run;
use datafusion::arrow::array::{Int32Array, RecordBatch};
use datafusion::scalar::ScalarValue;
use futures::StreamExt;
use parking_lot::Mutex;
use serac_engine::Database;
use serac_sql::{
    IngestTarget, Rows, Session, SqlDatabase, SqlOptions, Start, StatementResult, StatementStream, TransactionStatus,
};
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::{StorageOptions, Value};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

async fn fails(session: &mut Session, sql: &str) -> &'static str {
    session.execute(sql).await.expect_err(sql).sqlstate
}

fn in_memory() -> SqlDatabase {
    SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap()
}

async fn count(session: &mut Session) -> usize {
    run(session, "SELECT a FROM t").await[0].row_count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_syntax_is_one_of_the_transaction() {
    let db = in_memory();
    let mut session = Session::new(&db);
    run(&mut session, "CREATE TABLE t (a INTEGER PRIMARY KEY)").await;
    run(&mut session, "BEGIN; INSERT INTO t VALUES (1)").await;
    assert_eq!(fails(&mut session, "SELEC 1").await, "42601");
    assert_eq!(session.transaction_status(), TransactionStatus::Failed);
    assert_eq!(fails(&mut session, "SELECT 1").await, "25P02");
    run(&mut session, "COMMIT").await;
    assert_eq!(count(&mut session).await, 0);
    // No statement of a script with such an error runs.
    assert_eq!(fails(&mut session, "INSERT INTO t VALUES (1); SELEC 1").await, "42601");
    assert_eq!(count(&mut session).await, 0);
    // So is a statement that cannot be prepared, or described.
    for described in [false, true] {
        run(&mut session, "BEGIN; INSERT INTO t VALUES (1)").await;
        if described {
            let mut prepared = session.prepare("SELECT nothing FROM t").unwrap();
            assert_eq!(session.describe(&mut prepared, &[]).await.unwrap_err().sqlstate, "42703");
        } else {
            assert_eq!(session.prepare("SELEC $1").unwrap_err().sqlstate, "42601");
        }
        assert_eq!(session.transaction_status(), TransactionStatus::Failed);
        run(&mut session, "COMMIT").await;
        assert_eq!(count(&mut session).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_beside_statements_keeps_what_a_savepoint_leads_back_to() {
    let db = in_memory();
    let mut session = Session::new(&db);
    run(&mut session, "CREATE TABLE t (a INTEGER PRIMARY KEY)").await;
    run(&mut session, "BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s").await;
    assert_eq!(fails(&mut session, "SELEC 1").await, "42601");
    run(&mut session, "ROLLBACK TO s").await;
    assert_eq!(count(&mut session).await, 1);
    run(&mut session, "INSERT INTO t VALUES (2); SAVEPOINT r; INSERT INTO t VALUES (3)").await;
    assert_eq!(fails(&mut session, "SAVEPOINT; SELECT 1").await, "42601");
    run(&mut session, "ROLLBACK TO r; COMMIT").await;
    assert_eq!(count(&mut session).await, 2);
}

/// A database whose log has failed at the commit of the row 2. The row is visible, but must not be
/// shown, because it may not be on the disk.
struct Doubtful {
    db: SqlDatabase,
    _folder: tempfile::TempDir,
}

/// A database whose files can be made to fail.
fn faulty(folder: &tempfile::TempDir) -> (SqlDatabase, FaultFileSystem) {
    let faults = FaultFileSystem::default();
    let options = StorageOptions {
        path: Some(folder.path().join("db")),
        file_system: Arc::new(faults.clone()),
        ..StorageOptions::default()
    };
    (SqlDatabase::new(Database::open_with(options).unwrap(), &SqlOptions::default()).unwrap(), faults)
}

impl Doubtful {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (db, faults) = faulty(&folder);
        let mut session = Session::new(&db);
        run(&mut session, "CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER); INSERT INTO t VALUES (1, 10)").await;
        faults.faults().fail_sync_in.store(1, Ordering::SeqCst);
        assert_eq!(fails(&mut session, "INSERT INTO t VALUES (2, 20)").await, "58030");
        Self { db, _folder: folder }
    }

    async fn in_transaction(&self, modes: &str) -> Session {
        let mut session = Session::new(&self.db);
        run(&mut session, &format!("BEGIN {modes}")).await;
        session
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_shows_nothing_that_is_not_durable() {
    let doubtful = Doubtful::new().await;
    for modes in ["", "ISOLATION LEVEL READ COMMITTED", "ISOLATION LEVEL SERIALIZABLE"] {
        for sql in [
            "SELECT b FROM t WHERE a = 2",
            "SELECT sum(b) FROM t",
            "SELECT b FROM t WHERE a = 2 FOR UPDATE",
            "UPDATE t SET b = 21 WHERE a = 2",
            "UPDATE t SET b = b + 1 WHERE b > 15 RETURNING b",
            "DELETE FROM t WHERE a = 2",
            "INSERT INTO t VALUES (2, 21) ON CONFLICT DO NOTHING",
            "DECLARE c CURSOR FOR SELECT b FROM t",
            "EXPLAIN ANALYZE SELECT b FROM t WHERE b > 15",
            // An error tells of the row, too.
            "INSERT INTO t VALUES (2, 21)",
            "SELECT 1 / (b - 20) FROM t WHERE a = 2",
        ] {
            let mut session = doubtful.in_transaction(modes).await;
            // The second time, as a statement that is known.
            for _ in 0..2 {
                assert_eq!(fails(&mut session, sql).await, "58030", "{sql} {modes}");
                assert_eq!(session.transaction_status(), TransactionStatus::Failed);
                run(&mut session, &format!("ROLLBACK; BEGIN {modes}")).await;
            }
        }
        // A durable row is shown.
        let mut session = doubtful.in_transaction(modes).await;
        assert_eq!(run(&mut session, "SELECT b FROM t WHERE a = 1").await[0].row_count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_it_by_prepared_statements() {
    let doubtful = Doubtful::new().await;
    let mut session = doubtful.in_transaction("").await;
    let mut prepared = session.prepare("SELECT b FROM t WHERE a = $1").unwrap();
    assert!(prepared.is_point());
    let mut rows = Rows::default();
    assert_eq!(session.run_prepared(&mut prepared, &[Value::Int32(1)], &mut rows).unwrap(), Some(1));
    let Start::Ran(started) = session.start_prepared(&mut prepared, &[Value::Int32(2)], &mut rows).unwrap() else {
        panic!("it is for the point path");
    };
    assert!(!started.is_durable());
    assert_eq!(started.durable().await.unwrap_err().sqlstate, "58030");
    assert_eq!(session.run_prepared(&mut prepared, &[Value::Int32(2)], &mut rows).unwrap_err().sqlstate, "58030");
    let two = [ScalarValue::Int32(Some(2))];
    let mut session = doubtful.in_transaction("").await;
    assert_eq!(session.execute_prepared(&mut prepared, &two).await.unwrap_err().sqlstate, "58030");
    // An error tells of the row.
    let mut insert = session.prepare("INSERT INTO t VALUES ($1, $1)").unwrap();
    for waits in [false, true] {
        let mut session = doubtful.in_transaction("").await;
        let error = if waits {
            let error = session.start_prepared(&mut insert, &[Value::Int32(2)], &mut rows).unwrap_err();
            assert_eq!(error.sqlstate, "23505");
            session.error_is_durable().await.unwrap_err()
        } else {
            session.run_prepared(&mut insert, &[Value::Int32(2)], &mut rows).unwrap_err()
        };
        assert_eq!(error.sqlstate, "58030");
    }
}

/// The output of a COPY.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leaves_by_a_stream_that_is_not_durable() {
    let doubtful = Doubtful::new().await;
    for begin in ["SELECT 1", "BEGIN"] {
        let mut session = Session::new(&doubtful.db);
        run(&mut session, begin).await;
        let written = Written::default();
        session.set_copy_output(Box::new(written.clone()));
        assert_eq!(fails(&mut session, "COPY t TO STDOUT").await, "58030", "{begin}");
        assert_eq!(*written.0.lock(), b"", "{begin}");
        run(&mut session, "ROLLBACK").await;
        run(&mut session, begin).await;
        let select = serac_sql::parse("SELECT b FROM t").unwrap().pop().unwrap();
        match session.stream_statement(select).await {
            Err(error) => assert_eq!(error.sqlstate, "58030", "{begin}"),
            Ok(StatementStream::Rows(mut rows)) => {
                assert_eq!(rows.next().await.unwrap_err().sqlstate, "58030", "{begin}");
            }
            Ok(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_catalog_that_is_not_durable_is_not_shown() {
    for ddl in ["TRUNCATE t", "CREATE TABLE u AS SELECT 1 AS a", "DROP TABLE t"] {
        let folder = tempfile::tempdir().unwrap();
        let (db, faults) = faulty(&folder);
        let mut session = Session::new(&db);
        run(&mut session, "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)").await;
        let mut before = Session::new(&db);
        run(&mut before, "BEGIN; SELECT a FROM t").await;
        faults.faults().fail_sync_in.store(1, Ordering::SeqCst);
        assert_eq!(fails(&mut session, ddl).await, "58030", "{ddl}");
        for sql in ["SELECT a FROM t", "SELECT count(*) FROM t", "SELECT table_name FROM information_schema.tables"] {
            for begin in ["", "BEGIN; "] {
                let mut session = Session::new(&db);
                assert_eq!(fails(&mut session, &format!("{begin}{sql}")).await, "58030", "{ddl}, {sql}");
            }
        }
        assert_eq!(run(&mut before, "SELECT a FROM t").await[0].row_count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_of_a_sequence_is_shown_once_it_will_not_come_again() {
    for begin in ["SELECT 1", "BEGIN"] {
        for (sql, streams) in [
            ("SELECT nextval('s')", false),
            ("SELECT nextval('s')", true),
            ("SELECT nextval('s') FROM generate_series(1, 3) AS g (x)", true),
            ("SELECT setval('s', 100)", false),
            ("COPY (SELECT nextval('s')) TO STDOUT", false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let (db, faults) = faulty(&folder);
            let mut session = Session::new(&db);
            run(&mut session, "CREATE SEQUENCE s").await;
            run(&mut session, begin).await;
            let written = Written::default();
            session.set_copy_output(Box::new(written.clone()));
            faults.faults().fail_sync_in.store(1, Ordering::SeqCst);
            if streams {
                let select = serac_sql::parse(sql).unwrap().pop().unwrap();
                match session.stream_statement(select).await {
                    Err(error) => assert_eq!(error.sqlstate, "58030", "{begin}; {sql}"),
                    Ok(StatementStream::Rows(mut rows)) => {
                        assert_eq!(rows.next().await.unwrap_err().sqlstate, "58030", "{begin}; {sql}");
                    }
                    Ok(other) => panic!("{other:?}"),
                }
            } else {
                assert_eq!(fails(&mut session, sql).await, "58030", "{begin}; {sql}");
            }
            assert_eq!(*written.0.lock(), b"", "{begin}; {sql}");
            // The next value of the same reservation must not be shown either.
            assert_eq!(fails(&mut Session::new(&db), "SELECT nextval('s')").await, "58030", "{begin}; {sql}");
        }
    }
}

/// The first value of a statement's rows, as text.
async fn shown(session: &mut Session, sql: &str) -> String {
    match run(session, sql).await.pop() {
        Some(StatementResult::Rows { batches, .. }) => {
            ScalarValue::try_from_array(batches[0].column(0), 0).unwrap().to_string()
        }
        other => panic!("{sql}: {other:?}"),
    }
}

/// The results of PostgreSQL 15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_leads_back_to_roles_and_settings() {
    let db = in_memory();
    let mut session = Session::new(&db);
    run(&mut session, "CREATE ROLE a; CREATE ROLE b; CREATE TABLE secret (x INTEGER)").await;
    let (user, timeout) = ("SELECT current_user", "SHOW statement_timeout");
    let level = "SHOW default_transaction_isolation";
    for (before, sql, asked, inside, after) in [
        ("SET ROLE a", "SAVEPOINT s; RESET ROLE; ROLLBACK TO s", user, "a", "a"),
        ("SET ROLE a", "SAVEPOINT s; RESET ROLE; RELEASE s", user, "serac", "serac"),
        ("", "SET ROLE a; SAVEPOINT s; SET LOCAL ROLE b; ROLLBACK TO s", user, "a", "a"),
        ("", "SET LOCAL ROLE a; SAVEPOINT s; SET ROLE b; ROLLBACK TO s", user, "a", "serac"),
        ("", "SAVEPOINT s; SET SESSION AUTHORIZATION b; ROLLBACK TO s", "SELECT session_user", "serac", "serac"),
        ("", "SAVEPOINT r; SET ROLE a; SAVEPOINT s; SET ROLE b; ROLLBACK TO s; ROLLBACK TO r", user, "serac", "serac"),
        (
            "",
            "SET LOCAL statement_timeout = 1000; SAVEPOINT s; SET statement_timeout = 2000; ROLLBACK TO s",
            timeout,
            "1s",
            "0",
        ),
        ("", "SAVEPOINT s; SET lock_timeout = 3000; ROLLBACK TO s", "SHOW lock_timeout", "0", "0"),
        (
            "",
            "SET statement_timeout = 1000; SAVEPOINT s; SET LOCAL statement_timeout = 2000; ROLLBACK TO s",
            timeout,
            "1s",
            "1s",
        ),
        ("", "SAVEPOINT s; SET statement_timeout = 1000; RELEASE s", timeout, "1s", "1s"),
        ("", "SAVEPOINT s; SET search_path = pg_catalog; ROLLBACK TO s", "SHOW search_path", "public", "public"),
        (
            "",
            "SAVEPOINT s; SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY, ISOLATION LEVEL SERIALIZABLE; ROLLBACK TO s",
            level,
            "repeatable read",
            "repeatable read",
        ),
        (
            "",
            "SELECT set_config('application_name', 'x', false); SAVEPOINT s; SELECT set_config('application_name', 'y', false); ROLLBACK TO s",
            "SHOW application_name",
            "x",
            "x",
        ),
    ] {
        run(&mut session, &format!("SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; RESET ALL; {before}; BEGIN; {sql}"))
            .await;
        assert_eq!(shown(&mut session, asked).await, inside, "{before}; {sql}");
        run(&mut session, "COMMIT").await;
        assert_eq!(shown(&mut session, asked).await, after, "{before}; {sql}; COMMIT");
    }
    // After an error, too; and the role counts, it is not only shown.
    run(&mut session, "RESET ALL; SET ROLE a; BEGIN; SAVEPOINT s; RESET ROLE").await;
    run(&mut session, "SELECT x FROM secret").await;
    assert_eq!(fails(&mut session, "SELECT 1 / 0").await, "22012");
    run(&mut session, "ROLLBACK TO s").await;
    assert_eq!(fails(&mut session, "SELECT x FROM secret").await, "42501");
    assert_eq!(
        fails(&mut session, "ROLLBACK; BEGIN; SAVEPOINT s; RESET ROLE; ROLLBACK TO s; DROP TABLE secret").await,
        "42501"
    );
    run(&mut session, "ROLLBACK; RESET ROLE").await;
    // A rollback restores the old value, even if the new one was set for all transactions to come.
    run(&mut session, "BEGIN; SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE; ROLLBACK").await;
    assert_eq!(shown(&mut session, level).await, "repeatable read");
}

/// Statements whose futures are dropped when they have already changed rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_half_way_leaves_nothing() {
    let db = in_memory();
    let (mut session, mut other) = (Session::new(&db), Session::new(&db));
    run(&mut session, "CREATE TABLE t (a INTEGER PRIMARY KEY); PREPARE p AS INSERT INTO t VALUES ($1)").await;
    run(&mut other, "SELECT pg_advisory_lock(7)").await;
    let waits = "pg_advisory_lock(7)";
    let statements = [
        format!("INSERT INTO t VALUES (1), (2) RETURNING {waits}"),
        format!("WITH i AS (INSERT INTO t VALUES (1) RETURNING a) SELECT a, {waits} FROM i"),
        "ingest".to_owned(),
    ];
    for begin in ["", "BEGIN", "BEGIN; SAVEPOINT s"] {
        for sql in &statements {
            for end in ["SELECT 1", "COMMIT", "BEGIN; COMMIT"] {
                run(&mut session, begin).await;
                let moment = Duration::from_millis(100);
                let is_over = if sql == "ingest" {
                    let batch =
                        RecordBatch::try_from_iter([("a", Arc::new(Int32Array::from(vec![1, 2])) as _)]).unwrap();
                    let schema = batch.schema();
                    let batches = futures::stream::iter([Ok(batch)]).chain(futures::stream::pending());
                    let target = IngestTarget { table: "t".into(), ..IngestTarget::default() };
                    tokio::time::timeout(moment, session.ingest(&target, &schema, batches)).await.is_ok()
                } else {
                    tokio::time::timeout(moment, session.execute(sql)).await.is_ok()
                };
                assert!(!is_over, "it waits: {sql}");
                // Its rows are not locked.
                let own = if begin.is_empty() { TransactionStatus::Idle } else { TransactionStatus::Failed };
                assert_eq!(session.transaction_status(), own, "{begin}; {sql}");
                run(&mut other, "INSERT INTO t VALUES (1); DELETE FROM t").await;
                // An error of the transaction like any other.
                let _ = session.execute(end).await;
                session.rollback();
                assert_eq!(count(&mut other).await, 0, "{begin}; {sql}; {end}");
            }
        }
    }
    // It has not removed other objects either.
    run(&mut session, "EXECUTE p(5); EXECUTE p(6)").await;
    run(&mut other, "BEGIN; UPDATE t SET a = 7 WHERE a = 6").await;
    run(
        &mut session,
        "PREPARE u AS UPDATE t SET a = 8 WHERE a = $1; SET default_transaction_isolation = 'read committed'",
    )
    .await;
    for _ in 0..3 {
        let waiting = tokio::time::timeout(Duration::from_millis(50), session.execute("EXECUTE u(6)")).await;
        assert!(waiting.is_err(), "it waits");
    }
    run(&mut other, "ROLLBACK").await;
    run(&mut session, "EXECUTE u(6)").await;
    assert_eq!(count(&mut other).await, 2);
}

/// A failed transaction without a savepoint cannot continue: its locks are free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_transaction_is_in_nobodys_way() {
    let db = in_memory();
    let (mut session, mut other) = (Session::new(&db), Session::new(&db));
    run(&mut session, "CREATE TABLE t (a INTEGER PRIMARY KEY)").await;
    run(&mut session, "BEGIN; INSERT INTO t VALUES (1); CREATE TABLE u (a INTEGER); SELECT pg_advisory_xact_lock(5)")
        .await;
    assert_eq!(fails(&mut other, "ALTER TABLE t ADD COLUMN b INTEGER").await, "55006");
    assert_eq!(shown(&mut other, "SELECT pg_try_advisory_lock(5)").await, "false");
    assert_eq!(fails(&mut session, "SELECT 1 / 0").await, "22012");
    run(&mut other, "ALTER TABLE t ADD COLUMN b INTEGER; CREATE TABLE u (b INTEGER)").await;
    assert_eq!(shown(&mut other, "SELECT pg_try_advisory_lock(5)").await, "true");
    assert_eq!(fails(&mut session, "SELECT 1").await, "25P02");
    run(&mut session, "ROLLBACK; INSERT INTO t VALUES (1, 2)").await;
    // A transaction that can roll back to a savepoint keeps its locks.
    run(&mut session, "BEGIN; INSERT INTO t VALUES (2, 2); SAVEPOINT s").await;
    assert_eq!(fails(&mut session, "SELECT 1 / 0").await, "22012");
    assert_eq!(fails(&mut other, "ALTER TABLE t ADD COLUMN c INTEGER").await, "55006");
    run(&mut session, "ROLLBACK TO s; COMMIT").await;
    assert_eq!(count(&mut session).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_statement_cannot_execute_itself() {
    let mut session = Session::new(&in_memory());
    assert_eq!(fails(&mut session, "PREPARE p AS EXECUTE p").await, "42601");
    assert_eq!(fails(&mut session, "EXECUTE p").await, "26000");
}
