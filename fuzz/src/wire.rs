//! The server's end of a PostgreSQL connection, on a stream in memory: from the first byte of a
//! client to the end of its session. The server's answers are checked, too.
//!
//! An input is a client's bytes as they are, or a recipe for a session: kinds of messages with
//! their bodies, to which the target adds correct lengths.

use crate::check_sqlstate;
use crate::input::{Input, put_long_piece};
use crate::sql::CATALOG;
use serac_engine::Database;
use serac_server::{PgOptions, PgServer};
use serac_sql::{Session, SqlDatabase, SqlOptions};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::{Builder, Runtime};

/// The rights of the client: nothing that outlasts the database, or reaches the machine's files.
const GUEST: &str = "
    CREATE ROLE guest LOGIN;
    GRANT SELECT ON t, u, v TO guest;
    GRANT INSERT, UPDATE, DELETE ON t TO guest;
    GRANT USAGE ON s TO guest;
";

/// A server, and the number of clients that have used its database.
struct Server {
    runtime: Runtime,
    server: PgServer,
    clients: u32,
}

/// Clients change the table, so a new database follows after this many.
const CLIENTS: u32 = 200;

fn start() -> Server {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let database = Database::in_memory().expect("a database opens");
    let options = SqlOptions { threads: Some(1), memory_limit: Some(64 << 20), ..SqlOptions::default() };
    let sql = SqlDatabase::new(database, &options).expect("SQL runs on it");
    let mut session = Session::new(&sql);
    let script = format!("{CATALOG}{GUEST}");
    runtime.block_on(session.execute(&script)).unwrap_or_else(|error| panic!("{error}"));
    drop(session);
    let options = PgOptions { max_message: 1 << 20, login_timeout: Duration::from_secs(5), ..PgOptions::default() };
    let server = PgServer::new(sql, Vec::new(), options).expect("its threads start");
    Server { runtime, server, clients: 0 }
}

/// The server's answer to a client that sends these bytes and then ends its stream.
fn converse(bytes: &[u8]) -> Vec<u8> {
    static SERVER: OnceLock<Mutex<Option<Server>>> = OnceLock::new();
    let mut server = SERVER.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if server.as_ref().is_none_or(|server| server.clients >= CLIENTS) {
        *server = Some(start());
    }
    let Server { runtime, server, clients } = server.as_mut().expect("it was started");
    *clients += 1;
    runtime.block_on(async {
        let (near, far) = duplex(64 << 10);
        let (mut reads, mut writes) = tokio::io::split(near);
        let says = async {
            // A server may close the connection before it has read all.
            let _ = writes.write_all(bytes).await;
            let _ = writes.shutdown().await;
        };
        let hears = async {
            let mut heard = Vec::new();
            let _ = reads.read_to_end(&mut heard).await;
            heard
        };
        tokio::join!(server.serve_stream(far), says, hears).2
    })
}

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const GSS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];

/// Checks the server's answers: whole messages of known kinds, and errors and notices with an
/// SQLSTATE.
fn check_answers(mut said: &[u8], mut heard: &[u8]) {
    while said.starts_with(&SSL_REQUEST) || said.starts_with(&GSS_REQUEST) {
        let Some((b'N', rest)) = heard.split_first() else { break };
        (said, heard) = (&said[8..], rest);
    }
    while let Some((kind, rest)) = heard.split_first() {
        let length = rest.first_chunk().map(|length| u32::from_be_bytes(*length) as usize);
        let (body, rest) = length.and_then(|length| rest.split_at_checked(length)).expect("a whole message");
        let body = &body[4..];
        match kind {
            b'E' | b'N' => {
                let fields: Vec<&[u8]> = body.split(|byte| *byte == 0).collect();
                let field = |name: u8| {
                    let field = fields.iter().find(|field| field.first() == Some(&name)).expect("it has the field");
                    String::from_utf8_lossy(&field[1..]).into_owned()
                };
                check_sqlstate(&field(b'C'), &field(b'M'));
                field(b'S');
            }
            b'Z' => assert!(matches!(body, b"I" | b"T" | b"E"), "{body:?}"),
            b'R' | b'S' | b'K' | b'v' | b'1' | b'2' | b'3' | b'n' | b't' | b'T' | b'D' | b'C' | b'I' | b's' | b'A'
            | b'G' | b'H' | b'd' | b'c' => {}
            other => panic!("a message of kind {:?}", char::from(*other)),
        }
        heard = rest;
    }
}

/// Kinds of messages in recipes.
const KINDS: &[u8] = b"QPBDECSHXFdcfp?";

/// The first message of a recipe's session.
fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    body.push(0);
    [&(body.len() as u32 + 4).to_be_bytes(), &body[..]].concat()
}

/// The client's bytes that a recipe describes.
fn session(input: &mut Input<'_>) -> Vec<u8> {
    let mut said = startup(&[("user", "guest"), ("options", "-c statement_timeout=300ms")]);
    while !input.is_empty() {
        let kind = KINDS[usize::from(input.byte()) % KINDS.len()];
        let body = input.long_piece();
        said.push(if kind == b'?' { body.first().copied().unwrap_or_default() } else { kind });
        said.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        said.extend_from_slice(body);
    }
    said
}

/// Serves a client.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let said = match input.byte() % 4 {
        0 => input.rest().to_vec(),
        1 => [&SSL_REQUEST[..], input.rest()].concat(),
        _ => session(&mut input),
    };
    let heard = converse(&said);
    check_answers(&said, &heard);
}

/// A recipe of messages.
fn recipe(messages: &[(u8, &[u8])]) -> Vec<u8> {
    let mut recipe = vec![2];
    for (kind, body) in messages {
        recipe.push(KINDS.iter().position(|known| known == kind).expect("a kind of message") as u8);
        put_long_piece(&mut recipe, body);
    }
    recipe
}

/// Sessions of both protocols, and first messages of every kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let bind = |values: &[&[u8]], format: u8| {
        let mut body = vec![0, 0, 0, 1, 0, format, 0, values.len() as u8];
        for value in values {
            body.extend_from_slice(&(value.len() as u32).to_be_bytes());
            body.extend_from_slice(value);
        }
        body.extend_from_slice(&[0, 1, 0, format]);
        body
    };
    let (text, binary) = (bind(&[b"3"], 0), bind(&[&[0, 0, 0, 3]], 1));
    let run: [(u8, &[u8]); 3] = [(b'D', b"P\0"), (b'E', b"\0\0\0\0\0"), (b'S', b"")];
    let extended = |parse: &'static [u8], bind: &[u8]| recipe(&[&[(b'P', parse), (b'B', bind)][..], &run].concat());
    let mut sessions = vec![
        recipe(&[(b'Q', b"SELECT * FROM t\0"), (b'Q', b"SELEC\0"), (b'Q', b"\0"), (b'X', b"")]),
        recipe(&[(b'Q', b"BEGIN; UPDATE t SET b = 1; SELECT 1/0\0"), (b'Q', b"ROLLBACK\0")]),
        recipe(&[(b'Q', b"COPY t (a, b) FROM STDIN\0"), (b'd', b"100\t1\n101\t"), (b'd', b"\\N\n"), (b'c', b"")]),
        recipe(&[
            (b'Q', b"COPY t (a) FROM STDIN\0"),
            (b'd', b"x\n"),
            (b'f', b"no\0"),
            (b'Q', b"COPY t TO STDOUT (FORMAT csv)\0"),
        ]),
        recipe(&[(b'Q', b"COPY u TO STDOUT (FORMAT binary)\0"), (b'Q', b"LISTEN x; NOTIFY x, 'y'\0"), (b'H', b"")]),
        recipe(&[(b'Q', b"DECLARE c CURSOR WITH HOLD FOR TABLE t; FETCH 2 c; CLOSE c\0"), (b'F', b"\0\0\0\x01")]),
        extended(b"\0SELECT a, c FROM t WHERE a = $1\0\0\0", &text),
        extended(b"\0SELECT a, d, e, f FROM t WHERE a = $1\0\0\x01\0\0\0\x17", &binary),
        extended(b"\0INSERT INTO t (a) VALUES ($1) RETURNING *\0\0\0", &text),
        extended(b"\0DELETE FROM t WHERE a = $1\0\0\0", &binary),
        extended(b"\0SELECT * FROM u WHERE a = $1\0\0\0", &binary),
    ];
    sessions.push(recipe(&[
        (b'P', b"named\0SELECT generate_series(1, 9), $1::text\0\0\0"),
        (b'D', b"Snamed\0"),
        (b'B', b"portal\0named\0\0\0\0\x01\xff\xff\xff\xff\0\0"),
        (b'E', b"portal\0\0\0\0\x02"),
        (b'E', b"portal\0\0\0\0\0"),
        (b'C', b"Pportal\0"),
        (b'C', b"Snamed\0"),
        (b'S', b""),
    ]));
    let plain = |bytes: &[u8]| [&[0], bytes].concat();
    let query = [&startup(&[("user", "guest"), ("database", "x"), ("_pq_.y", "z")])[..], &b"Q\0\0\0\x0dSELECT 1\0"[..]];
    sessions.push(plain(&query.concat()));
    sessions.push(plain(&startup(&[("user", "nobody")])));
    sessions.push(plain(&startup(&[("user", "guest"), ("client_encoding", "latin1")])));
    sessions.push(plain(&[0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 2]));
    sessions.push(plain(&GSS_REQUEST));
    // A request for encryption of the length of one to cancel.
    sessions.push(plain(&[0, 0, 0, 16, 4, 210, 22, 47, 0, 0, 0, 1, 0, 0, 0, 2]));
    sessions.push([&[1], &startup(&[("user", "guest")])[..]].concat());
    sessions
}
