//! A connection to the process that has a database's folder open.
//!
//! Calls block. One thread uses a [`Client`] at a time; its [`CancelHandle`] may be used by
//! another.
//!
//! ```no_run
//! use serac_client::client::{Answer, Client, Options};
//!
//! let mut client = Client::connect("my.db".as_ref(), &Options::default())?;
//! for answer in client.execute("SELECT 1 AS one; CREATE TABLE t (a INT)")? {
//!     match answer? {
//!         Answer::Rows(schema) => println!("columns: {schema:?}"),
//!         Answer::Batch(batch) => println!("{batch:?}"),
//!         Answer::Complete { tag, .. } => println!("{tag}"),
//!     }
//! }
//! # Ok::<(), serac_client::client::Error>(())
//! ```
//!
//! **When the holder ends**, the running statement ends with [`Error::Lost`] (SQLSTATE 08006),
//! whose detail says what is known of its outcome. If the holder has ended in order before it began
//! the statement, the error is [`Error::NotRun`]. Every further call gives an error: connect again,
//! or open the folder.

use crate::wire::{
    self, ClientFrame, Failure, FolderId, HANDED_OVER, HEADER_BYTES, HolderFrame, MOST_DATA_BYTES, MOST_IMAGE_BYTES,
    MOST_SCHEMA_BYTES, MOST_TEXT_BYTES, SOCKET, Sender, Status, VERSION,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::MessageHeader;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use rustix::process::Uid;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;
/// Bytes of a COPY's data that are sent at a time.
const DATA_BYTES: usize = 256 << 10;
/// Parts of a COPY's data that are read ahead.
const DATA_AHEAD: usize = 2;
/// Time between two questions whether a connection is still wanted.
pub const ASKED: Duration = Duration::from_millis(200);
/// How long the client waits for the data of a COPY before it looks at the connection.
const DATA_PATIENCE: Duration = Duration::from_millis(50);
/// The most notices, and the most notifications, that are kept until the caller takes them. Above
/// that, the newest notice or the oldest notification is dropped.
const MOST_KEPT: usize = 10_000;

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// The role; `None` for the bootstrap superuser.
    pub role: Option<String>,
    /// The client's name for itself.
    pub application: String,
    /// Whether columns without a name get PostgreSQL's names (`sum`, `?column?`).
    pub postgresql_names: bool,
    /// How long the holder may take to answer the first frame.
    pub login_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            role: None,
            application: "serac client".into(),
            postgresql_names: false,
            login_timeout: Duration::from_secs(30),
        }
    }
}

/// The error of a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder's socket gives no answer. No process has the folder open, or its holder takes no
    /// clients, takes none yet, or takes none any more.
    #[error("nobody answers at the folder's socket: {0}")]
    Nobody(#[source] io::Error),
    /// The system refuses to connect.
    #[error("cannot connect to the process that has the folder open: {0}")]
    Connect(#[source] io::Error),
    /// The holder refuses the client.
    #[error("{0}")]
    Refused(Failure),
    /// The statement has failed.
    #[error("{0}")]
    Statement(Failure),
    /// The holder has ended, and with it the transaction and the session. SQLSTATE 08006.
    #[error("{0}")]
    Lost(Failure),
    /// The holder has ended before it began the statement. SQLSTATE 08006.
    #[error("{0}")]
    NotRun(Failure),
}

impl Error {
    /// The error in the form of a statement's error.
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Refused(failure) | Self::Statement(failure) | Self::Lost(failure) | Self::NotRun(failure) => failure,
            Self::Nobody(_) | Self::Connect(_) => {
                Failure::new(sqlstate::SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION, self.to_string())
            }
        }
    }
}

/// A notice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// "NOTICE" or "WARNING".
    pub severity: String,
    /// PostgreSQL's code for it.
    pub sqlstate: String,
    /// The text.
    pub message: String,
}

/// A message that another session has sent to a channel (NOTIFY).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The number of that session's connection.
    pub process: i32,
    /// The channel.
    pub channel: String,
    /// The text.
    pub payload: String,
}

/// A part of the result of statements.
#[derive(Clone, Debug)]
pub enum Event {
    /// The columns of rows that follow.
    Rows(SchemaRef),
    /// Rows.
    Batch(RecordBatch),
    /// A COPY asks for data: call [`Client::send_data`] or [`Client::refuse_data`].
    CopyIn,
    /// The data of a COPY follows.
    CopyOut,
    /// A part of the data of a COPY.
    Data(Vec<u8>),
    /// The progress of a COPY.
    Progress {
        /// Rows copied.
        rows: u64,
        /// How much of the input is read.
        done: u64,
        /// How much there is; 0 if unknown.
        total: u64,
    },
    /// The end of a statement's result: its commit is durable, if it was a transaction of its own.
    Complete {
        /// Its tag, as PostgreSQL writes it.
        tag: String,
        /// Rows that it gave or changed.
        rows: u64,
    },
}

/// A part of the result of statements, for callers that take no data of a COPY.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The columns of rows that follow.
    Rows(SchemaRef),
    /// Rows.
    Batch(RecordBatch),
    /// The end of a statement's result.
    Complete {
        /// Its tag, as PostgreSQL writes it.
        tag: String,
        /// Rows that it gave or changed.
        rows: u64,
    },
}

/// An image of tables as it was received. [`Manifest::decode`](crate::image::Manifest::decode)
/// reads the manifest.
#[derive(Debug)]
pub struct RawImage {
    /// The number of its lease, which ends with [`Client::end_lease`] or with the connection.
    pub lease: u64,
    /// The manifest.
    pub manifest: Vec<u8>,
    /// The open files that the manifest names by their numbers in this list.
    pub descriptors: Vec<OwnedFd>,
}

/// Asks the process that has the database in this folder open to hand it over to the caller, a
/// server. If it agrees, it releases the folder's lock when the statements of its other clients
/// have ended.
///
/// # Errors
/// [`Error::Nobody`] when nobody answers within `timeout`; [`Error::Refused`] with the reason,
/// whose SQLSTATE is [`wire::BUSY`] if it may be asked again.
pub fn ask_for_folder(folder: &Path, timeout: Duration) -> Result<(), Error> {
    let folder = open_folder(folder).map_err(Error::Nobody)?;
    let socket = connect(&folder, timeout).map_err(Error::Nobody)?;
    check_holder(&folder, &socket).map_err(Error::Connect)?;
    let mut frame = Vec::new();
    ClientFrame::HandOver.put(&mut frame);
    let mut reader = Reader { socket, buffer: Vec::new(), at: 0, descriptors: VecDeque::new() };
    send_all(&reader.socket, &frame).map_err(Error::Nobody)?;
    // The socket has a timeout.
    let frame = reader.next().map_err(Error::Nobody)?;
    let frame = frame.ok_or_else(|| Error::Nobody(io::ErrorKind::UnexpectedEof.into()))?;
    match HolderFrame::read(frame.kind, &frame.body) {
        Ok(HolderFrame::Bye { .. }) => Ok(()),
        Ok(HolderFrame::Refused(failure)) => Err(Error::Refused(failure)),
        Ok(_) => Err(Error::Connect(io::Error::other("the answer is out of place"))),
        Err(error) => Err(Error::Connect(io::Error::other(error))),
    }
}

/// Opens a folder for the names in it.
///
/// # Errors
/// When the folder cannot be opened.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The identity of a folder.
///
/// # Errors
/// When the system call fails.
pub fn folder_id(folder: &OwnedFd) -> io::Result<FolderId> {
    let found = rustix::fs::fstat(folder)?;
    Ok(FolderId(found.st_dev, found.st_ino))
}

/// A new socket, and the address of the socket in a folder. An address has room for a path of 108
/// bytes. So the path goes through the folder's descriptor: it is short, even if the folder's own
/// path is long.
///
/// # Errors
/// When the system gives no socket.
pub fn socket_in(folder: &OwnedFd) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok((socket, address))
}

/// Connects to the socket in a folder. Waits for a place in its queue no longer than `timeout`.
fn connect(folder: &OwnedFd, timeout: Duration) -> io::Result<OwnedFd> {
    let (socket, address) = socket_in(folder)?;
    for which in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, which, Some(timeout.max(Duration::from_millis(1))))?;
    }
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// Cancels the statement that a [`Client`] runs, from any thread.
#[derive(Clone)]
pub struct CancelHandle {
    folder: Arc<OwnedFd>,
    process: i32,
    secret: u64,
    /// The number of the statement that the client has sent last. Relaxed: it orders no other
    /// memory.
    statement: Arc<AtomicU64>,
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelHandle").field("process", &self.process).finish_non_exhaustive()
    }
}

impl CancelHandle {
    /// Asks the holder to end the statement that was sent last. The statement may have ended
    /// already.
    pub fn cancel(&self) {
        self.cancel_statement(self.statement());
    }

    /// The number of the statement that was sent last.
    pub fn statement(&self) -> u64 {
        self.statement.load(Ordering::Relaxed)
    }

    /// Asks the holder to end the statement with this number, if it has not ended.
    pub fn cancel_statement(&self, statement: u64) {
        const TIMEOUT: Duration = Duration::from_secs(5);
        let mut frame = Vec::new();
        ClientFrame::Cancel { process: self.process, secret: self.secret, statement }.put(&mut frame);
        // A holder that has ended runs nothing that could be cancelled.
        let _ = connect(&self.folder, TIMEOUT).and_then(|socket| send_all(&socket, &frame));
    }
}

fn send_all(socket: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A frame as it was received.
struct Frame {
    kind: u8,
    body: Vec<u8>,
}

/// Frames from the socket, and the open files that come with them.
struct Reader {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// Where in the buffer the next frame begins.
    at: usize,
    /// Open files that no Descriptors frame has claimed yet. If no frame claims them, they are
    /// closed.
    descriptors: VecDeque<OwnedFd>,
}

impl Reader {
    /// Reads into `out`, and returns the number of bytes; 0 at the stream's end.
    fn receive(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut slices = [IoSliceMut::new(out)];
            match rustix::net::recvmsg(&self.socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                received => break received?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if self.descriptors.len() > wire::MOST_DESCRIPTORS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "there are more open files than frames for them"));
        }
        Ok(received.bytes)
    }

    fn buffered(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    /// Whether a frame, a part of one, or the end of the stream has come. Waits at most `wait` for
    /// it.
    fn has_come(&self, wait: Duration) -> io::Result<bool> {
        if !self.buffered().is_empty() {
            return Ok(true);
        }
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        match rustix::event::poll(&mut polled, Some(&wait)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The next frame; `None` at the stream's end. Memory grows with the bytes that have come, not
    /// with the length in the frame's header.
    fn next(&mut self) -> io::Result<Option<Frame>> {
        while self.buffered().len() < HEADER_BYTES {
            if self.at > 0 {
                self.buffer.drain(..self.at);
                self.at = 0;
            }
            let have = self.buffer.len();
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(have + READ_BYTES, 0);
            let received = self.receive(&mut buffer[have..]);
            buffer.truncate(have + received.as_ref().map_or(0, |count| *count));
            self.buffer = buffer;
            if received? == 0 {
                return if have == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
        let first = self.buffered().first_chunk().expect("it has come");
        let (kind, length) = wire::header(*first, Sender::Holder).map_err(io::Error::other)?;
        self.at += HEADER_BYTES;
        let there = self.buffered().len().min(length);
        let mut body = self.buffered()[..there].to_vec();
        self.at += there;
        while body.len() < length {
            let have = body.len();
            body.resize(have + (length - have).min(1 << 20), 0);
            let count = self.receive(&mut body[have..])?;
            body.truncate(have + count);
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Some(Frame { kind, body }))
    }
}

/// The messages of one stream of rows.
struct Rows {
    schema: SchemaRef,
    dictionaries: HashMap<i64, ArrayRef>,
}

fn not_arrow(what: &str) -> ArrowError {
    ArrowError::IpcError(what.into())
}

/// Takes a message, and its body, off the front of a stream.
fn take_message(bytes: &mut Buffer) -> Result<(Buffer, Buffer), ArrowError> {
    let cut = || not_arrow("a message is cut off");
    let length = match *bytes.as_slice() {
        [0xff, 0xff, 0xff, 0xff, a, b, c, d, ..] => u32::from_le_bytes([a, b, c, d]) as usize,
        _ => return Err(cut()),
    };
    let end = 8usize.checked_add(length).filter(|end| *end <= bytes.len()).ok_or_else(cut)?;
    let header = bytes.slice_with_length(8, length);
    let message = arrow_ipc::root_as_message(&header).map_err(|error| not_arrow(&error.to_string()))?;
    let body = usize::try_from(message.bodyLength()).ok().filter(|body| *body <= bytes.len() - end).ok_or_else(cut)?;
    let body = bytes.slice_with_length(end, body);
    bytes.advance(end + body.len());
    Ok((header, body))
}

impl Rows {
    fn begin(schema: &[u8]) -> Result<Self, ArrowError> {
        let (header, _) = take_message(&mut Buffer::from(schema))?;
        let schema = arrow_ipc::convert::try_schema_from_flatbuffer_bytes(&header)?;
        Ok(Self { schema: Arc::new(schema), dictionaries: HashMap::new() })
    }

    /// The batch in these messages.
    fn batch(&mut self, messages: Vec<u8>) -> Result<RecordBatch, ArrowError> {
        let mut rest = Buffer::from_vec(messages);
        while !rest.is_empty() {
            let (header, body) = take_message(&mut rest)?;
            let message = arrow_ipc::root_as_message(&header).map_err(|error| not_arrow(&error.to_string()))?;
            let version = message.version();
            match message.header_type() {
                MessageHeader::DictionaryBatch => {
                    let batch = message.header_as_dictionary_batch().ok_or_else(|| not_arrow("no dictionary"))?;
                    let dictionaries = &mut self.dictionaries;
                    arrow_ipc::reader::read_dictionary(&body, batch, &self.schema, dictionaries, &version)?;
                }
                MessageHeader::RecordBatch if rest.is_empty() => {
                    let batch = message.header_as_record_batch().ok_or_else(|| not_arrow("no batch"))?;
                    let (schema, words) = (self.schema.clone(), &self.dictionaries);
                    return arrow_ipc::reader::read_record_batch(&body, batch, schema, words, None, &version);
                }
                _ => return Err(not_arrow("a message is out of place")),
            }
        }
        Err(not_arrow("there is no batch"))
    }
}

/// A connection to the process that has a folder open.
pub struct Client {
    reader: Reader,
    cancel: CancelHandle,
    holder: u32,
    /// Whether values from the holder are used without a check.
    trusts_holder: bool,
    /// A statement has been sent whose Ready has not come.
    is_running: bool,
    /// Whether the running statement may commit something.
    may_commit: bool,
    /// The error of the statement, until the Ready comes.
    failed: Option<Failure>,
    /// The frame with which the holder has ended a COPY, until it is read.
    pending: Option<Frame>,
    /// Whether a COPY waits for its data.
    wants_data: bool,
    rows: Option<Rows>,
    status: Status,
    has_state: bool,
    notices: Vec<Notice>,
    notifications: VecDeque<Notification>,
    /// The connection has ended.
    gone: Option<Failure>,
    /// The connection has ended because the holder hands the folder over to a server.
    is_handed_over: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("holder", &self.holder).field("status", &self.status).finish_non_exhaustive()
    }
}

/// The detail of [`Error::Lost`] when the statement may have committed.
const UNKNOWN: &str =
    "It is not known whether the statement, or the transaction that it was to commit, has been committed.";
const ROLLED_BACK: &str = "The open transaction is rolled back.";
/// The further detail of [`Error::Lost`] when the session had state of its own.
pub const STATE_GONE: &str = "The session's settings, temporary tables, prepared statements, cursors, channels and locks \
    have ended with it.";
const IS_ENDED: &str = "The statement has failed, and nothing of its transaction is kept.";
const AGAIN: &str = "The database can be opened again, or be reached at the process that has opened it since.";

fn lost(why: Option<&Failure>, detail: &str) -> Failure {
    let message = match why {
        Some(why) => format!("the process that had the database open has ended the connection: {}", why.message),
        None => "the process that had the database open has ended".into(),
    };
    let failure = Failure::new(sqlstate::CONNECTION_FAILURE, message).with_hint(AGAIN);
    if detail.is_empty() { failure } else { failure.with_detail(detail) }
}

/// Whether a text may commit the open transaction. It may be true of a text that does not, and is
/// never false of one that does.
fn may_end_transaction(text: &str) -> bool {
    let has = |word: &str| text.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()));
    // One of several statements may be a ROLLBACK. The statements behind it are transactions of
    // their own.
    has("commit") || has("end") || text.trim_end().trim_end_matches(';').contains(';')
}

impl Client {
    /// Connects to the process that has the database in this folder open.
    ///
    /// # Errors
    /// [`Error::Nobody`] when no process has it open, or that process takes no clients, also while
    /// it ends; [`Error::Refused`] with the reason.
    pub fn connect(folder: &Path, options: &Options) -> Result<Self, Error> {
        Self::connect_while(folder, options, &|| true)
    }

    /// As [`connect`](Self::connect), but gives up when `is_wanted` returns false. It is called
    /// every [`ASKED`].
    ///
    /// # Errors
    /// As for [`connect`](Self::connect), and [`Error::Nobody`] when it gives up.
    pub fn connect_while(folder: &Path, options: &Options, is_wanted: &dyn Fn() -> bool) -> Result<Self, Error> {
        // A folder that cannot be opened has no holder. Opening the database tells the reason.
        let folder = open_folder(folder).map_err(Error::Nobody)?;
        let until = std::time::Instant::now() + options.login_timeout;
        let goes_on = || is_wanted() && std::time::Instant::now() < until;
        let socket = loop {
            match connect(&folder, options.login_timeout.min(ASKED)) {
                Ok(socket) => break socket,
                // Its queue is full.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && goes_on() => {}
                Err(error) => {
                    return Err(match error.kind() {
                        // A socket at which nobody listens was left behind. A socket whose queue
                        // stays full gets no answer.
                        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock => {
                            Error::Nobody(error)
                        }
                        _ => Error::Connect(error),
                    });
                }
            }
        };
        let trusts_holder = check_holder(&folder, &socket).map_err(Error::Connect)?;
        let here = std::env::current_dir().ok().and_then(|here| here.into_os_string().into_string().ok());
        let mut hello = Vec::new();
        ClientFrame::Hello {
            version: VERSION,
            postgresql_names: options.postgresql_names,
            role: options.role.as_deref(),
            application: &options.application,
            folder: here.as_deref(),
        }
        .put(&mut hello);
        let mut reader = Reader { socket, buffer: Vec::new(), at: 0, descriptors: VecDeque::new() };
        // A holder that ends takes no more connections, and closes those that it has not answered.
        let sent = send_all(&reader.socket, &hello);
        while !reader.has_come(ASKED).map_err(Error::Connect)? {
            if !goes_on() {
                return Err(Error::Nobody(io::ErrorKind::TimedOut.into()));
            }
        }
        let frame = match reader.next() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(Error::Nobody(sent.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()))),
            Err(error) => return Err(Error::Nobody(error)),
        };
        match HolderFrame::read(frame.kind, &frame.body) {
            Ok(HolderFrame::Welcome { version: VERSION, process, secret, holder, folder: served, .. }) => {
                if served != folder_id(&folder).map_err(Error::Connect)? {
                    let message = "its SOCKET is a link to that of another database";
                    return Err(Error::Connect(io::Error::new(io::ErrorKind::InvalidData, message)));
                }
                for which in [Timeout::Send, Timeout::Recv] {
                    set_socket_timeout(&reader.socket, which, None).map_err(|error| Error::Connect(error.into()))?;
                }
                let statement = Arc::new(AtomicU64::new(0));
                Ok(Self {
                    reader,
                    cancel: CancelHandle { folder: Arc::new(folder), process, secret, statement },
                    holder,
                    trusts_holder,
                    is_running: false,
                    may_commit: false,
                    failed: None,
                    pending: None,
                    wants_data: false,
                    rows: None,
                    status: Status::Idle,
                    has_state: false,
                    notices: Vec::new(),
                    notifications: VecDeque::new(),
                    gone: None,
                    is_handed_over: false,
                })
            }
            Ok(HolderFrame::Refused(failure)) => Err(Error::Refused(failure)),
            Ok(HolderFrame::Bye { .. }) => Err(Error::Nobody(io::ErrorKind::ConnectionAborted.into())),
            Ok(HolderFrame::Welcome { version, .. }) => {
                let message = format!("the holder speaks version {version} of the protocol, this program {VERSION}");
                Err(Error::Refused(Failure::new(sqlstate::FEATURE_NOT_SUPPORTED, message)))
            }
            Ok(_) => Err(Error::Connect(io::Error::other("the first frame is out of place"))),
            Err(error) => Err(Error::Connect(io::Error::other(error))),
        }
    }

    /// The number of the process that has the folder open.
    pub fn holder(&self) -> u32 {
        self.holder
    }

    /// Whether values from the holder are used without a check, because it could change this
    /// process's memory anyway.
    pub(crate) fn trusts_holder(&self) -> bool {
        self.trusts_holder
    }

    /// Whether a transaction was open after the last statement.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Whether the session had state of its own after the last statement, such as settings or
    /// temporary tables. A new session does not have that state.
    pub fn has_state(&self) -> bool {
        self.has_state
    }

    /// Why the connection has ended; `None` as long as its end is not known.
    pub fn gone(&self) -> Option<&Failure> {
        self.gone.as_ref()
    }

    /// Whether the connection has ended because the holder hands the folder over to a server.
    pub fn is_handed_over(&self) -> bool {
        self.is_handed_over
    }

    /// A handle that cancels statements from another thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// The notices of statements since the last call, in order.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The notifications from the session's channels since the last call. Waits at most `wait` for
    /// the first one.
    pub fn notifications(&mut self, wait: Duration) -> Vec<Notification> {
        let until = std::time::Instant::now() + wait;
        while !self.is_running && self.gone.is_none() {
            let wait = if self.notifications.is_empty() {
                until.saturating_duration_since(std::time::Instant::now())
            } else {
                Duration::ZERO
            };
            match self.reader.has_come(wait) {
                // The next use of the connection reports an error or its end, too.
                Ok(true) => _ = self.next_event(),
                _ if wait.is_zero() => break,
                _ => {}
            }
        }
        self.notifications.drain(..).collect()
    }

    /// Whether the holder has ended, as far as that is known between two statements.
    pub fn is_gone(&mut self) -> bool {
        while self.gone.is_none() && !self.is_running && self.reader.has_come(Duration::ZERO).unwrap_or(true) {
            let _ = self.next_event();
        }
        self.gone.is_some()
    }

    /// Runs statements, and returns their answers as they come. If the answers are dropped early,
    /// statements outside of a transaction are cancelled; within one, the rest is awaited and
    /// dropped. A COPY … FROM STDIN among the statements fails, and the data of a COPY … TO STDOUT
    /// is dropped.
    ///
    /// # Errors
    /// [`Error::NotRun`] when the holder has ended; [`Error::Statement`] when the text is too long.
    pub fn execute(&mut self, text: &str) -> Result<Answers<'_>, Error> {
        self.send_statement(text)?;
        Ok(Answers { client: self, has_ended: false })
    }

    /// Runs a COPY … FROM STDIN, and returns the number of rows.
    ///
    /// # Errors
    /// The error of the statement or of the data.
    pub fn copy_in(&mut self, text: &str, input: impl Read + Send + 'static) -> Result<u64, Error> {
        self.send_statement(text)?;
        let (mut input, mut copied) = (Some(input), 0);
        while let Some(event) = self.next_event()? {
            match event {
                Event::CopyIn => match input.take() {
                    Some(input) => self.send_data(input)?,
                    None => self.refuse_data("there is no more data")?,
                },
                Event::Complete { rows, .. } => copied = rows,
                _ => {}
            }
        }
        Ok(copied)
    }

    /// Runs a COPY … TO STDOUT, and returns the number of rows.
    ///
    /// # Errors
    /// The error of the statement or of the output.
    pub fn copy_out(&mut self, text: &str, output: &mut dyn Write) -> Result<u64, Error> {
        self.send_statement(text)?;
        let (mut written, mut copied) = (Ok(()), 0);
        loop {
            match self.next_event() {
                Ok(None) => break,
                Ok(Some(Event::Data(bytes))) if written.is_ok() => {
                    written = output.write_all(&bytes);
                    if written.is_err() {
                        self.cancel.cancel();
                    }
                }
                Ok(Some(Event::CopyIn)) => self.refuse_data("it is not a COPY TO STDOUT")?,
                Ok(Some(Event::Complete { rows, .. })) => copied = rows,
                Ok(Some(_)) => {}
                // The COPY was cancelled, because its data could not be written.
                Err(Error::Statement(_)) if written.is_err() => break,
                Err(error) => return Err(error),
            }
        }
        match written.and_then(|()| output.flush()) {
            Ok(()) => Ok(copied),
            Err(error) => {
                Err(Error::Statement(Failure::new(sqlstate::IO_ERROR, format!("could not write the data: {error}"))))
            }
        }
    }

    /// Makes a table with the columns of a schema, unless it is there. `namespace`: the table's
    /// schema in SQL's sense.
    ///
    /// # Errors
    /// The error of the statement.
    pub fn create_table(&mut self, namespace: Option<&str>, table: &str, columns: &Schema) -> Result<(), Error> {
        let mut tracker = arrow_ipc::writer::DictionaryTracker::new(false);
        let options = arrow_ipc::writer::IpcWriteOptions::default();
        let message = arrow_ipc::writer::IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
            columns,
            &mut tracker,
            &options,
        );
        let columns = message.ipc_message;
        if columns.len() > MOST_SCHEMA_BYTES {
            return Err(Error::Statement(Failure::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "the schema is too large")));
        }
        self.may_commit = self.status == Status::Idle;
        self.send(|statement| ClientFrame::CreateTable { statement, schema: namespace, table, columns: &columns })?;
        while self.next_event()?.is_some() {}
        Ok(())
    }

    /// Asks for an image of tables in shared memory.
    ///
    /// # Errors
    /// The error of the request.
    pub fn snapshot_bytes(&mut self, request: &[u8]) -> Result<RawImage, Error> {
        if request.len() > MOST_IMAGE_BYTES {
            return Err(Error::Statement(Failure::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "the request for an image is too large",
            )));
        }
        self.may_commit = false;
        self.send(|statement| ClientFrame::Snapshot { statement, request })?;
        let (mut descriptors, mut manifest, mut lease) = (Vec::new(), Vec::new(), None);
        loop {
            let frame = self.take_frame()?;
            match HolderFrame::read(frame.kind, &frame.body) {
                Ok(HolderFrame::Descriptors(count)) if lease.is_none() => {
                    let count = usize::from(count);
                    if self.reader.descriptors.len() < count {
                        return Err(self.broken("open files are missing"));
                    }
                    descriptors.extend(self.reader.descriptors.drain(..count));
                }
                Ok(HolderFrame::Image { lease: number, is_last, part }) if lease.is_none() => {
                    manifest.extend_from_slice(part);
                    lease = is_last.then_some(number);
                }
                _ => match self.understand(frame)? {
                    Some(None) => break,
                    Some(Some(_)) => return Err(self.broken("a frame is out of place")),
                    None => {}
                },
            }
        }
        match lease {
            Some(lease) => Ok(RawImage { lease, manifest, descriptors }),
            None => Err(self.broken("the image is missing")),
        }
    }

    /// Gives an image back. Its mapped parts stay readable as long as they are mapped.
    ///
    /// # Errors
    /// When the holder, and with it the lease, has ended.
    pub fn end_lease(&mut self, lease: u64) -> Result<(), Error> {
        let mut frame = Vec::new();
        ClientFrame::LeaseEnd { lease }.put(&mut frame);
        self.check_there()?;
        send_all(&self.reader.socket, &frame).map_err(|_| self.is_lost(None))
    }

    /// Sends statements. Call [`next_event`](Self::next_event) until it returns `None` or an error.
    ///
    /// # Errors
    /// [`Error::NotRun`] when the holder has ended; [`Error::Statement`] when the text is too long.
    pub fn send_statement(&mut self, text: &str) -> Result<(), Error> {
        if text.len() > MOST_TEXT_BYTES {
            let message = format!("a text of statements has at most {MOST_TEXT_BYTES} bytes");
            return Err(Error::Statement(Failure::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message)));
        }
        self.may_commit = self.status == Status::Idle || may_end_transaction(text);
        self.send(|statement| ClientFrame::Statement { statement, text })
    }

    fn send<'a>(&mut self, frame: impl FnOnce(u64) -> ClientFrame<'a>) -> Result<(), Error> {
        debug_assert!(!self.is_running, "the last statement has not ended");
        self.check_there()?;
        // Relaxed: it orders no other memory.
        let statement = self.cancel.statement.fetch_add(1, Ordering::Relaxed) + 1;
        let mut bytes = Vec::new();
        frame(statement).put(&mut bytes);
        (self.is_running, self.failed, self.wants_data, self.rows) = (true, None, false, None);
        if send_all(&self.reader.socket, &bytes).is_err() {
            // The holder has not read the whole frame. It may have sent the reason.
            while self.gone.is_none() && self.next_event().is_ok() {}
            return Err(Error::NotRun(self.gone.clone().unwrap_or_else(|| lost(None, ""))));
        }
        Ok(())
    }

    fn check_there(&self) -> Result<(), Error> {
        match &self.gone {
            Some(failure) => Err(Error::NotRun(failure.clone())),
            None => Ok(()),
        }
    }

    /// Notes that the connection has ended, and returns the error.
    fn is_lost(&mut self, why: Option<&Failure>) -> Error {
        let detail = match self.status {
            _ if self.is_running && self.failed.is_some() => IS_ENDED,
            _ if self.is_running && self.may_commit => UNKNOWN,
            Status::Idle => "",
            Status::Open | Status::Failed => ROLLED_BACK,
        };
        let also = if self.has_state { STATE_GONE } else { "" };
        let failure = lost(why, format!("{detail} {also}").trim());
        self.is_running = false;
        self.reader.descriptors.clear();
        self.gone = Some(failure.clone());
        Error::Lost(failure)
    }

    /// Ends the connection, because the holder has broken the protocol.
    fn broken(&mut self, what: &str) -> Error {
        self.is_lost(Some(&Failure::new(sqlstate::PROTOCOL_VIOLATION, what)))
    }

    fn take_frame(&mut self) -> Result<Frame, Error> {
        if let Some(frame) = self.pending.take() {
            return Ok(frame);
        }
        match self.reader.next() {
            Ok(Some(frame)) => Ok(frame),
            Ok(None) => Err(self.is_lost(None)),
            // If a holder is killed before it has read all data, the system resets the connection.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(self.is_lost(None)),
            Err(error) => Err(self.broken(&error.to_string())),
        }
    }

    /// The next event of the statements that were sent. `None` after the last: the next statement
    /// may be sent.
    ///
    /// # Errors
    /// [`Error::Statement`] if a statement has failed: the next may be sent. After any other error
    /// the connection has ended.
    pub fn next_event(&mut self) -> Result<Option<Event>, Error> {
        self.check_there()?;
        loop {
            let frame = self.take_frame()?;
            if let Some(event) = self.understand(frame)? {
                return Ok(event);
            }
        }
    }

    /// The meaning of a frame: an event, the statement's end, or neither of them.
    #[allow(clippy::option_option, reason = "the inner one is that of `next_event`")]
    fn understand(&mut self, frame: Frame) -> Result<Option<Option<Event>>, Error> {
        if HolderFrame::is_rows(frame.kind) {
            let batch = match &mut self.rows {
                Some(rows) if self.is_running => rows.batch(frame.body),
                _ => return Err(self.broken("rows are out of place")),
            };
            return match batch {
                Ok(batch) => Ok(Some(Some(Event::Batch(batch)))),
                Err(error) => Err(self.broken(&error.to_string())),
            };
        }
        let said = match HolderFrame::read(frame.kind, &frame.body) {
            Ok(said) => said,
            Err(error) => return Err(self.broken(&error.to_string())),
        };
        let event = match said {
            HolderFrame::Notice { severity, sqlstate, message } => {
                if self.notices.len() < MOST_KEPT {
                    let notice =
                        Notice { severity: severity.into(), sqlstate: sqlstate.into(), message: message.into() };
                    self.notices.push(notice);
                }
                return Ok(None);
            }
            HolderFrame::Notification { process, channel, payload } => {
                if self.notifications.len() == MOST_KEPT {
                    self.notifications.pop_front();
                }
                self.notifications.push_back(Notification {
                    process,
                    channel: channel.into(),
                    payload: payload.into(),
                });
                // Between statements, the caller may wait for a notification.
                return if self.is_running { Ok(None) } else { Ok(Some(None)) };
            }
            HolderFrame::Bye { statement, why } => {
                self.is_handed_over = &*why.sqlstate == HANDED_OVER;
                let is_begun = statement >= self.cancel.statement.load(Ordering::Relaxed);
                if !is_begun && self.is_running {
                    self.is_running = false;
                    let Error::Lost(failure) = self.is_lost(Some(&why)) else { unreachable!("it is lost") };
                    return Err(Error::NotRun(failure));
                }
                return Err(self.is_lost(Some(&why)));
            }
            _ if !self.is_running => return Err(self.broken("a frame is out of place")),
            HolderFrame::Schema(schema) => match Rows::begin(schema) {
                Ok(rows) => Event::Rows(self.rows.insert(rows).schema.clone()),
                Err(error) => return Err(self.broken(&error.to_string())),
            },
            HolderFrame::CopyIn => {
                self.wants_data = true;
                Event::CopyIn
            }
            HolderFrame::CopyOut => Event::CopyOut,
            HolderFrame::Data(bytes) => Event::Data(bytes.to_vec()),
            HolderFrame::Progress { rows, done, total } => Event::Progress { rows, done, total },
            HolderFrame::Complete { rows, tag } => {
                self.rows = None;
                Event::Complete { tag: tag.into(), rows }
            }
            HolderFrame::Error(failure) => {
                self.failed = Some(failure);
                return Ok(None);
            }
            HolderFrame::Ready { statement, status, has_state }
                if statement == self.cancel.statement.load(Ordering::Relaxed) =>
            {
                (self.is_running, self.status, self.has_state) = (false, status, has_state);
                return match self.failed.take() {
                    Some(failure) => Err(Error::Statement(failure)),
                    None => Ok(Some(None)),
                };
            }
            _ => return Err(self.broken("a frame is out of place")),
        };
        Ok(Some(Some(event)))
    }

    /// Sends the data of the COPY that has asked for it, up to the input's end, or until the COPY
    /// has ended otherwise. A thread of its own reads the input. It ends with the input, or at its
    /// next read after the COPY has ended.
    ///
    /// # Errors
    /// When the connection has ended. An error of the input is one of the COPY.
    pub fn send_data(&mut self, input: impl Read + Send + 'static) -> Result<(), Error> {
        let (sender, parts) = sync_channel(DATA_AHEAD);
        let read = std::thread::Builder::new().name("serac-copy".into()).spawn(move || {
            let mut input = input;
            loop {
                let mut part = vec![0; DATA_BYTES];
                let part = match input.read(&mut part) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read.map(|count| {
                        part.truncate(count);
                        part
                    }),
                };
                let is_last = !matches!(&part, Ok(part) if !part.is_empty());
                if sender.send(part).is_err() || is_last {
                    return;
                }
            }
        });
        match read {
            Ok(_) => self.send_parts(&parts),
            Err(error) => self.refuse_data(&format!("there is no thread to read the data: {error}")),
        }
    }

    fn send_parts(&mut self, parts: &Receiver<io::Result<Vec<u8>>>) -> Result<(), Error> {
        loop {
            // An answer means that the COPY wants no more data; a progress report does not.
            while self.pending.is_none() && self.reader.has_come(Duration::ZERO).unwrap_or(true) {
                let frame = self.take_frame()?;
                match HolderFrame::read(frame.kind, &frame.body) {
                    Ok(HolderFrame::Progress { .. }) => {}
                    Ok(HolderFrame::Notice { .. } | HolderFrame::Notification { .. } | HolderFrame::Bye { .. }) => {
                        self.understand(frame)?;
                    }
                    _ => self.pending = Some(frame),
                }
            }
            if self.pending.is_some() {
                return self.put_data(&ClientFrame::DataEnd(Ok(())));
            }
            match parts.recv_timeout(DATA_PATIENCE) {
                Ok(Ok(part)) if part.is_empty() => return self.put_data(&ClientFrame::DataEnd(Ok(()))),
                Ok(Ok(part)) => {
                    part.chunks(MOST_DATA_BYTES).try_for_each(|part| self.put_data(&ClientFrame::Data(part)))?;
                }
                Ok(Err(error)) => return self.refuse_data(&error.to_string()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.refuse_data("the reading of the data has failed"),
            }
        }
    }

    /// Makes the COPY that has asked for data fail.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn refuse_data(&mut self, why: &str) -> Result<(), Error> {
        self.put_data(&ClientFrame::DataEnd(Err(why)))
    }

    fn put_data(&mut self, frame: &ClientFrame<'_>) -> Result<(), Error> {
        debug_assert!(self.wants_data, "no COPY has asked for data");
        if let ClientFrame::DataEnd(_) = frame {
            self.wants_data = false;
        }
        let mut bytes = Vec::new();
        frame.put(&mut bytes);
        match send_all(&self.reader.socket, &bytes) {
            Ok(()) => Ok(()),
            // The frames that the holder sent before it ended tell the reason.
            Err(_) => loop {
                self.next_event()?;
            },
        }
    }
}

/// Refuses a holder that runs as another user than this process's, root, or the folder's owner.
/// Returns whether the holder is [trusted](is_trusted).
fn check_holder(folder: &OwnedFd, socket: &OwnedFd) -> io::Result<bool> {
    let holder = socket_peercred(socket)?.uid;
    let owner = rustix::fs::fstat(folder)?.st_uid;
    let is_known = is_trusted(holder, rustix::process::geteuid()) || holder.as_raw() == owner;
    if !is_known {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there"));
    }
    Ok(is_trusted(holder, rustix::process::geteuid()))
}

/// Whether a process of `user` uses values without a check that a process of `holder` has written.
/// It does only if `holder` could change this process's memory anyway. The owner of a folder that
/// root reads could not.
fn is_trusted(holder: Uid, user: Uid) -> bool {
    holder.is_root() || holder == user
}

/// The answers of statements, as they come.
#[derive(Debug)]
pub struct Answers<'c> {
    client: &'c mut Client,
    has_ended: bool,
}

impl Answers<'_> {
    /// The notices of statements since the last call, in order.
    pub fn notices(&mut self) -> Vec<Notice> {
        self.client.notices()
    }

    /// The next event that is an answer.
    fn step(&mut self) -> Result<Option<Answer>, Error> {
        loop {
            return Ok(Some(match self.client.next_event()? {
                None => return Ok(None),
                Some(Event::Rows(schema)) => Answer::Rows(schema),
                Some(Event::Batch(batch)) => Answer::Batch(batch),
                Some(Event::Complete { tag, rows }) => Answer::Complete { tag, rows },
                Some(Event::CopyIn) => {
                    self.client.refuse_data("there is no data: call copy_in")?;
                    continue;
                }
                // The caller takes no data of a COPY.
                Some(Event::CopyOut | Event::Data(_) | Event::Progress { .. }) => continue,
            }));
        }
    }
}

impl Iterator for Answers<'_> {
    type Item = Result<Answer, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = self.step();
        self.has_ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

impl Drop for Answers<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            // In a transaction, the rest is read and dropped: a cancellation would fail the
            // transaction.
            if self.client.status == Status::Idle {
                self.client.cancel.cancel();
            }
            self.by_ref().for_each(drop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_believed_of_ones_own_user_and_of_root_alone() {
        let [root, owner, other] = [0, 1_000, 1_001].map(Uid::from_raw);
        assert!(is_trusted(root, owner) && is_trusted(owner, owner) && is_trusted(root, root));
        // Root reads a folder of which another user's process is the holder.
        assert!(!is_trusted(owner, root) && !is_trusted(owner, other));
    }
}
