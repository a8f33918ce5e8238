//! Documents in columns, and the texts beside them, as the functions of JSON read them.

use crate::definition::Types;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, LargeStringArray};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::DataType;
use serac_engine::EngineError;
use serac_engine::json::{self, Json, normalized};
use serac_engine::json_text::{self, check_escapes};
use serac_values::SqlError;
use serac_values::text_types::is_text_or_null;
use serac_values::wire::read_array;
use std::borrow::Cow;
use std::sync::Arc;

/// The type of documents.
pub(crate) const JSON: DataType = DataType::LargeUtf8;

/// The form of documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// json's: as they were given.
    Text,
    /// jsonb's: in normal form.
    Normal,
}

impl Form {
    /// A text that is a document, in this form.
    pub(super) fn of(self, text: String) -> Result<String, SqlError> {
        match self {
            Self::Text => Ok(text),
            Self::Normal => Ok(normalized(&text).map_err(EngineError::from)?.into_owned()),
        }
    }

    /// Checks that all strings of a document can be read. Strings of jsonb always can.
    pub(super) fn check_escapes(self, document: &str) -> Result<(), SqlError> {
        match self {
            Self::Text => Ok(check_escapes(document).map_err(EngineError::from)?),
            Self::Normal => Ok(()),
        }
    }

    pub(super) fn member<'d>(self, document: &'d str, key: &str) -> Option<&'d str> {
        match self {
            Self::Text => json_text::member(document, key),
            Self::Normal => json::member(document, key),
        }
    }

    pub(super) fn element(self, document: &str, number: i64) -> Option<&str> {
        match self {
            Self::Text => json_text::element(document, number),
            Self::Normal => json::element(document, number),
        }
    }

    pub(super) fn at_path<'d>(self, document: &'d str, path: &[&str]) -> Option<&'d str> {
        match self {
            Self::Text => json_text::at_path(document, path),
            Self::Normal => json::at_path(document, path),
        }
    }

    pub(super) fn elements<'d>(self, document: &'d str) -> Box<dyn Iterator<Item = &'d str> + 'd> {
        match self {
            Self::Text => Box::new(json_text::elements(document)),
            Self::Normal => Box::new(json::elements(document)),
        }
    }

    pub(super) fn members<'d>(self, document: &'d str) -> Box<dyn Iterator<Item = (Cow<'d, str>, &'d str)> + 'd> {
        match self {
            Self::Text => Box::new(json_text::members(document)),
            Self::Normal => Box::new(json::members(document).map(|(key, value)| (key.into(), value))),
        }
    }

    /// The first byte of a document, which determines its type.
    pub(super) fn first(self, document: &str) -> Option<u8> {
        match self {
            Self::Text => json_text::trimmed(document).bytes().next(),
            Self::Normal => document.bytes().next(),
        }
    }
}

pub(crate) fn document(text: &str) -> Result<Json, SqlError> {
    Ok(Json::parse(text).map_err(EngineError::from)?)
}

pub(super) fn is_document(data_type: &DataType) -> bool {
    is_text_or_null(data_type)
}
pub(super) fn is_array(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}
/// Texts, or an array of texts written as one.
pub(super) fn is_path(data_type: &DataType) -> bool {
    is_array(data_type) || is_document(data_type)
}

/// A document alone becomes a value of a type.
pub(super) fn of_document(given: &[DataType], result: DataType) -> Option<Types> {
    match given {
        [argument] if is_document(argument) => Some((vec![JSON], result)),
        _ => None,
    }
}
/// A document and a path become a value of a type.
pub(super) fn of_document_and_path(given: &[DataType], result: DataType) -> Option<Types> {
    match given {
        [argument, path] if is_document(argument) && is_path(path) => {
            let path = if is_array(path) { path.clone() } else { DataType::Utf8View };
            Some((vec![JSON, path], result))
        }
        _ => None,
    }
}

/// One document per row.
pub(super) fn documents(array: &ArrayRef) -> &LargeStringArray {
    array.as_string::<i64>()
}

/// The texts of one row.
pub(super) type Texts = Vec<Option<String>>;

/// The texts that each row has as an array of one dimension, or as a text in braces.
pub(super) fn texts_of(array: &ArrayRef) -> Result<Vec<Option<Texts>>, SqlError> {
    let subscripts = || SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts");
    let all = elements_of_rows(array)?;
    let texts = |row: Option<(usize, Texts)>| match row {
        Some((2.., _)) => Err(subscripts()),
        row => Ok(row.map(|(_, texts)| texts)),
    };
    all.into_iter().map(texts).collect()
}

/// The texts that each row has as an array of any dimensions, or as a text in braces, one after the
/// other.
pub(super) fn all_texts_of(array: &ArrayRef) -> Result<Vec<Option<Texts>>, SqlError> {
    Ok(elements_of_rows(array)?.into_iter().map(|row| row.map(|(_, texts)| texts)).collect())
}

/// The dimensions of each row's array, and its elements.
fn elements_of_rows(array: &ArrayRef) -> Result<Vec<Option<(usize, Texts)>>, SqlError> {
    let strings = |array: &ArrayRef| -> Result<Texts, SqlError> {
        let texts = cast(array, &DataType::Utf8View)?;
        Ok(texts.as_string_view().iter().map(|text| text.map(str::to_owned)).collect())
    };
    if !is_array(array.data_type()) {
        let row = |text: Option<String>| {
            let array = text.as_deref().map(read_array).transpose()?;
            Ok(array.map(|array| (array.lengths.len(), array.elements)))
        };
        return strings(array)?.into_iter().map(row).collect();
    }
    let list = |mut elements: ArrayRef| {
        let mut dimensions = 1;
        while is_array(elements.data_type()) && !elements.is_empty() {
            let parts: Vec<ArrayRef> = (0..elements.len()).filter_map(|row| elements_of(&elements, row)).collect();
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            if parts.is_empty() {
                break;
            }
            elements = concat(&parts)?;
            dimensions += 1;
        }
        let texts = if is_array(elements.data_type()) { Vec::new() } else { strings(&elements)? };
        Ok((dimensions, texts))
    };
    (0..array.len()).map(|row| elements_of(array, row).map(list).transpose()).collect()
}

/// The elements of one row's array; `None` for NULL.
pub(super) fn elements_of(array: &ArrayRef, row: usize) -> Option<ArrayRef> {
    if array.is_null(row) {
        return None;
    }
    match array.data_type() {
        DataType::List(_) => Some(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Some(array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => Some(array.as_fixed_size_list().value(row)),
        _ => None,
    }
}

/// One result per row, NULL where an argument is.
pub(super) fn each<T>(
    array: &ArrayRef,
    of: impl Fn(&str, usize) -> Result<Option<T>, SqlError>,
) -> Result<impl Iterator<Item = Option<T>>, SqlError> {
    let rows = documents(array).iter().enumerate();
    let results = rows.map(|(row, document)| document.map_or(Ok(None), |document| of(document, row)));
    Ok(results.collect::<Result<Vec<_>, SqlError>>()?.into_iter())
}
/// As [`each`], whose results are documents.
pub(super) fn changed(
    array: &ArrayRef,
    of: impl Fn(Json, usize) -> Result<Option<Json>, SqlError>,
) -> Result<ArrayRef, SqlError> {
    let results = each(array, |text, row| Ok(of(document(text)?, row)?.map(|json| json.to_string())))?;
    Ok(Arc::new(results.collect::<LargeStringArray>()))
}
