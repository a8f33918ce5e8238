//! Serializable transactions, by precision locking.
//!
//! **Validation.** A serializable transaction remembers its reads: ranges of keys of ordered
//! indexes, or whole tables. It commits only if no transaction that has committed since its
//! snapshot has written a row in any of them. Then all of its reads still hold at its commit, and
//! it might as well have run there in whole. So the commit timestamps of the writing transactions
//! are a serial order of them. So there is neither G2-item (an anti-dependency on a row) nor G2 (on
//! a predicate). A cycle of dependencies needs one against that order: a read that was overwritten
//! before the reader's commit. A transaction that has written nothing stands in that order at its
//! snapshot, and is not validated.
//!
//! **Why not SSI.** Serializable snapshot isolation keeps a lock for every read and looks for
//! dangerous structures in the graph of running transactions at every read and write. It must keep
//! all that beyond the commit. Here readers keep ranges of their own, and writers keep nothing. The
//! versions that validation looks at are there anyway, for as long as the snapshot lives. And the
//! promise does not depend on the level of other transactions: every writer is found, at any level.
//! The price is that a transaction fails for one overwritten read, even if no cycle comes of it.
//!
//! **How.** Validation runs in the commit critical section
//! ([`serac_storage::Transaction::commit_if`]), so that nothing commits between it and the commit.
//! A range of keys is looked up in the index again. Entries are added before a version is committed
//! and stay for as long as a snapshot may need the version. So every concurrent insert, update and
//! delete in the range has an entry, old key or new, and behind it a version that the snapshot does
//! not see. A row that has come and gone since may have no entry any more: then no snapshot has
//! read it, and the reads still hold. A table is judged by the newest commit that has written to
//! it. The set is bounded: once it has [`MOST_RANGES`] ranges, the table of a further range counts
//! as read in whole. The work of validation, which holds up other commits, is bounded, too. Once it
//! has met [`MOST_ENTRIES`] entries in all, the tables of the remaining ranges count as read in
//! whole.
//!
//! A rolled-back write, or a row that compaction moves, looks like a change. That can only fail a
//! transaction that might have committed.

use crate::error::{EngineError, Result};
use crate::table::index::KeyRange;
use crate::table::{Table, TableIndex};
use serac_index::ordered::Limit;
use serac_storage::Snapshot;
use serac_sync::Mutex;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Ranges that one transaction notes, of all tables together.
const MOST_RANGES: u64 = 4_096;
/// Entries that one validation looks at, in all ranges together. It holds up other commits
/// meanwhile.
const MOST_ENTRIES: u64 = 16_384;

#[derive(Debug)]
struct RangeRead {
    table: Arc<Table>,
    index: Arc<TableIndex>,
    /// Encoded values, and whether the limit is behind the keys that begin with them.
    from: (Vec<u8>, bool),
    to: (Vec<u8>, bool),
}

fn limit((prefix, after): &(Vec<u8>, bool)) -> Limit<'_> {
    Limit { prefix, after: *after }
}

#[derive(Debug, Default)]
struct Reads {
    ranges: Vec<RangeRead>,
    tables: Vec<Arc<Table>>,
}

/// The reads of a serializable transaction. Clones are the same set.
#[derive(Clone, Debug, Default)]
pub struct ReadSet(Arc<Mutex<Reads>>);

impl ReadSet {
    /// Notes that a whole table was read.
    pub fn note_table(&self, table: &Arc<Table>) {
        let mut reads = self.0.lock();
        if !reads.has(table) {
            reads.ranges.retain(|range| range.table.data.id() != table.data.id());
            reads.tables.push(table.clone());
        }
    }

    /// Notes a read of all rows whose keys in an index lie between two limits, which includes that
    /// there are no others.
    pub(crate) fn note_range(&self, table: &Arc<Table>, index: &Arc<TableIndex>, from: Limit<'_>, to: Limit<'_>) {
        let mut reads = self.0.lock();
        if reads.has(table) {
            return;
        }
        if reads.ranges.len() as u64 >= serac_sync::limit("ranges of a read set", MOST_RANGES, 1) {
            drop(reads);
            return self.note_table(table);
        }
        let owned = |limit: Limit<'_>| (limit.prefix.to_vec(), limit.after);
        let (from, to) = (owned(from), owned(to));
        reads.ranges.push(RangeRead { table: table.clone(), index: index.clone(), from, to });
    }

    /// Notes that the rows with keys in a range were read.
    pub fn note_keys(&self, table: &Arc<Table>, index: &Arc<TableIndex>, range: &KeyRange<'_>) {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        if let Some((from, to)) = range.limits(&index.encodings, &mut from, &mut to) {
            self.note_range(table, index, from, to);
        }
    }

    /// Whether the reads in `snapshot` still hold. Called in the commit critical section.
    pub(crate) fn validate(&self, snapshot: &Snapshot) -> Result<()> {
        let reads = self.0.lock();
        let mut left = serac_sync::limit("entries of a validation", MOST_ENTRIES, 1) as usize;
        let is_valid = reads.tables.iter().all(|table| is_unwritten(table, snapshot))
            && reads.ranges.iter().all(|range| range.is_unchanged(snapshot, &mut left));
        if is_valid {
            return Ok(());
        }
        Err(EngineError::Conflict("a concurrent transaction has changed rows that this one has read".into()))
    }
}

impl Reads {
    fn has(&self, table: &Table) -> bool {
        self.tables.iter().any(|known| known.data.id() == table.data.id())
    }
}

/// Whether no transaction has committed changes of the table since the snapshot.
fn is_unwritten(table: &Table, snapshot: &Snapshot) -> bool {
    table.lock.last_write().max(table.lock.last_change()) <= snapshot.start().0
}

impl RangeRead {
    /// Whether the rows of the range are unchanged, as far as at most `left` entries tell.
    fn is_unchanged(&self, snapshot: &Snapshot, left: &mut usize) -> bool {
        if is_unwritten(&self.table, snapshot) {
            return true;
        }
        if self.table.lock.last_change() > snapshot.start().0 {
            return false;
        }
        let mut changed = false;
        let _ = self.index.entries.scan(limit(&self.from), limit(&self.to), false, |_, row| {
            changed = *left == 0 || self.table.data.is_changed_since(snapshot, row);
            *left = left.saturating_sub(1);
            if changed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        !changed
    }
}
