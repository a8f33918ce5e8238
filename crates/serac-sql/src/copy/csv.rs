//! COPY's CSV format, for reading: texts, with the line on which each row begins.

use super::options::Options;
use super::source::{BATCH_ROWS, MAX_LINE, Rows, row_too_long};
use crate::error::{Result, SqlError};
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringViewBuilder};
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

/// Reads batches of texts.
pub(super) struct CsvReader<R> {
    input: R,
    core: Reader,
    columns: usize,
    null: Vec<u8>,
    /// Whether the first row has names.
    header: bool,
    /// The present row: the bytes of all fields, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// An error in a line.
pub(super) fn in_line(sqlstate: &'static str, what: impl Into<String>, line: u64) -> SqlError {
    SqlError { detail: Some(format!("line {line}")), ..SqlError::new(sqlstate, what) }
}

impl<R: BufRead> CsvReader<R> {
    pub(super) fn new(input: R, options: &Options, columns: usize) -> Self {
        let core = ReaderBuilder::new().delimiter(options.delimiter).quote(options.quote).build();
        let null = options.null.clone().into_bytes();
        Self { input, core, columns, null, header: options.header, bytes: vec![0; 4096], ends: vec![0; columns + 1] }
    }

    /// Reads a row: how many fields it has, and the line on which it begins. None behind the last.
    fn read_row(&mut self) -> Result<Option<(usize, u64)>> {
        let (mut length, mut fields, mut last) = (0, 0, 0);
        loop {
            let input = self.input.fill_buf();
            let input = input.map_err(|error| SqlError::new("58030", format!("could not read: {error}")))?;
            // The parser leaves a mark of the byte order out, and takes nothing behind it for the end.
            if input == "\u{feff}".as_bytes() && self.core.line() == 1 && length == 0 && fields == 0 {
                self.input.consume("\u{feff}".len());
                continue;
            }
            let output = (&mut self.bytes[length..], &mut self.ends[fields..]);
            let (result, taken, written, ended) = self.core.read_record(input, output.0, output.1);
            last = input[..taken].last().copied().unwrap_or(last);
            self.input.consume(taken);
            length += written;
            fields += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                // A row without end is not kept.
                ReadRecordResult::OutputFull if length >= MAX_LINE => return Err(row_too_long()),
                ReadRecordResult::OutputEndsFull if fields >= MAX_LINE / size_of::<usize>() => {
                    return Err(row_too_long());
                }
                ReadRecordResult::OutputFull => self.bytes.resize(2 * self.bytes.len(), 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
                ReadRecordResult::Record => {
                    // The parser's line is the next one if it has read this one's end already. It
                    // leaves empty lines before a row out.
                    let end = self.core.line() - u64::from(last == b'\n');
                    let within = self.bytes[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
                    return Ok(Some((fields, end - within)));
                }
                ReadRecordResult::End => return Ok(None),
            }
        }
    }

    fn batch(&mut self) -> Result<Option<Rows>> {
        let mut columns: Vec<StringViewBuilder> = (0..self.columns).map(|_| StringViewBuilder::new()).collect();
        let mut lines = Vec::new();
        if std::mem::take(&mut self.header) {
            self.read_row()?;
        }
        while lines.len() < BATCH_ROWS
            && let Some((fields, line)) = self.read_row()?
        {
            if fields > self.columns {
                return Err(in_line("22P04", "extra data after last expected column", line));
            }
            if fields < self.columns {
                return Err(in_line("22P04", format!("missing data for column {}", fields + 1), line));
            }
            let mut start = 0;
            for (column, &end) in columns.iter_mut().zip(&self.ends) {
                let field = &self.bytes[start..end];
                start = end;
                if field == self.null {
                    column.append_null();
                } else {
                    let text = std::str::from_utf8(field);
                    let invalid = |_| in_line("22021", "invalid byte sequence for encoding \"UTF8\"", line);
                    column.append_value(text.map_err(invalid)?);
                }
            }
            lines.push(line);
        }
        if lines.is_empty() {
            return Ok(None);
        }
        let columns = columns.iter_mut().enumerate();
        let columns = columns.map(|(i, column)| (format!("c{i}"), Arc::new(column.finish()) as ArrayRef, true));
        Ok(Some(Rows { batch: RecordBatch::try_from_iter_with_nullable(columns)?, lines }))
    }
}

impl<R: BufRead> Iterator for CsvReader<R> {
    type Item = Result<Rows>;
    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}

/// Input that ends before a line `\.` outside of quotes. Clients of PostgreSQL up to version 17
/// mark the end of the data so.
pub(super) struct UntilMark<R> {
    inner: BufReader<R>,
    quote: u8,
    is_quoted: bool,
    /// What of the mark the present line begins with: at most `\.` and a carriage return.
    begun: Vec<u8>,
    /// Bytes of `begun` that turned out not to be the mark and are still to be given.
    given: usize,
    /// Whether the present line may still be the mark.
    may_be_mark: bool,
    ended: bool,
}

impl<R: Read> UntilMark<R> {
    pub(super) fn new(inner: R, quote: u8) -> Self {
        let inner = BufReader::with_capacity(1 << 16, inner);
        Self { inner, quote, is_quoted: false, begun: Vec::new(), given: 0, may_be_mark: true, ended: false }
    }

    /// Gives what has been kept back.
    fn give_begun(&mut self, buffer: &mut [u8]) -> usize {
        let count = (self.begun.len() - self.given).min(buffer.len());
        buffer[..count].copy_from_slice(&self.begun[self.given..self.given + count]);
        self.given += count;
        if self.given == self.begun.len() {
            self.begun.clear();
            self.given = 0;
        }
        count
    }
}

impl<R: Read> Read for UntilMark<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if !self.may_be_mark && !self.begun.is_empty() {
                return Ok(self.give_begun(buffer));
            }
            if self.ended || buffer.is_empty() {
                return Ok(0);
            }
            let available = self.inner.fill_buf()?;
            if available.is_empty() {
                self.ended = true;
                // A last line that is the mark and has no end.
                if self.begun.starts_with(b"\\.") {
                    self.begun.clear();
                }
                self.may_be_mark = false;
                continue;
            }
            if self.may_be_mark {
                let byte = available[0];
                match (&self.begun[..], byte) {
                    (b"\\." | b"\\.\r", b'\n') => {
                        self.begun.clear();
                        self.ended = true;
                        return Ok(0);
                    }
                    (b"", b'\\') | (b"\\", b'.') | (b"\\.", b'\r') => {
                        self.begun.push(byte);
                        self.inner.consume(1);
                    }
                    _ => self.may_be_mark = false,
                }
                continue;
            }
            // Up to a line that may be the mark.
            let mut count = 0;
            for &byte in available.iter().take(buffer.len()) {
                buffer[count] = byte;
                count += 1;
                if byte == self.quote {
                    self.is_quoted = !self.is_quoted;
                } else if byte == b'\n' && !self.is_quoted && available.get(count).is_none_or(|next| *next == b'\\') {
                    self.may_be_mark = true;
                    break;
                }
            }
            self.inner.consume(count);
            return Ok(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Format;
    use super::*;

    #[test]
    fn rows_begin_on_their_lines_whatever_ends_these() {
        let options =
            |header| Options { format: Format::Csv, header, delimiter: b',', quote: b'"', null: String::new() };
        for (text, header, wanted) in [
            ("a,b\n1,2\n", false, &[1, 2][..]),
            ("a,b\r\n1,2\r\n3,4", true, &[2, 3]),
            ("\"a\n\n\",b\r\n\r\n\n1,2\r\n", false, &[1, 6]),
            ("\n\na,b", false, &[3]),
            ("\u{feff}a,b\n\n", false, &[1]),
            ("", true, &[]),
        ] {
            for size in 1..=text.len().max(1) {
                let input = BufReader::with_capacity(size, text.as_bytes());
                let mut reader = CsvReader::new(input, &options(header), 2);
                let rows = reader.batch().unwrap();
                assert_eq!(rows.map_or(Vec::new(), |rows| rows.lines), wanted, "{text:?} in pieces of {size}");
            }
        }
    }

    /// Gives few bytes at a time.
    struct Pieces<'b>(&'b [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn data_ends_at_its_mark_outside_of_quotes() {
        for (text, wanted) in [
            ("a,b\n\\.\nSELECT", "a,b\n"),
            ("a\r\n\\.\r\n", "a\r\n"),
            ("\\.", ""),
            ("a\n\\.", "a\n"),
            ("\\.x\n\\\n\\..\n \\.\n", "\\.x\n\\\n\\..\n \\.\n"),
            ("\"\n\\.\n\",b\n\\.\nc", "\"\n\\.\n\",b\n"),
            ("a\n\\", "a\n\\"),
            ("", ""),
        ] {
            for size in 1..=text.len().max(1) {
                let mut read = String::new();
                UntilMark::new(Pieces(text.as_bytes(), size), b'"').read_to_string(&mut read).unwrap();
                assert_eq!(read, wanted, "{text:?} in pieces of {size}");
            }
        }
    }
}
