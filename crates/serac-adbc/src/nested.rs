//! Arrays of lists and structs, whose types ADBC prescribes.

use arrow::array::{Array, ArrayRef, ListArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;
use std::sync::Arc;

/// A list for each of `lengths`, `None` for NULL, with these elements in order.
///
/// # Panics
/// If `data_type` is no list of such elements.
pub fn lists(data_type: &DataType, lengths: impl Iterator<Item = Option<usize>>, elements: ArrayRef) -> ArrayRef {
    let DataType::List(element) = data_type else { panic!("{data_type} is no list") };
    let lengths: Vec<Option<usize>> = lengths.collect();
    let nulls = NullBuffer::from_iter(lengths.iter().map(Option::is_some));
    let offsets = OffsetBuffer::from_lengths(lengths.iter().map(|length| length.unwrap_or(0)));
    Arc::new(ListArray::new(element.clone(), offsets, elements, Some(nulls)))
}

/// Structs with these columns.
///
/// # Panics
/// If `data_type` is no struct with such columns.
pub fn structs(data_type: &DataType, columns: Vec<ArrayRef>) -> ArrayRef {
    let DataType::Struct(fields) = data_type else { panic!("{data_type} is no struct") };
    let rows = columns.first().map_or(0, |column| column.len());
    let structs = StructArray::try_new_with_length(fields.clone(), columns, None, rows);
    Arc::new(structs.expect("the columns are of the struct's types"))
}

/// The type of a field of a struct.
///
/// # Panics
/// If `data_type` is no struct with such a field.
pub fn field_of<'t>(data_type: &'t DataType, name: &str) -> &'t DataType {
    let DataType::Struct(fields) = data_type else { panic!("{data_type} is no struct") };
    fields.find(name).expect("the struct has the field").1.data_type()
}
