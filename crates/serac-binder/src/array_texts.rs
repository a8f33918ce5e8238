//! Quoted constants as arrays.

use crate::error::{BindError, Result};
use crate::types::arrow_type;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use serac_numeric_functions::lists::of_dimensions;
use serac_parser::tree::Span;
use serac_pg::{ArrayText, ArrayTextError, TypeId};

/// The array of a type that is written as a text.
pub(crate) fn array_of(text: &str, to: TypeId, span: Span) -> Result<ArrayText> {
    if to.is_vector() {
        return Err(BindError::unsupported(format!("a constant of type {to}"), span));
    }
    ArrayText::read(text).map_err(|error| {
        let sqlstate = match error {
            ArrayTextError::Malformed => sqlstate::INVALID_TEXT_REPRESENTATION,
            ArrayTextError::TooManyDimensions => sqlstate::PROGRAM_LIMIT_EXCEEDED,
            ArrayTextError::OtherSubscripts => sqlstate::FEATURE_NOT_SUPPORTED,
        };
        BindError::new(sqlstate, error.message(text), span)
    })
}

/// Values that have one type in Arrow: numbers get the most digits of all before the point. `None`
/// if the values have several types.
fn of_one_arrow_type(values: Vec<ScalarValue>) -> Option<(Vec<ScalarValue>, DataType)> {
    let digits = values.iter().filter_map(|value| match value {
        ScalarValue::Decimal128(Some(_), precision, scale) => Some((*precision, *scale)),
        _ => None,
    });
    let most = digits.max();
    let widened = |value| match (value, most) {
        (ScalarValue::Decimal128(None, ..), Some((precision, scale))) => {
            ScalarValue::Decimal128(None, precision, scale)
        }
        (ScalarValue::Decimal128(number, _, own), Some((precision, scale))) if own == scale => {
            ScalarValue::Decimal128(number, precision, scale)
        }
        (other, _) => other,
    };
    let values: Vec<ScalarValue> = values.into_iter().map(widened).collect();
    let first = values.first()?.data_type();
    let is_one = first != DataType::LargeBinary && values.iter().all(|other| other.data_type() == first);
    is_one.then_some((values, first))
}

/// An array of these elements as a constant, in dimensions of these lengths. `None` if numbers have
/// different digits.
pub(crate) fn constant(elements: Vec<ScalarValue>, lengths: &[usize], to: TypeId) -> Result<Option<ScalarValue>> {
    if elements.is_empty() {
        return Ok(empty(to));
    }
    let Some((elements, _)) = of_one_arrow_type(elements) else { return Ok(None) };
    Ok(Some(of_dimensions(ScalarValue::iter_to_array(elements)?, lengths)))
}

/// An array without elements; `None` for a type that Arrow does not store.
pub(crate) fn empty(to: TypeId) -> Option<ScalarValue> {
    let element = match to.element()? {
        TypeId::NUMERIC => DataType::Decimal128(1, 0),
        element => arrow_type(element)?,
    };
    Some(ScalarValue::List(ScalarValue::new_list(&[], &element, true)))
}

/// `{1,2}` as an array of a type; `None` if an element is not read here.
pub(crate) fn read(text: &str, element: TypeId, to: TypeId, span: Span) -> Result<Option<ScalarValue>> {
    let ArrayText { lengths, elements } = array_of(text, to, span)?;
    let value = |text: Option<String>| {
        Ok(match (text, element) {
            (None, _) => arrow_type(element).map(|stored| ScalarValue::try_from(&stored)).transpose()?,
            (Some(text), TypeId::TEXT | TypeId::VARCHAR | TypeId::NAME) => Some(ScalarValue::Utf8View(Some(text))),
            (Some(text), _) => crate::constants::read(&text, element, span)?,
        })
    };
    match elements.into_iter().map(value).collect::<Result<Option<Vec<_>>>>()? {
        Some(values) => constant(values, &lengths, to),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_from_texts() {
        let read = |text: &str| read(text, TypeId::INT4, TypeId::INT4.array().unwrap(), Span::default());
        for right in ["{1,NULL}", "{{1,2},{3,4}}", "[1:2]={1,2}", " [1:1][2] = {{1,2}}", "{}"] {
            assert!(matches!(read(right), Ok(Some(ScalarValue::List(_)))), "{right}");
        }
        let wrong = [
            ("{{1},{2,3}}", sqlstate::INVALID_TEXT_REPRESENTATION),
            ("{x}", sqlstate::INVALID_TEXT_REPRESENTATION),
            ("{{{{{{{1}}}}}}}", sqlstate::PROGRAM_LIMIT_EXCEEDED),
            ("[2:3]={1,2}", sqlstate::FEATURE_NOT_SUPPORTED),
        ];
        for (text, sqlstate) in wrong {
            let error = read(text).unwrap_err();
            assert!(matches!(error, BindError::Statement(error) if error.sqlstate == sqlstate), "{text}");
        }
    }
}
