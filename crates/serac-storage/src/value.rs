//! Single values on their way into or out of a row, in physical form.

/// One value in the physical form of its column. The column's
/// [`ColumnType`](crate::types::ColumnType) says how to read it:
///
/// | variant | column types |
/// |---|---|
/// | `Bool` | BOOLEAN |
/// | `Int16`, `Int32`, `Int64` | SMALLINT, INTEGER, BIGINT |
/// | `Int32` | DATE: days since 1970-01-01 |
/// | `Int64` | TIME and TIMESTAMP: microseconds; DECIMAL(p ≤ 18, s): unscaled |
/// | `Int128` | DECIMAL(p > 18, s): unscaled; INTERVAL: Arrow's month-day-nano as 16 little-endian bytes; UUID: its 16 bytes read as little-endian |
/// | `Float32`, `Float64` | REAL, DOUBLE |
/// | `Bytes` | VARCHAR, TEXT, CHAR, JSON, JSONB (UTF-8); BYTEA; NUMERIC in its stored form |
// A tag of eight bytes, and an aligned payload behind it. So a value is copied by whole words; a
// processor cannot forward odd pieces from store to load.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u64)]
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// A truth value.
    Bool(bool),
    /// 2 bytes.
    Int16(i16),
    /// 4 bytes.
    Int32(i32),
    /// 8 bytes.
    Int64(i64),
    /// 16 bytes.
    Int128(i128),
    /// IEEE 754 single.
    Float32(f32),
    /// IEEE 754 double.
    Float64(f64),
    /// A variable-length value.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// Whether this is SQL NULL.
    #[inline]
    pub const fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The integer of at most 8 bytes that this is.
    #[inline]
    pub const fn integer(&self) -> Option<i64> {
        Some(match *self {
            Value::Int16(value) => value as i64,
            Value::Int32(value) => value as i64,
            Value::Int64(value) => value,
            _ => return None,
        })
    }
}

macro_rules! from_native {
    ($($native:ty => $variant:ident),*) => {
        $(impl From<$native> for Value<'_> {
            #[inline]
            fn from(value: $native) -> Self {
                Self::$variant(value)
            }
        })*
    };
}
from_native!(bool => Bool, i16 => Int16, i32 => Int32, i64 => Int64, i128 => Int128, f32 => Float32, f64 => Float64);

impl<'a> From<&'a str> for Value<'a> {
    #[inline]
    fn from(value: &'a str) -> Self {
        Self::Bytes(value.as_bytes())
    }
}
impl<'a> From<&'a [u8]> for Value<'a> {
    #[inline]
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(value)
    }
}
impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    #[inline]
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A Rust type that a [`Value`] can be taken as. `Option<T>` takes NULL, too. An integer takes the
/// integers of its width and of smaller ones, and `f64` takes both floats.
pub trait FromValue<'a>: Sized {
    /// The value, if it is one of the type.
    fn from_value(value: Value<'a>) -> Option<Self>;
}

macro_rules! to_native {
    ($($native:ty: $($variant:ident)|+),*) => {
        $(impl<'a> FromValue<'a> for $native {
            #[inline]
            fn from_value(value: Value<'a>) -> Option<Self> {
                match value {
                    $(Value::$variant(value) => Some(value.into()),)+
                    _ => None,
                }
            }
        })*
    };
}
to_native!(
    bool: Bool, i16: Int16, i32: Int16 | Int32, i64: Int16 | Int32 | Int64, i128: Int16 | Int32 | Int64 | Int128, f32: Float32,
    f64: Float32 | Float64, &'a [u8]: Bytes
);

impl<'a> FromValue<'a> for &'a str {
    #[inline]
    fn from_value(value: Value<'a>) -> Option<Self> {
        <&[u8]>::from_value(value).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}
impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    #[inline]
    fn from_value(value: Value<'a>) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::from_value(value).map(Some) }
    }
}
