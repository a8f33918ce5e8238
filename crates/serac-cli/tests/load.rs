//! `serac load`: files of many forms into tables, without being told their form.

mod common;

use common::{serac, text};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// A folder with a database and files.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    /// Success, output, and error output.
    fn load(&self, arguments: &[&str], input: impl AsRef<[u8]>) -> (bool, String, String) {
        let output = serac(&[&["load", &self.path("db")][..], arguments].concat(), input);
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }

    fn rows(&self, sql: &str) -> String {
        let output = serac(&[&self.path("db"), "--mode", "csv", "-c", sql], "");
        assert!(output.status.success(), "{sql}: {}", text(&output.stderr));
        text(&output.stdout)
    }
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
    let (done, _, error) = load(&["--table", "t", &csv]);
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
    // No row of an unreadable file is loaded.
    std::fs::write(&parquet, "no Parquet").unwrap();
    let (done, _, error) = load(&["--create", "--table", "v", "--", &parquet]);
    assert!(!done && error.contains("22P04"), "{error}");
    let (done, _, error) = load(&["--create", "--table", "v", "--", &file("nowhere.csv")]);
    assert!(!done && error.contains("58P01"), "{error}");
    assert_eq!(rows("SELECT count(*) AS n FROM information_schema.tables WHERE table_name = 'v'"), "n\n0\n");
}

#[test]
fn the_form_of_csv_is_found_out() {
    let folder = Folder::new();
    let tables = [
        ("a", "zip,name,born\n01067,ada,1815-12-10\n80331,bob,\n", "zip,name,born\n01067,ada,1815-12-10\n80331,bob,\n"),
        ("b", "1;'one;\n more'\n2;'two'\n", "column_1,column_2\n1,\"one;\n more\"\n2,two\n"),
        ("c", "id\tt\r\n7\ta,b\r\n", "id,t\n7,\"a,b\"\n"),
        ("d", "\u{feff}who|city\nada|London\n", "who,city\nada,London\n"),
    ];
    for (table, content, wanted) in tables {
        let file = folder.write(&format!("{table}.csv"), content);
        let (done, _, error) = folder.load(&["--create", "--table", table, &file], "");
        assert!(done, "{error}");
        assert_eq!(folder.rows(&format!("SELECT * FROM {table} ORDER BY 1")), wanted, "{error}");
    }
    // A header names columns of an existing table, in any order; options precede detection.
    let file = folder.write("e.csv", "NAME,zip\neve,00001\n");
    assert!(folder.load(&["--table", "a", &file], "").0);
    assert_eq!(folder.rows("SELECT * FROM a WHERE name = 'eve'"), "zip,name,born\n00001,eve,\n");
    let file = folder.write("f.csv", "x/y\nz/y\n");
    assert!(folder.load(&["--create", "--header=false", "--delimiter", "/", "--table", "f", &file], "").0);
    assert_eq!(folder.rows("SELECT * FROM f ORDER BY 1"), "column_1,column_2\nx,y\nz,y\n");
}

#[test]
fn streams_and_compressed_files_are_read() {
    let folder = Folder::new();
    let rows: String = (0..100_000).map(|n| format!("{n},row number {n}\n")).collect();
    let csv = format!("id,what\n{rows}");
    for (table, file) in [("a", "-"), ("b", "/dev/stdin")] {
        let (done, said, error) = folder.load(&["--create", "--table", table, file], &csv);
        assert!(done && said.starts_with("100000 rows"), "{said}{error}");
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(csv.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let file = folder.write("c.csv.gz", &gzip);
    let (done, said, error) = folder.load(&["--create", "--table", "c", &file], "");
    assert!(done && said.starts_with("100000 rows"), "{said}{error}");
    assert!(folder.load(&["--create", "--table", "d", "-"], &gzip).0);
    for table in ["a", "b", "c", "d"] {
        assert_eq!(folder.rows(&format!("SELECT max(id) AS m, count(what) AS n FROM {table}")), "m,n\n99999,100000\n");
    }
    let file = folder.write("broken.csv.gz", &gzip[..gzip.len() / 2]);
    let (done, _, error) = folder.load(&["--table", "a", &file], "");
    assert!(!done && error.contains("broken.csv.gz"), "{error}");
}

#[test]
fn the_line_of_a_bad_value_is_named() {
    let folder = Folder::new();
    // A quoted line's end counts as a line.
    let rows: String = (0..100_000).map(|n| format!("{n},\"a\nb\"\n")).collect();
    let file = folder.write("a.csv", format!("id,what\n{rows}many,x\n"));
    let (done, _, error) = folder.load(&["--create", "--header", "--table", "t", &file], "");
    assert!(!done, "{error}");
    assert!(error.contains("22P02") && error.contains("\"many\"") && error.contains("bigint"), "{error}");
    assert!(error.contains("line 200002") && error.contains("column \"id\"") && error.contains("a.csv"), "{error}");
    // An empty line lacks columns, too.
    for text in ["id,what\n1,x\n2\n", "id,what\n1,x\n\n2,y\n"] {
        let file = folder.write("b.csv", text);
        let (done, _, error) = folder.load(&["--create", "--table", "t", &file], "");
        assert!(!done && error.contains("missing data for column 2") && error.contains("line 3"), "{error}");
    }
    folder.rows("CREATE TABLE c (n INT CHECK (n < 3))");
    let (done, _, error) = folder.load(&["--table", "c", "-"], "1\n2\n3\n4\n");
    assert!(!done && error.contains("23514") && error.contains("line 3"), "{error}");
}

#[test]
fn options_stand_where_one_likes() {
    let folder = Folder::new();
    let (db, file) = (folder.path("db"), folder.write("a.csv", "a\n1\n"));
    for arguments in [
        &["load", &db, &file, "--create", "--table", "t", "--durability", "off"][..],
        &["--durability", "off", "load", "--table", "t", &db, "--", &file],
        &["--threads=1", "--table", "t", "load", &db, &file],
    ] {
        let output = serac(arguments, "");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    }
    assert_eq!(folder.rows("SELECT count(*) AS n FROM t"), "n\n3\n");
    let output = serac(&["--flight", "127.0.0.1:0", "serve", "--print-config"], "");
    assert!(text(&output.stdout).contains("flight = \"127.0.0.1:0\" # flag"), "{}", text(&output.stderr));
}

#[test]
fn slips_of_the_pen_make_no_database() {
    let folder = Folder::new();
    for (word, meant) in [("serv", "serac serve"), ("laod", "serac load"), ("server", "serac serve")] {
        let output = serac(&[word, "-c", "SELECT 1"], "");
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(meant) && !Path::new(word).exists(), "{word}: {error}");
    }
    let nowhere = folder.path("nowhere/db");
    for arguments in [
        &[&nowhere[..], "-c", "SELECT 1"][..],
        &["serve", &nowhere, "--pg", "127.0.0.1:0"],
        &["blocks", &nowhere],
        &["load", &nowhere, "--table", "t", "-"],
    ] {
        let output = serac(arguments, "");
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains("nowhere does not exist"), "{arguments:?}: {error}");
    }
    assert!(!Path::new(&folder.path("nowhere")).exists());
}

#[test]
fn inline_data_of_psql_ends_at_its_mark() {
    if Command::new("psql").arg("--version").output().is_err() {
        return println!("not run: psql is missing");
    }
    let mut server = Command::new(env!("CARGO_BIN_EXE_serac"))
        .args(["serve", "--pg", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let port = said.split("127.0.0.1:").nth(1).unwrap().split(|c: char| !c.is_ascii_digit()).next().unwrap();
    let mut psql = Command::new("psql")
        .args(["-X", "-A", "-t", "-h", "127.0.0.1", "-U", "me", "-p", port, "x"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let script = "CREATE TABLE t (a INT, b TEXT);\n\\copy t FROM STDIN CSV\n1,one\n2,\"two\n..\"\n\\.\n\
        \\copy t FROM STDIN\n3\tthree\n\\.\nSELECT count(*), max(a) FROM t;\n";
    psql.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = psql.wait_with_output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(text(&output.stdout), "CREATE TABLE\nCOPY 2\nCOPY 1\n3|3\n", "{}", text(&output.stderr));
}
