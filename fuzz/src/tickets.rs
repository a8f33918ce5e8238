//! Bytes that clients got from the server and send back, or make up: tickets of flights, commands
//! and handles of Flight SQL, frames at a folder's socket and of the operator language, requests
//! for images and their manifests.

use crate::input::Input;
use crate::memory;
use crate::sql::CATALOG;
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionEndTransactionRequest, Any, CommandGetDbSchemas, CommandGetSqlInfo, CommandGetTables,
    CommandPreparedStatementQuery, CommandStatementQuery, ProstMessageExt, TicketStatementQuery,
};
use arrow_flight::{Action, FlightDescriptor};
use futures::StreamExt;
use prost::Message;
use serac_client::image::{Manifest, SnapshotRequest};
use serac_client::wire;
use serac_column_language::frames;
use serac_engine::Database;
use serac_export::flight::{Batches, Caller, Extension, FlightOptions, FlightServer};
use serac_server::{FlightSql, FlightSqlOptions};
use serac_sql::{Session, SqlDatabase, SqlOptions};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, Status};

/// A role that may read, and change one table.
const GUEST: &str = "
    CREATE ROLE guest;
    GRANT SELECT ON t, u, v TO guest;
    GRANT INSERT, UPDATE, DELETE ON t TO guest;
";

/// Both services on a database, and the number of inputs that have used it.
struct Services {
    runtime: Runtime,
    tables: FlightServer,
    sql: Arc<FlightSql>,
    inputs: u32,
}

/// Inputs may change a table, so a new database follows after this many.
const INPUTS: u32 = 400;

fn start() -> Services {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let database = Database::in_memory().expect("a database opens");
    let options = SqlOptions { threads: Some(1), memory_limit: Some(64 << 20), ..SqlOptions::default() };
    let db = SqlDatabase::new(database.clone(), &options).expect("SQL runs on it");
    let mut session = Session::new(&db);
    let script = format!("{CATALOG}{GUEST}");
    runtime.block_on(session.execute(&script)).unwrap_or_else(|error| panic!("{error}"));
    drop(session);
    let role = Some("guest".to_owned());
    let tables = FlightServer::new(database, Vec::new(), FlightOptions { role: role.clone(), ..Default::default() });
    let sql = Arc::new(FlightSql::new(db, FlightSqlOptions { role, max_sessions: 32, ..Default::default() }));
    Services { runtime, tables, sql, inputs: 0 }
}

/// Asserts that a refusal has a message, and is not a failure of the server.
fn check_status(status: &Status) {
    let is_failure = matches!(status.code(), Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss);
    assert!(!is_failure && !status.message().is_empty(), "{status:?}");
}

fn checked<T>(result: Result<T, Status>) -> Option<T> {
    result.inspect_err(check_status).ok()
}

/// The most batches that are read of a statement's result.
const MOST_BATCHES: usize = 16;

async fn drain(batches: Batches) {
    let mut batches = batches.take(MOST_BATCHES);
    while let Some(batch) = batches.next().await {
        if checked(batch).is_none() {
            return;
        }
    }
}

/// Cancels the work for a ticket, and then asks for its rows.
async fn get(sql: &FlightSql, ticket: &[u8]) {
    let caller = Caller::default();
    sql.speaks(ticket);
    sql.cancel(&caller, ticket);
    if let Some((schema, batches)) = checked(sql.get(&caller, ticket).await) {
        drop(schema);
        drain(batches).await;
    }
}

/// Asks for the schema of a command, for its flight, and then for the rows of its tickets.
async fn flight(sql: &FlightSql, command: Vec<u8>) {
    let caller = Caller::default();
    checked(sql.schema(&caller, &command).await);
    let Some(info) = checked(sql.flight_info(&caller, FlightDescriptor::new_cmd(command)).await) else { return };
    for endpoint in info.endpoint {
        let ticket = endpoint.ticket.expect("an endpoint has a ticket");
        get(sql, &ticket.ticket).await;
    }
}

const ACTIONS: [&str; 9] = [
    "CreatePreparedStatement",
    "ClosePreparedStatement",
    "BeginTransaction",
    "EndTransaction",
    "BeginSavepoint",
    "EndSavepoint",
    "CancelQuery",
    "CloseSession",
    "Other",
];

async fn act(sql: &FlightSql, name: &str, body: Vec<u8>) -> Option<Vec<Any>> {
    let action = Action { r#type: name.to_owned(), body: body.into() };
    let answers = checked(sql.act(&Caller::default(), &action).await)??;
    Some(answers.iter().filter_map(|answer| Any::decode(&**answer).ok()).collect())
}

/// The bytes of memory that a decoder may take for each byte that it reads.
const BYTES_PER_BYTE: usize = 64;

fn bounded<T>(bytes: &[u8], does: impl FnOnce() -> T) -> T {
    memory::bounded((64 << 10) + BYTES_PER_BYTE * bytes.len(), does)
}

/// Checks frames: writing a frame that was read gives the same bytes.
fn check_frames(kind: u8, body: &[u8]) {
    let whole = [&[kind][..], &(body.len() as u32).to_be_bytes(), body].concat();
    let written = |put: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        put(&mut out);
        out
    };
    let header = *whole.first_chunk().expect("it has a header");
    let is_of = |sender| wire::header(header, sender).is_ok();
    if (is_of(wire::Sender::Stranger) || is_of(wire::Sender::Client))
        && let Ok(frame) = bounded(body, || wire::ClientFrame::read(kind, body))
    {
        assert_eq!(written(&|out| frame.put(out)), whole, "{frame:?}");
    }
    if is_of(wire::Sender::Holder)
        && let Ok(frame) = bounded(body, || wire::HolderFrame::read(kind, body))
    {
        assert_eq!(written(&|out| frame.put(out)), whole, "{frame:?}");
    }
    let is_of = |sender| frames::header(header, sender).is_ok();
    if (is_of(frames::Sender::Stranger) || is_of(frames::Sender::Client))
        && let Ok(frame) = bounded(body, || frames::ClientFrame::read(kind, body))
    {
        assert_eq!(written(&|out| frame.put(out)), whole, "{frame:?}");
    }
    if is_of(frames::Sender::Server)
        && let Ok(frame) = bounded(body, || frames::ServerFrame::read(kind, body))
    {
        assert_eq!(written(&|out| frame.put(out)), whole, "{frame:?}");
    }
}

/// Checks requests for images and manifests: writing one that was read, and reading it again, gives
/// the same.
fn check_images(bytes: &[u8]) {
    if let Ok(request) = bounded(bytes, || SnapshotRequest::decode(bytes)) {
        let again = SnapshotRequest::decode(&request.encode()).expect("what was read can be written");
        assert_eq!(again.encode(), request.encode());
    }
    if let Ok(manifest) = bounded(bytes, || Manifest::decode(bytes.to_vec())) {
        let written = manifest.encode();
        let again = Manifest::decode(written.clone()).expect("what was read can be written");
        assert_eq!(again.encode(), written);
        manifest.check_pieces().expect("they were checked");
    }
}

/// Sends an input to the service that its first byte selects.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() % 10 {
        0 => {
            let kind = input.byte();
            check_frames(kind, input.rest());
        }
        1 => check_images(input.rest()),
        chosen => converse(chosen, input),
    }
}

fn converse(chosen: u8, mut input: Input<'_>) {
    static SERVICES: OnceLock<Mutex<Option<Services>>> = OnceLock::new();
    let mut services = SERVICES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if services.as_ref().is_none_or(|services| services.inputs >= INPUTS) {
        *services = Some(start());
    }
    let Services { runtime, tables, sql, inputs } = services.as_mut().expect("they were started");
    *inputs += 1;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let query = |bytes: &[u8]| CommandStatementQuery { query: text(bytes), transaction_id: None }.as_any();
    let work = async {
        match chosen {
            2 => get(sql, input.rest()).await,
            3 => flight(sql, input.rest().to_vec()).await,
            // A ticket with a statement that the client has put into it.
            4 => {
                let mark: [u8; 16] = input.array();
                let inner = if mark[0] & 1 == 0 { query(input.rest()).encode_to_vec() } else { input.rest().to_vec() };
                let statement_handle = [&mark[..], &inner].concat().into();
                get(sql, &TicketStatementQuery { statement_handle }.as_any().encode_to_vec()).await;
            }
            5 => flight(sql, query(input.rest()).encode_to_vec()).await,
            6 => {
                let name = ACTIONS[usize::from(input.byte()) % ACTIONS.len()];
                act(sql, name, input.rest().to_vec()).await;
            }
            // A statement is prepared, and the client sends its handle back, intact or changed.
            7 => {
                let (at, change) = (input.byte(), input.byte());
                let request = ActionCreatePreparedStatementRequest { query: text(input.rest()), transaction_id: None };
                let answers = act(sql, ACTIONS[0], request.as_any().encode_to_vec()).await;
                let Some(answer) = answers.and_then(|answers| answers.into_iter().next()) else { return };
                let prepared: Result<Option<arrow_flight::sql::ActionCreatePreparedStatementResult>, _> =
                    answer.unpack();
                let Ok(Some(prepared)) = prepared else { panic!("another answer: {answer:?}") };
                let mut handle = prepared.prepared_statement_handle.to_vec();
                let at = usize::from(at) % handle.len().max(1);
                handle.get_mut(at).into_iter().for_each(|byte| *byte ^= change);
                let prepared_statement_handle = bytes_of(handle);
                let command =
                    CommandPreparedStatementQuery { prepared_statement_handle: prepared_statement_handle.clone() };
                flight(sql, command.as_any().encode_to_vec()).await;
                let close = ActionClosePreparedStatementRequest { prepared_statement_handle };
                act(sql, ACTIONS[1], close.as_any().encode_to_vec()).await;
                let close = ActionClosePreparedStatementRequest {
                    prepared_statement_handle: prepared.prepared_statement_handle,
                };
                act(sql, ACTIONS[1], close.as_any().encode_to_vec()).await;
            }
            _ => {
                if let Some(mut scan) = checked(tables.scan(&Caller::default(), input.rest()).await) {
                    for block in std::iter::from_fn(|| scan.next_block()).take(MOST_BATCHES) {
                        block.expect("the rows are whole");
                    }
                }
            }
        }
    };
    runtime.block_on(async {
        // A statement may take longer than this. Then its client goes away.
        let _ = tokio::time::timeout(Duration::from_millis(500), work).await;
        sql.sweep();
    });
}

fn bytes_of(bytes: Vec<u8>) -> prost::bytes::Bytes {
    bytes.into()
}

/// One input of each kind, as clients send it.
pub fn seeds() -> Vec<Vec<u8>> {
    let of = |chosen: u8, bytes: &[u8]| [&[chosen], bytes].concat();
    let frame = |put: &dyn Fn(&mut Vec<u8>)| {
        let mut out = vec![0];
        put(&mut out);
        out.drain(2..6);
        out
    };
    let hello = wire::ClientFrame::Hello {
        version: wire::VERSION,
        postgresql_names: true,
        role: Some("guest"),
        application: "a program",
        folder: None,
    };
    let request = SnapshotRequest::new([("public", "t"), ("public", "u")]).encode();
    let failure = wire::Failure::new(sqlstate::DIVISION_BY_ZERO, "division by zero").with_detail("a").with_hint("b");
    let folder = wire::FolderId(1, 2);
    let welcome = wire::HolderFrame::Welcome { version: 1, process: 2, secret: 3, holder: 4, folder, name: "SeracDB" };
    let info = CommandGetSqlInfo { info: vec![0, 4, 500] }.as_any().encode_to_vec();
    let tables = CommandGetTables {
        catalog: None,
        db_schema_filter_pattern: Some("pub%".into()),
        table_name_filter_pattern: Some("_".into()),
        table_types: vec!["TABLE".into()],
        include_schema: true,
    };
    let schemas = CommandGetDbSchemas { catalog: Some("x".into()), db_schema_filter_pattern: None };
    let end = ActionEndTransactionRequest { transaction_id: vec![1; 16].into(), action: 1 };
    let savepoint = ActionBeginSavepointRequest { transaction_id: vec![1; 16].into(), name: "s".into() };
    let statement = CommandStatementQuery { query: "TABLE t".into(), transaction_id: Some(vec![0; 16].into()) };
    let scan: &[&str] = &[
        r#"{"lease":7,"blocks":{"start":0,"end":3}}"#,
        r#"{"request":{"table":"t"}}"#,
        r#"{"request":{"schema":"public","table":"t","columns":["a","c"],"filter":[["d","<",5],["c","=","x"]],"decimals":"decimal64","strings":"dictionary","dictionaries":["c"],"snapshot":"latest","endpoints":2},"blocks":{"start":0,"end":4294967295}}"#,
        r#"{"request":{"table":"u","strings":"utf8","filter":[["day",">=","2024-01-01"],["n","<>",null]]}}"#,
    ];
    let mut seeds = vec![
        frame(&|out| hello.put(out)),
        frame(&|out| wire::ClientFrame::Cancel { process: 1, secret: 2, statement: 3 }.put(out)),
        frame(&|out| wire::ClientFrame::Statement { statement: 1, text: "SELECT 1" }.put(out)),
        frame(&|out| wire::ClientFrame::DataEnd(Err("why")).put(out)),
        frame(&|out| wire::ClientFrame::Snapshot { statement: 1, request: &request }.put(out)),
        frame(&|out| welcome.put(out)),
        frame(&|out| wire::HolderFrame::Error(failure.clone()).put(out)),
        frame(&|out| wire::HolderFrame::Progress { rows: 1, done: 2, total: 3 }.put(out)),
        frame(&|out| frames::ClientFrame::Hello { version: 1, user: "ada", password: Some("x") }.put(out)),
        frame(&|out| frames::ClientFrame::Statement { line: 1, text: "a = 1" }.put(out)),
        of(1, &request),
        of(1, &Manifest::default().encode()),
        of(2, &info),
        of(3, &tables.as_any().encode_to_vec()),
        of(3, &schemas.as_any().encode_to_vec()),
        of(3, &statement.as_any().encode_to_vec()),
        of(4, &[&[0; 16], &b"SELECT a, c FROM t WHERE a > 3"[..]].concat()),
        of(4, &[&[1; 16], &statement.as_any().encode_to_vec()[..]].concat()),
        of(5, b"UPDATE t SET b = 1 RETURNING a"),
        of(5, b"SELECT * FROM u"),
        of(6, &[&[2], &b""[..]].concat()),
        of(6, &[&[3], &end.as_any().encode_to_vec()[..]].concat()),
        of(6, &[&[4], &savepoint.as_any().encode_to_vec()[..]].concat()),
        of(7, &[&[0, 0], &b"SELECT a + 1 FROM t WHERE c = 'text 3'"[..]].concat()),
        of(7, &[&[3, 1], &b"INSERT INTO t (a) VALUES (?)"[..]].concat()),
    ];
    seeds.extend(scan.iter().map(|ticket| of(8, ticket.as_bytes())));
    seeds
}
