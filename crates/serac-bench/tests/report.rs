//! Pages and plots of benchmarks are what the data gives, and runs can be added to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn report(docs: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serac-bench"));
    // The project's folder: there Git tells the commit.
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command.arg("report").arg("--docs").arg(docs).args(arguments).output().expect("it runs")
}

#[test]
fn pages_and_plots_are_what_the_data_gives() {
    let output = report(&docs(), &["--check"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A copy of what `report` reads and writes. It goes away at the end.
struct Copy(PathBuf);
impl Copy {
    fn new() -> Self {
        let copy = Self(std::env::temp_dir().join(format!("serac-report-test-{}", std::process::id())));
        for folder in ["", "figures", "benchmarks/results"] {
            let to = copy.0.join(folder);
            fs::create_dir_all(&to).unwrap();
            for entry in fs::read_dir(docs().join(folder)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
                }
            }
        }
        copy
    }
}
impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_run_is_added_and_shown() {
    let copy = Copy::new();
    let rows = copy.0.join("rows.json");
    fs::write(&rows, "{\"from\": \"log\", \"rows\": 100000, \"MB\": 67.5, \"seconds\": 0.123456789}\n").unwrap();
    let command = "target/release/serac-bench recovery";
    let rows_path = rows.to_str().unwrap();
    let add = ["--add", rows_path, "--series", "recovery", "--command", command, "--note", "a quiet hour"];
    let output = report(&copy.0, &add);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results = fs::read_to_string(copy.0.join("benchmarks/results/recovery.json")).unwrap();
    assert!(results.contains("\"note\": \"a quiet hour\"") && results.contains("\"seconds\": 0.123457"), "{results}");
    let page = fs::read_to_string(copy.0.join("benchmarks.md")).unwrap();
    assert!(page.contains("| log | 100,000 | 67.5 | 0.12 |"), "{page}");
    assert!(report(&copy.0, &["--check"]).status.success());

    // A row that the series does not know changes nothing.
    fs::write(&rows, "{\"from\": \"log\", \"hours\": 3}\n").unwrap();
    let output = report(&copy.0, &add);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no column \\\"hours\\\""), "{output:?}");
    assert_eq!(fs::read_to_string(copy.0.join("benchmarks/results/recovery.json")).unwrap(), results);

    // A page that was changed by hand is told.
    fs::write(copy.0.join("benchmarks.md"), page.replace("| 67.5 |", "| 66 |")).unwrap();
    let output = report(&copy.0, &["--check"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("benchmarks.md"), "{output:?}");
}
