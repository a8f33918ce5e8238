//! If no thread can be started, an opening that needs one fails with an error. Work that threads
//! would share is done by the caller.

mod common;

use common::{column, key, row_ids, table};
use serac_engine::Database;
use serac_engine::catalog::definition::TableDefinition;
use serac_storage::freeze::compact::selection::CompactionGroups;
use serac_storage::{ColumnType, Durability, StorageOptions, Value};
use serac_testing::{ran, this_test};
use std::path::Path;
use std::time::Duration;

const ROWS: i64 = 4_000;
const COLUMNS: usize = 250;
/// The environment variable that makes a process the child of the test. Its value is the database's
/// folder.
const CHILD: &str = "SERAC_NO_THREADS";

/// Small blocks in small files, and no thread that must be there.
fn options(path: &Path) -> StorageOptions {
    StorageOptions {
        path: Some(path.to_owned()),
        durability: Durability::Off,
        gc_threads: 0,
        freeze_after: None,
        compaction: CompactionGroups::Fixed(2),
        compaction_threads: 4,
        data_file_bytes: 1 << 16,
        ..Default::default()
    }
}

fn fill(path: &Path) {
    let db = Database::open_with(options(path)).unwrap();
    let mut columns = vec![column("id", ColumnType::Int64)];
    columns.extend((1..COLUMNS).map(|i| column(&format!("c{i}"), ColumnType::Uuid)));
    let mut definition = TableDefinition::new("public", "t", columns);
    definition.keys = vec![key("t_pkey", &[0], true, true), key("a", &[0], false, false), key("b", &[0], false, false)];
    let mut txn = db.begin();
    txn.create_table(definition).unwrap();
    let t = table(&txn, "t");
    let mut row = vec![Value::Null; COLUMNS];
    let rows: Vec<_> = (0..ROWS)
        .map(|id| {
            row[0] = Value::Int64(id);
            txn.insert_row(&t, &row).unwrap()
        })
        .collect();
    txn.commit().unwrap();
    let mut txn = db.begin();
    let odd: Vec<_> = rows.into_iter().skip(1).step_by(2).collect();
    txn.delete_batch(&table(&txn, "t"), &odd).unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
}

#[test]
fn a_process_that_gets_no_threads_opens_what_needs_none_and_refuses_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    fill(&path);
    let mut child = this_test("without_threads");
    // No address space has room for such a stack.
    child.arg("--test-threads=1").env(CHILD, &path).env("RUST_MIN_STACK", (1u64 << 46).to_string());
    let (output, error, succeeded) = ran(&mut child);
    assert!(succeeded, "{output}{error}");
}

/// Does nothing but as a child of the test above.
#[test]
fn without_threads() {
    let Ok(path) = std::env::var(CHILD) else { return };
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "a thread can be started");
    let refused = |options: StorageOptions, what: &str| {
        let error = Database::open_with(options).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    let on_disk = options(path.as_ref());
    refused(StorageOptions { durability: Durability::Full, ..on_disk.clone() }, "cannot start the log's thread");
    refused(StorageOptions { gc_threads: 2, ..on_disk.clone() }, "cannot start a collector's thread");
    refused(StorageOptions::default(), "cannot start a collector's thread");
    // The folder's lock was given back each time.
    let db = Database::open_with(on_disk).unwrap();
    let txn = db.begin();
    let t = table(&txn, "t");
    assert_eq!(row_ids(&txn, &t).len() as i64, ROWS / 2);
    for index in &t.indexes {
        let found = (0..ROWS).filter(|id| !txn.lookup(&t, index, &[Value::Int64(*id)]).unwrap().is_empty()).count();
        assert_eq!(found as i64, ROWS / 2, "{}", index.definition.name);
    }
    drop(txn);
    let blocks = t.data.metrics().blocks;
    assert!(blocks >= 16, "{blocks} blocks are compacted by one thread");
    let (frozen, left) = db.storage().freeze_table(&t.data, Duration::from_secs(60));
    assert!(frozen == left && left <= blocks / 2 + 1, "{frozen} of {left} blocks, of {blocks} before");
    let txn = db.begin();
    assert_eq!(row_ids(&txn, &t).len() as i64, ROWS / 2);
    drop(txn);
    db.close().unwrap();
}
