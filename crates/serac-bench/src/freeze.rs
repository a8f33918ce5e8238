//! The time to freeze lineitem, and to hand it out as Arrow.

use crate::report::{Report, median};
use crate::setup::{lineitem, resident_bytes, text};
use arrow::array::{Array, ArrayRef, AsArray};
use serac_engine::{DecimalForm, Table};
use serac_sql::SqlDatabase;
use serac_storage::{BlockNo, ColumnId, RowId, Slot, StorageOptions, Value};
use serac_workload::tpch::TABLES;
use serde_json::json;
use std::time::{Duration, Instant};

/// The bytes that the array's values need in Arrow: buffers of exactly its length, and for views
/// the bytes that they name.
pub fn arrow_size(array: &ArrayRef) -> Result<usize, String> {
    let named = match array.data_type() {
        arrow::datatypes::DataType::Utf8View => {
            let lengths = array.as_string_view().lengths().map(|len| len as usize);
            lengths.filter(|len| *len > 12).sum()
        }
        _ => 0,
    };
    Ok(array.to_data().get_slice_memory_size().map_err(text)? + named)
}

pub fn run(sf: f64, gc_threads: usize, report: &mut Report) -> Result<(), String> {
    let workload = TABLES.iter().find(|t| t.name == "lineitem").expect("a table of TPC-H");
    // The generator keeps 300 MiB of text once it has made its first batch.
    drop(workload.generate(sf, 65_536).next());
    let before = resident_bytes();
    let (db, table) = lineitem(sf, StorageOptions { freeze_after: None, gc_threads, ..StorageOptions::default() })?;
    let database = db.database();
    let hot = table.data.metrics();
    let hot_resident = resident_bytes() - before;
    let started = Instant::now();
    let (frozen, blocks) = database.storage().freeze_table(&table.data, Duration::from_secs(60));
    let time = started.elapsed().as_secs_f64() * 1e3;
    if frozen != blocks {
        return Err(format!("{frozen} of {blocks} blocks are frozen"));
    }
    let cold = table.data.metrics();
    // Two epochs later the hot blocks are freed.
    for _ in 0..8 {
        database.storage().run_gc();
        std::thread::sleep(Duration::from_millis(20));
    }
    let cold_resident = resident_bytes() - before;
    let txn = database.begin();
    let all: Vec<usize> = (0..table.definition.columns.len()).collect();
    let mut arrow_bytes = 0;
    for (name, decimals) in [("Decimal64", DecimalForm::Decimal64), ("Decimal128", DecimalForm::Decimal128)] {
        let mut times = Vec::new();
        for run in 0..5 {
            let started = Instant::now();
            let scan = txn.scan_arrow(&table, &all, &[]).map_err(text)?.with_decimals(decimals);
            let batches: Vec<_> = scan.collect::<Result<_, _>>().map_err(text)?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
            if run == 0 && decimals == DecimalForm::Decimal64 {
                arrow_bytes = batches.iter().flat_map(|b| b.columns()).map(arrow_size).sum::<Result<usize, _>>()?;
            }
        }
        report.row(&[
            ("measure", json!(format!("all of lineitem as Arrow, {name}, ms"))),
            ("value", json!(median(times))),
        ]);
    }
    let ratio = |bytes: usize| bytes as f64 / arrow_bytes as f64;
    for (measure, value) in [
        ("blocks", f64::from(blocks)),
        ("freezing, ms", time),
        ("freezing, ms per block", time / f64::from(blocks)),
        ("hot bytes / Arrow bytes", ratio(hot.bytes)),
        ("frozen bytes / Arrow bytes", ratio(cold.bytes)),
        ("Arrow bytes, MiB", arrow_bytes as f64 / f64::from(1 << 20)),
        ("resident, hot / Arrow bytes", hot_resident / arrow_bytes as f64),
        ("resident, frozen / Arrow bytes", cold_resident / arrow_bytes as f64),
    ] {
        report.row(&[("measure", json!(measure)), ("value", json!(value))]);
    }
    let first = write_each_block(&db, &table)?;
    let again = write_each_block(&db, &table)?;
    for (measure, time) in [("writing to each frozen block, ms per block", first), ("writing to each hot block", again)]
    {
        report.row(&[("measure", json!(measure)), ("value", json!(time))]);
    }
    Ok(())
}

/// Changes a row of each block, each in a transaction of its own. Returns milliseconds per block.
fn write_each_block(db: &SqlDatabase, table: &Table) -> Result<f64, String> {
    let started = Instant::now();
    for no in 0..table.data.block_count() {
        let mut txn = db.database().storage().begin();
        let row = RowId::new(BlockNo(no), Slot(0));
        table.data.update(&mut txn, row, &[ColumnId(0)], &[Value::Int64(no.into())]).map_err(text)?;
        txn.commit().map_err(text)?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e3 / f64::from(table.data.block_count()))
}
