//! Indexes on expressions under writes that scripts do not cover: compiled statements, COPY, record
//! batches, concurrent writers, the log and checkpoints.

use crate::support::text as rows;
use datafusion::arrow::array::{Int32Array, RecordBatch, StringArray};
use futures::stream;
use serac_engine::Database;
use serac_sql::{IngestTarget, Session, SqlDatabase, SqlOptions};
use std::path::Path;
use std::sync::Arc;

fn open(path: &Path) -> SqlDatabase {
    SqlDatabase::new(Database::open(path).unwrap(), &SqlOptions::default()).unwrap()
}

async fn refused(session: &mut Session, sql: &str) -> &'static str {
    session.execute(sql).await.expect_err(sql).sqlstate
}

#[tokio::test]
async fn every_way_into_a_table_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let file = folder.path().join("t.csv").display().to_string();
    let found = "SELECT count(*) AS n, count(DISTINCT id) AS d FROM generate_series(0, 200) AS g(i) JOIN t ON lower(t.email) = 'p' || g.i";
    let expected = {
        let db = open(&path);
        let mut session = Session::new(&db);
        let create = "CREATE TABLE t (id INT PRIMARY KEY, email TEXT, gone BOOLEAN DEFAULT false); \
                      CREATE UNIQUE INDEX t_email ON t (lower(email)) WHERE NOT gone";
        session.execute(create).await.unwrap();
        let before = session.point_executions();
        for i in 0..20 {
            session.execute(&format!("INSERT INTO t (id, email) VALUES ({i}, 'P{i}')")).await.unwrap();
        }
        assert!(session.point_executions() >= before + 15, "INSERT takes the point path");
        assert_eq!(refused(&mut session, "INSERT INTO t (id, email) VALUES (50, 'p7')").await, "23505");
        for i in 0..10 {
            session.execute(&format!("UPDATE t SET gone = true WHERE id = {i}")).await.unwrap();
            session.execute(&format!("INSERT INTO t (id, email) VALUES ({}, 'p{i}')", 100 + i)).await.unwrap();
            assert_eq!(refused(&mut session, &format!("UPDATE t SET gone = false WHERE id = {i}")).await, "23505");
        }
        // All that users see goes out and comes in, and nothing else.
        session.execute(&format!("COPY t TO '{file}' (FORMAT csv)")).await.unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.lines().all(|line| line.split(',').count() == 3), "{text}");
        session.execute("TRUNCATE t").await.unwrap();
        session.execute(&format!("COPY t FROM '{file}' (FORMAT csv)")).await.unwrap();
        assert_eq!(refused(&mut session, &format!("COPY t FROM '{file}' (FORMAT csv)")).await, "23505");

        let mut ingest = async |first: i32| {
            let ids: Int32Array = (first..first + 2).collect();
            let emails: StringArray = (first..first + 2).map(|i| Some(format!("P{i}"))).collect();
            let columns = [("id", Arc::new(ids) as _), ("email", Arc::new(emails) as _)];
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            let (schema, target) = (batch.schema(), IngestTarget { table: "t".into(), ..IngestTarget::default() });
            session.ingest(&target, &schema, stream::iter([Ok(batch)])).await
        };
        assert_eq!(ingest(60).await.unwrap(), 2);
        assert_eq!(ingest(18).await.unwrap_err().sqlstate, "23505");
        session.execute("CHECKPOINT").await.unwrap();
        session.execute("INSERT INTO t (id, email) VALUES (70, 'P70')").await.unwrap();
        (rows(&mut session, found).await, rows(&mut session, "SELECT * FROM t ORDER BY id").await)
    };
    let db = open(&path);
    let mut session = Session::new(&db);
    assert_eq!((rows(&mut session, found).await, rows(&mut session, "SELECT * FROM t ORDER BY id").await), expected);
    assert_eq!(refused(&mut session, "INSERT INTO t (id, email) VALUES (71, 'p70')").await, "23505");
    session.execute("INSERT INTO t VALUES (71, 'p70', true)").await.unwrap();
    let plan = rows(&mut session, "EXPLAIN SELECT id FROM t WHERE lower(email) = 'p70' AND NOT gone").await;
    assert!(plan.contains("index=t_email"), "{plan}");
}

/// A filter part that is an index's expression finds rows by the index, and only if the index has
/// all of them.
#[tokio::test]
async fn plans_say_which_index_finds_rows() {
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    let mut session = Session::new(&db);
    let create = "CREATE TABLE t (id INT PRIMARY KEY, name TEXT, a INT, b BIGINT, at TIMESTAMP, doc JSONB, state TEXT); \
                  INSERT INTO t SELECT i, 'n' || i, i, i, TIMESTAMP '2020-01-01' + i * INTERVAL '1 hour', NULL, 'open' FROM generate_series(1, 1000) AS g(i); \
                  CREATE INDEX by_name ON t (lower(name)); CREATE INDEX by_sum ON t ((a + b)); \
                  CREATE INDEX by_day ON t (date_trunc('day', at)); CREATE INDEX by_document ON t ((doc ->> 'key'), a); \
                  CREATE INDEX by_b ON t (b) WHERE state = 'open' AND a > 0";
    session.execute(create).await.unwrap();
    for (condition, index) in [
        ("lower(name) = 'n5'", "by_name"),
        ("lower(t.name) IN ('n5', 'n6') AND a > 3", "by_name"),
        ("a + b = 10", "by_sum"),
        ("date_trunc('day', at) = '2020-01-07'", "by_day"),
        ("doc ->> 'key' = 'x' AND a = 4", "by_document"),
        ("a > 0 AND b = 4 AND state = 'open'", "by_b"),
        ("id < 100 AND b IN (4, 5) AND a > 0 AND state = 'open'", "by_b"),
        ("upper(name) = 'N5'", ""),
        ("doc ->> 'key' = 'x'", "by_document"),
        ("date_trunc('day', at) < '2020-01-03' AND a > 3", "by_day"),
        ("a = 4", ""),
        ("b = 4 AND state = 'open'", ""),
        ("b = 4 AND state = 'open' AND a > 1", ""),
        ("(lower(name) = 'n5' OR a = 3)", ""),
    ] {
        let plan = rows(&mut session, &format!("EXPLAIN SELECT id FROM t WHERE {condition}")).await;
        match index {
            "" => assert!(!plan.contains("index="), "{condition}: {plan}"),
            index => assert!(plan.contains(&format!("index={index}")), "{condition}: {plan}"),
        }
        let without = format!("SELECT id FROM (SELECT * FROM t OFFSET 0) AS t WHERE {condition} ORDER BY id");
        let with = format!("SELECT id FROM t WHERE {condition} ORDER BY id");
        assert_eq!(rows(&mut session, &with).await, rows(&mut session, &without).await, "{condition}");
    }
}

/// If several writers write one key at the same time, one succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_several_writers_gets_a_key() {
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    let mut session = Session::new(&db);
    let create = "CREATE TABLE t (id INT PRIMARY KEY, name TEXT); CREATE UNIQUE INDEX t_name ON t ((upper(name)))";
    session.execute(create).await.unwrap();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let mut session = Session::new(&db);
            tokio::spawn(async move {
                let mut written = 0;
                for i in 0..100 {
                    let name = if writer % 2 == 0 { format!("name {i}") } else { format!("NAME {i}") };
                    let insert = format!("INSERT INTO t VALUES ({}, '{name}')", i * 4 + writer);
                    match session.execute(&insert).await {
                        Ok(_) => written += 1,
                        Err(error) => assert!(["23505", "40001"].contains(&error.sqlstate), "{error}"),
                    }
                }
                written
            })
        })
        .collect();
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    let (all, different) = ("SELECT count(*) AS n FROM t", "SELECT count(DISTINCT upper(name)) AS n FROM t");
    assert_eq!(rows(&mut session, all).await, rows(&mut session, different).await);
    assert!(rows(&mut session, all).await.contains(&written.to_string()) && written >= 50, "{written}");
}
