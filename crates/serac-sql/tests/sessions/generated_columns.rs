//! Generated columns on the ways into a table that scripts do not take: compiled statements, COPY,
//! record batches, the log and checkpoints.

use crate::support::{open, text as rows};
use datafusion::arrow::array::{Int32Array, RecordBatch};
use futures::stream;
use serac_sql::IngestTarget;
use std::sync::Arc;

const WRONG: &str = "SELECT count(*) AS n FROM t WHERE twice IS DISTINCT FROM a * 2 OR label IS DISTINCT FROM 'n' || a";

#[tokio::test]
async fn every_way_into_a_table_computes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let file = folder.path().join("t.csv").display().to_string();
    let expected = {
        let (_db, mut session) = open(&path);
        let create = "CREATE TABLE t (twice BIGINT NOT NULL GENERATED ALWAYS AS (a * 2) STORED, a INT PRIMARY KEY, \
                      label TEXT GENERATED ALWAYS AS ('n' || a) STORED, b INT)";
        session.execute(create).await.unwrap();
        // Compiled from the third on.
        let before = session.point_executions();
        for i in 0..10 {
            session.execute(&format!("INSERT INTO t (a, b) VALUES ({i}, {i})")).await.unwrap();
        }
        assert!(session.point_executions() >= before + 7, "INSERT takes the point path");
        let before = session.point_executions();
        for i in 0..10 {
            session.execute(&format!("UPDATE t SET b = b + 1 WHERE a = {i}")).await.unwrap();
        }
        assert!(session.point_executions() >= before + 7, "so does an UPDATE of what nothing is computed from");
        for i in 0..5 {
            session.execute(&format!("UPDATE t SET a = a + 100 WHERE a = {i}")).await.unwrap();
        }
        // The output of COPY without a list of columns can be read again.
        session.execute(&format!("COPY t TO '{file}' (FORMAT csv)")).await.unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().next().map(|line| line.split(',').count()), Some(2));
        session.execute("DELETE FROM t WHERE a < 8").await.unwrap();
        session.execute("TRUNCATE t").await.unwrap();
        session.execute(&format!("COPY t FROM '{file}' (FORMAT csv)")).await.unwrap();
        let error = session.execute(&format!("COPY t (a, twice) FROM '{file}' (FORMAT csv)")).await.unwrap_err();
        assert_eq!(error.sqlstate, "42P10");

        let batch = |name: &str| RecordBatch::try_from_iter([(name, Arc::new(Int32Array::from(vec![50, 51])) as _)]);
        let mut ingest = async |name: &str| {
            let batch = batch(name).unwrap();
            let schema = batch.schema();
            let target = IngestTarget { table: "t".into(), ..IngestTarget::default() };
            session.ingest(&target, &schema, stream::iter([Ok(batch)])).await
        };
        assert_eq!(ingest("a").await.unwrap(), 2);
        assert_eq!(ingest("label").await.unwrap_err().sqlstate, "428C9");
        let none = rows(&mut session, "SELECT 0::bigint AS n").await;
        assert_eq!(rows(&mut session, WRONG).await, none, "{}", rows(&mut session, "TABLE t").await);
        session.execute("CHECKPOINT").await.unwrap();
        session.execute("INSERT INTO t (a) VALUES (77)").await.unwrap();
        rows(&mut session, "SELECT * FROM t ORDER BY a").await
    };
    assert_eq!(expected.lines().count(), 13 + 4, "{expected}");
    let (_db, mut session) = open(&path);
    assert_eq!(rows(&mut session, "SELECT * FROM t ORDER BY a").await, expected);
    session.execute("INSERT INTO t (a) VALUES (78)").await.unwrap();
    assert!(session.execute("INSERT INTO t (a, twice) VALUES (79, 1)").await.is_err());
    assert_eq!(rows(&mut session, WRONG).await, rows(&mut session, "SELECT 0::bigint AS n").await);
}
