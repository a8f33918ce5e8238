//! A program beside the benchmark that answers each line with a line of JSON: a Python script, or
//! this program as a client.

use crate::setup::text;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running program. It is ended when this is dropped.
pub struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts a script of `peers/`. Also returns the version that it reports.
    pub fn start<A: AsRef<OsStr>>(
        script: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<(Self, String), String> {
        Self::run(Self::script("peers", script).args(arguments)).map_err(|error| Self::cannot_start(script, &error))
    }

    /// As [`start`](Self::start), without arguments, but with variables of the environment, and with
    /// the packages of an environment of `target`.
    pub fn start_with<V: AsRef<OsStr>>(
        packages: &str,
        script: &str,
        variables: impl IntoIterator<Item = (&'static str, V)>,
    ) -> Result<(Self, String), String> {
        Self::run(Self::script(packages, script).envs(variables)).map_err(|error| Self::cannot_start(script, &error))
    }

    fn script(packages: &str, name: &str) -> Command {
        let mut command = Command::new(Path::new("target").join(packages).join("bin/python"));
        command.arg(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers")).join(name));
        command
    }

    fn cannot_start(script: &str, error: &str) -> String {
        format!(
            "cannot start {script} ({error}); run scripts/peers and scripts/python first, and this from the project's folder"
        )
    }

    /// Starts a program. Also returns the version that it reports.
    pub fn run(command: &mut Command) -> Result<(Self, String), String> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(text)?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut peer = Self { child, input, output };
        let ready = peer.answer()?;
        Ok((peer, ready["ready"].as_str().unwrap_or("?").to_owned()))
    }

    fn answer(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        if self.output.read_line(&mut line).map_err(text)? == 0 {
            return Err("the peer has ended".into());
        }
        let answer: Value = serde_json::from_str(&line).map_err(text)?;
        match answer["error"].as_str() {
            Some(error) => Err(format!("the peer says: {error}")),
            None => Ok(answer),
        }
    }

    /// Sends a line, and returns the answer. Line ends within it become blanks.
    pub fn ask(&mut self, line: &str) -> Result<Value, String> {
        writeln!(self.input, "{}", line.replace('\n', " ")).map_err(text)?;
        self.input.flush().map_err(text)?;
        self.answer()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
