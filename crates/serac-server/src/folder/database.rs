//! To open a folder or to connect to the process that has it open, and sessions that do not show
//! which.
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
use super::server::{FolderOptions, FolderServer};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use parking_lot::Mutex;
use serac_client::client::{self, Client, Event};
use serac_client::wire::{Failure, Status};
use serac_engine::{Database, EngineError};
use serac_sql::{
    CancelHandle, CopyProgress, IngestTarget, Session, SqlDatabase, SqlError, SqlOptions, StatementStream,
    TransactionStatus,
};
use serac_storage::{StorageError, StorageOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Waits between two tries to open or to connect: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// How long a holder that seems to serve nobody is tried again: its LOCK may still tell of the one
/// before it.
const GRACE: Duration = Duration::from_millis(300);
/// Events that a client is read ahead of who takes them.
const EVENTS_AHEAD: usize = 4;

/// How a folder is opened.
#[derive(Clone, Debug)]
pub struct Opening {
    /// How the storage is opened, if this process opens it. Without a path the database is in
    /// memory.
    pub storage: StorageOptions,
    /// How SQL runs then.
    pub sql: SqlOptions,
    /// How others are served then.
    pub server: FolderOptions,
    /// The database is for this process alone: opening fails if another one has it open, and others
    /// are not served.
    pub is_standalone: bool,
    /// How long a holder that opens or closes the database is waited for.
    pub patience: Duration,
}

impl Opening {
    /// A folder, with what is usual.
    pub fn of(folder: impl Into<PathBuf>) -> Self {
        Self::with(StorageOptions { path: Some(folder.into()), ..StorageOptions::default() }, SqlOptions::default())
    }
    /// With these options.
    pub fn with(storage: StorageOptions, sql: SqlOptions) -> Self {
        let (server, patience) = (FolderOptions::default(), Duration::from_secs(60));
        Self { storage, sql, server, is_standalone: false, patience }
    }
}

/// Why a folder can neither be opened nor worked in through another process.
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
    },
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
            Self::Silent { path, holder } => {
                let holder = holder.map_or("another process".into(), |holder| format!("process {holder}"));
                let path = path.display();
                write!(f, "{holder} opens or closes the database at {path}, and does not answer: try again later")
            }
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
            Self::Serve(_) | Self::Silent { .. } => Failure::new("08001", self.to_string()),
        }
    }
}

/// What this process has open.
struct Held {
    db: SqlDatabase,
    server: Option<FolderServer>,
}

struct Shared {
    opening: Opening,
    held: Mutex<Option<Held>>,
}

/// Where a session is.
enum Attached {
    Here(SqlDatabase),
    There(Box<Client>),
}

/// A database in a folder, open in this process or in another. See the [module](super).
#[derive(Clone)]
pub struct FolderDatabase(Arc<Shared>);

impl std::fmt::Debug for FolderDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FolderDatabase").field("path", &self.0.opening.storage.path).finish_non_exhaustive()
    }
}

impl Shared {
    /// Opens the folder, or connects to the process that has it open.
    fn attach(&self, options: &SessionOptions) -> Result<Attached, FolderError> {
        let mut held = self.held.lock();
        let Opening { storage, sql, server, is_standalone, patience } = &self.opening;
        let serves_others = !is_standalone && storage.path.is_some();
        let began = Instant::now();
        let mut pause = PAUSES.0;
        loop {
            if let Some(held) = &*held {
                return Ok(Attached::Here(held.db.clone()));
            }
            if let Some(path) = storage.path.as_deref().filter(|_| serves_others) {
                match Client::connect(path, &options.client(*patience)) {
                    Ok(client) => return Ok(Attached::There(Box::new(client))),
                    Err(client::Error::Nobody(_)) => {}
                    Err(error) => return Err(FolderError::Connect(error)),
                }
            }
            match Database::open_with(StorageOptions { serves_others, ..storage.clone() }) {
                Ok(database) => {
                    let db = SqlDatabase::new(database, sql).map_err(FolderError::Sql)?;
                    let path = storage.path.as_deref().filter(|_| serves_others);
                    let server = path.map(|path| FolderServer::start(db.clone(), path, server.clone()));
                    let server = server.transpose().map_err(FolderError::Serve)?;
                    *held = Some(Held { db, server });
                }
                Err(EngineError::Storage(StorageError::Locked { path, holder, serves_others: is_served })) => {
                    let waits = serves_others && (is_served || began.elapsed() < GRACE);
                    if !waits {
                        let locked = StorageError::Locked { path, holder, serves_others: is_served };
                        return Err(FolderError::Open(locked.into()));
                    }
                    if began.elapsed() >= *patience {
                        return Err(FolderError::Silent { path, holder });
                    }
                    // Those who wait together do not come back together.
                    std::thread::sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0));
                    pause = (pause * 2).min(PAUSES.1);
                }
                Err(error) => return Err(FolderError::Open(error)),
            }
        }
    }
}

impl FolderDatabase {
    /// Opens the folder, or finds the process that has it open. It may block for as long as a
    /// recovery takes.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn open(opening: Opening) -> Result<Self, FolderError> {
        let shared = Arc::new(Shared { opening, held: Mutex::default() });
        shared.attach(&SessionOptions::default())?;
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
            is_running: false,
        };
        session.attach().await?;
        Ok(session)
    }
    /// Ends the connections of others, and closes the database, if this process has it open.
    /// Sessions that are left give errors.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn close(&self) -> Result<(), EngineError> {
        let Some(Held { db, server }) = self.0.held.lock().take() else { return Ok(()) };
        if let Some(server) = server {
            server.stop();
        }
        db.database().close()
    }
}

/// Whose a session is.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The role; none for the bootstrap superuser.
    pub role: Option<String>,
    /// What the program calls itself.
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

/// Cancels what a session runs, from any thread and wherever it runs.
#[derive(Clone, Default)]
pub struct CancelRunning(Arc<Mutex<Option<Cancels>>>);

#[derive(Clone)]
enum Cancels {
    Here(CancelHandle),
    There(client::CancelHandle),
}

impl std::fmt::Debug for CancelRunning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelRunning").finish_non_exhaustive()
    }
}

impl CancelRunning {
    /// Cancels the statement that is running, if one is.
    pub fn cancel(&self) {
        match self.0.lock().clone() {
            Some(Cancels::Here(handle)) => handle.cancel(),
            Some(Cancels::There(handle)) => {
                // It connects, which may block.
                let _ = std::thread::Builder::new().name("serac-cancel".into()).spawn(move || handle.cancel());
            }
            None => {}
        }
    }
}

/// How far a session's COPY is, to be read from any thread.
#[derive(Clone, Debug, Default)]
pub struct FolderProgress(Arc<ProgressInner>);

#[derive(Debug, Default)]
struct ProgressInner {
    /// Of a session in this process.
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
    /// How much of the input is read, and how much there is (zero if unknown), in bytes or rows.
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

/// Takes what statements give.
pub trait Sink: Send {
    /// The columns of rows that follow; false if nobody wants them.
    fn rows(&mut self, schema: &SchemaRef) -> bool;
    /// Rows; false if nobody wants more.
    fn batch(&mut self, batch: &RecordBatch) -> bool;
    /// The end of a statement's result. `is_data`: it was the data of a COPY, which went to the
    /// session's output.
    fn complete(&mut self, tag: &str, rows: u64, is_data: bool);
    /// What a statement says besides its result.
    fn notice(&mut self, _severity: &str, _message: &str) {}
    /// What another session has told in a channel.
    fn notification(&mut self, _process: i32, _channel: &str, _payload: &str) {}
    /// The session is another one from now on: its process has ended, and the folder is open in
    /// this process (none), or in another.
    fn moved(&mut self, _holder: Option<u32>) {}
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

enum Place {
    Here(Box<Session>),
    There(Box<Client>),
    /// The process that had the folder open has ended.
    Nowhere,
}

/// A session, in this process or in the one that has the folder open. When that ends, the session
/// goes on as a new one with its next statement, wherever the folder is open then.
pub struct FolderSession {
    database: FolderDatabase,
    options: SessionOptions,
    place: Place,
    cancel: CancelRunning,
    progress: FolderProgress,
    copy_input: Option<Box<dyn Read + Send>>,
    copy_output: Option<Box<dyn Write + Send>>,
    /// Statements run in another process, or were given up while they did.
    is_running: bool,
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
    /// Where the session is: the process that has the folder open; none if it is this one.
    pub fn holder(&self) -> Option<u32> {
        match &self.place {
            Place::There(client) => Some(client.holder()),
            Place::Here(_) | Place::Nowhere => None,
        }
    }
    /// The session, if this process has the folder open.
    pub fn here(&mut self) -> Option<&mut Session> {
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
            Place::Nowhere => TransactionStatus::Idle,
        }
    }
    /// What cancels statements, also from another thread.
    pub fn cancel_handle(&self) -> CancelRunning {
        self.cancel.clone()
    }
    /// How far the session's COPY is.
    pub fn progress(&self) -> FolderProgress {
        self.progress.clone()
    }
    /// What the next COPY … FROM STDIN reads.
    pub fn set_copy_input(&mut self, input: Box<dyn Read + Send>) {
        self.copy_input = Some(input);
    }
    /// What the next COPY … TO STDOUT writes to.
    pub fn set_copy_output(&mut self, output: Box<dyn Write + Send>) {
        self.copy_output = Some(output);
    }

    async fn attach(&mut self) -> Result<(), FolderError> {
        let (shared, options) = (self.database.0.clone(), self.options.clone());
        // A panic there is one of opening.
        let attached = tokio::task::spawn_blocking(move || shared.attach(&options)).await;
        let attached = attached.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let (cancel, here) = match attached {
            Attached::Here(db) => {
                let mut session = Session::new(&db);
                if self.options.postgresql_names {
                    session.name_columns_as_postgresql();
                }
                log_in(&mut session, self.options.role.as_deref()).map_err(FolderError::Sql)?;
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
    /// Makes sure that there is a session: finds one where the last has ended.
    ///
    /// # Errors
    /// 08006 if a transaction has ended with the last one, or why there is none.
    async fn settle(&mut self, sink: &mut dyn Sink) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_running) {
            let failure =
                Failure::new("08006", "the last statement was given up while it ran, and its session has ended");
            return Err(failure
                .with_detail("A transaction that was open is rolled back, unless that statement was to commit it."));
        }
        if let Place::There(client) = &mut self.place
            && client.is_gone()
        {
            let status = client.status();
            let Place::There(mut client) = std::mem::replace(&mut self.place, Place::Nowhere) else { unreachable!() };
            if status != Status::Idle {
                return Err(client
                    .send_statement("")
                    .map_or_else(client::Error::into_failure, |()| unreachable!("it is gone")));
            }
        }
        if matches!(self.place, Place::Nowhere) {
            self.attach().await.map_err(FolderError::into_failure)?;
            sink.moved(self.holder());
        }
        Ok(())
    }

    /// Runs statements, in order up to the first error.
    ///
    /// # Errors
    /// What is wrong with the first statement that fails, with its place in the text.
    pub async fn run(&mut self, text: &str, sink: &mut dyn Sink) -> Result<(), Failure> {
        loop {
            self.settle(sink).await?;
            let client = match std::mem::replace(&mut self.place, Place::Nowhere) {
                Place::Here(session) => {
                    self.place = Place::Here(session);
                    let Self { place: Place::Here(session), copy_input, copy_output, .. } = self else {
                        unreachable!("it is here")
                    };
                    return run_here(session, text, copy_input, copy_output, sink).await;
                }
                Place::There(client) => client,
                Place::Nowhere => unreachable!("it is settled"),
            };
            let is_open = client.status() != Status::Idle;
            // Who drops this future gives the statement up.
            self.is_running = true;
            let mut given_up = CancelAtDrop(Some(self.cancel.clone()));
            let ran = self.run_there(client, text, sink).await;
            (self.is_running, given_up.0) = (false, None);
            match ran {
                Ok(()) => return Ok(()),
                // Nothing of it has run, so it may run where the folder is open now.
                Err(client::Error::NotRun(_)) if !is_open => {}
                Err(error) => return Err(error.into_failure()),
            }
        }
    }
    /// Runs statements; the rows of the last one that gives any.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub async fn query(&mut self, text: &str) -> Result<Vec<RecordBatch>, Failure> {
        let mut rows = Rows::default();
        self.run(text, &mut rows).await?;
        Ok(rows.batches)
    }
    /// Runs statements; how many rows the last one has given or changed.
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
        rows.schema.ok_or_else(|| Failure::new("42601", "the statement gives no rows"))
    }
    /// Makes a table with the columns of a schema, unless it is there. `namespace`: the table's
    /// schema in SQL's sense; none where the `search_path` tells.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn create_table(
        &mut self,
        namespace: Option<&str>,
        table: &str,
        columns: &Schema,
    ) -> Result<(), Failure> {
        self.settle(&mut Rows::default()).await?;
        match &mut self.place {
            Place::Here(session) => {
                let schema = namespace.map(str::to_owned);
                let target = IngestTarget { schema, table: table.into(), create: true, ..IngestTarget::default() };
                let made = session.ingest(&target, columns, futures::stream::empty()).await;
                made.map(|_| ()).map_err(failure)
            }
            Place::There(client) => tokio::task::block_in_place(|| client.create_table(namespace, table, columns))
                .map_err(client::Error::into_failure),
            Place::Nowhere => unreachable!("it is settled"),
        }
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
        let result = session.stream_statement(statement).await;
        for notice in notices.take() {
            sink.notice(notice.severity.name(), &notice.message);
        }
        match result.map_err(|error| failure(error.located(text, i)))? {
            StatementStream::Rows(mut rows) => {
                let mut wanted = sink.rows(rows.schema());
                let mut count = 0;
                while wanted && let Some(batch) = rows.next().await.map_err(failure)? {
                    count += batch.num_rows() as u64;
                    wanted = sink.batch(&batch);
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

/// What comes from the thread that waits for the other process.
enum Said {
    Event(Event),
    Notice(client::Notice),
    Notification(client::Notification),
}

/// Runs statements in another process, and passes on what they give. They are cancelled when nobody
/// takes that.
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
                if said.blocking_send(Said::Event(event)).is_err() && !is_unwanted {
                    is_unwanted = true;
                    client.cancel_handle().cancel();
                }
            }
            Err(client::Error::Statement(_)) if is_unwanted => break,
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
        text: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), client::Error> {
        self.progress.set([0; 3]);
        let (sender, mut said) = mpsc::channel(EVENTS_AHEAD);
        let (text, mut input) = (text.to_owned(), self.copy_input.take());
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
        if is_there {
            self.place = Place::There(client);
        } else {
            // It has not been read if the statement has not run.
            self.copy_input = input;
        }
        match unwritten {
            Some(error) if is_there => {
                Err(client::Error::Statement(Failure::new("58030", format!("could not write the data: {error}"))))
            }
            _ => ran,
        }
    }
}
