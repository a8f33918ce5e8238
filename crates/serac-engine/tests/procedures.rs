//! Stored procedures: rows by key, statements of one row, retries, and procedures by name.

mod common;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use serac_engine::catalog::definition::*;
use serac_engine::catalog::procedure::{Parameter, Procedure};
use serac_engine::values::OwnedValue;
use serac_engine::{ColumnUpdate, Database, EngineError, IndexAccess, KeyRange, Resolved, RetryPolicy, Transaction};
use serac_storage::{ColumnType, RowBuffer, RowId, Value};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn column(name: &str, column_type: ColumnType, nullable: bool) -> ColumnDefinition {
    ColumnDefinition { nullable, ..common::column(name, column_type) }
}

fn key(name: &str, columns: &[usize], unique: bool) -> KeyDefinition {
    common::key(name, columns, unique, false)
}

/// A table of accounts: (branch, number) unique, an index on (branch, owner).
fn accounts() -> Database {
    let db = Database::in_memory().unwrap();
    let columns = vec![
        column("branch", ColumnType::Int32, false),
        column("number", ColumnType::Int32, false),
        column("owner", ColumnType::Utf8, true),
        column("balance", ColumnType::Int64, false),
    ];
    let mut definition = TableDefinition::new("public", "account", columns);
    definition.columns[2].sql_type.length = Some(20);
    definition.keys = vec![key("account_key", &[0, 1], true), key("account_owner", &[0, 2], false)];
    db.transact(|txn| txn.create_table(definition.clone()).map(|_| ())).unwrap();
    db
}

fn insert(
    txn: &mut Transaction,
    branch: i32,
    number: i32,
    owner: Option<&str>,
    balance: i64,
) -> Result<RowId, EngineError> {
    let table = txn.catalog().table("public", "account")?.clone();
    txn.insert(&table, &[branch.into(), number.into(), owner.into(), balance.into()])
}

fn numbers(txn: &Transaction, index: &str, range: KeyRange<'_>) -> Vec<i32> {
    let access = IndexAccess::named(txn.catalog(), "account", index, &["number"]).unwrap();
    let (mut found, mut row) = (Vec::new(), RowBuffer::default());
    txn.scan(&access, &range, &mut row, |_, row| {
        found.push(row.get::<i32>(0)?);
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found
}

fn balance(txn: &Transaction, number: i32) -> Option<(RowId, i64)> {
    let access = IndexAccess::named(txn.catalog(), "account", "account_key", &["balance"]).unwrap();
    let mut row = RowBuffer::default();
    let id = txn.get(&access, &[1.into(), number.into()], &mut row).unwrap()?;
    Some((id, row.get(0).unwrap()))
}

/// A lookup starts at the place where the last lookup found the key. It must not find a row that
/// its snapshot does not see, nor another key.
#[test]
fn what_was_found_before_leads_nobody_astray() {
    let db = accounts();
    let first: Vec<RowId> =
        db.transact(|txn| (0..200).map(|number| insert(txn, 1, number, None, i64::from(number))).collect()).unwrap();
    let old = db.begin();
    // Found twice: what is remembered by the first lookup is used by the second.
    let look = |txn: &Transaction, rows: &[RowId], change: i64| {
        for (number, &row) in rows.iter().enumerate() {
            let expected = Some((row, number as i64 + change));
            assert_eq!([balance(txn, number as i32), balance(txn, number as i32)], [expected; 2]);
        }
    };
    look(&old, &first, 0);
    // The keys go to new rows.
    let table = old.catalog().table("public", "account").unwrap().clone();
    let second: Vec<RowId> = db
        .transact(|txn| {
            for &row in &first {
                txn.delete(&table, row)?;
            }
            (0..200).map(|number| insert(txn, 1, number, None, i64::from(number) + 1_000)).collect()
        })
        .unwrap();
    for _ in 0..2 {
        look(&db.begin(), &second, 1_000);
        look(&old, &first, 0);
    }
    // Each row gets the key of another one.
    let key = ColumnUpdate::new(db.begin().catalog(), &table, &[1]);
    db.transact(|txn| {
        let mut update = txn.start_update(&key)?;
        for (i, &row) in second.iter().enumerate() {
            txn.update_row(&mut update, row, &[Value::Int32((i as i32 + 1) % 200)])?;
        }
        txn.finish_update(update)
    })
    .unwrap();
    let now = db.begin();
    for number in 0..200 {
        let before = (number as usize + 199) % 200;
        let expected = Some((second[before], before as i64 + 1_000));
        assert_eq!([balance(&now, number), balance(&now, number)], [expected; 2]);
    }
    look(&old, &first, 0);
    db.transact(|txn| second.iter().try_for_each(|&row| txn.delete(&table, row))).unwrap();
    assert!((0..200).all(|number| balance(&db.begin(), number).is_none()));
    look(&old, &first, 0);
}

#[test]
fn ranges_go_both_ways_and_leave_nulls_out() {
    let db = accounts();
    db.transact(|txn| {
        for number in 0..10 {
            let owner = (number % 3 > 0).then_some(["", "ann", "bob"][number as usize % 3]);
            insert(txn, 1, number, owner, 0)?;
            insert(txn, 2, number, owner, 0)?;
        }
        Ok(())
    })
    .unwrap();
    let txn = db.begin();
    let branch = [Value::Int32(1)];
    let prefix = KeyRange::prefix(&branch);
    assert_eq!(numbers(&txn, "account_key", prefix), (0..10).collect::<Vec<_>>());
    assert_eq!(numbers(&txn, "account_key", prefix.backwards()), (0..10).rev().collect::<Vec<_>>());
    let middle = prefix.from(Bound::Excluded(3.into())).to(Bound::Included(6.into()));
    assert_eq!(numbers(&txn, "account_key", middle), [4, 5, 6]);
    assert_eq!(numbers(&txn, "account_key", middle.backwards()), [6, 5, 4]);
    assert_eq!(numbers(&txn, "account_key", prefix.from(Bound::Included(8.into()))), [8, 9]);
    assert_eq!(numbers(&txn, "account_key", prefix.to(Bound::Excluded(2.into()))), [0, 1]);
    assert_eq!(
        numbers(&txn, "account_key", prefix.from(Bound::Included(7.into())).to(Bound::Excluded(7.into()))),
        [0; 0]
    );
    // Keys without an owner come last, and are in no range with a bound.
    let mut owned = numbers(&txn, "account_owner", prefix.from(Bound::Excluded("ann".into())));
    owned.sort_unstable();
    assert_eq!(owned, [2, 5, 8]);
    assert_eq!(numbers(&txn, "account_owner", prefix).len(), 10);
    assert_eq!(numbers(&txn, "account_owner", prefix.to(Bound::Included("bob".into()))).len(), 6);
    let nobody = [Value::Int32(1), Value::Null];
    assert!(numbers(&txn, "account_owner", KeyRange::prefix(&nobody)).is_empty(), "NULL equals nothing");
}

#[test]
fn a_failed_statement_leaves_nothing_and_the_transaction_goes_on() {
    let db = accounts();
    db.transact(|txn| {
        insert(txn, 1, 1, Some("ann"), 10)?;
        insert(txn, 1, 2, Some("bob"), 20)?;
        assert_eq!(insert(txn, 1, 1, None, 0).unwrap_err().sqlstate(), "23505");
        assert_eq!(insert(txn, 1, 3, Some("a name that is far too long"), 0).unwrap_err().sqlstate(), "22001");
        let table = txn.catalog().table("public", "account")?.clone();
        let text = Value::Bytes(&[0xFF]);
        assert_eq!(txn.insert(&table, &[1.into(), 4.into(), text, 0i64.into()]).unwrap_err().sqlstate(), "22000");
        assert_eq!(txn.insert(&table, &[1.into()]).unwrap_err().sqlstate(), "22000", "too few values");
        let number = ColumnUpdate::named(txn.catalog(), "account", &["number"])?;
        let (second, _) = balance(txn, 2).unwrap();
        assert_eq!(txn.update(&number, second, &[1.into()]).unwrap_err().sqlstate(), "23505");
        assert_eq!(txn.update(&number, second, &[Value::Null]).unwrap_err().sqlstate(), "23502");
        assert_eq!(numbers(txn, "account_key", KeyRange::prefix(&[1.into()])), [1, 2]);
        txn.update(&number, second, &[7.into()])
    })
    .unwrap();
    let txn = db.begin();
    assert_eq!(numbers(&txn, "account_key", KeyRange::prefix(&[1.into()])), [1, 7]);
    assert_eq!(balance(&txn, 7).map(|found| found.1), Some(20));
    txn.catalog().table("public", "account").unwrap().verify(txn.snapshot());
}

#[test]
fn a_key_can_be_deleted_and_inserted_again_in_one_transaction() {
    let db = accounts();
    db.transact(|txn| insert(txn, 1, 1, None, 1)).unwrap();
    let old = db.begin();
    for round in 2..20 {
        db.transact(|txn| {
            let table = txn.catalog().table("public", "account")?.clone();
            for balance_now in [round, round + 100, round] {
                let (row, _) = balance(txn, 1).unwrap();
                txn.delete(&table, row)?;
                assert!(balance(txn, 1).is_none());
                insert(txn, 1, 1, None, balance_now)?;
            }
            assert_eq!(insert(txn, 1, 1, None, 0).unwrap_err().sqlstate(), "23505");
            Ok(())
        })
        .unwrap();
        assert_eq!(balance(&db.begin(), 1).map(|found| found.1), Some(round));
    }
    assert_eq!(balance(&old, 1).map(|found| found.1), Some(1), "an old snapshot keeps its row");
    drop(old);
    while db.storage().run_gc().waiting > 0 {}
    db.storage().run_gc();
    let table = db.catalog().table("public", "account").unwrap().clone();
    assert_eq!(table.indexes[0].entries.len(), 1, "entries of dead rows are gone");
}

#[test]
fn conflicts_are_tried_again_and_no_update_is_lost() {
    let db = accounts();
    db.transact(|txn| insert(txn, 1, 1, None, 0)).unwrap();
    let (deposit, attempts) = (Resolved::default(), AtomicU64::new(0));
    let (threads, rounds) = (4, 200);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let patient =
                    RetryPolicy { attempts: 10_000, longest_wait: Duration::from_micros(200), ..Default::default() };
                for _ in 0..rounds {
                    db.transact_with(&patient, |txn| {
                        attempts.fetch_add(1, Ordering::Relaxed);
                        let plan: Arc<ColumnUpdate> =
                            deposit.get(txn, |catalog| ColumnUpdate::named(catalog, "account", &["balance"]))?;
                        let (row, balance) = balance(txn, 1).unwrap();
                        txn.update(&plan, row, &[(balance + 1).into()])
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(balance(&db.begin(), 1).map(|found| found.1), Some(threads * rounds));
    assert!(attempts.load(Ordering::Relaxed) >= (threads * rounds) as u64);
    // A policy of one attempt gives the conflict to the caller; so does one that keeps meeting the
    // same.
    let mut blocker = db.begin();
    let plan = ColumnUpdate::named(blocker.catalog(), "account", &["balance"]).unwrap();
    let (row, _) = balance(&blocker, 1).unwrap();
    blocker.update(&plan, row, &[0i64.into()]).unwrap();
    let mut tries = 0;
    let short = RetryPolicy { attempts: 3, ..Default::default() };
    let error = db.transact_with(&short, |txn| {
        tries += 1;
        txn.update(&plan, row, &[1i64.into()])
    });
    assert_eq!((error.unwrap_err().sqlstate(), tries), ("40001", 3));
}

#[test]
fn an_error_rolls_back_and_is_not_tried_again() {
    let db = accounts();
    let mut tries = 0;
    let error = db.transact(|txn| -> Result<(), EngineError> {
        tries += 1;
        insert(txn, 1, 1, None, 0)?;
        Err(EngineError::Raised("enough".into()))
    });
    assert_eq!((error.unwrap_err().sqlstate(), tries), ("P0001", 1));
    assert!(balance(&db.begin(), 1).is_none());
}

#[test]
fn what_was_made_from_an_older_catalog_is_refused_or_made_again() {
    let db = accounts();
    db.transact(|txn| insert(txn, 1, 1, None, 5)).unwrap();
    let catalog = db.catalog();
    let stale = IndexAccess::named(&catalog, "account", "account_key", &["balance"]).unwrap();
    let stale_update = ColumnUpdate::named(&catalog, "account", &["balance"]).unwrap();
    let kept = Resolved::default();
    let read = |txn: &Transaction| {
        let access = kept.get(txn, |catalog| IndexAccess::named(catalog, "account", "account_key", &["balance"]))?;
        let mut row = RowBuffer::default();
        assert!(txn.get(&access, &[1.into(), 1.into()], &mut row)?.is_some());
        Ok::<i64, EngineError>(row.get(0)?)
    };
    assert_eq!(read(&db.begin()).unwrap(), 5);
    db.transact(|txn| txn.rename_table("public", "account", "other")).unwrap();
    db.transact(|txn| txn.rename_table("public", "other", "account")).unwrap();
    let mut txn = db.begin();
    assert_eq!(read(&txn).unwrap(), 5, "resolved again");
    let mut row = RowBuffer::default();
    assert_eq!(txn.get(&stale, &[1.into(), 1.into()], &mut row).unwrap_err().sqlstate(), "40001");
    assert_eq!(txn.update(&stale_update, RowId::from_u64(0), &[0i64.into()]).unwrap_err().sqlstate(), "40001");
}

#[test]
fn procedures_are_called_by_name_with_checked_arguments() {
    let db = accounts();
    let parameters = vec![Parameter::new("number", ColumnType::Int32), Parameter::new("amount", ColumnType::Int64)];
    let returns = vec![Parameter::new("balance", ColumnType::Int64)];
    let deposit = Resolved::default();
    let body = move |txn: &mut Transaction, arguments: &[Value<'_>]| {
        let (Value::Int32(number), Value::Int64(amount)) = (arguments[0], arguments[1]) else {
            return Err(EngineError::Raised("an amount is needed".into()));
        };
        let plan = deposit.get(txn, |catalog| ColumnUpdate::named(catalog, "account", &["balance"]))?;
        let balance = match balance(txn, number) {
            Some((row, balance)) => {
                txn.update(&plan, row, &[(balance + amount).into()])?;
                balance + amount
            }
            None => {
                insert(txn, 1, number, None, amount)?;
                amount
            }
        };
        Ok(vec![vec![OwnedValue::Fixed(Value::Int64(balance))]])
    };
    db.register_procedure("deposit", Procedure::new(parameters, returns, body));
    assert_eq!(db.procedure_names(), ["deposit"]);
    for (amount, expected) in [(5i64, 5), (7, 12)] {
        let batch = db.call("deposit", &[3.into(), amount.into()]).unwrap();
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[expected]);
    }
    assert_eq!(db.call("withdraw", &[]).unwrap_err().sqlstate(), "42883");
    assert_eq!(db.call("deposit", &[3.into()]).unwrap_err().sqlstate(), "42883");
    assert_eq!(db.call("deposit", &[3i64.into(), 1i64.into()]).unwrap_err().sqlstate(), "42883");
    assert_eq!(db.call("deposit", &[3.into(), Value::Null]).unwrap_err().sqlstate(), "P0001");
    assert_eq!(balance(&db.begin(), 3).map(|found| found.1), Some(12));
}
