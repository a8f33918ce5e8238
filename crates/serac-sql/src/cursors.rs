//! The cursors of a session.
//!
//! A cursor's rows are computed when it is declared, and kept within the session's memory for
//! queries. So it shows the state that its query saw, independently of its transaction's later
//! changes, and moves both ways. It goes with its transaction, or, if it was declared WITH HOLD and
//! that has committed, with its session.

use crate::error::{Result, SqlError};
use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::MemoryReservation;
use serac_parser::tree::FetchDirection;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

/// A cursor: see the module.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// Its query.
    pub(crate) text: String,
    pub(crate) created: SystemTime,
    pub(crate) holds: bool,
    /// Whether it may move back.
    pub(crate) scrolls: bool,
    pub(crate) schema: SchemaRef,
    pub(crate) batches: Vec<RecordBatch>,
    /// Rows before the first batch, which are not kept: those that a portal has given before it
    /// became a cursor.
    pub(crate) gone: i64,
    pub(crate) rows: i64,
    /// The number of the row that it is at, from 1; 0 before the first, and the number of rows plus
    /// one behind the last.
    pub(crate) at: i64,
    /// The number of its transaction's savepoints when it was declared; `None` once that has
    /// committed.
    pub(crate) savepoints: Option<usize>,
    pub(crate) _memory: MemoryReservation,
}

impl Cursor {
    /// Moves, and gives the numbers of the rows that it came to, and whether they are in reverse
    /// order.
    pub(crate) fn go(&mut self, direction: FetchDirection) -> Result<(Range<i64>, bool)> {
        use FetchDirection::{Absolute, BackwardAll, Forward, ForwardAll, Relative};
        let end = self.rows + 1;
        let to = |at: i64| {
            let at = at.clamp(0, end);
            (at..at + 1, false, at)
        };
        let (came, back, at) = match direction {
            Forward(0) => (self.at..self.at + 1, false, self.at),
            Forward(count) if count > 0 => {
                let at = self.at.saturating_add(count).min(end);
                (self.at + 1..at + 1, false, at)
            }
            Forward(count) => {
                let at = self.at.saturating_add(count).max(0);
                (at..self.at, true, at)
            }
            ForwardAll => (self.at + 1..end + 1, false, end),
            BackwardAll => (0..self.at, true, 0),
            Absolute(row) if row < 0 => to(end.saturating_add(row)),
            Absolute(row) => to(row),
            Relative(rows) => to(self.at.saturating_add(rows)),
        };
        if at < self.at && !self.scrolls {
            return Err(SqlError::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "cursor can only scan forward: it was declared with NO SCROLL",
            ));
        }
        self.at = at;
        let came = came.start.max(1)..came.end.min(end);
        Ok((came.start..came.end.max(came.start), back))
    }

    /// The rows with these numbers.
    pub(crate) fn rows(&self, numbers: Range<i64>, back: bool) -> Result<Vec<RecordBatch>> {
        let numbers = numbers.start.max(self.gone + 1)..numbers.end.max(self.gone + 1);
        let (mut from, mut left) = ((numbers.start - self.gone - 1) as usize, (numbers.end - numbers.start) as usize);
        let mut pieces = Vec::new();
        for batch in &self.batches {
            let skipped = from.min(batch.num_rows());
            from -= skipped;
            let taken = left.min(batch.num_rows() - skipped);
            left -= taken;
            if taken > 0 {
                pieces.push(batch.slice(skipped, taken));
            }
        }
        if back && numbers.end - numbers.start > 1 {
            let all = concat_batches(&self.schema, &pieces)?;
            let reverse = UInt32Array::from_iter_values((0..all.num_rows() as u32).rev());
            return Ok(vec![take_record_batch(&all, &reverse)?]);
        }
        Ok(pieces)
    }
}

/// The place in a transaction where a protocol's portal was made. A portal goes with the savepoint
/// before it, as a cursor does.
#[derive(Debug)]
pub struct PortalPlace {
    /// The number of savepoints. Relaxed here and below: one thread at a time runs a session.
    savepoints: AtomicUsize,
    is_undone: AtomicBool,
}

impl PortalPlace {
    /// Whether the transaction has gone back to before the portal was made.
    pub fn is_undone(&self) -> bool {
        self.is_undone.load(Ordering::Relaxed)
    }
}

/// A session's cursors, and the places of its portals.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    /// By name.
    pub(crate) all: BTreeMap<String, Cursor>,
    portals: Vec<Weak<PortalPlace>>,
}

impl Cursors {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Cursor)> {
        self.all.iter()
    }

    pub(crate) fn get(&mut self, name: &str) -> Result<&mut Cursor> {
        let missing = || SqlError::new(sqlstate::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"));
        self.all.get_mut(name).ok_or_else(missing)
    }

    /// The cursors that outlive their transaction if it commits.
    pub(crate) fn take_held(&mut self) -> Vec<(String, Cursor)> {
        let held = self.all.extract_if(.., |_, cursor| cursor.holds && cursor.savepoints.is_some());
        held.map(|(name, cursor)| (name, Cursor { savepoints: None, ..cursor })).collect()
    }

    /// Their transaction has committed.
    pub(crate) fn keep(&mut self, held: Vec<(String, Cursor)>) {
        self.all.extend(held);
    }

    /// The place of a portal that is made where there are this many savepoints.
    pub(crate) fn place(&mut self, savepoints: usize) -> Arc<PortalPlace> {
        let place =
            Arc::new(PortalPlace { savepoints: AtomicUsize::new(savepoints), is_undone: AtomicBool::new(false) });
        if self.portals.len() == self.portals.capacity() {
            self.portals.retain(|place| place.strong_count() > 0);
        }
        self.portals.push(Arc::downgrade(&place));
        place
    }

    /// A transaction has ended.
    pub(crate) fn end(&mut self) {
        self.portals.clear();
        self.all.retain(|_, cursor| cursor.savepoints.is_none());
    }

    /// Notes that the transaction has gone back to when it had this many savepoints.
    pub(crate) fn roll_back(&mut self, savepoints: usize) {
        self.all.retain(|_, cursor| cursor.savepoints.is_none_or(|declared| declared <= savepoints));
        for place in self.portals.iter().filter_map(Weak::upgrade) {
            if place.savepoints.load(Ordering::Relaxed) > savepoints {
                place.is_undone.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Notes that the transaction has released all savepoints but this many.
    pub(crate) fn release(&mut self, savepoints: usize) {
        for declared in self.all.values_mut().filter_map(|cursor| cursor.savepoints.as_mut()) {
            *declared = (*declared).min(savepoints);
        }
        for place in self.portals.iter().filter_map(Weak::upgrade) {
            place.savepoints.fetch_min(savepoints, Ordering::Relaxed);
        }
    }
}
