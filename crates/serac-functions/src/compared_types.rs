//! The type in which two values are compared, and the common type of two values, as in PostgreSQL.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use serac_values::text_types::is_text;

/// The purpose of operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OperandPurpose {
    /// They are compared.
    Compare,
    /// One of them is the result.
    Choose,
}

/// Whether values of a type are texts and not documents.
pub fn is_plain_text(data_type: &DataType) -> bool {
    is_text(data_type) && *data_type != DataType::LargeUtf8
}
/// Whether values of a type are decimals.
pub fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(..) | DataType::Decimal256(..))
}

/// A decimal of 256 bits, if one of 128 has not as many digits as two exact numbers together.
fn wide_decimal(left: &DataType, right: &DataType) -> Option<DataType> {
    let digits = |data_type: &DataType| match data_type {
        DataType::Decimal128(precision, scale) => Some((i16::from(*precision) - i16::from(*scale), i16::from(*scale))),
        DataType::Int16 => Some((5, 0)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        _ => None,
    };
    let ((left_whole, left_scale), (right_whole, right_scale)) = (digits(left)?, digits(right)?);
    let scale = left_scale.max(right_scale);
    let precision = left_whole.max(right_whole) + scale;
    (precision > 38).then_some(DataType::Decimal256(precision as u8, scale as i8))
}

/// The common type of two types; `None` if DataFusion's answer is right.
pub fn common_type(left: &DataType, right: &DataType, purpose: OperandPurpose) -> Option<DataType> {
    use DataType::{Date32, Decimal128, Float32, Float64, Time64, Timestamp};
    let one_way = |left: &DataType, right: &DataType| match (left, right) {
        (Float32, decimal) if is_decimal(decimal) && purpose == OperandPurpose::Choose => Some(Float32),
        (Float32 | Float64, decimal) if is_decimal(decimal) => Some(Float64),
        (Decimal128(..), _) if purpose == OperandPurpose::Compare => wide_decimal(left, right),
        (Float32, integer) if integer.is_integer() && purpose == OperandPurpose::Compare => Some(Float64),
        (Timestamp(_, zone), Date32) => Some(Timestamp(TimeUnit::Microsecond, zone.clone())),
        (Timestamp(_, zone), text) if is_plain_text(text) && purpose == OperandPurpose::Compare => {
            Some(Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        (Time64(_), text) if is_plain_text(text) && purpose == OperandPurpose::Compare => {
            Some(Time64(TimeUnit::Microsecond))
        }
        _ => None,
    };
    one_way(left, right).or_else(|| one_way(right, left))
}

/// The type in which two values are compared.
pub(crate) fn compared_type(left: &DataType, right: &DataType) -> Option<DataType> {
    common_type(left, right, OperandPurpose::Compare).or_else(|| comparison_coercion(left, right))
}
