//! SQLAlchemy, asyncpg, connectorx, dbt, JDBC and psql against the server.

use super::{Served, run};
use serac_server::PgOptions;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file that scripts/readers fetches.
fn fetched(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers")).join(name)
}

/// A file beside this one.
fn beside(name: &str) -> String {
    format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pg_clients/{}"), name)
}

/// Runs a client, which says "done" at its end. The port of a server is its last argument.
async fn client(program: &str, arguments: &[String]) {
    let served = Served::new(PgOptions::default()).await;
    let port = served.address.port().to_string();
    let arguments: Vec<String> = arguments.iter().cloned().chain([port]).collect();
    let (out, err, success) = run(program, &arguments, &[]).await;
    assert!(success && out.ends_with("done\n"), "{out}{err}");
    served.end().await;
}

async fn python(script: &str) {
    let python = fetched("bin/python");
    assert!(python.exists(), "Python with the clients is missing: run scripts/readers");
    client(&python.display().to_string(), &[beside(script)]).await;
}

/// Whether a program can be run; says so if it cannot.
fn is_installed(program: &str, argument: &str) -> bool {
    let found = Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: there is no {program}");
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlalchemy_reflects_and_maps() {
    python("sqlalchemy_client.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asyncpg_finds_types_and_speaks_binary() {
    python("asyncpg_client.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_divide_tables_by_places() {
    python("partitioned_client.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dbt_builds_a_project_twice() {
    let python = fetched("dbt/bin/python");
    if !python.exists() {
        println!("skipped: there is no dbt in target/peers (scripts/readers installs it)");
        return;
    }
    client(&python.display().to_string(), &[beside("dbt_client.py")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jdbc_reads_metadata_and_prepares() {
    let driver = fetched("postgresql.jar");
    if !is_installed("java", "--version") {
        return;
    }
    if !driver.exists() {
        println!("skipped: there is no JDBC driver in target/peers (scripts/readers fetches it where Maven is)");
        return;
    }
    client("java", &["-cp".into(), driver.display().to_string(), beside("Jdbc.java")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_describes_what_there_is() {
    if !is_installed("psql", "--version") {
        return;
    }
    let served = Served::new(PgOptions::default()).await;
    let port = served.address.port().to_string();
    let mut command = Command::new("psql");
    command.args([
        "-X",
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-h",
        "127.0.0.1",
        "-U",
        "ada",
        "-p",
        &port,
        "-f",
        &beside("describe.psql"),
        "db",
    ]);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    // The port differs from run to run, blanks at ends of lines and the width of titles between
    // versions of psql.
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>().join("\n");
    let expected = lines(&std::fs::read_to_string(beside("describe.expected")).unwrap());
    assert_eq!(lines(&out.replace(&port, "PORT")), expected, "{out}{err}");
    served.end().await;
}
