//! Calls of volatile functions, each of which is another value, however it is written.
//!
//! DataFusion takes two expressions that are written alike for one value. It sorts `SELECT random()
//! AS a, random() AS b … ORDER BY b` by `a`, and it computes one of two subqueries with
//! `nextval('s')`. It also takes a call for a constant if all arguments are constants, and drops a
//! sort by `nextval('s')`. So each call here becomes a call of a function of its own. If it has
//! arguments, it gets one more, of which nothing is known.
//!
//! ```text
//! nextval('s')   becomes   nextval('s', each_call())
//! ```

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use serac_functions::rewrite_typed;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// Gives each call its identity. Comes after types are coerced.
#[derive(Debug)]
pub struct VolatileCalls;

impl AnalyzerRule for VolatileCalls {
    fn name(&self) -> &str {
        "volatile_calls"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_typed(plan, is_plain, apart)
    }
}

/// The function of one call.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Call {
    function: Arc<ScalarUDF>,
    /// No other call has it.
    number: u64,
    /// Whether the call has an argument behind those of the function. A call without arguments
    /// needs none: nothing is known of it anyway.
    has_mark: bool,
    signature: Signature,
}

impl Call {
    fn new(function: Arc<ScalarUDF>, has_mark: bool) -> Self {
        /// The number of the next call.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: numbers need only differ.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let signature = match has_mark {
            true => Signature::variadic_any(Volatility::Volatile),
            false => Signature::nullary(Volatility::Volatile),
        };
        Self { function, number, has_mark, signature }
    }

    /// The part of a list with an item for each argument that belongs to the function's own
    /// arguments.
    fn own<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        &all[..all.len().saturating_sub(usize::from(self.has_mark))]
    }

    /// The arguments without the mark, with which the function is called.
    fn own_args(&self, args: ScalarFunctionArgs) -> ScalarFunctionArgs {
        let ScalarFunctionArgs { mut args, mut arg_fields, number_rows, return_field, config_options } = args;
        if self.has_mark {
            args.pop();
            arg_fields.pop();
        }
        ScalarFunctionArgs { args, arg_fields, number_rows, return_field, config_options }
    }
}

impl ScalarUDFImpl for Call {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.function.schema_name(self.own(args))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.function.return_type(self.own(given))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let ReturnFieldArgs { arg_fields, scalar_arguments } = args;
        let (arg_fields, scalar_arguments) = (self.own(arg_fields), self.own(scalar_arguments));
        self.function.return_field_from_args(ReturnFieldArgs { arg_fields, scalar_arguments })
    }

    fn is_strict(&self) -> bool {
        self.function.is_strict()
    }

    /// A function may exist for the planner alone, which replaces it by another.
    fn simplify(&self, mut args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let mark = if self.has_mark { args.pop() } else { None };
        Ok(match self.function.simplify(args, context)? {
            ExprSimplifyResult::Original(mut args) => {
                args.extend(mark);
                ExprSimplifyResult::Original(args)
            }
            simplified => simplified,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.function.invoke_with_args(self.own_args(args))
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Call {
    fn ideal_batch_size(&self) -> Option<usize> {
        self.function.as_async().and_then(AsyncScalarUDF::ideal_batch_size)
    }

    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.function.as_async() {
            Some(function) => function.invoke_async_with_args(self.own_args(args)).await,
            None => internal_err!("{} does not wait", self.function.name()),
        }
    }
}

/// The argument by which a call is known to be one. It counts as volatile, so that nobody makes a
/// literal of it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark(Signature);

static MARK: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(Mark(Signature::nullary(Volatility::Volatile)))));

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        "each_call"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))))
    }
}

/// Whether an expression is a volatile call without an identity.
fn is_plain(expr: &Expr) -> bool {
    let Expr::ScalarFunction(call) = expr else { return false };
    let is_mark = |arg: &Expr| matches!(arg, Expr::ScalarFunction(call) if call.func.inner().is::<Mark>());
    let function = call.func.inner();
    call.func.signature().volatility == Volatility::Volatile
        && !function.is::<Mark>()
        && !function.is::<Call>()
        && !call.args.last().is_some_and(is_mark)
}

fn apart(expr: Expr, _: &DFSchema) -> Result<Transformed<Expr>> {
    if !is_plain(&expr) {
        return Ok(Transformed::no(expr));
    }
    Ok(match expr {
        Expr::ScalarFunction(ScalarFunction { func, mut args }) => {
            let waits = func.as_async().is_some();
            // A function that waits hides the function inside it, so it needs the mark even without
            // arguments.
            let has_mark = waits || !args.is_empty();
            if has_mark {
                args.push(Expr::ScalarFunction(ScalarFunction::new_udf(MARK.clone(), Vec::new())));
            }
            let call = Call::new(func, has_mark);
            let function = match waits {
                true => AsyncScalarUDF::new(Arc::new(call)).into_scalar_udf(),
                false => ScalarUDF::from(call),
            };
            Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), args)))
        }
        other => Transformed::no(other),
    })
}
