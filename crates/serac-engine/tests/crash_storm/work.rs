//! The work of the child process until it is killed: writers, DDL, checkpoints, compaction and
//! freezing beside each other. Each durable transaction is reported as a line "ack thread number".

use crate::schema::*;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serac_engine::catalog::definition::BitmapDefinition;
use serac_engine::security::{Object, Privilege, Privileges, RoleId, RoleOptions, Terms};
use serac_engine::{Database, EngineError, Result, Table, Transaction};
use serac_storage::{ColumnType, RowId, StorageOptions, Value};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Small log segments, so that checkpoints can drop segments.
pub fn options(path: &Path) -> StorageOptions {
    StorageOptions { path: Some(path.to_owned()), log_segment_bytes: 1 << 18, ..Default::default() }
}

/// Works until the process is killed.
pub fn run(path: &Path, seed: u64) {
    let db = Database::open_with(options(path)).unwrap();
    create(&db).unwrap();
    let last: Vec<i64> = {
        let txn = db.begin();
        let ledger = scan(&txn, &table(&txn, "ledger"));
        let last = |thread| ledger.values().filter(|row| row[0].int() == thread).map(|row| row[1].int()).max();
        (0..=DDL_THREAD).map(|thread| last(thread).unwrap_or(-1)).collect()
    };
    std::thread::scope(|scope| {
        for (thread, last) in (0..).zip(last) {
            let db = &db;
            let mut rng = StdRng::seed_from_u64(seed.wrapping_add(thread as u64));
            let work = move || {
                for number in last + 1.. {
                    // Until it commits: another transaction may have been faster.
                    while !attempt(db, thread, number, &mut rng) {}
                    acknowledge(thread, number);
                }
            };
            scope.spawn(move || end_process_on_panic(work));
        }
        let db = &db;
        scope.spawn(move || {
            end_process_on_panic(|| {
                loop {
                    std::thread::sleep(Duration::from_millis(20));
                    db.checkpoint().unwrap();
                }
            })
        });
        scope.spawn(move || {
            end_process_on_panic(|| {
                loop {
                    std::thread::sleep(Duration::from_millis(5));
                    for table in db.catalog().tables() {
                        db.storage().freeze_table(&table.data, Duration::from_millis(1));
                    }
                }
            })
        });
    });
}

/// Ends the process if `work` panics, because the other threads would work on for ever.
fn end_process_on_panic(work: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
        std::process::exit(1);
    }
}

/// One write of one line: it arrives whole or not at all.
fn acknowledge(thread: i64, number: i64) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("ack {thread} {number}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Whether the transaction is durable. Conflicts with other transactions are the only failures that
/// may happen.
fn attempt(db: &Database, thread: i64, number: i64, rng: &mut StdRng) -> bool {
    let with_writers_tables = thread == DDL_THREAD && rng.random_bool(0.3);
    let mut txn = db.begin();
    let work = match thread {
        DDL_THREAD => change_definitions(&mut txn, with_writers_tables, rng.random()),
        _ => change_rows(db, &mut txn, rng),
    };
    let result = work.and_then(|what| {
        let ledger = table(&txn, "ledger");
        insert(&mut txn, &ledger, vec![Datum::Int(thread), Datum::Int(number), Datum::Text(what)])?;
        if rng.random_bool(0.1) {
            return Ok(None); // rolled back
        }
        Ok(Some(txn.commit()?))
    });
    match result {
        Ok(Some(ticket)) => {
            ticket.wait().unwrap();
            true
        }
        Ok(None) => false,
        Err(error) if ["40001", "55006"].contains(&error.sqlstate()) => false,
        Err(error) => panic!("thread {thread}, transaction {number}: {error} {:?}", error.detail()),
    }
}

/// Inserts a row; columns that were added since get NULL.
fn insert(txn: &mut Transaction, table: &Arc<Table>, mut row: Vec<Datum>) -> Result<RowId> {
    row.resize(table.definition.columns.len(), Datum::Null);
    let id = txn.insert_row(table, &row.iter().map(Datum::value).collect::<Vec<_>>())?;
    txn.check_statement_end()?;
    Ok(id)
}

fn code(id: i64, version: i64) -> Datum {
    Datum::Text(format!("code {version} of parent {id}"))
}

fn insert_children(db: &Database, txn: &mut Transaction, parent: i64, count: i64) -> Result<()> {
    let table = table(txn, "child");
    for _ in 0..count {
        let id = db.next_value(txn.snapshot(), txn.catalog(), SCHEMA, "child_id")?;
        let text = Datum::Text(format!("a child of {parent} with a text that lives in the heap"));
        insert(txn, &table, vec![Datum::Int(id), Datum::Int(parent), text])?;
    }
    Ok(())
}

/// A writer's transaction. Returns the text for the ledger.
fn change_rows(db: &Database, txn: &mut Transaction, rng: &mut StdRng) -> Result<String> {
    let parents = table(txn, "parent");
    let by_id = &parents.indexes[0];
    if rng.random_bool(0.05) {
        violate_constraints(txn, rng)?;
    }
    let newest = db.next_value(txn.snapshot(), txn.catalog(), SCHEMA, "parent_id")?;
    let chosen = rng.random_range(newest - 40..newest);
    let found = txn.lookup(&parents, by_id, &[Value::Int64(chosen)]).unwrap().first().copied();
    let Some(row) = found.filter(|_| rng.random_bool(0.6)) else {
        let children = rng.random_range(0..4);
        let row = vec![Datum::Int(newest), code(newest, 1), Datum::Int(1), Datum::Int(children)];
        insert(txn, &parents, row)?;
        insert_children(db, txn, newest, children)?;
        return Ok(format!("{newest} 1 {children}"));
    };
    let old = read(txn, &parents, row).expect("the index found it");
    let version = old[2].int() + 1;
    if rng.random_bool(0.3) {
        let children = table(txn, "child");
        let rows = txn
            .lookup(&children, children.index_on(&[1]).expect("the foreign key's"), &[Value::Int64(chosen)])
            .unwrap();
        txn.delete_batch(&children, &rows)?;
        txn.delete_batch(&parents, &[row])?;
        txn.check_statement_end()?;
        return Ok(format!("{chosen} {version} gone"));
    }
    let children = old[3].int() + 1;
    let new = RecordBatch::try_from_iter([
        ("code", Arc::new(StringViewArray::from_iter_values([code(chosen, version).text()])) as ArrayRef),
        ("version", Arc::new(Int64Array::from(vec![version])) as ArrayRef),
        ("children", Arc::new(Int64Array::from(vec![children])) as ArrayRef),
    ])
    .expect("three columns of one row");
    txn.update_batch(&parents, &[row], &[1, 2, 3], &new)?;
    txn.check_statement_end()?;
    insert_children(db, txn, chosen, 1)?;
    Ok(format!("{chosen} {version} {children}"))
}

/// Statements that must not succeed, undone again by a savepoint.
fn violate_constraints(txn: &mut Transaction, rng: &mut StdRng) -> Result<()> {
    let (parents, children) = (table(txn, "parent"), table(txn, "child"));
    let rows: Vec<_> = scan(txn, &parents).into_iter().collect();
    let Some((row, some)) = rows.choose(rng) else { return Ok(()) };
    // Keeps others from changing it: uniqueness is judged by the newest rows, not by the snapshot.
    let same = RecordBatch::try_from_iter([("children", Arc::new(Int64Array::from(vec![some[3].int()])) as ArrayRef)])
        .expect("a column of one row");
    txn.update_batch(&parents, &[*row], &[3], &same)?;
    let attempts = [
        ("23505", &parents, vec![some[0].clone(), Datum::Null, Datum::Int(0), Datum::Int(0)]),
        ("23505", &parents, vec![Datum::Int(-1), some[1].clone(), Datum::Int(0), Datum::Int(0)]),
        ("23503", &children, vec![Datum::Int(-1), Datum::Int(-1), Datum::Null]),
        ("23502", &children, vec![Datum::Null, Datum::Int(-1), Datum::Null]),
    ];
    for (expected, table, row) in attempts {
        let before = txn.savepoint();
        match insert(txn, table, row.clone()) {
            Ok(_) => panic!("{row:?} went into {}", table.name()),
            Err(error) if error.sqlstate() == expected => txn.rollback_to(&before),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Rows for a scratch table: an id, a number, a unique text.
fn scratch_rows(count: i64) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Utf8View, true),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..count)),
        Arc::new(Int64Array::from_iter((0..count).map(|i| (i % 5 > 0).then_some(i % 7)))),
        Arc::new(StringViewArray::from_iter_values((0..count).map(|i| format!("the unique text of row {i}")))),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).expect("columns of one length")
}

/// A DDL transaction of a few steps. Returns the description of the catalog afterwards.
fn change_definitions(txn: &mut Transaction, with_writers_tables: bool, seed: u64) -> Result<String> {
    loop {
        let mut rng = StdRng::seed_from_u64(seed);
        let steps = rng.random_range(1..4);
        match (0..steps).try_for_each(|_| change_a_definition(txn, with_writers_tables, &mut rng)) {
            // Writers were faster; those whose table is locked by now cannot be again.
            Err(error) if error.sqlstate() == "40001" => txn.restart(),
            result => return result.map(|()| describe(txn)),
        }
    }
}

fn change_a_definition(txn: &mut Transaction, with_writers_tables: bool, rng: &mut StdRng) -> Result<()> {
    let name: u32 = rng.random();
    let scratch: Vec<Arc<Table>> =
        txn.catalog().tables().filter(|table| table.name().starts_with(SCRATCH)).cloned().collect();
    let of_notes = |table: &&Arc<Table>| !table.definition.foreign_keys.is_empty();
    let action = rng.random_range(0..14);
    if scratch.len() < 3 || (action == 0 && scratch.len() < 12) {
        return create_scratch(txn, name, rng);
    }
    let table = if with_writers_tables {
        table(txn, ["parent", "child"].choose(rng).expect("two"))
    } else {
        scratch.choose(rng).expect("three at least").clone()
    };
    let (definition, own) = (&table.definition, table.name().starts_with(SCRATCH));
    let extra = definition.columns.iter().find(|column| column.name.starts_with("extra"));
    match action {
        0 | 1 => {
            // Tables that reference others go first.
            if let Some(gone) = scratch.iter().find(of_notes).or(scratch.first()) {
                txn.drop_table(SCHEMA, gone.name(), rng.random())?;
            }
        }
        2 | 3 => {
            if let Some(column) = extra {
                txn.drop_column(SCHEMA, table.name(), &column.name, true)?;
            } else {
                let fill = |rows: &RecordBatch| Ok(Arc::new(Int64Array::from(vec![7; rows.num_rows()])) as ArrayRef);
                txn.add_column(SCHEMA, table.name(), column(&format!("extra{name}"), ColumnType::Int64), fill)?;
            }
        }
        4 if rng.random() => match definition.bitmaps.first() {
            Some(bitmap) => txn.drop_index(SCHEMA, &bitmap.name)?,
            None => {
                let bitmap = BitmapDefinition { name: format!("bitmap{name}"), column: rng.random_range(0..2) };
                txn.create_bitmap_index(SCHEMA, table.name(), bitmap)?;
            }
        },
        4 | 5 => match definition.keys.iter().find(|key| !key.constraint && key.name.starts_with("idx")) {
            Some(index) => txn.drop_index(SCHEMA, &index.name)?,
            None => {
                let columns: &[usize] = if rng.random() { &[1] } else { &[1, 0] };
                txn.create_index(SCHEMA, table.name(), key(&format!("idx{name}"), columns, columns.len() == 2, false))?;
            }
        },
        6 if own => txn.rename_table(SCHEMA, table.name(), &format!("{SCRATCH}{name}"))?,
        7 => {
            if let Some(column) = extra {
                txn.rename_column(SCHEMA, table.name(), &column.name, &format!("extra{name}"))?;
            }
        }
        8 => {
            if let Some(notes) = scratch.iter().find(of_notes) {
                txn.truncate(&[(SCHEMA.into(), notes.name().into())], false, false)?;
            }
        }
        9 => {
            let schema = txn.catalog().schema(SCHEMA)?;
            match schema.sequences.keys().find(|name| name.starts_with("seq")).cloned() {
                Some(old) => txn.drop_sequence(SCHEMA, &old)?,
                None => txn.create_sequence(SCHEMA, sequence(&format!("seq{name}")))?,
            }
        }
        11.. => change_roles(txn, &table, name, rng)?,
        // Rows of a scratch table change together with definitions.
        _ if own => {
            let rows: Vec<_> = scan(txn, &table).into_keys().collect();
            if let Some(row) = rows.choose(rng) {
                // A row that a note refers to stays; the statement is undone.
                let before = txn.savepoint();
                match txn.delete_batch(&table, &[*row]).and_then(|()| txn.check_statement_end()) {
                    Err(EngineError::ForeignKey { .. }) => txn.rollback_to(&before),
                    other => other?,
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Roles come and go, get privileges on tables and columns, and own tables.
fn change_roles(txn: &mut Transaction, table: &Table, name: u32, rng: &mut StdRng) -> Result<()> {
    let security = txn.catalog().security.clone();
    let roles: Vec<_> = security.roles().filter(|role| !role.superuser && !role.id.is_predefined()).collect();
    let (Some(role), true) = (roles.choose(rng), roles.len() > 2) else {
        let options =
            RoleOptions { login: Some(rng.random()), connection_limit: Some(Some(name)), ..Default::default() };
        return txn.create_role(&format!("role{name}"), &options).map(|_| ());
    };
    let object = Object::relation(SCHEMA, table.name());
    let column = rng.random::<bool>().then(|| table.definition.columns[0].name.as_str());
    let privileges = Privileges::of(&[Privilege::Select, Privilege::Update]);
    let terms = Terms { object: &object, column, privileges, grantees: &[role.id] };
    match rng.random_range(0..6) {
        0 => {
            for owned in security.owned_by(role.id) {
                txn.set_owner(owned, RoleId::BOOTSTRAP)?;
            }
            txn.drop_privileges_of(role.id)?;
            txn.drop_role(&role.name)
        }
        1 => txn.set_owner(&object, role.id),
        2 => txn.revoke(&terms, false, true),
        3 => match txn.grant_role(&role.name, &roles.choose(rng).expect("three").name, rng.random()) {
            Err(EngineError::InvalidGrant(_)) => Ok(()),
            result => result,
        },
        _ => txn.grant(&terms, rng.random()),
    }
}

/// A table, and one of notes that refer to its rows; filled row by row or in bulk.
fn create_scratch(txn: &mut Transaction, name: u32, rng: &mut StdRng) -> Result<()> {
    let (int, text) = (ColumnType::Int64, ColumnType::Utf8);
    let (main, notes) = (format!("{SCRATCH}{name}"), format!("{SCRATCH}{name}_notes"));
    let mut definition_of_main = definition(&main, &[("id", int), ("a", int), ("b", text)], &[0]);
    definition_of_main.keys.push(key(&format!("{main}_b_key"), &[2], true, false));
    let main = txn.create_table(definition_of_main)?;
    let count = [3, 50, 1_500][rng.random_range(0..3)];
    txn.insert_batch(&main, &scratch_rows(count))?;
    let mut definition_of_notes = definition(&notes, &[("id", int), ("of", int), ("text", text)], &[0]);
    definition_of_notes.foreign_keys.push(references(&format!("{notes}_fkey"), 1, main.name()));
    let notes = txn.create_table(definition_of_notes)?;
    for id in 0..rng.random_range(0..5) {
        insert(txn, &notes, vec![Datum::Int(id), Datum::Int(id % count), Datum::Text("a note".into())])?;
    }
    txn.check_statement_end()
}
