//! Sort keys of windows and aggregates, and windows' keys of PARTITION BY, in columns of their own.
//!
//! DataFusion asks a sort key for the range of its values. Most functions state one without a type,
//! which an operator around the function, as in `length(s) > 3`, cannot compare. DataFusion takes
//! that error for rows in no order: it does not see the sort below the window or the aggregate, and
//! refuses the plan. A key that is a column is always seen. So such keys are computed below.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, Window};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// Computes keys below the operators that sort by them. Comes last, so that it sees the functions
/// that other rules make of operators.
#[derive(Debug)]
pub struct ComputedKeys;

/// Whether an operator or a CASE stands around a function.
fn is_blind(key: &Expr) -> bool {
    let is_function = |part: &Expr| matches!(part, Expr::ScalarFunction(_));
    let stays = |part: &Expr| {
        matches!(part, Expr::OuterReferenceColumn(..) | Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_))
            || part.is_volatile_node()
    };
    !is_function(key)
        && key.exists(|part| Ok(is_function(part))).unwrap_or(false)
        && !key.exists(|part| Ok(stays(part))).unwrap_or(true)
}

/// Keys that are computed below an operator, and their columns.
struct Keys<'a> {
    input: &'a DFSchema,
    all: Vec<(Expr, Column)>,
}

impl Keys<'_> {
    /// Puts a column in the place of a key, if need be.
    fn replace(&mut self, key: &mut Expr) {
        if !is_blind(key) {
            return;
        }
        let known = self.all.iter().find(|(known, _)| known == key).map(|(_, column)| column.clone());
        let column = known.unwrap_or_else(|| {
            let is_free = |name: &String| {
                !self.input.has_column_with_unqualified_name(name)
                    && self.all.iter().all(|(_, taken)| taken.name != *name)
            };
            let name = (0..).map(|number| format!("__key_{number}")).find(is_free).expect("numbers do not end");
            let column = Column::new_unqualified(name);
            self.all.push((key.clone(), column.clone()));
            column
        });
        *key = Expr::Column(column);
    }

    /// Puts columns in the place of the keys of calls.
    fn replace_in(&mut self, exprs: &[Expr]) -> Result<Vec<Expr>> {
        let names = NamePreserver::new_for_projection();
        let mut replaced = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let name = names.save(expr);
            let with_columns = expr.clone().transform_up(|mut part| {
                let before = self.all.len();
                match &mut part {
                    Expr::WindowFunction(call) => {
                        let WindowFunction { params, .. } = call.as_mut();
                        params.partition_by.iter_mut().for_each(|key| self.replace(key));
                        params.order_by.iter_mut().for_each(|key| self.replace(&mut key.expr));
                    }
                    Expr::AggregateFunction(AggregateFunction { params, .. }) => {
                        params.order_by.iter_mut().for_each(|key| self.replace(&mut key.expr));
                        // With DISTINCT, a key is one of the arguments.
                        if params.distinct && self.all.len() > before {
                            params.args.iter_mut().for_each(|argument| self.replace(argument));
                        }
                    }
                    _ => {}
                }
                Ok(Transformed::yes(part))
            })?;
            replaced.push(name.restore(with_columns.data));
        }
        Ok(replaced)
    }

    /// The input with the keys.
    fn below(self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let own = self.input.columns().into_iter().map(Expr::Column);
        let keys = self.all.into_iter().map(|(key, column)| key.alias(column.name));
        let exprs = own.chain(keys).collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, input)?)))
    }
}

fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let (input, exprs) = match &plan {
        LogicalPlan::Window(Window { input, window_expr, .. }) => (input.clone(), window_expr),
        LogicalPlan::Aggregate(Aggregate { input, aggr_expr, .. }) => (input.clone(), aggr_expr),
        _ => return Ok(Transformed::no(plan)),
    };
    let mut keys = Keys { input: input.schema(), all: Vec::new() };
    let exprs = keys.replace_in(exprs)?;
    if keys.all.is_empty() {
        return Ok(Transformed::no(plan));
    }
    let below = keys.below(input.clone())?;
    Ok(Transformed::yes(match plan {
        LogicalPlan::Window(Window { schema, .. }) => {
            let window = LogicalPlan::Window(Window::try_new(exprs, below)?);
            let shown = schema.columns().into_iter().map(Expr::Column).collect();
            LogicalPlan::Projection(Projection::try_new(shown, Arc::new(window))?)
        }
        LogicalPlan::Aggregate(Aggregate { group_expr, .. }) => {
            LogicalPlan::Aggregate(Aggregate::try_new(below, group_expr, exprs)?)
        }
        other => other,
    }))
}

impl AnalyzerRule for ComputedKeys {
    fn name(&self) -> &str {
        "computed_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite)?.data)
    }
}
