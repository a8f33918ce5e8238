//! A table of the catalog: its definition, its data and its indexes.

pub(crate) mod access;
pub mod bitmap;
pub(crate) mod column_filter;
pub(crate) mod entries;
pub(crate) mod export;
pub(crate) mod expressions;
pub(crate) mod fit;
pub(crate) mod given;
pub(crate) mod index;
pub(crate) mod lock;
pub(crate) mod statement;
pub mod statistics;
pub(crate) mod write;

use crate::catalog::definition::{KeyDefinition, TableDefinition};
use crate::constraint::parent_pins::ParentPins;
use crate::error::{EngineError, FailingRow, Result};
use crate::table::bitmap::BitmapIndex;
use crate::table::lock::TableLock;
use crate::table::statistics::{StatisticsCache, TableStatistics};
use crate::values::OwnedValue;
use crate::watch::{Watch, go_on};
use serac_index::cubit::Predicate;
use serac_index::ordered::Entries;
use serac_storage::version::transaction::TransactionManager;
use serac_storage::{BlockNo, ColumnId, DataTable, RowBuffer, RowId, Snapshot, Value};
use serac_sync::atomic::{AtomicBool, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

pub use crate::table::index::TableIndex;

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

impl EngineError {
    /// Adds the refused row of the table, with a value for each column, to an error of NOT NULL or
    /// of a CHECK. Other errors stay as they are.
    #[must_use]
    pub fn of_row(mut self, table: &Table, values: &[Value<'_>]) -> Self {
        if let Self::NotNull { row, .. } | Self::Check { row, .. } = &mut self {
            let values = values.iter().map(OwnedValue::from).collect();
            *row = Some(Arc::new(FailingRow { table: table.definition.clone(), values }));
        }
        self
    }
}
