//! Servers that run in the process of the test.

use crate::wait::PATIENCE;
use std::net::SocketAddr;
use std::pin::Pin;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Ends when a server is to stop.
pub type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A server that runs until it is told to stop, or dropped.
#[derive(Debug)]
pub struct Served {
    /// Where it listens.
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Served {
    /// Runs a server: `Served::start(address, |stop| server.run(stop))`.
    pub fn start<F>(address: SocketAddr, serve: impl FnOnce(Stop) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped: Stop = Box::pin(async move {
            let _ = stopped.await;
        });
        Self { address, stop, running: tokio::spawn(serve(stopped)) }
    }

    /// Tells it to stop, and waits for its end.
    ///
    /// # Panics
    /// If it does not end within a minute, or has panicked.
    pub async fn end(self) {
        drop(self.stop);
        tokio::time::timeout(PATIENCE, self.running).await.expect("it stops").expect("it does not panic");
    }
}
