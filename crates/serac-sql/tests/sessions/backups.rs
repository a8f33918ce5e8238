//! BACKUP as a statement.

use crate::support::{in_memory, refused, run};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_storage::{Durability, StorageOptions};
use std::path::Path;
use std::time::Duration;

fn open(path: &Path, durability: Durability) -> SqlDatabase {
    let options = StorageOptions { path: Some(path.to_owned()), durability, ..Default::default() };
    SqlDatabase::new(Database::open_with(options).unwrap(), &SqlOptions::default()).unwrap()
}

/// The catalog of the copy is that of the moment: sequences go on, views, roles and indexes are
/// there, also without a log.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_the_whole_catalog() {
    for durability in [Durability::Full, Durability::Relaxed, Durability::Off] {
        let folder = tempfile::tempdir().unwrap();
        let (origin, copy) = (folder.path().join("origin"), folder.path().join("copy"));
        let db = open(&origin, durability);
        let mut session = Session::new(&db);
        run(&mut session, "CREATE SCHEMA s; CREATE TABLE s.t (id BIGINT GENERATED ALWAYS AS IDENTITY, v TEXT UNIQUE)")
            .await;
        run(&mut session, "INSERT INTO s.t (v) SELECT 'v' || i FROM generate_series(1, 1000) AS g (i)").await;
        run(&mut session, "CREATE VIEW w AS SELECT count(*) AS n FROM s.t; CREATE ROLE ada LOGIN PASSWORD 'x'").await;
        run(&mut session, "CREATE TABLE empty (a INT); FREEZE TABLE s.t").await;
        let told = run(&mut session, &format!("BACKUP TO '{}'", copy.display())).await;
        assert!(format!("{told:?}").contains("BACKUP 1000"), "{told:?}");
        run(&mut session, "INSERT INTO s.t (v) VALUES ('later'); DROP VIEW w").await;
        db.database().close().unwrap();

        let db = open(&copy, Durability::Full);
        let mut session = Session::new(&db);
        run(&mut session, "SELECT 1 / (n = 1000)::INT FROM w").await;
        assert_eq!(refused(&mut session, "INSERT INTO s.t (v) VALUES ('v7')").await.sqlstate, "23505");
        run(&mut session, "INSERT INTO s.t (v) VALUES ('new')").await;
        run(&mut session, "SELECT 1 / (count(DISTINCT id) = 1001)::INT FROM s.t; SELECT * FROM empty").await;
        let mut ada = Session::new(&db);
        ada.log_in("ada").unwrap();
        assert_eq!(refused(&mut ada, "SELECT * FROM s.t").await.sqlstate, "42501");
        db.database().close().unwrap();
        // And once more, from its own checkpoint and log.
        run(&mut Session::new(&open(&copy, Durability::Full)), "SELECT 1 / (count(*) = 1001)::INT FROM s.t").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_are_for_superusers_outside_of_blocks() {
    let (db, folder) = (in_memory(), tempfile::tempdir().unwrap());
    let mut session = Session::new(&db);
    let backup = format!("BACKUP TO '{}'", folder.path().join("copy").display());
    run(&mut session, "CREATE ROLE clerk; GRANT pg_checkpoint, pg_read_all_data TO clerk; SET ROLE clerk").await;
    assert_eq!(refused(&mut session, &backup).await.sqlstate, "42501");
    run(&mut session, "RESET ROLE; BEGIN").await;
    assert_eq!(refused(&mut session, &backup).await.sqlstate, "25001");
    run(&mut session, "ROLLBACK").await;
    for wrong in ["BACKUP", "BACKUP TO", "BACKUP TO folder", "BACKUP FROM 'x'", "BACKUP TO 'x' y"] {
        assert_eq!(refused(&mut session, wrong).await.sqlstate, "42601", "{wrong}");
    }
    assert!(!folder.path().join("copy").exists());
    run(&mut session, &backup).await;
    assert_eq!(refused(&mut session, &backup).await.sqlstate, "58030");
}

/// A backup that is cancelled ends at once for its session, and removes what it wrote by and by.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_can_be_cancelled() {
    let (db, folder) = (in_memory(), tempfile::tempdir().unwrap());
    let mut session = Session::new(&db);
    run(
        &mut session,
        "CREATE TABLE t AS SELECT i, i::TEXT || repeat('x', 100) AS v FROM generate_series(1, 300000) AS g (i)",
    )
    .await;
    let cancel = session.cancel_handle();
    let canceller = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            cancel.cancel();
        }
    });
    let copy = folder.path().join("copy");
    let backup = format!("BACKUP TO '{}'", copy.display());
    assert_eq!(refused(&mut session, &backup).await.sqlstate, "57014");
    canceller.abort();
    // The folder is free again.
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while let Err(error) = session.execute(&backup).await {
        assert!(["58030", "55006", "57014"].contains(&error.sqlstate), "{error}");
        assert!(tokio::time::Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    run(&mut Session::new(&open(&copy, Durability::Full)), "SELECT 1 / (count(*) = 300000)::INT FROM t").await;
}
