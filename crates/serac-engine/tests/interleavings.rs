//! Constraints between transactions that overlap, each race under many schedules of the
//! deterministic scheduler (see `scripts/test`).
#![cfg(shuttle)]

mod common;

use common::{int_column, key, references, row_ids, table};
use serac_engine::catalog::definition::{ReferentialAction, TableDefinition};
use serac_engine::{Database, EngineError, Transaction};
use serac_storage::{RowBuffer, RowId, StorageOptions, Value};
use serac_sync::simulation::{Weather, run};
use serac_sync::thread;
use serac_sync::time::Duration;

fn for_each_seed(seeds: u64, work: fn()) {
    for seed in 0..seeds {
        let summary = std::panic::catch_unwind(|| run(seed, seed, Weather::of(seed), 2_000_000, work));
        assert!(summary.is_ok(), "seed {seed}");
    }
}

/// A parent `p` and its child `c`.
fn family(on_delete: ReferentialAction) -> Database {
    let options = StorageOptions { gc_threads: 0, freeze_after: None, ..Default::default() };
    let db = Database::open_with(options).unwrap();
    let definition = |name: &str| {
        let mut definition = TableDefinition::new("public", name, ["id", "parent"].map(int_column).into());
        definition.keys.push(key(&format!("{name}_key"), &[0], true, true));
        definition
    };
    let mut child = definition("c");
    child.foreign_keys.push(references("c_parent", 1, "p"));
    child.foreign_keys[0].on_delete = on_delete;
    let mut txn = db.begin();
    txn.create_table(definition("p")).unwrap();
    txn.create_table(child).unwrap();
    txn.commit().unwrap();
    insert(&db, "p", 1, None).unwrap();
    db
}

/// Inserts a row in a transaction of its own.
fn insert(db: &Database, name: &str, id: i64, parent: Option<i64>) -> Result<RowId, EngineError> {
    let mut txn = db.begin();
    let table = table(&txn, name);
    let row = txn.insert_row(&table, &[Value::Int64(id), parent.map_or(Value::Null, Value::Int64)])?;
    txn.check_statement_end()?;
    txn.commit()?;
    Ok(row)
}

/// Deletes the rows with these ids that the transaction sees, and commits.
fn delete(mut txn: Transaction, name: &str, ids: &[i64]) -> Result<(), EngineError> {
    let table = table(&txn, name);
    let mut rows = Vec::new();
    for id in ids {
        rows.extend(txn.lookup(&table, &table.indexes[0], &[Value::Int64(*id)])?);
    }
    txn.delete_batch(&table, &rows)?;
    txn.check_statement_end()?;
    txn.commit()?;
    Ok(())
}

/// The errors that a writer may get here.
fn expect(result: Result<(), EngineError>) {
    if let Err(error) = result {
        assert!(["40001", "23503"].contains(&error.sqlstate()), "{error}");
    }
}

/// No child is without its parent, by scans.
fn check(db: &Database) {
    let txn = db.begin();
    let numbers = |name: &str, column: usize| -> Vec<i64> {
        let (table, mut buffer) = (table(&txn, name), RowBuffer::default());
        let rows = row_ids(&txn, &table).into_iter();
        rows.filter_map(|row| {
            assert!(txn.read_row(&table, row, &mut buffer).unwrap());
            match buffer.value(column) {
                Value::Int64(number) => Some(number),
                _ => None,
            }
        })
        .collect()
    };
    let (parents, references) = (numbers("p", 0), numbers("c", 1));
    assert!(references.iter().all(|parent| parents.contains(parent)), "orphans: {references:?} of {parents:?}");
    ["p", "c"].iter().for_each(|name| table(&txn, name).verify(txn.snapshot()));
}

fn orphans(on_delete: ReferentialAction) {
    let db = family(on_delete);
    let writers = [10, 11].map(|id| {
        let db = db.clone();
        thread::spawn(move || expect(insert(&db, "c", id, Some(1)).map(|_| ())))
    });
    let collector = {
        let db = db.clone();
        thread::spawn(move || (0..2).for_each(|_| _ = db.storage().run_gc()))
    };
    for _ in 0..2 {
        let txn = db.begin();
        thread::yield_now();
        expect(delete(txn, "p", &[1]));
    }
    writers.into_iter().chain([collector]).for_each(|task| task.join().unwrap());
    check(&db);
}

/// Children come beside the delete of their parent, and a collector ends the pins of those that
/// have come before.
#[test]
fn no_orphan_is_left_by_a_cascade() {
    for_each_seed(1_000, || orphans(ReferentialAction::Cascade));
}
#[test]
fn no_orphan_is_left_by_set_null() {
    for_each_seed(1_000, || orphans(ReferentialAction::SetNull));
}
#[test]
fn no_orphan_is_left_where_nothing_is_done() {
    for_each_seed(1_000, || orphans(ReferentialAction::NoAction));
}

/// One of many children is left. Compaction moves it to a place that still has an index entry of
/// the same parent. Meanwhile the parent's delete looks for children.
#[test]
fn a_child_that_moves_is_found_by_the_delete_of_its_parent() {
    for_each_seed(1_000, || {
        let db = family(ReferentialAction::NoAction);
        for id in 10..16 {
            insert(&db, "c", id, Some(1)).unwrap();
        }
        delete(db.begin(), "c", &[10, 11, 12, 13, 14]).unwrap();
        let freezer = {
            let db = db.clone();
            thread::spawn(move || {
                let data = table(&db.begin(), "c").data.clone();
                (0..2).for_each(|_| _ = db.storage().freeze_table(&data, Duration::ZERO));
            })
        };
        let collector = {
            let db = db.clone();
            thread::spawn(move || _ = db.storage().run_gc())
        };
        for _ in 0..2 {
            expect(delete(db.begin(), "p", &[1]));
        }
        [freezer, collector].into_iter().for_each(|task| task.join().unwrap());
        check(&db);
    });
}
