//! Clients of PostgreSQL against the server: psycopg, and messages that no client sends. Those of Flight SQL are beside them.

mod flight_sql;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::Database;
use serac_server::{PgOptions, PgServer, Verifier};
use serac_sql::{SqlDatabase, SqlOptions};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Served {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

impl Served {
    async fn new(options: PgOptions) -> Self {
        let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
        let server = PgServer::bind(db, "127.0.0.1:0".parse().unwrap(), options).await.unwrap();
        let address = server.local_address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { address, stop: Some(stop), running }
    }
    async fn end(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(20), self.running).await.expect("it stops").unwrap();
        assert!(TcpStream::connect(self.address).await.is_err());
    }
}

async fn python(name: &str, address: SocketAddr) {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin/python");
    assert!(Path::new(python).exists(), "Python with psycopg is missing: run scripts/readers");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients.py");
    let (name, port) = (name.to_owned(), address.port().to_string());
    let run = move || Command::new(python).args([script, &name, &port]).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("done\n"), "{out}{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psycopg_works_as_with_postgresql() {
    let served = Served::new(PgOptions::default()).await;
    python("all", served.address).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_are_asked_for() {
    let users = [("ada".to_owned(), Verifier::new("secret"))].into();
    let served = Served::new(PgOptions { users, ..PgOptions::default() }).await;
    python("passwords", served.address).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_of_the_database_log_in() {
    let served = Served::new(PgOptions::default()).await;
    python("roles", served.address).await;
    served.end().await;
}

/// The first message of a session.
fn startup() -> Vec<u8> {
    let mut body = 196_608i32.to_be_bytes().to_vec();
    body.extend_from_slice(b"user\0fuzz\0\0");
    let mut message = (body.len() as i32 + 4).to_be_bytes().to_vec();
    message.extend_from_slice(&body);
    message
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// Sends bytes, and reads until the server has nothing more to say.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).await.unwrap();
    // The server may have closed the connection already.
    let _ = socket.write_all(bytes).await;
    let _ = socket.shutdown().await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut answer)).await;
    let _ = read.expect("the server ends the connection when the client has");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_is_refused_and_the_server_goes_on() {
    let options = PgOptions { max_message: 1 << 20, login_timeout: Duration::from_secs(5), ..PgOptions::default() };
    let served = Served::new(options).await;
    let seed: u64 = std::env::var("SERAC_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("SERAC_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let good = [
        message(b'Q', b"SELECT 1\0"),
        message(b'P', b"s\0SELECT $1::int + 1\0\0\0"),
        message(b'B', b"\0s\0\0\0\0\x01\0\0\0\x011\0\0"),
        message(b'D', b"P\0"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
        message(b'Q', b"COPY (SELECT 1) TO STDOUT\0"),
    ]
    .concat();
    let storms = if std::env::var("SERAC_STRESS").is_ok() { 20_000 } else { 400 };
    for _ in 0..storms {
        let mut bytes = if rng.random_bool(0.1) { Vec::new() } else { startup() };
        bytes.extend_from_slice(&good);
        match rng.random_range(0..4) {
            0 => bytes.truncate(rng.random_range(0..bytes.len())),
            1 => {
                for _ in 0..rng.random_range(1..8) {
                    let at = rng.random_range(0..bytes.len());
                    bytes[at] = rng.random();
                }
            }
            2 => {
                let (tag, length) = (rng.random(), rng.random::<i32>());
                bytes.truncate(startup().len());
                bytes.push(tag);
                bytes.extend_from_slice(&length.to_be_bytes());
            }
            _ => {
                let body: Vec<u8> = (0..rng.random_range(0..60)).map(|_| rng.random()).collect();
                bytes.truncate(startup().len());
                bytes.extend_from_slice(&message(b"QPBDECHSdcfpX"[rng.random_range(0..13)], &body));
                bytes.extend_from_slice(&good);
            }
        }
        exchange(served.address, &bytes).await;
    }
    let answer =
        exchange(served.address, &[startup(), message(b'Q', b"SELECT 42\0"), message(b'X', b"")].concat()).await;
    assert!(answer.windows(2).any(|pair| pair == b"42"), "{}", String::from_utf8_lossy(&answer));
    // What is announced is not made room for.
    let huge = [startup(), vec![b'Q'], i32::MAX.to_be_bytes().to_vec()].concat();
    let answer = exchange(served.address, &huge).await;
    assert!(String::from_utf8_lossy(&answer).contains("54000"), "{}", String::from_utf8_lossy(&answer));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_room_for_so_many_and_no_more() {
    let served = Served::new(PgOptions { max_connections: 2, ..PgOptions::default() }).await;
    let mut first = Vec::new();
    for _ in 0..2 {
        let mut socket = TcpStream::connect(served.address).await.unwrap();
        socket.write_all(&startup()).await.unwrap();
        assert_eq!(socket.read_u8().await.unwrap(), b'R');
        first.push(socket);
    }
    let answer = exchange(served.address, &startup()).await;
    assert!(String::from_utf8_lossy(&answer).contains("53300"));
    drop(first);
    served.end().await;
}
