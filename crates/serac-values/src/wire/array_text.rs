//! Arrays that are given as texts.

use crate::error::{Result, SqlError};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, StringViewBuilder};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use serac_pg::{ArrayText, ArrayTextError};
use std::iter::repeat_n;
use std::sync::Arc;

/// The array that a text is.
///
/// # Errors
/// 22P02 for an invalid text, 54000 for too many dimensions, 0A000 for subscripts that do not begin
/// with 1.
pub fn read_array(text: &str) -> Result<ArrayText> {
    ArrayText::read(text).map_err(|error| {
        let sqlstate = match error {
            ArrayTextError::Malformed => sqlstate::INVALID_TEXT_REPRESENTATION,
            ArrayTextError::TooManyDimensions => sqlstate::PROGRAM_LIMIT_EXCEEDED,
            ArrayTextError::OtherSubscripts => sqlstate::FEATURE_NOT_SUPPORTED,
        };
        SqlError::new(sqlstate, error.message(text))
    })
}

/// The arrays that texts are, as lists of texts: lists of lists for more than one dimension.
///
/// # Errors
/// As [`read_array`], and 0A000 for an array with elements that has other dimensions.
pub fn arrays_of_texts(texts: &ArrayRef, dimensions: usize) -> Result<ArrayRef> {
    let mut lengths = vec![Vec::new(); dimensions];
    let mut elements = StringViewBuilder::new();
    for text in cast(texts, &DataType::Utf8View)?.as_string_view() {
        let array = text.map(read_array).transpose()?.unwrap_or_default();
        if array.elements.is_empty() {
            lengths[0].push(0);
            continue;
        }
        if array.lengths.len() != dimensions {
            let message = format!("an array of {} dimensions among those of {dimensions}", array.lengths.len());
            return Err(SqlError::unsupported(message));
        }
        let mut count = 1;
        for (all, length) in lengths.iter_mut().zip(array.lengths) {
            all.extend(repeat_n(length, count));
            count *= length;
        }
        array.elements.iter().for_each(|element| elements.append_option(element.as_deref()));
    }
    let nulls = NullBuffer::from_iter((0..texts.len()).map(|row| texts.is_valid(row)));
    let mut nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    let mut lists: ArrayRef = Arc::new(elements.finish());
    for (level, lengths) in lengths.into_iter().enumerate().rev() {
        let field = Arc::new(Field::new_list_field(lists.data_type().clone(), true));
        let nulls = if level == 0 { nulls.take() } else { None };
        lists = Arc::new(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), lists, nulls)?);
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::column;
    use datafusion::arrow::array::StringViewArray;

    #[test]
    fn texts_become_lists_of_their_dimensions() {
        let read = |texts: &[Option<&str>], dimensions| {
            let texts: ArrayRef = Arc::new(StringViewArray::from(texts.to_vec()));
            let lists = arrays_of_texts(&texts, dimensions)?;
            let shown = column(&lists, false)?.0;
            Ok::<_, SqlError>(shown.as_string_view().iter().map(|text| text.map(str::to_owned)).collect::<Vec<_>>())
        };
        let same = |texts: &[Option<&str>], dimensions| {
            let shown: Vec<_> = texts.iter().map(|text| text.map(str::to_owned)).collect();
            assert_eq!(read(texts, dimensions).unwrap(), shown);
        };
        same(&[Some("{a,NULL,\"b c\"}"), None, Some("{}")], 1);
        same(&[Some("{{a,b},{c,d}}"), None, Some("{}"), Some("{{e,NULL}}")], 2);
        same(&[Some("{{{a},{b}},{{c},{d}}}")], 3);
        let refused = |text, dimensions| read(&[Some(text)], dimensions).unwrap_err().sqlstate;
        assert_eq!(refused("{{a}}", 1), sqlstate::FEATURE_NOT_SUPPORTED);
        assert_eq!(refused("{a}", 2), sqlstate::FEATURE_NOT_SUPPORTED);
        assert_eq!(refused("{{a}", 2), sqlstate::INVALID_TEXT_REPRESENTATION);
        assert_eq!(refused("{{{{{{{a}}}}}}}", 2), sqlstate::PROGRAM_LIMIT_EXCEEDED);
    }
}
