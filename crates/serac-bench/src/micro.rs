//! Measurements of the storage on its own.

use crate::report::Report;
use crate::setup::{Folder, OneTable, open, rate, schema, text};
use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::{ColumnId, ColumnType, DataTable, Durability, RowId, StorageError, TableId, Value};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub fn recovery(report: &mut Report) -> Result<(), String> {
    let schema = schema(8, ColumnType::Int64);
    for rows in [100_000usize, 400_000, 1_600_000] {
        let folder = Folder::new("recovery");
        let (storage, table) = open(Some(folder.0.clone()), Durability::Relaxed, &schema)?;
        rate(&storage, rows, 1, |txn, i| table.insert(txn, &[Value::Int64(i as i64); 8]).map(|_| ()))?;
        storage.close().map_err(text)?;
        drop((storage, table));
        for checkpoint in [false, true] {
            let started = Instant::now();
            let options = StorageOptions { path: Some(folder.0.clone()), ..Default::default() };
            let (storage, found) = Storage::open(options, &mut OneTable(schema.clone())).map_err(text)?;
            let time = started.elapsed().as_secs_f64();
            let data: u64 = std::fs::read_dir(folder.0.join("data"))
                .map_err(text)?
                .filter_map(|e| e.ok()?.metadata().ok().map(|m| m.len()))
                .sum();
            report.row(&[
                ("from", json!(if checkpoint { "checkpoint" } else { "log" })),
                ("rows", json!(rows)),
                ("MB", json!(if checkpoint { data } else { found.log_bytes } as f64 / 1e6)),
                ("transactions replayed", json!(found.transactions_replayed)),
                ("seconds", json!(time)),
            ]);
            if !checkpoint {
                storage.checkpoint(&|_| (String::new(), vec![TableId(1)])).map_err(text)?;
            }
            storage.close().map_err(text)?;
        }
    }
    Ok(())
}

/// The arguments of `gc`.
#[derive(clap::Args, Debug)]
pub struct GcArguments {
    /// Seconds per phase.
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Threads that update, each rows of its own.
    #[arg(long, default_value_t = 1)]
    writers: usize,
    /// Collector threads; several numbers are measured one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    gc_threads: Vec<usize>,
}

/// Rows of each writer.
const ROWS: usize = 10_000;

fn update_all_the_time(
    storage: &Storage,
    table: &Arc<DataTable>,
    ids: &[RowId],
    updates: &AtomicUsize,
    stop: &AtomicBool,
) -> Result<(), StorageError> {
    let mut done = 0usize;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..100 {
            let mut txn = storage.begin();
            let column = ColumnId((done % 4) as u16);
            table.update(&mut txn, ids[done * 7_919 % ids.len()], &[column], &[Value::Int64(done as i64)])?;
            txn.commit()?;
            done += 1;
        }
        updates.fetch_add(100, Ordering::Relaxed);
    }
    Ok(())
}

pub fn gc(arguments: &GcArguments, report: &mut Report) -> Result<(), String> {
    for &gc_threads in &arguments.gc_threads {
        let schema = schema(4, ColumnType::Int64);
        let options = StorageOptions { durability: Durability::Off, gc_threads, ..Default::default() };
        let (storage, _) = Storage::open(options, &mut OneTable(schema.clone())).map_err(text)?;
        let table = storage.create_table(TableId(1), "t", schema).map_err(text)?;
        let mut txn = storage.begin();
        let ids: Vec<RowId> = (0..ROWS * arguments.writers)
            .map(|_| table.insert(&mut txn, &[Value::Int64(0); 4]))
            .collect::<Result<_, _>>()
            .map_err(text)?;
        txn.commit().map_err(text)?;
        let (updates, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let writers: Vec<_> = ids
                .chunks(ROWS)
                .map(|ids| scope.spawn(|| update_all_the_time(&storage, &table, ids, &updates, &stop)))
                .collect();
            let (started, mut reader, mut before) = (Instant::now(), None, 0);
            for second in 0..3 * arguments.seconds {
                let phase = second / arguments.seconds;
                match phase {
                    1 if reader.is_none() => reader = Some(storage.begin()),
                    2 => reader = None,
                    _ => {}
                }
                let until = Duration::from_secs(second + 1);
                let mut most = 0;
                while started.elapsed() < until {
                    std::thread::sleep(Duration::from_millis(20).min(until.saturating_sub(started.elapsed())));
                    most = most.max(storage.manager().gc().backlog());
                }
                let metrics = storage.metrics();
                let all = updates.load(Ordering::Relaxed);
                report.row(&[
                    ("collectors", json!(gc_threads)),
                    ("second", json!(second + 1)),
                    ("phase", json!(["no reader", "long reader", "reader ended"][phase as usize])),
                    ("updates/s", json!(all - before)),
                    ("undo MB", json!(metrics.undo_bytes as f64 / 1e6)),
                    ("transactions kept, at most", json!(most)),
                ]);
                before = all;
            }
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
        })
        .map_err(text)?;
    }
    Ok(())
}
