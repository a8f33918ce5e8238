//! Faults and crashes: no acknowledged transaction is lost, and no transaction is half there.
//!
//! The crash harness runs this test binary again as a child that writes under load and kills it at
//! a random moment. Then it opens the child's folder and compares it with the acknowledged commits.
//! `SERAC_STRESS=1` makes 200 rounds.

mod one_table;

use one_table::{checkpoint, log_segments, open_table, required};
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::freeze::compact::NobodyFollows;
use serac_storage::*;
use serac_testing::{killed_after, this_test};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn schema() -> TableSchema {
    TableSchema {
        columns: vec![
            required("thread", ColumnType::Int32),
            required("number", ColumnType::Int64),
            required("text", ColumnType::Utf8),
        ],
    }
}

fn open(options: StorageOptions) -> Result<(Arc<Storage>, Arc<DataTable>, RecoveryReport)> {
    let opened = open_table(options, schema())?;
    opened.0.set_follower(Arc::new(NobodyFollows));
    Ok(opened)
}

fn options(path: &Path) -> StorageOptions {
    StorageOptions {
        path: Some(path.to_owned()),
        log_segment_bytes: 1 << 16,
        log_allocation_bytes: 1 << 12,
        log_spill_bytes: 1 << 12,
        ..Default::default()
    }
}

/// A transaction of two rows: both must be there, or neither.
fn write_pair(storage: &Storage, table: &Arc<DataTable>, thread: i32, number: i64) -> Result<()> {
    let mut txn = storage.begin();
    for half in 0..2 {
        let text = format!("row {number}.{half} with a text that lives in the heap");
        let row = [Value::Int32(thread), Value::Int64(number * 2 + half), Value::Bytes(text.as_bytes())];
        table.insert(&mut txn, &row)?;
    }
    txn.commit()?.wait()?;
    Ok(())
}

/// Inserts pairs and deletes most of them again, in a transaction of its own, as long as they are
/// where they were.
fn come_and_go(storage: &Storage, table: &Arc<DataTable>, round: i64) -> Result<()> {
    let mut txn = storage.begin();
    let mut pairs = Vec::new();
    for number in round * 20..round * 20 + 20 {
        let half = |txn: &mut Transaction, n: i64| {
            let text = format!("row {number}.{} with a text that lives in the heap", n % 2);
            table.insert(txn, &[Value::Int32(3), Value::Int64(n), Value::Bytes(text.as_bytes())])
        };
        pairs.push((half(&mut txn, number * 2)?, half(&mut txn, number * 2 + 1)?));
    }
    txn.commit()?.wait()?;
    let mut txn = storage.begin();
    for (one, other) in pairs.into_iter().skip(round as usize % 4) {
        table.delete(&mut txn, one)?;
        table.delete(&mut txn, other)?;
    }
    txn.commit()?.wait()?;
    Ok(())
}

/// The numbers of a thread's rows.
fn numbers(storage: &Storage, table: &Arc<DataTable>) -> BTreeSet<(i32, i64)> {
    let (txn, mut buffer) = (storage.begin(), RowBuffer::default());
    let columns = [ColumnId(0), ColumnId(1), ColumnId(2)];
    let mut found = BTreeSet::new();
    for no in 0..table.block_count() {
        let Some(reader) = table.read_block(txn.snapshot(), BlockNo(no)) else { continue };
        for &id in reader.row_ids(reader.visible()).values() {
            assert!(table.read(txn.snapshot(), RowId::from_u64(id), &columns, &mut buffer).unwrap());
            let (Value::Int32(thread), Value::Int64(n)) = (buffer.value(0), buffer.value(1)) else { panic!() };
            let text = format!("row {}.{} with a text that lives in the heap", n / 2, n % 2);
            assert_eq!(buffer.value(2), Value::Bytes(text.as_bytes()));
            assert!(found.insert((thread, n)));
        }
    }
    found
}

fn assert_whole(found: &BTreeSet<(i32, i64)>) {
    for (thread, n) in found {
        assert!(found.contains(&(*thread, n ^ 1)), "a transaction of thread {thread} is half there: {n}");
    }
}

/// The child of the crash harness.
#[test]
fn crash_child() {
    let Ok(path) = std::env::var("SERAC_CRASH_CHILD") else { return };
    let (storage, table, _) = open(options(Path::new(&path))).unwrap();
    let first = numbers(&storage, &table).iter().map(|(_, n)| n / 2 + 1).max().unwrap_or(0);
    let checkpoint = std::thread::spawn({
        let storage = storage.clone();
        move || {
            loop {
                std::thread::sleep(Duration::from_millis(30));
                checkpoint(&storage).unwrap();
            }
        }
    });
    std::thread::scope(|scope| {
        // Meanwhile holes come into the blocks, and rows are moved to close them.
        scope.spawn(|| {
            loop {
                storage.freeze_table(&table, Duration::from_millis(3));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        scope.spawn(|| {
            for round in first.. {
                let _ = come_and_go(&storage, &table, round);
            }
        });
        for thread in 0..3 {
            let (storage, table) = (&storage, &table);
            scope.spawn(move || {
                for number in first.. {
                    write_pair(storage, table, thread, number).unwrap();
                    // One write of one line: it arrives whole or not at all.
                    let line = format!("{thread} {number}\n");
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                    std::io::stdout().flush().unwrap();
                }
            });
        }
    });
    drop(checkpoint);
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let rounds = if serac_testing::stress() { 200 } else { 8 };
    let mut acknowledged = BTreeSet::new();
    for round in 0..rounds {
        let time = Duration::from_millis(40 + rand::random::<u64>() % 200);
        let lines = killed_after(this_test("crash_child").env("SERAC_CRASH_CHILD", &path), time);
        let pair = |line: &String| {
            let (thread, number) = line.split_once(' ')?;
            Some((thread.parse::<i32>().ok()?, number.parse::<i64>().ok()?))
        };
        acknowledged.extend(lines.iter().filter_map(pair));
        // Nothing moves rows beside the last look: on a slow machine it would have begun by then.
        let quiet = StorageOptions { freeze_after: None, ..options(&path) };
        let (storage, table, report) = open(quiet).unwrap();
        let found = numbers(&storage, &table);
        assert_whole(&found);
        for (thread, number) in &acknowledged {
            assert!(
                found.contains(&(*thread, number * 2)),
                "round {round}: lost {number} of thread {thread}; {report:?}"
            );
        }
        table.verify();
        storage.close().unwrap();
    }
    assert!(!acknowledged.is_empty(), "the children wrote something");
}

#[test]
fn a_full_disk_fails_the_commit_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let files = FaultFileSystem::default();
    let options = StorageOptions { file_system: Arc::new(files.clone()), ..options(folder.path()) };
    let (storage, table, _) = open(options.clone()).unwrap();
    files.faults().disk_full.store(true, Ordering::SeqCst);
    let mut written = 0;
    let error = loop {
        match write_pair(&storage, &table, 0, written) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StorageError::DiskFull), "{error}");
    assert_eq!(numbers(&storage, &table).len() as i64, written * 2, "readable and consistent");
    files.faults().disk_full.store(false, Ordering::SeqCst);
    write_pair(&storage, &table, 0, written).expect("writable again");
    let expected = numbers(&storage, &table);
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table, _) = open(options).unwrap();
    assert_eq!(numbers(&storage, &table), expected);
    storage.run_gc();
    table.verify();
}

#[test]
fn a_failed_sync_or_write_ends_all_acknowledgements() {
    for fail_sync in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let files = FaultFileSystem::default();
        let with_faults = StorageOptions { file_system: Arc::new(files.clone()), ..options(folder.path()) };
        let (storage, table, _) = open(with_faults).unwrap();
        for number in 0..10 {
            write_pair(&storage, &table, 0, number).unwrap();
        }
        let counter = if fail_sync { &files.faults().fail_sync_in } else { &files.faults().fail_write_in };
        counter.store(3, Ordering::SeqCst);
        let mut acknowledged: Vec<i64> = (0..10).collect();
        for number in 10..30 {
            match write_pair(&storage, &table, 0, number) {
                Ok(()) => acknowledged.push(number),
                Err(error) => assert!(matches!(error, StorageError::LogFailed(_)), "{error}"),
            }
        }
        assert!(acknowledged.len() < 15, "after the fault nothing is acknowledged: {acknowledged:?}");
        // The fault is gone, the process stays poisoned.
        counter.store(0, Ordering::SeqCst);
        assert!(matches!(write_pair(&storage, &table, 0, 99), Err(StorageError::LogFailed(_))));
        let _ = storage.close();
        drop((storage, table));
        let (storage, table, _) = open(options(folder.path())).unwrap();
        let found = numbers(&storage, &table);
        assert_whole(&found);
        for number in acknowledged {
            assert!(found.contains(&(0, number * 2)));
        }
    }
}

/// Writes pairs, closes, and returns the offset behind the last byte of the last segment that is in
/// use.
fn written(path: &Path, pairs: i64) -> usize {
    let (storage, table, _) = open(options(path)).unwrap();
    for number in 0..pairs {
        write_pair(&storage, &table, 0, number).unwrap();
    }
    storage.close().unwrap();
    let bytes = std::fs::read(log_segments(path).last().unwrap()).unwrap();
    bytes.iter().rposition(|b| *b != 0).unwrap() + 1
}

#[test]
fn a_torn_tail_is_cut_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let end = written(folder.path(), 20);
    let segment = log_segments(folder.path()).pop().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[end - 30] ^= 0x40; // in the last frame, which no later one vouches for
    std::fs::write(&segment, bytes).unwrap();
    for _ in 0..2 {
        let (storage, table, report) = open(options(folder.path())).unwrap();
        assert_eq!(numbers(&storage, &table).len(), 38);
        storage.close().unwrap();
        drop((storage, table));
        if report.cut.is_none() {
            return; // the second time: it was cut for good
        }
    }
    panic!("the tail is cut once");
}

#[test]
fn a_damaged_middle_refuses_to_open_and_can_be_salvaged() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), 20);
    let segment = log_segments(folder.path()).pop().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[1_500] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let error = open(options(folder.path())).unwrap_err();
    assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
    let (storage, table, report) = open(StorageOptions { salvage: true, ..options(folder.path()) }).unwrap();
    let found = numbers(&storage, &table);
    assert_whole(&found);
    assert!(!found.is_empty() && found.len() < 40 && report.cut.is_some());
}

#[test]
fn a_damaged_checkpoint_or_manifest_refuses_to_open() {
    for file in ["MANIFEST", "data"] {
        let folder = tempfile::tempdir().unwrap();
        let (storage, table, _) = open(options(folder.path())).unwrap();
        write_pair(&storage, &table, 0, 1).unwrap();
        let report = checkpoint(&storage).unwrap();
        assert_eq!((report.tables, report.rows), (1, 2));
        storage.close().unwrap();
        drop((storage, table));
        let mut path = folder.path().join(file);
        if path.is_dir() {
            path = std::fs::read_dir(path).unwrap().next().unwrap().unwrap().path();
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(open(options(folder.path())), Err(StorageError::Corrupt { .. })), "{file}");
    }
}

#[test]
fn a_database_opens_once_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, ..) = open(options(folder.path())).unwrap();
    let error = open(options(folder.path())).unwrap_err();
    assert!(matches!(error, StorageError::Locked { .. }), "{error}");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    storage.close().unwrap();
    drop(storage);
    open(options(folder.path())).unwrap();
}

#[test]
fn a_large_append_goes_to_the_log_in_parts_and_comes_back() {
    use arrow_array::{Int32Array, Int64Array, RecordBatch, StringViewArray};
    let folder = tempfile::tempdir().unwrap();
    let (storage, table, _) = open(options(folder.path())).unwrap();
    let batch = |from: i64| {
        let numbers = from..from + 10_000;
        let text = |n| format!("row {}.{} with a text that lives in the heap", n / 2, n % 2);
        let columns: Vec<arrow_array::ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![0; 10_000])),
            Arc::new(Int64Array::from_iter_values(numbers.clone())),
            Arc::new(StringViewArray::from_iter_values(numbers.map(text))),
        ];
        RecordBatch::try_new(schema().arrow(), columns).unwrap()
    };
    let mut txn = storage.begin();
    for i in 0..12 {
        table.append(&mut txn, &batch(i * 10_000)).unwrap();
    }
    let savepoint = txn.savepoint();
    table.append(&mut txn, &batch(500_000)).unwrap();
    txn.rollback_to(&savepoint);
    table.append(&mut txn, &batch(120_000)).unwrap();
    assert_eq!(numbers(&storage, &table).len(), 0, "nobody sees it before the commit");
    txn.commit().unwrap().wait().unwrap();
    let expected = numbers(&storage, &table);
    assert_eq!(expected.len(), 130_000);
    let mut lost = storage.begin();
    table.append(&mut lost, &batch(900_000)).unwrap();
    drop(lost);
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table, _) = open(options(folder.path())).unwrap();
    assert_eq!(numbers(&storage, &table), expected);
    table.verify();
}
