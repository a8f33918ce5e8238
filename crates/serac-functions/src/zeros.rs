//! one_zero (x): a float, but 0 for -0. They are equal, which what compares floats by their bits does not know.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::error::{DataFusionError, Result};
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

/// The value with one zero.
pub fn one_zero(value: Expr) -> Expr {
    ONE_ZERO.call(vec![value])
}

/// Whether this is [`one_zero`] of a value.
pub fn has_one_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.inner().is::<OneZero>())
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
        // -0 + 0 is 0.
        let array = match array.data_type() {
            DataType::Float32 => {
                Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(|x| x + 0.0)) as _
            }
            DataType::Float64 => {
                Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(|x| x + 0.0)) as _
            }
            other => return Err(DataFusionError::Internal(format!("one_zero of {other}"))),
        };
        Ok(match of_scalar {
            true => ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&array, 0)?),
            false => ColumnarValue::Array(array),
        })
    }
}
