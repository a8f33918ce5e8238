//! SHOW ALL, `pg_settings` and `current_setting` list the values of SHOW and SET.

use datafusion::arrow::array::{Array, AsArray};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};

fn session() -> Session {
    let database = Database::in_memory().unwrap();
    Session::new(&SqlDatabase::new(database, &SqlOptions::default()).unwrap())
}

/// Rows of texts.
async fn rows(session: &mut Session, sql: &str) -> Vec<Vec<String>> {
    let results = session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let Some(StatementResult::Rows { batches, .. }) = results.into_iter().next_back() else {
        panic!("{sql} gives rows")
    };
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| {
                datafusion::arrow::compute::cast(column, &datafusion::arrow::datatypes::DataType::Utf8).unwrap()
            })
            .collect();
        let text = |column: &dyn Array, row: usize| match column.is_null(row) {
            true => "NULL".to_owned(),
            false => column.as_string::<i32>().value(row).to_owned(),
        };
        rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| text(column, row)).collect()));
    }
    rows
}

async fn setting(session: &mut Session, name: &str) -> Vec<String> {
    let sql = format!("SELECT setting, unit, source, reset_val FROM pg_settings WHERE name = '{name}'");
    rows(session, &sql).await.pop().unwrap_or_default()
}

#[tokio::test]
async fn all_lists_agree_and_follow_set() {
    let mut session = session();
    for change in [
        "SELECT 1",
        "SET statement_timeout = '90s'; SET lock_timeout = 250; SET work_mem = '64MB'; SET threads = 3",
        "SET search_path = public, pg_catalog; SET application_name = 'it''s me'; SET shared_scans = off",
        "SET enable_point_path = off; SET enable_bitmap_index = off; SET default_transaction_isolation = 'serializable'",
        "SET datafusion.execution.batch_size = 4096",
    ] {
        session.execute(change).await.unwrap();
        let all = rows(&mut session, "SHOW ALL").await;
        assert!(all.len() > 60 && all.iter().all(|row| row.len() == 3), "{}", all.len());
        assert!(all.is_sorted_by_key(|row| row[0].to_lowercase()));
        let listed = rows(&mut session, "SELECT name, setting FROM pg_settings").await;
        assert_eq!(listed.len(), all.len());
        for row in &all {
            // A word that is reserved stands in quotes.
            let name = row[0].replace(".null", ".\"null\"");
            let shown = rows(&mut session, &format!("SHOW {name}")).await;
            // DataFusion's have their names beside them, and NULL where they have no value.
            let value = shown[0].last().filter(|value| *value != "NULL").cloned().unwrap_or_default();
            assert_eq!(value, row[1], "{} after {change}", row[0]);
            if !row[0].starts_with("datafusion.") {
                let current = rows(&mut session, &format!("SELECT current_setting('{}')", row[0])).await;
                assert_eq!(current[0][0], row[1], "{} after {change}", row[0]);
            }
        }
    }
    assert_eq!(setting(&mut session, "statement_timeout").await, ["90000", "ms", "session", "0"]);
    assert_eq!(setting(&mut session, "lock_timeout").await, ["250", "ms", "session", "0"]);
    assert_eq!(setting(&mut session, "work_mem").await[..3], ["65536", "kB", "session"]);
    assert_eq!(setting(&mut session, "enable_point_path").await, ["off", "NULL", "session", "on"]);
    assert_eq!(setting(&mut session, "datafusion.execution.batch_size").await[0], "4096");
    assert_eq!(setting(&mut session, "DateStyle").await, ["ISO, MDY", "NULL", "default", "ISO, MDY"]);
    session.execute("RESET ALL").await.unwrap();
    let changed = "SELECT name FROM pg_settings WHERE source = 'session' AND name <> 'application_name'";
    assert_eq!(rows(&mut session, changed).await, Vec::<Vec<String>>::new());
}

#[tokio::test]
async fn a_transaction_sees_its_own_settings() {
    let mut session = session();
    session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY").await.unwrap();
    session.execute("SELECT 1; SET LOCAL statement_timeout = '7s'").await.unwrap();
    assert_eq!(setting(&mut session, "statement_timeout").await[0], "7000");
    assert_eq!(setting(&mut session, "transaction_isolation").await[0], "serializable");
    assert_eq!(setting(&mut session, "transaction_read_only").await[0], "on");
    session.execute("COMMIT").await.unwrap();
    assert_eq!(setting(&mut session, "statement_timeout").await[0], "0");
    assert_eq!(setting(&mut session, "transaction_read_only").await[0], "off");
}

#[tokio::test]
async fn what_is_no_setting_is_an_error() {
    let mut session = session();
    let error = session.execute("SELECT current_setting('nope')").await.unwrap_err();
    assert_eq!(error.sqlstate, "42704");
    assert_eq!(rows(&mut session, "SELECT current_setting('nope', true) IS NULL").await, [["true"]]);
}
