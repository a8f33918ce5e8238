//! Constraints between transactions that overlap: each test is one interleaving, played by one
//! thread.

mod common;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use common::{int_column as column, table};
use serac_engine::catalog::definition::*;
use serac_engine::security::{Object, Privilege, Privileges, RoleOptions, Terms};
use serac_engine::{ColumnUpdate, Database, EngineError, IndexAccess, KeyRange, Transaction};
use serac_storage::{RowBuffer, RowId, StorageOptions, Value};
use std::sync::Arc;

fn key(name: &str, columns: &[usize]) -> KeyDefinition {
    KeyDefinition { constraint: true, ..common::key(name, columns, true, false) }
}

/// A table of three numbers, `id` unique.
fn keyed(name: &str) -> TableDefinition {
    let mut definition = TableDefinition::new("public", name, ["id", "parent", "x"].map(column).into());
    definition.keys.push(key(&format!("{name}_key"), &[0]));
    definition
}

fn references(parent: &str, on_delete: ReferentialAction) -> ForeignKeyDefinition {
    ForeignKeyDefinition { on_delete, ..common::references(&format!("{parent}_fkey"), 1, parent) }
}

/// A database whose garbage is collected when the test calls for it.
fn open() -> Database {
    Database::open_with(StorageOptions { gc_threads: 0, freeze_after: None, ..Default::default() }).unwrap()
}

fn create(db: &Database, definitions: impl IntoIterator<Item = TableDefinition>) {
    let mut txn = db.begin();
    definitions.into_iter().for_each(|definition| drop(txn.create_table(definition).unwrap()));
    txn.commit().unwrap();
}

/// A parent `p` and its child `c`, with parents 1 and 2.
fn family(on_delete: ReferentialAction) -> Database {
    let db = open();
    let mut child = keyed("c");
    child.foreign_keys.push(references("p", on_delete));
    create(&db, [keyed("p"), child]);
    let mut txn = db.begin();
    insert(&mut txn, "p", [Some(1), None, None]).unwrap();
    insert(&mut txn, "p", [Some(2), None, None]).unwrap();
    txn.commit().unwrap();
    db
}

fn insert(txn: &mut Transaction, name: &str, row: [Option<i64>; 3]) -> Result<RowId, EngineError> {
    let table = table(txn, name);
    txn.insert(&table, &row.map(|value| value.map_or(Value::Null, Value::Int64)))
}

fn find(txn: &Transaction, name: &str, id: i64) -> Option<RowId> {
    let table = table(txn, name);
    txn.lookup(&table, &table.indexes[0], &[Value::Int64(id)]).unwrap().first().copied()
}

fn delete(txn: &mut Transaction, name: &str, id: i64) -> Result<(), EngineError> {
    let (table, row) = (table(txn, name), find(txn, name, id).expect("the row is there"));
    txn.delete(&table, row)
}

fn update(txn: &mut Transaction, name: &str, id: i64, to: i64) -> Result<(), EngineError> {
    let (table, row) = (table(txn, name), find(txn, name, id).expect("the row is there"));
    let plan = ColumnUpdate::new(txn.catalog(), &table, &[0]);
    txn.update(&plan, row, &[Value::Int64(to)])
}

/// The rows that the transaction sees, by a scan.
fn rows(txn: &Transaction, name: &str) -> Vec<Vec<Option<i64>>> {
    let (table, mut buffer, mut rows) = (table(txn, name), RowBuffer::default(), Vec::new());
    for no in 0..table.data.block_count() {
        let Some(reader) = table.data.read_block(txn.snapshot(), serac_storage::BlockNo(no)) else { continue };
        for &row in reader.row_ids(reader.visible()).values() {
            assert!(txn.read_row(&table, RowId::from_u64(row), &mut buffer).unwrap());
            let number = |value: &Value<'_>| if let Value::Int64(number) = value { Some(*number) } else { None };
            rows.push(buffer.values().iter().map(number).collect());
        }
    }
    rows.sort();
    rows
}

/// Children in `c` without a parent in `p`.
fn orphans(txn: &Transaction) -> Vec<Vec<Option<i64>>> {
    let parents: Vec<_> = rows(txn, "p").into_iter().map(|row| row[0]).collect();
    rows(txn, "c").into_iter().filter(|row| row[1].is_some() && !parents.contains(&row[1])).collect()
}

#[track_caller]
fn assert_conflict<T: std::fmt::Debug>(result: Result<T, EngineError>) {
    assert_eq!(result.expect_err("another transaction is in the way").sqlstate(), "40001");
}

// ---- INSERT … ON CONFLICT

#[test]
fn a_key_that_has_come_since_it_was_looked_for_is_no_duplicate_to_its_arbiter() {
    let db = open();
    let mut definition = keyed("t");
    definition.keys.push(key("t_parent", &[1]));
    create(&db, [definition]);
    let mut txn = db.begin();
    let t = table(&txn, "t");
    let (first, second) = (&*t.indexes[0], &*t.indexes[1]);
    let row = [Value::Int64(1), Value::Int64(2), Value::Null];
    assert_eq!(txn.find_conflict(&t, None, &row).unwrap(), None);
    let mut other = db.begin();
    insert(&mut other, "t", [Some(1), Some(3), None]).unwrap();
    other.commit().unwrap();
    // Only the index that the statement names, or any without a name.
    for (arbiter, sqlstate) in [(None, "40001"), (Some(first), "40001"), (Some(second), "23505")] {
        let before = txn.savepoint();
        let inserted = txn.insert_free_row(&t, arbiter, &row);
        assert_eq!(inserted.expect_err("the other has come first").sqlstate(), sqlstate);
        txn.rollback_to(&before);
    }
    assert_eq!(txn.insert_row(&t, &row).expect_err("it is there").sqlstate(), "23505");
}

// ---- pins of parents

#[test]
fn a_pin_outlives_older_ones_of_the_same_parent() {
    for action in [ReferentialAction::Cascade, ReferentialAction::SetNull, ReferentialAction::SetDefault] {
        let db = family(action);
        let mut first = db.begin();
        insert(&mut first, "c", [Some(10), Some(1), None]).unwrap();
        first.commit().unwrap();
        let mut deleter = db.begin();
        let mut second = db.begin();
        insert(&mut second, "c", [Some(11), Some(1), None]).unwrap();
        second.commit().unwrap();
        // The first child's pin is not needed any more; the deleter needs the second one's.
        db.storage().run_gc();
        assert_conflict(delete(&mut deleter, "p", 1));
        drop(deleter);
        let mut deleter = db.begin();
        delete(&mut deleter, "p", 1).unwrap();
        deleter.commit().unwrap();
        assert!(orphans(&db.begin()).is_empty(), "{action}");
    }
}

#[test]
fn no_pin_is_left_behind() {
    let db = family(ReferentialAction::Cascade);
    let p = table(&db.begin(), "p");
    let mut committed = db.begin();
    insert(&mut committed, "c", [Some(10), Some(1), None]).unwrap();
    let before = committed.savepoint();
    insert(&mut committed, "c", [Some(11), Some(2), None]).unwrap();
    committed.rollback_to(&before);
    assert_eq!(p.pinned_rows(), 1);
    let mut aborted = db.begin();
    insert(&mut aborted, "c", [Some(12), Some(1), None]).unwrap();
    committed.commit().unwrap();
    // Runs the deferred actions of the commit, while the other's pin is there.
    aborted.refresh();
    db.storage().run_gc();
    aborted.rollback();
    db.storage().run_gc();
    assert_eq!(p.pinned_rows(), 0);
}

#[test]
fn children_of_open_transactions_survive_a_rewrite_of_their_parents_table() {
    let db = family(ReferentialAction::Cascade);
    let mut child = db.begin();
    insert(&mut child, "c", [Some(10), Some(1), None]).unwrap();
    let mut ddl = db.begin();
    ddl.set_lock_timeout(std::time::Duration::ZERO);
    let zeros = |rows: &RecordBatch| Ok(Arc::new(Int64Array::from(vec![0; rows.num_rows()])) as ArrayRef);
    let rewritten = ddl.add_column("public", "p", column("y"), zeros).and_then(|()| delete(&mut ddl, "p", 1));
    assert_eq!(rewritten.expect_err("the child's transaction is open").sqlstate(), "55006");
    drop(ddl);
    child.commit().unwrap();
    let mut ddl = db.begin();
    ddl.add_column("public", "p", column("y"), zeros).unwrap();
    delete(&mut ddl, "p", 1).unwrap();
    ddl.commit().unwrap();
    assert!(orphans(&db.begin()).is_empty());
    assert!(rows(&db.begin(), "c").is_empty());
}

#[test]
fn children_are_added_beside_ddl_that_keeps_their_parents() {
    let db = family(ReferentialAction::Cascade);
    let mut ddl = db.begin();
    ddl.create_index("public", "p", KeyDefinition { unique: false, constraint: false, ..key("p_x", &[2]) }).unwrap();
    let mut child = db.begin();
    child.set_lock_timeout(std::time::Duration::ZERO);
    insert(&mut child, "c", [Some(10), Some(1), None]).unwrap();
    ddl.commit().unwrap();
    child.commit().unwrap();
    // A transaction that adds a child with a catalog of before the DDL begins again.
    let mut old = db.begin();
    let mut ddl = db.begin();
    ddl.drop_index("public", "p_x").unwrap();
    ddl.commit().unwrap();
    assert_conflict(insert(&mut old, "c", [Some(11), Some(1), None]));
    assert!(orphans(&db.begin()).is_empty());
}

#[test]
fn a_rewrite_of_the_parents_table_sees_all_children_or_fails() {
    let db = family(ReferentialAction::Cascade);
    let mut ddl = db.begin();
    let mut child = db.begin();
    insert(&mut child, "c", [Some(10), Some(1), None]).unwrap();
    child.commit().unwrap();
    let zeros = |rows: &RecordBatch| Ok(Arc::new(Int64Array::from(vec![0; rows.num_rows()])) as ArrayRef);
    assert_conflict(ddl.add_column("public", "p", column("y"), zeros).and_then(|()| delete(&mut ddl, "p", 1)));
    // Begun again, it sees the child.
    ddl.restart();
    ddl.add_column("public", "p", column("y"), zeros).unwrap();
    delete(&mut ddl, "p", 1).unwrap();
    ddl.commit().unwrap();
    assert!(orphans(&db.begin()).is_empty());
}

#[test]
fn a_write_that_fails_leaves_the_parents_of_earlier_children_where_they_are() {
    let db = family(ReferentialAction::Cascade);
    let mut child = db.begin();
    insert(&mut child, "c", [Some(10), Some(1), None]).unwrap();
    // DDL that keeps the parents' rows goes on beside it, and makes its snapshot's parents too old
    // to be written to.
    let mut ddl = db.begin();
    ddl.create_index("public", "p", KeyDefinition { unique: false, constraint: false, ..key("p_x", &[2]) }).unwrap();
    ddl.commit().unwrap();
    let before = child.savepoint();
    assert_conflict(update(&mut child, "p", 2, 3));
    child.rollback_to(&before);
    // The child that is still there keeps its parent in its place.
    let mut ddl = db.begin();
    ddl.set_lock_timeout(std::time::Duration::ZERO);
    let zeros = |rows: &RecordBatch| Ok(Arc::new(Int64Array::from(vec![0; rows.num_rows()])) as ArrayRef);
    let rewritten = ddl.add_column("public", "p", column("y"), zeros).and_then(|()| {
        ddl.commit()?;
        let mut deleter = db.begin();
        delete(&mut deleter, "p", 1)?;
        deleter.commit()
    });
    child.commit().unwrap();
    assert!(orphans(&db.begin()).is_empty());
    assert_eq!(rewritten.map(drop).expect_err("the child's transaction is open").sqlstate(), "55006");
}

#[test]
fn an_update_made_before_the_children_asks_for_them() {
    let db = open();
    create(&db, [keyed("p")]);
    let mut txn = db.begin();
    insert(&mut txn, "p", [Some(1), None, None]).unwrap();
    let plan = ColumnUpdate::new(txn.catalog(), &table(&txn, "p"), &[0]);
    txn.commit().unwrap();
    let mut child = keyed("c");
    child.foreign_keys.push(references("p", ReferentialAction::NoAction));
    create(&db, [child]);
    let mut txn = db.begin();
    insert(&mut txn, "c", [Some(10), Some(1), None]).unwrap();
    let row = find(&txn, "p", 1).unwrap();
    assert_eq!(txn.update(&plan, row, &[Value::Int64(2)]).unwrap_err().sqlstate(), "23503");
    assert!(orphans(&txn).is_empty());
}

// ---- unique keys

/// The rows with a key of `t`, by the index, as a lookup of a whole key finds them and as a range
/// finds them.
fn lookups(txn: &Transaction, id: i64) -> (usize, usize) {
    let t = table(txn, "t");
    let access = IndexAccess::new(txn.catalog(), &t, &t.indexes[0], &[0]);
    let (key, mut buffer) = ([Value::Int64(id)], RowBuffer::default());
    let by_key = usize::from(txn.get(&access, &key, &mut buffer).unwrap().is_some());
    let mut in_range = 0;
    let range = KeyRange::prefix(&[])
        .from(std::ops::Bound::Included(Value::Int64(id)))
        .to(std::ops::Bound::Included(Value::Int64(id)));
    txn.scan(&access, &range, &mut buffer, |_, _| {
        in_range += 1;
        Ok(std::ops::ControlFlow::Continue(()))
    })
    .unwrap();
    (by_key, in_range)
}

fn one_row() -> Database {
    let db = open();
    create(&db, [keyed("t")]);
    let mut txn = db.begin();
    insert(&mut txn, "t", [Some(1), None, None]).unwrap();
    txn.commit().unwrap();
    db
}

#[test]
fn a_key_that_the_snapshot_sees_is_not_free() {
    for serializable in [false, true] {
        for by_update in [false, true] {
            let db = one_row();
            let mut txn = db.begin();
            txn.set_serializable(serializable);
            insert(&mut txn, "t", [Some(5), None, None]).unwrap();
            let mut other = db.begin();
            if by_update { update(&mut other, "t", 1, 2) } else { delete(&mut other, "t", 1) }.unwrap();
            other.commit().unwrap();
            db.storage().run_gc();
            assert_conflict(insert(&mut txn, "t", [Some(1), None, None]));
            assert_conflict(update(&mut txn, "t", 5, 1));
            let t = table(&txn, "t");
            let batch: Vec<ArrayRef> = (0..3)
                .map(|column| {
                    Arc::new(Int64Array::from_iter((0..2_000).map(|i| (column == 0).then_some(i * 7 + 1)))) as _
                })
                .collect();
            let batch = RecordBatch::try_new(t.data.schema().arrow(), batch).unwrap();
            let before = txn.savepoint();
            assert_conflict(txn.insert_batch(&t, &batch));
            txn.rollback_to(&before);
            assert_conflict(txn.insert_batch(&t, &batch.slice(0, 10)));
            txn.rollback_to(&before);
            let row = [Value::Int64(1), Value::Null, Value::Null];
            assert_conflict(txn.find_conflict(&t, None, &row));
            assert_eq!(lookups(&txn, 1), (1, 1));
            drop(txn);
            // A transaction that does not see the key any more may take it.
            let mut txn = db.begin();
            txn.set_serializable(serializable);
            insert(&mut txn, "t", [Some(1), None, None]).unwrap();
            assert_eq!(lookups(&txn, 1), (1, 1));
            txn.commit().unwrap();
        }
    }
}

#[test]
fn each_statement_of_read_committed_asks_its_own_snapshot() {
    let db = one_row();
    let mut txn = db.begin();
    insert(&mut txn, "t", [Some(5), None, None]).unwrap();
    let mut other = db.begin();
    delete(&mut other, "t", 1).unwrap();
    other.commit().unwrap();
    assert_conflict(insert(&mut txn, "t", [Some(1), None, None]));
    // The statement begun again.
    txn.refresh();
    insert(&mut txn, "t", [Some(1), None, None]).unwrap();
    assert_eq!(lookups(&txn, 1), (1, 1));
    txn.commit().unwrap();
}

#[test]
fn a_transaction_may_use_the_keys_that_it_has_freed_itself() {
    let db = one_row();
    let reader = db.begin();
    let mut txn = db.begin();
    delete(&mut txn, "t", 1).unwrap();
    insert(&mut txn, "t", [Some(1), Some(7), None]).unwrap();
    update(&mut txn, "t", 1, 2).unwrap();
    insert(&mut txn, "t", [Some(1), Some(8), None]).unwrap();
    assert_eq!(insert(&mut txn, "t", [Some(2), None, None]).unwrap_err().sqlstate(), "23505");
    assert_eq!(lookups(&txn, 1), (1, 1));
    txn.commit().unwrap();
    assert_eq!(rows(&reader, "t"), [[Some(1), None, None]]);
    assert_eq!(rows(&db.begin(), "t"), [[Some(1), Some(8), None], [Some(2), Some(7), None]]);
}

#[test]
fn composite_keys_conflict_as_a_whole_and_null_never() {
    let db = open();
    let mut definition = keyed("t");
    definition.keys.push(key("t_pair", &[1, 2]));
    create(&db, [definition]);
    let mut txn = db.begin();
    insert(&mut txn, "t", [Some(1), Some(1), Some(1)]).unwrap();
    insert(&mut txn, "t", [Some(2), Some(2), None]).unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin();
    let mut other = db.begin();
    delete(&mut other, "t", 1).unwrap();
    delete(&mut other, "t", 2).unwrap();
    other.commit().unwrap();
    assert_conflict(insert(&mut txn, "t", [Some(3), Some(1), Some(1)]));
    insert(&mut txn, "t", [Some(4), Some(1), Some(2)]).unwrap();
    insert(&mut txn, "t", [Some(5), Some(2), None]).unwrap();
    insert(&mut txn, "t", [Some(6), Some(2), None]).unwrap();
}

#[test]
fn a_foreign_key_to_a_parent_that_went_is_violated_not_in_conflict() {
    let db = family(ReferentialAction::Cascade);
    let mut txn = db.begin();
    let mut other = db.begin();
    delete(&mut other, "p", 1).unwrap();
    other.commit().unwrap();
    assert_eq!(insert(&mut txn, "c", [Some(10), Some(1), None]).unwrap_err().sqlstate(), "23503");
}

// ---- columns that go

#[test]
fn a_foreign_key_to_the_own_table_follows_its_columns() {
    for names in [["x", "id", "parent"], ["x", "parent", "id"], ["parent", "x", "id"], ["id", "x", "parent"]] {
        let db = open();
        let mut definition = TableDefinition::new("public", "t", names.map(column).into());
        let at = |definition: &TableDefinition, name: &str| definition.column(name).unwrap();
        let (id, parent) = (at(&definition, "id"), at(&definition, "parent"));
        definition.keys.push(key("t_key", &[id]));
        definition.foreign_keys.push(ForeignKeyDefinition {
            columns: vec![parent],
            parent_columns: vec![id],
            ..references("t", ReferentialAction::Cascade)
        });
        create(&db, [definition]);
        let row = |txn: &mut Transaction, id: i64, parent: Option<i64>| {
            let t = table(txn, "t");
            let value = |column: &ColumnDefinition| match column.name.as_str() {
                "id" => Value::Int64(id),
                "parent" => parent.map_or(Value::Null, Value::Int64),
                _ => Value::Null,
            };
            let values: Vec<_> = t.definition.columns.iter().map(value).collect();
            txn.insert(&t, &values)
        };
        let mut txn = db.begin();
        row(&mut txn, 1, None).unwrap();
        row(&mut txn, 2, Some(1)).unwrap();
        txn.commit().unwrap();
        let mut txn = db.begin();
        txn.drop_column("public", "t", "x", false).unwrap();
        txn.check_statement_end().unwrap();
        let t = table(&txn, "t");
        let foreign_key = &t.definition.foreign_keys[0];
        assert_eq!(foreign_key.columns, [at(&t.definition, "parent")]);
        assert_eq!(foreign_key.parent_columns, [at(&t.definition, "id")]);
        txn.commit().unwrap();
        let mut txn = db.begin();
        assert_eq!(row(&mut txn, 3, Some(9)).unwrap_err().sqlstate(), "23503");
        row(&mut txn, 3, Some(2)).unwrap();
        delete(&mut txn, "t", 1).unwrap();
        txn.commit().unwrap();
        assert!(rows(&db.begin(), "t").is_empty(), "the cascade has reached all of them");
    }
}

#[test]
fn a_foreign_key_to_the_own_table_follows_its_name() {
    let db = open();
    let mut own = keyed("p");
    own.foreign_keys.push(references("p", ReferentialAction::NoAction));
    create(&db, [own]);
    let mut txn = db.begin();
    insert(&mut txn, "p", [Some(1), None, None]).unwrap();
    txn.rename_table("public", "p", "q").unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin();
    insert(&mut txn, "q", [Some(2), Some(1), None]).unwrap();
    let before = txn.savepoint();
    assert_eq!(delete(&mut txn, "q", 1).expect_err("it has a child").sqlstate(), "23503");
    txn.rollback_to(&before);
    assert_eq!(insert(&mut txn, "q", [Some(3), Some(4), None]).expect_err("no parent").sqlstate(), "23503");
}

#[test]
fn a_foreign_key_of_another_table_follows_its_parents_columns() {
    let db = open();
    let mut parent = TableDefinition::new("public", "p", ["x", "id", "y"].map(column).into());
    parent.keys.push(key("p_key", &[1]));
    let mut child = keyed("c");
    child
        .foreign_keys
        .push(ForeignKeyDefinition { parent_columns: vec![1], ..references("p", ReferentialAction::Cascade) });
    create(&db, [parent, child]);
    let mut txn = db.begin();
    txn.drop_column("public", "p", "x", false).unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin();
    assert_eq!(insert(&mut txn, "c", [Some(10), Some(1), None]).unwrap_err().sqlstate(), "23503");
    let p = table(&txn, "p");
    txn.insert(&p, &[Value::Int64(1), Value::Null]).unwrap();
    insert(&mut txn, "c", [Some(10), Some(1), None]).unwrap();
    delete(&mut txn, "p", 1).unwrap();
    assert!(rows(&txn, "c").is_empty());
}

#[test]
fn a_foreign_key_keeps_an_index_at_both_ends_when_an_included_column_goes() {
    let db = open();
    let mut parent = keyed("p");
    parent.keys[0].include = vec![2];
    let mut child = keyed("c");
    child.keys.push(KeyDefinition { include: vec![2], unique: false, constraint: false, ..key("c_parent", &[1]) });
    child.foreign_keys.push(references("p", ReferentialAction::Cascade));
    create(&db, [parent, child]);
    let mut txn = db.begin();
    insert(&mut txn, "p", [Some(1), None, None]).unwrap();
    insert(&mut txn, "c", [Some(10), Some(1), None]).unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin();
    // The parent's key would go with it.
    assert_eq!(txn.drop_column("public", "p", "x", false).unwrap_err().sqlstate(), "2BP01");
    drop(txn);
    let mut txn = db.begin();
    txn.drop_column("public", "c", "x", false).unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin();
    let c = table(&txn, "c");
    assert_eq!(txn.insert(&c, &[Value::Int64(11), Value::Int64(9)]).unwrap_err().sqlstate(), "23503");
    txn.insert(&c, &[Value::Int64(11), Value::Int64(1)]).unwrap();
    delete(&mut txn, "p", 1).unwrap();
    assert!(rows(&txn, "c").is_empty());
    txn.commit().unwrap();
    let mut txn = db.begin();
    txn.drop_column("public", "p", "x", true).unwrap();
    txn.commit().unwrap();
    assert!(table(&db.begin(), "c").definition.foreign_keys.is_empty(), "with CASCADE, it goes with its parent's key");
}

#[test]
fn a_foreign_key_does_not_rest_on_a_key_of_another_order() {
    let db = open();
    let mut parent = keyed("p");
    let descending = ColumnOrder { descending: true, nulls_first: true };
    parent.keys.push(KeyDefinition { orders: vec![descending], ..key("p_descending", &[0]) });
    let mut child = keyed("c");
    child.foreign_keys.push(references("p", ReferentialAction::Cascade));
    create(&db, [parent, child]);
    let mut txn = db.begin();
    assert_eq!(txn.drop_constraint("public", "p", "p_key", false).unwrap_err().sqlstate(), "2BP01");
    txn.drop_constraint("public", "p", "p_descending", false).unwrap();
    insert(&mut txn, "p", [Some(1), None, None]).unwrap();
    insert(&mut txn, "c", [Some(10), Some(1), None]).unwrap();
}

#[test]
fn sequences_follow_the_columns_that_own_them() {
    let db = open();
    create(&db, [keyed("t")]);
    let sequence = |name: &str, column: &str| SequenceDefinition {
        id: 0,
        name: name.into(),
        start: 1,
        increment: 1,
        min: 1,
        max: i64::MAX,
        owner: Some(("t".into(), column.into())),
    };
    let mut txn = db.begin();
    txn.create_sequence("public", sequence("of_parent", "parent")).unwrap();
    txn.create_sequence("public", sequence("of_x", "x")).unwrap();
    txn.rename_column("public", "t", "parent", "mother").unwrap();
    let owner = |txn: &Transaction| txn.catalog().sequence("public", "of_parent").unwrap().definition.owner.clone();
    assert_eq!(owner(&txn), Some(("t".into(), "mother".into())));
    txn.drop_column("public", "t", "x", false).unwrap();
    assert!(txn.catalog().sequence("public", "of_x").is_err(), "it goes with its column");
    assert!(txn.catalog().sequence("public", "of_parent").is_ok());
}

// ---- privileges

#[test]
fn truncate_restarts_only_sequences_that_the_role_owns() {
    let db = open();
    create(&db, [keyed("t")]);
    let mut txn = db.begin();
    let definition = SequenceDefinition {
        id: 0,
        name: "s".into(),
        start: 1,
        increment: 1,
        min: 1,
        max: i64::MAX,
        owner: Some(("t".into(), "id".into())),
    };
    txn.create_sequence("public", definition).unwrap();
    let role = txn.create_role("r", &RoleOptions::default()).unwrap();
    let object = Object::relation("public", "t");
    let privileges = Privileges::of(&[Privilege::Truncate]);
    txn.grant(&Terms { object: &object, column: None, privileges, grantees: &[role] }, false).unwrap();
    txn.commit().unwrap();
    assert_eq!(db.next_value(db.begin().snapshot(), &db.catalog(), "public", "s").unwrap(), 1);
    let tables = [("public".to_owned(), "t".to_owned())];
    let mut txn = db.begin();
    txn.set_role(role);
    assert_eq!(txn.truncate(&tables, false, true).unwrap_err().sqlstate(), "42501");
    txn.truncate(&tables, false, false).unwrap();
    txn.commit().unwrap();
    assert_eq!(db.next_value(db.begin().snapshot(), &db.catalog(), "public", "s").unwrap(), 2);
    let mut txn = db.begin();
    txn.truncate(&tables, false, true).unwrap();
    txn.commit().unwrap();
    assert_eq!(db.next_value(db.begin().snapshot(), &db.catalog(), "public", "s").unwrap(), 1);
}

#[test]
fn a_key_that_comes_and_goes_beside_an_old_snapshot_has_few_entries() {
    let db = one_row();
    let mut readers = vec![db.begin()];
    for i in 0..300 {
        let mut txn = db.begin();
        delete(&mut txn, "t", 1).unwrap();
        txn.commit().unwrap();
        let mut txn = db.begin();
        insert(&mut txn, "t", [Some(1), None, Some(i)]).unwrap();
        txn.commit().unwrap();
        if i % 100 == 50 {
            readers.push(db.begin());
        }
    }
    let entries = table(&readers[0], "t").indexes[0].entries.clone();
    assert!(entries.len() < 40, "{} entries", entries.len());
    readers.push(db.begin());
    for (reader, x) in readers.iter().zip([None, Some(50), Some(150), Some(250), Some(299)]) {
        assert_eq!(rows(reader, "t"), [[Some(1), None, x]]);
        assert_eq!(lookups(reader, 1), (1, 1));
    }
    drop(readers);
    db.storage().run_gc();
    assert_eq!(entries.len(), 1);
}

#[test]
fn children_that_come_and_go_beside_an_old_snapshot_leave_few_entries() {
    let db = family(ReferentialAction::NoAction);
    let old = db.begin();
    for i in 0..300 {
        let mut txn = db.begin();
        insert(&mut txn, "c", [Some(i), Some(1), None]).unwrap();
        // Undone, a version stays on its chain until it is collected.
        let savepoint = txn.savepoint();
        delete(&mut txn, "c", i).unwrap();
        txn.rollback_to(&savepoint);
        txn.commit().unwrap();
        let mut txn = db.begin();
        update(&mut txn, "c", i, i + 1_000).unwrap();
        delete(&mut txn, "c", i + 1_000).unwrap();
        txn.commit().unwrap();
        let mut txn = db.begin();
        delete(&mut txn, "p", 1).unwrap();
        txn.rollback();
    }
    let c = table(&old, "c");
    let entries = c.index_on(&[1]).unwrap().entries.len();
    assert!(entries < 40, "{entries} entries");
}

// ---- validation

#[test]
fn validation_looks_at_a_bounded_number_of_entries() {
    let db = open();
    create(&db, [keyed("t"), keyed("u")]);
    let mut txn = db.begin();
    for id in 0..4_000 {
        insert(&mut txn, "t", [Some(id), None, None]).unwrap();
    }
    txn.commit().unwrap();
    // Unchanged ranges of a table with a change elsewhere. All are within the limit of one range.
    for (ranges, committed) in [(4, true), (5, false)] {
        let mut reader = db.begin();
        reader.set_serializable(true);
        let t = table(&reader, "t");
        let access = IndexAccess::new(reader.catalog(), &t, &t.indexes[0], &[0]);
        let range = KeyRange::prefix(&[]).to(std::ops::Bound::Included(Value::Int64(3_999)));
        for _ in 0..ranges {
            let visit = |_, _: &RowBuffer| Ok(std::ops::ControlFlow::Continue(()));
            reader.scan(&access, &range, &mut RowBuffer::default(), visit).unwrap();
        }
        insert(&mut reader, "u", [Some(ranges), None, None]).unwrap();
        let mut writer = db.begin();
        insert(&mut writer, "t", [Some(5_000 + ranges), None, None]).unwrap();
        writer.commit().unwrap();
        assert_eq!(reader.commit().is_ok(), committed, "{ranges} ranges");
    }
}

#[test]
fn nobody_writes_to_a_table_as_it_was_before_its_indexes_were_made_anew() {
    let index = || KeyDefinition { unique: false, constraint: false, ..key("p_x", &[2]) };
    let row = |id: i64| [Value::Int64(id), Value::Null, Value::Int64(id)];
    let found = |txn: &Transaction, id: i64| {
        let p = table(txn, "p");
        let by_x = p.indexes.iter().find(|index| index.definition.name == "p_x").unwrap();
        txn.lookup(&p, by_x, &[Value::Int64(id)]).unwrap().len()
    };
    let db = family(ReferentialAction::NoAction);
    let mut txn = db.begin();
    txn.create_index("public", "p", index()).unwrap();
    txn.commit().unwrap();
    let old = table(&db.begin(), "p");
    // The same definition, another index.
    let mut txn = db.begin();
    txn.drop_index("public", "p_x").unwrap();
    txn.create_index("public", "p", index()).unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin();
    assert_conflict(txn.insert(&old, &row(5)));
    // The same after it has written to the table as it is.
    let p = table(&txn, "p");
    txn.insert(&p, &row(6)).unwrap();
    assert_conflict(txn.insert(&old, &row(7)));
    txn.commit().unwrap();
    // The same for its own changes.
    let mut txn = db.begin();
    txn.insert(&p, &row(8)).unwrap();
    txn.drop_index("public", "p_x").unwrap();
    txn.create_index("public", "p", index()).unwrap();
    assert_conflict(txn.insert(&p, &row(9)));
    let p = table(&txn, "p");
    txn.insert(&p, &row(10)).unwrap();
    txn.commit().unwrap();
    let txn = db.begin();
    assert_eq!([5, 6, 7, 8, 9, 10].map(|id| found(&txn, id)), [0, 1, 0, 1, 0, 1]);
    table(&txn, "p").verify(txn.snapshot());
}
