//! A bitmap index: exact in every snapshot while rows change, and counts without reading rows.
//!
//! `cargo run --example bitmap_index`

use seracdb::arrow::util::pretty::pretty_format_batches;
use seracdb::prelude::*;

async fn show(session: &mut Session, sql: &str) -> Result<(), Box<dyn std::error::Error>> {
    println!("{sql}");
    for result in session.execute(sql).await? {
        if let StatementResult::Rows { batches, .. } = result {
            println!("{}", pretty_format_batches(&batches)?);
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = seracdb::in_memory()?;
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE parcel (id INT PRIMARY KEY, state TEXT NOT NULL, weight INT NOT NULL)").await?;
    session
        .execute(
            "INSERT INTO parcel SELECT i, CASE WHEN i % 100 = 0 THEN 'lost' WHEN i % 3 = 0 THEN 'on its way' ELSE 'delivered' END, \
             i % 50 FROM generate_series(1, 100000) AS g(i)",
        )
        .await?;
    session.execute("CREATE INDEX parcel_state ON parcel USING bitmap (state)").await?;
    session.execute("ANALYZE parcel").await?;

    let query = "SELECT state, count(*) FROM parcel GROUP BY state ORDER BY state";
    show(&mut session, query).await?;
    show(&mut session, &format!("EXPLAIN {query}")).await?;

    // The index shows a change to the snapshots that see it.
    session.execute("UPDATE parcel SET state = 'delivered' WHERE state = 'lost'").await?;
    show(&mut session, "SELECT count(*) FROM parcel WHERE state = 'lost'").await?;
    Ok(())
}
