//! Runs every `tests/slt/*.slt` file against a fresh database in memory, and once more with all
//! optional passes disabled. Errors are shown as `ERROR <SQLSTATE>: <message>`.
//!
//! `slt/unbound.txt` has the number of queries of each file that the binder does not plan. It may
//! only shrink; `SERAC_COUNT=1` writes it anew.

use async_trait::async_trait;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlError, SqlOptions, StatementResult};
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Queries that have been planned without the binder.
type Unbound = Arc<AtomicU64>;

struct Connection(Session, Unbound);

impl Drop for Connection {
    fn drop(&mut self) {
        // Relaxed: it is read once the connection is gone.
        self.1.fetch_add(self.0.planned_queries().1, Ordering::Relaxed);
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
                    let columns: Vec<_> =
                        batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
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
    let mut connection = Connection(Session::new(&database()), Unbound::default());
    let names = connection.run("SELECT DISTINCT name FROM serac_passes WHERE optional").await;
    let Ok(DBOutput::Rows { rows, .. }) = names else { panic!("the view gives rows") };
    rows.concat().join(", ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_files() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "slt"));
    files.sort();
    let mut failures = Vec::new();
    let about_bitmaps = |file: &&std::path::PathBuf| file.file_name().is_some_and(|name| name == "bitmap_queries.slt");
    let without_bitmaps = files.iter().filter(about_bitmaps).map(|file| (file, "SET enable_bitmap_index = off"));
    // Its own settings are the subject of the file about passes.
    let about_passes = |file: &&std::path::PathBuf| file.file_name().is_some_and(|name| name == "passes.slt");
    let disabled = format!("SET serac.disabled_passes = '{}'", optional_passes().await);
    let without_passes = files.iter().filter(|file| !about_passes(file)).map(|file| (file, disabled.as_str()));
    let usual = files.iter().map(|file| (file, ""));
    let mut counts = String::new();
    for (file, first) in usual.chain(without_bitmaps).chain(without_passes) {
        let db = database();
        let unbound = Unbound::default();
        let mut runner = Runner::new(|| {
            let mut session = Session::new(&db);
            let unbound = unbound.clone();
            async move {
                session.execute(first).await?;
                Ok(Connection(session, unbound))
            }
        });
        // Where results differ, a file says so by this label.
        if first != disabled {
            runner.add_label("bound");
        }
        if let Err(error) = runner.run_file_async(file).await {
            failures.push(format!("{first}\n{}", error.display(false)));
        }
        drop(runner);
        if first.is_empty() {
            let name = file.file_name().unwrap().to_string_lossy();
            counts += &format!("{name} {}\n", unbound.load(Ordering::Relaxed));
        }
    }
    assert!(!files.is_empty() && failures.is_empty(), "{}", failures.join("\n\n"));
    let known = folder.join("unbound.txt");
    if std::env::var_os("SERAC_COUNT").is_some() {
        std::fs::write(&known, &counts).unwrap();
    }
    let known = std::fs::read_to_string(known).unwrap();
    let changed: Vec<_> = counts.lines().filter(|line| !known.lines().any(|known| known == *line)).collect();
    assert!(changed.is_empty(), "other counts than in slt/unbound.txt, which may only shrink:\n{}", changed.join("\n"));
}
