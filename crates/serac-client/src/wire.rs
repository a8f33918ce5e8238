//! The protocol between a client and the process that has the database's folder open: frames on a
//! Unix socket in the folder.
//!
//! A frame is a byte for its kind, four bytes for the length of its body (big endian), and the
//! body. Numbers in bodies are big endian. Each kind has a greatest length, and a longer or unknown
//! frame ends the connection.
//!
//! ```text
//! client                                   holder of the folder
//! Hello(version, role?, …) ──────────────▶
//!                          ◀───────────────  Welcome(process, secret, …), or Refused and the end
//! Statement(number, text) ───────────────▶
//!                          ◀───────────────  for each statement of the text, in order:
//!                                              Schema, Rows …, Complete      a query
//!                                              Complete                      a command
//!                                              CopyOut, Data …, Complete     COPY … TO STDOUT
//!                                              CopyIn                        COPY … FROM STDIN
//! Data …, DataEnd(ok or why not) ────────▶      (Complete)
//!                          ◀───────────────  Error, if one has failed: the rest of the text does not run
//!                          ◀───────────────  Ready(number, status, state)
//! CreateTable(number, …) ────────────────▶
//!                          ◀───────────────  Complete or Error, Ready
//! Snapshot(number, request) ─────────────▶
//!                          ◀───────────────  Descriptors …, Image(lease, part) …, or Error; Ready
//! LeaseEnd(lease) ───────────────────────▶
//!                          ◀───────────────  Bye(last number begun, why), and the end
//! ```
//! Notices, notifications and the progress of a COPY come between any other frames.
//!
//! **Statements.** The client sends the next statement after the Ready of the last. Each has a
//! number, one more than the last. The frames before a Ready belong to its statement. A Complete
//! acknowledges a statement: the holder sends it when the commit is durable.
//!
//! **COPY from the client.** Each CopyIn is answered by exactly one DataEnd, also when the Complete
//! or an Error comes first: then the client sends no more Data, and the holder drops the Data on
//! its way.
//!
//! **Cancelling.** A statement is cancelled from a connection of its own, whose first and only
//! frame is a Cancel with the process and the secret of the Welcome, and the number of the
//! statement. So data on its way does not hold up a cancellation, and no cancellation ends a later
//! statement.
//!
//! **Handing over.** A server that finds the folder held asks for it on a connection of its own,
//! whose first and only frame is a HandOver. A holder that grants it answers with a Bye, and ends
//! as it always does; otherwise it answers with a Refused, whose SQLSTATE is [`BUSY`] if the server
//! may ask again. The Byes of its clients then have the SQLSTATE [`HANDED_OVER`]: they leave the
//! folder to the server for a moment.
//!
//! **The end.** A holder that ends in order sends a Bye, with the number of the last statement that
//! it has begun. A later statement has not run, so the client may run it elsewhere. After any other
//! end, the running statement may have committed or not.
//!
//! **Descriptors.** A Descriptors frame is sent in one piece with its open files (SCM_RIGHTS). Only
//! the holder sends open files; they belong to the Image that follows.
//!
//! **Rows** are messages of an Arrow IPC stream, of which the Schema is the first. Each Schema
//! begins a stream.

use std::fmt;

/// The version of the protocol.
pub const VERSION: u16 = 2;
/// The socket's name in the folder.
pub const SOCKET: &str = "SOCKET";
/// The SQLSTATE with which a holder refuses to hand the folder over for as long as it uses it.
pub const BUSY: &str = sqlstate::OBJECT_IN_USE;
/// The SQLSTATE of the end of a holder that hands the folder over to a server.
pub const HANDED_OVER: &str = sqlstate::CANNOT_CONNECT_NOW;
/// Bytes in front of the body.
pub const HEADER_BYTES: usize = 5;
/// The longest text of a statement.
pub const MOST_TEXT_BYTES: usize = 64 << 20;
/// The longest part of a COPY's data in a frame.
pub const MOST_DATA_BYTES: usize = 1 << 20;
/// The longest messages of rows: a row that is longer cannot be sent.
pub const MOST_ROWS_BYTES: usize = 1 << 30;
/// The longest schema.
pub const MOST_SCHEMA_BYTES: usize = 16 << 20;
/// The longest request for an image, and the longest part of an image's manifest in a frame.
pub const MOST_IMAGE_BYTES: usize = 1 << 20;
/// The longest text of an error or a notice; more of it is cut off.
pub const MOST_MESSAGE_BYTES: usize = 64 << 10;
/// The longest name, path or text of a notification; more of it is cut off.
pub const MOST_WORD_BYTES: usize = 16 << 10;
/// The most open files that come with a frame. The system's limit is 253.
pub const MOST_DESCRIPTORS: usize = 200;

/// Kinds of frames: small letters come from the client, capital letters from the holder.
mod kind {
    pub(super) const HELLO: u8 = b'h';
    pub(super) const CANCEL: u8 = b'x';
    pub(super) const HAND_OVER: u8 = b'g';
    pub(super) const STATEMENT: u8 = b's';
    pub(super) const CREATE_TABLE: u8 = b't';
    pub(super) const DATA_IN: u8 = b'd';
    pub(super) const DATA_END: u8 = b'e';
    pub(super) const SNAPSHOT: u8 = b'm';
    pub(super) const LEASE_END: u8 = b'l';
    pub(super) const WELCOME: u8 = b'W';
    pub(super) const REFUSED: u8 = b'N';
    pub(super) const SCHEMA: u8 = b'S';
    pub(super) const ROWS: u8 = b'R';
    pub(super) const COMPLETE: u8 = b'C';
    pub(super) const COPY_IN: u8 = b'I';
    pub(super) const COPY_OUT: u8 = b'O';
    pub(super) const DATA_OUT: u8 = b'D';
    pub(super) const PROGRESS: u8 = b'P';
    pub(super) const ERROR: u8 = b'E';
    pub(super) const NOTICE: u8 = b'T';
    pub(super) const NOTIFICATION: u8 = b'A';
    pub(super) const DESCRIPTORS: u8 = b'F';
    pub(super) const IMAGE: u8 = b'G';
    pub(super) const READY: u8 = b'Z';
    pub(super) const BYE: u8 = b'B';
}

/// The error of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// There is no such kind.
    Unknown(u8),
    /// The body is longer than such a frame's may be.
    TooLong {
        /// The kind.
        kind: u8,
        /// The length in the frame's header.
        length: usize,
        /// The greatest length.
        most: usize,
    },
    /// The body is not valid for a frame of this kind.
    Malformed(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |kind: u8| char::from(kind).escape_default();
        match *self {
            Self::Unknown(kind) => write!(f, "there are no frames of kind '{}'", shown(kind)),
            Self::TooLong { kind, length, most } => {
                write!(f, "a frame of kind '{}' has at most {most} bytes, but this has {length}", shown(kind))
            }
            Self::Malformed(kind) => write!(f, "malformed frame of kind '{}'", shown(kind)),
        }
    }
}

impl std::error::Error for FrameError {}

/// A side that sends frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// A client that has not logged in.
    Stranger,
    /// A client that has logged in.
    Client,
    /// The holder of the folder.
    Holder,
}

/// The kind, and the length of the body, of a frame with this header.
///
/// # Errors
/// When the sender may not send frames of this kind, or of this length.
pub fn header(bytes: [u8; HEADER_BYTES], sender: Sender) -> Result<(u8, usize), FrameError> {
    const WORD: usize = 3 + MOST_WORD_BYTES;
    const FAILURE: usize = 5 + 5 * (5 + MOST_MESSAGE_BYTES) + 17;
    let [kind, length @ ..] = bytes;
    let most = match (sender, kind) {
        (Sender::Stranger, kind::HELLO) => 3 + 3 * WORD,
        (Sender::Stranger, kind::CANCEL) => 4 + 8 + 8,
        (Sender::Stranger, kind::HAND_OVER) => 0,
        (Sender::Client, kind::STATEMENT) => 8 + MOST_TEXT_BYTES,
        (Sender::Client, kind::CREATE_TABLE) => 8 + 2 * WORD + MOST_SCHEMA_BYTES,
        (Sender::Client, kind::DATA_IN) => MOST_DATA_BYTES,
        (Sender::Client, kind::DATA_END) => 1 + MOST_MESSAGE_BYTES,
        (Sender::Client, kind::SNAPSHOT) => 8 + MOST_IMAGE_BYTES,
        (Sender::Client, kind::LEASE_END) => 8,
        (Sender::Holder, kind::WELCOME) => 2 + 4 + 8 + 4 + 16 + WORD,
        (Sender::Holder, kind::REFUSED | kind::ERROR) => FAILURE,
        (Sender::Holder, kind::SCHEMA) => MOST_SCHEMA_BYTES,
        (Sender::Holder, kind::ROWS) => MOST_ROWS_BYTES,
        (Sender::Holder, kind::COMPLETE) => 8 + MOST_WORD_BYTES,
        (Sender::Holder, kind::COPY_IN | kind::COPY_OUT) => 0,
        (Sender::Holder, kind::DATA_OUT) => MOST_DATA_BYTES,
        (Sender::Holder, kind::PROGRESS) => 24,
        (Sender::Holder, kind::NOTICE) => 2 * WORD + MOST_MESSAGE_BYTES,
        (Sender::Holder, kind::NOTIFICATION) => 4 + 2 * WORD,
        (Sender::Holder, kind::DESCRIPTORS) => 2,
        (Sender::Holder, kind::IMAGE) => 9 + MOST_IMAGE_BYTES,
        (Sender::Holder, kind::READY) => 10,
        (Sender::Holder, kind::BYE) => 8 + FAILURE,
        _ => return Err(FrameError::Unknown(kind)),
    };
    let length = u32::from_be_bytes(length) as usize;
    if length <= most { Ok((kind, length)) } else { Err(FrameError::TooLong { kind, length, most }) }
}

/// An error of a statement, in the form that clients get. All texts but the message are boxed, so
/// that results stay small.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Five characters, as PostgreSQL uses them.
    pub sqlstate: Box<str>,
    /// The message.
    pub message: String,
    /// The detail: more about the error.
    pub detail: Option<Box<str>>,
    /// The hint: a remedy for the error.
    pub hint: Option<Box<str>>,
    /// The column, relation, function or constraint that it is about.
    pub name: Option<Box<str>>,
    /// The place in the statement's text: line and column, from 1.
    pub position: Option<(u64, u64)>,
}

impl Failure {
    /// An error without more than a message.
    pub fn new(sqlstate: &str, message: impl Into<String>) -> Self {
        let (sqlstate, message) = (sqlstate.into(), message.into());
        Self { sqlstate, message, detail: None, hint: None, name: None, position: None }
    }

    /// The error with this detail.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<Box<str>>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// The error with this hint.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<Box<str>>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR {}: {}", self.sqlstate, self.message)?;
        let more = [("DETAIL", &self.detail), ("HINT", &self.hint)];
        more.into_iter().try_for_each(|(name, text)| match text {
            Some(text) => write!(f, "\n{name}: {text}"),
            None => Ok(()),
        })
    }
}

impl std::error::Error for Failure {}

/// The identity of a folder: the numbers of its file system and of its inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FolderId(pub u64, pub u64);

/// Whether a transaction is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Status {
    /// No transaction is open.
    #[default]
    Idle,
    /// Open.
    Open,
    /// Open, and a statement has failed in it.
    Failed,
}

/// A frame from a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientFrame<'a> {
    /// The client's identity: the first frame.
    Hello {
        /// Its version of the protocol.
        version: u16,
        /// Whether columns without a name get PostgreSQL's names.
        postgresql_names: bool,
        /// The role; `None` for the bootstrap superuser.
        role: Option<&'a str>,
        /// The client's name for itself.
        application: &'a str,
        /// The folder to which paths in COPY are relative; `None` if its path is not UTF-8.
        folder: Option<&'a str>,
    },
    /// Cancels a statement of another connection: the first and only frame.
    Cancel {
        /// The connection's number.
        process: i32,
        /// The connection's secret.
        secret: u64,
        /// The statement's number.
        statement: u64,
    },
    /// A server asks for the folder: the first and only frame.
    HandOver,
    /// Statements.
    Statement {
        /// The number.
        statement: u64,
        /// The text.
        text: &'a str,
    },
    /// Makes a table, unless it is there, with the columns of a schema.
    CreateTable {
        /// The number, counted with those of statements.
        statement: u64,
        /// The table's schema; `None` for the schema that `search_path` gives.
        schema: Option<&'a str>,
        /// The table.
        table: &'a str,
        /// Its columns: the header of a schema message of Arrow IPC.
        columns: &'a [u8],
    },
    /// A part of a COPY's data.
    Data(&'a [u8]),
    /// The end of a COPY's data, or the reason why the client has no more.
    DataEnd(Result<(), &'a str>),
    /// Asks for an image of tables in shared memory.
    Snapshot {
        /// The number, counted with those of statements.
        statement: u64,
        /// The request.
        request: &'a [u8],
    },
    /// An image is not needed any more.
    LeaseEnd {
        /// The number of its lease.
        lease: u64,
    },
}

/// A frame from the holder.
#[derive(Clone, PartialEq, Debug)]
pub enum HolderFrame<'a> {
    /// The client has logged in.
    Welcome {
        /// The holder's version of the protocol.
        version: u16,
        /// The connection's number.
        process: i32,
        /// The secret that cancels its statements.
        secret: u64,
        /// The number of the holder's process.
        holder: u32,
        /// The folder that it has open.
        folder: FolderId,
        /// The holder's name and version.
        name: &'a str,
    },
    /// The client has not logged in, and the connection ends.
    Refused(Failure),
    /// The columns of rows that follow: a message of Arrow IPC.
    Schema(&'a [u8]),
    /// Rows, and perhaps dictionaries before them: messages of Arrow IPC.
    Rows(&'a [u8]),
    /// The end of a statement's result.
    Complete {
        /// Rows that it gave or changed.
        rows: u64,
        /// Its tag, as PostgreSQL writes it.
        tag: &'a str,
    },
    /// The data of a COPY is wanted.
    CopyIn,
    /// The data of a COPY follows.
    CopyOut,
    /// A part of the data of a COPY.
    Data(&'a [u8]),
    /// The progress of a COPY.
    Progress {
        /// Rows copied.
        rows: u64,
        /// How much of the input is read.
        done: u64,
        /// How much there is; 0 if unknown.
        total: u64,
    },
    /// A statement has failed.
    Error(Failure),
    /// A notice of a statement, beside its result.
    Notice {
        /// "NOTICE" or "WARNING".
        severity: &'a str,
        /// PostgreSQL's code for it.
        sqlstate: &'a str,
        /// The text.
        message: &'a str,
    },
    /// A message that another session has sent to a channel (NOTIFY).
    Notification {
        /// The number of that session's connection.
        process: i32,
        /// The channel.
        channel: &'a str,
        /// The text.
        payload: &'a str,
    },
    /// The number of open files that come with this frame.
    Descriptors(u16),
    /// A part of an image's manifest.
    Image {
        /// The number of its lease.
        lease: u64,
        /// Whether it is the last part.
        is_last: bool,
        /// The part.
        part: &'a [u8],
    },
    /// The next statement may come.
    Ready {
        /// The number of the last one.
        statement: u64,
        /// Whether a transaction is open.
        status: Status,
        /// Whether the session has state of its own, so that statements may mean something else in
        /// a new session.
        has_state: bool,
    },
    /// The holder ends the connection.
    Bye {
        /// The number of the last statement that it has begun.
        statement: u64,
        /// Why.
        why: Failure,
    },
}

/// Writes a frame.
fn frame(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[kind, 0, 0, 0, 0]);
    body(out);
    let length = u32::try_from(out.len() - start - HEADER_BYTES).expect("bodies are bounded");
    out[start + 1..start + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// The beginning of a text, in at most `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn put_word(out: &mut Vec<u8>, text: &str) {
    let text = cut(text, MOST_WORD_BYTES);
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_message(out: &mut Vec<u8>, text: &str) {
    let text = cut(text, MOST_MESSAGE_BYTES);
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Writes a value that may be missing.
fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn put_failure(out: &mut Vec<u8>, failure: &Failure) {
    put_message(out, &failure.sqlstate);
    put_message(out, &failure.message);
    for text in [&failure.detail, &failure.hint, &failure.name] {
        put_option(out, text.as_deref(), put_message);
    }
    put_option(out, failure.position, |out, (line, column)| {
        out.extend_from_slice(&line.to_be_bytes());
        out.extend_from_slice(&column.to_be_bytes());
    });
}

/// The unread rest of a body.
struct Body<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    fn malformed<T>(&self) -> Result<T, FrameError> {
        Err(FrameError::Malformed(self.kind))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        match self.rest.split_first_chunk() {
            Some((array, rest)) => {
                self.rest = rest;
                Ok(*array)
            }
            None => self.malformed(),
        }
    }

    fn long(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_be_bytes)
    }

    fn number(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_be_bytes)
    }

    fn short(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_be_bytes)
    }

    fn switch(&mut self) -> Result<bool, FrameError> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => self.malformed(),
        }
    }

    /// A text of `length` bytes; an error if that is more than `most`.
    fn counted(&mut self, length: usize, most: usize) -> Result<&'a str, FrameError> {
        if length > most {
            return self.malformed();
        }
        let Some((text, rest)) = self.rest.split_at_checked(length) else { return self.malformed() };
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| FrameError::Malformed(self.kind))
    }

    fn word(&mut self) -> Result<&'a str, FrameError> {
        let length = self.short()?.into();
        self.counted(length, MOST_WORD_BYTES)
    }

    fn message(&mut self) -> Result<&'a str, FrameError> {
        let length = self.number()? as usize;
        self.counted(length, MOST_MESSAGE_BYTES)
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, FrameError>) -> Result<Option<T>, FrameError> {
        if self.switch()? { read(self).map(Some) } else { Ok(None) }
    }

    fn failure(&mut self) -> Result<Failure, FrameError> {
        let text = |body: &mut Self| body.message().map(Box::from);
        Ok(Failure {
            sqlstate: text(self)?,
            message: self.message()?.to_owned(),
            detail: self.option(text)?,
            hint: self.option(text)?,
            name: self.option(text)?,
            position: self.option(|body| Ok((body.long()?, body.long()?)))?,
        })
    }

    fn text(self) -> Result<&'a str, FrameError> {
        std::str::from_utf8(self.rest).map_err(|_| FrameError::Malformed(self.kind))
    }

    fn end<T>(self, value: T) -> Result<T, FrameError> {
        if self.rest.is_empty() { Ok(value) } else { self.malformed() }
    }
}

impl<'a> ClientFrame<'a> {
    /// Writes the frame. The caller makes sure that texts, data and schemas are no longer than such
    /// frames may be.
    pub fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Hello { version, postgresql_names, role, application, folder } => frame(out, kind::HELLO, |out| {
                out.extend_from_slice(&version.to_be_bytes());
                out.push(postgresql_names.into());
                put_option(out, role, put_word);
                put_word(out, application);
                put_option(out, folder, put_word);
            }),
            Self::Cancel { process, secret, statement } => frame(out, kind::CANCEL, |out| {
                out.extend_from_slice(&process.to_be_bytes());
                out.extend_from_slice(&secret.to_be_bytes());
                out.extend_from_slice(&statement.to_be_bytes());
            }),
            Self::HandOver => frame(out, kind::HAND_OVER, |_| {}),
            Self::Statement { statement, text } => frame(out, kind::STATEMENT, |out| {
                debug_assert!(text.len() <= MOST_TEXT_BYTES);
                out.extend_from_slice(&statement.to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }),
            Self::CreateTable { statement, schema, table, columns } => frame(out, kind::CREATE_TABLE, |out| {
                debug_assert!(columns.len() <= MOST_SCHEMA_BYTES);
                out.extend_from_slice(&statement.to_be_bytes());
                put_option(out, schema, put_word);
                put_word(out, table);
                out.extend_from_slice(columns);
            }),
            Self::Data(bytes) => {
                debug_assert!(bytes.len() <= MOST_DATA_BYTES);
                frame(out, kind::DATA_IN, |out| out.extend_from_slice(bytes));
            }
            Self::DataEnd(end) => frame(out, kind::DATA_END, |out| match end {
                Ok(()) => out.push(0),
                Err(why) => {
                    out.push(1);
                    out.extend_from_slice(cut(why, MOST_MESSAGE_BYTES).as_bytes());
                }
            }),
            Self::Snapshot { statement, request } => frame(out, kind::SNAPSHOT, |out| {
                debug_assert!(request.len() <= MOST_IMAGE_BYTES);
                out.extend_from_slice(&statement.to_be_bytes());
                out.extend_from_slice(request);
            }),
            Self::LeaseEnd { lease } => frame(out, kind::LEASE_END, |out| out.extend_from_slice(&lease.to_be_bytes())),
        }
    }

    /// Reads a frame from its kind and body.
    ///
    /// # Errors
    /// When the body is not valid for a frame of this kind.
    pub fn read(kind: u8, body: &'a [u8]) -> Result<Self, FrameError> {
        let mut body = Body { kind, rest: body };
        match kind {
            kind::HELLO => {
                let (version, postgresql_names) = (body.short()?, body.switch()?);
                let (role, application) = (body.option(Body::word)?, body.word()?);
                let folder = body.option(Body::word)?;
                body.end(Self::Hello { version, postgresql_names, role, application, folder })
            }
            kind::CANCEL => {
                let process = body.array().map(i32::from_be_bytes)?;
                let (secret, statement) = (body.long()?, body.long()?);
                body.end(Self::Cancel { process, secret, statement })
            }
            kind::HAND_OVER => body.end(Self::HandOver),
            kind::STATEMENT => Ok(Self::Statement { statement: body.long()?, text: body.text()? }),
            kind::CREATE_TABLE => {
                let (statement, schema, table) = (body.long()?, body.option(Body::word)?, body.word()?);
                Ok(Self::CreateTable { statement, schema, table, columns: body.rest })
            }
            kind::DATA_IN => Ok(Self::Data(body.rest)),
            kind::DATA_END => match body.switch()? {
                false => body.end(Self::DataEnd(Ok(()))),
                true => Ok(Self::DataEnd(Err(body.text()?))),
            },
            kind::SNAPSHOT => Ok(Self::Snapshot { statement: body.long()?, request: body.rest }),
            kind::LEASE_END => {
                let lease = body.long()?;
                body.end(Self::LeaseEnd { lease })
            }
            unknown => Err(FrameError::Unknown(unknown)),
        }
    }
}

impl<'a> HolderFrame<'a> {
    /// Writes the frame. The caller makes sure that rows, data and schemas are no longer than such
    /// frames may be.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Welcome { version, process, secret, holder, folder, name } => frame(out, kind::WELCOME, |out| {
                out.extend_from_slice(&version.to_be_bytes());
                out.extend_from_slice(&process.to_be_bytes());
                out.extend_from_slice(&secret.to_be_bytes());
                out.extend_from_slice(&holder.to_be_bytes());
                out.extend_from_slice(&folder.0.to_be_bytes());
                out.extend_from_slice(&folder.1.to_be_bytes());
                put_word(out, name);
            }),
            Self::Refused(why) => frame(out, kind::REFUSED, |out| put_failure(out, why)),
            Self::Schema(bytes) => frame(out, kind::SCHEMA, |out| out.extend_from_slice(bytes)),
            Self::Rows(bytes) => {
                debug_assert!(bytes.len() <= MOST_ROWS_BYTES);
                frame(out, kind::ROWS, |out| out.extend_from_slice(bytes));
            }
            Self::Complete { rows, tag } => frame(out, kind::COMPLETE, |out| {
                out.extend_from_slice(&rows.to_be_bytes());
                out.extend_from_slice(cut(tag, MOST_WORD_BYTES).as_bytes());
            }),
            Self::CopyIn => frame(out, kind::COPY_IN, |_| {}),
            Self::CopyOut => frame(out, kind::COPY_OUT, |_| {}),
            Self::Data(bytes) => {
                debug_assert!(bytes.len() <= MOST_DATA_BYTES);
                frame(out, kind::DATA_OUT, |out| out.extend_from_slice(bytes));
            }
            Self::Progress { rows, done, total } => frame(out, kind::PROGRESS, |out| {
                [rows, done, total].into_iter().for_each(|figure| out.extend_from_slice(&figure.to_be_bytes()));
            }),
            Self::Error(failure) => frame(out, kind::ERROR, |out| put_failure(out, failure)),
            Self::Notice { severity, sqlstate, message } => frame(out, kind::NOTICE, |out| {
                put_word(out, severity);
                put_word(out, sqlstate);
                out.extend_from_slice(cut(message, MOST_MESSAGE_BYTES).as_bytes());
            }),
            Self::Notification { process, channel, payload } => frame(out, kind::NOTIFICATION, |out| {
                out.extend_from_slice(&process.to_be_bytes());
                put_word(out, channel);
                put_word(out, payload);
            }),
            Self::Descriptors(count) => {
                frame(out, kind::DESCRIPTORS, |out| out.extend_from_slice(&count.to_be_bytes()))
            }
            Self::Image { lease, is_last, part } => frame(out, kind::IMAGE, |out| {
                debug_assert!(part.len() <= MOST_IMAGE_BYTES);
                out.extend_from_slice(&lease.to_be_bytes());
                out.push((*is_last).into());
                out.extend_from_slice(part);
            }),
            Self::Ready { statement, status, has_state } => frame(out, kind::READY, |out| {
                out.extend_from_slice(&statement.to_be_bytes());
                out.push(match status {
                    Status::Idle => b'I',
                    Status::Open => b'T',
                    Status::Failed => b'E',
                });
                out.push((*has_state).into());
            }),
            Self::Bye { statement, why } => frame(out, kind::BYE, |out| {
                out.extend_from_slice(&statement.to_be_bytes());
                put_failure(out, why);
            }),
        }
    }

    /// Whether a frame of this kind has rows. The body of such a frame is kept as it is.
    pub fn is_rows(kind: u8) -> bool {
        kind == kind::ROWS
    }

    /// Reads a frame from its kind and body.
    ///
    /// # Errors
    /// When the body is not valid for a frame of this kind.
    pub fn read(kind: u8, body: &'a [u8]) -> Result<Self, FrameError> {
        let mut body = Body { kind, rest: body };
        match kind {
            kind::WELCOME => {
                let (version, process) = (body.short()?, body.array().map(i32::from_be_bytes)?);
                let (secret, holder) = (body.long()?, body.number()?);
                let (folder, name) = (FolderId(body.long()?, body.long()?), body.word()?);
                body.end(Self::Welcome { version, process, secret, holder, folder, name })
            }
            kind::REFUSED => {
                let why = body.failure()?;
                body.end(Self::Refused(why))
            }
            kind::SCHEMA => Ok(Self::Schema(body.rest)),
            kind::ROWS => Ok(Self::Rows(body.rest)),
            kind::COMPLETE => Ok(Self::Complete { rows: body.long()?, tag: body.text()? }),
            kind::COPY_IN => body.end(Self::CopyIn),
            kind::COPY_OUT => body.end(Self::CopyOut),
            kind::DATA_OUT => Ok(Self::Data(body.rest)),
            kind::PROGRESS => {
                let (rows, done, total) = (body.long()?, body.long()?, body.long()?);
                body.end(Self::Progress { rows, done, total })
            }
            kind::ERROR => {
                let failure = body.failure()?;
                body.end(Self::Error(failure))
            }
            kind::NOTICE => {
                let (severity, sqlstate) = (body.word()?, body.word()?);
                Ok(Self::Notice { severity, sqlstate, message: body.text()? })
            }
            kind::NOTIFICATION => {
                let process = body.array().map(i32::from_be_bytes)?;
                let (channel, payload) = (body.word()?, body.word()?);
                body.end(Self::Notification { process, channel, payload })
            }
            kind::DESCRIPTORS => match body.short()? {
                count if usize::from(count) > MOST_DESCRIPTORS => body.malformed(),
                count => body.end(Self::Descriptors(count)),
            },
            kind::IMAGE => Ok(Self::Image { lease: body.long()?, is_last: body.switch()?, part: body.rest }),
            kind::READY => {
                let statement = body.long()?;
                let status = match body.array()? {
                    [b'I'] => Status::Idle,
                    [b'T'] => Status::Open,
                    [b'E'] => Status::Failed,
                    _ => return body.malformed(),
                };
                let has_state = body.switch()?;
                body.end(Self::Ready { statement, status, has_state })
            }
            kind::BYE => {
                let (statement, why) = (body.long()?, body.failure()?);
                body.end(Self::Bye { statement, why })
            }
            unknown => Err(FrameError::Unknown(unknown)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> Failure {
        let failure = Failure::new(sqlstate::SERIALIZATION_FAILURE, "could not serialize")
            .with_detail("a row has changed")
            .with_hint("again");
        Failure { name: Some("t".into()), position: Some((3, 14)), ..failure }
    }

    fn client_frames() -> Vec<(Sender, ClientFrame<'static>)> {
        let hello = |role, folder| {
            let frame = ClientFrame::Hello { version: VERSION, postgresql_names: true, role, application: "a", folder };
            (Sender::Stranger, frame)
        };
        let client = |frame| (Sender::Client, frame);
        vec![
            hello(None, Some("/home")),
            hello(Some("ada"), None),
            (Sender::Stranger, ClientFrame::Cancel { process: -3, secret: u64::MAX, statement: 7 }),
            (Sender::Stranger, ClientFrame::HandOver),
            client(ClientFrame::Statement { statement: 1, text: "SELECT 'ü'" }),
            client(ClientFrame::CreateTable { statement: 2, schema: Some("s"), table: "t", columns: &[1, 2] }),
            client(ClientFrame::Data(b"1,2\n")),
            client(ClientFrame::DataEnd(Ok(()))),
            client(ClientFrame::DataEnd(Err("no more"))),
            client(ClientFrame::Snapshot { statement: 3, request: &[0; 9] }),
            client(ClientFrame::LeaseEnd { lease: 4 }),
        ]
    }

    fn holder_frames() -> Vec<HolderFrame<'static>> {
        vec![
            HolderFrame::Welcome {
                version: VERSION,
                process: 5,
                secret: 6,
                holder: 7,
                folder: FolderId(8, 9),
                name: "SeracDB",
            },
            HolderFrame::Refused(Failure::new(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, "no")),
            HolderFrame::Schema(&[1, 2, 3]),
            HolderFrame::Rows(&[4; 100]),
            HolderFrame::Complete { rows: 3, tag: "INSERT 0 3" },
            HolderFrame::CopyIn,
            HolderFrame::CopyOut,
            HolderFrame::Data(b"x"),
            HolderFrame::Progress { rows: 1, done: 2, total: 3 },
            HolderFrame::Error(failure()),
            HolderFrame::Notice { severity: "NOTICE", sqlstate: sqlstate::SUCCESSFUL_COMPLETION, message: "skipping" },
            HolderFrame::Notification { process: 9, channel: "c", payload: "p" },
            HolderFrame::Descriptors(200),
            HolderFrame::Image { lease: 1, is_last: true, part: b"manifest" },
            HolderFrame::Ready { statement: 8, status: Status::Failed, has_state: true },
            HolderFrame::Bye { statement: 8, why: failure() },
        ]
    }

    /// The kind and the body of the one frame in these bytes.
    fn parts(bytes: &[u8], sender: Sender) -> (u8, &[u8]) {
        let (first, body) = bytes.split_first_chunk().unwrap();
        let (kind, length) = header(*first, sender).unwrap();
        assert_eq!(length, body.len());
        (kind, body)
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        for (sender, frame) in client_frames() {
            let mut out = Vec::new();
            frame.put(&mut out);
            let (kind, body) = parts(&out, sender);
            assert_eq!(ClientFrame::read(kind, body), Ok(frame));
        }
        for frame in holder_frames() {
            let mut out = Vec::new();
            frame.put(&mut out);
            let (kind, body) = parts(&out, Sender::Holder);
            assert_eq!(HolderFrame::read(kind, body), Ok(frame));
        }
    }

    #[test]
    fn frames_that_are_cut_or_longer_are_malformed_or_others() {
        for (sender, frame) in client_frames() {
            let mut out = Vec::new();
            frame.put(&mut out);
            let (kind, body) = parts(&out, sender);
            for end in 0..body.len() {
                assert_ne!(ClientFrame::read(kind, &body[..end]).as_ref(), Ok(&frame));
            }
        }
        for frame in holder_frames() {
            let mut out = Vec::new();
            frame.put(&mut out);
            let (kind, body) = parts(&out, Sender::Holder);
            for end in 0..body.len() {
                assert_ne!(HolderFrame::read(kind, &body[..end]).as_ref(), Ok(&frame));
            }
        }
    }

    #[test]
    fn lengths_and_kinds_are_bounded_by_sender() {
        let of = |kind: u8, length: u32, sender| {
            let [a, b, c, d] = length.to_be_bytes();
            header([kind, a, b, c, d], sender)
        };
        assert_eq!(of(b's', 8, Sender::Client), Ok((b's', 8)));
        assert_eq!(of(b's', 8, Sender::Stranger), Err(FrameError::Unknown(b's')));
        assert_eq!(of(b'h', 8, Sender::Client), Err(FrameError::Unknown(b'h')));
        assert!(matches!(of(b's', u32::MAX, Sender::Client), Err(FrameError::TooLong { .. })));
        assert!(matches!(of(b'I', 1, Sender::Holder), Err(FrameError::TooLong { .. })));
        let mut out = Vec::new();
        HolderFrame::Descriptors(201).put(&mut out);
        assert_eq!(HolderFrame::read(b'F', &out[HEADER_BYTES..]), Err(FrameError::Malformed(b'F')));
    }

    #[test]
    fn long_texts_are_cut_where_a_character_ends() {
        let long = "ü".repeat(MOST_MESSAGE_BYTES);
        let mut out = Vec::new();
        HolderFrame::Error(
            Failure::new(sqlstate::INTERNAL_ERROR, long.clone()).with_detail(long.clone()).with_hint(long),
        )
        .put(&mut out);
        let (kind, body) = parts(&out, Sender::Holder);
        let Ok(HolderFrame::Error(failure)) = HolderFrame::read(kind, body) else { panic!("it is an error") };
        assert_eq!(failure.message.len(), MOST_MESSAGE_BYTES);
    }
}
