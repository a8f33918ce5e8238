//! Single values out of Arrow arrays, in the storage's physical form.

use crate::float_text::{write_double, write_real};
use crate::infinity::Infinity;
use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, LargeBinaryArray, LargeStringArray,
    PrimitiveArray, StringViewArray,
};
use arrow_buffer::IntervalMonthDayNano;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use serac_numeric::Numeric;
use serac_storage::{ColumnType, Value};
use std::sync::Arc;

/// The value in row `row` of an array whose type is `column_type`'s Arrow type.
///
/// # Panics
/// If the array has another type.
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
        ColumnType::Json | ColumnType::JsonText => Value::Bytes(array.as_string::<i64>().value(row).as_bytes()),
        ColumnType::Binary => Value::Bytes(array.as_binary_view().value(row)),
        ColumnType::Numeric => Value::Bytes(array.as_binary::<i64>().value(row)),
    }
}

/// A value that outlives the row it was read from.
#[derive(Clone, PartialEq, Debug)]
pub enum OwnedValue {
    /// A value of fixed width.
    Fixed(Value<'static>),
    /// A value of any length.
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

fn primitive<T: ArrowPrimitiveType>(
    values: &[OwnedValue],
    column_type: ColumnType,
    native: impl Fn(Value<'_>) -> T::Native,
) -> ArrayRef {
    let natives = values.iter().map(|value| Some(value.as_value()).filter(|v| !v.is_null()).map(&native));
    Arc::new(natives.collect::<PrimitiveArray<T>>().with_data_type(column_type.arrow()))
}

fn bytes_of(value: &OwnedValue) -> Option<&[u8]> {
    match value {
        OwnedValue::Bytes(bytes) => Some(bytes),
        OwnedValue::Fixed(_) => None,
    }
}

fn text_of(value: &OwnedValue) -> Option<&str> {
    bytes_of(value).map(|bytes| std::str::from_utf8(bytes).expect("text is UTF-8"))
}

/// An array of `column_type`'s Arrow type, the inverse of [`value_at`].
///
/// # Panics
/// If a value is not of the type.
pub fn array_of(values: &[OwnedValue], column_type: ColumnType) -> ArrayRef {
    /// The number in a value that is not NULL.
    fn int(value: Value<'_>) -> i128 {
        match value {
            Value::Int16(v) => v.into(),
            Value::Int32(v) => v.into(),
            Value::Int64(v) => v.into(),
            Value::Int128(v) => v,
            other => panic!("{other:?} is not an integer"),
        }
    }
    match column_type {
        ColumnType::Boolean => {
            let bits = values.iter().map(|value| match value.as_value() {
                Value::Bool(bit) => Some(bit),
                _ => None,
            });
            Arc::new(bits.collect::<BooleanArray>())
        }
        ColumnType::Int16 => primitive::<Int16Type>(values, column_type, |v| int(v) as i16),
        ColumnType::Int32 => primitive::<Int32Type>(values, column_type, |v| int(v) as i32),
        ColumnType::Int64 => primitive::<Int64Type>(values, column_type, |v| int(v) as i64),
        ColumnType::Date => primitive::<Date32Type>(values, column_type, |v| int(v) as i32),
        ColumnType::Time => primitive::<Time64MicrosecondType>(values, column_type, |v| int(v) as i64),
        ColumnType::Timestamp { .. } => primitive::<TimestampMicrosecondType>(values, column_type, |v| int(v) as i64),
        ColumnType::Decimal { .. } => primitive::<Decimal128Type>(values, column_type, int),
        ColumnType::Interval => primitive::<IntervalMonthDayNanoType>(values, column_type, |v| {
            let bits = int(v) as u128;
            IntervalMonthDayNano::new(bits as i32, (bits >> 32) as i32, (bits >> 64) as i64)
        }),
        ColumnType::Float32 => primitive::<Float32Type>(values, column_type, |v| match v {
            Value::Float32(v) => v,
            other => panic!("{other:?} is not a REAL"),
        }),
        ColumnType::Float64 => primitive::<Float64Type>(values, column_type, |v| match v {
            Value::Float64(v) => v,
            other => panic!("{other:?} is not a DOUBLE PRECISION"),
        }),
        ColumnType::Uuid => {
            let mut uuids = FixedSizeBinaryBuilder::with_capacity(values.len(), 16);
            for value in values {
                match value.as_value() {
                    Value::Null => uuids.append_null(),
                    value => uuids.append_value(int(value).to_le_bytes()).expect("16 bytes"),
                }
            }
            Arc::new(uuids.finish())
        }
        ColumnType::Utf8 => Arc::new(values.iter().map(text_of).collect::<StringViewArray>()),
        ColumnType::Json | ColumnType::JsonText => Arc::new(values.iter().map(text_of).collect::<LargeStringArray>()),
        ColumnType::Binary => Arc::new(values.iter().map(bytes_of).collect::<BinaryViewArray>()),
        ColumnType::Numeric => Arc::new(values.iter().map(bytes_of).collect::<LargeBinaryArray>()),
    }
}

/// The canonical text of a UUID.
pub fn format_uuid(bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The text that `write` writes.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The sign of an infinite date or time; `None` for all other values.
pub fn infinity_of(value: Value<'_>, column_type: ColumnType) -> Option<Infinity> {
    match (value, column_type) {
        (Value::Int32(days), ColumnType::Date) => Infinity::of_days(days),
        (Value::Int64(micros), ColumnType::Timestamp { .. }) => Infinity::of_micros(micros),
        _ => None,
    }
}

/// A value of the type as a person reads it in an error message.
pub fn display(value: &Value<'_>, column_type: ColumnType) -> String {
    match (value, column_type) {
        (Value::Null, _) => "null".into(),
        (Value::Int128(bits), ColumnType::Uuid) => format_uuid(&bits.to_le_bytes()),
        (Value::Bytes(bytes), ColumnType::Binary) => {
            bytes.iter().fold("\\x".to_owned(), |shown, byte| format!("{shown}{byte:02x}"))
        }
        (Value::Bytes(bytes), ColumnType::Numeric) => match Numeric::of_stored(bytes) {
            Ok(number) => number.to_string(),
            Err(error) => error.to_string(),
        },
        (Value::Bytes(bytes), _) => String::from_utf8_lossy(bytes).into_owned(),
        (Value::Float32(float), _) => written(|out| write_real(out, *float)),
        (Value::Float64(float), _) => written(|out| write_double(out, *float)),
        _ if let Some(infinity) = infinity_of(*value, column_type) => infinity.name().into(),
        _ => {
            // Times of UTC are shown without a look at time zones, of which not every build knows.
            let (column_type, zone) = match column_type {
                ColumnType::Timestamp { utc: true } => (ColumnType::Timestamp { utc: false }, "+00"),
                other => (other, ""),
            };
            let array = array_of(&[OwnedValue::from(value)], column_type);
            let options = FormatOptions::new().with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
            let shown =
                ArrayFormatter::try_new(&array, &options).map(|formatter| format!("{}{zone}", formatter.value(0)));
            shown.unwrap_or_else(|error| error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_shown_as_a_person_writes_them() {
        let money = ColumnType::Decimal { precision: 10, scale: 2 };
        for (value, column_type, shown) in [
            (Value::Int64(150), money, "1.50"),
            (Value::Int64(-5), money, "-0.05"),
            (Value::Int64(7), ColumnType::Int64, "7"),
            (Value::Float64(0.0), ColumnType::Float64, "0"),
            (Value::Float64(1e15), ColumnType::Float64, "1e+15"),
            (Value::Float64(123_456_789_012_345_680.0), ColumnType::Float64, "1.2345678901234568e+17"),
            (Value::Float64(f64::NAN), ColumnType::Float64, "NaN"),
            (Value::Float32(1.5), ColumnType::Float32, "1.5"),
            (Value::Float32(1e-5), ColumnType::Float32, "1e-05"),
            (Value::Float32(1_234_567.0), ColumnType::Float32, "1.234567e+06"),
            (Value::Float32(f32::NEG_INFINITY), ColumnType::Float32, "-Infinity"),
            (Value::Int32(18_262), ColumnType::Date, "2020-01-01"),
            (Value::Int32(i32::MAX), ColumnType::Date, "infinity"),
            (Value::Int64(i64::MIN), ColumnType::Timestamp { utc: true }, "-infinity"),
            (Value::Int64(1_500_000), ColumnType::Time, "00:00:01.500"),
            (Value::Int64(1_577_836_800_000_000), ColumnType::Timestamp { utc: false }, "2020-01-01 00:00:00"),
            (Value::Int64(1_577_836_800_500_000), ColumnType::Timestamp { utc: true }, "2020-01-01 00:00:00.500+00"),
            (Value::Int128(3 << 120), ColumnType::Uuid, "00000000-0000-0000-0000-000000000003"),
            (Value::Bytes(b"\x01\xff"), ColumnType::Binary, "\\x01ff"),
            (Value::Bytes(b"\x02\x00\x96\x00"), ColumnType::Numeric, "1.50"),
            (Value::Bytes("ü".as_bytes()), ColumnType::Utf8, "ü"),
            (Value::Null, ColumnType::Utf8, "null"),
        ] {
            assert_eq!(display(&value, column_type), shown, "{column_type:?}");
        }
    }

    type Row = (i64, i128, f64, String);

    fn check(values: Vec<Option<OwnedValue>>, column_type: ColumnType) {
        let null = || OwnedValue::Fixed(Value::Null);
        let values: Vec<OwnedValue> = values.into_iter().map(|v| v.unwrap_or_else(null)).collect();
        let array = array_of(&values, column_type);
        assert_eq!(*array.data_type(), column_type.arrow());
        for (row, value) in values.iter().enumerate() {
            assert_eq!(value_at(&array, row, column_type), value.as_value());
        }
    }

    proptest! {
        #[test]
        fn arrays_give_back_their_values(rows: Vec<Option<Row>>) {
            let each = |value: &dyn Fn(&Row) -> OwnedValue| -> Vec<Option<OwnedValue>> {
                rows.iter().map(|row| row.as_ref().map(value)).collect()
            };
            let fixed = OwnedValue::Fixed;
            check(each(&|r| fixed(Value::Bool(r.0 > 0))), ColumnType::Boolean);
            check(each(&|r| fixed(Value::Int16(r.0 as i16))), ColumnType::Int16);
            for column_type in [ColumnType::Int32, ColumnType::Date] {
                check(each(&|r| fixed(Value::Int32(r.0 as i32))), column_type);
            }
            let micros = [ColumnType::Time, ColumnType::Timestamp { utc: true }, ColumnType::Timestamp { utc: false }];
            for column_type in [ColumnType::Int64, ColumnType::Decimal { precision: 18, scale: 3 }].into_iter().chain(micros) {
                check(each(&|r| fixed(Value::Int64(r.0))), column_type);
            }
            for column_type in [ColumnType::Decimal { precision: 38, scale: 9 }, ColumnType::Interval, ColumnType::Uuid] {
                check(each(&|r| fixed(Value::Int128(r.1))), column_type);
            }
            check(each(&|r| fixed(Value::Float32(r.2 as f32))), ColumnType::Float32);
            check(each(&|r| fixed(Value::Float64(r.2))), ColumnType::Float64);
            for column_type in [ColumnType::Utf8, ColumnType::JsonText, ColumnType::Binary, ColumnType::Numeric] {
                check(each(&|r| OwnedValue::Bytes(r.3.as_bytes().into())), column_type);
            }
        }
    }
}
