//! One free slot, which was handed out to an inserter that may stall: compaction wants it too, and
//! the collector unlinks what everybody sees. One of the two gets it, the other knows, and a reader
//! sees nothing but rows of transactions that it may see. The clock, the head of the chain, undo
//! records and pruning are the real ones (`serac_storage::version`), with loom's atomics and locks;
//! the slot's value and allocation bit, which lie in raw memory, are restated (`src/row.rs`).
//!
//! It fails without either fence of the chain's head, when the count of versioned slots is raised
//! behind the install, when a head is installed or loaded Relaxed, when the clock is published or
//! read Relaxed, published before the stamp, or read by a transaction before it has the latch, and
//! when a record goes that somebody does not see.
//!
//! At most 2 preemptions in an execution.
//!
//! Of: `serac-storage/src/version/chain.rs`, `serac-storage/src/freeze/compact/mod.rs`.
#![cfg(loom)]
#![allow(dead_code, reason = "the real modules have more than the model uses")]

#[path = "../src/block.rs"]
mod block;
#[path = "../../serac-storage/src/ids.rs"]
mod ids;
#[path = "../src/row.rs"]
mod row;
#[path = "../src/table.rs"]
mod table;
#[path = "../src/version.rs"]
mod version;

use loom::thread;
use row::Row;

const INSERTED: u64 = 10;
const COPIED: u64 = 20;

#[test]
fn one_of_two_gets_a_free_slot() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let row = Row::new(None);
        // The inserter's transaction runs since before its slot was handed out.
        let mut writer = row.writer();
        let inserter = thread::spawn({
            let row = row.clone();
            move || {
                let got = row.insert(&mut writer, INSERTED);
                let commit = row.commit(writer);
                got.then_some(commit)
            }
        });
        let compactor = thread::spawn({
            let row = row.clone();
            move || {
                let mut writer = row.writer();
                let got = row.insert_copy(&mut writer, COPIED);
                let commit = row.commit(writer);
                row.collect();
                got.then_some(commit)
            }
        });
        let start = row.begin();
        let seen = row.read(start);
        row.end(start);
        let (inserted, copied) = (inserter.join().unwrap(), compactor.join().unwrap());
        let (winner, commit) = match (inserted, copied) {
            (Some(commit), None) => (INSERTED, commit),
            (None, Some(commit)) => (COPIED, commit),
            both => panic!("{both:?}"),
        };
        let visible = (commit <= start).then_some((winner, winner));
        assert_eq!(seen, visible, "at {start:?}");
        row.collect();
        let after = row.begin();
        assert_eq!(row.read(after), Some((winner, winner)));
        row.end(after);
        row.assert_clean();
    });
}
