//! The built binary, used as a person or a script would.

mod common;

use common::{serac, text};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

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
fn a_database_is_there_again() {
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
fn copies_behind_comments_are_copies() {
    let script = "CREATE TABLE t (a INTEGER);\n-- the numbers\nCOPY t FROM STDIN;\n1\n\\.\n\
                  /* more */ \\copy t FROM STDIN\n2\n\\.\n/* all; */ -- of them\nCOPY t TO STDOUT;\nSELECT 3 AS b;";
    let output = serac(&["--mode", "csv"], script);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("1\n2\nb\n3\n".into(), String::new()));
    assert!(output.status.success());
}

#[test]
fn files_run_one_another_up_to_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("loop.sql"), format!("\\i {}\n", path("loop.sql"))).unwrap();
    let output = serac(&["--mode", "csv"], format!("\\i {}\nSELECT 1 AS a;\n", path("loop.sql")));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("run one another"), "{}", text(&output.stderr));
    // Each file may run others, and the script goes on behind them.
    for at in 0..20 {
        let next = format!("SELECT {at} AS a;\n\\i {}\nSELECT {at} AS b;\n", path(&format!("{}.sql", at + 1)));
        std::fs::write(path(&format!("{at}.sql")), next).unwrap();
    }
    std::fs::write(path("20.sql"), "SELECT * FROM missing;\n").unwrap();
    let script = format!("\\i {}\nSELECT 7 AS c;\n", path("0.sql"));
    let output = serac(&["--mode", "csv", "--continue-on-error"], &script);
    assert!(text(&output.stdout).ends_with("b\n0\nc\n7\n"), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 82);
    let output = serac(&["--mode", "csv"], &script);
    assert_eq!((output.status.code(), text(&output.stdout).lines().count()), (Some(1), 40));
}

#[test]
fn statements_of_a_pipe_run_as_they_come() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_serac"))
        .args(["--mode", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut answer = |script: &str, count: usize| {
        input.write_all(script.as_bytes()).unwrap();
        lines.by_ref().take(count).map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(answer("SELECT 1 AS a; SELECT\n", 2), ["a", "1"]);
    assert_eq!(answer("2 AS b;\nCREATE TABLE t (a INT);\n", 2), ["b", "2"]);
    assert!(answer("COPY t FROM STDIN;\n1\n2\n", 0).is_empty());
    assert_eq!(answer("3\n\\.\nSELECT sum(a) AS s FROM t;\n", 2), ["s", "6"]);
    assert_eq!(answer("COPY t (x) FROM STDIN;\n4\n\\.\nSELECT 7 AS c", 0), [""; 0]);
    drop(input);
    assert_eq!(lines.next().map(Result::unwrap), None, "the script ends at its error");
    assert_eq!(child.wait().unwrap().code(), Some(1));
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
fn an_error_of_syntax_fails_the_transaction() {
    let script =
        "CREATE TABLE t (a INTEGER); BEGIN; INSERT INTO t VALUES (1); SELEC 1; COMMIT; SELECT count(*) AS n FROM t;";
    let output = serac(&["--mode", "csv", "--continue-on-error"], script);
    assert_eq!(text(&output.stdout), "n\n0\n", "{}", text(&output.stderr));
}

#[test]
fn columns_without_a_name_are_called_as_by_postgresql() {
    let sql = "SELECT 1, sum(x), 'a' || 'b', x::text, count(*) FROM (VALUES (2)) AS t (x) GROUP BY x";
    let output = serac(&["--mode", "csv", "-c", sql], "");
    assert_eq!(text(&output.stdout), "?column?,sum,?column?,x,count\n1,2,ab,2,1\n", "{}", text(&output.stderr));
}

#[test]
fn json_has_arrays_and_nulls() {
    let sql = "SELECT NULL AS n, ARRAY[1, NULL] AS a, ARRAY['x', 'y\"'] AS b, 1.50 AS c, true AS d";
    let output = serac(&["--mode", "json", "-c", sql], "");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value, serde_json::json!([{"n": null, "a": [1, null], "b": ["x", "y\""], "c": 1.50, "d": true}]));
}

#[test]
fn data_goes_out_without_the_tag_of_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let script = format!(
        "COPY (SELECT 1) TO STDOUT;\n\\o {}\nCOPY (SELECT 2) TO STDOUT;\n\\o\nCREATE TABLE t (a INT);\n",
        path.display()
    );
    let output = serac(&[], script);
    assert_eq!(text(&output.stdout), "1\nCREATE TABLE\n", "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(path).unwrap(), "2\n");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let sql = "CREATE TABLE t (a TEXT); INSERT INTO t VALUES (chr(27) || '[31m' || chr(7)); SELECT a FROM t";
    for mode in ["table", "expanded", "markdown"] {
        let output = serac(&["--mode", mode, "-c", sql, "-c", "SELECT (SELECT a FROM t)::int"], "");
        let (shown, error) = (text(&output.stdout), text(&output.stderr));
        assert!(shown.contains("\\x1b[31m\\x07") && !shown.contains('\u{1b}'), "{shown}");
        assert!(error.contains("\\x1b[31m") && !error.contains('\u{1b}'), "{error}");
    }
}

#[test]
fn statements_are_run_by_commands_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let script = format!(
        "CREATE SEQUENCE s;\nSELECT nextval('s') AS n \\gx\n\\g\nSELECT nextval('s') AS m \\watch 0.01 c=2\n\
         SELECT 7 AS seven \\g {}\nSELECT 8 \\p\n\\p\nSELECT 'dropped' \\r\nSELECT 1 \\dt\nSELECT 9 AS nine;\n",
        path.display()
    );
    let output = serac(&["--mode", "csv", "--continue-on-error"], &script);
    let error = text(&output.stderr);
    let shown = text(&output.stdout);
    assert!(shown.starts_with("-[ row 1 ]-\nn | 1\n(1 row)\nn\n2\nm\n3\nm\n4\nSELECT 8\n"), "{shown}{error}");
    assert!(shown.ends_with("nine\n9\n") && !shown.contains("dropped"), "{shown}");
    assert!(error.contains("\\dt cannot stand behind the beginning of a statement"), "{error}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "seven\n7\n");
    let output = serac(&[], "\\g\n");
    assert!(text(&output.stderr).contains("there is no statement yet"));
}

#[test]
fn the_editor_gets_the_statement_and_what_it_leaves_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let editor = folder.path().join("editor");
    std::fs::write(&editor, "#!/bin/sh\nsed -i s/1/42/ \"$1\"\n").unwrap();
    let output = Command::new("sh")
        .args(["-c", "chmod +x \"$EDITOR\"; printf 'SELECT 1 AS a;\\n\\\\e\\n' | \"$0\" --mode csv"])
        .arg(env!("CARGO_BIN_EXE_serac"))
        .env("EDITOR", &editor)
        .env_remove("VISUAL")
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "a\n1\nSELECT 42 AS a;\na\n42\n", "{}", text(&output.stderr));
}

#[test]
fn relations_of_all_kinds_are_described() {
    let script = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9));\nCREATE INDEX t_v ON t (v);\n\
        CREATE INDEX t_b ON t USING bitmap (v);\nCREATE VIEW w AS SELECT id, v FROM t;\nCREATE SEQUENCE s START 5;\n\
        CREATE MATERIALIZED VIEW m AS SELECT id FROM t;\nCOMMENT ON COLUMN t.v IS 'what it says';\n\
        COMMENT ON COLUMN w.v IS 'what is seen of it';\n\
        CREATE ROLE r CREATEDB;\nCREATE ROLE g;\nGRANT g TO r;\n\
        \\d w\n\\d T_V\n\\d t_b\n\\d s\n\\d m\n\\d+ t\n\\d+ w\n\\d\n\\du\n\\df\n\\df to_he*\n\\conninfo\nhelp;\n\\d nothing\n";
    let output = serac(&[], script);
    let (shown, error) = (text(&output.stdout), text(&output.stderr));
    for part in [
        "View \"public.w\"",
        "character varying",
        "View definition:\n  SELECT id, v FROM t;",
        "Index \"public.t_v\" on table \"t\"\n  \"t_v\" index (v)",
        "Index \"public.t_b\" on table \"t\"\n  \"t_b\" index USING bitmap (v)",
        "Sequence \"public.s\"",
        "Materialized view \"public.m\"",
        "what it says",
        "what is seen of it",
        "materialized view",
        "create DB",
        "An integer in hexadecimal digits.",
        "The database is in memory, opened by this process",
        "lists the commands",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}{error}");
    }
    let role = shown.lines().find(|line| line.contains("create DB")).unwrap();
    assert!(role.contains(" r ") && role.contains(" g "), "{role}");
    assert!(error.trim_end().ends_with("there is no relation \"nothing\""), "{error}");
}

#[test]
fn a_script_ends_where_it_says_so() {
    for word in ["exit;", "QUIT;", "\\q"] {
        let output = serac(&["--mode", "csv"], format!("SELECT 1 AS a;\n{word}\nSELECT 2 AS b;\n"));
        assert!(output.status.success());
        assert_eq!(text(&output.stdout), "a\n1\n", "{word}: {}", text(&output.stderr));
    }
}

/// The shell's screen at a terminal where these lines are typed; `None` without `script`
/// (util-linux), which makes the terminal.
fn at_terminal(columns: u16, lines: &[&str]) -> Option<String> {
    let home = tempfile::tempdir().unwrap();
    let command = format!("stty cols {columns} rows 40; \"{}\"", env!("CARGO_BIN_EXE_serac"));
    let child = Command::new("script")
        .args(["-q", "-e", "-c", &command, "/dev/null"])
        .env("HOME", home.path())
        .env("TERM", "dumb")
        .env("PAGER", "sed 's/^/paged: /'")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.ok()?;
    let mut input = child.stdin.take().unwrap();
    for line in lines {
        std::io::Write::write_all(&mut input, format!("{line}\n").as_bytes()).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    drop(input);
    Some(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

#[test]
fn at_a_terminal_it_prompts_fits_and_pages() {
    let lines = [
        "CREATE TABLE t (a INT, b TEXT);",
        "BEGIN;",
        "SELECT 'open",
        "';",
        "\\copy t FROM STDIN",
        "1,one",
        "2,two",
        "\\.",
        "SELECT sum(a),",
        "quit",
        "count(*) FROM t;",
        "COMMIT;",
        "SELECT repeat('word ', 30) AS x, repeat('text ', 30) AS y;",
        "SELECT x FROM generate_series(1, 100) AS g (x);",
        "help",
        "exit",
    ];
    let Some(shown) = at_terminal(80, &lines) else { return println!("not run: there is no `script`") };
    for part in ["serac*> ", "serac'*> ", ">> ", "serac-*> ", "COPY 2", "Use \\q to quit.", "lists the commands"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    assert!(shown.contains("paged: │ 100 │"), "{shown}");
    let wide = shown.lines().filter(|line| line.contains("word") && line.starts_with('│'));
    assert!(wide.clone().count() > 2 && wide.clone().all(|line| line.chars().count() <= 80), "{shown}");
}
