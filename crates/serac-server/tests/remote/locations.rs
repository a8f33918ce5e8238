//! Locations that a server names for its tables: those that are allowed are read, others get no
//! byte, and whatever a location does, the rows are those of the server.

use crate::server::*;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::prelude::SessionContext;
use serac_export::flight::{FlightOptions, Token};
use serac_remote::{Remote, RemoteOptions};
use serac_sql::SqlDatabase;
use serac_testing::Served;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ROWS: i64 = 60_000;
const TOKEN: &str = "a-secret";

/// A further way to a server, which is known before the server is.
struct Way {
    address: SocketAddr,
    server: Arc<OnceLock<SocketAddr>>,
    connections: Arc<AtomicUsize>,
}

impl Way {
    /// Each connection ends after `bytes` from the server.
    async fn at(host: &str, bytes: u64) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (server, connections) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
        let (to, count) = (server.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let server = TcpStream::connect(*to.get().expect("the server is known")).await.unwrap();
                tokio::spawn(async move {
                    let ((mut from_client, mut to_client), (from_server, mut to_server)) =
                        (client.into_split(), server.into_split());
                    let up = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                    let _ = tokio::io::copy(&mut from_server.take(bytes), &mut to_client).await;
                    let _ = to_client.shutdown().await;
                    up.abort();
                });
            }
        });
        Self { address, server, connections }
    }

    fn uri(&self) -> String {
        format!("grpc://{}", self.address)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A server that wants a token and names these locations.
async fn naming(db: &SqlDatabase, locations: Vec<String>) -> Served {
    let options =
        FlightOptions { locations, token: Token::new(TOKEN), message_bytes: 64 << 10, ..FlightOptions::default() };
    serve(db, options).await
}

async fn numbers() -> SqlDatabase {
    let db = database();
    execute(&db, "CREATE TABLE t (id BIGINT NOT NULL, note TEXT)").await;
    let insert = format!("INSERT INTO t SELECT g, 'a note ' || g FROM generate_series(0, {}) AS t (g)", ROWS - 1);
    execute(&db, &insert).await;
    db
}

fn of(served: &Served) -> RemoteOptions {
    RemoteOptions::new([address(served)]).with_token(TOKEN).with_connections(1)
}

/// Reads all rows, and checks them.
async fn read(options: RemoteOptions) {
    let remote = Remote::new(options).unwrap();
    let ctx: SessionContext = session_of(&remote, &["t"]).await;
    let all = rows(ctx.table("t").await.unwrap()).await;
    assert_eq!(all.column(0).as_primitive::<Int64Type>().values().to_vec(), (0..ROWS).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_location_on_the_host_that_is_asked_is_read() {
    let db = numbers().await;
    let way = Way::at("127.0.0.1", u64::MAX).await;
    let served = naming(&db, vec![way.uri()]).await;
    way.server.set(served.address).unwrap();
    read(of(&served)).await;
    assert!(way.connections() > 0, "streams did not take the way that the server names");
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_location_elsewhere_is_read_only_if_it_is_allowed() {
    let db = numbers().await;
    let way = Way::at("127.0.0.2", u64::MAX).await;
    let served = naming(&db, vec![way.uri()]).await;
    way.server.set(served.address).unwrap();
    read(of(&served)).await;
    assert_eq!(way.connections(), 0, "the token went to an address that nobody has allowed");
    read(of(&served).with_locations(["grpc://127.0.0.2:1"])).await;
    assert_eq!(way.connections(), 0, "another port was allowed");
    read(of(&served).with_locations([way.uri()])).await;
    assert!(way.connections() > 0);
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_lists_of_locations_cost_no_row_and_no_token() {
    let db = numbers().await;
    let stranger = Way::at("127.0.0.2", u64::MAX).await;
    let port = stranger.address.port();
    let garbage = ["", "://", "grpc://", "\u{0}", "file:///etc/passwd", "https://127.0.0.1:99999", "ü://ü:ü"];
    let strangers = [
        stranger.uri(),
        format!("http://127.0.0.2:{port}"),
        format!("grpc+tls://127.0.0.2:{port}"),
        format!("grpc://127.0.0.1@127.0.0.2:{port}"),
        format!("grpc://127.0.0.1:1@127.0.0.2:{port}"),
        format!("grpc://127.0.0.2:{port}#127.0.0.1:1"),
        format!("grpc://127.0.0.2:{port}/127.0.0.1:1"),
        format!("ftp://127.0.0.1:{port}"),
    ];
    let text = |all: &[&str]| all.iter().map(|uri| (*uri).to_owned()).collect::<Vec<_>>();
    for list in [
        text(&garbage),
        strangers.to_vec(),
        (0..5_000).map(|_| stranger.uri()).collect(),
        // Nobody listens there: each costs an attempt.
        (1..3_000).map(|port| format!("grpc://127.0.0.1:{}", port % 20 + 1)).collect(),
        vec!["x".repeat(1 << 20)],
        text(&["arrow-flight-reuse-connection://?"]),
    ] {
        let served = naming(&db, list).await;
        stranger.server.get_or_init(|| served.address);
        read(of(&served)).await;
    }
    assert_eq!(stranger.connections(), 0);
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_location_that_breaks_falls_to_the_address_that_was_asked() {
    let db = numbers().await;
    for bytes in [0, 100, 5_000, 200_000] {
        let way = Way::at("127.0.0.1", bytes).await;
        let served = naming(&db, vec![way.uri()]).await;
        way.server.set(served.address).unwrap();
        read(of(&served)).await;
        assert!(way.connections() > 0);
    }
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_location_with_another_database_falls_to_the_address_that_was_asked() {
    let (db, other) = (numbers().await, database());
    execute(&other, "CREATE TABLE t (id BIGINT NOT NULL, note TEXT)").await;
    // One does not know the snapshot, one not the token.
    let knows_token = naming(&other, Vec::new()).await;
    let token = Token::new("another");
    let knows_none = serve(&other, FlightOptions { token, ..FlightOptions::default() }).await;
    for elsewhere in [&knows_token, &knows_none] {
        let served = naming(&db, vec![address(elsewhere)]).await;
        read(of(&served)).await;
    }
    nothing_is_held(&db).await;
}
