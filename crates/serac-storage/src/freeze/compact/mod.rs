//! Compaction: phase one of freezing (§4.3). Rows of cold blocks with empty slots are moved
//! together, so that blocks become full, and others empty.
//!
//! [`selection`] forms groups of blocks and says which rows go where. One transaction per group
//! moves them:
//! ```text
//! 1. read each row in the transaction's snapshot and insert a copy into a free slot; index entries of the copies     -- nobody conflicts
//! 2. delete the rows; if a row was changed meanwhile, or may not leave, delete its copy instead                      -- a short time
//! 3. commit: to every snapshot, each row is in exactly one of its two places
//! ```
//! **Users win.** A move is a delete and an insert like any others, under the same visibility,
//! conflict and redo rules. The deletes come last, so a writer of a moved row meets a conflict for
//! a short time only. A conflict of the compaction costs it one move. Only blocks that are cold and
//! calm take part, the moves do not count as touching them, and other threads get their turn
//! between groups.
//!
//! **Several threads** share the groups of a table when there are many. Groups have no block in
//! common, and each is a transaction of its own. In an index or the log they meet as any
//! transactions do. Threads are started for a backlog and end with it.
//!
//! **When a slot is free** is described in [`crate::table::data_table`]. Old row ids die with the
//! last snapshot that sees the row there; index entries that name them are retired as after any
//! delete. A slot may be filled before that: readers verify an entry against the row. An entry is
//! removed only if no version of the row that is then in the slot has its key.
//!
//! **References to the rows** are the engine's business ([`RowFollower`]): index entries and all
//! other holders of row ids. Entries of a copy are added before the row is deleted, so a reader
//! that finds the row gone and looks again finds the copy.
//!
//! **Emptied blocks** are recycled by the freezer like cold ones once no snapshot sees a row in
//! them (see [`crate::freeze`]). Recovery replays moves like other changes, to the same row ids,
//! and recycles empty blocks at its end.
//!
//! Model: `serac-models/tests/slots.rs`.

pub mod selection;

use crate::block::{Block, HotBlock};
use crate::error::{Result, StorageError};
use crate::freeze::frozen::FreezeFormat;
use crate::ids::{BlockNo, ColumnId, RowId};
use crate::table::data_table::DataTable;
use crate::table::row_buffer::RowBuffer;
use crate::value::Value;
use crate::version::transaction::{Transaction, TransactionManager};
use selection::{BlockSelection, Candidate, CompactionGroups, Occupancy, Variant};
use serac_sync::atomic::{AtomicUsize, Ordering};
use serac_sync::epoch;
use std::sync::Arc;

/// Updates the holders of row ids: the engine's indexes.
pub trait RowFollower: Send + Sync {
    /// Prepares for moves of rows of `table` by `txn`, which has just begun; `None` if the table
    /// cannot be written to now.
    fn follow(&self, table: &DataTable, txn: &mut Transaction) -> Option<Box<dyn FollowMoves>>;
}

/// Follows the moves of one transaction. Dropped after the transaction's end.
pub trait FollowMoves {
    /// `copy` has the values of `row` in the transaction's snapshot; `row` is still there.
    fn copied(&mut self, txn: &mut Transaction, row: RowId, copy: RowId, values: &[Value<'_>]);
    /// Whether `row` may give way to its copy. Asked before the transaction deletes it, and again
    /// afterwards.
    fn may_leave(&mut self, txn: &Transaction, row: RowId) -> bool;
    /// Called before the commit. `moved` says for each copy, in the order in which they were made,
    /// whether it stays.
    fn finish(&mut self, txn: &mut Transaction, moved: &[bool]);
}

/// The follower of a storage whose row ids nobody keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct NobodyFollows;

impl RowFollower for NobodyFollows {
    fn follow(&self, _: &DataTable, _: &mut Transaction) -> Option<Box<dyn FollowMoves>> {
        Some(Box::new(*self))
    }
}
impl FollowMoves for NobodyFollows {
    fn copied(&mut self, _: &mut Transaction, _: RowId, _: RowId, _: &[Value<'_>]) {}
    fn may_leave(&mut self, _: &Transaction, _: RowId) -> bool {
        true
    }

    fn finish(&mut self, _: &mut Transaction, _: &[bool]) {}
}

/// The figures of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionReport {
    /// Groups compacted.
    pub groups: usize,
    /// Rows moved.
    pub moved: usize,
    /// Rows that stayed where they were, because a transaction had changed them or may rely on
    /// their place.
    pub stayed: usize,
    /// Rows moved by the largest group.
    pub largest_write_set: usize,
}

impl CompactionReport {
    fn add(&mut self, group: Self) {
        self.groups += group.groups;
        self.moved += group.moved;
        self.stayed += group.stayed;
        self.largest_write_set = self.largest_write_set.max(group.largest_write_set);
    }
}

/// Whether the rows of a block may be moved: it is frozen, or has no versions, takes no inserts and
/// is cold.
fn takes_part(table: &DataTable, no: BlockNo, block: &Block, is_cold: &(dyn Fn(&HotBlock) -> bool + Sync)) -> bool {
    block.hot().is_none_or(|hot| table.is_idle(no, hot) && is_cold(hot))
}

fn candidates(table: &DataTable, is_cold: &(dyn Fn(&HotBlock) -> bool + Sync)) -> Vec<Candidate> {
    let guard = epoch::pin();
    let slots = table.layout().slot_count();
    let candidate = |no: BlockNo| {
        let block = table.blocks().get(no, &guard)?;
        if !takes_part(table, no, block, is_cold) {
            return None;
        }
        let (rows, closes_holes) = match block {
            Block::Frozen(frozen) => (frozen.rows(), false),
            Block::Hot(_) => {
                let occupancy = Occupancy::of(no, slots, block);
                (occupancy.rows(), occupancy.has_holes())
            }
        };
        (rows > 0 && rows < slots).then_some(Candidate { no, rows, closes_holes })
    };
    (0..table.block_count()).map(BlockNo).filter_map(candidate).collect()
}

/// The number of groups per further thread.
const GROUPS_PER_THREAD: usize = 4;

/// The settings of a table's compaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionPlan {
    /// The rule that forms groups.
    pub(crate) groups: CompactionGroups,
    /// Threads at the most.
    pub(crate) threads: usize,
}

/// Compacts the groups that `plan` forms of the frozen blocks of `table` and of its hot ones that
/// `is_cold` accepts, until `stop` is true. Does nothing while another compaction of the table is
/// running, nor to a table that never freezes: its emptied blocks would not be recycled.
///
/// # Errors
/// When the log does not take a group's transaction: the group is rolled back.
pub(crate) fn compact_cold_blocks(
    manager: &Arc<TransactionManager>,
    table: &Arc<DataTable>,
    follower: &dyn RowFollower,
    plan: CompactionPlan,
    is_cold: &(dyn Fn(&HotBlock) -> bool + Sync),
    stop: &dyn Fn() -> bool,
) -> Result<CompactionReport> {
    let Some(_one_at_a_time) = table.compaction_latch().try_lock() else { return Ok(CompactionReport::default()) };
    let stays =
        || table.freeze_format() == FreezeFormat::Never || !table.may_reorder() || table.row_pins().are_pinned();
    if plan.groups == CompactionGroups::Off || stays() {
        return Ok(CompactionReport::default());
    }
    let groups = plan.groups.form(table.layout().slot_count(), &candidates(table, is_cold));
    // Relaxed: each number goes to one thread.
    let next = AtomicUsize::new(0);
    let end = || next.store(groups.len(), Ordering::Relaxed);
    let work = |stop: &dyn Fn() -> bool| -> Result<CompactionReport> {
        let mut report = CompactionReport::default();
        while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop() {
                end();
                break;
            }
            report.add(compact_group(manager, table, follower, group, is_cold).inspect_err(|_| end())?);
            serac_sync::thread::yield_now();
        }
        Ok(report)
    };
    let threads = (groups.len() / GROUPS_PER_THREAD).clamp(1, plan.threads.max(1));
    serac_sync::thread::scope(|scope| {
        let helper = |_| serac_sync::thread::spawn_helper(scope, || work(&|| false));
        let helpers: Vec<_> = (1..threads).filter_map(helper).collect();
        let own = work(stop);
        helpers.into_iter().fold(own, |all, helper| {
            let part = helper.join().expect("compaction does not panic");
            let mut all = all?;
            all.add(part?);
            Ok(all)
        })
    })
}

fn compact_group(
    manager: &Arc<TransactionManager>,
    table: &Arc<DataTable>,
    follower: &dyn RowFollower,
    group: &[BlockNo],
    is_cold: &(dyn Fn(&HotBlock) -> bool + Sync),
) -> Result<CompactionReport> {
    // Held to the end of the commit: a later pin has a snapshot that sees the moves.
    let Some(_unpinned) = table.row_pins().unpinned() else { return Ok(CompactionReport::default()) };
    let mut txn = manager.begin();
    let Some(mut following) = follower.follow(table, &mut txn) else { return Ok(CompactionReport::default()) };
    let occupancies: Vec<Occupancy> = {
        let guard = epoch::pin();
        let slots = table.layout().slot_count();
        let still = |&no: &BlockNo| {
            let block = table.blocks().get(no, &guard)?;
            takes_part(table, no, block, is_cold).then(|| Occupancy::of(no, slots, block))
        };
        group.iter().filter_map(still).collect()
    };
    let moves = BlockSelection::new(&occupancies, Variant::Approximate).moves(&occupancies);
    if moves.is_empty() {
        drop(txn);
        return Ok(CompactionReport::default());
    }
    // The follower goes last: it may hold locks to the transaction's end.
    let result = move_rows(table, txn, &mut *following, &moves);
    drop(following);
    result
}

fn move_rows(
    table: &Arc<DataTable>,
    mut txn: Transaction,
    following: &mut dyn FollowMoves,
    moves: &[(RowId, RowId)],
) -> Result<CompactionReport> {
    txn.undo().set_unobserved();
    let snapshot = txn.snapshot().clone();
    let columns: Vec<ColumnId> = table.layout().column_ids().collect();
    let mut buffer = RowBuffer::default();
    let mut copies: Vec<(RowId, RowId)> = Vec::with_capacity(moves.len());
    for &(row, copy) in moves {
        table.thaw_cold(row.block())?;
        table.thaw_cold(copy.block())?;
        if !table.read(&snapshot, row, &columns, &mut buffer)? {
            continue;
        }
        let values = buffer.values();
        if table.insert_copy(&mut txn, copy, &values)? {
            following.copied(&mut txn, row, copy, &values);
            copies.push((row, copy));
        }
    }
    table.note_moves();
    let mut moved = Vec::with_capacity(copies.len());
    for &(row, copy) in &copies {
        let before = txn.savepoint();
        let gone = following.may_leave(&txn, row)
            && match table.delete(&mut txn, row) {
                // Asked again: a reader that relies on the row and has not seen it deleted is seen
                // now.
                Ok(()) => following.may_leave(&txn, row),
                Err(StorageError::WriteConflict { .. }) => false,
                Err(error) => return Err(error),
            };
        if !gone {
            txn.rollback_to(&before);
            table.delete(&mut txn, copy)?;
        }
        moved.push(gone);
    }
    following.finish(&mut txn, &moved);
    drop(snapshot);
    txn.commit()?;
    let gone = moved.iter().filter(|gone| **gone).count();
    Ok(CompactionReport { groups: 1, moved: gone, stayed: moved.len() - gone, largest_write_set: gone })
}
