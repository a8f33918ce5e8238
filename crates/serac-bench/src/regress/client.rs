//! A client of the simple-query protocol that keeps the server's answers: columns, rows as text,
//! tags, errors.

use crate::pg_client::{put, server_error, zero_ended};
use crate::setup::text;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub use crate::pg_client::ServerError;

/// A statement may take this long.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// A server that was asked to cancel a statement may take this long to end it.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);
/// Rows that are kept of one result. Further ones are counted.
const MAX_ROWS: usize = 400_000;

/// A row as text; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// The result of one statement of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultSet {
    /// Names and type OIDs; empty for a statement without rows.
    pub columns: Vec<(String, u32)>,
    pub rows: Vec<Row>,
    /// Rows that were not kept.
    pub further_rows: usize,
    pub tag: String,
}

/// The answer of a server to a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub results: Vec<ResultSet>,
    pub error: Option<ServerError>,
}

/// The end of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered(Answer),
    /// The query was cancelled, or its connection was given up.
    TimedOut,
    /// The connection broke.
    Lost(String),
}

impl Outcome {
    pub fn error(&self) -> Option<&ServerError> {
        match self {
            Self::Answered(answer) => answer.error.as_ref(),
            _ => None,
        }
    }

    pub fn succeeded(&self) -> bool {
        matches!(self, Self::Answered(Answer { error: None, .. }))
    }
}

/// A connection.
pub struct Client {
    socket: TcpStream,
    address: SocketAddr,
    input: Vec<u8>,
    /// Process and secret, for cancellation.
    key: Vec<u8>,
    /// The server's `standard_conforming_strings`.
    pub standard_strings: bool,
    /// State of the transaction: `I`, `T` or `E`.
    pub status: u8,
    /// Nothing more can be asked.
    pub broken: bool,
}

fn columns(body: &[u8]) -> Vec<(String, u32)> {
    let (mut columns, mut rest) = (Vec::new(), body.get(2..).unwrap_or_default());
    while !rest.is_empty() {
        let (name, fields) = zero_ended(rest);
        // Table, number of the column, type, size, modifier, format.
        let Some(oid) = fields.get(6..10) else { break };
        columns.push((name, u32::from_be_bytes(oid.try_into().expect("four bytes"))));
        rest = fields.get(18..).unwrap_or_default();
    }
    columns
}

fn row(body: &[u8]) -> Row {
    let (mut row, mut rest) = (Row::new(), body.get(2..).unwrap_or_default());
    while let Some((length, values)) = rest.split_first_chunk::<4>() {
        let value = usize::try_from(i32::from_be_bytes(*length)).ok().and_then(|length| values.get(..length));
        rest = &values[value.map_or(0, <[u8]>::len)..];
        row.push(value.map(|value| String::from_utf8_lossy(value).into_owned()));
    }
    row
}

impl Client {
    /// Connects with parameters such as `user` and `database`.
    pub fn connect(address: SocketAddr, parameters: &[(&str, &str)]) -> Result<Self, String> {
        let mut socket = TcpStream::connect_timeout(&address, STATEMENT_TIMEOUT).map_err(text)?;
        socket.set_nodelay(true).map_err(text)?;
        let mut startup = 196_608i32.to_be_bytes().to_vec();
        for word in parameters.iter().flat_map(|(name, value)| [name, value]) {
            startup.extend_from_slice(word.as_bytes());
            startup.push(0);
        }
        startup.push(0);
        socket.write_all(&(startup.len() as i32 + 4).to_be_bytes()).map_err(text)?;
        socket.write_all(&startup).map_err(text)?;
        let (input, key) = (Vec::new(), Vec::new());
        let mut client = Self { socket, address, input, key, standard_strings: true, status: b'I', broken: false };
        match client.read_answer(&mut || None) {
            Outcome::Answered(Answer { error: None, .. }) => Ok(client),
            Outcome::Answered(Answer { error: Some(error), .. }) => Err(error.message),
            Outcome::TimedOut => Err("the server does not answer".into()),
            Outcome::Lost(why) => Err(why),
        }
    }

    /// Runs a query. `copy_data` gives the rows for each COPY that asks for data; if it returns
    /// `None`, the COPY fails.
    pub fn query(&mut self, sql: &str, copy_data: &mut dyn FnMut() -> Option<String>) -> Outcome {
        let mut out = Vec::new();
        // The protocol cannot represent a zero byte in a query.
        put(&mut out, b'Q', &[sql.replace('\0', "").as_bytes(), b"\0"]);
        match self.socket.write_all(&out) {
            Ok(()) => self.read_answer(copy_data),
            Err(error) => self.lost(error.to_string()),
        }
    }

    fn lost(&mut self, why: String) -> Outcome {
        self.broken = true;
        Outcome::Lost(why)
    }

    /// The next message: its tag and its body.
    fn message(&mut self, deadline: Instant) -> Result<(u8, Vec<u8>), std::io::Error> {
        loop {
            if let Some(length) = self.input.get(1..5) {
                let end = 1 + u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
                if self.input.len() >= end.max(5) {
                    let message = (self.input[0], self.input[5..end.max(5)].to_vec());
                    self.input.drain(..end.max(5));
                    return Ok(message);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut piece = [0; 16_384];
            match self.socket.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend_from_slice(&piece[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self, tag: u8, body: &[&[u8]]) -> std::io::Result<()> {
        let mut out = Vec::new();
        put(&mut out, tag, body);
        self.socket.write_all(&out)
    }

    /// Asks the server, on a connection of its own, to end the statement.
    fn cancel(&self) -> std::io::Result<()> {
        let mut socket = TcpStream::connect_timeout(&self.address, CANCEL_PATIENCE)?;
        let mut request = 16i32.to_be_bytes().to_vec();
        request.extend_from_slice(&80_877_102i32.to_be_bytes());
        request.extend_from_slice(&self.key);
        socket.write_all(&request)
    }

    fn read_answer(&mut self, copy_data: &mut dyn FnMut() -> Option<String>) -> Outcome {
        let (mut deadline, mut cancelled) = (Instant::now() + STATEMENT_TIMEOUT, false);
        let (mut answer, mut current, mut copied) = (Answer::default(), ResultSet::default(), String::new());
        loop {
            let (tag, body) = match self.message(deadline) {
                Ok(message) => message,
                Err(error) if error.kind() == ErrorKind::TimedOut && !cancelled && self.cancel().is_ok() => {
                    (cancelled, deadline) = (true, Instant::now() + CANCEL_PATIENCE);
                    continue;
                }
                Err(error) if cancelled || error.kind() == ErrorKind::TimedOut => {
                    // The late answer would be taken for that of the next query.
                    self.broken = true;
                    return Outcome::TimedOut;
                }
                Err(error) => {
                    let why = answer.error.map_or(error.to_string(), |error| error.message);
                    return self.lost(why);
                }
            };
            match tag {
                b'T' => current.columns = columns(&body),
                b'D' if current.rows.len() < MAX_ROWS => current.rows.push(row(&body)),
                b'D' => current.further_rows += 1,
                b'd' => copied.push_str(&String::from_utf8_lossy(&body)),
                b'c' => {
                    current.rows = copied.lines().take(MAX_ROWS).map(|line| vec![Some(line.to_owned())]).collect();
                    copied.clear();
                }
                b'C' => {
                    current.tag = zero_ended(&body).0;
                    answer.results.push(std::mem::take(&mut current));
                }
                b'E' => answer.error = Some(server_error(&body)),
                b'G' => {
                    let sent = match copy_data() {
                        Some(data) => self.send(b'd', &[data.as_bytes()]).and_then(|()| self.send(b'c', &[])),
                        None => self.send(b'f', &[b"there are no rows\0"]),
                    };
                    if let Err(error) = sent {
                        return self.lost(error.to_string());
                    }
                }
                b'K' => self.key = body,
                b'S' => {
                    let (name, value) = zero_ended(&body);
                    if name == "standard_conforming_strings" {
                        self.standard_strings = value.starts_with(b"on");
                    }
                }
                b'Z' => {
                    self.status = body.first().copied().unwrap_or(b'I');
                    return if cancelled { Outcome::TimedOut } else { Outcome::Answered(answer) };
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_apart() {
        let described = b"\0\x02a\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0b\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
        assert_eq!(columns(described), [("a".into(), 23), ("b".into(), 25)]);
        assert_eq!(row(b"\0\x02\xff\xff\xff\xff\0\0\0\x01x"), [None, Some("x".into())]);
    }
}
