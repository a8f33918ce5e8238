//! A long row of `+` and `-` as one call: `"serac chain"('+-+', a, b, c, d)` does the steps in
//! order. Thousands of nested operators would ask for their types far too often, and on a deep
//! stack. All operands have the type of the result.

use super::float_errors::check_floats;
use datafusion::arrow::array::{ArrayRef, Datum};
use datafusion::arrow::compute::kernels::numeric::{add, sub};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;
use serac_values::SqlError;
use serac_values::wire::wire_type;

/// Names with a blank are not shown to users.
const NAME: &str = "serac chain";

#[derive(Debug, PartialEq, Eq, Hash)]
struct Chain {
    signature: Signature,
}

pub(super) fn function() -> ScalarUDF {
    ScalarUDF::from(Chain { signature: Signature::variadic_any(Volatility::Immutable) })
}

fn wrong() -> DataFusionError {
    DataFusionError::Plan(format!("{NAME} takes operators and their operands, which have one type"))
}

impl ScalarUDFImpl for Chain {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [_, first, rest @ ..] if rest.iter().all(|one| one == first) => Ok(first.clone()),
            _ => Err(wrong()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(operators), first, rest @ ..] = &args.args[..] else { return Err(wrong()) };
        let operators = operators.try_as_str().flatten().ok_or_else(wrong)?;
        let of_type = first.data_type();
        let mut result = first.clone();
        for (operator, operand) in operators.chars().zip(rest) {
            type Calculate = fn(&dyn Datum, &dyn Datum) -> std::result::Result<ArrayRef, ArrowError>;
            let (calculate, operator): (Calculate, _) = match operator {
                '+' => (add, Operator::Plus),
                '-' => (sub, Operator::Minus),
                _ => return Err(wrong()),
            };
            let out_of_range = |_| SqlError::out_of_range(wire_type(&of_type)).external();
            let operands = [result, operand.clone()];
            result = apply(&operands[0], &operands[1], calculate).map_err(out_of_range)?;
            if of_type.is_floating() {
                check_floats(operator, &operands, &result)?;
            }
        }
        Ok(result)
    }
}
