//! Rows as the protocol writes them: as text in parentheses, and in binary form with the number of
//! each column's type. A row is a structure of Arrow, whose fields tell PostgreSQL's types
//! ([`super::told_type`]).

use super::array::{as_told, column_of};
use super::encode::write_binary;
use super::fields::{field_type, missing_blanks, width, write_blanks};
use crate::error::SqlError;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryViewBuilder, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use serac_engine::values::value_at;
use std::sync::Arc;

/// The number of the type of rows whose type has no name.
pub(super) const RECORD: u32 = 2249;
/// A text as a field of a row has it: in quotes if it is empty, or has special characters of a
/// row's text.
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

/// Bytes of the text of a row in another row. The quotes in the text of a row are doubled with each
/// row around it, so that a short statement asks for texts of any length.
const MOST_BYTES: usize = 16 << 20;

/// Rows as texts: `(1,a,)`.
///
/// # Errors
/// When a value does not fit its form on the wire, and 54000 for a row in a row whose text exceeds
/// [`MOST_BYTES`].
pub(super) fn texts(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let text = |values: &ArrayRef| {
        let texts = as_told(values, &DataType::Utf8View);
        cast(&texts.map_err(|error| ArrowError::from_external_error(Box::new(error)))?, &DataType::Utf8View)
    };
    let rows = array.as_struct();
    let fields = rows.columns().iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let widths: Vec<Option<usize>> = rows.fields().iter().map(|field| width(field)).collect();
    let mut out = StringViewBuilder::with_capacity(array.len());
    let mut text = String::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        text.push('(');
        for (at, field) in fields.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            if field.is_valid(row) {
                let value = field.as_string_view().value(row);
                if value.len() > MOST_BYTES && matches!(array.as_struct().column(at).data_type(), DataType::Struct(_)) {
                    let message = format!("the text of a row in a row takes more than {} MB", MOST_BYTES >> 20);
                    let error = SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message);
                    return Err(ArrowError::from_external_error(Box::new(error)));
                }
                match widths[at].map_or(0, |width| missing_blanks(value.as_bytes(), width)) {
                    0 => add_field(value, &mut text),
                    blanks => add_field(&format!("{value}{}", " ".repeat(blanks)), &mut text),
                }
            }
        }
        text.push(')');
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

/// Rows in binary form: how many columns, and of each the number of its type, its length in bytes,
/// -1 for NULL, and its value.
///
/// # Errors
/// When a value does not fit.
pub(super) fn binary_forms(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let mut columns = Vec::new();
    for (field, column) in array.as_struct().fields().iter().zip(array.as_struct().columns()) {
        let oid = field_type(field).oid;
        let (values, column_type) = column_of(column, true, oid)?;
        columns.push((oid, values, column_type, width(field)));
    }
    let mut out = BinaryViewBuilder::with_capacity(array.len());
    let mut bytes = Vec::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            out.append_null();
            continue;
        }
        bytes.clear();
        bytes.extend_from_slice(&(columns.len() as i32).to_be_bytes());
        for (oid, values, column_type, width) in &columns {
            bytes.extend_from_slice(&oid.to_be_bytes());
            let start = bytes.len();
            bytes.extend_from_slice(&(-1i32).to_be_bytes());
            if values.is_valid(row) {
                let value = value_at(values, row, *column_type);
                write_binary(&mut bytes, value, *column_type);
                write_blanks(&mut bytes, value, *width);
                let length = (bytes.len() - start - 4) as i32;
                bytes[start..start + 4].copy_from_slice(&length.to_be_bytes());
            }
        }
        out.append_value(&bytes);
    }
    Ok(Arc::new(out.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int32Array, StringArray, StructArray};
    use datafusion::arrow::datatypes::Field;

    fn rows() -> ArrayRef {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a \"b\\"), Some("")]));
        Arc::new(StructArray::from(vec![
            (Arc::new(Field::new("a", DataType::Int32, true)), numbers),
            (Arc::new(Field::new("b", DataType::Utf8, true)), texts),
        ]))
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let out = texts(&rows()).unwrap();
        let out: Vec<Option<&str>> = out.as_string_view().iter().collect();
        assert_eq!(out, [Some(r#"(1,"a ""b\\")"#), Some(r#"(,"")"#)]);
    }

    #[test]
    fn binary_rows_tell_the_types_of_their_columns() {
        let out = binary_forms(&rows()).unwrap();
        let first =
            [&[0, 0, 0, 2, 0, 0, 0, 23, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 25, 0, 0, 0, 5][..], b"a \"b\\"].concat();
        assert_eq!(out.as_binary_view().value(0), first);
        let second = [0, 0, 0, 2, 0, 0, 0, 23, 255, 255, 255, 255, 0, 0, 0, 25, 0, 0, 0, 0];
        assert_eq!(out.as_binary_view().value(1), second);
    }
}
