//! Integers out of CSV text: one pass that checks, at the speed of one that does not.
//!
//! A row is a line, its fields are decimal integers between commas, with blanks around them allowed. Eight bytes
//! are looked at together: the first that is no digit ends the number, and three multiplications make a number
//! of the digits before it. What does not follow this pattern (blanks, more than eight digits, the last bytes of
//! the text) takes the way byte by byte, which also finds out what is wrong.

use std::fmt;

/// Why a line is no row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadField {
    /// Nothing stands between two commas.
    Empty,
    /// Something else than an integer.
    NotAnInteger,
    /// An integer that has more than 32 bits.
    OutOfRange,
    /// The line ends too early.
    TooFew,
    /// The line goes on behind its last field.
    TooMany,
}

impl fmt::Display for BadField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the field is empty",
            Self::NotAnInteger => "not an integer",
            Self::OutOfRange => "the integer does not fit in 32 bits",
            Self::TooFew => "the line has too few fields",
            Self::TooMany => "the line has too many fields",
        })
    }
}

/// The first line of a text that is no row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadRow {
    /// Its number in the text, from 0.
    pub line: u64,
    /// The field, from 0.
    pub field: usize,
    /// What is wrong with it.
    pub what: BadField,
}

/// How much a text held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// Lines, the empty ones too.
    pub lines: u64,
    /// Rows.
    pub rows: u64,
}

const ZEROS: u64 = 0x3030_3030_3030_3030;
const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
const SIXES: u64 = 0x0606_0606_0606_0606;

/// The number that up to eight digits at the beginning of `word` (little-endian text) make, and how many they are.
#[inline(always)]
fn leading_digits(word: u64) -> (u64, u32) {
    let values = word ^ ZEROS;
    // A byte is a digit if its upper half is 3 and adding 6 to its lower half does not carry.
    let others = (values | values.wrapping_add(SIXES)) & HIGH;
    let digits = others.trailing_zeros() / 8;
    if digits == 0 {
        return (0, 0);
    }
    // In front of the digits there are zeros now, and the last digit is the highest byte.
    let values = values << (64 - 8 * digits);
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    let eight = fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff;
    (eight, digits)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// A field from `at` on, byte by byte: its value, and where its delimiter or the text's end is.
#[cold]
fn careful(text: &[u8], mut at: usize) -> Result<(i32, usize), BadField> {
    let ends = |byte: Option<&u8>| matches!(byte, None | Some(b',' | b'\n'));
    while text.get(at).is_some_and(|byte| is_blank(*byte)) {
        at += 1;
    }
    if ends(text.get(at)) {
        return Err(BadField::Empty);
    }
    let negative = text[at] == b'-';
    at += usize::from(negative);
    let (begin, mut value, mut fits) = (at, 0i64, true);
    while let Some(byte @ b'0'..=b'9') = text.get(at) {
        if fits {
            value = value * 10 + i64::from(byte - b'0');
            fits = value <= 1 << 31;
        }
        at += 1;
    }
    let digits = at - begin;
    while text.get(at).is_some_and(|byte| is_blank(*byte)) {
        at += 1;
    }
    if digits == 0 || !ends(text.get(at)) {
        return Err(BadField::NotAnInteger);
    }
    let value = i32::try_from(if negative { -value } else { value }).ok().filter(|_| fits);
    value.map(|value| (value, at)).ok_or(BadField::OutOfRange)
}

/// A field as most are: digits and at once a delimiter, not among the last bytes of the text.
#[inline(always)]
fn plain(text: &[u8], at: usize) -> Option<(i32, usize)> {
    let bytes: &[u8; 12] = text.get(at..)?.first_chunk()?;
    let negative = bytes[0] == b'-';
    let digits_at = usize::from(negative);
    let word = u64::from_le_bytes(*bytes[digits_at..].first_chunk()?);
    let (number, digits) = leading_digits(word);
    let (mut number, mut end) = (number as i64, digits_at + digits as usize);
    if digits == 8 {
        // Ten digits at most, so that the delimiter of a negative number lies within the twelve bytes.
        for _ in 0..2 {
            if bytes[end].is_ascii_digit() {
                number = number * 10 + i64::from(bytes[end] - b'0');
                end += 1;
            }
        }
    }
    let ends = digits > 0 && (bytes[end] == b',' || bytes[end] == b'\n');
    let value = i32::try_from(if negative { -number } else { number }).ok()?;
    ends.then_some((value, at + end))
}

/// Appends the rows of a text to `columns`, one for each field. The text is whole lines, of which the last may
/// lack its end; empty lines count as lines, not as rows.
///
/// # Errors
/// With the first line that is no row. The columns then hold the rows before it, and possibly fields of it.
pub fn parse_rows(text: &[u8], columns: &mut [Vec<i32>]) -> Result<Parsed, BadRow> {
    let (last, mut at, mut parsed) = (columns.len() - 1, 0, Parsed { lines: 0, rows: 0 });
    while at < text.len() {
        if text[at] == b'\n' || is_blank(text[at]) {
            let end = text[at..].iter().position(|byte| !is_blank(*byte)).map_or(text.len(), |n| at + n);
            if text.get(end).is_none_or(|byte| *byte == b'\n') {
                (at, parsed.lines) = (end + 1, parsed.lines + 1);
                continue;
            }
        }
        for (field, column) in columns.iter_mut().enumerate() {
            let bad = |what| BadRow { line: parsed.lines, field, what };
            let (value, end) = match plain(text, at) {
                Some(found) => found,
                None => careful(text, at).map_err(bad)?,
            };
            column.push(value);
            let ends_line = text.get(end).is_none_or(|byte| *byte == b'\n');
            if ends_line && field < last {
                return Err(BadRow { line: parsed.lines, field: field + 1, what: BadField::TooFew });
            }
            if !ends_line && field == last {
                return Err(BadRow { line: parsed.lines, field: field + 1, what: BadField::TooMany });
            }
            at = end + 1;
        }
        (parsed.lines, parsed.rows) = (parsed.lines + 1, parsed.rows + 1);
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str, columns: usize) -> Result<Vec<Vec<i32>>, BadRow> {
        let mut parsed = vec![Vec::new(); columns];
        parse_rows(text.as_bytes(), &mut parsed).map(|_| parsed)
    }
    fn bad(line: u64, field: usize, what: BadField) -> Result<Vec<Vec<i32>>, BadRow> {
        Err(BadRow { line, field, what })
    }

    #[test]
    fn blanks_and_empty_lines_are_taken() {
        let text = "1,-2\r\n\n \t\r\n 3 ,\t4 \n2147483647,-2147483648";
        assert_eq!(parse(text, 2), Ok(vec![vec![1, 3, i32::MAX], vec![-2, 4, i32::MIN]]));
        let mut columns = [Vec::new()];
        assert_eq!(parse_rows(b"\n7\n\n", &mut columns), Ok(Parsed { lines: 3, rows: 1 }));
        assert_eq!(parse("", 3), Ok(vec![Vec::new(); 3]));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        assert_eq!(parse("1,2\n3,x\n", 2), bad(1, 1, BadField::NotAnInteger));
        assert_eq!(parse("1,2\n\n3\n", 2), bad(2, 1, BadField::TooFew));
        assert_eq!(parse("1,2,3\n", 2), bad(0, 2, BadField::TooMany));
        assert_eq!(parse("1,2,\n", 2), bad(0, 2, BadField::TooMany));
        assert_eq!(parse(",2\n", 2), bad(0, 0, BadField::Empty));
        assert_eq!(parse("1,\n", 2), bad(0, 1, BadField::Empty));
        assert_eq!(parse("1,", 2), bad(0, 1, BadField::Empty));
        assert_eq!(parse("2147483648\n", 1), bad(0, 0, BadField::OutOfRange));
        assert_eq!(parse("-2147483649\n", 1), bad(0, 0, BadField::OutOfRange));
        assert_eq!(parse("99999999999999999999999999\n", 1), bad(0, 0, BadField::OutOfRange));
        for text in ["-", "--1", "1 2", "1-", "+1", "1.5", "0x1", "\"1\"", "1\0", "\u{a0}1"] {
            assert_eq!(parse(text, 1), bad(0, 0, BadField::NotAnInteger), "{text:?}");
            assert_eq!(parse(&format!("{text}\n1\n1\n1\n1\n1\n1\n"), 1), bad(0, 0, BadField::NotAnInteger), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn integers_come_back(
            rows in prop::collection::vec([(-100..100i32).boxed(), any::<i32>().boxed()], 0..50),
            zeros in 0..12usize,
            blanks in "[ \t]{0,2}",
            end in "\r?\n",
        ) {
            let field = |n: i32| format!("{blanks}{}{}{}{blanks}", if n < 0 { "-" } else { "" }, "0".repeat(zeros), n.unsigned_abs());
            let text: String = rows.iter().map(|[a, b]| format!("{},{}{end}", field(*a), field(*b))).collect();
            let wanted: Vec<Vec<i32>> = (0..2).map(|c| rows.iter().map(|row| row[c]).collect()).collect();
            prop_assert_eq!(parse(&text, 2), Ok(wanted.clone()));
            prop_assert_eq!(parse(text.trim_end(), 2), Ok(wanted));
        }

        #[test]
        fn whatever_comes_is_taken_or_refused_as_by_the_slow_way(text in "[0-9,\n -]{0,40}") {
            let slow: Option<Vec<Vec<i32>>> = (|| {
                let mut columns = vec![Vec::new(); 2];
                for line in text.split('\n').filter(|line| !line.trim().is_empty()) {
                    let fields: Vec<&str> = line.split(',').collect();
                    if fields.len() != 2 {
                        return None;
                    }
                    for (column, field) in columns.iter_mut().zip(fields) {
                        column.push(field.trim().parse().ok()?);
                    }
                }
                Some(columns)
            })();
            prop_assert_eq!(parse(&text, 2).ok(), slow);
        }
    }
}
