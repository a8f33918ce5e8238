//! `CASE x WHEN y …` of floats. Arrow's kernels compare these floats by their bits, and so -0.0 and
//! 0.0 differ. So the expression becomes `CASE WHEN x = y …`, unless `x` may be another value each
//! time. The values of IN are handled the same way: if the list may have a zero, all of them go
//! through [`one_zero`]. DataFusion makes such lists of equalities, too.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Case, InList};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use serac_functions::{has_one_zero, one_zero, rewrite_any, rewrite_typed};

/// Rewrites CASE and IN over floats. Comes after types are coerced.
#[derive(Debug)]
pub struct FloatCases;

fn is_ours(expr: &Expr) -> bool {
    matches!(expr, Expr::Case(Case { expr: Some(operand), .. }) if !operand.is_volatile())
        || matches!(expr, Expr::InList(_))
}

/// Whether an element of a list may be a zero.
fn may_be_zero(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => match value.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(value)) => value.is_some_and(|value| value == 0.0),
            _ => true,
        },
        Expr::Cast(cast) => may_be_zero(&cast.expr),
        _ => true,
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        expr if !is_ours(&expr) => Ok(Transformed::no(expr)),
        Expr::Case(Case { expr: Some(operand), when_then_expr, else_expr })
            if operand.get_type(schema)?.is_floating() =>
        {
            let condition = |value: Box<Expr>| Box::new(operand.as_ref().clone().eq(*value));
            let when_then = when_then_expr.into_iter().map(|(value, then)| (condition(value), then)).collect();
            Ok(Transformed::yes(Expr::Case(Case::new(None, when_then, else_expr))))
        }
        Expr::InList(list)
            if list.list.iter().any(may_be_zero)
                && !has_one_zero(&list.expr)
                && list.expr.get_type(schema)?.is_floating() =>
        {
            let items = list.list.into_iter().map(one_zero).collect();
            let within = InList::new(Box::new(one_zero(*list.expr)), items, list.negated);
            Ok(Transformed::yes(Expr::InList(within)))
        }
        other => Ok(Transformed::no(other)),
    }
}

impl AnalyzerRule for FloatCases {
    fn name(&self) -> &str {
        "float_cases"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_typed(plan, is_ours, rewrite)
    }
}

/// After the equalities of a column have become a list.
impl OptimizerRule for FloatCases {
    fn name(&self) -> &str {
        "float_cases"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let is_list = |expr: &Expr| matches!(expr, Expr::InList(list) if !has_one_zero(&list.expr));
        rewrite_any(plan, is_list, rewrite)
    }
}
