//! one_zero (x): a float, but 0 for -0, and NaN for NaN with a sign. Both pairs are equal, but code
//! that compares floats by their bits distinguishes them.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::{Arc, LazyLock};

#[derive(Debug, PartialEq, Eq, Hash)]
struct OneZero(Signature);

static ONE_ZERO: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let types = vec![DataType::Float32, DataType::Float64];
    Arc::new(ScalarUDF::from(OneZero(Signature::uniform(1, types, Volatility::Immutable))))
});

/// The value with one zero and one NaN.
pub fn one_zero(value: Expr) -> Expr {
    ONE_ZERO.call(vec![value])
}

/// Whether this is [`one_zero`] of a value.
pub fn has_one_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.inner().is::<OneZero>())
}

/// Floats with one zero and one NaN; other values as they are.
pub(super) fn single(array: &ArrayRef) -> ArrayRef {
    // -0 + 0 is 0.
    let single32 = |x: f32| if x.is_nan() { f32::NAN } else { x + 0.0 };
    let single64 = |x: f64| if x.is_nan() { f64::NAN } else { x + 0.0 };
    match array.data_type() {
        DataType::Float32 => Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(single32)),
        DataType::Float64 => Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(single64)),
        _ => array.clone(),
    }
}

impl ScalarUDFImpl for OneZero {
    fn name(&self) -> &str {
        "one_zero"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let of_scalar = matches!(args.args[0], ColumnarValue::Scalar(_));
        let array = args.args[0].to_array(if of_scalar { 1 } else { args.number_rows })?;
        let array = single(&array);
        Ok(match of_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?),
            false => ColumnarValue::Array(array),
        })
    }
}

/// Floats with one NaN.
///
/// # Errors
/// When a scalar cannot be made of the array.
pub fn with_one_nan(floats: ColumnarValue) -> Result<ColumnarValue> {
    let of_scalar = matches!(floats, ColumnarValue::Scalar(_));
    let array = floats.to_array(1)?;
    let single: ArrayRef = match array.data_type() {
        DataType::Float32 if array.as_primitive::<Float32Type>().values().iter().any(|x| x.is_nan()) => {
            let single = |x: f32| if x.is_nan() { f32::NAN } else { x };
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(single))
        }
        DataType::Float64 if array.as_primitive::<Float64Type>().values().iter().any(|x| x.is_nan()) => {
            let single = |x: f64| if x.is_nan() { f64::NAN } else { x };
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(single))
        }
        _ => return Ok(floats),
    };
    Ok(match of_scalar {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&single, 0)?),
        false => ColumnarValue::Array(single),
    })
}
