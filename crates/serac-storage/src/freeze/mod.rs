//! Freezing and thawing (§4.1 to §4.3).
//!
//! ```text
//! hot --(cold for long enough)--> cooling --(all older transactions have ended)--> freezing --(gathered, published)--> frozen
//!  ^                                 |                                                                                  |
//!  +------ a transaction writes -----+                                                                                  |
//!  +---------------------------------------- a transaction writes: the block is thawed ----------------------------------+
//! ```
//! **A block is cold** (`is_cold`) when the collector has met no change of it for a wait. The
//! first wait is [`freeze_after`](crate::StorageOptions::freeze_after). Each thaw of the block
//! doubles its wait, up to 64 times the first.
//!
//! **A frozen block** is not the hot block in another state, as in the text. It is a block of its
//! own ([`FrozenBlock`]) that takes the hot one's place in the block table. Its values lie where
//! they lay, in memory that both share and that nobody writes to any more; a thaw copies them to
//! new memory, except for the bytes of long values, which it shares unless they lie in a file. So
//! no memory that a reader holds ever changes: readers of the hot block go on reading it, and lent
//! Arrow arrays stay the same when their block is thawed. No writer waits for a reader, and there
//! is no count of readers. Memory that only a hot block needs (version column, spare heap) is given
//! back when its last reader is gone.
//!
//! **Writers** look at the temperature before they touch a block, within their transaction:
//! - hot: go on;
//! - cooling: compare-and-swap back to hot, then go on (writers pre-empt cooling);
//! - freezing: wait, for the length of a gather, until the frozen block is published;
//! - frozen: make a hot block of it, and publish that by compare-and-swap; the loser takes the
//!   winner's block.
//!
//! A writer is pinned from before it looks until it has written, so that the memory that it writes
//! to always belongs to a hot block.
//!
//! **The freezer** sets cooling, in a round that has a number of its own
//! (`crate::freeze::temperature`). Then it moves the clock, and waits until every transaction
//! that started before that has ended. A writer that looked while the block was still hot, and has
//! been stalled since (the race of the text's figure 9), is one of those transactions. A later one
//! has read the clock, so it sees cooling or a later state. Then the freezer compare-and-swaps
//! cooling in that round to freezing. This fails if a writer has pre-empted the round, also if the
//! block is cooling again in a later one: transactions that found it hot between the two may not
//! have ended. From then on no transaction writes. A vacuum's step looks at the temperature under
//! the heap's latch; a collector lets go of values before it takes the last version off. If no row
//! has a version and no bulk append is pending, all snapshots, present and future, see the same
//! rows: the block is gathered and published, or recycled if there is no row. Otherwise it is hot
//! again.
//!
//! **Readers** pin an epoch, find the block in the table and copy from it (or keep an `Arc` of it).
//! A reader that still holds the hot block after the publication sees the same rows: nobody writes
//! to it any more. A reader that holds a frozen block after a thaw misses only what was written
//! after it found the block. For its snapshot that is invisible anyway, since its snapshot is
//! older; and a transaction that starts after a writer's commit finds the thawed block, because the
//! writer published it before it committed.
//!
//! Model: `serac-models/tests/freezing.rs`.

pub(crate) mod background;
pub mod compact;
pub mod frozen;
pub(crate) mod temperature;
pub(crate) mod vacuum;

use crate::block::{Block, HotBlock};
use crate::error::Result;
use crate::freeze::frozen::{FreezeFormat, FrozenBlock};
use crate::freeze::temperature::Temperature;
use crate::ids::BlockNo;
use crate::table::data_table::DataTable;
use crate::version::gc::CoolingRound;
use crate::version::transaction::TransactionManager;
use serac_sync::atomic::Ordering;
use serac_sync::epoch::{self, Guard};
use std::sync::Arc;

/// The wait before a block freezes doubles with each thaw, up to 2 to the power of this times the
/// first wait.
const LONGEST_WAIT: u32 = 6;

impl DataTable {
    /// Whether nothing is going on in a hot block: no version, no pending bulk append.
    fn is_calm(block: &HotBlock) -> bool {
        block.settlements().is_some()
    }

    /// Whether a hot block is calm and takes no inserts. In this order: a bulk append offers its
    /// block to inserts before its marker goes.
    pub(crate) fn is_idle(&self, no: BlockNo, block: &HotBlock) -> bool {
        block.slot_limit() > 0 && Self::is_calm(block) && !self.takes_inserts(no)
    }

    /// Sets every hot block cooling that is calm, takes no inserts and, as `is_cold` says, has been
    /// left alone for long enough.
    pub(crate) fn cool(self: &Arc<Self>, is_cold: impl Fn(&HotBlock) -> bool) -> CoolingRound {
        let number = self.next_cooling_round();
        if self.freeze_format() == FreezeFormat::Never {
            return CoolingRound { table: self.clone(), number, blocks: Vec::new() };
        }
        let guard = epoch::pin();
        let cools = |no: &BlockNo| {
            self.blocks().get(*no, &guard).and_then(Block::hot).is_some_and(|block| {
                self.is_idle(*no, block) && is_cold(block) && block.temperature_word().cool(number)
            })
        };
        let blocks = (0..self.block_count()).map(BlockNo).filter(cools).collect();
        CoolingRound { table: self.clone(), number, blocks }
    }

    /// Freezes a block that has been cooling since `round` began; true if it is frozen now. Called
    /// once every transaction that began before the round's timestamp has ended. A block without
    /// rows is recycled instead: its memory is freed an epoch later, and its number goes to a block
    /// of later inserts.
    pub(crate) fn freeze_cooled(&self, no: BlockNo, round: u64) -> bool {
        let guard = epoch::pin();
        let Some(block) = self.blocks().get(no, &guard) else { return false };
        let Some(hot) = block.hot() else { return false };
        serac_sync::linger();
        if !hot.temperature_word().freeze(round) {
            let is_cooling = || hot.temperature_word().get() == Temperature::Cooling;
            serac_sync::probe("a round was due while its block cooled in a later one", is_cooling);
            return false;
        }
        // A vacuum's step that has begun before ends here; no further step begins.
        drop(hot.heap().latch());
        let format = self.freeze_format();
        if !Self::is_calm(hot) || format == FreezeFormat::Never {
            hot.temperature_word().give_up();
            return false;
        }
        if hot.rows() == 0 {
            match self.row_pins().unpinned() {
                Some(_unpinned) => self.recycle(no, block),
                // A holder of one of its row ids must find the row gone, and no other.
                None => hot.temperature_word().give_up(),
            }
            return false;
        }
        let frozen = FrozenBlock::gather(hot, self.schema(), format);
        let replaced = self.blocks().replace(no, block, Arc::new(Block::Frozen(frozen)));
        assert!(replaced, "nobody replaces a block that is freezing");
        true
    }

    /// Brings the blocks that were frozen for another format into the table's. A frozen block stays
    /// frozen, so nothing has to cool.
    pub(crate) fn refreeze(&self) {
        let format = self.freeze_format();
        if format == FreezeFormat::Never {
            return;
        }
        for no in (0..self.block_count()).map(BlockNo) {
            if let Some(block) = self.block(no)
                && let Some(frozen) = block.frozen()
                && frozen.format() != format
                // A damaged block stays as it is, so that its readers get the error.
                && frozen.check_all().is_ok()
            {
                // If the block was thawed meanwhile, the thaw has won.
                self.blocks().replace(no, &block, Arc::new(Block::Frozen(frozen.reencode(format))));
            }
        }
    }

    /// The block, hot, and open to writes of the calling transaction until that ends; `None` if the
    /// block does not exist.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`](crate::StorageError::Corrupt) when the block lies in a damaged
    /// file.
    #[inline]
    pub(crate) fn writable<'g>(&'g self, no: BlockNo, guard: &'g Guard) -> Result<Option<&'g HotBlock>> {
        loop {
            let Some(block) = self.blocks().get(no, guard) else { return Ok(None) };
            match block {
                Block::Hot(hot) if hot.temperature_word().admit_writer() => {
                    serac_sync::linger();
                    return Ok(Some(hot));
                }
                // Being gathered.
                Block::Hot(_) => serac_sync::thread::yield_now(),
                Block::Frozen(frozen) => {
                    frozen.check_all()?;
                    self.thaw(no, block, frozen);
                }
            }
        }
    }

    /// Thaws the block if it is frozen, and leaves it as cold as it was: for moving rows.
    ///
    /// # Errors
    /// As [`writable`](Self::writable).
    pub(crate) fn thaw_cold(&self, no: BlockNo) -> Result<()> {
        let guard = epoch::pin();
        if let Some(block) = self.blocks().get(no, &guard)
            && let Some(frozen) = block.frozen()
        {
            frozen.check_all()?;
            let mut hot = frozen.thaw(self.layout(), no);
            hot.keep_cold();
            self.blocks().replace(no, block, Arc::new(Block::Hot(hot)));
        }
        Ok(())
    }

    fn thaw(&self, no: BlockNo, block: &Block, frozen: &FrozenBlock) {
        let hot = frozen.thaw(self.layout(), no);
        // A thread that lost the race looks again and finds the winner's block.
        self.blocks().replace(no, block, Arc::new(Block::Hot(hot)));
    }
}

/// Whether the collector's last note on a block is at least `after` milliseconds old. A block that
/// has been thawed before needs more time, so that blocks which are written now and then do not
/// freeze and thaw all the time.
pub(crate) fn is_cold(block: &HotBlock, now_ms: u64, after: u64) -> bool {
    let wait = after << block.thaws().min(LONGEST_WAIT);
    now_ms.saturating_sub(block.last_touched().load(Ordering::Relaxed)) >= wait
}

/// Starts to freeze the cold blocks of `table`. They are frozen once all present transactions have
/// ended and the collector has come by. Returns how many are on their way.
pub(crate) fn freeze_cold_blocks(
    manager: &TransactionManager,
    table: &Arc<DataTable>,
    is_cold: impl Fn(&HotBlock) -> bool,
) -> usize {
    let round = table.cool(is_cold);
    let count = round.blocks.len();
    if count > 0 {
        manager.freeze(round);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::layout::BlockLayout;
    use crate::types::{ColumnSchema, ColumnType, TableSchema};
    use crate::{ColumnId, RowBuffer, TableId, Timestamp, Value};

    fn one_column() -> TableSchema {
        TableSchema { columns: vec![ColumnSchema { name: "a".into(), column_type: ColumnType::Int64, nullable: true }] }
    }

    /// A writer that has found the block hot stops. The entry of an earlier round, which another
    /// has pre-empted, is due before the writer has ended.
    #[test]
    fn a_round_that_was_pre_empted_does_not_freeze_the_block_of_a_later_one() {
        let manager = TransactionManager::new(Timestamp(0), None);
        let table = DataTable::new(TableId(1), "t", one_column()).unwrap();
        let mut txn = manager.begin();
        let row = table.insert(&mut txn, &[Value::Int64(1)]).unwrap();
        txn.commit().unwrap();
        table.close_insertion_heads();
        manager.gc().run_once(&manager);
        let cool = || assert_eq!(freeze_cold_blocks(&manager, &table, |_| true), 1);
        let pre_empt = || assert!(table.writable(row.block(), &epoch::pin()).unwrap().is_some());
        cool();
        pre_empt();
        let mut writer = manager.begin();
        pre_empt();
        cool();
        assert_eq!(manager.gc().run_once(&manager).frozen, 0, "frozen under a writer");
        // The writer goes on in the thawed block.
        table.update(&mut writer, row, &[ColumnId(0)], &[Value::Int64(2)]).unwrap();
        writer.commit().unwrap();
        manager.gc().run_once(&manager);
        cool();
        assert_eq!(manager.gc().run_once(&manager).frozen, 1);
        assert_eq!(manager.gc().backlog(), 0, "entries of rounds that were pre-empted go");
        let (txn, mut read) = (manager.begin(), RowBuffer::default());
        assert!(table.read(txn.snapshot(), row, &[ColumnId(0)], &mut read).unwrap());
        assert_eq!(read.value(0), Value::Int64(2));
        table.verify();
    }

    #[test]
    fn a_block_waits_longer_each_time_it_was_thawed() {
        let layout = Arc::new(BlockLayout::new(&one_column()).unwrap());
        for (thaws, wait) in [(0, 100), (1, 200), (3, 800), (6, 6_400), (50, 6_400)] {
            let block = HotBlock::thawed(layout.clone(), BlockNo(0), thaws);
            block.last_touched().store(1_000, Ordering::Relaxed);
            assert!(!is_cold(&block, 1_000 + wait - 1, 100) && is_cold(&block, 1_000 + wait, 100), "{thaws} thaws");
            assert!(!is_cold(&block, 0, 100), "touched after the clock was read");
        }
    }
}
