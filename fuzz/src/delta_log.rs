//! The Delta Log of a bitmap index: transactions that commit, abort and roll back to savepoints,
//! snapshots that stay open, and merges in between. The index must answer every predicate as the
//! rows do.

use crate::input::Input;
use serac_index::cubit::{Builder, Changes, Cubit, Key, Options, Predicate, TransactionCell, Variant};
use serac_storage::version::transaction::{Snapshot, Transaction, TransactionManager};
use serac_storage::{BlockNo, RowId, Slot, Timestamp};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Rows with their values.
type Table = BTreeMap<RowId, Key>;

/// Some rows of several blocks and chunks of blocks, not all of them neighbours.
fn row(number: u16) -> RowId {
    let number = u32::from(number);
    RowId::new(BlockNo(number % 23 * 5), Slot(number / 23 * 31 % 4_000))
}

/// A key: NULL, one of a few values that most rows share, or a rarer value, short or long.
fn value(byte: u8) -> Key {
    match byte {
        0 => Key::null(),
        1..=7 => Key::new(&[1, byte]),
        8..=99 => Key::new(&[1, byte, 0, 0]),
        _ => Key::new(&[&[1], &b"a common beginning that does not fit in a key"[..], &[byte, 0, 0]].concat()),
    }
}

/// Makes one change in the table, and adds it to the changes of the index.
fn change(input: &mut Input<'_>, table: &mut Table, changes: &mut Changes) {
    let (does, at, new) = (input.byte(), row(input.short()), value(input.byte()));
    match table.get(&at).cloned() {
        None => {
            changes.insert(at, new.clone());
            table.insert(at, new);
        }
        Some(old) => match does % 4 {
            0 => {
                changes.delete(at, old);
                table.remove(&at);
            }
            1 => {
                let to = row(input.short());
                if !table.contains_key(&to) {
                    changes.move_row(at, to, old.clone());
                    table.remove(&at);
                    table.insert(to, old);
                }
            }
            _ => {
                changes.update(at, old, new.clone());
                table.insert(at, new);
            }
        },
    }
}

/// A predicate of the index, and the keys that it selects.
type Question<'a> = (Predicate<'a>, &'a dyn Fn(&Key) -> bool);

/// Compares the answers of the index with those of the table, for predicates over two values.
fn check(index: &Cubit, snapshot: &Snapshot, own: Option<&Changes>, table: &Table, asked: [u8; 2]) {
    // NULL is in no range with a bound.
    let bounds = asked.map(|byte| value(byte.max(1)));
    let (low, high) = (bounds[0].clone().min(bounds[1].clone()), bounds[0].clone().max(bounds[1].clone()));
    let (null, one) = (Key::null(), value(asked[0]));
    let both = if low == high { vec![low.clone()] } else { vec![low.clone(), high.clone()] };
    let questions: [Question<'_>; 5] = [
        (Predicate::Equals(&one), &|key| *key == one),
        (Predicate::In(&both), &|key| both.contains(key)),
        (Predicate::Range(Bound::Included(&low), Bound::Excluded(&high)), &|key| low <= *key && *key < high),
        (Predicate::Range(Bound::Excluded(&low), Bound::Unbounded), &|key| low < *key && *key != null),
        (Predicate::Range(Bound::Unbounded, Bound::Unbounded), &|_| true),
    ];
    let first = usize::from(asked[0]) + usize::from(asked[1]);
    for (predicate, selects) in [questions[first % 5], questions[(first + 1) % 5]] {
        let expected: Vec<RowId> = table.iter().filter(|(_, key)| selects(key)).map(|(row, _)| *row).collect();
        assert_eq!(index.query(predicate, snapshot, own).rows(), expected, "{predicate:?}");
        assert_eq!(index.count(predicate, snapshot, own), expected.len() as u64, "{predicate:?}");
        let mut counts: BTreeMap<Key, u64> = BTreeMap::new();
        table.values().filter(|key| selects(key)).for_each(|key| *counts.entry(key.clone()).or_default() += 1);
        assert_eq!(index.counts(predicate, snapshot, own), counts.into_iter().collect::<Vec<_>>(), "{predicate:?}");
        let selected = index.select(predicate, snapshot, own);
        let parts = [0..16, 16..50, 50..u32::MAX].map(|blocks| selected.rows(blocks).rows());
        assert_eq!(parts.concat(), expected, "{predicate:?}");
    }
}

/// A transaction that has published its changes, and is not committed yet.
struct Open {
    transaction: Transaction,
    next: Table,
}

/// Commits or aborts the transaction.
fn end(open: Option<Open>, aborts: bool, table: &mut Table) {
    let Some(Open { transaction, next }) = open else { return };
    if aborts {
        transaction.abort();
    } else {
        transaction.commit().expect("there is no log that could fail");
        *table = next;
    }
}

/// Runs transactions one after the other. One of them may wait between its publication and its
/// commit.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let settings = input.byte();
    let variant = if settings & 1 == 0 { Variant::LatchFree } else { Variant::Latched };
    let merge_threshold = [1, 3, 16, 256][usize::from(settings >> 1) % 4];
    let options = Options { variant, merge_threshold, tasks_per_udi: 1 + usize::from(settings >> 3) % 2 };
    let manager = TransactionManager::new(Timestamp(1), None);
    let mut table = Table::new();
    let mut fresh = 0_u32;
    let mut bulk = |input: &mut Input<'_>, table: &mut Table| {
        let mut rows = Builder::default();
        for _ in 0..u16::from(input.byte()) * 4 {
            // Row ids in blocks to which `row` leads nowhere.
            let at = RowId::new(BlockNo(200 + fresh / 500), Slot(fresh % 500));
            let key = value((fresh as u8).wrapping_mul(input.byte() | 1) % 130);
            rows.push(&key, at);
            table.insert(at, key);
            fresh += 1;
        }
        rows
    };
    let first = if settings & 0x40 == 0 { Builder::default() } else { bulk(&mut input, &mut table) };
    let index = first.finish(manager.now(), manager.clone(), options);
    let mut kept: Vec<(Transaction, Table)> = Vec::new();
    let mut waiting: Option<Open> = None;
    for _ in 0..60 {
        if input.is_empty() {
            break;
        }
        let does = input.byte();
        match does % 8 {
            // Changes, with a savepoint in between, to which the transaction may roll back.
            0..=3 if waiting.is_none() => {
                let (mut transaction, mut next, mut changes) = (manager.begin(), table.clone(), Changes::default());
                for _ in 0..input.byte() % 24 {
                    change(&mut input, &mut next, &mut changes);
                }
                let (savepoint, before) = (changes.len(), next.clone());
                for _ in 0..input.byte() % 6 {
                    change(&mut input, &mut next, &mut changes);
                }
                if does & 0x10 != 0 {
                    changes.rollback_to(savepoint);
                    next = before;
                }
                check(&index, transaction.snapshot(), Some(&changes), &next, input.array());
                if does & 0x80 != 0 {
                    changes.insert_bulk(bulk(&mut input, &mut next));
                }
                let cell = TransactionCell::of(&mut transaction);
                index.publish(changes, &cell);
                waiting = Some(Open { transaction, next });
                // No other transaction sees uncommitted changes.
                check(&index, manager.begin().snapshot(), None, &table, input.array());
                if does & 0x60 != 0x60 {
                    end(waiting.take(), does & 0x20 != 0 && does & 0x08 != 0, &mut table);
                }
            }
            4 => end(waiting.take(), does & 8 != 0, &mut table),
            5 if kept.len() < 4 => kept.push((manager.begin(), table.clone())),
            6 if !kept.is_empty() => {
                let (reader, then) = kept.swap_remove(usize::from(does >> 3) % kept.len());
                check(&index, reader.snapshot(), None, &then, input.array());
            }
            _ => check(&index, manager.begin().snapshot(), None, &table, input.array()),
        }
    }
    for (reader, then) in &kept {
        check(&index, reader.snapshot(), None, then, [1, 120]);
    }
    end(waiting, false, &mut table);
    check(&index, manager.begin().snapshot(), None, &table, [0, 8]);
}

/// Recipes with each of the steps.
pub fn seeds() -> Vec<Vec<u8>> {
    let numbers = |count: usize, step: u8| (0..count).map(move |number| (number as u8).wrapping_mul(step));
    let of = |settings: u8, step: u8| std::iter::once(settings).chain(numbers(900, step)).collect();
    let mut seeds: Vec<Vec<u8>> =
        (0..16).map(|settings| of(settings | settings << 3, [37, 11, 101, 7][usize::from(settings) % 4])).collect();
    seeds.push(vec![0x42, 40, 3, 7, 1]);
    seeds
}
