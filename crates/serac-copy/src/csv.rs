//! COPY's CSV format, for reading: texts, with the line on which each row begins.
//!
//! Rows are taken apart as PostgreSQL does: a quote anywhere in a field begins a quoted part of it,
//! and a line without a character is a row with an empty field. A field is NULL if it has the text
//! of NULL and no quotes. All lines end as the first one does.
//!
//! If all columns are INTEGER, rows of plain numbers are parsed into numbers at once, many at a
//! time and by several threads (`serac_operators::integer_rows`). The first row that is not plain,
//! and some behind it, are read as texts: few if most rows are plain.

use super::line_end::LineEnd;
use super::options::{Nulls, Options};
use super::rows::{BATCH_BYTES, BATCH_ROWS, MAX_LINE, Rows, row_too_long};
use crate::arrival::{CopyInput, SteadyInput};
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringViewBuilder};
use serac_operators::integer_rows::{IntegerColumn, NullableIntegers, PlainRows, RowEnd, plain_parts};
use serac_storage::ColumnType;
use serac_values::wire::utf8;
use serac_values::{Result, SqlError};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of the input that are in memory at a time.
const WINDOW_BYTES: usize = 1 << 20;
/// Rows that are read as texts behind many plain ones. The number doubles each time that fewer
/// plain ones follow, up to [`BATCH_ROWS`].
const FEW_ROWS: usize = 64;

/// A part of the input.
struct Window<R> {
    input: R,
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl<R: CopyInput> Window<R> {
    fn new(input: R) -> Self {
        Self { input, bytes: vec![0; WINDOW_BYTES], from: 0, to: 0 }
    }

    /// The bytes that were read and not consumed.
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
                Err(error) => return Err(SqlError::new(sqlstate::IO_ERROR, format!("could not read: {error}"))),
            }
        }
    }

    /// Leaves out a byte order mark at the input's beginning.
    fn skip_mark(&mut self) -> Result<()> {
        let mark = "\u{feff}".as_bytes();
        while self.to < mark.len() && self.read()? {}
        if self.bytes().starts_with(mark) {
            self.consume(mark.len());
        }
        Ok(())
    }

    /// Bytes of the input; empty at its end.
    fn some(&mut self) -> Result<&[u8]> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            self.read()?;
        }
        Ok(self.bytes())
    }

    /// Whether the end of a line, or of the input, is there or comes soon.
    fn has_line_soon(&mut self) -> Result<bool> {
        loop {
            if self.bytes().iter().any(|byte| matches!(byte, b'\n' | b'\r')) || self.bytes().len() == self.bytes.len() {
                return Ok(true);
            }
            if !self.input.comes_soon() {
                return Ok(false);
            }
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
            if !self.read()? {
                return Ok(true);
            }
        }
    }

    /// Many bytes of the input. A window of which at most half is unread is filled first, as far as
    /// bytes come soon.
    fn many(&mut self) -> Result<&[u8]> {
        if self.to - self.from > self.bytes.len() / 2 {
            return Ok(self.bytes());
        }
        self.bytes.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        while self.to < self.bytes.len() && (self.to == 0 || self.input.comes_soon()) && self.read()? {}
        Ok(self.bytes())
    }
}

/// A field of the present row.
#[derive(Clone, Copy)]
struct Field {
    /// The end of its bytes among those of the row.
    end: usize,
    is_quoted: bool,
}

/// The place of the next byte in a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Unquoted,
    Quoted,
    /// Behind a quote that ends the quoted part, or is the first of two that mean one.
    QuoteInQuoted,
    /// Behind an escape that is no quote, within quotes.
    EscapeInQuoted,
    /// Behind a carriage return that ends the row, alone or with a newline.
    Return,
}

/// The fields that plain rows may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    /// No row is plain.
    None,
    Numbers,
    /// An empty field is NULL.
    NumbersAndNulls,
}

/// Reads batches of texts, or of integers.
pub(super) struct CsvReader<R> {
    input: Window<R>,
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: Vec<u8>,
    /// By column.
    nulls: Vec<Nulls>,
    /// By column, whether its texts are left out.
    skipped: Vec<bool>,
    /// Whether the first row has names.
    header: bool,
    /// The names that it must have; empty if any will do.
    names: Vec<String>,
    /// Whether nothing was read yet.
    is_new: bool,
    /// The line of the next byte, from 1.
    line: u64,
    /// The end that the input's lines have.
    line_end: LineEnd,
    /// Whether a row `\.` ends the data.
    has_end_mark: bool,
    /// Whether the row that ends the data has been read.
    is_ended: bool,
    plain: Plain,
    /// The number of threads that may look for plain rows.
    threads: usize,
    /// Plain rows that were found.
    found: VecDeque<Rows>,
    /// The number of rows to read as texts before plain rows are looked for.
    text_rows: usize,
    /// The present row.
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// The error of the row behind those that were given.
    failed: Option<SqlError>,
}

/// The fields that plain rows may have. A plain row must have no other meaning under these options.
fn plain(options: &Options, types: &[ColumnType], nulls: &[Nulls]) -> Plain {
    let is_of_number = |byte: u8| byte.is_ascii_digit() || b"-\r\n".contains(&byte);
    let may_be = types.iter().all(|column_type| *column_type == ColumnType::Int32)
        && !types.is_empty()
        && options.null.parse::<i64>().is_err()
        && !is_of_number(options.delimiter)
        && !is_of_number(options.quote);
    match may_be {
        false => Plain::None,
        true if options.null.is_empty() && nulls.iter().all(|nulls| nulls.bare) => Plain::NumbersAndNulls,
        true => Plain::Numbers,
    }
}

/// An error in a line.
pub(super) fn in_line(sqlstate: &'static str, what: impl Into<String>, line: u64) -> SqlError {
    SqlError { detail: Some(format!("line {line}")), ..SqlError::new(sqlstate, what) }
}

/// The bytes of a line as text.
pub(super) fn text_in_line(bytes: &[u8], line: u64) -> Result<&str> {
    utf8(bytes).map_err(|error| in_line(error.sqlstate, error.message, line))
}

impl<R: CopyInput> CsvReader<R> {
    /// Reads rows for columns of these types.
    pub(super) fn new(input: R, options: &Options, types: &[ColumnType]) -> Self {
        let nulls = |at: usize| options.nulls.get(at).copied().unwrap_or_default();
        let nulls: Vec<Nulls> = (0..types.len()).map(nulls).collect();
        Self {
            input: Window::new(input),
            delimiter: options.delimiter,
            quote: options.quote,
            escape: options.escape,
            null: options.null.clone().into_bytes(),
            header: options.header,
            skipped: (0..types.len()).map(|at| options.skipped.get(at).copied().unwrap_or_default()).collect(),
            names: options.names.clone(),
            is_new: true,
            line: 1,
            line_end: LineEnd::Unknown,
            has_end_mark: false,
            is_ended: false,
            plain: plain(options, types, &nulls),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            found: VecDeque::new(),
            text_rows: FEW_ROWS,
            nulls,
            bytes: Vec::new(),
            fields: Vec::new(),
            failed: None,
        }
    }

    /// The same reader for data that a row `\.` ends: clients of PostgreSQL up to version 17 mark
    /// the end with it.
    pub(super) fn until_mark(self) -> Self {
        Self { has_end_mark: true, ..self }
    }

    /// Reads a row into `bytes` and `fields`; returns the line on which it begins. `None` behind
    /// the last.
    fn read_row(&mut self) -> Result<Option<u64>> {
        self.bytes.clear();
        self.fields.clear();
        if self.is_ended {
            return Ok(None);
        }
        let begun = self.line;
        let (mut place, mut is_quoted, mut is_begun) = (Place::Unquoted, false, false);
        loop {
            let input = self.input.some()?;
            if input.is_empty() {
                return match place {
                    Place::Quoted | Place::EscapeInQuoted => {
                        Err(in_line(sqlstate::BAD_COPY_FILE_FORMAT, "unterminated CSV quoted field", begun))
                    }
                    Place::Return => self.end_row(begun, is_quoted, Some(LineEnd::Return)),
                    Place::Unquoted | Place::QuoteInQuoted if is_begun => self.end_row(begun, is_quoted, None),
                    Place::Unquoted | Place::QuoteInQuoted => Ok(None),
                };
            }
            is_begun = true;
            let mut at = 0;
            while let Some(&byte) = input.get(at) {
                let rest = &input[at..];
                match place {
                    Place::Unquoted => {
                        let (delimiter, quote) = (self.delimiter, self.quote);
                        let ends = |byte: &u8| [delimiter, quote, b'\n', b'\r'].contains(byte);
                        let length = rest.iter().position(ends).unwrap_or(rest.len());
                        self.bytes.extend_from_slice(&rest[..length]);
                        at += length;
                        let Some(&end) = rest.get(length) else { break };
                        at += 1;
                        if end == quote {
                            // A quote that no text has, for data without quotes.
                            text_in_line(&[end], begun)?;
                            (place, is_quoted) = (Place::Quoted, true);
                        } else if end == delimiter {
                            self.fields.push(Field { end: self.bytes.len(), is_quoted });
                            is_quoted = false;
                        } else if end == b'\r' && self.line_end.may_be_pair() {
                            place = Place::Return;
                        } else {
                            self.input.consume(at);
                            let end = if end == b'\r' { LineEnd::Return } else { LineEnd::Newline };
                            return self.end_row(begun, is_quoted, Some(end));
                        }
                    }
                    Place::Return => {
                        let is_pair = byte == b'\n';
                        self.input.consume(at + usize::from(is_pair));
                        let end = if is_pair { LineEnd::ReturnNewline } else { LineEnd::Return };
                        return self.end_row(begun, is_quoted, Some(end));
                    }
                    Place::Quoted => {
                        let (quote, escape) = (self.quote, self.escape);
                        let ends = |byte: &u8| *byte == quote || *byte == escape;
                        let length = rest.iter().position(ends).unwrap_or(rest.len());
                        let text = &rest[..length];
                        self.line += text.iter().filter(|byte| **byte == b'\n').count() as u64;
                        self.bytes.extend_from_slice(text);
                        at += length;
                        if let Some(end) = rest.get(length) {
                            place = match *end == quote {
                                true => Place::QuoteInQuoted,
                                false => Place::EscapeInQuoted,
                            };
                            at += 1;
                        }
                    }
                    Place::EscapeInQuoted => {
                        if byte == self.quote || byte == self.escape {
                            self.bytes.push(byte);
                            at += 1;
                        } else {
                            self.bytes.push(self.escape);
                        }
                        place = Place::Quoted;
                    }
                    Place::QuoteInQuoted if byte == self.quote && self.quote == self.escape => {
                        self.bytes.push(byte);
                        place = Place::Quoted;
                        at += 1;
                    }
                    Place::QuoteInQuoted => place = Place::Unquoted,
                }
            }
            self.input.consume(at);
            // A row without end is not kept.
            if self.bytes.len() >= MAX_LINE || self.fields.len() >= MAX_LINE / size_of::<Field>() {
                return Err(row_too_long());
            }
        }
    }

    /// Ends the present row with its last field; `None` if the row is the end mark. `end` is the
    /// end of its line; `None` at the end of the input.
    fn end_row(&mut self, begun: u64, is_quoted: bool, end: Option<LineEnd>) -> Result<Option<u64>> {
        if let Some(end) = end
            && !self.line_end.takes(end)
        {
            return Err(in_line(sqlstate::BAD_COPY_FILE_FORMAT, end.misplaced("unquoted"), begun));
        }
        self.fields.push(Field { end: self.bytes.len(), is_quoted });
        self.line += u64::from(end.is_some());
        self.is_ended = self.has_end_mark && self.is_end_mark();
        Ok((!self.is_ended).then_some(begun))
    }

    /// Whether the present row is `\.` and nothing else.
    fn is_end_mark(&self) -> bool {
        let mark = b"\\.";
        if self.bytes.len() + self.fields.len() != mark.len() + 1 || self.fields.iter().any(|field| field.is_quoted) {
            return false;
        }
        // The delimiter may be a byte of the mark.
        let mut text = self.bytes.clone();
        self.fields.iter().rev().skip(1).for_each(|field| text.insert(field.end, self.delimiter));
        text == mark
    }

    /// Looks for plain rows; returns their number.
    fn find_plain<C>(&mut self) -> Result<usize>
    where
        C: IntegerColumn + Default + Clone + Send + Sync,
        Int32Array: From<C>,
    {
        let text = self.input.many()?;
        let line_end = match self.line_end {
            // A plain row has no end of a line within quotes.
            LineEnd::Unknown => {
                let first = text.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                match first.map(|at| &text[at..]) {
                    Some([b'\n', ..]) => LineEnd::Newline,
                    Some([b'\r', b'\n', ..]) => LineEnd::ReturnNewline,
                    _ => LineEnd::Unknown,
                }
            }
            known => known,
        };
        let row_end = match line_end {
            LineEnd::Newline => RowEnd::Newline,
            LineEnd::ReturnNewline => RowEnd::ReturnNewline,
            LineEnd::Return | LineEnd::Unknown => return Ok(0),
        };
        let columns = vec![C::default(); self.nulls.len()];
        let parts = plain_parts(text, self.delimiter, row_end, &columns, self.threads);
        let found: usize = parts.iter().map(|part| part.rows).sum();
        if found == 0 {
            return Ok(0);
        }
        self.input.consume(parts.iter().map(|part| part.end).sum());
        self.line_end = line_end;
        for PlainRows { columns, rows, .. } in parts.into_iter().filter(|part| part.rows > 0) {
            let array = |(i, column)| (format!("c{i}"), Arc::new(Int32Array::from(column)) as ArrayRef, true);
            let columns = columns.into_iter().enumerate().map(array);
            let lines = (self.line..self.line + rows as u64).collect();
            self.found.push_back(Rows { batch: RecordBatch::try_from_iter_with_nullable(columns)?, lines });
            self.line += rows as u64;
        }
        Ok(found)
    }

    fn plain_rows(&mut self) -> Result<Option<Rows>> {
        if self.found.is_empty() && !self.is_ended {
            let found = match self.plain {
                Plain::None => return Ok(None),
                Plain::Numbers => self.find_plain::<Vec<i32>>()?,
                Plain::NumbersAndNulls => self.find_plain::<NullableIntegers>()?,
            };
            self.text_rows = if found > self.text_rows { FEW_ROWS } else { BATCH_ROWS.min(2 * self.text_rows) };
        }
        Ok(self.found.pop_front())
    }

    fn batch(&mut self) -> Result<Option<Rows>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if std::mem::take(&mut self.is_new) {
            self.input.skip_mark()?;
            if self.header
                && let Some(line) = self.read_row()?
            {
                text_in_line(&self.bytes, line)?;
                self.check_header()?;
            }
        }
        if let Some(rows) = self.plain_rows()? {
            return Ok(Some(rows));
        }
        let most = if self.plain == Plain::None { BATCH_ROWS } else { self.text_rows };
        let (mut failed, mut bytes) = (None, 0);
        let rows = Rows::gather(self.nulls.len(), most, &mut failed, |columns, has_rows| {
            if has_rows && (bytes >= BATCH_BYTES || !self.input.has_line_soon()?) {
                return Ok(None);
            }
            let row = self.text_row(columns);
            bytes += self.bytes.len();
            row
        });
        self.failed = failed;
        rows
    }

    /// The texts of the present row.
    fn texts(&self, line: u64) -> impl Iterator<Item = Result<(&str, bool)>> {
        let mut start = 0;
        self.fields.iter().map(move |field| {
            let text = &self.bytes[start..field.end];
            start = field.end;
            Ok((text_in_line(text, line)?, field.is_quoted))
        })
    }

    /// That the present row has the names that a header must have.
    fn check_header(&self) -> Result<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        let (found, wanted) = (self.fields.len(), self.names.len());
        if found != wanted {
            let message = format!("wrong number of fields in header line: got {found}, expected {wanted}");
            return Err(in_line(sqlstate::BAD_COPY_FILE_FORMAT, message, 1));
        }
        for (at, (given, name)) in (1..).zip(self.texts(1).zip(&self.names)) {
            let (given, _) = given?;
            if given != name {
                let what = format!("column name mismatch in header line field {at}");
                let message = format!("{what}: got \"{given}\", expected \"{name}\"");
                return Err(in_line(sqlstate::BAD_COPY_FILE_FORMAT, message, 1));
            }
        }
        Ok(())
    }

    /// Reads a row of texts; returns the line on which it begins. `None` behind the last.
    fn text_row(&mut self, columns: &mut [StringViewBuilder]) -> Result<Option<u64>> {
        let Some(line) = self.read_row()? else { return Ok(None) };
        let (found, wanted) = (self.fields.len(), columns.len());
        // A line of a table without columns is empty.
        if wanted == 0 && matches!(self.fields[..], [Field { end: 0, is_quoted: false }]) {
            return Ok(Some(line));
        }
        if found > wanted {
            return Err(in_line(sqlstate::BAD_COPY_FILE_FORMAT, "extra data after last expected column", line));
        }
        if found < wanted {
            return Err(in_line(
                sqlstate::BAD_COPY_FILE_FORMAT,
                format!("missing data for column {}", found + 1),
                line,
            ));
        }
        let mut start = 0;
        let fields = self.fields.iter().zip(&self.nulls).zip(&self.skipped);
        for (column, ((field, nulls), is_skipped)) in columns.iter_mut().zip(fields) {
            let text = &self.bytes[start..field.end];
            start = field.end;
            let is_null = text == self.null && (if field.is_quoted { nulls.quoted } else { nulls.bare });
            if *is_skipped || is_null {
                column.append_null();
            } else {
                column.append_value(text_in_line(text, line)?);
            }
        }
        Ok(Some(line))
    }
}

/// A field of a row of a sample: its text, and whether a part of it was quoted.
pub type SampleField = (String, bool);

/// The first rows of CSV, at most so many, with as many fields as each has, and the error behind
/// them if there is one. An input that is cut off may have a last row that is none.
pub fn csv_sample(bytes: &[u8], options: &Options, most: usize) -> (Vec<Vec<SampleField>>, Option<SqlError>) {
    let mut reader = CsvReader::new(SteadyInput(bytes), options, &[]);
    let mut rows = Vec::new();
    let mut read = || -> Result<bool> {
        if rows.is_empty() {
            reader.input.skip_mark()?;
        }
        let Some(line) = reader.read_row()? else { return Ok(false) };
        let texts = reader.texts(line).map(|text| text.map(|(text, is_quoted)| (text.to_owned(), is_quoted)));
        rows.push(texts.collect::<Result<_>>()?);
        Ok(rows.len() < most)
    };
    let failed = loop {
        match read() {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) => break Some(error),
        }
    };
    (rows, failed)
}

impl<R: CopyInput> Iterator for CsvReader<R> {
    type Item = Result<Rows>;
    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use datafusion::arrow::array::{Array, AsArray};
    use datafusion::arrow::compute::cast;
    use datafusion::arrow::datatypes::DataType;
    use rand::Rng;
    use rand::rngs::StdRng;
    use std::io::Read;

    /// Gives few bytes at a time.
    pub(in super::super) struct Pieces<'b>(pub &'b [u8], pub usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    impl CopyInput for Pieces<'_> {}

    #[test]
    fn rows_begin_on_their_lines_whatever_ends_these() {
        let options = |header| Options::csv(header, b',', "");
        for (text, header, wanted) in [
            ("a,b\n1,2\n", false, &[1, 2][..]),
            ("a,b\r\n1,2\r\n3,4", true, &[2, 3]),
            ("\"a\n\n\",b\r\n1,2\r\n", false, &[1, 4]),
            ("\na,b\n1,2", true, &[2, 3]),
            ("\r\n1,2\r\n", true, &[2]),
            ("\u{feff}a,b\n", false, &[1]),
            ("1\r2,3\r4,5\r", true, &[2, 3]),
            ("1,2\r3,4", false, &[1, 2]),
            ("1,\"\r\n\"\r3,4\r", false, &[1, 3]),
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
    fn headers_are_text() {
        for column_type in [ColumnType::Utf8, ColumnType::Int32] {
            let input = Pieces(b"a\xff\n1\n", 3);
            let mut rows = CsvReader::new(input, &Options::csv(true, b',', ""), &[column_type]);
            assert_eq!(rows.next().unwrap().err().unwrap().sqlstate, sqlstate::CHARACTER_NOT_IN_REPERTOIRE);
        }
    }

    /// The texts of all rows, and the error, if there is one.
    fn read(text: &str, size: usize, options: &Options, types: &[ColumnType]) -> (Vec<Vec<Option<String>>>, String) {
        let (mut rows, mut failed) = (Vec::new(), String::new());
        for read in CsvReader::new(Pieces(text.as_bytes(), size), options, types) {
            match read {
                Ok(Rows { batch, lines }) => {
                    assert_eq!(batch.num_rows(), lines.len());
                    let columns = batch.columns().iter().map(|column| cast(column, &DataType::Utf8).unwrap());
                    let columns: Vec<ArrayRef> = columns.collect();
                    let field = |column: &ArrayRef, row| {
                        let column = column.as_string::<i32>();
                        column.is_valid(row).then(|| column.value(row).to_owned())
                    };
                    rows.extend((0..lines.len()).map(|row| columns.iter().map(|c| field(c, row)).collect::<Vec<_>>()));
                }
                Err(error) => {
                    failed = format!("{} {}", error.sqlstate, error.detail.unwrap_or_default());
                    break;
                }
            }
        }
        (rows, failed)
    }

    #[test]
    fn quotes_tell_texts_from_null() {
        let text = |text: &str| Some(text.to_owned());
        let row = |a, b| vec![a, b];
        let usual = Options::csv(false, b',', "");
        let of = |names: [bool; 2], null: &str| {
            let nulls = |forced: bool| Nulls { quoted: forced, bare: !forced };
            let mut options = Options::csv(false, b',', null);
            options.nulls = names.map(nulls).to_vec();
            options
        };
        for (csv, options, wanted, failed) in [
            ("\"\",\r\n,\"\"\r\n", &usual, vec![row(text(""), None), row(None, text(""))], ""),
            ("\"a\"\"b\",\"c,\r\nd\"\n", &usual, vec![row(text("a\"b"), text("c,\r\nd"))], ""),
            ("a\"b,\"c,\"d\"e\n", &usual, vec![row(text("ab,c"), text("de"))], ""),
            ("a\"b,\"c\"d", &usual, vec![], "22P04 line 1"),
            ("a,\"\"\"\"", &usual, vec![row(text("a"), text("\""))], ""),
            ("a,", &usual, vec![row(text("a"), None)], ""),
            ("\"\",\"\"\n,\n", &of([true, false], ""), vec![row(None, text("")), row(text(""), None)], ""),
            ("x,\"x\"\n", &of([false, false], "x"), vec![row(None, text("x"))], ""),
            ("a,b\nc,\"d\n\n", &usual, vec![row(text("a"), text("b"))], "22P04 line 2"),
            ("a,b\nc\n", &usual, vec![row(text("a"), text("b"))], "22P04 line 2"),
            ("a,b\nc,d,e\n", &usual, vec![row(text("a"), text("b"))], "22P04 line 2"),
        ] {
            for size in 1..=csv.len() {
                let given = read(csv, size, options, &[ColumnType::Utf8; 2]);
                assert_eq!(given, (wanted.clone(), failed.to_owned()), "{csv:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_line_without_a_character_is_a_row_of_one_column() {
        for column_type in [ColumnType::Utf8, ColumnType::Int32] {
            for size in 1..=12 {
                for end in ["\n", "\r", "\r\n"] {
                    let text = ["1", "", "", "2", "", "3"].join(end);
                    let (rows, failed) = read(&text, size, &Options::csv(false, b',', ""), &[column_type]);
                    let rows: Vec<Option<String>> = rows.into_iter().flatten().collect();
                    let number = |number: &str| Some(number.to_owned());
                    let wanted = [number("1"), None, None, number("2"), None, number("3")];
                    assert_eq!((&rows[..], failed.as_str()), (&wanted[..], ""), "{text:?} in pieces of {size}");
                }
            }
        }
    }

    #[test]
    fn lines_end_as_the_first_one_does_and_have_all_columns() {
        for column_type in [ColumnType::Utf8, ColumnType::Int32] {
            for (text, rows, failed) in [
                ("1,2\n3,4\r\n5,6\n", 1, "22P04 line 2"),
                ("1,2\r\n3,4\n", 1, "22P04 line 2"),
                ("1,2\r3,4\n", 1, "22P04 line 2"),
                ("1,2\r3,4\r\n", 2, "22P04 line 3"),
                ("1,2\r\n3,4\r5,6\r\n", 1, "22P04 line 2"),
                ("1,2\r\n3,4\r", 1, "22P04 line 2"),
                ("1,\"\r\n\"\n3,4\r\n", 1, "22P04 line 3"),
                ("1,2\n\n3,4\n", 1, "22P04 line 2"),
                ("\n1,2\n", 0, "22P04 line 1"),
                ("1,2\r\n\r\n", 1, "22P04 line 2"),
            ] {
                for size in 1..=text.len() {
                    let (found, given) = read(text, size, &Options::csv(false, b',', ""), &[column_type; 2]);
                    assert_eq!((found.len(), given.as_str()), (rows, failed), "{text:?} in pieces of {size}");
                }
            }
        }
        // Several threads look at rows of numbers.
        let (rows, options) = (100_000, Options::csv(false, b',', ""));
        for ends in [["\n", "\r\n"], ["\r\n", "\n"]] {
            for odd in [1, 1_024, 50_000, 99_999] {
                let end = |row: usize| ends[usize::from(row == odd)];
                let text: String = (0..rows).map(|row| format!("{row},{row}{}", end(row))).collect();
                for column_type in [ColumnType::Utf8, ColumnType::Int32] {
                    let (found, failed) = read(&text, usize::MAX, &options, &[column_type; 2]);
                    assert_eq!((found.len(), failed), (odd, format!("22P04 line {}", odd + 1)), "{ends:?}");
                }
            }
        }
    }

    #[test]
    fn tables_without_columns_have_empty_lines() {
        for (text, rows, failed) in
            [("\n\n", 2, ""), ("\r\n", 1, ""), ("", 0, ""), ("\nx\n", 1, "22P04 line 2"), ("\"\"\n", 0, "22P04 line 1")]
        {
            let (found, given) = read(text, 1, &Options::csv(false, b',', ""), &[]);
            assert_eq!((found.len(), given.as_str()), (rows, failed), "{text:?}");
        }
    }

    #[test]
    fn data_ends_at_its_mark_outside_of_quotes() {
        let of = |delimiter: u8| Options::csv(false, delimiter, "");
        for (text, delimiter, rows) in [
            ("a\n\\.\nSELECT", b',', &["a"][..]),
            ("a\r\n\\.\r\nb", b',', &["a"]),
            ("a\r\\.\rb", b',', &["a"]),
            ("\\.", b',', &[]),
            ("a\n\\.", b',', &["a"]),
            ("a\n\\.\nb", b'.', &["a"]),
            ("a\n\\.\nb", b'\\', &["a"]),
            ("\\.x\n\\\n\\..\n \\.\n", b',', &["\\.x", "\\", "\\..", " \\."]),
            ("\"\n\\.\n\"\n\\.\nc", b',', &["\n\\.\n"]),
            ("\"\\.\"\n\\\".\"\nc", b',', &["\\.", "\\.", "c"]),
            ("a\n\\", b',', &["a", "\\"]),
            ("", b',', &[]),
        ] {
            for size in 1..=text.len().max(1) {
                let input = Pieces(text.as_bytes(), size);
                let reader = CsvReader::new(input, &of(delimiter), &[ColumnType::Utf8]).until_mark();
                let batches: Vec<RecordBatch> = reader.map(|rows| rows.unwrap().batch).collect();
                let texts = batches.iter().flat_map(|batch| batch.column(0).as_string_view().iter().flatten());
                assert_eq!(texts.collect::<Vec<_>>(), rows, "{text:?} in pieces of {size}");
            }
        }
        // The mark ends numbers, too, and nothing is read behind it.
        for text in ["1,2\n\\.\n3,4\n", "\\.\n1,2\n"] {
            let reader = CsvReader::new(Pieces(text.as_bytes(), 99), &of(b','), &[ColumnType::Int32; 2]).until_mark();
            let rows: usize = reader.map(|rows| rows.unwrap().lines.len()).sum();
            assert_eq!(rows, usize::from(text.starts_with('1')), "{text:?}");
        }
        let (files, failed) = read("a\n\\.\nb\n", 99, &of(b','), &[ColumnType::Utf8]);
        assert_eq!((files.len(), failed.as_str()), (3, ""));
    }

    #[test]
    fn plain_rows_are_what_the_parser_of_texts_reads() {
        let mut rng = serac_testing::rng();
        for null in ["", "-1", "7-", "x"] {
            let (mut text, end) = (String::new(), ["\n", "\r\n"][rng.random_range(0..2)]);
            for row in 0..60_000 {
                let field = |rng: &mut StdRng| match rng.random_range(0..if row < 30_000 { 4_000 } else { 200_000 }) {
                    0 => "\"1\"".into(),
                    1 => null.to_owned(),
                    2 => " 12".into(),
                    3 => "-1".into(),
                    _ => rng.random::<i32>().to_string(),
                };
                let (a, b) = (field(&mut rng), field(&mut rng));
                text.push_str(&format!("{a};{b}{end}"));
            }
            let options = Options::csv(false, b';', null);
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
}
