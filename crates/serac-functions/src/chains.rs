//! Long chains of `+` and `-`, and of `||`, as one call.
//!
//! What types the operators have, and what of them can be simplified, is asked at each of them of
//! all that is below: of thousands of operators one below the other, far too often, and on a stack
//! as deep. So a long chain becomes `serac_chain('+-+', a, b, c, d)`, which
//! does the same steps in the same order: each has the types that the operator has. Numbers are
//! added, and texts are put together; a long chain of other values is refused (54001).

use super::float_errors::check_floats;
use datafusion::arrow::array::{ArrayRef, AsArray, Datum, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::numeric::{add, sub};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;
use serac_values::SqlError;
use serac_values::wire::wire_type;
use std::sync::Arc;

/// The name of the function that a chain becomes a call of.
pub const NAME: &str = "serac_chain";

#[derive(Debug, PartialEq, Eq, Hash)]
struct Steps {
    signature: Signature,
}

/// The function of which chains become calls.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::from(Steps { signature: Signature::variadic_any(Volatility::Immutable) })
}

/// What a step is of: the types that its operands are cast to, and that of its result.
fn step(operator: char, left: &DataType, right: &DataType) -> Result<(DataType, DataType, DataType)> {
    let fits = |operand: &DataType| match operator {
        // What Arrow writes as PostgreSQL does.
        '|' => {
            matches!(operand, DataType::Utf8 | DataType::Utf8View | DataType::Null | DataType::Boolean)
                || operand.is_integer()
                || operand.is_decimal()
                || *operand == DataType::Date32
        }
        _ => operand.is_numeric() || operand.is_null(),
    };
    if !fits(left) || !fits(right) {
        return Err(SqlError::too_deep().external());
    }
    let operator = match operator {
        '+' => Operator::Plus,
        '-' => Operator::Minus,
        _ => Operator::StringConcat,
    };
    let coercer = BinaryTypeCoercer::new(left, &operator, right);
    let (cast_left, cast_right) = coercer.get_input_types()?;
    let result = BinaryTypeCoercer::new(&cast_left, &operator, &cast_right).get_result_type()?;
    Ok((cast_left, cast_right, result))
}

fn operators(scalar: Option<&ScalarValue>) -> Result<&str> {
    scalar
        .and_then(|value| value.try_as_str().flatten())
        .ok_or_else(|| DataFusionError::Plan(format!("{NAME} takes operators and their operands")))
}

impl ScalarUDFImpl for Steps {
    fn name(&self) -> &str {
        NAME
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Err(DataFusionError::Internal("the type depends on the operators".into()))
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let operators = operators(args.scalar_arguments.first().copied().flatten())?;
        let mut operands = args.arg_fields[1..].iter().map(|field| field.data_type());
        let mut result = operands.next().cloned().unwrap_or(DataType::Null);
        for (operator, operand) in operators.chars().zip(operands) {
            result = step(operator, &result, operand)?.2;
        }
        Ok(Arc::new(Field::new(NAME, result, true)))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(given), first, rest @ ..] = &args.args[..] else {
            return Err(DataFusionError::Plan(format!("{NAME} takes operators and their operands")));
        };
        let operators = operators(Some(given))?;
        if operators.starts_with('|') {
            return concatenated(&args.args[1..], args.number_rows, args.return_field.data_type());
        }
        let mut result = first.clone();
        for (operator, operand) in operators.chars().zip(rest) {
            let (left, right, wanted) = step(operator, &result.data_type(), &operand.data_type())?;
            type Calculate = fn(&dyn Datum, &dyn Datum) -> std::result::Result<ArrayRef, ArrowError>;
            let (calculate, operator): (Calculate, _) = match operator {
                '+' => (add, Operator::Plus),
                _ => (sub, Operator::Minus),
            };
            let out_of_range = |_| SqlError::out_of_range(wire_type(&wanted)).external();
            let operands = [result.cast_to(&left, None)?, operand.cast_to(&right, None)?];
            result = apply(&operands[0], &operands[1], calculate).map_err(out_of_range)?;
            if wanted.is_floating() {
                check_floats(operator, &operands, &result)?;
            }
        }
        Ok(result)
    }
}

/// The texts one behind the other; NULL where one is NULL.
fn concatenated(operands: &[ColumnarValue], rows: usize, wanted: &DataType) -> Result<ColumnarValue> {
    let is_constant = operands.iter().all(|operand| matches!(operand, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { rows };
    let texts = operands.iter().map(|operand| Ok(cast(&operand.to_array(rows)?, &DataType::Utf8)?));
    let texts = texts.collect::<Result<Vec<ArrayRef>>>()?;
    let mut all = StringBuilder::new();
    let mut row_text = String::new();
    for row in 0..rows {
        row_text.clear();
        let whole = texts.iter().all(|texts| {
            let is_there = texts.is_valid(row);
            if is_there {
                row_text.push_str(texts.as_string::<i32>().value(row));
            }
            is_there
        });
        all.append_option(whole.then_some(&row_text));
    }
    let all = cast(&(Arc::new(all.finish()) as ArrayRef), wanted)?;
    match is_constant {
        true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&all, 0)?)),
        false => Ok(ColumnarValue::Array(all)),
    }
}
