//! COPY's text format, PostgreSQL's own, for reading: a line a row, columns with a delimiter
//! between them, `\N` for NULL, backslashes before what would be misunderstood.

use super::csv::{in_line, text_in_line};
use super::options::Options;
use super::rows::{BATCH_ROWS, MAX_LINE, Rows, row_too_long};
use crate::arrival::CopyInput;
use datafusion::arrow::array::StringViewBuilder;
use serac_values::{Result, SqlError};
use std::io::{BufRead, BufReader, Read};

fn io(error: &std::io::Error) -> SqlError {
    SqlError::new(sqlstate::IO_ERROR, format!("could not read: {error}"))
}

/// Reads batches of texts.
pub(super) struct TextReader<R> {
    input: BufReader<R>,
    columns: usize,
    delimiter: u8,
    null: Vec<u8>,
    line: u64,
    /// Lines before the first row.
    header: bool,
    ended: bool,
    /// What is wrong with the row behind those that were given.
    failed: Option<SqlError>,
}

impl<R: CopyInput> TextReader<R> {
    pub(super) fn new(input: BufReader<R>, options: &Options, columns: usize) -> Self {
        let null = options.null.clone().into_bytes();
        Self {
            input,
            columns,
            delimiter: options.delimiter,
            null,
            line: 0,
            header: options.header,
            ended: false,
            failed: None,
        }
    }

    /// The next line without its end; false behind the last.
    fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        line.clear();
        if self.ended {
            return Ok(false);
        }
        self.line += 1;
        let mut input = (&mut self.input).take(MAX_LINE as u64 + 1);
        let read = input.read_until(b'\n', line).map_err(|error| io(&error))?;
        if read > MAX_LINE {
            return Err(SqlError { detail: Some(format!("line {}", self.line)), ..row_too_long() });
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        self.ended = read == 0 || line == b"\\.";
        Ok(!self.ended)
    }

    fn batch(&mut self) -> Result<Option<Rows>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (mut failed, mut line, mut value) = (None, Vec::new(), Vec::new());
        if std::mem::take(&mut self.header) {
            self.next_line(&mut line)?;
        }
        let wanted = self.columns;
        let read = |columns: &mut [StringViewBuilder], has_rows: bool| match has_rows && !self.has_row_soon() {
            true => Ok(None),
            false => self.row(columns, &mut line, &mut value),
        };
        let rows = Rows::gather(wanted, BATCH_ROWS, &mut failed, read);
        self.failed = failed;
        rows
    }
    fn has_row_soon(&mut self) -> bool {
        self.input.buffer().contains(&b'\n') || self.input.get_mut().comes_soon()
    }
    /// Reads a row: its line. None behind the last.
    fn row(
        &mut self,
        columns: &mut [StringViewBuilder],
        line: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<Option<u64>> {
        if !self.next_line(line)? {
            return Ok(None);
        }
        let mut fields = 0;
        let mut rest = Some(&line[..]);
        // A line of a table without columns is empty.
        while let Some(text) = rest.filter(|_| self.columns > 0 || !line.is_empty()) {
            let end = field_end(text, self.delimiter);
            let raw = &text[..end];
            rest = text.get(end + 1..);
            let Some(column) = columns.get_mut(fields) else {
                return Err(in_line(
                    sqlstate::BAD_COPY_FILE_FORMAT,
                    "extra data after last expected column",
                    self.line,
                ));
            };
            fields += 1;
            if raw == self.null {
                column.append_null();
                continue;
            }
            let text = if raw.contains(&b'\\') {
                unescape(raw, value);
                &value[..]
            } else {
                raw
            };
            column.append_value(text_in_line(text, self.line)?);
        }
        if fields < self.columns {
            return Err(in_line(
                sqlstate::BAD_COPY_FILE_FORMAT,
                format!("missing data for column {}", fields + 1),
                self.line,
            ));
        }
        Ok(Some(self.line))
    }
}

impl<R: CopyInput> Iterator for TextReader<R> {
    type Item = Result<Rows>;
    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}

/// Where a field ends: at the first delimiter without a backslash before it.
fn field_end(text: &[u8], delimiter: u8) -> usize {
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            byte if byte == delimiter => return at,
            _ => at += 1,
        }
    }
    text.len()
}

/// Takes the backslashes out.
fn unescape(raw: &[u8], value: &mut Vec<u8>) {
    value.clear();
    let mut at = 0;
    /// Up to `most` digits of a base.
    fn number(raw: &[u8], base: u32, most: usize) -> (usize, u32) {
        let digits = raw.iter().take(most).map_while(|byte| char::from(*byte).to_digit(base));
        digits.fold((0, 0), |(count, number), digit| (count + 1, number * base + digit))
    }
    while at < raw.len() {
        let byte = raw[at];
        at += 1;
        if byte != b'\\' || at == raw.len() {
            value.push(byte);
            continue;
        }
        let escaped = raw[at];
        at += 1;
        value.push(match escaped {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'0'..=b'7' => {
                let (count, number) = number(&raw[at - 1..], 8, 3);
                at += count - 1;
                number as u8
            }
            b'x' => match number(&raw[at..], 16, 2) {
                (0, _) => b'x',
                (count, number) => {
                    at += count;
                    number as u8
                }
            },
            other => other,
        });
    }
}
