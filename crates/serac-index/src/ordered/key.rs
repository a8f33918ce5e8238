//! Memory-comparable keys: byte strings that compare as the column values do, NULLs last, and none a prefix of another.
//!
//! Per column: 1 and the value, or 2 for NULL. Integers are big-endian with the sign bit flipped; floats likewise after folding the
//! negative half; byte strings escape zero as `00 FF` and end with `00 00`.

use serac_storage::types::PhysicalType;
use serac_storage::{ColumnType, Value};

/// What a value that is not NULL begins with.
pub const VALUE: u8 = 1;
/// What stands for NULL.
const NULL: u8 = 2;

/// The key of `values`, and whether any of them is NULL (such a key never violates uniqueness).
pub fn encode(values: &[Value<'_>]) -> (Vec<u8>, bool) {
    let mut key = Vec::with_capacity(values.len() * 9);
    let mut has_null = false;
    for value in values {
        has_null |= !push(&mut key, value);
    }
    (key, has_null)
}

/// Bytes of a key of columns of these types at the most; none where a value can have any length.
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
pub fn push(key: &mut Vec<u8>, value: &Value<'_>) -> bool {
    #[inline]
    fn fixed<const N: usize>(key: &mut Vec<u8>, bytes: [u8; N]) {
        key.push(VALUE);
        key.extend_from_slice(&bytes);
    }
    match value {
        Value::Null => {
            key.push(NULL);
            return false;
        }
        Value::Bool(v) => fixed(key, [u8::from(*v)]),
        Value::Int16(v) => fixed(key, (*v as u16 ^ 1 << 15).to_be_bytes()),
        Value::Int32(v) => fixed(key, (*v as u32 ^ 1 << 31).to_be_bytes()),
        Value::Int64(v) => fixed(key, (*v as u64 ^ 1 << 63).to_be_bytes()),
        Value::Int128(v) => fixed(key, (*v as u128 ^ 1 << 127).to_be_bytes()),
        Value::Float32(v) => {
            let bits = (*v + 0.0).to_bits();
            fixed(key, (if bits >> 31 == 1 { !bits } else { bits ^ 1 << 31 }).to_be_bytes());
        }
        Value::Float64(v) => {
            let bits = (*v + 0.0).to_bits();
            fixed(key, (if bits >> 63 == 1 { !bits } else { bits ^ 1 << 63 }).to_be_bytes());
        }
        Value::Bytes(v) => {
            key.push(VALUE);
            for &byte in *v {
                key.push(byte);
                if byte == 0 {
                    key.push(0xFF);
                }
            }
            key.extend_from_slice(&[0, 0]);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        fn floats_compare_as_numbers(a in -1e9f64..1e9, b in -1e9f64..1e9) {
            let key = |v| encode(&[Value::Float64(v)]).0;
            prop_assert_eq!(key(a).cmp(&key(b)), a.partial_cmp(&b).unwrap());
            prop_assert_eq!(key(0.0), key(-0.0));
        }
    }
}
