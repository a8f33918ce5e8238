//! A committed transaction is in the log, whole, while the newest checkpoint needs it. A log with a
//! missing part is not taken for a complete one.

mod one_table;

use one_table::{checkpoint, log_segments, open_table, required};
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn schema() -> TableSchema {
    TableSchema { columns: vec![required("id", ColumnType::Int64), required("text", ColumnType::Utf8)] }
}

fn options(path: &Path) -> StorageOptions {
    StorageOptions {
        path: Some(path.to_owned()),
        log_segment_bytes: 1 << 16,
        gc_threads: 0,
        freeze_after: None,
        ..Default::default()
    }
}

fn open(options: StorageOptions) -> Result<(Arc<Storage>, Arc<DataTable>, RecoveryReport)> {
    open_table(options, schema())
}

fn insert(table: &Arc<DataTable>, txn: &mut Transaction, ids: std::ops::Range<i64>) -> Result<()> {
    let text = "a text that lives in the heap ".repeat(4);
    for id in ids {
        table.insert(txn, &[Value::Int64(id), Value::Bytes(text.as_bytes())])?;
    }
    Ok(())
}

/// Inserts rows in a transaction of their own, and waits until they are durable.
fn commit(storage: &Storage, table: &Arc<DataTable>, ids: std::ops::Range<i64>) {
    let mut txn = storage.begin();
    insert(table, &mut txn, ids).unwrap();
    txn.commit().unwrap().wait().unwrap();
}

fn ids(storage: &Storage, table: &Arc<DataTable>) -> BTreeSet<i64> {
    let (txn, mut buffer, mut found) = (storage.begin(), RowBuffer::default(), BTreeSet::new());
    for no in 0..table.block_count() {
        let Some(reader) = table.read_block(txn.snapshot(), BlockNo(no)) else { continue };
        for &row in reader.row_ids(reader.visible()).values() {
            assert!(table.read(txn.snapshot(), RowId::from_u64(row), &[ColumnId(0)], &mut buffer).unwrap());
            let Value::Int64(id) = buffer.value(0) else { panic!("another type") };
            assert!(found.insert(id), "row {id} is there twice");
        }
    }
    found
}

/// The process is killed: its writes so far are there, and no operation follows.
fn killed(storage: Arc<Storage>, table: Arc<DataTable>, files: &FaultFileSystem) {
    files.faults().halt_in.store(1, Ordering::SeqCst);
    let _ = storage.close();
    drop((storage, table));
    files.process_restarts();
}

#[test]
fn a_transaction_that_commits_during_a_checkpoint_keeps_all_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, table, _) = open(options(folder.path())).unwrap();
    let mut txn = storage.begin();
    insert(&table, &mut txn, 0..60_000).unwrap();
    let txn = std::sync::Mutex::new(Some(txn));
    // The state is asked for when the checkpoint's snapshot is there.
    let state = |_: &Snapshot| {
        let txn = txn.lock().unwrap().take().unwrap();
        txn.commit().unwrap().wait().unwrap();
        (String::new(), vec![TableId(1)])
    };
    storage.checkpoint(&state).unwrap();
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table, _) = open(options(folder.path())).unwrap();
    assert_eq!(ids(&storage, &table).len(), 60_000);
}

#[test]
fn a_spill_that_fails_takes_nothing_out_of_the_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let files = FaultFileSystem::default();
    let with_faults = StorageOptions { file_system: Arc::new(files.clone()), ..options(folder.path()) };
    let (storage, table, _) = open(with_faults).unwrap();
    let mut txn = storage.begin();
    insert(&table, &mut txn, 0..1_000).unwrap();
    let savepoint = txn.savepoint();
    files.faults().disk_full.store(true, Ordering::SeqCst);
    let error = insert(&table, &mut txn, 1_000..60_000).unwrap_err();
    assert!(matches!(error, StorageError::DiskFull), "{error}");
    txn.rollback_to(&savepoint);
    files.faults().disk_full.store(false, Ordering::SeqCst);
    insert(&table, &mut txn, 100_000..100_010).unwrap();
    txn.commit().unwrap().wait().unwrap();
    let expected = ids(&storage, &table);
    assert_eq!(expected.len(), 1_010);
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table, _) = open(options(folder.path())).unwrap();
    assert_eq!(ids(&storage, &table), expected);
}

#[test]
fn a_commit_after_the_close_is_refused() {
    for durability in [Durability::Full, Durability::Relaxed, Durability::Off] {
        let folder = tempfile::tempdir().unwrap();
        let (storage, table, _) = open(StorageOptions { durability, ..options(folder.path()) }).unwrap();
        let mut txn = storage.begin();
        insert(&table, &mut txn, 0..10).unwrap();
        storage.close().unwrap();
        let result = txn.commit();
        assert!(result.is_err(), "{durability:?}: {result:?}");
        assert_eq!(ids(&storage, &table).len(), 0, "it was rolled back");
    }
}

#[test]
fn commits_beside_the_close_are_refused_or_there() {
    for round in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let (storage, table, _) = open(options(folder.path())).unwrap();
        let mut acknowledged = BTreeSet::new();
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let (storage, table) = (&storage, &table);
                    scope.spawn(move || {
                        let mut done = Vec::new();
                        for id in (writer * 1_000_000)..(writer * 1_000_000 + 100_000) {
                            let mut txn = storage.begin();
                            if insert(table, &mut txn, id..id + 1).is_err() {
                                break;
                            }
                            match txn.commit().map(CommitTicket::wait) {
                                Ok(Ok(_)) => done.push(id),
                                _ => break,
                            }
                        }
                        done
                    })
                })
                .collect();
            std::thread::sleep(std::time::Duration::from_millis(round));
            storage.close().unwrap();
            for writer in writers {
                acknowledged.extend(writer.join().unwrap());
            }
        });
        drop((storage, table));
        let (storage, table, _) = open(options(folder.path())).unwrap();
        let found = ids(&storage, &table);
        assert!(acknowledged.is_subset(&found), "{acknowledged:?} {found:?}");
    }
}

/// File descriptors of this process below `folder`.
#[cfg(target_os = "linux")]
fn open_files(folder: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|e| std::fs::read_link(e.unwrap().path()).ok());
    links.filter(|target| target.starts_with(folder)).count()
}

#[test]
#[cfg(target_os = "linux")]
fn segments_that_are_full_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, table, _) = open(options(folder.path())).unwrap();
    for round in 0..40 {
        commit(&storage, &table, round * 100..round * 100 + 100);
    }
    assert!(log_segments(folder.path()).len() > 5, "many segments");
    assert!(open_files(&folder.path().join("log")) <= 2, "{}", open_files(&folder.path().join("log")));
}

/// A database with several segments of log; the first ones hold the parts of a large transaction.
fn with_segments(path: &Path, with_checkpoint: bool) -> BTreeSet<i64> {
    let (storage, table, _) = open(options(path)).unwrap();
    if with_checkpoint {
        for round in 0..20 {
            commit(&storage, &table, -100 * (round + 1)..-100 * round);
        }
        checkpoint(&storage).unwrap();
    }
    let mut large = storage.begin();
    insert(&table, &mut large, 0..60_000).unwrap();
    for round in 0..20 {
        commit(&storage, &table, 100_000 + round * 100..100_100 + round * 100);
    }
    large.commit().unwrap().wait().unwrap();
    let expected = ids(&storage, &table);
    storage.close().unwrap();
    expected
}

#[test]
fn a_missing_segment_is_named_and_nothing_is_opened() {
    for with_checkpoint in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let expected = with_segments(folder.path(), with_checkpoint);
        let segments = log_segments(folder.path());
        assert!(segments.len() > 4, "{segments:?}");
        // The last one is unknown, unless the manifest names it.
        for missing in &segments[..segments.len() - 1] {
            let aside = folder.path().join("aside");
            std::fs::rename(missing, &aside).unwrap();
            let error = open(options(folder.path())).expect_err(&format!("without {}", missing.display()));
            assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
            let name = missing.file_name().unwrap().to_str().unwrap();
            assert!(error.to_string().contains(name), "{error} does not name {name}");
            std::fs::rename(&aside, missing).unwrap();
        }
        let (storage, table, _) = open(options(folder.path())).unwrap();
        assert_eq!(ids(&storage, &table), expected);
    }
}

#[test]
fn a_log_folder_that_was_emptied_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, table, _) = open(options(folder.path())).unwrap();
    commit(&storage, &table, 0..10);
    checkpoint(&storage).unwrap();
    commit(&storage, &table, 10..20);
    storage.close().unwrap();
    drop((storage, table));
    for segment in log_segments(folder.path()) {
        std::fs::remove_file(segment).unwrap();
    }
    let error = open(options(folder.path())).unwrap_err();
    assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
}

/// Each spill has a few rows, so the log takes a part of a bulk load before the disk is full.
#[test]
fn a_spill_that_fails_in_its_middle_goes_on_where_it_stopped() {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
    let folder = tempfile::tempdir().unwrap();
    let files = FaultFileSystem::default();
    let with_faults = StorageOptions {
        file_system: Arc::new(files.clone()),
        log_allocation_bytes: 1 << 12,
        log_spill_bytes: 1 << 10,
        ..options(folder.path())
    };
    let rows = |ids: std::ops::Range<i64>| {
        let texts =
            StringViewArray::from_iter_values(ids.clone().map(|id| format!("the text of {id}, of some length")));
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(ids)), Arc::new(texts)];
        RecordBatch::try_new(schema().arrow(), columns).unwrap()
    };
    let (storage, table, _) = open(with_faults.clone()).unwrap();
    let mut expected = BTreeSet::new();
    for round in 0..5 {
        let from = round * 100_000;
        let mut txn = storage.begin();
        table.append(&mut txn, &rows(from..from + 500)).unwrap();
        let savepoint = txn.savepoint();
        let room = 30_000 + 7_000 * round as u64;
        files.faults().capacity.store(files.bytes_in_use() + room, Ordering::SeqCst);
        let error = table.append(&mut txn, &rows(from + 10_000..from + 13_000)).unwrap_err();
        assert!(error.is_disk_full(), "{error}");
        files.faults().capacity.store(0, Ordering::SeqCst);
        // The rest of the transaction that was cut in its middle follows, or is rolled back.
        if round % 2 == 0 {
            txn.rollback_to(&savepoint);
        } else {
            expected.extend(from + 10_000..from + 13_000);
        }
        table.append(&mut txn, &rows(from + 20_000..from + 20_500)).unwrap();
        txn.commit().unwrap().wait().unwrap();
        expected.extend((from..from + 500).chain(from + 20_000..from + 20_500));
    }
    assert_eq!(ids(&storage, &table), expected);
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table, _) = open(with_faults).unwrap();
    assert_eq!(ids(&storage, &table), expected);
}

/// The record of the engine alone is long enough for a spill, and its transaction has changed no
/// row.
#[test]
fn parts_of_a_transaction_without_rows_keep_no_log_once_it_is_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, table, _) = open(StorageOptions { log_spill_bytes: 1 << 10, ..options(folder.path()) }).unwrap();
    let mut txn = storage.begin();
    txn.log_meta(&[7; 100_000]);
    let refused = txn.commit_if(|_| Err(StorageError::Deadlock), |_| {});
    assert!(matches!(refused, Err(StorageError::Deadlock)));
    for round in 0..20 {
        commit(&storage, &table, round * 100..round * 100 + 100);
    }
    assert!(log_segments(folder.path()).len() > 4);
    checkpoint(&storage).unwrap();
    assert_eq!(log_segments(folder.path()).len(), 1);
}

#[test]
fn removed_segments_stay_removed_when_the_power_goes() {
    for seed in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let files = FaultFileSystem::with_disk();
        files.faults().unordered_removals.store(true, Ordering::SeqCst);
        let with_faults = StorageOptions { file_system: Arc::new(files.clone()), ..options(folder.path()) };
        let (storage, table, _) = open(with_faults.clone()).unwrap();
        for round in 0..10 {
            commit(&storage, &table, round * 100..round * 100 + 100);
        }
        assert!(log_segments(folder.path()).len() > 2);
        checkpoint(&storage).unwrap();
        let left = log_segments(folder.path());
        killed(storage, table, &files);
        files.power_returns(seed).unwrap();
        assert_eq!(log_segments(folder.path()), left, "seed {seed}");
        let (storage, table, _) = open(with_faults).unwrap();
        assert_eq!(ids(&storage, &table).len(), 1_000);
    }
}

#[test]
fn what_lies_before_a_missing_segment_is_salvaged_and_the_rest_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, table, _) = open(options(folder.path())).unwrap();
    for round in 0..40 {
        commit(&storage, &table, round * 100..round * 100 + 100);
        if round == 10 {
            checkpoint(&storage).unwrap();
        }
    }
    storage.close().unwrap();
    drop((storage, table));
    let segments = log_segments(folder.path());
    let missing = segments.len() / 2;
    std::fs::remove_file(&segments[missing]).unwrap();
    let behind: Vec<Vec<u8>> = segments[missing + 1..].iter().map(|s| std::fs::read(s).unwrap()).collect();
    let (storage, table, report) = open(StorageOptions { salvage: true, ..options(folder.path()) }).unwrap();
    let found = ids(&storage, &table);
    let whole = found.len() as i64;
    assert!(whole % 100 == 0 && (1_100..4_000).contains(&whole), "{whole}");
    assert_eq!(found, (0..whole).collect());
    let aside = report.kept_aside.expect("segments are kept").join("log");
    let kept: Vec<Vec<u8>> =
        segments[missing + 1..].iter().map(|s| std::fs::read(aside.join(s.file_name().unwrap())).unwrap()).collect();
    assert!(kept == behind);
    commit(&storage, &table, 10_000..10_100);
    let expected = ids(&storage, &table);
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table, _) = open(options(folder.path())).unwrap();
    assert_eq!(ids(&storage, &table), expected);
}

/// Without a log, a commit is there once a checkpoint has it; the log of before and after stays
/// whole.
#[test]
fn a_database_goes_on_with_and_without_a_log() {
    for (with_checkpoint, killed_without_log) in [(false, false), (true, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let files = FaultFileSystem::default();
        let options =
            |durability| StorageOptions { durability, file_system: Arc::new(files.clone()), ..options(folder.path()) };
        let mut expected = BTreeSet::new();
        for round in 0..6 {
            let logged = round % 2 == 0;
            let durability = if logged { Durability::Full } else { Durability::Off };
            let (storage, table, _) = open(options(durability)).unwrap();
            assert_eq!(ids(&storage, &table), expected, "opening {round}");
            for part in 0..10 {
                let from = round * 10_000 + part * 100;
                commit(&storage, &table, from..from + 100);
                if logged {
                    expected.extend(from..from + 100);
                }
            }
            if !logged && with_checkpoint {
                checkpoint(&storage).unwrap();
                expected = ids(&storage, &table);
                assert!(log_segments(folder.path()).is_empty(), "it holds nothing newer");
            }
            if !logged && killed_without_log {
                killed(storage, table, &files);
            } else {
                storage.close().unwrap();
            }
        }
    }
}

#[test]
fn a_database_of_a_few_rows_stays_small_however_often_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let files = FaultFileSystem::default();
    let usual = StorageOptions { gc_threads: 0, freeze_after: None, ..Default::default() };
    let options =
        StorageOptions { path: Some(folder.path().to_owned()), file_system: Arc::new(files.clone()), ..usual };
    let mut rows = 0;
    for opening in 0..1_000 {
        let (storage, table, report) = open(options.clone()).unwrap();
        assert!(report.log_bytes < 1 << 20, "opening {opening} reads {} bytes", report.log_bytes);
        if opening % 200 == 0 {
            commit(&storage, &table, rows..rows + 1);
            rows += 1;
        }
        if opening % 3 == 0 {
            storage.close().unwrap();
        } else {
            killed(storage, table, &files);
        }
    }
    let sizes: Vec<u64> = log_segments(folder.path()).iter().map(|s| s.metadata().unwrap().len()).collect();
    assert!(sizes.len() <= 2 && sizes.iter().sum::<u64>() < 1 << 20, "{sizes:?}");
    let (storage, table, _) = open(options).unwrap();
    assert_eq!(ids(&storage, &table).len() as i64, rows);
}
