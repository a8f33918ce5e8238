//! The protocol of clients and servers of the operator language: frames on a stream of bytes.
//!
//! A frame is a byte for its kind, four bytes for the length of its body (big endian), and the
//! body. Numbers in bodies are big endian. Each kind has a greatest length, and a longer or unknown
//! frame ends the connection.
//!
//! ```text
//! client                                           server
//! Hello(version, user, password?) ───────────────▶
//!                           ◀─────────────────────  Welcome(version, name), or Refused and the end
//! Statement(line, text) ─────────────────────────▶
//! Statement(line, load(…)) ──────────────────────▶
//! LoadBegin, LoadChunk …, LoadEnd(ok or why not) ▶
//! Cancel(line) ──────────────────────────────────▶
//!                           ◀─────────────────────  Rows …, Report …, Done(line, ok)
//!                           ◀─────────────────────  Bye(why), and the end
//! ```
//! The client need not wait for anything: it may send all its statements behind the Hello. The
//! server answers each with a Done, in their order. The frames before a Done belong to its
//! statement.
//!
//! The client sees by itself that a line is a load, and sends the file behind the statement. So a
//! load costs no round trip and the server never opens a path. The server may refuse the statement,
//! or find a bad row, before it has read the whole file. It then answers at once and drops the
//! frames up to the LoadEnd. A client that gets that Done while it sends may cut the file short,
//! with a LoadEnd.
//!
//! A Cancel names the line of its statement. It overtakes the statements that wait: if another one
//! is running, its own is cancelled when its turn comes.
//!
//! Both sides read only as much as they have room for, so the stream itself holds up a sender that
//! is too fast.

use std::fmt;

/// The version of the protocol.
pub const VERSION: u16 = 1;
/// Bytes in front of the body.
pub const HEADER_BYTES: usize = 5;
/// The longest part of a file in a frame.
pub const MOST_CHUNK_BYTES: usize = 1 << 20;
/// The longest part of a result in a frame.
pub const MOST_ROWS_BYTES: usize = 1 << 20;
/// The longest line of a statement.
pub const MOST_LINE_BYTES: usize = crate::parse::MOST_LINE_BYTES;
/// The longest text of a Report; a longer one is cut off.
pub const MOST_REPORT_BYTES: usize = 64 << 10;
/// The longest text of a LoadEnd, a Welcome, a Refused or a Bye; a longer one is cut off.
pub const MOST_WORD_BYTES: usize = 4 << 10;
/// The longest user name, and the longest password.
pub const MOST_LOGIN_BYTES: usize = 2 << 10;

/// Kinds of frames: small letters come from the client, capital letters from the server.
mod kind {
    pub(super) const HELLO: u8 = b'h';
    pub(super) const STATEMENT: u8 = b's';
    pub(super) const LOAD_BEGIN: u8 = b'b';
    pub(super) const LOAD_CHUNK: u8 = b'd';
    pub(super) const LOAD_END: u8 = b'e';
    pub(super) const CANCEL: u8 = b'c';
    pub(super) const WELCOME: u8 = b'W';
    pub(super) const REFUSED: u8 = b'N';
    pub(super) const ROWS: u8 = b'R';
    pub(super) const REPORT: u8 = b'E';
    pub(super) const DONE: u8 = b'D';
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
        /// The length that the frame says.
        length: usize,
        /// The greatest length.
        most: usize,
    },
    /// The body does not have the form of its kind.
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
    /// The server.
    Server,
}

/// The kind, and the length of the body, of a frame with this header.
///
/// # Errors
/// When the sender has no such frames, or none of this length.
pub fn header(bytes: [u8; HEADER_BYTES], sender: Sender) -> Result<(u8, usize), FrameError> {
    let [kind, length @ ..] = bytes;
    let most = match (sender, kind) {
        (Sender::Stranger, kind::HELLO) => 2 + 2 + 3 + 2 * MOST_LOGIN_BYTES,
        (Sender::Client, kind::STATEMENT) => 8 + MOST_LINE_BYTES,
        (Sender::Client, kind::LOAD_BEGIN) => 0,
        (Sender::Client, kind::LOAD_CHUNK) => MOST_CHUNK_BYTES,
        (Sender::Client, kind::LOAD_END) => 1 + MOST_WORD_BYTES,
        (Sender::Client, kind::CANCEL) => 8,
        (Sender::Server, kind::WELCOME) => 2 + MOST_WORD_BYTES,
        (Sender::Server, kind::REFUSED) => 1 + MOST_WORD_BYTES,
        (Sender::Server, kind::ROWS) => MOST_ROWS_BYTES,
        (Sender::Server, kind::REPORT) => 8 + MOST_REPORT_BYTES,
        (Sender::Server, kind::DONE) => 9,
        (Sender::Server, kind::BYE) => MOST_WORD_BYTES,
        _ => return Err(FrameError::Unknown(kind)),
    };
    let length = u32::from_be_bytes(length) as usize;
    if length <= most { Ok((kind, length)) } else { Err(FrameError::TooLong { kind, length, most }) }
}

/// A client's frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientFrame<'a> {
    /// The client's login: the first frame.
    Hello {
        /// Its version of the protocol.
        version: u16,
        /// The user's name; empty for the server's choice.
        user: &'a str,
        /// The user's password.
        password: Option<&'a str>,
    },
    /// A statement.
    Statement {
        /// The line of the client's input, from 1.
        line: u64,
        /// The line's text.
        text: &'a str,
    },
    /// The file of the load that the statement before names begins.
    LoadBegin,
    /// A part of the file.
    LoadChunk(&'a [u8]),
    /// The file's end, or the reason why the rest is missing.
    LoadEnd(Result<(), &'a str>),
    /// Cancels the statement of this line.
    Cancel {
        /// The line.
        line: u64,
    },
}

/// A server's frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerFrame<'a> {
    /// The client has logged in.
    Welcome {
        /// The server's version of the protocol.
        version: u16,
        /// The server's name and version.
        name: &'a str,
    },
    /// The client is refused, and the connection ends.
    Refused {
        /// Whether a password would help, and none was given.
        wants_password: bool,
        /// The reason.
        why: &'a str,
    },
    /// A part of a statement's result: text, cut anywhere.
    Rows(&'a [u8]),
    /// The error of the statement of a line.
    Report {
        /// The line.
        line: u64,
        /// The error's text.
        text: &'a str,
    },
    /// The end of a statement's answer.
    Done {
        /// Its line.
        line: u64,
        /// Whether it succeeded.
        ok: bool,
    },
    /// The server ends the connection, for this reason.
    Bye(&'a str),
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

/// Writes a text with its length.
fn put_word(out: &mut Vec<u8>, text: &str) {
    let text = cut(text, MOST_LOGIN_BYTES);
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
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

    fn number(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_be_bytes)
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

    fn word(&mut self) -> Result<&'a str, FrameError> {
        let length = usize::from(self.short()?);
        if length > MOST_LOGIN_BYTES {
            return self.malformed();
        }
        let Some((text, rest)) = self.rest.split_at_checked(length) else { return self.malformed() };
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| FrameError::Malformed(self.kind))
    }

    fn text(self) -> Result<&'a str, FrameError> {
        std::str::from_utf8(self.rest).map_err(|_| FrameError::Malformed(self.kind))
    }

    fn end<T>(self, value: T) -> Result<T, FrameError> {
        if self.rest.is_empty() { Ok(value) } else { self.malformed() }
    }
}

impl<'a> ClientFrame<'a> {
    /// Writes the frame. A statement has at most [`MOST_LINE_BYTES`], and a part of a file at most
    /// [`MOST_CHUNK_BYTES`]. A longer one is cut, so the caller must not pass one.
    pub fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Hello { version, user, password } => frame(out, kind::HELLO, |out| {
                out.extend_from_slice(&version.to_be_bytes());
                put_word(out, user);
                out.push(u8::from(password.is_some()));
                if let Some(password) = password {
                    put_word(out, password);
                }
            }),
            Self::Statement { line, text } => frame(out, kind::STATEMENT, |out| {
                debug_assert!(text.len() <= MOST_LINE_BYTES);
                out.extend_from_slice(&line.to_be_bytes());
                out.extend_from_slice(cut(text, MOST_LINE_BYTES).as_bytes());
            }),
            Self::LoadBegin => frame(out, kind::LOAD_BEGIN, |_| {}),
            Self::LoadChunk(bytes) => {
                debug_assert!(bytes.len() <= MOST_CHUNK_BYTES);
                frame(out, kind::LOAD_CHUNK, |out| out.extend_from_slice(&bytes[..bytes.len().min(MOST_CHUNK_BYTES)]));
            }
            Self::LoadEnd(end) => frame(out, kind::LOAD_END, |out| match end {
                Ok(()) => out.push(0),
                Err(why) => {
                    out.push(1);
                    out.extend_from_slice(cut(why, MOST_WORD_BYTES).as_bytes());
                }
            }),
            Self::Cancel { line } => frame(out, kind::CANCEL, |out| out.extend_from_slice(&line.to_be_bytes())),
        }
    }

    /// Reads a frame from its kind and body.
    ///
    /// # Errors
    /// When the body is none of such a frame.
    pub fn read(kind: u8, body: &'a [u8]) -> Result<Self, FrameError> {
        let mut body = Body { kind, rest: body };
        match kind {
            kind::HELLO => {
                let (version, user) = (body.short()?, body.word()?);
                let password = if body.switch()? { Some(body.word()?) } else { None };
                body.end(Self::Hello { version, user, password })
            }
            kind::STATEMENT => Ok(Self::Statement { line: body.number()?, text: body.text()? }),
            kind::LOAD_BEGIN => body.end(Self::LoadBegin),
            kind::LOAD_CHUNK => Ok(Self::LoadChunk(body.rest)),
            kind::LOAD_END => match body.switch()? {
                false => body.end(Self::LoadEnd(Ok(()))),
                true => Ok(Self::LoadEnd(Err(body.text()?))),
            },
            kind::CANCEL => {
                let line = body.number()?;
                body.end(Self::Cancel { line })
            }
            unknown => Err(FrameError::Unknown(unknown)),
        }
    }
}

impl<'a> ServerFrame<'a> {
    /// Writes the frame. A part of a result has at most [`MOST_ROWS_BYTES`]: see [`put_rows`].
    pub fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Welcome { version, name } => frame(out, kind::WELCOME, |out| {
                out.extend_from_slice(&version.to_be_bytes());
                out.extend_from_slice(cut(name, MOST_WORD_BYTES).as_bytes());
            }),
            Self::Refused { wants_password, why } => frame(out, kind::REFUSED, |out| {
                out.push(u8::from(wants_password));
                out.extend_from_slice(cut(why, MOST_WORD_BYTES).as_bytes());
            }),
            Self::Rows(text) => put_rows(out, text),
            Self::Report { line, text } => frame(out, kind::REPORT, |out| {
                out.extend_from_slice(&line.to_be_bytes());
                out.extend_from_slice(cut(text, MOST_REPORT_BYTES).as_bytes());
            }),
            Self::Done { line, ok } => frame(out, kind::DONE, |out| {
                out.extend_from_slice(&line.to_be_bytes());
                out.push(u8::from(ok));
            }),
            Self::Bye(why) => frame(out, kind::BYE, |out| out.extend_from_slice(cut(why, MOST_WORD_BYTES).as_bytes())),
        }
    }

    /// Reads a frame from its kind and body.
    ///
    /// # Errors
    /// When the body is none of such a frame.
    pub fn read(kind: u8, body: &'a [u8]) -> Result<Self, FrameError> {
        let mut body = Body { kind, rest: body };
        match kind {
            kind::WELCOME => Ok(Self::Welcome { version: body.short()?, name: body.text()? }),
            kind::REFUSED => Ok(Self::Refused { wants_password: body.switch()?, why: body.text()? }),
            kind::ROWS => Ok(Self::Rows(body.rest)),
            kind::REPORT => Ok(Self::Report { line: body.number()?, text: body.text()? }),
            kind::DONE => {
                let (line, ok) = (body.number()?, body.switch()?);
                body.end(Self::Done { line, ok })
            }
            kind::BYE => Ok(Self::Bye(body.text()?)),
            unknown => Err(FrameError::Unknown(unknown)),
        }
    }
}

/// Writes a part of a result of any length, in as many frames as it needs.
pub fn put_rows(out: &mut Vec<u8>, text: &[u8]) {
    for part in text.chunks(MOST_ROWS_BYTES) {
        frame(out, kind::ROWS, |out| out.extend_from_slice(part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Kind and body of a frame, and what follows.
    type Split<'b> = (u8, &'b [u8], &'b [u8]);

    /// The first frame in these bytes.
    fn split(bytes: &[u8], sender: Sender) -> Result<Option<Split<'_>>, FrameError> {
        let Some((start, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let (kind, length) = header(*start, sender)?;
        Ok(rest.split_at_checked(length).map(|(body, rest)| (kind, body, rest)))
    }

    fn of_client(frame: ClientFrame<'_>) {
        let mut bytes = Vec::new();
        frame.put(&mut bytes);
        let sender = if matches!(frame, ClientFrame::Hello { .. }) { Sender::Stranger } else { Sender::Client };
        let (kind, body, rest) = split(&bytes, sender).unwrap().unwrap();
        assert_eq!(ClientFrame::read(kind, body), Ok(frame));
        assert!(rest.is_empty());
    }

    fn of_server(frame: ServerFrame<'_>) {
        let mut bytes = Vec::new();
        frame.put(&mut bytes);
        let (kind, body, rest) = split(&bytes, Sender::Server).unwrap().unwrap();
        assert_eq!(ServerFrame::read(kind, body), Ok(frame));
        assert!(rest.is_empty());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u64, short: u16, text in ".{0,40}", other in ".{0,40}", ok: bool) {
            let (text, bytes) = (text.as_str(), text.as_bytes());
            of_client(ClientFrame::Hello { version: short, user: text, password: ok.then_some(other.as_str()) });
            of_client(ClientFrame::Statement { line: number, text });
            of_client(ClientFrame::LoadBegin);
            of_client(ClientFrame::LoadChunk(bytes));
            of_client(ClientFrame::LoadEnd(if ok { Ok(()) } else { Err(text) }));
            of_client(ClientFrame::Cancel { line: number });
            of_server(ServerFrame::Welcome { version: short, name: text });
            of_server(ServerFrame::Refused { wants_password: ok, why: text });
            of_server(ServerFrame::Report { line: number, text });
            of_server(ServerFrame::Done { line: number, ok });
            of_server(ServerFrame::Bye(text));
            if !bytes.is_empty() {
                of_server(ServerFrame::Rows(bytes));
            }
        }

        #[test]
        fn any_bytes_are_frames_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64), kind: u8) {
            for sender in [Sender::Stranger, Sender::Client, Sender::Server] {
                let _ = split(&bytes, sender);
            }
            for kind in [kind, b'h', b's', b'b', b'd', b'e', b'c', b'W', b'N', b'R', b'E', b'D', b'B'] {
                if let Ok(frame) = ClientFrame::read(kind, &bytes) {
                    let mut again = Vec::new();
                    frame.put(&mut again);
                    prop_assert_eq!(&again[HEADER_BYTES..], &bytes[..]);
                }
                if let Ok(frame) = ServerFrame::read(kind, &bytes) && !matches!(frame, ServerFrame::Rows(b"")) {
                    let mut again = Vec::new();
                    frame.put(&mut again);
                    prop_assert_eq!(&again[HEADER_BYTES..], &bytes[..]);
                }
            }
        }
    }

    #[test]
    fn lengths_are_bounded_by_kind_and_side() {
        let of = |kind: u8, length: u32, sender| {
            let [a, b, c, d] = length.to_be_bytes();
            header([kind, a, b, c, d], sender)
        };
        assert_eq!(of(b'd', 1 << 20, Sender::Client), Ok((b'd', 1 << 20)));
        for (kind, length, sender) in [
            (b'd', (1 << 20) + 1, Sender::Client),
            (b's', u32::MAX, Sender::Client),
            (b'b', 1, Sender::Client),
            (b'h', 8 << 10, Sender::Stranger),
        ] {
            assert!(matches!(of(kind, length, sender), Err(FrameError::TooLong { .. })), "{}", char::from(kind));
        }
        // Nobody says anything before the Hello, and nobody says it twice.
        assert_eq!(of(b's', 9, Sender::Stranger), Err(FrameError::Unknown(b's')));
        assert_eq!(of(b'h', 9, Sender::Client), Err(FrameError::Unknown(b'h')));
        assert_eq!(of(b'D', 9, Sender::Client), Err(FrameError::Unknown(b'D')));
    }

    #[test]
    fn long_texts_are_cut_and_long_results_split() {
        let (long, mut bytes) = ("é".repeat(MOST_REPORT_BYTES), Vec::new());
        ServerFrame::Report { line: 1, text: &long }.put(&mut bytes);
        let (kind, body, _) = split(&bytes, Sender::Server).unwrap().unwrap();
        let ServerFrame::Report { text, .. } = ServerFrame::read(kind, body).unwrap() else { panic!("{kind}") };
        assert_eq!(text.len(), MOST_REPORT_BYTES);
        bytes.clear();
        put_rows(&mut bytes, &vec![b'1'; 2 * MOST_ROWS_BYTES + 1]);
        let (mut rest, mut lengths) = (&bytes[..], Vec::new());
        while let Some((_, body, more)) = split(rest, Sender::Server).unwrap() {
            lengths.push(body.len());
            rest = more;
        }
        assert_eq!(lengths, [MOST_ROWS_BYTES, MOST_ROWS_BYTES, 1]);
    }
}
