//! The text types of Arrow.

use datafusion::arrow::datatypes::DataType;

/// Whether values of an Arrow type are texts. Documents are: they are texts in normal form.
pub fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Whether values of an Arrow type are texts, or NULL of no type.
pub fn is_text_or_null(data_type: &DataType) -> bool {
    data_type.is_null() || is_text(data_type)
}
