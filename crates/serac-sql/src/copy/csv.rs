//! COPY's CSV format, for reading: texts, with the line on which each row begins.
//!
//! Where all columns are INTEGER, rows of plain numbers are parsed into numbers at once, many at a
//! time and by several threads (`serac_operators::integer_rows`). The first row of another kind, and
//! those of a batch behind it, are read as texts.

use super::options::Options;
use super::source::{BATCH_ROWS, MAX_LINE, Rows, row_too_long};
use crate::error::{Result, SqlError};
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringViewBuilder};
use serac_operators::integer_rows::{PlainRows, plain_parts, plain_rows};
use serac_storage::ColumnType;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

/// Bytes of the input that are there at a time.
const WINDOW_BYTES: usize = 1 << 20;

/// A part of the input.
struct Window<R> {
    input: R,
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl<R: Read> Window<R> {
    fn new(input: R) -> Self {
        Self { input, bytes: vec![0; WINDOW_BYTES], from: 0, to: 0 }
    }
    /// What is there and was not consumed.
    fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }
    fn consume(&mut self, count: usize) {
        self.from += count;
    }
    /// Reads more; false at the end.
    fn read(&mut self) -> Result<bool> {
        loop {
            match self.input.read(&mut self.bytes[self.to..]) {
                Ok(count) => {
                    self.to += count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SqlError::new("58030", format!("could not read: {error}"))),
            }
        }
    }
    /// Bytes of the input; none at its end.
    fn some(&mut self) -> Result<&[u8]> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            self.read()?;
        }
        Ok(self.bytes())
    }
    /// As many bytes of the input as there is room for.
    fn fill(&mut self) -> Result<&[u8]> {
        self.bytes.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        while self.to < self.bytes.len() && self.read()? {}
        Ok(self.bytes())
    }
}

/// Reads batches of texts, or of integers.
pub(super) struct CsvReader<R> {
    input: Window<R>,
    core: Reader,
    columns: usize,
    null: Vec<u8>,
    delimiter: u8,
    /// Whether the first row has names.
    header: bool,
    /// How many threads may look for plain rows; 0 where no row is plain.
    threads: usize,
    /// Plain rows that were found.
    plain: VecDeque<Rows>,
    /// The present row: the bytes of all fields, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The byte that was read last as a text.
    last: u8,
}

/// Whether a row of plain numbers can mean nothing but these.
fn may_be_plain(options: &Options, types: &[ColumnType]) -> bool {
    let is_of_number = |byte: u8| byte.is_ascii_digit() || b"-\r\n".contains(&byte);
    types.iter().all(|column_type| *column_type == ColumnType::Int32)
        && options.null.parse::<i64>().is_err()
        && !is_of_number(options.delimiter)
        && !is_of_number(options.quote)
}

/// An error in a line.
pub(super) fn in_line(sqlstate: &'static str, what: impl Into<String>, line: u64) -> SqlError {
    SqlError { detail: Some(format!("line {line}")), ..SqlError::new(sqlstate, what) }
}

impl<R: Read> CsvReader<R> {
    /// Reads rows for columns of these types.
    pub(super) fn new(input: R, options: &Options, types: &[ColumnType]) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            input: Window::new(input),
            core: ReaderBuilder::new().delimiter(options.delimiter).quote(options.quote).build(),
            columns: types.len(),
            null: options.null.clone().into_bytes(),
            delimiter: options.delimiter,
            header: options.header,
            threads: if may_be_plain(options, types) { cores() } else { 0 },
            plain: VecDeque::new(),
            bytes: vec![0; 4096],
            ends: vec![0; types.len() + 1],
            last: b'\n',
        }
    }

    /// Reads a row: how many fields it has, and the line on which it begins. None behind the last.
    fn read_row(&mut self) -> Result<Option<(usize, u64)>> {
        let (mut length, mut fields) = (0, 0);
        loop {
            let input = self.input.some()?;
            // The parser leaves a mark of the byte order out, and takes nothing behind it for the end.
            if input == "\u{feff}".as_bytes() && self.core.line() == 1 && length == 0 && fields == 0 {
                self.input.consume("\u{feff}".len());
                continue;
            }
            let output = (&mut self.bytes[length..], &mut self.ends[fields..]);
            let (result, taken, written, ended) = self.core.read_record(input, output.0, output.1);
            self.last = input[..taken].last().copied().unwrap_or(self.last);
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
                    let end = self.core.line() - u64::from(self.last == b'\n');
                    let within = self.bytes[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
                    return Ok(Some((fields, end - within)));
                }
                ReadRecordResult::End => return Ok(None),
            }
        }
    }

    /// Looks for plain rows.
    fn find_plain(&mut self) -> Result<()> {
        let text = self.input.fill()?;
        // The parser takes the end of a line in two parts, of which the second comes with the next row.
        let is_halved = self.last == b'\r' && text.first() == Some(&b'\n');
        let text = &text[usize::from(is_halved)..];
        let mut parts = plain_parts(text, self.delimiter, self.columns, self.threads);
        if parts.is_empty() {
            let mut columns = vec![Vec::new(); self.columns];
            let (rows, end) = plain_rows(text, self.delimiter, usize::MAX, &mut columns);
            parts.push(PlainRows { columns, rows, end });
        }
        if parts[0].rows == 0 {
            return Ok(());
        }
        let mut line = self.core.line() + u64::from(is_halved);
        self.input.consume(usize::from(is_halved) + parts.iter().map(|part| part.end).sum::<usize>());
        self.last = b'\n';
        for PlainRows { columns, rows, .. } in parts.into_iter().filter(|part| part.rows > 0) {
            let columns = columns.into_iter().enumerate();
            let columns = columns.map(|(i, column)| (format!("c{i}"), Arc::new(Int32Array::from(column)) as ArrayRef));
            let lines = (line..line + rows as u64).collect();
            self.plain.push_back(Rows { batch: RecordBatch::try_from_iter(columns)?, lines });
            line += rows as u64;
        }
        self.core.set_line(line);
        Ok(())
    }

    fn batch(&mut self) -> Result<Option<Rows>> {
        if self.threads > 0 && !self.header {
            if self.plain.is_empty() {
                self.find_plain()?;
            }
            if let Some(rows) = self.plain.pop_front() {
                return Ok(Some(rows));
            }
        }
        let mut columns: Vec<StringViewBuilder> = (0..self.columns).map(|_| StringViewBuilder::new()).collect();
        let mut lines = Vec::new();
        if std::mem::take(&mut self.header) {
            self.read_row()?;
            if self.threads > 0 {
                return self.batch();
            }
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

impl<R: Read> Iterator for CsvReader<R> {
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
    use datafusion::arrow::array::{Array, AsArray};
    use datafusion::arrow::compute::cast;
    use datafusion::arrow::datatypes::DataType;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

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
                for column_type in [ColumnType::Utf8, ColumnType::Int32] {
                    let input = Pieces(text.as_bytes(), size);
                    let reader = CsvReader::new(input, &options(header), &[column_type; 2]);
                    let lines: Vec<u64> = reader.flat_map(|rows| rows.unwrap().lines).collect();
                    assert_eq!(lines, wanted, "{text:?} in pieces of {size}");
                }
            }
        }
    }

    #[test]
    fn plain_rows_are_what_the_parser_of_texts_reads() {
        let seed: u64 = rand::random();
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        for null in ["", "-1", "7-", "x"] {
            let mut text = String::new();
            for row in 0..60_000 {
                let field = |rng: &mut StdRng| match rng.random_range(0..if row < 30_000 { 4_000 } else { 200_000 }) {
                    0 => "\"1\"".into(),
                    1 => null.to_owned(),
                    2 => " 12".into(),
                    3 => "-1".into(),
                    _ => rng.random::<i32>().to_string(),
                };
                let (a, b) = (field(&mut rng), field(&mut rng));
                let end = if rng.random_range(0..10) == 0 { "\r\n" } else { "\n" };
                text.push_str(&format!("{a};{b}{end}"));
                if rng.random_range(0..10_000) == 0 {
                    text.push('\n');
                }
            }
            let options =
                Options { format: Format::Csv, header: false, delimiter: b';', quote: b'"', null: null.into() };
            let read = |column_type: ColumnType| {
                let (mut values, mut lines, mut plain) = (vec![Vec::new(); 2], Vec::new(), 0);
                for rows in CsvReader::new(Pieces(text.as_bytes(), 9_999), &options, &[column_type; 2]) {
                    let rows = rows.unwrap();
                    lines.extend(rows.lines);
                    for (values, column) in values.iter_mut().zip(rows.batch.columns()) {
                        plain += usize::from(*column.data_type() == DataType::Int32) * column.len();
                        let texts = cast(column, &DataType::Utf8).unwrap();
                        values.extend(texts.as_string::<i32>().iter().map(|text| text.map(str::to_owned)));
                    }
                }
                (values, lines, plain)
            };
            let (wanted, given) = (read(ColumnType::Utf8), read(ColumnType::Int32));
            assert!((&wanted.0, &wanted.1) == (&given.0, &given.1), "NULL is {null:?}");
            assert_eq!((wanted.2, given.2 > 5_000), (0, null != "-1"), "NULL is {null:?}");
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
