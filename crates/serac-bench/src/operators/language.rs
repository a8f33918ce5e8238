//! Scripts of the operator language on a database in memory, and tables for them.

use super::{DOMAIN, uniform};
use crate::setup::text;
use serac_column_language::{Context, Operators, Outcome};
use serac_engine::Database;
use serac_storage::durability::storage::StorageOptions;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

/// A chunk of a file, as clients send it.
const CHUNK: usize = 1 << 20;

/// A client of a database of its own.
pub(super) struct Client {
    context: Context,
    line: u64,
}

impl Client {
    /// A client with a database `d` in memory.
    pub(super) fn new() -> Result<Self, String> {
        let options = StorageOptions { freeze_after: None, ..Default::default() };
        let database = Database::open_with(options).map_err(text)?;
        let mut client = Self { context: Operators::new(Arc::new(database)).context(), line: 0 };
        client.run("create(db,\"d\")")?;
        Ok(client)
    }

    /// Runs the lines of a script, and returns their output.
    pub(super) fn run(&mut self, script: &str) -> Result<String, String> {
        let mut printed = String::new();
        for line in script.lines() {
            self.line += 1;
            match self.context.execute(self.line, line, &mut printed).map_err(text)? {
                Outcome::Done => {}
                Outcome::WantsFile(path) => self.load(Path::new(&path))?,
                Outcome::Shutdown => return Err("a script shuts nothing down".into()),
            }
        }
        Ok(printed)
    }

    fn load(&mut self, path: &Path) -> Result<(), String> {
        let mut file = File::open(path).map_err(text)?;
        let mut load = self.context.begin_load(self.line, &path.display().to_string());
        let mut chunk = vec![0; CHUNK];
        loop {
            match file.read(&mut chunk).map_err(text)? {
                0 => break,
                read => load.push(&chunk[..read]).map_err(text)?,
            }
        }
        load.finish().map_err(text)
    }

    /// Makes a table of these columns.
    pub(super) fn create_table(&mut self, table: &str, columns: &[&str]) -> Result<(), String> {
        self.run(&format!("create(tbl,\"{table}\",d,{})", columns.len()))?;
        columns.iter().try_for_each(|column| self.run(&format!("create(col,\"{column}\",d.{table})")).map(|_| ()))
    }
}

/// Writes a CSV file of uniform integers for a table of the language, and returns its length in
/// bytes.
pub(super) fn write_csv(path: &Path, table: &str, columns: &[&str], rows: usize) -> Result<u64, String> {
    let values: Vec<Vec<i32>> = (0..columns.len()).map(|seed| uniform(rows, seed as u64 + 1)).collect();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(text)?;
    }
    let mut file = std::io::BufWriter::with_capacity(CHUNK, File::create(path).map_err(text)?);
    let names: Vec<String> = columns.iter().map(|column| format!("d.{table}.{column}")).collect();
    writeln!(file, "{}", names.join(",")).map_err(text)?;
    for row in 0..rows {
        for (at, column) in values.iter().enumerate() {
            let end = if at + 1 == values.len() { '\n' } else { ',' };
            write!(file, "{}{end}", column[row]).map_err(text)?;
        }
    }
    file.flush().map_err(text)?;
    drop(file);
    Ok(std::fs::metadata(path).map_err(text)?.len())
}

/// The bounds of the `at`-th of some selects with this share of the rows each, spread over the
/// numbers.
pub(super) fn bounds(at: usize, selects: usize, share: f64) -> (i64, i64) {
    let width = (f64::from(DOMAIN) * share).round() as i64;
    let step = (i64::from(DOMAIN) - width) / selects.max(2) as i64;
    (at as i64 * step, at as i64 * step + width)
}

/// A batch of statements.
pub(super) fn batch(statements: &[String]) -> String {
    format!("batch_queries()\n{}\nbatch_execute()", statements.join("\n"))
}
