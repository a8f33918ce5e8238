//! Races of few steps, each under many schedules of the deterministic scheduler (see
//! `scripts/test`).
#![cfg(shuttle)]

mod one_table;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use one_table::{column, open_table};
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::types::{ColumnType, TableSchema};
use serac_storage::version::transaction::TransactionManager;
use serac_storage::{ColumnId, DataTable, RowBuffer, RowId, Storage, StorageOptions, TableId, Timestamp, Value};
use serac_sync::simulation::{Weather, run};
use serac_sync::thread;
use serac_sync::time::Duration;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

fn schema() -> TableSchema {
    TableSchema { columns: vec![column("number", ColumnType::Int64), column("text", ColumnType::Utf8)] }
}

fn table() -> Arc<DataTable> {
    DataTable::new(TableId(1), "t", schema()).unwrap()
}

fn for_each_seed(seeds: u64, work: fn()) {
    for seed in 0..seeds {
        let summary = std::panic::catch_unwind(|| run(seed, seed, Weather::of(seed), 1_000_000, work));
        assert!(summary.is_ok(), "seed {seed}");
    }
}

/// While one collector checks which entries of a row are used, a transaction changes the row and
/// rolls back, and another collector comes by.
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

/// While one collector takes off the version of a bulk append, a transaction deletes its rows and
/// rolls back, and another collector comes by.
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
        // The latch of the first row is the append's latch.
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

/// A visitor's snapshot keeps the committed version under a change of two steps. While the visitor
/// looks for the key, the change is rolled back, and a collector takes off the step that changed
/// the key.
#[test]
fn a_visitor_finds_the_key_that_a_change_of_two_steps_puts_back() {
    for_each_seed(5_000, || {
        let (manager, table) = (TransactionManager::new(Timestamp(0), None), table());
        let mut txn = manager.begin();
        let row = table.insert(&mut txn, &[Value::Int64(1), Value::Null]).unwrap();
        txn.commit().unwrap();
        manager.gc().run_once(&manager);
        let visitor = manager.begin();
        let (other, changed) = (manager.clone(), table.clone());
        let mut txn = manager.begin();
        table.update(&mut txn, row, &[ColumnId(0)], &[Value::Int64(2)]).unwrap();
        txn.commit().unwrap();
        let writer = thread::spawn(move || {
            let mut txn = other.begin();
            changed.update(&mut txn, row, &[ColumnId(0)], &[Value::Int64(3)]).unwrap();
            changed.update(&mut txn, row, &[ColumnId(1)], &[Value::Bytes(b"three")]).unwrap();
            txn.abort();
            other.gc().run_once(&other);
        });
        let mut is_two = |version: &RowBuffer| version.value(0) == Value::Int64(2);
        assert!(table.any_version_matches(row, &[ColumnId(0)], None, &mut is_two).unwrap(), "the row is 2 again");
        drop(visitor);
        writer.join().unwrap();
    });
}

/// The numbers of the rows, in a new snapshot.
fn numbers(storage: &Storage, table: &Arc<DataTable>) -> Vec<i64> {
    let (txn, mut buffer, mut found) = (storage.begin(), RowBuffer::default(), Vec::new());
    for no in 0..table.block_count() {
        let Some(reader) = table.read_block(txn.snapshot(), serac_storage::BlockNo(no)) else { continue };
        for &row in reader.row_ids(reader.visible()).values() {
            assert!(table.read(txn.snapshot(), RowId::from_u64(row), &[ColumnId(0)], &mut buffer).unwrap());
            found.extend(buffer.integer(0));
        }
    }
    found.sort_unstable();
    found
}

/// A block cools, is written, and cools again, while entries of earlier rounds come due.
#[test]
fn no_write_is_lost_to_any_round_of_freezing() {
    for_each_seed(3_000, || {
        let options = StorageOptions { gc_threads: 0, freeze_after: None, ..Default::default() };
        let (storage, table, _) = open_table(options, schema()).unwrap();
        let mut txn = storage.begin();
        let rows = [0, 1].map(|i| table.insert(&mut txn, &[Value::Int64(i), Value::Null]).unwrap());
        txn.commit().unwrap();
        let freezers = [0, 1].map(|_| {
            let (storage, table) = (storage.clone(), table.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    storage.freeze_table(&table, Duration::ZERO);
                }
            })
        });
        let writers = rows.map(|row| {
            let (storage, table) = (storage.clone(), table.clone());
            thread::spawn(move || {
                for new in 0..2i64 {
                    let mut txn = storage.begin();
                    let new = 10 * (new + 1) + row.slot().0 as i64;
                    table.update(&mut txn, row, &[ColumnId(0)], &[Value::Int64(new)]).unwrap();
                    txn.commit().unwrap();
                }
            })
        });
        freezers.into_iter().chain(writers).for_each(|task| task.join().unwrap());
        assert_eq!(numbers(&storage, &table), [20, 21]);
    });
}

fn logged(path: &Path, files: &FaultFileSystem) -> StorageOptions {
    StorageOptions {
        path: Some(path.to_owned()),
        file_system: Arc::new(files.clone()),
        log_segment_bytes: 1 << 10,
        log_allocation_bytes: 1 << 9,
        log_spill_bytes: 1 << 8,
        gc_threads: 0,
        freeze_after: None,
        ..Default::default()
    }
}

/// A transaction with parts in many segments commits beside checkpoints, which remove segments, and
/// beside small commits. Then the process is killed.
#[test]
fn no_part_of_what_was_acknowledged_goes_with_the_segments_that_checkpoints_remove() {
    for_each_seed(300, || {
        let folder = tempfile::tempdir().unwrap();
        let files = FaultFileSystem::with_disk();
        let (storage, table, _) = open_table(logged(folder.path(), &files), schema()).unwrap();
        let insert = |storage: &Storage, table: &Arc<DataTable>, numbers: std::ops::Range<i64>| {
            let mut txn = storage.begin();
            for number in numbers {
                table.insert(&mut txn, &[Value::Int64(number), Value::Bytes(&[b'a'; 60])]).unwrap();
            }
            txn.commit().unwrap().wait().unwrap();
        };
        let writers = [0..40, 100..110].map(|numbers| {
            let (storage, table) = (storage.clone(), table.clone());
            thread::spawn(move || insert(&storage, &table, numbers))
        });
        for _ in 0..2 {
            storage.checkpoint(&|_| (String::new(), vec![TableId(1)])).unwrap();
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        files.faults().halt_in.store(1, SeqCst);
        let _ = storage.close();
        drop((storage, table));
        files.process_restarts();
        let (storage, table, _) = open_table(logged(folder.path(), &files), schema()).unwrap();
        assert_eq!(numbers(&storage, &table), (0..40).chain(100..110).collect::<Vec<_>>());
    });
}
