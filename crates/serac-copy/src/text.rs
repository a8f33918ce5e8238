//! COPY's text format, PostgreSQL's own, for reading: a line for each row, a delimiter between
//! columns, `\N` for NULL, backslashes before bytes that would have another meaning.
//!
//! A backslash takes the meaning of the byte behind it away, also that of a line end. A backslash,
//! a point and the end of a line end the data.

use super::csv::{in_line, text_in_line};
use super::line_end::LineEnd;
use super::options::Options;
use super::rows::{BATCH_ROWS, MAX_LINE, Rows, row_too_long};
use crate::arrival::CopyInput;
use datafusion::arrow::array::StringViewBuilder;
use serac_values::{Result, SqlError};
use std::io::{BufRead, BufReader, ErrorKind, Read};

/// Bytes of the input; empty at its end.
fn available<R: Read>(input: &mut BufReader<R>) -> Result<&[u8]> {
    while let Err(error) = input.fill_buf() {
        if error.kind() != ErrorKind::Interrupted {
            return Err(SqlError::new(sqlstate::IO_ERROR, format!("could not read: {error}")));
        }
    }
    Ok(input.buffer())
}

/// Takes the next byte; `None` at the end of the input.
fn next_byte<R: Read>(input: &mut BufReader<R>) -> Result<Option<u8>> {
    let byte = available(input)?.first().copied();
    input.consume(usize::from(byte.is_some()));
    Ok(byte)
}

/// The place of the first backslash, newline or carriage return; the end of the bytes if there is
/// none.
fn special_at(bytes: &[u8]) -> usize {
    let is_special = |byte: &u8| matches!(byte, b'\n' | b'\r' | b'\\');
    // Without a branch for each byte, a chunk is compared by vector instructions.
    let is_plain = |chunk: &&[u8]| !chunk.iter().fold(false, |found, byte| found | is_special(byte));
    let plain: usize = bytes.chunks(64).take_while(is_plain).map(<[u8]>::len).sum();
    bytes[plain..].iter().position(is_special).map_or(bytes.len(), |at| plain + at)
}

/// Reads batches of texts.
pub(super) struct TextReader<R> {
    input: BufReader<R>,
    columns: usize,
    delimiter: u8,
    null: Vec<u8>,
    line: u64,
    /// The end that the input's lines have.
    line_end: LineEnd,
    /// Lines before the first row.
    header: bool,
    ended: bool,
    /// The error of the row behind those that were given.
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
            line_end: LineEnd::Unknown,
            header: options.header,
            ended: false,
            failed: None,
        }
    }

    /// The error of the present line.
    fn malformed(&self, what: impl Into<String>) -> SqlError {
        in_line(sqlstate::BAD_COPY_FILE_FORMAT, what, self.line)
    }

    /// The next line without its end; false behind the last.
    fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        line.clear();
        if self.ended {
            return Ok(false);
        }
        self.line += 1;
        loop {
            let bytes = available(&mut self.input)?;
            if bytes.is_empty() {
                self.ended = true;
                return Ok(!line.is_empty());
            }
            let length = special_at(bytes);
            line.extend_from_slice(&bytes[..length]);
            let special = bytes.get(length).copied();
            self.input.consume(length + usize::from(special.is_some()));
            if line.len() > MAX_LINE {
                return Err(SqlError { detail: Some(format!("line {}", self.line)), ..row_too_long() });
            }
            match special {
                None => {}
                Some(b'\\') => match next_byte(&mut self.input)? {
                    Some(b'.') => {
                        self.end_data()?;
                        return Ok(!line.is_empty());
                    }
                    escaped => {
                        line.push(b'\\');
                        line.extend(escaped);
                    }
                },
                Some(end) => {
                    self.end_line(end)?;
                    return Ok(true);
                }
            }
        }
    }

    /// Ends a line whose end begins with this byte, which has been taken.
    fn end_line(&mut self, first: u8) -> Result<()> {
        let is_return = first == b'\r';
        let is_pair = is_return && self.line_end.may_be_pair() && available(&mut self.input)?.first() == Some(&b'\n');
        self.input.consume(usize::from(is_pair));
        let end = match (is_return, is_pair) {
            (_, true) => LineEnd::ReturnNewline,
            (true, false) => LineEnd::Return,
            (false, false) => LineEnd::Newline,
        };
        if self.line_end.takes(end) { Ok(()) } else { Err(self.malformed(end.misplaced("literal"))) }
    }

    /// Ends the data behind its mark, whose line has to end as others do.
    fn end_data(&mut self) -> Result<()> {
        let corrupt = "end-of-copy marker corrupt";
        let other_end = "end-of-copy marker does not match previous newline style";
        let mut end = next_byte(&mut self.input)?;
        if self.line_end == LineEnd::ReturnNewline {
            end = match end {
                Some(b'\r') => next_byte(&mut self.input)?,
                Some(b'\n') => return Err(self.malformed(other_end)),
                _ => return Err(self.malformed(corrupt)),
            };
        }
        match (end, self.line_end) {
            (Some(b'\n'), LineEnd::Return) | (Some(b'\r'), LineEnd::Newline | LineEnd::ReturnNewline) => {
                Err(self.malformed(other_end))
            }
            (Some(b'\n' | b'\r'), _) => {
                self.ended = true;
                Ok(())
            }
            _ => Err(self.malformed(corrupt)),
        }
    }

    fn batch(&mut self) -> Result<Option<Rows>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (mut failed, mut line, mut value) = (None, Vec::new(), Vec::new());
        if std::mem::take(&mut self.header) {
            self.next_line(&mut line)?;
            text_in_line(&line, self.line)?;
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
        let ends_line = |byte: &u8| matches!(byte, b'\n' | b'\r');
        self.input.buffer().iter().any(ends_line) || self.input.get_mut().comes_soon()
    }

    /// Reads a row; returns its line. `None` behind the last.
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
                return Err(self.malformed("extra data after last expected column"));
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
            return Err(self.malformed(format!("missing data for column {}", fields + 1)));
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

/// The end of a field: the first delimiter without a backslash before it.
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

/// Takes the backslashes out. A backslash at the end, which only the input's end makes possible,
/// means nothing.
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
        if byte != b'\\' {
            value.push(byte);
            continue;
        }
        let Some(&escaped) = raw.get(at) else { break };
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

#[cfg(test)]
mod tests {
    use super::super::csv::tests::Pieces;
    use super::*;
    use crate::options::Format;
    use datafusion::arrow::array::{Array, AsArray};

    /// The texts of one column, the lines of their rows, and the error, if there is one.
    fn read(text: &str, size: usize, header: bool) -> (Vec<Option<String>>, Vec<u64>, String) {
        let options = Options { header, ..Options::new("", Format::Text) };
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        // Fewer bytes at a time than a line has.
        let input = BufReader::with_capacity(size, Pieces(text.as_bytes(), size));
        for read in TextReader::new(input, &options, 1) {
            match read {
                Ok(read) => {
                    assert_eq!(read.batch.num_rows(), read.lines.len());
                    let column = read.batch.column(0).as_string_view();
                    rows.extend(
                        (0..column.len()).map(|row| column.is_valid(row).then(|| column.value(row).to_owned())),
                    );
                    lines.extend(read.lines);
                }
                Err(error) => {
                    let place = error.detail.unwrap_or_default();
                    return (rows, lines, format!("{} {}, {place}", error.sqlstate, error.message));
                }
            }
        }
        (rows, lines, String::new())
    }

    #[test]
    fn headers_are_text() {
        let options = Options { header: true, ..Options::new("", Format::Text) };
        let input = BufReader::with_capacity(3, Pieces(b"a\xff\n1\n", 3));
        let read = TextReader::new(input, &options, 1).next().unwrap();
        assert_eq!(read.err().unwrap().sqlstate, sqlstate::CHARACTER_NOT_IN_REPERTOIRE);
    }

    #[test]
    fn lines_end_as_the_first_one_does() {
        let newline = "22P04 literal newline found in data, line 2";
        let carriage_return = "22P04 literal carriage return found in data, line 2";
        for (text, wanted, failed) in [
            ("x\ny\n", &["x", "y"][..], ""),
            ("x\ry\r", &["x", "y"], ""),
            ("x\r\ny\r\n", &["x", "y"], ""),
            ("x\r\n\r\ny", &["x", "", "y"], ""),
            ("x\r\ry", &["x", "", "y"], ""),
            ("x\n\ny", &["x", "", "y"], ""),
            ("\n", &[""], ""),
            ("\r", &[""], ""),
            ("\r\n", &[""], ""),
            ("", &[], ""),
            ("x\r\ny\n", &["x"], newline),
            ("x\ry\n", &["x"], newline),
            ("x\ny\r\n", &["x"], carriage_return),
            ("x\ny\rz\n", &["x"], carriage_return),
            ("x\r\ny\rz\r\n", &["x"], carriage_return),
        ] {
            for size in 1..=text.len().max(1) {
                let (rows, lines, given) = read(text, size, false);
                let wanted: Vec<Option<String>> = wanted.iter().map(|text| Some((*text).to_owned())).collect();
                assert_eq!((&rows, given.as_str()), (&wanted, failed), "{text:?} in pieces of {size}");
                assert_eq!(lines, (1..=rows.len() as u64).collect::<Vec<_>>(), "{text:?} in pieces of {size}");
            }
        }
        for (text, wanted) in [("h\rx\ry\r", 2), ("\nx\ny\n", 2), ("h\r\nx", 1)] {
            for size in 1..=text.len() {
                let (rows, _, failed) = read(text, size, true);
                assert_eq!((rows.len(), failed.as_str()), (wanted, ""), "{text:?} in pieces of {size}");
            }
        }
        assert_eq!(read("h\r\nx\n", 3, true).2, newline);
        // Where lines end is found in long lines, too.
        for length in [62, 63, 64, 65, 127, 128, 200] {
            let long = "x".repeat(length);
            assert_eq!(read(&format!("{long}\r{long}\\\r\r"), 999, false).0, [Some(long.clone()), Some(long + "\r")]);
        }
    }

    #[test]
    fn a_backslash_makes_the_end_of_a_line_a_part_of_it() {
        let carriage_return = "22P04 literal carriage return found in data, line 2";
        for (text, wanted, failed) in [
            ("x\\\ny\n", &["x\ny"][..], ""),
            ("x\\\\\ny\n", &["x\\", "y"], ""),
            ("x\\\\\\\ny\n", &["x\\\ny"], ""),
            ("x\\\ry\r", &["x\ry"], ""),
            ("x\\\r\ny\n", &["x\r", "y"], ""),
            ("x\\\r\ny\r\n", &["x\r"], carriage_return),
            ("a\\\n", &["a\n"], ""),
            ("\\\n\n", &["\n"], ""),
            ("x\\", &["x"], ""),
        ] {
            for size in 1..=text.len() {
                let (rows, _, given) = read(text, size, false);
                let wanted: Vec<Option<String>> = wanted.iter().map(|text| Some((*text).to_owned())).collect();
                assert_eq!((rows, given.as_str()), (wanted, failed), "{text:?} in pieces of {size}");
            }
        }
        let (rows, ..) = read("\\N\r\\\\N\r", 3, false);
        assert_eq!(rows, [None, Some("\\N".to_owned())]);
    }

    #[test]
    fn data_ends_at_its_mark_whose_line_ends_as_others_do() {
        let corrupt = |line: u64| format!("22P04 end-of-copy marker corrupt, line {line}");
        let other_end = "22P04 end-of-copy marker does not match previous newline style, line 2";
        for (text, wanted, failed) in [
            ("a\n\\.\nb\n", &["a"][..], String::new()),
            ("a\r\\.\rb\r", &["a"], String::new()),
            ("a\r\n\\.\r\nb", &["a"], String::new()),
            ("\\.\r\n", &[], String::new()),
            ("x\\.\ny\n", &["x"], String::new()),
            ("x\\\\.\n", &["x\\."], String::new()),
            ("\\.", &[], corrupt(1)),
            ("\\.x\n", &[], corrupt(1)),
            ("a\n\\.", &["a"], corrupt(2)),
            ("a\r\n\\.\rb", &["a"], corrupt(2)),
            ("a\r\n\\.\n", &["a"], other_end.to_owned()),
            ("a\n\\.\r\n", &["a"], other_end.to_owned()),
            ("a\r\\.\n", &["a"], other_end.to_owned()),
        ] {
            for size in 1..=text.len() {
                let (rows, _, given) = read(text, size, false);
                let wanted: Vec<Option<String>> = wanted.iter().map(|text| Some((*text).to_owned())).collect();
                assert_eq!((rows, given), (wanted, failed.clone()), "{text:?} in pieces of {size}");
            }
        }
    }
}
