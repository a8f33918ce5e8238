//! lpad and rpad: texts of a length, filled up with another text. A length below zero is zero.
//! text_name: a text as a name, which is cut to 63 bytes. texts_cut: an array of texts, each cut to
//! a length. texts_trimmed: an array of texts, each without the blanks at its end.

use super::definition::{Definition, Types};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, StringViewArray, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Int64Type};
use serac_values::SqlError;
use serac_values::text_types::is_text_or_null;
use std::sync::Arc;

fn types(given: &[DataType]) -> Option<Types> {
    let (text, length, fill) = match given {
        [text, length] => (text, length, None),
        [text, length, fill] => (text, length, Some(fill)),
        _ => return None,
    };
    let are_texts = [Some(text), fill].into_iter().flatten().all(is_text_or_null);
    if !are_texts || !(length.is_integer() || length.is_null()) {
        return None;
    }
    let fill = fill.map(|_| DataType::Utf8View);
    Some(([DataType::Utf8View, DataType::Int32].into_iter().chain(fill).collect(), DataType::Utf8View))
}

/// A text of `length` characters; the filling stands before it if `is_left`.
fn padded(text: &str, length: usize, fill: &str, is_left: bool, out: &mut String) {
    let kept = first(text, length);
    let missing = length - kept.chars().count();
    let (whole, rest) = match fill.chars().count() {
        0 => (0, 0),
        count => (missing / count, missing % count),
    };
    if !is_left {
        out.push_str(kept);
    }
    out.push_str(&fill.repeat(whole));
    out.push_str(first(fill, rest));
    if is_left {
        out.push_str(kept);
    }
}

/// The first characters of a text.
fn first(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

fn pad(args: &[ArrayRef], is_left: bool) -> Result<ArrayRef, SqlError> {
    let (texts, lengths) = (args[0].as_string_view(), args[1].as_primitive::<Int32Type>());
    let fills = args.get(2).map(|fills| fills.as_string_view());
    let (mut all, mut out) = (StringViewBuilder::new(), String::new());
    for row in 0..texts.len() {
        if texts.is_null(row) || lengths.is_null(row) || fills.is_some_and(|fills| fills.is_null(row)) {
            all.append_null();
            continue;
        }
        out.clear();
        let length = usize::try_from(lengths.value(row)).unwrap_or(0);
        padded(texts.value(row), length, fills.map_or(" ", |fills| fills.value(row)), is_left, &mut out);
        all.append_value(&out);
    }
    Ok(Arc::new(all.finish()))
}

/// Arrays of texts, of any depth, with their texts mapped.
fn map_texts(arrays: &ArrayRef, map: &dyn Fn(&str) -> &str) -> Result<ArrayRef, SqlError> {
    let Some(lists) = arrays.as_list_opt::<i32>() else {
        let texts = cast(arrays, &DataType::Utf8View)?;
        let mapped = texts.as_string_view().iter().map(|text| text.map(map));
        return Ok(Arc::new(mapped.collect::<StringViewArray>()));
    };
    let (_, offsets, elements, nulls) = lists.clone().into_parts();
    let elements = map_texts(&elements, map)?;
    let field = Arc::new(Field::new_list_field(elements.data_type().clone(), true));
    Ok(Arc::new(ListArray::try_new(field, offsets, elements, nulls)?))
}

/// The type of the arrays that [`map_texts`] makes; `None` for other values than arrays of texts.
fn array_of_texts(array: &DataType) -> Option<DataType> {
    match array {
        DataType::List(element) if is_text_or_null(element.data_type()) => {
            Some(DataType::new_list(DataType::Utf8View, true))
        }
        DataType::List(element) => Some(DataType::new_list(array_of_texts(element.data_type())?, true)),
        _ => None,
    }
}

/// The characters of a text that a name has room for.
fn as_name(text: &str) -> &str {
    /// Bytes that a name keeps.
    const NAME_BYTES: usize = 63;
    &text[..text.floor_char_boundary(NAME_BYTES)]
}

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "texts_cut",
        types: |given| match given {
            [array, length] if length.is_integer() => {
                let array = array_of_texts(array)?;
                Some((vec![array.clone(), DataType::Int64], array))
            }
            _ => None,
        },
        body: |args| {
            let lengths = args[1].as_primitive::<Int64Type>();
            let length = lengths.iter().flatten().next().and_then(|length| usize::try_from(length).ok());
            map_texts(&args[0], &|text| length.map_or(text, |length| first(text, length)))
        },
    },
    Definition {
        name: "texts_trimmed",
        types: |given| match given {
            [array] => array_of_texts(array).map(|array| (vec![array.clone()], array)),
            _ => None,
        },
        body: |args| map_texts(&args[0], &|text| text.trim_end_matches(' ')),
    },
    Definition {
        name: "text_name",
        types: |given| match given {
            [text] if is_text_or_null(text) => Some((vec![DataType::Utf8View], DataType::Utf8View)),
            _ => None,
        },
        body: |args| {
            let names = args[0].as_string_view().iter().map(|text| text.map(as_name));
            Ok(Arc::new(names.collect::<StringViewArray>()))
        },
    },
    Definition { name: "lpad", types, body: |args| pad(args, true) },
    Definition { name: "rpad", types, body: |args| pad(args, false) },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_filled_and_cut() {
        let padded = |text, length, fill, is_left| {
            let mut out = String::new();
            padded(text, length, fill, is_left, &mut out);
            out
        };
        assert_eq!(padded("hi", 5, "xy", true), "xyxhi");
        assert_eq!(padded("hi", 5, "xy", false), "hixyx");
        assert_eq!(padded("äöü", 2, "xy", true), "äö");
        assert_eq!(padded("hi", 5, "", true), "hi");
        assert_eq!(padded("hi", 0, " ", false), "");
        assert_eq!(as_name("short"), "short");
        assert_eq!(as_name(&"ä".repeat(40)).len(), 62);
    }
}
