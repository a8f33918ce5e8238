//! Statements by key, compiled once: they run in the calling thread, without a runtime.
//!
//! `cargo run --example prepared`

use seracdb::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = seracdb::in_memory()?;
    let mut session = Session::new(&db);
    // DDL and queries need a runtime.
    let table = "CREATE TABLE counter (id BIGINT PRIMARY KEY, hits BIGINT NOT NULL)";
    tokio::runtime::Runtime::new()?.block_on(session.execute(table))?;

    let mut rows = Rows::default();
    let mut insert = session.prepare("INSERT INTO counter VALUES ($1, 0)")?;
    for id in 0..1000 {
        session.run_prepared(&mut insert, &[Value::Int64(id)], &mut rows)?;
    }
    let mut hit = session.prepare("UPDATE counter SET hits = hits + $2 WHERE id = $1 RETURNING hits")?;
    let changed = session.run_prepared(&mut hit, &[Value::Int64(7), Value::Int64(3)], &mut rows)?;
    assert_eq!(changed, Some(1));
    assert_eq!(rows.value(0, 0), Value::Int64(3));
    println!("{:?}", rows.value(0, 0));
    Ok(())
}
