//! A vacuum redirects the view of one row from one chunk to another, beside a reader that copies in
//! bulk, a reader of the row, a writer that updates the row and takes it back, and the epochs by
//! which a chunk is dropped. What a reader has copied is untorn, and names a value that is there. A
//! reader of single rows finds it without the heap's latch.
//!
//! The vacuum, the heap, the record and its chain are the real ones, with loom's atomics and locks
//! (`serac_storage::{freeze::vacuum, block::heap, version}`). Restated (`src/hot_block.rs`) is the
//! block, whose views lie in raw memory that loom does not see. The bytes of values are raw memory,
//! too. In their place loom checks the words that say where they lie, which are written after them
//! and read before them.
//!
//! It fails when a redirection is stored without Release, when a copy has no Acquire fence behind
//! it or before it no Acquire load of the count of redirections, when the end of redirections has
//! no Release, when a copy is believed during redirections or these are not counted, when
//! before-images are not redirected, when a value is let go of before its view is redirected, and
//! when a chunk goes at once. The Release fence at the begin of redirections is not needed as long
//! as each of them is a store with Release.
//!
//! At most 3 preemptions in an execution.
//!
//! Of: `serac-storage/src/freeze/vacuum.rs`, `serac-storage/src/block/heap.rs`.
#![cfg(loom)]
#![allow(dead_code, reason = "the real modules have more than the model uses")]

#[path = "../src/hot_block.rs"]
mod block;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/freeze.rs"]
mod freeze;
#[path = "../../serac-storage/src/ids.rs"]
mod ids;
#[path = "../src/table.rs"]
mod table;
#[path = "../src/version.rs"]
mod version;

use block::view::{ArrowView, INLINE_BYTES, chunk_of, offset_of, view_len};
use block::{Block, Cell, HotBlock};
use ids::{BlockNo, ColumnId, RowId, Slot, Timestamp};
use loom::thread;
use serac_sync::{Mutex, epoch};
use std::ptr;
use std::sync::Arc;
use table::data_table::DataTable;
use version::chain::end_copy;
use version::undo::{BeforeCell, OwnedContext, UndoKind, UndoPool};

const COLUMN: ColumnId = ColumnId(0);
const SLOT: Slot = Slot(0);
const VALUE: &[u8] = b"a value that lies in a heap";
const OTHER: &[u8] = b"another one, before it";

struct World {
    block: Block,
    /// The row's pruning latch.
    latch: Mutex<()>,
}

impl World {
    /// A chunk with garbage, and behind it the row's value.
    fn new() -> Arc<Self> {
        epoch::free_early();
        let block = HotBlock::new();
        let mut latch = block.heap().latch();
        let garbage = latch.append(COLUMN, OTHER);
        block.write_view(latch.append(COLUMN, VALUE));
        latch.release(COLUMN, garbage);
        drop(latch);
        Arc::new(Self { block: Block(block), latch: Mutex::new(()) })
    }

    fn hot(&self) -> &HotBlock {
        &self.block.0
    }

    fn vacuum(&self) {
        freeze::vacuum::vacuum(&self.block, BlockNo(0), true, |_| self.latch.lock());
    }

    /// `RawColumn::copy`, and the chunks that the copy names.
    fn scan(&self) {
        let _guard = epoch::pin();
        let view = self.hot().heap().copy_untorn(|| self.hot().copy_view());
        let chunks = self.hot().heap().buffers(COLUMN);
        let value = &chunks[chunk_of(view)].as_slice()[offset_of(view)..][..view_len(view)];
        assert_eq!(value, VALUE);
    }

    /// `DataTable::read_pinned`, of a row that has no version.
    fn read_row(&self) {
        let _guard = epoch::pin();
        let view = self.hot().view(COLUMN, SLOT).unwrap();
        end_copy();
        assert!(self.hot().head.newest().is_null());
        self.assert_names_value(view);
    }

    fn assert_names_value(&self, view: ArrowView) {
        let mut value = Vec::new();
        // SAFETY: the view was read as a row is read, under the caller's pin.
        unsafe { self.hot().heap().read(std::iter::once((COLUMN, view)), &mut value) };
        assert_eq!(value, VALUE);
    }

    /// At the end: the first chunk is gone, and one value is live.
    fn check(self: Arc<Self>) {
        let view = self.hot().view(COLUMN, SLOT).unwrap();
        assert_eq!((chunk_of(view), offset_of(view)), (1, 0), "the row was moved");
        assert_eq!(self.hot().heap().live_bytes(), VALUE.len());
        assert_eq!(self.hot().heap().buffers(COLUMN)[0].len(), 0, "the emptied chunk has gone");
        drop(self);
        epoch::free_all();
    }
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

#[test]
fn a_reader_finds_what_it_copied_beside_a_vacuum() {
    model(|| {
        let world = World::new();
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.scan())
        };
        world.vacuum();
        reader.join().unwrap();
        world.scan();
        world.check();
    });
}

#[test]
fn a_reader_of_a_row_needs_no_latch_beside_a_vacuum() {
    model(|| {
        let world = World::new();
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.read_row())
        };
        world.vacuum();
        reader.join().unwrap();
        world.read_row();
        world.check();
    });
}

/// An update to a value in the view itself, which names no chunk, and its abort; the record's view
/// is redirected with the slot's.
#[test]
fn an_abort_puts_back_a_view_that_is_kept() {
    model(|| {
        let world = World::new();
        let (pool, table) = (UndoPool::default(), Arc::new(DataTable));
        let writer = {
            let world = world.clone();
            thread::spawn(move || {
                let block = world.hot();
                let guard = epoch::pin();
                let mut undo = OwnedContext::new(&pool, 1);
                // `DataTable::update`.
                let latch = block.heap().latch();
                let before = BeforeCell::new(COLUMN, Cell { null: false, bits: block.view(COLUMN, SLOT).unwrap() });
                let row = RowId::new(BlockNo(0), SLOT);
                let record =
                    undo.push(&pool, &table, row, (UndoKind::Update, 0), ptr::null_mut(), std::iter::once(before));
                assert!(block.head.install(&block.versioned, ptr::null_mut(), record), "nobody else writes");
                block.write_view(INLINE_BYTES as ArrowView);
                drop(latch);
                // `DataTable::restore`.
                undo.undo_since(Default::default(), |record| {
                    let mut latch = block.heap().latch();
                    let view = record.before()[0].cell().bits;
                    latch.retain(COLUMN, view);
                    block.write_view(view);
                });
                undo.stamp_aborted(Timestamp(2));
                drop(guard);
                // The value that the record names is released when the record is unlinked.
                let latch = world.latch.lock();
                block.head.cut(record).unwrap();
                // SAFETY: nobody has freed it.
                let unlinked = unsafe { &*record };
                block.heap().latch().release(COLUMN, unlinked.before()[0].cell().bits);
                drop(latch);
                // The records are kept until nobody looks at them.
                (undo, pool, table)
            })
        };
        world.vacuum();
        let kept = writer.join().unwrap();
        let live = world.hot().heap().latch().live_of(COLUMN);
        assert_eq!(live[0], 0, "nothing names the emptied chunk any more");
        let guard = epoch::pin();
        world.assert_names_value(world.hot().view(COLUMN, SLOT).unwrap());
        drop(guard);
        assert_eq!(world.hot().heap().live_bytes(), VALUE.len());
        drop((world, kept));
        epoch::free_all();
    });
}
