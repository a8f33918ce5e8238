//! How Arrow stores the values of a type.

use crate::error::{BindError, Result};
use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use serac_pg::TypeId;

/// The Arrow type of a type's values; none for NUMERIC, whose digits differ from expression to
/// expression, and for types that are not stored.
pub fn arrow_type(id: TypeId) -> Option<DataType> {
    Some(match id {
        TypeId::BOOL => DataType::Boolean,
        TypeId::INT2 => DataType::Int16,
        TypeId::INT4 => DataType::Int32,
        TypeId::INT8 => DataType::Int64,
        TypeId::FLOAT4 => DataType::Float32,
        TypeId::FLOAT8 => DataType::Float64,
        TypeId::TEXT | TypeId::VARCHAR | TypeId::NAME => DataType::Utf8View,
        TypeId::DATE => DataType::Date32,
        TypeId::TIME => DataType::Time64(TimeUnit::Microsecond),
        TypeId::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        TypeId::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        TypeId::INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        TypeId::UUID => DataType::FixedSizeBinary(16),
        id if id == TypeId::OID || is_registered(id) => DataType::UInt32,
        _ => return None,
    })
}

/// Whether it is one of `regclass` and its kin: the number of a catalog object, which is written as
/// the object's name.
pub fn is_registered(id: TypeId) -> bool {
    id.name().starts_with("reg")
}

/// The type of values that Arrow stores so; none for those that the binder does not take.
pub fn type_of_arrow(data_type: &DataType) -> Option<TypeId> {
    Some(match data_type {
        DataType::Boolean => TypeId::BOOL,
        DataType::Int16 => TypeId::INT2,
        DataType::Int32 => TypeId::INT4,
        DataType::Int64 => TypeId::INT8,
        DataType::Float32 => TypeId::FLOAT4,
        DataType::Float64 => TypeId::FLOAT8,
        DataType::Decimal128(..) => TypeId::NUMERIC,
        DataType::Utf8 | DataType::Utf8View => TypeId::TEXT,
        DataType::Date32 => TypeId::DATE,
        DataType::Time64(TimeUnit::Microsecond) => TypeId::TIME,
        DataType::Timestamp(TimeUnit::Microsecond, None) => TypeId::TIMESTAMP,
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => TypeId::TIMESTAMPTZ,
        DataType::Interval(IntervalUnit::MonthDayNano) => TypeId::INTERVAL,
        DataType::FixedSizeBinary(16) => TypeId::UUID,
        DataType::UInt32 => TypeId::OID,
        _ => return None,
    })
}

/// Stands for the type of a column of which it is not known.
const NO_TYPE: TypeId = TypeId(0);

/// The type of a column in a scope.
pub(crate) fn or_no_type(id: Option<TypeId>) -> TypeId {
    id.unwrap_or(NO_TYPE)
}

/// That the type of a column is known.
pub(crate) fn known_type(id: TypeId) -> Result<TypeId> {
    if id == NO_TYPE { Err(BindError::Unknown("a column of this type")) } else { Ok(id) }
}

/// That values of a type may be compared, ordered and grouped. An interval of 30 days is one of a
/// month, which Arrow does not know.
pub(crate) fn comparable_values(id: TypeId) -> Result<()> {
    match id {
        TypeId::INTERVAL => Err(BindError::Unknown("a comparison of intervals")),
        _ => Ok(()),
    }
}

/// The digits of whole numbers, as a decimal has them.
pub(crate) fn integer_digits(id: TypeId) -> Option<u8> {
    match id {
        TypeId::INT2 => Some(5),
        TypeId::INT4 => Some(10),
        TypeId::INT8 => Some(19),
        _ => None,
    }
}
