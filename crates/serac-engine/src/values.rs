//! Single values out of Arrow arrays, in the storage's physical form.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use serac_storage::{ColumnType, Value};

/// The value in row `row` of an array whose type is `column_type`'s Arrow type.
///
/// # Panics
/// When the array has another type.
pub fn value_at(array: &ArrayRef, row: usize, column_type: ColumnType) -> Value<'_> {
    if array.is_null(row) {
        return Value::Null;
    }
    match column_type {
        ColumnType::Boolean => Value::Bool(array.as_boolean().value(row)),
        ColumnType::Int16 => Value::Int16(array.as_primitive::<Int16Type>().value(row)),
        ColumnType::Int32 => Value::Int32(array.as_primitive::<Int32Type>().value(row)),
        ColumnType::Int64 => Value::Int64(array.as_primitive::<Int64Type>().value(row)),
        ColumnType::Float32 => Value::Float32(array.as_primitive::<Float32Type>().value(row)),
        ColumnType::Float64 => Value::Float64(array.as_primitive::<Float64Type>().value(row)),
        ColumnType::Date => Value::Int32(array.as_primitive::<Date32Type>().value(row)),
        ColumnType::Time => Value::Int64(array.as_primitive::<Time64MicrosecondType>().value(row)),
        ColumnType::Timestamp { .. } => Value::Int64(array.as_primitive::<TimestampMicrosecondType>().value(row)),
        ColumnType::Decimal { precision, .. } => {
            let value = array.as_primitive::<Decimal128Type>().value(row);
            if precision <= 18 { Value::Int64(value as i64) } else { Value::Int128(value) }
        }
        ColumnType::Interval => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&value.months.to_le_bytes());
            bytes[4..8].copy_from_slice(&value.days.to_le_bytes());
            bytes[8..].copy_from_slice(&value.nanoseconds.to_le_bytes());
            Value::Int128(i128::from_le_bytes(bytes))
        }
        ColumnType::Uuid => {
            let bytes: [u8; 16] = array.as_fixed_size_binary().value(row).try_into().expect("16 bytes");
            Value::Int128(i128::from_le_bytes(bytes))
        }
        ColumnType::Utf8 => Value::Bytes(array.as_string_view().value(row).as_bytes()),
        ColumnType::Binary => Value::Bytes(array.as_binary_view().value(row)),
    }
}

/// A value that outlives the row it was read from.
#[derive(Clone, PartialEq, Debug)]
pub enum OwnedValue {
    /// Of fixed width.
    Fixed(Value<'static>),
    /// Of any length.
    Bytes(Box<[u8]>),
}

impl OwnedValue {
    /// The value, borrowed.
    pub fn as_value(&self) -> Value<'_> {
        match self {
            Self::Fixed(value) => *value,
            Self::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

impl From<&Value<'_>> for OwnedValue {
    fn from(value: &Value<'_>) -> Self {
        Self::Fixed(match *value {
            Value::Bytes(bytes) => return Self::Bytes(bytes.into()),
            Value::Null => Value::Null,
            Value::Bool(v) => Value::Bool(v),
            Value::Int16(v) => Value::Int16(v),
            Value::Int32(v) => Value::Int32(v),
            Value::Int64(v) => Value::Int64(v),
            Value::Int128(v) => Value::Int128(v),
            Value::Float32(v) => Value::Float32(v),
            Value::Float64(v) => Value::Float64(v),
        })
    }
}

/// A value as a person reads it in an error message.
pub fn display(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(v) => v.to_string(),
        Value::Int16(v) => v.to_string(),
        Value::Int32(v) => v.to_string(),
        Value::Int64(v) => v.to_string(),
        Value::Int128(v) => v.to_string(),
        Value::Float32(v) => v.to_string(),
        Value::Float64(v) => v.to_string(),
        Value::Bytes(v) => String::from_utf8_lossy(v).into_owned(),
    }
}
