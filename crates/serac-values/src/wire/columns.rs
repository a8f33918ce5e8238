//! The columns of a result in the storage's forms.

use super::array::{is_list, texts as list_texts};
use super::rows::texts as row_texts;
use super::types::wire_type;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray, StringViewBuilder, make_array};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use serac_pg::char_text::text_of_char;
use serac_pg::tid_text::text_of_tid;
use std::sync::Arc;

/// The array in the Arrow type of its [`wire_type`].
///
/// # Errors
/// When a value does not fit.
pub fn to_wire(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let wire = wire_type(array.data_type()).arrow();
    if *array.data_type() == wire {
        return Ok(array.clone());
    }
    let castable = matches!(array.data_type(), DataType::Utf8 | DataType::Null | DataType::Dictionary(..))
        || wire != DataType::Utf8View;
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    if is_list(array.data_type()) {
        return list_texts(array);
    }
    if let DataType::Struct(_) = array.data_type() {
        return row_texts(array);
    }
    if let DataType::FixedSizeBinary(1) = array.data_type() {
        let text = |byte: Option<&[u8]>| byte.map(|byte| text_of_char(byte[0]));
        return Ok(Arc::new(array.as_fixed_size_binary().iter().map(text).collect::<StringViewArray>()));
    }
    if let DataType::FixedSizeBinary(6) = array.data_type() {
        let texts = array.as_fixed_size_binary().iter().map(|tid| tid.map(text_of_tid));
        return Ok(Arc::new(texts.collect::<StringViewArray>()));
    }
    if castable {
        return match array.data_type() {
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => relabelled(array, wire),
            _ => cast_with_options(array, &wire, &options),
        };
    }
    let display = FormatOptions::default().with_null("NULL");
    let formatter = ArrayFormatter::try_new(array.as_ref(), &display)?;
    let mut texts = StringViewBuilder::with_capacity(array.len());
    for row in 0..array.len() {
        texts.append_option(array.is_valid(row).then(|| formatter.value(row).to_string()));
    }
    Ok(Arc::new(texts.finish()))
}

/// The same values under another type of the same form.
fn relabelled(array: &ArrayRef, data_type: DataType) -> Result<ArrayRef, ArrowError> {
    let data = array.to_data().into_builder().data_type(data_type).build()?;
    Ok(make_array(data))
}
