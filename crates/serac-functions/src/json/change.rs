//! Documents as others: with a part set, inserted or taken away.

use super::documents::{
    Form, JSON, changed, document, documents, is_array, is_document, is_path, of_document, of_document_and_path,
    texts_of,
};
use crate::definition::{Definition, Types};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, LargeStringArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use serac_engine::json::Json;
use serac_engine::json_text;
use serac_values::SqlError;
use serac_values::text_types::is_text_or_null;
use std::sync::Arc;

fn wrong(message: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
}

/// The place in an array that a number names, counted from the end if it is negative; `None`
/// outside of it.
fn place(elements: &[Json], number: i64) -> Option<usize> {
    let at = if number < 0 { number + elements.len() as i64 } else { number };
    usize::try_from(at).ok().filter(|at| *at < elements.len())
}
/// The number that a step of a path is, in an array.
fn number(step: &str, at: usize) -> Result<i64, SqlError> {
    let wrong = |_| {
        SqlError::new(
            sqlstate::INVALID_TEXT_REPRESENTATION,
            format!("path element at position {} is not an integer: \"{step}\"", at + 1),
        )
    };
    step.parse().map_err(wrong)
}

/// The change at the end of a path.
enum Change {
    /// The value is put there, also at a missing place if that is set.
    Set(Json, bool),
    /// The value is put before, or behind, an element; for an object it is a new member.
    Insert(Json, bool),
    Delete,
}

fn apply(target: &mut Json, path: &[Option<String>], level: usize, change: Change) -> Result<(), SqlError> {
    let [step, rest @ ..] = &path[level..] else { return Ok(()) };
    // A NULL that is not reached does no harm.
    let step = step.as_ref().ok_or_else(|| {
        SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, format!("path element at position {} is null", level + 1))
    })?;
    match target {
        Json::Object(members) => {
            let at = members.iter().position(|(key, _)| key == step);
            match (at, rest.is_empty(), change) {
                (Some(at), false, change) => return apply(&mut members[at].1, path, level + 1, change),
                (Some(at), true, Change::Set(value, _)) => members[at].1 = value,
                (Some(_), true, Change::Insert(..)) => return Err(wrong("cannot replace existing key")),
                (Some(at), true, Change::Delete) => {
                    members.remove(at);
                }
                (None, true, Change::Set(value, true) | Change::Insert(value, _)) => {
                    let mut all = std::mem::take(members);
                    all.push((step.clone(), value));
                    *target = Json::object(all);
                }
                (None, ..) => {}
            }
        }
        Json::Array(elements) => {
            let number = number(step, level)?;
            match (place(elements, number), rest.is_empty(), change) {
                (Some(at), false, change) => return apply(&mut elements[at], path, level + 1, change),
                (Some(at), true, Change::Set(value, _)) => elements[at] = value,
                (Some(at), true, Change::Insert(value, after)) => elements.insert(at + usize::from(after), value),
                (Some(at), true, Change::Delete) => {
                    elements.remove(at);
                }
                (None, true, Change::Set(value, true) | Change::Insert(value, _)) => {
                    let at = if number < 0 { 0 } else { elements.len() };
                    elements.insert(at, value);
                }
                (None, ..) => {}
            }
        }
        _ => {}
    }
    Ok(())
}

/// Whether nothing is in a document, so that nothing can be replaced or deleted.
fn is_empty(document: &Json) -> bool {
    match document {
        Json::Object(members) => members.is_empty(),
        Json::Array(elements) => elements.is_empty(),
        _ => false,
    }
}

/// A document, a path, a document and a truth, which is the last of the arguments and may be left
/// out.
fn with_value(given: &[DataType]) -> Option<Types> {
    let fits = match given {
        [target, path, value] | [target, path, value, DataType::Boolean] => {
            is_document(target) && is_path(path) && is_document(value)
        }
        _ => false,
    };
    if !fits {
        return None;
    }
    let path = if is_array(&given[1]) { given[1].clone() } else { DataType::Utf8View };
    Some(([JSON, path, JSON].into_iter().chain(given[3..].iter().cloned()).collect(), JSON))
}

fn at_path(args: &[ArrayRef], change: impl Fn(Json, Option<bool>) -> Change) -> Result<ArrayRef, SqlError> {
    let paths = texts_of(&args[1])?;
    let new = documents(&args[2]);
    let truth = args.get(3).map(|truth| truth.as_boolean());
    changed(&args[0], |mut target, row| {
        if new.is_null(row) || truth.is_some_and(|truth| truth.is_null(row)) {
            return Ok(None);
        }
        let Some(path) = &paths[row] else { return Ok(None) };
        if matches!(target, Json::Object(_) | Json::Array(_)) {
            let change = change(document(new.value(row))?, truth.map(|truth| truth.value(row)));
            if !(is_empty(&target) && matches!(change, Change::Set(_, false))) {
                apply(&mut target, path, 0, change)?;
            }
            return Ok(Some(target));
        }
        Err(wrong("cannot set path in scalar"))
    })
}

fn delete_path(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let paths = texts_of(&args[1])?;
    changed(&args[0], |mut target, row| {
        let Some(path) = &paths[row] else { return Ok(None) };
        if !matches!(target, Json::Object(_) | Json::Array(_)) {
            return Err(wrong("cannot delete path in scalar"));
        }
        if !is_empty(&target) {
            apply(&mut target, path, 0, Change::Delete)?;
        }
        Ok(Some(target))
    })
}

/// A document and a key, the number of an element, or several keys.
fn with_key(given: &[DataType]) -> Option<Types> {
    let [target, key] = given else { return None };
    let key = match key {
        key if key.is_integer() => DataType::Int64,
        key if is_text_or_null(key) => DataType::Utf8View,
        key if is_array(key) => key.clone(),
        _ => return None,
    };
    is_document(target).then(|| (vec![JSON, key], JSON))
}
fn delete(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    if *args[1].data_type() == DataType::Int64 {
        let numbers = args[1].as_primitive::<Int64Type>();
        return changed(&args[0], |mut target, row| {
            match &mut target {
                _ if numbers.is_null(row) => return Ok(None),
                Json::Array(elements) => {
                    if let Some(at) = place(elements, numbers.value(row)) {
                        elements.remove(at);
                    }
                }
                Json::Object(_) => return Err(wrong("cannot delete from object using integer index")),
                _ => return Err(wrong("cannot delete from scalar")),
            }
            Ok(Some(target))
        });
    }
    let keys: Vec<Option<super::documents::Texts>> = match args[1].data_type() {
        DataType::Utf8View => {
            args[1].as_string_view().iter().map(|key| key.map(|key| vec![Some(key.to_owned())])).collect()
        }
        _ => texts_of(&args[1])?,
    };
    changed(&args[0], |mut target, row| {
        let Some(keys) = &keys[row] else { return Ok(None) };
        let is_named = |key: &str| keys.iter().flatten().any(|name| name == key);
        match &mut target {
            Json::Object(members) => members.retain(|(key, _)| !is_named(key)),
            Json::Array(elements) => {
                elements.retain(|element| !matches!(element, Json::String(text) if is_named(text)));
            }
            _ => return Err(wrong("cannot delete from scalar")),
        }
        Ok(Some(target))
    })
}

/// Members of two objects, or elements of two arrays; a scalar becomes an array beside another one.
fn concat(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let right = documents(&args[1]);
    changed(&args[0], |left, row| {
        if right.is_null(row) {
            return Ok(None);
        }
        let elements = |json| match json {
            Json::Array(elements) => elements,
            other => vec![other],
        };
        Ok(Some(match (left, document(right.value(row))?) {
            (Json::Object(mut all), Json::Object(others)) => {
                all.extend(others);
                Json::object(all)
            }
            (left, right) => {
                let mut all = elements(left);
                all.extend(elements(right));
                Json::Array(all)
            }
        }))
    })
}

fn without_nulls(json: Json) -> Json {
    match json {
        Json::Object(members) => {
            let members = members.into_iter().filter(|(_, value)| *value != Json::Null);
            Json::Object(members.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Json::Array(elements) => Json::Array(elements.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "jsonb_set",
        types: with_value,
        body: |args| at_path(args, |value, create| Change::Set(value, create.unwrap_or(true))),
    },
    Definition {
        name: "jsonb_insert",
        types: with_value,
        body: |args| at_path(args, |value, after| Change::Insert(value, after.unwrap_or(false))),
    },
    Definition { name: "jsonb_delete_path", types: |given| of_document_and_path(given, JSON), body: delete_path },
    Definition { name: "jsonb_delete", types: with_key, body: delete },
    Definition {
        name: "jsonb_concat",
        types: |given| (given.len() == 2 && given.iter().all(is_document)).then(|| (vec![JSON, JSON], JSON)),
        body: concat,
    },
    Definition {
        name: "jsonb_strip_nulls",
        types: |given| of_document(given, JSON),
        body: |args| changed(&args[0], |json, _| Ok(Some(without_nulls(json)))),
    },
    Definition {
        name: "json_strip_nulls",
        types: |given| of_document(given, JSON),
        body: |args| {
            let stripped = super::documents::each(&args[0], |text, _| {
                Form::Text.check_escapes(text)?;
                Ok(Some(json_text::without_nulls(text)))
            })?;
            Ok(Arc::new(stripped.collect::<LargeStringArray>()))
        },
    },
    Definition {
        name: "jsonb_pretty",
        types: |given| of_document(given, DataType::Utf8),
        body: |args| {
            let shown = super::documents::each(&args[0], |text, _| Ok(Some(document(text)?.pretty())))?;
            Ok(Arc::new(shown.collect::<StringArray>()))
        },
    },
];
