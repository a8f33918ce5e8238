//! Measures how long a database takes to open:
//! `cargo run --release -p serac-engine --example opening -- <folder> indexes [rows]`, or
//! `… few [openings]`.
//!
//! `indexes` makes a table of ten columns with ten indexes (a unique one and nine others, two of
//! them over texts) and writes a checkpoint. Then it opens the database three times. `few` makes a
//! database and opens it again and again. The first six openings insert a row each. The folder must
//! not be there.

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use serac_engine::Database;
use serac_engine::catalog::definition::{ColumnDefinition, KeyDefinition, TableDefinition};
use serac_storage::{ColumnType, Value};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const COLUMNS: usize = 10;
const TEXTS: [usize; 2] = [8, 9];

fn column(at: usize) -> ColumnDefinition {
    let column_type = if TEXTS.contains(&at) { ColumnType::Utf8 } else { ColumnType::Int64 };
    ColumnDefinition { nullable: false, ..ColumnDefinition::new(format!("c{at}"), column_type) }
}

fn key(at: usize) -> KeyDefinition {
    let primary = at == 0;
    let name = format!("key_{at}");
    KeyDefinition { name, columns: vec![at], unique: primary, primary, constraint: primary, ..Default::default() }
}

/// The number of a row in a column. The first column has the row numbers. The second one has at
/// most 1,000 values, and the third one has each value four times. The others have pseudo-random
/// numbers.
fn number(row: i64, at: usize) -> i64 {
    let mixed = (row as u64 ^ (at as u64) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8;
    match at {
        0 => row,
        1 => mixed as i64 % 1_000,
        2 => row / 4,
        _ => mixed as i64,
    }
}

fn batch(from: i64, to: i64) -> Result<RecordBatch, Box<dyn std::error::Error>> {
    let column = |at: usize| -> ArrayRef {
        match TEXTS.contains(&at) {
            true => Arc::new(StringViewArray::from_iter_values(
                (from..to).map(|row| format!("customer {:09}, {row}", number(row, at) % 1_000_000_000)),
            )),
            false => Arc::new(Int64Array::from_iter_values((from..to).map(|row| number(row, at)))),
        }
    };
    Ok(RecordBatch::try_from_iter((0..COLUMNS).map(|at| (format!("c{at}"), column(at))))?)
}

fn create(db: &Database, keys: usize) -> Outcome {
    let mut table = TableDefinition::new("public", "t", (0..COLUMNS).map(column).collect());
    table.keys.extend((0..keys).map(key));
    let mut txn = db.begin();
    txn.create_table(table)?;
    txn.commit()?.wait()?;
    Ok(())
}

fn indexes(folder: &Path, rows: i64) -> Outcome {
    let db = Database::open(folder)?;
    create(&db, 0)?;
    for from in (0..rows).step_by(500_000) {
        let mut txn = db.begin();
        let table = txn.catalog().table("public", "t")?.clone();
        txn.insert_batch(&table, &batch(from, rows.min(from + 500_000))?)?;
        txn.commit()?.wait()?;
    }
    let mut txn = db.begin();
    for at in 0..COLUMNS {
        txn.create_index("public", "t", KeyDefinition { primary: false, constraint: false, ..key(at) })?;
    }
    txn.commit()?.wait()?;
    let table = db.catalog().table("public", "t")?.clone();
    db.storage().freeze_table(&table.data, Duration::from_secs(600));
    drop(table);
    let began = Instant::now();
    db.close()?;
    drop(db);
    println!("{rows} rows, {COLUMNS} indexes; closed in {:.2} s", began.elapsed().as_secs_f64());
    for _ in 0..3 {
        let began = Instant::now();
        let db = Database::open(folder)?;
        let opened = began.elapsed();
        let report = db.recovery_report();
        let found = db.begin().catalog().table("public", "t")?.data.metrics().rows;
        println!(
            "opened in {:.2} s: {found} rows, files mapped in {:.3} s, {} transactions replayed",
            opened.as_secs_f64(),
            report.load_time.as_secs_f64(),
            report.transactions_replayed,
        );
        db.close()?;
    }
    Ok(())
}

fn few(folder: &Path, openings: usize) -> Outcome {
    create(&Database::open(folder)?, 1)?;
    let (mut opening, mut closing) = (Vec::new(), Vec::new());
    for n in 0..openings as i64 {
        let began = Instant::now();
        let db = Database::open(folder)?;
        opening.push(began.elapsed());
        assert_eq!(db.recovery_report().transactions_replayed, 0);
        if n < 6 {
            let mut txn = db.begin();
            let table = txn.catalog().table("public", "t")?.clone();
            let numbers =
                (0..COLUMNS).map(|at| if TEXTS.contains(&at) { Value::Bytes(b"a text") } else { Value::Int64(n) });
            txn.insert_row(&table, &numbers.collect::<Vec<_>>())?;
            txn.commit()?.wait()?;
        }
        let began = Instant::now();
        db.close()?;
        closing.push(began.elapsed());
    }
    let bytes = bytes_on_disk(folder)?;
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e3
    };
    let last = opening.last().expect("at least one").as_secs_f64() * 1e3;
    println!(
        "{openings} openings: median {:.2} ms, last {last:.2} ms, longest {:.2} ms; closing {:.2} ms; {:.0} KB on the disk",
        median(&mut opening),
        opening[opening.len() - 1].as_secs_f64() * 1e3,
        median(&mut closing),
        bytes as f64 / 1e3,
    );
    Ok(())
}

fn bytes_on_disk(folder: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::read_dir(folder)?.try_fold(0, |sum, entry| {
        let entry = entry?;
        let of_entry =
            if entry.file_type()?.is_dir() { bytes_on_disk(&entry.path())? } else { entry.metadata()?.blocks() * 512 };
        Ok(sum + of_entry)
    })
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |default: usize| arguments.get(2).map_or(Ok(default), |number| number.parse());
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [folder, "indexes", ..] => indexes(Path::new(folder), number(10_000_000)? as i64),
        [folder, "few", ..] => few(Path::new(folder), number(1_000)?),
        _ => Err("opening <folder> indexes [rows] | few [openings]".into()),
    }
}
