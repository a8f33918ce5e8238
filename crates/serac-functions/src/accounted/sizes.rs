//! The size of a call's result in bytes, before the call.

use crate::regexes::compiled;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Date32Type, Int32Type, Int64Type, IntervalMonthDayNanoType, TimeUnit};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;
use regex::Regex;
use serac_values::text_types::is_text;
use std::cell::RefCell;

/// The bytes of an element of a list beside its value: its view or offset.
const ELEMENT: u64 = 16;
/// Digits of a document's number at the most.
const MOST_DIGITS: u64 = 131_072;

/// The functions whose results may be far larger than their arguments, and the size of these
/// results.
pub(super) static SIZES: &[(&str, Size)] = &[
    ("repeat", Size::Rows(|row| row.bytes(0).saturating_mul(row.number(1)))),
    ("lpad", Size::Rows(padded)),
    ("rpad", Size::Rows(padded)),
    ("replace", Size::Checked(replaced, replaced_at_most)),
    ("translate", Size::Factor(4)),
    ("overlay", Size::Factor(1)),
    ("concat", Size::Factor(1)),
    ("concat_ws", Size::Rows(|row| sum(row).saturating_add(row.bytes(0).saturating_mul(row.count() as u64)))),
    (super::TEXTCAT, Size::Factor(1)),
    ("regexp_replace", Size::Checked(regex_replaced, regex_replaced_at_most)),
    ("format", Size::Factor(2)),
    ("quote_literal", Size::Factor(2)),
    ("quote_nullable", Size::Factor(2)),
    ("quote_ident", Size::Factor(2)),
    ("encode", Size::Factor(4)),
    ("to_char", Size::Rows(|row| row.bytes(1).saturating_mul(8).saturating_add(64))),
    ("string_to_array", Size::Factor(1 + ELEMENT)),
    ("string_to_table", Size::Factor(1 + ELEMENT)),
    ("regexp_split_to_array", Size::Factor(1 + ELEMENT)),
    ("regexp_split_to_table", Size::Factor(1 + ELEMENT)),
    ("array_repeat", Size::Rows(|row| (row.bytes(0).saturating_add(ELEMENT)).saturating_mul(row.number(1)))),
    (
        "array_resize",
        Size::Rows(|row| row.bytes(0).saturating_add((row.bytes(2) + ELEMENT).saturating_mul(row.number(1)))),
    ),
    ("array_concat", Size::Factor(1)),
    ("array_cat", Size::Factor(1)),
    ("list_concat", Size::Factor(1)),
    ("list_cat", Size::Factor(1)),
    ("array_append", Size::Factor(1)),
    ("array_prepend", Size::Factor(1)),
    ("make_array", Size::Factor(1)),
    (super::ARRAY, Size::Cast),
    (super::TEXT, Size::Cast),
    (super::DOCUMENT, Size::Rows(document)),
    ("json_jsonb", Size::Rows(document)),
    ("to_jsonb", Size::Rows(document)),
    ("jsonb_build_array", Size::Rows(documents)),
    ("jsonb_build_object", Size::Rows(documents)),
    ("json_in", Size::Factor(1)),
    ("generate_series", Size::Rows(series)),
    ("range", Size::Rows(series)),
];

/// The relation of a result's size to the arguments.
#[derive(Clone, Copy)]
pub(super) enum Size {
    /// At most this many times the bytes of all arguments.
    Factor(u64),
    /// The bytes of a row's result, at the most.
    Rows(fn(&Row) -> u64),
    /// The same by a count that reads the texts, for rows of which a bound that costs nothing, the
    /// second, is large.
    Checked(fn(&Row) -> u64, fn(&Row) -> u64),
    /// The bytes of the only argument as values of the result's type.
    Cast,
}

/// An argument: a constant's value, or an array of values.
enum Argument<'a> {
    Text(&'a str),
    One(ArrayRef),
    Rows(&'a ArrayRef),
}

/// The arguments of a call.
pub(super) struct Arguments<'a>(Vec<Argument<'a>>);

/// The arguments of one row.
pub(super) struct Row<'a> {
    arguments: &'a [Argument<'a>],
    row: usize,
}

/// Bytes of results: of all rows together, and of the largest.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Bytes {
    pub all: u64,
    pub largest: u64,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(values: &'a [ColumnarValue]) -> Result<Self> {
        let argument = |value: &'a ColumnarValue| {
            Ok(match value {
                ColumnarValue::Array(array) => Argument::Rows(array),
                ColumnarValue::Scalar(
                    ScalarValue::Utf8(Some(text))
                    | ScalarValue::Utf8View(Some(text))
                    | ScalarValue::LargeUtf8(Some(text)),
                ) => Argument::Text(text),
                ColumnarValue::Scalar(scalar) => Argument::One(scalar.to_array_of_size(1)?),
            })
        };
        Ok(Self(values.iter().map(argument).collect::<Result<_>>()?))
    }

    /// A bound of all bytes of arguments in `rows` rows.
    fn bytes(&self, rows: usize) -> u64 {
        let one = |argument: &Argument| match argument {
            Argument::Text(text) => (text.len() as u64).saturating_mul(rows as u64),
            Argument::One(array) => bytes_of(array, 0).saturating_mul(rows as u64),
            Argument::Rows(array) => bytes_of_all(array),
        };
        self.0.iter().map(one).fold(0, u64::saturating_add)
    }

    /// A bound of the bytes of the only argument in `rows` rows as values of type `to`.
    fn bytes_as(&self, to: &DataType, rows: usize) -> u64 {
        match self.0.first() {
            None => 0,
            Some(Argument::Text(text)) => (text.len() as u64 + ELEMENT).saturating_mul(rows as u64),
            Some(Argument::One(array)) => bytes_as(array, to).saturating_mul(rows as u64),
            Some(Argument::Rows(array)) => bytes_as(array, to),
        }
    }

    /// The bytes of the results of `rows` rows, which are of type `to`. A bound that is at most
    /// `enough` is not made exact.
    pub(super) fn results(&self, size: Size, to: &DataType, rows: usize, enough: u64) -> Bytes {
        let each = |of_row: fn(&Row) -> u64| {
            let mut bytes = Bytes::default();
            for row in 0..rows {
                let of_row = of_row(&Row { arguments: &self.0, row });
                bytes.all = bytes.all.saturating_add(of_row);
                bytes.largest = bytes.largest.max(of_row);
            }
            bytes
        };
        match size {
            Size::Factor(factor) => {
                let all = self.bytes(rows).saturating_mul(factor);
                match all <= enough {
                    true => Bytes { all, largest: all },
                    // The rows are within the same factor of each other.
                    false => {
                        let bytes = each(sum);
                        Bytes { all, largest: bytes.largest.saturating_mul(factor) }
                    }
                }
            }
            Size::Rows(of_row) => each(of_row),
            Size::Checked(exact, bound) => {
                let bytes = each(bound);
                if bytes.all <= enough { bytes } else { each(exact) }
            }
            Size::Cast => {
                let all = self.bytes_as(to, rows);
                let largest = match self.0.first() {
                    Some(Argument::Rows(array)) if all > enough => {
                        (0..rows).map(|row| bytes_as(&array.slice(row, 1), to)).max().unwrap_or(0)
                    }
                    _ if all > enough => self.bytes_as(to, 1),
                    _ => all,
                };
                Bytes { all, largest }
            }
        }
    }
}

impl Row<'_> {
    fn count(&self) -> usize {
        self.arguments.len()
    }

    /// The bytes of the argument's value, 0 of NULL.
    fn bytes(&self, argument: usize) -> u64 {
        match self.arguments.get(argument) {
            None => 0,
            Some(Argument::Text(text)) => text.len() as u64,
            Some(Argument::One(array)) => bytes_of(array, 0),
            Some(Argument::Rows(array)) => bytes_of(array, self.row),
        }
    }

    fn array(&self, argument: usize) -> Option<(&dyn Array, usize)> {
        match self.arguments.get(argument)? {
            Argument::Text(_) => None,
            Argument::One(array) => Some((array.as_ref(), 0)),
            Argument::Rows(array) => Some((array.as_ref(), self.row)),
        }
    }

    fn integer(&self, argument: usize) -> Option<i64> {
        let (array, row) = self.array(argument)?;
        if array.is_null(row) {
            return None;
        }
        match array.data_type() {
            DataType::Int64 => Some(array.as_primitive::<Int64Type>().value(row)),
            DataType::Int32 => Some(array.as_primitive::<Int32Type>().value(row).into()),
            DataType::Date32 => Some(array.as_primitive::<Date32Type>().value(row).into()),
            // Other types with a size are cast to one of these before the call.
            _ => None,
        }
    }

    /// A number of times: 0 for NULL or a negative number.
    fn number(&self, argument: usize) -> u64 {
        self.integer(argument).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
    }

    fn text(&self, argument: usize) -> Option<&str> {
        if let Some(Argument::Text(text)) = self.arguments.get(argument) {
            return Some(text);
        }
        let (array, row) = self.array(argument)?;
        if array.is_null(row) {
            return None;
        }
        match array.data_type() {
            DataType::Utf8 => Some(array.as_string::<i32>().value(row)),
            DataType::LargeUtf8 => Some(array.as_string::<i64>().value(row)),
            DataType::Utf8View => Some(array.as_string_view().value(row)),
            _ => None,
        }
    }
}

fn sum(row: &Row) -> u64 {
    (0..row.count()).map(|argument| row.bytes(argument)).fold(0, u64::saturating_add)
}

/// `lpad`, `rpad`: characters of one byte each if the filling is ASCII, of at most four otherwise.
fn padded(row: &Row) -> u64 {
    let width = if row.text(2).is_none_or(str::is_ascii) { 1 } else { 4 };
    row.number(1).saturating_mul(width).saturating_add(row.bytes(0))
}

fn replaced_at_most(row: &Row) -> u64 {
    let places = row.bytes(0) / row.bytes(1).max(1);
    row.bytes(0).saturating_add(places.saturating_mul(row.bytes(2)))
}

fn replaced(row: &Row) -> u64 {
    let (Some(text), Some(from)) = (row.text(0), row.text(1)) else { return 0 };
    let places = if from.is_empty() { 0 } else { text.matches(from).count() as u64 };
    // Without a replacement for a place, the text is no longer than before.
    row.bytes(0).saturating_add(places.saturating_mul(row.bytes(2)))
}

/// With `places` in the text at which it is replaced. A reference in the replacement repeats the
/// match at each place, together at most the text.
fn regex_replaced_at(row: &Row, places: u64) -> u64 {
    let references = row.text(2).map_or(0, |text| text.matches('\\').count() as u64);
    let given = places.saturating_mul(row.bytes(2));
    row.bytes(0).saturating_add(given).saturating_add(references.saturating_mul(row.bytes(0)))
}

fn regex_replaced_at_most(row: &Row) -> u64 {
    // By the flags, or as the match of the number 0.
    let by_number = || row.integer(3).is_some() && row.integer(4) == Some(0);
    let by_flags = |at: usize| row.text(at).is_some_and(|flags| flags.contains('g'));
    let all = by_flags(3) || by_flags(5) || by_number();
    regex_replaced_at(row, if all { row.bytes(0) + 1 } else { 1 })
}

fn regex_replaced(row: &Row) -> u64 {
    thread_local! {
        /// Most often it is one pattern for all rows.
        static LAST: RefCell<Option<(String, String, Regex)>> = const { RefCell::new(None) };
    }
    let (Some(text), Some(pattern), Some(flags)) = (row.text(0), row.text(1), row.text(3)) else {
        return regex_replaced_at_most(row);
    };
    LAST.with_borrow_mut(|last| {
        if last.as_ref().is_none_or(|(known, known_flags, _)| known != pattern || known_flags != flags) {
            let Ok((regex, _)) = compiled(pattern, flags) else { return regex_replaced_at_most(row) };
            *last = Some((pattern.to_owned(), flags.to_owned(), regex));
        }
        let regex = last.as_ref().map(|(_, _, regex)| regex);
        regex.map_or(0, |regex| regex_replaced_at(row, regex.find_iter(text).count() as u64))
    })
}

/// A series from one number, date or time to another; 0 where the step is, which is an error of the
/// call.
fn series(row: &Row) -> u64 {
    const VALUE: u64 = 8;
    let (start, stop) = match row.count() {
        1 => (Some(0), row.integer(0)),
        _ => (row.integer(0), row.integer(1)),
    };
    if let (Some(start), Some(stop)) = (start, stop) {
        let step = row.integer(2).unwrap_or(1).unsigned_abs();
        // A series of days by an interval of days or months.
        let days = row.array(2).filter(|(array, at)| !array.is_null(*at)).and_then(|(array, at)| {
            let interval = array.as_primitive_opt::<IntervalMonthDayNanoType>()?.value(at);
            Some((i64::from(interval.months) * 28 + i64::from(interval.days)).unsigned_abs())
        });
        return stop
            .abs_diff(start)
            .checked_div(days.unwrap_or(step))
            .map_or(0, |count| (count + 1).saturating_mul(VALUE));
    }
    let time = |argument: usize| {
        let (array, at) = row.array(argument)?;
        let DataType::Timestamp(unit, _) = array.data_type() else { return None };
        let nanoseconds = match unit {
            TimeUnit::Second => 1_000_000_000,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Nanosecond => 1,
        };
        let units = datafusion::arrow::compute::cast(&array.slice(at, 1), &DataType::Int64).ok()?;
        let units = units.as_primitive::<Int64Type>();
        units.is_valid(0).then(|| i128::from(units.value(0)) * nanoseconds)
    };
    let step = row.array(2).filter(|(array, at)| !array.is_null(*at)).and_then(|(array, at)| {
        let interval = array.as_primitive_opt::<IntervalMonthDayNanoType>()?.value(at);
        let days = i128::from(interval.months) * 28 + i128::from(interval.days);
        Some((days * 86_400_000_000_000 + i128::from(interval.nanoseconds)).unsigned_abs())
    });
    match (time(0), time(1), step) {
        (Some(start), Some(stop), Some(step)) => {
            let count = start.abs_diff(stop).checked_div(step).map_or(0, |count| count + 1);
            u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(VALUE)
        }
        _ => 0,
    }
}

/// A document's normal form: a blank behind each comma and colon, and no exponents.
fn document(row: &Row) -> u64 {
    document_at(row, 0)
}

/// The same of several documents.
fn documents(row: &Row) -> u64 {
    (0..row.count()).map(|argument| document_at(row, argument)).fold(0, u64::saturating_add)
}

fn document_at(row: &Row, argument: usize) -> u64 {
    let Some(text) = row.text(argument) else { return row.bytes(argument) };
    let bytes = text.as_bytes();
    let mut all = bytes.len() as u64;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b',' | b':' => all += 1,
            b'e' | b'E' if at > 0 && matches!(bytes[at - 1], b'0'..=b'9' | b'.') => {
                let exponent = text[at + 1..].trim_start_matches(['+', '-']);
                let digits = exponent.bytes().take_while(u8::is_ascii_digit).count();
                // More digits than a number may have are an error of the call.
                let zeros = exponent[..digits].parse::<u64>().unwrap_or(0);
                all += if zeros <= MOST_DIGITS { zeros } else { 0 };
            }
            _ => {}
        }
    }
    all
}

/// The elements of lists, one list behind the other; `None` for other values.
fn elements(array: &dyn Array) -> Option<ArrayRef> {
    let of = |values: &ArrayRef, from: usize, to: usize| values.slice(from, to - from);
    match array.data_type() {
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let (from, to) = (lists.value_offsets()[0], lists.value_offsets()[lists.len()]);
            Some(of(lists.values(), from as usize, to as usize))
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let (from, to) = (lists.value_offsets()[0], lists.value_offsets()[lists.len()]);
            Some(of(lists.values(), from as usize, to as usize))
        }
        DataType::FixedSizeList(..) => {
            let lists = array.as_fixed_size_list();
            let (from, to) = (lists.value_offset(0), lists.value_offset(lists.len()));
            Some(of(lists.values(), from as usize, to as usize))
        }
        _ => None,
    }
}

/// The bytes of values that a copy has for itself: texts in views are shared.
pub(super) fn copied(array: &dyn Array) -> u64 {
    let len = array.len() as u64;
    match (elements(array), array.data_type()) {
        (Some(elements), _) => copied(&elements).saturating_add(ELEMENT * len),
        (None, DataType::Utf8View | DataType::BinaryView) => ELEMENT * len,
        (None, _) => bytes_of_all(array),
    }
}

/// A bound of the bytes of values as others of type `to`.
fn bytes_as(array: &dyn Array, to: &DataType) -> u64 {
    let len = array.len() as u64;
    match (elements(array), to) {
        (
            Some(elements),
            DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _),
        ) => bytes_as(&elements, element.data_type()).saturating_add(ELEMENT * len),
        (None, to) if is_text(array.data_type()) && is_text(to) => bytes_of_all(array).saturating_add(ELEMENT * len),
        (_, to) if is_text(to) => written(array).saturating_add(ELEMENT * len),
        (_, to) => match to.primitive_width() {
            Some(width) => width as u64 * len,
            None => bytes_of_all(array).saturating_add(ELEMENT * len),
        },
    }
}

/// A bound of the bytes of values as texts between the braces of an array.
fn written(array: &dyn Array) -> u64 {
    /// Quotes and a comma.
    const AROUND: u64 = 3;
    let len = array.len() as u64;
    if let Some(elements) = elements(array) {
        return written(&elements).saturating_add(AROUND * len);
    }
    let width = match array.data_type() {
        DataType::Null | DataType::Boolean => 5,
        DataType::Int8 | DataType::Int16 | DataType::UInt8 | DataType::UInt16 => 6,
        DataType::Int32 | DataType::UInt32 => 11,
        DataType::Int64 | DataType::UInt64 => 20,
        DataType::Date32 | DataType::Time64(_) => 16,
        DataType::Float32 | DataType::Float64 => 25,
        DataType::Timestamp(..) => 35,
        DataType::Decimal128(..) => 41,
        // Each byte may have a backslash before it, and each of BYTEA is two digits.
        _ => return bytes_of_all(array).saturating_mul(2).saturating_add((ELEMENT + AROUND) * len),
    };
    (width + AROUND) * len
}

/// The bytes of a value.
fn bytes_of(array: &dyn Array, row: usize) -> u64 {
    if array.is_null(row) {
        return 0;
    }
    let bytes = match array.data_type() {
        DataType::Null => 0,
        DataType::Utf8 => array.as_string::<i32>().value_length(row) as usize,
        DataType::LargeUtf8 => array.as_string::<i64>().value_length(row) as usize,
        DataType::Binary => array.as_binary::<i32>().value_length(row) as usize,
        DataType::LargeBinary => array.as_binary::<i64>().value_length(row) as usize,
        DataType::Utf8View => array.as_string_view().views()[row] as u32 as usize,
        DataType::BinaryView => array.as_binary_view().views()[row] as u32 as usize,
        DataType::List(_) => return bytes_of_all(array.as_list::<i32>().value(row).as_ref()),
        DataType::LargeList(_) => return bytes_of_all(array.as_list::<i64>().value(row).as_ref()),
        DataType::Boolean => 1,
        other => match other.primitive_width() {
            Some(width) => width,
            None => array.slice(row, 1).to_data().get_slice_memory_size().unwrap_or(0),
        },
    };
    bytes as u64
}

/// The bytes of all values, and of an array's views, offsets or bounds.
fn bytes_of_all(array: &dyn Array) -> u64 {
    let len = array.len() as u64;
    match array.data_type() {
        DataType::Utf8View => {
            let lengths = array.as_string_view().views().iter().map(|view| u64::from(*view as u32));
            lengths.sum::<u64>() + ELEMENT * len
        }
        DataType::BinaryView => {
            let lengths = array.as_binary_view().views().iter().map(|view| u64::from(*view as u32));
            lengths.sum::<u64>() + ELEMENT * len
        }
        DataType::List(_) | DataType::LargeList(_) => (0..array.len()).map(|row| bytes_of(array, row)).sum(),
        _ => array.to_data().get_slice_memory_size().unwrap_or(0) as u64,
    }
}
