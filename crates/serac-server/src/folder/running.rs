//! The running statement of a connection, and its cancellation from another connection.
//!
//! A cancellation names its statement. It may come before the statement does, by another
//! connection: it is kept until the statement begins. The latch is held while the number is
//! compared and the activity is told, so that a cancellation meets no later statement.

use parking_lot::Mutex;
use serac_sql::activity::{Activity, Registered};
use serac_sql::{CancelHandle, SqlError};
use std::any::Any;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Images that a client may have at a time.
const MOST_LEASES: usize = 256;

#[derive(Debug, Default)]
struct Numbers {
    /// The statement that runs.
    current: Option<u64>,
    /// The one that began last.
    begun: u64,
    /// A later one, which was cancelled before it began.
    cancelled: Option<u64>,
}

/// Keeps an image alive.
struct Lease {
    _kept: Box<dyn Any + Send>,
    /// Ends the lease at its time.
    timer: Option<AbortHandle>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
    }
}

/// The images that are kept alive, by the numbers of their leases.
#[derive(Default)]
struct Leases {
    /// The number of the last one. A client does not choose it. With a used number, a lease would
    /// replace another one, whose image the client still has.
    last: u64,
    all: HashMap<u64, Lease>,
}

impl Leases {
    fn check_room(&self) -> Result<(), SqlError> {
        match self.all.len() < MOST_LEASES {
            true => Ok(()),
            false => Err(SqlError::new(
                sqlstate::CONFIGURATION_LIMIT_EXCEEDED,
                format!("a connection has at most {MOST_LEASES} images at a time"),
            )),
        }
    }
}

/// The state that a connection's task, its reader and cancelling connections share.
pub(super) struct Running {
    registered: Registered,
    cancel: CancelHandle,
    secret: u64,
    numbers: Mutex<Numbers>,
    leases: Mutex<Leases>,
    /// Whether the client has gone.
    gone: watch::Sender<bool>,
}

impl Running {
    pub(super) fn new(registered: Registered, cancel: CancelHandle) -> Self {
        Self {
            registered,
            cancel,
            secret: rand::random(),
            numbers: Mutex::default(),
            leases: Mutex::default(),
            gone: watch::Sender::new(false),
        }
    }

    pub(super) fn activity(&self) -> &Activity {
        &self.registered
    }

    pub(super) fn secret(&self) -> u64 {
        self.secret
    }

    /// Notes that a statement begins, of which the activity knows.
    pub(super) fn begin(&self, statement: u64) {
        let mut numbers = self.numbers.lock();
        (numbers.current, numbers.begun) = (Some(statement), statement);
        if numbers.cancelled.take_if(|cancelled| *cancelled <= statement) == Some(statement) {
            self.activity().cancel();
        }
    }

    /// Notes that it has ended.
    pub(super) fn end(&self) {
        self.numbers.lock().current = None;
    }

    /// The statement that began last.
    pub(super) fn begun(&self) -> u64 {
        self.numbers.lock().begun
    }

    /// Cancels a statement, also before it begins.
    pub(super) fn cancel(&self, secret: u64, statement: u64) {
        let mut numbers = self.numbers.lock();
        if secret != self.secret {
        } else if numbers.current == Some(statement) {
            self.activity().cancel();
        } else if statement > numbers.begun {
            numbers.cancelled = Some(statement);
        }
    }

    /// Notes that the client has gone: its statement is cancelled.
    pub(super) fn leave(&self) {
        self.gone.send_replace(true);
        self.activity().cancel();
    }

    /// Ready when the client has gone.
    pub(super) fn gone(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut gone = self.gone.subscribe();
        async move {
            // Without a sender the client cannot go.
            if gone.wait_for(|gone| *gone).await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Runs a part of a statement. A cancellation that has come before the part listened reaches
    /// it.
    pub(super) async fn attend<T>(&self, part: impl Future<Output = T>) -> T {
        let mut part = pin!(part);
        poll_fn(|context| match part.as_mut().poll(context) {
            Poll::Pending if self.activity().take_cancelled() => {
                self.cancel.cancel();
                // It may not have listened yet: it is asked again.
                part.as_mut().poll(context)
            }
            polled => polled,
        })
        .await
    }

    /// Keeps an image, no longer than `time`; the number of its lease. In a runtime, if it has a
    /// time.
    ///
    /// # Errors
    /// SQLSTATE 53400 when the client has too many.
    pub(super) fn lease(self: &Arc<Self>, kept: Box<dyn Any + Send>, time: Option<Duration>) -> Result<u64, SqlError> {
        let mut leases = self.leases.lock();
        leases.check_room()?;
        leases.last += 1;
        let number = leases.last;
        let timer = time.map(|time| {
            let running = Arc::downgrade(self);
            let end = async move {
                tokio::time::sleep(time).await;
                if let Some(running) = running.upgrade() {
                    running.end_lease(number);
                }
            };
            tokio::spawn(end).abort_handle()
        });
        leases.all.insert(number, Lease { _kept: kept, timer });
        Ok(number)
    }

    /// Whether an image may begin: the client has not cancelled it, and has room for it.
    ///
    /// # Errors
    /// SQLSTATE 57014 and 53400.
    pub(super) fn check_image(&self) -> Result<(), SqlError> {
        if self.activity().take_cancelled() {
            return Err(SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to user request"));
        }
        self.leases.lock().check_room()
    }

    pub(super) fn end_lease(&self, lease: u64) {
        let ended = self.leases.lock().all.remove(&lease);
        drop(ended);
    }

    pub(super) fn end_leases(&self) {
        let ended = std::mem::take(&mut self.leases.lock().all);
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serac_sql::activity::{Client, Connections};

    #[test]
    fn a_cancellation_meets_the_statement_that_it_means() {
        let running = Running::new(
            Connections::default().enter(Client::default(), CancelHandle::default()),
            CancelHandle::default(),
        );
        let begin = |statement| {
            running.activity().begins("");
            running.begin(statement);
        };
        begin(1);
        running.cancel(running.secret().wrapping_add(1), 1);
        assert!(!running.activity().take_cancelled(), "the secret is another");
        running.cancel(running.secret(), 1);
        assert!(running.activity().take_cancelled());
        running.end();
        begin(2);
        running.cancel(running.secret(), 1);
        assert!(!running.activity().take_cancelled(), "it has ended");
        running.cancel(running.secret(), 3);
        running.end();
        begin(3);
        assert!(running.activity().take_cancelled(), "it was cancelled before it began");
        running.end();
        begin(4);
        assert!(!running.activity().take_cancelled());
    }

    #[test]
    fn leases_are_bounded() {
        let running = Arc::new(Running::new(
            Connections::default().enter(Client::default(), CancelHandle::default()),
            CancelHandle::default(),
        ));
        let kept = Arc::new(());
        for number in 1..=MOST_LEASES as u64 {
            // Also where a client gives all statements one number.
            running.begin(5_000);
            assert_eq!(running.lease(Box::new(kept.clone()), None).unwrap(), number);
            assert_eq!(Arc::strong_count(&kept), 1 + number as usize);
        }
        assert_eq!(running.check_image().unwrap_err().sqlstate, sqlstate::CONFIGURATION_LIMIT_EXCEEDED);
        assert_eq!(running.lease(Box::new(()), None).unwrap_err().sqlstate, sqlstate::CONFIGURATION_LIMIT_EXCEEDED);
        running.end_lease(7);
        running.check_image().unwrap();
        assert!(running.lease(Box::new(()), None).is_ok());
    }

    #[test]
    fn a_cancellation_before_an_image_begins_meets_it() {
        let running = Running::new(
            Connections::default().enter(Client::default(), CancelHandle::default()),
            CancelHandle::default(),
        );
        running.cancel(running.secret(), 3);
        running.activity().begins("");
        running.begin(3);
        assert_eq!(running.check_image().unwrap_err().sqlstate, sqlstate::QUERY_CANCELED);
        running.check_image().unwrap();
    }

    #[tokio::test]
    async fn a_lease_ends_at_its_time() {
        let running = Arc::new(Running::new(
            Connections::default().enter(Client::default(), CancelHandle::default()),
            CancelHandle::default(),
        ));
        let (short, long) = (Arc::new(()), Arc::new(()));
        running.begin(1);
        running.lease(Box::new(short.clone()), Some(Duration::from_millis(20))).unwrap();
        running.begin(2);
        running.lease(Box::new(long.clone()), Some(Duration::from_secs(1_000))).unwrap();
        while Arc::strong_count(&short) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(Arc::strong_count(&long), 2);
        running.end_leases();
        assert_eq!(Arc::strong_count(&long), 1);
    }
}
