//! Arrays of numbers: as arrays of free numbers, each with digits of its own, and as arrays of
//! their keys.

use crate::keys;
use crate::values::{Builder, Column, Kind, Value};
use crate::wanted::IsWanted;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serac_numeric::Numeric;
use std::sync::{Arc, LazyLock};

/// The form that elements get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Free,
    Key,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Elements {
    form: Form,
    signature: Signature,
}

fn elements(form: Form) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Elements { form, signature: Signature::any(1, Volatility::Immutable) }))
}

static FREE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| elements(Form::Free));
static KEYS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| elements(Form::Key));

/// An array of numbers, or of their texts, of any depth, as one of free numbers.
pub fn free(expr: Expr) -> Expr {
    FREE.call(vec![expr])
}

/// An array of numbers, of any depth, as one of their keys.
pub fn keys(expr: Expr) -> Expr {
    KEYS.call(vec![expr])
}

/// An array, of any depth, with its elements mapped. An array that is no list is mapped itself.
///
/// # Errors
/// The errors of `map`.
pub fn map_elements<E: From<ArrowError>>(
    array: &ArrayRef,
    map: &impl Fn(&ArrayRef) -> Result<ArrayRef, E>,
) -> Result<ArrayRef, E> {
    let Some(lists) = array.as_list_opt::<i32>() else { return map(array) };
    let (_, offsets, elements, nulls) = lists.clone().into_parts();
    let elements = map_elements(&elements, map)?;
    let field = Arc::new(Field::new_list_field(elements.data_type().clone(), true));
    Ok(Arc::new(ListArray::try_new(field, offsets, elements, nulls)?))
}

/// An array as a constant, of dimensions of these lengths. Its innermost elements stand one behind
/// the other in `elements`.
///
/// # Panics
/// If the number of elements is another.
pub fn of_dimensions(elements: ArrayRef, lengths: &[usize]) -> ScalarValue {
    assert_eq!(lengths.iter().product::<usize>(), if lengths.is_empty() { 1 } else { elements.len() });
    let inner = lengths.iter().skip(1).rev().fold(elements, |elements, &length| {
        let lists = std::iter::repeat_n(length, elements.len().checked_div(length).unwrap_or(0));
        let field = Arc::new(Field::new_list_field(elements.data_type().clone(), true));
        Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(lists), elements, None))
    });
    SingleRowListArrayBuilder::new(inner).build_list_scalar()
}

impl Form {
    fn element(self) -> DataType {
        match self {
            Self::Free => DataType::LargeBinary,
            Self::Key => DataType::Binary,
        }
    }

    /// The type of an array of values in this form.
    fn of(self, given: &DataType) -> Result<DataType> {
        match given {
            DataType::List(field) => {
                let element = match field.data_type() {
                    nested @ DataType::List(_) => self.of(nested)?,
                    _ => self.element(),
                };
                Ok(DataType::List(Arc::new(Field::new_list_field(element, true))))
            }
            other => Err(DataFusionError::Internal(format!("an array of numbers of type {other}"))),
        }
    }

    /// Numbers in this form, computed as long as they are wanted.
    fn converted(self, array: &ArrayRef, wanted: Option<&IsWanted>) -> Result<ArrayRef> {
        let column = Column::new(array.as_ref())?;
        let number = |row: usize| {
            wanted.map_or(Ok(()), IsWanted::check)?;
            match column.value(row)? {
                Some(Value::Text(text)) => {
                    let number = text.parse::<Numeric>();
                    number.map(Some).map_err(crate::external)
                }
                _ => column.number(row),
            }
        };
        match self {
            Self::Free => {
                let mut out = Builder::new(Kind::Numeric, array.len());
                for row in 0..array.len() {
                    out.push(number(row)?.map(Value::Numeric))?;
                }
                Ok(out.finish())
            }
            Self::Key => keys::of_numbers(array.len(), number),
        }
    }
}

impl ScalarUDFImpl for Elements {
    fn name(&self) -> &str {
        match self.form {
            Form::Free => "numeric_elements",
            Form::Key => "numeric_element_keys",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.form.of(given.first().unwrap_or(&DataType::Null))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = matches!(args.args[..], [ColumnarValue::Scalar(_)]);
        let [array] = &ColumnarValue::values_to_arrays(&args.args)?[..] else {
            return Err(DataFusionError::Internal("an array of numbers is missing".into()));
        };
        let wanted = IsWanted::of(&args.config_options);
        let converted = map_elements(array, &|elements| self.form.converted(elements, wanted))?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&converted, 0)?),
            false => ColumnarValue::Array(converted),
        })
    }
}
