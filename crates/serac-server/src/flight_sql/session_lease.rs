//! Sessions, and their leases.
//!
//! A session does one task at a time. A session that sends the rows of a query is not free before
//! the last of them is computed. If another call waits for it, the remaining rows are computed
//! ahead of the client, up to a limit ([`super::stream`]). So a client that reads two results in
//! turns does not wait for itself.

use super::status::{error, status_of};
use serac_engine::DecimalForm;
use serac_sql::{CancelHandle, Session, SqlError, TransactionStatus};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, mpsc};
use tonic::Status;

/// The time that a call waits for its session.
const PATIENCE: Duration = Duration::from_secs(30);

/// A session in use.
pub(super) type LeasedSession = OwnedMutexGuard<Session>;

/// The owner of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// One call or one prepared statement: the session's state is lost afterwards.
    Lone,
    /// Successive transactions.
    Transactions,
    /// A client that keeps the server's cookie.
    Client,
}

/// A session and its known state without a lease.
pub(super) struct SessionLease {
    session: Arc<Mutex<Session>>,
    pub(super) cancel: CancelHandle,
    kind: Kind,
    /// The number of calls that wait for it.
    waiting: AtomicUsize,
    wanted: Notify,
    /// Its transaction was rolled back behind the client's back.
    has_expired: AtomicBool,
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Relaxed: a reader that counts too many only computes ahead in vain.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SessionLease {
    pub(super) fn new(session: Session, kind: Kind) -> Self {
        Self {
            cancel: session.cancel_handle(),
            session: Arc::new(Mutex::new(session)),
            kind,
            waiting: AtomicUsize::new(0),
            wanted: Notify::new(),
            has_expired: AtomicBool::new(false),
        }
    }

    /// Waits until the session is free, and takes it.
    pub(super) async fn take(&self) -> Result<LeasedSession, Status> {
        let mut session = {
            // SeqCst, as in `wanted`: either the count is seen there, or the wake-up is still to
            // come.
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let _waiting = Waiting(&self.waiting);
            self.wanted.notify_waiters();
            let busy =
                |_| error(sqlstate::OBJECT_IN_USE, "the session is busy: it sends unread rows, or runs a statement");
            tokio::time::timeout(PATIENCE, self.session.clone().lock_owned()).await.map_err(busy)?
        };
        // Relaxed: the lock orders it. A client's session continues after the client was told; a
        // statement prepared in a transaction does not continue without one.
        if self.has_expired.load(Ordering::Relaxed) {
            self.has_expired.store(self.kind != Kind::Client, Ordering::Relaxed);
            return Err(error(
                sqlstate::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                "the transaction has been rolled back: nothing was heard of it for too long",
            ));
        }
        // A form that a query did not use is not for the next one.
        session.set_next_decimals(DecimalForm::default());
        Ok(session)
    }

    /// Waits until another call waits for the session.
    pub(super) async fn wanted(&self) {
        loop {
            let notified = self.wanted.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.waiting.load(Ordering::SeqCst) > 0 {
                return;
            }
            notified.await;
        }
    }

    pub(super) fn is_lone(&self) -> bool {
        self.kind == Kind::Lone
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.session.try_lock().is_err()
    }

    /// Whether nothing runs, and no transaction is open.
    pub(super) fn is_idle(&self) -> bool {
        self.session.try_lock().is_ok_and(|session| session.transaction_status() == TransactionStatus::Idle)
    }

    /// Rolls back the session's transaction, if there is an abandoned one.
    pub(super) fn expire(&self) {
        if let Ok(mut session) = self.session.try_lock()
            && session.transaction_status() != TransactionStatus::Idle
        {
            session.rollback();
            self.has_expired.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the session for a new transaction, if it is not in a transaction.
    pub(super) async fn take_anew(&self) -> Result<LeasedSession, Status> {
        self.has_expired.store(false, Ordering::Relaxed);
        self.take().await
    }

    /// Runs work to its end with this session; cancels it if the caller goes away.
    pub(super) async fn attend<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, Status> {
        self.attend_caller(|_| work).await
    }

    /// As [`attend`](Self::attend), for work of many parts. Between two parts no statement runs
    /// that could be cancelled, so the work itself checks whether the caller is still there.
    ///
    /// The task that has the session cancels it, so that no other client's statement is hit: the
    /// session is free only when the task has ended.
    pub(super) async fn attend_caller<T: Send + 'static, W>(&self, work: impl FnOnce(Awaited) -> W) -> Result<T, Status>
    where
        W: Future<Output = Result<T, SqlError>> + Send + 'static,
    {
        let (awaited, _caller) = mpsc::channel(1);
        let (awaited, cancel) = (Awaited(awaited), self.cancel.clone());
        let work = work(awaited.clone());
        let attended = async move {
            tokio::pin!(work);
            tokio::select! {
                biased;
                result = &mut work => return result,
                () = awaited.0.closed() => cancel.cancel(),
            }
            work.await
        };
        match tokio::spawn(attended).await {
            Ok(result) => result.map_err(|error| status_of(&error)),
            Err(panic) => Err(error(sqlstate::INTERNAL_ERROR, format!("internal error: {panic}"))),
        }
    }
}

/// Whether a caller still waits for a task's work. The other end of the channel is dropped with the
/// call, and nothing is ever sent.
#[derive(Clone)]
pub(super) struct Awaited(mpsc::Sender<Infallible>);

impl Awaited {
    /// # Errors
    /// 57014 once the caller has gone.
    pub(super) fn check(&self) -> Result<(), SqlError> {
        match self.0.is_closed() {
            true => Err(SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement because its client has gone")),
            false => Ok(()),
        }
    }
}
