//! Arrow Flight: a server in the program, and a client that reads a table from it.
//!
//! `cargo run --example flight_server`; a program that depends on `seracdb` has the server as
//! `seracdb::export`, with the feature `export`.

use arrow_flight::{FlightClient, FlightDescriptor};
use futures::TryStreamExt;
use serac_export::flight::{FlightOptions, FlightServer};
use seracdb::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = seracdb::in_memory()?;
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE city (name TEXT PRIMARY KEY, people BIGINT)").await?;
    session.execute("INSERT INTO city VALUES ('Bern', 134591), ('Basel', 173552)").await?;

    let address = "127.0.0.1:0".parse()?;
    let server = FlightServer::bind(db.database().clone(), address, FlightOptions::default()).await?;
    let address = server.local_address()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));

    let channel = tonic::transport::Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = FlightClient::new(channel);
    let info = client.get_flight_info(FlightDescriptor::new_path(vec!["city".into()])).await?;
    let mut rows = 0;
    for endpoint in info.endpoint {
        let ticket = endpoint.ticket.ok_or("an endpoint without a ticket")?;
        let batches: Vec<_> = client.do_get(ticket).await?.try_collect().await?;
        rows += batches.iter().map(|batch| batch.num_rows()).sum::<usize>();
    }
    assert_eq!(rows, 2);
    println!("{rows} rows by Flight from {address}");
    drop(client);
    let _ = stop.send(());
    serving.await?;
    Ok(())
}
