//! The elements of arrays, and keys and values of objects, as arrays: functions that give rows in
//! PostgreSQL are `unnest` of these.

use super::documents::{Form, documents, is_document, of_document};
use crate::definition::{Definition, Types};
use datafusion::arrow::array::{
    ArrayRef, AsArray, LargeStringBuilder, ListBuilder, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field};
use serac_engine::json::as_text;
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

fn wrong(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
}

/// Checks that a document is an array, whose elements `function` gives.
fn check_array(document: &str, form: Form, function: &str) -> Result<(), SqlError> {
    match (form.first(document), form) {
        (Some(b'['), _) => Ok(()),
        (Some(b'{'), Form::Normal) => Err(wrong("cannot extract elements from an object")),
        (_, Form::Normal) => Err(wrong("cannot extract elements from a scalar")),
        (Some(b'{'), Form::Text) => Err(wrong(format!("cannot call {function} on a non-array"))),
        (_, Form::Text) => Err(wrong(format!("cannot call {function} on a scalar"))),
    }
}
/// Checks that a document is an object; `message` makes the error for an array or a scalar.
fn check_object(document: &str, form: Form, message: impl FnOnce(bool) -> String) -> Result<(), SqlError> {
    match form.first(document) {
        Some(b'{') => form.check_escapes(document),
        first => Err(wrong(message(first == Some(b'[')))),
    }
}
/// The same for the keys that `function` gives.
fn check_keys(document: &str, form: Form, function: &str) -> Result<(), SqlError> {
    let on = |is_array| if is_array { "an array" } else { "a scalar" };
    check_object(document, form, |is_array| format!("cannot call {function} on {}", on(is_array)))
}
/// The same for the members that `function` gives.
fn check_members(document: &str, form: Form, function: &str) -> Result<(), SqlError> {
    check_object(document, form, |is_array| match (form, is_array) {
        (Form::Normal, _) => format!("cannot call {function} on a non-object"),
        (Form::Text, true) => "cannot deconstruct an array as an object".into(),
        (Form::Text, false) => "cannot deconstruct a scalar".into(),
    })
}

/// Documents that are objects, which become rows.
fn row(args: &[ArrayRef], form: Form) -> Result<ArrayRef, SqlError> {
    let check = |document: &str| check_keys(document, form, "populate_composite");
    documents(&args[0]).iter().flatten().try_for_each(check)?;
    Ok(args[0].clone())
}

/// The elements of documents, which are objects. The second argument is the name of the function in
/// the statement.
fn rows(args: &[ArrayRef], form: Form) -> Result<ArrayRef, SqlError> {
    let names = args[1].as_string_view();
    let function = names.iter().flatten().next().unwrap_or("jsonb_to_recordset");
    parts(&args[0], |document, give| {
        let on = |what: &str| Err(wrong(format!("cannot call {function} on {what}")));
        match (form.first(document), form) {
            (Some(b'['), _) => {}
            (_, Form::Normal) => return on("a non-array"),
            (Some(b'{'), Form::Text) => return on("an object"),
            (_, Form::Text) => return on("a scalar"),
        }
        form.check_escapes(document)?;
        if form.elements(document).any(|element| !element.starts_with('{')) {
            return Err(wrong(format!("argument of {function} must be an array of objects")));
        }
        form.elements(document).for_each(give);
        Ok(())
    })
}

fn array_elements(args: &[ArrayRef], form: Form, function: &str) -> Result<ArrayRef, SqlError> {
    parts(&args[0], |document, give| {
        check_array(document, form, function)?;
        form.elements(document).for_each(give);
        Ok(())
    })
}
fn array_elements_text(args: &[ArrayRef], form: Form, function: &str) -> Result<ArrayRef, SqlError> {
    texts(&args[0], |document, give| {
        check_array(document, form, function)?;
        form.check_escapes(document)?;
        form.elements(document).for_each(|part| give(as_text(part)));
        Ok(())
    })
}
fn object_keys(
    args: &[ArrayRef],
    form: Form,
    check: impl Fn(&str) -> Result<(), SqlError>,
) -> Result<ArrayRef, SqlError> {
    texts(&args[0], |document, give| {
        check(document)?;
        form.members(document).for_each(|(key, _)| give(Some(key)));
        Ok(())
    })
}
fn object_values(args: &[ArrayRef], form: Form, function: &str) -> Result<ArrayRef, SqlError> {
    parts(&args[0], |document, give| {
        check_members(document, form, function)?;
        form.members(document).for_each(|(_, value)| give(value));
        Ok(())
    })
}
fn object_values_text(args: &[ArrayRef], form: Form, function: &str) -> Result<ArrayRef, SqlError> {
    texts(&args[0], |document, give| {
        check_members(document, form, function)?;
        form.members(document).for_each(|(_, value)| give(as_text(value)));
        Ok(())
    })
}

/// Dimensions that PostgreSQL's arrays have at the most.
const MOST_DIMENSIONS: usize = 6;

/// Writes the elements of a document that is an array as the text of an array: elements that are
/// strings as their texts, or as documents.
fn write_array(document: &str, are_documents: bool, dimension: usize, out: &mut String) -> Result<(), SqlError> {
    if dimension > MOST_DIMENSIONS {
        let message = format!("number of array dimensions exceeds the maximum allowed ({MOST_DIMENSIONS})");
        return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
    }
    out.push('{');
    for (at, element) in Form::Text.elements(document).enumerate() {
        if at > 0 {
            out.push(',');
        }
        match (Form::Text.first(element), as_text(element)) {
            (Some(b'['), _) => write_array(element, are_documents, dimension + 1, out)?,
            (_, None) => out.push_str("NULL"),
            (_, Some(text)) => {
                let shown = if are_documents { element } else { &*text };
                out.push('"');
                for character in shown.chars() {
                    if matches!(character, '"' | '\\') {
                        out.push('\\');
                    }
                    out.push(character);
                }
                out.push('"');
            }
        }
    }
    out.push('}');
    Ok(())
}

/// Documents as texts of arrays: arrays, and strings that are such texts already. The second
/// argument tells whether the elements are documents.
fn array_texts(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let are_documents = args[1].as_boolean().iter().flatten().next().unwrap_or(false);
    let text = |document: &str| match Form::Text.first(document) {
        Some(b'[') => {
            Form::Text.check_escapes(document)?;
            let mut out = String::new();
            write_array(document, are_documents, 1, &mut out)?;
            Ok(Some(out))
        }
        Some(b'"' | b'n') => {
            Form::Text.check_escapes(document)?;
            Ok(as_text(document).map(Cow::into_owned))
        }
        _ => Err(SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, "expected JSON array")),
    };
    let texts = documents(&args[0]).iter().map(|document| document.map_or(Ok(None), text));
    Ok(Arc::new(texts.collect::<Result<StringViewArray, SqlError>>()?))
}

fn rows_types(given: &[DataType]) -> Option<Types> {
    match given {
        [document, name] if is_document(document) && is_document(name) => {
            Some((vec![super::documents::JSON, DataType::Utf8View], list_of(super::documents::JSON)))
        }
        _ => None,
    }
}
fn documents_types(given: &[DataType]) -> Option<Types> {
    of_document(given, list_of(super::documents::JSON))
}
fn texts_types(given: &[DataType]) -> Option<Types> {
    of_document(given, list_of(DataType::Utf8View))
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "json_array_text",
        types: |given| match given {
            [document, DataType::Boolean] if is_document(document) => {
                Some((vec![super::documents::JSON, DataType::Boolean], DataType::Utf8View))
            }
            _ => None,
        },
        body: array_texts,
    },
    Definition {
        name: "json_row",
        types: |given| of_document(given, super::documents::JSON),
        body: |args| row(args, Form::Text),
    },
    Definition { name: "json_rows", types: rows_types, body: |args| rows(args, Form::Text) },
    Definition {
        name: "json_array_elements",
        types: documents_types,
        body: |args| array_elements(args, Form::Text, "json_array_elements"),
    },
    Definition {
        name: "json_array_elements_text",
        types: texts_types,
        body: |args| array_elements_text(args, Form::Text, "json_array_elements_text"),
    },
    Definition {
        name: "json_object_keys",
        types: texts_types,
        body: |args| object_keys(args, Form::Text, |document| check_keys(document, Form::Text, "json_object_keys")),
    },
    // The same for `json_each`, as a function that gives no rows.
    Definition {
        name: "json_keys",
        types: texts_types,
        body: |args| object_keys(args, Form::Text, |document| check_members(document, Form::Text, "json_each")),
    },
    Definition {
        name: "json_object_values",
        types: documents_types,
        body: |args| object_values(args, Form::Text, "json_each"),
    },
    Definition {
        name: "json_object_values_text",
        types: texts_types,
        body: |args| object_values_text(args, Form::Text, "json_each_text"),
    },
    Definition {
        name: "jsonb_row",
        types: |given| of_document(given, super::documents::JSON),
        body: |args| row(args, Form::Normal),
    },
    Definition { name: "jsonb_rows", types: rows_types, body: |args| rows(args, Form::Normal) },
    Definition {
        name: "jsonb_array_elements",
        types: documents_types,
        body: |args| array_elements(args, Form::Normal, "jsonb_array_elements"),
    },
    Definition {
        name: "jsonb_array_elements_text",
        types: texts_types,
        body: |args| array_elements_text(args, Form::Normal, "jsonb_array_elements_text"),
    },
    Definition {
        name: "jsonb_object_keys",
        types: texts_types,
        body: |args| {
            object_keys(args, Form::Normal, |document| check_keys(document, Form::Normal, "jsonb_object_keys"))
        },
    },
    // The same for `jsonb_each`, as a function that gives no rows.
    Definition {
        name: "jsonb_keys",
        types: texts_types,
        body: |args| object_keys(args, Form::Normal, |document| check_members(document, Form::Normal, "jsonb_each")),
    },
    // And for `jsonb_each_text`, whose errors name it.
    Definition {
        name: "jsonb_keys_of_texts",
        types: texts_types,
        body: |args| {
            let check = |document: &str| check_members(document, Form::Normal, "jsonb_each_text");
            object_keys(args, Form::Normal, check)
        },
    },
    Definition {
        name: "jsonb_object_values",
        types: documents_types,
        body: |args| object_values(args, Form::Normal, "jsonb_each"),
    },
    Definition {
        name: "jsonb_object_values_text",
        types: texts_types,
        body: |args| object_values_text(args, Form::Normal, "jsonb_each_text"),
    },
];
