//! Memory-comparable keys: byte strings that compare as the column values do. No key is a prefix of
//! another.
//!
//! Per column: a tag, and the value. A value has tag 1; NULL has tag 2, or 0 where NULLs come
//! first. Integers are big-endian with the sign bit flipped; floats likewise after folding the
//! negative half; byte strings escape zero as `00 FF` and end with `00 00`; UUIDs are their bytes;
//! intervals are their lengths; numbers with digits of their own are byte strings with the key of
//! [`serac_numeric::encoding`]. In a descending column, the value's bytes are inverted.

use serac_numeric::Numeric;
use serac_storage::types::PhysicalType;
use serac_storage::{ColumnType, Value};

/// The first byte of a value that is not NULL.
pub const VALUE: u8 = 1;

/// The form of a column's values in a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Encoding {
    /// The largest value comes first.
    pub descending: bool,
    /// NULLs come before all values, in either order of the values.
    pub nulls_first: bool,
    /// What the bits of a value mean.
    pub meaning: Meaning,
}

/// What the bits of a value mean, where its Rust type leaves it open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Meaning {
    /// 128 bits are a whole number, and bytes compare from the first on.
    #[default]
    Plain,
    /// 128 bits are 16 bytes, the lowest first (UUID).
    Uuid,
    /// Bytes are a number in its stored form (NUMERIC without precision). Numbers that differ in
    /// zeros at their end alone, as 1.0 and 1.00 do, are equal.
    Numeric,
    /// Months, days and nanoseconds from the lowest bit on (INTERVAL). Intervals of equal length
    /// are equal: a month has 30 days, a day 24 hours.
    Interval,
    /// Bytes are a text whose blanks at the end do not count (CHAR without a length).
    WithoutBlanks,
}

impl Meaning {
    /// The meaning of the values in a column of this type.
    pub fn of(column_type: ColumnType) -> Self {
        match column_type {
            ColumnType::Uuid => Self::Uuid,
            ColumnType::Interval => Self::Interval,
            ColumnType::Numeric => Self::Numeric,
            _ => Self::Plain,
        }
    }
}

const NANOS_PER_DAY: i128 = 86_400_000_000_000;

/// The length of an interval, in nanoseconds.
fn interval_length(bits: i128) -> i128 {
    let (months, days, nanos) = (bits as i32, (bits >> 32) as i32, (bits >> 64) as i64);
    (i128::from(months) * 30 + i128::from(days)) * NANOS_PER_DAY + i128::from(nanos)
}

/// The key of `values` in ascending order with NULLs last, and whether any of them is NULL (such a
/// key never violates uniqueness).
pub fn encode(values: &[Value<'_>]) -> (Vec<u8>, bool) {
    let mut key = Vec::with_capacity(values.len() * 9);
    let mut has_null = false;
    for value in values {
        has_null |= !push(&mut key, value, Encoding::default());
    }
    (key, has_null)
}

/// The most bytes of a key of columns of these types; `None` if a value can have any length.
pub fn most_bytes(types: impl IntoIterator<Item = ColumnType>) -> Option<usize> {
    let of_column = |column_type: ColumnType| match column_type.physical() {
        PhysicalType::Bit => Some(2),
        PhysicalType::Fixed(width) => Some(1 + usize::from(width)),
        PhysicalType::View => None,
    };
    types.into_iter().map(of_column).sum()
}

/// Appends the next column's value to a key; false for NULL.
#[inline]
pub fn push(key: &mut Vec<u8>, value: &Value<'_>, encoding: Encoding) -> bool {
    if value.is_null() {
        key.push(if encoding.nulls_first { 0 } else { 2 });
        return false;
    }
    let start = key.len() + 1;
    match value {
        // The tag and a number in one piece.
        Value::Int32(v) => {
            let number = u64::from((*v as u32 ^ 1 << 31).swap_bytes());
            key.extend_from_slice(&(number << 8 | u64::from(VALUE)).to_le_bytes()[..5]);
        }
        Value::Int64(v) => {
            let number = u128::from((*v as u64 ^ 1 << 63).swap_bytes());
            key.extend_from_slice(&(number << 8 | u128::from(VALUE)).to_le_bytes()[..9]);
        }
        _ => {
            key.push(VALUE);
            push_other(key, value, encoding);
        }
    }
    if encoding.descending {
        key[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    true
}

/// Bits of a floating-point number that order as the numbers do. Both zeros are one, and so are all
/// NaNs, which are above all numbers.
pub fn ordered32(v: f32) -> u32 {
    let bits = if v.is_nan() { f32::NAN } else { v + 0.0 }.to_bits();
    if bits >> 31 == 1 { !bits } else { bits ^ 1 << 31 }
}
/// As [`ordered32`].
pub fn ordered64(v: f64) -> u64 {
    let bits = if v.is_nan() { f64::NAN } else { v + 0.0 }.to_bits();
    if bits >> 63 == 1 { !bits } else { bits ^ 1 << 63 }
}

fn push_other(key: &mut Vec<u8>, value: &Value<'_>, encoding: Encoding) {
    match value {
        Value::Null | Value::Int32(_) | Value::Int64(_) => unreachable!("encoded by the caller"),
        Value::Bool(v) => key.push(u8::from(*v)),
        Value::Int16(v) => key.extend_from_slice(&(*v as u16 ^ 1 << 15).to_be_bytes()),
        Value::Int128(v) => {
            let number = match encoding.meaning {
                Meaning::Uuid => return key.extend_from_slice(&v.to_le_bytes()),
                Meaning::Interval => interval_length(*v),
                Meaning::Plain | Meaning::Numeric | Meaning::WithoutBlanks => *v,
            };
            key.extend_from_slice(&(number as u128 ^ 1 << 127).to_be_bytes());
        }
        Value::Float32(v) => key.extend_from_slice(&ordered32(*v).to_be_bytes()),
        Value::Float64(v) => key.extend_from_slice(&ordered64(*v).to_be_bytes()),
        Value::Bytes(v) => match encoding.meaning {
            Meaning::Numeric => push_number(key, v),
            Meaning::WithoutBlanks => push_bytes(key, without_blanks(v)),
            _ => push_bytes(key, v),
        },
    }
}

fn without_blanks(text: &[u8]) -> &[u8] {
    let last = text.iter().rposition(|byte| *byte != b' ');
    &text[..last.map_or(0, |last| last + 1)]
}

/// The key of a number in its stored form. Bytes that are none stay as they are.
fn push_number(key: &mut Vec<u8>, stored: &[u8]) {
    match Numeric::of_stored(stored) {
        Ok(number) => push_bytes(key, &number.to_key()),
        Err(_) => push_bytes(key, stored),
    }
}

fn push_bytes(key: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        key.push(byte);
        if byte == 0 {
            key.push(0xFF);
        }
    }
    key.extend_from_slice(&[0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    proptest! {
        #[test]
        fn keys_compare_as_values(a: (i64, Vec<u8>, Option<i16>), b: (i64, Vec<u8>, Option<i16>)) {
            let key = |v: &(i64, Vec<u8>, Option<i16>)| {
                encode(&[Value::Bytes(&v.1), Value::Int64(v.0), v.2.map_or(Value::Null, Value::Int16)]).0
            };
            let order = |v: &(i64, Vec<u8>, Option<i16>)| (v.1.clone(), v.0, v.2.is_none(), v.2);
            prop_assert_eq!(key(&a).cmp(&key(&b)), order(&a).cmp(&order(&b)));
        }

        #[test]
        fn directions_and_places_of_nulls_are_the_columns(
            a: (Option<i32>, Vec<u8>), b: (Option<i32>, Vec<u8>), descending: (bool, bool), nulls_first: bool
        ) {
            let encodings = [descending.0, descending.1].map(|descending| Encoding { descending, nulls_first, ..Default::default() });
            let key = |v: &(Option<i32>, Vec<u8>)| {
                let mut key = Vec::new();
                push(&mut key, &v.0.map_or(Value::Null, Value::Int32), encodings[0]);
                push(&mut key, &Value::Bytes(&v.1), encodings[1]);
                key
            };
            let directed = |order: Ordering, descending: bool| if descending { order.reverse() } else { order };
            let first = match (a.0, b.0) {
                (Some(a), Some(b)) => directed(a.cmp(&b), descending.0),
                (a, b) => directed(a.is_none().cmp(&b.is_none()), nulls_first),
            };
            let expected = first.then(directed(a.1.cmp(&b.1), descending.1));
            prop_assert_eq!(key(&a).cmp(&key(&b)), expected);
            prop_assert!(a == b || !key(&a).starts_with(&key(&b)));
        }

        #[test]
        fn floats_compare_as_numbers(a in -1e9f64..1e9, b in -1e9f64..1e9) {
            let key = |v| encode(&[Value::Float64(v)]).0;
            prop_assert_eq!(key(a).cmp(&key(b)), a.partial_cmp(&b).unwrap());
            prop_assert_eq!(key(0.0), key(-0.0));
        }

        #[test]
        fn intervals_compare_as_their_lengths(a: (i32, i32, i64), b: (i32, i32, i64)) {
            let length = |(months, days, nanos): (i32, i32, i64)| {
                (i128::from(months) * 30 + i128::from(days)) * 86_400_000_000_000 + i128::from(nanos)
            };
            prop_assert_eq!(interval(a).cmp(&interval(b)), length(a).cmp(&length(b)));
        }
    }

    fn interval((months, days, nanos): (i32, i32, i64)) -> Vec<u8> {
        let bits = u128::from(nanos as u64) << 64 | u128::from(days as u32) << 32 | u128::from(months as u32);
        let mut key = Vec::new();
        push(&mut key, &Value::Int128(bits as i128), Encoding { meaning: Meaning::Interval, ..Default::default() });
        key
    }

    #[test]
    fn intervals_of_one_length_are_one_key() {
        const HOUR: i64 = 3_600_000_000_000;
        assert_eq!(interval((0, 1, 0)), interval((0, 0, 24 * HOUR)));
        assert_eq!(interval((1, 0, 0)), interval((0, 30, 0)));
        assert_eq!(interval((-1, 29, 24 * HOUR)), interval((0, 0, 0)));
        assert!(interval((i32::MIN, i32::MIN, i64::MIN)) < interval((0, 0, -1)));
        assert!(interval((0, 0, 1)) < interval((i32::MAX, i32::MAX, i64::MAX)));
    }

    #[test]
    fn zeros_are_one_key_and_not_a_number_is_another() {
        let key = |value: f64| [encode(&[Value::Float64(value)]).0, encode(&[Value::Float32(value as f32)]).0];
        assert_eq!(key(0.0), key(-0.0));
        assert_eq!(key(f64::NAN), key(-f64::NAN));
        assert!(key(f64::NAN) > key(f64::INFINITY));
    }
}
