//! Row pins: a holder of row ids beyond the snapshot in which it found them pins the rows of their
//! table.
//!
//! While a table is pinned, compaction moves none of its rows and none of its blocks is recycled,
//! so a row id names the row that it named, or, once that is deleted, none. Blocks freeze and thaw
//! in place as ever: that changes no row id.
//!
//! ```text
//! who keeps row ids                   compaction, per group          the freezer, per empty block
//! 1. write lock, add 1, unlock        1. read lock; if pinned, end   1. read lock; if pinned, end
//! 2. take the snapshot, read rows     2. begin, move rows, commit    2. recycle
//! 3. keep row ids, drop the snapshot  3. unlock                      3. unlock
//! 4. write lock, subtract 1, unlock
//! ```
//! The pin is taken **before** the snapshot. A move whose group looked first has committed when the
//! pin is there, so the snapshot, which is newer, sees its rows in their new places. A group that
//! looks later does nothing. In the other order a move could commit between a snapshot and its pin,
//! and the row ids found in the snapshot would be those of the old places. A recycled block had no
//! row that any snapshot sees, so no later pin has a row id in it.
//!
//! A pin waits no longer than one group's transaction takes in memory. It does not keep the table
//! alive: the memory of a table that was dropped is freed, although row ids of it are kept.
//!
//! Model: `serac-models/tests/pins.rs`.

use crate::table::data_table::DataTable;
use serac_sync::{RwLock, RwLockReadGuard};
use std::sync::{Arc, Weak};

/// The number of a table's pins.
#[derive(Debug, Default)]
pub(crate) struct RowPins(RwLock<u64>);

/// Holds pins off.
pub(crate) struct Unpinned<'p>(#[allow(dead_code, reason = "held for its drop")] RwLockReadGuard<'p, u64>);

impl RowPins {
    /// Keeps the table from being pinned while the guard lives; `None` if it is pinned.
    pub(crate) fn unpinned(&self) -> Option<Unpinned<'_>> {
        let pins = self.0.read();
        (*pins == 0).then_some(Unpinned(pins))
    }

    /// Whether the table is pinned now: a caller that would do nothing then saves itself the work.
    pub(crate) fn are_pinned(&self) -> bool {
        *self.0.read() > 0
    }
}

/// Keeps the rows of a table where they are, for as long as it and the table live.
#[derive(Debug)]
pub struct RowPin(Weak<DataTable>);

impl DataTable {
    /// Pins the rows. To be called before the snapshot is taken in which row ids are found that are
    /// to be kept.
    pub fn pin_rows(self: &Arc<Self>) -> RowPin {
        *self.row_pins().0.write() += 1;
        RowPin(Arc::downgrade(self))
    }
}

impl RowPin {
    /// The table; `None` if it was dropped.
    pub fn table(&self) -> Option<Arc<DataTable>> {
        self.0.upgrade()
    }
}

impl Drop for RowPin {
    fn drop(&mut self) {
        if let Some(table) = self.table() {
            *table.row_pins().0.write() -= 1;
        }
    }
}
