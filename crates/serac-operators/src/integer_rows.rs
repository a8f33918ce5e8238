//! Rows of integers in CSV text, parsed into columns: what most lines of a load are, if all its
//! columns are of 32 bits.
//!
//! A row is plain if it has a number of at most ten digits, which fits 32 bits, for each column, and
//! nothing else: no blanks, no quotes, no empty field. Any other row is left to a parser that knows
//! all that a file may have, and what is wrong with it.

use crate::integers::integer_at;

/// A thread gets no fewer bytes than this,
const PART_BYTES: usize = 128 << 10;
/// and no more than so many threads get any.
const MOST_THREADS: usize = 16;

/// Plain rows that were found at the beginning of a text.
#[derive(Debug, Default)]
pub struct PlainRows {
    /// Values by field.
    pub columns: Vec<Vec<i32>>,
    /// How many rows there are.
    pub rows: usize,
    /// Where the last one ends, its line's end included.
    pub end: usize,
}

/// Appends the plain rows at the beginning of `text` to `columns`, at most `most` of them: how many
/// they are, and where the last one ends.
pub fn plain_rows(text: &[u8], delimiter: u8, most: usize, columns: &mut [Vec<i32>]) -> (usize, usize) {
    let (mut rows, mut end) = (0, 0);
    while rows < most && end < text.len() {
        let mut at = end;
        for field in 0..columns.len() {
            let number = integer_at(text, at);
            at = number.map_or(at, |(_, end)| end);
            let is_last = field + 1 == columns.len();
            at += usize::from(is_last && text.get(at) == Some(&b'\r'));
            let ends = text.get(at) == Some(if is_last { &b'\n' } else { &delimiter });
            let Some((number, _)) = number.filter(|_| ends) else {
                columns[..field].iter_mut().for_each(|column| _ = column.pop());
                return (rows, end);
            };
            columns[field].push(number);
            at += 1;
        }
        rows += 1;
        end = at;
    }
    (rows, end)
}

/// The plain rows at the beginning of `text`, found by several threads, part by part: each part
/// begins where the one before ends. None where there is too little to share.
pub fn plain_parts(text: &[u8], delimiter: u8, fields: usize, threads: usize) -> Vec<PlainRows> {
    let threads = threads.min(text.len() / PART_BYTES).min(MOST_THREADS);
    if threads < 2 {
        return Vec::new();
    }
    let (mut parts, mut rest) = (Vec::with_capacity(threads), text);
    for left in (2..=threads).rev() {
        let half = rest.len() / left;
        let end = rest[half..].iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| half + end + 1);
        let (part, others) = rest.split_at(end);
        parts.push(part);
        rest = others;
    }
    parts.push(rest);
    let parse = |part: &[u8]| {
        let mut columns = vec![Vec::new(); fields];
        let (rows, end) = plain_rows(part, delimiter, usize::MAX, &mut columns);
        PlainRows { columns, rows, end }
    };
    let mut found: Vec<PlainRows> = std::thread::scope(|scope| {
        let mut helpers = Vec::with_capacity(parts.len());
        for &part in &parts[1..] {
            // Where no thread can be started, this one does its part.
            helpers.push(std::thread::Builder::new().spawn_scoped(scope, move || parse(part)).ok());
        }
        let first = parse(parts[0]);
        let others = parts[1..].iter().zip(helpers).map(|(part, helper)| {
            // A thread that has died has said nothing about its part.
            helper.and_then(|helper| helper.join().ok()).unwrap_or_else(|| parse(part))
        });
        std::iter::once(first).chain(others).collect()
    });
    // Behind a row of another kind, the rows of the parts that follow are not at the beginning.
    let whole = found.iter().zip(&parts).take_while(|(rows, part)| rows.end == part.len()).count();
    found.truncate(whole + 1);
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
            assert_eq!(plain_rows(text.as_bytes(), b',', 9, &mut columns), (rows, end), "{text:?}");
            assert!(columns.iter().all(|column| column.len() == rows), "{text:?}");
        }
        let mut columns = vec![Vec::new(); 2];
        assert_eq!(plain_rows(b"1|2\n3|4\n", b'|', 1, &mut columns), (1, 4));
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
            let (rows, end) = plain_rows(text.as_bytes(), b',', usize::MAX, &mut columns);
            let parts = plain_parts(text.as_bytes(), b',', 2, threads);
            prop_assert!(parts.len() > 1 || other.is_some());
            let together: Vec<Vec<i32>> =
                (0..2).map(|field| parts.iter().flat_map(|part| part.columns[field].clone()).collect()).collect();
            prop_assert_eq!(parts.iter().map(|part| part.rows).sum::<usize>(), rows);
            prop_assert_eq!(parts.iter().map(|part| part.end).sum::<usize>(), end);
            prop_assert_eq!(together, columns);
        }
    }
}
