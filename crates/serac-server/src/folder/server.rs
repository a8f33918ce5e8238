//! The listener at a folder's socket: connections, their limits, and the end of all of them.

use super::connection::{ImageSource, serve};
use super::images::shared_memory;
use super::running::Running;
use crate::port::{self, Phase};
use parking_lot::Mutex;
use serac_client::client::{folder_id, open_folder};
use serac_client::wire::{Failure, FolderId, HANDED_OVER};
use serac_export::shared_memory::SharedMemory;
use serac_net::listen::Listener;
use serac_sql::SqlDatabase;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

/// The time that the last answers may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// Time between two looks at the clients whose statements the end waits for.
const FINISH_PAUSE: Duration = Duration::from_millis(5);
/// Threads that serve connections; queries have their own.
const MOST_THREADS: usize = 4;

/// The settings for serving other processes.
#[derive(Clone)]
pub struct FolderOptions {
    /// Connections at a time, of clients that have logged in.
    pub max_connections: usize,
    /// The time that a client may take from the connection's beginning until it has logged in.
    pub login_timeout: Duration,
    /// The time that a client may stop reading an answer.
    pub write_timeout: Duration,
    /// The time that statements may go on after the stop before they are cancelled.
    pub shutdown_timeout: Duration,
    /// Statements that take at least this long are logged; `None` for no log.
    pub slow_statement: Option<Duration>,
    /// Makes images in shared memory; `None` refuses requests for them.
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
            images: Some(shared_memory(SharedMemory::default())),
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

/// Begins to hand the folder over to a server, or says why not.
pub(super) type HandOver = Arc<dyn Fn() -> Result<(), Failure> + Send + Sync>;

/// The state that all connections share.
pub(super) struct FolderServerState {
    pub(super) db: SqlDatabase,
    /// The clients' name for the database: the folder's name.
    pub(super) name: String,
    pub(super) folder: FolderId,
    pub(super) options: FolderOptions,
    /// Permits of clients that have logged in.
    pub(super) seats: Arc<Semaphore>,
    pub(super) phase: watch::Sender<Phase>,
    /// Whether new clients are taken no more.
    is_closed: watch::Sender<bool>,
    /// Connections by their numbers, for cancellation.
    pub(super) running: Mutex<HashMap<i32, Arc<Running>>>,
    /// `None`: the folder is not handed over.
    pub(super) hand_over: Option<HandOver>,
    is_handed_over: AtomicBool,
}

impl FolderServerState {
    /// The error of connections when the server stops.
    pub(super) fn ending(&self) -> Failure {
        // Relaxed: it was stored before the phase that is looked at first was sent.
        match self.is_handed_over.load(Ordering::Relaxed) {
            true => Failure::new(HANDED_OVER, "it hands the database over to a server"),
            false => Failure::new(sqlstate::ADMIN_SHUTDOWN, "it closes the database"),
        }
    }

    /// Ready when the server stops.
    pub(super) async fn stopped(&self) {
        // The sender lives as long as `self`.
        let _ = self.phase.subscribe().wait_for(|phase| *phase != Phase::Serving).await;
    }

    /// Ready when new clients are taken no more.
    pub(super) async fn closed(&self) {
        let _ = self.is_closed.subscribe().wait_for(|is_closed| *is_closed).await;
    }

    /// Whether the server stops.
    pub(super) fn is_stopping(&self) -> bool {
        *self.phase.borrow() != Phase::Serving
    }

    /// Ready when the connections that are there now have ended.
    async fn present_ended(&self) {
        let present: Vec<i32> = self.running.lock().keys().copied().collect();
        while present.iter().any(|process| self.running.lock().contains_key(process)) {
            tokio::time::sleep(FINISH_PAUSE).await;
        }
    }

    /// Ready when the server cancels running statements.
    pub(super) async fn cancelling(&self) {
        let _ = self.phase.subscribe().wait_for(|phase| *phase == Phase::Cancelling).await;
    }
}

/// Bytes of a thread's stack. A statement's futures lie in each other: without optimization they
/// take more than the usual 2 MiB.
const STACK: usize = 16 << 20;

/// Serves other processes of the machine at the socket of a database's folder, in threads of its
/// own, until it is stopped or dropped. See the [module](super).
pub struct FolderServer {
    ending: Option<watch::Sender<Ending>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<FolderServerState>,
}

/// The end of a server. Without a sender it is as for `Stop`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    Not,
    /// Running statements go on to their end.
    Finish,
    /// Running statements go on for the `shutdown_timeout`.
    Stop,
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
        Self::start_with(db, folder, options, None)
    }

    /// As [`start`](Self::start), with the callback for a server that wants the folder.
    pub(super) fn start_with(
        db: SqlDatabase,
        folder: &Path,
        options: FolderOptions,
        hand_over: Option<HandOver>,
    ) -> io::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("serac-folder")
            .thread_stack_size(STACK)
            .enable_all()
            .build()?;
        let listener = {
            let _within = runtime.enter();
            Listener::folder(folder)?
        };
        let name = folder.file_name().map_or_else(|| "serac".into(), |name| name.to_string_lossy().into_owned());
        let shared = Arc::new(FolderServerState {
            db,
            name,
            folder: folder_id(&open_folder(folder)?)?,
            seats: Arc::new(Semaphore::new(options.max_connections.min(Semaphore::MAX_PERMITS))),
            options,
            phase: watch::Sender::new(Phase::Serving),
            is_closed: watch::Sender::new(false),
            running: Mutex::default(),
            hand_over,
            is_handed_over: AtomicBool::new(false),
        });
        let (ending, ends) = watch::channel(Ending::Not);
        let served = shared.clone();
        let thread = std::thread::Builder::new().name("serac-folder".into()).spawn(move || {
            runtime.block_on(run(vec![listener], served, ends));
            runtime.shutdown_timeout(FAREWELL);
        })?;
        Ok(Self { ending: Some(ending), thread: Some(thread), shared })
    }

    /// Begins to end the connections as [`stop`](Self::stop) does, but lets statements that run go
    /// on to their end.
    pub fn finish(&self) {
        if let Some(ending) = &self.ending {
            ending.send_replace(Ending::Finish);
        }
    }

    /// Connections that are there.
    pub fn connections(&self) -> usize {
        self.shared.running.lock().len()
    }

    /// Whether all connections have ended, after [`finish`](Self::finish).
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the connections, in the order that the module says; nothing of them runs any more when
    /// it returns. The socket is gone then, and the database is the caller's to close.
    pub fn stop(mut self) {
        self.end();
    }

    /// As [`stop`](Self::stop); clients are told that a server gets the folder.
    pub(super) fn hand_over(mut self) {
        self.shared.is_handed_over.store(true, Ordering::Relaxed);
        self.end();
    }

    fn end(&mut self) {
        if let Some(ending) = self.ending.take() {
            ending.send_replace(Ending::Stop);
        }
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

async fn run(listeners: Vec<Listener>, shared: Arc<FolderServerState>, mut ends: watch::Receiver<Ending>) {
    let (busy, mut all_ended) = mpsc::channel(1);
    let mut connections = JoinSet::new();
    let admission = port::admission(shared.options.max_connections);
    let (mut begins, mut stops) = (ends.clone(), ends.clone());
    let stop = async {
        // A sender that is dropped says it, too.
        let _ = begins.wait_for(|ending| *ending != Ending::Not).await;
        shared.phase.send_replace(Phase::Stopping);
        // A statement that is waited for may itself wait for a process that comes now.
        tokio::select! {
            _ = stops.wait_for(|ending| *ending == Ending::Stop) => {}
            () = shared.present_ended() => {}
        }
    };
    port::take_connections(listeners, &admission, &mut connections, stop, |connections, socket, place| {
        connections.spawn(serve(socket, shared.clone(), place, busy.clone()));
    })
    .await;
    drop(busy);
    shared.is_closed.send_replace(true);
    let timeout = async {
        let _ = ends.wait_for(|ending| *ending == Ending::Stop).await;
        tokio::time::sleep(shared.options.shutdown_timeout).await;
    };
    let all_have_ended = tokio::select! {
        _ = all_ended.recv() => true,
        () = timeout => false,
    };
    if !all_have_ended {
        shared.phase.send_replace(Phase::Cancelling);
        let _ = tokio::time::timeout(port::GRACE, all_ended.recv()).await;
    }
    let _ = tokio::time::timeout(FAREWELL, async { while connections.join_next().await.is_some() {} }).await;
    connections.shutdown().await;
}
