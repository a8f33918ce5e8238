//! Integers of CSV text, checked, eight bytes at a time.
//!
//! The first byte of eight that is no digit ends the number, and three multiplications make a
//! number of the digits before it. The last bytes of a text go byte by byte.

const ZEROS: u64 = 0x3030_3030_3030_3030;
const UPPER: u64 = 0xf0f0_f0f0_f0f0_f0f0;
const SIXES: u64 = 0x0606_0606_0606_0606;
/// The digits of the largest number of 32 bits.
const MOST_DIGITS: usize = 10;

/// The number that the digits at the beginning of eight bytes make, and how many they are.
#[inline(always)]
fn leading_digits(bytes: [u8; 8]) -> (u64, usize) {
    let values = u64::from_le_bytes(bytes) ^ ZEROS;
    // A byte is a digit if its upper half was 3 and adding 6 to its lower half does not carry. A
    // carry out of a byte comes behind a byte that is no digit.
    let others = (values | values.wrapping_add(SIXES)) & UPPER;
    let digits = others.trailing_zeros() as usize / 8;
    if digits == 0 {
        return (0, 0);
    }
    // In front of the digits there are zeros now, and the last digit is the highest byte.
    let values = values << (64 - 8 * digits);
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff, digits)
}

/// The decimal integer that begins at `at`, and its end: an optional sign, and at most ten digits.
/// `None` if there is no digit, more than ten, or a number of more than 32 bits.
#[inline(always)]
pub fn integer_at(text: &[u8], at: usize) -> Option<(i32, usize)> {
    let is_negative = text.get(at) == Some(&b'-');
    let from = at + usize::from(is_negative);
    let (mut number, mut digits) = text.get(from..)?.first_chunk().map_or((0, 0), |bytes| leading_digits(*bytes));
    // The ninth and tenth digit; or all, in the last bytes of a text.
    let mut next = from + digits;
    if digits == 8 || text.len() - from < 8 {
        while let Some(digit) = text.get(next).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
            if digits == MOST_DIGITS {
                return None;
            }
            number = number * 10 + u64::from(digit);
            (digits, next) = (digits + 1, next + 1);
        }
    }
    let number = if is_negative { -(number as i64) } else { number as i64 };
    i32::try_from(number).ok().filter(|_| digits > 0).map(|number| (number, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_ends_where_its_digits_do() {
        for (text, wanted) in [
            ("7", Some((7, 1))),
            ("-2147483648,", Some((i32::MIN, 11))),
            ("2147483647\n1,2,3,4,5", Some((i32::MAX, 10))),
            ("0000000012,000000", Some((12, 10))),
            ("12345678901,000000", None),
            ("00000000000", None),
            ("2147483648,000000", None),
            ("-2147483649", None),
            ("-,0000000000", None),
            ("", None),
            ("-", None),
            ("--1", None),
            ("12345678/,,,,,,,", Some((12_345_678, 8))),
            ("1:234567890,,,", Some((1, 1))),
            ("1\u{ff}34567890", Some((1, 1))),
        ] {
            assert_eq!(integer_at(text.as_bytes(), 0), wanted, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn it_is_the_number_that_the_standard_library_reads(text in "[0-9,:/ -]{0,24}", digits in "-?[0-9]{1,12}") {
            let text = format!("{digits}{text}");
            for at in 0..=text.len() {
                let rest = &text[at..];
                let sign = usize::from(rest.starts_with('-'));
                let end = rest[sign..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| end + sign);
                let wanted = rest[..end].parse::<i32>().ok().filter(|_| end - sign <= MOST_DIGITS);
                prop_assert_eq!(integer_at(text.as_bytes(), at), wanted.map(|number| (number, at + end)));
            }
        }
    }
}
