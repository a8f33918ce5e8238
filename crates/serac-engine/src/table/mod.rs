//! A table of the catalog: its definition, its data and its indexes.

pub(crate) mod access;
pub mod bitmap;
pub(crate) mod column_filter;
pub(crate) mod entries;
pub(crate) mod export;
pub(crate) mod expressions;
pub(crate) mod lock;
pub(crate) mod statement;
pub mod statistics;
pub(crate) mod write;

use crate::catalog::definition::{KeyDefinition, TableDefinition};
use crate::constraint::parent_pins::ParentPins;
use crate::error::{EngineError, Result};
use crate::table::access::KeyRange;
use crate::table::bitmap::BitmapIndex;
use crate::table::lock::TableLock;
use crate::table::statistics::{StatisticsCache, TableStatistics};
use crate::table::write::remove_if_unused;
use crate::transaction::watch::{Watch, go_on};
use serac_index::cubit::Predicate;
use serac_index::ordered::key::{self, Encoding, Meaning};
use serac_index::ordered::{Entries, OrderedIndex};
use serac_storage::version::transaction::TransactionManager;
use serac_storage::{BlockNo, Blocker, ColumnId, DataTable, LatestState, RowBuffer, RowId, Snapshot, Value};
use serac_sync::atomic::{AtomicBool, Ordering, fence};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Entries of a key whose rows do not have it in their newest states, from which on these are
/// looked at again.
const PAST_ENTRIES: u64 = 16;

/// An ordered index of a table, and the rule it enforces.
#[derive(Debug)]
pub struct TableIndex {
    /// Name, columns, uniqueness.
    pub definition: KeyDefinition,
    /// The entries.
    pub entries: Arc<OrderedIndex>,
    /// The encodings of the columns.
    pub(crate) encodings: Vec<Encoding>,
}

impl TableIndex {
    /// An empty index of a table.
    pub(crate) fn new(definition: &KeyDefinition, table: &TableDefinition) -> Self {
        let types = definition.columns.iter().map(|&c| table.columns[c].sql_type.column_type);
        let entries = Arc::new(OrderedIndex::new(key::most_bytes(types)));
        Self::over(definition, table, entries)
    }

    fn over(definition: &KeyDefinition, table: &TableDefinition, entries: Arc<OrderedIndex>) -> Self {
        let encoding = |(i, &column): (usize, &usize)| {
            let order = definition.order(i);
            Encoding {
                descending: order.descending,
                nulls_first: order.nulls_first,
                meaning: Meaning::of(table.columns[column].sql_type.column_type),
            }
        };
        let encodings = definition.columns.iter().enumerate().map(encoding).collect();
        Self { definition: definition.clone(), entries, encodings }
    }

    /// The key of values of the index's columns, and whether one of them is NULL.
    pub(crate) fn encode_key<'v>(&self, values: impl Iterator<Item = Value<'v>>) -> (Vec<u8>, bool) {
        let mut key = Vec::new();
        let has_null = self.push_key(values, &mut key);
        (key, has_null)
    }

    /// Appends the key of values of the index's columns; true if one of them is NULL.
    fn push_key<'v>(&self, values: impl Iterator<Item = Value<'v>>, key: &mut Vec<u8>) -> bool {
        let mut has_null = false;
        for (value, &encoding) in values.zip(&self.encodings) {
            has_null |= !key::push(key, &value, encoding);
        }
        has_null
    }

    /// The key of a row whose indexed columns are in the buffer.
    pub(crate) fn key_in(&self, buffer: &RowBuffer) -> Vec<u8> {
        self.encode_key((0..buffer.len()).map(|i| buffer.value(i))).0
    }

    /// Appends the key of the index's columns among a row's values; false if one of them is NULL.
    pub(crate) fn encode(&self, row: &[Value<'_>], key: &mut Vec<u8>) -> bool {
        let mut complete = true;
        for (&column, &encoding) in self.definition.columns.iter().zip(&self.encodings) {
            complete &= key::push(key, &row[column], encoding);
        }
        complete
    }

    /// The index's columns as the storage numbers them.
    pub fn column_ids(&self) -> Vec<ColumnId> {
        self.definition.columns.iter().map(|&c| ColumnId(c as u16)).collect()
    }

    /// The key of the index's columns among a row's values.
    pub fn key_of(&self, row: &[Value<'_>]) -> (Vec<u8>, bool) {
        let mut key = Vec::new();
        let complete = self.encode(row, &mut key);
        (key, !complete)
    }

    /// The rows that have this key in `snapshot`.
    ///
    /// # Errors
    /// An error when a row lies in a damaged file.
    pub fn lookup(&self, data: &DataTable, snapshot: &Snapshot, values: &[Value<'_>]) -> Result<Vec<RowId>> {
        let (wanted, has_null) = self.encode_key(values.iter().copied());
        if has_null { Ok(Vec::new()) } else { self.lookup_key(data, snapshot, &wanted) }
    }

    /// Visits the rows that have a key in a range in any snapshot, in the order of the index, until
    /// `visit` breaks. A row comes once for each of these keys.
    pub fn candidates(&self, range: &KeyRange<'_>, mut visit: impl FnMut(RowId) -> ControlFlow<()>) {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        if let Some((from, to)) = range.limits(&self.encodings, &mut from, &mut to) {
            let _ = self.entries.scan(from, to, range.reverse, |_, row| visit(row));
        }
    }

    /// The row other than `except` whose newest state has this encoded key.
    ///
    /// Rows are looked at until the index names no other. A row that is found gone may have been
    /// moved, and the entry of its new place was there before it went. The new place may be one
    /// without a row at the first look, for which the index has an old entry. So all are looked at
    /// again if rows of the table have left their places meanwhile. Under a long snapshot, entries
    /// of deleted rows stay. If there are [`PAST_ENTRIES`] of them, they are looked at again here,
    /// and unneeded ones are removed: a key that comes and goes has few.
    ///
    /// # Errors
    /// An error when a row lies in a damaged file.
    pub(crate) fn newest_holder(
        &self,
        data: &Arc<DataTable>,
        snapshot: &Snapshot,
        wanted: &[u8],
        except: Option<RowId>,
    ) -> Result<NewestHolder> {
        let (columns, mut buffer) = (self.column_ids(), RowBuffer::default());
        // Ascending, as the index names them.
        let mut seen: Vec<RowId> = except.into_iter().collect();
        let (mut open, mut had, mut without) = (None, false, Vec::new());
        let mut moves = data.moves();
        let first_moves = moves;
        // SeqCst: pairs with itself. If two transactions have added entries of one key, to two
        // leaves, and now look for others, at least one finds the other's entry.
        fence(Ordering::SeqCst);
        let holder = 'found: loop {
            let mut rows = self.entries.rows(wanted);
            rows.retain(|row| seen.binary_search(row).is_err());
            if rows.is_empty() {
                let before = std::mem::replace(&mut moves, data.moves());
                if open.is_none() && moves != before {
                    without.clear();
                    seen.clear();
                    seen.extend(except);
                    continue;
                }
                break open.map_or(NewestHolder::Nobody { had }, NewestHolder::Open);
            }
            had = true;
            for &row in &rows {
                match data.read_latest(snapshot, row, &columns, &mut buffer)? {
                    LatestState::Present if self.key_in(&buffer) == wanted => {
                        serac_sync::probe("the second look found the holder of a key", || moves != first_moves);
                        break 'found NewestHolder::Row(row);
                    }
                    LatestState::Absent | LatestState::Present => without.push(row),
                    LatestState::WrittenByOther(holder) => open = Some(data.blocker(snapshot, row, holder)),
                }
                #[cfg(test)]
                tests::after_a_look();
                serac_sync::linger();
            }
            seen.append(&mut rows);
            seen.sort();
        };
        if without.len() as u64 >= serac_sync::limit("entries of past versions", PAST_ENTRIES, 1) {
            let readers = snapshot.readers();
            without.into_iter().for_each(|row| _ = remove_if_unused(data, self, row, wanted, Some(&readers)));
        }
        Ok(holder)
    }

    /// The rows that have this encoded key in `snapshot`.
    pub(crate) fn lookup_key(&self, data: &DataTable, snapshot: &Snapshot, wanted: &[u8]) -> Result<Vec<RowId>> {
        let (columns, mut buffer) = (self.column_ids(), RowBuffer::default());
        let mut rows = self.entries.rows(wanted);
        let mut kept = 0;
        for i in 0..rows.len() {
            if data.read(snapshot, rows[i], &columns, &mut buffer)? && self.key_in(&buffer) == wanted {
                rows[kept] = rows[i];
                kept += 1;
            }
        }
        rows.truncate(kept);
        Ok(rows)
    }
}

/// The holder of a key in the newest state of the rows.
pub(crate) enum NewestHolder {
    /// `had`: the index names other rows, which have or had the key in a state.
    Nobody {
        had: bool,
    },
    Row(RowId),
    /// No holder so far, but a running transaction has written a row that has or had the key.
    Open(Arc<Blocker>),
}

/// The columns of all indexes, including those of foreign keys and of the columns that they
/// reference, as these have indexes.
fn key_columns(definition: &TableDefinition) -> Vec<ColumnId> {
    let keys = definition.keys.iter().flat_map(|key| key.columns.iter().copied());
    let columns: BTreeSet<usize> = keys.chain(definition.bitmaps.iter().map(|bitmap| bitmap.column)).collect();
    columns.into_iter().map(|c| ColumnId(c as u16)).collect()
}

/// A table as one version of the catalog has it. Versions share data, indexes and lock until DDL
/// changes them.
#[derive(Debug)]
pub struct Table {
    /// Names, columns, constraints.
    pub definition: TableDefinition,
    /// The rows.
    pub data: Arc<DataTable>,
    /// The indexes, in the order of the definition's keys.
    pub indexes: Vec<Arc<TableIndex>>,
    /// The bitmap indexes, in the order of the definition's.
    pub bitmaps: Vec<Arc<BitmapIndex>>,
    /// The columns of all indexes, ascending: the maintenance of a row's entries reads these.
    pub(crate) key_columns: Vec<ColumnId>,
    pub(crate) has_unique_key: bool,
    manager: Arc<TransactionManager>,
    /// Whether the newest catalog has the table, with this definition.
    is_current: AtomicBool,
    pub(crate) lock: Arc<TableLock>,
    pub(crate) parent_pins: Arc<ParentPins>,
    statistics: Arc<StatisticsCache>,
}

impl Table {
    /// A table over `data`, with empty ordered indexes, and bitmap indexes that are to be filled.
    pub(crate) fn new(definition: TableDefinition, data: Arc<DataTable>, manager: &Arc<TransactionManager>) -> Self {
        data.set_freeze_format(definition.freeze_format);
        data.set_ordered(definition.ordered);
        let indexes = definition.keys.iter().map(|key| Arc::new(TableIndex::new(key, &definition))).collect();
        let bitmaps = definition
            .bitmaps
            .iter()
            .map(|bitmap| {
                BitmapIndex::new(bitmap.clone(), definition.columns[bitmap.column].sql_type.column_type, manager)
            })
            .collect();
        Self {
            key_columns: key_columns(&definition),
            has_unique_key: definition.keys.iter().any(|key| key.unique),
            definition,
            data,
            indexes,
            bitmaps,
            manager: manager.clone(),
            is_current: AtomicBool::new(false),
            lock: Arc::default(),
            parent_pins: Arc::default(),
            statistics: Arc::default(),
        }
    }

    /// The same table under a changed definition whose columns and keys are where they were. New
    /// bitmap indexes are to be filled.
    pub(crate) fn redefined(&self, definition: TableDefinition) -> Self {
        Self {
            indexes: definition
                .keys
                .iter()
                .map(|key| {
                    let same = |old: &KeyDefinition| {
                        old.columns == key.columns && (0..key.columns.len()).all(|i| old.order(i) == key.order(i))
                    };
                    let old = self.indexes.iter().find(|index| same(&index.definition));
                    Arc::new(match old {
                        Some(old) => TableIndex::over(key, &definition, old.entries.clone()),
                        None => TableIndex::new(key, &definition),
                    })
                })
                .collect(),
            bitmaps: definition
                .bitmaps
                .iter()
                .map(|bitmap| {
                    let column_type = definition.columns[bitmap.column].sql_type.column_type;
                    let old = self.bitmaps.iter().find(|b| b.definition == *bitmap && b.column_type == column_type);
                    old.cloned().unwrap_or_else(|| BitmapIndex::new(bitmap.clone(), column_type, &self.manager))
                })
                .collect(),
            manager: self.manager.clone(),
            is_current: AtomicBool::new(false),
            key_columns: key_columns(&definition),
            has_unique_key: definition.keys.iter().any(|key| key.unique),
            definition,
            data: self.data.clone(),
            lock: self.lock.clone(),
            parent_pins: self.parent_pins.clone(),
            statistics: self.statistics.clone(),
        }
    }

    /// Whether it is the same version of the same table: a row written to one is in the indexes of
    /// the other.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let mut indexes = self.indexes.iter().zip(&other.indexes);
        let mut bitmaps = self.bitmaps.iter().zip(&other.bitmaps);
        std::ptr::eq(self, other)
            || self.definition == other.definition
                && indexes.all(|(own, other)| Arc::ptr_eq(&own.entries, &other.entries))
                && bitmaps.all(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// Whether the newest catalog has the table, as it is here.
    pub(crate) fn is_current(&self) -> bool {
        // Acquire: pairs with `set_current`.
        self.is_current.load(Ordering::Acquire)
    }

    /// Notes whether the newest catalog has the table. Called when a catalog is published.
    pub(crate) fn set_current(&self, is_current: bool) {
        // Release: pairs with `is_current`.
        self.is_current.store(is_current, Ordering::Release);
    }

    /// The values of the key columns in `buffer`, each at its column's position; NULL in all
    /// others.
    pub(crate) fn spread<'b>(&self, buffer: &'b RowBuffer) -> Vec<Value<'b>> {
        let mut row = vec![Value::Null; self.definition.columns.len()];
        self.key_columns.iter().enumerate().for_each(|(i, column)| row[column.0 as usize] = buffer.value(i));
        row
    }

    /// The number of rows with children whose transactions are running, or are not seen by every
    /// snapshot.
    pub fn pinned_rows(&self) -> usize {
        self.parent_pins.len()
    }

    /// Estimates for planning.
    pub fn statistics(&self, snapshot: &Snapshot) -> Arc<TableStatistics> {
        self.statistics.get(&self.data, snapshot)
    }

    /// The unqualified name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The error that a NOT NULL column has a NULL.
    pub fn null_in(&self, column: &str) -> EngineError {
        let TableDefinition { schema, name, .. } = &self.definition;
        EngineError::NotNull { schema: schema.clone(), table: name.clone(), column: column.into(), row: None }
    }

    /// The error that a CHECK constraint does not hold.
    pub fn check_violated(&self, constraint: &str) -> EngineError {
        let TableDefinition { schema, name, .. } = &self.definition;
        EngineError::Check { schema: schema.clone(), table: name.clone(), constraint: constraint.into(), row: None }
    }

    /// The index over exactly these columns, in any order.
    pub fn index_on(&self, columns: &[usize]) -> Option<&Arc<TableIndex>> {
        self.indexes.iter().find(|index| {
            index.definition.columns.len() == columns.len()
                && index.definition.columns.iter().all(|c| columns.contains(c))
        })
    }

    /// The index over these columns in this order, which both ends of a foreign key have.
    pub(crate) fn index_for_key(&self, columns: &[usize]) -> &Arc<TableIndex> {
        let mut indexes = self.indexes.iter();
        let is_plain = |index: &&Arc<TableIndex>| index.definition.columns == columns && index.definition.is_plain();
        indexes.find(is_plain).expect("both ends of a foreign key have an index")
    }

    /// The index on the columns of one of the table's foreign keys.
    pub(crate) fn index_of_foreign_key(&self, foreign_key: usize) -> &Arc<TableIndex> {
        self.index_for_key(&self.definition.foreign_keys[foreign_key].columns)
    }

    /// Adds every visible row to the index (after recovery, or for a new index).
    ///
    /// # Errors
    /// An error when a row lies in a damaged file; the errors of the watch.
    pub(crate) fn fill_index(&self, index: &TableIndex, snapshot: &Snapshot, watch: Option<&dyn Watch>) -> Result<()> {
        let (columns, mut buffer, mut key) = (index.column_ids(), RowBuffer::default(), Vec::new());
        let rows = self.data.metrics().rows as usize;
        go_on(watch, Entries::bytes_of(rows))?;
        let mut entries = index.entries.entries(rows);
        for no in 0..self.data.block_count() {
            go_on(watch, entries.bytes())?;
            let Some(reader) = self.data.read_block(snapshot, BlockNo(no)) else { continue };
            // Once for the block, and not for each of its rows.
            let pin = serac_storage::pin();
            for &row in reader.row_ids(reader.visible()).values() {
                let row = RowId::from_u64(row);
                if self.data.read_pinned(snapshot, row, &columns, &mut buffer, &pin)? {
                    key.clear();
                    index.push_key((0..buffer.len()).map(|i| buffer.value(i)), &mut key);
                    entries.push(&key, row);
                }
            }
        }
        if watch.is_some() {
            let bytes = entries.bytes();
            index.entries.sort(&mut entries, || go_on(watch, bytes))?;
        }
        index.entries.fill(entries);
        Ok(())
    }

    /// Fills the bitmap indexes of a table that was just made.
    ///
    /// # Errors
    /// An error when a row lies in a damaged file.
    pub(crate) fn fill_bitmaps(&self, snapshot: &Snapshot) -> Result<()> {
        self.bitmaps.iter().try_for_each(|index| index.fill(&self.data, snapshot))
    }

    /// Checks that every row that `snapshot` sees is in every index, and that bitmap indexes have
    /// no other. There must be no writer meanwhile.
    ///
    /// # Panics
    /// If a row is missing.
    pub fn verify(&self, snapshot: &Snapshot) {
        self.verify_bitmaps(snapshot);
        for index in &self.indexes {
            let (columns, mut buffer) = (index.column_ids(), RowBuffer::default());
            let mut rows = 0;
            for no in 0..self.data.block_count() {
                let Some(reader) = self.data.read_block(snapshot, BlockNo(no)) else { continue };
                for &row in reader.row_ids(reader.visible()).values() {
                    let row = RowId::from_u64(row);
                    assert!(self.data.read(snapshot, row, &columns, &mut buffer).expect("no file is damaged"));
                    let wanted = index.key_in(&buffer);
                    assert!(
                        index.entries.rows(&wanted).contains(&row),
                        "{row:?} is missing in index {}",
                        index.definition.name
                    );
                    rows += 1;
                }
            }
            assert!(index.entries.verify() >= rows, "index {} has fewer entries than rows", index.definition.name);
        }
    }

    /// Checks that bitmap indexes have the rows that `snapshot` sees, and no other, also while
    /// others write.
    ///
    /// # Panics
    /// If they have others.
    pub fn verify_bitmaps(&self, snapshot: &Snapshot) {
        for index in &self.bitmaps {
            let (column, mut buffer) = (ColumnId(index.definition.column as u16), RowBuffer::default());
            let mut expected: BTreeMap<_, Vec<RowId>> = BTreeMap::new();
            for no in 0..self.data.block_count() {
                let Some(reader) = self.data.read_block(snapshot, BlockNo(no)) else { continue };
                for &row in reader.row_ids(reader.visible()).values() {
                    let row = RowId::from_u64(row);
                    assert!(self.data.read(snapshot, row, &[column], &mut buffer).expect("no file is damaged"));
                    expected.entry(index.key(buffer.value(0))).or_default().push(row);
                }
            }
            let all = Predicate::Range(Bound::Unbounded, Bound::Unbounded);
            let counts: Vec<_> = expected.iter().map(|(key, rows)| (key.clone(), rows.len() as u64)).collect();
            assert_eq!(index.entries.counts(all, snapshot, None), counts, "bitmap index {}", index.definition.name);
            for (key, rows) in expected {
                let found = index.entries.query(Predicate::Equals(&key), snapshot, None);
                assert_eq!(found.rows(), rows, "{key:?} of bitmap index {}", index.definition.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;
    use crate::catalog::definition::ColumnDefinition;
    use serac_storage::{ColumnType, StorageOptions};
    use serac_sync::time::Duration;
    use std::cell::RefCell;

    thread_local! {
        /// A test's action after the thread's next look at a row.
        static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    pub(super) fn after_a_look() {
        if let Some(meanwhile) = MEANWHILE.take() {
            meanwhile();
        }
    }

    #[test]
    fn the_holder_of_a_key_is_found_that_moves_to_a_place_that_was_empty_before() {
        let options = StorageOptions { gc_threads: 0, freeze_after: None, ..Default::default() };
        let db = Database::open_with(options).unwrap();
        let column = ColumnDefinition::new("id", ColumnType::Int64);
        let mut definition = TableDefinition::new("public", "t", vec![column]);
        definition.keys = vec![KeyDefinition { name: "t_id".into(), columns: vec![0], ..Default::default() }];
        let mut txn = db.begin();
        txn.create_table(definition).unwrap();
        let table = txn.catalog().table("public", "t").unwrap().clone();
        let rows: Vec<RowId> = (0..10).map(|id| txn.insert_row(&table, &[Value::Int64(id)]).unwrap()).collect();
        txn.commit().unwrap();
        let mut txn = db.begin();
        txn.delete_batch(&table, &rows[..5]).unwrap();
        txn.commit().unwrap();
        while db.storage().manager().gc().backlog() > 0 {
            db.storage().run_gc();
        }

        // The last row goes to the last empty place before the others. An entry from earlier on is
        // still there.
        let (index, key) = (&table.indexes[0], table.indexes[0].key_of(&[Value::Int64(9)]).0);
        index.entries.insert(&key, rows[4]);
        let txn = db.begin();
        let (storage, data) = (db.storage().clone(), table.data.clone());
        MEANWHILE.set(Some(Box::new(move || _ = storage.freeze_table(&data, Duration::ZERO))));
        let holder = index.newest_holder(&table.data, txn.snapshot(), &key, None).unwrap();
        assert!(matches!(holder, NewestHolder::Row(row) if row == rows[4]), "it has moved from {:?}", rows[9]);
    }
}
