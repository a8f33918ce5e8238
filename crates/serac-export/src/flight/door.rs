//! A connection's admission: it waits until one of its calls is authorised, and then has a seat.
//!
//! HTTP/2 knows no login. So a connection counts as a waiting one ([`serac_net::admission`]) up to
//! its first admitted call. Until then it may do nothing, half of a handshake, or calls with wrong
//! passwords.

use parking_lot::Mutex;
use serac_net::admission::Waiting;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tonic::Status;

enum State {
    Waits(Option<Waiting>),
    /// The connection has one of the server's seats.
    In(#[expect(dead_code, reason = "held until the connection ends")] OwnedSemaphorePermit),
}

/// The admission of one connection.
pub(super) struct Door {
    state: Mutex<State>,
    seats: Arc<Semaphore>,
    entered: Notify,
}

impl Door {
    pub(super) fn new(place: Option<Waiting>, seats: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::Waits(place)), seats, entered: Notify::new() })
    }

    /// Lets an admitted call in. The first one takes a seat.
    pub(super) fn enter(&self) -> Result<(), Status> {
        let mut state = self.state.lock();
        if let State::Waits(_) = &*state {
            let full =
                |_| Status::resource_exhausted("the server has as many connections as it may have: try again later");
            *state = State::In(self.seats.clone().try_acquire_owned().map_err(full)?);
            self.entered.notify_one();
        }
        Ok(())
    }

    /// Ready when a connection without an admitted call is to be closed: it takes too long, another
    /// needs its place, or the server has stopped.
    pub(super) async fn stays_shut(&self, time: Duration, mut stopped: watch::Receiver<bool>) {
        let ends = match &*self.state.lock() {
            State::Waits(Some(place)) => Some(place.ends(time)),
            _ => None,
        };
        let Some(ends) = ends else { return std::future::pending().await };
        let stop = async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        tokio::select! {
            biased;
            () = self.entered.notified() => std::future::pending().await,
            () = ends => {}
            () = stop => {}
        }
    }
}
