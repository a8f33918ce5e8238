//! Comparisons for which NULL is equal to NULL, `a IS NOT DISTINCT FROM b`, of two columns.
//!
//! DataFusion makes them join keys for which NULL equals NULL. It then takes other equalities as
//! keys of the same join, for example `t.b = u.b`, which would hold for two NULLs. So they become
//! equalities of values that are never NULL:
//! `coalesce(a, 0) = coalesce(b, 0) AND (a IS NULL) = (b IS NULL)`.
//!
//! `x IS TRUE` and its like, which are such comparisons with constants, become
//! `x IS NOT NULL AND x`: DataFusion's plans disagree about whether they may be NULL.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit, not};
use datafusion::optimizer::AnalyzerRule;
use serac_functions::rewrite_typed;

/// Rewrites comparisons for which NULL equals NULL. Comes after types are coerced.
#[derive(Debug)]
pub struct NullSafe;

fn is_ours(expr: &Expr) -> bool {
    if tested(expr).is_some_and(|operand| !operand.is_volatile() && is_small(operand)) {
        return true;
    }
    let refers = |expr: &Expr| expr.any_column_refs() || expr.contains_outer();
    matches!(expr, Expr::BinaryExpr(BinaryExpr { left, op: Operator::IsNotDistinctFrom, right })
        if is_small(left) && is_small(right) && refers(left) && refers(right) && !left.is_volatile() && !right.is_volatile())
}

/// Parts of an operand that may be written twice: one test in another would double it at each
/// level.
const SMALL: usize = 32;

fn is_small(operand: &Expr) -> bool {
    let mut parts = 0;
    let _ = operand.apply(|_| {
        parts += 1;
        Ok(if parts > SMALL { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    parts <= SMALL
}

/// The operand of `IS TRUE` or one of its like.
fn tested(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::IsTrue(operand) | Expr::IsFalse(operand) | Expr::IsUnknown(operand) => Some(operand),
        Expr::IsNotTrue(operand) | Expr::IsNotFalse(operand) | Expr::IsNotUnknown(operand) => Some(operand),
        _ => None,
    }
}

/// The same without a test of this kind.
fn without_test(expr: Expr) -> Expr {
    match expr {
        Expr::IsTrue(x) => x.clone().is_not_null().and(*x),
        Expr::IsFalse(x) => x.clone().is_not_null().and(not(*x)),
        Expr::IsNotTrue(x) => x.clone().is_null().or(not(*x)),
        Expr::IsNotFalse(x) => x.clone().is_null().or(*x),
        Expr::IsUnknown(x) => x.is_null(),
        Expr::IsNotUnknown(x) => x.is_not_null(),
        other => other,
    }
}

/// Two pairs of values that are equal where `left` and `right`, of the type, are equal or both
/// NULL; the values are never NULL. `None` for types without a known value.
pub(super) fn keys(left: Expr, right: Expr, data_type: &DataType) -> Option<[(Expr, Expr); 2]> {
    let some = ScalarValue::new_default(data_type).ok()?;
    let value = |expr: &Expr| coalesce(vec![expr.clone(), lit(some.clone())]);
    Some([(value(&left), value(&right)), (operand(left).is_null(), operand(right).is_null())])
}

/// The expression below casts, which is NULL exactly where they are. A cast has its operand's name,
/// so the tests of both could not stand in one projection.
fn operand(expr: Expr) -> Expr {
    match expr {
        Expr::Cast(cast) => operand(*cast.expr),
        other => other,
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if !is_ours(&expr) {
        return Ok(Transformed::no(expr));
    }
    let (left, op, right) = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => (left, op, right),
        test => return Ok(Transformed::yes(without_test(test))),
    };
    if !left.nullable(schema)? && !right.nullable(schema)? {
        return Ok(Transformed::yes(Expr::eq(*left, *right)));
    }
    let data_type = left.get_type(schema)?;
    Ok(match keys(left.as_ref().clone(), right.as_ref().clone(), &data_type) {
        Some([values, nulls]) => Transformed::yes(values.0.eq(values.1).and(nulls.0.eq(nulls.1))),
        None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
    })
}

impl AnalyzerRule for NullSafe {
    fn name(&self) -> &str {
        "null_safe"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_typed(plan, is_ours, rewrite)
    }
}
