//! Definitions that change beside transactions which write: nothing that was committed is lost,
//! whoever comes first.

mod common;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use common::{int_column as column, table};
use serac_engine::catalog::definition::*;
use serac_engine::{Database, EngineError, Transaction};
use serac_storage::{RowId, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn key(name: &str, column: usize, primary: bool) -> KeyDefinition {
    common::key(name, &[column], primary, primary)
}

fn definition(name: &str) -> TableDefinition {
    let mut definition = TableDefinition::new("public", name, vec![column("id"), column("parent")]);
    definition.keys.push(key(&format!("{name}_pkey"), 0, true));
    definition
}

fn create(db: &Database, definition: TableDefinition) {
    let mut txn = db.begin();
    txn.create_table(definition).unwrap();
    txn.commit().unwrap();
}

fn insert(txn: &mut Transaction, name: &str, id: i64) -> Result<RowId, EngineError> {
    let table = table(txn, name);
    let mut row = vec![Value::Null; table.definition.columns.len()];
    row[0] = Value::Int64(id);
    row[1] = Value::Int64(id);
    let row = txn.insert_row(&table, &row)?;
    txn.check_statement_end()?;
    Ok(row)
}

fn committed(db: &Database, name: &str, id: i64) {
    let mut txn = db.begin();
    insert(&mut txn, name, id).unwrap();
    txn.commit().unwrap();
}

fn find(txn: &Transaction, name: &str, id: i64) -> Option<RowId> {
    let table = table(txn, name);
    txn.lookup(&table, &table.indexes[0], &[Value::Int64(id)]).unwrap().first().copied()
}

fn sqlstate<T: std::fmt::Debug>(result: Result<T, EngineError>) -> &'static str {
    result.expect_err("it cannot succeed").sqlstate()
}

fn add_column(txn: &mut Transaction, name: &str) -> Result<(), EngineError> {
    let fill = |rows: &RecordBatch| Ok(Arc::new(Int64Array::from(vec![7; rows.num_rows()])) as ArrayRef);
    txn.add_column("public", name, column("extra"), fill)
}

type Change = fn(&mut Transaction) -> Result<(), EngineError>;

#[test]
fn a_change_that_rests_on_rows_rests_on_all_of_them() {
    let changes: [Change; 3] = [
        |txn| add_column(txn, "t"),
        |txn| txn.drop_column("public", "t", "other", false),
        |txn| txn.create_index("public", "t", key("t_parent", 1, false)),
    ];
    for change in changes {
        let db = Database::in_memory().unwrap();
        let mut with_other = definition("t");
        with_other.columns.push(column("other"));
        create(&db, with_other);
        committed(&db, "t", 1);
        let mut ddl = db.begin();
        committed(&db, "t", 2);
        let before = ddl.savepoint();
        assert_eq!(sqlstate(change(&mut ddl)), "40001", "it does not see row 2");
        ddl.rollback_to(&before);
        assert_eq!(sqlstate(change(&mut ddl)), "40001", "nor does it at the second attempt");
        // It still holds the lock, so nobody can be faster once more.
        assert_eq!(sqlstate(insert(&mut db.begin(), "t", 3)), "55006");
        ddl.restart();
        change(&mut ddl).unwrap();
        ddl.commit().unwrap();
        committed(&db, "t", 3);
        let txn = db.begin();
        let t = table(&txn, "t");
        t.verify(txn.snapshot());
        for id in 1..=3 {
            let row = find(&txn, "t", id).unwrap_or_else(|| panic!("row {id} is lost"));
            if let Some(index) = t.indexes.get(1) {
                assert_eq!(txn.lookup(&t, index, &[Value::Int64(id)]).unwrap(), [row]);
            }
        }
    }
}

#[test]
fn a_writer_does_not_write_to_what_has_been_replaced() {
    let db = Database::in_memory().unwrap();
    create(&db, definition("t"));
    let mut writer = db.begin();
    let mut ddl = db.begin();
    add_column(&mut ddl, "t").unwrap();
    ddl.commit().unwrap();
    let before = writer.savepoint();
    for _ in 0..2 {
        assert_eq!(sqlstate(insert(&mut writer, "t", 1)), "40001");
        writer.rollback_to(&before);
    }
    writer.restart();
    insert(&mut writer, "t", 1).unwrap();
    writer.commit().unwrap();
    assert!(find(&db.begin(), "t", 1).is_some());
}

#[test]
fn writers_that_overlap_do_not_keep_a_change_waiting() {
    let db = Database::in_memory().unwrap();
    create(&db, definition("t"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // At any time some of them hold the lock.
        for writer in 0..4 {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let mut txn = db.begin();
                    match insert(&mut txn, "t", 4 * n + writer) {
                        Ok(_) => {
                            std::thread::sleep(Duration::from_millis(20 + 3 * writer as u64));
                            txn.commit().unwrap();
                        }
                        Err(error) => assert_eq!(error.sqlstate(), "40001"),
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        let results: Vec<_> = (0..5)
            .map(|i| {
                let mut txn = db.begin();
                let index =
                    |txn: &mut Transaction| txn.create_index("public", "t", key(&format!("index{i}"), 1, false));
                if index(&mut txn).is_err() {
                    txn.restart();
                    index(&mut txn)?;
                }
                txn.commit()
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| drop(result.unwrap()));
    });
    let txn = db.begin();
    table(&txn, "t").verify(txn.snapshot());
}

#[test]
fn no_version_of_the_catalog_is_lost() {
    let db = Database::in_memory().unwrap();
    let mut late = db.begin();
    create(&db, definition("first"));
    let before = late.savepoint();
    for _ in 0..2 {
        assert_eq!(sqlstate(late.create_table(definition("first"))), "40001", "the name is taken meanwhile");
        late.rollback_to(&before);
    }
    late.create_table(definition("second")).unwrap();
    late.commit().unwrap();
    let names: Vec<String> = db.catalog().tables().map(|table| table.name().to_owned()).collect();
    assert_eq!(names, ["first", "second"]);
}

#[test]
fn a_child_does_not_find_its_parent_in_data_that_has_been_replaced() {
    let db = Database::in_memory().unwrap();
    create(&db, definition("p"));
    let mut child = definition("c");
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
    committed(&db, "p", 1);
    let mut writer = db.begin();
    let mut ddl = db.begin();
    add_column(&mut ddl, "p").unwrap();
    ddl.commit().unwrap();
    let mut deleter = db.begin();
    let (p, row) = (table(&deleter, "p"), find(&deleter, "p", 1).unwrap());
    deleter.delete_batch(&p, &[row]).unwrap();
    deleter.check_statement_end().unwrap();
    deleter.commit().unwrap();
    assert_eq!(sqlstate(insert(&mut writer, "c", 1)), "40001");
    writer.restart();
    assert_eq!(sqlstate(insert(&mut writer, "c", 1)), "23503");
}

#[test]
fn the_freeze_format_of_a_table_is_transactional_and_comes_back() {
    use serac_storage::FreezeFormat::{Dictionary, Never, Utf8, View};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = Database::open(&path).unwrap();
    create(&db, TableDefinition { freeze_format: Dictionary, ..definition("a") });
    create(&db, definition("b"));
    create(&db, definition("c"));
    let formats = |db: &Database| {
        let txn = db.begin();
        ["a", "b", "c"].map(|name| {
            let table = table(&txn, name);
            assert_eq!(table.data.freeze_format(), table.definition.freeze_format);
            table.definition.freeze_format
        })
    };
    assert_eq!(formats(&db), [Dictionary, View, View]);
    let mut txn = db.begin();
    txn.set_freeze_format("public", "b", Utf8).unwrap();
    txn.set_freeze_format("public", "c", Never).unwrap();
    assert_eq!(db.catalog().table("public", "b").unwrap().data.freeze_format(), View, "not before the commit");
    let savepoint = txn.savepoint();
    txn.set_freeze_format("public", "a", Never).unwrap();
    txn.rollback_to(&savepoint);
    txn.commit().unwrap();
    assert_eq!(formats(&db), [Dictionary, Utf8, Never]);
    db.checkpoint().unwrap();
    let mut txn = db.begin();
    txn.set_freeze_format("public", "c", View).unwrap();
    txn.truncate(&[("public".into(), "b".into())], false, false).unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
    drop(db);
    let db = Database::open(&path).unwrap();
    assert_eq!(formats(&db), [Dictionary, Utf8, View]);
}
