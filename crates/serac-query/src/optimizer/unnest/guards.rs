//! The rows for which an expression asks for a subquery.
//!
//! A branch of CASE is evaluated for the rows that take it, and an argument of COALESCE where those
//! before it are NULL. So a subquery there gives values for these rows alone, and raises no error
//! of others. The condition is a CASE itself, because what stands before it may keep it from an
//! error.

use super::outer::has_subquery;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{Expr, lit};

/// A function that gives another expression for a subquery, by the condition of the rows that ask
/// for it.
pub(super) type Replace<'r> = dyn FnMut(&Expr, Option<&Expr>) -> Result<Option<Expr>> + 'r;

/// Replaces subqueries of an expression, from above. `replace` gives another expression for a
/// subquery, and is told the condition of the rows that ask for it; `None` if all do, or if the
/// condition has subqueries itself.
pub(super) fn replaced(expr: Expr, guard: Option<&Expr>, replace: &mut Replace<'_>) -> Result<Expr> {
    if let Some(other) = replace(&expr, guard)? {
        return Ok(other);
    }
    // Most expressions have no subqueries.
    if !has_subquery(&expr) {
        return Ok(expr);
    }
    match expr {
        Expr::Case(case) => of_case(case, guard, replace),
        Expr::ScalarFunction(call) if call.func.name() == "coalesce" => {
            let mut before = Vec::new();
            let args = call.args.into_iter().map(|argument| {
                let own = (!before.is_empty()).then(|| asked(None, &before, true)).and_then(|own| both(guard, own));
                let guard = own.as_ref().or(guard);
                before.push((argument.clone().is_not_null(), false));
                replaced(argument, guard, replace)
            });
            let args = args.collect::<Result<_>>()?;
            Ok(Expr::ScalarFunction(ScalarFunction::new_udf(call.func, args)))
        }
        other => other.map_children(|part| Ok(Transformed::yes(replaced(part, guard, replace)?))).map(|all| all.data),
    }
}

fn of_case(case: Case, guard: Option<&Expr>, replace: &mut Replace<'_>) -> Result<Expr> {
    let operand = case.expr.as_deref().cloned();
    let mut before: Vec<(Expr, bool)> = Vec::new();
    let mut branches = Vec::with_capacity(case.when_then_expr.len());
    for (when, then) in case.when_then_expr {
        let of_when = match before.is_empty() {
            true => None,
            false => both(guard, asked(operand.as_ref(), &before, true)),
        };
        let kept = *when.clone();
        let of_then = {
            let mut with_own = before.clone();
            with_own.push((kept.clone(), true));
            both(guard, asked(operand.as_ref(), &with_own, false))
        };
        let when = replaced(*when, of_when.as_ref().or(guard), replace)?;
        let then = replaced(*then, of_then.as_ref().or(guard), replace)?;
        branches.push((Box::new(when), Box::new(then)));
        before.push((kept, false));
    }
    let otherwise = match case.else_expr {
        Some(otherwise) => {
            let own = both(guard, asked(operand.as_ref(), &before, true));
            Some(Box::new(replaced(*otherwise, own.as_ref().or(guard), replace)?))
        }
        None => None,
    };
    let operand = case.expr.map(|operand| replaced(*operand, guard, replace)).transpose()?;
    Ok(Expr::Case(Case::new(operand.map(Box::new), branches, otherwise)))
}

/// The CASE of these conditions with their results, and the result behind them; `None` if a
/// condition cannot be evaluated once more.
fn asked(operand: Option<&Expr>, conditions: &[(Expr, bool)], otherwise: bool) -> Option<Expr> {
    let is_plain = |expr: &Expr| !has_subquery(expr) && !expr.is_volatile();
    let all = conditions.iter().map(|(condition, _)| condition).chain(operand);
    if !all.into_iter().all(is_plain) {
        return None;
    }
    let branches = conditions.iter().map(|(condition, result)| (Box::new(condition.clone()), Box::new(lit(*result))));
    let operand = operand.map(|operand| Box::new(operand.clone()));
    Some(Expr::Case(Case::new(operand, branches.collect(), Some(Box::new(lit(otherwise))))))
}

/// Rows for which both conditions hold: the second one is evaluated for those of the first.
fn both(outer: Option<&Expr>, own: Option<Expr>) -> Option<Expr> {
    let own = own?;
    Some(match outer {
        None => own,
        Some(outer) => {
            let branch = (Box::new(outer.clone()), Box::new(own));
            Expr::Case(Case::new(None, vec![branch], Some(Box::new(lit(false)))))
        }
    })
}
