//! A client of PostgreSQL's protocol that sends the given messages.

use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A message: its first byte, and its body.
pub(crate) type Message = (u8, Vec<u8>);

pub(crate) fn framed((tag, body): &Message) -> Vec<u8> {
    let mut message = vec![*tag];
    message.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// The first message of a session: a version, and names with values.
pub(crate) fn startup(version: i32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    body.push(0);
    let mut message = (body.len() as i32 + 4).to_be_bytes().to_vec();
    message.extend_from_slice(&body);
    message
}

pub(crate) fn query(sql: &str) -> Message {
    (b'Q', format!("{sql}\0").into_bytes())
}
pub(crate) fn parse(name: &str, sql: &str) -> Message {
    (b'P', format!("{name}\0{sql}\0\0\0").into_bytes())
}
/// Parameters as texts.
pub(crate) fn bind(portal: &str, statement: &str, values: &[&str]) -> Message {
    let mut body = format!("{portal}\0{statement}\0\0\0").into_bytes();
    body.extend_from_slice(&(values.len() as i16).to_be_bytes());
    for value in values {
        body.extend_from_slice(&(value.len() as i32).to_be_bytes());
        body.extend_from_slice(value.as_bytes());
    }
    body.extend_from_slice(&[0, 0]);
    (b'B', body)
}
/// A parameter in binary form.
pub(crate) fn bind_binary(value: &[u8]) -> Message {
    let mut body = b"\0\0\0\x01\0\x01\0\x01".to_vec();
    body.extend_from_slice(&(value.len() as i32).to_be_bytes());
    body.extend_from_slice(value);
    body.extend_from_slice(&[0, 0]);
    (b'B', body)
}
pub(crate) fn describe(kind: u8, name: &str) -> Message {
    (b'D', [&[kind][..], name.as_bytes(), b"\0"].concat())
}
pub(crate) fn execute(portal: &str, rows: i32) -> Message {
    (b'E', [portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat())
}
pub(crate) fn sync() -> Message {
    (b'S', Vec::new())
}

/// A field of an error.
pub(crate) fn field(body: &[u8], kind: u8) -> Option<String> {
    let fields = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&kind))?;
    Some(String::from_utf8_lossy(&fields[1..]).into_owned())
}

/// The answers, one word for each message: tags, errors' SQLSTATEs, and the text values of rows.
pub(crate) fn told(messages: &[Message]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
    let word = |(tag, body): &Message| match tag {
        b'E' => field(body, b'C').unwrap(),
        b'C' => text(body),
        b'S' => text(body).replace('\0', "="),
        b'D' => {
            let (mut rest, mut values) = (&body[2..], Vec::new());
            while let Some((length, more)) = rest.split_first_chunk::<4>() {
                let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
                values.push(text(&more[..length]));
                rest = &more[length..];
            }
            values.join("|")
        }
        b'Z' => format!("Z{}", char::from(body[0])),
        tag => char::from(*tag).to_string(),
    };
    messages.iter().map(word).collect()
}

pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket, input: Vec::new() }
    }

    /// Connects as the bootstrap role, and waits until it may begin.
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let mut client = Self::new(TcpStream::connect(address).await.unwrap());
        client.raw(&startup(196_608, &[("user", "serac")])).await;
        let greeting = client.until(b'Z').await;
        assert_eq!(greeting.last().map(|message| message.0), Some(b'Z'), "{greeting:?}");
        client
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let reading = async {
            loop {
                if let Some(head) = self.input.first_chunk::<5>() {
                    let length = i32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
                    if self.input.len() > length {
                        let rest = self.input.split_off(length + 1);
                        let message = std::mem::replace(&mut self.input, rest);
                        return Some((message[0], message[5..].to_vec()));
                    }
                }
                match self.socket.read_buf(&mut self.input).await {
                    Ok(1..) => {}
                    _ => return None,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reading).await.expect("the server answers")
    }

    /// All messages up to one of this kind, or the end.
    pub(crate) async fn until(&mut self, tag: u8) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
            if messages.last().unwrap().0 == tag {
                break;
            }
        }
        messages
    }

    /// Sends messages together; returns the answers up to ReadyForQuery.
    pub(crate) async fn exchange(&mut self, messages: &[Message]) -> Vec<Message> {
        self.raw(&messages.iter().flat_map(framed).collect::<Vec<_>>()).await;
        self.until(b'Z').await
    }

    pub(crate) async fn told(&mut self, messages: &[Message]) -> Vec<String> {
        told(&self.exchange(messages).await)
    }

    pub(crate) async fn run(&mut self, sql: &str) -> Vec<String> {
        self.told(&[query(sql)]).await
    }
}
