//! Scripts with what they must print: `tests/scripts/NAME.dsl` and `NAME.out`. `NAME.2.dsl` goes on
//! with the same database, after a restart if `NAME.dsl` ends in `shutdown`. A line with `-- error`
//! must be refused, and no other. A file of a load is `NAME.FILE`.

mod common;

use common::{Client, open};
use serac_column_language::Outcome;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

fn run(name: &str) {
    let database = tempfile::tempdir().unwrap();
    let mut operators = open(database.path());
    let mut parts = 0;
    loop {
        let part = if parts == 0 { name.to_owned() } else { format!("{name}.{}", parts + 1) };
        let Ok(script) = std::fs::read_to_string(folder().join(format!("{part}.dsl"))) else { break };
        let expected = std::fs::read_to_string(folder().join(format!("{part}.out"))).unwrap();
        let prefix = folder().join(name);
        let mut client =
            Client::with_files(&operators, move |file| PathBuf::from(format!("{}.{file}", prefix.display())));
        let (mut refused, mut wanted, mut ended) = (BTreeSet::new(), BTreeSet::new(), false);
        for (line, text) in (1..).zip(script.lines()) {
            if text.contains("-- error") {
                wanted.insert(line);
            }
            match client.run(text) {
                Ok(outcome) => ended |= outcome == Outcome::Shutdown,
                Err(error) => {
                    error.reports().iter().for_each(|report| {
                        assert!(report.to_string().starts_with(&format!("line {}: ", report.line)));
                        refused.insert(report.line);
                    });
                    println!("{part}: {error}");
                }
            }
        }
        assert_eq!(client.printed, expected, "what {part} prints");
        assert_eq!(refused, wanted, "the lines of {part} that are refused");
        if ended {
            drop(client);
            operators.database().close().unwrap();
            drop(operators);
            operators = open(database.path());
        }
        parts += 1;
    }
    assert!(parts > 0, "there is no script {name}");
}

macro_rules! scripts {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*
        #[test]
        fn every_script_is_run() {
            let known = [$(stringify!($name)),*];
            for entry in std::fs::read_dir(folder()).unwrap() {
                let file = entry.unwrap().file_name().into_string().unwrap();
                let name = file.split('.').next().unwrap();
                assert!(known.contains(&name), "{file} is of no test");
            }
        }
    };
}

scripts!(
    aggregates,
    arithmetic,
    batch,
    changes,
    errors,
    join,
    load,
    restart,
    two_predicates,
    spelling,
    printing,
    vectors,
    across_tables,
    extremes,
    switches,
    batch_failures,
    indexes
);
