//! A database with a table of all types, served over Flight on a free port.
#![allow(dead_code, reason = "each test binary uses what it needs")]

mod every;

use arrow_array::RecordBatch;
use arrow_flight::{CancelFlightInfoRequest, CancelStatus, FlightClient, FlightDescriptor, FlightInfo};
use arrow_ord::sort::sort_to_indices;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
pub use every::every;
use futures::TryStreamExt;
use serac_engine::{Database, Table};
use serac_export::flight::{FlightOptions, FlightServer};
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};
use serac_storage::StorageOptions;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A database whose blocks freeze only when a test asks for it.
pub fn database() -> SqlDatabase {
    let options = StorageOptions { freeze_after: None, ..StorageOptions::default() };
    SqlDatabase::new(Database::open_with(options).unwrap(), &SqlOptions::default()).unwrap()
}

pub async fn execute(db: &SqlDatabase, sql: &str) {
    Session::new(db).execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// The rows of a query, as one batch.
pub async fn query(db: &SqlDatabase, sql: &str) -> RecordBatch {
    match Session::new(db).execute(sql).await.unwrap().pop() {
        Some(StatementResult::Rows { schema, batches, .. }) => concat_batches(&schema, &batches).unwrap(),
        other => panic!("{sql} gives {other:?}"),
    }
}

pub fn table(db: &SqlDatabase, name: &str) -> Arc<Table> {
    db.database().catalog().table("public", name).unwrap().clone()
}

pub fn freeze(db: &SqlDatabase, name: &str) {
    let (frozen, blocks) = db.database().storage().freeze_table(&table(db, name).data, Duration::from_secs(20));
    assert_eq!(frozen, blocks, "blocks of {name} that are frozen");
}

pub const EVERY: &str = "CREATE TABLE every (id BIGINT NOT NULL, b BOOLEAN, s SMALLINT, i INTEGER, r REAL, d DOUBLE PRECISION,
    n NUMERIC(12,3), big NUMERIC(30,5), dt DATE, tm TIME, ts TIMESTAMP, tz TIMESTAMPTZ, iv INTERVAL, v VARCHAR(20), x TEXT, y BYTEA,
    u UUID, w TEXT, all_null TEXT)";

pub fn insert(db: &SqlDatabase, name: &str, batch: &RecordBatch) {
    let mut txn = db.database().begin();
    txn.insert_batch(&table(db, name), batch).unwrap();
    txn.commit().unwrap().wait().unwrap();
}

/// One batch of all rows in the order of the first column.
pub fn sorted(batches: &[RecordBatch]) -> RecordBatch {
    let all = concat_batches(&batches[0].schema(), batches).unwrap();
    take_record_batch(&all, &sort_to_indices(all.column(0), None, None).unwrap()).unwrap()
}

/// A server that runs until it is stopped or dropped.
pub struct Served {
    pub address: SocketAddr,
    pub stop: oneshot::Sender<()>,
    pub ended: JoinHandle<()>,
}

pub async fn serve(db: &SqlDatabase, options: FlightOptions) -> Served {
    let server = FlightServer::bind(db.database().clone(), "127.0.0.1:0".parse().unwrap(), options).await.unwrap();
    let address = server.local_address().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(server.run(async move {
        let _ = stopped.await;
    }));
    Served { address, stop, ended }
}

impl Served {
    pub async fn client(&self) -> FlightClient {
        let channel = tonic::transport::Channel::from_shared(format!("http://{}", self.address)).unwrap();
        FlightClient::new(channel.connect().await.unwrap())
    }
}

/// All batches of all endpoints.
pub async fn fetch(client: &mut FlightClient, info: &FlightInfo) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    for endpoint in &info.endpoint {
        let stream = client.do_get(endpoint.ticket.clone().unwrap()).await.unwrap();
        batches.extend(stream.try_collect::<Vec<_>>().await.unwrap());
    }
    batches
}

/// Lets the snapshot of a flight go: while it is held, nothing that has changed since can freeze.
pub async fn release(client: &mut FlightClient, info: FlightInfo) {
    let result = client.cancel_flight_info(CancelFlightInfoRequest::new(info)).await.unwrap();
    assert_eq!(result.status(), CancelStatus::Cancelled);
}

/// A command descriptor.
pub fn command(json: &str) -> FlightDescriptor {
    FlightDescriptor::new_cmd(json.as_bytes().to_vec())
}
