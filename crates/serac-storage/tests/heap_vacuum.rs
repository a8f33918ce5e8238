//! Garbage of updates in the heap of a block that never freezes is given back, also beside a reader
//! that stays.

mod one_table;

use one_table::{column, open_table};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROWS: usize = 2_000;
const LONGEST: usize = 300;

fn open() -> (Arc<Storage>, Arc<DataTable>) {
    let options = StorageOptions { gc_threads: 0, freeze_after: None, ..Default::default() };
    let schema = TableSchema { columns: vec![column("id", ColumnType::Int64), column("text", ColumnType::Utf8)] };
    let (storage, table, _) = open_table(options, schema).unwrap();
    (storage, table)
}

fn any_text(rng: &mut StdRng) -> Vec<u8> {
    vec![b'a' + rng.random_range(0..26); rng.random_range(0..=LONGEST)]
}

fn load(storage: &Storage, table: &Arc<DataTable>, rng: &mut StdRng) -> (Vec<RowId>, Vec<Vec<u8>>) {
    let mut txn = storage.begin();
    let texts: Vec<_> = (0..ROWS).map(|_| any_text(rng)).collect();
    let insert = |(i, text): (usize, &Vec<u8>)| table.insert(&mut txn, &[Value::Int64(i as i64), Value::Bytes(text)]);
    let ids = texts.iter().enumerate().map(insert).collect::<Result<_>>().unwrap();
    txn.commit().unwrap();
    (ids, texts)
}

fn check(table: &DataTable, snapshot: &Snapshot, ids: &[RowId], texts: &[Vec<u8>]) {
    let mut buffer = RowBuffer::default();
    for (&id, text) in ids.iter().zip(texts) {
        assert!(table.read(snapshot, id, &[ColumnId(1)], &mut buffer).unwrap());
        assert_eq!(buffer.value(0), Value::Bytes(text));
    }
}

/// Collects until the heaps take no more than `bytes`. Unnamed bytes are freed an epoch later, and
/// an epoch ends when all threads have unpinned: also the threads of other tests of this process.
fn collect_down_to(storage: &Storage, table: &DataTable, bytes: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        storage.run_gc();
        let metrics = table.metrics();
        if metrics.heap_bytes <= bytes {
            return;
        }
        assert!(Instant::now() < deadline, "more than {bytes} bytes of heap: {metrics:?}");
    }
}

/// The most bytes that a heap may take: twice the bytes that it must keep, a chunk that is being
/// filled, and the updates between two runs of the collector (which also wait for an epoch to end).
fn bound(kept_values: usize, updates_between_runs: usize) -> usize {
    2 * kept_values * LONGEST + (1 << 20) + 4 * updates_between_runs * LONGEST
}

fn update(storage: &Storage, table: &Arc<DataTable>, id: RowId, text: &[u8], abort: bool) {
    let mut txn = storage.begin();
    table.update(&mut txn, id, &[ColumnId(1)], &[Value::Bytes(text)]).unwrap();
    if abort {
        txn.abort();
    } else {
        txn.commit().unwrap();
    }
}

#[test]
fn heaps_stay_in_proportion_to_what_they_hold() {
    let updates = if serac_testing::stress() { 2_000_000 } else { 100_000 };
    let (storage, table) = open();
    let mut rng = serac_testing::rng();
    let (ids, mut texts) = load(&storage, &table, &mut rng);
    let mut reader: Option<(Transaction, Vec<Vec<u8>>)> = None;
    for i in 0..3 * updates {
        match i / updates {
            1 if reader.is_none() => reader = Some((storage.begin(), texts.clone())),
            2 => reader = None,
            _ => {}
        }
        // Half of the updates go to a tenth of the rows, so chunks hold values of very different
        // ages; a part is rolled back.
        let row = if rng.random() { rng.random_range(0..ROWS / 10) } else { rng.random_range(0..ROWS) };
        let (text, abort) = (any_text(&mut rng), rng.random_bool(0.1));
        update(&storage, &table, ids[row], &text, abort);
        if !abort {
            texts[row] = text;
        }
        if i % 1_000 == 0 {
            // Beside the reader, each row has its own value, the reader's, and its second newest.
            let kept = ROWS * if reader.is_some() { 3 } else { 1 };
            collect_down_to(&storage, &table, bound(kept, 1_000));
        }
        if i % 25_000 == 0 {
            check(&table, storage.begin().snapshot(), &ids, &texts);
            if let Some((reader, texts)) = &reader {
                check(&table, reader.snapshot(), &ids, texts);
            }
        }
    }
    storage.run_gc();
    storage.run_gc();
    check(&table, storage.begin().snapshot(), &ids, &texts);
    table.verify();
}

#[test]
fn one_row_that_is_written_all_the_time_keeps_one_chunk_or_two() {
    let (storage, table) = open();
    let mut txn = storage.begin();
    let id = table.insert(&mut txn, &[Value::Int64(0), Value::Null]).unwrap();
    txn.commit().unwrap();
    for i in 0..20_000u32 {
        update(&storage, &table, id, &[i as u8; LONGEST], false);
        if i % 100 == 0 {
            storage.run_gc();
        }
    }
    collect_down_to(&storage, &table, 1 << 18);
    table.verify();
}

#[test]
fn deleted_rows_and_rolled_back_inserts_leave_nothing() {
    let (storage, table) = open();
    let mut rng = serac_testing::rng();
    for round in 0..60 {
        let mut txn = storage.begin();
        let text = any_text(&mut rng);
        let ids: Vec<_> =
            (0..200i64).map(|i| table.insert(&mut txn, &[Value::Int64(i), Value::Bytes(&text)]).unwrap()).collect();
        if round % 3 == 0 {
            txn.abort();
            continue;
        }
        txn.commit().unwrap();
        let mut txn = storage.begin();
        ids.iter().for_each(|&id| table.delete(&mut txn, id).unwrap());
        txn.commit().unwrap();
        storage.run_gc();
    }
    collect_down_to(&storage, &table, 1 << 18);
    table.verify();
}

#[test]
fn a_batch_that_was_read_before_a_vacuum_stays_what_it_is() {
    let (storage, table) = open();
    let mut rng = serac_testing::rng();
    let (ids, texts) = load(&storage, &table, &mut rng);
    let reader = storage.begin();
    let mut block = table.read_block(reader.snapshot(), BlockNo(0)).unwrap();
    let all = block.visible().clone();
    let column = [ScanColumn::arrow(ColumnId(1))];
    let before = block.columns(&column, &all).unwrap();
    for i in 0..5 {
        ids.iter().for_each(|&id| update(&storage, &table, id, &[b'0' + i; 100], false));
        storage.run_gc();
        storage.vacuum_table(&table);
    }
    let after = block.columns(&column, &all).unwrap();
    assert_eq!(&before, &after);
    for array in [&before[0], &after[0]] {
        array.to_data().validate_full().unwrap();
        let strings = arrow_array::cast::AsArray::as_string_view(array);
        assert!(strings.iter().zip(&texts).all(|(string, text)| string.unwrap().as_bytes() == text));
    }
}

/// A text by which a reader knows the row that it is of, and that it is whole.
fn text_of(row: usize, version: u8) -> Vec<u8> {
    vec![version; 13 + (row * 31 + usize::from(version) * 7) % LONGEST]
}

#[test]
fn readers_of_rows_find_whole_values_beside_writers_and_vacuums() {
    let rounds = if serac_testing::stress() { 3_000 } else { 60 };
    let (storage, table) = open();
    let mut txn = storage.begin();
    let rows = 0..ROWS / 4;
    let insert = |row| table.insert(&mut txn, &[Value::Int64(row as i64), Value::Bytes(&text_of(row, 0))]).unwrap();
    let ids: Vec<RowId> = rows.clone().map(insert).collect();
    txn.commit().unwrap();
    let stop = AtomicBool::new(false);
    let check = |row: usize, buffer: &RowBuffer| {
        let text = buffer.get::<&[u8]>(0).unwrap();
        assert_eq!(text, text_of(row, text[0]), "row {row}");
    };
    std::thread::scope(|scope| {
        let (storage, table, ids, stop, check) = (&storage, &table, &ids, &stop, &check);
        for seed in 0..2 {
            scope.spawn(move || {
                let (mut rng, mut buffer) = (StdRng::seed_from_u64(seed), RowBuffer::default());
                while !stop.load(Ordering::Relaxed) {
                    let txn = storage.begin();
                    for row in (0..100).map(|_| rng.random_range(0..ids.len())) {
                        assert!(table.read(txn.snapshot(), ids[row], &[ColumnId(1)], &mut buffer).unwrap());
                        check(row, &buffer);
                        let latest = table.read_latest(txn.snapshot(), ids[row], &[ColumnId(1)], &mut buffer).unwrap();
                        if latest == LatestState::Present {
                            check(row, &buffer);
                        }
                        // Uncommitted versions, too.
                        let matches = &mut |version: &RowBuffer| {
                            check(row, version);
                            false
                        };
                        assert!(!table.any_version_matches(ids[row], &[ColumnId(1)], None, matches).unwrap());
                    }
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                storage.run_gc();
                storage.vacuum_table(table);
            }
        });
        for round in 0..rounds {
            for row in rows.clone() {
                update(storage, table, ids[row], &text_of(row, round as u8), row % 10 == 0);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    table.verify();
}

#[test]
fn a_column_of_long_values_cannot_be_given_twice_in_one_update() {
    let (storage, table) = open();
    let mut txn = storage.begin();
    let id = table.insert(&mut txn, &[Value::Int64(0), Value::Null]).unwrap();
    let twice = table.update(&mut txn, id, &[ColumnId(1), ColumnId(1)], &[Value::Null, Value::Null]);
    assert!(matches!(twice, Err(StorageError::InvalidInput(_))), "{twice:?}");
    txn.commit().unwrap();
}
