//! The built binary, run to its end.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};

/// `serac` with these arguments, and pipes for its standard streams.
pub fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serac"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The tests may run in the background or under nohup, where signals are ignored, also by
    // children.
    let with_signals = || {
        for signal in [libc::SIGHUP, libc::SIGINT] {
            // SAFETY: it may be called between fork and exec, and changes this process alone.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: see there.
    unsafe { command.pre_exec(with_signals) };
    command.spawn().unwrap()
}

/// The output of `serac` with these arguments and this standard input.
pub fn serac(arguments: &[&str], input: impl AsRef<[u8]>) -> Output {
    let mut child = start(arguments);
    // A command that fails early does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_ref());
    child.wait_with_output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
