//! Bitmap indexes beside writers: in every snapshot they return the rows that a scan of it finds.
//! Transactions commit and roll back, and indexes are built, dropped and recovered.

mod common;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use common::{column, row_ids as rows};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::catalog::definition::*;
use serac_engine::{Database, EngineError, Result, Table, Transaction};
use serac_index::cubit::Predicate;
use serac_storage::{ColumnId, ColumnType, RowBuffer, RowId, Value};
use serac_testing::wait_for;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn bitmap(name: &str, column: usize) -> BitmapDefinition {
    BitmapDefinition { name: name.into(), column }
}

fn create(db: &Database) {
    let columns = vec![
        column("id", ColumnType::Int64),
        column("a", ColumnType::Int64),
        column("b", ColumnType::Utf8),
        column("x", ColumnType::Float64),
    ];
    let mut txn = db.begin();
    txn.create_table(TableDefinition::new("public", "t", columns)).unwrap();
    txn.commit().unwrap();
}

fn table(txn: &Transaction) -> Arc<Table> {
    common::table(txn, "t")
}

const WORDS: [&str; 6] =
    ["", "one", "two", "three", "a word of more than fifteen bytes", "a word of more than fifteen letters"];

/// Rows whose `a` and `b` have few distinct values, NULL among them.
fn batch(rng: &mut StdRng, rows: usize) -> RecordBatch {
    let few = |rng: &mut StdRng| Some(rng.random_range(-5..6)).filter(|n| *n != 0);
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|_| rng.random_range(0..1_000_000))));
    let a: ArrayRef = Arc::new((0..rows).map(|_| few(rng)).collect::<Int64Array>());
    let word = |rng: &mut StdRng| WORDS.get(rng.random_range(0..WORDS.len() + 1)).copied();
    let b: ArrayRef = Arc::new((0..rows).map(|_| word(rng)).collect::<StringViewArray>());
    let x: ArrayRef = Arc::new(arrow_array::Float64Array::from(vec![0.5; rows]));
    RecordBatch::try_from_iter_with_nullable([("id", id, true), ("a", a, true), ("b", b, true), ("x", x, true)])
        .unwrap()
}

/// A transaction's indexes return the rows that it finds in the table, its own changes included.
fn check_own(txn: &Transaction, table: &Table) {
    let own = txn.own_bitmap_changes();
    for index in &table.bitmaps {
        let Some(reader) = own.reader(index, txn.snapshot()) else { continue };
        let (at, mut buffer) = (ColumnId(index.definition.column as u16), RowBuffer::default());
        let mut expected: BTreeMap<_, Vec<RowId>> = BTreeMap::new();
        for row in rows(txn, table) {
            assert!(table.data.read(txn.snapshot(), row, &[at], &mut buffer).unwrap());
            expected.entry(index.key(buffer.value(0))).or_default().push(row);
        }
        for (key, rows) in &expected {
            assert_eq!(reader.query(Predicate::Equals(key)).rows(), *rows);
        }
        let counts = reader.counts(Predicate::Range(Bound::Unbounded, Bound::Unbounded));
        assert_eq!(counts, expected.into_iter().map(|(key, rows)| (key, rows.len() as u64)).collect::<Vec<_>>());
    }
}

fn change(txn: &mut Transaction, table: &Arc<Table>, rng: &mut StdRng) -> Result<()> {
    let rows = rows(txn, table);
    match rng.random_range(0..10) {
        0 => drop(txn.insert_batch(table, &batch(rng, 1_500))?),
        1..4 => drop(txn.insert_batch(table, &batch(rng, 3))?),
        _ if rows.is_empty() => {}
        4 => {
            let at = rng.random_range(0..rows.len());
            txn.delete_batch(table, &rows[at..rows.len().min(at + 40)])?;
        }
        n => {
            let row = rows[rng.random_range(0..rows.len())];
            let all = batch(rng, 1);
            let columns: &[usize] = if n < 8 { &[1] } else { &[2, 1, 0] };
            txn.update_batch(table, &[row], columns, &all.project(columns).unwrap())?;
        }
    }
    Ok(())
}

fn transact(db: &Database, rng: &mut StdRng) -> Result<()> {
    let mut txn = db.begin();
    let table = table(&txn);
    for _ in 0..rng.random_range(1..6) {
        let savepoint = txn.savepoint();
        change(&mut txn, &table, rng)?;
        if rng.random_bool(0.2) {
            txn.rollback_to(&savepoint);
        }
    }
    if rng.random_bool(0.2) {
        check_own(&txn, &table);
    }
    if rng.random_bool(0.8) {
        txn.commit()?;
    }
    Ok(())
}

fn define(db: &Database, rng: &mut StdRng) -> Result<()> {
    let mut txn = db.begin();
    for _ in 0..rng.random_range(1..4) {
        let table = table(&txn);
        let bitmaps = &table.definition.bitmaps;
        match rng.random_range(0..8) {
            0 => drop(txn.truncate(&[("public".into(), "t".into())], false, false)?),
            1 => drop(change(&mut txn, &table, rng)),
            2 if !bitmaps.is_empty() => txn.drop_index("public", &bitmaps[0].name)?,
            3 => {
                let savepoint = txn.savepoint();
                txn.create_bitmap_index("public", "t", bitmap("not_for_long", 1))?;
                change(&mut txn, &table, rng)?;
                txn.rollback_to(&savepoint);
            }
            _ => {
                let column = rng.random_range(1..3);
                let name = format!("i{}", rng.random_range(0..1_000_000));
                if bitmaps.len() < 3 {
                    txn.create_bitmap_index("public", "t", bitmap(&name, column))?;
                }
            }
        }
    }
    let table = table(&txn);
    check_own(&txn, &table);
    if rng.random_bool(0.9) {
        txn.commit()?;
    }
    Ok(())
}

fn check(result: Result<()>) {
    if let Err(error) = result {
        // Another was faster.
        assert!(["40001", "55006"].contains(&error.sqlstate()), "{error}");
    }
}

fn storm(db: &Database, seed: u64, time: Duration) {
    let started = Instant::now();
    let running = || started.elapsed() < time;
    let rng = |thread: u64| StdRng::seed_from_u64(seed.wrapping_add(thread));
    let results: Vec<_> = std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for thread in 0..3 {
            workers.push(scope.spawn(move || {
                let mut rng = rng(thread);
                while running() {
                    check(transact(db, &mut rng));
                }
            }));
        }
        workers.push(scope.spawn(move || {
            let mut rng = rng(3);
            while running() {
                check(define(db, &mut rng));
                std::thread::sleep(Duration::from_millis(rng.random_range(1..60)));
            }
        }));
        for thread in 4..6 {
            workers.push(scope.spawn(move || {
                let mut rng = rng(thread);
                while running() {
                    let txn = db.begin();
                    for _ in 0..2 {
                        std::thread::sleep(Duration::from_millis(rng.random_range(0..40)));
                        table(&txn).verify_bitmaps(txn.snapshot());
                    }
                }
            }));
        }
        workers.into_iter().map(|worker| worker.join()).collect()
    });
    assert!(results.iter().all(|result| result.is_ok()), "seed {seed}");
}

#[test]
fn bitmap_indexes_say_what_scans_find_beside_writers_and_after_recovery() {
    let seed = serac_testing::seed();
    let time = Duration::from_millis(if serac_testing::stress() { 30_000 } else { 1_500 });
    let folder = tempfile::tempdir().unwrap();
    create(&Database::open(folder.path()).unwrap());
    for round in 0..3 {
        let db = Database::open(folder.path()).unwrap();
        let verify = || {
            let txn = db.begin();
            let table = table(&txn);
            table.verify(txn.snapshot());
            (table.definition.clone(), rows(&txn, &table).len())
        };
        if round == 1 {
            db.checkpoint().unwrap();
        }
        verify();
        storm(&db, seed + round * 10, time);
        let before = verify();
        db.close().unwrap();
        drop(db);
        let again = Database::open(folder.path()).unwrap();
        let txn = again.begin();
        let table = table(&txn);
        table.verify(txn.snapshot());
        assert_eq!((table.definition.clone(), rows(&txn, &table).len()), before, "seed {seed}");
    }
}

#[test]
fn an_index_is_merged_in_the_background_and_old_snapshots_keep_their_answers() {
    let db = Database::in_memory().unwrap();
    create(&db);
    let mut txn = db.begin();
    txn.create_bitmap_index("public", "t", bitmap("a", 1)).unwrap();
    txn.insert_row(&table(&txn), &[Value::Int64(1), Value::Int64(1), Value::Null, Value::Null]).unwrap();
    txn.commit().unwrap();
    let old = db.begin();
    for _ in 0..2 {
        let mut txn = db.begin();
        txn.insert_row(&table(&txn), &[Value::Int64(1), Value::Int64(1), Value::Null, Value::Null]).unwrap();
        txn.commit().unwrap();
    }
    let index = table(&old).bitmaps[0].clone();
    wait_for("the background merges", || index.entries.statistics().log_entries, |left| *left == 0);
    let count = |txn: &Transaction| {
        let reader = txn.own_bitmap_changes().reader(&index, txn.snapshot()).unwrap();
        reader.count(Predicate::Equals(&index.key(Value::Int64(1))))
    };
    assert_eq!((count(&old), count(&db.begin())), (1, 3));
}

#[test]
fn an_index_is_merged_after_recovery() {
    let folder = tempfile::tempdir().unwrap();
    let insert = |db: &Database| {
        let mut txn = db.begin();
        txn.insert_row(&table(&txn), &[Value::Int64(1), Value::Int64(1), Value::Null, Value::Null]).unwrap();
        txn.commit().unwrap();
    };
    let db = Database::open(folder.path()).unwrap();
    create(&db);
    let mut txn = db.begin();
    txn.create_bitmap_index("public", "t", bitmap("a", 1)).unwrap();
    txn.commit().unwrap();
    insert(&db);
    db.close().unwrap();
    drop(db);
    let db = Database::open(folder.path()).unwrap();
    insert(&db);
    let index = table(&db.begin()).bitmaps[0].clone();
    wait_for("the background merges", || index.entries.statistics().log_entries, |left| *left == 0);
}

#[test]
fn a_transaction_with_many_changes_does_not_ask_the_index() {
    let db = Database::in_memory().unwrap();
    create(&db);
    let mut txn = db.begin();
    txn.create_bitmap_index("public", "t", bitmap("a", 1)).unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin();
    let t = table(&txn);
    let savepoint = txn.savepoint();
    txn.insert_batch(&t, &batch(&mut StdRng::seed_from_u64(1), 1_025)).unwrap();
    assert!(txn.own_bitmap_changes().reader(&t.bitmaps[0], txn.snapshot()).is_none());
    txn.rollback_to(&savepoint);
    assert!(txn.own_bitmap_changes().reader(&t.bitmaps[0], txn.snapshot()).is_some());
    check_own(&txn, &t);
}

#[test]
fn definitions_that_make_no_sense_are_refused() {
    let db = Database::in_memory().unwrap();
    create(&db);
    let mut txn = db.begin();
    let refused = |result: Result<()>| result.unwrap_err().sqlstate();
    txn.create_bitmap_index("public", "t", bitmap("i", 1)).unwrap();
    assert_eq!(refused(txn.create_bitmap_index("public", "t", bitmap("i", 2))), "42P07");
    let key = KeyDefinition {
        name: "i".into(),
        columns: vec![0],
        unique: false,
        primary: false,
        constraint: false,
        ..Default::default()
    };
    assert_eq!(refused(txn.create_index("public", "t", key)), "42P07");
    txn.create_bitmap_index("public", "t", bitmap("j", 2)).unwrap();
    txn.drop_column("public", "t", "a", false).unwrap();
    assert_eq!(table(&txn).definition.bitmaps, [bitmap("j", 1)]);
    txn.drop_index("public", "j").unwrap();
    assert!(matches!(txn.drop_index("public", "j"), Err(EngineError::Missing { .. })));
}
