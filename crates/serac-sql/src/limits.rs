//! Reasons that end a statement from outside: cancellation, its timeout, a panic.
//!
//! A part of a statement that waits is dropped ([`Limits::keep`]). A part that computes for long
//! asks now and then: [`Limits::check`], or [`check_statement`] where the limits are out of reach.

use crate::error::{Result, SqlError};
use futures::FutureExt;
use std::cell::RefCell;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

/// Defaults for a session's settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionDefaults {
    /// The time that a statement may take; `None` for no limit.
    pub statement_timeout: Option<Duration>,
    /// The time that the session may be idle with a transaction open; `None` for no limit.
    pub idle_in_transaction_session_timeout: Option<Duration>,
    /// The time that the session may be idle; `None` for no limit.
    pub idle_session_timeout: Option<Duration>,
    /// Bytes that its queries may use; `None` for no limit of its own.
    pub work_mem: Option<usize>,
    /// The largest value of `work_mem`; `None` for no bound.
    pub max_work_mem: Option<usize>,
    /// Connections at a time, as `max_connections` shows them; 0 for no limit.
    pub max_connections: usize,
}

/// A session, from any thread: cancels its running statement, and says which transaction it is in.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    cancelled: Arc<Notify>,
    /// How often it was cancelled. Relaxed: a late read computes some more rows.
    cancels: Arc<AtomicU64>,
    /// The number of its transaction, 0 without one. Relaxed: a reader learns of a moment that may
    /// have passed.
    transaction: Arc<AtomicU64>,
}

impl CancelHandle {
    /// Cancels the running statement, if there is one.
    pub fn cancel(&self) {
        self.cancels.fetch_add(1, Ordering::Relaxed);
        self.cancelled.notify_waiters();
    }

    /// Ready at the next [`cancel`](Self::cancel) after this call, also if there is no waiter yet.
    /// For callers that run statements without a session.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static {
        self.cancelled.clone().notified_owned()
    }

    /// The number of the session's transaction on the database, if it has one.
    pub fn transaction(&self) -> Option<u64> {
        Some(self.transaction.load(Ordering::Relaxed)).filter(|number| *number != 0)
    }

    /// How often it was cancelled.
    pub(crate) fn count(&self) -> u64 {
        self.cancels.load(Ordering::Relaxed)
    }

    pub(crate) fn note_transaction(&self, number: u64) {
        self.transaction.store(number, Ordering::Relaxed);
    }
}

pub(crate) fn cancelled() -> SqlError {
    SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
}
fn timed_out() -> SqlError {
    SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to statement timeout")
}

/// The time that a statement may keep a thread which others need as well.
const PATIENCE: Duration = Duration::from_millis(20);

/// The SQLSTATE of a statement that has to go on elsewhere. No client sees it.
pub(crate) const ELSEWHERE: &str = sqlstate::OBJECT_IN_USE;

/// The limits of one statement: it may be cancelled, and has a time to run.
pub struct Limits {
    cancelled: Pin<Box<OwnedNotified>>,
    end: End,
}

/// The time at which a statement has to end.
#[derive(Clone)]
pub(crate) struct End {
    cancels: Arc<AtomicU64>,
    /// The session's cancellations before the statement.
    before: u64,
    deadline: Option<Instant>,
    /// The time from which its thread is needed for others, so that it has to go on elsewhere.
    elsewhere: Option<Instant>,
}

impl End {
    /// Of a statement that starts now.
    fn new(cancel: &CancelHandle, timeout: Option<Duration>) -> Self {
        Self {
            cancels: cancel.cancels.clone(),
            // Relaxed: as in `CancelHandle`.
            before: cancel.cancels.load(Ordering::Relaxed),
            deadline: timeout.map(|timeout| Instant::now() + timeout),
            elsewhere: None,
        }
    }

    /// Of a statement that starts now, on a thread that others need as well.
    pub(crate) fn of_shared_thread(cancel: &CancelHandle, timeout: Option<Duration>) -> Self {
        Self { elsewhere: Some(Instant::now() + PATIENCE), ..Self::new(cancel, timeout) }
    }

    /// To be called now and then.
    ///
    /// # Errors
    /// 57014 when the statement is cancelled or its time is over; [`ELSEWHERE`].
    pub(crate) fn check(&self) -> Result<()> {
        // Relaxed: as in `CancelHandle`.
        if self.cancels.load(Ordering::Relaxed) != self.before {
            return Err(cancelled());
        }
        let is_over = |time: Option<Instant>| time.is_some_and(|time| Instant::now() >= time);
        if is_over(self.deadline) {
            return Err(timed_out());
        }
        if is_over(self.elsewhere) {
            Err(SqlError::new(ELSEWHERE, "the statement takes too long here"))
        } else {
            Ok(())
        }
    }

    /// Runs `part` as a part of this statement.
    pub(crate) fn within<T>(&self, part: impl FnOnce() -> T) -> T {
        /// Puts back what was there, also after a panic.
        struct Outer(Option<End>);
        impl Drop for Outer {
            fn drop(&mut self) {
                RUNNING.set(self.0.take());
            }
        }
        let _outer = Outer(RUNNING.replace(Some(self.clone())));
        part()
    }
}

thread_local! {
    /// The end of the statement of which this thread runs a part.
    static RUNNING: RefCell<Option<End>> = const { RefCell::new(None) };
}

/// To be called now and then by code that runs on its statement's thread and does not wait.
///
/// # Errors
/// 57014 when the statement is cancelled or its time is over.
pub(crate) fn check_statement() -> Result<()> {
    RUNNING.with_borrow(|end| end.as_ref().map_or(Ok(()), End::check))
}

/// The limits of a statement, for code that it calls: from any thread.
#[derive(Clone)]
pub struct RunningStatement(End);

impl RunningStatement {
    /// The statement of which this thread runs a part; `None` outside of statements.
    pub fn of_this_thread() -> Option<Self> {
        RUNNING.with_borrow(|end| end.as_ref().map(|end| Self(End { elsewhere: None, ..end.clone() })))
    }

    /// To be called now and then.
    ///
    /// # Errors
    /// 57014 when the statement is cancelled or its time is over.
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }
}

/// Keeps this thread's statement where it is: it is about to do what would be done twice if it went
/// on elsewhere, as taking an advisory lock.
pub(crate) fn keep_statement_here() {
    RUNNING.with_borrow_mut(|end| {
        if let Some(end) = end {
            end.elsewhere = None;
        }
    });
}

impl Limits {
    /// For a statement that starts now.
    pub(crate) fn new(cancel: &CancelHandle, timeout: Option<Duration>) -> Self {
        // First the notification: a cancellation between the two is noticed twice, not missed.
        let cancelled = Box::pin(cancel.cancelled.clone().notified_owned());
        Self { cancelled, end: End::new(cancel, timeout) }
    }

    /// Runs a part of the statement; a panic is an error like any other.
    ///
    /// # Errors
    /// 57014 when the statement is cancelled or its time is over.
    pub async fn keep<T>(&mut self, part: impl Future<Output = Result<T>>) -> Result<T> {
        let end = &self.end;
        let deadline = end.deadline;
        let mut part = pin!(AssertUnwindSafe(part).catch_unwind());
        let part = poll_fn(|context| end.within(|| part.as_mut().poll(context)));
        let time_out = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = &mut self.cancelled => Err(cancelled()),
            result = part => result.unwrap_or_else(|panic| Err(SqlError::of_panic(&*panic))),
            () = time_out => Err(timed_out()),
        }
    }

    /// To be called now and then by a part of the statement that does not wait.
    ///
    /// # Errors
    /// As for [`keep`](Self::keep).
    pub(crate) fn check(&self) -> Result<()> {
        self.end.check()
    }
}
