//! Rows as lines of text, in PostgreSQL's text format or as CSV.

use super::options::{Format, Options};
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::Schema;
use serac_engine::values::value_at;
use serac_values::wire::{Purpose, to_wire, width, wire_type, with_texts, write_blanks, write_styled_text, write_text};
use serac_values::{Result, SqlError, TimeStyle};
use std::io::Write;
use std::sync::Arc;

/// Writes batches, each row in one piece.
pub(super) struct LineWriter<W> {
    output: W,
    delimiter: u8,
    null: String,
    /// Quote and escape of CSV; `None` in the text format.
    quotes: Option<(u8, u8)>,
    /// The names of the columns, before they are written.
    header: Option<Vec<String>>,
    /// By column, whether its values are always in quotes.
    quoted: Vec<bool>,
    /// By column, the number of characters that a CHAR(n) shows.
    widths: Vec<Option<usize>>,
    /// The session's settings of times; `None` for the defaults.
    style: Option<Arc<TimeStyle>>,
}

fn failed(error: &std::io::Error) -> SqlError {
    SqlError::new(sqlstate::IO_ERROR, format!("could not write: {error}"))
}

impl<W: Write> LineWriter<W> {
    pub(super) fn new(output: W, options: &Options, schema: &Schema) -> Result<Self> {
        let quotes = (options.format == Format::Csv).then_some((options.quote, options.escape));
        let header = options.header.then(|| schema.fields().iter().map(|field| field.name().clone()).collect());
        let widths = schema.fields().iter().map(|field| width(field)).collect();
        let (null, style) = (options.null.clone(), options.style.clone());
        let quoted = options.quoted_columns(schema)?;
        Ok(Self { output, delimiter: options.delimiter, null, quotes, header, quoted, widths, style })
    }

    /// Adds a value that is not NULL. `is_lone`: its line has no other value; `is_quoted`: it is in
    /// quotes in any case.
    fn put(&self, line: &mut Vec<u8>, value: &[u8], is_lone: bool, is_quoted: bool) {
        let Some((quote, escape_byte)) = self.quotes else { return escape(line, value, self.delimiter) };
        let parts_lines = |byte: &u8| *byte == self.delimiter || *byte == quote || b"\r\n".contains(byte);
        // The text of NULL, or of the end mark, has no special meaning in quotes.
        let means_more = value == self.null.as_bytes() || (is_lone && value == b"\\.");
        if !is_quoted && !means_more && !value.iter().any(parts_lines) {
            return line.extend_from_slice(value);
        }
        line.push(quote);
        for &byte in value {
            if byte == quote || byte == escape_byte {
                line.push(escape_byte);
            }
            line.push(byte);
        }
        line.push(quote);
    }

    fn put_header(&mut self, lines: &mut Vec<u8>) {
        let Some(names) = self.header.take() else { return };
        for (i, name) in names.iter().enumerate() {
            if i > 0 {
                lines.push(self.delimiter);
            }
            self.put(lines, name.as_bytes(), names.len() == 1, false);
        }
        lines.push(b'\n');
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let (mut line, mut value) = (Vec::new(), Vec::new());
        self.put_header(&mut line);
        let types: Vec<_> = batch.columns().iter().map(|array| wire_type(array.data_type())).collect();
        let column = |array: &ArrayRef| match &self.style {
            // Arrays and rows are texts before their values are written.
            Some(style) if array.data_type().is_nested() => {
                Ok::<_, SqlError>(to_wire(&with_texts(array, style, Purpose::Text)?)?)
            }
            _ => Ok(to_wire(array)?),
        };
        let columns = batch.columns().iter().map(column).collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            for (i, (column, column_type)) in columns.iter().zip(&types).enumerate() {
                if i > 0 {
                    line.push(self.delimiter);
                }
                if column.is_null(row) {
                    line.extend_from_slice(self.null.as_bytes());
                } else {
                    value.clear();
                    let given = value_at(column, row, *column_type);
                    match &self.style {
                        Some(style) => write_styled_text(&mut value, given, *column_type, style),
                        None => write_text(&mut value, given, *column_type),
                    }
                    write_blanks(&mut value, given, self.widths[i]);
                    self.put(&mut line, &value, columns.len() == 1, self.quoted[i]);
                }
            }
            line.push(b'\n');
            self.output.write_all(&line).map_err(|error| failed(&error))?;
            line.clear();
        }
        self.output.write_all(&line).map_err(|error| failed(&error))
    }

    pub(super) fn finish(mut self) -> Result<W> {
        let mut line = Vec::new();
        self.put_header(&mut line);
        self.output.write_all(&line).map_err(|error| failed(&error))?;
        Ok(self.output)
    }
}

/// Adds a text with backslashes before bytes that would have another meaning.
fn escape(line: &mut Vec<u8>, text: &[u8], delimiter: u8) {
    for &byte in text {
        let letter = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            byte if byte == delimiter => delimiter,
            byte => {
                line.push(byte);
                continue;
            }
        };
        line.extend_from_slice(&[b'\\', letter]);
    }
}
