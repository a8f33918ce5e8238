//! What a session is doing, to be asked from any thread: for progress bars.

use seracdb::{CopyProgress, ScanProgress, Session};
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// The times below are milliseconds since this moment, the first use of it.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// How far a statement is: the seconds since it began, whether it computes now, a number that
/// changes whenever it has computed, and what is done, all of it, and what it is.
pub type Progress = (f64, bool, u64, (u64, u64, &'static str));

/// The work of a session's statements. All accesses are relaxed: they are figures.
pub struct Work {
    scans: Arc<ScanProgress>,
    copy: Arc<CopyProgress>,
    /// When the last statement began, plus one; 0 before the first.
    began_ms: AtomicU64,
    /// Threads that compute, or wait for the session to do so.
    computing: AtomicU32,
    /// How often one has ended to.
    computed: AtomicU64,
}

/// A thread that computes.
pub struct Computing<'a>(&'a Work);

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        self.0.computing.fetch_sub(1, Ordering::Relaxed);
        self.0.computed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Work {
    /// The work of a session, of which no statement has run.
    pub fn of(session: &Session) -> Self {
        Self {
            scans: session.scan_progress(),
            copy: session.copy_progress(),
            began_ms: AtomicU64::new(0),
            computing: AtomicU32::new(0),
            computed: AtomicU64::new(0),
        }
    }

    /// Notes that a statement begins.
    pub fn begins(&self) {
        if self.computing.load(Ordering::Relaxed) == 0 {
            // What is left of the statement before; the session does the same for each query.
            self.scans.restart();
            self.copy.restart();
        }
        self.began_ms.store(START.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
    }

    /// Notes that this thread computes, until the result is dropped.
    pub fn computes(&self) -> Computing<'_> {
        self.computing.fetch_add(1, Ordering::Relaxed);
        Computing(self)
    }

    /// As `Connection._progress` gives it.
    pub fn progress(&self) -> Option<Progress> {
        let began_ms = self.began_ms.load(Ordering::Relaxed).checked_sub(1)?;
        let seconds = (START.elapsed().as_millis() as u64).saturating_sub(began_ms) as f64 / 1e3;
        let (computing, computed) = (self.computing.load(Ordering::Relaxed) > 0, self.computed.load(Ordering::Relaxed));
        let input = match (self.copy.input(), self.copy.rows()) {
            ((done, total), _) if total > 0 => (done, total, "input"),
            (_, rows) if rows > 0 => (rows, 0, "rows"),
            _ => {
                let (begun, all) = self.scans.blocks();
                (begun, all, "blocks")
            }
        };
        Some((seconds, computing, computed, input))
    }
}
