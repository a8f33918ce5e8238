//! Common parts of the ports with connections of their own: how they take connections.

use serac_net::admission::{Admission, Waiting};
use serac_net::listen::{Listener, Socket};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tracing::warn;

/// The time that cancelled statements may take to end.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// The least number of places for clients that have not logged in.
const LEAST_WAITING: usize = 64;
/// Wait after a failed accept (no file descriptors left, for example).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The phase of a server's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Serving,
    /// Running statements may end.
    Stopping,
    /// Running statements are cancelled.
    Cancelling,
}

/// The places where the connections of a port wait until they have logged in. `most`: connections
/// of clients that have logged in.
pub(crate) fn admission(most: usize) -> Arc<Admission> {
    Admission::new(most.max(LEAST_WAITING))
}

/// Takes connections until `stop` is ready. Then the system refuses new ones. `serve` begins to
/// serve a connection, as a task of `connections`.
pub(crate) async fn take_connections(
    listeners: Vec<Listener>,
    admission: &Arc<Admission>,
    connections: &mut JoinSet<()>,
    stop: impl Future<Output = ()>,
    mut serve: impl FnMut(&mut JoinSet<()>, Socket, Waiting),
) {
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            Some(_) = connections.join_next() => {}
            accepted = Listener::accept(&listeners) => match accepted {
                Ok(socket) => {
                    let place = admission.enter(socket.peer_address().map(|address| address.ip()));
                    serve(connections, socket, place);
                }
                Err(error) => {
                    warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}
