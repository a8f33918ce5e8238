//! Rows by key: the point reads and index scans of stored procedures and of compiled statements.
//!
//! An [`IndexAccess`] names an index of a table and the columns to be read. It is made once and
//! used by many transactions. A row is copied into a [`RowBuffer`], which the caller reuses for
//! each row, without Arrow batches in between. An entry of an index says that a version of its row
//! has the key. So the key's columns are read along with the others and compared with the entry.
//! For a whole key of a unique index, the row is tried first at which the last lookup found it.

use crate::catalog::{Catalog, DEFAULT_SCHEMA};
use crate::error::{Result, missing};
use crate::table::index::KeyRange;
use crate::table::{Table, TableIndex};
use crate::transaction::{Transaction, changed};
use serac_index::ordered::Limit;
use serac_index::ordered::key;
use serac_storage::{ColumnId, RowBuffer, RowId, Value, pin};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

thread_local! {
    /// Buffers for encoded keys.
    static KEYS: Cell<[Vec<u8>; 3]> = const { Cell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

/// Lends three empty buffers; a nested call gets fresh ones.
fn with_key_buffers<T>(f: impl FnOnce(&mut [Vec<u8>; 3]) -> T) -> T {
    let mut buffers = KEYS.take();
    buffers.iter_mut().for_each(Vec::clear);
    let result = f(&mut buffers);
    KEYS.set(buffers);
    result
}

/// A way to rows: an index of a table, and the columns to read of the rows it leads to.
#[derive(Clone, Debug)]
pub struct IndexAccess {
    catalog: Arc<Catalog>,
    table: Arc<Table>,
    index: Arc<TableIndex>,
    /// The columns asked for, and behind them the index's.
    read: Vec<ColumnId>,
    asked: usize,
}

impl IndexAccess {
    /// Access to `columns` (positions) through an index of a table of the catalog.
    pub fn new(catalog: &Arc<Catalog>, table: &Arc<Table>, index: &Arc<TableIndex>, columns: &[usize]) -> Self {
        let read = columns.iter().chain(&index.definition.columns).map(|&c| ColumnId(c as u16)).collect();
        Self { catalog: catalog.clone(), table: table.clone(), index: index.clone(), read, asked: columns.len() }
    }

    /// Access to columns of a table in the default schema through one of its indexes, all by name.
    ///
    /// # Errors
    /// [`crate::EngineError::Missing`].
    pub fn named(catalog: &Arc<Catalog>, table: &str, index: &str, columns: &[&str]) -> Result<Self> {
        let table = catalog.table(DEFAULT_SCHEMA, table)?;
        let Some(found) = table.indexes.iter().find(|known| known.definition.name == index) else {
            return missing("index", index);
        };
        Ok(Self::new(catalog, table, found, &positions(table, columns)?))
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The index.
    pub fn index(&self) -> &Arc<TableIndex> {
        &self.index
    }
}

/// The positions of columns, by name.
pub(crate) fn positions(table: &Table, columns: &[&str]) -> Result<Vec<usize>> {
    columns.iter().map(|&name| table.definition.column(name).map_or_else(|| missing("column", name), Ok)).collect()
}

impl Transaction {
    /// Reads the row with this key of a unique index and returns its id. `None` if there is no such
    /// row, or if a value is NULL.
    ///
    /// # Errors
    /// An error when the row lies in a damaged file.
    pub fn get(&self, access: &IndexAccess, key: &[Value<'_>], out: &mut RowBuffer) -> Result<Option<RowId>> {
        let mut found = None;
        self.scan(access, &KeyRange::prefix(key), out, |row, _| {
            found = Some(row);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Prefetches the rows with these keys of a unique index, for [`get`](Self::get)s that follow.
    /// Without it, each `get` waits for the index's nodes and then for the row's cells. Changes
    /// nothing, and never fails.
    pub fn look_ahead<'v, K: AsRef<[Value<'v>]>>(&self, access: &IndexAccess, keys: impl IntoIterator<Item = K>) {
        let _pinned = pin();
        with_key_buffers(|[encoded, ..]| {
            let mut ends = Vec::new();
            for key in keys {
                for (value, &encoding) in key.as_ref().iter().zip(&access.index.encodings) {
                    key::push(encoded, value, encoding);
                }
                ends.push(encoded.len());
            }
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let mut rows = Vec::with_capacity(ends.len());
            let keys = starts.zip(&ends).map(|(start, &end)| &encoded[start..end]);
            access.index.entries.look_ahead(keys, |row| rows.push(row));
            access.table.data.look_ahead(&rows, &access.read);
        });
    }

    /// Reads the rows with keys in a range, in the order of the index, until `visit` breaks or
    /// fails. The transaction's own changes are seen.
    ///
    /// # Errors
    /// The errors of `visit`, and an error when a row lies in a damaged file.
    pub fn scan(
        &self,
        access: &IndexAccess,
        range: &KeyRange<'_>,
        out: &mut RowBuffer,
        mut visit: impl FnMut(RowId, &RowBuffer) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.check_current(&access.catalog, &access.table)?;
        let pinned = pin();
        with_key_buffers(|[from, to, actual]| {
            let snapshot = self.snapshot();
            let IndexAccess { table, index, read, asked, .. } = access;
            let is_whole = index.definition.unique && range.equal.len() == index.encodings.len();
            let (from, to) = if is_whole {
                // NULL equals nothing.
                if !range.push_equal(&index.encodings, from) {
                    return Ok(());
                }
                (Limit::before(from), Limit::after(from))
            } else {
                let Some(limits) = range.limits(&index.encodings, from, to) else { return Ok(()) };
                limits
            };
            if let Some(reads) = self.reads() {
                reads.note_range(table, index, from, to);
            }
            if is_whole
                && let Some(row) = index.entries.hint(from.prefix, &pinned)
                // A hint that has become wrong may lead to a damaged file: only the tree's rows may
                // fail.
                && matches!(table.data.read_pinned(snapshot, row, read, out, &pinned), Ok(true))
                && range.equal.iter().zip(*asked..).all(|(value, i)| out.holds(i, value))
            {
                return visit(row, out).map(drop);
            }
            // Reads the row, if the transaction sees it, and encodes the key that it has.
            let fetch = |row, out: &mut RowBuffer, actual: &mut Vec<u8>| -> Result<bool> {
                if !table.data.read_pinned(snapshot, row, read, out, &pinned)? {
                    return Ok(false);
                }
                actual.clear();
                for (i, &encoding) in (*asked..read.len()).zip(&index.encodings) {
                    key::push(actual, &out.value(i), encoding);
                }
                Ok(true)
            };
            // Rows that lie side by side are brought together by the memory itself.
            let mut last = RowId::from_u64(0);
            let coming = |row: RowId| {
                if row.as_u64().abs_diff(last.as_u64()) > 1 {
                    table.data.prefetch_row(row, read, &pinned);
                }
                last = row;
            };
            let outcome = index.entries.scan_ahead(from, to, range.reverse, coming, |entry, row| {
                let visited = (|| {
                    if !fetch(row, out, actual)? || !entry.is(actual) {
                        return Ok(ControlFlow::Continue(()));
                    }
                    if is_whole {
                        index.entries.remember(from.prefix, row, || table.data.approximate_rows());
                    }
                    visit(row, out)
                })();
                match visited {
                    Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
                    Ok(ControlFlow::Break(())) => ControlFlow::Break(Ok(())),
                    Err(error) => ControlFlow::Break(Err(error)),
                }
            });
            match outcome {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(result) => result,
            }
        })
    }

    /// Checks that an object made from `catalog` still holds: that the transaction's catalog has
    /// the same table.
    pub(crate) fn check_current(&self, catalog: &Arc<Catalog>, table: &Arc<Table>) -> Result<()> {
        let current = || self.catalog.table(&table.definition.schema, table.name());
        if Arc::ptr_eq(catalog, &self.catalog) || current().is_ok_and(|current| Arc::ptr_eq(current, table)) {
            Ok(())
        } else {
            Err(changed(table))
        }
    }

    /// Reads columns of a visible row; false if the transaction does not see the row.
    ///
    /// # Errors
    /// An error when the row lies in a damaged file.
    pub fn read(&self, table: &Table, row: RowId, columns: &[ColumnId], out: &mut RowBuffer) -> Result<bool> {
        Ok(table.data.read(self.snapshot(), row, columns, out)?)
    }
}
