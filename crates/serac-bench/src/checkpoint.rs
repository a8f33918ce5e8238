//! Checkpoints of lineitem: the bytes that they write, the memory that they give back, and the time
//! to open the database.

use crate::report::{Report, median};
use crate::setup::{Folder, text};
use arrow::ipc::reader::FileReader;
use serac_engine::{Database, DecimalForm, Table};
use serac_storage::{BlockNo, ColumnId, Durability, RowId, Slot, StorageOptions, Value};
use serac_workload::tpch::TABLES;
use serde_json::json;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Private memory of this process, and the resident part of its mapped files, in MB.
fn resident_mb() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0)
    };
    (kilobytes("RssAnon:") / 1e3, kilobytes("RssFile:") / 1e3)
}

fn open(path: &Path) -> Result<(Database, Arc<Table>), String> {
    let options = StorageOptions {
        path: Some(path.to_owned()),
        durability: Durability::Off,
        freeze_after: None,
        ..StorageOptions::default()
    };
    let database = Database::open_with(options).map_err(text)?;
    let db = serac_sql::SqlDatabase::new(database.clone(), &serac_sql::SqlOptions::default()).map_err(text)?;
    let workload = TABLES.iter().find(|t| t.name == "lineitem").expect("a table of TPC-H");
    if database.catalog().table("public", workload.name).is_err() {
        let runtime = tokio::runtime::Runtime::new().map_err(text)?;
        runtime.block_on(serac_sql::Session::new(&db).execute(&workload.create_sql(false))).map_err(text)?;
    }
    let table = database.catalog().table("public", workload.name).map_err(text)?.clone();
    Ok((database, table))
}

fn data_files(path: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(path.join("data")).map_err(text)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(text)).collect()
}

/// Makes the operating system drop its cached pages of the files.
fn forget(path: &Path) -> Result<(), String> {
    for file in data_files(path)? {
        let file = std::fs::File::open(file).map_err(text)?;
        // SAFETY: the descriptor is open; the call touches no memory of ours.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(())
}

/// Reads every value of every column once.
fn scan(database: &Database, table: &Arc<Table>) -> Result<usize, String> {
    let (txn, mut bytes) = (database.begin(), 0);
    let all: Vec<usize> = (0..table.definition.columns.len()).collect();
    let batches = txn.scan_arrow(table, &all, &[]).map_err(text)?.with_decimals(DecimalForm::Decimal64);
    for batch in batches {
        for column in batch.map_err(text)?.columns() {
            let data = column.to_data();
            let sum = |buffer: &arrow::buffer::Buffer| buffer.iter().map(|&byte| usize::from(byte)).sum::<usize>();
            bytes += std::hint::black_box(data.buffers().iter().map(sum).sum::<usize>()) & 1;
            bytes += data.buffers().iter().map(|buffer| buffer.len()).sum::<usize>();
        }
    }
    Ok(bytes)
}

fn milliseconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

pub fn run(sf: f64, report: &mut Report) -> Result<(), String> {
    let workload = TABLES.iter().find(|t| t.name == "lineitem").expect("a table of TPC-H");
    let folder = Folder::new("checkpoint");
    let (database, table) = open(&folder.0)?;
    let mut txn = database.begin();
    for batch in workload.generate(sf, 65_536) {
        txn.insert_batch(&table, &batch).map_err(text)?;
    }
    txn.commit().map_err(text)?;
    database.storage().run_gc();
    let mut row = |step: &str, ms: f64, written: f64, blocks: u64| {
        let (private, mapped) = resident_mb();
        report.row(&[
            ("step", json!(step)),
            ("ms", json!(ms)),
            ("MB written", json!(written)),
            ("blocks written", json!(blocks)),
            ("private MB", json!(private)),
            ("mapped MB in memory", json!(mapped)),
        ]);
    };
    row("loaded, hot", 0.0, 0.0, 0);
    let freeze = || -> Result<f64, String> {
        let started = Instant::now();
        let (frozen, blocks) = database.storage().freeze_table(&table.data, Duration::from_secs(60));
        let time = milliseconds(started);
        if frozen == blocks { Ok(time) } else { Err(format!("{frozen} of {blocks} blocks are frozen")) }
    };
    row("frozen", freeze()?, 0.0, 0);
    let checkpoint = |step: &str, row: &mut dyn FnMut(&str, f64, f64, u64)| -> Result<(), String> {
        let started = Instant::now();
        let done = database.checkpoint().map_err(text)?;
        let time = milliseconds(started);
        // Replaced memory is freed two epochs later.
        for _ in 0..3 {
            database.storage().run_gc();
        }
        std::thread::sleep(Duration::from_millis(100));
        row(step, time, done.bytes as f64 / 1e6, done.blocks_written);
        Ok(())
    };
    checkpoint("first checkpoint", &mut row)?;
    checkpoint("second checkpoint, nothing changed", &mut row)?;
    let mut txn = database.storage().begin();
    table.data.update(&mut txn, RowId::new(BlockNo(3), Slot(3)), &[ColumnId(0)], &[Value::Int64(1)]).map_err(text)?;
    txn.commit().map_err(text)?;
    checkpoint("checkpoint after an update of one row", &mut row)?;
    freeze()?;
    checkpoint("checkpoint after that block has frozen", &mut row)?;
    let bytes = scan(&database, &table)?;
    row("all values read", 0.0, 0.0, 0);
    database.storage().close().map_err(text)?;
    drop((database, table));

    for (step, cold) in [("opening, files in memory", false), ("opening, files not in memory", true)] {
        let (mut times, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..5 {
            if cold {
                forget(&folder.0)?;
            }
            let started = Instant::now();
            let (database, table) = open(&folder.0)?;
            times.push(milliseconds(started));
            for times in [&mut first, &mut second] {
                let started = Instant::now();
                if scan(&database, &table)? != bytes {
                    return Err("what was read is not what was written".into());
                }
                times.push(milliseconds(started));
            }
            database.storage().close().map_err(text)?;
        }
        row(step, median(times), 0.0, 0);
        row("  first scan of all values (checks the checksums)", median(first), 0.0, 0);
        row("  second scan", median(second), 0.0, 0);
    }
    let started = Instant::now();
    let other = Folder::new("checkpoint-loaded");
    let (database, table) = open(&other.0)?;
    for file in data_files(&folder.0)? {
        let mut txn = database.storage().begin();
        for batch in FileReader::try_new(std::fs::File::open(file).map_err(text)?, None).map_err(text)? {
            table.data.append(&mut txn, &batch.map_err(text)?).map_err(text)?;
        }
        txn.commit().map_err(text)?;
    }
    row("loading the same files into hot blocks, files in memory", milliseconds(started), 0.0, 0);
    database.storage().close().map_err(text)
}
