//! Databases, and results of statements, for the other modules of this folder.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlError, SqlOptions, StatementResult};
use std::path::Path;

/// A new database in memory.
pub(crate) fn in_memory() -> SqlDatabase {
    let options = SqlOptions { threads: Some(2), ..SqlOptions::default() };
    SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap()
}

/// The database in a folder, and a session.
pub(crate) fn open(path: &Path) -> (SqlDatabase, Session) {
    let db = SqlDatabase::new(Database::open(path).unwrap(), &SqlOptions::default()).unwrap();
    let session = Session::new(&db);
    (db, session)
}

/// The results of statements that succeed.
pub(crate) async fn run(session: &mut Session, sql: &str) -> Vec<StatementResult> {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The error of a statement.
pub(crate) async fn refused(session: &mut Session, sql: &str) -> SqlError {
    match session.execute(sql).await {
        Ok(_) => panic!("{sql} is not refused"),
        Err(error) => error,
    }
}

/// The rows of the last statement.
pub(crate) async fn batches(session: &mut Session, sql: &str) -> Vec<RecordBatch> {
    match run(session, sql).await.pop() {
        Some(StatementResult::Rows { batches, .. }) => batches,
        other => panic!("{sql} gives {other:?}"),
    }
}

/// The rows of the last statement as a drawn table.
pub(crate) async fn text(session: &mut Session, sql: &str) -> String {
    pretty_format_batches(&batches(session, sql).await).unwrap().to_string()
}
