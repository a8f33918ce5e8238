//! Rows that compaction moves stay in every index, exactly once in every snapshot, and constraints
//! hold meanwhile.

mod common;

use common::{int_column, references, table};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::catalog::definition::*;
use serac_engine::{Database, EngineError, Table, Transaction};
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::freeze::compact::selection::CompactionGroups;
use serac_storage::{BlockNo, RowBuffer, RowId, StorageOptions, Value};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

/// Rows of `parent` that stay.
const KEPT: i64 = 1_500;
/// Kept rows with the same value of `class`.
const CLASS: i64 = 50;
/// Rows of `parent` that come and go have ids from here on.
const PASSING: i64 = 1_000_000;

fn key(name: &str, column: usize, unique: bool) -> KeyDefinition {
    common::key(name, &[column], unique, false)
}

fn bitmap(name: &str, column: usize) -> BitmapDefinition {
    BitmapDefinition { name: name.into(), column }
}

fn table_of(name: &str, columns: [&str; 3]) -> TableDefinition {
    TableDefinition::new("public", name, columns.map(int_column).into())
}

fn open() -> Database {
    let db = Database::in_memory().unwrap();
    create_tables(&db);
    db
}

fn create_tables(db: &Database) {
    let mut parent = table_of("parent", ["id", "class", "changes"]);
    parent.keys = vec![key("parent_id", 0, true), key("parent_class", 1, false)];
    parent.bitmaps = vec![bitmap("parent_classes", 1), bitmap("parent_changes", 2)];
    let mut child = table_of("child", ["id", "parent", "x"]);
    child.keys = vec![key("child_id", 0, true)];
    let on_delete = ReferentialAction::Cascade;
    child.foreign_keys.push(ForeignKeyDefinition { on_delete, ..references("child_parent", 1, "parent") });
    let mut txn = db.begin();
    txn.create_table(parent).unwrap();
    txn.create_table(child).unwrap();
    txn.commit().unwrap();
}

fn insert(txn: &mut Transaction, table: &Arc<Table>, row: [i64; 3]) -> Result<RowId, EngineError> {
    let id = txn.insert_row(table, &row.map(Value::Int64))?;
    txn.check_statement_end()?;
    Ok(id)
}

/// The values of a row.
fn read(txn: &Transaction, table: &Table, row: RowId) -> [i64; 3] {
    let mut buffer = RowBuffer::default();
    assert!(txn.read_row(table, row, &mut buffer).unwrap(), "an index gives rows that are there");
    [0, 1, 2].map(|i| match buffer.value(i) {
        Value::Int64(v) => v,
        other => panic!("{other:?}"),
    })
}

fn scan(txn: &Transaction, table: &Table) -> Vec<(RowId, [i64; 3])> {
    (0..table.data.block_count())
        .filter_map(|no| table.data.read_block(txn.snapshot(), BlockNo(no)))
        .flat_map(|reader| reader.row_ids(reader.visible()).values().to_vec())
        .map(|row| (RowId::from_u64(row), read(txn, table, RowId::from_u64(row))))
        .collect()
}

#[test]
fn index_reads_find_each_row_once_and_constraints_hold_while_rows_move() {
    let seed = serac_testing::seed();
    let time = Duration::from_millis(if serac_testing::stress() { 60_000 } else { 1_500 });
    let db = open();
    let mut txn = db.begin();
    let parent = table(&txn, "parent");
    for id in 0..KEPT {
        insert(&mut txn, &parent, [id, id / CLASS, 0]).unwrap();
        insert(&mut txn, &parent, [PASSING + id, -1, 0]).unwrap();
    }
    txn.commit().unwrap();
    let before = scan(&db.begin(), &parent);
    let (stop, children) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (started, moved) = (Instant::now(), AtomicBool::new(false));
    // On a busy machine it may take a while until a thread makes progress.
    let running = || {
        let is_done = moved.load(Ordering::Relaxed) && children.load(Ordering::Relaxed) > 0;
        started.elapsed() < time || !is_done && started.elapsed() < time + Duration::from_secs(600)
    };
    // Writers hold this lock shared. Until a row has moved, the compactor holds it alone in each
    // 100th pass, so that blocks come to rest.
    let quiet = RwLock::new(());
    // Blocks under constant changes are not compacted: writers rest now and then, each in its own
    // time.
    let rest = |round: i64| {
        if round % 20 == 19 {
            std::thread::sleep(Duration::from_millis(15));
        }
    };
    let rng = |thread: u64| StdRng::seed_from_u64(seed.wrapping_add(thread));
    std::thread::scope(|scope| {
        let (db, stop, children, running, rest) = (&db, &stop, &children, &running, &rest);
        let (moved, before, quiet) = (&moved, &before, &quiet);
        let mut workers = Vec::new();
        // Point reads by both indexes.
        for thread in 0..2 {
            workers.push(scope.spawn(move || {
                let mut rng = rng(thread);
                while running() {
                    let txn = db.begin();
                    let parent = table(&txn, "parent");
                    for _ in 0..20 {
                        let id = rng.random_range(0..KEPT);
                        let found = txn.lookup(&parent, &parent.indexes[0], &[Value::Int64(id)]).unwrap();
                        assert_eq!(found.len(), 1, "row {id}");
                        assert_eq!(read(&txn, &parent, found[0])[..2], [id, id / CLASS]);
                    }
                    let class = rng.random_range(0..KEPT / CLASS);
                    let found = txn.lookup(&parent, &parent.indexes[1], &[Value::Int64(class)]).unwrap();
                    let ids: BTreeSet<i64> = found.iter().map(|&row| read(&txn, &parent, row)[0]).collect();
                    assert_eq!((found.len(), ids.len()), (CLASS as usize, CLASS as usize), "class {class}");
                }
            }));
        }
        // Rows come, change and go; duplicates never come.
        for thread in 2..4 {
            workers.push(scope.spawn(move || {
                let mut rng = rng(thread);
                for round in (0..).take_while(|_| running()) {
                    rest(round);
                    let _shared = quiet.read().unwrap();
                    let mut txn = db.begin();
                    let parent = table(&txn, "parent");
                    let (id, passing) = (rng.random_range(0..KEPT), PASSING + rng.random_range(0..2 * KEPT));
                    let found = txn.lookup(&parent, &parent.indexes[0], &[Value::Int64(passing)]).unwrap();
                    let result = match (rng.random_range(0..4), found.first()) {
                        (0, _) => {
                            let error = insert(&mut txn, &parent, [id, 0, round]).unwrap_err();
                            assert!(["23505", "40001"].contains(&error.sqlstate()), "{error}");
                            continue;
                        }
                        (1, _) => {
                            let row = txn.lookup(&parent, &parent.indexes[0], &[Value::Int64(id)]).unwrap()[0];
                            let new = arrow_array::RecordBatch::try_from_iter([(
                                "changes",
                                Arc::new(arrow_array::Int64Array::from(vec![round])) as arrow_array::ArrayRef,
                            )]);
                            txn.update_batch(&parent, &[row], &[2], &new.unwrap())
                        }
                        (_, None) => insert(&mut txn, &parent, [passing, -1, round]).map(|_| ()),
                        // Its children go with it.
                        (_, Some(&row)) => txn.delete_batch(&parent, &[row]).and_then(|()| txn.check_statement_end()),
                    };
                    match result {
                        Ok(()) => drop(txn.commit().unwrap()),
                        // The other thread was faster.
                        Err(error) => assert!(["23505", "40001"].contains(&error.sqlstate()), "{error}"),
                    }
                }
            }));
        }
        // Children of rows that move, and of rows that come and go.
        workers.push(scope.spawn(move || {
            let mut rng = rng(4);
            for round in (0..).take_while(|_| running()) {
                rest(round);
                let _shared = quiet.read().unwrap();
                let mut txn = db.begin();
                let child = table(&txn, "child");
                let passes = rng.random_bool(0.5);
                let parent = if passes { PASSING + rng.random_range(0..KEPT) } else { rng.random_range(0..KEPT) };
                match insert(&mut txn, &child, [round, parent, 0]) {
                    Ok(_) => {
                        txn.commit().unwrap();
                        children.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) if passes => assert!(["23503", "40001"].contains(&error.sqlstate()), "{error}"),
                    Err(error) => assert_eq!(error.sqlstate(), "40001", "{error}"),
                }
            }
        }));
        // Bitmap indexes return the rows of scans, in every snapshot.
        workers.push(scope.spawn(move || {
            while running() {
                let txn = db.begin();
                std::thread::sleep(Duration::from_millis(5));
                table(&txn, "parent").verify_bitmaps(txn.snapshot());
            }
        }));
        // A snapshot that is held sees the same rows as before.
        workers.push(scope.spawn(move || {
            while running() {
                std::thread::sleep(Duration::from_millis(50));
                let txn = db.begin();
                let parent = table(&txn, "parent");
                let before = scan(&txn, &parent);
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(scan(&txn, &parent), before);
                for (row, values) in before.iter().take(200) {
                    assert_eq!(txn.lookup(&parent, &parent.indexes[0], &[Value::Int64(values[0])]).unwrap(), [*row]);
                }
            }
        }));
        let compactor = scope.spawn(move || {
            for pass in (1..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                let alone = pass % 100 == 0 && !moved.load(Ordering::Relaxed);
                let _alone = alone.then(|| quiet.write());
                for table in db.catalog().tables() {
                    let patience = if alone { Duration::from_secs(10) } else { Duration::from_millis(2) };
                    db.storage().freeze_table(&table.data, patience);
                }
                if !moved.load(Ordering::Relaxed) {
                    let txn = db.begin();
                    let parent = table(&txn, "parent");
                    let has_moved = |(row, values): &(RowId, [i64; 3])| {
                        let found = txn.lookup(&parent, &parent.indexes[0], &[Value::Int64(values[0])]).unwrap();
                        values[0] < KEPT && found != [*row]
                    };
                    moved.store(before.iter().any(has_moved), Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Relaxed);
        compactor.join().unwrap();
        assert!(results.iter().all(|result| result.is_ok()), "seed {seed}");
    });
    assert!(children.into_inner() > 0);
    let txn = db.begin();
    let now = scan(&txn, &parent);
    let places = |rows: &[(RowId, [i64; 3])]| -> BTreeSet<(i64, RowId)> {
        rows.iter().filter(|(_, values)| values[0] < KEPT).map(|(row, values)| (values[0], *row)).collect()
    };
    let (was, is) = (places(&before), places(&now));
    assert_eq!((was.len(), is.len()), (KEPT as usize, KEPT as usize));
    assert!(was != is, "rows have moved");
    let ids: BTreeSet<i64> = now.iter().map(|(_, values)| values[0]).collect();
    assert_eq!(ids.len(), now.len(), "no id twice, seed {seed}");
    let child = table(&txn, "child");
    for (_, [_, parent, _]) in scan(&txn, &child) {
        assert!(ids.contains(&parent), "a child without its parent {parent}, seed {seed}");
    }
    parent.verify(txn.snapshot());
    child.verify(txn.snapshot());
    let (parents, children) = (now.len(), scan(&txn, &child).len());
    drop(txn);
    while db.storage().run_gc().waiting > 0 || db.storage().manager().gc().backlog() > 0 {}
    assert_eq!(parent.indexes[0].entries.len(), parents, "entries of old places are gone");
    assert_eq!(parent.indexes[1].entries.len(), parents);
    assert_eq!(child.indexes[0].entries.len(), children);
    parent.data.verify();
}

/// The log does not take the transaction of a compaction in which some rows could not leave. The
/// index entries of the copies go with it.
#[test]
fn a_compaction_that_is_rolled_back_leaves_no_index_entries() {
    let folder = tempfile::tempdir().unwrap();
    let files = FaultFileSystem::default();
    let db = Database::open_with(StorageOptions {
        path: Some(folder.path().to_owned()),
        file_system: Arc::new(files.clone()),
        gc_threads: 0,
        freeze_after: None,
        log_segment_bytes: 1 << 16,
        compaction: CompactionGroups::Fixed(2),
        ..Default::default()
    })
    .unwrap();
    create_tables(&db);
    let mut txn = db.begin();
    let parent = table(&txn, "parent");
    let slots = i64::from(parent.data.layout().slot_count());
    let rows: Vec<RowId> = (0..2 * slots).map(|id| insert(&mut txn, &parent, [id, id, 0]).unwrap()).collect();
    txn.commit().unwrap();
    // Every 16th row stays.
    let gone: Vec<RowId> = (0..rows.len()).filter(|at| at % 16 > 0).map(|at| rows[at]).collect();
    let mut txn = db.begin();
    txn.delete_batch(&table(&txn, "parent"), &gone).unwrap();
    txn.commit().unwrap().wait().unwrap();
    let clean = || {
        for _ in 0..4 {
            db.storage().run_gc();
        }
        let ids = (0..2 * slots).step_by(16);
        ids.map(|id| parent.indexes[0].entries.rows(&parent.indexes[0].key_of(&[Value::Int64(id); 3]).0).len()).max()
    };
    assert_eq!(clean(), Some(1));
    // A child pins all parents except one.
    let mut pinning = db.begin();
    let child = table(&pinning, "child");
    for id in (16..2 * slots).step_by(16) {
        insert(&mut pinning, &child, [id, id, 0]).unwrap();
    }
    files.faults().disk_full.store(true, Ordering::SeqCst);
    let data = parent.data.clone();
    let mut failed = 0;
    for _ in 0..3 {
        failed += usize::from(db.storage().compact_table(&data).is_err());
    }
    assert!(failed > 0, "the log takes it");
    files.faults().disk_full.store(false, Ordering::SeqCst);
    pinning.rollback();
    assert_eq!(clean(), Some(1), "entries of copies");
    parent.verify(db.begin().snapshot());
    db.close().unwrap();
}
