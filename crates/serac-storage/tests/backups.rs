//! A backup is the database of one moment, beside writers, and leaves the database as it is.

mod one_table;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use one_table::{checkpoint, open_table, required};
use serac_storage::durability::checkpoint::{CheckpointReport, DATA_FOLDER, MANIFEST};
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

const ID: ColumnId = ColumnId(0);
const VALUE: ColumnId = ColumnId(1);

fn schema() -> TableSchema {
    TableSchema { columns: vec![required("id", ColumnType::Int64), required("value", ColumnType::Int64)] }
}

fn open(path: Option<&Path>, files: &FaultFileSystem) -> (Arc<Storage>, Arc<DataTable>) {
    let options = StorageOptions {
        path: path.map(Path::to_owned),
        file_system: Arc::new(files.clone()),
        freeze_after: None,
        log_segment_bytes: 1 << 18,
        ..Default::default()
    };
    let (storage, table, report) = open_table(options, schema()).unwrap();
    assert_eq!((report.lost.len(), report.cut), (0, None));
    (storage, table)
}

fn backup(storage: &Storage, target: &Path) -> Result<CheckpointReport> {
    storage.backup(target, &|_| (String::new(), vec![TableId(1)]), &|| false)
}

/// Inserts rows with ids from `first` on, in one transaction.
fn insert(storage: &Storage, table: &Arc<DataTable>, first: i64, rows: i64) -> Vec<RowId> {
    let mut txn = storage.begin();
    let insert = |id| table.insert(&mut txn, &[Value::Int64(id), Value::Int64(0)]).unwrap();
    let ids = (first..first + rows).map(insert).collect();
    txn.commit().unwrap().wait().unwrap();
    ids
}

fn set(storage: &Storage, table: &Arc<DataTable>, rows: &[RowId], value: i64) {
    let mut txn = storage.begin();
    rows.iter().for_each(|row| table.update(&mut txn, *row, &[VALUE], &[Value::Int64(value)]).unwrap());
    txn.commit().unwrap().wait().unwrap();
}

/// The rows: id and value, ascending.
fn rows(storage: &Storage, table: &DataTable) -> Vec<(i64, i64)> {
    let (txn, mut found) = (storage.begin(), Vec::new());
    for no in 0..table.block_count() {
        let Some(mut reader) = table.read_block(txn.snapshot(), BlockNo(no)) else { continue };
        let visible = reader.visible().clone();
        let columns = reader.columns(&[ScanColumn::arrow(ID), ScanColumn::arrow(VALUE)], &visible).unwrap();
        let columns = columns.iter().map(|column| column.as_primitive::<Int64Type>().values().to_vec());
        let columns: Vec<_> = columns.collect();
        found.extend(columns[0].iter().copied().zip(columns[1].iter().copied()));
    }
    found.sort_unstable();
    found
}

/// The rows of the backup in a folder, after a clean end of it.
fn rows_of(target: &Path, files: &FaultFileSystem) -> Vec<(i64, i64)> {
    let (storage, table) = open(Some(target), files);
    let rows = rows(&storage, &table);
    storage.close().unwrap();
    rows
}

/// A writer gives all of some rows, which lie in frozen and hot blocks, the same next value in each
/// transaction, and adds a row. A backup beside it has one value, and as many rows as that says.
#[test]
fn a_backup_beside_a_writer_is_one_snapshot() {
    for in_folder in [true, false] {
        let (folder, files) = (tempfile::tempdir().unwrap(), FaultFileSystem::default());
        let (storage, table) =
            open(in_folder.then(|| folder.path()).map(|path| path.join("origin")).as_deref(), &files);
        let slots = i64::from(table.layout().slot_count());
        let mut some: Vec<RowId> =
            insert(&storage, &table, 0, 3 * slots).into_iter().step_by(slots as usize / 3).collect();
        storage.freeze_table(&table, Duration::from_secs(60));
        checkpoint(&storage).unwrap();
        some.extend(insert(&storage, &table, 3 * slots, 100));
        let first = 3 * slots + 100;
        let (stop, value) = (AtomicBool::new(false), AtomicI64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let next = value.load(Ordering::SeqCst) + 1;
                    let mut txn = storage.begin();
                    for row in &some {
                        table.update(&mut txn, *row, &[VALUE], &[Value::Int64(next)]).unwrap();
                    }
                    table.insert(&mut txn, &[Value::Int64(first + next - 1), Value::Int64(-1)]).unwrap();
                    txn.commit().unwrap().wait().unwrap();
                    value.store(next, Ordering::SeqCst);
                }
            });
            for round in 0..6 {
                let before = value.load(Ordering::SeqCst);
                while value.load(Ordering::SeqCst) < before + 3 {
                    std::thread::yield_now();
                }
                let least = value.load(Ordering::SeqCst);
                let target = folder.path().join(format!("backup-{round}"));
                let report = backup(&storage, &target).unwrap();
                // The writer may have committed one that it has not noted yet.
                let most = value.load(Ordering::SeqCst) + 1;
                if round % 2 == 0 {
                    checkpoint(&storage).unwrap();
                }
                let rows = rows_of(&target, &files);
                assert_eq!(report.rows, rows.len() as u64);
                let values: Vec<i64> = rows.iter().map(|row| row.1).filter(|value| *value > 0).collect();
                assert_eq!(values.len(), some.len(), "round {round}");
                let at = values[0];
                assert!(values.iter().all(|value| *value == at), "round {round}: {values:?}");
                assert!((least..=most).contains(&at), "round {round}: {least} <= {at} <= {most}");
                let ids: Vec<i64> = rows.iter().map(|row| row.0).collect();
                assert_eq!(ids, (0..first + at).collect::<Vec<_>>(), "round {round}");
            }
            stop.store(true, Ordering::SeqCst);
        });
        storage.close().unwrap();
    }
}

/// Copies and the origin are databases of their own: each goes on by itself.
#[test]
fn the_origin_and_its_backup_are_apart() {
    let (folder, files) = (tempfile::tempdir().unwrap(), FaultFileSystem::default());
    let (origin, target) = (folder.path().join("origin"), folder.path().join("copy"));
    let (storage, table) = open(Some(&origin), &files);
    let some = insert(&storage, &table, 0, i64::from(table.layout().slot_count()) + 10);
    storage.freeze_table(&table, Duration::from_secs(60));
    // Nothing of it is in a checkpoint: its blocks are written to the backup alone.
    let report = backup(&storage, &target).unwrap();
    assert_eq!((report.blocks_written, report.blocks_kept), (2, 0));
    // In the next one, the frozen blocks lie in files of the origin.
    let report = checkpoint(&storage).unwrap();
    assert_eq!((report.blocks_written, report.blocks_kept), (2, 0), "a backup moves no block to its files");
    let report = backup(&storage, &folder.path().join("second")).unwrap();
    assert_eq!((report.blocks_written, report.blocks_kept), (0, 2));

    let (copy, copied) = open(Some(&target), &files);
    set(&copy, &copied, &some[..1], 7);
    checkpoint(&copy).unwrap();
    set(&storage, &table, &some[..2], 9);
    assert_eq!(rows(&copy, &copied)[..3], [(0, 7), (1, 0), (2, 0)]);
    copy.close().unwrap();
    std::fs::remove_dir_all(folder.path().join("second")).unwrap();
    storage.close().unwrap();
    let (storage, table) = open(Some(&origin), &files);
    assert_eq!(rows(&storage, &table)[..3], [(0, 9), (1, 9), (2, 0)]);
    assert_eq!(rows_of(&target, &files)[..3], [(0, 7), (1, 0), (2, 0)]);
}

#[test]
fn a_folder_with_something_in_it_is_left_alone() {
    let (folder, files) = (tempfile::tempdir().unwrap(), FaultFileSystem::default());
    let (storage, table) = open(Some(&folder.path().join("origin")), &files);
    insert(&storage, &table, 0, 10);
    let target = folder.path().join("target");
    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("letter"), "dear").unwrap();
    for taken in [target.as_path(), &folder.path().join("origin"), &target.join("letter"), Path::new("")] {
        let error = backup(&storage, taken).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write a backup into {}: ", taken.display())), "{error}");
    }
    assert_eq!(std::fs::read_to_string(target.join("letter")).unwrap(), "dear");
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 1);
    assert!(!Path::new("LOCK").exists());
    // An empty one will do, and a closed database makes none.
    std::fs::remove_file(target.join("letter")).unwrap();
    backup(&storage, &target).unwrap();
    storage.close().unwrap();
    assert!(matches!(backup(&storage, &folder.path().join("late")), Err(StorageError::Closed)));
    assert_eq!(rows_of(&target, &files).len(), 10);
}

/// Checkpoints and openings leave alone what lies in the data folder and is no data file.
#[test]
fn a_backup_into_the_own_data_folder_does_no_harm() {
    let (folder, files) = (tempfile::tempdir().unwrap(), FaultFileSystem::default());
    let origin = folder.path().join("origin");
    for inner in [Path::new(""), Path::new("copy")] {
        let target = origin.join(DATA_FOLDER).join(inner);
        let (storage, table) = open(Some(&origin), &files);
        insert(&storage, &table, 0, 10);
        backup(&storage, &target).unwrap();
        insert(&storage, &table, 10, 10);
        checkpoint(&storage).unwrap();
        storage.close().unwrap();
        let (storage, table) = open(Some(&origin), &files);
        assert_eq!(rows(&storage, &table).len(), 20);
        storage.close().unwrap();
        assert_eq!(rows_of(&target, &files).len(), 10);
        std::fs::remove_dir_all(&origin).unwrap();
    }
}

/// A backup that finds no room takes back what it wrote, and the next one may go to the same place.
#[test]
fn a_backup_on_a_full_disk_leaves_nothing() {
    let (folder, files) = (tempfile::tempdir().unwrap(), FaultFileSystem::default());
    let (storage, table) = open(Some(&folder.path().join("origin")), &files);
    insert(&storage, &table, 0, i64::from(table.layout().slot_count()) * 2);
    storage.freeze_table(&table, Duration::from_secs(60));
    checkpoint(&storage).unwrap();
    insert(&storage, &table, 1_000_000, 10);
    let target = folder.path().join("target");
    let mut failed = 0;
    let capacity = &files.faults().capacity;
    for room in (1..).map(|step| step * 400_000) {
        capacity.store(files.bytes_in_use() + room, Ordering::SeqCst);
        let result = backup(&storage, &target);
        capacity.store(0, Ordering::SeqCst);
        match result {
            Err(error) => {
                assert!(error.is_disk_full(), "{error}");
                let left = std::fs::read_dir(target.join(DATA_FOLDER)).map_or(0, Iterator::count);
                assert_eq!((left, target.join(MANIFEST).exists()), (0, false));
                failed += 1;
            }
            Ok(_) => break,
        }
    }
    assert!(failed > 2, "{failed}");
    // One that is told to stop does so, too.
    let (stopped, blocks) = (folder.path().join("stopped"), AtomicI64::new(0));
    let stop = || blocks.fetch_add(1, Ordering::SeqCst) == 1;
    let error = storage.backup(&stopped, &|_| (String::new(), vec![TableId(1)]), &stop).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write into {}: operation interrupted", stopped.display()));
    assert_eq!(std::fs::read_dir(stopped.join(DATA_FOLDER)).unwrap().count(), 0);
    assert_eq!(rows_of(&target, &files), rows(&storage, &table));
}
