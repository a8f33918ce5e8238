//! `serac run`, jobs and functions in SQL, and a job that moves to another machine.
#![cfg(target_os = "linux")]

mod common;

use common::{serac, text};
use serac_testing::Process;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const ROWS: &str = "CREATE TABLE t (a BIGINT, b TEXT, c NUMERIC(9,2)); \
    INSERT INTO t VALUES (1, 'one', 1.5), (2, NULL, 2.5), (3, 'a text that is longer than twelve bytes', NULL)";
const SHOWN: &str = "a,b,c\n1,one,1.50\n2,,2.50\n3,a text that is longer than twelve bytes,\n";

struct Database {
    _folder: tempfile::TempDir,
    path: String,
}

impl Database {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db").display().to_string();
        let database = Self { _folder: folder, path };
        database.sql(ROWS);
        database
    }

    fn ran(&self, statements: &str, role: Option<&str>) -> Output {
        let mut arguments = vec![self.path.as_str(), "--mode", "csv", "-c", statements];
        arguments.extend(role.iter().flat_map(|role| ["--user", role]));
        serac(&arguments, "")
    }

    fn sql(&self, statements: &str) -> String {
        let output = self.ran(statements, None);
        assert!(output.status.success(), "{statements}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn error(&self, statements: &str, role: Option<&str>) -> String {
        let output = self.ran(statements, role);
        assert!(!output.status.success(), "{statements}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    fn run(&self, options: &[&str], program: &[&str]) -> Output {
        let mut arguments = vec!["run", self.path.as_str(), "--mode", "csv"];
        arguments.extend(options);
        arguments.push("--");
        arguments.extend(program);
        serac(&arguments, "")
    }
}

fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_program_gets_a_snapshot_of_tables_and_its_rows_are_shown_kept_or_written() {
    let database = Database::new();
    assert_eq!(good(&database.run(&["--snapshot", "t"], &["cat"])), SHOWN);
    assert_eq!(
        good(&database.run(&["--snapshot", "t(b)"], &["cat"])),
        "b\none\n\na text that is longer than twelve bytes\n"
    );
    let query = "two=SELECT a + 1 AS n FROM t WHERE a < 3 ORDER BY a";
    let script = "test $SERAC_INPUT_2_NAME = two && cat $SERAC_INPUT_2";
    assert_eq!(good(&database.run(&["--snapshot", "t", "--query", query], &["sh", "-c", script])), "n\n2\n3\n");
    assert_eq!(good(&database.run(&["--snapshot", "t", "--into", "copied"], &["cat"])), "3 rows put into copied\n");
    assert_eq!(database.sql("SELECT * FROM copied ORDER BY a"), SHOWN);
    let file = Path::new(&database.path).with_file_name("rows.arrow");
    let written = database.run(&["--snapshot", "t", "--output", file.to_str().unwrap()], &["cat"]);
    assert!(good(&written).starts_with("3 rows written"));
    let again = format!("COPY copied FROM '{}'; SELECT count(*) AS n FROM copied", file.display());
    assert!(database.sql(&again).ends_with("n\n6\n"));
}

#[test]
fn a_program_that_fails_writes_no_arrow_or_takes_too_long_is_an_error() {
    let database = Database::new();
    let failed = |options: &[&str], program: &[&str]| {
        let output = database.run(options, program);
        assert!(!output.status.success());
        text(&output.stderr)
    };
    let error = failed(&[], &["sh", "-c", "echo no luck >&2; exit 4"]);
    assert!(error.contains("ERROR 38000") && error.contains("exit code 4") && error.contains("no luck"), "{error}");
    let error = failed(&[], &["echo", "these are no Arrow messages"]);
    assert!(error.contains("ERROR 22P04"), "{error}");
    let error = failed(&["--snapshot", "t"], &["head", "-c", "200"]);
    assert!(error.contains("ERROR 22P04") || error.contains("ERROR 08P01"), "{error}");
    let error = failed(&["--time", "1"], &["sleep", "100"]);
    assert!(error.contains("ERROR 54000"), "{error}");
    assert!(failed(&[], &["no-such-program"]).contains("no program"));
    assert!(failed(&["--snapshot", "nowhere"], &["cat"]).contains("42P01"));
}

#[test]
fn an_input_is_one_query_that_changes_nothing() {
    let database = Database::new();
    let job = Path::new(&database.path).with_file_name("job.json");
    for query in ["COMMIT; DELETE FROM t; SELECT 1 AS a", "DELETE FROM t", "SELECT 1 AS a; SELECT 2 AS a", ""] {
        let description = format!(r#"{{"inputs": [{{"query": "{query}"}}], "stages": [{{"program": "/bin/cat"}}]}}"#);
        std::fs::write(&job, description).unwrap();
        let output = serac(&["run", &database.path, "--job", job.to_str().unwrap()], "");
        assert!(
            !output.status.success() && text(&output.stderr).contains("42601"),
            "{query}: {}",
            text(&output.stderr)
        );
        let output = database.run(&["--query", &format!("x={query}")], &["cat"]);
        assert!(
            !output.status.success() && text(&output.stderr).contains("42601"),
            "{query}: {}",
            text(&output.stderr)
        );
    }
    assert_eq!(database.sql("SELECT count(*) AS n FROM t"), "n\n3\n");
}

#[test]
fn sql_calls_a_job_in_its_transaction_and_a_superuser_alone_does() {
    let database = Database::new();
    let job = r#"{"inputs": [{"query": "SELECT * FROM t ORDER BY a"}], "stages": [{"program": "/bin/cat"}]}"#;
    assert_eq!(database.sql(&format!("CALL serac_run('{job}')")), SHOWN);
    let own = format!("BEGIN; DELETE FROM t WHERE a > 1; CALL serac_run('{job}'); ROLLBACK");
    assert!(database.sql(&own).ends_with("a,b,c\n1,one,1.50\n"));
    database.sql("CREATE ROLE reader LOGIN; GRANT SELECT ON t TO reader");
    let error = database.error(&format!("CALL serac_run('{job}')"), Some("reader"));
    assert!(error.contains("42501"), "{error}");
    for (job, sqlstate) in [
        (r#"{"stages": [{"program": "cat"}]}"#, "22023"),
        (r#"{"stages": [{"program": "/bin/false"}]}"#, "38000"),
        (r#"{"inputs": [{"query": "DELETE FROM t"}], "stages": [{"program": "/bin/cat"}]}"#, "42601"),
        (r#"{"inputs": [{"query": "SELECT 1; SELECT 2"}], "stages": [{"program": "/bin/cat"}]}"#, "42601"),
        (r#"{"stages": [{"program": "/bin/sleep", "args": ["9"]}], "limits": {"wall_seconds": 1}}"#, "54000"),
    ] {
        let error = database.error(&format!("CALL serac_run('{job}')"), None);
        assert!(error.contains(sqlstate), "{job}: {error}");
    }
    assert!(database.error("CALL serac_run(NULL)", None).contains("22004"));
    assert_eq!(database.sql("SELECT count(*) AS n FROM t"), "n\n3\n");
}

#[test]
fn a_job_ends_with_its_statement() {
    let database = Database::new();
    let job = r#"{"stages": [{"program": "/bin/sleep", "args": ["100"]}]}"#;
    let begun = std::time::Instant::now();
    let error = database.error(&format!("SET statement_timeout = 500; CALL serac_run('{job}')"), None);
    assert!(error.contains("57014"), "{error}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn a_server_runs_the_programs_of_those_who_may() {
    let database = Database::new();
    database.sql("CREATE ROLE reader LOGIN; GRANT SELECT ON t TO reader; GRANT CREATE ON SCHEMA public TO reader");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_serac"));
    serve.args(["serve", &database.path, "--pg", "127.0.0.1:0"]).stderr(Stdio::null());
    let mut server = Process::start(&mut serve);
    let said = server.line();
    assert!(said.contains("serving"), "{said}");
    // By the folder's socket, statements run in the server.
    let job = r#"{"inputs": [{"query": "SELECT * FROM t ORDER BY a"}], "stages": [{"program": "/bin/cat"}]}"#;
    assert_eq!(database.sql(&format!("CALL serac_run('{job}')")), SHOWN);
    let create =
        format!("CREATE FUNCTION echo() RETURNS TABLE (a BIGINT, b TEXT, c NUMERIC(9,2)) LANGUAGE external AS '{job}'");
    for statement in [&format!("CALL serac_run('{job}')"), &create] {
        assert!(database.error(statement, Some("reader")).contains("42501"));
    }
    database.sql(&create);
    assert!(database.error("SELECT * FROM echo()", Some("reader")).contains("42501"));
    database.sql("GRANT EXECUTE ON FUNCTION echo TO reader");
    assert_eq!(good(&database.ran("SELECT * FROM echo()", Some("reader"))), SHOWN);
}

/// A module whose output is its input.
#[cfg(feature = "wasm")]
const ECHO: &str = r#"(module
  (memory (export "memory") 1)
  (global $end (mut i32) (i32.const 1024))
  (func (export "alloc") (param $length i32) (result i32)
    (local $place i32)
    (local.set $place (global.get $end))
    (global.set $end (i32.add (global.get $end) (local.get $length)))
    (drop (memory.grow (i32.add (i32.shr_u (local.get $length) (i32.const 16)) (i32.const 1))))
    (local.get $place))
  (func (export "run") (param $place i32) (param $length i32) (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (local.get $place)) (i64.const 32))
            (i64.extend_i32_u (local.get $length)))))"#;

#[test]
fn functions_are_made_used_granted_and_dropped_and_survive_a_restart() {
    let database = Database::new();
    let job = r#"{"inputs": [{"query": "SELECT a, b FROM t WHERE a >= $1 ORDER BY a"}], "stages": [{"program": "/bin/cat"}]}"#;
    let create = format!(
        "CREATE FUNCTION later(least BIGINT) RETURNS TABLE (number BIGINT, word TEXT) LANGUAGE external AS '{job}'"
    );
    database.sql(&create);
    // Each command opens the folder anew.
    let rows = "number,word\n2,\n3,a text that is longer than twelve bytes\n";
    assert_eq!(database.sql("SELECT * FROM later(2)"), rows);
    assert_eq!(
        database.sql("SELECT sum(l.number) AS s FROM later(1) l JOIN t ON t.a = l.number WHERE l.number < 3"),
        "s\n3\n"
    );
    assert_eq!(database.sql("SELECT word FROM later(1 + 2)"), "word\na text that is longer than twelve bytes\n");
    assert_eq!(database.sql("SELECT count(*) AS n FROM later(NULL)"), "n\n0\n");
    database.sql("CREATE VIEW late AS SELECT number FROM later(3)");
    assert_eq!(database.sql("SELECT * FROM late"), "number\n3\n");
    assert!(database.sql("EXPLAIN SELECT * FROM later(1)").contains("function=later"));
    let shown = database.sql("SELECT proname, pg_get_function_arguments(oid) AS takes, pg_get_function_result(oid) AS gives FROM pg_proc WHERE proname = 'later'");
    assert_eq!(shown, "proname,takes,gives\nlater,least bigint,\"TABLE(number bigint, word text)\"\n");
    for (statement, sqlstate) in [
        ("SELECT * FROM later()", "42883"),
        ("SELECT * FROM later('x')", "22P02"),
        ("SELECT * FROM t, later(t.a)", "0A000"),
        (create.as_str(), "42723"),
        ("CREATE FUNCTION f() RETURNS TABLE (a INT) LANGUAGE external AS 'no job'", "22023"),
        ("CREATE FUNCTION f() RETURNS TABLE (a INT) LANGUAGE cobol AS '{}'", "42704"),
        ("CREATE FUNCTION f() RETURNS INT LANGUAGE external AS '{}'", "0A000"),
        ("CREATE FUNCTION f() RETURNS TABLE (a INT, a INT) LANGUAGE external AS '{}'", "42P13"),
        ("DROP FUNCTION nothing", "42883"),
    ] {
        let error = database.error(statement, None);
        assert!(error.contains(sqlstate), "{statement}: {error}");
    }
    // A job whose columns differ from its declaration.
    let other = create.replace("later(least BIGINT)", "wide(least BIGINT)").replace(", word TEXT", "");
    database.sql(&other);
    assert!(database.error("SELECT * FROM wide(1)", None).contains("42804"));
    // A function that reads itself.
    let circle = r#"{"inputs": [{"query": "SELECT * FROM circle()"}], "stages": [{"program": "/bin/cat"}]}"#;
    database.sql(&format!("CREATE FUNCTION circle() RETURNS TABLE (a INT) LANGUAGE external AS '{circle}'"));
    assert!(database.error("SELECT * FROM circle()", None).contains("42P17"));

    database.sql("CREATE ROLE maker LOGIN; GRANT SELECT ON t TO maker; GRANT CREATE ON SCHEMA public TO maker");
    assert!(database.error("SELECT * FROM later(2)", Some("maker")).contains("42501"));
    let mine = create.replace("later", "mine");
    assert!(database.error(&mine, Some("maker")).contains("42501"));
    assert!(database.error("DROP FUNCTION later", Some("maker")).contains("42501"));
    database.sql("GRANT EXECUTE ON FUNCTION later(BIGINT) TO maker");
    assert_eq!(good(&database.ran("SELECT * FROM later(2)", Some("maker"))), rows);
    database.sql("REVOKE SELECT ON t FROM maker");
    assert!(database.error("SELECT * FROM later(2)", Some("maker")).contains("42501"));

    let replaced = create.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION").replace("a >= $1", "a = $1");
    database.sql(&replaced);
    assert_eq!(database.sql("SELECT * FROM later(2)"), "number,word\n2,\n");
    database.sql("BEGIN; DROP FUNCTION later; ROLLBACK");
    assert_eq!(database.sql("SELECT * FROM later(2)"), "number,word\n2,\n");
    database.sql("DROP VIEW late; DROP FUNCTION later(BIGINT); DROP FUNCTION IF EXISTS later");
    assert!(database.error("SELECT * FROM later(2)", None).contains("42"));
}

#[cfg(feature = "wasm")]
#[test]
fn a_module_of_webassembly_is_a_job_that_anybody_may_call() {
    use base64::Engine;
    let database = Database::new();
    let module = base64::prelude::BASE64_STANDARD.encode(wat::parse_str(ECHO).unwrap());
    let job =
        format!(r#"{{"inputs": [{{"query": "SELECT * FROM t ORDER BY a"}}], "stages": [{{"wasm": "{module}"}}]}}"#);
    database.sql("CREATE ROLE reader LOGIN; GRANT SELECT ON t TO reader; GRANT CREATE ON SCHEMA public TO reader");
    assert_eq!(good(&database.ran(&format!("CALL serac_run('{job}')"), Some("reader"))), SHOWN);
    let create =
        format!("CREATE FUNCTION echo() RETURNS TABLE (a BIGINT, b TEXT, c NUMERIC(9,2)) LANGUAGE wasm AS '{job}'");
    good(&database.ran(&create, Some("reader")));
    assert_eq!(good(&database.ran("SELECT * FROM echo()", Some("reader"))), SHOWN);
    let program = r#"{"stages": [{"program": "/bin/cat"}]}"#;
    let create = format!("CREATE FUNCTION p() RETURNS TABLE (a BIGINT) LANGUAGE wasm AS '{program}'");
    assert!(database.error(&create, Some("reader")).contains("42P13"));
}

/// A command in the network namespace of a host, or the reason why there is none.
fn host(name: &str, words: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name]).args(words);
    command
}

/// Two network namespaces with a cable between them, until it is dropped.
struct Hosts {
    names: [String; 2],
}

impl Hosts {
    fn new() -> Result<Self, String> {
        let run = |words: &[&str]| {
            let output = Command::new("ip").args(words).output().map_err(|error| format!("ip: {error}"))?;
            match output.status.success() {
                true => Ok(()),
                false => Err(format!("ip {}: {}", words.join(" "), text(&output.stderr).trim())),
            }
        };
        let number = std::process::id() % 100_000;
        let names = [format!("serac-a{number}"), format!("serac-b{number}")];
        let cable = [format!("sa{number}"), format!("sb{number}")];
        run(&["netns", "add", &names[0]])?;
        let hosts = Self { names };
        run(&["netns", "add", &hosts.names[1]])?;
        run(&[
            "link",
            "add",
            &cable[0],
            "netns",
            &hosts.names[0],
            "type",
            "veth",
            "peer",
            "name",
            &cable[1],
            "netns",
            &hosts.names[1],
        ])?;
        for (at, name) in hosts.names.iter().enumerate() {
            let address = format!("10.99.0.{}/24", at + 1);
            run(&["-n", name, "addr", "add", &address, "dev", &cable[at]])?;
            run(&["-n", name, "link", "set", &cable[at], "up"])?;
        }
        Ok(hosts)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

#[test]
fn a_job_moves_to_another_machine_and_fetches_its_inputs_from_there() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(reason) => {
            eprintln!("skipped: this system gives no network namespaces: {reason}");
            return;
        }
    };
    let database = Database::new();
    let binary = env!("CARGO_BIN_EXE_serac");
    let serve = ["serve", database.path.as_str(), "--flight", "10.99.0.1:0", "--allow-remote"];
    let mut server = host(&hosts.names[0], &[&[binary], &serve[..]].concat()).stderr(Stdio::piped()).spawn().unwrap();
    // It must be able to go on writing.
    let mut said = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    let port = said.find_map(|line| {
        let (_, rest) = line.split_once("10.99.0.1:")?;
        Some(rest.chars().take_while(char::is_ascii_digit).collect::<String>())
    });
    let address = format!("grpc://10.99.0.1:{}", port.expect("the server says its address"));
    // The same description, here and there.
    let job = Path::new(&database.path).with_file_name("job.json");
    let description = database.run(&["--query", "t=SELECT * FROM t ORDER BY a", "--describe"], &["cat"]);
    std::fs::write(&job, good(&description)).unwrap();
    let words = [binary, "run", "--connect", &address, "--job", job.to_str().unwrap(), "--mode", "csv"];
    let there = host(&hosts.names[1], &words).output().unwrap();
    let here = serac(&["run", &database.path, "--job", job.to_str().unwrap(), "--mode", "csv"], "");
    // From a machine without a cable there is no way.
    let nowhere = serac(&["run", "--connect", &address, "--job", job.to_str().unwrap()], "");
    server.kill().unwrap();
    server.wait().unwrap();
    drop(said);
    assert_eq!(good(&there), SHOWN);
    assert_eq!(good(&here), SHOWN);
    assert!(!nowhere.status.success());
}
