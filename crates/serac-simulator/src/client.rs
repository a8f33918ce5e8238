//! Clients: transactions of random statements, each of which must see what the history had at its
//! snapshot.

use crate::definition::*;
use crate::episode::World;
use crate::model::{CHILD, Changes, Datum, PARENT, Read, Row, Rows, Table};
use crate::plan::Part;
use arrow_array::{Array, RecordBatch};
use arrow_data::ArrayData;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serac_engine::catalog::definition::ReferentialAction;
use serac_engine::{EngineError, KeyRange, Savepoint, TableIndex, Transaction};
use serac_index::cubit::Predicate;
use serac_storage::{BlockNo, RowBuffer, RowId};
use serac_sync::thread;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// How a statement changes rows.
const LOAD: u32 = 6;
const DELETE: u32 = 10;
const UPDATE: u32 = 13;
const INSERT: u32 = 16;
/// Statements of a plan of many versions, or of moves.
const REWORK: u32 = 20;
const THIN_OUT: u32 = 21;
const FLIP: u32 = 22;
/// Keys of loaded rows begin here.
const LOADED: i64 = 1_000;

type Result<T = ()> = std::result::Result<T, EngineError>;

/// A batch that is kept, with a digest of its buffers at the time when it was lent.
struct Export {
    batch: RecordBatch,
    digest: u64,
}

/// A client.
pub struct Client {
    world: Arc<World>,
    rng: StdRng,
    number: usize,
    exports: Vec<Export>,
    /// The parent whose children it has deleted but one.
    thinned: Option<i64>,
}

/// A running transaction: the engine's, and its changes.
struct Running {
    txn: Transaction,
    own: Changes,
    /// Places to go back to.
    marks: Vec<(Savepoint, Changes)>,
    /// The newest commit that a scan or a lookup has seen.
    seen: u64,
    /// The reads of a serializable transaction.
    reads: Vec<Read>,
    /// It runs for long.
    is_patient: bool,
}

impl Running {
    fn note_table(&mut self, table: Table) {
        if let Some(reads) = self.txn.reads() {
            reads.note_table(&crate::definition::table(&self.txn, table));
            self.reads.push(Read::All(table));
        }
    }

    /// Notes that the rows were read that have a value in a column, by the index on it.
    fn note_value(&mut self, table: Table, index: &Arc<TableIndex>, column: usize, datum: &Datum) {
        if let Some(reads) = self.txn.reads() {
            let definition = crate::definition::table(&self.txn, table);
            reads.note_keys(&definition, index, &KeyRange::prefix(&[datum.value()]));
            self.reads.push(Read::With(table, column, datum.clone()));
        }
    }
}

impl Client {
    pub fn new(world: Arc<World>, seed: u64, number: usize) -> Self {
        Self { world, rng: StdRng::seed_from_u64(seed), number, exports: Vec::new(), thinned: None }
    }

    pub fn run(mut self) {
        for _ in 0..self.world.plan.transactions {
            self.transaction();
            self.world.note_end();
            if self.world.is_dead() {
                break;
            }
        }
        self.world.busy_clients.fetch_sub(1, SeqCst);
        self.exports.iter().for_each(Export::check);
    }

    fn transaction(&mut self) {
        let mut txn = self.world.db().begin();
        txn.set_expressions(Arc::new(Defaults));
        let read_committed = self.rng.random_bool(0.4);
        if self.world.plan.has(Part::Serializable) && !read_committed && self.rng.random() {
            txn.set_serializable(true);
        }
        let mut running =
            Running { txn, own: Changes::new(), marks: Vec::new(), seen: 0, reads: Vec::new(), is_patient: false };
        let has_versions = self.world.plan.has(Part::Versions);
        let only_reads = self.rng.random_bool(if has_versions { 0.3 } else { 0.2 });
        // Some let others come and go before many of their steps.
        let often = if has_versions && only_reads { 0.6 } else { 0.2 };
        running.is_patient = self.rng.random_bool(if self.has_families() { 0.3 } else { often });
        // Others come and go quickly, with a statement each.
        let is_quick = !running.is_patient && !only_reads && self.is_quick();
        let patience = if running.is_patient { 0.5 } else { 0.02 };
        let most = if is_quick {
            1
        } else if self.has_families() {
            2
        } else {
            8
        };
        for _ in 0..self.rng.random_range(1..=most) {
            if read_committed {
                running.txn.refresh();
            }
            if self.rng.random_bool(0.3) {
                self.pause();
            }
            if self.rng.random_bool(patience) {
                let others = self.rng.random_range(1..6);
                self.outlast(others);
            }
            if !self.statement(&mut running, only_reads) {
                return;
            }
        }
        if only_reads {
            return self.end_reading(running);
        }
        if self.rng.random_bool(patience) {
            let others = self.rng.random_range(1..6);
            self.outlast(others);
        }
        if self.rng.random_bool(if has_versions { 0.4 } else { 0.1 }) {
            return;
        }
        self.commit(running);
    }

    /// Waits until `others` have ended something, if they do. They may wait for this client: where
    /// time goes slowly, each sleep is then hundreds of thousands of switches of background tasks.
    fn outlast(&mut self, others: u64) {
        let until = self.world.ended() + others;
        self.world.busy_clients.fetch_sub(1, SeqCst);
        for _ in 0..20 {
            if self.world.ended() >= until || self.world.busy_clients.load(SeqCst) == 0 || self.world.is_dead() {
                break;
            }
            thread::sleep(Duration::from_micros(self.rng.random_range(1..300)));
        }
        self.world.busy_clients.fetch_add(1, SeqCst);
    }

    fn has_families(&self) -> bool {
        self.world.plan.has(Part::Families)
    }

    fn is_quick(&mut self) -> bool {
        let plan = &self.world.plan;
        let often = if plan.has(Part::Rounds) {
            0.95
        } else if plan.has(Part::Versions) {
            0.7
        } else if plan.has(Part::Moves) {
            0.5
        } else {
            0.0
        };
        self.rng.random_bool(often)
    }

    fn pause(&mut self) {
        match self.rng.random_range(0..3) {
            0 => thread::yield_now(),
            1 => thread::sleep(Duration::from_micros(self.rng.random_range(1..50))),
            _ => thread::sleep(Duration::from_micros(self.rng.random_range(50..1_000))),
        }
    }

    /// The rows that were read must be durable when the ticket is redeemed.
    fn end_reading(&mut self, running: Running) {
        let seen = running.seen;
        match running.txn.commit() {
            Ok(ticket) => {
                if self.world.waits(ticket.wait()) {
                    self.world.acknowledge(seen);
                }
            }
            Err(error) => self.world.expect(&error),
        }
    }

    fn commit(&mut self, mut running: Running) {
        // A commit without changes need not be there after a crash.
        let changed = !running.own.is_empty();
        if changed {
            let (world, own, reads) = (self.world.clone(), running.own, running.reads);
            let from = running.txn.snapshot().start().0;
            running.txn.on_commit(move |ts| {
                let mut model = world.model();
                model.check_reads(from, &reads);
                model.commit(ts.0, &own);
            });
        }
        match running.txn.commit() {
            Ok(ticket) => {
                let at = ticket.commit_ts().0;
                if self.rng.random_bool(0.9) && self.world.waits(ticket.wait()) && changed {
                    self.world.acknowledge(at);
                }
            }
            Err(error) => self.world.expect(&error),
        }
    }

    /// Runs a statement. False: the transaction has ended.
    fn statement(&mut self, running: &mut Running, only_reads: bool) -> bool {
        let (savepoint, own) = (running.txn.savepoint(), running.own.clone());
        let anything = (if self.rng.random() { PARENT } else { CHILD }, self.rng.random_range(0..20));
        let (table, what) = match only_reads {
            true => (anything.0, self.rng.random_range(0..6)),
            // Children come quickly, and parents go in transactions that began before.
            false if self.has_families() => match (running.is_patient, self.rng.random_range(0..12)) {
                (true, 0..6) => (PARENT, DELETE),
                (_, 0..8) => (CHILD, INSERT),
                (_, 8 | 9) => (PARENT, INSERT),
                (_, 10) => (CHILD, UPDATE),
                _ => anything,
            },
            false if self.world.plan.has(Part::Versions) => match self.rng.random_range(0..16) {
                0..7 => (anything.0, FLIP),
                7..11 => (anything.0, REWORK),
                11 | 12 => (anything.0, INSERT),
                _ => anything,
            },
            false if self.world.plan.has(Part::Rounds) => match self.rng.random_range(0..12) {
                0..6 => (anything.0, UPDATE),
                6 | 7 => (anything.0, INSERT),
                8 => (anything.0, LOAD),
                _ => anything,
            },
            // One of many children of a parent is left, which moves, and the parent goes if it can.
            false if self.thinned.is_some() && self.rng.random_bool(0.7) => (PARENT, DELETE),
            false if self.world.plan.has(Part::Moves) => match self.rng.random_range(0..12) {
                0 | 1 => (CHILD, LOAD),
                2..5 => (CHILD, THIN_OUT),
                5..8 => (PARENT, DELETE),
                8 | 9 => (PARENT, INSERT),
                10 => (CHILD, INSERT),
                _ => anything,
            },
            false => anything,
        };
        // The disk is full for one statement, often a long one, and the transaction goes on.
        let fills_disk = self.world.plan.has(Part::FullDisks) && !running.own.is_empty() && self.rng.random_bool(0.25);
        let what = if fills_disk && self.rng.random() { LOAD } else { what };
        if fills_disk {
            self.world.files.faults().disk_full.store(true, SeqCst);
        }
        let result = match what {
            0 | 1 => self.scan(running, table),
            2 => self.look_up(running, table),
            3 => self.look_up_children(running),
            4 => self.ask_bitmaps(running, table),
            5 if self.world.plan.has(Part::Exports) => self.export(running, table),
            5 => Ok(()),
            LOAD if self.world.plan.has(Part::Loads) => self.load(running, table),
            7 => self.delete_loaded(running, table),
            8 if self.world.plan.has(Part::Savepoints) => {
                running.marks.push((running.txn.savepoint(), running.own.clone()));
                Ok(())
            }
            9 => {
                if let Some(at) = (0..running.marks.len()).collect::<Vec<_>>().choose(&mut self.rng) {
                    running.marks.truncate(at + 1);
                    let (savepoint, own) = running.marks[*at].clone();
                    running.txn.rollback_to(&savepoint);
                    running.own = own;
                }
                Ok(())
            }
            DELETE..UPDATE => self.delete(running, table),
            UPDATE..INSERT => self.update(running, table),
            REWORK => self.rework(running, table),
            THIN_OUT => self.thin_out(running),
            FLIP => self.flip(running, table),
            _ => self.insert(running, table),
        };
        let result = result.and_then(|()| running.txn.check_statement_end());
        if fills_disk {
            self.world.files.faults().disk_full.store(false, SeqCst);
        }
        let Err(error) = result else { return true };
        self.world.expect(&error);
        if self.world.is_dead() {
            return false;
        }
        running.txn.rollback_to(&savepoint);
        running.own = own;
        if let Some(blocker) = error.blocker()
            && self.rng.random()
        {
            match running.txn.wait_for(blocker) {
                Ok(Some(turn)) => {
                    self.world.busy_clients.fetch_sub(1, SeqCst);
                    shuttle::future::block_on(turn);
                    self.world.busy_clients.fetch_add(1, SeqCst);
                }
                Ok(None) => {}
                Err(error) => {
                    self.world.expect(&error);
                    return false;
                }
            }
            running.txn.pass_on();
            return true;
        }
        // After a conflict most give up.
        !(error.sqlstate() == sqlstate::SERIALIZATION_FAILURE && self.rng.random_bool(0.7))
    }

    // ---- reading

    fn view(&self, running: &Running, table: Table) -> Rows {
        self.world.view(running.txn.snapshot().start().0, &running.own, table)
    }

    fn scan(&mut self, running: &mut Running, table: Table) -> Result {
        let at = running.txn.snapshot().start().0;
        running.seen = running.seen.max(self.world.model().newest_version(table, at));
        running.note_table(table);
        let found = scan(&running.txn, table);
        assert_eq!(found, self.view(running, table), "a scan of {table} by {}", self.describe(running));
        Ok(())
    }

    fn describe(&self, running: &Running) -> String {
        let start = running.txn.snapshot().start().0;
        format!("client {} at {start}, with {:?} of its own", self.number, running.own)
    }

    fn find(&self, running: &mut Running, table: Table, id: i64) -> Result<Option<RowId>> {
        let at = running.txn.snapshot().start().0;
        // That there is no row is known from a commit, too.
        let versions = self.world.model().versions(table, id);
        let newest = versions.iter().rev().map(|(ts, _)| *ts).find(|ts| *ts <= at);
        running.seen = running.seen.max(newest.unwrap_or(0));
        let definition = crate::definition::table(&running.txn, table);
        running.note_value(table, &definition.indexes[0], ID, &Datum::Int(id));
        let rows = running.txn.lookup(&definition, &definition.indexes[0], &[Datum::Int(id).value()])?;
        assert!(rows.len() < 2, "{} rows of {table} have the key {id}: {}", rows.len(), self.describe(running));
        Ok(rows.first().copied())
    }

    fn look_up(&mut self, running: &mut Running, table: Table) -> Result {
        let id = self.some_key(running, table);
        let view = self.view(running, table);
        let found = self.find(running, table, id)?.map(|row| read(&running.txn, table, row).expect("it was found"));
        assert_eq!(found.as_ref(), view.get(&id), "{table} {id} by {}", self.describe(running));
        let definition = crate::definition::table(&running.txn, table);
        let code = self.code();
        if code == Datum::Null {
            return Ok(());
        }
        running.note_value(table, &definition.indexes[1], CODE, &code);
        let rows = running.txn.lookup(&definition, &definition.indexes[1], &[code.value()])?;
        let found: Vec<Row> = rows.iter().map(|row| read(&running.txn, table, *row).expect("it was found")).collect();
        let expected: Vec<Row> = view.into_values().filter(|row| row[CODE] == code).collect();
        assert_eq!(found, expected, "{table} with {code:?} by {}", self.describe(running));
        Ok(())
    }

    fn look_up_children(&mut self, running: &mut Running) -> Result {
        let parent = self.some_key(running, PARENT);
        let definition = crate::definition::table(&running.txn, CHILD);
        let index = definition.index_on(&[first(&definition.definition) + REFERENCE]).expect("the foreign key's");
        running.note_value(CHILD, index, REFERENCE, &Datum::Int(parent));
        let rows = running.txn.lookup(&definition, index, &[Datum::Int(parent).value()])?;
        let found: Rows = rows
            .iter()
            .map(|row| read(&running.txn, CHILD, *row).expect("it was found"))
            .map(|row| (row[ID].int().expect("a key"), row))
            .collect();
        let expected: Rows =
            self.view(running, CHILD).into_iter().filter(|(_, row)| row[REFERENCE] == Datum::Int(parent)).collect();
        assert_eq!(found, expected, "children of {parent} by {}", self.describe(running));
        Ok(())
    }

    fn ask_bitmaps(&mut self, running: &mut Running, table: Table) -> Result {
        running.note_table(table);
        let (definition, own) = (crate::definition::table(&running.txn, table), running.txn.own_bitmap_changes());
        let first = first(&definition.definition);
        for index in &definition.bitmaps {
            let Some(reader) = own.reader(index, running.txn.snapshot()) else { continue };
            let mut expected = BTreeMap::new();
            for row in self.view(running, table).values() {
                *expected.entry(index.key(row[index.definition.column - first].value())).or_insert(0) += 1;
            }
            let counts = reader.counts(Predicate::Range(Bound::Unbounded, Bound::Unbounded));
            let expected: Vec<_> = expected.into_iter().collect();
            assert_eq!(counts, expected, "{} by {}", index.definition.name, self.describe(running));
        }
        Ok(())
    }

    fn export(&mut self, running: &mut Running, table: Table) -> Result {
        running.note_table(table);
        self.exports.iter().for_each(Export::check);
        if self.exports.len() > 4 {
            self.exports.remove(0);
        }
        let definition = crate::definition::table(&running.txn, table);
        let first = first(&definition.definition);
        let columns: Vec<usize> = (first..first + WIDTH).collect();
        let mut scan = running.txn.scan_arrow(&definition, &columns, &[])?;
        let mut rows = 0;
        while let Some(batch) = scan.next_block() {
            if let Some(batch) = batch.expect("no file is damaged") {
                rows += batch.num_rows();
                self.exports.push(Export { digest: digest(&batch), batch });
            }
        }
        assert_eq!(rows, self.view(running, table).len(), "exported rows of {table} by {}", self.describe(running));
        Ok(())
    }

    // ---- values

    fn some_key(&mut self, running: &Running, table: Table) -> i64 {
        if self.rng.random_bool(0.7) {
            let keys: Vec<i64> = self.view(running, table).into_keys().collect();
            // One that everybody wants.
            let often = if self.has_families() { 0.7 } else { 0.4 };
            if let (Some(first), true) = (keys.first(), self.rng.random_bool(often)) {
                return *first;
            }
            if let Some(key) = keys.choose(&mut self.rng) {
                return *key;
            }
        }
        self.rng.random_range(0..self.world.plan.keys)
    }

    fn code(&mut self) -> Datum {
        if self.has_families() && self.rng.random_bool(0.8) {
            return Datum::Null;
        }
        let code = self.rng.random_range(0..2 * self.world.plan.keys);
        match code % 3 {
            0 => Datum::Null,
            1 => Datum::Text(format!("{code}")),
            _ => Datum::Text(format!("the long code {code} that lives in a heap")),
        }
    }

    fn datum(&mut self, running: &Running, table: Table, column: usize) -> Datum {
        match column {
            // Children do not meet each other.
            ID if table == CHILD && self.has_families() => Datum::Int(self.rng.random_range(0..LOADED)),
            ID => Datum::Int(self.rng.random_range(0..self.world.plan.keys)),
            REFERENCE if (table == CHILD || self.world.plan.has(Part::Trees)) && self.rng.random_bool(0.8) => {
                Datum::Int(self.some_key(running, PARENT))
            }
            REFERENCE if table == CHILD || self.world.plan.has(Part::Trees) => Datum::Null,
            REFERENCE => Datum::Int(self.rng.random_range(0..5)),
            CODE => self.code(),
            FLAG => [Datum::Null, Datum::Bool(false), Datum::Bool(true)][self.rng.random_range(0..3)].clone(),
            NOTE => {
                let length = [0, 5, 12, 13, 40, 300][self.rng.random_range(0..6)];
                let letter = self.rng.random_range(b'a'..=b'z') as char;
                Datum::Text(std::iter::repeat_n(letter, length).collect())
            }
            _ if self.rng.random_bool(0.2) => Datum::Null,
            _ => Datum::Long(i128::from(self.rng.random::<i64>()) * i128::from(self.rng.random::<u32>())),
        }
    }

    fn row(&mut self, running: &Running, table: Table) -> Row {
        (0..WIDTH).map(|column| self.datum(running, table, column)).collect()
    }

    // ---- writing

    fn insert(&mut self, running: &mut Running, table: Table) -> Result {
        let row = self.row(running, table);
        let view = self.view(running, table);
        let definition = crate::definition::table(&running.txn, table);
        let mut values = vec![serac_storage::Value::Null; first(&definition.definition)];
        values.extend(row.iter().map(Datum::value));
        values.resize(definition.definition.columns.len(), serac_storage::Value::Null);
        let result = running.txn.insert_row(&definition, &values).and_then(|_| running.txn.check_statement_end());
        if let Err(error) = result {
            self.check_refusal(running, table, &row, &error);
            return Err(error);
        }
        let id = row[ID].int().expect("a key");
        self.check_new(running, table, &view, &row);
        running.own.insert((table, id), Some(row));
        Ok(())
    }

    /// A row that went in: nobody in the view has its keys.
    fn check_new(&self, running: &Running, table: Table, view: &Rows, row: &Row) {
        let id = row[ID].int().expect("a key");
        assert!(!view.contains_key(&id), "{table} {id} went in beside itself: {}", self.describe(running));
        let same = view.values().find(|other| row[CODE] != Datum::Null && other[CODE] == row[CODE]);
        assert!(same.is_none(), "{table} {row:?} went in beside {same:?}: {}", self.describe(running));
    }

    /// A row that was refused: somebody has had its key since the snapshot, or its parent has been
    /// missing.
    fn check_refusal(&self, running: &Running, table: Table, row: &Row, error: &EngineError) {
        let start = running.txn.snapshot().start().0;
        let has_key = |other: &Row| other[ID] == row[ID] || (row[CODE] != Datum::Null && other[CODE] == row[CODE]);
        let is_explained = match error.sqlstate() {
            sqlstate::UNIQUE_VIOLATION => {
                self.view(running, table).values().any(has_key) || self.world.model().has_had(table, start, has_key)
            }
            sqlstate::FOREIGN_KEY_VIOLATION => {
                row[REFERENCE].int().is_some_and(|parent| match running.own.get(&(PARENT, parent)) {
                    Some(own) => own.is_none(),
                    None => self.world.model().has_missed(PARENT, parent, start),
                })
            }
            _ => true,
        };
        assert!(is_explained, "{table} {row:?} is refused: {error}: {}", self.describe(running));
    }

    fn load(&mut self, running: &mut Running, table: Table) -> Result {
        let count = self.rng.random_range(1..40);
        let first = LOADED + self.rng.random_range(0..20) * 100;
        let flag = [Datum::Bool(false), Datum::Bool(true), Datum::Null][self.rng.random_range(0..3)].clone();
        let mut rows: Vec<Row> = (0..count).map(|_| self.row(running, table)).collect();
        if self.world.plan.has(Part::Moves) && table == CHILD {
            let parent = Datum::Int(self.some_key(running, PARENT));
            rows.iter_mut().for_each(|row| row[REFERENCE] = parent.clone());
        }
        for (i, row) in (0..).zip(&mut rows) {
            row[ID] = Datum::Int(first + i);
            row[CODE] = Datum::Null;
            row[FLAG] = flag.clone();
        }
        let view = self.view(running, table);
        let definition = crate::definition::table(&running.txn, table);
        let (width, start) = (definition.definition.columns.len(), crate::definition::first(&definition.definition));
        let columns = (0..width).map(|at| {
            let datum = |row: &Row| at.checked_sub(start).and_then(|at| row.get(at)).cloned().unwrap_or(Datum::Null);
            let values: Vec<Datum> = rows.iter().map(datum).collect();
            let column = &definition.definition.columns[at];
            (column.name.clone(), array_as(&values, column.sql_type.column_type), true)
        });
        let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length");
        running.txn.insert_batch(&definition, &batch)?;
        running.txn.check_statement_end()?;
        for row in rows {
            self.check_new(running, table, &view, &row);
            running.own.insert((table, row[ID].int().expect("a key")), Some(row));
        }
        Ok(())
    }

    /// Deletes a whole load, so that blocks become empty.
    fn delete_loaded(&mut self, running: &mut Running, table: Table) -> Result {
        let keys: Vec<i64> = self.view(running, table).into_keys().filter(|key| *key >= LOADED).collect();
        let Some(some) = keys.choose(&mut self.rng).map(|key| key / 100) else { return Ok(()) };
        let all = self.rng.random_bool(0.5);
        let keys: Vec<i64> = keys.into_iter().filter(|key| all || key / 100 == some).collect();
        self.delete_keys(running, table, &keys)
    }

    /// Deletes the children of a parent but one.
    fn thin_out(&mut self, running: &mut Running) -> Result {
        let parent = Datum::Int(self.some_key(running, PARENT));
        let children = self.view(running, CHILD).into_iter().filter(|(_, row)| row[REFERENCE] == parent);
        let mut keys: Vec<i64> = children.map(|(key, _)| key).collect();
        if !keys.is_empty() {
            self.thinned = parent.int();
            // More often the last, which has probably come last.
            let kept = if self.rng.random() { keys.len() - 1 } else { self.rng.random_range(0..keys.len()) };
            keys.remove(kept);
        }
        self.delete_keys(running, CHILD, &keys)
    }

    fn delete(&mut self, running: &mut Running, table: Table) -> Result {
        if table == PARENT
            && let Some(parent) = self.thinned
        {
            if self.rng.random_bool(0.2) {
                self.thinned = None;
            }
            return self.delete_keys(running, table, &[parent]);
        }
        let keys: Vec<i64> = (0..self.rng.random_range(1..3)).map(|_| self.some_key(running, table)).collect();
        self.delete_keys(running, table, &keys)
    }

    fn delete_keys(&mut self, running: &mut Running, table: Table, keys: &[i64]) -> Result {
        let mut rows = BTreeMap::new();
        for key in keys {
            if let Some(row) = self.find(running, table, *key)? {
                rows.insert(*key, row);
            }
        }
        let view = self.view(running, table);
        for key in keys {
            let (found, is_there) = (rows.contains_key(key), view.contains_key(key));
            assert_eq!(found, is_there, "whether {table} {key} is found by {}", self.describe(running));
        }
        let definition = crate::definition::table(&running.txn, table);
        running.txn.delete_batch(&definition, &rows.values().copied().collect::<Vec<_>>())?;
        running.txn.check_statement_end()?;
        for key in rows.keys() {
            running.own.insert((table, *key), None);
        }
        if table == PARENT {
            rows.keys().for_each(|key| self.follow(running, *key, None));
        }
        Ok(())
    }

    /// Changes a row column by column, and perhaps takes that back.
    fn rework(&mut self, running: &mut Running, table: Table) -> Result {
        let key = self.some_key(running, table);
        let (savepoint, own) = (running.txn.savepoint(), running.own.clone());
        for _ in 0..self.rng.random_range(1..5) {
            let column = [REFERENCE, REFERENCE, CODE, FLAG, NOTE][self.rng.random_range(0..5)];
            self.change(running, table, key, &[column])?;
            if self.rng.random_bool(0.1) {
                self.pause();
            }
        }
        if self.rng.random_bool(0.3) {
            running.txn.rollback_to(&savepoint);
            running.own = own;
        }
        Ok(())
    }

    /// Gives a row a key that it has probably had before, and then perhaps another value.
    fn flip(&mut self, running: &mut Running, table: Table) -> Result {
        let key = self.some_key(running, table);
        let first = if table == CHILD && self.rng.random() { REFERENCE } else { CODE };
        self.change(running, table, key, &[first])?;
        match self.rng.random_bool(0.6) {
            true => {
                let second = [FLAG, NOTE][self.rng.random_range(0..2)];
                self.change(running, table, key, &[second])
            }
            false => Ok(()),
        }
    }

    fn update(&mut self, running: &mut Running, table: Table) -> Result {
        let key = self.some_key(running, table);
        let mut columns: Vec<usize> = (0..WIDTH).filter(|_| self.rng.random_bool(0.4)).collect();
        if self.rng.random_bool(0.7) {
            columns.retain(|column| *column != ID);
        }
        self.change(running, table, key, &columns)
    }

    /// Gives the columns of a row new values, or locks it if there are none.
    fn change(&mut self, running: &mut Running, table: Table, key: i64, columns: &[usize]) -> Result {
        let view = self.view(running, table);
        let Some(row) = self.find(running, table, key)? else {
            assert!(!view.contains_key(&key), "{table} {key} is not found by {}", self.describe(running));
            return Ok(());
        };
        if columns.is_empty() {
            return running.txn.lock_row(&crate::definition::table(&running.txn, table), row);
        }
        let new: Vec<Datum> = columns.iter().map(|column| self.datum(running, table, *column)).collect();
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns
                .iter()
                .zip(&new)
                .map(|(at, datum)| (format!("c{at}"), array(std::slice::from_ref(datum), *at), true)),
        )
        .expect("a column each");
        let definition = crate::definition::table(&running.txn, table);
        let first = first(&definition.definition);
        let places: Vec<usize> = columns.iter().map(|column| first + column).collect();
        running.txn.update_batch(&definition, &[row], &places, &batch)?;
        running.txn.check_statement_end()?;
        let mut others = view;
        let mut changed = others.remove(&key).unwrap_or_else(|| panic!("{table} {key}: {}", self.describe(running)));
        for (column, datum) in columns.iter().zip(new) {
            changed[*column] = datum;
        }
        self.check_new(running, table, &others, &changed);
        let id = changed[ID].int().expect("a key");
        if id != key {
            running.own.insert((table, key), None);
        }
        running.own.insert((table, id), Some(changed));
        if id != key && table == PARENT {
            self.follow(running, key, Some(id));
        }
        Ok(())
    }

    /// Applies the referential actions to the rows that reference a parent whose key has gone. Rows
    /// that a newer commit has taken away do not reference it any more, though the snapshot still
    /// sees them.
    fn follow(&self, running: &mut Running, parent: i64, new: Option<i64>) {
        let references = |row: &Row| row[REFERENCE] == Datum::Int(parent);
        for (table, on_delete, on_update) in self.world.plan.relations() {
            let newest = self.world.view(u64::MAX, &running.own, table);
            let rows = self.view(running, table);
            for (id, mut row) in rows.into_iter().filter(|(_, row)| references(row)) {
                if !newest.get(&id).is_some_and(references) {
                    continue;
                }
                let action = if new.is_some() { on_update } else { on_delete };
                row[REFERENCE] = match (action, new) {
                    (ReferentialAction::Cascade, None) => {
                        running.own.insert((table, id), None);
                        if table == PARENT {
                            self.follow(running, id, None);
                        }
                        continue;
                    }
                    (ReferentialAction::Cascade, Some(new)) => Datum::Int(new),
                    (ReferentialAction::SetNull, _) => Datum::Null,
                    (ReferentialAction::SetDefault, _) if table == CHILD => Datum::Int(DEFAULT_PARENT),
                    (ReferentialAction::SetDefault, _) => Datum::Null,
                    _ => panic!("parent {parent} has left {table} {id}: {}", self.describe(running)),
                };
                running.own.insert((table, id), Some(row));
            }
        }
    }
}

/// All rows of a table, by a scan.
pub fn scan(txn: &Transaction, name: Table) -> Rows {
    let (table, mut rows) = (table(txn, name), Rows::new());
    for no in 0..table.data.block_count() {
        let Some(reader) = table.data.read_block(txn.snapshot(), BlockNo(no)) else { continue };
        for &id in reader.row_ids(reader.visible()).values() {
            let row = read(txn, name, RowId::from_u64(id)).expect("a visible row can be read");
            let key = row[ID].int().expect("a key");
            let other = rows.insert(key, row);
            assert!(other.is_none(), "a scan of {name} has {key} twice: {other:?} and {:?}", rows[&key]);
        }
    }
    rows
}

pub fn read(txn: &Transaction, name: Table, row: RowId) -> Option<Row> {
    let mut buffer = RowBuffer::default();
    let table = table(txn, name);
    let there = txn.read_row(&table, row, &mut buffer).expect("no file is damaged");
    let first = first(&table.definition);
    there.then(|| buffer.values().into_iter().skip(first).take(WIDTH).map(Datum::of).collect())
}

impl Export {
    fn check(&self) {
        assert_eq!(digest(&self.batch), self.digest, "Arrow memory has changed while it was lent");
    }
}

fn digest(batch: &RecordBatch) -> u64 {
    fn add(hash: &mut u64, data: &ArrayData) {
        for bytes in data.buffers().iter().map(|buffer| buffer.as_slice()).chain(data.nulls().map(|n| n.validity())) {
            for byte in bytes {
                *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
            }
        }
        data.child_data().iter().for_each(|child| add(hash, child));
    }
    let mut hash = 0xCBF2_9CE4_8422_2325;
    batch.columns().iter().for_each(|column| add(&mut hash, &column.to_data()));
    hash
}
