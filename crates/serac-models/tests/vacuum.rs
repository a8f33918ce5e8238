//! A vacuum redirects the view of one row from one chunk to another, beside a reader that copies in
//! bulk, a writer that updates the row and takes it back, and the epochs by which a chunk is
//! dropped. What the reader has copied is untorn, and names a value that is there. A reader of
//! single rows finds it without the heap's latch.
//!
//! Of: `serac-storage/src/freeze/vacuum.rs`, `serac-storage/src/block/heap.rs`.
#![cfg(loom)]

use loom::sync::Mutex;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicUsize, fence};
use loom::thread;
use std::sync::Arc;

const VALUE: usize = 7;

/// A block of one slot. A bulk copy reads a view byte by byte: two halves stand for that.
struct Block {
    view: [AtomicUsize; 2],
    redirections: AtomicUsize,
    /// Live bytes of the chunks, under the latch.
    heap: Mutex<[usize; 2]>,
    /// What lies in the chunks: nothing (0) before it was written, and when the chunk was dropped.
    /// Relaxed, as plain memory is.
    values: [AtomicUsize; 2],
    /// Pinned readers. A chunk is dropped when a look after it was emptied finds none.
    pins: AtomicUsize,
}

impl Block {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            view: [AtomicUsize::new(0), AtomicUsize::new(0)],
            redirections: AtomicUsize::new(0),
            heap: Mutex::new([1, 0]),
            values: [AtomicUsize::new(VALUE), AtomicUsize::new(0)],
            pins: AtomicUsize::new(0),
        })
    }
    fn store(&self, chunk: usize) {
        self.view.iter().for_each(|half| half.store(chunk, Release));
    }
    /// `HeapLatch::relocate`, from the first chunk to the second.
    fn relocate(&self, live: &mut [usize; 2]) {
        self.values[1].store(self.values[0].load(Relaxed), Relaxed);
        *live = [live[0] - 1, live[1] + 1];
    }
    fn load(&self) -> [usize; 2] {
        [self.view[0].load(Relaxed), self.view[1].load(Relaxed)]
    }

    /// `vacuum::run`, of the first chunk.
    fn vacuum(&self) {
        let emptied = {
            let mut heap = self.heap.lock().unwrap();
            self.redirections.fetch_add(1, Relaxed);
            fence(Release);
            let named = self.load()[0] == 0;
            if named {
                self.relocate(&mut heap);
                self.store(1);
            }
            self.redirections.fetch_add(1, Release);
            heap[0] == 0
        };
        // An epoch later: whoever pins from now on finds the redirected view.
        if emptied && self.pins.fetch_add(0, AcqRel) == 0 {
            let _latch = self.heap.lock().unwrap();
            self.values[0].store(0, Relaxed);
        }
    }

    /// `scan::copy_untorn`, and the chunk that the copy names.
    fn read(&self) -> usize {
        self.pins.fetch_add(1, AcqRel);
        let before = self.redirections.load(Acquire);
        let mut copy = self.load();
        fence(Acquire);
        if before % 2 == 1 || self.redirections.load(Relaxed) != before {
            let _latch = self.heap.lock().unwrap();
            copy = self.load();
        }
        assert_eq!(copy[0], copy[1], "a torn view");
        let value = {
            let _latch = self.heap.lock().unwrap();
            self.values[copy[0]].load(Relaxed)
        };
        self.pins.fetch_sub(1, AcqRel);
        value
    }

    /// `DataTable::read_pinned`, of a row that has no version: one half of the view says where the
    /// value lies.
    fn read_row(&self) -> usize {
        self.pins.fetch_add(1, AcqRel);
        let chunk = self.view[0].load(Relaxed);
        fence(Acquire);
        let value = self.values[chunk].load(Relaxed);
        self.pins.fetch_sub(1, AcqRel);
        value
    }
}

#[test]
fn a_reader_finds_what_it_copied_beside_a_vacuum() {
    loom::model(|| {
        let block = Block::new();
        let reader = {
            let block = block.clone();
            thread::spawn(move || block.read())
        };
        block.vacuum();
        assert_eq!(reader.join().unwrap(), VALUE);
        assert_eq!(block.read(), VALUE);
    });
}

#[test]
fn a_reader_of_a_row_needs_no_latch_beside_a_vacuum() {
    loom::model(|| {
        let block = Block::new();
        let reader = {
            let block = block.clone();
            thread::spawn(move || block.read_row())
        };
        block.vacuum();
        assert_eq!(reader.join().unwrap(), VALUE);
        assert_eq!(block.read_row(), VALUE);
    });
}

#[test]
fn an_abort_puts_back_a_view_that_is_kept() {
    loom::model(|| {
        let block = Block::new();
        // An update to a value in the view itself, which names no chunk (2), and its abort; the
        // record's view is redirected with the slot's.
        let record = Arc::new(Mutex::new(None::<usize>));
        let writer = {
            let (block, record) = (block.clone(), record.clone());
            thread::spawn(move || {
                {
                    let _latch = block.heap.lock().unwrap();
                    *record.lock().unwrap() = Some(block.load()[0]);
                    block.store(2);
                }
                let mut heap = block.heap.lock().unwrap();
                let before = record.lock().unwrap().expect("it is linked");
                heap[before] += 1;
                block.store(before);
            })
        };
        {
            let mut heap = block.heap.lock().unwrap();
            if block.load()[0] == 0 {
                block.relocate(&mut heap);
                block.store(1);
            }
            let mut record = record.lock().unwrap();
            if *record == Some(0) {
                block.relocate(&mut heap);
                *record = Some(1);
            }
            assert_eq!(heap[0], 0, "nothing names the condemned chunk any more");
        }
        writer.join().unwrap();
        assert_eq!(block.load(), [1, 1]);
    });
}
