//! Arrow's form of the values of a type.

use crate::error::{BindError, NO_PLACE, Result};
use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use serac_parser::tree::Span;
use serac_pg::{ModifiedType, TypeId};

/// The Arrow type of a type's values; `None` for types that are not stored. NUMERIC has two forms:
/// in this one each value has digits of its own; `Decimal128` is the other.
pub fn arrow_type(id: TypeId) -> Option<DataType> {
    Some(match id {
        TypeId::BOOL => DataType::Boolean,
        TypeId::INT2 => DataType::Int16,
        TypeId::INT4 => DataType::Int32,
        TypeId::INT8 => DataType::Int64,
        TypeId::FLOAT4 => DataType::Float32,
        TypeId::FLOAT8 => DataType::Float64,
        TypeId::TEXT | TypeId::VARCHAR | TypeId::BPCHAR | TypeId::NAME | TypeId::VOID => DataType::Utf8View,
        TypeId::DATE => DataType::Date32,
        TypeId::TIME => DataType::Time64(TimeUnit::Microsecond),
        TypeId::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        TypeId::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        TypeId::INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        TypeId::UUID => DataType::FixedSizeBinary(16),
        TypeId::CHAR => DataType::FixedSizeBinary(1),
        TypeId::TID => DataType::FixedSizeBinary(6),
        TypeId::NUMERIC => serac_numeric_functions::FREE,
        TypeId::BYTEA => DataType::BinaryView,
        TypeId::JSON | TypeId::JSONB => DOCUMENT,
        id if id == TypeId::OID || is_registered(id) => DataType::UInt32,
        // Lists with long offsets are vectors.
        id if id.is_vector() => DataType::new_large_list(arrow_type(id.element()?)?, true),
        // Arrays of numbers have these in their free form, or in a fixed one, whose digits differ
        // from one array to another.
        id if id.element() == Some(TypeId::NUMERIC) => return None,
        id => DataType::new_list(arrow_type(id.element()?)?, true),
    })
}

/// Whether it is one of `regclass` and its kin: the number of a catalog object, which is written as
/// the object's name.
pub fn is_registered(id: TypeId) -> bool {
    id.name().starts_with("reg")
}

/// The type of values of an Arrow type; `None` for types that the binder does not take.
pub fn type_of_arrow(data_type: &DataType) -> Option<TypeId> {
    Some(match data_type {
        DataType::Boolean => TypeId::BOOL,
        DataType::Int16 => TypeId::INT2,
        DataType::Int32 => TypeId::INT4,
        DataType::Int64 => TypeId::INT8,
        DataType::Float32 => TypeId::FLOAT4,
        DataType::Float64 => TypeId::FLOAT8,
        DataType::Decimal128(..) | DataType::LargeBinary => TypeId::NUMERIC,
        DataType::Utf8 | DataType::Utf8View => TypeId::TEXT,
        DataType::Date32 => TypeId::DATE,
        DataType::Time64(TimeUnit::Microsecond) => TypeId::TIME,
        DataType::Timestamp(TimeUnit::Microsecond, None) => TypeId::TIMESTAMP,
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => TypeId::TIMESTAMPTZ,
        DataType::Interval(IntervalUnit::MonthDayNano) => TypeId::INTERVAL,
        DataType::FixedSizeBinary(16) => TypeId::UUID,
        DataType::FixedSizeBinary(1) => TypeId::CHAR,
        DataType::FixedSizeBinary(6) => TypeId::TID,
        DataType::UInt32 => TypeId::OID,
        DataType::Binary | DataType::BinaryView => TypeId::BYTEA,
        &DOCUMENT => TypeId::JSONB,
        DataType::LargeList(element) if *element.data_type() == DataType::Int16 => TypeId::INT2VECTOR,
        DataType::LargeList(element) if *element.data_type() == DataType::UInt32 => TypeId::OIDVECTOR,
        // An array of arrays has the type of one with their elements.
        list => {
            let element = type_of_arrow(element_type(list)?)?;
            if element.element().is_some() { element } else { element.array()? }
        }
    })
}

/// The type of a list's elements; `None` for another type.
pub(crate) fn element_type(list: &DataType) -> Option<&DataType> {
    match list {
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
            Some(element.data_type())
        }
        _ => None,
    }
}

/// The depth of nested lists.
pub fn dimensions(data_type: &DataType) -> usize {
    element_type(data_type).map_or(0, |element| 1 + dimensions(element))
}

/// The Arrow type of arrays of this many dimensions, by that of arrays of one.
pub fn of_dimensions(array: DataType, dimensions: usize) -> DataType {
    (1..dimensions).fold(array, |array, _| DataType::new_list(array, true))
}

/// Whether values of an Arrow type are stored as those of `id` are; arrays may have any number of
/// dimensions.
pub(crate) fn is_stored_as(data_type: &DataType, id: TypeId) -> bool {
    arrow_type(id).is_some_and(|array| of_dimensions(array, dimensions(data_type)) == *data_type)
}

/// The type that stands for all that are stored as values of a type are.
pub(crate) fn stored_as(id: TypeId) -> TypeId {
    match id {
        TypeId::VARCHAR | TypeId::NAME | TypeId::VOID => TypeId::TEXT,
        TypeId::JSON => TypeId::JSONB,
        id if is_registered(id) => TypeId::OID,
        id if id.is_vector() => id,
        id => match id.element() {
            Some(element) => stored_as(element).array().unwrap_or(id),
            None => id,
        },
    }
}

/// The stored form of documents, and of no other type.
pub(crate) const DOCUMENT: DataType = DataType::LargeUtf8;

/// Stands for the type of a column of which it is not known.
const NO_TYPE: TypeId = TypeId(0);

/// The type of a column in a scope.
pub(crate) fn or_no_type(of: Option<ModifiedType>) -> ModifiedType {
    of.unwrap_or(NO_TYPE.into())
}

/// Whether it stands for a type that is not known.
pub(crate) fn is_no_type(id: TypeId) -> bool {
    id == NO_TYPE
}

/// That the type of a column is known.
pub(crate) fn known_type(id: TypeId, span: Span) -> Result<()> {
    match is_no_type(id) {
        true => Err(BindError::unsupported("a column of a type that PostgreSQL does not have", span)),
        false => Ok(()),
    }
}

/// Types as a list: `text, integer`.
pub(crate) fn listed(types: &[TypeId]) -> String {
    types.iter().map(TypeId::to_string).collect::<Vec<_>>().join(", ")
}

/// That values of a type may be compared, ordered and grouped.
pub(crate) fn comparable_values(id: TypeId) -> Result<()> {
    match id.element().unwrap_or(id) {
        TypeId::RECORD => Err(BindError::unsupported("a comparison of such rows", NO_PLACE)),
        TypeId::JSON | TypeId::VOID => Err(BindError::without_place(
            sqlstate::UNDEFINED_FUNCTION,
            format!("could not identify an equality operator for type {id}"),
        )),
        _ => Ok(()),
    }
}

/// That values of a type may be ordered.
pub(crate) fn ordered_values(id: TypeId) -> Result<()> {
    match id.element().unwrap_or(id) {
        TypeId::JSON | TypeId::VOID => {
            let message = format!("could not identify an ordering operator for type {id}");
            let hint = "Use an explicit ordering operator or modify the query.";
            Err(BindError::without_place(sqlstate::UNDEFINED_FUNCTION, message).hinted(hint))
        }
        _ => comparable_values(id),
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
