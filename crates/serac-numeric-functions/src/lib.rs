//! NUMERIC in plans, and keys of types whose bytes have neither equality nor order.
//!
//! A NUMERIC is stored in one of two forms. A *fixed* one is Arrow's `Decimal128(p, s)`: all of its
//! values have `s` digits behind the point. A *free* one is `LargeBinary` with the bytes of
//! [`serac_numeric::encoding`]: each value has digits of its own. No other type is stored as
//! `LargeBinary`, as none but JSON is stored as `LargeUtf8`. Functions take numbers of both forms,
//! and whole numbers.
//!
//! | module | what |
//! |---|---|
//! | [`values`] | arrays as numbers, and numbers as arrays |
//! | [`scalar`] | functions and operators |
//! | [`fixed`] | numbers with a fixed count of digits |
//! | [`keys`] | keys: equal where values are equal, and in their order |
//! | [`lists`] | arrays of numbers |
//! | [`wanted`] | the end of functions whose results nobody wants |
//! | [`aggregates`], `group_sums`, `group_choices` | sums, averages and variances; the least and the greatest by a key |
#![warn(missing_docs)]

pub mod aggregates;
pub mod fixed;
mod group_choices;
mod group_sums;
pub mod keys;
pub mod lists;
pub mod scalar;
pub mod values;
pub mod wanted;

use datafusion::arrow::datatypes::DataType;
use datafusion::error::DataFusionError;
use serac_numeric::NumericError;

/// The Arrow type of free numbers.
pub const FREE: DataType = DataType::LargeBinary;

/// Whether a type is that of numbers, of either form.
pub fn is_numeric(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(..) | DataType::LargeBinary)
}

pub(crate) fn external(error: NumericError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The array as one of type `T`.
///
/// # Errors
/// If it is of another type.
pub(crate) fn as_type<T: 'static>(array: &dyn datafusion::arrow::array::Array) -> Result<&T, DataFusionError> {
    let found = array.as_any().downcast_ref::<T>();
    found.ok_or_else(|| DataFusionError::Internal(format!("an array of type {}", array.data_type())))
}
