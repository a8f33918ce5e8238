//! Each `tests/slt/*.slt` file is a test of its name: it runs against a fresh database in memory. A
//! second test, `…/without_passes`, runs it with all optional passes disabled. Errors are shown as
//! `ERROR <SQLSTATE>: <message>`.
//!
//! `cargo test -p serac-sql --test sqllogictest joins` runs the files with `joins` in their name.
//! `-- joins --complete` writes the statements' results into them, for a person to review.

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use libtest_mimic::{Arguments, Failed, Trial};
use serac_engine::Database;
use serac_sql::wire::to_wire;
use serac_sql::{Session, SqlDatabase, SqlError, SqlOptions, StatementResult};
use sqllogictest::{
    AsyncDB, DBOutput, DefaultColumnType, Runner, default_column_validator, default_normalizer, default_validator,
};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::Runtime;

struct Connection(Session);

/// A column in which rows, places and values of `"char"` are their texts.
fn with_row_texts(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Struct(_) | DataType::FixedSizeBinary(1 | 6) => to_wire(column).unwrap(),
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

/// The files, by name.
fn files() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "slt") {
            files.push((path.file_stem().unwrap().to_str().unwrap().to_owned(), path));
        }
    }
    files.sort();
    files
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs a file, in sessions that have run `first`, or writes its statements' results into it.
async fn run(file: PathBuf, first: Arc<str>, completes: bool) -> Result<(), Failed> {
    let db = database();
    let mut runner = Runner::new(|| {
        let (mut session, first) = (Session::new(&db), first.clone());
        async move {
            session.execute(&first).await?;
            Ok(Connection(session))
        }
    });
    if completes {
        let columns = default_column_validator::<DefaultColumnType>;
        return runner
            .update_test_file(file, " ", default_validator, default_normalizer, columns)
            .await
            .map_err(|error| error.to_string().into());
    }
    runner.run_file_async(file).await.map_err(|error| error.display(false).to_string().into())
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().collect();
    let count = arguments.len();
    arguments.retain(|argument| argument != "--complete");
    let completes = arguments.len() < count;
    let disabled: Arc<str> = format!("SET serac.disabled_passes = '{}'", runtime().block_on(optional_passes())).into();
    let mut trials = Vec::new();
    for (name, file) in files() {
        let mut ways: Vec<(String, Arc<str>)> = vec![(name.clone(), "".into())];
        if !completes {
            if name == "bitmap_queries" {
                ways.push((format!("{name}/without_bitmaps"), "SET enable_bitmap_index = off".into()));
            }
            // Its own settings are the subject of the file about passes.
            if name != "passes" {
                ways.push((format!("{name}/without_passes"), disabled.clone()));
            }
        }
        for (name, first) in ways {
            let file = file.clone();
            trials.push(Trial::test(name, move || runtime().block_on(run(file, first, completes))));
        }
    }
    assert!(trials.len() > 50, "the files are not found");
    libtest_mimic::run(&Arguments::from_iter(arguments), trials).exit_code()
}
