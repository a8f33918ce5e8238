//! Arithmetic that fails if its result does not fit, as SQL has it (22003). DataFusion's own wraps
//! integers around, so that `9223372036854775807 + 1` would be a negative number. For floats that
//! are too large or too small it returns infinity or 0.
//!
//! Sums, differences and products of integers and floats, and quotients of floats, become functions
//! under the names that the operators have in results. So does the exclusive or, of which
//! DataFusion takes `a # a` for 0, also where a is NULL.
//!
//! A NaN result has no sign: Arrow compares floats by their bits. By these, `Infinity - Infinity`
//! would be less than all numbers, and differ from `'NaN'`.

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, PrimitiveArray, downcast_integer, new_null_array,
};
use datafusion::arrow::compute::kernels::bitwise::{bitwise_xor, bitwise_xor_scalar};
use datafusion::arrow::compute::kernels::numeric::{add, div, mul, sub};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;
use serac_functions::{check_floats, rewrite_typed, with_one_nan};
use serac_values::SqlError;
use serac_values::wire::wire_type;
use std::ops::BitXor;
use std::sync::{Arc, LazyLock};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operator: Operator,
    signature: Signature,
}

static FUNCTIONS: LazyLock<[Arc<ScalarUDF>; 5]> = LazyLock::new(|| {
    [Operator::Plus, Operator::Minus, Operator::Multiply, Operator::Divide, Operator::BitwiseXor].map(|operator| {
        Arc::new(ScalarUDF::from(Checked { operator, signature: Signature::any(2, Volatility::Immutable) }))
    })
});

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.operator {
            Operator::Plus => "checked_plus",
            Operator::Minus => "checked_minus",
            Operator::Divide => "checked_divide",
            Operator::BitwiseXor => "checked_xor",
            _ => "checked_times",
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(format!("{} {} {}", args[0].schema_name(), self.operator, args[1].schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let calculate: fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError> = match self.operator {
            Operator::Plus => add,
            Operator::Minus => sub,
            Operator::Divide => div,
            Operator::BitwiseXor => xor,
            _ => mul,
        };
        let result = apply(&args.args[0], &args.args[1], calculate);
        if args.return_type().is_floating() {
            let result = result?;
            check_floats(self.operator, &args.args, &result)?;
            return with_one_nan(result);
        }
        result.map_err(|_| SqlError::out_of_range(wire_type(args.return_type())).external())
    }
}

fn xor(left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
    let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
    macro_rules! typed {
        ($t:ty) => {{
            let (left, right) = (left.as_primitive::<$t>(), right.as_primitive::<$t>());
            match (left_is_one, right_is_one) {
                (true, false) => with_one::<$t>(right, left),
                (false, true) => with_one::<$t>(left, right),
                _ => bitwise_xor(left, right).map(|array| Arc::new(array) as ArrayRef),
            }
        }};
    }
    downcast_integer! {
        left.data_type() => (typed),
        other => Err(ArrowError::InvalidArgumentError(format!("{other} is no integer"))),
    }
}

/// The exclusive or of each value and the first value of `one`, which stands for a constant.
fn with_one<T: ArrowPrimitiveType<Native: BitXor<Output = T::Native>>>(
    array: &PrimitiveArray<T>,
    one: &PrimitiveArray<T>,
) -> Result<ArrayRef, ArrowError> {
    match one.is_null(0) {
        true => Ok(new_null_array(array.data_type(), array.len())),
        false => Ok(Arc::new(bitwise_xor_scalar(array, one.value(0))?)),
    }
}

/// The operator that a function stands for.
pub fn operator_of(function: &ScalarUDF) -> Option<Operator> {
    function.inner().downcast_ref::<Checked>().map(|checked| checked.operator)
}

/// The type of an expression whose operands have been rewritten. A function's type is computed from
/// its whole subtree, so asking at each level of a sum takes at least the square of its length. The
/// functions here have the type of their first argument.
fn type_of(mut expr: &Expr, schema: &DFSchema) -> Result<DataType> {
    while let Expr::ScalarFunction(call) = expr
        && operator_of(&call.func).is_some()
    {
        expr = &call.args[0];
    }
    expr.get_type(schema)
}

fn is_arithmetic(expr: &Expr) -> bool {
    use Operator::{BitwiseXor, Divide, Minus, Multiply, Plus};
    let is_ours = |op: Operator| matches!(op, Plus | Minus | Multiply | Divide | BitwiseXor);
    matches!(expr, Expr::Negative(_)) || matches!(expr, Expr::BinaryExpr(BinaryExpr { op, .. }) if is_ours(*op))
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if !is_arithmetic(&expr) {
        return Ok(Transformed::no(expr));
    }
    // Quotients of integers cannot be too large, with one exception that DataFusion reports.
    let is_checked = |data_type: &DataType, op| match op {
        Operator::Divide => data_type.is_floating(),
        Operator::BitwiseXor => data_type.is_integer(),
        _ => data_type.is_integer() || data_type.is_floating(),
    };
    let (left, op, right) = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let data_type = type_of(&left, schema)?;
            if !is_checked(&data_type, op) || !type_of(&right, schema).is_ok_and(|right| right == data_type) {
                return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
            }
            (*left, op, *right)
        }
        Expr::Negative(operand) => match type_of(&operand, schema)? {
            data_type if data_type.is_integer() => (lit(ScalarValue::new_zero(&data_type)?), Operator::Minus, *operand),
            // The product has the sign of 0 and of NaN that it must have.
            data_type if data_type.is_floating() => {
                let minus_one = ScalarValue::new_negative_one(&data_type)?;
                (lit(minus_one), Operator::Multiply, *operand)
            }
            _ => return Ok(Transformed::no(Expr::Negative(operand))),
        },
        other => return Ok(Transformed::no(other)),
    };
    let function = FUNCTIONS.iter().find(|function| operator_of(function) == Some(op)).expect("there is one for each");
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function.clone(), vec![left, right]))))
}

/// An expression, whose types are coerced, that fails if a result does not fit.
///
/// # Errors
/// When a column is not in the schema.
pub fn checked(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(expr.transform_up(|expr| rewrite(expr, schema))?.data)
}

/// Rewrites the arithmetic of a plan. Comes after types are coerced.
#[derive(Debug)]
pub struct CheckedArithmetic;

impl AnalyzerRule for CheckedArithmetic {
    fn name(&self) -> &str {
        "checked_arithmetic"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_typed(plan, is_arithmetic, rewrite)
    }
}
