//! JSON, for reading: objects one after another, each on a line or several, or as the elements of
//! one array. An object is a row, and its members are the row's columns, by their keys.
//!
//! [`JsonDocuments`] finds where a document ends, and looks at nothing else. The document is
//! checked as a value of type `json` is. A member is given as a text: a string without its quotes,
//! `null` as NULL, everything else as it is written. A column of documents takes strings with their
//! quotes. If a key comes twice, its last value counts.

use super::csv::{in_line, text_in_line};
use super::options::Options;
use super::rows::{BATCH_BYTES, BATCH_ROWS, MAX_LINE, Rows, row_too_long};
use datafusion::arrow::array::StringViewBuilder;
use serac_engine::EngineError;
use serac_engine::json::as_text;
use serac_engine::json_text::{check, check_escapes, members};
use serac_storage::ColumnType;
use serac_values::{Result, SqlError};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read};

/// The place between documents.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first byte.
    Start,
    /// Among documents that stand one after another.
    Sequence,
    /// In the array, before its first element.
    First,
    /// In the array, behind an element.
    Next,
    /// Behind the array.
    End,
}

/// Gives the documents of an input, with the line on which each begins, from 1.
pub struct JsonDocuments<R> {
    input: BufReader<R>,
    line: u64,
    place: Place,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

impl<R: Read> JsonDocuments<R> {
    /// The documents of an input.
    pub fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(1 << 16, input), line: 1, place: Place::Start }
    }

    /// Bytes of the input; empty at its end.
    fn some(&mut self) -> Result<&[u8]> {
        while let Err(error) = self.input.fill_buf() {
            if error.kind() != ErrorKind::Interrupted {
                return Err(SqlError::new(sqlstate::IO_ERROR, format!("could not read: {error}")));
            }
        }
        Ok(self.input.buffer())
    }

    /// The next byte that is no blank, which is not taken; `None` at the end.
    fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let bytes = self.some()?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let blanks = bytes.iter().position(|byte| !is_blank(*byte));
            let skipped = &bytes[..blanks.unwrap_or(bytes.len())];
            let (count, lines) = (skipped.len(), skipped.iter().filter(|byte| **byte == b'\n').count());
            let found = blanks.map(|at| bytes[at]);
            self.input.consume(count);
            self.line += lines as u64;
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    fn wrong<T>(&self, what: &str) -> Result<T> {
        Err(in_line(sqlstate::BAD_COPY_FILE_FORMAT, what, self.line))
    }

    /// Leaves out a byte order mark.
    fn skip_mark(&mut self) -> Result<()> {
        let mark = "\u{feff}".as_bytes();
        if self.some()?.starts_with(mark) {
            self.input.consume(mark.len());
        }
        Ok(())
    }

    /// Goes to the next document; false behind the last.
    fn advance(&mut self) -> Result<bool> {
        if self.place == Place::Start {
            self.skip_mark()?;
            let is_array = self.peek()? == Some(b'[');
            self.place = if is_array { Place::First } else { Place::Sequence };
            self.input.consume(usize::from(is_array));
        }
        match (self.place, self.peek()?) {
            (Place::Sequence | Place::End, None) => Ok(false),
            (Place::Sequence, Some(_)) => Ok(true),
            (Place::End, Some(_)) => self.wrong("there is something behind the array of documents"),
            (Place::First | Place::Next, Some(b']')) => {
                self.input.consume(1);
                self.place = Place::End;
                self.advance()
            }
            (Place::Next, Some(b',')) => {
                self.input.consume(1);
                self.peek()?;
                Ok(true)
            }
            (Place::First, Some(_)) => {
                self.place = Place::Next;
                Ok(true)
            }
            (Place::Next, Some(_)) => self.wrong("a comma is missing between two documents of an array"),
            (Place::First | Place::Next, None) => self.wrong("unterminated array of documents"),
            (Place::Start, _) => unreachable!("it has been left"),
        }
    }

    /// Reads the next document into `document`; returns the line on which it begins. `None` behind
    /// the last.
    ///
    /// # Errors
    /// 22P04 for an input that ends within a document or an array, 54000 for one that is too long.
    pub fn read(&mut self, document: &mut Vec<u8>) -> Result<Option<u64>> {
        document.clear();
        if !self.advance()? {
            return Ok(None);
        }
        let begun = self.line;
        let (mut depth, mut is_in_string, mut is_escaped) = (0u64, false, false);
        loop {
            let bytes = self.some()?;
            if bytes.is_empty() {
                return match depth == 0 && !is_in_string && !document.is_empty() {
                    true => Ok(Some(begun)),
                    false => Err(in_line(sqlstate::BAD_COPY_FILE_FORMAT, "unterminated document", begun)),
                };
            }
            let mut end = None;
            for (at, &byte) in bytes.iter().enumerate() {
                if is_in_string {
                    match byte {
                        _ if is_escaped => is_escaped = false,
                        b'\\' => is_escaped = true,
                        b'"' => is_in_string = false,
                        _ => continue,
                    }
                    if !is_in_string && depth == 0 {
                        end = Some(at + 1);
                        break;
                    }
                    continue;
                }
                match byte {
                    b'"' => is_in_string = true,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' if depth > 0 => {
                        depth -= 1;
                        if depth == 0 {
                            end = Some(at + 1);
                            break;
                        }
                    }
                    // A value that is neither a string nor has parts ends before these.
                    _ if depth == 0 && (is_blank(byte) || matches!(byte, b',' | b']' | b'}')) => {
                        end = Some(at);
                        break;
                    }
                    _ => {}
                }
            }
            let taken = &bytes[..end.unwrap_or(bytes.len())];
            document.extend_from_slice(taken);
            let (count, lines) = (taken.len(), taken.iter().filter(|byte| **byte == b'\n').count());
            self.input.consume(count);
            self.line += lines as u64;
            if end.is_some() {
                return match document.is_empty() {
                    true => Err(in_line(sqlstate::BAD_COPY_FILE_FORMAT, "a document is missing", begun)),
                    false => Ok(Some(begun)),
                };
            }
            if document.len() >= MAX_LINE {
                return Err(row_too_long());
            }
        }
    }
}

/// The members of a document that is on a line: keys, and values as they are written.
///
/// # Errors
/// 22P02 for a text that is no document, 22P04 for a document that is no object.
pub fn json_members(document: &[u8], line: u64) -> Result<impl Iterator<Item = (std::borrow::Cow<'_, str>, &str)>> {
    let text = text_in_line(document, line)?;
    check(text).and_then(|()| check_escapes(text)).map_err(|error| {
        let error = SqlError::from(EngineError::from(error));
        super::rows::at_place(error, &format!("line {line}"))
    })?;
    if !text.starts_with('{') {
        return Err(in_line(sqlstate::BAD_COPY_FILE_FORMAT, "a document is no object", line));
    }
    Ok(members(text))
}

/// Reads batches of texts.
pub(super) struct JsonReader<R> {
    documents: JsonDocuments<R>,
    /// The columns, by key.
    places: HashMap<String, usize>,
    /// By column, whether it takes documents.
    is_document: Vec<bool>,
    /// Whether other keys are errors.
    only_names: bool,
    document: Vec<u8>,
    failed: Option<SqlError>,
}

impl<R: Read> JsonReader<R> {
    /// Reads rows for columns of these types, whose names the options have.
    pub(super) fn new(input: R, options: &Options, types: &[ColumnType]) -> Self {
        let is_skipped = |at: usize| options.skipped.get(at).copied().unwrap_or_default();
        let places = options.names.iter().cloned().zip(0..);
        Self {
            documents: JsonDocuments::new(input),
            places: places.filter(|(_, at)| options.only_names || !is_skipped(*at)).collect(),
            is_document: types.iter().map(|column_type| column_type.is_document()).collect(),
            only_names: options.only_names,
            document: Vec::new(),
            failed: None,
        }
    }

    /// Reads a row; returns the line on which it begins. `None` behind the last.
    fn row(&mut self, columns: &mut [StringViewBuilder]) -> Result<Option<u64>> {
        let Some(line) = self.documents.read(&mut self.document)? else { return Ok(None) };
        let mut values: Vec<Option<std::borrow::Cow<'_, str>>> = vec![None; columns.len()];
        for (key, value) in json_members(&self.document, line)? {
            match self.places.get(key.as_ref()) {
                Some(&at) if self.is_document[at] && !value.starts_with('n') => values[at] = Some(value.into()),
                Some(&at) => values[at] = as_text(value),
                None if self.only_names => {
                    let message = format!("a document has the key \"{key}\", which is no column");
                    return Err(in_line(sqlstate::BAD_COPY_FILE_FORMAT, message, line));
                }
                None => {}
            }
        }
        for (column, value) in columns.iter_mut().zip(values) {
            column.append_option(value);
        }
        Ok(Some(line))
    }

    fn batch(&mut self) -> Result<Option<Rows>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (mut failed, mut bytes) = (None, 0);
        let rows = Rows::gather(self.is_document.len(), BATCH_ROWS, &mut failed, |columns, _| {
            if bytes >= BATCH_BYTES {
                return Ok(None);
            }
            let row = self.row(columns);
            bytes += self.document.len();
            row
        });
        self.failed = failed;
        rows
    }
}

impl<R: Read> Iterator for JsonReader<R> {
    type Item = Result<Rows>;
    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::csv::tests::Pieces;
    use super::*;
    use crate::options::Format;
    use datafusion::arrow::array::AsArray;

    fn options(names: &[&str], only_names: bool) -> Options {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Options { names, only_names, ..Options::new("", Format::Json) }
    }

    fn read(text: &str, size: usize, options: &Options, types: &[ColumnType]) -> Result<Vec<(u64, Vec<String>)>> {
        let mut all = Vec::new();
        for rows in JsonReader::new(Pieces(text.as_bytes(), size), options, types) {
            let rows = rows?;
            for (row, line) in rows.lines.iter().enumerate() {
                let text = |column: &datafusion::arrow::array::ArrayRef| {
                    let texts = column.as_string_view();
                    texts.iter().nth(row).flatten().unwrap_or("NULL").to_owned()
                };
                all.push((*line, rows.batch.columns().iter().map(text).collect()));
            }
        }
        Ok(all)
    }

    #[test]
    fn documents_stand_in_lines_or_in_an_array() {
        let types = [ColumnType::Utf8, ColumnType::Json];
        let wanted = |lines: [u64; 2]| {
            let rows = [["x\"}", "\"s\""], ["NULL", "{\"c\": [1, \"]\"]}"]];
            lines.into_iter().zip(rows.map(|row| row.map(str::to_owned).to_vec())).collect::<Vec<_>>()
        };
        let (a, b) = (r#"{"a": "x\"}", "b": "s"}"#, r#"{"b": {"c": [1, "]"]}, "a": null}"#);
        for (text, lines) in [
            (format!("{a}\n{b}\n"), [1, 2]),
            (format!("\u{feff}{a} {b}"), [1, 1]),
            (format!("[{a},\n\n{b}]\n"), [1, 3]),
            (format!(" [\n {a} , {b} ] "), [2, 2]),
        ] {
            for size in 3..=text.len() {
                assert_eq!(read(&text, size, &options(&["a", "b"], true), &types), Ok(wanted(lines)), "{text}");
            }
        }
        for text in ["", "\n", "[]", " [ ] "] {
            assert_eq!(read(text, 1, &options(&["a"], true), &types[..1]), Ok(Vec::new()), "{text}");
        }
    }

    #[test]
    fn what_is_no_list_of_objects_is_an_error_in_its_line() {
        for (text, sqlstate, line) in [
            ("{\"a\": 1}\n{\"a\": ", "22P04", 2),
            ("{\"a\": 1}\n7", "22P04", 2),
            ("[{\"a\": 1}\n", "22P04", 2),
            ("[{\"a\": 1}\n{\"a\": 1}]", "22P04", 2),
            ("[{\"a\": 1}]\n{}", "22P04", 2),
            ("{\"a\": 1}\n{\"a\": tru}", "22P02", 2),
            ("{\"a\": \"\\ud800\"}", "22P02", 1),
            ("{\"b\": 1}", "22P04", 1),
            ("}", "22P04", 1),
            ("[,]", "22P04", 1),
        ] {
            let error = read(text, 2, &options(&["a"], true), &[ColumnType::Utf8]).unwrap_err();
            let detail = error.detail.clone().unwrap_or_default();
            assert_eq!((error.sqlstate, detail.contains(&format!("line {line}"))), (sqlstate, true), "{text}: {error}");
        }
        let other = read("{\"b\": 1}", 2, &options(&["a"], false), &[ColumnType::Utf8]);
        assert_eq!(other, Ok(vec![(1, vec!["NULL".into()])]));
    }
}
