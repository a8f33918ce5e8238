//! The end of a process that works in a folder.
//!
//! If it has the folder open, other processes may work through it. Their statements and
//! transactions go on for the time that `--wait` says; Ctrl-C shortens that. Then they are ended,
//! as at the end of a server. Meanwhile no other process waits for this one: it has closed its
//! standard input and output, whose other end may be the statement that it waits for
//! (`serac my.db -c … | serac my.db -c …`).
//!
//! SIGTERM, and SIGHUP unless it is ignored, end the process's own work at once: its statement is
//! cancelled, and no other begins. Others' statements may go on for the `shutdown_timeout` of their
//! server. Then the database is closed, so that acknowledged commits are kept at every level of
//! durability, and the next process opens it. A second signal ends the process as SIGKILL does.

use serac_server::folder::{CancelRunning, FolderDatabase, FolderSession, SessionOptions};
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The default of the time that the end waits for other processes.
pub const WAIT_SECONDS: u64 = 60;
/// The time that the end waits for other processes before it reports the wait.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// The exit status of a program that a signal has ended is this plus the signal's number.
const SIGNALLED: i32 = 128;

/// The phase of the process's end.
#[derive(Default)]
struct End {
    /// The work has ended, or a signal has come. The thread that sets it first closes the database.
    has_begun: AtomicBool,
    /// The process no longer waits for other processes.
    is_urgent: AtomicBool,
    /// Cancels the work.
    running: OnceLock<CancelRunning>,
}

/// Whether the process was started with a signal ignored, as by nohup.
fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: Without a new action the call only writes the present one; zeros are a valid value.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Ends the process at a signal.
async fn at_signal(kind: SignalKind, database: FolderDatabase, end: Arc<End>) {
    if is_ignored(kind.as_raw_value()) {
        return;
    }
    let Ok(mut signals) = signal(kind) else { return };
    let _ = signals.recv().await;
    end.is_urgent.store(true, Ordering::SeqCst);
    let is_first = !end.has_begun.swap(true, Ordering::SeqCst);
    let close = async {
        if !is_first {
            // The main thread closes the database, or the task of the other signal does.
            return std::future::pending().await;
        }
        let closing = tokio::task::spawn_blocking(move || database.terminate(end.running.get()));
        if let Ok(Err(error)) = closing.await {
            // The terminal may be gone.
            let _ = writeln!(std::io::stderr(), "{error}");
        }
    };
    tokio::select! {
        () = close => {}
        _ = signals.recv() => {}
    }
    std::process::exit(SIGNALLED + kind.as_raw_value());
}

/// Ctrl-C. From the first use on, a key press is kept until it is asked for: a new listener each
/// time would miss those in between.
pub struct Interrupts(Option<Signal>);

impl Interrupts {
    /// Begins to listen. Call it in a runtime.
    pub fn listen() -> Self {
        Self(signal(SignalKind::interrupt()).ok())
    }

    /// Waits for the next key press.
    pub async fn next(&mut self) {
        match &mut self.0 {
            Some(signals) => _ = signals.recv().await,
            None => std::future::pending().await,
        }
    }
}

/// Puts /dev/null in the place of a standard stream.
fn let_go(stream: i32) {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        // SAFETY: Both are open files, and dup2 touches no memory of ours. Standard streams have no
        // owner, so this closes no file of other code.
        unsafe { libc::dup2(null.as_raw_fd(), stream) };
    }
}

/// The pipe or socket that a standard stream is.
fn pipe_of(stream: i32) -> Option<(u64, u64)> {
    let found = std::fs::metadata(format!("/proc/self/fd/{stream}")).ok()?;
    let is_pipe = found.file_type().is_fifo() || found.file_type().is_socket();
    is_pipe.then(|| (found.dev(), found.ino()))
}

/// Runs work in a session of a database, and closes the database if this process has it open.
/// `wait`: the seconds that other processes have to finish their statements and transactions.
pub fn with_session<F: Future<Output = Result<(), String>>>(
    runtime: &tokio::runtime::Runtime,
    database: &FolderDatabase,
    options: SessionOptions,
    wait: u64,
    work: impl FnOnce(FolderSession) -> F,
) -> Result<(), String> {
    let end = Arc::new(End::default());
    for kind in [SignalKind::terminate(), SignalKind::hangup()] {
        runtime.spawn(at_signal(kind, database.clone(), end.clone()));
    }
    let worked = runtime.block_on(async {
        let session = database.session(options).await.map_err(|error| error.to_string())?;
        let _ = end.running.set(session.cancel_handle());
        work(session).await
    });
    if end.has_begun.swap(true, Ordering::SeqCst) {
        // The process ends elsewhere, when the database is closed.
        loop {
            std::thread::park();
        }
    }
    // The error is printed now: the wait may take long, and standard error may be given up.
    let worked = worked.map_err(|message| {
        if !message.is_empty() {
            eprintln!("{message}");
        }
        String::new()
    });
    let noted = end.clone();
    runtime.spawn(async move {
        Interrupts::listen().next().await;
        noted.is_urgent.store(true, Ordering::SeqCst);
    });
    let shares_error_stream = pipe_of(2).is_some() && pipe_of(2) == pipe_of(1);
    let _ = std::io::stdout().flush();
    let_go(0);
    let_go(1);
    let mut is_told = false;
    let closed = database.close_when_idle(|running, waited| {
        if waited > TOLD_AFTER && !std::mem::replace(&mut is_told, true) {
            // Text written there now would be taken for the work's output (`2>&1 |`).
            if shares_error_stream {
                let_go(2);
            }
            eprintln!(
                "waiting for {running} statements of other processes, {wait} seconds at most; Ctrl-C cancels them"
            );
        }
        waited.as_secs() < wait && !end.is_urgent.load(Ordering::SeqCst)
    });
    worked.and(closed.map_err(|error| error.to_string()))
}
