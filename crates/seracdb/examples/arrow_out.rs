//! A table as Arrow: the batches of frozen blocks are the blocks' own memory, not a copy.
//!
//! `cargo run --example arrow_out`

use seracdb::prelude::*;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = seracdb::in_memory()?;
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE reading (sensor INT NOT NULL, value DOUBLE PRECISION NOT NULL)").await?;
    session.execute("INSERT INTO reading SELECT i % 10, i * 0.5 FROM generate_series(1, 1000000) AS g(i)").await?;

    let table = db.database().begin().catalog().table("public", "reading")?.clone();
    // Blocks freeze by themselves once they are cold; here they are frozen at once.
    db.database().storage().freeze_table(&table.data, Duration::from_secs(20));

    let place = || -> Result<_, Box<dyn std::error::Error>> {
        let mut scan = db.database().begin().scan_arrow(&table, &[0, 1], &[])?;
        let batch = scan.next().ok_or("no batch")??;
        Ok((batch.column(1).to_data().buffers()[0].as_ptr(), batch.num_rows()))
    };
    let ((first, rows), (second, _)) = (place()?, place()?);
    assert_eq!(first, second, "both scans are given the block's own memory");
    println!("{rows} rows of the first block, at {first:?} for everybody");
    Ok(())
}
