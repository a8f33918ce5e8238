//! Predicates on texts, evaluated below joins.
//!
//! `sum(CASE WHEN p_type LIKE 'PROMO%' THEN … END)` over a join carries a text per row through the
//! join, to look at it once. A projection or an aggregation above joins may read a text column only
//! in predicates over that column and constants. These are then evaluated in the column's relation,
//! and the joins carry their truth values, a bit each. The predicates that are moved cannot fail,
//! so testing rows that meet no partner does no harm.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::logical_expr::expr::{InList, Like};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Projection, SubqueryAlias};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::collections::HashMap;
use std::sync::Arc;

/// Evaluates predicates over texts below joins.
#[derive(Debug, Default)]
pub struct TextPredicates;

impl OptimizerRule for TextPredicates {
    fn name(&self) -> &str {
        "text_predicates"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let input = match &plan {
            LogicalPlan::Aggregate(aggregate) => aggregate.input.clone(),
            LogicalPlan::Projection(projection) => projection.input.clone(),
            _ => return Ok(Transformed::no(plan)),
        };
        if !stands_on_join(&input) {
            return Ok(Transformed::no(plan));
        }
        let (expressions, mut below) = (plan.expressions(), input);
        let mut moved = HashMap::new();
        for (predicate, column) in movable(&expressions, below.schema())? {
            let name = config.alias_generator().next("__predicate");
            if let Some(with_predicate) = sink(&below, &column, &predicate, &name)? {
                let field = with_predicate.schema().qualified_field_with_unqualified_name(&name)?;
                moved.insert(predicate, Expr::Column(Column::from(field)));
                below = Arc::new(with_predicate);
            }
        }
        if moved.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let names = NamePreserver::new(&plan);
        let replace = |expr: Expr| {
            let name = names.save(&expr);
            let replaced = expr.transform_down(|expr| {
                Ok(match moved.get(&expr) {
                    Some(column) => Transformed::new(column.clone(), true, TreeNodeRecursion::Jump),
                    None => Transformed::no(expr),
                })
            })?;
            Ok(name.restore(replaced.data))
        };
        let expressions = expressions.into_iter().map(replace).collect::<Result<Vec<_>>>()?;
        plan.with_new_exprs(expressions, vec![Arc::unwrap_or_clone(below)]).map(Transformed::yes)
    }
}

/// Whether the rows come from a join, possibly through renames and computed columns.
fn stands_on_join(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => stands_on_join(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => stands_on_join(&alias.input),
        plan => matches!(plan, LogicalPlan::Join(_)),
    }
}

/// The text column that `expr` is a predicate on, if it is one over a column and constants that
/// cannot fail.
fn predicate_column<'a>(expr: &'a Expr, schema: &DFSchema) -> Option<&'a Column> {
    let text = |expr: &'a Expr, constants: &[&Expr]| match expr {
        Expr::Column(column) if constants.iter().all(|constant| matches!(constant, Expr::Literal(..))) => {
            expr.get_type(schema).is_ok_and(|data_type| data_type.is_string()).then_some(column)
        }
        _ => None,
    };
    match expr {
        Expr::Like(Like { expr, pattern, .. }) => text(expr, &[&**pattern]),
        Expr::InList(InList { expr, list, .. }) => text(expr, &list.iter().collect::<Vec<_>>()),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => {
            text(left, &[&**right]).or_else(|| text(right, &[&**left]))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.is_logic_operator() => {
            let column = predicate_column(left, schema)?;
            (predicate_column(right, schema)? == column).then_some(column)
        }
        Expr::Not(inner) => predicate_column(inner, schema),
        _ => None,
    }
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// The largest predicates in `expressions` over text columns that occur nowhere else in them, with
/// their columns.
fn movable(expressions: &[Expr], schema: &DFSchema) -> Result<Vec<(Expr, Column)>> {
    let (mut predicates, mut elsewhere) = (Vec::new(), Vec::new());
    for expr in expressions {
        expr.apply(|expr| {
            if let Some(column) = predicate_column(expr, schema) {
                let found = (expr.clone(), column.clone());
                if !predicates.contains(&found) {
                    predicates.push(found);
                }
                return Ok(TreeNodeRecursion::Jump);
            }
            elsewhere.extend(expr.try_as_col().cloned());
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    predicates.retain(|(_, column)| !elsewhere.contains(column));
    Ok(predicates)
}

/// `plan` with `predicate`, which is over its `column`, as one more column, `name`, computed below
/// the joins. `None` if no join would carry the column for that alone.
fn sink(plan: &LogicalPlan, column: &Column, predicate: &Expr, name: &str) -> Result<Option<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Projection(projection) => {
            let at = projection.schema.index_of_column(column)?;
            let Expr::Column(inner) = projection.expr[at].clone().unalias() else { return Ok(None) };
            let mut others = projection.expr.iter().enumerate().filter(|(i, _)| *i != at);
            if others.any(|(_, expr)| expr.column_refs().contains(&inner)) {
                return Ok(None);
            }
            let Some(input) = sink(&projection.input, &inner, &over(predicate, &inner)?, name)? else {
                return Ok(None);
            };
            let mut expressions = projection.expr.clone();
            expressions.push(Expr::Column(Column::from(input.schema().qualified_field_with_unqualified_name(name)?)));
            Some(LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(input))?))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let inner = Column::from(alias.input.schema().qualified_field(alias.schema.index_of_column(column)?));
            let Some(input) = sink(&alias.input, &inner, &over(predicate, &inner)?, name)? else { return Ok(None) };
            Some(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?))
        }
        LogicalPlan::Join(join) => {
            let mut conditions = join.on.iter().flat_map(|(left, right)| [left, right]).chain(&join.filter);
            if conditions.any(|condition| condition.column_refs().contains(column)) {
                return Ok(None);
            }
            // On the side that a join completes with NULLs, a missing row would lack the truth
            // value, too. Not every predicate is NULL for it.
            let keeps_left = matches!(
                join.join_type,
                JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark
            );
            let keeps_right = matches!(
                join.join_type,
                JoinType::Inner | JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
            );
            let mut sides = [join.left.clone(), join.right.clone()];
            let side = match (join.left.schema().has_column(column), join.right.schema().has_column(column)) {
                (true, false) if keeps_left => 0,
                (false, true) if keeps_right => 1,
                _ => return Ok(None),
            };
            sides[side] = Arc::new(match sink(&sides[side], column, predicate, name)? {
                Some(side) => side,
                None => compute(&sides[side], predicate, name)?,
            });
            Some(plan.with_new_exprs(plan.expressions(), sides.map(Arc::unwrap_or_clone).into())?)
        }
        _ => None,
    })
}

/// `predicate`, which names one column, over `column` in its place.
fn over(predicate: &Expr, column: &Column) -> Result<Expr> {
    let rename = |expr| {
        Ok(match expr {
            Expr::Column(_) => Transformed::yes(Expr::Column(column.clone())),
            other => Transformed::no(other),
        })
    };
    Ok(predicate.clone().transform(rename)?.data)
}

/// The columns of `plan` and `predicate`.
fn compute(plan: &LogicalPlan, predicate: &Expr, name: &str) -> Result<LogicalPlan> {
    let mut expressions: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    expressions.push(predicate.clone().alias(name));
    Ok(LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(plan.clone()))?))
}
