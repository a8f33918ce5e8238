//! Temporary tables leave nothing behind.

use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};

#[tokio::test]
async fn temporary_tables_are_not_logged_and_go_with_their_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = SqlDatabase::new(Database::open(&path).unwrap(), &SqlOptions::default()).unwrap();
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE permanent (n BIGINT)").await.unwrap();
    let logged = db.database().metrics().log_bytes_written;
    session
        .execute(
            "CREATE TEMP TABLE t (n BIGINT PRIMARY KEY, s TEXT);
             INSERT INTO t SELECT value, 'some text that is not short' FROM generate_series(1, 20000) AS g (value);
             UPDATE t SET s = s || n WHERE n % 2 = 0; DELETE FROM t WHERE n % 3 = 0; BEGIN; DELETE FROM t; ROLLBACK",
        )
        .await
        .unwrap();
    assert_eq!(db.database().metrics().log_bytes_written, logged);
    assert_eq!(db.database().catalog().tables().count(), 1);
    session.execute("INSERT INTO permanent SELECT count(*) FROM t").await.unwrap();
    drop(session);
    let mut session = Session::new(&db);
    assert_eq!(session.execute("SELECT * FROM t").await.unwrap_err().sqlstate, "42P01");
    drop(session);
    db.database().close().unwrap();
    drop(db);

    let db = SqlDatabase::new(Database::open(&path).unwrap(), &SqlOptions::default()).unwrap();
    let names: Vec<String> = db.database().catalog().tables().map(|t| t.name().to_owned()).collect();
    assert_eq!(names, ["permanent"]);
    let mut session = Session::new(&db);
    let result = session.execute("SELECT n FROM permanent WHERE n = 13334").await.unwrap().pop().unwrap();
    assert_eq!(result.row_count(), 1);
}
