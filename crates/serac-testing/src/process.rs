//! Processes that a test starts.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

const SIGKILL: i32 = 9;

/// Runs a command to its end: its output, its error output, and whether it succeeded.
///
/// # Panics
/// If the command cannot be started.
pub fn ran(command: &mut Command) -> (String, String, bool) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.success())
}

/// This test binary again, to run one of its tests, even an ignored one.
///
/// # Panics
/// If the binary cannot be found.
pub fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
    command.args(["--include-ignored", "--exact", name, "--nocapture"]);
    command
}

/// Runs a process for a time and kills it. Returns the lines of its output. The last may be cut
/// off.
///
/// # Panics
/// If the process ends by itself, with its error output.
pub fn killed_after(command: &mut Command, time: Duration) -> Vec<String> {
    let messages = tempfile::NamedTempFile::new().expect("there is a place for files");
    let errors = messages.reopen().expect("the file is there");
    let mut child = command.stdout(Stdio::piped()).stderr(errors).spawn().expect("the process starts");
    let output = child.stdout.take().expect("it is a pipe");
    let reader =
        std::thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).collect::<Vec<String>>());
    std::thread::sleep(time);
    child.kill().expect("it is ours");
    let status = child.wait().expect("it is ours");
    let said = std::fs::read(messages.path()).expect("the file is there");
    let said = String::from_utf8_lossy(&said);
    assert_eq!(status.signal(), Some(SIGKILL), "the process ended by itself: {said}");
    reader.join().expect("it only reads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_has_said_is_there() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo a; echo b; exec sleep 60"]);
        assert_eq!(killed_after(&mut shell, Duration::from_secs(1)), ["a", "b"]);
    }

    #[test]
    fn a_command_gives_both_outputs_and_its_success() {
        let mut shell = Command::new("sh");
        let (output, error, succeeded) = ran(shell.args(["-c", "echo a; echo b >&2; exit 1"]));
        assert_eq!((output.as_str(), error.as_str(), succeeded), ("a\n", "b\n", false));
    }
}
