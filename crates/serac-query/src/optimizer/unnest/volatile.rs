//! Volatile functions in correlated subqueries, which PostgreSQL computes once for each outer row.
//!
//! A join on the domain computes them once for each different outer value. So no such join is made:
//! a subquery of one row without FROM is computed over the outer rows, and other subqueries are
//! refused.
//!
//! | subquery | becomes |
//! |---|---|
//! | `(SELECT nextval('s') WHERE t.id > 0)` | `CASE WHEN t.id > 0 THEN nextval('s') END` |
//! | `t, LATERAL (SELECT nextval('s') n WHERE t.id > 0)` | a filter and a projection over `t` |

use super::super::volatile_columns::{has_volatile, is_volatile};
use super::Unnest;
use super::outer::{Substitute, free, has_subquery, subquery_of, substituted};
use super::push::Domain;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DataFusionError, ExprSchema, JoinType, Result};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};

fn refused() -> DataFusionError {
    let message = "a volatile function in a subquery that refers to a query around it is not supported";
    DataFusionError::NotImplemented(message.into())
}

/// Whether a subquery must be computed anew for each row of the query around it.
pub(super) fn is_of_each_row(subquery: &LogicalPlan) -> bool {
    !free(subquery).is_empty() && has_volatile(subquery)
}

/// The expression with the values of these subqueries as expressions over rows of `schema`.
///
/// # Errors
/// 0A000 if a subquery cannot be such an expression.
pub(super) fn in_place(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let replace = |expr: Expr| {
        let plan = match subquery_of(&expr) {
            Some(subquery) if is_of_each_row(&subquery.subquery) => &subquery.subquery,
            _ => return Ok(Transformed::no(expr)),
        };
        let outer = free(plan);
        let is_value = matches!(expr, Expr::ScalarSubquery(_)) && plan.schema().fields().len() == 1;
        if !is_value || !outer.iter().all(|column| schema.has_column(column)) {
            return Err(refused());
        }
        let first = Expr::Column(Column::from(plan.schema().qualified_field(0)));
        let value = value_of(plan, first, Vec::new()).ok_or_else(refused)?;
        let substitutes = outer.into_iter().map(|column| {
            let field = schema.field_from_column(&column)?.clone();
            Ok(Substitute { outer: column.clone(), by: column, field })
        });
        let value = substituted(value, &substitutes.collect::<Result<Vec<_>>>()?, &DFSchema::empty())?;
        Ok(Transformed::yes(value))
    };
    Ok(expr.transform_down(replace)?.data)
}

/// A value over the one row of a plan without FROM, subject to `conditions`, as an expression over
/// the row of the outer query. `None` for a plan with FROM.
fn value_of(plan: &LogicalPlan, value: Expr, mut conditions: Vec<Expr>) -> Option<Expr> {
    let (input, below) = match plan {
        LogicalPlan::EmptyRelation(empty) if empty.produce_one_row && plan.schema().fields().is_empty() => {
            return Some(match conjunction(conditions) {
                Some(condition) => Expr::Case(Case::new(None, vec![(Box::new(condition), Box::new(value))], None)),
                None => value,
            });
        }
        LogicalPlan::Filter(filter) if !is_volatile(&filter.predicate) => {
            conditions.push(filter.predicate.clone());
            return value_of(&filter.input, value, conditions);
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let below = alias.input.schema().columns().into_iter().map(Expr::Column).collect();
            (&alias.input, below)
        }
        LogicalPlan::Projection(projection) => {
            let below: Vec<Expr> = projection.expr.iter().map(|item| item.clone().unalias()).collect();
            (&projection.input, below)
        }
        _ => return None,
    };
    let columns = plan.schema().columns();
    // A volatile item is computed once: it is the value itself, and no condition reads it.
    let is_once = |(column, item): (&Column, &Expr)| {
        !is_volatile(item)
            || matches!(&value, Expr::Column(read) if read == column)
                && !conditions.iter().any(|condition| condition.column_refs().contains(column))
    };
    let is_exact = columns.iter().zip(&below).all(is_once);
    if !is_exact || has_subquery(&value) || conditions.iter().any(has_subquery) {
        return None;
    }
    let over_input = |expr: Expr| {
        let replace = |expr: Expr| match &expr {
            Expr::Column(column) => {
                let at = columns.iter().position(|own| own == column);
                Ok(at.map_or_else(|| Transformed::no(expr.clone()), |at| Transformed::yes(below[at].clone())))
            }
            _ => Ok(Transformed::no(expr)),
        };
        expr.transform_up(replace).ok().map(|replaced| replaced.data)
    };
    let value = over_input(value)?;
    let conditions = conditions.into_iter().map(over_input).collect::<Option<Vec<_>>>()?;
    value_of(input, value, conditions)
}

impl Unnest {
    /// LATERAL over a subquery of each row.
    ///
    /// # Errors
    /// 0A000 where the subquery is not one row without FROM, or a left join may add NULLs.
    pub(super) fn lateral_of_each_row(&self, join: &Join) -> Result<LogicalPlan> {
        let on = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
        let condition = conjunction(on.chain(join.filter.clone()).filter(|condition| *condition != lit(true)));
        let has_filter = join.right.exists(|plan| Ok(matches!(plan, LogicalPlan::Filter(_))))?;
        let keeps_all = condition.is_none() && !has_filter;
        if !(join.join_type == JoinType::Inner || join.join_type == JoinType::Left && keeps_all) {
            return Err(refused());
        }
        let left = join.left.schema().columns();
        let rows = join.left.as_ref().clone();
        let domain = Domain { names: self, rows, outer: left.clone(), runs: Vec::new() };
        let pushed = domain.beside_each(&join.right)?.ok_or_else(refused)?;
        let own = left.into_iter().zip(pushed.domain);
        let own = own.map(|(column, by)| Expr::Column(by).alias_qualified(column.relation, column.name));
        let exprs: Vec<Expr> = own.chain(super::push::all_columns(&join.right)).collect();
        let rows = LogicalPlanBuilder::from(pushed.plan).project(exprs)?;
        match condition {
            Some(condition) => rows.filter(condition)?.build(),
            None => rows.build(),
        }
    }
}
