//! A disk that fills while a checkpoint is written: the checkpoint fails, its files go, and the
//! database goes on.

mod one_table;

use one_table::{open_table, required};
use serac_storage::durability::checkpoint::DATA_FOLDER;
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const ID: ColumnId = ColumnId(0);
const NUMBER: ColumnId = ColumnId(1);
const BLOCKS: u32 = 6;

fn schema() -> TableSchema {
    TableSchema { columns: vec![required("id", ColumnType::Int64), required("number", ColumnType::Int64)] }
}

fn options(path: &Path, files: &FaultFileSystem) -> StorageOptions {
    StorageOptions {
        path: Some(path.to_owned()),
        file_system: Arc::new(files.clone()),
        freeze_after: None,
        gc_threads: 0,
        log_segment_bytes: 1 << 18,
        ..Default::default()
    }
}

fn checkpoint(storage: &Storage) -> Result<()> {
    one_table::checkpoint(storage).map(|_| ())
}

/// A table of full blocks.
fn fill(storage: &Storage, table: &Arc<DataTable>) {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    let ids = || 0..i64::from(BLOCKS * table.layout().slot_count());
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids())),
        Arc::new(Int64Array::from_iter_values(ids().map(|id| id * 7))),
    ];
    let mut txn = storage.begin();
    table.append(&mut txn, &RecordBatch::try_new(schema().arrow(), columns).unwrap()).unwrap();
    txn.commit().unwrap().wait().unwrap();
    storage.run_gc();
}

/// Changes a row of every block.
fn touch(storage: &Storage, table: &Arc<DataTable>, number: i64) {
    let mut txn = storage.begin();
    for block in 0..BLOCKS {
        let row = RowId::new(BlockNo(block), Slot(number as u32));
        table.update(&mut txn, row, &[NUMBER], &[Value::Int64(number)]).unwrap();
    }
    txn.commit().unwrap().wait().unwrap();
    storage.run_gc();
}

fn data_files(path: &Path) -> BTreeMap<String, u64> {
    let entries = std::fs::read_dir(path.join(DATA_FOLDER)).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())).collect()
}

fn rows(storage: &Storage, table: &DataTable) -> BTreeMap<RowId, i64> {
    let (txn, mut buffer, mut found) = (storage.begin(), RowBuffer::default(), BTreeMap::new());
    for no in 0..table.block_count() {
        let Some(reader) = table.read_block(txn.snapshot(), BlockNo(no)) else { continue };
        for &row in reader.row_ids(reader.visible()).values().iter() {
            let row = RowId::from_u64(row);
            assert!(table.read(txn.snapshot(), row, &[ID, NUMBER], &mut buffer).unwrap());
            let Value::Int64(number) = buffer.value(1) else { panic!("another type") };
            found.insert(row, number);
        }
    }
    found
}

/// Leaves room for `bytes` more.
fn leave_room(files: &FaultFileSystem, bytes: u64) {
    files.faults().capacity.store(files.bytes_in_use() + bytes, Ordering::SeqCst);
}

#[test]
fn a_checkpoint_that_finds_the_disk_full_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let (storage, table, _) = open_table(options(path, &files), schema()).unwrap();
    fill(&storage, &table);
    checkpoint(&storage).unwrap();
    let before = data_files(path);
    for retry in 0..5 {
        touch(&storage, &table, retry);
        leave_room(&files, 2 << 20);
        let error = checkpoint(&storage).unwrap_err();
        assert!(error.to_string().contains(DATA_FOLDER) || error.to_string().contains(".arrow"), "{error}");
        assert_eq!(data_files(path), before, "retry {retry}");
        // Commits can use the space that the checkpoint did not.
        touch(&storage, &table, retry + 100);
        files.faults().capacity.store(0, Ordering::SeqCst);
    }
    let expected = rows(&storage, &table);
    checkpoint(&storage).unwrap();
    assert!(
        data_files(path).keys().all(|name| !before.contains_key(name)),
        "the old files go once they are not needed"
    );
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table, _) = open_table(options(path, &files), schema()).unwrap();
    assert_eq!(rows(&storage, &table), expected);
    table.verify();
}

/// The database's rows can be read. Once there is room, a commit survives a restart. An earlier
/// process has left a part of a transaction in the log.
#[test]
fn a_database_opens_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let options = || StorageOptions { log_spill_bytes: 100, ..options(path, &files) };
    let spill = |storage: &Storage, table: &Arc<DataTable>, number: i64| {
        let mut txn = storage.begin();
        for block in 0..BLOCKS {
            let row = RowId::new(BlockNo(block), Slot(number as u32));
            table.update(&mut txn, row, &[NUMBER], &[Value::Int64(number)])?;
        }
        Ok::<_, StorageError>(txn)
    };
    let (storage, table, _) = open_table(options(), schema()).unwrap();
    fill(&storage, &table);
    let expected = rows(&storage, &table);
    let unfinished = spill(&storage, &table, 1).unwrap();
    storage.manager().log().unwrap().flush().unwrap();
    files.faults().halt_in.store(1, Ordering::SeqCst);
    drop(unfinished);
    let _ = storage.close();
    drop((storage, table));
    files.process_restarts();

    files.faults().disk_full.store(true, Ordering::SeqCst);
    let (storage, table, _) = open_table(options(), schema()).unwrap();
    assert_eq!(rows(&storage, &table), expected);
    for number in 0..10 {
        let result = spill(&storage, &table, number).and_then(Transaction::commit);
        assert!(matches!(result, Err(StorageError::DiskFull)), "{result:?}");
    }
    assert_eq!(rows(&storage, &table), expected);
    assert!(checkpoint(&storage).is_err_and(|error| error.is_disk_full()));
    storage.close().unwrap();
    drop((storage, table));

    let (storage, table, _) = open_table(options(), schema()).unwrap();
    files.faults().disk_full.store(false, Ordering::SeqCst);
    for number in 0..10 {
        spill(&storage, &table, number).unwrap().commit().unwrap().wait().unwrap();
    }
    let expected = rows(&storage, &table);
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table, _) = open_table(options(), schema()).unwrap();
    assert_eq!(rows(&storage, &table), expected);
}

/// A block whose file is complete lies in this file from then on. So the file stays, and the next
/// attempt has less to do.
#[test]
fn frozen_blocks_are_written_bit_by_bit_however_little_room_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let options = StorageOptions { data_file_bytes: 1 << 16, ..options(path, &files) };
    let (storage, table, _) = open_table(options.clone(), schema()).unwrap();
    fill(&storage, &table);
    storage.freeze_table(&table, Duration::from_secs(60));
    let mut attempts = 0;
    loop {
        leave_room(&files, 5 << 19);
        attempts += 1;
        match checkpoint(&storage) {
            Ok(()) => break,
            Err(error) => assert!(error.is_disk_full(), "{error}"),
        }
        assert_eq!(data_files(path).len(), 2 * attempts, "two blocks fit each time, and a part of another");
    }
    assert_eq!((attempts, data_files(path).len()), (3, BLOCKS as usize));
    // A failed attempt wrote a file of a block that thaws: no checkpoint will need it.
    files.faults().capacity.store(0, Ordering::SeqCst);
    touch(&storage, &table, 1);
    storage.freeze_table(&table, Duration::from_secs(60));
    leave_room(&files, 5 << 19);
    assert!(checkpoint(&storage).unwrap_err().is_disk_full());
    assert_eq!(data_files(path).len(), BLOCKS as usize + 2);
    files.faults().capacity.store(0, Ordering::SeqCst);
    touch(&storage, &table, 2);
    leave_room(&files, 1 << 16);
    assert!(checkpoint(&storage).unwrap_err().is_disk_full());
    assert_eq!(data_files(path).len(), BLOCKS as usize, "the files of thawed blocks that no manifest names are gone");
    files.faults().capacity.store(0, Ordering::SeqCst);
    checkpoint(&storage).unwrap();
    let expected = rows(&storage, &table);
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table, _) = open_table(options, schema()).unwrap();
    assert_eq!(rows(&storage, &table), expected);
    table.verify();
}

/// A checkpoint may fail in any operation, for any reason. The disk then holds a database that can
/// be opened, and no unneeded file is left.
#[test]
fn a_checkpoint_that_fails_anywhere_leaves_a_database_that_opens() {
    for switch in 0..3 {
        for n in 1..100 {
            let folder = tempfile::tempdir().unwrap();
            let (path, files) = (folder.path(), FaultFileSystem::with_disk());
            let (storage, table, _) = open_table(options(path, &files), schema()).unwrap();
            let mut txn = storage.begin();
            let row = table.insert(&mut txn, &[Value::Int64(1), Value::Int64(1)]).unwrap();
            txn.commit().unwrap().wait().unwrap();
            storage.run_gc();
            checkpoint(&storage).unwrap();
            let mut txn = storage.begin();
            table.update(&mut txn, row, &[NUMBER], &[Value::Int64(2)]).unwrap();
            txn.commit().unwrap().wait().unwrap();
            storage.run_gc();
            let faults = files.faults();
            let fault = [&faults.fail_name_in, &faults.fail_sync_in, &faults.fail_write_in][switch];
            fault.store(n, Ordering::SeqCst);
            let result = checkpoint(&storage);
            fault.store(0, Ordering::SeqCst);
            assert_eq!(rows(&storage, &table), BTreeMap::from([(row, 2)]));
            if n % 2 == 0 {
                // Another checkpoint repairs it.
                checkpoint(&storage).unwrap();
                assert_eq!(data_files(path).len(), 1, "fault {n} of kind {switch}");
            }
            let _ = storage.close();
            drop((storage, table));
            files.power_returns(n).unwrap();
            let (storage, table, _) =
                open_table(options(path, &files), schema()).unwrap_or_else(|error| panic!("{switch}, {n}: {error}"));
            assert_eq!(rows(&storage, &table), BTreeMap::from([(row, 2)]), "fault {n} of kind {switch}");
            assert!(data_files(path).len() <= 1, "fault {n} of kind {switch}");
            if result.is_ok() && n > 1 {
                break;
            }
            assert!(n < 99, "a checkpoint has fewer operations");
        }
    }
}
