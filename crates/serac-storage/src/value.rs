//! Single values on their way into or out of a row, in physical form.

/// One value in the physical form of its column. The column's [`ColumnType`](crate::types::ColumnType) says how to read it:
///
/// | variant | column types |
/// |---|---|
/// | `Bool` | BOOLEAN |
/// | `Int16`, `Int32`, `Int64` | SMALLINT, INTEGER, BIGINT |
/// | `Int32` | DATE: days since 1970-01-01 |
/// | `Int64` | TIME and TIMESTAMP: microseconds; DECIMAL(p ≤ 18, s): unscaled |
/// | `Int128` | DECIMAL(p > 18, s): unscaled; INTERVAL: Arrow's month-day-nano as 16 little-endian bytes; UUID: its 16 bytes read as little-endian |
/// | `Float32`, `Float64` | REAL, DOUBLE |
/// | `Bytes` | VARCHAR, TEXT, CHAR (UTF-8); BYTEA |
#[derive(Clone, Copy, Debug, PartialEq)]
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
}
