//! Memory-comparable keys: two rows of columns of any types, directions and places of NULL compare
//! as their keys do. The trees of keys answer as a plain map does.

use crate::input::Input;
use serac_index::cubit;
use serac_index::ordered::key::{Encoding, Meaning, most_bytes, push};
use serac_index::ordered::{Limit, OrderedIndex};
use serac_storage::{BlockNo, ColumnType, RowId, Slot, Value};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// A column of a key.
struct Column {
    column_type: ColumnType,
    encoding: Encoding,
}

const TYPES: [ColumnType; 11] = [
    ColumnType::Boolean,
    ColumnType::Int16,
    ColumnType::Int32,
    ColumnType::Int64,
    ColumnType::Decimal { precision: 38, scale: 5 },
    ColumnType::Uuid,
    ColumnType::Interval,
    ColumnType::Float32,
    ColumnType::Float64,
    ColumnType::Utf8,
    ColumnType::Binary,
];

fn column(input: &mut Input<'_>) -> Column {
    let (chosen, order) = (input.byte(), input.byte());
    let column_type = TYPES[usize::from(chosen) % TYPES.len()];
    let encoding =
        Encoding { descending: order & 1 != 0, nulls_first: order & 2 != 0, meaning: Meaning::of(column_type) };
    Column { column_type, encoding }
}

/// A value of the type; the bytes of a text need not be UTF-8 for a key.
fn value<'a>(input: &mut Input<'a>, column_type: ColumnType) -> Value<'a> {
    if input.byte() % 8 == 7 {
        return Value::Null;
    }
    match column_type {
        ColumnType::Boolean => Value::Bool(input.byte() & 1 != 0),
        ColumnType::Int16 => Value::Int16(i16::from_le_bytes(input.array())),
        ColumnType::Int32 => Value::Int32(i32::from_le_bytes(input.array())),
        ColumnType::Int64 => Value::Int64(i64::from_le_bytes(input.array())),
        ColumnType::Float32 => Value::Float32(f32::from_le_bytes(input.array())),
        ColumnType::Float64 => Value::Float64(f64::from_le_bytes(input.array())),
        ColumnType::Utf8 | ColumnType::Binary => Value::Bytes(input.piece()),
        _ => Value::Int128(i128::from_le_bytes(input.array())),
    }
}

/// The nanoseconds of an interval, with months of 30 days and days of 24 hours.
fn length(interval: i128) -> i128 {
    let bytes = interval.to_le_bytes();
    let number = |from: usize| i32::from_le_bytes(*bytes[from..].first_chunk().expect("four bytes"));
    let nanos = i64::from_le_bytes(*bytes[8..].first_chunk().expect("eight bytes"));
    (i128::from(number(0)) * 30 + i128::from(number(4))) * 86_400_000_000_000 + i128::from(nanos)
}

/// Compares numbers, with NaN above all others.
fn floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Compares two values of a column.
fn compare(a: &Value<'_>, b: &Value<'_>, column: &Column) -> Ordering {
    let order = match (a, b) {
        (Value::Null, _) | (_, Value::Null) => {
            let order = a.is_null().cmp(&b.is_null());
            return if column.encoding.nulls_first { order.reverse() } else { order };
        }
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int16(a), Value::Int16(b)) => a.cmp(b),
        (Value::Int32(a), Value::Int32(b)) => a.cmp(b),
        (Value::Int64(a), Value::Int64(b)) => a.cmp(b),
        (Value::Int128(a), Value::Int128(b)) => match column.column_type {
            ColumnType::Uuid => a.to_le_bytes().cmp(&b.to_le_bytes()),
            ColumnType::Interval => length(*a).cmp(&length(*b)),
            _ => a.cmp(b),
        },
        (Value::Float32(a), Value::Float32(b)) => floats((*a).into(), (*b).into()),
        (Value::Float64(a), Value::Float64(b)) => floats(*a, *b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => unreachable!("both are of the column's type"),
    };
    if column.encoding.descending { order.reverse() } else { order }
}

fn key(values: &[Value<'_>], columns: &[Column]) -> Vec<u8> {
    let mut key = Vec::new();
    for (value, column) in values.iter().zip(columns) {
        assert_eq!(push(&mut key, value, column.encoding), !value.is_null());
    }
    key
}

/// Compares rows by key and by value; then checks the trees.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let columns: Vec<Column> = (0..1 + input.byte() % 3).map(|_| column(&mut input)).collect();
    let mut rows: Vec<Vec<Value<'_>>> = Vec::new();
    while !input.is_empty() && rows.len() < 48 {
        let row = columns.iter().map(|column| value(&mut input, column.column_type)).collect();
        rows.push(row);
    }
    let keys: Vec<Vec<u8>> = rows.iter().map(|row| key(row, &columns)).collect();
    let most = most_bytes(columns.iter().map(|column| column.column_type));
    for ((row, key), number) in rows.iter().zip(&keys).zip(0..) {
        assert!(most.is_none_or(|most| key.len() <= most), "{row:?}: {} bytes, not {most:?}", key.len());
        let bitmap_key = cubit::Key::new(key);
        assert_eq!(bitmap_key.with_bytes(<[u8]>::to_vec), *key);
        for (other_row, other) in rows.iter().zip(&keys).take(number) {
            let pairs = row.iter().zip(other_row).zip(&columns);
            let expected = pairs.map(|((a, b), column)| compare(a, b, column)).fold(Ordering::Equal, Ordering::then);
            assert_eq!(key.cmp(other), expected, "{row:?} and {other_row:?}");
            assert!(expected.is_eq() || !key.starts_with(other) && !other.starts_with(key), "{row:?}, {other_row:?}");
            assert_eq!(bitmap_key.cmp(&cubit::Key::new(other)), expected, "{row:?} and {other_row:?}");
        }
    }
    check_tree(&keys, most);
}

/// Checks an ordered index of the keys, each at some rows, of which some are removed again.
fn check_tree(keys: &[Vec<u8>], most: Option<usize>) {
    let index = OrderedIndex::new(most);
    let mut model = BTreeSet::new();
    let row = |number: usize| RowId::new(BlockNo(number as u32 / 7), Slot(number as u32 % 7));
    for (number, key) in keys.iter().enumerate() {
        for place in [number, number + 1] {
            index.insert(key, row(place));
            model.insert((key.clone(), row(place)));
        }
        if number % 3 == 2 {
            let gone = &keys[number / 2];
            index.remove(gone, row(number / 2));
            model.remove(&(gone.clone(), row(number / 2)));
        }
    }
    assert_eq!(index.verify(), model.len());
    for reverse in [false, true] {
        let mut found = Vec::new();
        let all = (Limit::before(&[]), Limit::after(&[]));
        let _ = index.scan(all.0, all.1, reverse, |_, row| -> ControlFlow<()> {
            found.push(row);
            ControlFlow::Continue(())
        });
        let mut expected: Vec<RowId> = model.iter().map(|(_, row)| *row).collect();
        if reverse {
            expected.reverse();
        }
        assert_eq!(found, expected);
    }
    for key in keys {
        let expected: Vec<RowId> = model.iter().filter(|(other, _)| other == key).map(|(_, row)| *row).collect();
        assert_eq!(index.rows(key), expected);
    }
}

/// Two rows or more of each type, with its special values.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for chosen in 0..TYPES.len() as u8 {
        for order in 0..4 {
            let mut seed = vec![0, chosen, order];
            for byte in [0, 1, 0x7F, 0x80, 0xFF] {
                seed.extend_from_slice(&[0, 3]);
                seed.extend_from_slice(&[byte; 17]);
                seed.push(7);
            }
            seeds.push(seed);
        }
    }
    for columns in [[9, 2, 8], [10, 6, 5], [4, 0, 9]] {
        let mut seed = vec![2];
        columns.iter().for_each(|chosen| seed.extend_from_slice(&[*chosen, *chosen % 4]));
        for number in 0..90_u8 {
            seed.push(number.wrapping_mul(37) % 11);
        }
        seeds.push(seed);
    }
    seeds
}
