//! Functions of arrays.

use super::{Definition, Types};
use crate::error::SqlError;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use std::sync::Arc;

pub(super) const DEFINITIONS: &[Definition] =
    &[Definition { name: "all_elements", types: all_elements_types, body: all_elements }];

/// The type of an array's elements.
fn element(array: &DataType) -> Option<&Arc<Field>> {
    match array {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => Some(field),
        _ => None,
    }
}

/// An array of arrays gives one of their elements; other types stay.
fn all_elements_types(given: &[DataType]) -> Option<Types> {
    let [array] = given else { return None };
    let Some(mut inner) = element(array).filter(|field| element(field.data_type()).is_some()) else {
        return Some((vec![array.clone()], array.clone()));
    };
    while let Some(next) = element(inner.data_type()) {
        inner = next;
    }
    Some((vec![array.clone()], DataType::new_list(inner.data_type().clone(), true)))
}

/// The array as one of 32-bit offsets and of elements that may be NULL.
fn as_list(array: &ArrayRef) -> Result<ListArray, SqlError> {
    let inner = element(array.data_type()).ok_or_else(|| SqlError::new("42804", "an array is expected"))?;
    Ok(cast(array, &DataType::new_list(inner.data_type().clone(), true))?.as_list::<i32>().clone())
}

/// An array with the elements of the arrays in it, however deep, in their order.
fn all_elements(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let mut array = arrays[0].clone();
    while element(array.data_type()).is_some_and(|field| element(field.data_type()).is_some()) {
        let outer = as_list(&array)?;
        let inner = as_list(outer.values())?;
        let offsets: Vec<i32> = outer.offsets().iter().map(|&at| inner.offsets()[at as usize]).collect();
        let DataType::List(field) = inner.data_type() else { unreachable!("as_list makes one") };
        let offsets = OffsetBuffer::new(offsets.into());
        array = Arc::new(ListArray::new(field.clone(), offsets, inner.values().clone(), outer.nulls().cloned()));
    }
    Ok(array)
}
