//! How a database ends and begins again: clean ends, full disks, sequences across crashes, and
//! checkpoints by themselves.

mod common;

use common::{int_column, sequence};
use serac_engine::catalog::definition::{ColumnDefinition, SequenceDefinition, TableDefinition};
use serac_engine::{Database, EngineError, Transaction};
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::{BlockNo, Durability, RowId, Slot, StorageOptions, Value};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn options(path: &Path, files: &FaultFileSystem) -> StorageOptions {
    StorageOptions {
        path: Some(path.to_owned()),
        file_system: Arc::new(files.clone()),
        freeze_after: None,
        log_segment_bytes: 1 << 18,
        ..Default::default()
    }
}

fn open(path: &Path, files: &FaultFileSystem) -> Database {
    Database::open_with(options(path, files)).unwrap()
}

fn create(db: &Database) {
    let mut txn = db.begin();
    let column = ColumnDefinition { nullable: false, ..int_column("id") };
    txn.create_table(TableDefinition::new("public", "t", vec![column])).unwrap();
    txn.create_sequence("public", sequence("s")).unwrap();
    txn.commit().unwrap().wait().unwrap();
}

fn insert(db: &Database, id: i64) -> serac_engine::Result<()> {
    let mut txn = db.begin();
    let table = txn.catalog().table("public", "t")?.clone();
    txn.insert_row(&table, &[Value::Int64(id)])?;
    txn.commit()?.wait()?;
    Ok(())
}

fn rows(txn: &Transaction) -> u64 {
    let table = txn.catalog().table("public", "t").unwrap();
    let blocks = (0..table.data.block_count()).filter_map(|no| table.data.read_block(txn.snapshot(), BlockNo(no)));
    blocks.map(|reader| reader.row_ids(reader.visible()).len() as u64).sum()
}

/// The next value, once the transaction that drew it is acknowledged.
fn draw(db: &Database) -> serac_engine::Result<i64> {
    let txn = db.begin();
    let value = db.next_value(txn.snapshot(), txn.catalog(), "public", "s")?;
    txn.commit()?.wait()?;
    Ok(value)
}

fn data_files(path: &Path) -> usize {
    std::fs::read_dir(path.join("data")).unwrap().count()
}

#[test]
fn a_clean_end_leaves_nothing_to_recover() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    create(&open(path, &files));
    for round in 0..40 {
        let db = open(path, &files);
        assert_eq!(db.recovery_report().transactions_replayed, 0, "round {round}");
        assert_eq!((rows(&db.begin()), draw(&db).unwrap()), (round, round as i64 + 1), "no row and no number is lost");
        insert(&db, round as i64).unwrap();
        match round % 2 {
            0 => db.close().unwrap(),
            _ => drop(db),
        }
        assert!(data_files(path) <= 8, "{} data files", data_files(path));
    }
    // Nothing has happened: nothing is written.
    let written = || files.bytes_written(&path.join("data")) + files.bytes_written(path);
    let before = written();
    let db = open(path, &files);
    assert_eq!(rows(&db.begin()), 40);
    db.close().unwrap();
    assert_eq!(written(), before);
}

/// One row is changed in each of many blocks. To write all blocks would cost more than to read the
/// little log again.
#[test]
fn a_clean_end_does_not_write_many_blocks_for_a_little_log() {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    const BLOCKS: u32 = 40;
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let db = open(path, &files);
    create(&db);
    let mut txn = db.begin();
    let table = txn.catalog().table("public", "t").unwrap().clone();
    let ids = 0..i64::from(BLOCKS * table.data.layout().slot_count());
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    txn.insert_batch(&table, &RecordBatch::try_from_iter([("id", ids)]).unwrap()).unwrap();
    txn.commit().unwrap().wait().unwrap();
    let expected = u64::from(BLOCKS * table.data.layout().slot_count());
    drop(table);
    db.close().unwrap();
    drop(db);
    let db = open(path, &files);
    assert_eq!(
        (db.recovery_report().transactions_replayed, rows(&db.begin())),
        (0, expected),
        "all are in the checkpoint"
    );
    let mut txn = db.begin();
    let table = txn.catalog().table("public", "t").unwrap().clone();
    for block in 0..BLOCKS {
        let new = RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(vec![-1])) as ArrayRef)]).unwrap();
        txn.update_batch(&table, &[RowId::new(BlockNo(block), Slot(0))], &[0], &new).unwrap();
    }
    txn.commit().unwrap().wait().unwrap();
    drop(table);
    let written = files.bytes_written(&path.join("data"));
    db.close().unwrap();
    drop(db);
    assert_eq!(files.bytes_written(&path.join("data")), written);
    let db = open(path, &files);
    assert_eq!((db.recovery_report().transactions_replayed, rows(&db.begin())), (1, expected));
}

#[test]
fn a_clean_end_on_a_full_disk_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let db = open(path, &files);
    create(&db);
    (0..100).for_each(|id| insert(&db, id).unwrap());
    files.faults().disk_full.store(true, Ordering::SeqCst);
    assert_eq!(db.checkpoint().unwrap_err().sqlstate(), "53100");
    db.close().expect("the log has everything");
    drop(db);
    files.faults().disk_full.store(false, Ordering::SeqCst);
    assert_eq!(rows(&open(path, &files).begin()), 100);
}

/// Without a log, the checkpoint of the end is all that keeps what was committed.
#[test]
fn without_a_log_a_commit_beside_the_end_is_refused_or_there() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let open = || Database::open_with(StorageOptions { durability: Durability::Off, ..options(path, &files) }).unwrap();
    let db = open();
    create(&db);
    insert(&db, 1).unwrap();
    files.faults().disk_full.store(true, Ordering::SeqCst);
    assert_eq!(db.close().unwrap_err().sqlstate(), "53100");
    files.faults().disk_full.store(false, Ordering::SeqCst);
    insert(&db, 2).expect("it stays open");
    // The checkpoint of the close waits while folder syncs are held.
    files.faults().hold_folder_syncs.store(true, Ordering::SeqCst);
    let before = files.bytes_written(&path.join("data"));
    let acknowledged = std::thread::scope(|scope| {
        let closing = [0, 1].map(|_| scope.spawn(|| db.close()));
        serac_testing::wait_until("data is written", || files.bytes_written(&path.join("data")) != before);
        let acknowledged = u64::from(insert(&db, 3).is_ok());
        files.faults().hold_folder_syncs.store(false, Ordering::SeqCst);
        closing.into_iter().for_each(|closing| closing.join().unwrap().expect("it is closed"));
        acknowledged
    });
    drop(db);
    assert_eq!(rows(&open().begin()), 2 + acknowledged);
}

#[test]
fn who_has_closed_a_database_does_not_write_to_its_folder_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let first = open(path, &files);
    create(&first);
    insert(&first, 1).unwrap();
    first.close().unwrap();
    let second = open(path, &files);
    insert(&second, 2).unwrap();
    second.checkpoint().unwrap();
    assert!(first.checkpoint().is_err());
    drop(first);
    drop(second);
    assert_eq!(rows(&open(path, &files).begin()), 2);
}

/// A value that is shown was durably drawn, even if nothing else was written, and even if another
/// transaction's reservation covers it.
#[test]
fn a_value_of_a_sequence_is_not_shown_before_its_reservation_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let db = open(path, &files);
    create(&db);
    files.faults().fail_sync_in.store(1, Ordering::SeqCst);
    let [first, second] = [0, 1].map(|_| {
        let txn = db.begin();
        db.next_value(txn.snapshot(), txn.catalog(), "public", "s")
            .map(|_| txn.commit().and_then(|ticket| Ok(ticket.wait()?)))
    });
    assert!(first.unwrap().is_err(), "the reservation is not on the disk");
    // The log may have noticed by now.
    assert!(!matches!(second, Ok(Ok(_))), "it is the same reservation");
    let txn = db.begin();
    assert!(db.set_value(txn.snapshot(), txn.catalog(), "public", "s", 77, true).is_err(), "the log takes no more");
}

#[test]
fn no_value_of_a_sequence_is_shown_twice_when_the_power_fails() {
    for seed in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let (path, files) = (folder.path(), FaultFileSystem::with_disk());
        create(&open(path, &files));
        let mut shown = 0;
        for round in 0..3 {
            let db = open(path, &files);
            files.faults().halt_in.store(1 + (seed * 7 + round * 3) % 20, Ordering::SeqCst);
            std::thread::scope(|scope| {
                scope.spawn(|| while !files.halted() && db.checkpoint().is_ok() {});
                while let Ok(value) = draw(&db) {
                    assert!(value > shown, "seed {seed}: {value} after {shown}");
                    shown = value;
                    assert!(shown < 1_000_000, "the process stops some time");
                }
                // A failed log is not yet a process that has stopped.
                files.faults().halt_in.store(1, Ordering::SeqCst);
            });
            let _ = db.close();
            drop(db);
            files.power_returns(seed + round).unwrap();
        }
        let next = draw(&open(path, &files)).unwrap();
        assert!(next > shown, "seed {seed}: {next} was shown before the power failed, as was {shown}");
    }
}

#[test]
fn databases_make_their_checkpoints_by_themselves_beside_each_other() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let files = [FaultFileSystem::default(), FaultFileSystem::default()];
    let [slow, quick] = [0, 1].map(|i| {
        let options = StorageOptions {
            checkpoint_log_bytes: 1 << 14,
            log_segment_bytes: 64 << 20,
            ..options(folders[i].path(), &files[i])
        };
        let db = Database::open_with(options).unwrap();
        create(&db);
        db
    });
    // The first checkpoint does not come to an end.
    files[0].faults().hold_folder_syncs.store(true, Ordering::SeqCst);
    let write_until = |db: &Database, done: &dyn Fn() -> bool| {
        let began = Instant::now();
        let mut id = 0;
        while !done() {
            insert(db, id).unwrap();
            id += 1;
            assert!(began.elapsed() < Duration::from_secs(60), "there is no checkpoint");
        }
    };
    let begun = || files[0].bytes_written(&folders[0].path().join("data")) > 0;
    write_until(&slow, &begun);
    write_until(&quick, &|| quick.metrics().checkpoints > 1);
    assert_eq!(slow.metrics().checkpoints, 0);
    files[0].faults().hold_folder_syncs.store(false, Ordering::SeqCst);
    write_until(&slow, &|| slow.metrics().checkpoints > 1);
}

#[test]
fn what_is_salvaged_is_a_whole_database_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let db = open(path, &files);
    create(&db);
    (0..10).for_each(|id| insert(&db, id).unwrap());
    drop(db);
    std::fs::write(path.join("MANIFEST"), "nonsense").unwrap();
    assert_eq!(Database::open_with(options(path, &files)).unwrap_err().sqlstate(), "XX001");
    let db = Database::open_with(StorageOptions { salvage: true, ..options(path, &files) }).unwrap();
    assert_eq!(rows(&db.begin()), 10);
    let aside = db.recovery_report().kept_aside.clone().unwrap();
    assert_eq!(std::fs::read_to_string(aside.join("MANIFEST")).unwrap(), "nonsense");
    // As if the process were killed.
    std::mem::forget(db);
    let again = tempfile::tempdir().unwrap();
    assert!(std::process::Command::new("cp").arg("-r").arg(path).arg(again.path()).status().unwrap().success());
    let copy = again.path().join(path.file_name().unwrap());
    assert_eq!(rows(&open(&copy, &files).begin()), 10);
}

/// Rows of blocks that compaction has emptied stand in an old file still. Without a manifest they
/// come back beside themselves, and their children's parents may be lost: salvaging says so.
#[test]
fn what_is_salvaged_and_breaks_a_constraint_is_named() {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    const BLOCKS: i64 = 8;
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let options = || StorageOptions { log_segment_bytes: 1 << 14, gc_threads: 0, ..options(path, &files) };
    let db = Database::open_with(options()).unwrap();
    let mut txn = db.begin();
    let mut parent = TableDefinition::new("public", "t", vec![int_column("id")]);
    parent.keys = vec![common::key("t_id", &[0], true, false)];
    txn.create_table(parent).unwrap();
    let mut child = TableDefinition::new("public", "child", vec![int_column("id"), int_column("parent")]);
    child.foreign_keys.push(common::references("child_parent", 1, "t"));
    txn.create_table(child).unwrap();
    txn.commit().unwrap().wait().unwrap();
    let mut txn = db.begin();
    let table = txn.catalog().table("public", "t").unwrap().clone();
    let child = txn.catalog().table("public", "child").unwrap().clone();
    let slots = i64::from(table.data.layout().slot_count());
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..BLOCKS * slots));
    txn.insert_batch(&table, &RecordBatch::try_from_iter([("id", ids)]).unwrap()).unwrap();
    txn.insert_row(&child, &[Value::Int64(1), Value::Int64(0)]).unwrap();
    txn.check_statement_end().unwrap();
    txn.commit().unwrap().wait().unwrap();
    let freeze = |table: &serac_engine::Table| db.storage().freeze_table(&table.data, Duration::from_secs(60));
    freeze(&table);
    db.checkpoint().unwrap();
    // Two blocks become one.
    let mut txn = db.begin();
    for no in [2, 3] {
        let rows: Vec<RowId> = (0..slots as u32).skip(1000).map(|slot| RowId::new(BlockNo(no), Slot(slot))).collect();
        txn.delete_batch(&table, &rows).unwrap();
    }
    txn.check_statement_end().unwrap();
    txn.commit().unwrap().wait().unwrap();
    freeze(&table);
    freeze(&table);
    // The log's part of it is no longer needed.
    for _ in 0..3 {
        let mut txn = db.begin();
        for id in 0..1_000 {
            txn.insert_row(&child, &[Value::Int64(id), Value::Null]).unwrap();
        }
        txn.check_statement_end().unwrap();
        txn.commit().unwrap().wait().unwrap();
        db.checkpoint().unwrap();
    }
    let before = rows(&db.begin());
    assert_eq!(before, (BLOCKS - 2) as u64 * slots as u64 + 2_000);
    drop((table, child));
    db.close().unwrap();
    drop(db);
    ["MANIFEST", "MANIFEST.copy"].iter().for_each(|name| std::fs::remove_file(path.join(name)).unwrap());
    let db = Database::open_with(StorageOptions { salvage: true, ..options() }).unwrap();
    let lost = &db.recovery_report().lost;
    let has_come_back = rows(&db.begin()) > before;
    assert_eq!(has_come_back, lost.iter().any(|lost| lost.contains("t_id")), "{lost:?}");
    assert!(has_come_back, "the test shows nothing");
    assert!(!lost.iter().any(|lost| lost.contains("child_parent")), "{lost:?}");
    db.close().unwrap();
    drop(db);
    // The largest file has the first row.
    let data = std::fs::read_dir(path.join("data")).unwrap().map(|entry| entry.unwrap().path());
    let largest = data.max_by_key(|file| std::fs::metadata(file).unwrap().len()).unwrap();
    std::fs::remove_file(largest).unwrap();
    let db = Database::open_with(StorageOptions { salvage: true, ..options() }).unwrap();
    let lost = &db.recovery_report().lost;
    assert!(lost.iter().any(|lost| lost.contains("child_parent")), "{lost:?}");
}

/// Values before which, or behind which, there is no number.
#[test]
fn a_sequence_goes_on_with_any_of_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let ends = [("up", 1, i64::MIN, i64::MIN + 1), ("down", -1, i64::MAX, i64::MAX - 1)];
    let mut db = open(path, &files);
    let mut txn = db.begin();
    for (name, increment, first, _) in ends {
        let definition = SequenceDefinition { increment, start: first, min: i64::MIN, ..sequence(name) };
        txn.create_sequence("public", definition).unwrap();
    }
    txn.commit().unwrap().wait().unwrap();
    let next = |db: &Database, name: &str| db.next_value(db.begin().snapshot(), &db.catalog(), "public", name);
    let set = |db: &Database, name: &str, value: i64, is_called: bool| {
        db.set_value(db.begin().snapshot(), &db.catalog(), "public", name, value, is_called).unwrap();
    };
    for (name, _, first, second) in ends {
        assert_eq!(next(&db, name).unwrap(), first);
        set(&db, name, first, true);
        assert_eq!(next(&db, name).unwrap(), second);
        set(&db, name, first, false);
        assert_eq!(db.catalog().sequence("public", name).unwrap().last(), None, "none has been given out yet");
        assert_eq!([(); 2].map(|()| next(&db, name).unwrap()), [first, second]);
        // Begun anew by ALTER SEQUENCE.
        let mut txn = db.begin();
        let definition = txn.catalog().sequence("public", name).unwrap().definition.clone();
        txn.alter_sequence("public", definition, Some(first)).unwrap();
        txn.commit().unwrap();
        assert_eq!(next(&db, name).unwrap(), first);
        // The far end has values, and nothing behind.
        let last = if first == i64::MIN { i64::MAX } else { i64::MIN };
        set(&db, name, last, false);
        assert_eq!(next(&db, name).unwrap(), last);
        assert!(matches!(next(&db, name), Err(EngineError::SequenceExhausted(_))));
        set(&db, name, first, false);
    }
    // From the log, and from a checkpoint.
    for clean in [false, true] {
        if clean {
            db.close().unwrap();
        }
        db = reopened(path, db, clean);
        for (name, _, first, second) in ends {
            assert_eq!([(); 2].map(|()| next(&db, name).unwrap()), [first, second], "a clean end: {clean}");
            set(&db, name, first, false);
        }
    }
}

/// The database after an end. If the end is not clean, a copy of the files as they are now is
/// opened first.
fn reopened(path: &Path, db: Database, clean: bool) -> Database {
    let files = FaultFileSystem::default();
    if clean {
        drop(db);
        return open(path, &files);
    }
    let copy = path.join("copy");
    for folder in ["data", "log"] {
        std::fs::create_dir_all(copy.join(folder)).unwrap();
        for entry in std::fs::read_dir(path.join(folder)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.join(folder).join(entry.file_name())).unwrap();
        }
    }
    for file in ["MANIFEST", "MANIFEST.copy"] {
        std::fs::copy(path.join(file), copy.join(file)).unwrap();
    }
    drop(db);
    let db = open(&copy, &files);
    assert!(db.recovery_report().transactions_replayed > 0, "the log was read");
    db.close().unwrap();
    // The rest of the test goes on with the original, which has ended cleanly.
    open(path, &files)
}

/// A reservation of one definition does not cover the values of the other.
#[test]
fn a_direction_that_is_not_committed_reserves_nothing() {
    for memory in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (path, files) = (folder.path(), FaultFileSystem::default());
        let db = if memory { Database::in_memory().unwrap() } else { open(path, &files) };
        create(&db);
        let mut shown: Vec<i64> = (0..3).map(|_| draw(&db).unwrap()).collect();
        let mut changing = db.begin();
        let mut definition = changing.catalog().sequence("public", "s").unwrap().definition.clone();
        (definition.increment, definition.min) = (-1, i64::MIN);
        changing.alter_sequence("public", definition, None).unwrap();
        let drawn = |txn: &Transaction| db.next_value(txn.snapshot(), txn.catalog(), "public", "s");
        let refused = drawn(&changing);
        assert!(matches!(refused, Err(EngineError::InUse(_))), "{refused:?}");
        shown.extend((0..40).map(|_| draw(&db).unwrap()));
        let old = db.begin();
        changing.rollback();
        shown.extend((0..40).map(|_| draw(&db).unwrap()));
        assert!(shown.is_sorted_by(|a, b| a < b), "{shown:?}");
        // Committed, it goes down from there.
        let mut changing = db.begin();
        let mut definition = changing.catalog().sequence("public", "s").unwrap().definition.clone();
        (definition.increment, definition.min) = (-1, i64::MIN);
        changing.alter_sequence("public", definition, None).unwrap();
        changing.commit().unwrap();
        assert_eq!(draw(&db).unwrap(), shown.last().unwrap() - 1);
        assert!(matches!(drawn(&old), Err(EngineError::InUse(_))), "of a snapshot from before");
    }
}
