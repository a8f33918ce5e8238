//! Functions of arrays.

use super::definition::{Definition, Types};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, StringArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use serac_values::SqlError;
use std::sync::Arc;

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition { name: "all_elements", types: all_elements_types, body: all_elements },
    Definition {
        name: "array_dims",
        types: |given| match given {
            [array] if element(array).is_some() => Some((given.to_vec(), DataType::Utf8)),
            _ => None,
        },
        body: dimensions,
    },
    number_of_dimensions_as("array_ndims"),
    number_of_dimensions_as("list_ndims"),
];

/// The numbers of the elements of each dimension: `[1:2][1:3]`. NULL of an array without elements.
fn dimensions(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    fn of_list(list: &ArrayRef, text: &mut String) -> Result<(), SqlError> {
        let lists = as_list(list)?;
        let inner = lists.value(0);
        text.push_str(&format!("[1:{}]", inner.len()));
        match element(inner.data_type()) {
            Some(_) if !inner.is_empty() => of_list(&inner.slice(0, 1), text),
            _ => Ok(()),
        }
    }
    let one = |row: usize| {
        let list = arrays[0].slice(row, 1);
        if list.is_null(0) || as_list(&list)?.value_length(0) == 0 {
            return Ok(None);
        }
        let mut text = String::new();
        of_list(&list, &mut text)?;
        Ok(Some(text))
    };
    Ok(Arc::new((0..arrays[0].len()).map(one).collect::<Result<StringArray, SqlError>>()?))
}

const fn number_of_dimensions_as(name: &'static str) -> Definition {
    Definition {
        name,
        types: |given| match given {
            [array] if element(array).is_some() => Some((given.to_vec(), DataType::Int32)),
            _ => None,
        },
        body: number_of_dimensions,
    }
}

/// The number of an array's dimensions. NULL of an array without elements.
fn number_of_dimensions(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let (mut count, mut inner) = (0, arrays[0].data_type());
    while let Some(next) = element(inner) {
        (count, inner) = (count + 1, next.data_type());
    }
    let lists = as_list(&arrays[0])?;
    let one = |row: usize| (lists.is_valid(row) && lists.value_length(row) > 0).then_some(count);
    Ok(Arc::new((0..lists.len()).map(one).collect::<Int32Array>()))
}

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
    let inner =
        element(array.data_type()).ok_or_else(|| SqlError::new(sqlstate::DATATYPE_MISMATCH, "an array is expected"))?;
    Ok(cast(array, &DataType::new_list(inner.data_type().clone(), true))?.as_list::<i32>().clone())
}

/// An array with the elements of the arrays in it, however deep, in their order.
///
/// # Errors
/// 42804 where it is no array.
pub(super) fn all_elements(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
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
