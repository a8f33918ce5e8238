//! The Python package: its start, tables as frames, frames into tables, statements on single rows
//! and functions in Python, beside sqlite3, psycopg and DuckDB.
//!
//! The measurement itself is Python: `peers/python_package.py`. This side makes the data and the
//! PostgreSQL.

use crate::peer::Peer;
use crate::postgres::{Cluster, Installation, PostgresArguments};
use crate::report::Report;
use crate::setup::{Folder, lineitem, text};
use arrow::array::RecordBatchReader;
use arrow::ipc::writer::FileWriter;
use clap::ValueEnum;
use serac_storage::StorageOptions;
use serde_json::{Value as Json, json};
use std::fs::File;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Debug)]
pub struct PythonArguments {
    /// The figure that is measured.
    #[arg(value_enum)]
    figure: Figure,
    /// Folder with the package `seracdb`; `scripts/python wheel` makes it.
    #[arg(long, default_value = "target/wheels/package")]
    package: PathBuf,
    /// Scale factor of lineitem.
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Rows of the table of keys. A function in Python gets a hundred times as many.
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// Seconds of each run on single rows.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Measured runs of each system, which take turns.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Commits are on the disk before they are acknowledged.
    #[arg(long)]
    durable: bool,
    #[command(flatten)]
    postgres: PostgresArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Figure {
    /// The import, and from the import to a row.
    Start,
    /// From the wheel to a row.
    Install,
    /// Lineitem, frozen, as a frame of pyarrow, Polars and pandas.
    Frames,
    /// A frame with lineitem's rows into a new table.
    Append,
    /// Statements on single rows by key, by one thread and by two.
    Point,
    /// A function in Python that gets batches.
    Functions,
}

/// The columns of figures, in the order in which they are shown.
const COLUMNS: [&str; 14] = [
    "system",
    "frame",
    "statement",
    "threads",
    "log",
    "rows",
    "per second",
    "µs",
    "to sqlite3",
    "ms",
    "least",
    "most",
    "rows/s",
    "MB",
];

/// Writes lineitem as a file of Arrow's format.
fn write_lineitem(sf: f64, path: &Path) -> Result<(), String> {
    let (db, table) = lineitem(sf, StorageOptions { freeze_after: None, ..StorageOptions::default() })?;
    let all: Vec<usize> = (0..table.definition.columns.len()).collect();
    let scan = db.database().begin().scan_arrow(&table, &all, &[]).map_err(text)?;
    let mut writer = FileWriter::try_new(File::create(path).map_err(text)?, &scan.schema()).map_err(text)?;
    for batch in scan {
        writer.write(&batch.map_err(text)?).map_err(text)?;
    }
    writer.finish().map_err(text)
}

/// The one wheel beside the package.
fn wheel(package: &Path) -> Result<PathBuf, String> {
    let folder = package.parent().unwrap_or(Path::new("."));
    let files = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files = files.filter_map(|file| file.ok().map(|file| file.path()));
    files
        .find(|file| file.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| format!("no wheel in {}: scripts/python wheel makes it", folder.display()))
}

pub fn run(arguments: &PythonArguments, report: &mut Report) -> Result<(), String> {
    let PythonArguments { figure, package, sf, rows, seconds, runs, durable, postgres } = arguments;
    let package = package.canonicalize().map_err(|error| format!("{}: {error}", package.display()))?;
    let folder = Folder::new("python");
    std::fs::create_dir_all(&folder.0).map_err(text)?;
    let folder_path = folder.0.canonicalize().map_err(text)?;
    let file = folder_path.join("lineitem.arrow");
    if matches!(figure, Figure::Frames | Figure::Append) {
        write_lineitem(*sf, &file)?;
    }
    // PostgreSQL takes part in what concerns single rows, with every commit synced.
    let cluster = match Installation::find(postgres.major) {
        _ if *figure != Figure::Point || !durable => None,
        Ok(installation) => Some(Cluster::create(installation, &folder.0)?),
        Err(missing) => {
            report.note(format!("{missing}; it is left out"));
            None
        }
    };
    let server = cluster.as_ref().map(Cluster::start).transpose()?;
    let dsn = cluster.as_ref().map(|c| format!("host={} port=5432 user=serac dbname=postgres", c.sockets().display()));
    let name = figure.to_possible_value().expect("no figure is hidden").get_name().to_owned();
    let (mut peer, versions) = Peer::start_with("peers", "python_package.py", [("PYTHONPATH", &package)])?;
    report.note(versions);
    let mut request = json!({
        "figure": name, "runs": runs, "file": file, "rows": rows, "seconds": seconds, "durable": durable,
        "folder": folder_path, "postgres": dsn,
    });
    match figure {
        Figure::Install => request["wheel"] = json!(wheel(&package)?),
        Figure::Functions => request["rows"] = json!(rows * 100),
        _ => {}
    }
    let answer = peer.ask(&request.to_string())?;
    for row in answer["rows"].as_array().ok_or("no rows")? {
        let figures: Vec<(&str, Json)> =
            COLUMNS.iter().filter_map(|name| row.get(*name).map(|value| (*name, value.clone()))).collect();
        report.row(&figures);
    }
    drop(server);
    Ok(())
}
