//! Tests of the index as a whole.

use std::cell::RefCell;

/// A place where a test can stop a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Between the two compare-and-swaps of an append.
    AfterLink,
    /// In a merge task, with the next chain made.
    BeforeSwing,
    /// Behind a merge task, before the thread looks whether it was the last.
    AfterTask,
}

type Stall = Option<(Place, Box<dyn FnOnce()>)>;

thread_local! {
    static STALL: RefCell<Stall> = const { RefCell::new(None) };
}

/// Runs the test's action for the place, once.
pub(super) fn stall(place: Place) {
    let action = STALL.with_borrow_mut(|stall| stall.take_if(|(at, _)| *at == place));
    if let Some((_, action)) = action {
        action();
    }
}

use super::*;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_storage::RowId;
use serac_storage::version::transaction::{Snapshot, Transaction};
use serac_sync::time::{Duration, Instant};
use serac_testing::stress;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::mpsc;

fn key(value: u16) -> Key {
    Key::new(&[&[1], &value.to_be_bytes()[..]].concat())
}
fn long_key(value: u16) -> Key {
    Key::new(&[&[1], &b"a common beginning that does not fit in a key"[..], &value.to_be_bytes()[..]].concat())
}
/// A few hundred slots per block, so that there are several blocks and chunks.
fn row(number: u64) -> RowId {
    bitvector::expand(((number / 300 * 7) << 16) | (number % 300 * 11))
}
fn manager() -> Arc<TransactionManager> {
    TransactionManager::new(Timestamp(1), None)
}
fn index(manager: &Arc<TransactionManager>, merge_threshold: u64, variant: Variant) -> Cubit {
    Cubit::new(manager.clone(), Options { merge_threshold, variant, ..Options::default() })
}
fn commit(index: &Cubit, mut txn: Transaction, changes: Changes) -> u64 {
    let cell = TransactionCell::of(&mut txn);
    index.publish(changes, &cell);
    txn.commit().unwrap().commit_ts().0
}

/// Rows with their values.
type Table = BTreeMap<RowId, Key>;

/// Every kind of question about values, answered by the index and by the table.
#[track_caller]
fn check(index: &Cubit, snapshot: &Snapshot, own: Option<&Changes>, table: &Table, values: &[Key]) {
    let rows = |selected: &dyn Fn(&Key) -> bool| -> Vec<RowId> {
        table.iter().filter(|(_, key)| selected(key)).map(|(row, _)| *row).collect()
    };
    let same = |predicate, expected: Vec<RowId>| {
        let found = index.query(predicate, snapshot, own);
        assert_eq!(found.rows(), expected, "{predicate:?}");
        assert_eq!(found.cardinality(), expected.len() as u64, "{predicate:?}");
        assert_eq!(index.count(predicate, snapshot, own), expected.len() as u64, "{predicate:?}");
        let counts: u64 = index.counts(predicate, snapshot, own).iter().map(|(_, n)| n).sum();
        assert_eq!(counts, expected.len() as u64, "{predicate:?}");
        let parts = [0..7, 7..14, 14..u32::MAX];
        let selected = index.select(predicate, snapshot, own);
        let parts = parts.map(|blocks| selected.rows(blocks).rows());
        assert_eq!(parts.concat(), expected, "{predicate:?}");
    };
    for value in values {
        same(Predicate::Equals(value), rows(&|key| key == value));
    }
    same(Predicate::In(values), rows(&|key| values.binary_search(key).is_ok()));
    if let (Some(first), Some(last)) = (values.first(), values.last()) {
        let null = Key::null();
        same(Predicate::Range(Bound::Included(first), Bound::Included(last)), rows(&|key| first <= key && key <= last));
        same(Predicate::Range(Bound::Excluded(first), Bound::Excluded(last)), rows(&|key| first < key && key < last));
        same(Predicate::Range(Bound::Included(last), Bound::Unbounded), rows(&|key| last <= key && *key != null));
        same(Predicate::Range(Bound::Unbounded, Bound::Excluded(last)), rows(&|key| key < last));
    }
    same(Predicate::Range(Bound::Unbounded, Bound::Unbounded), rows(&|_| true));
    let mut counts: BTreeMap<Key, u64> = BTreeMap::new();
    table.values().for_each(|key| *counts.entry(key.clone()).or_default() += 1);
    let all = index.counts(Predicate::Range(Bound::Unbounded, Bound::Unbounded), snapshot, own);
    assert_eq!(all, counts.into_iter().collect::<Vec<_>>());
}

/// One random change of `table`, told to `changes`.
fn change(rng: &mut StdRng, table: &mut Table, changes: &mut Changes, rows: u64, value: &dyn Fn(&mut StdRng) -> Key) {
    let at = row(rng.random_range(0..rows));
    let new = value(rng);
    match table.get(&at).cloned() {
        None => {
            changes.insert(at, new.clone());
            table.insert(at, new);
        }
        Some(old) if rng.random_bool(0.6) => {
            changes.update(at, old, new.clone());
            table.insert(at, new);
        }
        Some(old) => {
            table.remove(&at);
            let to = row(rng.random_range(0..rows));
            if to != at && rng.random_bool(0.3) && !table.contains_key(&to) {
                changes.move_row(at, to, old.clone());
                table.insert(to, old);
            } else {
                changes.delete(at, old);
            }
        }
    }
}

/// Serial transactions, with snapshots, own reads, savepoints, aborts and merges in between,
/// against plain tables.
fn serial(seed: u64, threshold: u64, values: u16, rows: u64, built: bool, make: fn(u16) -> Key) {
    let mut rng = StdRng::seed_from_u64(seed);
    let random = move |rng: &mut StdRng| match rng.random_range(0..20) {
        0 => Key::null(),
        // Half of all rows share a few values.
        n if n < 10 => make(rng.random_range(0..values.min(6))),
        _ => make(rng.random_range(0..values)),
    };
    let manager = manager();
    let mut table = Table::new();
    let index = if built {
        let mut builder = Builder::default();
        for number in 0..rows / 2 {
            let value = random(&mut rng);
            builder.push(&value, row(number));
            table.insert(row(number), value);
        }
        let options = Options { merge_threshold: threshold, ..Options::default() };
        builder.finish(manager.now(), manager.clone(), options)
    } else {
        index(&manager, threshold, Variant::LatchFree)
    };
    let mut open: Vec<(Transaction, Table)> = Vec::new();
    // Rows from here on have never been.
    let mut fresh = rows;
    for _ in 0..60 {
        match rng.random_range(0..10) {
            0..5 => {
                let (txn, mut next, mut changes) = (manager.begin(), table.clone(), Changes::default());
                let most = if rng.random_bool(0.1) { 2000 } else { 20 };
                for _ in 0..rng.random_range(1..most) {
                    change(&mut rng, &mut next, &mut changes, fresh, &random);
                }
                while rng.random_bool(0.15) {
                    let (savepoint, mut bulk, end) =
                        (changes.len(), Builder::default(), fresh + rng.random_range(1..1500));
                    let then = next.clone();
                    for number in fresh..end {
                        let value = random(&mut rng);
                        bulk.push(&value, row(number));
                        next.insert(row(number), value);
                    }
                    changes.insert_bulk(bulk);
                    for _ in 0..rng.random_range(0..50) {
                        change(&mut rng, &mut next, &mut changes, end, &random);
                    }
                    if rng.random_bool(0.2) {
                        changes.rollback_to(savepoint);
                        next = then;
                    } else {
                        fresh = end;
                    }
                }
                if rng.random_bool(0.3) {
                    let (savepoint, before) = (changes.len(), next.clone());
                    for _ in 0..5 {
                        change(&mut rng, &mut next, &mut changes, fresh, &random);
                    }
                    if rng.random_bool(0.5) {
                        changes.rollback_to(savepoint);
                        next = before;
                    }
                }
                if rng.random_bool(0.3) && !changes.has_bulk() {
                    let some: BTreeSet<Key> = (0..3).map(|_| random(&mut rng)).collect();
                    check(&index, txn.snapshot(), Some(&changes), &next, &some.into_iter().collect::<Vec<_>>());
                }
                match rng.random_range(0..10) {
                    0 => drop(changes),
                    1 => {
                        // Published, but the commit fails.
                        let mut txn = txn;
                        index.publish(changes, &TransactionCell::of(&mut txn));
                        txn.abort();
                    }
                    _ => {
                        commit(&index, txn, changes);
                        table = next;
                    }
                }
            }
            5 => open.push((manager.begin(), table.clone())),
            6 if !open.is_empty() => drop(open.swap_remove(rng.random_range(0..open.len()))),
            7 => {
                index.merge();
            }
            _ => {
                let some: BTreeSet<Key> = (0..3).map(|_| random(&mut rng)).collect();
                let some: Vec<Key> = some.into_iter().collect();
                for (txn, then) in &open {
                    check(&index, txn.snapshot(), None, then, &some);
                }
                check(&index, manager.begin().snapshot(), None, &table, &some);
            }
        }
    }
    for (txn, then) in &open {
        check(&index, txn.snapshot(), None, then, &[make(0), make(1), make(values)]);
    }
    open.clear();
    manager.tick();
    index.merge();
    let statistics = index.statistics();
    assert_eq!((statistics.log_bits, statistics.versions), (0, statistics.leaves));
    assert_eq!(statistics.rows, table.len() as u64);
    assert_eq!(statistics.values, table.values().collect::<BTreeSet<_>>().len() as u64);
    check(&index, manager.begin().snapshot(), None, &table, &[make(0), make(1)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if stress() { 2000 } else { 24 }))]
    #[test]
    fn every_snapshot_has_its_answers(seed in any::<u64>(), threshold in 1u64..200, dense in any::<bool>(), built in any::<bool>()) {
        // Few values of many rows have bitvectors and unions; many values split leaves.
        let (values, rows) = if dense { (5, 40_000) } else { (1500, 4000) };
        serial(seed, threshold, values, rows, built, key);
    }

    #[test]
    fn long_keys_do_too(seed in any::<u64>(), built in any::<bool>()) {
        serial(seed, 50, 600, 2000, built, long_key);
    }
}

/// An observation of a storm: a snapshot, a value range and the rows.
type Observation = (u64, u16, u16, Vec<RowId>);

/// Threads with rows of their own change and ask; every answer is compared with the history
/// afterwards.
fn storm(seed: u64, variant: Variant, threshold: u64) {
    const VALUES: u16 = 40;
    const ROWS: u64 = 3000;
    let (threads, operations) = (3, if stress() { 20_000 } else { 1500 });
    let manager = manager();
    let index = &index(&manager, threshold, variant);
    let mut histories: Vec<(u64, RowId, Option<Key>)> = Vec::new();
    let mut observations: Vec<Observation> = Vec::new();
    serac_sync::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let manager = manager.clone();
                scope.spawn(move || {
                    let mut rng = StdRng::seed_from_u64(seed + thread);
                    let (mut table, mut history, mut observations) = (Table::new(), Vec::new(), Vec::new());
                    let mut old: Option<Transaction> = None;
                    for _ in 0..operations {
                        let txn = manager.begin();
                        if rng.random_bool(0.7) {
                            let (mut changes, mut next) = (Changes::default(), table.clone());
                            let mut touched = Vec::new();
                            for _ in 0..rng.random_range(1..4) {
                                let at = row(rng.random_range(0..ROWS) * threads + thread);
                                let new = key(rng.random_range(0..VALUES));
                                match next.get(&at).cloned() {
                                    None => changes.insert(at, new.clone()),
                                    Some(old) if rng.random_bool(0.2) => {
                                        changes.delete(at, old);
                                        next.remove(&at);
                                        touched.push(at);
                                        continue;
                                    }
                                    Some(old) => changes.update(at, old, new.clone()),
                                }
                                next.insert(at, new);
                                touched.push(at);
                            }
                            if rng.random_bool(0.1) {
                                let mut txn = txn;
                                index.publish(changes, &TransactionCell::of(&mut txn));
                                txn.abort();
                                continue;
                            }
                            let ts = commit(index, txn, changes);
                            history.extend(touched.into_iter().map(|at| (ts, at, next.get(&at).cloned())));
                            table = next;
                        } else {
                            let asking = if rng.random_bool(0.3) { old.as_ref().unwrap_or(&txn) } else { &txn };
                            let (low, high) = (rng.random_range(0..VALUES), rng.random_range(0..VALUES));
                            let (first, last) = (key(low), key(high));
                            let predicate = Predicate::Range(Bound::Included(&first), Bound::Included(&last));
                            let rows = index.query(predicate, asking.snapshot(), None).rows();
                            assert_eq!(
                                index.count(predicate, asking.snapshot(), None),
                                rows.len() as u64,
                                "seed {seed}"
                            );
                            observations.push((asking.snapshot().start().0, low, high, rows));
                            if rng.random_bool(0.05) {
                                old = if old.is_some() { None } else { Some(txn) };
                            }
                        }
                        if rng.random_bool(0.01) {
                            index.merge();
                        }
                    }
                    (history, observations)
                })
            })
            .collect();
        for handle in handles {
            let (history, seen) = handle.join().unwrap();
            histories.extend(history);
            observations.extend(seen);
        }
    });
    histories.sort_by_key(|entry| entry.0);
    observations.sort();
    let (mut table, mut at) = (Table::new(), 0);
    for (start, low, high, rows) in observations {
        while let Some((_, row, value)) = histories.get(at).filter(|entry| entry.0 <= start) {
            match value {
                Some(value) => table.insert(*row, value.clone()),
                None => table.remove(row),
            };
            at += 1;
        }
        let (first, last) = (key(low), key(high));
        let expected: Vec<RowId> =
            table.iter().filter(|(_, value)| first <= **value && **value <= last).map(|(row, _)| *row).collect();
        assert_eq!(rows, expected, "seed {seed}, snapshot {start}, values {low} to {high}");
    }
}

#[test]
fn concurrent_answers_agree_with_the_history() {
    for seed in 0..if stress() { 20 } else { 3 } {
        for threshold in [1, 60] {
            storm(seed * 1000, Variant::LatchFree, threshold);
            storm(seed * 1000 + 500, Variant::Latched, threshold);
        }
    }
}

/// Inserts each row of `numbers`, with values by number.
fn insert(manager: &Arc<TransactionManager>, index: &Cubit, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let (txn, mut changes) = (manager.begin(), Changes::default());
        changes.insert(row(number), key(number as u16 % 50));
        commit(index, txn, changes);
    }
}
fn rows_of(manager: &Arc<TransactionManager>, index: &Cubit, value: u16) -> u64 {
    index.count(Predicate::Equals(&key(value)), manager.begin().snapshot(), None)
}

#[test]
fn a_stalled_thread_stops_nobody() {
    for place in [Place::AfterLink, Place::BeforeSwing, Place::AfterTask] {
        let (manager, threshold) = (manager(), 20);
        let index = &index(&manager, threshold, Variant::LatchFree);
        let (stalled, wait_stalled) = mpsc::channel();
        let (go_on, wait_go_on) = mpsc::channel::<()>();
        serac_sync::thread::scope(|scope| {
            let thread_manager = manager.clone();
            scope.spawn(move || {
                let stop = move || {
                    stalled.send(()).unwrap();
                    let _ = wait_go_on.recv();
                };
                STALL.set(Some((place, Box::new(stop))));
                insert(&thread_manager, index, 100_000..100_100);
            });
            wait_stalled.recv().unwrap();
            insert(&manager, index, 0..5000);
            assert!((100..=102).contains(&rows_of(&manager, index, 7)), "others go on and see their rows");
            let statistics = index.statistics();
            assert!(statistics.log_bits <= 8 * threshold + 1, "the log is merged without the thread: {statistics:?}");
            let helped = statistics.helps > 0 || place == Place::AfterTask;
            assert!(statistics.rounds > 10 && helped, "{statistics:?}");
            drop(go_on);
        });
        let expected = 100 + 2;
        assert_eq!(rows_of(&manager, index, 7), expected, "what the thread had begun is whole");
    }
}

#[test]
fn the_background_merges_long_logs_and_short_ones() {
    let manager = manager();
    // Writers would merge at twice this.
    let index = Arc::new(index(&manager, 100, Variant::LatchFree));
    let merger = Merger::default();
    merger.watch([&index].into_iter());
    for numbers in [0..150, 150..160] {
        insert(&manager, &index, numbers.clone());
        let deadline = Instant::now() + Duration::from_secs(20);
        while index.statistics().log_bits > 0 {
            assert!(Instant::now() < deadline, "{numbers:?}");
            serac_sync::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(merger);
    insert(&manager, &index, 160..1000);
    assert!(index.statistics().log_bits <= 401, "without the background writers merge");
    assert_eq!(rows_of(&manager, &index, 7), 20);
}

#[test]
fn an_open_entry_holds_up_no_merge_and_appears_at_its_commit() {
    let manager = manager();
    let index = index(&manager, 20, Variant::LatchFree);
    let (mut slow, mut changes) = (manager.begin(), Changes::default());
    changes.insert(row(1_000_000), key(7));
    let cell = TransactionCell::of(&mut slow);
    index.publish(changes, &cell);
    insert(&manager, &index, 0..5000);
    assert!(index.statistics().log_bits <= 81);
    assert_eq!(rows_of(&manager, &index, 7), 100);
    let before = manager.begin();
    slow.commit().unwrap();
    assert_eq!(rows_of(&manager, &index, 7), 101);
    index.merge();
    assert_eq!(rows_of(&manager, &index, 7), 101);
    assert_eq!(index.count(Predicate::Equals(&key(7)), before.snapshot(), None), 100);
}

#[test]
fn memory_is_bounded_under_a_long_reader() {
    let manager = manager();
    let index = index(&manager, 50, Variant::LatchFree);
    insert(&manager, &index, 0..1000);
    let reader = manager.begin();
    insert(&manager, &index, 1000..20_000);
    let statistics = index.statistics();
    assert!(statistics.longest_chain <= 2 && statistics.log_bits <= 201, "{statistics:?}");
    assert!(statistics.pending_bits <= (statistics.rows / 128).max(64), "{statistics:?}");
    assert_eq!(index.count(Predicate::Equals(&key(7)), reader.snapshot(), None), 20);
    drop(reader);
    manager.tick();
    index.merge();
    let statistics = index.statistics();
    assert_eq!(statistics.versions, statistics.leaves, "{statistics:?}");
    let guard = &serac_sync::epoch::pin();
    let in_leaves = index.directory.chains_from(None, guard).map(|chain| chain.newest().leaf.len() as u64);
    assert_eq!(index.value_count(), in_leaves.sum::<u64>(), "values are counted as leaves change and split");
}

#[test]
fn values_with_few_rows_cost_little() {
    let (manager, mut builder) = (manager(), Builder::default());
    let (values, rows) = (200_000u64, 800_000u64);
    for number in 0..rows {
        let value = number / 4 * 4;
        builder.push(
            &Key::new(&[&[1], &(value ^ 1 << 63).to_be_bytes()[..]].concat()),
            bitvector::expand(((number / 6000) << 16) | (number % 6000)),
        );
    }
    let index = builder.finish(manager.now(), manager.clone(), Options::default());
    let statistics = index.statistics();
    assert_eq!((statistics.values, statistics.rows), (values, rows));
    assert_eq!(index.value_count(), values);
    assert!(statistics.bytes <= 24 * values + 4 * rows, "{statistics:?}");
}

#[test]
fn rows_beyond_the_compact_form_are_kept() {
    let manager = manager();
    let index = index(&manager, 4, Variant::LatchFree);
    let far = bitvector::expand((1 << 19) << 16 | 5);
    let (txn, mut changes) = (manager.begin(), Changes::default());
    changes.insert(far, key(1));
    changes.insert(row(3), key(1));
    commit(&index, txn, changes);
    insert(&manager, &index, 50..60);
    index.merge();
    let found = index.query(Predicate::Equals(&key(1)), manager.begin().snapshot(), None);
    assert_eq!(found.rows(), [row(3), row(51), far]);
    let mut builder = Builder::default();
    builder.push(&key(1), far);
    builder.push(&key(1), row(3));
    let built = builder.finish(manager.now(), manager.clone(), Options::default());
    let found = built.query(Predicate::Equals(&key(1)), manager.begin().snapshot(), None);
    assert_eq!(found.rows(), [row(3), far]);
}

#[test]
fn an_index_is_built_beside_running_transactions() {
    let manager = manager();
    let options = Options { merge_threshold: 2, ..Options::default() };
    let index = Cubit::building(manager.clone(), options);
    let start = |number: u64, value: u16| {
        let (mut txn, mut changes) = (manager.begin(), Changes::default());
        changes.insert(row(number), key(value));
        index.publish(changes, &TransactionCell::of(&mut txn));
        txn
    };
    start(1, 1).commit().unwrap();
    let (open, aborted) = (start(2, 1), start(3, 1));
    let reader = manager.begin();
    start(4, 1).commit().unwrap();
    assert!(!index.merge());
    // The snapshot sees a row from before the index, which has been changed since, and the first
    // row above.
    let (mut later, mut changes) = (manager.begin(), Changes::default());
    changes.update(row(0), key(0), key(1));
    index.publish(changes, &TransactionCell::of(&mut later));
    later.commit().unwrap();
    let mut builder = Builder::default();
    builder.push(&key(0), row(0));
    builder.push(&key(1), row(1));
    index.load(builder, reader.snapshot().start());
    aborted.abort();
    let then = Table::from([(row(0), key(0)), (row(1), key(1))]);
    let mut now = Table::from([(row(0), key(1)), (row(1), key(1)), (row(4), key(1))]);
    for merge in [false, true] {
        assert_eq!(merge && index.merge(), merge);
        check(&index, reader.snapshot(), None, &then, &[key(0), key(1)]);
        check(&index, manager.begin().snapshot(), None, &now, &[key(0), key(1)]);
    }
    open.commit().unwrap();
    now.insert(row(2), key(1));
    check(&index, manager.begin().snapshot(), None, &now, &[key(0), key(1)]);
}
