//! The form of a CSV file, by its beginning: its delimiter, its quotes, whether its first line has
//! the columns' names, and the types of its columns.

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use csv::{ReaderBuilder, StringRecord};
use std::collections::HashSet;

/// The rows from which the delimiter is detected.
const ROWS_FOR_DELIMITER: usize = 1_000;
/// The delimiters that are detected. A character that is rare in texts stands before a frequent
/// one.
const DELIMITERS: [u8; 4] = [b'\t', b';', b'|', b','];

/// The form of CSV that the user has given; fields that are `None` are detected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said {
    pub header: Option<bool>,
    pub delimiter: Option<u8>,
    pub quote: Option<u8>,
}

/// The form of a CSV file.
#[derive(Clone, PartialEq, Debug)]
pub struct Sniffed {
    pub delimiter: u8,
    pub quote: u8,
    pub header: bool,
    /// The columns' names: those of the header, or generated ones.
    pub names: Vec<String>,
    pub types: Vec<DataType>,
}

fn rows(sample: &[u8], delimiter: u8, quote: u8, most: usize) -> Vec<StringRecord> {
    let mut builder = ReaderBuilder::new();
    let reader = builder.has_headers(false).flexible(true).delimiter(delimiter).quote(quote).from_reader(sample);
    reader.into_records().map_while(Result::ok).take(most).collect()
}

/// The number of columns that most rows have, and the share of these rows.
fn columns(rows: &[StringRecord]) -> (usize, f64) {
    let mut counts = std::collections::BTreeMap::new();
    for row in rows {
        *counts.entry(row.len()).or_insert(0usize) += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map_or((0, 0.0), |(columns, count)| (columns, count as f64 / rows.len() as f64))
}

/// The quotes: single quotes if more fields begin with them than with double quotes.
fn quote_of(sample: &[u8]) -> u8 {
    let opening = |quote: u8| {
        let at_begin = |at: usize| at == 0 || matches!(sample[at - 1], b'\n' | b'\t' | b';' | b'|' | b',');
        sample.iter().enumerate().filter(|(at, byte)| **byte == quote && at_begin(*at)).count()
    };
    if opening(b'\'') > opening(b'"') { b'\'' } else { b'"' }
}

/// The delimiter with which the largest share of the rows has the same number of columns, more than
/// one.
fn delimiter_of(sample: &[u8], quote: u8) -> u8 {
    let mut best = (b',', 0.0);
    for delimiter in DELIMITERS {
        let (columns, share) = columns(&rows(sample, delimiter, quote, ROWS_FOR_DELIMITER));
        if columns > 1 && share > best.1 {
            best = (delimiter, share);
        }
    }
    best.0
}

/// Whether a type can represent a text. A column gets the first type that can represent all of its
/// texts.
fn fits(data_type: &DataType, text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    // Customer numbers, postal codes and phone numbers may begin with a zero: they are texts, not
    // numbers.
    let has_zero_in_front = digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit();
    let is_plain = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && !has_zero_in_front;
    match data_type {
        DataType::Boolean => matches!(text.to_ascii_lowercase().as_str(), "true" | "false"),
        DataType::Int64 => is_plain && text.parse::<i64>().is_ok(),
        DataType::Decimal128(..) => {
            is_plain && digits.len() <= 38 && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        }
        DataType::Float64 => is_plain && text.parse::<f64>().is_ok(),
        DataType::Date32 => is_date(text),
        DataType::Timestamp(_, zone) => {
            let Some((date, time)) = text.split_at_checked(10) else { return false };
            let Some(time) = time.strip_prefix([' ', 'T']) else { return false };
            let without_zone = time.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':');
            let zone_at = match without_zone.chars().next_back() {
                Some('+' | '-') => Some(without_zone.len() - 1),
                Some('Z') if time.ends_with('Z') => Some(time.len() - 1),
                _ => None,
            };
            is_date(date) && is_time(&time[..zone_at.unwrap_or(time.len())]) && zone_at.is_some() == zone.is_some()
        }
        DataType::Time64(_) => is_time(text),
        _ => true,
    }
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let number = |text: &str, digits: usize, most: u32| {
        text.len() == digits && text.bytes().all(|b| b.is_ascii_digit()) && text.parse().is_ok_and(|n: u32| n <= most)
    };
    matches!(parts[..], [year, month, day] if number(year, 4, 9999) && number(month, 2, 12) && number(day, 2, 31))
}

/// Hours and minutes, and perhaps seconds with a fraction.
fn is_time(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = whole.split(':').collect();
    let number = |text: &str, most: u32| text.len() == 2 && text.parse().is_ok_and(|n: u32| n <= most);
    let in_bounds = match parts[..] {
        [hour, minute] => number(hour, 23) && number(minute, 59) && !text.contains('.'),
        [hour, minute, second] => number(hour, 23) && number(minute, 59) && number(second, 59),
        _ => false,
    };
    in_bounds && !fraction.is_empty() && fraction.len() <= 9 && fraction.bytes().all(|b| b.is_ascii_digit())
}

/// The type of a column with these texts. An empty text is NULL, which all types have; a column of
/// nothing else is of texts.
fn type_of<'t>(texts: impl Iterator<Item = &'t str> + Clone) -> DataType {
    let utc = Some("UTC".into());
    let types = [
        DataType::Boolean,
        DataType::Int64,
        DataType::Decimal128(38, 0),
        DataType::Float64,
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Microsecond, utc),
        DataType::Time64(TimeUnit::Microsecond),
    ];
    let texts = texts.filter(|text| !text.is_empty());
    if texts.clone().next().is_none() {
        return DataType::Utf8;
    }
    types.into_iter().find(|data_type| texts.clone().all(|text| fits(data_type, text))).unwrap_or(DataType::Utf8)
}

/// Names for columns: each not empty, and each once.
fn distinct(given: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut names = Vec::new();
    for (at, name) in given.enumerate() {
        let name = if name.is_empty() { format!("column_{}", at + 1) } else { name };
        let mut unique = name.clone();
        let mut number = 1;
        while !seen.insert(unique.to_lowercase()) {
            number += 1;
            unique = format!("{name}_{number}");
        }
        names.push(unique);
    }
    names
}

impl Sniffed {
    /// The form of the file that begins with `sample`. `known`: the columns' names of its table, if
    /// that exists already.
    pub fn new(sample: &[u8], said: Said, known: Option<&[String]>) -> Self {
        let quote = said.quote.unwrap_or_else(|| quote_of(sample));
        let delimiter = said.delimiter.unwrap_or_else(|| delimiter_of(sample, quote));
        let rows = rows(sample, delimiter, quote, usize::MAX);
        let (count, _) = columns(&rows);
        let types_from = |from: usize| -> Vec<DataType> {
            let rows = rows.get(from..).unwrap_or_default();
            (0..count).map(|at| type_of(rows.iter().filter_map(|row| row.get(at)))).collect()
        };
        // COPY takes an empty line for the line of names, too; `rows` has no empty lines.
        let text = sample.strip_prefix("\u{feff}".as_bytes()).unwrap_or(sample);
        let is_nameless = text.starts_with(b"\n") || text.starts_with(b"\r");
        let below = types_from(usize::from(!is_nameless));
        let first = rows.first().filter(|_| !is_nameless);
        let first: Vec<&str> = first.map(|row| row.iter().map(str::trim).collect()).unwrap_or_default();
        let is_found = || !is_nameless && Self::has_header(&first, &below, rows.len(), known);
        let header = said.header.unwrap_or_else(is_found);
        let names = match header {
            true => distinct((0..count.max(first.len())).map(|at| first.get(at).copied().unwrap_or("").to_owned())),
            false => (1..=count).map(|at| format!("column_{at}")).collect(),
        };
        let mut types = if header { below } else { types_from(0) };
        types.resize(names.len(), DataType::Utf8);
        Self { delimiter, quote, header, names, types }
    }

    /// Whether the first row has names: those of the table's columns, or texts above columns that
    /// hold no texts. If all columns hold texts, the rows do not tell: an existing table knows its
    /// columns, and a new one gets names.
    fn has_header(first: &[&str], below: &[DataType], rows: usize, known: Option<&[String]>) -> bool {
        let known_name = |name: &&str| known.is_some_and(|all| all.iter().any(|k| k.eq_ignore_ascii_case(name)));
        if !first.is_empty() && first.iter().all(known_name) {
            return true;
        }
        let are_names = first.iter().all(|name| !name.is_empty() && type_of(std::iter::once(*name)) == DataType::Utf8);
        let are_distinct = first.iter().collect::<HashSet<_>>().len() == first.len();
        let is_told = below.iter().any(|data_type| *data_type != DataType::Utf8);
        are_names && are_distinct && (is_told || (known.is_none() && rows > 1))
    }

    /// The columns of a table for the file.
    pub fn schema(&self) -> Schema {
        let fields = self.names.iter().zip(&self.types);
        Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type.clone(), true)).collect::<Vec<_>>())
    }
}

/// The part of a sample that ends with a whole line.
pub fn whole_lines(sample: &[u8]) -> &[u8] {
    let end = sample.iter().rposition(|byte| *byte == b'\n').map_or(sample.len(), |at| at + 1);
    &sample[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sniff(text: &str) -> Sniffed {
        Sniffed::new(text.as_bytes(), Said::default(), None)
    }

    #[test]
    fn delimiter_quotes_and_header_are_found() {
        for (text, delimiter, quote, header, names) in [
            ("id,name\n1,ada\n2,bob\n", b',', b'"', true, "id|name"),
            ("1,ada\n2,bob\n", b',', b'"', false, "column_1|column_2"),
            ("id;price\n1;1,5\n2;2,5\n", b';', b'"', true, "id|price"),
            ("id\tname\n1\ta,b\n", b'\t', b'"', true, "id|name"),
            ("id|text\n1|'a|b'\n2|'c'\n", b'|', b'\'', true, "id|text"),
            ("id,text\n1,\"a;b;c\nd\"\n2,x\n", b',', b'"', true, "id|text"),
            ("name,city\nada,London\nbob,Paris\n", b',', b'"', true, "name|city"),
            ("\u{feff}id,name\n1,x\n", b',', b'"', true, "id|name"),
            ("id,,id\n1,2,3\n", b',', b'"', false, "column_1|column_2|column_3"),
            ("n\n1\n2\n", b',', b'"', true, "n"),
            ("it's,1\nthat's,2\n", b',', b'"', false, "column_1|column_2"),
        ] {
            let found = sniff(text);
            assert_eq!((found.delimiter, found.quote, found.header), (delimiter, quote, header), "{text}");
            assert_eq!(found.names.join("|"), names, "{text}");
        }
    }

    #[test]
    fn a_table_that_is_there_knows_its_columns() {
        let known = ["name".to_owned(), "City".into()];
        let header = |text: &str| Sniffed::new(text.as_bytes(), Said::default(), Some(&known)).header;
        assert!(header("city,Name\nLondon,ada\n"));
        assert!(!header("ada,London\nbob,Paris\n"));
        assert!(header("who,age\nada,3\n"));
        let said = Said { header: Some(true), ..Said::default() };
        let found = Sniffed::new(b"a,,a\n1,2,3\n", said, None);
        assert_eq!(found.names, ["a", "column_2", "a_2"]);
        // An empty first line has no names.
        for text in ["\nname,age\nada,3\n", "\r\nname,age\r\nada,3\r\n", "\u{feff}\nname,age\nada,3\n"] {
            assert!(!sniff(text).header, "{text:?}");
            let found = Sniffed::new(text.as_bytes(), said, None);
            assert_eq!(found.names, ["column_1", "column_2"], "{text:?}");
            assert_eq!(found.types, [DataType::Utf8, DataType::Utf8], "{text:?}");
        }
    }

    #[test]
    fn types_are_those_of_all_texts() {
        let types = |text: &str| {
            let said = Said { header: Some(false), delimiter: Some(b','), ..Said::default() };
            Sniffed::new(text.as_bytes(), said, None).types
        };
        let utc = Some("UTC".into());
        for (text, wanted) in [
            ("1\n-2\n\n", DataType::Int64),
            ("0\n10\n", DataType::Int64),
            ("007\n12\n", DataType::Utf8),
            ("-01\n", DataType::Utf8),
            ("+49301234\n", DataType::Utf8),
            ("00.5\n", DataType::Utf8),
            ("0.5\n1e3\n2\n", DataType::Float64),
            ("inf\n", DataType::Utf8),
            ("nan\n", DataType::Utf8),
            ("12345678901234567890\n1\n", DataType::Decimal128(38, 0)),
            ("true\nFALSE\n", DataType::Boolean),
            ("2024-02-29\n", DataType::Date32),
            ("2024-02-29\n2024\n", DataType::Utf8),
            ("2024-02-29 10:00\n", DataType::Timestamp(TimeUnit::Microsecond, None)),
            ("2024-02-29T10:00:00.25Z\n2024-02-29 10:00:00+02:00\n", DataType::Timestamp(TimeUnit::Microsecond, utc)),
            ("10:00\n23:59:59.5\n", DataType::Time64(TimeUnit::Microsecond)),
            ("1-2\n", DataType::Utf8),
            ("\"\",\n", DataType::Utf8),
        ] {
            assert_eq!(types(text)[0], wanted, "{text}");
        }
    }
}
