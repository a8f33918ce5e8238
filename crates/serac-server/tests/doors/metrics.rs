//! The port for monitors of the server.

use super::{STRANGER, connect_from, database};
use base64::Engine as _;
use serac_export::flight::Token;
use serac_server::{HttpAccess, HttpServer, Readiness, Verifier};
use serac_sql::Session;
use serac_testing::Served;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn http_server() -> Served {
    let readiness = Readiness::default();
    readiness.set(true);
    let server = HttpServer::bind(database(), "127.0.0.1:0".parse().unwrap(), readiness).await.unwrap();
    run(server)
}

fn run(server: HttpServer) -> Served {
    Served::start(server.local_address().unwrap(), |stop| server.run(stop))
}

/// The answer to a request with these headers.
pub(crate) async fn get(address: SocketAddr, path: &str, headers: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let _ = socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: here\r\n{headers}\r\n").as_bytes()).await;
    let mut answer = String::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), socket.read_to_string(&mut answer)).await;
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_read_take_nobodys_place() {
    let served = http_server().await;
    let mut stalled = Vec::new();
    for own in [STRANGER, [127, 0, 0, 1]] {
        for _ in 0..40 {
            let mut socket = connect_from(own, served.address).await;
            let requests = "GET /metrics HTTP/1.1\r\nhost: here\r\n\r\n".repeat(2_000);
            let _ = tokio::time::timeout(Duration::from_millis(50), socket.write_all(requests.as_bytes())).await;
            stalled.push(socket);
        }
        let answer = get(served.address, "/live", "").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_are_for_those_who_may_see_them() {
    let db = database();
    Session::new(&db).execute("CREATE ROLE bob LOGIN PASSWORD 'bob'").await.unwrap();
    let access =
        HttpAccess { token: Token::new("a-token"), users: [("serac".to_owned(), Verifier::new("secret"))].into() };
    let server = HttpServer::bind(db, "127.0.0.1:0".parse().unwrap(), Readiness::default()).await.unwrap();
    let served = run(server.with_access(access));
    let basic = |shown: &str| {
        let shown = base64::engine::general_purpose::STANDARD.encode(shown);
        format!("authorization: Basic {shown}\r\n")
    };
    for (headers, status) in [
        (String::new(), 401),
        ("authorization: Bearer another\r\n".into(), 401),
        ("authorization: Bearer a-token\r\n".into(), 200),
        (basic("serac:secret"), 200),
        (basic("serac:wrong"), 401),
        (basic("bob:bob"), 403),
        (basic("nobody:"), 401),
    ] {
        let answer = get(served.address, "/metrics", &headers).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{headers}: {answer}");
    }
    assert!(get(served.address, "/live", "").await.starts_with("HTTP/1.1 200"));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_has_a_time() {
    let server = HttpServer::bind(database(), "127.0.0.1:0".parse().unwrap(), Readiness::default()).await.unwrap();
    let served = run(server.with_timeout(Duration::from_millis(500)));
    let mut socket = TcpStream::connect(served.address).await.unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
    let mut answer = Vec::new();
    // A request alone may take ten seconds.
    let closed = tokio::time::timeout(Duration::from_secs(8), socket.read_to_end(&mut answer)).await;
    assert!(closed.is_ok(), "the connection stays");
    served.end().await;
}
