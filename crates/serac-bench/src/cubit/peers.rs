//! The indexes of the evaluation, behind one trait: SeracDB's and the peers (appendix §E), which
//! are written here after their descriptions.
//!
//! Every index gets a row's old value with a change, as from a database's table. So no peer pays
//! for finding it.

use super::wah::Wah;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use serac_index::cubit::{
    Bitvector, Builder, Changes, Cubit, Key, Merger, Options, Predicate, Statistics, TransactionCell,
};
use serac_storage::version::transaction::TransactionManager;
use serac_storage::{BlockNo, RowId, Slot, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An index under test. Values and rows are numbers from 0.
pub trait Index: Sync {
    fn count(&self, value: usize) -> u64;
    /// The value's rows, ascending.
    fn rows(&self, value: usize) -> Vec<u64>;
    /// Changes the row's value. `None` as the old value: the row is inserted; as the new one: it is
    /// deleted.
    fn change(&self, row: u64, old: Option<usize>, new: Option<usize>);
    fn statistics(&self) -> Option<Statistics> {
        None
    }
}

pub fn row_id(row: u64) -> RowId {
    RowId::new(BlockNo((row >> 16) as u32), Slot((row & 0xFFFF) as u32))
}
pub fn key(value: usize) -> Key {
    Key::new(&[&[1], &(value as u32).to_be_bytes()[..]].concat())
}

/// CUBIT-lf and CUBIT-lk, with the database's transactions.
pub struct Ours {
    manager: Arc<TransactionManager>,
    pub index: Arc<Cubit>,
    keys: Vec<Key>,
    _merger: Option<Merger>,
}

impl Ours {
    pub fn new(values: &[u16], cardinality: usize, options: Options, background: bool) -> Self {
        let manager = TransactionManager::new(Timestamp(1), None);
        let keys: Vec<Key> = (0..cardinality).map(key).collect();
        let mut builder = Builder::default();
        for (row, value) in values.iter().enumerate() {
            builder.push(&keys[*value as usize], row_id(row as u64));
        }
        let index = Arc::new(builder.finish(manager.now(), manager.clone(), options));
        let merger = background.then(Merger::default);
        if let Some(merger) = &merger {
            merger.watch([&index].into_iter());
        }
        Self { manager, index, keys, _merger: merger }
    }

    pub fn manager(&self) -> &Arc<TransactionManager> {
        &self.manager
    }
}

impl Index for Ours {
    fn count(&self, value: usize) -> u64 {
        let txn = self.manager.begin();
        self.index.count(Predicate::Equals(&self.keys[value]), txn.snapshot(), None)
    }

    fn rows(&self, value: usize) -> Vec<u64> {
        let txn = self.manager.begin();
        let found = self.index.query(Predicate::Equals(&self.keys[value]), txn.snapshot(), None);
        found.rows().into_iter().map(RowId::as_u64).collect()
    }

    fn change(&self, row: u64, old: Option<usize>, new: Option<usize>) {
        let mut txn = self.manager.begin();
        let mut changes = Changes::default();
        let (row, key) = (row_id(row), |value: usize| self.keys[value].clone());
        match (old, new) {
            (Some(old), Some(new)) => changes.update(row, key(old), key(new)),
            (Some(old), None) => changes.delete(row, key(old)),
            (None, Some(new)) => changes.insert(row, key(new)),
            (None, None) => {}
        }
        let cell = TransactionCell::of(&mut txn);
        self.index.publish(changes, &cell);
        txn.commit().expect("without a log no commit fails");
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.index.statistics())
    }
}

fn positions(values: &[u16], cardinality: usize) -> Vec<Vec<u64>> {
    let mut positions = vec![Vec::new(); cardinality];
    values.iter().enumerate().for_each(|(row, value)| positions[*value as usize].push(row as u64));
    positions
}
fn wah_vectors(values: &[u16], cardinality: usize) -> Vec<Wah> {
    positions(values, cardinality).iter().map(|bits| Wah::from_sorted(bits)).collect()
}

/// In-place+: value bitvectors only, one reader-writer latch.
pub struct InPlace(RwLock<Vec<Wah>>);

impl InPlace {
    pub fn new(values: &[u16], cardinality: usize) -> Self {
        Self(RwLock::new(wah_vectors(values, cardinality)))
    }
}

impl Index for InPlace {
    fn count(&self, value: usize) -> u64 {
        self.0.read()[value].count()
    }

    fn rows(&self, value: usize) -> Vec<u64> {
        self.0.read()[value].rows()
    }

    fn change(&self, row: u64, old: Option<usize>, new: Option<usize>) {
        let mut vectors = self.0.write();
        for value in [old, new].into_iter().flatten() {
            vectors[value].flip(row);
        }
    }
}

/// In-place changes of SeracDB's own bitvectors, whose containers can be changed one by one. It is
/// not in the paper: it shows the gain of the representation alone, without snapshots or
/// transactions.
pub struct InPlaceRoaring(RwLock<Vec<Bitvector>>);

impl InPlaceRoaring {
    pub fn new(values: &[u16], cardinality: usize) -> Self {
        let vectors = positions(values, cardinality).into_iter();
        Self(RwLock::new(vectors.map(|bits| Bitvector::from_sorted(bits.into_iter().map(row_id))).collect()))
    }
}

impl Index for InPlaceRoaring {
    fn count(&self, value: usize) -> u64 {
        self.0.read()[value].cardinality()
    }

    fn rows(&self, value: usize) -> Vec<u64> {
        let rows = self.0.read()[value].rows();
        rows.into_iter().map(RowId::as_u64).collect()
    }

    fn change(&self, row: u64, old: Option<usize>, new: Option<usize>) {
        let mut vectors = self.0.write();
        for (value, bit) in [(old, false), (new, true)] {
            if let Some(value) = value {
                vectors[value].set(row_id(row), bit);
            }
        }
    }
}

/// UCB+: value bitvectors, an existence bitvector, and appended rows in place of updated ones; one
/// reader-writer latch.
pub struct Ucb {
    vectors: RwLock<(Vec<Wah>, Wah)>,
    /// The present place of each row.
    places: Vec<AtomicU64>,
    end: AtomicU64,
}

impl Ucb {
    pub fn new(values: &[u16], cardinality: usize, rows: usize) -> Self {
        let all: Vec<u64> = (0..values.len() as u64).collect();
        Self {
            vectors: RwLock::new((wah_vectors(values, cardinality), Wah::from_sorted(&all))),
            places: (0..rows as u64).map(AtomicU64::new).collect(),
            end: AtomicU64::new(values.len() as u64),
        }
    }
}

impl Index for Ucb {
    fn count(&self, value: usize) -> u64 {
        let vectors = self.vectors.read();
        vectors.0[value].and_count(&vectors.1)
    }

    /// Places, not rows: a caller that needs rows has to look up the row of each place.
    fn rows(&self, value: usize) -> Vec<u64> {
        let vectors = self.vectors.read();
        vectors.0[value].and(&vectors.1).rows()
    }

    fn change(&self, row: u64, old: Option<usize>, new: Option<usize>) {
        let mut vectors = self.vectors.write();
        let place = &self.places[row as usize];
        if old.is_some() {
            vectors.1.flip(place.load(Ordering::Relaxed));
        }
        if let Some(new) = new {
            let end = self.end.fetch_add(1, Ordering::Relaxed);
            place.store(end, Ordering::Relaxed);
            vectors.0[new].flip(end);
            vectors.1.flip(end);
        }
    }
}

/// UpBit+: a value bitvector and an update bitvector per value with a latch for both, merged when a
/// query finds the latter long.
pub struct UpBit {
    values: Vec<RwLock<(Wah, Wah, usize)>>,
    /// Guards the number of rows, which inserts raise.
    rows: Mutex<u64>,
}

/// Bits in an update bitvector from which on a query merges it (the published setting of CUBIT and
/// of UpBit alike).
const UPBIT_MERGE: usize = 20;

impl UpBit {
    fn merge(&self, value: usize) -> RwLockWriteGuard<'_, (Wah, Wah, usize)> {
        let mut bits = self.values[value].write();
        *bits = (bits.0.xor(&bits.1), Wah::default(), 0);
        bits
    }

    pub fn new(values: &[u16], cardinality: usize) -> Self {
        let vectors = wah_vectors(values, cardinality).into_iter();
        Self {
            values: vectors.map(|vb| RwLock::new((vb, Wah::default(), 0))).collect(),
            rows: Mutex::new(values.len() as u64),
        }
    }
}

impl Index for UpBit {
    fn count(&self, value: usize) -> u64 {
        let bits = self.values[value].read();
        if bits.2 <= UPBIT_MERGE {
            return bits.0.xor_count(&bits.1);
        }
        drop(bits);
        self.merge(value).0.count()
    }

    fn rows(&self, value: usize) -> Vec<u64> {
        let bits = self.values[value].read();
        if bits.2 <= UPBIT_MERGE {
            return bits.0.xor(&bits.1).rows();
        }
        drop(bits);
        self.merge(value).0.rows()
    }

    fn change(&self, row: u64, old: Option<usize>, new: Option<usize>) {
        if old.is_none() {
            let mut rows = self.rows.lock();
            *rows = (*rows).max(row + 1);
        }
        // Both latches at once, in order of values, so that a query sees the row once.
        let mut values: Vec<usize> = [old, new].into_iter().flatten().collect();
        values.sort_unstable();
        values.dedup();
        if old == new {
            return;
        }
        let mut latches: Vec<_> = values.iter().map(|value| self.values[*value].write()).collect();
        for bits in &mut latches {
            bits.1.flip(row);
            bits.2 += 1;
        }
    }
}
