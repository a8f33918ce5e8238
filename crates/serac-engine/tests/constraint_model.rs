//! Random interleavings of transactions on tables with unique keys and foreign keys of every
//! referential action.
//!
//! One thread plays several open transactions of all levels of isolation, one statement at a time,
//! with savepoints, DDL that rewrites parents, compaction and garbage collection in between. A seed
//! chooses all steps, the tables, the number of keys, and how often each kind of statement comes.
//! So each run stresses different statements. The oracle reads tables by scans. No snapshot has two
//! rows with the same key, no committed state has a child without its parent, and indexes find the
//! rows that scans find. A failure prints its seed and the step; `SERAC_SEED=n` replays one seed
//! and tells each step, `SERAC_STRESS=1` runs many.

mod common;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use common::{int_column as column, table};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serac_engine::catalog::definition::*;
use serac_engine::{ColumnUpdate, Database, EngineError, IndexAccess, Savepoint, Table, Transaction};
use serac_storage::freeze::compact::selection::CompactionGroups;
use serac_storage::{BlockNo, RowBuffer, RowId, StorageOptions, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The upper limit of the ids of parents, so that transactions meet. In some runs it holds for the
/// ids of other tables, too.
const MOST_IDS: i64 = 6;
const MOST_CHILD_IDS: i64 = 60;
const SLOTS: usize = 4;
const STEPS: u32 = 400;
const ACTIONS: [ReferentialAction; 5] = [
    ReferentialAction::NoAction,
    ReferentialAction::Restrict,
    ReferentialAction::Cascade,
    ReferentialAction::SetNull,
    ReferentialAction::SetDefault,
];
/// A parent, a table that is its own parent, children of the parent, and a grandchild.
const TABLES: [&str; 8] = ["p", "s", "c0", "c1", "c2", "c3", "c4", "g"];

/// (extra, id, parent, a, b) with unique keys id and (a, b).
fn definition(name: &str) -> TableDefinition {
    let mut definition = TableDefinition::new("public", name, ["extra", "id", "parent", "a", "b"].map(column).into());
    let key = |name: String, columns: &[usize]| KeyDefinition {
        name,
        columns: columns.into(),
        unique: true,
        constraint: true,
        ..Default::default()
    };
    definition.keys = vec![key(format!("{name}_id"), &[1]), key(format!("{name}_pair"), &[3, 4])];
    definition
}

fn references(child: &mut TableDefinition, parent: &str, on_delete: ReferentialAction, on_update: ReferentialAction) {
    let name = format!("{}_{parent}", child.name);
    child.foreign_keys.push(ForeignKeyDefinition {
        parent_columns: vec![1],
        on_delete,
        on_update,
        ..common::references(&name, 2, parent)
    });
}

fn open(tables: &[&str]) -> Database {
    let options = StorageOptions {
        gc_threads: 0,
        freeze_after: None,
        compaction: CompactionGroups::default(),
        ..Default::default()
    };
    let db = Database::open_with(options).unwrap();
    let mut txn = db.begin();
    for &name in tables {
        let mut definition = definition(name);
        match name {
            "p" => {}
            "s" => references(&mut definition, "s", ReferentialAction::Cascade, ReferentialAction::Cascade),
            "g" => references(&mut definition, "c2", ReferentialAction::SetNull, ReferentialAction::Cascade),
            child => {
                let at = usize::from(child.as_bytes()[1] - b'0');
                references(&mut definition, "p", ACTIONS[at], ACTIONS[(at + 2) % ACTIONS.len()]);
            }
        }
        txn.create_table(definition).unwrap();
    }
    txn.commit().unwrap();
    db
}

type Row = BTreeMap<String, Option<i64>>;

/// The rows of a table that the transaction sees, by a scan.
fn rows(txn: &Transaction, table: &Table) -> Vec<(RowId, Row)> {
    let (mut buffer, mut rows) = (RowBuffer::default(), Vec::new());
    for no in 0..table.data.block_count() {
        let Some(reader) = table.data.read_block(txn.snapshot(), BlockNo(no)) else { continue };
        for &id in reader.row_ids(reader.visible()).values() {
            let id = RowId::from_u64(id);
            assert!(txn.read_row(table, id, &mut buffer).unwrap(), "a visible row can be read");
            let number = |value: Value<'_>| if let Value::Int64(number) = value { Some(number) } else { None };
            let values = buffer.values().into_iter().map(number);
            rows.push((id, table.definition.columns.iter().map(|c| c.name.clone()).zip(values).collect()));
        }
    }
    rows
}

/// Checks unique keys and indexes of a table in a snapshot.
fn check_keys(txn: &Transaction, name: &str) {
    let table = table(txn, name);
    let rows = rows(txn, &table);
    let mut seen = BTreeSet::new();
    for (_, row) in &rows {
        let pair = (row["a"], row["b"]);
        let twice = |key: String| format!("{name} has {key} twice in one snapshot");
        assert!(row["id"].is_none_or(|id| seen.insert((id, None))), "{}", twice(format!("id {:?}", row["id"])));
        let unique = pair.0.zip(pair.1).is_none_or(|(a, b)| seen.insert((a, Some(b))));
        assert!(unique, "{}", twice(format!("pair {pair:?}")));
    }
    let index = table.indexes.iter().find(|index| index.definition.name == format!("{name}_id")).unwrap();
    let access = IndexAccess::new(txn.catalog(), &table, index, &[]);
    for id in (0..MOST_IDS).chain(rows.iter().filter_map(|(_, row)| row["id"])) {
        let expected: Vec<RowId> = rows.iter().filter(|(_, row)| row["id"] == Some(id)).map(|(id, _)| *id).collect();
        let mut found = txn.lookup(&table, index, &[Value::Int64(id)]).unwrap();
        found.sort();
        assert_eq!(found, expected, "the index of {name} finds what a scan finds for {id}");
        let first = txn.get(&access, &[Value::Int64(id)], &mut RowBuffer::default()).unwrap();
        assert_eq!(first, expected.first().copied(), "a lookup of {id} in {name}");
    }
}

/// Checks the state that a new transaction sees.
fn check_committed(txn: &Transaction, tables: &[&str]) {
    for &name in tables {
        check_keys(txn, name);
        let table = table(txn, name);
        for foreign_key in &table.definition.foreign_keys {
            let parent = self::table(txn, &foreign_key.parent_table);
            let parents: BTreeSet<_> = rows(txn, &parent).into_iter().map(|(_, row)| row["id"]).collect();
            for (_, row) in rows(txn, &table) {
                let has_parent = row["parent"].is_none() || parents.contains(&row["parent"]);
                assert!(has_parent, "{name} has an orphan: {row:?}");
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

const LEVELS: [Level; 3] = [Level::ReadCommitted, Level::RepeatableRead, Level::Serializable];

struct Open {
    txn: Transaction,
    level: Level,
    savepoints: Vec<Savepoint>,
}

/// Kinds of statements.
const KINDS: usize = 10;
const DELETE: usize = 6;
const LOCK: usize = 8;
const DDL: usize = 9;

struct World {
    db: Database,
    tables: Vec<&'static str>,
    /// The smallest share of the statements that are about the parent.
    parents: f64,
    ids: i64,
    child_ids: i64,
    weights: [u32; KINDS],
    /// The most transactions that are open at a time.
    slots: usize,
    levels: Vec<Level>,
    /// Per 100 steps.
    collections: u32,
    /// Per 100 steps: begin a reader, or end it.
    readers: u32,
    /// Per 100 steps: a transaction of one statement.
    short: u32,
    /// Per 100 steps of a transaction.
    commits: u32,
    random: StdRng,
    open: [Option<Open>; SLOTS],
    reader: Option<Transaction>,
    tells: bool,
}

impl World {
    /// An id of a parent or of a row of another table; now and then NULL.
    fn value(&mut self, table: &str) -> Option<i64> {
        let ids = if table == "p" { self.ids } else { self.child_ids };
        self.random.random_bool(0.95).then(|| self.random.random_range(0..ids))
    }

    /// One statement; the caller undoes one that fails. Its text goes into `told`.
    fn statement(&mut self, txn: &mut Transaction, told: &mut String) -> Result<(), EngineError> {
        let name = *self.tables.choose(&mut self.random).unwrap();
        let name = if self.random.random_bool(self.parents) { "p" } else { name };
        let table = table(txn, name);
        let rows = rows(txn, &table);
        let at = |name: &str| table.definition.column(name).unwrap();
        let ids = if name == "p" { self.ids } else { self.child_ids };
        let (id, a, b) = (self.value(name), self.value(name), self.value(name));
        let parent = table.definition.foreign_keys.first().map_or("p", |key| &key.parent_table);
        let parent = self.value(parent);
        let row = |id: Option<i64>| -> Vec<Value<'static>> {
            let of = |column: &ColumnDefinition| match column.name.as_str() {
                "id" => id,
                "parent" if name != "p" => parent,
                "a" => a,
                "b" => b,
                _ => None,
            };
            table.definition.columns.iter().map(|column| of(column).map_or(Value::Null, Value::Int64)).collect()
        };
        // Rows without an id are not parents.
        let with_id: Vec<_> = rows.iter().filter(|(_, values)| values["id"].is_some()).collect();
        let victim = if self.random.random_bool(0.9) { with_id.choose(&mut self.random).copied() } else { None };
        let victim = victim.or_else(|| rows.choose(&mut self.random)).map(|(row, values)| (*row, values["id"]));
        let kinds: Vec<usize> = (0..KINDS).collect();
        let kind = *kinds.choose_weighted(&mut self.random, |kind| self.weights[*kind]).unwrap();
        *told = format!("{name} {kind}: id {id:?} parent {parent:?} pair {a:?} {b:?} victim {victim:?}");
        match (kind, victim) {
            (0, _) => txn.insert(&table, &row(id)).map(drop),
            (1, _) => {
                let values = [row(id), row(parent)];
                let arrays = (0..table.definition.columns.len()).map(|column| {
                    let number = |row: &Vec<Value<'_>>| match row[column] {
                        Value::Int64(number) if number >= 0 => Some(number),
                        _ => None,
                    };
                    Arc::new(values.iter().map(number).collect::<Int64Array>()) as ArrayRef
                });
                let batch = RecordBatch::try_new(table.data.schema().arrow(), arrays.collect()).unwrap();
                txn.insert_batch(&table, &batch)?;
                txn.check_statement_end()
            }
            // INSERT … ON CONFLICT DO UPDATE
            (2, _) => match txn.find_conflict(&table, None, &row(id))? {
                None => txn.insert(&table, &row(id)).map(drop),
                Some(found) => txn.update(
                    &ColumnUpdate::new(txn.catalog(), &table, &[at("parent")]),
                    found,
                    &[parent.filter(|_| name != "p").map_or(Value::Null, Value::Int64)],
                ),
            },
            (3, Some((row, _))) => {
                let plan = ColumnUpdate::new(txn.catalog(), &table, &[at("id")]);
                txn.update(&plan, row, &[id.map_or(Value::Null, Value::Int64)])
            }
            (4, Some((row, _))) if name != "p" => {
                let plan = ColumnUpdate::new(txn.catalog(), &table, &[at("parent")]);
                txn.update(&plan, row, &[parent.map_or(Value::Null, Value::Int64)])
            }
            // UPDATE … SET id = (id + 1) % ids
            (5, Some(_)) => {
                let (rows, ids): (Vec<RowId>, Vec<_>) =
                    rows.iter().map(|(row, values)| (*row, values["id"].map(|id| (id + 1) % ids))).unzip();
                let batch = RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(ids)) as ArrayRef)]).unwrap();
                txn.update_batch(&table, &rows, &[at("id")], &batch)?;
                txn.check_statement_end()
            }
            (DELETE, Some((row, _))) => txn.delete(&table, row),
            (7, Some(_)) => {
                let some: Vec<RowId> = rows.iter().map(|(row, _)| *row).filter(|_| self.random.random()).collect();
                txn.delete_batch(&table, &some)?;
                txn.check_statement_end()
            }
            (LOCK, Some((row, _))) => txn.lock_row(&table, row),
            (DDL, _) => {
                let nulls =
                    |rows: &RecordBatch| Ok(Arc::new(Int64Array::from(vec![None; rows.num_rows()])) as ArrayRef);
                match table.definition.column("extra") {
                    Some(_) => txn.drop_column("public", name, "extra", false),
                    None => txn.add_column("public", name, column("extra"), nulls),
                }?;
                txn.check_statement_end()
            }
            _ => Ok(()),
        }
    }

    fn commit(&self, txn: Transaction) {
        let result = txn.commit().map(|ticket| ticket.commit_ts());
        self.tell(|| format!("commit {result:?}"));
        let expected = result.as_ref().err().is_none_or(|error| error.sqlstate() == "40001");
        assert!(expected, "commit: {result:?}");
        check_committed(&self.db.begin(), &self.tables);
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            println!("{}", what());
        }
    }

    fn step(&mut self) {
        if self.random.random_range(0..100) < self.collections {
            let stats = self.db.storage().run_gc();
            self.tell(|| format!("collect: {stats:?}"));
            return;
        }
        if self.random.random_range(0..100) < self.readers {
            self.tell(|| "reader".into());
            match self.reader.take() {
                Some(reader) => check_committed(&reader, &self.tables),
                None => self.reader = Some(self.db.begin()),
            }
            return;
        }
        if self.random.random_bool(0.02) {
            let name = *self.tables.choose(&mut self.random).unwrap();
            let data = table(&self.db.begin(), name).data.clone();
            let report = self.db.storage().compact_table(&data).unwrap();
            self.tell(|| format!("compact {name}: {report:?}"));
            return;
        }
        if self.random.random_range(0..100) < self.short {
            let mut txn = self.db.begin();
            txn.set_lock_timeout(Duration::ZERO);
            txn.set_serializable(self.random.random());
            let mut told = String::new();
            let result = self.statement(&mut txn, &mut told);
            self.tell(|| format!("short: {told} -> {result:?}"));
            if result.is_ok() {
                self.commit(txn);
            }
            return;
        }
        let slot = self.random.random_range(0..self.slots);
        let Some(mut open) = self.open[slot].take() else {
            let level = *self.levels.choose(&mut self.random).unwrap();
            let mut txn = self.db.begin();
            txn.set_lock_timeout(Duration::ZERO);
            txn.set_serializable(level == Level::Serializable);
            self.tell(|| format!("{slot}: begin {level:?} at {:?}", txn.snapshot().start()));
            self.open[slot] = Some(Open { txn, level, savepoints: Vec::new() });
            return;
        };
        if self.random.random_range(0..100) < self.commits {
            self.commit(open.txn);
            return;
        }
        match self.random.random_range(0..86) {
            0..4 => {
                self.tell(|| format!("{slot}: rollback"));
                return open.txn.rollback();
            }
            4..8 => {
                self.tell(|| format!("{slot}: savepoint"));
                let savepoint = open.txn.savepoint();
                open.savepoints.push(savepoint);
            }
            8..12 if !open.savepoints.is_empty() => {
                let at = self.random.random_range(0..open.savepoints.len());
                self.tell(|| format!("{slot}: rollback to {at}"));
                open.txn.rollback_to(&open.savepoints[at]);
                open.savepoints.truncate(at + 1);
            }
            _ => {
                if open.level == Level::ReadCommitted {
                    open.txn.refresh();
                }
                let before = open.txn.savepoint();
                let mut told = String::new();
                let result = self.statement(&mut open.txn, &mut told);
                self.tell(|| format!("{slot}: {told} -> {result:?}"));
                if let Err(error) = result {
                    open.txn.rollback_to(&before);
                    match error.sqlstate() {
                        "23503" | "23505" => {}
                        "40001" if open.level == Level::ReadCommitted => {}
                        // The transaction has no future.
                        "40001" | "55006" => return,
                        _ => panic!("{told}: {error}"),
                    }
                }
            }
        }
        for name in &self.tables {
            check_keys(&open.txn, name);
        }
        self.open[slot] = Some(open);
    }
}

/// Plays one seed. Says at which step it failed, and how.
fn play(seed: u64, tells: bool) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let wanted = random.random_range(0.1..1.0);
    let mut tables: Vec<_> = TABLES.into_iter().filter(|name| *name == "p" || random.random_bool(wanted)).collect();
    if !tables.contains(&"c2") {
        tables.retain(|name| *name != "g");
    }
    let mut weights = [0; KINDS].map(|_: u32| *[0, 1, 3, 10, 30].choose(&mut random).unwrap());
    // Half of the runs are about one parent or two, children that come and go, and snapshots that
    // are a little old.
    let family = random.random();
    if family {
        let child = *["c2", "c3", "c4"].choose(&mut random).unwrap();
        tables = vec!["p", child];
        weights = [0; KINDS];
        (weights[0], weights[DELETE]) = (20, 20);
    }
    let levels = random.random_range(1..=LEVELS.len());
    // Without rows, no change is possible.
    weights[0] += 5;
    if !family {
        weights[LOCK] = *[0, 1].choose(&mut random).unwrap();
    }
    // DDL ends pins, old snapshots and open transactions.
    weights[DDL] = *[0, 0, 1, 3].choose(&mut random).unwrap();
    let mut world = World {
        db: open(&tables),
        tables,
        parents: random.random_range(0.1..0.6),
        ids: random.random_range(1..=MOST_IDS),
        child_ids: *[MOST_IDS, MOST_CHILD_IDS].choose(&mut random).unwrap(),
        weights,
        slots: random.random_range(2..=SLOTS),
        levels: LEVELS.choose_multiple(&mut random, levels).copied().collect(),
        collections: *[3, 15, 40].choose(&mut random).unwrap(),
        readers: *[0, 4].choose(&mut random).unwrap(),
        short: *[0, 20, 60].choose(&mut random).unwrap(),
        commits: random.random_range(5..30),
        random,
        open: [const { None }; SLOTS],
        reader: None,
        tells,
    };
    if family {
        (world.parents, world.ids, world.child_ids) = (0.4, 2, MOST_CHILD_IDS);
        (world.levels, world.commits) = (vec![Level::RepeatableRead], 30);
        (world.collections, world.readers, world.short) = (15, 0, 60);
    }
    let mut step = 0;
    let played = catch_unwind(AssertUnwindSafe(|| {
        while step < STEPS {
            world.step();
            step += 1;
        }
        world.open = [const { None }; SLOTS];
        world.reader = None;
        check_committed(&world.db.begin(), &world.tables);
        for _ in 0..3 {
            world.db.storage().run_gc();
        }
        let txn = world.db.begin();
        for name in &world.tables {
            let table = table(&txn, name);
            table.verify(txn.snapshot());
            assert_eq!(table.pinned_rows(), 0, "rows of {name} stay pinned");
            let live = rows(&txn, &table).len();
            for index in &table.indexes {
                assert_eq!(index.entries.len(), live, "entries of index {}", index.definition.name);
            }
        }
    }));
    played.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        // The world is not dropped after a panic: its locks may be held.
        std::mem::forget(world);
        format!("SERAC_SEED={seed}, step {step}: {}", text.unwrap_or_default())
    })
}

#[test]
fn constraints_hold_in_every_snapshot() {
    let tells = serac_testing::given_seed().is_some();
    let seeds = serac_testing::seeds(200, 20_000);
    let count = seeds.end - seeds.start;
    let failures: Vec<String> = seeds.filter_map(|seed| play(seed, tells).err()).collect();
    assert!(failures.is_empty(), "{} of {count} seeds fail:\n{}", failures.len(), failures.join("\n"));
}
