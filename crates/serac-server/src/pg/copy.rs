//! COPY from and to the client.

use super::WireError;
use super::connection::{Connection, terminated};
use super::message::{Body, bare, message, put_i16};
use super::wire::SEND_BYTES;
use crate::copy_streams::{Input, Output, Pieces};
use serac_sql::{Parsed, Quotes, SqlError, StatementResult, StreamedCopy};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// Messages that the client may be ahead of the reading.
const AHEAD: usize = 64;

fn begin(out: &mut Vec<u8>, tag: u8, is_binary: bool, columns: usize) {
    message(out, tag, |out| {
        out.push(is_binary.into());
        put_i16(out, columns as i16);
        (0..columns).for_each(|_| put_i16(out, is_binary.into()));
    });
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Runs a COPY whose data the client sends or receives; returns the tag of its end. A COPY from
    /// the client is not committed by itself, but at the end of an implicit block. Until the client
    /// has said that it is done, it may withdraw its data.
    pub(super) async fn copy(&mut self, statement: Parsed, copy: StreamedCopy) -> Result<String, WireError> {
        if copy.is_input {
            self.session.begin_implicit();
        }
        let columns = self.session.copied_columns(&statement).await?;
        let result = if copy.is_input {
            begin(&mut self.wire.out, b'G', copy.is_binary, columns);
            self.wire.flush().await?;
            self.copy_in(statement).await
        } else {
            self.copy_out(statement, copy, columns).await
        };
        match result? {
            StatementResult::Command { tag, .. } => Ok(tag),
            StatementResult::Rows { .. } => unreachable!("a COPY gives no rows as its result"),
        }
    }

    async fn copy_in(&mut self, statement: Parsed) -> Result<StatementResult, WireError> {
        let (sender, pieces) = mpsc::channel(AHEAD);
        self.session.set_waiting_copy_input(Box::new(Input::new(pieces)));
        let Self { wire, session, cancel, activity, .. } = self;
        let mut limits = session.limits();
        let mut ends = activity.activity().ends();
        let mut copied = pin!(session.execute_statement(statement));
        // Data that has ended by a mark may still be withdrawn by the client.
        let (mut done, mut refused) = (None, None);
        loop {
            let is_done = done.is_some();
            let next = async {
                match is_done {
                    true => limits.keep(async { Ok(wire.next().await) }).await?,
                    false => wire.next().await,
                }
            };
            let message = tokio::select! {
                biased;
                _ = ends.wait_for(|ends| *ends) => return Err(terminated()),
                // The reading has ended; after an error nothing more is taken.
                result = &mut copied, if !is_done => {
                    done = Some(result?);
                    continue;
                }
                message = next => message?,
            };
            let piece = match message {
                Some((b'd', piece)) => Ok(piece),
                Some((b'c', _)) => break,
                Some((b'f', body)) => {
                    let reason = Body(&body).string().unwrap_or("the client gives no reason").to_owned();
                    refused = Some(
                        SqlError::new(sqlstate::QUERY_CANCELED, format!("COPY from stdin failed: {reason}")).into(),
                    );
                    Err(io::Error::other(reason))
                }
                Some((b'H' | b'S', _)) => continue,
                Some((other, _)) => {
                    let message = format!("unexpected message type {other} during COPY from stdin");
                    return Err(WireError::fatal(sqlstate::PROTOCOL_VIOLATION, message));
                }
                None => {
                    refused = Some(WireError::Io);
                    Err(io::ErrorKind::ConnectionAborted.into())
                }
            };
            let is_last = piece.is_err();
            if done.is_none() {
                tokio::select! {
                    biased;
                    result = &mut copied => done = Some(result?),
                    _ = sender.send(piece) => {}
                }
            }
            if is_last {
                break;
            }
        }
        drop(sender);
        let result = match done {
            Some(done) => Ok(done),
            None => wire.attend(cancel, copied).await,
        };
        match refused {
            Some(error) => Err(error),
            None => Ok(result?),
        }
    }

    async fn copy_out(
        &mut self,
        statement: Parsed,
        copy: StreamedCopy,
        columns: usize,
    ) -> Result<StatementResult, WireError> {
        let output = Output::default();
        self.session.set_copy_output(Box::new(output.clone()));
        let Self { wire, session, cancel, .. } = self;
        let mut limits = session.limits();
        let mut copied = pin!(session.execute_statement(statement));
        let mut lines = Lines { quotes: copy.quotes, ..Lines::default() };
        let mut begun = false;
        loop {
            let step = poll_fn(|context| match copied.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if output.len() >= SEND_BYTES => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            let ended = wire.attend(cancel, step).await;
            let Pieces { bytes, ends } = output.take();
            if !begun && !matches!(ended, Some(Err(_))) {
                begin(&mut wire.out, b'H', copy.is_binary, columns);
                begun = true;
            }
            let mut put = |piece: &[u8]| message(&mut wire.out, b'd', |out| out.extend_from_slice(piece));
            match copy.quotes {
                Some(_) => lines.split(&bytes, &mut put),
                None => {
                    let mut from = 0;
                    for end in ends {
                        put(&bytes[from..end]);
                        from = end;
                    }
                }
            }
            if let Some(result) = ended {
                let result = result?;
                bare(&mut wire.out, b'c');
                return Ok(result);
            }
            // A client that does not read holds the statement up no longer than its limits allow.
            match limits.keep(async { Ok(wire.flush().await) }).await {
                Ok(flushed) => flushed?,
                Err(limit) => return Err(copied.await.err().unwrap_or(limit).into()),
            }
        }
    }
}

/// Finds the rows of CSV: clients rely on messages being rows.
#[derive(Default)]
struct Lines {
    quotes: Option<Quotes>,
    /// The beginning of an incomplete row.
    begun: Vec<u8>,
}

impl Lines {
    /// Calls `put` with each row that is whole.
    fn split(&mut self, bytes: &[u8], put: &mut impl FnMut(&[u8])) {
        let mut from = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let is_within = self.quotes.as_mut().is_some_and(|quotes| quotes.pass(*byte));
            if *byte == b'\n' && !is_within {
                self.begun.extend_from_slice(&bytes[from..=at]);
                put(&self.begun);
                self.begun.clear();
                from = at + 1;
            }
        }
        self.begun.extend_from_slice(&bytes[from..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_csv_are_found_whatever_the_pieces() {
        let text = b"a,b\n\"x\ny\",\"q\"\"\n\"\n,\n";
        for size in 1..text.len() {
            let mut lines = Lines { quotes: Some(Quotes::new(b'"', b'"')), ..Lines::default() };
            let mut rows = Vec::new();
            text.chunks(size).for_each(|piece| lines.split(piece, &mut |row| rows.push(row.to_vec())));
            assert_eq!(rows, [&b"a,b\n"[..], b"\"x\ny\",\"q\"\"\n\"\n", b",\n"]);
        }
    }
}
