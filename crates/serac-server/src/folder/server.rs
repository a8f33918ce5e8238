//! The listener at a folder's socket: connections, their limits, and the end of all of them.

use super::connection::{ImageSource, serve};
use super::running::Running;
use crate::port::{self, Phase};
use parking_lot::Mutex;
use serac_export::listen::Listener;
use serac_sql::SqlDatabase;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// How long the last answers may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// Threads that serve connections; queries have their own.
const MOST_THREADS: usize = 4;

/// How other processes are served.
#[derive(Clone)]
pub struct FolderOptions {
    /// Connections at a time, of those who have logged in.
    pub max_connections: usize,
    /// How long a client may take from the connection's beginning until it has logged in.
    pub login_timeout: Duration,
    /// How long a client may take nothing of an answer.
    pub write_timeout: Duration,
    /// How long statements may go on after the stop before they are cancelled.
    pub shutdown_timeout: Duration,
    /// Statements that take so long are logged; none for none.
    pub slow_statement: Option<Duration>,
    /// What makes images in shared memory; none to refuse requests for them.
    pub images: Option<ImageSource>,
}

impl Default for FolderOptions {
    fn default() -> Self {
        Self {
            max_connections: 256,
            login_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(300),
            shutdown_timeout: Duration::from_secs(5),
            slow_statement: None,
            images: None,
        }
    }
}

impl std::fmt::Debug for FolderOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { max_connections, shutdown_timeout, .. } = self;
        let mut out = f.debug_struct("FolderOptions");
        out.field("max_connections", max_connections).field("shutdown_timeout", shutdown_timeout);
        out.finish_non_exhaustive()
    }
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) db: SqlDatabase,
    /// What clients call the database: the folder's name.
    pub(super) name: String,
    pub(super) options: FolderOptions,
    /// For those who have logged in.
    pub(super) seats: Arc<Semaphore>,
    pub(super) phase: watch::Sender<Phase>,
    /// Connections by their numbers, for those who cancel.
    pub(super) running: Mutex<HashMap<i32, Arc<Running>>>,
}

impl Shared {
    /// Ready when the server stops.
    pub(super) async fn stopped(&self) {
        // The sender lives as long as `self`.
        let _ = self.phase.subscribe().wait_for(|phase| *phase != Phase::Serving).await;
    }
}

/// Serves other processes of the machine at the socket of a database's folder, in threads of its
/// own, until it is stopped or dropped. See the [module](super).
pub struct FolderServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for FolderServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FolderServer").field("is_stopped", &self.thread.is_none()).finish()
    }
}

impl FolderServer {
    /// Begins to serve. The database must be the one that this process has open in this folder,
    /// with [`serves_others`](serac_storage::StorageOptions::serves_others).
    ///
    /// # Errors
    /// When there is no socket or no thread to be had.
    pub fn start(db: SqlDatabase, folder: &Path, options: FolderOptions) -> io::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("serac-folder")
            .enable_all()
            .build()?;
        let listener = {
            let _within = runtime.enter();
            Listener::folder(folder)?
        };
        let name = folder.file_name().map_or_else(|| "serac".into(), |name| name.to_string_lossy().into_owned());
        let shared = Arc::new(Shared {
            db,
            name,
            seats: Arc::new(Semaphore::new(options.max_connections.min(Semaphore::MAX_PERMITS))),
            options,
            phase: watch::Sender::new(Phase::Serving),
            running: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("serac-folder".into()).spawn(move || {
            runtime.block_on(run(vec![listener], shared, stopped));
            runtime.shutdown_timeout(FAREWELL);
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
    /// Ends the connections, in the order that the module says; nothing of them runs any more when
    /// it returns. The socket is gone then, and the database is the caller's to close.
    pub fn stop(mut self) {
        self.end();
    }
    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // After a panic there is nothing to be waited for.
            let _ = thread.join();
        }
    }
}

impl Drop for FolderServer {
    fn drop(&mut self) {
        self.end();
    }
}

async fn run(listeners: Vec<Listener>, shared: Arc<Shared>, stopped: oneshot::Receiver<()>) {
    let (busy, mut all_ended) = mpsc::channel(1);
    let mut connections = JoinSet::new();
    let admission = port::admission(shared.options.max_connections);
    let stop = async {
        // A sender that is dropped says it, too.
        let _ = stopped.await;
    };
    port::take_connections(listeners, &admission, &mut connections, stop, |connections, socket, place| {
        connections.spawn(serve(socket, shared.clone(), place, busy.clone()));
    })
    .await;
    drop(busy);
    shared.phase.send_replace(Phase::Stopping);
    if tokio::time::timeout(shared.options.shutdown_timeout, all_ended.recv()).await.is_err() {
        shared.phase.send_replace(Phase::Cancelling);
        let _ = tokio::time::timeout(port::GRACE, all_ended.recv()).await;
    }
    let _ = tokio::time::timeout(FAREWELL, async { while connections.join_next().await.is_some() {} }).await;
    connections.shutdown().await;
}
