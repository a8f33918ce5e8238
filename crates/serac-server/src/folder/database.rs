//! The database of a folder: opened in this process, or reached through the process that has it
//! open. Sessions do not show which.
//!
//! ```no_run
//! use serac_server::folder::{FolderDatabase, Opening, SessionOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let database = FolderDatabase::open(Opening::of("my.db"))?;
//! let mut session = database.session(SessionOptions::default()).await?;
//! for batch in session.query("SELECT 1 AS one").await? {
//!     println!("{batch:?}");
//! }
//! drop(session);
//! database.close()?;
//! # Ok(())
//! # }
//! ```

use super::connection::{failure, log_in};
use super::images::tables_here;
use super::loss::{Had, Loss, Next};
use super::server::{FolderOptions, FolderServer, HandOver};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use parking_lot::Mutex;
use serac_client::client::{self, Client, Event};
use serac_client::image::{SnapshotRequest, Table};
use serac_client::shared_memory::Snapshot;
use serac_client::wire::{BUSY, Failure, FolderId, Status};
use serac_engine::{Database, EngineError};
use serac_sql::free_numbers::{shown, shown_schema};
use serac_sql::wire::schema_in_style;
use serac_sql::{
    CancelHandle, CopyProgress, IngestTarget, Session, SqlDatabase, SqlError, SqlOptions, StatementStream,
    TransactionStatus,
};
use serac_storage::{StorageError, StorageOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tracing::warn;

/// Waits between two tries to open or to connect: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// The time that a holder without a socket is tried again: its LOCK may still name the holder
/// before it.
const GRACE: Duration = Duration::from_millis(300);
/// The time that processes that could open a folder leave it to the server to which it was handed
/// over.
const GIVES_WAY: Duration = Duration::from_secs(5);
/// Waits of a server between two tries to open a folder, and between two questions to a holder that
/// is busy.
const SERVER_PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// The time that a holder may take to answer a server that asks for the folder.
const ANSWER: Duration = Duration::from_secs(1);
/// Events that are read ahead of the client's consumer.
const EVENTS_AHEAD: usize = 4;

/// The SQLSTATE of a statement that was cancelled.
const CANCELED: &str = sqlstate::QUERY_CANCELED;

/// The options of opening a folder.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The options of the storage, if this process opens it. Without a path the database is in
    /// memory.
    pub storage: StorageOptions,
    /// The SQL options for that case.
    pub sql: SqlOptions,
    /// The options for serving other processes in that case.
    pub server: FolderOptions,
    /// The database is for this process alone: opening fails if another process has it open, and
    /// others are not served.
    pub is_standalone: bool,
    /// The folder is handed over to a server that asks for it ([`open_to_serve`]), when no session
    /// of this process has a statement or a transaction. Its sessions continue through the server.
    /// Not for a program that uses [`FolderDatabase::held`].
    pub hands_over: bool,
    /// The time to wait for a holder that opens or closes the database.
    pub patience: Duration,
}

impl Opening {
    /// A folder, with the default options.
    pub fn of(folder: impl Into<PathBuf>) -> Self {
        Self::with(StorageOptions { path: Some(folder.into()), ..StorageOptions::default() }, SqlOptions::default())
    }

    /// With these options.
    pub fn with(storage: StorageOptions, sql: SqlOptions) -> Self {
        let (server, patience) = (FolderOptions::default(), Duration::from_secs(60));
        Self { storage, sql, server, is_standalone: false, hands_over: false, patience }
    }
}

/// The reason why a folder can neither be opened nor used through another process.
#[derive(Debug)]
pub enum FolderError {
    /// It cannot be opened.
    Open(EngineError),
    /// SQL cannot run on it, or the role cannot log in.
    Sql(SqlError),
    /// There is no socket, or no thread, for others.
    Serve(std::io::Error),
    /// The process that has it open refuses, or cannot be reached.
    Connect(client::Error),
    /// The process that has it open does not answer.
    Silent {
        /// The folder.
        path: PathBuf,
        /// That process.
        holder: Option<u32>,
        /// The error of connecting to its socket.
        why: std::io::Error,
    },
    /// It is not where it was when it was found first.
    Moved(PathBuf),
    /// The search was cancelled.
    Cancelled,
}

/// Whether a process is stopped by a signal or a debugger.
fn is_stopped(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state stands behind the name in parentheses, which may contain parentheses.
    status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['T', 't']))
}

impl std::fmt::Display for FolderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Sql(error) => error.fmt(f),
            Self::Serve(error) => {
                write!(f, "other processes cannot be served, and the database is not standalone: {error}")
            }
            Self::Connect(error) => error.fmt(f),
            Self::Silent { path, holder, why } => {
                let name = holder.map_or("another process".into(), |holder| format!("process {holder}"));
                let path = path.display();
                if holder.is_some_and(is_stopped) {
                    write!(f, "{name}, which has the database at {path} open, is stopped: let it go on, or end it")
                } else if why.kind() == std::io::ErrorKind::NotFound {
                    write!(
                        f,
                        "{name} has the database at {path} open, and its SOCKET is not there: it opens or closes the \
                         database (try again later), or somebody has removed the file (end that process)"
                    )
                } else {
                    write!(f, "{name} has the database at {path} open, and does not answer ({why}): try again later")
                }
            }
            Self::Moved(path) => {
                write!(f, "the folder of the database, {}, was moved, removed or replaced", path.display())
            }
            Self::Cancelled => f.write_str("canceling statement due to user request"),
        }
    }
}

impl std::error::Error for FolderError {}

impl FolderError {
    /// The error as those of statements are.
    fn into_failure(self) -> Failure {
        match self {
            Self::Open(error) => failure(error.into()),
            Self::Sql(error) => failure(error),
            Self::Connect(error) => error.into_failure(),
            Self::Cancelled => Failure::new(CANCELED, self.to_string()),
            Self::Serve(_) | Self::Silent { .. } | Self::Moved(_) => {
                Failure::new(sqlstate::SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION, self.to_string())
            }
        }
    }
}

/// The database that this process has open.
struct Held {
    db: SqlDatabase,
    server: Option<FolderServer>,
}

struct DatabaseState {
    opening: Opening,
    held: Mutex<Option<Held>>,
    /// The folder that was found at the path first. No other one takes its place.
    folder: OnceLock<FolderId>,
    occupancy: Arc<watch::Sender<Occupancy>>,
    /// The time at which the folder was last handed over to a server.
    handed_over: Mutex<Option<Instant>>,
    /// The process is told to end, and its sessions run nothing more.
    is_ending: AtomicBool,
}

/// Counts the statements and transactions of this process's own sessions in the database that it
/// has open. A hand-over begins only when all of them are idle, and none begins a statement during
/// it.
#[derive(Clone, Copy, Debug, Default)]
struct Occupancy {
    /// Sessions that have a statement or a transaction.
    count: usize,
    /// The database is being handed over.
    is_closing: bool,
    /// The number of hand-overs. A session of an earlier epoch is in a database that is closed.
    epoch: u64,
}

/// A session of this process has a statement or a transaction.
struct Occupies(Arc<watch::Sender<Occupancy>>);

impl Drop for Occupies {
    fn drop(&mut self) {
        self.0.send_modify(|occupancy| occupancy.count -= 1);
    }
}

/// Begins to hand the folder over to a server, in a thread of its own. The caller is a thread of
/// the folder's server, which may not hold the database: dropping it waits for these threads.
///
/// # Errors
/// [`BUSY`] as long as a session of this process has a statement or a transaction.
fn hand_over(occupancy: &watch::Sender<Occupancy>, shared: Weak<DatabaseState>) -> Result<(), Failure> {
    let (mut is_granted, mut is_on_its_way) = (false, false);
    occupancy.send_if_modified(|occupancy| {
        is_on_its_way = occupancy.is_closing;
        is_granted = occupancy.count == 0 && !is_on_its_way;
        occupancy.is_closing |= is_granted;
        is_granted
    });
    if is_on_its_way {
        return Ok(());
    }
    let busy = |what: &str| {
        let message = format!("process {}, which has the database open, {what}", std::process::id());
        Failure::new(BUSY, message).with_hint("Try again later, or end that process.")
    };
    if !is_granted {
        return Err(busy("has a statement or a transaction of its own that has not ended"));
    }
    let thread = std::thread::Builder::new().name("serac-hand-over".into());
    let close = move || {
        if let Some(shared) = shared.upgrade() {
            shared.finish_hand_over();
        }
    };
    match thread.spawn(close) {
        Ok(_) => Ok(()),
        Err(error) => {
            occupancy.send_modify(|occupancy| occupancy.is_closing = false);
            Err(busy(&format!("has no thread to close it: {error}")))
        }
    }
}

/// The place of a session.
enum Attached {
    /// In this process, in this epoch.
    Here(Box<SqlDatabase>, u64),
    There(Box<Client>),
}

/// Opens a folder to serve it. A holder that grants it is asked to hand the folder over. A holder
/// that opens or closes the database, or is busy, is waited for. `tell` is called once, with the
/// holder's process, if there is a wait.
///
/// # Errors
/// When another process serves the folder, or does not let it go within `patience`; otherwise as
/// for [`Database::open_with`].
pub fn open_to_serve(
    storage: &StorageOptions,
    patience: Duration,
    tell: impl FnOnce(Option<u32>),
) -> Result<Database, FolderError> {
    let began = Instant::now();
    let (mut tell, mut unserved) = (Some(tell), None::<Instant>);
    loop {
        let (path, holder, is_served) = match Database::open_with(storage.clone()) {
            Err(EngineError::Storage(StorageError::Locked { path, holder, serves_others })) => {
                (path, holder, serves_others)
            }
            opened => return opened.map_err(FolderError::Open),
        };
        let locked = |path| StorageError::Locked { path, holder, serves_others: is_served };
        unserved = unserved.filter(|_| !is_served).or_else(|| (!is_served).then(Instant::now));
        // LOCK may still tell of the holder before.
        if !storage.serves_others || unserved.is_some_and(|since| since.elapsed() >= GRACE) {
            return Err(FolderError::Open(locked(path).into()));
        }
        let (why, pause) = match client::ask_for_folder(&path, ANSWER) {
            Ok(()) => (std::io::Error::from(std::io::ErrorKind::ConnectionAborted), SERVER_PAUSES.0),
            Err(client::Error::Nobody(error)) => (error, SERVER_PAUSES.0),
            Err(client::Error::Refused(failure)) if &*failure.sqlstate == BUSY => {
                if began.elapsed() >= patience {
                    return Err(FolderError::Connect(client::Error::Refused(failure)));
                }
                (std::io::ErrorKind::ResourceBusy.into(), SERVER_PAUSES.1)
            }
            Err(client::Error::Refused(_)) => return Err(FolderError::Open(locked(path).into())),
            Err(error) => return Err(FolderError::Connect(error)),
        };
        if began.elapsed() >= patience {
            return Err(FolderError::Silent { path, holder, why });
        }
        if let Some(tell) = tell.take() {
            tell(holder);
        }
        std::thread::sleep(pause);
    }
}

/// A database in a folder, open in this process or in another. See the [module](super).
#[derive(Clone)]
pub struct FolderDatabase(Arc<DatabaseState>);

impl std::fmt::Debug for FolderDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FolderDatabase").field("path", &self.0.opening.storage.path).finish_non_exhaustive()
    }
}

impl DatabaseState {
    /// The folder at the path.
    fn found(&self) -> Option<FolderId> {
        let path = self.opening.storage.path.as_deref()?;
        client::open_folder(path).and_then(|folder| client::folder_id(&folder)).ok()
    }

    /// Opens the folder, or connects to the process that has it open, as long as that is wanted.
    fn attach(
        self: &Arc<Self>,
        options: &SessionOptions,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Attached, FolderError> {
        let Opening { storage, is_standalone, patience, .. } = &self.opening;
        let serves_others = !is_standalone && storage.path.is_some();
        let began = Instant::now();
        let mut pause = PAUSES.0;
        // The time since which LOCK says that its holder has no socket.
        let mut unserved: Option<Instant> = None;
        loop {
            if let Some(held) = &*self.held.lock() {
                // A hand-over takes the database and begins an epoch under the same latch.
                return Ok(Attached::Here(Box::new(held.db.clone()), self.occupancy.borrow().epoch));
            }
            let found = self.found();
            if let (Some(known), Some(path)) = (self.folder.get(), &storage.path)
                && found != Some(*known)
            {
                return Err(FolderError::Moved(path.clone()));
            }
            let mut why = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            if let Some(path) = storage.path.as_deref().filter(|_| serves_others) {
                let left = patience.saturating_sub(began.elapsed());
                match Client::connect_while(path, &options.client(left), is_wanted) {
                    Ok(client) => {
                        let _ = found.map(|found| self.folder.set(found));
                        // If this one is killed, there is no server to wait for.
                        *self.handed_over.lock() = None;
                        return Ok(Attached::There(Box::new(client)));
                    }
                    Err(client::Error::Nobody(error)) => why = error,
                    Err(error) => return Err(FolderError::Connect(error)),
                }
            }
            if !is_wanted() {
                return Err(FolderError::Cancelled);
            }
            if self.gives_way() {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSES.1);
                continue;
            }
            match self.open() {
                Err(FolderError::Open(EngineError::Storage(StorageError::Locked {
                    path,
                    holder,
                    serves_others: is_served,
                }))) => {
                    unserved = unserved.filter(|_| !is_served).or_else(|| (!is_served).then(Instant::now));
                    let waits = serves_others && unserved.is_none_or(|since| since.elapsed() < GRACE);
                    if !waits {
                        let locked = StorageError::Locked { path, holder, serves_others: is_served };
                        return Err(FolderError::Open(locked.into()));
                    }
                    if began.elapsed() >= *patience {
                        return Err(FolderError::Silent { path, holder, why });
                    }
                    // Processes that wait together do not come back together.
                    std::thread::sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0));
                    pause = (pause * 2).min(PAUSES.1);
                }
                opened => opened?,
            }
        }
    }

    /// Whether the folder is left to the server to which it was handed over.
    fn gives_way(&self) -> bool {
        self.handed_over.lock().is_some_and(|when| when.elapsed() < GIVES_WAY)
    }

    fn note_hand_over(&self) {
        *self.handed_over.lock() = Some(Instant::now());
    }

    /// Notes that a session of an epoch begins a statement; `None` if the database was handed over,
    /// or is about to be.
    fn occupy(&self, epoch: u64) -> Option<Occupies> {
        let mut is_granted = false;
        self.occupancy.send_if_modified(|occupancy| {
            is_granted = !occupancy.is_closing && occupancy.epoch == epoch;
            occupancy.count += usize::from(is_granted);
            is_granted
        });
        is_granted.then(|| Occupies(self.occupancy.clone()))
    }

    /// Ends the connections of others, and closes the database, which releases the lock. No session
    /// of this process runs a statement meanwhile.
    fn finish_hand_over(&self) {
        let held = {
            let mut held = self.held.lock();
            self.occupancy.send_modify(|occupancy| occupancy.epoch += u64::from(held.is_some()));
            held.take()
        };
        if let Some(Held { db, server }) = held {
            self.note_hand_over();
            if let Some(server) = server {
                server.hand_over();
            }
            if let Err(error) = db.database().close() {
                warn!(%error, "the database that was handed over could not be closed in order");
            }
            self.note_hand_over();
        }
        self.occupancy.send_modify(|occupancy| occupancy.is_closing = false);
    }

    /// Opens the folder in this process, unless it is.
    fn open(self: &Arc<Self>) -> Result<(), FolderError> {
        let Opening { storage, sql, server, is_standalone, hands_over, .. } = &self.opening;
        let serves_others = !is_standalone && storage.path.is_some();
        let (occupancy, shared) = (self.occupancy.clone(), Arc::downgrade(self));
        let hand_over = hands_over.then(|| Arc::new(move || hand_over(&occupancy, shared.clone())) as HandOver);
        // A caller that comes meanwhile waits for the database to be open.
        let mut held = self.held.lock();
        if held.is_none() {
            let database = Database::open_with(StorageOptions { serves_others, ..storage.clone() });
            let db = SqlDatabase::new(database.map_err(FolderError::Open)?, sql).map_err(FolderError::Sql)?;
            let path = storage.path.as_deref().filter(|_| serves_others);
            let server = path.map(|path| FolderServer::start_with(db.clone(), path, server.clone(), hand_over));
            let server = server.transpose().map_err(FolderError::Serve)?;
            *held = Some(Held { db, server });
            let _ = self.found().map(|found| self.folder.set(found));
        }
        Ok(())
    }
}

impl FolderDatabase {
    /// Opens the folder, or finds the process that has it open. It may block for as long as a
    /// recovery takes.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn open(opening: Opening) -> Result<Self, FolderError> {
        let shared = Arc::new(DatabaseState {
            opening,
            held: Mutex::default(),
            folder: OnceLock::new(),
            occupancy: Arc::default(),
            handed_over: Mutex::default(),
            is_ending: AtomicBool::new(false),
        });
        shared.attach(&SessionOptions::default(), &|| true)?;
        Ok(Self(shared))
    }

    /// The database, if this process has it open.
    pub fn held(&self) -> Option<SqlDatabase> {
        self.0.held.lock().as_ref().map(|held| held.db.clone())
    }

    /// A new session.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub async fn session(&self, options: SessionOptions) -> Result<FolderSession, FolderError> {
        let mut session = FolderSession {
            database: self.clone(),
            options,
            place: Place::Nowhere,
            cancel: CancelRunning::default(),
            progress: FolderProgress::default(),
            copy_input: None,
            copy_output: None,
            places: 0,
            running: None,
            loss: None,
            ended: None,
            epoch: 0,
            occupies: None,
        };
        session.attach().await?;
        Ok(session)
    }

    /// Ends this process's work in the database: its sessions begin no statements, `running` is
    /// cancelled, and the database is [closed](Self::close).
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn terminate(&self, running: Option<&CancelRunning>) -> Result<(), EngineError> {
        self.0.is_ending.store(true, Ordering::SeqCst);
        if let Some(running) = running {
            running.cancel();
        }
        self.close()
    }

    /// Ends the connections of others, and closes the database, if this process has it open.
    /// Sessions that are left give errors.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn close(&self) -> Result<(), EngineError> {
        self.close_when_idle(|_, _| false)
    }

    /// As [`close`](Self::close), but lets statements of other processes finish while `waits`
    /// agrees. It is called now and then with the number of running statements and the time waited.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn close_when_idle(&self, mut waits: impl FnMut(usize, Duration) -> bool) -> Result<(), EngineError> {
        // A hand-over closes it, too, within the server's `shutdown_timeout` and a little more.
        while self.0.occupancy.borrow().is_closing {
            std::thread::sleep(PAUSES.0);
        }
        let Some(Held { db, server }) = self.0.held.lock().take() else { return Ok(()) };
        if let Some(server) = &server {
            server.finish();
            let began = Instant::now();
            let mut pause = PAUSES.0;
            while !server.is_finished() && waits(server.connections(), began.elapsed()) {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSES.1);
            }
        }
        if let Some(server) = server {
            server.stop();
        }
        db.database().close()
    }
}

/// The identity of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The role; `None` for the bootstrap superuser.
    pub role: Option<String>,
    /// The program's name for itself.
    pub application: String,
    /// Whether columns without a name are called as by PostgreSQL.
    pub postgresql_names: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { role: None, application: "serac".into(), postgresql_names: false }
    }
}

impl SessionOptions {
    fn client(&self, login_timeout: Duration) -> client::Options {
        let Self { role, application, postgresql_names } = self.clone();
        client::Options { role, application, postgresql_names, login_timeout }
    }
}

/// Cancels a session's statement, from any thread and in any process.
#[derive(Clone, Default)]
pub struct CancelRunning(Arc<Mutex<Option<Cancels>>>);

#[derive(Clone)]
enum Cancels {
    /// A session is being looked for, while this allows it.
    Attaching(Arc<AtomicBool>),
    Here(CancelHandle),
    There(client::CancelHandle),
}

impl std::fmt::Debug for CancelRunning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelRunning").finish_non_exhaustive()
    }
}

impl CancelRunning {
    /// Cancels the running statement, if there is one, or the search for the process that has the
    /// folder open.
    pub fn cancel(&self) {
        match self.0.lock().clone() {
            // Relaxed: only the end of the search depends on it.
            Some(Cancels::Attaching(is_wanted)) => is_wanted.store(false, Ordering::Relaxed),
            Some(Cancels::Here(handle)) => handle.cancel(),
            Some(Cancels::There(handle)) => {
                // It connects, which may block. The statement is the one that runs now.
                let (thread, statement) = (std::thread::Builder::new(), handle.statement());
                let _ = thread.name("serac-cancel".into()).spawn(move || handle.cancel_statement(statement));
            }
            None => {}
        }
    }
}

/// The progress of a session's COPY, to be read from any thread.
#[derive(Clone, Debug, Default)]
pub struct FolderProgress(Arc<ProgressInner>);

#[derive(Debug, Default)]
struct ProgressInner {
    /// The progress of a session in this process.
    here: Mutex<Option<Arc<CopyProgress>>>,
    /// Otherwise: rows, bytes or rows read, and how much there is. Relaxed: figures to be shown.
    there: [AtomicU64; 3],
}

impl FolderProgress {
    /// Rows copied.
    pub fn rows(&self) -> u64 {
        let here = self.0.here.lock().clone();
        here.map_or_else(|| self.0.there[0].load(Ordering::Relaxed), |here| here.rows())
    }

    /// The input that is read, and all of the input (zero if unknown), in bytes or rows.
    pub fn input(&self) -> (u64, u64) {
        let [_, done, total] = &self.0.there;
        let there = || (done.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
        let here = self.0.here.lock().clone();
        here.map_or_else(there, |here| here.input())
    }

    fn set(&self, figures: [u64; 3]) {
        self.0.there.iter().zip(figures).for_each(|(figure, value)| figure.store(value, Ordering::Relaxed));
    }
}

/// Takes the results of statements.
pub trait Sink: Send {
    /// The columns of the rows that follow; false if they are not wanted.
    fn rows(&mut self, schema: &SchemaRef) -> bool;
    /// Rows; false if no more are wanted.
    fn batch(&mut self, batch: &RecordBatch) -> bool;
    /// The end of a statement's result. `is_data`: it was the data of a COPY, which went to the
    /// session's output.
    fn complete(&mut self, tag: &str, rows: u64, is_data: bool);
    /// A notice of a statement.
    fn notice(&mut self, _severity: &str, _message: &str) {}
    /// A notification of another session in a channel.
    fn notification(&mut self, _process: i32, _channel: &str, _payload: &str) {}
    /// A new session has begun: the last has ended, for the reason `why`. The folder is open in
    /// another process, or in this one (`None`).
    fn moved(&mut self, _why: &str, _holder: Option<u32>) {}
}

/// Keeps the rows.
#[derive(Default)]
struct Rows {
    schema: Option<SchemaRef>,
    batches: Vec<RecordBatch>,
    count: u64,
}

impl Sink for Rows {
    fn rows(&mut self, schema: &SchemaRef) -> bool {
        (self.schema, self.batches) = (Some(schema.clone()), Vec::new());
        true
    }

    fn batch(&mut self, batch: &RecordBatch) -> bool {
        self.batches.push(batch.clone());
        true
    }

    fn complete(&mut self, _tag: &str, rows: u64, _is_data: bool) {
        self.count = rows;
    }
}

/// Tables as they were at one moment, from this process or another.
#[derive(Debug)]
pub struct FolderSnapshot {
    /// The tables, in the order of the request.
    pub tables: Vec<Table>,
    /// The snapshot from another process; `None` if they are this process's own.
    pub shared: Option<Snapshot>,
    /// The number of the session's process.
    place: u64,
}

enum Place {
    Here(Box<Session>),
    There(Box<Client>),
    /// The process that had the folder open has ended.
    Nowhere,
}

/// A session, in this process or in the one that has the folder open. When that process ends, the
/// session continues as a new one with its next statement, wherever the folder is open then. If it
/// had a transaction or state, statements fail before (`folder::loss`).
pub struct FolderSession {
    database: FolderDatabase,
    options: SessionOptions,
    place: Place,
    cancel: CancelRunning,
    progress: FolderProgress,
    copy_input: Option<Box<dyn Read + Send>>,
    copy_output: Option<Box<dyn Write + Send>>,
    /// The number of times that the session has attached.
    places: u64,
    /// Statements that run in another process, or were abandoned while they did: the session's
    /// state before them, and their text.
    running: Option<(Had, Arc<str>)>,
    /// The state that the last session has lost.
    loss: Option<Loss>,
    /// The end of the last session, if it was not reported yet.
    ended: Option<String>,
    /// The epoch of a session in this process.
    epoch: u64,
    /// Held by a session in this process during a transaction. Statements have their own.
    occupies: Option<Occupies>,
}

/// Cancels a statement that is given up.
struct CancelAtDrop(Option<CancelRunning>);

impl Drop for CancelAtDrop {
    fn drop(&mut self) {
        if let Some(cancel) = self.0.take() {
            cancel.cancel();
        }
    }
}

impl std::fmt::Debug for FolderSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FolderSession").field("holder", &self.holder()).finish_non_exhaustive()
    }
}

impl FolderSession {
    /// The process that has the folder open; `None` if it is this one.
    pub fn holder(&self) -> Option<u32> {
        match &self.place {
            Place::There(client) => Some(client.holder()),
            Place::Here(_) | Place::Nowhere => None,
        }
    }

    /// The session, if this process has the folder open.
    pub fn here(&mut self) -> Option<&mut Session> {
        self.notice_end();
        match &mut self.place {
            Place::Here(session) => Some(session),
            Place::There(_) | Place::Nowhere => None,
        }
    }

    /// Whether a transaction is open.
    pub fn transaction_status(&self) -> TransactionStatus {
        match &self.place {
            Place::Here(session) => session.transaction_status(),
            Place::There(client) => match client.status() {
                Status::Idle => TransactionStatus::Idle,
                Status::Open => TransactionStatus::Open,
                Status::Failed => TransactionStatus::Failed,
            },
            Place::Nowhere if self.loss.as_ref().is_some_and(|loss| loss.is_in_transaction) => {
                TransactionStatus::Failed
            }
            Place::Nowhere => TransactionStatus::Idle,
        }
    }

    /// A handle that cancels statements, also from another thread.
    pub fn cancel_handle(&self) -> CancelRunning {
        self.cancel.clone()
    }

    /// The progress of the session's COPY.
    pub fn progress(&self) -> FolderProgress {
        self.progress.clone()
    }

    /// Sets the input of the next COPY … FROM STDIN.
    pub fn set_copy_input(&mut self, input: Box<dyn Read + Send>) {
        self.copy_input = Some(input);
    }

    /// Sets the output of the next COPY … TO STDOUT.
    pub fn set_copy_output(&mut self, output: Box<dyn Write + Send>) {
        self.copy_output = Some(output);
    }

    async fn attach(&mut self) -> Result<(), FolderError> {
        let (shared, options) = (self.database.0.clone(), self.options.clone());
        let is_wanted = Arc::new(AtomicBool::new(true));
        let attaching = Cancels::Attaching(is_wanted.clone());
        *self.cancel.0.lock() = Some(attaching);
        // Dropping this future abandons the search.
        let mut given_up = CancelAtDrop(Some(self.cancel.clone()));
        // Relaxed: as in `cancel`.
        let search = move || shared.attach(&options, &|| is_wanted.load(Ordering::Relaxed));
        // A panic there is one of opening.
        let attached = tokio::task::spawn_blocking(search).await;
        given_up.0 = None;
        *self.cancel.0.lock() = None;
        let attached = attached.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        self.places += 1;
        let (cancel, here) = match attached {
            Attached::Here(db, epoch) => {
                self.epoch = epoch;
                let mut session = Session::new(&db);
                if self.options.postgresql_names {
                    session.name_columns_as_postgresql();
                }
                log_in(&mut session, self.options.role.as_deref()).map_err(FolderError::Sql)?;
                // A hand-over loses the session's state from here on.
                session.begins();
                let handles = (Cancels::Here(session.cancel_handle()), Some(session.copy_progress()));
                self.place = Place::Here(Box::new(session));
                handles
            }
            Attached::There(client) => {
                let cancel = Cancels::There(client.cancel_handle());
                self.place = Place::There(client);
                (cancel, None)
            }
        };
        *self.cancel.0.lock() = Some(cancel);
        *self.progress.0.here.lock() = here;
        Ok(())
    }

    /// Notes the end of a session that is nowhere any more.
    fn lose(&mut self, had: Had, failure: &Failure, is_told: bool) {
        self.loss = Loss::of(had, failure, is_told);
        self.ended = (!is_told).then(|| failure.message.clone());
    }

    /// Finds out whether the last session has ended.
    fn notice_end(&mut self) {
        if let Some((had, text)) = self.running.take() {
            let message = "the last statement was given up while it ran, and its session has ended";
            let failure = Failure::new(sqlstate::CONNECTION_FAILURE, message)
                .with_detail("A transaction that was open is rolled back, unless that statement was to commit it.");
            // It is told in any case.
            self.lose(Had { state: true, ..had.within(&text) }, &failure, false);
        }
        let epoch = self.database.0.occupancy.borrow().epoch;
        if let Place::Here(session) = &self.place
            && self.epoch != epoch
        {
            let is_in_transaction = session.transaction_status() != TransactionStatus::Idle;
            let had = Had { transaction: is_in_transaction, state: session.has_state() };
            let failure =
                Failure::new(sqlstate::CONNECTION_FAILURE, "this process has handed the database over to a server");
            let failure = if had.state { failure.with_detail(client::STATE_GONE) } else { failure };
            (self.place, self.occupies) = (Place::Nowhere, None);
            self.lose(had, &failure, false);
        }
        if let Place::There(client) = &mut self.place
            && client.is_gone()
        {
            if client.is_handed_over() {
                self.database.0.note_hand_over();
            }
            let (had, failure) = (Had::of(client), client.gone().expect("it is gone").clone());
            self.place = Place::Nowhere;
            self.lose(had, &failure, false);
        }
    }

    /// Makes sure that there is a session for a statement: attaches again if the last session has
    /// ended. False if there is nothing to be run.
    ///
    /// # Errors
    /// 08006 and 25P02 if the last session has lost state, or the error of attaching.
    async fn settle(&mut self, text: &str, sink: &mut dyn Sink) -> Result<bool, Failure> {
        loop {
            if self.database.0.is_ending.load(Ordering::SeqCst) {
                return Err(Failure::new(
                    sqlstate::ADMIN_SHUTDOWN,
                    "terminating connection due to administrator command",
                ));
            }
            self.notice_end();
            match Loss::meets(&mut self.loss, text) {
                Some(Next::RolledBack) => {
                    sink.complete("ROLLBACK", 0, false);
                    return Ok(false);
                }
                Some(Next::Fails(failure)) => {
                    // That says how it has ended.
                    self.ended = None;
                    return Err(failure);
                }
                None => {}
            }
            if matches!(self.place, Place::Nowhere) {
                self.attach().await.map_err(FolderError::into_failure)?;
                let why = self.ended.take();
                sink.moved(why.as_deref().unwrap_or("the last session has ended"), self.holder());
                continue;
            }
            if self.occupy() {
                return Ok(true);
            }
            // It is being handed over. The sender lives as long as `self`.
            let mut occupancy = self.database.0.occupancy.subscribe();
            let _ = occupancy.wait_for(|occupancy| !occupancy.is_closing).await;
        }
    }

    /// Prevents a hand-over while a session in this process runs a statement; false if one has
    /// begun or is done.
    fn occupy(&mut self) -> bool {
        if matches!(self.place, Place::Here(_)) && self.occupies.is_none() {
            self.occupies = self.database.0.occupy(self.epoch);
            return self.occupies.is_some();
        }
        true
    }

    /// The statement for which the session was settled has ended.
    fn rest(&mut self, occupies: Option<Occupies>) {
        self.occupies = occupies.filter(|_| self.transaction_status() != TransactionStatus::Idle);
    }

    /// Runs statements, in order up to the first error.
    ///
    /// # Errors
    /// The error of the first statement that fails, with its place in the text.
    pub async fn run(&mut self, text: &str, sink: &mut dyn Sink) -> Result<(), Failure> {
        loop {
            if !self.settle(text, sink).await? {
                return Ok(());
            }
            // Dropping this future releases it.
            let occupies = self.occupies.take();
            let ran = self.run_once(text, sink).await;
            self.rest(occupies);
            match ran {
                Ok(()) => return Ok(()),
                // No part of it has run, so it may run where the folder is open now, unless the
                // session has lost state.
                Err(client::Error::NotRun(_)) => {}
                Err(error) => return Err(error.into_failure()),
            }
        }
    }

    /// Runs statements where the session is. If it ends meanwhile, that is noted.
    async fn run_once(&mut self, text: &str, sink: &mut dyn Sink) -> Result<(), client::Error> {
        let client = match std::mem::replace(&mut self.place, Place::Nowhere) {
            Place::Here(session) => {
                self.place = Place::Here(session);
                let Self { place: Place::Here(session), copy_input, copy_output, .. } = self else {
                    unreachable!("it is here")
                };
                return run_here(session, text, copy_input, copy_output, sink).await.map_err(client::Error::Statement);
            }
            Place::There(client) => client,
            Place::Nowhere => unreachable!("it is settled"),
        };
        let (had, text) = (Had::of(&client), Arc::<str>::from(text));
        // Dropping this future abandons the statement.
        self.running = Some((had, text.clone()));
        let mut given_up = CancelAtDrop(Some(self.cancel.clone()));
        let ran = self.run_there(client, text.clone(), sink).await;
        (self.running, given_up.0) = (None, None);
        match &ran {
            Err(client::Error::NotRun(failure)) => self.lose(had, failure, false),
            Err(client::Error::Lost(failure)) => self.lose(had.within(&text), failure, true),
            _ => {}
        }
        ran
    }

    /// The rows of a query that the user has not asked for. It does not run in a transaction, nor
    /// if the session has ended, which the next statement reports.
    pub async fn query_aside(&mut self, text: &str) -> Option<Vec<RecordBatch>> {
        self.notice_end();
        let is_idle = self.transaction_status() == TransactionStatus::Idle;
        if matches!(self.place, Place::Nowhere) || !is_idle || !self.occupy() {
            return None;
        }
        let occupies = self.occupies.take();
        let had = match &self.place {
            Place::There(client) => Had::of(client),
            Place::Here(_) | Place::Nowhere => Had::default(),
        };
        let mut rows = Rows::default();
        let ran = self.run_once(text, &mut rows).await;
        self.rest(occupies);
        match ran {
            Ok(()) => Some(rows.batches),
            Err(client::Error::Lost(failure)) => {
                self.lose(had, &failure, false);
                None
            }
            Err(_) => None,
        }
    }

    /// Runs statements; returns the last result with rows.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub async fn query(&mut self, text: &str) -> Result<Vec<RecordBatch>, Failure> {
        let mut rows = Rows::default();
        self.run(text, &mut rows).await?;
        Ok(rows.batches)
    }

    /// Runs statements; returns the number of rows that the last one has given or changed.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub async fn execute(&mut self, text: &str) -> Result<u64, Failure> {
        let mut rows = Rows::default();
        self.run(text, &mut rows).await?;
        Ok(rows.count)
    }

    /// The columns of a query's result.
    ///
    /// # Errors
    /// As for [`run`](Self::run); also of a statement that gives no rows.
    pub async fn columns(&mut self, text: &str) -> Result<SchemaRef, Failure> {
        let mut rows = Rows::default();
        self.run(text, &mut rows).await?;
        rows.schema.ok_or_else(|| Failure::new(sqlstate::SYNTAX_ERROR, "the statement gives no rows"))
    }

    /// Reads tables as they are now, or as the open transaction sees them. In this process they are
    /// the blocks' own buffers; from another one they come through shared memory.
    ///
    /// # Errors
    /// As for [`Client::snapshot`].
    pub async fn snapshot(&mut self, request: &SnapshotRequest) -> Result<FolderSnapshot, Failure> {
        let is_settled = self.settle("", &mut Rows::default()).await?;
        debug_assert!(is_settled, "it is no ROLLBACK");
        let occupies = self.occupies.take();
        let read = match &mut self.place {
            Place::Here(session) => tables_here(session, request).await.map(|tables| (tables, None)).map_err(failure),
            Place::There(client) => tokio::task::block_in_place(|| client.snapshot(request))
                .map(|shared| (shared.tables.clone(), Some(shared)))
                .map_err(client::Error::into_failure),
            Place::Nowhere => unreachable!("it is settled"),
        };
        self.rest(occupies);
        let (tables, shared) = read?;
        Ok(FolderSnapshot { tables, shared, place: self.places })
    }

    /// Tells the process that has the folder open that a snapshot is not needed any more. Its
    /// batches can be read as long as they are held.
    pub fn end_snapshot(&mut self, snapshot: FolderSnapshot) {
        // A process that has ended has ended its leases.
        if let (Place::There(client), Some(shared)) = (&mut self.place, &snapshot.shared)
            && snapshot.place == self.places
        {
            let _ = client.end_lease(shared.lease);
        }
    }

    /// Makes a table with the columns of a schema, unless it is there. `namespace`: the table's
    /// schema in SQL's sense; `None` if the `search_path` decides.
    ///
    /// # Errors
    /// The errors of the statement.
    pub async fn create_table(
        &mut self,
        namespace: Option<&str>,
        table: &str,
        columns: &Schema,
    ) -> Result<(), Failure> {
        let is_settled = self.settle("", &mut Rows::default()).await?;
        debug_assert!(is_settled, "it is no end of a transaction");
        let occupies = self.occupies.take();
        let made = match &mut self.place {
            Place::Here(session) => {
                let schema = namespace.map(str::to_owned);
                let target = IngestTarget { schema, table: table.into(), create: true, ..IngestTarget::default() };
                let made = session.ingest(&target, columns, futures::stream::empty()).await;
                made.map(|_| ()).map_err(failure)
            }
            Place::There(client) => tokio::task::block_in_place(|| client.create_table(namespace, table, columns))
                .map_err(client::Error::into_failure),
            Place::Nowhere => unreachable!("it is settled"),
        };
        self.rest(occupies);
        made
    }
}

async fn run_here(
    session: &mut Session,
    text: &str,
    copy_input: &mut Option<Box<dyn Read + Send>>,
    copy_output: &mut Option<Box<dyn Write + Send>>,
    sink: &mut dyn Sink,
) -> Result<(), Failure> {
    if let Some(input) = copy_input.take() {
        session.set_copy_input(input);
    }
    if let Some(output) = copy_output.take() {
        session.set_copy_output(output);
    }
    let (notices, notifications) = (session.notices(), session.notifications());
    let parsed = session.parse_elsewhere(text).await.map_err(failure)?;
    for (i, statement) in parsed.into_iter().enumerate() {
        // The output is the data, and nothing else.
        let is_data = matches!(session.streamed_copy(&statement), Ok(Some(copy)) if !copy.is_input);
        let style = session.time_style();
        let result = session.stream_statement(statement).await;
        for notice in notices.take() {
            sink.notice(notice.severity.name(), &notice.message);
        }
        match result.map_err(|error| failure(serac_sql::located(error, text, i)))? {
            StatementStream::Rows(mut rows) => {
                let mut wanted = sink.rows(&schema_in_style(&shown_schema(rows.schema()), style.as_deref()));
                let mut count = 0;
                while wanted && let Some(batch) = rows.next().await.map_err(failure)? {
                    count += batch.num_rows() as u64;
                    wanted = sink.batch(&shown(batch).map_err(failure)?);
                }
                sink.complete(&crate::pg::complete_tag(rows.tag(), count), count, false);
            }
            StatementStream::Command { tag, rows } => sink.complete(&tag, rows, is_data),
        }
        for told in notifications.take() {
            sink.notification(told.process, &told.channel, &told.payload);
        }
    }
    Ok(())
}

/// A message from the thread that waits for the other process.
enum Said {
    Event(Event),
    Notice(client::Notice),
    Notification(client::Notification),
}

/// Runs statements in another process, and passes on their results. They are cancelled when the
/// results are not wanted any more.
fn converse(
    client: &mut Client,
    text: &str,
    input: &mut Option<Box<dyn Read + Send>>,
    said: &mpsc::Sender<Said>,
) -> Result<(), client::Error> {
    let mut is_unwanted = false;
    client.send_statement(text)?;
    loop {
        let event = client.next_event();
        for notice in client.notices() {
            let _ = said.blocking_send(Said::Notice(notice));
        }
        match event {
            Ok(None) => break,
            Ok(Some(Event::CopyIn)) => match input.take() {
                Some(input) => client.send_data(input)?,
                None => client.refuse_data("there is no data")?,
            },
            Ok(Some(event)) => {
                // In a transaction, the rest is read and dropped: cancelled, it would fail that.
                let may_cancel = client.status() == Status::Idle;
                if said.blocking_send(Said::Event(event)).is_err() && may_cancel && !is_unwanted {
                    is_unwanted = true;
                    client.cancel_handle().cancel();
                }
            }
            Err(client::Error::Statement(failure)) if is_unwanted && &*failure.sqlstate == CANCELED => break,
            Err(error) => return Err(error),
        }
    }
    for told in client.notifications(Duration::ZERO) {
        let _ = said.blocking_send(Said::Notification(told));
    }
    Ok(())
}

impl FolderSession {
    /// Runs statements in the process that has the folder open. The session is nowhere meanwhile,
    /// and afterwards if the connection has ended.
    async fn run_there(
        &mut self,
        mut client: Box<Client>,
        text: Arc<str>,
        sink: &mut dyn Sink,
    ) -> Result<(), client::Error> {
        self.progress.set([0; 3]);
        let (sender, mut said) = mpsc::channel(EVENTS_AHEAD);
        let mut input = self.copy_input.take();
        let work = tokio::task::spawn_blocking(move || {
            let ran = converse(&mut client, &text, &mut input, &sender);
            (client, input, ran)
        });
        let (mut is_data, mut unwritten) = (false, None);
        while let Some(next) = said.recv().await {
            let goes_on = match next {
                Said::Event(Event::Rows(schema)) => sink.rows(&schema),
                Said::Event(Event::Batch(batch)) => sink.batch(&batch),
                Said::Event(Event::CopyOut) => {
                    is_data = true;
                    true
                }
                Said::Event(Event::Data(bytes)) => {
                    unwritten = self.copy_output.as_mut().and_then(|output| output.write_all(&bytes).err());
                    unwritten.is_none()
                }
                Said::Event(Event::Complete { tag, rows }) => {
                    if is_data && let Some(mut output) = self.copy_output.take() {
                        unwritten = output.flush().err();
                    }
                    sink.complete(&tag, rows, std::mem::take(&mut is_data));
                    unwritten.is_none()
                }
                Said::Event(Event::Progress { rows, done, total }) => {
                    self.progress.set([rows, done, total]);
                    true
                }
                Said::Event(Event::CopyIn) => unreachable!("the other thread answers it"),
                Said::Notice(notice) => {
                    sink.notice(&notice.severity, &notice.message);
                    true
                }
                Said::Notification(told) => {
                    sink.notification(told.process, &told.channel, &told.payload);
                    true
                }
            };
            if !goes_on {
                break;
            }
        }
        drop(said);
        let work = work.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let (client, input, ran) = work;
        let is_there = matches!(ran, Ok(()) | Err(client::Error::Statement(_)));
        if client.is_handed_over() {
            self.database.0.note_hand_over();
        }
        if is_there {
            self.place = Place::There(client);
        } else {
            // It has not been read if the statement has not run.
            self.copy_input = input;
        }
        match unwritten {
            Some(error) if is_there => Err(client::Error::Statement(Failure::new(
                sqlstate::IO_ERROR,
                format!("could not write the data: {error}"),
            ))),
            _ => ran,
        }
    }
}
