//! The storage's own threads: the log's, garbage collection's, compaction's.
//!
//! On Linux they run as batch work (`SCHED_BATCH`): a thread that is woken takes an idle processor
//! at once, but does not push aside a thread that serves clients. If all processors are busy, more
//! commits gather for one sync of the log.

use crate::error::{Result, StorageError};
use serac_sync::thread::{Builder, JoinHandle};

/// Starts a thread for `whom`.
///
/// # Errors
/// [`StorageError::Io`] if there can be no more threads.
pub(crate) fn spawn(name: String, whom: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = Builder::new().name(name).spawn(move || {
        give_way();
        run();
    });
    thread.map_err(|e| StorageError::io(format!("cannot start {whom}'s thread"), e))
}

#[cfg(target_os = "linux")]
fn give_way() {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: `priority` is read during the call alone; 0 is the calling thread. If it is refused,
    // the thread runs at ordinary priority.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const priority) };
}

#[cfg(not(target_os = "linux"))]
fn give_way() {}
