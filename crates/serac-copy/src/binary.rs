//! COPY's binary format: a header, per row the number of columns and each value with its length,
//! and a trailer.

use super::rows::{BATCH_ROWS, MAX_LINE};
use crate::arrival::CopyInput;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::Schema;
use serac_engine::values::{OwnedValue, array_of, value_at};
use serac_storage::{ColumnType, Value};
use serac_values::wire::{column_of, field_type, of_binary, width, write_binary, write_blanks};
use serac_values::{Result, SqlError};
use std::io::{BufReader, ErrorKind, Read, Write};

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Longest value, in bytes.
const MAX_VALUE: usize = MAX_LINE;

/// Reads batches of values of the given types.
pub(super) struct BinaryReader<R> {
    input: BufReader<R>,
    types: Vec<ColumnType>,
    started: bool,
    ended: bool,
}

fn malformed(what: &str) -> SqlError {
    SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, format!("invalid COPY file: {what}"))
}

/// Whether bytes begin with a whole row, or with bytes that are no row.
fn has_row(mut bytes: &[u8]) -> bool {
    fn split<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
        let (head, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(*head)
    }
    let Some(count) = split(&mut bytes).map(i16::from_be_bytes) else { return false };
    for _ in 0..count {
        let Some(length) = split(&mut bytes).map(i32::from_be_bytes) else { return false };
        let Ok(length) = usize::try_from(length) else { continue };
        let Some(rest) = bytes.get(length..) else { return false };
        bytes = rest;
    }
    true
}

impl<R: CopyInput> BinaryReader<R> {
    pub(super) fn new(input: BufReader<R>, types: Vec<ColumnType>) -> Self {
        Self { input, types, started: false, ended: false }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => malformed("it ends too early"),
            _ => SqlError::new(sqlstate::IO_ERROR, format!("could not read: {error}")),
        })?;
        Ok(bytes)
    }

    /// Reads until the buffer is full or the input ends; returns the number of bytes.
    fn read_up_to(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(SqlError::new(sqlstate::IO_ERROR, format!("could not read: {error}"))),
            }
        }
        Ok(filled)
    }

    /// The number of a row's fields, -1 for the trailer. `None` at the end of the input, which
    /// needs no trailer.
    fn field_count(&mut self) -> Result<Option<i16>> {
        let mut bytes = [0; 2];
        let read = self.read_up_to(&mut bytes)?;
        Ok((read == bytes.len()).then(|| i16::from_be_bytes(bytes)))
    }

    fn value(&mut self, bytes: &mut Vec<u8>, length: usize) -> Result<()> {
        bytes.clear();
        let read = (&mut self.input).take(length as u64).read_to_end(bytes);
        match read {
            Ok(read) if read == length => Ok(()),
            Ok(_) => Err(malformed("it ends too early")),
            Err(error) => Err(SqlError::new(sqlstate::IO_ERROR, format!("could not read: {error}"))),
        }
    }

    fn start(&mut self) -> Result<()> {
        if self.bytes::<11>()? != *SIGNATURE {
            return Err(malformed("it does not begin with the signature of COPY's binary format"));
        }
        let flags = u32::from_be_bytes(self.bytes()?);
        if flags & 0xffff_0000 != 0 {
            return Err(malformed("flags that are not known"));
        }
        let extension = u32::from_be_bytes(self.bytes()?) as usize;
        if extension > MAX_VALUE {
            return Err(malformed("the length of its header"));
        }
        self.value(&mut Vec::new(), extension)
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        if !std::mem::replace(&mut self.started, true) {
            self.start()?;
        }
        let mut columns: Vec<Vec<OwnedValue>> = self.types.iter().map(|_| Vec::new()).collect();
        let (mut bytes, mut rows) = (Vec::new(), 0);
        while rows < BATCH_ROWS && !self.ended {
            if rows > 0 && !has_row(self.input.buffer()) && !self.input.get_mut().comes_soon() {
                break;
            }
            let count = self.field_count()?;
            let Some(count) = count.filter(|count| *count != -1) else {
                self.ended = true;
                if count.is_some() && self.read_up_to(&mut [0])? > 0 {
                    return Err(SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, "received copy data after EOF marker"));
                }
                break;
            };
            if usize::try_from(count).ok() != Some(self.types.len()) {
                let wanted = self.types.len();
                return Err(SqlError::new(
                    sqlstate::BAD_COPY_FILE_FORMAT,
                    format!("row field count is {count}, expected {wanted}"),
                ));
            }
            for (i, column) in columns.iter_mut().enumerate() {
                let length = i32::from_be_bytes(self.bytes()?);
                let value = match usize::try_from(length) {
                    _ if length == -1 => OwnedValue::Fixed(Value::Null),
                    Ok(length) if length <= MAX_VALUE => {
                        self.value(&mut bytes, length)?;
                        of_binary(&bytes, self.types[i])?
                    }
                    Ok(_) => {
                        let message = format!("a value has more than {} MiB", MAX_VALUE >> 20);
                        return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
                    }
                    Err(_) => return Err(malformed("the length of a value")),
                };
                column.push(value);
            }
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let columns = columns.iter().zip(&self.types).enumerate();
        let columns = columns.map(|(i, (values, column_type))| (format!("c{i}"), array_of(values, *column_type), true));
        Ok(Some(RecordBatch::try_from_iter_with_nullable(columns)?))
    }
}

impl<R: CopyInput> Iterator for BinaryReader<R> {
    type Item = Result<RecordBatch>;
    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}

/// Writes batches, each row in one piece. The header is in the same piece as the first row or the
/// trailer, as some readers expect.
pub(super) struct BinaryWriter<W> {
    output: W,
    header: Vec<u8>,
    /// By column, the number of its type.
    types: Vec<u32>,
    /// By column, the number of characters that a CHAR(n) shows.
    widths: Vec<Option<usize>>,
}

impl<W: Write> BinaryWriter<W> {
    pub(super) fn new(output: W, schema: &Schema) -> Self {
        let header = [&SIGNATURE[..], &[0; 8]].concat();
        let types = schema.fields().iter().map(|field| field_type(field).oid).collect();
        let widths = schema.fields().iter().map(|field| width(field)).collect();
        Self { output, header, types, widths }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.output
            .write_all(bytes)
            .map_err(|error| SqlError::new(sqlstate::IO_ERROR, format!("could not write: {error}")))
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let sent = |(array, told): (&ArrayRef, &u32)| column_of(array, true, *told);
        let columns = batch.columns().iter().zip(&self.types).map(sent).collect::<Result<Vec<_>, _>>()?;
        let mut row_bytes = Vec::new();
        for row in 0..batch.num_rows() {
            row_bytes.clear();
            row_bytes.append(&mut self.header);
            row_bytes.extend_from_slice(&(columns.len() as i16).to_be_bytes());
            for ((column, column_type), width) in columns.iter().zip(&self.widths) {
                if column.is_null(row) {
                    row_bytes.extend_from_slice(&(-1i32).to_be_bytes());
                    continue;
                }
                let start = row_bytes.len();
                row_bytes.extend_from_slice(&[0; 4]);
                let value = value_at(column, row, *column_type);
                write_binary(&mut row_bytes, value, *column_type);
                write_blanks(&mut row_bytes, value, *width);
                let length = (row_bytes.len() - start - 4) as i32;
                row_bytes[start..start + 4].copy_from_slice(&length.to_be_bytes());
            }
            self.put(&row_bytes)?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<W> {
        let mut end = std::mem::take(&mut self.header);
        end.extend_from_slice(&(-1i16).to_be_bytes());
        self.put(&end)?;
        Ok(self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::Int32Array;
    use datafusion::common::utils::SingleRowListArrayBuilder;
    use std::sync::Arc;

    fn header() -> Vec<u8> {
        [&SIGNATURE[..], &[0; 8]].concat()
    }

    /// How many rows of one INTEGER there are behind the header.
    fn rows(bytes: &[u8]) -> Result<usize> {
        let input = [&header()[..], bytes].concat();
        let batches =
            BinaryReader::new(BufReader::new(&input[..]), vec![ColumnType::Int32]).collect::<Result<Vec<_>>>()?;
        Ok(batches.iter().map(RecordBatch::num_rows).sum())
    }

    #[test]
    fn the_trailer_may_be_missing() {
        let row = [0, 1, 0, 0, 0, 4, 0, 0, 0, 7];
        let of = |bytes: &[&[u8]]| rows(&bytes.concat()).map_err(|error| error.sqlstate);
        assert_eq!(of(&[]), Ok(0));
        assert_eq!(of(&[&row, &row]), Ok(2));
        assert_eq!(of(&[&row, &[0xff, 0xff]]), Ok(1));
        assert_eq!(of(&[&row, &[0xff, 0xff], &row]), Err(sqlstate::BAD_COPY_FILE_FORMAT));
        assert_eq!(of(&[&row, &row[..5]]), Err(sqlstate::BAD_COPY_FILE_FORMAT));
        assert_eq!(of(&[&row, &row[..9]]), Err(sqlstate::BAD_COPY_FILE_FORMAT));
    }

    #[test]
    fn arrays_are_written_in_binary_form() {
        let list = SingleRowListArrayBuilder::new(Arc::new(Int32Array::from(vec![7]))).build_list_scalar();
        let batch = RecordBatch::try_from_iter([("a", list.to_array().unwrap())]).unwrap();
        let mut writer = BinaryWriter::new(Vec::new(), &batch.schema());
        writer.write(&batch).unwrap();
        let written = writer.finish().unwrap();
        let numbers = [28, 1, 0, 23, 1, 1, 4, 7].iter().flat_map(|number: &i32| number.to_be_bytes());
        let wanted = [header(), vec![0, 1], numbers.collect(), vec![0xff, 0xff]].concat();
        assert_eq!(written, wanted);
    }
}
