//! Processes that a test starts.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
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

/// A process whose output is read by lines. A test that fails leaves none behind.
#[derive(Debug)]
pub struct Process {
    /// `None` once [`Process::end`] has it.
    child: Option<Child>,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Process {
    /// Starts it, with a pipe for its output.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let started = command.stdout(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let lines = child.stdout.take().map(|output| BufReader::new(output).lines());
        Self { child: Some(child), lines }
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it has not been taken")
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.as_ref().expect("it has not been taken").id()
    }

    /// The next line of its output.
    ///
    /// # Panics
    /// If there is none.
    pub fn line(&mut self) -> String {
        let line = self.lines.as_mut().and_then(Iterator::next).and_then(Result::ok);
        line.unwrap_or_else(|| panic!("the process says no more: {:?}", self.child().try_wait()))
    }

    /// Reads its output up to this line.
    ///
    /// # Panics
    /// If the line does not come.
    pub fn read_to(&mut self, wanted: &str) {
        while self.line() != wanted {}
    }

    /// Sends a signal, as in `-TERM`.
    ///
    /// # Panics
    /// If the command `kill` fails.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{signal} is not sent");
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// If the system does not say.
    pub fn is_running(&mut self) -> bool {
        self.child().try_wait().expect("it is ours").is_none()
    }

    /// Kills it.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(&mut self) {
        self.child().kill().expect("it is ours");
        self.wait();
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If the system does not say how it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.child().wait().expect("it is ours")
    }

    /// Waits for its end, and reads its error output, if that is a pipe. The rest of its output is
    /// not read.
    ///
    /// # Panics
    /// If the error output cannot be read.
    pub fn end(mut self) -> Output {
        drop(self.lines.take());
        let child = self.child.take().expect("it has not been taken");
        child.wait_with_output().expect("it is ours")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_by_lines_and_ends_with_its_value() {
        let mut shell = Command::new("sh");
        let mut process = Process::start(shell.args(["-c", "echo a; echo b; exec sleep 60"]));
        process.read_to("b");
        assert!(process.is_running());
        let id = process.id();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists(), "it is gone");
    }

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
