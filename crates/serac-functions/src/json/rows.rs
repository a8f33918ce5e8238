//! The elements of arrays, and keys and values of objects, as arrays: functions that give rows in PostgreSQL are `unnest` of these.

use super::{documents, of_document};
use crate::definition::Definition;
use datafusion::arrow::array::{ArrayRef, LargeStringBuilder, ListBuilder, StringViewBuilder};
use datafusion::arrow::datatypes::{DataType, Field};
use serac_engine::json::{as_text, elements, members};
use serac_values::SqlError;
use std::borrow::Cow;
use std::sync::Arc;

fn list_of(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element, true)))
}

/// The parts of each document, as documents.
fn parts(
    array: &ArrayRef,
    mut of: impl FnMut(&str, &mut dyn FnMut(&str)) -> Result<(), SqlError>,
) -> Result<ArrayRef, SqlError> {
    let mut lists = ListBuilder::new(LargeStringBuilder::new());
    for document in documents(array) {
        if let Some(document) = document {
            of(document, &mut |part| lists.values().append_value(part))?;
        }
        lists.append(document.is_some());
    }
    Ok(Arc::new(lists.finish()))
}
/// The parts of each document, as texts.
fn texts(
    array: &ArrayRef,
    mut of: impl FnMut(&str, &mut dyn FnMut(Option<Cow<'_, str>>)) -> Result<(), SqlError>,
) -> Result<ArrayRef, SqlError> {
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for document in documents(array) {
        if let Some(document) = document {
            of(document, &mut |part| lists.values().append_option(part))?;
        }
        lists.append(document.is_some());
    }
    Ok(Arc::new(lists.finish()))
}

fn array(document: &str) -> Result<&str, SqlError> {
    match document.as_bytes().first() {
        Some(b'[') => Ok(document),
        Some(b'{') => Err(SqlError::new("22023", "cannot extract elements from an object")),
        _ => Err(SqlError::new("22023", "cannot extract elements from a scalar")),
    }
}
fn object<'d>(document: &'d str, function: &str) -> Result<&'d str, SqlError> {
    match document.as_bytes().first() {
        Some(b'{') => Ok(document),
        Some(b'[') => Err(SqlError::new("22023", format!("cannot call {function} on an array"))),
        _ => Err(SqlError::new("22023", format!("cannot call {function} on a scalar"))),
    }
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "jsonb_array_elements",
        types: |given| of_document(given, list_of(super::JSON)),
        body: |args| {
            parts(&args[0], |document, give| {
                elements(array(document)?).for_each(give);
                Ok(())
            })
        },
    },
    Definition {
        name: "jsonb_array_elements_text",
        types: |given| of_document(given, list_of(DataType::Utf8View)),
        body: |args| {
            texts(&args[0], |document, give| {
                elements(array(document)?).for_each(|part| give(as_text(part)));
                Ok(())
            })
        },
    },
    Definition {
        name: "jsonb_object_keys",
        types: |given| of_document(given, list_of(DataType::Utf8View)),
        body: |args| {
            texts(&args[0], |document, give| {
                members(object(document, "jsonb_object_keys")?).for_each(|(key, _)| give(Some(key.into())));
                Ok(())
            })
        },
    },
    // The same for `jsonb_each`, as a function that gives no rows.
    Definition {
        name: "jsonb_keys",
        types: |given| of_document(given, list_of(DataType::Utf8View)),
        body: |args| {
            texts(&args[0], |document, give| {
                members(object(document, "jsonb_each")?).for_each(|(key, _)| give(Some(key.into())));
                Ok(())
            })
        },
    },
    Definition {
        name: "jsonb_object_values",
        types: |given| of_document(given, list_of(super::JSON)),
        body: |args| {
            parts(&args[0], |document, give| {
                members(object(document, "jsonb_each")?).for_each(|(_, value)| give(value));
                Ok(())
            })
        },
    },
    Definition {
        name: "jsonb_object_values_text",
        types: |given| of_document(given, list_of(DataType::Utf8View)),
        body: |args| {
            texts(&args[0], |document, give| {
                members(object(document, "jsonb_each_text")?).for_each(|(_, value)| give(as_text(value)));
                Ok(())
            })
        },
    },
];
