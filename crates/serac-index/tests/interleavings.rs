//! CUBIT's log, merges and queries, the real ones, under many schedules of the deterministic
//! scheduler (see `scripts/test`).
#![cfg(shuttle)]

use serac_index::cubit::{Changes, Cubit, Key, Options, Predicate, TransactionCell};
use serac_storage::version::transaction::TransactionManager;
use serac_storage::{RowId, Timestamp};
use serac_sync::simulation::{Weather, run};
use serac_sync::thread;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

fn for_each_seed(seeds: u64, work: fn()) {
    for seed in 0..seeds {
        let summary = std::panic::catch_unwind(|| run(seed, seed, Weather::of(seed), 1_000_000, work));
        assert!(summary.is_ok(), "seed {seed}");
    }
}

fn key(value: u64) -> Key {
    Key::new(&value.to_be_bytes())
}

/// Rows' values by commit, entered inside the commit critical section. The lock is held across no
/// point.
type History = Mutex<BTreeMap<u64, (u64, Option<u64>)>>;

/// The number of rows with each value at a timestamp.
fn counts(history: &History, at: u64) -> BTreeMap<u64, u64> {
    let mut rows = BTreeMap::new();
    for (row, value) in history.lock().unwrap().range(..=at).map(|(_, change)| *change) {
        match value {
            Some(value) => _ = rows.insert(row, value),
            None => _ = rows.remove(&row),
        }
    }
    let mut counts = BTreeMap::new();
    rows.into_values().for_each(|value| *counts.entry(value).or_default() += 1);
    counts
}

/// Each row's writer gives it one value after the other, takes one change back, and deletes the row
/// in the end. Writers and a thread of its own merge.
#[test]
fn every_snapshot_is_answered_beside_writers_and_merges() {
    for_each_seed(3_000, || {
        let manager = TransactionManager::new(Timestamp(1), None);
        let options = Options { merge_threshold: 2, ..Options::default() };
        let (index, history) = (Arc::new(Cubit::new(manager.clone(), options)), Arc::new(History::default()));
        let writers = [0, 1].map(|number| {
            let (manager, index, history) = (manager.clone(), index.clone(), history.clone());
            thread::spawn(move || {
                let (row, mut before) = (RowId::from_u64(number), None);
                for step in 0..4 {
                    let mut txn = manager.begin();
                    let new = (step != 3).then_some(step % 2);
                    let mut changes = Changes::default();
                    match (before, new) {
                        (None, Some(new)) => changes.insert(row, key(new)),
                        (Some(before), Some(new)) => changes.update(row, key(before), key(new)),
                        (Some(before), None) => changes.delete(row, key(before)),
                        (None, None) => {}
                    }
                    index.publish(changes, &TransactionCell::of(&mut txn));
                    if step == 1 {
                        txn.abort();
                        continue;
                    }
                    let history = history.clone();
                    txn.on_commit(Box::new(move |at| {
                        history.lock().unwrap().insert(at.0, (number, new));
                    }));
                    txn.commit().unwrap();
                    before = new;
                }
            })
        });
        let merger = {
            let index = index.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    index.merge();
                    thread::yield_now();
                }
            })
        };
        for _ in 0..3 {
            let txn = manager.begin();
            let at = txn.snapshot().start();
            for _ in 0..2 {
                let expected = counts(&history, at.0);
                for value in 0..2 {
                    let found = index.count(Predicate::Equals(&key(value)), txn.snapshot(), None);
                    let expected = expected.get(&value).copied().unwrap_or(0);
                    assert_eq!(found, expected, "rows with {value} at {at:?}");
                }
            }
        }
        writers.into_iter().chain([merger]).for_each(|task| task.join().unwrap());
        index.merge();
        let txn = manager.begin();
        assert_eq!(index.count(Predicate::In(&[key(0), key(1)]), txn.snapshot(), None), 0, "all rows are gone");
    });
}
