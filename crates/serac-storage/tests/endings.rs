//! How transactions and storages end after an error on the way, or when another thread ends them,
//! too.

mod one_table;

use one_table::{column, open_table};
use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn open(path: &Path) -> (Arc<Storage>, Arc<DataTable>) {
    let options = StorageOptions { path: Some(path.to_owned()), gc_threads: 0, ..Default::default() };
    let (storage, table, _) =
        open_table(options, TableSchema { columns: vec![column("a", ColumnType::Int64)] }).unwrap();
    (storage, table)
}

#[test]
fn whoever_closes_second_waits_for_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, _) = open(folder.path());
    // Closing runs this. It takes until `release`, and closes once more itself.
    let ((entered, is_entered), (release, is_released)) = (mpsc::channel(), mpsc::channel::<()>());
    let is_released = std::sync::Mutex::new(is_released);
    let inner = Arc::downgrade(&storage);
    storage.defer(Box::new(move || {
        entered.send(()).unwrap();
        is_released.lock().unwrap().recv().unwrap();
        inner.upgrade().unwrap().close().unwrap();
    }));
    let is_closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| storage.close().unwrap());
        is_entered.recv().unwrap();
        let second = scope.spawn(|| {
            storage.close().unwrap();
            is_closed.store(true, Ordering::SeqCst);
            // The folder was given back.
            drop(open(folder.path()));
        });
        std::thread::sleep(Duration::from_millis(30));
        let is_early = is_closed.load(Ordering::SeqCst);
        release.send(()).unwrap();
        second.join().unwrap();
        assert!(!is_early, "the second close ends before the first");
    });
}

/// A change to the folder of a database, or to its content.
type Act = fn(&Path);

#[test]
fn nothing_is_acknowledged_once_the_folder_is_not_where_it_was() {
    let acts: [(&str, Act); 4] = [
        ("moved", |folder| std::fs::rename(folder, folder.with_extension("moved")).unwrap()),
        ("removed", |folder| std::fs::remove_dir_all(folder).unwrap()),
        ("without LOCK", |folder| std::fs::remove_file(folder.join("LOCK")).unwrap()),
        ("replaced", |folder| {
            std::fs::rename(folder, folder.with_extension("moved")).unwrap();
            drop(open(folder));
        }),
    ];
    for (what, act) in acts {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("db");
        let (storage, table) = open(&folder);
        let insert = || {
            let mut txn = storage.begin();
            table.insert(&mut txn, &[Value::Int64(1)]).unwrap();
            txn.commit()?.wait()
        };
        insert().unwrap();
        act(&folder);
        let before = files_below(&folder);
        let checkpoint = storage.checkpoint(&|_| ("{}".into(), vec![TableId(1)]));
        assert!(matches!(checkpoint, Err(StorageError::LogFailed(_))), "{what}: {checkpoint:?}");
        for _ in 0..3 {
            let inserted = insert();
            assert!(matches!(inserted, Err(StorageError::LogFailed(_))), "{what}: {inserted:?}");
        }
        assert!(storage.close().is_err(), "{what}");
        assert_eq!(files_below(&folder), before, "{what}: what lies at the path is left alone");
    }
}

/// Paths and contents of all files in a folder.
fn files_below(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push((path.clone(), std::fs::read(path).unwrap())) }
        }
    }
    found.sort();
    // The log of a folder that lost only its LOCK takes commits that are not acknowledged.
    found.retain(|(path, _)| path.extension().is_none_or(|extension| extension != "wal"));
    found
}

#[test]
fn a_commit_hook_that_panics_does_not_keep_the_transaction_from_being_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, table) = open(folder.path());
    let (send, ran) = mpsc::channel();
    let note = |what: &'static str| {
        let send = send.clone();
        Box::new(move || send.send(what).unwrap())
    };
    let mut txn = storage.begin();
    let row = table.insert(&mut txn, &[Value::Int64(1)]).unwrap();
    txn.on_abort(note("first"));
    txn.on_commit(Box::new(|_| panic!("a hook that panics")));
    txn.on_obsolete(note("obsolete"));
    txn.on_abort(note("second"));
    assert!(catch_unwind(AssertUnwindSafe(|| txn.commit())).is_err());
    storage.run_gc();
    drop(send);
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), ["second", "first"]);
    // The commit latch is free, and the row is not there.
    let mut txn = storage.begin();
    let mut read = RowBuffer::default();
    assert!(!table.read(txn.snapshot(), row, &[ColumnId(0)], &mut read).unwrap());
    table.insert(&mut txn, &[Value::Int64(2)]).unwrap();
    txn.commit().unwrap().wait().unwrap();
    storage.close().unwrap();
}
