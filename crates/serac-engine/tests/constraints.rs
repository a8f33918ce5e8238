//! Constraints, DDL and recovery through the embedded API.

mod common;

use common::{column, key, table};
use serac_engine::catalog::definition::*;
use serac_engine::{Database, EngineError, Transaction};
use serac_storage::{ColumnType, RowBuffer, RowId, Value};
use std::sync::Arc;

fn keyed(name: &str) -> TableDefinition {
    let mut definition = TableDefinition::new(
        "public",
        name,
        vec![column("id", ColumnType::Int64), column("parent", ColumnType::Int64), column("text", ColumnType::Utf8)],
    );
    definition.keys.push(key(&format!("{name}_pkey"), &[0], true, true));
    definition
}

fn create(db: &Database, definition: TableDefinition) {
    let mut txn = db.begin();
    txn.create_table(definition).unwrap();
    txn.commit().unwrap().wait().unwrap();
}

fn insert(txn: &mut Transaction, name: &str, id: i64, parent: Option<i64>) -> Result<RowId, EngineError> {
    let table = table(txn, name);
    let row = txn.insert_row(
        &table,
        &[Value::Int64(id), parent.map_or(Value::Null, Value::Int64), Value::Bytes(b"some longer text")],
    )?;
    txn.check_statement_end()?;
    Ok(row)
}

fn find(txn: &Transaction, name: &str, id: i64) -> Option<RowId> {
    let table = table(txn, name);
    txn.lookup(&table, &table.indexes[0], &[Value::Int64(id)]).unwrap().first().copied()
}

fn delete(txn: &mut Transaction, name: &str, id: i64) -> Result<(), EngineError> {
    let (table, row) = (table(txn, name), find(txn, name, id).unwrap());
    txn.delete_batch(&table, &[row])?;
    txn.check_statement_end()
}

#[test]
fn unique_keys_hold_across_transactions_deletes_and_rollbacks() {
    let db = Database::in_memory().unwrap();
    create(&db, keyed("t"));
    let mut a = db.begin();
    insert(&mut a, "t", 1, None).unwrap();
    assert_eq!(insert(&mut a, "t", 1, None).unwrap_err().sqlstate(), "23505");
    drop(a); // rolled back: the key is free
    let mut a = db.begin();
    insert(&mut a, "t", 1, None).unwrap();
    let mut b = db.begin();
    assert_eq!(insert(&mut b, "t", 1, None).unwrap_err().sqlstate(), "40001", "its fate is open");
    a.commit().unwrap();
    drop(b);
    let mut c = db.begin();
    let error = insert(&mut c, "t", 1, None).unwrap_err();
    assert_eq!(error.detail(), Some("Key (id)=(1) already exists."));
    drop(c);
    let old = db.begin();
    let mut d = db.begin();
    delete(&mut d, "t", 1).unwrap();
    insert(&mut d, "t", 1, Some(7)).unwrap(); // delete and insert again in one transaction
    d.commit().unwrap();
    db.storage().run_gc();
    let (mut buffer, t) = (RowBuffer::default(), table(&old, "t"));
    assert!(old.read_row(&t, find(&old, "t", 1).unwrap(), &mut buffer).unwrap());
    assert_eq!(buffer.value(1), Value::Null, "the old snapshot finds the old row through the index");
    drop(old);
    let new = db.begin();
    assert!(new.read_row(&t, find(&new, "t", 1).unwrap(), &mut buffer).unwrap());
    assert_eq!(buffer.value(1), Value::Int64(7));
    drop(new);
    while db.storage().run_gc().waiting > 0 {}
    db.storage().run_gc();
    t.verify(db.begin().snapshot());
    assert_eq!(t.indexes[0].entries.len(), 1, "entries of dead rows are gone");
}

#[test]
fn racing_inserts_of_the_same_keys_leave_one_row_each() {
    let db = Database::in_memory().unwrap();
    create(&db, keyed("t"));
    let committed = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for id in 0..300 {
                    let mut txn = db.begin();
                    match insert(&mut txn, "t", id, None) {
                        Ok(_) => {
                            txn.commit().unwrap();
                            committed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                        Err(error) => assert!(["23505", "40001"].contains(&error.sqlstate()), "{error}"),
                    }
                }
            });
        }
    });
    let txn = db.begin();
    let found = (0..300).filter(|&id| find(&txn, "t", id).is_some()).count();
    assert_eq!(found, committed.into_inner());
    let t = table(&txn, "t");
    for id in 0..300 {
        assert!(txn.lookup(&t, &t.indexes[0], &[Value::Int64(id)]).unwrap().len() <= 1);
    }
    t.verify(txn.snapshot());
}

#[test]
fn foreign_keys_hold_also_between_concurrent_transactions() {
    let db = Database::in_memory().unwrap();
    create(&db, keyed("p"));
    let mut child = keyed("c");
    child.foreign_keys.push(ForeignKeyDefinition {
        name: "c_parent_fkey".into(),
        columns: vec![1],
        parent_schema: "public".into(),
        parent_table: "p".into(),
        parent_columns: vec![0],
        on_delete: ReferentialAction::NoAction,
        on_update: ReferentialAction::NoAction,
    });
    create(&db, child);
    let mut txn = db.begin();
    insert(&mut txn, "p", 1, None).unwrap();
    insert(&mut txn, "p", 2, None).unwrap();
    insert(&mut txn, "c", 10, Some(1)).unwrap();
    assert_eq!(insert(&mut txn, "c", 11, Some(99)).unwrap_err().sqlstate(), "23503");
    drop(txn);
    let mut txn = db.begin();
    insert(&mut txn, "p", 1, None).unwrap();
    insert(&mut txn, "p", 2, None).unwrap();
    insert(&mut txn, "c", 10, Some(1)).unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin();
    assert_eq!(delete(&mut txn, "p", 1).unwrap_err().sqlstate(), "23503");
    drop(txn);
    // A child of 2 and the delete of 2, at the same time: one of them must fail.
    let (mut a, mut b) = (db.begin(), db.begin());
    insert(&mut a, "c", 12, Some(2)).unwrap();
    assert_eq!(delete(&mut b, "p", 2).unwrap_err().sqlstate(), "40001");
    drop(b);
    let mut b = db.begin();
    insert(&mut b, "c", 13, Some(2)).unwrap(); // children do not disturb each other
    let mut late = db.begin();
    a.commit().unwrap();
    b.commit().unwrap();
    assert_eq!(delete(&mut late, "p", 2).unwrap_err().sqlstate(), "40001", "committed after the snapshot");
    drop(late);
    let (mut a, mut b) = (db.begin(), db.begin());
    delete(&mut a, "c", 12).unwrap();
    delete(&mut a, "c", 13).unwrap();
    delete(&mut a, "p", 2).unwrap();
    assert_eq!(insert(&mut b, "c", 14, Some(2)).unwrap_err().sqlstate(), "40001");
    a.commit().unwrap();
}

#[test]
fn referential_actions_run_through_the_embedded_api() {
    let db = Database::in_memory().unwrap();
    create(&db, keyed("p"));
    let mut child = keyed("c");
    child.columns[1].default = Some("7".into());
    child.foreign_keys.push(ForeignKeyDefinition {
        name: "c_parent_fkey".into(),
        columns: vec![1],
        parent_schema: "public".into(),
        parent_table: "p".into(),
        parent_columns: vec![0],
        on_delete: ReferentialAction::Cascade,
        on_update: ReferentialAction::SetDefault,
    });
    create(&db, child);
    let mut txn = db.begin();
    for id in [1, 2] {
        insert(&mut txn, "p", id, None).unwrap();
        insert(&mut txn, "c", 10 + id, Some(id)).unwrap();
    }
    let before = txn.savepoint();
    delete(&mut txn, "p", 1).unwrap();
    assert!(find(&txn, "c", 11).is_none() && find(&txn, "c", 12).is_some());
    txn.rollback_to(&before);
    assert!(find(&txn, "c", 11).is_some(), "the action is undone with its statement");
    delete(&mut txn, "p", 1).unwrap();
    txn.commit().unwrap();
    // A default is an SQL text, which the engine alone cannot evaluate.
    let mut txn = db.begin();
    let (p, row) = (table(&txn, "p"), find(&txn, "p", 2).unwrap());
    let new = arrow_array::RecordBatch::try_from_iter([(
        "id",
        Arc::new(arrow_array::Int64Array::from(vec![3])) as arrow_array::ArrayRef,
    )])
    .unwrap();
    txn.update_batch(&p, &[row], &[0], &new).unwrap();
    assert_eq!(txn.check_statement_end().unwrap_err().sqlstate(), "0A000");
}

#[test]
fn ddl_is_transactional_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = Database::open(&path).unwrap();
    let mut txn = db.begin();
    txn.create_table(keyed("gone")).unwrap();
    assert!(txn.catalog().table("public", "gone").is_ok());
    drop(txn);
    assert!(db.begin().catalog().table("public", "gone").is_err());

    create(&db, keyed("t"));
    let mut txn = db.begin();
    for id in 0..5_000 {
        insert(&mut txn, "t", id, Some(id * 2)).unwrap();
    }
    txn.commit().unwrap();
    db.checkpoint().unwrap();
    let mut txn = db.begin();
    delete(&mut txn, "t", 17).unwrap();
    txn.add_column("public", "t", column("extra", ColumnType::Boolean), |rows| {
        Ok(Arc::new(arrow_array::BooleanArray::from(vec![true; rows.num_rows()])))
    })
    .unwrap();
    txn.drop_column("public", "t", "parent", false).unwrap();
    txn.create_sequence(
        "public",
        SequenceDefinition { id: 0, name: "s".into(), start: 5, increment: 1, min: 1, max: i64::MAX, owner: None },
    )
    .unwrap();
    txn.commit().unwrap().wait().unwrap();
    assert_eq!(db.next_value(db.begin().snapshot(), &db.catalog(), "public", "s").unwrap(), 5);
    db.close().unwrap();
    drop(db);

    let db = Database::open(&path).unwrap();
    let txn = db.begin();
    let t = table(&txn, "t");
    let names: Vec<_> = t.definition.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["id", "text", "extra"]);
    assert!(find(&txn, "t", 17).is_none());
    let mut buffer = RowBuffer::default();
    assert!(txn.read_row(&t, find(&txn, "t", 4_999).unwrap(), &mut buffer).unwrap());
    assert_eq!(buffer.values(), [Value::Int64(4_999), Value::Bytes(b"some longer text"), Value::Bool(true)]);
    t.verify(txn.snapshot());
    assert!(db.next_value(txn.snapshot(), txn.catalog(), "public", "s").unwrap() > 5, "no value is given out twice");
    drop(txn);
    let mut txn = db.begin();
    txn.drop_table("public", "t", false).unwrap();
    txn.commit().unwrap().wait().unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    drop(db);
    assert!(Database::open(&path).unwrap().begin().catalog().table("public", "t").is_err());
}

#[test]
fn an_index_over_a_repeated_column_follows_its_rows() {
    let db = Database::in_memory().unwrap();
    create(&db, keyed("t"));
    let mut txn = db.begin();
    let index = KeyDefinition {
        name: "twice".into(),
        columns: vec![1, 1],
        unique: false,
        primary: false,
        constraint: false,
        ..Default::default()
    };
    txn.create_index("public", "t", index).unwrap();
    insert(&mut txn, "t", 1, Some(10)).unwrap();
    txn.commit().unwrap();
    let old = db.begin();
    let mut txn = db.begin();
    let (t, row) = (table(&txn, "t"), find(&txn, "t", 1).unwrap());
    let new = arrow_array::RecordBatch::try_from_iter([(
        "parent",
        Arc::new(arrow_array::Int64Array::from(vec![20])) as arrow_array::ArrayRef,
    )])
    .unwrap();
    txn.update_batch(&t, &[row], &[1], &new).unwrap();
    txn.commit().unwrap();
    let t = table(&old, "t");
    assert_eq!(old.lookup(&t, &t.indexes[1], &[Value::Int64(10), Value::Int64(10)]).unwrap(), [row]);
}

#[test]
fn a_sequence_used_by_the_transaction_that_made_it_goes_on_after_a_restart() {
    for checkpoint in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let db = Database::open(&path).unwrap();
        let mut txn = db.begin();
        txn.create_sequence(
            "public",
            SequenceDefinition { id: 0, name: "s".into(), start: 1, increment: 1, min: 1, max: i64::MAX, owner: None },
        )
        .unwrap();
        let given_out = db.next_value(txn.snapshot(), txn.catalog(), "public", "s").unwrap();
        if checkpoint {
            db.checkpoint().unwrap();
        }
        txn.commit().unwrap().wait().unwrap();
        db.close().unwrap();
        drop(db);
        let db = Database::open(&path).unwrap();
        let next = db.next_value(db.begin().snapshot(), &db.catalog(), "public", "s").unwrap();
        assert!(next > given_out, "{given_out} is given out twice (checkpoint in between: {checkpoint})");
    }
}

#[test]
fn a_sequence_gives_out_its_values_once_while_its_table_is_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = Database::open(&path).unwrap();
    create(&db, keyed("t"));
    let mut txn = db.begin();
    let owner = Some(("t".into(), "id".into()));
    let definition =
        SequenceDefinition { id: 0, name: "s".into(), start: 1, increment: 1, min: 1, max: i64::MAX, owner };
    txn.create_sequence("public", definition).unwrap();
    txn.commit().unwrap();
    let before = db.catalog();
    let mut given_out = vec![db.next_value(db.begin().snapshot(), &before, "public", "s").unwrap()];
    let mut txn = db.begin();
    txn.rename_table("public", "t", "u").unwrap();
    let after = txn.catalog().clone();
    // Several reservations by both.
    for _ in 0..50 {
        given_out.extend(
            [&before, &after].map(|catalog| db.next_value(db.begin().snapshot(), catalog, "public", "s").unwrap()),
        );
    }
    txn.commit().unwrap().wait().unwrap();
    db.close().unwrap();
    drop((db, before, after));
    let db = Database::open(&path).unwrap();
    given_out.push(db.next_value(db.begin().snapshot(), &db.catalog(), "public", "s").unwrap());
    assert!(given_out.is_sorted_by(|a, b| a < b), "{given_out:?}");
    assert_eq!(db.catalog().sequence("public", "s").unwrap().definition.owner, Some(("u".into(), "id".into())));
}
