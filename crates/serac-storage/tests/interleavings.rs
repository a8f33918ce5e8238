//! Races of few steps, each under many schedules of the deterministic scheduler (see `scripts/test`).
#![cfg(shuttle)]

use serac_storage::transaction::TransactionManager;
use serac_storage::types::{ColumnSchema, ColumnType, TableSchema};
use serac_storage::{ColumnId, DataTable, RowBuffer, TableId, Timestamp, Value};
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

/// While one collector looks which entries of a row are used, somebody changes the row and takes that back, and another collector comes by.
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
            assert!(looked_at.any_version_matches(row, &[ColumnId(0)], &mut is_one).unwrap(), "the row has no value");
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
