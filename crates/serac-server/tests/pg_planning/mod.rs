//! Statements that take long to plan, or are nested: others go on meanwhile, and each can be ended
//! from outside.

use super::{Served, connect, message, query, read_until};
use serac_server::PgOptions;
use serac_sql::SqlOptions;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Far above the time to end a statement, far below the time to plan it.
const SOON: Duration = Duration::from_secs(15);

/// Planning it takes a minute, as it has hundreds of thousands of calls.
fn slow() -> String {
    let call = format!("{}1{}", "abs(".repeat(25), ")".repeat(25));
    let branch = format!("SELECT {}", vec![call; 20].join(", "));
    vec![branch; 600].join(" UNION ALL ")
}

async fn serve() -> Served {
    let options = PgOptions { shutdown_timeout: Duration::from_millis(100), ..PgOptions::default() };
    Served::with(options, &SqlOptions { threads: Some(2), ..SqlOptions::default() }).await
}

/// The server's messages up to its next `ReadyForQuery`, or the end of the connection.
async fn ask(socket: &mut TcpStream, bytes: &[u8]) -> String {
    socket.write_all(bytes).await.unwrap();
    read_until(socket, "Z\0\0\0\x05").await
}

async fn process_of(served: &Served, text: &str) -> i32 {
    for _ in 0..1_000 {
        if let Some(row) = served.db.connections().rows().iter().find(|row| row.text.starts_with(text)) {
            return row.process;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{text} does not run: {:?}", served.db.connections().rows());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_is_being_planned_can_be_ended_and_holds_nobody_up() {
    let served = serve().await;
    let mut other = connect(served.address).await;
    for (end, sqlstate) in [("pg_cancel_backend", "57014"), ("pg_terminate_backend", "57P01")] {
        let mut planning = connect(served.address).await;
        let mark = format!("/* {end} */");
        planning.write_all(&query(&format!("{mark} {}", slow()))).await.unwrap();
        let process = process_of(&served, &mark).await;
        // New and present clients are answered.
        let started = Instant::now();
        assert!(ask(&mut connect(served.address).await, &query("SELECT 'here'")).await.contains("here"));
        let told = ask(&mut other, &query(&format!("SELECT {end}({process})"))).await;
        assert!(told.contains("\0\x01t"), "{told:?}");
        let answer = read_until(&mut planning, sqlstate).await;
        assert!(answer.contains(sqlstate) && started.elapsed() < SOON, "{:?}: {answer}", started.elapsed());
    }
    // A timeout, while a query is planned, described, or planned as a part of another statement.
    let mut timed = connect(served.address).await;
    ask(&mut timed, &query("SET statement_timeout = 300")).await;
    let parse = message(b'P', &[b"\0", slow().as_bytes(), b"\0\0\0"].concat());
    let describe = [parse, message(b'D', b"S\0"), message(b'S', b"")].concat();
    let of_change = query(&format!("CREATE TABLE made AS {}", slow()));
    for bytes in [query(&slow()), describe, of_change] {
        let started = Instant::now();
        let answer = ask(&mut timed, &bytes).await;
        assert!(answer.contains("57014") && started.elapsed() < SOON, "{:?}: {answer}", started.elapsed());
    }
    assert!(ask(&mut timed, &query("SELECT 'here'")).await.contains("here"));
    // The end of the server.
    timed.write_all(&query(&format!("SET statement_timeout = 0; {}", slow()))).await.unwrap();
    process_of(&served, "SET statement_timeout = 0").await;
    let started = Instant::now();
    served.end().await;
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_nested_too_deeply_is_refused_over_the_wire() {
    let served = serve().await;
    let mut socket = connect(served.address).await;
    let nested = |open: &str, close: &str| format!("SELECT {}1{}", open.repeat(10_000), close.repeat(10_000));
    for sql in [nested("abs(", ")"), nested("(SELECT ", ")"), nested("", "::int"), nested("", " IS NULL")] {
        let parse = message(b'P', &[b"\0", sql.as_bytes(), b"\0\0\0"].concat());
        // The binder looks at a chain of casts when it is described.
        for bytes in [query(&sql), [parse, message(b'D', b"S\0"), message(b'S', b"")].concat()] {
            let answer = ask(&mut socket, &bytes).await;
            assert!(answer.contains("54001"), "{answer}");
        }
    }
    for sql in [
        nested("", "+1"),
        nested("- ", ""),
        nested("", "||'x'"),
        format!("SELECT 1 WHERE {}true", "1=1 AND ".repeat(10_000)),
    ] {
        let answer = ask(&mut socket, &query(&sql)).await;
        assert!(answer.contains("SELECT 1"), "{answer}");
    }
    served.end().await;
}
