//! Row pins beside compaction and the freezer: whoever pins before the snapshot finds, at each of
//! its row ids, the row that it found there, or none. The pins are the real ones
//! (`serac_storage::table::row_pins`), with loom's lock. The table restates what they guard: a row
//! that is moved by a transaction, and a block that is recycled once no snapshot sees a row of it.
//!
//! It fails when rows are taken for unpinned that are pinned, and when a pin comes behind the
//! snapshot.
//!
//! Of: `serac-storage/src/table/row_pins.rs`.
#![cfg(loom)]

#[path = "../../serac-storage/src/table/row_pins.rs"]
mod row_pins;

// Where the pins look for the table.
mod table {
    pub(crate) use crate::data_table;
}
mod data_table {
    use crate::row_pins::RowPins;
    use loom::sync::Mutex;
    use serac_sync::atomic::AtomicUsize;
    use serac_sync::atomic::Ordering::{Acquire, Release};

    /// A timestamp that no snapshot has.
    pub const NEVER: usize = usize::MAX;

    /// A place for a row: a block with one slot.
    #[derive(Clone, Copy, Debug)]
    pub struct Place {
        pub row: u32,
        pub created: usize,
        pub deleted: usize,
    }

    /// A table with two blocks of one slot, and its clock.
    #[derive(Debug)]
    pub struct DataTable {
        pins: RowPins,
        clock: AtomicUsize,
        /// The latch stands for the versions of rows, which other models have.
        pub places: [Mutex<Place>; 2],
    }

    impl DataTable {
        pub fn new(places: [Place; 2]) -> Self {
            Self { pins: RowPins::default(), clock: AtomicUsize::new(1), places: places.map(Mutex::new) }
        }
        pub(crate) fn row_pins(&self) -> &RowPins {
            &self.pins
        }
        /// A snapshot.
        pub fn now(&self) -> usize {
            self.clock.load(Acquire)
        }
        /// Stamps what a transaction has done, and then lets snapshots see it.
        pub fn commit(&self, stamp: impl FnOnce(usize)) {
            let at = self.now() + 1;
            stamp(at);
            self.clock.store(at, Release);
        }
        /// The row that a snapshot sees in a place.
        pub fn read(&self, place: usize, snapshot: usize) -> Option<u32> {
            let place = *self.places[place].lock().unwrap();
            (place.created <= snapshot && snapshot < place.deleted).then_some(place.row)
        }
    }
}

use data_table::{DataTable, NEVER, Place};
use loom::thread;
use std::sync::Arc;

const ROW: u32 = 7;
const OTHER: u32 = 8;

fn row(row: u32) -> Place {
    Place { row, created: 1, deleted: NEVER }
}

fn empty() -> Place {
    Place { row: 0, created: NEVER, deleted: NEVER }
}

/// `compact_group`: moves the row of place 0 to place 1, unless somebody has pinned the rows.
fn compact(table: &DataTable) {
    let Some(_unpinned) = table.row_pins().unpinned() else { return };
    let copy = table.places[0].lock().unwrap().row;
    table.places[1].lock().unwrap().row = copy;
    table.commit(|at| {
        table.places[1].lock().unwrap().created = at;
        table.places[0].lock().unwrap().deleted = at;
    });
}

/// `DataTable::freeze_cooled` of an empty block, and an insert that takes the block's number: it
/// comes while the pin may be there, because inserts ask nobody.
fn recycle(table: &DataTable) -> bool {
    let is_empty = table.places[0].lock().unwrap().deleted <= table.now();
    if !is_empty {
        return false;
    }
    let Some(_unpinned) = table.row_pins().unpinned() else { return false };
    *table.places[0].lock().unwrap() = empty();
    true
}

fn insert_other(table: &DataTable) {
    table.places[0].lock().unwrap().row = OTHER;
    table.commit(|at| table.places[0].lock().unwrap().created = at);
}

/// Finds the row in a snapshot, keeps its place, and reads there in newer snapshots. The row is
/// never deleted, so `is_there` says that it must be found.
fn keep(table: &Arc<DataTable>, is_there: bool) {
    let pin = table.pin_rows();
    let snapshot = table.now();
    let place = (0..2).find(|place| table.read(*place, snapshot) == Some(ROW));
    assert!(!is_there || place.is_some());
    if let Some(place) = place {
        for _ in 0..2 {
            let found = table.read(place, table.now());
            assert!(found == Some(ROW) || (!is_there && found.is_none()), "{found:?} at {place}");
        }
    }
    assert!(pin.table().is_some());
    drop(pin);
}

#[test]
fn a_kept_row_id_names_its_row_beside_compaction() {
    loom::model(|| {
        let table = Arc::new(DataTable::new([row(ROW), empty()]));
        let other = table.clone();
        let compaction = thread::spawn(move || compact(&other));
        keep(&table, true);
        compaction.join().unwrap();
        // Nothing is pinned any more.
        assert!(!table.row_pins().are_pinned());
    });
}

#[test]
fn two_who_keep_row_ids_hold_compaction_off_until_both_have_gone() {
    loom::model(|| {
        let table = Arc::new(DataTable::new([row(ROW), empty()]));
        let (compacted, kept) = (table.clone(), table.clone());
        let compaction = thread::spawn(move || compact(&compacted));
        let keeping = thread::spawn(move || keep(&kept, true));
        keep(&table, true);
        compaction.join().unwrap();
        keeping.join().unwrap();
        assert!(!table.row_pins().are_pinned());
    });
}

/// The row is deleted, its block is recycled, and another row takes the place.
#[test]
fn a_kept_row_id_never_names_another_row() {
    loom::model(|| {
        let table = Arc::new(DataTable::new([row(ROW), empty()]));
        let other = table.clone();
        let freezer = thread::spawn(move || {
            other.commit(|at| other.places[0].lock().unwrap().deleted = at);
            if recycle(&other) {
                insert_other(&other);
            }
        });
        keep(&table, false);
        freezer.join().unwrap();
    });
}

/// The order that the module forbids: the model shows why.
#[test]
#[should_panic(expected = "at 0")]
fn a_pin_behind_the_snapshot_comes_too_late() {
    loom::model(|| {
        let table = Arc::new(DataTable::new([row(ROW), empty()]));
        let other = table.clone();
        let compaction = thread::spawn(move || compact(&other));
        let snapshot = table.now();
        let place = (0..2).find(|place| table.read(*place, snapshot) == Some(ROW)).unwrap();
        let pin = table.pin_rows();
        let found = table.read(place, table.now());
        assert_eq!(found, Some(ROW), "at {place}");
        drop(pin);
        compaction.join().unwrap();
    });
}
