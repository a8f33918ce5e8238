//! Transaction control on the wire: implicit transaction blocks, and aborted transactions.
//!
//! Each example is a list of a client's messages with the server's answers. With `SERAC_POSTGRESQL`
//! set to the address of a PostgreSQL server (user postgres, no password), that server must give
//! the same answers.

use super::{Served, connect, message, query};
use serac_engine::Database;
use serac_server::PgOptions;
use serac_sql::{SqlDatabase, SqlOptions};
use serac_storage::StorageOptions;
use serac_storage::durability::file_system::FaultFileSystem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Parse and Bind of a text without parameters, unnamed.
fn parse_and_bind(sql: &str) -> Vec<u8> {
    let parse = message(b'P', &[b"\0", sql.as_bytes(), b"\0\0\0"].concat());
    [parse, message(b'B', b"\0\0\0\0\0\0\0\0")].concat()
}

/// Parse, Bind, Describe and Execute of a text, as drivers send them; without a Sync.
fn extended(sql: &str) -> Vec<u8> {
    [parse_and_bind(sql), message(b'D', b"P\0"), message(b'E', b"\0\0\0\0\0")].concat()
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

/// A message of the server, as a word: its tag, and the part that the examples look at.
fn word(tag: u8, body: &[u8]) -> Option<String> {
    let field = |name: u8| {
        let mut fields = body.split(|&byte| byte == 0).filter(|field| !field.is_empty());
        let field = fields.find(|field| field[0] == name).map(|field| &field[1..]);
        String::from_utf8_lossy(field.unwrap_or_default()).into_owned()
    };
    Some(match tag {
        b'C' => String::from_utf8_lossy(&body[..body.len() - 1]).into_owned(),
        b'E' => format!("error {}", field(b'C')),
        b'N' => format!("{} {}", field(b'V').to_lowercase(), field(b'C')),
        // The first value.
        b'D' => String::from_utf8_lossy(&body[6..6 + i32::from_be_bytes(body[2..6].try_into().unwrap()) as usize])
            .into_owned(),
        b'I' => "empty".into(),
        b'Z' => format!("{}.", body[0] as char),
        // Parameters' states and acknowledgements.
        b'S' | b'1' | b'2' | b'n' | b'T' | b't' => return None,
        other => format!("<{}>", other as char),
    })
}

/// The server's messages up to the `readies`-th that it is ready, as words.
async fn answer(socket: &mut TcpStream, readies: usize) -> String {
    let mut words = Vec::new();
    let mut left = readies;
    while left > 0 {
        let mut head = [0; 5];
        let read = tokio::time::timeout(Duration::from_secs(20), socket.read_exact(&mut head)).await;
        read.unwrap_or_else(|_| panic!("only {words:?} has come")).expect("the server answers");
        let mut body = vec![0; i32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4];
        socket.read_exact(&mut body).await.unwrap();
        words.extend(word(head[0], &body));
        left -= usize::from(head[0] == b'Z');
    }
    words.join(", ")
}

/// Sends bytes in which the server is asked `readies` times to say that it is ready.
async fn ask(socket: &mut TcpStream, bytes: &[u8], readies: usize) -> String {
    socket.write_all(bytes).await.unwrap();
    answer(socket, readies).await
}

/// The servers that are to answer alike.
async fn servers() -> (Served, Vec<SocketAddr>) {
    let served = Served::new(PgOptions::default()).await;
    let peer = std::env::var("SERAC_POSTGRESQL").ok().map(|address| address.parse().unwrap());
    let addresses = [served.address].into_iter().chain(peer).collect();
    (served, addresses)
}

async fn connect_to(address: SocketAddr, served: &Served) -> TcpStream {
    if address == served.address {
        return connect(address).await;
    }
    let mut socket = TcpStream::connect(address).await.unwrap();
    let mut body = 196_608i32.to_be_bytes().to_vec();
    body.extend_from_slice(b"user\0postgres\0\0");
    socket.write_all(&[&(body.len() as i32 + 4).to_be_bytes()[..], &body].concat()).await.unwrap();
    super::read_until(&mut socket, "Z\0\0\0\x05I").await;
    socket
}

/// Each example: the messages, the server's answers, and the resulting rows (a text of their sum by
/// powers of two).
async fn check(name: &str, examples: &[(&[Vec<u8>], &str, &str)]) {
    let (served, addresses) = servers().await;
    for address in addresses {
        for (i, (sent, answered, rows)) in examples.iter().enumerate() {
            let mut socket = connect_to(address, &served).await;
            let table = format!("{name}_{i}");
            let prepare = format!("DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (a INTEGER PRIMARY KEY)");
            ask(&mut socket, &query(&prepare), 1).await;
            // The examples call their table t.
            let name_table = |bytes: &[u8]| rename(bytes, &table);
            let readies = sent.iter().flat_map(|bytes| tags(bytes)).filter(|tag| matches!(tag, b'Q' | b'S')).count();
            let bytes: Vec<u8> = sent.iter().flat_map(|bytes| name_table(bytes)).collect();
            let said = ask(&mut socket, &bytes, readies).await;
            assert_eq!(said, *answered, "example {i} at {address}");
            let mut other = connect_to(address, &served).await;
            let seen = ask(&mut other, &query(&format!("SELECT a FROM {table} ORDER BY a")), 1).await;
            let seen: Vec<&str> = seen.split(", ").take_while(|word| !word.starts_with("SELECT")).collect();
            assert_eq!(seen.join(" "), *rows, "rows after example {i} at {address}");
            drop(socket);
            ask(&mut other, &query(&format!("DROP TABLE {table}")), 1).await;
        }
    }
    served.end().await;
}

/// The tags of messages in a row.
fn tags(mut bytes: &[u8]) -> Vec<u8> {
    let mut tags = Vec::new();
    while let [tag, rest @ ..] = bytes {
        tags.push(*tag);
        bytes = &rest[i32::from_be_bytes(rest[..4].try_into().unwrap()) as usize..];
    }
    tags
}

/// Messages in which the table's name stands for "TABLE1".
fn rename(mut bytes: &[u8], table: &str) -> Vec<u8> {
    let mut renamed = Vec::new();
    while let [tag, rest @ ..] = bytes {
        let (body, after) = rest.split_at(i32::from_be_bytes(rest[..4].try_into().unwrap()) as usize);
        let mut body = body[4..].to_vec();
        while let Some(at) = body.windows(6).position(|word| word == b"TABLE1") {
            body.splice(at..at + 6, table.bytes());
        }
        renamed.extend_from_slice(&message(*tag, &body));
        bytes = after;
    }
    renamed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_of_one_query_are_one_implicit_block() {
    let insert = |a: i32| format!("INSERT INTO TABLE1 VALUES ({a})");
    let (i7, i8, i9) = (insert(7), insert(8), insert(9));
    let q = |sql: String| vec![query(&sql)];
    check(
        "implicit",
        &[
            // An error undoes the query, and its COMMIT keeps the work before it.
            (&q(format!("{i7}; {i8}; SELECT 1 / 0")), "INSERT 0 1, INSERT 0 1, error 22012, I.", ""),
            (
                &q(format!("{i7}; COMMIT; {i8}; SELECT 1 / 0")),
                "INSERT 0 1, warning 25P01, COMMIT, INSERT 0 1, error 22012, I.",
                "7",
            ),
            (&q(format!("{i9}; ROLLBACK; {i8}")), "INSERT 0 1, warning 25P01, ROLLBACK, INSERT 0 1, I.", "8"),
            (
                &q(format!("{i9}; ROLLBACK; {i8}; SELECT 1 / 0")),
                "INSERT 0 1, warning 25P01, ROLLBACK, INSERT 0 1, error 22012, I.",
                "",
            ),
            // BEGIN makes the block a regular one, including its earlier statements.
            (
                &[query(&format!("{i7}; BEGIN; {i8}")), query("ROLLBACK")],
                "INSERT 0 1, BEGIN, INSERT 0 1, T., ROLLBACK, I.",
                "",
            ),
            (
                &[query(&format!("{i7}; BEGIN; {i8}")), query("COMMIT")],
                "INSERT 0 1, BEGIN, INSERT 0 1, T., COMMIT, I.",
                "7 8",
            ),
            (
                &[query(&format!("BEGIN; {i7}; COMMIT; {i8}; SELECT 1 / 0"))],
                "BEGIN, INSERT 0 1, COMMIT, INSERT 0 1, error 22012, I.",
                "7",
            ),
            (
                &[query(&format!("BEGIN; {i7}; SELECT 1 / 0")), query(&format!("COMMIT; {i8}"))],
                "BEGIN, INSERT 0 1, error 22012, E., ROLLBACK, INSERT 0 1, I.",
                "8",
            ),
            (&q(format!("BEGIN; {i7}; BEGIN; COMMIT")), "BEGIN, INSERT 0 1, warning 25001, BEGIN, COMMIT, I.", "7"),
            // Savepoints are for regular blocks.
            (&q(format!("{i7}; SAVEPOINT s")), "INSERT 0 1, error 25P01, I.", ""),
            (&q(format!("{i7}; RELEASE s")), "INSERT 0 1, error 25P01, I.", ""),
            (&q(format!("{i7}; ROLLBACK TO s")), "INSERT 0 1, error 25P01, I.", ""),
            (
                &q(format!("{i7}; BEGIN; SAVEPOINT s; {i8}; ROLLBACK TO s; COMMIT")),
                "INSERT 0 1, BEGIN, SAVEPOINT, INSERT 0 1, ROLLBACK, COMMIT, I.",
                "7",
            ),
            (&q("SAVEPOINT s".into()), "error 25P01, I.", ""),
            // A statement that cannot run in a transaction block cannot run beside other
            // statements.
            (&q(format!("{i7}; VACUUM")), "INSERT 0 1, error 25001, I.", ""),
            (&q(format!("VACUUM; {i7}")), "error 25001, I.", ""),
            (&q("VACUUM".into()), "VACUUM, I.", ""),
            (&q(format!("{i7}; COMMIT; VACUUM")), "INSERT 0 1, warning 25P01, COMMIT, error 25001, I.", "7"),
            // Cursors and SET LOCAL may be used.
            (
                &q("DECLARE c CURSOR FOR SELECT 5; FETCH c; SET LOCAL TimeZone = 'UTC'".into()),
                "DECLARE CURSOR, 5, FETCH 1, SET, I.",
                "",
            ),
            // One statement is a transaction of its own.
            (&q(i7.clone()), "INSERT 0 1, I.", "7"),
            (&q("COMMIT".into()), "warning 25P01, COMMIT, I.", ""),
            (&q("ROLLBACK".into()), "warning 25P01, ROLLBACK, I.", ""),
            // AND CHAIN begins the next.
            (
                &[query(&format!("BEGIN; {i7}; COMMIT AND CHAIN; {i8}")), query("ROLLBACK")],
                "BEGIN, INSERT 0 1, COMMIT, INSERT 0 1, T., ROLLBACK, I.",
                "7",
            ),
            (
                &[query(&format!("BEGIN; {i7}; ROLLBACK AND CHAIN; {i8}")), query("COMMIT")],
                "BEGIN, INSERT 0 1, ROLLBACK, INSERT 0 1, T., COMMIT, I.",
                "8",
            ),
            (&q(format!("{i7}; COMMIT AND CHAIN")), "INSERT 0 1, error 25P01, I.", ""),
            (&q("ROLLBACK AND CHAIN".into()), "error 25P01, I.", ""),
            // The modes of BEGIN come too late once the block has begun to work.
            (&q(format!("{i7}; BEGIN ISOLATION LEVEL SERIALIZABLE; COMMIT")), "INSERT 0 1, error 25001, I.", ""),
            (
                &q("BEGIN ISOLATION LEVEL SERIALIZABLE; SHOW transaction_isolation; COMMIT".into()),
                "BEGIN, serializable, SHOW, COMMIT, I.",
                "",
            ),
            // A failure at the commit replaces the end of the last statement.
            (&q(format!("{i7}; {i7}")), "INSERT 0 1, error 23505, I.", ""),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_of_a_query_that_is_no_sql() {
    let i7 = "INSERT INTO TABLE1 VALUES (7)";
    check(
        "syntax",
        &[
            (&[query(&format!("{i7}; SELEC 1"))], "error 42601, I.", ""),
            (&[query(&format!("{i7}; COMMIT; SELEC 1"))], "error 42601, I.", ""),
            // In a transaction, it is an error like any other.
            (
                &[query("BEGIN"), query(i7), query("SELEC 1"), query("SELECT 1"), query("COMMIT")],
                "BEGIN, T., INSERT 0 1, T., error 42601, E., error 25P02, E., ROLLBACK, I.",
                "",
            ),
            (
                &[
                    query("BEGIN"),
                    query(i7),
                    query("SAVEPOINT s"),
                    query("SELEC 1"),
                    query("ROLLBACK TO s"),
                    query("COMMIT"),
                ],
                "BEGIN, T., INSERT 0 1, T., SAVEPOINT, T., error 42601, E., ROLLBACK, T., COMMIT, I.",
                "7",
            ),
            (
                &[query("BEGIN"), query(i7), extended("SELEC 1"), sync(), query("COMMIT")],
                "BEGIN, T., INSERT 0 1, T., error 42601, E., ROLLBACK, I.",
                "",
            ),
            // So is an error of the protocol: a missing statement.
            (
                &[query("BEGIN"), query(i7), message(b'B', b"\0nothing\0\0\0\0\0\0\0"), sync(), query("COMMIT")],
                "BEGIN, T., INSERT 0 1, T., error 26000, E., ROLLBACK, I.",
                "",
            ),
            (
                &[query("BEGIN"), query(i7), message(b'E', b"nothing\0\0\0\0\0"), sync(), query("COMMIT")],
                "BEGIN, T., INSERT 0 1, T., error 34000, E., ROLLBACK, I.",
                "",
            ),
            (
                &[query("BEGIN"), query(i7), query("ROLLBACK TO nowhere"), query("COMMIT")],
                "BEGIN, T., INSERT 0 1, T., error 3B001, E., ROLLBACK, I.",
                "",
            ),
            (
                &[query("BEGIN"), query(i7), query("VACUUM"), query("COMMIT")],
                "BEGIN, T., INSERT 0 1, T., error 25001, E., ROLLBACK, I.",
                "",
            ),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_up_to_a_sync_are_one_implicit_block() {
    let insert = |a: i32| extended(&format!("INSERT INTO TABLE1 VALUES ({a})"));
    let (i7, i8, i9) = (|| insert(7), || insert(8), || insert(9));
    check(
        "extended",
        &[
            (&[i7(), i8(), extended("SELECT 1 / 0"), i9(), sync()], "INSERT 0 1, INSERT 0 1, error 22012, I.", ""),
            (
                &[i7(), sync(), i8(), extended("SELECT 1 / 0"), sync()],
                "INSERT 0 1, I., INSERT 0 1, error 22012, I.",
                "7",
            ),
            (
                &[i7(), i9(), extended("COMMIT"), i8(), extended("SELECT 1 / 0"), sync()],
                "INSERT 0 1, INSERT 0 1, warning 25P01, COMMIT, INSERT 0 1, error 22012, I.",
                "7 9",
            ),
            (&[i7(), extended("ROLLBACK"), i8(), sync()], "INSERT 0 1, warning 25P01, ROLLBACK, INSERT 0 1, I.", "8"),
            (
                &[i7(), extended("BEGIN"), i8(), sync(), query("ROLLBACK")],
                "INSERT 0 1, BEGIN, INSERT 0 1, T., ROLLBACK, I.",
                "",
            ),
            (&[i7(), i8(), extended("SAVEPOINT s"), sync()], "INSERT 0 1, INSERT 0 1, error 25P01, I.", ""),
            (&[i7(), i8(), extended("SELEC 1"), sync()], "INSERT 0 1, INSERT 0 1, error 42601, I.", ""),
            (
                &[i7(), i8(), message(b'B', b"\0nothing\0\0\0\0\0\0\0"), sync()],
                "INSERT 0 1, INSERT 0 1, error 26000, I.",
                "",
            ),
            (&[i7(), extended("VACUUM"), sync()], "INSERT 0 1, error 25001, I.", ""),
            // A statement that must not run in a block may be the first, before any others.
            (&[extended("VACUUM"), i7(), sync()], "VACUUM, INSERT 0 1, I.", "7"),
            // A simple query goes on with the block, and ends it.
            (&[i7(), i9(), query("SELECT 1 / 0")], "INSERT 0 1, INSERT 0 1, error 22012, I.", ""),
            (&[i7(), i9(), query("INSERT INTO TABLE1 VALUES (8)")], "INSERT 0 1, INSERT 0 1, INSERT 0 1, I.", "7 8 9"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ends_an_aborted_transaction_may_come_by_the_extended_protocol() {
    let i7 = "INSERT INTO TABLE1 VALUES (7)";
    let failed = || [query("BEGIN"), query(i7), query("SAVEPOINT s"), query("SELECT 1 / 0")].concat();
    let before = "BEGIN, T., INSERT 0 1, T., SAVEPOINT, T., error 22012, E., ";
    let ends = |statement: &str| vec![failed(), extended(statement), sync()];
    let named = |sql: &str| message(b'P', &[b"n\0", sql.as_bytes(), b"\0\0\0"].concat());
    check(
        "aborted",
        &[
            (&ends("ROLLBACK"), &format!("{before}ROLLBACK, I."), ""),
            (&ends("COMMIT"), &format!("{before}ROLLBACK, I."), ""),
            (&ends("END"), &format!("{before}ROLLBACK, I."), ""),
            (&ends("ABORT"), &format!("{before}ROLLBACK, I."), ""),
            (
                &[failed(), extended("ROLLBACK TO s"), sync(), query("COMMIT")],
                &format!("{before}ROLLBACK, T., COMMIT, I."),
                "7",
            ),
            (
                &[failed(), named("ROLLBACK TO SAVEPOINT s"), message(b'D', b"Sn\0"), sync(), query("ROLLBACK")],
                &format!("{before}E., ROLLBACK, I."),
                "",
            ),
            (
                &[failed(), extended("ROLLBACK AND CHAIN"), sync(), query(i7), query("COMMIT")],
                &format!("{before}ROLLBACK, T., INSERT 0 1, T., COMMIT, I."),
                "7",
            ),
            // No other message may: a statement cannot even be parsed.
            (&[failed(), message(b'P', b"\0SELECT 1\0\0\0"), sync()], &format!("{before}error 25P02, E."), ""),
            (&[failed(), message(b'P', b"\0BEGIN\0\0\0"), sync()], &format!("{before}error 25P02, E."), ""),
            (&[failed(), message(b'P', b"\0SAVEPOINT x\0\0\0"), sync()], &format!("{before}error 25P02, E."), ""),
            // A statement prepared before cannot run either: to be bound, or described if it gives
            // rows.
            (
                &[named("SELECT 1"), sync(), failed(), message(b'B', b"\0n\0\0\0\0\0\0\0"), sync()],
                &format!("I., {before}error 25P02, E."),
                "",
            ),
            (
                &[named("SELECT 1"), message(b'D', b"Sn\0"), sync(), failed(), message(b'D', b"Sn\0"), sync()],
                &format!("I., {before}error 25P02, E."),
                "",
            ),
            (
                &[failed(), query("CHECKPOINT"), query("ANALYZE"), query("SET TRANSACTION READ ONLY")],
                &format!("{before}error 25P02, E., error 25P02, E., error 25P02, E."),
                "",
            ),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_shown_nothing_that_is_not_durable() {
    let folder = tempfile::tempdir().unwrap();
    let faults = FaultFileSystem::default();
    let path = Some(folder.path().join("db"));
    let options = StorageOptions { path, file_system: Arc::new(faults.clone()), ..StorageOptions::default() };
    let db = SqlDatabase::new(Database::open_with(options).unwrap(), &SqlOptions::default()).unwrap();
    let served = Served::of(db, PgOptions::default()).await;
    let mut socket = connect(served.address).await;
    let made = "CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER); INSERT INTO t VALUES (1, 10)";
    ask(&mut socket, &query(made), 1).await;
    // The commit of the second row is visible, but the log fails: it may or may not be on the disk.
    faults.faults().fail_sync_in.store(1, Ordering::SeqCst);
    assert_eq!(ask(&mut socket, &query("INSERT INTO t VALUES (2, 20)"), 1).await, "error 58030, I.");
    let statements = [
        "SELECT b FROM t WHERE a = 2",
        "SELECT b FROM t",
        "UPDATE t SET b = 21 WHERE a = 2",
        "DELETE FROM t WHERE b > 15 RETURNING b",
        "INSERT INTO t VALUES (2, 21)",
        "DECLARE c CURSOR FOR SELECT b FROM t",
        "COPY t TO STDOUT",
        "SELECT 1 / (b - 20) FROM t WHERE a = 2",
    ];
    for (i, sql) in statements.into_iter().enumerate() {
        for (begin, status) in [("BEGIN", "E"), ("SELECT 1", "I")] {
            if status == "I" && sql.starts_with("DECLARE") {
                continue;
            }
            // Twice each: the second time, texts are known.
            for sent in [query(sql), query(sql), [extended(sql), sync()].concat(), [extended(sql), sync()].concat()] {
                ask(&mut socket, &query(begin), 1).await;
                assert_eq!(ask(&mut socket, &sent, 1).await, format!("error 58030, {status}."), "{begin}; {sql}");
                ask(&mut socket, &query("ROLLBACK"), 1).await;
            }
        }
        // In an implicit block. Its first key is a new one: the rollback of an older one would not
        // be durable either.
        let several = query(&format!("INSERT INTO t VALUES ({}, 30); {sql}", i + 3));
        assert_eq!(ask(&mut socket, &several, 1).await, "INSERT 0 1, error 58030, I.", "{sql}");
    }
    // A durable row is shown.
    let durable = [query("BEGIN"), extended("SELECT b FROM t WHERE a = 1"), sync()].concat();
    assert_eq!(ask(&mut socket, &durable, 2).await, "BEGIN, T., 10, SELECT 1, T.");
    drop(socket);
    served.end().await;
}

/// A mark in the data that it ends is not the client's word that it is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_committed_when_the_client_says_that_it_is_done() {
    let copy = || query("COPY TABLE1 FROM STDIN");
    let data = |text: &[u8]| message(b'd', text);
    let marked = || data(b"1\n\\.\n");
    let binary = [&b"PGCOPY\n\xff\r\n\0"[..], &[0; 8], &[0, 1, 0, 0, 0, 4, 0, 0, 0, 1], &[0xff, 0xff]].concat();
    let (done, refused) = (|| message(b'c', b""), || message(b'f', b"no\0"));
    check(
        "copy",
        &[
            (&[copy(), marked(), refused()], "<G>, error 57014, I.", ""),
            (&[copy(), data(b"1\n"), refused()], "<G>, error 57014, I.", ""),
            (&[copy(), marked(), done()], "<G>, COPY 1, I.", "1"),
            (&[copy(), marked(), data(b"2\n"), done()], "<G>, COPY 1, I.", "1"),
            (&[query("COPY TABLE1 FROM STDIN (FORMAT binary)"), data(&binary), refused()], "<G>, error 57014, I.", ""),
            (&[query("COPY TABLE1 FROM STDIN (FORMAT binary)"), data(&binary), done()], "<G>, COPY 1, I.", "1"),
            (
                &[query("BEGIN"), copy(), marked(), refused(), query("COMMIT")],
                "BEGIN, T., <G>, error 57014, E., ROLLBACK, I.",
                "",
            ),
            (
                &[query("BEGIN; SELECT 1 / 0"), query("COPY TABLE1 (a) FROM STDIN"), query("ROLLBACK")],
                "BEGIN, error 22012, E., error 25P02, E., ROLLBACK, I.",
                "",
            ),
            (&[extended("COPY TABLE1 FROM STDIN"), marked(), refused(), sync()], "<G>, error 57014, I.", ""),
            // What the table does not take is told before data is asked for.
            (&[query("COPY TABLE1 (nothing) FROM STDIN")], "error 42703, I.", ""),
            (&[query("COPY TABLE1 (a, a) FROM STDIN")], "error 42701, I.", ""),
            (&[query("COPY TABLE1 FROM STDIN WHERE nothing > 1")], "error 42703, I.", ""),
            (&[query("COPY TABLE1 (a) FROM STDIN (FORCE_NULL (nothing), FORMAT csv)")], "error 42703, I.", ""),
            (&[query("COPY nothing FROM STDIN")], "error 42P01, I.", ""),
            (&[query("COPY nothing (a) FROM STDIN")], "error 42P01, I.", ""),
            (&[extended("COPY TABLE1 (nothing) FROM STDIN"), sync()], "error 42703, I.", ""),
            (
                &[query("BEGIN READ ONLY"), query("COPY TABLE1 FROM STDIN"), query("ROLLBACK")],
                "BEGIN, T., error 25006, E., ROLLBACK, I.",
                "",
            ),
        ],
    )
    .await;
}

/// A client that goes before the end of its data has copied no row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_client_that_goes_leaves_nothing() {
    let served = Served::new(PgOptions::default()).await;
    let mut other = connect(served.address).await;
    ask(&mut other, &query("CREATE TABLE t (a INTEGER PRIMARY KEY)"), 1).await;
    for data in [&b"1\n\\.\n"[..], b"1\n"] {
        let mut socket = connect(served.address).await;
        socket.write_all(&[query("COPY t FROM STDIN"), message(b'd', data)].concat()).await.unwrap();
        super::read_until(&mut socket, "G").await;
        drop(socket);
        // It holds the row until it is gone.
        let waits = "BEGIN; INSERT INTO t VALUES (1); ROLLBACK; SELECT count(*) FROM t";
        let said = ask(&mut other, &query(waits), 1).await;
        assert_eq!(said, "BEGIN, INSERT 0 1, ROLLBACK, 0, SELECT 1, I.");
    }
    drop(other);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_shown_is_not_committed() {
    let served = Served::new(PgOptions::default()).await;
    let mut socket = connect(served.address).await;
    ask(&mut socket, &query("CREATE TABLE t (a INTEGER PRIMARY KEY)"), 1).await;
    // No time of the protocol.
    let late = "to_timestamp(9.2e15 - a)";
    for sql in [
        format!("INSERT INTO t VALUES (1) RETURNING {late}"),
        format!("WITH i AS (INSERT INTO t VALUES (1) RETURNING a) SELECT {late} FROM i"),
    ] {
        let limited = [parse_and_bind(&sql), message(b'D', b"P\0"), message(b'E', b"\0\0\0\0\x01"), sync()].concat();
        for sent in [query(&sql), [extended(&sql), sync()].concat(), limited] {
            let said = ask(&mut socket, &sent, 1).await;
            assert!(said.starts_with("error 22"), "{said}: {sql}");
            assert_eq!(ask(&mut socket, &query("SELECT count(*) FROM t"), 1).await, "0, SELECT 1, I.", "{sql}");
        }
    }
    drop(socket);
    served.end().await;
}

/// JDBC asks for one row of a statement without rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_with_a_limit_of_rows_waits() {
    let served = Served::new(PgOptions::default()).await;
    let (mut holder, mut other) = (connect(served.address).await, connect(served.address).await);
    let made = "CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER); INSERT INTO t VALUES (1, 10)";
    ask(&mut holder, &query(made), 1).await;
    ask(&mut holder, &query("BEGIN; UPDATE t SET b = 11 WHERE a = 1"), 1).await;
    let update = "UPDATE t SET b = t.b + s.n FROM (VALUES (100)) AS s (n) WHERE a = 1";
    let limited = [parse_and_bind(update), message(b'E', b"\0\0\0\0\x01"), sync()].concat();
    other.write_all(&limited).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    ask(&mut holder, &query("COMMIT"), 1).await;
    assert_eq!(answer(&mut other, 1).await, "UPDATE 1, I.");
    assert_eq!(ask(&mut holder, &query("SELECT b FROM t"), 1).await, "111, SELECT 1, I.");
    drop((holder, other));
    served.end().await;
}

/// Statements on keys run where connections wait. A statement that DDL blocks must not keep the
/// loop from the connection that ends the DDL.
#[tokio::test(flavor = "multi_thread", worker_threads = 12)]
async fn a_table_that_ddl_holds_is_waited_for_elsewhere() {
    let served = Served::new(PgOptions::default()).await;
    let mut holder = connect(served.address).await;
    let made = "CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER); INSERT INTO t SELECT value, 0 FROM generate_series(0, 9) AS s (value)";
    ask(&mut holder, &query(made), 1).await;
    // Enough that each loop has a few.
    let mut writers = Vec::new();
    for a in 0..8 {
        let mut writer = connect(served.address).await;
        let update = query(&format!("UPDATE t SET b = b + 1 WHERE a = {a}"));
        for _ in 0..2 {
            assert_eq!(ask(&mut writer, &update, 1).await, "UPDATE 1, I.");
        }
        writers.push((writer, update));
    }
    ask(&mut holder, &query("BEGIN; ALTER TABLE t ADD COLUMN c INTEGER"), 1).await;
    for (writer, update) in &mut writers {
        writer.write_all(update).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(ask(&mut holder, &query("COMMIT"), 1).await, "COMMIT, I.");
    for (writer, _) in &mut writers {
        assert_eq!(answer(writer, 1).await, "UPDATE 1, I.");
    }
    assert_eq!(ask(&mut holder, &query("SELECT sum(b) FROM t"), 1).await, "24, SELECT 1, I.");
    drop((holder, writers));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_error_everything_is_skipped_up_to_the_sync() {
    let (served, addresses) = servers().await;
    for address in addresses {
        let mut socket = connect_to(address, &served).await;
        ask(&mut socket, &query("CREATE TABLE skipped (a INTEGER)"), 1).await;
        let sent = [parse_and_bind("SELEC 1"), query("INSERT INTO skipped VALUES (1)"), sync()].concat();
        assert_eq!(ask(&mut socket, &sent, 1).await, "error 42601, I.", "{address}");
        assert_eq!(ask(&mut socket, &query("SELECT count(*) FROM skipped"), 1).await, "0, SELECT 1, I.", "{address}");
        ask(&mut socket, &query("DROP TABLE skipped"), 1).await;
        drop(socket);
    }
    served.end().await;
}

/// Bind of a statement without parameters to a portal.
fn bind(portal: &str, statement: &str) -> Vec<u8> {
    message(b'B', &[portal.as_bytes(), b"\0", statement.as_bytes(), b"\0\0\0\0\0\0\0"].concat())
}

/// Parse of a text without parameters, under a name.
fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat())
}

/// Execute of a portal, up to so many rows.
fn execute(portal: &str, rows: i32) -> Vec<u8> {
    message(b'E', &[portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn portals_and_statements_of_the_protocol_are_those_of_sql() {
    let numbers = || parse("", "SELECT a FROM generate_series(1, 4) AS s (a)");
    check(
        "names",
        &[
            // A portal is a cursor, whether it has given rows before or not.
            (
                &[
                    query("BEGIN"),
                    [numbers(), bind("p", ""), execute("p", 1), sync()].concat(),
                    query("MOVE 1 IN p"),
                    [execute("p", 1), sync()].concat(),
                    query("FETCH ALL FROM p; CLOSE p; COMMIT"),
                ],
                "BEGIN, T., 1, <s>, T., MOVE 1, T., 3, <s>, T., 4, FETCH 1, CLOSE CURSOR, COMMIT, I.",
                "",
            ),
            (
                &[
                    query("BEGIN"),
                    [numbers(), bind("p", ""), sync()].concat(),
                    query("MOVE 3 IN p; FETCH 2 FROM p; FETCH 1 FROM p; COMMIT"),
                ],
                "BEGIN, T., T., MOVE 3, 4, FETCH 1, FETCH 0, COMMIT, I.",
                "",
            ),
            (
                &[
                    query("BEGIN"),
                    [numbers(), bind("p", ""), execute("p", 2), sync()].concat(),
                    query("FETCH BACKWARD 1 FROM p"),
                    query("ROLLBACK"),
                ],
                "BEGIN, T., 1, 2, <s>, T., error 55000, E., ROLLBACK, I.",
                "",
            ),
            (
                &[
                    query("BEGIN"),
                    [numbers(), bind("p", ""), sync()].concat(),
                    query("CLOSE p"),
                    [execute("p", 0), sync()].concat(),
                    query("ROLLBACK"),
                ],
                "BEGIN, T., T., CLOSE CURSOR, T., error 34000, E., ROLLBACK, I.",
                "",
            ),
            (
                &[
                    query("BEGIN"),
                    [numbers(), bind("p", ""), sync()].concat(),
                    query("DECLARE p CURSOR FOR SELECT 1"),
                    query("ROLLBACK"),
                ],
                "BEGIN, T., T., error 42P03, E., ROLLBACK, I.",
                "",
            ),
            // A FETCH is prepared before its cursor exists, and gives the cursor's rows.
            (
                &[
                    query("BEGIN"),
                    [parse("f", "FETCH ALL FROM c"), message(b'D', b"Sf\0"), sync()].concat(),
                    query("DECLARE c CURSOR FOR SELECT 5"),
                    [bind("", "f"), message(b'D', b"P\0"), execute("", 0), sync()].concat(),
                    query("COMMIT"),
                ],
                "BEGIN, T., T., DECLARE CURSOR, T., 5, FETCH 1, T., COMMIT, I.",
                "",
            ),
            // A statement with a name is one of SQL.
            (
                &[
                    [parse("s", "SELECT 7"), sync()].concat(),
                    query("EXECUTE s"),
                    query("SELECT from_sql::TEXT FROM pg_prepared_statements WHERE name = 's'"),
                    query("PREPARE s AS SELECT 8"),
                    query("DEALLOCATE s"),
                    query("EXECUTE s"),
                    query("PREPARE s AS SELECT 8"),
                    [parse("s", "SELECT 9"), sync()].concat(),
                ],
                "I., 7, SELECT 1, I., false, SELECT 1, I., error 42P05, I., DEALLOCATE, I., error 26000, I., \
                 PREPARE, I., error 42P05, I.",
                "",
            ),
            // It is bound at once, and gives the bound rows.
            (
                &[
                    [parse("s", "SELECT a FROM nowhere"), sync()].concat(),
                    [parse("s", "SELECT a FROM TABLE1"), sync()].concat(),
                    query("ALTER TABLE TABLE1 ALTER COLUMN a TYPE TEXT"),
                    [bind("", "s"), execute("", 0), sync()].concat(),
                ],
                "error 42P01, I., I., ALTER TABLE, I., error 0A000, I.",
                "",
            ),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_ends_is_told_so() {
    let served = Served::new(PgOptions::default()).await;
    let is_ended = |said: &[u8]| said.windows(5).any(|word| word == b"57P01");
    let own = query("SELECT pg_terminate_backend(pg_backend_pid())");
    let said = super::exchange(served.address, &[super::startup(), own].concat()).await;
    assert!(is_ended(&said));
    let mut other = connect(served.address).await;
    ask(&mut other, &query("CREATE TABLE ended (a INTEGER)"), 1).await;
    for runs in ["SELECT pg_sleep(60)", "COPY ended FROM STDIN"] {
        let mut socket = connect(served.address).await;
        let process = ask(&mut socket, &query("SELECT pg_backend_pid()"), 1).await;
        let process: i32 = process.split(',').next().unwrap().parse().unwrap();
        socket.write_all(&query(runs)).await.unwrap();
        let active = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {process} AND query = '{runs}'");
        while !ask(&mut other, &query(&active), 1).await.starts_with('1') {}
        ask(&mut other, &query(&format!("SELECT pg_terminate_backend({process})")), 1).await;
        let mut said = Vec::new();
        socket.read_to_end(&mut said).await.unwrap();
        assert!(is_ended(&said), "{runs}");
    }
    served.end().await;
}

/// What is committed when the connection is ended is told whole, and then the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_connection_is_no_error_of_what_it_has_committed() {
    let folder = tempfile::tempdir().unwrap();
    let files = FaultFileSystem::default();
    let path = Some(folder.path().join("db"));
    let options = StorageOptions { path, file_system: Arc::new(files.clone()), ..StorageOptions::default() };
    let database = Database::open_with(options).unwrap();
    let db = SqlDatabase::new(database.clone(), &SqlOptions::default()).unwrap();
    let served = Served::of(db, PgOptions::default()).await;
    let mut other = connect(served.address).await;
    ask(&mut other, &query("CREATE TABLE t (a INTEGER)"), 1).await;
    let commits = || database.storage().metrics().commits;
    let simple = query("SELECT 7; INSERT INTO t VALUES (1)");
    let alone = [extended("INSERT INTO t VALUES (2)"), sync()].concat();
    for (asked, answered) in [(simple, "7, SELECT 1, INSERT 0 1, I."), (alone, "INSERT 0 1, I.")] {
        let mut socket = connect(served.address).await;
        let process = ask(&mut socket, &query("SELECT pg_backend_pid()"), 1).await;
        let process: i32 = process.split(',').next().unwrap().parse().unwrap();
        let before = commits();
        files.faults().hold_syncs.store(true, Ordering::SeqCst);
        socket.write_all(&asked).await.unwrap();
        while commits() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        served.db.connections().get(process).unwrap().terminate();
        files.faults().hold_syncs.store(false, Ordering::SeqCst);
        assert_eq!(answer(&mut socket, 1).await, answered);
        let mut said = Vec::new();
        socket.read_to_end(&mut said).await.unwrap();
        assert!(said.windows(5).any(|word| word == b"57P01"));
    }
    // What its Sync would commit is not committed.
    let own = extended("SELECT pg_terminate_backend(pg_backend_pid())");
    let open = [super::startup(), extended("INSERT INTO t VALUES (3)"), own, sync()].concat();
    let said = super::exchange(served.address, &open).await;
    assert!(said.windows(5).any(|word| word == b"57P01"));
    assert_eq!(ask(&mut other, &query("SELECT a FROM t ORDER BY a"), 1).await, "1, 2, SELECT 2, I.");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_between_parse_and_describe_counts() {
    let served = Served::new(PgOptions::default()).await;
    let mut socket = connect(served.address).await;
    ask(&mut socket, &query("SET statement_timeout = '100ms'"), 1).await;
    socket.write_all(&parse("late", "SELECT 1")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let said = ask(&mut socket, &[message(b'D', b"Slate\0"), sync()].concat(), 1).await;
    assert_eq!(said, "error 57014, I.");
    // The statement is there, and has its time again.
    assert_eq!(ask(&mut socket, &query("EXECUTE late"), 1).await, "1, SELECT 1, I.");
    served.end().await;
}
