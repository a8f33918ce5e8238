//! Pins: rows of a parent table that are referenced by children whose transactions a snapshot may
//! not see (see [`crate::constraint::foreign_key`]).
//!
//! ```text
//! child's transaction              pin of the parent row
//! adds the child                   its number is among the running ones
//! commits at `ts`                  its number goes, `newest` becomes `ts`
//! no snapshot is older than `ts`   `newest` goes, unless a later commit has set it
//! rolls back                       its number goes
//! ```
//! An action that ends an obsolete commit's pin knows that commit's timestamp. The row may
//! meanwhile be pinned by a newer commit, whose pin only that commit's own action may end. A pin is
//! removed when its last hold ends.
//!
//! Model: `serac-models/tests/parent_pins.rs`.

use serac_storage::RowId;
use serac_sync::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The pins of one table.
#[derive(Debug, Default)]
pub(crate) struct ParentPins(Mutex<HashMap<RowId, Pin>>);

/// The pin of one row.
#[derive(Debug, Default)]
struct Pin {
    /// The numbers of transactions that are adding a child.
    running: Vec<u64>,
    /// The newest commit that added a child and that not every snapshot is known to see; 0 if there
    /// is no such commit.
    newest: u64,
}

/// Whether, and by whom, a row is pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pinned {
    Free,
    /// By a running transaction.
    By(u64),
    /// By a commit that a snapshot does not see.
    Since,
}

impl ParentPins {
    /// The running transaction `number` adds a child of `row`. Once for a transaction and row,
    /// until it is [taken off](Self::unpin).
    pub(crate) fn pin(&self, row: RowId, number: u64) {
        self.0.lock().entry(row).or_default().running.push(number);
    }

    /// The transaction `number` has been rolled back, or (in the commit critical section) commits
    /// at a timestamp.
    pub(crate) fn unpin(&self, row: RowId, number: u64, committed: Option<u64>) {
        self.change(row, |pin| {
            pin.running.retain(|running| *running != number);
            pin.newest = pin.newest.max(committed.unwrap_or(0));
        });
    }

    /// No snapshot is older than the commit at `committed`, which has added a child of `row`.
    pub(crate) fn forget(&self, row: RowId, committed: u64) {
        self.change(row, |pin| {
            if pin.newest <= committed {
                pin.newest = 0;
            }
        });
    }

    fn change(&self, row: RowId, change: impl FnOnce(&mut Pin)) {
        let mut pins = self.0.lock();
        let Entry::Occupied(mut entry) = pins.entry(row) else { return };
        change(entry.get_mut());
        if entry.get().running.is_empty() && entry.get().newest == 0 {
            entry.remove();
        }
    }

    /// Whether a child of `row` was added by a running transaction other than `own`, or by one that
    /// a snapshot of `start` does not see.
    pub(crate) fn of(&self, row: RowId, own: u64, start: u64) -> Pinned {
        let pins = self.0.lock();
        let Some(pin) = pins.get(&row) else { return Pinned::Free };
        match pin.running.iter().find(|running| **running != own) {
            Some(running) => Pinned::By(*running),
            None if pin.newest > start => Pinned::Since,
            None => Pinned::Free,
        }
    }

    /// Whether the running transaction `number` is adding a child of `row`.
    pub(crate) fn is_pinned_by(&self, row: RowId, number: u64) -> bool {
        self.0.lock().get(&row).is_some_and(|pin| pin.running.contains(&number))
    }

    /// The number of pinned rows.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
