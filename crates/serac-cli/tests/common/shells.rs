//! Shells that work in one folder.

use crate::common::{serac, start, text};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};

/// A shell that runs statements as they come.
pub struct Shell {
    pub child: Child,
    pub input: Option<ChildStdin>,
    pub lines: Lines<BufReader<ChildStdout>>,
}

impl Shell {
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        let usual = [folder.to_str().unwrap(), "--mode", "csv", "--continue-on-error"];
        let mut child = start(&[&usual, arguments].concat());
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, lines }
    }

    /// A shell that has the folder open, or works in it.
    pub fn ready(folder: &Path) -> Self {
        let mut shell = Self::start(folder, &[]);
        assert_eq!(shell.ask("SELECT 1 AS one;"), ["one", "1"]);
        shell
    }

    pub fn send(&mut self, script: &str) {
        writeln!(self.input.as_mut().unwrap(), "{script}").unwrap();
    }

    /// The lines that a script writes, up to a mark behind it; `None` if the shell ends before it.
    pub fn try_ask(&mut self, script: &str) -> Option<Vec<String>> {
        // A mark that is written whether the database can be reached or not.
        writeln!(self.input.as_mut().unwrap(), "{script}\nthe end \\p\n\\r").ok()?;
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        let shown = lines.by_ref().take_while(|line| line != "the end").collect();
        (lines.next()? == "Query buffer reset (cleared).").then_some(shown)
    }

    pub fn ask(&mut self, script: &str) -> Vec<String> {
        self.try_ask(script).unwrap_or_else(|| panic!("the shell has ended before the end of {script}"))
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the script; returns its standard error, and whether all succeeded.
    pub fn finish(mut self) -> (String, bool) {
        drop(self.input.take());
        let mut error = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut error).unwrap();
        (error, self.child.wait().unwrap().success())
    }
}

pub fn folder() -> (tempfile::TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("db");
    (outer, path)
}

pub fn run(folder: &Path, arguments: &[&str], input: &str) -> (String, String, bool) {
    let mut all = vec![folder.to_str().unwrap(), "--mode", "csv"];
    all.extend(arguments);
    let output = serac(&all, input);
    (text(&output.stdout), text(&output.stderr), output.status.success())
}

/// A statement that does not end by itself.
pub const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 1000000000000) AS g (a);";
/// Counts the sessions that run it.
pub const ENDLESS_RUNNING: &str = "SELECT count(*) AS n FROM pg_stat_activity \
    WHERE query LIKE '%1000000000000%' AND query NOT LIKE '%stat_activity%' AND state = 'active';";

/// Waits until so many sessions run the endless statement.
pub fn wait_for_endless(holder: &mut Shell, count: usize) {
    let wanted = ["n".to_owned(), count.to_string()];
    serac_testing::wait_for("the endless statements run", || holder.ask(ENDLESS_RUNNING), |shown| *shown == wanted);
}

/// Checks that the acknowledged rows of each writer are in `t (writer, …)`.
pub fn check_acknowledged(folder: &Path, acknowledged: &[AtomicU64]) {
    let (shown, error, succeeded) =
        run(folder, &["-c", "SELECT writer, count(*) AS n FROM t GROUP BY writer ORDER BY writer"], "");
    assert!(succeeded, "{error}");
    let counts: Vec<u64> = shown.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect();
    for (writer, acknowledged) in acknowledged.iter().enumerate() {
        let acknowledged = acknowledged.load(Ordering::Relaxed);
        let there = counts.get(writer).copied().unwrap_or(0);
        println!("writer {writer}: {acknowledged} acknowledged, {there} there");
        assert!(acknowledged > 0 && there >= acknowledged);
    }
}
