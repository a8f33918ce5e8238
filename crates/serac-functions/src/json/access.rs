//! What is in documents.

use super::{JSON, document, documents, each, is_document, of_document, of_document_and_path, texts_of};
use crate::definition::{Definition, Types};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, LargeStringArray, StringArray, StringViewArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use serac_engine::json::{Json, as_text, at_path, element, elements, member};
use serac_values::SqlError;
use serac_values::text_types::is_text_or_null;
use std::sync::Arc;

/// A document, and a key or the number of an element.
fn step(given: &[DataType], result: DataType) -> Option<Types> {
    match given {
        [argument, key] if is_document(argument) && (key.is_integer() || is_text_or_null(key)) => {
            let key = if key.is_integer() { DataType::Int64 } else { DataType::Utf8View };
            Some((vec![JSON, key], result))
        }
        _ => None,
    }
}

/// The parts that a key or a number names.
fn parts(args: &[ArrayRef]) -> Vec<Option<&str>> {
    let documents = documents(&args[0]).iter();
    match args[1].data_type() {
        DataType::Int64 => {
            let numbers = args[1].as_primitive::<Int64Type>().iter();
            documents.zip(numbers).map(|(document, number)| element(document?, number?)).collect()
        }
        _ => {
            let keys = args[1].as_string_view().iter();
            documents.zip(keys).map(|(document, key)| member(document?, key?)).collect()
        }
    }
}
fn parts_at_paths(args: &[ArrayRef]) -> Result<Vec<Option<&str>>, SqlError> {
    let paths = texts_of(&args[1])?;
    let found = documents(&args[0]).iter().zip(&paths).map(|(document, path)| {
        let path: Option<Vec<&str>> = path.as_ref()?.iter().map(Option::as_deref).collect();
        at_path(document?, path?)
    });
    Ok(found.collect())
}

fn as_documents(parts: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(parts.into_iter().collect::<LargeStringArray>())
}
fn as_texts(parts: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(parts.into_iter().map(|part| part.and_then(as_text)).collect::<StringViewArray>())
}

/// The path that arguments behind the first are.
fn extracted(args: &[ArrayRef]) -> Result<Vec<Option<&str>>, SqlError> {
    let steps = args[1..].iter().map(|step| cast(step, &DataType::Utf8View)).collect::<Result<Vec<_>, _>>()?;
    let found = documents(&args[0]).iter().enumerate().map(|(row, document)| {
        let steps = steps.iter().map(|step| step.as_string_view());
        let path: Option<Vec<&str>> = steps.map(|step| step.is_valid(row).then(|| step.value(row))).collect();
        at_path(document?, path?)
    });
    Ok(found.collect())
}
fn extract(given: &[DataType], result: DataType) -> Option<Types> {
    let (first, steps) = given.split_first()?;
    let fits = is_document(first) && steps.iter().all(is_text_or_null);
    fits.then(|| ([JSON].into_iter().chain(steps.iter().map(|_| DataType::Utf8View)).collect(), result))
}

/// Whether a document has a key, or, as an array or alone, a string.
fn exists(document: &str, key: &str) -> bool {
    let is_key = |value: &str| value.starts_with('"') && as_text(value).is_some_and(|text| text == key);
    match document.as_bytes().first() {
        Some(b'{') => member(document, key).is_some(),
        Some(b'[') => elements(document).any(is_key),
        _ => is_key(document),
    }
}
/// Whether a document has any, or all, of the keys.
fn exist(args: &[ArrayRef], all: bool) -> Result<ArrayRef, SqlError> {
    let keys = texts_of(&args[1])?;
    let results = each(&args[0], |document, row| {
        let has = |key: &Option<String>| key.as_ref().is_none_or(|key| exists(document, key));
        let has_any = |key: &Option<String>| key.as_ref().is_some_and(|key| exists(document, key));
        Ok(keys[row].as_ref().map(|keys| if all { keys.iter().all(has) } else { keys.iter().any(has_any) }))
    })?;
    Ok(Arc::new(results.collect::<BooleanArray>()))
}

fn contains(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let wanted = documents(&args[1]);
    // Often it is one document for all rows.
    let mut last: Option<(&str, Json)> = None;
    let mut results = Vec::with_capacity(wanted.len());
    for (whole, part) in documents(&args[0]).iter().zip(wanted) {
        let (Some(whole), Some(part)) = (whole, part) else {
            results.push(None);
            continue;
        };
        if last.as_ref().is_none_or(|(text, _)| *text != part) {
            last = Some((part, document(part)?));
        }
        let (_, part) = last.as_ref().expect("just set");
        results.push(Some(document(whole)?.contains(part)));
    }
    Ok(Arc::new(BooleanArray::from(results)))
}

fn two_documents(given: &[DataType]) -> Option<Types> {
    let fits = given.len() == 2 && given.iter().all(is_document);
    fits.then(|| (vec![JSON, JSON], DataType::Boolean))
}

fn type_name(value: &str) -> &'static str {
    match value.as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}
fn types(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let names = documents(&args[0]).iter().map(|document| document.map(type_name));
    Ok(Arc::new(names.collect::<StringArray>()))
}
fn length(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let lengths = each(&args[0], |document, _| match document.as_bytes().first() {
        Some(b'[') => Ok(Some(elements(document).count() as i32)),
        Some(b'{') => Err(SqlError::new("22023", "cannot get array length of a non-array")),
        _ => Err(SqlError::new("22023", "cannot get array length of a scalar")),
    })?;
    Ok(Arc::new(lengths.collect::<Int32Array>()))
}

/// The document itself: a text has become one on its way.
fn read(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    Ok(args[0].clone())
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition { name: "jsonb_in", types: |given| of_document(given, JSON), body: read },
    Definition { name: "jsonb_get", types: |given| step(given, JSON), body: |args| Ok(as_documents(parts(args))) },
    Definition {
        name: "jsonb_get_text",
        types: |given| step(given, DataType::Utf8View),
        body: |args| Ok(as_texts(parts(args))),
    },
    Definition {
        name: "jsonb_at_path",
        types: |given| of_document_and_path(given, JSON),
        body: |args| Ok(as_documents(parts_at_paths(args)?)),
    },
    Definition {
        name: "jsonb_at_path_text",
        types: |given| of_document_and_path(given, DataType::Utf8View),
        body: |args| Ok(as_texts(parts_at_paths(args)?)),
    },
    Definition {
        name: "jsonb_extract_path",
        types: |given| extract(given, JSON),
        body: |args| Ok(as_documents(extracted(args)?)),
    },
    Definition {
        name: "jsonb_extract_path_text",
        types: |given| extract(given, DataType::Utf8View),
        body: |args| Ok(as_texts(extracted(args)?)),
    },
    Definition {
        name: "jsonb_exists",
        types: |given| step(given, DataType::Boolean),
        body: |args| {
            let keys = cast(&args[1], &DataType::Utf8View)?;
            let keys = keys.as_string_view();
            let results =
                each(&args[0], |document, row| Ok(keys.is_valid(row).then(|| exists(document, keys.value(row)))))?;
            Ok(Arc::new(results.collect::<BooleanArray>()))
        },
    },
    Definition {
        name: "jsonb_exists_any",
        types: |given| of_document_and_path(given, DataType::Boolean),
        body: |args| exist(args, false),
    },
    Definition {
        name: "jsonb_exists_all",
        types: |given| of_document_and_path(given, DataType::Boolean),
        body: |args| exist(args, true),
    },
    Definition { name: "jsonb_contains", types: two_documents, body: contains },
    Definition {
        name: "jsonb_contained",
        types: two_documents,
        body: |args| contains(&[args[1].clone(), args[0].clone()]),
    },
    Definition { name: "jsonb_typeof", types: |given| of_document(given, DataType::Utf8), body: types },
    Definition { name: "jsonb_array_length", types: |given| of_document(given, DataType::Int32), body: length },
];
