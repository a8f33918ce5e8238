//! Measurements of the storage on its own.

use crate::report::Report;
use crate::setup::{Folder, OneTable, open, rate, schema, text};
use serac_storage::storage::{Storage, StorageOptions};
use serac_storage::{ColumnId, ColumnType, Durability, RowId, TableId, Value};
use serde_json::json;
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

pub fn gc(seconds: u64, report: &mut Report) -> Result<(), String> {
    const ROWS: usize = 10_000;
    let schema = schema(4, ColumnType::Int64);
    let (storage, table) = open(None, Durability::Off, &schema)?;
    let mut txn = storage.begin();
    let ids: Vec<RowId> =
        (0..ROWS).map(|_| table.insert(&mut txn, &[Value::Int64(0); 4])).collect::<Result<_, _>>().map_err(text)?;
    txn.commit().map_err(text)?;
    let mut reader = None;
    let started = Instant::now();
    let mut updates = 0usize;
    for second in 0..3 * seconds {
        let phase = match second / seconds {
            0 => "no reader",
            1 => "long reader",
            _ => "reader ended",
        };
        match second / seconds {
            1 if reader.is_none() => reader = Some(storage.begin()),
            2 => reader = None,
            _ => {}
        }
        let until = Duration::from_secs(second + 1);
        while started.elapsed() < until {
            for _ in 0..100 {
                let mut txn = storage.begin();
                table
                    .update(
                        &mut txn,
                        ids[(updates * 7_919) % ROWS],
                        &[ColumnId((updates % 4) as u16)],
                        &[Value::Int64(updates as i64)],
                    )
                    .map_err(text)?;
                txn.commit().map_err(text)?;
                updates += 1;
            }
        }
        let metrics = storage.metrics();
        report.row(&[
            ("second", json!(second + 1)),
            ("phase", json!(phase)),
            ("updates so far", json!(updates)),
            ("undo MB", json!(metrics.undo_bytes as f64 / 1e6)),
            ("transactions kept", json!(metrics.gc_backlog)),
        ]);
    }
    Ok(())
}
