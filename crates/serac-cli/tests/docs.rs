//! The examples of README, the documents and the book run as they are written.
//!
//! Each fenced block is listed below, with the way it runs, or the reason why it does not. SQL in
//! the book, with its output, is `book.rs`'s. Addresses are replaced by those of servers that the
//! test starts, and the folder of the database by one of its own. Rust is compiled by the
//! documentation tests of `seracdb`. Python needs the packages that scripts/readers installs; psql
//! needs to be there.

mod common;

use common::{serac, text};
use serac_testing::Process;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The way a block runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Input at the shell's prompts gives the shown output.
    Console,
    /// `serac serve` with these addresses starts, and psql connects if the block says so.
    Serve,
    /// As a script.
    Script,
    /// As the file that --config names.
    Config,
    /// It is the result of the last statement of the text before it.
    ErrorOf(&'static str),
    /// After the blocks before it in the file, against a server, and after statements that make its
    /// subject.
    Python(&'static str),
    /// In a folder with a checkpoint.
    PythonInFolder,
    /// By `cargo test --workspace --doc`.
    Doctest,
    /// By the tests of the Python package.
    Pytest,
    Not(&'static str),
}

const LINEITEM: &str = "CREATE TABLE lineitem (l_orderkey BIGINT, l_extendedprice NUMERIC(15,2), l_shipdate DATE); \
    INSERT INTO lineitem VALUES (1, 10.5, '1993-01-01'), (2, 20.5, '1995-01-01')";

/// The guides whose blocks run in tests of their own: those of the Python package and of the ADBC
/// driver.
const PYTHON_GUIDES: [&str; 2] = ["docs/book/src/guides/python.md", "docs/book/src/guides/adbc.md"];

/// All blocks: file, first line, way.
const BLOCKS: &[(&str, &str, Way)] = &[
    ("ARCHITECTURE.md", "   psql, JDBC", Way::Not("it is a picture")),
    (
        "README.md",
        "scripts/demo ",
        Way::Not("the demonstration has a test of its own, and scripts/test runs this test"),
    ),
    ("README.md", "scripts/python wheel", Way::Not("it builds the Python package")),
    ("README.md", "import polars, seracdb", Way::Pytest),
    ("README.md", "$ target/release/serac my.db", Way::Console),
    ("README.md", "target/release/serac load my.db --create --table trip trips.csv.gz", Way::Script),
    ("README.md", "target/release/serac serve my.db --pg 127.0.0.1:5432", Way::Serve),
    ("README.md", "target/release/serac serve my.db --flight 127.0.0.1:8815", Way::Serve),
    ("README.md", "import pyarrow as pa, pyarrow.flight as flight", Way::Python("")),
    ("README.md", "import adbc_driver_flightsql.dbapi as adbc, polars as pl", Way::Python("")),
    ("README.md", "use seracdb::{Session, StatementResult};", Way::Doctest),
    ("README.md", "use seracdb::{Rows, Session, SqlError, Value};", Way::Doctest),
    ("docs/benchmarks.md", "target/release/serac-bench point", Way::Not("it measures for minutes")),
    ("docs/benchmarks-data.md", "target/release/serac-bench commits", Way::Not("it measures beside a peer")),
    ("docs/book/src/coming/duckdb.md", "duckdb old.duckdb", Way::Not("it needs the tools of another database")),
    (
        "docs/book/src/coming/postgresql.md",
        "serac serve my.db --pg 127.0.0.1:5433",
        Way::Not("it needs the tools of another database"),
    ),
    (
        "docs/book/src/coming/postgresql.md",
        "pg_dump --no-owner --inserts",
        Way::Not("it needs the tools of another database"),
    ),
    ("docs/book/src/coming/postgresql.md", "psql olddb -c", Way::Not("it needs the tools of another database")),
    ("docs/book/src/coming/sqlite.md", "sqlite3 old.db .dump", Way::Not("it needs the tools of another database")),
    (
        "docs/book/src/coming/sqlite.md",
        "sqlite3 -header -csv old.db",
        Way::Not("it needs the tools of another database"),
    ),
    ("docs/book/src/guides/c.md", "scripts/c install /usr/local", Way::Not("it makes an optimized build")),
    (
        "docs/book/src/guides/c.md",
        "#include \"seracdb.h\"",
        Way::Not("it is a part of a program; scripts/c runs whole ones"),
    ),
    ("docs/book/src/guides/cluster.md", "serac serve my.db --flight 127.0.0.1:8815", Way::Serve),
    (
        "docs/book/src/guides/cluster.md",
        "use datafusion::functions_aggregate::expr_fn::sum;",
        Way::Not("it is an example of serac-remote, whose documentation tests compile it"),
    ),
    (
        "docs/book/src/guides/cluster.md",
        "use datafusion::execution::SessionStateBuilder;",
        Way::Not("it is an example of serac-remote, whose documentation tests compile it"),
    ),
    (
        "docs/book/src/guides/cluster.md",
        "use serac_remote::{Remote, RemoteCodec, RemoteOptions};",
        Way::Not("it is an example of serac-remote, whose documentation tests compile it"),
    ),
    (
        "docs/book/src/guides/cluster.md",
        "use datafusion::common::Result;",
        Way::Not("it is an example of serac-remote, whose documentation tests compile it"),
    ),
    (
        "docs/book/src/guides/cluster.md",
        "scripts/cluster",
        Way::Not("it builds engines that no other part of the project needs"),
    ),
    (
        "docs/book/src/guides/cluster.md",
        "use datafusion::logical_expr::{col, lit};",
        Way::Not("it is an example of serac-remote, whose documentation tests compile it"),
    ),
    ("docs/book/src/guides/cluster.md", "serac-bench scale-out measure", Way::Not("it measures for minutes")),
    ("docs/book/src/guides/durability.md", "import pyarrow as pa", Way::PythonInFolder),
    ("docs/book/src/guides/embed.md", "use seracdb::{Session, StatementResult};", Way::Doctest),
    ("docs/book/src/guides/embed.md", "use seracdb::{Rows, Session, SqlError, Value};", Way::Doctest),
    (
        "docs/book/src/guides/embed.md",
        "use serac_server::folder::{",
        Way::Not("it is an example of serac-server, whose documentation tests compile it"),
    ),
    (
        "docs/book/src/guides/embed.md",
        "use serac_client::client::{",
        Way::Not("it is an example of serac-client, whose documentation tests compile it"),
    ),
    ("docs/book/src/guides/export.md", "use arrow::array::Decimal128Array;", Way::Doctest),
    (
        "docs/book/src/guides/files.md",
        "SELECT * FROM 'trips.parquet';",
        Way::Not("the session tests `files` have such statements, with their files"),
    ),
    (
        "docs/book/src/guides/files.md",
        "SELECT * FROM read_csv(",
        Way::Not("the session tests `files` have such statements, with their files"),
    ),
    ("docs/book/src/guides/engines.md", "serac serve my.db --flight 127.0.0.1:8815", Way::Serve),
    ("docs/book/src/guides/engines.md", "from datetime import date", Way::Pytest),
    ("docs/book/src/guides/engines.md", "import seracdb.spark", Way::Pytest),
    ("docs/book/src/guides/engines.md", "import seracdb.ray", Way::Pytest),
    ("docs/book/src/guides/engines.md", "import seracdb.dask", Way::Pytest),
    ("docs/book/src/guides/engines.md", "import daft, seracdb.daft", Way::Pytest),
    ("docs/book/src/guides/engines.md", "jdbc = spark.read.format", Way::Pytest),
    ("docs/book/src/guides/engines.md", "url = \"jdbc:postgresql:", Way::Pytest),
    ("docs/book/src/guides/flight-sql.md", "serac serve my.db --flight 127.0.0.1:8815", Way::Serve),
    ("docs/book/src/guides/flight-sql.md", "import adbc_driver_flightsql.dbapi as adbc", Way::Python("")),
    ("docs/book/src/guides/flight-sql.md", "adbc.connect(", Way::Python("")),
    ("docs/book/src/guides/flight.md", "serac serve my.db --flight 127.0.0.1:8815", Way::Serve),
    ("docs/book/src/guides/flight.md", "import json", Way::Python(LINEITEM)),
    ("docs/book/src/guides/flight.md", "import polars as pl", Way::Python("")),
    ("docs/book/src/guides/flight.md", "def parts(**command):", Way::Python("")),
    ("docs/book/src/guides/foreign-tables.md", "serac serve east.db --flight 127.0.0.1:8815", Way::Serve),
    (
        "docs/book/src/guides/foreign-tables.md",
        "CREATE SERVER east FOREIGN DATA WRAPPER seracdb",
        Way::Not("the tests of remote tables have such statements, with their servers"),
    ),
    (
        "docs/book/src/guides/foreign-tables.md",
        "EXPLAIN SELECT region, count(*), sum(price)",
        Way::Not("the tests of remote tables have such statements, with their servers"),
    ),
    ("docs/book/src/guides/load.md", "serac load my.db --create --table person people.csv", Way::Script),
    ("docs/book/src/guides/operators.md", "cat > rain.csv", Way::Script),
    (
        "docs/book/src/guides/programs.md",
        "serac run db --snapshot 'orders, lineitem",
        Way::Not("its programs are not there; tests/run.rs runs the command with others"),
    ),
    ("docs/book/src/guides/programs.md", "import os, sys, pyarrow as pa", Way::Not("it is a program for `serac run`")),
    (
        "docs/book/src/guides/programs.md",
        "{\n  \"inputs\": [{\"table\": \"lineitem\"",
        Way::Not("its programs are not there"),
    ),
    (
        "docs/book/src/guides/programs.md",
        "{\"inputs\": [{\"table\": \"t\"}], \"stages\": [{\"wasm\"",
        Way::Not("the module is cut short"),
    ),
    (
        "docs/book/src/guides/programs.md",
        "serac run db --snapshot lineitem --describe",
        Way::Not("tests/run.rs moves a job between two network namespaces"),
    ),
    (
        "docs/book/src/guides/rdma.md",
        "use serac_export::rdma::{RdmaClient, Verbs};",
        Way::Not("it needs an RDMA device"),
    ),
    ("docs/book/src/guides/roles.md", "serac my.db -c \"ALTER ROLE serac", Way::Serve),
    ("docs/book/src/guides/serve.md", "serac serve my.db --pg 127.0.0.1:5432", Way::Serve),
    ("docs/book/src/guides/serve.md", "pg = \"127.0.0.1:5432\"", Way::Config),
    ("docs/book/src/guides/serve.md", "shop:", Way::Not("a test of serac-server has a project of dbt with a profile")),
    (
        "docs/book/src/guides/shared-memory.md",
        "use serac_client::client::{Client, Options};",
        Way::Not("serac-client's own documentation has it, compiled"),
    ),
    (
        "docs/book/src/guides/shared-memory.md",
        "{\"tables\": [{\"schema\"",
        Way::Not("it is what goes through the folder's socket"),
    ),
    ("docs/book/src/reference/shell.md", "ERROR 42601: syntax error", Way::ErrorOf("SELEC 1")),
    (
        "docs/book/src/start/five-minutes.md",
        "cargo build --release",
        Way::Not("it builds the shell, and opens it at a terminal"),
    ),
    ("docs/book/src/start/five-minutes.md", "serac serve my.db --pg 127.0.0.1:5432", Way::Serve),
    ("docs/operators.md", "cat > rain.csv", Way::Script),
];

#[derive(Debug)]
struct Block {
    file: String,
    line: usize,
    language: String,
    text: String,
}

impl Block {
    /// Whether `book.rs` or `scripts/python` runs it, or no test, because it is a drawing.
    fn is_elsewhere(&self) -> bool {
        PYTHON_GUIDES.contains(&self.file.as_str())
            || self.file.starts_with("docs/book/") && matches!(self.language.as_str(), "sql" | "text" | "plain")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn blocks() -> Vec<Block> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    files.extend(["README.md", "ARCHITECTURE.md"].map(|name| root().join(name)));
    let mut folders = vec![root().join("docs/book/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let pages = if path.is_dir() { &mut folders } else { &mut files };
            pages.push(path);
        }
    }
    files.sort();
    let mut blocks = Vec::new();
    for path in files {
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let mut open: Option<Block> = None;
        for (i, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(language)) => {
                    let language = language.to_owned();
                    open = Some(Block { file: file.clone(), line: i + 1, language, text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take().filter(|block| !block.is_elsewhere())),
                (Some(block), None) => block.text += &format!("{line}\n"),
                (None, None) => {}
            }
        }
    }
    blocks
}

/// The blocks that run in a wanted way, with it.
fn running(wanted: impl Fn(Way) -> bool) -> Vec<(Block, Way)> {
    let way = |block: &Block| {
        let found = BLOCKS.iter().find(|(file, first, _)| *file == block.file && block.text.starts_with(first));
        found.map(|(_, _, way)| *way)
    };
    blocks().into_iter().filter_map(|block| way(&block).filter(|way| wanted(*way)).map(|way| (block, way))).collect()
}

#[test]
fn every_block_is_listed() {
    let found: BTreeSet<(String, String)> = blocks()
        .into_iter()
        .map(|block| {
            let listed = BLOCKS.iter().find(|(file, first, _)| *file == block.file && block.text.starts_with(first));
            let first = listed.unwrap_or_else(|| panic!("{}, line {}: not listed", block.file, block.line)).1;
            (block.file, first.to_owned())
        })
        .collect();
    let listed = BLOCKS.iter().map(|(file, first, _)| ((*file).to_owned(), (*first).to_owned())).collect();
    assert_eq!(found, listed);
    for (file, first, way) in BLOCKS {
        if let Way::Not(reason) = way {
            println!("{file}: \"{first}\" does not run: {reason}");
        }
    }
}

/// A folder in which `serac` and `target/release/serac` are the built binary.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("target/release")).unwrap();
    for name in ["serac", "target/release/serac"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_serac"), folder.path().join(name)).unwrap();
    }
    folder
}

/// A command line in the folder, with the binary in its PATH.
fn shell(folder: &Path, line: &str) -> Command {
    let mut command = Command::new("sh");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    command.args(["-c", line]).current_dir(folder).env("PATH", path).stdin(Stdio::null());
    command
}

/// The output of README's session, which also makes its table.
fn console(folder: &Path, block: &Block) -> String {
    let typed = block.text.lines().filter_map(|line| {
        let (prompt, typed) = line.split_once("> ")?;
        matches!(prompt, "serac" | "serac*" | "serac!" | "serac-").then_some(typed)
    });
    let script = typed.collect::<Vec<_>>().join("\n");
    let start = block.text.lines().next().unwrap().strip_prefix("$ ").unwrap();
    let mut command = shell(folder, &format!("{start} --continue-on-error 2>&1"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
    text(&child.wait_with_output().unwrap().stdout)
}

#[test]
fn sessions_give_what_is_shown() {
    let all = running(|way| way == Way::Console);
    assert!(!all.is_empty());
    for (block, _) in all {
        let folder = folder();
        let shown: String = block
            .text
            .lines()
            .filter(|line| !line.starts_with("serac") && !line.starts_with("$ "))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(console(folder.path(), &block), shown, "{}, line {}", block.file, block.line);
    }
}

#[test]
fn errors_are_what_is_shown() {
    for (block, way) in running(|way| matches!(way, Way::ErrorOf(_))) {
        let Way::ErrorOf(sql) = way else { unreachable!() };
        let output = serac(&["-c", sql], "");
        assert_eq!(text(&output.stderr), block.text, "{}, line {}", block.file, block.line);
    }
}

#[test]
fn settings_are_accepted() {
    let all = running(|way| way == Way::Config);
    assert!(!all.is_empty());
    for (block, _) in all {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serac.toml");
        std::fs::write(&path, &block.text).unwrap();
        let output = serac(&["serve", "--print-config", "--config", path.to_str().unwrap()], "");
        assert!(output.status.success(), "{}, line {}: {}", block.file, block.line, text(&output.stderr));
    }
}

#[test]
fn scripts_run() {
    let all = running(|way| way == Way::Script);
    assert!(all.len() > 1);
    for (block, _) in all {
        let folder = folder();
        // The file that the scripts load.
        std::fs::write(folder.path().join("people.csv"), "name,born\nada,1815-12-10\n").unwrap();
        std::fs::write(folder.path().join("trips.csv"), "day,passengers\n2024-02-29,3\n").unwrap();
        let made = "gzip -k trips.csv && target/release/serac -c \"COPY (SELECT 1 AS a) TO 'part.parquet'\"";
        assert!(shell(folder.path(), made).output().unwrap().status.success());
        let output = shell(folder.path(), &format!("set -e\n{}", block.text)).output().unwrap();
        assert!(output.status.success(), "{}, line {}: {}", block.file, block.line, text(&output.stderr));
    }
}

/// A server that a block starts, and where it listens.
struct Served {
    /// Ends with the struct.
    _process: Process,
    address: String,
}

impl Served {
    /// Runs the lines of a script up to one that starts a server, with free ports.
    fn new(folder: &Path, script: &str) -> Self {
        let mut before = script.lines().filter(|line| !line.trim().is_empty());
        let line = loop {
            let line = before.next().expect("a line with serve");
            if line.contains("serac serve") {
                break line;
            }
            let output = shell(folder, line).output().unwrap();
            assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        };
        let words: Vec<String> = line
            .split(' ')
            .map(|word| match word.strip_prefix("127.0.0.1:") {
                Some(_) => "127.0.0.1:0".to_owned(),
                None => word.to_owned(),
            })
            .collect();
        // So that a signal reaches the server itself.
        let mut command = shell(folder, &format!("exec {}", words.join(" ")));
        let mut process = Process::start(command.stderr(Stdio::null()));
        let said = process.line();
        let address = said.split("127.0.0.1:").nth(1).unwrap_or_else(|| panic!("{line}: {said}"));
        let port = address.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        Self { _process: process, address: format!("127.0.0.1:{port}") }
    }
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn servers_start_and_psql_connects() {
    let all = running(|way| way == Way::Serve);
    assert!(all.len() > 3);
    for (block, _) in all {
        let folder = folder();
        let at = format!("{}, line {}", block.file, block.line);
        if block.text.contains("ON account") {
            let made = shell(folder.path(), "serac my.db -c 'CREATE TABLE account (id INT)'").output().unwrap();
            assert!(made.status.success());
        }
        let served = Served::new(folder.path(), &block.text);
        let Some(psql) = block.text.lines().find(|line| line.starts_with("psql ")) else { continue };
        if !is_there("psql") {
            println!("{at}: psql is missing");
            continue;
        }
        let port = served.address.rsplit(':').next().unwrap();
        let output = shell(folder.path(), &format!("{psql} -p {port} -Atc 'SELECT 1'")).output().unwrap();
        assert_eq!(text(&output.stdout), "1\n", "{at}: {}", text(&output.stderr));
    }
}

#[test]
fn python_runs() {
    let python = root().join("target/peers/bin/python");
    // Beside a target folder of another place, too.
    let python = std::env::var_os("SERAC_PYTHON").map_or(python, PathBuf::from);
    let all = running(|way| matches!(way, Way::Python(_) | Way::PythonInFolder));
    assert!(all.len() > 5);
    if !python.exists() {
        println!("not run, because scripts/readers has not installed {}", python.display());
        return;
    }
    let run = |folder: &Path, script: &str, at: &str| {
        let output = Command::new(&python).args(["-c", script]).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{at}\n{script}\n{}", text(&output.stderr));
    };
    let mut files: Vec<&str> = BLOCKS.iter().map(|(file, ..)| *file).collect();
    files.dedup();
    for file in files {
        let folder = folder();
        let mut script = String::new();
        for (block, _) in running(|way| way == Way::Console).iter().filter(|(block, _)| block.file == file) {
            console(folder.path(), block);
        }
        for (block, way) in all.iter().filter(|(block, _)| block.file == file) {
            let at = format!("{file}, line {}", block.line);
            let execute = |sql: &str| {
                let output = shell(folder.path(), "serac my.db -c \"$SQL\"").env("SQL", sql).output().unwrap();
                assert!(output.status.success(), "{at}: {}", text(&output.stderr));
            };
            match way {
                Way::PythonInFolder => {
                    execute("CREATE TABLE t AS SELECT x FROM generate_series(1, 100000) AS g (x)");
                    execute("FREEZE TABLE t; CHECKPOINT");
                    let data = folder.path().join("my.db/data");
                    let name = std::fs::read_dir(&data).unwrap().next().unwrap().unwrap().file_name();
                    let written = block.text.split('"').find(|part| part.starts_with("data/")).expect("a file's name");
                    let path = format!("data/{}", name.to_str().unwrap());
                    run(&folder.path().join("my.db"), &block.text.replace(written, &path), &at);
                }
                Way::Python(before) => {
                    if !before.is_empty() {
                        execute(before);
                    }
                    script += &block.text;
                }
                _ => unreachable!(),
            }
        }
        if !script.is_empty() {
            let served = Served::new(folder.path(), "serac serve my.db --flight 127.0.0.1:8815");
            run(folder.path(), &script.replace("127.0.0.1:8815", &served.address), file);
        }
    }
}
