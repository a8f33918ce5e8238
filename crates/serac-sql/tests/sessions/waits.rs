//! Statements that meet a row of a running transaction: they wait for its end, in turn, or fail as
//! they are told to.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use serac_engine::Database;
use serac_sql::activity::Client;
use serac_sql::{Rows, Session, SqlDatabase, SqlOptions, Start, StatementResult, StatementStream, TransactionStatus};
use serac_storage::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The end of a statement, if it comes at all, comes sooner. Of many statements, each has this
/// time, also on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// A waiter has begun to wait by then.
const MOMENT: Duration = Duration::from_millis(50);

async fn database(sql: &str) -> SqlDatabase {
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions { threads: Some(1), ..Default::default() });
    let db = db.unwrap();
    Session::new(&db).execute(sql).await.unwrap();
    db
}

const ROWS: &str =
    "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT NOT NULL); INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)";

async fn run(session: &mut Session, sql: &str) -> Result<Vec<StatementResult>, &'static str> {
    let run = tokio::time::timeout(SOON, session.execute(sql)).await.unwrap_or_else(|_| panic!("{sql} never ends"));
    run.map_err(|error| error.sqlstate)
}
async fn ok(session: &mut Session, sql: &str) {
    run(session, sql).await.unwrap_or_else(|sqlstate| panic!("{sql}: {sqlstate}"));
}
/// The numbers in the first column.
async fn numbers(session: &mut Session, sql: &str) -> Vec<i64> {
    match run(session, sql).await.unwrap().pop() {
        Some(StatementResult::Rows { batches, .. }) => {
            batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Waits until a query gives one number.
async fn until(session: &mut Session, sql: &str, wanted: i64) {
    let begin = Instant::now();
    while numbers(session, sql).await != [wanted] {
        assert!(begin.elapsed() < SOON, "{sql} is not {wanted}");
        tokio::time::sleep(MOMENT).await;
    }
}

type Waiting = JoinHandle<(Session, Result<(), &'static str>)>;

/// Runs a statement that has to wait.
async fn waits(mut session: Session, sql: &str) -> Waiting {
    let sql = sql.to_owned();
    let task = tokio::spawn(async move {
        let result = run(&mut session, &sql).await.map(|_| ());
        (session, result)
    });
    tokio::time::sleep(MOMENT).await;
    assert!(!task.is_finished(), "it waits");
    task
}

/// Ways to run statements: planned; as a text that is known; prepared.
const WAYS: [&str; 3] = ["SET enable_point_path = off", "SELECT v FROM t WHERE id = 0", ""];

async fn session(db: &SqlDatabase, way: &str, begin: &str) -> Session {
    let mut session = Session::new(db);
    ok(&mut session, way).await;
    ok(&mut session, begin).await;
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_goes_on_from_what_the_holder_has_left() {
    for way in WAYS {
        for begin in ["SET default_transaction_isolation = 'read committed'", "BEGIN ISOLATION LEVEL READ COMMITTED"] {
            for (end, left) in [("COMMIT", 15), ("ROLLBACK", 10)] {
                let db = database(ROWS).await;
                let mut holder = session(&db, way, "BEGIN").await;
                ok(&mut holder, "UPDATE t SET v = v + 5 WHERE id = 1").await;
                let mut other = session(&db, way, begin).await;
                // Its like has been seen before, so that this is for the point path.
                for id in [2, 3] {
                    ok(&mut other, &format!("UPDATE t SET v = v + 100 WHERE id = {id}")).await;
                }
                let waiting = waits(other, "UPDATE t SET v = v + 100 WHERE id = 1").await;
                ok(&mut holder, end).await;
                let (mut other, result) = waiting.await.unwrap();
                assert_eq!(result, Ok(()), "{way}, {begin}, {end}");
                ok(&mut other, "COMMIT").await;
                let values = numbers(&mut holder, "SELECT v FROM t ORDER BY id").await;
                assert_eq!(values, [left + 100, 120, 130], "{way}, {begin}, {end}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_statement_waits() {
    let db = database(ROWS).await;
    let mut holder = session(&db, "", "BEGIN; UPDATE t SET v = 11 WHERE id = 1").await;
    let mut other = session(&db, "", "SET default_transaction_isolation = 'read committed'").await;
    let task = tokio::spawn(async move {
        let mut update = other.prepare("UPDATE t SET v = v * 2 WHERE id = $1 RETURNING v").unwrap();
        let mut rows = Rows::default();
        // Without waiting there is no result.
        assert_eq!(other.run_prepared(&mut update, &[Value::Int64(1)], &mut rows).unwrap(), None);
        assert_eq!(other.transaction_status(), TransactionStatus::Idle);
        let one = [Value::Int64(1)];
        let Start::Blocked(blocked) = other.start_prepared(&mut update, &one, &mut rows).unwrap() else {
            panic!("the row is held")
        };
        let ran = other.resume_prepared(blocked, &mut update, &one, &mut rows).await.unwrap();
        ran.unwrap().durable().await.unwrap();
        assert_eq!(rows.value(0, 0), Value::Int64(22));
    });
    tokio::time::sleep(MOMENT).await;
    assert!(!task.is_finished());
    ok(&mut holder, "COMMIT").await;
    tokio::time::timeout(SOON, task).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_would_close_a_circle_fails_and_the_others_go_on() {
    for way in WAYS {
        let db = database(ROWS).await;
        let mut sessions = Vec::new();
        for id in 1..=3 {
            let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED; UPDATE t SET v = v + 1 WHERE id = {id}");
            sessions.push(session(&db, way, &begin).await);
        }
        let mut third = sessions.pop().unwrap();
        let second = waits(sessions.pop().unwrap(), "UPDATE t SET v = v + 10 WHERE id = 3").await;
        let first = waits(sessions.pop().unwrap(), "UPDATE t SET v = v + 10 WHERE id = 2").await;
        let error = third.execute("UPDATE t SET v = v + 10 WHERE id = 1").await.unwrap_err();
        assert_eq!((error.sqlstate, error.message.as_str()), ("40P01", "deadlock detected"));
        assert_eq!(third.transaction_status(), TransactionStatus::Failed);
        // Its locks are free already.
        for waiting in [second, first] {
            let (mut session, result) = waiting.await.unwrap();
            assert_eq!(result, Ok(()));
            ok(&mut session, "COMMIT").await;
        }
        ok(&mut third, "ROLLBACK").await;
        assert_eq!(numbers(&mut third, "SELECT v FROM t ORDER BY id").await, [11, 31, 40]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_ends_when_it_is_told_to() {
    for way in WAYS {
        let db = database(ROWS).await;
        let mut holder = session(&db, way, "BEGIN; UPDATE t SET v = 0 WHERE id = 1").await;
        let update = "UPDATE t SET v = v + 1 WHERE id = 1";
        for (limit, sqlstate) in [("SET lock_timeout = '60ms'", "55P03"), ("SET statement_timeout = 60", "57014")] {
            let mut other = session(&db, way, "SET default_transaction_isolation = 'read committed'").await;
            ok(&mut other, limit).await;
            let started = Instant::now();
            assert_eq!(run(&mut other, update).await.map(|_| ()), Err(sqlstate), "{limit}");
            assert!(started.elapsed() >= MOMENT);
            assert_eq!(run(&mut other, update).await.map(|_| ()), Err(sqlstate), "{limit}");
            // It goes on with other rows.
            ok(&mut other, "UPDATE t SET v = v + 1 WHERE id = 2").await;
        }
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
        let first = session(&db, way, begin).await;
        let cancel = first.cancel_handle();
        let first = waits(first, update).await;
        let second = waits(session(&db, way, begin).await, update).await;
        cancel.cancel();
        let (first, result) = first.await.unwrap();
        assert_eq!(result, Err("57014"));
        assert_eq!(first.transaction_status(), TransactionStatus::Failed);
        // A session that goes away in the middle gives its place up, too.
        let third = waits(session(&db, way, begin).await, update).await;
        second.abort();
        assert!(second.await.is_err_and(|error| error.is_cancelled()));
        ok(&mut holder, "COMMIT").await;
        let (mut third, result) = third.await.unwrap();
        assert_eq!(result, Ok(()));
        ok(&mut third, "COMMIT").await;
        assert_eq!(numbers(&mut holder, "SELECT v FROM t ORDER BY id").await, [1, 22, 30]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_handed_over_and_not_taken_is_passed_on() {
    for way in WAYS {
        let db = database(ROWS).await;
        let mut holder = session(&db, way, "BEGIN; UPDATE t SET v = 0 WHERE id = 1").await;
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
        let mut waiting = Vec::new();
        for condition in ["v > 0", "v > 0", "v >= 0", "v >= 0"] {
            let sql = format!("UPDATE t SET v = v + 1 WHERE id = 1 AND {condition}");
            waiting.push(waits(session(&db, way, begin).await, &sql).await);
        }
        ok(&mut holder, "COMMIT").await;
        // The first two find nothing to do any more; their transactions stay open all the same.
        let fourth = waiting.pop().unwrap();
        let mut open = Vec::new();
        for task in waiting {
            let (session, result) = tokio::time::timeout(SOON, task).await.expect("nobody is in the way").unwrap();
            assert_eq!(result, Ok(()));
            open.push(session);
        }
        tokio::time::sleep(MOMENT).await;
        assert!(!fourth.is_finished(), "the third has the row");
        ok(open.last_mut().unwrap(), "COMMIT").await;
        let (mut fourth, result) = fourth.await.unwrap();
        assert_eq!(result, Ok(()));
        ok(&mut fourth, "COMMIT").await;
        assert_eq!(numbers(&mut holder, "SELECT v FROM t WHERE id = 1").await, [2]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_change_one_row_and_none_fails_nor_is_lost() {
    const SESSIONS: i64 = 16;
    const TIMES: i64 = 40;
    for way in WAYS {
        let db = database(ROWS).await;
        let conflicts = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for number in 0..SESSIONS {
            let mut session = session(&db, way, "SET default_transaction_isolation = 'read committed'").await;
            let conflicts = conflicts.clone();
            tasks.push(tokio::spawn(async move {
                for time in 0..TIMES {
                    let update = "UPDATE t SET v = v + 1 WHERE id = 1";
                    match (number + time) % 3 {
                        0 => ok(&mut session, update).await,
                        1 => {
                            for sql in ["BEGIN", update] {
                                ok(&mut session, sql).await;
                            }
                            tokio::task::yield_now().await;
                            ok(&mut session, "COMMIT").await;
                        }
                        // A rolled-back change has no effect.
                        _ => {
                            for sql in ["BEGIN", "UPDATE t SET v = v + 1000 WHERE id = 1"] {
                                ok(&mut session, sql).await;
                            }
                            tokio::task::yield_now().await;
                            ok(&mut session, "ROLLBACK").await;
                            ok(&mut session, update).await;
                        }
                    }
                    conflicts.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let mut session = Session::new(&db);
        assert_eq!(conflicts.load(Ordering::Relaxed) as i64, SESSIONS * TIMES);
        assert_eq!(numbers(&mut session, "SELECT v FROM t WHERE id = 1").await, [10 + SESSIONS * TIMES]);
    }
}

/// A key that comes and goes is never a duplicate to INSERT … ON CONFLICT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_insert_and_delete_one_key_and_none_meets_a_duplicate() {
    const SESSIONS: i64 = 4;
    const TIMES: i64 = 40;
    for way in WAYS {
        for action in ["(id) DO UPDATE SET v = t.v + 1", "(id) DO NOTHING", "DO NOTHING"] {
            let db = database(ROWS).await;
            let mut tasks = Vec::new();
            for number in 0..SESSIONS {
                let mut session = session(&db, way, "SET default_transaction_isolation = 'read committed'").await;
                let insert = format!("INSERT INTO t VALUES (1, 0) ON CONFLICT {action}");
                tasks.push(tokio::spawn(async move {
                    for time in 0..TIMES {
                        let sql = if (number + time) % 3 == 0 { "DELETE FROM t WHERE id = 1" } else { &insert };
                        // On a busy machine, other sessions may be first for too long.
                        while let Err(sqlstate) = run(&mut session, sql).await {
                            assert_eq!(sqlstate, "40001", "{sql}");
                        }
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
            let left = numbers(&mut Session::new(&db), "SELECT count(*) FROM t WHERE id = 1").await;
            assert!(left[0] <= 1, "{way}, {action}: {left:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_in_any_order_deadlock_or_succeed_and_keep_the_sum() {
    let db = database(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT NOT NULL); \
         INSERT INTO t SELECT value, 100 FROM generate_series(0, 3) AS s (value)",
    )
    .await;
    let done = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for number in 0..8u64 {
        let (mut session, done) = (session(&db, "", "").await, done.clone());
        tasks.push(tokio::spawn(async move {
            for time in 0..40 {
                let (from, to) = ((number * 7 + time * 5) % 4, (number * 3 + time * 11 + 1) % 4);
                ok(&mut session, "BEGIN ISOLATION LEVEL READ COMMITTED").await;
                let mut result = Ok(());
                for sql in [
                    format!("UPDATE t SET v = v - 1 WHERE id = {from}"),
                    format!("UPDATE t SET v = v + 1 WHERE id = {to}"),
                ] {
                    if result.is_ok() {
                        result = run(&mut session, &sql).await.map(|_| ());
                        tokio::task::yield_now().await;
                    }
                }
                assert!(matches!(result, Ok(()) | Err("40P01")), "{result:?}");
                done.fetch_add(usize::from(result.is_ok()), Ordering::Relaxed);
                ok(&mut session, if result.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(done.load(Ordering::Relaxed) > 40, "{done:?} transfers");
    assert_eq!(numbers(&mut Session::new(&db), "SELECT sum(v)::bigint FROM t").await, [400]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_wait_at_every_level_unless_they_are_not_to() {
    for way in WAYS {
        for (change, end, result) in [
            ("UPDATE t SET v = 0 WHERE id = 1", "COMMIT", Err("40001")),
            ("UPDATE t SET v = 0 WHERE id = 1", "ROLLBACK", Ok(())),
            ("SELECT v FROM t WHERE id = 1 FOR NO KEY UPDATE", "ROLLBACK", Ok(())),
        ] {
            let db = database(ROWS).await;
            let mut holder = session(&db, way, "BEGIN").await;
            ok(&mut holder, change).await;
            let mut other = session(&db, way, "BEGIN").await;
            assert_eq!(numbers(&mut other, "SELECT v FROM t WHERE id = 1").await, [10]);
            let waiting = waits(other, "SELECT v FROM t WHERE id = 1 FOR KEY SHARE").await;
            ok(&mut holder, end).await;
            assert_eq!(waiting.await.unwrap().1, result, "{way}, {change}, {end}");
        }
        let db = database(ROWS).await;
        let mut holder = session(&db, way, "BEGIN; SELECT v FROM t WHERE id = 1 FOR UPDATE").await;
        let mut other = session(&db, way, "SET default_transaction_isolation = 'read committed'").await;
        for _ in 0..2 {
            let nowait = run(&mut other, "SELECT v FROM t WHERE id = 1 FOR UPDATE NOWAIT").await;
            assert_eq!(nowait.map(|_| ()), Err("55P03"));
            let skipped = "SELECT v FROM t WHERE id >= 1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
            assert_eq!(numbers(&mut other, skipped).await, [20]);
            let skipped = "SELECT id * 100 AS job FROM t AS x WHERE x.v > 0 ORDER BY x.v DESC LIMIT 2 OFFSET 1 FOR SHARE SKIP LOCKED";
            assert_eq!(numbers(&mut other, skipped).await, [200]);
        }
        ok(&mut holder, "COMMIT").await;
        let all = "SELECT v FROM t WHERE id >= 1 ORDER BY id FOR UPDATE SKIP LOCKED";
        assert_eq!(numbers(&mut other, all).await, [10, 20, 30]);
    }
}

/// Workers that take from a queue: each job is done once, and no worker waits for another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_worked_off() {
    for way in WAYS {
        let db = database(
            "CREATE TABLE jobs (id BIGINT PRIMARY KEY, done BIGINT NOT NULL); \
             CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT); \
             INSERT INTO jobs SELECT value, 0 FROM generate_series(1, 60) AS s (value)",
        )
        .await;
        let mut tasks = Vec::new();
        for _ in 0..6 {
            let mut session = session(&db, way, "SET default_transaction_isolation = 'read committed'").await;
            tasks.push(tokio::spawn(async move {
                loop {
                    ok(&mut session, "BEGIN").await;
                    let next =
                        "SELECT id FROM jobs WHERE id > 0 AND done = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
                    let jobs = numbers(&mut session, next).await;
                    let Some(job) = jobs.first() else { break };
                    tokio::task::yield_now().await;
                    ok(&mut session, &format!("UPDATE jobs SET done = done + 1 WHERE id = {job}")).await;
                    ok(&mut session, "COMMIT").await;
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let mut session = Session::new(&db);
        assert_eq!(numbers(&mut session, "SELECT count(*) FROM jobs WHERE done = 1").await, [60], "{way}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_parents_are_waited_for() {
    for way in WAYS {
        for (end, result) in [("COMMIT", Err("23505")), ("ROLLBACK", Ok(()))] {
            let db = database(ROWS).await;
            let mut holder = session(&db, way, "BEGIN; INSERT INTO t VALUES (4, 40)").await;
            let mut other = session(&db, way, "BEGIN ISOLATION LEVEL READ COMMITTED").await;
            for id in [5, 6] {
                ok(&mut other, &format!("INSERT INTO t VALUES ({id}, 0)")).await;
            }
            let waiting = waits(other, "INSERT INTO t VALUES (4, 41)").await;
            ok(&mut holder, end).await;
            assert_eq!(waiting.await.unwrap().1, result, "{way}, {end}");
        }
        for (end, result) in [("COMMIT", Err("23503")), ("ROLLBACK", Ok(()))] {
            let db = database(ROWS).await;
            ok(&mut Session::new(&db), "CREATE TABLE c (t BIGINT NOT NULL REFERENCES t (id))").await;
            let mut holder = session(&db, way, "BEGIN; INSERT INTO c VALUES (2)").await;
            let mut other = session(&db, way, "BEGIN ISOLATION LEVEL READ COMMITTED").await;
            for id in [1, 3] {
                ok(&mut other, &format!("DELETE FROM t WHERE id = {id}")).await;
            }
            let waiting = waits(other, "DELETE FROM t WHERE id = 2").await;
            ok(&mut holder, end).await;
            assert_eq!(waiting.await.unwrap().1, result, "{way}, {end}");
        }
    }
}

/// Sessions of clients of PostgreSQL wait at the other levels, too; embedded ones get the conflict
/// at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_waits_for_a_rollback_where_that_is_usual() {
    for way in WAYS {
        for begin in ["BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"] {
            for (end, result) in [("COMMIT", Err("40001")), ("ROLLBACK", Ok(()))] {
                let db = database(ROWS).await;
                let mut holder = session(&db, way, "BEGIN; UPDATE t SET v = v + 5 WHERE id = 1").await;
                let mut embedded = session(&db, way, begin).await;
                let update = "UPDATE t SET v = v + 100 WHERE id = 1";
                assert_eq!(run(&mut embedded, update).await.map(|_| ()), Err("40001"));
                ok(&mut embedded, "ROLLBACK").await;
                let mut other = session(&db, way, "").await;
                other.as_for_postgresql();
                ok(&mut other, begin).await;
                assert_eq!(numbers(&mut other, "SELECT v FROM t WHERE id = 2").await, [20]);
                let waiting = waits(other, update).await;
                ok(&mut holder, end).await;
                let (mut other, seen) = waiting.await.unwrap();
                assert_eq!(seen, result, "{way}, {begin}, {end}");
                if result.is_ok() {
                    ok(&mut other, "COMMIT").await;
                    assert_eq!(numbers(&mut other, "SELECT v FROM t WHERE id = 1").await, [110]);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_whom_can_be_seen() {
    let db = database(ROWS).await;
    let nothing = ("SELECT count(*) FROM serac_locks", "SELECT count(*) FROM pg_locks");
    let mut other = Session::new(&db);
    assert_eq!((numbers(&mut other, nothing.0).await, numbers(&mut other, nothing.1).await), (vec![0], vec![0]));
    let connect = || {
        let session = Session::new(&db);
        let registered = db.connections().enter(Client::default(), session.cancel_handle());
        (session, registered)
    };
    let ((mut holder, holds), (waiter, waits_there)) = (connect(), connect());
    ok(&mut holder, "BEGIN; UPDATE t SET v = v + 5 WHERE id = 2").await;
    let mut waiter = waiter;
    waiter.as_for_postgresql();
    let waiting = waits(waiter, "UPDATE t SET v = v + 5 WHERE id = 2").await;
    let here = format!(
        "FROM serac_locks WHERE pid = {} AND holder_pid = {} AND table_name = 't' AND schema_name = 'public'
         AND transaction <> holder_transaction AND waits_since <= clock_timestamp()",
        waits_there.process(),
        holds.process()
    );
    until(&mut other, &format!("SELECT count(*) {here}"), 1).await;
    assert_eq!(numbers(&mut other, &format!("SELECT slot {here}")).await, [1], "the second row");
    let granted =
        "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE c.relname = 't' AND tuple = 1";
    assert_eq!(numbers(&mut other, &format!("{granted} AND granted AND pid = {}", holds.process())).await, [1]);
    assert_eq!(
        numbers(&mut other, &format!("{granted} AND NOT granted AND pid = {}", waits_there.process())).await,
        [1]
    );
    let row = db.connections().rows().into_iter().find(|row| row.process == waits_there.process()).unwrap();
    assert!(row.transaction_number.is_some());
    // A role that may not read the table sees that a session waits, but not on which table.
    ok(&mut other, "CREATE ROLE nobody; SET ROLE nobody").await;
    assert_eq!(numbers(&mut other, "SELECT count(*) FROM serac_locks WHERE table_name IS NULL").await, [1]);
    ok(&mut other, "RESET ROLE").await;
    ok(&mut holder, "COMMIT").await;
    let (_, result) = waiting.await.unwrap();
    assert_eq!(result, Ok(()));
    assert_eq!((numbers(&mut other, nothing.0).await, numbers(&mut other, nothing.1).await), (vec![0], vec![0]));
    let rows = db.connections().rows();
    assert!(rows.iter().all(|row| row.transaction_number.is_none()), "all have ended: {rows:?}");
}

/// Statements whose rows might be streamed wait like others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_is_streamed_waits() {
    let update = "UPDATE t SET v = t.v + s.n FROM (VALUES (100)) AS s (n) WHERE id = 1";
    for (before, sql) in [
        (format!("PREPARE p AS {update}"), "EXECUTE p".to_owned()),
        (String::new(), update.to_owned()),
        (String::new(), "DECLARE c CURSOR WITH HOLD FOR SELECT v FROM t WHERE id = 1 FOR UPDATE".to_owned()),
        ("PREPARE q AS SELECT v + 0 * random() FROM t WHERE id = 1 FOR UPDATE".to_owned(), "EXECUTE q".to_owned()),
    ] {
        let db = database(ROWS).await;
        let mut holder = session(&db, "", "BEGIN; UPDATE t SET v = v + 5 WHERE id = 1").await;
        let mut other = session(&db, "SET default_transaction_isolation = 'read committed'", &before).await;
        let statement = serac_sql::parse(&sql).unwrap().pop().unwrap();
        let task = tokio::spawn(async move {
            if let StatementStream::Rows(mut rows) = other.stream_statement(statement).await.map_err(|e| e.sqlstate)? {
                while rows.next().await.map_err(|e| e.sqlstate)?.is_some() {}
            }
            Ok::<_, &'static str>(())
        });
        tokio::time::sleep(MOMENT).await;
        assert!(!task.is_finished(), "it waits: {sql}");
        ok(&mut holder, "COMMIT").await;
        assert_eq!(tokio::time::timeout(SOON, task).await.unwrap().unwrap(), Ok(()), "{sql}");
    }
}

/// INSERT … ON CONFLICT decides on the newest state of a row. A transaction that keeps its snapshot
/// fails where it does not see that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_has_changed_since_the_snapshot_is_no_conflict_to_decide_on() {
    const FAILS: Result<(), &str> = Err("40001");
    for way in WAYS {
        for (change, nothing, update) in [
            ("UPDATE t SET v = 11 WHERE id = 1", FAILS, FAILS),
            ("INSERT INTO t VALUES (4, 40)", FAILS, FAILS),
            ("UPDATE t SET v = 21 WHERE id = 2", Ok(()), Ok(())),
            ("BEGIN; UPDATE t SET v = 12 WHERE id = 1; ROLLBACK", Ok(()), Ok(())),
        ] {
            let id = if change.starts_with("INSERT") { 4 } else { 1 };
            for (action, expected) in [
                ("DO NOTHING", nothing),
                ("(id) DO NOTHING", nothing),
                ("(id) DO UPDATE SET v = 0 WHERE t.v < 0", update),
                ("(id) DO UPDATE SET v = 0", update),
            ] {
                let db = database(ROWS).await;
                let mut session = session(&db, way, "").await;
                let insert = |id| format!("INSERT INTO t VALUES ({id}, 0) ON CONFLICT {action}");
                for begin in ["REPEATABLE READ", "READ COMMITTED"] {
                    ok(&mut session, &format!("BEGIN ISOLATION LEVEL {begin}")).await;
                    for _ in 0..2 {
                        ok(&mut session, &insert(3)).await;
                    }
                    ok(&mut Session::new(&db), change).await;
                    let result = run(&mut session, &insert(id)).await.map(|_| ());
                    let expected = if begin == "READ COMMITTED" { Ok(()) } else { expected };
                    assert_eq!(result, expected, "{way}, {begin}, {change}, {action}");
                    ok(&mut session, "ROLLBACK").await;
                    ok(&mut Session::new(&db), "DELETE FROM t WHERE id = 4").await;
                }
            }
        }
    }
}

/// A row that the filter of DO UPDATE leaves alone is claimed all the same, as in PostgreSQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_conflicts_are_claimed() {
    for way in WAYS {
        let db = database(ROWS).await;
        let mut holder = session(&db, way, "BEGIN").await;
        for id in [2, 1] {
            let upsert = format!("INSERT INTO t VALUES ({id}, 0) ON CONFLICT (id) DO UPDATE SET v = 0 WHERE t.v < 0");
            ok(&mut holder, &upsert).await;
        }
        let mut other = session(&db, way, "").await;
        let free = numbers(&mut other, "SELECT v FROM t ORDER BY id FOR UPDATE SKIP LOCKED").await;
        assert_eq!(free, [30], "{way}");
    }
}

/// A COPY cannot be begun again: its rows come but once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_waits() {
    for (begin, end, result) in [
        ("", "ROLLBACK", Ok(())),
        ("", "COMMIT", Err("23505")),
        ("BEGIN ISOLATION LEVEL READ COMMITTED; INSERT INTO t VALUES (9, 90)", "ROLLBACK", Ok(())),
    ] {
        let db = database(ROWS).await;
        let mut holder = session(&db, "", "BEGIN; INSERT INTO t VALUES (5, 50)").await;
        let mut other = session(&db, "SET default_transaction_isolation = 'read committed'", begin).await;
        other.set_copy_input(Box::new(&b"4,40\n5,51\n6,60\n"[..]));
        let waiting = waits(other, "COPY t FROM STDIN").await;
        ok(&mut holder, end).await;
        let (mut other, copied) = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
        assert_eq!(copied, result, "{begin}, {end}");
        ok(&mut other, "COMMIT").await;
        let added = numbers(&mut holder, "SELECT v FROM t WHERE id BETWEEN 4 AND 6 ORDER BY id").await;
        assert_eq!(added, if result.is_ok() { vec![40, 51, 60] } else { vec![50] }, "{begin}, {end}");
    }
}

/// Rows lie in another order than their keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rows_that_are_given_are_those_that_are_claimed() {
    let db =
        database("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT); INSERT INTO t VALUES (3, 1), (1, 2), (2, 3)").await;
    for (sql, given, free) in [
        ("SELECT id FROM t ORDER BY 1 DESC LIMIT 1 FOR UPDATE", 3, &[1, 2][..]),
        ("SELECT id FROM t ORDER BY 1 LIMIT 1 FOR UPDATE SKIP LOCKED", 1, &[2, 3]),
        // Rows that OFFSET skips are claimed, too, as in PostgreSQL.
        ("SELECT id FROM t AS x ORDER BY x.id OFFSET 1 LIMIT 1 FOR UPDATE", 2, &[3]),
        ("SELECT id FROM t AS x ORDER BY x.id OFFSET 1 LIMIT 1 FOR UPDATE SKIP LOCKED", 2, &[3]),
        ("SELECT id, -id AS w FROM t ORDER BY w LIMIT 1 FOR UPDATE", 3, &[1, 2]),
        ("SELECT id, -id AS w FROM t ORDER BY w LIMIT 1 FOR UPDATE SKIP LOCKED", 3, &[1, 2]),
        ("SELECT * FROM t ORDER BY 2 DESC LIMIT 1 FOR UPDATE", 2, &[1, 3]),
        ("SELECT t.* FROM t ORDER BY 2 DESC LIMIT 1 FOR UPDATE SKIP LOCKED", 2, &[1, 3]),
        ("SELECT public.t.id, public.t.id FROM public.t WHERE public.t.v = 2 FOR UPDATE", 1, &[2, 3]),
        ("SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id + 1 WHERE b.id = 1 FOR UPDATE OF b", 2, &[2, 3]),
        ("SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id + 1 WHERE b.id = 1 FOR UPDATE", 2, &[3]),
        ("WITH c AS (SELECT id FROM t WHERE v > 1 ORDER BY id LIMIT 1 FOR UPDATE) SELECT max(id) FROM c", 1, &[2, 3]),
    ] {
        for way in WAYS {
            let mut holder = session(&db, way, "").await;
            // The second time the text is known.
            for end in ["ROLLBACK", ""] {
                ok(&mut holder, "BEGIN").await;
                assert_eq!(numbers(&mut holder, sql).await, [given], "{way}, {sql}");
                ok(&mut holder, end).await;
            }
            let mut other = session(&db, "SET enable_point_path = off", "BEGIN").await;
            let left = numbers(&mut other, "SELECT id FROM t ORDER BY id FOR UPDATE SKIP LOCKED").await;
            assert_eq!(left, free, "{way}, {sql}");
            ok(&mut holder, "ROLLBACK").await;
            ok(&mut other, "ROLLBACK").await;
        }
    }
}

/// A queue whose jobs are taken and changed by one statement: each is taken once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_taken_by_one_statement() {
    let db = database(
        "CREATE TABLE jobs (id BIGINT PRIMARY KEY, taken BIGINT NOT NULL); \
         CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT); \
         INSERT INTO jobs SELECT value, 0 FROM generate_series(1, 40) AS s (value)",
    )
    .await;
    let take = "WITH c AS (SELECT id FROM jobs WHERE taken = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED), \
         u AS (UPDATE jobs SET taken = taken + 1 FROM c WHERE jobs.id = c.id RETURNING jobs.id) SELECT id FROM u";
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let mut session = session(&db, "", "SET default_transaction_isolation = 'read committed'").await;
        tasks.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                ok(&mut session, "BEGIN").await;
                let job = numbers(&mut session, take).await;
                ok(&mut session, "COMMIT").await;
                match job.first() {
                    Some(job) => taken.push(*job),
                    None => break taken,
                }
            }
        }));
    }
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(task.await.unwrap());
    }
    taken.sort_unstable();
    assert_eq!(taken, (1..=40).collect::<Vec<_>>());
    assert_eq!(numbers(&mut Session::new(&db), "SELECT count(*) FROM jobs WHERE taken = 1").await, [40]);
}

/// Claims inside statements, and of joins, wait, and continue from the holder's state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_in_statements_wait() {
    let sum =
        "SELECT sum(v)::bigint FROM (SELECT a.v FROM t AS a JOIN t AS b ON a.id = b.id WHERE b.id < 3 FOR UPDATE) AS s";
    for (claim, left) in [
        (sum.to_owned(), vec![35]),
        ("SELECT a.v FROM t AS a JOIN t AS b ON a.id = b.id WHERE b.id = 1 FOR UPDATE OF b".to_owned(), vec![15]),
        ("UPDATE t SET v = s.v * 2 FROM (SELECT id, v FROM t WHERE id = 1 FOR UPDATE) AS s WHERE t.id = s.id RETURNING t.v".to_owned(), vec![30]),
    ] {
        for nowait in [false, true] {
            let db = database(ROWS).await;
            let mut holder = session(&db, "", "BEGIN; UPDATE t SET v = v + 5 WHERE id = 1").await;
            let mut other = session(&db, "SET default_transaction_isolation = 'read committed'", "BEGIN").await;
            if nowait {
                let at_once = claim.replace("FOR UPDATE", "FOR UPDATE NOWAIT").replace("NOWAIT OF b", "OF b NOWAIT");
                assert_eq!(run(&mut other, &at_once).await.map(|_| ()), Err("55P03"), "{at_once}");
                continue;
            }
            let sql = claim.clone();
            let task = tokio::spawn(async move { numbers(&mut other, &sql).await });
            tokio::time::sleep(MOMENT).await;
            assert!(!task.is_finished(), "it waits: {claim}");
            ok(&mut holder, "COMMIT").await;
            assert_eq!(tokio::time::timeout(SOON, task).await.unwrap().unwrap(), left, "{claim}");
        }
    }
}
