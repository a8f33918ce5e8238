//! Tables over Flight with one-sided access: reads and writes give the batches of DoGet, leases
//! end, and no client gets another's data.

use arrow_array::{ArrayRef, Decimal64Array, Int64Array, RecordBatch, StringViewArray};
use arrow_flight::error::FlightError;
use arrow_flight::{Action, FlightClient, FlightData, FlightDescriptor, FlightInfo, Ticket};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use futures::TryStreamExt;
use prost::Message;
use serac_engine::catalog::definition::{ColumnDefinition, TableDefinition};
use serac_engine::security::{Object, Privilege, Privileges, RoleId, RoleOptions, Terms};
use serac_engine::{Database, Table};
use serac_export::flight::{FlightOptions, FlightServer, Token};
use serac_export::rdma::RdmaOptions;
use serac_export::rdma::client::{RdmaClient, RdmaError, Slots};
use serac_export::rdma::transport::{Endpoint, Memory, Place, Region, Transfer, Transport, TransportError};
use serac_export::rdma::wire::*;
use serac_storage::{BlockNo, ColumnType, FreezeFormat, RowId, Slot, StorageOptions};
pub use serac_testing::{Served, until};
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::Code;

/// Rows that are frozen, and those that come behind them.
pub const FROZEN: i64 = 150_000;
pub const HOT: i64 = 2_000;

fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let price = ColumnType::Decimal { precision: 15, scale: 2 };
    let prices: Decimal64Array = ids.clone().map(|i| (i % 3 != 0).then_some(i * 7)).collect();
    let prices = arrow_cast::cast(&prices.with_precision_and_scale(15, 2).unwrap(), &price.arrow()).unwrap();
    let texts: StringViewArray = ids.clone().map(|i| Some(format!("one of many texts: {}", i % 5_000))).collect();
    RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from_iter_values(ids)) as ArrayRef),
        ("price", prices),
        ("text", Arc::new(texts)),
    ])
    .unwrap()
}

fn insert(db: &Database, table: &Arc<Table>, batch: &RecordBatch) {
    let mut txn = db.begin();
    txn.insert_batch(table, batch).unwrap();
    txn.commit().unwrap().wait().unwrap();
}

pub fn table(db: &Database) -> Arc<Table> {
    db.catalog().table("public", "t").unwrap().clone()
}

/// A table t whose first blocks are frozen.
pub fn database(format: FreezeFormat) -> Database {
    let options = StorageOptions { freeze_after: None, ..StorageOptions::default() };
    let db = Database::open_with(options).unwrap();
    let column = |name: &str, column_type: ColumnType| ColumnDefinition::new(name, column_type);
    let price = ColumnType::Decimal { precision: 15, scale: 2 };
    let columns = [("id", ColumnType::Int64), ("price", price), ("text", ColumnType::Utf8)];
    let columns = columns.map(|(name, column_type)| column(name, column_type)).to_vec();
    let mut txn = db.begin();
    let definition = TableDefinition { freeze_format: format, ..TableDefinition::new("public", "t", columns) };
    txn.create_table(definition).unwrap();
    txn.commit().unwrap().wait().unwrap();
    let table = table(&db);
    insert(&db, &table, &rows(0..FROZEN));
    let (frozen, blocks) = db.storage().freeze_table(&table.data, Duration::from_secs(60));
    assert!(frozen == blocks && blocks > 2, "{frozen} of {blocks} blocks are frozen");
    insert(&db, &table, &rows(FROZEN..FROZEN + HOT));
    db
}

/// Thaws the first block: one of its rows changes.
pub fn thaw(db: &Database) {
    let table = table(db);
    let mut txn = db.begin();
    let new = RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(vec![-1])) as ArrayRef)]).unwrap();
    txn.update_batch(&table, &[RowId::new(BlockNo(0), Slot(5))], &[0], &new).unwrap();
    txn.commit().unwrap().wait().unwrap();
    assert!(table.data.block(BlockNo(0)).unwrap().frozen().is_none());
}

/// A server that runs until it is dropped.
pub async fn serve(
    db: &Database,
    flight: FlightOptions,
    transport: Option<Arc<dyn Transport>>,
    limits: RdmaOptions,
) -> Served {
    let mut server = FlightServer::bind(db.clone(), "127.0.0.1:0".parse().unwrap(), flight).await.unwrap();
    if let Some(transport) = transport {
        server = server.with_rdma(transport, limits);
    }
    Served::start(server.local_address().unwrap(), |stop| server.run(stop))
}

pub async fn flight(address: SocketAddr) -> FlightClient {
    let channel = tonic::transport::Channel::from_shared(format!("http://{address}")).unwrap();
    FlightClient::new(channel.connect().await.unwrap())
}

/// Columns as they are stored.
pub const STORED: &str = r#"{"table": "t", "decimals": "decimal64", "endpoints": 1}"#;

pub async fn info(client: &mut FlightClient, command: &str) -> FlightInfo {
    client.get_flight_info(FlightDescriptor::new_cmd(command.to_owned())).await.unwrap()
}

pub async fn ticket(client: &mut FlightClient, command: &str) -> Ticket {
    info(client, command).await.endpoint[0].ticket.clone().unwrap()
}

async fn fetched(client: &mut FlightClient, ticket: &Ticket) -> RecordBatch {
    let batches: Vec<_> = client.do_get(ticket.clone()).await.unwrap().try_collect().await.unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

async fn read(client: &mut RdmaClient, ticket: &Ticket) -> Result<RecordBatch, RdmaError> {
    let (mut reading, mut batches) = (client.read(ticket.clone()), Vec::new());
    while let Some(batch) = reading.next().await? {
        batches.push(batch);
    }
    Ok(concat_batches(&batches[0].schema(), &batches).unwrap())
}

async fn received(client: &mut RdmaClient, ticket: &Ticket, slots: Slots) -> Result<RecordBatch, RdmaError> {
    let (mut receiving, mut batches) = (client.receive(ticket.clone(), slots), Vec::new());
    while let Some(batch) = receiving.next().await? {
        batches.push(batch);
    }
    Ok(concat_batches(&batches[0].schema(), &batches).unwrap())
}

pub async fn act(client: &mut FlightClient, name: &str, body: &impl Serialize) -> Result<Vec<Bytes>, Code> {
    let action = Action { r#type: name.into(), body: serde_json::to_vec(body).unwrap().into() };
    let code = |error: FlightError| match error {
        FlightError::Tonic(status) => status.code(),
        other => panic!("{other}"),
    };
    client.do_action(action).await.map_err(code)?.try_collect().await.map_err(code)
}

/// A client that speaks the actions itself.
pub struct Raw {
    pub flight: FlightClient,
    pub session: u64,
    pub endpoint: Arc<dyn Endpoint>,
}

impl Raw {
    pub async fn connect(served: &Served, transport: &dyn Transport) -> Result<Self, Code> {
        let mut flight = flight(served.address).await;
        let endpoint = transport.open().unwrap();
        let request = Connect { transport: transport.name().into(), address: endpoint.address() };
        let results = act(&mut flight, CONNECT, &request).await?;
        let Connected { session, address } = serde_json::from_slice(&results[0]).unwrap();
        endpoint.connect(&address).unwrap();
        Ok(Self { flight, session, endpoint })
    }

    /// The number of the lease, and the places in the directory.
    pub async fn directory(&mut self, ticket: &Ticket) -> Result<(u64, Vec<Place>), Code> {
        let scan = Scan { session: Some(self.session), ticket: ticket.ticket.to_vec(), from: 0 };
        let (mut lease, mut places) = (None, Vec::new());
        for result in act(&mut self.flight, DIRECTORY, &scan).await? {
            match serde_json::from_slice(&FlightData::decode(result).unwrap().app_metadata).unwrap() {
                Entry::Begin { lease: id, .. } => lease = id,
                Entry::Lent { pieces, .. } => places.extend(pieces.into_iter().filter_map(|piece| piece.place)),
                _ => {}
            }
        }
        Ok((lease.unwrap(), places))
    }

    pub fn read(&self, place: Place) -> Result<Vec<u8>, TransportError> {
        let region = Region::new(place.length as usize).unwrap();
        let local = self.endpoint.register(Memory::Private(region.clone())).unwrap();
        let result = self.endpoint.read(&[Transfer { local: local.part(0, place.length).unwrap(), remote: place }]);
        self.endpoint.revoke(local.key);
        result.map(|()| region.into_buffer().unwrap()[..place.length as usize].to_vec())
    }

    pub fn of(&self, lease: u64) -> Of {
        Of { session: self.session, lease }
    }
}

pub async fn both_ways_give_what_do_get_gives(transport: Arc<dyn Transport>) {
    for (format, strings) in
        [(FreezeFormat::View, "view"), (FreezeFormat::Utf8, "utf8"), (FreezeFormat::Dictionary, "dictionary")]
    {
        let db = database(format);
        let served = serve(&db, FlightOptions::default(), Some(transport.clone()), RdmaOptions::default()).await;
        let mut client = RdmaClient::connect(flight(served.address).await, transport.clone()).await.unwrap();
        assert!(client.is_connected());
        let command = format!(r#"{{"table": "t", "decimals": "decimal64", "strings": "{strings}", "endpoints": 1}}"#);
        let ticket = ticket(client.flight(), &command).await;
        let wanted = fetched(client.flight(), &ticket).await;
        assert_eq!(wanted.num_rows() as i64, FROZEN + HOT);
        let blocks = table(&db).data.block_count() as usize;
        assert_eq!(read(&mut client, &ticket).await.unwrap(), wanted, "{strings}");
        let ways = client.ways();
        assert!(ways.read + 1 == blocks && ways.fetched > 0 && ways.lost == 0, "{strings}: {ways:?} of {blocks}");

        let slots = Slots::default();
        assert_eq!(received(&mut client, &ticket, slots).await.unwrap(), wanted, "{strings}");
        // A long block comes in parts.
        let ways = client.ways();
        assert!(ways.written >= blocks && ways.lost == 0, "{strings}: {ways:?} of {blocks}");
        // Few slots, so that the server must be given new ones, and short ones.
        for slots in [Slots { count: 1, bytes: 4 << 20 }, Slots { count: 64, bytes: 300_000 }] {
            assert_eq!(received(&mut client, &ticket, slots).await.unwrap(), wanted, "{strings}, {slots:?}");
        }
        assert_eq!(client.ways().fetched, ways.fetched);
        // Places that no row fits in: the client fetches.
        let tiny = Slots { count: 4, bytes: 4_096 };
        assert_eq!(received(&mut client, &ticket, tiny).await.unwrap(), wanted, "{strings}");
        // Memory that is made for the client is not lent.
        let before = client.ways();
        let made =
            format!(r#"{{"table": "t", "filter": [["price", ">", 0]], "strings": "{strings}", "endpoints": 1}}"#);
        let ticket = self::ticket(client.flight(), &made).await;
        let wanted = fetched(client.flight(), &ticket).await;
        assert!(wanted.num_rows() as i64 > FROZEN / 2);
        assert_eq!(read(&mut client, &ticket).await.unwrap(), wanted, "{strings}");
        assert_eq!(client.ways().read, before.read, "{strings}");
        client.disconnect().await.unwrap();
        assert!(!client.is_connected());
        assert_eq!(read(&mut client, &ticket).await.unwrap(), wanted, "without a session");
    }
}

pub async fn a_client_without_the_servers_transport_fetches(transport: Arc<dyn Transport>) {
    let db = database(FreezeFormat::View);
    let served = serve(&db, FlightOptions::default(), None, RdmaOptions::default()).await;
    let mut client = RdmaClient::connect(flight(served.address).await, transport.clone()).await.unwrap();
    assert!(!client.is_connected());
    let ticket = ticket(client.flight(), STORED).await;
    let wanted = fetched(client.flight(), &ticket).await;
    assert_eq!(read(&mut client, &ticket).await.unwrap(), wanted);
    assert_eq!(received(&mut client, &ticket, Slots::default()).await.unwrap(), wanted);
    let actions = client.flight().list_actions().await.unwrap().try_collect::<Vec<_>>().await.unwrap();
    assert!(actions.iter().all(|action| !action.r#type.starts_with("Rdma")));
}

/// The first batch is there long before the last is on its way.
pub async fn batches_are_given_as_they_come(transport: Arc<dyn Transport>) {
    let db = database(FreezeFormat::View);
    let served = serve(&db, FlightOptions::default(), Some(transport.clone()), RdmaOptions::default()).await;
    let mut client = RdmaClient::connect(flight(served.address).await, transport).await.unwrap();
    let ticket = ticket(client.flight(), STORED).await;
    let mut receiving = client.receive(ticket, Slots { count: 2, bytes: 4 << 20 });
    // With two places, the server cannot have written more than two blocks.
    let first = receiving.next().await.unwrap().unwrap();
    assert_eq!(first.slice(0, 100).column(0), rows(0..100).column(0));
    let mut count = first.num_rows();
    while let Some(batch) = receiving.next().await.unwrap() {
        count += batch.num_rows();
    }
    assert_eq!(count as i64, FROZEN + HOT);
}

pub async fn a_lease_keeps_memory_and_its_end_revokes_the_key(transport: Arc<dyn Transport>) {
    let db = database(FreezeFormat::View);
    let flight_options = FlightOptions { lease: Duration::from_secs(6), ..FlightOptions::default() };
    let served = serve(&db, flight_options, Some(transport.clone()), RdmaOptions::default()).await;
    let mut raw = Raw::connect(&served, &*transport).await.unwrap();
    let ticket = ticket(&mut raw.flight, STORED).await;
    let (lease, places) = raw.directory(&ticket).await.unwrap();
    assert!(places.len() > 4, "{places:?}");
    let before: Vec<_> = places.iter().map(|place| raw.read(*place).unwrap()).collect();
    // A writer does not wait, and the memory stays unchanged.
    let start = Instant::now();
    thaw(&db);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    for (place, before) in places.iter().zip(&before) {
        assert_eq!(raw.read(*place).unwrap(), *before);
    }
    // Longer than its time, if it is renewed.
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let body = raw.of(lease);
        act(&mut raw.flight, RENEW, &body).await.unwrap();
    }
    assert_eq!(raw.read(places[0]).unwrap(), before[0]);
    // The end that the client asks for.
    let body = raw.of(lease);
    act(&mut raw.flight, RELEASE, &body).await.unwrap();
    assert_eq!(act(&mut raw.flight, RELEASE, &body).await, Err(Code::NotFound));
    assert_eq!(act(&mut raw.flight, RENEW, &body).await, Err(Code::NotFound));
    assert_eq!(raw.read(places[0]), Err(TransportError::Refused));

    // And the one that comes with time.
    let mut raw = Raw::connect(&served, &*transport).await.unwrap();
    let ticket = self::ticket(&mut raw.flight, STORED).await;
    let (lease, places) = raw.directory(&ticket).await.unwrap();
    raw.read(places[0]).unwrap();
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(raw.read(places[0]).is_err());
    let body = raw.of(lease);
    assert_eq!(act(&mut raw.flight, RENEW, &body).await, Err(Code::NotFound));
}

/// A client whose lease or connection is lost in the middle asks again and continues.
pub async fn a_client_asks_again_after_revocation(transport: Arc<dyn Transport>) {
    let db = database(FreezeFormat::View);
    let served = serve(&db, FlightOptions::default(), Some(transport.clone()), RdmaOptions::default()).await;
    let mut client = RdmaClient::connect(flight(served.address).await, transport).await.unwrap();
    let ticket = ticket(client.flight(), STORED).await;
    let wanted = fetched(client.flight(), &ticket).await;
    let mut other = flight(served.address).await;
    let session = client.session().unwrap();
    let mut reading = client.read(ticket.clone());
    let mut batches = vec![reading.next().await.unwrap().unwrap()];
    act(&mut other, DISCONNECT, &Of { session, lease: 0 }).await.unwrap();
    while let Some(batch) = reading.next().await.unwrap() {
        batches.push(batch);
    }
    assert_eq!(concat_batches(&wanted.schema(), &batches).unwrap(), wanted);
    assert_eq!(client.ways().lost, 1);
    assert!(client.ways().read + 1 >= table(&db).data.block_count() as usize);

    let session = client.session().unwrap();
    let mut receiving = client.receive(ticket, Slots { count: 1, bytes: 4 << 20 });
    let mut batches = vec![receiving.next().await.unwrap().unwrap()];
    act(&mut other, DISCONNECT, &Of { session, lease: 0 }).await.unwrap();
    while let Some(batch) = receiving.next().await.unwrap() {
        batches.push(batch);
    }
    assert_eq!(concat_batches(&wanted.schema(), &batches).unwrap(), wanted);
    assert_eq!(client.ways().lost, 2);
}

pub async fn hostile_requests_get_errors_and_take_nothing(transport: Arc<dyn Transport>) {
    let db = database(FreezeFormat::View);
    let limits = RdmaOptions { max_sessions: 4, max_leases: 3, ..RdmaOptions::default() };
    let options = FlightOptions { lease: Duration::from_secs(8), max_leases: 100, ..FlightOptions::default() };
    let served = serve(&db, options, Some(transport.clone()), limits).await;
    let mut raw = Raw::connect(&served, &*transport).await.unwrap();
    let ticket = ticket(&mut raw.flight, STORED).await;
    let session = Some(raw.session);
    let scan = Scan { session, ticket: ticket.ticket.to_vec(), from: 0 };

    // Bodies that are no request.
    for name in [CONNECT, DIRECTORY, WRITE, RENEW, RELEASE, DISCONNECT] {
        for body in ["", "{", "[]", "7", r#"{"session": -1}"#, r#"{"session": 1, "more": 2}"#] {
            let action = Action { r#type: name.into(), body: body.to_owned().into() };
            let results = match raw.flight.do_action(action).await {
                Ok(results) => results.try_collect::<Vec<_>>().await.map(drop),
                Err(error) => Err(error),
            };
            let Err(FlightError::Tonic(status)) = results else { panic!("{name} {body}") };
            assert_eq!(status.code(), Code::InvalidArgument, "{name} {body}: {status}");
        }
    }
    let address = raw.endpoint.address();
    let other = Connect { transport: "carrier pigeon".into(), address: address.clone() };
    assert_eq!(act(&mut raw.flight, CONNECT, &other).await, Err(Code::Unimplemented));
    for address in [vec![], vec![0; 5], vec![255; 29], vec![0; 100_000]] {
        let connect = Connect { transport: transport.name().into(), address };
        assert_eq!(act(&mut raw.flight, CONNECT, &connect).await, Err(Code::InvalidArgument));
    }
    // Sessions and leases of others, forged tickets, snapshots that are not held.
    let forged = Scan { session: Some(raw.session ^ 1), ..scan.clone() };
    assert_eq!(act(&mut raw.flight, DIRECTORY, &forged).await, Err(Code::NotFound));
    let nobody = Scan { ticket: br#"{"lease":12345,"blocks":{"start":0,"end":4000000000}}"#.to_vec(), ..scan.clone() };
    assert_eq!(act(&mut raw.flight, DIRECTORY, &nobody).await, Err(Code::NotFound));
    let garbage = Scan { ticket: vec![0; 1_000], ..scan.clone() };
    assert_eq!(act(&mut raw.flight, DIRECTORY, &garbage).await, Err(Code::InvalidArgument));
    let latest = self::ticket(&mut raw.flight, r#"{"table": "t", "snapshot": "latest"}"#).await;
    let latest = Scan { ticket: latest.ticket.to_vec(), ..scan.clone() };
    assert_eq!(act(&mut raw.flight, DIRECTORY, &latest).await, Err(Code::InvalidArgument));
    let of = raw.of(77);
    assert_eq!(act(&mut raw.flight, RENEW, &of).await, Err(Code::NotFound));

    // Places that make no sense.
    let place = Place { address: 4_096, length: 1 << 20, key: 1 };
    for slots in [vec![], vec![Place { length: 0, ..place }], vec![place; MOST_SLOTS + 1]] {
        let write = Write { scan: scan.clone(), slots };
        assert_eq!(act(&mut raw.flight, WRITE, &write).await, Err(Code::InvalidArgument));
    }
    // Places that are not the client's: however long they are said to be, the server takes no
    // memory for them, and the connection is over.
    for place in [place, Place { address: u64::MAX - 10, length: u64::MAX, key: 0 }] {
        let raw = &mut Raw::connect(&served, &*transport).await.unwrap();
        let write = Write { scan: Scan { session: Some(raw.session), ..scan.clone() }, slots: vec![place; 100] };
        let code = act(&mut raw.flight, WRITE, &write).await.unwrap_err();
        let is_refusal = [Code::FailedPrecondition, Code::InvalidArgument].contains(&code);
        assert!(is_refusal, "{place:?}: {code}");
        let of = raw.of(0);
        let _ = act(&mut raw.flight, DISCONNECT, &of).await;
    }

    // As many leases as a session may have, and no more.
    let mut leases = Vec::new();
    for count in 0..20 {
        match raw.directory(&ticket).await {
            Ok((lease, _)) => leases.push(lease),
            Err(code) => assert_eq!((code, count >= 3), (Code::ResourceExhausted, true)),
        }
    }
    assert_eq!(leases.len(), 3);
    // As many sessions; when their clients have disappeared, there is room again.
    let mut raws = Vec::new();
    let code = loop {
        match Raw::connect(&served, &*transport).await {
            Ok(raw) => raws.push(raw),
            Err(code) => break code,
        }
    };
    assert_eq!((code, raws.len() < 4), (Code::ResourceExhausted, true));
    drop((raw, raws));
    until("sessions without clients end", async || Raw::connect(&served, &*transport).await.is_ok()).await;
}

pub async fn without_room_blocks_are_fetched_or_asked_for_again(transport: Arc<dyn Transport>) {
    let db = database(FreezeFormat::View);
    for limits in [
        RdmaOptions { max_bytes: 0, ..RdmaOptions::default() },
        RdmaOptions { max_bytes: 3 << 20, ..RdmaOptions::default() },
        RdmaOptions { max_pieces: 9, ..RdmaOptions::default() },
        RdmaOptions { max_pieces: 1, ..RdmaOptions::default() },
    ] {
        let served = serve(&db, FlightOptions::default(), Some(transport.clone()), limits.clone()).await;
        let mut client = RdmaClient::connect(flight(served.address).await, transport.clone()).await.unwrap();
        let ticket = ticket(client.flight(), STORED).await;
        let wanted = fetched(client.flight(), &ticket).await;
        assert_eq!(read(&mut client, &ticket).await.unwrap(), wanted, "{limits:?}");
        let is_lent = limits.max_bytes > 0 && limits.max_pieces > 1;
        assert_eq!(client.ways().read > 2, is_lent, "{limits:?}: {:?}", client.ways());
        assert_eq!(received(&mut client, &ticket, Slots::default()).await.unwrap(), wanted, "{limits:?}");
    }
}

/// Lets role reader read the column id, or takes that away.
fn set_grant(db: &Database, reader: RoleId, is_granted: bool) {
    let object = Object::relation("public", "t");
    let privileges = Privileges::of(&[Privilege::Select]);
    let terms = Terms { object: &object, column: Some("id"), privileges, grantees: &[reader] };
    let mut txn = db.begin();
    if is_granted { txn.grant(&terms, false) } else { txn.revoke(&terms, false, false) }.unwrap();
    txn.commit().unwrap().wait().unwrap();
}

pub async fn a_role_leases_what_it_may_read_and_only_as_long_as_it_may(transport: Arc<dyn Transport>) {
    let db = database(FreezeFormat::View);
    let mut txn = db.begin();
    let reader = txn.create_role("reader", &RoleOptions::default()).unwrap();
    txn.commit().unwrap().wait().unwrap();
    set_grant(&db, reader, true);
    let options = FlightOptions { role: Some("reader".into()), ..FlightOptions::default() };
    let served = serve(&db, options, Some(transport.clone()), RdmaOptions::default()).await;
    let mut raw = Raw::connect(&served, &*transport).await.unwrap();
    let ticket = ticket(&mut raw.flight, r#"{"table": "t", "columns": ["id"], "endpoints": 1}"#).await;
    let (_, places) = raw.directory(&ticket).await.unwrap();
    let ids = raw.read(places[0]).unwrap();
    assert_eq!(ids[8..16], 1_i64.to_le_bytes());
    // Memory beside the column is out of reach.
    let mut other = Raw::connect(&served, &*transport).await.unwrap();
    let (_, others) = other.directory(&ticket).await.unwrap();
    assert_eq!(other.read(others[0]).unwrap(), ids);
    let beside = Place { address: others[0].address + 8, ..others[0] };
    assert_eq!(other.read(beside), Err(TransportError::Refused));

    // The client's reads are not checked, so the server looks when privileges have changed.
    set_grant(&db, reader, false);
    until("the key is revoked", async || raw.read(places[0]).is_err()).await;
    assert_eq!(raw.directory(&ticket).await, Err(Code::NotFound));
    let mut raw = Raw::connect(&served, &*transport).await.unwrap();
    assert_eq!(raw.directory(&ticket).await, Err(Code::PermissionDenied));
    let slots = vec![Place { address: 0, length: 1 << 20, key: 0 }];
    let scan = Scan { session: Some(raw.session), ticket: ticket.ticket.to_vec(), from: 0 };
    assert_eq!(act(&mut raw.flight, WRITE, &Write { scan, slots }).await, Err(Code::PermissionDenied));

    // A token is wanted for these calls as for others.
    let options = FlightOptions { token: Token::new("secret"), ..FlightOptions::default() };
    let served = serve(&db, options, Some(transport.clone()), RdmaOptions::default()).await;
    assert_eq!(Raw::connect(&served, &*transport).await.map(|_| ()), Err(Code::Unauthenticated));
    let error = RdmaClient::connect(flight(served.address).await, transport).await.unwrap_err();
    let RdmaError::Flight(FlightError::Tonic(status)) = error else { panic!("{error}") };
    assert_eq!(status.code(), Code::Unauthenticated);
}

/// Runs all of the tests.
pub async fn all(transport: Arc<dyn Transport>) {
    let name = transport.name();
    println!("{name}: both ways give what DoGet gives");
    both_ways_give_what_do_get_gives(transport.clone()).await;
    println!("{name}: a client without the server's transport fetches");
    a_client_without_the_servers_transport_fetches(transport.clone()).await;
    println!("{name}: batches are given as they come");
    batches_are_given_as_they_come(transport.clone()).await;
    println!("{name}: a lease keeps memory and its end revokes the key");
    a_lease_keeps_memory_and_its_end_revokes_the_key(transport.clone()).await;
    println!("{name}: a client asks again after revocation");
    a_client_asks_again_after_revocation(transport.clone()).await;
    println!("{name}: hostile requests get errors and take nothing");
    hostile_requests_get_errors_and_take_nothing(transport.clone()).await;
    println!("{name}: without room blocks are fetched or asked for again");
    without_room_blocks_are_fetched_or_asked_for_again(transport.clone()).await;
    println!("{name}: a role leases what it may read and only as long as it may");
    a_role_leases_what_it_may_read_and_only_as_long_as_it_may(transport).await;
}
