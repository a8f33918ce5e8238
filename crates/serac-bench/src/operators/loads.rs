//! Figure 2: loads of CSV files, checked, beside a loop that checks nothing, as the report's
//! FAST_LOAD, and DuckDB.

use super::language::{Client, write_csv};
use super::{Recorder, duckdb, milliseconds};
use crate::setup::{Folder, text};
use serde_json::{Value as Json, json};
use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

const COLUMNS: [&str; 2] = ["a", "b"];
/// The number of sizes in the report.
const STEPS: usize = 9;
/// The report's milliseconds for one to nine million rows.
const REPORT_FAST: [f64; STEPS] = [103.0, 217.0, 317.0, 415.0, 515.0, 614.0, 714.0, 814.0, 916.0];
const REPORT_CHECKED: [f64; STEPS] = [226.0, 478.0, 722.0, 957.0, 1186.0, 1414.0, 1652.0, 1878.0, 2111.0];

/// One loop over the bytes of a file, without any check: it parses, splits and pushes. A number may
/// lie in two chunks.
fn fast_load(path: &Path) -> Result<Vec<Vec<i32>>, String> {
    let mut file = BufReader::new(File::open(path).map_err(text)?);
    file.skip_until(b'\n').map_err(text)?;
    let mut columns = vec![Vec::new(); COLUMNS.len()];
    let (mut number, mut sign, mut column, mut chunk) = (0i32, 1, 0, vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut chunk).map_err(text)?;
        if read == 0 {
            return Ok(columns);
        }
        for &byte in &chunk[..read] {
            match byte {
                b',' | b'\n' => {
                    columns[column].push(number * sign);
                    column = if byte == b',' { column + 1 } else { 0 };
                    (number, sign) = (0, 1);
                }
                b'-' => sign = -1,
                digit => number = number.wrapping_mul(10).wrapping_add(i32::from(digit) - i32::from(b'0')),
            }
        }
    }
}

pub(super) fn run(recorder: &mut Recorder<'_>) -> Result<(), String> {
    let (folder, threads) = (Folder::new("operators"), recorder.arguments.threads.clone());
    let most_threads = threads.iter().copied().max().unwrap_or(1);
    let mut peer = duckdb(recorder, most_threads);
    let path = folder.0.join("load.csv");
    recorder.chart("Loads of two columns (figure 2, left)", "rows", "ms", false);
    for step in 1..=STEPS {
        let rows = recorder.arguments.rows * step / STEPS;
        let bytes = write_csv(&path, "load", &COLUMNS, rows)? as f64;
        let runs = recorder.arguments.runs;
        let fast = milliseconds(runs, || {
            let columns = fast_load(&path)?;
            let are_there = columns.iter().all(|column| black_box(column).len() == rows);
            are_there.then_some(()).ok_or_else(|| "rows are missing".to_owned())
        })?;
        let mut all = vec![("FAST_LOAD-like".to_owned(), json!(fast))];
        for &threads in &threads {
            let mut client = Client::new()?;
            client.run(&format!("set(threads,{threads})"))?;
            let mut table = 0;
            let ms = milliseconds(runs, || {
                // Each run has a new table, because a load appends. The table's name stands in the
                // header of the file, so a new database replaces the last one.
                if table > 0 {
                    client = Client::new()?;
                    client.run(&format!("set(threads,{threads})"))?;
                }
                table += 1;
                client.create_table("load", &COLUMNS)?;
                client.run(&format!("load(\"{}\")", path.display())).map(|_| ())
            })?;
            all.push((format!("checked, {threads} threads"), json!(ms)));
        }
        let of_peer = match &mut peer {
            Some(peer) => {
                let sql =
                    format!("control CREATE OR REPLACE TABLE load AS SELECT * FROM read_csv('{}')", path.display());
                json!(milliseconds(runs, || peer.ask(&sql).map(|_| ()))?)
            }
            None => Json::Null,
        };
        all.push((format!("DuckDB, {most_threads} threads"), of_peer));
        for (name, ms) in &all {
            let per_second = ms.as_f64().map_or(Json::Null, |ms| json!(bytes / ms / 1e3));
            let of_report = match name.as_str() {
                "FAST_LOAD-like" => json!(REPORT_FAST[step - 1]),
                name if name.starts_with("checked") => json!(REPORT_CHECKED[step - 1]),
                _ => Json::Null,
            };
            recorder.row(&[
                ("rows", json!(rows)),
                ("loader", json!(name)),
                ("ms", ms.clone()),
                ("MB/s", per_second),
                ("report's million rows", json!(step)),
                ("report ms", of_report),
            ]);
            ms.as_f64().into_iter().for_each(|ms| recorder.point(name, rows as f64, ms));
        }
    }
    for (name, report) in [("report, FAST_LOAD", REPORT_FAST), ("report, checked", REPORT_CHECKED)] {
        (1..).zip(report).for_each(|(step, ms)| recorder.point(name, f64::from(step) * 1e6, ms));
    }
    Ok(())
}
