//! Which statement of a connection runs, and how it is cancelled from elsewhere.
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
use std::task::Poll;
use tokio::sync::watch;

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

/// What a connection's task, its reader and those who cancel share.
pub(super) struct Running {
    registered: Registered,
    cancel: CancelHandle,
    secret: u64,
    numbers: Mutex<Numbers>,
    /// What keeps images alive, by the numbers of their leases.
    leases: Mutex<HashMap<u64, Box<dyn Any + Send>>>,
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

    /// Notes that the client has gone: what runs is cancelled.
    pub(super) fn leave(&self) {
        self.gone.send_replace(true);
        self.activity().cancel();
    }
    /// Ready when the client has gone.
    pub(super) fn gone(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut gone = self.gone.subscribe();
        async move {
            // Without a sender nobody is left to go.
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

    /// Keeps an image; the number of its lease.
    ///
    /// # Errors
    /// SQLSTATE 53400 when the client has too many.
    pub(super) fn lease(&self, lease: Box<dyn Any + Send>) -> Result<u64, SqlError> {
        let mut leases = self.leases.lock();
        if leases.len() >= MOST_LEASES {
            return Err(SqlError::new("53400", format!("a connection has at most {MOST_LEASES} images at a time")));
        }
        let number = self.begun();
        leases.insert(number, lease);
        Ok(number)
    }
    pub(super) fn end_lease(&self, lease: u64) {
        let ended = self.leases.lock().remove(&lease);
        drop(ended);
    }
    pub(super) fn end_leases(&self) {
        let ended = std::mem::take(&mut *self.leases.lock());
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
        let running = Running::new(
            Connections::default().enter(Client::default(), CancelHandle::default()),
            CancelHandle::default(),
        );
        for statement in 0..MOST_LEASES as u64 {
            running.begin(statement);
            assert_eq!(running.lease(Box::new(())).unwrap(), statement);
        }
        running.begin(MOST_LEASES as u64);
        assert_eq!(running.lease(Box::new(())).unwrap_err().sqlstate, "53400");
        running.end_lease(7);
        assert!(running.lease(Box::new(())).is_ok());
    }
}
