//! Rows of integers in CSV text, parsed into columns: the bulk of a load's lines if all its columns
//! are of 32 bits.
//!
//! A row is plain if each field is a number of at most ten digits that fits 32 bits: no blanks, no
//! quotes. A field may be empty where its column takes that for NULL. Any other row is left to a
//! parser that knows all forms of a file and reports errors.

use crate::integers::integer_at;
use arrow_array::Int32Array;
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A thread gets no fewer bytes than this,
const PART_BYTES: usize = 128 << 10;
/// and at most this many threads get any.
const MOST_THREADS: usize = 16;
/// Rows at the beginning that are parsed before threads start. If one of these rows is not plain,
/// threads would start for little work.
const FIRST_ROWS: usize = 1_024;
/// Rows that a thread parses between two looks whether its part is still wanted.
const ROWS_BETWEEN_LOOKS: usize = 4_096;

/// Takes the numbers of one column.
pub trait IntegerColumn {
    /// Takes a number.
    fn push(&mut self, number: i32);
    /// Takes an empty field; false if a plain row cannot have it.
    fn push_empty(&mut self) -> bool;
    /// Removes the last number or empty field.
    fn pop(&mut self);
}

/// Without NULLs: a row with an empty field is not plain.
impl IntegerColumn for Vec<i32> {
    #[inline]
    fn push(&mut self, number: i32) {
        self.push(number);
    }

    #[inline]
    fn push_empty(&mut self) -> bool {
        false
    }

    fn pop(&mut self) {
        self.pop();
    }
}

/// Numbers, and NULLs where fields are empty.
#[derive(Clone, Debug, Default)]
pub struct NullableIntegers {
    values: Vec<i32>,
    /// The places of NULLs, ascending.
    nulls: Vec<usize>,
}

impl IntegerColumn for NullableIntegers {
    #[inline]
    fn push(&mut self, number: i32) {
        self.values.push(number);
    }

    fn push_empty(&mut self) -> bool {
        self.nulls.push(self.values.len());
        self.values.push(0);
        true
    }

    fn pop(&mut self) {
        self.values.pop();
        self.nulls.pop_if(|place| *place == self.values.len());
    }
}

impl From<NullableIntegers> for Int32Array {
    fn from(column: NullableIntegers) -> Self {
        let NullableIntegers { values, nulls } = column;
        let valid = (!nulls.is_empty()).then(|| {
            let mut valid = BooleanBufferBuilder::new(values.len());
            valid.append_n(values.len(), true);
            nulls.iter().for_each(|&place| valid.set_bit(place, false));
            NullBuffer::new(valid.finish())
        });
        Int32Array::new(values.into(), valid)
    }
}

/// The line end that plain rows have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowEnd {
    /// A newline alone.
    Newline,
    /// A carriage return and a newline.
    ReturnNewline,
    /// Either, row by row.
    Any,
}

impl RowEnd {
    /// Whether a newline with a carriage return before it, or without, ends a row.
    #[inline]
    fn takes(self, has_return: bool) -> bool {
        match self {
            Self::Newline => !has_return,
            Self::ReturnNewline => has_return,
            Self::Any => true,
        }
    }
}

/// Plain rows that were found at the beginning of a text.
#[derive(Debug, Default)]
pub struct PlainRows<C> {
    /// Values by field.
    pub columns: Vec<C>,
    /// The number of rows.
    pub rows: usize,
    /// The end of the last row, its line's end included.
    pub end: usize,
}

/// Appends the plain rows at the beginning of `text` to `columns`, at most `most` of them. Returns
/// their number and the end of the last one.
pub fn plain_rows<C: IntegerColumn>(
    text: &[u8],
    delimiter: u8,
    row_end: RowEnd,
    most: usize,
    columns: &mut [C],
) -> (usize, usize) {
    let (mut rows, mut end) = (0, 0);
    while rows < most && end < text.len() {
        let mut at = end;
        for field in 0..columns.len() {
            let number = integer_at(text, at);
            at = number.map_or(at, |(_, end)| end);
            let is_last = field + 1 == columns.len();
            let has_return = is_last && text.get(at) == Some(&b'\r');
            at += usize::from(has_return);
            let ends = text.get(at) == Some(if is_last { &b'\n' } else { &delimiter })
                && (!is_last || row_end.takes(has_return));
            let is_taken = ends
                && match number {
                    Some((number, _)) => {
                        columns[field].push(number);
                        true
                    }
                    None => columns[field].push_empty(),
                };
            if !is_taken {
                columns[..field].iter_mut().for_each(C::pop);
                return (rows, end);
            }
            at += 1;
        }
        rows += 1;
        end = at;
    }
    (rows, end)
}

/// The plain rows at the beginning of `text`. If there are many, several threads find them, part by
/// part: each part begins where the one before ends. Each part begins with a copy of `columns`,
/// which have no rows.
pub fn plain_parts<C: IntegerColumn + Clone + Send + Sync>(
    text: &[u8],
    delimiter: u8,
    row_end: RowEnd,
    columns: &[C],
    threads: usize,
) -> Vec<PlainRows<C>> {
    let mut first = PlainRows { columns: columns.to_vec(), rows: 0, end: 0 };
    let mut extend = |most: usize| {
        let (rows, end) = plain_rows(&text[first.end..], delimiter, row_end, most, &mut first.columns);
        (first.rows, first.end) = (first.rows + rows, first.end + end);
        (first.rows, first.end)
    };
    let (rows, end) = extend(FIRST_ROWS);
    let threads = threads.min((text.len() - end) / PART_BYTES).min(MOST_THREADS);
    if threads < 2 || rows < FIRST_ROWS {
        if rows == FIRST_ROWS {
            extend(usize::MAX);
        }
        return vec![first];
    }
    let (mut parts, mut rest) = (Vec::with_capacity(threads), &text[end..]);
    for left in (2..=threads).rev() {
        let half = rest.len() / left;
        let end = rest[half..].iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| half + end + 1);
        let (part, others) = rest.split_at(end);
        parts.push(part);
        rest = others;
    }
    parts.push(rest);
    // The first part that has a row that is not plain. Parts behind it do not count.
    let cut = AtomicUsize::new(usize::MAX);
    let parse = |number: usize, part: &[u8]| {
        let (mut columns, mut rows, mut end) = (columns.to_vec(), 0, 0);
        // Relaxed, both: the check saves work, and the result of a part does not depend on it.
        while end < part.len() && cut.load(Ordering::Relaxed) >= number {
            let (more, length) = plain_rows(&part[end..], delimiter, row_end, ROWS_BETWEEN_LOOKS, &mut columns);
            (rows, end) = (rows + more, end + length);
            if more < ROWS_BETWEEN_LOOKS && end < part.len() {
                cut.fetch_min(number, Ordering::Relaxed);
                break;
            }
        }
        PlainRows { columns, rows, end }
    };
    let mut found: Vec<PlainRows<C>> = std::thread::scope(|scope| {
        let (parse, mut helpers) = (&parse, Vec::with_capacity(parts.len()));
        for (number, &part) in parts.iter().enumerate().skip(1) {
            // If no thread can be started, this one does its part.
            helpers.push(std::thread::Builder::new().spawn_scoped(scope, move || parse(number, part)).ok());
        }
        let own = parse(0, parts[0]);
        let others = parts.iter().enumerate().skip(1).zip(helpers).map(|((number, part), helper)| {
            // A thread that has panicked has no result, so this thread parses its part.
            helper.and_then(|helper| helper.join().ok()).unwrap_or_else(|| parse(number, part))
        });
        std::iter::once(own).chain(others).collect()
    });
    let whole = found.iter().zip(&parts).take_while(|(rows, part)| rows.end == part.len()).count();
    found.truncate(whole + 1);
    found.insert(0, first);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_are_plain_up_to_the_first_that_is_not() {
        for (text, rows, end) in [
            ("1,2\n-3,4\r\n", 2, 10),
            ("1,2\n3, 4\n5,6\n", 1, 4),
            ("1,2\n3\n", 1, 4),
            ("1,2,3\n", 0, 0),
            ("1,2", 0, 0),
            ("\n1,2\n", 0, 0),
            ("1,99999999999\n", 0, 0),
            ("1,\"2\"\n", 0, 0),
        ] {
            let mut columns = vec![Vec::new(); 2];
            assert_eq!(plain_rows(text.as_bytes(), b',', RowEnd::Any, 9, &mut columns), (rows, end), "{text:?}");
            assert!(columns.iter().all(|column| column.len() == rows), "{text:?}");
        }
        let mut columns = vec![Vec::new(); 2];
        assert_eq!(plain_rows(b"1|2\n3|4\n", b'|', RowEnd::Any, 1, &mut columns), (1, 4));
        for (text, newline, pair) in [("1\n2\r\n", 1, 0), ("1\r\n2\n", 0, 1), ("1\r2\n", 0, 0)] {
            let rows = |row_end| plain_rows(text.as_bytes(), b',', row_end, 9, &mut [Vec::new()]).0;
            assert_eq!((rows(RowEnd::Newline), rows(RowEnd::ReturnNewline)), (newline, pair), "{text:?}");
        }
    }

    #[test]
    fn empty_fields_are_null_where_columns_take_them() {
        let parse = |text: &str, fields: usize| {
            let mut columns = vec![NullableIntegers::default(); fields];
            let (rows, _) = plain_rows(text.as_bytes(), b',', RowEnd::Any, 9, &mut columns);
            let columns = columns.into_iter().map(|column| Int32Array::from(column).iter().collect());
            (rows, columns.collect::<Vec<Vec<_>>>())
        };
        assert_eq!(parse("1,\n,2\r\n,\r\n5,x\n", 2), (3, vec![vec![Some(1), None, None], vec![None, Some(2), None]]));
        assert_eq!(parse(",1\n,-\n", 2), (1, vec![vec![None], vec![Some(1)]]));
        assert_eq!(parse("7\n\n\r\n8\n", 1), (4, vec![vec![Some(7), None, None, Some(8)]]));
        // A line without fields is no row of several columns.
        assert_eq!(parse("1,2\n\n3,4\n", 2).0, 1);
        assert_eq!(parse(",", 2).0, 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn threads_find_what_one_finds(
            numbers in proptest::collection::vec(any::<(i32, i16)>(), 1..200),
            other in proptest::option::of(0_usize..60_000),
            threads in 2_usize..5,
        ) {
            let mut text = String::new();
            for (row, (a, b)) in numbers.iter().cycle().take(60_000).enumerate() {
                if other == Some(row) {
                    text.push_str("x,1\n");
                }
                text.push_str(&format!("{a},{b}\n"));
            }
            let mut columns = vec![Vec::new(); 2];
            let (rows, end) = plain_rows(text.as_bytes(), b',', RowEnd::Any, usize::MAX, &mut columns);
            let parts = plain_parts(text.as_bytes(), b',', RowEnd::Any, &[Vec::new(), Vec::new()], threads);
            prop_assert!(parts.len() > 1 || other.is_some());
            let together: Vec<Vec<i32>> =
                (0..2).map(|field| parts.iter().flat_map(|part| part.columns[field].clone()).collect()).collect();
            prop_assert_eq!(parts.iter().map(|part| part.rows).sum::<usize>(), rows);
            prop_assert_eq!(parts.iter().map(|part| part.end).sum::<usize>(), end);
            prop_assert_eq!(together, columns);
        }
    }
}
