//! Values of the model, and their way into and out of Arrow arrays.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::IntervalMonthDayNano;
use arrow_schema::DataType;
use rand::Rng;
use rand::rngs::StdRng;
use serac_storage::{ColumnSchema, ColumnType, Value};
use std::sync::Arc;

/// A value of the model. Floats are kept as bits: a NaN equals itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Datum {
    Null,
    Bool(bool),
    Int16(i16),
    Int32(i32),
    Int64(i64),
    Int128(i128),
    Float32(u32),
    Float64(u64),
    Bytes(Arc<[u8]>),
}

impl Datum {
    pub fn of(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(v) => Self::Bool(v),
            Value::Int16(v) => Self::Int16(v),
            Value::Int32(v) => Self::Int32(v),
            Value::Int64(v) => Self::Int64(v),
            Value::Int128(v) => Self::Int128(v),
            Value::Float32(v) => Self::Float32(v.to_bits()),
            Value::Float64(v) => Self::Float64(v.to_bits()),
            Value::Bytes(v) => Self::Bytes(v.into()),
        }
    }

    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(v) => Value::Bool(*v),
            Self::Int16(v) => Value::Int16(*v),
            Self::Int32(v) => Value::Int32(*v),
            Self::Int64(v) => Value::Int64(*v),
            Self::Int128(v) => Value::Int128(*v),
            Self::Float32(v) => Value::Float32(f32::from_bits(*v)),
            Self::Float64(v) => Value::Float64(f64::from_bits(*v)),
            Self::Bytes(v) => Value::Bytes(v),
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(v) => Some(v),
            _ => None,
        }
    }

    /// The value in row `i` of a scanned array of the column.
    pub fn scanned(array: &ArrayRef, column_type: ColumnType, i: usize) -> Self {
        fn number<T: ArrowPrimitiveType>(array: &ArrayRef, i: usize) -> T::Native {
            array.as_primitive::<T>().value(i)
        }
        if array.is_null(i) {
            return Self::Null;
        }
        match column_type {
            ColumnType::Boolean => Self::Bool(array.as_boolean().value(i)),
            ColumnType::Int16 => Self::Int16(number::<Int16Type>(array, i)),
            ColumnType::Int32 => Self::Int32(number::<Int32Type>(array, i)),
            ColumnType::Int64 => Self::Int64(number::<Int64Type>(array, i)),
            ColumnType::Float32 => Self::Float32(number::<Float32Type>(array, i).to_bits()),
            ColumnType::Float64 => Self::Float64(number::<Float64Type>(array, i).to_bits()),
            ColumnType::Decimal { .. } if *array.data_type() == DataType::Int64 => {
                Self::Int64(number::<Int64Type>(array, i))
            }
            ColumnType::Decimal { precision, .. } => match number::<Decimal128Type>(array, i) {
                wide if precision > 18 => Self::Int128(wide),
                narrow => Self::Int64(narrow.try_into().expect("18 digits fit 64 bits")),
            },
            ColumnType::Date => Self::Int32(number::<Date32Type>(array, i)),
            ColumnType::Time => Self::Int64(number::<Time64MicrosecondType>(array, i)),
            ColumnType::Timestamp { .. } => Self::Int64(number::<TimestampMicrosecondType>(array, i)),
            ColumnType::Interval => Self::Int128(interval_bits(number::<IntervalMonthDayNanoType>(array, i))),
            ColumnType::Utf8 => Self::Bytes(array.as_string_view().value(i).as_bytes().into()),
            ColumnType::Json | ColumnType::JsonText => Self::Bytes(array.as_string::<i64>().value(i).as_bytes().into()),
            ColumnType::Binary => Self::Bytes(array.as_binary_view().value(i).into()),
            ColumnType::Numeric => Self::Bytes(array.as_binary::<i64>().value(i).into()),
            ColumnType::Uuid => {
                let bytes = array.as_fixed_size_binary().value(i).try_into().expect("16 bytes");
                Self::Int128(i128::from_le_bytes(bytes))
            }
        }
    }
}

/// Months in the lowest 4 bytes, then days in 4, then nanoseconds in 8.
fn interval_bits(interval: IntervalMonthDayNano) -> i128 {
    let (months, days) = (interval.months as u32 as u128, interval.days as u32 as u128);
    (months | days << 32 | (interval.nanoseconds as u64 as u128) << 64) as i128
}
fn interval(bits: i128) -> IntervalMonthDayNano {
    IntervalMonthDayNano::new(bits as i32, (bits >> 32) as i32, (bits >> 64) as i64)
}

/// An Arrow array of the column's type.
pub fn array(column_type: ColumnType, values: &[&Datum]) -> ArrayRef {
    fn primitive<T: ArrowPrimitiveType>(
        values: &[&Datum],
        native: impl Fn(Value<'_>) -> T::Native,
    ) -> PrimitiveArray<T> {
        values.iter().map(|v| (**v != Datum::Null).then(|| native(v.value()))).collect()
    }
    let int16 = |v: Value<'_>| if let Value::Int16(v) = v { v } else { unreachable!("{v:?}") };
    let int32 = |v: Value<'_>| if let Value::Int32(v) = v { v } else { unreachable!("{v:?}") };
    let int64 = |v: Value<'_>| if let Value::Int64(v) = v { v } else { unreachable!("{v:?}") };
    let int128 = |v: Value<'_>| match v {
        Value::Int64(v) => v.into(),
        Value::Int128(v) => v,
        other => unreachable!("{other:?}"),
    };
    let float32 = |v: Value<'_>| if let Value::Float32(v) = v { v } else { unreachable!("{v:?}") };
    let float64 = |v: Value<'_>| if let Value::Float64(v) = v { v } else { unreachable!("{v:?}") };
    match column_type {
        ColumnType::Boolean => Arc::new(
            values.iter().map(|v| if let Datum::Bool(v) = v { Some(*v) } else { None }).collect::<BooleanArray>(),
        ),
        ColumnType::Int16 => Arc::new(primitive::<Int16Type>(values, int16)),
        ColumnType::Int32 => Arc::new(primitive::<Int32Type>(values, int32)),
        ColumnType::Int64 => Arc::new(primitive::<Int64Type>(values, int64)),
        ColumnType::Float32 => Arc::new(primitive::<Float32Type>(values, float32)),
        ColumnType::Float64 => Arc::new(primitive::<Float64Type>(values, float64)),
        ColumnType::Decimal { precision, scale } => {
            let array = primitive::<Decimal128Type>(values, int128);
            Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
        }
        ColumnType::Date => Arc::new(primitive::<Date32Type>(values, int32)),
        ColumnType::Time => Arc::new(primitive::<Time64MicrosecondType>(values, int64)),
        ColumnType::Timestamp { utc } => {
            let array = primitive::<TimestampMicrosecondType>(values, int64);
            Arc::new(array.with_timezone_opt(utc.then_some("UTC")))
        }
        ColumnType::Interval => Arc::new(primitive::<IntervalMonthDayNanoType>(values, |v| interval(int128(v)))),
        ColumnType::Utf8 => {
            let text = values.iter().map(|v| v.bytes().map(|v| std::str::from_utf8(v).unwrap()));
            Arc::new(text.collect::<StringViewArray>())
        }
        ColumnType::Json | ColumnType::JsonText => {
            let text = values.iter().map(|v| v.bytes().map(|v| std::str::from_utf8(v).unwrap()));
            Arc::new(text.collect::<LargeStringArray>())
        }
        ColumnType::Binary => Arc::new(values.iter().map(|v| v.bytes()).collect::<BinaryViewArray>()),
        ColumnType::Numeric => Arc::new(values.iter().map(|v| v.bytes()).collect::<LargeBinaryArray>()),
        ColumnType::Uuid => {
            let bytes = values.iter().map(|v| (**v != Datum::Null).then(|| int128(v.value()).to_le_bytes()));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 16).unwrap())
        }
    }
}

fn random_bytes(rng: &mut StdRng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes[..]);
    bytes
}

/// A value of the column: any bits of its type, inline and long strings, sometimes a NULL.
pub fn random_datum(rng: &mut StdRng, column: &ColumnSchema) -> Datum {
    if column.nullable && rng.random_bool(0.2) {
        return Datum::Null;
    }
    match column.column_type {
        ColumnType::Boolean => Datum::Bool(rng.random()),
        ColumnType::Int16 => Datum::Int16(rng.random()),
        ColumnType::Int32 | ColumnType::Date => Datum::Int32(rng.random()),
        ColumnType::Int64 | ColumnType::Time | ColumnType::Timestamp { .. } => Datum::Int64(rng.random()),
        ColumnType::Float32 => Datum::Float32(rng.random()),
        ColumnType::Float64 => Datum::Float64(rng.random()),
        ColumnType::Decimal { precision, .. } => {
            let limit = 10i128.pow(precision.into());
            let unscaled = rng.random_range(1 - limit..limit);
            if precision > 18 { Datum::Int128(unscaled) } else { Datum::Int64(unscaled as i64) }
        }
        ColumnType::Interval | ColumnType::Uuid => Datum::Int128(rng.random()),
        // Every other column has few words, as a dictionary wants it.
        ColumnType::Utf8 | ColumnType::Json | ColumnType::JsonText | ColumnType::Binary | ColumnType::Numeric
            if column.name.ends_with(['1', '3', '5', '7', '9']) =>
        {
            let words =
                ["", "ß", "exactly 12 b", "thirteen byte", "a word that needs the heap", "a word that differs late"];
            Datum::Bytes(words[rng.random_range(0..words.len())].as_bytes().into())
        }
        ColumnType::Utf8 | ColumnType::Json | ColumnType::JsonText | ColumnType::Binary | ColumnType::Numeric => {
            // Around the 12 bytes that lie in the view itself, and now and then more than a chunk
            // of the heap.
            let len = match rng.random_range(0..400) {
                0 => 20_000,
                1..200 => rng.random_range(0..=12),
                _ => rng.random_range(13..60),
            };
            if matches!(column.column_type, ColumnType::Binary | ColumnType::Numeric) {
                return Datum::Bytes(random_bytes(rng, len).into());
            }
            let letters = ['a', 'ß', '中', '🧊', '\0'];
            let text: String = (0..len / 2).map(|_| letters[rng.random_range(0..letters.len())]).collect();
            Datum::Bytes(text.as_bytes().into())
        }
    }
}
