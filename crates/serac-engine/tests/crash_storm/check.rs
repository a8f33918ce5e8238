//! The conditions that must hold after a kill.

use crate::schema::*;
use serac_engine::{Database, Table, Transaction};
use serac_storage::RowId;
use std::collections::{BTreeMap, BTreeSet};

/// The newest acknowledged number of each thread.
pub type Acknowledged = BTreeMap<i64, i64>;

/// Checks everything. Returns the newest number of each thread.
pub fn check(db: &Database, acknowledged: &Acknowledged) -> Acknowledged {
    let txn = db.begin();
    for table in txn.catalog().tables() {
        check_indexes(&txn, table);
        check_constraints(&txn, table);
    }
    if txn.catalog().table(SCHEMA, "ledger").is_err() {
        assert!(acknowledged.is_empty(), "the tables are gone");
        return Acknowledged::new();
    }
    let ledger = scan(&txn, &table(&txn, "ledger"));
    let newest = check_numbers(ledger.values(), acknowledged);
    let largest = check_parents(&txn, ledger.values().filter(|row| row[0].int() != DDL_THREAD));
    let definitions = ledger.values().filter(|row| row[0].int() == DDL_THREAD).max_by_key(|row| row[1].int());
    if let Some(row) = definitions {
        assert_eq!(describe(&txn), row[2].text(), "the definitions after DDL transaction {:?}", row[1]);
    }
    let children = scan(&txn, &table(&txn, "child")).values().map(|row| row[0].int()).max().unwrap_or(0);
    for (sequence, largest) in [("parent_id", largest), ("child_id", children)] {
        let next = db.next_value(txn.snapshot(), txn.catalog(), SCHEMA, sequence).unwrap();
        assert!(next > largest, "sequence {sequence} gives out {next} again, {largest} is in use");
    }
    newest
}

/// An index gives the rows that a scan gives: for every key that there is, and for all of them
/// together.
fn check_indexes(txn: &Transaction, table: &Table) {
    table.verify(txn.snapshot());
    let rows = scan(txn, table);
    for index in &table.indexes {
        let name = &index.definition.name;
        let mut by_key: BTreeMap<Vec<Datum>, Vec<RowId>> = BTreeMap::new();
        for (id, row) in &rows {
            let key: Vec<Datum> = index.definition.columns.iter().map(|&c| row[c].clone()).collect();
            if !key.contains(&Datum::Null) {
                by_key.entry(key).or_default().push(*id);
            }
        }
        for (key, expected) in by_key {
            let values: Vec<_> = key.iter().map(Datum::value).collect();
            assert_eq!(txn.lookup(table, index, &values).unwrap(), expected, "the rows of {key:?} in index {name}");
            assert!(!index.definition.unique || expected.len() == 1, "{key:?} is not unique in {name}");
        }
        assert_eq!(index.entries.len(), rows.len(), "index {name} was rebuilt from the rows");
    }
}

fn check_constraints(txn: &Transaction, table: &Table) {
    let rows = scan(txn, table);
    for (i, column) in table.definition.columns.iter().enumerate().filter(|(_, column)| !column.nullable) {
        assert!(rows.values().all(|row| row[i] != Datum::Null), "a NULL in {}.{}", table.name(), column.name);
    }
    for foreign_key in &table.definition.foreign_keys {
        let pick = |row: &Vec<Datum>, columns: &[usize]| columns.iter().map(|&c| row[c].clone()).collect::<Vec<_>>();
        let parents = scan(txn, txn.catalog().table(&foreign_key.parent_schema, &foreign_key.parent_table).unwrap());
        let keys: BTreeSet<_> = parents.values().map(|row| pick(row, &foreign_key.parent_columns)).collect();
        for row in rows.values() {
            let key = pick(row, &foreign_key.columns);
            assert!(key.contains(&Datum::Null) || keys.contains(&key), "{}: {key:?} has no parent", foreign_key.name);
        }
    }
}

/// A thread begins a transaction when the one before is durable. All acknowledged ones are there,
/// and at most one more.
fn check_numbers<'a>(ledger: impl Iterator<Item = &'a Vec<Datum>>, acknowledged: &Acknowledged) -> Acknowledged {
    let mut numbers: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for row in ledger {
        numbers.entry(row[0].int()).or_default().insert(row[1].int());
    }
    for thread in 0..=DDL_THREAD {
        let there = numbers.get(&thread).map_or(-1, |numbers| numbers.len() as i64 - 1);
        let newest = numbers.get(&thread).and_then(|numbers| numbers.last().copied()).unwrap_or(-1);
        assert_eq!(there, newest, "transactions of thread {thread} are missing in between");
        let told = acknowledged.get(&thread).copied().unwrap_or(-1);
        assert!(newest >= told, "thread {thread}: {told} was acknowledged, {newest} is the last one there");
        assert!(newest <= told + 1, "thread {thread}: {newest} is there, but {} was never acknowledged", newest - 1);
    }
    numbers.into_iter().filter_map(|(thread, numbers)| Some((thread, *numbers.last()?))).collect()
}

/// Every parent is as its newest entry in the ledger says, and has as many children. Returns the
/// largest id that was ever used.
fn check_parents<'a>(txn: &Transaction, ledger: impl Iterator<Item = &'a Vec<Datum>>) -> i64 {
    // By parent: version → number of children, or `None` if it is gone.
    let mut entries: BTreeMap<i64, BTreeMap<i64, Option<i64>>> = BTreeMap::new();
    for row in ledger {
        let words: Vec<&str> = row[2].text().split(' ').collect();
        let number = |i: usize| words[i].parse::<i64>().expect("a number");
        let children = (words[2] != "gone").then(|| number(2));
        let twice = entries.entry(number(0)).or_default().insert(number(1), children);
        assert!(twice.is_none(), "two transactions made version {} of parent {}", words[1], words[0]);
    }
    let mut parents: BTreeMap<i64, Vec<Datum>> =
        scan(txn, &table(txn, "parent")).into_values().map(|row| (row[0].int(), row)).collect();
    let mut children: BTreeMap<i64, i64> = BTreeMap::new();
    for row in scan(txn, &table(txn, "child")).into_values() {
        *children.entry(row[1].int()).or_default() += 1;
    }
    let largest = entries.keys().last().copied().unwrap_or(0);
    for (id, versions) in entries {
        let (version, expected) = versions.last_key_value().expect("made with an entry");
        assert_eq!(versions.len() as i64, *version, "versions of parent {id} are missing in between");
        let (found, count) = (parents.remove(&id), children.remove(&id).unwrap_or(0));
        match expected {
            None => assert_eq!((found, count), (None, 0), "parent {id} is gone, and its children with it"),
            Some(expected) => {
                let row = found.unwrap_or_else(|| panic!("parent {id} is missing"));
                assert_eq!((row[2].int(), row[3].int(), count), (*version, *expected, *expected), "parent {id}");
                assert_eq!(row[1].text(), format!("code {version} of parent {id}"));
            }
        }
    }
    assert!(parents.is_empty() && children.is_empty(), "rows without an entry: {parents:?} {children:?}");
    largest
}
