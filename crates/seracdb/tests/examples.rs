//! The examples run, and each of them checks its own results.

use std::path::PathBuf;
use std::process::Command;

/// Where `cargo build --examples` puts them.
fn folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples")
}

fn names() -> Vec<String> {
    let sources = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap();
    let mut names: Vec<String> =
        sources.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_example_runs() {
    let names = names();
    assert!(names.len() >= 7, "{names:?}");
    for name in names {
        let program = folder().join(&name);
        let output = Command::new(&program).output().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {error}");
        assert!(!output.stdout.is_empty(), "{name} shows nothing");
    }
}
