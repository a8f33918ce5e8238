//! TPC-C stays consistent: under contention, and when the process is killed in mid-run.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serac-bench"));
    command.arg("tpcc").args(arguments).stderr(Stdio::piped());
    command
}

struct Folder(PathBuf);
impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("serac-tpcc-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn conditions_hold_after_contention_and_transformation() {
    let arguments = [
        "--threads",
        "4",
        "--warehouses",
        "1",
        "--durability",
        "off",
        "--transformation",
        "view",
        "--seconds",
        "2",
        "--json",
    ];
    // The run itself checks the conditions at its end.
    let output = bench(&arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// With full durability, what was acknowledged before the kill is there after recovery, and the
/// conditions hold.
#[test]
fn a_kill_in_mid_run_loses_nothing_acknowledged() {
    let folder = Folder::new("kill");
    let path = folder.0.to_str().expect("a path of ours");
    let arguments = [
        "--threads",
        "2",
        "--durability",
        "full",
        "--clients",
        "16",
        "--seconds",
        "600",
        "--path",
        path,
        "--print-orders",
    ];
    let mut child = bench(&arguments).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut newest: HashMap<(i32, i32), i32> = HashMap::new();
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let orders = if serac_testing::stress() { 200_000 } else { 3_000 };
    let mut seen = 0;
    for line in lines {
        // The last line may have been cut off by the kill.
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split(' ').collect();
        let numbers: Vec<i32> = words.iter().skip(1).filter_map(|word| word.parse().ok()).collect();
        if let (&["order", ..], &[w, d, number]) = (&words[..], &numbers[..]) {
            let known = newest.entry((w, d)).or_default();
            *known = number.max(*known);
            seen += 1;
        }
        if seen == orders {
            child.kill().expect("it runs still");
        }
    }
    child.wait().expect("it was ours");
    assert!(seen >= orders, "only {seen} orders were acknowledged");

    let output = bench(&["--check-only", "--path", path]).output().expect("it runs");
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && answer.contains("consistent"),
        "{answer}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut checked = 0;
    for line in answer.lines().filter_map(|line| line.strip_prefix("next ")) {
        let numbers: Vec<i32> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
        let acknowledged = newest.get(&(numbers[0], numbers[1])).copied().unwrap_or(0);
        assert!(numbers[2] > acknowledged, "order {acknowledged} of district {line} was acknowledged");
        checked += 1;
    }
    assert_eq!(checked, 20, "districts");
}
