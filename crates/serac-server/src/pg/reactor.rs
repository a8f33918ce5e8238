//! Threads with an event loop each, in which connections wait for their clients.
//!
//! A statement of the point path takes microseconds: it runs where its message has arrived, without
//! waking another thread. So there are as many loops as processors, and each connection belongs to
//! one of them. Longer work (planning above all) goes to the threads of the server's runtime, where
//! it delays only its own connection.

use serac_net::listen::Socket;
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// A thread with an event loop. It ends when this goes.
pub(super) struct Reactor {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Reactor {
    /// One for each processor.
    pub(super) fn start_all() -> io::Result<Vec<Arc<Self>>> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        (0..count).map(|_| Self::start().map(Arc::new)).collect()
    }

    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new().name("serac-connections".into()).spawn(move || {
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { handle, _stop: stop })
    }

    /// The one with the fewest connections; each holds its own.
    pub(super) fn least_busy(all: &[Arc<Self>]) -> Arc<Self> {
        all.iter().min_by_key(|reactor| Arc::strong_count(reactor)).expect("there is one").clone()
    }

    /// Waits for a connection's bytes here from now on.
    pub(super) fn adopt(&self, socket: Socket) -> io::Result<Socket> {
        let socket = socket.unbound()?;
        let _here = self.handle.enter();
        socket.bind()
    }

    /// Runs a task here; `None` if it has panicked. It is given up when the caller is.
    pub(super) async fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let mut running = JoinSet::new();
        running.spawn_on(task, &self.handle);
        running.join_next().await?.ok()
    }
}
