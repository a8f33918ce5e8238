//! IN over more than constants, as equalities.
//!
//! DataFusion's simplifier merges two lists over the same value as sets of expressions.
//! `a IN (1, 2) AND a NOT IN (b)` becomes `a IN (1, 2)`, `a IN (1) AND a IN (b)` becomes false, and
//! NULL in a list is an element like others. That is right only for constants that are not NULL, so
//! only they stay in lists.

use super::list_guards::guard_lists;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, LogicalPlan, lit};
use datafusion::optimizer::AnalyzerRule;
use serac_functions::map_named;

/// Rewrites the lists of a plan. Comes after types are coerced.
#[derive(Debug)]
pub struct InLists;

/// The constant that an element of a list is, perhaps behind a cast.
fn constant(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        Expr::Cast(cast) => constant(&cast.expr),
        _ => None,
    }
}
fn is_null(expr: &Expr) -> bool {
    constant(expr).is_some_and(ScalarValue::is_null)
}

/// One of `terms`, as a tree that is as flat as it can be.
fn any(mut terms: Vec<Expr>) -> Expr {
    match terms.len() {
        0 => lit(false),
        1 => terms.remove(0),
        n => {
            let right = terms.split_off(n / 2);
            any(terms).or(any(right))
        }
    }
}

fn rewrite(expr: Expr) -> Transformed<Expr> {
    let Expr::InList(InList { expr, list, negated }) = expr else { return Transformed::no(expr) };
    let stays = |item: &Expr| constant(item).is_some_and(|value| !value.is_null());
    if list.iter().all(stays) || expr.is_volatile() {
        return Transformed::no(Expr::InList(InList { expr, list, negated }));
    }
    let (constants, others): (Vec<Expr>, Vec<Expr>) = list.into_iter().partition(stays);
    let (nulls, others): (Vec<Expr>, Vec<Expr>) = others.into_iter().partition(is_null);
    let mut terms: Vec<Expr> = others.into_iter().map(|other| expr.as_ref().clone().eq(other)).collect();
    if !nulls.is_empty() {
        terms.push(lit(ScalarValue::Boolean(None)));
    }
    if !constants.is_empty() {
        terms.push(Expr::InList(InList { expr, list: constants, negated: false }));
    }
    let any = any(terms);
    Transformed::yes(if negated { !any } else { any })
}

/// A conjunct of WHERE, for which NULL is as good as false.
fn without_nulls(conjunct: Expr) -> Expr {
    match conjunct {
        Expr::InList(list) if list.negated && list.list.iter().any(is_null) => lit(false),
        Expr::InList(mut list) if !list.negated => {
            list.list.retain(|item| !is_null(item));
            if list.list.is_empty() { lit(false) } else { Expr::InList(list) }
        }
        other => other,
    }
}

/// The expression with constants alone in its lists.
///
/// # Errors
/// No error of its own.
pub fn without_lists_of_expressions(expr: Expr) -> Result<Expr> {
    guard_lists(expr.transform_up(|expr| Ok(rewrite(expr)))?.data, false)
}

impl AnalyzerRule for InLists {
    fn name(&self) -> &str {
        "in_lists"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            let is_filter = matches!(plan, LogicalPlan::Filter(_));
            map_named(
                plan,
                |_| true,
                |expr| {
                    let expr = match is_filter {
                        true => {
                            let conjuncts = split_conjunction_owned(expr).into_iter().map(|conjunct| {
                                let conjunct = without_nulls(conjunct).transform_up(|expr| Ok(rewrite(expr)))?.data;
                                guard_lists(conjunct, true)
                            });
                            conjunction(conjuncts.collect::<Result<Vec<_>>>()?).expect("a filter has a conjunct")
                        }
                        false => without_lists_of_expressions(expr)?,
                    };
                    Ok(Transformed::yes(expr))
                },
            )
        });
        Ok(plan?.data)
    }
}
