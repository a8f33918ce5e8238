//! The built binary, used as a person or a script would.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn serac(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_serac"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn modes_show_the_same_rows() {
    let sql = "SELECT 1 AS n, 'a,\"b' AS t, CAST(NULL AS INTEGER) AS x";
    let show = |mode: &str| text(&serac(&["--mode", mode, "-c", sql], "").stdout);
    assert_eq!(show("csv"), "n,t,x\n1,\"a,\"\"b\",\n");
    assert_eq!(show("json"), "[{\"n\": 1, \"t\": \"a,\\\"b\", \"x\": null}]\n");
    assert!(show("markdown").starts_with("| n"));
    let table = show("table");
    assert!(table.contains("NULL") && table.ends_with("(1 row)\n"), "{table}");
}

#[test]
fn memory_is_no_folder() {
    for _ in 0..2 {
        let output =
            serac(&[":memory:", "--mode", "csv", "-c", "CREATE TABLE t (a INT); SELECT count(*) AS n FROM t"], "");
        assert!(text(&output.stdout).ends_with("n\n0\n"), "{}", text(&output.stderr));
    }
    assert!(!std::path::Path::new(":memory:").exists());
}

#[test]
fn a_script_stops_at_the_first_error_and_says_where() {
    let script = "SELECT 1 AS a;\nSELEC 2;\nSELECT 3 AS b;";
    let output = serac(&["--mode", "csv"], script);
    assert!(!output.status.success());
    assert_eq!(text(&output.stdout), "a\n1\n");
    let error = text(&output.stderr);
    assert!(error.contains("ERROR 42601") && error.contains("LINE 1: SELEC 2") && error.contains('^'), "{error}");
    let output = serac(&["--mode", "csv", "--continue-on-error"], script);
    assert_eq!(text(&output.stdout), "a\n1\nb\n3\n");
}

#[test]
fn a_database_is_there_again_and_open_only_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let path = path.to_str().unwrap();
    let script = "CREATE TABLE t (id SERIAL PRIMARY KEY, v TEXT); INSERT INTO t (v) VALUES ('x'), ('y'); CREATE INDEX i ON t (v) INCLUDE (id);";
    let output = serac(&[path], script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = serac(&[path, "--mode", "csv", "-c", "SELECT * FROM t ORDER BY id;", "-c", "\\d t"], "");
    let shown = text(&output.stdout);
    assert!(shown.starts_with("id,v\n1,x\n2,y\n"), "{shown}");
    assert!(shown.contains("PRIMARY KEY (id)") && shown.contains("index (v) INCLUDE (id)"), "{shown}");

    let mut holder = Command::new(env!("CARGO_BIN_EXE_serac"))
        .args([path, "--mode", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The holder keeps the database open for as long as its input is; it has it once the lock names it.
    let lock = std::path::Path::new(path).join("LOCK");
    while std::fs::read_to_string(&lock).unwrap_or_default() != holder.id().to_string() {
        std::thread::yield_now();
    }
    let output = serac(&[path, "-c", "SELECT 1"], "");
    assert!(!output.status.success());
    let error = text(&output.stderr);
    assert!(error.contains(&format!("open in another process (pid {})", holder.id())), "{error}");
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn files_are_copied_out_and_in() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut script = String::from(
        "CREATE TABLE t (a INTEGER, b NUMERIC(8,2), c TEXT, d DATE);\n\
         INSERT INTO t VALUES (1, 1.25, 'one, \"quoted\"', '2024-01-31'), (2, NULL, NULL, NULL);\n",
    );
    for format in ["csv", "parquet", "arrow"] {
        let path = file(&format!("t.{format}"));
        script += &format!("COPY (SELECT * FROM t ORDER BY a) TO '{path}' WITH (HEADER true);\n");
        script += &format!("CREATE TABLE {format}_t AS SELECT * FROM t WHERE false;\n");
        script += &format!("\\copy {format}_t FROM '{path}' WITH (HEADER true)\n");
        script += &format!("SELECT * FROM {format}_t ORDER BY a;\n");
    }
    let output = serac(&["--mode", "csv"], &script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = "a,b,c,d\n1,1.25,\"one, \"\"quoted\"\"\",2024-01-31\n2,,,\n";
    assert_eq!(text(&output.stdout), rows.repeat(3));

    std::fs::write(file("bad.csv"), "1,2,x,2024-01-01\nnope,2,x,2024-01-01\n").unwrap();
    let bad = file("bad.csv");
    let script = format!(
        "CREATE TABLE t (a INTEGER, b NUMERIC(8,2), c TEXT, d DATE); COPY t FROM '{bad}'; SELECT count(*) AS n FROM t;"
    );
    let output = serac(&["--mode", "csv", "--continue-on-error"], &script);
    assert_eq!(text(&output.stdout), "n\n0\n", "nothing of a failed COPY is there");
    let error = text(&output.stderr);
    assert!(error.contains("22P02") && error.contains("bad.csv"), "{error}");
}

#[test]
fn temporary_tables_are_described() {
    let script = "CREATE TABLE t (a INTEGER);\nCREATE TEMP TABLE t (b TEXT);\n\\d t\n\\d public.t\n";
    let output = serac(&[], script);
    let shown = text(&output.stdout);
    assert!(shown.contains("Table \"pg_temp.t\"") && shown.contains("Table \"public.t\""), "{shown}");
}

#[test]
fn copies_read_and_write_the_standard_streams() {
    let table = "CREATE TABLE t (a INTEGER, b TEXT);\n";
    // In a script, the data follows the statement.
    let script = format!(
        "{table}COPY t FROM STDIN;\n1,one\n2,\"two; 'quoted'\"\n\\.\nCOPY t (b) FROM STDIN WITH (HEADER true, DELIMITER '|');\nb\nthree\n\\.\n\
         COPY (SELECT * FROM t ORDER BY b) TO STDOUT WITH (HEADER true, NULL '-');\nSELECT count(*) AS n FROM t;"
    );
    let output = serac(&["--mode", "csv"], &script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "a,b\n1,one\n-,three\n2,two; 'quoted'\nn\n3\n");
    // With -c, it is the standard input.
    let arguments = ["--mode", "csv", "-c", table, "-c", "\\copy t FROM STDIN", "-c", "SELECT a FROM t WHERE b = 'x'"];
    let lines: String = (0..100_000).map(|n| format!("{n},{}\n", if n == 77 { "x" } else { "y" })).collect();
    let output = serac(&arguments, &lines);
    assert_eq!(text(&output.stdout), "a\n77\n", "{}", text(&output.stderr));
    // A malformed line is an error with its place, and nothing of it is there.
    let script = format!("{table}COPY t FROM STDIN;\n1,one\nx,two\n\\.\nSELECT count(*) AS n FROM t;");
    let output = serac(&["--mode", "csv", "--continue-on-error"], &script);
    assert_eq!(text(&output.stdout), "n\n0\n");
    assert!(text(&output.stderr).contains("22P02") && text(&output.stderr).contains("STDIN"));
}

#[test]
fn arrow_goes_through_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.arrows");
    let make = "COPY (SELECT value AS a, 'v' || value AS b FROM generate_series(1, 20000) AS g (value)) TO STDOUT WITH (FORMAT arrow)";
    let output = serac(&["--mode", "csv", "-c", make], "");
    std::fs::write(&path, &output.stdout).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_serac"))
        .args([
            "--mode",
            "csv",
            "-c",
            "CREATE TABLE t (a BIGINT, b TEXT)",
            "-c",
            "COPY t FROM STDIN WITH (FORMAT arrow)",
        ])
        .args(["-c", "SELECT count(*) AS n, sum(a) AS s, max(b) AS m FROM t"])
        .stdin(std::fs::File::open(&path).unwrap())
        .output()
        .unwrap();
    assert_eq!(text(&child.stdout), "n,s,m\n20000,200010000,v9999\n", "{}", text(&child.stderr));
}

#[test]
fn a_large_result_is_written_as_it_comes() {
    // More rows than memory would hold; the reader goes away after the first lines.
    let mut child = Command::new(env!("CARGO_BIN_EXE_serac"))
        .args(["--mode", "csv", "-c", "SELECT value AS n FROM generate_series(1, 1000000000000) AS g (value)"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let first: Vec<String> = lines.by_ref().take(4).map(Result::unwrap).collect();
    assert_eq!(first, ["n", "1", "2", "3"]);
    drop(lines);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_demonstration_runs_and_finds_consistent_snapshots() {
    let output = serac(&["demo", "--sf", "0.01"], "");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    assert!(shown.contains("Q22") && shown.contains(": 0 orders without lines"), "{shown}");
}

#[test]
fn blocks_are_drawn_with_letters_where_there_is_no_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let path = path.to_str().unwrap();
    let script = "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2);\n\\blocks t\nFREEZE TABLE t;\n\\blocks\n";
    let output = serac(&[path], script);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.contains("t: 1 blocks, 2 rows") && shown.contains("       0 h\n"), "{shown}");
    assert!(shown.contains("       0 f\n") && shown.contains("F frozen 1") && !shown.contains('\u{1b}'), "{shown}");
    let output = serac(&["blocks", path, "t"], "");
    assert!(output.status.success() && text(&output.stdout).starts_with("t: 1 blocks"), "{}", text(&output.stdout));
    let output = serac(&["blocks", path, "nothing"], "");
    assert!(!output.status.success() && text(&output.stderr).contains("nothing"), "{}", text(&output.stderr));
}

#[test]
fn files_are_loaded_into_a_table_that_is_made_of_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (db, csv, parquet) = (file("db"), file("a.csv"), file("a.parquet"));
    std::fs::write(&csv, "Id,word,price,day\n1,one,1.5,2024-02-29\n2,,-3,2025-01-01\n").unwrap();
    let load = |arguments: &[&str]| {
        let output = serac(&[&["load", &db][..], arguments].concat(), "");
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let (done, _, error) = load(&["--header", "--table", "t", "--", &csv]);
    assert!(!done && error.contains("42P01"), "{error}");
    assert_eq!(load(&["--create", "--header", "--table", "T", "--", &csv]).1, "2 rows loaded into T\n");
    assert_eq!(load(&["--create", "--header", "--table", "t", "--", &csv, &csv]).1, "4 rows loaded into t\n");
    let query = "SELECT count(*), sum(\"Id\"), max(word), sum(price), min(day) + 1 FROM t";
    let rows = |sql: &str| text(&serac(&[&db, "--mode", "csv", "-c", sql], "").stdout);
    let expected = "6,9,one,-4.5,2024-03-01\n";
    assert!(rows(query).ends_with(expected), "{}", rows(query));
    rows(&format!("COPY t TO '{parquet}'"));
    assert_eq!(load(&["--create", "--table", "u", "--", &parquet]).1, "6 rows loaded into u\n");
    assert!(rows(&query.replace("FROM t", "FROM u")).ends_with(expected));
    // Nothing of a file that cannot be read.
    std::fs::write(&parquet, "no Parquet").unwrap();
    let (done, _, error) = load(&["--create", "--table", "v", "--", &parquet]);
    assert!(!done && error.contains("22P04"), "{error}");
    let (done, _, error) = load(&["--create", "--table", "v", "--", &file("nowhere.csv")]);
    assert!(!done && error.contains("58P01"), "{error}");
    assert_eq!(rows("SELECT count(*) AS n FROM information_schema.tables WHERE table_name = 'v'"), "n\n0\n");
}

#[test]
fn an_error_of_syntax_fails_the_transaction() {
    let script =
        "CREATE TABLE t (a INTEGER); BEGIN; INSERT INTO t VALUES (1); SELEC 1; COMMIT; SELECT count(*) AS n FROM t;";
    let output = serac(&["--mode", "csv", "--continue-on-error"], script);
    assert_eq!(text(&output.stdout), "n\n0\n", "{}", text(&output.stderr));
}
