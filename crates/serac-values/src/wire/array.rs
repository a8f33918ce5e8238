//! Arrays as the protocol writes and reads them: as text in braces, or in binary form with their
//! dimensions and the number of the elements' type.

use super::array_text::read_array;
use super::columns::to_wire;
use super::decode::{Given, numbers, scalar, utf8};
use super::encode::{write_binary, write_text};
use super::rows::{RECORD, binary_forms};
use super::types::{CHAR, JSON, OID, TEXT, TID, of_oid, oid, wire_type};
use crate::assignment::assign;
use crate::error::{Result, SqlError};
use crate::type_names::{self, array_type, element_type};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BinaryViewBuilder, Int32Array, StringViewBuilder, new_empty_array,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, concat};
use datafusion::arrow::datatypes::{DataType, UInt32Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use serac_engine::values::value_at;
use serac_numeric_functions::lists::of_dimensions;
use serac_pg::MOST_DIMENSIONS;
use serac_storage::ColumnType;
use std::sync::Arc;

/// NUMERIC's number.
const NUMERIC: u32 = 1700;
/// Elements of an array at the most.
const MOST_ELEMENTS: usize = 1 << 20;

/// The type of a result's column on the wire.
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
pub fn element_of(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _)
        | DataType::ListView(element) => Some(element.data_type()),
        _ => None,
    }
}
/// The depth of nested lists.
pub fn dimensions(data_type: &DataType) -> usize {
    element_of(data_type).map_or(0, |element| 1 + dimensions(element))
}

/// The number of an element's type; in arrays of arrays, of the innermost elements'.
fn element_oid(data_type: &DataType) -> u32 {
    match data_type {
        DataType::UInt32 => OID,
        DataType::LargeBinary => NUMERIC,
        DataType::FixedSizeBinary(1) => CHAR,
        DataType::FixedSizeBinary(6) => TID,
        other => element_of(other).map_or_else(|| oid(wire_type(other)), element_oid),
    }
}

/// The wire type of a column: numbers of objects are `oid`, large lists are vectors, and other
/// lists are arrays.
pub fn type_of(data_type: &DataType) -> WireColumn {
    let of = |oid, size| WireColumn { oid, size, modifier: -1 };
    match data_type {
        DataType::UInt32 => of(OID, 4),
        DataType::LargeBinary => of(NUMERIC, -1),
        DataType::FixedSizeBinary(1) => of(CHAR, 1),
        DataType::FixedSizeBinary(6) => of(TID, 6),
        DataType::Struct(_) => of(RECORD, -1),
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
    column_of(array, binary, type_of(array.data_type()).oid)
}

/// As [`column()`], of the type with the number `told` ([`super::field_type`]).
///
/// # Errors
/// When a value does not fit.
pub fn column_of(array: &ArrayRef, binary: bool, told: u32) -> Result<(ArrayRef, ColumnType), ArrowError> {
    match array.data_type() {
        DataType::LargeUtf8 if told == JSON => Ok((array.clone(), ColumnType::JsonText)),
        DataType::UInt32 if binary => {
            let bits = array.as_primitive::<UInt32Type>();
            let bits: Int32Array = bits.iter().map(|oid| oid.map(|oid| oid as i32)).collect();
            Ok((Arc::new(bits), ColumnType::Int32))
        }
        DataType::FixedSizeBinary(1 | 6) if binary => {
            let bytes: BinaryViewArray = array.as_fixed_size_binary().iter().collect();
            Ok((Arc::new(bytes), ColumnType::Binary))
        }
        DataType::Struct(_) if binary => Ok((binary_forms(array)?, ColumnType::Binary)),
        data_type if binary && element_of(data_type).is_some() => {
            let element = element_type(told);
            let mut out = BinaryViewBuilder::with_capacity(array.len());
            each(array, |elements| {
                match elements {
                    Some(elements) => out.append_value(binary_form(&elements, element)?),
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

/// The column in the type that the client has been told. A statement is described before its
/// parameters have values, and may then give another type.
///
/// # Errors
/// When a value does not fit the type.
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

/// The elements of each list; `None` for NULL.
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
pub fn is_list(data_type: &DataType) -> bool {
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
        let special = |c: char| {
            matches!(c, '{' | '}' | ',' | '"' | '\\') || matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
        };
        let quoted = !nested && (text.is_empty() || text.eq_ignore_ascii_case("null") || text.contains(special));
        parts.push(if quoted { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) } else { text });
    }
    Ok(if vector { parts.join(" ") } else { format!("{{{}}}", parts.join(",")) })
}

/// The lengths of an array's dimensions, and the innermost elements one behind the other.
///
/// # Errors
/// 2202E where arrays in it are of different lengths, or NULL.
fn in_dimensions(elements: &ArrayRef) -> Result<(Vec<usize>, ArrayRef), ArrowError> {
    let (mut lengths, mut elements) = (vec![elements.len()], elements.clone());
    let mut count = elements.len();
    while is_list(elements.data_type()) {
        let mut parts = Vec::with_capacity(count);
        each(&elements, |inner| {
            parts.push(inner);
            Ok(())
        })?;
        let length = parts.first().and_then(Option::as_ref).map_or(0, |first| first.len());
        if parts.iter().any(|part| part.as_ref().is_none_or(|part| part.len() != length)) {
            let message = "multidimensional arrays must have array expressions with matching dimensions";
            return Err(ArrowError::from_external_error(Box::new(SqlError::new(
                sqlstate::ARRAY_SUBSCRIPT_ERROR,
                message,
            ))));
        }
        let innermost = element_of(elements.data_type()).expect("a list");
        let empty = new_empty_array(innermost);
        let parts: Vec<&dyn Array> =
            std::iter::once(&empty).chain(parts.iter().flatten()).map(|a| a.as_ref()).collect();
        elements = concat(&parts)?;
        lengths.push(length);
        count = elements.len();
    }
    Ok((lengths, elements))
}

/// `element` is the number of the elements' type, if it is told.
fn binary_form(elements: &ArrayRef, element: Option<u32>) -> Result<Vec<u8>, ArrowError> {
    let (lengths, elements) = in_dimensions(elements)?;
    // An array without elements has no dimensions.
    let lengths = if elements.is_empty() { Vec::new() } else { lengths };
    let mut out = Vec::new();
    let mut put = |number: i32| out.extend_from_slice(&number.to_be_bytes());
    put(lengths.len() as i32);
    put(i32::from(elements.null_count() > 0));
    let element = element.unwrap_or_else(|| element_oid(elements.data_type()));
    put(element as i32);
    for length in lengths {
        put(length as i32);
        put(1);
    }
    let (values, column_type) = column_of(&elements, true, element)?;
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

/// The array of a parameter's elements, which are of the type with this number, in dimensions of
/// these lengths.
fn list(elements: &[Option<&[u8]>], lengths: &[usize], binary: bool, element: u32) -> Result<ScalarValue> {
    let values = match element {
        NUMERIC => numbers(elements, binary)?,
        oid => {
            let value = |bytes: &Option<&[u8]>| scalar(Given { bytes: *bytes, binary, oid }, None);
            elements.iter().map(value).collect::<Result<_>>()?
        }
    };
    let elements = match values.is_empty() {
        // Texts become values of any other type.
        true => match of_oid(element) {
            None => new_empty_array(&DataType::Utf8),
            Some(_) if element == OID => new_empty_array(&DataType::UInt32),
            Some(element) => new_empty_array(&element.arrow()),
        },
        false => ScalarValue::iter_to_array(values)?,
    };
    Ok(of_dimensions(elements, lengths))
}

/// A parameter whose type is an array; `None` for another type.
///
/// # Errors
/// SQLSTATE of class 22 for bytes that are no such array, or have more than [`MOST_ELEMENTS`].
/// 42804 for one of other elements, 0A000 for one whose first element does not have the number 1,
/// 54000 for too many dimensions.
pub(super) fn parameter(given: Given<'_>) -> Result<Option<ScalarValue>> {
    let Some(element) = element_type(given.oid) else { return Ok(None) };
    let Some(bytes) = given.bytes else { return Ok(Some(ScalarValue::Null)) };
    if !given.binary {
        let array = read_array(utf8(bytes)?)?;
        let elements: Vec<_> = array.elements.iter().map(|text| text.as_deref().map(str::as_bytes)).collect();
        return list(&elements, &array.lengths, false, element).map(Some);
    }
    let malformed =
        || SqlError::new(sqlstate::INVALID_BINARY_REPRESENTATION, "incorrect binary data format of an array");
    let mut rest = bytes;
    let number = |rest: &mut &[u8]| -> Result<i32> {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
        *rest = tail;
        Ok(i32::from_be_bytes(*head))
    };
    let dimensions = number(&mut rest)?;
    let Ok(dimensions) = usize::try_from(dimensions) else {
        let message = format!("invalid number of dimensions: {dimensions}");
        return Err(SqlError::new(sqlstate::INVALID_BINARY_REPRESENTATION, message));
    };
    if dimensions > MOST_DIMENSIONS {
        let message =
            format!("number of array dimensions ({dimensions}) exceeds the maximum allowed ({MOST_DIMENSIONS})");
        return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
    }
    // Whether there are NULLs. The elements' lengths say this, too.
    if !matches!(number(&mut rest)?, 0 | 1) {
        return Err(SqlError::new(sqlstate::INVALID_BINARY_REPRESENTATION, "invalid array flags"));
    }
    let given_element = number(&mut rest)? as u32;
    if given_element != element {
        let message = format!(
            "binary data has array element type {given_element} ({}) instead of expected {element} ({})",
            type_names::format(given_element, None),
            type_names::format(element, None)
        );
        return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message));
    }
    let (mut lengths, mut count, mut has_other_bounds) = (Vec::new(), usize::from(dimensions > 0), false);
    for _ in 0..dimensions {
        let (length, first) = (number(&mut rest)?, number(&mut rest)?);
        let length = usize::try_from(length).map_err(|_| malformed())?;
        count = count.checked_mul(length).filter(|count| *count <= MOST_ELEMENTS).ok_or_else(malformed)?;
        if i64::from(first) + length as i64 > i64::from(i32::MAX) {
            let message = format!("array lower bound is too large: {first}");
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
        }
        lengths.push(length);
        has_other_bounds |= first != 1;
    }
    // An array without elements has no dimensions, and no bounds.
    if count == 0 {
        lengths.clear();
    } else if has_other_bounds {
        return Err(SqlError::unsupported("an array whose subscripts do not begin with 1"));
    }
    let mut elements = Vec::new();
    for _ in 0..count {
        elements.push(match number(&mut rest)? {
            -1 => None,
            length => {
                let length = usize::try_from(length).map_err(|_| malformed())?;
                let (head, tail) = rest.split_at_checked(length).ok_or_else(malformed)?;
                rest = tail;
                Some(head)
            }
        });
    }
    if rest.is_empty() { list(&elements, &lengths, true, element).map(Some) } else { Err(malformed()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::StringArray;
    use datafusion::common::utils::SingleRowListArrayBuilder;

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

    /// Arrays in binary form that are not those of the type that the client has named.
    #[test]
    fn other_arrays_in_binary_form_are_refused() {
        let read = |numbers: &[i32], oid| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
            let read = parameter(Given { bytes: Some(&bytes), binary: true, oid });
            let read = read.and_then(|array| Ok(array.expect("an array").to_array()?));
            let text = |array: ArrayRef| column(&array, false).unwrap().0.as_string_view().value(0).to_owned();
            read.map(text).map_err(|error| (error.sqlstate, error.message))
        };
        assert_eq!(read(&[1, 0, 23, 1, 1, 4, 7], 1007).unwrap(), "{7}");
        // What has no element has no bounds.
        assert_eq!(read(&[1, 0, 23, 0, 5], 1007).unwrap(), "{}");
        assert_eq!(read(&[0, 0, 23], 1007).unwrap(), "{}");
        let bounds = SqlError::unsupported("an array whose subscripts do not begin with 1").message;
        let other = |given: &str, wanted: &str| {
            format!("binary data has array element type {given} instead of expected {wanted}")
        };
        for (numbers, oid, code, message) in [
            (&[1, 0, 25, 1, 1, 4, 7][..], 1007, sqlstate::DATATYPE_MISMATCH, other("25 (text)", "23 (integer)")),
            (&[0, 0, 25], 1007, sqlstate::DATATYPE_MISMATCH, other("25 (text)", "23 (integer)")),
            (&[0, 0, 1043], 1009, sqlstate::DATATYPE_MISMATCH, other("1043 (character varying)", "25 (text)")),
            (&[0, 0, 114], 3807, sqlstate::DATATYPE_MISMATCH, other("114 (json)", "3802 (jsonb)")),
            (&[1, 2, 25, 1, 1, 4, 7], 1007, sqlstate::INVALID_BINARY_REPRESENTATION, "invalid array flags".into()),
            (&[-1, 0, 23], 1007, sqlstate::INVALID_BINARY_REPRESENTATION, "invalid number of dimensions: -1".into()),
            (
                &[1, 0, 23, 1, 1, -2],
                1007,
                sqlstate::INVALID_BINARY_REPRESENTATION,
                "incorrect binary data format of an array".into(),
            ),
            (
                &[7, 0, 23],
                1007,
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "number of array dimensions (7) exceeds the maximum allowed (6)".into(),
            ),
            (
                &[1, 0, 23, 1, i32::MAX, 4, 7],
                1007,
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "array lower bound is too large: 2147483647".into(),
            ),
            (&[1, 0, 23, 1, 5, 4, 7], 1007, sqlstate::FEATURE_NOT_SUPPORTED, bounds.clone()),
            (&[1, 0, 23, 1, 0, 4, 7], 1007, sqlstate::FEATURE_NOT_SUPPORTED, bounds.clone()),
        ] {
            assert_eq!(read(numbers, oid), Err((code, message)), "{numbers:?}");
        }
    }

    /// A parameter's text as it is written in a result.
    fn read_back(text: &str, oid: u32) -> Result<String> {
        let given = Given { bytes: Some(text.as_bytes()), binary: false, oid };
        let read = parameter(given)?.expect("an array").to_array()?;
        Ok(column(&read, false)?.0.as_string_view().value(0).to_owned())
    }

    #[test]
    fn numbers_of_a_parameter_keep_their_digits() {
        let numbers = |text| read_back(text, 1231);
        for text in ["{1.5,2}", "{1,NULL,0.50}", "{NULL}", "{}", "{1000000000000000000000000000000000000000000,-1.5}"] {
            assert_eq!(numbers(text).unwrap(), text);
        }
        assert_eq!(numbers("{1e3,NaN,-inf}").unwrap(), "{1000,NaN,-Infinity}");
        assert_eq!(numbers("{x}").unwrap_err().sqlstate, sqlstate::INVALID_TEXT_REPRESENTATION);
        // 1.25 and 3 in binary form.
        let mut bytes = Vec::new();
        [1, 0, 1700, 2, 1].iter().for_each(|number: &i32| bytes.extend_from_slice(&number.to_be_bytes()));
        for number in ["1.25", "3"] {
            let mut wire = Vec::new();
            number.parse::<serac_numeric::Numeric>().unwrap().write_wire(&mut wire);
            bytes.extend_from_slice(&(wire.len() as i32).to_be_bytes());
            bytes.extend_from_slice(&wire);
        }
        let read = parameter(Given { bytes: Some(&bytes), binary: true, oid: 1231 }).unwrap().unwrap();
        let (texts, _) = column(&read.to_array().unwrap(), false).unwrap();
        assert_eq!(texts.as_string_view().value(0), "{1.25,3}");
    }

    #[test]
    fn arrays_of_arrays_are_written_with_their_dimensions() {
        let array_of = |parts: &[ArrayRef]| {
            let lists: Vec<ArrayRef> = parts.iter().map(|part| list_of(part.clone())).collect();
            let lists: Vec<&dyn Array> = lists.iter().map(|list| list.as_ref()).collect();
            list_of(concat(&lists).unwrap())
        };
        let numbers = |numbers: &[Option<i32>]| Arc::new(Int32Array::from(numbers.to_vec())) as ArrayRef;
        let array = array_of(&[numbers(&[Some(1), Some(2)]), numbers(&[None, Some(4)])]);
        assert_eq!(type_of(array.data_type()).oid, 1007);
        let (sent, _) = column(&array, true).unwrap();
        let wanted = [2, 1, 23, 2, 1, 2, 1, 4, 1, 4, 2, -1, 4, 4];
        let wanted: Vec<u8> = wanted.iter().flat_map(|number: &i32| number.to_be_bytes()).collect();
        assert_eq!(sent.as_binary_view().value(0), wanted);
        let wanted_of_two = wanted;
        // An array without elements has no dimensions.
        let (sent, _) = column(&array_of(&[numbers(&[])]), true).unwrap();
        let wanted: Vec<u8> = [0i32, 0, 23].iter().flat_map(|number| number.to_be_bytes()).collect();
        assert_eq!(sent.as_binary_view().value(0), wanted);
        let ragged = array_of(&[numbers(&[Some(1)]), numbers(&[Some(2), Some(3)])]);
        assert_eq!(SqlError::from(column(&ragged, true).unwrap_err()).sqlstate, sqlstate::ARRAY_SUBSCRIPT_ERROR);
        for text in ["{{1,2},{NULL,4}}", "{{{1}},{{2}}}", "{}"] {
            assert_eq!(read_back(text, 1007).unwrap(), text);
            assert_eq!(read_back(text, 1231).unwrap(), text);
        }
        let read = parameter(Given { bytes: Some(&wanted_of_two), binary: true, oid: 1007 }).unwrap().unwrap();
        let (texts, _) = column(&read.to_array().unwrap(), false).unwrap();
        assert_eq!(texts.as_string_view().value(0), "{{1,2},{NULL,4}}");
        let refused = |text| read_back(text, 1007).unwrap_err().sqlstate;
        assert_eq!(
            (refused("[2:3]={1,2}"), refused("{1,{2}}")),
            (sqlstate::FEATURE_NOT_SUPPORTED, sqlstate::INVALID_TEXT_REPRESENTATION)
        );
    }
}
