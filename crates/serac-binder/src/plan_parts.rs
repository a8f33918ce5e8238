//! Parts of plans and of expressions in plans: subqueries and their references, lists, rows.

use crate::error::{BindError, NO_PLACE, Result};
use crate::types;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Spans};
use datafusion::logical_expr::expr::{Case, Exists, InSubquery, SetComparison, Sort};
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, SortExpr, lit};
use serac_parser::tree::OrderItem;
use std::sync::Arc;

/// Whether `is_such` holds for a part of an expression.
pub(crate) fn has_part(expr: &Expr, is_such: impl Fn(&Expr) -> bool) -> bool {
    expr.exists(|part| Ok(is_such(part))).unwrap_or(true)
}

/// A plan as a subquery.
pub(crate) fn subquery(plan: LogicalPlan) -> Subquery {
    let outer_ref_columns = free(&plan);
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() }
}

/// The references of a plan to queries around it, also those of subqueries in it.
pub(crate) fn free(plan: &LogicalPlan) -> Vec<Expr> {
    let mut found = Vec::new();
    add_free(plan, &mut found);
    found
}

pub(crate) fn add_free(plan: &LogicalPlan, found: &mut Vec<Expr>) {
    stacker::maybe_grow(crate::limits::STACK.0, crate::limits::STACK.1, || {
        let inputs = plan.inputs();
        let is_own = |column: &Column| inputs.iter().any(|input| input.schema().has_column(column));
        let mut add = |reference: &Expr, is_below: bool| {
            if let Expr::OuterReferenceColumn(_, column) = reference
                && !(is_below && is_own(column))
                && !found.contains(reference)
            {
                found.push(reference.clone());
            }
        };
        // The closures do not fail.
        let _ = plan.apply_expressions(|expr| {
            expr.apply(|part| {
                add(part, false);
                if let Some(subquery) = of_expr(part) {
                    subquery.outer_ref_columns.iter().for_each(|reference| add(reference, true));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        });
        if let LogicalPlan::Subquery(subquery) = plan {
            subquery.outer_ref_columns.iter().for_each(|reference| add(reference, true));
            return;
        }
        let left = match plan {
            LogicalPlan::Join(join) => Some(join.left.schema().clone()),
            _ => None,
        };
        for (at, input) in inputs.iter().enumerate() {
            let before = found.len();
            add_free(input, found);
            // The right side of a LATERAL join sees the left one.
            if at > 0
                && let Some(left) = &left
            {
                let mut kept = found.split_off(before);
                kept.retain(|part| !matches!(part, Expr::OuterReferenceColumn(_, column) if left.has_column(column)));
                found.append(&mut kept);
            }
        }
    });
}

/// The subquery that an expression is.
pub(crate) fn of_expr(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// An expression that is evaluated more than once, where PostgreSQL does it once: that must not be
/// seen.
pub(crate) fn repeatable(expr: &Expr) -> Result<()> {
    let is_such = |part: &Expr| {
        part.is_volatile_node() || of_expr(part).is_some_and(|subquery| is_volatile(&subquery.subquery).unwrap_or(true))
    };
    match expr.exists(|part| Ok(is_such(part))) {
        Ok(false) => Ok(()),
        _ => Err(BindError::unsupported("a volatile value that is compared several times", NO_PLACE)),
    }
}

/// Whether `exprs` refer to columns of their own query, and whether they refer to those of queries
/// around it.
pub(crate) fn levels_of(exprs: &[Expr], schema: &datafusion::common::DFSchema) -> (bool, bool) {
    let (mut own, mut outer) = (false, false);
    for expr in exprs {
        // The closure does not fail.
        let _ = expr.apply(|part| {
            match part {
                Expr::Column(_) => own = true,
                Expr::OuterReferenceColumn(..) => outer = true,
                _ => {}
            }
            for reference in of_expr(part).iter().flat_map(|subquery| &subquery.outer_ref_columns) {
                match reference {
                    Expr::OuterReferenceColumn(_, column) if schema.has_column(column) => own = true,
                    _ => outer = true,
                }
            }
            Ok(TreeNodeRecursion::Continue)
        });
    }
    (own, outer)
}

/// Whether a plan may give other rows each time.
pub(crate) fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            found |= expr.is_volatile();
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// The direction of an item of ORDER BY. NULLs are the largest.
pub(crate) fn sorted(item: &OrderItem, expr: Expr) -> Result<SortExpr> {
    let descending = match &item.using {
        None => item.descending,
        Some(operator) => match operator.symbol.as_str() {
            "<" => false,
            ">" => true,
            other => return Err(BindError::unsupported(format!("ORDER BY USING {other}"), NO_PLACE)),
        },
    };
    Ok(Sort { expr, asc: !descending, nulls_first: item.nulls_first.unwrap_or(descending) })
}

/// `a AND b AND c`, or `a OR b OR c`, as a tree that is as flat as can be. No expression is a
/// constant true or false.
pub(crate) fn joined(mut exprs: Vec<Expr>, operator: Operator) -> Expr {
    while exprs.len() > 1 {
        let mut halves = Vec::with_capacity(exprs.len().div_ceil(2));
        let mut rest = exprs.into_iter();
        while let Some(left) = rest.next() {
            halves.push(match rest.next() {
                Some(right) => Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))),
                None => left,
            });
        }
        exprs = halves;
    }
    exprs.pop().unwrap_or_else(|| lit(operator == Operator::And))
}

/// The type of a list, or of lists in each other, with other elements.
pub(crate) fn with_elements(list: &DataType, element: DataType) -> DataType {
    match types::element_type(list) {
        Some(inner) => DataType::new_list(with_elements(inner, element), true),
        None => element,
    }
}

/// Columns of values as rows.
pub(crate) fn values_plan(columns: Vec<Vec<Expr>>, rows: usize) -> Result<LogicalPlan> {
    let has_subquery = |expr: &Expr| has_part(expr, |part| of_expr(part).is_some());
    let waits = |expr: &Expr| {
        has_part(expr, |part| matches!(part, Expr::ScalarFunction(call) if call.func.as_async().is_some()))
    };
    let waits = columns.iter().flatten().any(waits);
    if !waits && !columns.iter().flatten().any(has_subquery) {
        let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
        let row = |_| columns.iter_mut().filter_map(Iterator::next).collect();
        let values = (0..rows).map(row).collect();
        return Ok(LogicalPlanBuilder::values(values)?.build()?);
    }
    // DataFusion computes no subqueries in VALUES, and calls no functions there that wait.
    let named = |(at, expr): (usize, Expr)| expr.alias(format!("column{}", at + 1));
    if rows == 1 {
        let exprs = columns.into_iter().flatten().enumerate().map(named);
        return Ok(LogicalPlanBuilder::empty(true).project(exprs.collect::<Vec<_>>())?.build()?);
    }
    if waits {
        // It would call each of them for all rows.
        return Err(BindError::unsupported("a function that waits in VALUES of several rows", NO_PLACE));
    }
    let numbers = LogicalPlanBuilder::values((0..rows as i64).map(|row| vec![lit(row)]).collect())?;
    let number = Expr::Column(Column::from(numbers.schema().qualified_field(0)));
    let by_number = |values: Vec<Expr>| {
        let whens = (0i64..).zip(values).map(|(row, value)| (Box::new(number.clone().eq(lit(row))), Box::new(value)));
        Expr::Case(Case::new(None, whens.collect(), None))
    };
    let exprs = columns.into_iter().map(by_number).enumerate().map(named);
    Ok(numbers.project(exprs.collect::<Vec<_>>())?.build()?)
}

/// The columns of a plan's rows, which may all be NULL.
pub(crate) fn rows_of(plan: &LogicalPlan) -> SchemaRef {
    let fields = plan.schema().fields().iter();
    Arc::new(Schema::new(fields.map(|field| field.as_ref().clone().with_nullable(true)).collect::<Vec<Field>>()))
}

/// The application of an operator.
pub(crate) fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}
