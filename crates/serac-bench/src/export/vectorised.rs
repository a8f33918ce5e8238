//! The wire protocol of Raasveldt and Mühleisen, "Don't Hold My Data Hostage" (PVLDB 10, 2017;
//! reference \[46\] of the Mainlining paper): the rows in chunks, and in a chunk column after
//! column.
//!
//! ```text
//! chunk   rows u32, bytes u32 (of the columns), column*            rows 0: the end
//! column  nulls u8; if 1, a bitmask of the rows that have a value; the values
//! values  of a fixed width: as they are, little-endian; texts: each ended by a zero byte
//! ```
//!
//! Nothing is compressed, as the authors advise for a client on the same machine. Both ends know
//! the schema. The server does the work that is necessary by the authors' measurements of MonetDB
//! and PostgreSQL: it writes every value into the chunk. The client makes columns of the chunk.

use crate::setup::text;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, SchemaRef};
use std::ffi::CStr;
use std::io::{Read, Write};
use std::sync::Arc;

const END: [u8; 8] = [0; 8];

fn unsupported(data_type: &DataType) -> String {
    format!("the vectorised protocol has no {data_type}")
}

fn encode_column(array: &ArrayRef, out: &mut Vec<u8>) -> Result<(), String> {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    out.push(nulls.is_some().into());
    if let Some(nulls) = nulls {
        out.extend_from_slice(nulls.inner().sliced().as_slice());
    }
    if let Some(texts) = array.as_string_view_opt() {
        for i in 0..texts.len() {
            if texts.is_valid(i) {
                out.extend_from_slice(texts.value(i).as_bytes());
            }
            out.push(0);
        }
        return Ok(());
    }
    let width = array.data_type().primitive_width().ok_or_else(|| unsupported(array.data_type()))?;
    let data = array.to_data();
    out.extend_from_slice(&data.buffers()[0][data.offset() * width..(data.offset() + data.len()) * width]);
    Ok(())
}

/// Sends all batches, one chunk for each. Texts are views, and hold no zero byte.
pub fn send(
    batches: impl Iterator<Item = Result<RecordBatch, arrow::error::ArrowError>>,
    socket: &mut impl Write,
) -> Result<(), String> {
    let mut chunk = Vec::new();
    for batch in batches {
        let batch = batch.map_err(text)?;
        chunk.clear();
        chunk.extend_from_slice(&END);
        batch.columns().iter().try_for_each(|column| encode_column(column, &mut chunk))?;
        let bytes = u32::try_from(chunk.len() - END.len()).map_err(text)?;
        chunk[..4].copy_from_slice(&(batch.num_rows() as u32).to_le_bytes());
        chunk[4..8].copy_from_slice(&bytes.to_le_bytes());
        socket.write_all(&chunk).map_err(text)?;
    }
    socket.write_all(&END).map_err(text)
}

/// Takes the first `bytes` bytes off a chunk.
fn take<'a>(chunk: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], String> {
    let (taken, rest) = chunk.split_at_checked(bytes).ok_or("a chunk ends too early")?;
    *chunk = rest;
    Ok(taken)
}

fn decode_texts(chunk: &mut &[u8], rows: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef, String> {
    let mut offsets = Vec::with_capacity(rows + 1);
    let mut bytes = Vec::with_capacity(8 * rows);
    offsets.push(0);
    for _ in 0..rows {
        let value = CStr::from_bytes_until_nul(chunk).map_err(text)?.to_bytes();
        *chunk = &chunk[value.len() + 1..];
        bytes.extend_from_slice(value);
        offsets.push(bytes.len() as i32);
    }
    let array = StringArray::try_new(OffsetBuffer::new(offsets.into()), bytes.into(), nulls);
    Ok(Arc::new(array.map_err(text)?))
}

fn decode_column(data_type: &DataType, rows: usize, chunk: &mut &[u8]) -> Result<ArrayRef, String> {
    let nulls = match take(chunk, 1)?[0] {
        0 => None,
        _ => Some(NullBuffer::new(BooleanBuffer::new(Buffer::from(take(chunk, rows.div_ceil(8))?), 0, rows))),
    };
    if *data_type == DataType::Utf8View {
        return decode_texts(chunk, rows, nulls);
    }
    let width = data_type.primitive_width().ok_or_else(|| unsupported(data_type))?;
    let data = arrow::array::ArrayData::builder(data_type.clone())
        .len(rows)
        .nulls(nulls)
        .add_buffer(Buffer::from(take(chunk, rows * width)?));
    Ok(make_array(data.build().map_err(text)?))
}

/// The columns of all chunks, texts as Utf8, and the bytes received. The schema is the server's.
pub fn receive(schema: &SchemaRef, socket: &mut impl Read) -> Result<(Vec<Vec<ArrayRef>>, usize), String> {
    let (mut chunks, mut buffer, mut total) = (Vec::new(), Vec::new(), 0);
    loop {
        let mut head = END;
        socket.read_exact(&mut head).map_err(text)?;
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")) as usize;
        let (rows, bytes) = (word(0), word(4));
        total += END.len() + bytes;
        if rows == 0 {
            return Ok((chunks, total));
        }
        buffer.resize(bytes, 0);
        socket.read_exact(&mut buffer).map_err(text)?;
        let mut chunk = buffer.as_slice();
        let columns = schema.fields().iter().map(|field| decode_column(field.data_type(), rows, &mut chunk));
        chunks.push(columns.collect::<Result<Vec<_>, _>>()?);
        if !chunk.is_empty() {
            return Err(format!("a chunk has {} bytes too many", chunk.len()));
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
