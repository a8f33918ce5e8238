//! Messages of PostgreSQL's protocol, version 3.0: the client's are taken off a buffer, the
//! server's are written to one.
//!
//! A message is a byte that says which, its length as four bytes (which count themselves), and the
//! body. The first message of a connection lacks the first byte. Numbers are big-endian; strings
//! end with a zero byte.

use super::WireError;
use serac_sql::wire::utf8;

/// Longest first message: the client is not identified yet.
const MAX_STARTUP: usize = 10_000;
/// Version 3.0.
const PROTOCOL: i32 = 3 << 16;
const CANCEL_REQUEST: i32 = 80_877_102;
const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;

/// A malformed message.
fn invalid(what: &str) -> WireError {
    WireError::error(sqlstate::PROTOCOL_VIOLATION, format!("invalid message: {what}"))
}

/// The rest of a message's body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body<'a>(pub(super) &'a [u8]);

impl<'a> Body<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or_else(|| invalid("it ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn byte(&mut self) -> Result<u8, WireError> {
        Ok(self.bytes(1)?[0])
    }

    pub(super) fn int16(&mut self) -> Result<i16, WireError> {
        Ok(i16::from_be_bytes(self.bytes(2)?.try_into().expect("two bytes")))
    }

    pub(super) fn int32(&mut self) -> Result<i32, WireError> {
        Ok(i32::from_be_bytes(self.bytes(4)?.try_into().expect("four bytes")))
    }

    /// The number of list items, each of at least `size` bytes.
    pub(super) fn count(&mut self, size: usize) -> Result<usize, WireError> {
        let count = self.int16()? as u16 as usize;
        if count * size > self.0.len() { Err(invalid("it counts more than it holds")) } else { Ok(count) }
    }

    pub(super) fn string(&mut self) -> Result<&'a str, WireError> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or_else(|| invalid("a string does not end"))?;
        let text = self.bytes(end)?;
        self.byte()?;
        Ok(utf8(text)?)
    }

    /// A value with its length; `None` for NULL.
    pub(super) fn value(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        match self.int32()? {
            -1 => Ok(None),
            length => {
                usize::try_from(length).map_err(|_| invalid("a negative length")).and_then(|n| self.bytes(n)).map(Some)
            }
        }
    }

    /// Checks that no bytes are left.
    pub(super) fn end(self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(invalid("it goes on behind its end")) }
    }
}

/// The first message of a connection.
#[derive(Debug)]
pub(super) enum Startup {
    /// Encryption, if the server has it.
    Tls,
    /// Encryption of a kind that the server does not have.
    Gss,
    /// Another connection's statement is to end.
    Cancel { process: i32, secret: i32 },
    /// A session, with the client's wishes.
    Session(Wishes),
}

/// The client's wishes for its session.
#[derive(Debug, PartialEq)]
pub(super) struct Wishes {
    /// Names and values.
    pub(super) parameters: Vec<(String, String)>,
    /// Unknown protocol options, if the client is to be told about them: it speaks a newer version,
    /// or has sent such options.
    pub(super) unknown: Option<Vec<String>>,
}

/// Names of protocol options, which are no options of the session, begin with this.
const PROTOCOL_OPTION: &str = "_pq_.";

/// The length of the first message, once four bytes of it are there.
pub(super) fn startup_length(input: &[u8]) -> Result<Option<usize>, WireError> {
    let Some(head) = input.first_chunk::<4>() else { return Ok(None) };
    match usize::try_from(i32::from_be_bytes(*head)) {
        Ok(length @ 8..=MAX_STARTUP) => Ok(Some(length)),
        _ => Err(WireError::fatal(sqlstate::PROTOCOL_VIOLATION, "invalid length of startup packet")),
    }
}

impl Startup {
    /// Reads the first message, without its length.
    pub(super) fn read(body: &[u8]) -> Result<Self, WireError> {
        let mut body = Body(body);
        match body.int32()? {
            SSL_REQUEST => body.end().map(|()| Self::Tls),
            GSS_REQUEST => body.end().map(|()| Self::Gss),
            CANCEL_REQUEST => {
                let (process, secret) = (body.int32()?, body.int32()?);
                body.end().map(|()| Self::Cancel { process, secret })
            }
            version if version >> 16 == PROTOCOL >> 16 => {
                let (mut parameters, mut unknown) = (Vec::new(), Vec::new());
                while !body.0.is_empty() {
                    let name = body.string()?;
                    if name.is_empty() {
                        let unknown = Some(unknown).filter(|unknown| version > PROTOCOL || !unknown.is_empty());
                        return Ok(Self::Session(Wishes { parameters, unknown }));
                    }
                    let value = body.string()?;
                    if name.starts_with(PROTOCOL_OPTION) {
                        unknown.push(name.to_owned());
                    } else {
                        parameters.push((name.to_owned(), value.to_owned()));
                    }
                }
                Err(invalid("the startup packet does not end"))
            }
            version => {
                let (major, minor) = (version >> 16, version & 0xffff);
                let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0");
                Err(WireError::fatal(sqlstate::FEATURE_NOT_SUPPORTED, message))
            }
        }
    }
}

/// The length of the next message, with its first byte and its length field; `None` if that cannot
/// be seen yet.
pub(super) fn message_length(input: &[u8], limit: usize) -> Result<Option<usize>, WireError> {
    let Some(head) = input.get(1..5) else { return Ok(None) };
    let length = i32::from_be_bytes(head.try_into().expect("four bytes"));
    match usize::try_from(length) {
        Ok(length) if length >= 4 && length <= limit => Ok(Some(length + 1)),
        Ok(length) if length > limit => {
            let message = format!("a message of {length} bytes: the server takes {limit} at most");
            Err(WireError::fatal(sqlstate::PROGRAM_LIMIT_EXCEEDED, message))
        }
        _ => Err(invalid("its length").made_fatal()),
    }
}

/// A message being written; the length is put in when it ends.
pub(super) fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - start) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

pub(super) fn put_string(out: &mut Vec<u8>, text: &str) {
    // A zero byte would end it.
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.push(0);
}
pub(super) fn put_i16(out: &mut Vec<u8>, value: i16) {
    out.extend_from_slice(&value.to_be_bytes());
}
pub(super) fn put_i32(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// A message without a body.
pub(super) fn bare(out: &mut Vec<u8>, tag: u8) {
    message(out, tag, |_| {});
}
/// The end of a statement. Use [`super::wire::Wire::complete`], which sends notices before.
pub(super) fn command_complete(out: &mut Vec<u8>, tag: &str) {
    message(out, b'C', |out| put_string(out, tag));
}
/// The version that is spoken here, and the client's options that are not.
pub(super) fn negotiate(out: &mut Vec<u8>, unknown: &[String]) {
    message(out, b'v', |out| {
        put_i32(out, PROTOCOL);
        put_i32(out, unknown.len() as i32);
        unknown.iter().for_each(|option| put_string(out, option));
    });
}
pub(super) fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    message(out, b'S', |out| {
        put_string(out, name);
        put_string(out, value);
    });
}
/// An answer to the client's wish to log in.
pub(super) fn authentication(out: &mut Vec<u8>, kind: i32, data: &[u8]) {
    message(out, b'R', |out| {
        put_i32(out, kind);
        out.extend_from_slice(data);
    });
}
/// An error, or a notice.
pub(super) fn report(out: &mut Vec<u8>, tag: u8, fields: &[(u8, &str)]) {
    message(out, tag, |out| {
        for (field, text) in fields {
            out.push(*field);
            put_string(out, text);
        }
        out.push(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_startup_packet_is_read() {
        let mut body = 196_608i32.to_be_bytes().to_vec();
        body.extend_from_slice(b"user\0ada\0database\0db\0\0");
        match Startup::read(&body).unwrap() {
            Startup::Session(wishes) => {
                let parameters = vec![("user".into(), "ada".into()), ("database".into(), "db".into())];
                assert_eq!(wishes, Wishes { parameters, unknown: None });
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            Startup::read(&131_072i32.to_be_bytes()),
            Err(WireError::Sql { error, fatal: true }) if error.message.contains("2.0")
        ));
    }

    #[test]
    fn requests_before_a_session_have_one_length() {
        let request = |code: i32, rest: &[i32]| {
            let numbers = [&[code], rest].concat();
            Startup::read(&numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>())
        };
        assert!(matches!(request(SSL_REQUEST, &[]), Ok(Startup::Tls)));
        assert!(matches!(request(GSS_REQUEST, &[]), Ok(Startup::Gss)));
        assert!(matches!(request(CANCEL_REQUEST, &[1, 2]), Ok(Startup::Cancel { process: 1, secret: 2 })));
        for (code, rest) in
            [(SSL_REQUEST, &[1][..]), (GSS_REQUEST, &[1, 2]), (CANCEL_REQUEST, &[1]), (CANCEL_REQUEST, &[1, 2, 3])]
        {
            assert!(request(code, rest).is_err(), "{code} {rest:?}");
        }
    }

    #[test]
    fn lengths_are_checked() {
        assert!(matches!(message_length(b"Q\0\0", 100), Ok(None)));
        assert!(matches!(message_length(b"Q\0\0\0\x08", 100), Ok(Some(9))));
        assert!(message_length(b"Q\0\0\0\x03", 100).is_err());
        assert!(message_length(b"Q\0\0\0\x65", 100).is_err());
        assert!(message_length(b"Q\xff\xff\xff\xff", 100).is_err());
        assert!(startup_length(&[0, 1, 0, 0]).is_err());
        assert!(startup_length(&[0, 0, 0, 7]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Startup::read(&bytes);
            let mut body = Body(&bytes);
            while let (Ok(_), Ok(_)) = (body.value(), body.string()) {}
            let _ = message_length(&bytes, 100);
        }
    }
}
