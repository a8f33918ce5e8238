//! Column types: the SQL-facing type, the Arrow type that leaves the storage, and the physical form
//! inside a block.

use crate::value::Value;
use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, IntervalUnit, Schema, SchemaRef, TimeUnit};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ColumnType {
    /// BOOLEAN: one bit.
    Boolean,
    /// SMALLINT: 2 bytes.
    Int16,
    /// INTEGER: 4 bytes.
    Int32,
    /// BIGINT: 8 bytes.
    Int64,
    /// REAL: 4 bytes.
    Float32,
    /// DOUBLE PRECISION: 8 bytes.
    Float64,
    /// DECIMAL(precision, scale), precision 1 to 38, scale 0 to the precision. Kept as a scaled
    /// 64-bit integer up to precision 18, else as 128 bits. It leaves the storage as `Decimal128`,
    /// unless a scan asks for the 64-bit form.
    #[serde(deserialize_with = "decimal")]
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: i8,
    },
    /// DATE: days since 1970-01-01, 4 bytes.
    Date,
    /// TIME: microseconds since midnight, 8 bytes.
    Time,
    /// TIMESTAMP (`utc: false`) or TIMESTAMP WITH TIME ZONE (`utc: true`): microseconds since
    /// 1970-01-01, 8 bytes.
    Timestamp {
        /// Whether the instant is absolute.
        utc: bool,
    },
    /// INTERVAL: Arrow's month-day-nano, 16 bytes.
    Interval,
    /// VARCHAR, TEXT, CHAR(n): UTF-8 as an Arrow view.
    Utf8,
    /// JSONB: a document as text, which the engine keeps in one normal form. A view in a block. It
    /// leaves the storage with 64-bit offsets (`LargeUtf8`), which tell its type from that of other
    /// texts.
    Json,
    /// JSON: a document's text as it was given. Otherwise as [`Json`](Self::Json), and of the same
    /// Arrow type.
    JsonText,
    /// BYTEA: bytes as an Arrow view.
    Binary,
    /// UUID: 16 bytes.
    Uuid,
    /// NUMERIC without precision: a number of as many digits as it has, in the bytes of
    /// `serac_numeric::encoding`'s stored form. A view in a block. It leaves the storage as
    /// `LargeBinary`, which tells its type from that of other bytes.
    Numeric,
}

/// Reads the precision and the scale of a DECIMAL. Those of a damaged file may be none.
fn decimal<'de, D: Deserializer<'de>>(from: D) -> Result<(u8, i8), D::Error> {
    #[derive(Deserialize)]
    struct Decimal {
        precision: u8,
        scale: i8,
    }
    let Decimal { precision, scale } = Decimal::deserialize(from)?;
    let is_type = (1..=38).contains(&precision) && u8::try_from(scale).is_ok_and(|scale| scale <= precision);
    is_type.then_some((precision, scale)).ok_or_else(|| {
        Error::custom(format_args!("NUMERIC({precision},{scale}) is not between NUMERIC(1,0) and NUMERIC(38,38)"))
    })
}

/// The space of a column's value in a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PhysicalType {
    /// One bit per slot (Arrow's boolean layout).
    Bit,
    /// This many bytes per slot: 2, 4, 8 or 16.
    Fixed(u8),
    /// A 16-byte Arrow view per slot. A value of more than 12 bytes lies in a heap chunk of the
    /// block.
    View,
}

impl ColumnType {
    /// The physical form inside a block.
    #[inline]
    pub const fn physical(self) -> PhysicalType {
        match self {
            Self::Boolean => PhysicalType::Bit,
            Self::Int16 => PhysicalType::Fixed(2),
            Self::Int32 | Self::Float32 | Self::Date => PhysicalType::Fixed(4),
            Self::Int64 | Self::Float64 | Self::Time | Self::Timestamp { .. } => PhysicalType::Fixed(8),
            Self::Decimal { precision, .. } => PhysicalType::Fixed(if precision <= 18 { 8 } else { 16 }),
            Self::Interval | Self::Uuid => PhysicalType::Fixed(16),
            Self::Utf8 | Self::Json | Self::JsonText | Self::Binary | Self::Numeric => PhysicalType::View,
        }
    }

    /// Whether a column of the type can hold the value: NULL, or one of the physical form, and text
    /// that is UTF-8.
    #[inline]
    pub fn accepts(self, value: &Value<'_>) -> bool {
        match value {
            Value::Null => true,
            Value::Float32(_) => self == Self::Float32,
            Value::Float64(_) => self == Self::Float64,
            Value::Bytes(bytes) => match self {
                Self::Utf8 | Self::Json | Self::JsonText => std::str::from_utf8(bytes).is_ok(),
                Self::Binary | Self::Numeric => true,
                _ => false,
            },
            _ if matches!(self, Self::Float32 | Self::Float64) => false,
            Value::Bool(_) => self.physical() == PhysicalType::Bit,
            Value::Int16(_) => self.physical() == PhysicalType::Fixed(2),
            Value::Int32(_) => self.physical() == PhysicalType::Fixed(4),
            Value::Int64(_) => self.physical() == PhysicalType::Fixed(8),
            Value::Int128(_) => self.physical() == PhysicalType::Fixed(16),
        }
    }

    /// The Arrow type in which the column leaves the storage.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Decimal { precision, scale } => DataType::Decimal128(precision, scale),
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp { utc } => DataType::Timestamp(TimeUnit::Microsecond, utc.then(|| Arc::from("UTC"))),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Utf8 => DataType::Utf8View,
            Self::Json | Self::JsonText => DataType::LargeUtf8,
            Self::Binary => DataType::BinaryView,
            Self::Uuid => DataType::FixedSizeBinary(16),
            Self::Numeric => DataType::LargeBinary,
        }
    }

    /// Whether its values are documents, which have an Arrow type of their own.
    pub fn is_document(self) -> bool {
        matches!(self, Self::Json | Self::JsonText)
    }

    /// The column type whose [`arrow`](Self::arrow) form is `data_type`, if there is one. JSON and
    /// JSONB share a form, which is taken for JSONB.
    pub fn from_arrow(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::Int16 => Self::Int16,
            DataType::Int32 => Self::Int32,
            DataType::Int64 => Self::Int64,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Decimal128(precision, scale) => Self::Decimal { precision: *precision, scale: *scale },
            DataType::Date32 => Self::Date,
            DataType::Time64(TimeUnit::Microsecond) => Self::Time,
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Self::Timestamp { utc: zone.is_some() },
            DataType::Interval(IntervalUnit::MonthDayNano) => Self::Interval,
            DataType::Utf8View => Self::Utf8,
            DataType::LargeUtf8 => Self::Json,
            DataType::BinaryView => Self::Binary,
            DataType::FixedSizeBinary(16) => Self::Uuid,
            DataType::LargeBinary => Self::Numeric,
            _ => return None,
        })
    }
}

/// A column as clients of Arrow get it. Documents, which have a type of their own in
/// [`ColumnType::arrow`], are marked as Arrow's extension type for JSON.
pub fn marked(field: Field) -> Field {
    if *field.data_type() != DataType::LargeUtf8 {
        return field;
    }
    let mark = [(EXTENSION_TYPE_NAME_KEY, "arrow.json"), (EXTENSION_TYPE_METADATA_KEY, "")];
    let mut metadata = field.metadata().clone();
    metadata.extend(mark.map(|(key, value)| (key.to_owned(), value.to_owned())));
    field.with_metadata(metadata)
}

/// A column of a table as the storage knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ColumnSchema {
    /// Name, for messages and checkpoints.
    pub name: String,
    /// Type.
    pub column_type: ColumnType,
    /// Whether the column may hold NULL. The storage does not enforce it; the engine does.
    pub nullable: bool,
}

/// The columns of a table, in the order of their [`ColumnId`](crate::ids::ColumnId)s.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableSchema {
    /// The columns.
    pub columns: Vec<ColumnSchema>,
}

impl TableSchema {
    /// The types of the columns.
    pub fn column_types(&self) -> impl Iterator<Item = ColumnType> {
        self.columns.iter().map(|column| column.column_type)
    }

    /// The Arrow schema of a full scan.
    pub fn arrow(&self) -> SchemaRef {
        Arc::new(Schema::new(
            self.columns.iter().map(|c| Field::new(&c.name, c.column_type.arrow(), c.nullable)).collect::<Vec<_>>(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_that_no_table_has_are_not_read() {
        for (precision, scale) in [(1, 0), (18, 18), (38, 0), (38, 38)] {
            let decimal = ColumnType::Decimal { precision, scale };
            let text = serde_json::to_string(&decimal).unwrap();
            assert_eq!(serde_json::from_str::<ColumnType>(&text).unwrap(), decimal);
        }
        for (precision, scale) in [(0, 0), (39, 0), (9, 10), (9, -1), (38, 127)] {
            let text = serde_json::to_string(&ColumnType::Decimal { precision, scale }).unwrap();
            let error = serde_json::from_str::<ColumnType>(&text).unwrap_err().to_string();
            assert!(error.contains("is not between"), "{error}");
        }
    }
}
