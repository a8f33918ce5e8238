//! The server's doors, tried from outside: access and its duration, the resources of a client, and
//! messages that no client sends.

mod flight;
mod malformed;
mod metrics;
mod operators;
mod postgresql;
mod types;
mod wire;

use serac_engine::Database;
use serac_server::{PgOptions, PgServer, TlsConfig, tls_config};
use serac_sql::{SqlDatabase, SqlOptions};
use serac_testing::Served;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use tokio::net::{TcpSocket, TcpStream};

fn database() -> SqlDatabase {
    SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap()
}

async fn postgresql_server(db: SqlDatabase, options: PgOptions) -> Served {
    let server = PgServer::bind(db, "127.0.0.1:0".parse().unwrap(), options).await.unwrap();
    Served::start(server.local_address().unwrap(), |stop| server.run(stop))
}

/// A connection from an address of this machine's own.
async fn connect_from(own: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((IpAddr::from(own), 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// The address of a client that means harm.
const STRANGER: [u8; 4] = [127, 0, 0, 2];

/// A certificate for this machine, which is its own authority.
fn certificate(folder: &Path) -> TlsConfig {
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("the command openssl makes the certificate");
    assert!(made.status.success(), "{made:?}");
    tls_config(&certificate, &key).unwrap()
}
