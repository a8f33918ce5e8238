//! Facts about CSV from a sample: delimiter, quote, whether there is a header, names of columns.
//!
//! The delimiter is the one of a few with which all rows have the same number of fields, and more
//! than with the others. The first row is a header if a column of another type than text cannot
//! have it as a value. If all columns are texts, it is one if its fields could be names and differ
//! from each other.

use crate::guess::Guess;
use crate::request::{FileRequest, MOST_COLUMNS, too_many_columns};
use serac_copy::{Format, Options, SampleField, csv_sample};
use serac_values::{Result, SqlError};
use std::collections::HashSet;

/// Delimiters that are tried, the most likely first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// A byte that stands for no quote: it cannot stand in a text.
const NO_QUOTE: u8 = 0xff;

/// How a file of CSV is written.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Dialect {
    pub(crate) delimiter: u8,
    pub(crate) quote: u8,
    pub(crate) escape: u8,
    pub(crate) null: String,
}

impl Dialect {
    /// The options by which it is read.
    pub(crate) fn options(&self) -> Options {
        Options {
            delimiter: self.delimiter,
            quote: self.quote,
            escape: self.escape,
            null: self.null.clone(),
            ..Options::new("", Format::Csv)
        }
    }
}

/// The facts that a sample of a file gives.
#[derive(Debug)]
pub(crate) struct CsvLook {
    pub(crate) dialect: Dialect,
    /// The fields of the header, if there is one.
    pub(crate) header: Option<Vec<String>>,
    /// Columns.
    pub(crate) width: usize,
    /// The types that the values of each may have.
    pub(crate) guesses: Vec<Guess>,
    /// The row of a file that has one alone, if nothing says whether it is a header. `header` and
    /// `guesses` take it for values.
    pub(crate) only_row: Option<Vec<String>>,
}

type Row = Vec<SampleField>;

/// The rows of a sample, without the last if it may be cut off.
fn rows_of(sample: &[u8], is_whole: bool, dialect: &Dialect, most: usize) -> Result<Vec<Row>> {
    let (mut rows, failed) = csv_sample(sample, &dialect.options(), most);
    match failed {
        // At the end of a sample, a quoted field may go on behind it.
        Some(error) if is_whole || rows.is_empty() => return Err(error),
        None if !is_whole && rows.len() < most && rows.len() > 1 => drop(rows.pop()),
        _ => {}
    }
    Ok(rows)
}

/// How well a dialect fits: rows with the most frequent number of fields, by a thousand of all, and
/// that number.
fn fit(rows: &[Row]) -> (usize, usize) {
    let mut widths: Vec<usize> = rows.iter().map(Vec::len).collect();
    widths.sort_unstable();
    let runs = widths.chunk_by(|a, b| a == b);
    let best = runs.map(|run| (run.len(), run[0])).max().unwrap_or((0, 0));
    (best.0 * 1_000 / rows.len().max(1), best.1)
}

/// The dialect of a sample, and its rows.
fn dialect_of(sample: &[u8], is_whole: bool, request: &FileRequest, most: usize) -> Result<(Dialect, Vec<Row>)> {
    let quote = match request.quote {
        Some(0) => NO_QUOTE,
        Some(quote) => quote,
        // Apostrophes stand in many texts, and quote a few files.
        None if !sample.contains(&b'"') && begins_fields(sample, b'\'') => b'\'',
        // Who writes quotes around fields does so where a field has one: `5" pipe` has no quotes.
        None if sample.contains(&b'"') && !begins_a_field(sample, b'"', request.delimiter) => NO_QUOTE,
        None => b'"',
    };
    let escape = request.escape.unwrap_or(quote);
    let null = request.null.clone().unwrap_or_default();
    let with = |delimiter| Dialect { delimiter, quote, escape, null: null.clone() };
    if let Some(delimiter) = request.delimiter {
        let dialect = with(delimiter);
        let rows = rows_of(sample, is_whole, &dialect, most)?;
        return Ok((dialect, rows));
    }
    let mut best: Option<((usize, usize), Dialect, Vec<Row>)> = None;
    let mut failed = None;
    for delimiter in DELIMITERS {
        let dialect = with(delimiter);
        let rows = match rows_of(sample, is_whole, &dialect, most) {
            Ok(rows) => rows,
            Err(error) => {
                failed.get_or_insert(error);
                continue;
            }
        };
        let fit = fit(&rows);
        let is_better = |(best, ..): &((usize, usize), Dialect, Vec<Row>)| {
            // A single column fits always.
            (fit.1 > 1, fit.0 == 1_000, fit) > (best.1 > 1, best.0 == 1_000, *best)
        };
        if best.as_ref().is_none_or(is_better) {
            best = Some((fit, dialect, rows));
        }
    }
    match (best, failed) {
        (Some((_, dialect, rows)), _) => Ok((dialect, rows)),
        (None, Some(error)) => Err(error),
        (None, None) => Err(SqlError::new(sqlstate::INTERNAL_ERROR, "no delimiter was tried")),
    }
}

/// Whether lines begin with a byte, and end with it.
fn begins_fields(sample: &[u8], quote: u8) -> bool {
    let mut lines = sample.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).take(20).peekable();
    let is_quoted =
        |line: &[u8]| line.first() == Some(&quote) && line.iter().filter(|byte| **byte == quote).count() % 2 == 0;
    lines.peek().is_some() && lines.all(is_quoted)
}

/// Whether a field begins with a byte.
fn begins_a_field(sample: &[u8], quote: u8, delimiter: Option<u8>) -> bool {
    let sample = sample.strip_prefix("\u{feff}".as_bytes()).unwrap_or(sample);
    let ends_field = |byte: u8| b"\r\n".contains(&byte) || delimiter == Some(byte) || DELIMITERS.contains(&byte);
    sample.first() == Some(&quote) || sample.windows(2).any(|pair| pair[1] == quote && ends_field(pair[0]))
}

/// Whether a field could be a column's name.
fn is_name(field: &str) -> bool {
    let begins = field.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    begins && field.len() <= 128 && field.chars().all(|c| c.is_alphanumeric() || " _-.()#/%$:".contains(c))
}

/// Whether the first of some rows cannot be one like the others. `guesses` are those of the others.
fn is_unlike(first: &Row, guesses: &[Guess]) -> bool {
    first.iter().zip(guesses).any(|((text, _), guess)| !text.is_empty() && guess.refuses(text))
}

/// Whether the first of some rows is a header. `guesses` are those of the rows behind it.
fn is_header(first: &Row, guesses: &[Guess], has_more: bool) -> bool {
    if is_unlike(first, guesses) {
        return true;
    }
    let mut seen = HashSet::new();
    let are_texts = guesses.iter().all(|guess| guess.column_type() == serac_storage::ColumnType::Utf8);
    has_more && are_texts && first.iter().all(|(text, _)| is_name(text) && seen.insert(text))
}

/// Looks at the beginning of a file. `known`, `known_header`: the dialect of the files before it,
/// and whether these have a header. `None` if it is empty.
///
/// # Errors
/// 22P04 for what is no CSV, and for a header where the files before have none; 22021 for bytes
/// that are no text.
pub(crate) fn look(
    sample: &[u8],
    is_whole: bool,
    request: &FileRequest,
    known: Option<&Dialect>,
    known_header: Option<bool>,
) -> Result<Option<CsvLook>> {
    let most = request.sample_rows.saturating_add(1);
    let (dialect, rows) = match known {
        Some(known) => (known.clone(), rows_of(sample, is_whole, known, most)?),
        None => dialect_of(sample, is_whole, request, most)?,
    };
    let Some(first) = rows.first() else { return Ok(None) };
    let width = first.len();
    if width > MOST_COLUMNS {
        return Err(too_many_columns());
    }
    let guessed = |rows: &[Row]| {
        let mut guesses = vec![Guess::default(); width];
        for row in rows.iter().filter(|row| row.len() == width) {
            for (guess, (text, is_quoted)) in guesses.iter_mut().zip(row) {
                if *is_quoted || *text != dialect.null {
                    guess.see_text(text);
                }
            }
        }
        guesses
    };
    let behind = guessed(&rows[1..]);
    let said = request.header.or(known_header);
    let has_header = said.unwrap_or_else(|| is_header(first, &behind, rows.len() > 1 || !is_whole));
    if request.header.is_none() && !has_header && is_unlike(first, &behind) {
        let error = SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, "the file has a header, unlike the first one");
        return Err(error.also("header => false reads the first line of each file as values."));
    }
    let texts = || first.iter().map(|(text, _)| text.clone()).collect();
    let header = has_header.then(texts);
    let only_row = (said.is_none() && rows.len() == 1 && is_whole).then(texts);
    let guesses = if has_header { behind } else { guessed(&rows) };
    Ok(Some(CsvLook { dialect, header, width, guesses, only_row }))
}

/// Names of columns from a header, each of them once: a name that comes again gets a number, and
/// one that is missing that of its place.
pub(crate) fn names_of(header: Option<&[String]>, width: usize) -> Vec<String> {
    let mut seen = HashSet::new();
    (0..width)
        .map(|at| {
            let own = header.and_then(|header| header.get(at)).map_or("", |name| name.trim());
            let own = if own.is_empty() { format!("column{}", at + 1) } else { own.to_owned() };
            let mut name = own.clone();
            let mut number = 1;
            while !seen.insert(name.clone()) {
                name = format!("{own}_{number}");
                number += 1;
            }
            name
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Assign, FileFormat, Given};
    use datafusion::common::ScalarValue;
    use serac_storage::ColumnType;
    use std::sync::Arc;

    fn request() -> FileRequest {
        let assign: Assign = Arc::new(serac_values::assignment::assign);
        FileRequest::new(Some(FileFormat::Csv), &ScalarValue::from("a"), Given::default(), assign).unwrap()
    }

    fn looked(text: &str, is_whole: bool) -> CsvLook {
        look(text.as_bytes(), is_whole, &request(), None, None).unwrap().unwrap()
    }

    fn types(look: &CsvLook) -> Vec<ColumnType> {
        look.guesses.iter().map(|guess| guess.column_type()).collect()
    }

    #[test]
    fn delimiters_and_headers_are_found() {
        for (text, delimiter, header, width) in [
            ("id,name\n1,x\n2,y\n", b',', true, 2),
            ("id;name\n1;x,y\n2;y,z\n", b';', true, 2),
            ("1\ta\n2\tb\n", b'\t', false, 2),
            ("a|b|c\n\"x|y\"|1|2\n", b'|', true, 3),
            ("'a;b';'c'\n'd';'e'\n", b';', false, 2),
            ("first name,last name\nAda,Lovelace\n", b',', true, 2),
            ("Ada,Ada\nAlan,Turing\n", b',', false, 2),
            ("only\nx\ny\n", b',', true, 1),
            ("size,price\n5\" pipe,2\n6\" pipe,3\n", b',', true, 2),
            ("1\n2\n", b',', false, 1),
            ("a,b\n", b',', false, 2),
            ("\u{feff}a,b\n1,2\n", b',', true, 2),
        ] {
            let look = looked(text, true);
            let found = (look.dialect.delimiter, look.header.is_some(), look.width);
            assert_eq!(found, (delimiter, header, width), "{text:?}");
        }
        assert_eq!(looked("\u{feff}a,b\n1,2\n", true).header.unwrap(), ["a", "b"]);
        // The row behind the header goes on behind the sample.
        assert_eq!(looked("a,b\n1,\"cut", false).header.unwrap(), ["a", "b"]);
        assert_eq!(looked("a\n5\" pipe\n", true).dialect.quote, NO_QUOTE);
        assert_eq!(looked("a\n\"5\"\" pipe\"\n", true).dialect.quote, b'"');
        assert!(look(b"", true, &request(), None, None).unwrap().is_none());
    }

    #[test]
    fn types_come_from_rows_that_are_whole() {
        assert_eq!(types(&looked("a,b\n1,2024-01-01\n2,2024-0", false)), [ColumnType::Int64, ColumnType::Date]);
        assert_eq!(types(&looked("a,b\n1,\n2,x\n", true)), [ColumnType::Int64, ColumnType::Utf8]);
        assert_eq!(types(&looked("a,b\n1,\"\"\n2,3\n", true)), [ColumnType::Int64, ColumnType::Utf8]);
        assert_eq!(types(&looked("a\n1\n\"cut", false)), [ColumnType::Int64]);
    }

    #[test]
    fn what_is_no_csv_is_an_error() {
        let error = look(b"a\n\"open", true, &request(), None, None).unwrap_err();
        assert_eq!(error.sqlstate, sqlstate::BAD_COPY_FILE_FORMAT);
        let many = ",".repeat(MOST_COLUMNS);
        let error = look(many.as_bytes(), true, &request(), None, None).unwrap_err();
        assert_eq!(error.sqlstate, sqlstate::TOO_MANY_COLUMNS);
        for text in [&b"a,b\n\xff\xfe,1\n"[..], b"a\n5\" \xff pipe\xff\n"] {
            let error = look(text, true, &request(), None, None).unwrap_err();
            assert_eq!(error.sqlstate, sqlstate::CHARACTER_NOT_IN_REPERTOIRE);
        }
    }

    #[test]
    fn each_column_has_a_name_of_its_own() {
        let header: Vec<String> = ["a", "", "a", " a_1 ", "a"].map(str::to_owned).to_vec();
        assert_eq!(names_of(Some(&header), 6), ["a", "column2", "a_1", "a_1_1", "a_2", "column6"]);
        assert_eq!(names_of(None, 2), ["column1", "column2"]);
    }
}
