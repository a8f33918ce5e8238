//! Arrays as numbers, and numbers as arrays.

use crate::{as_type, external};
use datafusion::arrow::array::{
    Array, ArrayRef, Decimal128Array, Float32Array, Float32Builder, Float64Array, Float64Builder, Int16Array,
    Int16Builder, Int32Array, Int32Builder, Int64Array, Int64Builder, LargeBinaryArray, LargeBinaryBuilder,
    LargeStringArray, StringArray, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use serac_numeric::{Numeric, NumericError};
use std::sync::Arc;

/// Bytes that the numbers of an array take at most.
const MOST_BYTES: usize = 1 << 30;

/// A value of an argument or a result.
#[derive(Clone, Debug)]
pub enum Value<'v> {
    /// A number.
    Numeric(Numeric),
    /// A whole number.
    Whole(i64),
    /// A float.
    Double(f64),
    /// A short float.
    Single(f32),
    /// A text.
    Text(&'v str),
    /// A text that has been made.
    Written(String),
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// NUMERIC.
    Numeric,
    /// SMALLINT.
    Int2,
    /// INTEGER.
    Int4,
    /// BIGINT.
    Int8,
    /// REAL.
    Float4,
    /// DOUBLE PRECISION.
    Float8,
    /// TEXT.
    Text,
}

impl Kind {
    /// The Arrow type of values of this kind; numbers are free.
    pub fn stored(self) -> DataType {
        match self {
            Self::Numeric => crate::FREE,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 => DataType::Int64,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Text => DataType::Utf8View,
        }
    }
}

/// An array whose values are read one by one.
#[derive(Debug)]
pub enum Column<'a> {
    /// Free numbers.
    Free(&'a LargeBinaryArray),
    /// Fixed numbers, and their scale.
    Fixed(&'a Decimal128Array, i8),
    /// SMALLINT.
    Int2(&'a Int16Array),
    /// INTEGER.
    Int4(&'a Int32Array),
    /// BIGINT.
    Int8(&'a Int64Array),
    /// REAL.
    Float4(&'a Float32Array),
    /// DOUBLE PRECISION.
    Float8(&'a Float64Array),
    /// Texts.
    View(&'a StringViewArray),
    /// Texts.
    Utf8(&'a StringArray),
    /// Texts.
    LargeUtf8(&'a LargeStringArray),
    /// NULLs.
    Null,
}

impl<'a> Column<'a> {
    /// The array to be read.
    ///
    /// # Errors
    /// If it is of a type that is not known here.
    pub fn new(array: &'a dyn Array) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::LargeBinary => Self::Free(as_type(array)?),
            DataType::Decimal128(_, scale) => Self::Fixed(as_type(array)?, *scale),
            DataType::Int16 => Self::Int2(as_type(array)?),
            DataType::Int32 => Self::Int4(as_type(array)?),
            DataType::Int64 => Self::Int8(as_type(array)?),
            DataType::Float32 => Self::Float4(as_type(array)?),
            DataType::Float64 => Self::Float8(as_type(array)?),
            DataType::Utf8View => Self::View(as_type(array)?),
            DataType::Utf8 => Self::Utf8(as_type(array)?),
            DataType::LargeUtf8 => Self::LargeUtf8(as_type(array)?),
            DataType::Null => Self::Null,
            other => return Err(DataFusionError::Internal(format!("numbers of type {other}"))),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Free(array) => array.is_null(row),
            Self::Fixed(array, _) => array.is_null(row),
            Self::Int2(array) => array.is_null(row),
            Self::Int4(array) => array.is_null(row),
            Self::Int8(array) => array.is_null(row),
            Self::Float4(array) => array.is_null(row),
            Self::Float8(array) => array.is_null(row),
            Self::View(array) => array.is_null(row),
            Self::Utf8(array) => array.is_null(row),
            Self::LargeUtf8(array) => array.is_null(row),
            Self::Null => true,
        }
    }

    /// A value; `None` for NULL.
    ///
    /// # Errors
    /// If its bytes are damaged.
    pub fn value(&self, row: usize) -> Result<Option<Value<'a>>> {
        if self.is_null(row) {
            return Ok(None);
        }
        Ok(Some(match self {
            Self::Free(array) => Value::Numeric(Numeric::of_stored(array.value(row)).map_err(external)?),
            Self::Fixed(array, scale) => Value::Numeric(Numeric::of_decimal(array.value(row), *scale)),
            Self::Int2(array) => Value::Whole(array.value(row).into()),
            Self::Int4(array) => Value::Whole(array.value(row).into()),
            Self::Int8(array) => Value::Whole(array.value(row)),
            Self::Float4(array) => Value::Single(array.value(row)),
            Self::Float8(array) => Value::Double(array.value(row)),
            Self::View(array) => Value::Text(array.value(row)),
            Self::Utf8(array) => Value::Text(array.value(row)),
            Self::LargeUtf8(array) => Value::Text(array.value(row)),
            Self::Null => return Ok(None),
        }))
    }

    /// A value as a number; `None` for NULL.
    ///
    /// # Errors
    /// If it is no number.
    pub fn number(&self, row: usize) -> Result<Option<Numeric>> {
        match self.value(row)? {
            None => Ok(None),
            Some(Value::Numeric(number)) => Ok(Some(number)),
            Some(Value::Whole(whole)) => Ok(Some(Numeric::from_integer(whole))),
            Some(other) => Err(DataFusionError::Internal(format!("{other:?} is no number"))),
        }
    }
}

/// An array that is made value by value.
#[derive(Debug)]
pub enum Builder {
    /// Free numbers, and the bytes of one.
    Numeric(LargeBinaryBuilder, Vec<u8>),
    /// SMALLINT.
    Int2(Int16Builder),
    /// INTEGER.
    Int4(Int32Builder),
    /// BIGINT.
    Int8(Int64Builder),
    /// REAL.
    Float4(Float32Builder),
    /// DOUBLE PRECISION.
    Float8(Float64Builder),
    /// Texts.
    Text(StringViewBuilder),
}

impl Builder {
    /// An array of a kind.
    pub fn new(kind: Kind, rows: usize) -> Self {
        match kind {
            Kind::Numeric => Self::Numeric(LargeBinaryBuilder::with_capacity(rows, rows * 8), Vec::new()),
            Kind::Int2 => Self::Int2(Int16Builder::with_capacity(rows)),
            Kind::Int4 => Self::Int4(Int32Builder::with_capacity(rows)),
            Kind::Int8 => Self::Int8(Int64Builder::with_capacity(rows)),
            Kind::Float4 => Self::Float4(Float32Builder::with_capacity(rows)),
            Kind::Float8 => Self::Float8(Float64Builder::with_capacity(rows)),
            Kind::Text => Self::Text(StringViewBuilder::with_capacity(rows)),
        }
    }

    /// Adds a value, or NULL.
    ///
    /// # Errors
    /// If it is of another kind.
    pub fn push(&mut self, value: Option<Value<'_>>) -> Result<()> {
        match (self, value) {
            (Self::Numeric(builder, bytes), Some(Value::Numeric(number))) => {
                bytes.clear();
                number.write_stored(bytes);
                if builder.values_slice().len() + bytes.len() > MOST_BYTES {
                    let message = "numbers take more than a gigabyte".into();
                    return Err(external(NumericError {
                        sqlstate: sqlstate::PROGRAM_LIMIT_EXCEEDED,
                        message,
                        detail: None,
                    }));
                }
                builder.append_value(bytes);
            }
            (Self::Int2(builder), Some(Value::Whole(whole))) => builder.append_value(narrow(whole)?),
            (Self::Int4(builder), Some(Value::Whole(whole))) => builder.append_value(narrow(whole)?),
            (Self::Int8(builder), Some(Value::Whole(whole))) => builder.append_value(whole),
            (Self::Float4(builder), Some(Value::Single(float))) => builder.append_value(float),
            (Self::Float8(builder), Some(Value::Double(float))) => builder.append_value(float),
            (Self::Text(builder), Some(Value::Text(text))) => builder.append_value(text),
            (Self::Text(builder), Some(Value::Written(text))) => builder.append_value(text),
            (Self::Numeric(builder, _), None) => builder.append_null(),
            (Self::Int2(builder), None) => builder.append_null(),
            (Self::Int4(builder), None) => builder.append_null(),
            (Self::Int8(builder), None) => builder.append_null(),
            (Self::Float4(builder), None) => builder.append_null(),
            (Self::Float8(builder), None) => builder.append_null(),
            (Self::Text(builder), None) => builder.append_null(),
            (_, Some(other)) => return Err(DataFusionError::Internal(format!("{other:?} is of another kind"))),
        }
        Ok(())
    }

    /// The array.
    pub fn finish(self) -> ArrayRef {
        match self {
            Self::Numeric(mut builder, _) => Arc::new(builder.finish()),
            Self::Int2(mut builder) => Arc::new(builder.finish()),
            Self::Int4(mut builder) => Arc::new(builder.finish()),
            Self::Int8(mut builder) => Arc::new(builder.finish()),
            Self::Float4(mut builder) => Arc::new(builder.finish()),
            Self::Float8(mut builder) => Arc::new(builder.finish()),
            Self::Text(mut builder) => Arc::new(builder.finish()),
        }
    }
}

fn narrow<T: TryFrom<i64>>(whole: i64) -> Result<T> {
    T::try_from(whole).map_err(|_| DataFusionError::Internal(format!("{whole} is out of range")))
}

/// Free numbers as the texts that PostgreSQL writes.
///
/// # Errors
/// If the bytes of a number are damaged.
pub fn texts(array: &LargeBinaryArray) -> Result<StringViewArray> {
    let mut out = StringViewBuilder::with_capacity(array.len());
    for bytes in array {
        match bytes {
            Some(bytes) => out.append_value(Numeric::of_stored(bytes).map_err(external)?.to_string()),
            None => out.append_null(),
        }
    }
    Ok(out.finish())
}
