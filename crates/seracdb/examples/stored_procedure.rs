//! Stored procedures: a transaction in Rust, run again after conflicts, and called by SQL.
//!
//! `cargo run --example stored_procedure`

use seracdb::engine::catalog::procedure::{Parameter, Procedure};
use seracdb::engine::values::OwnedValue;
use seracdb::engine::{ColumnUpdate, EngineError, IndexAccess};
use seracdb::prelude::*;
use seracdb::{ColumnType, RowBuffer, engine};

/// Adds `amount` to the balance of an account, and returns the new balance.
fn deposit(txn: &mut engine::Transaction, id: i32, amount: i64) -> Result<i64, EngineError> {
    let table = txn.catalog().table("public", "account")?.clone();
    let access = IndexAccess::named(txn.catalog(), "account", "account_pkey", &["balance"])?;
    let mut row = RowBuffer::default();
    let found = txn.get(&access, &[id.into()], &mut row)?;
    let found = found.ok_or_else(|| EngineError::InvalidCall(format!("there is no account {id}")))?;
    let balance = row.get::<i64>(0)? + amount;
    let column = ColumnUpdate::new(txn.catalog(), &table, &[1]);
    txn.update(&column, found, &[balance.into()])?;
    Ok(balance)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = seracdb::in_memory()?;
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL)").await?;
    session.execute("INSERT INTO account VALUES (1, 100), (2, 20)").await?;

    // The code runs in the calling thread: no statement is parsed, and no batch is made.
    assert_eq!(db.database().transact(|txn| deposit(txn, 1, 30))?, 130);

    // Under a name, a statement can call it, also from another machine.
    let parameters = vec![Parameter::new("id", ColumnType::Int32), Parameter::new("amount", ColumnType::Int64)];
    let returns = vec![Parameter::new("balance", ColumnType::Int64)];
    let procedure = Procedure::new(parameters, returns, |txn, arguments| match *arguments {
        [Value::Int32(id), Value::Int64(amount)] => {
            Ok(vec![vec![OwnedValue::Fixed(Value::Int64(deposit(txn, id, amount)?))]])
        }
        _ => Err(EngineError::InvalidCall("deposit of NULL".into())),
    });
    db.database().register_procedure("deposit", procedure);
    if let Some(StatementResult::Rows { batches, .. }) = session.execute("CALL deposit(1, 5)").await?.pop() {
        println!("{batches:?}");
    }
    Ok(())
}
