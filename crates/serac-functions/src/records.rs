//! Rows as texts: `(1,a,)`. A row is a structure.

use super::definition::Definition;
use super::json::{json_in_row, value_texts};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use datafusion::arrow::datatypes::DataType;
use serac_values::SqlError;
use std::sync::Arc;

/// A text as a field of a row has it: in quotes if it is empty, or has what a row's text is made
/// of.
fn add_field(text: &str, row: &mut String) {
    let is_special =
        |letter: char| matches!(letter, '"' | '\\' | '(' | ')' | ',' | '\u{b}') || letter.is_ascii_whitespace();
    if !text.is_empty() && !text.contains(is_special) {
        row.push_str(text);
        return;
    }
    row.push('"');
    for letter in text.chars() {
        if matches!(letter, '"' | '\\') {
            row.push(letter);
        }
        row.push(letter);
    }
    row.push('"');
}

/// The text of each row; none where it is NULL.
fn texts(array: &ArrayRef) -> Result<Vec<Option<String>>, SqlError> {
    let array = json_in_row(array).unwrap_or(array);
    let Some(structure) = array.as_struct_opt() else { return value_texts(array) };
    let columns = structure.columns().iter().map(texts).collect::<Result<Vec<_>, _>>()?;
    let text = |row: usize| {
        let mut text = String::from("(");
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            if let Some(field) = &column[row] {
                add_field(field, &mut text);
            }
        }
        text.push(')');
        text
    };
    Ok((0..array.len()).map(|row| array.is_valid(row).then(|| text(row))).collect())
}

fn record_out(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let mut out = StringViewBuilder::with_capacity(args[0].len());
    texts(&args[0])?.into_iter().for_each(|text| out.append_option(text));
    Ok(Arc::new(out.finish()))
}

pub(super) static DEFINITIONS: &[Definition] = &[Definition {
    name: "record_out",
    types: |given| match given {
        [row @ DataType::Struct(_)] => Some((vec![row.clone()], DataType::Utf8View)),
        _ => None,
    },
    body: record_out,
}];

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int32Array, StringArray, StructArray};
    use datafusion::arrow::datatypes::Field;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a \"b\\"), Some("")]));
        let fields = vec![
            (Arc::new(Field::new("a", DataType::Int32, true)), numbers),
            (Arc::new(Field::new("b", DataType::Utf8, true)), texts),
        ];
        let rows: ArrayRef = Arc::new(StructArray::from(fields));
        let out = record_out(&[rows]).unwrap();
        let out: Vec<Option<&str>> = out.as_string_view().iter().collect();
        assert_eq!(out, [Some(r#"(1,"a ""b\\")"#), Some(r#"(,"")"#)]);
    }
}
