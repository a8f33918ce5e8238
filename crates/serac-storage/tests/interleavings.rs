//! Races of few steps, each under many schedules of the deterministic scheduler (see
//! `scripts/test`).
#![cfg(shuttle)]

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use serac_storage::transaction::TransactionManager;
use serac_storage::types::{ColumnSchema, ColumnType, TableSchema};
use serac_storage::{ColumnId, DataTable, RowBuffer, RowId, TableId, Timestamp, Value};
use serac_sync::simulation::{Weather, run};
use serac_sync::thread;
use std::sync::Arc;

fn table() -> Arc<DataTable> {
    let column = |name: &str, column_type| ColumnSchema { name: name.into(), column_type, nullable: true };
    let columns = vec![column("number", ColumnType::Int64), column("text", ColumnType::Utf8)];
    DataTable::new(TableId(1), "t", TableSchema { columns }).unwrap()
}

fn for_each_seed(seeds: u64, work: fn()) {
    for seed in 0..seeds {
        let summary = std::panic::catch_unwind(|| run(seed, seed, Weather::of(seed), 1_000_000, work));
        assert!(summary.is_ok(), "seed {seed}");
    }
}

/// While one collector looks which entries of a row are used, somebody changes the row and takes
/// that back, and another collector comes by.
#[test]
fn an_action_finds_the_version_that_an_aborted_change_puts_back() {
    for_each_seed(5_000, || {
        let (manager, table) = (TransactionManager::new(Timestamp(0), None), table());
        let mut txn = manager.begin();
        let row = table.insert(&mut txn, &[Value::Int64(1), Value::Null]).unwrap();
        txn.commit().unwrap();
        manager.gc().run_once(&manager);
        let looked_at = table.clone();
        manager.defer(Box::new(move || {
            let mut is_one = |version: &RowBuffer| version.value(0) == Value::Int64(1);
            assert!(
                looked_at.any_version_matches(row, &[ColumnId(0)], None, &mut is_one).unwrap(),
                "the row has no value"
            );
        }));
        let other = manager.clone();
        let collector = thread::spawn(move || _ = other.gc().run_once(&other));
        let mut txn = manager.begin();
        table.update(&mut txn, row, &[ColumnId(0)], &[Value::Int64(3)]).unwrap();
        txn.abort();
        manager.gc().run_once(&manager);
        collector.join().unwrap();
    });
}

/// While one collector takes off the version of a bulk append, somebody deletes its rows and takes
/// that back, and another collector comes by.
#[test]
fn rows_that_were_appended_and_are_not_deleted_after_all_keep_their_texts() {
    for_each_seed(5_000, || {
        let (manager, table) = (TransactionManager::new(Timestamp(0), None), table());
        let texts: Vec<String> = (0..30).map(|i| format!("text number {i} of thirty")).collect();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..30));
        let columns: [ArrayRef; 2] = [numbers, Arc::new(StringArray::from_iter_values(&texts))];
        let batch = RecordBatch::try_from_iter(["number", "text"].into_iter().zip(columns)).unwrap();
        let mut txn = manager.begin();
        let rows = table.append(&mut txn, &batch).unwrap()[0].clone();
        txn.commit().unwrap();
        let other = manager.clone();
        let collector = thread::spawn(move || _ = other.gc().run_once(&other));
        let mut txn = manager.begin();
        // The first one's latch is the append's.
        rows.clone().skip(1).for_each(|row| table.delete(&mut txn, RowId::from_u64(row)).unwrap());
        txn.abort();
        manager.gc().run_once(&manager);
        collector.join().unwrap();
        let (txn, mut read) = (manager.begin(), RowBuffer::default());
        for (row, text) in rows.zip(&texts) {
            assert!(table.read(txn.snapshot(), RowId::from_u64(row), &[ColumnId(1)], &mut read).unwrap());
            assert_eq!(read.value(0), Value::Bytes(text.as_bytes()));
        }
        drop(txn);
        manager.gc().run_once(&manager);
        table.verify();
    });
}
