//! lpad and rpad: texts of a length, filled up with another text. A length below zero is zero.
//! text_name: a text as a name, which is cut to 63 bytes.

use super::definition::{Definition, Types};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray, StringViewBuilder};
use datafusion::arrow::datatypes::{DataType, Int32Type};
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

/// The characters of a text that a name has room for.
fn as_name(text: &str) -> &str {
    /// Bytes that a name keeps.
    const NAME_BYTES: usize = 63;
    &text[..text.floor_char_boundary(NAME_BYTES)]
}

pub(super) const DEFINITIONS: &[Definition] = &[
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
