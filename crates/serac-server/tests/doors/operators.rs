//! The port of the operator language: access, and its duration.

use super::{certificate, database};
use serac_column_language::frames::{ClientFrame, Sender, ServerFrame, VERSION};
use serac_net::listen::Listener;
use serac_server::Verifier;
use serac_server::operators::{OperatorsOptions, OperatorsServer, read_frame};
use serac_sql::{Session, SqlDatabase};
use serac_testing::until;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The time that an expected answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A message of the server.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Said {
    Welcome,
    Refused(String),
    Rows(usize),
    Report(u64, String),
    Done(u64, bool),
    Bye(String),
    /// The connection has ended.
    Nothing,
}

pub(super) struct Client<S>(S);

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    async fn say(&mut self, frame: &ClientFrame<'_>) {
        let mut out = Vec::new();
        frame.put(&mut out);
        self.0.write_all(&out).await.unwrap();
        self.0.flush().await.unwrap();
    }

    async fn hear(&mut self) -> Said {
        let heard = tokio::time::timeout(PATIENCE, read_frame(&mut self.0, Sender::Server)).await;
        let Ok(Some(frame)) = heard.expect("the server says something") else { return Said::Nothing };
        match ServerFrame::read(frame.kind, &frame.body).unwrap() {
            ServerFrame::Welcome { .. } => Said::Welcome,
            ServerFrame::Refused { why, .. } => Said::Refused(why.into()),
            ServerFrame::Rows(text) => Said::Rows(text.len()),
            ServerFrame::Report { line, text } => Said::Report(line, text.into()),
            ServerFrame::Done { line, ok } => Said::Done(line, ok),
            ServerFrame::Bye(why) => Said::Bye(why.into()),
        }
    }

    async fn log_in(&mut self, user: &str, password: Option<&str>) -> Said {
        self.say(&ClientFrame::Hello { version: VERSION, user, password }).await;
        self.hear().await
    }

    pub(super) async fn ask(&mut self, line: u64, text: &str) -> Said {
        self.say(&ClientFrame::Statement { line, text }).await;
        self.hear().await
    }
}

pub(super) struct Served {
    pub(super) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Served {
    pub(super) async fn begin(db: SqlDatabase, options: OperatorsOptions) -> Self {
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let server = OperatorsServer::new(db, vec![listener], options);
        let address = server.local_address().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let farewell = server.run(async {
                let _ = stopped.await;
            });
            farewell.await.say(Ok(())).await;
        });
        Self { address, stop, task }
    }

    async fn connect(&self) -> Client<TcpStream> {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    pub(super) async fn client(&self) -> Client<TcpStream> {
        let mut client = self.connect().await;
        assert_eq!(client.log_in("", None).await, Said::Welcome);
        client
    }

    pub(super) async fn end(self) {
        let _ = self.stop.send(());
        tokio::time::timeout(PATIENCE, self.task).await.expect("it stops").unwrap();
    }
}

/// A database with so many rows in `d.t.a`, all equal.
async fn with_rows(rows: usize) -> SqlDatabase {
    let db = database();
    let mut session = Session::new(&db);
    session.execute("CREATE SCHEMA d; CREATE TABLE d.t (a INTEGER)").await.unwrap();
    let insert = format!("INSERT INTO d.t SELECT 1 FROM generate_series(1, {rows})");
    session.execute(&insert).await.unwrap();
    db
}

/// Statements, of which the last compares each row with each: it runs until it is cancelled.
const ENDLESS: [&str; 4] =
    ["p=select(d.t.a,null,null)", "v=fetch(d.t.a,p)", "u=add(v,v)", "x,y=join(v,p,u,p,nested-loop)"];

async fn begin_endless(client: &mut Client<TcpStream>) {
    for (line, text) in (1..).zip(ENDLESS) {
        client.say(&ClientFrame::Statement { line, text }).await;
    }
    for line in 1..4 {
        assert_eq!(client.hear().await, Said::Done(line, true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_and_idle_clients_are_left() {
    let options = OperatorsOptions {
        login_timeout: Duration::from_millis(300),
        idle_timeout: Some(Duration::from_millis(500)),
        ..OperatorsOptions::default()
    };
    let served = Served::begin(database(), options).await;
    let mut silent = served.connect().await;
    let mut idle = served.client().await;
    assert_eq!(silent.hear().await, Said::Nothing);
    assert_eq!(idle.hear().await, Said::Bye("terminating connection due to idle-session timeout".into()));
    assert_eq!(idle.hear().await, Said::Nothing);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_end_at_their_time_and_when_they_are_cancelled() {
    let db = with_rows(400_000).await;
    let options = OperatorsOptions { statement_timeout: Some(Duration::from_secs(1)), ..OperatorsOptions::default() };
    let served = Served::begin(db.clone(), options).await;
    let mut client = served.client().await;
    begin_endless(&mut client).await;
    let Said::Report(4, why) = client.hear().await else { panic!("it ends at its time") };
    assert!(why.contains("cancel"), "{why}");
    assert_eq!(client.hear().await, Said::Done(4, false));
    assert_eq!(client.ask(5, "s=sum(v)").await, Said::Done(5, true));
    served.end().await;

    let served = Served::begin(db, OperatorsOptions::default()).await;
    let mut client = served.client().await;
    begin_endless(&mut client).await;
    client.say(&ClientFrame::Statement { line: 5, text: ENDLESS[3] }).await;
    client.say(&ClientFrame::Statement { line: 6, text: "s=sum(v)" }).await;
    // The second one waits when it is cancelled.
    client.say(&ClientFrame::Cancel { line: 5 }).await;
    client.say(&ClientFrame::Cancel { line: 4 }).await;
    for line in [4, 5] {
        assert!(matches!(client.hear().await, Said::Report(at, _) if at == line));
        assert_eq!(client.hear().await, Said::Done(line, false));
    }
    assert_eq!(client.hear().await, Said::Done(6, true));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_is_left_and_one_that_goes_is_not_worked_for() {
    let db = with_rows(4_000_000).await;
    let options = OperatorsOptions { write_timeout: Duration::from_millis(300), ..OperatorsOptions::default() };
    let served = Served::begin(db.clone(), options).await;
    let mut client = served.client().await;
    for (line, text) in (1..3).zip(ENDLESS) {
        assert_eq!(client.ask(line, text).await, Said::Done(line, true));
    }
    client.say(&ClientFrame::Statement { line: 3, text: "print(v,v,v,v)" }).await;
    until("the connection ends", async || db.connections().rows().is_empty()).await;
    // The bytes sent before can be read, and are incomplete.
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, client.0.read_to_end(&mut rest)).await.expect("it has ended");
    assert!(rest.len() < 4_000_000 * 8, "{}", rest.len());

    let mut gone = served.client().await;
    begin_endless(&mut gone).await;
    drop(gone);
    until("what runs is cancelled", async || db.connections().rows().is_empty()).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_come_through_tls() {
    let folder = tempfile::tempdir().unwrap();
    let options = OperatorsOptions {
        users: [("ada".to_owned(), Verifier::new("secret"))].into(),
        tls: Some(certificate(folder.path())),
        login_timeout: Duration::from_secs(2),
        ..OperatorsOptions::default()
    };
    let served = Served::begin(database(), options).await;
    let connector = connector(&folder.path().join("cert.pem"));
    let connect = async || {
        let name = ServerName::try_from("localhost").unwrap();
        let socket = TcpStream::connect(served.address).await.unwrap();
        Client(connector.connect(name, socket).await.unwrap())
    };
    let mut client = connect().await;
    assert_eq!(client.log_in("ada", Some("secret")).await, Said::Welcome);
    assert_eq!(client.ask(1, "create(db,\"d\")").await, Said::Done(1, true));
    let refused = connect().await.log_in("ada", Some("wrong")).await;
    assert_eq!(refused, Said::Refused("password authentication failed for user \"ada\"".into()));
    // A client that does not encrypt gets no answer that it could read.
    let mut plain = served.connect().await;
    plain.say(&ClientFrame::Hello { version: VERSION, user: "ada", password: Some("secret") }).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, plain.0.read_to_end(&mut answer)).await.expect("it is left");
    let mut welcome = Vec::new();
    ServerFrame::Welcome { version: VERSION, name: "" }.put(&mut welcome);
    assert!(answer.first() != Some(&welcome[0]), "{answer:?}");
    served.end().await;
}

fn connector(authority: &Path) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Clients that each own a set of values, beside sessions of SQL that write to the same table. Each
/// row stays as its writer has left it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_clients_work_beside_writers_of_sql() {
    const CLIENTS: i64 = 64;
    const ROWS: i64 = 20;
    let db = database();
    let mut session = Session::new(&db);
    session.execute("CREATE SCHEMA d; CREATE TABLE d.t (a INTEGER NOT NULL, b INTEGER NOT NULL)").await.unwrap();
    let served = Served::begin(db.clone(), OperatorsOptions::default()).await;
    let mut setup = served.client().await;
    assert_eq!(setup.ask(1, "create(idx,d.t.a,sorted,clustered)").await, Said::Done(1, true));
    let over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3_i64)
        .map(|writer| {
            let (db, over) = (db.clone(), over.clone());
            tokio::spawn(async move {
                let (mut session, first, mut sum) = (Session::new(&db), 1_000_000 * (writer + 1), 0_i64);
                let mut rounds = 0;
                while !over.load(Ordering::Relaxed) || rounds == 0 {
                    let row = first + rounds;
                    session.execute(&format!("INSERT INTO d.t VALUES ({row}, 1), ({row}, 2)")).await.unwrap();
                    session.execute(&format!("UPDATE d.t SET b = 10 WHERE a = {row} AND b = 2")).await.unwrap();
                    if rounds % 3 == 0 {
                        session.execute(&format!("DELETE FROM d.t WHERE a = {row}")).await.unwrap();
                    } else {
                        sum += 11;
                    }
                    rounds += 1;
                    // Statements on few rows never wait: without this, a writer would keep its
                    // thread.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                sum
            })
        })
        .collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let address = served.address;
            tokio::spawn(async move {
                let mut client = Client(TcpStream::connect(address).await.unwrap());
                assert_eq!(client.log_in("", None).await, Said::Welcome);
                let mut line = 0;
                for row in 0..ROWS {
                    let script = [
                        format!("relational_insert(d.t,{},{row})", number * 1_000 + row),
                        format!("p=select(d.t.a,{},{})", number * 1_000, number * 1_000 + 1_000),
                        "f=fetch(d.t.b,p)".to_owned(),
                        format!("q=select(d.t.a,{},{})", number * 1_000 + row, number * 1_000 + row + 1),
                        format!("relational_update(d.t.b,q,{})", row + 100),
                    ];
                    for text in script {
                        line += 1;
                        let said = client.ask(line, &text).await;
                        assert_eq!(said, Said::Done(line, true), "client {number}: {text}");
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let mut of_sql = 0;
    for writer in writers {
        of_sql += writer.await.unwrap();
    }
    let of_clients = CLIENTS * (0..ROWS).map(|row| row + 100).sum::<i64>();
    let sql = format!(
        "SELECT 1 / (CASE WHEN (SELECT sum(b) FROM d.t WHERE a < 1000000) = {of_clients} \
         AND (SELECT coalesce(sum(b), 0) FROM d.t WHERE a >= 1000000) = {of_sql} \
         AND (SELECT count(*) FROM d.t WHERE a < 1000000) = {} THEN 1 ELSE 0 END)",
        CLIENTS * ROWS
    );
    session.execute(&sql).await.expect("all rows are as they were left");
    served.end().await;
}
