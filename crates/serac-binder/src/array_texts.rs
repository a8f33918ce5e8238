//! Quoted constants as arrays.

use crate::error::{BindError, Result};
use crate::types::arrow_type;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use serac_parser::tree::Span;
use serac_pg::TypeId;

/// Dimensions that an array may have, as in PostgreSQL.
pub(crate) const MOST_DIMENSIONS: usize = 6;

/// An element of an array that is written as a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Null,
    Text(String),
    Array(Vec<Item>),
}

/// The items of `{a,"b c",NULL,{d}}`; `None` if the text is no array.
pub(crate) fn items(text: &str) -> Option<Vec<Item>> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let mut letters = text.strip_prefix('{')?.chars().peekable();
    let found = items_behind(&mut letters, 1)?;
    letters.next().is_none().then_some(found)
}

/// The items up to the brace that ends them.
pub(crate) fn items_behind(letters: &mut std::iter::Peekable<std::str::Chars<'_>>, level: usize) -> Option<Vec<Item>> {
    let mut found = Vec::new();
    let is_blank = |c: &char| c.is_ascii_whitespace();
    loop {
        while letters.next_if(is_blank).is_some() {}
        match letters.peek()? {
            '}' if found.is_empty() => {
                letters.next();
                return Some(found);
            }
            '{' => {
                letters.next();
                if level == MOST_DIMENSIONS {
                    return None;
                }
                found.push(Item::Array(items_behind(letters, level + 1)?));
            }
            '"' => {
                letters.next();
                let mut text = String::new();
                loop {
                    match letters.next()? {
                        '"' => break,
                        '\\' => text.push(letters.next()?),
                        letter => text.push(letter),
                    }
                }
                found.push(Item::Text(text));
            }
            _ => {
                let (mut text, mut kept) = (String::new(), 0);
                while let Some(letter) = letters.next_if(|c| !matches!(c, ',' | '}' | '{' | '"')) {
                    match letter {
                        '\\' => {
                            text.push(letters.next()?);
                            kept = text.len();
                        }
                        letter => {
                            text.push(letter);
                            kept = if is_blank(&letter) { kept } else { text.len() };
                        }
                    }
                }
                text.truncate(kept);
                match text.as_str() {
                    "" => return None,
                    word if word.eq_ignore_ascii_case("null") => found.push(Item::Null),
                    _ => found.push(Item::Text(text)),
                }
            }
        }
        while letters.next_if(is_blank).is_some() {}
        match letters.next()? {
            ',' => {}
            '}' => return Some(found),
            _ => return None,
        }
    }
}

/// The first and the last subscript of each dimension, as they may stand before the items, and the
/// text behind them. `None` if they are not well formed.
pub(crate) fn subscripts(text: &str) -> Option<(Vec<(i64, i64)>, &str)> {
    let mut rest = text.trim_start();
    let mut found = Vec::new();
    while let Some(behind) = rest.strip_prefix('[') {
        let (numbers, behind) = behind.split_once(']')?;
        let (first, last) = numbers.split_once(':').unwrap_or(("1", numbers));
        let number = |text: &str| text.trim().parse::<i32>().ok().map(i64::from);
        found.push((number(first)?, number(last)?));
        rest = behind.trim_start();
    }
    match found.is_empty() {
        true => Some((found, rest)),
        false => Some((found, rest.strip_prefix('=')?)),
    }
}

/// The lengths of the dimensions of an array of these items; `None` if nested arrays differ in
/// length.
pub(crate) fn lengths(items: &[Item]) -> Option<Vec<i64>> {
    let of_item = |item: &Item| match item {
        Item::Array(inner) if inner.is_empty() => None,
        Item::Array(inner) => lengths(inner),
        Item::Null | Item::Text(_) => Some(Vec::new()),
    };
    let mut all = items.iter().map(of_item);
    let first = all.next().unwrap_or_else(|| Some(Vec::new()))?;
    let is_same = all.all(|other| other.as_ref() == Some(&first));
    is_same.then(|| std::iter::once(items.len() as i64).chain(first).collect())
}

/// The items of an array of a type that is written as a text.
pub(crate) fn items_of(text: &str, to: TypeId, span: Span) -> Result<Vec<Item>> {
    let malformed =
        || BindError::new(sqlstate::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{text}\""), span);
    if to.is_vector() {
        return Err(BindError::unsupported(format!("a constant of type {to}"), span));
    }
    let (subscripts, rest) = subscripts(text).ok_or_else(malformed)?;
    let found = items(rest).ok_or_else(malformed)?;
    let lengths = lengths(&found).ok_or_else(malformed)?;
    if !subscripts.is_empty() && !subscripts.iter().map(|(first, last)| last - first + 1).eq(lengths) {
        return Err(malformed());
    }
    if subscripts.iter().any(|(first, _)| *first != 1) {
        return Err(BindError::unsupported("an array whose subscripts do not begin with 1", span));
    }
    Ok(found)
}

/// Values that have one type in Arrow: numbers get the most digits of all before the point. `None`
/// if the values have several types.
pub(crate) fn of_one_arrow_type(values: Vec<ScalarValue>) -> Option<(Vec<ScalarValue>, DataType)> {
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

/// An array of these items as a constant; `value` reads an element. `None` if an element is not
/// read here, or if numbers have different digits.
pub(crate) fn constant(
    items: Vec<Item>,
    to: TypeId,
    value: &mut dyn FnMut(Option<String>) -> Result<Option<ScalarValue>>,
) -> Result<Option<ScalarValue>> {
    if items.is_empty() {
        return Ok(empty(to));
    }
    let mut values = Vec::with_capacity(items.len());
    for item in items {
        let read = match item {
            Item::Null => value(None)?,
            Item::Text(text) => value(Some(text))?,
            Item::Array(inner) => constant(inner, to, value)?,
        };
        let Some(read) = read else { return Ok(None) };
        values.push(read);
    }
    let list = of_one_arrow_type(values);
    Ok(list.map(|(values, element)| ScalarValue::List(ScalarValue::new_list(&values, &element, true))))
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
    constant(items_of(text, to, span)?, to, &mut |text| {
        Ok(match (text, element) {
            (None, _) => arrow_type(element).map(|stored| ScalarValue::try_from(&stored)).transpose()?,
            (Some(text), TypeId::TEXT | TypeId::VARCHAR | TypeId::NAME) => Some(ScalarValue::Utf8View(Some(text))),
            (Some(text), _) => crate::constants::read(&text, element, span)?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_from_texts() {
        let text = |text: &str| Item::Text(text.into());
        assert_eq!(items("{}"), Some(Vec::new()));
        assert_eq!(items(" {a, b ,NULL} "), Some(vec![text("a"), text("b"), Item::Null]));
        assert_eq!(items(r#"{"x,y","q\"","null", " z "}"#), Some(["x,y", "q\"", "null", " z "].map(text).into()));
        let nested = |word: &str| Item::Array(vec![text(word)]);
        assert_eq!(items("{{1},{2}}"), Some(vec![nested("1"), nested("2")]));
        for wrong in ["a,b", "{a", "{a}}", "{a,}", "{,a}", "{a\"b\"}", "{{{{{{{1}}}}}}}", "{\"a\"b}", ""] {
            assert_eq!(items(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn arrays_are_rectangular() {
        let read = |text: &str| read(text, TypeId::INT4, TypeId::INT4.array().unwrap(), Span::default());
        for right in ["{1,NULL}", "{{1,2},{3,4}}", "[1:2]={1,2}", " [1:1][2] = {{1,2}}", "{}"] {
            assert!(matches!(read(right), Ok(Some(ScalarValue::List(_)))), "{right}");
        }
        let wrong =
            ["{{1},{2,3}}", "{1,{2}}", "{x}", "{{}}", "[1:3]={1,2}", "[1:2]{1,2}", "[1]={{1}}", "[1:9999999999]={1}"];
        for wrong in wrong {
            assert!(
                matches!(read(wrong), Err(BindError::Statement(error)) if error.sqlstate == sqlstate::INVALID_TEXT_REPRESENTATION),
                "{wrong}"
            );
        }
    }
}
