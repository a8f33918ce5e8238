//! Random concurrent transactions against a serial oracle. A transaction must read the writes of
//! the transactions that committed before its start, while others run, abort and are collected.
//!
//! `SERAC_STRESS=1` makes it large; `SERAC_SEED=n` replays a seed.

mod one_table;

use one_table::{checkpoint, column, open_table};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::freeze::compact::{FollowMoves, RowFollower};
use serac_storage::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Row = (Option<i64>, Option<Vec<u8>>, bool);
type State = BTreeMap<u64, Row>;
type Writes = Vec<(u64, Option<Row>)>;

fn schema() -> TableSchema {
    TableSchema {
        columns: vec![column("a", ColumnType::Int64), column("b", ColumnType::Utf8), column("c", ColumnType::Boolean)],
    }
}

const COLUMNS: [ColumnId; 3] = [ColumnId(0), ColumnId(1), ColumnId(2)];

fn random_row(rng: &mut StdRng) -> Row {
    let text = rng.random_bool(0.9).then(|| vec![b'a' + rng.random_range(0..26); rng.random_range(0..40)]);
    (rng.random_bool(0.9).then(|| rng.random()), text, rng.random())
}

fn values(row: &Row) -> [Value<'_>; 3] {
    [row.0.map_or(Value::Null, Value::Int64), row.1.as_deref().map_or(Value::Null, Value::Bytes), Value::Bool(row.2)]
}

fn to_row(buffer: &RowBuffer) -> Row {
    row_of(&buffer.values())
}

fn row_of(values: &[Value<'_>]) -> Row {
    let a = match values[0] {
        Value::Int64(v) => Some(v),
        Value::Null => None,
        other => panic!("{other:?}"),
    };
    let b = match values[1] {
        Value::Bytes(v) => Some(v.to_vec()),
        Value::Null => None,
        other => panic!("{other:?}"),
    };
    (a, b, values[2] == Value::Bool(true))
}

/// Everything that `snapshot` sees, by block scans.
fn scan(table: &Arc<DataTable>, snapshot: &Snapshot) -> State {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    let mut state = State::new();
    for no in 0..table.block_count() {
        let Some(mut reader) = table.read_block(snapshot, BlockNo(no)) else { continue };
        let mut selections = vec![reader.visible().clone()];
        if let Selection::Positions(p) = &selections[0]
            && p.len() > 20
        {
            // A sparse and a dense step must rebuild the same rows.
            let (sparse, rest): (Vec<u32>, Vec<u32>) = p.iter().partition(|slot| *slot % 16 == 3);
            selections = vec![Selection::Positions(sparse), Selection::Positions(rest)];
        }
        for selection in selections {
            let ids = reader.row_ids(&selection);
            let columns = reader.columns(&COLUMNS.map(ScanColumn::arrow), &selection).unwrap();
            let (a, b, c) =
                (columns[0].as_primitive::<Int64Type>(), columns[1].as_string_view(), columns[2].as_boolean());
            for i in 0..ids.len() {
                let text = b.is_valid(i).then(|| b.value(i).as_bytes().to_vec());
                let row = (a.is_valid(i).then(|| a.value(i)), text, c.value(i));
                assert!(state.insert(ids.value(i), row).is_none());
            }
        }
    }
    state
}

#[derive(Default)]
struct Oracle {
    /// Write sets by commit timestamp: row id → new row, or `None`.
    history: Mutex<BTreeMap<u64, Writes>>,
    /// How often a row was asked to leave its place: now and then one stays, until nothing else is
    /// going on.
    asked: AtomicUsize,
    calm: AtomicBool,
}

impl Oracle {
    fn state_at(&self, start: Timestamp) -> State {
        let mut state = State::new();
        for writes in self.history.lock().unwrap().range(..=start.0).map(|(_, w)| w) {
            for (id, row) in writes {
                match row {
                    Some(row) => state.insert(*id, row.clone()),
                    None => state.remove(id),
                };
            }
        }
        state
    }
}

/// Compaction gives rows other ids: to the oracle, a delete and an insert like others.
struct OracleFollower(Arc<Oracle>);

struct OracleMoves {
    oracle: Arc<Oracle>,
    copied: Vec<(RowId, RowId, Row)>,
}

impl RowFollower for OracleFollower {
    fn follow(&self, _: &DataTable, _: &mut Transaction) -> Option<Box<dyn FollowMoves>> {
        Some(Box::new(OracleMoves { oracle: self.0.clone(), copied: Vec::new() }))
    }
}

impl FollowMoves for OracleMoves {
    fn copied(&mut self, _: &mut Transaction, row: RowId, copy: RowId, values: &[Value<'_>]) {
        self.copied.push((row, copy, row_of(values)));
    }

    fn may_leave(&mut self, _: &Transaction, _: RowId) -> bool {
        self.oracle.calm.load(Ordering::Relaxed)
            || !self.oracle.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(50)
    }

    fn finish(&mut self, txn: &mut Transaction, moved: &[bool]) {
        let copied = std::mem::take(&mut self.copied).into_iter().zip(moved).filter(|(_, moved)| **moved);
        let writes = copied.flat_map(|((row, copy, values), _)| [(row.as_u64(), None), (copy.as_u64(), Some(values))]);
        let (oracle, writes) = (self.oracle.clone(), writes.collect::<Writes>());
        txn.on_commit(Box::new(move |timestamp| {
            oracle.history.lock().unwrap().insert(timestamp.0, writes);
        }));
    }
}

fn open(path: Option<std::path::PathBuf>) -> (Arc<Storage>, Arc<DataTable>) {
    let options = StorageOptions {
        path,
        gc_threads: 0,
        compaction_threads: 3,
        durability: Durability::Relaxed,
        log_segment_bytes: 1 << 16,
        ..Default::default()
    };
    let (storage, table, _) = open_table(options, schema()).unwrap();
    (storage, table)
}

/// One transaction of random operations; returns its write set if it committed.
fn transaction(rng: &mut StdRng, storage: &Storage, table: &Arc<DataTable>, oracle: &Oracle, commit_latch: &Mutex<()>) {
    let mut txn = storage.begin();
    let snapshot = txn.snapshot().clone();
    // The oracle is complete up to `start`: commits and their history entries are made under one
    // latch, and so is this read.
    let mut expected = {
        let _latch = commit_latch.lock().unwrap();
        oracle.state_at(snapshot.start())
    };
    let mut writes = Writes::new();
    let mut savepoint: Option<(Savepoint, State, usize)> = None;
    for _ in 0..rng.random_range(1..30) {
        let pick = |rng: &mut StdRng, expected: &State| {
            (!expected.is_empty()).then(|| *expected.keys().nth(rng.random_range(0..expected.len())).unwrap())
        };
        let result = match rng.random_range(0..10) {
            0..3 => {
                let row = random_row(rng);
                table.insert(&mut txn, &values(&row)).map(|id| {
                    writes.push((id.as_u64(), Some(row.clone())));
                    expected.insert(id.as_u64(), row);
                })
            }
            3..6 => match pick(rng, &expected) {
                None => Ok(()),
                Some(id) => {
                    let new = random_row(rng);
                    let all = rng.random_bool(0.5);
                    let (columns, row) = if all {
                        (&COLUMNS[..], new)
                    } else {
                        (&COLUMNS[1..2], (expected[&id].0, new.1, expected[&id].2))
                    };
                    let new_values = values(&row);
                    let chosen = if all { &new_values[..] } else { &new_values[1..2] };
                    table.update(&mut txn, RowId::from_u64(id), columns, chosen).map(|()| {
                        writes.push((id, Some(row.clone())));
                        expected.insert(id, row.clone());
                    })
                }
            },
            6 => match pick(rng, &expected) {
                None => Ok(()),
                Some(id) => table.delete(&mut txn, RowId::from_u64(id)).map(|()| {
                    writes.push((id, None));
                    expected.remove(&id);
                }),
            },
            7 => {
                savepoint = Some((txn.savepoint(), expected.clone(), writes.len()));
                Ok(())
            }
            8 => {
                if let Some((at, state, len)) = &savepoint {
                    txn.rollback_to(at);
                    expected = state.clone();
                    writes.truncate(*len);
                }
                Ok(())
            }
            _ => {
                if rng.random_bool(0.3) {
                    assert_eq!(scan(table, &snapshot), expected, "a scan at {:?}", snapshot.start());
                } else if let Some(id) = pick(rng, &expected) {
                    let mut buffer = RowBuffer::default();
                    assert!(table.read(&snapshot, RowId::from_u64(id), &COLUMNS, &mut buffer).unwrap());
                    assert_eq!(to_row(&buffer), expected[&id]);
                }
                Ok(())
            }
        };
        match result {
            Ok(()) => {}
            Err(StorageError::WriteConflict { .. }) => return, // dropped: aborted
            Err(other) => panic!("{other}"),
        }
    }
    drop(snapshot);
    if rng.random_bool(0.2) {
        txn.abort();
        return;
    }
    let _latch = commit_latch.lock().unwrap();
    let ticket = txn.commit().unwrap();
    if !writes.is_empty() {
        oracle.history.lock().unwrap().insert(ticket.commit_ts().0, writes);
    }
}

/// One storm, or 100 under `SERAC_STRESS`. Each storm has an oracle of its own, because an oracle
/// answers more slowly with each transaction in its history.
fn storms(on_disk: bool, freezing: bool) {
    let stress = serac_testing::stress();
    for _ in 0..if stress { 100 } else { 1 } {
        let folder = on_disk.then(|| tempfile::tempdir().unwrap());
        storm(folder.as_ref().map(|folder| folder.path().join("db")), freezing);
    }
}

fn storm(path: Option<std::path::PathBuf>, freezing: bool) {
    let seed = serac_testing::seed();
    let rounds = 150;
    let (storage, table) = open(path.clone());
    let (oracle, commit_latch, stop) = (Arc::new(Oracle::default()), Mutex::new(()), AtomicBool::new(false));
    if freezing {
        storage.set_follower(Arc::new(OracleFollower(oracle.clone())));
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let (storage, table, oracle, commit_latch) = (&storage, &table, &oracle, &commit_latch);
                scope.spawn(move || {
                    let mut rng = StdRng::seed_from_u64(seed.wrapping_add(worker));
                    for _ in 0..rounds {
                        transaction(&mut rng, storage, table, oracle, commit_latch);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    storage.run_gc();
                    std::thread::yield_now();
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                storage.vacuum_table(&table);
                std::thread::yield_now();
            }
        });
        if freezing {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    storage.freeze_table(&table, Duration::from_millis(3));
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            scope.spawn(|| {
                while path.is_some() && !stop.load(Ordering::Relaxed) {
                    checkpoint(&storage).unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(results.iter().all(|r| r.is_ok()), "seed {seed}");
    });
    let mut expected = oracle.state_at(storage.manager().now());
    assert_eq!(scan(&table, storage.begin().snapshot()), expected, "seed {seed}");
    storage.manager().log().inspect(|log| log.flush().unwrap());
    storage.run_gc();
    let stats = storage.run_gc();
    assert_eq!((stats.waiting, storage.manager().gc().backlog()), (0, 0), "all versions are collected: {stats:?}");
    for block in (0..table.block_count()).filter_map(|no| table.block(BlockNo(no))) {
        assert!(block.hot().is_none_or(|block| block.versioned().get() == 0));
    }
    table.verify();
    if freezing {
        oracle.calm.store(true, Ordering::Relaxed);
        let (frozen, blocks) = storage.freeze_table(&table, Duration::from_secs(10));
        assert_eq!(frozen, blocks, "all blocks freeze, seed {seed}");
        let rows = expected.len() as u32;
        assert!(
            blocks <= rows.div_ceil(table.layout().slot_count()) + 1,
            "{rows} rows in {blocks} blocks, seed {seed}"
        );
        expected = oracle.state_at(storage.manager().now());
        assert_eq!(expected.len() as u32, rows);
        assert_eq!(scan(&table, storage.begin().snapshot()), expected, "seed {seed}");
        table.verify();
    }
    drop(table);
    if let Some(path) = path {
        checkpoint(&storage).unwrap();
        storage.close().unwrap();
        drop(storage);
        let (storage, table) = open(Some(path));
        assert_eq!(scan(&table, storage.begin().snapshot()), expected, "after reopening, seed {seed}");
        table.verify();
    }
}

#[test]
fn transactions_agree_with_the_oracle_while_everything_is_compacted_frozen_and_thawed() {
    storms(false, true);
}

#[test]
fn transactions_agree_with_the_oracle_while_everything_is_compacted_frozen_and_checkpointed_and_after_recovery() {
    storms(true, true);
}

#[test]
fn random_transactions_agree_with_the_oracle() {
    storms(false, false);
}

#[test]
fn random_transactions_agree_with_the_oracle_after_reopening() {
    storms(true, false);
}

#[test]
fn a_transaction_of_a_million_updates_commits_at_once_and_is_collected() {
    let rows = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let (storage, table) = open(None);
    let mut txn = storage.begin();
    let ids: Vec<RowId> = (0..rows)
        .map(|i| table.insert(&mut txn, &[Value::Int64(i), Value::Bytes(b"x"), Value::Null]).unwrap())
        .collect();
    txn.commit().unwrap();
    let before = storage.begin();
    let mut txn = storage.begin();
    for &id in &ids {
        table.update(&mut txn, id, &[ColumnId(0)], &[Value::Int64(-1)]).unwrap();
    }
    txn.commit().unwrap();
    let mut buffer = RowBuffer::default();
    assert!(table.read(before.snapshot(), ids[7], &COLUMNS, &mut buffer).unwrap());
    assert_eq!(buffer.value(0), Value::Int64(7));
    drop(before);
    assert!(table.read(storage.begin().snapshot(), ids[7], &COLUMNS, &mut buffer).unwrap());
    assert_eq!(buffer.value(0), Value::Int64(-1));
    storage.run_gc();
    assert_eq!(storage.manager().gc().backlog(), 0);
    table.verify();
}

#[test]
fn a_long_running_reader_keeps_few_versions_and_lets_go_of_them() {
    let (storage, table) = open(None);
    let mut txn = storage.begin();
    let ids: Vec<RowId> = (0..100)
        .map(|i| table.insert(&mut txn, &[Value::Int64(i), Value::Null, Value::Bool(false)]).unwrap())
        .collect();
    txn.commit().unwrap();
    storage.run_gc();
    let reader = storage.begin();
    let mut peak = 0;
    for round in 0..200 {
        for &id in &ids {
            let mut txn = storage.begin();
            table
                .update(
                    &mut txn,
                    id,
                    &[ColumnId((round % 3 == 0) as u16 * 2)],
                    &[match round % 3 {
                        0 => Value::Bool(true),
                        _ => Value::Int64(round),
                    }],
                )
                .unwrap();
            txn.commit().unwrap();
        }
        storage.run_gc();
        peak = peak.max(storage.manager().gc().backlog());
    }
    assert!(peak <= 100 * 4, "{peak} transactions are kept for 100 rows");
    let mut buffer = RowBuffer::default();
    for (i, &id) in ids.iter().enumerate() {
        assert!(table.read(reader.snapshot(), id, &COLUMNS, &mut buffer).unwrap());
        assert_eq!(to_row(&buffer), (Some(i as i64), None, false));
    }
    drop(reader);
    storage.run_gc();
    assert_eq!(storage.manager().gc().backlog(), 0);
    table.verify();
}

#[test]
fn what_a_closed_storage_could_not_collect_goes_with_its_last_reader() {
    let (storage, table) = open(None);
    let reader = storage.begin();
    for collected_before in [true, false] {
        let mut txn = storage.begin();
        table.insert(&mut txn, &[Value::Int64(1), Value::Null, Value::Null]).unwrap();
        txn.commit().unwrap();
        if collected_before {
            storage.run_gc(); // and cannot unlink it yet
        }
    }
    storage.close().unwrap();
    drop(storage);
    // The reader outlives the storage, and still does not see the rows.
    let mut buffer = RowBuffer::default();
    for slot in 0..2 {
        assert!(!table.read(reader.snapshot(), RowId::new(BlockNo(0), Slot(slot)), &COLUMNS, &mut buffer).unwrap());
    }
    drop(reader);
    table.verify();
    assert_eq!(table.metrics().versioned_blocks, 0);
    let left = Arc::downgrade(&table);
    drop(table);
    // Other tests of this process may be reading: an epoch ends when they do.
    let (another, deadline) = (open(None).0, Instant::now() + Duration::from_secs(30));
    while left.strong_count() > 0 {
        assert!(Instant::now() < deadline, "the table is still there");
        another.run_gc();
    }
}
