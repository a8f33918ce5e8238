//! Whether two subqueries are the same: `(SELECT max(x) FROM u)` twice in a statement. Their plans
//! differ in the qualifiers that their columns have.

use crate::limits::STACK;
use crate::plan_parts::{has_part, of_expr};
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::logical_plan::{Distinct, Subquery};
use datafusion::logical_expr::{Expr, LogicalPlan};
use std::collections::HashMap;
use std::sync::Arc;

/// Whether both give the same value.
pub(crate) fn alike(left: &Expr, right: &Expr) -> bool {
    let has_query = |expr: &Expr| has_part(expr, |part| of_expr(part).is_some());
    left == right
        || std::mem::discriminant(left) == std::mem::discriminant(right)
            && has_query(left)
            && has_query(right)
            && Pairs::default().are_expressions(left, right)
}

/// Whether both give the same rows.
pub(crate) fn alike_plans(left: &LogicalPlan, right: &LogicalPlan) -> bool {
    Pairs::default().are_plans(left, right)
}

/// The columns of one plan that stand for those of another.
#[derive(Default)]
struct Pairs(HashMap<Column, Column>);

impl Pairs {
    /// Compares the rest of the expressions as it is, and each of their subqueries.
    fn are_expressions(&mut self, left: &Expr, right: &Expr) -> bool {
        let (mut of_left, mut of_right) = (Vec::new(), Vec::new());
        let own = hollow(left.clone(), &mut of_left, |column| column);
        let other = hollow(right.clone(), &mut of_right, |column| self.0.get(&column).cloned().unwrap_or(column));
        matches!((own, other), (Some(own), Some(other)) if own == other)
            && of_left.len() == of_right.len()
            && of_left.iter().zip(&of_right).all(|(left, right)| self.are_plans(left, right))
    }

    fn are_all(&mut self, left: Vec<Expr>, right: Vec<Expr>) -> bool {
        left.len() == right.len() && left.iter().zip(&right).all(|(left, right)| self.are_expressions(left, right))
    }

    fn are_plans(&mut self, left: &LogicalPlan, right: &LogicalPlan) -> bool {
        stacker::maybe_grow(STACK.0, STACK.1, || {
            let (own, other) = (under_alias(left), under_alias(right));
            let are_alike = is_same_kind(own, other)
                && self.are_inputs(own, other)
                && self.are_all(own.expressions(), other.expressions());
            if are_alike {
                self.pair(own, other);
                self.pair(left, right);
            }
            are_alike
        })
    }

    fn are_inputs(&mut self, left: &LogicalPlan, right: &LogicalPlan) -> bool {
        let (own, other) = (left.inputs(), right.inputs());
        own.len() == other.len() && own.iter().zip(&other).all(|(left, right)| self.are_plans(left, right))
    }

    /// Pairs the columns of one plan with those of the other, by position.
    fn pair(&mut self, left: &LogicalPlan, right: &LogicalPlan) {
        let columns = right.schema().columns().into_iter().zip(left.schema().columns());
        self.0.extend(columns.filter(|(other, own)| other != own));
    }
}

fn under_alias(plan: &LogicalPlan) -> &LogicalPlan {
    let mut plan = plan;
    while let LogicalPlan::SubqueryAlias(alias) = plan {
        plan = &alias.input;
    }
    plan
}

/// Whether two operators are of one kind, apart from their inputs and expressions.
fn is_same_kind(left: &LogicalPlan, right: &LogicalPlan) -> bool {
    use LogicalPlan as P;
    match (left, right) {
        (P::TableScan(one), P::TableScan(other)) => {
            // Scans of one table may have different names.
            Arc::ptr_eq(&one.source, &other.source)
                && one.projection == other.projection
                && one.filters.is_empty()
                && other.filters.is_empty()
                && one.fetch == other.fetch
        }
        (P::Join(one), P::Join(other)) => (one.join_type, one.null_equality) == (other.join_type, other.null_equality),
        (P::EmptyRelation(one), P::EmptyRelation(other)) => one.produce_one_row == other.produce_one_row,
        (P::Sort(one), P::Sort(other)) => {
            let directions = |sort: &datafusion::logical_expr::logical_plan::Sort| -> Vec<(bool, bool)> {
                sort.expr.iter().map(|key| (key.asc, key.nulls_first)).collect()
            };
            one.fetch == other.fetch && directions(one) == directions(other)
        }
        (P::Unnest(one), P::Unnest(other)) => one.options == other.options,
        (P::Limit(one), P::Limit(other)) => {
            (one.skip.is_some(), one.fetch.is_some()) == (other.skip.is_some(), other.fetch.is_some())
        }
        // A query of WITH.
        (P::Extension(one), P::Extension(other)) => Arc::ptr_eq(&one.node, &other.node),
        (P::Distinct(Distinct::All(_)), P::Distinct(Distinct::All(_)))
        | (P::Projection(_), P::Projection(_))
        | (P::Filter(_), P::Filter(_))
        | (P::Aggregate(_), P::Aggregate(_))
        | (P::Window(_), P::Window(_))
        | (P::Union(_), P::Union(_))
        | (P::Values(_), P::Values(_))
        | (P::Subquery(_), P::Subquery(_)) => true,
        _ => false,
    }
}

/// An expression without the plans of its subqueries, which are added to `plans`, and with other
/// columns.
fn hollow(expr: Expr, plans: &mut Vec<Arc<LogicalPlan>>, rename: impl Fn(Column) -> Column) -> Option<Expr> {
    let nothing = Arc::new(LogicalPlan::default());
    let mut empty = |subquery: Subquery| {
        plans.push(subquery.subquery);
        Subquery { subquery: nothing.clone(), outer_ref_columns: Vec::new(), spans: subquery.spans }
    };
    let hollowed = expr.transform_down(|part| {
        Ok(Transformed::yes(match part {
            Expr::Column(column) => Expr::Column(rename(column)),
            Expr::OuterReferenceColumn(field, column) => Expr::OuterReferenceColumn(field, rename(column)),
            Expr::ScalarSubquery(subquery) => Expr::ScalarSubquery(empty(subquery)),
            Expr::Exists(exists) => Expr::Exists(Exists { subquery: empty(exists.subquery), ..exists }),
            Expr::InSubquery(within) => Expr::InSubquery(InSubquery { subquery: empty(within.subquery), ..within }),
            Expr::SetComparison(comparison) => {
                Expr::SetComparison(SetComparison { subquery: empty(comparison.subquery), ..comparison })
            }
            other => return Ok(Transformed::no(other)),
        }))
    });
    hollowed.data().ok()
}
