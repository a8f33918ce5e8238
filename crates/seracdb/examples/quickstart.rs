//! A database in a folder: a table, a transaction, and a query whose result is Arrow.
//!
//! `cargo run --example quickstart`

use seracdb::arrow::util::pretty::pretty_format_batches;
use seracdb::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = seracdb::open(folder.path())?;
    let mut session = Session::new(&db);
    session
        .execute("CREATE TABLE account (id INT PRIMARY KEY, owner TEXT NOT NULL, balance NUMERIC(12, 2) CHECK (balance >= 0))")
        .await?;
    session.execute("INSERT INTO account VALUES (1, 'ada', 100), (2, 'bob', 20)").await?;

    session.execute("BEGIN").await?;
    session.execute("UPDATE account SET balance = balance - 30 WHERE owner = 'ada'").await?;
    session.execute("UPDATE account SET balance = balance + 30 WHERE owner = 'bob'").await?;
    session.execute("COMMIT").await?;

    // A change that a constraint forbids is an error with PostgreSQL's SQLSTATE, and changes
    // nothing.
    let error = session.execute("UPDATE account SET balance = balance - 1000").await.unwrap_err();
    assert_eq!(error.sqlstate, "23514");

    for result in session.execute("SELECT owner, balance FROM account ORDER BY owner").await? {
        if let StatementResult::Rows { batches, .. } = result {
            println!("{}", pretty_format_batches(&batches)?);
        }
    }
    db.database().close()?;
    Ok(())
}
