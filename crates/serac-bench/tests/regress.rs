//! The comparison with PostgreSQL's regression suite, on a small suite of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

const SETUP: &str = "\\getenv abs_srcdir PG_ABS_SRCDIR\n\\set filename :abs_srcdir '/data/pets.data'\n\
    CREATE TABLE pets (id int, name text);\nCOPY pets FROM :'filename' (FORMAT text);\n";
const SCRIPT: &str = "SELECT * FROM pets ORDER BY id;\nCREATE TABLE toys (id int PRIMARY KEY, pet int);\n\
    COPY toys FROM stdin (FORMAT text);\n1\t1\n2\t1\n\\.\nSELECT count(*) AS toys FROM toys \\gset\n\
    SELECT :toys + 1 AS more;\nINSERT INTO toys VALUES (1, 2);\nSELECT * FROM nothing;\n\
    CREATE FUNCTION one() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$;\nSELECT one();\n";

#[test]
fn a_suite_is_run_on_both_servers() {
    let bench = Path::new(env!("CARGO_BIN_EXE_serac-bench"));
    let suite = std::env::temp_dir().join(format!("serac-regress-test-{}", std::process::id()));
    for folder in ["sql", "data"] {
        fs::create_dir_all(suite.join(folder)).unwrap();
    }
    fs::write(suite.join("sql/test_setup.sql"), SETUP).unwrap();
    fs::write(suite.join("sql/pets.sql"), SCRIPT).unwrap();
    fs::write(suite.join("data/pets.data"), "1\tRex\n2\tMinka\n").unwrap();
    let mut command = Command::new(bench);
    command.args(["regress", "--json", "--suite"]).arg(&suite).arg("--out").arg(suite.join("out"));
    let output = command.arg("--serac").arg(bench.with_file_name("serac")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("PostgreSQL 15 is not installed") {
        eprintln!("left out: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let rows: Vec<serde_json::Value> =
        String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let row = rows.iter().find(|row| row["file"] == "pets.sql").unwrap();
    let figures = ["statements", "same", "same code", "absent", "follow-ups", "failures", "lost"];
    assert_eq!(figures.map(|name| row[name].as_u64().unwrap()), [9, 5, 2, 1, 1, 0, 0], "{said}");
    let differences = fs::read_to_string(suite.join("out/differences.jsonl")).unwrap();
    assert_eq!(differences.lines().filter(|line| line.contains("\"follows\":\"one\"")).count(), 1, "{differences}");
    fs::remove_dir_all(&suite).unwrap();
}
