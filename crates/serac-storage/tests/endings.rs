//! How transactions and storages end when something goes wrong on the way, or somebody else ends
//! them, too.

mod one_table;

use one_table::open_table;
use serac_storage::storage::{Storage, StorageOptions};
use serac_storage::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn open(path: &Path) -> (Arc<Storage>, Arc<DataTable>) {
    let column = ColumnSchema { name: "a".into(), column_type: ColumnType::Int64, nullable: true };
    let options = StorageOptions { path: Some(path.to_owned()), gc_threads: 0, ..Default::default() };
    let (storage, table, _) = open_table(options, TableSchema { columns: vec![column] }).unwrap();
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
