//! First updater wins, also after the collector has pruned a version chain.

use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::*;
use std::sync::Arc;

mod one_table;

const ROW: [ColumnId; 1] = [ColumnId(0)];

fn table() -> (Arc<Storage>, Arc<DataTable>, RowId) {
    let schema = TableSchema { columns: vec![one_table::required("n", ColumnType::Int64)] };
    // The collector runs only when the test calls it.
    let options = StorageOptions { gc_threads: 0, freeze_after: None, ..Default::default() };
    let (storage, table, _) = one_table::open_table(options, schema).unwrap();
    let mut txn = storage.begin();
    let row = table.insert(&mut txn, &[Value::Int64(0)]).unwrap();
    txn.commit().unwrap();
    (storage, table, row)
}

/// Updates the row in every order of commits and aborts up to a length, collecting after each or at
/// the end. An older transaction conflicts iff another one has committed; it always reads the state
/// at its start.
#[test]
fn an_older_transaction_meets_a_commit_among_aborts() {
    for length in 1..=5u32 {
        for commits in 0..1u32 << length {
            for collects_each in [false, true] {
                let (storage, table, row) = table();
                let mut older = storage.begin();
                for step in 0..length {
                    let mut txn = storage.begin();
                    table.update(&mut txn, row, &ROW, &[Value::Int64(i64::from(step) + 1)]).unwrap();
                    if commits >> step & 1 == 1 {
                        txn.commit().unwrap();
                    } else {
                        txn.abort();
                    }
                    if collects_each {
                        storage.run_gc();
                    }
                }
                storage.run_gc();
                storage.run_gc();
                let mut found = RowBuffer::default();
                assert!(table.read(older.snapshot(), row, &ROW, &mut found).unwrap());
                assert_eq!(found.get::<i64>(0).unwrap(), 0, "{length} {commits:b} {collects_each}");
                let written = table.update(&mut older, row, &ROW, &[Value::Int64(-1)]);
                match written {
                    Ok(()) => assert_eq!(commits, 0, "an update of {length} steps {commits:b} is lost"),
                    Err(StorageError::WriteConflict { .. }) => assert_ne!(commits, 0),
                    Err(other) => panic!("{other}"),
                }
                older.abort();
            }
        }
    }
}
