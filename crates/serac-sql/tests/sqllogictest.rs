//! Runs every `tests/slt/*.slt` file against a fresh database in memory, and once more with all
//! optional passes disabled. Errors are shown as `ERROR <SQLSTATE>: <message>`.
//!
//! `SERAC_SLT=joins` runs `joins.slt` alone.

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use serac_engine::Database;
use serac_sql::wire::to_wire;
use serac_sql::{Session, SqlDatabase, SqlError, SqlOptions, StatementResult};
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};

struct Connection(Session);

/// A column in which rows are their texts.
fn with_row_texts(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Struct(_) => to_wire(column).unwrap(),
        _ => column.clone(),
    }
}

#[async_trait]
impl AsyncDB for Connection {
    type Error = SqlError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, SqlError> {
        let Some(result) = self.0.execute(sql).await?.pop() else { return Ok(DBOutput::StatementComplete(0)) };
        Ok(match result {
            StatementResult::Command { rows, .. } => DBOutput::StatementComplete(rows),
            StatementResult::Rows { schema, batches, .. } => {
                let options = FormatOptions::default().with_null("NULL");
                let mut rows = Vec::new();
                for batch in &batches {
                    let shown: Vec<ArrayRef> = batch.columns().iter().map(with_row_texts).collect();
                    let columns: Vec<_> = shown.iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
                    for row in 0..batch.num_rows() {
                        let text = |c: &ArrayFormatter<'_>| match c.value(row).to_string() {
                            empty if empty.is_empty() => "(empty)".to_owned(),
                            text => text,
                        };
                        rows.push(columns.iter().map(text).collect());
                    }
                }
                DBOutput::Rows { types: vec![DefaultColumnType::Any; schema.fields().len()], rows }
            }
        })
    }
    fn engine_name(&self) -> &str {
        "serac"
    }
    async fn shutdown(&mut self) {}
}

fn database() -> SqlDatabase {
    let options = SqlOptions { threads: Some(2), ..Default::default() };
    SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap()
}

/// The names of all optional passes, with commas between them.
async fn optional_passes() -> String {
    let mut connection = Connection(Session::new(&database()));
    let names = connection.run("SELECT DISTINCT name FROM serac_passes WHERE optional").await;
    let Ok(DBOutput::Rows { rows, .. }) = names else { panic!("the view gives rows") };
    rows.concat().join(", ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_files() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "slt"));
    if let Ok(wanted) = std::env::var("SERAC_SLT") {
        files.retain(|file| file.file_stem().is_some_and(|name| name == wanted.as_str()));
    }
    files.sort();
    let mut failures = Vec::new();
    let about_bitmaps = |file: &&std::path::PathBuf| file.file_name().is_some_and(|name| name == "bitmap_queries.slt");
    let without_bitmaps = files.iter().filter(about_bitmaps).map(|file| (file, "SET enable_bitmap_index = off"));
    // Its own settings are the subject of the file about passes.
    let about_passes = |file: &&std::path::PathBuf| file.file_name().is_some_and(|name| name == "passes.slt");
    let disabled = format!("SET serac.disabled_passes = '{}'", optional_passes().await);
    let without_passes = files.iter().filter(|file| !about_passes(file)).map(|file| (file, disabled.as_str()));
    let usual = files.iter().map(|file| (file, ""));
    for (file, first) in usual.chain(without_bitmaps).chain(without_passes) {
        let db = database();
        let mut runner = Runner::new(|| {
            let mut session = Session::new(&db);
            async move {
                session.execute(first).await?;
                Ok(Connection(session))
            }
        });
        if let Err(error) = runner.run_file_async(file).await {
            failures.push(format!("{first}\n{}", error.display(false)));
        }
    }
    assert!(!files.is_empty() && failures.is_empty(), "{}", failures.join("\n\n"));
}
