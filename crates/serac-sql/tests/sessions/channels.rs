//! LISTEN and NOTIFY: when they take effect, the receivers, and the limits.

use serac_engine::Database;
use serac_sql::{Identity, Notifications, Session, SqlDatabase, SqlOptions};
use serac_storage::{Durability, StorageOptions};
use std::time::Duration;

/// A notification that comes at all comes sooner.
const SOON: Duration = Duration::from_secs(20);

fn session(db: &SqlDatabase, process: i32) -> (Session, Notifications) {
    let mut session = Session::new(db);
    session.identify(Identity { process, ..Identity::default() });
    let notifications = session.notifications();
    (session, notifications)
}

async fn sqlstate(session: &mut Session, sql: &str) -> Option<&'static str> {
    session.execute(sql).await.err().map(|error| error.sqlstate)
}
async fn ok(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}
/// The notifications that have arrived: sender, channel, text.
fn told(notifications: &Notifications) -> Vec<(i32, String, String)> {
    let all = notifications.take().into_iter();
    all.map(|one| (one.process, one.channel.to_string(), one.payload.to_string())).collect()
}
fn one(process: i32, channel: &str, payload: &str) -> (i32, String, String) {
    (process, channel.into(), payload.into())
}

fn database() -> SqlDatabase {
    SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions { threads: Some(1), ..Default::default() }).unwrap()
}

#[tokio::test]
async fn a_commit_tells_those_who_listen() {
    let db = database();
    let ((mut a, for_a), (mut b, for_b)) = (session(&db, 1), session(&db, 2));
    // There is no listener.
    ok(&mut a, "NOTIFY jobs").await;
    assert!(!for_b.listens());
    ok(&mut b, "LISTEN jobs; LISTEN \"Other\"").await;
    assert!(for_b.listens());
    ok(&mut a, "NOTIFY jobs; NOTIFY Jobs, 'second'; NOTIFY other; NOTIFY \"Other\", ''").await;
    assert_eq!(told(&for_b), [one(1, "jobs", ""), one(1, "jobs", "second"), one(1, "Other", "")]);
    assert!(told(&for_a).is_empty());
    // In a transaction at its commit, once each, in order; the sender gets it, too, if it listens.
    ok(&mut a, "LISTEN jobs; BEGIN; NOTIFY jobs, 'x'; NOTIFY jobs, 'y'; NOTIFY jobs, 'x'").await;
    assert!(told(&for_b).is_empty());
    ok(&mut a, "COMMIT").await;
    assert_eq!(told(&for_b), [one(1, "jobs", "x"), one(1, "jobs", "y")]);
    assert_eq!(told(&for_a), [one(1, "jobs", "x"), one(1, "jobs", "y")]);
    // By a function, for each row; NULL is an empty text.
    ok(&mut a, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT); INSERT INTO t VALUES (1, 'one'), (2, NULL)").await;
    ok(&mut a, "SELECT pg_notify('jobs', v) FROM t ORDER BY id").await;
    assert_eq!(told(&for_b), [one(1, "jobs", "one"), one(1, "jobs", "")]);
    ok(&mut b, "UNLISTEN jobs").await;
    ok(&mut a, "SELECT pg_notify('jobs', 'late'); NOTIFY \"Other\"").await;
    assert_eq!(told(&for_b), [one(1, "Other", "")]);
    for all in ["UNLISTEN *", "DISCARD ALL"] {
        ok(&mut b, "LISTEN jobs").await;
        ok(&mut b, all).await;
        assert!(!for_b.listens(), "{all}");
    }
    ok(&mut a, "NOTIFY jobs").await;
    assert!(told(&for_b).is_empty());
}

#[tokio::test]
async fn what_is_rolled_back_was_not_said() {
    let db = database();
    let ((mut a, _), (mut b, for_b)) = (session(&db, 1), session(&db, 2));
    ok(&mut b, "BEGIN; LISTEN never; ROLLBACK").await;
    assert!(!for_b.listens());
    ok(&mut b, "BEGIN; LISTEN c; SAVEPOINT s; LISTEN undone; ROLLBACK TO s; COMMIT").await;
    ok(&mut a, "NOTIFY undone; BEGIN; NOTIFY c, 'lost'; ROLLBACK").await;
    ok(&mut a, "BEGIN; NOTIFY c, 'kept'; SAVEPOINT s; NOTIFY c, 'lost'; ROLLBACK TO s; NOTIFY c, 'after'; COMMIT")
        .await;
    assert_eq!(told(&for_b), [one(1, "c", "kept"), one(1, "c", "after")]);
    // Neither notifications of a failed statement, nor those before it without a savepoint.
    ok(&mut a, "CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let fails = "SELECT pg_notify('c', 'lost'), 1 / (id - 1) FROM t";
    assert_eq!(sqlstate(&mut a, fails).await, Some("22012"));
    ok(&mut a, "BEGIN; NOTIFY c, 'lost'").await;
    assert_eq!(sqlstate(&mut a, fails).await, Some("22012"));
    assert_eq!(sqlstate(&mut a, "NOTIFY c").await, Some("25P02"));
    ok(&mut a, "COMMIT").await;
    assert!(told(&for_b).is_empty());
    ok(&mut a, "BEGIN; NOTIFY c, 'kept'; SAVEPOINT s").await;
    assert_eq!(sqlstate(&mut a, fails).await, Some("22012"));
    ok(&mut a, "ROLLBACK TO s; COMMIT").await;
    assert_eq!(told(&for_b), [one(1, "c", "kept")]);
    // A session that has gone listens no more.
    drop(b);
    ok(&mut a, "NOTIFY c").await;
    assert!(told(&for_b).is_empty());
}

#[tokio::test]
async fn names_and_texts_have_limits() {
    let db = database();
    let ((mut a, _), (mut b, for_b)) = (session(&db, 1), session(&db, 2));
    let long = "n".repeat(64);
    for sql in [
        format!("LISTEN {long}"),
        format!("NOTIFY {long}"),
        "SELECT pg_notify('', 'x')".to_owned(),
        "SELECT pg_notify(NULL, 'x')".to_owned(),
        format!("NOTIFY c, '{}'", "x".repeat(8_000)),
    ] {
        assert_eq!(sqlstate(&mut a, &sql).await, Some("22023"), "{sql:.40}");
    }
    // A listener that does not read blocks further notifications at a limit; earlier ones are not
    // lost.
    ok(&mut b, "LISTEN c").await;
    let fill = "SELECT pg_notify('c', repeat('x', 7990) || i) FROM generate_series(1, 2000) AS g(i)";
    let mut rounds = 0;
    let refused = loop {
        match sqlstate(&mut a, fill).await {
            None => rounds += 1,
            Some(sqlstate) => break sqlstate,
        }
    };
    assert_eq!(refused, "54000");
    ok(&mut a, "SELECT 1 / (pg_notification_queue_usage() = 1)::INT").await;
    assert_eq!(for_b.take().len(), rounds * 2_000);
    ok(&mut a, "SELECT 1 / (pg_notification_queue_usage() = 0)::INT").await;
    ok(&mut a, "NOTIFY c").await;
    assert_eq!(told(&for_b), [one(1, "c", "")]);
    // A transaction may not send more either, and then it sends no notification at all.
    ok(&mut a, "BEGIN; NOTIFY c; SAVEPOINT s").await;
    let more = "SELECT pg_notify('c', repeat('x', 7990) || i) FROM generate_series(1, 10000) AS g(i)";
    assert_eq!(sqlstate(&mut a, more).await, Some("54000"));
    ok(&mut a, "ROLLBACK TO s; NOTIFY c, 'short'; COMMIT").await;
    assert_eq!(told(&for_b), [one(1, "c", ""), one(1, "c", "short")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_before_it_is_durable_and_all_are_told_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let options = StorageOptions {
        path: Some(folder.path().join("db")),
        durability: Durability::Full,
        ..StorageOptions::default()
    };
    let database = Database::open_with(options).unwrap();
    let db = SqlDatabase::new(database, &SqlOptions { threads: Some(1), ..Default::default() }).unwrap();
    let (mut listener, notifications) = session(&db, 0);
    ok(&mut listener, "CREATE TABLE t (id BIGINT PRIMARY KEY); LISTEN c").await;
    const EACH: usize = 100;
    let tellers: Vec<_> = (1..=2)
        .map(|process| {
            let (mut teller, _) = session(&db, process);
            tokio::spawn(async move {
                for i in 0..EACH {
                    let id = process as usize * 1_000 + i;
                    ok(&mut teller, &format!("BEGIN; INSERT INTO t VALUES ({id}); NOTIFY c, '{id}'; COMMIT")).await;
                }
            })
        })
        .collect();
    let mut told: Vec<usize> = Vec::new();
    while told.len() < 2 * EACH {
        tokio::time::timeout(SOON, notifications.arrived()).await.expect("somebody is told");
        for notification in notifications.take() {
            told.push(notification.payload.parse().unwrap());
            // The row that it names is there.
            let sql = format!("SELECT 1 / count(*) FROM t WHERE id = {}", notification.payload);
            ok(&mut listener, &sql).await;
        }
    }
    for teller in tellers {
        teller.await.unwrap();
    }
    for process in [1, 2] {
        let of_one: Vec<usize> = told.iter().copied().filter(|id| id / 1_000 == process).collect();
        assert_eq!(of_one, (0..EACH).map(|i| process * 1_000 + i).collect::<Vec<_>>());
    }
}
