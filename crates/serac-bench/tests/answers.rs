//! Random queries have PostgreSQL's answers.

use std::path::Path;
use std::process::Command;

#[test]
fn random_queries_have_the_answers_of_postgresql() {
    let bench = Path::new(env!("CARGO_BIN_EXE_serac-bench"));
    let seeds = if serac_testing::stress() { "40" } else { "4" };
    let mut command = Command::new(bench);
    // Python stands in the project's folder.
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command.args(["answers", "--queries", "60", "--seeds", seeds, "--serac"]).arg(bench.with_file_name("serac"));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("PostgreSQL 15 is not installed") {
        eprintln!("left out: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
}
