//! Types of the protocol: PostgreSQL's names of the engine's types.

use datafusion::arrow::datatypes::DataType;
use serac_storage::ColumnType;

/// TEXT's number.
pub const TEXT: u32 = 25;
/// The number of `"char"`.
pub(super) const CHAR: u32 = 18;
/// VOID's number: the result type of functions without a result.
pub(super) const VOID: u32 = 2278;
/// JSON's number.
pub const JSON: u32 = 114;
/// JSONB's number.
pub const JSONB: u32 = 3802;

/// The number of `tid`.
pub(super) const TID: u32 = 27;

/// OID's number.
pub(super) const OID: u32 = 26;

/// PostgreSQL's number for a type.
pub fn oid(column_type: ColumnType) -> u32 {
    match column_type {
        ColumnType::Boolean => 16,
        ColumnType::Binary => 17,
        ColumnType::Int64 => 20,
        ColumnType::Int16 => 21,
        ColumnType::Int32 => 23,
        ColumnType::Utf8 => TEXT,
        ColumnType::Float32 => 700,
        ColumnType::Float64 => 701,
        ColumnType::Date => 1082,
        ColumnType::Time => 1083,
        ColumnType::Timestamp { utc: false } => 1114,
        ColumnType::Timestamp { utc: true } => 1184,
        ColumnType::Interval => 1186,
        ColumnType::Decimal { .. } | ColumnType::Numeric => 1700,
        ColumnType::Uuid => 2950,
        ColumnType::Json => JSONB,
        ColumnType::JsonText => JSON,
    }
}

/// The engine's type for one of PostgreSQL's; `None` for unknown types, whose values are taken as
/// text.
pub fn of_oid(oid: u32) -> Option<ColumnType> {
    Some(match oid {
        16 => ColumnType::Boolean,
        17 => ColumnType::Binary,
        // Numbers of objects have 32 bits without a sign.
        20 | OID => ColumnType::Int64,
        21 => ColumnType::Int16,
        23 => ColumnType::Int32,
        700 => ColumnType::Float32,
        701 => ColumnType::Float64,
        1082 => ColumnType::Date,
        1083 => ColumnType::Time,
        1114 => ColumnType::Timestamp { utc: false },
        1184 => ColumnType::Timestamp { utc: true },
        1186 => ColumnType::Interval,
        1700 => ColumnType::Numeric,
        2950 => ColumnType::Uuid,
        JSON => ColumnType::JsonText,
        JSONB => ColumnType::Json,
        // char, name, varchar and others that are texts.
        CHAR | 19 | TEXT | 1042 | 1043 => ColumnType::Utf8,
        _ => return None,
    })
}

/// Bytes of a value; -1 where they vary.
pub fn size(column_type: ColumnType) -> i16 {
    match column_type {
        ColumnType::Boolean => 1,
        ColumnType::Int16 => 2,
        ColumnType::Int32 | ColumnType::Float32 | ColumnType::Date => 4,
        ColumnType::Int64 | ColumnType::Float64 | ColumnType::Time | ColumnType::Timestamp { .. } => 8,
        ColumnType::Interval | ColumnType::Uuid => 16,
        ColumnType::Decimal { .. }
        | ColumnType::Numeric
        | ColumnType::Utf8
        | ColumnType::Json
        | ColumnType::JsonText
        | ColumnType::Binary => -1,
    }
}

/// Precision and scale as PostgreSQL packs them; -1 where a type has no modifier.
pub fn modifier(column_type: ColumnType) -> i32 {
    match column_type {
        ColumnType::Decimal { precision, scale } => (i32::from(precision) << 16 | i32::from(scale)) + 4,
        _ => -1,
    }
}

/// The type in which a column of a result is sent.
pub fn wire_type(data_type: &DataType) -> ColumnType {
    match data_type {
        DataType::Boolean => ColumnType::Boolean,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => ColumnType::Int16,
        DataType::UInt16 | DataType::Int32 => ColumnType::Int32,
        DataType::UInt32 | DataType::Int64 => ColumnType::Int64,
        DataType::UInt64 => ColumnType::Decimal { precision: 20, scale: 0 },
        DataType::Float16 | DataType::Float32 => ColumnType::Float32,
        DataType::Float64 => ColumnType::Float64,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
            if *scale >= 0 =>
        {
            ColumnType::Decimal { precision: *precision, scale: *scale }
        }
        DataType::Date32 | DataType::Date64 => ColumnType::Date,
        DataType::Time32(_) | DataType::Time64(_) => ColumnType::Time,
        DataType::Timestamp(_, zone) => ColumnType::Timestamp { utc: zone.is_some() },
        DataType::Interval(_) => ColumnType::Interval,
        DataType::Binary | DataType::BinaryView => ColumnType::Binary,
        DataType::FixedSizeBinary(16) => ColumnType::Uuid,
        // A "char" and a place are texts but in binary form.
        DataType::FixedSizeBinary(1 | 6) => ColumnType::Utf8,
        DataType::FixedSizeBinary(_) => ColumnType::Binary,
        DataType::LargeUtf8 => ColumnType::Json,
        DataType::LargeBinary => ColumnType::Numeric,
        DataType::Dictionary(_, values) => wire_type(values),
        // Arrays, rows and all other types are sent as text.
        _ => ColumnType::Utf8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_found_by_its_number() {
        let types = [
            ColumnType::Boolean,
            ColumnType::Int16,
            ColumnType::Int32,
            ColumnType::Int64,
            ColumnType::Float32,
            ColumnType::Float64,
            ColumnType::Date,
            ColumnType::Time,
            ColumnType::Timestamp { utc: false },
            ColumnType::Timestamp { utc: true },
            ColumnType::Interval,
            ColumnType::Utf8,
            ColumnType::Binary,
            ColumnType::Uuid,
            ColumnType::Json,
            ColumnType::JsonText,
        ];
        for column_type in types {
            assert_eq!(of_oid(oid(column_type)), Some(column_type));
            // Arrow does not tell JSON from JSONB.
            let stored = if column_type.is_document() { ColumnType::Json } else { column_type };
            assert_eq!(wire_type(&column_type.arrow()), stored);
        }
        assert_eq!(modifier(ColumnType::Decimal { precision: 12, scale: 2 }), 786_438);
    }
}
