//! Tests of the ordered index as a whole.

use super::tree::Tree;
use super::*;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_sync::atomic::{AtomicBool, Ordering};
use std::cell::RefCell;
use std::collections::BTreeSet;

type Entry = (Vec<u8>, u64);

/// All entries between two limits, as a scan gives them.
fn found(index: &OrderedIndex, from: Limit<'_>, to: Limit<'_>, reverse: bool, keys: &[Vec<u8>]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let _ = index.scan(from, to, reverse, |entry, row| -> ControlFlow<()> {
        let key = keys.iter().find(|key| entry.is(key)).expect("the key of an entry was inserted");
        entries.push((key.clone(), row.as_u64()));
        ControlFlow::Continue(())
    });
    entries
}

/// Prefix-free keys of one to three parts from a small alphabet: short keys of at most 23 bytes,
/// long ones of at most 59.
fn key_of(parts: &[u8], long: bool) -> Vec<u8> {
    let width = if long { 19 } else { 7 };
    let part = |part: &u8| {
        let mut bytes = vec![1; width];
        bytes[width - 1] = *part;
        bytes
    };
    parts.iter().flat_map(part).chain([0, 0]).collect()
}

/// A filled index equals one into which the entries were inserted, also for later inserts and
/// removals, and also if it had entries before. The entries come in any number and order, with
/// duplicates.
#[test]
fn filling_is_inserting_all_at_once() {
    let mut rng = StdRng::seed_from_u64(11);
    for long in [false, true] {
        for count in [0, 1, 2, 41, 42, 43, 84, 85, 1_000, 1_849, 20_000] {
            for before in [0, 1, 500] {
                let index = OrderedIndex::new((!long).then_some(24));
                let mut expected = BTreeSet::new();
                let mut random = || {
                    let parts: Vec<u8> = (0..rng.random_range(1..4)).map(|_| rng.random()).collect();
                    (key_of(&parts, long), RowId::from_u64(rng.random_range(0..9)))
                };
                for _ in 0..before {
                    let (key, row) = random();
                    index.insert(&key, row);
                    expected.insert((key, row.as_u64()));
                }
                let mut entries = index.entries(count / 2);
                for _ in 0..count {
                    let (key, row) = random();
                    entries.push(&key, row);
                    if row.as_u64() % 4 == 0 {
                        entries.push(&key, row);
                    }
                    expected.insert((key, row.as_u64()));
                }
                if count % 2 == 0 {
                    let sorted: Result<(), ()> = index.sort(&mut entries, || Ok(()));
                    assert!(sorted.is_ok());
                }
                index.fill(entries);
                assert_eq!(index.verify(), expected.len(), "{count} entries, {before} before");
                for _ in 0..300 {
                    let (key, row) = random();
                    index.insert(&key, row);
                    expected.insert((key, row.as_u64()));
                }
                let gone: Vec<Entry> = expected.iter().filter(|(_, row)| *row < 5).cloned().collect();
                for (key, row) in gone {
                    index.remove(&key, RowId::from_u64(row));
                    expected.remove(&(key, row));
                }
                assert_eq!(index.verify(), expected.len());
                let keys: BTreeSet<&Vec<u8>> = expected.iter().map(|(key, _)| key).collect();
                for key in keys {
                    let rows: Vec<u64> = index.rows(key).into_iter().map(|row| row.as_u64()).collect();
                    let of_key = (key.clone(), 0)..=(key.clone(), u64::MAX);
                    assert_eq!(rows, expected.range(of_key).map(|(_, row)| *row).collect::<Vec<_>>());
                }
            }
        }
    }
    // A list that no index gets.
    let index = OrderedIndex::new(None);
    index.entries(1).push(&[7; 100], RowId::from_u64(1));
}

#[test]
fn nearly_all_keys_are_found_ahead() {
    for long in [false, true] {
        let index = OrderedIndex::new((!long).then_some(24));
        let key = |number: u32| [&number.to_be_bytes()[..], &[5; 30][..if long { 30 } else { 3 }]].concat();
        let numbers: Vec<u32> = (0..20_000).map(|i| i * 7 % 20_000).collect();
        for &number in &numbers {
            index.insert(&key(number), RowId::from_u64(u64::from(number)));
        }
        let keys: Vec<Vec<u8>> = numbers.iter().step_by(3).map(|number| key(*number)).collect();
        let mut found = BTreeSet::new();
        index.look_ahead(keys.iter().map(Vec::as_slice), |row| _ = found.insert(row.as_u64()));
        assert!(found.iter().all(|row| numbers.iter().step_by(3).any(|number| u64::from(*number) == *row)));
        assert!(found.len() * 10 > keys.len() * 9, "{} of {}", found.len(), keys.len());
        // A remembered key is looked at in the tree's place.
        assert_eq!(index.hint(&keys[0], &epoch::pin()), None);
        let elsewhere = RowId::from_u64(99_999);
        // The first makes room.
        (0..2).for_each(|_| index.remember(&keys[0], elsewhere, || 20_000));
        assert_eq!(index.hint(&keys[0], &epoch::pin()), Some(elsewhere));
        let mut first = Vec::new();
        index.look_ahead(keys[..1].iter().map(Vec::as_slice), |row| first.push(row));
        assert_eq!(first, [elsewhere]);
    }
}

#[test]
fn all_rows_but_the_first_of_a_leaf_are_told_of_before_they_come() {
    for long in [false, true] {
        let index = OrderedIndex::new((!long).then_some(24));
        let key = |number: u32| [&number.to_be_bytes()[..], &[5; 30][..if long { 30 } else { 3 }]].concat();
        (0..1_000).for_each(|number| _ = index.insert(&key(number), RowId::from_u64(u64::from(number))));
        for reverse in [false, true] {
            let (told, visited) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
            let (from, to) = (key(100), key(900));
            let (from, to) = (Limit::before(&from), Limit::before(&to));
            let coming = |row: RowId| {
                assert!(!visited.borrow().contains(&row), "{row:?} has been visited");
                told.borrow_mut().push(row);
            };
            let _ = index.scan_ahead(from, to, reverse, coming, |_, row| -> ControlFlow<()> {
                visited.borrow_mut().push(row);
                ControlFlow::Continue(())
            });
            let (told, visited) = (told.into_inner(), visited.into_inner());
            assert_eq!(visited.len(), 800);
            assert!(told.is_sorted_by(|a, b| (a < b) != reverse));
            assert!(told.iter().all(|row| visited.contains(row)));
            assert!(told.len() * 10 > visited.len() * 9, "{} of {}", told.len(), visited.len());
        }
    }
}

fn check_against_a_set(operations: Vec<(u8, Vec<u8>, u64)>, limits: (Vec<u8>, bool, Vec<u8>, bool), long: bool) {
    let index = OrderedIndex::new((!long).then_some(24));
    let mut oracle: BTreeSet<Entry> = BTreeSet::new();
    for (kind, parts, row) in operations {
        let key = key_of(&parts, long);
        if kind < 3 {
            let same = oracle.iter().any(|(other, other_row)| *other == key && *other_row != row);
            let told = index.insert(&key, RowId::from_u64(row)) == Neighbours::PerhapsSame;
            assert!(told || !same, "who adds a key that is there is told");
            oracle.insert((key, row));
        } else {
            index.remove(&key, RowId::from_u64(row));
            oracle.remove(&(key, row));
        }
    }
    assert_eq!(index.verify(), oracle.len());
    assert_eq!((index.len(), index.is_empty()), (oracle.len(), oracle.is_empty()));
    let keys: Vec<Vec<u8>> = oracle.iter().map(|(key, _)| key.clone()).collect();
    // The look-ahead finds the first row with a key.
    let first = |key: &Vec<u8>| oracle.iter().find(|entry| entry.0 == *key).map_or(0, |entry| entry.1);
    let mut expected: Vec<u64> = keys.iter().map(first).collect();
    index.look_ahead(keys.iter().map(Vec::as_slice), |row| {
        let at =
            expected.iter().position(|expected| *expected == row.as_u64()).expect("one of the rows, once for each key");
        expected.swap_remove(at);
    });
    let cut = |parts: &[u8]| {
        let key = key_of(parts, long);
        key[..key.len() - 2].to_vec()
    };
    let (low, high) = (cut(&limits.0), cut(&limits.2));
    let is_behind = |key: &[u8], prefix: &[u8], after: bool| {
        if key.starts_with(prefix) { !after } else { key > prefix }
    };
    let mut expected: Vec<Entry> = oracle
        .iter()
        .filter(|(key, _)| is_behind(key, &low, limits.1) && !is_behind(key, &high, limits.3))
        .cloned()
        .collect();
    let (from, to) = (Limit { prefix: &low, after: limits.1 }, Limit { prefix: &high, after: limits.3 });
    assert_eq!(found(&index, from, to, false, &keys), expected);
    expected.reverse();
    assert_eq!(found(&index, from, to, true, &keys), expected);
    for key in &keys {
        let rows: Vec<u64> = index.rows(key).into_iter().map(RowId::as_u64).collect();
        let expected: Vec<u64> = oracle.range((key.clone(), 0)..=(key.clone(), u64::MAX)).map(|e| e.1).collect();
        assert_eq!(rows, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn agrees_with_a_set(
        operations in prop::collection::vec((0u8..5, prop::collection::vec(0u8..12, 1..4), 0u64..4), 0..1500),
        limits: (Vec<u8>, bool, Vec<u8>, bool),
        long: bool,
    ) {
        let few = |parts: Vec<u8>| -> Vec<u8> { parts.into_iter().take(3).map(|part| part % 12).collect() };
        check_against_a_set(operations, (few(limits.0), limits.1, few(limits.2), limits.3), long);
    }
}

#[test]
fn keys_of_every_length_are_kept_apart_where_words_end() {
    let index = OrderedIndex::new(None);
    let mut keys = Vec::new();
    for len in 0..40 {
        for last in [0, 1, 0xFF] {
            // Prefix-free: the length comes first.
            let mut key = vec![len];
            key.resize(1 + usize::from(len), 7);
            key.push(last);
            index.insert(&key, RowId::from_u64(u64::from(last)));
            keys.push(key);
        }
    }
    index.verify();
    for key in &keys {
        assert_eq!(index.rows(key).len(), 1);
        index.remove(key, RowId::from_u64(u64::from(*key.last().expect("not empty"))));
        assert!(index.rows(key).is_empty());
    }
    assert!(index.is_empty());
}

#[test]
fn ascending_keys_fill_leaves_and_a_queue_gives_them_back() {
    for long in [false, true] {
        let tree = Tree::new((!long).then_some(24));
        let key = |queue: u64, number: u64| {
            let mut key = queue.to_be_bytes().to_vec();
            key.extend_from_slice(&number.to_be_bytes());
            key.extend_from_slice(if long { &[9; 20] } else { &[] });
            key
        };
        // Many ends at which entries are added in order, in turn.
        let (queues, numbers) = (20, 2_000);
        for number in 0..numbers {
            for queue in 0..queues {
                tree.insert(&key(queue, number), RowId::from_u64(1 + number));
            }
        }
        assert_eq!(tree.verify() as u64, queues * numbers);
        let full = (queues * numbers).div_ceil(48) as usize;
        assert!(tree.node_count() < full * 5 / 4, "{} nodes for {full} full leaves", tree.node_count());
        // Queues: the oldest goes when a new one comes.
        for number in numbers..5 * numbers {
            for queue in 0..queues {
                tree.insert(&key(queue, number), RowId::from_u64(1 + number));
                assert!(tree.remove(&key(queue, number - numbers), RowId::from_u64(1 + number - numbers)));
            }
        }
        assert_eq!(tree.verify() as u64, queues * numbers);
        assert!(tree.node_count() < full * 3 / 2, "{} nodes for {full} full leaves", tree.node_count());
        for number in 4 * numbers..5 * numbers {
            (0..queues).for_each(|queue| assert!(tree.remove(&key(queue, number), RowId::from_u64(1 + number))));
        }
        assert_eq!((tree.verify(), tree.node_count()), (0, 1), "an empty tree is one leaf");
    }
}

/// Threads add and remove entries of their own among the entries of other threads, while readers
/// scan. An entry that stays is always found, in order.
#[test]
fn concurrent_changes_lose_nothing_and_scans_are_in_order() {
    let stress = serac_testing::stress();
    let (threads, operations) = (3, if stress { 2_000_000 } else { 60_000 });
    for long in [false, true] {
        let index = OrderedIndex::new((!long).then_some(24));
        let key = |number: u32| {
            let mut key = number.to_be_bytes().to_vec();
            key.extend_from_slice(if long { &[5; 30] } else { &[5; 3] });
            key
        };
        // Rows of numbers that are never removed.
        let settled: Vec<u32> = (0..4_000).step_by(40).collect();
        for &number in &settled {
            index.insert(&key(number), RowId::from_u64(u64::from(u32::MAX)));
        }
        let (stop, seed) = (AtomicBool::new(false), rand::random::<u64>());
        let kept: Vec<BTreeSet<(u32, u64)>> = serac_sync::thread::scope(|scope| {
            for reader in 0..2 {
                let (index, settled, stop) = (&index, &settled, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let (mut seen, mut last) = (Vec::new(), None);
                        let _ = index.scan(
                            Limit::before(&[]),
                            Limit::after(&[]),
                            reader == 1,
                            |entry, row| -> ControlFlow<()> {
                                if row.as_u64() == u64::from(u32::MAX) {
                                    let number = settled.iter().find(|number| entry.is(&key(**number)));
                                    seen.push(*number.expect("a settled number"));
                                    assert!(
                                        last.replace(seen[seen.len() - 1])
                                            .is_none_or(|last| (last < seen[seen.len() - 1]) == (reader == 0))
                                    );
                                }
                                ControlFlow::Continue(())
                            },
                        );
                        assert_eq!(seen.len(), settled.len(), "seed {seed}");
                        let keys: Vec<Vec<u8>> = settled.iter().map(|number| key(*number)).collect();
                        let mut rows = 0;
                        index.look_ahead(keys.iter().map(Vec::as_slice), |_| rows += 1);
                        assert!(rows <= keys.len());
                    }
                });
            }
            let writers: Vec<_> = (0..threads)
                .map(|thread| {
                    let index = &index;
                    scope.spawn(move || {
                        let mut rng = StdRng::seed_from_u64(seed + thread);
                        let mut own: BTreeSet<(u32, u64)> = BTreeSet::new();
                        for _ in 0..operations {
                            // Waves, so that nodes fill and become empty.
                            let grow = own.len() < 2_000 && rng.random_range(0..3) > 0;
                            if grow || own.is_empty() {
                                let entry = (rng.random_range(0..4_000), rng.random_range(0..50) * threads + thread);
                                index.insert(&key(entry.0), RowId::from_u64(entry.1));
                                own.insert(entry);
                            } else {
                                let from = rng.random_range(0..4_000);
                                let gone: Vec<_> =
                                    own.range((from, 0)..).take(rng.random_range(1..200)).copied().collect();
                                for entry in gone {
                                    index.remove(&key(entry.0), RowId::from_u64(entry.1));
                                    own.remove(&entry);
                                }
                            }
                        }
                        own
                    })
                })
                .collect();
            let kept = writers.into_iter().map(|writer| writer.join().expect("a writer does not panic")).collect();
            stop.store(true, Ordering::Relaxed);
            kept
        });
        let all: BTreeSet<(u32, u64)> = kept.into_iter().flatten().collect();
        assert_eq!(index.verify(), all.len() + settled.len(), "seed {seed}");
        for &(number, row) in &all {
            assert!(index.rows(&key(number)).contains(&RowId::from_u64(row)), "seed {seed}: {number} {row}");
        }
    }
}

/// If two threads add the same key at once, at least one is told of the other.
#[test]
fn one_of_two_who_add_a_key_knows() {
    let index = OrderedIndex::new(Some(24));
    let (rounds, turn) = (20_000u32, std::sync::Barrier::new(2));
    let told: Vec<Vec<bool>> = serac_sync::thread::scope(|scope| {
        let add = |row: u64| {
            let (index, turn) = (&index, &turn);
            scope.spawn(move || {
                (0..rounds)
                    .map(|round| {
                        if round % 64 == 0 {
                            turn.wait();
                        }
                        index.insert(
                            &(round % 9_000).wrapping_mul(0x9E37_79B9).to_be_bytes(),
                            RowId::from_u64(row + u64::from(round / 9_000) * 2),
                        ) == Neighbours::PerhapsSame
                    })
                    .collect::<Vec<bool>>()
            })
        };
        let threads = [add(0), add(1)];
        threads.map(|thread| thread.join().expect("no panic")).into()
    });
    (0..rounds as usize).for_each(|round| assert!(told[0][round] || told[1][round], "round {round}"));
}
