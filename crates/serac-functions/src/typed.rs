//! Common parts of analyzer rules that look at expressions.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit};

/// Whether a part of an expression of the operator is `wanted`.
pub fn has_part(plan: &LogicalPlan, wanted: impl Fn(&Expr) -> bool) -> bool {
    let mut found = false;
    let walked = plan.apply_expressions(|expr| {
        found |= expr.exists(|part| Ok(wanted(part)))?;
        Ok(TreeNodeRecursion::Continue)
    });
    found || walked.is_err()
}

/// The operands of a tree of AND, in order.
fn operands(condition: Expr) -> Vec<Expr> {
    let (mut left, mut operands) = (vec![condition], Vec::new());
    while let Some(expr) = left.pop() {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left: first, op: Operator::And, right }) => left.extend([*right, *first]),
            operand => operands.push(operand),
        }
    }
    operands
}

/// `a AND b AND c` as a tree that is as flat as can be.
fn joined(mut operands: Vec<Expr>) -> Expr {
    while operands.len() > 1 {
        let mut rest = operands.into_iter();
        operands = std::iter::from_fn(|| {
            let first = rest.next()?;
            Some(match rest.next() {
                Some(second) => first.and(second),
                None => first,
            })
        })
        .collect();
    }
    operands.pop().unwrap_or_else(|| lit(true))
}

/// A tree of AND, made flat if it is a tower of many. DataFusion joins conditions to
/// towers. Its simplifier compares each level with all below it, on the stack.
pub(crate) fn flat_condition(condition: Expr) -> Expr {
    const MOST_LEVELS: usize = 64;
    let (mut levels, mut expr) = (0, &condition);
    while let Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, .. }) = expr {
        (levels, expr) = (levels + 1, left);
    }
    if levels < MOST_LEVELS { condition } else { joined(operands(condition)) }
}

/// Whether a part of an expression of a plan, or of its subqueries, is `wanted`.
///
/// # Errors
/// DataFusion's.
pub fn has_part_anywhere(plan: &LogicalPlan, wanted: impl Fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        found = has_part(plan, &wanted);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Rewrites the expressions of a plan and of its subqueries that have a `wanted` part, from the
/// leaves up, by the types of the columns that they name. The columns of results keep their names.
///
/// # Errors
/// The errors of `rewrite`.
pub fn rewrite_typed(
    plan: LogicalPlan,
    wanted: impl Fn(&Expr) -> bool,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    rewrite_whole(plan, wanted, |expr, schema, _| expr.transform_up(|part| rewrite(part, schema)))
}

/// As [`rewrite_typed`], for a rule of the optimizer: tells whether a plan has a `wanted` part at
/// all.
///
/// # Errors
/// The errors of `rewrite`.
pub fn rewrite_any(
    plan: LogicalPlan,
    wanted: impl Fn(&Expr) -> bool,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    match has_part_anywhere(&plan, &wanted)? {
        true => rewrite_typed(plan, wanted, rewrite).map(Transformed::yes),
        false => Ok(Transformed::no(plan)),
    }
}

/// As [`rewrite_typed`], with whole expressions. `rewrite` is told whether one is a condition of
/// rows: of a filter or a join.
///
/// # Errors
/// The errors of `rewrite`.
pub fn rewrite_whole(
    plan: LogicalPlan,
    wanted: impl Fn(&Expr) -> bool,
    rewrite: impl Fn(Expr, &DFSchema, bool) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|plan| {
        if !has_part(&plan, &wanted) {
            return Ok(Transformed::no(plan));
        }
        let schema = match &plan {
            LogicalPlan::TableScan(scan) => {
                DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?
            }
            _ => merge_schema(&plan.inputs()),
        };
        let is_condition = matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
        map_named(plan, &wanted, |expr| rewrite(expr, &schema, is_condition))
    });
    Ok(plan?.data)
}

/// Rewrites the expressions of an operator that have a `wanted` part. They keep their names, as do
/// the keys of grouping sets: the sets themselves are no columns, and must have no name.
///
/// # Errors
/// The errors of `rewrite`.
pub fn map_named(
    plan: LogicalPlan,
    wanted: impl Fn(&Expr) -> bool,
    mut rewrite: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let mut named = |expr: Expr| -> Result<Transformed<Expr>> {
        if !expr.exists(|part| Ok(wanted(part)))? {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        Ok(rewrite(expr)?.update_data(|expr| name.restore(expr)))
    };
    plan.map_expressions(|expr| match expr {
        Expr::GroupingSet(_) => expr.map_children(&mut named),
        expr => named(expr),
    })
}
