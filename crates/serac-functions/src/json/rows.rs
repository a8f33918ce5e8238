//! The elements of arrays, and keys and values of objects, as arrays: functions that give rows in PostgreSQL are `unnest` of these.

use super::{documents, is_document, of_document};
use crate::definition::Definition;
use datafusion::arrow::array::{ArrayRef, AsArray, LargeStringBuilder, ListBuilder, StringViewBuilder};
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

/// That a document is an object, which becomes a row.
fn check_row(document: &str) -> Result<(), SqlError> {
    object(document, "populate_composite").map(drop)
}

/// The elements of a document, which are objects.
fn rows<'d>(document: &'d str, function: &str) -> Result<impl Iterator<Item = &'d str>, SqlError> {
    let wrong = |what: &str| SqlError::new("22023", format!("cannot call {function} on {what}"));
    match document.as_bytes().first() {
        Some(b'[') => {}
        _ if function.starts_with("jsonb") => return Err(wrong("a non-array")),
        Some(b'{') => return Err(wrong("an object")),
        _ => return Err(wrong("a scalar")),
    }
    if elements(document).any(|element| !element.starts_with('{')) {
        return Err(SqlError::new("22023", format!("argument of {function} must be an array of objects")));
    }
    Ok(elements(document))
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "jsonb_row",
        types: |given| of_document(given, super::JSON),
        body: |args| {
            documents(&args[0]).iter().flatten().try_for_each(check_row)?;
            Ok(args[0].clone())
        },
    },
    // The second argument is the name of the function in the statement.
    Definition {
        name: "jsonb_rows",
        types: |given| match given {
            [document, name] if is_document(document) && is_document(name) => {
                Some((vec![super::JSON, DataType::Utf8View], list_of(super::JSON)))
            }
            _ => None,
        },
        body: |args| {
            let names = args[1].as_string_view();
            let name = names.iter().flatten().next().unwrap_or("jsonb_to_recordset");
            parts(&args[0], |document, give| {
                rows(document, name)?.for_each(give);
                Ok(())
            })
        },
    },
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
