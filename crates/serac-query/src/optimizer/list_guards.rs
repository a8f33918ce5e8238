//! Several lists about one value that may be NULL.
//!
//! DataFusion's simplifier merges lists that stand side by side: `b IN (1) AND b IN (2)` becomes
//! false and `b NOT IN (1) OR b NOT IN (2)` becomes true. That is wrong if `b` is NULL: both are
//! NULL then. (Lists that it makes of `b = 1 OR b = 2` itself are merged as well.) A guard keeps a
//! list from that: `b IN (1) AND (b IS NOT NULL OR NULL)`. It has the list's truth value, and the
//! simplifier drops it if `b` is never NULL. In WHERE, NULL is as good as false. There, lists that
//! are joined by AND need no guards: at worst the simplifier makes false of NULL.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, lit};

/// A value without casts.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => bare(&cast.expr),
        other => other,
    }
}

/// The value of an equality that the simplifier may take into a list.
fn equality(expr: &Expr) -> Option<&Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = expr else { return None };
    match (bare(left), bare(right)) {
        (column @ Expr::Column(_), Expr::Literal(..)) | (Expr::Literal(..), column @ Expr::Column(_)) => Some(column),
        _ => None,
    }
}

/// The value of a list, and whether the list is one of NOT IN. Equalities joined by OR are a list;
/// a single one is not.
fn list(expr: &Expr) -> Option<(&Expr, bool)> {
    match expr {
        Expr::InList(list) => Some((bare(&list.expr), list.negated)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let either = |side| equality(side).or_else(|| list(side).filter(|list| !list.1).map(|list| list.0));
            let about = either(left)?;
            (either(right)? == about).then_some((about, false))
        }
        _ => None,
    }
}

fn is_guard(expr: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) = expr else { return false };
    matches!(**left, Expr::IsNull(_) | Expr::IsNotNull(_))
        && matches!(**right, Expr::Literal(ScalarValue::Boolean(None), _))
}

/// The lists in a tree of AND, OR and NOT: their values, and whether the value must not be in them.
fn lists<'e>(tree: &'e Expr, negated: bool, found: &mut Vec<(&'e Expr, bool)>) {
    if let Some((about, not_in)) = list(tree) {
        found.push((about, not_in != negated));
        return;
    }
    match tree {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) if !is_guard(right) => {
            lists(left, negated, found);
            lists(right, negated, found);
        }
        Expr::Not(inner) => lists(inner, !negated, found),
        _ => {}
    }
}

/// The tree with a guard for each list.
fn guarded(tree: Expr) -> Expr {
    let null = || lit(ScalarValue::Boolean(None));
    if let Some((about, not_in)) = list(&tree) {
        let about = about.clone();
        return match not_in {
            true => tree.or(about.is_null().and(null())),
            false => tree.and(about.is_not_null().or(null())),
        };
    }
    match tree {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) if !is_guard(&right) => {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(guarded(*left)), op, Box::new(guarded(*right))))
        }
        Expr::Not(inner) => !guarded(*inner),
        other => other,
    }
}

/// The expression with guards where it needs them. `is_condition` says that NULL is as good as
/// false.
///
/// # Errors
/// No error of its own.
pub(super) fn guard_lists(expr: Expr, is_condition: bool) -> Result<Expr> {
    let mut is_root = true;
    let guard = |expr: Expr| {
        let is_condition = std::mem::take(&mut is_root) && is_condition;
        let mut found = Vec::new();
        lists(&expr, false, &mut found);
        found.retain(|(about, _)| !about.is_volatile());
        let matters = |a: &(&Expr, bool), b: &(&Expr, bool)| a.0 == b.0 && (!is_condition || a.1 || b.1);
        let repeats = (1..found.len()).any(|i| found[..i].iter().any(|earlier| matters(earlier, &found[i])));
        Ok(match (repeats, &expr) {
            (true, _) => Transformed::yes(guarded(expr)),
            // Operators below in the same tree have been looked at.
            (false, Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }) | Expr::Not(_))
                if is_condition =>
            {
                return leaves(expr);
            }
            _ => Transformed::no(expr),
        })
    };
    Ok(expr.transform_down(guard)?.data)
}

/// Guards in the parts of a condition.
fn leaves(condition: Expr) -> Result<Transformed<Expr>> {
    let children = condition.map_children(|child| match &child {
        Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }) | Expr::Not(_) => leaves(child),
        _ => guard_lists(child, false).map(Transformed::yes),
    })?;
    Ok(Transformed::new(children.data, true, TreeNodeRecursion::Jump))
}
