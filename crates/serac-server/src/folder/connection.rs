//! A connection: its login, then statement after statement.
//!
//! ```text
//!            reader's task            connection's task
//! socket ──▶ frames, two ahead ─────▶ statements ──▶ session
//!            │ leases, client's end    │
//!            └── Running: cancel ─────▶│
//! socket ◀──────────────── answers ────┘
//! ```
//! The reader notices a client that has gone while a statement runs, even when the connection can
//! take no more frames from the client. It then cancels the statement. The session goes with the
//! connection, and its transaction is rolled back.

use super::rows::Messages;
use super::running::Running;
use super::server::FolderServerState;
use crate::copy_streams::{Input, Output};
use crate::frame_stream::{ReadError, read_frame};
use crate::pg::Account;
use crate::port::Phase;
use bytes::Bytes;
use datafusion::arrow::buffer::Buffer;
use serac_client::wire::{
    self, ClientFrame, Failure, FrameError, HolderFrame, MOST_DATA_BYTES, MOST_DESCRIPTORS, MOST_IMAGE_BYTES, Sender,
    Status, VERSION,
};
use serac_engine::security::BOOTSTRAP_ROLE;
use serac_export::shared_memory::Descriptors;
use serac_net::admission::Waiting;
use serac_net::listen::Socket;
use serac_sql::activity::{Client, StatementKind, Wait};
use serac_sql::free_numbers::{shown, shown_schema};
use serac_sql::tree::{StatementKind as StatementTree, Text};
use serac_sql::wire::schema_in_style;
use serac_sql::{
    ArrowMessage, ArrowMessages, CopyProgress, Identity, IngestTarget, Notifications, Parsed, Session, SqlError,
    StatementResult, StatementStream, StreamedCopy, TransactionStatus,
};
use std::any::Any;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tracing::{debug, info, warn};

/// Frames that are read ahead of the statements.
const FRAMES_AHEAD: usize = 2;
/// Parts of a COPY's data that wait for the thread that reads them.
const DATA_AHEAD: usize = 4;
/// Bytes of answers that are sent while a statement gives more.
const SEND_BYTES: usize = 64 << 10;
/// Room for answers that is kept between answers.
const KEPT_BYTES: usize = 256 << 10;
/// Time between two figures of a COPY's progress.
const PROGRESS: Duration = Duration::from_millis(250);
/// The time that a client may take for its last message.
const FAREWELL: Duration = Duration::from_secs(1);

/// The answer to a client that asks for an image in shared memory.
pub struct Image {
    /// The places of the data.
    pub manifest: Vec<u8>,
    /// The open files that the manifest names by their numbers in this list.
    pub descriptors: Descriptors,
    /// Keeps the image. Dropped when the client gives it back, or has gone, or after `time`.
    pub lease: Box<dyn Any + Send>,
    /// The time that the image is kept; `None` while the client is connected.
    pub time: Option<Duration>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { manifest, descriptors, .. } = self;
        f.debug_struct("Image").field("bytes", &manifest.len()).field("files", &descriptors.len()).finish()
    }
}

/// Makes the image that a request asks for, in the client's session. It may block.
pub type ImageSource = Arc<dyn Fn(&mut Session, &[u8]) -> Result<Image, SqlError> + Send + Sync>;

/// The error of a statement, as clients are told.
pub(super) fn failure(error: SqlError) -> Failure {
    let SqlError { sqlstate, message, detail, hint, name, position, .. } = error;
    let (detail, name) = (detail.map(Into::into), name.map(Into::into));
    let position = position.map(|(line, column)| (line.into(), column.into()));
    Failure { detail, hint, name, position, ..Failure::new(sqlstate, message) }
}

/// Makes a new session that of a role; without one it is the bootstrap superuser's.
pub(super) fn log_in(session: &mut Session, role: Option<&str>) -> Result<(), SqlError> {
    let Some(role) = role else { return Ok(()) };
    Account::of(role, &HashMap::new(), session.database()).enter(session, role)
}

/// The reason why a statement, or the connection, ends early.
enum Stop {
    Sql(SqlError),
    /// The client has gone.
    Gone,
    /// The connection ends, and the client is told why.
    Bye(Failure),
}

impl From<SqlError> for Stop {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

fn terminated() -> Failure {
    Failure::new(sqlstate::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}
fn malformed(error: impl std::fmt::Display) -> Failure {
    Failure::new(sqlstate::PROTOCOL_VIOLATION, error.to_string())
}
fn too_many() -> Failure {
    Failure::new(sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
        .with_hint("Close other connections to the folder, or try again later.")
}

/// A frame, or why the connection ends.
type Next = Result<(u8, Vec<u8>), FrameError>;

/// The answers, on their way to the client.
struct Wire {
    socket: OwnedWriteHalf,
    out: Vec<u8>,
    /// Bytes of it that are sent. A call that sends may be broken off.
    sent: usize,
    timeout: Duration,
}

impl Wire {
    fn put(&mut self, frame: &HolderFrame<'_>) {
        frame.put(&mut self.out);
    }

    /// Sends the buffered bytes. A client that takes nothing for too long has gone.
    async fn flush(&mut self, running: &Running) -> Result<(), Stop> {
        let gone = running.gone();
        let mut gone = pin!(gone);
        let mut ends = running.activity().ends();
        while self.sent < self.out.len() {
            let count = match self.socket.try_write(&self.out[self.sent..]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    running.activity().waits(Wait::ClientWrite);
                    let ready = tokio::select! {
                        biased;
                        () = &mut gone => false,
                        // A client that does not read cannot be told.
                        _ = ends.wait_for(|ends| *ends) => false,
                        ready = tokio::time::timeout(self.timeout, self.socket.writable()) => matches!(ready, Ok(Ok(()))),
                    };
                    running.activity().waits(Wait::Nothing);
                    if ready {
                        continue;
                    }
                    0
                }
                written => written.unwrap_or(0),
            };
            if count == 0 {
                running.leave();
                return Err(Stop::Gone);
            }
            self.sent += count;
        }
        running.activity().sent(self.sent);
        self.sent = 0;
        self.out.clear();
        self.out.shrink_to(KEPT_BYTES);
        Ok(())
    }

    /// Sends a frame together with open files.
    async fn send_descriptors(&mut self, files: &[BorrowedFd<'_>], running: &Running) -> Result<(), Stop> {
        self.flush(running).await?;
        let mut frame = Vec::new();
        HolderFrame::Descriptors(files.len() as u16).put(&mut frame);
        loop {
            let ready = tokio::time::timeout(self.timeout, self.socket.writable()).await;
            let send = || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
                let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
                assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(files)), "there is room");
                let slices = [IoSlice::new(&frame)];
                let socket: &tokio::net::UnixStream = self.socket.as_ref();
                Ok(rustix::net::sendmsg(socket, &slices, &mut control, rustix::net::SendFlags::NOSIGNAL)?)
            };
            let socket: &tokio::net::UnixStream = self.socket.as_ref();
            match socket.try_io(Interest::WRITABLE, send) {
                // The files go with the first byte, and so small a frame is taken as a whole.
                Ok(count) if count == frame.len() => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && matches!(ready, Ok(Ok(()))) => {}
                // No byte of it was sent. The system bounds the open files that wait in all sockets
                // of a user: other clients, which do not read, may have taken them.
                Err(error) if is_short_of_files(&error) => {
                    let message = format!("no more open files can be sent at the moment: {error}");
                    return Err(SqlError::new(sqlstate::INSUFFICIENT_RESOURCES, message).into());
                }
                _ => {
                    running.leave();
                    return Err(Stop::Gone);
                }
            }
        }
    }
}

/// Whether the system has no room for open files on their way.
fn is_short_of_files(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let short = [Errno::TOOMANYREFS, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|error| short.contains(&error))
}

/// Reads a client's frames to its end.
async fn read(
    mut socket: OwnedReadHalf,
    frames: mpsc::Sender<Next>,
    running: Arc<Running>,
    shared: Arc<FolderServerState>,
) {
    let mut phases = shared.phase.subscribe();
    let reading = async {
        loop {
            let next = match read_frame(&mut socket, |header| wire::header(header, Sender::Client)).await {
                Ok(Some((kind, body))) => {
                    running.activity().received(body.len());
                    if let Ok(ClientFrame::LeaseEnd { lease }) = ClientFrame::read(kind, &body) {
                        running.end_lease(lease);
                        continue;
                    }
                    Ok((kind, body))
                }
                Ok(None) | Err(ReadError::Io(_)) => break,
                Err(ReadError::Frame(error)) => Err(error),
            };
            let is_last = next.is_err();
            // While nothing more is taken of the client, its end would not be read.
            let sent = tokio::select! {
                biased;
                sent = frames.send(next) => sent.is_ok(),
                _ = socket.ready(Interest::PRIORITY) => false,
            };
            if !sent || is_last {
                if sent {
                    return std::future::pending().await;
                }
                break;
            }
        }
        running.leave();
    };
    let mut reading = pin!(reading);
    loop {
        tokio::select! {
            () = &mut reading => return,
            changed = phases.changed() => {
                if changed.is_err() {
                    return reading.await;
                }
                if *phases.borrow_and_update() == Phase::Cancelling {
                    running.activity().cancel();
                }
            }
        }
    }
}

/// Serves a client to its end. `place`: where it waits until it has logged in. `busy`: dropped when
/// nothing of it runs any more.
pub(super) async fn serve(socket: Socket, shared: Arc<FolderServerState>, place: Waiting, busy: mpsc::Sender<()>) {
    let peer = socket.peer();
    let Socket::Unix(socket) = socket else { return };
    let (mut reader, writer) = socket.into_split();
    let timeout = shared.options.login_timeout;
    let mut wire = Wire { socket: writer, out: Vec::new(), sent: 0, timeout: shared.options.write_timeout };
    let first = tokio::select! {
        first = read_frame(&mut reader, |header| wire::header(header, Sender::Stranger)) => first,
        () = place.ends(timeout) => return,
        () = shared.closed() => return,
    };
    drop(place);
    let own = rustix::process::geteuid().as_raw();
    let refused = match peer {
        Some((user, _)) if user == 0 || user == own => None,
        Some((user, _)) => Some(format!(
            "the database is open in a process of user {own}, which serves that user and root, but not user {user}"
        )),
        None => Some("the system does not report the user of the client's process".into()),
    };
    let entered = match (refused, first) {
        (_, Ok(None) | Err(ReadError::Io(_))) => return,
        (Some(why), _) => Err(Failure::new(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, why)),
        (None, Err(ReadError::Frame(error))) => Err(malformed(error)),
        (None, Ok(Some((kind, body)))) => match ClientFrame::read(kind, &body) {
            Ok(ClientFrame::Cancel { process, secret, statement }) => {
                let running = shared.running.lock().get(&process).cloned();
                if let Some(running) = running {
                    running.cancel(secret, statement);
                }
                return;
            }
            Ok(ClientFrame::HandOver) => {
                let answer = match &shared.hand_over {
                    Some(hand_over) => hand_over(),
                    None => Err(Failure::new(
                        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                        "the process that has the database open serves it to its end",
                    )),
                };
                info!(is_granted = answer.is_ok(), "a server asks for the folder");
                let mut out = Vec::new();
                match answer {
                    Ok(()) => HolderFrame::Bye { statement: 0, why: shared.ending() }.put(&mut out),
                    Err(why) => HolderFrame::Refused(why).put(&mut out),
                }
                let _ = tokio::time::timeout(FAREWELL, wire.socket.write_all(&out)).await;
                return;
            }
            Ok(hello @ ClientFrame::Hello { .. }) => enter(&hello, &shared),
            Ok(_) => Err(malformed("the first frame is no Hello")),
            Err(error) => Err(malformed(error)),
        },
    };
    let (session, client, folder, seat) = match entered {
        Ok(entered) => entered,
        Err(why) => {
            warn!(sqlstate = &*why.sqlstate, message = why.message, peer = peer.map(|peer| peer.0), "login refused");
            let mut out = Vec::new();
            HolderFrame::Refused(why).put(&mut out);
            let _ = tokio::time::timeout(FAREWELL, wire.socket.write_all(&out)).await;
            return;
        }
    };
    let user = client.user.clone();
    let registered = shared.db.connections().enter(client, session.cancel_handle());
    let process = registered.process();
    let running = Arc::new(Running::new(registered, session.cancel_handle()));
    shared.running.lock().insert(process, running.clone());
    debug!(user, process, peer = peer.and_then(|peer| peer.1), "connected");
    session_of(session, wire, reader, folder, running.clone(), &shared, user.clone()).await;
    shared.running.lock().remove(&process);
    running.end_leases();
    drop((seat, busy));
    debug!(user, process, "disconnected");
}

type Entered = (Session, Client, Option<String>, OwnedSemaphorePermit);

/// Lets a client in.
fn enter(hello: &ClientFrame<'_>, shared: &FolderServerState) -> Result<Entered, Failure> {
    let ClientFrame::Hello { version, postgresql_names, role, application, folder } = *hello else {
        return Err(malformed("the first frame is no Hello"));
    };
    if version != VERSION {
        let message = format!("version {version} of the protocol is not spoken, but version {VERSION} is");
        return Err(Failure::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
    }
    let seat = shared.seats.clone().try_acquire_owned().map_err(|_| too_many())?;
    let mut session = Session::new(&shared.db);
    if postgresql_names {
        session.name_columns_as_postgresql();
    }
    log_in(&mut session, role).map_err(failure)?;
    let user = role.unwrap_or(BOOTSTRAP_ROLE).to_owned();
    let client = Client { user, database: shared.name.clone(), application: application.into(), address: None };
    Ok((session, client, folder.map(str::to_owned), seat))
}

/// Ends a task when it is dropped.
struct Reading(tokio::task::JoinHandle<()>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn session_of(
    mut session: Session,
    mut wire: Wire,
    reader: OwnedReadHalf,
    folder: Option<String>,
    running: Arc<Running>,
    shared: &Arc<FolderServerState>,
    user: String,
) {
    let process = running.activity().process();
    session.identify(Identity { user: user.clone(), database: shared.name.clone(), process });
    session.begins();
    let name = concat!("SeracDB ", env!("CARGO_PKG_VERSION"));
    let (secret, holder) = (running.secret(), std::process::id());
    wire.put(&HolderFrame::Welcome { version: VERSION, process, secret, holder, folder: shared.folder, name });
    let (sender, frames) = mpsc::channel(FRAMES_AHEAD);
    let _reading = Reading(tokio::spawn(read(reader, sender, running.clone(), shared.clone())));
    let notifications = session.notifications();
    let slow = shared.options.slow_statement;
    let images = shared.options.images.clone();
    let mut connection =
        Connection { session, wire, frames, running, folder, notifications, owes_data: false, slow, images, user };
    let why = match connection.run(shared).await {
        Stop::Bye(why) => why,
        Stop::Gone => return,
        Stop::Sql(error) => failure(error),
    };
    // The session ends, and its transaction, before the client is told.
    let Connection { session, mut wire, running, .. } = connection;
    drop(session);
    wire.put(&HolderFrame::Bye { statement: running.begun(), why });
    let _ = tokio::time::timeout(FAREWELL, wire.flush(&running)).await;
}

/// A connection whose client has logged in.
struct Connection {
    session: Session,
    wire: Wire,
    frames: mpsc::Receiver<Next>,
    running: Arc<Running>,
    /// The client's folder.
    folder: Option<String>,
    notifications: Notifications,
    /// A COPY has ended before its data.
    owes_data: bool,
    /// Statements that take at least this long are logged.
    slow: Option<Duration>,
    images: Option<ImageSource>,
    user: String,
}

impl Connection {
    /// Works off frames until the connection ends; why.
    async fn run(&mut self, shared: &FolderServerState) -> Stop {
        let mut ends = self.running.activity().ends();
        let notifications = self.notifications.clone();
        // A client that connects while the end waits for others may run one statement.
        let mut is_new = shared.is_stopping();
        loop {
            if let Err(stop) = self.wire.flush(&self.running).await {
                return stop;
            }
            let limit = self.session.idle_limit();
            let idle = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            let is_idle = self.session.transaction_status() == TransactionStatus::Idle;
            // Transactions may go on as statements may, but not rest for as long as they like.
            let rests_too_long = async {
                shared.stopped().await;
                tokio::time::sleep(shared.options.shutdown_timeout).await;
            };
            let next = tokio::select! {
                biased;
                _ = ends.wait_for(|ends| *ends) => return Stop::Bye(terminated()),
                () = shared.stopped(), if is_idle && !is_new => return Stop::Bye(shared.ending()),
                () = shared.closed(), if is_idle => return Stop::Bye(shared.ending()),
                () = shared.cancelling() => return Stop::Bye(shared.ending()),
                () = rests_too_long => return Stop::Bye(shared.ending()),
                next = self.frames.recv() => next,
                () = notifications.arrived(), if self.may_tell() => {
                    self.tell();
                    continue;
                }
                () = idle => {
                    return Stop::Bye(match self.session.transaction_status() {
                        TransactionStatus::Idle => Failure::new(sqlstate::IDLE_SESSION_TIMEOUT, "the session was idle for too long"),
                        _ => Failure::new(sqlstate::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, "the session was idle in a transaction for too long"),
                    });
                }
            };
            is_new = false;
            let served = match next {
                None => return Stop::Gone,
                Some(Err(error)) => return Stop::Bye(malformed(error)),
                Some(Ok((kind, body))) => match ClientFrame::read(kind, &body) {
                    Ok(ClientFrame::Statement { statement, text }) => self.statement(statement, text, shared).await,
                    Ok(ClientFrame::CreateTable { statement, schema, table, columns }) => {
                        self.create_table(statement, schema, table, columns, shared).await
                    }
                    Ok(ClientFrame::Snapshot { statement, request }) => self.snapshot(statement, request, shared).await,
                    Ok(_) => return Stop::Bye(malformed("a frame is out of place")),
                    Err(error) => return Stop::Bye(malformed(error)),
                },
            };
            if let Err(stop) = served {
                return stop;
            }
        }
    }

    /// Whether the client is told of notifications: outside of transactions.
    fn may_tell(&self) -> bool {
        self.notifications.listens() && self.session.transaction_status() == TransactionStatus::Idle
    }

    fn tell(&mut self) {
        for told in self.notifications.take() {
            let (channel, payload) = (&*told.channel, &*told.payload);
            self.wire.put(&HolderFrame::Notification { process: told.process, channel, payload });
        }
    }

    fn put_notices(&mut self) {
        for notice in self.session.notices().take() {
            let (severity, sqlstate, message) = (notice.severity.name(), notice.sqlstate, &*notice.message);
            self.wire.put(&HolderFrame::Notice { severity, sqlstate, message });
        }
    }

    /// Answers the end of a statement; an error if the connection ends with it.
    async fn end(&mut self, statement: u64, result: Result<(), Stop>, shared: &FolderServerState) -> Result<(), Stop> {
        match result {
            Ok(()) => {}
            Err(Stop::Sql(mut error)) => {
                if let Err(log) = self.session.error_is_durable().await {
                    error = log;
                }
                if error.sqlstate == sqlstate::QUERY_CANCELED && *shared.phase.borrow() == Phase::Cancelling {
                    let message = "canceling statement because the process that has the database open closes it";
                    error = SqlError::new(sqlstate::ADMIN_SHUTDOWN, message);
                }
                self.put_notices();
                self.wire.put(&HolderFrame::Error(failure(error)));
            }
            Err(stop) => return Err(stop),
        }
        self.drop_data().await?;
        self.running.end();
        let status = self.session.transaction_status();
        self.running.activity().rests(status);
        if self.may_tell() {
            self.tell();
        }
        let status = match status {
            TransactionStatus::Idle => Status::Idle,
            TransactionStatus::Open => Status::Open,
            TransactionStatus::Failed => Status::Failed,
        };
        self.wire.put(&HolderFrame::Ready { statement, status, has_state: self.session.has_state() });
        Ok(())
    }

    /// Drops the rest of the data of a COPY that has ended. The client learns of that first.
    async fn drop_data(&mut self) -> Result<(), Stop> {
        if !std::mem::take(&mut self.owes_data) {
            return Ok(());
        }
        self.wire.flush(&self.running).await?;
        let mut ends = self.running.activity().ends();
        loop {
            let next = tokio::select! {
                biased;
                _ = ends.wait_for(|ends| *ends) => return Err(Stop::Bye(terminated())),
                next = self.frames.recv() => next,
            };
            match next {
                None => return Err(Stop::Gone),
                Some(Err(error)) => return Err(Stop::Bye(malformed(error))),
                Some(Ok((kind, body))) => match ClientFrame::read(kind, &body) {
                    Ok(ClientFrame::Data(_)) => {}
                    Ok(ClientFrame::DataEnd(_)) => return Ok(()),
                    _ => return Err(Stop::Bye(malformed("the end of a COPY's data is expected"))),
                },
            }
        }
    }

    /// Runs the statements of a text.
    async fn statement(&mut self, statement: u64, text: &str, shared: &FolderServerState) -> Result<(), Stop> {
        let began = self.running.activity().begins(text);
        self.running.begin(statement);
        let result = self.script(text, began).await;
        self.end(statement, result, shared).await
    }

    async fn script(&mut self, text: &str, mut began: Instant) -> Result<(), Stop> {
        let parsed = self.running.attend(self.session.parse_elsewhere(text)).await;
        let statements = match parsed {
            Ok(statements) => statements,
            Err(error) => {
                self.note(StatementKind::Other, began, text, Some(error.sqlstate));
                return Err(error.into());
            }
        };
        for (i, statement) in statements.into_iter().enumerate() {
            if i > 0 {
                // The activity goes on: a cancellation may have come between the two.
                began = Instant::now();
            }
            let kind = StatementKind::of(&statement);
            let result = self.run_one(statement).await;
            let error = match &result {
                Ok(_) => None,
                Err(Stop::Sql(error)) => Some(error.sqlstate),
                Err(_) => Some(sqlstate::CONNECTION_FAILURE),
            };
            self.note(kind, began, text, error);
            match result {
                Ok((tag, rows)) => {
                    self.put_notices();
                    self.wire.put(&HolderFrame::Complete { rows, tag: &tag });
                    self.drop_data().await?;
                    if self.wire.out.len() >= SEND_BYTES {
                        self.wire.flush(&self.running).await?;
                    }
                }
                Err(Stop::Sql(error)) => return Err(serac_sql::located(error, text, i).into()),
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    fn note(&self, kind: StatementKind, began: Instant, text: &str, error: Option<&'static str>) {
        let activity = self.running.activity();
        let took = activity.ended(kind, began, self.session.transaction_status(), error);
        if self.slow.is_some_and(|slow| took >= slow) {
            let milliseconds = took.as_secs_f64() * 1e3;
            info!(milliseconds, user = self.user, process = activity.process(), statement = text, "slow statement");
        }
    }

    /// Runs one statement and sends its result; returns its tag, and its number of rows.
    async fn run_one(&mut self, statement: Parsed) -> Result<(String, u64), Stop> {
        let statement = self.placed(statement)?;
        let is_copy = serac_sql::is_copy(&statement);
        if let Some(copy) = self.session.streamed_copy(&statement)? {
            return self.copy(statement, copy).await;
        }
        let (progress, style) = (self.session.copy_progress(), self.session.time_style());
        let Self { session, wire, running, .. } = self;
        let stream = running.attend(session.stream_statement(statement));
        let stream = if is_copy { with_progress(stream, wire, running, &progress).await? } else { stream.await };
        let mut rows = match stream? {
            StatementStream::Command { tag, rows } => return Ok((tag, rows)),
            StatementStream::Rows(rows) => rows,
        };
        let (mut messages, first) = Messages::new(&schema_in_style(&shown_schema(rows.schema()), style.as_deref()))?;
        wire.put(&HolderFrame::Schema(&first));
        let mut count = 0;
        while let Some(batch) = running.attend(rows.next()).await? {
            let batch = shown(batch)?;
            for part in Messages::parts(&batch) {
                wire.put(&HolderFrame::Rows(&messages.rows(&batch, part)?));
                if wire.out.len() >= SEND_BYTES {
                    // A client that does not read holds the statement up no longer than its limits
                    // allow.
                    running.attend(rows.keep(wire.flush(running))).await??;
                }
            }
            count += batch.num_rows() as u64;
        }
        Ok((crate::pg::complete_tag(rows.tag(), count), count))
    }

    /// The statement, with the path of a COPY from the client's folder.
    fn placed(&self, statement: Parsed) -> Result<Parsed, SqlError> {
        let file = match statement.statement() {
            StatementTree::Copy(copy) if !copy.program => copy.file.as_ref(),
            _ => None,
        };
        let Some(Text { text, .. }) = file.filter(|file| Path::new(&file.text).is_relative()) else {
            return Ok(statement);
        };
        let Some(folder) = &self.folder else {
            let message = format!("\"{text}\" is a relative path, and the client's folder is not known");
            return Err(SqlError::new(sqlstate::UNDEFINED_FILE, message));
        };
        Ok(statement.with_copy_file(&Path::new(folder).join(text).to_string_lossy()))
    }

    async fn copy(&mut self, statement: Parsed, copy: StreamedCopy) -> Result<(String, u64), Stop> {
        let result = if copy.is_input { self.copy_in(statement).await } else { self.copy_out(statement).await };
        match result? {
            StatementResult::Command { tag, rows } => Ok((tag, rows)),
            StatementResult::Rows { .. } => unreachable!("a COPY gives no rows as its result"),
        }
    }

    async fn copy_in(&mut self, statement: Parsed) -> Result<StatementResult, Stop> {
        self.session.copied_columns(&statement).await?;
        self.wire.put(&HolderFrame::CopyIn);
        self.wire.flush(&self.running).await?;
        self.owes_data = true;
        let (sender, pieces) = mpsc::channel(DATA_AHEAD);
        self.session.set_waiting_copy_input(Box::new(Input::new(pieces)));
        let progress = self.session.copy_progress();
        let Self { session, wire, running, frames, owes_data, .. } = self;
        let copied = with_progress(running.attend(session.execute_statement(statement)), wire, running, &progress);
        let mut copied = pin!(copied);
        let mut stop = None;
        // Up to the data's end, or that of the COPY.
        let early = loop {
            let next = tokio::select! {
                biased;
                result = &mut copied => break Some(result),
                next = frames.recv() => next,
            };
            let (piece, is_last) = match &next {
                None => {
                    stop = Some(Stop::Gone);
                    (Err(io::ErrorKind::ConnectionAborted.into()), true)
                }
                Some(Err(error)) => {
                    stop = Some(Stop::Bye(malformed(error)));
                    (Err(io::ErrorKind::InvalidData.into()), true)
                }
                Some(Ok((kind, body))) => match ClientFrame::read(*kind, body) {
                    Ok(ClientFrame::Data(bytes)) => (Ok(Bytes::copy_from_slice(bytes)), false),
                    Ok(ClientFrame::DataEnd(Ok(()))) => {
                        *owes_data = false;
                        break None;
                    }
                    Ok(ClientFrame::DataEnd(Err(why))) => {
                        *owes_data = false;
                        stop = Some(Stop::Sql(SqlError::new(
                            sqlstate::QUERY_CANCELED,
                            format!("COPY from stdin failed: {why}"),
                        )));
                        (Err(io::Error::other(why.to_owned())), true)
                    }
                    _ => {
                        stop = Some(Stop::Bye(malformed("the data of a COPY is expected")));
                        (Err(io::ErrorKind::InvalidData.into()), true)
                    }
                },
            };
            tokio::select! {
                biased;
                result = &mut copied => break Some(result),
                _ = sender.send(piece) => {}
            }
            if is_last {
                break None;
            }
        };
        // An input without an error among its pieces has ended well.
        drop(sender);
        let result = match early {
            Some(result) => result,
            None => copied.await,
        };
        match (stop, result?) {
            // The error that the pieces had is not the one that is told.
            (Some(stop), Err(_)) => Err(stop),
            (_, result) => Ok(result?),
        }
    }

    async fn copy_out(&mut self, statement: Parsed) -> Result<StatementResult, Stop> {
        let output = Output::default();
        self.session.set_copy_output(Box::new(output.clone()));
        let Self { session, wire, running, .. } = self;
        let mut limits = session.limits();
        let mut copied = pin!(running.attend(session.execute_statement(statement)));
        let mut has_begun = false;
        loop {
            let ended = poll_fn(|context| match copied.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if output.len() >= SEND_BYTES => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            })
            .await;
            if !has_begun && !matches!(ended, Some(Err(_))) {
                wire.put(&HolderFrame::CopyOut);
                has_begun = true;
            }
            output.take().bytes.chunks(MOST_DATA_BYTES).for_each(|part| wire.put(&HolderFrame::Data(part)));
            if let Some(result) = ended {
                return Ok(result?);
            }
            // A client that does not read holds the statement up no longer than its limits allow.
            match limits.keep(async { Ok(wire.flush(running).await) }).await {
                Ok(flushed) => flushed?,
                Err(limit) => return Err(copied.await.err().unwrap_or(limit).into()),
            }
        }
    }

    async fn create_table(
        &mut self,
        statement: u64,
        schema: Option<&str>,
        table: &str,
        columns: &[u8],
        shared: &FolderServerState,
    ) -> Result<(), Stop> {
        let began = self.running.activity().begins("CREATE TABLE");
        self.running.begin(statement);
        let target = IngestTarget {
            schema: schema.map(str::to_owned),
            table: table.into(),
            create: true,
            ..IngestTarget::default()
        };
        let Self { session, running, .. } = &mut *self;
        let result = running
            .attend(async {
                let ArrowMessage::Schema(schema) = ArrowMessages::default().read(columns, &Buffer::default())? else {
                    return Err(SqlError::new(sqlstate::PROTOCOL_VIOLATION, "a schema is expected"));
                };
                session.ingest(&target, &schema, futures::stream::empty()).await
            })
            .await;
        self.note(StatementKind::Other, began, "CREATE TABLE", result.as_ref().err().map(|error| error.sqlstate));
        if result.is_ok() {
            self.put_notices();
            self.wire.put(&HolderFrame::Complete { rows: 0, tag: "CREATE TABLE" });
        }
        self.end(statement, result.map(|_| ()).map_err(Stop::Sql), shared).await
    }

    async fn snapshot(&mut self, statement: u64, request: &[u8], shared: &FolderServerState) -> Result<(), Stop> {
        let began = self.running.activity().begins("image in shared memory");
        self.running.begin(statement);
        let made = match self.images.clone() {
            Some(source) => self.running.check_image().and_then(|()| {
                let made = tokio::task::block_in_place(|| source(&mut self.session, request))?;
                self.running.check_image().map(|()| made)
            }),
            None => Err(SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "the process that has the database open gives no images of it",
            )),
        };
        let result = match made {
            Ok(image) => self.send_image(image).await,
            Err(error) => Err(error.into()),
        };
        let error = match &result {
            Err(Stop::Sql(error)) => Some(error.sqlstate),
            _ => None,
        };
        self.note(StatementKind::Select, began, "image in shared memory", error);
        self.end(statement, result, shared).await
    }

    async fn send_image(&mut self, image: Image) -> Result<(), Stop> {
        let Image { manifest, descriptors, lease, time } = image;
        let lease = self.running.lease(lease, time)?;
        let sent = self.send_parts(lease, &manifest, descriptors).await;
        if let Err(Stop::Sql(_)) = sent {
            self.running.end_lease(lease);
        }
        sent
    }

    async fn send_parts(&mut self, lease: u64, manifest: &[u8], descriptors: Descriptors) -> Result<(), Stop> {
        for files in descriptors.chunks(MOST_DESCRIPTORS) {
            let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
            self.wire.send_descriptors(&files, &self.running).await?;
        }
        drop(descriptors);
        let parts = manifest.chunks(MOST_IMAGE_BYTES).count().max(1);
        for i in 0..parts {
            let part = manifest.chunks(MOST_IMAGE_BYTES).nth(i).unwrap_or_default();
            self.wire.put(&HolderFrame::Image { lease, is_last: i + 1 == parts, part });
            self.wire.flush(&self.running).await?;
        }
        Ok(())
    }
}

/// Tells the client now and then how far a COPY is.
async fn with_progress<T>(
    copy: impl Future<Output = T>,
    wire: &mut Wire,
    running: &Running,
    progress: &CopyProgress,
) -> Result<T, Stop> {
    let mut copy = pin!(copy);
    let mut ticks = tokio::time::interval(PROGRESS);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        tokio::select! {
            biased;
            result = &mut copy => return Ok(result),
            _ = ticks.tick() => {
                let (done, total) = progress.input();
                wire.put(&HolderFrame::Progress { rows: progress.rows(), done, total });
            }
        }
        // The COPY does not wait for a client that does not read.
        tokio::select! {
            biased;
            result = &mut copy => return Ok(result),
            flushed = wire.flush(running) => flushed?,
        }
    }
}
