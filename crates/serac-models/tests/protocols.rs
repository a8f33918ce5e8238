//! One row, one slot: install, read, commit, abort, begin, unlink. The clock, the head of the
//! chain, undo records with their timestamp cell, and pruning are the real ones
//! (`serac_storage::version`), with loom's atomics and locks. Restated (`src/row.rs`) is the row's
//! value, which lies in raw memory that loom does not see, and the steps around it.
//!
//! It fails without either fence of the chain's head, when the count of versioned slots is raised
//! behind the install, when a head is installed or loaded Relaxed, when the clock is published or
//! read Relaxed or published before the stamp, when a transaction reads it before it has the latch
//! or a collector when it has none any more, and when versions are stamped, or stamps are read,
//! Relaxed. Raising the count, and cutting a chain off, need no ordering of their own.
//!
//! At most 2 preemptions in an execution of more than the clock.
//!
//! Of: `serac-storage/src/version/chain.rs`, `serac-storage/src/version/clock.rs`,
//! Of: `serac-storage/src/version/pruning.rs`, `serac-storage/src/version/undo.rs`.
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

use ids::Timestamp;
use row::{Found, Row};
use std::sync::Arc;
use version::clock::Clock;
use version::pruning::Horizon;

const OLD: u64 = 10;
const NEW: u64 = 20;
/// The first commit or abort.
const FIRST: Timestamp = Timestamp(2);

fn found(value: u64) -> Found {
    Some((value, value))
}
fn expected(start: Timestamp, commits: bool) -> Found {
    found(if commits && start >= FIRST { NEW } else { OLD })
}

/// A reader beside a writer that commits or aborts and a collector: never a torn, dirty or too new
/// value, and the same one twice.
fn reader_beside(commits: bool, bulk: bool) {
    let read = move |row: &Row, start| if bulk { row.scan(start) } else { row.read(start) };
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let row = Row::new(Some(OLD));
        let writer = {
            let row = row.clone();
            loom::thread::spawn(move || {
                let mut writer = row.writer();
                assert!(row.update(&mut writer, NEW), "the only writer");
                if commits {
                    assert_eq!(row.commit(writer), FIRST);
                } else {
                    row.abort(writer);
                }
                row.collect();
            })
        };
        let start = row.begin();
        assert_eq!(read(&row, start), expected(start, commits));
        assert_eq!(read(&row, start), expected(start, commits), "repeatable");
        row.end(start);
        writer.join().unwrap();
        let start = row.begin();
        assert_eq!(read(&row, start), expected(FIRST, commits), "a later reader");
        row.end(start);
        row.assert_clean();
    });
}

#[test]
fn a_reader_beside_a_commit() {
    reader_beside(true, false);
}
#[test]
fn a_reader_beside_an_abort() {
    reader_beside(false, false);
}
#[test]
fn a_bulk_scan_beside_a_commit() {
    reader_beside(true, true);
}
#[test]
fn a_bulk_scan_beside_an_abort() {
    reader_beside(false, true);
}

/// The collector's watermark never passes a transaction that is beginning: a version that it still
/// needs is not unlinked, by a thread that commits or by another collector.
#[test]
fn begin_beside_commit_and_collection() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let row = Row::new(Some(OLD));
        let run = |work: fn(&Row)| {
            let row = row.clone();
            loom::thread::spawn(move || work(&row))
        };
        let reader = run(|row| {
            let start = row.begin();
            assert_eq!(row.scan(start), expected(start, true));
            row.end(start);
        });
        let writer = run(|row| {
            let mut writer = row.writer();
            assert!(row.update(&mut writer, NEW));
            row.commit(writer);
            row.collect();
        });
        let collector = run(|row| row.collect());
        [reader, writer, collector].into_iter().for_each(|thread| thread.join().unwrap());
        row.assert_clean();
    });
}

/// A transaction that begins, before or after a collector reads the active transactions, starts no
/// earlier than the watermark of that collector.
#[test]
fn no_watermark_passes_who_begins() {
    loom::model(|| {
        let clock = Arc::new(Clock::new(Timestamp(1)));
        let begins = {
            let clock = clock.clone();
            loom::thread::spawn(move || clock.begin().1)
        };
        let commits = {
            let clock = clock.clone();
            loom::thread::spawn(move || clock.latch().publish(|_| {}))
        };
        let watermark = Horizon::of(clock.readers()).watermark;
        let start = begins.join().unwrap();
        assert!(watermark <= start.0, "{watermark}, and {start:?}");
        assert_eq!(commits.join().unwrap(), FIRST);
    });
}

/// When two writers meet, the second conflicts, unless it has started after the first's commit, or
/// the first was rolled back.
fn two_writers(other_commits: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let row = Row::new(Some(OLD));
        let other = {
            let row = row.clone();
            loom::thread::spawn(move || {
                let mut writer = row.writer();
                let start = writer.start;
                let wins = row.update(&mut writer, NEW);
                if wins && other_commits {
                    return Some((start, row.commit(writer)));
                }
                row.abort(writer);
                wins.then_some((start, start))
            })
        };
        let mut writer = row.writer();
        let start = writer.start;
        let commit = if row.update(&mut writer, NEW + 1) {
            Some(row.commit(writer))
        } else {
            row.abort(writer);
            None
        };
        let after = match (other.join().unwrap(), commit) {
            (None, None) => panic!("one of two wins"),
            (None, Some(_)) => NEW + 1,
            (Some(_), None) => {
                if other_commits {
                    NEW
                } else {
                    OLD
                }
            }
            (Some(_), Some(_)) if !other_commits => NEW + 1,
            // One has begun when the other had committed: no change is lost.
            (Some((_, other_commit)), Some(_)) if other_commit <= start => NEW + 1,
            (Some((other_start, _)), Some(commit)) if commit <= other_start => NEW,
            both => panic!("both have won: {both:?}, and {start:?}"),
        };
        let reader = row.begin();
        assert_eq!(row.read(reader), found(after));
        row.end(reader);
        row.assert_clean();
    });
}

#[test]
fn first_updater_wins() {
    two_writers(true);
}
#[test]
fn who_is_rolled_back_is_in_nobodys_way() {
    two_writers(false);
}
