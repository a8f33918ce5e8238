//! Calls of strict functions and operators with an argument that is NULL are NULL, whatever the
//! other arguments are. PostgreSQL finds that when it plans a statement: `date_part('no unit',
//! NULL)` is NULL and no error, and the branch of a CASE behind `a < NULL` is not reached. It
//! computes the constants among the arguments before, so that `NULL + 1 / 0` is an error. Calls of
//! such constants are left to `constant_errors`.
//!
//! The rule comes twice: before plans are optimized, and behind the simplifier, which computes
//! constants that are NULL, such as `nullif(1, 1)`.

use crate::casts::operand_of_cast;
use crate::constant_errors::may_be_computed;
use crate::typed::{rewrite_any, rewrite_typed};
use datafusion::common::config::ConfigOptions;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use serac_pg::functions::{FunctionKind, of_name};

/// The rule that puts NULL in the place of such calls.
#[derive(Debug)]
pub struct StrictNulls;

impl AnalyzerRule for StrictNulls {
    fn name(&self) -> &str {
        "strict_nulls"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_typed(plan, is_null, rewrite)
    }
}

impl OptimizerRule for StrictNulls {
    fn name(&self) -> &str {
        "strict_nulls"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        rewrite_any(plan, is_null, rewrite)
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if is_null(&expr) { null_of(&expr, schema).map(Transformed::yes) } else { Ok(Transformed::no(expr)) }
}

/// The functions that stand for operators between numbers (`checked_arithmetic`).
const ARITHMETIC: [&str; 5] = ["checked_plus", "checked_minus", "checked_times", "checked_divide", "checked_xor"];

/// Whether the expression is NULL because of a constant operand, and no other one has a constant to
/// compute.
fn is_null(expr: &Expr) -> bool {
    let is_null = |operand: &Expr| matches!(operand, Expr::Literal(value, _) if value.is_null());
    let has_null = match expr {
        Expr::ScalarFunction(call) => call.args.iter().any(is_null) && is_strict(expr),
        Expr::BinaryExpr(binary) => (is_null(&binary.left) || is_null(&binary.right)) && is_strict(expr),
        Expr::Cast(cast) => is_null(&cast.expr),
        Expr::Not(operand) | Expr::Negative(operand) => is_null(operand),
        Expr::Like(like) | Expr::SimilarTo(like) => is_null(&like.expr) || is_null(&like.pattern),
        Expr::Between(between) => is_null(&between.expr),
        Expr::InList(in_list) => is_null(&in_list.expr) && !in_list.list.is_empty(),
        _ => false,
    };
    has_null && !has_constants(expr)
}

/// Whether an operand of the expression has a constant that is still to be computed.
fn has_constants(expr: &Expr) -> bool {
    let mut found = false;
    let walked = expr.apply_children(|operand| {
        found = found || operand.exists(|part| Ok(may_be_computed(part)))?;
        Ok(TreeNodeRecursion::Continue)
    });
    found || walked.is_err()
}

/// Whether the expression is NULL if one of its operands is.
pub(crate) fn is_strict(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => {
            let facts = of_name(call.func.name());
            let is_strict =
                |of: &serac_pg::functions::Function| of.is_strict && !of.returns_set && of.kind == FunctionKind::Scalar;
            match facts.is_empty() {
                true => ARITHMETIC.contains(&call.func.name()) || operand_of_cast(expr).is_some(),
                false => facts.iter().all(is_strict),
            }
        }
        Expr::BinaryExpr(binary) => is_strict_operator(binary.op),
        Expr::Cast(_) | Expr::Not(_) | Expr::Negative(_) | Expr::Like(_) | Expr::SimilarTo(_) => true,
        _ => false,
    }
}

/// Whether an operator between values gives NULL for NULL: no AND, no OR, no IS DISTINCT FROM, and
/// no `||`, which arrays have, too.
fn is_strict_operator(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::Plus
            | Operator::Minus
            | Operator::Multiply
            | Operator::Divide
            | Operator::Modulo
    )
}

/// NULL of the expression's type.
fn null_of(expr: &Expr, schema: &DFSchema) -> Result<Expr> {
    let (_, field) = expr.to_field(schema)?;
    let metadata = (!field.metadata().is_empty()).then(|| FieldMetadata::from(field.as_ref()));
    Ok(Expr::Literal(ScalarValue::try_from(field.data_type())?, metadata))
}
