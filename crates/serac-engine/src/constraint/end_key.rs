//! The key of one end of a foreign key, and the same key at the other end.
//!
//! The ends may have different types whose values are compared: integers of any width, numbers of
//! any digits, floats of both widths, dates and timestamps. A key is then encoded anew for the
//! other end's index. No row there has a value for which the column has no room.

use crate::infinity::Infinity;
use crate::table::Table;
use crate::values::{OwnedValue, display};
use serac_numeric::Numeric;
use serac_storage::{ColumnType, Value};
use std::borrow::Cow;

/// A key of one end of a foreign key.
#[derive(Debug)]
pub(crate) struct EndKey {
    /// As the index of this end has it.
    pub(super) bytes: Vec<u8>,
    values: Box<[OwnedValue]>,
    types: Box<[ColumnType]>,
}

impl EndKey {
    /// The key of these columns of a row of the table; `None` if one of them is NULL.
    pub(super) fn of(table: &Table, row: &[Value<'_>], columns: &[usize]) -> Option<Self> {
        let (bytes, has_null) = table.index_for_key(columns).key_of(row);
        (!has_null).then(|| Self {
            bytes,
            values: columns.iter().map(|&c| OwnedValue::from(&row[c])).collect(),
            types: types_of(table, columns).collect(),
        })
    }

    /// The same key as the index on `columns` of the other end's table has it; `None` if no row
    /// there can have it.
    pub(super) fn at(&self, table: &Table, columns: &[usize]) -> Option<Cow<'_, [u8]>> {
        let values = || self.values.iter().map(OwnedValue::as_value);
        key_at(table, columns, &self.bytes, values, self.types.iter().copied())
    }

    /// As messages show it: the values of `columns` of the table.
    pub(super) fn shown(&self, table: &Table, columns: &[usize]) -> String {
        let shown = self.values.iter().zip(types_of(table, columns)).map(|(value, of)| display(&value.as_value(), of));
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// The types of columns of the table.
pub(crate) fn types_of(table: &Table, columns: &[usize]) -> impl Iterator<Item = ColumnType> + Clone {
    columns.iter().map(|&c| table.definition.columns[c].sql_type.column_type)
}

/// The index key at the other end of a foreign key for the values with these bytes at one end,
/// which are of these types, as the index on `columns` of that table has it. `None` if no row there
/// can have it.
pub(crate) fn key_at<'k, 'v, V: Iterator<Item = Value<'v>>>(
    table: &Table,
    columns: &[usize],
    bytes: &'k [u8],
    values: impl Fn() -> V,
    types: impl Iterator<Item = ColumnType> + Clone,
) -> Option<Cow<'k, [u8]>> {
    let pairs = types.zip(types_of(table, columns));
    if pairs.clone().all(|(from, to)| from == to) {
        return Some(Cow::Borrowed(bytes));
    }
    let kept = values().zip(pairs).map(|(value, (from, to))| converted(&value, from, to));
    let kept: Vec<OwnedValue> = kept.collect::<Option<_>>()?;
    Some(Cow::Owned(table.index_for_key(columns).encode_key(kept.iter().map(OwnedValue::as_value)).0))
}

/// Whether a column has integers, of any width.
fn is_integer(column: ColumnType) -> bool {
    matches!(column, ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64)
}

/// Whether a foreign key may lead from a column of one type to one of the other: an operator
/// compares their values, as they are or by an implicit cast of the referencing one.
pub(crate) fn are_comparable(child: ColumnType, parent: ColumnType) -> bool {
    use ColumnType::{Date, Decimal, Float32, Float64, Numeric, Timestamp};
    let is_time = |column| matches!(column, Date | Timestamp { utc: false });
    match (child, parent) {
        (child, parent) if child == parent => true,
        (child, parent) if is_integer(child) => {
            is_integer(parent) || matches!(parent, Decimal { .. } | Numeric | Float64)
        }
        (Decimal { .. } | Numeric, Decimal { .. } | Numeric) => true,
        (Float32, Float64) | (Float64, Float32) => true,
        (child, parent) => is_time(child) && is_time(parent),
    }
}

/// A value of a column as a column of another type keeps it; `None` if that has no room for it. The
/// types are the same, or [comparable](are_comparable).
pub(crate) fn converted(value: &Value<'_>, from: ColumnType, to: ColumnType) -> Option<OwnedValue> {
    const DAY_MICROS: i64 = 86_400_000_000;
    let fixed = |value: Value<'static>| Some(OwnedValue::Fixed(value));
    match (value, from, to) {
        (Value::Null, ..) => fixed(Value::Null),
        (value, from, to) if from == to => Some(OwnedValue::from(value)),
        (Value::Float32(number), ..) => fixed(Value::Float64(f64::from(*number))),
        (Value::Float64(float), _, to) if is_integer(to) => {
            let whole = *float as i64;
            if is_exact(whole, *float) { of_number(Numeric::from_integer(whole), to) } else { None }
        }
        (value, _, ColumnType::Float64) => {
            let whole = number(value, from)?.to_decimal(19, 0).ok().and_then(|whole| i64::try_from(whole).ok())?;
            is_exact(whole, whole as f64).then_some(OwnedValue::Fixed(Value::Float64(whole as f64)))
        }
        (Value::Float64(number), ..) => {
            let narrow = *number as f32;
            let is_same = f64::from(narrow) == *number || number.is_nan();
            is_same.then_some(OwnedValue::Fixed(Value::Float32(narrow)))
        }
        (Value::Int32(days), ColumnType::Date, _) => {
            let finite = || i64::from(*days).checked_mul(DAY_MICROS);
            fixed(Value::Int64(Infinity::of_days(*days).map(Infinity::micros).or_else(finite)?))
        }
        (Value::Int64(micros), ColumnType::Timestamp { .. }, _) => {
            let midnight = || i32::try_from(micros / DAY_MICROS).ok().filter(|_| micros % DAY_MICROS == 0);
            fixed(Value::Int32(Infinity::of_micros(*micros).map(Infinity::days).or_else(midnight)?))
        }
        _ => of_number(number(value, from)?, to),
    }
}

/// Whether a float is this whole number and no other one.
fn is_exact(whole: i64, float: f64) -> bool {
    whole.unsigned_abs() <= 1 << 53 && whole as f64 == float
}

/// The number in a value of a column.
fn number(value: &Value<'_>, column: ColumnType) -> Option<Numeric> {
    let unscaled = match value {
        Value::Int16(number) => i128::from(*number),
        Value::Int32(number) => i128::from(*number),
        Value::Int64(number) => i128::from(*number),
        Value::Int128(number) => *number,
        Value::Bytes(stored) => return Numeric::of_stored(stored).ok(),
        _ => return None,
    };
    let scale = if let ColumnType::Decimal { scale, .. } = column { scale } else { 0 };
    Some(Numeric::of_decimal(unscaled, scale))
}

/// A number as a column keeps it; `None` if it has more digits there.
fn of_number(number: Numeric, column: ColumnType) -> Option<OwnedValue> {
    let (precision, scale) = match column {
        ColumnType::Numeric => return Some(OwnedValue::Bytes(number.to_stored().into())),
        ColumnType::Decimal { precision, scale } => (precision, scale),
        _ => (38, 0),
    };
    let unscaled = number.to_decimal(precision, scale).ok()?;
    if Numeric::of_decimal(unscaled, scale) != number {
        return None;
    }
    Some(OwnedValue::Fixed(match column {
        ColumnType::Int16 => Value::Int16(unscaled.try_into().ok()?),
        ColumnType::Int32 => Value::Int32(unscaled.try_into().ok()?),
        ColumnType::Decimal { precision: 19.., .. } => Value::Int128(unscaled),
        _ => Value::Int64(unscaled.try_into().ok()?),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_same_in_other_types_or_are_not_there() {
        let decimal = |precision, scale| ColumnType::Decimal { precision, scale };
        let (day, time) = (ColumnType::Date, ColumnType::Timestamp { utc: false });
        let one_and_a_half = Numeric::of_decimal(15, 1).to_stored();
        for (value, from, to, kept) in [
            (Value::Int64(7), ColumnType::Int64, ColumnType::Int16, Some(Value::Int16(7))),
            (Value::Int64(70_000), ColumnType::Int64, ColumnType::Int16, None),
            (Value::Int64(150), decimal(5, 2), decimal(9, 4), Some(Value::Int64(15_000))),
            (Value::Int64(155), decimal(5, 2), decimal(9, 1), None),
            (Value::Int64(150), decimal(5, 2), decimal(30, 1), Some(Value::Int128(15))),
            (Value::Int32(3), ColumnType::Int32, decimal(9, 2), Some(Value::Int64(300))),
            (Value::Bytes(&one_and_a_half), ColumnType::Numeric, decimal(5, 2), Some(Value::Int64(150))),
            (Value::Int32(3), ColumnType::Int32, ColumnType::Float64, Some(Value::Float64(3.0))),
            (Value::Int64(i64::MAX), ColumnType::Int64, ColumnType::Float64, None),
            (Value::Float64(0.1), ColumnType::Float64, ColumnType::Float32, None),
            (Value::Float32(0.5), ColumnType::Float32, ColumnType::Float64, Some(Value::Float64(0.5))),
            (Value::Int32(1), day, time, Some(Value::Int64(86_400_000_000))),
            (Value::Int64(1), time, day, None),
            (Value::Int64(i64::MIN), time, day, Some(Value::Int32(i32::MIN))),
        ] {
            assert!(are_comparable(from, to), "{from:?} {to:?}");
            assert_eq!(converted(&value, from, to), kept.map(OwnedValue::Fixed), "{value:?}");
        }
        let stored = converted(&Value::Int64(150), decimal(5, 2), ColumnType::Numeric).unwrap();
        assert_eq!(number(&stored.as_value(), ColumnType::Numeric), Some(Numeric::of_decimal(15, 1)));
        assert_eq!(converted(&Value::Float64(1.5), ColumnType::Float64, ColumnType::Int32), None);
        assert!(!are_comparable(decimal(5, 2), ColumnType::Int32) && !are_comparable(day, ColumnType::Int32));
    }
}
