//! DuckDB as a peer of whole workloads: it gets the same rows as Parquet files, answers the same
//! texts, and its answers are compared.

use crate::peer::Peer;
use crate::setup::text;
use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::parquet::arrow::ArrowWriter;
use serac_sql::StatementResult;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The form of times in answers.
const SECONDS: &str = "%Y-%m-%d %H:%M:%S";

/// DuckDB, with these tables loaded from the folder's Parquet files.
pub fn start(threads: usize, folder: &Path, tables: &[&str]) -> Result<Peer, String> {
    let mut arguments = vec![threads.to_string(), folder.display().to_string()];
    arguments.extend(tables.iter().map(ToString::to_string));
    let (peer, version) = Peer::start("duckdb_peer.py", arguments)?;
    eprintln!("peer: DuckDB {version}");
    Ok(peer)
}

/// The tables as Parquet files in a folder of this name, each made once from its batches.
pub fn parquet_files<B: IntoIterator<Item = RecordBatch>>(
    name: &str,
    tables: impl IntoIterator<Item = (&'static str, impl FnOnce() -> B)>,
) -> Result<PathBuf, String> {
    let folder = PathBuf::from(format!("target/bench-data/{name}"));
    std::fs::create_dir_all(&folder).map_err(text)?;
    for (table, batches) in tables {
        let path = folder.join(format!("{table}.parquet"));
        if path.exists() {
            continue;
        }
        let temporary = path.with_extension("new");
        let mut batches = batches().into_iter();
        let first = batches.next().ok_or("an empty table")?;
        let file = std::fs::File::create(&temporary).map_err(text)?;
        let mut writer = ArrowWriter::try_new(file, first.schema(), None).map_err(text)?;
        for batch in std::iter::once(first).chain(batches) {
            writer.write(&batch).map_err(text)?;
        }
        writer.close().map_err(text)?;
        std::fs::rename(temporary, path).map_err(text)?;
    }
    Ok(folder)
}

/// The peer's result of a query, and its milliseconds.
pub fn ask(peer: &mut Peer, query: &str) -> Result<(Value, f64), String> {
    let answer = peer.ask(query)?;
    let time = answer["ms"].as_f64().unwrap_or(f64::NAN);
    Ok((answer, time))
}

pub fn rows_of(results: &[StatementResult]) -> Vec<Vec<String>> {
    let Some(StatementResult::Rows { batches, .. }) = results.last() else { return Vec::new() };
    let options = FormatOptions::default().with_null("None").with_timestamp_format(Some(SECONDS));
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> =
            batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).expect("printable")).collect();
        rows.extend((0..batch.num_rows()).map(|i| columns.iter().map(|c| c.value(i).to_string()).collect()));
    }
    rows
}

/// Whether two values are equal: as texts, or as numbers with a difference of at most a millionth
/// of the larger one, or of 1 if that is larger.
fn same(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    match (a.parse::<f64>(), b.parse::<f64>()) {
        // Averages and quotients have different types in the two engines, down to six digits after
        // the point.
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0),
        _ => false,
    }
}

pub fn compare(query: &str, ours: &[Vec<String>], theirs: &Value) -> Result<(), String> {
    let empty = Vec::new();
    let theirs: Vec<Vec<String>> = theirs["rows"]
        .as_array()
        .unwrap_or(&empty)
        .iter()
        .map(|row| {
            let row = row.as_array().unwrap_or(&empty);
            row.iter().map(|v| v.as_str().unwrap_or("None").to_owned()).collect()
        })
        .collect();
    if ours.len() != theirs.len() {
        return Err(format!("{query}: {} rows here, {} there", ours.len(), theirs.len()));
    }
    for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        if a.len() != b.len() || !a.iter().zip(b).all(|(a, b)| same(a, b)) {
            return Err(format!("{query}, row {i}: {a:?} here, {b:?} there"));
        }
    }
    Ok(())
}
