//! The table under test, and a model that is told of everything that happens to it.

use crate::check_blocks;
use crate::datum::{Datum, array, random_datum};
use crate::one_table::open_table;
use crate::steps::{Step, TRANSACTIONS};
use arrow_array::Array;
use arrow_array::RecordBatch;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serac_storage::freeze::frozen::FrozenBlock;
use serac_storage::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub type Row = Arc<Vec<Datum>>;
/// Rows by row id.
pub type State = BTreeMap<u64, Row>;

fn random_row(rng: &mut StdRng, schema: &TableSchema) -> Row {
    Arc::new(schema.columns.iter().map(|column| random_datum(rng, column)).collect())
}

/// A running transaction and the model's view of it.
struct Running {
    txn: Transaction,
    began: u64,
    /// Its view of the rows, its own writes included.
    view: State,
    writes: BTreeMap<u64, Option<Row>>,
    /// Every row it ever wrote, also before a rollback to a savepoint.
    touched: BTreeSet<u64>,
    savepoint: Option<(Savepoint, State, BTreeMap<u64, Option<Row>>)>,
}

/// The table and the model.
pub struct World {
    storage: Arc<Storage>,
    table: Arc<DataTable>,
    committed: State,
    running: [Option<Running>; TRANSACTIONS],
    readers: Vec<(Snapshot, State)>,
    /// Counts commits and aborts.
    events: u64,
    /// The last commit that changed a row.
    changed: HashMap<u64, u64>,
    /// The last end of a transaction that had touched a row.
    settled: HashMap<u64, u64>,
}

impl World {
    pub fn new(schema: TableSchema) -> Self {
        let options = StorageOptions { gc_threads: 0, ..Default::default() };
        let (storage, table, _) = open_table(options, schema).unwrap();
        Self {
            storage,
            table,
            committed: State::new(),
            running: Default::default(),
            readers: Vec::new(),
            events: 0,
            changed: HashMap::new(),
            settled: HashMap::new(),
        }
    }

    fn running(&mut self, no: usize) -> &mut Running {
        self.running[no].get_or_insert_with(|| Running {
            txn: self.storage.begin(),
            began: self.events,
            view: self.committed.clone(),
            writes: BTreeMap::new(),
            touched: BTreeSet::new(),
            savepoint: None,
        })
    }

    /// Makes a write to an existing row and checks whether it may succeed.
    fn write(&mut self, no: usize, row: u64, new: Option<Row>, columns: &[ColumnId]) {
        let table = self.table.clone();
        let began = self.running(no).began;
        let others = || self.running.iter().enumerate().filter(|(i, _)| *i != no).filter_map(|(_, r)| r.as_ref());
        let after = |events: &HashMap<u64, u64>| events.get(&row).is_some_and(|event| *event > began);
        let must_conflict = others().any(|other| other.writes.contains_key(&row)) || after(&self.changed);
        let may_conflict = others().any(|other| other.touched.contains(&row)) || after(&self.settled);
        let running = self.running(no);
        let result = match &new {
            None => table.delete(&mut running.txn, RowId::from_u64(row)),
            Some(new) => {
                let values: Vec<_> = columns.iter().map(|column| new[column.0 as usize].value()).collect();
                table.update(&mut running.txn, RowId::from_u64(row), columns, &values)
            }
        };
        match result {
            Ok(()) => {
                assert!(!must_conflict, "a lost update of {:?}", RowId::from_u64(row));
                match new.clone() {
                    Some(new) => running.view.insert(row, new),
                    None => running.view.remove(&row),
                };
                running.writes.insert(row, new);
                running.touched.insert(row);
            }
            Err(StorageError::WriteConflict { .. }) => assert!(may_conflict, "a conflict without a reason"),
            Err(other) => panic!("{other}"),
        }
    }

    fn update(&mut self, no: usize, row: u64, rng: &mut StdRng) {
        let schema = self.table.schema().clone();
        let columns: Vec<ColumnId> =
            (0..schema.columns.len() as u16).filter(|_| rng.random_bool(0.3)).map(ColumnId).collect();
        let mut new = (*self.running(no).view[&row]).clone();
        for column in &columns {
            new[column.0 as usize] = random_datum(rng, &schema.columns[column.0 as usize]);
        }
        self.write(no, row, Some(Arc::new(new)), &columns);
    }

    fn insert(&mut self, no: usize, rng: &mut StdRng) {
        let (table, row) = (self.table.clone(), random_row(rng, self.table.schema()));
        let running = self.running(no);
        let values: Vec<_> = row.iter().map(Datum::value).collect();
        let id = table.insert(&mut running.txn, &values).unwrap();
        running.note_new(id.as_u64(), row);
    }

    fn append(&mut self, no: usize, count: usize, rng: &mut StdRng) {
        let table = self.table.clone();
        let rows: Vec<Row> = (0..count).map(|_| random_row(rng, table.schema())).collect();
        let columns = table
            .schema()
            .columns
            .iter()
            .enumerate()
            .map(|(i, column)| array(column.column_type, &rows.iter().map(|row| &row[i]).collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(table.schema().arrow(), columns.collect()).unwrap();
        // A slice of a longer batch, so that the arrays have offsets.
        let batch = batch.slice(count / 3, count - count / 3);
        let running = self.running(no);
        let ranges = table.append(&mut running.txn, &batch).unwrap();
        let ids: Vec<u64> = ranges.into_iter().flatten().collect();
        assert_eq!(ids.len(), batch.num_rows());
        ids.into_iter().zip(rows.into_iter().skip(count / 3)).for_each(|(id, row)| running.note_new(id, row));
    }

    fn end(&mut self, no: usize, commit: bool) {
        let Some(running) = self.running[no].take() else { return };
        self.events += 1;
        if commit {
            running.txn.commit().unwrap();
            for (row, new) in running.writes {
                self.changed.insert(row, self.events);
                match new {
                    Some(new) => self.committed.insert(row, new),
                    None => self.committed.remove(&row),
                };
            }
        } else {
            running.txn.abort();
        }
        running.touched.into_iter().for_each(|row| {
            self.settled.insert(row, self.events);
        });
    }

    pub fn step(&mut self, step: &Step) {
        let rng = |seed: &u64| StdRng::seed_from_u64(*seed);
        match step {
            Step::Insert { txn, seed } => self.insert(*txn, &mut rng(seed)),
            Step::Append { txn, rows, seed } => self.append(*txn, *rows, &mut rng(seed)),
            Step::Update { txn, row, seed } => {
                if let Some(row) = pick(&self.running(*txn).view, *row) {
                    self.update(*txn, row, &mut rng(seed));
                }
            }
            Step::Delete { txn, row } => {
                if let Some(row) = pick(&self.running(*txn).view, *row) {
                    self.write(*txn, row, None, &[]);
                }
            }
            Step::Savepoint { txn } => {
                let running = self.running(*txn);
                running.savepoint = Some((running.txn.savepoint(), running.view.clone(), running.writes.clone()));
            }
            Step::RollbackTo { txn } => {
                let running = self.running(*txn);
                if let Some((savepoint, view, writes)) = &running.savepoint {
                    running.txn.rollback_to(savepoint);
                    running.view = view.clone();
                    running.writes = writes.clone();
                }
            }
            Step::Commit { txn } => self.end(*txn, true),
            Step::Abort { txn } => self.end(*txn, false),
            Step::OpenReader => self.readers.push((self.storage.begin().snapshot().clone(), self.committed.clone())),
            Step::CloseReader { reader } if !self.readers.is_empty() => {
                let at = (*reader % self.readers.len() as u64) as usize;
                self.readers.swap_remove(at);
            }
            Step::CloseReader { .. } => {}
            Step::Collect => drop(self.storage.run_gc()),
            Step::Freeze { format } => {
                self.table.set_freeze_format(*format);
                self.storage.freeze_table(&self.table, Duration::ZERO);
            }
            Step::CheckTransaction { txn, seed } => {
                let running = self.running(*txn);
                let (snapshot, view) = (running.txn.snapshot().clone(), running.view.clone());
                self.check(&snapshot, &view, Some(*txn), &mut rng(seed));
            }
            Step::CheckReader { reader, seed } if !self.readers.is_empty() => {
                let (snapshot, view) = self.readers[(*reader % self.readers.len() as u64) as usize].clone();
                self.check(&snapshot, &view, None, &mut rng(seed));
            }
            Step::CheckReader { .. } => {}
        }
    }

    /// Checks every view, lets all transactions end, and checks the final state.
    pub fn finish(mut self, rng: &mut StdRng) {
        for (snapshot, view) in std::mem::take(&mut self.readers) {
            self.check(&snapshot, &view, None, rng);
        }
        for no in 0..TRANSACTIONS {
            let running = self.running(no);
            let (snapshot, view) = (running.txn.snapshot().clone(), running.view.clone());
            self.check(&snapshot, &view, Some(no), rng);
            self.end(no, no % 2 == 0);
        }
        let (snapshot, view) = (self.storage.begin().snapshot().clone(), self.committed.clone());
        self.check(&snapshot, &view, None, rng);
        drop(snapshot);
        (0..TRANSACTIONS).for_each(|no| self.end(no, false));
        self.storage.run_gc();
        self.storage.run_gc();
        let (txn, view) = (self.storage.begin(), self.committed.clone());
        for no in 0..self.table.block_count() {
            if let Some(reader) = self.table.read_block(txn.snapshot(), BlockNo(no)) {
                assert!(reader.stats().bulk, "without versions a block is read in bulk");
            }
        }
        check_blocks(&self.table, txn.snapshot(), &view, 0..self.table.block_count(), rng, || {});
        self.table.verify();
        drop(txn);
        // From every format to every other: hot and frozen blocks alike.
        let mut formats = [
            FreezeFormat::View,
            FreezeFormat::Utf8,
            FreezeFormat::Dictionary,
            FreezeFormat::Compact,
            FreezeFormat::View,
        ];
        formats[..4].shuffle(rng);
        for format in formats {
            self.table.set_freeze_format(format);
            let (frozen, blocks) = self.storage.freeze_table(&self.table, Duration::from_secs(10));
            assert_eq!(frozen, blocks);
            self.check_frozen(format);
            let txn = self.storage.begin();
            check_blocks(&self.table, txn.snapshot(), &view, 0..self.table.block_count(), rng, || {});
            self.table.verify();
        }
        // And back: a write thaws its block.
        for &row in view.keys().step_by(97) {
            self.update(0, row, rng);
        }
        self.end(0, true);
        let (txn, view) = (self.storage.begin(), self.committed.clone());
        check_blocks(&self.table, txn.snapshot(), &view, 0..self.table.block_count(), rng, || {});
    }

    /// Checks that all blocks are frozen for `format` and that their arrays are valid Arrow. A
    /// block made of these arrays must have the same cells.
    fn check_frozen(&self, format: FreezeFormat) {
        let schema = self.table.schema();
        for block in (0..self.table.block_count()).filter_map(|no| self.table.block(BlockNo(no))) {
            let frozen = block.frozen().expect("all blocks are frozen");
            assert_eq!(frozen.format(), format);
            let arrays = frozen.arrays(schema);
            arrays.iter().for_each(|array| array.to_data().validate_full().unwrap());
            let columns: Vec<ColumnId> = (0..schema.columns.len() as u16).map(ColumnId).collect();
            let zones: Vec<_> = columns.iter().map(|&column| frozen.zone(column)).collect();
            let (limit, presence) = (frozen.slot_limit(), frozen.presence().cloned());
            let copy = FrozenBlock::from_arrays(schema, format, limit, presence, &arrays, &zones, 0).unwrap();
            assert_eq!(copy.rows(), frozen.rows());
            for &column in &columns {
                assert_eq!(copy.zone(column), frozen.zone(column));
                for slot in (0..limit).map(Slot).filter(|&slot| frozen.is_present(slot)) {
                    let (cell, same) = (frozen.read_cell(column, slot), copy.read_cell(column, slot));
                    assert_eq!(cell, same);
                    let column_type = schema.columns[column.0 as usize].column_type;
                    if column_type.physical() == types::PhysicalType::View && !cell.null {
                        let (mut bytes, mut copied) = (Vec::new(), Vec::new());
                        frozen.read_view(column, cell.bits, &mut bytes);
                        copy.read_view(column, same.bits, &mut copied);
                        assert_eq!(bytes, copied);
                    }
                }
            }
        }
    }

    /// Compares a snapshot with its model. Transactions other than `except` write while the scan is
    /// under way.
    fn check(&mut self, snapshot: &Snapshot, view: &State, except: Option<usize>, rng: &mut StdRng) {
        let blocks = self.table.block_count();
        let from = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..=blocks) };
        let mut disturbances = StdRng::seed_from_u64(rng.random());
        let table = self.table.clone();
        check_blocks(&table, snapshot, view, from..blocks, rng, || self.disturb(except, &mut disturbances));
    }

    fn disturb(&mut self, except: Option<usize>, rng: &mut StdRng) {
        let no = rng.random_range(0..TRANSACTIONS);
        if Some(no) == except {
            return;
        }
        match (rng.random_range(0..6), pick(&self.running(no).view, rng.random())) {
            (0..3, Some(row)) => self.update(no, row, rng),
            (3, Some(row)) => self.write(no, row, None, &[]),
            (4, _) => self.end(no, rng.random_bool(0.7)),
            _ => drop(self.storage.run_gc()),
        }
    }
}

impl Running {
    fn note_new(&mut self, id: u64, row: Row) {
        assert!(self.view.insert(id, row.clone()).is_none(), "a row id is given out once");
        self.writes.insert(id, Some(row));
        self.touched.insert(id);
    }
}

/// The number is taken modulo the number of rows.
fn pick(state: &State, number: u64) -> Option<u64> {
    (!state.is_empty()).then(|| *state.keys().nth((number % state.len() as u64) as usize).expect("below the length"))
}
