//! Documents of other values.

use super::{JSON, document, documents, elements_of, is_array, is_path, texts_of};
use crate::definition::{Definition, Types};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, LargeStringArray};
use datafusion::arrow::datatypes::DataType;
use serac_engine::json::Json;
use serac_engine::values::value_at;
use serac_storage::ColumnType;
use serac_values::SqlError;
use serac_values::wire::{column, write_text};
use std::sync::Arc;

/// Each row's text, as results have it.
pub(crate) fn texts(array: &ArrayRef) -> Result<Vec<Option<String>>, SqlError> {
    let (values, column_type) = column(array, false)?;
    let text = |row: usize| {
        let mut bytes = Vec::new();
        write_text(&mut bytes, value_at(&values, row, column_type), column_type);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok((0..values.len()).map(|row| values.is_valid(row).then(|| text(row))).collect())
}

/// The document that each value is: an array of those of an array, an object of those of a structure.
fn values(array: &ArrayRef) -> Result<Vec<Json>, SqlError> {
    let data_type = array.data_type();
    if *data_type == JSON {
        return documents(array).iter().map(|text| text.map_or(Ok(Json::Null), document)).collect();
    }
    if is_array(data_type) {
        let row = |row| match elements_of(array, row) {
            Some(elements) => Ok(Json::Array(values(&elements)?)),
            None => Ok(Json::Null),
        };
        return (0..array.len()).map(row).collect();
    }
    if let DataType::Struct(fields) = data_type {
        let columns = array.as_struct().columns().iter().map(values).collect::<Result<Vec<_>, _>>()?;
        let object = |row: usize| {
            let members =
                fields.iter().zip(&columns).map(|(field, values)| (field.name().clone(), values[row].clone()));
            if array.is_valid(row) { Json::object(members.collect()) } else { Json::Null }
        };
        return Ok((0..array.len()).map(object).collect());
    }
    let column_type = serac_values::wire::wire_type(data_type);
    let value = |text: Option<String>| {
        let Some(text) = text else { return Ok(Json::Null) };
        Ok(match column_type {
            ColumnType::Boolean => Json::Bool(text == "t"),
            // What is no number of JSON is a text.
            ColumnType::Int16
            | ColumnType::Int32
            | ColumnType::Int64
            | ColumnType::Float32
            | ColumnType::Float64
            | ColumnType::Decimal { .. } => Json::parse(&text).unwrap_or(Json::String(text)),
            ColumnType::Timestamp { utc } => {
                let zone = if utc { text.replacen("+00", "+00:00", 1) } else { text };
                Json::String(zone.replacen(' ', "T", 1))
            }
            _ if *data_type == DataType::LargeBinary => Json::parse(&text).unwrap_or(Json::String(text)),
            _ => Json::String(text),
        })
    };
    texts(array)?.into_iter().map(value).collect()
}

fn written(rows: impl IntoIterator<Item = Json>) -> ArrayRef {
    Arc::new(rows.into_iter().map(|json| Some(json.to_string())).collect::<LargeStringArray>())
}

/// Any values become a document.
fn any(given: &[DataType]) -> Option<Types> {
    Some((given.to_vec(), JSON))
}
fn one(given: &[DataType]) -> Option<Types> {
    (given.len() == 1).then(|| (given.to_vec(), JSON))
}
fn arrays(given: &[DataType]) -> Option<Types> {
    let fits = matches!(given.len(), 1 | 2) && given.iter().all(is_path);
    fits.then(|| (given.to_vec(), JSON))
}

fn to_json(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    // NULL stays NULL at the top.
    let rows = values(&args[0])?.into_iter().enumerate();
    let rows = rows.map(|(row, json)| (!args[0].is_null(row) && json != Json::Null).then(|| json.to_string()));
    let of_json = *args[0].data_type() == JSON;
    Ok(if of_json { args[0].clone() } else { Arc::new(rows.collect::<LargeStringArray>()) })
}

fn no_key() -> SqlError {
    SqlError::new("22004", "null value not allowed for object key")
}
fn no_argument(number: usize) -> SqlError {
    SqlError::new("22023", format!("argument {number}: key must not be null"))
}

/// Keys and values in turn.
fn build_object(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    if args.len() % 2 == 1 {
        return Err(SqlError::new("22023", "argument list must have even number of elements"));
    }
    let rows = args.first().map_or(1, |array| array.len());
    let mut objects = vec![Vec::with_capacity(args.len() / 2); rows];
    for (i, pair) in args.chunks(2).enumerate() {
        let members = texts(&pair[0])?.into_iter().zip(values(&pair[1])?);
        for (object, (key, value)) in objects.iter_mut().zip(members) {
            object.push((key.ok_or_else(|| no_argument(2 * i + 1))?, value));
        }
    }
    Ok(written(objects.into_iter().map(Json::object)))
}
fn build_array(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let rows = args.first().map_or(1, |array| array.len());
    let mut arrays = vec![Vec::with_capacity(args.len()); rows];
    for array in args {
        for (elements, value) in arrays.iter_mut().zip(values(array)?) {
            elements.push(value);
        }
    }
    Ok(written(arrays.into_iter().map(Json::Array)))
}

/// An object of an array of keys and one of values, or of an array in which they take turns, all of them texts.
fn object_of_texts(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let first = texts_of(&args[0])?;
    let second = args.get(1).map(texts_of).transpose()?;
    let value = |text: Option<String>| text.map_or(Json::Null, Json::String);
    let object = |(row, keys): (usize, Option<super::Texts>)| {
        let Some(keys) = keys else { return Ok(None) };
        let members: Vec<_> = match &second {
            None if keys.len() % 2 == 1 => {
                return Err(SqlError::new("2202E", "array must have even number of elements"));
            }
            None => keys.chunks(2).map(|pair| (pair[0].clone(), value(pair[1].clone()))).collect(),
            Some(values) => {
                let Some(values) = &values[row] else { return Ok(None) };
                if values.len() != keys.len() {
                    return Err(SqlError::new("2202E", "mismatched array dimensions"));
                }
                keys.into_iter().zip(values.iter().cloned().map(value)).collect()
            }
        };
        let members = members.into_iter().map(|(key, value)| Ok((key.ok_or_else(no_key)?, value)));
        Ok(Some(Json::object(members.collect::<Result<_, SqlError>>()?).to_string()))
    };
    let objects = first.into_iter().enumerate().map(object).collect::<Result<LargeStringArray, _>>()?;
    Ok(Arc::new(objects))
}

/// What `jsonb_object_agg` becomes: an object of an array of keys and one of values, of any types.
fn object_of_arrays(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let object = |row: usize| {
        let (Some(keys), Some(members)) = (elements_of(&args[0], row), elements_of(&args[1], row)) else {
            return Ok(None);
        };
        let null = || SqlError::new("22023", "field name must not be null");
        let members =
            texts(&keys)?.into_iter().zip(values(&members)?).map(|(key, value)| Ok((key.ok_or_else(null)?, value)));
        Ok(Some(Json::object(members.collect::<Result<_, SqlError>>()?).to_string()))
    };
    let objects = (0..args[0].len()).map(object).collect::<Result<LargeStringArray, SqlError>>()?;
    Ok(Arc::new(objects))
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition { name: "to_jsonb", types: one, body: to_json },
    Definition { name: "jsonb_build_object", types: any, body: build_object },
    Definition { name: "jsonb_build_array", types: any, body: build_array },
    Definition { name: "jsonb_object", types: arrays, body: object_of_texts },
    Definition {
        name: "jsonb_object_of_arrays",
        types: |given| (given.len() == 2 && given.iter().all(is_array)).then(|| (given.to_vec(), JSON)),
        body: object_of_arrays,
    },
];
