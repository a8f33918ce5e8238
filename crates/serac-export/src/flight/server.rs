//! Connections of a Flight server: HTTP/2 without TLS.

use super::FlightOptions;
use super::service::Flights;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serac_engine::Database;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long streams may go on after the stop.
const GRACE: Duration = Duration::from_secs(5);
/// How long a client may take to close a connection that has ended.
const LINGER: Duration = Duration::from_secs(1);
/// Wait after a failed accept (no file descriptors left, for example).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A Flight server that listens.
#[derive(Debug)]
pub struct FlightServer {
    listener: TcpListener,
    flights: Flights,
}

impl FlightServer {
    /// Listens on `address` (port 0: any that is free). Nothing is answered before [`run`](Self::run).
    ///
    /// # Errors
    /// When the address cannot be used.
    pub async fn bind(database: Database, address: SocketAddr, options: FlightOptions) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await?, flights: Flights::new(database, options) })
    }
    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` is ready; then takes no new calls, lets streams end for a few seconds, and closes the connections.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut sweep = tokio::time::interval(self.flights.leases().sweep_interval());
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = sweep.tick() => self.flights.leases().sweep(),
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, _)) => {
                        // Small answers shall not wait for more.
                        let _ = socket.set_nodelay(true);
                        connections.spawn(serve(socket, self.flights.clone(), stopped.clone()));
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        let _ = stopping.send(true);
        let all_ended = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(GRACE, all_ended).await;
    }
}

async fn serve(socket: TcpStream, flights: Flights, mut stopped: watch::Receiver<bool>) {
    let Ok((socket, second)) = twice(socket) else { return };
    let answer = service_fn(move |request| {
        let flights = flights.clone();
        async move { Ok::<_, Infallible>(flights.answer(request).await) }
    });
    let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let connection = http.max_concurrent_streams(128).serve_connection(TokioIo::new(socket), answer);
    tokio::pin!(connection);
    let stop = async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    // An error ends this connection, which its client knows.
    tokio::select! {
        _ = &mut connection => {}
        () = stop => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
            linger(second).await;
        }
    }
}

/// The socket, and a second handle that keeps it open.
fn twice(socket: TcpStream) -> io::Result<(TcpStream, std::net::TcpStream)> {
    let socket = socket.into_std()?;
    let second = socket.try_clone()?;
    Ok((TcpStream::from_std(socket)?, second))
}

/// Reads on until the client closes, for a bounded time. A socket that is closed with input unread (a window update is enough) resets the connection,
/// and the client loses what it has not read yet.
async fn linger(socket: std::net::TcpStream) {
    let Ok(mut socket) = TcpStream::from_std(socket) else { return };
    let _ = socket.shutdown().await;
    let drained = async {
        let mut bytes = [0; 4096];
        while socket.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    };
    let _ = tokio::time::timeout(LINGER, drained).await;
}
