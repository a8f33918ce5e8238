//! Databases, and results of statements, for the other modules of this folder.

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
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

/// The rows of batches as texts, with bars between the values.
pub(crate) fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let of_batch = |batch: &RecordBatch| {
        let columns: Vec<_> = batch.columns().iter().map(|column| cast(column, &DataType::Utf8).unwrap()).collect();
        let value = |column: &dyn Array, row: usize| match column.is_null(row) {
            true => "NULL".to_owned(),
            false => column.as_string::<i32>().value(row).to_owned(),
        };
        let line = |row| columns.iter().map(|column| value(column, row)).collect::<Vec<_>>().join("|");
        (0..batch.num_rows()).map(line).collect::<Vec<_>>()
    };
    batches.iter().flat_map(of_batch).collect()
}

/// The rows of the last statement as [`lines`], in the order of texts.
pub(crate) async fn sorted_lines(session: &mut Session, sql: &str) -> Vec<String> {
    let mut lines = lines(&batches(session, sql).await);
    lines.sort_unstable();
    lines
}
