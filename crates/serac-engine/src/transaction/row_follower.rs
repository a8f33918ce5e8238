//! References to rows that compaction moves: the entries of their table's indexes, and the pins of
//! parents.
//!
//! The entries of a copy are added before its row is deleted. The entries of the row are removed
//! once no snapshot sees it there, as after any delete, and so are those of a copy that did not
//! stay. Bitmap indexes learn of the rows that have moved when the transaction is about to commit.
//! No unique key and no foreign key is checked: no value changes. A parent row that a child's
//! transaction has pinned stays where it is. Every kind of index that names rows has its part in
//! [`FollowMoves::copied`] and [`FollowMoves::finish`].

use crate::constraint::parent_pins::Pinned;
use crate::database_inner::DatabaseInner;
use crate::table::bitmap::BitmapChanges;
use crate::table::index::remove_if_unused;
use crate::table::lock::Hold;
use crate::table::{Table, TableIndex};
use serac_index::cubit::Key;
use serac_storage::freeze::compact::{FollowMoves, RowFollower};
use serac_storage::{DataTable, RowId, Transaction, Value};
use serac_sync::Mutex;
use serac_sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The engine's [`RowFollower`].
pub(crate) struct IndexFollower(Weak<DatabaseInner>);

impl IndexFollower {
    pub(crate) fn new(database: &Arc<DatabaseInner>) -> Self {
        Self(Arc::downgrade(database))
    }
}

/// A row, its copy, and their key in each index (and in each bitmap index).
struct Copied {
    row: RowId,
    copy: RowId,
    keys: Vec<Vec<u8>>,
    bitmap_keys: Vec<Key>,
}

struct IndexMoves {
    table: Arc<Table>,
    owner: u64,
    /// Shared with the action of a rollback.
    copied: Arc<Mutex<Vec<Copied>>>,
}

impl RowFollower for IndexFollower {
    fn follow(&self, data: &DataTable, txn: &mut Transaction) -> Option<Box<dyn FollowMoves>> {
        let database = self.0.upgrade()?;
        let current = |database: &DatabaseInner| {
            let catalog = database.newest_catalog();
            catalog.tables().find(|table| table.data.id() == data.id()).cloned()
        };
        let lock = current(&database)?.lock.clone();
        // Relaxed: numbers need only differ.
        let owner = database.next_owner.fetch_add(1, Ordering::Relaxed);
        if !lock.try_share(owner) {
            return None;
        }
        // From now on the table's indexes do not change.
        let table = match current(&database) {
            Some(table) if Arc::ptr_eq(&table.lock, &lock) && lock.last_change() <= txn.snapshot().start().0 => table,
            _ => {
                lock.release(owner);
                return None;
            }
        };
        txn.on_commit(Box::new(move |timestamp| lock.note_commit(timestamp.0, Hold::Write)));
        let copied: Arc<Mutex<Vec<Copied>>> = Arc::default();
        let (of_aborted, indexed, database) = (copied.clone(), table.clone(), self.0.clone());
        txn.on_abort(Box::new(move || {
            let mut copied = std::mem::take(&mut *of_aborted.lock());
            copied.retain(|copied| !remove_entries(&indexed, copied.copy, &copied.keys));
            // The records of a copy that was deleted again show it for a while.
            if let (false, Some(database)) = (copied.is_empty(), database.upgrade()) {
                database.storage.defer(Box::new(move || {
                    copied.iter().for_each(|copied| _ = remove_entries(&indexed, copied.copy, &copied.keys));
                }));
            }
        }));
        Some(Box::new(IndexMoves { table, owner, copied }))
    }
}

/// Removes the entries of a row unless a version has their keys. Returns whether all are gone.
fn remove_entries(table: &Table, row: RowId, keys: &[Vec<u8>]) -> bool {
    let mut all = true;
    for_each_key(table, keys, |index, key| all &= remove_if_unused(&table.data, index, row, key, None));
    all
}

fn for_each_key(table: &Table, keys: &[Vec<u8>], mut f: impl FnMut(&TableIndex, &[u8])) {
    table.indexes.iter().zip(keys).for_each(|(index, key)| f(index, key));
}

impl FollowMoves for IndexMoves {
    fn copied(&mut self, _: &mut Transaction, row: RowId, copy: RowId, values: &[Value<'_>]) {
        let keys: Vec<Vec<u8>> = self.table.indexes.iter().map(|index| index.key_of(values).0).collect();
        for_each_key(&self.table, &keys, |index, key| {
            index.entries.insert(key, copy);
        });
        let bitmap_keys = self.table.bitmaps.iter().map(|index| index.key_of(values)).collect();
        self.copied.lock().push(Copied { row, copy, keys, bitmap_keys });
    }

    fn may_leave(&mut self, txn: &Transaction, row: RowId) -> bool {
        self.table.parent_pins.of(row, txn.number(), txn.snapshot().start().0) == Pinned::Free
    }

    fn finish(&mut self, txn: &mut Transaction, moved: &[bool]) {
        let mut bitmaps = BitmapChanges::default();
        for (Copied { row, copy, bitmap_keys, .. }, _) in
            self.copied.lock().iter().zip(moved).filter(|(_, moved)| **moved)
        {
            for (index, key) in self.table.bitmaps.iter().zip(bitmap_keys) {
                bitmaps.of(index).move_row(*row, *copy, key.clone());
            }
        }
        bitmaps.publish(txn);
        let (copied, table, moved) = (self.copied.clone(), self.table.clone(), moved.to_vec());
        txn.on_obsolete(Box::new(move || {
            for (Copied { row, copy, keys, .. }, moved) in std::mem::take(&mut *copied.lock()).iter().zip(moved) {
                remove_entries(&table, if moved { *row } else { *copy }, keys);
            }
        }));
    }
}

impl Drop for IndexMoves {
    fn drop(&mut self) {
        self.table.lock.release(self.owner);
    }
}
