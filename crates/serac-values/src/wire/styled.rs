//! Values whose texts follow a session's settings of times. Dates, times and intervals, and arrays
//! and rows of them, become the same arrays and rows of texts.

use super::array::{as_told, element_of};
use super::columns::to_wire;
use super::encode::{write_document_text, write_styled_text};
use super::types::wire_type;
use crate::error::Result;
use crate::time_style::TimeStyle;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, StringViewBuilder, StructArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use serac_engine::values::value_at;
use std::sync::Arc;

/// The purpose of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Results and texts: times follow the style.
    Text,
    /// Documents of JSON: times are written by ISO 8601 in the style's zone.
    Document,
}

/// Whether the texts of a type's values, or of parts of these, follow the settings.
pub fn has_styled(data_type: &DataType) -> bool {
    match data_type {
        DataType::Date32 | DataType::Timestamp(..) | DataType::Interval(_) => true,
        DataType::Struct(fields) => fields.iter().any(|field| has_styled(field.data_type())),
        other => element_of(other).is_some_and(has_styled),
    }
}

/// The result type of [`with_texts`].
pub fn type_with_texts(data_type: &DataType) -> DataType {
    match data_type {
        other if !has_styled(other) => other.clone(),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field_with_text).collect()),
        other => match element_of(other) {
            Some(element) => DataType::new_list(type_with_texts(element), true),
            None => DataType::Utf8View,
        },
    }
}

fn field_with_text(field: &FieldRef) -> FieldRef {
    match has_styled(field.data_type()) {
        true => Arc::new(Field::new(field.name(), type_with_texts(field.data_type()), true)),
        false => field.clone(),
    }
}

/// The same values with texts in the place of those that follow the settings.
///
/// # Errors
/// If a value does not fit its form on the wire.
pub fn with_texts(array: &ArrayRef, style: &TimeStyle, purpose: Purpose) -> Result<ArrayRef> {
    let data_type = array.data_type();
    if !has_styled(data_type) {
        return Ok(array.clone());
    }
    if let DataType::Struct(fields) = data_type {
        let columns = array.as_struct().columns().iter().map(|column| with_texts(column, style, purpose));
        let fields: Fields = fields.iter().map(field_with_text).collect();
        let rows = StructArray::try_new(fields, columns.collect::<Result<_>>()?, array.nulls().cloned())?;
        return Ok(Arc::new(rows));
    }
    if let Some(element) = element_of(data_type) {
        let lists = cast(array, &DataType::List(Arc::new(Field::new_list_field(element.clone(), true))))?;
        let (_, offsets, elements, nulls) = lists.as_list::<i32>().clone().into_parts();
        let elements = with_texts(&elements, style, purpose)?;
        let field = Arc::new(Field::new_list_field(elements.data_type().clone(), true));
        return Ok(Arc::new(ListArray::try_new(field, offsets, elements, nulls)?));
    }
    let (values, column_type) = (to_wire(array)?, wire_type(data_type));
    let write = match purpose {
        Purpose::Text => write_styled_text,
        Purpose::Document => write_document_text,
    };
    let mut texts = StringViewBuilder::with_capacity(values.len());
    let mut bytes = Vec::new();
    for row in 0..values.len() {
        if values.is_null(row) {
            texts.append_null();
            continue;
        }
        bytes.clear();
        write(&mut bytes, value_at(&values, row, column_type), column_type, style);
        texts.append_value(String::from_utf8_lossy(&bytes));
    }
    Ok(Arc::new(texts.finish()))
}

/// The key under which a schema has the settings of the rows' session.
const STYLE_KEY: &str = "serac.time_style";

/// The schema of rows of a session with these settings of times; unchanged for the defaults.
pub fn schema_in_style(schema: &SchemaRef, style: Option<&TimeStyle>) -> SchemaRef {
    let Some(style) = style else { return schema.clone() };
    let mut metadata = schema.metadata().clone();
    metadata.insert(STYLE_KEY.into(), style.told());
    Arc::new(schema.as_ref().clone().with_metadata(metadata))
}

/// The settings of times in a schema; `None` for the defaults.
pub fn style_of_schema(schema: &Schema) -> Option<TimeStyle> {
    TimeStyle::of_told(schema.metadata().get(STYLE_KEY)?)
}

/// Values as the texts that results have.
///
/// # Errors
/// As [`with_texts`].
pub fn styled_texts(array: &ArrayRef, style: &TimeStyle) -> Result<ArrayRef> {
    as_told(&with_texts(array, style, Purpose::Text)?, &DataType::Utf8View)
}
