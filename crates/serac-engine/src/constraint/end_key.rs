//! The key of one end of a foreign key, and the same key at the other end.
//!
//! Both ends may be integers of different widths. A key is then encoded anew for the other end's
//! index. No row there has a number for which the column has no room.

use crate::table::Table;
use crate::values::{OwnedValue, display};
use serac_storage::{ColumnType, Value};
use std::borrow::Cow;

/// A key of one end of a foreign key.
#[derive(Debug)]
pub(crate) struct EndKey {
    /// As the index of this end has it.
    pub(super) bytes: Vec<u8>,
    values: Box<[OwnedValue]>,
}

impl EndKey {
    /// The key of these columns of a row of the table; `None` if one of them is NULL.
    pub(super) fn of(table: &Table, row: &[Value<'_>], columns: &[usize]) -> Option<Self> {
        let (bytes, has_null) = table.index_for_key(columns).key_of(row);
        (!has_null).then(|| Self { bytes, values: columns.iter().map(|&c| OwnedValue::from(&row[c])).collect() })
    }

    /// The same key as the index on `columns` of the other end's table has it; `None` if no row
    /// there can have it.
    pub(super) fn at(&self, table: &Table, columns: &[usize]) -> Option<Cow<'_, [u8]>> {
        key_at(table, columns, &self.bytes, || self.values.iter().map(OwnedValue::as_value))
    }

    /// As messages show it: the values of `columns` of the table.
    pub(super) fn shown(&self, table: &Table, columns: &[usize]) -> String {
        let types = columns.iter().map(|&c| table.definition.columns[c].sql_type.column_type);
        let shown = self.values.iter().zip(types).map(|(value, of)| display(&value.as_value(), of));
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// The index key at the other end of a foreign key for the values with these bytes at one end, as
/// the index on `columns` of that table has it. `None` if no row there can have it.
pub(crate) fn key_at<'k, 'v, V: Iterator<Item = Value<'v>>>(
    table: &Table,
    columns: &[usize],
    bytes: &'k [u8],
    values: impl Fn() -> V,
) -> Option<Cow<'k, [u8]>> {
    let types = || columns.iter().map(|&c| table.definition.columns[c].sql_type.column_type);
    if values().zip(types()).all(|(value, of)| !is_of_other_width(&value, of)) {
        return Some(Cow::Borrowed(bytes));
    }
    let kept: Vec<Value<'_>> = values().zip(types()).map(|(value, of)| as_kept(value, of)).collect::<Option<_>>()?;
    Some(Cow::Owned(table.index_for_key(columns).encode_key(kept.into_iter()).0))
}

/// Whether a value is an integer, and the column one of another width.
fn is_of_other_width(value: &Value<'_>, column: ColumnType) -> bool {
    match value {
        Value::Int16(_) => column != ColumnType::Int16,
        Value::Int32(_) => matches!(column, ColumnType::Int16 | ColumnType::Int64),
        Value::Int64(_) => matches!(column, ColumnType::Int16 | ColumnType::Int32),
        _ => false,
    }
}

/// Whether a column has integers, of any width.
pub(crate) fn is_integer(column: ColumnType) -> bool {
    matches!(column, ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64)
}

/// An integer as a column of integers keeps it, and other values as they are; `None` if the column
/// has no room for it.
pub(crate) fn as_kept(value: Value<'_>, column: ColumnType) -> Option<Value<'_>> {
    let number = match value {
        Value::Int16(number) => i64::from(number),
        Value::Int32(number) => i64::from(number),
        Value::Int64(number) => number,
        other => return Some(other),
    };
    match column {
        ColumnType::Int16 => i16::try_from(number).ok().map(Value::Int16),
        ColumnType::Int32 => i32::try_from(number).ok().map(Value::Int32),
        ColumnType::Int64 => Some(Value::Int64(number)),
        _ => Some(value),
    }
}
