//! Bitmap indexes of tables ([`serac_index::cubit`]), kept by every write.
//!
//! A transaction collects what its writes do to each index (`BitmapChanges`); savepoints mark the
//! lengths of these lists. Just before the storage commits, one [`TransactionCell`] is made and all
//! lists are published with it, so that table and indexes change at one instant. An abort drops the
//! lists. Moves of compaction are published the same way (`crate::transaction::row_follower`). An
//! index is built from the rows that the snapshot of CREATE INDEX sees, while the table's lock
//! keeps writers out and ensures that there is no newer row. The transaction's own uncommitted rows
//! are among them: the index is not visible before they are committed, and a rollback to before
//! them drops it, too. Recovery builds all indexes anew.
//!
//! Queries get a [`BitmapReader`]: the index, the snapshot, and the transaction's own changes.

use crate::catalog::definition::BitmapDefinition;
use crate::error::Result;
use crate::values::{OwnedValue, value_at};
use serac_index::cubit::{Bitvector, Builder, Changes, Cubit, Key, Options, Predicate, Selected, TransactionCell};
use serac_index::ordered::key::{self, Encoding, Meaning};
use serac_numeric::Numeric;
use serac_storage::types::PhysicalType;
use serac_storage::version::transaction::TransactionManager;
use serac_storage::{BlockNo, ColumnId, ColumnType, DataTable, RowId, ScanColumn, Snapshot, Transaction, Value};
use serac_sync::atomic::{AtomicBool, Ordering};
use serac_sync::{Mutex, MutexGuard};
use std::ops::Bound;
use std::sync::Arc;

/// A transaction with more changes than this in an index reads the table in its place: each query
/// would go through all of them.
const MOST_OWN_CHANGES: usize = 1024;

/// A bitmap index of a table.
#[derive(Debug)]
pub struct BitmapIndex {
    /// Name and column.
    pub definition: BitmapDefinition,
    /// Type of the column.
    pub column_type: ColumnType,
    /// The index.
    pub entries: Arc<Cubit>,
}

/// Bytes of an interval that order as its months, then its days, then its nanoseconds do.
fn ordered_interval(v: i128) -> [u8; 16] {
    let months = (v as u32 ^ 1 << 31).to_be_bytes();
    let days = ((v >> 32) as u32 ^ 1 << 31).to_be_bytes();
    let nanoseconds = ((v >> 64) as u64 ^ 1 << 63).to_be_bytes();
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&months);
    bytes[4..8].copy_from_slice(&days);
    bytes[8..].copy_from_slice(&nanoseconds);
    bytes
}
fn interval_of(bytes: [u8; 16]) -> i128 {
    let word = u128::from_be_bytes(bytes);
    let (months, days) = ((word >> 96) as u32 ^ 1 << 31, (word >> 64) as u32 ^ 1 << 31);
    let nanoseconds = word as u64 ^ 1 << 63;
    (u128::from(nanoseconds) << 64 | u128::from(days) << 32 | u128::from(months)) as i128
}

impl BitmapIndex {
    /// An index that is to be filled.
    pub(crate) fn new(
        definition: BitmapDefinition,
        column_type: ColumnType,
        manager: &Arc<TransactionManager>,
    ) -> Arc<Self> {
        let entries = Arc::new(Cubit::building(manager.clone(), Options::default()));
        Arc::new(Self { definition, column_type, entries })
    }

    /// The key of a value of the column. Two values have the same key exactly when SQL says that
    /// they are equal, and keys order as the values do. But intervals have the key of their parts,
    /// as Arrow compares them: SQL compares their lengths, for which it asks no bitmap index.
    pub fn key(&self, value: Value<'_>) -> Key {
        fn fixed<const N: usize>(bytes: [u8; N]) -> Key {
            let mut key = [1; 17];
            key[1..=N].copy_from_slice(&bytes);
            Key::new(&key[..=N])
        }
        match value {
            // As `key::encode` has them, without a vector in between.
            Value::Int16(v) => fixed((v as u16 ^ 1 << 15).to_be_bytes()),
            Value::Int32(v) => fixed((v as u32 ^ 1 << 31).to_be_bytes()),
            Value::Int64(v) => fixed((v as u64 ^ 1 << 63).to_be_bytes()),
            // A UUID is kept as its bytes, which compare from the first on.
            Value::Int128(v) if self.column_type == ColumnType::Uuid => fixed(v.to_le_bytes()),
            Value::Int128(v) if self.column_type == ColumnType::Interval => fixed(ordered_interval(v)),
            Value::Float32(v) => fixed(key::ordered32(v).to_be_bytes()),
            Value::Float64(v) => fixed(key::ordered64(v).to_be_bytes()),
            value => {
                let mut key = Vec::with_capacity(16);
                let meaning = Meaning::of(self.column_type);
                key::push(&mut key, &value, Encoding { meaning, ..Encoding::default() });
                Key::new(&key)
            }
        }
    }

    /// The value of a key. Numbers that differ in zeros at their end alone have one key, which
    /// stands for one of them.
    pub fn value(&self, key: &Key) -> OwnedValue {
        key.with_bytes(|bytes| {
            fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
                bytes[1..].try_into().expect("the key of a value of this type")
            }
            OwnedValue::Fixed(match (bytes[0], self.column_type.physical()) {
                (1, PhysicalType::Bit) => Value::Bool(bytes[1] != 0),
                (1, PhysicalType::Fixed(4)) if self.column_type == ColumnType::Float32 => {
                    let bits = u32::from_be_bytes(fixed(bytes));
                    Value::Float32(f32::from_bits(if bits >> 31 == 1 { bits ^ 1 << 31 } else { !bits }))
                }
                (1, PhysicalType::Fixed(8)) if self.column_type == ColumnType::Float64 => {
                    let bits = u64::from_be_bytes(fixed(bytes));
                    Value::Float64(f64::from_bits(if bits >> 63 == 1 { bits ^ 1 << 63 } else { !bits }))
                }
                (1, PhysicalType::Fixed(16)) if self.column_type == ColumnType::Interval => {
                    Value::Int128(interval_of(fixed(bytes)))
                }
                (1, PhysicalType::Fixed(2)) => Value::Int16((u16::from_be_bytes(fixed(bytes)) ^ 1 << 15) as i16),
                (1, PhysicalType::Fixed(4)) => Value::Int32((u32::from_be_bytes(fixed(bytes)) ^ 1 << 31) as i32),
                (1, PhysicalType::Fixed(8)) => Value::Int64((u64::from_be_bytes(fixed(bytes)) ^ 1 << 63) as i64),
                (1, PhysicalType::Fixed(16)) if self.column_type == ColumnType::Uuid => {
                    Value::Int128(i128::from_le_bytes(fixed(bytes)))
                }
                (1, PhysicalType::Fixed(16)) => Value::Int128((u128::from_be_bytes(fixed(bytes)) ^ 1 << 127) as i128),
                (1, PhysicalType::View) => {
                    let escaped = &bytes[1..bytes.len() - 2];
                    let mut value = Vec::with_capacity(escaped.len());
                    let mut rest = escaped.iter();
                    while let Some(&byte) = rest.next() {
                        value.push(byte);
                        if byte == 0 {
                            rest.next();
                        }
                    }
                    if self.column_type == ColumnType::Numeric
                        && let Ok(number) = Numeric::of_key(&value)
                    {
                        value = number.to_stored();
                    }
                    return OwnedValue::Bytes(value.into());
                }
                _ => Value::Null,
            })
        })
    }

    /// The key of a row, given the values of all columns.
    pub(crate) fn key_of(&self, row: &[Value<'_>]) -> Key {
        self.key(row[self.definition.column])
    }

    /// Gives the index its rows: those that `snapshot` sees.
    ///
    /// # Errors
    /// An error when a row lies in a damaged file.
    pub(crate) fn fill(&self, data: &DataTable, snapshot: &Snapshot) -> Result<()> {
        let column = ScanColumn::arrow(ColumnId(self.definition.column as u16));
        let mut builder = Builder::default();
        for no in 0..data.block_count() {
            let Some(mut reader) = data.read_block(snapshot, BlockNo(no)) else { continue };
            let visible = reader.visible().clone();
            let values = reader.columns(&[column], &visible)?.remove(0);
            for (i, &row) in reader.row_ids(&visible).values().iter().enumerate() {
                builder.push(&self.key(value_at(&values, i, self.column_type)), RowId::from_u64(row));
            }
        }
        self.entries.load(builder, snapshot.start());
        Ok(())
    }
}

/// Lists of changes that a thread keeps for its next transactions.
const SPARE_LISTS: usize = 16;

/// The changes of a running transaction to bitmap indexes, in the order in which the indexes were
/// first touched.
#[derive(Debug, Default)]
pub(crate) struct BitmapChanges {
    lists: Vec<(Arc<Cubit>, Arc<Changes>)>,
    /// Empty lists, with memory.
    spare: Vec<Arc<Changes>>,
}

impl BitmapChanges {
    /// The changes of one index.
    pub(crate) fn of(&mut self, index: &BitmapIndex) -> &mut Changes {
        let at = self.lists.iter().position(|(entries, _)| Arc::ptr_eq(entries, &index.entries));
        let at = at.unwrap_or_else(|| {
            self.lists.push((index.entries.clone(), self.spare.pop().unwrap_or_default()));
            self.lists.len() - 1
        });
        // Copied if a query still has it: then it is short.
        Arc::make_mut(&mut self.lists[at].1)
    }

    /// The lengths of the lists, to [roll back to](Self::rollback_to).
    fn mark(&self) -> Vec<usize> {
        self.lists.iter().map(|(_, changes)| changes.len()).collect()
    }

    pub(crate) fn rollback_to(&mut self, mark: &[usize]) {
        self.lists.truncate(mark.len());
        for ((_, changes), &length) in self.lists.iter_mut().zip(mark) {
            if changes.len() > length {
                Arc::make_mut(changes).rollback_to(length);
            }
        }
    }

    /// Forgets everything, but keeps some memory.
    pub(crate) fn clear(&mut self) {
        for (_, changes) in self.lists.drain(..) {
            keep(&mut self.spare, changes);
        }
    }

    /// Puts the changes into the indexes' logs, from where they appear when `txn` commits. Called
    /// last before the commit. Returns the indexes that have got bulk inserts, which are to be
    /// merged afterwards.
    pub(crate) fn publish(&mut self, txn: &mut Transaction) -> Vec<Arc<Cubit>> {
        self.lists.retain(|(_, changes)| !changes.is_empty());
        if self.lists.is_empty() {
            return Vec::new();
        }
        let (cell, mut loaded) = (TransactionCell::of(txn), Vec::new());
        for (entries, mut changes) in self.lists.drain(..) {
            // Copied if a query still has it.
            let own = Arc::make_mut(&mut changes);
            let has_bulk = own.has_bulk();
            entries.publish_all(own, &cell);
            keep(&mut self.spare, changes);
            if has_bulk {
                loaded.push(entries);
            }
        }
        loaded
    }
}

/// Keeps a list that no query has, for the next transaction.
fn keep(spare: &mut Vec<Arc<Changes>>, mut changes: Arc<Changes>) {
    if spare.len() < SPARE_LISTS
        && let Some(own) = Arc::get_mut(&mut changes)
    {
        own.clear();
        spare.push(changes);
    }
}

/// A transaction's changes to bitmap indexes, shared with its queries.
#[derive(Clone, Debug, Default)]
pub struct OwnChanges(Arc<Own>);

#[derive(Debug, Default)]
struct Own {
    changes: Mutex<BitmapChanges>,
    /// Whether there may be changes. Relaxed: the transaction's own thread, one at a time, writes
    /// and reads it.
    any: AtomicBool,
}

impl OwnChanges {
    /// The changes, latched, for a further change.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BitmapChanges> {
        self.0.any.store(true, Ordering::Relaxed);
        self.0.changes.lock()
    }

    /// See [`BitmapChanges::mark`].
    pub(crate) fn mark(&self) -> Vec<usize> {
        if self.0.any.load(Ordering::Relaxed) { self.0.changes.lock().mark() } else { Vec::new() }
    }

    /// See [`BitmapChanges::rollback_to`].
    pub(crate) fn rollback_to(&self, mark: &[usize]) {
        if self.0.any.load(Ordering::Relaxed) {
            self.0.changes.lock().rollback_to(mark);
        }
    }

    /// See [`BitmapChanges::publish`].
    pub(crate) fn publish(&self, txn: &mut Transaction) -> Vec<Arc<Cubit>> {
        if self.0.any.load(Ordering::Relaxed) { self.0.changes.lock().publish(txn) } else { Vec::new() }
    }

    /// No changes yet, with memory of an earlier transaction.
    pub(crate) fn with_memory(changes: BitmapChanges) -> Self {
        Self(Arc::new(Own { changes: Mutex::new(changes), any: AtomicBool::new(false) }))
    }

    /// Memory for another transaction, unless a query still has the changes.
    pub(crate) fn take_memory(&mut self) -> BitmapChanges {
        let Some(own) = Arc::get_mut(&mut self.0) else { return BitmapChanges::default() };
        let mut changes = std::mem::take(own.changes.get_mut());
        changes.clear();
        changes
    }

    /// The index as `snapshot`, the transaction's, sees it now; `None` if the index cannot answer
    /// for it.
    pub fn reader(&self, index: &Arc<BitmapIndex>, snapshot: &Snapshot) -> Option<BitmapReader> {
        let changes = self.0.changes.lock();
        let known = changes.lists.iter().find(|(entries, _)| Arc::ptr_eq(entries, &index.entries));
        let own = known.map(|(_, own)| own).filter(|own| !own.is_empty());
        let is_short = |own: &Arc<Changes>| own.len() <= MOST_OWN_CHANGES && !own.has_bulk();
        let valid = index.entries.valid_from() <= snapshot.start() && own.is_none_or(is_short);
        valid.then(|| BitmapReader { index: index.clone(), snapshot: snapshot.clone(), own: own.cloned() })
    }
}

/// A bitmap index in a snapshot, own changes included: it returns the rows that a scan of the
/// snapshot finds.
#[derive(Clone, Debug)]
pub struct BitmapReader {
    index: Arc<BitmapIndex>,
    snapshot: Snapshot,
    own: Option<Arc<Changes>>,
}

impl BitmapReader {
    /// The index.
    pub fn index(&self) -> &Arc<BitmapIndex> {
        &self.index
    }

    /// All rows that the snapshot sees.
    pub fn row_count(&self) -> u64 {
        self.count(Predicate::Range(Bound::Unbounded, Bound::Unbounded))
    }

    /// See [`Cubit::query`].
    pub fn query(&self, predicate: Predicate<'_>) -> Bitvector {
        self.index.entries.query(predicate, &self.snapshot, self.own.as_deref())
    }

    /// See [`Cubit::select`].
    pub fn select(&self, predicate: Predicate<'_>) -> Selected {
        self.index.entries.select(predicate, &self.snapshot, self.own.as_deref())
    }

    /// See [`Cubit::effort`].
    pub fn effort(&self, predicate: Predicate<'_>, vector: f64, row: f64) -> f64 {
        self.index.entries.effort(predicate, &self.snapshot, vector, row)
    }

    /// See [`Cubit::count`].
    pub fn count(&self, predicate: Predicate<'_>) -> u64 {
        self.index.entries.count(predicate, &self.snapshot, self.own.as_deref())
    }

    /// See [`Cubit::counts`].
    pub fn counts(&self, predicate: Predicate<'_>) -> Vec<(Key, u64)> {
        self.index.entries.counts(predicate, &self.snapshot, self.own.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_give_back_their_values(number: i128, bytes in prop::collection::vec(0u8..3, 0..20)) {
            let manager = TransactionManager::new(serac_storage::Timestamp(1), None);
            let check = |column_type: ColumnType, value: Value<'_>| {
                let definition = BitmapDefinition { name: "i".into(), column: 0 };
                let index = BitmapIndex::new(definition, column_type, &manager);
                for value in [value, Value::Null] {
                    assert_eq!(index.value(&index.key(value)).as_value(), value);
                }
                if !matches!(column_type, ColumnType::Uuid | ColumnType::Interval) {
                    assert_eq!(index.key(value), Key::new(&key::encode(&[value]).0));
                }
            };
            check(ColumnType::Boolean, Value::Bool(number > 0));
            check(ColumnType::Int16, Value::Int16(number as i16));
            check(ColumnType::Date, Value::Int32(number as i32));
            check(ColumnType::Decimal { precision: 15, scale: 2 }, Value::Int64(number as i64));
            check(ColumnType::Decimal { precision: 30, scale: 2 }, Value::Int128(number));
            check(ColumnType::Uuid, Value::Int128(number));
            check(ColumnType::Binary, Value::Bytes(&bytes));
            check(ColumnType::Interval, Value::Int128(number));
            check(ColumnType::Float32, Value::Float32(number as f32));
            check(ColumnType::Float64, Value::Float64(number as f64));
        }

        #[test]
        fn keys_order_as_the_parts_of_intervals_do(x: (i32, i32, i64), y: (i32, i32, i64)) {
            let number = |v: (i32, i32, i64)| {
                (u128::from(v.2 as u64) << 64 | u128::from(v.1 as u32) << 32 | u128::from(v.0 as u32)) as i128
            };
            prop_assert_eq!(ordered_interval(number(x)).cmp(&ordered_interval(number(y))), x.cmp(&y));
        }
    }
}
