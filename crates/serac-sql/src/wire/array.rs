//! Arrays as the protocol writes and reads them: as text in braces, and in binary form with their dimensions and the number of the elements' type.

use super::decode::{Given, scalar};
use super::encode::{write_binary, write_text};
use super::types::{TEXT, oid, to_wire, wire_type};
use crate::error::{Result, SqlError};
use crate::pg_catalog::{array_elements, array_type, element_type};
use crate::types::assign;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewBuilder, Int32Array, StringViewBuilder, new_empty_array,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, UInt32Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use serac_engine::values::value_at;
use serac_storage::ColumnType;
use std::sync::Arc;

/// Elements of an array at the most.
const MOST_ELEMENTS: usize = 1 << 20;

/// What a column of a result is called on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireColumn {
    /// The number of its type.
    pub oid: u32,
    /// Bytes of a value; -1 where they vary.
    pub size: i16,
    /// Precision and scale as PostgreSQL packs them; -1 where a type has no modifier.
    pub modifier: i32,
}

/// The elements' type of a list.
pub(crate) fn element_of(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _)
        | DataType::ListView(element) => Some(element.data_type()),
        _ => None,
    }
}
/// The number of an element's type.
fn element_oid(data_type: &DataType) -> u32 {
    match data_type {
        DataType::UInt32 => 26,
        other => oid(wire_type(other)),
    }
}

/// What a column of this type is called: numbers of objects are `oid`, large lists are vectors, and other lists are arrays.
pub fn type_of(data_type: &DataType) -> WireColumn {
    let of = |oid, size| WireColumn { oid, size, modifier: -1 };
    match data_type {
        DataType::UInt32 => of(26, 4),
        DataType::LargeList(element) if *element.data_type() == DataType::UInt32 => of(30, -1),
        DataType::LargeList(element) if *element.data_type() == DataType::Int16 => of(22, -1),
        data_type => match element_of(data_type) {
            Some(element) => of(array_type(element_oid(element)).unwrap_or(TEXT), -1),
            None => {
                let column_type = wire_type(data_type);
                WireColumn {
                    oid: oid(column_type),
                    size: super::types::size(column_type),
                    modifier: super::types::modifier(column_type),
                }
            }
        },
    }
}

/// The values of a column as they are written in text or binary form.
///
/// # Errors
/// When a value does not fit.
pub fn column(array: &ArrayRef, binary: bool) -> Result<(ArrayRef, ColumnType), ArrowError> {
    match array.data_type() {
        DataType::UInt32 if binary => {
            let bits = array.as_primitive::<UInt32Type>();
            let bits: Int32Array = bits.iter().map(|oid| oid.map(|oid| oid as i32)).collect();
            Ok((Arc::new(bits), ColumnType::Int32))
        }
        data_type if binary && element_of(data_type).is_some() => {
            let mut out = BinaryViewBuilder::with_capacity(array.len());
            each(array, |elements| {
                match elements {
                    Some(elements) => out.append_value(binary_form(&elements)?),
                    None => out.append_null(),
                }
                Ok(())
            })?;
            Ok((Arc::new(out.finish()), ColumnType::Binary))
        }
        data_type => {
            let column_type = wire_type(data_type);
            Ok((to_wire(array)?, column_type))
        }
    }
}

/// The column as one of a type that the client has been told: a statement is described before its parameters have values, and may then give another.
///
/// # Errors
/// When a value is none of the type.
pub fn as_told(array: &ArrayRef, told: &DataType) -> Result<ArrayRef> {
    let (is, wanted) = (type_of(array.data_type()), type_of(told));
    if is.oid == wanted.oid {
        return Ok(array.clone());
    }
    if is_list(told) {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        return Ok(cast_with_options(array, told, &options)?);
    }
    let wanted = wire_type(told);
    if wanted != ColumnType::Utf8 {
        return assign(array, wanted.into(), "?");
    }
    let (values, column_type) = column(array, false)?;
    let mut texts = StringViewBuilder::with_capacity(values.len());
    let mut bytes = Vec::new();
    for row in 0..values.len() {
        if values.is_null(row) {
            texts.append_null();
            continue;
        }
        bytes.clear();
        write_text(&mut bytes, value_at(&values, row, column_type), column_type);
        texts.append_value(String::from_utf8_lossy(&bytes));
    }
    Ok(Arc::new(texts.finish()))
}

/// The elements of each list; none where that is NULL.
fn each(array: &ArrayRef, mut take: impl FnMut(Option<ArrayRef>) -> Result<(), ArrowError>) -> Result<(), ArrowError> {
    let element = element_of(array.data_type()).expect("a list").clone();
    let lists = cast(
        array,
        &DataType::LargeList(Arc::new(datafusion::arrow::datatypes::Field::new_list_field(element, true))),
    )?;
    let lists = lists.as_list::<i64>();
    (0..lists.len()).try_for_each(|row| take(lists.is_valid(row).then(|| lists.value(row))))
}

/// Lists as texts: `{1,NULL,"a b"}`, vectors as `1 2`.
pub(super) fn texts(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let vector = matches!(type_of(array.data_type()).oid, 22 | 30);
    let mut out = StringViewBuilder::with_capacity(array.len());
    each(array, |elements| {
        out.append_option(elements.map(|elements| text_form(&elements, vector)).transpose()?);
        Ok(())
    })?;
    Ok(Arc::new(out.finish()))
}

/// Whether values of a type are lists, vectors among them.
pub(crate) fn is_list(data_type: &DataType) -> bool {
    element_of(data_type).is_some()
}

fn text_form(elements: &ArrayRef, vector: bool) -> Result<String, ArrowError> {
    let column_type = wire_type(elements.data_type());
    let nested = is_list(elements.data_type());
    let values = to_wire(elements)?;
    let mut parts = Vec::with_capacity(values.len());
    for row in 0..values.len() {
        if values.is_null(row) {
            parts.push("NULL".to_owned());
            continue;
        }
        let mut bytes = Vec::new();
        write_text(&mut bytes, value_at(&values, row, column_type), column_type);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let special = |c: char| matches!(c, '{' | '}' | ',' | '"' | '\\') || c.is_whitespace();
        let quoted = !nested && (text.is_empty() || text.eq_ignore_ascii_case("null") || text.contains(special));
        parts.push(if quoted { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) } else { text });
    }
    Ok(if vector { parts.join(" ") } else { format!("{{{}}}", parts.join(",")) })
}

fn binary_form(elements: &ArrayRef) -> Result<Vec<u8>, ArrowError> {
    let mut out = Vec::new();
    let mut put = |number: i32| out.extend_from_slice(&number.to_be_bytes());
    put(i32::from(!elements.is_empty()));
    put(i32::from(elements.null_count() > 0));
    put(element_oid(elements.data_type()) as i32);
    if !elements.is_empty() {
        put(elements.len() as i32);
        put(1);
    }
    let (values, column_type) = column(elements, true)?;
    for row in 0..values.len() {
        if values.is_null(row) {
            out.extend_from_slice(&(-1i32).to_be_bytes());
            continue;
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        write_binary(&mut out, value_at(&values, row, column_type), column_type);
        let length = (out.len() - start - 4) as i32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(out)
}

fn list(values: Vec<ScalarValue>) -> Result<ScalarValue> {
    let elements = match values.is_empty() {
        true => new_empty_array(&DataType::Utf8),
        false => ScalarValue::iter_to_array(values)?,
    };
    Ok(SingleRowListArrayBuilder::new(elements).build_list_scalar())
}

/// A parameter whose type is an array; none if it is another.
///
/// # Errors
/// SQLSTATE of class 22 for bytes that are no such array, 0A000 for one with more than one dimension.
pub(super) fn parameter(given: Given<'_>) -> Result<Option<ScalarValue>> {
    let Some(element) = element_type(given.oid) else { return Ok(None) };
    let Some(bytes) = given.bytes else { return Ok(Some(ScalarValue::Null)) };
    if !given.binary {
        let text = String::from_utf8_lossy(bytes);
        let malformed = || SqlError::new("22P02", format!("malformed array literal: \"{text}\""));
        let elements = array_elements(&text).ok_or_else(malformed)?;
        let value = |text: Option<String>| {
            let bytes = text.as_ref().map(String::as_bytes);
            scalar(Given { bytes, binary: false, oid: element }, None)
        };
        return list(elements.into_iter().map(value).collect::<Result<_>>()?).map(Some);
    }
    let malformed = || SqlError::new("22P03", "incorrect binary data format of an array");
    let mut rest = bytes;
    let number = |rest: &mut &[u8]| -> Result<i32> {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
        *rest = tail;
        Ok(i32::from_be_bytes(*head))
    };
    let (dimensions, _, element) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)? as u32);
    let count = match dimensions {
        0 => 0,
        1 => {
            let (count, _) = (number(&mut rest)?, number(&mut rest)?);
            usize::try_from(count).ok().filter(|count| *count <= MOST_ELEMENTS).ok_or_else(malformed)?
        }
        _ => return Err(SqlError::unsupported("an array with several dimensions")),
    };
    let mut values = Vec::new();
    for _ in 0..count {
        let bytes = match usize::try_from(number(&mut rest)?) {
            Err(_) => None,
            Ok(length) if length <= rest.len() => {
                let (head, tail) = rest.split_at(length);
                rest = tail;
                Some(head)
            }
            Ok(_) => return Err(malformed()),
        };
        values.push(scalar(Given { bytes, binary: true, oid: element }, None)?);
    }
    if rest.is_empty() { list(values).map(Some) } else { Err(malformed()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::StringArray;

    fn list_of(elements: ArrayRef) -> ArrayRef {
        SingleRowListArrayBuilder::new(elements).build_list_scalar().to_array().unwrap()
    }

    #[test]
    fn arrays_are_written_and_read_back() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a b"), None, Some("q\"\\"), Some(""), Some("x")]));
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None, Some(-1)]));
        for (elements, oid) in [(texts, 1009), (numbers, 1007)] {
            let array = list_of(elements);
            assert_eq!(type_of(array.data_type()).oid, oid);
            for binary in [false, true] {
                let (sent, column_type) = column(&array, binary).unwrap();
                let mut bytes = Vec::new();
                let write = if binary { write_binary } else { write_text };
                write(&mut bytes, value_at(&sent, 0, column_type), column_type);
                let read = parameter(Given { bytes: Some(&bytes), binary, oid }).unwrap().unwrap();
                let again = read.to_array().unwrap();
                let (sent_again, _) = column(&again, false).unwrap();
                let (sent, _) = column(&array, false).unwrap();
                assert_eq!(sent.as_string_view().value(0), sent_again.as_string_view().value(0));
            }
        }
        assert!(parameter(Given { bytes: Some(&[0, 0, 0, 1, 9]), binary: true, oid: 1007 }).is_err());
        assert!(parameter(Given { bytes: Some(b"{1,x}"), binary: false, oid: 1007 }).is_err());
        assert_eq!(parameter(Given { bytes: None, binary: true, oid: 23 }).unwrap(), None);
    }
}
