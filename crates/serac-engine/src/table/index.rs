//! An ordered index of a table: its keys, the rows that a key leads to, and ranges of keys.
//!
//! An entry says that a version of a row has a key. A reader that finds a row by an entry compares
//! the key with the version that it sees. An entry goes once no version that a reader may reach has
//! its key ([`remove_if_unused`]).

use crate::catalog::definition::{KeyDefinition, TableDefinition};
use crate::error::Result;
use serac_index::ordered::key::{self, Encoding};
use serac_index::ordered::{Limit, OrderedIndex};
use serac_storage::version::transaction::Readers;
use serac_storage::{Blocker, ColumnId, DataTable, LatestState, RowBuffer, RowId, Snapshot, Value};
use serac_sync::atomic::{Ordering, fence};
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

    pub(super) fn over(definition: &KeyDefinition, table: &TableDefinition, entries: Arc<OrderedIndex>) -> Self {
        let encoding = |(i, &column): (usize, &usize)| {
            let order = definition.order(i);
            Encoding {
                descending: order.descending,
                nulls_first: order.nulls_first,
                meaning: table.columns[column].sql_type.meaning(),
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
    pub(super) fn push_key<'v>(&self, values: impl Iterator<Item = Value<'v>>, key: &mut Vec<u8>) -> bool {
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

/// Keys of an index: equal in its first columns, and in a range of the next column.
///
/// A range with a bound has no NULL, as in SQL; without bounds it has all keys that begin with the
/// equal values.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// Values of the first columns.
    pub equal: &'a [Value<'a>],
    /// Lower bound of the next column.
    pub lower: Bound<Value<'a>>,
    /// Upper bound of the next column.
    pub upper: Bound<Value<'a>>,
    /// Whether rows come against the order of the index.
    pub reverse: bool,
}

impl<'a> KeyRange<'a> {
    /// The keys that begin with these values.
    pub fn prefix(equal: &'a [Value<'a>]) -> Self {
        Self { equal, lower: Bound::Unbounded, upper: Bound::Unbounded, reverse: false }
    }

    /// Adds a lower bound of the column after the equal ones.
    #[must_use]
    pub fn from(self, lower: Bound<Value<'a>>) -> Self {
        Self { lower, ..self }
    }

    /// Adds an upper bound of the column after the equal ones.
    #[must_use]
    pub fn to(self, upper: Bound<Value<'a>>) -> Self {
        Self { upper, ..self }
    }

    /// From the last key to the first.
    #[must_use]
    pub fn backwards(self) -> Self {
        Self { reverse: true, ..self }
    }

    /// Encodes the equal values; false if one is NULL, which equals no value.
    pub(crate) fn push_equal(&self, encodings: &[Encoding], key: &mut Vec<u8>) -> bool {
        self.equal.iter().zip(encodings).all(|(value, &encoding)| key::push(key, value, encoding))
    }

    /// The limits of the keys, encoded into `from` and `to`. `None` if no key can match.
    pub(crate) fn limits<'b>(
        &self,
        encodings: &[Encoding],
        from: &'b mut Vec<u8>,
        to: &'b mut Vec<u8>,
    ) -> Option<(Limit<'b>, Limit<'b>)> {
        if !self.push_equal(encodings, from) {
            return None;
        }
        to.extend_from_slice(from);
        let is_bounded = |bound: &Bound<Value<'_>>| !matches!(bound, Bound::Unbounded);
        let bounded = is_bounded(&self.lower) || is_bounded(&self.upper);
        let encoding = encodings.get(self.equal.len()).copied().unwrap_or_default();
        let side = |bound: &Bound<Value<'a>>, out: &mut Vec<u8>, upper: bool| match bound {
            Bound::Included(Value::Null) | Bound::Excluded(Value::Null) => None,
            Bound::Included(value) => {
                key::push(out, value, encoding);
                Some(upper)
            }
            Bound::Excluded(value) => {
                key::push(out, value, encoding);
                Some(!upper)
            }
            Bound::Unbounded => {
                if bounded {
                    out.push(key::VALUE);
                }
                Some(upper)
            }
        };
        let (first, last) = if encoding.descending { (&self.upper, &self.lower) } else { (&self.lower, &self.upper) };
        let (from_after, to_after) = (side(first, from, false)?, side(last, to, true)?);
        Some((Limit { prefix: from, after: from_after }, Limit { prefix: to, after: to_after }))
    }
}

/// Removes an index entry unless a reachable version of the row has the key. With `readers`, only
/// past versions that one of them may read count. Returns whether it did.
pub(crate) fn remove_if_unused(
    data: &DataTable,
    index: &TableIndex,
    row: RowId,
    wanted: &[u8],
    readers: Option<&Readers>,
) -> bool {
    let mut is_used = true;
    index.entries.remove_unless(wanted, row, || {
        let mut has_key = |version: &RowBuffer| index.key_in(version) == wanted;
        // A row that cannot be read keeps its entry.
        is_used = data.any_version_matches(row, &index.column_ids(), readers, &mut has_key).unwrap_or(true);
        is_used
    });
    !is_used
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
