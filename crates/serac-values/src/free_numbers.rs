//! NUMERICs with digits of their own ([`serac_numeric_functions`]) on their way in and out.
//!
//! Inside, a column of this kind is Arrow's `LargeBinary`. PostgreSQL's protocol writes its values
//! as PostgreSQL does ([`crate::wire`]). `LargeBinary` that comes as Arrow holds bytes, so it is
//! cast to `BinaryView` where it enters ([`crate::arrow_input`]). A result that leaves as Arrow has
//! its numbers as texts: decimals of Arrow have one scale for all values, and floats would lose
//! digits. A text has the same digits in each batch, and each tool reads a number from it.

use crate::error::{Result, SqlError};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray, RecordBatch, make_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use serac_engine::catalog::definition::SqlType;
use serac_numeric::{Numeric, NumericError};
use serac_numeric_functions::lists::map_elements;
use serac_numeric_functions::values::{Builder, Column, Kind, Value, texts};
use serac_storage::ColumnType;
use std::sync::Arc;

impl From<&NumericError> for SqlError {
    fn from(error: &NumericError) -> Self {
        Self { detail: error.detail.clone(), ..Self::new(error.sqlstate, error.message.clone()) }
    }
}

impl From<NumericError> for SqlError {
    fn from(error: NumericError) -> Self {
        Self::from(&error)
    }
}

fn numbers(array: &ArrayRef) -> Option<&LargeBinaryArray> {
    array.as_any().downcast_ref()
}

/// The type of the result of [`shown`].
fn shown_type(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::LargeBinary => Some(DataType::Utf8View),
        DataType::List(element) => {
            let shown = shown_type(element.data_type())?;
            Some(DataType::List(Arc::new(element.as_ref().clone().with_data_type(shown))))
        }
        _ => None,
    }
}

/// The schema of the result of [`shown`].
pub fn shown_schema(schema: &SchemaRef) -> SchemaRef {
    if schema.fields().iter().all(|field| shown_type(field.data_type()).is_none()) {
        return schema.clone();
    }
    let field = |field: &Arc<Field>| match shown_type(field.data_type()) {
        Some(shown) => Arc::new(field.as_ref().clone().with_data_type(shown)),
        None => field.clone(),
    };
    let fields: Vec<_> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// A batch that leaves as Arrow, with texts in the place of numbers that have digits of their own.
///
/// # Errors
/// XX001 for bytes that are no number.
pub fn shown(batch: RecordBatch) -> Result<RecordBatch> {
    let schema = shown_schema(&batch.schema());
    if schema == batch.schema() {
        return Ok(batch);
    }
    let columns = batch.columns().iter().map(as_shown).collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn as_shown(array: &ArrayRef) -> Result<ArrayRef> {
    let Some(wanted) = shown_type(array.data_type()) else { return Ok(array.clone()) };
    match array.data_type() {
        DataType::LargeBinary => Ok(as_texts(array)?),
        _ => {
            let data = array.to_data();
            let elements = as_shown(array.as_list::<i32>().values())?;
            let data = data.into_builder().data_type(wanted).child_data(vec![elements.to_data()]).build()?;
            Ok(make_array(data))
        }
    }
}

/// Numbers as the texts that PostgreSQL writes.
pub(crate) fn as_texts(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let texts = numbers(array).map(texts).transpose()?;
    texts.map(|texts| Arc::new(texts) as ArrayRef).ok_or_else(|| ArrowError::CastError("these are no numbers".into()))
}

/// Numbers as values of a column; `None` if a column of this type takes texts.
///
/// # Errors
/// 22003 if a number does not fit.
pub(crate) fn assigned(array: &ArrayRef, sql_type: SqlType) -> Result<Option<ArrayRef>> {
    let Some(numbers) = numbers(array) else { return Ok(None) };
    let each = |kind: Kind, value: fn(&Numeric) -> Result<Value<'static>, NumericError>| -> Result<ArrayRef> {
        let mut out = Builder::new(kind, numbers.len());
        for stored in numbers {
            let value = stored.map(|stored| value(&Numeric::of_stored(stored)?)).transpose()?;
            out.push(value)?;
        }
        Ok(out.finish())
    };
    Ok(Some(match sql_type.column_type {
        ColumnType::Int16 => each(Kind::Int2, |number| Ok(Value::Whole(number.to_whole::<i16>()?.into())))?,
        ColumnType::Int32 => each(Kind::Int4, |number| Ok(Value::Whole(number.to_whole::<i32>()?.into())))?,
        ColumnType::Int64 => each(Kind::Int8, |number| Ok(Value::Whole(number.to_whole::<i64>()?)))?,
        ColumnType::Float32 => each(Kind::Float4, |number| Ok(Value::Single(number.to_f32()?)))?,
        ColumnType::Float64 => each(Kind::Float8, |number| Ok(Value::Double(number.to_f64()?)))?,
        ColumnType::Decimal { precision, scale } => {
            let mut out = datafusion::arrow::array::Decimal128Builder::with_capacity(numbers.len());
            for stored in numbers {
                let decimal = stored.map(|stored| Numeric::of_stored(stored)?.to_decimal(precision, scale));
                out.append_option(decimal.transpose()?);
            }
            Arc::new(out.finish().with_precision_and_scale(precision, scale)?)
        }
        ColumnType::Utf8 => as_texts(array)?,
        _ => return Ok(None),
    }))
}

/// Values of a column of NUMERIC without precision: numbers with their own digits, of numbers of
/// any type and of texts.
///
/// # Errors
/// 22P02 for a text that is no number.
pub(crate) fn as_numbers(array: &ArrayRef) -> Result<ArrayRef> {
    let column = Column::new(array.as_ref())?;
    let mut out = Builder::new(Kind::Numeric, array.len());
    for row in 0..array.len() {
        let number = match column.value(row)? {
            None => None,
            Some(Value::Numeric(number)) => Some(number),
            Some(Value::Whole(whole)) => Some(Numeric::from_integer(whole)),
            Some(Value::Single(float)) => Some(Numeric::of_f32(float)),
            Some(Value::Double(float)) => Some(Numeric::of_f64(float)),
            Some(Value::Text(text)) => Some(text.parse()?),
            Some(Value::Written(text)) => Some(text.parse()?),
        };
        out.push(number.map(Value::Numeric))?;
    }
    Ok(out.finish())
}

/// A parameter as an array of numbers, of any depth.
///
/// # Errors
/// 22P02 for an element that is a text and no number.
pub fn of_list_parameter(value: &ScalarValue) -> Result<ScalarValue> {
    if value.is_null() {
        return Ok(ScalarValue::try_from(&DataType::new_list(DataType::LargeBinary, true))?);
    }
    Ok(ScalarValue::try_from_array(&map_elements(&value.to_array()?, &as_numbers)?, 0)?)
}

/// A parameter as a number; `None` for a value without a conversion.
///
/// # Errors
/// 22P02 for a text that is no number.
pub fn of_parameter(value: &ScalarValue) -> Result<Option<ScalarValue>> {
    if value.is_null() {
        return Ok(Some(ScalarValue::LargeBinary(None)));
    }
    let number = match value {
        ScalarValue::LargeBinary(_) => return Ok(Some(value.clone())),
        ScalarValue::Decimal128(Some(unscaled), _, scale) => Numeric::of_decimal(*unscaled, *scale),
        ScalarValue::Int16(Some(whole)) => Numeric::from_integer(*whole),
        ScalarValue::Int32(Some(whole)) => Numeric::from_integer(*whole),
        ScalarValue::Int64(Some(whole)) => Numeric::from_integer(*whole),
        ScalarValue::Float32(Some(float)) => Numeric::of_f32(*float),
        ScalarValue::Float64(Some(float)) => Numeric::of_f64(*float),
        other => match other.try_as_str() {
            Some(Some(text)) => text.parse()?,
            _ => return Ok(None),
        },
    };
    Ok(Some(ScalarValue::LargeBinary(Some(number.to_stored()))))
}
