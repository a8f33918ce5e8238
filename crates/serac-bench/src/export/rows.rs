//! The result of a query as PostgreSQL's server sends it: a DataRow message per row, every value as
//! text.
//!
//! ```text
//! 'D', length i32 (from here on), columns i16, (length i32 or −1 for NULL, bytes)*          'C', length i32, tag: the end
//! ```
//!
//! The client makes columns of the values' types again. Numbers are big-endian, as in the protocol.

use crate::setup::text;
use arrow::array::{Array, ArrayRef, RecordBatch, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::io::{Read, Write};
use std::sync::Arc;

/// Bytes that the server collects before it sends them, and that a client reads at once.
pub const BUFFER_BYTES: usize = 1 << 20;
/// The rows of a chunk, of which the client makes columns.
const ROWS_PER_CHUNK: usize = 65_536;
/// A message's type and length.
const HEAD_BYTES: usize = 5;
const END: &[u8] = b"C\x00\x00\x00\x0bSELECT\0";

/// Sends all rows.
pub fn send(
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
    socket: &mut impl Write,
) -> Result<(), String> {
    let mut out = Vec::with_capacity(BUFFER_BYTES + 4096);
    for batch in batches {
        let batch = batch.map_err(text)?;
        let columns = batch.columns();
        let options = FormatOptions::default();
        let formatters: Vec<_> =
            columns.iter().map(|c| ArrayFormatter::try_new(c, &options)).collect::<Result<_, _>>().map_err(text)?;
        for row in 0..batch.num_rows() {
            let start = out.len();
            out.extend_from_slice(b"D\0\0\0\0");
            out.extend_from_slice(&(columns.len() as i16).to_be_bytes());
            for (column, formatter) in columns.iter().zip(&formatters) {
                let at = out.len();
                out.extend_from_slice(&(-1i32).to_be_bytes());
                if column.is_valid(row) {
                    write!(out, "{}", formatter.value(row)).map_err(text)?;
                    let len = (out.len() - at - 4) as i32;
                    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
                }
            }
            let len = (out.len() - start - 1) as i32;
            out[start + 1..start + 5].copy_from_slice(&len.to_be_bytes());
            if out.len() >= BUFFER_BYTES {
                socket.write_all(&out).map_err(text)?;
                out.clear();
            }
        }
    }
    out.extend_from_slice(END);
    socket.write_all(&out).map_err(text)
}

fn i32_at(bytes: &[u8], at: usize) -> Result<i32, String> {
    let bytes = bytes.get(at..at + 4).ok_or("a message ends too early")?;
    Ok(i32::from_be_bytes(bytes.try_into().expect("four bytes")))
}

/// Adds the values of a DataRow, whose count is known to be right.
fn append(row: &[u8], columns: &mut [StringBuilder]) -> Result<(), String> {
    let mut at = 2;
    for column in columns {
        let len = i32_at(row, at)?;
        at += 4;
        if len < 0 {
            column.append_null();
            continue;
        }
        let value = row.get(at..at + len as usize).ok_or("a value ends too early")?;
        column.append_value(std::str::from_utf8(value).map_err(text)?);
        at += len as usize;
    }
    Ok(())
}

fn finish(schema: &SchemaRef, columns: &mut [StringBuilder]) -> Result<Vec<ArrayRef>, String> {
    let column = |(column, field): (&mut StringBuilder, &Arc<arrow::datatypes::Field>)| {
        let texts: ArrayRef = Arc::new(column.finish());
        match field.data_type() {
            DataType::Utf8View => Ok(texts),
            data_type => cast(&texts, data_type).map_err(text),
        }
    };
    columns.iter_mut().zip(schema.fields()).map(column).collect()
}

/// Reads a message. Returns its type, and puts its body into `body`.
pub fn read_message(socket: &mut impl Read, body: &mut Vec<u8>) -> Result<u8, String> {
    let mut head = [0; HEAD_BYTES];
    socket.read_exact(&mut head).map_err(text)?;
    let len = usize::try_from(i32_at(&head, 1)? - 4).map_err(text)?;
    body.resize(len, 0);
    socket.read_exact(body).map_err(text)?;
    Ok(head[0])
}

/// The columns of all rows, texts as Utf8, and the bytes received, up to the message that ends the
/// rows. The schema is the server's. The socket should be buffered.
pub fn receive(schema: &SchemaRef, socket: &mut impl Read) -> Result<(Vec<Vec<ArrayRef>>, usize), String> {
    let mut columns: Vec<_> = schema.fields().iter().map(|_| StringBuilder::new()).collect();
    let (mut chunks, mut rows, mut total, mut message) = (Vec::new(), 0, 0, Vec::new());
    loop {
        let kind = read_message(socket, &mut message)?;
        total += HEAD_BYTES + message.len();
        match kind {
            b'D' => append(&message, &mut columns)?,
            b'C' => {
                if rows > 0 {
                    chunks.push(finish(schema, &mut columns)?);
                }
                return Ok((chunks, total));
            }
            b'E' => return Err(String::from_utf8_lossy(&message).into_owned()),
            other => return Err(format!("a message of type {other}")),
        }
        rows += 1;
        if rows == ROWS_PER_CHUNK {
            chunks.push(finish(schema, &mut columns)?);
            rows = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::tests::arrives;

    #[test]
    fn what_is_sent_arrives() {
        arrives(
            |batches, wire| send(batches.into_iter().map(Ok), wire).unwrap(),
            |schema, mut wire| receive(schema, &mut wire),
        );
    }
}
