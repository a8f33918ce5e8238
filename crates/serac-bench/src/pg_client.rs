//! PostgreSQL's protocol for load on a server: messages, and a client that runs prepared statements
//! and drops their rows.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer may take this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Appends a message whose body has several parts.
pub fn put(out: &mut Vec<u8>, tag: u8, body: &[&[u8]]) {
    let length: usize = body.iter().map(|part| part.len()).sum();
    out.push(tag);
    out.extend_from_slice(&(length as i32 + 4).to_be_bytes());
    body.iter().for_each(|part| out.extend_from_slice(part));
}

/// An error of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    pub code: String,
    pub message: String,
}

/// A text up to its zero byte, and the bytes behind it.
pub fn zero_ended(body: &[u8]) -> (String, &[u8]) {
    let length = body.iter().position(|&byte| byte == 0).unwrap_or(body.len());
    (String::from_utf8_lossy(&body[..length]).into_owned(), body.get(length + 1..).unwrap_or_default())
}

/// The error in the body of an ErrorResponse.
pub fn server_error(mut body: &[u8]) -> ServerError {
    let (mut code, mut message) = (String::new(), String::new());
    while let Some((&field, rest)) = body.split_first().filter(|(field, _)| **field != 0) {
        let (value, rest) = zero_ended(rest);
        match field {
            b'C' => code = value,
            b'M' => message = value,
            _ => {}
        }
        body = rest;
    }
    ServerError { code, message }
}

/// The reason why a request failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The server refuses the request, and waits for the next one.
    Refused(ServerError),
    /// The connection broke.
    Lost(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(ServerError { code, message }) => format!("{message} ({code})"),
            Failure::Lost(why) => why,
        }
    }
}

/// A client that waits for each answer.
pub struct Client {
    socket: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl Client {
    pub fn new(address: &str) -> Result<Self, Failure> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut startup = 196_608i32.to_be_bytes().to_vec();
        startup.extend_from_slice(b"user\0bench\0\0");
        socket.write_all(&(startup.len() as i32 + 4).to_be_bytes())?;
        socket.write_all(&startup)?;
        let mut client = Self { socket, out: Vec::new(), input: Vec::new() };
        client.ready()?;
        Ok(client)
    }

    /// Sends the buffered messages, and reads up to the message that the server is ready.
    fn ready(&mut self) -> Result<(), Failure> {
        self.socket.write_all(&self.out)?;
        self.out.clear();
        let (mut at, mut refusal) = (0, None);
        loop {
            while let Some(length) = self.input.get(at + 1..at + 5) {
                let length = i32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
                let Some(body) = self.input.get(at + 5..at + 1 + length) else { break };
                match self.input[at] {
                    b'E' => refusal = Some(Failure::Refused(server_error(body))),
                    b'Z' => {
                        self.input.clear();
                        return refusal.map_or(Ok(()), Err);
                    }
                    _ => {}
                }
                at += 1 + length;
            }
            let mut piece = [0; 8192];
            match self.socket.read(&mut piece)? {
                // A server that ends a connection says why.
                0 => return Err(refusal.unwrap_or_else(|| Failure::Lost("the connection was closed".into()))),
                count => self.input.extend_from_slice(&piece[..count]),
            }
        }
    }

    pub fn simple(&mut self, sql: &str) -> Result<(), Failure> {
        put(&mut self.out, b'Q', &[sql.as_bytes(), b"\0"]);
        self.ready()
    }

    pub fn prepare(&mut self, name: &str, sql: &str) -> Result<(), Failure> {
        put(&mut self.out, b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"]);
        put(&mut self.out, b'S', &[]);
        self.ready()
    }

    /// Runs a prepared statement whose parameters are numbers.
    pub fn execute(&mut self, name: &str, parameters: &[i64]) -> Result<(), Failure> {
        let mut values = (parameters.len() as i16).to_be_bytes().to_vec();
        for parameter in parameters {
            let parameter = parameter.to_string();
            values.extend_from_slice(&(parameter.len() as i32).to_be_bytes());
            values.extend_from_slice(parameter.as_bytes());
        }
        put(&mut self.out, b'B', &[b"\0", name.as_bytes(), b"\0\0\0", &values, b"\0\0"]);
        put(&mut self.out, b'E', &[b"\0\0\0\0\0"]);
        put(&mut self.out, b'S', &[]);
        self.ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn errors_are_taken_apart() {
        let error = server_error(b"SERROR\0C42P01\0Mno table\0\0");
        assert_eq!(error, ServerError { code: sqlstate::UNDEFINED_TABLE.into(), message: "no table".into() });
    }

    #[test]
    fn a_client_goes_on_after_a_refusal() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            for answer in [&b"Z\0\0\0\x05I"[..], b"E\0\0\0\x0cC40001\0\0Z\0\0\0\x05E", b"Z\0\0\0\x05I"] {
                assert!(socket.read(&mut request).unwrap() > 0);
                socket.write_all(answer).unwrap();
            }
        });
        let mut client = Client::new(&address).unwrap();
        let Err(Failure::Refused(error)) = client.execute("s", &[1, -2]) else { panic!("it is refused") };
        assert_eq!(error.code, "40001");
        client.simple("ROLLBACK").unwrap();
        server.join().unwrap();
    }
}
