//! Advisory locks between sessions.

use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// An end that comes at all comes sooner.
const SOON: Duration = Duration::from_secs(20);
/// A waiter has begun to wait by then.
const MOMENT: Duration = Duration::from_millis(50);

fn database() -> SqlDatabase {
    let options = SqlOptions { threads: Some(1), ..Default::default() };
    SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap()
}

/// The first value of the last result, as it is shown.
async fn run(session: &mut Session, sql: &str) -> Result<String, &'static str> {
    let run = tokio::time::timeout(SOON, session.execute(sql)).await.unwrap_or_else(|_| panic!("{sql} never ends"));
    match run.map_err(|error| error.sqlstate)?.pop() {
        Some(StatementResult::Rows { batches, .. }) => {
            let column = batches.iter().find(|batch| batch.num_rows() > 0).map(|batch| batch.column(0).clone());
            let shown = |column| datafusion::arrow::util::display::array_value_to_string(&column, 0).unwrap();
            Ok(column.map_or_else(String::new, shown))
        }
        _ => Ok(String::new()),
    }
}
async fn ok(session: &mut Session, sql: &str) -> String {
    run(session, sql).await.unwrap_or_else(|sqlstate| panic!("{sql}: {sqlstate}"))
}

/// Runs a statement that has to wait.
async fn waits(mut session: Session, sql: &'static str) -> JoinHandle<(Session, Result<String, &'static str>)> {
    let task = tokio::spawn(async move {
        let result = run(&mut session, sql).await;
        (session, result)
    });
    tokio::time::sleep(MOMENT).await;
    assert!(!task.is_finished(), "{sql} waits");
    task
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exclusive_and_shared_locks_of_sessions() {
    let db = database();
    let (mut one, mut two) = (Session::new(&db), Session::new(&db));
    ok(&mut one, "SELECT pg_advisory_lock(1), pg_advisory_lock(1), pg_advisory_lock_shared(7, -8)").await;
    assert_eq!(ok(&mut two, "SELECT pg_try_advisory_lock(1)").await, "false");
    assert_eq!(ok(&mut two, "SELECT pg_try_advisory_lock_shared(1)").await, "false");
    assert_eq!(ok(&mut two, "SELECT pg_try_advisory_lock(0, 1)").await, "true", "two numbers are not one");
    assert_eq!(ok(&mut two, "SELECT pg_try_advisory_lock_shared(7, -8)").await, "true");
    assert_eq!(ok(&mut two, "SELECT pg_try_advisory_lock(7, -8)").await, "false", "there are two that share it");
    assert_eq!(ok(&mut two, "SELECT pg_advisory_unlock(1)").await, "false", "it is not its own");
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    assert_eq!(ok(&mut two, held).await, "4");
    // Taken twice, it is given back twice.
    assert_eq!(ok(&mut one, "SELECT pg_advisory_unlock(1)").await, "true");
    let waiting = waits(two, "SELECT pg_advisory_lock(1)").await;
    assert_eq!(ok(&mut one, "SELECT pg_advisory_unlock(1)").await, "true");
    let (mut two, result) = waiting.await.unwrap();
    assert_eq!(result, Ok(String::new()));
    assert_eq!(ok(&mut one, "SELECT pg_advisory_unlock(1)").await, "false");
    // A rollback keeps the sessions' own locks, and NULL locks nothing.
    ok(&mut two, "BEGIN; SELECT pg_advisory_lock(2); ROLLBACK; SELECT pg_advisory_lock(NULL::BIGINT)").await;
    assert_eq!(ok(&mut one, "SELECT pg_try_advisory_lock(2)").await, "false");
    assert_eq!(run(&mut one, "SELECT pg_advisory_lock(1, 5000000000)").await, Err("42883"));
    ok(&mut two, "SELECT pg_advisory_unlock_all()").await;
    assert_eq!(ok(&mut one, "SELECT pg_try_advisory_lock(2)").await, "true");
    // A session that ends releases all of its locks.
    let waiting = waits(two, "SELECT pg_advisory_lock(2)").await;
    drop(one);
    let (mut two, result) = waiting.await.unwrap();
    assert_eq!(result, Ok(String::new()));
    ok(&mut two, "DISCARD ALL").await;
    assert_eq!(ok(&mut two, held).await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_transactions_go_once_what_they_did_is_there() {
    let db = database();
    let (mut one, mut two) = (Session::new(&db), Session::new(&db));
    ok(&mut one, "CREATE TABLE t (v INT); BEGIN; SELECT pg_advisory_xact_lock(1); INSERT INTO t VALUES (1)").await;
    assert_eq!(ok(&mut one, "SELECT pg_advisory_unlock(1)").await, "false", "it is the transaction's");
    assert_eq!(ok(&mut two, "SELECT pg_try_advisory_xact_lock(1)").await, "false");
    let waiting = waits(two, "SELECT pg_advisory_xact_lock(1); SELECT count(*) FROM t").await;
    ok(&mut one, "COMMIT").await;
    let (mut two, result) = waiting.await.unwrap();
    assert_eq!(result, Ok("1".into()));
    // Outside of a block it was released with its statement; in a failed one, with the failure.
    assert_eq!(ok(&mut one, "SELECT pg_try_advisory_lock(1), pg_advisory_unlock(1)").await, "true");
    ok(&mut two, "BEGIN; SELECT pg_advisory_xact_lock_shared(1)").await;
    assert_eq!(ok(&mut one, "SELECT pg_try_advisory_lock(1)").await, "false");
    // As in PostgreSQL, before the ROLLBACK.
    assert_eq!(run(&mut two, "SELECT 1 / 0").await, Err("22012"));
    assert_eq!(ok(&mut one, "SELECT pg_try_advisory_lock(1)").await, "true");
    ok(&mut two, "ROLLBACK").await;
    // Waiting ends with its statement.
    ok(&mut two, "SET statement_timeout = '50ms'").await;
    assert_eq!(run(&mut two, "SELECT pg_advisory_lock(1)").await, Err("57014"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_would_wait_for_itself_fails() {
    let db = database();
    let (mut one, mut two, mut three) = (Session::new(&db), Session::new(&db), Session::new(&db));
    ok(&mut one, "SELECT pg_advisory_lock(1)").await;
    ok(&mut two, "SELECT pg_advisory_lock(2)").await;
    ok(&mut three, "BEGIN; SELECT pg_advisory_xact_lock(3)").await;
    let first = waits(one, "SELECT pg_advisory_lock_shared(2)").await;
    let second = waits(two, "SELECT pg_advisory_lock(3)").await;
    assert_eq!(run(&mut three, "SELECT pg_advisory_lock(1)").await, Err("40P01"));
    ok(&mut three, "ROLLBACK").await;
    let (two, result) = second.await.unwrap();
    assert_eq!(result, Ok(String::new()));
    drop(two);
    assert_eq!(first.await.unwrap().1, Ok(String::new()));
}

/// Sessions that count up under a lock, a part of them under transaction locks: no session sees
/// another in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_is_inside_at_a_time() {
    let db = database();
    let (inside, entered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicI64::new(0)));
    let tasks: Vec<_> = (0..6)
        .map(|number| {
            let (db, inside, entered) = (db.clone(), inside.clone(), entered.clone());
            tokio::spawn(async move {
                let mut session = Session::new(&db);
                for _ in 0..20 {
                    let of_transaction = number % 2 == 0;
                    let (begin, end) = match of_transaction {
                        true => ("BEGIN; SELECT pg_advisory_xact_lock(5)", "COMMIT"),
                        false => ("SELECT pg_advisory_lock(5)", "SELECT pg_advisory_unlock(5)"),
                    };
                    ok(&mut session, begin).await;
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    entered.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    ok(&mut session, end).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(entered.load(Ordering::SeqCst), 120);
}

/// Beside rows found by their keys, too, where statements are compiled once they are known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_statements_wait_for_locks() {
    let db = database();
    let (mut session, mut other) = (Session::new(&db), Session::new(&db));
    ok(&mut session, "CREATE TABLE t (a BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    ok(&mut session, "PREPARE p AS SELECT pg_advisory_lock(a) FROM t WHERE a = $1").await;
    for a in 2..5 {
        ok(&mut session, "SELECT pg_advisory_lock(a) FROM t WHERE a = 1").await;
        ok(&mut session, &format!("INSERT INTO t VALUES ({a}) RETURNING pg_advisory_lock(1)")).await;
        ok(&mut session, "EXECUTE p(1)").await;
    }
    assert_eq!(ok(&mut other, "SELECT pg_try_advisory_lock(1)").await, "false");
}
