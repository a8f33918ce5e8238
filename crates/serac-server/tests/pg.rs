//! Clients of PostgreSQL against the server, and messages that no client sends: psycopg here,
//! others in `pg_clients`. Clients of Flight SQL are beside them.

mod flight_sql;
mod pg_clients;
mod pg_planning;
mod pg_transactions;

use rand::Rng;
use serac_engine::Database;
use serac_net::listen::Listener;
use serac_server::{PgOptions, PgServer, Verifier, tls_config};
use serac_sql::{SessionDefaults, SqlDatabase, SqlOptions};
use std::collections::HashMap;
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
    db: SqlDatabase,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

impl Served {
    async fn new(options: PgOptions) -> Self {
        Self::with(options, &SqlOptions::default()).await
    }

    async fn with(options: PgOptions, sql: &SqlOptions) -> Self {
        Self::of(SqlDatabase::new(Database::in_memory().unwrap(), sql).unwrap(), options).await
    }

    async fn of(db: SqlDatabase, options: PgOptions) -> Self {
        let kept = db.clone();
        let server = PgServer::bind(db, "127.0.0.1:0".parse().unwrap(), options).await.unwrap();
        let address = server.local_address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { address, db: kept, stop: Some(stop), running }
    }

    async fn end(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(20), self.running).await.expect("it stops").unwrap();
        assert!(TcpStream::connect(self.address).await.is_err());
    }
}

async fn python(name: &str, address: SocketAddr) {
    python_with(name, address, "").await;
}

async fn python_with(name: &str, address: SocketAddr, certificate: &str) {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin/python");
    assert!(Path::new(python).exists(), "Python with psycopg is missing: run scripts/readers");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients.py");
    let arguments = [script.to_owned(), name.to_owned(), address.port().to_string(), certificate.to_owned()];
    let (out, err, success) = run(python, &arguments, &[]).await;
    assert!(success && out.ends_with("done\n"), "{out}{err}");
}

/// Runs a program beside the server; returns its output and success.
async fn run(
    program: &str,
    arguments: &[String],
    variables: &[(&'static str, &'static str)],
) -> (String, String, bool) {
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.iter().copied());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (out.into_owned(), err.into_owned(), output.status.success())
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
async fn a_unix_socket_needs_no_encryption_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".s.PGSQL.5432");
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    let listeners = vec![Listener::tcp("127.0.0.1:0".parse().unwrap()).await.unwrap(), Listener::unix(&path).unwrap()];
    let server = PgServer::new(db.clone(), listeners, PgOptions { require_tls: true, ..PgOptions::default() }).unwrap();
    let address = server.local_address().unwrap();
    let (stop, stopped) = oneshot::channel();
    let running = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    python_with("unix", address, &folder.path().display().to_string()).await;
    Served { address, db, stop: Some(stop), running }.end().await;
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_of_the_database_log_in() {
    let served = Served::new(PgOptions::default()).await;
    python("roles", served.address).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_and_the_certificate_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (certificate, key) = (file("server.pem"), file("server.key"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .output()
        .expect("the command openssl makes the certificate");
    assert!(made.status.success(), "{made:?}");
    let tls = Some(tls_config(Path::new(&certificate), Path::new(&key)).unwrap());
    let users: HashMap<String, Verifier> = [("ada".to_owned(), Verifier::new("secret"))].into();
    let served = Served::new(PgOptions { users, tls, require_tls: true, ..PgOptions::default() }).await;
    python_with("tls", served.address, &certificate).await;
    if Path::new("/usr/bin/psql").exists() {
        let at = format!("host=localhost hostaddr=127.0.0.1 port={} user=ada dbname=db", served.address.port());
        for (options, wanted) in [
            (format!("{at} sslmode=verify-full sslrootcert={certificate}"), Some("42\n")),
            (format!("{at} sslmode=disable"), None),
            (
                at.replace("host=localhost", "host=elsewhere")
                    + &format!(" sslmode=verify-full sslrootcert={certificate}"),
                None,
            ),
        ] {
            let arguments = [options.clone(), "-XAtc".into(), "SELECT 6 * 7".into()];
            let (out, err, success) = run("/usr/bin/psql", &arguments, &[("PGPASSWORD", "secret")]).await;
            assert_eq!(success.then_some(out.as_str()), wanted, "{options}: {err}");
        }
    }
    // Another certificate's key, and files that are no keys, are distinguished from good ones.
    assert!(tls_config(Path::new(&key), Path::new(&key)).unwrap_err().contains("server.key"));
    assert!(tls_config(Path::new(&file("nothing")), Path::new(&key)).unwrap_err().contains("nothing"));
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
    let mut rng = serac_testing::rng();
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
    let storms = if serac_testing::stress() { 20_000 } else { 400 };
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
    // Memory is not reserved for an announced length.
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

/// Text that the server sends until a piece of text is in it, or the connection ends.
async fn read_until(socket: &mut TcpStream, wanted: &str) -> String {
    let mut answer = Vec::new();
    let mut piece = vec![0; 64 << 10];
    let reading = async {
        while !String::from_utf8_lossy(&answer).contains(wanted) {
            match socket.read(&mut piece).await {
                Ok(count @ 1..) => answer.extend_from_slice(&piece[..count]),
                _ => break,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reading).await.unwrap_or_else(|_| panic!("no {wanted:?} comes"));
    String::from_utf8_lossy(&answer).into_owned()
}

async fn connect(address: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(&startup()).await.unwrap();
    read_until(&mut socket, "Z\0\0\0\x05I").await;
    socket
}

fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &[sql.as_bytes(), b"\0"].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_holds_nobody_up() {
    let options = PgOptions { shutdown_timeout: Duration::from_millis(100), ..PgOptions::default() };
    let served = Served::with(options, &SqlOptions { threads: Some(2), ..SqlOptions::default() }).await;
    let mut stalled = Vec::new();
    // Each would be far larger than the memory.
    let huge = "SELECT x, repeat('y', 1000) FROM generate_series(1, 1000000000) AS a (x)";
    for _ in 0..4 {
        let mut socket = connect(served.address).await;
        socket.write_all(&query(huge)).await.unwrap();
        stalled.push(socket);
    }
    let waiting = async || {
        for _ in 0..1_000 {
            let rows = served.db.connections().rows();
            if rows.iter().filter(|row| row.wait == Some("ClientWrite") && row.text == huge).count() == 4 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("they do not wait for their clients: {:?}", served.db.connections().rows());
    };
    waiting().await;
    // Until the system's own buffers are full.
    let bytes_out = || served.db.connections().figures().bytes_out;
    let mut sent = bytes_out();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = bytes_out();
        if std::mem::replace(&mut sent, now) == now {
            break;
        }
    }
    // Others go on meanwhile.
    let mut other = connect(served.address).await;
    for i in 0..50 {
        other.write_all(&query(&format!("SELECT {i} + sum(x) FROM generate_series(1, 1000) AS a (x)"))).await.unwrap();
        read_until(&mut other, &format!("{}", 500_500 + i)).await;
    }
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
    };
    let before = resident();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Other tests in this process need memory; the four results are 4 TB.
    assert!(resident() < before + 400, "{before} MiB, then {} MiB", resident());
    assert!(bytes_out() < sent + (1 << 20));
    // It is ended by another connection, and so is one that stalls longer than its statements may
    // take.
    let process = served.db.connections().rows()[0].process;
    other.write_all(&query(&format!("SELECT pg_terminate_backend({process})"))).await.unwrap();
    read_until(&mut other, "\0\x01t").await;
    for statement in [huge.to_owned(), format!("COPY ({huge}) TO STDOUT")] {
        let mut timed = connect(served.address).await;
        timed.write_all(&query(&format!("SET statement_timeout = 300; {statement}"))).await.unwrap();
        for _ in 0..1_000 {
            let rows = served.db.connections().rows();
            let timed_out = rows.iter().any(|row| row.text.starts_with("SET") && row.transaction.is_none());
            if timed_out && rows.iter().all(|row| row.process != process) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let answer = read_until(&mut timed, "57014").await;
        assert!(answer.contains("canceling statement due to statement timeout"));
    }
    assert!(served.db.connections().get(process).is_none());
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_end_at_their_limits_and_are_told() {
    let session =
        SessionDefaults { idle_session_timeout: Some(Duration::from_millis(300)), ..SessionDefaults::default() };
    let served = Served::with(PgOptions::default(), &SqlOptions { session, ..SqlOptions::default() }).await;
    let mut idle = connect(served.address).await;
    let answer = read_until(&mut idle, "57P05").await;
    assert!(answer.contains("FATAL"), "{answer}");
    let mut open = connect(served.address).await;
    let sql = "SET idle_session_timeout = 0; SET idle_in_transaction_session_timeout = '200ms'";
    open.write_all(&query(sql)).await.unwrap();
    open.write_all(&query("BEGIN")).await.unwrap();
    let answer = read_until(&mut open, "25P03").await;
    assert!(answer.contains("idle-in-transaction timeout"), "{answer}");
    // It is told before it is gone.
    for _ in 0..1_000 {
        if served.db.connections().rows().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let figures = served.db.connections().figures();
    assert_eq!((figures.aborted.get("disconnect"), figures.connections), (Some(&1), 2));
    served.end().await;
}

/// Bind of a statement without parameters, with these formats of its columns.
fn bind(formats: &[i16]) -> Vec<u8> {
    let count = (formats.len() as i16).to_be_bytes();
    let formats: Vec<u8> = formats.iter().flat_map(|format| format.to_be_bytes()).collect();
    message(b'B', &[&b"\0\0\0\0\0\0"[..], &count, &formats].concat())
}

const READY: &str = "Z\0\0\0\x05I";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn formats_are_for_all_columns_or_each() {
    let served = Served::new(PgOptions::default()).await;
    let mut socket = connect(served.address).await;
    let run = [message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
    // The columns were not asked for before.
    let parse = message(b'P', b"\0SELECT 41 + 1\0\0\0");
    socket.write_all(&[&parse[..], &bind(&[0, 0]), &run].concat()).await.unwrap();
    let answer = read_until(&mut socket, READY).await;
    assert!(answer.contains("C08P01\0Mbind message has 2 result formats but query has 1 columns\0"), "{answer:?}");
    assert!(!answer.contains("42"), "{answer:?}");
    for formats in [&[][..], &[0]] {
        socket.write_all(&[&parse[..], &bind(formats), &run].concat()).await.unwrap();
        assert!(read_until(&mut socket, READY).await.contains("42"));
    }
    let parse = message(b'P', b"\0SELECT 41 + 1, 40 + 3\0\0\0");
    socket.write_all(&[&parse[..], &bind(&[0, 0]), &run].concat()).await.unwrap();
    let answer = read_until(&mut socket, READY).await;
    assert!(answer.contains("42") && answer.contains("43"), "{answer:?}");
    drop(socket);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_tell_whose_constraint_does_not_hold() {
    let served = Served::new(PgOptions::default()).await;
    let mut socket = connect(served.address).await;
    for statement in [
        "CREATE SCHEMA s",
        "CREATE TABLE s.p (a INT PRIMARY KEY, b INT NOT NULL, CONSTRAINT positive CHECK (a > 0))",
        "CREATE TABLE s.c (a INT CONSTRAINT up REFERENCES s.p)",
        "INSERT INTO s.p VALUES (1, 1)",
        "INSERT INTO s.c VALUES (1)",
        "CREATE TABLE s.q (a INT PRIMARY KEY)",
        "CREATE TABLE s.d (a INT DEFAULT 0 CONSTRAINT above CHECK (a > 0) REFERENCES s.q ON UPDATE SET DEFAULT)",
        "INSERT INTO s.q VALUES (2)",
        "INSERT INTO s.d VALUES (2)",
    ] {
        socket.write_all(&query(statement)).await.unwrap();
        let answer = read_until(&mut socket, READY).await;
        assert!(!answer.contains("SERROR"), "{statement}: {answer:?}");
    }
    for (statement, fields) in [
        ("INSERT INTO s.p VALUES (-1, 1)", "DFailing row contains (-1, 1).\0ss\0tp\0npositive\0"),
        ("INSERT INTO s.p VALUES (2, NULL)", "DFailing row contains (2, null).\0ss\0tp\0cb\0"),
        // On behalf of a parent.
        ("UPDATE s.q SET a = 3", "DFailing row contains (0).\0ss\0td\0nabove\0"),
        ("INSERT INTO s.p VALUES (1, 1)", "ss\0tp\0np_pkey\0"),
        ("INSERT INTO s.c VALUES (9)", "ss\0tc\0nup\0"),
        ("DELETE FROM s.p", "ss\0tc\0nup\0"),
        ("ALTER TABLE s.c ADD CONSTRAINT high CHECK (a > 5)", "ss\0tc\0nhigh\0"),
    ] {
        socket.write_all(&query(statement)).await.unwrap();
        let answer = read_until(&mut socket, READY).await;
        assert!(answer.contains(fields), "{statement}: {answer:?}");
    }
    drop(socket);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_row_of_a_slow_client_is_told_at_once() {
    let served = Served::new(PgOptions::default()).await;
    let mut socket = connect(served.address).await;
    socket.write_all(&query("CREATE TABLE t (a INT NOT NULL, b TEXT)")).await.unwrap();
    read_until(&mut socket, READY).await;
    let header = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
    let binary = [&header[..], b"\0\x02\xff\xff\xff\xff\0\0\0\x01x"].concat();
    for (format, row) in [("text", &b"\\N\tx\n"[..]), ("csv", b",x\n"), ("binary", &binary)] {
        socket.write_all(&query(&format!("COPY t FROM STDIN (FORMAT {format})"))).await.unwrap();
        read_until(&mut socket, "G\0\0\0").await;
        // No more comes, and no end.
        socket.write_all(&message(b'd', row)).await.unwrap();
        let answer = read_until(&mut socket, "C23502").await;
        assert!(answer.contains("C23502"), "{format}: {answer:?}");
        socket.write_all(&[message(b'c', b""), query("SELECT 'it goes ' || 'on'")].concat()).await.unwrap();
        let answer = read_until(&mut socket, "it goes on").await;
        assert!(answer.contains("it goes on"), "{format}: {answer:?}");
    }
    drop(socket);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_objects_have_no_sign() {
    let served = Served::new(PgOptions::default()).await;
    let mut socket = connect(served.address).await;
    let run = [message(b'D', b"P\0"), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
    let mut given = async |format: u8, value: &[u8]| {
        let parse = message(b'P', b"\0SELECT $1, $1 > 4294967294::oid\0\0\x01\0\0\0\x1a");
        let length = (value.len() as i32).to_be_bytes();
        let bind = [&[0, 0, 0, 1, 0, format, 0, 1][..], &length, value, &[0, 0]].concat();
        socket.write_all(&[parse, message(b'B', &bind), run.clone()].concat()).await.unwrap();
        read_until(&mut socket, READY).await
    };
    for (format, value) in [(0, &b"4294967295"[..]), (0, b"-1"), (1, &[255; 4])] {
        let answer = given(format, value).await;
        assert!(answer.contains("\x0a4294967295\0\0\0\x01t"), "{value:?}: {answer:?}");
        // It has its own type: the number, and the length of its values.
        assert!(answer.contains("?column?\0\0\0\0\0\0\0\0\0\0\x1a\0\x04"), "{answer:?}");
    }
    let answer = given(0, b"4294967296").await;
    assert!(answer.contains("C22003\0Mvalue \"4294967296\" is out of range for type oid\0"), "{answer:?}");
    drop(socket);
    served.end().await;
}
