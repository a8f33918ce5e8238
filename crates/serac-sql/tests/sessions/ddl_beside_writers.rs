//! DDL beside sessions that write without a pause: it gets through, and no row is lost.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const WRITERS: i64 = 2;

async fn number(session: &mut Session, sql: &str) -> i64 {
    match session.execute(sql).await.unwrap().pop() {
        Some(StatementResult::Rows { batches, .. }) => batches[0].column(0).as_primitive::<Int64Type>().value(0),
        other => panic!("{other:?}"),
    }
}

/// Inserts rows until it is told to stop, each in a transaction of its own. Returns how many there
/// are.
async fn write(db: SqlDatabase, writer: i64, stop: Arc<AtomicBool>) -> i64 {
    let (mut session, mut rows) = (Session::new(&db), 0);
    while !stop.load(Ordering::Relaxed) {
        match session.execute(&format!("INSERT INTO t (writer, n) VALUES ({writer}, {rows})")).await {
            Ok(_) => rows += 1,
            // DDL was faster.
            Err(error) => assert!(["40001", "55006"].contains(&error.sqlstate), "{error}"),
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn ddl_gets_through_beside_writers_and_keeps_their_rows() {
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE t (writer BIGINT, n BIGINT, PRIMARY KEY (writer, n))").await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(db.clone(), writer, stop.clone()))).collect();
    for round in 0..5 {
        for sql in [
            format!("ALTER TABLE t ADD COLUMN extra{round} BIGINT DEFAULT 7"),
            format!("CREATE UNIQUE INDEX t_index{round} ON t (n, writer)"),
            format!("ALTER TABLE t ADD CONSTRAINT t_check{round} CHECK (n >= 0)"),
            format!("CREATE TABLE copy{round} AS SELECT * FROM t"),
            format!("ALTER TABLE t DROP COLUMN extra{round}"),
            format!("DROP INDEX t_index{round}"),
        ] {
            session.execute(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for (writer, task) in (0..).zip(writers) {
        let rows = task.await.unwrap();
        assert!(rows > 0, "writer {writer} got through too");
        let distinct = format!("SELECT count(DISTINCT n) FROM t WHERE writer = {writer}");
        assert_eq!(number(&mut session, &distinct).await, rows);
        let by_key = format!("SELECT count(*) FROM t WHERE writer = {writer} AND n = {}", rows - 1);
        assert_eq!(number(&mut session, &by_key).await, 1);
    }

    // In a transaction that BEGIN opened, the snapshot stays: there it is a conflict.
    let mut other = Session::new(&db);
    session.execute("BEGIN").await.unwrap();
    other.execute("INSERT INTO t VALUES (9, 9)").await.unwrap();
    let error = session.execute("ALTER TABLE t ADD COLUMN late BIGINT").await.unwrap_err();
    assert_eq!(error.sqlstate, "40001");
}
