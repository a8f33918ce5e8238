//! References to the query around a subquery.

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Result, not_impl_err};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Join, Subquery};
use datafusion::logical_expr::{Expr, LogicalPlan};
use std::sync::Arc;

/// The subquery that an expression is.
pub(crate) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}
fn subquery_mut(expr: &mut Expr) -> Option<&mut Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Whether there is a subquery in `expr`.
pub(super) fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(subquery_of(expr).is_some())).unwrap_or(true)
}

/// The subquery on the right of a join whose rows depend on those on the left.
pub(super) fn lateral(join: &Join) -> Option<&LogicalPlan> {
    match join.right.as_ref() {
        LogicalPlan::Subquery(subquery) => Some(&subquery.subquery),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => Some(&subquery.subquery),
            _ => None,
        },
        _ => None,
    }
}

fn add(column: &Column, columns: &mut Vec<Column>) {
    if !columns.contains(column) {
        columns.push(column.clone());
    }
}

/// The columns of queries around it that an expression, or a subquery in it, refers to: its own
/// references, and those of subqueries in it.
fn references(expr: &Expr) -> (Vec<Column>, Vec<Column>) {
    let (mut own, mut below) = (Vec::new(), Vec::new());
    let _ = expr.apply(|expr| {
        if let Expr::OuterReferenceColumn(_, column) = expr {
            add(column, &mut own);
        }
        if let Some(subquery) = subquery_of(expr) {
            free(&subquery.subquery).iter().for_each(|column| add(column, &mut below));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    (own, below)
}

/// Whether an operator's own expressions refer to a query around it.
pub(super) fn refers(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let _ = plan.apply_expressions(|expr| {
        let (own, below) = references(expr);
        found |= !own.is_empty() || below.iter().any(|column| !is_bound(column, plan));
        Ok(TreeNodeRecursion::Continue)
    });
    found
}
/// Whether subqueries in an operator's expressions refer to a query around it.
pub(super) fn refers_below(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let _ = plan.apply_expressions(|expr| {
        found |= references(expr).1.iter().any(|column| !is_bound(column, plan));
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// Whether the column is one of those that the operator's expressions see. The nearest query that
/// has a column of the name is meant.
fn is_bound(column: &Column, plan: &LogicalPlan) -> bool {
    plan.inputs().iter().any(|input| input.schema().has_column(column))
}

/// The columns that a plan refers to and that are of queries around it.
pub(super) fn free(plan: &LogicalPlan) -> Vec<Column> {
    let mut columns = Vec::new();
    let _ = plan.apply_expressions(|expr| {
        let (own, below) = references(expr);
        own.iter().chain(below.iter().filter(|column| !is_bound(column, plan))).for_each(|c| add(c, &mut columns));
        Ok(TreeNodeRecursion::Continue)
    });
    let of_left = match plan {
        LogicalPlan::Join(join) if lateral(join).is_some() => Some(join.left.schema()),
        _ => None,
    };
    for (i, input) in plan.inputs().into_iter().enumerate() {
        let mut below = free(input);
        below.retain(|column| i == 0 || of_left.is_none_or(|left| !left.has_column(column)));
        below.iter().for_each(|column| add(column, &mut columns));
    }
    columns
}

/// The substitute for a column of an outer query: a column, whose field is needed if that is an
/// outer column itself.
#[derive(Clone, Debug)]
pub(super) struct Substitute {
    pub(super) outer: Column,
    pub(super) by: Column,
    pub(super) field: FieldRef,
}

fn find<'s>(substitutes: &'s [Substitute], column: &Column) -> Option<&'s Substitute> {
    substitutes.iter().find(|substitute| substitute.outer == *column)
}
fn unbound(substitutes: &[Substitute], schemas: &[&DFSchema]) -> Vec<Substitute> {
    let is_free = |substitute: &&Substitute| !schemas.iter().any(|schema| schema.has_column(&substitute.outer));
    substitutes.iter().filter(is_free).cloned().collect()
}

/// The expression with columns instead of references, where it stands above rows that have had the
/// columns of `schema` so far.
///
/// # Errors
/// 0A000 for LATERAL in a subquery that hides a column.
pub(super) fn substituted(expr: Expr, substitutes: &[Substitute], schema: &DFSchema) -> Result<Expr> {
    let within = unbound(substitutes, &[schema]);
    replaced(expr, &within, &|column| find(substitutes, column).map(|s| Expr::Column(s.by.clone())))
}

fn replaced(expr: Expr, within: &[Substitute], replacement: &dyn Fn(&Column) -> Option<Expr>) -> Result<Expr> {
    let replace = |mut expr: Expr| {
        if let Expr::OuterReferenceColumn(_, column) = &expr
            && let Some(replacement) = replacement(column)
        {
            return Ok(Transformed::yes(replacement));
        }
        if let Some(subquery) = subquery_mut(&mut expr) {
            let plan = in_plan(subquery.subquery.as_ref().clone(), within)?;
            subquery.outer_ref_columns = plan.all_out_ref_exprs();
            subquery.subquery = Arc::new(plan);
            return Ok(Transformed::yes(expr));
        }
        Ok(Transformed::no(expr))
    };
    Ok(expr.transform_down(replace)?.data)
}

/// The plan of a subquery with references to other columns.
fn in_plan(plan: LogicalPlan, substitutes: &[Substitute]) -> Result<LogicalPlan> {
    if substitutes.is_empty() {
        return Ok(plan);
    }
    let outer =
        |column: &Column| find(substitutes, column).map(|s| Expr::OuterReferenceColumn(s.field.clone(), s.by.clone()));
    let node = |plan: LogicalPlan| {
        if let LogicalPlan::Join(join) = &plan
            && lateral(join).is_some()
            && substitutes.iter().any(|substitute| join.left.schema().has_column(&substitute.outer))
        {
            return not_impl_err!("LATERAL in a subquery that hides a column of the query around it");
        }
        let inputs = plan.inputs();
        let schemas: Vec<&DFSchema> = inputs.iter().map(|input| input.schema().as_ref()).collect();
        let within = unbound(substitutes, &schemas);
        let names = NamePreserver::new(&plan);
        let plan = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(Transformed::yes(name.restore(replaced(expr, &within, &outer)?)))
        })?;
        Ok(Transformed::yes(plan.data.recompute_schema()?))
    };
    Ok(plan.transform_up(node)?.data)
}

/// An expression over the rows of the query around, as one of a subquery.
pub(super) fn as_outer(expr: &Expr, schema: &DFSchema) -> Result<Expr> {
    let outer = |expr: Expr| {
        Ok(match expr {
            Expr::Column(column) => {
                let field = schema.field_from_column(&column)?.clone();
                Transformed::yes(Expr::OuterReferenceColumn(field, column))
            }
            other => Transformed::no(other),
        })
    };
    Ok(expr.clone().transform_up(outer)?.data)
}

/// A subquery with this plan.
pub(super) fn subquery(plan: LogicalPlan) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Default::default() }
}
