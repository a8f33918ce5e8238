//! 0 and -0 are equal, but DataFusion and Arrow compare floats by their bits in sorts, windows,
//! aggregates of DISTINCT values, and the value sets that joins pass down to filter the rows of
//! their other side. There, floats go through [`one_zero`], which makes 0 of both.
//!
//! Comparisons and the keys of groups are right without it.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, JoinConstraint, Result};
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Aggregate, Join, Sort, Window};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use serac_functions::{has_one_zero, one_zero};

/// Maps both zeros to one. Comes last, after the rules that make joins of subqueries.
#[derive(Debug, Default)]
pub struct FloatZeros;

/// Whether a value is a float that may be -0.
fn has_two_zeros(expr: &Expr, schema: &DFSchema) -> bool {
    !matches!(expr, Expr::Literal(..)) && !has_one_zero(expr) && expr.get_type(schema).is_ok_and(|t| t.is_floating())
}

fn sort_key(key: SortExpr, schema: &DFSchema) -> SortExpr {
    match has_two_zeros(&key.expr, schema) {
        true => SortExpr { expr: one_zero(key.expr), ..key },
        false => key,
    }
}

fn window(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| {
        let Expr::WindowFunction(mut function) = expr else { return Ok(Transformed::no(expr)) };
        let WindowFunction { params, .. } = function.as_mut();
        let keys = params.partition_by.iter().chain(params.order_by.iter().map(|key| &key.expr));
        if !keys.into_iter().any(|key| has_two_zeros(key, schema)) {
            return Ok(Transformed::no(Expr::WindowFunction(function)));
        }
        for key in &mut params.partition_by {
            if has_two_zeros(key, schema) {
                *key = one_zero(key.clone());
            }
        }
        params.order_by = params.order_by.drain(..).map(|key| sort_key(key, schema)).collect();
        Ok(Transformed::yes(Expr::WindowFunction(function)))
    })
}

/// An aggregate of DISTINCT values, in which both zeros are one.
fn distinct(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::AggregateFunction(mut call)
            if call.params.distinct && call.params.args.iter().any(|value| has_two_zeros(value, schema)) =>
        {
            for value in &mut call.params.args {
                if has_two_zeros(value, schema) {
                    *value = one_zero(std::mem::take(value));
                }
            }
            // What it is ordered by must stay one of its values.
            call.params.order_by = call.params.order_by.drain(..).map(|key| sort_key(key, schema)).collect();
            Ok(Transformed::yes(Expr::AggregateFunction(call)))
        }
        expr => Ok(Transformed::no(expr)),
    })
}

impl OptimizerRule for FloatZeros {
    fn name(&self) -> &str {
        "float_zeros"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Sort(sort) if sort.expr.iter().any(|key| has_two_zeros(&key.expr, sort.input.schema())) => {
                let schema = sort.input.schema().clone();
                let expr = sort.expr.into_iter().map(|key| sort_key(key, &schema)).collect();
                Ok(Transformed::yes(LogicalPlan::Sort(Sort { expr, ..sort })))
            }
            LogicalPlan::Window(Window { input, window_expr, schema }) => {
                let of_input = input.schema().clone();
                let names = NamePreserver::new_for_projection();
                let mut changed = false;
                let rewritten = window_expr.into_iter().map(|expr| {
                    let name = names.save(&expr);
                    let rewritten = window(expr, &of_input)?;
                    changed |= rewritten.transformed;
                    Ok(name.restore(rewritten.data))
                });
                let window_expr = rewritten.collect::<Result<Vec<_>>>()?;
                let window = LogicalPlan::Window(Window { input, window_expr, schema });
                Ok(Transformed::new_transformed(window, changed))
            }
            LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, schema, .. }) => {
                let names = NamePreserver::new_for_projection();
                let mut changed = false;
                let rewritten = aggr_expr.into_iter().map(|expr| {
                    let name = names.save(&expr);
                    let rewritten = distinct(expr, input.schema())?;
                    changed |= rewritten.transformed;
                    Ok(name.restore(rewritten.data))
                });
                let aggr_expr = rewritten.collect::<Result<Vec<_>>>()?;
                let aggregate = Aggregate::try_new_with_schema(input, group_expr, aggr_expr, schema)?;
                Ok(Transformed::new_transformed(LogicalPlan::Aggregate(aggregate), changed))
            }
            LogicalPlan::Join(join) if join.on.iter().any(|(left, _)| has_two_zeros(left, join.left.schema())) => {
                let (left, right) = (join.left.schema().clone(), join.right.schema().clone());
                let on = join.on.into_iter().map(|(l, r)| match l.get_type(&left).is_ok_and(|t| t.is_floating()) {
                    true => {
                        let r = if has_two_zeros(&r, &right) { one_zero(r) } else { r };
                        (if has_two_zeros(&l, &left) { one_zero(l) } else { l }, r)
                    }
                    false => (l, r),
                });
                let on = on.collect();
                // A key of USING must be a column.
                let join_constraint = JoinConstraint::On;
                Ok(Transformed::yes(LogicalPlan::Join(Join { on, join_constraint, ..join })))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}
