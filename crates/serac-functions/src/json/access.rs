//! Access to the parts of documents.

use super::documents::{
    Form, JSON, all_texts_of, document, documents, each, is_document, of_document, of_document_and_path,
};
use crate::definition::{Definition, Types};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, LargeStringArray, StringArray, StringViewArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use serac_engine::EngineError;
use serac_engine::json::{Json, as_text, elements, member, normal_documents};
use serac_engine::json_text::check_documents;
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

/// The value that a key of each row selects in its document.
fn found<'d, K>(
    array: &'d ArrayRef,
    keys: impl IntoIterator<Item = Option<K>>,
    form: Form,
    find: impl Fn(&'d str, K) -> Option<&'d str>,
) -> Result<Vec<Option<&'d str>>, SqlError> {
    let found = documents(array).iter().zip(keys).map(|(document, key)| {
        let (Some(document), Some(key)) = (document, key) else { return Ok(None) };
        form.check_escapes(document)?;
        Ok(find(document, key))
    });
    found.collect()
}

/// The parts that a key or a number names.
fn parts(args: &[ArrayRef], form: Form) -> Result<Vec<Option<&str>>, SqlError> {
    match args[1].data_type() {
        DataType::Int64 => {
            let numbers = args[1].as_primitive::<Int64Type>().iter();
            found(&args[0], numbers, form, |document, number| form.element(document, number))
        }
        _ => {
            let keys = args[1].as_string_view().iter();
            found(&args[0], keys, form, |document, key| form.member(document, key))
        }
    }
}
fn parts_at_paths(args: &[ArrayRef], form: Form) -> Result<Vec<Option<&str>>, SqlError> {
    let paths = all_texts_of(&args[1])?;
    let paths = paths.iter().map(Option::as_ref);
    found(&args[0], paths, form, |document, path| {
        let path: Option<Vec<&str>> = path.iter().map(Option::as_deref).collect();
        form.at_path(document, &path?)
    })
}

fn as_documents(parts: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(parts.into_iter().collect::<LargeStringArray>())
}
fn as_texts(parts: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(parts.into_iter().map(|part| part.and_then(as_text)).collect::<StringViewArray>())
}

/// The path that arguments behind the first are.
fn extracted(args: &[ArrayRef], form: Form) -> Result<Vec<Option<&str>>, SqlError> {
    let steps = args[1..].iter().map(|step| cast(step, &DataType::Utf8View)).collect::<Result<Vec<_>, _>>()?;
    found(&args[0], (0..args[0].len()).map(Some), form, |document, row| {
        let steps = steps.iter().map(|step| step.as_string_view());
        let path: Option<Vec<&str>> = steps.map(|step| step.is_valid(row).then(|| step.value(row))).collect();
        form.at_path(document, &path?)
    })
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
    let keys = all_texts_of(&args[1])?;
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

fn type_name(first: Option<u8>) -> &'static str {
    match first {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}
fn types(args: &[ArrayRef], form: Form) -> Result<ArrayRef, SqlError> {
    let names = documents(&args[0]).iter().map(|document| document.map(|document| type_name(form.first(document))));
    Ok(Arc::new(names.collect::<StringArray>()))
}
fn length(args: &[ArrayRef], form: Form) -> Result<ArrayRef, SqlError> {
    let lengths = each(&args[0], |document, _| match form.first(document) {
        Some(b'[') => Ok(Some(form.elements(document).count() as i32)),
        Some(b'{') => Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "cannot get array length of a non-array")),
        _ => Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "cannot get array length of a scalar")),
    })?;
    Ok(Arc::new(lengths.collect::<Int32Array>()))
}

/// The document itself: a text has become one on its way.
fn read(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    Ok(args[0].clone())
}
/// Texts that are documents, as they are.
fn read_text(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let texts = cast(&args[0], &JSON)?;
    check_documents(&texts).map_err(EngineError::from)?;
    Ok(texts)
}
/// Documents of json as those of jsonb.
fn normal(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    Ok(normal_documents(&args[0]).map_err(EngineError::from)?)
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition { name: "jsonb_in", types: |given| of_document(given, JSON), body: read },
    Definition {
        name: "json_in",
        types: |given| match given {
            [text] if is_document(text) => Some((vec![text.clone()], JSON)),
            _ => None,
        },
        body: read_text,
    },
    Definition {
        name: "json_not_null",
        types: |given| of_document(given, JSON),
        body: |args| {
            let parts = documents(&args[0]).iter();
            Ok(as_documents(parts.map(|part| part.filter(|part| *part != "null")).collect()))
        },
    },
    Definition { name: "json_jsonb", types: |given| of_document(given, JSON), body: normal },
    Definition {
        name: "json_get",
        types: |given| step(given, JSON),
        body: |args| Ok(as_documents(parts(args, Form::Text)?)),
    },
    Definition {
        name: "json_get_text",
        types: |given| step(given, DataType::Utf8View),
        body: |args| Ok(as_texts(parts(args, Form::Text)?)),
    },
    Definition {
        name: "json_at_path",
        types: |given| of_document_and_path(given, JSON),
        body: |args| Ok(as_documents(parts_at_paths(args, Form::Text)?)),
    },
    Definition {
        name: "json_at_path_text",
        types: |given| of_document_and_path(given, DataType::Utf8View),
        body: |args| Ok(as_texts(parts_at_paths(args, Form::Text)?)),
    },
    Definition {
        name: "json_extract_path",
        types: |given| extract(given, JSON),
        body: |args| Ok(as_documents(extracted(args, Form::Text)?)),
    },
    Definition {
        name: "json_extract_path_text",
        types: |given| extract(given, DataType::Utf8View),
        body: |args| Ok(as_texts(extracted(args, Form::Text)?)),
    },
    Definition {
        name: "json_typeof",
        types: |given| of_document(given, DataType::Utf8),
        body: |args| types(args, Form::Text),
    },
    Definition {
        name: "json_array_length",
        types: |given| of_document(given, DataType::Int32),
        body: |args| length(args, Form::Text),
    },
    Definition {
        name: "jsonb_get",
        types: |given| step(given, JSON),
        body: |args| Ok(as_documents(parts(args, Form::Normal)?)),
    },
    Definition {
        name: "jsonb_get_text",
        types: |given| step(given, DataType::Utf8View),
        body: |args| Ok(as_texts(parts(args, Form::Normal)?)),
    },
    Definition {
        name: "jsonb_at_path",
        types: |given| of_document_and_path(given, JSON),
        body: |args| Ok(as_documents(parts_at_paths(args, Form::Normal)?)),
    },
    Definition {
        name: "jsonb_at_path_text",
        types: |given| of_document_and_path(given, DataType::Utf8View),
        body: |args| Ok(as_texts(parts_at_paths(args, Form::Normal)?)),
    },
    Definition {
        name: "jsonb_extract_path",
        types: |given| extract(given, JSON),
        body: |args| Ok(as_documents(extracted(args, Form::Normal)?)),
    },
    Definition {
        name: "jsonb_extract_path_text",
        types: |given| extract(given, DataType::Utf8View),
        body: |args| Ok(as_texts(extracted(args, Form::Normal)?)),
    },
    Definition {
        name: "jsonb_typeof",
        types: |given| of_document(given, DataType::Utf8),
        body: |args| types(args, Form::Normal),
    },
    Definition {
        name: "jsonb_array_length",
        types: |given| of_document(given, DataType::Int32),
        body: |args| length(args, Form::Normal),
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
];
