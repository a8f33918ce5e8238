//! The port of Flight and Flight SQL.

use super::{STRANGER, connect_from, database};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionBeginTransactionRequest, ActionCreatePreparedStatementRequest, CommandStatementQuery, ProstMessageExt,
};
use arrow_flight::{Action, FlightDescriptor, HandshakeRequest};
use base64::Engine as _;
use futures::TryStreamExt;
use prost::Message;
use serac_export::flight::{FlightOptions, FlightServer};
use serac_server::{FlightSql, FlightSqlOptions, Verifier};
use serac_sql::{Session, SqlDatabase};
use serac_testing::{Served, until};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

pub(crate) async fn flight_server(db: &SqlDatabase, sql: FlightSqlOptions, flight: FlightOptions) -> Served {
    let extension = Arc::new(FlightSql::new(db.clone(), sql));
    let server = FlightServer::bind(db.database().clone(), "127.0.0.1:0".parse().unwrap(), flight).await.unwrap();
    let server = server.with_extension(extension);
    Served::start(server.local_address().unwrap(), |stop| server.run(stop))
}

/// A client with headers of its own.
#[derive(Clone)]
struct Caller {
    client: FlightServiceClient<Channel>,
    headers: MetadataMap,
}

impl Caller {
    async fn new(address: SocketAddr) -> Self {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Self { client: FlightServiceClient::new(channel), headers: MetadataMap::new() }
    }

    fn with(&self, name: &'static str, value: &str) -> Self {
        let mut caller = self.clone();
        caller.headers.insert(name, value.parse().unwrap());
        caller
    }

    fn with_password(&self, user: &str, password: &str) -> Self {
        let shown = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        self.with("authorization", &format!("Basic {shown}"))
    }

    fn with_cookie(&self, id: u64) -> Self {
        self.with("cookie", &format!("serac_session={id:032x}"))
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.headers.clone();
        request
    }

    /// The same with the token that the server gives for the password.
    async fn logged_in(&self, user: &str, password: &str) -> Result<Self, Status> {
        let shown = self.with_password(user, password);
        let requests = futures::stream::iter([HandshakeRequest::default()]);
        let answer = self.client.clone().handshake(shown.request(requests)).await?;
        let token = answer.metadata().get("authorization").expect("a token").to_str().unwrap().to_owned();
        Ok(self.with("authorization", &token))
    }

    /// Runs a statement; its rows are left to themselves.
    async fn run(&self, sql: &str) -> Result<(), Status> {
        let query = CommandStatementQuery { query: sql.into(), transaction_id: None };
        let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
        let info = self.client.clone().get_flight_info(self.request(descriptor)).await?.into_inner();
        for endpoint in info.endpoint {
            let ticket = self.request(endpoint.ticket.unwrap());
            let rows = self.client.clone().do_get(ticket).await?.into_inner();
            rows.try_collect::<Vec<_>>().await?;
        }
        Ok(())
    }

    async fn act(&self, kind: &str, body: &impl ProstMessageExt) -> Result<(), Status> {
        let action = Action { r#type: kind.into(), body: body.as_any().encode_to_vec().into() };
        let results = self.client.clone().do_action(self.request(action)).await?.into_inner();
        results.try_collect::<Vec<_>>().await.map(|_| ())
    }

    async fn prepare(&self) -> Result<(), Status> {
        let request = ActionCreatePreparedStatementRequest { query: "SELECT 1".into(), transaction_id: None };
        self.act("CreatePreparedStatement", &request).await
    }

    async fn begin(&self) -> Result<(), Status> {
        self.act("BeginTransaction", &ActionBeginTransactionRequest {}).await
    }
}

async fn execute(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_ends_with_what_it_was_given_for() {
    // The statement that ends the token, and whether a login with the same password succeeds
    // afterwards.
    let cases: [(&[&str], bool); 7] = [
        (&["DROP ROLE ada"], false),
        (&["DROP ROLE ada", "CREATE ROLE ada LOGIN PASSWORD 'secret'"], true),
        (&["DROP ROLE ada", "CREATE ROLE ada SUPERUSER LOGIN PASSWORD 'other'"], false),
        (&["ALTER ROLE ada PASSWORD 'secret'"], true),
        (&["ALTER ROLE ada PASSWORD NULL", "CREATE ROLE bob LOGIN PASSWORD 'x'"], false),
        (&["ALTER ROLE ada NOLOGIN"], false),
        (&["ALTER ROLE ada VALID UNTIL '2001-01-01'"], false),
    ];
    for (changes, logs_in) in cases {
        let db = database();
        let mut owner = Session::new(&db);
        execute(&mut owner, "CREATE TABLE secrets (a INTEGER)").await;
        execute(&mut owner, "CREATE ROLE ada LOGIN PASSWORD 'secret'").await;
        let served = flight_server(&db, FlightSqlOptions::default(), FlightOptions::default()).await;
        let stranger = Caller::new(served.address).await;
        let ada = stranger.logged_in("ada", "secret").await.unwrap();
        let with_session = ada.with_cookie(7);
        for caller in [&ada, &with_session] {
            caller.run("SELECT 1").await.unwrap();
            assert_eq!(caller.run("SELECT * FROM secrets").await.unwrap_err().code(), Code::PermissionDenied);
        }
        for sql in changes {
            execute(&mut owner, sql).await;
        }
        for caller in [&ada, &with_session] {
            for sql in ["SELECT 1", "SELECT * FROM secrets", "DROP TABLE secrets"] {
                let refused = caller.run(sql).await.expect_err("the token is good no more");
                assert_eq!(refused.code(), Code::Unauthenticated, "{changes:?}, {sql}: {refused}");
            }
            let all = caller.client.clone().list_flights(caller.request(arrow_flight::Criteria::default())).await;
            assert_eq!(all.map(|_| ()).unwrap_err().code(), Code::Unauthenticated, "{changes:?}");
        }
        if changes.len() > 1 || !changes[0].starts_with("DROP") {
            let again = stranger.logged_in("ada", "secret").await;
            assert_eq!(again.is_ok(), logs_in, "{changes:?}");
        }
        drop(owner);
        served.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_not_the_next_roles_of_the_name() {
    let db = database();
    let mut owner = Session::new(&db);
    execute(&mut owner, "CREATE ROLE ada LOGIN PASSWORD 'secret'").await;
    let served = flight_server(&db, FlightSqlOptions::default(), FlightOptions::default()).await;
    let stranger = Caller::new(served.address).await;
    let ada = stranger.logged_in("ada", "secret").await.unwrap().with_cookie(7);
    ada.run("CREATE TEMPORARY TABLE mine (a INTEGER)").await.unwrap();
    ada.run("SELECT * FROM mine").await.unwrap();
    execute(&mut owner, "DROP ROLE ada").await;
    execute(&mut owner, "CREATE ROLE ada LOGIN PASSWORD 'secret'").await;
    let other = stranger.logged_in("ada", "secret").await.unwrap().with_cookie(7);
    assert_eq!(other.run("SELECT * FROM mine").await.unwrap_err().code(), Code::NotFound);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_all_that_the_server_keeps_for_clients() {
    let db = database();
    let mut owner = Session::new(&db);
    for role in ["ada", "bob"] {
        execute(&mut owner, &format!("CREATE ROLE {role} LOGIN PASSWORD '{role}'")).await;
    }
    let options = FlightSqlOptions { max_sessions: 16, ..FlightSqlOptions::default() };
    let served = flight_server(&db, options, FlightOptions::default()).await;
    let stranger = Caller::new(served.address).await;
    let ada = stranger.logged_in("ada", "ada").await.unwrap();
    let bob = stranger.logged_in("bob", "bob").await.unwrap();
    for id in 0..64 {
        ada.with_cookie(id).run("SELECT 1").await.unwrap_or_else(|error| panic!("cookie {id}: {error}"));
    }
    bob.with_cookie(1).run("SELECT 1").await.unwrap();
    // A session with a transaction is not given up for another of the same user.
    let kept = bob.with_cookie(1);
    kept.run("BEGIN").await.unwrap();
    for id in 2..64 {
        bob.with_cookie(id).run("SELECT 1").await.unwrap();
    }
    kept.run("SAVEPOINT here").await.unwrap();
    for (what, made) in [
        ("prepared statements", (0..64).map(|_| true).collect::<Vec<_>>()),
        ("transactions", (0..64).map(|_| false).collect()),
    ] {
        let mut refused = 0;
        for prepares in made {
            let result = if prepares { ada.prepare().await } else { ada.begin().await };
            if let Err(status) = result {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                refused += 1;
            }
        }
        assert!(refused > 0, "{what} without end");
    }
    bob.prepare().await.unwrap();
    bob.begin().await.unwrap();
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn passwords_are_hashed_beside_other_calls() {
    let db = database();
    let mut owner = Session::new(&db);
    let key = "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=";
    let slow = format!("SCRAM-SHA-256$1000000:W22ZaJ0SNY7soEsUEjb6gQ==${key}:{key}");
    execute(&mut owner, &format!("CREATE ROLE ada LOGIN PASSWORD '{slow}'")).await;
    let users = [("bob".to_owned(), Verifier::new("bob"))].into();
    let options = FlightSqlOptions { users, ..FlightSqlOptions::default() };
    let served = flight_server(&db, options, FlightOptions::default()).await;
    let stranger = Caller::new(served.address).await;
    let bob = stranger.logged_in("bob", "bob").await.unwrap();
    bob.run("SELECT 1").await.unwrap();
    let mut guesses = tokio::task::JoinSet::new();
    for i in 0..6 {
        let ada = stranger.with_password("ada", &format!("guess {i}"));
        guesses.spawn(async move { ada.run("SELECT 1").await.unwrap_err().code() });
    }
    // Each guess takes longer than a call: the calls are done while most of them are still hashed.
    tokio::task::yield_now().await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        bob.run("SELECT 1").await.unwrap();
    }
    let done = std::iter::from_fn(|| guesses.try_join_next()).count();
    assert!(done < 5, "{done} of 6 passwords were hashed before three calls were answered");
    while let Some(code) = guesses.join_next().await {
        assert_eq!(code.unwrap(), Code::Unauthenticated);
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_take_nobodys_place() {
    let db = database();
    let flight = FlightOptions { max_connections: 8, ..FlightOptions::default() };
    let served = flight_server(&db, FlightSqlOptions::default(), flight).await;
    let mut silent = Vec::new();
    for own in [STRANGER, [127, 0, 0, 1]] {
        for i in 0..100 {
            let mut socket = connect_from(own, served.address).await;
            if i % 2 == 0 {
                // Clients that speak HTTP/2, and make no call.
                use tokio::io::AsyncWriteExt;
                let _ = socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
            }
            silent.push(socket);
        }
        let caller = Caller::new(served.address).await;
        caller.run("SELECT 1").await.unwrap();
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_has_an_end_however_often_it_is_used() {
    let db = database();
    execute(&mut Session::new(&db), "CREATE ROLE ada LOGIN PASSWORD 'ada'").await;
    let options = FlightSqlOptions { longest_login: Duration::from_secs(2), ..FlightSqlOptions::default() };
    let served = flight_server(&db, options, FlightOptions::default()).await;
    let ada = Caller::new(served.address).await.logged_in("ada", "ada").await.unwrap();
    // Another token for the first has the first one's end.
    let requests = futures::stream::iter([HandshakeRequest::default()]);
    let answer = ada.client.clone().handshake(ada.request(requests)).await.unwrap();
    let renewed = ada.with("authorization", answer.metadata().get("authorization").unwrap().to_str().unwrap());
    until("the login ends", async || ada.run("SELECT 1").await.is_err()).await;
    for caller in [&ada, &renewed] {
        assert_eq!(caller.run("SELECT 1").await.unwrap_err().code(), Code::Unauthenticated);
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_on_which_nobody_calls_are_closed() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let db = database();
    execute(&mut Session::new(&db), "CREATE ROLE ada LOGIN PASSWORD 'ada'").await;
    let time = Duration::from_millis(500);
    let folder = tempfile::tempdir().unwrap();
    let tls = super::certificate(folder.path());
    for tls in [None, Some(tls)] {
        let flight = FlightOptions { login_timeout: time, tls: tls.clone(), ..FlightOptions::default() };
        let served = flight_server(&db, FlightSqlOptions::default(), flight).await;
        for said in ["", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "\x16\x03\x01\x02"] {
            let mut socket = tokio::net::TcpStream::connect(served.address).await.unwrap();
            socket.write_all(said.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let closed = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut answer)).await;
            assert!(closed.is_ok(), "a connection that has said {said:?} stays, with TLS: {}", tls.is_some());
        }
        if tls.is_none() {
            // Calls of unauthorised clients are no sign of life; an authorised call is.
            let ada = Caller::new(served.address).await.logged_in("ada", "ada").await.unwrap();
            let wrong = Caller::new(served.address).await.with_password("ada", "wrong");
            let shut = async {
                while wrong.run("SELECT 1").await.unwrap_err().code() == Code::Unauthenticated {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            // The channel connects again and again; a call is broken off when its connection is
            // closed.
            let _ = tokio::time::timeout(3 * time, shut).await;
            ada.run("SELECT 1").await.unwrap();
        }
        served.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_give_what_they_were_described_with() {
    let db = database();
    let mut owner = Session::new(&db);
    execute(&mut owner, "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)").await;
    execute(&mut owner, "INSERT INTO t VALUES (1, 'x')").await;
    let served = flight_server(&db, FlightSqlOptions::default(), FlightOptions::default()).await;
    let caller = Caller::new(served.address).await;
    let mut client = FlightSqlServiceClient::new_from_inner(caller.client.clone());
    for sql in ["SELECT * FROM t WHERE id = 1", "SELECT * FROM t ORDER BY a"] {
        let mut prepared = client.prepare(sql.into(), None).await.unwrap();
        let mut rows = async |client: &mut FlightSqlServiceClient<Channel>| {
            let info = prepared.execute().await?;
            let rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await?;
            rows.try_collect::<Vec<_>>().await
        };
        assert_eq!(rows(&mut client).await.unwrap()[0].num_columns(), 2);
        execute(&mut owner, "CREATE INDEX t_a ON t (a)").await;
        assert_eq!(rows(&mut client).await.unwrap()[0].num_columns(), 2);
        execute(&mut owner, "ALTER TABLE t ADD COLUMN b INTEGER").await;
        let refused = rows(&mut client).await.unwrap_err().to_string();
        assert!(refused.contains("0A000") && refused.contains("cached plan"), "{sql}: {refused}");
        execute(&mut owner, "ALTER TABLE t DROP COLUMN b").await;
        assert_eq!(rows(&mut client).await.unwrap()[0].num_columns(), 2);
        execute(&mut owner, "DROP INDEX t_a").await;
    }
    served.end().await;
}
