//! Columns of a batch under construction.

use arrow::array::{
    ArrayRef, Date32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringViewBuilder,
    TimestampMicrosecondArray,
};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Columns(Vec<(&'static str, ArrayRef)>);

impl Columns {
    fn with(mut self, name: &'static str, column: ArrayRef) -> Self {
        self.0.push((name, column));
        self
    }

    pub(super) fn small(self, name: &'static str, values: impl Iterator<Item = i16>) -> Self {
        self.with(name, Arc::new(Int16Array::from_iter_values(values)))
    }

    pub(super) fn int(self, name: &'static str, values: impl Iterator<Item = i32>) -> Self {
        self.with(name, Arc::new(Int32Array::from_iter_values(values)))
    }

    pub(super) fn big(self, name: &'static str, values: impl Iterator<Item = i64>) -> Self {
        self.with(name, Arc::new(Int64Array::from_iter_values(values)))
    }

    pub(super) fn float(self, name: &'static str, values: impl Iterator<Item = f64>) -> Self {
        self.with(name, Arc::new(Float64Array::from_iter_values(values)))
    }

    /// Days since 1970.
    pub(super) fn date(self, name: &'static str, values: impl Iterator<Item = i32>) -> Self {
        self.with(name, Arc::new(Date32Array::from_iter_values(values)))
    }

    /// Seconds since 1970.
    pub(super) fn time(self, name: &'static str, values: impl Iterator<Item = i64>) -> Self {
        self.with(name, Arc::new(TimestampMicrosecondArray::from_iter_values(values.map(|s| s * 1_000_000))))
    }

    pub(super) fn text<S: AsRef<str>>(self, name: &'static str, values: impl Iterator<Item = S>) -> Self {
        let mut texts = StringViewBuilder::new();
        values.for_each(|text| texts.append_value(text));
        self.with(name, Arc::new(texts.finish()))
    }

    /// Texts that `write` writes for each value.
    pub(super) fn written<T>(
        self,
        name: &'static str,
        values: impl Iterator<Item = T>,
        write: impl Fn(&mut String, T),
    ) -> Self {
        let (mut texts, mut text) = (StringViewBuilder::new(), String::new());
        for value in values {
            text.clear();
            write(&mut text, value);
            texts.append_value(&text);
        }
        self.with(name, Arc::new(texts.finish()))
    }

    pub(super) fn batch(self) -> RecordBatch {
        RecordBatch::try_from_iter(self.0).expect("columns are of one length")
    }
}
